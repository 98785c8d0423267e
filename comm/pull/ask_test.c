/* Asking for named bytes: several givers and askers over links in memory; every chunk that leaves
 * is judged by a second account of what was asked, announced and granted, made from the frames. */
#include "comm/pull/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "comm/chan/chan_impl.h"
#include "lab/worlds/pipe.h"
#include "test/test.h"

enum { ENDS_MAX = 8, ASKERS = 4, TENSORS = 250, WHAT = 7, SIZE_MAX_BYTES = 16 << 10 };

/* One stream as frames show it to its giver. */
typedef struct line {
    int64_t total, limit, sent;
    uint16_t rank;
} line;

typedef struct group group;

typedef struct end {
    group *g;
    ru_arena arena, memory;
    ru_effects fx;
    ru_chan *ch;
    ru_link_user real, seen; /* of the channel; with the judge before it */
    ru_ask *ask;             /* an asker */
    ru_give *give;
    ru_time tick_at;
    uint32_t number, n_items, over, failed, asked_rounds;
    uint32_t downs;
    char sentence[128];
    ru_status why;
    ru_ask_item *items; /* [items_max] all that it asked for */
    uint8_t *into[2];   /* [TENSORS, SIZE_MAX_BYTES] in turns */
    uint32_t last_rank; /* of a burst: for the order of arrival */
    uint32_t late_most;
    line *lines[ENDS_MAX]; /* a giver's account by asker */
    uint32_t *active[ENDS_MAX], n_active[ENDS_MAX];
} end;

struct group {
    ru_pipe *pipe;
    ru_log_options log;
    end at[ENDS_MAX];
    uint32_t givers, n, items_max;
    int64_t sizes[TENSORS];
    uint8_t *bodies[TENSORS];
    uint64_t chunks, inversions, transfers, wrong;
    ru_rng rng;
};

/* -- the judge -----------------------------------------------------------------------------------
 */

static uint32_t asker_at(end *e, ru_conn_id c)
{
    rui_conn *conn = rui_conn_find(e->ch, c);
    uint64_t node = e->ch->peers[conn->peer].name.stream;
    return (uint32_t)node - 1 - e->g->givers;
}

/* A chunk leaves: no smaller rank of the same asker has bytes that were granted and not sent. */
static void judge(end *e, uint32_t asker, const rui_frame *f)
{
    uint32_t id = (uint32_t)(f->stream & 0xffffffff), keep = 0;
    line *mine = &e->lines[asker][id];
    for (uint32_t k = 0; k < e->n_active[asker]; k++) {
        uint32_t i = e->active[asker][k];
        const line *x = &e->lines[asker][i];
        if (x->sent < x->total) {
            e->g->inversions += i != id && x->rank < f->rank && x->sent < x->limit;
            e->active[asker][keep++] = i;
        }
    }
    e->n_active[asker] = keep;
    mine->sent += f->len;
    e->g->wrong += mine->sent > mine->limit || f->rank != mine->rank;
    e->g->chunks++;
}

static bool pull(void *self, ru_conn_id c, int64_t room, ru_link_tx *tx, ru_time now)
{
    end *e = self;
    rui_frame f;
    ru_err err;
    if (!e->real.pull(e->real.self, c, room, tx, now)) {
        return false;
    }
    if (e->give != NULL && rui_frame_decode(tx->head, &f, &err) == RU_OK && f.type == RUI_DATA) {
        judge(e, asker_at(e, c), &f);
    }
    return true;
}

static ru_status body(void *self, ru_conn_id c, ru_time now)
{
    end *e = self;
    const rui_conn *conn = rui_conn_find(e->ch, c);
    const rui_frame f = conn->rx;
    uint32_t asker = e->give != NULL && f.type == RUI_GRANT ? asker_at(e, c) : 0;
    ru_status st = e->real.body(e->real.self, c, now);
    if (e->give != NULL && f.type == RUI_GRANT) {
        uint32_t id = (uint32_t)(f.stream & 0xffffffff);
        line *x = &e->lines[asker][id];
        if (x->limit == 0) {
            const ru_ask_item *it = &e->g->at[e->g->givers + asker].items[id];
            *x = (line){.total = it->size_bytes, .rank = it->rank};
            e->active[asker][e->n_active[asker]++] = id;
        }
        x->limit = (int64_t)f.offset > x->limit ? (int64_t)f.offset : x->limit;
    }
    return st;
}

static void opened(void *self, ru_conn_id c, bool accepted, const char *address, ru_time now)
{
    end *e = self;
    e->real.opened(e->real.self, c, accepted, address, now);
}

static void closed(void *self, ru_conn_id c, ru_status why, const char *sentence, ru_time now)
{
    end *e = self;
    e->real.closed(e->real.self, c, why, sentence, now);
}

static void sent_frame(void *self, ru_conn_id c, uint64_t cookie, ru_time now)
{
    end *e = self;
    e->real.sent(e->real.self, c, cookie, now);
}

static ru_status head(void *self, ru_conn_id c, const uint8_t *h, ru_link_rx *rx, ru_time now)
{
    end *e = self;
    return e->real.head(e->real.self, c, h, rx, now);
}

/* -- ends ----------------------------------------------------------------------------------------
 */

static void perform(end *e, ru_time now)
{
    for (uint32_t i = 0; i < e->fx.n; i++) {
        const ru_effect f = e->fx.at[i];
        (void)!ru_chan_message(e->ch, f.node, f.what, f.data, f.size_bytes, now);
    }
    ru_effects_clear(&e->fx);
}

static void hear(end *e, const ru_event *ev)
{
    if (e->ask != NULL) {
        ru_ask_hear(e->ask, ev);
    } else {
        ru_give_hear(e->give, ev, &e->fx);
        perform(e, ev->now);
    }
}

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    (void)self, (void)node, (void)address, (void)now;
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    end *e = self;
    (void)address;
    e->downs++;
    e->why = why;
    hear(e, &(ru_event){.kind = RU_EV_DOWN, .now = now, .node = node});
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    hear(self, &(ru_event){.kind = RU_EV_MESSAGE,
                           .now = now,
                           .node = from,
                           .what = what,
                           .data = data,
                           .size_bytes = size_bytes});
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    end *e = self;
    assert_true(ru_give_owns(e->give, cookie));
    ru_give_over(e->give, cookie, now, &e->fx);
    perform(e, now);
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    end *e = self;
    if (e->give != NULL) {
        on_sent(self, cookie, now);
    } else {
        ru_ask_failed(e->ask, cookie, why, now);
    }
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    end *e = self;
    ru_ask_arrived(e->ask, cookie, now);
}

static void on_room(void *self, ru_time now)
{
    end *e = self;
    if (e->give != NULL) {
        ru_give_room(e->give, now, &e->fx);
        perform(e, now);
    }
}

static void on_tick_at(void *self, ru_time at)
{
    ((end *)self)->tick_at = at;
}

static uint32_t tensor_of(const char *name)
{
    return (uint32_t)strtoul(name + 1, NULL, 10);
}

static void arrived(void *self, uint32_t i, ru_time now)
{
    end *e = self;
    const ru_ask_item *it = &e->items[i];
    (void)now;
    uint32_t t = tensor_of(it->name);
    e->g->wrong += memcmp(it->into, e->g->bodies[t], (size_t)it->size_bytes) != 0;
    uint32_t late = e->last_rank > it->rank ? e->last_rank - it->rank : 0;
    e->late_most = late > e->late_most ? late : e->late_most;
    e->last_rank = it->rank > e->last_rank ? it->rank : e->last_rank;
    e->over++;
    e->g->transfers++;
}

static void failed(void *self, uint32_t i, ru_status why, const char *sentence, ru_time now)
{
    end *e = self;
    (void)now, (void)i;
    e->failed++;
    e->over++;
    e->why = why;
    (void)snprintf(e->sentence, sizeof e->sentence, "%s", sentence);
}

static bool find(void *self, ru_str name, ru_span *out)
{
    const end *e = self;
    char text[16];
    if (name.n < 2 || name.n >= (int64_t)sizeof text) {
        return false;
    }
    memcpy(text, name.p, (size_t)name.n);
    text[name.n] = '\0';
    uint32_t t = tensor_of(text);
    if (text[0] != 't' || t >= TENSORS) {
        return false;
    }
    *out = (ru_span){e->g->bodies[t], e->g->sizes[t]};
    return true;
}

static const char *const addresses[] = {"n0:1", "n1:1", "n2:1", "n3:1",
                                        "n4:1", "n5:1", "n6:1", "n7:1"};

static void open_machine(group *g, end *e, uint32_t k)
{
    ru_err err;
    if (k < g->givers) {
        const ru_give_options go = {.chan = e->ch,
                                    .askers_max = ENDS_MAX,
                                    .items_max = ENDS_MAX * 2 * TENSORS,
                                    .what_first = WHAT,
                                    .self = e,
                                    .find = find};
        assert_ok(ru_give_open(&go, &e->arena, &e->give, &err), err);
        for (uint32_t a = 0; a < g->n - g->givers; a++) {
            e->lines[a] = ru_arena_zalloc(&e->arena, g->items_max * (int64_t)sizeof(line), 8);
            e->active[a] = ru_arena_zalloc(&e->arena, g->items_max * 4, 8);
        }
        return;
    }
    const ru_ask_options ao = {.chan = e->ch,
                               .n_max = g->items_max,
                               .what_first = WHAT,
                               .self = e,
                               .arrived = arrived,
                               .failed = failed};
    assert_ok(ru_ask_open(&ao, &e->arena, &e->ask, &err), err);
    e->items = ru_arena_zalloc(&e->arena, g->items_max * (int64_t)sizeof *e->items, 8);
    e->into[0] = ru_arena_zalloc(&e->arena, TENSORS * SIZE_MAX_BYTES, 64);
    e->into[1] = ru_arena_zalloc(&e->arena, TENSORS * SIZE_MAX_BYTES, 64);
}

static void open_end(group *g, uint32_t k)
{
    end *e = &g->at[k];
    ru_err err;
    *e = (end){.g = g, .number = k};
    uint32_t node = ru_pipe_node(g->pipe, addresses[k]);
    ru_arena_init(&e->arena, 0);
    ru_arena_init(&e->memory, 0);
    ru_effects_init(&e->fx, &e->memory);
    const ru_chan_options co = {.self = {k + 1},
                                .address = addresses[k],
                                .job = 1,
                                .token = (const uint8_t *)"token",
                                .token_bytes = 5,
                                .peers_max = ENDS_MAX,
                                .streams_max = ASKERS * RU_GIVE_OUT_MAX / 2, /* not for all */
                                .slots_max = 4 * RU_GIVE_OUT_MAX,
                                .chunk_bytes = 4096,
                                .grants = true};
    const ru_chan_user user = {.self = e,
                               .up = on_up,
                               .down = on_down,
                               .message = on_message,
                               .sent = on_sent,
                               .failed = on_failed,
                               .arrived = on_arrived,
                               .room = on_room,
                               .tick_at = on_tick_at};
    ru_link link = ru_pipe_link(g->pipe, node);
    assert_ok(ru_chan_open(&co, &link, &user, &e->arena, &e->ch, &err), err);
    e->real = *ru_chan_link_user(e->ch);
    e->seen = (ru_link_user){.self = e,
                             .opened = opened,
                             .closed = closed,
                             .pull = pull,
                             .sent = sent_frame,
                             .head = head,
                             .body = body};
    ru_pipe_user(g->pipe, node, &e->seen);
    open_machine(g, e, k);
}

static void move(group *g, uint32_t steps)
{
    for (uint32_t k = 0; k < steps; k++) {
        if (!ru_pipe_step(g->pipe)) {
            ru_pipe_wait(g->pipe, 10000);
        }
        for (uint32_t i = 0; i < g->n; i++) {
            end *e = &g->at[i];
            if (e->tick_at.ns <= ru_pipe_now(g->pipe).ns) {
                e->tick_at = ru_chan_tick(e->ch, ru_pipe_now(g->pipe));
            }
        }
    }
}

static void open_group(group *g, uint32_t givers, uint32_t askers, uint32_t items_max,
                       uint64_t seed)
{
    ru_err err;
    memset(g, 0, sizeof *g);
    g->log = ru_log_get();
    ru_log_set(&(ru_log_options){.level = RU_LOG_ERROR});
    g->pipe = ru_pipe_new(&(ru_pipe_options){.seed = seed});
    g->rng = ru_rng_from(seed, 1);
    g->givers = givers;
    g->n = givers + askers;
    g->items_max = items_max;
    for (uint32_t t = 0; t < TENSORS; t++) {
        g->sizes[t] =
            1 + (int64_t)(ru_rng_below(&g->rng, SIZE_MAX_BYTES) >> ru_rng_below(&g->rng, 13));
        g->bodies[t] = malloc((size_t)g->sizes[t]);
        memset(g->bodies[t], (int)t + 1, (size_t)g->sizes[t]);
    }
    for (uint32_t k = 0; k < g->n; k++) {
        open_end(g, k);
    }
    for (uint32_t a = givers; a < g->n; a++) {
        for (uint32_t s = 0; s < givers; s++) {
            assert_ok(ru_chan_connect(g->at[a].ch, addresses[s], ru_pipe_now(g->pipe), &err), err);
        }
    }
    move(g, 5000);
    for (uint32_t s = 0; s < givers; s++) {
        assert_true(ru_chan_is_up(g->at[g->n - 1].ch, (ru_node_id){s + 1}));
    }
}

static void close_group(group *g)
{
    for (uint32_t k = 0; k < g->n; k++) {
        end *e = &g->at[k];
        ru_chan_close(e->ch);
        ru_arena_fini(&e->memory);
        ru_arena_fini(&e->arena);
    }
    for (uint32_t t = 0; t < TENSORS; t++) {
        free(g->bodies[t]);
    }
    ru_pipe_free(g->pipe);
    ru_log_set(&g->log);
}

static const char *name_of(uint32_t t)
{
    static char names[TENSORS][8];
    (void)snprintf(names[t], sizeof names[t], "t%u", t);
    return names[t];
}

/* Every tensor once, but for a hundredth of them, in an order of its own. */
static void ask_round(group *g, end *e)
{
    uint32_t order[TENSORS], n = 0;
    ru_err err;
    for (uint32_t t = 0; t < TENSORS; t++) {
        order[t] = t;
    }
    ru_rng_shuffle(&g->rng, order, TENSORS);
    ru_ask_item *items = &e->items[e->n_items];
    for (uint32_t k = 0; k < TENSORS; k++) {
        uint32_t t = order[k];
        if (ru_rng_below(&g->rng, 100) > 0) {
            items[n++] = (ru_ask_item){.name = name_of(t),
                                       .size_bytes = g->sizes[t],
                                       .into = e->into[e->asked_rounds % 2] + t * SIZE_MAX_BYTES,
                                       .from = {1 + t % g->givers},
                                       .rank = (uint16_t)k};
        }
    }
    e->asked_rounds++;
    e->n_items += n;
    e->last_rank = 0;
    assert_ok(ru_ask_for(e->ask, items, n, ru_pipe_now(g->pipe), &err), err);
}

/* Rounds that overlap: the small ranks of the next one are asked for while large ones are under
 * way. */
static void no_inversion(uint32_t givers, uint32_t transfers)
{
    group g;
    uint32_t rounds = transfers / ASKERS / (TENSORS * 98 / 100) + 1;
    open_group(&g, givers, ASKERS, (rounds + 1) * TENSORS, ru_test_seed() + givers);
    for (uint64_t idle = 0, before = 0; idle < 1000; idle++) {
        bool done = true;
        for (uint32_t a = givers; a < g.n; a++) {
            end *e = &g.at[a];
            if (e->asked_rounds < rounds && e->n_items - e->over < TENSORS / 3) {
                ask_round(&g, e);
            }
            done = done && e->asked_rounds == rounds && e->over == e->n_items;
        }
        if (done) {
            break;
        }
        move(&g, 200);
        idle = g.transfers != before ? 0 : idle;
        before = g.transfers;
    }
    for (uint32_t a = givers; a < g.n; a++) {
        assert_int_equal(g.at[a].over, g.at[a].n_items);
        assert_int_equal(g.at[a].failed, 0);
    }
    move(&g, 3000);
    for (uint32_t s = 0; s < givers; s++) {
        assert_true(ru_give_idle(g.at[s].give));
    }
    assert_true(g.transfers >= transfers);
    assert_true(g.chunks >= g.transfers);
    assert_int_equal(g.wrong, 0);
    assert_int_equal(g.inversions, 0);
    close_group(&g);
}

static void test_no_inversion(void **state)
{
    (void)state;
    no_inversion(1, 33334);
    no_inversion(2, 33334);
    no_inversion(4, 33334);
}

/* Two givers, one asker whose window holds a part of what it wants: the larger rank of one giver
 * does not come before the smaller one of the other, but for what the window let out. */
static void test_ranks_hold_over_givers(void **state)
{
    (void)state;
    enum { BIG = 60 };
    group g;
    uint32_t n = 0;
    ru_err err;
    open_group(&g, 2, 1, TENSORS, ru_test_seed());
    end *e = &g.at[2];
    for (uint32_t t = 0; t < BIG; t++) { /* 60 KB each, the window holds 512 KiB */
        g.sizes[t] = 60000;
        free(g.bodies[t]);
        g.bodies[t] = calloc(1, 60000);
        e->items[n++] = (ru_ask_item){.name = name_of(t),
                                      .size_bytes = g.sizes[t],
                                      .into = ru_arena_zalloc(&e->arena, 60000, 64),
                                      .from = {1 + t % 2},
                                      .rank = (uint16_t)t};
    }
    e->n_items = n;
    assert_ok(ru_ask_for(e->ask, e->items, n, ru_pipe_now(g.pipe), &err), err);
    for (uint32_t k = 0; k < 4000 && e->over < n; k++) {
        move(&g, 100);
    }
    assert_int_equal(e->over, n);
    assert_int_equal(e->failed, 0);
    assert_in_range(e->late_most, 0, (512 << 10) / 60000 + 1);
    assert_int_equal(g.inversions + g.wrong, 0);
    close_group(&g);
}

static void ask_one(group *g, const char *name, int64_t size_bytes)
{
    ru_err err;
    end *e = &g->at[1];
    ru_ask_item *it = &e->items[e->n_items++];
    *it = (ru_ask_item){.name = name,
                        .size_bytes = size_bytes,
                        .into = ru_arena_zalloc(&e->arena, size_bytes, 64),
                        .from = {1},
                        .rank = 3};
    assert_ok(ru_ask_for(e->ask, it, 1, ru_pipe_now(g->pipe), &err), err);
    move(g, 3000);
}

/* What is not there is refused with a sentence, and the rest still comes. */
static void test_unknown_and_oversized_names(void **state)
{
    (void)state;
    group g;
    open_group(&g, 1, 1, 16, ru_test_seed());
    end *e = &g.at[1];
    ask_one(&g, "nothing", 8);
    assert_int_equal(e->failed, 1);
    assert_int_equal(e->why, RU_E_MISSING);
    assert_string_equal(e->sentence, "nothing is given under the name 'nothing'");
    ask_one(&g, name_of(3), g.sizes[3] + 1);
    assert_int_equal(e->failed, 2);
    assert_non_null(strstr(e->sentence, "'t3' has "));
    ask_one(&g, name_of(3), g.sizes[3]);
    assert_int_equal(e->failed, 2);
    assert_int_equal(e->over, 3);
    ru_err err;
    char name[RU_ASK_NAME_MAX + 2];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const ru_ask_item bad[] = {{.name = name, .size_bytes = 1, .into = name, .from = {1}},
                               {.name = "", .size_bytes = 1, .into = name, .from = {1}},
                               {.name = "t1", .size_bytes = 0, .into = name, .from = {1}}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(ru_ask_for(e->ask, &bad[k], 1, ru_pipe_now(g.pipe), &err), RU_E_ARG);
    }
    assert_int_equal(e->downs + g.at[0].downs, 0);
    close_group(&g);
}

/* One name several times, in one list and in two: each has its bytes, in a place of its own. */
static void test_repeated_names(void **state)
{
    (void)state;
    enum { TIMES = 5 };
    group g;
    ru_err err;
    open_group(&g, 1, 1, 16, ru_test_seed());
    end *e = &g.at[1];
    for (uint32_t k = 0; k < TIMES; k++) {
        e->items[k] = (ru_ask_item){.name = name_of(3),
                                    .size_bytes = g.sizes[3],
                                    .into = ru_arena_zalloc(&e->arena, g.sizes[3], 64),
                                    .from = {1},
                                    .rank = (uint16_t)(k / 2)};
    }
    e->n_items = TIMES;
    assert_ok(ru_ask_for(e->ask, e->items, TIMES - 1, ru_pipe_now(g.pipe), &err), err);
    assert_ok(ru_ask_for(e->ask, &e->items[TIMES - 1], 1, ru_pipe_now(g.pipe), &err), err);
    for (uint32_t k = 0; k < 400 && e->over < TIMES; k++) {
        move(&g, 300);
    }
    assert_int_equal(e->over, TIMES);
    assert_int_equal(e->failed, 0);
    for (uint32_t k = 0; k < TIMES; k++) {
        assert_memory_equal(e->items[k].into, g.bodies[3], (size_t)g.sizes[3]);
    }
    assert_int_equal(g.wrong + g.inversions, 0);
    close_group(&g);
}

/* The giver takes back one of many, under way or not yet: that one has failed, all others come, and
 * nothing is owed. */
static void test_a_pull_is_cancelled(void **state)
{
    (void)state;
    uint32_t failed = 0;
    for (uint32_t wait = 0; wait < 600; wait += 40) {
        group g;
        open_group(&g, 1, 1, TENSORS, ru_test_seed() + wait);
        end *e = &g.at[1];
        ask_round(&g, e);
        move(&g, wait);
        uint64_t stream = UINT64_C(0xa5) << 56 | (wait / 4 % e->n_items);
        ru_chan_cancel_all(g.at[0].ch, UINT64_MAX, stream, ru_pipe_now(g.pipe));
        for (uint32_t k = 0; k < 400 && (e->over < e->n_items || !ru_give_idle(g.at[0].give));
             k++) {
            move(&g, 300);
        }
        assert_int_equal(e->over, e->n_items);
        assert_true(ru_give_idle(g.at[0].give));
        assert_in_range(e->failed, 0, 1);
        assert_true(e->failed == 0 || e->why == RU_E_CANCELLED);
        assert_int_equal(g.wrong + e->downs + g.at[0].downs, 0);
        failed += e->failed;
        close_group(&g);
    }
    assert_true(failed > 0);
}

static void test_giver_is_killed(void **state)
{
    (void)state;
    group g;
    open_group(&g, 2, 1, TENSORS, ru_test_seed());
    end *e = &g.at[2];
    ask_round(&g, e);
    move(&g, 300);
    ru_pipe_kill(g.pipe, 0);
    for (uint32_t k = 0; k < 400 && e->over < e->n_items; k++) {
        move(&g, 300);
    }
    assert_int_equal(e->over, e->n_items);
    assert_true(e->failed > 0 && g.transfers > 0);
    assert_int_equal(e->why, RU_E_PEER);
    assert_int_equal(g.wrong + g.inversions, 0);
    close_group(&g);
}

/* An asker that goes takes what it is owed with it, and another one is served. */
static void test_asker_is_killed(void **state)
{
    (void)state;
    group g;
    open_group(&g, 1, 2, TENSORS, ru_test_seed());
    ask_round(&g, &g.at[1]);
    ask_round(&g, &g.at[2]);
    move(&g, 200);
    ru_pipe_kill(g.pipe, 1);
    for (uint32_t k = 0; k < 400 && !ru_give_idle(g.at[0].give); k++) {
        move(&g, 300);
    }
    assert_true(ru_give_idle(g.at[0].give));
    assert_int_equal(g.at[2].over, g.at[2].n_items);
    assert_int_equal(g.at[2].failed, 0);
    close_group(&g);
}

static void ask_large(group *g, uint32_t *t)
{
    ru_err err;
    end *e = &g->at[1];
    for (*t = 0; g->sizes[*t] < 12000; ++*t) {
    }
    e->items[0] = (ru_ask_item){.name = name_of(*t),
                                .size_bytes = g->sizes[*t],
                                .into = e->into[0],
                                .from = {1},
                                .rank = 3};
    e->n_items = 1;
    assert_ok(ru_ask_for(e->ask, e->items, 1, ru_pipe_now(g->pipe), &err), err);
    for (uint32_t k = 0; k < 3000 && ru_give_idle(g->at[0].give); k++) {
        move(g, 1);
    }
    assert_false(ru_give_idle(g->at[0].give));
}

/* Grants go by the ranks of the asker, whatever a giver writes on its chunks. */
static void test_giver_does_not_choose_the_rank(void **state)
{
    (void)state;
    group g;
    uint32_t t, i = RUI_NONE;
    open_group(&g, 1, 1, 16, ru_test_seed());
    end *giver = &g.at[0], *e = &g.at[1];
    ask_large(&g, &t);
    giver->ch->streams[0].rank = 9; /* the only one */
    int64_t got = 0;
    for (uint32_t k = 0; k < 3000 && got == 0 && e->over == 0; k++) {
        move(&g, 1);
        i = rui_ingress_first(e->ch->ingress, rui_peer_find(e->ch, 1));
        got = i != RUI_NONE ? rui_ingress_slot(e->ch->ingress, i)->got_bytes : 0;
    }
    assert_in_range(got, 1, g.sizes[t] - 1);
    assert_int_equal(rui_ingress_slot(e->ch->ingress, i)->rank, 3);
    close_group(&g);
}

/* A list of one name that is not given, from an asker of any name. True: it had an answer. */
static bool is_answered(end *giver, uint64_t node, ru_time now)
{
    uint8_t m[32];
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    ru_wire_put_u32(&o, 0);
    ru_wire_put_u16(&o, 1);
    ru_wire_put_u64(&o, 8);
    ru_wire_put_text(&o, "none", 4);
    const ru_event ev = {.kind = RU_EV_MESSAGE,
                         .now = now,
                         .node = {node},
                         .what = WHAT,
                         .data = m,
                         .size_bytes = ru_wire_size(&o)};
    ru_give_hear(giver->give, &ev, &giver->fx);
    bool is = giver->fx.n == 1;
    ru_effects_clear(&giver->fx);
    return is;
}

/* Guests that are refused are down at once, while their connection stands and streams still end:
 * their places are free for others then. */
static void test_asker_that_was_refused_leaves_its_place(void **state)
{
    (void)state;
    group g;
    open_group(&g, 1, 1, 16, ru_test_seed());
    end *giver = &g.at[0], *e = &g.at[1];
    uint32_t t;
    ask_large(&g, &t);
    hear(giver, &(ru_event){.kind = RU_EV_DOWN, .now = ru_pipe_now(g.pipe), .node = {2}});
    move(&g, 3000);
    assert_true(ru_give_idle(giver->give) && e->over == 1 && e->failed == 0);
    for (uint64_t k = 0; k < ENDS_MAX; k++) {
        assert_true(is_answered(giver, 100 + k, ru_pipe_now(g.pipe)));
    }
    assert_false(is_answered(giver, 100 + ENDS_MAX, ru_pipe_now(g.pipe)));
    close_group(&g);
}

/* Lists and announcements that are none: who sends them loses its connection. */
static void test_hostile_lists(void **state)
{
    (void)state;
    uint32_t ended = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        group g;
        open_group(&g, 1, 1, 16, ru_test_seed() + seed);
        uint8_t m[200];
        bool to_asker = seed % 3 == 0;
        end *evil = &g.at[to_asker ? 0 : 1];
        for (uint32_t i = 0; i < sizeof m; i++) {
            m[i] = (uint8_t)ru_rng_u64(&g.rng);
        }
        (void)!ru_chan_message(evil->ch, (ru_node_id){to_asker ? 2 : 1}, WHAT + seed % 4, m,
                               1 + (int64_t)ru_rng_below(&g.rng, sizeof m), ru_pipe_now(g.pipe));
        move(&g, 2000);
        ended += g.at[to_asker ? 1 : 0].downs;
        close_group(&g);
    }
    assert_true(ended >= 22);
}

RU_TESTS(comm_ask, cmocka_unit_test(test_no_inversion),
         cmocka_unit_test(test_ranks_hold_over_givers),
         cmocka_unit_test(test_unknown_and_oversized_names), cmocka_unit_test(test_repeated_names),
         cmocka_unit_test(test_a_pull_is_cancelled), cmocka_unit_test(test_giver_is_killed),
         cmocka_unit_test(test_asker_is_killed),
         cmocka_unit_test(test_asker_that_was_refused_leaves_its_place),
         cmocka_unit_test(test_giver_does_not_choose_the_rank),
         cmocka_unit_test(test_hostile_lists))
