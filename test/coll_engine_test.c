/* The engine of collectives on real channels over links in memory whose timing is random: results
 * equal plain sums, the same bits whatever the timing. */
#include "comm/coll.h"
#include "test/test.h"

#include <stdio.h>
#include <string.h>

#include "plan/coll.h"
#include "test/pipe.h"

enum { RANKS_MAX = 6, BATCHES_MAX = 48, SPANS = 5, ITERS = 4, SEGMENT = 4 << 20, OTHERS = 1 };

static const uint16_t host_of[RANKS_MAX] = {0, 1, 0, 1, 2, 2};

typedef struct world world;

typedef struct rank {
    world *w;
    ru_arena arena;
    uint32_t node, at;
    ru_chan *ch;
    ru_coll *coll;
    ru_time tick_at;
    uint32_t ups, failed;
    float *data[BATCHES_MAX]; /* [n] */
    uint8_t *segment;         /* [SEGMENT] what the host shares; data lie in it */
    int64_t segment_used;
    ru_span near[RANKS_MAX];
    ru_span spans[BATCHES_MAX][SPANS];
    uint32_t begun[BATCHES_MAX], done[BATCHES_MAX]; /* iterations */
} rank;

struct world {
    ru_pipe *net;
    ru_arena arena;
    ru_rng rng;
    uint32_t n, n_batches;
    bool counted, whole; /* whole: numbers whose sums are exact */
    bool grants, apart;
    bool near;               /* ranks of one host read each other's memory */
    uint32_t slots, streams; /* of the channels; 0: plenty */
    rank r[RANKS_MAX];
    ru_node_id nodes[RANKS_MAX];
    ru_coll_batch batches[BATCHES_MAX];
    const ru_coll_schedule *schedules[BATCHES_MAX];
    uint64_t hash; /* of all results */
};

/* Number of the k-th iteration: most follow each other, some are left out. */
static uint32_t number(uint32_t k)
{
    return k < 2 ? k : k + 3;
}

static float value(const world *w, uint32_t r, uint32_t b, uint32_t iter, int64_t i)
{
    int64_t x = (i * 31 + r * 1009 + b * 77 + iter * 5) % 4001 - 2000;
    return w->whole ? (float)x : (float)x * 0.0137f;
}

/* -- upcalls -------------------------------------------------------------------------------------
 */

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    rank *r = self;
    (void)node;
    (void)address;
    (void)now;
    r->ups++;
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    (void)self;
    (void)node;
    (void)address;
    (void)why;
    (void)now;
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    rank *r = self;
    assert_int_equal(what, RU_COLL_WHAT);
    ru_coll_heard(r->coll, from, data, size_bytes, now);
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    rank *r = self;
    assert_true(ru_coll_owns(r->coll, cookie));
    ru_coll_sent(r->coll, cookie, now);
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    rank *r = self;
    if (cookie != OTHERS) {
        ru_coll_xfer_failed(r->coll, cookie, why, now);
    }
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    rank *r = self;
    assert_true(ru_coll_owns(r->coll, cookie));
    ru_coll_arrived(r->coll, cookie, now);
}

static void on_room(void *self, ru_time now)
{
    rank *r = self;
    ru_coll_room(r->coll, now);
}

static void on_tick_at(void *self, ru_time at)
{
    rank *r = self;
    r->tick_at = at;
}

/* -- the results ----------------------------------------------------------------------------------
 */

static int64_t block_at(const world *w, int64_t n, uint32_t b)
{
    return n / w->n * b + n % w->n * b / w->n;
}

static uint32_t owner_of(const world *w, int64_t n, int64_t i)
{
    uint32_t o = 0;
    while (i >= block_at(w, n, o + 1)) {
        o++;
    }
    return o;
}

/* What element i must be; false: undefined. */
static bool expected(const world *w, const rank *r, uint32_t b, uint32_t iter, int64_t i,
                     float *want)
{
    const ru_coll_batch *x = &w->batches[b];
    float sum = value(w, 0, b, iter, i);
    for (uint32_t q = 1; q < w->n; q++) {
        sum += value(w, q, b, iter, i);
    }
    *want = sum;
    switch (x->op) {
    case RU_COLL_ALL_REDUCE:
        return true;
    case RU_COLL_REDUCE_SCATTER:
        return owner_of(w, x->n, i) == r->at;
    case RU_COLL_REDUCE:
        return r->at == x->root;
    case RU_COLL_ALL_GATHER:
        *want = value(w, owner_of(w, x->n, i), b, iter, i);
        return true;
    case RU_COLL_BROADCAST:
        *want = value(w, x->root, b, iter, i);
        return true;
    case RU_COLL_ALL_TO_ALL: { /* n is a multiple of the ranks here */
        int64_t each = x->n / w->n, from = i / each;
        *want = value(w, (uint32_t)from, b, iter, r->at * each + i % each);
        return true;
    }
    case RU_COLL_BARRIER:
    case RU_COLL_OPS:
        break;
    }
    return false;
}

static void check_result(world *w, const rank *r, uint32_t b, uint32_t iter)
{
    const ru_coll_batch *x = &w->batches[b];
    if (x->op == RU_COLL_BARRIER) {
        for (uint32_t q = 0; q < w->n; q++) {
            assert_true(number(w->r[q].begun[b]) > iter);
        }
        return;
    }
    uint64_t hash = 0;
    for (int64_t i = 0; i < x->n; i++) {
        float want, have = r->data[b][i];
        if (!expected(w, r, b, iter, i, &want)) {
            continue;
        }
        bool exact = w->whole || x->algo == RU_ALGO_DIRECT || x->op == RU_COLL_ALL_GATHER ||
                     x->op == RU_COLL_BROADCAST;
        float off = have > want ? have - want : want - have;
        if (exact ? have != want : off > 0.01f) {
            fail_msg("%s by %s, rank %u of %u, element %lld of %lld: %g, expected %g",
                     ru_coll_op_name(x->op), ru_coll_algo_name(x->algo), r->at, w->n, (long long)i,
                     (long long)x->n, (double)have, (double)want);
        }
        uint32_t bits;
        memcpy(&bits, &have, sizeof bits);
        hash = hash * 1099511628211u + bits;
    }
    w->hash += hash * (2 * (uint64_t)(b * 64 + iter * RANKS_MAX + r->at) + 1);
}

static void on_done(void *self, uint32_t batch, uint32_t iter, ru_time now)
{
    rank *r = self;
    (void)now;
    assert_int_equal(iter, number(r->done[batch]));
    r->done[batch]++;
    if (!r->w->counted) {
        check_result(r->w, r, batch, iter);
    }
}

static void on_group_failed(void *self, ru_node_id peer, ru_status why, ru_time now)
{
    rank *r = self;
    (void)peer;
    (void)why;
    (void)now;
    r->failed++;
}

/* -- the world ------------------------------------------------------------------------------------
 */

static void open_rank(world *w, uint32_t k)
{
    rank *r = &w->r[k];
    char address[32];
    ru_err err;
    snprintf(address, sizeof address, "host%u:1", k + 1);
    r->w = w;
    r->at = k;
    ru_arena_init(&r->arena, 0);
    r->segment = ru_arena_zalloc(&r->arena, SEGMENT, 64);
    r->node = ru_pipe_node(w->net, address);
    static const uint8_t token[16] = "a shared secret";
    ru_chan_options opt = {.self = {k + 1},
                           .address = address,
                           .job = 7,
                           .token = token,
                           .token_bytes = sizeof token,
                           .peers_max = RANKS_MAX,
                           .streams_max = w->streams > 0 ? w->streams : 2048,
                           .slots_max = w->slots > 0 ? w->slots : 4096,
                           .chunk_bytes = 4096,
                           .grants = w->grants};
    ru_chan_user user = {.self = r,
                         .up = on_up,
                         .down = on_down,
                         .message = on_message,
                         .sent = on_sent,
                         .failed = on_failed,
                         .arrived = on_arrived,
                         .room = on_room,
                         .tick_at = on_tick_at};
    ru_link link = ru_pipe_link(w->net, r->node);
    assert_ok(ru_chan_open(&opt, &link, &user, &r->arena, &r->ch, &err), err);
    ru_pipe_user(w->net, r->node, ru_chan_link_user(r->ch));
}

static void open_group(world *w, uint32_t k)
{
    rank *r = &w->r[k];
    ru_err err;
    ru_coll_options opt = {.chan = r->ch,
                           .nodes = w->nodes,
                           .n_ranks = w->n,
                           .rank = k,
                           .epoch = 9,
                           .batches = w->batches,
                           .schedules = w->schedules,
                           .n_batches = w->n_batches,
                           .spans_max = SPANS,
                           .counted = w->counted,
                           .apart = w->apart};
    for (uint32_t q = 0; q < w->n && w->near; q++) {
        bool same = host_of[q] == host_of[k];
        r->near[q] = (ru_span){w->r[q].segment, same ? SEGMENT : 0};
        opt.near = r->near;
    }
    ru_coll_user user = {.self = r, .done = on_done, .failed = on_group_failed};
    assert_ok(ru_coll_open(&opt, &user, &r->arena, &r->coll, &err), err);
}

/* One turn of the network; `now` for the caller. */
static ru_time turn(world *w)
{
    for (uint32_t k = 0; k < 8; k++) {
        ru_pipe_step(w->net);
    }
    ru_time now = ru_pipe_now(w->net);
    for (uint32_t k = 0; k < w->n; k++) {
        if (w->r[k].tick_at.ns <= now.ns) {
            w->r[k].tick_at = ru_chan_tick(w->r[k].ch, now);
        }
    }
    return now;
}

static void world_start(world *w, uint32_t n, uint64_t seed)
{
    ru_arena_init(&w->arena, 0);
    w->rng = ru_rng_from(seed, 50);
    ru_pipe_options opt = {.seed = seed, .queue_bytes = 20000};
    w->net = ru_pipe_new(&opt);
    w->n = n;
    for (uint32_t k = 0; k < n; k++) {
        w->nodes[k].v = k + 1;
        open_rank(w, k);
    }
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t q = k + 1; q < n; q++) {
            char address[32];
            ru_err err;
            snprintf(address, sizeof address, "host%u:1", q + 1);
            assert_ok(ru_chan_connect(w->r[k].ch, address, ru_pipe_now(w->net), &err), err);
        }
    }
    bool up = false;
    for (uint32_t guard = 0; !up; guard++) {
        assert_true(guard < 1000000);
        turn(w);
        up = true;
        for (uint32_t k = 0; k < n; k++) {
            up = up && w->r[k].ups == n - 1;
        }
    }
}

static void world_open(world *w, uint32_t n, uint64_t seed, bool grants)
{
    memset(w, 0, sizeof *w);
    w->grants = grants;
    world_start(w, n, seed);
}

static void world_close(world *w)
{
    for (uint32_t k = 0; k < w->n; k++) {
        ru_coll_close(w->r[k].coll, ru_pipe_now(w->net));
        ru_chan_close(w->r[k].ch);
    }
    ru_pipe_free(w->net);
    for (uint32_t k = 0; k < w->n; k++) {
        ru_arena_fini(&w->r[k].arena);
    }
    ru_arena_fini(&w->arena);
}

static void add_batch(world *w, ru_coll_op op, ru_coll_algo algo, int64_t n)
{
    ru_coll_schedule *s = RU_NEW(&w->arena, ru_coll_schedule, 1);
    ru_err err;
    bool rooted = op == RU_COLL_REDUCE || op == RU_COLL_BROADCAST;
    uint32_t root = rooted ? ru_rng_below(&w->rng, w->n) : 0;
    ru_coll_in in = {.op = op, .algo = algo, .n_ranks = w->n, .root = root, .host = host_of};
    assert_ok(ru_plan_coll(&in, &w->arena, s, &err), err);
    uint32_t b = w->n_batches++;
    assert_true(b < BATCHES_MAX);
    w->schedules[b] = s;
    w->batches[b] = (ru_coll_batch){.op = op,
                                    .algo = algo,
                                    .dtype = RU_F32,
                                    .n = op == RU_COLL_ALL_TO_ALL ? n / w->n * w->n : n,
                                    .root = root,
                                    .class = RU_CLASS_NORMAL,
                                    .rank = (uint16_t)b};
    if (ru_rng_below(&w->rng, 2) == 0) {
        w->batches[b].chunk_bytes = 4 * (1 + n / (1 + ru_rng_below(&w->rng, 7)));
        w->batches[b].depth = ru_rng_below(&w->rng, 4);
    }
}

/* The buffer of a batch in up to SPANS pieces of random sizes, some empty. */
static void make_buffers(world *w, rank *r, uint32_t b)
{
    int64_t n = w->batches[b].n, at = 0;
    r->data[b] = (float *)(void *)(r->segment + r->segment_used);
    r->segment_used += (4 * n + 63) / 64 * 64;
    assert_true(r->segment_used <= SEGMENT);
    for (uint32_t k = 0; k < SPANS; k++) {
        int64_t left = n - at;
        int64_t part = k + 1 == SPANS ? left : ru_rng_below(&w->rng, (uint32_t)left + 1);
        r->spans[b][k] = (ru_span){w->counted ? NULL : (void *)(r->data[b] + at), 4 * part};
        at += part;
    }
}

static void begin(world *w, rank *r, uint32_t b)
{
    ru_err err;
    uint32_t iter = number(r->begun[b]++);
    for (int64_t i = 0; i < w->batches[b].n && !w->counted; i++) {
        r->data[b][i] = value(w, r->at, b, iter, i);
    }
    assert_ok(ru_coll_begin(r->coll, b, iter, r->spans[b], SPANS, (ru_time){0}, ru_pipe_now(w->net),
                            &err),
              err);
}

/* May r begin its next iteration of b? Apart: only when everybody is done with the last one. */
static bool may_begin(const world *w, const rank *r, uint32_t b)
{
    if (r->begun[b] != r->done[b] || r->begun[b] == ITERS) {
        return false;
    }
    for (uint32_t k = 0; k < w->n * w->n_batches && w->apart; k++) {
        if (w->r[k % w->n].done[k / w->n] < r->begun[b]) {
            return false;
        }
    }
    return true;
}

/* Everybody begins everything in an order of its own, now and then, until all iterations are done.
 */
static void run(world *w)
{
    for (uint32_t k = 0; k < w->n; k++) {
        for (uint32_t b = 0; b < w->n_batches; b++) {
            make_buffers(w, &w->r[k], b);
        }
        open_group(w, k);
    }
    uint64_t left = (uint64_t)w->n * w->n_batches * ITERS;
    for (uint64_t guard = 0; left > 0; guard++) {
        if (guard > 1000000) {
            ru_node_id peer = {0};
            uint32_t n = 0;
            bool waits = ru_coll_waits_for(w->r[0].coll, &peer, &n);
            fail_msg("stuck: %llu left; rank 0 waits %d for node %llu in %u batches",
                     (unsigned long long)left, waits, (unsigned long long)peer.v, n);
        }
        rank *r = &w->r[ru_rng_below(&w->rng, w->n)];
        uint32_t b = ru_rng_below(&w->rng, w->n_batches);
        if (ru_rng_below(&w->rng, 3) == 0 && may_begin(w, r, b)) {
            begin(w, r, b);
        }
        turn(w);
        left = 0;
        for (uint32_t k = 0; k < w->n; k++) {
            for (uint32_t c = 0; c < w->n_batches; c++) {
                left += ITERS - w->r[k].done[c];
            }
            assert_int_equal(w->r[k].failed, 0);
        }
    }
}

static void add_all(world *w)
{
    static const int64_t sizes[] = {1, 7, 700, 5000, 12345};
    for (uint32_t op = 0; op < RU_COLL_OPS; op++) {
        for (uint32_t algo = 0; algo < RU_COLL_ALGOS; algo++) {
            if (ru_plan_coll_does((ru_coll_algo)algo, (ru_coll_op)op)) {
                int64_t n = sizes[ru_rng_below(&w->rng, RU_ARRAY_LEN(sizes))];
                add_batch(w, (ru_coll_op)op, (ru_coll_algo)algo, op == RU_COLL_BARRIER ? 0 : n);
            }
        }
    }
}

static void test_everything_is_summed(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= RANKS_MAX; n++) {
        world w;
        world_open(&w, n, ru_test_seed() + n, false);
        w.whole = true;
        add_all(&w);
        run(&w);
        ru_coll_stats s;
        ru_coll_stats_get(w.r[0].coll, &s);
        assert_int_equal(s.begun, (uint64_t)w.n_batches * ITERS);
        assert_int_equal(s.done, s.begun);
        world_close(&w);
    }
}

/* Channels with exactly the slots and streams that the group says it needs (a channel has twice as
 * many streams as it is told): what finds no room, because streams last until they are
 * acknowledged, waits and goes on when the channel says that there is some; what is withdrawn gives
 * its place back. */
static void test_little_room(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t slots = 0, streams = 0;
        for (uint32_t round = 0; round < 2; round++) {
            world w = {.apart = k % 2 == 1, .slots = slots, .streams = streams};
            world_start(&w, 4 + k, ru_test_seed() + 300 + k);
            w.whole = true;
            add_all(&w);
            run(&w);
            for (uint32_t r = 0; r < w.n; r++) {
                ru_coll_size size;
                ru_coll_needs(w.r[r].coll, &size);
                slots = size.slots > slots ? size.slots : slots;
                streams = (size.streams + 1) / 2 > streams ? (size.streams + 1) / 2 : streams;
            }
            world_close(&w);
        }
    }
}

/* All streams and slots are taken by others when a group begins, which has nothing under way whose
 * end would tell it of room: it waits, and goes on when there is some. */
static void test_room_taken_by_others(void **state)
{
    (void)state;
    world w = {.slots = 1, .streams = 1};
    world_start(&w, 2, ru_test_seed());
    add_batch(&w, RU_COLL_BROADCAST, RU_ALGO_TREE, 3000);
    w.batches[0].chunk_bytes = 0;
    rank *from = &w.r[w.batches[0].root], *to = &w.r[1 - w.batches[0].root];
    for (uint32_t k = 0; k < 2; k++) {
        make_buffers(&w, &w.r[k], 0);
        open_group(&w, k);
    }
    ru_time now = ru_pipe_now(w.net);
    ru_xfer_id slot, sent[2];
    ru_span bytes = {to->segment + SEGMENT / 2, 50000};
    ru_chan_post_in in = {.from = w.nodes[from->at],
                          .name = {77, 0},
                          .spans = &bytes,
                          .n_spans = 1,
                          .cookie = OTHERS};
    assert_int_equal(ru_chan_post(to->ch, &in, now, &slot), RU_OK);
    for (uint32_t k = 0; k < 2; k++) { /* nobody waits for them */
        ru_chan_send_in out = {.to = w.nodes[to->at],
                               .name = {78 + k, 0},
                               .class = RU_CLASS_NORMAL,
                               .spans = &bytes,
                               .n_spans = 1,
                               .cookie = OTHERS};
        assert_int_equal(ru_chan_send(from->ch, &out, now, &sent[k]), RU_OK);
    }
    begin(&w, from, 0);
    begin(&w, to, 0);
    for (uint32_t t = 0; t < 300; t++) {
        now = turn(&w);
    }
    assert_int_equal(from->failed + to->failed + from->done[0] + to->done[0], 0);
    ru_chan_unpost(to->ch, slot, now);
    ru_chan_cancel(from->ch, sent[0], now);
    ru_chan_cancel(from->ch, sent[1], now);
    for (uint32_t t = 0; t < 20000 && to->done[0] + from->done[0] < 2; t++) {
        turn(&w);
    }
    assert_int_equal(from->failed + to->failed, 0);
    assert_int_equal(to->done[0] + from->done[0], 2);
    world_close(&w);
}

/* A broadcast is sent when the receiver has begun and said so; words that are none say nothing. */
static void test_only_its_own_words_open(void **state)
{
    (void)state;
    world w;
    ru_err err;
    ru_coll_stats s;
    ru_node_id peer = {0};
    uint32_t busy;
    world_open(&w, 2, ru_test_seed(), false);
    add_batch(&w, RU_COLL_BROADCAST, RU_ALGO_TREE, 1000);
    w.batches[0].chunk_bytes = 0;
    uint32_t root = w.batches[0].root;
    rank *from = &w.r[root], *to = &w.r[1 - root];
    for (uint32_t k = 0; k < 2; k++) {
        make_buffers(&w, &w.r[k], 0);
        open_group(&w, k);
    }
    begin(&w, from, 0);
    static const uint32_t words[][5] = {/* epoch, batch, lane, run */
                                        {8, 0, 0, 1, 16}, {9, 1, 0, 1, 16}, {9, 0, 7, 1, 16},
                                        {9, 0, 0, 0, 16}, {9, 0, 0, 1, 15}, {9, 0, 0, 1, 17}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        uint32_t raw[5] = {words[k][0], words[k][1], words[k][2], words[k][3], 0};
        ru_coll_heard(from->coll, w.nodes[1 - root], raw, words[k][4], ru_pipe_now(w.net));
        for (uint32_t t = 0; t < 50; t++) {
            turn(&w);
        }
    }
    ru_coll_stats_get(from->coll, &s);
    assert_int_equal(s.sent_bytes, 0);
    begin(&w, to, 0);
    assert_true(ru_coll_waits_for(to->coll, &peer, &busy));
    assert_int_equal(peer.v, w.nodes[root].v);
    assert_int_equal(busy, 1);
    for (uint32_t t = 0; t < 5000 && to->done[0] + from->done[0] < 2; t++) {
        turn(&w);
    }
    assert_int_equal(to->done[0] + from->done[0], 2);
    assert_false(ru_coll_waits_for(to->coll, &peer, &busy));
    assert_int_equal(busy, 0);
    ru_coll_stats_get(from->coll, &s);
    assert_int_equal(s.sent_bytes, 4000);
    assert_int_equal(
        ru_coll_begin(to->coll, 0, 0, to->spans[0], SPANS, (ru_time){0}, ru_pipe_now(w.net), &err),
        RU_E_ARG); /* once more the same iteration */
    world_close(&w);
}

/* Members of a host take each other's bytes out of each other's memory, whatever the schedule. */
static void test_memory_of_a_host(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4 * RANKS_MAX; k++) {
        world w;
        world_open(&w, 1 + k % RANKS_MAX, ru_test_seed() + 100 + k, false);
        w.whole = true;
        w.near = true;
        w.apart = k / RANKS_MAX % 2 == 1;
        w.counted = k / RANKS_MAX == 3;
        add_all(&w);
        run(&w);
        world_close(&w);
    }
}

/* With grants of the channel; and with iterations that the owner keeps apart. */
static void test_grants_and_apart(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        world w;
        world_open(&w, 5, ru_test_seed() + 9, k == 0);
        w.whole = true;
        w.apart = k == 1;
        add_all(&w);
        run(&w);
        world_close(&w);
    }
}

/* The same plan under other timings: the same bits, and those of rank order for direct. */
static void test_bits_do_not_depend_on_timing(void **state)
{
    (void)state;
    uint64_t hash[3];
    for (uint32_t k = 0; k < 3; k++) {
        world w;
        world_open(&w, 5, ru_test_seed() + 100 * k, false);
        w.rng = ru_rng_from(1, 1); /* the same plan */
        for (uint32_t algo = 0; algo < RU_COLL_ALGOS; algo++) {
            add_batch(&w, RU_COLL_ALL_REDUCE, (ru_coll_algo)algo, 6000);
            add_batch(&w, RU_COLL_ALL_REDUCE, (ru_coll_algo)algo, 37);
        }
        w.rng = ru_rng_from(ru_test_seed() + k, 2);
        run(&w);
        hash[k] = w.hash;
        world_close(&w);
    }
    assert_true(hash[0] == hash[1] && hash[1] == hash[2] && hash[0] != 0);
}

/* Without memory behind the buffers the same happens. */
static void test_counted(void **state)
{
    (void)state;
    world w;
    world_open(&w, 4, ru_test_seed(), false);
    w.counted = true;
    add_all(&w);
    run(&w);
    ru_coll_size size;
    ru_coll_needs(w.r[0].coll, &size);
    assert_int_equal(size.scratch_bytes, 0);
    world_close(&w);
}

static void test_a_lost_peer_ends_the_group(void **state)
{
    (void)state;
    world w;
    world_open(&w, 4, ru_test_seed(), false);
    add_batch(&w, RU_COLL_ALL_REDUCE, RU_ALGO_DIRECT, 20000);
    add_batch(&w, RU_COLL_ALL_REDUCE, RU_ALGO_DIRECT, 10);
    for (uint32_t k = 0; k < w.n; k++) {
        make_buffers(&w, &w.r[k], 0);
        make_buffers(&w, &w.r[k], 1);
        open_group(&w, k);
        begin(&w, &w.r[k], 0);
    }
    for (uint32_t k = 0; k < 20; k++) {
        turn(&w);
    }
    ru_chan_close(w.r[3].ch);
    ru_pipe_kill(w.net, w.r[3].node);
    w.r[3].tick_at.ns = INT64_MAX;
    for (uint32_t k = 0; k < 2000000 && w.r[0].failed + w.r[1].failed + w.r[2].failed < 3; k++) {
        ru_pipe_wait(w.net, 10000);
        turn(&w);
    }
    ru_err err;
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(w.r[k].failed, 1);
        assert_int_equal(ru_coll_begin(w.r[k].coll, 1, 0, w.r[k].spans[1], SPANS, (ru_time){0},
                                       ru_pipe_now(w.net), &err),
                         RU_E_PEER);
    }
    w.n = 3;
    ru_arena_fini(&w.r[3].arena);
    world_close(&w);
}

/* Memory ends at any point while a group opens, or when a begin brings more spans than any before:
 * the call says so, and the same call works when there is memory again. */
static void test_memory_ends(void **state)
{
    (void)state;
    enum { MORE = 40 };
    world w;
    world_open(&w, 2, ru_test_seed(), false);
    add_all(&w);
    for (uint32_t b = 0; b < w.n_batches; b++) {
        make_buffers(&w, &w.r[0], b);
    }
    ru_coll_user user = {.self = &w.r[0], .done = on_done, .failed = on_group_failed};
    ru_coll_options opt = {.chan = w.r[0].ch,
                           .nodes = w.nodes,
                           .n_ranks = 2,
                           .epoch = 9,
                           .batches = w.batches,
                           .schedules = w.schedules,
                           .n_batches = w.n_batches,
                           .spans_max = SPANS};
    ru_err err = {0};
    bool opened = false;
    for (int64_t k = 0; !opened; k++) {
        assert_true(k < 1000);
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_coll *c = NULL;
        ru_test_alloc_fail(k);
        ru_status st = ru_coll_open(&opt, &user, &a, &c, &err);
        opened = ru_test_alloc_count() <= k;
        ru_test_alloc_fail(-1);
        assert_int_equal(st, opened ? RU_OK : RU_E_MEM);
        assert_true(opened == (c != NULL) && (opened || err.text[0] != '\0'));
        ru_coll_close(c, ru_pipe_now(w.net));
        ru_arena_fini(&a);
    }
    ru_arena small; /* the arena of a group may be bounded as well */
    opened = false;
    for (int64_t max = 4096; !opened; max += max / 4) {
        assert_true(max < 1 << 30);
        ru_arena_init(&small, max);
        ru_coll *c = NULL;
        ru_status st = ru_coll_open(&opt, &user, &small, &c, &err);
        opened = st == RU_OK;
        assert_true(opened || (st == RU_E_MEM && c == NULL && err.text[0] != '\0'));
        ru_coll_close(c, ru_pipe_now(w.net));
        ru_arena_fini(&small);
    }
    open_group(&w, 0);
    open_group(&w, 1);
    ru_span many[MORE] = {{w.r[0].data[0], 4 * w.batches[0].n}};
    ru_status st = RU_E_MEM;
    uint32_t failures = 0;
    ru_arena_alloc(&w.r[0].arena, w.r[0].arena.end - w.r[0].arena.at, 1); /* its block is full */
    for (int64_t k = 0; st != RU_OK; k++) {
        ru_test_alloc_fail(k);
        st = ru_coll_begin(w.r[0].coll, 0, 0, many, MORE, (ru_time){0}, ru_pipe_now(w.net), &err);
        ru_test_alloc_fail(-1);
        assert_true(st == RU_OK || st == RU_E_MEM);
        failures += st != RU_OK;
    }
    assert_int_equal(failures, 1);
    w.r[0].begun[0]++;
    for (int64_t i = 0; i < w.batches[0].n; i++) {
        w.r[0].data[0][i] = value(&w, 0, 0, 0, i);
    }
    make_buffers(&w, &w.r[1], 0);
    begin(&w, &w.r[1], 0);
    for (uint32_t t = 0; t < 20000 && w.r[0].done[0] + w.r[1].done[0] < 2; t++) {
        turn(&w);
    }
    assert_int_equal(w.r[0].done[0] + w.r[1].done[0], 2);
    world_close(&w);
}

static void test_bad_calls(void **state)
{
    (void)state;
    world w;
    world_open(&w, 2, ru_test_seed(), false);
    add_batch(&w, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 100);
    w.batches[0].chunk_bytes = 0;
    make_buffers(&w, &w.r[0], 0);
    open_group(&w, 0);
    open_group(&w, 1);
    ru_err err;
    ru_span half = {w.r[0].data[0], 200}, odd = {w.r[0].data[0], 401};
    ru_time now = ru_pipe_now(w.net);
    ru_coll *c = w.r[0].coll;
    assert_int_equal(ru_coll_begin(c, 0, 0, &half, 1, now, now, &err), RU_E_ARG);
    assert_int_equal(ru_coll_begin(c, 0, 0, &odd, 1, now, now, &err), RU_E_ARG);
    assert_int_equal(ru_coll_begin(c, 0, 5, w.r[0].spans[0], SPANS, now, now, &err), RU_OK);
    assert_int_equal(ru_coll_begin(c, 0, 6, w.r[0].spans[0], SPANS, now, now, &err), RU_E_ARG);
    ru_coll *other;
    ru_coll_user user = {.self = &w.r[0], .done = on_done, .failed = on_group_failed};
    ru_coll_batch wrong = w.batches[0];
    wrong.algo = RU_ALGO_TREE;
    ru_coll_options opt = {.chan = w.r[0].ch,
                           .nodes = w.nodes,
                           .n_ranks = 2,
                           .epoch = 10,
                           .batches = &wrong,
                           .schedules = w.schedules,
                           .n_batches = 1};
    assert_int_equal(ru_coll_open(&opt, &user, &w.arena, &other, &err), RU_E_ARG);
    wrong = w.batches[0];
    wrong.dtype = RU_I32;
    assert_int_equal(ru_coll_open(&opt, &user, &w.arena, &other, &err), RU_E_ARG);
    opt.rank = 2;
    assert_int_equal(ru_coll_open(&opt, &user, &w.arena, &other, &err), RU_E_ARG);
    opt.rank = 0;
    opt.apart = true; /* a ring of two takes two of each a chunk: the channel has 4096 */
    wrong = w.batches[0];
    wrong.chunk_bytes = 4;
    wrong.n = 2049;
    assert_int_equal(ru_coll_open(&opt, &user, &w.arena, &other, &err), RU_E_LIMIT);
    assert_non_null(strstr(err.text, "needs 4098 slots and 4098 streams"));
    assert_non_null(strstr(err.text, "has 4096 and 4096"));
    wrong.n = 2048;
    assert_ok(ru_coll_open(&opt, &user, &w.arena, &other, &err), err);
    ru_coll_close(other, now);
    uint8_t word[20];
    for (uint32_t k = 0; k < 2000; k++) { /* strangers' and mangled words change nothing */
        for (uint32_t i = 0; i < sizeof word; i++) {
            word[i] = (uint8_t)(ru_rng_below(&w.rng, 3) == 0 ? ru_rng_u32(&w.rng) : 0);
        }
        word[0] = 9;
        ru_coll_heard(c, (ru_node_id){ru_rng_below(&w.rng, 4)}, word, ru_rng_below(&w.rng, 20),
                      now);
    }
    ru_coll_close(NULL, now);
    world_close(&w);
}

RU_TESTS(test_coll_engine, cmocka_unit_test(test_everything_is_summed),
         cmocka_unit_test(test_little_room), cmocka_unit_test(test_room_taken_by_others),
         cmocka_unit_test(test_only_its_own_words_open), cmocka_unit_test(test_memory_of_a_host),
         cmocka_unit_test(test_grants_and_apart),
         cmocka_unit_test(test_bits_do_not_depend_on_timing), cmocka_unit_test(test_counted),
         cmocka_unit_test(test_a_lost_peer_ends_the_group), cmocka_unit_test(test_memory_ends),
         cmocka_unit_test(test_bad_calls))
