/* What the step machine does when something inside of it goes wrong, and what it decides by what it
 * measured: jobs of a few processes, and parts of it alone. */
#include <stdio.h>
#include <string.h>

#include "test/job/lives.h"
#include "test/test.h"
#include "train/elastic/elastic_impl.h"

static ru_elastic *elastic_of(const life *l)
{
    return l->elastic;
}

static void job_stall(job *j, bool stalls)
{
    for (uint32_t i = 0; i < j->n; i++) {
        j->l[i]->stalls = stalls ? LIFE_COMPUTED : LIFE_NOTHING;
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
        assert_ok(ru_coll_begin(elastic_of(l)->reduce.group, 0, 1, later, LIFE_TENSORS,
                                (ru_time){0}, ru_pipe_now(j.pipe), &err),
                  err);
        job_stall(&j, false);
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->status, j.l[i] == l ? RU_E_ARG : RU_OK);
            assert_int_equal(j.l[i]->committed, j.l[i] == l ? 0 : 6);
        }
        assert_int_equal(leads->went, 1);
        assert_non_null(strstr(l->sentence, "starting a sum of step 1"));
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
    job_rounds(&j, 400);
    assert_int_equal(j.l[0]->out + j.l[1]->out + j.l[2]->out, 0);
    assert_true(job_run(&j));
    assert_int_equal(j.l[2]->committed, 400);
    job_close(&j);
}

/* Every device can have two steps under way: each is DONE when the one before is committed and
 * kept, so the leader counts one at a time. One that cannot, or an option, leaves all with one. */
static void a_step_begins_before_the_commit(void **state)
{
    (void)state;
    static const char *const why[] = {"", "it is a test", "the job asks for it", "a plan says it"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(why); k++) {
        job j = {0};
        uint32_t two = 0;
        ru_err err = {0};
        job_open(&j, 3, 12, 0);
        ru_elastic *leads = elastic_of(j.l[0]);
        const ru_elastic_part all = {
            .n = 2, .size_bytes = leads->opt.tensor_bytes[0] + leads->opt.tensor_bytes[1]};
        if (k == 3) {
            assert_ok(ru_elastic_table_set(leads, &all, 1, 0, why[k], &err), err);
        }
        for (uint32_t i = 0; i < 3; i++) {
            j.l[i]->depth = k == 1 && i == 2 ? 1 : 2;
            elastic_of(j.l[i])->opt.barrier = k == 2 && i == 1;
        }
        for (uint32_t round = 0; !job_over(&j); round++) {
            assert_true(round < LIFE_ROUNDS);
            job_round(&j);
            for (uint32_t i = 0; i < 3; i++) {
                const ru_elastic *e = elastic_of(j.l[i]);
                two += e->steps.n == 2 ? 1 : 0;
                assert_true(e->steps.n < 2 || !e->steps.at[(e->step + 1) % 2].done_sent);
                assert_true(!e->steps.updating || !e->steps.at[e->step % 2].done_sent ||
                            e->steps.n == 0);
            }
        }
        ru_elastic_facts f;
        ru_elastic_facts_get(elastic_of(j.l[0]), &f);
        assert_int_equal(f.depth, k == 0 ? 2 : 1);
        assert_string_equal(f.why, why[k]);
        assert_true((two > 0) == (k == 0));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->committed, 12);
            assert_int_equal(j.l[i]->status, RU_OK);
        }
        assert_int_equal(f.redone, 0);
        job_close(&j);
    }
}

/* One of three dies while two steps are under way everywhere: the others abort both, or keep the
 * one that was committed, and come to the end. */
static void a_death_takes_both_steps_back(void **state)
{
    (void)state;
    uint32_t both = 0;
    for (uint32_t who = 0; who < 3; who++) {
        job j = {0};
        job_open(&j, 3, 12, 0);
        for (uint32_t i = 0; i < 3; i++) {
            j.l[i]->depth = 2;
        }
        for (uint32_t round = 0; elastic_of(j.l[who])->steps.n < 2; round++) {
            assert_true(round < LIFE_ROUNDS);
            job_round(&j);
        }
        dies(j.l[who]);
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 3; i++) {
            both += i != who && elastic_of(j.l[i])->redone == 2 ? 1 : 0;
            assert_int_equal(j.l[i]->committed, i == who ? j.l[i]->committed : 12);
        }
        job_close(&j);
    }
    assert_true(both > 0);
}

/* The sentence of who failed names the step that it failed at: one that was committed already, and
 * one that began ahead of it. */
static void a_failure_names_its_step(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        job j = {0};
        char want[64];
        job_open(&j, 3, 12, 0);
        life *l = j.l[1];
        ru_elastic *e = elastic_of(l);
        j.l[0]->depth = j.l[1]->depth = j.l[2]->depth = k == 0 ? 1 : 2;
        l->stalls = k == 0 ? LIFE_UPDATED : LIFE_NOTHING;
        while (k == 0 ? e->phase != RUI_EL_UPDATE : e->steps.n < 2) {
            assert_true(j.round < LIFE_ROUNDS);
            job_round(&j);
        }
        ru_time now = ru_pipe_now(j.pipe);
        ru_effects *fx = ru_node_enter(l->node, now);
        if (k == 0) {
            snprintf(want, sizeof want, "failed while updating after step 1");
            ru_elastic_updated(e, 0, RU_E_IO, now, fx);
        } else {
            snprintf(want, sizeof want, "failed while computing step %lld", (long long)e->step + 2);
            ru_elastic_computed(e, e->step + 1, RU_E_IO, 1, now, fx);
        }
        ru_node_leave(l->node, now);
        assert_true(l->ended);
        assert_int_equal(l->status, RU_E_IO);
        assert_non_null(strstr(l->sentence, want));
        job_close(&j);
    }
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
        life_stop(lies, true); /* so that its status is told */
        for (uint32_t round = 0; !other->ended; round++) {
            assert_true(round < LIFE_ROUNDS);
            job_round(&j);
        }
        assert_int_equal(other->committed, 0);
        assert_int_equal(other->status, liar == 1 ? RU_E_BUG : RU_E_PEER);
        assert_non_null(
            strstr(other->sentence, liar == 1 ? "does not match this worker" : "missed step 1"));
        job_close(&j);
    }
}

/* -- words ---------------------------------------------------------------------------------------
 */

/* A word of the epoch that `from` is in, and numbers after it, each so many bytes wide. */
typedef struct number {
    uint32_t bytes;
    uint64_t v;
} number;

static void say(const job *j, const life *from, const life *to, uint32_t what,
                const number *numbers, uint32_t n)
{
    uint8_t buf[256];
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u32(&w, elastic_of(from)->v.epoch);
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t b = 0; b < numbers[k].bytes; b++) {
            uint64_t rest = b < 8 ? numbers[k].v >> 8 * b : 0;
            ru_wire_put_u8(&w, (uint8_t)rest);
        }
    }
    assert_int_equal(ru_chan_message(ru_node_chan(from->node), to->id, what, buf, ru_wire_size(&w),
                                     ru_pipe_now(j->pipe)),
                     RU_OK);
}

static void job_ends_well(job *j)
{
    job_stall(j, false);
    assert_true(job_run(j));
    for (uint32_t i = 0; i < j->n; i++) {
        assert_int_equal(j->l[i]->status, RU_OK);
        assert_int_equal(j->l[i]->committed, j->l[i]->steps);
    }
    job_close(j);
}

/* Two sets of lanes need slots and streams: where channels like the leader's have too few, one step
 * is under way, whichever rank needs most of them: of a star its hub, whoever leads. */
static void two_steps_need_room_in_the_channel(void **state)
{
    (void)state;
    job j = {0};
    job_open_stalled(&j, 3, 6);
    ru_elastic *e = elastic_of(j.l[0]);
    assert_true(rui_el_room_for_two(e));
    ru_elastic_part large = {.n = 1, .size_bytes = 1 << 16};
    e->reduce.table = &large;
    e->reduce.n_table = 1;
    ru_coll_choice was = e->v.choice[0];
    e->v.choice[0].chunk_bytes = 4;
    e->v.choice[0].depth = 0;
    assert_false(rui_el_room_for_two(e));
    e->v.choice[0].depth = 4;
    assert_true(rui_el_room_for_two(e));
    e->v.choice[0] = was;
    e->reduce.table = NULL;
    ru_elastic_part many = {.n = 1, .size_bytes = 4 * 512};
    for (uint32_t i = 0; i < 3; i++) {
        e = elastic_of(j.l[i]);
        e->reduce.table = &many;
        e->reduce.n_table = 1;
        was = e->v.choice[0];
        e->v.choice[0] = (ru_coll_choice){.algo = RU_ALGO_HIERARCHY, .chunk_bytes = 4};
        assert_false(rui_el_room_for_two(e));
        e->v.choice[0] = was;
        e->reduce.table = NULL;
    }
    job_ends_well(&j);
}

/* A member's second DONE does not stand for another's, nor does one of another step. */
static void a_done_counts_once_and_for_its_step(void **state)
{
    (void)state;
    job j = {0};
    job_open_stalled(&j, 3, 6);
    const ru_elastic *e = elastic_of(j.l[1]);
    const ru_share *share = &e->v.at[e->v.me].share;
    for (uint64_t k = 0; k < 4; k++) {
        const number done[] = {{8, k == 0 ? 5 : 0},
                               {8, (uint64_t)share->first},
                               {8, (uint64_t)share->n},
                               {8, 1000000}};
        say(&j, j.l[1], j.l[0], RUI_EL_DONE_MSG, done, 4);
        job_rounds(&j, 400);
        assert_int_equal(elastic_of(j.l[0])->lead.n_done, k == 0 ? 0 : 1);
    }
    job_ends_well(&j);
}

/* DONE of a process: each sum took so long, and it computed as long; heard at once. */
static void hears_done(ru_elastic *e, uint64_t from, uint32_t took_ns, ru_time now)
{
    uint8_t buf[36 + 4 * RUI_EL_TOLD_MAX];
    ru_arena arena;
    ru_effects fx;
    ru_arena_init(&arena, 0);
    ru_effects_init(&fx, &arena);
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u32(&w, e->v.epoch);
    ru_wire_put_u64(&w, (uint64_t)e->step);
    ru_wire_put_u64(&w, 0);
    ru_wire_put_u64(&w, took_ns); /* samples */
    ru_wire_put_u64(&w, took_ns);
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        ru_wire_put_u32(&w, took_ns);
    }
    rui_el_hear(e,
                &(ru_event){.kind = RU_EV_MESSAGE,
                            .now = now,
                            .node = {from},
                            .what = RUI_EL_DONE_MSG,
                            .data = buf,
                            .size_bytes = ru_wire_size(&w)},
                &fx);
    ru_arena_fini(&arena);
}

/* A member's second DONE, and one of who is no member, change nothing that COMMIT tells, although
 * their sums were the shortest. */
static void only_the_first_done_of_members_is_told(void **state)
{
    (void)state;
    job j = {0};
    job_open_stalled(&j, 3, 6);
    ru_elastic *e = elastic_of(j.l[0]);
    ru_recorder *recorder = e->opt.recorder;
    uint64_t plan = e->reduce.sums.plan;
    e->opt.recorder = (ru_recorder *)e; /* there is one */
    e->reduce.sums.plan = 7;
    assert_true(e->reduce.n_buckets > 0);
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        e->reduce.buckets[b].told_ns = 900;
    }
    const struct {
        uint64_t from;
        uint32_t took_ns, n_done;
    } said[] = {{j.l[1]->id.v, 600, 1},
                {j.l[1]->id.v, 100, 1},
                {j.l[1]->id.v + 12345, 100, 1},
                {j.l[2]->id.v, 500, 2}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(said); k++) {
        hears_done(e, said[k].from, said[k].took_ns, ru_pipe_now(j.pipe));
        assert_int_equal(e->lead.n_done, said[k].n_done);
    }
    assert_int_equal(e->lead.longest_now_ns, 600);
    for (uint32_t i = 0; i < e->v.n; i++) {
        const rui_el_member *m = &e->v.at[i];
        assert_true(!ru_node_is(m->node, j.l[1]->id) || m->part_n == 600);
    }
    uint8_t buf[4 * RUI_EL_TOLD_MAX];
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    rui_el_sums_tell(e, &w); /* its own: 900 */
    ru_wire_in told = ru_wire_in_from(buf, ru_wire_size(&w));
    rui_el_sums_told(e, &told);
    w = ru_wire_out_into(buf, sizeof buf);
    rui_el_sums_least(e, &w);
    told = ru_wire_in_from(buf, ru_wire_size(&w));
    assert_int_equal(ru_wire_left(&told), 4 * e->reduce.n_buckets);
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        assert_int_equal(ru_wire_u32(&told), 500);
    }
    e->opt.recorder = recorder;
    e->reduce.sums.plan = plan;
    job_close(&j);
}

/* What a leader that is wrong says to a member in the middle of its step changes nothing. */
static void words_at_the_wrong_time_are_not_heard(void **state)
{
    (void)state;
    static const number none[] = {{8, 0}, {1, 0}}, bad_end[] = {{4, 9999}, {4, 0}};
    static const struct {
        uint32_t what;
        const number *numbers;
        uint32_t n;
    } words[] = {
        {RUI_EL_COMMIT_MSG, none, 2},     {RUI_EL_COMMIT_MSG, none, 0},
        {RUI_EL_GO_MSG, NULL, 0},         {RUI_EL_PROBE_MSG, NULL, 0},
        {RUI_EL_END_MSG, bad_end, 2},     {RUI_EL_END_MSG, bad_end, 1},
        {RUI_EL_READY_MSG, NULL, 0},      {RUI_EL_FAIL_MSG, bad_end, 2},
        {RUI_EL_PROBE_TURN_MSG, NULL, 0}, {RUI_EL_PROBE_TURN_MSG, none, 2},
    };
    job j = {0};
    job_open_stalled(&j, 3, 6);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        say(&j, j.l[0], j.l[1], words[k].what, words[k].numbers, words[k].n);
        say(&j, j.l[1], j.l[0], words[k].what, words[k].numbers, words[k].n);
        job_rounds(&j, 400);
        for (uint32_t i = 0; i < 3; i++) {
            assert_false(j.l[i]->ended);
            assert_int_equal(elastic_of(j.l[i])->phase, RUI_EL_STEP);
            assert_int_equal(elastic_of(j.l[i])->step, 0);
            assert_int_equal(j.l[i]->failing, 0);
        }
    }
    job_ends_well(&j);
}

/* Members measure turn after turn as the leader says, and nothing else that comes in its name makes
 * them end a phase. */
static void measuring_follows_the_turns_of_the_leader(void **state)
{
    (void)state;
    static const number wrong[][3] = {{{1, 1}, {1, 0}, {1, 1}}, {{1, 0}, {1, 7}, {1, 1}},
                                      {{1, 0}, {1, 0}, {1, 2}}, {{1, 9}, {1, 9}, {1, 0}},
                                      {{1, 0}, {1, 2}, {1, 0}}, {{1, 2}, {1, 2}, {1, 1}}};
    job j = {0};
    uint32_t said = 0, probed = 0;
    job_open(&j, 3, 6, 0);
    for (uint32_t k = 0; k < LIFE_ROUNDS && !job_over(&j); k++) {
        const ru_elastic *e = elastic_of(j.l[1]);
        const rui_el_probe *q = &e->reduce.probing;
        bool first = e->phase == RUI_EL_PROBE && q->phase == 0 && q->turn == 0 && !q->told;
        probed += e->phase == RUI_EL_PROBE ? 1 : 0;
        if (first && said < RU_ARRAY_LEN(wrong)) {
            say(&j, j.l[0], j.l[1], RUI_EL_PROBE_TURN_MSG, wrong[said++], 3);
        }
        job_round(&j);
    }
    assert_true(probed > 0);
    assert_int_equal(said, RU_ARRAY_LEN(wrong));
    assert_int_equal(elastic_of(j.l[0])->reduce.probed_n, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const rui_el_probe *q = &elastic_of(j.l[i])->reduce.probing;
        assert_memory_equal(q->turns, elastic_of(j.l[0])->reduce.probing.turns, sizeof q->turns);
        assert_true(q->turns[0] >= 1 && q->turns[2] >= 1);
        assert_int_equal(q->phase, RU_ARRAY_LEN(q->turns));
    }
    job_ends_well(&j);
}

/* A commit that says that a view follows holds its member back; a GO lets it go on without. */
static void a_member_that_is_held_is_let_go(void **state)
{
    (void)state;
    static const number commit[] = {{8, 0}, {1, 1}};
    job j = {0};
    job_open_stalled(&j, 2, 6);
    const ru_elastic *e = elastic_of(j.l[1]);
    elastic_of(j.l[0])->v.at[e->v.me].done = true; /* so that the leader does not say it */
    job_stall(&j, false);
    for (uint32_t round = 0; !e->steps.at[e->step % 2].done_sent; round++) {
        assert_true(round < LIFE_ROUNDS);
        job_round(&j);
    }
    job_stall(&j, true);
    say(&j, j.l[0], j.l[1], RUI_EL_COMMIT_MSG, commit, 2);
    job_rounds(&j, 400);
    assert_int_equal(e->phase, RUI_EL_IDLE);
    assert_int_equal(e->committed, 1);
    say(&j, j.l[0], j.l[1], RUI_EL_GO_MSG, NULL, 0);
    job_rounds(&j, 400);
    assert_int_equal(e->phase, RUI_EL_STEP);
    assert_int_equal(e->step, 1);
    job_close(&j);
}

/* The end comes while the device updates: the member ends with all of its last step. */
static void the_end_waits_for_the_update(void **state)
{
    (void)state;
    job j = {0};
    job_open_stalled(&j, 2, 1);
    job_stall(&j, false);
    j.l[1]->stalls = LIFE_UPDATED;
    job_rounds(&j, 2000);
    assert_int_equal(j.l[1]->committed, 1);
    assert_true(elastic_of(j.l[1])->ending);
    assert_false(j.l[1]->ended);
    job_ends_well(&j);
}

/* READY of a view that its leader is about to put in force is kept: one of each member, and none
 * that is longer than one can be. */
static void early_words_are_kept_one_of_each(void **state)
{
    (void)state;
    static const number layout[] = {{8, 1}, {4, 0}}, large[] = {{230, 1}};
    job j = {0};
    job_open_stalled(&j, 3, 6);
    ru_elastic *e = elastic_of(j.l[0]);
    e->v.epoch--; /* as if its device still updated */
    say(&j, j.l[2], j.l[0], RUI_EL_READY_MSG, large, 1);
    say(&j, j.l[1], j.l[0], RUI_EL_READY_MSG, layout, 2);
    say(&j, j.l[1], j.l[0], RUI_EL_READY_MSG, layout, 2);
    say(&j, j.l[1], j.l[0], RUI_EL_REDO_MSG, layout, 2);
    job_rounds(&j, 400);
    assert_int_equal(e->lead.early.n, 1);
    say(&j, j.l[2], j.l[0], RUI_EL_READY_MSG, layout, 2);
    job_rounds(&j, 400);
    assert_int_equal(e->lead.early.n, 2);
    assert_true(ru_node_is(e->lead.early.at[0].from, j.l[1]->id));
    assert_true(ru_node_is(e->lead.early.at[1].from, j.l[2]->id));
    e->v.epoch++;
    job_ends_well(&j);
}

/* What `from` says of an epoch, heard at once. */
static void hear(ru_elastic *e, uint64_t from, uint32_t what, uint32_t epoch, ru_time now,
                 ru_effects *fx)
{
    static const uint8_t zeros[16] = {0};
    uint8_t buf[32];
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u32(&w, epoch);
    ru_wire_put_bytes(&w, zeros, sizeof zeros);
    rui_el_hear(e,
                &(ru_event){.kind = RU_EV_MESSAGE,
                            .now = now,
                            .node = {from},
                            .what = what,
                            .data = buf,
                            .size_bytes = ru_wire_size(&w)},
                fx);
}

/* Who missed its leader hears its commit when it comes after all: it may be all that is left of it.
 * Not when it promised a successor to follow him: that one counts on the status it was told. */
static void a_promise_is_kept(void **state)
{
    (void)state;
    for (uint32_t promised = 0; promised < 2; promised++) {
        job j = {0};
        job_open_stalled(&j, 3, 6);
        ru_elastic *e = elastic_of(j.l[1]);
        elastic_of(j.l[0])->v.at[e->v.me].done = true; /* so that the leader does not say it */
        job_stall(&j, false);
        for (uint32_t round = 0; !e->steps.at[e->step % 2].done_sent; round++) {
            assert_true(round < LIFE_ROUNDS);
            job_round(&j);
        }
        ru_arena arena;
        ru_effects fx;
        ru_arena_init(&arena, 0);
        ru_effects_init(&fx, &arena);
        life_misses_leader(j.l[1], promised ? j.l[2]->id : (ru_node_id){0});
        hear(e, j.l[0]->id.v, RUI_EL_COMMIT_MSG, e->v.epoch, ru_pipe_now(j.pipe), &fx);
        assert_int_equal(e->committed, promised ? 0 : 1);
        ru_arena_fini(&arena);
        job_close(&j);
    }
}

/* More of them than there is room for at first; who says words of an epoch that is over and is no
 * member is told at once and then once a minute. */
static void many_early_words_and_those_of_strangers(void **state)
{
    (void)state;
    enum { MANY = 40 };
    job j = {0};
    job_open_stalled(&j, 2, 6);
    ru_elastic *e = elastic_of(j.l[0]);
    ru_arena arena;
    ru_effects fx;
    ru_arena_init(&arena, 0);
    ru_effects_init(&fx, &arena);
    uint32_t epoch = e->v.epoch--;
    for (uint64_t k = 0; k < MANY; k++) {
        hear(e, 100 + k, RUI_EL_READY_MSG, epoch, (ru_time){1}, &fx);
    }
    assert_int_equal(e->lead.early.n, MANY);
    for (uint64_t k = 0; k < MANY; k++) {
        assert_int_equal(e->lead.early.at[k].from.v, 100 + k);
    }
    e->v.epoch++;
    e->lead.early.n = 0;
    assert_int_equal(fx.n, 0);
    static const struct {
        uint64_t from;
        uint32_t after; /* epochs */
        int64_t s;
        uint32_t refused, lines;
    } words[] = {{2, 0, 1, 0, 0},   {99, 1, 1, 0, 0},  {99, 0, 1, 1, 1},
                 {99, 0, 60, 2, 1}, {98, 0, 61, 3, 2}, {99, 0, 62, 4, 2}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        hear(e, words[k].from, RUI_EL_READY_MSG, words[k].after > 0 ? epoch + 1 : epoch - 1,
             (ru_time){words[k].s * 1000000000}, &fx);
        assert_int_equal(e->lead.n_refused, words[k].refused);
        assert_int_equal(fx.n, words[k].lines);
    }
    ru_arena_fini(&arena);
    job_ends_well(&j);
}

/* -- the choice of collectives -------------------------------------------------------------------
 */

enum { CHOICES = 2 };

static ru_coll_cost cost_of(double step_ns, double byte_ns)
{
    return (ru_coll_cost){.alpha_ns = step_ns, .beta_ns = byte_ns, .gamma_ns = 0.25, .n_points = 2};
}

static void choose(ru_elastic *e, uint32_t n, uint32_t n_parts, ru_coll_choice into[CHOICES])
{
    const ru_elastic_part parts[CHOICES] = {{.size_bytes = 4096}, {.size_bytes = 4 << 20}};
    ru_arena arena;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    rui_el_view v = {.n = n};
    assert_ok(rui_el_choose(e, &v, parts, n_parts, &arena, NULL, &err), err);
    memcpy(into, v.choice, n_parts * sizeof *into);
    ru_arena_fini(&arena);
}

/* A table that the leader's owner makes is everybody's from the next view on, with its algorithms:
 * nothing is lost by it, the sums are the same. One that lacks a byte is refused. */
static void a_table_of_the_owner_is_everybodys(void **state)
{
    (void)state;
    job j = {0};
    ru_err err = {0};
    job_open_stalled(&j, 3, 6);
    ru_elastic *e = elastic_of(j.l[0]);
    const int64_t *n = e->opt.tensor_bytes;
    const ru_elastic_part apart[] = {{0, 1, 0, 4, 2}, {0, 1, 4, n[0] - 4, 6}, {1, 1, 0, n[1], 0}};
    assert_int_equal(ru_elastic_table_set(e, apart, 2, 0, NULL, &err), RU_E_DATA);
    assert_int_equal(ru_elastic_table_set(e, apart + 1, 2, 0, NULL, &err), RU_E_DATA);
    uint32_t epoch = e->v.epoch;
    assert_ok(ru_elastic_table_set(e, apart, 3, 0, NULL, &err), err);
    assert_int_equal(e->reduce.n_buckets, 1); /* of this step, still */
    job_stall(&j, false);
    assert_true(job_run(&j));
    for (uint32_t i = 0; i < 3; i++) {
        const ru_elastic *at = elastic_of(j.l[i]);
        assert_true(at->v.epoch == epoch + 1 && at->reduce.n_buckets == 3);
        assert_true(at->v.choice[0].algo == RU_ALGO_HALVING);
        assert_true(at->v.choice[1].algo == RU_ALGO_DIRECT);
        assert_true(j.l[i]->status == RU_OK && j.l[i]->committed == 6);
    }
    job_close(&j);
}

/* Costs count for as many members as measured them; of several sums only two add by the star. */
static void costs_count_for_those_who_measured_them(void **state)
{
    (void)state;
    ru_coll_choice at[CHOICES], without[CHOICES];
    ru_elastic e = {.reduce.probed_n = 2};
    choose(&e, 70, CHOICES, without);
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        e.reduce.costs[a] = a == RU_ALGO_HIERARCHY ? cost_of(1, 1e-6) : cost_of(1e7, 10);
    }
    choose(&e, 2, CHOICES, at);
    assert_true(at[0].algo == RU_ALGO_HIERARCHY && at[1].algo == RU_ALGO_HIERARCHY);
    choose(&e, 3, 1, at);
    assert_true(at[0].algo != RU_ALGO_HIERARCHY);
    e.reduce.probed_n = 3;
    choose(&e, 3, 1, at);
    assert_int_equal(at[0].algo, RU_ALGO_HIERARCHY);
    choose(&e, 3, CHOICES, at);
    assert_true(at[0].algo != RU_ALGO_HIERARCHY && at[1].algo != RU_ALGO_HIERARCHY);
    choose(&e, 70, CHOICES, at);
    for (uint32_t b = 0; b < CHOICES; b++) {
        assert_int_equal(at[b].algo, without[b].algo);
        assert_int_equal(at[b].predicted_ns, without[b].predicted_ns);
    }
    e.reduce.costs[RU_ALGO_HIERARCHY].n_points = 0;
    choose(&e, 3, 1, at);
    assert_true(at[0].algo != RU_ALGO_HIERARCHY);
}

/* Who is started with a rank has its number, in whatever order the processes come. */
static void ranks_are_numbers(void **state)
{
    (void)state;
    static const uint32_t ranks[][4] = {{1, 4, 2, 3}, {1, 2, 3, 4}, {1, 4, 3, 2}, {1, 3, 4, 2}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ranks); k++) {
        job j = {.begin = 4};
        memcpy(j.numbers, ranks[k], sizeof ranks[k]);
        job_open(&j, 4, 12, 0);
        assert_true(job_run(&j));
        const ru_view *v = ru_member_view(ru_node_member(j.l[0]->node));
        assert_int_equal(v->n, 4);
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(j.l[i]->committed, 12);
            assert_int_equal(v->at[ranks[k][i] - 1].number, ranks[k][i]);
            assert_int_equal(v->at[ranks[k][i] - 1].node.v, j.l[i]->id.v);
        }
        job_close(&j);
    }
}

/* Somebody died, fewer than the least are left, and somebody new is ready before the leader's
 * device has let go of the step: it is let in when the leader gets to the view that pauses the job.
 */
static void who_comes_before_the_pause_is_let_in(void **state)
{
    (void)state;
    static const life_todo busy[] = {LIFE_ABORTED, LIFE_UPDATED};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(busy); k++) {
        job j = {.least = 2};
        job_open_stalled(&j, 2, 6);
        j.l[0]->stalls = busy[k];
        j.l[1]->stalls = busy[k] == LIFE_UPDATED ? LIFE_NOTHING : LIFE_COMPUTED;
        job_rounds(&j, 200);
        dies(j.l[1]);
        j.joins = j.round + 1;
        job_rounds(&j, 3000);
        assert_int_equal(j.n, 3);
        assert_false(j.l[0]->ended);
        j.l[0]->stalls = LIFE_NOTHING;
        assert_true(job_run(&j));
        assert_int_equal(j.l[0]->committed, 6);
        assert_int_equal(j.l[2]->committed, 6);
        job_close(&j);
    }
}

RU_TESTS(
    train_elastic, cmocka_unit_test(a_step_begins_before_the_commit),
    cmocka_unit_test(a_death_takes_both_steps_back), cmocka_unit_test(a_failure_names_its_step),
    cmocka_unit_test(two_steps_need_room_in_the_channel),
    cmocka_unit_test(only_the_first_done_of_members_is_told),
    cmocka_unit_test(who_comes_before_the_pause_is_let_in), cmocka_unit_test(ranks_are_numbers),
    cmocka_unit_test(a_sum_that_cannot_begin), cmocka_unit_test(shares_follow_measured_speed),
    cmocka_unit_test(a_newcomer_works_when_it_can), cmocka_unit_test(who_dies_is_only_lost),
    cmocka_unit_test(a_commit_that_was_none), cmocka_unit_test(a_done_counts_once_and_for_its_step),
    cmocka_unit_test(words_at_the_wrong_time_are_not_heard),
    cmocka_unit_test(measuring_follows_the_turns_of_the_leader),
    cmocka_unit_test(a_member_that_is_held_is_let_go),
    cmocka_unit_test(the_end_waits_for_the_update),
    cmocka_unit_test(early_words_are_kept_one_of_each),
    cmocka_unit_test(many_early_words_and_those_of_strangers), cmocka_unit_test(a_promise_is_kept),
    cmocka_unit_test(costs_count_for_those_who_measured_them),
    cmocka_unit_test(a_table_of_the_owner_is_everybodys))
