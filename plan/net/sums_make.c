/* From a way to sum to buckets: the backward order, which gradients go together. */
#include <stddef.h>

#include "base/heap.h"
#include "base/vec.h"
#include "plan/net/sums_impl.h"

RU_VEC(rui_sums_buckets, ru_sums_bucket)

ru_status rui_sums_graph_make(const ru_sums_in *in, ru_arena *a, rui_sums_graph *g, ru_err *err)
{
    *g = (rui_sums_graph){.in = in, .place = RU_NEW(a, uint32_t, in->n)};
    ru_step_task *tasks = RU_NEW(a, ru_step_task, in->n);
    if (tasks == NULL || g->place == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u ops", in->n);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        tasks[i].ns = in->forward_ns[i];
        g->forward_ns += in->forward_ns[i];
        g->bytes += in->param_bytes[i];
        g->n_tensors += in->param_bytes[i] > 0 ? 1 : 0;
    }
    const ru_step_in ops = {
        .tasks = tasks, .n = in->n, .edges = in->edges, .n_edges = in->n_edges, .n_servers = 1};
    ru_step_path path;
    RU_TRY(ru_cost_step_path(&ops, a, a, &path, err));
    g->topo = path.order;
    for (uint32_t k = 0; k < in->n; k++) {
        g->place[g->topo[k]] = k;
    }
    return RU_OK;
}

/* Followers in the forward graph: what the backward pass of an op waits for. */
typedef struct behind {
    uint32_t *first, *at;
} behind;

static bool find_behind(const ru_sums_in *in, ru_arena *a, behind *b)
{
    b->first = RU_NEW(a, uint32_t, (int64_t)in->n + 2);
    b->at = RU_NEW(a, uint32_t, in->n_edges);
    if (b->first == NULL || b->at == NULL) {
        return false;
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        b->first[in->edges[e].from + 2]++;
    }
    for (uint32_t i = 2; i < in->n + 2; i++) {
        b->first[i] += b->first[i - 1];
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        b->at[b->first[in->edges[e].from + 1]++] = in->edges[e].to;
    }
    return true;
}

/* Gradients still to be made: what the backward pass must run for each. */
typedef struct making {
    const rui_sums_graph *g;
    uint32_t words;
    uint64_t *wanted; /* [n, words] gradients (by tensor) that need the backward pass of an op */
    int64_t *need_ns; /* [n_tensors] C: backward time that is missing */
    int64_t *xfer_ns; /* [n_tensors] X: time of its sum */
    uint32_t *op;     /* [n_tensors] */
    bool *made;       /* [n_tensors] */
    bool *done;       /* [n] */
} making;

static bool making_init(making *j, const rui_sums_graph *g, ru_arena *a)
{
    const ru_sums_in *in = g->in;
    uint32_t t = 0;
    *j = (making){.g = g, .words = (g->n_tensors + 63) / 64};
    j->wanted = RU_NEW(a, uint64_t, (int64_t)in->n * j->words);
    j->need_ns = RU_NEW(a, int64_t, g->n_tensors);
    j->xfer_ns = RU_NEW(a, int64_t, g->n_tensors);
    j->op = RU_NEW(a, uint32_t, g->n_tensors);
    j->made = RU_NEW(a, bool, g->n_tensors);
    j->done = RU_NEW(a, bool, in->n);
    behind b;
    if (j->wanted == NULL || j->need_ns == NULL || j->xfer_ns == NULL || j->op == NULL ||
        j->made == NULL || j->done == NULL || !find_behind(in, a, &b)) {
        return false;
    }
    for (uint32_t k = 0; k < in->n; k++) { /* forward order: what stands behind wants it all */
        uint32_t i = g->topo[k];
        uint64_t *mine = j->wanted + (uint64_t)i * j->words;
        if (in->param_bytes[i] > 0) {
            mine[t / 64] |= UINT64_C(1) << t % 64;
            j->op[t] = i;
            j->xfer_ns[t++] =
                rui_sums_ns(in, rui_sums_algo(in, in->param_bytes[i]), in->param_bytes[i]);
        }
        for (uint32_t e = b.first[i]; e < b.first[i + 1]; e++) {
            uint64_t *theirs = j->wanted + (uint64_t)b.at[e] * j->words;
            for (uint32_t w = 0; w < j->words; w++) {
                theirs[w] |= mine[w];
            }
        }
        for (uint32_t w = 0; w < j->words; w++) {
            for (uint64_t rest = mine[w]; rest != 0; rest &= rest - 1) {
                j->need_ns[w * 64 + (uint32_t)__builtin_ctzll(rest)] += in->backward_ns[i];
            }
        }
    }
    return true;
}

/* Johnson's rule: first those whose backward time is no longer than their sum, the shortest first;
 * then the others, the longest sum first. */
static bool goes_before(const making *j, rui_sums_order rule, uint32_t a, uint32_t b)
{
    const int64_t *need = j->need_ns, *sum = j->xfer_ns;
    bool early = need[a] <= sum[a], other_early = need[b] <= sum[b];
    switch (rule) {
    case RUI_SUMS_JOHNSON:
        return early != other_early ? early : early ? need[a] < need[b] : sum[a] > sum[b];
    case RUI_SUMS_LONGEST:
        return sum[a] > sum[b];
    case RUI_SUMS_SHORTEST:
        return need[a] < need[b];
    case RUI_SUMS_URGENT:
        return a < b; /* tensors are numbered as the forward pass needs them */
    case RUI_SUMS_REVERSE:
    case RUI_SUMS_ORDERS:
        break;
    }
    return false;
}

/* Of equal ones the last of the forward pass. */
static uint32_t gradient_next(const making *j, rui_sums_order rule)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t t = j->g->n_tensors; t-- > 0;) {
        if (!j->made[t] && (best == UINT32_MAX || goes_before(j, rule, t, best))) {
            best = t;
        }
    }
    return best;
}

/* Run the backward pass of everything that gradient t waits for, the last of the forward pass
 * first; all others need that much less. */
static void gradient_make(making *j, uint32_t t, uint32_t *order, uint32_t *n)
{
    for (uint32_t k = j->g->in->n; k-- > 0;) {
        uint32_t i = j->g->topo[k];
        const uint64_t *wanted = j->wanted + (uint64_t)i * j->words;
        if (j->done[i] || (wanted[t / 64] >> t % 64 & 1) == 0) {
            continue;
        }
        j->done[i] = true;
        order[(*n)++] = i;
        for (uint32_t w = 0; w < j->words; w++) {
            for (uint64_t rest = wanted[w]; rest != 0; rest &= rest - 1) {
                j->need_ns[w * 64 + (uint32_t)__builtin_ctzll(rest)] -= j->g->in->backward_ns[i];
            }
        }
    }
    j->made[t] = true;
}

bool rui_sums_backward(const rui_sums_graph *g, rui_sums_order rule, ru_arena *a, uint32_t *order)
{
    uint32_t n = g->in->n, made = 0;
    if (rule == RUI_SUMS_REVERSE) {
        for (uint32_t k = 0; k < n; k++) {
            order[k] = g->topo[n - 1 - k];
        }
        return true;
    }
    making j;
    if (!making_init(&j, g, a)) {
        return false;
    }
    for (uint32_t t; (t = gradient_next(&j, rule)) != UINT32_MAX;) {
        gradient_make(&j, t, order, &made);
    }
    for (uint32_t k = n; k-- > 0;) { /* what no gradient needs */
        if (!j.done[g->topo[k]]) {
            order[made++] = g->topo[k];
        }
    }
    return true;
}

/* Buckets as they grow along the tensors in the order of their making. */
typedef struct growing {
    const rui_sums_graph *g;
    const rui_sums_way *way;
    ru_arena *arena;
    rui_sums_buckets buckets;
    int64_t free_ns; /* when the network is done with the buckets before */
    int64_t tick_ns; /* TICK: the tick at hand */
    bool full;
} growing;

/* Does the tensor that is ready at ready_ns join the last bucket, whose last one was at before_ns?
 */
static bool joins(const growing *w, int64_t bytes, int64_t before_ns, int64_t ready_ns)
{
    const ru_sums_bucket *b = &w->buckets.at[w->buckets.n - 1];
    int64_t limit = w->buckets.n == 1 && w->way->first > 0 ? w->way->first : w->way->size;
    int64_t start = before_ns > w->free_ns ? before_ns : w->free_ns;
    ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, b->algo, w->g->in->n_ranks);
    int64_t alpha_ns = (int64_t)(t.steps * rui_sums_cost(w->g->in, b->algo).alpha_ns);
    switch (w->way->group) {
    case RUI_SUMS_EACH:
        return false;
    case RUI_SUMS_SIZE:
        return b->size_bytes < limit;
    case RUI_SUMS_WALK:
        return bytes <= limit - b->size_bytes && (start > ready_ns || ready_ns - start < alpha_ns);
    case RUI_SUMS_TICK:
        return bytes <= limit - b->size_bytes && ready_ns <= w->tick_ns;
    }
    return false;
}

/* The last bucket is closed: when the network is done with it. */
static void close_bucket(growing *w, int64_t last_ns)
{
    const ru_sums_in *in = w->g->in;
    if (w->buckets.n == 0) {
        return;
    }
    ru_sums_bucket *b = &w->buckets.at[w->buckets.n - 1];
    int64_t start = last_ns > w->free_ns ? last_ns : w->free_ns;
    start = b->ready_ns > start ? b->ready_ns : start;
    w->free_ns = start + rui_sums_ns(in, rui_sums_algo(in, b->size_bytes), b->size_bytes);
}

/* The first tick at which a tensor is seen that is ready at ready_ns: cycles pass while the network
 * is free. */
static void wait_tick(growing *w, int64_t ready_ns)
{
    if (w->way->group != RUI_SUMS_TICK || ready_ns <= w->tick_ns) {
        return;
    }
    int64_t from =
        w->free_ns > w->tick_ns + w->way->cycle_ns ? w->free_ns : w->tick_ns + w->way->cycle_ns;
    int64_t late = ready_ns > from ? ready_ns - from : 0;
    w->tick_ns = from + (late + w->way->cycle_ns - 1) / w->way->cycle_ns * w->way->cycle_ns;
}

static void add_tensor(growing *w, uint32_t at, int64_t bytes, int64_t before_ns, int64_t ready_ns)
{
    if (w->buckets.n > 0 && joins(w, bytes, before_ns, ready_ns)) {
        ru_sums_bucket *b = &w->buckets.at[w->buckets.n - 1];
        b->size_bytes += bytes;
        b->algo = rui_sums_algo(w->g->in, b->size_bytes);
        b->n++;
        return;
    }
    close_bucket(w, before_ns);
    wait_tick(w, ready_ns);
    ru_sums_bucket *b = rui_sums_buckets_push(&w->buckets, w->arena);
    w->full = w->full || b == NULL;
    if (b != NULL) {
        *b = (ru_sums_bucket){.first = at,
                              .n = 1,
                              .size_bytes = bytes,
                              .ready_ns = w->way->group == RUI_SUMS_TICK ? w->tick_ns : 0,
                              .algo = rui_sums_algo(w->g->in, bytes)};
    }
}

/* Pieces of all buckets; the algorithm is that of a piece's size. */
static ru_status cut(const ru_sums_in *in, ru_sums_bucket *buckets, uint32_t n, int64_t chunk,
                     uint32_t *n_pieces, ru_err *err)
{
    int64_t pieces = 0;
    for (uint32_t i = 0; i < n; i++) {
        ru_sums_bucket *b = &buckets[i];
        b->chunk_bytes = chunk > 0 && chunk < b->size_bytes ? chunk : b->size_bytes;
        b->algo = rui_sums_algo(in, b->chunk_bytes);
        pieces += (b->size_bytes - 1) / b->chunk_bytes + 1;
    }
    if (pieces > RU_SUMS_PIECES_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "%lld pieces of a step, expected at most %d",
                       (long long)pieces, RU_SUMS_PIECES_MAX);
    }
    *n_pieces = (uint32_t)pieces;
    return RU_OK;
}

ru_status rui_sums_make(const rui_sums_graph *g, const rui_sums_way *way, const uint32_t *backward,
                        ru_arena *a, ru_sums_plan *plan, ru_err *err)
{
    const ru_sums_in *in = g->in;
    uint32_t *tensors = RU_NEW(a, uint32_t, g->n_tensors), n = 0;
    growing w = {.g = g, .way = way, .arena = a, .full = tensors == NULL};
    int64_t now = g->forward_ns, before = 0;
    for (uint32_t k = 0; !w.full && k < in->n; k++) {
        uint32_t i = backward[k];
        now += in->backward_ns[i];
        if (in->param_bytes[i] > 0) {
            add_tensor(&w, n, in->param_bytes[i], before, now);
            tensors[n++] = i;
            before = now;
        }
    }
    if (w.full) {
        return RU_FAIL(err, RU_E_LIMIT, "not enough memory for the buckets of %u gradients",
                       g->n_tensors);
    }
    uint32_t pieces;
    RU_TRY(cut(in, w.buckets.at, w.buckets.n, way->chunk, &pieces, err));
    *plan = (ru_sums_plan){.backward = backward,
                           .tensors = tensors,
                           .n_tensors = n,
                           .buckets = w.buckets.at,
                           .n_buckets = w.buckets.n,
                           .n_pieces = pieces,
                           .depth = way->depth,
                           .barrier = way->barrier,
                           .after = way->after,
                           .by_priority = way->by_priority};
    return RU_OK;
}

ru_status rui_sums_regroup(const rui_sums_graph *g, const ru_sums_plan *plan, const bool *begins,
                           int64_t chunk, ru_arena *a, ru_sums_plan *other, ru_err *err)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < plan->n_tensors; k++) {
        n += k == 0 || begins[k] ? 1 : 0;
    }
    ru_sums_bucket *buckets = RU_NEW(a, ru_sums_bucket, n);
    if (buckets == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "not enough memory for %u buckets", n);
    }
    n = 0;
    for (uint32_t k = 0; k < plan->n_tensors; k++) {
        if (k == 0 || begins[k]) {
            buckets[n++].first = k;
        }
        buckets[n - 1].n++;
        buckets[n - 1].size_bytes += g->in->param_bytes[plan->tensors[k]];
    }
    *other = *plan;
    other->buckets = buckets;
    other->n_buckets = n;
    return cut(g->in, buckets, n, chunk, &other->n_pieces, err);
}
