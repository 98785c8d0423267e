/* The processor time of a worker's steps: counters that only grow, read where steps end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/read/fold.h"

enum { STEPS_FIRST = 5 }; /* caches fill, collectives are measured, kernels are chosen */

static uint16_t name_of(const ru_trace *t, const char *category, const char *name)
{
    for (uint32_t k = 0; k < t->n_names; k++) {
        if (strcmp(t->names[k].name, name) == 0 && strcmp(t->names[k].category, category) == 0) {
            return (uint16_t)k;
        }
    }
    return UINT16_MAX;
}

/* The counter's value at the first record of it at or behind `from_ns`, else its last one; false:
 * it has none. */
static bool value_at(const ru_trace *t, uint16_t name, int64_t from_ns, double *into)
{
    bool some = false;
    int64_t at_ns = INT64_MAX;
    for (uint32_t k = 0; k < t->n_threads && name != UINT16_MAX; k++) {
        for (int64_t i = 0; i < t->threads[k].n; i++) {
            const ru_record *r = &t->threads[k].records[i];
            bool first = r->start_ns >= from_ns && r->start_ns < at_ns;
            if (r->kind == RU_REC_COUNTER && r->name == name && (first || at_ns == INT64_MAX)) {
                memcpy(into, &r->value, sizeof *into);
                at_ns = r->start_ns >= from_ns ? r->start_ns : at_ns;
                some = true;
            }
        }
    }
    return some;
}

static double number_of(const ru_trace *t, const char *key)
{
    const char *text = ru_trace_meta_get(t, key);
    double x = text != NULL ? strtod(text, NULL) : 0;
    return isfinite(x) && x > 0 && x < 1e15 ? x : 0;
}

/* Steps without the first ones; evaluations and checkpoints between them do not count. */
static ru_fact steps_of(const ru_trace *t, uint16_t name, int64_t *from_ns, int64_t *to_ns)
{
    int64_t seen = 0, took_ns = 0;
    double sum = 0, squares = 0;
    ru_fact f = {.min_ns = INT64_MAX};
    for (uint32_t k = 0; k < t->n_threads; k++) {
        for (int64_t i = 0; i < t->threads[k].n; i++) {
            const ru_record *r = &t->threads[k].records[i];
            if (r->kind != RU_REC_SPAN || r->name != name) {
                continue;
            }
            took_ns += r->dur_ns;
            if (r->dur_ns == UINT32_MAX) {
                continue; /* the next record goes on */
            }
            *to_ns = r->start_ns + r->dur_ns;
            if (seen++ < STEPS_FIRST) {
                *from_ns = *to_ns;
            } else {
                f.count++;
                sum += (double)took_ns;
                squares += (double)took_ns * (double)took_ns;
                f.min_ns = took_ns < f.min_ns ? took_ns : f.min_ns;
                f.max_ns = took_ns > f.max_ns ? took_ns : f.max_ns;
            }
            took_ns = 0;
        }
    }
    if (f.count == 0) {
        return (ru_fact){0};
    }
    double n = (double)f.count, v = squares - sum * sum / n;
    f.mean_ns = sum / n;
    f.stddev_ns = f.count > 1 && v > 0 ? sqrt(v / (n - 1)) : 0;
    return f;
}

/* Time of a reader's spans that end between two instants; several readers share the batches. */
static double read_of(const ru_trace *t, int64_t from_ns, int64_t to_ns)
{
    uint16_t name = name_of(t, "data", "read");
    double sum = 0, readers = 0;
    for (uint32_t k = 0; k < t->n_threads && name != UINT16_MAX; k++) {
        bool some = false;
        for (int64_t i = 0; i < t->threads[k].n; i++) {
            const ru_record *r = &t->threads[k].records[i];
            int64_t end_ns = r->start_ns + r->dur_ns;
            if (r->kind == RU_REC_SPAN && r->name == name && end_ns > from_ns && end_ns <= to_ns) {
                sum += r->dur_ns;
                some = true;
            }
        }
        readers += some;
    }
    return readers > 0 ? sum / readers : 0;
}

bool ru_trace_fold_processor(const ru_trace *t, ru_processor_fact *out)
{
    int64_t from_ns = 0, to_ns = 0;
    *out = (ru_processor_fact){.rank = t->rank,
                               .quota_ns = number_of(t, RU_TRACE_QUOTA),
                               .period_ns = number_of(t, RU_TRACE_PERIOD)};
    out->took = steps_of(t, name_of(t, "train", "step"), &from_ns, &to_ns);
    if (out->took.count == 0) {
        return false;
    }
    out->read_ns = read_of(t, from_ns, to_ns) / (double)out->took.count;
    double n = (double)out->took.count, all[2], messages[2] = {0, 0};
    uint16_t process = name_of(t, "train", RU_TRACE_CPU_ALL),
             loop = name_of(t, "train", RU_TRACE_CPU_LOOP);
    if (value_at(t, process, from_ns, &all[0]) && value_at(t, process, to_ns, &all[1])) {
        bool some =
            value_at(t, loop, from_ns, &messages[0]) && value_at(t, loop, to_ns, &messages[1]);
        out->message_ns = some ? (messages[1] - messages[0]) / n : 0;
        out->compute_ns = (all[1] - all[0]) / n - out->message_ns;
    }
    bool sane = isfinite(out->compute_ns) && isfinite(out->message_ns) && out->compute_ns >= 0 &&
                out->message_ns >= 0;
    if (!sane) {
        out->compute_ns = out->message_ns = 0;
    }
    return true;
}
