/* What acknowledgements and questions tell of times: clocks that are apart, stamps of both sides,
 * words of a peer that lies. */
#include "comm/chan/chan_impl.h"
#include "test/test.h"

static const int64_t ms = 1000000, apart_ns = INT64_C(3600) * 1000000000;

typedef struct fixture {
    ru_chan ch;
    rui_peer peers[2];
    ru_arena arena;
    ru_time clock;
} fixture;

static ru_time clock_of(void *self)
{
    return ((const fixture *)self)->clock;
}

static const ru_link_ops ops = {.name = "clock alone", .clock = clock_of};

static void init(fixture *f)
{
    *f = (fixture){.clock = {5000 * ms}};
    ru_arena_init(&f->arena, 0);
    f->ch.link = (ru_link){.ops = &ops, .self = f};
    f->ch.opt.recorder = (ru_recorder *)f; /* there is one */
    f->ch.recorder = f->ch.opt.recorder;
    f->ch.peers = f->peers;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(f->peers); k++) {
        f->peers[k].name.stream = 70 + k;
        f->peers[k].conn[0] = f->peers[k].conn[1] = RUI_NONE;
    }
    assert_true(rui_expect_open(&f->ch, &f->arena));
}

static void asked(fixture *f, int64_t ahead_ns, uint32_t known)
{
    const rui_frame q = {.type = RUI_PROBE,
                         .flags = RUI_TIME,
                         .stream = 1,
                         .offset = (uint64_t)ahead_ns,
                         .deadline = known};
    rui_clock_asked(&f->ch, 0, &q, f->clock);
}

/* The answer to a question that took so long there and so long back; their clock is ahead. */
static void answered(fixture *f, int64_t there_ns, int64_t back_ns)
{
    f->peers[0].clock.asked = f->clock;
    const rui_frame a = {.type = RUI_PROBE,
                         .flags = RUI_TOLD,
                         .stream = (uint64_t)f->clock.ns,
                         .offset = (uint64_t)(f->clock.ns + there_ns + apart_ns)};
    f->clock.ns += there_ns + back_ns;
    rui_clock_told(&f->ch, 0, &a, f->clock);
}

static rui_stream stream_of(uint64_t name, uint32_t peer)
{
    return (rui_stream){.name = {.stream = name, .peer = peer}, .total_bytes = 40000};
}

/* Sent now, there after took_ns; its acknowledgement is read later_ns after that, by a loop that
 * woke up before it came. */
static void transfer(fixture *f, uint64_t name, int64_t took_ns, int64_t later_ns)
{
    rui_stream s = stream_of(name, 0);
    s.since = f->clock;
    s.last = ru_time_after(s.since, took_ns - ms / 10);
    ru_time there = {f->clock.ns + took_ns + apart_ns};
    f->clock.ns += took_ns + later_ns;
    rui_expect_arrived(&f->ch, &s, rui_stamp_of(there), ru_time_after(f->clock, -50 * ms));
}

static bool near(int64_t a, int64_t b)
{
    return a >= b - 5000 && a <= b + 5000; /* a stamp's unit and what a float holds */
}

static int64_t expected(const fixture *f, uint64_t name, uint32_t peer)
{
    rui_stream s = stream_of(name, peer);
    return rui_expect_ns(&f->ch, &s);
}

static void learns(fixture *f)
{
    transfer(f, 8, 7 * ms, ms / 10);
    transfer(f, 8, 7 * ms, 100 * ms);
    transfer(f, 9, 2 * ms, 200 * ms);
    assert_true(near(expected(f, 8, 0), 7 * ms));
    assert_true(near(expected(f, 10, 0), 7 * ms)); /* by its size, the median of 7, 7, 2 */
    assert_int_equal(expected(f, 8, 1), 0);        /* another peer */
    ru_arena_fini(&f->arena);
}

/* Either side of a question learns what the other's clock shows. */
static void test_clocks_apart(void **state)
{
    (void)state;
    static fixture f;
    init(&f);
    asked(&f, -apart_ns, 1);
    learns(&f);
    init(&f);
    answered(&f, ms / 10, ms / 10);
    learns(&f);
}

/* A late answer changes nothing until clocks may have moved as far. */
static void test_best_answer_stays(void **state)
{
    (void)state;
    static fixture f;
    init(&f);
    const rui_clock *k = &f.peers[0].clock;
    answered(&f, ms / 10, ms / 10);
    assert_true(k->known && k->best_ns == apart_ns);
    answered(&f, ms / 10, 9 * ms);
    assert_true(k->best_ns == apart_ns);
    f.clock.ns += 100000 * ms;
    answered(&f, ms / 10, 8 * ms);
    assert_true(k->best_ns == apart_ns + (ms / 10 - 8 * ms) / 2);
    ru_arena_fini(&f.arena);
}

/* No clock, a clock that nobody believes, stamps of before the sending. */
static void test_nothing_is_learnt(void **state)
{
    (void)state;
    static fixture f;
    init(&f);
    transfer(&f, 8, 7 * ms, ms);
    asked(&f, apart_ns, 0);
    asked(&f, INT64_MIN, 1);
    asked(&f, INT64_MAX, 1);
    asked(&f, apart_ns, 2);
    assert_false(f.peers[0].clock.known);
    transfer(&f, 8, 7 * ms, ms);
    asked(&f, -apart_ns, 1);
    transfer(&f, 8, -ms, 2 * ms);
    transfer(&f, 8, -ms, 2 * ms);
    assert_int_equal(expected(&f, 8, 0), 0);
    for (uint32_t k = 0; k < 2; k++) { /* the furthest clocks that may be: no overflow */
        asked(&f, (k == 0 ? 1 : -1) * (INT64_C(1) << 61), 1);
        assert_true(f.peers[0].clock.known);
        transfer(&f, 8, 7 * ms, ms);
    }
    ru_arena_fini(&f.arena);
}

/* An eighth as many names as there is room for, step after step: nearly all keep what they
 * took, also those that fall on one place. */
static void test_names_keep_their_histories(void **state)
{
    (void)state;
    enum { NAMES = 512, STEPS = 3 };
    static fixture f;
    init(&f);
    asked(&f, -apart_ns, 1);
    for (uint64_t k = 0; k < NAMES * STEPS; k++) {
        transfer(&f, 1000 + k % NAMES, k % 2 == 0 ? 7 * ms : 2 * ms, ms);
    }
    uint32_t kept = 0;
    for (uint64_t k = 0; k < NAMES; k++) {
        kept += near(expected(&f, 1000 + k, 0), k % 2 == 0 ? 7 * ms : 2 * ms);
    }
    assert_true(kept >= NAMES - NAMES / 64);
    ru_arena_fini(&f.arena);
}

/* Another process in the slot of a peer that left. */
static void test_who_comes_has_no_history(void **state)
{
    (void)state;
    static fixture f;
    init(&f);
    asked(&f, -apart_ns, 1);
    transfer(&f, 8, 7 * ms, ms);
    transfer(&f, 8, 7 * ms, ms);
    uint64_t left = f.peers[0].name.stream;
    f.peers[0].name.stream = left + (UINT64_C(1) << 32);
    assert_int_equal(expected(&f, 8, 0), 0);
    f.peers[1].name.stream = left; /* it comes back, in another slot */
    assert_true(near(expected(&f, 8, 1), 7 * ms));
    ru_arena_fini(&f.arena);
}

/* An acknowledgement later than a stamp can tell, of a short and of a long stream; one that comes
 * in time of a long stream. */
static void test_late_acknowledgements_tell_nothing(void **state)
{
    (void)state;
    static fixture f;
    init(&f);
    asked(&f, -apart_ns, 1);
    for (uint32_t k = 0; k < 2; k++) {
        transfer(&f, 8, 7 * ms, 300 * ms);
        transfer(&f, 8, 800 * ms, 300 * ms);
        transfer(&f, 8, 7 * ms, 3000 * ms);
    }
    assert_int_equal(expected(&f, 8, 0), 0);
    transfer(&f, 8, 800 * ms, 100 * ms);
    assert_true(near(expected(&f, 8, 0), 800 * ms));
    ru_arena_fini(&f.arena);
}

/* After a reconnection nothing is learnt of the streams that were under way. */
static void test_streams_of_a_lost_connection_tell_nothing(void **state)
{
    (void)state;
    static fixture f;
    init(&f);
    asked(&f, -apart_ns, 1);
    rui_stream s = stream_of(8, 0);
    s.state = RUI_STREAM_WHOLE;
    s.next = s.prev = RUI_NONE;
    s.since = f.clock;
    f.ch.streams = &s;
    f.peers[0].stream_first = 0;
    rui_stream_doubt(&f.ch, 0, f.clock);
    ru_time there = {f.clock.ns + 7 * ms + apart_ns};
    f.clock.ns += 8 * ms;
    rui_expect_arrived(&f.ch, &s, rui_stamp_of(there), f.clock);
    assert_int_equal(expected(&f, 8, 0), 0);
    ru_arena_fini(&f.arena);
}

RU_TESTS(comm_chan_expect, cmocka_unit_test(test_late_acknowledgements_tell_nothing),
         cmocka_unit_test(test_streams_of_a_lost_connection_tell_nothing),
         cmocka_unit_test(test_names_keep_their_histories),
         cmocka_unit_test(test_who_comes_has_no_history), cmocka_unit_test(test_clocks_apart),
         cmocka_unit_test(test_best_answer_stays), cmocka_unit_test(test_nothing_is_learnt))
