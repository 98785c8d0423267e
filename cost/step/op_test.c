/* Times of ops: what was measured comes back, models find the truth that made the facts, and the
 * error that is promised is about the error that is made. */
#include "cost/step/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

typedef struct fixture {
    ru_arena out, scratch;
    char shapes[400][24];
    ru_op_fact ops[400];
    uint32_t n;
} fixture;

static void begin(fixture *f)
{
    ru_arena_init(&f->out, 0);
    ru_arena_init(&f->scratch, 0);
    f->n = 0;
}

static void end(fixture *f)
{
    ru_arena_fini(&f->scratch);
    ru_arena_fini(&f->out);
}

static ru_op_fact *add(fixture *f, const char *op, const char *kernel, int64_t flops, int64_t bytes,
                       double ns)
{
    ru_op_fact *x = &f->ops[f->n];
    snprintf(f->shapes[f->n], sizeof f->shapes[0], "f32[%u]", f->n);
    *x = (ru_op_fact){.op = op,
                      .kernel = kernel,
                      .shapes = f->shapes[f->n++],
                      .device_type = "cpu",
                      .flops = flops,
                      .bytes = bytes,
                      .took = {.count = 10, .mean_ns = ns, .stddev_ns = 0.1 * ns}};
    return x;
}

static ru_op_model fit(fixture *f)
{
    ru_op_model m;
    ru_err err;
    assert_ok(ru_cost_op_fit(f->ops, f->n, &f->out, &f->scratch, &m, &err), err);
    return m;
}

static void near(double a, double b, double tol)
{
    if (!(fabs(a - b) <= tol * fabs(b))) {
        fail_msg("%g is not near %g", a, b);
    }
}

/* Two kernels with coefficients of their own; one of a third kernel has too few facts. */
static void test_models_find_what_made_the_facts(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    ru_rng r = ru_rng_from(ru_test_seed(), 21);
    for (uint32_t i = 0; i < 60; i++) {
        double flops = floor(exp(ru_rng_uniform(&r, 8, 22)));
        double bytes = floor(exp(ru_rng_uniform(&r, 6, 17)));
        bool wino = i % 2 == 1;
        double ns = wino ? 2000 + 0.004 * flops + 0.2 * bytes : 500 + 0.01 * flops + 0.1 * bytes;
        (void)add(&f, "Conv", wino ? "wino" : "direct", (int64_t)flops, (int64_t)bytes, ns);
    }
    (void)add(&f, "Pool", "pool", 1000, 1000, 700);
    ru_op_model m = fit(&f);
    ru_op_fact q = {.op = "Conv",
                    .kernel = "wino",
                    .shapes = "new",
                    .device_type = "cpu",
                    .flops = 5000000,
                    .bytes = 70000};
    ru_op_time t = ru_cost_op(&m, &q);
    assert_int_equal(t.source, RU_OP_BY_KERNEL);
    near(t.ns, 2000 + 0.004 * 5e6 + 0.2 * 7e4, 1e-6);
    assert_true(t.error < 1e-6);
    t = ru_cost_op_scaled(&m, &q, 2);
    near(t.ns, 2000 + 0.004 * 1e7 + 0.2 * 1.4e5, 1e-6);
    q.kernel = "another";
    t = ru_cost_op(&m, &q);
    assert_int_equal(t.source, RU_OP_BY_OP);
    assert_true(t.error > 0.01); /* two kernels under one model */
    q.op = "Pool";
    assert_int_equal(ru_cost_op(&m, &q).source, RU_OP_BY_DEVICE);
    q.device_type = "V100";
    t = ru_cost_op(&m, &q);
    assert_true(t.source == RU_OP_UNKNOWN && t.ns == 0);
    end(&f);
}

static void test_what_was_measured_comes_back(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    for (uint32_t i = 0; i < 5; i++) {
        (void)add(&f, "Gemm", "brg", 1000 * (i + 1), 100, 100 + 10 * i);
    }
    ru_op_fact twice = f.ops[2]; /* measured again: 30 runs of 150 ns beside 10 of 120 */
    twice.took = (ru_fact){.count = 30, .mean_ns = 160};
    f.ops[f.n++] = twice;
    ru_op_fact never = f.ops[0];
    never.shapes = "never";
    never.took = (ru_fact){0};
    f.ops[f.n++] = never;
    ru_op_model m = fit(&f);
    ru_op_time t = ru_cost_op(&m, &f.ops[2]);
    assert_int_equal(t.source, RU_OP_MEASURED);
    near(t.ns, (10 * 120.0 + 30 * 160) / 40, 1e-12);
    /* variance: 1/4 * 12^2 + between (30^2 * 3/16 + 10^2 * 9/16 ...) = 36 + 300 */
    near(t.error, sqrt(336) / 150, 1e-9);
    near(ru_cost_op_scaled(&m, &f.ops[2], 1).ns, t.ns, 1e-15);
    assert_int_equal(ru_cost_op(&m, &never).source, RU_OP_BY_KERNEL);
    end(&f);
}

/* Facts with 20 % noise: the promised error is the median of what is seen on fresh facts, about. */
static void test_the_promised_error_is_the_error(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    ru_rng r = ru_rng_from(ru_test_seed(), 22);
    for (uint32_t i = 0; i < 300; i++) {
        double flops = floor(exp(ru_rng_uniform(&r, 10, 22)));
        double noise = exp(0.2 * ru_rng_normal(&r));
        (void)add(&f, "Gemm", "brg", (int64_t)flops, (int64_t)(flops / 50),
                  (1000 + 0.01 * flops) * noise);
    }
    uint32_t n = f.n;
    f.n = 200;
    ru_op_model m = fit(&f);
    uint32_t within = 0;
    double promised = 0;
    for (uint32_t i = 200; i < n; i++) {
        ru_op_time t = ru_cost_op(&m, &f.ops[i]);
        promised = t.error;
        within += fabs(t.ns / f.ops[i].took.mean_ns - 1) <= t.error;
    }
    assert_true(promised > 0.08 && promised < 0.25);
    assert_true(within > 30 && within < 70); /* of 100; a median */
    end(&f);
}

/* Without its own facts an instance is what a model of the others says, and they alone count. */
static void test_a_class_is_predicted_from_the_others(void **state)
{
    (void)state;
    fixture f;
    begin(&f);
    for (uint32_t i = 0; i < 6; i++) {
        double flops = 1000 * (i + 1);
        (void)add(&f, "Gemm", "brg", (int64_t)flops, 0, 500 + 0.25 * flops);
    }
    f.ops[4].took.mean_ns = 1e9; /* must not reach its own prediction */
    ru_op_fact twin = f.ops[4];
    f.ops[f.n++] = twin;
    ru_op_time t;
    ru_err err;
    assert_ok(ru_cost_op_apart(f.ops, f.n, &f.ops[4], &f.scratch, &t, &err), err);
    assert_int_equal(t.source, RU_OP_BY_KERNEL);
    near(t.ns, 500 + 0.25 * 5000, 1e-9);
    assert_true(ru_cost_op_same(&f.ops[4], &twin) && !ru_cost_op_same(&f.ops[4], &f.ops[3]));
    assert_ok(ru_cost_op_apart(f.ops, 2, &f.ops[0], &f.scratch, &t, &err), err);
    assert_int_equal(t.source, RU_OP_UNKNOWN);
    end(&f);
}

static void test_bad_facts(void **state)
{
    (void)state;
    fixture f;
    ru_op_model m;
    for (uint32_t k = 0; k < 4; k++) {
        begin(&f);
        ru_op_fact *x = add(&f, "a", "b", 1, 1, 1);
        x->took.mean_ns = k == 0 ? RU_NAN : k == 1 ? -1 : 1;
        x->flops = k == 2 ? -1 : 1;
        x->took.stddev_ns = k == 3 ? RU_NAN : 0;
        assert_int_equal(ru_cost_op_fit(f.ops, 1, &f.out, &f.scratch, &m, NULL), RU_E_ARG);
        end(&f);
    }
    begin(&f);
    m = fit(&f);
    assert_int_equal(
        ru_cost_op(&m, &(ru_op_fact){.op = "", .kernel = "", .shapes = "", .device_type = ""})
            .source,
        RU_OP_UNKNOWN);
    end(&f);
}

RU_TESTS(cost_op, cmocka_unit_test(test_models_find_what_made_the_facts),
         cmocka_unit_test(test_what_was_measured_comes_back),
         cmocka_unit_test(test_the_promised_error_is_the_error),
         cmocka_unit_test(test_a_class_is_predicted_from_the_others),
         cmocka_unit_test(test_bad_facts))
