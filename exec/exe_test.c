/* Executables: the CPU device against the reference on small graphs, state and updates, sharing. */
#include "exec/exe.h"

#include <math.h>
#include <string.h>

#include "exec/cpu/kern/kern.h"
#include "exec/pool.h"
#include "exec/ref.h"
#include "test/test.h"
#include "world/graph/build.h"
#include "world/pass/pass.h"

typedef struct fixture {
    ru_arena arena;
    ru_graph g;
    ru_build b;
    ru_err err;
} fixture;

static void fixture_init(fixture *f)
{
    memset(f, 0, sizeof *f);
    ru_arena_init(&f->arena, 0);
    assert_ok(ru_graph_init(&f->g, &f->arena, "test", &f->err), f->err);
    ru_build_init(&f->b, &f->g);
}

static ru_type f32(uint32_t rank, const int64_t *dims)
{
    return ru_type_make(RU_F32, rank, dims);
}

#define F32(...) f32(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

/* Values in (-1, 1) from a counter. */
static float noise(uint64_t key, int64_t i)
{
    uint64_t x = (key + 1) * 0x9E3779B97F4A7C15U + (uint64_t)i * 0xBF58476D1CE4E5B9U;
    x ^= x >> 31;
    x *= 0x94D049BB133111EBU;
    x ^= x >> 29;
    return (float)(x >> 40) / (float)(1 << 23) - 1.0f;
}

static ru_value_id param(fixture *f, const char *name, ru_type t, float scale)
{
    int64_t n = ru_type_count(&t);
    float *data = ru_arena_alloc(&f->arena, n * (int64_t)sizeof *data, 64);
    for (int64_t i = 0; i < n; i++) {
        data[i] = scale * noise((uint64_t)name[0] + (uint64_t)name[1] * 131, i);
    }
    return ru_build_param(&f->b, name, t, data);
}

static ru_exe *open_exe(fixture *f, ru_exe_options opt)
{
    assert_ok(ru_build_finish(&f->b, &f->err), f->err);
    assert_ok(ru_graph_verify(&f->g, &f->err), f->err);
    ru_exe *e = NULL;
    assert_ok(ru_exe_open(&f->g, &opt, &e, &f->err), f->err);
    for (uint32_t i = 0; i < f->g.n_inputs; i++) {
        const ru_type *t = &f->g.values[f->g.inputs[i].v].type;
        void *p = ru_exe_input(e, f->g.inputs[i]);
        for (int64_t k = 0; k < ru_type_count(t); k++) {
            if (t->dtype == RU_F32) {
                ((float *)p)[k] = noise(i, k);
            } else {
                ((int64_t *)p)[k] = (k * 7) % 5;
            }
        }
    }
    return e;
}

static double worst(const float *a, const float *b, int64_t n)
{
    double scale = 1e-6;
    double diff = 0.0;
    for (int64_t i = 0; i < n; i++) {
        scale = fmax(scale, fabs((double)b[i]));
        diff = fmax(diff, fabs((double)a[i] - (double)b[i]));
    }
    return diff / scale;
}

static ru_status narrow_each_second(void *self, uint32_t step)
{
    ru_exe_narrow(self, step % 2 == 0);
    return RU_OK;
}

/* Two runs on both devices, the second one with each second step on one thread; outputs and state
 * must agree within `tol` of the largest element. */
static void same_on_both(fixture *f, ru_exe_options opt, double tol)
{
    ru_exe_options ref_opt = {.device = RU_DEVICE_REF};
    ru_exe *cpu = open_exe(f, opt);
    ru_exe *ref = open_exe(f, ref_opt);
    for (int run = 0; run < 2; run++) {
        ru_exe_poll_set(cpu, run == 1 ? narrow_each_second : NULL, cpu);
        assert_ok(ru_exe_run(cpu, NULL, &f->err), f->err);
        assert_ok(ru_exe_run(ref, NULL, &f->err), f->err);
        for (uint32_t i = 0; i < f->g.n_outputs; i++) {
            int64_t n = ru_type_count(&f->g.values[f->g.outputs[i].v].type);
            double d =
                worst(ru_exe_output(cpu, f->g.outputs[i]), ru_exe_output(ref, f->g.outputs[i]), n);
            if (d > tol) {
                fail_msg("run %d output %u: off by %g\n%s", run, i, d,
                         ru_exe_print(cpu, &f->arena));
            }
        }
    }
    for (uint32_t i = 1; i < f->g.n_values; i++) {
        const ru_value *v = &f->g.values[i];
        if (v->kind == RU_VALUE_STATE && v->type.dtype == RU_F32) {
            int64_t bytes = ru_type_bytes(&v->type);
            float *a = ru_arena_zalloc(&f->arena, bytes, 64);
            float *b = ru_arena_zalloc(&f->arena, bytes, 64);
            assert_ok(ru_exe_state_read(cpu, (ru_value_id){i}, a, &f->err), f->err);
            assert_ok(ru_exe_state_read(ref, (ru_value_id){i}, b, &f->err), f->err);
            assert_true(worst(a, b, bytes / 4) <= tol);
        }
    }
    ru_exe_close(cpu);
    ru_exe_close(ref);
}

static void all_ways(fixture *f, double tol)
{
    for (uint32_t i = 1; i < f->g.n_nodes; i++) {
        if (ru_ref_kernel(f->g.nodes[i].op) == NULL) {
            skip();
        }
    }
    for (uint32_t threads = 1; threads <= 2; threads++) {
        same_on_both(f, (ru_exe_options){.threads = threads}, tol);
        same_on_both(f, (ru_exe_options){.threads = threads, .keep_temps = true}, tol);
        same_on_both(f, (ru_exe_options){.threads = threads, .autotune = true}, tol);
    }
    ru_arena_fini(&f->arena);
}

static ru_attr *conv_attrs(fixture *f, int64_t pad, int64_t stride, int64_t group, int64_t dilate)
{
    int64_t *xs = RU_NEW(&f->arena, int64_t, 16);
    for (int i = 0; i < 4; i++) {
        xs[i] = pad;
        xs[4 + i] = stride;
        xs[8 + i] = dilate;
    }
    ru_attr *a = RU_NEW(&f->arena, ru_attr, 5);
    a[0] = (ru_attr)RU_AIS(pads, xs, 4);
    a[1] = (ru_attr)RU_AIS(strides, xs + 4, 2);
    a[2] = (ru_attr)RU_AIS(dilations, xs + 8, 2);
    a[3] = (ru_attr)RU_AI(group, group);
    return a;
}

typedef struct conv_shape {
    int64_t n, ci, co, hw, k, pad, stride, group, dilate;
} conv_shape;

/* A convolution and its gradients; `trained`: with an update, as some kernels are for training. */
static void conv_net(fixture *f, const conv_shape *s, bool trained)
{
    fixture_init(f);
    ru_value_id x = ru_build_input(&f->b, "x", F32(s->n, s->ci, s->hw, s->hw));
    ru_value_id w = param(f, "w", F32(s->co, s->ci / s->group, s->k, s->k), 0.3f);
    ru_value_id c = param(f, "c", F32(s->co), 0.3f);
    ru_attr *attrs = conv_attrs(f, s->pad, s->stride, s->group, s->dilate);
    ru_value_id y = ru_build_op3(&f->b, RU_OP_Conv, x, w, c, attrs);
    ru_value_id dy = ru_build_op1(&f->b, RU_OP_Tanh, y, NULL);
    ru_value_id dx = ru_build_op3(&f->b, RU_OP_ConvGradX, dy, w, x, attrs);
    attrs[4] = (ru_attr)RU_AI(bias_term, 1);
    ru_attr more[6] = {attrs[0], attrs[1], attrs[2], attrs[3], attrs[4], RU_A_END};
    ru_value_id in[3] = {dy, x, w};
    ru_value_id out[2];
    ru_build_node(&f->b, RU_OP_ConvGradW, in, 3, more, out, 2);
    ru_build_output(&f->b, y, "y");
    ru_build_output(&f->b, dx, "dx");
    ru_build_output(&f->b, out[0], "dw");
    if (trained) {
        ru_value_id kept = ru_build_state(&f->b, "kept", F32(s->co), RU_ROLE_SLOT, NULL);
        ru_build_update(&f->b, kept, out[1]);
    } else {
        ru_build_output(&f->b, out[1], "db");
    }
}

static void conv_case(int64_t n, int64_t ci, int64_t co, int64_t hw, int64_t k, int64_t pad,
                      int64_t stride, int64_t group, int64_t dilate)
{
    const conv_shape s = {n, ci, co, hw, k, pad, stride, group, dilate};
    fixture f;
    conv_net(&f, &s, true);
    all_ways(&f, 2e-5);
    conv_net(&f, &s, false);
    same_on_both(&f, (ru_exe_options){.threads = 1, .autotune = true}, 2e-5);
    ru_arena_fini(&f.arena);
}

/* What follows a convolution and is done by it, or not: ReLU, others, a sum. */
static void fused_convolutions_agree(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    ru_value_id x = ru_build_input(&f.b, "x", F32(3, 32, 9, 9)), y[5];
    ru_value_id c = param(&f, "c", F32(32), 0.3f), kept;
    static const char *const names[] = {"w0", "w1", "w2", "w3", "w4"};
    for (int k = 0; k < 5; k++) {
        ru_value_id w = param(&f, names[k], F32(32, 32, 3, 3), 0.1f);
        y[k] = ru_build_op3(&f.b, RU_OP_Conv, x, w, c, conv_attrs(&f, 1, 1, 1, 1));
    }
    y[0] = ru_build_op1(&f.b, RU_OP_Relu, y[0], NULL);
    y[1] = ru_build_op1(&f.b, RU_OP_LeakyRelu, y[1], (ru_attr[]){RU_AF(alpha, 0.3), RU_A_END});
    y[2] = ru_build_op2(&f.b, RU_OP_Add, y[2], x, NULL);
    y[3] = ru_build_op1(&f.b, RU_OP_Relu, ru_build_op2(&f.b, RU_OP_Add, y[3], x, NULL), NULL);
    y[4] = ru_build_op1(&f.b, RU_OP_Sigmoid, y[4], NULL);
    for (int k = 0; k < 5; k++) {
        ru_build_output(&f.b, y[k], names[k]);
    }
    kept = ru_build_state(&f.b, "kept", F32(32), RU_ROLE_SLOT, NULL); /* as training has */
    ru_build_update(&f.b, kept, ru_build_op2(&f.b, RU_OP_Add, kept, c, NULL));
    all_ways(&f, 2e-5);
}

/* One thread and each number of them up to `most` give the same bits, also the second time. */
static void same_bits(fixture *f, uint32_t most)
{
    ru_exe *one = open_exe(f, (ru_exe_options){.threads = 1, .autotune = true});
    assert_ok(ru_exe_run(one, NULL, &f->err), f->err);
    for (uint32_t threads = 1; threads <= most; threads++) {
        ru_exe *e = open_exe(f, (ru_exe_options){.threads = threads, .autotune = true});
        for (int run = 0; run < 2; run++) {
            assert_ok(ru_exe_run(e, NULL, &f->err), f->err);
            for (uint32_t i = 0; i < f->g.n_outputs; i++) {
                int64_t n = ru_type_bytes(&f->g.values[f->g.outputs[i].v].type);
                assert_memory_equal(ru_exe_output(e, f->g.outputs[i]),
                                    ru_exe_output(one, f->g.outputs[i]), (size_t)n);
            }
        }
        ru_exe_close(e);
    }
    ru_exe_close(one);
}

/* With AVX2 our own kernels are what the cases below are for. */
static void convolutions_take_our_kernels(void **state)
{
    (void)state;
    static const struct {
        conv_shape s;
        const char *kernels[3];
    } cases[] = {
        {{2, 16, 32, 12, 3, 1, 1, 1, 1},
         {"kern winograd ", "kern winograd data", "kern winograd weights"}},
        {{5, 48, 80, 7, 3, 1, 1, 1, 1},
         {"kern winograd ", "kern winograd data", "kern winograd weights"}},
        {{12, 48, 80, 24, 3, 1, 1, 1, 1}, /* several blocks and chunks of tiles */
         {"kern winograd ", "kern winograd data", "kern winograd weights"}},
        {{19, 1, 32, 28, 5, 0, 1, 1, 1}, {"kern conv weights"}},
        {{20, 24, 16, 18, 3, 1, 2, 1, 1}, {"kern conv weights"}},
    };
    if (ru_kern_best() != ru_kern_at(RU_KERN_AVX2)) {
        skip();
    }
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cases); i++) {
        fixture f;
        conv_net(&f, &cases[i].s, true);
        ru_exe *e = open_exe(&f, (ru_exe_options){.threads = 1, .autotune = true});
        const char *text = ru_exe_print(e, &f.arena);
        for (uint32_t k = 0; k < 3 && cases[i].kernels[k] != NULL; k++) {
            if (strstr(text, cases[i].kernels[k]) == NULL) {
                fail_msg("no %s in\n%s", cases[i].kernels[k], text);
            }
        }
        ru_exe_close(e);
        same_bits(&f, 3);
        ru_arena_fini(&f.arena);
    }
}

static void convolutions_agree(void **state)
{
    (void)state;
    conv_case(5, 48, 80, 7, 3, 1, 1, 1, 1);  /* Winograd's: tiles that stick out, odd groups */
    conv_case(70, 16, 16, 4, 3, 1, 1, 1, 1); /* one tile an image */
    conv_case(3, 32, 16, 9, 3, 0, 1, 1, 1);
    conv_case(4, 16, 32, 6, 3, 2, 1, 1, 1);
    conv_case(2, 16, 32, 8, 3, 1, 1, 1, 1);  /* too few tiles for it */
    conv_case(1, 3, 7, 9, 3, 1, 2, 1, 1);    /* odd channels */
    conv_case(3, 8, 8, 6, 3, 1, 1, 8, 1);    /* depthwise */
    conv_case(2, 12, 6, 7, 1, 0, 1, 3, 1);   /* grouped, 1x1 */
    conv_case(2, 5, 4, 11, 3, 2, 1, 1, 2);   /* dilated */
    conv_case(2, 1, 6, 12, 5, 0, 1, 1, 1);   /* LeNet's first */
    conv_case(19, 1, 32, 28, 5, 0, 1, 1, 1); /* in several chunks of images */
    conv_case(3, 16, 32, 9, 5, 2, 1, 1, 1);
    conv_case(20, 24, 16, 18, 3, 1, 2, 1, 1);
    conv_case(2, 8, 48, 7, 3, 0, 2, 1, 1);
    conv_case(5, 24, 16, 9, 3, 1, 1, 1, 1); /* not Winograd's though large enough: half a panel */
    conv_case(5, 16, 24, 9, 3, 1, 1, 1, 1);
    conv_case(5, 32, 32, 9, 3, 1, 1, 2, 1);  /* groups */
    conv_case(5, 16, 16, 12, 3, 2, 1, 1, 2); /* dilated */
    conv_case(5, 16, 16, 9, 3, 3, 1, 1, 1);  /* pads beyond the kernel */
    conv_case(5, 16, 16, 19, 3, 1, 2, 1, 1); /* strides */

    static const conv_shape chunks = {4, 16, 16, 62, 3, 1, 1, 1, 1}; /* of tiles: two */
    fixture f;
    conv_net(&f, &chunks, true);
    same_on_both(&f, (ru_exe_options){.threads = 2, .autotune = true}, 2e-5);
    ru_arena_fini(&f.arena);
}

/* Whatever the number of channels, the gradient of weights takes some tiles at a time. */
static void wide_convolutions_open(void **state)
{
    (void)state;
    static const conv_shape wide = {1, 16, 29136, 16, 3, 1, 1, 1, 1};
    fixture f;
    conv_net(&f, &wide, true);
    ru_exe_close(open_exe(&f, (ru_exe_options){.threads = 1, .autotune = true}));
    ru_arena_fini(&f.arena);
}

static void transposed_convolutions_agree(void **state)
{
    (void)state;
    for (int64_t group = 1; group <= 2; group++) {
        for (int64_t stride = 1; stride <= 2; stride++) {
            fixture f;
            fixture_init(&f);
            ru_value_id x = ru_build_input(&f.b, "x", F32(2, 6, 5, 5));
            ru_value_id w = param(&f, "w", F32(6, 8 / group, 3, 3), 0.3f);
            ru_value_id c = param(&f, "c", F32(8), 0.3f);
            ru_value_id y = ru_build_op3(&f.b, RU_OP_ConvTranspose, x, w, c,
                                         conv_attrs(&f, 1, stride, group, 1));
            ru_value_id z = ru_build_op1(&f.b, RU_OP_LRN, y,
                                         (ru_attr[]){RU_AI(size, 3), RU_AF(alpha, 0.1), RU_A_END});
            ru_build_output(&f.b, y, "y");
            ru_build_output(&f.b, z, "z");
            all_ways(&f, 2e-5);
        }
    }
}

static void products_agree(void **state)
{
    (void)state;
    for (int trans = 0; trans < 4; trans++) {
        fixture f;
        fixture_init(&f);
        int ta = trans & 1;
        int tb = trans >> 1;
        ru_value_id a = ru_build_input(&f.b, "a", ta ? F32(33, 5) : F32(5, 33));
        ru_value_id b = param(&f, "b", tb ? F32(17, 33) : F32(33, 17), 0.5f);
        ru_value_id c = param(&f, "c", F32(17), 0.5f);
        ru_value_id y = ru_build_op3(&f.b, RU_OP_Gemm, a, b, c,
                                     (ru_attr[]){RU_AI(transA, ta), RU_AI(transB, tb), RU_A_END});
        ru_build_output(&f.b, y, "y");
        ru_value_id p = ru_build_input(&f.b, "p", F32(2, 3, 5, 8));
        ru_value_id q = ru_build_input(&f.b, "q", F32(3, 8, 4));
        ru_value_id z = ru_build_op2(&f.b, RU_OP_MatMul, p, q, NULL);
        ru_build_output(&f.b, z, "z");
        all_ways(&f, 1e-5);
    }
}

/* Sums long enough for a kernel of its own, as gradients of weights have; odd sizes. */
static void long_products_agree(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        fixture f;
        fixture_init(&f);
        int64_t m = way < 2 ? 70 : 133, n = way < 2 ? 101 : 64;
        ru_value_id in[4] = {ru_build_input(&f.b, "a", F32(300, m)),
                             ru_build_input(&f.b, "b", (way & 1) != 0 ? F32(n, 300) : F32(300, n)),
                             param(&f, "c", F32(n), 0.5f),
                             {0}};
        in[3] = ru_build_input(&f.b, "s", F32(m, n));
        ru_value_id y;
        ru_build_node(&f.b, RU_OP_Gemm, in,
                      way == 3   ? 4
                      : way == 0 ? 2
                                 : 3,
                      (ru_attr[]){RU_AI(transA, 1), RU_AI(transB, way & 1),
                                  RU_AF(alpha, way == 0 ? 0.5 : 1.0),
                                  RU_AS(activation, way == 1 ? "relu" : ""), RU_A_END},
                      &y, 1);
        ru_build_output(&f.b, y, "y");
        if (ru_kern_best() == ru_kern_at(RU_KERN_AVX2)) {
            same_bits(&f, 3);
        }
        all_ways(&f, 1e-5);
    }
}

static void fused_sums_and_activations_agree(void **state)
{
    (void)state;
    const char *acts[] = {"", "relu", "tanh", "gelu_tanh", "silu", "hardswish"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(acts); k++) {
        fixture f;
        fixture_init(&f);
        ru_value_id x = ru_build_input(&f.b, "x", F32(2, 16, 5, 5));
        ru_value_id in[4] = {
            x, param(&f, "w", F32(16, 16, 3, 3), 0.3f), param(&f, "c", F32(16), 0.3f), {0}};
        ru_value_id y;
        ru_attr *a = conv_attrs(&f, 1, 1, 1, 1);
        in[3] = ru_build_op3(&f.b, RU_OP_Conv, x, in[1], in[2], a);
        a[4] = (ru_attr)RU_AS(activation, acts[k]);
        ru_attr attrs[6] = {a[0], a[1], a[2], a[3], a[4], RU_A_END};
        ru_build_node(&f.b, RU_OP_Conv, in, 4, attrs, &y, 1); /* its addend dies: in place */
        in[3] = x;
        ru_value_id y2;
        ru_build_node(&f.b, RU_OP_Conv, in, 4, attrs, &y2, 1); /* its addend is an input */
        ru_value_id p = ru_build_input(&f.b, "p", F32(6, 5, 16));
        ru_value_id min[4] = {p, param(&f, "q", F32(16, 16), 0.3f), in[2], p};
        ru_value_id z;
        ru_build_node(&f.b, RU_OP_MatMul, min, 4,
                      (ru_attr[]){RU_AI(transB, 1), RU_AS(activation, acts[k]), RU_A_END}, &z, 1);
        ru_build_output(&f.b, y, "y");
        ru_build_output(&f.b, y2, "y2");
        ru_build_output(&f.b, z, "z");
        all_ways(&f, 2e-5);
    }
}

static void chunks_agree(void **state)
{
    (void)state;
    for (int64_t c = 16; c >= 6; c -= 10) {
        fixture f;
        fixture_init(&f);
        ru_value_id x = ru_build_input(&f.b, "x", F32(2, 16, 4, 4));
        ru_value_id w = param(&f, "w", F32(c, 16, 3, 3), 0.2f);
        ru_value_id y = ru_build_op2(&f.b, RU_OP_Conv, x, w, conv_attrs(&f, 1, 1, 1, 1));
        for (int64_t axis = 0; axis < 4; axis++) {
            ru_value_id two[2];
            ru_value_id other = axis == 1 ? x : y;
            ru_value_id in[3] = {y, other, y};
            ru_build_node(&f.b, RU_OP_Concat, in, 3, (ru_attr[]){RU_AI(axis, axis), RU_A_END}, two,
                          1);
            int64_t n = f.g.values[two[0].v].type.dims[axis];
            ru_value_id i[4] = {two[0],
                                ru_build_const_i64s(&f.b, (int64_t[]){axis == 1 ? 16 : 1}, 1),
                                ru_build_const_i64s(&f.b, (int64_t[]){n}, 1),
                                ru_build_const_i64s(&f.b, (int64_t[]){axis}, 1)};
            ru_value_id part;
            ru_build_node(&f.b, RU_OP_Slice, i, 4, NULL, &part, 1);
            ru_value_id gin[5] = {part, two[0], i[1], i[2], i[3]};
            ru_value_id back;
            ru_build_node(&f.b, RU_OP_SliceGrad, gin, 5, NULL, &back, 1);
            ru_build_output(&f.b, ru_build_op1(&f.b, RU_OP_Tanh, part, NULL), "t");
            ru_build_output(&f.b, back, "b");
        }
        ru_value_id halves[2];
        ru_build_node(&f.b, RU_OP_Split, &y, 1,
                      (ru_attr[]){RU_AI(axis, 2), RU_AI(num_outputs, 2), RU_A_END}, halves, 2);
        ru_build_output(&f.b, ru_build_op2(&f.b, RU_OP_Sub, halves[0], halves[1], NULL), "d");
        ru_build_node(&f.b, RU_OP_Split, &y, 1,
                      (ru_attr[]){RU_AI(axis, 0), RU_AI(num_outputs, 2), RU_A_END}, halves, 2);
        ru_build_output(&f.b, ru_build_op2(&f.b, RU_OP_Sub, halves[0], halves[1], NULL), "e");
        all_ways(&f, 2e-5);
    }
}

static void views_and_in_place_agree(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    ru_value_id x = ru_build_input(&f.b, "x", F32(2, 16, 4, 4));
    ru_value_id w = param(&f, "w", F32(16, 16, 3, 3), 0.2f);
    ru_value_id y = ru_build_op2(&f.b, RU_OP_Conv, x, w, conv_attrs(&f, 1, 1, 1, 1));
    ru_value_id r = ru_build_op1(&f.b, RU_OP_Relu, y, NULL);
    ru_value_id flat = ru_build_op1(&f.b, RU_OP_Flatten, r, NULL);
    ru_value_id twice = ru_build_op2(&f.b, RU_OP_Add, flat, flat, NULL);
    ru_value_id back = ru_build_op2(&f.b, RU_OP_Reshape, twice,
                                    ru_build_const_i64s(&f.b, (int64_t[]){2, 16, 16}, 3), NULL);
    ru_value_id sum = ru_build_op2(&f.b, RU_OP_Add, r, r, NULL);
    ru_build_output(&f.b, ru_build_op1(&f.b, RU_OP_Tanh, back, NULL), "t");
    ru_build_output(&f.b, ru_build_op1(&f.b, RU_OP_Identity, sum, NULL), "s");
    ru_build_output(&f.b, x, "x again");
    all_ways(&f, 1e-5);
}

/* Every value that a kept executable gives, after others of its size have been made. */
static void kept_values_stay_what_they_were(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    ru_value_id x = ru_build_input(&f.b, "x", F32(2, 16, 4, 4));
    ru_value_id w = param(&f, "w", F32(16, 16, 3, 3), 0.2f);
    ru_value_id y = ru_build_op2(&f.b, RU_OP_Conv, x, w, conv_attrs(&f, 1, 1, 1, 1));
    ru_value_id flat = ru_build_op2(&f.b, RU_OP_Reshape, y,
                                    ru_build_const_i64s(&f.b, (int64_t[]){2, 16, 16}, 3), NULL);
    ru_value_id a = ru_build_op1(&f.b, RU_OP_Sigmoid, flat, NULL);
    ru_value_id b = ru_build_op1(&f.b, RU_OP_Transpose, a,
                                 (ru_attr[]){RU_AIS(perm, ((int64_t[]){0, 2, 1}), 3), RU_A_END});
    ru_value_id c = ru_build_op1(&f.b, RU_OP_Tanh, b, NULL);
    ru_build_output(&f.b, ru_build_op2(&f.b, RU_OP_Mul, c, c, NULL), "t");
    ru_exe *cpu = open_exe(&f, (ru_exe_options){.threads = 1, .keep_temps = true});
    ru_exe *ref = open_exe(&f, (ru_exe_options){.device = RU_DEVICE_REF, .keep_temps = true});
    assert_ok(ru_exe_run(cpu, NULL, &f.err), f.err);
    assert_ok(ru_exe_run(ref, NULL, &f.err), f.err);
    const ru_value_id all[] = {y, flat, a, b, c};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(all); i++) {
        float got[512], want[512];
        assert_ok(ru_exe_value_read(cpu, all[i], got, &f.err), f.err);
        assert_ok(ru_exe_value_read(ref, all[i], want, &f.err), f.err);
        assert_true(worst(got, want, 512) <= 1e-5);
    }
    ru_exe_close(cpu);
    ru_exe_close(ref);
    ru_arena_fini(&f.arena);
}

/* A batch-first LSTM over an embedding reads it by token, with a wrong token still noticed. */
static void lstm_looks_up_through_a_transpose(void **state)
{
    (void)state;
    for (int run = 0; run < 2; run++) {
        fixture f;
        fixture_init(&f);
        ru_value_id ids = ru_build_input(&f.b, "ids", ru_type_make(RU_I64, 2, (int64_t[]){3, 7}));
        ru_value_id table = param(&f, "table", F32(5, 6), 1.0f);
        ru_value_id x = ru_build_op2(&f.b, RU_OP_Gather, table, ids, NULL);
        ru_attr swap[] = {RU_AIS(perm, ((int64_t[]){1, 0, 2}), 3), RU_A_END};
        ru_value_id in[4] = {
            ru_build_op1(&f.b, RU_OP_Transpose, x, swap), param(&f, "w", F32(1, 80, 6), 0.5f),
            param(&f, "r", F32(1, 80, 20), 0.3f), param(&f, "b", F32(1, 160), 0.2f)};
        ru_value_id out[3];
        ru_build_node(&f.b, RU_OP_LSTM, in, 4, (ru_attr[]){RU_AI(hidden_size, 20), RU_A_END}, out,
                      3);
        for (uint32_t i = 0; i < 3; i++) {
            ru_build_output(&f.b, out[i], (const char *[]){"y", "h", "c"}[i]);
        }
        if (run == 0) {
            all_ways(&f, 1e-5);
            continue;
        }
        ru_exe *e = open_exe(&f, (ru_exe_options){.threads = 1});
        assert_non_null(strstr(ru_exe_print(e, &f.arena), "gather check"));
        ((int64_t *)ru_exe_input(e, ids))[4] = 5;
        assert_int_equal(ru_exe_run(e, NULL, &f.err), RU_E_DATA);
        ru_exe_close(e);
        ru_arena_fini(&f.arena);
    }
}

/* Fewer rows than threads: threads split the hidden units and meet after each step. */
static void recurrences_of_few_rows_split_their_units(void **state)
{
    (void)state;
    static const char *const relu[] = {"Relu", "Relu"};
    static const struct {
        ru_op op;
        int64_t gates, hidden, late;
        bool relu;
    } cells[] = {{RU_OP_LSTM, 4, 133, 0, false},
                 {RU_OP_GRU, 3, 154, 0, false},
                 {RU_OP_GRU, 3, 149, 1, false},
                 {RU_OP_RNN, 1, 263, 0, false},
                 {RU_OP_RNN, 1, 263, 0, true}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cells); k++) {
        for (int64_t rows = 1; rows <= 2; rows++) {
            fixture f;
            fixture_init(&f);
            int64_t g = cells[k].gates * cells[k].hidden, h = cells[k].hidden;
            ru_value_id in[7] = {param(&f, "x", F32(5, rows, 6), 1.0f),
                                 param(&f, "w", F32(2, g, 6), 0.5f),
                                 param(&f, "r", F32(2, g, h), 0.1f),
                                 param(&f, "b", F32(2, 2 * g), 0.2f),
                                 {0},
                                 param(&f, "h0", F32(2, rows, h), 0.5f),
                                 {0}};
            ru_value_id out[3];
            ru_attr attrs[] = {RU_AI(hidden_size, h), RU_AS(direction, "bidirectional"),
                               RU_AI(linear_before_reset, cells[k].late), RU_A_END};
            if (cells[k].relu) {
                attrs[2] = (ru_attr){RU_ATTR_activations, RU_ATTR_STRS, 2, {.ss = relu}};
            } else if (cells[k].op != RU_OP_GRU) {
                attrs[2] = attrs[3];
            }
            uint32_t n_out = cells[k].op == RU_OP_LSTM ? 3 : 2;
            ru_build_node(&f.b, cells[k].op, in, 6, attrs, out, n_out);
            for (uint32_t i = 0; i < n_out; i++) {
                ru_build_output(&f.b, out[i], (const char *[]){"y", "h", "c"}[i]);
            }
            same_on_both(&f, (ru_exe_options){.threads = 1 + (uint32_t)rows}, 1e-5);
            same_on_both(&f, (ru_exe_options){.threads = 4}, 1e-5);
            ru_arena_fini(&f.arena);
        }
    }
}

static void updates_swap_and_accumulate(void **state)
{
    (void)state;
    fixture f;
    fixture_init(&f);
    ru_value_id x = ru_build_input(&f.b, "x", F32(3));
    ru_value_id a = ru_build_state(&f.b, "a", F32(3), RU_ROLE_BUFFER, (float[]){1, 2, 3});
    ru_value_id b = ru_build_state(&f.b, "b", F32(3), RU_ROLE_BUFFER, (float[]){4, 5, 6});
    ru_value_id s = ru_build_state(&f.b, "s", F32(3), RU_ROLE_BUFFER, NULL);
    ru_value_id t = ru_build_op2(&f.b, RU_OP_Add, s, x, NULL);
    ru_value_id late = ru_build_op2(&f.b, RU_OP_Mul, s, t, NULL); /* reads s after t is made */
    ru_build_update(&f.b, a, b);
    ru_build_update(&f.b, b, a);
    ru_build_update(&f.b, s, t);
    ru_build_output(&f.b, late, "late");
    ru_build_output(&f.b, s, "s before");
    all_ways(&f, 1e-6);
}

static void batch_norm_and_pooling_agree(void **state)
{
    (void)state;
    for (int64_t c = 16; c >= 5; c -= 11) {
        fixture f;
        fixture_init(&f);
        ru_value_id x = ru_build_input(&f.b, "x", F32(4, c, 6, 6));
        ru_value_id w = param(&f, "w", F32(c, c, 3, 3), 0.3f);
        ru_value_id h = ru_build_op2(&f.b, RU_OP_Conv, x, w, conv_attrs(&f, 1, 1, 1, 1));
        ru_value_id in[5] = {h, param(&f, "g", F32(c), 1.0f), param(&f, "b", F32(c), 1.0f),
                             ru_build_state(&f.b, "m", F32(c), RU_ROLE_BUFFER, NULL),
                             ru_build_state(&f.b, "v", F32(c), RU_ROLE_BUFFER, NULL)};
        ru_value_id bn[5];
        ru_build_node(
            &f.b, RU_OP_BatchNormTrain, in, 5,
            (ru_attr[]){RU_AF(epsilon, 1e-5), RU_AF(momentum, 0.9), RU_AI(bias, 1), RU_A_END}, bn,
            5);
        ru_build_update(&f.b, in[3], bn[1]);
        ru_build_update(&f.b, in[4], bn[2]);
        ru_attr pool[4] = {RU_AIS(kernel_shape, ((int64_t[]){3, 3}), 2),
                           RU_AIS(strides, ((int64_t[]){2, 2}), 2),
                           RU_AIS(pads, ((int64_t[]){1, 1, 1, 1}), 4), RU_A_END};
        ru_value_id y = ru_build_op1(&f.b, RU_OP_MaxPool, bn[0], pool);
        ru_value_id a = ru_build_op1(&f.b, RU_OP_AveragePool, bn[0], pool);
        ru_value_id gp = ru_build_op1(&f.b, RU_OP_GlobalAveragePool, y, NULL);
        ru_value_id dy = ru_build_op1(&f.b, RU_OP_Tanh, y, NULL);
        ru_value_id dm = ru_build_op3(&f.b, RU_OP_MaxPoolGrad, dy, bn[0], y, pool);
        ru_value_id da = ru_build_op2(&f.b, RU_OP_AveragePoolGrad, a, bn[0], pool);
        ru_value_id dg = ru_build_op2(&f.b, RU_OP_GlobalAveragePoolGrad, gp, y, NULL);
        ru_value_id gin[5] = {ru_build_op2(&f.b, RU_OP_Add, dm, da, NULL), h, in[1], bn[3], bn[4]};
        ru_value_id grad[3];
        ru_build_node(&f.b, RU_OP_BatchNormGrad, gin, 5,
                      (ru_attr[]){RU_AF(epsilon, 1e-5), RU_A_END}, grad, 3);
        for (int k = 0; k < 3; k++) {
            ru_build_output(&f.b, grad[k], k == 0 ? "dx" : k == 1 ? "ds" : "db");
        }
        ru_build_output(&f.b, bn[0], "y");
        ru_build_output(&f.b, dg, "dg");
        all_ways(&f, 5e-5);
    }
}

/* A small convolutional net with batch norm, loss and SGD: everything a training step has. */
static ru_value_id small_net(fixture *f)
{
    fixture_init(f);
    ru_value_id x = ru_build_input(&f->b, "x", F32(4, 3, 8, 8));
    ru_value_id labels = ru_build_input(&f->b, "labels", ru_type_make(RU_I64, 1, (int64_t[]){4}));
    ru_value_id w = param(f, "w", F32(16, 3, 3, 3), 0.3f);
    ru_value_id v = param(f, "v", F32(16, 16, 3, 3), 0.2f);
    ru_value_id q = param(f, "q", F32(5, 1024), 0.1f);
    ru_value_id lr = ru_build_const_f32(&f->b, 0.002f);
    ru_attr *conv = conv_attrs(f, 1, 1, 1, 1);
    ru_value_id h =
        ru_build_op1(&f->b, RU_OP_Relu, ru_build_op2(&f->b, RU_OP_Conv, x, w, conv), NULL);
    ru_value_id c = ru_build_op2(&f->b, RU_OP_Conv, h, v, conv);
    ru_value_id flat = ru_build_op1(&f->b, RU_OP_Flatten, c, NULL);
    ru_value_id logits =
        ru_build_op2(&f->b, RU_OP_MatMul, flat, q, (ru_attr[]){RU_AI(transB, 1), RU_A_END});
    ru_value_id loss[4];
    ru_build_node(&f->b, RU_OP_SoftmaxCrossEntropy, (ru_value_id[]){logits, labels}, 2, NULL, loss,
                  4);
    assert_ok(ru_build_finish(&f->b, &f->err), f->err);
    ru_value_id params[3] = {w, v, q};
    ru_value_id grads[3];
    ru_graph *g = RU_NEW(&f->arena, ru_graph, 1);
    assert_ok(ru_graph_grad(&f->g, loss[0], params, 3, &f->arena, g, grads, &f->err), f->err);
    f->g = *g;
    ru_build_init(&f->b, &f->g);
    for (int k = 0; k < 3; k++) {
        ru_value_id slot = ru_build_state(&f->b,
                                          k == 0   ? "sw"
                                          : k == 1 ? "sv"
                                                   : "sq",
                                          f->g.values[params[k].v].type, RU_ROLE_SLOT, NULL);
        ru_value_id in[5] = {lr, {0}, params[k], grads[k], slot};
        ru_value_id out[2];
        ru_build_node(&f->b, RU_OP_SgdUpdate, in, 5, (ru_attr[]){RU_AF(momentum, 0.9), RU_A_END},
                      out, 2);
        ru_build_update(&f->b, params[k], out[0]);
        ru_build_update(&f->b, slot, out[1]);
    }
    ru_build_output(&f->b, loss[0], "loss");
    return loss[0];
}

static void run_net(ru_exe_options opt, float *losses, int n)
{
    fixture f;
    ru_value_id loss = small_net(&f);
    ru_exe *e = open_exe(&f, opt);
    for (int k = 0; k < n; k++) {
        assert_ok(ru_exe_run(e, NULL, &f.err), f.err);
        losses[k] = *(const float *)ru_exe_output(e, loss);
    }
    ru_exe_close(e);
    ru_arena_fini(&f.arena);
}

static void near_all(const float *a, const float *b, int n, double tol)
{
    for (int k = 0; k < n; k++) {
        double diff = fabs((double)a[k] - (double)b[k]);
        if (!(diff <= tol * fabs((double)b[k]))) {
            fail_msg("step %d: loss %.7g, reference %.7g", k, (double)a[k], (double)b[k]);
        }
    }
}

static void training_steps_agree_and_repeat(void **state)
{
    (void)state;
    enum { STEPS = 6 };
    float ref[STEPS];
    float cpu[STEPS];
    float again[STEPS];
    run_net((ru_exe_options){.device = RU_DEVICE_REF}, ref, STEPS);
    assert_true(ref[STEPS - 1] < ref[0]);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        const ru_exe_options opt = {.threads = threads};
        run_net(opt, cpu, STEPS);
        run_net(opt, again, STEPS);
        assert_memory_equal(cpu, again, sizeof cpu);
        near_all(cpu, ref, STEPS, 2e-5);
    }
    run_net((ru_exe_options){.threads = 1, .precision = RU_PRECISION_BF16}, cpu, STEPS);
    near_all(cpu, ref, STEPS, 2e-2);
    run_net((ru_exe_options){.threads = 1, .autotune = true}, cpu, STEPS);
    near_all(cpu, ref, STEPS, 2e-5);
}

static void a_run_allocates_nothing(void **state)
{
    (void)state;
    fixture f;
    (void)small_net(&f);
    ru_exe *e = open_exe(&f, (ru_exe_options){.threads = 1});
    assert_ok(ru_exe_run(e, NULL, &f.err), f.err);
    ru_alloc_seal();
    ru_status st = ru_exe_run(e, NULL, &f.err);
    ru_alloc_unseal();
    assert_ok(st, f.err);
    ru_exe_stats s;
    ru_exe_stats_get(e, &s);
    assert_true(s.arena_bytes >= s.arena_bound_bytes);
    assert_true((double)s.arena_bytes <= 1.05 * (double)s.arena_bound_bytes);
    ru_exe_close(e);
    ru_arena_fini(&f.arena);
}

RU_TESTS(exec_exe, cmocka_unit_test(training_steps_agree_and_repeat),
         cmocka_unit_test(a_run_allocates_nothing), cmocka_unit_test(convolutions_agree),
         cmocka_unit_test(convolutions_take_our_kernels),
         cmocka_unit_test(fused_convolutions_agree), cmocka_unit_test(wide_convolutions_open),
         cmocka_unit_test(chunks_agree), cmocka_unit_test(transposed_convolutions_agree),
         cmocka_unit_test(products_agree), cmocka_unit_test(long_products_agree),
         cmocka_unit_test(fused_sums_and_activations_agree),
         cmocka_unit_test(views_and_in_place_agree),
         cmocka_unit_test(lstm_looks_up_through_a_transpose),
         cmocka_unit_test(recurrences_of_few_rows_split_their_units),
         cmocka_unit_test(kept_values_stay_what_they_were),
         cmocka_unit_test(updates_swap_and_accumulate),
         cmocka_unit_test(batch_norm_and_pooling_agree))
