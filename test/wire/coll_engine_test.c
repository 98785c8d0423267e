/* The engine of collectives on real channels over links in memory whose timing is random: results
 * equal plain sums, the same bits whatever the timing. */
#include "comm/coll/coll.h"
#include "test/test.h"

#include <stdio.h>
#include <string.h>

#include "base/wire.h"

#include "test/wire/coll_world.h"

static void test_everything_is_summed(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= RANKS_MAX; n++) {
        world w;
        cw_open(&w, n, ru_test_seed() + n, false);
        w.whole = true;
        cw_add_all(&w);
        cw_run(&w);
        for (uint32_t b = 0; b < w.n_buckets; b++) {
            assert_int_equal(w.r[0].done[b], ITERS);
        }
        cw_close(&w);
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
            cw_start(&w, 4 + k, ru_test_seed() + 300 + k);
            w.whole = true;
            cw_add_all(&w);
            cw_run(&w);
            for (uint32_t r = 0; r < w.n; r++) {
                ru_coll_size size;
                ru_coll_needs(w.r[r].coll, &size);
                slots = size.slots > slots ? size.slots : slots;
                streams = (size.streams + 1) / 2 > streams ? (size.streams + 1) / 2 : streams;
            }
            cw_close(&w);
        }
    }
}

/* All streams and slots are taken by others when a group begins, which has nothing under way whose
 * end would tell it of room: it waits, and goes on when there is some. */
static void test_room_taken_by_others(void **state)
{
    (void)state;
    world w = {.slots = 1, .streams = 1};
    cw_start(&w, 2, ru_test_seed());
    cw_add(&w, RU_COLL_BROADCAST, RU_ALGO_TREE, 3000);
    w.buckets[0].chunk_bytes = 0;
    rank *from = &w.r[w.buckets[0].root], *to = &w.r[1 - w.buckets[0].root];
    for (uint32_t k = 0; k < 2; k++) {
        cw_buffers(&w, &w.r[k], 0);
        cw_group(&w, k);
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
    cw_begin(&w, from, 0);
    cw_begin(&w, to, 0);
    for (uint32_t t = 0; t < 300; t++) {
        now = cw_turn(&w);
    }
    assert_int_equal(from->failed + to->failed + from->done[0] + to->done[0], 0);
    ru_chan_unpost(to->ch, slot, now);
    ru_chan_cancel(from->ch, sent[0], now);
    ru_chan_cancel(from->ch, sent[1], now);
    for (uint32_t t = 0; t < 20000 && to->done[0] + from->done[0] < 2; t++) {
        cw_turn(&w);
    }
    assert_int_equal(from->failed + to->failed, 0);
    assert_int_equal(to->done[0] + from->done[0], 2);
    cw_close(&w);
}

/* A broadcast is sent when the receiver has begun and said so; words that are none say nothing. */
static void test_only_its_own_words_open(void **state)
{
    (void)state;
    world w;
    ru_err err;
    ru_chan_stats s, before;
    cw_open(&w, 2, ru_test_seed(), false);
    cw_add(&w, RU_COLL_BROADCAST, RU_ALGO_TREE, 1000);
    w.buckets[0].chunk_bytes = 0;
    uint32_t root = w.buckets[0].root;
    rank *from = &w.r[root], *to = &w.r[1 - root];
    for (uint32_t k = 0; k < 2; k++) {
        cw_buffers(&w, &w.r[k], 0);
        cw_group(&w, k);
    }
    cw_begin(&w, from, 0);
    ru_chan_stats_get(from->ch, &before);
    static const uint32_t words[][5] = {/* epoch, bucket, lane, run */
                                        {8, 0, 0, 1, 16}, {9, 1, 0, 1, 16}, {9, 0, 7, 1, 16},
                                        {9, 0, 0, 0, 16}, {9, 0, 0, 1, 15}, {9, 0, 0, 1, 17}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        uint32_t raw[5] = {words[k][0], words[k][1], words[k][2], words[k][3], 0};
        ru_coll_heard(from->coll, w.nodes[1 - root], raw, words[k][4], ru_pipe_now(w.net));
        for (uint32_t t = 0; t < 50; t++) {
            cw_turn(&w);
        }
    }
    ru_chan_stats_get(from->ch, &s);
    assert_int_equal(s.tx_chunks, before.tx_chunks);
    cw_begin(&w, to, 0);
    for (uint32_t t = 0; t < 5000 && to->done[0] + from->done[0] < 2; t++) {
        cw_turn(&w);
    }
    assert_int_equal(to->done[0] + from->done[0], 2);
    ru_chan_stats_get(from->ch, &s);
    assert_int_equal(s.tx_bytes - before.tx_bytes, 4000);
    assert_int_equal(
        ru_coll_begin(to->coll, 0, 0, to->spans[0], SPANS, (ru_time){0}, ru_pipe_now(w.net), &err),
        RU_E_ARG); /* once more the same iteration */
    cw_close(&w);
}

/* Members of a host take each other's bytes out of each other's memory, whatever the schedule. */
static void test_memory_of_a_host(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4 * RANKS_MAX; k++) {
        world w;
        cw_open(&w, 1 + k % RANKS_MAX, ru_test_seed() + 100 + k, false);
        w.whole = true;
        w.near = true;
        w.apart = k / RANKS_MAX % 2 == 1;
        w.counted = k / RANKS_MAX == 3;
        cw_add_all(&w);
        cw_run(&w);
        cw_close(&w);
    }
}

/* A word of an iteration that is over says nothing about the one that runs: not that there is a
 * place for bytes, nor where bytes lie, nor that they were taken. */
static void test_late_words(void **state)
{
    (void)state;
    static const ru_coll_algo algos[] = {RU_ALGO_RING, RU_ALGO_DIRECT, RU_ALGO_HIERARCHY};
    uint32_t late = 0;
    for (uint32_t k = 0; k < 64; k++) {
        world w = {.whole = true, .late = true, .near = k % 4 > 0};
        cw_start(&w, 3 + k % 3, ru_test_seed() + 500 + k);
        if (k < 8) {
            cw_add_all(&w);
        } else { /* few buckets: a word that came late is about what runs more often */
            cw_add(&w, RU_COLL_ALL_REDUCE, algos[k % 3], 5000);
        }
        cw_run(&w);
        late += w.came_late;
        cw_close(&w);
    }
    assert_true(late > 1000);
}

/* A member of the host that says its bytes lie outside of its memory, or that they are not as many
 * as the step takes, ends the group; nothing is read there. */
static void test_places_outside(void **state)
{
    (void)state;
    enum { N = 300, HERE = 1 };
    const uint64_t all = SEGMENT, far = UINT64_MAX - 3;
    const struct {
        uint64_t at, size;
        bool dies;
    } rows[] = {{0, 4 * N, false},
                {all - 4 * N, 4 * N, false},
                {all - 4 * N + 4, 4 * N, true},
                {all, 4, true},
                {all + 4, 4, true},
                {0, all + 4, true},
                {4, all, true},
                {far, 8, true},
                {8, far, true},
                {2, 4 * N, true},
                {0, 4 * N - 2, true},
                {0, 4 * N - 4, true},
                {0, 4 * N + 4, true}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        world w = {.near = true, .whole = true};
        cw_start(&w, 3, ru_test_seed());
        cw_add(&w, RU_COLL_ALL_REDUCE, RU_ALGO_DIRECT, 3 * N);
        w.buckets[0].chunk_bytes = 0;
        for (uint32_t r = 0; r < 3; r++) {
            cw_buffers(&w, &w.r[r], 0);
            cw_group(&w, r);
        }
        cw_begin(&w, &w.r[0], 0);
        ru_time now = cw_turn(&w);
        const ru_coll_step *x = w.schedules[0]->steps;
        while (!ru_coll_step_receives(x) || x->peer != 2) { /* rank 2 is of this host */
            x++;
            assert_true(x < w.schedules[0]->steps + w.schedules[0]->begin[1]);
        }
        uint8_t word[64];
        ru_wire_out out = ru_wire_out_into(word, sizeof word);
        ru_wire_put_u32(&out, 9);
        ru_wire_put_u32(&out, 0);
        ru_wire_put_u32(&out, 0);
        ru_wire_put_u32(&out, 1);
        ru_wire_put_u16(&out, HERE);
        ru_wire_put_u16(&out, x->tag);
        ru_wire_put_u64(&out, rows[k].at);
        ru_wire_put_u64(&out, rows[k].size);
        ru_coll_heard(w.r[0].coll, w.nodes[2], word, ru_wire_size(&out), now);
        for (uint32_t t = 0; t < 20; t++) {
            cw_turn(&w);
        }
        assert_int_equal(w.r[0].failed, rows[k].dies);
        cw_close(&w);
    }
}

/* With grants of the channel; and with iterations that the owner keeps apart. */
static void test_grants_and_apart(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        world w;
        cw_open(&w, 5, ru_test_seed() + 9, k == 0);
        w.whole = true;
        w.apart = k == 1;
        cw_add_all(&w);
        cw_run(&w);
        cw_close(&w);
    }
}

/* Iterations of an all-reduce that follow each other at once need no word between ranks, whatever
 * its size: its lanes take turns. Chunks that wait for a lane of the same iteration do. */
static void test_lanes_take_turns(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2 * RU_COLL_ALGOS; k++) {
        world w = {.whole = true, .steady = true};
        cw_start(&w, 2 + k % 4, ru_test_seed() + 700 + k);
        cw_add(&w, RU_COLL_ALL_REDUCE, (ru_coll_algo)(k / 2), 40000);
        w.buckets[0].chunk_bytes = 30000;
        w.buckets[0].depth = k % 2 == 0 ? 0 : 2;
        cw_run(&w);
        assert_true((w.n_words == 0) == (k % 2 == 0));
        cw_close(&w);
    }
}

/* The same plan under other timings: the same bits, and those of rank order for direct. */
static void test_bits_do_not_depend_on_timing(void **state)
{
    (void)state;
    uint64_t hash[3];
    for (uint32_t k = 0; k < 3; k++) {
        world w;
        cw_open(&w, 5, ru_test_seed() + 100 * k, false);
        w.rng = ru_rng_from(1, 1); /* the same plan */
        for (uint32_t algo = 0; algo < RU_COLL_ALGOS; algo++) {
            cw_add(&w, RU_COLL_ALL_REDUCE, (ru_coll_algo)algo, 6000);
            cw_add(&w, RU_COLL_ALL_REDUCE, (ru_coll_algo)algo, 37);
        }
        w.rng = ru_rng_from(ru_test_seed() + k, 2);
        cw_run(&w);
        hash[k] = w.hash;
        cw_close(&w);
    }
    assert_true(hash[0] == hash[1] && hash[1] == hash[2] && hash[0] != 0);
}

/* Without memory behind the buffers the same happens. */
static void test_counted(void **state)
{
    (void)state;
    world w;
    cw_open(&w, 4, ru_test_seed(), false);
    w.counted = true;
    cw_add_all(&w);
    cw_run(&w);
    ru_coll_size size;
    ru_coll_needs(w.r[0].coll, &size);
    assert_int_equal(size.scratch_bytes, 0);
    cw_close(&w);
}

static void test_a_lost_peer_ends_the_group(void **state)
{
    (void)state;
    world w;
    cw_open(&w, 4, ru_test_seed(), false);
    cw_add(&w, RU_COLL_ALL_REDUCE, RU_ALGO_DIRECT, 20000);
    cw_add(&w, RU_COLL_ALL_REDUCE, RU_ALGO_DIRECT, 10);
    for (uint32_t k = 0; k < w.n; k++) {
        cw_buffers(&w, &w.r[k], 0);
        cw_buffers(&w, &w.r[k], 1);
        cw_group(&w, k);
        cw_begin(&w, &w.r[k], 0);
    }
    for (uint32_t k = 0; k < 20; k++) {
        cw_turn(&w);
    }
    ru_chan_close(w.r[3].ch);
    ru_pipe_kill(w.net, w.r[3].node);
    w.r[3].tick_at.ns = INT64_MAX;
    for (uint32_t k = 0; k < 2000000 && w.r[0].failed + w.r[1].failed + w.r[2].failed < 3; k++) {
        ru_pipe_wait(w.net, 10000);
        cw_turn(&w);
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
    cw_close(&w);
}

/* Memory ends at any point while a group opens, or when a begin brings more spans than any before:
 * the call says so, and the same call works when there is memory again. */
static void test_memory_ends(void **state)
{
    (void)state;
    enum { MORE = 40 };
    world w;
    cw_open(&w, 2, ru_test_seed(), false);
    cw_add_all(&w);
    for (uint32_t b = 0; b < w.n_buckets; b++) {
        cw_buffers(&w, &w.r[0], b);
    }
    ru_coll_user user = {.self = &w.r[0], .done = cw_on_done, .failed = cw_on_failed};
    ru_coll_options opt = {.chan = w.r[0].ch,
                           .nodes = w.nodes,
                           .n_ranks = 2,
                           .epoch = 9,
                           .buckets = w.buckets,
                           .schedules = w.schedules,
                           .n_buckets = w.n_buckets,
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
    cw_group(&w, 0);
    cw_group(&w, 1);
    ru_span many[MORE] = {{w.r[0].data[0], 4 * w.buckets[0].n}};
    for (int64_t i = 0; i < w.buckets[0].n; i++) {
        w.r[0].data[0][i] = cw_value(&w, 0, 0, 0, i);
    }
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
    cw_buffers(&w, &w.r[1], 0);
    cw_begin(&w, &w.r[1], 0);
    for (uint32_t t = 0; t < 20000 && w.r[0].done[0] + w.r[1].done[0] < 2; t++) {
        cw_turn(&w);
    }
    assert_int_equal(w.r[0].done[0] + w.r[1].done[0], 2);
    cw_close(&w);
}

static void test_bad_calls(void **state)
{
    (void)state;
    world w;
    cw_open(&w, 2, ru_test_seed(), false);
    cw_add(&w, RU_COLL_ALL_REDUCE, RU_ALGO_RING, 100);
    w.buckets[0].chunk_bytes = w.buckets[0].depth = 0;
    cw_buffers(&w, &w.r[0], 0);
    cw_group(&w, 0);
    cw_group(&w, 1);
    ru_err err;
    ru_span half = {w.r[0].data[0], 200}, odd = {w.r[0].data[0], 401};
    ru_time now = ru_pipe_now(w.net);
    ru_coll *c = w.r[0].coll;
    assert_int_equal(ru_coll_begin(c, 0, 0, &half, 1, now, now, &err), RU_E_ARG);
    assert_int_equal(ru_coll_begin(c, 0, 0, &odd, 1, now, now, &err), RU_E_ARG);
    assert_int_equal(ru_coll_begin(c, 0, 5, w.r[0].spans[0], SPANS, now, now, &err), RU_OK);
    assert_int_equal(ru_coll_begin(c, 0, 6, w.r[0].spans[0], SPANS, now, now, &err), RU_E_ARG);
    ru_coll *other;
    ru_coll_user user = {.self = &w.r[0], .done = cw_on_done, .failed = cw_on_failed};
    ru_coll_bucket wrong = w.buckets[0];
    wrong.algo = RU_ALGO_TREE;
    ru_coll_options opt = {.chan = w.r[0].ch,
                           .nodes = w.nodes,
                           .n_ranks = 2,
                           .epoch = 10,
                           .buckets = &wrong,
                           .schedules = w.schedules,
                           .n_buckets = 1};
    assert_int_equal(ru_coll_open(&opt, &user, &w.arena, &other, &err), RU_E_ARG);
    wrong = w.buckets[0];
    wrong.dtype = RU_I32;
    assert_int_equal(ru_coll_open(&opt, &user, &w.arena, &other, &err), RU_E_ARG);
    opt.rank = 2;
    assert_int_equal(ru_coll_open(&opt, &user, &w.arena, &other, &err), RU_E_ARG);
    opt.rank = 0;
    opt.apart = true; /* a ring of two takes two of each a chunk: the channel has 4096 */
    wrong = w.buckets[0];
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
    cw_close(&w);
}

RU_TESTS(test_coll_engine, cmocka_unit_test(test_everything_is_summed),
         cmocka_unit_test(test_little_room), cmocka_unit_test(test_room_taken_by_others),
         cmocka_unit_test(test_only_its_own_words_open), cmocka_unit_test(test_memory_of_a_host),
         cmocka_unit_test(test_late_words), cmocka_unit_test(test_places_outside),
         cmocka_unit_test(test_grants_and_apart), cmocka_unit_test(test_lanes_take_turns),
         cmocka_unit_test(test_bits_do_not_depend_on_timing), cmocka_unit_test(test_counted),
         cmocka_unit_test(test_a_lost_peer_ends_the_group), cmocka_unit_test(test_memory_ends),
         cmocka_unit_test(test_bad_calls))
