/* The choice of algorithm, chunk and depth, by predicted time. */
#include "plan/coll.h"

#include <stddef.h>

static double overhead_of(const ru_coll_choice_in *in)
{
    return in->overhead > 0 ? in->overhead : 0.05;
}

static bool usable(const ru_coll_choice_in *in, ru_coll_algo algo)
{
    return ru_plan_coll_does(algo, in->op) && in->costs[algo].n_points > 0 &&
           (!in->deterministic || algo == RU_ALGO_DIRECT);
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
    if (chunk >= size) {
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
static ru_coll_choice best_for(const ru_coll_choice_in *in, int64_t size)
{
    ru_coll_choice at[RU_COLL_ALGOS], best = {.predicted_ns = INT64_MAX};
    double limit = (double)INT64_MAX; /* what cutting may cost is not given out twice */
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        if (usable(in, (ru_coll_algo)a)) {
            at[a] = choose_for(in, (ru_coll_algo)a, size);
            best = at[a].predicted_ns < best.predicted_ns ? at[a] : best;
            double whole =
                (double)ru_cost_coll_ns(&in->costs[a], in->op, (ru_coll_algo)a, in->n_ranks, size);
            double may = (1 + overhead_of(in)) * whole;
            limit = may < limit ? may : limit;
        }
    }
    double tie = (1 + RU_COLL_TIE) * (double)best.predicted_ns;
    tie = tie < limit ? tie : limit;
    for (uint32_t a = 0; a < RU_COLL_ALGOS && size >= RU_COLL_TIE_FROM; a++) {
        if (usable(in, (ru_coll_algo)a) && (double)at[a].predicted_ns <= tie &&
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
        return RU_FAIL(err, RU_E_ARG, "a choice for op %u, %u ranks, overhead %g", (unsigned)in->op,
                       in->n_ranks, in->overhead);
    }
    for (uint32_t i = 0; i < in->n_sizes; i++) {
        if (in->sizes_bytes[i] < 0) {
            return RU_FAIL(err, RU_E_ARG, "transfer %u of %lld bytes", i,
                           (long long)in->sizes_bytes[i]);
        }
    }
    bool any = false;
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        any = any || usable(in, (ru_coll_algo)a);
    }
    if (!any) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "no algorithm that was measured does %s%s",
                       ru_coll_op_name(in->op), in->deterministic ? " in rank order" : "");
    }
    return RU_OK;
}

ru_status ru_plan_coll_choose(const ru_coll_choice_in *in, ru_arena *out, ru_coll_choice_plan *plan,
                              ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_coll_choice *at = RU_NEW(out, ru_coll_choice, in->n_sizes);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full at %u choices", in->n_sizes);
    }
    for (uint32_t i = 0; i < in->n_sizes; i++) {
        at[i] = best_for(in, in->sizes_bytes[i]);
    }
    *plan = (ru_coll_choice_plan){.at = at, .n = in->n_sizes};
    return RU_OK;
}

/* -- the judge: bounds of each field, the prediction worked out again, and nobody better ---------
 */

static ru_status judge_choice(const ru_coll_choice_in *in, uint32_t i, const ru_coll_choice *c,
                              ru_err *err)
{
    int64_t size = in->sizes_bytes[i];
    uint32_t n = in->n_ranks;
    if (!ru_plan_coll_does(c->algo, in->op) || in->costs[c->algo].n_points == 0 ||
        (in->deterministic && c->algo != RU_ALGO_DIRECT)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "transfer %u may not go by %s", i,
                       ru_coll_algo_name(c->algo));
    }
    bool cut = c->chunk_bytes < size;
    if (c->depth < 1 || c->depth > RU_COLL_DEPTH_MAX || (!cut && c->depth != 1) ||
        (cut && (c->chunk_bytes < RU_COLL_CHUNK_MIN || c->chunk_bytes > RU_COLL_CHUNK_MAX))) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "transfer %u in chunks of %lld bytes, %u in flight", i,
                       (long long)c->chunk_bytes, c->depth);
    }
    int64_t said = ru_cost_coll_chunked_ns(&in->costs[c->algo], in->op, c->algo, n, size,
                                           c->chunk_bytes, c->depth);
    if (said != c->predicted_ns) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "transfer %u takes %lld ns, the plan says %lld", i,
                       (long long)said, (long long)c->predicted_ns);
    }
    double flight = in->costs[c->algo].beta_ns * (double)(cut ? c->chunk_bytes : size) * c->depth;
    bool late = in->delay_max_ns > 0 && flight > (double)in->delay_max_ns;
    if (late &&
        (!cut ? size > RU_COLL_CHUNK_MIN : c->chunk_bytes > RU_COLL_CHUNK_MIN || c->depth > 1)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "transfer %u holds a link for %.0f ns, at most %lld",
                       i, flight, (long long)in->delay_max_ns);
    }
    for (uint32_t a = 0; a < RU_COLL_ALGOS && in->delay_max_ns <= 0; a++) {
        bool may = ru_plan_coll_does((ru_coll_algo)a, in->op) && in->costs[a].n_points > 0 &&
                   (!in->deterministic || a == RU_ALGO_DIRECT);
        double whole = (double)ru_cost_coll_ns(&in->costs[a], in->op, (ru_coll_algo)a, n, size);
        double slack = in->overhead > 0 ? in->overhead : 0.05;
        if (may && (double)said > (1 + slack) * whole + 1) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "transfer %u goes faster by %s", i,
                           ru_coll_algo_name((ru_coll_algo)a));
        }
    }
    return RU_OK;
}

ru_status ru_plan_coll_choose_check(const ru_coll_choice_in *in, const ru_coll_choice_plan *plan,
                                    ru_err *err)
{
    if (plan->n != in->n_sizes) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u choices for %u transfers", plan->n, in->n_sizes);
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        RU_TRY(judge_choice(in, i, &plan->at[i], err));
    }
    return RU_OK;
}
