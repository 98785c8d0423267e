/* Folding: collect (name id, duration) pairs, sort by name then duration, read the order statistics
 * off the runs. Self time subtracts each span from its parent by the nesting of ru_trace_spans. */
#include "trace/read/fold.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sample {
    uint16_t name;
    bool wait;
    int64_t dur_ns, self_ns, end_ns;
    const ru_record *record;
} sample;

static int by_name_and_time(const void *pa, const void *pb)
{
    const sample *a = pa, *b = pb;
    if (a->name != b->name) {
        return a->name < b->name ? -1 : 1;
    }
    if (a->dur_ns != b->dur_ns) {
        return a->dur_ns < b->dur_ns ? -1 : 1;
    }
    return a->end_ns < b->end_ns ? -1 : a->end_ns > b->end_ns;
}

static int by_self(const void *pa, const void *pb)
{
    const ru_span_fact *a = pa, *b = pb;
    if (a->self_ns != b->self_ns) {
        return a->self_ns > b->self_ns ? -1 : 1;
    }
    int c = strcmp(a->category, b->category);
    return c != 0 ? c : strcmp(a->name, b->name);
}

/* Append the spans of one thread to `into`; adds up the thread's busy and waiting time. */
static ru_status take_thread(const ru_trace_thread *t, sample *into, int64_t *n, int64_t *busy_ns,
                             int64_t *wait_ns, ru_arena *arena, ru_err *err)
{
    enum { DEPTH_MAX = 64 };
    ru_trace_span *spans;
    int64_t n_spans, parents[DEPTH_MAX];
    RU_TRY(ru_trace_spans(t, arena, &spans, &n_spans, err));
    int64_t first = *n;
    *busy_ns = *wait_ns = 0;
    for (int64_t i = 0; i < n_spans; i++) {
        const ru_trace_span *s = &spans[i];
        int64_t dur = s->end_ns - s->start_ns;
        bool wait = s->record->kind == RU_REC_WAIT;
        into[first + i] = (sample){s->record->name, wait, dur, dur, s->end_ns, s->record};
        if (s->depth > 0 && s->depth < DEPTH_MAX) {
            sample *parent = &into[parents[s->depth - 1]];
            parent->self_ns -= dur;
            if (wait && !parent->wait) {
                *busy_ns -= dur;
            }
        }
        if (s->depth < DEPTH_MAX) {
            parents[s->depth] = first + i;
        }
        if (wait) {
            *wait_ns += dur;
        } else if (s->depth == 0) {
            *busy_ns += dur;
        }
    }
    *n = first + n_spans;
    return RU_OK;
}

/* Append the asynchronous spans of one thread: they take none of its time. */
static ru_status take_asyncs(const ru_trace_thread *t, sample *into, int64_t *n, ru_arena *arena,
                             ru_err *err)
{
    ru_trace_span *s;
    int64_t n_spans;
    RU_TRY(ru_trace_asyncs(t, arena, &s, &n_spans, err));
    for (int64_t i = 0; i < n_spans; i++) {
        into[(*n)++] = (sample){.name = s[i].record->name,
                                .dur_ns = s[i].end_ns - s[i].start_ns,
                                .end_ns = s[i].end_ns,
                                .record = s[i].record};
    }
    return RU_OK;
}

/* Samples of one name, sorted by duration. */
static ru_span_fact fold_run(const sample *s, int64_t n, const ru_trace *t)
{
    ru_span_fact f = {.took = {.count = n,
                               .min_ns = s[0].dur_ns,
                               .max_ns = s[n - 1].dur_ns,
                               .median_ns = s[n / 2].dur_ns,
                               .p90_ns = s[n * 9 / 10].dur_ns},
                      .category = t->names[s[0].name].category,
                      .name = t->names[s[0].name].name};
    double square = 0;
    int64_t last_ns = s[0].end_ns;
    for (int64_t i = 0; i < n; i++) {
        f.total_ns += s[i].dur_ns;
        f.self_ns += s[i].self_ns;
        uint64_t value = s[i].wait ? 0 : (uint64_t)s[i].record->value;
        f.value_total = (int64_t)((uint64_t)f.value_total + value); /* of hostile files: any */
        last_ns = s[i].end_ns > last_ns ? s[i].end_ns : last_ns;
        if (s[i].record->predicted_ns > 0) {
            f.predicted_n++;
            f.predicted_total_ns += s[i].record->predicted_ns;
            f.actual_total_ns += s[i].dur_ns;
        }
    }
    if (s[0].wait &&
        strcmp(f.category, "env") == 0) { /* a loop that sleeps keeps nothing waiting */
        f.self_ns = 0;
    }
    f.took.mean_ns = (double)f.total_ns / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)s[i].dur_ns - f.took.mean_ns;
        square += d * d;
    }
    f.took.stddev_ns = n > 1 ? sqrt(square / (double)(n - 1)) : 0;
    f.took.age_ns = t->last_ns - last_ns;
    if (f.predicted_n > 0) {
        f.took.predicted_ns = (double)f.predicted_total_ns / (double)f.predicted_n;
    }
    return f;
}

ru_status ru_trace_fold(const ru_trace *t, ru_arena *arena, ru_span_facts *out, ru_err *err)
{
    ru_span_facts f = {.wall_ns = t->last_ns - t->first_ns};
    sample *all = RU_NEW(arena, sample, t->records);
    ru_span_fact *facts = RU_NEW(arena, ru_span_fact, t->n_names);
    if (all == NULL || facts == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the trace is full");
    }
    int64_t n = 0;
    for (uint32_t i = 0; i < t->n_threads; i++) {
        int64_t busy, wait;
        RU_TRY(take_thread(&t->threads[i], all, &n, &busy, &wait, arena, err));
        RU_TRY(take_asyncs(&t->threads[i], all, &n, arena, err));
        if (busy > f.busy_ns) {
            f.busy_ns = busy;
            f.wait_ns = wait;
        }
    }
    if (n > 0) {
        qsort(all, (size_t)n, sizeof *all, by_name_and_time);
    }
    for (int64_t i = 0, j; i < n; i = j) {
        for (j = i; j < n && all[j].name == all[i].name; j++) {
        }
        if (all[i].name < t->n_names) {
            facts[f.n++] = fold_run(all + i, j - i, t);
        }
    }
    if (f.n > 0) {
        qsort(facts, f.n, sizeof *facts, by_self);
    }
    f.facts = facts;
    *out = f;
    return RU_OK;
}

static const char *time_print(double ns, char *into, size_t size)
{
    static const struct {
        double unit_ns;
        const char *word;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {0, "ns"}};
    uint32_t k = 0;
    while (k + 1 < RU_ARRAY_LEN(units) && ns < units[k].unit_ns) {
        k++;
    }
    double x = units[k].unit_ns > 0 ? ns / units[k].unit_ns : ns;
    int digits = x >= 99.95 || k == 3 ? 0 : x >= 9.995 ? 1 : 2;
    ru_arena fixed;
    ru_arena_init_fixed(&fixed, into, (int64_t)size);
    const char *s = ru_arena_printf(&fixed, "%.*f %s", digits, x, units[k].word);
    return s != NULL ? s : "?";
}

const char *ru_span_facts_print(const ru_span_facts *f, uint32_t rows_max, ru_arena *arena)
{
    const char *text =
        ru_arena_printf(arena, "%-8s %-36s %9s %6s %10s %10s %10s %9s %10s\n", "kind", "name",
                        "count", "share", "self", "median", "p90", "spread", "predicted");
    int64_t all_self = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        all_self += f->facts[i].self_ns;
    }
    uint32_t rows = rows_max > 0 && rows_max < f->n ? rows_max : f->n;
    for (uint32_t i = 0; i < rows && text != NULL; i++) {
        const ru_span_fact *k = &f->facts[i];
        char self[32], median[32], p90[32], predicted[32] = "";
        double share = all_self > 0 ? 100.0 * (double)k->self_ns / (double)all_self : 0;
        double spread = k->took.mean_ns > 0 ? 100 * k->took.stddev_ns / k->took.mean_ns : 0;
        if (k->predicted_n > 0) {
            (void)time_print((double)k->predicted_total_ns / (double)k->predicted_n, predicted,
                             sizeof predicted);
        }
        text =
            ru_arena_printf(arena, "%s%-8.8s %-36.36s %9lld %5.1f%% %10s %10s %10s %8.0f%%%s%s\n",
                            text, k->category, k->name, (long long)k->took.count, share,
                            time_print((double)k->self_ns, self, sizeof self),
                            time_print((double)k->took.median_ns, median, sizeof median),
                            time_print((double)k->took.p90_ns, p90, sizeof p90), spread,
                            predicted[0] != '\0' ? "   " : "", predicted);
    }
    if (rows < f->n && text != NULL) {
        text = ru_arena_printf(arena, "%s... and %u more\n", text, f->n - rows);
    }
    return text != NULL ? text : "";
}
