/* The row of `scale` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>

#include "plan/fleet/scale.h"
#include "plan/row/policy.h"

static const ru_conf_field probe_fields[] = {
    RU_ROW(U32, ru_scale_probe, workers, NULL, "number of workers", RU_IN(1, 1e6)),
    RU_ROW(F64, ru_scale_probe, memory_mb, NULL, "memory of each worker [MB]", RU_IN(1, 1e7)),
    RU_ROW(F64, ru_scale_probe, step_s, "1", "measured mean step time [s]", RU_IN(1e-9, 1e6)),
    RU_ROW(BOOL, ru_scale_probe, failed, "false",
           "true: a worker ran out of memory, and step_s is ignored"),
    RU_ROW(BOOL, ru_scale_probe, run, "false",
           "true: measured while the job ran with this choice; it counts neither as a "
           "measurement nor toward its cost"),
};

static const ru_conf_table probe_table =
    RU_TABLE("probe", ru_scale_probe, probe_fields, "a choice that was measured");

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_scale_in *in = section;
    if (in->workers_max < in->workers_min) {
        return RU_FAIL(
            err, RU_E_ARG,
            "'workers_min' is %u and 'workers_max' %u; expected a maximum of at least the minimum",
            in->workers_min, in->workers_max);
    }
    if (in->n_memory < 1 || in->n_memory > RU_SCALE_MEMORIES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'memory_mb' has %u sizes, expected 1 to %d", in->n_memory,
                       RU_SCALE_MEMORIES_MAX);
    }
    for (uint32_t i = 1; i < in->n_memory; i++) {
        if (!(in->memory_mb[i] > in->memory_mb[i - 1])) {
            return RU_FAIL(err, RU_E_ARG, "'memory_mb' must rise, %g comes after %g",
                           in->memory_mb[i], in->memory_mb[i - 1]);
        }
    }
    double choices =
        (1 + floor((double)(in->workers_max - in->workers_min) / in->workers_step)) * in->n_memory;
    if (choices > RU_SCALE_CHOICES_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %.0f choices of workers and memory; expected at most %d", choices,
                       RU_SCALE_CHOICES_MAX);
    }
    if (in->n_probes > RU_SCALE_PROBES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'probes' has %u entries, at most %d", in->n_probes,
                       RU_SCALE_PROBES_MAX);
    }
    if (in->rules.life_s > 0 && !(in->rules.life_s > in->rules.init_s + in->rules.save_s)) {
        return RU_FAIL(err, RU_E_ARG,
                       "a function lives for %g s, but its start and checkpoint take %g s",
                       in->rules.life_s, in->rules.init_s + in->rules.save_s);
    }
    return RU_OK;
}

#define RULE(name_, default_, low_, high_, help_) \
    RU_ROW_AS(#name_, F64, ru_scale_in, rules.name_, default_, help_, RU_IN(low_, high_))
#define NUMBER(name_, default_, low_, high_, help_) \
    RU_ROW(F64, ru_scale_in, name_, default_, help_, RU_IN(low_, high_))
#define COUNT(name_, default_, low_, high_, help_) \
    RU_ROW(U32, ru_scale_in, name_, default_, help_, RU_IN(low_, high_))

static const ru_conf_field fields[] = {
    COUNT(workers_min, "1", 1, 100000, "smallest number of workers"),
    COUNT(workers_max, NULL, 1, 100000, "largest number of workers"),
    COUNT(workers_step, "1", 1, 100000, "difference between two numbers of workers"),
    RU_ROW(F64_LIST, ru_scale_in, memory_mb, NULL, "memory sizes to choose from, ascending [MB]",
           RU_IN(1, 1e7)),
    NUMBER(steps, NULL, 1, 1e12, "number of remaining steps"),
    RU_ROW_AS("goal", CHOICE, ru_scale_in, fastest, "cheapest",
              "cheapest: lowest cost within the limits; fastest: shortest time within the limits",
              .choices = "cheapest|fastest"),
    NUMBER(limit_s, "0", 0, 1e9, "time limit for the remaining steps [s]; 0: no limit"),
    NUMBER(limit_usd, "0", 0, 1e9, "cost limit for the remaining steps [USD]; 0: no limit"),
    RU_ROW_AS("probes", SECTIONS, ru_scale_in, probe, "[]",
              "measurements since the workload changed, oldest first", .table = &probe_table),
    COUNT(now_workers, "0", 0, 100000, "number of workers that run now; 0: none"),
    NUMBER(now_memory_mb, "1", 1, 1e7, "memory of the workers that run now [MB]"),
    RULE(life_s, "900", 0, 1e9, "longest run time of a function [s]; 0: no limit"),
    RULE(init_s, "5", 0, 1e6, "start-up time of a worker [s]"),
    RU_ROW(F64_LIST, ru_scale_in, start_s, "",
           "start-up time of a worker of each of memory_mb [s]; empty: init_s for all",
           RU_IN(0, 1e6)),
    RULE(save_s, "1", 0, 1e6, "time of the checkpoint before a function ends [s]"),
    RULE(usd_per_gb_s, "1.66667e-5", 1e-12, 1e3, "price of 1024 MB for a second"),
    RULE(usd_per_call, "2e-7", 0, 1e3, "price of an invocation"),
    RULE(billing_step_s, "0.001", 0, 3600,
         "billing granularity: time is rounded up to a multiple of this [s]"),
    RULE(store_usd_per_h, "0", 0, 1e6, "price of the parameter store per hour [USD]"),
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
    RU_ROW(I64, ru_scale_in, seed, "1", "seed of the first measurements", RU_IN(0, 1e15)),
    RU_ROW(CHOICE, ru_scale_in, method, "joint",
           "joint: Rubato's; product: improvement times probability; ucb: upper confidence "
           "bound; penalty: ucb with -1e9 for choices that break a limit; heter: improvement per "
           "exploration cost; random: random choices; fixed: no search",
           .choices = "joint|product|ucb|penalty|heter|random|fixed"),
};

static const ru_conf_table table =
    RU_TABLE("scale", ru_scale_in, fields, "training on functions", .check = check_in);

static ru_status plan_scale(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    return ru_plan_scale(in, tools->scratch, plan, err);
}

static ru_status check_scale(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    (void)scratch;
    return ru_plan_scale_check(in, plan, err);
}

static const ru_report_row rows[] = {
    RU_DECISION(BOOL, ru_scale_plan, probe, "probe"),
    RU_DECISION(U32, ru_scale_plan, workers, "workers"),
    RU_DECISION(F64, ru_scale_plan, memory_mb, "memory_mb"),
    RU_DECISION(BOOL, ru_scale_plan, drifted, "drifted"),
    RU_DECISION(BOOL, ru_scale_plan, blind, "blind"),
};

static void probes_table(const ru_scale_in *q, ru_report *r)
{
    ru_table *t = ru_report_grid_of(r, "measured", ">workers >memory_mb >step_s >job_s >job_usd");
    for (uint32_t i = 0; i < q->n_probes; i++) {
        const ru_scale_probe *p = &q->probe[i];
        const ru_function_rules rules = ru_scale_rules(q, p->memory_mb);
        ru_function_run run;
        ru_table_i64(t, p->workers);
        ru_table_f64(t, p->memory_mb, 0);
        if (!p->failed &&
            ru_function_run_of(&rules, p->workers, p->memory_mb, q->steps, p->step_s, &run)) {
            ru_table_f64(t, p->step_s, p->step_s < 0.1 ? 6 : 4); /* of a short job, too */
            ru_table_f64(t, run.seconds, run.seconds < 10 ? 3 : 1);
            ru_table_f64(t, run.usd, run.usd < 0.1 ? 8 : 4);
        } else {
            ru_table_str(t, "failed");
            ru_table_none(t);
            ru_table_none(t);
        }
    }
}

static double value_of(const ru_scale_in *q, const ru_scale_plan *p)
{
    return q->fastest ? p->seconds : p->usd;
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_scale_in *q = v->in;
    const ru_scale_plan *o = v->plan, *p = v->won;
    const char *does = o->probe ? "measures" : "runs";
    if ((o->probe || p->probe) && !o->blind) { /* a measurement is no run of the job */
        ru_rival_beside(v, value_of(q, o), "%s %u workers with %g MB", does, o->workers,
                        o->memory_mb);
    } else if (o->met < p->met && o->met < q->confidence && !o->blind) {
        ru_rival_is(v, value_of(q, o), false,
                    "runs %u workers with %g MB, which keeps the limits with a probability of %.3g",
                    o->workers, o->memory_mb, o->met);
    } else {
        ru_rival_is(v, value_of(q, o), !o->blind, "%s %u workers with %g MB%s", does, o->workers,
                    o->memory_mb, o->blind ? ", which was never measured" : "");
    }
    return RU_OK;
}

static ru_status report_scale(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const ru_scale_in *q = in;
    const ru_scale_plan *p = plan;
    bool cheapest = !q->fastest;
    ru_report_answer(
        r, "%s %u workers with %g MB each%s", p->probe ? "measure" : "run", p->workers,
        p->memory_mb,
        p->drifted
            ? "; it ignores all but the last three measurements, which contradict the earlier ones"
            : "");
    if (!p->blind) {
        ru_report_figure(r, cheapest ? "job_usd" : "job_s", value_of(q, p));
        ru_report_figure(r, cheapest ? "job_s" : "job_usd", cheapest ? p->seconds : p->usd);
        ru_report_figure(r, "step_s", p->step_s);
        ru_report_figure(r, "step_spread", p->spread);
        ru_report_figure(r, "limits_kept", p->met);
    }
    ru_report_figure(r, "probed_usd", p->probed_usd);
    if (p->gain > 0) {
        ru_report_figure(r, cheapest ? "gain_usd" : "gain_s", p->gain);
    }
    probes_table(q, r);
    ru_policy_winner(&ru_policy_scale, in, r, value_of(q, p), true,
                     p->probe ? "measure first" : "run");
    RU_TRY(ru_policy_rivals(&ru_policy_scale, in, plan, tools, judge, r, err));
    ru_report_assume(
        r, "a step takes as long as measured; if the workload changes, remove the old probes");
    if (!p->blind) {
        ru_report_trigger(r, "step_s", 2 * fmax(q->noise, 0.02));
    }
    return RU_OK;
}

const ru_policy ru_policy_scale = {
    .name = "scale",
    .version = 2,
    .decides = "how many function workers train, with how much memory, and what to measure first",
    .source = "ali-2022-smlt",
    .in = &table,
    .plan_bytes = sizeof(ru_scale_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
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
