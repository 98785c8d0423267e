/* Figures by rank and step -> logarithms of ratios to the median of the others -> a cut in two
 * where they changed -> a cause where the level since then is high and dear enough. */
#include "trace/read/cause.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/read/cause_impl.h"

enum {
    STEPS_MAX = 1 << 20,
};

/* sure_min: the best of 60 places for a cut in normal noise passes 5 in 3 of 10,000 series. */
static const double cost_min = 0.05, slow_min = 1.2, jump_min = 1.25, sure_min = 5.0,
                    start_min_s = 0.5;

/* figure[k * n_steps + s]: of rank k in step first + s; none: not known. */
typedef struct table {
    uint32_t ranks;
    int64_t first, n_steps;
    double *figure;
} table;

static int by_value(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    return a < b ? -1 : a > b;
}

double rui_median(double *v, int64_t n)
{
    if (n == 0) {
        return RU_NAN;
    }
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 != 0 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

static bool table_make(rui_causes *w, table *t)
{
    *t = (table){w->n, w->first, w->n_steps,
                 RU_NEW(w->arena, double, (int64_t)w->n *(w->n_steps > 0 ? w->n_steps : 1))};
    for (int64_t i = 0; t->figure != NULL && i < w->n * w->n_steps; i++) {
        t->figure[i] = RU_NAN;
    }
    return t->figure != NULL;
}

static double *cell(const table *t, uint32_t rank, int64_t step)
{
    int64_t s = (int64_t)((uint64_t)step - (uint64_t)t->first); /* a damaged record: any step */
    return s >= 0 && s < t->n_steps ? &t->figure[rank * t->n_steps + s] : NULL;
}

/* w->series: log of rank k's figure over the median of the others'. Returns how many are known. */
static int64_t against_others(rui_causes *w, const table *t, uint32_t k)
{
    int64_t known = 0;
    for (int64_t s = 0; s < t->n_steps; s++) {
        double own = t->figure[k * t->n_steps + s];
        int64_t n = 0;
        for (uint32_t j = 0; j < t->ranks; j++) {
            double other = t->figure[j * t->n_steps + s];
            if (j != k && other > 0) {
                w->scratch[n++] = other;
            }
        }
        double m = rui_median(w->scratch, n);
        w->series[s] = own > 0 && m > 0 ? log(own / m) : RU_NAN;
        known += isfinite(w->series[s]);
    }
    return known;
}

/* Where the series changed: index of the first figure after it, 0 when it did not. *level: mean
 * since then; *jump: less the mean before. */
int64_t rui_cut(const double *v, int64_t n, double *level, double *jump)
{
    double sum = 0, square = 0, left = 0, best = 0, best_jump = 0;
    int64_t count = 0, before = 0, at = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += isfinite(v[i]) ? v[i] : 0;
        square += isfinite(v[i]) ? v[i] * v[i] : 0;
        count += isfinite(v[i]);
    }
    *jump = 0;
    *level = count > 0 ? sum / (double)count : 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) {
            continue;
        }
        int64_t after = count - before;
        if (before >= RUI_SIDE_MIN && after >= RUI_SIDE_MIN) {
            double a = left / (double)before, b = (sum - left) / (double)after;
            double rest = square - a * left - b * (sum - left);
            double noise = sqrt(fmax(rest, 1e-12) / (double)count *
                                (1.0 / (double)before + 1.0 / (double)after));
            if (fabs(b - a) / noise > best) {
                best = fabs(b - a) / noise;
                best_jump = b - a;
                at = i;
            }
        }
        left += v[i];
        before++;
    }
    if (best < sure_min || fabs(best_jump) < log(jump_min)) {
        return 0;
    }
    double tail = 0;
    int64_t m = 0;
    for (int64_t i = at; i < n; i++) {
        tail += isfinite(v[i]) ? v[i] : 0;
        m += isfinite(v[i]);
    }
    *level = tail / (double)m;
    *jump = best_jump;
    return at;
}

void rui_cause_name(rui_causes *w, ru_cause c)
{
    if (w->n_causes < RU_CAUSES_MAX && c.cost >= cost_min) {
        w->causes[w->n_causes++] = c;
    }
}

/* What the steps from `since` on lost: `part` of rank k (NOBODY: all) over their wall time, and
 * what the others waited for k over theirs. */
double rui_part_of(const rui_causes *w, uint32_t k, ru_step_part part, int64_t since)
{
    double own = 0, wall = 0;
    for (uint32_t j = 0; j < w->n; j++) {
        for (int64_t i = 0; (k == RU_STEP_NOBODY || j == k) && i < w->steps[j].n; i++) {
            const ru_step_time *s = &w->steps[j].at[i];
            own += s->step >= since ? (double)s->part_ns[part] : 0;
            wall += s->step >= since ? (double)(s->end_ns - s->start_ns) : 0;
        }
    }
    return wall > 0 ? own / wall : 0;
}

static double waited_for(const rui_causes *w, uint32_t k, int64_t since)
{
    double waited = 0, wall = 0;
    for (uint32_t j = 0; j < w->n; j++) {
        for (int64_t i = 0; j != k && i < w->steps[j].n; i++) {
            const ru_step_time *s = &w->steps[j].at[i];
            waited += s->step >= since && s->late == k ? (double)s->late_ns : 0;
            wall += s->step >= since ? (double)(s->end_ns - s->start_ns) : 0;
        }
    }
    return wall > 0 ? waited / wall : 0;
}

static ru_status parts(rui_causes *w, ru_step_part part, table *t, ru_err *err)
{
    if (!table_make(w, t)) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the causes is full");
    }
    for (uint32_t k = 0; k < w->n; k++) {
        for (int64_t i = 0; i < w->steps[k].n; i++) {
            double *c = cell(t, k, w->steps[k].at[i].step);
            if (c != NULL) {
                *c = (double)w->steps[k].at[i].part_ns[part];
            }
        }
    }
    return RU_OK;
}

/* Nanoseconds of ops for each sample where samples are known: shares of the batch that follow a
 * rank's speed do not hide it. Else, of each step. */
static ru_status paces(rui_causes *w, table *t, ru_err *err)
{
    bool known = false;
    RU_TRY(parts(w, RU_STEP_COMPUTE, t, err));
    for (uint32_t k = 0; k < w->n; k++) {
        for (int64_t i = 0; i < w->steps[k].n; i++) {
            known = known || w->steps[k].at[i].samples > 0;
        }
    }
    for (uint32_t k = 0; known && k < w->n; k++) {
        for (int64_t i = 0; i < w->steps[k].n; i++) {
            const ru_step_time *s = &w->steps[k].at[i];
            double *c = cell(t, k, s->step);
            if (c != NULL) {
                *c = s->samples > 0 ? (double)s->part_ns[RU_STEP_COMPUTE] / (double)s->samples
                                    : RU_NAN;
            }
        }
    }
    return RU_OK;
}

/* With shares that follow the speeds, a slow rank slows all: they do its work. Part of the time of
 * ops that was saved if it were as fast as the others, from its `factor`. */
static double shared_loss(const rui_causes *w, double factor)
{
    double others = (double)w->n - 1;
    return 1 - (others + 1 / factor) / (others + 1);
}

/* Part of the time of rank k's steps from `since` on by which they are longer than before. */
static double longer_since(const rui_causes *w, uint32_t k, int64_t since)
{
    double wall[2];
    for (uint32_t side = 0; side < 2; side++) {
        int64_t n = 0;
        for (int64_t i = 0; i < w->steps[k].n && n < w->n_steps; i++) {
            const ru_step_time *s = &w->steps[k].at[i];
            if ((s->step >= since) == (side == 1)) {
                w->scratch[n++] = (double)(s->end_ns - s->start_ns);
            }
        }
        wall[side] = rui_median(w->scratch, n);
    }
    return wall[1] > wall[0] ? 1 - wall[0] / wall[1] : 0;
}

/* What a rank costs whose ops take `factor` times as long as the others'. The others wait for it,
 * or do its work. Where sums run beside ops, nobody is seen to wait: then it costs what the steps
 * became longer, at most what its ops take longer. */
static double compute_cost(const rui_causes *w, uint32_t k, double factor, int64_t since)
{
    double own = rui_part_of(w, k, RU_STEP_COMPUTE, since);
    double seen = fmax(waited_for(w, k, since), shared_loss(w, factor) * own);
    double most = (1 - 1 / factor) * own;
    return since > 0 ? fmax(seen, fmin(longer_since(w, k, since), most)) : seen;
}

/* A rank whose ops take longer; with one rank alone: than before. */
static ru_status computes(rui_causes *w, ru_err *err)
{
    table t;
    RU_TRY(paces(w, &t, err));
    for (uint32_t k = 0; k < w->n; k++) {
        double level, jump;
        if (w->n > 1 && against_others(w, &t, k) < RUI_SIDE_MIN) {
            continue;
        }
        for (int64_t s = 0; w->n == 1 && s < w->n_steps; s++) {
            w->series[s] = t.figure[s] > 0 ? log(t.figure[s]) : RU_NAN;
        }
        int64_t at = rui_cut(w->series, w->n_steps, &level, &jump);
        int64_t since = at > 0 ? w->first + at : 0;
        double factor = exp(w->n > 1 ? level : jump);
        if (factor >= slow_min && (w->n > 1 || at > 0)) {
            double cost = w->n > 1 ? compute_cost(w, k, factor, since)
                                   : (1 - 1 / factor) * rui_part_of(w, k, RU_STEP_COMPUTE, since);
            w->slow[k] = (ru_cause){RU_CAUSE_COMPUTE, k, since, factor, cost, w->n == 1, 0};
        }
    }
    return RU_OK;
}

static ru_status inputs(rui_causes *w, ru_err *err)
{
    table t;
    RU_TRY(parts(w, RU_STEP_INPUT, &t, err));
    uint32_t found = w->n_causes, slow = 0;
    for (uint32_t k = 0; k < w->n; k++) {
        double level, jump, steps = (double)w->steps[k].n;
        double nothing = fmax(1000, 0.01 * (double)w->steps[k].step_ns / fmax(steps, 1));
        for (int64_t s = 0; s < w->n_steps; s++) {
            double v = t.figure[k * w->n_steps + s];
            w->series[s] = isfinite(v) ? log(fmax(v, nothing)) : RU_NAN;
        }
        int64_t at = rui_cut(w->series, w->n_steps, &level, &jump);
        int64_t since = at > 0 && jump > 0 ? w->first + at : 0;
        double cost = rui_part_of(w, k, RU_STEP_INPUT, since);
        slow += cost >= cost_min;
        rui_cause_name(
            w, (ru_cause){RU_CAUSE_INPUT, k, since, since > 0 ? exp(jump) : 1, cost, false, 0});
    }
    if (w->n > 2 && slow == w->n) { /* no rank is special */
        w->causes[found].trace = RU_STEP_NOBODY;
        w->causes[found].cost =
            rui_part_of(w, RU_STEP_NOBODY, RU_STEP_INPUT, w->causes[found].since_step);
        w->n_causes = found + 1;
    }
    return RU_OK;
}

/* w->series: log of the median over the ranks of their time in `part`. */
static ru_status of_all(rui_causes *w, ru_step_part part, ru_err *err)
{
    table t;
    RU_TRY(parts(w, part, &t, err));
    for (int64_t s = 0; s < w->n_steps; s++) {
        int64_t n = 0;
        for (uint32_t k = 0; k < w->n; k++) {
            double v = t.figure[k * w->n_steps + s];
            if (isfinite(v)) {
                w->scratch[n++] = v;
            }
        }
        double m = rui_median(w->scratch, n);
        w->series[s] = isfinite(m) ? log(fmax(m, 1000.0)) : RU_NAN;
    }
    return RU_OK;
}

/* Mean of w->series from `at` on, less that before. */
static double rise(const rui_causes *w, int64_t at)
{
    double sum[2] = {0};
    int64_t n[2] = {0};
    for (int64_t s = 0; s < w->n_steps; s++) {
        sum[s >= at] += isfinite(w->series[s]) ? w->series[s] : 0;
        n[s >= at] += isfinite(w->series[s]);
    }
    return n[0] > 0 && n[1] > 0 ? sum[1] / (double)n[1] - sum[0] / (double)n[0] : 0;
}

bool rui_same_time(const rui_causes *w, int64_t a, int64_t b)
{
    int64_t near = w->n_steps / 10 > 2 * RUI_SIDE_MIN ? w->n_steps / 10 : 2 * RUI_SIDE_MIN;
    return (a == 0) == (b == 0) && llabs(a - b) <= near;
}

/* Did one rank become slow at that time, or some time? Then all wait for its transfers. */
static bool one_rank_since(const rui_causes *w, int64_t since)
{
    bool is = false;
    for (uint32_t i = 0; i < w->n_causes; i++) {
        const ru_cause *c = &w->causes[i];
        if (c->kind == RU_CAUSE_PAUSE) {
            return true;
        }
        bool slows = c->kind == RU_CAUSE_COMPUTE || c->kind == RU_CAUSE_SENDER ||
                     c->kind == RU_CAUSE_LINK || c->kind == RU_CAUSE_RECEIVER ||
                     c->kind == RU_CAUSE_PATH;
        is = is || (slows && (c->since_step == 0 || rui_same_time(w, c->since_step, since)));
    }
    return is;
}

/* The sums of all ranks against those of the run before. Where the ops became slower with them, it
 * is not the network: sums need processors too. */
static ru_status network(rui_causes *w, ru_err *err)
{
    double level, jump;
    RU_TRY(of_all(w, RU_STEP_NETWORK, err));
    int64_t at = rui_cut(w->series, w->n_steps, &level, &jump);
    if (at == 0 || jump < log(jump_min)) {
        return RU_OK;
    }
    RU_TRY(of_all(w, RU_STEP_COMPUTE, err));
    double ops = rise(w, at);
    int64_t since = w->first + at;
    if (one_rank_since(w, since)) {
        return RU_OK;
    }
    double cost = (1 - exp(-jump)) * rui_part_of(w, RU_STEP_NOBODY, RU_STEP_NETWORK, since);
    bool machine = ops >= log(slow_min);
    cost += machine ? (1 - exp(-ops)) * rui_part_of(w, RU_STEP_NOBODY, RU_STEP_COMPUTE, since) : 0;
    rui_cause_name(w, (ru_cause){machine ? RU_CAUSE_MACHINE : RU_CAUSE_NETWORK, RU_STEP_NOBODY,
                                 since, exp(machine ? ops : jump), cost, true, 0});
    return RU_OK;
}

/* Is there an earlier recording of the same process? Then it began again, and was not late. */
static bool again(const rui_causes *w, uint32_t k)
{
    bool is = false;
    for (uint32_t j = 0; j < k; j++) {
        is = is || w->traces[j].rank == w->traces[k].rank;
    }
    return is;
}

/* Against the others that ran at the same time. */
static void starts(rui_causes *w)
{
    for (uint32_t k = 0; k < w->n; k++) {
        int64_t n = 0;
        double own = (double)ru_trace_global(w->clocks, k, w->traces[k].first_ns) * 1e-9;
        double first = own, last = own;
        for (uint32_t j = 0; j < w->n; j++) {
            double at = (double)ru_trace_global(w->clocks, j, w->traces[j].first_ns) * 1e-9;
            double end = (double)ru_trace_global(w->clocks, j, w->traces[j].last_ns) * 1e-9;
            if (w->steps[j].n == 0 || end < own) {
                continue;
            }
            first = fmin(first, at);
            last = fmax(last, end);
            if (j != k) {
                w->scratch[n++] = at;
            }
        }
        double late = own - rui_median(w->scratch, n);
        if (w->steps[k].n > 0 && late >= start_min_s && last > first && !again(w, k)) {
            rui_cause_name(w,
                           (ru_cause){RU_CAUSE_START, k, 0, late, late / (last - first), false, 0});
        }
    }
}

static int by_cost(const void *pa, const void *pb)
{
    const ru_cause *a = pa, *b = pb;
    if (a->cost != b->cost) {
        return a->cost > b->cost ? -1 : 1;
    }
    return a->kind != b->kind ? (a->kind < b->kind ? -1 : 1)
                              : (a->trace > b->trace) - (a->trace < b->trace);
}

ru_status ru_trace_causes(const ru_trace *traces, const ru_rank_steps *steps, uint32_t n,
                          const ru_trace_clocks *clocks, ru_arena *arena, ru_cause *causes,
                          uint32_t *n_causes, ru_err *err)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (uint32_t k = 0; k < n; k++) {
        for (int64_t i = 0; i < steps[k].n; i++) {
            first = steps[k].at[i].step < first ? steps[k].at[i].step : first;
            last = steps[k].at[i].step > last ? steps[k].at[i].step : last;
        }
    }
    *n_causes = 0;
    if (first > last) {
        return RU_OK;
    }
    int64_t span = (uint64_t)last - (uint64_t)first < STEPS_MAX ? last - first + 1 : STEPS_MAX;
    rui_causes w = {.traces = traces,
                    .steps = steps,
                    .clocks = clocks,
                    .n = n,
                    .first = first,
                    .n_steps = span,
                    .arena = arena,
                    .causes = causes,
                    .slow = RU_NEW(arena, ru_cause, n),
                    .scratch = RU_NEW(arena, double, span > n ? span : n),
                    .series = RU_NEW(arena, double, span)};
    w.paused = RU_NEW(arena, bool, n);
    if (w.slow == NULL || w.paused == NULL || w.scratch == NULL || w.series == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the causes is full");
    }
    RU_TRY(computes(&w, err));
    RU_TRY(rui_cause_pauses(&w, err));
    RU_TRY(inputs(&w, err));
    if (n > 1) {
        RU_TRY(rui_cause_transfers(&w, err));
    }
    for (uint32_t k = 0; k < n; k++) {
        rui_cause_name(&w, w.slow[k]);
    }
    if (n > 1) {
        RU_TRY(network(&w, err));
        starts(&w);
    }
    qsort(causes, w.n_causes, sizeof *causes, by_cost);
    *n_causes = w.n_causes;
    return RU_OK;
}

const char *ru_cause_kind_name(ru_cause_kind kind)
{
    static const char *const names[] = {"compute", "input",   "sender", "link",  "receiver",
                                        "network", "machine", "start",  "pause", "path"};
    RU_CHECK(kind < RU_ARRAY_LEN(names));
    return names[kind];
}

void ru_cause_print(const ru_cause *c, const ru_trace *traces, ru_text *into)
{
    const char *who = "Every rank";
    char rank[32];
    if (c->trace != RU_STEP_NOBODY) {
        snprintf(rank, sizeof rank, "Rank %u", ru_trace_number(&traces[c->trace]));
        who = rank;
    }
    switch (c->kind) {
    case RU_CAUSE_COMPUTE:
        ru_text_putf(into, "%s computes %.2f times as long as %s", who, c->factor,
                     c->before ? "before" : "the others");
        break;
    case RU_CAUSE_INPUT:
        ru_text_putf(into, "%s waits for its input", who);
        break;
    case RU_CAUSE_SENDER:
        ru_text_putf(into, "%s sends at %.0f %% of the others' rate", who, 100 / c->factor);
        break;
    case RU_CAUSE_LINK:
        ru_text_putf(into, "The link of %s carries %.0f %% of the others' rate in both directions",
                     who, 100 / c->factor);
        break;
    case RU_CAUSE_RECEIVER:
        ru_text_putf(into, "%s receives at %.0f %% of the others' rate", who, 100 / c->factor);
        break;
    case RU_CAUSE_PATH:
        ru_text_putf(into,
                     "The link from rank %u to rank %u carries %.0f %% of the rate of other links "
                     "(no other transfer tells which of its two ends is slow)",
                     ru_trace_number(&traces[c->trace]), ru_trace_number(&traces[c->peer - 1]),
                     100 / c->factor);
        break;
    case RU_CAUSE_NETWORK:
        ru_text_putf(into, "The network takes %.2f times as long as before, on all ranks",
                     c->factor);
        break;
    case RU_CAUSE_MACHINE:
        ru_text_putf(into,
                     "On all ranks ops take %.2f times as long as before and sums longer too, as "
                     "when other programs use the same processors",
                     c->factor);
        break;
    case RU_CAUSE_PAUSE:
        ru_text_putf(into,
                     "%s is stopped and continued again and again, as by signals or a paused "
                     "machine, for %.0f ms at a time",
                     who, 1e3 * c->factor);
        break;
    case RU_CAUSE_START:
        ru_text_putf(into, "%s started %.1f s later than the others; that is %.0f %% of the run.",
                     who, c->factor, 100 * c->cost);
        return;
    }
    if (c->since_step > 0) {
        ru_text_putf(into, " since step %lld", (long long)c->since_step);
    }
    ru_text_putf(into, "; this costs %.0f %% of the time of a step.", 100 * c->cost);
}
