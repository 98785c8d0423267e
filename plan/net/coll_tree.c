/* Binary tree, two complementary trees, hierarchy.
 *
 * Source: thakur-2005; sanders-2009 for the two trees: rank 0 is the root outside of both, the
 * others carry labels 1..m in order; a rank that is a leaf of one tree is an inner node of the
 * other, so that both together keep every link busy both ways. */
#include <stddef.h>

#include "plan/net/coll_impl.h"

typedef struct place {
    uint32_t parent;
    uint32_t child[2];
    uint32_t n_children;
} place;

enum { TAG_UP, TAG_DOWN = 2 /* plus the number of the tree */ };

/* Sums of the children into mine and on; what comes from the parent on to the children. */
static void reduce_up(rui_coll_list *l, const place *p, uint32_t tree)
{
    for (uint32_t k = 0; k < p->n_children; k++) {
        rui_coll_step(l, RU_COLL_REDUCE_RECV, p->child[k], TAG_UP + tree, tree, 1);
    }
    if (l->me != 0) {
        rui_coll_step(l, RU_COLL_SEND, p->parent, TAG_UP + tree, tree, 1);
    }
}

static void broadcast_down(rui_coll_list *l, const place *p, uint32_t tree)
{
    if (l->me != 0) {
        rui_coll_step(l, RU_COLL_RECV, p->parent, TAG_DOWN + tree, tree, 1);
    }
    for (uint32_t k = 0; k < p->n_children; k++) {
        rui_coll_step(l, RU_COLL_SEND, p->child[k], TAG_DOWN + tree, tree, 1);
    }
}

static bool goes_up(ru_coll_op op)
{
    return op != RU_COLL_BROADCAST;
}

static bool goes_down(ru_coll_op op)
{
    return op != RU_COLL_REDUCE;
}

void rui_coll_tree(rui_coll_list *l)
{
    place p = {.parent = l->me > 0 ? (l->me - 1) / 2 : 0};
    for (uint32_t c = 2 * l->me + 1; c <= 2 * l->me + 2 && c < l->n; c++) {
        p.child[p.n_children++] = c;
    }
    if (goes_up(l->op)) {
        reduce_up(l, &p, 0);
    }
    if (goes_down(l->op)) {
        broadcast_down(l, &p, 0);
    }
}

/* Label of a rank in tree t of m labels, and the rank of a label. An odd label is a leaf: the other
 * tree counts backwards (m even) or one further (m odd), which changes odd into even. */
static uint32_t label_of(uint32_t rank, uint32_t t, uint32_t m)
{
    if (t == 0) {
        return rank;
    }
    return m % 2 == 0 ? m + 1 - rank : rank % m + 1;
}

static uint32_t rank_of_label(uint32_t label, uint32_t t, uint32_t m)
{
    if (t == 0 || m % 2 == 0) {
        return label_of(label, t, m);
    }
    return (label + m - 2) % m + 1;
}

/* Middle of the labels [lo, lo + n): such that the left part is full. */
static uint32_t middle(uint32_t lo, uint32_t n)
{
    return lo + rui_floor2(n) - 1;
}

static place place_in(uint32_t me, uint32_t t, uint32_t m)
{
    if (me == 0) {
        return (place){.child = {rank_of_label(middle(1, m), t, m)}, .n_children = 1};
    }
    place p = {.parent = 0};
    uint32_t want = label_of(me, t, m), lo = 1, n = m, mid = middle(lo, n);
    while (mid != want) {
        p.parent = rank_of_label(mid, t, m);
        if (want < mid) {
            n = mid - lo;
        } else {
            n -= mid + 1 - lo;
            lo = mid + 1;
        }
        mid = middle(lo, n);
    }
    if (mid > lo) {
        p.child[p.n_children++] = rank_of_label(middle(lo, mid - lo), t, m);
    }
    if (lo + n > mid + 1) {
        p.child[p.n_children++] = rank_of_label(middle(mid + 1, lo + n - mid - 1), t, m);
    }
    return p;
}

void rui_coll_double_tree(rui_coll_list *l)
{
    place p[2] = {place_in(l->me, 0, l->n - 1), place_in(l->me, 1, l->n - 1)};
    for (uint32_t t = 0; t < 2 && goes_up(l->op); t++) {
        reduce_up(l, &p[t], t);
    }
    for (uint32_t t = 0; t < 2 && goes_down(l->op); t++) {
        broadcast_down(l, &p[t], t);
    }
}

enum { TAG_TO_LEADER = 0, TAG_FROM_LEADER = 1, TAG_LEADERS = 2 };

/* What a rank sends up: all blocks. Of one that is idle the last, which is never empty: who gets
 * the sum has begun. */
static void step_up(rui_coll_list *l, ru_coll_step_kind kind, uint32_t from, uint32_t peer)
{
    uint32_t first = l->idle != NULL && l->idle[from] ? l->n_blocks - 1 : 0;
    rui_coll_step(l, kind, peer, TAG_TO_LEADER, first, l->n_blocks - first);
}

void rui_coll_hierarchy(rui_coll_list *l, const rui_hosts *hosts, void (*leaders)(rui_coll_list *))
{
    uint32_t leader = hosts->leader_of[l->me];
    if (leader != l->me) {
        if (goes_up(l->op)) {
            step_up(l, RU_COLL_SEND, l->me, leader);
        }
        if (goes_down(l->op)) {
            rui_coll_step(l, RU_COLL_RECV, leader, TAG_FROM_LEADER, 0, l->n_blocks);
        }
        return;
    }
    for (uint32_t r = 0; r < l->n && goes_up(l->op); r++) {
        if (r != l->me && hosts->leader_of[r] == leader) {
            step_up(l, RU_COLL_REDUCE_RECV, r, r);
        }
    }
    rui_coll_list among = *l;
    among.n = hosts->n_leaders;
    among.map = hosts->leaders;
    among.tag = TAG_LEADERS;
    among.turn = leaders == rui_coll_direct ? 0 : hosts->root;
    among.root = leaders == rui_coll_direct ? hosts->root : 0;
    uint32_t mine = 0;
    while (hosts->leaders[mine] != leader) {
        mine++;
    }
    among.me = (mine + among.n - among.turn) % among.n;
    if (among.n > 1) {
        leaders(&among);
    }
    l->at = among.at;
    for (uint32_t r = 0; r < l->n && goes_down(l->op); r++) {
        if (r != l->me && hosts->leader_of[r] == leader) {
            rui_coll_step(l, RU_COLL_SEND, r, TAG_FROM_LEADER, 0, l->n_blocks);
        }
    }
}
