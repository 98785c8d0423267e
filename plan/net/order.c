/* Orders of transfers by every method, and the plan around them. */
#include "plan/net/order.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/heap.h"
#include "base/rng.h"
#include "plan/net/order_impl.h"

static ru_status check_in(const ru_order_in *in, ru_err *err)
{
    if (in->n < 1 || in->n > RU_ORDER_OPS_MAX || in->workers < 1 ||
        in->workers > RU_ORDER_WORKERS_MAX || in->method >= RU_ORDER_METHODS) {
        return RU_FAIL(
            err, RU_E_ARG,
            "there are %u ops and %u workers, method %u; expected 1 to %d ops and 1 to %d workers",
            in->n, in->workers, (uint32_t)in->method, RU_ORDER_OPS_MAX, RU_ORDER_WORKERS_MAX);
    }
    const ru_link_cost *l = &in->link;
    if (!(l->bytes_per_s > 0) || !isfinite(l->bytes_per_s) || l->overhead_ns < 0 ||
        l->latency_ns < 0) {
        return RU_FAIL(
            err, RU_E_ARG,
            "the link is not valid: %g bytes/s with %lld ns of overhead and %lld ns of latency",
            l->bytes_per_s, (long long)l->overhead_ns, (long long)l->latency_ns);
    }
    if (in->slice_bytes < 1 || in->partition_bytes < 1 || in->credit_bytes < in->partition_bytes) {
        return RU_FAIL(err, RU_E_ARG,
                       "slices have %lld bytes, partitions %lld and the credit %lld; expected 1 or "
                       "more, and a credit of at least one partition",
                       (long long)in->slice_bytes, (long long)in->partition_bytes,
                       (long long)in->credit_bytes);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        if (in->op_ns[i] < 0 || in->param_bytes[i] < 0) {
            return RU_FAIL(
                err, RU_E_ARG,
                "op %u takes %lld ns and has %lld bytes of parameters; expected 0 or more", i,
                (long long)in->op_ns[i], (long long)in->param_bytes[i]);
        }
    }
    return RU_OK;
}

/* Transfers by a key; equal keys in topological order. */
static bool by_key(const rui_order_graph *g, ru_arena *a, const int64_t *key, uint32_t *order)
{
    ru_heap_item *items = RU_NEW(a, ru_heap_item, g->n_xfers);
    if (items == NULL) {
        return false;
    }
    ru_heap sorted;
    ru_heap_init(&sorted, items, g->n_xfers);
    for (uint32_t r = 0; r < g->n_xfers; r++) {
        RU_CHECK(ru_heap_push(&sorted, key[r], r) == RU_OK);
    }
    uint32_t k = 0;
    for (ru_heap_item top; ru_heap_pop(&sorted, &top);) {
        order[k++] = (uint32_t)top.value;
    }
    return true;
}

static int64_t key_of(const rui_order_graph *g, uint32_t r)
{
    uint32_t op = g->op[r];
    switch (g->in->method) {
    case RU_ORDER_FIFO:
        return op;
    case RU_ORDER_LAYER:
        return g->turn[op] < g->in->n ? g->level[g->topo[g->turn[op]]] : 0;
    case RU_ORDER_REVERSE:
        return -(int64_t)g->turn[op];
    case RU_ORDER_SMALLEST:
        return g->in->param_bytes[op];
    case RU_ORDER_BEST:
    case RU_ORDER_TAC:
    case RU_ORDER_TIC:
    case RU_ORDER_RANDOM:
    case RU_ORDER_FIXED:
    case RU_ORDER_P3:
    case RU_ORDER_CREDIT:
    case RU_ORDER_OPTIMUM:
    case RU_ORDER_METHODS:
        break;
    }
    return g->turn[op]; /* topological */
}

/* The order of one list (random orders differ by list), and TIC's groups. */
static bool order_of(const rui_order_graph *g, uint32_t list, ru_arena *a, uint32_t *order,
                     uint32_t *rank)
{
    bool fits = true;
    if (g->in->method == RU_ORDER_TIC) {
        return rui_order_tic(g, a, order, rank);
    }
    if (g->in->method == RU_ORDER_TAC) {
        return rui_order_tac(g, a, order, rank);
    }
    if (g->in->method == RU_ORDER_RANDOM || g->in->method == RU_ORDER_FIXED) {
        ru_rng rng = ru_rng_from(g->in->seed, list);
        ru_rng_shuffle(&rng, order, g->n_xfers);
    } else {
        int64_t *key = RU_NEW(a, int64_t, g->n_xfers);
        for (uint32_t r = 0; key != NULL && r < g->n_xfers; r++) {
            key[r] = key_of(g, r);
        }
        fits = key != NULL && by_key(g, a, key, order);
    }
    for (uint32_t k = 0; fits && k < g->n_xfers; k++) {
        rank[order[k]] = k;
    }
    return fits;
}

static int64_t piece_max(const ru_order_in *in)
{
    return in->method == RU_ORDER_P3       ? in->slice_bytes
           : in->method == RU_ORDER_CREDIT ? in->partition_bytes
                                           : INT64_MAX;
}

static int64_t pieces_of(const ru_order_in *in)
{
    int64_t n = 0, most = piece_max(in);
    for (uint32_t i = 0; i < in->n && n <= RU_STEP_TASKS_MAX; i++) {
        n += in->param_bytes[i] > 0 ? (in->param_bytes[i] - 1) / most + 1 : 0;
    }
    return n;
}

static void put_list(const rui_order_graph *g, const uint32_t *order, ru_order_piece *pieces)
{
    int64_t most = piece_max(g->in);
    for (uint32_t k = 0; k < g->n_xfers; k++) {
        uint32_t op = g->op[order[k]];
        for (int64_t left = g->in->param_bytes[op]; left > 0;) {
            int64_t size = left < most ? left : most;
            *pieces++ = (ru_order_piece){op, size};
            left -= size;
        }
    }
}

static ru_status make_lists(const rui_order_graph *g, ru_arena *out, ru_arena *scratch,
                            ru_order_plan *p, ru_err *err)
{
    const ru_order_in *in = g->in;
    int64_t n_pieces = pieces_of(in);
    p->n_lists = in->method == RU_ORDER_RANDOM ? in->workers : 1;
    if (n_pieces * p->n_lists > RU_STEP_TASKS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "there are %lld pieces for each of %u workers; expected at most %d",
                       (long long)n_pieces, p->n_lists, RU_STEP_TASKS_MAX);
    }
    p->n_pieces = (uint32_t)n_pieces;
    ru_order_piece *pieces = RU_NEW(out, ru_order_piece, n_pieces * p->n_lists);
    uint32_t *rank = RU_NEW(out, uint32_t, in->n);
    uint32_t *order = RU_NEW(scratch, uint32_t, g->n_xfers);
    uint32_t *rank_of = RU_NEW(scratch, uint32_t, g->n_xfers);
    bool fits = pieces != NULL && rank != NULL && order != NULL && rank_of != NULL;
    for (uint32_t list = p->n_lists; fits && list-- > 0;) { /* list 0 last: its ranks stay */
        fits = order_of(g, list, scratch, order, rank_of);
        if (fits) {
            put_list(g, order, pieces + (uint64_t)list * p->n_pieces);
        }
    }
    if (!fits) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the order of %u transfers", g->n_xfers);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        rank[i] = RU_ORDER_NO_RANK;
    }
    for (uint32_t r = 0; r < g->n_xfers; r++) {
        rank[g->op[r]] = rank_of[r];
    }
    p->pieces = pieces;
    p->rank = rank;
    return RU_OK;
}

/* Every order in turn, next in lexical order; stops where the bound is reached. */
static ru_status search(const rui_order_graph *g, ru_order_piece *pieces, uint32_t *rank,
                        ru_arena *scratch, ru_order_plan *p, ru_err *err)
{
    ru_order_piece now[RU_ORDER_OPTIMUM_MAX];
    uint32_t perm[RU_ORDER_OPTIMUM_MAX], n = p->n_pieces;
    ru_order_plan tried = *p;
    tried.pieces = now;
    for (uint32_t k = 0; k < n; k++) {
        perm[k] = k;
    }
    for (bool more = true; more && p->step_ns > p->bound_ns;) {
        for (uint32_t k = 0; k < n; k++) {
            now[k] = (ru_order_piece){g->op[perm[k]], g->in->param_bytes[g->op[perm[k]]]};
        }
        RU_TRY(rui_order_predict(g, scratch, &tried, err));
        if (tried.step_ns < p->step_ns) {
            p->step_ns = tried.step_ns;
            p->straggle_ns = tried.straggle_ns;
            p->efficiency = tried.efficiency;
            for (uint32_t k = 0; k < n; k++) {
                pieces[k] = now[k];
                rank[now[k].op] = k;
            }
        }
        uint32_t at = n - 1, with = n - 1;
        while (at > 0 && perm[at - 1] > perm[at]) {
            at--;
        }
        more = at > 0;
        for (; more && perm[with] < perm[at - 1]; with--) {
        }
        if (more) {
            uint32_t swap = perm[at - 1];
            perm[at - 1] = perm[with];
            perm[with] = swap;
            for (uint32_t a = at, b = n - 1; a < b; a++, b--) {
                swap = perm[a];
                perm[a] = perm[b];
                perm[b] = swap;
            }
        }
    }
    return RU_OK;
}

static ru_status find_optimum(const rui_order_graph *g, ru_arena *out, ru_arena *scratch,
                              ru_order_plan *p, ru_err *err)
{
    if (g->n_xfers > RU_ORDER_OPTIMUM_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "%u transfers have too many orders to try all of them; expected at most %d",
                       g->n_xfers, RU_ORDER_OPTIMUM_MAX);
    }
    ru_order_piece *pieces = RU_NEW(out, ru_order_piece, p->n_pieces);
    uint32_t *rank = RU_NEW(out, uint32_t, g->in->n);
    if (pieces == NULL || rank == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u transfers", p->n_pieces);
    }
    memcpy(pieces, p->pieces, p->n_pieces * sizeof *pieces);
    memcpy(rank, p->rank, g->in->n * sizeof *rank);
    RU_TRY(search(g, pieces, rank, scratch, p, err));
    p->pieces = pieces;
    p->rank = rank;
    return RU_OK;
}

/* By the method of g->in. The bound is that of all methods. */
static ru_status plan_by(const rui_order_graph *g, int64_t bound_ns, ru_arena *out,
                         ru_arena *scratch, ru_order_plan *plan, ru_err *err)
{
    ru_order_plan p = {.method = g->in->method, .bound_ns = bound_ns};
    RU_TRY(make_lists(g, out, scratch, &p, err));
    RU_TRY(rui_order_predict(g, scratch, &p, err));
    if (g->in->method == RU_ORDER_OPTIMUM && g->n_xfers > 0) {
        RU_TRY(find_optimum(g, out, scratch, &p, err));
    }
    *plan = p;
    return RU_OK;
}

/* The method with the shortest step. A method that has no plan (too many pieces, too many orders)
 * is passed over; without any, the first one's reason is the answer. */
static ru_status best_of(const rui_order_graph *g, int64_t bound_ns, ru_arena *scratch,
                         ru_order_method *best, ru_err *err)
{
    int64_t least = INT64_MAX;
    ru_status first = RU_OK;
    ru_order_in by = *g->in;
    rui_order_graph same = *g;
    same.in = &by;
    for (uint32_t m = RU_ORDER_BEST + 1; m < RU_ORDER_METHODS; m++) {
        ru_arena_mark mark = ru_arena_mark_get(scratch);
        ru_order_plan p;
        ru_err why;
        by.method = (ru_order_method)m;
        ru_status st =
            plan_by(&same, bound_ns, scratch, scratch, &p, m == RU_ORDER_TAC ? err : &why);
        ru_arena_rewind(scratch, mark);
        first = m == RU_ORDER_TAC ? st : first;
        if (st == RU_OK && p.step_ns < least) {
            least = p.step_ns;
            *best = (ru_order_method)m;
        }
    }
    return least < INT64_MAX ? RU_OK : first;
}

int64_t ru_order_op_ns(double flops, double bytes)
{
    const double flops_per_ns = 20, bytes_per_ns = 5;
    const int64_t least_ns = 1000;
    return least_ns + (int64_t)(flops / flops_per_ns + bytes / bytes_per_ns);
}

ru_status ru_plan_order(const ru_order_in *in, ru_arena *out, ru_arena *scratch,
                        ru_order_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    ru_order_in by = *in;
    rui_order_graph g;
    int64_t bound_ns;
    RU_TRY(rui_order_graph_make(&by, scratch, &g, err));
    RU_TRY(rui_order_bound(&g, scratch, &bound_ns, err));
    if (in->method == RU_ORDER_BEST) {
        RU_TRY(best_of(&g, bound_ns, scratch, &by.method, err));
    }
    RU_TRY(plan_by(&g, bound_ns, out, scratch, plan, err));
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    return RU_OK;
}
