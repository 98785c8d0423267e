/* What-if by hand: a job that is all computing scales with its devices and workers, one that is all
 * sums with its link; wrong questions are refused by name. */
#include "tool/explain/what_if.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/world_file.h"
#include "test/test.h"

/* Two workers on hosts of their own, 40 samples a step; 8 MB of gradients that take network_ns. */
static void read_job(ru_arena *a, double compute_ns, double network_ns, ru_world *w)
{
    char text[1024];
    ru_err err;
    snprintf(text, sizeof text,
             "{\"schema\":\"rubato.world/1\",\"jobs\":[{\"name\":\"j\",\"batch\":40,"
             "\"gradient_bytes\":[4000000,4000000]}],\"facts\":{\"steps\":[{\"job\":\"j\","
             "\"workers\":2,\"samples\":20,\"batch\":40,\"compute_ns\":%.0f,\"network_ns\":%.0f,"
             "\"took\":{\"count\":50,\"mean_ns\":%.0f}}]}}",
             compute_ns, network_ns, compute_ns + network_ns);
    assert_ok(ru_world_file_parse("w", ru_str_c(text), a, w, &err), err);
}

/* As read_job, and 20 ms a step until the reader has the samples. */
static void read_slow_input(ru_arena *a, ru_world *w)
{
    static const char text[] =
        "{\"schema\":\"rubato.world/1\",\"jobs\":[{\"name\":\"j\",\"batch\":40,"
        "\"gradient_bytes\":[4000]}],\"facts\":{\"steps\":[{\"job\":\"j\",\"workers\":2,"
        "\"samples\":20,\"batch\":40,\"compute_ns\":5e7,\"input_ns\":2e7,"
        "\"took\":{\"count\":50,\"mean_ns\":7e7}}]}}";
    ru_err err;
    assert_ok(ru_world_file_parse("w", ru_str_c(text), a, w, &err), err);
}

/* Steps of 50 ms whose samples take read_ns to read; they wait for what is not hidden. */
static void read_read_job(ru_arena *a, double read_ns, double own_ns, ru_world *w)
{
    char text[1024];
    ru_err err;
    double wait_ns = read_ns > own_ns ? read_ns - own_ns : 0;
    snprintf(text, sizeof text,
             "{\"schema\":\"rubato.world/1\",\"jobs\":[{\"name\":\"j\",\"batch\":40,"
             "\"gradient_bytes\":[4000]}],\"facts\":{\"steps\":[{\"job\":\"j\",\"workers\":2,"
             "\"samples\":20,\"batch\":40,\"compute_ns\":%.0f,\"input_ns\":%.0f,"
             "\"took\":{\"count\":50,\"mean_ns\":%.0f}}],\"processors\":[{\"rank\":0,"
             "\"read_ns\":%.0f,\"took\":{\"count\":45,\"mean_ns\":%.0f}}]}}",
             own_ns, wait_ns, own_ns + wait_ns, read_ns, own_ns + wait_ns);
    assert_ok(ru_world_file_parse("w", ru_str_c(text), a, w, &err), err);
}

/* The same workers, held to 4 ms of each 10 ms: so much processor time a step, no network. */
static void read_held_job(ru_arena *a, double processor_ns, ru_world *w)
{
    char text[2048];
    ru_err err;
    double step_ns = processor_ns / 0.4;
    snprintf(
        text, sizeof text,
        "{\"schema\":\"rubato.world/1\",\"jobs\":[{\"name\":\"j\",\"batch\":40,"
        "\"equal_shares\":true,\"gradient_bytes\":[4000]}],\"facts\":{\"steps\":[{\"job\":\"j\","
        "\"workers\":2,\"samples\":20,\"batch\":40,\"compute_ns\":%.0f,"
        "\"took\":{\"count\":50,\"mean_ns\":%.0f}}],\"processors\":["
        "{\"rank\":0,\"quota_ns\":4e6,\"period_ns\":1e7,\"compute_ns\":%.0f,\"took\":{\"mean_ns\":"
        "1}},"
        "{\"rank\":1,\"quota_ns\":4e6,\"period_ns\":1e7,\"compute_ns\":%.0f,\"took\":{\"mean_ns\":"
        "1}}]}}",
        step_ns, step_ns, processor_ns, processor_ns);
    assert_ok(ru_world_file_parse("w", ru_str_c(text), a, w, &err), err);
}

/* All on one host of two cores, a thread each, no network. */
static void read_one_host(ru_arena *a, uint32_t workers, double compute_ns, ru_world *w)
{
    ru_text t = ru_text_arena(a);
    ru_err err;
    ru_text_put(&t, "{\"schema\":\"rubato.world/1\",\"cluster\":{\"hosts\":[{\"name\":\"a\","
                    "\"cores\":2}],\"devices\":[");
    for (uint32_t k = 0; k < workers; k++) {
        ru_text_putf(&t, "%s{\"name\":\"%u\",\"host\":\"a\",\"cores\":1}", k > 0 ? "," : "", k);
    }
    ru_text_putf(&t,
                 "]},\"jobs\":[{\"name\":\"j\",\"batch\":40,\"gradient_bytes\":[4000]}],"
                 "\"facts\":{\"steps\":[{\"job\":\"j\",\"workers\":%u,\"samples\":%u,\"batch\":40,"
                 "\"compute_ns\":%.0f,\"took\":{\"count\":50,\"mean_ns\":%.0f}}]}}",
                 workers, 40 / workers, compute_ns, compute_ns);
    assert_ok(ru_world_file_parse("w", ru_str_n(t.p, t.n), a, w, &err), err);
}

/* Steps that take longer than even a slow link needs: they say nothing of its rate. */
static void read_idle_link(ru_arena *a, ru_world *w)
{
    static const char text[] =
        "{\"schema\":\"rubato.world/1\",\"jobs\":[{\"name\":\"j\",\"batch\":40,"
        "\"gradient_bytes\":[400000]}],\"facts\":{\"steps\":[{\"job\":\"j\",\"workers\":2,"
        "\"samples\":20,\"batch\":40,\"compute_ns\":5e7,\"network_ns\":5e7,"
        "\"took\":{\"count\":50,\"mean_ns\":1e8}}]}}";
    ru_err err;
    assert_ok(ru_world_file_parse("w", ru_str_c(text), a, w, &err), err);
}

static double ask(ru_arena *a, const ru_world *w, const char *one, const char *two)
{
    const char *sets[] = {one, two};
    ru_text out = ru_text_arena(a);
    ru_err err;
    assert_ok(rui_what_if(w, sets, two != NULL ? 2 : 1, a, &(ru_tell){.text = &out}, &err), err);
    double said, low, high;
    const char *line = strstr(out.p, "predicted step: ");
    assert_non_null(line);
    assert_int_equal(
        sscanf(line, "predicted step: %lf s, between %lf and %lf s", &said, &low, &high), 3);
    assert_true(low > 0 && low < said && said < high);
    return said * 1e3;
}

static void refused(ru_arena *a, const ru_world *w, const char *set, ru_status with)
{
    ru_text out = ru_text_arena(a);
    assert_int_equal(rui_what_if(w, &set, 1, a, &(ru_tell){.text = &out}, NULL), with);
}

static void near(double is, double should)
{
    if (is < 0.9 * should || is > 1.1 * should) {
        fail_msg("%g ms, expected about %g", is, should);
    }
}

static void test_predictions_by_hand(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    read_job(&a, 100e6, 2e6, &w); /* 100 ms of 20 samples, almost no network */
    near(ask(&a, &w, "device=x2", NULL), 52);
    near(ask(&a, &w, "workers=4", NULL), 54);
    near(ask(&a, &w, "batch=80", "workers=4"), 103);
    near(ask(&a, &w, "network=x8", NULL), 101);
    read_job(&a, 1e6, 200e6, &w); /* 8 MB in 200 ms: 40 MB/s */
    near(ask(&a, &w, "network=x0.5", NULL), 401);
    near(ask(&a, &w, "network=x4", NULL), 51);
    near(ask(&a, &w, "network=80MB/s", NULL), 101);
    near(ask(&a, &w, "network=160Mbit", NULL), 401);
    near(ask(&a, &w, "device=x4", NULL), 200);
    near(ask(&a, &w, "workers=4", NULL), 301);                /* 3/2 of the bytes pass each link */
    near(ask(&a, &w, "workers=4", "collective=direct"), 301); /* as many, in rank order */
    near(ask(&a, &w, "workers=4", "collective=fastest"), 301);
    read_idle_link(&a, &w); /* 50 ms that even a slow link does not need for 400 kB */
    near(ask(&a, &w, "workers=4", NULL), 75);
    near(ask(&a, &w, "batch=8000", NULL), 10050); /* longer than workers are silent */
    read_slow_input(&a, &w);
    near(ask(&a, &w, "storage=x2", NULL), 60);
    near(ask(&a, &w, "storage=x0.5", NULL), 90);
    read_read_job(&a, 30e6, 50e6, &w); /* reading is hidden */
    near(ask(&a, &w, "storage=x0.8", NULL), 50);
    near(ask(&a, &w, "storage=x0.25", NULL), 120);
    near(ask(&a, &w, "device=x5", NULL), 30);
    near(ask(&a, &w, "workers=4", "device=x5"), 15);
    read_read_job(&a, 80e6, 50e6, &w); /* steps wait 30 ms for it */
    near(ask(&a, &w, "storage=x2", NULL), 50);
    near(ask(&a, &w, "device=x2", NULL), 80);
    ru_arena_fini(&a);
}

/* Where a run had one host, more workers share its cores, unless the question names hosts; the
 * recorded job stays where it was. 40 samples of 5 ms on one core. */
static void test_workers_share_the_cores_of_their_host(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    read_one_host(&a, 2, 100e6, &w);
    near(ask(&a, &w, "workers=1", NULL), 200);
    near(ask(&a, &w, "workers=4", NULL), 100);
    near(ask(&a, &w, "workers=8", NULL), 100);
    near(ask(&a, &w, "workers=4", "per_host=2"), 50);
    near(ask(&a, &w, "workers=4", "network=10Gbit"), 50); /* between hosts: each has one */
    read_one_host(&a, 1, 200e6, &w);
    near(ask(&a, &w, "workers=2", NULL), 100);
    near(ask(&a, &w, "workers=4", NULL), 100);
    read_one_host(&a, 4, 100e6, &w); /* 10 samples each at half of a core */
    near(ask(&a, &w, "workers=2", NULL), 100);
    near(ask(&a, &w, "workers=1", NULL), 200);
    near(ask(&a, &w, "per_host=2", NULL), 50);
    near(ask(&a, &w, "per_host=1", NULL), 50);
    ru_arena_fini(&a);
}

/* Of steps of 1 ms that take turns on too few cores the interval tells more than the parts do. */
static void test_turns_widen_the_interval(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    read_one_host(&a, 2, 1e6, &w);
    const char *set = "workers=4";
    ru_text out = ru_text_arena(&a);
    ru_err err;
    double said, low, high;
    assert_ok(rui_what_if(&w, &set, 1, &a, &(ru_tell){.text = &out}, &err), err);
    assert_non_null(strstr(out.p, "4 workers on 1 host of 2 cores"));
    const char *line = strstr(out.p, "predicted step: ");
    assert_non_null(line);
    assert_int_equal(
        sscanf(line, "predicted step: %lf s, between %lf and %lf s", &said, &low, &high), 3);
    assert_true(low == 0 && high >= 0.004 && said < 0.002);
    ru_arena_fini(&a);
}

/* A step that computes all the time takes as long as its quota makes it; one that fits into the
 * quota of a period does not notice it. */
static void test_quotas_by_hand(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    read_held_job(&a, 48e6, &w); /* 48 ms of processor time in 120 ms */
    near(ask(&a, &w, "quota=x1", NULL), 120);
    near(ask(&a, &w, "quota=x2", NULL), 60);
    near(ask(&a, &w, "quota=x8", NULL), 48);
    near(ask(&a, &w, "quota=1:x0.5", NULL), 240);
    near(ask(&a, &w, "quota=2:x0.5", NULL), 240);
    near(ask(&a, &w, "device=x2", NULL), 60);
    near(ask(&a, &w, "workers=4", NULL), 60);
    near(ask(&a, &w, "batch=80", "workers=4"), 120);
    refused(&a, &w, "quota=3:x0.5", RU_E_USAGE);
    ru_processor_fact free[2] = {w.facts.processors.at[0], w.facts.processors.at[1]};
    w.facts.processors.at = free;
    free[1].quota_ns = 2e7; /* two cores, of which it computes on one */
    refused(&a, &w, "quota=2:x0.5", RU_E_MISSING);
    near(ask(&a, &w, "quota=1:x0.5", NULL), 240);
    free[0].quota_ns = 2e7;
    refused(&a, &w, "quota=x0.5", RU_E_MISSING);
    ru_arena_fini(&a);
}

static void test_wrong_questions_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"network=fast", "a rate from 8kbit"},
                                         {"network=1bit", "a rate from 8kbit"},
                                         {"network=1e300Gbit", "a rate from 8kbit"},
                                         {"device=x1e-9", "a factor from x0.001"},
                                         {"storage=x1e300", "to x1000"},
                                         {"batch=4000000000", "at most 1000 times"},
                                         {"network=8kbit", "ask for a faster network"},
                                         {"workers=0", "a number from 1"},
                                         {"device=2:x", "1:x0.5 for worker 1"},
                                         {"device=half", "a factor"},
                                         {"quota=50", "a factor"},
                                         {"quota=0:x2", "1:x0.5 for worker 1"},
                                         {"batch=-5", "a number of samples"},
                                         {"collective=ring", "direct or fastest"},
                                         {"storage=x0", "a factor"},
                                         {"device=3:x0.5", "names worker 3, but the job has 2"},
                                         {"lr=3", "expected one of network"},
                                         {"quotas=x2", "device, quota, batch"},
                                         {"networks=x2", "expected one of"}};
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    read_job(&a, 1e6, 1e6, &w);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        ru_text out = ru_text_arena(&a);
        ru_err err;
        assert_int_equal(rui_what_if(&w, &bad[k][0], 1, &a, &(ru_tell){.text = &out}, &err),
                         RU_E_USAGE);
        if (strstr(err.text, bad[k][1]) == NULL) {
            fail_msg("%s: %s", bad[k][0], err.text);
        }
    }
    w.facts.steps.n = 0;
    refused(&a, &w, "workers=2", RU_E_MISSING);
    read_job(&a, 1e6, 1e6, &w);
    refused(&a, &w, "quota=x2", RU_E_MISSING);
    ru_arena_fini(&a);
}

RU_TESTS(tool_what_if, cmocka_unit_test(test_predictions_by_hand),
         cmocka_unit_test(test_quotas_by_hand),
         cmocka_unit_test(test_workers_share_the_cores_of_their_host),
         cmocka_unit_test(test_turns_widen_the_interval),
         cmocka_unit_test(test_wrong_questions_are_refused))
