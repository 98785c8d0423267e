#include <string.h>

#include "store/natural.h"
#include "test/test.h"

static ru_status read(const char *path, const char *text, ru_arena *a, ru_text *out, ru_err *err)
{
    const ru_natural *kind = ru_natural_find("storage", path, ru_str_c(text));
    if (kind == NULL) {
        return RU_FAIL(err, RU_E_DATA, "no kind");
    }
    *out = ru_text_arena(a);
    ru_json j = ru_json_into(out);
    ru_json_open(&j, NULL, '{');
    RU_TRY(kind->read(path, ru_str_c(text), a, &j, err));
    ru_json_close(&j);
    return RU_OK;
}

static void traces_of_jobs_become_files(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_text out;
    ru_err err;
    /* 10 maps, 4 reducers, 2 GB through 10 tasks of 20 MB/s; the second job shuffles nothing. */
    assert_ok(read("t.tsv",
                   "job0\t1\t1\t2560000000\t1000000000\t440000000\tinputPath1\t\t\n"
                   "job1\t5\t4\t100\t0\t100\n",
                   &a, &out, &err),
              err);
    assert_non_null(strstr(out.p,
                           "\"group\":\"inputPath1\",\"open_s\":1,\"input_bytes\":2560000000,"
                           "\"writers\":10,\"readers\":4,\"size_bytes\":1000000000,"
                           "\"life_s\":80,\"ops\":2000}]"));
    assert_non_null(strstr(out.p, "\"from_s\":2,\"readers\":\"hidden\""));
    static const char *const bad[] = {"job0\t1\t1\t2\t3e9\t4\njob1\t0\t1\t2\t3e9\t4\n",
                                      "job0\t1\t1\t2\t3e9\t4\njob1\t2\t1\t2\tmany\t4\n",
                                      "job0\t1\t1\t2\t3e9\t4\njob1\t2\t1\t2\t-3e9\t4\n",
                                      "job0\t1\t1\t2\t0\t4\n"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(read("t.tsv", bad[k], &a, &out, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, k < 3 ? "t.tsv:2: 'job1" : "no job shuffles"));
    }
    assert_null(ru_natural_find("storage", "t.tsv", ru_str_c("files: []\n")));
    ru_arena_fini(&a);
}

RU_TESTS(store_natural_storage, cmocka_unit_test(traces_of_jobs_become_files))
