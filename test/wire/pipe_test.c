/* The members of a pipeline in the simulator: each piece goes through all stages once (after a cut
 * one may overtake another), what the leader decides comes to all in its order, and whoever
 * crashes, freezes, is cut off or comes back without what was on its way, all who live learn of the
 * end. */
#include "train/pipe/pipe.h"

#include <stdio.h>
#include <string.h>

#include "base/wire.h"
#include "sim/process.h"
#include "test/test.h"

enum { STAGES = 4, SPARES = 2, PIECES = 200, AHEAD = 3, SEEDS = 60, TIMES = 3 };

typedef struct world {
    ru_sim *sim;
    uint32_t spares;  /* of the stages that are those of who joins later */
    uint32_t waiting; /* as the leader was told */
    bool missing;     /* ... that only those are not there */
    bool babbles;     /* stage 1 says anything to anybody */
    bool failed;      /* ... also that it failed */
    struct process {
        struct world *world;
        ru_sim_process process;
        ru_node *node;
        ru_pipe *pipe;
        char address[32];
        uint32_t stage, arrived, decided, forwarded;
        bool there[PIECES], gone[PIECES]; /* arrived; sent */
        ru_node_id id;
        bool viewed, ended;
        ru_status status;
        char text[256];
        uint64_t in[AHEAD], out[PIECES];
    } at[STAGES + SPARES];
} world;

/* Link k leads from stage k to stage k + 1. */
static const ru_pipe_link links[STAGES - 1] = {
    {.from = 0, .to = 1}, {.from = 1, .to = 2, .urgent = true}, {.from = 2, .to = 3}};

static void post(struct process *p, uint32_t number, ru_time now, ru_effects *fx)
{
    if (number >= PIECES) {
        return;
    }
    ru_pipe_post(p->pipe, p->stage - 1, number,
                 (ru_span){.data = &p->in[number % AHEAD], .size_bytes = 8}, now, fx);
}

static void forward(struct process *p, uint32_t number, uint64_t value, ru_time now, ru_effects *fx)
{
    p->out[number] = value;
    p->forwarded++;
    ru_pipe_send(p->pipe, p->stage, number, (ru_span){.data = &p->out[number], .size_bytes = 8},
                 now, fx);
}

/* As many as the next stage has places for: a piece whose place an earlier one still has would
 * wait at the head of its connection, which after a cut brings the newest first. */
static void feed(struct process *p, ru_time now, ru_effects *fx)
{
    while (p->forwarded < PIECES && (p->forwarded < AHEAD || p->gone[p->forwarded - AHEAD])) {
        forward(p, p->forwarded, 100 * (uint64_t)p->forwarded, now, fx);
    }
}

/* Any bytes, or a status and a text, as any message of the part, to any member. All are there. */
static void babble(struct process *p, ru_effects *fx)
{
    enum { FAIL = RU_NODE_WHAT_FIRST + 4, KINDS = 7, LONG = 1200 };
    uint8_t bytes[LONG];
    ru_rng *rng = ru_sim_rng(p->world->sim);
    uint32_t n = ru_rng_below(rng, LONG), what = RU_NODE_WHAT_FIRST + ru_rng_below(rng, KINDS);
    bool formed = ru_rng_below(rng, 2) == 0;
    for (uint32_t k = 0; k < n; k++) {
        bytes[k] = (uint8_t)ru_rng_u32(rng);
    }
    if (formed) {
        ru_wire_out w = ru_wire_out_into(bytes, sizeof bytes);
        ru_wire_put_u32(&w, ru_rng_below(rng, 100));
        ru_wire_put_text(&w, "tired", 5);
        n = (uint32_t)ru_wire_size(&w);
    }
    if (what == FAIL && ru_rng_below(rng, 20) > 0) { /* seldom: all end */
        return;
    }
    p->world->failed = p->world->failed || what == FAIL;
    const struct process *to = &p->world->at[ru_rng_below(rng, STAGES)];
    if (to != p) {
        ru_fx_send(fx, to->id, what, bytes, n);
    }
}

static void arrived(struct process *p, uint32_t number, ru_time now, ru_effects *fx)
{
    uint64_t value = p->in[number % AHEAD];
    p->arrived++;
    assert_true(number < PIECES && !p->there[number]);
    p->there[number] = true;
    assert_int_equal(value, 100 * (uint64_t)number + p->stage - 1);
    if (p->world->babbles && p->stage == 1) {
        babble(p, fx);
    }
    if (p->stage + 1 < STAGES) {
        forward(p, number, value + 1, now, fx);
        return;
    }
    post(p, number + AHEAD, now, fx);
    const uint32_t decided = p->arrived - 1;
    ru_pipe_decide(p->pipe, &decided, sizeof decided, now, fx);
    if (p->arrived == PIECES) {
        ru_pipe_end(p->pipe, RU_OK, "done", now, fx);
    }
}

static void news(void *self, const ru_pipe_news *n, ru_time now)
{
    struct process *p = self;
    uint32_t number;
    ru_effects *fx = ru_node_enter(p->node, now);
    switch (n->what) {
    case RU_PIPE_VIEW:
        p->viewed = true;
        assert_int_equal(n->b, 77); /* the leader says it to all */
        p->stage = (uint32_t)n->a;
        ru_pipe_links(p->pipe, links, STAGES - 1);
        for (uint32_t k = 0; k < AHEAD && p->stage > 0; k++) {
            post(p, k, now, fx);
        }
        ru_pipe_ready(p->pipe, now, fx);
        break;
    case RU_PIPE_GO:
        if (p->stage == 0) {
            feed(p, now, fx);
        }
        break;
    case RU_PIPE_SENT:
        p->gone[n->b] = true;
        if (p->stage == 0) {
            feed(p, now, fx);
        } else { /* its place is free */
            post(p, (uint32_t)n->b + AHEAD, now, fx);
        }
        break;
    case RU_PIPE_ARRIVED:
        arrived(p, (uint32_t)n->b, now, fx);
        break;
    case RU_PIPE_DECIDED:
        assert_int_equal(n->a, sizeof number);
        memcpy(&number, n->data, sizeof number);
        assert_int_equal(number, p->decided++);
        break;
    case RU_PIPE_STOP:
        break;
    case RU_PIPE_SPARES:
        p->world->waiting = (uint32_t)n->a;
        p->world->missing = p->world->missing || !p->viewed;
        break;
    case RU_PIPE_ENDED:
        assert_false(p->ended);
        p->ended = true;
        p->status = n->status;
        snprintf(p->text, sizeof p->text, "%s", n->text != NULL ? n->text : "");
        break;
    }
    ru_node_leave(p->node, now);
}

static void fire(void *self, uint32_t what, ru_time now)
{
    ru_node_timer(((struct process *)self)->node, what, now);
}

static void begin(void *self, uint64_t arg)
{
    (void)arg;
    struct process *p = self;
    ru_node_start(p->node, ru_sim_now(p->world->sim));
}

static void add(world *w, uint32_t k, bool later)
{
    struct process *p = &w->at[k];
    const ru_node_id self = {ru_rng_u64(ru_sim_rng(w->sim)) | 1};
    ru_err err;
    p->world = w;
    p->id = self;
    snprintf(p->address, sizeof p->address, "10.0.0.%u:7", k);
    assert_ok(ru_sim_process_open(&p->process, w->sim, p->address, &(ru_sim_nic){0}, fire, p, &err),
              err);
    ru_node_options o = {
        .chan = {.self = self,
                 .address = p->address,
                 .job = 1,
                 .token = (const uint8_t *)"a token of a pipeline, 32 bytes.",
                 .token_bytes = 32,
                 .peers_max = 2 * STAGES,
                 .streams_max = 64,
                 .slots_max = 64},
        .link = p->process.link,
        .member = {.join = k == 0 ? NULL : w->at[0].address, .n_max = STAGES + SPARES},
        .timers = {ru_sim_process_timer, ru_sim_process_timer_off, &p->process},
    };
    /* A cut of 0.5 s, with those before and a beat before them, and 0.2 s until the kernel sends
     * again: nobody is lost by it. */
    o.member.dead_ns = 1000000000;
    o.member.self.node = self;
    o.member.self.number = later ? RU_MEMBER_LATER : 0;
    snprintf(o.member.self.address, sizeof o.member.self.address, "%s", p->address);
    assert_ok(ru_node_open(&o, &p->process.arena, &p->node, &err), err);
    ru_sim_process_user(&p->process, ru_node_link_user(p->node));
    const ru_pipe_options po = {.node = p->node,
                                .self = self,
                                .n = STAGES,
                                .spares = w->spares,
                                .after = 77,
                                .news = news,
                                .news_self = p};
    assert_ok(ru_pipe_open(&po, &p->process.arena, &p->pipe, &err), err);
    ru_sim_process_at(&p->process, ru_sim_now(w->sim), begin, p, 0);
}

typedef struct oddity {
    bool babbles;           /* stage 1 */
    uint32_t forgets, whom; /* processes; the same: none */
    ru_time at;
} oddity;

/* Both live, and connect again. */
static void forget(void *self, uint64_t whom)
{
    struct process *p = self;
    ru_time now = ru_sim_now(p->world->sim);
    (void)ru_node_enter(p->node, now);
    ru_chan_refuse(ru_node_chan(p->node), p->world->at[whom].id, "it is forgotten", now);
    ru_node_leave(p->node, now);
}

/* How many of the living ended well. */
static uint32_t run_seed(uint64_t seed, const ru_sim_chaos *chaos, uint64_t *hash, uint32_t more,
                         uint32_t spares, const oddity *odd)
{
    static world w;
    ru_err err;
    uint32_t all = STAGES + more - spares;
    memset(&w, 0, sizeof w);
    w.spares = spares;
    w.babbles = odd != NULL && odd->babbles;
    const ru_sim_options so = {.seed = seed, .nodes_max = STAGES + SPARES};
    assert_ok(ru_sim_open(&so, &w.sim, &err), err);
    for (uint32_t k = 0; k < all; k++) {
        add(&w, k, k >= STAGES - spares);
    }
    if (odd != NULL && odd->forgets != odd->whom) {
        struct process *p = &w.at[odd->forgets];
        ru_sim_process_at(&p->process, odd->at, forget, p, odd->whom);
    }
    if (chaos != NULL) {
        ru_sim_chaos_start(w.sim, chaos);
    }
    assert_ok(ru_sim_run(w.sim, (ru_time){INT64_C(60000000000)}, &err), err);
    uint32_t well = 0;
    for (uint32_t k = 0; k < all; k++) {
        const struct process *p = &w.at[k];
        if (chaos == NULL && !p->viewed) { /* it waited, and hears of the end */
            assert_true(p->ended && p->status == RU_OK);
            well++;
        }
        if (!ru_sim_alive(w.sim, p->process.node) || !p->viewed) {
            continue;
        }
        if (!p->ended) {
            fail_msg("seed %llu: process %u, stage %u, waits for ever (%u arrived, %u decided)",
                     (unsigned long long)seed, k, p->stage, p->arrived, p->decided);
        }
        bool leads = p->stage + 1 == STAGES;
        assert_true(p->status == RU_OK ? leads || p->decided == PIECES : p->text[0] != 0);
        well += p->status == RU_OK;
    }
    assert_true(!w.babbles || w.failed || well == STAGES);
    *hash = ru_sim_hash(w.sim);
    assert_true(chaos != NULL || (w.waiting == all - STAGES && w.missing == (spares > 0)));
    for (uint32_t k = 0; k < all; k++) {
        ru_node_close(w.at[k].node);
    }
    ru_sim_close(w.sim);
    for (uint32_t k = 0; k < all; k++) {
        ru_sim_process_fini(&w.at[k].process);
    }
    return well;
}

static void pieces_go_through(void **state)
{
    (void)state;
    uint64_t first, again;
    assert_int_equal(run_seed(3, NULL, &first, 0, 0, NULL), STAGES);
    assert_int_equal(run_seed(3, NULL, &again, 0, 0, NULL), STAGES);
    assert_true(first == again);
}

/* Links that are cut for half a second, all within 0.56 s, cost nothing. */
static void short_cuts_are_mended(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= SEEDS; k++) {
        uint64_t hash, seed = ru_test_seed() + k;
        const ru_sim_chaos c = {
            .cut_per_s = 30, .cut_max_ns = 500000000, .jitter_ns = 2000000, .until = {60000000}};
        assert_int_equal(run_seed(seed, &c, &hash, 0, 0, NULL), STAGES);
    }
}

static void all_who_live_learn_of_the_end(void **state)
{
    (void)state;
    uint32_t well = 0;
    for (uint64_t k = 1; k <= SEEDS; k++) {
        uint64_t hash, seed = ru_test_seed() + k;
        const ru_sim_chaos c = {.crash_per_s = 20,
                                .freeze_per_s = 10,
                                .cut_per_s = 20,
                                .jitter_ns = 1000000,
                                .keep_alive = 1,
                                .until = {1000000000}};
        well += run_seed(seed, &c, &hash, 0, 0, NULL) == STAGES;
    }
    assert_true(well < SEEDS); /* some were disturbed */
}

/* A member that says anything at any time ends nobody, unless it says that it failed. */
static void words_that_make_no_sense_do_no_harm(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= SEEDS; k++) {
        uint64_t hash;
        (void)run_seed(ru_test_seed() + k, NULL, &hash, 0, 0, &(oddity){.babbles = true});
    }
}

/* What was on its way between two is lost with their session. That they reach each other again
 * must not let anybody wait for it. */
static void who_comes_back_without_all_ends_the_job(void **state)
{
    (void)state;
    uint32_t ill = 0;
    for (uint32_t k = 0; k < STAGES * STAGES * TIMES; k++) {
        uint64_t hash;
        const oddity odd = {.forgets = k / STAGES % STAGES,
                            .whom = k % STAGES,
                            .at = {(1 + k / (STAGES * STAGES)) * INT64_C(500000)}};
        bool all = run_seed(ru_test_seed() + k, NULL, &hash, 0, 0, &odd) == STAGES;
        assert_true(all || odd.forgets != odd.whom);
        ill += !all;
    }
    assert_true(ill > 0);
}

/* Who joins later has no stage unless it takes one of those that are missing from the start. */
static void spares_wait_or_take_places(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        uint64_t hash;
        assert_int_equal(run_seed(seed, NULL, &hash, 2, 0, NULL), STAGES + 2); /* two wait */
        assert_int_equal(run_seed(seed, NULL, &hash, 1, 1, NULL), STAGES);     /* one is missing */
        assert_int_equal(run_seed(seed, NULL, &hash, 3, 2, NULL),
                         STAGES + 1); /* two are, of three */
    }
}

RU_TESTS(test_pipe, cmocka_unit_test(pieces_go_through),
         cmocka_unit_test(spares_wait_or_take_places), cmocka_unit_test(short_cuts_are_mended),
         cmocka_unit_test(all_who_live_learn_of_the_end),
         cmocka_unit_test(who_comes_back_without_all_ends_the_job),
         cmocka_unit_test(words_that_make_no_sense_do_no_harm))
