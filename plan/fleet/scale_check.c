/* The checker of scale plans: the grid, sums, and figures that follow from the step time. */
#include <math.h>

#include "cost/math/norm.h"
#include "plan/fleet/scale.h"

static bool near(double a, double b)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)));
}

static ru_status check_choice(const ru_scale_in *in, const ru_scale_plan *p, ru_err *err)
{
    bool memory = false;
    for (uint32_t m = 0; m < in->n_memory; m++) {
        memory = memory || in->memory_mb[m] == p->memory_mb;
    }
    bool workers = p->workers >= in->workers_min && p->workers <= in->workers_max &&
                   (p->workers - in->workers_min) % in->workers_step == 0;
    bool kept = in->method == RU_SCALE_FIXED && p->workers == in->now_workers &&
                p->memory_mb == in->now_memory_mb;
    if (!kept && (!memory || !workers)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u workers with %g MB are not in the grid",
                       p->workers, p->memory_mb);
    }
    for (uint32_t i = 0; i < in->n_probes && in->method == RU_SCALE_JOINT; i++) {
        const ru_scale_probe *q = &in->probe[i];
        if (q->failed && q->memory_mb >= p->memory_mb && q->workers >= p->workers) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "%u workers with %g MB run out of memory: %u with %g MB did", p->workers,
                           p->memory_mb, q->workers, q->memory_mb);
        }
    }
    return RU_OK;
}

static bool run_of(const ru_scale_in *in, double workers, double memory_mb, double steps,
                   double step_s, ru_function_run *run)
{
    const ru_function_rules r = ru_scale_rules(in, memory_mb);
    return ru_function_run_of(&r, workers, memory_mb, steps, step_s, run);
}

static bool keeps(const ru_scale_in *in, const ru_scale_plan *p, double step_s)
{
    ru_function_run run;
    return run_of(in, p->workers, p->memory_mb, in->steps, step_s, &run) &&
           !(in->limit_s > 0 && run.seconds > in->limit_s) &&
           !(in->limit_usd > 0 && run.usd > in->limit_usd);
}

/* The chance that the step time stays below the largest one that keeps the limits. */
static double chance(const ru_scale_in *in, const ru_scale_plan *p)
{
    double low = p->step_s * ru_num_exp(-9 * p->spread);
    double high = p->step_s * ru_num_exp(9 * p->spread);
    if (!keeps(in, p, low)) {
        return 0;
    }
    for (uint32_t i = 0; i < 80 && !keeps(in, p, high); i++) {
        double middle = sqrt(low) * sqrt(high);
        if (keeps(in, p, middle)) {
            low = middle;
        } else {
            high = middle;
        }
        if (high <= low * (1 + 1e-15)) {
            break;
        }
    }
    double most = keeps(in, p, high) ? high : low;
    return p->spread > 0 ? ru_norm_cdf(ru_num_log(most / p->step_s) / p->spread) : 1;
}

static ru_status check_figures(const ru_scale_in *in, const ru_scale_plan *p, ru_err *err)
{
    if (p->blind) {
        bool none = p->step_s == 0 && p->spread == 0 && p->seconds == 0 && p->usd == 0 &&
                    p->met == 0 && p->gain == 0;
        return none ? RU_OK
                    : RU_FAIL(err, RU_E_INFEASIBLE,
                              "the plan has figures of a choice that was never measured");
    }
    if (!(p->step_s > 0) || !(p->spread >= 0) || !(p->gain >= 0) || (!p->probe && p->gain != 0)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "a step of %g s, spread %g, gain %g", p->step_s,
                       p->spread, p->gain);
    }
    ru_function_run run = {.seconds = (double)INFINITY, .usd = (double)INFINITY};
    (void)(run_of(in, p->workers, p->memory_mb, in->steps, p->step_s, &run) ||
           (run.seconds = run.usd = (double)INFINITY) > 0);
    if (!near(run.seconds, p->seconds) || !near(run.usd, p->usd)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%g s and %g USD, expected %g s and %g USD",
                       p->seconds, p->usd, run.seconds, run.usd);
    }
    double met = chance(in, p);
    if (!(fabs(met - p->met) <= 1e-4)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "limits are kept with probability %g, expected %g",
                       p->met, met);
    }
    return RU_OK;
}

static ru_status check_probe(const ru_scale_in *in, const ru_scale_plan *p, ru_err *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n_probes; i++) {
        n += in->probe[i].run ? 0 : 1;
    }
    if (!p->drifted && n >= in->probes_max) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "measurement %u of at most %u", n + 1, in->probes_max);
    }
    ru_function_run run;
    if (p->gain > 0 && in->limit_usd > 0 &&
        (!run_of(in, p->workers, p->memory_mb, in->probe_steps, p->step_s, &run) ||
         p->probed_usd + run.usd > in->probing_max * in->limit_usd * (1 + 1e-9))) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "measuring costs more than %g of the money",
                       in->probing_max);
    }
    return RU_OK;
}

ru_status ru_plan_scale_check(const ru_scale_in *in, const ru_scale_plan *p, ru_err *err)
{
    RU_TRY(check_choice(in, p, err));
    RU_TRY(check_figures(in, p, err));
    double usd = 0;
    for (uint32_t i = 0; i < in->n_probes; i++) {
        const ru_scale_probe *q = &in->probe[i];
        ru_function_run run;
        double steps = q->failed ? 0 : in->probe_steps, step_s = q->failed ? 1e-9 : q->step_s;
        usd += !q->run && run_of(in, q->workers, q->memory_mb, steps, step_s, &run) ? run.usd : 0;
    }
    if (!near(usd, p->probed_usd)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "measuring cost %g USD, expected %g", p->probed_usd,
                       usd);
    }
    if (p->drifted && in->n_probes < 4) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "drift of %u measurements, at least four show one",
                       in->n_probes);
    }
    if (p->probe) {
        return check_probe(in, p, err);
    }
    if (in->method == RU_SCALE_JOINT && !(p->met >= 0.5)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the limits are kept with probability %g only",
                       p->met);
    }
    return RU_OK;
}
