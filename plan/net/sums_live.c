#include "plan/net/sums_live.h"

#include <math.h>

#include "base/heap.h"
#include "plan/net/sums_impl.h"

/* -- the table ----------------------------------------------------------------------------------
 */

static bool is_read(const ru_sums_grad *g)
{
    return g->used != UINT32_MAX;
}

/* Runs of one bucket that are read, or not. */
static uint32_t split(const ru_sums_in *in, const ru_sums_plan *p, const ru_sums_grad *grads,
                      ru_sums_part *into)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_buckets; i++) {
        const ru_sums_bucket *b = &p->buckets[i];
        for (uint32_t k = b->first; k < b->first + b->n; k++) {
            if (k == b->first || is_read(&grads[k]) != is_read(&grads[k - 1])) {
                into[n++] = (ru_sums_part){.first = k,
                                           .chunk_bytes = b->chunk_bytes,
                                           .depth = p->depth,
                                           .only = 1 + (uint32_t)b->algo};
            }
            into[n - 1].n++;
            into[n - 1].size_bytes += grads[k].size_bytes;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        ru_sums_part *x = &into[i];
        x->chunk_bytes = x->chunk_bytes < x->size_bytes ? x->chunk_bytes : x->size_bytes;
        int64_t more = (x->size_bytes - 1) / x->chunk_bytes;
        ru_coll_algo algo = (ru_coll_algo)(x->only - 1);
        x->predicted_ns = rui_sums_ns(in, algo, x->chunk_bytes) +
                          more * rui_sums_held_ns(in, algo, x->chunk_bytes, p->depth);
    }
    return n;
}

/* The first step that reads a parameter of the part; of none: before all. */
static int64_t soonest(const ru_sums_part *x, const ru_sums_grad *grads)
{
    int64_t least = INT64_MAX;
    for (uint32_t k = x->first; k < x->first + x->n; k++) {
        least = is_read(&grads[k]) && grads[k].used < least ? grads[k].used : least;
    }
    return least == INT64_MAX ? -1 : least;
}

/* Of equal ones the later first: its gradients are made last. */
static ru_status put_ranks(ru_sums_part *parts, uint32_t n, const ru_sums_grad *grads,
                           ru_arena *scratch, ru_err *err)
{
    ru_heap_item *items = RU_NEW(scratch, ru_heap_item, n), item;
    ru_heap heap;
    if (items == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the ranks of %u sums", n);
    }
    ru_heap_init(&heap, items, n);
    for (uint32_t i = n; i-- > 0;) {
        RU_TRY(ru_heap_push(&heap, soonest(&parts[i], grads), i));
    }
    for (uint32_t rank = 0; ru_heap_pop(&heap, &item); rank++) {
        parts[item.value].rank = rank;
    }
    return RU_OK;
}

ru_status ru_sums_table(const ru_sums_in *in, const ru_sums_plan *plan, const ru_sums_grad *grads,
                        uint32_t n_grads, ru_arena *out, ru_sums_part **parts, uint32_t *n_parts,
                        ru_err *err)
{
    bool same = plan->n_tensors == n_grads;
    for (uint32_t k = 0; same && k < n_grads; k++) {
        same = in->param_bytes[plan->tensors[k]] == grads[k].size_bytes;
    }
    if (!same) {
        return RU_FAIL(err, RU_E_ARG, "the plan sums %u gradients, which are not these %u",
                       plan->n_tensors, n_grads);
    }
    *parts = RU_NEW(out, ru_sums_part, n_grads);
    if (*parts == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the table of %u gradients", n_grads);
    }
    *n_parts = split(in, plan, grads, *parts);
    return put_ranks(*parts, *n_parts, grads, out, err);
}

/* Op i of the forward pass has the parameter of gradient n - 1 - i. */
ru_status ru_sums_first(const int64_t *size_bytes, uint32_t n, ru_sums_method method, ru_arena *out,
                        ru_sums_part **parts, uint32_t *n_parts, ru_err *err)
{
    const ru_coll_cost cost = ru_cost_coll_prior();
    int64_t *ns = RU_NEW(out, int64_t, n), *bytes = RU_NEW(out, int64_t, n);
    ru_step_edge *edges = RU_NEW(out, ru_step_edge, n);
    ru_sums_grad *grads = RU_NEW(out, ru_sums_grad, n);
    if (ns == NULL || bytes == NULL || edges == NULL || grads == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u gradients", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        bytes[i] = size_bytes[n - 1 - i];
        ns[i] = (int64_t)((double)bytes[i] * cost.beta_ns);
        edges[i] = (ru_step_edge){i, i + 1}; /* of the last one: none */
        grads[i] = (ru_sums_grad){.size_bytes = size_bytes[i], .made = i, .used = n - 1 - i};
    }
    const ru_sums_in in = {.n = n,
                           .forward_ns = ns,
                           .backward_ns = ns,
                           .param_bytes = bytes,
                           .edges = edges,
                           .n_edges = n - 1,
                           .n_ranks = 2,
                           .alpha_ns = (int64_t)cost.alpha_ns,
                           .beta_ns = cost.beta_ns,
                           .gamma_ns = cost.gamma_ns,
                           .algos = 1u << RU_ALGO_RING,
                           .depth_max = 1,
                           .method = method == RU_SUMS_CARAMEL ? RU_SUMS_RULE : method};
    ru_sums_plan plan;
    RU_TRY(ru_plan_sums(&in, out, out, &plan, err));
    RU_TRY(ru_sums_table(&in, &plan, grads, n, out, parts, n_parts, err));
    for (uint32_t k = 0; k < *n_parts; k++) {
        (*parts)[k].only = 0;
    }
    return RU_OK;
}

/* -- cuts ----------------------------------------------------------------------------------------
 */

/* One part, at most 1 + 3 size / piece sums: of two neighbours or cuts only the last may be small.
 */
static uint32_t cut(const ru_sums_part *p, const int64_t *size_bytes, int64_t piece,
                    ru_sums_cut *into)
{
    uint32_t n = 0;
    bool open = false;
    for (uint32_t k = p->first; k < p->first + p->n; k++) {
        int64_t bytes = size_bytes[k];
        if (open && bytes <= piece - into[n - 1].size_bytes) {
            into[n - 1].n++;
            into[n - 1].size_bytes += bytes;
            continue;
        }
        for (int64_t at = 0; at < bytes; at += piece) {
            int64_t rest = bytes - at;
            into[n++] = (ru_sums_cut){k, 1, at, rest < piece ? rest : piece, p->only};
        }
        open = bytes <= piece;
    }
    return n;
}

ru_status ru_sums_cuts(const ru_sums_part *parts, uint32_t n_parts, const int64_t *size_bytes,
                       uint32_t cuts_max, ru_arena *out, ru_sums_cut **cuts, uint32_t *n,
                       ru_err *err)
{
    int64_t all = 0;
    for (uint32_t k = 0; k < n_parts; k++) {
        all += parts[k].size_bytes;
    }
    int64_t least = all / (cuts_max / 3) + 1;
    *cuts = RU_NEW(out, ru_sums_cut, (int64_t)n_parts + cuts_max);
    *n = 0;
    if (*cuts == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a table of %u sums", n_parts);
    }
    for (uint32_t k = 0; k < n_parts; k++) {
        const ru_sums_part *p = &parts[k];
        int64_t piece = p->chunk_bytes > least ? p->chunk_bytes : least;
        piece = p->chunk_bytes >= p->size_bytes ? p->size_bytes : (piece + 3) / 4 * 4;
        *n += cut(p, size_bytes, piece, *cuts + *n);
    }
    return RU_OK;
}

/* -- planning again ------------------------------------------------------------------------------
 */

_Static_assert(RU_SUMS_WATCHED <= 64, "a bit for each step");

ru_sums_costs ru_sums_costs_of(const ru_sums_in *in)
{
    ru_sums_costs c = {
        .alpha_ns = (double)in->alpha_ns, .beta_ns = in->beta_ns, .gamma_ns = in->gamma_ns};
    for (uint32_t i = 0; i < in->n; i++) {
        c.compute_ns += (double)in->forward_ns[i] + (double)in->backward_ns[i];
    }
    return c;
}

ru_sums_watch ru_sums_watch_of(double predicted_ns, const ru_sums_costs *costs)
{
    return (ru_sums_watch){.costs = *costs, .predicted_ns = predicted_ns};
}

static uint32_t bits(uint64_t x)
{
    return (uint32_t)__builtin_popcountll(x);
}

ru_sums_again ru_sums_watch_step(ru_sums_watch *w, double took_ns)
{
    const uint64_t last = UINT64_MAX >> (64 - RU_SUMS_WATCHED);
    bool longer = took_ns > (1 + RU_SUMS_STEP_OFF) * w->predicted_ns;
    bool shorter = took_ns < (1 - RU_SUMS_STEP_OFF) * w->predicted_ns;
    w->longer = (w->longer << 1 | (longer ? 1 : 0)) & last;
    w->shorter = (w->shorter << 1 | (shorter ? 1 : 0)) & last;
    w->n += w->n < RU_SUMS_WATCHED ? 1 : 0;
    return w->n < RU_SUMS_WATCHED                   ? RU_SUMS_STANDS
           : bits(w->longer) > RU_SUMS_WATCHED / 2  ? RU_SUMS_LONGER
           : bits(w->shorter) > RU_SUMS_WATCHED / 2 ? RU_SUMS_SHORTER
                                                    : RU_SUMS_STANDS;
}

static bool moved(double was, double is)
{
    return fabs(is - was) > RU_SUMS_COST_OFF * was;
}

ru_sums_again ru_sums_watch_costs(const ru_sums_watch *w, const ru_sums_costs *now)
{
    const ru_sums_costs *was = &w->costs;
    return moved(was->compute_ns, now->compute_ns) ? RU_SUMS_COMPUTE
           : moved(was->beta_ns, now->beta_ns)     ? RU_SUMS_BETA
           : moved(was->alpha_ns, now->alpha_ns)   ? RU_SUMS_ALPHA
           : moved(was->gamma_ns, now->gamma_ns)   ? RU_SUMS_GAMMA
                                                   : RU_SUMS_STANDS;
}

void ru_sums_net_view(ru_sums_net *s, bool anew)
{
    *s = (ru_sums_net){.before = anew ? 0 : ru_sums_net_slower(s)};
}

void ru_sums_net_step(ru_sums_net *s, double step_off, double last_off)
{
    if (s->n < RU_SUMS_FIRST && step_off > 0) {
        uint32_t k = s->n++;
        for (; k > 0 && s->first[k - 1] > step_off; k--) {
            s->first[k] = s->first[k - 1];
        }
        s->first[k] = step_off;
    }
    s->now = last_off;
    if (s->at_first <= 0 && s->n == RU_SUMS_FIRST && last_off > 0) {
        double three = s->first[RU_SUMS_FIRST / 2];
        s->at_first = moved(three, last_off) ? three : last_off;
    }
}

double ru_sums_net_slower(const ru_sums_net *s)
{
    double since = s->at_first > 0 && s->now > 0 ? s->now / s->at_first : 1;
    return (s->before > 0 ? s->before : 1) * since;
}

const char *ru_sums_again_text(ru_sums_again why)
{
    static const char *const texts[] = {
        [RU_SUMS_STANDS] = "the plan stands",
        [RU_SUMS_LONGER] = "steps take longer than predicted",
        [RU_SUMS_SHORTER] = "steps take less than predicted",
        [RU_SUMS_COMPUTE] = "computing takes another time than before",
        [RU_SUMS_ALPHA] = "a message takes another time than before",
        [RU_SUMS_BETA] = "the network has another rate than before",
        [RU_SUMS_GAMMA] = "adding takes another time than before",
    };
    return texts[why];
}
