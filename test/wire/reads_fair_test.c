/* The leader makes delivery fair at a storage that serves in proportion to outstanding bytes
 * (train/elastic/elastic_reads.c), in virtual time: real step machines, a storage in closed form.
 */
#include <math.h>

#include "lab/job.h"
#include "test/test.h"

enum { WORKERS = 4, SECONDS = 12, TICKS = 50, LOOK = 10 };
#define MIB     1048576.0
#define RATE    (100 * MIB) /* of the storage, for all */
#define STEP_S  0.4
#define REQUEST 131072.0

typedef struct worker {
    double outstanding, delivered, taken, before; /* bytes; delivered before this second */
    double asked_s, stall_s;
    bool asks;
    ru_sim_fn fed;
    void *fed_self;
    uint64_t fed_arg;
} worker;

typedef struct store {
    ru_sim *sim;
    bool obeys; /* the leader's orders */
    double batch_bytes;
    worker at[WORKERS];
    double jain[SECONDS];
    uint32_t ticks, orders;
} store;

static double now_s(const store *s)
{
    return 1e-9 * (double)ru_sim_now(s->sim).ns;
}

/* After the time that counts nobody waits any more. */
static void look(store *s, worker *w)
{
    bool over = s->ticks >= SECONDS * TICKS;
    if (w->asks && (over || w->delivered >= w->taken + s->batch_bytes)) {
        w->asks = false;
        w->stall_s += now_s(s) - w->asked_s;
        w->taken += s->batch_bytes;
        w->fed(w->fed_self, w->fed_arg);
    }
}

static void end_second(store *s, uint32_t second)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        double x = s->at[i].delivered - s->at[i].before;
        s->at[i].before = s->at[i].delivered;
        sum += x;
        squares += x * x;
    }
    s->jain[second] = sum * sum / (WORKERS * squares);
}

static void tick(void *self, uint64_t unused)
{
    (void)unused;
    store *s = self;
    double all = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        all += s->at[i].outstanding;
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        s->at[i].delivered += RATE / TICKS * s->at[i].outstanding / all;
    }
    s->ticks++;
    if (s->ticks % TICKS == 0) {
        end_second(s, s->ticks / TICKS - 1);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        look(s, &s->at[i]);
    }
    if (s->ticks < SECONDS * TICKS) {
        (void)ru_sim_at(s->sim, (ru_time){ru_sim_now(s->sim).ns + 1000000000 / TICKS}, tick, s, 0);
    }
}

static void input_open(void *self, ru_sim *sim)
{
    store *s = self;
    s->sim = sim;
    (void)ru_sim_at(sim, (ru_time){ru_sim_now(sim).ns + 1000000000 / TICKS}, tick, s, 0);
}

static void input_step(void *self, uint32_t i, ru_sim_fn fed, void *fed_self, uint64_t arg)
{
    store *s = self;
    worker *w = &s->at[i];
    w->asks = true;
    w->asked_s = now_s(s);
    w->fed = fed;
    w->fed_self = fed_self;
    w->fed_arg = arg;
    look(s, w);
}

static void input_reads(void *self, uint32_t i, ru_elastic_reads *into)
{
    const store *s = self;
    const worker *w = &s->at[i];
    double stall_s = w->stall_s + (w->asks ? now_s(s) - w->asked_s : 0);
    *into = (ru_elastic_reads){.bytes = (int64_t)w->delivered,
                               .busy_ns = ru_sim_now(s->sim).ns,
                               .stall_ns = (int64_t)(1e9 * stall_s),
                               .batch_bytes = (int64_t)s->batch_bytes,
                               .outstanding_bytes = (int64_t)w->outstanding};
}

static void input_share(void *self, uint32_t i, int64_t outstanding_bytes)
{
    store *s = self;
    s->orders += outstanding_bytes > 0 ? 1 : 0;
    if (s->obeys && outstanding_bytes > 0) { /* whole requests, as readers have them */
        s->at[i].outstanding = REQUEST * fmax(round((double)outstanding_bytes / REQUEST), 1);
    }
}

static void play(store *s, const uint32_t *depth, double batch_bytes, bool obeys)
{
    *s = (store){.obeys = obeys, .batch_bytes = batch_bytes};
    for (uint32_t i = 0; i < WORKERS; i++) {
        s->at[i].outstanding = REQUEST * depth[i];
    }
    const ru_sim_input input = {input_open, input_step, input_reads, input_share, s};
    const int64_t tensor_n[] = {1000};
    const ru_sim_job job = {.seed = 3,
                            .founders = WORKERS,
                            .steps = (int64_t)(SECONDS / STEP_S) + 10,
                            .batch = WORKERS,
                            .n_tensors = 1,
                            .tensor_n = tensor_n,
                            .counted = true,
                            .equal_shares = true,
                            .sample_ns = (int64_t)(STEP_S * 1e9),
                            .time_max_ns = INT64_C(600000000000),
                            .input = &input};
    ru_sim_job_result result;
    ru_err err = {0};
    assert_ok(ru_sim_job_run(&job, &result, &err), err);
    assert_int_equal(s->ticks, SECONDS * TICKS);
}

static double outstanding(const store *s)
{
    double all = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        all += s->at[i].outstanding;
    }
    return all / REQUEST;
}

/* From 1, 8, 32 and 32 requests: Jain's index 0.63, after ten seconds at least 0.98; the sum of
 * what is outstanding stays. */
static void test_unequal_depths_become_fair(void **state)
{
    (void)state;
    static const uint32_t depth[WORKERS] = {1, 8, 32, 32};
    store s;
    play(&s, depth, 12 * MIB, true);
    assert_true(s.jain[0] < 0.64);
    assert_true(s.jain[LOOK] >= 0.98);
    assert_true(fabs(outstanding(&s) - 73) <= 3);
    assert_true(s.orders >= WORKERS);
}

/* Without obedience it would stay as it is: the test above shows what the orders do. */
static void test_nothing_else_makes_it_fair(void **state)
{
    (void)state;
    static const uint32_t depth[WORKERS] = {1, 8, 32, 32};
    store s;
    play(&s, depth, 12 * MIB, false);
    assert_true(s.jain[LOOK] < 0.64);
    assert_true(s.orders > 0);
}

/* Fair already, though too slow for all; and unfair, but everybody has enough. */
static void test_no_orders_without_need(void **state)
{
    (void)state;
    static const uint32_t equal[WORKERS] = {16, 16, 16, 16}, enough[WORKERS] = {8, 8, 12, 12};
    store s;
    play(&s, equal, 16 * MIB, true);
    assert_int_equal(s.orders, 0);
    play(&s, enough, 4 * MIB, true);
    assert_int_equal(s.orders, 0);
}

RU_TESTS(test_reads_fair, cmocka_unit_test(test_unequal_depths_become_fair),
         cmocka_unit_test(test_nothing_else_makes_it_fair),
         cmocka_unit_test(test_no_orders_without_need))
