/* A worker for whom memory ends at any point: it opens or says so, it ends or goes on, and gives
 * all back. Several in a job: words are lost with a connection, the end is asked for, a view comes,
 * memory ends, at any moment. */
#include "train/elastic/elastic_impl.h"

#include <string.h>

#include "test/job/lives.h"
#include "test/test.h"

static void test_opening(void **state)
{
    (void)state;
    bool opened = false;
    for (int64_t k = 0; !opened; k++) {
        assert_true(k < 1000);
        ru_pipe *pipe = lives_pipe();
        life *l = life_new(pipe, 1, 1);
        ru_err err = {0};
        ru_test_alloc_fail(k);
        ru_status st = life_open(l, &err);
        opened = ru_test_alloc_count() <= k;
        ru_test_alloc_fail(-1);
        if (opened) {
            assert_ok(st, err);
        } else {
            assert_int_equal(st, RU_E_MEM);
            assert_true(err.text[0] != '\0');
        }
        life_free(l);
        ru_pipe_free(pipe);
    }
}

/* Where a member could not connect to all whom it will need, the job does not begin. */
static void test_room_for_peers(void **state)
{
    (void)state;
    static const struct {
        uint32_t members, least;
    } cases[] = {{3, 2}, {8, 7}, {65, 64}, {100, 86}, {1000, 92}};
    for (uint32_t k = 0; k < 2 * RU_ARRAY_LEN(cases); k++) {
        bool enough = k % 2 == 1;
        ru_pipe *pipe = lives_pipe();
        life *l = life_new(pipe, 1, 1);
        ru_err err = {0};
        l->members = cases[k / 2].members;
        l->peers = cases[k / 2].least - (enough ? 0 : 1);
        ru_status st = life_open(l, &err);
        if (enough) {
            assert_ok(st, err);
        } else {
            assert_int_equal(st, RU_E_ARG);
            assert_non_null(strstr(err.text, "connections, but its limit is"));
        }
        life_free(l);
        ru_pipe_free(pipe);
    }
}

/* A job with servers takes so many members and no more. */
static void test_room_for_served(void **state)
{
    (void)state;
    for (uint32_t more = 0; more < 2; more++) {
        ru_pipe *pipe = lives_pipe();
        life *l = life_new(pipe, 1, 1);
        ru_err err = {0};
        l->servers = 1;
        l->members = RU_ELASTIC_SERVED_MAX + more;
        l->peers = l->members;
        assert_int_equal(life_open(l, &err), more > 0 ? RU_E_ARG : RU_OK);
        life_free(l);
        ru_pipe_free(pipe);
    }
}

/* The same process with all memory there: trains alone to the end. */
static void test_alone(void **state)
{
    (void)state;
    ru_pipe *pipe = lives_pipe();
    life *l = life_new(pipe, 1, 1);
    ru_err err = {0};
    assert_ok(life_open(l, &err), err);
    ru_pipe_user(l->pipe, l->at_pipe, ru_node_link_user(l->node));
    life_run(l);
    assert_true(l->ended);
    assert_int_equal(l->status, RU_OK);
    assert_int_equal(l->committed, LIFE_STEPS);
    life_free(l);
    ru_pipe_free(pipe);
}

/* Who is asked to end the job before it is in it goes at once, and is waited for by nobody. */
static void test_the_end_is_asked_for_before_joining(void **state)
{
    (void)state;
    ru_pipe *pipe = lives_pipe();
    life *l = life_new(pipe, 2, 2);
    ru_err err = {0};
    assert_ok(life_open(l, &err), err);
    ru_pipe_user(l->pipe, l->at_pipe, ru_node_link_user(l->node));
    ru_node_start(l->node, ru_pipe_now(pipe));
    for (uint32_t k = 0; k < 20; k++) {
        lives_move(pipe);
    }
    assert_false(l->ended);
    life_stop(l, true);
    assert_true(l->ended);
    assert_int_equal(l->status, RU_E_PEER);
    assert_int_equal(l->committed, 0);
    life_free(l);
    ru_pipe_free(pipe);
}

/* Two found a job; then one acknowledges nothing any more, and so much waits for it that no control
 * message fits: it is cut off at once, and the other goes on without it. */
static void test_a_peer_that_takes_no_words(void **state)
{
    (void)state;
    ru_pipe *pipe = lives_pipe();
    life *l[2] = {life_new(pipe, 1, 2), life_new(pipe, 2, 2)};
    ru_err err = {0};
    for (uint32_t i = 0; i < 2; i++) {
        assert_ok(life_open(l[i], &err), err);
        ru_pipe_user(pipe, l[i]->at_pipe, ru_node_link_user(l[i]->node));
        ru_node_start(l[i]->node, ru_pipe_now(pipe));
    }
    for (uint32_t round = 0; ru_member_view(ru_node_member(l[0]->node))->n < 2; round++) {
        assert_true(round < LIFE_ROUNDS);
        lives_move(pipe);
        life_turn(l[0]);
        life_turn(l[1]);
    }
    ru_chan *ch = ru_node_chan(l[0]->node);
    uint32_t sent = 0;
    while (ru_chan_message(ch, l[1]->id, RU_NODE_WHAT_OWNER, "x", 1, ru_pipe_now(pipe)) == RU_OK) {
        sent++;
    }
    assert_true(sent > 100);
    assert_int_equal(l[0]->cut_off, 0);
    for (uint32_t k = 0; k < 300 && l[0]->cut_off == 0; k++) { /* nothing moves; a beat is due */
        assert_true(ru_chan_is_up(ch, l[1]->id));
        ru_pipe_wait(pipe, 1000000);
        life_turn(l[0]);
    }
    assert_int_equal(l[0]->cut_off, 1);
    assert_false(ru_chan_is_up(ch, l[1]->id));
    ru_pipe_kill(pipe, l[1]->at_pipe);
    for (uint32_t round = 0; round < LIFE_ROUNDS && !l[0]->ended; round++) {
        lives_move(pipe);
        life_turn(l[0]);
    }
    assert_true(l[0]->ended);
    assert_int_equal(l[0]->status, RU_OK);
    assert_int_equal(l[0]->committed, LIFE_STEPS);
    assert_int_equal(l[0]->cut_off, 1);
    life_free(l[0]);
    life_free(l[1]);
    ru_pipe_free(pipe);
}

/* -- several in a job ----------------------------------------------------------------------------
 */

/* The first has no room for control messages to another: their connection is cut and made again,
 * and what was on its way is lost. Whatever word that was, the job does not wait for it for ever,
 * also where the two exchange no gradients. */
static void test_words_lost_with_a_connection(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 240; r += 12) {
        job j = {0};
        job_open(&j, JOB_LIVES, 6, 0);
        while (j.l[0]->committed < 1) {
            job_round(&j);
        }
        job_rounds(&j, r);
        life *to = j.l[1 + r / 12 % (JOB_LIVES - 1)];
        ru_chan *ch = ru_node_chan(j.l[0]->node);
        while (ru_chan_message(ch, to->id, RU_NODE_WHAT_OWNER, "x", 1, ru_pipe_now(j.pipe)) ==
               RU_OK) {
        }
        while (j.l[0]->cut_off == 0) { /* nothing moves; a beat is due */
            ru_pipe_wait(j.pipe, 1000000);
            life_turn(j.l[0]);
        }
        if (!job_run(&j)) {
            fail_msg("cut off %u rounds after a commit: they hang after step %lld", r,
                     (long long)j.l[0]->committed);
        }
        for (uint32_t i = 0; i < JOB_LIVES; i++) {
            assert_int_equal(j.l[i]->status, RU_OK);
            assert_int_equal(j.l[i]->committed, 6);
        }
        job_close(&j);
    }
}

/* Somebody is asked to end the job, whoever leads, while they measure, train, or a third comes in:
 * all end at the same step, soon. */
static void test_the_end_is_asked_for(void **state)
{
    (void)state;
    uint32_t with_third = 0;
    for (uint32_t r = 70; r < 9000; r += 53) {
        job j = {0};
        job_open(&j, 2, 1000000, 300);
        job_rounds(&j, r);
        bool third = j.n == 3 && ru_member_view(ru_node_member(j.l[2]->node))->n == 3;
        uint32_t who = r / 53 % (third ? 3 : 2);
        life_stop(j.l[who], true);
        for (uint32_t k = 0; k < LIFE_ROUNDS && !(j.l[0]->ended && j.l[1]->ended); k++) {
            job_round(&j);
        }
        for (uint32_t i = 0; i < (third ? 3 : 2); i++) {
            if (!j.l[i]->ended || j.l[i]->status != RU_OK || j.l[i]->committed > r) {
                fail_msg("worker %u was asked in round %u: %u ended %d (%s, %s) after step %lld",
                         who + 1, r, i + 1, j.l[i]->ended, ru_status_name(j.l[i]->status),
                         j.l[i]->sentence, (long long)j.l[i]->committed);
            }
        }
        assert_int_equal(j.l[0]->committed, j.l[1]->committed);
        with_third += third ? 1 : 0;
        job_close(&j);
    }
    assert_true(with_third > 10);
}

/* The one who was asked tells its leader, which dies: whoever leads then ends the job. */
static void test_the_end_is_not_forgotten(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 60; r += 4) {
        job j = {0};
        job_open(&j, 3, 1000000, 0);
        while (j.l[0]->committed < 1) {
            job_round(&j);
        }
        life_stop(j.l[2], true);
        for (uint32_t k = 0; k < r && !j.l[0]->ended; k++) {
            job_round(&j);
        }
        life_over(j.l[0]);
        j.l[0]->ended = true;
        assert_true(job_run(&j));
        assert_int_equal(j.l[1]->committed, j.l[2]->committed);
        assert_true(j.l[1]->committed < 20);
        assert_true(j.l[1]->status == RU_OK && j.l[2]->status == RU_OK);
        job_close(&j);
    }
}

/* Who sends state to a newcomer has no memory for a copy, once or twice: the step is done again,
 * and the newcomer gets everything in the end. */
static void test_no_memory_for_state(void **state)
{
    (void)state;
    for (uint32_t k = 1; k <= 4; k++) {
        job j = {0};
        job_open(&j, 2, 400, 300);
        j.l[k % 2]->copies_fail = 1 + k / 3;
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->status, RU_OK);
            assert_int_equal(j.l[i]->committed, 400);
            assert_int_equal(j.l[i]->is_in, i < 2 ? 1 : 2); /* a newcomer, again with the state */
            assert_int_equal(j.l[i]->holds, 1);
        }
        ru_elastic_facts f;
        ru_elastic_facts_get(j.l[2]->elastic, &f);
        assert_false(f.moves);
        assert_int_equal(j.l[0]->went, 0); /* one came and works, nobody went */
        assert_int_equal(j.l[0]->works, 1);
        assert_int_equal(j.l[k % 2]->copies_fail, 0);
        job_close(&j);
    }
}

/* The leader has no room to measure the collectives: it says so and goes, the others go on. */
static void test_no_room_to_measure(void **state)
{
    (void)state;
    job j = {.first_streams = 24};
    job_open(&j, 3, 5, 0);
    assert_true(job_run(&j));
    assert_int_equal(j.l[0]->status, RU_E_LIMIT);
    assert_non_null(strstr(j.l[0]->sentence, "measuring the network"));
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(j.l[i]->status, RU_OK);
        assert_int_equal(j.l[i]->committed, 5);
    }
    job_close(&j);
}

/* Kernels that order gradients differently sum them in plain order, all of them; those that do not,
 * never. */
static void test_orders_of_gradients(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) { /* k 0: all alike; else another one differs */
        job j = {0};
        job_open(&j, 3, 4, 0);
        for (uint32_t i = 0; i < 3; i++) {
            j.l[i]->layout = k == i + 1 ? 7 : 1;
        }
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->status, RU_OK);
            assert_int_equal(j.l[i]->committed, 4);
            assert_true(j.l[i]->plain == (k > 0));
        }
        job_close(&j);
    }
}

/* Members of one host sum in memory that they share; when one has none to share, or cannot map the
 * others', all sum over the network, and nobody tries again. */
static void test_shared_memory(void **state)
{
    (void)state;
    static const char *const handles[] = {"memory 1", "memory 2", "memory 3"};
    for (uint32_t k = 0; k < 7; k++) { /* 1 to 3: has none; 4 to 6: cannot map */
        job j = {.one_host = true};
        job_open(&j, 3, 20, 0);
        for (uint32_t i = 0; i < 3; i++) {
            j.l[i]->handle = k == i + 1 ? "" : handles[i];
            j.l[i]->maps = k == i + 4 ? RU_E_PERM : RU_OK;
        }
        ru_elastic_sums sums;
        ru_err err;
        while (j.l[0]->committed < 1) {
            job_round(&j);
        }
        assert_ok(ru_elastic_sums_get(j.l[0]->elastic, &j.l[0]->arena, &sums, &err), err);
        assert_true(sums.local == (k == 0));
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->status, RU_OK);
            assert_int_equal(j.l[i]->committed, 20);
            assert_int_equal(j.l[i]->opens, k == 0 || k > 3 ? 1 : 0);
            assert_int_equal(j.l[i]->closes, j.l[i]->opens);
        }
        job_close(&j);
    }
}

/* The end comes while one of two keeps its update below a step that it began ahead, where the
 * leader's device began none: the member gives that step up before it ends. */
static void test_the_end_takes_a_step_ahead_back(void **state)
{
    (void)state;
    job j = {0};
    job_open(&j, 2, 12, 0);
    life *leads = j.l[0], *l = j.l[1];
    leads->depth = l->depth = 2;
    while (leads->elastic->step < 2 || l->elastic->step < 2 || l->elastic->steps.n < 2) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
        rui_el_steps *s = &leads->elastic->steps;
        leads->stalls = leads->elastic->step == 1 && s->n == 2 ? LIFE_COMPUTED : leads->stalls;
        if (leads->elastic->step == 2 && leads->stalls == LIFE_COMPUTED) {
            s->held_from = 3; /* as if its device had a barrier there */
            life_stop(leads, true);
            leads->stalls = LIFE_NOTHING;
        }
    }
    l->stalls = LIFE_UPDATED;
    job_rounds(&j, 2000);
    assert_true(l->elastic->ending && l->elastic->steps.updating);
    assert_int_equal(l->open, 2);
    assert_false(l->ended);
    l->stalls = LIFE_NOTHING;
    assert_true(job_run(&j));
    assert_int_equal(l->open, 0);
    assert_int_equal(l->committed, 3);
    assert_int_equal(l->status, RU_OK);
    job_close(&j);
}

/* The member of this rank, as `by` has it. */
static life *of_rank(const job *j, const life *by, uint32_t rank)
{
    return j->l[ru_member_view(ru_node_member(by->node))->at[rank].node.v - 1];
}

/* The leader of a job with a server leaves: who leads next computes, and another one serves. */
static void test_who_leads_next_computes(void **state)
{
    (void)state;
    job j = {.servers = 1};
    job_open(&j, 4, 100000, 0);
    while (j.l[0]->committed < 2) {
        job_round(&j);
    }
    life *next = of_rank(&j, j.l[0], 1), *third = of_rank(&j, j.l[0], 2);
    assert_true(j.l[0]->share.n > 0 && next->share.n == 0 && third->share.n > 0);
    life_stop(j.l[0], false);
    /* In the view that the one which leaves has made, then in those of its successor. */
    uint32_t epoch = next->elastic->v.epoch;
    while (next->elastic->v.epoch == epoch || third->elastic->v.epoch == epoch) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
    }
    assert_true(next->share.n > 0 && third->share.n == 0);
    for (int64_t committed = next->committed; next->committed < committed + 2;) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
    }
    assert_true(ru_member_leads(ru_node_member(next->node)));
    assert_true(next->share.n > 0 && third->share.n == 0);
    life_stop(next, true);
    assert_true(job_run(&j));
    job_close(&j);
}

/* The same members measure collectives once more, before the first step of a view that the leader
 * begins for it; no step is lost. Who does not lead begins none. */
static void test_collectives_are_measured_again(void **state)
{
    (void)state;
    enum { STEPS = 12 };
    job j = {0};
    job_open(&j, 3, STEPS, 0);
    while (j.l[0]->committed < 3) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
    }
    uint32_t epoch = j.l[0]->elastic->v.epoch, probes = 0;
    assert_int_equal(j.l[0]->elastic->reduce.probed_epoch, epoch);
    ru_elastic_measure(j.l[1]->elastic);
    ru_elastic_measure(j.l[0]->elastic);
    while (!job_over(&j)) {
        assert_true(j.round < LIFE_ROUNDS);
        probes += j.l[2]->elastic->phase == RUI_EL_PROBE ? 1 : 0;
        job_round(&j);
    }
    assert_true(probes > 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(j.l[i]->elastic->v.epoch, epoch + 1);
        assert_int_equal(j.l[i]->status, RU_OK);
        assert_int_equal(j.l[i]->committed, STEPS);
    }
    assert_int_equal(j.l[0]->elastic->reduce.probed_epoch, epoch + 1);
    assert_int_equal(j.l[0]->elastic->reduce.probed_n, 3);
    job_close(&j);
}

/* Both are asked to leave when the leader has said that the job is done: it is done all the same,
 * and that is for the one who led to report. */
static void test_who_said_the_end_leaves(void **state)
{
    (void)state;
    job j = {0};
    job_open(&j, 2, 3, 0);
    ru_elastic *e = j.l[0]->elastic;
    while (!e->said_end) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
    }
    j.l[1]->stalls = LIFE_UPDATED;
    for (uint32_t i = 0; i < 2; i++) {
        life_stop(j.l[i], false);
    }
    while (!j.l[0]->ended) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
    }
    assert_false(ru_member_leads(ru_node_member(j.l[0]->node)));
    assert_true(e->said_end);
    j.l[1]->stalls = LIFE_NOTHING;
    assert_true(job_run(&j));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(j.l[i]->status, RU_OK);
        assert_string_equal(j.l[i]->sentence, "done");
        assert_int_equal(j.l[i]->committed, 3);
    }
    job_close(&j);
}

/* One that comes into a job that trains holds nobody up: the three are measured when they have
 * stayed together for a while, and no step is lost. */
static void test_who_comes_later_is_measured_later(void **state)
{
    (void)state;
    job j = {0};
    int64_t then = 0;
    uint32_t probes = 0;
    job_open(&j, 2, 1000000, 4000);
    ru_elastic *e = j.l[0]->elastic;
    while (then == 0 || e->committed < then + 5) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
        bool three = e->v.n == 3;
        probes += three && e->phase == RUI_EL_PROBE ? 1 : 0;
        then = three && then == 0 ? e->committed : then;
    }
    assert_int_equal(probes, 0);
    assert_int_equal(e->reduce.probed_n, 2);
    e->reduce.stay_ns -= INT64_C(20000000000);
    for (then = e->committed; e->committed < then + 5;) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
        probes += e->phase == RUI_EL_PROBE ? 1 : 0;
    }
    assert_true(probes > 0);
    assert_int_equal(e->reduce.probed_n, 3);
    life_stop(j.l[0], true);
    assert_true(job_run(&j));
    assert_int_equal(j.l[0]->committed, j.l[2]->committed);
    job_close(&j);
}

/* One that leaves before it was measured: whoever comes next is not measured at once. */
static void test_a_stay_begins_anew(void **state)
{
    (void)state;
    job j = {0};
    job_open(&j, 2, 1000000, 4000);
    const ru_elastic *e = j.l[0]->elastic;
    while (e->reduce.stay_n != 3) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
    }
    life_stop(j.l[2], false);
    while (e->reduce.stay_n != 0) {
        assert_true(j.round < LIFE_ROUNDS);
        job_round(&j);
    }
    assert_int_equal(e->v.n, 2);
    life_stop(j.l[0], true);
    assert_true(job_run(&j));
    job_close(&j);
}

/* Sums of 64 bytes each: who adds puts aside what the two others send, at most; lanes stand on
 * lines of their own. One step at a time needs no second set. */
static void two_steps_put_more_aside(void **state)
{
    (void)state;
    for (int64_t depth = 1; depth <= 2; depth++) {
        job j = {0};
        int64_t most = 0;
        job_open(&j, 3, 12, 0);
        j.l[0]->depth = j.l[1]->depth = j.l[2]->depth = (uint32_t)depth;
        for (uint32_t round = 0; !job_over(&j); round++) {
            assert_true(round < LIFE_ROUNDS);
            job_round(&j);
            for (uint32_t i = 0; i < 3; i++) {
                ru_elastic_facts f;
                ru_elastic_facts_get(j.l[i]->elastic, &f);
                int64_t said = f.aside_said_bytes;
                most = said > most ? said : most;
                assert_in_range(f.aside_bytes, said, said > 0 ? said + 4 * 64 : 0);
            }
        }
        assert_in_range(most, depth == 2 ? 64 : 0, depth == 2 ? 2 * 2 * 64 : 0);
        job_close(&j);
    }
}

static int64_t server_free_bytes; /* as a process is told */
static const job *asks;           /* of whose processes one asks */
static uint32_t asked;

/* Who asks holds nothing of the view before. */
static int64_t free_bytes(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        const ru_elastic *e = asks->l[i]->elastic;
        bool begins = e->phase == RUI_EL_READY && e->v.at[e->v.me].serves;
        assert_true(!begins || e->view_arena[e->view_side ^ 1].used_bytes == 0);
    }
    asked++;
    return server_free_bytes;
}

/* One server adds the gradients of three others: it puts aside what they send, twice for two steps.
 * In half of its memory there is room for that, or for one step alone, or not for that either; so
 * in a second view. */
static void a_server_needs_memory(void **state)
{
    (void)state;
    enum { ASIDE = 3 * LIFE_TENSORS * 64 };
    static const struct {
        int64_t free_bytes;
        uint32_t depth; /* 0: refused */
    } cases[] = {{-1, 2}, {4 * ASIDE, 2}, {4 * ASIDE - 1, 1}, {ASIDE, 1}, {ASIDE - 1, 0}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        job j = {.servers = 1};
        ru_elastic_facts f, most = {0};
        server_free_bytes = cases[k].free_bytes;
        asks = &j;
        asked = 0;
        job_open(&j, 4, 12, 0);
        for (uint32_t i = 0; i < 4; i++) {
            j.l[i]->depth = 2;
            j.l[i]->elastic->opt.free_bytes = free_bytes;
        }
        while (!job_over(&j)) {
            assert_true(j.round < LIFE_ROUNDS);
            job_round(&j);
            ru_elastic_facts_get(j.l[0]->elastic, &f);
            most = f.server_bytes > 0 ? f : most;
            if (j.l[0]->committed == 3 && asked == 1) {
                ru_elastic_measure(j.l[0]->elastic); /* begins a view of the same members */
            }
        }
        assert_int_equal(asked, cases[k].depth > 0 ? 2 : 1);
        int64_t said = (int64_t)cases[k].depth * ASIDE;
        assert_int_equal(most.depth, cases[k].depth);
        assert_int_equal(most.server_said_bytes, said);
        assert_in_range(most.server_bytes, said, said + 2 * 3 * LIFE_TENSORS * 64);
        assert_int_equal(j.l[3]->status, cases[k].depth > 0 ? RU_OK : RU_E_CONFIG);
        assert_true(cases[k].depth > 0 ||
                    strstr(j.l[3]->sentence, "free memory, but a server") != NULL);
        assert_true(cases[k].depth != 1 || strstr(most.why, "half of a server's") != NULL);
        job_close(&j);
    }
}

RU_TESTS(train_elastic_life, cmocka_unit_test(a_server_needs_memory),
         cmocka_unit_test(test_collectives_are_measured_again),
         cmocka_unit_test(test_who_comes_later_is_measured_later),
         cmocka_unit_test(test_a_stay_begins_anew), cmocka_unit_test(test_who_said_the_end_leaves),
         cmocka_unit_test(test_the_end_takes_a_step_ahead_back),
         cmocka_unit_test(test_orders_of_gradients), cmocka_unit_test(test_shared_memory),
         cmocka_unit_test(test_words_lost_with_a_connection),
         cmocka_unit_test(test_the_end_is_asked_for),
         cmocka_unit_test(test_the_end_is_asked_for_before_joining),
         cmocka_unit_test(test_the_end_is_not_forgotten),
         cmocka_unit_test(test_no_memory_for_state), cmocka_unit_test(test_no_room_to_measure),
         cmocka_unit_test(test_who_leads_next_computes), cmocka_unit_test(test_opening),
         cmocka_unit_test(test_room_for_peers), cmocka_unit_test(test_room_for_served),
         cmocka_unit_test(test_alone), cmocka_unit_test(test_a_peer_that_takes_no_words),
         cmocka_unit_test(two_steps_put_more_aside))
