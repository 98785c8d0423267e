/* A process that stands still (stopped, starved, its machine asleep) for longer than the others
 * wait for anybody: they may have gone on without it, and have ended since. */
#include <stdio.h>

#include "comm/member/member_impl.h"
#include "lab/worlds/member_world.h"
#include "test/test.h"

static const int64_t ms = 1000000;

static void must(world *w, bool ok)
{
    if (!ok || world_breach(w) != NULL) {
        fail_msg("%s", world_breach(w));
    }
}

static world *job(uint64_t seed, uint32_t n, uint64_t no_vote)
{
    char why[200];
    world *w =
        world_new(&(world_options){.seed = seed, .nodes = n, .refused = true, .no_vote = no_vote});
    world_start(w, 0, -1);
    for (uint32_t i = 1; i < n; i++) {
        world_start(w, i, 0);
    }
    must(w, world_run_ms(w, 2000));
    if (!world_settled(w, why, sizeof why)) {
        fail_msg("%s", why);
    }
    return w;
}

/* Who sleeps, while the others go on without it, end their job and are gone. `lost`: what was on
 * its way to it, the word that it is no member among it, is lost with the connections. */
static void sleep_past_the_end(world *w, uint32_t who, uint32_t n, bool lost)
{
    const ru_time late = ru_time_after(world_now(w), 6100 * ms);
    world_freeze(w, who, 6000 * ms);
    for (uint32_t i = 0; i < n && lost; i++) {
        if (i != who) {
            world_cut(w, i, who, late); /* what is said to it now would arrive after it woke */
        }
    }
    must(w, world_run_ms(w, 4000));
    for (uint32_t i = 0; i < n; i++) {
        if (i != who) {
            if (lost) {
                world_reset(w, i, who);
            }
            world_kill(w, i);
        }
    }
    must(w, world_run_ms(w, 12000));
}

static void who_slept_past_the_end_leads_nobody(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 40; k++) {
        const uint32_t n = 2 + k % 4;
        const uint32_t who = k / 4 % n;
        if (n == 2 && who == 0) {
            continue; /* half with the oldest: the other one could decide nothing */
        }
        world *w = job(k, n, 0);
        const uint32_t leads = world_at(w, who)->n_leads;
        sleep_past_the_end(w, who, n, k % 2 == 0);
        const world_node *x = world_at(w, who);
        if (x->n_leads != leads || !x->out) {
            fail_msg("%u members: process %u led %u times, then %u times; out: %d", n, who, leads,
                     x->n_leads, x->out ? 1 : 0);
        }
        world_free(w);
    }
}

/* The only voter leaves. Who sleeps then gets a vote like the others, which go on without it. */
static void who_got_its_vote_asleep_leads_nobody(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 24; k++) {
        const uint32_t n = 4 + k % 3, who = 1 + k / 3 % (n - 1);
        world *w = job(k, n, UINT64_MAX << 1);
        const uint32_t views = world_at(w, who)->n_views;
        world_freeze(w, who, 6000 * ms);
        world_leave(w, 0);
        must(w, world_run_ms(w, 100));
        sleep_past_the_end(w, who, n, true);
        const world_node *x = world_at(w, who);
        if (!x->voter || x->n_views != views + 1 || !x->out) {
            fail_msg("%u members: process %u has a vote: %d; %u views in force, then %u; out: %d",
                     n, who, x->voter ? 1 : 0, views, x->n_views, x->out ? 1 : 0);
        }
        world_free(w);
    }
}

/* So does a process that joins and is in a view before it wakes. */
static void who_joined_asleep_leads_nobody(void **state)
{
    (void)state;
    enum { WHO = 3, N = 4 };
    uint32_t asleep = 0;
    for (uint32_t k = 0; k < 32; k++) {
        world *w = world_new(
            &(world_options){.seed = k, .nodes = N, .refused = true, .owner_delay_ns = 50 * ms});
        for (uint32_t i = 0; i < WHO; i++) {
            world_start(w, i, i == 0 ? -1 : 0);
        }
        must(w, world_run_ms(w, 2000));
        world_start(w, WHO, 0);
        must(w, world_run_ms(w, 10 + k % 16 * 4));
        const world_node *x = world_at(w, WHO);
        const bool in = x->n_views > 0;
        world_freeze(w, WHO, 6000 * ms);
        must(w, world_run_ms(w, 100));
        if (!in && ru_member_view(world_at(w, 0)->m)->n == N) {
            asleep++;
            sleep_past_the_end(w, WHO, N, true);
            assert_true(x->out);
            assert_int_equal(x->n_views, 1);
        }
        world_free(w);
    }
    assert_true(asleep >= 4);
}

/* The leader was killed. Process 3 reaches three of the others, but not the next leader, which goes
 * on with the promises of those three. While process 3 stands still for less than the others wait
 * for anybody, they put a view in force and are gone again. false: they had no time to. */
static bool replaced_while_in_touch(uint64_t seed, int64_t at_ms, int64_t for_ms)
{
    enum { WHO = 3, N = 7 };
    world *w = job(seed, N, 0);
    const ru_time late = ru_time_after(world_now(w), 5000 * ms);
    const uint32_t views = world_at(w, WHO)->n_views;
    for (uint32_t i = 1; i < 3; i++) {
        world_cut(w, i, WHO, late);
    }
    world_kill(w, 0);
    must(w, world_run_ms(w, at_ms));
    world_freeze(w, WHO, for_ms * ms);
    must(w, world_run_ms(w, for_ms - 10));
    const ru_view *v = ru_member_view(world_at(w, 1)->m);
    bool replaced = v->n < N;
    for (uint32_t i = 0; i < v->n; i++) {
        replaced = replaced && !ru_node_is(v->at[i].node, world_id(WHO));
    }
    for (uint32_t i = 1; i < N; i++) {
        if (i != WHO) {
            world_reset(w, i, WHO);
            world_kill(w, i);
        }
    }
    must(w, world_run_ms(w, 12000));
    const world_node *x = world_at(w, WHO);
    if (replaced && (x->n_views != views || !x->out)) {
        fail_msg("seed %d, suspended after %d ms for %d ms: %u views in force, then %u; out: %d",
                 (int)seed, (int)at_ms, (int)for_ms, views, x->n_views, x->out ? 1 : 0);
    }
    world_free(w);
    return replaced;
}

static void who_was_replaced_while_in_touch_does_not_go_on(void **state)
{
    (void)state;
    uint32_t replaced = 0;
    for (uint32_t k = 0; k < 32; k++) {
        replaced += replaced_while_in_touch(k, 300 + 20 * (k % 4), 100 + 80 * (k / 4 % 3));
    }
    assert_true(replaced >= 8);
}

/* Two members, and the oldest stood still: nobody can have decided without it. It goes on, also
 * when the other one is gone meanwhile. */
static void who_cannot_have_been_replaced_goes_on(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 8; k++) {
        world *w = job(k, 2, 0);
        if (k % 2 == 0) {
            world_freeze(w, 0, 3000 * ms);
            must(w, world_run_ms(w, 1000));
            world_kill(w, 1);
            must(w, world_run_ms(w, 4000));
        } else {
            sleep_past_the_end(w, 0, 2, true);
        }
        assert_false(world_at(w, 0)->out);
        assert_true(ru_member_leads(world_at(w, 0)->m));
        assert_int_equal(ru_member_view(world_at(w, 0)->m)->n, 1);
        world_free(w);
    }
}

/* All stand still at once, as on one machine that stops, and go on together. */
static void all_that_slept_together_go_on_together(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 12; k++) {
        const uint32_t n = 2 + k % 4;
        char why[200];
        world *w = job(k, n, 0);
        for (uint32_t i = 0; i < n; i++) {
            world_freeze(w, i, 3000 * ms);
        }
        must(w, world_run_ms(w, 6000));
        if (!world_settled(w, why, sizeof why)) {
            fail_msg("%u members: %s", n, why);
        }
        assert_int_equal(ru_member_view(world_at(w, 0)->m)->n, n);
        world_free(w);
    }
}

/* In touch again for long enough, it is as sure as before. */
static void who_is_in_touch_again_is_sure_again(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        world *w = job(k, 2, 0);
        world_freeze(w, 1, 650 * ms); /* the others wait for longer */
        must(w, world_run_ms(w, 3500));
        assert_int_equal(ru_member_view(world_at(w, 1)->m)->n, 2);
        world_kill(w, 0);
        must(w, world_run_ms(w, 3000));
        assert_true(ru_member_leads(world_at(w, 1)->m));
        world_free(w);
    }
}

/* The first view has all founders and comes into force before the first beat: nobody was suspended,
 * so the founder keeps its lead. */
static void who_has_just_begun_was_not_suspended(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 12; k++) {
        const uint32_t n = 3 + k % 6;
        world *w = world_new(
            &(world_options){.seed = k, .nodes = n, .refused = true, .hold_installs = true});
        world_start(w, 0, -1);
        for (uint32_t i = 1; i < n; i++) {
            world_start(w, i, 0);
        }
        must(w, world_run_ms(w, 20));
        world_install(w, 0);
        must(w, world_run_ms(w, 2000));
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(world_at(w, i)->n_leads, i == 0);
            assert_int_equal(ru_member_view(world_at(w, i)->m)->n, n);
            assert_int_equal(ru_member_view(world_at(w, i)->m)->epoch, 1);
        }
        world_free(w);
    }
}

/* -- one member and its leader, by themselves ----------------------------------------------------
 */

typedef struct one {
    ru_arena arena, said; /* of the member, and of its effects */
    ru_effects fx;
    ru_member *m;
    ru_time unacked; /* what the channel says of the leader */
} one;

static ru_time one_unacked(void *self, ru_node_id node)
{
    (void)node;
    return ((one *)self)->unacked;
}

static void one_open(one *o)
{
    ru_err err;
    *o = (one){0};
    ru_arena_init(&o->arena, 0);
    ru_arena_init(&o->said, 0);
    ru_effects_init(&o->fx, &o->said);
    const ru_member_options opt = {.self = {.node = {2}, .number = 2, .address = "h:2"},
                                   .join = "h:1",
                                   .n_max = 4,
                                   .unacked = one_unacked,
                                   .unacked_self = o};
    assert_ok(ru_member_open(&opt, &o->arena, &o->m, &err), err);
    ru_member *m = o->m;
    m->infos[0] = (ru_member_info){.node = {1}, .number = 1, .address = "h:1"};
    m->infos[1] = opt.self;
    m->view.epoch = 1;
    m->view.n = 2;
    m->view.leader = m->lead = (ru_node_id){1};
    rui_m_ranks_build(m);
    m->phase = RUI_FOLLOWS;
    rui_m_peer_make(m, m->lead)->up = true;
}

static void one_step(one *o, int64_t at_ms, ru_event ev)
{
    ev.now.ns = at_ms * ms;
    ru_member_step(o->m, &ev, &o->fx);
    ru_effects_clear(&o->fx);
}

/* The leader's beat, with the acknowledgement of all that was sent before `unacked_ms` (0: all). */
static void one_beat(one *o, int64_t at_ms, int64_t unacked_ms)
{
    uint8_t buf[RUI_SMALL_MAX];
    const rui_m_beat b = {.flags = RUI_B_LEADS, .epoch = 1, .accepted = 1};
    o->unacked.ns = unacked_ms * ms;
    one_step(o, at_ms,
             (ru_event){.kind = RU_EV_MESSAGE,
                        .node = {1},
                        .what = RUI_M_BEAT,
                        .data = buf,
                        .size_bytes = rui_m_put_beat(buf, sizeof buf, &b)});
}

/* It stands still for 0.4 s, finds the leader's beats of that time, and sends its own. `arrive`:
 * the leader gets them; else it has heard nothing for 0.78 s when it is gone. */
static bool sure_after_pause(bool arrive)
{
    one o;
    one_open(&o);
    for (int64_t at = 1000; at <= 2000; at += 50) {
        one_step(&o, at, (ru_event){.kind = RU_EV_TIMER, .what = RUI_M_TICK});
        one_beat(&o, at + 25, 0);
    }
    one_step(&o, 2400, (ru_event){.kind = RU_EV_TIMER, .what = RUI_M_TICK});
    one_beat(&o, 2400, 2400);
    for (int64_t at = 2450; at <= 2750; at += 50) {
        one_step(&o, at, (ru_event){.kind = RU_EV_TIMER, .what = RUI_M_TICK});
        if (arrive) {
            one_beat(&o, at + 25, 0);
        }
    }
    one_step(&o, 2780, (ru_event){.kind = RU_EV_DOWN, .node = {1}, .value = RU_E_PEER});
    const bool sure = o.m->sure;
    assert_int_equal(o.m->phase, RUI_SEEKS);
    ru_arena_fini(&o.said);
    ru_arena_fini(&o.arena);
    return sure;
}

static void who_was_not_heard_after_a_pause_is_not_sure(void **state)
{
    (void)state;
    assert_true(sure_after_pause(true));
    assert_false(sure_after_pause(false));
}

RU_TESTS(comm_member_still, cmocka_unit_test(who_was_not_heard_after_a_pause_is_not_sure),
         cmocka_unit_test(who_has_just_begun_was_not_suspended),
         cmocka_unit_test(who_slept_past_the_end_leads_nobody),
         cmocka_unit_test(who_got_its_vote_asleep_leads_nobody),
         cmocka_unit_test(who_joined_asleep_leads_nobody),
         cmocka_unit_test(who_was_replaced_while_in_touch_does_not_go_on),
         cmocka_unit_test(who_cannot_have_been_replaced_goes_on),
         cmocka_unit_test(all_that_slept_together_go_on_together),
         cmocka_unit_test(who_is_in_touch_again_is_sure_again))
