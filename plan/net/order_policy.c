/* The row of `order` in plan/row/policy.def: its input as a file, its report. */
#include "plan/net/order.h"
#include "plan/row/policy.h"

typedef struct order_op {
    const char *name;
    int64_t time_ns, param_bytes;
    ru_conf_i64s after;
} order_op;

typedef struct order_file {
    ru_order_in q;        /* without ops */
    ru_conf_sections ops; /* of order_op */
    double ratio;
    uint32_t seed;
} order_file;
_Static_assert(offsetof(order_file, q) == 0, "rows name fields of q");

static const ru_conf_field op_fields[] = {
    RU_ROW(TEXT, order_op, name, "", "name of the op in the plan; empty: its number"),
    RU_ROW_AS("time", TIME, order_op, time_ns, NULL, "compute time of the op", RU_IN(0, 1e15)),
    RU_ROW_AS("parameters", SIZE, order_op, param_bytes, "0",
              "bytes of parameters that the worker must receive before the op starts",
              RU_IN(0, 1e15)),
    RU_ROW(I64_LIST, order_op, after, "[]", "indexes (from 0) of the ops whose results it reads",
           RU_IN(0, RU_ORDER_OPS_MAX - 1)),
};

static const ru_conf_table op_table = RU_TABLE("op", order_op, op_fields, "one op of the step");

static ru_status check_file(const void *section, ru_err *err)
{
    const order_file *f = section;
    const order_op *ops = f->ops.at;
    if (f->ops.n < 1 || f->ops.n > RU_ORDER_OPS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'ops' has %u entries, expected 1 to %d", f->ops.n,
                       RU_ORDER_OPS_MAX);
    }
    double time = 0, bytes = 0;
    for (uint32_t i = 0; i < f->ops.n; i++) {
        for (uint32_t k = 0; k < ops[i].after.n; k++) {
            if (ops[i].after.at[k] >= f->ops.n || ops[i].after.at[k] == i) {
                return RU_FAIL(err, RU_E_ARG,
                               "ops[%u].after: there is no other op %lld, expected 0 to %u", i,
                               (long long)ops[i].after.at[k], f->ops.n - 1);
            }
        }
        time += (double)ops[i].time_ns;
        bytes += (double)ops[i].param_bytes;
    }
    if (f->ratio > 0 && (time <= 0 || bytes <= 0)) {
        return RU_FAIL(err, RU_E_ARG, "'ratio' needs ops with time and parameters");
    }
    if (f->q.credit_bytes < f->q.partition_bytes) {
        return RU_FAIL(err, RU_E_ARG, "'credit' must be at least one 'partition'");
    }
    double link =
        f->ratio > 0 ? time * f->ratio : bytes / f->q.link.bytes_per_s * 1e9 * f->q.workers;
    if (time * f->q.workers > 1e17 || link > 1e17) {
        return RU_FAIL(err, RU_E_ARG,
                       "a step would take longer than 3 years (compute %g s, link %g s)",
                       time * 1e-9, link * 1e-9);
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, order_file, ops, NULL,
           "ops of the step in the order in which they are requested", .table = &op_table),
    RU_ROW_AS("bytes_per_s", F64, ru_order_in, link.bytes_per_s, "125e6",
              "bandwidth of the server's link, shared by all workers", RU_IN(1, 1e15)),
    RU_ROW(F64, order_file, ratio, "0",
           "replaces bytes_per_s unless 0: transfer time of all workers divided by the compute "
           "time of one",
           RU_IN(0, 1e6)),
    RU_ROW_AS("overhead", TIME, ru_order_in, link.overhead_ns, "0s",
              "time that each transfer occupies the link in addition to its bytes", RU_IN(0, 1e12)),
    RU_ROW_AS("latency", TIME, ru_order_in, link.latency_ns, "0s",
              "time from leaving the link to arrival", RU_IN(0, 1e12)),
    RU_ROW(U32, ru_order_in, workers, "1", "workers that receive all parameters from the server",
           RU_IN(1, RU_ORDER_WORKERS_MAX)),
    RU_ROW_AS("slice", SIZE, ru_order_in, slice_bytes, "200000",
              "method p3: largest slice of a transfer", RU_IN(1, 1e15)),
    RU_ROW_AS("partition", SIZE, ru_order_in, partition_bytes, "4MB",
              "method bytescheduler: largest partition of a transfer", RU_IN(1, 1e15)),
    RU_ROW_AS("credit", SIZE, ru_order_in, credit_bytes, "16MB",
              "method bytescheduler: bytes that may be in flight for one worker", RU_IN(1, 1e15)),
    RU_ROW(U32, order_file, seed, "1", "methods random and fixed: seed of the order"),
    RU_ROW(CHOICE, ru_order_in, method, "best",
           "best: the shortest of all others; tac: by times of ops and transfers; tic: by the "
           "graph alone; others: baselines",
           .choices = RU_ORDER_NAMES),
};

static const ru_conf_table table =
    RU_TABLE("order", order_file, fields, "one step of a worker that receives parameters",
             .check = check_file);

static ru_status inner(const order_file *f, ru_arena *a, ru_order_in *in, ru_err *err)
{
    const order_op *ops = f->ops.at;
    uint32_t n = f->ops.n, n_edges = 0, e = 0;
    double time = 0, bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_edges += ops[i].after.n;
        time += (double)ops[i].time_ns;
        bytes += (double)ops[i].param_bytes;
    }
    int64_t *op_ns = RU_NEW(a, int64_t, n), *param_bytes = RU_NEW(a, int64_t, n);
    ru_step_edge *edges = RU_NEW(a, ru_step_edge, n_edges);
    if (op_ns == NULL || param_bytes == NULL || edges == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        op_ns[i] = ops[i].time_ns;
        param_bytes[i] = ops[i].param_bytes;
        for (uint32_t k = 0; k < ops[i].after.n; k++) {
            edges[e++] = (ru_step_edge){(uint32_t)ops[i].after.at[k], i};
        }
    }
    *in = f->q;
    in->n = n;
    in->op_ns = op_ns;
    in->param_bytes = param_bytes;
    in->edges = edges;
    in->n_edges = n_edges;
    in->link.bytes_per_s =
        f->ratio > 0 ? bytes * f->q.workers / (f->ratio * time * 1e-9) : f->q.link.bytes_per_s;
    in->seed = f->seed;
    return RU_OK;
}

static ru_status plan_order(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_order_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_order(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_order(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_order_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_order_check(&q, plan, scratch, err);
}

static void put_list(const order_file *f, const ru_order_plan *p, ru_report *r)
{
    const order_op *ops = f->ops.at;
    ru_table *t = ru_report_grid_of(r, p->n_lists > 1 ? "order of worker 0" : "order",
                                    ">place <op >bytes >rank");
    for (uint32_t k = 0; k < p->n_pieces; k++) {
        uint32_t op = p->pieces[k].op;
        ru_table_i64(t, k);
        if (ops[op].name[0] != '\0') {
            ru_table_str(t, ops[op].name);
        } else {
            ru_table_textf(t, "op %u", op);
        }
        ru_table_i64(t, p->pieces[k].size_bytes);
        ru_table_i64(t, p->rank[op]);
    }
}

/* What another method would take. */
static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_order_plan *p = v->plan, *mine = v->won;
    double s = (double)p->step_ns * 1e-9, more = s - (double)mine->step_ns * 1e-9;
    if (more == 0) {
        ru_rival_is(v, s, true, "takes as long");
    } else {
        ru_rival_is(v, s, true, "ops wait %.3g ms %s, efficiency %.2f",
                    1e3 * (more < 0 ? -more : more), more < 0 ? "less" : "longer", p->efficiency);
    }
    return RU_OK;
}

/* `best` is the shortest of the others: it is no runner-up of its own. */
static ru_status put_candidates(const order_file *f, const ru_order_plan *p,
                                const ru_policy_tools *tools, ru_report *r, ru_err *err)
{
    char by[32];
    ru_fields_choice(RU_ORDER_NAMES, p->method, by, sizeof by);
    ru_policy_winner(&ru_policy_order, f, r, (double)p->step_ns * 1e-9, true,
                     f->q.method == p->method ? "chosen" : "chosen: the order of %s", by);
    for (uint32_t m = RU_ORDER_BEST + 1; m < RU_ORDER_METHODS; m++) {
        order_file other = *f;
        ru_rival v = {.in = &other, .won_in = f, .won = p};
        other.q.method = (ru_order_method)m;
        if (other.q.method != f->q.method) {
            RU_TRY(ru_policy_rival(&ru_policy_order, NULL, &v, tools, judge, r, err));
        }
    }
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_DECISION(U32, ru_order_plan, n_pieces, "transfers"),
    RU_DECISION(CHOICE, ru_order_plan, method, "order", .choices = RU_ORDER_NAMES),
    RU_DECISION(U32, ru_order_plan, n_lists, "lists"),
};

static ru_status report_order(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const order_file *f = in;
    const ru_order_plan *p = plan;
    ru_report_answer(r, "send %u %s to %s in this order", p->n_pieces,
                     p->n_pieces == 1 ? "transfer" : "transfers",
                     f->q.workers == 1 ? "the worker" : "every worker");
    ru_report_figure(r, "step_s", (double)p->step_ns * 1e-9);
    ru_report_figure(r, "bound_s", (double)p->bound_ns * 1e-9);
    ru_report_figure(r, "efficiency", p->efficiency);
    ru_report_figure(r, "speedup_max", p->speedup_max);
    ru_report_figure(r, "straggle_s", (double)p->straggle_ns * 1e-9);
    put_list(f, p, r);
    RU_TRY(put_candidates(f, p, tools, r, err));
    ru_report_assume(r, "a worker computes one op at a time, in topological order as they become "
                        "ready; the link carries one transfer at a time");
    ru_report_assume(r, "all parameters are requested when the step begins; op times do not "
                        "include waiting for transfers");
    ru_report_trigger(r, "step_s", 0.2);
    return RU_OK;
}

const ru_policy ru_policy_order = {
    .name = "order",
    .version = 2,
    .decides = "in which order a worker receives its parameters",
    .source = "tictac-2019 sec 4",
    .in = &table,
    .plan_bytes = sizeof(ru_order_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_order,
    .check = check_order,
    .report = report_order,
    .example =
        "# A stem, two branches, a join and a classifier, in the order of their definition.\n"
        "bytes_per_s: 250e6\n"
        "ops:\n"
        "  - {name: stem, time: 1ms, parameters: 100KB}\n"
        "  - {name: left1, time: 1ms, parameters: 1MB, after: [0]}\n"
        "  - {name: left2, time: 2ms, parameters: 900KB, after: [1]}\n"
        "  - {name: right1, time: 5ms, parameters: 200KB, after: [0]}\n"
        "  - {name: right2, time: 3ms, parameters: 500KB, after: [3]}\n"
        "  - {name: pool, time: 500us, after: [4]}\n"
        "  - {name: join, time: 3ms, parameters: 300KB, after: [2, 5]}\n"
        "  - {name: classifier, time: 1ms, parameters: 800KB, after: [6]}\n",
};
