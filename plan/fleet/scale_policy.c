/* The row of `scale` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>

#include "plan/fleet/scale.h"
#include "plan/row/policy.h"

typedef struct probe_in {
    uint32_t workers;
    double memory_mb, step_s;
    bool failed, run;
} probe_in;

typedef struct scale_in {
    uint32_t workers_min, workers_max, workers_step;
    ru_conf_f64s memory_mb;
    double steps;
    uint32_t goal;
    double limit_s, limit_usd;
    ru_conf_sections probes;
    uint32_t now_workers;
    double now_memory_mb;
    double life_s, init_s, save_s, usd_per_gb_s, usd_per_call, billing_step_s, store_usd_per_h;
    double core_mb, noise, probe_steps, plan_steps, probing_max, gain_min, confidence;
    uint32_t probes_max;
    int64_t seed;
    uint32_t method;
} scale_in;

#define AT(type, field) .offset = offsetof(type, field)

static const ru_conf_field probe_fields[] = {
    RU_ROW(U32, probe_in, workers, NULL, "number of workers", RU_IN(1, 1e6)),
    RU_ROW(F64, probe_in, memory_mb, NULL, "memory of each worker [MB]", RU_IN(1, 1e7)),
    RU_ROW(F64, probe_in, step_s, "1", "measured mean step time [s]", RU_IN(1e-9, 1e6)),
    RU_ROW(BOOL, probe_in, failed, "false",
           "true: a worker ran out of memory, and step_s is ignored"),
    RU_ROW(BOOL, probe_in, run, "false",
           "true: measured while the job ran with this choice; it counts neither as a "
           "measurement nor toward its cost"),
};

static const ru_conf_table probe_table =
    RU_TABLE("probe", probe_in, probe_fields, "a choice that was measured");

static ru_status check_in(const void *section, ru_err *err)
{
    const scale_in *in = section;
    if (in->workers_max < in->workers_min) {
        return RU_FAIL(
            err, RU_E_ARG,
            "'workers_min' is %u and 'workers_max' %u; expected a maximum of at least the minimum",
            in->workers_min, in->workers_max);
    }
    if (in->memory_mb.n < 1 || in->memory_mb.n > RU_SCALE_MEMORIES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'memory_mb' has %u sizes, expected 1 to %d", in->memory_mb.n,
                       RU_SCALE_MEMORIES_MAX);
    }
    for (uint32_t i = 1; i < in->memory_mb.n; i++) {
        if (!(in->memory_mb.at[i] > in->memory_mb.at[i - 1])) {
            return RU_FAIL(err, RU_E_ARG, "'memory_mb' must rise, %g comes after %g",
                           in->memory_mb.at[i], in->memory_mb.at[i - 1]);
        }
    }
    double choices = (1 + floor((double)(in->workers_max - in->workers_min) / in->workers_step)) *
                     in->memory_mb.n;
    if (choices > RU_SCALE_CHOICES_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %.0f choices of workers and memory; expected at most %d", choices,
                       RU_SCALE_CHOICES_MAX);
    }
    if (in->probes.n > RU_SCALE_PROBES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'probes' has %u entries, at most %d", in->probes.n,
                       RU_SCALE_PROBES_MAX);
    }
    if (in->life_s > 0 && !(in->life_s > in->init_s + in->save_s)) {
        return RU_FAIL(err, RU_E_ARG,
                       "a function lives for %g s, but its start and checkpoint take %g s",
                       in->life_s, in->init_s + in->save_s);
    }
    return RU_OK;
}

#define NUMBER(name_, default_, low_, high_, help_)                                             \
    {                                                                                           \
        .name = #name_, .type = RU_CONF_F64, AT(scale_in, name_), .def = default_, .min = low_, \
        .max = high_, .help = help_                                                             \
    }
#define COUNT(name_, default_, low_, high_, help_)                                              \
    {                                                                                           \
        .name = #name_, .type = RU_CONF_U32, AT(scale_in, name_), .def = default_, .min = low_, \
        .max = high_, .help = help_                                                             \
    }

static const ru_conf_field fields[] = {
    COUNT(workers_min, "1", 1, 100000, "smallest number of workers"),
    COUNT(workers_max, NULL, 1, 100000, "largest number of workers"),
    COUNT(workers_step, "1", 1, 100000, "difference between two numbers of workers"),
    RU_ROW(F64_LIST, scale_in, memory_mb, NULL, "memory sizes to choose from, ascending [MB]",
           RU_IN(1, 1e7)),
    NUMBER(steps, NULL, 1, 1e12, "number of remaining steps"),
    RU_ROW(CHOICE, scale_in, goal, "cheapest",
           "cheapest: lowest cost within the limits; fastest: shortest time within the limits",
           .choices = "cheapest|fastest"),
    NUMBER(limit_s, "0", 0, 1e9, "time limit for the remaining steps [s]; 0: no limit"),
    NUMBER(limit_usd, "0", 0, 1e9, "cost limit for the remaining steps [USD]; 0: no limit"),
    RU_ROW(SECTIONS, scale_in, probes, "[]",
           "measurements since the workload changed, oldest first", .table = &probe_table),
    COUNT(now_workers, "0", 0, 100000, "number of workers that run now; 0: none"),
    NUMBER(now_memory_mb, "1", 1, 1e7, "memory of the workers that run now [MB]"),
    NUMBER(life_s, "900", 0, 1e9, "longest run time of a function [s]; 0: no limit"),
    NUMBER(init_s, "5", 0, 1e6, "start-up time of a worker [s]"),
    NUMBER(save_s, "1", 0, 1e6, "time of the checkpoint before a function ends [s]"),
    NUMBER(usd_per_gb_s, "1.66667e-5", 1e-12, 1e3, "price of 1024 MB for a second"),
    NUMBER(usd_per_call, "2e-7", 0, 1e3, "price of an invocation"),
    NUMBER(billing_step_s, "0.001", 0, 3600,
           "billing granularity: time is rounded up to a multiple of this [s]"),
    NUMBER(store_usd_per_h, "0", 0, 1e6, "price of the parameter store per hour [USD]"),
    NUMBER(core_mb, "1769", 1, 1e7, "memory that comes with one core [MB]"),
    NUMBER(noise, "0.05", 0, 1, "relative standard deviation of a measured step time"),
    NUMBER(probe_steps, "20", 1, 1e9, "number of steps of one measurement; they count as work"),
    NUMBER(plan_steps, "0", 0, 1e12,
           "number of steps until the next decision; 0: there is no next decision"),
    COUNT(probes_max, "7", 0, RU_SCALE_PROBES_MAX, "largest number of measurements"),
    NUMBER(probing_max, "0.1", 0, 1, "largest fraction of the cost that measurements may take"),
    NUMBER(gain_min, "0.002", 0, 1,
           "smallest fraction of the remaining cost that a measurement must be expected to save"),
    NUMBER(confidence, "0.95", 0.5, 0.9999, "probability with which the limits must hold"),
    RU_ROW(I64, scale_in, seed, "1", "seed of the first measurements", RU_IN(0, 1e15)),
    RU_ROW(CHOICE, scale_in, method, "joint",
           "joint: Rubato's; product: improvement times probability; ucb: upper confidence "
           "bound; penalty: ucb with -1e9 for choices that break a limit; heter: improvement per "
           "exploration cost; random: random choices; fixed: no search",
           .choices = "joint|product|ucb|penalty|heter|random|fixed"),
};

static const ru_conf_table table =
    RU_TABLE("scale", scale_in, fields, "training on functions", .check = check_in);

static ru_status inner(const scale_in *in, ru_arena *a, ru_scale_in *out, ru_err *err)
{
    ru_scale_probe *probe = RU_NEW(a, ru_scale_probe, in->probes.n + 1);
    if (probe == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u measurements", in->probes.n);
    }
    const probe_in *p = in->probes.at;
    for (uint32_t i = 0; i < in->probes.n; i++) {
        probe[i] =
            (ru_scale_probe){p[i].workers, p[i].memory_mb, p[i].step_s, p[i].failed, p[i].run};
    }
    *out = (ru_scale_in){
        .workers_min = in->workers_min,
        .workers_max = in->workers_max,
        .workers_step = in->workers_step,
        .memory_mb = in->memory_mb.at,
        .n_memory = in->memory_mb.n,
        .steps = in->steps,
        .cheapest = in->goal == 0,
        .limit_s = in->limit_s,
        .limit_usd = in->limit_usd,
        .probe = probe,
        .n_probes = in->probes.n,
        .now_workers = in->now_workers,
        .now_memory_mb = in->now_memory_mb,
        .rules = {in->life_s, in->init_s, in->save_s, in->usd_per_gb_s, in->usd_per_call,
                  in->billing_step_s, in->store_usd_per_h},
        .core_mb = in->core_mb,
        .noise = in->noise,
        .probe_steps = in->probe_steps,
        .plan_steps = in->plan_steps,
        .probes_max = in->probes_max,
        .probing_max = in->probing_max,
        .gain_min = in->gain_min,
        .confidence = in->confidence,
        .seed = (uint64_t)in->seed,
        .method = (ru_scale_method)in->method,
    };
    return RU_OK;
}

static ru_status plan_scale(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_scale_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_scale(&q, tools->scratch, plan, err);
}

static ru_status check_scale(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_scale_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_scale_check(&q, plan, err);
}

static void probes_table(const ru_scale_in *q, ru_report *r)
{
    ru_table *t = ru_report_table(r, "measured");
    ru_table_col(t, "workers", RU_TABLE_RIGHT);
    ru_table_col(t, "memory_mb", RU_TABLE_RIGHT);
    ru_table_col(t, "step_s", RU_TABLE_RIGHT);
    ru_table_col(t, "job_s", RU_TABLE_RIGHT);
    ru_table_col(t, "job_usd", RU_TABLE_RIGHT);
    for (uint32_t i = 0; i < q->n_probes; i++) {
        const ru_scale_probe *p = &q->probe[i];
        ru_function_run run;
        ru_table_i64(t, p->workers);
        ru_table_f64(t, p->memory_mb, 0);
        if (!p->failed &&
            ru_function_run_of(&q->rules, p->workers, p->memory_mb, q->steps, p->step_s, &run)) {
            ru_table_f64(t, p->step_s, 4);
            ru_table_f64(t, run.seconds, 1);
            ru_table_f64(t, run.usd, 4);
        } else {
            ru_table_str(t, "failed");
            ru_table_none(t);
            ru_table_none(t);
        }
    }
}

static double value_of(const ru_scale_in *q, const ru_scale_plan *p)
{
    return q->cheapest ? p->usd : p->seconds;
}

static ru_status rivals(const ru_scale_in *q, const ru_scale_plan *p, ru_arena *scratch,
                        ru_report *r, ru_err *err)
{
    static const char *const names[] = {"joint", "product", "ucb",  "penalty",
                                        "heter", "random",  "fixed"};
    ru_report_candidate(r, names[q->method], value_of(q, p), true,
                        p->probe ? "measure first" : "run");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(names); k++) {
        if (k == q->method) {
            continue;
        }
        ru_scale_in in = *q;
        in.method = (ru_scale_method)k;
        ru_scale_plan o;
        ru_err why;
        ru_status st = ru_plan_scale(&in, scratch, &o, &why);
        if (st == RU_E_INFEASIBLE) {
            ru_report_candidate(r, names[k], 0, false, "%s", why.text);
            continue;
        }
        if (st != RU_OK) {
            return RU_FAIL(err, st, "%s", why.text);
        }
        if ((o.probe || p->probe) && !o.blind) { /* a measurement is no run of the job */
            ru_report_beside(r, names[k], value_of(q, &o), "%s %u workers with %g MB",
                             o.probe ? "measures" : "runs", o.workers, o.memory_mb);
            continue;
        }
        if (o.met < p->met && o.met < q->confidence && !o.blind) {
            ru_report_candidate(r, names[k], value_of(q, &o), false,
                                "runs %u workers with %g MB, which keeps the limits with a "
                                "probability of %.3g",
                                o.workers, o.memory_mb, o.met);
            continue;
        }
        ru_report_candidate(r, names[k], value_of(q, &o), !o.blind, "%s %u workers with %g MB%s",
                            o.probe ? "measures" : "runs", o.workers, o.memory_mb,
                            o.blind ? ", which was never measured" : "");
    }
    return RU_OK;
}

static ru_status report_scale(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const ru_scale_plan *p = plan;
    ru_scale_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    ru_report_answer(
        r, "%s %u workers with %g MB each%s", p->probe ? "measure" : "run", p->workers,
        p->memory_mb,
        p->drifted
            ? "; it ignores all but the last three measurements, which contradict the earlier ones"
            : "");
    if (!p->blind) {
        ru_report_figure(r, q.cheapest ? "job_usd" : "job_s", value_of(&q, p));
        ru_report_figure(r, q.cheapest ? "job_s" : "job_usd", q.cheapest ? p->seconds : p->usd);
        ru_report_figure(r, "step_s", p->step_s);
        ru_report_figure(r, "step_spread", p->spread);
        ru_report_figure(r, "limits_kept", p->met);
    }
    ru_report_figure(r, "probed_usd", p->probed_usd);
    if (p->gain > 0) {
        ru_report_figure(r, q.cheapest ? "gain_usd" : "gain_s", p->gain);
    }
    probes_table(&q, r);
    RU_TRY(rivals(&q, p, tools->scratch, r, err));
    ru_report_assume(
        r, "a step takes as long as measured; if the workload changes, remove the old probes");
    if (!p->blind) {
        ru_report_trigger(r, "step_s", 2 * fmax(q.noise, 0.02));
    }
    return RU_OK;
}

const ru_policy ru_policy_scale = {
    .name = "scale",
    .version = 1,
    .decides = "how many function workers train, with how much memory, and what to measure first",
    .source = "ali-2022-smlt",
    .in = &table,
    .plan_bytes = sizeof(ru_scale_plan),
    .plan = plan_scale,
    .check = check_scale,
    .report = report_scale,
    .example = "# Three choices were measured; the rest of the job has an hour.\n"
               "workers_min: 4\n"
               "workers_max: 64\n"
               "workers_step: 4\n"
               "memory_mb: [1024, 1769, 2560, 3538]\n"
               "steps: 4000\n"
               "goal: cheapest\n"
               "limit_s: 3600\n"
               "probes:\n"
               "  - {workers: 8, memory_mb: 3538, step_s: 1.62}\n"
               "  - {workers: 36, memory_mb: 1769, step_s: 0.83}\n"
               "  - {workers: 60, memory_mb: 1024, failed: true}\n",
};
