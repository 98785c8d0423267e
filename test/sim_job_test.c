/* Elastic jobs in the simulator: some seeds of what `rubato bench sim --only seeds` runs ten
 * thousand of. A seed that once broke something stays here. */
#include "tool/sim_job.h"

#include <inttypes.h>
#include <stdio.h>

#include "test/test.h"

static void an_undisturbed_job_gives_what_one_process_gives(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n++) {
        const ru_sim_job job = {.seed = n,
                                .founders = n,
                                .steps = 12,
                                .batch = 40,
                                .sample_ns = 1000000,
                                .time_max_ns = INT64_C(20000000000)};
        ru_sim_job_result r;
        ru_err err = {0};
        assert_ok(ru_sim_job_run(&job, &r, &err), err);
        assert_int_equal(r.committed, 12);
        assert_int_equal(r.redone, 0);
        assert_int_equal(r.lost, 0);
        assert_int_equal(r.expelled, 0);
    }
}

static void faults_by_seed_break_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        ru_sim_job job;
        ru_sim_job_result r;
        ru_err err = {0};
        ru_sim_job_draw(seed, &job);
        assert_ok(ru_sim_job_run(&job, &r, &err), err);
    }
}

static void equal_seeds_run_equally(void **state)
{
    (void)state;
    for (uint64_t seed = 1000; seed < 1004; seed++) {
        ru_sim_job job;
        ru_sim_job_result a, b;
        ru_err err = {0};
        ru_sim_job_draw(seed, &job);
        assert_ok(ru_sim_job_run(&job, &a, &err), err);
        assert_ok(ru_sim_job_run(&job, &b, &err), err);
        assert_true(a.hash == b.hash);
        assert_int_equal(a.events, b.events);
    }
}

static void many_workers_move_counted_bytes(void **state)
{
    (void)state;
    const ru_sim_job job = {.seed = 1,
                            .founders = 70,
                            .steps = 3,
                            .batch = 140,
                            .n_tensors = 3,
                            .tensor_n = {1000000, 300000, 50},
                            .counted = true,
                            .sample_ns = 1000000,
                            .time_max_ns = INT64_C(20000000000)};
    ru_sim_job_result r;
    ru_err err = {0};
    assert_ok(ru_sim_job_run(&job, &r, &err), err);
    assert_int_equal(r.committed, 3);
    /* 5.2 MB at 1.25 GB/s, twice nearly all of it: no step is faster than its bytes. */
    assert_true(r.step_ns > 2 * 5200200 * INT64_C(1000) / 1250 * 69 / 70);
}

RU_TESTS(test_sim_job, cmocka_unit_test(an_undisturbed_job_gives_what_one_process_gives),
         cmocka_unit_test(faults_by_seed_break_nothing), cmocka_unit_test(equal_seeds_run_equally),
         cmocka_unit_test(many_workers_move_counted_bytes))
