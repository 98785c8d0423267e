/* The checker of batch plans: limits, sums and bounds that hold whatever the law of the waits. */
#include <math.h>

#include "plan/serve/batch.h"

#define TOLERANCE 1e-6

static ru_status bad(ru_err *err, const char *what, double is, double want)
{
    return RU_FAIL(err, RU_E_INFEASIBLE, "%s is %.9g, expected %.9g", what, is, want);
}

static bool near(double a, double b)
{
    return a == b ||
           (isfinite(a - b) && fabs(a - b) <= TOLERANCE * fmax(1e-9, fmax(fabs(a), fabs(b))));
}

static ru_status check_choice(const ru_batch_in *in, const ru_batch_plan *p, ru_err *err)
{
    if (in->method == RU_BATCH_FIXED) {
        bool same = p->at.memory_mb == in->fixed.memory_mb && p->at.batch == in->fixed.batch &&
                    p->at.timeout_s == in->fixed.timeout_s;
        return same ? RU_OK : RU_FAIL(err, RU_E_INFEASIBLE, "the choice is not the fixed one");
    }
    bool known = false;
    for (uint32_t m = 0; m < in->n_memory; m++) {
        known = known || in->memory_mb[m] == p->at.memory_mb;
    }
    double steps = p->at.timeout_s / in->timeout_step_s;
    bool exact = in->method == RU_BATCH_EXACT;
    bool clipper = p->at.batch > 1 && (in->method == RU_BATCH_CLIPPER ||
                                       (exact && p->at.timeout_s == RU_BATCH_CLIPPER_S &&
                                        in->timeout_max_s >= RU_BATCH_CLIPPER_S));
    bool fixed = exact && p->at.memory_mb == in->fixed.memory_mb &&
                 p->at.batch == in->fixed.batch && p->at.timeout_s == in->fixed.timeout_s &&
                 p->at.batch > 1 && p->at.timeout_s > 0 && p->at.timeout_s <= in->timeout_max_s;
    bool on_grid =
        fixed || (clipper            ? p->at.timeout_s == RU_BATCH_CLIPPER_S
                  : p->at.batch == 1 ? p->at.timeout_s == 0
                                     : p->at.timeout_s > 0 && near(steps, floor(steps + 0.5)) &&
                                           p->at.timeout_s <= in->timeout_max_s * (1 + TOLERANCE));
    if (!known || p->at.batch < 1 || p->at.batch > in->batch_max || !on_grid) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%g MB, batch %u, timeout %g s is not in the grid",
                       p->at.memory_mb, p->at.batch, p->at.timeout_s);
    }
    return RU_OK;
}

/* The quantile of latencies if every request waited `wait` seconds. */
static double quantile_with(const ru_batch_in *in, const ru_batch_plan *p, double wait)
{
    double best = INFINITY;
    for (uint32_t b = 1; b <= p->at.batch; b++) {
        double x = ru_batch_service_s(in, b, p->at.memory_mb), below = 0;
        for (uint32_t k = 1; k <= p->at.batch; k++) {
            below += ru_batch_service_s(in, k, p->at.memory_mb) <= x ? k * p->size_p[k] : 0;
        }
        if (below >= (in->quantile - TOLERANCE) * p->mean_batch) {
            best = fmin(best, x + wait);
        }
    }
    return best;
}

ru_status ru_plan_batch_check(const ru_batch_in *in, const ru_batch_plan *p, ru_err *err)
{
    RU_TRY(check_choice(in, p, err));
    double sum = 0, mean = 0, usd = 0, busy = 0;
    for (uint32_t b = 1; b <= p->at.batch; b++) {
        if (!(p->size_p[b] >= 0)) {
            return bad(err, "the probability of a size", p->size_p[b], 0);
        }
        sum += p->size_p[b];
        mean += b * p->size_p[b];
        usd += p->size_p[b] * ru_batch_call_usd(in, b, p->at.memory_mb);
        busy += p->size_p[b] * ru_batch_service_s(in, b, p->at.memory_mb);
    }
    if (!near(sum, 1)) {
        return bad(err, "the sum of the probabilities of sizes", sum, 1);
    }
    if (!near(mean, p->mean_batch)) {
        return bad(err, "the mean batch", p->mean_batch, mean);
    }
    if (!near(usd / mean, p->usd_per_request)) {
        return bad(err, "the cost of a request", p->usd_per_request, usd / mean);
    }
    double rate = 0; /* pi D1 1 without the solver: the share of each phase by balance of flows */
    ru_markov_law law;
    RU_TRY(ru_markov_solve(&in->arrivals, &law, err));
    for (uint32_t i = 0; i < in->arrivals.n; i++) {
        for (uint32_t c = 0; c < in->arrivals.n; c++) {
            rate += law.at_time[i] * in->arrivals.d1[i * in->arrivals.n + c];
        }
    }
    if (!near(p->instances, rate * busy / mean)) {
        return bad(err, "the mean number of instances", p->instances, rate * busy / mean);
    }
    double low = quantile_with(in, p, 0), high = quantile_with(in, p, p->at.timeout_s);
    if (!(p->latency_s >= low - TOLERANCE && p->latency_s <= high + TOLERANCE)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the latency %g s is outside %g to %g s", p->latency_s,
                       low, high);
    }
    bool keeps = in->method != RU_BATCH_PUBLISHED && in->method != RU_BATCH_FIXED;
    double whole = ru_batch_service_s(in, p->at.batch, p->at.memory_mb) + p->at.timeout_s;
    double limit = in->slo_s - in->margin * in->slo_s;
    if (in->method == RU_BATCH_MARK && whole > limit * (1 + TOLERANCE)) {
        return bad(err, "the whole wait with its service", whole, limit);
    }
    if (keeps && p->latency_s > limit * (1 + TOLERANCE)) {
        return bad(err, "the latency", p->latency_s, limit);
    }
    return RU_OK;
}
