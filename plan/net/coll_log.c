/* Halving-doubling and recursive doubling, for any number of ranks.
 *
 * Halving: the ranks are cut into two nearly equal halves, again and again, down to single ranks.
 * At each cut every rank gives its part of the other half's blocks to a rank there and adds what it
 * gets for its own half. Of an odd number of ranks the left half has one more; that one gives to
 * the first rank of the right half, which so gets two parts, and gets none itself. Doubling is the
 * same backwards. Nobody moves more than (n - 1) / n of the buffer each way but for those second
 * parts, where folding surplus ranks into others would move it all once more.
 *
 * Doubling of whole buffers: let p be the largest power of two <= n. Of the first 2 (n - p) ranks
 * each odd one is folded into the even one before it; the p ranks that are left take part.
 *
 * Source: rabenseifner-2004, thakur-2005; the uneven halves are ours. */
#include "plan/net/coll_impl.h"

enum { TAG_FOLD, TAG_UNFOLD, TAG_DOWN = 2, TAG_UP = 2 + 16, TAG_OTHER = 2 + 32, CUTS_MAX = 16 };

/* -- halving --------------------------------------------------------------------------------------
 */

/* Ranks [lo, hi) in two halves, [lo, mid) and [mid, hi); rank r stands for block r. */
typedef struct cut {
    uint32_t lo, mid, hi;
} cut;

/* The cuts of the groups that rank `me` is in, the largest first. */
static uint32_t cuts_of(const rui_coll_list *l, cut cuts[CUTS_MAX])
{
    uint32_t lo = 0, hi = l->n, k = 0;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo + 1) / 2;
        cuts[k++] = (cut){lo, mid, hi};
        lo = l->me < mid ? lo : mid;
        hi = l->me < mid ? mid : hi;
    }
    return k;
}

/* The rank of the other half that `me` works with, and whether it is one too many for its half. */
static uint32_t partner(const cut *c, uint32_t me, bool *odd)
{
    uint32_t right = c->hi - c->mid;
    *odd = me < c->mid && me - c->lo == right;
    return me >= c->mid ? c->lo + (me - c->mid) : *odd ? c->mid : c->mid + (me - c->lo);
}

/* The left rank that is one too many for its half, when `me` works with that one as well. */
static bool works_twice(const cut *c, uint32_t me)
{
    return me == c->mid && c->mid - c->lo > c->hi - c->mid;
}

/* Rank i ends with the sum of block i. */
static void halve(rui_coll_list *l)
{
    cut cuts[CUTS_MAX];
    uint32_t n = cuts_of(l, cuts);
    for (uint32_t k = 0; k < n; k++) {
        const cut *c = &cuts[k];
        uint32_t tag = TAG_DOWN + k, left = c->mid - c->lo, right = c->hi - c->mid;
        bool odd;
        uint32_t other = partner(c, l->me, &odd);
        if (l->me < c->mid) {
            rui_coll_step(l, RU_COLL_SEND, other, tag, c->mid, right);
            if (!odd) {
                rui_coll_step(l, RU_COLL_REDUCE_RECV, other, tag, c->lo, left);
            }
            continue;
        }
        rui_coll_step(l, RU_COLL_SEND, other, tag, c->lo, left);
        rui_coll_step_before(l, other, tag, c->mid, right);
        if (works_twice(c, l->me)) {
            rui_coll_step_before(l, c->mid - 1, tag, c->mid, right);
        }
    }
}

/* From block i at rank i to all blocks everywhere. */
static void gather(rui_coll_list *l)
{
    cut cuts[CUTS_MAX];
    for (uint32_t k = cuts_of(l, cuts); k-- > 0;) {
        const cut *c = &cuts[k];
        uint32_t tag = TAG_UP + k, left = c->mid - c->lo, right = c->hi - c->mid;
        bool odd;
        uint32_t other = partner(c, l->me, &odd);
        if (l->me < c->mid) {
            if (!odd) {
                rui_coll_step(l, RU_COLL_SEND, other, tag, c->lo, left);
            }
            rui_coll_step(l, RU_COLL_RECV, other, tag, c->mid, right);
            continue;
        }
        rui_coll_step(l, RU_COLL_SEND, other, tag, c->mid, right);
        if (works_twice(c, l->me)) {
            rui_coll_step(l, RU_COLL_SEND, c->mid - 1, tag, c->mid, right);
        }
        rui_coll_step(l, RU_COLL_RECV, other, tag, c->lo, left);
    }
}

/* The same towards rank 0 only: the first rank of a half holds all of its blocks. */
static void gather_to_root(rui_coll_list *l)
{
    cut cuts[CUTS_MAX];
    for (uint32_t k = cuts_of(l, cuts); k-- > 0;) {
        const cut *c = &cuts[k];
        if (l->me == c->mid) {
            rui_coll_step(l, RU_COLL_SEND, c->lo, TAG_OTHER, c->mid, c->hi - c->mid);
        } else if (l->me == c->lo) {
            rui_coll_step(l, RU_COLL_RECV, c->mid, TAG_OTHER, c->mid, c->hi - c->mid);
        }
    }
}

/* The reverse: rank 0 hands out halves. */
static void scatter_from_root(rui_coll_list *l)
{
    cut cuts[CUTS_MAX];
    uint32_t n = cuts_of(l, cuts);
    for (uint32_t k = 0; k < n; k++) {
        const cut *c = &cuts[k];
        if (l->me == c->mid) {
            rui_coll_step(l, RU_COLL_RECV, c->lo, TAG_OTHER, c->mid, c->hi - c->mid);
        } else if (l->me == c->lo) {
            rui_coll_step(l, RU_COLL_SEND, c->mid, TAG_OTHER, c->mid, c->hi - c->mid);
        }
    }
}

void rui_coll_halving(rui_coll_list *l)
{
    if (l->op == RU_COLL_BROADCAST) {
        scatter_from_root(l);
    } else if (l->op != RU_COLL_ALL_GATHER) {
        halve(l);
    }
    if (l->op == RU_COLL_REDUCE) {
        gather_to_root(l);
    } else if (l->op != RU_COLL_REDUCE_SCATTER) {
        gather(l);
    }
}

/* -- doubling -------------------------------------------------------------------------------------
 */

typedef struct fold {
    uint32_t parts, rest; /* p, n - p */
    uint32_t me;          /* my part; meaningful unless folded */
    bool folded, pair;    /* I am folded away; I stand for two */
} fold;

static fold fold_of(const rui_coll_list *l)
{
    fold f = {.parts = rui_floor2(l->n)};
    f.rest = l->n - f.parts;
    f.pair = l->me < 2 * f.rest && l->me % 2 == 0;
    f.folded = l->me < 2 * f.rest && l->me % 2 == 1;
    f.me = l->me < 2 * f.rest ? l->me / 2 : l->me - f.rest;
    return f;
}

static uint32_t rank_of(const fold *f, uint32_t part)
{
    return part < f->rest ? 2 * part : part + f->rest;
}

static uint32_t log2_of(uint32_t d)
{
    uint32_t k = 0;
    while (d > 1) {
        d /= 2;
        k++;
    }
    return k;
}

/* Everybody tells the rank 2^k further on what it knows: ceil(log2 n) rounds. */
static void disseminate(rui_coll_list *l)
{
    uint32_t k = 0;
    for (uint32_t d = 1; d < l->n; d *= 2) {
        rui_coll_step(l, RU_COLL_SEND, (l->me + d) % l->n, k, 0, 1);
        rui_coll_step(l, RU_COLL_REDUCE_RECV, (l->me + l->n - d) % l->n, k, 0, 1);
        k++;
    }
}

void rui_coll_doubling(rui_coll_list *l)
{
    if (l->op == RU_COLL_BARRIER) {
        disseminate(l);
        return;
    }
    if (l->op == RU_COLL_ALL_GATHER) {
        gather(l);
        return;
    }
    fold f = fold_of(l);
    if (f.folded) {
        rui_coll_step(l, RU_COLL_SEND, l->me - 1, TAG_FOLD, 0, 1);
    } else if (f.pair) {
        rui_coll_step(l, RU_COLL_REDUCE_RECV, l->me + 1, TAG_FOLD, 0, 1);
    }
    for (uint32_t d = 1; d < f.parts && !f.folded; d *= 2) {
        uint32_t other = f.me ^ d, peer = rank_of(&f, other), tag = TAG_DOWN + log2_of(d);
        rui_coll_step(l, RU_COLL_SEND, peer, tag, 0, 1);
        if (other < f.me) {
            rui_coll_step_before(l, peer, tag, 0, 1);
        } else {
            rui_coll_step(l, RU_COLL_REDUCE_RECV, peer, tag, 0, 1);
        }
    }
    if (f.folded) {
        rui_coll_step(l, RU_COLL_RECV, l->me - 1, TAG_UNFOLD, 0, 1);
    } else if (f.pair) {
        rui_coll_step(l, RU_COLL_SEND, l->me + 1, TAG_UNFOLD, 0, 1);
    }
}
