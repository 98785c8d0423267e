/* Tables: the text and the JSON of one table, byte by byte. */
#include "base/tell.h"

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

/* No text of a cell ends its line, or speaks to the terminal. */
static void control_characters_are_shown(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_table t = ru_table_in(&a);
    ru_table_col(&t, "name", RU_TABLE_LEFT);
    ru_table_col(&t, "n", RU_TABLE_RIGHT);
    ru_table_str(&t, "a\nb\x1b[2J\x7f");
    ru_table_i64(&t, 1);
    ru_table_str(&t, "\xc2\x9b\xc2\xb5\xc3\x9f"); /* CSI in one character, then two letters */
    ru_table_i64(&t, 2);
    ru_text text = ru_text_arena(&a), out = ru_text_arena(&a);
    assert_ok(ru_table_print(&t, 0, &text, &err), err);
    assert_string_equal(text.p, "name      n\n"
                                "a?b?[2J?  1\n"
                                "?\xc2\xb5\xc3\x9f       2\n");
    ru_json j = ru_json_into(&out);
    assert_ok(ru_table_json(&t, &j, NULL, &err), err);
    assert_non_null(strstr(out.p, "a\\nb\\u001b[2J"));
    ru_arena_fini(&a);
}

static void keys_end_with_the_unit_of_their_cells(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_table t = ru_table_in(&a);
    static const char *const cols[] = {"GFLOP/s", "is needed", "bytes", "step_s", "Share", "late"};
    for (uint32_t k = 0; k < 6; k++) {
        ru_table_col(&t, cols[k], RU_TABLE_RIGHT);
    }
    for (int row = 0; row < 2; row++) {
        ru_table_f64(&t, 1.5, 1);
        row == 0 ? ru_table_none(&t) : ru_table_ns(&t, 2000000000); /* the column is of times */
        ru_table_bytes(&t, 1024);
        ru_table_ns(&t, 500000000);
        ru_table_percent(&t, 0.25, 0);
        ru_table_raw(&t, "3 by 1 s", "[{\"n\":3}]");
    }
    ru_text out = ru_text_arena(&a), text = ru_text_arena(&a);
    ru_json j = ru_json_into(&out);
    ru_json_open(&j, NULL, '{');
    const ru_tell o = {.text = &text, .json = &j};
    assert_ok(ru_tell_table(&o, "rows", "rows of it", &t, &err), err);
    ru_tell_note(&o, "note", "that is %s", "all");
    ru_json_close(&j);
    assert_string_equal(
        out.p, "{\"rows\":[{\"gflop_per_s\":1.5,\"is_needed_s\":null,\"bytes\":1024,\"step_s\":0.5,"
               "\"share\":0.25,\"late\":[{\"n\":3}]},{\"gflop_per_s\":1.5,\"is_needed_s\":2,"
               "\"bytes\":1024,\"step_s\":0.5,\"share\":0.25,\"late\":[{\"n\":3}]}],"
               "\"note\":\"that is all\"}");
    assert_non_null(strstr(text.p, "rows of it\n"));
    assert_non_null(strstr(text.p, "3 by 1 s\n"));
    assert_non_null(strstr(text.p, "that is all\n"));
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

RU_TESTS(base_table, cmocka_unit_test(control_characters_are_shown),
         cmocka_unit_test(tables_print_and_write_json),
         cmocka_unit_test(keys_end_with_the_unit_of_their_cells),
         cmocka_unit_test(a_full_arena_is_told))
