/* Virtual time, links, devices and faults against closed forms. */
#include "sim/sim.h"

#include <string.h>

#include "test/sim_box.h"
#include "test/test.h"

/* -- time -----------------------------------------------------------------------------------------
 */

typedef struct order {
    ru_sim *sim;
    uint64_t seen[64];
    uint32_t n;
} order;

static void note(void *self, uint64_t arg)
{
    order *o = self;
    assert_true(o->n < 64);
    o->seen[o->n++] = arg;
}

static void events_come_in_order_of_time_then_of_asking(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    order o = {s, {0}, 0};
    ru_sim_at(s, (ru_time){50}, note, &o, 3);
    ru_sim_at(s, (ru_time){20}, note, &o, 1);
    uint64_t gone = ru_sim_at(s, (ru_time){20}, note, &o, 99);
    ru_sim_at(s, (ru_time){20}, note, &o, 2);
    ru_sim_at(s, (ru_time){50}, note, &o, 4);
    ru_sim_cancel(s, gone);
    ru_sim_cancel(s, gone);
    run_until(s, 20);
    assert_int_equal(o.n, 2);
    assert_int_equal(ru_sim_now(s).ns, 20);
    run_until(s, 70);
    assert_int_equal(ru_sim_now(s).ns, 70);
    assert_int_equal(o.n, 4);
    for (uint32_t k = 0; k < 4; k++) {
        assert_int_equal(o.seen[k], k + 1);
    }
    ru_sim_cancel(s, gone); /* its slot may be another's by now: nothing happens */
    assert_int_equal(ru_sim_events(s), 4);
    ru_sim_close(s);
}

/* Sorting by brute force is the witness. */
static void many_random_events_are_sorted_and_cancelled_ones_never_happen(void **state)
{
    (void)state;
    enum { N = 20000 };
    static int64_t at[N];
    static uint64_t handle[N];
    ru_sim *s = sim_new(ru_test_seed());
    ru_rng rng = ru_rng_from(ru_test_seed(), 7);
    order o = {s, {0}, 0};
    uint64_t first = 0;
    int64_t best = INT64_MAX;
    for (uint32_t k = 0; k < N; k++) {
        at[k] = 2 + ru_rng_below(&rng, 1000000);
        handle[k] = ru_sim_at(s, (ru_time){at[k]}, note, &o, k);
    }
    for (uint32_t k = 0; k < N; k++) { /* keep few: the heap is rebuilt on the way */
        if (k % 400 != 0) {
            ru_sim_cancel(s, handle[k]);
        } else if (at[k] < best) {
            best = at[k];
            first = k;
        }
    }
    run_until(s, INT64_MAX);
    assert_int_equal(o.n, N / 400);
    assert_int_equal(o.seen[0], first);
    for (uint32_t k = 1; k < o.n; k++) {
        assert_true(at[o.seen[k - 1]] <= at[o.seen[k]]);
        assert_int_equal(o.seen[k] % 400, 0);
    }
    ru_sim_close(s);
}

static ru_status never_beyond(void *self, ru_time now, ru_err *err)
{
    return now.ns <= *(int64_t *)self ? RU_OK : RU_FAIL(err, RU_E_BUG, "beyond");
}

/* One server without a bound on its queue, fed by a trace of arrivals: Lindley's recursion is the
 * witness. */
typedef struct server {
    ru_sim *sim;
    uint32_t n_waiting, n_done;
    int64_t *left_ns;
} server;

enum { SERVICE_NS = 90 };

static void served(void *self, uint64_t arg)
{
    server *v = self;
    assert_int_equal(arg, v->n_done);
    v->left_ns[v->n_done++] = ru_sim_now(v->sim).ns;
    if (--v->n_waiting > 0) {
        ru_sim_at(v->sim, (ru_time){ru_sim_now(v->sim).ns + SERVICE_NS}, served, v, v->n_done);
    }
}

static void request(void *self, uint64_t arg)
{
    server *v = self;
    assert_int_equal(arg, v->n_done + v->n_waiting);
    if (v->n_waiting++ == 0) {
        ru_sim_at(v->sim, (ru_time){ru_sim_now(v->sim).ns + SERVICE_NS}, served, v, v->n_done);
    }
}

static void a_fed_trace_needs_no_heap_and_no_node(void **state)
{
    (void)state;
    enum { N = 100000 };
    static int64_t at[N], left[N];
    ru_rng rng = ru_rng_from(ru_test_seed(), 8);
    for (uint32_t k = 0; k < N; k++) {
        at[k] = (k > 0 ? at[k - 1] : 2) + ru_rng_below(&rng, 200);
    }
    ru_sim *s = sim_new(1);
    server v = {s, 0, 0, left};
    int64_t before = ru_sim_memory_bytes(s);
    ru_sim_feed(s, at, N, request, &v);
    ru_sim_feed(s, NULL, 0, request, &v);
    run_until(s, INT64_MAX);
    assert_int_equal(v.n_done, N);
    int64_t free_ns = 0;
    for (uint32_t k = 0; k < N; k++) {
        free_ns = (at[k] > free_ns ? at[k] : free_ns) + SERVICE_NS;
        assert_int_equal(left[k], free_ns);
    }
    assert_int_equal(ru_sim_events(s), 2 * N);
    assert_true(ru_sim_memory_bytes(s) - before < 32768);
    ru_sim_close(s);
}

static void invariants_and_bounds_end_a_run(void **state)
{
    (void)state;
    int64_t bound = 10;
    ru_sim_options opt = {
        .seed = 1, .events_max = 2, .invariant = never_beyond, .invariant_self = &bound};
    ru_sim *s;
    ru_err err = {0};
    assert_ok(ru_sim_open(&opt, &s, &err), err);
    order o = {s, {0}, 0};
    ru_sim_at(s, (ru_time){5}, note, &o, 1);
    ru_sim_at(s, (ru_time){11}, note, &o, 2);
    ru_sim_at(s, (ru_time){12}, note, &o, 3);
    assert_int_equal(ru_sim_run(s, (ru_time){100}, &err), RU_E_BUG);
    assert_string_equal(err.text, "beyond");
    ru_sim_close(s);

    opt.invariant = NULL;
    assert_ok(ru_sim_open(&opt, &s, &err), err);
    for (int64_t k = 0; k < 3; k++) {
        ru_sim_at(s, (ru_time){5}, note, &o, 1);
    }
    assert_int_equal(ru_sim_run(s, (ru_time){100}, &err), RU_E_LIMIT);
    ru_sim_close(s);

    opt.memory_max_bytes = 1 << 16;
    opt.events_max = 0;
    opt.nodes_max = 4;
    assert_ok(ru_sim_open(&opt, &s, &err), err);
    for (uint32_t k = 0; k < 100000; k++) {
        ru_sim_at(s, (ru_time){5}, note, &o, 1);
    }
    assert_int_equal(ru_sim_run(s, (ru_time){2}, &err), RU_E_LIMIT);
    ru_sim_close(s);
}

/* -- network --------------------------------------------------------------------------------------
 */

static int64_t near_ns(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

static void a_frame_takes_size_over_rate_plus_delay(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    box_conn *c = box_connect(&a, "b:1", 1, 1000000 - 40);
    run_until(s, 1000 * MS);
    assert_true(c->open && !c->accepted);
    assert_int_equal(c->opened.ns, 1 + 100000); /* one round trip */
    assert_true(b.c[0].open && b.c[0].accepted);
    assert_int_equal(b.c[0].opened.ns, 1 + 150000);
    assert_int_equal(b.c[0].last.ns, 1 + 100000 + 8 * MS + 50000);
    assert_int_equal(b.c[0].rx_bytes, 1000000 - 40);
    ru_link_facts facts;
    a.link.ops->facts(a.link.self, c->id, &facts);
    assert_int_equal(facts.acked_bytes, 1000000);
    assert_int_equal(facts.unacked_bytes + facts.unsent_bytes, 0);
    assert_int_equal(facts.rtt_ns, 100000);
    ru_sim_close(s);
}

static void connections_of_one_node_take_turns(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b, c;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    box_add(s, &c, "c:1", &gigabit);
    box_connect(&a, "b:1", 100, 125000 - 40);
    box_connect(&a, "c:1", 100, 125000 - 40);
    run_until(s, 1000 * MS); /* 125 MB/s for one second less the opening: 8 frames a slot of 8 ms */
    assert_true(near_ns(b.c[0].rx_bytes, c.c[0].rx_bytes) <= 125000);
    run_until(s, 5000 * MS);
    assert_int_equal(b.c[0].next + c.c[0].next, 200);
    int64_t end = b.c[0].last.ns > c.c[0].last.ns ? b.c[0].last.ns : c.c[0].last.ns;
    assert_int_equal(end, 1 + 100000 + 200 * MS + 50000);
    ru_sim_close(s);
}

static void senders_to_one_node_share_its_interface(void **state)
{
    (void)state;
    enum { K = 4 };
    ru_sim *s = sim_new(1);
    box to, from[K];
    box_add(s, &to, "t:1", &gigabit);
    char address[] = "f0:1";
    for (uint32_t k = 0; k < K; k++) {
        address[1] = (char)('0' + k);
        box_add(s, &from[k], address, &gigabit);
        box_connect(&from[k], "t:1", 1000, 62500 - 40);
    }
    run_until(s, 1000 * MS); /* 2,000 frames of 0.5 ms fit into the second, 500 of each */
    for (uint32_t k = 0; k < K; k++) {
        assert_true(near_ns((int64_t)to.c[k].next, 500) <= 2);
    }
    run_until(s, 10000 * MS);
    int64_t end = 0;
    for (uint32_t k = 0; k < K; k++) {
        assert_int_equal(to.c[k].next, 1000);
        end = to.c[k].last.ns > end ? to.c[k].last.ns : end;
    }
    assert_true(near_ns(end, K * 500 * MS) < MS);
    assert_false(to.out_of_order);
    ru_sim_close(s);
}

static void nodes_of_one_host_do_not_use_the_wire(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    ru_sim_nic nic = gigabit;
    nic.host = 5;
    nic.local_bytes_per_s = 1e9;
    nic.local_delay_ns = 1000;
    box_add(s, &a, "a:1", &nic);
    box_add(s, &b, "a:2", &nic);
    box_connect(&a, "a:2", 1, 1000000 - 40);
    run_until(s, 1000 * MS);
    assert_int_equal(b.c[0].last.ns, 1 + 2000 + MS + 1000);
    ru_sim_close(s);
}

static void payloads_are_copied_when_they_leave(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    uint8_t data[100], into[100] = {0};
    memset(data, 7, sizeof data);
    box_conn *c = box_connect(&a, "b:1", 0, 100);
    run_until(s, MS);
    c->data = data;
    c->left = 1;
    b.c[0].into = into;
    a.link.ops->wake(a.link.self, c->id);
    run_until(s, MS + 5000); /* 140 bytes left after 1.12 us, they arrive after 50 us */
    memset(data, 9, sizeof data);
    assert_int_equal(into[0], 0);
    run_until(s, 2 * MS);
    assert_int_equal(into[0], 7);
    assert_int_equal(into[99], 7);
    ru_sim_close(s);
}

static void payloads_may_come_in_halves(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_sim *s;
    assert_ok(ru_sim_open(&(ru_sim_options){.seed = 1, .halves = true}, &s, &err), err);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    uint8_t data[101], into[101] = {0};
    memset(data, 7, sizeof data);
    box_conn *c = box_connect(&a, "b:1", 0, 101);
    run_until(s, MS);
    c->data = data;
    c->left = 3;
    b.c[0].into = into;
    a.link.ops->wake(a.link.self, c->id);
    for (int64_t ns = MS; into[0] == 0; ns += 100) {
        run_until(s, ns);
    }
    assert_int_equal(into[49], 7);
    assert_int_equal(into[50], 0);
    assert_int_equal(b.n_arrivals, 0);
    run_until(s, 2 * MS);
    assert_int_equal(into[100], 7);
    assert_int_equal(b.n_arrivals, 3);
    c->left = 1;
    a.link.ops->wake(a.link.self, c->id);
    run_until(s, 2 * MS + 60000);
    ru_sim_crash(s, a.node); /* whatever is halfway by then ends or is lost */
    run_until(s, 3 * MS);
    assert_int_equal(b.c[0].why, RU_E_PEER);
    ru_sim_close(s);
}

static void a_pausing_receiver_stops_the_sender_until_it_resumes(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    ru_sim_nic nic = gigabit;
    nic.window_bytes = 100000;
    box_add(s, &a, "a:1", &nic);
    box_add(s, &b, "b:1", &nic);
    box_conn *c = box_connect(&a, "b:1", 50, 10000 - 40);
    run_until(s, 140000); /* b's side opens at 150 us */
    run_until(s, 160000);
    b.c[0].pausing = true;
    run_until(s, 1000 * MS);
    assert_in_range(c->sent, 9, 12);
    assert_int_equal(b.c[0].next, 0);
    b.c[0].pausing = false;
    b.link.ops->resume(b.link.self, b.c[0].id);
    assert_int_equal(b.c[0].next, 0); /* not from within */
    run_until(s, 2000 * MS);
    assert_int_equal(b.c[0].next, 50);
    assert_false(b.out_of_order);
    ru_sim_close(s);
}

static void pacing_and_windows_bound_the_rate(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    ru_sim_nic nic = {.bytes_per_s = 1.25e9, .delay_ns = 5 * MS, .window_bytes = 100000};
    box_add(s, &a, "a:1", &nic);
    box_add(s, &b, "b:1", &nic);
    box_connect(&a, "b:1", 1000000, 10000 - 40);
    run_until(s, 1000 * MS); /* a window of 10 frames per round trip of 10 ms */
    assert_true(near_ns((int64_t)b.c[0].next, 990) <= 20);
    ru_sim_close(s);

    s = sim_new(1);
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    box_conn *c = box_connect(&a, "b:1", 0, 10000 - 40);
    run_until(s, MS);
    a.link.ops->knobs(a.link.self, c->id, &(ru_link_knobs){.pace_bytes_per_s = 1e6});
    c->left = 1000;
    a.link.ops->wake(a.link.self, c->id);
    run_until(s, 1001 * MS);
    assert_true(near_ns((int64_t)b.c[0].next, 100) <= 1);
    ru_sim_close(s);
}

/* -- ends and faults ------------------------------------------------------------------------------
 */

static void connecting_to_nobody_is_refused_and_closing_is_heard(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    ru_err err = {0};
    ru_conn_id id;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    assert_int_equal(a.link.ops->connect(a.link.self, "nowhere", RU_LINK_BULK, &id, &err),
                     RU_E_ARG);
    box_conn *none = box_connect(&a, "x:1", 0, 0);
    box_conn *c = box_connect(&a, "b:1", 0, 0);
    run_until(s, MS);
    assert_int_equal(none->why, RU_E_PEER);
    assert_int_equal(none->closed.ns, 100001);
    ru_conn_id old = c->id;
    a.link.ops->close(a.link.self, c->id);
    a.link.ops->close(a.link.self, old); /* stale: nothing */
    run_until(s, 2 * MS);
    assert_int_equal(b.c[0].why, RU_E_PEER);
    assert_int_equal(b.c[0].closed.ns, MS + 50000);
    assert_true(c->open); /* no `closed` for whoever closes */
    ru_sim_node_stats stats;
    ru_sim_node_stats_get(s, a.node, &stats);
    assert_int_equal(stats.conns, 0);
    ru_sim_close(s);
}

/* Who refuses a frame closes, and the other side hears that its peer ended the connection. */
static void a_refused_frame_ends_the_connection_at_both(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    b.refuses = true;
    const box_conn *c = box_connect(&a, "b:1", 3, 1000);
    run_until(s, 5 * MS);
    assert_false(c->open);
    assert_int_equal(c->why, RU_E_PEER);
    assert_false(b.c[0].open);
    assert_int_equal(b.c[0].why, RU_E_DATA);
    assert_int_equal(b.n_arrivals, 0);
    ru_sim_close(s);
}

/* Memory of frames that have not left yet is read by the link, whichever of several it is. */
static void what_the_link_still_reads_is_known(void **state)
{
    (void)state;
    enum { SIZE = 100000 };
    static uint8_t bytes[2][SIZE];
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    for (uint32_t k = 0; k < 2; k++) {
        box_connect(&a, "b:1", 1, SIZE)->data = bytes[k];
    }
    bool read[2] = {false, false};
    for (int64_t ns = 10000; ns < 5 * MS; ns += 10000) {
        run_until(s, ns);
        for (uint32_t k = 0; k < 2; k++) {
            bool first = ru_sim_reads(s, bytes[k], 1);
            assert_true(first == ru_sim_reads(s, bytes[k] + SIZE - 1, 1));
            read[k] = read[k] || first;
        }
    }
    assert_true(read[0] && read[1]);
    assert_false(ru_sim_reads(s, bytes, sizeof bytes)); /* all is there */
    ru_sim_close(s);
}

static void a_crash_is_heard_and_a_lost_machine_is_not(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b, c;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    box_add(s, &c, "c:1", &gigabit);
    box_conn *to_b = box_connect(&a, "b:1", 0, 100), *to_c = box_connect(&a, "c:1", 0, 100);
    run_until(s, MS);
    order o = {s, {0}, 0};
    ru_sim_at_node(s, b.node, (ru_time){2 * MS}, note, &o, 1);
    ru_sim_crash(s, b.node);
    ru_sim_vanish(s, c.node);
    run_until(s, 3 * MS);
    assert_int_equal(o.n, 0);
    assert_int_equal(to_b->why, RU_E_PEER);
    assert_int_equal(to_b->closed.ns, MS + 50000);
    assert_true(to_c->open);
    to_c->left = 1;
    a.link.ops->wake(a.link.self, to_c->id);
    run_until(s, 60000 * MS);
    assert_int_equal(to_c->why, RU_E_IO); /* the kernel gave up after ten seconds */
    assert_true(near_ns(to_c->closed.ns, 10003 * MS) < MS);
    box_conn *again = box_connect(&a, "b:1", 0, 0);
    run_until(s, 61000 * MS);
    assert_int_equal(again->why, RU_E_PEER);
    assert_false(ru_sim_alive(s, b.node));

    box fresh; /* a new process under the old address */
    box_add(s, &fresh, "b:1", &gigabit);
    again = box_connect(&a, "b:1", 1, 10);
    run_until(s, 62000 * MS);
    assert_int_equal(fresh.c[0].next, 1);
    ru_sim_close(s);
}

static void a_cut_delays_and_a_freeze_keeps_the_order(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    box_connect(&a, "b:1", 100, 125000 - 40); /* 1 ms each */
    run_until(s, 10 * MS);
    ru_sim_cut(s, a.node, b.node, 500 * MS);
    uint64_t before = b.c[0].next;
    run_until(s, 600 * MS);
    assert_int_equal(b.c[0].next, before);
    run_until(s, 712 * MS);
    assert_true(b.c[0].next > before);
    ru_sim_freeze(s, b.node, 100 * MS);
    order o = {s, {0}, 0};
    ru_sim_at_node(s, b.node, (ru_time){720 * MS}, note, &o, 1);
    before = b.c[0].next;
    run_until(s, 811 * MS);
    assert_int_equal(b.c[0].next, before);
    assert_int_equal(o.n, 0);
    run_until(s, 2000 * MS);
    assert_int_equal(o.n, 1);
    assert_int_equal(b.c[0].next, 100);
    assert_false(b.out_of_order);
    ru_sim_close(s);
}

static void a_long_cut_and_a_half_open_connection_end_at_the_sender_alone(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    box_conn *c = box_connect(&a, "b:1", 0, 100);
    run_until(s, MS);
    ru_sim_cut_node(s, b.node, 60000 * MS);
    c->left = 1;
    a.link.ops->wake(a.link.self, c->id);
    run_until(s, 30000 * MS);
    assert_int_equal(c->why, RU_E_IO);
    assert_true(b.c[0].open);
    b.c[0].left = 1; /* it sends into the reset */
    b.link.ops->wake(b.link.self, b.c[0].id);
    run_until(s, 39000 * MS);
    assert_true(b.c[0].open);
    run_until(s, 100000 * MS);
    assert_false(b.c[0].open);

    c = box_connect(&a, "b:1", 0, 100);
    run_until(s, 101000 * MS);
    ru_sim_half_open(s, a.node, b.node);
    assert_int_equal(b.c[1].why, RU_E_IO);
    assert_true(c->open);
    c->left = 1;
    a.link.ops->wake(a.link.self, c->id);
    run_until(s, 120000 * MS);
    assert_int_equal(c->why, RU_E_IO);
    ru_sim_close(s);
}

static void devices_do_one_thing_at_a_time(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a;
    box_add(s, &a, "a:1", &gigabit);
    ru_sim_dev *d = ru_sim_dev_add(s, a.node, 2);
    order o = {s, {0}, 0};
    ru_sim_dev_work(d, 10 * MS, note, &o, 1); /* 5 ms at speed 2 */
    ru_sim_dev_work(d, 10 * MS, note, &o, 2);
    run_until(s, 1 + 5 * MS);
    assert_int_equal(o.n, 1);
    run_until(s, 10 * MS);
    assert_int_equal(o.n, 1);
    run_until(s, 1 + 10 * MS);
    assert_int_equal(o.n, 2);
    assert_false(ru_sim_dev_busy(d));
    ru_sim_dev_work(d, MS, note, &o, 3);
    ru_sim_dev_cancel(d);
    ru_sim_dev_work(d, MS, note, &o, 4);
    run_until(s, 100 * MS);
    assert_int_equal(o.n, 3);
    assert_int_equal(o.seen[2], 4);
    ru_sim_close(s);
}

/* Three devices of one core each on two cores, by hand: each runs at 2/3 while all three work. */
static void devices_share_cores(void **state)
{
    (void)state;
    ru_sim *s = sim_new(1);
    box a, b;
    box_add(s, &a, "a:1", &gigabit);
    box_add(s, &b, "b:1", &gigabit);
    ru_sim_cpu *cpu = ru_sim_cpu_add(s, 2);
    ru_sim_dev *d[4];
    order o = {s, {0}, 0};
    for (uint32_t k = 0; k < 4; k++) {
        d[k] = ru_sim_dev_add(s, k == 3 ? b.node : a.node, 1);
        ru_sim_dev_cores(d[k], cpu, 1);
    }
    ru_sim_dev_work(d[0], 4 * MS, note, &o, 1);
    ru_sim_dev_work(d[1], 10 * MS, note, &o, 2);
    run_until(s, 1 + 3 * MS);
    ru_sim_dev_work(d[2], 4 * MS, note, &o, 3); /* from 3 ms on three work */
    run_until(s, 4 * MS + 499999);
    assert_int_equal(o.n, 0);
    run_until(s, 4 * MS + 500010); /* 1 ms of d[0] was left: it took 1.5 ms */
    assert_int_equal(o.n, 1);
    run_until(s, 7 * MS + 499990); /* 3 ms of d[2] are left at 4.5 ms, now at full speed */
    assert_int_equal(o.n, 1);
    run_until(s, 7 * MS + 500010);
    assert_int_equal(o.n, 2);
    assert_int_equal(o.seen[1], 3);
    run_until(s, 10 * MS + 499990); /* d[1]: 3 + 1 + 3 ms by 7.5 ms */
    assert_int_equal(o.n, 2);
    run_until(s, 10 * MS + 500010);
    assert_int_equal(o.n, 3);
    /* A process that dies leaves its cores to the others. */
    ru_sim_dev_work(d[3], 1000 * MS, note, &o, 9);
    ru_sim_dev_work(d[0], 2 * MS, note, &o, 4);
    ru_sim_dev_work(d[1], 2 * MS, note, &o, 5);
    ru_sim_crash(s, b.node);
    run_until(s, 12 * MS + 500010 + 10);
    assert_int_equal(o.n, 5);
    ru_sim_close(s);
}

/* Two nodes of a host that share its wire get half of it each, out and in; others keep their own.
 */
static void nodes_of_a_host_share_its_wire(void **state)
{
    (void)state;
    uint64_t got[2][2][2];
    for (uint32_t shared = 0; shared < 2; shared++) {
        for (uint32_t out = 0; out < 2; out++) {
            ru_sim *s = sim_new(1);
            box one[2], other[2];
            for (uint32_t k = 0; k < 2; k++) {
                ru_sim_nic nic = {.bytes_per_s = 1e8, .delay_ns = MS, .host = 7};
                nic.shared = shared == 1;
                char address[] = "a0:1";
                address[1] = (char)('0' + k);
                box_add(s, &one[k], address, &nic);
                nic.host = 0;
                address[0] = 'b';
                box_add(s, &other[k], address, &nic);
            }
            for (uint32_t k = 0; k < 2; k++) {
                box_conn *c = out == 1 ? box_connect(&one[k], k == 0 ? "b0:1" : "b1:1", 0, 10000)
                                       : box_connect(&other[k], k == 0 ? "a0:1" : "a1:1", 0, 10000);
                c->left = 1000000;
            }
            run_until(s, 1003 * MS);
            for (uint32_t k = 0; k < 2; k++) {
                got[shared][out][k] = (out == 1 ? other : one)[k].c[0].next;
            }
            ru_sim_close(s);
        }
    }
    for (uint32_t out = 0; out < 2; out++) {
        for (uint32_t k = 0; k < 2; k++) { /* 10 KB frames on 100 MB/s */
            assert_in_range(got[0][out][k], 9800, 10050);
            assert_in_range(got[1][out][k], 4850, 5100);
        }
    }
}

/* Frames of every connection come in order and once, whatever happens; the same seed gives the
 * same events, another seed others. */
static uint64_t storm(uint64_t seed)
{
    enum { N = 5 };
    ru_sim *s = sim_new(seed);
    static box b[N];
    char address[] = "n0:1";
    for (uint32_t k = 0; k < N; k++) {
        address[1] = (char)('0' + k);
        box_add(s, &b[k], address, &gigabit);
    }
    for (uint32_t k = 0; k < N; k++) {
        address[1] = (char)('0' + (k + 1) % N);
        box_connect(&b[k], address, 2000, 60000);
        box_connect(&b[k], address, 20000, 100);
    }
    ru_sim_chaos_start(s, &(ru_sim_chaos){.crash_per_s = 0.5,
                                          .vanish_per_s = 0.2,
                                          .freeze_per_s = 5,
                                          .cut_per_s = 5,
                                          .slow_per_s = 5,
                                          .half_open_per_s = 0.5,
                                          .jitter_ns = MS,
                                          .keep_alive = 2,
                                          .until = {3000 * MS}});
    run_until(s, 20000 * MS);
    for (uint32_t k = 0; k < N; k++) {
        assert_false(b[k].out_of_order);
    }
    uint64_t hash = ru_sim_hash(s);
    ru_sim_close(s);
    return hash;
}

static void equal_seeds_give_equal_events(void **state)
{
    (void)state;
    uint64_t first = storm(ru_test_seed());
    assert_true(storm(ru_test_seed()) == first);
    for (uint64_t k = 1; k < 20; k++) {
        assert_true(storm(ru_test_seed() + k) != first);
    }
}

static void the_kth_operation_fails(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_conn_id id;
    for (int64_t k = 1; k < 5; k++) {
        ru_sim *s = sim_new(1);
        box a, b;
        box_add(s, &a, "a:1", &gigabit);
        box_add(s, &b, "b:1", &gigabit);
        ru_sim_chaos_start(s, &(ru_sim_chaos){.fail_operation = k});
        if (k == 1) {
            assert_int_equal(a.link.ops->connect(a.link.self, "b:1", RU_LINK_BULK, &id, &err),
                             RU_E_LIMIT);
        } else {
            box_conn *c = box_connect(&a, "b:1", 10, 10);
            run_until(s, 100 * MS);
            assert_int_equal(c->why, RU_E_IO);
            assert_int_equal(b.c[0].why, RU_E_IO);
            assert_int_equal(b.c[0].next, k - 2);
        }
        ru_sim_close(s);
    }
}

RU_TESTS(sim_sim, cmocka_unit_test(events_come_in_order_of_time_then_of_asking),
         cmocka_unit_test(many_random_events_are_sorted_and_cancelled_ones_never_happen),
         cmocka_unit_test(a_fed_trace_needs_no_heap_and_no_node),
         cmocka_unit_test(invariants_and_bounds_end_a_run),
         cmocka_unit_test(a_frame_takes_size_over_rate_plus_delay),
         cmocka_unit_test(connections_of_one_node_take_turns),
         cmocka_unit_test(senders_to_one_node_share_its_interface),
         cmocka_unit_test(nodes_of_one_host_do_not_use_the_wire),
         cmocka_unit_test(payloads_are_copied_when_they_leave),
         cmocka_unit_test(payloads_may_come_in_halves),
         cmocka_unit_test(a_pausing_receiver_stops_the_sender_until_it_resumes),
         cmocka_unit_test(pacing_and_windows_bound_the_rate),
         cmocka_unit_test(connecting_to_nobody_is_refused_and_closing_is_heard),
         cmocka_unit_test(a_refused_frame_ends_the_connection_at_both),
         cmocka_unit_test(what_the_link_still_reads_is_known),
         cmocka_unit_test(a_crash_is_heard_and_a_lost_machine_is_not),
         cmocka_unit_test(a_cut_delays_and_a_freeze_keeps_the_order),
         cmocka_unit_test(a_long_cut_and_a_half_open_connection_end_at_the_sender_alone),
         cmocka_unit_test(devices_do_one_thing_at_a_time), cmocka_unit_test(devices_share_cores),
         cmocka_unit_test(nodes_of_a_host_share_its_wire),
         cmocka_unit_test(equal_seeds_give_equal_events), cmocka_unit_test(the_kth_operation_fails))
