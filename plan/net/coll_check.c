/* The checker of collective schedules. It shares nothing with the planner.
 *
 * 1. Shape: every field in range, tags unique, each send with its receive.
 * 2. Progress: a step waits for all steps before it that touch the same blocks, and for its mate
 *    when it moves bytes. Such a system reaches the same end whatever the timing, so one run to a
 *    standstill proves or refutes that no steps wait for each other in a circle. Blocks that no
 * step of a rank tells apart are one cell there, so that long block ranges cost no more than short
 *    ones.
 * 3. Sums: the same run again, one block at a time, on expressions instead of numbers. An
 *    expression is a rank's own block or the sum of two expressions. Equal expressions have one
 *    number, whatever the order of two operands, because IEEE addition does not depend on it: ranks
 *    with equal numbers hold the same bits. A sum is complete when a walk through its expression
 *    meets every rank once; it may leave out idle ones.
 *
 * Memory grows with steps and ranks, never with their product, so that every member of a large
 * group can check the schedule that it is about to use. */
#include "plan/net/coll.h"

#include <string.h>

#define NONE UINT32_MAX

enum { STARTED = 1, MOVED = 2, DONE = 4 };

typedef struct judge {
    const ru_coll_schedule *s;
    ru_arena *scratch;
    uint32_t n;          /* steps of all ranks */
    uint16_t *rank;      /* [n] */
    uint32_t *mate;      /* [n] receive of a send and the reverse; NONE: a local step */
    uint32_t *lo, *hi;   /* [n] cells of its rank that a step touches: [lo, hi) */
    uint32_t *waits;     /* [n] steps before it that are not done */
    uint32_t *first;     /* [n + 1] */
    uint32_t *followers; /* [first[n]] who waits for step i: [first[i], first[i + 1]) */
    uint8_t *state;      /* [n] STARTED, ... */
    uint32_t *log;       /* [n_log] sends when their bytes leave, others when they are done */
    uint32_t n_log;
} judge;

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the scratch arena is full while checking a collective");
}

/* -- shape --------------------------------------------------------------------------------------
 */

static ru_status judge_head(const ru_coll_schedule *s, ru_err *err)
{
    bool known = (uint32_t)s->op < RU_COLL_OPS && (uint32_t)s->algo < RU_COLL_ALGOS;
    bool sized = s->n_ranks >= 1 && s->n_ranks <= RU_COLL_RANKS_MAX && s->root < s->n_ranks;
    if (!known || !sized || s->n_blocks < 1 || s->n_blocks > RU_COLL_STEPS_MAX ||
        s->begin[0] != 0) {
        return RU_FAIL(
            err, RU_E_INFEASIBLE,
            "the schedule is not valid: op %u, algorithm %u, %u ranks, root %u, %u blocks",
            (unsigned)s->op, (unsigned)s->algo, s->n_ranks, s->root, s->n_blocks);
    }
    bool owned = s->op == RU_COLL_REDUCE_SCATTER || s->op == RU_COLL_ALL_GATHER ||
                 s->op == RU_COLL_ALL_TO_ALL;
    if (owned && s->n_blocks != s->n_ranks) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%s of %u ranks has %u blocks; expected one for each rank",
                       ru_coll_op_name(s->op), s->n_ranks, s->n_blocks);
    }
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        if (s->begin[r + 1] < s->begin[r] || s->begin[r + 1] - s->begin[r] > RU_COLL_STEPS_MAX) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "the list of rank %u goes from step %u to step %u",
                           r, s->begin[r], s->begin[r + 1]);
        }
    }
    return RU_OK;
}

static ru_status judge_step(const judge *j, uint32_t i, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    const ru_coll_step *x = &s->steps[i];
    bool local = x->kind == RU_COLL_FOLD || x->kind == RU_COLL_PLACE;
    bool peer = local ? x->peer == j->rank[i] && x->tag == 0
                      : x->peer != j->rank[i] && x->peer < s->n_ranks;
    bool blocks =
        x->n_blocks >= 1 && x->block < s->n_blocks && x->n_blocks <= s->n_blocks - x->block;
    bool one = s->op != RU_COLL_ALL_TO_ALL ||
               (x->n_blocks == 1 && x->kind != RU_COLL_REDUCE_RECV && x->kind != RU_COLL_FOLD);
    bool before = x->before == 0 || (x->before == 1 && x->kind == RU_COLL_REDUCE_RECV);
    if (x->kind >= RU_COLL_STEP_KINDS || !peer || !blocks || !one || !before || x->pad != 0) {
        return RU_FAIL(
            err, RU_E_INFEASIBLE, "rank %u, step %u is not valid: kind %u, peer %u, blocks %u + %u",
            j->rank[i], i - s->begin[j->rank[i]], x->kind, x->peer, x->block, x->n_blocks);
    }
    return RU_OK;
}

/* (sender, receiver, tag) as one number. */
static uint64_t key_of(const judge *j, uint32_t i)
{
    const ru_coll_step *x = &j->s->steps[i];
    uint64_t me = j->rank[i], peer = x->peer;
    uint64_t pair = x->kind == RU_COLL_SEND ? me << 16 | peer : peer << 16 | me;
    return pair << 16 | x->tag;
}

static ru_status unmatched(const judge *j, uint32_t i, const char *what, ru_err *err)
{
    const ru_coll_step *x = &j->s->steps[i];
    return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, step %u: the %s rank %u with tag %u %s",
                   j->rank[i], i - j->s->begin[j->rank[i]],
                   x->kind == RU_COLL_SEND ? "send to" : "receive from", x->peer, x->tag, what);
}

static ru_status judge_pair(const judge *j, uint32_t send, uint32_t recv, ru_err *err)
{
    const ru_coll_step *a = &j->s->steps[send], *b = &j->s->steps[recv];
    bool same = a->block == b->block || j->s->op == RU_COLL_ALL_TO_ALL;
    if (!same || a->n_blocks != b->n_blocks) {
        return unmatched(j, send, "is received into other blocks", err);
    }
    return RU_OK;
}

/* A table of 2^k places with at most half of them taken. */
static uint32_t places_for(uint32_t n)
{
    uint32_t size = 8;
    while (size < 2 * (uint64_t)n) {
        size *= 2;
    }
    return size;
}

static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Place of the send with this key, or the free place where it belongs. */
static uint32_t place_of(const judge *j, const uint32_t *table, uint32_t mask, uint64_t key)
{
    uint32_t at = (uint32_t)scramble(key) & mask;
    while (table[at] != NONE && key_of(j, table[at]) != key) {
        at = (at + 1) & mask;
    }
    return at;
}

/* Find the receive of each send. */
static ru_status judge_mates(judge *j, ru_err *err)
{
    uint32_t size = places_for(j->n);
    ru_arena_mark mark = ru_arena_mark_get(j->scratch);
    uint32_t *table = ru_arena_alloc(j->scratch, size * (int64_t)sizeof *table, 4);
    if (table == NULL) {
        return full(err);
    }
    memset(table, 0xff, size * sizeof *table);
    for (uint32_t i = 0; i < j->n; i++) {
        j->mate[i] = NONE;
        if (j->s->steps[i].kind == RU_COLL_SEND) {
            uint32_t at = place_of(j, table, size - 1, key_of(j, i));
            if (table[at] != NONE) {
                return unmatched(j, i, "appears twice", err);
            }
            table[at] = i;
        }
    }
    for (uint32_t i = 0; i < j->n; i++) {
        if (ru_coll_step_receives(&j->s->steps[i])) {
            uint32_t send = table[place_of(j, table, size - 1, key_of(j, i))];
            if (send == NONE || j->mate[send] != NONE) {
                return unmatched(j, i, "has no match", err);
            }
            RU_TRY(judge_pair(j, send, i, err));
            j->mate[send] = i;
            j->mate[i] = send;
        }
    }
    for (uint32_t i = 0; i < j->n; i++) {
        if (j->s->steps[i].kind == RU_COLL_SEND && j->mate[i] == NONE) {
            return unmatched(j, i, "has no match", err);
        }
    }
    ru_arena_rewind(j->scratch, mark);
    return RU_OK;
}

/* -- progress -----------------------------------------------------------------------------------
 */

/* Per place (cell or, `cells` further, its aside) of one rank: who wrote it last, and who read it
 * since: a list through `node`. */
typedef struct places {
    uint32_t cells;             /* most cells of a rank */
    uint32_t *writer, *readers; /* [2 * cells] */
    uint32_t *node_step, *node_next;
    uint32_t n_nodes;
} places;

/* What step x does to its blocks and to their asides: 0 nothing, 1 reads, 2 writes. */
static uint32_t touches(const ru_coll_step *x, bool aside)
{
    switch ((ru_coll_step_kind)x->kind) {
    case RU_COLL_SEND:
        return aside ? 0 : 1;
    case RU_COLL_RECV:
    case RU_COLL_REDUCE_RECV:
        return aside ? 0 : 2;
    case RU_COLL_RECV_ASIDE:
        return aside ? 2 : 0;
    case RU_COLL_FOLD:
    case RU_COLL_PLACE:
        return 2;
    case RU_COLL_STEP_KINDS:
        break;
    }
    return 0;
}

/* Step `i` follows step `before`: counted at first, then written down. */
static void follow(judge *j, uint32_t before, uint32_t i, bool write)
{
    if (write) {
        j->followers[j->first[before]++] = i;
    } else {
        j->first[before + 1]++;
        j->waits[i]++;
    }
}

static void touch(judge *j, places *p, uint32_t place, uint32_t i, bool writes, bool write_down)
{
    if (p->writer[place] != NONE) {
        follow(j, p->writer[place], i, write_down);
    }
    if (!writes) {
        p->node_step[p->n_nodes] = i;
        p->node_next[p->n_nodes] = p->readers[place];
        p->readers[place] = p->n_nodes++;
        return;
    }
    for (uint32_t k = p->readers[place]; k != NONE; k = p->node_next[k]) {
        follow(j, p->node_step[k], i, write_down);
    }
    p->readers[place] = NONE;
    p->writer[place] = i;
}

static void walk(judge *j, places *p, bool write_down)
{
    for (uint32_t r = 0; r < j->s->n_ranks; r++) {
        memset(p->writer, 0xff, 2 * (size_t)p->cells * sizeof(uint32_t));
        memset(p->readers, 0xff, 2 * (size_t)p->cells * sizeof(uint32_t));
        p->n_nodes = 0;
        for (uint32_t i = j->s->begin[r]; i < j->s->begin[r + 1]; i++) {
            for (uint32_t side = 0; side < 2; side++) {
                uint32_t how = touches(&j->s->steps[i], side == 1);
                for (uint32_t c = j->lo[i]; c < j->hi[i] && how != 0; c++) {
                    touch(j, p, side * p->cells + c, i, how == 2, write_down);
                }
            }
        }
    }
}

/* Sorts edges of block ranges and leaves each once; returns how many. */
static uint32_t sort_edges(uint32_t *edge, uint32_t n)
{
    uint32_t gap = 1, left = 0;
    while (gap < n / 3) {
        gap = gap * 3 + 1;
    }
    for (; gap > 0; gap /= 3) {
        for (uint32_t i = gap; i < n; i++) {
            uint32_t x = edge[i], k = i;
            for (; k >= gap && edge[k - gap] > x; k -= gap) {
                edge[k] = edge[k - gap];
            }
            edge[k] = x;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || edge[i] != edge[i - 1]) {
            edge[left++] = edge[i];
        }
    }
    return left;
}

static uint32_t edge_at(const uint32_t *edge, uint32_t n, uint32_t block)
{
    uint32_t lo = 0;
    while (n > 1) {
        uint32_t half = n / 2;
        lo += edge[lo + half] <= block ? half : 0;
        n -= half;
    }
    return lo;
}

/* The cells of every step: blocks between two neighbouring edges of its rank's ranges. */
static ru_status find_cells(judge *j, uint32_t *cells, uint64_t *reads, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    ru_arena_mark mark = ru_arena_mark_get(j->scratch);
    uint32_t longest = 0;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        uint32_t n = s->begin[r + 1] - s->begin[r];
        longest = n > longest ? n : longest;
    }
    uint32_t *edge = RU_NEW(j->scratch, uint32_t, 2 * (int64_t)longest);
    if (edge == NULL) {
        return full(err);
    }
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        uint32_t n = 0;
        uint64_t sum = 0;
        for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            edge[n++] = s->steps[i].block;
            edge[n++] = s->steps[i].block + s->steps[i].n_blocks;
        }
        n = sort_edges(edge, n);
        for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            j->lo[i] = edge_at(edge, n, s->steps[i].block);
            j->hi[i] = edge_at(edge, n, s->steps[i].block + s->steps[i].n_blocks);
            sum += j->hi[i] - j->lo[i];
        }
        *cells = n > *cells ? n : *cells;
        *reads = sum > *reads ? sum : *reads;
    }
    ru_arena_rewind(j->scratch, mark);
    return RU_OK;
}

/* Who waits for whom inside a rank. */
static ru_status find_order(judge *j, ru_err *err)
{
    places p = {0};
    uint64_t most = 0;
    RU_TRY(find_cells(j, &p.cells, &most, err));
    p.writer = RU_NEW(j->scratch, uint32_t, 2 * (int64_t)p.cells);
    p.readers = RU_NEW(j->scratch, uint32_t, 2 * (int64_t)p.cells);
    p.node_step = RU_NEW(j->scratch, uint32_t, most);
    p.node_next = RU_NEW(j->scratch, uint32_t, most);
    if (p.writer == NULL || p.readers == NULL || p.node_step == NULL || p.node_next == NULL) {
        return full(err);
    }
    walk(j, &p, false);
    for (uint32_t i = 0; i < j->n; i++) {
        j->first[i + 1] += j->first[i];
    }
    j->followers = RU_NEW(j->scratch, uint32_t, j->first[j->n]);
    if (j->followers == NULL) {
        return full(err);
    }
    walk(j, &p, true); /* moves the beginning of each list to its end: that of the next one */
    memmove(j->first + 1, j->first, j->n * sizeof *j->first);
    j->first[0] = 0;
    return RU_OK;
}

typedef struct stack {
    uint32_t *at, n; /* steps that wait for no step of their rank any more */
} stack;

static void done(judge *j, stack *st, uint32_t i)
{
    j->state[i] |= DONE;
    if (j->s->steps[i].kind != RU_COLL_SEND) {
        j->log[j->n_log++] = i;
    }
    for (uint32_t k = j->first[i]; k < j->first[i + 1]; k++) {
        if (--j->waits[j->followers[k]] == 0) {
            st->at[st->n++] = j->followers[k];
        }
    }
}

static void move(judge *j, stack *st, uint32_t send, uint32_t recv)
{
    j->log[j->n_log++] = send;
    j->state[recv] |= MOVED;
    done(j, st, send);
    if ((j->state[recv] & STARTED) != 0) {
        done(j, st, recv);
    }
}

static void start(judge *j, stack *st, uint32_t i)
{
    const ru_coll_step *x = &j->s->steps[i];
    uint32_t mate = j->mate[i];
    j->state[i] |= STARTED;
    if (mate == NONE) {
        done(j, st, i);
    } else if (x->kind == RU_COLL_SEND) {
        bool placed = j->s->steps[mate].kind == RU_COLL_RECV;
        if (!placed || (j->state[mate] & STARTED) != 0) {
            move(j, st, i, mate);
        }
    } else if ((j->state[i] & MOVED) != 0) {
        done(j, st, i);
    } else if (x->kind == RU_COLL_RECV && (j->state[mate] & STARTED) != 0) {
        move(j, st, mate, i);
    }
}

static ru_status judge_progress(judge *j, ru_err *err)
{
    stack st = {.at = RU_NEW(j->scratch, uint32_t, j->n)};
    if (st.at == NULL) {
        return full(err);
    }
    for (uint32_t i = 0; i < j->n; i++) {
        if (j->waits[i] == 0) {
            st.at[st.n++] = i;
        }
    }
    while (st.n > 0) {
        start(j, &st, st.at[--st.n]);
    }
    for (uint32_t i = 0; i < j->n; i++) {
        if ((j->state[i] & DONE) == 0) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, step %u waits forever for %s",
                           j->rank[i], i - j->s->begin[j->rank[i]],
                           (j->state[i] & STARTED) != 0 ? "its peer" : "a step before it");
        }
    }
    return RU_OK;
}

/* -- sums ---------------------------------------------------------------------------------------
 */

/* Expression v: the own block of rank v when v < n_ranks, else the sum of two others. */
typedef struct sums {
    uint32_t n_ranks, n_busy; /* busy: not idle */
    const bool *idle;
    uint32_t *left, *right; /* [sums_max] operands, left <= right */
    uint32_t n_sums;        /* of this block */
    uint32_t *table, mask;  /* places of sums by their operands */
    uint32_t *mine, *aside; /* [n_ranks] expressions of this block */
    uint64_t *aside_from;   /* [n_ranks] block << 32 | n_blocks of what stands aside; 0: nothing */
    uint32_t *sent;         /* [n] expression of each send */
    uint32_t *steps, n_steps; /* of this block, in the order of the run */
    uint32_t *met, walks;     /* [n_ranks + sums_max] last walk that met an expression */
    uint32_t *todo;           /* [n_ranks + sums_max] */
} sums;

static uint32_t plus(sums *k, uint32_t a, uint32_t b)
{
    uint32_t lo = a < b ? a : b, hi = a < b ? b : a;
    uint32_t at = (uint32_t)scramble((uint64_t)lo << 32 | hi) & k->mask;
    while (k->table[at] != NONE) {
        uint32_t i = k->table[at];
        if (k->left[i] == lo && k->right[i] == hi) {
            return k->n_ranks + i;
        }
        at = (at + 1) & k->mask;
    }
    k->left[k->n_sums] = lo;
    k->right[k->n_sums] = hi;
    k->table[at] = k->n_sums;
    return k->n_ranks + k->n_sums++;
}

/* How many busy ranks the expression holds; *twice: one of them, or more, is in it twice. */
static uint32_t ranks_in(sums *k, uint32_t v, bool *twice)
{
    uint32_t ranks = 0, n = 0;
    *twice = false;
    k->walks++;
    k->met[v] = k->walks;
    k->todo[n++] = v;
    while (n > 0) {
        v = k->todo[--n];
        if (v < k->n_ranks) {
            ranks += k->idle == NULL || !k->idle[v] ? 1 : 0;
            continue;
        }
        const uint32_t parts[2] = {k->left[v - k->n_ranks], k->right[v - k->n_ranks]};
        for (uint32_t p = 0; p < 2; p++) {
            if (k->met[parts[p]] == k->walks) {
                *twice = true;
                continue;
            }
            k->met[parts[p]] = k->walks;
            k->todo[n++] = parts[p];
        }
    }
    return ranks;
}

static ru_status wrong(const judge *j, uint32_t i, uint32_t block, const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, step %u, block %u: %s", j->rank[i],
                   i - j->s->begin[j->rank[i]], block, what);
}

/* A step that works on the aside of its blocks: `theirs` NONE for local steps. */
static ru_status apply_aside(const judge *j, sums *k, uint32_t i, uint32_t block, uint32_t theirs,
                             ru_err *err)
{
    const ru_coll_step *x = &j->s->steps[i];
    uint32_t r = j->rank[i];
    uint64_t range = (uint64_t)x->block << 32 | x->n_blocks;
    if (k->aside_from[r] != 0 && k->aside_from[r] != range) {
        return wrong(j, i, block, "the data stored aside belongs to other blocks", err);
    }
    if (theirs != NONE) {
        k->aside[r] = k->aside_from[r] != 0 ? plus(k, k->aside[r], theirs) : theirs;
        k->aside_from[r] = range;
        return RU_OK;
    }
    if (k->aside_from[r] == 0) {
        return wrong(j, i, block, "nothing was stored aside", err);
    }
    k->aside_from[r] = 0;
    k->mine[r] = x->kind == RU_COLL_PLACE ? k->aside[r] : plus(k, k->aside[r], k->mine[r]);
    return RU_OK;
}

static ru_status apply(const judge *j, sums *k, uint32_t i, uint32_t block, ru_err *err)
{
    const ru_coll_step *x = &j->s->steps[i];
    uint32_t r = j->rank[i];
    if (x->kind == RU_COLL_SEND) {
        k->sent[i] = k->mine[r];
        return RU_OK;
    }
    if (j->mate[i] == NONE) {
        return apply_aside(j, k, i, block, NONE, err);
    }
    uint32_t theirs = k->sent[j->mate[i]];
    if (x->kind == RU_COLL_RECV_ASIDE) {
        return apply_aside(j, k, i, block, theirs, err);
    }
    k->mine[r] = x->kind == RU_COLL_RECV ? theirs : plus(k, k->mine[r], theirs);
    return RU_OK;
}

/* Must rank r hold the sum in this block; must it hold the block of one rank (*of)? */
static bool wants_sum(const ru_coll_schedule *s, uint32_t r, uint32_t block)
{
    return s->op == RU_COLL_ALL_REDUCE || s->op == RU_COLL_BARRIER ||
           (s->op == RU_COLL_REDUCE_SCATTER && r == block) ||
           (s->op == RU_COLL_REDUCE && r == s->root);
}

static bool wants_one(const ru_coll_schedule *s, uint32_t block, uint32_t *of)
{
    *of = s->op == RU_COLL_BROADCAST ? s->root : block;
    return s->op == RU_COLL_BROADCAST || s->op == RU_COLL_ALL_GATHER;
}

/* x0 + x1 + x2 ... */
static uint32_t in_rank_order(sums *k)
{
    uint32_t v = 0;
    for (uint32_t q = 1; q < k->n_ranks; q++) {
        v = plus(k, v, q);
    }
    return v;
}

static ru_status judge_sum(const judge *j, sums *k, uint32_t r, uint32_t block, ru_err *err)
{
    bool twice;
    if (ranks_in(k, k->mine[r], &twice) < k->n_busy) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, block %u: the sum misses a rank", r, block);
    }
    if (twice && j->s->op != RU_COLL_BARRIER) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, block %u: the sum holds a rank twice", r,
                       block);
    }
    bool ordered = j->s->algo != RU_ALGO_DIRECT || j->s->op == RU_COLL_BARRIER;
    if (!ordered && k->mine[r] != in_rank_order(k)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, block %u: the sum is not in rank order", r,
                       block);
    }
    return RU_OK;
}

static ru_status judge_end(const judge *j, sums *k, uint32_t block, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        uint32_t of;
        if (k->aside_from[r] != 0) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "rank %u, block %u: data stored aside was not used", r, block);
        }
        if (wants_one(s, block, &of) && k->mine[r] != of) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, block %u is not that of rank %u", r,
                           block, of);
        }
        bool first = s->op != RU_COLL_ALL_REDUCE || r == 0; /* the others equal it */
        if (first && wants_sum(s, r, block)) {
            RU_TRY(judge_sum(j, k, r, block, err));
        } else if (!first && k->mine[r] != k->mine[0]) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "rank %u, block %u: the sum is in another order than on rank 0", r,
                           block);
        }
    }
    return RU_OK;
}

static bool adds(uint8_t kind)
{
    return kind == RU_COLL_REDUCE_RECV || kind == RU_COLL_RECV_ASIDE || kind == RU_COLL_FOLD;
}

static ru_status judge_block(const judge *j, sums *k, uint32_t block, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    uint32_t n_sums = s->n_ranks;
    k->n_steps = k->n_sums = 0;
    for (uint32_t l = 0; l < j->n_log; l++) {
        const ru_coll_step *x = &s->steps[j->log[l]];
        if (block - x->block < x->n_blocks) {
            k->steps[k->n_steps++] = j->log[l];
            n_sums += adds(x->kind) ? 1 : 0;
        }
    }
    uint32_t size = places_for(n_sums);
    k->mask = size - 1;
    memset(k->table, 0xff, size * sizeof *k->table);
    memset(k->met, 0, (s->n_ranks + (size_t)n_sums) * sizeof *k->met);
    k->walks = 0;
    memset(k->aside_from, 0, s->n_ranks * sizeof *k->aside_from);
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        k->mine[r] = r;
    }
    for (uint32_t l = 0; l < k->n_steps; l++) {
        RU_TRY(apply(j, k, k->steps[l], block, err));
    }
    return judge_end(j, k, block, err);
}

/* The sums of blocks part, part + n_parts, ... */
static ru_status judge_sums(judge *j, uint32_t part, uint32_t n_parts, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    uint32_t sums_max = s->n_ranks; /* in rank order, for comparison */
    for (uint32_t i = 0; i < j->n; i++) {
        sums_max += adds(s->steps[i].kind) ? 1 : 0;
    }
    sums k = {.n_ranks = s->n_ranks, .n_busy = s->n_ranks, .idle = s->idle};
    for (uint32_t r = 0; s->idle != NULL && r < s->n_ranks; r++) {
        k.n_busy -= s->idle[r] ? 1 : 0;
    }
    int64_t all = (int64_t)s->n_ranks + sums_max;
    k.left = RU_NEW(j->scratch, uint32_t, sums_max);
    k.right = RU_NEW(j->scratch, uint32_t, sums_max);
    k.table = RU_NEW(j->scratch, uint32_t, places_for(sums_max));
    k.mine = RU_NEW(j->scratch, uint32_t, s->n_ranks);
    k.aside = RU_NEW(j->scratch, uint32_t, s->n_ranks);
    k.aside_from = RU_NEW(j->scratch, uint64_t, s->n_ranks);
    k.sent = RU_NEW(j->scratch, uint32_t, j->n);
    k.steps = RU_NEW(j->scratch, uint32_t, j->n);
    k.met = RU_NEW(j->scratch, uint32_t, all);
    k.todo = RU_NEW(j->scratch, uint32_t, all);
    if (k.left == NULL || k.right == NULL || k.table == NULL || k.mine == NULL || k.aside == NULL ||
        k.aside_from == NULL || k.sent == NULL || k.steps == NULL || k.met == NULL ||
        k.todo == NULL) {
        return full(err);
    }
    for (uint32_t b = part; b < s->n_blocks; b += n_parts) {
        RU_TRY(judge_block(j, &k, b, err));
    }
    return RU_OK;
}

/* All-to-all moves blocks between places: follow each by the rank and place it began in. */
static ru_status judge_moves(judge *j, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    uint32_t n = s->n_ranks;
    uint32_t *mine = RU_NEW(j->scratch, uint32_t, (int64_t)n * n);
    uint32_t *aside = RU_NEW(j->scratch, uint32_t, (int64_t)n * n);
    uint32_t *sent = RU_NEW(j->scratch, uint32_t, j->n);
    if (mine == NULL || aside == NULL || sent == NULL) {
        return full(err);
    }
    memset(aside, 0xff, (size_t)n * n * sizeof *aside);
    for (uint32_t i = 0; i < n * n; i++) {
        mine[i] = i;
    }
    for (uint32_t l = 0; l < j->n_log; l++) {
        uint32_t i = j->log[l];
        const ru_coll_step *x = &s->steps[i];
        uint32_t at = j->rank[i] * n + x->block;
        if (x->kind == RU_COLL_SEND) {
            sent[i] = mine[at];
        } else if (x->kind == RU_COLL_RECV) {
            mine[at] = sent[j->mate[i]];
        } else if ((x->kind == RU_COLL_RECV_ASIDE) != (aside[at] == NONE)) {
            return wrong(j, i, x->block, "the aside is full, or empty", err);
        } else if (x->kind == RU_COLL_RECV_ASIDE) {
            aside[at] = sent[j->mate[i]];
        } else {
            mine[at] = aside[at];
            aside[at] = NONE;
        }
    }
    for (uint32_t i = 0; i < n * n; i++) {
        if (mine[i] != i % n * n + i / n || aside[i] != NONE) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, block %u is not block %u of rank %u",
                           i / n, i % n, i / n, i % n);
        }
    }
    return RU_OK;
}

static ru_status judge_all(judge *j, uint32_t part, uint32_t n_parts, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            j->rank[i] = (uint16_t)r;
            RU_TRY(judge_step(j, i, err));
        }
    }
    RU_TRY(judge_mates(j, err));
    RU_TRY(find_order(j, err));
    RU_TRY(judge_progress(j, err));
    return s->op == RU_COLL_ALL_TO_ALL ? judge_moves(j, err) : judge_sums(j, part, n_parts, err);
}

ru_status ru_plan_coll_check_part(const ru_coll_schedule *s, uint32_t part, uint32_t n_parts,
                                  ru_arena *scratch, ru_err *err)
{
    RU_TRY(judge_head(s, err));
    if (part >= n_parts || n_parts > RU_COLL_RANKS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "there is no part %u of %u of the proof", part, n_parts);
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    judge j = {.s = s, .scratch = scratch, .n = s->begin[s->n_ranks]};
    j.rank = RU_NEW(scratch, uint16_t, j.n);
    j.mate = RU_NEW(scratch, uint32_t, j.n);
    j.lo = RU_NEW(scratch, uint32_t, j.n);
    j.hi = RU_NEW(scratch, uint32_t, j.n);
    j.waits = RU_NEW(scratch, uint32_t, j.n);
    j.first = RU_NEW(scratch, uint32_t, (int64_t)j.n + 1);
    j.log = RU_NEW(scratch, uint32_t, j.n);
    j.state = RU_NEW(scratch, uint8_t, j.n);
    bool room = j.rank != NULL && j.mate != NULL && j.lo != NULL && j.hi != NULL &&
                j.waits != NULL && j.first != NULL && j.log != NULL && j.state != NULL;
    ru_status st = room ? judge_all(&j, part, n_parts, err) : full(err);
    ru_arena_rewind(scratch, mark);
    return st;
}

ru_status ru_plan_coll_check(const ru_coll_schedule *s, ru_arena *scratch, ru_err *err)
{
    return ru_plan_coll_check_part(s, 0, 1, scratch, err);
}
