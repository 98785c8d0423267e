/* Membership in a small simulator (test/member_world.h): seeded delays, order per pair kept,
 * processes that are killed, hosts that vanish, freezes, cuts, half-open connections; virtual time.
 * What must always hold is checked after every event; a failing seed says how to run it again. */
#include "comm/member.h"

#include <stdio.h>
#include <string.h>

#include "test/member_world.h"
#include "test/test.h"

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

RU_TESTS(comm_member, cmocka_unit_test(test_found_and_join), cmocka_unit_test(test_death_is_quick),
         cmocka_unit_test(test_leave))
