/* Steps from profiles: made by a rule, they come back for ops and nets that no profile holds. */
#include "cost/step/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/test.h"

enum { NETS = 12, OPS = 6, ALL = 2 * (NETS + 1) * OPS };

typedef struct made {
    ru_arena arena, scratch;
    ru_op_fact ops[ALL];
    ru_step_fact steps[2 * (NETS + 1)];
    char shapes[ALL][64], names[NETS + 1][8];
    ru_processor_fact processors[2 * (NETS + 1)];
    ru_facts facts;
} made;

/* The rule: 20 us a launch, 0.5 ns a byte in, 10 GFLOP/s, and a step a tenth more than its ops. The
 * type "half" has half of each 10 ms, so it takes twice as long; there means of ops are far off. */
static double rule_ns(double in_bytes, double flops)
{
    return 20e3 + 0.5 * in_bytes + 0.1 * flops;
}

static void add_net(made *m, uint32_t net, uint32_t slow)
{
    uint32_t rank = m->facts.steps.n;
    double sum = 0;
    for (uint32_t k = 0; k < OPS; k++) {
        uint32_t i = m->facts.ops.n++, n = 32 + 16 * ((net * 7 + k * 3) % 11), d = 64 + 32 * net;
        snprintf(m->shapes[i], sizeof m->shapes[i], "f32[%u,%u] > f32[%u,%u]", n, d + k, n, d + k);
        double bytes = 4.0 * n * (d + k), flops = bytes * (1 + k) * (k == 5 ? 40 : 1);
        double own = rule_ns(bytes, flops), ns = (1 + slow) * own;
        double least = slow != 0 ? own + 5e6 * floor(own / 5e6) : 0;
        m->ops[i] = (ru_op_fact){.rank = rank,
                                 .step = k,
                                 .op = k % 2 == 0 ? "Relu" : "Tanh",
                                 .kernel = "kern map fast",
                                 .shapes = m->shapes[i],
                                 .device_type = slow != 0 ? "half" : "full",
                                 .flops = (int64_t)flops,
                                 .bytes = (int64_t)(2 * bytes),
                                 .took = {.count = 30,
                                          .mean_ns = slow != 0 && k % 3 == 0 ? 2 * ns : ns,
                                          .min_ns = (int64_t)least}};
        sum += ns;
    }
    snprintf(m->names[net], sizeof m->names[net], "net%u", net);
    m->steps[rank] = (ru_step_fact){.job = m->names[net],
                                    .rank = rank,
                                    .compute_ns = 1.1 * sum,
                                    .took = {.count = 30, .mean_ns = 1.2 * sum}};
    m->processors[rank] =
        (ru_processor_fact){.rank = rank, .quota_ns = slow != 0 ? 5e6 : 0, .period_ns = 1e7};
    if (net % 2 == 0) { /* others had half of the processor time that it could have got */
        m->steps[rank].compute_ns *= 2;
        m->processors[rank].took.mean_ns = m->steps[rank].compute_ns;
        m->processors[rank].compute_ns = m->steps[rank].compute_ns / (slow != 0 ? 4 : 2);
    }
    m->facts.steps.n++;
    m->facts.processors.n++;
}

static void make(made *m)
{
    memset(m, 0, sizeof *m);
    ru_arena_init(&m->arena, 0);
    ru_arena_init(&m->scratch, 0);
    m->facts.ops.at = m->ops;
    m->facts.steps.at = m->steps;
    m->facts.processors.at = m->processors;
    for (uint32_t slow = 0; slow < 2; slow++) {
        for (uint32_t net = 0; net <= NETS; net++) {
            add_net(m, net, slow);
        }
    }
}

static void nets_that_were_not_profiled_are_predicted(void **state)
{
    (void)state;
    static made m;
    make(&m);
    static const char *const types[] = {"full", "half"};
    for (uint32_t t = 0; t < 2; t++) {
        ru_err err = {0};
        ru_profile_model model;
        uint32_t last = (t == 0 ? NETS : 2 * NETS + 1);
        ru_facts others = m.facts; /* without the last net of the type */
        others.ops.n = last * OPS;
        others.steps.n = last;
        assert_ok(ru_cost_profile(&others, types[t], &m.arena, &m.scratch, &model, &err), err);
        ru_profile_step s = ru_cost_profile_step(&model, &m.ops[last * OPS], OPS);
        double is = m.steps[last].compute_ns / 2; /* alone */
        if (!(fabs(s.ns / is - 1) < 0.02) || !(s.known < 0.98)) {
            fail_msg("%s: %g ns predicted, %g by the rule; %g known", types[t], s.ns, is, s.known);
        }
        assert_int_equal(model.nets, NETS);
        assert_true(model.error < 0.05 && s.error == model.error);
        s = ru_cost_profile_step(&model, &m.ops[(last - 1) * OPS], OPS);
        assert_true(fabs(s.ns / m.steps[last - 1].compute_ns - 1) < 1e-4 && s.known > 0.99);
        assert_true(s.error == model.spread);
    }
    ru_arena_fini(&m.arena);
    ru_arena_fini(&m.scratch);
}

static void sizes_come_from_the_shapes(void **state)
{
    (void)state;
    char kind[128];
    ru_timing_op x;
    const ru_op_fact conv = {.op = "Conv",
                             .kernel = "dnnl conv jit:avx512_core",
                             .shapes = "f32[64,32,12,12] f32[48,32,5,5] f32[48] > f32[64,48,8,8]",
                             .flops = 1000,
                             .bytes = 4 * (64 * 32 * 144 + 48 * 32 * 25 + 48 + 64 * 48 * 64)};
    ru_cost_profile_op(&conv, kind, &x);
    assert_string_equal(kind, "Conv/dnnl conv/jit:avx512_core");
    assert_true(x.channels_in == 32 && x.channels_out == 48 && x.taps == 25);
    assert_true(x.param_bytes == 4 * 48 * 32 * 25 && x.out_bytes == 4 * 64 * 48 * 64);
    assert_true(x.in_bytes == 4 * (64 * 32 * 144 + 48));
    const ru_op_fact gemm = {.op = "Gemm",
                             .kernel = "dnnl matmul brg:avx512_core",
                             .shapes = "f32[64,10] f32[10,512] > f32[64,512]",
                             .flops = 2 * 64 * 10 * 512,
                             .bytes = 4 * (64 * 10 + 10 * 512 + 64 * 512)};
    ru_cost_profile_op(&gemm, kind, &x);
    assert_string_equal(kind, "Gemm/dnnl matmul/brg:avx512_core");
    assert_true(x.channels_in == 10 && x.channels_out == 512 && x.in_bytes == 4 * 64 * 10);
    /* What tells nothing, and what is no shape, have bytes alone. */
    const ru_op_fact odd = {.op = "reorder", .kernel = "", .shapes = "", .bytes = 100};
    ru_cost_profile_op(&odd, kind, &x);
    assert_true(x.in_bytes == 50 && x.out_bytes == 50);
    const ru_op_fact list = {.op = "S", .kernel = "k", .shapes = "f32[] - x > f32[8", .bytes = 64};
    ru_cost_profile_op(&list, kind, &x);
    assert_true(x.in_bytes == 32 && x.out_bytes == 32);
}

static void a_type_without_profiles_is_refused(void **state)
{
    (void)state;
    static made m;
    ru_err err = {0};
    ru_profile_model model;
    make(&m);
    assert_int_equal(ru_cost_profile(&m.facts, "none", &m.arena, &m.scratch, &model, &err),
                     RU_E_INFEASIBLE);
    assert_non_null(strstr(err.text, "'none'"));
    ru_facts one = m.facts; /* nobody can be left out */
    one.ops.n = OPS;
    one.steps.n = 1;
    assert_ok(ru_cost_profile(&one, "full", &m.arena, &m.scratch, &model, &err), err);
    assert_true(model.error == 0.5 && model.nets == 1);
    ru_arena_fini(&m.arena);
    ru_arena_fini(&m.scratch);
}

/* Two nets with the same ops, whose steps take 1.1 and 1.5 times as long as these. */
static void a_net_that_is_left_out_teaches_nothing(void **state)
{
    (void)state;
    static made m;
    ru_err err = {0};
    ru_profile_model model;
    double sum = 0;
    make(&m);
    for (uint32_t k = 0; k < OPS; k++) {
        m.ops[OPS + k] = m.ops[k];
        m.ops[OPS + k].rank = 1;
        sum += m.ops[k].took.mean_ns;
    }
    m.steps[0].compute_ns = 1.1 * sum;
    m.steps[1].compute_ns = 1.5 * sum;
    const ru_facts two = {.ops = {m.ops, 2 * OPS}, .steps = {m.steps, 2}};
    assert_ok(ru_cost_profile(&two, "full", &m.arena, &m.scratch, &model, &err), err);
    assert_true(fabs(model.step - 1.3) < 1e-6);
    assert_true(fabs(model.error - (1.5 / 1.1 - 1.1 / 1.5) / 2) < 1e-6);
    ru_arena_fini(&m.arena);
    ru_arena_fini(&m.scratch);
}

static void kinds_with_few_timings_are_guessed(void **state)
{
    (void)state;
    static made m;
    ru_err err = {0};
    ru_profile_model model;
    make(&m);
    m.ops[0].op = "Rare";
    m.ops[0].took.mean_ns = 1e6;
    assert_ok(ru_cost_profile(&m.facts, "full", &m.arena, &m.scratch, &model, &err), err);
    ru_op_fact rare = m.ops[0]; /* one timing: in proportion */
    rare.shapes = "f32[3] > f32[3]";
    rare.flops *= 2;
    ru_profile_step s = ru_cost_profile_step(&model, &rare, 1);
    assert_true(fabs(s.ns / model.step / 2e6 - 1) < 1e-6 && s.known < 0.01);
    rare.flops = 1000 * m.ops[0].flops; /* far larger than the one: as the others */
    rare.bytes = 1000 * m.ops[0].bytes;
    rare.shapes = "";
    s = ru_cost_profile_step(&model, &rare, 1);
    double rule = rule_ns(0.5 * (double)rare.bytes, (double)rare.flops);
    assert_true(fabs(s.ns / model.step / rule - 1) < 0.3 && rule < 1e8);
    ru_op_fact never = m.ops[OPS + 1]; /* none: as all others, which follow one rule */
    never.op = "Exp";
    never.kernel = "other kind of";
    s = ru_cost_profile_step(&model, &never, 1);
    if (!(fabs(s.ns / model.step / never.took.mean_ns - 1) < 0.25)) {
        fail_msg("%g ns for %g", s.ns / model.step, never.took.mean_ns);
    }
    ru_arena_fini(&m.arena);
    ru_arena_fini(&m.scratch);
}

RU_TESTS(cost_profile, cmocka_unit_test(nets_that_were_not_profiled_are_predicted),
         cmocka_unit_test(sizes_come_from_the_shapes),
         cmocka_unit_test(a_type_without_profiles_is_refused),
         cmocka_unit_test(a_net_that_is_left_out_teaches_nothing),
         cmocka_unit_test(kinds_with_few_timings_are_guessed))
