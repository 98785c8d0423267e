/* Price histories: what is read, and what is refused by path and line. */
#include <string.h>

#include "store/natural.h"
#include "test/test.h"

static ru_status read_text(const char *text, ru_arena *a, ru_text *json, ru_err *err)
{
    ru_str all = ru_str_c(text);
    const ru_natural *kind = ru_natural_find("bid", "p.txt", all);
    assert_non_null(kind);
    *json = ru_text_arena(a);
    ru_json j = ru_json_into(json);
    ru_json_open(&j, NULL, '{');
    ru_status st = kind->read("p.txt", all, a, &j, err);
    if (st == RU_OK) {
        ru_json_close(&j);
    }
    return st;
}

static void test_prices(void **state)
{
    (void)state;
    ru_arena a;
    ru_text json;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_ok(read_text("100 0.5\n160 0.25\n160 1\n", &a, &json, &err), err);
    assert_non_null(strstr(json.p, "[100,160,160]"));
    assert_non_null(strstr(json.p, "[0.5,0.25,1]"));
    static const char *const bad[] = {"100 0.5\n90 0.5\n", "100 0.5\n160 0\n", "100 0.5\n160\n",
                                      "100 0.5\n160 0.5 0.6\n", "100 0.5\n\n170 0.5\n"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(read_text(bad[k], &a, &json, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, "p.txt:2"));
    }
    assert_null(ru_natural_find("bid", "in.yaml", ru_str_c("cap: 4\n")));
    assert_null(ru_natural_find("bid", "in.yaml", ru_str_c("")));
    ru_arena_fini(&a);
}

RU_TESTS(store_natural_bid, cmocka_unit_test(test_prices))
