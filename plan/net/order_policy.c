/* The row of `order` in plan/row/policy.def: its input as a file, its report. */
#include "plan/net/order_policy.h"
#include "plan/net/coll_policy.h"
#include "plan/row/policy.h"

_Static_assert(offsetof(ru_order_policy_in, q) == 0, "rows name fields of q");

static const ru_conf_field op_fields[] = {
    RU_ROW(TEXT, ru_order_policy_op, name, "", "name of the op in the plan; empty: its number"),
    RU_ROW_AS("time", TIME, ru_order_policy_op, time_ns, NULL, "compute time of the op",
              RU_IN(0, 1e15)),
    RU_ROW_AS("parameters", SIZE, ru_order_policy_op, param_bytes, "0",
              "bytes of parameters that the worker must receive before the op starts",
              RU_IN(0, 1e15)),
    RU_ROW(I64_LIST, ru_order_policy_op, after, "[]",
           "indexes (from 0) of the ops whose results it reads", RU_IN(0, RU_ORDER_OPS_MAX - 1)),
};

static const ru_conf_table op_table =
    RU_TABLE("op", ru_order_policy_op, op_fields, "one op of the step");

static ru_status check_file(const void *section, ru_err *err)
{
    const ru_order_policy_in *f = section;
    const ru_order_policy_op *ops = f->ops.at;
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
    RU_ROW(SECTIONS, ru_order_policy_in, ops, NULL,
           "ops of the step in the order in which they are requested", .table = &op_table),
    RU_ROW_AS("bytes_per_s", F64, ru_order_in, link.bytes_per_s, "125e6",
              "bandwidth of the server's link, shared by all workers", RU_IN(1, 1e15)),
    RU_ROW(F64, ru_order_policy_in, ratio, "0",
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
    RU_ROW(U32, ru_order_policy_in, seed, "1", "methods random and fixed: seed of the order"),
    RU_ROW(CHOICE, ru_order_in, method, "best",
           "best: the shortest of all others; tac: by times of ops and transfers; tic: by the "
           "graph alone; others: baselines",
           .choices = RU_ORDER_NAMES),
};

static const ru_conf_table table =
    RU_TABLE("order", ru_order_policy_in, fields, "one step of a worker that receives parameters",
             .check = check_file);

ru_status ru_order_in_of(const ru_order_policy_in *f, ru_arena *a, ru_order_in *in, ru_err *err)
{
    const ru_order_policy_op *ops = f->ops.at;
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
    RU_TRY(ru_order_in_of(in, tools->scratch, &q, err));
    return ru_plan_order(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_order(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_order_in q;
    RU_TRY(ru_order_in_of(in, scratch, &q, err));
    return ru_plan_order_check(&q, plan, scratch, err);
}

static void put_list(const ru_order_policy_in *f, const ru_order_plan *p, ru_report *r)
{
    const ru_order_policy_op *ops = f->ops.at;
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
    double s = (double)p->step_ns * 1e-9, more = (double)(p->step_ns - mine->step_ns) * 1e-9;
    if (p->step_ns == mine->step_ns) {
        ru_rival_is(v, s, true, "takes as long");
    } else {
        ru_rival_is(v, s, true, "ops wait %.3g ms %s, efficiency %.2f",
                    1e3 * (more < 0 ? -more : more), more < 0 ? "less" : "longer", p->efficiency);
    }
    return RU_OK;
}

/* `best` is the shortest of the others: it is no runner-up of its own. */
static ru_status put_candidates(const ru_order_policy_in *f, const ru_order_plan *p,
                                const ru_policy_tools *tools, ru_report *r, ru_err *err)
{
    char by[32];
    ru_fields_choice(RU_ORDER_NAMES, p->method, by, sizeof by);
    ru_policy_winner(&ru_policy_order, f, r, (double)p->step_ns * 1e-9, true,
                     f->q.method == p->method ? "chosen" : "chosen: the order of %s", by);
    for (uint32_t m = RU_ORDER_BEST + 1; m < RU_ORDER_METHODS; m++) {
        ru_order_policy_in other = *f;
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
    const ru_order_policy_in *f = in;
    const ru_order_plan *p = plan;
    ru_report_answer(r, "send %u %s to %s in this order", p->n_pieces,
                     p->n_pieces == 1 ? "transfer" : "transfers",
                     f->q.workers == 1 ? "the worker" : "every worker");
    double step = (double)p->step_ns, less = step - (double)p->bound_ns;
    ru_report_answer(r, "an ideal order would save %.3g ms of %.3g ms (%.2g %%) at most",
                     1e-6 * less, 1e-6 * step, step > 0 ? 100 * less / step : 0);
    ru_report_figure(r, "step_s", step * 1e-9);
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

static void put_number(ru_json *j, const char *key, double value, const char *unit)
{
    char text[40];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "%.0f%s", value > 0 ? value : 0, unit);
    ru_json_str(j, key, text);
}

/* The list of the first worker up to the updates: by step what it takes at least, and the
 * parameters that it reads first. */
static ru_status put_steps(const ru_world *w, ru_arena *a, ru_json *j, ru_err *err)
{
    const ru_op_fact *ops = w->facts.ops.at;
    uint32_t n = 0;
    while (n < w->facts.ops.n && ops[n].rank == ops[0].rank) {
        n++;
    }
    int64_t *bytes = RU_NEW(a, int64_t, (int64_t)n + 1), all = 0, end = INT64_MAX;
    if (bytes == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops", n);
    }
    for (uint32_t i = 0; i < w->facts.transfers.n; i++) {
        const ru_transfer_fact *x = &w->facts.transfers.at[i];
        if (x->used_by >= 0 && x->used_by < n && ops[x->used_by].step == x->used_by) {
            bytes[x->used_by] += x->size_bytes;
            all += x->size_bytes;
        }
        end = x->needed_by >= 0 && x->needed_by < end ? x->needed_by : end;
    }
    if (all == 0 || n > RU_ORDER_OPS_MAX) {
        return RU_FAIL(err, RU_E_MISSING,
                       "facts.ops must hold the times of up to %d ops, and facts.transfers the "
                       "steps that read their parameters ('used_by')",
                       RU_ORDER_OPS_MAX);
    }
    ru_json_open(j, "ops", '[');
    for (uint32_t i = 0; i < n && ops[i].step < end; i++) {
        const ru_fact *took = &ops[i].took;
        double ns = took->min_ns > 0 ? (double)took->min_ns : took->mean_ns;
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", ops[i].node);
        put_number(j, "time", ns, "ns");
        put_number(j, "parameters", (double)bytes[i], "B");
        ru_json_open(j, "after", '[');
        for (uint32_t k = 0; k < ops[i].after.n; k++) {
            ru_json_i64(j, NULL, ops[i].after.at[k]);
        }
        ru_json_close(j);
        ru_json_close(j);
    }
    ru_json_close(j);
    return RU_OK;
}

/* The link that carried what was pulled, by the time that each tensor took alone on it; 0: nothing
 * was. */
static double pulled_bytes_per_s(const ru_world *w)
{
    double bytes = 0, ns = 0;
    for (uint32_t i = 0; i < w->facts.transfers.n; i++) {
        const ru_transfer_fact *x = &w->facts.transfers.at[i];
        if (x->made_by < 0 && x->used_by >= 0 && x->took.mean_ns > 0) {
            bytes += (double)x->size_bytes;
            ns += x->took.min_ns > 0 ? (double)x->took.min_ns : x->took.mean_ns;
        }
    }
    return ns > 0 ? bytes / ns * 1e9 : 0;
}

/* As if one server had the parameters of all workers, behind the link that they were pulled over,
 * or else one as fast as those that summed gradients in a ring. */
static ru_status derive_order(const ru_world *w, ru_arena *scratch, ru_json *j, ru_err *err)
{
    uint32_t workers = 1;
    for (uint32_t i = 0; i < w->facts.steps.n; i++) {
        uint32_t n = w->facts.steps.at[i].workers;
        workers = n > workers && n <= RU_ORDER_WORKERS_MAX ? n : workers;
    }
    RU_TRY(put_steps(w, scratch, j, err));
    ru_coll_cost costs[RU_COLL_ALGOS];
    ru_coll_policy_fits(w, costs);
    double pulled = pulled_bytes_per_s(w);
    if (pulled > 0) {
        ru_json_f64(j, "bytes_per_s", pulled);
    } else if (costs[RU_ALGO_RING].n_points > 0 && costs[RU_ALGO_RING].beta_ns > 0) {
        uint32_t n = w->facts.collectives.at->n_ranks;
        ru_json_f64(j, "bytes_per_s", 1e9 / ru_cost_coll_carried_ns(&costs[RU_ALGO_RING], n));
    }
    ru_json_i64(j, "workers", workers);
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
    .derive = derive_order,
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
