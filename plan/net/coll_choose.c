/* The choice of algorithm, chunk and depth, by predicted time. */
#include "plan/net/coll.h"

#include <stddef.h>

static double overhead_of(const ru_coll_choice_in *in)
{
    return in->overhead > 0 ? in->overhead : RU_COLL_OVERHEAD;
}

static bool grows(ru_coll_algo algo)
{
    return algo == RU_ALGO_RING || algo == RU_ALGO_DIRECT;
}

ru_coll_cost ru_plan_coll_cost(const ru_coll_choice_in *in, ru_coll_algo algo)
{
    bool ordered = (!in->deterministic || algo == RU_ALGO_DIRECT) &&
                   (in->only == 0 || in->only == 1 + (uint32_t)algo);
    bool large = in->mesh_max > 0 && in->n_ranks > in->mesh_max;
    if (!ru_plan_coll_does(algo, in->op) || !ordered || (large && grows(algo))) {
        return (ru_coll_cost){0};
    }
    bool measured = in->costs[algo].n_points > 0;
    if (algo == RU_ALGO_HIERARCHY && in->n_hosts > 0) {
        const ru_coll_cost *ring = &in->costs[RU_ALGO_RING], prior = ru_cost_coll_prior();
        return ru_cost_coll_hierarchy(ring->n_points > 0 ? ring : &prior, in->n_ranks, in->n_hosts,
                                      in->host_most);
    }
    if (measured || !in->assume || algo == RU_ALGO_HIERARCHY) {
        return in->costs[algo];
    }
    return ru_cost_coll_prior();
}

/* Below, `in->costs` are those of ru_plan_coll_cost. */
static bool usable(const ru_coll_choice_in *in, ru_coll_algo algo)
{
    return in->costs[algo].n_points > 0;
}

/* May transfer i go by it? */
static bool may(const ru_coll_choice_in *in, uint32_t i, ru_coll_algo algo)
{
    int64_t given = in->given != NULL ? in->given[i] : 0;
    return usable(in, algo) && (given == 0 || given == 1 + (int64_t)algo);
}

/* The rule for the chunk, up to whole 64 KiB. */
static int64_t chunk_of(const ru_coll_choice_in *in, ru_coll_algo algo)
{
    const ru_coll_cost *c = &in->costs[algo];
    ru_coll_terms t = ru_cost_coll_terms(in->op, algo, in->n_ranks);
    double per_byte = overhead_of(in) * t.sent * c->beta_ns;
    double chunk = per_byte > 0 ? t.steps * c->alpha_ns / per_byte : RU_COLL_CHUNK_MAX;
    chunk = chunk < RU_COLL_CHUNK_MAX ? chunk : RU_COLL_CHUNK_MAX;
    int64_t whole = ((int64_t)chunk / RU_COLL_CHUNK_MIN + 1) * RU_COLL_CHUNK_MIN;
    return whole < RU_COLL_CHUNK_MAX ? whole : RU_COLL_CHUNK_MAX;
}

/* How long `depth` chunks in flight keep a link busy. */
static double flight_ns(const ru_coll_choice_in *in, ru_coll_algo algo, int64_t chunk,
                        uint32_t depth)
{
    return (double)chunk * depth * in->costs[algo].beta_ns;
}

static bool in_bound(const ru_coll_choice_in *in, ru_coll_algo algo, int64_t chunk, uint32_t depth)
{
    return in->delay_max_ns <= 0 || flight_ns(in, algo, chunk, depth) <= (double)in->delay_max_ns;
}

static ru_coll_choice choose_for(const ru_coll_choice_in *in, ru_coll_algo algo, int64_t size)
{
    const ru_coll_cost *c = &in->costs[algo];
    ru_coll_choice whole = {.algo = algo, .chunk_bytes = size, .depth = 1};
    whole.predicted_ns = ru_cost_coll_ns(c, in->op, algo, in->n_ranks, size);
    int64_t chunk = chunk_of(in, algo);
    while (chunk > RU_COLL_CHUNK_MIN && !in_bound(in, algo, chunk, 1)) {
        chunk = chunk / 2 / RU_COLL_CHUNK_MIN * RU_COLL_CHUNK_MIN;
        chunk = chunk > RU_COLL_CHUNK_MIN ? chunk : RU_COLL_CHUNK_MIN;
    }
    if (chunk >= size || in->whole) {
        return whole;
    }
    /* Two in flight whatever the model says: one is in its last steps while the other fills the
     * links. More only for a gain. */
    ru_coll_choice cut = {.algo = algo, .chunk_bytes = chunk};
    cut.depth = in_bound(in, algo, chunk, 2) ? 2 : 1;
    cut.predicted_ns =
        ru_cost_coll_chunked_ns(c, in->op, algo, in->n_ranks, size, chunk, cut.depth);
    for (uint32_t d = 4; d <= RU_COLL_DEPTH_MAX && in_bound(in, algo, chunk, d); d *= 2) {
        int64_t ns = ru_cost_coll_chunked_ns(c, in->op, algo, in->n_ranks, size, chunk, d);
        if ((double)ns > (double)cut.predicted_ns / 1.05) {
            break;
        }
        cut.depth = d;
        cut.predicted_ns = ns;
    }
    bool cheap = (double)cut.predicted_ns <= (1 + overhead_of(in)) * (double)whole.predicted_ns;
    return cheap || !in_bound(in, algo, size, 1) ? cut : whole;
}

static double sent_by(const ru_coll_choice_in *in, ru_coll_algo algo)
{
    return ru_cost_coll_terms(in->op, algo, in->n_ranks).sent;
}

/* What was measured in a moment without others on the links does not tell choices within
 * RU_COLL_TIE apart: of large ones then who sends least. */
static ru_coll_choice best_for(const ru_coll_choice_in *in, uint32_t i)
{
    int64_t size = in->sizes_bytes[i];
    ru_coll_choice at[RU_COLL_ALGOS], best = {.predicted_ns = INT64_MAX};
    double limit = (double)INT64_MAX; /* what cutting may cost is not given out twice */
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        if (may(in, i, (ru_coll_algo)a)) {
            at[a] = choose_for(in, (ru_coll_algo)a, size);
            best = at[a].predicted_ns < best.predicted_ns ? at[a] : best;
            double whole =
                (double)ru_cost_coll_ns(&in->costs[a], in->op, (ru_coll_algo)a, in->n_ranks, size);
            double most = (1 + overhead_of(in)) * whole;
            limit = most < limit ? most : limit;
        }
    }
    double tie = (1 + RU_COLL_TIE) * (double)best.predicted_ns;
    tie = tie < limit ? tie : limit;
    for (uint32_t a = 0; a < RU_COLL_ALGOS && size >= RU_COLL_TIE_FROM; a++) {
        if (may(in, i, (ru_coll_algo)a) && (double)at[a].predicted_ns <= tie &&
            sent_by(in, (ru_coll_algo)a) < sent_by(in, best.algo)) {
            best = at[a];
        }
    }
    return best;
}

static ru_status check_in(const ru_coll_choice_in *in, ru_err *err)
{
    if (in->n_ranks < 1 || in->n_ranks > RU_COLL_RANKS_MAX || (uint32_t)in->op >= RU_COLL_OPS ||
        !(in->overhead >= 0 && in->overhead <= 1)) {
        return RU_FAIL(err, RU_E_ARG, "the question is not valid: op %u, %u ranks, overhead %g",
                       (unsigned)in->op, in->n_ranks, in->overhead);
    }
    for (uint32_t i = 0; i < in->n_sizes; i++) {
        if (in->sizes_bytes[i] < 0) {
            return RU_FAIL(err, RU_E_ARG, "transfer %u has %lld bytes; expected 0 or more", i,
                           (long long)in->sizes_bytes[i]);
        }
    }
    if (in->n_hosts > 0 && (in->host_most < 1 || in->host_most > in->n_ranks ||
                            in->n_hosts > in->n_ranks || in->n_ranks < 2)) {
        return RU_FAIL(err, RU_E_ARG, "%u ranks cannot be on %u hosts with at most %u on one",
                       in->n_ranks, in->n_hosts, in->host_most);
    }
    return RU_OK;
}

static ru_status check_costs(const ru_coll_choice_in *in, ru_err *err)
{
    bool any = false;
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        any = any || usable(in, (ru_coll_algo)a);
    }
    for (uint32_t i = 0; in->given != NULL && i < in->n_sizes; i++) {
        int64_t given = in->given[i];
        if (given < 0 || given > RU_COLL_ALGOS ||
            (given > 0 && !usable(in, (ru_coll_algo)(given - 1)))) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "transfer %u cannot go by algorithm %lld, which is given: it is "
                           "unknown, not measured or not allowed",
                           i, (long long)given);
        }
    }
    if (any) {
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_INFEASIBLE, "no measured algorithm can do %s%s",
                   ru_coll_op_name(in->op), in->deterministic ? " in rank order" : "");
}

ru_status ru_plan_coll_choose(const ru_coll_choice_in *asked, ru_arena *out,
                              ru_coll_choice_plan *plan, ru_err *err)
{
    RU_TRY(check_in(asked, err));
    ru_coll_cost costs[RU_COLL_ALGOS];
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        costs[a] = ru_plan_coll_cost(asked, (ru_coll_algo)a);
    }
    ru_coll_choice_in in = *asked;
    in.costs = costs;
    RU_TRY(check_costs(&in, err));
    ru_coll_choice *at = RU_NEW(out, ru_coll_choice, in.n_sizes);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full at %u choices", in.n_sizes);
    }
    for (uint32_t i = 0; i < in.n_sizes; i++) {
        at[i] = best_for(&in, i);
    }
    *plan = (ru_coll_choice_plan){.at = at, .n = in.n_sizes};
    return RU_OK;
}
