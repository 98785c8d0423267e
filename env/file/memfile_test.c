/* A file in memory reads as what was written, and is gone afterwards. */
#include "env/file/memfile.h"

#include <string.h>

#include "env/file/file.h"
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

RU_TESTS(env_memfile, cmocka_unit_test(bytes_read_back))
