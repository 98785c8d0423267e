#include <string.h>

#include "store/natural.h"
#include "test/test.h"

static void tables_of_timings_become_ops(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    static const char text[] = "type,usd_per_h,net,op,flops,seconds\n"
                               "t4,0.75,vgg,conv/3x3,2e9,0.5\n"
                               ",,,conv/3x3,3e9,\n"
                               "t4,,vgg,relu,,0.25\n";
    const ru_natural *kind = ru_natural_find("device", "t.csv", ru_str_c(text));
    assert_non_null(kind);
    ru_text out = ru_text_arena(&a);
    ru_json j = ru_json_into(&out);
    ru_json_open(&j, NULL, '{');
    assert_ok(kind->read("t.csv", ru_str_c(text), &a, &j, &err), err);
    ru_json_close(&j);
    assert_string_equal(
        out.p,
        "{\"types\":[{\"name\":\"t4\",\"usd_per_h\":0.75}],\"timed\":[{\"type\":\"t4\",\"net\":"
        "\"vgg\",\"op\":\"conv/3x3\",\"flops\":2000000000,"
        "\"seconds\":0.5},{\"type\":\"t4\",\"net\":\"vgg\",\"op\":\"relu\",\"seconds\":0.25}],"
        "\"net\":[{\"op\":\"conv/3x3\",\"flops\":3000000000}]}");
    static const char *const bad[] = {"t4,1,vgg,conv,many,1\n", "t4,1,vgg,conv,1\n",
                                      "t4,1,vgg,,1,1\n", "t4,1,vgg,conv,1,1,1\n",
                                      "t4,1,vgg,conv,-1,1\n"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        const char *all = ru_arena_printf(&a, "type,usd_per_h,net,op,flops,seconds\n%s", bad[k]);
        out = ru_text_arena(&a);
        j = ru_json_into(&out);
        ru_json_open(&j, NULL, '{');
        assert_int_equal(kind->read("t.csv", ru_str_c(all), &a, &j, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, "t.csv:2: 't4"));
    }
    static const char *const others[] = {"", "types: []\n", "type,net,op,flops,seconds\n",
                                         "op,op,seconds\n"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(others); k++) {
        assert_null(ru_natural_find("device", "t.csv", ru_str_c(others[k])));
    }
    ru_arena_fini(&a);
}

RU_TESTS(store_natural_device, cmocka_unit_test(tables_of_timings_become_ops))
