#include "plan/fleet/burst.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/quantile.h"

uint32_t ru_burst_features_n(uint32_t n)
{
    return 1 + 3 * n;
}

bool ru_burst_features(const ru_burst_resource *r, uint32_t n, const ru_burst_load *load,
                       const double *speed, double *x, ru_queue_mean *mean)
{
    ru_station s[RU_BURST_RESOURCES_MAX];
    for (uint32_t i = 0; i < n; i++) {
        s[i] = (ru_station){r[i].need * r[i].servers / (speed[i] * r[i].rules.burst), r[i].servers};
    }
    if (!load->open) {
        *mean = ru_queue_closed(s, n, load->clients, load->think_s);
    } else if (!ru_queue_open(s, n, load->rate, mean)) {
        return false;
    }
    x[0] = 1;
    for (uint32_t i = 0; i < n; i++) {
        double wait = fmax(0, mean->time_s[i] - s[i].service_s);
        x[1 + 3 * i] = s[i].service_s;
        x[2 + 3 * i] = wait;
        x[3 + 3 * i] = sqrt(wait * s[i].service_s);
    }
    return true;
}

static double largest(const double *a, uint32_t m, uint32_t n, uint32_t column)
{
    double most = 0;
    for (uint32_t i = 0; i < m; i++) {
        most = fmax(most, fabs(a[i * n + column]));
    }
    return most > 0 ? most : 1;
}

/* The rows of the regression. Errors count relative to the mean latency that the queue predicts,
 * so that long ones do not outweigh the rest. */
static ru_status rows_of(const ru_burst_resource *r, uint32_t n, const ru_burst_load *load,
                         const ru_burst_sample *samples, uint32_t m, double *a, double *b,
                         double *weight, ru_err *err)
{
    uint32_t width = ru_burst_features_n(n);
    for (uint32_t i = 0; i < m; i++) {
        ru_burst_load at = *load;
        at.rate = samples[i].load;
        at.clients = (uint32_t)fmax(1, samples[i].load + 0.5);
        ru_queue_mean mean;
        if (!ru_burst_features(r, n, &at, samples[i].speed, &a[i * width], &mean)) {
            return RU_FAIL(err, RU_E_ARG,
                           "sample %u of the profile: its speeds cannot serve %g requests per "
                           "second; measure below the capacity",
                           i, samples[i].load);
        }
        double scale = 0;
        for (uint32_t k = 0; k < n; k++) {
            scale += mean.time_s[k];
        }
        b[i] = samples[i].latency_s;
        weight[i] = 1 / scale;
    }
    return RU_OK;
}

/* Coefficients of speed and load come only from profiles in which they differ. */
static bool tells_apart(const ru_burst_sample *samples, uint32_t m, uint32_t n)
{
    bool loads = false, speeds[RU_BURST_RESOURCES_MAX] = {false};
    for (uint32_t i = 1; i < m; i++) {
        loads = loads || samples[i].load != samples[0].load;
        for (uint32_t k = 0; k < n; k++) {
            speeds[k] = speeds[k] || samples[i].speed[k] != samples[0].speed[k];
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        loads = loads && speeds[k];
    }
    return loads;
}

ru_status ru_burst_fit(const ru_burst_resource *r, uint32_t n, const ru_burst_load *load,
                       const ru_burst_sample *samples, uint32_t m, double quantile, ru_arena *out,
                       ru_arena *scratch, const double **model, ru_err *err)
{
    uint32_t width = ru_burst_features_n(n);
    double *a = RU_NEW(scratch, double, (int64_t)m *width), *b = RU_NEW(scratch, double, m);
    double *weight = RU_NEW(scratch, double, m), *x = RU_NEW(out, double, width);
    if (a == NULL || b == NULL || weight == NULL || x == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a profile of %u samples", m);
    }
    if (!tells_apart(samples, m, n)) {
        return RU_FAIL(err, RU_E_ARG,
                       "the profile has only one load, or only one speed of a resource; measure at "
                       "least 3 loads at 3 speeds of each resource");
    }
    RU_TRY(rows_of(r, n, load, samples, m, a, b, weight, err));
    double scale[RU_BURST_FEATURES_MAX];
    bool nonneg[RU_BURST_FEATURES_MAX];
    for (uint32_t c = 0; c < width; c++) {
        scale[c] = largest(a, m, width, c);
        nonneg[c] = true;
        for (uint32_t i = 0; i < m; i++) {
            a[i * width + c] /= scale[c];
        }
    }
    const ru_quantile_regress_in q = {
        .a = a, .b = b, .weight = weight, .m = m, .n = width, .q = quantile, .nonneg = nonneg};
    ru_quantile_fit fit;
    RU_TRY(ru_quantile_regress(&q, scratch, scratch, &fit, err));
    for (uint32_t c = 0; c < width; c++) {
        x[c] = fit.x[c] / scale[c];
    }
    *model = x;
    return RU_OK;
}

/* All figures of given speeds; false: not served. */
static bool figures(const ru_burst_in *in, const double *speed, ru_burst_plan *p)
{
    double x[RU_BURST_FEATURES_MAX];
    ru_queue_mean mean;
    if (!ru_burst_features(in->resource, in->n, &in->load, speed, x, &mean)) {
        return false;
    }
    *p = (ru_burst_plan){.rate = mean.rate, .n = in->n};
    for (uint32_t i = 0; i < ru_burst_features_n(in->n); i++) {
        p->latency_s += in->model[i] * x[i];
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_burst_resource *r = &in->resource[i];
        p->speed[i] = speed[i];
        p->use[i] = mean.rate * r->need;
        p->empty_s[i] = ru_credit_empty_s(&r->rules, &r->now, p->use[i]);
        p->spend += p->use[i] / r->rules.cap;
    }
    return true;
}

static double first_empty_s(const ru_burst_in *in, const ru_burst_plan *p)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < in->n; i++) {
        least = fmin(least, p->empty_s[i]);
    }
    return least;
}

/* Spends that are compared are whole numbers: equal on every machine. */
static int64_t rounded(double spend)
{
    return (int64_t)floor(fmin(spend, 1e6) * 1e12 + 0.5);
}

static const double half[RU_BURST_RESOURCES_MAX] = {0.5, 0.5, 0.5};

/* The least spend that keeps the objective; false: no point of the grid does. */
static bool search(const ru_burst_in *in, ru_burst_plan *best)
{
    uint32_t free = in->method == RU_BURST_FIRST ? 1 : in->n, points = 1;
    for (uint32_t i = 0; i < free; i++) {
        points *= in->speeds;
    }
    bool found = false;
    for (uint32_t k = 0; k < points; k++) {
        double speed[RU_BURST_RESOURCES_MAX];
        uint32_t left = k;
        for (uint32_t i = 0; i < in->n; i++) {
            /* The fastest first: it wins ties. */
            uint32_t step = i < free ? left % in->speeds : 0;
            left = i < free ? left / in->speeds : left;
            speed[i] = step == 0 ? 1 : 1 - (1 - in->speed_min) * step / (in->speeds - 1);
        }
        ru_burst_plan p;
        if (figures(in, speed, &p) && p.latency_s <= (1 - in->margin) * in->slo_s &&
            (!found || rounded(p.spend) < rounded(best->spend))) {
            *best = p;
            found = true;
        }
    }
    ru_burst_plan p; /* half speed may lie between the points of the grid */
    if (found && in->method == RU_BURST_MODEL && in->speeds > 1 && in->speed_min <= 0.5 &&
        figures(in, half, &p) && p.latency_s <= (1 - in->margin) * in->slo_s &&
        rounded(p.spend) < rounded(best->spend)) {
        *best = p;
    }
    return found;
}

static void decide(const ru_burst_in *in, const ru_burst_plan *full, ru_burst_plan *p)
{
    if (!search(in, p)) {
        *p = *full;
        p->action = RU_BURST_SWITCH;
        return;
    }
    bool throttled = false;
    for (uint32_t i = 0; i < in->n; i++) {
        throttled = throttled || p->speed[i] < 1;
    }
    bool saves = throttled && p->spend <= (1 - in->gain_min) * full->spend;
    if (isinf(first_empty_s(in, full)) || !saves) {
        *p = *full;
        p->action = RU_BURST_STAND_DOWN;
    } else {
        p->action = RU_BURST_THROTTLE;
    }
    if (first_empty_s(in, p) < in->reserve_s) {
        p->action = RU_BURST_SWITCH;
    }
}

ru_status ru_plan_burst(const ru_burst_in *in, ru_burst_plan *plan, ru_err *err)
{
    const double one[RU_BURST_RESOURCES_MAX] = {1, 1, 1};
    ru_burst_plan full, p;
    if (!figures(in, one, &full)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "this machine cannot serve %g requests per second at full speed; send some "
                       "of them to another machine",
                       in->load.rate);
    }
    if (in->method == RU_BURST_NONE) {
        p = full;
        p.action = RU_BURST_STAND_DOWN;
    } else if (in->method == RU_BURST_HALF) {
        if (!figures(in, half, &p)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "half speed cannot serve %g requests per second",
                           in->load.rate);
        }
        p.action = RU_BURST_THROTTLE;
    } else {
        decide(in, &full, &p);
    }
    double without = first_empty_s(in, &full), with = first_empty_s(in, &p);
    p.stretch = isinf(without) || without <= 0 ? 1 : with / without;
    *plan = p;
    return RU_OK;
}
