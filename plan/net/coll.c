/* Schedules of collectives: checks the question, counts, then writes the lists. */
#include "plan/net/coll.h"

#include <string.h>

#include "plan/net/coll_impl.h"

#define OP(name) (1u << RU_COLL_##name)

static const struct {
    void (*build)(rui_coll_list *);
    uint32_t ops;
} algos[RU_COLL_ALGOS] = {
    [RU_ALGO_RING] = {rui_coll_ring, OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER) |
                                         OP(REDUCE) | OP(BROADCAST) | OP(BARRIER)},
    [RU_ALGO_HALVING] = {rui_coll_halving, OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER) |
                                               OP(REDUCE) | OP(BROADCAST)},
    [RU_ALGO_DOUBLING] = {rui_coll_doubling, OP(ALL_REDUCE) | OP(ALL_GATHER) | OP(BARRIER)},
    [RU_ALGO_TREE] = {rui_coll_tree, OP(ALL_REDUCE) | OP(REDUCE) | OP(BROADCAST) | OP(BARRIER)},
    [RU_ALGO_DOUBLE_TREE] = {rui_coll_double_tree, OP(ALL_REDUCE) | OP(REDUCE) | OP(BROADCAST)},
    [RU_ALGO_DIRECT] = {rui_coll_direct, OP(ALL_REDUCE) | OP(REDUCE_SCATTER) | OP(ALL_GATHER) |
                                             OP(REDUCE) | OP(BROADCAST) | OP(ALL_TO_ALL) |
                                             OP(BARRIER)},
    [RU_ALGO_HIERARCHY] = {NULL, OP(ALL_REDUCE) | OP(REDUCE) | OP(BROADCAST) | OP(BARRIER)},
};

bool ru_plan_coll_does(ru_coll_algo algo, ru_coll_op op)
{
    return (uint32_t)algo < RU_COLL_ALGOS && (uint32_t)op < RU_COLL_OPS &&
           (algos[algo].ops & 1u << op) != 0;
}

void rui_coll_step(rui_coll_list *l, ru_coll_step_kind kind, uint32_t peer, uint32_t tag,
                   uint32_t block, uint32_t n_blocks)
{
    if (l->steps != NULL) {
        uint32_t real = (peer + l->turn) % l->n;
        real = l->map != NULL ? l->map[real] : real;
        bool local = kind == RU_COLL_FOLD || kind == RU_COLL_PLACE;
        l->steps[l->at] = (ru_coll_step){.kind = (uint8_t)kind,
                                         .peer = (uint16_t)real,
                                         .tag = (uint16_t)(local ? 0 : tag + l->tag),
                                         .block = block,
                                         .n_blocks = n_blocks};
    }
    l->at++;
}

void rui_coll_step_before(rui_coll_list *l, uint32_t peer, uint32_t tag, uint32_t block,
                          uint32_t n_blocks)
{
    rui_coll_step(l, RU_COLL_REDUCE_RECV, peer, tag, block, n_blocks);
    if (l->steps != NULL) {
        l->steps[l->at - 1].before = 1;
    }
}

static bool is_rooted(ru_coll_op op)
{
    return op == RU_COLL_REDUCE || op == RU_COLL_BROADCAST;
}

static ru_status check_in(const ru_coll_in *in, ru_err *err)
{
    if (in->n_ranks < 1 || in->n_ranks > RU_COLL_RANKS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "a collective of %u ranks, expected 1 to %d", in->n_ranks,
                       RU_COLL_RANKS_MAX);
    }
    if (in->root >= in->n_ranks) {
        return RU_FAIL(err, RU_E_ARG, "root %u of %u ranks", in->root, in->n_ranks);
    }
    bool known = (uint32_t)in->op < RU_COLL_OPS && (uint32_t)in->algo < RU_COLL_ALGOS;
    if (!known || !ru_plan_coll_does(in->algo, in->op)) {
        return RU_FAIL(err, known ? RU_E_UNSUPPORTED : RU_E_ARG,
                       "%s cannot be done by %s: choose another algorithm", ru_coll_op_name(in->op),
                       ru_coll_algo_name(in->algo));
    }
    bool nested = in->algo == RU_ALGO_HIERARCHY;
    if (in->idle != NULL && (!nested || in->op != RU_COLL_ALL_REDUCE)) {
        return RU_FAIL(err, RU_E_ARG, "only the all-reduce of a star may have idle ranks");
    }
    if (nested && (in->leaders == RU_ALGO_HIERARCHY || !ru_plan_coll_does(in->leaders, in->op))) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "%s cannot be done by %s among leaders: choose another algorithm",
                       ru_coll_op_name(in->op), ru_coll_algo_name(in->leaders));
    }
    return RU_OK;
}

/* Into how many blocks the buffer is cut. */
static uint32_t count_blocks(ru_coll_op op, ru_coll_algo algo, uint32_t n)
{
    if (op == RU_COLL_REDUCE_SCATTER || op == RU_COLL_ALL_GATHER || op == RU_COLL_ALL_TO_ALL) {
        return n;
    }
    if (op == RU_COLL_BARRIER) {
        return 1;
    }
    switch (algo) {
    case RU_ALGO_RING:
    case RU_ALGO_HALVING:
        return n;
    case RU_ALGO_DIRECT:
        return op == RU_COLL_ALL_REDUCE ? n : 1;
    case RU_ALGO_DOUBLE_TREE:
        return n > 1 ? 2 : 1;
    case RU_ALGO_DOUBLING:
    case RU_ALGO_TREE:
    case RU_ALGO_HIERARCHY:
    case RU_COLL_ALGOS:
        break;
    }
    return 1;
}

/* The first rank of a host leads it; the root leads its own. An all-reduce has one, too: the hub of
 * a star. */
static ru_status find_hosts(const ru_coll_in *in, ru_arena *out, rui_hosts *hosts, ru_err *err)
{
    enum { HOSTS = 1 << 16, NOBODY = 0xffff };
    uint16_t *leader_of = RU_NEW(out, uint16_t, in->n_ranks);
    uint16_t *leaders = RU_NEW(out, uint16_t, in->n_ranks);
    ru_arena_mark mark = ru_arena_mark_get(out);
    uint16_t *first = ru_arena_alloc(out, HOSTS * (int64_t)sizeof *first, 2);
    if (leader_of == NULL || leaders == NULL || first == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full while grouping %u ranks by host",
                       in->n_ranks);
    }
    memset(first, 0xff, HOSTS * sizeof *first);
    *hosts = (rui_hosts){.leader_of = leader_of, .leaders = leaders};
    bool rooted = is_rooted(in->op) || in->op == RU_COLL_ALL_REDUCE;
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        uint32_t h = in->host != NULL ? in->host[r] : 0;
        uint32_t root_host = in->host != NULL ? in->host[in->root] : 0;
        bool is_root_host = h == root_host;
        if (first[h] == NOBODY) {
            first[h] = rooted && is_root_host ? (uint16_t)in->root : (uint16_t)r;
            hosts->root = rooted && is_root_host ? hosts->n_leaders : hosts->root;
            leaders[hosts->n_leaders++] = first[h];
        }
        leader_of[r] = first[h];
    }
    ru_arena_rewind(out, mark);
    return RU_OK;
}

typedef struct question {
    const ru_coll_in *in;
    rui_hosts hosts;
    uint32_t n_blocks;
} question;

static ru_status prepare(const ru_coll_in *in, ru_arena *out, question *q, ru_err *err)
{
    RU_TRY(check_in(in, err));
    *q = (question){.in = in};
    uint32_t n = in->n_ranks;
    ru_coll_algo algo = in->algo;
    if (algo == RU_ALGO_HIERARCHY) {
        RU_TRY(find_hosts(in, out, &q->hosts, err));
        n = q->hosts.n_leaders;
        if (in->idle != NULL && (n > 1 || in->idle[in->root])) {
            return RU_FAIL(err, RU_E_ARG, "only a star whose hub adds may have idle ranks");
        }
        algo = in->leaders;
    }
    q->n_blocks = in->idle != NULL ? RU_COLL_IDLE_BLOCKS : count_blocks(in->op, algo, n);
    return RU_OK;
}

/* Write (or count) the list of one rank; returns its length. */
static uint32_t write_rank(const question *q, uint32_t rank, ru_coll_step *steps)
{
    const ru_coll_in *in = q->in;
    rui_coll_list l = {.steps = steps, .op = in->op, .n = in->n_ranks, .n_blocks = q->n_blocks};
    if (in->n_ranks == 1) {
        return 0;
    }
    if (in->algo == RU_ALGO_HIERARCHY) {
        l.me = rank;
        l.idle = in->idle;
        rui_coll_hierarchy(&l, &q->hosts, algos[in->leaders].build);
        return l.at;
    }
    uint32_t root = is_rooted(in->op) ? in->root : 0;
    bool turned = in->algo != RU_ALGO_DIRECT;
    l.turn = turned ? root : 0;
    l.root = turned ? 0 : root;
    l.me = (rank + l.n - l.turn) % l.n;
    algos[in->algo].build(&l);
    return l.at;
}

static ru_status check_length(uint64_t n, uint32_t rank, ru_err *err)
{
    if (n > RU_COLL_STEPS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "rank %u would have %llu steps, at most %d", rank,
                       (unsigned long long)n, RU_COLL_STEPS_MAX);
    }
    return RU_OK;
}

static ru_coll_schedule schedule_of(const question *q, const uint32_t *begin,
                                    const ru_coll_step *steps)
{
    return (ru_coll_schedule){.op = q->in->op,
                              .algo = q->in->algo,
                              .n_ranks = q->in->n_ranks,
                              .n_blocks = q->n_blocks,
                              .root = is_rooted(q->in->op) ? q->in->root : 0,
                              .begin = begin,
                              .steps = steps,
                              .idle = q->in->idle};
}

ru_status ru_plan_coll(const ru_coll_in *in, ru_arena *out, ru_coll_schedule *s, ru_err *err)
{
    question q;
    RU_TRY(prepare(in, out, &q, err));
    uint32_t *begin = RU_NEW(out, uint32_t, (int64_t)in->n_ranks + 1);
    if (begin == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full at %u ranks", in->n_ranks);
    }
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        uint32_t n = write_rank(&q, r, NULL);
        RU_TRY(check_length(n, r, err));
        begin[r + 1] = begin[r] + n;
    }
    ru_coll_step *steps = RU_NEW(out, ru_coll_step, begin[in->n_ranks]);
    if (steps == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full at %u steps of %s by %s",
                       begin[in->n_ranks], ru_coll_op_name(in->op), ru_coll_algo_name(in->algo));
    }
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        uint32_t n = write_rank(&q, r, steps + begin[r]);
        RU_CHECK(n == begin[r + 1] - begin[r]);
    }
    *s = schedule_of(&q, begin, steps);
    return RU_OK;
}

ru_status ru_plan_coll_rank(const ru_coll_in *in, uint32_t rank, ru_arena *out, ru_coll_schedule *s,
                            ru_err *err)
{
    question q;
    RU_TRY(prepare(in, out, &q, err));
    if (rank >= in->n_ranks) {
        return RU_FAIL(err, RU_E_ARG, "rank %u of %u ranks", rank, in->n_ranks);
    }
    uint32_t n = write_rank(&q, rank, NULL);
    RU_TRY(check_length(n, rank, err));
    uint32_t *begin = RU_NEW(out, uint32_t, (int64_t)in->n_ranks + 1);
    ru_coll_step *steps = RU_NEW(out, ru_coll_step, n);
    if (begin == NULL || steps == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full at %u steps of rank %u", n, rank);
    }
    for (uint32_t r = rank + 1; r <= in->n_ranks; r++) {
        begin[r] = n;
    }
    write_rank(&q, rank, steps);
    *s = schedule_of(&q, begin, steps);
    return RU_OK;
}
