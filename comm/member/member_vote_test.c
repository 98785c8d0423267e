/* Members without a vote: they count in no quorum and never lead, so all of them may vanish at
 * once. When all voters fail nothing goes on, and all say so; when they leave, the others vote. */
#include <stdio.h>
#include <string.h>

#include "test/test.h"
#include "test/wire/member_chaos.h"

static void must(world *w, bool ok)
{
    if (!ok || world_breach(w) != NULL) {
        fail_msg("%s", world_breach(w));
    }
}

static void settles_within_ms(world *w, int64_t most_ms)
{
    char why[200];
    for (int64_t k = 0; !world_settled(w, why, sizeof why); k += 10) {
        if (k >= most_ms) {
            fail_msg("after %lld ms: %s", (long long)k, why);
        }
        must(w, world_run_ms(w, 10));
    }
}

/* n processes join the first one by one every `pause_ms`; settled. */
static world *job(const world_options *o, uint32_t n, int64_t pause_ms)
{
    world *w = world_new(o);
    world_start(w, 0, -1);
    for (uint32_t i = 1; i < n; i++) {
        must(w, world_run_ms(w, pause_ms));
        world_start(w, i, 0);
    }
    must(w, world_run_ms(w, 500));
    settles_within_ms(w, 2000);
    return w;
}

static void lose(world *w, uint32_t from, uint32_t to, uint64_t no_vote, bool silently)
{
    for (uint32_t i = from; i < to; i++) {
        if ((no_vote >> i % 64 & 1) != 0) {
            (silently ? world_vanish : world_kill)(w, i);
        }
    }
}

/* One reliable machine and fifteen transient ones. */
static void test_fifteen_of_sixteen_vanish(void **state)
{
    (void)state;
    enum { N = 16, AGAIN = 4 };
    const uint64_t no_vote = UINT64_MAX << 1;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        world *w =
            job(&(world_options){.seed = seed, .nodes = N + AGAIN, .no_vote = no_vote}, N, 2);
        const ru_view *v = ru_member_view(world_at(w, 5)->m);
        assert_int_equal(v->n, N);
        for (uint32_t k = 0; k < N; k++) {
            assert_true(v->at[k].no_vote == (k > 0));
            assert_int_equal(v->at[k].tier, k > 0 ? RU_TIER_TRANSIENT : RU_TIER_RELIABLE);
        }
        lose(w, 1, N, no_vote, seed % 2 == 0);
        settles_within_ms(w, seed % 2 == 0 ? 1000 : 500);
        assert_int_equal(ru_member_view(world_at(w, 0)->m)->n, 1);
        for (uint32_t i = 0; i < AGAIN; i++) {
            world_start(w, N + i, 0);
        }
        must(w, world_run_ms(w, 500));
        settles_within_ms(w, 1000);
        assert_int_equal(ru_member_view(world_at(w, N)->m)->n, 1 + AGAIN);
        world_free(w);
    }
}

/* With the leader as well: a voter follows it, however young it is. */
static void test_the_leader_goes_with_them(void **state)
{
    (void)state;
    enum { N = 12 };
    const uint64_t no_vote = UINT64_C(0x7ee); /* 0, 4, 11 vote */
    for (uint64_t seed = 1; seed <= 8; seed++) {
        world *w = job(
            &(world_options){.seed = seed, .nodes = N, .no_vote = no_vote, .refused = seed % 4 < 2},
            N, 200);
        world_kill(w, 0);
        lose(w, 1, N, no_vote, seed % 2 == 0);
        settles_within_ms(w, 1600);
        assert_true(ru_member_leads(world_at(w, 4)->m));
        assert_int_equal(ru_member_view(world_at(w, 11)->m)->n, 2);
        world_free(w);
    }
}

/* A majority of the members is no quorum when it is not one of the voters. */
static void test_without_voters_nothing_goes_on(void **state)
{
    (void)state;
    enum { N = 8 };
    for (int silently = 0; silently < 2; silently++) {
        world *w = job(
            &(world_options){.seed = 3, .nodes = N, .no_vote = UINT64_MAX << 2, .refused = true}, N,
            100);
        uint32_t epoch = ru_member_view(world_at(w, 3)->m)->epoch;
        (silently ? world_vanish : world_kill)(w, 0);
        (silently ? world_vanish : world_kill)(w, 1);
        must(w, world_run_ms(w, 8000));
        assert_int_equal(world_leader(w), -1);
        for (uint32_t i = 2; i < N; i++) {
            ru_member_facts f;
            ru_member_facts_get(world_at(w, i)->m, &f);
            assert_int_equal(ru_member_view(world_at(w, i)->m)->epoch, epoch);
            assert_true(world_at(w, i)->out == !silently); /* nobody can come back, or somebody */
            assert_true(f.stuck || world_at(w, i)->out);
            if (!silently) {
                assert_string_equal(
                    world_at(w, i)->why,
                    "all members that vote have failed, and this one must not lead");
            }
        }
        world_free(w);
    }
}

/* Who stays gets its vote: a majority of them goes on, and who joins later has none. */
static void test_the_last_voter_leaves(void **state)
{
    (void)state;
    enum { N = 7 };
    for (uint64_t seed = 1; seed <= 8; seed++) {
        world *w = job(
            &(world_options){.seed = seed, .nodes = N, .no_vote = UINT64_MAX << 2, .refused = true},
            N - 1, 100);
        world_leave(w, 0);
        if (seed % 2 == 0) { /* else both at once */
            must(w, world_run_ms(w, 500));
            settles_within_ms(w, 500);
            assert_true(ru_member_leads(world_at(w, 1)->m));
        }
        world_leave(w, 1);
        must(w, world_run_ms(w, 500));
        settles_within_ms(w, 500);
        assert_true(ru_member_leads(world_at(w, 2)->m));
        world_start(w, N - 1, 2);
        must(w, world_run_ms(w, 500));
        settles_within_ms(w, 500);
        const ru_view *v = ru_member_view(world_at(w, N - 1)->m);
        assert_int_equal(v->n, N - 2);
        for (uint32_t k = 0; k < v->n; k++) {
            assert_true(v->at[k].no_vote == (k == v->n - 1));
        }
        lose(w, 2, N, UINT64_C(0x44), seed % 4 < 2); /* the leader, and the one without a vote */
        settles_within_ms(w, 1600);
        assert_true(ru_member_leads(world_at(w, 3)->m));
        assert_int_equal(ru_member_view(world_at(w, 5)->m)->n, 3);
        world_free(w);
    }
}

static void test_all_leave(void **state)
{
    (void)state;
    enum { N = 5 };
    world *w = job(&(world_options){.seed = 9, .nodes = N, .no_vote = UINT64_MAX << 2}, N, 100);
    for (uint32_t i = 0; i < N; i++) {
        world_leave(w, i);
    }
    must(w, world_run_ms(w, 500));
    for (uint32_t i = 0; i < N; i++) {
        assert_true(world_at(w, i)->out);
        assert_string_equal(world_at(w, i)->why, "it left");
    }
    world_free(w);
}

/* The founder leads, so it must vote. */
static void test_a_founder_votes(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_member *m;
    ru_err err;
    ru_member_options o = {.n_max = 4};
    o.self = (ru_member_info){.node = {1}, .address = "h:1", .no_vote = true};
    assert_int_equal(ru_member_open(&o, &arena, &m, &err), RU_E_CONFIG);
    assert_true(strstr(err.text, "must vote") != NULL);
    o.join = "h:2";
    assert_ok(ru_member_open(&o, &arena, &m, &err), err);
    o.self.capacity = RU_MEMBER_CAPACITY_MAX + 1;
    assert_int_equal(ru_member_open(&o, &arena, &m, &err), RU_E_ARG);
    ru_arena_fini(&arena);
}

/* Too many to be connected to each other: everybody to the oldest voters, wherever they rank. */
static void test_a_big_job_loses_most(void **state)
{
    (void)state;
    enum { N = 300 };
    const uint64_t no_vote = ~(UINT64_C(1) | UINT64_C(1) << 33); /* ten of 300 vote */
    world *w = world_new(&(world_options){.seed = 5, .nodes = N, .no_vote = no_vote});
    world_start(w, 0, -1);
    must(w, world_run_ms(w, 100));
    for (uint32_t i = 1; i < N; i++) {
        world_start(w, i, 0);
    }
    must(w, world_run_ms(w, 3000));
    settles_within_ms(w, 1000);
    ru_member_facts f;
    ru_member_facts_get(world_at(w, 7)->m, &f);
    assert_int_equal(f.voters, 10);
    int64_t sends = world_sends(w);
    must(w, world_run_ms(w, 1000));
    assert_true(world_sends(w) - sends <= 22 * N);
    world_kill(w, 0); /* all can be told by the next voter */
    settles_within_ms(w, 1500);
    assert_int_equal(ru_member_view(world_at(w, 250)->m)->n, N - 1);
    lose(w, 1, N, no_vote, true);
    world_kill(w, 33);
    settles_within_ms(w, 2500);
    assert_int_equal(ru_member_view(world_at(w, 64)->m)->n, 8);
    world_free(w);
}

static void test_bulk_losses(void **state)
{
    (void)state;
    enum { SEEDS = 1000 };
    for (uint64_t k = 1; k <= SEEDS; k++) {
        chaos_run(ru_test_seed() + k, CHAOS_BULK, false);
    }
    assert_true(chaos_run(8, CHAOS_BULK, false) == chaos_run(8, CHAOS_BULK, false));
}

/* One seed, told: only when a seed is given. */
static void test_replay_bulk(void **state)
{
    (void)state;
    static const uint64_t usual = 20170829;
    if (ru_test_seed() != usual) {
        chaos_run(ru_test_seed(), CHAOS_BULK, true);
    }
}

RU_TESTS(comm_member_vote, cmocka_unit_test(test_fifteen_of_sixteen_vanish),
         cmocka_unit_test(test_the_leader_goes_with_them),
         cmocka_unit_test(test_without_voters_nothing_goes_on),
         cmocka_unit_test(test_the_last_voter_leaves), cmocka_unit_test(test_all_leave),
         cmocka_unit_test(test_a_founder_votes), cmocka_unit_test(test_a_big_job_loses_most),
         cmocka_unit_test(test_bulk_losses), cmocka_unit_test(test_replay_bulk))
