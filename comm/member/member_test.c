/* Membership in a small simulator (lab/worlds/member_world.h): seeded delays, order per pair kept,
 * processes that are killed, hosts that vanish, freezes, cuts, half-open connections; virtual time.
 * What must always hold is checked after every event; a failing seed says how to run it again. */
#include "comm/member/member.h"

#include <stdio.h>
#include <string.h>

#include "comm/member/member_impl.h"
#include "test/many.h"
#include "test/test.h"
#include "test/wire/member_chaos.h"

static const int64_t ms = 1000000;

static void must(world *w, bool ok)
{
    if (!ok || world_breach(w) != NULL) {
        fail_msg("%s", world_breach(w));
    }
}

static void must_settle(world *w)
{
    char why[200];
    if (!world_settled(w, why, sizeof why)) {
        fail_msg("at %.3f s: %s", (double)world_now(w).ns / 1e9, why);
    }
}

/* n processes, the first founds, the others join by random earlier ones; settled. */
static world *job(const world_options *o, uint32_t n)
{
    world *w = world_new(o);
    world_start(w, 0, -1);
    for (uint32_t i = 1; i < n; i++) {
        world_start(w, i, (int32_t)ru_rng_below(world_rng(w), i));
    }
    must(w, world_run_ms(w, 2000));
    must_settle(w);
    return w;
}

static void test_found_and_join(void **state)
{
    (void)state;
    world *w = job(&(world_options){.seed = 1, .nodes = 8}, 8);
    const ru_view *v = ru_member_view(world_at(w, 0)->m);
    assert_int_equal(v->n, 8);
    assert_int_equal(v->at[0].number, 1);
    assert_int_equal(v->leader.v, world_id(0).v);
    for (uint32_t i = 0; i < 8; i++) {
        const ru_view *u = ru_member_view(world_at(w, i)->m);
        assert_int_equal(u->epoch, v->epoch);
        assert_int_equal(((const uint32_t *)u->blob)[0], 8);
        assert_true(ru_member_silent_ns(world_at(w, 0)->m, world_id(i), world_now(w)) < 200 * ms);
    }
    world_free(w);
}

/* A proposal beside another one is refused, and the leader is asked again when it can make one. */
static void test_an_install_tells_whether_it_proposes(void **state)
{
    (void)state;
    world *w = job(&(world_options){.seed = 4, .nodes = 4}, 4);
    uint32_t epoch = ru_member_view(world_at(w, 0)->m)->epoch;
    assert_true(world_install(w, 0));
    assert_false(world_install(w, 0)); /* the first one waits for the others */
    assert_false(world_at(w, 0)->asked);
    must(w, world_run_ms(w, 500));
    assert_int_equal(ru_member_view(world_at(w, 0)->m)->epoch, epoch + 1);
    assert_true(world_install(w, 0));
    must(w, world_run_ms(w, 500));
    ru_effects fx = {0};
    ru_arena a;
    ru_arena_init(&a, 0);
    const ru_node_id one = world_id(1);
    ru_effects_init(&fx, &a);
    assert_false(ru_member_install(world_at(w, 1)->m, &one, 1, "", 0, world_now(w), &fx));
    ru_arena_fini(&a);
    world_free(w);
}

/* Who is not among those that begin waits for the first view, even if it comes before them. */
static void test_later_ones_wait_for_the_first_view(void **state)
{
    (void)state;
    world *w = world_new(&(world_options){
        .seed = 6, .nodes = 3, .hold_installs = true, .wish = {1, RU_MEMBER_LATER, 2}});
    ru_member_wanted wanted;
    world_start(w, 0, -1);
    must(w, world_run_ms(w, 100));
    world_start(w, 1, 0);
    must(w, world_run_ms(w, 300));
    ru_member_wanted_get(world_at(w, 0)->m, &wanted);
    assert_int_equal(wanted.n, 1);
    world_start(w, 2, 0);
    must(w, world_run_ms(w, 300));
    ru_member_wanted_get(world_at(w, 0)->m, &wanted);
    assert_int_equal(wanted.n, 2);
    assert_int_equal(wanted.at[1].node.v, world_id(2).v);
    world_install(w, 0);
    must(w, world_run_ms(w, 300));
    ru_member_wanted_get(world_at(w, 0)->m, &wanted);
    assert_int_equal(wanted.n, 3);
    assert_int_equal(wanted.at[2].number, 3);
    world_free(w);
    /* The owner is told of it after the first view. */
    w = world_new(&(world_options){.seed = 7, .nodes = 2, .wish = {1, RU_MEMBER_LATER}});
    world_start(w, 0, -1);
    world_start(w, 1, 0);
    must(w, world_run_ms(w, 1000));
    must_settle(w);
    assert_int_equal(ru_member_view(world_at(w, 1)->m)->n, 2);
    world_free(w);
}

/* Who begins together is numbered as it was started, however it arrives; who comes later, or wishes
 * nothing, by arrival. */
static void test_founders_keep_their_numbers(void **state)
{
    (void)state;
    world *w = world_new(
        &(world_options){.seed = 5, .nodes = 6, .hold_installs = true, .wish = {1, 4, 2, 0, 3, 1}});
    world_start(w, 0, -1);
    must(w, world_run_ms(w, 100));
    for (uint32_t i = 1; i < 5; i++) {
        world_start(w, i, 0);
        must(w, world_run_ms(w, 100));
    }
    world_install(w, 0);
    must(w, world_run_ms(w, 300));
    world_start(w, 5, 0); /* 1 is another's: it gets the next */
    must(w, world_run_ms(w, 300));
    world_install(w, 0);
    must(w, world_run_ms(w, 300));
    static const uint32_t nodes[] = {0, 2, 4, 1, 3, 5};
    const ru_view *v = ru_member_view(world_at(w, 1)->m);
    assert_int_equal(v->n, 6);
    for (uint32_t k = 0; k < 6; k++) {
        assert_int_equal(v->at[k].node.v, world_id(nodes[k]).v);
        assert_int_equal(v->at[k].number, k + 1);
    }
    world_free(w);
}

static void part(world *w, const uint32_t pair[2], int64_t for_ms)
{
    world_cut(w, pair[0], pair[1], (ru_time){world_now(w).ns + for_ms * ms});
    world_half_open(w, pair[0], pair[1]);
    world_half_open(w, pair[1], pair[0]);
}

/* Members that both reach their leader but not each other: who is named most has to go, of equals
 * the youngest. A short while is nobody's end. */
static void test_pairs_that_do_not_reach_each_other(void **state)
{
    (void)state;
    enum { N = 6 };
    static const struct {
        uint32_t pairs[2][2];
        int64_t for_ms;
        uint32_t out; /* 0: nobody */
    } cases[] = {{{{2, 4}}, 200, 0},
                 {{{2, 4}}, 5000, 4},
                 {{{4, 2}}, 5000, 4},
                 {{{4, 1}, {5, 1}}, 5000, 1},
                 {{{3, 1}, {3, 5}}, 5000, 3}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        world *w = world_new(&(world_options){.seed = 4, .nodes = N});
        world_start(w, 0, -1);
        for (uint32_t i = 1; i < N; i++) { /* one by one: so they are ranked */
            must(w, world_run_ms(w, 300));
            world_start(w, i, 0);
        }
        must(w, world_run_ms(w, 1000));
        must_settle(w);
        for (uint32_t i = 0; i < 2 && cases[k].pairs[i][0] != 0; i++) {
            part(w, cases[k].pairs[i], cases[k].for_ms);
        }
        must(w, world_run_ms(w, 3000));
        for (uint32_t i = 0; i < N; i++) {
            assert_true(world_at(w, i)->out == (i > 0 && i == cases[k].out));
        }
        assert_int_equal(ru_member_view(world_at(w, 0)->m)->n, cases[k].out == 0 ? N : N - 1);
        world_free(w);
    }
}

/* A job that takes no more: who comes waits, for as long as it takes, and is in when somebody
 * goes. */
static void test_a_full_job(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 2; n++) {
        world *w = world_new(&(world_options){.seed = n, .nodes = 3, .n_max = n});
        for (uint32_t i = 0; i < 3; i++) {
            world_start(w, i, i == 0 ? -1 : 0);
            must(w, world_run_ms(w, 1000));
        }
        must(w, world_run_ms(w, 60000));
        const ru_view *v = ru_member_view(world_at(w, 0)->m);
        assert_int_equal(v->n, n);
        for (uint32_t i = 0; i < 3; i++) {
            assert_false(world_at(w, i)->out);
        }
        if (n == 2) {
            part(w, (const uint32_t[]){1, 2}, 500); /* not ready for a while: nobody's end either */
            must(w, world_run_ms(w, 1000));
            assert_false(world_at(w, 2)->out);
            world_kill(w, 1);
            must(w, world_run_ms(w, 1000));
            assert_int_equal(v->n, 2);
            assert_int_equal(v->at[1].node.v, world_id(2).v);
        }
        world_free(w);
    }
}

static void test_death_is_quick(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 4; victim++) {
        for (int silently = 0; silently < 2; silently++) {
            world *w = job(&(world_options){.seed = victim + 1, .nodes = 4}, 4);
            ru_time t = world_now(w);
            (silently ? world_vanish : world_kill)(w, victim);
            must(w, world_run_ms(w, silently ? 1000 : 100));
            must_settle(w);
            uint32_t n;
            const world_view *v = world_views(w, &n);
            assert_true(v[n - 1].at.ns - t.ns < (silently ? 1000 * ms : 100 * ms));
            world_free(w);
        }
    }
}

static void test_leave(void **state)
{
    (void)state;
    for (uint32_t who = 0; who < 3; who++) {
        world *w = job(&(world_options){.seed = 3, .nodes = 4}, 3);
        world_leave(w, who);
        must(w, world_run_ms(w, 1000));
        assert_true(world_at(w, who)->out);
        assert_string_equal(world_at(w, who)->why, "it left");
        must_settle(w);
        world_start(w, 3, (int32_t)(who + 1) % 3);
        must(w, world_run_ms(w, 1000));
        must_settle(w);
        int32_t lead = world_leader(w);
        const ru_view *v = ru_member_view(world_at(w, (uint32_t)lead)->m);
        assert_int_equal(v->at[2].number, 4);
        world_free(w);
    }
}

/* What a member says of itself reaches the leader, which tells its owner once for each change; who
 * takes over knows it as well. */
static void test_statuses(void **state)
{
    (void)state;
    world *w = job(&(world_options){.seed = 4, .nodes = 4}, 4);
    static const char *const says[] = {"one", "one", "two", ""};
    static const uint32_t told[] = {1, 1, 2, 3};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(says); k++) {
        world_node *x = world_at(w, 2);
        int64_t n = (int64_t)strlen(says[k]), have = -1;
        ru_member_status_set(x->m, says[k], n, k % 2 == 0, world_now(w), &x->fx);
        must(w, world_run_ms(w, 400));
        const void *known = ru_member_status_get(world_at(w, 0)->m, world_id(2), &have);
        assert_int_equal(have, n);
        assert_true(known != NULL && memcmp(known, says[k], (size_t)n) == 0);
        assert_int_equal(world_at(w, 0)->n_statuses, told[k]);
        assert_int_equal(world_at(w, 1)->n_statuses, 0);
    }
    world_node *x = world_at(w, 2);
    ru_member_status_set(x->m, "last", 4, false, world_now(w), &x->fx);
    must(w, world_run_ms(w, 400));
    world_kill(w, 0);
    must(w, world_run_ms(w, 400));
    int32_t lead = world_leader(w);
    assert_true(lead > 0);
    int64_t have = -1;
    const void *known = ru_member_status_get(world_at(w, (uint32_t)lead)->m, world_id(2), &have);
    assert_int_equal(have, 4);
    assert_true(known != NULL && memcmp(known, "last", 4) == 0);
    world_free(w);
}

/* -- any faults in any order
 * -----------------------------------------------------------------------
 */

static void test_chaos(void **state)
{
    (void)state;
    for (uint64_t k = 1, n = ru_test_many(2000, 4); k <= n; k++) {
        chaos_run(ru_test_seed() + k, CHAOS_ALL_VOTE, false);
    }
    assert_true(chaos_run(7, CHAOS_ALL_VOTE, false) == chaos_run(7, CHAOS_ALL_VOTE, false));
}

/* One seed, told: only when a seed is given. */
static void test_replay(void **state)
{
    (void)state;
    static const uint64_t usual = 20170829;
    if (ru_test_seed() != usual) {
        chaos_run(ru_test_seed(), CHAOS_ALL_VOTE, true);
    }
}

/* -- every order of three events
 * ---------------------------------------------------------------------
 */

enum { KINDS = 5, TRIO = 3, EVENTS = KINDS * TRIO };

static void event_of(world *w, uint32_t e)
{
    uint32_t i = e % TRIO;
    switch (e / TRIO) {
    case 0:
        world_kill(w, i);
        break;
    case 1:
        world_vanish(w, i);
        break;
    case 2:
        world_freeze(w, i, 900 * ms);
        break;
    case 3:
        world_cut(w, i, (i + 1) % TRIO, ru_time_after(world_now(w), 900 * ms));
        break;
    default:
        world_leave(w, i);
        break;
    }
}

static void test_every_order(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < EVENTS * EVENTS * EVENTS * 2; s++) {
        world_options o = {.seed = s, .nodes = CHAOS_NODES, .n_max = TRIO, .refused = true};
        world *w = world_new(&o);
        world_start(w, 0, -1);
        world_start(w, 1, 0);
        world_start(w, 2, 0);
        bool ok = world_run_ms(w, 300);
        uint32_t script = s / 2;
        for (uint32_t k = 0; k < 3; k++, script /= EVENTS) {
            event_of(w, script % EVENTS);
            ok = ok && world_run_ms(w, s % 2 == 0 ? 3 : 350);
        }
        chaos_ended(w, &o, ok, TRIO, "comm_member.test_every_order, script", s);
        world_free(w);
    }
}

/* -- what is left when others died ----------------------------------------------------------------
 */

/* How long until all that live agree; fails after `most_ms`. */
static int64_t settles_after_ms(world *w, int64_t most_ms)
{
    char why[200];
    int64_t after_ms = 0;
    while (!world_settled(w, why, sizeof why)) {
        if (after_ms >= most_ms) {
            fail_msg("after %lld ms: %s", (long long)after_ms, why);
        }
        must(w, world_run_ms(w, 10));
        after_ms += 10;
    }
    return after_ms;
}

/* Half is left without the oldest, and the older one of the two was out of touch with its leader:
 * it cannot go on by the certainty that the others are gone, and lets the younger one. */
static void test_the_sure_lead_the_others(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world *w = job(&(world_options){.seed = seed, .nodes = 4, .refused = seed % 2 == 0}, 4);
        world_cut(w, 0, 2, ru_time_after(world_now(w), 1000 * ms));
        must(w, world_run_ms(w, 500));
        world_kill(w, 0);
        world_kill(w, 1);
        must(w, world_run_ms(w, 500));
        settles_after_ms(w, 400);
        world_free(w);
    }
}

/* The leader dies while a view is put in force: whoever learns from another member that it is, does
 * not wait for a leader that it knows to be dead. */
static void test_a_dead_leader_is_not_followed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world *w = job(&(world_options){.seed = seed, .nodes = 6}, 5);
        world_start(w, 5, 1);
        while (ru_member_view(world_at(w, 0)->m)->n < 6) {
            must(w, world_run(w, ru_time_after(world_now(w), ms / 10)));
        }
        world_reset(w, 0, 1);
        world_reset(w, 0, 3);
        world_kill(w, 0);
        settles_after_ms(w, 600);
        world_free(w);
    }
}

/* Cut off while it looked for a leader, one may have been left out by those it knew; when they are
 * all gone afterwards, those that joined meanwhile go on, and it must not. */
static void test_left_out_unheard(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world *w = job(&(world_options){.seed = seed, .nodes = 6, .refused = seed % 2 == 0}, 5);
        world_kill(w, 0);
        must(w, world_run_ms(w, 3));
        for (uint32_t i = 1; i < 4; i++) {
            world_cut(w, i, 4, ru_time_after(world_now(w), 4000 * ms));
        }
        world_start(w, 5, 1);
        must(w, world_run_ms(w, 2000));
        assert_int_equal(ru_member_view(world_at(w, 5)->m)->n, 4);
        for (uint32_t i = 1; i < 4; i++) {
            world_kill(w, i);
        }
        must(w, world_run_ms(w, 1990));
        for (uint32_t i = 1; i < 4; i++) {
            world_reset(w, i, 4);
        }
        must(w, world_run_ms(w, 8000));
        assert_true(ru_member_leads(world_at(w, 5)->m));
        assert_false(ru_member_leads(world_at(w, 4)->m));
        world_free(w);
    }
}

/* The same before it missed the leader: all others ended within the 0.7 s after which it would
 * have. */
static void test_left_out_before_it_knew(void **state)
{
    (void)state;
    uint32_t tried = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        world *w = job(&(world_options){.seed = seed, .nodes = 6, .refused = seed % 2 == 0}, 5);
        for (uint32_t i = 0; i < 4; i++) {
            world_cut(w, i, 4, ru_time_after(world_now(w), 650 * ms));
        }
        world_kill(w, 0);
        world_start(w, 5, 1);
        must(w, world_run_ms(w, 640));
        if (ru_member_view(world_at(w, 5)->m)->n == 4) {
            tried++;
            for (uint32_t i = 0; i < 4; i++) {
                world_kill(w, i);
                world_reset(w, i, 4);
            }
            must(w, world_run_ms(w, 8000));
            assert_true(ru_member_leads(world_at(w, 5)->m));
            assert_false(ru_member_leads(world_at(w, 4)->m));
        }
        world_free(w);
    }
    assert_true(tried > 0);
}

/* Those that are asked for a new leader are the oldest that live. */
static void test_the_oldest_all_die(void **state)
{
    (void)state;
    enum { N = 14 };
    for (uint32_t dead = 6; dead < N; dead++) {
        world *w = world_new(&(world_options){.seed = dead, .nodes = N, .refused = dead % 2 == 0});
        for (uint32_t i = 0; i < N; i++) {
            world_start(w, i, i == 0 ? -1 : 0);
        }
        must(w, world_run_ms(w, 3000));
        must_settle(w);
        ru_node_id old[N];
        for (uint32_t k = 0; k < dead; k++) {
            old[k] = ru_member_view(world_at(w, 0)->m)->at[k].node;
        }
        for (uint32_t k = 0; k < dead * N; k++) {
            if (ru_node_is(old[k / N], world_id(k % N))) {
                world_kill(w, k % N);
            }
        }
        settles_after_ms(w, 1000);
        world_free(w);
    }
}

/* -- words that are none --------------------------------------------------------------------------
 */

static void test_garbage(void **state)
{
    (void)state;
    world *w = job(&(world_options){.seed = 11, .nodes = 4, .events_max = 1000000}, 4);
    uint32_t epoch = ru_member_view(world_at(w, 0)->m)->epoch;
    ru_rng r = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t k = 0; k < 100000; k++) {
        uint8_t bytes[256];
        uint32_t n = ru_rng_below(&r, sizeof bytes);
        for (uint32_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)ru_rng_u32(&r);
        }
        uint32_t from = ru_rng_below(&r, 4), to = ru_rng_below(&r, 4);
        world_message(w, from, to, RU_MEMBER_WHAT_FIRST + ru_rng_below(&r, 10), bytes, n);
        if (k % 100 == 0) {
            must(w, world_run_ms(w, 1));
        }
    }
    must(w, world_run_ms(w, 1000));
    must_settle(w);
    assert_int_equal(ru_member_view(world_at(w, 0)->m)->epoch, epoch);
    world_free(w);
}

/* -- a big job ------------------------------------------------------------------------------------
 */

static void test_thousand(void **state)
{
    (void)state;
    const uint32_t many = (uint32_t)ru_test_many(1000, 5);
    world_options o = {.seed = 5, .nodes = many, .owner_delay_ns = 200 * ms};
    world *w = world_new(&o);
    world_start(w, 0, -1);
    must(w, world_run_ms(w, 100));
    for (uint32_t i = 1; i < many; i++) {
        world_start(w, i, 0);
    }
    must(w, world_run_ms(w, 3000));
    must_settle(w);
    int64_t sends = world_sends(w);
    must(w, world_run_ms(w, 1000));
    /* Ten beats to and from the leader a second each; the rest of the connections are idle. */
    assert_true(world_sends(w) - sends <= 22 * many);
    for (uint32_t i = 0; i < 5; i++) { /* the leader and the next in line at once, and two more */
        (i % 2 == 0 ? world_kill : world_vanish)(w, i < 4 ? i : many / 2);
    }
    ru_time t = world_now(w);
    must(w, world_run_ms(w, 1500));
    must_settle(w);
    uint32_t n;
    const world_view *v = world_views(w, &n);
    assert_int_equal(v[n - 1].n, many - 5);
    assert_true(v[n - 1].at.ns - t.ns < 1300 * ms);
    world_free(w);
}

RU_TESTS(comm_member, cmocka_unit_test(test_found_and_join),
         cmocka_unit_test(test_an_install_tells_whether_it_proposes),
         cmocka_unit_test(test_founders_keep_their_numbers),
         cmocka_unit_test(test_later_ones_wait_for_the_first_view),
         cmocka_unit_test(test_death_is_quick), cmocka_unit_test(test_leave),
         cmocka_unit_test(test_pairs_that_do_not_reach_each_other),
         cmocka_unit_test(test_a_full_job), cmocka_unit_test(test_statuses),
         cmocka_unit_test(test_replay), cmocka_unit_test(test_chaos),
         cmocka_unit_test(test_the_sure_lead_the_others),
         cmocka_unit_test(test_a_dead_leader_is_not_followed),
         cmocka_unit_test(test_left_out_unheard), cmocka_unit_test(test_left_out_before_it_knew),
         cmocka_unit_test(test_the_oldest_all_die), cmocka_unit_test(test_thousand),
         cmocka_unit_test(test_every_order), cmocka_unit_test(test_garbage))
