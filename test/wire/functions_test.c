/* The server's buffer and its functions in virtual time: sizes, latencies and the bill are those of
 * the exact law of batch-or-timeout (cost/batch.h), for memoryless and for bursty arrivals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cost/batch.h"
#include "function/pool.h"
#include "serve/serve.h"
#include "test/test.h"

enum { REQUESTS = 100000, INSTANCES = 48, BATCH = 8, MEMORY_MB = 768, SERVE = 0x100, POOL = 0x200 };
#define NEVER   INT64_MAX
#define START_S 0.3
#define WAIT_S  0.05

/* Machines, and what is due. */
typedef struct world {
    ru_serve *serve;
    ru_functions *pool;
    ru_arena arena, fx_arena[2];
    ru_time now;
    int64_t serve_at, pool_at;                     /* their timers */
    int64_t up_at[INSTANCES], reply_at[INSTANCES]; /* NEVER: not */
    uint32_t try[INSTANCES], batch_rows[REQUESTS]; /* of a batch by number */
    int64_t *came, *took;                          /* [REQUESTS] */
    uint32_t *next, first[REQUESTS];               /* members of a batch by number */
    uint32_t done, refused, size_n[BATCH + 1];
    uint64_t billed_ms, calls;
} world;

static double service_s(uint32_t rows)
{
    return 0.004 + 0.0015 * rows;
}

static void say_pool(world *w, ru_event ev);

static void say_serve(world *w, ru_event ev)
{
    ru_effects fx;
    ru_arena_mark mark = ru_arena_mark_get(&w->fx_arena[0]);
    ru_effects_init(&fx, &w->fx_arena[0]);
    ev.now = w->now;
    ev.what += SERVE;
    ru_serve_step(w->serve, &ev, &fx);
    for (uint32_t k = 0; k < fx.n; k++) {
        const ru_effect *e = &fx.at[k];
        if (e->kind == RU_FX_TIMER || e->kind == RU_FX_TIMER_OFF) {
            w->serve_at = e->kind == RU_FX_TIMER ? e->at.ns : NEVER;
        } else if (e->what == SERVE + RU_SERVE_START) {
            const ru_serve_start *b = e->data;
            w->batch_rows[b->batch] = b->rows;
            w->size_n[b->rows]++;
            w->first[b->batch] = RU_SERVE_NONE;
            for (uint32_t p = b->first; p != RU_SERVE_NONE; p = ru_serve_next(w->serve, p)) {
                uint32_t id = (uint32_t)ru_serve_id(w->serve, p);
                w->next[id] = w->first[b->batch];
                w->first[b->batch] = id;
            }
            const ru_function_call c = {b->batch, (uint32_t)b->memory_mb};
            say_pool(w, (ru_event){.kind = RU_EV_LOCAL,
                                   .what = RU_FUNCTION_CALL,
                                   .data = &c,
                                   .size_bytes = sizeof c});
        } else if (e->what == SERVE + RU_SERVE_REFUSED) {
            w->refused++;
            w->took[((const ru_serve_request *)e->data)->id] = NEVER;
        } else {
            assert_int_equal(e->what, SERVE + RU_SERVE_TAKEN);
        }
    }
    ru_arena_rewind(&w->fx_arena[0], mark);
}

static void answered(world *w, const ru_function_answer *a)
{
    uint32_t batch = (uint32_t)a->id;
    assert_int_equal(a->result, RU_FUNCTION_OK);
    for (uint32_t id = w->first[batch]; id != RU_SERVE_NONE; id = w->next[id]) {
        assert_int_equal(w->took[id], -1); /* once */
        w->took[id] = w->now.ns - w->came[id];
        w->done++;
    }
    w->billed_ms += (uint64_t)(a->billed_ns / 1000000);
    w->calls++;
    say_serve(w, (ru_event){.kind = RU_EV_LOCAL, .what = RU_SERVE_DONE, .value = batch});
}

static void say_pool(world *w, ru_event ev)
{
    ru_effects fx;
    ru_arena_mark mark = ru_arena_mark_get(&w->fx_arena[1]);
    ru_effects_init(&fx, &w->fx_arena[1]);
    ev.now = w->now;
    ev.what += POOL;
    ru_functions_step(w->pool, &ev, &fx);
    for (uint32_t k = 0; k < fx.n; k++) {
        const ru_effect *e = &fx.at[k];
        const ru_function_order *o = e->data;
        if (e->kind == RU_FX_TIMER || e->kind == RU_FX_TIMER_OFF) {
            w->pool_at = e->kind == RU_FX_TIMER ? e->at.ns : NEVER;
        } else if (e->what == POOL + RU_FUNCTION_SPAWN) {
            w->up_at[o->instance] = w->now.ns + (int64_t)(START_S * 1e9);
        } else if (e->what == POOL + RU_FUNCTION_INVOKE) {
            w->try[o->instance] = o->try;
            w->reply_at[o->instance] = w->now.ns + (int64_t)(service_s(w->batch_rows[o->id]) * 1e9);
        } else {
            assert_int_equal(e->what, POOL + RU_FUNCTION_ANSWER);
            answered(w, e->data);
        }
    }
    ru_arena_rewind(&w->fx_arena[1], mark);
}

/* The next thing that happens, at or before `until`. */
static bool happen(world *w, int64_t until)
{
    int64_t at = w->serve_at < w->pool_at ? w->serve_at : w->pool_at;
    uint32_t who = INSTANCES;
    bool up = false;
    for (uint32_t i = 0; i < INSTANCES; i++) {
        int64_t own = w->up_at[i] < w->reply_at[i] ? w->up_at[i] : w->reply_at[i];
        if (own < at) {
            at = own;
            who = i;
            up = w->up_at[i] == own;
        }
    }
    if (at > until) {
        return false;
    }
    w->now.ns = at > w->now.ns ? at : w->now.ns; /* a clock that was set forward is late */
    if (who < INSTANCES && up) {
        w->up_at[who] = NEVER;
        say_pool(w, (ru_event){.kind = RU_EV_LOCAL, .what = RU_FUNCTION_UP, .value = who});
    } else if (who < INSTANCES) {
        const ru_function_reply r = {who, w->try[who], RU_FUNCTION_OK};
        w->reply_at[who] = NEVER;
        say_pool(w, (ru_event){.kind = RU_EV_LOCAL,
                               .what = RU_FUNCTION_REPLY,
                               .data = &r,
                               .size_bytes = sizeof r});
    } else if (at == w->serve_at) {
        w->serve_at = NEVER;
        say_serve(w, (ru_event){.kind = RU_EV_TIMER, .what = RU_SERVE_TIMER});
    } else {
        w->pool_at = NEVER;
        say_pool(w, (ru_event){.kind = RU_EV_TIMER, .what = RU_FUNCTION_TIMER});
    }
    return true;
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

static void open_world(world *w)
{
    ru_err err;
    const ru_serve_rule rule = {
        .batch = BATCH, .timeout_ns = (int64_t)(WAIT_S * 1e9), .memory_mb = MEMORY_MB};
    const double share = 1;
    const ru_serve_table table = {1, 1, &rule, &share};
    const ru_serve_options so = {
        .requests_max = 4096, .instances_max = INSTANCES, .seed = 1, .what_first = SERVE};
    const ru_functions_options po = {
        .instances_max = INSTANCES, .waiting_max = INSTANCES, .what_first = POOL};
    memset(w, 0, sizeof *w);
    ru_arena_init(&w->arena, 0);
    ru_arena_init(&w->fx_arena[0], 0);
    ru_arena_init(&w->fx_arena[1], 0);
    assert_ok(ru_serve_init(&so, &table, (ru_time){0}, &w->arena, &w->serve, &err), err);
    assert_ok(ru_functions_init(&po, &w->arena, &w->pool, &err), err);
    w->serve_at = w->pool_at = NEVER;
    for (uint32_t i = 0; i < INSTANCES; i++) {
        w->up_at[i] = w->reply_at[i] = NEVER;
    }
    w->came = RU_NEW(&w->arena, int64_t, REQUESTS);
    w->took = RU_NEW(&w->arena, int64_t, REQUESTS);
    w->next = RU_NEW(&w->arena, uint32_t, REQUESTS);
    assert_non_null(w->next);
    for (uint32_t id = 0; id < REQUESTS; id++) {
        w->took[id] = -1;
    }
}

static void close_world(world *w)
{
    ru_arena_fini(&w->fx_arena[0]);
    ru_arena_fini(&w->fx_arena[1]);
    ru_arena_fini(&w->arena);
}

static void come(world *w, uint32_t id, uint32_t class_of, int64_t at_ns)
{
    const ru_serve_request r = {.id = id, .class_of = class_of};
    w->came[id] = at_ns;
    while (happen(w, at_ns)) {
    }
    w->now.ns = at_ns > w->now.ns ? at_ns : w->now.ns;
    say_serve(
        w, (ru_event){
               .kind = RU_EV_LOCAL, .what = RU_SERVE_REQUEST, .data = &r, .size_bytes = sizeof r});
}

static void check_law(world *w, const ru_markov *arrivals)
{
    ru_err err;
    ru_markov_law process;
    ru_batch_law law;
    double service[BATCH + 1] = {0}, billed[BATCH + 1] = {0};
    assert_ok(ru_markov_solve(arrivals, &process, &err), err);
    assert_ok(ru_batch_law_of(&process, BATCH, WAIT_S, 1, &w->arena, &w->arena, &law, &err), err);
    for (uint32_t b = 1; b <= BATCH; b++) {
        service[b] = service_s(b);
        billed[b] = ceil(service[b] * 1e3 - 1e-6) * 1e-3;
        double got = w->size_n[b] / (double)w->calls;
        assert_true(fabs(got - law.size_p[b]) < 0.02);
    }
    qsort(w->took, REQUESTS, sizeof *w->took, by_time);
    for (uint32_t k = 0; k < 2; k++) {
        double p = k == 0 ? 0.5 : 0.95, want = ru_batch_quantile(&law, service, p);
        assert_near((double)w->took[(uint32_t)(p * REQUESTS)] * 1e-9, want, 0.02);
    }
    double gb_s = ru_batch_per_request(&law, billed) * REQUESTS * MEMORY_MB / 1024;
    ru_function_meter m = ru_functions_meter(w->pool);
    assert_near(m.gb_s, gb_s, 0.01);
    assert_near(m.gb_s, (double)w->billed_ms * 1e-3 * MEMORY_MB / 1024, 1e-9);
    assert_true(m.calls == w->calls && m.busy == 0 && m.waiting == 0);
}

static void test_machines_keep_the_law(void **state)
{
    (void)state;
    const ru_markov arrivals[] = {ru_markov_poisson(80), ru_markov_mmpp(200, 30, 5, 5)};
    world *w = malloc(sizeof *w);
    assert_non_null(w);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(arrivals); k++) {
        ru_rng rng = ru_rng_from(ru_test_seed(), k);
        uint32_t phase = 0;
        double at_s = 0;
        open_world(w);
        for (uint32_t id = 0; id < REQUESTS; id++) {
            at_s += ru_markov_draw(&arrivals[k], &rng, &phase);
            come(w, id, 0, (int64_t)(at_s * 1e9));
        }
        while (happen(w, NEVER - 1)) {
        }
        assert_int_equal(w->done, REQUESTS);
        check_law(w, &arrivals[k]);
        close_world(w);
    }
    free(w);
}

enum { PART = 4000, PARTS = 5 };

/* Latencies of a part that are above the promise. */
static uint32_t late_of(const world *w, uint32_t part, int64_t promise_ns)
{
    uint32_t n = 0;
    for (uint32_t id = part * PART; id < (part + 1) * PART; id++) {
        n += w->took[id] != NEVER && w->took[id] > promise_ns ? 1 : 0;
    }
    return n;
}

/* Quiet, a burst of ten times as many, quiet, an hour without any, quiet, the clock set forward by
 * an hour while a buffer is open and calls run, quiet. */
static void test_no_request_is_lost(void **state)
{
    (void)state;
    static const double per_s[PARTS] = {80, 800, 80, 80, 80};
    const int64_t promise_ns = 120000000, hour_ns = INT64_C(3600000000000);
    const ru_serve_rule rule = {.batch = BATCH,
                                .timeout_ns = (int64_t)(WAIT_S * 1e9),
                                .memory_mb = MEMORY_MB,
                                .promise_ns = promise_ns};
    const double share = 1;
    const ru_serve_table table = {1, 1, &rule, &share};
    ru_serve_pace pace = {.batch = BATCH};
    world *w = malloc(sizeof *w);
    ru_rng rng = ru_rng_from(ru_test_seed(), 11);
    assert_non_null(w);
    open_world(w);
    for (uint32_t k = 0; k < 4; k++) {
        pace.service_ns[k] = (int64_t)(service_s(1u << k) * 1e9);
    }
    say_serve(w, (ru_event){.kind = RU_EV_LOCAL,
                            .what = RU_SERVE_TABLE,
                            .data = &table,
                            .size_bytes = sizeof table});
    say_serve(w, (ru_event){.kind = RU_EV_LOCAL,
                            .what = RU_SERVE_PACE,
                            .data = &pace,
                            .size_bytes = sizeof pace});
    int64_t at_ns = 0;
    for (uint32_t id = 0; id < PART * PARTS; id++) {
        at_ns += id == 3 * PART ? hour_ns : 0;
        at_ns += (int64_t)(ru_rng_exponential(&rng) / per_s[id / PART] * 1e9);
        come(w, id, 0, at_ns);
        if (id == 4 * PART) {
            w->now.ns += hour_ns;
            at_ns = w->now.ns;
        }
    }
    while (happen(w, NEVER - 1)) {
    }
    assert_int_equal(w->done + w->refused, PART * PARTS);
    for (uint32_t id = 0; id < PART * PARTS; id++) {
        assert_true(w->took[id] >= 0);
    }
    ru_serve_stats s = ru_serve_stats_get(w->serve);
    assert_true(s.refused == w->refused && s.open + s.ready + s.running == 0);
    /* late are those that met the start of an instance, or the set clock; the burst fills batches
     */
    for (uint32_t part = 0; part < PARTS; part++) {
        assert_true(late_of(w, part, promise_ns) <= PART / 20);
    }
    assert_true(late_of(w, 4, hour_ns / 2) >= 1 && late_of(w, 4, hour_ns / 2) <= 2 * BATCH);
    assert_int_equal(late_of(w, 3, hour_ns / 2), 0);
    close_world(w);
    free(w);
}

enum { SIZED = 20000, SWAP = SIZED / 11 };

/* Ten tables of routes by size, one after the other, under load: each request is answered once, and
 * none waits longer than its own table allows. */
static void test_ten_tables_lose_nothing(void **state)
{
    (void)state;
    const ru_serve_rule rule[3] = {
        {.batch = BATCH, .timeout_ns = 30000000, .memory_mb = MEMORY_MB},
        {.batch = 4, .timeout_ns = 50000000, .memory_mb = MEMORY_MB},
        {.batch = 1, .memory_mb = MEMORY_MB},
    };
    static const double by_size[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, /* [buffer, class] */
        shared[9] = {1, 0.5, 0, 0, 0.5, 0.5, 0, 0, 0.5}, single[3] = {1, 1, 1};
    const ru_serve_table tables[3] = {
        {3, 3, rule, by_size}, {3, 3, rule, shared}, {1, 3, rule, single}};
    world *w = malloc(sizeof *w);
    ru_rng rng = ru_rng_from(ru_test_seed(), 13);
    assert_non_null(w);
    open_world(w);
    int64_t at_ns = 0;
    for (uint32_t id = 0; id < SIZED; id++) {
        at_ns += (int64_t)(ru_rng_exponential(&rng) / 300 * 1e9);
        if (id % SWAP == SWAP - 1 && id / SWAP < 10) {
            while (happen(w, at_ns)) {
            }
            w->now.ns = at_ns;
            say_serve(w, (ru_event){.kind = RU_EV_LOCAL,
                                    .what = RU_SERVE_TABLE,
                                    .data = &tables[id / SWAP % 3],
                                    .size_bytes = sizeof tables[0]});
        }
        come(w, id, (uint32_t)ru_rng_below(&rng, 3), at_ns);
    }
    while (happen(w, NEVER - 1)) {
    }
    assert_int_equal(w->done, SIZED);
    assert_int_equal(w->refused, 0);
    int64_t most_ns = (int64_t)((WAIT_S + START_S + service_s(BATCH)) * 1e9);
    for (uint32_t id = 0; id < SIZED; id++) {
        assert_true(w->took[id] >= 0 && w->took[id] <= most_ns);
    }
    close_world(w);
    free(w);
}

RU_TESTS(test_functions, cmocka_unit_test(test_machines_keep_the_law),
         cmocka_unit_test(test_no_request_is_lost), cmocka_unit_test(test_ten_tables_lose_nothing))
