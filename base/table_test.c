/* Tables: the text and the JSON of one table, byte by byte. */
#include "base/table.h"

#include "test/test.h"

static void tables_print_and_write_json(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_table t = ru_table_in(&a);
    ru_table_col(&t, "policy", RU_TABLE_LEFT);
    ru_table_col(&t, "step_s", RU_TABLE_RIGHT);
    ru_table_col(&t, "gain", RU_TABLE_RIGHT);
    ru_table_col(&t, "ok", RU_TABLE_LEFT);
    ru_table_str(&t, "tic");
    ru_table_f64(&t, 0.02134, 4);
    ru_table_percent(&t, 0.125, 1);
    ru_table_bool(&t, true);
    ru_table_textf(&t, "%s %d", "größte", 7);
    ru_table_ns(&t, 1500000);
    ru_table_none(&t);
    ru_table_bool(&t, false);
    ru_table_str(&t, NULL);
    ru_table_i64(&t, -12);
    ru_table_bytes(&t, 65536);
    ru_table_str(&t, "\"");
    ru_text text = ru_text_arena(&a), out = ru_text_arena(&a);
    assert_ok(ru_table_print(&t, 2, &text, &err), err);
    assert_string_equal(text.p, "  policy     step s      gain  ok\n"
                                "  tic        0.0213    12.5 %  yes\n"
                                "  größte 7  1.50 ms         -  no\n"
                                "  -             -12  64.0 KiB  \"\n");
    ru_json j = ru_json_into(&out);
    assert_ok(ru_table_json(&t, &j, NULL, &err), err);
    assert_string_equal(out.p,
                        "[{\"policy\":\"tic\",\"step_s\":0.02134,\"gain\":0.125,\"ok\":true},"
                        "{\"policy\":\"größte 7\",\"step_s\":0.0015,\"gain\":null,\"ok\":false},"
                        "{\"policy\":null,\"step_s\":-12,\"gain\":65536,\"ok\":\"\\\"\"}]");
    ru_arena_fini(&a);
}

static void a_full_arena_is_told(void **state)
{
    (void)state;
    uint8_t buf[256];
    ru_arena a;
    ru_arena_init_fixed(&a, buf, sizeof buf);
    ru_table t = ru_table_in(&a);
    ru_table_col(&t, "n", RU_TABLE_RIGHT);
    for (uint32_t k = 0; k < 100; k++) {
        ru_table_i64(&t, k);
    }
    char line[64];
    ru_text text = ru_text_into(line, sizeof line);
    assert_int_equal(ru_table_print(&t, 0, &text, NULL), RU_E_LIMIT);
    ru_json j = ru_json_into(&text);
    assert_int_equal(ru_table_json(&t, &j, NULL, NULL), RU_E_LIMIT);
    assert_int_equal(text.n, 0);
}

RU_TESTS(base_table, cmocka_unit_test(tables_print_and_write_json),
         cmocka_unit_test(a_full_arena_is_told))
