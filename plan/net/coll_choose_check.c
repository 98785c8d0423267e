/* The judge of the choice of collectives. Shares no code with the chooser: it works out again which
 * algorithms may be used and at what cost, then bounds of each field, the predicted time, and that
 * no algorithm in one piece is clearly faster. */
#include "plan/net/coll.h"

#include <stddef.h>

enum { NOT, BY_MEMORY, AS_MEASURED, BY_PRIOR };

/* What each op may go by: bit a for algorithm a. A table of its own, not that of the planner. */
static const uint8_t does[RU_COLL_OPS] = {
    [RU_COLL_ALL_REDUCE] = 0x7f, [RU_COLL_REDUCE_SCATTER] = 0x23, [RU_COLL_ALL_GATHER] = 0x27,
    [RU_COLL_REDUCE] = 0x7b,     [RU_COLL_BROADCAST] = 0x7b,      [RU_COLL_ALL_TO_ALL] = 0x20,
    [RU_COLL_BARRIER] = 0x6d,
};

/* Where the cost of algorithm `a` comes from; NOT: transfer i may not use it. */
static int source_of(const ru_coll_choice_in *in, uint32_t i, uint32_t a)
{
    if (in->given != NULL && in->given[i] != 0 && in->given[i] != (int64_t)a + 1) {
        return NOT;
    }
    if (a >= RU_COLL_ALGOS || (does[in->op] >> a & 1) == 0) {
        return NOT;
    }
    if (in->only != 0 && in->only - 1 != a) {
        return NOT;
    }
    if (in->deterministic && a != RU_ALGO_DIRECT) {
        return NOT; /* only direct sums are in rank order */
    }
    bool mesh = a == RU_ALGO_RING || a == RU_ALGO_DIRECT;
    if (mesh && in->mesh_max != 0 && in->mesh_max < in->n_ranks) {
        return NOT;
    }
    if (a == RU_ALGO_HIERARCHY && in->n_hosts != 0) {
        return BY_MEMORY;
    }
    if (in->costs[a].n_points != 0) {
        return AS_MEASURED;
    }
    return in->assume && a != RU_ALGO_HIERARCHY ? BY_PRIOR : NOT;
}

static ru_coll_cost cost_of(const ru_coll_choice_in *in, uint32_t i, uint32_t a)
{
    ru_coll_cost ring = in->costs[RU_ALGO_RING];
    switch (source_of(in, i, a)) {
    case BY_MEMORY:
        ring = ring.n_points == 0 ? ru_cost_coll_prior() : ring;
        return ru_cost_coll_hierarchy(&ring, in->n_ranks, in->n_hosts, in->host_most);
    case AS_MEASURED:
        return in->costs[a];
    default:
        return ru_cost_coll_prior();
    }
}

static ru_status judge_shape(const ru_coll_choice_in *in, uint32_t i, const ru_coll_choice *c,
                             const ru_coll_cost *cost, ru_err *err)
{
    int64_t size = in->sizes_bytes[i];
    bool cut = c->chunk_bytes < size;
    bool piece = !cut && c->chunk_bytes == size && c->depth == 1;
    bool chunks = cut && !in->whole && c->chunk_bytes >= RU_COLL_CHUNK_MIN &&
                  c->chunk_bytes <= RU_COLL_CHUNK_MAX && c->depth >= 1 &&
                  c->depth <= RU_COLL_DEPTH_MAX;
    if (!piece && !chunks) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "transfer %u has chunks of %lld bytes, %u in flight, which is not valid", i,
                       (long long)c->chunk_bytes, c->depth);
    }
    double flight = cost->beta_ns * (double)(cut ? c->chunk_bytes : size) * c->depth;
    bool late = in->delay_max_ns > 0 && !in->whole && flight > (double)in->delay_max_ns;
    bool could =
        cut ? c->chunk_bytes > RU_COLL_CHUNK_MIN || c->depth > 1 : size > RU_COLL_CHUNK_MIN;
    if (late && could) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "transfer %u occupies a link for %.0f ns; at most %lld are allowed", i,
                       flight, (long long)in->delay_max_ns);
    }
    return RU_OK;
}

static ru_status judge_choice(const ru_coll_choice_in *in, uint32_t i, const ru_coll_choice *c,
                              ru_err *err)
{
    int64_t size = in->sizes_bytes[i];
    uint32_t n = in->n_ranks;
    if (source_of(in, i, (uint32_t)c->algo) == NOT) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "transfer %u must not use algorithm %u", i,
                       (unsigned)c->algo);
    }
    ru_coll_cost cost = cost_of(in, i, (uint32_t)c->algo);
    RU_TRY(judge_shape(in, i, c, &cost, err));
    int64_t said =
        ru_cost_coll_chunked_ns(&cost, in->op, c->algo, n, size, c->chunk_bytes, c->depth);
    if (said != c->predicted_ns) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "transfer %u takes %lld ns, the plan says %lld", i,
                       (long long)said, (long long)c->predicted_ns);
    }
    double slack = in->overhead > 0 ? in->overhead : 0.05;
    for (uint32_t a = 0; a < RU_COLL_ALGOS && in->delay_max_ns <= 0; a++) {
        if (source_of(in, i, a) == NOT) {
            continue;
        }
        ru_coll_cost other = cost_of(in, i, a);
        double whole = (double)ru_cost_coll_ns(&other, in->op, (ru_coll_algo)a, n, size);
        if ((double)said > (1 + slack) * whole + 1) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "transfer %u is faster with %s", i,
                           ru_coll_algo_name((ru_coll_algo)a));
        }
    }
    return RU_OK;
}

ru_status ru_plan_coll_choose_check(const ru_coll_choice_in *in, const ru_coll_choice_plan *plan,
                                    ru_err *err)
{
    if ((uint32_t)in->op >= RU_COLL_OPS || plan->n != in->n_sizes) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the plan has %u choices for %u transfers", plan->n,
                       in->n_sizes);
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        RU_TRY(judge_choice(in, i, &plan->at[i], err));
    }
    return RU_OK;
}
