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
#define LEAST     1e-3

ru_status ru_func_scale_init(ru_func_scale *s, const ru_func_scale_options *opt, ru_time now,
                             ru_err *err)
{
    uint32_t n = 0;
    *s = (ru_func_scale){.opt = *opt, .begun = now};
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
                          .fastest = opt->deadline_ns == 0,
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

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

ru_status ru_func_scale_next(ru_func_scale *s, int64_t done, int64_t left, double spent_usd,
                             ru_time now, ru_arena *scratch, ru_func_choice *out, ru_err *err)
{
    ru_scale_in *in = &s->in;
    const ru_func_scale_options *o = &s->opt;
    int64_t probe = least(PROBE_STEPS, 3 + left / PROBE_PART);
    s->part = s->part > 0 ? s->part : left / PLANS + 1;
    int64_t part = s->part < 5 * probe ? 5 * probe : s->part;
    in->steps = (double)left;
    in->probe_steps = (double)probe;
    in->plan_steps = 2 * part <= left ? (double)part : 0;
    in->limit_s = o->deadline_ns > 0 && !s->late
                      ? fmax(LEAST, (double)(o->deadline_ns - ru_time_since(now, s->begun)) * 1e-9)
                      : 0;
    in->limit_usd = o->budget_usd > 0 ? fmax(LEAST * LEAST, o->budget_usd - spent_usd) : 0;
    ru_status st = ru_plan_scale(in, scratch, &s->plan, err);
    if (st == RU_E_INFEASIBLE && in->limit_s > 0) {
        s->late = true;
        in->fastest = 1;
        in->limit_s = 0;
        st = ru_plan_scale(in, scratch, &s->plan, err);
    }
    RU_TRY(st);
    RU_TRY(ru_plan_scale_check(in, &s->plan, err));
    if (s->plan.drifted) {
        uint32_t drop = in->n_probes - 3;
        memmove(s->probes, s->probes + drop, 3 * sizeof s->probes[0]);
        in->n_probes = 3;
    }
    in->now_workers = s->plan.workers;
    in->now_memory_mb = s->plan.memory_mb;
    int64_t steps = s->plan.probe ? probe : in->plan_steps > 0 ? part : left;
    *out = (ru_func_choice){.workers = s->plan.workers,
                            .memory_mb = (uint32_t)s->plan.memory_mb,
                            .end = done + least(steps, left)};
    return RU_OK;
}

static void add(ru_func_scale *s, ru_scale_probe p)
{
    if (s->in.n_probes == RU_SCALE_PROBES_MAX) { /* the oldest goes */
        memmove(s->probes, s->probes + 1, (RU_SCALE_PROBES_MAX - 1) * sizeof s->probes[0]);
        s->in.n_probes--;
    }
    s->probes[s->in.n_probes++] = p;
}

void ru_func_scale_measured(ru_func_scale *s, double step_s, double init_s)
{
    add(s, (ru_scale_probe){.workers = s->plan.workers,
                            .memory_mb = s->plan.memory_mb,
                            .step_s = step_s,
                            .run = !s->plan.probe});
    s->in.rules.init_s = fmax(init_s, LEAST);
}

void ru_func_scale_failed(ru_func_scale *s)
{
    add(s, (ru_scale_probe){.workers = s->plan.workers,
                            .memory_mb = s->plan.memory_mb,
                            .step_s = 1,
                            .failed = true,
                            .run = !s->plan.probe});
}
