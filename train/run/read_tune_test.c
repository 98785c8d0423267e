/* The tuner finds what a store of known law wants, from requests alone. */
#include "train/run/read_tune.h"

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
        (void)rui_read_tune_take(t, ended, n, 0, step_ns, NULL);
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
        assert_ok(rui_read_tune_open(&t, 100000, 6400000, INT64_MAX, 64 << 20, false, &arena, &err),
                  err);
        double taken_s = tune(&t, &s, k % 2 == 0 ? 0 : 700000000, 1, &rate);
        assert_true(taken_s < 25);
        assert_true(rate > 0.9 * s.bytes_per_s);
        assert_true(t.plan.size_bytes * t.plan.depth <= t.in.memory);
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
    assert_ok(rui_read_tune_open(&t, 100000, 5000000, INT64_MAX, 64 << 20, false, &arena, &err),
              err);
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
    assert_ok(rui_read_tune_open(&t, 1000, 64000, INT64_MAX, 64 << 20, false, &arena, &err), err);
    for (uint32_t batch = 0; batch < 3000; batch++) {
        s.latency_ns = batch > 1500 ? 50000000 : 1000000;
        now = run(&s, &t, 64, now, ended);
        (void)rui_read_tune_take(&t, ended, 64, 1000, 1000000, NULL);
        assert_true(t.in.windows.n <= RUI_READ_WINDOWS);
    }
    assert_true(t.n_search > 0);
    ru_arena_fini(&arena);
}

RU_TESTS(train_read_tune, cmocka_unit_test(test_finds_the_best),
         cmocka_unit_test(test_takes_no_more_than_is_needed),
         cmocka_unit_test(test_windows_are_bounded))
