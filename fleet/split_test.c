/* Views of simulated clients against what their law says. */
#include "fleet/split.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/test.h"

enum { COUNT = 600 };

static ru_dataset *open_data(ru_err *err)
{
    ru_dataset *d;
    const ru_data_options o = {
        .format = "synthetic", .generator = "digits", .count = COUNT, .seed = 3};
    assert_ok(ru_dataset_open(&o, &d, err), *err);
    return d;
}

static int64_t label_of(const ru_dataset *d, int64_t i)
{
    uint8_t x[4096];
    int64_t y = 0;
    ru_err err;
    void *fields[RU_FIELDS_MAX] = {x, &y};
    assert_ok(ru_dataset_read(d, i, fields, &err), err);
    return y & 0xffffffff;
}

static void test_views(void **state)
{
    (void)state;
    ru_err err;
    ru_dataset *d = open_data(&err);
    for (uint32_t kind = RU_SPLIT_IID; kind <= RU_SPLIT_DIRICHLET; kind++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_split *s;
        const ru_split_options o = {.kind = (ru_split_kind)kind,
                                    .classes = 2,
                                    .alpha = 0.3,
                                    .clients = 40,
                                    .samples = 25,
                                    .seed = ru_test_seed()};
        assert_ok(ru_split_open(&o, d, &a, &s, &err), err);
        assert_int_equal(ru_split_most(s), 25);
        uint32_t distinct = 0;
        for (uint32_t c = 0; c < 40; c++) {
            int64_t one[25], two[25];
            uint32_t seen[64] = {0}, n = 0;
            assert_int_equal(ru_split_view(s, c, one), 25);
            assert_int_equal(ru_split_view(s, c, two), 25);
            assert_memory_equal(one, two, sizeof one);
            for (uint32_t k = 0; k < 25; k++) {
                assert_true(one[k] >= 0 && one[k] < COUNT);
                n += seen[label_of(d, one[k]) % 64]++ == 0 ? 1 : 0;
            }
            assert_true(kind != RU_SPLIT_CLASSES || n <= 2);
            distinct += n;
        }
        assert_true(kind == RU_SPLIT_IID ? distinct > 40 * 8 : distinct < 40 * 7);
        ru_arena_fini(&a);
    }
    ru_arena a;
    ru_split *s;
    ru_arena_init(&a, 0);
    ru_split_options o = {.kind = RU_SPLIT_CLASSES, .clients = 4, .samples = 5};
    o.classes = (uint32_t)ru_dataset_classes(d);
    assert_ok(ru_split_open(&o, d, &a, &s, &err), err);
    o.classes++;
    assert_int_equal(ru_split_open(&o, d, &a, &s, &err), RU_E_CONFIG);
    ru_arena_fini(&a);
    ru_dataset_close(d);
}

static void test_file(void **state)
{
    (void)state;
    char path[] = "/tmp/rubato-split-XXXXXX";
    int fd = mkstemp(path);
    ru_err err;
    ru_arena a;
    ru_split *s;
    ru_arena_init(&a, 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    for (uint32_t i = 0; i < COUNT; i++) {
        fprintf(f, "%u\n", i % 3 == 0 ? 2u : 0u);
    }
    fclose(f);
    ru_dataset *d = open_data(&err);
    ru_split_options o = {.kind = RU_SPLIT_FILE, .file = path, .clients = 3};
    assert_ok(ru_split_open(&o, d, &a, &s, &err), err);
    int64_t view[COUNT];
    assert_int_equal(ru_split_most(s), 400);
    assert_int_equal(ru_split_view(s, 0, view), 400);
    assert_int_equal(view[2], 4);
    assert_int_equal(ru_split_view(s, 1, view), 0);
    assert_int_equal(ru_split_view(s, 2, view), 200);
    assert_int_equal(view[1], 3);
    o.clients = 2;
    assert_int_equal(ru_split_open(&o, d, &a, &s, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, ":1: expected the number of a client, 0 to 1"));
    ru_dataset_close(d);
    unlink(path);
    ru_arena_fini(&a);
}

RU_TESTS(fleet_split, cmocka_unit_test(test_views), cmocka_unit_test(test_file))
