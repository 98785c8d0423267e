/* The judge of collective schedules. Shares nothing with the planner.
 *
 * 1. Shape: every field in range, tags unique, each send with its receive.
 * 2. Progress: all waits are "and": a step waits for steps before it and, when it moves bytes, for
 *    its mate. Such a system reaches the same end whatever the timing, so one run to a standstill
 *    proves or refutes that nobody waits in a circle.
 * 3. Sums: that run again, block by block, on sets of ranks instead of numbers. Adding a set to one
 *    that shares a member is adding twice. Beside each set a hash of the expression, blind to the
 *    order of two operands as IEEE addition is, tells whether all ranks get the same bits. */
#include "plan/coll.h"

#include <string.h>

#define NONE UINT32_MAX

enum { STARTED = 1, MOVED = 2, DONE = 4 };

typedef struct judge {
    const ru_coll_schedule *s;
    ru_arena *scratch;
    uint32_t n;          /* steps of all ranks */
    uint16_t *rank;      /* [n] */
    uint32_t *mate;      /* [n] receive of a send and the reverse; NONE: a local step */
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
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "a schedule of op %u, algorithm %u, %u ranks, root %u, %u blocks",
                       (unsigned)s->op, (unsigned)s->algo, s->n_ranks, s->root, s->n_blocks);
    }
    bool owned = s->op == RU_COLL_REDUCE_SCATTER || s->op == RU_COLL_ALL_GATHER ||
                 s->op == RU_COLL_ALL_TO_ALL;
    if (owned && s->n_blocks != s->n_ranks) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%s of %u ranks with %u blocks",
                       ru_coll_op_name(s->op), s->n_ranks, s->n_blocks);
    }
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        if (s->begin[r + 1] < s->begin[r] || s->begin[r + 1] - s->begin[r] > RU_COLL_STEPS_MAX) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "the list of rank %u goes from %u to %u", r,
                           s->begin[r], s->begin[r + 1]);
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
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "rank %u, step %u: kind %u, peer %u, blocks %u + %u cannot be", j->rank[i],
                       i - s->begin[j->rank[i]], x->kind, x->peer, x->block, x->n_blocks);
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

/* Shell sort of step numbers by key. */
static void sort_by_key(const judge *j, uint32_t *at, uint32_t n)
{
    uint32_t gap = 1;
    while (gap < n / 3) {
        gap = gap * 3 + 1;
    }
    for (; gap > 0; gap /= 3) {
        for (uint32_t i = gap; i < n; i++) {
            uint32_t x = at[i], k = i;
            for (; k >= gap && key_of(j, at[k - gap]) > key_of(j, x); k -= gap) {
                at[k] = at[k - gap];
            }
            at[k] = x;
        }
    }
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

/* Find the receive of each send. `a`, `b`: [n] scratch. */
static ru_status judge_mates(judge *j, uint32_t *a, uint32_t *b, ru_err *err)
{
    uint32_t n_send = 0, n_recv = 0;
    for (uint32_t i = 0; i < j->n; i++) {
        j->mate[i] = NONE;
        if (j->s->steps[i].kind == RU_COLL_SEND) {
            a[n_send++] = i;
        } else if (ru_coll_step_receives(&j->s->steps[i])) {
            b[n_recv++] = i;
        }
    }
    sort_by_key(j, a, n_send);
    sort_by_key(j, b, n_recv);
    for (uint32_t k = 0; k < n_send || k < n_recv; k++) {
        uint64_t ka = k < n_send ? key_of(j, a[k]) : UINT64_MAX;
        uint64_t kb = k < n_recv ? key_of(j, b[k]) : UINT64_MAX;
        if (ka != kb) {
            return unmatched(j, ka < kb ? a[k] : b[k], "has no match", err);
        }
        if (k > 0 && key_of(j, a[k - 1]) == ka) {
            return unmatched(j, a[k], "is there twice", err);
        }
        RU_TRY(judge_pair(j, a[k], b[k], err));
        j->mate[a[k]] = b[k];
        j->mate[b[k]] = a[k];
    }
    return RU_OK;
}

/* -- progress -----------------------------------------------------------------------------------
 */

/* Per place (block or, n_blocks further, its aside) of one rank: who wrote it last, and who read it
 * since: a list through `node`. */
typedef struct places {
    uint32_t *writer, *readers; /* [2 * n_blocks] */
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
    uint32_t blocks = j->s->n_blocks;
    for (uint32_t r = 0; r < j->s->n_ranks; r++) {
        memset(p->writer, 0xff, 2 * (size_t)blocks * sizeof(uint32_t));
        memset(p->readers, 0xff, 2 * (size_t)blocks * sizeof(uint32_t));
        p->n_nodes = 0;
        for (uint32_t i = j->s->begin[r]; i < j->s->begin[r + 1]; i++) {
            const ru_coll_step *x = &j->s->steps[i];
            for (uint32_t side = 0; side < 2; side++) {
                uint32_t how = touches(x, side == 1);
                for (uint32_t b = 0; b < x->n_blocks && how != 0; b++) {
                    touch(j, p, side * blocks + x->block + b, i, how == 2, write_down);
                }
            }
        }
    }
}

/* Who waits for whom inside a rank. */
static ru_status find_order(judge *j, ru_err *err)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < j->s->n_ranks; r++) {
        uint64_t reads = 0;
        for (uint32_t i = j->s->begin[r]; i < j->s->begin[r + 1]; i++) {
            reads += j->s->steps[i].n_blocks;
        }
        most = reads > most ? reads : most;
    }
    places p = {.writer = RU_NEW(j->scratch, uint32_t, 2 * (int64_t)j->s->n_blocks),
                .readers = RU_NEW(j->scratch, uint32_t, 2 * (int64_t)j->s->n_blocks),
                .node_step = RU_NEW(j->scratch, uint32_t, most),
                .node_next = RU_NEW(j->scratch, uint32_t, most)};
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
            return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, step %u waits for ever for %s",
                           j->rank[i], i - j->s->begin[j->rank[i]],
                           (j->state[i] & STARTED) != 0 ? "its peer" : "a step before it");
        }
    }
    return RU_OK;
}

/* -- sums ---------------------------------------------------------------------------------------
 */

typedef struct sets {
    uint32_t words;
    uint64_t *mine, *aside, *sent; /* [n_ranks * words], ..., [n_sent * words] */
    uint64_t *mine_hash, *aside_hash, *sent_hash;
    uint32_t *slot;       /* [steps] place of a send in `sent` */
    uint64_t *aside_from; /* [n_ranks] block << 32 | n_blocks of what stands aside; 0: nothing */
    uint32_t n_sent;
} sets;

static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return scramble(a + b + 0x9e3779b97f4a7c15u);
}

/* into |= from; false when they share a member and may not. */
static bool unite(const judge *j, const sets *k, uint64_t *into, const uint64_t *from)
{
    uint64_t common = 0;
    for (uint32_t w = 0; w < k->words; w++) {
        common |= into[w] & from[w];
        into[w] |= from[w];
    }
    return common == 0 || j->s->op == RU_COLL_BARRIER;
}

static ru_status wrong(const judge *j, uint32_t i, uint32_t block, const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, step %u, block %u: %s", j->rank[i],
                   i - j->s->begin[j->rank[i]], block, what);
}

/* A step that works on the aside of its blocks: `theirs` NULL for local steps. */
static ru_status apply_aside(const judge *j, sets *k, uint32_t i, uint32_t block,
                             const uint64_t *theirs, uint64_t hash, ru_err *err)
{
    const ru_coll_step *x = &j->s->steps[i];
    uint32_t r = j->rank[i];
    uint64_t *mine = k->mine + (uint64_t)r * k->words, *aside = k->aside + (uint64_t)r * k->words;
    uint64_t range = (uint64_t)x->block << 32 | x->n_blocks;
    size_t bytes = k->words * sizeof *mine;
    if (k->aside_from[r] != 0 && k->aside_from[r] != range) {
        return wrong(j, i, block, "the aside stands for other blocks", err);
    }
    if (theirs != NULL) {
        bool twice = k->aside_from[r] != 0 && !unite(j, k, aside, theirs);
        k->aside_hash[r] = k->aside_from[r] != 0 ? plus(k->aside_hash[r], hash) : hash;
        if (k->aside_from[r] == 0) {
            memcpy(aside, theirs, bytes);
        }
        k->aside_from[r] = range;
        return twice ? wrong(j, i, block, "adds a rank twice", err) : RU_OK;
    }
    if (k->aside_from[r] == 0) {
        return wrong(j, i, block, "nothing stands aside", err);
    }
    k->aside_from[r] = 0;
    if (x->kind == RU_COLL_PLACE) {
        memcpy(mine, aside, bytes);
        k->mine_hash[r] = k->aside_hash[r];
        return RU_OK;
    }
    k->mine_hash[r] = plus(k->aside_hash[r], k->mine_hash[r]);
    return unite(j, k, mine, aside) ? RU_OK : wrong(j, i, block, "adds a rank twice", err);
}

static ru_status apply(const judge *j, sets *k, uint32_t i, uint32_t block, ru_err *err)
{
    const ru_coll_step *x = &j->s->steps[i];
    uint32_t r = j->rank[i];
    uint64_t *mine = k->mine + (uint64_t)r * k->words;
    size_t bytes = k->words * sizeof *mine;
    if (x->kind == RU_COLL_SEND) {
        k->slot[i] = k->n_sent;
        memcpy(k->sent + (uint64_t)k->n_sent * k->words, mine, bytes);
        k->sent_hash[k->n_sent++] = k->mine_hash[r];
        return RU_OK;
    }
    if (j->mate[i] == NONE) {
        return apply_aside(j, k, i, block, NULL, 0, err);
    }
    const uint64_t *theirs = k->sent + (uint64_t)k->slot[j->mate[i]] * k->words;
    uint64_t hash = k->sent_hash[k->slot[j->mate[i]]];
    if (x->kind == RU_COLL_RECV_ASIDE) {
        return apply_aside(j, k, i, block, theirs, hash, err);
    }
    if (x->kind == RU_COLL_RECV) {
        memcpy(mine, theirs, bytes);
        k->mine_hash[r] = hash;
        return RU_OK;
    }
    k->mine_hash[r] = plus(k->mine_hash[r], hash);
    return unite(j, k, mine, theirs) ? RU_OK : wrong(j, i, block, "adds a rank twice", err);
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

static bool has_all(const ru_coll_schedule *s, const uint64_t *set)
{
    for (uint32_t q = 0; q < s->n_ranks; q++) {
        if ((set[q / 64] >> q % 64 & 1) == 0) {
            return false;
        }
    }
    return true;
}

static bool has_only(const sets *k, const uint64_t *set, uint32_t of)
{
    uint64_t others = 0;
    for (uint32_t w = 0; w < k->words; w++) {
        others |= set[w] ^ (w == of / 64 ? (uint64_t)1 << of % 64 : 0);
    }
    return others == 0;
}

static uint64_t rank_order_hash(const ru_coll_schedule *s)
{
    uint64_t h = scramble(1);
    for (uint32_t q = 1; q < s->n_ranks; q++) {
        h = plus(h, scramble(q + 1));
    }
    return h;
}

static ru_status judge_end(const judge *j, const sets *k, uint32_t block, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        const uint64_t *set = k->mine + (uint64_t)r * k->words;
        uint32_t of;
        if (k->aside_from[r] != 0) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, block %u: something is left aside", r,
                           block);
        }
        if (wants_sum(s, r, block) && !has_all(s, set)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, block %u: the sum misses a rank", r,
                           block);
        }
        if (wants_one(s, block, &of) && !has_only(k, set, of)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "rank %u, block %u is not that of rank %u", r,
                           block, of);
        }
        bool same = s->op != RU_COLL_ALL_REDUCE || k->mine_hash[r] == k->mine_hash[0];
        bool ordered = s->algo != RU_ALGO_DIRECT || s->op == RU_COLL_BARRIER ||
                       !wants_sum(s, r, block) || k->mine_hash[r] == rank_order_hash(s);
        if (!same || !ordered) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "rank %u, block %u: the sum is in another order %s", r, block,
                           same ? "than that of ranks" : "than on rank 0");
        }
    }
    return RU_OK;
}

static ru_status judge_block(const judge *j, sets *k, uint32_t block, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    memset(k->mine, 0, (size_t)s->n_ranks * k->words * sizeof *k->mine);
    memset(k->aside_from, 0, s->n_ranks * sizeof *k->aside_from);
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        k->mine[(uint64_t)r * k->words + r / 64] = (uint64_t)1 << r % 64;
        k->mine_hash[r] = scramble(r + 1);
    }
    k->n_sent = 0;
    for (uint32_t i = 0; i < j->n_log; i++) {
        const ru_coll_step *x = &s->steps[j->log[i]];
        if (block - x->block < x->n_blocks) {
            RU_TRY(apply(j, k, j->log[i], block, err));
        }
    }
    return judge_end(j, k, block, err);
}

static ru_status judge_sums(judge *j, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    uint32_t sends = 0;
    for (uint32_t i = 0; i < j->n; i++) {
        sends += s->steps[i].kind == RU_COLL_SEND;
    }
    sets k = {.words = (s->n_ranks + 63) / 64};
    int64_t all = (int64_t)s->n_ranks * k.words;
    k.mine = RU_NEW(j->scratch, uint64_t, all);
    k.aside = RU_NEW(j->scratch, uint64_t, all);
    k.sent = RU_NEW(j->scratch, uint64_t, (int64_t)sends * k.words);
    k.mine_hash = RU_NEW(j->scratch, uint64_t, s->n_ranks);
    k.aside_hash = RU_NEW(j->scratch, uint64_t, s->n_ranks);
    k.sent_hash = RU_NEW(j->scratch, uint64_t, sends);
    k.aside_from = RU_NEW(j->scratch, uint64_t, s->n_ranks);
    k.slot = RU_NEW(j->scratch, uint32_t, j->n);
    if (k.mine == NULL || k.aside == NULL || k.sent == NULL || k.mine_hash == NULL ||
        k.aside_hash == NULL || k.sent_hash == NULL || k.aside_from == NULL || k.slot == NULL) {
        return full(err);
    }
    for (uint32_t b = 0; b < s->n_blocks; b++) {
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

static ru_status judge_all(judge *j, ru_err *err)
{
    const ru_coll_schedule *s = j->s;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        for (uint32_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            j->rank[i] = (uint16_t)r;
            RU_TRY(judge_step(j, i, err));
        }
    }
    RU_TRY(judge_mates(j, j->waits, j->log, err));
    memset(j->waits, 0, j->n * sizeof *j->waits);
    RU_TRY(find_order(j, err));
    RU_TRY(judge_progress(j, err));
    return s->op == RU_COLL_ALL_TO_ALL ? judge_moves(j, err) : judge_sums(j, err);
}

ru_status ru_plan_coll_check(const ru_coll_schedule *s, ru_arena *scratch, ru_err *err)
{
    RU_TRY(judge_head(s, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    judge j = {.s = s, .scratch = scratch, .n = s->begin[s->n_ranks]};
    j.rank = RU_NEW(scratch, uint16_t, j.n);
    j.mate = RU_NEW(scratch, uint32_t, j.n);
    j.waits = RU_NEW(scratch, uint32_t, j.n);
    j.first = RU_NEW(scratch, uint32_t, (int64_t)j.n + 1);
    j.log = RU_NEW(scratch, uint32_t, j.n);
    j.state = RU_NEW(scratch, uint8_t, j.n);
    bool room = j.rank != NULL && j.mate != NULL && j.waits != NULL && j.first != NULL &&
                j.log != NULL && j.state != NULL;
    ru_status st = room ? judge_all(&j, err) : full(err);
    ru_arena_rewind(scratch, mark);
    return st;
}
