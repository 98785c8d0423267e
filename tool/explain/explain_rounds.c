#include "tool/explain/explain_rounds.h"

#include <jansson.h>
#include <string.h>

#include "env/file/file.h"
#include "plan/fleet/pick.h"

enum { SHOWN = 24 };

static int64_t whole(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* A round that was begun again after a kill has two lines, of which the later one counts. */
static void keep(json_t *rounds, json_t *line)
{
    size_t n = json_array_size(rounds);
    while (n > 0 && whole(json_array_get(rounds, n - 1), "round") >= whole(line, "round")) {
        (void)json_array_remove(rounds, --n);
    }
    (void)json_array_append(rounds, line);
    if (n == SHOWN) {
        (void)json_array_remove(rounds, 0);
    }
}

/* Simulations do not tell it. */
static void put_count(const json_t *o, const char *key, ru_table *t)
{
    if (json_object_get(o, key) != NULL) {
        ru_table_i64(t, whole(o, key));
    } else {
        ru_table_none(t);
    }
}

static void put_number(double v, ru_table *t)
{
    char text[32], json[32];
    ru_text x = ru_text_into(text, sizeof text), y = ru_text_into(json, sizeof json);
    ru_json j = ru_json_into(&y);
    ru_text_putf(&x, "%.4g", v);
    ru_json_f64(&j, NULL, v);
    ru_table_raw(t, text, json);
}

/* "3 of 0, 1 of 2": clients of each tier; in JSON a list by tier. */
static void put_tiers(const json_t *clients, ru_table *t)
{
    char text[RU_PICK_TIERS_MAX * 24], json[RU_PICK_TIERS_MAX * 24];
    ru_text x = ru_text_into(text, sizeof text), y = ru_text_into(json, sizeof json);
    ru_json j = ru_json_into(&y);
    uint32_t n[RU_PICK_TIERS_MAX] = {0}, most = 0;
    for (size_t k = 0; k < json_array_size(clients); k++) {
        int64_t at = whole(json_array_get(clients, k), "tier");
        if (at >= 0 && at < RU_PICK_TIERS_MAX) {
            n[at]++;
        }
    }
    for (uint32_t k = 0; k < RU_PICK_TIERS_MAX; k++) {
        if (n[k] > 0) {
            ru_text_putf(&x, "%s%u of %u", x.n > 0 ? ", " : "", n[k], k);
        }
        most = n[k] > 0 ? k + 1 : most;
    }
    ru_json_open(&j, NULL, '[');
    for (uint32_t k = 0; k < most; k++) {
        ru_json_i64(&j, NULL, n[k]);
    }
    ru_json_close(&j);
    ru_table_raw(t, x.n > 0 ? text : "-", json);
}

/* now: who is there since the last of these rounds; NULL: that round tells it. */
static void show_resting(const json_t *rounds, const json_t *now, const ru_tell *out)
{
    const json_t *of = now != NULL ? now : json_array_get(rounds, json_array_size(rounds) - 1);
    int64_t rest = whole(of, "resting");
    if (rest > 0 && now != NULL) {
        ru_tell_i64(out, "resting", rest);
        ru_text_putf(
            out->text,
            "  while it waits for clients, %lld are here and %lld are out of their hours\n",
            (long long)whole(of, "there"), (long long)rest);
    } else if (rest > 0) {
        ru_tell_i64(out, "resting", rest);
        ru_text_putf(out->text, "  %lld clients are out of their hours in the last of them\n",
                     (long long)rest);
    }
}

static ru_status show_rounds(const json_t *rounds, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    static const char *const cols[] = {"round", "took", "sent",  "answers", "without answer",
                                       "late",  "lost", "tiers", "loss",    "epsilon"};
    ru_table t = ru_table_in(arena);
    size_t n = json_array_size(rounds);
    bool told = json_object_get(json_array_get(rounds, n - 1), "epsilon") != NULL;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cols) - !told; k++) {
        ru_table_col(&t, cols[k], RU_TABLE_RIGHT);
    }
    for (size_t k = 0; k < n; k++) {
        const json_t *o = json_array_get(rounds, k);
        ru_table_i64(&t, whole(o, "round"));
        ru_table_ns(&t, (int64_t)(number(o, "seconds") * 1e9));
        ru_table_i64(&t, whole(o, "sent"));
        ru_table_i64(&t, whole(o, "answers"));
        ru_table_i64(&t, whole(o, "sent") - whole(o, "answers"));
        put_count(o, "late", &t);
        put_count(o, "lost", &t);
        put_tiers(json_object_get(o, "clients"), &t);
        put_number(number(o, "loss"), &t);
        if (told) {
            put_number(number(o, "epsilon"), &t);
        }
    }
    RU_TRY(ru_tell_table(out, "rounds", "rounds of clients", &t, err));
    if (told) {
        ru_tell_note(out, "epsilon_note",
                     "  epsilon: what the models of all rounds so far tell about one client, for "
                     "federated.privacy.delta,\n  to those who do not know in which rounds it was "
                     "(federation.jsonl does);\n  it does not cover the losses and accuracies "
                     "that clients report, nor what the server itself sees");
    }
    if (json_object_get(json_array_get(rounds, n - 1), "masked") != NULL) {
        ru_tell_note(out, "masked_note",
                     "  masked: the server saw the sum of the updates of each round, and no single "
                     "one;\n  numbers of samples, times, losses and accuracies of each client are "
                     "not hidden from it");
    }
    return RU_OK;
}

/* Each client of these rounds as the last of them knows it. */
static ru_status show_clients(const json_t *rounds, json_t *seen, ru_arena *arena,
                              const ru_tell *out, ru_err *err)
{
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "client", RU_TABLE_LEFT);
    ru_table_col(&t, "tier", RU_TABLE_RIGHT);
    ru_table_col(&t, "takes", RU_TABLE_RIGHT);
    ru_table_col(&t, "picks", RU_TABLE_RIGHT);
    const json_t *last = json_array_get(rounds, json_array_size(rounds) - 1);
    bool told = json_object_get(last, "epsilon") != NULL;
    if (told) {
        ru_table_col(&t, "epsilon", RU_TABLE_RIGHT);
    }
    size_t rest = 0;
    for (size_t k = json_array_size(rounds); k-- > 0;) {
        const json_t *clients = json_object_get(json_array_get(rounds, k), "clients");
        for (size_t i = 0; i < json_array_size(clients); i++) {
            json_t *c = json_array_get(clients, i);
            const char *name = json_string_value(json_object_get(c, "name"));
            if (name == NULL || json_object_get(seen, name) != NULL ||
                json_object_set(seen, name, c) != 0) {
                continue;
            }
            if (json_object_size(seen) > SHOWN) {
                rest++;
                continue;
            }
            ru_table_str(&t, name);
            if (whole(c, "tier") >= 0) {
                ru_table_i64(&t, whole(c, "tier"));
            } else {
                ru_table_none(&t);
            }
            ru_table_ns(&t, (int64_t)(number(c, "seconds") * 1e9));
            ru_table_i64(&t, whole(c, "picks"));
            if (told) {
                put_number(number(c, "epsilon"), &t);
            }
        }
    }
    if (json_object_size(seen) == 0) { /* of a simulation */
        return RU_OK;
    }
    RU_TRY(ru_tell_table(out, "clients", "clients of these rounds", &t, err));
    if (told) {
        ru_tell_note(
            out, "client_epsilon_note",
            "  epsilon of a client: what the models tell about it also to those who know in "
            "which rounds it was;\n  that of all rounds, which the job bounds, is for those who do "
            "not know, and may be less");
    }
    if (rest > 0) {
        ru_tell_i64(out, "clients_more", (int64_t)rest);
        ru_text_putf(out->text, "  and %zu more\n", rest);
    }
    return RU_OK;
}

ru_status rui_explain_rounds(const char *run, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    const char *path = ru_path_join(arena, run, "federation.jsonl");
    char *text;
    int64_t size;
    if (path == NULL || !ru_path_is_file(path)) {
        return RU_OK;
    }
    RU_TRY(ru_file_read(path, 0, arena, &text, &size, err));
    json_t *rounds = json_array(), *seen = json_object(), *now = NULL;
    ru_str rest = ru_str_n(text, size), one;
    while (ru_str_next(&rest, '\n', &one)) {
        json_t *o = json_loadb(one.p, (size_t)one.n, 0, NULL);
        const char *schema = json_string_value(json_object_get(o, "schema"));
        bool clients = schema != NULL && strcmp(schema, "rubato.fed.clients/1") == 0;
        if (o != NULL) { /* NULL: the torn line of a kill */
            json_decref(now);
            now = clients ? json_incref(o) : NULL;
        }
        if (o != NULL && !clients) {
            keep(rounds, o);
        }
        json_decref(o);
    }
    ru_status st = RU_OK;
    if (json_array_size(rounds) > 0) {
        st = show_rounds(rounds, arena, out, err);
        st = st == RU_OK ? show_clients(rounds, seen, arena, out, err) : st;
    }
    if (st == RU_OK && (now != NULL || json_array_size(rounds) > 0)) {
        show_resting(rounds, now, out);
    }
    json_decref(now);
    json_decref(rounds);
    json_decref(seen);
    return st;
}
