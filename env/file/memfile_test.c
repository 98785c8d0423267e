/* A file in memory reads as what was written, and is gone afterwards. */
#include "env/file/memfile.h"

#include <string.h>

#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

static void bytes_read_back(void **state)
{
    (void)state;
    static uint8_t data[100000];
    char path[RU_MEMFILE_PATH], *text;
    int fd = -1;
    int64_t n;
    ru_err err;
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(i * 7 + i / 251);
    }
    assert_ok(ru_memfile_open(data, sizeof data, &fd, path, &err), err);
    ru_map_file map;
    assert_ok(ru_file_map(path, &map, &err), err);
    assert_int_equal(map.size_bytes, sizeof data);
    assert_memory_equal(map.data, data, sizeof data);
    ru_file_unmap(&map);
    ru_memfile_close(fd);
    assert_int_not_equal(ru_file_read(path, sizeof data, &a, &text, &n, &err), RU_OK);
    ru_memfile_close(-1);
    ru_arena_fini(&a);
}

/* Whole pages stand for the file, the rest of the memory stays as it is. */
static void files_are_laid_into_memory(void **state)
{
    (void)state;
    enum { N = 3 << 16 };
    static uint8_t bytes[N];
    char path[RU_MEMFILE_PATH];
    ru_err err = {0};
    ru_map_file map;
    uint8_t *into;
    int fd;
    for (uint32_t i = 0; i < N; i++) {
        bytes[i] = (uint8_t)(1 + i % 251);
    }
    assert_ok(ru_memfile_open(bytes, N, &fd, path, &err), err);
    assert_ok(ru_memfile_map(2 * N, &into, &map, &err), err);
    into[N - 1] = 7;
    assert_int_equal(ru_memfile_lay(into + 1, fd, N), 0);
    assert_int_equal(ru_memfile_lay(into, fd, 100), 0);
    int64_t laid = ru_memfile_lay(into, fd, N - 1); /* pages have at most 64 KiB */
    assert_true(laid > 0 && laid < N);
    assert_memory_equal(map.data, bytes, (size_t)laid);
    assert_int_equal(map.data[laid], 0);
    assert_int_equal(map.data[N - 1], 7);
    ru_file_unmap(&map);
    ru_memfile_close(fd);
}

/* Zeroed, and without a name in the folder. */
static void memory_stands_on_a_disk(void **state)
{
    ru_scratch *f = *state;
    enum { N = 1 << 20 };
    void *p = NULL;
    char **names;
    uint32_t n;
    assert_ok(ru_memfile_on_disk(f->root, N, &p, &f->err), f->err);
    uint8_t *bytes = p;
    assert_true(bytes[0] == 0 && bytes[N - 1] == 0);
    memset(bytes, 7, N);
    assert_true(bytes[N - 1] == 7);
    assert_ok(ru_dir_list(f->root, &f->arena, &names, &n, &f->err), f->err);
    assert_int_equal(n, 0);
    ru_memfile_leave(p, N);
    ru_memfile_leave(NULL, N);
    const char *none = ru_path_join(&f->arena, f->root, "none");
    assert_int_equal(ru_memfile_on_disk(none, N, &p, &f->err), RU_E_CREATE);
    assert_non_null(strstr(f->err.text, none));
}

RU_TESTS(env_memfile, cmocka_unit_test(bytes_read_back),
         cmocka_unit_test_setup_teardown(memory_stands_on_a_disk, ru_scratch_open,
                                         ru_scratch_close),
         cmocka_unit_test(files_are_laid_into_memory))
