#include "tool/explain/explain_functions.h"

#include <jansson.h>

#include "env/file/file.h"

enum { SHOWN = 24 };

static int64_t whole(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static bool same(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"workers", "memory_mb", "measures", "usd_per_gb_s"};
    bool is = a != NULL;
    for (uint32_t k = 0; is && k < RU_ARRAY_LEN(keys); k++) {
        is = json_equal(json_object_get(a, keys[k]), json_object_get(b, keys[k])) != 0;
    }
    return is;
}

/* The lines that begin another choice or price, the newest SHOWN of them. */
static json_t *changes_of(ru_str rest, json_t **last)
{
    json_t *rows = json_array();
    ru_str one;
    while (ru_str_next(&rest, '\n', &one)) {
        json_t *o = json_loadb(one.p, (size_t)one.n, 0, NULL);
        if (o == NULL) { /* the torn line of a kill */
            continue;
        }
        if (!same(*last, o)) {
            (void)json_array_append(rows, o);
        }
        if (json_array_size(rows) > SHOWN) {
            (void)json_array_remove(rows, 0);
        }
        json_decref(*last);
        *last = o;
    }
    return rows;
}

static void put_row(const json_t *o, ru_table *t)
{
    ru_table_ns(t, (int64_t)(number(o, "seconds") * 1e9));
    ru_table_i64(t, whole(o, "step"));
    ru_table_str(t, json_is_true(json_object_get(o, "measures")) ? "measures" : "runs");
    ru_table_i64(t, whole(o, "workers"));
    ru_table_i64(t, whole(o, "memory_mb"));
    ru_table_f64(t, number(o, "usd_per_gb_s"), 8);
    ru_table_f64(t, number(o, "usd"), 8);
}

ru_status rui_explain_functions(const char *run, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    static const char *const cols[] = {"since its start", "step",      "what",
                                       "workers",         "memory_mb", "usd_per_gb_s",
                                       "spent_before_usd"};
    const char *path = ru_path_join(arena, run, "functions.jsonl");
    char *text;
    int64_t size;
    if (path == NULL || !ru_path_is_file(path)) {
        return RU_OK;
    }
    RU_TRY(ru_file_read(path, 0, arena, &text, &size, err));
    json_t *last = NULL, *rows = changes_of(ru_str_n(text, size), &last);
    ru_table t = ru_table_in(arena);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cols); k++) {
        ru_table_col(&t, cols[k], k == 2 ? RU_TABLE_LEFT : RU_TABLE_RIGHT);
    }
    for (size_t k = 0; k < json_array_size(rows); k++) {
        put_row(json_array_get(rows, k), &t);
    }
    ru_status st = last != NULL ? ru_tell_table(out, "functions", "functions", &t, err) : RU_OK;
    if (st == RU_OK && last != NULL) {
        ru_tell_f64(out, "functions_usd", number(last, "usd"));
        ru_text_putf(
            out->text, "  %.4g USD spent by step %lld, %lld calls; %lld of %lld epochs given up\n",
            number(last, "usd"), (long long)whole(last, "step"), (long long)whole(last, "calls"),
            (long long)whole(last, "given_up"), (long long)whole(last, "epochs"));
    }
    json_decref(last);
    json_decref(rows);
    return st;
}
