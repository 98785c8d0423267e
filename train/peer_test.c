/* A worker for whom memory ends at any point: it opens or says so, it ends or goes on, and gives
 * all back. And one whose peer takes no words any more. */
#include "train/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/pipe.h"
#include "test/test.h"

enum { TIMERS = 64, TENSORS = 2, STEPS = 3, ROUNDS = 200000 };

typedef enum todo { NOTHING, BUILT, COMPUTED, ABORTED, UPDATED } todo;

/* One process of a job: the first founds it, others join it. */
typedef struct life {
    ru_pipe *pipe;
    uint32_t founders;
    ru_node_id id;
    char address[8];
    ru_arena arena;
    ru_peer *peer;
    uint32_t node, what[TIMERS];
    ru_time at[TIMERS]; /* ns 0: off */
    todo next;
    float gradients[TENSORS][16];
    int64_t committed;
    bool ended;
    ru_status status;
    uint32_t cut_off; /* lines that say so */
} life;

static const int64_t tensor_bytes[TENSORS] = {64, 64};

static void timer_set(void *self, uint32_t what, ru_time at)
{
    life *l = self;
    uint32_t k = 0;
    while (k < TIMERS && l->what[k] != what && l->at[k].ns != 0) {
        k++;
    }
    RU_CHECK(k < TIMERS);
    l->what[k] = what;
    l->at[k] = at;
}

static void timer_off(void *self, uint32_t what)
{
    life *l = self;
    for (uint32_t k = 0; k < TIMERS; k++) {
        l->at[k].ns = l->what[k] == what ? 0 : l->at[k].ns;
    }
}

static void dev_build(void *self, const ru_share *share, bool plain)
{
    (void)share, (void)plain;
    ((life *)self)->next = BUILT;
}

static void dev_step(void *self, int64_t step, const ru_share *share)
{
    (void)step, (void)share;
    ((life *)self)->next = COMPUTED;
}

static void dev_abort(void *self)
{
    ((life *)self)->next = ABORTED;
}

static void dev_update(void *self, int64_t step)
{
    (void)step;
    ((life *)self)->next = UPDATED;
}

static const ru_elastic_device_ops device = {
    .name = "test", .build = dev_build, .step = dev_step, .abort = dev_abort, .update = dev_update};

static void on_news(void *self, const ru_elastic_news *news, ru_time now)
{
    (void)now;
    life *l = self;
    l->committed = news->what == RU_ELASTIC_COMMITTED ? news->step : l->committed;
    if (news->what == RU_ELASTIC_ENDED) {
        l->ended = true;
        l->status = news->status;
    }
}

static void on_log(void *self, int level, const char *line, ru_time now)
{
    (void)level, (void)now;
    ((life *)self)->cut_off += strstr(line, "is cut off: it takes no control messages") != NULL;
}

static ru_status open_peer(life *l, ru_err *err)
{
    static const uint8_t token[32] = "a token of this test, 32 bytes.";
    ru_peer_options o = {
        .chan = {.self = l->id,
                 .address = l->address,
                 .job = 1,
                 .token = token,
                 .token_bytes = sizeof token,
                 .peers_max = 4,
                 .streams_max = 64,
                 .slots_max = 64},
        .link = ru_pipe_link(l->pipe, l->node),
        .member = {.self = {.node = l->id, .capacity = 1},
                   .join = l->id.v > 1 ? "p1:1" : NULL,
                   .n_max = 4},
        .elastic = {.device = {&device, l},
                    .news = on_news,
                    .news_self = l,
                    .batch = 8,
                    .founders = l->founders,
                    .steps_end = STEPS,
                    .tensor_bytes = tensor_bytes,
                    .n_tensors = TENSORS,
                    .state_bytes = tensor_bytes,
                    .n_state = TENSORS},
        .timers = {.set = timer_set, .off = timer_off, .self = l},
        .log = on_log,
        .log_self = l,
    };
    memcpy(o.member.self.address, l->address, sizeof l->address);
    return ru_peer_open(&o, &l->arena, &l->peer, err);
}

static void answer(life *l, ru_time now)
{
    todo what = l->next;
    l->next = NOTHING;
    switch (what) {
    case NOTHING:
        break;
    case BUILT:
        ru_peer_built(l->peer, RU_OK, 1, now);
        break;
    case COMPUTED:
        for (uint32_t k = 0; k < TENSORS; k++) {
            ru_peer_ready(l->peer, k, &(ru_span){l->gradients[k], tensor_bytes[k]}, now);
        }
        ru_peer_computed(l->peer, RU_OK, 1000000, now);
        break;
    case ABORTED:
        ru_peer_aborted(l->peer, now);
        break;
    case UPDATED:
        ru_peer_updated(l->peer, RU_OK, now);
        break;
    }
}

static void be_on_time(life *l)
{
    ru_time now = ru_pipe_now(l->pipe);
    for (uint32_t k = 0; k < TIMERS; k++) {
        if (l->at[k].ns != 0 && l->at[k].ns <= now.ns) {
            l->at[k].ns = 0;
            ru_peer_timer(l->peer, l->what[k], now);
        }
    }
    answer(l, now);
}

static void move(ru_pipe *pipe)
{
    if (!ru_pipe_step(pipe)) {
        ru_pipe_wait(pipe, 1000000);
    }
}

static void live(life *l)
{
    ru_peer_start(l->peer, ru_pipe_now(l->pipe));
    for (uint32_t round = 0; round < ROUNDS && !l->ended; round++) {
        move(l->pipe);
        be_on_time(l);
    }
}

static life *life_new(ru_pipe *pipe, uint64_t id, uint32_t founders)
{
    life *l = calloc(1, sizeof *l);
    RU_CHECK(l != NULL);
    l->pipe = pipe;
    l->founders = founders;
    l->id.v = id;
    snprintf(l->address, sizeof l->address, "p%u:1", (uint32_t)id);
    l->node = ru_pipe_node(l->pipe, l->address);
    ru_arena_init(&l->arena, 0);
    return l;
}

static ru_pipe *pipe_new(void)
{
    return ru_pipe_new(&(ru_pipe_options){.seed = 1});
}

static void life_free(life *l)
{
    ru_peer_close(l->peer);
    ru_arena_fini(&l->arena);
    free(l);
}

static void test_opening(void **state)
{
    (void)state;
    bool opened = false;
    for (int64_t k = 0; !opened; k++) {
        assert_true(k < 1000);
        ru_pipe *pipe = pipe_new();
        life *l = life_new(pipe, 1, 1);
        ru_err err = {0};
        ru_test_alloc_fail(k);
        ru_status st = open_peer(l, &err);
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

/* The same process with all memory there: trains alone to the end. */
static void test_alone(void **state)
{
    (void)state;
    ru_pipe *pipe = pipe_new();
    life *l = life_new(pipe, 1, 1);
    ru_err err = {0};
    assert_ok(open_peer(l, &err), err);
    ru_pipe_user(l->pipe, l->node, ru_peer_link_user(l->peer));
    live(l);
    assert_true(l->ended);
    assert_int_equal(l->status, RU_OK);
    assert_int_equal(l->committed, STEPS);
    life_free(l);
    ru_pipe_free(pipe);
}

/* Two found a job; then one acknowledges nothing any more, and so much waits for it that no control
 * message fits: it is cut off at once, and the other goes on without it. */
static void test_a_peer_that_takes_no_words(void **state)
{
    (void)state;
    ru_pipe *pipe = pipe_new();
    life *l[2] = {life_new(pipe, 1, 2), life_new(pipe, 2, 2)};
    ru_err err = {0};
    for (uint32_t i = 0; i < 2; i++) {
        assert_ok(open_peer(l[i], &err), err);
        ru_pipe_user(pipe, l[i]->node, ru_peer_link_user(l[i]->peer));
        ru_peer_start(l[i]->peer, ru_pipe_now(pipe));
    }
    for (uint32_t round = 0; ru_member_view(ru_peer_member(l[0]->peer))->n < 2; round++) {
        assert_true(round < ROUNDS);
        move(pipe);
        be_on_time(l[0]);
        be_on_time(l[1]);
    }
    ru_chan *ch = ru_peer_chan(l[0]->peer);
    uint32_t sent = 0;
    while (ru_chan_message(ch, l[1]->id, RU_PEER_WHAT_OWNER, "x", 1, ru_pipe_now(pipe)) == RU_OK) {
        sent++;
    }
    assert_true(sent > 100);
    assert_int_equal(l[0]->cut_off, 0);
    for (uint32_t k = 0; k < 300 && l[0]->cut_off == 0; k++) { /* nothing moves; a beat is due */
        assert_true(ru_chan_is_up(ch, l[1]->id));
        ru_pipe_wait(pipe, 1000000);
        be_on_time(l[0]);
    }
    assert_int_equal(l[0]->cut_off, 1);
    assert_false(ru_chan_is_up(ch, l[1]->id));
    ru_pipe_kill(pipe, l[1]->node);
    for (uint32_t round = 0; round < ROUNDS && !l[0]->ended; round++) {
        move(pipe);
        be_on_time(l[0]);
    }
    assert_true(l[0]->ended);
    assert_int_equal(l[0]->status, RU_OK);
    assert_int_equal(l[0]->committed, STEPS);
    assert_int_equal(l[0]->cut_off, 1);
    life_free(l[0]);
    life_free(l[1]);
    ru_pipe_free(pipe);
}

RU_TESTS(train_peer, cmocka_unit_test(test_opening), cmocka_unit_test(test_alone),
         cmocka_unit_test(test_a_peer_that_takes_no_words))
