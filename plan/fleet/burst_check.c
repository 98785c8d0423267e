/* The checker of burst plans: flows and bounds of queues that hold whatever the planner computed.
 */
#include <math.h>

#include "plan/fleet/burst.h"

#define TOLERANCE 1e-9

static ru_status bad(ru_err *err, const char *what, double is, double want)
{
    return RU_FAIL(err, RU_E_INFEASIBLE, "%s is %.12g, expected %.12g", what, is, want);
}

static bool near(double a, double b)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= TOLERANCE * fmax(fabs(a), fabs(b)));
}

static double full_empty_s(const ru_burst_in *in, ru_burst_plan *full)
{
    const double one[RU_BURST_RESOURCES_MAX] = {1, 1, 1};
    double x[RU_BURST_FEATURES_MAX], least = INFINITY;
    ru_queue_mean mean;
    if (!ru_burst_features(in->resource, in->n, &in->load, one, x, &mean)) {
        return 0;
    }
    *full = (ru_burst_plan){.rate = mean.rate};
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_burst_resource *r = &in->resource[i];
        double net = fmin(mean.rate * r->need, r->rules.burst) - r->rules.earn;
        full->spend += mean.rate * r->need / r->rules.cap;
        if (net > 1e-12 * r->rules.earn) {
            least = fmin(least, (r->now.earned + r->now.launch) / net);
        }
    }
    return least;
}

static ru_status check_speed(const ru_burst_in *in, uint32_t i, double speed, ru_err *err)
{
    bool fixed = in->method == RU_BURST_NONE || (in->method == RU_BURST_FIRST && i > 0);
    double want = fixed ? 1 : 0.5;
    if (fixed || in->method == RU_BURST_HALF) {
        return speed == want ? RU_OK : bad(err, "a fixed speed", speed, want);
    }
    double steps = in->speeds < 2 ? 0 : (1 - speed) / (1 - in->speed_min) * (in->speeds - 1);
    bool half = in->method == RU_BURST_MODEL && speed == 0.5;
    bool on_grid = fabs(steps - floor(steps + 0.5)) < 1e-6 || half;
    if (!(speed >= in->speed_min - TOLERANCE && speed <= 1) || !on_grid ||
        (in->speeds < 2 && speed != 1)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "a speed of %g is not in the grid from %g to 1", speed,
                       in->speed_min);
    }
    return RU_OK;
}

static ru_status check_flows(const ru_burst_in *in, const ru_burst_plan *p, ru_err *err)
{
    double spend = 0, service = 0;
    if (p->n != in->n) {
        return bad(err, "the number of resources", p->n, in->n);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_burst_resource *r = &in->resource[i];
        RU_TRY(check_speed(in, i, p->speed[i], err));
        if (!near(p->use[i], p->rate * r->need)) {
            return bad(err, "the use of a resource", p->use[i], p->rate * r->need);
        }
        if (p->use[i] > p->speed[i] * r->rules.burst * (1 + TOLERANCE)) {
            return bad(err, "the use of a resource", p->use[i], p->speed[i] * r->rules.burst);
        }
        double net = p->use[i] - r->rules.earn;
        double empty =
            net > 1e-12 * r->rules.earn ? (r->now.earned + r->now.launch) / net : (double)INFINITY;
        if (!near(p->empty_s[i], empty)) {
            return bad(err, "the time to empty", p->empty_s[i], empty);
        }
        spend += p->use[i] / r->rules.cap;
        service += r->need * r->servers / (p->speed[i] * r->rules.burst);
    }
    if (!near(p->spend, spend)) {
        return bad(err, "the spend", p->spend, spend);
    }
    if (in->load.open && p->rate != in->load.rate) {
        return bad(err, "the rate", p->rate, in->load.rate);
    }
    double most = in->load.clients / (in->load.think_s + service);
    double least = in->load.clients / (in->load.think_s + in->load.clients * service);
    if (!in->load.open &&
        !(p->rate <= most * (1 + TOLERANCE) && p->rate >= least * (1 - TOLERANCE))) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the rate %g is outside %g to %g", p->rate, least,
                       most);
    }
    return RU_OK;
}

static ru_status check_figures(const ru_burst_in *in, const ru_burst_plan *p, ru_err *err)
{
    double x[RU_BURST_FEATURES_MAX], latency = 0;
    ru_queue_mean mean;
    if (!ru_burst_features(in->resource, in->n, &in->load, p->speed, x, &mean)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "these speeds do not serve the load");
    }
    for (uint32_t i = ru_burst_features_n(in->n); i-- > 0;) {
        latency += in->model[i] * x[i];
    }
    if (!near(p->rate, mean.rate)) {
        return bad(err, "the rate", p->rate, mean.rate);
    }
    return near(p->latency_s, latency) ? RU_OK : bad(err, "the latency", p->latency_s, latency);
}

static ru_status check_action(const ru_burst_in *in, const ru_burst_plan *p, ru_err *err)
{
    ru_burst_plan full = {0};
    double without = full_empty_s(in, &full), with = INFINITY;
    bool throttled = false;
    for (uint32_t i = 0; i < in->n; i++) {
        with = fmin(with, p->empty_s[i]);
        throttled = throttled || p->speed[i] < 1;
    }
    double stretch = isinf(without) || without <= 0 ? 1 : with / without;
    if (!near(p->stretch, stretch)) {
        return bad(err, "the stretch", p->stretch, stretch);
    }
    if (in->method == RU_BURST_NONE || in->method == RU_BURST_HALF) {
        bool same =
            p->action == (in->method == RU_BURST_NONE ? RU_BURST_STAND_DOWN : RU_BURST_THROTTLE);
        return same ? RU_OK
                    : RU_FAIL(err, RU_E_INFEASIBLE, "the action does not follow from the method");
    }
    bool keeps = p->latency_s <= (1 - in->margin) * in->slo_s;
    bool saves = p->spend <= (1 - in->gain_min) * full.spend;
    bool right = p->action == RU_BURST_THROTTLE     ? throttled && saves && with >= in->reserve_s
                 : p->action == RU_BURST_STAND_DOWN ? !throttled && with >= in->reserve_s
                 : p->action == RU_BURST_SWITCH     ? !keeps || with < in->reserve_s
                                                    : false;
    if (!right) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the action %d does not fit speeds and figures",
                       (int)p->action);
    }
    if (p->action != RU_BURST_SWITCH && !keeps) {
        return bad(err, "the latency", p->latency_s, (1 - in->margin) * in->slo_s);
    }
    return RU_OK;
}

ru_status ru_plan_burst_check(const ru_burst_in *in, const ru_burst_plan *p, ru_err *err)
{
    RU_TRY(check_flows(in, p, err));
    RU_TRY(check_figures(in, p, err));
    return check_action(in, p, err);
}
