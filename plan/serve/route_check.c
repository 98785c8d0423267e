/* The checker of routes: sums, and bounds that hold whatever the law of the waits. */
#include <math.h>
#include <stddef.h>

#include "plan/serve/route.h"

#define TOLERANCE 1e-6

static ru_status bad(ru_err *err, uint32_t buffer, const char *what, double is, double want)
{
    return RU_FAIL(err, RU_E_INFEASIBLE, "buffer %u: %s is %.9g, expected %.9g", buffer, what, is,
                   want);
}

static bool near(double a, double b)
{
    return a == b ||
           (isfinite(a - b) && fabs(a - b) <= TOLERANCE * fmax(1e-9, fmax(fabs(a), fabs(b))));
}

static double power(double x, uint32_t n)
{
    double y = 1;
    for (uint32_t i = 0; i < n; i++) {
        y *= x;
    }
    return y;
}

static double service_of(const ru_route_in *in, const ru_route_buffer *b, uint32_t k, uint32_t n)
{
    return in->service_s[((size_t)b->memory * in->n_classes + k) * in->batch_max + n - 1];
}

/* Every class reaches buffers, whole where the method never splits one, and the methods route as
 * their names say. */
static ru_status check_table(const ru_route_in *in, const ru_route_plan *p, ru_err *err)
{
    if (p->n < 1 || (in->buffers > 0 && p->n > in->buffers) ||
        (in->buffers == 0 && p->n > in->buffers_max && in->method != RU_ROUTE_SINGLE &&
         in->method != RU_ROUTE_NONE)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u buffers are none or too many", p->n);
    }
    bool whole = in->method == RU_ROUTE_WIDTH || in->method == RU_ROUTE_SINGLE ||
                 in->method == RU_ROUTE_NONE;
    for (uint32_t k = 0; k < in->n_classes; k++) {
        double sum = 0;
        for (uint32_t i = 0; i < p->n; i++) {
            double x = p->share[(size_t)i * in->n_classes + k];
            if (!(x >= 0) || (whole && x > 0 && !near(x, in->share[k]))) {
                return bad(err, i, "the share of a class", x, in->share[k]);
            }
            sum += x;
        }
        if (!near(sum, in->share[k])) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "class %u: %.9g of the requests are routed, "
                           "expected %.9g",
                           k, sum, in->share[k]);
        }
    }
    uint32_t last = 0; /* buffers by size: no class below one of an earlier buffer */
    for (uint32_t i = 0; in->method != RU_ROUTE_RANDOM && i < p->n; i++) {
        uint32_t top = last;
        for (uint32_t k = 0; k < in->n_classes; k++) {
            if (p->share[(size_t)i * in->n_classes + k] > 0) {
                if (k < last) {
                    return RU_FAIL(err, RU_E_INFEASIBLE,
                                   "buffer %u takes class %u, below those "
                                   "of an earlier one",
                                   i, k);
                }
                top = k;
            }
        }
        last = top;
    }
    return RU_OK;
}

static ru_status check_choice(const ru_route_in *in, uint32_t i, const ru_route_buffer *b,
                              ru_err *err)
{
    double steps = b->timeout_s / in->timeout_step_s;
    bool on_grid = b->batch == 1 ? b->timeout_s == 0
                                 : b->timeout_s > 0 && near(steps, floor(steps + 0.5)) &&
                                       b->timeout_s <= in->timeout_max_s * (1 + TOLERANCE);
    if (b->memory >= in->n_memory || b->batch < 1 || b->batch > in->batch_max || !on_grid ||
        (in->method == RU_ROUTE_NONE && b->batch != 1)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "buffer %u: memory %u, batch %u, timeout %g s is not in the grid", i,
                       b->memory, b->batch, b->timeout_s);
    }
    return RU_OK;
}

/* Part of requests within x per unit of size, or each within x, if all of them waited `wait`. */
static double kept(const ru_route_in *in, const ru_route_buffer *b, const double *share, double x,
                   double wait)
{
    double all = 0;
    for (uint32_t n = 1; n <= b->batch; n++) {
        double below = 0; /* part of requests of classes up to the one at hand */
        for (uint32_t j = 0; j < in->n_classes; j++) {
            double smaller = below, served = 0; /* of classes below j, part served in time */
            below += share[j] / b->share;
            for (uint32_t k = 0; k <= j; k++) {
                bool in_time =
                    service_of(in, b, j, n) + wait <= (in->per_request ? x : x * in->size[k]);
                double with = power(below, n - 1) - (k < j ? power(smaller, n - 1) : 0);
                served += in_time ? share[k] / b->share * with : 0;
            }
            all += n * b->size_p[n] * served;
        }
    }
    return all / b->mean_batch;
}

typedef struct sums {
    double p, mean, usd, busy, size, largest, share;
} sums;

static sums sums_of(const ru_route_in *in, const ru_route_buffer *b, const double *share)
{
    sums s = {0};
    for (uint32_t k = 0; k < in->n_classes; k++) {
        s.share += share[k];
        s.size += share[k] * in->size[k];
    }
    s.size /= s.share;
    for (uint32_t n = 1; n <= b->batch; n++) {
        s.p += b->size_p[n];
        s.mean += n * b->size_p[n];
        double below = 0;
        for (uint32_t k = 0; k < in->n_classes; k++) {
            double before = below;
            below += share[k] / s.share;
            double w = b->size_p[n] * (power(below, n) - power(before, n));
            s.usd += w * ru_route_call_usd(in, b->memory, k, n);
            s.busy += w * service_of(in, b, k, n);
            s.largest += w * n * in->size[k];
        }
    }
    return s;
}

static ru_status check_buffer(const ru_route_in *in, double rate, uint32_t i,
                              const ru_route_plan *p, ru_err *err)
{
    const ru_route_buffer *b = &p->buffers[i];
    const double *share = p->share + (size_t)i * in->n_classes;
    RU_TRY(check_choice(in, i, b, err));
    for (uint32_t n = 1; n <= b->batch; n++) {
        if (!(b->size_p[n] >= 0)) {
            return bad(err, i, "the probability of a size", b->size_p[n], 0);
        }
    }
    sums s = sums_of(in, b, share);
    const struct {
        const char *what;
        double is, want;
    } all[] = {
        {"the share of requests", b->share, s.share},
        {"the sum of the probabilities of sizes", s.p, 1},
        {"the mean batch", b->mean_batch, s.mean},
        {"the cost of a request", b->usd_per_request, s.usd / s.mean},
        {"the mean number of instances", b->instances, rate * s.share * s.busy / s.mean},
        {"the padding", 1 + b->padding, s.largest / (s.mean * s.size)},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(all); k++) {
        if (!near(all[k].is, all[k].want)) {
            return bad(err, i, all[k].what, all[k].is, all[k].want);
        }
    }
    double low = kept(in, b, share, in->slo_s, b->timeout_s),
           high = kept(in, b, share, in->slo_s, 0);
    if (!(b->met >= low - TOLERANCE && b->met <= high + TOLERANCE)) {
        return bad(err, i, "the part within slo_s", b->met, low);
    }
    if (!(b->met >= in->quantile - TOLERANCE) || !(b->least_met <= b->met + TOLERANCE) ||
        !(b->least_met >= (in->by_class ? in->quantile - TOLERANCE : 0))) {
        return bad(err, i, "the part within slo_s", in->by_class ? b->least_met : b->met,
                   in->quantile);
    }
    bool late = kept(in, b, share, b->latency_s * (1 + TOLERANCE), 0) < in->quantile - TOLERANCE;
    bool early =
        kept(in, b, share, b->latency_s * (1 - TOLERANCE), b->timeout_s) > in->quantile + TOLERANCE;
    if (late || early || b->latency_s > in->slo_s * (1 + TOLERANCE)) {
        return bad(err, i, in->per_request ? "the latency" : "the latency per unit of size",
                   b->latency_s, in->slo_s);
    }
    return RU_OK;
}

ru_status ru_plan_route_check(const ru_route_in *in, const ru_route_plan *p, ru_err *err)
{
    ru_markov_law law;
    RU_TRY(ru_markov_solve(&in->arrivals, &law, err));
    RU_TRY(check_table(in, p, err));
    double usd = 0, instances = 0, met = 0, real = 0, padded = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        RU_TRY(check_buffer(in, law.rate, i, p, err));
        const ru_route_buffer *b = &p->buffers[i];
        usd += b->share * b->usd_per_request;
        instances += b->instances;
        met += b->share * b->met;
        for (uint32_t k = 0; k < in->n_classes; k++) {
            double size = p->share[(size_t)i * in->n_classes + k] * in->size[k];
            real += size;
            padded += size * (1 + b->padding);
        }
    }
    bool agree = near(usd, p->usd_per_request) && near(instances, p->instances) &&
                 near(met, p->met) && near(padded / real, 1 + p->padding);
    if (!agree) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "cost, instances, part in time or padding of the plan "
                       "is not the sum over its buffers");
    }
    if (p->instances > in->instances_max * (1 + TOLERANCE)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%.9g instances, more than %g", p->instances,
                       in->instances_max);
    }
    return RU_OK;
}
