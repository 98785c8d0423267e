#include "plan/fleet/scale.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cost/math/lsq.h"
#include "cost/math/norm.h"
#include "plan/fleet/scale_impl.h"

/* Drift: so many measurements in a row, each so many deviations off, on one side; the process
 * itself errs by model_sd. */
enum { DRIFT_RUN = 3 };
static const double drift_sd = 2, model_sd = 0.1, signal_least = 0.3, expect_sd = 0.5;
static const double first_most = 0.4; /* of the time that all workers take for all steps */

typedef struct guess {
    double mid, sd; /* of ln(step time) */
} guess;

typedef struct search {
    const ru_scale_in *in;
    ru_gp gp;
    uint32_t n, best; /* choices; UINT32_MAX: none keeps the limits with enough confidence */
    uint32_t rescue;  /* what can take over; UINT32_MAX: nothing */
    guess *guess;     /* [n] */
    double best_value;
    double trend[3]; /* of workers and memory, never falling */
    double z;        /* quantile of the confidence */
    double probed_usd;
} search;

uint32_t rui_scale_choices(const ru_scale_in *in)
{
    return ((in->workers_max - in->workers_min) / in->workers_step + 1) * in->n_memory;
}

rui_scale_choice rui_scale_at(const ru_scale_in *in, uint32_t k)
{
    return (rui_scale_choice){in->workers_min + k / in->n_memory * in->workers_step,
                              in->memory_mb[k % in->n_memory]};
}

bool rui_scale_failed(const ru_scale_in *in, rui_scale_choice c)
{
    for (uint32_t i = 0; i < in->n_probes; i++) {
        const ru_scale_probe *p = &in->probe[i];
        if (p->failed && c.memory_mb <= p->memory_mb && c.workers <= p->workers) {
            return true;
        }
    }
    return false;
}

double rui_scale_value(const ru_scale_in *in, const ru_function_run *run)
{
    return !in->fastest ? run->usd : run->seconds;
}

bool rui_scale_keeps(const ru_scale_in *in, const ru_function_run *run)
{
    return (!(in->limit_s > 0) || run->seconds <= in->limit_s) &&
           (!(in->limit_usd > 0) || run->usd <= in->limit_usd);
}

/* Whole nano-units: what is compared. */
static int64_t whole(double v)
{
    return v >= 9e9 ? INT64_MAX : v > -9e9 ? (int64_t)floor(v * 1e9 + 0.5) : INT64_MIN;
}

static bool run_of(const ru_scale_in *in, double workers, double memory_mb, double steps,
                   double step_s, ru_function_run *run)
{
    const ru_function_rules r = ru_scale_rules(in, memory_mb);
    return ru_function_run_of(&r, workers, memory_mb, steps, step_s, run);
}

/* The run of `steps` with step times z deviations above their median. false: out of range. */
static bool run_at(const ru_scale_in *in, rui_scale_choice c, guess g, double z, double steps,
                   ru_function_run *run)
{
    double log_step = g.mid + z * g.sd;
    return log_step < 25 && run_of(in, c.workers, c.memory_mb, steps, ru_num_exp(log_step), run);
}

/* Probability that the limits are kept: the largest deviation with which they are, by bisection. */
static double met(const ru_scale_in *in, rui_scale_choice c, guess g)
{
    ru_function_run run;
    double low = -9, high = 9;
    if (!run_at(in, c, g, low, in->steps, &run) || !rui_scale_keeps(in, &run)) {
        return 0;
    }
    for (uint32_t i = 0; i < 40; i++) {
        double z = (low + high) / 2;
        bool keeps = run_at(in, c, g, z, in->steps, &run) && rui_scale_keeps(in, &run);
        low = keeps ? z : low;
        high = keeps ? high : z;
    }
    return ru_norm_cdf(low);
}

void rui_scale_figures(const ru_scale_in *in, rui_scale_choice c, double log_step, double spread,
                       ru_scale_plan *plan)
{
    guess g = {log_step, spread};
    ru_function_run run;
    plan->workers = c.workers;
    plan->memory_mb = c.memory_mb;
    plan->step_s = ru_num_exp(fmin(log_step, 25));
    plan->spread = spread;
    bool fits = run_at(in, c, g, 0, in->steps, &run);
    plan->seconds = fits ? run.seconds : (double)INFINITY;
    plan->usd = fits ? run.usd : (double)INFINITY;
    plan->met = met(in, c, g);
}

double rui_scale_probed_usd(const ru_scale_in *in)
{
    double usd = 0;
    for (uint32_t i = 0; i < in->n_probes; i++) {
        const ru_scale_probe *p = &in->probe[i];
        ru_function_run run;
        if (p->run) {
            continue;
        }
        /* What ran out of memory is billed for its start. */
        double steps = p->failed ? 0 : in->probe_steps, step_s = p->failed ? 1e-9 : p->step_s;
        if (run_of(in, p->workers, p->memory_mb, steps, step_s, &run)) {
            usd += run.usd;
        }
    }
    return usd;
}

ru_status rui_scale_start(const ru_scale_in *in, uint32_t k, bool halves, rui_scale_choice *out,
                          ru_err *err)
{
    ru_rng rng = ru_rng_from(in->seed, k);
    uint32_t n = rui_scale_choices(in);
    rui_scale_choice c = rui_scale_at(in, n - 1);
    for (uint32_t tries = 0; tries < 1000; tries++) {
        if (halves) {
            /* The middle half of either half, by logarithm; memory the other way round. */
            double u = 0.15 + 0.3 * ru_rng_f64(&rng) + 0.4 * (k % 2);
            double v = 0.15 + 0.3 * ru_rng_f64(&rng) + 0.4 * ((k + 1) % 2);
            double w = in->workers_min * ru_math_pow((double)in->workers_max / in->workers_min, u);
            uint32_t at = (uint32_t)((w - in->workers_min) / in->workers_step + 0.5);
            at = at < n / in->n_memory ? at : n / in->n_memory - 1;
            uint32_t m = (uint32_t)(v * in->n_memory);
            c = rui_scale_at(in, at * in->n_memory + m);
        } else {
            c = rui_scale_at(in, ru_rng_below(&rng, n));
        }
        if (!rui_scale_failed(in, c)) {
            break;
        }
    }
    for (uint32_t i = n; i-- > 0 && rui_scale_failed(in, c);) {
        c = rui_scale_at(in, i);
    }
    *out = c;
    return rui_scale_failed(in, c)
               ? RU_FAIL(err, RU_E_INFEASIBLE, "every choice of workers and memory has failed")
               : RU_OK;
}

uint32_t rui_scale_probed(const ru_scale_in *in)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n_probes; i++) {
        n += in->probe[i].run ? 0 : 1;
    }
    return n;
}

/* The first measurement where money counts: the fewest workers, as nothing costs less, with the
 * most memory that is one core at most, as that brings as much speed as it costs. Not so few that
 * measuring them takes more than first_most. */
static rui_scale_choice fewest(const ru_scale_in *in)
{
    double need = in->workers_max * in->probe_steps / in->steps / first_most - in->workers_min;
    uint32_t m = 0, steps = (in->workers_max - in->workers_min) / in->workers_step;
    steps = need > 0 ? (uint32_t)fmin(steps, ceil(need / in->workers_step)) : 0;
    while (m + 1 < in->n_memory && in->memory_mb[m + 1] <= in->core_mb) {
        m++;
    }
    return rui_scale_at(in, steps * in->n_memory + m);
}

/* ln(step workers share(memory)) = ln(step) + this. */
static double ideal(const ru_scale_in *in, double workers, double memory_mb)
{
    return ru_num_log(workers) + ru_num_log(memory_mb / in->core_mb);
}

static double unit(double v, double low, double high)
{
    return high > low ? ru_num_log(v / low) / ru_num_log(high / low) : 0;
}

static void row_of(const ru_scale_in *in, double workers, double memory_mb, double *row)
{
    row[0] = 1;
    row[1] = unit(workers, in->workers_min, in->workers_max);
    row[2] = unit(memory_mb, in->memory_mb[0], in->memory_mb[in->n_memory - 1]);
}

static guess guess_of(const search *s, rui_scale_choice c)
{
    double row[3], mean, variance;
    row_of(s->in, c.workers, c.memory_mb, row);
    ru_gp_predict(&s->gp, row + 1, &mean, &variance);
    mean += s->trend[0] + s->trend[1] * row[1] + s->trend[2] * row[2];
    return (guess){mean - ideal(s->in, c.workers, c.memory_mb), sqrt(variance)};
}

/* The given noise; few points that are alike by chance do not make it certain elsewhere. */
static ru_status fit(search *s, ru_arena *scratch, ru_err *err)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < s->gp.n; i++) {
        sum += s->gp.y[i] / s->gp.n;
    }
    for (uint32_t i = 0; i < s->gp.n; i++) {
        squares += (s->gp.y[i] - sum) * (s->gp.y[i] - sum) / s->gp.n;
    }
    double scale2 = squares > 0 ? squares : 1;
    ru_gp_fit_options opt = {.seed = s->in->seed,
                             .noise = fmax(1e-6, s->in->noise * s->in->noise / scale2)};
    RU_TRY(ru_gp_fit(&s->gp, &opt, scratch, err));
    double least = signal_least * signal_least / (s->gp.scale * s->gp.scale);
    if (s->gp.signal < least) {
        double length[2] = {s->gp.length[0], s->gp.length[1]};
        return ru_gp_set(&s->gp, length, least, s->gp.noise, err);
    }
    return RU_OK;
}

/* From measurements from..to-1. */
static ru_status learn(search *s, uint32_t from, uint32_t to, ru_arena *scratch, ru_err *err)
{
    const ru_scale_in *in = s->in;
    RU_TRY(ru_gp_init(&s->gp, 2, in->n_probes + 1, scratch, err));
    double *rows = RU_NEW(scratch, double, 3 * (int64_t)in->n_probes + 3);
    double *y = RU_NEW(scratch, double, (int64_t)in->n_probes + 1);
    if (rows == NULL || y == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u measurements", in->n_probes);
    }
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++) {
        const ru_scale_probe *p = &in->probe[i];
        if (!p->failed) {
            row_of(in, p->workers, p->memory_mb, rows + 3 * n);
            y[n++] = ru_num_log(p->step_s) + ideal(in, p->workers, p->memory_mb);
        }
    }
    if (n == 0) {
        return RU_OK;
    }
    static const double ridges[3] = {0, 0.05, 0.05};
    static const bool any_sign[3] = {true, false, false};
    ru_lsq_in lsq = {
        .a = rows, .b = y, .m = n, .n = 3, .ridges = ridges, .nonneg = true, .any_sign = any_sign};
    ru_lsq_fit line;
    RU_TRY(ru_lsq_solve(&lsq, scratch, scratch, &line, err));
    memcpy(s->trend, line.x, sizeof s->trend);
    for (uint32_t i = 0; i < n; i++) {
        RU_TRY(ru_gp_add(&s->gp, rows + 3 * i + 1, line.residual[i], err));
    }
    return fit(s, scratch, err);
}

/* Do the last measurements contradict those before them? */
static ru_status drift(search *s, ru_arena *scratch, bool *drifted, ru_err *err)
{
    const ru_scale_in *in = s->in;
    *drifted = false;
    if (in->n_probes < DRIFT_RUN + 1) {
        return RU_OK;
    }
    RU_TRY(learn(s, 0, in->n_probes - DRIFT_RUN, scratch, err));
    uint32_t above = 0, below = 0;
    for (uint32_t i = in->n_probes - DRIFT_RUN; i < in->n_probes && s->gp.n > 0; i++) {
        const ru_scale_probe *p = &in->probe[i];
        if (p->failed || !p->run) {
            return RU_OK;
        }
        guess g = guess_of(s, (rui_scale_choice){p->workers, p->memory_mb});
        double sd = sqrt(g.sd * g.sd + in->noise * in->noise + model_sd * model_sd);
        double off = (ru_num_log(p->step_s) - g.mid) / sd;
        above += off > drift_sd ? 1 : 0;
        below += off < -drift_sd ? 1 : 0;
    }
    *drifted = above == DRIFT_RUN || below == DRIFT_RUN;
    return RU_OK;
}

/* What keeping the choice in force saves: workers need not start again. */
static double kept(const ru_scale_in *in, rui_scale_choice c)
{
    if (in->now_workers != c.workers || in->now_memory_mb != c.memory_mb) {
        return 0;
    }
    const ru_function_rules r = ru_scale_rules(in, c.memory_mb);
    double usd = c.memory_mb / 1024 * r.usd_per_gb_s * r.init_s;
    return !in->fastest ? c.workers * (usd + r.usd_per_call) : r.init_s;
}

/* Another choice can take over after a bad stretch until the next decision: the one that most
 * surely keeps the limit. Both limits at once leave none. */
static void find_rescue(search *s)
{
    const ru_scale_in *in = s->in;
    int64_t best = INT64_MAX;
    s->rescue = UINT32_MAX;
    bool one = (in->limit_s > 0) != (in->limit_usd > 0);
    for (uint32_t k = 0; k < s->n && one && in->plan_steps > 0; k++) {
        ru_function_run late;
        rui_scale_choice c = rui_scale_at(in, k);
        if (!rui_scale_failed(in, c) && run_at(in, c, s->guess[k], s->z, in->steps, &late)) {
            double v = in->limit_s > 0 ? late.seconds : late.usd;
            if (whole(v) < best) {
                best = whole(v);
                s->rescue = k;
            }
        }
    }
}

/* A stretch of `steps` varies about its mean by the noise. */
static guess varied(const ru_scale_in *in, guess g, double steps)
{
    double part = steps > in->plan_steps ? in->plan_steps / steps : 1;
    g.sd = sqrt(g.sd * g.sd + in->noise * in->noise * part);
    return g;
}

/* Does c keep the limits with enough confidence, by itself or until another takes over? */
static bool safe(const search *s, rui_scale_choice c, guess g)
{
    const ru_scale_in *in = s->in;
    ru_function_run late, rest;
    if (run_at(in, c, varied(in, g, in->steps), s->z, in->steps, &late) &&
        rui_scale_keeps(in, &late)) {
        return true;
    }
    double stretch = fmin(in->plan_steps, in->steps);
    if (s->rescue == UINT32_MAX || !run_at(in, c, g, expect_sd, in->steps, &rest) ||
        !rui_scale_keeps(in, &rest) ||
        !run_at(in, c, varied(in, g, stretch), s->z, stretch, &late) ||
        !run_at(in, rui_scale_at(in, s->rescue), s->guess[s->rescue], s->z, in->steps - stretch,
                &rest)) {
        return false;
    }
    rest.seconds += late.seconds;
    rest.usd += late.usd;
    return rui_scale_keeps(in, &rest);
}

/* The choice whose value is best among those that keep the limits with enough confidence; else
 * `likely`, the one that most probably does. */
static double incumbent(search *s, uint32_t *likely)
{
    int64_t best = INT64_MAX;
    double most = -1;
    s->best = *likely = UINT32_MAX;
    for (uint32_t k = 0; k < s->n; k++) {
        s->guess[k] = guess_of(s, rui_scale_at(s->in, k));
    }
    find_rescue(s);
    for (uint32_t k = 0; k < s->n; k++) {
        rui_scale_choice c = rui_scale_at(s->in, k);
        ru_function_run run;
        if (rui_scale_failed(s->in, c)) {
            continue;
        }
        if (safe(s, c, s->guess[k]) && run_at(s->in, c, s->guess[k], 0, s->in->steps, &run)) {
            double v = rui_scale_value(s->in, &run) - kept(s->in, c);
            if (whole(v) < best) {
                best = whole(v);
                s->best = k;
                s->best_value = v;
            }
        }
        if (s->best == UINT32_MAX) {
            double p = met(s->in, c, s->guess[k]);
            *likely = whole(p) > whole(most) ? k : *likely;
            most = fmax(most, p);
        }
    }
    return most;
}

/* Expected saving of the steps left after a measurement of c shows its step time t: the value is
 * a + b t, savings count while t keeps the limits. Lives of functions are taken as fractions. */
static double improvement(const search *s, rui_scale_choice c, guess g, double steps)
{
    const ru_scale_in *in = s->in;
    const ru_function_rules r = ru_scale_rules(in, c.memory_mb);
    double useful = r.life_s - r.init_s - r.save_s;
    double lives = r.life_s > 0 ? 1 / useful : 0;
    double second = steps * (1 + (r.init_s + r.save_s) * lives);
    double usd_s = c.workers * c.memory_mb / 1024 * r.usd_per_gb_s + r.store_usd_per_h / 3600;
    double usd = usd_s * second + c.workers * r.usd_per_call * steps * lives;
    double first_usd = c.workers * r.usd_per_call + usd_s * r.init_s;
    double a = !in->fastest ? first_usd : r.init_s, b = !in->fastest ? usd : second;
    double most = (s->best_value * steps / in->steps - a) / b; /* step time that saves nothing */
    if (in->limit_s > 0) {
        most = fmin(most, (in->limit_s - r.init_s) / second);
    }
    if (in->limit_usd > 0) {
        most = fmin(most, (in->limit_usd - first_usd) / usd);
    }
    if (!(most > 0)) {
        return 0;
    }
    double saved = s->best_value * steps / in->steps - a;
    if (g.sd < 1e-9) {
        double t = ru_num_exp(g.mid);
        return t < most ? saved - b * t : 0;
    }
    double z = (ru_num_log(most) - g.mid) / g.sd;
    return saved * ru_norm_cdf(z) - b * ru_num_exp(g.mid + g.sd * g.sd / 2) * ru_norm_cdf(z - g.sd);
}

/* Do money for measuring and the limits of the job allow to measure c, even if it turns out as bad
 * as confidence says? */
static bool allowed(const search *s, rui_scale_choice c, guess g)
{
    const ru_scale_in *in = s->in;
    ru_function_run probe, rest, all;
    if (!run_at(in, c, g, s->z, in->probe_steps, &probe)) {
        return false;
    }
    if (s->best == UINT32_MAX) {
        return rui_scale_keeps(in, &probe);
    }
    uint32_t sure = s->rescue != UINT32_MAX ? s->rescue : s->best;
    double left = fmax(0, in->steps - in->probe_steps);
    if (!run_at(in, rui_scale_at(in, sure), s->guess[sure], s->z, left, &rest) ||
        !run_at(in, rui_scale_at(in, s->best), s->guess[s->best], 0, in->steps, &all)) {
        return false;
    }
    rest.seconds += probe.seconds;
    rest.usd += probe.usd;
    double money = in->limit_usd > 0 ? in->limit_usd : all.usd + s->probed_usd;
    ru_function_run usual;
    return rui_scale_keeps(in, &rest) && run_at(in, c, g, 0, in->probe_steps, &usual) &&
           s->probed_usd + usual.usd <= in->probing_max * money;
}

/* Was the best choice measured? */
static bool best_seen(const search *s)
{
    const ru_scale_in *in = s->in;
    bool seen = false;
    for (uint32_t i = 0; i < in->n_probes && s->best != UINT32_MAX; i++) {
        rui_scale_choice c = rui_scale_at(in, s->best);
        const ru_scale_probe *p = &in->probe[i];
        seen = seen || (!p->failed && p->workers == c.workers && p->memory_mb == c.memory_mb);
    }
    return seen;
}

/* What measuring c adds to the chance to keep the limits where `likely` has the chance `most`. What
 * is known by now does not become better by measuring it again. */
static double hope(const search *s, uint32_t k, uint32_t likely, double most)
{
    const ru_scale_in *in = s->in;
    double p = s->guess[k].sd > 0.5 * in->noise ? met(in, rui_scale_at(in, k), s->guess[k]) : 0;
    return (k == likely ? 1 : 1 - most) * p >= 1 - in->confidence ? p : 0;
}

static uint32_t next_probe(const search *s, uint32_t likely, double most, double *gain)
{
    const ru_scale_in *in = s->in;
    double left = fmax(0, in->steps - in->probe_steps);
    int64_t best = 0;
    uint32_t at = UINT32_MAX;
    /* The same steps with more workers or memory cost no less money. */
    const bool dearer = !in->fastest && best_seen(s);
    rui_scale_choice cheap = rui_scale_at(in, dearer ? s->best : 0);
    for (uint32_t k = 0; k < s->n; k++) {
        rui_scale_choice c = rui_scale_at(in, k);
        if (rui_scale_failed(in, c) ||
            (dearer && c.workers >= cheap.workers && c.memory_mb >= cheap.memory_mb)) {
            continue;
        }
        guess g = s->guess[k];
        double v;
        if (s->best == UINT32_MAX) {
            v = hope(s, k, likely, most);
        } else {
            ru_function_run probe;
            if (!run_at(in, c, g, g.sd / 2, in->probe_steps, &probe)) {
                continue;
            }
            v = improvement(s, c, g, left) - rui_scale_value(in, &probe) +
                s->best_value * in->probe_steps / in->steps;
            v = v > in->gain_min * s->best_value ? v : 0;
        }
        if (whole(v) > best && allowed(s, c, g)) {
            best = whole(v);
            at = k;
            *gain = v;
        }
    }
    return at;
}

static ru_status decide(search *s, ru_scale_plan *plan, ru_err *err)
{
    const ru_scale_in *in = s->in;
    uint32_t likely;
    double most = incumbent(s, &likely), gain = 0;
    uint32_t used = plan->drifted ? 0 : rui_scale_probed(in);
    uint32_t at = used < in->probes_max ? next_probe(s, likely, most, &gain) : UINT32_MAX;
    plan->probe = at != UINT32_MAX;
    if (!plan->probe) {
        at = s->best != UINT32_MAX ? s->best : likely;
        if (at == UINT32_MAX) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "every choice of workers and memory has failed");
        }
    }
    rui_scale_figures(in, rui_scale_at(in, at), s->guess[at].mid, s->guess[at].sd, plan);
    plan->gain = plan->probe && s->best != UINT32_MAX ? gain : 0;
    if (!plan->probe && s->best == UINT32_MAX && most < 0.5) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no choice keeps the limits: %u workers with %g MB come closest, %.4g s "
                       "and %.4g USD",
                       plan->workers, plan->memory_mb, plan->seconds, plan->usd);
    }
    return RU_OK;
}

static ru_status check_in(const ru_scale_in *in, ru_err *err)
{
    if (in->n_start > 0 && in->n_start != in->n_memory) {
        return RU_FAIL(err, RU_E_ARG,
                       "'start_s' has %u times, 'memory_mb' %u sizes; expected one "
                       "for each, or none",
                       in->n_start, in->n_memory);
    }
    if (in->workers_min < 1 || in->workers_max < in->workers_min || in->workers_step < 1 ||
        in->n_memory < 1 || in->n_memory > RU_SCALE_MEMORIES_MAX ||
        in->n_probes > RU_SCALE_PROBES_MAX) {
        return RU_FAIL(
            err, RU_E_ARG,
            "the grid of workers and memory is empty, or there are more than %d measurements",
            RU_SCALE_PROBES_MAX);
    }
    uint64_t n =
        ((uint64_t)(in->workers_max - in->workers_min) / in->workers_step + 1) * in->n_memory;
    if (n > RU_SCALE_CHOICES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "the grid has more than %d choices", RU_SCALE_CHOICES_MAX);
    }
    return RU_OK;
}

ru_status ru_plan_scale(const ru_scale_in *in, ru_arena *scratch, ru_scale_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    *plan = (ru_scale_plan){.probed_usd = rui_scale_probed_usd(in)};
    if (in->method != RU_SCALE_JOINT) {
        return rui_scale_rival(in, scratch, plan, err);
    }
    search s = {.in = in, .n = rui_scale_choices(in), .probed_usd = plan->probed_usd};
    RU_TRY(drift(&s, scratch, &plan->drifted, err));
    RU_TRY(learn(&s, plan->drifted ? in->n_probes - DRIFT_RUN : 0, in->n_probes, scratch, err));
    if (s.gp.n < 2 && rui_scale_probed(in) < in->probes_max) {
        rui_scale_choice c = fewest(in);
        if (in->fastest || in->n_probes > 0) {
            RU_TRY(rui_scale_start(in, in->n_probes, true, &c, err));
        }
        plan->probe = true;
        plan->blind = true;
        plan->workers = c.workers;
        plan->memory_mb = c.memory_mb;
        return RU_OK;
    }
    if (s.gp.n == 0) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "no choice of workers and memory was measured");
    }
    s.guess = RU_NEW(scratch, guess, s.n);
    if (s.guess == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u choices", s.n);
    }
    s.z = ru_norm_quantile(in->confidence);
    return decide(&s, plan, err);
}
