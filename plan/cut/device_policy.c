/* The row of `device` in plan/row/policy.def: its input as a file, predictions, its report. */
#include "plan/cut/device_policy.h"

#include <math.h>
#include <string.h>

#define AT(type, field) .offset = offsetof(type, field)

enum { TREES, SQUARES, CEER, MEDIAN, PALEO, SCALED, PROFET, CHEAPEST, NEWEST, METHODS };

static const ru_conf_field type_fields[] = {
    RU_ROW(TEXT, ru_device_type_in, name, NULL, "name of the type"),
    RU_ROW(F64, ru_device_type_in, usd_per_h, NULL, "price of one device for an hour",
           RU_OVER(0, 1e6)),
    RU_ROW(U32, ru_device_type_in, count_max, "1",
           "largest number of devices that can be rented together", RU_IN(1, 256)),
    RU_ROW_AS("memory", SIZE, ru_device_type_in, memory_bytes, "0",
              "memory of a device; 0: no limit", RU_IN(0, 1e15)),
    RU_ROW(F64, ru_device_type_in, released, "0", "method newest: year of release", RU_IN(0, 1e4)),
    RU_ROW(F64, ru_device_type_in, link_bytes_per_s, "0",
           "bandwidth between its devices; not used if 'steps' has steps on several devices; 0: "
           "only one device can be used",
           RU_IN(0, 1e15)),
    RU_ROW_AS("link_latency", TIME, ru_device_type_in, link_latency_ns, "20us",
              "latency of a message between its devices", RU_IN(0, 1e10)),
    RU_ROW(F64, ru_device_type_in, bytes_per_s, "0", "method scaled: bandwidth of its memory",
           RU_IN(0, 1e18)),
    RU_ROW(F64, ru_device_type_in, flops_per_s, "0", "method scaled: peak arithmetic rate",
           RU_IN(0, 1e21)),
};

static const ru_conf_table type_table =
    RU_TABLE("type", ru_device_type_in, type_fields, "a type of device");

#define NUMBER(field, word, dflt)                                                               \
    {                                                                                           \
        .name = #field, .type = RU_CONF_F64, AT(ru_device_op_in, field), .def = dflt, .min = 0, \
        .max = 1e18, .help = word                                                               \
    }

static const ru_conf_field op_fields[] = {
    RU_ROW(TEXT, ru_device_op_in, type, "", "device type on which it was timed; empty in 'net'"),
    RU_ROW(TEXT, ru_device_op_in, net, "", "name of its network; empty in 'net'"),
    RU_ROW(TEXT, ru_device_op_in, op, NULL,
           "kind of op, from general to special: conv/3x3/forward"),
    RU_ROW(F64, ru_device_op_in, count, "1",
           "number of equal ops in a step; 'seconds' is the time of all of them", RU_OVER(0, 1e9)),
    NUMBER(in_bytes, "size of the activations that one of them reads", "0"),
    NUMBER(out_bytes, "size of the activations that one of them writes", "0"),
    NUMBER(host_bytes, "part of in_bytes that comes from the host", "0"),
    NUMBER(param_bytes, "size of its parameters", "0"),
    NUMBER(flops, "number of multiplications and additions", "0"),
    NUMBER(channels_in, "number of input channels of one group; 0: the op is not a product", "0"),
    NUMBER(channels_out, "number of output channels of one group", "0"),
    NUMBER(taps, "number of positions of the kernel: 9 for 3x3", "1"),
    RU_ROW(F64, ru_device_op_in, seconds, "0",
           "measured time [s]; in 'net': time on the anchor, or 0", RU_IN(0, 1e9)),
};

static const ru_conf_table op_table =
    RU_TABLE("op", ru_device_op_in, op_fields, "ops of one kind and size");

static const ru_conf_field step_fields[] = {
    RU_ROW(TEXT, ru_device_step_in, type, NULL, "device type on which it ran"),
    RU_ROW(TEXT, ru_device_step_in, net, NULL, "network whose ops on this device are in 'timed'"),
    RU_ROW(U32, ru_device_step_in, devices, "1", "number of devices", RU_IN(1, 256)),
    RU_ROW(F64, ru_device_step_in, seconds, NULL, "measured step time [s]", RU_OVER(0, 1e9)),
};

static const ru_conf_table step_table =
    RU_TABLE("step", ru_device_step_in, step_fields, "a whole step");

static uint32_t type_of(const ru_device_policy_in *in, const char *name)
{
    const ru_device_type_in *t = in->types.at;
    for (uint32_t i = 0; i < in->types.n; i++) {
        if (strcmp(t[i].name, name) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

static ru_status check_scaled(const ru_device_policy_in *in, ru_err *err)
{
    const ru_device_type_in *t = in->types.at;
    const ru_device_op_in *op = in->net.at;
    const char *method = in->method == SCALED ? "scaled" : "profet";
    if (type_of(in, in->anchor) == UINT32_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "'%s' needs 'anchor', the device type on which 'net' was timed", method);
    }
    double sum = 0;
    for (uint32_t i = 0; i < in->net.n; i++) {
        sum += op[i].seconds;
    }
    if (!(sum > 0)) {
        return RU_FAIL(err, RU_E_ARG, "'%s' needs the 'seconds' of 'net' on the anchor", method);
    }
    for (uint32_t i = 0; in->method == SCALED && i < in->types.n; i++) {
        if (!(t[i].bytes_per_s > 0) || !(t[i].flops_per_s > 0)) {
            return RU_FAIL(err, RU_E_ARG, "'scaled' needs bytes_per_s and flops_per_s of '%s'",
                           t[i].name);
        }
    }
    return RU_OK;
}

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_device_policy_in *in = section;
    if (in->types.n < 1 || in->types.n > RU_DEVICE_TYPES_MAX || in->net.n < 1) {
        return RU_FAIL(
            err, RU_E_ARG,
            "there are %u 'types' and %u ops in 'net'; expected 1 to %d types and at least 1 op",
            in->types.n, in->net.n, RU_DEVICE_TYPES_MAX);
    }
    const ru_device_op_in *op = in->timed.at;
    for (uint32_t i = 0; i < in->timed.n; i++) {
        if (type_of(in, op[i].type) == UINT32_MAX) {
            return RU_FAIL(err, RU_E_ARG,
                           "timing %u has the type '%s', which 'types' does not contain", i,
                           op[i].type);
        }
    }
    const ru_device_step_in *s = in->steps.at;
    for (uint32_t i = 0; i < in->steps.n; i++) {
        if (type_of(in, s[i].type) == UINT32_MAX) {
            return RU_FAIL(err, RU_E_ARG,
                           "step %u has the type '%s', which 'types' does not contain", i,
                           s[i].type);
        }
    }
    return in->method == SCALED || in->method == PROFET ? check_scaled(in, err) : RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, ru_device_policy_in, types, NULL, "device types that can be rented",
           .table = &type_table),
    RU_ROW(SECTIONS, ru_device_policy_in, timed, NULL, "timed ops of other networks",
           .table = &op_table),
    RU_ROW(SECTIONS, ru_device_policy_in, steps, "[]", "measured steps of these networks",
           .table = &step_table),
    RU_ROW(SECTIONS, ru_device_policy_in, net, NULL, "ops of one step of the network to train",
           .table = &op_table),
    RU_ROW(I64, ru_device_policy_in, samples, NULL, "number of samples of the whole job",
           RU_IN(1, 1e15)),
    RU_ROW(I64, ru_device_policy_in, batch, NULL, "samples of a step on each device, as in 'net'",
           RU_IN(1, 1e9)),
    RU_ROW_AS("memory", SIZE, ru_device_policy_in, memory_bytes, "0",
              "memory that the job needs on each device", RU_IN(0, 1e15)),
    RU_ROW(CHOICE, ru_device_policy_in, goal, "cost", "quantity to minimise",
           .choices = "cost|time"),
    RU_ROW_AS("deadline", TIME, ru_device_policy_in, deadline_ns, "0s",
              "limit for the job; 0: no limit", RU_IN(0, 9e18)),
    RU_ROW(F64, ru_device_policy_in, budget_usd, "0", "limit for the job; 0: no limit",
           RU_IN(0, 1e9)),
    RU_ROW(F64, ru_device_policy_in, sure, "0.7",
           "probability with which a step does not last longer than the limits allow, by how much "
           "networks that were left out exceed their predictions; 0: the prediction itself must "
           "hold them",
           RU_IN(0, 0.999)),
    RU_ROW(F64, ru_device_policy_in, overlap, "0",
           "fraction of a step during which gradients are summed; not used if 'steps' has steps "
           "on several devices",
           RU_IN(0, 1)),
    RU_ROW(TEXT, ru_device_policy_in, anchor, "",
           "methods scaled, profet: device type on which 'net' was timed"),
    RU_ROW(CHOICE, ru_device_policy_in, method, "trees",
           "trees: least squares with boosted trees (XGBoost); squares: least squares; ceer: by "
           "input size; median: by medians; paleo: one speed per type; scaled: from the anchor by "
           "roofline; profet: from the anchor by regression; cheapest, newest: rules of thumb",
           .choices = "trees|squares|ceer|median|paleo|scaled|profet|cheapest|newest"),
};

static const ru_conf_table table = RU_TABLE("device", ru_device_policy_in, fields,
                                            "devices for one training job", .check = check_in);

/* The planner's input with predicted steps. Rules of thumb report ours. */
static ru_status inner(const ru_device_policy_in *in, uint32_t method, const ru_policy_tools *tools,
                       ru_device_in *q, ru_err *err)
{
    static const ru_timing_method methods[METHODS] = {
        RU_TIMING_TREES,   RU_TIMING_SQUARES, RU_TIMING_CEER,    RU_TIMING_MEDIAN, RU_TIMING_PALEO,
        RU_TIMING_SQUARES, RU_TIMING_SQUARES, RU_TIMING_SQUARES, RU_TIMING_SQUARES};
    const ru_device_from from = {
        .method = methods[method], .scaled = method == SCALED, .profet = method == PROFET};
    RU_TRY(rui_device_predict(in, &from, tools, q, err));
    q->rule = method == CHEAPEST ? RU_DEVICE_CHEAPEST
              : method == NEWEST ? RU_DEVICE_NEWEST
                                 : RU_DEVICE_BEST;
    return RU_OK;
}

static ru_status plan_device(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_device_policy_plan *p = plan;
    RU_TRY(inner(in, ((const ru_device_policy_in *)in)->method, tools, &p->in, err));
    RU_TRY(ru_plan_device(&p->in, tools->out, tools->scratch, &p->plan, err));
    const ru_device_offer *o = &p->plan.lines[p->plan.chosen].offer;
    p->type = p->in.types[o->type].name;
    p->count = o->count;
    return RU_OK;
}

/* Types, prices and limits are those of the input; the plan itself by plan/cut/device_check.c. */
static ru_status check_device(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    (void)scratch;
    const ru_device_policy_in *i = in;
    const ru_device_policy_plan *p = plan;
    const ru_device_type_in *t = i->types.at;
    uint32_t offers = 0;
    for (uint32_t k = 0; k < i->types.n && k < p->in.n_types; k++) {
        offers += t[k].count_max;
        if (strcmp(t[k].name, p->in.types[k].name) != 0 ||
            fabs(t[k].usd_per_h - p->in.types[k].usd_per_h) > 0 ||
            t[k].memory_bytes != p->in.types[k].memory_bytes || !(p->in.types[k].factor >= 1) ||
            !(p->in.types[k].sure >= 0 && p->in.types[k].sure <= i->sure)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "type %u of the plan is not that of the input", k);
        }
    }
    if (p->in.n_types != i->types.n || p->in.n != offers || p->in.samples != i->samples ||
        p->in.batch != i->batch || p->in.memory_bytes != i->memory_bytes ||
        fabs(p->in.deadline_s - (double)i->deadline_ns * 1e-9) > 1e-9 * p->in.deadline_s ||
        fabs(p->in.budget_usd - i->budget_usd) > 0 || (uint32_t)p->in.goal != i->goal) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the plan answers another question");
    }
    RU_TRY(ru_plan_device_check(&p->in, &p->plan, err));
    const ru_device_offer *o = &p->plan.lines[p->plan.chosen].offer;
    return p->type == p->in.types[o->type].name && p->count == o->count
               ? RU_OK
               : RU_FAIL(err, RU_E_INFEASIBLE, "the plan names another offer than it chose");
}

static void offers_table(const ru_device_policy_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(
        r, "offers", "<type >devices >step_ms >job_h >usd >usd_at_most <keeps_limits <pareto");
    for (uint32_t i = 0; i < p->plan.n; i++) {
        const ru_device_line *l = &p->plan.lines[i];
        ru_table_str(t, p->in.types[l->offer.type].name);
        ru_table_i64(t, l->offer.count);
        ru_table_f64(t, l->offer.step_s * 1e3, 2);
        ru_table_f64(t, (double)l->job_ns / 3.6e12, 3);
        ru_table_f64(t, (double)l->cost_nusd * 1e-9, 3);
        ru_table_f64(t, (double)l->cost_most_nusd * 1e-9, 3);
        ru_table_bool(t, l->legal);
        ru_table_bool(t, l->pareto);
    }
}

/* What another method would choose, priced by the steps that the plan predicts. */
static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_device_policy_plan *p = v->plan, *mine = v->won;
    const ru_device_line *l = &mine->plan.lines[p->plan.chosen];
    bool cost = ((const ru_device_policy_in *)v->in)->goal == RU_DEVICE_COST;
    ru_rival_is(v, (double)(cost ? l->cost_nusd : l->job_ns) * 1e-9, l->legal,
                "%u x %s%s; it predicts steps of %.3g ms", p->count, p->type,
                l->legal ? "" : " breaks a limit",
                p->plan.lines[p->plan.chosen].offer.step_s * 1e3);
    return RU_OK;
}

/* Those for which the input has what they need. */
static ru_status put_candidates(const ru_device_policy_in *in, const ru_device_policy_plan *p,
                                const ru_policy_tools *tools, ru_report *r, ru_err *err)
{
    for (uint32_t m = 0; m < METHODS; m++) {
        ru_device_policy_in other = *in;
        ru_rival v = {.in = &other, .won_in = in, .won = p};
        ru_err why;
        other.method = m;
        if (m != in->method && check_in(&other, &why) == RU_OK) {
            RU_TRY(ru_policy_rival(&ru_policy_device, NULL, &v, tools, judge, r, err));
        }
    }
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_DECISION(TEXT, ru_device_policy_plan, type, "type"),
    RU_DECISION(U32, ru_device_policy_plan, count, "devices"),
};

static ru_status report_device(const void *in, const void *plan, const ru_policy_tools *tools,
                               ru_report *r, ru_err *err)
{
    const ru_device_policy_in *i = in;
    const ru_device_policy_plan *p = plan;
    const ru_device_line *l = &p->plan.lines[p->plan.chosen];
    const ru_device_type *t = &p->in.types[l->offer.type];
    bool cost = i->goal == RU_DEVICE_COST;
    ru_report_answer(r, "rent %u x %s", l->offer.count, t->name);
    double usd = (double)l->cost_nusd * 1e-9, job = (double)l->job_ns * 1e-9;
    ru_report_figure(r, cost ? "job_usd" : "job_s", cost ? usd : job);
    ru_report_figure(r, cost ? "job_s" : "job_usd", cost ? job : usd);
    ru_report_figure(r, "step_s", l->offer.step_s);
    ru_report_figure(r, "wrong_by_at_most", t->factor);
    offers_table(p, r);
    ru_policy_winner(&ru_policy_device, in, r, cost ? usd : job, l->legal, "chosen");
    RU_TRY(put_candidates(i, p, tools, r, err));
    ru_report_assume(
        r,
        "each device keeps its batch, so a step has %lld samples; the host reads data fast enough",
        (long long)(i->batch * l->offer.count));
    if (i->sure > 0) {
        for (uint32_t k = 0; k < p->in.n_types; k++) {
            const ru_device_type *one = &p->in.types[k];
            if (one->sure < i->sure) {
                ru_report_assume(r,
                                 "too few networks were timed on %s for a probability of %g: its "
                                 "limits hold with a probability of %.2g",
                                 one->name, i->sure, one->sure);
            }
        }
    }
    ru_report_trigger(r, "step_s", fmin(t->factor - 1 > 0 ? t->factor - 1 : 0.1, 1));
    return RU_OK;
}

const ru_policy ru_policy_device = {
    .name = "device",
    .version = 1,
    .decides = "which type of device to rent, and how many, for time or money",
    .source = "ceer-2020",
    .in = &table,
    .plan_bytes = sizeof(ru_device_policy_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_device,
    .check = check_device,
    .report = report_device,
    .example =
        "# Convolutions of five networks, timed on two types; which type trains a sixth for less?\n"
        "types:\n"
        "  - {name: t4, usd_per_h: 0.752, count_max: 4, memory: 16GB, released: 2018,\n"
        "     link_bytes_per_s: 6e9, bytes_per_s: 239e9, flops_per_s: 8.1e12}\n"
        "  - {name: v100, usd_per_h: 3.06, count_max: 4, memory: 16GB, released: 2017,\n"
        "     link_bytes_per_s: 12e9, bytes_per_s: 739e9, flops_per_s: 14e12}\n"
        "timed:\n"
        "  - {type: t4, net: a, op: conv/3x3, count: 2, in_bytes: 2.57e7, flops: 7.40e9,\n"
        "     out_bytes: 2.57e7, channels_in: 64, channels_out: 64, taps: 9, seconds: 0.00416}\n"
        "  - {type: t4, net: a, op: conv/1x1, count: 3, in_bytes: 2.57e7, flops: 8.22e8,\n"
        "     out_bytes: 2.57e7, channels_in: 64, channels_out: 64, seconds: 0.00147}\n"
        "  - {type: t4, net: b, op: conv/3x3, count: 4, in_bytes: 1.28e7, flops: 7.40e9,\n"
        "     out_bytes: 1.28e7, channels_in: 128, channels_out: 128, taps: 9, seconds: 0.008}\n"
        "  - {type: t4, net: b, op: conv/1x1, count: 5, in_bytes: 1.28e7, flops: 8.22e8,\n"
        "     out_bytes: 1.28e7, channels_in: 128, channels_out: 128, seconds: 0.00184}\n"
        "  - {type: t4, net: c, op: conv/3x3, count: 8, in_bytes: 6.42e6, flops: 7.40e9,\n"
        "     out_bytes: 6.42e6, channels_in: 256, channels_out: 256, taps: 9, seconds: 0.0153}\n"
        "  - {type: t4, net: c, op: conv/1x1, count: 9, in_bytes: 6.42e6, flops: 8.22e8,\n"
        "     out_bytes: 6.42e6, channels_in: 256, channels_out: 256, seconds: 0.00269}\n"
        "  - {type: t4, net: d, op: conv/3x3, count: 5, in_bytes: 1.93e7, flops: 1.66e10,\n"
        "     out_bytes: 1.93e7, channels_in: 192, channels_out: 192, taps: 9, seconds: 0.0193}\n"
        "  - {type: t4, net: d, op: conv/1x1, count: 6, in_bytes: 1.93e7, flops: 1.85e9,\n"
        "     out_bytes: 1.93e7, channels_in: 192, channels_out: 192, seconds: 0.0039}\n"
        "  - {type: t4, net: e, op: conv/3x3, count: 3, in_bytes: 3.85e7, flops: 1.66e10,\n"
        "     out_bytes: 3.85e7, channels_in: 96, channels_out: 96, taps: 9, seconds: 0.014}\n"
        "  - {type: t4, net: e, op: conv/1x1, count: 4, in_bytes: 3.85e7, flops: 1.85e9,\n"
        "     out_bytes: 3.85e7, channels_in: 96, channels_out: 96, seconds: 0.00346}\n"
        "  - {type: v100, net: a, op: conv/3x3, count: 2, in_bytes: 2.57e7, flops: 7.40e9,\n"
        "     out_bytes: 2.57e7, channels_in: 64, channels_out: 64, taps: 9, seconds: 0.00166}\n"
        "  - {type: v100, net: a, op: conv/1x1, count: 3, in_bytes: 2.57e7, flops: 8.22e8,\n"
        "     out_bytes: 2.57e7, channels_in: 64, channels_out: 64, seconds: 0.000508}\n"
        "  - {type: v100, net: b, op: conv/3x3, count: 4, in_bytes: 1.28e7, flops: 7.40e9,\n"
        "     out_bytes: 1.28e7, channels_in: 128, channels_out: 128, taps: 9, seconds: 0.00293}\n"
        "  - {type: v100, net: b, op: conv/1x1, count: 5, in_bytes: 1.28e7, flops: 8.22e8,\n"
        "     out_bytes: 1.28e7, channels_in: 128, channels_out: 128, seconds: 0.00066}\n"
        "  - {type: v100, net: c, op: conv/3x3, count: 8, in_bytes: 6.42e6, flops: 7.40e9,\n"
        "     out_bytes: 6.42e6, channels_in: 256, channels_out: 256, taps: 9, seconds: 0.00575}\n"
        "  - {type: v100, net: c, op: conv/1x1, count: 9, in_bytes: 6.42e6, flops: 8.22e8,\n"
        "     out_bytes: 6.42e6, channels_in: 256, channels_out: 256, seconds: 0.00106}\n"
        "  - {type: v100, net: d, op: conv/3x3, count: 5, in_bytes: 1.93e7, flops: 1.66e10,\n"
        "     out_bytes: 1.93e7, channels_in: 192, channels_out: 192, taps: 9, seconds: 0.00737}\n"
        "  - {type: v100, net: d, op: conv/1x1, count: 6, in_bytes: 1.93e7, flops: 1.85e9,\n"
        "     out_bytes: 1.93e7, channels_in: 192, channels_out: 192, seconds: 0.00145}\n"
        "  - {type: v100, net: e, op: conv/3x3, count: 3, in_bytes: 3.85e7, flops: 1.66e10,\n"
        "     out_bytes: 3.85e7, channels_in: 96, channels_out: 96, taps: 9, seconds: 0.00481}\n"
        "  - {type: v100, net: e, op: conv/1x1, count: 4, in_bytes: 3.85e7, flops: 1.85e9,\n"
        "     out_bytes: 3.85e7, channels_in: 96, channels_out: 96, seconds: 0.00135}\n"
        "net:\n"
        "  - {op: conv/3x3, count: 6, in_bytes: 1.61e7, out_bytes: 1.61e7, param_bytes: 9.22e5,\n"
        "     flops: 1.16e10, channels_in: 160, channels_out: 160, taps: 9}\n"
        "  - {op: conv/1x1, count: 4, in_bytes: 1.61e7, out_bytes: 1.61e7, param_bytes: 1.02e5,\n"
        "     flops: 1.28e9, channels_in: 160, channels_out: 160, taps: 1}\n"
        "samples: 100000000\n"
        "batch: 32\n"
        "deadline: 4h\n"
        "method: squares  # trees, the default, needs XGBoost\n",
};
