#include "test/wire/coll_world.h"

#include <stdio.h>
#include <string.h>

#include "base/wire.h"
#include "test/test.h"

static const uint16_t host_of[RANKS_MAX] = {0, 1, 0, 1, 2, 2};

/* Number of the k-th iteration: most follow each other, some are left out. */
static uint32_t number(const world *w, uint32_t k)
{
    return k < 2 || w->steady ? k : k + 3;
}

float cw_value(const world *w, uint32_t r, uint32_t b, uint32_t iter, int64_t i)
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
    r->w->n_words++;
    if (r->w->late && size_bytes <= WORD_BYTES) {
        ru_wire_in in = ru_wire_in_from(data, size_bytes);
        (void)ru_wire_u32(&in);
        uint32_t bucket = ru_wire_u32(&in);
        heard_word *h = &r->words[r->n_words++ % WORDS_MAX];
        *h = (heard_word){
            .size_bytes = size_bytes, .from = from, .bucket = bucket, .done = r->done[bucket]};
        memcpy(h->data, data, (size_t)size_bytes);
    }
    ru_coll_heard(r->coll, from, data, size_bytes, now);
}

/* One of the words of an iteration before the last one comes again. */
static void come_late(world *w, ru_time now)
{
    rank *r = &w->r[ru_rng_below(&w->rng, w->n)];
    uint32_t have = r->n_words < WORDS_MAX ? r->n_words : WORDS_MAX;
    const heard_word *h = have == 0 ? NULL : &r->words[ru_rng_below(&w->rng, have)];
    if (h != NULL && r->done[h->bucket] >= h->done + 2) {
        heard_word copy = *h;
        ru_coll_heard(r->coll, copy.from, copy.data, copy.size_bytes, now);
        w->came_late++;
    }
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
    const ru_coll_bucket *x = &w->buckets[b];
    float sum = cw_value(w, 0, b, iter, i);
    for (uint32_t q = 1; q < w->n; q++) {
        sum += cw_value(w, q, b, iter, i);
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
        *want = cw_value(w, owner_of(w, x->n, i), b, iter, i);
        return true;
    case RU_COLL_BROADCAST:
        *want = cw_value(w, x->root, b, iter, i);
        return true;
    case RU_COLL_ALL_TO_ALL: { /* n is a multiple of the ranks here */
        int64_t each = x->n / w->n, from = i / each;
        *want = cw_value(w, (uint32_t)from, b, iter, r->at * each + i % each);
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
    const ru_coll_bucket *x = &w->buckets[b];
    if (x->op == RU_COLL_BARRIER) {
        for (uint32_t q = 0; q < w->n; q++) {
            assert_true(number(w, w->r[q].begun[b]) > iter);
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

void cw_on_done(void *self, uint32_t bucket, uint32_t iter, ru_time now)
{
    rank *r = self;
    (void)now;
    assert_int_equal(iter, number(r->w, r->done[bucket]));
    r->done[bucket]++;
    if (!r->w->counted) {
        check_result(r->w, r, bucket, iter);
    }
}

void cw_on_failed(void *self, ru_node_id peer, ru_status why, ru_time now)
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
    r->words = w->late ? RU_NEW(&r->arena, heard_word, WORDS_MAX) : NULL;
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

void cw_group(world *w, uint32_t k)
{
    rank *r = &w->r[k];
    ru_err err;
    ru_coll_options opt = {.chan = r->ch,
                           .nodes = w->nodes,
                           .n_ranks = w->n,
                           .rank = k,
                           .epoch = 9,
                           .buckets = w->buckets,
                           .schedules = w->schedules,
                           .n_buckets = w->n_buckets,
                           .spans_max = SPANS,
                           .counted = w->counted,
                           .apart = w->apart};
    for (uint32_t q = 0; q < w->n && w->near; q++) {
        bool same = host_of[q] == host_of[k];
        r->near[q] = (ru_span){w->r[q].segment, same ? SEGMENT : 0};
        opt.near = r->near;
    }
    ru_coll_user user = {.self = r, .done = cw_on_done, .failed = cw_on_failed};
    assert_ok(ru_coll_open(&opt, &user, &r->arena, &r->coll, &err), err);
}

/* One turn of the network; `now` for the caller. */
ru_time cw_turn(world *w)
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
    for (uint32_t k = 0; w->late && k < 32; k++) {
        come_late(w, now);
    }
    return now;
}

void cw_start(world *w, uint32_t n, uint64_t seed)
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
        cw_turn(w);
        up = true;
        for (uint32_t k = 0; k < n; k++) {
            up = up && w->r[k].ups == n - 1;
        }
    }
}

void cw_open(world *w, uint32_t n, uint64_t seed, bool grants)
{
    memset(w, 0, sizeof *w);
    w->grants = grants;
    cw_start(w, n, seed);
}

void cw_close(world *w)
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

void cw_add(world *w, ru_coll_op op, ru_coll_algo algo, int64_t n)
{
    ru_coll_schedule *s = RU_NEW(&w->arena, ru_coll_schedule, 1);
    ru_err err;
    bool rooted = op == RU_COLL_REDUCE || op == RU_COLL_BROADCAST;
    uint32_t root = rooted ? ru_rng_below(&w->rng, w->n) : 0;
    ru_coll_in in = {.op = op, .algo = algo, .n_ranks = w->n, .root = root, .host = host_of};
    assert_ok(ru_plan_coll(&in, &w->arena, s, &err), err);
    uint32_t b = w->n_buckets++;
    assert_true(b < BUCKETS_MAX);
    w->schedules[b] = s;
    w->buckets[b] = (ru_coll_bucket){.op = op,
                                     .algo = algo,
                                     .dtype = RU_F32,
                                     .n = op == RU_COLL_ALL_TO_ALL ? n / w->n * w->n : n,
                                     .root = root,
                                     .class = RU_CLASS_NORMAL,
                                     .rank = (uint16_t)b};
    if (ru_rng_below(&w->rng, 2) == 0) {
        w->buckets[b].chunk_bytes = 4 * (1 + n / (1 + ru_rng_below(&w->rng, 7)));
        w->buckets[b].depth = ru_rng_below(&w->rng, 4);
    }
}

/* The buffer of a bucket in up to SPANS pieces of random sizes, some empty. */
void cw_buffers(world *w, rank *r, uint32_t b)
{
    int64_t n = w->buckets[b].n, at = 0;
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

void cw_begin(world *w, rank *r, uint32_t b)
{
    ru_err err;
    uint32_t iter = number(w, r->begun[b]++);
    for (int64_t i = 0; i < w->buckets[b].n && !w->counted; i++) {
        r->data[b][i] = cw_value(w, r->at, b, iter, i);
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
    for (uint32_t k = 0; k < w->n * w->n_buckets && w->apart; k++) {
        if (w->r[k % w->n].done[k / w->n] < r->begun[b]) {
            return false;
        }
    }
    return true;
}

/* Everybody begins everything in an order of its own, now and then, until all iterations are done.
 */
void cw_run(world *w)
{
    for (uint32_t k = 0; k < w->n; k++) {
        for (uint32_t b = 0; b < w->n_buckets; b++) {
            cw_buffers(w, &w->r[k], b);
        }
        cw_group(w, k);
    }
    uint64_t left = (uint64_t)w->n * w->n_buckets * ITERS;
    for (uint64_t guard = 0; left > 0; guard++) {
        if (guard > 1000000) {
            fail_msg("stuck: %llu left", (unsigned long long)left);
        }
        rank *r = &w->r[ru_rng_below(&w->rng, w->n)];
        uint32_t b = ru_rng_below(&w->rng, w->n_buckets);
        if (ru_rng_below(&w->rng, 3) == 0 && may_begin(w, r, b)) {
            cw_begin(w, r, b);
        }
        cw_turn(w);
        left = 0;
        for (uint32_t k = 0; k < w->n; k++) {
            for (uint32_t c = 0; c < w->n_buckets; c++) {
                left += ITERS - w->r[k].done[c];
            }
            assert_int_equal(w->r[k].failed, 0);
        }
    }
}

void cw_add_all(world *w)
{
    static const int64_t sizes[] = {1, 7, 700, 5000, 12345};
    for (uint32_t op = 0; op < RU_COLL_OPS; op++) {
        for (uint32_t algo = 0; algo < RU_COLL_ALGOS; algo++) {
            if (ru_plan_coll_does((ru_coll_algo)algo, (ru_coll_op)op)) {
                int64_t n = sizes[ru_rng_below(&w->rng, RU_ARRAY_LEN(sizes))];
                cw_add(w, (ru_coll_op)op, (ru_coll_algo)algo, op == RU_COLL_BARRIER ? 0 : n);
            }
        }
    }
}
