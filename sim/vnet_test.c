/* Links between simulated nodes: who overtakes whom, what a cut or an end leaves, what may be
 * changed while bytes are on their way. */
#include <string.h>

#include "test/sim_box.h"
#include "test/test.h"

enum { PLACE = 1000 };

static void a_cut_is_one_of_the_wire(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    ru_sim_nic nic = gigabit;
    nic.host = 5;
    box_add(s, &a, "a:1", &nic);
    box_add(s, &b, "a:2", &nic);
    ru_sim_cut(s, a.node, b.node, 500 * MS);
    box_connect(&a, "a:2", 3, 1000); /* past the wire: they share a host */
    run_until(s, MS);
    assert_int_equal(b.c[0].next, 3);
    ru_sim_close(s);
}

/* Who sends to an end whose kernel gave up is reset once they reach each other again. */
static void sending_to_an_end_that_gave_up_is_reset(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    box_conn *c = box_connect(&a, "b:1", 0, 100);
    run_until(s, MS);
    ru_sim_cut(s, a.node, b.node, 20000 * MS);
    c->left = 1;
    box_wake(&a, c);
    run_until(s, 30000 * MS);
    assert_int_equal(c->why, RU_E_IO);
    assert_true(b.c[0].open);
    b.c[0].left = 1;
    box_wake(&b, &b.c[0]);
    run_until(s, 30001 * MS);
    assert_false(b.c[0].open);
    assert_int_equal(b.c[0].why, RU_E_PEER);
    assert_int_equal(a.n_arrivals, 0);
    ru_sim_close(s);
}

/* Frames of one sender to one receiver that come earlier than one sent before: only where
 * connections take different times. */
static void frames_overtake_others_to_the_same_node_alone(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 3; k++) { /* 0: no jitter; 1: to two nodes; 2: to one */
        ru_sim *s = sim_new(1);
        box a, b, c;
        box_add(s, &a, "a:1", &gigabit);
        box_add(s, &b, "b:1", &gigabit);
        box_add(s, &c, "c:1", &gigabit);
        ru_sim_chaos_start(s, &(ru_sim_chaos){.jitter_ns = k == 0 ? 0 : MS});
        box_connect(&a, "b:1", 0, 10000);
        box_connect(&a, k == 1 ? "c:1" : "b:1", 0, 10000);
        run_until(s, 10 * MS);
        int64_t before = ru_sim_overtaken(s); /* words of the openings */
        a.c[0].left = a.c[1].left = 100;      /* in turns from here on */
        box_wake(&a, &a.c[0]);
        box_wake(&a, &a.c[1]);
        run_until(s, 1000 * MS);
        assert_int_equal(b.c[0].next, 100);
        assert_true(k == 2 ? ru_sim_overtaken(s) > before : ru_sim_overtaken(s) == before);
        ru_sim_close(s);
    }
}

/* The sender dies: what waits at an end that pauses is lost, and the end hears of it. */
static void what_waits_at_a_pausing_end_is_lost(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    box_conn *c = box_connect(&a, "b:1", 0, 100);
    run_until(s, MS);
    b.c[0].pausing = true;
    c->left = 5;
    box_wake(&a, c);
    run_until(s, 2 * MS);
    ru_sim_crash(s, a.node);
    run_until(s, 3 * MS);
    assert_false(b.c[0].open);
    assert_int_equal(b.c[0].why, RU_E_PEER);
    assert_int_equal(b.n_arrivals, 0);
    ru_sim_close(s);
}

/* Payloads in halves, `into` the place of the first; until that is there. */
static ru_sim *halfway(uint64_t seed, box *a, box *b, uint8_t into[PLACE])
{
    static uint8_t data[PLACE];
    ru_err err = {0};
    ru_sim *s;
    memset(data, 7, sizeof data);
    memset(into, 0, PLACE);
    assert_ok(ru_sim_open(&(ru_sim_options){.seed = seed, .halves = true}, &s, &err), err);
    box_add(s, a, "a:1", &gigabit);
    box_add(s, b, "b:1", &gigabit);
    box_conn *c = box_connect(a, "b:1", 0, PLACE);
    run_until(s, MS);
    c->data = data;
    c->left = 1;
    b->c[0].into = into;
    box_wake(a, c);
    for (int64_t ns = MS; into[0] == 0; ns += 100) {
        run_until(s, ns);
    }
    assert_int_equal(b->n_arrivals, 0);
    return s;
}

/* So is a payload of which the word of the end was faster than its second half. */
static void what_is_halfway_when_the_end_comes_is_lost(void **state)
{
    (void)state;
    uint32_t lost = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint8_t into[PLACE];
        box a, b;
        ru_sim *s = halfway(seed, &a, &b, into);
        ru_sim_crash(s, a.node);
        run_until(s, 10 * MS);
        assert_int_equal(b.c[0].why, RU_E_PEER);
        assert_int_equal(into[PLACE - 1], b.n_arrivals > 0 ? 7 : 0);
        lost += b.n_arrivals == 0 ? 1 : 0;
        ru_sim_close(s);
    }
    assert_true(lost > 0 && lost < 8);
}

/* What has not come yet may be sent elsewhere: to as large a place. */
static void what_is_halfway_may_be_sent_elsewhere(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 3; k++) { /* 1: a smaller place; 2: one of several parts */
        uint8_t into[PLACE], other[PLACE] = {0};
        box a, b;
        ru_err err = {0};
        ru_sim *s = halfway(1, &a, &b, into);
        ru_link_rx rx = {.n_spans = 1, .more = k == 2};
        rx.spans[0] = (ru_span){other, k == 1 ? PLACE - 1 : PLACE};
        b.link.ops->redirect(b.link.self, b.c[0].id, &rx);
        if (k == 0) {
            run_until(s, 2 * MS);
            assert_int_equal(b.n_arrivals, 1);
            assert_true(into[PLACE / 2 - 1] == 7 && into[PLACE / 2] == 0);
            assert_true(other[PLACE / 2 - 1] == 0 && other[PLACE / 2] == 7);
            assert_int_equal(ru_sim_redirected(s), 1);
        } else {
            assert_int_equal(ru_sim_run(s, (ru_time){2 * MS}, &err), RU_E_ARG);
        }
        ru_sim_close(s);
    }
}

/* Each part of a payload comes in two halves, each asks for its place. */
static void parts_come_in_halves_as_well(void **state)
{
    (void)state;
    uint8_t into[PLACE];
    box a, b;
    ru_sim *s = halfway(3, &a, &b, into);
    run_until(s, 2 * MS);
    memset(into, 0, sizeof into);
    b.c[0].parts = true;
    a.c[0].left = 2;
    box_wake(&a, &a.c[0]);
    run_until(s, 10 * MS);
    assert_int_equal(b.n_arrivals, 3);
    for (uint32_t i = 0; i < PLACE; i++) {
        assert_int_equal(into[i], 7);
    }
    assert_true(b.c[0].open && !b.out_of_order);
    ru_sim_close(s);
}

/* A knob of 0 leaves what it stands for as it is. */
static void knobs_that_are_not_set_change_nothing(void **state)
{
    (void)state;
    const ru_sim_nic nic = {.bytes_per_s = 1.25e9, .delay_ns = 5 * MS};
    static const ru_link_knobs first[] = {{.sndbuf_bytes = 100000}, {.pace_bytes_per_s = 1e6}};
    static const uint64_t frames_per_s[] = {990, 100};
    for (uint32_t k = 0; k < 2; k++) {
        ru_sim *s = sim_new(1);
        box a, b;
        box_add(s, &a, "a:1", &nic);
        box_add(s, &b, "b:1", &nic);
        box_conn *c = box_connect(&a, "b:1", 0, 10000 - 40);
        run_until(s, 20 * MS);
        a.link.ops->knobs(a.link.self, c->id, &first[k]);
        a.link.ops->knobs(a.link.self, c->id, &(ru_link_knobs){0});
        c->left = 1000000;
        box_wake(&a, c);
        run_until(s, 1020 * MS);
        assert_in_range(b.c[0].next, frames_per_s[k] - 20, frames_per_s[k] + 20);
        ru_sim_close(s);
    }
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    box_conn *c = box_connect(&a, "b:1", 0, 20000);
    run_until(s, MS);
    a.link.ops->knobs(a.link.self, c->id, &(ru_link_knobs){0});
    c->left = 100;
    box_wake(&a, c);
    run_until(s, 2 * MS); /* three to four in the interface's queue, as without the call */
    ru_link_facts facts;
    a.link.ops->facts(a.link.self, c->id, &facts);
    assert_true(facts.unsent_bytes > 2 * 20000);
    ru_sim_close(s);
}

/* A sender whose window is full goes on as soon as it is made larger. */
static void a_larger_window_counts_at_once(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    ru_sim_nic nic = gigabit;
    nic.window_bytes = 100000;
    box_add(s, &a, "a:1", &nic);
    box_add(s, &b, "b:1", &nic);
    box_conn *c = box_connect(&a, "b:1", 0, 10000 - 40);
    run_until(s, MS);
    b.c[0].pausing = true;
    c->left = 100;
    box_wake(&a, c);
    run_until(s, 100 * MS);
    assert_in_range(c->sent, 9, 12);
    a.link.ops->knobs(a.link.self, c->id, &(ru_link_knobs){.sndbuf_bytes = 300000});
    run_until(s, 200 * MS);
    assert_in_range(c->sent, 29, 32);
    ru_sim_close(s);
}

RU_TESTS(sim_vnet, cmocka_unit_test(a_cut_is_one_of_the_wire),
         cmocka_unit_test(sending_to_an_end_that_gave_up_is_reset),
         cmocka_unit_test(frames_overtake_others_to_the_same_node_alone),
         cmocka_unit_test(what_waits_at_a_pausing_end_is_lost),
         cmocka_unit_test(what_is_halfway_when_the_end_comes_is_lost),
         cmocka_unit_test(what_is_halfway_may_be_sent_elsewhere),
         cmocka_unit_test(parts_come_in_halves_as_well),
         cmocka_unit_test(knobs_that_are_not_set_change_nothing),
         cmocka_unit_test(a_larger_window_counts_at_once))
