/* A world file in the simulator: durations are those of its facts, by hand; the same seed gives the
 * same events; a network without cost leaves the computing alone. */
#include "lab/script.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "store/world_file.h"
#include "test/test.h"

/* Forward, two gradients, an update: 100 + 200 + 300 us and 50 us on 10 samples. */
static const char ops[] = "\"ops\":["
                          "{\"step\":0,\"op\":\"a\",\"kernel\":\"k\",\"shapes\":\"0\",\"flops\":"
                          "100,\"took\":{\"mean_ns\":1e5,\"count\":9}},"
                          "{\"step\":1,\"op\":\"a\",\"kernel\":\"k\",\"shapes\":\"1\",\"flops\":"
                          "200,\"took\":{\"mean_ns\":2e5,\"count\":9}},"
                          "{\"step\":2,\"op\":\"a\",\"kernel\":\"k\",\"shapes\":\"2\",\"flops\":"
                          "300,\"took\":{\"mean_ns\":3e5,\"count\":9}},"
                          "{\"step\":3,\"op\":\"b\",\"kernel\":\"u\",\"shapes\":\"3\",\"flops\":1,"
                          "\"took\":{\"mean_ns\":5e4,\"count\":9}}],"
                          "\"transfers\":["
                          "{\"name\":\"y\",\"size_bytes\":80,\"made_by\":2,\"needed_by\":3,"
                          "\"took\":{\"mean_ns\":0,\"count\":0}},"
                          "{\"name\":\"x\",\"size_bytes\":40,\"made_by\":1,\"needed_by\":3,"
                          "\"took\":{\"mean_ns\":0,\"count\":0}}],";

static void read_world(ru_arena *a, const char *facts, ru_world *w)
{
    ru_err err;
    char text[4096];
    snprintf(text, sizeof text,
             "{\"schema\":\"rubato.world/1\",\"jobs\":[{\"name\":\"j\",\"batch\":20,"
             "\"gradient_bytes\":[40,80]}],\"facts\":{%s\"steps\":[{\"job\":\"j\",\"workers\":2,"
             "\"samples\":10,\"batch\":20,\"compute_ns\":6e5,\"took\":{\"mean_ns\":9e5}}]}}",
             facts);
    assert_ok(ru_world_file_parse("w", ru_str_c(text), a, w, &err), err);
}

static void test_durations_are_those_of_the_facts(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    ru_sim_world x;
    ru_sim_job job = {.seed = 1, .steps = 5};
    ru_err err;
    read_world(&a, ops, &w);
    assert_ok(ru_sim_job_of_world(&w, &job, &x, &err), err);
    assert_int_equal(job.founders, 2);
    assert_int_equal(job.n_tensors, 2);
    assert_int_equal(job.tensor_n[0], 10); /* x is made first */
    assert_int_equal(job.tensor_n[1], 20);
    assert_int_equal(x.compute_ns, 600000);
    assert_int_equal(x.script.update_ns, 50000);
    assert_true(fabs(x.script.ready[0] - 0.5) < 1e-12 && x.script.ready[1] == 1);
    /* all of it grows with the flops: 60 us a sample */
    assert_true(fabs(x.script.sample_ns - 60000) < 1 && x.script.fixed_ns < 10);
    assert_int_equal(x.measured, 3);
    /* 600 us, then the last sum over 2 ranks: 2 steps of 10 us and 80 bytes, then 50 us */
    assert_true(x.path_ns >= 600000 + 20000 + 50000 && x.path_ns < 600000 + 20200 + 50000);
    /* Without op instances the step facts say the same. */
    ru_sim_job plain = {.seed = 1, .steps = 5};
    read_world(&a, "", &w);
    assert_ok(ru_sim_job_of_world(&w, &plain, &x, &err), err);
    assert_true(x.n_ops == 0 && x.script.sample_ns == 60000);
    ru_arena_fini(&a);
}

static void test_a_world_runs_and_repeats(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    ru_sim_job_result r[2];
    ru_err err;
    read_world(&a, ops, &w);
    for (uint32_t k = 0; k < 2; k++) {
        ru_sim_world x;
        ru_sim_job job = {.seed = 7, .steps = 20, .equal_shares = true};
        assert_ok(ru_sim_job_of_world(&w, &job, &x, &err), err);
        job.nic.bytes_per_s = 1e11; /* sums of 120 bytes cost their delay, twice */
        job.nic.delay_ns = 1000;
        assert_ok(ru_sim_job_run(&job, &r[k], &err), err);
        assert_int_equal(r[k].committed, 20);
    }
    assert_true(r[0].hash == r[1].hash && r[0].events == r[1].events);
    /* 650 us of computing and updating, messages of commits and sums beside them */
    assert_true(r[0].step_ns >= 650000 && r[0].step_ns < 750000);
    ru_arena_fini(&a);
}

static void test_a_world_without_facts_is_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    ru_sim_world x;
    ru_sim_job job = {.seed = 1};
    ru_err err;
    assert_ok(ru_world_file_parse("w", ru_str_c("{\"schema\":\"rubato.world/1\"}"), &a, &w, &err),
              err);
    assert_int_equal(ru_sim_job_of_world(&w, &job, &x, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "facts.steps"));
    ru_arena_fini(&a);
}

RU_TESTS(test_sim_world, cmocka_unit_test(test_durations_are_those_of_the_facts),
         cmocka_unit_test(test_a_world_runs_and_repeats),
         cmocka_unit_test(test_a_world_without_facts_is_refused))
