/* When functions are chosen again, by hand, what a choice knows of times, and how careful a choice
 * from few arrivals is, by drawing requests. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "serve/far/far_impl.h"
#include "test/test.h"

enum { FEW = 36, MANY = 2048, REQUESTS = 200000 };
#define SLO_S  0.2
#define MEAN_S 0.035

typedef struct world {
    ru_server server;
    rui_version version;
    ru_server_functions functions;
    rui_far far;
    ru_time now;
} world;

static world *open_world(void)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->server.opt = (ru_server_options){.slo_ns = (int64_t)(SLO_S * 1e9), .slo_q = 0.95};
    w->version = (rui_version){.server = &w->server, .instances = 8};
    w->functions = (ru_server_functions){.usd_per_gb_s = 1.66667e-5, .usd_per_call = 2e-7};
    rui_far *f = &w->far;
    *f = (rui_far){.v = &w->version,
                   .opt = &w->functions,
                   .n_memory = 1,
                   .n_sizes = 3,
                   .memory_mb = {1024},
                   .now = {.at = {.memory_mb = 1024, .batch = 1}}};
    for (uint32_t k = 0; k < RUI_FAR_SIZES; k++) {
        f->service_ns[0][0][k] = (10 + (INT64_C(2) << k)) * 1000000;
    }
    rui_far_live_fit(f);
    ru_arena_init(&f->plan_arena, 0);
    return w;
}

static void close_world(world *w)
{
    ru_arena_fini(&w->far.plan_arena);
    free(w);
}

static void come(world *w, uint32_t n, double gap_s)
{
    for (uint32_t k = 0; k < n; k++) {
        w->now = ru_time_after(w->now, (int64_t)(gap_s * 1e9));
        (void)rui_far_came(&w->far, w->now, 0);
    }
}

/* The arrival from which on a rate is known begins where the sum of deviations left zero. */
static void test_drifts_are_found_where_they_begin(void **state)
{
    (void)state;
    static const struct {
        double gap_s;
        uint32_t quiet;             /* gaps of it that are no alarm yet */
    } rows[] = {{0.5 * MEAN_S, 47}, /* 0.5 - 0.25 each, 12 in all */
                {2 * MEAN_S, 15},   /* 1 - 0.25 */
                {0.8 * MEAN_S, 1000},
                {1.2 * MEAN_S, 1000}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        world *w = open_world();
        rui_far *f = &w->far;
        f->choosing = true; /* so that nothing is planned */
        f->mean_s = f->sd_s = MEAN_S;
        come(w, 256, MEAN_S);
        come(w, rows[k].quiet, rows[k].gap_s);
        assert_int_equal(f->from, 0);
        come(w, 2, rows[k].gap_s);
        assert_int_equal(f->from, rows[k].quiet < 1000 ? 255 : 0);
        close_world(w);
    }
}

/* An hour without a request is no rate: what is known begins behind it. */
static void test_a_stop_begins_anew(void **state)
{
    (void)state;
    world *w = open_world();
    rui_far *f = &w->far;
    f->choosing = true;
    f->mean_s = f->sd_s = MEAN_S;
    come(w, 256, MEAN_S);
    come(w, 1, 3600);
    assert_int_equal(f->from, 256);
    come(w, 100, MEAN_S);
    assert_int_equal(f->from, 256);
    close_world(w);
}

/* A configuration with a delay is a choice by hand: nothing is fitted or asked. */
static void test_a_delay_of_the_configuration_stays(void **state)
{
    (void)state;
    world *w = open_world();
    w->version.config.delay_us = 100000;
    come(w, 256, MEAN_S);
    assert_false(w->far.choosing);
    assert_true(w->far.mean_s == 0);
    rui_far_choice c = {.at = {.memory_mb = 1024, .batch = 1}};
    rui_far_by_hand(&w->far, 4, &c);
    assert_int_equal(c.at.batch, 4);
    assert_true(fabs(c.at.timeout_s - 0.1) < 1e-9 && fabs(c.latency_s - 0.118) < 1e-9);
    w->far.service_ns[0][0][2] = (int64_t)(1.1 * SLO_S * 1e9);
    rui_far_by_hand(&w->far, 4, &c);
    assert_int_equal(c.at.batch, 2);
    close_world(w);
}

/* Calls of k rows that take so many times as long as the probes said. */
static void run(world *w, uint32_t calls, uint32_t k, double times)
{
    double s = rui_far_service_s(&w->far, 0, 0, k);
    for (uint32_t i = 0; i < calls; i++) {
        rui_far_ran(&w->far, 0, 0, k, times * s);
    }
}

static double known(world *w, uint32_t k)
{
    rui_far_live_fit(&w->far);
    return rui_far_known_s(&w->far, 0, 0, k) / rui_far_service_s(&w->far, 0, 0, k);
}

/* 12, 14 and 18 ms of 1, 2 and 4 rows. What delays calls of one size says something of sizes that
 * did not come, and nothing of those that came often and take as long as ever. */
static void test_each_size_has_its_own_time(void **state)
{
    (void)state;
    world *w = open_world();
    assert_true(known(w, 1) == 1 && known(w, 4) == 1);
    run(w, 200, 1, 2);
    assert_true(known(w, 1) > 1.95 && known(w, 1) < 2.01);
    assert_true(known(w, 4) > 1.9 && known(w, 3) == known(w, 4));
    for (uint32_t k = 0; k < 600; k++) {
        run(w, 1, 1, 3);
        run(w, 1, 4, 1);
    }
    assert_true(known(w, 1) > 2.7 && known(w, 1) < 3.01);
    assert_true(known(w, 4) > 0.99 && known(w, 4) < 1.15);
    assert_true(known(w, 2) > 1.7 && known(w, 2) < 1.9); /* (3 * 12 + 18) / (12 + 18) */
    run(w, 8, 1, 1000);                                  /* lost ones */
    assert_true(known(w, 1) < 5);
    run(w, 8000, 4, 1); /* what came long ago says less than what comes now */
    assert_true(known(w, 1) < 1.15 && fabs(known(w, 4) - 1) < 1e-3);
    close_world(w);
}

/* Calls that are a twentieth off what the choice knows ask for another one; those that are a fifth
 * off are not like those before them. 12 ms, in whole ones. */
static void test_other_times_are_noticed(void **state)
{
    (void)state;
    static const double times[] = {1, 0.95, 1.4, 0.7, 1.1, 0.9};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(times); k++) {
        world *w = open_world();
        run(w, 200, 1, times[k]);
        assert_false(w->far.live.strays); /* no choice knows anything */
        w->far.mean_s = 1;
        run(w, 63, 1, times[k]);
        assert_false(w->far.live.strays);
        run(w, 1, 1, times[k]);
        assert_true(w->far.live.strays == (k >= 2));
        assert_true((w->far.live.n > 1000) == (k == 2 || k == 3));
        rui_far_live_fit(&w->far);
        run(w, 200, 1, times[k]);
        assert_false(w->far.live.strays);
        close_world(w);
    }
}

/* Whatever is chosen later, an answer counts by the law that was in force: 3 of a fourth of a call
 * of 18 ms, then 2 of a whole one of 12 ms. */
static void test_answers_count_by_the_law_in_force(void **state)
{
    (void)state;
    world *w = open_world();
    rui_far *f = &w->far;
    f->now.mean_batch = 4;
    f->now.usd = rui_far_call_usd(f, 1024, 0.018) / 4;
    for (uint32_t k = 0; k < 3; k++) {
        rui_far_answered(f, 0, 1);
    }
    f->now.mean_batch = 1;
    f->now.usd = rui_far_call_usd(f, 1024, 0.012);
    for (uint32_t k = 0; k < 2; k++) {
        rui_far_answered(f, 0, 1);
    }
    assert_near(f->all.law_gb_s, 3 * 0.018 / 4 + 2 * 0.012, 1e-9);
    assert_near(f->all.law_usd, (3 * 0.018 / 4 + 2 * 0.012) * 1.66667e-5 + 2.75 * 2e-7, 1e-9);
    close_world(w);
}

/* The choice after n gaps of a memoryless process, with cold starts of so long a call. */
static rui_far_choice chosen(uint32_t n, double cold_s)
{
    world *w = open_world();
    rui_far_facts *x = &w->far.facts;
    ru_err err;
    uint32_t order[MANY];
    x->cold_s = x->delay_s = cold_s;
    ru_rng rng = ru_rng_from(1, n);
    for (uint32_t k = 0; k < n; k++) {
        order[k] = k;
    }
    ru_rng_shuffle(&rng, order, n);
    for (uint32_t k = 0; k < n; k++) {
        x->gap_s[k] = -MEAN_S * log(1 - (order[k] + 0.5) / n);
    }
    x->n = n;
    x->rate = 1 / MEAN_S;
    x->scv = 1;
    assert_ok(rui_far_choose(&w->far, &err), err);
    rui_far_choice c = w->far.found.next;
    assert_true(c.latency_s <= 0.95 * SLO_S && c.usd < w->far.found.alone.usd);
    /* a cold start is waited for, and not billed */
    assert_near(w->far.found.alone.latency_s, 0.012 + cold_s, 1e-6);
    assert_near(w->far.found.alone.usd, rui_far_call_usd(&w->far, 1024, 0.012), 1e-6);
    assert_near(w->far.found.alone.instances, (0.012 + cold_s) / MEAN_S, 0.02);
    close_world(w);
    return c;
}

/* Share of requests that are late when they come so fast. */
static double late(const rui_far_choice *c, double mean_s)
{
    ru_rng rng = ru_rng_from(ru_test_seed(), 7);
    world *w = open_world();
    double at = 0, came[1 << RUI_FAR_SIZES];
    uint32_t n_late = 0, n = 0;
    while (n < REQUESTS) {
        uint32_t k = 0;
        double leaves = at + c->at.timeout_s;
        do {
            came[k++] = at;
            at += ru_rng_exponential(&rng) * mean_s;
        } while (k < c->at.batch && at <= leaves);
        leaves = k == c->at.batch ? came[k - 1] : leaves;
        double ends = leaves + rui_far_service_s(&w->far, 0, 0, k);
        for (uint32_t i = 0; i < k; i++, n++) {
            n_late += ends - came[i] > SLO_S ? 1 : 0;
        }
    }
    close_world(w);
    return (double)n_late / n;
}

static void test_few_arrivals_make_careful(void **state)
{
    (void)state;
    const rui_far_choice few = chosen(FEW, 0), many = chosen(MANY, 0), cold = chosen(MANY, 0.04);
    double off = 2 / sqrt(FEW);
    assert_true(many.usd < few.usd && many.usd < cold.usd);
    assert_true(late(&many, MEAN_S) < 0.052);
    assert_true(fmax(late(&many, (1 + off) * MEAN_S), late(&many, (1 - off) * MEAN_S)) > 0.055);
    assert_true(late(&few, (1 + off) * MEAN_S) < 0.052);
    assert_true(late(&few, (1 - off) * MEAN_S) < 0.052);
}

RU_TESTS(serve_choose, cmocka_unit_test(test_each_size_has_its_own_time),
         cmocka_unit_test(test_other_times_are_noticed),
         cmocka_unit_test(test_answers_count_by_the_law_in_force),
         cmocka_unit_test(test_a_delay_of_the_configuration_stays),
         cmocka_unit_test(test_a_stop_begins_anew),
         cmocka_unit_test(test_drifts_are_found_where_they_begin),
         cmocka_unit_test(test_few_arrivals_make_careful))
