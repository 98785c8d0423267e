/* TIC and TAC: ranks of transfers from the graph.
 *
 * TAC keeps for every op the transfers that it still waits for: their number, their total time, and
 * the op list ordered by that time. Sending one transfer lowers the totals of the ops that wait for
 * it by one amount, so the order is kept by merging two runs, and the first op of the list that
 * needs a transfer gives its M+. */
#include <stddef.h>

#include "base/heap.h"
#include "plan/net/order_impl.h"

static uint32_t count_bits(uint64_t w)
{
    return (uint32_t)__builtin_popcountll(w);
}

static uint32_t first_bit(uint64_t w)
{
    return (uint32_t)__builtin_ctzll(w);
}

static const uint64_t *needs_of(const rui_order_graph *g, uint32_t op)
{
    return g->needs + (uint64_t)op * g->words;
}

bool rui_order_tic(const rui_order_graph *g, ru_arena *a, uint32_t *order, uint32_t *rank)
{
    int64_t *together = RU_NEW(a, int64_t, g->n_xfers);
    ru_heap_item *items = RU_NEW(a, ru_heap_item, g->n_xfers);
    if (together == NULL || items == NULL) {
        return false;
    }
    for (uint32_t r = 0; r < g->n_xfers; r++) {
        together[r] = INT64_MAX;
    }
    for (uint32_t i = 0; i < g->in->n; i++) {
        const uint64_t *needs = needs_of(g, i);
        uint32_t count = 0;
        for (uint32_t w = 0; w < g->words; w++) {
            count += count_bits(needs[w]);
        }
        for (uint32_t w = 0; count > 1 && w < g->words; w++) {
            for (uint64_t left = needs[w]; left != 0; left &= left - 1) {
                uint32_t r = w * 64 + first_bit(left);
                together[r] = count < together[r] ? count : together[r];
            }
        }
    }
    ru_heap sorted;
    ru_heap_init(&sorted, items, g->n_xfers);
    for (uint32_t r = 0; r < g->n_xfers; r++) {
        RU_CHECK(ru_heap_push(&sorted, together[r], r) == RU_OK);
    }
    uint32_t k = 0, group = 0;
    for (ru_heap_item top; ru_heap_pop(&sorted, &top); k++) {
        order[k] = (uint32_t)top.value;
        group = k > 0 && together[order[k - 1]] == top.key ? group : k;
        rank[order[k]] = group;
    }
    return true;
}

typedef struct tac {
    const rui_order_graph *g;
    uint64_t *left;    /* [words] transfers not sent */
    uint64_t *readers; /* [n_xfers, op_words] ops that need a transfer */
    uint32_t op_words;
    uint32_t *count;  /* [n] transfers that the op still waits for */
    int64_t *wait_ns; /* [n] their time */
    uint32_t *ops;    /* [n_ops] that wait for two or more, by wait_ns, then index */
    uint32_t *spare;  /* [n_ops] */
    uint32_t n_ops;
    uint32_t *alone; /* [n_alone] transfers not sent with P > 0, rising */
    uint32_t n_alone;
    int64_t *alone_ns; /* [n_xfers] P */
    bool instant;      /* some transfer takes 0 ns */
} tac;

/* Op i waits for one transfer only: P of that grows. */
static void add_alone(tac *t, uint32_t op)
{
    const uint64_t *needs = needs_of(t->g, op);
    for (uint32_t w = 0; t->g->in->op_ns[op] > 0 && w < t->g->words; w++) {
        uint64_t rest = needs[w] & t->left[w];
        if (rest == 0) {
            continue;
        }
        uint32_t r = w * 64 + first_bit(rest), at = t->n_alone;
        if (t->alone_ns[r] == 0) {
            for (t->n_alone++; at > 0 && t->alone[at - 1] > r; at--) {
                t->alone[at] = t->alone[at - 1];
            }
            t->alone[at] = r;
        }
        t->alone_ns[r] += t->g->in->op_ns[op];
        return;
    }
}

static bool tac_arrays(tac *t, const rui_order_graph *g, ru_arena *a)
{
    uint32_t n = g->in->n;
    *t = (tac){.g = g, .op_words = (n + 63) / 64};
    t->left = RU_NEW(a, uint64_t, g->words);
    t->readers = RU_NEW(a, uint64_t, (int64_t)g->n_xfers * t->op_words);
    t->count = RU_NEW(a, uint32_t, n);
    t->wait_ns = RU_NEW(a, int64_t, n);
    t->ops = RU_NEW(a, uint32_t, n);
    t->spare = RU_NEW(a, uint32_t, n);
    t->alone = RU_NEW(a, uint32_t, (int64_t)g->n_xfers + 1);
    t->alone_ns = RU_NEW(a, int64_t, g->n_xfers);
    return t->left != NULL && t->readers != NULL && t->count != NULL && t->wait_ns != NULL &&
           t->ops != NULL && t->spare != NULL && t->alone != NULL && t->alone_ns != NULL;
}

static bool tac_init(tac *t, const rui_order_graph *g, ru_arena *a)
{
    uint32_t n = g->in->n;
    ru_heap_item *items = RU_NEW(a, ru_heap_item, n);
    if (items == NULL || !tac_arrays(t, g, a)) {
        return false;
    }
    for (uint32_t r = 0; r < g->n_xfers; r++) {
        t->left[r / 64] |= UINT64_C(1) << r % 64;
        t->instant = t->instant || g->xfer_ns[r] == 0;
    }
    ru_heap sorted;
    ru_heap_init(&sorted, items, n);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t *needs = needs_of(g, i);
        for (uint32_t w = 0; w < g->words; w++) {
            t->count[i] += count_bits(needs[w]);
            for (uint64_t rest = needs[w]; rest != 0; rest &= rest - 1) {
                uint32_t r = w * 64 + first_bit(rest);
                t->wait_ns[i] += g->xfer_ns[r];
                t->readers[(uint64_t)r * t->op_words + i / 64] |= UINT64_C(1) << i % 64;
            }
        }
        if (t->count[i] == 1) {
            add_alone(t, i);
        } else if (t->count[i] > 1) {
            RU_CHECK(ru_heap_push(&sorted, t->wait_ns[i], i) == RU_OK);
        }
    }
    for (ru_heap_item top; ru_heap_pop(&sorted, &top);) {
        t->ops[t->n_ops++] = (uint32_t)top.value;
    }
    return true;
}

static bool is_reader(const tac *t, uint32_t r, uint32_t op)
{
    return (t->readers[(uint64_t)r * t->op_words + op / 64] >> op % 64 & 1) != 0;
}

/* M+: ops come by rising time, so the first that needs r decides. */
static int64_t together_ns(const tac *t, uint32_t r)
{
    for (uint32_t k = 0; k < t->n_ops; k++) {
        if (is_reader(t, r, t->ops[k])) {
            return t->wait_ns[t->ops[k]];
        }
    }
    return INT64_MAX;
}

static bool goes_before(const tac *t, uint32_t a, uint32_t b)
{
    const int64_t *m = t->g->xfer_ns, *p = t->alone_ns;
    int64_t x = p[b] < m[a] ? p[b] : m[a], y = p[a] < m[b] ? p[a] : m[b];
    return x != y ? x < y : together_ns(t, a) < together_ns(t, b);
}

/* The first by scan: `before` is no order when values are equal. */
static uint32_t scan_all(const tac *t)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t w = 0; w < t->g->words; w++) {
        for (uint64_t rest = t->left[w]; rest != 0; rest &= rest - 1) {
            uint32_t r = w * 64 + first_bit(rest);
            best = best == UINT32_MAX || goes_before(t, r, best) ? r : best;
        }
    }
    return best;
}

/* What scan_all gives, sooner. While no transfer takes 0 ns, one with P > 0 goes before every one
 * without, so only those are scanned; without any, the least M+ decides, then the number: the ops
 * that wait for the least time tell whose it is. */
static uint32_t first_of(const tac *t)
{
    if (t->instant) {
        return scan_all(t);
    }
    uint32_t best = UINT32_MAX;
    for (uint32_t k = 0; k < t->n_alone; k++) {
        best = k == 0 || goes_before(t, t->alone[k], best) ? t->alone[k] : best;
    }
    for (uint32_t k = 0; t->n_alone == 0 && k < t->n_ops; k++) {
        if (t->wait_ns[t->ops[k]] > t->wait_ns[t->ops[0]]) {
            break;
        }
        const uint64_t *needs = needs_of(t->g, t->ops[k]);
        uint32_t w = 0;
        while ((needs[w] & t->left[w]) == 0) {
            w++;
        }
        uint32_t r = w * 64 + first_bit(needs[w] & t->left[w]);
        best = r < best ? r : best;
    }
    for (uint32_t w = 0; best == UINT32_MAX; w++) {
        best = t->left[w] != 0 ? w * 64 + first_bit(t->left[w]) : best;
    }
    return best;
}

/* Transfer r is sent: merge the ops that waited for it, whose times fall alike, with the others. */
static void send(tac *t, uint32_t r)
{
    t->left[r / 64] &= ~(UINT64_C(1) << r % 64);
    uint32_t n_hit = 0, n_other = 0, n_alone = 0;
    for (uint32_t k = 0; k < t->n_alone; k++) {
        t->alone[n_alone] = t->alone[k];
        n_alone += t->alone[k] != r ? 1 : 0;
    }
    t->n_alone = n_alone;
    for (uint32_t k = 0; k < t->n_ops; k++) {
        uint32_t i = t->ops[k];
        if (!is_reader(t, r, i)) {
            t->ops[n_other++] = i;
            continue;
        }
        t->wait_ns[i] -= t->g->xfer_ns[r];
        if (--t->count[i] > 1) {
            t->spare[n_hit++] = i;
        } else {
            add_alone(t, i);
        }
    }
    t->n_ops = n_hit + n_other;
    for (uint32_t at = t->n_ops; n_hit > 0; at--) { /* from behind, in place */
        uint32_t hit = t->spare[n_hit - 1];
        bool other = n_other > 0 && t->wait_ns[t->ops[n_other - 1]] > t->wait_ns[hit];
        t->ops[at - 1] = other ? t->ops[--n_other] : t->spare[--n_hit];
    }
}

bool rui_order_tac(const rui_order_graph *g, ru_arena *a, uint32_t *order, uint32_t *rank)
{
    tac t;
    if (!tac_init(&t, g, a)) {
        return false;
    }
    for (uint32_t k = 0; k < g->n_xfers; k++) {
        uint32_t best = first_of(&t);
        order[k] = best;
        rank[best] = k;
        send(&t, best);
    }
    return true;
}
