#include "fleet/func_scale.h"

#include <math.h>
#include <string.h>

enum { PROBE_STEPS = 20, PROBE_PART = 40, PLANS = 8, PROBES_MAX = 7 };
#define NOISE     0.1
#define GAIN      0.02
#define PROBING   0.1
#define SURE      0.95
#define BILLING_S 0.001
#define INIT_S    2.0 /* of a worker, before one was seen */
#define BRIEF     0.1
#define START_MAX 1e6
#define DOUBT     2 /* deviations */
#define LEAST     1e-3
#define AGAIN_S   0.07 /* a call of workers of 442 MB that were there, until one was seen; */
#define OTHER_S   0.1  /* of another number of them */
#define FEW       40   /* a stretch takes so many times what its call takes */
#define RECENT    0.5  /* weight of the last call */
#define LOST_MOST 0.3

ru_status ru_func_scale_init(ru_func_scale *s, const ru_func_scale_options *opt, ru_time now,
                             ru_err *err)
{
    uint32_t n = 0;
    *s = (ru_func_scale){.opt = *opt, .begun = now, .again_s = AGAIN_S, .other_s = OTHER_S};
    for (double m = opt->memory_min_mb; m <= opt->memory_max_mb + 1e-6; m += opt->memory_step_mb) {
        if (n == RU_SCALE_MEMORIES_MAX) {
            return RU_FAIL(err, RU_E_USAGE, "more than %d sizes of memory", RU_SCALE_MEMORIES_MAX);
        }
        s->memory_mb[n++] = m;
    }
    s->in = (ru_scale_in){.workers_min = opt->workers_min,
                          .workers_max = opt->workers_max,
                          .workers_step = 1,
                          .memory_mb = s->memory_mb,
                          .n_memory = n,
                          .probe = s->probes,
                          .now_memory_mb = 1,
                          .rules = {.life_s = (double)opt->life_ns * 1e-9,
                                    .init_s = INIT_S,
                                    .usd_per_gb_s = opt->usd_per_gb_s,
                                    .usd_per_call = opt->usd_per_call,
                                    .billing_step_s = BILLING_S},
                          .core_mb = 1769,
                          .noise = NOISE,
                          .probes_max = PROBES_MAX,
                          .probing_max = PROBING,
                          .gain_min = GAIN,
                          .confidence = SURE,
                          .seed = 1};
    return n > 0 ? RU_OK : RU_FAIL(err, RU_E_USAGE, "no size of memory to choose from");
}

/* Measurements as they would be with the batch now: an estimate is none of its own. */
static ru_status convert(ru_func_scale *s, ru_arena *scratch, ru_scale_law *law, ru_err *err)
{
    ru_scale_in *in = &s->in;
    in->probe = s->seen;
    ru_status st = ru_scale_law_of(in, s->batch, scratch, law, err);
    in->probe = s->probes;
    RU_TRY(st);
    for (uint32_t k = 0; k < in->n_probes; k++) {
        ru_scale_probe *p = &s->probes[k];
        *p = s->seen[k];
        if (s->batch[k] != s->now_batch && !p->failed) {
            double was = ru_scale_law_step(law, in, p->workers, p->memory_mb, s->batch[k]);
            double is = ru_scale_law_step(law, in, p->workers, p->memory_mb, s->now_batch);
            p->step_s *= was > 0 ? is / was : 1;
            p->run = true;
        }
    }
    return RU_OK;
}

static ru_status plan(ru_func_scale *s, const ru_scale_part *parts, uint32_t n, ru_arena *scratch,
                      ru_err *err)
{
    ru_scale_in *in = &s->in;
    ru_scale_law law;
    double left_usd = in->limit_usd;
    RU_TRY(convert(s, scratch, &law, err));
    if (n > 1 && in->n_probes > 0) {
        ru_scale_divide(in, &law, parts, n, &in->limit_s, &in->limit_usd);
    }
    ru_status st = ru_plan_scale(in, scratch, &s->plan, err);
    if (st == RU_E_INFEASIBLE && in->limit_usd < left_usd) { /* the parts behind it may cost less */
        in->limit_usd = left_usd;
        st = ru_plan_scale(in, scratch, &s->plan, err);
    }
    if (st == RU_E_INFEASIBLE && in->limit_s > 0) {
        s->late = n == 1; /* the parts behind it may be faster */
        in->fastest = 1;
        in->limit_s = 0;
        st = ru_plan_scale(in, scratch, &s->plan, err);
    }
    return st;
}

static void forget(ru_func_scale *s, uint32_t n)
{
    s->in.n_probes -= n;
    memmove(s->seen, s->seen + n, s->in.n_probes * sizeof s->seen[0]);
    memmove(s->probes, s->probes + n, s->in.n_probes * sizeof s->probes[0]);
    memmove(s->batch, s->batch + n, s->in.n_probes * sizeof s->batch[0]);
}

static void add(ru_func_scale *s, ru_scale_probe p)
{
    if (s->in.n_probes == RU_SCALE_PROBES_MAX) {
        forget(s, 1); /* the oldest */
    }
    s->batch[s->in.n_probes] = s->now_batch;
    s->probes[s->in.n_probes] = p;
    s->seen[s->in.n_probes++] = p;
}

/* The policy goes on with one measurement, which counts twice, where the start of other workers
 * would take more than a part of what is left, or where the fewest workers are fast enough. */
static void settle(ru_func_scale *s, double steps, double limit_s)
{
    const ru_scale_probe *p = &s->seen[0];
    double rest_s = steps * p->step_s;
    bool cheap = p->workers == s->opt.workers_min && (1 + DOUBT * NOISE) * rest_s <= limit_s;
    if (s->in.n_probes == 1 && !p->failed && (s->in.rules.init_s > BRIEF * rest_s || cheap)) {
        ru_scale_probe again = *p;
        again.run = true;
        add(s, again);
    }
}

/* -- by the law -----------------------------------------------------------------------------------
 */

/* The policy is asked about this choice alone; step_s 0: it is to be measured. */
static ru_status ask(ru_func_scale *s, uint32_t workers, double memory_mb, double step_s,
                     ru_arena *scratch, ru_err *err)
{
    ru_scale_in *q = &s->asked;
    *q = s->in;
    s->told_mb = memory_mb;
    s->told[0] = s->told[1] =
        (ru_scale_probe){.workers = workers, .memory_mb = memory_mb, .step_s = step_s, .run = true};
    q->rules = ru_scale_rules(&s->in, memory_mb);
    q->workers_min = q->workers_max = workers;
    q->memory_mb = &s->told_mb;
    q->n_memory = 1;
    q->n_start = q->fastest = 0;
    q->limit_s = q->limit_usd = 0;
    q->probe = s->told;
    q->n_probes = step_s > 0 ? 2 : 0;
    return ru_plan_scale(q, scratch, &s->plan, err);
}

/* A number of workers that shows what an exchange takes, where one number alone was measured and
 * may not be fast enough; 0: no need. */
static ru_status to_measure(const ru_func_scale *s, const ru_scale_part *parts, uint32_t n,
                            ru_arena *scratch, uint32_t *workers, double *memory_mb, ru_err *err)
{
    const ru_scale_in *in = &s->in;
    const ru_scale_probe *seen = NULL;
    ru_scale_law law;
    double rest_s = 0;
    *workers = 0;
    for (uint32_t k = 0; k < in->n_probes; k++) {
        const ru_scale_probe *p = &s->seen[k];
        if (seen != NULL && !p->failed && p->workers != seen->workers) {
            return RU_OK;
        }
        seen = seen == NULL && !p->failed ? p : seen;
    }
    RU_CHECK(seen != NULL);
    RU_TRY(ru_scale_law_of(in, s->batch, scratch, &law, err));
    for (uint32_t k = 0; k < n; k++) {
        rest_s += parts[k].steps *
                  ru_scale_law_step(&law, in, seen->workers, seen->memory_mb, parts[k].batch);
    }
    double want = ceil(sqrt((double)seen->workers * in->workers_max));
    bool fits = want > seen->workers && (1 + NOISE) * rest_s > in->limit_s;
    for (uint32_t k = 0; k < in->n_probes; k++) {
        const ru_scale_probe *p = &s->seen[k];
        fits = fits && !(p->failed && p->workers >= want && p->memory_mb >= seen->memory_mb);
    }
    *workers = fits ? (uint32_t)want : 0;
    *memory_mb = seen->memory_mb;
    return RU_OK;
}

static ru_status by_law(ru_func_scale *s, const ru_scale_part *parts, uint32_t n, double part,
                        ru_arena *scratch, double *steps, ru_err *err)
{
    ru_scale_in *in = &s->in;
    uint32_t workers;
    double memory_mb = 0;
    in->probe = s->seen;
    RU_TRY(to_measure(s, parts, n, scratch, &workers, &memory_mb, err));
    *steps = in->probe_steps;
    if (workers > 0) {
        return ask(s, workers, memory_mb, 0, scratch, err);
    }
    const ru_scale_rest_in rest = {.in = in,
                                   .batch = s->batch,
                                   .parts = parts,
                                   .n = n,
                                   .there = s->started,
                                   .again_s = s->again_s,
                                   .other_s = s->other_s,
                                   .stretch_steps = part,
                                   .stretch_s = FEW * s->again_s};
    ru_scale_rest_plan p;
    RU_TRY(ru_scale_rest(&rest, scratch, &p, err));
    s->late = s->late || p.late;
    *steps = p.steps;
    return ask(s, p.workers, p.memory_mb, p.step_s, scratch, err);
}

/* What was neither start nor step of the last choice: evaluations, checkpoints, other programs. */
static void account(ru_func_scale *s, ru_time now)
{
    if (s->known_s > 0) {
        double took_s = (double)ru_time_since(now, s->chosen) * 1e-9;
        s->took_s += took_s;
        s->lost_s += fmax(0, took_s - s->known_s);
    }
    s->known_s = 0;
    s->chosen = now;
}

/* Of the deadline, for starts and steps; 0: there is none. */
static double left_s(const ru_func_scale *s, ru_time now)
{
    double lost = s->took_s > 0 ? fmin(s->lost_s / s->took_s, LOST_MOST) : 0;
    int64_t ns = s->opt.deadline_ns - s->opt.end_ns - ru_time_since(now, s->begun);
    return s->opt.deadline_ns > 0 ? fmax(LEAST, (double)ns * 1e-9 * (1 - lost)) : 0;
}

/* -- choices --------------------------------------------------------------------------------------
 */

static bool any_seen(const ru_func_scale *s)
{
    for (uint32_t k = 0; k < s->in.n_probes; k++) {
        if (!s->seen[k].failed) {
            return true;
        }
    }
    return false;
}

/* As the policy has it. */
static ru_status by_policy(ru_func_scale *s, const ru_scale_part *parts, uint32_t n, double part,
                           ru_arena *scratch, double *steps, ru_err *err)
{
    ru_scale_in *in = &s->in;
    double left = parts[0].steps;
    in->probe = s->probes;
    in->plan_steps = 2 * part <= left ? part : 0;
    RU_TRY(plan(s, parts, n, scratch, err));
    s->asked = *in;
    *steps = s->plan.probe ? in->probe_steps : in->plan_steps > 0 ? part : left;
    return RU_OK;
}

ru_status ru_func_scale_next(ru_func_scale *s, int64_t done, const ru_scale_part *parts, uint32_t n,
                             double spent_usd, ru_time now, ru_arena *scratch, ru_func_choice *out,
                             ru_err *err)
{
    ru_scale_in *in = &s->in;
    const ru_func_scale_options *o = &s->opt;
    double left = parts[0].steps, probe = fmin(PROBE_STEPS, floor(3 + left / PROBE_PART)), all = 0;
    double steps;
    for (uint32_t k = 0; k < n; k++) {
        all += parts[k].steps * parts[k].batch;
    }
    account(s, now);
    s->law = s->law || (n > 1 && o->deadline_ns > 0 && !(o->budget_usd > 0));
    const bool law = s->law && any_seen(s);
    in->limit_s = s->late && !law ? 0 : left_s(s, now);
    if (!law) {
        settle(s, all / parts[0].batch, in->limit_s);
    }
    s->now_batch = parts[0].batch;
    s->part = s->part > 0 ? s->part : all / PLANS;
    double part = fmax(5 * probe, floor(s->part / s->now_batch) + 1);
    if (s->plan.workers > 0) {
        in->now_workers = s->plan.workers;
        in->now_memory_mb = s->plan.memory_mb;
    }
    in->steps = left;
    in->fastest = o->deadline_ns == 0 || (s->late && !law);
    in->probe_steps = probe;
    in->limit_usd = o->budget_usd > 0 ? fmax(LEAST * LEAST, o->budget_usd - spent_usd) : 0;
    RU_TRY(law ? by_law(s, parts, n, part, scratch, &steps, err)
               : by_policy(s, parts, n, part, scratch, &steps, err));
    RU_TRY(ru_plan_scale_check(&s->asked, &s->plan, err));
    if (s->plan.drifted) {
        forget(s, in->n_probes - 3);
    }
    *out = (ru_func_choice){.workers = s->plan.workers,
                            .memory_mb = (uint32_t)s->plan.memory_mb,
                            .end = done + (int64_t)fmin(steps, left)};
    return RU_OK;
}

/* A start is work of one thread: what it takes with other memory. */
static void learn_start(ru_func_scale *s, double memory_mb, double init_s)
{
    s->in.rules.init_s = init_s;
    s->in.start_s = s->start_s;
    s->in.n_start = s->in.n_memory;
    for (uint32_t k = 0; k < s->in.n_memory; k++) {
        double less = fmin(memory_mb, s->in.core_mb) / fmin(s->memory_mb[k], s->in.core_mb);
        s->start_s[k] = fmin(init_s * less, START_MAX);
    }
}

/* What a call takes before its first step, where its workers were there. */
static void learn_call(ru_func_scale *s, double init_s)
{
    bool again = s->was.workers == s->plan.workers && s->was_batch == s->now_batch &&
                 s->was.memory_mb == (uint32_t)s->plan.memory_mb;
    double *mean = again ? &s->again_s : &s->other_s;
    *mean += RECENT * (fmax(init_s, LEAST) - *mean);
}

void ru_func_scale_measured(ru_func_scale *s, double steps, double step_s, double init_s)
{
    bool cold = false;
    add(s, (ru_scale_probe){.workers = s->plan.workers,
                            .memory_mb = s->plan.memory_mb,
                            .step_s = step_s,
                            .run = !s->plan.probe});
    for (uint32_t k = 0; k < s->in.n_memory; k++) {
        if (s->memory_mb[k] == s->plan.memory_mb && s->started[k] < s->plan.workers) {
            cold = true;
            s->started[k] = s->plan.workers;
            learn_start(s, s->memory_mb[k], fmax(init_s, LEAST));
        }
    }
    if (!cold) {
        learn_call(s, init_s);
    }
    s->was = (ru_func_choice){.workers = s->plan.workers, .memory_mb = (uint32_t)s->plan.memory_mb};
    s->was_batch = s->now_batch;
    s->known_s = init_s + steps * step_s;
}

void ru_func_scale_failed(ru_func_scale *s)
{
    add(s, (ru_scale_probe){.workers = s->plan.workers,
                            .memory_mb = s->plan.memory_mb,
                            .step_s = 1,
                            .failed = true,
                            .run = !s->plan.probe});
}
