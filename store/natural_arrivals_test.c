/* Logs of requests: times of two forms, classes of sizes, what is refused by path and line. */
#include <string.h>

#include "store/natural.h"
#include "test/test.h"

static ru_status read_text(const char *policy, const char *text, ru_arena *a, ru_text *json,
                           ru_err *err)
{
    ru_str all = ru_str_c(text);
    const ru_natural *kind = ru_natural_find(policy, "log.csv", all);
    assert_non_null(kind);
    *json = ru_text_arena(a);
    ru_json j = ru_json_into(json);
    ru_json_open(&j, NULL, '{');
    ru_status st = kind->read("log.csv", all, a, &j, err);
    if (st == RU_OK) {
        ru_json_close(&j);
    }
    return st;
}

static void test_times(void **state)
{
    (void)state;
    ru_arena a;
    ru_text json;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_ok(read_text("batch", "10\n10.5\n12\n", &a, &json, &err), err);
    assert_non_null(strstr(json.p, "{\"arrivals\":{\"gaps_s\":[0.5,1.5]}}"));
    /* Over a leap day, a new year, with and without T and Z. */
    assert_ok(read_text("batch",
                        "TIMESTAMP,Tokens\n2024-02-28 23:59:59.5,7\n2024-03-01T00:00:00Z,8\n"
                        "2025-03-01 00:00:00.25,9\n2100-03-01 00:00:00.25,1\n",
                        &a, &json, &err),
              err);
    assert_non_null(strstr(json.p, "[86400.5,31536000.25,2366755200]"));
    static const char *const bad[] = {"10\n9\n12\n", "2024-02-28 23:59:59\n2024-02-28 23:59:58\n",
                                      "1\nx\n3\n",   "2024-02-28 23:59:59\n2024-13-28 23:59:59\n",
                                      "1\n\n3\n",    "1\n-2\n"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(read_text("batch", bad[k], &a, &json, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, "log.csv:2"));
    }
    assert_int_equal(read_text("batch", "1\n2\n", &a, &json, &err), RU_E_DATA);
    assert_null(ru_natural_find("batch", "in.yaml", ru_str_c("slo_s: 4\n")));
    assert_null(ru_natural_find("batch", "in.yaml", ru_str_c("")));
    assert_null(ru_natural_find("route", "log.csv", ru_str_c("1\n2\n3\n")));
    ru_arena_fini(&a);
}

static void test_sizes(void **state)
{
    (void)state;
    ru_arena a;
    ru_text json;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_ok(read_text("route", "1,10\n2,30\n3,10\n4,20\n", &a, &json, &err), err);
    assert_non_null(strstr(json.p, "\"sizes\":[10,20,30],\"shares\":[0.5,0.25,0.25]"));
    ru_text log = ru_text_arena(&a);
    for (uint32_t i = 0; i < 1600; i++) {
        ru_text_putf(&log, "%u,%u\n", i, 1 + i * 7 % 1600);
    }
    assert_ok(read_text("route", log.p, &a, &json, &err), err);
    assert_non_null(strstr(json.p, "\"sizes\":[200,400,600,800,1000,1200,1400,1600]"));
    assert_int_equal(read_text("route", "1,10\n2,0\n3,4\n", &a, &json, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "log.csv:2"));
    ru_arena_fini(&a);
}

static void test_records(void **state)
{
    (void)state;
    ru_arena a;
    ru_text json;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_ok(read_text("pick", "id,samples,latency_s\nx,30,1.5\ny,10,2\n\n", &a, &json, &err),
              err);
    assert_non_null(strstr(json.p, "[{\"samples\":30,\"latency_s\":1.5},{\"samples\":10,"));
    assert_ok(read_text("scale", "workers,memory_mb,step_s\n4,2048,1.25\n", &a, &json, &err), err);
    assert_non_null(strstr(json.p, "{\"probes\":[{\"workers\":4,\"memory_mb\":2048,"));
    static const char *const bad[] = {"latency_s,samples\n1\n", "latency_s\nfast\n",
                                      "latency_s\n1,2\n"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(read_text("pick", bad[k], &a, &json, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, "log.csv:2"));
    }
    assert_int_equal(read_text("pick", "latency_s\n", &a, &json, &err), RU_E_DATA);
    assert_null(ru_natural_find("scale", "log.csv", ru_str_c("workers,step_s\n4,1\n")));
    ru_arena_fini(&a);
}

RU_TESTS(store_natural_arrivals, cmocka_unit_test(test_times), cmocka_unit_test(test_sizes),
         cmocka_unit_test(test_records))
