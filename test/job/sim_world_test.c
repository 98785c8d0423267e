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
    assert_ok(ru_sim_job_of_world(&w, &a, &job, &x, &err), err);
    assert_int_equal(job.founders, 2);
    assert_int_equal(x.script.n, 2);
    assert_int_equal(x.script.size_bytes[0], 40); /* x is made first */
    assert_int_equal(x.script.size_bytes[1], 80);
    assert_int_equal(x.compute_ns, 600000);
    assert_int_equal(x.script.update_ns, 50000);
    assert_true(fabs(x.script.ready[0] - 0.5) < 1e-12 && x.script.ready[1] == 1);
    /* all of it grows with the flops: 60 us a sample */
    assert_true(fabs(x.script.sample_ns - 60000) < 1 && x.script.fixed_ns < 10);
    assert_int_equal(x.measured, 3);
    /* 600 us, then one sum of 120 bytes over 2 ranks: a step of 10 us, the update of 50 us, and
     * there and back to say that the step counts */
    assert_true(x.path_ns >= 600000 + 10000 + 50000 + 20000 && x.path_ns < 680200);
    /* Without op instances the step facts say the same. */
    ru_sim_job plain = {.seed = 1, .steps = 5};
    read_world(&a, "", &w);
    assert_ok(ru_sim_job_of_world(&w, &a, &plain, &x, &err), err);
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
        assert_ok(ru_sim_job_of_world(&w, &a, &job, &x, &err), err);
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

/* Two hosts of two cores: workers of one thread on them, as many as are given. */
static void read_hosts(ru_arena *a, uint32_t gradients, ru_world *w)
{
    ru_err err;
    ru_text t = ru_text_arena(a);
    ru_text_put(&t, "{\"schema\":\"rubato.world/1\",\"cluster\":{\"hosts\":["
                    "{\"name\":\"a\",\"cores\":2,\"net_bytes_per_s\":1e11},"
                    "{\"name\":\"b\",\"cores\":2,\"tier\":\"transient\"}],\"devices\":["
                    "{\"name\":\"1\",\"host\":\"a\",\"cores\":1},"
                    "{\"name\":\"2\",\"host\":\"b\",\"cores\":1,\"votes\":false}]},"
                    "\"jobs\":[{\"name\":\"j\",\"batch\":20,\"gradient_bytes\":[");
    for (uint32_t k = 0; k < gradients; k++) {
        ru_text_putf(&t, "%s40", k > 0 ? "," : "");
    }
    ru_text_put(&t, "]}],\"facts\":{\"steps\":[{\"job\":\"j\",\"workers\":2,\"samples\":10,"
                    "\"batch\":20,\"compute_ns\":1e7,\"took\":{\"mean_ns\":1e7}}]}}");
    assert_ok(ru_world_file_parse("w", ru_str_n(t.p, t.n), a, w, &err), err);
}

/* Two hosts on slow links. */
static void read_slow(ru_arena *a, double bytes_per_s, uint32_t gradients, int64_t bytes,
                      ru_world *w)
{
    ru_err err;
    ru_text t = ru_text_arena(a);
    ru_text_putf(&t,
                 "{\"schema\":\"rubato.world/1\",\"cluster\":{\"hosts\":["
                 "{\"name\":\"a\",\"cores\":2,\"net_bytes_per_s\":%.0f,\"net_latency_ns\":1e5},"
                 "{\"name\":\"b\",\"cores\":2,\"net_bytes_per_s\":%.0f}],\"devices\":["
                 "{\"name\":\"1\",\"host\":\"a\",\"cores\":1},"
                 "{\"name\":\"2\",\"host\":\"b\",\"cores\":1}]},"
                 "\"jobs\":[{\"name\":\"j\",\"batch\":2048,\"gradient_bytes\":[",
                 bytes_per_s, bytes_per_s);
    for (uint32_t k = 0; k < gradients; k++) {
        ru_text_putf(&t, "%s%lld", k > 0 ? "," : "", (long long)bytes);
    }
    ru_text_put(&t, "]}],\"facts\":{\"steps\":[{\"job\":\"j\",\"workers\":2,\"samples\":1024,"
                    "\"batch\":2048,\"compute_ns\":1e8,\"took\":{\"mean_ns\":1e8}}]}}");
    assert_ok(ru_world_file_parse("w", ru_str_n(t.p, t.n), a, w, &err), err);
}

static int64_t step_of(ru_arena *a, const ru_world *w, uint32_t workers, uint32_t per_host,
                       uint32_t hosts)
{
    ru_sim_world x;
    ru_sim_job_result r;
    ru_err err;
    ru_sim_job job = {
        .seed = 3, .steps = 10, .founders = workers, .per_host = per_host, .equal_shares = true};
    assert_ok(ru_sim_job_of_world(w, a, &job, &x, &err), err);
    assert_int_equal(x.hosts, hosts);
    assert_ok(ru_sim_job_run(&job, &r, &err), err);
    assert_int_equal(r.committed, 10);
    return r.step_ns;
}

static void test_workers_of_a_host_share_its_cores(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    read_hosts(&a, 3, &w);
    assert_true(w.cluster.hosts.at[1].tier == RU_HOST_TRANSIENT && !w.cluster.devices.at[1].votes);
    /* 1 ms a sample, 20 samples: alone 20 ms, 2 workers 10 ms, 4 on two hosts 5 ms */
    assert_in_range(step_of(&a, &w, 1, 0, 1), 20000000, 20500000);
    assert_in_range(step_of(&a, &w, 2, 0, 2), 10000000, 10800000);
    assert_in_range(step_of(&a, &w, 4, 2, 2), 5000000, 5800000);
    /* four on two cores: 10 ms again; ten on two cores: as well */
    assert_in_range(step_of(&a, &w, 4, 4, 1), 10000000, 10800000);
    assert_in_range(step_of(&a, &w, 10, 10, 1), 10000000, 11500000);
    ru_arena_fini(&a);
}

static void test_every_gradient_is_summed(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    ru_sim_world x;
    ru_err err;
    read_hosts(&a, 400, &w);
    ru_sim_job job = {.seed = 3, .steps = 3};
    assert_ok(ru_sim_job_of_world(&w, &a, &job, &x, &err), err);
    assert_int_equal(x.script.n, 400);
    assert_in_range(step_of(&a, &w, 2, 0, 2), 10000000, 11500000);
    ru_arena_fini(&a);
}

/* `n` workers on links of `bytes_per_s` sum `gradients` of `bytes` each: all of them stay. */
static void stays(uint32_t n, double bytes_per_s, uint32_t gradients, int64_t bytes, int64_t steps)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    ru_sim_world x;
    ru_sim_job_result r;
    ru_err err;
    read_slow(&a, bytes_per_s, gradients, bytes, &w);
    ru_sim_job job = {.seed = 3, .steps = steps, .founders = n, .equal_shares = true};
    assert_ok(ru_sim_job_of_world(&w, &a, &job, &x, &err), err);
    assert_ok(ru_sim_job_run(&job, &r, &err), err);
    if (r.committed != steps || r.lost > 0 || r.expelled > 0 || r.led > 0 || r.epochs != 1) {
        fail_msg("%u workers at %.0f bytes/s: %lld of %lld steps, %u lost, %u expelled, %u "
                 "takeovers, %u views",
                 n, bytes_per_s, (long long)r.committed, (long long)steps, r.lost, r.expelled,
                 r.led, r.epochs);
    }
    ru_arena_fini(&a);
}

static void test_sessions_stay_on_slow_links(void **state)
{
    (void)state;
    stays(40, 1.25e7, 10, 1200000, 1); /* more transfers at one time than small jobs have */
    stays(200, 1.25e6, 3, 4000, 2);    /* 2.6 MB of views, 2 s of the leader's link */
    stays(8, 1.25e5, 10, 12000, 2);    /* 64 KiB, once a chunk, take 0.5 s */
    stays(16, 1.25e5, 10, 12000, 2);   /* 8 KiB of each of 15, at one receiver, take 1 s */
    stays(30, 1.25e5, 4, 22500, 4);    /* 3 KB of each of 29, step by step */
}

/* 40 workers on 20 kB/s: the beats alone are more than the leader's link carries. */
static void test_too_many_for_the_links(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    ru_sim_world x;
    ru_sim_job_result r;
    ru_err err;
    read_slow(&a, 2e4, 1, 40, &w);
    ru_sim_job job = {.seed = 3, .steps = 3, .founders = 40};
    assert_ok(ru_sim_job_of_world(&w, &a, &job, &x, &err), err);
    assert_int_equal(ru_sim_job_run(&job, &r, &err), RU_E_PEER);
    assert_non_null(strstr(err.text, "nothing failed: links of 2e+04 bytes/s, "));
    ru_arena_fini(&a);
}

/* 32 workers on 100 kB/s: what a simulation may take is a bound, and a sentence tells of it. */
static void test_memory_has_a_limit(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    ru_sim_world x;
    ru_sim_job_result r;
    ru_err err;
    read_hosts(&a, 3, &w);
    ru_sim_job job = {.seed = 3, .steps = 3, .founders = 32, .memory_max_bytes = 1 << 20};
    assert_ok(ru_sim_job_of_world(&w, &a, &job, &x, &err), err);
    job.nic.bytes_per_s = 1e5;
    assert_int_equal(ru_sim_job_run(&job, &r, &err), RU_E_LIMIT);
    assert_non_null(strstr(err.text, "32 workers takes more than its 1 MiB of memory"));
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
    assert_int_equal(ru_sim_job_of_world(&w, &a, &job, &x, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "facts.steps"));
    ru_arena_fini(&a);
}

RU_TESTS(test_sim_world, cmocka_unit_test(test_durations_are_those_of_the_facts),
         cmocka_unit_test(test_a_world_runs_and_repeats),
         cmocka_unit_test(test_workers_of_a_host_share_its_cores),
         cmocka_unit_test(test_every_gradient_is_summed), cmocka_unit_test(test_memory_has_a_limit),
         cmocka_unit_test(test_sessions_stay_on_slow_links),
         cmocka_unit_test(test_too_many_for_the_links),
         cmocka_unit_test(test_a_world_without_facts_is_refused))
