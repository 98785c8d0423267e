/* From the list of an executable and measured sums to the input of the policy `sums`. */
#include <math.h>
#include <stdlib.h>

#include "plan/net/sums_policy.h"

/* As the table of the row has them. */
enum { PRIMITIVE_AUTO = 0, PRIMITIVE_DIRECT = 6 };

static ru_status check(const ru_sums_facts *f, ru_err *err)
{
    if (f->n_grads == 0 || f->n_ranks < 2) {
        return RU_FAIL(err, RU_E_MISSING, "%u gradients over %u workers: there is nothing to sum",
                       f->n_grads, f->n_ranks);
    }
    if (f->n_grads >= RU_SUMS_OPS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "%u gradients, expected less than %d", f->n_grads,
                       RU_SUMS_OPS_MAX);
    }
    for (uint32_t k = 0; k < f->n_grads; k++) {
        const ru_sums_grad *g = &f->grads[k];
        uint32_t before = k > 0 ? f->grads[k - 1].made : 0;
        if (g->size_bytes < 1 || g->made < before || g->made >= f->update_from ||
            f->update_from > f->n_steps) {
            return RU_FAIL(err, RU_E_ARG,
                           "gradient %u of %lld bytes is made by step %u of %u, after step %u", k,
                           (long long)g->size_bytes, g->made, f->update_from, before);
        }
    }
    return RU_OK;
}

/* Time before each step, and where the parts of the list begin. */
typedef struct clock {
    double *at;        /* [n_steps + 1] */
    uint32_t backward; /* the step that makes the first gradient */
    uint32_t *by_use;  /* [n_grads] gradients in the order in which their parameters are read */
    double used_bytes; /* of those that are */
    double update_ns;
} clock;

static uint32_t use_of(const ru_sums_facts *f, uint32_t backward, uint32_t k)
{
    uint32_t used = f->grads[k].used;
    return used < backward ? used : backward; /* behind the forward pass */
}

/* Of equal ones that first whose gradient is made last. Insertion: lists come almost in reverse. */
static void sort_by_use(const ru_sums_facts *f, clock *c)
{
    for (uint32_t i = 0; i < f->n_grads; i++) {
        uint32_t k = f->n_grads - 1 - i, at = i, use = use_of(f, c->backward, k);
        for (; at > 0 && use_of(f, c->backward, c->by_use[at - 1]) > use; at--) {
            c->by_use[at] = c->by_use[at - 1];
        }
        c->by_use[at] = k;
    }
}

static bool clock_make(const ru_sums_facts *f, ru_arena *a, clock *c)
{
    *c = (clock){.at = RU_NEW(a, double, (int64_t)f->n_steps + 1),
                 .by_use = RU_NEW(a, uint32_t, f->n_grads),
                 .backward = f->grads[0].made};
    if (c->at == NULL || c->by_use == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < f->n_steps; i++) {
        c->at[i + 1] = c->at[i] + (f->step_ns[i] > 0 ? f->step_ns[i] : 0);
    }
    for (uint32_t k = 0; k < f->n_grads; k++) {
        c->used_bytes +=
            use_of(f, c->backward, k) < c->backward ? (double)f->grads[k].size_bytes : 0;
    }
    c->update_ns = c->at[f->n_steps] - c->at[f->update_from];
    sort_by_use(f, c);
    return true;
}

static int64_t between(const clock *c, uint32_t from, uint32_t to)
{
    return to > from ? (int64_t)floor(c->at[to] - c->at[from] + 0.5) : 0;
}

/* Op 1 + j is the j-th gradient by use; `made` says so of the order of making. */
static void put_ops(const ru_sums_facts *f, const clock *c, ru_sums_policy_op *ops, int64_t *made)
{
    uint32_t n = f->n_grads, first = use_of(f, c->backward, c->by_use[0]);
    uint32_t last = f->grads[n - 1].made + 1;
    ops[0] = (ru_sums_policy_op){.name = "other",
                                 .forward_ns = between(c, 0, first),
                                 .backward_ns = between(c, last, f->update_from)};
    made[n] = 0;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t k = c->by_use[j], from = use_of(f, c->backward, k);
        uint32_t to = j + 1 < n ? use_of(f, c->backward, c->by_use[j + 1]) : c->backward;
        uint32_t before = k > 0 ? f->grads[k - 1].made + 1 : c->backward;
        double part = from < c->backward ? (double)f->grads[k].size_bytes / c->used_bytes : 0;
        ops[1 + j] = (ru_sums_policy_op){.name = f->grads[k].name != NULL ? f->grads[k].name : "",
                                         .forward_ns = between(c, from, to) +
                                                       (int64_t)floor(part * c->update_ns + 0.5),
                                         .backward_ns = between(c, before, f->grads[k].made + 1),
                                         .param_bytes = f->grads[k].size_bytes};
        made[k] = 1 + j;
    }
}

/* Costs of the algorithms that sums may go by: those that are measured, which trees are not, by a
 * fit that has a rate. Not of the star, whose root carries everything. Returns what a primitive
 * costs that is not among them: as the ring, else as the first that was measured, else what is
 * assumed. */
static ru_coll_cost costs_of(const ru_sums_facts *f, ru_coll_cost own[RU_COLL_ALGOS])
{
    ru_coll_cost all = {0};
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        bool is_tree = a == RU_ALGO_TREE || a == RU_ALGO_DOUBLE_TREE || a == RU_ALGO_HIERARCHY;
        bool known =
            f->costs != NULL && !is_tree && f->costs[a].n_points > 0 && f->costs[a].beta_ns > 0;
        bool may = (a == RU_ALGO_DIRECT) == f->deterministic;
        own[a] = known && may ? f->costs[a] : (ru_coll_cost){0};
        all = all.n_points == 0 && known ? f->costs[a] : all;
    }
    return all.n_points > 0 ? all : ru_cost_coll_prior();
}

ru_status ru_sums_policy_in_of(const ru_sums_facts *f, ru_arena *arena, ru_sums_policy_in *out,
                               ru_err *err)
{
    RU_TRY(check(f, err));
    clock c;
    ru_sums_policy_op *ops = RU_NEW(arena, ru_sums_policy_op, (int64_t)f->n_grads + 1);
    int64_t *made = RU_NEW(arena, int64_t, (int64_t)f->n_grads + 1);
    if (!clock_make(f, arena, &c) || ops == NULL || made == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u gradients", f->n_grads);
    }
    put_ops(f, &c, ops, made);
    ru_coll_cost own[RU_COLL_ALGOS];
    ru_coll_cost cost = costs_of(f, own);
    ru_coll_policy_costs costs;
    RU_TRY(ru_coll_policy_costs_of(own, arena, &costs, err));
    *out = (ru_sums_policy_in){.q = {.n_ranks = f->n_ranks,
                                     .alpha_ns = (int64_t)(cost.alpha_ns + 0.5),
                                     .depth_max = RU_SUMS_DEPTH_MAX,
                                     .barrier = f->barrier,
                                     .gain_min = RU_SUMS_GAIN_MIN,
                                     .method = f->method},
                               .ops = {ops, f->n_grads + 1},
                               .made = {made, f->n_grads + 1},
                               .costs = costs,
                               .primitive = f->deterministic ? PRIMITIVE_DIRECT : PRIMITIVE_AUTO,
                               .why = f->why != NULL ? f->why : "",
                               .bytes_per_s = 1e9 / cost.beta_ns,
                               .added_bytes_per_s = cost.gamma_ns > 0 ? 1e9 / cost.gamma_ns : 0};
    return RU_OK;
}
