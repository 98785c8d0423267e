/* A quantised model in QDQ form: what it becomes, and that it computes what it says. The witness is
 * the graph as it stands, node by node on the reference. */
#include "exec/exe.h"
#include "exec/ref.h"
#include "test/test.h"
#include "world/graph/build.h"
#include "world/pass/pass.h"

#include <math.h>
#include <string.h>

typedef ru_value_id vid;

typedef struct lab {
    ru_arena a;
    ru_graph g;
    ru_build b;
    ru_err err;
    uint32_t draws;
} lab;

static vid bytes(lab *l, ru_dtype t, uint32_t rank, const int64_t *dims, int64_t low, int64_t high)
{
    ru_type type = ru_type_make(t, rank, dims);
    int64_t n = ru_type_count(&type);
    uint8_t *x = ru_arena_zalloc(&l->a, ru_type_bytes(&type), 64);
    for (int64_t k = 0; k < n; k++) {
        int64_t v = low + (int64_t)((++l->draws * 2654435761U) >> 8) % (high - low + 1);
        memcpy(x + k * ru_dtype_bytes(t), &v, (size_t)ru_dtype_bytes(t));
    }
    return ru_build_const(&l->b, type, x);
}

static vid scales(lab *l, int64_t n, float first)
{
    float *x = RU_NEW(&l->a, float, n);
    for (int64_t k = 0; k < n; k++) {
        x[k] = first * (1 + 0.125F * (float)k);
    }
    const ru_type t = {.dtype = RU_F32, .rank = n > 1 ? 1 : 0, .dims = {n}};
    return ru_build_const(&l->b, t, x);
}

static vid both_as(lab *l, ru_dtype t, vid x, float scale, int64_t zero)
{
    vid in[3] = {x, scales(l, 1, scale), bytes(l, t, 0, NULL, zero, zero)}, q, y;
    ru_build_node(&l->b, RU_OP_QuantizeLinear, in, 3, NULL, &q, 1);
    in[0] = q;
    ru_build_node(&l->b, RU_OP_DequantizeLinear, in, 3, NULL, &y, 1);
    return y;
}

static vid both(lab *l, vid x, float scale, int64_t zero)
{
    return both_as(l, RU_I8, x, scale, zero);
}

static vid weights(lab *l, uint32_t rank, const int64_t *dims, int64_t n, int64_t axis)
{
    vid in[2] = {bytes(l, RU_I8, rank, dims, -60, 60), scales(l, n, 0.01F)}, y;
    ru_build_node(&l->b, RU_OP_DequantizeLinear, in, 2, (ru_attr[]){RU_AI(axis, axis), RU_A_END},
                  &y, 1);
    return y;
}

/* conv + relu, conv + relu, their sum, a maximum pool, a product; every tensor between quantised.
 */
static void network(lab *l)
{
    const int64_t x_dims[] = {2, 3, 9, 9}, w1[] = {8, 3, 3, 3}, w2[] = {8, 8, 1, 1},
                  wm[] = {128, 5};
    assert_ok(ru_graph_init(&l->g, &l->a, "q", &l->err), l->err);
    ru_build_init(&l->b, &l->g);
    vid x = both(l, ru_build_input(&l->b, "x", ru_type_make(RU_F32, 4, x_dims)), 0.02F, 5);
    vid bias = ru_build_const(&l->b, ru_type_make(RU_F32, 1, (int64_t[]){8}),
                              (const float[]){1, -1, 2, 0, 0.5F, 3, -2, 1});
    vid c, d;
    ru_build_node(&l->b, RU_OP_Conv, (vid[]){x, weights(l, 4, w1, 8, 0), bias}, 3,
                  (ru_attr[]){RU_AIS(pads, ((int64_t[]){1, 1, 1, 1}), 4), RU_A_END}, &c, 1);
    c = both(l, ru_build_op1(&l->b, RU_OP_Relu, c, NULL), 0.04F, -128);
    ru_build_node(&l->b, RU_OP_Conv, (vid[]){c, weights(l, 4, w2, 1, 0)}, 2, NULL, &d, 1);
    d = both(l, d, 0.1F, 3);
    vid s =
        both(l, ru_build_op1(&l->b, RU_OP_Relu, ru_build_op2(&l->b, RU_OP_Add, c, d, NULL), NULL),
             0.08F, -128);
    vid p = ru_build_op1(&l->b, RU_OP_MaxPool, s,
                         (ru_attr[]){RU_AIS(kernel_shape, ((int64_t[]){2, 2}), 2),
                                     RU_AIS(strides, ((int64_t[]){2, 2}), 2), RU_A_END});
    p = ru_build_op1(&l->b, RU_OP_Flatten, both(l, p, 0.08F, -128), NULL);
    p = ru_build_op2(&l->b, RU_OP_MatMul, both(l, p, 0.08F, -128), weights(l, 2, wm, 5, 1), NULL);
    ru_build_output(&l->b, p, "y");
    assert_ok(ru_build_finish(&l->b, &l->err), l->err);
}

static uint32_t count(const ru_graph *g, ru_op op)
{
    uint32_t n = 0;
    for (uint32_t k = 1; k < g->n_nodes; k++) {
        n += g->nodes[k].op == op ? 1 : 0;
    }
    return n;
}

static void run(lab *l, const ru_exe_options *o, float *out)
{
    ru_exe *exe;
    assert_ok(ru_exe_open(&l->g, o, &exe, &l->err), l->err);
    float *x = ru_exe_input(exe, l->g.inputs[0]);
    for (uint32_t k = 0; k < 2 * 3 * 81; k++) {
        x[k] = (float)((k * 2654435761U) >> 16) / 16384.0F - 2.0F;
    }
    assert_ok(ru_exe_run(exe, &(ru_run_args){0}, &l->err), l->err);
    memcpy(out, ru_exe_output(exe, l->g.outputs[0]), 10 * sizeof *out);
    ru_exe_close(exe);
}

static void a_quantised_model_runs_on_bytes(void **state)
{
    (void)state;
    lab l = {0};
    ru_arena_init(&l.a, 0);
    network(&l);
    ru_graph f;
    const ru_fold_ops fold = ru_ref_fold_ops();
    assert_ok(ru_pass_fold(&l.g, &fold, 1 << 20, &l.a, &f, &l.err), l.err);
    assert_ok(ru_pass_fuse(&f, NULL, true, &l.a, &f, &l.err), l.err);
    assert_int_equal(count(&f, RU_OP_ConvInt8), 2);
    assert_int_equal(count(&f, RU_OP_AddInt8), 1);
    assert_int_equal(count(&f, RU_OP_MatMulInt8), 1);
    assert_int_equal(count(&f, RU_OP_QuantizeLinear), 1); /* of the input */
    assert_int_equal(count(&f, RU_OP_DequantizeLinear), 0);
    float want[10], ref[10], cpu[10];
    run(&l, &(ru_exe_options){.device = RU_DEVICE_REF, .no_fuse = true}, want);
    run(&l, &(ru_exe_options){.device = RU_DEVICE_REF}, ref);
    run(&l, &(ru_exe_options){.device = RU_DEVICE_CPU, .threads = 1}, cpu);
    for (int k = 0; k < 10; k++) { /* a tie may fall to the other side: one step of one summand */
        double step = 0.08 * 60 * 0.01 * 1.5;
        assert_true(fabs((double)ref[k] - (double)want[k]) <= 4 * step);
        assert_true(fabs((double)cpu[k] - (double)want[k]) <= 4 * step);
    }
    ru_arena_fini(&l.a);
}

/* Weights of u8 up to 127 above their zero point: pairs of their products with bytes of x pass 16
 * bits. A device that cuts them there has the product in floats. */
static void unsigned_weights_stay_exact(void **state)
{
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        lab l = {0};
        ru_graph f;
        const int64_t x_dims[] = {3, 64}, w_dims[] = {64, 5};
        ru_arena_init(&l.a, 0);
        assert_ok(ru_graph_init(&l.g, &l.a, "q", &l.err), l.err);
        ru_build_init(&l.b, &l.g);
        vid x = both(&l, ru_build_input(&l.b, "x", ru_type_make(RU_F32, 2, x_dims)), 0.02F, 5), w;
        vid in[3] = {bytes(&l, RU_U8, 2, w_dims, 255, 255), scales(&l, 1, 0.01F),
                     bytes(&l, RU_U8, 0, NULL, 128, 128)};
        ru_build_node(&l.b, RU_OP_DequantizeLinear, in, 3, NULL, &w, 1);
        ru_build_output(&l.b, ru_build_op2(&l.b, RU_OP_MatMul, x, w, NULL), "y");
        assert_ok(ru_build_finish(&l.b, &l.err), l.err);
        assert_ok(ru_pass_fuse(&l.g, NULL, exact == 1, &l.a, &f, &l.err), l.err);
        assert_int_equal(count(&f, RU_OP_MatMulInt8), exact);
        assert_int_equal(count(&f, RU_OP_MatMul), 1 - exact);
        ru_arena_fini(&l.a);
    }
}

/* Neither side is a constant: sums of integers, if they are not short and the device adds them
 * exactly. The numbers lie on the grids of the scales, so that the sums are known. */
static void given_sides_multiply_as_integers(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 5 };
    for (int k = 0; k < 4; k++) {
        const int64_t depth = k % 2 == 0 ? 64 : 31, exact = k / 2;
        const int64_t x_dims[] = {ROWS, depth}, w_dims[] = {depth, COLS};
        lab l = {0};
        ru_graph f;
        ru_exe *exe;
        ru_arena_init(&l.a, 0);
        assert_ok(ru_graph_init(&l.g, &l.a, "q", &l.err), l.err);
        ru_build_init(&l.b, &l.g);
        vid x = ru_build_input(&l.b, "x", ru_type_make(RU_F32, 2, x_dims));
        vid w = ru_build_input(&l.b, "w", ru_type_make(RU_F32, 2, w_dims));
        vid y =
            ru_build_op2(&l.b, RU_OP_MatMul, both(&l, x, 0.02F, 5), both(&l, w, 0.01F, -3), NULL);
        ru_build_output(&l.b, y, "y");
        assert_ok(ru_build_finish(&l.b, &l.err), l.err);
        assert_ok(ru_pass_fuse(&l.g, NULL, exact == 1, &l.a, &f, &l.err), l.err);
        assert_int_equal(count(&f, RU_OP_MatMulInteger), exact == 1 && depth == 64);
        assert_int_equal(count(&f, RU_OP_MatMul), exact == 0 || depth == 31);
        assert_ok(ru_exe_open(&f, &(ru_exe_options){.threads = 1}, &exe, &l.err), l.err);
        float *xs = ru_exe_input(exe, f.inputs[0]), *ws = ru_exe_input(exe, f.inputs[1]);
        for (int64_t i = 0; i < ROWS * depth; i++) {
            xs[i] = 0.02F * (float)(i % 37 - 20);
        }
        for (int64_t i = 0; i < depth * COLS; i++) {
            ws[i] = 0.01F * (float)(i % 41 - 17);
        }
        assert_ok(ru_exe_run(exe, &(ru_run_args){0}, &l.err), l.err);
        const float *ys = ru_exe_output(exe, f.outputs[0]);
        for (int64_t i = 0; i < ROWS * COLS; i++) {
            int64_t sum = 0;
            for (int64_t p = 0; p < depth; p++) {
                sum += ((i / COLS * depth + p) % 37 - 20) * ((p * COLS + i % COLS) % 41 - 17);
            }
            assert_true(fabs((double)ys[i] - 0.0002 * (double)sum) < 1e-5);
        }
        ru_exe_close(exe);
        ru_arena_fini(&l.a);
    }
}

/* Whatever is chosen for batches that repeat a side, it has kernels on this CPU. */
static void given_sides_of_any_rank_have_kernels(void **state)
{
    (void)state;
    static const struct {
        uint32_t ranks[2];
        int64_t dims[2][4];
    } shapes[] = {{{2, 2}, {{3, 64}, {64, 5}}},       {{3, 2}, {{2, 3, 64}, {64, 5}}},
                  {{3, 3}, {{2, 3, 64}, {2, 64, 5}}}, {{3, 3}, {{2, 3, 64}, {1, 64, 5}}},
                  {{2, 3}, {{3, 64}, {2, 64, 5}}},    {{4, 3}, {{2, 1, 3, 64}, {3, 64, 5}}},
                  {{2, 2}, {{1, 64}, {64, 1}}}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(shapes) * 4; k++) {
        lab l = {0};
        ru_exe *exe[2];
        ru_arena_init(&l.a, 0);
        assert_ok(ru_graph_init(&l.g, &l.a, "q", &l.err), l.err);
        ru_build_init(&l.b, &l.g);
        vid in[2];
        for (uint32_t i = 0; i < 2; i++) {
            const ru_type t = ru_type_make(RU_F32, shapes[k / 4].ranks[i], shapes[k / 4].dims[i]);
            const bool is_signed = (k >> i & 1) != 0;
            in[i] = ru_build_input(&l.b, i == 0 ? "x" : "w", t);
            in[i] = both_as(&l, is_signed ? RU_I8 : RU_U8, in[i], 0.01F, is_signed ? 0 : 128);
        }
        ru_build_output(&l.b, ru_build_op2(&l.b, RU_OP_MatMul, in[0], in[1], NULL), "y");
        assert_ok(ru_build_finish(&l.b, &l.err), l.err);
        for (int device = 0; device < 2; device++) {
            const ru_exe_options o = {.device = device == 0 ? RU_DEVICE_CPU : RU_DEVICE_REF,
                                      .no_fuse = device == 1,
                                      .threads = 1};
            assert_ok(ru_exe_open(&l.g, &o, &exe[device], &l.err), l.err);
            for (uint32_t i = 0; i < 2; i++) {
                float *x = ru_exe_input(exe[device], l.g.inputs[i]);
                const int64_t n = ru_type_count(&l.g.values[l.g.inputs[i].v].type);
                for (int64_t j = 0; j < n; j++) {
                    x[j] = 0.01F * (float)(j * (i == 0 ? 37 : 53) % 255 - 127);
                }
            }
            assert_ok(ru_exe_run(exe[device], &(ru_run_args){0}, &l.err), l.err);
        }
        ru_exe_stats s;
        ru_exe_stats_get(exe[0], &s);
        if (s.n_slow != 0) {
            fail_msg("shapes %u run on reference kernels: %s", k, s.slow);
        }
        const ru_value_id y = l.g.outputs[0];
        const float *is = ru_exe_output(exe[0], y), *want = ru_exe_output(exe[1], y);
        for (int64_t j = 0; j < ru_type_count(&l.g.values[y.v].type); j++) {
            assert_true(fabs((double)is[j] - (double)want[j]) < 1e-3);
        }
        ru_exe_close(exe[0]);
        ru_exe_close(exe[1]);
        ru_arena_fini(&l.a);
    }
}

/* 33,025 products of 255 by 255 are a number of 32 bits, one more are not: these stay floats. */
static void long_sums_of_given_sides_stay_right(void **state)
{
    (void)state;
    for (int64_t depth = 33025; depth <= 33026; depth++) {
        lab l = {0};
        ru_graph f;
        ru_exe *exe;
        ru_arena_init(&l.a, 0);
        assert_ok(ru_graph_init(&l.g, &l.a, "q", &l.err), l.err);
        ru_build_init(&l.b, &l.g);
        vid in[2];
        for (int k = 0; k < 2; k++) {
            const int64_t dims[] = {k == 0 ? 2 : depth, k == 0 ? depth : 2};
            in[k] = ru_build_input(&l.b, k == 0 ? "x" : "w", ru_type_make(RU_F32, 2, dims));
            in[k] = both_as(&l, RU_U8, in[k], 1.0F, 0);
        }
        ru_build_output(&l.b, ru_build_op2(&l.b, RU_OP_MatMul, in[0], in[1], NULL), "y");
        assert_ok(ru_build_finish(&l.b, &l.err), l.err);
        assert_ok(ru_pass_fuse(&l.g, NULL, true, &l.a, &f, &l.err), l.err);
        assert_int_equal(count(&f, RU_OP_MatMulInteger), depth == 33025);
        assert_ok(ru_exe_open(&f, &(ru_exe_options){.threads = 1}, &exe, &l.err), l.err);
        for (uint32_t k = 0; k < 2; k++) {
            float *x = ru_exe_input(exe, f.inputs[k]);
            for (int64_t i = 0; i < 2 * depth; i++) {
                x[i] = 255.0F;
            }
        }
        assert_ok(ru_exe_run(exe, &(ru_run_args){0}, &l.err), l.err);
        const double want = 65025.0 * (double)depth;
        const float *y = ru_exe_output(exe, f.outputs[0]);
        for (int i = 0; i < 4; i++) {
            assert_true(fabs((double)y[i] - want) < 1e-3 * want);
        }
        ru_exe_close(exe);
        ru_arena_fini(&l.a);
    }
}

RU_TESTS(test_int8, cmocka_unit_test(a_quantised_model_runs_on_bytes),
         cmocka_unit_test(given_sides_of_any_rank_have_kernels),
         cmocka_unit_test(long_sums_of_given_sides_stay_right),
         cmocka_unit_test(unsigned_weights_stay_exact),
         cmocka_unit_test(given_sides_multiply_as_integers))
