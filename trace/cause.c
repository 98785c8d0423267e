/* Figures by rank and step -> logarithms of ratios to the median of the others -> a cut in two
 * where they changed -> a cause where the level since then is high and dear enough. */
#include "trace/cause.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MAX = 1 << 20,
    SIDE_MIN = 5,         /* steps on each side of a cut */
    TRANSFER_MIN = 16384, /* bytes: smaller ones measure latency */
};

static const double cost_min = 0.05, slow_min = 1.2, rate_low = 0.67, jump_min = 1.25,
                    sure_min = 6.0, start_min_s = 0.5;

/* figure[k * n_steps + s]: of rank k in step first + s; none: not known. */
typedef struct table {
    uint32_t ranks;
    int64_t first, n_steps;
    double *figure;
} table;

typedef struct work {
    const ru_trace *traces;
    const ru_rank_steps *steps;
    const ru_trace_clocks *clocks;
    uint32_t n;
    int64_t first, n_steps;
    ru_arena *arena;
    ru_cause *causes;
    uint32_t n_causes;
    double *scratch; /* [max(n, n_steps)] */
    double *series;  /* [n_steps] */
    double wall_ns;  /* of all steps of all ranks */
} work;

static int by_value(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    return a < b ? -1 : a > b;
}

static double median(double *v, int64_t n)
{
    if (n == 0) {
        return RU_NAN;
    }
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 != 0 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

static bool table_make(work *w, table *t)
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
    int64_t s = step - t->first;
    return s >= 0 && s < t->n_steps ? &t->figure[rank * t->n_steps + s] : NULL;
}

/* w->series: log of rank k's figure over the median of the others'. Returns how many are known. */
static int64_t against_others(work *w, const table *t, uint32_t k)
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
        double m = median(w->scratch, n);
        w->series[s] = own > 0 && m > 0 ? log(own / m) : RU_NAN;
        known += isfinite(w->series[s]);
    }
    return known;
}

/* Where the series changed: index of the first figure after it, 0 when it did not. *level: mean
 * since then; *jump: less the mean before. */
static int64_t cut(const double *v, int64_t n, double *level, double *jump)
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
        if (before >= SIDE_MIN && after >= SIDE_MIN) {
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

static void name(work *w, ru_cause c)
{
    if (w->n_causes < RU_CAUSES_MAX && c.cost >= cost_min) {
        w->causes[w->n_causes++] = c;
    }
}

/* What the steps from `since` on lost: `part` of rank k (NOBODY: all) over their wall time, and
 * what the others waited for k over theirs. */
static double part_of(const work *w, uint32_t k, ru_step_part part, int64_t since)
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

static double waited_for(const work *w, uint32_t k, int64_t since)
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

static ru_status parts(work *w, ru_step_part part, table *t, ru_err *err)
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

/* A rank whose ops take longer; with one rank alone: than before. */
static ru_status computes(work *w, ru_err *err)
{
    table t;
    RU_TRY(parts(w, RU_STEP_COMPUTE, &t, err));
    for (uint32_t k = 0; k < w->n; k++) {
        double level, jump;
        if (w->n > 1 && against_others(w, &t, k) < SIDE_MIN) {
            continue;
        }
        for (int64_t s = 0; w->n == 1 && s < w->n_steps; s++) {
            w->series[s] = t.figure[s] > 0 ? log(t.figure[s]) : RU_NAN;
        }
        int64_t at = cut(w->series, w->n_steps, &level, &jump);
        int64_t since = at > 0 ? w->first + at : 0;
        double factor = exp(w->n > 1 ? level : jump);
        double cost = w->n > 1 ? waited_for(w, k, since)
                               : (1 - 1 / factor) * part_of(w, k, RU_STEP_COMPUTE, since);
        if (factor >= slow_min && (w->n > 1 || at > 0)) {
            name(w, (ru_cause){RU_CAUSE_COMPUTE, k, since, factor, cost, w->n == 1});
        }
    }
    return RU_OK;
}

static ru_status inputs(work *w, ru_err *err)
{
    table t;
    RU_TRY(parts(w, RU_STEP_INPUT, &t, err));
    uint32_t found = w->n_causes, slow = 0;
    for (uint32_t k = 0; k < w->n; k++) {
        double level, jump;
        for (int64_t s = 0; s < w->n_steps; s++) {
            double v = t.figure[k * w->n_steps + s];
            w->series[s] = isfinite(v) ? log(fmax(v, 1000.0)) : RU_NAN; /* below 1 us is nothing */
        }
        int64_t at = cut(w->series, w->n_steps, &level, &jump);
        int64_t since = at > 0 && jump > 0 ? w->first + at : 0;
        double cost = part_of(w, k, RU_STEP_INPUT, since);
        slow += cost >= cost_min;
        name(w, (ru_cause){RU_CAUSE_INPUT, k, since, since > 0 ? exp(jump) : 1, cost, false});
    }
    if (w->n > 2 && slow == w->n) { /* no rank is special */
        w->causes[found].trace = RU_STEP_NOBODY;
        w->causes[found].cost =
            part_of(w, RU_STEP_NOBODY, RU_STEP_INPUT, w->causes[found].since_step);
        w->n_causes = found + 1;
    }
    return RU_OK;
}

/* Bytes and time of the larger transfers from trace a to trace b. */
typedef struct pair {
    double bytes, ns;
} pair;

static uint32_t trace_of(const work *w, uint64_t node)
{
    for (uint32_t k = 0; node != 0 && k < w->n; k++) {
        if (w->traces[k].node == node) {
            return k;
        }
    }
    return RU_STEP_NOBODY;
}

/* Transfers as their receivers saw them (from the first byte to the last), or, where the senders
 * were slower than that, as these saw them. */
static void add_transfers(const work *w, pair *sent, pair *got)
{
    for (uint32_t k = 0; k < w->n; k++) {
        for (uint32_t h = 0; h < w->traces[k].n_threads; h++) {
            const ru_trace_thread *t = &w->traces[k].threads[h];
            for (int64_t i = 0; i < t->n; i++) {
                const ru_record *r = &t->records[i];
                const ru_record_more *m = ru_trace_more(t, r);
                bool transfer = r->kind == RU_REC_SEND || r->kind == RU_REC_RECV;
                if (m == NULL || !transfer || r->value < TRANSFER_MIN ||
                    (m->flags & RU_REC_FAILED) != 0) {
                    continue;
                }
                uint32_t other = trace_of(w, m->peer);
                double ns = (double)r->dur_ns - (r->kind == RU_REC_SEND ? (double)m->wait_ns : 0);
                if (other == RU_STEP_NOBODY || ns <= 0) {
                    continue;
                }
                pair *p = r->kind == RU_REC_SEND ? &sent[k * w->n + other] : &got[other * w->n + k];
                p->bytes += (double)r->value;
                p->ns += ns;
            }
        }
    }
}

/* Median rate of the pairs that `k` has a part in as asked, or of all that it has none in. */
static double rate_of(work *w, const double *rate, uint32_t k, bool out, bool in)
{
    int64_t n = 0;
    double *v = w->scratch;
    for (uint32_t a = 0; a < w->n; a++) {
        for (uint32_t b = 0; b < w->n; b++) {
            bool wanted = (out && a == k) || (in && b == k) || (!out && !in && a != k && b != k);
            if (wanted && rate[a * w->n + b] > 0) {
                v[n++] = rate[a * w->n + b];
            }
        }
    }
    return median(v, n);
}

static void blame(work *w, double *rate, uint32_t k, ru_cause_kind kind, double factor)
{
    double cost = (1 - 1 / factor) * part_of(w, RU_STEP_NOBODY, RU_STEP_NETWORK, 0);
    name(w, (ru_cause){kind, k, 0, factor, cost, false});
    for (uint32_t j = 0; j < w->n; j++) { /* these pairs are explained */
        if (kind != RU_CAUSE_RECEIVER) {
            rate[k * w->n + j] = 0;
        }
        if (kind != RU_CAUSE_SENDER) {
            rate[j * w->n + k] = 0;
        }
    }
}

/* Links that are slow in both directions first, since they make their neighbours look slow too. */
static ru_status transfers(work *w, ru_err *err)
{
    int64_t n = (int64_t)w->n * w->n;
    pair *sent = RU_NEW(w->arena, pair, n), *got = RU_NEW(w->arena, pair, n);
    double *rate = RU_NEW(w->arena, double, n), *v = RU_NEW(w->arena, double, n);
    if (sent == NULL || got == NULL || rate == NULL || v == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the causes is full");
    }
    double *kept = w->scratch;
    w->scratch = v;
    add_transfers(w, sent, got);
    for (int64_t i = 0; i < n; i++) {
        double out = sent[i].ns > 0 ? sent[i].bytes / sent[i].ns : HUGE_VAL;
        double in = got[i].ns > 0 ? got[i].bytes / got[i].ns : HUGE_VAL;
        rate[i] = isfinite(fmin(out, in)) ? fmin(out, in) : 0;
    }
    static const ru_cause_kind order[] = {RU_CAUSE_LINK, RU_CAUSE_SENDER, RU_CAUSE_RECEIVER};
    for (uint32_t o = 0; o < RU_ARRAY_LEN(order); o++) {
        for (uint32_t k = 0; k < w->n; k++) {
            double out = rate_of(w, rate, k, true, false), in = rate_of(w, rate, k, false, true);
            double rest = rate_of(w, rate, k, false, false);
            if (w->n == 2) { /* two ranks: one direction against the other */
                rest = order[o] == RU_CAUSE_SENDER ? in : RU_NAN;
            }
            double worst = order[o] == RU_CAUSE_LINK     ? fmax(out, in)
                           : order[o] == RU_CAUSE_SENDER ? out
                                                         : in;
            if (isfinite(out) + isfinite(in) > (order[o] == RU_CAUSE_LINK) && worst > 0 &&
                worst < rate_low * rest) {
                blame(w, rate, k, order[o], rest / worst);
            }
        }
    }
    w->scratch = kept;
    return RU_OK;
}

/* w->series: log of the median over the ranks of their time in `part`. */
static ru_status of_all(work *w, ru_step_part part, ru_err *err)
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
        double m = median(w->scratch, n);
        w->series[s] = isfinite(m) ? log(fmax(m, 1000.0)) : RU_NAN;
    }
    return RU_OK;
}

/* Mean of w->series from `at` on, less that before. */
static double rise(const work *w, int64_t at)
{
    double sum[2] = {0};
    int64_t n[2] = {0};
    for (int64_t s = 0; s < w->n_steps; s++) {
        sum[s >= at] += isfinite(w->series[s]) ? w->series[s] : 0;
        n[s >= at] += isfinite(w->series[s]);
    }
    return n[0] > 0 && n[1] > 0 ? sum[1] / (double)n[1] - sum[0] / (double)n[0] : 0;
}

/* The sums of all ranks against those of the run before. Where the ops became slower with them, it
 * is not the network: sums need processors too. */
static ru_status network(work *w, ru_err *err)
{
    double level, jump;
    RU_TRY(of_all(w, RU_STEP_NETWORK, err));
    int64_t at = cut(w->series, w->n_steps, &level, &jump);
    if (at == 0 || jump < log(jump_min)) {
        return RU_OK;
    }
    RU_TRY(of_all(w, RU_STEP_COMPUTE, err));
    double ops = rise(w, at);
    int64_t since = w->first + at;
    double cost = (1 - exp(-jump)) * part_of(w, RU_STEP_NOBODY, RU_STEP_NETWORK, since);
    bool machine = ops >= log(slow_min);
    cost += machine ? (1 - exp(-ops)) * part_of(w, RU_STEP_NOBODY, RU_STEP_COMPUTE, since) : 0;
    name(w, (ru_cause){machine ? RU_CAUSE_MACHINE : RU_CAUSE_NETWORK, RU_STEP_NOBODY, since,
                       exp(machine ? ops : jump), cost, true});
    return RU_OK;
}

/* Is there an earlier recording of the same process? Then it began again, and was not late. */
static bool again(const work *w, uint32_t k)
{
    bool is = false;
    for (uint32_t j = 0; j < k; j++) {
        is = is || w->traces[j].rank == w->traces[k].rank;
    }
    return is;
}

/* Against the others that ran at the same time. */
static void starts(work *w)
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
        double late = own - median(w->scratch, n);
        if (w->steps[k].n > 0 && late >= start_min_s && last > first && !again(w, k)) {
            name(w, (ru_cause){RU_CAUSE_START, k, 0, late, late / (last - first), false});
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
    work w = {.traces = traces,
              .steps = steps,
              .clocks = clocks,
              .n = n,
              .first = first,
              .n_steps = span,
              .arena = arena,
              .causes = causes,
              .scratch = RU_NEW(arena, double, span > n ? span : n),
              .series = RU_NEW(arena, double, span)};
    if (w.scratch == NULL || w.series == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the causes is full");
    }
    RU_TRY(computes(&w, err));
    RU_TRY(inputs(&w, err));
    if (n > 1) {
        RU_TRY(transfers(&w, err));
        RU_TRY(network(&w, err));
        starts(&w);
    }
    qsort(causes, w.n_causes, sizeof *causes, by_cost);
    *n_causes = w.n_causes;
    return RU_OK;
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
