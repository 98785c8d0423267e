/* Halving-doubling and recursive doubling, for any number of ranks.
 *
 * Let p be the largest power of two <= n. Of the first 2 (n - p) ranks each odd one is folded into
 * the even one before it; the p ranks that are left take part. Part i stands for the blocks of one
 * or two ranks, so parts in order stand for blocks in order.
 *
 * Source: rabenseifner-2004, thakur-2005. */
#include "plan/coll_impl.h"

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

/* Rank of a part, and first block of it. */
static uint32_t rank_of(const fold *f, uint32_t part)
{
    return part < f->rest ? 2 * part : part + f->rest;
}

static uint32_t block_of(const rui_coll_list *l, const fold *f, uint32_t part)
{
    return part == f->parts ? l->n : rank_of(f, part);
}

enum { TAG_FOLD, TAG_UNFOLD, TAG_DOWN = 2, TAG_UP = 2 + 16, TAG_OTHER = 2 + 32 };

static uint32_t log2_of(uint32_t d)
{
    uint32_t k = 0;
    while (d > 1) {
        d /= 2;
        k++;
    }
    return k;
}

/* Blocks of the `d` parts around `part` that are aligned to d. */
static void range_of(const rui_coll_list *l, const fold *f, uint32_t part, uint32_t d, uint32_t *at,
                     uint32_t *n)
{
    uint32_t lo = part / d * d;
    *at = block_of(l, f, lo);
    *n = block_of(l, f, lo + d) - *at;
}

/* Recursive halving: part i ends with the sum of its blocks. */
static void halve(rui_coll_list *l, const fold *f)
{
    for (uint32_t d = f->parts / 2; d >= 1; d /= 2) {
        uint32_t other = f->me ^ d, peer = rank_of(f, other), at, n;
        range_of(l, f, other, d, &at, &n);
        rui_coll_step(l, RU_COLL_SEND, peer, TAG_DOWN + log2_of(d), at, n);
        range_of(l, f, f->me, d, &at, &n);
        if (other < f->me) {
            rui_coll_step_before(l, peer, TAG_DOWN + log2_of(d), at, n);
        } else {
            rui_coll_step(l, RU_COLL_REDUCE_RECV, peer, TAG_DOWN + log2_of(d), at, n);
        }
    }
}

/* Recursive doubling of what each part holds. */
static void gather(rui_coll_list *l, const fold *f)
{
    for (uint32_t d = 1; d < f->parts; d *= 2) {
        uint32_t other = f->me ^ d, peer = rank_of(f, other), at, n;
        range_of(l, f, f->me, d, &at, &n);
        rui_coll_step(l, RU_COLL_SEND, peer, TAG_UP + log2_of(d), at, n);
        range_of(l, f, other, d, &at, &n);
        rui_coll_step(l, RU_COLL_RECV, peer, TAG_UP + log2_of(d), at, n);
    }
}

/* The same towards part 0 only: a binomial tree. */
static void gather_to_root(rui_coll_list *l, const fold *f)
{
    for (uint32_t d = 1; d < f->parts; d *= 2) {
        uint32_t other = f->me ^ d, at, n;
        if ((f->me & d) != 0) {
            range_of(l, f, f->me, d, &at, &n);
            rui_coll_step(l, RU_COLL_SEND, rank_of(f, other), TAG_OTHER, at, n);
            return;
        }
        range_of(l, f, other, d, &at, &n);
        rui_coll_step(l, RU_COLL_RECV, rank_of(f, other), TAG_OTHER, at, n);
    }
}

/* The reverse: part 0 hands out halves. */
static void scatter_from_root(rui_coll_list *l, const fold *f)
{
    uint32_t d = f->parts / 2, at, n;
    for (; d >= 1; d /= 2) {
        if (f->me % d != 0) {
            continue;
        }
        uint32_t other = f->me ^ d;
        if ((f->me & d) != 0) {
            range_of(l, f, f->me, d, &at, &n);
            rui_coll_step(l, RU_COLL_RECV, rank_of(f, other), TAG_OTHER, at, n);
        } else {
            range_of(l, f, other, d, &at, &n);
            rui_coll_step(l, RU_COLL_SEND, rank_of(f, other), TAG_OTHER, at, n);
        }
    }
}

/* The folded rank and its partner: everything (or one block) up before, and back after. */
static void fold_in(rui_coll_list *l, const fold *f, uint32_t at, uint32_t n, bool add)
{
    if (f->folded) {
        rui_coll_step(l, RU_COLL_SEND, l->me - 1, TAG_FOLD, at, n);
    } else if (f->pair) {
        rui_coll_step(l, add ? RU_COLL_REDUCE_RECV : RU_COLL_RECV, l->me + 1, TAG_FOLD, at, n);
    }
}

static void fold_out(rui_coll_list *l, const fold *f, uint32_t at, uint32_t n)
{
    if (f->folded) {
        rui_coll_step(l, RU_COLL_RECV, l->me - 1, TAG_UNFOLD, at, n);
    } else if (f->pair) {
        rui_coll_step(l, RU_COLL_SEND, l->me + 1, TAG_UNFOLD, at, n);
    }
}

/* Block of the folded one of my pair. */
static uint32_t odd_block(const rui_coll_list *l, const fold *f)
{
    return f->folded ? l->me : l->me + 1;
}

static void all_gather(rui_coll_list *l, const fold *f)
{
    fold_in(l, f, odd_block(l, f), 1, false);
    if (!f->folded) {
        gather(l, f);
    }
    fold_out(l, f, 0, l->n);
}

void rui_coll_halving(rui_coll_list *l)
{
    fold f = fold_of(l);
    bool sums =
        l->op == RU_COLL_ALL_REDUCE || l->op == RU_COLL_REDUCE_SCATTER || l->op == RU_COLL_REDUCE;
    if (l->op == RU_COLL_ALL_GATHER) {
        all_gather(l, &f);
        return;
    }
    if (sums) {
        fold_in(l, &f, 0, l->n, true);
    }
    if (sums && !f.folded) {
        halve(l, &f);
    }
    if (l->op == RU_COLL_REDUCE && !f.folded) {
        gather_to_root(l, &f);
    }
    if (l->op == RU_COLL_BROADCAST && !f.folded) {
        scatter_from_root(l, &f);
    }
    if ((l->op == RU_COLL_ALL_REDUCE || l->op == RU_COLL_BROADCAST) && !f.folded) {
        gather(l, &f);
    }
    if (l->op == RU_COLL_REDUCE_SCATTER) {
        fold_out(l, &f, odd_block(l, &f), 1);
    } else if (l->op != RU_COLL_REDUCE) {
        fold_out(l, &f, 0, l->n);
    }
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
    fold f = fold_of(l);
    if (l->op == RU_COLL_ALL_GATHER) {
        all_gather(l, &f);
        return;
    }
    fold_in(l, &f, 0, 1, true);
    for (uint32_t d = 1; d < f.parts && !f.folded; d *= 2) {
        uint32_t other = f.me ^ d, peer = rank_of(&f, other), tag = TAG_DOWN + log2_of(d);
        rui_coll_step(l, RU_COLL_SEND, peer, tag, 0, 1);
        if (other < f.me) {
            rui_coll_step_before(l, peer, tag, 0, 1);
        } else {
            rui_coll_step(l, RU_COLL_REDUCE_RECV, peer, tag, 0, 1);
        }
    }
    fold_out(l, &f, 0, 1);
}
