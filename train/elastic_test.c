/* What the step machine does when something inside of it goes wrong, and what it decides by what it
 * measured: jobs of a few processes, and parts of it alone. */
#include <string.h>

#include "test/lives.h"
#include "test/test.h"
#include "train/elastic_impl.h"

static ru_elastic *elastic_of(const life *l)
{
    return ru_peer_elastic(l->peer);
}

static void job_stall(job *j, bool stalls)
{
    for (uint32_t i = 0; i < j->n; i++) {
        j->l[i]->stalls = stalls;
    }
}

/* All founders are in the first step, and none is through with its computing until job_stall says
 * so. */
static void job_open_stalled(job *j, uint32_t founders, int64_t steps)
{
    bool there = false;
    job_open(j, founders, steps, 0);
    job_stall(j, true);
    for (uint32_t round = 0; !there; round++) {
        assert_true(round < LIFE_ROUNDS);
        job_round(j);
        there = true;
        for (uint32_t i = 0; i < founders; i++) {
            there = there && elastic_of(j->l[i])->phase == RUI_EL_STEP;
        }
    }
}

/* The k-th member of the first one's view; 0 leads, 1 is the next to lead. */
static life *job_member(const job *j, uint32_t k)
{
    const rui_el_view *v = &elastic_of(j->l[0])->v;
    uint32_t i = 0;
    while (!ru_node_is(j->l[i]->id, v->at[k].node)) {
        i++;
    }
    return j->l[i];
}

static void dies(life *l)
{
    life_over(l);
    l->ended = true;
}

/* Where a sum cannot begin, for a reason that is not the network's, its worker ends and says why;
 * the others go on without it, also when it led. */
static void a_sum_that_cannot_begin(void **state)
{
    (void)state;
    for (uint32_t who = 0; who < 3; who++) {
        job j = {0};
        job_open_stalled(&j, 3, 6);
        life *l = job_member(&j, who), *leads = job_member(&j, who == 0 ? 1 : 0);
        ru_err err = {0};
        const ru_span later[LIFE_TENSORS] = {{l->state[0], sizeof l->state[0]},
                                             {l->state[1], sizeof l->state[1]}};
        assert_ok(ru_coll_begin(elastic_of(l)->group, 0, 1, later, LIFE_TENSORS, (ru_time){0},
                                ru_pipe_now(j.pipe), &err),
                  err);
        job_stall(&j, false);
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->status, j.l[i] == l ? RU_E_ARG : RU_OK);
            assert_int_equal(j.l[i]->committed, j.l[i] == l ? 0 : 6);
        }
        assert_int_equal(leads->went, 1);
        assert_non_null(strstr(l->sentence, "beginning a sum of step 1"));
        job_close(&j);
    }
}

/* Both begin with half of the batch; as soon as their speeds are known each gets what it can. */
static void shares_follow_measured_speed(void **state)
{
    (void)state;
    job j = {0};
    job_open(&j, 2, 40, 0);
    j.l[0]->sample_ns = 1000000;
    j.l[1]->sample_ns = 3000000;
    assert_true(job_run(&j));
    assert_string_equal(j.l[0]->shares, "1:6 2:2");
    assert_int_equal(j.l[0]->committed, 40);
    assert_int_equal(j.l[1]->committed, 40);
    job_close(&j);
}

/* A newcomer that has the state gets a part of the batch, although no step gets shorter by it: four
 * samples are two each, then two, one and one. What was sent to it is given back meanwhile. */
static void a_newcomer_works_when_it_can(void **state)
{
    (void)state;
    job j = {.batch = 4};
    job_open(&j, 2, 400, 300);
    for (uint32_t round = 0; j.l[0]->works == 0 && !job_over(&j); round++) {
        assert_true(round < LIFE_ROUNDS);
        job_round(&j);
    }
    assert_int_equal(j.l[0]->works, 1);
    assert_false(j.l[0]->ended);
    job_rounds(&j, 200);
    assert_int_equal(j.l[0]->out + j.l[1]->out + j.l[2]->out, 0);
    assert_true(job_run(&j));
    assert_int_equal(j.l[2]->committed, 400);
    job_close(&j);
}

/* Who dies is lost: that bytes were lost with its connection as well is not worth a line, and no
 * reason for one more view. */
static void who_dies_is_only_lost(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 60; r += 6) {
        job j = {0};
        job_open_stalled(&j, 3, 6);
        job_stall(&j, false);
        job_rounds(&j, r);
        dies(j.l[2]);
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(j.l[i]->status, RU_OK);
            assert_int_equal(j.l[i]->committed, 6);
            assert_int_equal(j.l[i]->redoing, 0);
        }
        assert_int_equal(j.l[0]->went, 1);
        job_close(&j);
    }
}

/* One of two whose leader died says that the step under way is committed, which it is not. Where
 * the other one takes over, it misses that step: it says so, and what to do. Where the liar does,
 * the other one is told of a view that its state does not fit. */
static void a_commit_that_was_none(void **state)
{
    (void)state;
    for (uint32_t liar = 1; liar <= 2; liar++) {
        job j = {0};
        job_open_stalled(&j, 3, 6);
        life *lies = job_member(&j, liar), *other = job_member(&j, 3 - liar);
        dies(j.l[0]);
        elastic_of(lies)->committed++;
        ru_peer_stop(lies->peer, true, ru_pipe_now(j.pipe)); /* so that its status is told */
        for (uint32_t round = 0; !other->ended; round++) {
            assert_true(round < LIFE_ROUNDS);
            job_round(&j);
        }
        assert_int_equal(other->committed, 0);
        assert_int_equal(other->status, liar == 1 ? RU_E_BUG : RU_E_PEER);
        assert_non_null(strstr(other->sentence, liar == 1 ? "state is not of" : "missed step 1"));
        job_close(&j);
    }
}

/* A member's second DONE does not stand for another's. */
static void a_word_said_twice_counts_once(void **state)
{
    (void)state;
    job j = {0};
    job_open_stalled(&j, 3, 6);
    const ru_elastic *e = elastic_of(j.l[1]);
    const ru_share *share = &e->v.at[e->v.me].share;
    uint8_t buf[64];
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u32(&w, e->v.epoch);
    ru_wire_put_u64(&w, (uint64_t)e->step);
    ru_wire_put_u64(&w, (uint64_t)share->first);
    ru_wire_put_u64(&w, (uint64_t)share->n);
    ru_wire_put_u64(&w, 1000000);
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(ru_chan_message(ru_peer_chan(j.l[1]->peer), j.l[0]->id, RUI_EL_DONE_MSG,
                                         buf, ru_wire_size(&w), ru_pipe_now(j.pipe)),
                         RU_OK);
    }
    job_rounds(&j, 400);
    assert_int_equal(elastic_of(j.l[0])->n_done, 1);
    job_stall(&j, false);
    assert_true(job_run(&j));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(j.l[i]->status, RU_OK);
        assert_int_equal(j.l[i]->committed, 6);
    }
    job_close(&j);
}

/* -- the choice of collectives -------------------------------------------------------------------
 */

enum { CHOICES = 2 };

static ru_coll_cost cost_of(double step_ns, double byte_ns)
{
    return (ru_coll_cost){.alpha_ns = step_ns, .beta_ns = byte_ns, .gamma_ns = 0.25, .n_points = 2};
}

static void choose(ru_elastic *e, uint32_t n, ru_coll_choice into[CHOICES])
{
    rui_el_batch batches[CHOICES] = {{.part.size_bytes = 4096}, {.part.size_bytes = 4 << 20}};
    ru_arena arena;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    e->batches = batches;
    e->n_batches = CHOICES;
    memset(into, 0, CHOICES * sizeof *into); /* compared as bytes */
    assert_ok(rui_el_choose(e, n, &arena, into, &err), err);
    ru_arena_fini(&arena);
}

/* What was measured counts for as many members as measured it; the star only there. */
static void costs_count_for_those_who_measured_them(void **state)
{
    (void)state;
    ru_coll_choice at[CHOICES], without[CHOICES];
    ru_elastic e = {.probed_n = 4};
    choose(&e, 70, without);
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        e.costs[a] = a == RU_ALGO_HIERARCHY ? cost_of(1, 1e-6) : cost_of(1e7, 10);
    }
    choose(&e, 4, at);
    assert_int_equal(at[0].algo, RU_ALGO_HIERARCHY);
    assert_int_equal(at[1].algo, RU_ALGO_HIERARCHY);
    choose(&e, 3, at);
    assert_true(at[0].algo != RU_ALGO_HIERARCHY && at[1].algo != RU_ALGO_HIERARCHY);
    choose(&e, 70, at);
    for (uint32_t b = 0; b < CHOICES; b++) {
        assert_int_equal(at[b].algo, without[b].algo);
        assert_int_equal(at[b].predicted_ns, without[b].predicted_ns);
    }
    e.costs[RU_ALGO_HIERARCHY].n_points = 0;
    choose(&e, 4, at);
    assert_true(at[0].algo != RU_ALGO_HIERARCHY && at[1].algo != RU_ALGO_HIERARCHY);
}

RU_TESTS(train_elastic, cmocka_unit_test(a_sum_that_cannot_begin),
         cmocka_unit_test(shares_follow_measured_speed),
         cmocka_unit_test(a_newcomer_works_when_it_can), cmocka_unit_test(who_dies_is_only_lost),
         cmocka_unit_test(a_commit_that_was_none), cmocka_unit_test(a_word_said_twice_counts_once),
         cmocka_unit_test(costs_count_for_those_who_measured_them))
