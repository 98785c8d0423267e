/* The processor time of steps: counters and steps recorded with numbers known by hand. */
#include <stdio.h>
#include <stdlib.h>

#include "env/file/file.h"
#include "test/test.h"
#include "trace/read/fold.h"

enum { MS = 1000000, STEPS = 45 };

/* Steps of 10 ms, of which the process computes 3 ms and sends for 1 ms; the first five take ten
 * times as long. */
static void record(ru_recorder *r, uint32_t steps, bool messages)
{
    uint16_t step = ru_recorder_name(r, "step", "train");
    uint16_t read = ru_recorder_name(r, "read", "data");
    uint16_t all = ru_recorder_name(r, RU_TRACE_CPU_ALL, "train");
    uint16_t loop = ru_recorder_name(r, RU_TRACE_CPU_LOOP, "train");
    int64_t at_ns = ru_rec_now() - INT64_C(10000) * MS;
    double used = 77 * MS, sent = 5 * MS;
    ru_recorder_meta(r, RU_TRACE_QUOTA, "4000000");
    ru_recorder_meta(r, RU_TRACE_PERIOD, "10000000");
    for (uint32_t k = 0; k < steps; k++) {
        int64_t took_ns = (k < 5 ? 100 : 10) * MS;
        ru_rec_span(r, step, at_ns, at_ns + took_ns, k + 1);
        ru_rec_span(r, read, at_ns, at_ns + took_ns / 5, 64);
        at_ns += took_ns;
        used += (k < 5 ? 40 : 4) * MS;
        sent += (k < 5 ? 20 : 1) * MS;
        ru_rec_counter_at(r, all, at_ns + 1000, used);
        if (messages) {
            ru_rec_counter_at(r, loop, at_ns + 2000, sent);
        }
    }
}

static void fold(uint32_t steps, bool messages, bool *some, ru_processor_fact *f)
{
    char root[] = "/tmp/rubato-test-XXXXXX";
    ru_arena a;
    ru_err err;
    ru_recorder *r;
    ru_trace t;
    ru_arena_init(&a, 0);
    assert_non_null(mkdtemp(root));
    const ru_recorder_options opt = {.dir = root, .rank = 3};
    assert_ok(ru_recorder_open(&opt, &r, &err), err);
    record(r, steps, messages);
    ru_recorder_close(r);
    assert_ok(ru_trace_load(ru_path_join(&a, root, "rank3.trace"), &a, &t, &err), err);
    *some = ru_trace_fold_processor(&t, f);
    assert_int_equal(ru_path_remove(root, NULL), RU_OK);
    ru_arena_fini(&a);
}

static void steps_are_folded_without_the_first(void **state)
{
    (void)state;
    bool some;
    ru_processor_fact f;
    fold(STEPS, true, &some, &f);
    assert_true(some);
    assert_int_equal(f.rank, 3);
    assert_int_equal(f.took.count, STEPS - 5);
    assert_int_equal((int64_t)f.took.mean_ns, 10 * MS);
    assert_int_equal(f.took.min_ns, 10 * MS);
    assert_int_equal(f.took.max_ns, 10 * MS);
    assert_true(f.took.stddev_ns < 1000);
    assert_int_equal((int64_t)f.quota_ns, 4 * MS);
    assert_int_equal((int64_t)f.period_ns, 10 * MS);
    assert_int_equal((int64_t)f.read_ns, 2 * MS);
    assert_int_equal((int64_t)f.compute_ns, 3 * MS);
    assert_int_equal((int64_t)f.message_ns, 1 * MS);
    fold(STEPS, false, &some, &f); /* one process: nothing is sent */
    assert_int_equal((int64_t)f.compute_ns, 4 * MS);
    assert_int_equal((int64_t)f.message_ns, 0);
}

static void a_short_run_says_nothing(void **state)
{
    (void)state;
    bool some;
    ru_processor_fact f;
    fold(5, true, &some, &f);
    assert_false(some);
    fold(0, true, &some, &f);
    assert_false(some);
}

RU_TESTS(trace_fold_cpu, cmocka_unit_test(steps_are_folded_without_the_first),
         cmocka_unit_test(a_short_run_says_nothing))
