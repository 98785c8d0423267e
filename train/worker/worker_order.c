/* The order in which workers get sums back from servers: that in which the next step reads the
 * parameters, by the policy `order`.
 *
 *   compute thread, a step is built or some of it are measured   ops, bytes --> ranks
 *   loop thread, where it leads: a view begins                   the ranks of that time
 *
 * Ops that nobody has measured cost what plan/net/order.h takes them to cost: then the graph and
 * sizes decide. With measured times the order is made again, and a new one begins a view. */
#include <string.h>

#include "base/log.h"
#include "plan/net/order_policy.h"
#include "train/worker/worker_impl.h"

/* In the order of the job's key. All workers get sums in one order: `random` is one for all. */
static const ru_order_method methods[] = {RU_ORDER_BEST,  RU_ORDER_BEST,    RU_ORDER_TAC,
                                          RU_ORDER_TIC,   RU_ORDER_FIXED,   RU_ORDER_FIFO,
                                          RU_ORDER_LAYER, RU_ORDER_REVERSE, RU_ORDER_SMALLEST};

ru_status rui_order_open(rui_worker *w, ru_err *err)
{
    w->plan.rank = RU_NEW(w->arena, uint32_t, w->list.n_tensors);
    return w->plan.rank != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a worker");
}

/* The steps of the list before the update; each parameter belongs to the first that reads it. */
static ru_status ask(const rui_worker *w, ru_arena *arena, ru_order_policy_in *in, ru_err *err)
{
    ru_op_fact *ops;
    uint32_t n, end = UINT32_MAX;
    RU_TRY(ru_exe_ops(w->now->exe, 0, arena, &ops, &n, err));
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        end = w->now->tensors[k].read < end ? w->now->tensors[k].read : end;
    }
    n = n < end ? n : end;
    ru_order_policy_op *at = RU_NEW(arena, ru_order_policy_op, n);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the order of %u ops", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        bool measured = ops[k].took.count > 0;
        int64_t ns = measured ? (int64_t)ops[k].took.mean_ns
                              : ru_order_op_ns((double)ops[k].flops, (double)ops[k].bytes);
        at[k] = (ru_order_policy_op){.name = ops[k].node, .time_ns = ns, .after = ops[k].after};
    }
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        uint32_t used = w->now->tensors[k].used;
        if (used < n) {
            at[used].param_bytes += w->list.tensor_bytes[k];
        }
    }
    const ru_coll_cost *ring = &w->plan.costs_now[RU_ALGO_RING];
    double ns = ring->n_points > 0 ? ru_cost_coll_carried_ns(ring, w->plan.view.n_ranks) : 0;
    ns *= w->plan.slower > 0 ? w->plan.slower : 1;
    *in = (ru_order_policy_in){.q = {.link.bytes_per_s = ns > 0 ? w->t.job->train.servers * 1e9 / ns
                                                                : RU_ORDER_LINK_BYTES_PER_S,
                                     .workers = w->cmd.workers > 0 ? w->cmd.workers : 1,
                                     .slice_bytes = 200000,
                                     .partition_bytes = 4000000,
                                     .credit_bytes = 16000000,
                                     .method = methods[w->t.job->train.order]},
                               .ops = {at, n},
                               .seed = (uint32_t)w->t.job->train.seed};
    return RU_OK;
}

/* What no step reads, loss and statistics, goes first: reports wait for it. */
static void put_ranks(rui_worker *w, const ru_order_in *q, const ru_order_plan *plan, bool *other)
{
    ru_mutex_lock(&w->lock);
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        uint32_t used = w->now->tensors[k].used;
        uint32_t rank = used < q->n ? 1 + plan->rank[used] : 0;
        *other = *other || w->plan.rank[k] != rank;
        w->plan.rank[k] = rank;
    }
    ru_mutex_unlock(&w->lock);
}

static ru_status make(rui_worker *w, ru_arena *arena, bool *other, ru_err *err)
{
    ru_order_policy_in in;
    ru_order_in q;
    ru_order_plan plan;
    RU_TRY(ask(w, arena, &in, err));
    RU_TRY(ru_order_in_of(&in, arena, &q, err));
    RU_TRY(ru_plan_order(&q, arena, arena, &plan, err));
    RU_TRY(ru_plan_order_check(&q, &plan, arena, err));
    put_ranks(w, &q, &plan, other);
    if (w->cmd.leads) {
        ru_decisions_add(w->t.decisions, &ru_policy_order, &in, false);
    }
    return RU_OK;
}

bool rui_order_make(rui_worker *w)
{
    bool other = false;
    ru_err err = {0};
    ru_arena arena;
    if (w->t.job->train.servers == 0) {
        return false;
    }
    ru_arena_init(&arena, 0);
    if (make(w, &arena, &other, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "order", "sums come in the order in which they are made: %s",
               err.text);
    }
    ru_arena_fini(&arena);
    return other;
}

void rui_order_ranks(void *self, uint32_t *rank)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    memcpy(rank, w->plan.rank, w->list.n_tensors * sizeof *rank);
    ru_mutex_unlock(&w->lock);
}
