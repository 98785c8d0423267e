/* Parcels where one peer breaks their rules: it loses its connection, and those of an honest peer
 * arrive as if it had not been there. */
#include "comm/pull/pull.h"

#include <string.h>

#include "base/log.h"
#include "lab/worlds/pipe.h"
#include "test/test.h"

enum { OFFER, GRANT, SMALL, VICTIM = 0, HONEST, EVIL, ENDS, BODY = 100000, MEMORY = 4 << 20 };

/* As they are on the wire. */
typedef struct wire {
    uint64_t id;
    int64_t body_bytes;
    uint32_t what, head_bytes;
} wire;

typedef struct end {
    ru_arena arena, memory;
    ru_effects fx;
    ru_chan *ch;
    ru_pull *pull; /* the evil one has none */
    ru_bufs bufs;
    ru_time tick_at;
    uint32_t got, sent_ok, downs[ENDS + 1];
    ru_status why;
    bool wrong;
} end;

typedef struct group {
    ru_pipe *pipe;
    ru_log_options log;
    end at[ENDS];
} group;

static void perform(end *e, ru_time now)
{
    for (uint32_t i = 0; i < e->fx.n; i++) {
        const ru_effect f = e->fx.at[i];
        if (f.kind == RU_FX_SEND) { /* to one that is lost: nothing */
            (void)!ru_chan_message(e->ch, f.node, f.what, f.data, f.size_bytes, now);
        } else if (f.kind == RU_FX_LOCAL) {
            ru_pull_local(e->pull, now, &e->fx);
        }
    }
    ru_effects_clear(&e->fx);
}

static void step(end *e, const ru_event *ev)
{
    if (e->pull != NULL) {
        ru_pull_step(e->pull, ev, &e->fx);
        perform(e, ev->now);
    }
}

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    (void)address;
    step(self, &(ru_event){.kind = RU_EV_UP, .now = now, .node = node});
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    end *e = self;
    (void)address;
    e->downs[node.v]++;
    e->why = why;
    step(e, &(ru_event){.kind = RU_EV_DOWN, .now = now, .node = node});
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    step(self, &(ru_event){.kind = RU_EV_MESSAGE,
                           .now = now,
                           .node = from,
                           .what = what,
                           .data = data,
                           .size_bytes = size_bytes});
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    end *e = self;
    ru_pull_sent(e->pull, cookie, now, &e->fx);
    perform(e, now);
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    end *e = self;
    ru_pull_failed(e->pull, cookie, why, now, &e->fx);
    perform(e, now);
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    end *e = self;
    ru_pull_arrived(e->pull, cookie, now, &e->fx);
    perform(e, now);
}

static void on_tick_at(void *self, ru_time at)
{
    ((end *)self)->tick_at = at;
}

static void got(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    end *e = self;
    const uint8_t *b = body;
    (void)what, (void)head, (void)head_bytes, (void)now, (void)fx;
    if (from.v == HONEST + 1) {
        e->got++;
        e->wrong = e->wrong || body_bytes != BODY || b[0] != 7 || b[BODY - 1] != 7;
    }
    ru_bufs_put(&e->bufs, body);
}

static void sent(void *self, uint64_t cookie, bool ok, ru_time now, ru_effects *fx)
{
    (void)cookie, (void)now, (void)fx;
    ((end *)self)->sent_ok += ok;
}

static void open_end(group *g, uint32_t k)
{
    end *e = &g->at[k];
    char address[8] = "n0:1";
    ru_err err;
    address[1] = (char)('0' + k);
    uint32_t node = ru_pipe_node(g->pipe, address);
    ru_arena_init(&e->arena, 0);
    ru_arena_init(&e->memory, 0);
    ru_effects_init(&e->fx, &e->memory);
    ru_bufs_init(&e->bufs, 2 * MEMORY);
    const ru_chan_options co = {.self = {k + 1},
                                .address = address,
                                .job = 1,
                                .token = (const uint8_t *)"token",
                                .token_bytes = 5,
                                .peers_max = 4,
                                .streams_max = 16,
                                .slots_max = 16};
    const ru_chan_user user = {.self = e,
                               .up = on_up,
                               .down = on_down,
                               .message = on_message,
                               .sent = on_sent,
                               .failed = on_failed,
                               .arrived = on_arrived,
                               .tick_at = on_tick_at};
    ru_link link = ru_pipe_link(g->pipe, node);
    assert_ok(ru_chan_open(&co, &link, &user, &e->arena, &e->ch, &err), err);
    ru_pipe_user(g->pipe, node, ru_chan_link_user(e->ch));
    const ru_pull_options po = {.chan = e->ch,
                                .self = {k + 1},
                                .bufs = &e->bufs,
                                .user = {e, got, sent},
                                .peers_max = 4,
                                .body_max = MEMORY};
    if (k != EVIL) {
        assert_ok(ru_pull_open(&po, &e->arena, &e->pull, &err), err);
    }
    if (k != VICTIM) {
        assert_ok(ru_chan_connect(e->ch, "n0:1", ru_pipe_now(g->pipe), &err), err);
    }
}

static void move(group *g, uint32_t steps)
{
    for (uint32_t k = 0; k < steps; k++) {
        if (!ru_pipe_step(g->pipe)) {
            ru_pipe_wait(g->pipe, 10000);
        }
        for (uint32_t i = 0; i < ENDS; i++) {
            end *e = &g->at[i];
            if (e->tick_at.ns <= ru_pipe_now(g->pipe).ns) {
                e->tick_at = ru_chan_tick(e->ch, ru_pipe_now(g->pipe));
            }
        }
    }
}

static void open_group(group *g, uint64_t seed)
{
    memset(g, 0, sizeof *g);
    g->log = ru_log_get();
    ru_log_set(&(ru_log_options){.level = RU_LOG_ERROR});
    g->pipe = ru_pipe_new(&(ru_pipe_options){.seed = seed});
    for (uint32_t k = 0; k < ENDS; k++) {
        open_end(g, k);
    }
    move(g, 3000);
    assert_true(ru_chan_is_up(g->at[VICTIM].ch, (ru_node_id){HONEST + 1}));
    assert_true(ru_chan_is_up(g->at[VICTIM].ch, (ru_node_id){EVIL + 1}));
}

static void close_group(group *g)
{
    for (uint32_t k = 0; k < ENDS; k++) {
        end *e = &g->at[k];
        ru_chan_close(e->ch);
        ru_pull_close(e->pull);
        ru_bufs_fini(&e->bufs);
        ru_arena_fini(&e->memory);
        ru_arena_fini(&e->arena);
    }
    ru_pipe_free(g->pipe);
    ru_log_set(&g->log);
}

static void attack(group *g, uint32_t kind, const void *data, int64_t size_bytes)
{
    ru_status st = ru_chan_message(g->at[EVIL].ch, (ru_node_id){VICTIM + 1}, kind, data, size_bytes,
                                   ru_pipe_now(g->pipe));
    assert_true(st == RU_OK || st == RU_E_PEER); /* it is refused already */
}

static void offer(group *g, uint64_t id, int64_t body_bytes)
{
    const wire w = {.id = id, .body_bytes = body_bytes};
    attack(g, OFFER, &w, sizeof w);
}

/* Some parcels of the honest one arrive, whatever the evil one said before. */
static void honest(group *g)
{
    end *e = &g->at[HONEST];
    static uint8_t body[BODY];
    memset(body, 7, sizeof body);
    uint32_t before = g->at[VICTIM].got, told = e->sent_ok;
    for (uint32_t k = 0; k < 4; k++) {
        (void)ru_pull_send(e->pull, (ru_node_id){VICTIM + 1}, 0, NULL, 0, body, BODY, false, k,
                           ru_pipe_now(g->pipe), &e->fx);
    }
    perform(e, ru_pipe_now(g->pipe));
    for (uint32_t k = 0; k < 100 && e->sent_ok < told + 4; k++) {
        move(g, 400);
    }
    assert_int_equal(g->at[VICTIM].got, before + 4);
    assert_int_equal(e->sent_ok, told + 4);
    assert_false(g->at[VICTIM].wrong);
    assert_int_equal(g->at[VICTIM].downs[HONEST + 1], 0);
}

/* Offers that could never be granted stood first in the list for good. */
static void test_offers_that_cannot_be_granted(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, -1, RU_PULL_SMALL_MAX, MEMORY + 1, INT64_MAX / 2, INT64_MAX};
    for (uint32_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        group g;
        open_group(&g, ru_test_seed() + k);
        offer(&g, 1, sizes[k]);
        move(&g, 400);
        honest(&g);
        assert_int_equal(g.at[VICTIM].downs[EVIL + 1], 1);
        assert_int_equal(g.at[VICTIM].why, RU_E_PEER);
        close_group(&g);
    }
}

/* The stream of the second one has the name of a stream that is on its way. */
static void test_an_offer_twice(void **state)
{
    (void)state;
    group g;
    open_group(&g, ru_test_seed());
    offer(&g, 1, BODY);
    move(&g, 400);
    honest(&g);
    assert_int_equal(g.at[VICTIM].downs[EVIL + 1], 0);
    offer(&g, 1, BODY);
    move(&g, 400);
    honest(&g);
    assert_int_equal(g.at[VICTIM].downs[EVIL + 1], 1);
    assert_int_equal(g.at[VICTIM].bufs.used_bytes > BODY, false); /* the first one's is back */
    close_group(&g);
}

/* Offers of one peer that wait were not counted: about a million of them ended the process. */
static void test_too_many_offers_wait(void **state)
{
    (void)state;
    group g;
    open_group(&g, ru_test_seed());
    for (uint64_t id = 1; id <= 1 + RU_PULL_WAITS_MAX; id++) { /* the first one is granted */
        offer(&g, id, MEMORY);
        move(&g, 20);
    }
    move(&g, 400);
    assert_int_equal(g.at[VICTIM].downs[EVIL + 1], 0);
    offer(&g, 2 + RU_PULL_WAITS_MAX, MEMORY);
    move(&g, 400);
    assert_int_equal(g.at[VICTIM].downs[EVIL + 1], 1);
    assert_int_equal(g.at[VICTIM].why, RU_E_PEER);
    honest(&g);
    close_group(&g);
}

/* Messages of all kinds, half of them with sizes that are nearly right. */
static void test_hostile_messages(void **state)
{
    (void)state;
    uint32_t ended = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        group g;
        ru_rng rng = ru_rng_from(ru_test_seed() + seed, 0);
        open_group(&g, ru_test_seed() + seed);
        for (uint32_t k = 0; k < 6; k++) {
            uint8_t m[256];
            int64_t n = ru_rng_below(&rng, sizeof m);
            for (int64_t i = 0; i < n; i++) {
                m[i] = (uint8_t)ru_rng_u64(&rng);
            }
            wire w = {ru_rng_below(&rng, 2), ru_rng_below(&rng, BODY), 0, 0};
            bool near = ru_rng_below(&rng, 2) == 0;
            w.body_bytes = ru_rng_below(&rng, 4) == 0 ? 0 : w.body_bytes;
            memcpy(m, &w, near ? sizeof w : 0);
            attack(&g, ru_rng_below(&rng, RU_PULL_MESSAGES), m, near ? (int64_t)sizeof w : n);
            move(&g, 100);
        }
        honest(&g);
        ended += g.at[VICTIM].downs[EVIL + 1];
        close_group(&g);
    }
    assert_true(ended > 12);
}

RU_TESTS(comm_pull, cmocka_unit_test(test_offers_that_cannot_be_granted),
         cmocka_unit_test(test_an_offer_twice), cmocka_unit_test(test_too_many_offers_wait),
         cmocka_unit_test(test_hostile_messages))
