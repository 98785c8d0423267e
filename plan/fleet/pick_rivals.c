/* Methods of `pick` that look at each client: FedCS, Oort, power of choice. */
#include <math.h>
#include <stddef.h>

#include "cost/math/norm.h"
#include "cost/math/quantile.h"
#include "plan/fleet/pick_impl.h"

void rui_pick_weighted(ru_rng *rng, const double *weight, uint32_t *pool, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < k && i + 1 < n; i++) {
        double sum = 0;
        for (uint32_t j = i; j < n; j++) {
            sum += weight[pool[j]];
        }
        double at = ru_rng_f64(rng) * sum;
        uint32_t j = i;
        while (j + 1 < n && (at >= weight[pool[j]] || !(weight[pool[j]] > 0))) {
            at -= weight[pool[j++]];
        }
        uint32_t t = pool[i];
        pool[i] = pool[j];
        pool[j] = t;
    }
}

/* The `k` largest keys of pool to its front, ties to the earlier place. key [clients]. */
static void top(const double *key, uint32_t *pool, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++) {
        uint32_t best = i;
        for (uint32_t j = i + 1; j < n; j++) {
            best = key[pool[j]] > key[pool[best]] ? j : best;
        }
        uint32_t t = pool[best];
        for (uint32_t j = best; j > i; j--) {
            pool[j] = pool[j - 1];
        }
        pool[i] = t;
    }
}

static uint32_t at_most(double a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

/* Candidates by lot, the fastest that keep the deadline. */
static uint32_t fedcs(const ru_pick_in *in, ru_rng *rng, uint32_t *pool, uint32_t n, double *key)
{
    uint32_t candidates = at_most(3.0 * in->per_round, n), admitted = 0;
    double deadline = in->fedcs_s;
    if (!(deadline > 0)) {
        for (uint32_t i = 0; i < n; i++) {
            key[i] = in->client[pool[i]].latency_s;
        }
        ru_sort_f64(key, n);
        deadline = ru_quantile_sorted(key, n, 0.5, RU_QUANTILE_LINEAR);
    }
    rui_pick_some(rng, pool, n, candidates);
    for (uint32_t i = 0; i < in->n; i++) {
        key[i] = -in->client[i].latency_s;
    }
    top(key, pool, candidates, in->per_round);
    while (admitted < in->per_round && in->client[pool[admitted]].latency_s <= deadline) {
        admitted++;
    }
    return admitted > 0 ? admitted : 1;
}

/* Candidates by size, those with the largest loss; who never trained comes first. */
static uint32_t choice(const ru_pick_in *in, ru_rng *rng, uint32_t *pool, uint32_t n, double *key)
{
    uint32_t candidates = at_most(2.0 * in->per_round, n);
    for (uint32_t i = 0; i < in->n; i++) {
        key[i] = in->client[i].samples;
    }
    rui_pick_weighted(rng, key, pool, n, candidates);
    for (uint32_t i = 0; i < in->n; i++) {
        key[i] = in->client[i].loss >= 0 ? in->client[i].loss : (double)INFINITY;
    }
    top(key, pool, candidates, in->per_round);
    return in->per_round;
}

/* Score of clients that trained before: utility clipped at its 95th percentile, a bonus for those
 * that did not for long, less for those slower than preferred. */
static void oort_scores(const ru_pick_in *in, const uint32_t *pool, uint32_t known, double prefer_s,
                        double *sorted, double *score)
{
    for (uint32_t i = 0; i < known; i++) {
        const ru_pick_client *c = &in->client[pool[i]];
        sorted[i] = fmax(c->loss, 0) * c->samples;
    }
    ru_sort_f64(sorted, known);
    double least = sorted[0];
    double clip = ru_quantile_sorted(sorted, known, 0.95, RU_QUANTILE_LINEAR);
    for (uint32_t i = 0; i < known; i++) {
        const ru_pick_client *c = &in->client[pool[i]];
        double u = fmin(fmax(c->loss, 0) * c->samples, clip);
        double s = clip > least ? (u - least) / (clip - least) : 1;
        s += sqrt(0.1 * ru_num_log(in->round) / fmax(c->last_round, 1));
        if (c->latency_s > prefer_s) {
            double slow = prefer_s / c->latency_s;
            s *= slow * slow;
        }
        score[pool[i]] = fmax(s, 1e-12);
    }
}

static uint32_t oort(const ru_pick_in *in, ru_rng *rng, uint32_t *pool, uint32_t n, double *key,
                     double *score)
{
    uint32_t c = in->per_round, known = 0;
    for (uint32_t i = 0; i < n; i++) {
        key[i] = in->client[pool[i]].latency_s;
    }
    ru_sort_f64(key, n);
    double prefer_s = ru_quantile_sorted(key, n, in->prefer, RU_QUANTILE_LINEAR);
    for (uint32_t i = 0; i < n; i++) { /* those that trained to the front, order kept */
        if (in->client[pool[i]].picks > 0) {
            uint32_t t = pool[i];
            for (uint32_t j = i; j > known; j--) {
                pool[j] = pool[j - 1];
            }
            pool[known++] = t;
        }
    }
    double explore = fmax(0.2, 0.9 * ru_num_exp((in->round - 1) * ru_num_log(0.98)));
    uint32_t fresh = at_most(floor(c * explore + 0.5), n - known);
    uint32_t used = c - fresh < known ? c - fresh : known;
    fresh = c - used;
    if (used > 0) {
        oort_scores(in, pool, known, prefer_s, key, score);
        top(score, pool, known, used);
        double cut = 0.95 * score[pool[used - 1]];
        uint32_t near = used;
        for (uint32_t i = used; i < known; i++) {
            if (score[pool[i]] >= cut) {
                uint32_t t = pool[i];
                pool[i] = pool[near];
                pool[near++] = t;
            }
        }
        rui_pick_weighted(rng, score, pool, near, used);
    }
    for (uint32_t i = known; i < n; i++) {
        score[pool[i]] = in->client[pool[i]].samples;
    }
    rui_pick_weighted(rng, score, pool + known, n - known, fresh);
    for (uint32_t i = 0; i < fresh; i++) {
        uint32_t t = pool[used + i];
        pool[used + i] = pool[known + i];
        pool[known + i] = t;
    }
    return c;
}

ru_status rui_pick_clients(const ru_pick_in *in, ru_rng *rng, uint32_t *pool, uint32_t n,
                           ru_arena *scratch, uint32_t *chosen, ru_err *err)
{
    double *key = RU_NEW(scratch, double, in->n), *score = RU_NEW(scratch, double, in->n);
    if (key == NULL || score == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u clients", in->n);
    }
    *chosen = in->method == RU_PICK_FEDCS    ? fedcs(in, rng, pool, n, key)
              : in->method == RU_PICK_CHOICE ? choice(in, rng, pool, n, key)
                                             : oort(in, rng, pool, n, key, score);
    return RU_OK;
}
