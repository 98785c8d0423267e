/* The row of `burst-fleet` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>
#include <string.h>

#include "plan/fleet/burst_fleet.h"
#include "plan/row/policy.h"

typedef struct type_in {
    const char *name;
    uint32_t vcpus;
    double credits_per_h, cap, launch, usd_per_h, rate_max, cpu_s;
} type_in;

typedef struct machine_in {
    const char *type;
    double level, launch;
} machine_in;

typedef struct fleet_in {
    RU_SECTIONS(type_in) types;
    RU_SECTIONS(machine_in) machines;
    double rate, period_s;
    uint32_t launches_left, method;
} fleet_in;

enum { EXACT, FRESH, REGULAR };

static const ru_conf_field type_fields[] = {
    RU_ROW(TEXT, type_in, name, NULL, "name of the type"),
    RU_ROW(U32, type_in, vcpus, NULL, "number of virtual CPUs", RU_IN(1, 1024)),
    RU_ROW(F64, type_in, credits_per_h, NULL,
           "credits (vCPU-minutes) earned per hour; regular machines: 60 per vCPU",
           RU_OVER(0, 1e6)),
    RU_ROW(F64, type_in, cap, NULL, "largest number of saved credits", RU_OVER(0, 1e9)),
    RU_ROW(F64, type_in, launch, "0", "launch credits; they do not count towards cap",
           RU_IN(0, 1e6)),
    RU_ROW(F64, type_in, usd_per_h, NULL, "price per hour", RU_OVER(0, 1e6)),
    RU_ROW(F64, type_in, rate_max, NULL,
           "highest rate of requests that it serves within the latency objective at full speed "
           "[1/s]",
           RU_OVER(0, 1e9)),
    RU_ROW(F64, type_in, cpu_s, NULL, "CPU time of one request [s]", RU_OVER(0, 1e6)),
};

static const ru_conf_table type_table = RU_TABLE("type", type_in, type_fields, "a type of machine");

static const ru_conf_field machine_fields[] = {
    RU_ROW(TEXT, machine_in, type, NULL, "name of the machine's type"),
    RU_ROW(F64, machine_in, level, NULL, "saved credits", RU_IN(0, 1e9)),
    RU_ROW(F64, machine_in, launch, "0", "launch credits left", RU_IN(0, 1e6)),
};

static const ru_conf_table machine_table =
    RU_TABLE("machine", machine_in, machine_fields, "a machine that runs");

static uint32_t type_of(const fleet_in *in, const char *name)
{
    for (uint32_t i = 0; i < in->types.n; i++) {
        if (strcmp(in->types.at[i].name, name) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

static ru_status check_in(const void *section, ru_err *err)
{
    const fleet_in *in = section;
    if (in->types.n < 1 || in->types.n > RU_BURST_TYPES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'types' has %u entries, expected 1 to %d", in->types.n,
                       RU_BURST_TYPES_MAX);
    }
    const machine_in *m = in->machines.at;
    for (uint32_t i = 0; i < in->machines.n; i++) {
        uint32_t t = type_of(in, m[i].type);
        if (t == UINT32_MAX) {
            return RU_FAIL(err, RU_E_ARG,
                           "machine %u has the type '%s', which 'types' does not contain", i,
                           m[i].type);
        }
        double cap = in->types.at[t].cap;
        if (m[i].level > cap) {
            return RU_FAIL(err, RU_E_ARG,
                           "machine %u has %g credits, but its type holds at most %g", i,
                           m[i].level, cap);
        }
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, fleet_in, types, NULL, "machine types that can be launched",
           .table = &type_table),
    RU_ROW(SECTIONS, fleet_in, machines, "[]", "machines that run now", .table = &machine_table),
    RU_ROW(F64, fleet_in, rate, NULL, "forecast of requests [1/s]", RU_OVER(0, 1e12)),
    RU_ROW(F64, fleet_in, period_s, "3600",
           "time until the next decision; credits must last until then [s]", RU_IN(1, 1e6)),
    RU_ROW(U32, fleet_in, launches_left, "100",
           "number of launches with credits that the provider still allows", RU_IN(0, 100000)),
    RU_ROW(CHOICE, fleet_in, method, "exact",
           "exact: keep, stop and launch at least cost; fresh: new machines only; regular: new "
           "machines without credits only",
           .choices = "exact|fresh|regular"),
};

static const ru_conf_table table = RU_TABLE(
    "burst-fleet", fleet_in, fields, "machines that serve the next period", .check = check_in);

static ru_status inner(const fleet_in *in, ru_arena *a, ru_burst_fleet_in *out, ru_err *err)
{
    const type_in *t = in->types.at;
    const machine_in *m = in->machines.at;
    ru_burst_type *types = RU_NEW(a, ru_burst_type, in->types.n);
    ru_burst_machine *machines = RU_NEW(a, ru_burst_machine, in->machines.n + 1);
    if (types == NULL || machines == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u machines", in->machines.n);
    }
    *out = (ru_burst_fleet_in){.type = types,
                               .machine = machines,
                               .rate = in->rate,
                               .period_s = in->period_s,
                               .launches_left = in->launches_left};
    for (uint32_t i = 0; i < in->types.n; i++) {
        ru_credit_rules rules =
            ru_credit_cpu(t[i].vcpus, t[i].credits_per_h, t[i].cap, t[i].launch, true);
        bool regular = t[i].credits_per_h >= 60 * t[i].vcpus;
        if (in->method != REGULAR || regular) {
            types[out->n_types++] =
                (ru_burst_type){t[i].name, rules, t[i].usd_per_h, t[i].rate_max, t[i].cpu_s / 60};
        }
    }
    for (uint32_t i = 0; i < in->machines.n && in->method == EXACT; i++) {
        machines[out->n_machines++] = (ru_burst_machine){
            type_of(in, m[i].type), {.earned = m[i].level, .launch = m[i].launch}};
    }
    return RU_OK;
}

static ru_status plan_fleet(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_burst_fleet_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_burst_fleet(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_fleet(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_burst_fleet_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_burst_fleet_check(&q, plan, err);
}

static void machines_table(const ru_burst_fleet_in *q, const ru_burst_fleet_plan *p, ru_report *r)
{
    ru_table *t =
        ru_report_grid_of(r, "machines", "<machine <type >requests_per_s >credits_at_end");
    for (uint32_t i = 0; i < p->n; i++) {
        const ru_burst_type *k = &q->type[p->machine[i].type];
        ru_credit c = p->machine[i].now;
        (void)ru_credit_run(&k->rules, &c, p->rate[i] * k->need, q->period_s);
        if (p->from[i] == UINT32_MAX) {
            ru_table_str(t, "new");
        } else {
            ru_table_textf(t, "%u", p->from[i]);
        }
        ru_table_str(t, k->name);
        ru_table_f64(t, p->rate[i], 3);
        ru_table_f64(t, ru_credit_level(&c), 2);
    }
}

static const ru_report_row rows[] = {
    RU_FIGURE(F64, ru_burst_fleet_plan, usd, "period_usd"),
    RU_DECISION(U32, ru_burst_fleet_plan, from, "machines", RU_LIST(ru_burst_fleet_plan, n)),
    RU_DECISION(U32, ru_burst_fleet_plan, machine, "types",
                RU_LIST_OF(ru_burst_fleet_plan, n, ru_burst_machine, type)),
    RU_DECISION(F64, ru_burst_fleet_plan, rate, "requests_per_s", RU_LIST(ru_burst_fleet_plan, n)),
};

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_burst_fleet_plan *other = v->plan;
    ru_rival_is(v, other->usd, true, "%u machines", other->n);
    return RU_OK;
}

static ru_status report_fleet(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const fleet_in *f = in;
    const ru_burst_fleet_plan *p = plan;
    ru_burst_fleet_in q;
    RU_TRY(inner(f, tools->scratch, &q, err));
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        kept += p->from[i] != UINT32_MAX ? 1 : 0;
    }
    ru_report_answer(r, "keep %u, stop %u, launch %u machines", kept, f->machines.n - kept,
                     p->n - kept);
    machines_table(&q, p, r);
    RU_TRY(ru_policy_rivals(&ru_policy_burst_fleet, in, plan, tools, judge, r, err));
    ru_report_assume(r,
                     "requests arrive evenly at the forecast rate; a new machine serves at once");
    ru_report_valid(r, (int64_t)(f->period_s * 1e9));
    return RU_OK;
}

const ru_policy ru_policy_burst_fleet = {
    .name = "burst-fleet",
    .version = 2,
    .decides = "which burstable machines to keep, stop and launch",
    .source = "ali-2021 (CEDULE+)",
    .in = &table,
    .plan_bytes = sizeof(ru_burst_fleet_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_fleet,
    .check = check_fleet,
    .report = report_fleet,
    .example = "# Two small machines run and have credits left. Prices: on-demand, Linux.\n"
               "types:\n"
               "  - {name: t2.nano, vcpus: 1, credits_per_h: 3, cap: 72, launch: 30,\n"
               "     usd_per_h: 0.0058, rate_max: 40, cpu_s: 0.02}\n"
               "  - {name: t3.small, vcpus: 2, credits_per_h: 24, cap: 576,\n"
               "     usd_per_h: 0.0208, rate_max: 80, cpu_s: 0.02}\n"
               "  - {name: c5.large, vcpus: 2, credits_per_h: 120, cap: 2880,\n"
               "     usd_per_h: 0.085, rate_max: 80, cpu_s: 0.02}\n"
               "machines:\n"
               "  - {type: t3.small, level: 60}\n"
               "  - {type: t2.nano, level: 0, launch: 26}\n"
               "rate: 90\n",
};
