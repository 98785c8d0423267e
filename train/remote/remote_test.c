/* The description of weights: there and back, and everything that damage can make of it. A server
 * and its guests. */
#include "train/remote/remote.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "comm/node/loop.h"
#include "env/clock.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "env/thread.h"
#include "test/test.h"
#include "train/remote/fetch.h"
#include "train/remote/giver.h"
#include "train/remote/remote_impl.h"
#include "train/remote/serve.h"

static const ru_remote_tensor tensors[] = {
    {.name = "conv1.weight", .type = {.dtype = RU_F32, .rank = 4, .dims = {8, 3, 3, 3}}, .hash = 7},
    {.name = "conv1.bias", .type = {.dtype = RU_F32, .rank = 1, .dims = {8}}, .hash = 9},
    {.name = "steps", .type = {.dtype = RU_I64, .rank = 0}, .hash = UINT64_MAX},
};

static ru_span pack(ru_arena *a, const ru_remote_tensor *at, uint32_t n)
{
    ru_err err;
    ru_span s;
    const ru_remote w = {.state = "{\"step\": 4}", .state_bytes = 11, .at = at, .n = n};
    assert_ok(ru_remote_pack(&w, a, &s, &err), err);
    return s;
}

static ru_status parse(ru_arena *a, const void *data, int64_t n, ru_remote *out, ru_err *err)
{
    return ru_remote_parse("10.0.0.5:4100", data, n, a, out, err);
}

static void test_description(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_remote w;
    ru_arena_init(&a, 0);
    ru_span s = pack(&a, tensors, RU_ARRAY_LEN(tensors));
    assert_ok(parse(&a, s.data, s.size_bytes, &w, &err), err);
    assert_int_equal(w.state_bytes, 11);
    assert_memory_equal(w.state, "{\"step\": 4}", 11);
    assert_int_equal(w.n, RU_ARRAY_LEN(tensors));
    for (uint32_t i = 0; i < w.n; i++) {
        assert_string_equal(w.at[i].name, tensors[i].name);
        assert_true(ru_type_equal(&w.at[i].type, &tensors[i].type));
        assert_int_equal(w.at[i].hash, tensors[i].hash);
    }
    /* The hash of all follows each of them. */
    ru_hash128 all = w.hash;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(tensors); i++) {
        ru_remote_tensor other[RU_ARRAY_LEN(tensors)];
        memcpy(other, tensors, sizeof tensors);
        other[i].hash++;
        s = pack(&a, other, RU_ARRAY_LEN(tensors));
        assert_ok(parse(&a, s.data, s.size_bytes, &w, &err), err);
        assert_true(w.hash.low != all.low || w.hash.high != all.high);
    }
    ru_arena_fini(&a);
}

static void test_damaged_description(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_remote w;
    ru_arena_init(&a, 0);
    ru_span s = pack(&a, tensors, RU_ARRAY_LEN(tensors));
    for (int64_t n = 0; n < s.size_bytes; n++) {
        assert_int_equal(parse(&a, s.data, n, &w, &err), RU_E_DATA);
    }
    assert_non_null(strstr(err.text, "from 10.0.0.5:4100 is damaged"));
    ru_remote_tensor twice[2] = {tensors[1], tensors[1]};
    s = pack(&a, twice, 2);
    assert_int_equal(parse(&a, s.data, s.size_bytes, &w, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "twice"));
    static const int64_t dims[] = {0, -1, INT64_MAX, INT64_C(1) << 39};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(dims); k++) {
        ru_remote_tensor huge = tensors[0];
        huge.type.dims[0] = dims[k];
        huge.type.dims[1] = k == 3 ? dims[k] : 3;
        s = pack(&a, &huge, 1);
        assert_int_equal(parse(&a, s.data, s.size_bytes, &w, &err), RU_E_DATA);
    }
    /* Bytes at random never make it read outside. */
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    for (uint32_t k = 0; k < 2000; k++) {
        uint8_t m[200];
        s = pack(&a, tensors, RU_ARRAY_LEN(tensors));
        memcpy(m, s.data, (size_t)s.size_bytes);
        m[ru_rng_below(&rng, (uint32_t)s.size_bytes)] = (uint8_t)ru_rng_u64(&rng);
        if (parse(&a, m, s.size_bytes, &w, &err) == RU_OK) {
            assert_in_range(w.n, 1, RU_ARRAY_LEN(tensors));
        }
    }
    ru_arena_fini(&a);
}

/* -- a server and its guests ----------------------------------------------------------------------
 */

static const char right[] = "a token of thirty-two characters",
                  wrong[] = "another of as many chars";

typedef struct served {
    ru_remote w;
    ru_thread thread;
    ru_mutex lock;
    ru_cond changed;
    char address[RU_LINK_TCP_ADDRESS_MAX]; /* "": not yet */
    bool over;
    ru_status st;
    ru_err err;
} served;

static void listens(void *self, const char *address)
{
    served *s = self;
    ru_mutex_lock(&s->lock);
    (void)snprintf(s->address, sizeof s->address, "%s", address);
    ru_cond_broadcast(&s->changed);
    ru_mutex_unlock(&s->lock);
}

static void serve(void *self)
{
    served *s = self;
    ru_arena a;
    ru_arena_init(&a, 0);
    const ru_remote_serve_options o = {.weights = &s->w,
                                       .listen = "127.0.0.1:0",
                                       .token = (const uint8_t *)right,
                                       .token_bytes = sizeof right - 1,
                                       .guests_max = 1,
                                       .address = listens,
                                       .self = s};
    s->st = ru_remote_serve(&o, &a, &s->err);
    ru_mutex_lock(&s->lock);
    s->over = true;
    ru_cond_broadcast(&s->changed);
    ru_mutex_unlock(&s->lock);
    ru_arena_fini(&a);
}

static void serve_weights(served *s, const ru_remote_tensor *at, uint32_t n)
{
    *s = (served){.w = {.state = "{\"step\": 4}", .state_bytes = 11, .at = at, .n = n}};
    ru_mutex_init(&s->lock);
    ru_cond_init(&s->changed);
    ru_self_stop_watch();
    assert_ok(ru_thread_start(&s->thread, "server", serve, s, &s->err), s->err);
    ru_mutex_lock(&s->lock);
    while (s->address[0] == '\0' && !s->over) {
        ru_cond_wait(&s->changed, &s->lock);
    }
    ru_mutex_unlock(&s->lock);
    assert_false(s->over);
}

static ru_status fetch(const served *s, const char *token, ru_fetch **f, ru_err *err)
{
    const ru_fetch_options o = {.address = s->address,
                                .token = (const uint8_t *)token,
                                .token_bytes = (uint32_t)strlen(token)};
    return ru_fetch_open(&o, f, err);
}

/* One guest may come: the second hears that, a stranger hears of the token, and the first has its
 * bytes. A stop signal ends the server. */
static void test_guests(void **state)
{
    (void)state;
    static const float bytes[2][3] = {{1, 2, 3}, {4, 5, 6}};
    ru_remote_tensor at[2];
    served s;
    ru_err err;
    ru_fetch *f, *other;
    const void *data;
    for (uint32_t i = 0; i < 2; i++) {
        at[i] = (ru_remote_tensor){.name = i == 0 ? "a" : "b",
                                   .type = {.dtype = RU_F32, .rank = 1, .dims = {3}},
                                   .data = bytes[i],
                                   .hash = ru_hash_bytes(bytes[i], sizeof bytes[i], 0)};
    }
    serve_weights(&s, at, 2);
    assert_ok(fetch(&s, right, &f, &err), err);
    assert_int_equal(fetch(&s, right, &other, &err), RU_E_PEER);
    assert_non_null(strstr(err.text, s.address));
    assert_non_null(strstr(err.text, "already has 1 guests, its limit"));
    assert_null(strstr(err.text, "token"));
    assert_int_equal(fetch(&s, wrong, &other, &err), RU_E_PEER);
    assert_non_null(strstr(err.text, "check that the token"));
    assert_int_equal(ru_fetch_weights(f)->n, 2);
    assert_ok(ru_fetch_ask(f, (const uint32_t[]){RU_FETCH_NO_RANK, 7}, &err), err);
    assert_ok(ru_fetch_wait(f, 1, &data, &err), err);
    assert_memory_equal(data, bytes[1], sizeof bytes[1]);
    assert_int_equal(ru_fetch_wait(f, 0, &data, &err), RU_E_UNSUPPORTED);
    ru_fetch_close(f);
    assert_int_equal(raise(SIGTERM), 0);
    ru_thread_join(&s.thread);
    assert_ok(s.st, s.err);
    ru_self_stop_unwatch();
    ru_cond_fini(&s.changed);
    ru_mutex_fini(&s.lock);
}

/* -- weights that are made when a guest asks
 * -------------------------------------------------------
 */

static const float version[2][3] = {{1, 2, 3}, {4, 5, 6}};

typedef struct maker {
    served s; /* address and thread */
    ru_giver *giver;
    ru_node_loop bridge;
    ru_remote_tensor at;
    ru_remote w;
    ru_offer offer;
    ru_arena arena;
    uint32_t asked, made, unused;
    bool late; /* weights are given later than they are asked for */
} maker;

static void give(maker *m, ru_effects *fx)
{
    ru_err err;
    assert_true(m->made < 2 && m->made == m->unused);
    const float *data = version[m->made++];
    m->at = (ru_remote_tensor){.name = "a",
                               .type = {.dtype = RU_F32, .rank = 1, .dims = {3}},
                               .data = data,
                               .hash = ru_hash_bytes(data, sizeof version[0], 0)};
    m->w = (ru_remote){.state = "{}", .state_bytes = 2, .at = &m->at, .n = 1};
    assert_ok(ru_offer_make(&m->w, &m->arena, &m->offer, &err), err);
    ru_giver_set(m->giver, &m->offer, fx);
}

/* The first who asks hears that there are none, the next ones get a version each. */
static void make(void *self, ru_time now, ru_effects *fx)
{
    maker *m = self;
    (void)now;
    bool first = m->asked++ == 0;
    if (m->late) {
        return;
    }
    if (first) {
        ru_giver_none(m->giver, "not yet\033", fx);
    } else {
        give(m, fx);
    }
}

static void unused(void *self)
{
    maker *m = self;
    m->unused++;
    m->at.data = NULL; /* whoever still reads it crashes */
}

static void run_maker(void *self)
{
    maker *m = self;
    m->s.st = ru_loop_run(m->bridge.loop, &m->s.err);
}

static void open_maker(maker *m, ru_link_tcp **link)
{
    ru_err err;
    *m = (maker){0};
    ru_arena_init(&m->arena, 0);
    const ru_giver_options gi = {.guests_max = 3, .wanted = make, .unused = unused, .self = m};
    assert_ok(ru_giver_open(&gi, &m->arena, &m->giver, &err), err);
    assert_ok(ru_loop_open(&m->bridge.loop, &err), err);
    const ru_link_tcp_options lo = {.loop = m->bridge.loop,
                                    .listen = "127.0.0.1:0",
                                    .psk = (const uint8_t *)right,
                                    .psk_bytes = sizeof right - 1};
    assert_ok(ru_link_tcp_open(&lo, link, &err), err);
    ru_guests_options go = ru_giver_guests(m->giver);
    go.address = ru_link_tcp_address(*link);
    go.token = (const uint8_t *)right;
    go.token_bytes = sizeof right - 1;
    go.link = ru_link_tcp_link(*link);
    const ru_part part = ru_giver_part(m->giver);
    assert_ok(ru_node_loop_alone(&m->bridge, &part, &go, &m->arena, &err), err);
    assert_ok(ru_giver_ready(m->giver, m->bridge.node, &m->arena, &err), err);
    ru_link_tcp_user(*link, ru_node_guests_link_user(m->bridge.node));
    ru_node_start(m->bridge.node, ru_clock_now());
    (void)snprintf(m->s.address, sizeof m->s.address, "%s", ru_link_tcp_address(*link));
}

static void close_maker(maker *m, ru_link_tcp *link)
{
    ru_node_close(m->bridge.node);
    ru_link_tcp_close(link);
    ru_loop_close(m->bridge.loop);
    ru_arena_fini(&m->arena);
}

static void use_version(const maker *m, ru_fetch *f, uint32_t k)
{
    ru_err err;
    const void *data;
    assert_ok(ru_fetch_ask(f, (const uint32_t[]){1}, &err), err);
    assert_ok(ru_fetch_wait(f, 0, &data, &err), err);
    assert_memory_equal(data, version[k], sizeof version[k]);
    assert_int_equal(m->s.st, RU_OK);
    ru_fetch_close(f);
}

/* Guests at one time have one version, which goes with the last of them; the next guest has the
 * next. */
static void test_made_when_asked(void **state)
{
    (void)state;
    maker m;
    ru_link_tcp *link;
    ru_err err;
    ru_fetch *f, *other;
    open_maker(&m, &link);
    assert_ok(ru_thread_start(&m.s.thread, "maker", run_maker, &m, &err), err);
    assert_int_equal(fetch(&m.s, right, &f, &err), RU_E_PEER);
    assert_non_null(strstr(err.text, m.s.address));
    assert_non_null(strstr(err.text, "gives no weights: not yet?"));
    assert_ok(fetch(&m.s, right, &f, &err), err);
    assert_ok(fetch(&m.s, right, &other, &err), err);
    use_version(&m, f, 0);
    use_version(&m, other, 0);
    do { /* the worker may not have heard yet that they went */
        assert_ok(fetch(&m.s, right, &f, &err), err);
        const ru_remote *w = ru_fetch_weights(f);
        if (w->at[0].hash == ru_hash_bytes(version[1], sizeof version[1], 0)) {
            break;
        }
        ru_fetch_close(f);
    } while (true);
    use_version(&m, f, 1);
    ru_loop_stop(m.bridge.loop);
    ru_thread_join(&m.s.thread);
    assert_int_equal(m.made, 2);
    close_maker(&m, link);
}

/* Who asked first leaves while the weights are made: they are for the next one, and made once. */
static void test_left_while_made(void **state)
{
    (void)state;
    maker m;
    ru_link_tcp *link;
    ru_effects fx;
    open_maker(&m, &link);
    m.late = true;
    ru_effects_init(&fx, &m.arena);
    const ru_part part = ru_giver_part(m.giver);
    for (uint32_t k = 0; k < 2; k++) {
        const ru_node_id first = {2 * k + 1}, second = {2 * k + 2};
        ru_event ev = {.kind = RU_EV_MESSAGE, .what = RUI_REMOTE_HELLO, .node = first};
        const ru_event left = {.kind = RU_EV_DOWN, .node = first};
        part.ops->guest(part.self, &ev, &fx);
        part.ops->guest(part.self, &left, &fx);
        ev.node = second;
        part.ops->guest(part.self, &ev, &fx);
        assert_int_equal(m.asked, k + 1);
        assert_int_equal(m.unused, k);
        give(&m, &fx);
        assert_int_equal(fx.at[fx.n - 1].what, RUI_REMOTE_HEAD);
        assert_int_equal(fx.at[fx.n - 1].node.v, second.v);
        ev.kind = RU_EV_DOWN;
        part.ops->guest(part.self, &ev, &fx);
        assert_int_equal(m.unused, k + 1);
    }
    close_maker(&m, link);
}

RU_TESTS(train_remote, cmocka_unit_test(test_made_when_asked),
         cmocka_unit_test(test_left_while_made), cmocka_unit_test(test_description),
         cmocka_unit_test(test_damaged_description), cmocka_unit_test(test_guests))
