/* The row of `gate` in plan/row/policy.def: its input as a file, its report. */
#include <math.h>
#include <string.h>

#include "plan/row/policy.h"
#include "plan/serve/gate.h"

#define AT(type_, name_) .offset = offsetof(type_, name_)

/* What the file has in other units than the planner, or by name. */
typedef struct service_in {
    ru_gate_service s;
    const char *name;
    double solo_ms, tail_ms;
} service_in;

typedef struct op_in {
    ru_gate_op o;
    const char *name;
    double us, count;
} op_in;

typedef struct pair_in {
    const char *service, *op;
    ru_conf_f64s slow;
} pair_in;

typedef struct gate_in {
    ru_gate_admit_in q; /* without services, ops and pairs */
    ru_conf_sections services, ops, pairs;
} gate_in;
_Static_assert(offsetof(gate_in, q) == 0, "rows name fields of q");

#define NAME(type_, help_)                                                   \
    {                                                                        \
        .name = "name", .type = RU_CONF_TEXT, AT(type_, name), .help = help_ \
    }
#define NUMBER(type_, name_, def_, min_, max_, help_)                                    \
    {                                                                                    \
        .name = #name_, .type = RU_CONF_F64, AT(type_, name_), .def = def_, .min = min_, \
        .max = max_, .open = true, .help = help_                                         \
    }
#define CLASS(type_)                                                                              \
    {                                                                                             \
        .name = "class", .type = RU_CONF_CHOICE, AT(type_, cls), .def = "unknown",                \
        .choices = "compute|memory|unknown", .help = "resource that limits it when it runs alone" \
    }
static const ru_conf_field service_fields[] = {
    NAME(service_in, "name of the service"),
    NUMBER(service_in, solo_ms, NULL, 0, 1e9, "time of a request that uses the device alone [ms]"),
    NUMBER(service_in, tail_ms, NULL, 0, 1e9,
           "99th percentile of the latency without training, waiting included [ms]"),
    NUMBER(ru_gate_service, rate, NULL, 0, 1e9, "requests per second"),
    NUMBER(ru_gate_service, units, "80", 0, 1e9,
           "number of units of the device that it uses for most of its time"),
    RU_ROW(U32, ru_gate_service, ops, "100", "number of ops of a request", RU_IN(1, 1e9)),
    CLASS(ru_gate_service),
};
static const ru_conf_table service_table = RU_TABLE("service", service_in, service_fields, NULL);
static const ru_conf_field op_fields[] = {
    NAME(op_in, "name of the kind of op"),
    NUMBER(op_in, us, NULL, 0, 1e12, "time when it runs alone [us]"),
    NUMBER(ru_gate_op, units, "80", 0, 1e9, "number of units of the device that it uses"),
    NUMBER(op_in, count, "1", 0, 1e9, "number of such ops in a step"),
    CLASS(ru_gate_op),
};
static const ru_conf_table op_table = RU_TABLE("op", op_in, op_fields, NULL);
static const ru_conf_field pair_fields[] = {
    RU_ROW(TEXT, pair_in, service, NULL, "name of the service"),
    RU_ROW(TEXT, pair_in, op, NULL, "name of the op that ran beside it"),
    RU_ROW(F64_LIST, pair_in, slow, NULL,
           "measured times of the service beside the op, divided by its time alone",
           RU_IN(0.1, 1e6)),
};
static const ru_conf_table pair_table = RU_TABLE("pair", pair_in, pair_fields, NULL);
static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, gate_in, services, NULL, "services with a latency objective",
           .table = &service_table),
    RU_ROW(SECTIONS, gate_in, ops, NULL, "kinds of ops of the training", .table = &op_table),
    RU_ROW(SECTIONS, gate_in, pairs, "[]", "measured pairs of a service and an op",
           .table = &pair_table),
    NUMBER(ru_gate_admit_in, device, "80", 0, 1e9, "number of units of the device (SMs, cores)"),
    RU_ROW(F64, ru_gate_admit_in, goal, "1.14",
           "largest tail latency, as a multiple of that without training", RU_IN(1.001, 100)),
    RU_ROW(F64, ru_gate_admit_in, miss, "0.1",
           "fraction of the measurements of a pair that may show a larger slowdown than the "
           "planned one",
           RU_IN(0.001, 0.5)),
    RU_ROW(F64, ru_gate_admit_in, guess, "0.5",
           "assumed slowdown of a service beside an op that was never measured, as a fraction of "
           "its time",
           RU_IN(0, 0.9)),
    RU_ROW(F64, ru_gate_admit_in, share_min, "0.1",
           "smallest fraction of the device that the training must get to be admitted",
           RU_IN(0, 1)),
    RU_ROW(CHOICE, ru_gate_admit_in, method, "lag",
           "lag: bounded lag behind a dedicated device (Rubato's); dedicated: no training; free: "
           "no control; slices: time slices; priority: no op beside a request; quota: half of "
           "the device; idle: requests suspend the training; orion, reef, abacus: rules of these "
           "systems",
           .choices = "lag|dedicated|free|slices|priority|quota|idle|orion|reef|abacus"),
};

static uint32_t service_of(const gate_in *in, const char *name)
{
    const service_in *s = in->services.at;
    for (uint32_t i = 0; i < in->services.n; i++) {
        if (strcmp(s[i].name, name) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

static uint32_t op_of(const gate_in *in, const char *name)
{
    const op_in *o = in->ops.at;
    for (uint32_t i = 0; i < in->ops.n; i++) {
        if (strcmp(o[i].name, name) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

static ru_status check_in(const void *section, ru_err *err)
{
    const gate_in *in = section;
    if (in->services.n < 1 || in->ops.n < 1 || in->ops.n > RU_GATE_CELLS_MAX / in->services.n) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u 'services' and %u 'ops'; expected at least one of each, and "
                       "at most %d pairs",
                       in->services.n, in->ops.n, RU_GATE_CELLS_MAX);
    }
    const service_in *s = in->services.at;
    for (uint32_t i = 0; i < in->services.n; i++) {
        if (s[i].tail_ms < s[i].solo_ms) {
            return RU_FAIL(err, RU_E_ARG, "'tail_ms' of %s is below its 'solo_ms'", s[i].name);
        }
    }
    const pair_in *p = in->pairs.at;
    for (uint32_t i = 0; i < in->pairs.n; i++) {
        if (service_of(in, p[i].service) == UINT32_MAX || op_of(in, p[i].op) == UINT32_MAX) {
            return RU_FAIL(
                err, RU_E_ARG,
                "pair %u names '%s' and '%s', which are not both in 'services' and 'ops'", i,
                p[i].service, p[i].op);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(p[i].service, p[k].service) == 0 && strcmp(p[i].op, p[k].op) == 0) {
                return RU_FAIL(
                    err, RU_E_ARG,
                    "pairs %u and %u are the same; give one pair with all numbers in 'slow'", k, i);
            }
        }
    }
    return RU_OK;
}

static const ru_conf_table table =
    RU_TABLE("gate", gate_in, fields, "services and a training that shall share a device",
             .check = check_in);

static ru_status inner(const gate_in *in, ru_arena *a, ru_gate_admit_in *out, ru_err *err)
{
    ru_gate_service *s = RU_NEW(a, ru_gate_service, in->services.n);
    ru_gate_op *o = RU_NEW(a, ru_gate_op, in->ops.n);
    double *count = RU_NEW(a, double, in->ops.n);
    ru_gate_pair *p = RU_NEW(a, ru_gate_pair, in->pairs.n + 1);
    if (s == NULL || o == NULL || count == NULL || p == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops", in->ops.n);
    }
    for (uint32_t i = 0; i < in->services.n; i++) {
        const service_in *f = (const service_in *)in->services.at + i;
        s[i] = f->s;
        s[i].solo_s = 1e-3 * f->solo_ms;
        s[i].tail_s = 1e-3 * f->tail_ms;
    }
    for (uint32_t i = 0; i < in->ops.n; i++) {
        const op_in *f = (const op_in *)in->ops.at + i;
        o[i] = f->o;
        o[i].s = 1e-6 * f->us;
        count[i] = f->count;
    }
    for (uint32_t i = 0; i < in->pairs.n; i++) {
        const pair_in *f = (const pair_in *)in->pairs.at + i;
        p[i] = (ru_gate_pair){service_of(in, f->service), op_of(in, f->op), f->slow.at, f->slow.n};
    }
    *out = in->q;
    out->service = s;
    out->op = o;
    out->count = count;
    out->n_services = in->services.n;
    out->n_ops = in->ops.n;
    out->pair = p;
    out->n_pairs = in->pairs.n;
    return RU_OK;
}

static ru_status plan_gate(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_gate_admit_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_gate(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_gate(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_gate_admit_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_gate_check(&q, plan, err);
}

static void tables(const gate_in *in, const ru_gate_plan *p, ru_report *r)
{
    ru_table *t =
        ru_report_grid_of(r, "services", "<service >lag_max_ms >work_beside_ms >tail_ratio");
    for (uint32_t k = 0; k < p->n_services; k++) {
        ru_table_str(t, ((const service_in *)in->services.at)[k].name);
        ru_table_f64(t, 1e3 * p->budget_s[k], 3);
        ru_table_f64(t, 1e3 * p->beside_s[k], 3);
        if (isfinite(p->tail_ratio[k])) {
            ru_table_f64(t, p->tail_ratio[k], 3);
        } else {
            ru_table_none(t);
        }
    }
    t = ru_report_grid_of(r, "pairs", "<service <op <may_run_beside >loss >lost_us");
    for (uint32_t k = 0; k < p->n_services; k++) {
        for (uint32_t i = 0; i < p->n_ops; i++) {
            const ru_gate_cell *c = &p->cell[k * p->n_ops + i];
            ru_table_str(t, ((const service_in *)in->services.at)[k].name);
            ru_table_str(t, ((const op_in *)in->ops.at)[i].name);
            ru_table_bool(t, c->may);
            ru_table_percent(t, c->loss, 1);
            ru_table_f64(t, 1e6 * c->lost_s, 1);
        }
    }
}

static double worst_of(const ru_gate_plan *p)
{
    double worst = 0;
    for (uint32_t k = 0; k < p->n_services; k++) {
        worst = fmax(worst, p->tail_ratio[k]);
    }
    return worst;
}

/* What a request loses beside one permitted op, over the lag that keeps the goal: the worst. */
static double latest_of(const ru_gate_plan *p)
{
    double worst = 0;
    for (uint32_t i = 0; i < p->n_services * p->n_ops; i++) {
        const ru_gate_cell *c = &p->cell[i];
        worst = c->may ? fmax(worst, c->lost_s / p->budget_s[i / p->n_ops]) : worst;
    }
    return worst;
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_gate_plan *p = v->plan;
    double tail = worst_of(p), late = latest_of(p);
    if (isinf(tail)) {
        ru_rival_is(v, p->share, false, "requests pile up without end");
    } else if (late > 1) {
        ru_rival_is(v, p->share, false, "one op delays a request by %.3g times the largest lag",
                    late);
    } else {
        ru_rival_is(v, p->share, tail <= ((const gate_in *)v->in)->q.goal,
                    "tail latency %.3g times that of the service alone", tail);
    }
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_FIGURE(F64, ru_gate_plan, share, "training_device_ratio"),
    RU_FIGURE(F64, ru_gate_plan, busy, "busy_ratio"),
    RU_DECISION(BOOL, ru_gate_plan, admit, "admit"),
    RU_DECISION(F64, ru_gate_plan, budget_s, "lag_max_s", RU_LIST(ru_gate_plan, n_services)),
};

static ru_status report_gate(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const gate_in *g = in;
    const ru_gate_plan *p = plan;
    double worst = worst_of(p);
    if (p->admit) {
        ru_report_answer(r, "admit the training: it gets %.3g of a device", p->share);
    } else if (isinf(worst)) {
        ru_report_answer(r, "refuse the training: requests would pile up without end");
    } else if (worst > g->q.goal) {
        ru_report_answer(
            r, "refuse the training: a tail latency would be %.3g times that of the service alone",
            worst);
    } else {
        ru_report_answer(r, "refuse the training: it would get only %.3g of a device", p->share);
    }
    if (isfinite(worst)) {
        ru_report_figure(r, "tail_ratio", worst);
    }
    tables(g, p, r);
    ru_policy_winner(&ru_policy_gate, in, r, p->share, worst <= g->q.goal, "chosen");
    RU_TRY(ru_policy_rivals(&ru_policy_gate, in, plan, tools, judge, r, err));
    ru_report_assume(
        r, "the delays of ops that run beside a request add up; requests arrive at random");
    ru_report_trigger(r, "tail_ratio", 0.1);
    return RU_OK;
}

const ru_policy ru_policy_gate = {
    .name = "gate",
    .version = 3,
    .decides = "which op of a training may run beside a request, and whether to share a device",
    .source = "hafeez-2022 ch. 4",
    .in = &table,
    .plan_bytes = sizeof(ru_gate_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .more_is_better = true,
    .plan = plan_gate,
    .check = check_gate,
    .report = report_gate,
    .example =
        "# Classification beside the training of another network; three kinds of ops, two "
        "measured.\n"
        "services:\n"
        "  - {name: classify, solo_ms: 6.5, tail_ms: 21, rate: 60, ops: 175, class: memory}\n"
        "ops:\n"
        "  - {name: conv, us: 310, units: 400, count: 158, class: compute}\n"
        "  - {name: norm, us: 85, units: 3000, count: 569, class: memory}\n"
        "  - {name: huge_copy, us: 2400, units: 12544, count: 2, class: memory}\n"
        "pairs:\n"
        "  - {service: classify, op: conv, slow: [1.04, 1.1, 1.08, 1.2, 1.06, 1.09, 1.12, 1.05]}\n"
        "  - {service: classify, op: norm, slow: [1.6, 1.9, 1.75, 1.8, 2.1, 1.7]}\n",
};
