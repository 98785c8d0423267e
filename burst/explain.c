/* What a service's windows say, for people. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/table.h"
#include "burst/service.h"
#include "env/file/file.h"

enum { BYTES_MAX = 256 << 20 };

/* Sums over all windows. */
typedef struct totals {
    uint32_t windows, heard, kept, predicted, levels, held;
    double error, level_error, stretch;
} totals;

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static const char *word(const json_t *o, const char *key)
{
    const char *v = json_string_value(json_object_get(o, key));
    return v != NULL ? v : "";
}

static void put_seconds(ru_table *t, double s)
{
    if (isfinite(s) && fabs(s) < 1e9) {
        ru_table_ns(t, (int64_t)(s * 1e9));
    } else {
        ru_table_none(t);
    }
}

static void sum(totals *t, const json_t *o)
{
    double is = number(o, "latency_s"), was = number(o, "predicted_s");
    double level = number(o, "level"), expected = number(o, "level_predicted");
    bool works = strcmp(word(o, "phase"), "profile") != 0,
         held = strcmp(word(o, "phase"), "held") == 0;
    t->windows++;
    if (works && isfinite(is)) {
        t->heard++;
        t->kept += is <= number(o, "slo_s");
    }
    if (works && is > 0 && isfinite(was)) {
        t->predicted++;
        t->error += fabs(was / is - 1);
    }
    if (works && isfinite(expected)) {
        t->levels++;
        t->level_error = fmax(t->level_error, fabs(expected - level) / number(o, "cap"));
    }
    if (held && isfinite(number(o, "stretch"))) { /* at some speeds credits do not end */
        t->held++;
        t->stretch += number(o, "stretch");
    }
}

static void put_row(ru_table *t, const json_t *o)
{
    ru_table_f64(t, number(o, "window"), 0);
    ru_table_str(t, word(o, "phase"));
    ru_table_f64(t, number(o, "speed"), 2);
    ru_table_f64(t, number(o, "rate"), 1);
    ru_table_f64(t, number(o, "clients"), 1);
    put_seconds(t, number(o, "latency_s"));
    put_seconds(t, number(o, "predicted_s"));
    const uint32_t decimals = number(o, "cap") < 1e6 ? 2 : 0; /* bytes have none */
    ru_table_f64(t, number(o, "level"), decimals);
    if (isfinite(number(o, "level_predicted"))) {
        ru_table_f64(t, number(o, "level_predicted"), decimals);
    } else {
        ru_table_none(t);
    }
    put_seconds(t, number(o, "empty_s"));
    ru_table_f64(t, number(o, "next_speed"), 2);
    ru_table_textf(t, "%.8s", word(o, "plan")[0] != 0 ? word(o, "plan") : "-");
    ru_table_str(t, word(o, "alarm")[0] != 0 ? word(o, "alarm") : word(o, "why"));
}

static void put_totals(const totals *t, ru_text *out)
{
    ru_text_putf(out, "%u windows", t->windows);
    if (t->heard > 0) {
        ru_text_putf(out, "; after the profile %u of %u within the objective", t->kept, t->heard);
    }
    if (t->predicted > 0) {
        ru_text_putf(out, "; predicted latency off by %.1f %% on average (%u windows)",
                     100 * t->error / t->predicted, t->predicted);
    }
    if (t->levels > 0) {
        ru_text_putf(out, "; predicted level off by at most %.2f %% of the cap",
                     100 * t->level_error);
    }
    if (t->held > 0) {
        ru_text_putf(out, "; while throttled credits last %.2f times as long as at full speed",
                     t->stretch / t->held);
    }
    ru_text_put(out, "\n");
}

/* The bucket of a disk or a network, at the end of a window. */
static void put_meter(const json_t *window, const char *name, ru_text *out)
{
    const json_t *m = json_object_get(window, name);
    if (!json_is_object(m)) {
        return;
    }
    ru_text_putf(out, "%s: %.4g of %.4g left, %.4g a second used of at most %.4g", name,
                 number(m, "level"), number(m, "cap"), number(m, "use"), number(m, "rate"));
    if (isfinite(number(m, "next_speed"))) {
        ru_text_putf(out, " (speed %.2f, chosen with the others)", number(m, "next_speed"));
    }
    if (json_is_true(json_object_get(m, "empty"))) {
        ru_text_put(out, "; empty, so this is what it earns\n");
    } else if (isfinite(number(m, "empty_s"))) {
        ru_text_putf(out, "; empty in %.0f s at that use\n", number(m, "empty_s"));
    } else {
        ru_text_put(out, "; it does not end at that use\n");
    }
}

ru_status ru_burst_explain(const char *folder, uint32_t rows, ru_arena *arena, ru_text *out,
                           ru_err *err)
{
    char *text;
    int64_t n;
    const char *path = ru_path_join(arena, folder, "windows.jsonl");
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for windows");
    }
    RU_TRY(ru_file_read(path, BYTES_MAX, arena, &text, &n, err));
    uint32_t lines = 0, at = 0;
    for (int64_t k = 0; k < n; k++) {
        lines += text[k] == '\n';
    }
    static const char *const columns[] = {"window",    "phase",      "speed",
                                          "rate",      "clients",    "latency",
                                          "predicted", "credits",    "predicted_credits",
                                          "empty_in",  "next_speed", "plan",
                                          "why"};
    ru_table t = ru_table_in(arena);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(columns); k++) {
        ru_table_col(&t, columns[k], k == 1 || k > 10 ? RU_TABLE_LEFT : RU_TABLE_RIGHT);
    }
    totals all = {0};
    json_t *last = NULL;
    ru_str rest = ru_str_n(text, n), line;
    while (ru_str_next(&rest, '\n', &line)) {
        json_t *o = json_loadb(line.p, (size_t)line.n, 0, NULL);
        if (json_is_object(o)) { /* the last line may be half written */
            sum(&all, o);
            if (at + rows >= lines) {
                put_row(&t, o);
            }
            json_decref(last);
            last = json_incref(o);
        }
        at++;
        json_decref(o);
    }
    ru_status st = ru_table_print(&t, 0, out, err);
    put_totals(&all, out);
    const char *of = word(last, "resource");
    if (of[0] != 0 && strcmp(of, "cpu") != 0) {
        ru_text_putf(out, "speed and credits are those of the %s\n", of);
    }
    put_meter(last, "disk", out);
    put_meter(last, "network", out);
    json_decref(last);
    RU_TRY(st);
    return out->cut ? RU_FAIL(err, RU_E_MEM, "no memory for an explanation") : RU_OK;
}
