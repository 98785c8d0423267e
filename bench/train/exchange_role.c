/* The processes of the benchmark of exchanges: a store, and a worker. */
#include "bench/train/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "env/clock.h"
#include "env/loop/loop.h"
#include "fleet/exchange/exchange.h"
#include "fleet/exchange/store.h"
#include "web/post.h"

enum { JOB = 1, EPOCH = 1, KEPT_STEPS = 2, SERVED = 1000, FLOATS_MAX = 16 << 20 };

static const char token[] = "of-the-exchanges-of-the-benchmark";

/* -- store ----------------------------------------------------------------------------------------
 */

typedef struct server {
    ru_store *store;
    ru_loop *loop;
    float *sum; /* [FLOATS_MAX] of the workers that put their vectors in this step */
    int64_t step;
    uint32_t have;
    bool failed;
} server;

static ru_shard_key key_of(ru_shard_kind kind, int64_t step, uint32_t shard, uint32_t rank)
{
    return (ru_shard_key){
        .job = JOB, .epoch = EPOCH, .kind = kind, .step = step, .shard = shard, .rank = rank};
}

/* Keys of old steps are dropped. A vector for the server is added; shard: SERVED and how many. */
static void on_put(void *self, const ru_shard_key *key, const void *data, int64_t size_bytes)
{
    server *s = self;
    int64_t count = size_bytes / (int64_t)sizeof(float);
    const float *from = data;
    if (key->step > s->step) {
        s->step = key->step;
        s->have = 0;
        ru_store_window(s->store, s->step - KEPT_STEPS, INT64_MAX);
    }
    if (key->kind != RU_SHARD_PIECE || key->shard < SERVED || count > FLOATS_MAX) {
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        s->sum[i] = s->have == 0 ? from[i] : s->sum[i] + from[i];
    }
    if (++s->have == key->shard - SERVED) {
        const ru_shard_key sum = key_of(RU_SHARD_SUM, key->step, key->shard, 0);
        s->failed |= ru_store_put(s->store, &sum, s->sum, size_bytes, NULL) != RU_OK;
    }
}

static void on_end(void *self, int fd, uint32_t events, ru_time now)
{
    (void)fd, (void)events, (void)now;
    ru_loop_stop(self);
}

static ru_status store(const char *listen, uint32_t workers, ru_arena *arena, ru_err *err)
{
    server s = {.sum = malloc(FLOATS_MAX * sizeof(float))};
    ru_status st = s.sum != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a sum");
    st = st == RU_OK ? ru_loop_open(&s.loop, err) : st;
    if (st == RU_OK) {
        const ru_store_options o = {.loop = s.loop,
                                    .listen = listen,
                                    .token = token,
                                    .job = JOB,
                                    .workers_max = workers,
                                    .put = on_put,
                                    .self = &s};
        st = ru_store_open(&o, arena, &s.store, err);
    }
    if (st == RU_OK) {
        ru_store_epoch(s.store, EPOCH);
        ru_store_window(s.store, 0, INT64_MAX);
        printf("ready %s\n", ru_store_address(s.store));
        fflush(stdout);
        st = ru_loop_fd(s.loop, 0, 1, on_end, s.loop, err);
        st = st == RU_OK ? ru_loop_run(s.loop, err) : st;
    }
    ru_store_close(s.store);
    ru_loop_close(s.loop);
    free(s.sum);
    return st == RU_OK && s.failed ? RU_FAIL(err, RU_E_MEM, "no memory for a sum") : st;
}

/* -- requests of a worker -------------------------------------------------------------------------
 */

typedef struct work {
    ru_loop *loop;
    ru_posts *posts;
    ru_arena *arena;
    ru_exchange *shards[RU_SHARD_WORKERS_MAX + 1]; /* by number of workers */
    const char *store, *url_put, *url_get;
    float *vec; /* [count] */
    int64_t count, step;
    uint32_t rank, workers;
    uint32_t open; /* requests */
    bool failed;
} work;

typedef struct request {
    work *of;
    float *into; /* [n] of a get */
    int64_t n;
    bool gets, adds; /* adds to what is there */
    uint8_t body[];
} request;

static void on_answer(void *self, const ru_post_answer *a)
{
    request *q = self;
    bool fits = a->n == (q->gets ? q->n * (int64_t)sizeof(float) : 0);
    if (a->status != 200 || !fits) {
        q->of->failed = true;
    } else if (q->adds) {
        for (int64_t i = 0; i < q->n; i++) {
            float v;
            memcpy(&v, a->text + i * (int64_t)sizeof v, sizeof v);
            q->into[i] += v;
        }
    } else if (q->gets) {
        memcpy(q->into, a->text, (size_t)a->n);
    }
    q->of->open--;
    free(q);
}

static void send(work *w, request *q, bool puts, const ru_shard_key *key, const float *from)
{
    int64_t bytes = q->n * (int64_t)sizeof(float);
    ru_wire_out o = ru_wire_out_into(q->body, bytes + RU_SHARD_KEY_BYTES + 12);
    ru_wire_put_u32(&o, 1);
    ru_shard_key_put(&o, key);
    if (puts) {
        ru_wire_put_u64(&o, (uint64_t)bytes);
        ru_wire_put_bytes(&o, from, bytes);
    }
    const ru_post p = {.url = puts ? w->url_put : w->url_get,
                       .body = q->body,
                       .body_bytes = ru_wire_size(&o),
                       .type = "application/octet-stream",
                       .token = token,
                       .answer_max_bytes = bytes + 1,
                       .done = on_answer,
                       .self = q};
    RU_CHECK(!o.bad);
    w->open++;
    if (ru_posts_send(w->posts, &p, NULL) != RU_OK) {
        w->failed = true;
        w->open--;
        free(q);
    }
}

static request *request_new(work *w, int64_t n)
{
    request *q = malloc(sizeof *q + (size_t)n * sizeof(float) + RU_SHARD_KEY_BYTES + 12);
    if (q == NULL) {
        w->failed = true;
        return NULL;
    }
    *q = (request){.of = w, .n = n};
    return q;
}

static void put(work *w, ru_shard_key key, const float *from, int64_t n)
{
    request *q = request_new(w, n);
    if (q != NULL) {
        send(w, q, true, &key, from);
    }
}

static void get(work *w, ru_shard_key key, float *into, int64_t n, bool adds)
{
    request *q = request_new(w, n);
    if (q != NULL) {
        q->into = into;
        q->gets = true;
        q->adds = adds;
        send(w, q, false, &key, NULL);
    }
}

static ru_status wait_all(work *w, ru_err *err)
{
    ru_status st = RU_OK;
    while (w->open > 0 && !w->failed && st == RU_OK) {
        st = ru_loop_round(w->loop, -1, err);
    }
    return st == RU_OK && w->failed ? RU_FAIL(err, RU_E_PEER, "%s does not answer", w->store) : st;
}

/* -- exchanges ------------------------------------------------------------------------------------
 */

static ru_status shards(work *w, ru_err *err)
{
    int64_t last;
    ru_exchange **x = &w->shards[w->workers];
    const ru_exchange_options o = {.loop = w->loop,
                                   .store = w->store,
                                   .token = token,
                                   .keys = "",
                                   .job = JOB,
                                   .epoch = EPOCH,
                                   .rank = w->rank,
                                   .workers = w->workers};
    RU_TRY(*x == NULL ? ru_exchange_open(&o, w->arena, x, err) : RU_OK);
    return ru_exchange_sum(*x, w->step, w->vec, w->count, &last, err);
}

static ru_status all(work *w, ru_err *err)
{
    put(w, key_of(RU_SHARD_PIECE, w->step, 0, w->rank), w->vec, w->count);
    RU_TRY(wait_all(w, err));
    memset(w->vec, 0, (size_t)w->count * sizeof(float));
    for (uint32_t r = 0; r < w->workers; r++) {
        get(w, key_of(RU_SHARD_PIECE, w->step, 0, r), w->vec, w->count, true);
    }
    return wait_all(w, err);
}

static ru_status scatter(work *w, ru_err *err)
{
    const ru_shards s = {.count = w->count, .block = w->count, .workers = w->workers, .blocks = 1};
    int64_t own, n_own, at, n;
    ru_shards_range(&s, 0, w->rank, &own, &n_own);
    for (uint32_t k = 0; k < w->workers; k++) {
        ru_shards_range(&s, 0, k, &at, &n);
        if (k != w->rank) {
            put(w, key_of(RU_SHARD_PIECE, w->step, k, w->rank), w->vec + at, n);
        }
    }
    RU_TRY(wait_all(w, err));
    for (uint32_t r = 0; r < w->workers; r++) {
        if (r != w->rank) {
            get(w, key_of(RU_SHARD_PIECE, w->step, w->rank, r), w->vec + own, n_own, true);
        }
    }
    RU_TRY(wait_all(w, err));
    put(w, key_of(RU_SHARD_SUM, w->step, w->rank, 0), w->vec + own, n_own);
    RU_TRY(wait_all(w, err));
    for (uint32_t k = 0; k < w->workers; k++) {
        ru_shards_range(&s, 0, k, &at, &n);
        if (k != w->rank) {
            get(w, key_of(RU_SHARD_SUM, w->step, k, 0), w->vec + at, n, false);
        }
    }
    return wait_all(w, err);
}

static ru_status served(work *w, ru_err *err)
{
    uint32_t shard = SERVED + w->workers;
    put(w, key_of(RU_SHARD_PIECE, w->step, shard, w->rank), w->vec, w->count);
    RU_TRY(wait_all(w, err));
    get(w, key_of(RU_SHARD_SUM, w->step, shard, 0), w->vec, w->count, false);
    return wait_all(w, err);
}

static ru_status load(work *w, ru_err *err)
{
    put(w, key_of(RU_SHARD_PIECE, w->step, 0, 0), w->vec, w->count);
    return wait_all(w, err);
}

static ru_status line(work *w, ru_err *err)
{
    get(w, key_of(RU_SHARD_PIECE, w->step - 1, 0, 0), w->vec, w->count, false);
    return wait_all(w, err);
}

static ru_status exchange(work *w, rui_exchange how, ru_err *err)
{
    switch (how) {
    case RUI_EXCHANGE_SHARDS:
        return shards(w, err);
    case RUI_EXCHANGE_ALL:
        return all(w, err);
    case RUI_EXCHANGE_SCATTER:
        return scatter(w, err);
    case RUI_EXCHANGE_SERVER:
        return served(w, err);
    case RUI_EXCHANGE_LOAD:
        return load(w, err);
    case RUI_EXCHANGE_LINE:
        return line(w, err);
    }
    return RU_FAIL(err, RU_E_USAGE, "there is no such exchange");
}

/* -- a worker -------------------------------------------------------------------------------------
 */

/* Small whole numbers, whose sums are exact in any order. */
static float value(int64_t i, uint32_t rank)
{
    return (float)((i * 31 + (int64_t)rank * 17) % 1021);
}

static ru_status look(const work *w, ru_err *err)
{
    for (int64_t i = 0; i < w->count; i++) {
        float want = 0;
        for (uint32_t r = 0; r < w->workers; r++) {
            want += value(i, r);
        }
        if (w->vec[i] != want) {
            return RU_FAIL(err, RU_E_DATA, "the sum of value %lld is %g instead of %g",
                           (long long)i, (double)w->vec[i], (double)want);
        }
    }
    return RU_OK;
}

/* A line of the driver; the answer is how long it took. */
static ru_status answer(work *w, const char *text, ru_err *err)
{
    char *at;
    rui_exchange how = (rui_exchange)strtoul(text, &at, 10);
    w->workers = (uint32_t)strtoul(at, &at, 10);
    w->count = strtoll(at, &at, 10);
    w->step = strtoll(at, NULL, 10);
    bool sums = how < RUI_EXCHANGE_LOAD;
    if (w->workers <= w->rank || w->workers > RU_SHARD_WORKERS_MAX || w->count < 1 ||
        w->count > FLOATS_MAX) {
        return RU_FAIL(err, RU_E_USAGE, "'%s' asks for nothing that this worker has", text);
    }
    for (int64_t i = 0; i < w->count; i++) {
        w->vec[i] = value(i, w->rank);
    }
    int64_t from_ns = ru_clock_now().ns;
    RU_TRY(exchange(w, how, err));
    double s = (double)(ru_clock_now().ns - from_ns) * 1e-9;
    RU_TRY(sums ? look(w, err) : RU_OK);
    printf("%.9f\n", s);
    fflush(stdout);
    return RU_OK;
}

static ru_status worker(const char *address, uint32_t rank, ru_arena *arena, ru_err *err)
{
    char text[128];
    work w = {.rank = rank, .arena = arena, .vec = malloc(FLOATS_MAX * sizeof(float))};
    w.store = ru_arena_printf(arena, "http://%s", address);
    w.url_put = ru_arena_printf(arena, "%s/put", w.store);
    w.url_get = ru_arena_printf(arena, "%s/get", w.store);
    ru_status st = w.vec != NULL && w.url_get != NULL && w.url_put != NULL
                       ? RU_OK
                       : RU_FAIL(err, RU_E_MEM, "no memory for a vector");
    st = st == RU_OK ? ru_loop_open(&w.loop, err) : st;
    st = st == RU_OK ? ru_posts_open(w.loop, NULL, arena, &w.posts, err) : st;
    if (st == RU_OK) {
        printf("ready %u\n", rank);
        fflush(stdout);
    }
    while (st == RU_OK && fgets(text, sizeof text, stdin) != NULL && strcmp(text, "quit\n") != 0) {
        st = answer(&w, text, err);
    }
    for (uint32_t n = 0; n <= RU_SHARD_WORKERS_MAX; n++) {
        ru_exchange_close(w.shards[n]);
    }
    ru_posts_close(w.posts);
    ru_loop_close(w.loop);
    free(w.vec);
    return st;
}

ru_status rui_exchange_role(const char *const *words, uint32_t n, ru_err *err)
{
    bool is_store = strcmp(words[0], "exchange-store") == 0;
    if (n != 3 || (!is_store && strcmp(words[0], "exchange-work") != 0)) {
        return RU_FAIL(err, RU_E_USAGE, "'%s' is no role of the benchmark of exchanges", words[0]);
    }
    ru_arena arena;
    ru_arena_init(&arena, 0);
    uint32_t number = (uint32_t)strtoul(words[2], NULL, 10);
    ru_status st =
        is_store ? store(words[1], number, &arena, err) : worker(words[1], number, &arena, err);
    ru_arena_fini(&arena);
    return st;
}
