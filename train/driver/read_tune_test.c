/* The tuner finds what a store of known law wants, from requests alone. */
#include "train/driver/read_tune.h"

#include <string.h>

#include "test/test.h"

/* A store: each request waits `latency_ns`, then its bytes share one pipe. */
typedef struct store {
    int64_t latency_ns;
    double bytes_per_s;
    int64_t free_at;                 /* the pipe */
    int64_t busy[RU_READ_DEPTH_MAX]; /* when each of the outstanding requests ends */
} store;

/* `n` requests, as many at a time as the plan says, from `now` on. Returns when the last one ends.
 */
static int64_t run(store *s, const rui_read_tune *t, uint32_t n, int64_t now, ru_read_done *out)
{
    uint32_t depth = t->plan.depth;
    int64_t last = now;
    for (uint32_t i = 0; i < n; i++) {
        int64_t *slot = &s->busy[i % depth];
        int64_t issued = i < depth ? now : *slot, ready = issued + s->latency_ns;
        int64_t from = ready > s->free_at ? ready : s->free_at;
        *slot = s->free_at = from + (int64_t)(1e9 * (double)t->plan.size_bytes / s->bytes_per_s);
        out[i] = (ru_read_done){issued, *slot, t->plan.size_bytes};
        last = *slot > last ? *slot : last;
    }
    return last;
}

static ru_status open_tune(rui_read_tune *t, int64_t sample, int64_t batch, ru_arena *arena,
                           ru_err *err)
{
    return rui_read_tune_open(t,
                              &(rui_read_tune_options){.sample_bytes = sample,
                                                       .batch_bytes = batch,
                                                       .run_bytes = INT64_MAX,
                                                       .memory_bytes = 64 << 20,
                                                       .ahead_min = 2,
                                                       .ahead_max = 40},
                              arena, err);
}

/* Seconds with requests until the search is over, and the rate then. */
static double tune(rui_read_tune *t, store *s, int64_t rest_ns, int64_t step_ns, double *rate)
{
    static ru_read_done ended[256];
    int64_t now = 1000, busy = 0;
    bool over = false;
    for (uint32_t batch = 0; batch < 100000 && !over; batch++) {
        uint32_t n = 2 * t->plan.depth < 256 ? 2 * t->plan.depth : 256;
        int64_t end = run(s, t, n, now, ended);
        busy += end - now;
        now = end + rest_ns; /* the buffers are full */
        (void)rui_read_tune_take(t, ended, n, &(rui_read_step){.step_ns = step_ns}, NULL);
        over = t->plan.phase == RU_READ_STEADY;
    }
    assert_true(over);
    *rate = 256e9 * (double)t->plan.size_bytes / (double)(run(s, t, 256, now, ended) - now);
    return 1e-9 * (double)busy;
}

static void test_finds_the_best(void **state)
{
    (void)state;
    static const store stores[] = {{.latency_ns = 5000000, .bytes_per_s = 50e6},
                                   {.latency_ns = 20000000, .bytes_per_s = 50e6},
                                   {.latency_ns = 200000, .bytes_per_s = 1e9}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(stores) * 2; k++) {
        ru_arena arena;
        ru_err err = {0};
        rui_read_tune t = {0};
        store s = stores[k / 2];
        double rate;
        ru_arena_init(&arena, 0);
        assert_ok(open_tune(&t, 100000, 6400000, &arena, &err), err);
        double taken_s = tune(&t, &s, k % 2 == 0 ? 0 : 700000000, 1, &rate);
        assert_true(taken_s < 25);
        assert_true(rate > 0.9 * s.bytes_per_s);
        assert_true(t.plan.size_bytes * t.plan.depth <= t.in.q.memory_max_bytes);
        ru_arena_fini(&arena);
    }
}

/* A trainer that needs a hundredth of what the store delivers gets few requests. */
static void test_takes_no_more_than_is_needed(void **state)
{
    (void)state;
    ru_arena arena;
    ru_err err = {0};
    rui_read_tune t = {0};
    store s = {.latency_ns = 5000000, .bytes_per_s = 500e6};
    double rate;
    ru_arena_init(&arena, 0);
    assert_ok(open_tune(&t, 100000, 5000000, &arena, &err), err);
    (void)tune(&t, &s, 0, 1000000000, &rate); /* 5 MB/s */
    assert_true(t.plan.depth <= 2);
    assert_true(rate > 5e6);
    ru_arena_fini(&arena);
}

/* Years of windows stay within the bound, also when the store changes. */
static void test_windows_are_bounded(void **state)
{
    (void)state;
    static ru_read_done ended[64];
    ru_arena arena;
    ru_err err = {0};
    rui_read_tune t = {0};
    store s = {.latency_ns = 1000000, .bytes_per_s = 100e6};
    int64_t now = 1;
    ru_arena_init(&arena, 0);
    assert_ok(open_tune(&t, 1000, 64000, &arena, &err), err);
    for (uint32_t batch = 0; batch < 3000; batch++) {
        s.latency_ns = batch > 1500 ? 50000000 : 1000000;
        now = run(&s, &t, 64, now, ended);
        (void)rui_read_tune_take(&t, ended, 64,
                                 &(rui_read_step){.wait_ns = 1000, .step_ns = 1000000}, NULL);
        assert_true(t.in.windows.n <= RUI_READ_WINDOWS);
    }
    assert_true(t.n_search > 0);
    ru_arena_fini(&arena);
}

/* Steps of 100 ms, the first of 9 s and each tenth of 2 s; batches whose delivery takes `fast_ns`
 * and `slow_ns` in turn. */
static void train(rui_read_tune *t, store *s, int64_t *now, int64_t fast_ns, int64_t slow_ns)
{
    static ru_read_done ended[64];
    for (uint32_t batch = 0; batch < 300; batch++) {
        int64_t end = run(s, t, 64, *now, ended);
        *now = end > *now + 100000000 ? end : *now + 100000000;
        int64_t step_ns = batch == 0 ? 9000000000 : batch % 10 == 9 ? 2000000000 : 100000000;
        (void)rui_read_tune_take(t, ended, 64,
                                 &(rui_read_step){.wait_ns = batch == 0 ? 0 : 30000,
                                                  .step_ns = step_ns,
                                                  .fill_ns = batch % 2 == 0 ? fast_ns : slow_ns},
                                 NULL);
    }
}

/* A small sample a request, answers after 20 ms: eight of them at a time at least, so that the
 * whole search takes less time than two windows of one request at a time. */
static void test_far_stores_are_not_read_one_by_one(void **state)
{
    (void)state;
    double taken_s[2];
    for (uint32_t far = 0; far < 2; far++) {
        ru_arena arena;
        ru_err err = {0};
        rui_read_tune t = {0};
        store s = {.latency_ns = 20000000, .bytes_per_s = 50e6};
        double rate;
        ru_arena_init(&arena, 0);
        const rui_read_tune_options to = {.sample_bytes = 784,
                                          .batch_bytes = 50000,
                                          .run_bytes = 784,
                                          .memory_bytes = 64 << 20,
                                          .far = far == 1,
                                          .ahead_min = 32,
                                          .ahead_max = 256};
        assert_ok(rui_read_tune_open(&t, &to, &arena, &err), err);
        taken_s[far] = tune(&t, &s, 0, 100000000, &rate);
        bool one_by_one = false;
        for (uint32_t i = 0; i < t.in.windows.n; i++) {
            one_by_one = one_by_one || t.window[i].w.depth < 8;
        }
        assert_true(one_by_one == (far == 0));
        assert_true(rate > 0.45e6); /* the need */
        ru_arena_fini(&arena);
    }
    assert_true(taken_s[1] < taken_s[0]);
}

/* Three deviations above the mean delivery, in steps; pauses are not steps, and one step is none.
 */
static void test_reads_ahead_as_far_as_deliveries_take(void **state)
{
    (void)state;
    static const struct {
        int64_t fast_ns, slow_ns;
        uint32_t want;
    } rows[] = {{300000000, 500000000, 8}, /* 0.4 s + 3 x 0.1008 s */
                {400000000, 400000000, 8}, /* keeps 8: more than a half of 5 is no reason */
                {10000000, 10000000, 2},   /* ahead_min */
                {90000000, 9000000000, 40}};
    ru_arena arena;
    ru_err err = {0};
    rui_read_tune t = {0};
    store s = {.latency_ns = 1000000, .bytes_per_s = 400e6};
    int64_t now = 1;
    ru_arena_init(&arena, 0);
    assert_ok(open_tune(&t, 100000, 6400000, &arena, &err), err);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        train(&t, &s, &now, rows[k].fast_ns, rows[k].slow_ns);
        assert_int_equal(t.plan.phase, RU_READ_STEADY);
        assert_int_equal(t.ahead, rows[k].want);
        assert_true(t.in.q.step_s > 0.0999 && t.in.q.step_s < 0.1001);
        assert_true(t.in.need_mb_per_s > 63.9 && t.in.need_mb_per_s < 64.1);
    }
    ru_arena_fini(&arena);
}

RU_TESTS(train_read_tune, cmocka_unit_test(test_reads_ahead_as_far_as_deliveries_take),
         cmocka_unit_test(test_far_stores_are_not_read_one_by_one),
         cmocka_unit_test(test_finds_the_best), cmocka_unit_test(test_takes_no_more_than_is_needed),
         cmocka_unit_test(test_windows_are_bounded))
