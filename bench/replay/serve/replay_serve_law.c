#include <math.h>
#include <stddef.h>

#include "bench/replay/serve/replay_serve.h"
#include "cost/math/quantile.h"

enum { BLOCKS = 20 }; /* of a run */

typedef struct pool {
    uint32_t n_phases, blocks;
    double share[RU_MARKOV_PHASES_MAX]; /* of the requests, in the steady state */
    double *rising[RU_MARKOV_PHASES_MAX];
    uint32_t n[RU_MARKOV_PHASES_MAX];
    double *latency; /* [blocks * block], in order of the answers */
    uint8_t *phase;
    uint32_t block; /* requests */
} pool;

/* Requests of phase k with a latency of at most x. */
static uint32_t below(const pool *p, uint32_t k, double x)
{
    uint32_t low = 0, high = p->n[k];
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (p->rising[k][mid] <= x) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static double part_below(const pool *p, double x)
{
    double sum = 0;
    for (uint32_t k = 0; k < p->n_phases; k++) {
        sum += p->n[k] > 0 ? p->share[k] * below(p, k, x) / p->n[k] : 0;
    }
    return sum;
}

static double quantile(const pool *p, double level)
{
    double low = 0, high = 0;
    for (uint32_t k = 0; k < p->n_phases; k++) {
        high = p->n[k] > 0 ? fmax(high, p->rising[k][p->n[k] - 1]) : high;
    }
    for (uint32_t step = 0; step < 60; step++) {
        double x = (low + high) / 2;
        if (part_below(p, x) < fmin(level, 1)) {
            low = x;
        } else {
            high = x;
        }
    }
    return high;
}

/* Standard error of part_below(x): blocks of the linear form of a ratio estimate. */
static double part_error(const pool *p, double x)
{
    double part[RU_MARKOV_PHASES_MAX], weight[RU_MARKOV_PHASES_MAX], squares = 0;
    for (uint32_t k = 0; k < p->n_phases; k++) {
        weight[k] = p->n[k] > 0 ? p->share[k] / p->n[k] : 0;
        part[k] = p->n[k] > 0 ? (double)below(p, k, x) / p->n[k] : 0;
    }
    for (uint32_t b = 0; b < p->blocks; b++) {
        double z = 0;
        for (uint32_t i = b * p->block; i < (b + 1) * p->block; i++) {
            uint32_t k = p->phase[i];
            z += weight[k] * ((p->latency[i] <= x ? 1 : 0) - part[k]);
        }
        squares += z * z;
    }
    return sqrt(squares * p->blocks / (p->blocks - 1));
}

/* Half the distance between the quantiles one standard error of the part above and below. */
static double relative_error(const pool *p, double level)
{
    double q = quantile(p, level), e = part_error(p, q);
    return (quantile(p, level + e) - quantile(p, level - e)) / (2 * q);
}

static bool pool_make(const rui_serve_in *in, uint32_t runs_max, ru_arena *arena, pool *p)
{
    uint32_t room = runs_max * in->requests;
    p->n_phases = in->arrivals.n;
    p->block = in->requests / BLOCKS;
    p->latency = RU_NEW(arena, double, room);
    p->phase = RU_NEW(arena, uint8_t, room);
    bool made = p->latency != NULL && p->phase != NULL;
    for (uint32_t k = 0; k < p->n_phases; k++) {
        p->rising[k] = RU_NEW(arena, double, room);
        made = made && p->rising[k] != NULL;
    }
    return made;
}

static void pool_add(pool *p, const rui_serve_out *o)
{
    for (uint32_t i = 0; i < BLOCKS * p->block; i++) {
        uint32_t k = o->phase[i], at = p->blocks * p->block + i;
        p->latency[at] = o->latency[i];
        p->phase[at] = o->phase[i];
        p->rising[k][p->n[k]++] = o->latency[i];
    }
    p->blocks += BLOCKS;
}

/* Are all errors small enough? */
static bool measure(const pool *p, const double *levels, double error_max, rui_serve_law *out)
{
    bool small = true;
    for (uint32_t k = 0; k < p->n_phases; k++) {
        ru_sort_f64(p->rising[k], p->n[k]);
    }
    for (uint32_t k = 0; k < RUI_SERVE_LEVELS; k++) {
        out->error[k] = relative_error(p, levels[k]);
        small = small && out->error[k] <= error_max;
    }
    return small;
}

ru_status rui_serve_estimate(const rui_serve_in *in, const double levels[RUI_SERVE_LEVELS],
                             double error_max, uint32_t runs_max, ru_arena *arena,
                             rui_serve_law *out, ru_err *err)
{
    pool p = {0};
    ru_markov_law arrivals;
    RU_TRY(ru_markov_solve(&in->arrivals, &arrivals, err));
    if (!pool_make(in, runs_max, arena, &p)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u runs", runs_max);
    }
    double batches[RU_MARKOV_PHASES_MAX] = {0}, usd[RU_MARKOV_PHASES_MAX] = {0};
    for (uint32_t k = 0; k < p.n_phases; k++) {
        p.share[k] = arrivals.at_arrival[k];
    }
    *out = (rui_serve_law){0};
    for (bool done = false; !done;) {
        ru_arena_mark mark = ru_arena_mark_get(arena);
        rui_serve_in run = *in;
        rui_serve_out o;
        run.seed = in->seed + 1000003 * (uint64_t)out->runs++;
        RU_TRY(rui_serve_run(&run, arena, &o, err));
        for (uint32_t i = 0; i < BLOCKS * p.block; i++) {
            batches[o.phase[i]] += 1.0 / o.batch[i];
            usd[o.phase[i]] +=
                in->usd(in->self, o.batch[i], 0, in->table.rule[0].memory_mb) / o.batch[i];
        }
        pool_add(&p, &o);
        ru_arena_rewind(arena, mark);
        bool doubled = (out->runs & (out->runs - 1)) == 0;
        done = doubled && measure(&p, levels, error_max, out);
        if (!done && out->runs == runs_max) {
            done = true;
            (void)measure(&p, levels, error_max, out);
        }
    }
    double per_request = 0;
    for (uint32_t k = 0; k < p.n_phases; k++) {
        double weight = p.n[k] > 0 ? p.share[k] / p.n[k] : 0;
        per_request += weight * batches[k];
        out->usd_per_request += weight * usd[k];
    }
    out->mean_batch = 1 / per_request;
    for (uint32_t k = 0; k < RUI_SERVE_LEVELS; k++) {
        out->quantile[k] = quantile(&p, levels[k]);
    }
    return RU_OK;
}
