/* Copies of views on their way: none twice, no more than the window, and what nobody will
 * acknowledge any more makes room. */
#include <stddef.h>

#include "comm/member/member_impl.h"
#include "lab/worlds/member_world.h"
#include "test/test.h"

static const int64_t ms = 1000000;

/* -- the window, by itself -----------------------------------------------------------------------
 */

typedef struct one { /* a member and its peers 2 and 3 */
    ru_arena arena;
    ru_member *m;
    rui_m_peer *a, *b;
    ru_time unacked; /* what the channel says of peer 2 */
} one;

static ru_time unacked(void *self, ru_node_id node)
{
    const one *o = self;
    return node.v == 2 ? o->unacked : (ru_time){0};
}

static void open_one(one *o, bool channel)
{
    ru_err err;
    *o = (one){0};
    ru_arena_init(&o->arena, 0);
    const ru_member_options opt = {.self = {.node = {1}, .address = "h:1"},
                                   .n_max = 4,
                                   .unacked = channel ? unacked : NULL,
                                   .unacked_self = o};
    assert_ok(ru_member_open(&opt, &o->arena, &o->m, &err), err);
    o->m->now.ns = 1000 * ms;
    o->a = rui_m_peer_make(o->m, (ru_node_id){2});
    o->b = rui_m_peer_make(o->m, (ru_node_id){3});
}

static void pass(one *o, int64_t for_ms)
{
    o->m->now = ru_time_after(o->m->now, for_ms * ms);
    o->a->heard = o->b->heard = o->m->now;
}

/* As long as the receiver's channel has not acknowledged a message as old as the copy, the copy is
 * under way; then the receiver did not take it. */
static void test_no_second_copy_while_one_is_under_way(void **state)
{
    (void)state;
    enum { BYTES = 1000 };
    for (int channel = 0; channel < 2; channel++) {
        one o;
        open_one(&o, channel != 0);
        assert_true(rui_m_pace_again(o.m, o.a, BYTES)); /* none was sent */
        o.unacked = o.m->now;
        rui_m_pace_sent(o.m, o.a, 1, BYTES);
        pass(&o, 150);
        assert_false(rui_m_pace_again(o.m, o.a, BYTES));
        assert_int_equal(o.m->pace.flight_bytes, BYTES);
        pass(&o, 150);
        assert_true(rui_m_pace_again(o.m, o.a, BYTES) == (channel == 0));
        assert_int_equal(o.m->pace.flight_bytes, channel != 0 ? BYTES : 0);
        pass(&o, 60000);
        assert_true(rui_m_pace_again(o.m, o.a, BYTES) == (channel == 0));
        o.unacked.ns = o.m->now.ns - 10 * ms; /* only what was sent later waits */
        assert_true(rui_m_pace_again(o.m, o.a, BYTES));
        assert_int_equal(o.m->pace.flight_bytes, 0);
        ru_arena_fini(&o.arena);
    }
}

/* A copy that is there within 200 ms adds its bytes to the window, a later one takes them from it;
 * 64 KiB and 64 MiB bound it. */
static void test_the_window_follows_the_delay(void **state)
{
    (void)state;
    enum { KB = 1 << 10, LEAST = 64 * KB, MOST = 64 << 20 };
    one o;
    open_one(&o, true);
    static const struct {
        int64_t bytes, after_ms, window;
    } steps[] = {
        {40 * KB, 200, LEAST + 40 * KB},
        {30 * KB, 10, LEAST + 70 * KB},
        {50 * KB, 201, LEAST + 20 * KB},
        {60 * KB, 900, LEAST},
        {60 * KB, 900, LEAST},
        {MOST, 0, MOST},
        {MOST, 0, MOST},
        {1 * KB, 201, MOST - 1 * KB},
    };
    assert_true(rui_m_pace_fits(o.m, MOST)); /* one alone always has room */
    for (uint32_t k = 0; k < RU_ARRAY_LEN(steps); k++) {
        rui_m_pace_sent(o.m, o.a, k + 1, steps[k].bytes);
        pass(&o, steps[k].after_ms);
        rui_m_pace_there(o.m, o.a, k); /* that is the one before */
        assert_int_equal(o.m->pace.flight_bytes, steps[k].bytes);
        rui_m_pace_there(o.m, o.a, k + 1);
        assert_int_equal(o.m->pace.flight_bytes, 0);
        rui_m_pace_sent(o.m, o.b, k + 1, 1);
        assert_true(rui_m_pace_fits(o.m, steps[k].window - 1));
        assert_false(rui_m_pace_fits(o.m, steps[k].window));
        rui_m_pace_over(o.m, o.b);
    }
    ru_arena_fini(&o.arena);
}

/* Nobody waits for a copy to one that may be gone. */
static void test_a_copy_to_a_silent_one_takes_no_room(void **state)
{
    (void)state;
    one o;
    open_one(&o, true);
    o.m->now = ru_time_after(o.m->now, RU_MEMBER_SUSPECT_NS);
    rui_m_pace_sent(o.m, o.a, 1, 1 << 20);
    assert_int_equal(o.m->pace.flight_bytes, 0);
    ru_arena_fini(&o.arena);
}

/* -- among members -------------------------------------------------------------------------------
 */

static void must(world *w, bool ok)
{
    if (!ok || world_breach(w) != NULL) {
        fail_msg("%s", world_breach(w));
    }
}

/* Two copies of a view do not fit into the least window. */
static world *job(uint32_t n)
{
    char why[200];
    world *w = world_new(&(world_options){
        .seed = n, .nodes = n, .hold_installs = true, .blob_more = RU_MEMBER_BLOB_MAX - 8});
    world_start(w, 0, -1);
    for (uint32_t i = 1; i < n; i++) {
        world_start(w, i, 0);
    }
    must(w, world_run_ms(w, 500));
    world_install(w, 0);
    must(w, world_run_ms(w, 500));
    if (!world_settled(w, why, sizeof why)) {
        fail_msg("%s", why);
    }
    ru_member *m = world_at(w, 0)->m;
    assert_int_equal(m->pace.flight_bytes, 0);
    m->pace.window_bytes = 0;
    return w;
}

static uint32_t under_way(const ru_member *m)
{
    uint32_t n = 0;
    for (const rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        n += p->copy_bytes > 0;
    }
    return n;
}

/* One copy at first; each acceptance makes room for two more. No tick is needed: between two of
 * them all have it. */
static void test_the_others_follow_on_acceptances(void **state)
{
    (void)state;
    enum { N = 8 };
    world *w = job(N);
    const ru_member *m = world_at(w, 0)->m;
    const uint32_t epoch = m->view.epoch + 1;
    must(w, world_run(w, ru_time_after(m->timer_at, ms)));
    world_install(w, 0);
    assert_int_equal(under_way(m), 1);
    while (m->timer_at.ns - world_now(w).ns > 2 * ms) {
        must(w, world_run(w, ru_time_after(world_now(w), ms / 4)));
        assert_true(m->pace.flight_bytes <= m->pace.window_bytes || under_way(m) <= 1);
    }
    for (const rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        assert_int_equal(p->accepted, epoch);
    }
    assert_int_equal(m->view.epoch, epoch);
    assert_int_equal(m->pace.flight_bytes, 0);
    world_free(w);
}

/* Process 1 leads; process 0 hears it first by a proposal, or by a view that is in force. */
static void take_over(world *w, bool in_force)
{
    world_node *x = world_at(w, 1);
    ru_member *m = x->m;
    const uint32_t epoch = m->view.epoch + 2;
    m->phase = RUI_LEADS;
    if (in_force) {
        rui_m_peer *p = rui_m_peer_find(m, world_id(0));
        m->view.epoch = epoch;
        m->view.leader = world_id(1);
        p->told_at.ns = 0;
        rui_m_view_tell(m, p, &x->fx);
        return;
    }
    for (m->next.n = 0; m->next.n < m->view.n; m->next.n++) {
        m->next.at[m->next.n] = m->view.at[m->next.n];
    }
    rui_m_propose(m, epoch, world_id(1), NULL, 0, &x->fx);
}

typedef enum end_of { DOWN, SILENT, DEAD, SOUGHT, FOLLOWED, REPLACED, ENDS } end_of;

static void ends(world *w, end_of how)
{
    ru_member *m = world_at(w, 0)->m;
    switch (how) {
    case DOWN:
        world_half_open(w, 2, 0);
        break;
    case SILENT:
        must(w, world_run_ms(w, 400));
        break;
    case DEAD:
        world_suspect(w, 0, 2, true);
        must(w, world_run_ms(w, 180));
        break;
    case SOUGHT:
        rui_m_seek_start(m, &world_at(w, 0)->fx, "a test");
        break;
    case FOLLOWED:
    case REPLACED:
        take_over(w, how == REPLACED);
        break;
    case ENDS:
        break;
    }
    must(w, world_run_ms(w, 80));
}

/* A copy is under way to one that is cut off: when its connection breaks, when it is silent, when
 * it counts as dead, and when this process does not lead any more, nothing is in flight. */
static void test_nothing_stays_in_flight(void **state)
{
    (void)state;
    for (end_of how = 0; how < ENDS; how++) {
        world *w = job(4);
        const ru_member *m = world_at(w, 0)->m;
        const rui_m_peer *p = rui_m_peer_find(m, world_id(2));
        must(w, world_run(w, ru_time_after(p->heard, 2 * ms)));
        world_cut(w, 0, 2, ru_time_after(world_now(w), 60000 * ms));
        world_install(w, 0);
        must(w, world_run_ms(w, 40));
        assert_int_equal(under_way(m), 1);
        assert_true(p->copy_bytes > RU_MEMBER_BLOB_MAX);
        assert_int_equal(m->pace.flight_bytes, p->copy_bytes);
        ends(w, how);
        assert_int_equal(m->pace.flight_bytes, 0);
        assert_true(p->up == (how != DOWN));
        assert_true(p->named == (how == SILENT) && p->dead == (how == DEAD));
        assert_true((m->phase == RUI_LEADS) == (how < SOUGHT));
        assert_true((m->phase == RUI_FOLLOWS) == (how > SOUGHT));
        world_free(w);
    }
}

RU_TESTS(comm_member_pace, cmocka_unit_test(test_no_second_copy_while_one_is_under_way),
         cmocka_unit_test(test_the_window_follows_the_delay),
         cmocka_unit_test(test_a_copy_to_a_silent_one_takes_no_room),
         cmocka_unit_test(test_the_others_follow_on_acceptances),
         cmocka_unit_test(test_nothing_stays_in_flight))
