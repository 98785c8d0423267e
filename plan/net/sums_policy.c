/* The row of `sums` in plan/row/policy.def: its input as a file, its report. */
#include "plan/net/sums_policy.h"
#include "plan/net/sums_impl.h"
#include "plan/row/policy.h"

_Static_assert(offsetof(ru_sums_policy_in, q) == 0, "rows name fields of q");

/* As `primitive` names them; the first one stands for all. */
static const struct {
    const char *name;
    uint32_t algos;
} primitives[] = {{"auto", 1u << RU_ALGO_RING | 1u << RU_ALGO_HALVING | 1u << RU_ALGO_DOUBLING |
                               1u << RU_ALGO_TREE | 1u << RU_ALGO_DOUBLE_TREE},
                  {"ring", 1u << RU_ALGO_RING},
                  {"halving", 1u << RU_ALGO_HALVING},
                  {"doubling", 1u << RU_ALGO_DOUBLING},
                  {"tree", 1u << RU_ALGO_TREE},
                  {"double_tree", 1u << RU_ALGO_DOUBLE_TREE},
                  {"direct", 1u << RU_ALGO_DIRECT}};

static const ru_conf_field op_fields[] = {
    RU_ROW(TEXT, ru_sums_policy_op, name, "", "name of the op in the plan; empty: its number"),
    RU_ROW_AS("forward", TIME, ru_sums_policy_op, forward_ns, NULL, "time of its forward pass",
              RU_IN(0, 1e15)),
    RU_ROW_AS("backward", TIME, ru_sums_policy_op, backward_ns, NULL, "time of its backward pass",
              RU_IN(0, 1e15)),
    RU_ROW_AS("parameters", SIZE, ru_sums_policy_op, param_bytes, "0",
              "size of the gradient of its parameters; 0: it has no parameters", RU_IN(0, 1e15)),
    RU_ROW(I64_LIST, ru_sums_policy_op, after, "[]",
           "indexes (from 0) of the ops whose results its forward pass reads",
           RU_IN(0, RU_SUMS_OPS_MAX - 1)),
};

static const ru_conf_table op_table =
    RU_TABLE("op", ru_sums_policy_op, op_fields, "one op of the model");

/* Own costs of algorithms: such that the times of a step are whole numbers of ns. */
static ru_status check_costs(const ru_sums_policy_in *f, double bytes, ru_err *err)
{
    ru_coll_cost costs[RU_COLL_ALGOS];
    uint32_t any = f->costs.n == 0 || f->primitive != 0 ? 1 : 0;
    RU_TRY(ru_coll_policy_costs_check(&f->costs, err));
    ru_coll_policy_costs_into(&f->costs, costs);
    if (f->costs.n > 0 && f->ratio > 0) {
        return RU_FAIL(err, RU_E_ARG,
                       "'ratio' gives the rate of the network, and so do 'costs'; "
                       "expected one of them");
    }
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        const ru_coll_cost *c = &costs[a];
        ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, (ru_coll_algo)a, f->q.n_ranks);
        const char *name = ru_coll_algo_name((ru_coll_algo)a);
        if (c->n_points == 0) {
            continue;
        }
        any |= primitives[0].algos >> a & 1;
        if (a == RU_ALGO_HIERARCHY || !(c->beta_ns > 0) || c->n_at == 1) {
            return RU_FAIL(err, RU_E_ARG,
                           a == RU_ALGO_HIERARCHY ? "'costs' has %s, which sums here never use"
                           : c->n_at == 1
                               ? "'costs' of %s has one measured size, expected none or 2"
                               : "'costs' of %s needs beta_ns above 0",
                           name);
        }
        double byte = ru_cost_coll_byte_ns(c, RU_COLL_ALL_REDUCE, (ru_coll_algo)a, f->q.n_ranks);
        double most = (t.steps + 1) * c->alpha_ns + byte * bytes;
        for (uint32_t k = 0; k < c->n_at; k++) {
            most = (double)c->at[k].ns > most ? (double)c->at[k].ns : most;
        }
        if (!(most * RU_SUMS_PIECES_MAX < 5e17)) {
            return RU_FAIL(err, RU_E_ARG, "'costs' of %s: a sum of all gradients would take %g s",
                           name, most * 1e-9);
        }
    }
    return any != 0 ? RU_OK
                    : RU_FAIL(err, RU_E_ARG,
                              "'costs' has no algorithm that 'primitive' auto may take; expected "
                              "one of ring, halving, doubling, tree and double-tree");
}

static ru_status check_file(const void *section, ru_err *err)
{
    const ru_sums_policy_in *f = section;
    const ru_sums_policy_op *ops = f->ops.at;
    if (f->ops.n < 1 || f->ops.n > RU_SUMS_OPS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'ops' has %u entries, expected 1 to %d", f->ops.n,
                       RU_SUMS_OPS_MAX);
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
        time += (double)ops[i].forward_ns + (double)ops[i].backward_ns;
        bytes += (double)ops[i].param_bytes;
    }
    if (f->made.n != 0 && f->made.n != f->ops.n) {
        return RU_FAIL(err, RU_E_ARG, "'backward' has %u entries, but there are %u ops", f->made.n,
                       f->ops.n);
    }
    if (bytes < 1) {
        return RU_FAIL(err, RU_E_ARG, "no op has parameters, so there is nothing to sum");
    }
    if (f->ratio > 0 && time <= 0) {
        return RU_FAIL(err, RU_E_ARG, "'ratio' needs ops that take time");
    }
    RU_TRY(check_costs(f, bytes, err));
    double moved = bytes * f->q.n_ranks / f->bytes_per_s * 1e9;
    double start = (double)f->q.alpha_ns * f->q.n_ranks * RU_SUMS_PIECES_MAX;
    if (time > 1e15 || time * f->ratio > 1e15 || moved > 1e15 || start > 1e17) {
        return RU_FAIL(err, RU_E_ARG,
                       "a step would take longer than ten days (compute %g s, network %g s)",
                       time * 1e-9, moved * 1e-9);
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, ru_sums_policy_in, ops, NULL,
           "ops of the model in the order of the forward pass", .table = &op_table),
    RU_ROW_AS("ranks", U32, ru_sums_in, n_ranks, "4", "number of workers that sum their gradients",
              RU_IN(2, 65536)),
    RU_ROW_AS("alpha", TIME, ru_sums_in, alpha_ns, "40us",
              "time of each step of an algorithm besides its bytes", RU_IN(0, 1e9)),
    RU_ROW(F64, ru_sums_policy_in, bytes_per_s, "119.5e6",
           "bandwidth of one direction of a worker's link", RU_IN(1, 1e15)),
    RU_ROW(F64, ru_sums_policy_in, added_bytes_per_s, "0",
           "speed at which a worker adds two buffers; 0: adding takes no time", RU_IN(0, 1e15)),
    RU_ROW(SECTIONS, ru_sums_policy_in, costs, "",
           "measured costs of single algorithms, of which primitive auto takes one; a primitive "
           "that is not among them costs what alpha, bytes_per_s and added_bytes_per_s say",
           .table = &ru_coll_policy_cost_table),
    RU_ROW(F64, ru_sums_policy_in, ratio, "0",
           "replaces bytes_per_s unless 0: transfer time of a ring divided by the compute time",
           RU_IN(0, 1e6)),
    RU_ROW(CHOICE, ru_sums_policy_in, primitive, "auto",
           "all-reduce algorithm; auto: the fastest for each size",
           .choices = "auto|ring|halving|doubling|tree|double_tree|direct"),
    RU_ROW_AS("depth", U32, ru_sums_in, depth_max, "8", "largest number of sums in flight",
              RU_IN(1, RU_SUMS_DEPTH_MAX)),
    RU_ROW_AS("backward", I64_LIST, ru_sums_policy_in, made, "[]",
              "indexes of all ops in the order in which the machine runs their backward pass; "
              "empty: to be chosen",
              RU_IN(0, RU_SUMS_OPS_MAX - 1)),
    RU_ROW(F64, ru_sums_in, gain_min, "0.02",
           "method caramel: smallest part of the step that must be gained without a barrier; below "
           "it the barrier stays",
           RU_IN(0, 1)),
    RU_ROW(BOOL, ru_sums_in, barrier, "false",
           "every step waits for all sums, as clipping by the global norm requires"),
    RU_ROW(TEXT, ru_sums_policy_in, why, "", "why 'barrier' is true, for the report"),
    RU_ROW(CHOICE, ru_sums_in, method, "caramel",
           "caramel: by search; rule: by formula; others: baselines",
           .choices = "caramel|rule|none|serial|fifo|ddp|horovod|mgwfbp|p3|bytescheduler"),
};

static const ru_conf_table table = RU_TABLE("sums", ru_sums_policy_in, fields,
                                            "one data-parallel training step", .check = check_file);

ru_status ru_sums_in_of(const ru_sums_policy_in *f, ru_arena *a, ru_sums_in *in, ru_err *err)
{
    const ru_sums_policy_op *ops = f->ops.at;
    uint32_t n = f->ops.n, n_edges = 0, e = 0;
    double time = 0, bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_edges += ops[i].after.n;
        time += (double)ops[i].forward_ns + (double)ops[i].backward_ns;
        bytes += (double)ops[i].param_bytes;
    }
    int64_t *forward = RU_NEW(a, int64_t, n), *backward = RU_NEW(a, int64_t, n);
    int64_t *param_bytes = RU_NEW(a, int64_t, n);
    ru_step_edge *edges = RU_NEW(a, ru_step_edge, n_edges);
    uint32_t *made = RU_NEW(a, uint32_t, f->made.n);
    if (forward == NULL || backward == NULL || param_bytes == NULL || edges == NULL ||
        made == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        forward[i] = ops[i].forward_ns;
        backward[i] = ops[i].backward_ns;
        param_bytes[i] = ops[i].param_bytes;
        for (uint32_t k = 0; k < ops[i].after.n; k++) {
            edges[e++] = (ru_step_edge){(uint32_t)ops[i].after.at[k], i};
        }
    }
    for (uint32_t k = 0; k < f->made.n; k++) {
        made[k] = (uint32_t)f->made.at[k];
    }
    double sent = 2.0 * ((double)f->q.n_ranks - 1) / f->q.n_ranks;
    *in = f->q;
    in->n = n;
    in->forward_ns = forward;
    in->backward_ns = backward;
    in->param_bytes = param_bytes;
    in->edges = edges;
    in->n_edges = n_edges;
    in->made = f->made.n > 0 ? made : NULL;
    in->beta_ns = f->ratio > 0 ? f->ratio * time / (bytes * sent) : 1e9 / f->bytes_per_s;
    in->gamma_ns = f->added_bytes_per_s > 0 ? 1e9 / f->added_bytes_per_s : 0;
    in->algos = primitives[f->primitive].algos;
    ru_coll_cost *costs = f->costs.n > 0 ? RU_NEW(a, ru_coll_cost, RU_COLL_ALGOS) : NULL;
    if (f->costs.n > 0 && costs == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the costs of collectives");
    }
    if (costs != NULL) {
        ru_coll_policy_costs_into(&f->costs, costs);
    }
    for (uint32_t k = 0; costs != NULL && f->primitive == 0 && k < RU_COLL_ALGOS; k++) {
        in->algos &= costs[k].n_points > 0 ? UINT32_MAX : ~(1u << k);
    }
    in->costs = costs;
    return RU_OK;
}

static ru_status plan_sums(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_sums_in q;
    RU_TRY(ru_sums_in_of(in, tools->scratch, &q, err));
    return ru_plan_sums(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_sums(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_sums_in q;
    RU_TRY(ru_sums_in_of(in, scratch, &q, err));
    return ru_plan_sums_check(&q, plan, scratch, err);
}

static void put_name(ru_table *t, const ru_sums_policy_in *f, uint32_t op)
{
    const ru_sums_policy_op *ops = f->ops.at;
    if (ops[op].name[0] != '\0') {
        ru_table_str(t, ops[op].name);
    } else {
        ru_table_textf(t, "op %u", op);
    }
}

static void put_buckets(const ru_sums_policy_in *f, const ru_sums_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(r, "buckets, in the order of launch",
                                    "<first <last >tensors >bytes >chunk <primitive");
    for (uint32_t i = 0; i < p->n_buckets; i++) {
        const ru_sums_bucket *b = &p->buckets[i];
        put_name(t, f, p->tensors[b->first]);
        put_name(t, f, p->tensors[b->first + b->n - 1]);
        ru_table_i64(t, b->n);
        ru_table_i64(t, b->size_bytes);
        ru_table_i64(t, b->chunk_bytes);
        ru_table_str(t, ru_coll_algo_name(b->algo));
    }
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_sums_plan *p = v->plan, *mine = v->won;
    double s = (double)p->step_ns * 1e-9;
    double more = ((double)p->step_ns - (double)mine->step_ns) * 1e-9;
    if (p->step_ns == mine->step_ns) {
        ru_rival_is(v, s, true, "takes as long");
    } else if (more < 0 && !mine->barrier && -more <= RUI_SUMS_TIE * s) {
        ru_rival_beside(v, s, "takes as long within 0.01 %%, with %u sums", p->n_pieces);
    } else if (more < 0 && mine->barrier && mine->free_ns > 0 && !p->barrier) {
        ru_rival_beside(v, s, "%.3g ms less with %u sums, without a barrier: less than gain_min",
                        -1e3 * more, p->n_pieces);
    } else {
        ru_rival_is(v, s, true, "%.3g ms %s with %u %s, %s", 1e3 * (more < 0 ? -more : more),
                    more < 0 ? "less" : "longer", p->n_pieces, p->n_pieces == 1 ? "sum" : "sums",
                    p->barrier ? "barrier" : "no barrier");
    }
    return RU_OK;
}

/* The same method with one primitive for all sizes. */
static ru_status put_only(const ru_sums_policy_in *f, uint32_t primitive, const ru_sums_plan *p,
                          const ru_policy_tools *tools, ru_report *r, ru_err *err)
{
    char name[64];
    ru_text t = ru_text_into(name, sizeof name);
    ru_sums_policy_in other = *f;
    ru_rival v = {.in = &other, .won_in = f, .won = p};
    other.primitive = primitive;
    ru_text_putf(&t, "caramel, %s only", primitives[primitive].name);
    return ru_policy_rival(&ru_policy_sums, name, &v, tools, judge, r, err);
}

static const ru_report_row rows[] = {
    RU_FIGURE(NS, ru_sums_plan, step_ns, "step_s"),
    RU_FIGURE(NS, ru_sums_plan, bound_ns, "bound_s"),
    RU_FIGURE(NS, ru_sums_plan, compute_ns, "compute_s"),
    RU_FIGURE(NS, ru_sums_plan, held_ns, "barrier_s"),
    RU_DECISION(U32, ru_sums_plan, n_tensors, "gradients"),
    RU_DECISION(U32, ru_sums_plan, n_buckets, "buckets"),
    RU_DECISION(U32, ru_sums_plan, n_pieces, "pieces"),
    RU_DECISION(U32, ru_sums_plan, depth, "sums_in_flight"),
    RU_DECISION(BOOL, ru_sums_plan, by_priority, "by_priority"),
    RU_DECISION(BOOL, ru_sums_plan, barrier, "barrier"),
    RU_DECISION(BOOL, ru_sums_plan, after, "after_backward"),
    RU_DECISION(U32, ru_sums_plan, tensors, "op_of_gradient", RU_LIST(ru_sums_plan, n_tensors)),
};

/* What an ideal order could save, and why there is a barrier. */
static void put_gain(const ru_sums_policy_in *f, const ru_sums_plan *p, ru_report *r)
{
    double step = (double)p->step_ns, less = step - (double)p->bound_ns;
    ru_report_answer(r, "an ideal order would save %.3g ms of %.3g ms (%.2g %%) at most",
                     1e-6 * less, 1e-6 * step, step > 0 ? 100 * less / step : 0);
    if (!p->barrier) {
        return;
    }
    if (p->free_ns > 0) {
        ru_report_answer(r,
                         "barrier: without it a step would be only %.2g %% shorter, less than "
                         "gain_min",
                         100 * (1 - (double)p->free_ns / step));
    } else {
        const char *asked = f->why[0] != '\0' ? f->why : "the input asks for it";
        ru_report_answer(r, "barrier: %s",
                         f->q.barrier                     ? asked
                         : f->q.method == RU_SUMS_CARAMEL ? "no way without it has a shorter step"
                                                          : "the method has one");
    }
}

static ru_status report_sums(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const ru_sums_policy_in *f = in;
    const ru_sums_plan *p = plan;
    ru_report_answer(r, "sum %u gradients in %u %s, %u %s of a step, %u in flight", p->n_tensors,
                     p->n_buckets, p->n_buckets == 1 ? "bucket" : "buckets", p->n_pieces,
                     p->n_pieces == 1 ? "piece" : "pieces", p->depth);
    ru_report_answer(r, "%s; %s",
                     p->by_priority ? "of the pieces that are ready, the one that the next forward "
                                      "pass needs first is sent first"
                                    : "buckets are sent in order",
                     p->barrier ? "the next step waits for all sums"
                                : "a forward op waits for the sums of its own parameters only");
    put_gain(f, p, r);
    put_buckets(f, p, r);
    RU_TRY(ru_policy_rivals(&ru_policy_sums, in, plan, tools, judge, r, err));
    for (uint32_t k = 1; k <= 4 && f->primitive == 0 && f->q.method == RU_SUMS_CARAMEL; k += 3) {
        bool known = f->costs.n == 0; /* beside measured ones that is no comparison */
        for (uint32_t i = 0; i < f->costs.n; i++) {
            known = known || (primitives[k].algos >> f->costs.at[i].algo & 1) != 0;
        }
        RU_TRY(known ? put_only(f, k, p, tools, r, err) : RU_OK);
    }
    ru_report_assume(r, "every rank computes the same ops in the same time and order; updates of "
                        "parameters take no time");
    ru_report_assume(
        r,
        "a sum takes steps * alpha + bytes * beta + bytes * gamma, also if others use the network");
    ru_report_trigger(r, "step_s", 0.2);
    return RU_OK;
}

/* Gradients that steps of the list make, in this order. */
static uint32_t gradients_of(const ru_world *w, bool updates, const ru_transfer_fact **at)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->facts.transfers.n && n < RU_SUMS_OPS_MAX; i++) {
        const ru_transfer_fact *x = &w->facts.transfers.at[i];
        if (x->made_by < 0 || (updates && x->needed_by < 0) || x->size_bytes < 1) {
            continue;
        }
        uint32_t k = n++;
        for (; k > 0 && at[k - 1]->made_by > x->made_by; k--) {
            at[k] = at[k - 1];
        }
        at[k] = x;
    }
    return n;
}

/* Times of the list of the first worker in the facts: the median where it is known. */
static double *list_of(const ru_world *w, ru_arena *a, uint32_t *n)
{
    const ru_op_fact *ops = w->facts.ops.at;
    *n = 0;
    for (uint32_t i = 0; i < w->facts.ops.n && ops[i].rank == ops[0].rank; i++) {
        *n = ops[i].step >= *n ? ops[i].step + 1 : *n;
    }
    double *ns = RU_NEW(a, double, *n);
    for (uint32_t i = 0; ns != NULL && i < w->facts.ops.n && ops[i].rank == ops[0].rank; i++) {
        const ru_fact *took = &ops[i].took;
        ns[ops[i].step] = took->median_ns > 0 ? (double)took->median_ns : took->mean_ns;
    }
    return ns;
}

/* Files of before `used_by`: the forward pass reads parameters in the reverse order of their
 * gradients and takes half as long as the backward pass, as for layers of matrix products. The ops
 * between two gradients are the backward pass of the second one. */
static void guess(const double *ns, ru_sums_facts *f, ru_sums_grad *grads, double *list)
{
    uint32_t n = f->n_grads, first = grads[0].made;
    double before = 0, backward = 0;
    for (uint32_t i = 0; i <= grads[n - 1].made; i++) {
        *(i <= first ? &before : &backward) += ns[i];
    }
    double rest = (before - backward / 2) / 3; /* of the last op, whose backward comes first */
    rest = rest > 0 ? rest : 0;
    for (uint32_t k = 0; k < n; k++) { /* n forward passes, then n backward */
        uint32_t from = k > 0 ? grads[k - 1].made : first;
        double back = k == 0 ? 2 * rest : 0;
        for (uint32_t i = from + 1; i <= grads[k].made; i++) {
            back += ns[i];
        }
        list[n - 1 - k] = k == 0 ? rest : back / 2;
        list[n + k] = back;
    }
    for (uint32_t k = 0; k < n; k++) {
        grads[k].used = n - 1 - k;
        grads[k].made = n + k;
    }
    f->step_ns = list;
    f->n_steps = f->update_from = 2 * n;
}

static void put_time(ru_json *j, const char *key, int64_t ns)
{
    char text[32];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "%lldns", (long long)ns);
    ru_json_str(j, key, text);
}

static void put_input(const ru_sums_policy_in *in, bool measured, ru_json *j)
{
    ru_json_open(j, "ops", '[');
    for (uint32_t i = 0; i < in->ops.n; i++) {
        const ru_sums_policy_op *op = &in->ops.at[i];
        char size[32];
        ru_text t = ru_text_into(size, sizeof size);
        ru_text_putf(&t, "%lldB", (long long)op->param_bytes);
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", op->name);
        put_time(j, "forward", op->forward_ns);
        put_time(j, "backward", op->backward_ns);
        ru_json_str(j, "parameters", size);
        ru_json_close(j);
    }
    ru_json_close(j);
    ru_json_open(j, "backward", '[');
    for (uint32_t k = 0; k < in->made.n; k++) {
        ru_json_i64(j, NULL, in->made.at[k]);
    }
    ru_json_close(j);
    ru_json_i64(j, "ranks", in->q.n_ranks);
    if (measured) {
        put_time(j, "alpha", in->q.alpha_ns);
        ru_json_f64(j, "bytes_per_s", in->bytes_per_s);
    }
    if (in->primitive != 0) {
        ru_json_str(j, "primitive", primitives[in->primitive].name);
    }
    ru_coll_policy_costs_put(&in->costs, j);
}

static ru_status facts_of(const ru_world *w, ru_arena *a, ru_sums_facts *f, ru_err *err)
{
    bool told = false;
    uint32_t n = w->facts.transfers.n, n_ns = 0;
    for (uint32_t i = 0; i < n; i++) {
        told = told || w->facts.transfers.at[i].used_by >= 0;
    }
    for (uint32_t i = 0; i < w->facts.steps.n; i++) {
        uint32_t workers = w->facts.steps.at[i].workers;
        f->n_ranks = workers > f->n_ranks ? workers : f->n_ranks;
    }
    const ru_transfer_fact **at = RU_NEW(a, const ru_transfer_fact *, (int64_t)n + 1);
    ru_sums_grad *grads = RU_NEW(a, ru_sums_grad, (int64_t)n + 1);
    double *ns = w->facts.ops.n > 0 ? list_of(w, a, &n_ns) : NULL;
    double *list = RU_NEW(a, double, 2 * (int64_t)n + 1);
    if (at == NULL || grads == NULL || list == NULL || (ns == NULL && w->facts.ops.n > 0)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u gradients", n);
    }
    n = gradients_of(w, !told, at);
    if (n == 0 || w->facts.ops.n == 0 || f->n_ranks < 2 || at[n - 1]->made_by >= n_ns) {
        return RU_FAIL(err, RU_E_MISSING,
                       "facts.ops must hold the times of ops, facts.transfers the gradients that "
                       "they make, and facts.steps the steps of two workers or more");
    }
    f->step_ns = ns;
    f->n_steps = f->update_from = n_ns;
    f->grads = grads;
    f->n_grads = n;
    for (uint32_t k = 0; k < n; k++) {
        int64_t used = at[k]->used_by, read = at[k]->needed_by;
        grads[k] = (ru_sums_grad){.name = at[k]->name,
                                  .size_bytes = at[k]->size_bytes,
                                  .made = (uint32_t)at[k]->made_by,
                                  .used = used >= 0 ? (uint32_t)used : UINT32_MAX};
        bool first = read >= 0 && read < f->update_from && read > at[n - 1]->made_by;
        f->update_from = first ? (uint32_t)read : f->update_from;
    }
    if (!told) {
        guess(ns, f, grads, list);
    }
    return RU_OK;
}

/* The list of the first worker, the gradients that it makes, and what sums in a ring cost. */
static ru_status derive_sums(const ru_world *w, ru_arena *scratch, ru_json *j, ru_err *err)
{
    ru_sums_facts f = {.deterministic = w->jobs.n > 0 && w->jobs.at[0].deterministic};
    ru_coll_cost costs[RU_COLL_ALGOS];
    ru_sums_policy_in in;
    ru_coll_policy_fits(w, costs);
    f.costs = costs;
    RU_TRY(facts_of(w, scratch, &f, err));
    RU_TRY(ru_sums_policy_in_of(&f, scratch, &in, err));
    put_input(&in, in.costs.n > 0, j);
    return RU_OK;
}

const ru_policy ru_policy_sums = {
    .name = "sums",
    .version = 5,
    .decides = "how gradients are ordered, grouped into buckets, cut and summed over workers",
    .source = "caramel-2020",
    .in = &table,
    .plan_bytes = sizeof(ru_sums_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_sums,
    .check = check_sums,
    .report = report_sums,
    .derive = derive_sums,
    .example = "# A small network: many small convolutions, one large classifier; 1 Gbit/s.\n"
               "ranks: 4\n"
               "alpha: 40us\n"
               "bytes_per_s: 119.5e6\n"
               "ops:\n"
               "  - {name: stem, forward: 4ms, backward: 6ms, parameters: 40KB}\n"
               "  - {name: left1, forward: 6ms, backward: 11ms, parameters: 300KB, after: [0]}\n"
               "  - {name: left2, forward: 5ms, backward: 9ms, parameters: 600KB, after: [1]}\n"
               "  - {name: right1, forward: 2ms, backward: 4ms, parameters: 900KB, after: [0]}\n"
               "  - {name: join, forward: 3ms, backward: 5ms, parameters: 20KB, after: [2, 3]}\n"
               "  - {name: conv, forward: 6ms, backward: 11ms, parameters: 1200KB, after: [4]}\n"
               "  - {name: classifier, forward: 1ms, backward: 2ms, parameters: 2MB, after: [5]}\n",
};
