/* Baselines of `scale`: what others measure next, and what they run in the end. */
#include <math.h>
#include <stddef.h>

#include "cost/math/norm.h"
#include "plan/fleet/scale_impl.h"

static const double kappa = 5, stop_gain = 0.05, breaks = -1e9;

static void place(const ru_scale_in *in, rui_scale_choice c, double *x)
{
    double m0 = in->memory_mb[0], m1 = in->memory_mb[in->n_memory - 1];
    x[0] = in->workers_max > in->workers_min
               ? (double)(c.workers - in->workers_min) / (in->workers_max - in->workers_min)
               : 0;
    x[1] = m1 > m0 ? (c.memory_mb - m0) / (m1 - m0) : 0;
}

static bool run_of(const ru_scale_in *in, const ru_scale_probe *p, ru_function_run *run)
{
    const ru_function_rules rules = ru_scale_rules(in, p->memory_mb);
    return !p->failed &&
           ru_function_run_of(&rules, p->workers, p->memory_mb, in->steps, p->step_s, run);
}

static bool in_grid(const ru_scale_in *in, const ru_scale_probe *p)
{
    for (uint32_t m = 0; m < in->n_memory; m++) {
        if (in->memory_mb[m] == p->memory_mb) {
            return p->workers >= in->workers_min && p->workers <= in->workers_max &&
                   (p->workers - in->workers_min) % in->workers_step == 0;
        }
    }
    return false;
}

/* The best measured choice of the grid; of those that break a limit the one that is over by least.
 */
static uint32_t best_of(const ru_scale_in *in, double *value)
{
    uint32_t best = UINT32_MAX;
    double least = (double)INFINITY, over_least = (double)INFINITY;
    for (uint32_t i = 0; i < in->n_probes; i++) {
        ru_function_run run;
        if (!in_grid(in, &in->probe[i]) || !run_of(in, &in->probe[i], &run)) {
            continue;
        }
        double over = fmax(in->limit_s > 0 ? run.seconds / in->limit_s : 0,
                           in->limit_usd > 0 ? run.usd / in->limit_usd : 0);
        over = fmax(over, 1);
        double v = rui_scale_value(in, &run);
        if (over < over_least || (over <= over_least && v < least)) {
            best = i;
            least = v;
            over_least = over;
        }
    }
    *value = over_least > 1 ? (double)INFINITY : least;
    return best;
}

typedef struct rival {
    ru_gp goal, seconds, usd; /* value; ln of both figures */
    const ru_gp *limits[2];
    double limit[2];
    uint32_t n_limits;
} rival;

static ru_status learn(const ru_scale_in *in, rival *r, ru_arena *scratch, ru_err *err)
{
    RU_TRY(ru_gp_init(&r->goal, 2, in->n_probes, scratch, err));
    RU_TRY(ru_gp_init(&r->seconds, 2, in->n_probes, scratch, err));
    RU_TRY(ru_gp_init(&r->usd, 2, in->n_probes, scratch, err));
    bool bound = in->method == RU_SCALE_UCB || in->method == RU_SCALE_PENALTY;
    for (uint32_t i = 0; i < in->n_probes; i++) {
        const ru_scale_probe *p = &in->probe[i];
        ru_function_run run;
        double x[2];
        place(in, (rui_scale_choice){p->workers, p->memory_mb}, x);
        if (!run_of(in, p, &run)) {
            continue;
        }
        double v = rui_scale_value(in, &run);
        v = bound ? 1 / v : v;
        v = in->method == RU_SCALE_PENALTY && !rui_scale_keeps(in, &run) ? breaks : v;
        RU_TRY(ru_gp_add(&r->goal, x, v, err));
        RU_TRY(ru_gp_add(&r->seconds, x, ru_num_log(run.seconds), err));
        RU_TRY(ru_gp_add(&r->usd, x, ru_num_log(run.usd), err));
    }
    ru_gp_fit_options opt = {.seed = in->seed};
    RU_TRY(ru_gp_fit(&r->goal, &opt, scratch, err));
    RU_TRY(ru_gp_fit(&r->seconds, &opt, scratch, err));
    RU_TRY(ru_gp_fit(&r->usd, &opt, scratch, err));
    if (in->limit_s > 0) {
        r->limits[r->n_limits] = &r->seconds;
        r->limit[r->n_limits++] = ru_num_log(in->limit_s);
    }
    if (in->limit_usd > 0) {
        r->limits[r->n_limits] = &r->usd;
        r->limit[r->n_limits++] = ru_num_log(in->limit_usd);
    }
    return RU_OK;
}

static double score(const ru_scale_in *in, const rival *r, rui_scale_choice c, double best)
{
    double x[2], mean, variance;
    place(in, c, x);
    if (in->method == RU_SCALE_UCB || in->method == RU_SCALE_PENALTY) {
        ru_gp_predict(&r->goal, x, &mean, &variance);
        return mean + kappa * sqrt(variance);
    }
    double v =
        ru_expected_improvement_constrained(&r->goal, best, r->limits, r->limit, r->n_limits, x);
    if (in->method == RU_SCALE_HETER) {
        ru_function_run probe;
        ru_gp_predict(&r->seconds, x, &mean, &variance);
        double step = ru_num_exp(fmin(mean, 25)) / in->steps;
        const ru_function_rules rules = ru_scale_rules(in, c.memory_mb);
        bool fits =
            ru_function_run_of(&rules, c.workers, c.memory_mb, in->probe_steps, step, &probe);
        v = fits ? v / fmax(rui_scale_value(in, &probe), 1e-12) : 0;
    }
    return v;
}

/* UINT32_MAX: nothing is worth it. */
static uint32_t next_of(const ru_scale_in *in, const rival *r, double best)
{
    double most = -(double)INFINITY, gain = 0, x[2];
    uint32_t at = UINT32_MAX, n = rui_scale_choices(in);
    for (uint32_t k = 0; k < n; k++) {
        rui_scale_choice c = rui_scale_at(in, k);
        if (rui_scale_failed(in, c)) {
            continue;
        }
        double v = score(in, r, c, best);
        if (v > most * (1 + (most > 0 ? 1e-12 : -1e-12)) || at == UINT32_MAX) {
            most = v;
            at = k;
        }
    }
    bool expects = in->method == RU_SCALE_PRODUCT || in->method == RU_SCALE_HETER;
    if (expects && at != UINT32_MAX && isfinite(best)) {
        place(in, rui_scale_at(in, at), x);
        gain = ru_expected_improvement_constrained(&r->goal, best, r->limits, r->limit, r->n_limits,
                                                   x);
        at = gain < stop_gain * best && in->n_probes >= 4 ? UINT32_MAX : at;
    }
    return at;
}

static ru_status run_best(const ru_scale_in *in, uint32_t best, ru_scale_plan *plan, ru_err *err)
{
    if (best == UINT32_MAX) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "no choice of the grid was measured");
    }
    const ru_scale_probe *p = &in->probe[best];
    rui_scale_figures(in, (rui_scale_choice){p->workers, p->memory_mb}, ru_num_log(p->step_s),
                      in->noise, plan);
    return RU_OK;
}

static ru_status fixed(const ru_scale_in *in, ru_scale_plan *plan)
{
    uint32_t w = (in->workers_max - in->workers_min) / in->workers_step / 2;
    rui_scale_choice c = rui_scale_at(in, w * in->n_memory + in->n_memory / 2);
    if (in->now_workers > 0) {
        c = (rui_scale_choice){in->now_workers, in->now_memory_mb};
    }
    plan->blind = true;
    plan->workers = c.workers;
    plan->memory_mb = c.memory_mb;
    for (uint32_t i = 0; i < in->n_probes; i++) {
        const ru_scale_probe *p = &in->probe[i];
        if (p->workers == c.workers && p->memory_mb == c.memory_mb && !p->failed) {
            plan->blind = false;
            rui_scale_figures(in, c, ru_num_log(p->step_s), in->noise, plan);
        }
    }
    return RU_OK;
}

ru_status rui_scale_rival(const ru_scale_in *in, ru_arena *scratch, ru_scale_plan *plan,
                          ru_err *err)
{
    if (in->method == RU_SCALE_FIXED) {
        return fixed(in, plan);
    }
    double value;
    uint32_t best = best_of(in, &value), measured = 0;
    if (rui_scale_probed(in) >= in->probes_max) {
        return run_best(in, best, plan, err);
    }
    for (uint32_t i = 0; i < in->n_probes; i++) {
        ru_function_run run;
        measured += run_of(in, &in->probe[i], &run) ? 1 : 0;
    }
    rui_scale_choice c;
    RU_TRY(rui_scale_start(in, in->n_probes, false, &c, err));
    plan->blind = true;
    if (measured >= 2 && in->method != RU_SCALE_RANDOM) {
        rival r = {0};
        RU_TRY(learn(in, &r, scratch, err));
        uint32_t at = next_of(in, &r, value);
        if (at == UINT32_MAX) {
            plan->blind = false;
            return run_best(in, best, plan, err);
        }
        double x[2], mean, variance;
        c = rui_scale_at(in, at);
        place(in, c, x);
        ru_gp_predict(&r.seconds, x, &mean, &variance);
        plan->blind = false;
        rui_scale_figures(in, c, mean - ru_num_log(in->steps), sqrt(variance), plan);
    }
    plan->probe = true;
    plan->workers = c.workers;
    plan->memory_mb = c.memory_mb;
    return RU_OK;
}
