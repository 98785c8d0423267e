/* First fit in several orders, then local search on the order.
 *
 * Buffers that are part of one another form a family, which is placed as one block: its size covers
 * all members, its lifetime runs from the first member's start to the last one's end. Blocks are
 * placed one after the other, each at the lowest address where it meets no block that lives at the
 * same time; so an order of blocks is a plan, and searching plans is searching orders.
 *
 * Local search: take a block that touches the peak, put it earlier in the order, place all again,
 * keep the order when the peak did not grow. Work is counted in neighbours looked at, so that the
 * result does not depend on the machine. */
#include "plan/step/mem.h"

#include <string.h>

/* Measured on the step graphs of our zoo (docs/plan.md): what this does not reach, ten times as
 * much does not reach either. About 15 ms. */
enum { WORK_DEFAULT = 8 << 20 };

typedef struct block {
    int64_t size; /* rounded up */
    uint32_t first, last;
} block;

typedef struct placed {
    int64_t at, end;
    uint32_t first, last;
} placed;

typedef struct planner {
    const ru_mem_in *in;
    int64_t align;
    uint32_t *family;  /* [n] block of each buffer */
    int64_t *in_block; /* [n] where in it */
    block *blocks;     /* [n_blocks] */
    uint32_t n_blocks;
    uint32_t *order, *best_order, *trial; /* [n_blocks] */
    int64_t *at, *best_at;                /* [n_blocks] */
    placed *list;                         /* [n_blocks] sorted by address */
    int64_t *key;                         /* [n_blocks] for sorting */
    uint32_t *idx_tmp;
    int64_t bound, best_peak;
    uint32_t peak_step; /* the fullest */
    ru_mem_order winner;
    uint32_t improved;
    int64_t work, work_max;
    uint64_t rng;
} planner;

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* splitmix64: one multiplication chain of a counter. */
static uint64_t draw(planner *p)
{
    p->rng += 0x9e3779b97f4a7c15u;
    uint64_t z = p->rng;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* -- input ------------------------------------------------------------------------------ */

static ru_status check_buf(const planner *p, uint32_t i, ru_err *err)
{
    const ru_mem_buf *b = &p->in->bufs[i];
    if (b->size_bytes < 0 || b->size_bytes > INT64_MAX / 8 || b->first > b->last) {
        return RU_FAIL(err, RU_E_ARG,
                       "buffer %u has %lld bytes from step %u to step %u; expected 0 bytes or more "
                       "and rising steps",
                       i, (long long)b->size_bytes, b->first, b->last);
    }
    if (b->part_of > i) {
        return RU_FAIL(err, RU_E_ARG, "buffer %u is part of buffer %u, which must come earlier", i,
                       b->part_of - 1);
    }
    bool shifted = b->part_at_bytes != 0 && b->part_of == 0;
    if (shifted || b->part_at_bytes < 0 || b->part_at_bytes % p->align != 0 ||
        b->part_at_bytes > INT64_MAX / 8) {
        return RU_FAIL(err, RU_E_ARG, "buffer %u: part_at_bytes %lld is not a multiple of %lld", i,
                       (long long)b->part_at_bytes, (long long)p->align);
    }
    return RU_OK;
}

/* Families: a parent always stands before its parts, so one pass finds the root. */
static ru_status make_blocks(planner *p, ru_err *err)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < p->in->n; i++) {
        const ru_mem_buf *b = &p->in->bufs[i];
        RU_TRY(check_buf(p, i, err));
        if (b->part_of == 0) {
            p->family[i] = p->n_blocks;
            p->blocks[p->n_blocks++] =
                (block){round_up(b->size_bytes, p->align), b->first, b->last};
        } else {
            p->family[i] = p->family[b->part_of - 1];
            p->in_block[i] = p->in_block[b->part_of - 1] + b->part_at_bytes;
            block *k = &p->blocks[p->family[i]];
            int64_t end = p->in_block[i] + round_up(b->size_bytes, p->align);
            k->size = end > k->size ? end : k->size;
            k->first = b->first < k->first ? b->first : k->first;
            k->last = b->last > k->last ? b->last : k->last;
        }
        total += round_up(b->size_bytes, p->align) + b->part_at_bytes;
        if (total > INT64_MAX / 4) {
            return RU_FAIL(err, RU_E_LIMIT, "the buffers together need more than %lld bytes",
                           (long long)(INT64_MAX / 4));
        }
    }
    return RU_OK;
}

static ru_status make_planner(const ru_mem_in *in, ru_arena *scratch, planner *p, ru_err *err)
{
    *p = (planner){.in = in, .rng = in->seed, .best_peak = INT64_MAX};
    p->align = in->align_bytes != 0 ? in->align_bytes : RU_MEM_ALIGN_DEFAULT;
    p->work_max = in->work_max == 0 ? WORK_DEFAULT : (in->work_max < 0 ? 0 : in->work_max);
    if (in->n > RU_MEM_BUFS_MAX || p->align < 1 || p->align > (1 << 30) ||
        (p->align & (p->align - 1)) != 0) {
        return RU_FAIL(
            err, RU_E_ARG,
            "there are %u buffers (at most %d), aligned to %lld (expected a power of two)", in->n,
            RU_MEM_BUFS_MAX, (long long)p->align);
    }
    p->family = RU_NEW(scratch, uint32_t, in->n);
    p->in_block = RU_NEW(scratch, int64_t, in->n);
    p->blocks = RU_NEW(scratch, block, in->n);
    p->order = RU_NEW(scratch, uint32_t, in->n);
    p->best_order = RU_NEW(scratch, uint32_t, in->n);
    p->trial = RU_NEW(scratch, uint32_t, in->n);
    p->at = RU_NEW(scratch, int64_t, in->n);
    p->best_at = RU_NEW(scratch, int64_t, in->n);
    p->list = RU_NEW(scratch, placed, in->n);
    p->key = RU_NEW(scratch, int64_t, in->n);
    p->idx_tmp = RU_NEW(scratch, uint32_t, in->n);
    bool full = p->family == NULL || p->in_block == NULL || p->blocks == NULL || p->order == NULL ||
                p->best_order == NULL || p->trial == NULL || p->at == NULL || p->best_at == NULL ||
                p->list == NULL || p->key == NULL || p->idx_tmp == NULL;
    if (full) {
        return RU_FAIL(err, RU_E_LIMIT, "scratch arena is full while planning %u buffers", in->n);
    }
    return make_blocks(p, err);
}

/* -- orders ----------------------------------------------------------------------------- */

/* Stable merge sort of `order` by falling key[block]; equal keys keep their order. */
static void sort_by_key(planner *p, uint32_t *order)
{
    uint32_t n = p->n_blocks;
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t lo = 0; lo < n; lo += 2 * width) {
            uint32_t mid = lo + width < n ? lo + width : n;
            uint32_t hi = mid + width < n ? mid + width : n;
            uint32_t a = lo, b = mid;
            for (uint32_t k = lo; k < hi; k++) {
                bool left = a < mid && (b >= hi || p->key[order[a]] >= p->key[order[b]]);
                p->idx_tmp[k] = left ? order[a++] : order[b++];
            }
        }
        memcpy(order, p->idx_tmp, n * sizeof order[0]);
    }
}

static int64_t key_of(const planner *p, ru_mem_order how, const block *b)
{
    int64_t life = (int64_t)b->last - b->first + 1;
    switch (how) {
    case RU_MEM_BY_SIZE:
        return b->size;
    case RU_MEM_BY_START:
        return -(int64_t)b->first;
    case RU_MEM_BY_AREA:
        return b->size > INT64_MAX / life ? INT64_MAX : b->size * life;
    case RU_MEM_BY_LIFETIME:
        return life;
    case RU_MEM_BY_PEAK:
        return b->first <= p->peak_step && p->peak_step <= b->last ? b->size + INT64_MAX / 2
                                                                   : b->size;
    case RU_MEM_ORDER_COUNT:
        break;
    }
    return 0;
}

static void make_order(planner *p, ru_mem_order how)
{
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        p->order[i] = i;
        p->key[i] = key_of(p, how, &p->blocks[i]);
    }
    sort_by_key(p, p->order);
}

/* Largest sum of sizes alive at one step: starts in order, ends caught up before each start. */
static void find_bound(planner *p)
{
    int64_t live = 0;
    uint32_t ended = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        p->trial[i] = i;
        p->key[i] = -(int64_t)p->blocks[i].last;
    }
    sort_by_key(p, p->trial);
    make_order(p, RU_MEM_BY_START);
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        const block *b = &p->blocks[p->order[i]];
        for (; p->blocks[p->trial[ended]].last < b->first; ended++) {
            live -= p->blocks[p->trial[ended]].size;
        }
        live += b->size;
        if (live > p->bound) {
            p->bound = live;
            p->peak_step = b->first;
        }
    }
}

/* -- placing ---------------------------------------------------------------------------- */

/* Keep the list of n sorted by address; equal addresses keep their order. */
static void list_insert(planner *p, uint32_t n, const placed *x)
{
    uint32_t slot = n;
    for (; slot > 0 && p->list[slot - 1].at > x->at; slot--) {
    }
    memmove(&p->list[slot + 1], &p->list[slot], (n - slot) * sizeof p->list[0]);
    p->list[slot] = *x;
}

/* Place all blocks in `order` into p->at. Gives the peak, or INT64_MAX as soon as it passes
 * `limit`. */
static int64_t place(planner *p, const uint32_t *order, int64_t limit)
{
    int64_t peak = 0;
    for (uint32_t k = 0, n = 0; k < p->n_blocks; k++) {
        const block *b = &p->blocks[order[k]];
        int64_t at = 0;
        for (uint32_t i = 0; i < n; i++) {
            const placed *q = &p->list[i];
            if (q->last < b->first || b->last < q->first) {
                continue;
            }
            if (q->at - at >= b->size) {
                break;
            }
            at = q->end > at ? q->end : at;
        }
        p->work += n + 1;
        p->at[order[k]] = at;
        peak = at + b->size > peak ? at + b->size : peak;
        if (peak > limit) {
            return INT64_MAX;
        }
        if (b->size > 0) {
            list_insert(p, n++, &(placed){at, at + b->size, b->first, b->last});
        }
    }
    return peak;
}

static void keep(planner *p, const uint32_t *order, int64_t peak)
{
    p->best_peak = peak;
    memcpy(p->best_at, p->at, p->n_blocks * sizeof p->at[0]);
    memmove(p->best_order, order, p->n_blocks * sizeof order[0]);
}

/* -- local search ----------------------------------------------------------------------- */

/* A place in the best order whose block ends at the peak; which one is drawn. */
static uint32_t pick_peak(planner *p)
{
    uint32_t found = 0, n = 0;
    for (uint32_t k = 0; k < p->n_blocks; k++) {
        uint32_t b = p->best_order[k];
        if (p->best_at[b] + p->blocks[b].size == p->best_peak && draw(p) % ++n == 0) {
            found = k;
        }
    }
    return found;
}

static void improve(planner *p)
{
    while (p->best_peak > p->bound && p->work < p->work_max) {
        uint32_t from = pick_peak(p);
        /* Two thirds of the moves take the block at the peak, the others a random one. */
        from = draw(p) % 3 == 0 ? (uint32_t)(draw(p) % p->n_blocks) : from;
        uint32_t to = (uint32_t)(draw(p) % (from + 1));
        uint32_t moved = p->best_order[from];
        memcpy(p->trial, p->best_order, p->n_blocks * sizeof p->trial[0]);
        memmove(&p->trial[to + 1], &p->trial[to], (from - to) * sizeof p->trial[0]);
        p->trial[to] = moved;
        p->work += p->n_blocks;
        int64_t peak = place(p, p->trial, p->best_peak);
        if (peak <= p->best_peak) {
            p->improved += peak < p->best_peak;
            keep(p, p->trial, peak);
        }
    }
}

static ru_status plan(const ru_mem_in *in, ru_arena *scratch, planner *p, ru_err *err)
{
    RU_TRY(make_planner(in, scratch, p, err));
    find_bound(p);
    for (uint32_t how = 0; how < RU_MEM_ORDER_COUNT && p->best_peak > p->bound; how++) {
        make_order(p, (ru_mem_order)how);
        int64_t peak = place(p, p->order, INT64_MAX);
        if (peak < p->best_peak) {
            keep(p, p->order, peak);
            p->winner = (ru_mem_order)how;
        }
    }
    improve(p);
    return RU_OK;
}

ru_status ru_plan_mem(const ru_mem_in *in, ru_arena *out, ru_arena *scratch, ru_mem_plan *into,
                      ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    int64_t *offsets = RU_NEW(out, int64_t, in->n <= RU_MEM_BUFS_MAX ? in->n : 0);
    planner p;
    ru_status st = RU_OK;
    if (offsets == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "plan arena is full while placing %u buffers", in->n);
    }
    if (out == scratch) {
        mark = ru_arena_mark_get(scratch);
    }
    st = plan(in, scratch, &p, err);
    if (st == RU_OK) {
        for (uint32_t i = 0; i < in->n; i++) {
            offsets[i] = p.best_at[p.family[i]] + p.in_block[i];
        }
        *into = (ru_mem_plan){.offsets = offsets,
                              .n = in->n,
                              .peak_bytes = p.best_peak,
                              .bound_bytes = p.bound,
                              .order = p.winner,
                              .improved = p.improved,
                              .work = p.work};
    }
    ru_arena_rewind(scratch, mark);
    return st;
}
