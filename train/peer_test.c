/* A worker for whom memory ends at any point: it opens or says so, it ends or goes on, and gives
 * all back. */
#include "train/peer.h"

#include <stdlib.h>
#include <string.h>

#include "test/pipe.h"
#include "test/test.h"

enum { TIMERS = 64, TENSORS = 2, STEPS = 3, ROUNDS = 200000 };

typedef enum todo { NOTHING, BUILT, COMPUTED, ABORTED, UPDATED } todo;

/* One process that founds a job and trains alone. */
typedef struct life {
    ru_pipe *pipe;
    ru_arena arena;
    ru_peer *peer;
    uint32_t node, what[TIMERS];
    ru_time at[TIMERS]; /* ns 0: off */
    todo next;
    float gradients[TENSORS][16];
    int64_t committed;
    bool ended;
    ru_status status;
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

static ru_status open_peer(life *l, ru_err *err)
{
    static const uint8_t token[32] = "a token of this test, 32 bytes.";
    ru_peer_options o = {
        .chan = {.self = {1},
                 .address = "a:1",
                 .job = 1,
                 .token = token,
                 .token_bytes = sizeof token,
                 .peers_max = 4,
                 .streams_max = 64,
                 .slots_max = 64},
        .link = ru_pipe_link(l->pipe, l->node),
        .member = {.self = {.node = {1}, .address = "a:1", .capacity = 1}, .n_max = 4},
        .elastic = {.device = {&device, l},
                    .news = on_news,
                    .news_self = l,
                    .batch = 8,
                    .steps_end = STEPS,
                    .tensor_bytes = tensor_bytes,
                    .n_tensors = TENSORS,
                    .state_bytes = tensor_bytes,
                    .n_state = TENSORS},
        .timers = {.set = timer_set, .off = timer_off, .self = l},
    };
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

static void live(life *l)
{
    ru_peer_start(l->peer, ru_pipe_now(l->pipe));
    for (uint32_t round = 0; round < ROUNDS && !l->ended; round++) {
        if (!ru_pipe_step(l->pipe)) {
            ru_pipe_wait(l->pipe, 1000000);
        }
        ru_time now = ru_pipe_now(l->pipe);
        for (uint32_t k = 0; k < TIMERS; k++) {
            if (l->at[k].ns != 0 && l->at[k].ns <= now.ns) {
                l->at[k].ns = 0;
                ru_peer_timer(l->peer, l->what[k], now);
            }
        }
        answer(l, now);
    }
}

static life *life_new(void)
{
    life *l = calloc(1, sizeof *l);
    RU_CHECK(l != NULL);
    l->pipe = ru_pipe_new(&(ru_pipe_options){.seed = 1});
    l->node = ru_pipe_node(l->pipe, "a:1");
    ru_arena_init(&l->arena, 0);
    return l;
}

static void life_free(life *l)
{
    ru_peer_close(l->peer);
    ru_arena_fini(&l->arena);
    ru_pipe_free(l->pipe);
    free(l);
}

static void test_opening(void **state)
{
    (void)state;
    bool opened = false;
    for (int64_t k = 0; !opened; k++) {
        assert_true(k < 1000);
        life *l = life_new();
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
    }
}

/* The same process with all memory there: trains alone to the end. */
static void test_alone(void **state)
{
    (void)state;
    life *l = life_new();
    ru_err err = {0};
    assert_ok(open_peer(l, &err), err);
    ru_pipe_user(l->pipe, l->node, ru_peer_link_user(l->peer));
    live(l);
    assert_true(l->ended);
    assert_int_equal(l->status, RU_OK);
    assert_int_equal(l->committed, STEPS);
    life_free(l);
}

RU_TESTS(train_peer, cmocka_unit_test(test_opening), cmocka_unit_test(test_alone))
