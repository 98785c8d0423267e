/* The view as JSON (rubato.top/1), for programs and for a terminal elsewhere. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "watch/run.h"

enum { RANKS_MAX = 65536 };

static json_t *rank_json(const ru_top_rank *r)
{
    json_t *split = json_object(), *sent = json_array();
    for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
        json_object_set_new(split, ru_step_part_name((ru_step_part)p), json_real(r->part[p]));
    }
    for (uint32_t c = 0; c < RU_TOP_CLASSES; c++) {
        json_array_append_new(sent, json_real(r->sent_per_s[c]));
    }
    return json_pack("{s:I, s:I, s:f, s:f, s:o, s:f, s:f, s:o, s:s?}", "rank", (json_int_t)r->rank,
                     "step", (json_int_t)r->step, "steps_per_s", r->steps_per_s, "silent_s",
                     r->quiet_s, "split", split, "sums_bytes_per_s",
                     r->sent_per_s[1] + r->sent_per_s[2], "copies_bytes_per_s", r->sent_per_s[3],
                     "sent_bytes_per_s", sent, "gone", r->gone);
}

ru_status ru_top_json(const ru_top *t, ru_text *out, ru_err *err)
{
    json_t *ranks = json_array(), *causes = json_array(), *events = json_array();
    for (uint32_t k = 0; k < t->n; k++) {
        json_array_append_new(ranks, rank_json(&t->ranks[k]));
    }
    for (uint32_t i = 0; i < t->n_causes; i++) {
        json_array_append_new(causes, json_string(t->causes[i]));
    }
    for (uint32_t i = 0; i < t->n_events; i++) {
        json_array_append_new(events, json_string(t->events[i]));
    }
    json_t *round =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "asked", (json_int_t)t->round.asked,
                  "answers", (json_int_t)t->round.answers, "here", (json_int_t)t->round.here,
                  "late", (json_int_t)t->round.late, "lost", (json_int_t)t->round.lost, "resting",
                  (json_int_t)t->round.resting, "epsilon", t->round.epsilon);
    json_t *follow = json_pack("{s:b, s:I, s:I, s:I}", "told", t->follow.told, "arrived",
                               (json_int_t)t->follow.arrived, "queue", (json_int_t)t->follow.queue,
                               "workers", (json_int_t)t->follow.workers);
    const ru_top_functions *f = &t->functions;
    json_t *functions =
        json_pack("{s:I, s:I, s:b, s:f, s:I, s:I}", "workers", (json_int_t)f->workers, "memory_mb",
                  (json_int_t)f->memory_mb, "measures", f->measures, "usd", f->usd, "calls",
                  (json_int_t)f->calls, "given_up", (json_int_t)f->given_up);
    json_t *o = json_pack(
        "{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:s?, s:o, s:o, s:o, s:o, s:o, s:o}", "schema",
        "rubato.top/1", "run", t->name, "step", (json_int_t)t->step, "steps", (json_int_t)t->steps,
        "loss", t->loss, "samples_per_s", t->samples_per_s, "left_s", t->left_s, "gradient_noise",
        t->noise, "ended", t->ended, "ranks", ranks, "causes", causes, "events", events, "round",
        round, "follow", follow, "functions", functions);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text == NULL) {
        return RU_FAIL(err, RU_E_MEM,
                       "there is no memory for the view, or the run's name is not UTF-8");
    }
    ru_text_put(out, text);
    free(text);
    return out->cut ? RU_FAIL(err, RU_E_MEM, "there is no memory for the view") : RU_OK;
}

/* -- back ----------------------------------------------------------------------------------------
 */

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key)); /* 0 for all else */
}

static int64_t count(const json_t *o, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(o, key));
    return v < 0 ? 0 : v < (json_int_t)1 << 53 ? (int64_t)v : (int64_t)1 << 53;
}

/* Control characters of another machine's text do nothing to this terminal. */
static const char *plain(const json_t *v, ru_arena *arena)
{
    const char *s = json_string_value(v);
    char *copy = s != NULL ? ru_arena_strn(arena, s, (int64_t)strlen(s)) : NULL;
    for (char *p = copy; p != NULL && *p != '\0'; p++) {
        *p = (unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p;
    }
    return copy;
}

static void take_texts(const json_t *list, uint32_t max, const char **at, uint32_t *n,
                       ru_arena *arena)
{
    for (size_t i = 0; i < json_array_size(list) && *n < max; i++) {
        const char *s = plain(json_array_get(list, i), arena);
        at[*n] = s;
        *n += s != NULL;
    }
}

static void take_rank(const json_t *o, ru_top_rank *r)
{
    r->rank = (uint32_t)count(o, "rank");
    r->step = count(o, "step");
    r->steps_per_s = number(o, "steps_per_s");
    r->quiet_s = number(o, "silent_s");
    const char *gone = json_string_value(json_object_get(o, "gone"));
    r->gone = gone == NULL ? NULL : strcmp(gone, "lost") == 0 ? "lost" : "left";
    for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
        r->part[p] = number(json_object_get(o, "split"), ru_step_part_name((ru_step_part)p));
    }
    for (uint32_t c = 0; c < RU_TOP_CLASSES; c++) {
        r->sent_per_s[c] =
            json_number_value(json_array_get(json_object_get(o, "sent_bytes_per_s"), c));
    }
}

static ru_status take(const json_t *o, ru_arena *arena, ru_top *t, ru_err *err)
{
    const json_t *ranks = json_object_get(o, "ranks");
    const json_t *round = json_object_get(o, "round");
    const json_t *follow = json_object_get(o, "follow");
    const json_t *functions = json_object_get(o, "functions");
    const char *schema = json_string_value(json_object_get(o, "schema"));
    if (schema == NULL || strcmp(schema, "rubato.top/1") != 0) {
        return RU_FAIL(err, RU_E_DATA, "this is no view of a run (rubato.top/1 was expected)");
    }
    *t = (ru_top){.name = plain(json_object_get(o, "run"), arena),
                  .step = count(o, "step"),
                  .steps = count(o, "steps"),
                  .loss = number(o, "loss"),
                  .samples_per_s = number(o, "samples_per_s"),
                  .left_s = number(o, "left_s"),
                  .noise = number(o, "gradient_noise"),
                  .round = {.asked = count(round, "asked"),
                            .answers = count(round, "answers"),
                            .here = count(round, "here"),
                            .late = count(round, "late"),
                            .lost = count(round, "lost"),
                            .resting = count(round, "resting"),
                            .epsilon = number(round, "epsilon")},
                  .follow = {.told = json_is_true(json_object_get(follow, "told")),
                             .arrived = count(follow, "arrived"),
                             .queue = count(follow, "queue"),
                             .workers = count(follow, "workers")},
                  .functions = {.workers = count(functions, "workers"),
                                .memory_mb = count(functions, "memory_mb"),
                                .measures = json_is_true(json_object_get(functions, "measures")),
                                .usd = number(functions, "usd"),
                                .calls = count(functions, "calls"),
                                .given_up = count(functions, "given_up")},
                  .ended = plain(json_object_get(o, "ended"), arena)};
    t->name = t->name != NULL ? t->name : "?";
    take_texts(json_object_get(o, "events"), RU_TOP_EVENTS_MAX, t->events, &t->n_events, arena);
    take_texts(json_object_get(o, "causes"), RU_TOP_CAUSES_MAX, t->causes, &t->n_causes, arena);
    size_t n = json_array_size(ranks);
    ru_top_rank *at = n <= RANKS_MAX
                          ? ru_arena_zalloc(arena, (int64_t)(n + 1) * (int64_t)sizeof *at,
                                            RU_ALIGNOF(ru_top_rank))
                          : NULL;
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the view has %zu ranks, at most %d are shown", n,
                       RANKS_MAX);
    }
    for (size_t k = 0; k < n; k++) {
        take_rank(json_array_get(ranks, k), &at[k]);
    }
    t->ranks = at;
    t->n = (uint32_t)n;
    return RU_OK;
}

ru_status ru_top_read(const char *text, int64_t n, ru_arena *arena, ru_top *out, ru_err *err)
{
    json_error_t why;
    json_t *o = json_loadb(text, (size_t)n, 0, &why);
    if (o == NULL) {
        return RU_FAIL(err, RU_E_DATA, "this is no view of a run: %s", why.text);
    }
    ru_status st = take(o, arena, out, err);
    json_decref(o);
    return st;
}
