/* Passes: the result computes the same as the graph before, through the reference kernels, and has
 * the form it should have. */
#include "exec/ref.h"
#include "test/ops/eval.h"
#include "test/test.h"
#include "world/graph/build.h"
#include "world/pass/pass.h"

#include <math.h>
#include <string.h>

typedef ru_value_id vid;

#define A(...)    ((const ru_attr[]){__VA_ARGS__, RU_A_END})
#define INTS(...) ((const int64_t[]){__VA_ARGS__})

typedef struct fix {
    ru_arena a;
    ru_graph g;
    ru_build b;
    ru_err err;
} fix;

static void fix_init(fix *f)
{
    ru_arena_init(&f->a, 0);
    assert_ok(ru_graph_init(&f->g, &f->a, "test", &f->err), f->err);
    ru_build_init(&f->b, &f->g);
}

static vid input(fix *f, const char *name, uint32_t rank, const int64_t *dims)
{
    return ru_build_input(&f->b, name, ru_type_make(RU_F32, rank, dims));
}

static vid param(fix *f, const char *name, uint32_t rank, const int64_t *dims)
{
    return ru_build_param(&f->b, name, ru_type_make(RU_F32, rank, dims), NULL);
}

/* A constant with numbers in [lo, hi). */
static vid konst(fix *f, uint32_t rank, const int64_t *dims, float lo, float hi)
{
    ru_type t = ru_type_make(RU_F32, rank, dims);
    int64_t n = ru_type_count(&t);
    float *x = RU_NEW(&f->a, float, n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = ((uint32_t)i + 1U + f->g.n_values * 977U) * 2654435761U;
        x[i] = lo + (hi - lo) * (float)(h >> 8) * 0x1p-24F;
    }
    return ru_build_const(&f->b, t, x);
}

static vid op1(fix *f, ru_op op, vid x, const ru_attr *a)
{
    return ru_build_op1(&f->b, op, x, a);
}

static vid op2(fix *f, ru_op op, vid x, vid y, const ru_attr *a)
{
    return ru_build_op2(&f->b, op, x, y, a);
}

static vid op3(fix *f, ru_op op, vid x, vid y, vid z, const ru_attr *a)
{
    return ru_build_op3(&f->b, op, x, y, z, a);
}

static vid scalar(fix *f, float x)
{
    return ru_build_const_f32(&f->b, x);
}

static uint32_t count(const ru_graph *g, ru_op op)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        n += g->nodes[i].op == op ? 1 : 0;
    }
    return n;
}

static void run_filled(rui_graph_eval *e, const ru_graph *g, ru_arena *a)
{
    rui_graph_eval_init(e, g, a);
    e->args.seed = 5;
    for (uint32_t i = 1; i < g->n_values; i++) {
        const ru_value *v = &g->values[i];
        if (v->kind == RU_VALUE_INPUT || (v->kind == RU_VALUE_STATE && v->data == NULL)) {
            rui_graph_eval_fill(e, (vid){i},
                                v->type.dtype == RU_I64     ? 0.0
                                : v->role == RU_ROLE_BUFFER ? 0.5
                                                            : -1.0,
                                v->type.dtype == RU_I64 ? 3.0 : 1.0, i);
        }
    }
    rui_graph_eval_run(e);
}

static void compare_value(const rui_graph_eval *e, vid a, const rui_graph_eval *d, vid b,
                          double tol)
{
    const ru_type *t = &e->g->values[a.v].type;
    assert_true(ru_type_equal(t, &d->g->values[b.v].type));
    int64_t n = ru_type_count(t);
    double scale = 1e-6;
    for (int64_t i = 0; i < n && ru_dtype_is_float(t->dtype); i++) {
        scale = fmax(scale, fabs(rui_graph_eval_get(e, a, i)));
    }
    for (int64_t i = 0; i < n && ru_dtype_is_float(t->dtype); i++) {
        double x = rui_graph_eval_get(e, a, i);
        double y = rui_graph_eval_get(d, b, i);
        if (!(fabs(x - y) <= tol * scale)) {
            fail_msg("value %u[%lld]: %.9g before, %.9g after", a.v, (long long)i, x, y);
        }
    }
}

/* Outputs and updates of both graphs agree. */
static void same_results(fix *f, const ru_graph *before, const ru_graph *after, double tol)
{
    rui_graph_eval e;
    rui_graph_eval d;
    if (ru_graph_verify(after, &f->err) != RU_OK) {
        fail_msg("%s\n%s", f->err.text, ru_graph_print(after, &f->a));
    }
    run_filled(&e, before, &f->a);
    run_filled(&d, after, &f->a);
    assert_int_equal(before->n_outputs, after->n_outputs);
    assert_int_equal(before->n_updates, after->n_updates);
    for (uint32_t i = 0; i < before->n_outputs; i++) {
        assert_int_equal(before->outputs[i].v, after->outputs[i].v);
        compare_value(&e, before->outputs[i], &d, after->outputs[i], tol);
    }
    for (uint32_t i = 0; i < before->n_updates; i++) {
        compare_value(&e, before->updates[i].value, &d, after->updates[i].value, tol);
    }
}

static void finish(fix *f, vid y)
{
    ru_build_output(&f->b, y, "y");
    assert_ok(ru_build_finish(&f->b, &f->err), f->err);
}

/* Fuse, compare, and give the fused graph. */
static ru_graph fused(fix *f, double tol)
{
    ru_graph d;
    assert_ok(ru_pass_fuse(&f->g, NULL, true, &f->a, &d, &f->err), f->err);
    same_results(f, &f->g, &d, tol);
    return d;
}

/* -- products ---------------------------------------------------------------------------------- */

static void test_activations(void **state)
{
    (void)state;
    static const ru_op acts[] = {RU_OP_Relu,        RU_OP_Sigmoid,   RU_OP_Tanh,
                                 RU_OP_Gelu,        RU_OP_HardSwish, RU_OP_Elu,
                                 RU_OP_HardSigmoid, RU_OP_LeakyRelu};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(acts); i++) {
        fix f;
        fix_init(&f);
        vid x = input(&f, "x", 3, INTS(2, 3, 4));
        vid y = op2(&f, RU_OP_MatMul, x, param(&f, "w", 2, INTS(4, 5)), NULL);
        y = op2(&f, RU_OP_Add, param(&f, "b", 1, INTS(5)), y, NULL);
        finish(&f, op1(&f, acts[i], y, NULL));
        ru_graph d = fused(&f, 1e-6);
        assert_int_equal(d.n_nodes, 2);
        assert_string_not_equal(ru_node_str(&d.nodes[1], RU_ATTR_activation, ""), "");
        ru_arena_fini(&f.a);
    }
}

static void test_conv_residual_clip_silu(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    const ru_attr *pads = A(RU_AIS(pads, INTS(1, 1, 1, 1), 4));
    vid x = input(&f, "x", 4, INTS(2, 3, 5, 5));
    vid w = param(&f, "w", 4, INTS(3, 3, 3, 3));
    vid y = op2(&f, RU_OP_Conv, x, w, pads);
    y = op3(&f, RU_OP_Clip, y, scalar(&f, -0.5F), scalar(&f, 0.5F), NULL);
    vid z = op2(&f, RU_OP_Conv, y, w, pads);
    z = op1(&f, RU_OP_Relu, op2(&f, RU_OP_Add, y, z, NULL), NULL);
    z = op3(&f, RU_OP_Conv, z, w, param(&f, "b", 1, INTS(3)), pads);
    z = op2(&f, RU_OP_Mul, z, op1(&f, RU_OP_Sigmoid, z, NULL), NULL);
    finish(&f, z);
    ru_graph d = fused(&f, 1e-6);
    assert_int_equal(d.n_nodes, 4);
    assert_string_equal(ru_node_str(&d.nodes[1], RU_ATTR_activation, ""), "clip");
    assert_true(ru_node_has_in(&d.nodes[2], 3));
    assert_string_equal(ru_node_str(&d.nodes[3], RU_ATTR_activation, ""), "silu");
    ru_arena_fini(&f.a);
}

/* What is read twice must stay readable. */
static void test_shared_values_stay(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid x = input(&f, "x", 2, INTS(3, 4));
    vid z = op2(&f, RU_OP_Gemm, x, param(&f, "w", 2, INTS(4, 5)), NULL);
    ru_build_output(&f.b, z, "z");
    vid y = op1(&f, RU_OP_Relu, z, NULL);
    vid u = op2(&f, RU_OP_Gemm, x, param(&f, "w2", 2, INTS(4, 5)), NULL);
    vid t = op1(&f, RU_OP_Tanh, u, NULL);
    finish(&f, op2(&f, RU_OP_Mul, y, op2(&f, RU_OP_Add, u, t, NULL), NULL));
    ru_graph d = fused(&f, 1e-6);
    assert_int_equal(count(&d, RU_OP_Relu), 1);
    assert_int_equal(count(&d, RU_OP_Tanh), 1);
    ru_arena_fini(&f.a);
}

static void test_transposes(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid a = input(&f, "a", 3, INTS(2, 4, 3));
    vid b = input(&f, "b", 2, INTS(5, 4));
    a = op1(&f, RU_OP_Transpose, a, A(RU_AIS(perm, INTS(0, 2, 1), 3)));
    vid y = op2(&f, RU_OP_MatMul, a, op1(&f, RU_OP_Transpose, b, NULL), NULL);
    y = op1(&f, RU_OP_Transpose, y, A(RU_AIS(perm, INTS(2, 0, 1), 3)));
    y = op1(&f, RU_OP_Transpose, y, A(RU_AIS(perm, INTS(1, 2, 0), 3)));
    y = op1(&f, RU_OP_Identity, y, NULL);
    y = op2(&f, RU_OP_Reshape, y, ru_build_const_i64s(&f.b, INTS(6, 5), 2), NULL);
    finish(&f, op2(&f, RU_OP_Reshape, y, ru_build_const_i64s(&f.b, INTS(-1), 1), NULL));
    ru_graph d = fused(&f, 1e-6);
    assert_int_equal(d.n_nodes, 3); /* MatMul and one Reshape */
    assert_int_equal(ru_node_int(&d.nodes[1], RU_ATTR_transA, 0), 1);
    assert_int_equal(ru_node_int(&d.nodes[1], RU_ATTR_transB, 0), 1);
    ru_arena_fini(&f.a);
}

static void test_norm_folds_into_conv(void **state)
{
    (void)state;
    for (int transpose = 0; transpose < 2; transpose++) {
        fix f;
        fix_init(&f);
        vid x = input(&f, "x", 4, INTS(2, 4, 5, 5));
        vid w = konst(&f, 4, transpose != 0 ? INTS(4, 3, 3, 3) : INTS(6, 2, 3, 3), -1, 1);
        vid b = konst(&f, 1, INTS(6), -1, 1);
        vid y = op3(&f, transpose != 0 ? RU_OP_ConvTranspose : RU_OP_Conv, x, w,
                    transpose != 0 ? b : (vid){0}, A(RU_AI(group, 2)));
        vid in[5] = {y, konst(&f, 1, INTS(6), 0.5F, 2), konst(&f, 1, INTS(6), -1, 1),
                     konst(&f, 1, INTS(6), -1, 1), konst(&f, 1, INTS(6), 0.5F, 2)};
        ru_build_node(&f.b, RU_OP_BatchNormalization, in, 5, A(RU_AF(epsilon, 1e-3)), &y, 1);
        finish(&f, op1(&f, RU_OP_Relu, y, NULL));
        ru_graph d = fused(&f, 1e-5), again;
        assert_int_equal(d.n_nodes, 2);
        /* beside a form of the same model the weights are those; beside others they are not */
        for (int k = 0; k < 2; k++) {
            ((float *)(uintptr_t)f.g.values[w.v].data)[7] += (float)k;
            assert_ok(ru_pass_fuse(&f.g, &d, true, &f.a, &again, &f.err), f.err);
            assert_int_equal(again.n_nodes, 2);
            const void *then = d.values[d.nodes[1].in[1].v].data;
            assert_true((again.values[again.nodes[1].in[1].v].data == then) == (k == 0));
            same_results(&f, &f.g, &again, 1e-5);
        }
        ru_arena_fini(&f.a);
    }
}

/* -- training ---------------------------------------------------------------------------------- */

static vid norm(fix *f, vid x, const char *name)
{
    char n[4][16];
    static const char *const what[4] = {"s", "b", "m", "v"};
    vid p[5] = {x};
    for (uint32_t k = 0; k < 4; k++) {
        strcpy(n[k], name);
        strcat(n[k], what[k]);
        p[k + 1] = ru_build_state(&f->b, n[k], ru_type_make(RU_F32, 1, INTS(4)),
                                  k < 2 ? RU_ROLE_PARAM : RU_ROLE_BUFFER, NULL);
    }
    vid out[5];
    ru_build_node(&f->b, RU_OP_BatchNormTrain, p, 5, A(RU_AF(epsilon, 1e-3)), out, 5);
    ru_build_update(&f->b, p[3], out[1]);
    ru_build_update(&f->b, p[4], out[2]);
    return out[0];
}

/* A residual block, a classifier, the loss, its gradient and updates by plain descent. */
static void residual_step(fix *f, ru_graph *out)
{
    const ru_attr *pads = A(RU_AIS(pads, INTS(1, 1, 1, 1), 4));
    vid x = input(f, "x", 4, INTS(2, 3, 4, 4));
    vid labels = ru_build_input(&f->b, "labels", ru_type_make(RU_I64, 1, INTS(2)));
    vid w[4] = {param(f, "w0", 4, INTS(4, 3, 3, 3)), param(f, "w1", 4, INTS(4, 4, 3, 3)),
                param(f, "w2", 2, INTS(3, 4)), param(f, "b2", 1, INTS(3))};
    vid h = op1(f, RU_OP_Relu, norm(f, op2(f, RU_OP_Conv, x, w[0], pads), "n0"), NULL);
    vid r = norm(f, op2(f, RU_OP_Conv, h, w[1], pads), "n1");
    r = op1(f, RU_OP_Relu, op2(f, RU_OP_Add, r, h, NULL), NULL);
    r = op1(f, RU_OP_Flatten, op1(f, RU_OP_GlobalAveragePool, r, NULL), NULL);
    vid y = op3(f, RU_OP_Gemm, r, w[2], w[3], A(RU_AI(transB, 1)));
    vid o[4];
    ru_build_node(&f->b, RU_OP_SoftmaxCrossEntropy, (vid[]){y, labels}, 2, NULL, o, 4);
    finish(f, o[0]);
    vid grads[4];
    assert_ok(ru_graph_grad(&f->g, o[0], w, 4, &f->a, out, grads, &f->err), f->err);
    ru_build b;
    ru_build_init(&b, out);
    vid lr = ru_build_const_f32(&b, 0.1F);
    for (uint32_t k = 0; k < 4; k++) {
        vid p;
        ru_build_node(&b, RU_OP_SgdUpdate, (vid[]){lr, {0}, w[k], grads[k], {0}}, 5, NULL, &p, 1);
        ru_build_update(&b, w[k], p);
    }
    assert_ok(ru_build_finish(&b, &f->err), f->err);
}

static void test_training_step(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    ru_graph g;
    ru_graph d;
    residual_step(&f, &g);
    assert_ok(ru_pass_fuse(&g, NULL, true, &f.a, &d, &f.err), f.err);
    same_results(&f, &g, &d, 1e-5);
    assert_int_equal(count(&d, RU_OP_Relu), 0);
    assert_int_equal(count(&d, RU_OP_Add), 0);
    assert_int_equal(count(&d, RU_OP_ReluGrad), 0);
    assert_int_equal(count(&d, RU_OP_SoftmaxCrossEntropyGrad), 0);
    assert_int_equal(count(&d, RU_OP_SgdUpdate), 4);
    ru_arena_fini(&f.a);
}

static void test_train_form(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid x = input(&f, "x", 4, INTS(2, 4, 3, 3));
    vid in[5] = {x, konst(&f, 1, INTS(4), 0.5F, 2), konst(&f, 1, INTS(4), -1, 1),
                 konst(&f, 1, INTS(4), -1, 1), konst(&f, 1, INTS(4), 0.5F, 2)};
    vid y;
    ru_build_node(&f.b, RU_OP_BatchNormalization, in, 5, NULL, &y, 1);
    y = op2(&f, RU_OP_Dropout, y, scalar(&f, 0.25F), NULL);
    vid s = op2(&f, RU_OP_Reshape, y, ru_build_const_i64s(&f.b, INTS(3, 3, 8), 3), NULL);
    ru_build_node(&f.b, RU_OP_LSTM,
                  (vid[]){s, param(&f, "W", 3, INTS(1, 20, 8)), param(&f, "R", 3, INTS(1, 20, 5))},
                  3, A(RU_AI(hidden_size, 5)), &y, 1);
    finish(&f, y);
    ru_graph d;
    assert_ok(ru_pass_train(&f.g, &f.a, &d, &f.err), f.err);
    assert_ok(ru_graph_verify(&d, &f.err), f.err);
    assert_int_equal(count(&d, RU_OP_BatchNormTrain), 1);
    assert_int_equal(count(&d, RU_OP_DropoutTrain), 1);
    assert_int_equal(count(&d, RU_OP_LSTMTrain), 1);
    assert_int_equal(d.n_updates, 2);
    rui_graph_eval e;
    run_filled(&e, &d, &f.a);
    ru_arena_fini(&f.a);
}

/* A graph that was exported in training mode: its statistics move, what it says is frozen does not,
 * and its inference form reads the same state and draws nothing. */
static void test_train_form_imported(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    static const uint8_t bools[2] = {0, 1};
    const ru_type flag = {.dtype = RU_BOOL};
    vid x = input(&f, "x", 4, INTS(2, 4, 3, 3));
    vid in[5] = {x}, out[5], y;
    for (int k = 1; k < 5; k++) {
        static const char *const names[] = {"", "scale", "bias", "mean", "var"};
        in[k] = param(&f, names[k], 1, INTS(4));
    }
    ru_build_node(&f.b, RU_OP_BatchNormTrain, in, 5, A(RU_AF(momentum, 0.8)), out, 5);
    in[0] = out[0];
    in[3] = konst(&f, 1, INTS(4), -1, 1);
    in[4] = konst(&f, 1, INTS(4), 0.5F, 2);
    ru_build_node(&f.b, RU_OP_BatchNormalization, in, 5, A(RU_AI(training_mode, 0)), &y, 1);
    for (int k = 0; k < 2; k++) {
        vid drop[3] = {y, scalar(&f, 0.25F), ru_build_const(&f.b, flag, &bools[k])};
        ru_build_node(&f.b, RU_OP_Dropout, drop, 3, NULL, &y, 1);
    }
    finish(&f, op1(&f, RU_OP_Neg, y, NULL));
    ru_graph base, train, infer;
    assert_ok(ru_pass_untie(&f.g, &f.a, &base, &f.err), f.err);
    assert_ok(ru_pass_train(&base, &f.a, &train, &f.err), f.err);
    assert_ok(ru_graph_verify(&train, &f.err), f.err);
    assert_int_equal(train.n_updates, 2);
    assert_int_equal(count(&train, RU_OP_BatchNormTrain), 1);
    assert_int_equal(count(&train, RU_OP_BatchNormalization), 1);
    assert_int_equal(count(&train, RU_OP_DropoutTrain), 1);
    assert_int_equal(count(&train, RU_OP_Dropout), 1);
    assert_ok(ru_pass_infer(&train, &f.a, &infer, &f.err), f.err);
    assert_ok(ru_graph_infer(&infer, &f.err), f.err);
    assert_ok(ru_graph_verify(&infer, &f.err), f.err);
    assert_int_equal(infer.n_updates, 0);
    assert_int_equal(count(&infer, RU_OP_BatchNormalization), 2);
    assert_int_equal(count(&infer, RU_OP_Dropout), 2);
    for (uint32_t k = 0; k < train.n_updates; k++) {
        const ru_value *v = ru_graph_value(&train, train.updates[k].state);
        assert_int_equal(v->role, RU_ROLE_BUFFER);
        assert_int_equal(ru_graph_find(&infer, v->name).v, train.updates[k].state.v);
    }
    rui_graph_eval a;
    rui_graph_eval b;
    run_filled(&a, &infer, &f.a);
    ru_graph lean;
    assert_ok(ru_pass_fuse(&infer, NULL, true, &f.a, &lean, &f.err), f.err);
    assert_int_equal(count(&lean, RU_OP_Dropout), 0);
    run_filled(&b, &lean, &f.a);
    ru_arena_fini(&f.a);
}

/* Two layers that an exporter gave one vector train two; a bias that doubles as running mean does
 * not. */
static void test_untie(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid x = input(&f, "x", 4, INTS(2, 4, 3, 3));
    vid one = param(&f, "one", 1, INTS(4));
    vid zero = param(&f, "zero", 1, INTS(4));
    vid y = x;
    for (int i = 0; i < 2; i++) {
        ru_build_node(&f.b, RU_OP_BatchNormalization, (vid[]){y, one, zero, zero, one}, 5, NULL, &y,
                      1);
    }
    vid w = param(&f, "w", 2, INTS(3, 3));
    y = op2(&f, RU_OP_MatMul, op2(&f, RU_OP_MatMul, y, w, NULL), w, NULL);
    vid alias = op1(&f, RU_OP_Identity, param(&f, "bias", 1, INTS(3)), NULL);
    finish(&f, op2(&f, RU_OP_Add, y, alias, NULL));
    f.g.values[alias.v].name = "bias2";
    ru_graph u;
    ru_graph d;
    assert_ok(ru_pass_untie(&f.g, &f.a, &u, &f.err), f.err);
    assert_ok(ru_pass_train(&u, &f.a, &d, &f.err), f.err);
    assert_ok(ru_graph_verify(&d, &f.err), f.err);
    uint32_t roles[2] = {0, 0};
    bool used[256] = {false};
    for (uint32_t i = 1; i < d.n_nodes; i++) {
        for (uint32_t k = 0; k < d.nodes[i].n_in; k++) {
            uint32_t v = d.nodes[i].in[k].v;
            assert_true(v < RU_ARRAY_LEN(used));
            if (d.values[v].kind == RU_VALUE_STATE && d.nodes[i].op != RU_OP_Identity) {
                assert_true(!used[v] || d.values[v].type.rank == 2);
                roles[d.values[v].role == RU_ROLE_BUFFER ? 1 : 0] += used[v] ? 0 : 1;
                used[v] = true;
            }
        }
    }
    assert_int_equal(roles[1], 4);
    assert_int_equal(roles[0], 6); /* two scales, two biases, w, bias2 */
    assert_int_equal(d.n_updates, 4);
    assert_true(ru_graph_find(&d, "bias2").v != 0);
    ru_arena_fini(&f.a);
}

/* -- patterns of exporters --------------------------------------------------------------------- */

static void test_gelu_forms(void **state)
{
    (void)state;
    for (int form = 0; form < 5; form++) {
        fix f;
        fix_init(&f);
        vid x = input(&f, "x", 2, INTS(3, 4));
        vid e;
        if (form < 3) {
            vid u = form == 1 ? op2(&f, RU_OP_Mul, scalar(&f, 0.70710678F), x, NULL)
                              : op2(&f, RU_OP_Div, x, scalar(&f, 1.41421356F), NULL);
            e = op1(&f, RU_OP_Erf, u, NULL);
        } else {
            vid c = form == 3 ? op2(&f, RU_OP_Pow, x, scalar(&f, 3.0F), NULL)
                              : op2(&f, RU_OP_Mul, x, op2(&f, RU_OP_Mul, x, x, NULL), NULL);
            vid s = op2(&f, RU_OP_Add, x, op2(&f, RU_OP_Mul, scalar(&f, 0.044715F), c, NULL), NULL);
            e = op1(&f, RU_OP_Tanh, op2(&f, RU_OP_Mul, s, scalar(&f, 0.79788456F), NULL), NULL);
        }
        vid a = op2(&f, RU_OP_Add, e, scalar(&f, 1.0F), NULL);
        vid half = scalar(&f, 0.5F);
        vid y = form % 3 == 0   ? op2(&f, RU_OP_Mul, op2(&f, RU_OP_Mul, x, a, NULL), half, NULL)
                : form % 3 == 1 ? op2(&f, RU_OP_Mul, x, op2(&f, RU_OP_Mul, half, a, NULL), NULL)
                                : op2(&f, RU_OP_Mul, op2(&f, RU_OP_Mul, x, half, NULL), a, NULL);
        finish(&f, y);
        ru_graph d = fused(&f, 1e-5);
        assert_int_equal(d.n_nodes, 2);
        assert_int_equal(d.nodes[1].op, RU_OP_Gelu);
        ru_arena_fini(&f.a);
    }
}

static void test_layernorm_form(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        fix f;
        fix_init(&f);
        vid x = input(&f, "x", 3, INTS(2, 3, 4));
        vid axes = ru_build_const_i64s(&f.b, INTS(-1), 1);
        vid m = op2(&f, RU_OP_ReduceMean, x, axes, NULL);
        vid c = op2(&f, RU_OP_Sub, x, m, NULL);
        vid c2 = form == 1 ? op2(&f, RU_OP_Sub, x, m, NULL) : c; /* exporters repeat it */
        vid sq = form == 2 ? op2(&f, RU_OP_Mul, c2, c2, NULL)
                           : op2(&f, RU_OP_Pow, c2, scalar(&f, 2.0F), NULL);
        vid v =
            op2(&f, RU_OP_Add, op2(&f, RU_OP_ReduceMean, sq, axes, NULL), scalar(&f, 1e-3F), NULL);
        vid y = op2(&f, RU_OP_Div, c, op1(&f, RU_OP_Sqrt, v, NULL), NULL);
        y = op2(&f, RU_OP_Mul, y, param(&f, "g", 1, INTS(4)), NULL);
        finish(&f, op2(&f, RU_OP_Add, y, param(&f, "b", 1, INTS(4)), NULL));
        ru_graph d = fused(&f, 1e-5);
        assert_int_equal(d.n_nodes, 2);
        assert_int_equal(d.nodes[1].op, RU_OP_LayerNormalization);
        ru_arena_fini(&f.a);
    }
}

enum { B = 2, T = 3, H = 2, D = 4 };

static vid heads(fix *f, vid x, const int64_t *perm)
{
    vid r = op2(f, RU_OP_Reshape, x, ru_build_const_i64s(&f->b, INTS(B, T, H, D), 4), NULL);
    return op1(f, RU_OP_Transpose, r, A(RU_AIS(perm, perm, 4)));
}

/* k^T the way the newer exporter writes it. */
static vid transposed_by_views(fix *f, vid k)
{
    vid r = op2(f, RU_OP_Reshape, k, ru_build_const_i64s(&f->b, INTS(-1, T, D), 3), NULL);
    r = op1(f, RU_OP_Transpose, r, A(RU_AIS(perm, INTS(0, 2, 1), 3)));
    return op2(f, RU_OP_Reshape, r, ru_build_const_i64s(&f->b, INTS(B, H, D, T), 4), NULL);
}

static vid scores(fix *f, vid q, vid kt, int form)
{
    float causal[T * T];
    uint8_t above[T * T];
    for (int i = 0; i < T * T; i++) {
        above[i] = i % T > i / T ? 1 : 0;
        causal[i] = above[i] != 0 ? (form == 1 ? -INFINITY : -3.4e38F) : 0.0F;
    }
    if (form == 0) { /* scale, then Where */
        vid s = op2(f, RU_OP_Mul, op2(f, RU_OP_MatMul, q, kt, NULL), scalar(f, 0.5F), NULL);
        vid c = ru_build_const(&f->b, ru_type_make(RU_BOOL, 4, INTS(1, 1, T, T)), above);
        return op3(f, RU_OP_Where, c, scalar(f, -INFINITY), s, NULL);
    }
    vid root = scalar(f, 0.70710678F);
    q = op2(f, RU_OP_Mul, q, root, NULL);
    kt = op2(f, RU_OP_Mul, kt, root, NULL);
    vid s = op2(f, RU_OP_MatMul, q, kt, NULL);
    vid mask = ru_build_const(&f->b, ru_type_make(RU_F32, 2, INTS(T, T)), causal);
    if (form == 3) {
        mask = input(f, "mask", 4, INTS(B, 1, T, T));
    }
    return op2(f, RU_OP_Add, s, mask, NULL);
}

static void test_attention_forms(void **state)
{
    (void)state;
    for (int form = 0; form < 5; form++) {
        fix f;
        fix_init(&f);
        vid x = input(&f, "x", 3, INTS(B, T, 3 * H * D));
        vid part[3];
        ru_build_node(&f.b, RU_OP_Split, &x, 1, A(RU_AI(axis, 2)), part, 3);
        if (form == 4) { /* not packed */
            part[1] = op1(&f, RU_OP_Tanh, part[1], NULL);
        }
        vid q = heads(&f, part[0], INTS(0, 2, 1, 3));
        vid v = heads(&f, part[2], INTS(0, 2, 1, 3));
        vid kt = form == 2 ? transposed_by_views(&f, heads(&f, part[1], INTS(0, 2, 1, 3)))
                           : heads(&f, part[1], INTS(0, 2, 3, 1));
        vid p = op1(&f, RU_OP_Softmax, scores(&f, q, kt, form), A(RU_AI(axis, -1)));
        vid y = op2(&f, RU_OP_MatMul, p, v, NULL);
        y = op1(&f, RU_OP_Transpose, y, A(RU_AIS(perm, INTS(0, 2, 1, 3), 4)));
        y = op2(&f, RU_OP_Reshape, y, ru_build_const_i64s(&f.b, INTS(B, T, H * D), 3), NULL);
        finish(&f, y);
        ru_graph d = fused(&f, 1e-5);
        ru_op want = form == 4 ? RU_OP_Attention : RU_OP_AttentionQkv;
        assert_int_equal(count(&d, want), 1);
        assert_int_equal(count(&d, RU_OP_Softmax), 0);
        assert_int_equal(d.n_nodes, form == 4 ? 4 : 2);
        ru_arena_fini(&f.a);
    }
}

/* q, k, v that are already [B,H,T,D]; the output stays so. */
static void test_attention_bhtd(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid q = input(&f, "q", 4, INTS(B, H, T, D));
    vid k = input(&f, "k", 4, INTS(B, T, H, D));
    vid v = input(&f, "v", 4, INTS(B, H, T, D));
    vid kt = op1(&f, RU_OP_Transpose, k, A(RU_AIS(perm, INTS(0, 2, 3, 1), 4)));
    vid s = op2(&f, RU_OP_Div, op2(&f, RU_OP_MatMul, q, kt, NULL), scalar(&f, 2.0F), NULL);
    finish(&f, op2(&f, RU_OP_MatMul, op1(&f, RU_OP_Softmax, s, NULL), v, NULL));
    ru_graph d = fused(&f, 1e-5);
    assert_int_equal(count(&d, RU_OP_Attention), 1);
    assert_int_equal(d.n_nodes, 3);
    ru_arena_fini(&f.a);
}

/* PyTorch's encoder layer: time first, heads folded into the batch, transposes merged into one. */
static void test_attention_time_first(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid q = input(&f, "q", 4, INTS(B, H, T, D));
    vid k = input(&f, "k", 3, INTS(T, B * H, D));
    vid v = input(&f, "v", 4, INTS(B, H, T, D));
    vid kt = op1(&f, RU_OP_Transpose, k, A(RU_AIS(perm, INTS(1, 2, 0), 3)));
    kt = op2(&f, RU_OP_Reshape, kt, ru_build_const_i64s(&f.b, INTS(B, H, D, T), 4), NULL);
    vid s = op2(&f, RU_OP_MatMul, q, kt, NULL);
    finish(&f, op2(&f, RU_OP_MatMul, op1(&f, RU_OP_Softmax, s, NULL), v, NULL));
    ru_graph d = fused(&f, 1e-5);
    assert_int_equal(count(&d, RU_OP_Attention), 1);
    ru_arena_fini(&f.a);
}

/* A scale outside the mask scales the mask as well: no attention. */
static void test_attention_lookalikes(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid q = input(&f, "q", 4, INTS(B, H, T, D));
    vid k = input(&f, "k", 4, INTS(B, H, D, T));
    vid v = input(&f, "v", 4, INTS(B, H, T, D));
    vid mask = input(&f, "mask", 2, INTS(T, T));
    vid s = op2(&f, RU_OP_Add, op2(&f, RU_OP_MatMul, q, k, NULL), mask, NULL);
    s = op2(&f, RU_OP_Mul, s, scalar(&f, 0.5F), NULL);
    finish(&f, op2(&f, RU_OP_MatMul, op1(&f, RU_OP_Softmax, s, NULL), v, NULL));
    ru_graph d = fused(&f, 1e-6);
    assert_int_equal(count(&d, RU_OP_Attention), 0);
    ru_arena_fini(&f.a);
}

/* softmax(q k^T + mask) v with a mask of these sizes; `causal`: a constant that hides what is above
 * the diagonal. */
typedef struct masked {
    int64_t batch, heads, rows, keys;
    uint32_t rank;
    int64_t mask[4];
    bool causal;
    double scale; /* of the masked scores */
    uint32_t fuses;
} masked;

static vid mask_of(fix *f, const masked *c)
{
    float above[T * T];
    if (!c->causal) {
        return input(f, "mask", c->rank, c->mask);
    }
    int64_t n = c->mask[c->rank - 1];
    for (int64_t i = 0; i < n * n; i++) {
        above[i] = i % n > i / n ? -3e38F : 0.0F;
    }
    return ru_build_const(&f->b, ru_type_make(RU_F32, c->rank, c->mask), above);
}

/* A mask may have fewer sizes than the scores; one with more makes more of them, and the written
 * form stays, with its own result. */
static void test_attention_masks(void **state)
{
    (void)state;
    static const masked cases[] = {
        {B, H, T, T, 4, {B, H, T, T}, false, 1, 1}, {B, H, T, 5, 2, {T, 5}, false, 1, 1},
        {B, H, T, 5, 4, {B, 1, 1, 5}, false, 1, 1}, {B, H, T, 5, 3, {H, T, 1}, false, 1, 1},
        {B, H, T, 5, 1, {5}, false, 1, 1},          {B, H, T, 5, 4, {1, 1, 1, 1}, false, 1, 1},
        {B, H, 1, 5, 2, {T, 5}, false, 1, 0},       {B, H, 1, 5, 4, {B, 1, T, 5}, false, 1, 0},
        {1, H, T, 5, 4, {B, 1, T, 5}, false, 1, 0}, {B, 1, T, 5, 3, {H, T, 5}, false, 1, 0},
        {B, H, T, T, 2, {T, T}, true, 1, 1},        {B, H, 1, T, 2, {T, T}, true, 1, 0},
        {B, H, T, T, 2, {1, 1}, true, 1, 0},        {B, H, T, 5, 4, {1, 1, 1, 1}, true, 1, 0},
        {B, H, T, T, 2, {T, T}, true, 0.5, 1},      {B, H, T, T, 2, {T, T}, true, -0.5, 0},
        {B, H, T, T, 2, {T, T}, true, 1e-38, 0}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        const masked *c = &cases[k];
        fix f;
        fix_init(&f);
        vid q = input(&f, "q", 4, INTS(c->batch, c->heads, c->rows, D));
        vid kt = op1(&f, RU_OP_Transpose, input(&f, "k", 4, INTS(c->batch, c->heads, c->keys, D)),
                     A(RU_AIS(perm, INTS(0, 1, 3, 2), 4)));
        vid v = input(&f, "v", 4, INTS(c->batch, c->heads, c->keys, D));
        vid s = op2(&f, RU_OP_Add, op2(&f, RU_OP_MatMul, q, kt, NULL), mask_of(&f, c), NULL);
        s = op2(&f, RU_OP_Mul, s, scalar(&f, (float)c->scale), NULL);
        finish(&f, op2(&f, RU_OP_MatMul, op1(&f, RU_OP_Softmax, s, NULL), v, NULL));
        ru_graph d = fused(&f, 1e-6);
        if (count(&d, RU_OP_Attention) != c->fuses) {
            fail_msg("case %u fuses %u times, expected %u", k, count(&d, RU_OP_Attention),
                     c->fuses);
        }
        ru_arena_fini(&f.a);
    }
}

/* Keys that broadcast over heads or batch, and values of another size than keys: the written form
 * stays, with its own result. */
static void test_attention_other_sizes(void **state)
{
    (void)state;
    const int64_t *keys[] = {INTS(B, 1, T, D), INTS(1, H, T, D), INTS(B, H, T, D)};
    const int64_t *values[] = {INTS(B, 1, T, D), INTS(B, H, T, D), INTS(B, H, T, 2 * D)};
    for (uint32_t k = 0; k < 3; k++) {
        fix f;
        fix_init(&f);
        vid q = input(&f, "q", 4, INTS(B, H, T, D));
        vid kt = op1(&f, RU_OP_Transpose, input(&f, "k", 4, keys[k]),
                     A(RU_AIS(perm, INTS(0, 1, 3, 2), 4)));
        vid p = op1(&f, RU_OP_Softmax, op2(&f, RU_OP_MatMul, q, kt, NULL), NULL);
        finish(&f, op2(&f, RU_OP_MatMul, p, input(&f, "v", 4, values[k]), NULL));
        ru_graph d = fused(&f, 1e-6);
        assert_int_equal(count(&d, RU_OP_Attention), 0);
        ru_arena_fini(&f.a);
    }
}

/* -- dead, fold ------------------------------------------------------------------------------- */

static void test_fold_dead(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid x = input(&f, "x", 2, INTS(3, 4));
    vid k = op1(&f, RU_OP_Exp, konst(&f, 2, INTS(4, 4), -1, 1), NULL);
    vid a = op2(&f, RU_OP_MatMul, x, op1(&f, RU_OP_Transpose, k, NULL), NULL);
    vid s1 = op1(&f, RU_OP_Tanh, a, NULL);
    vid s2 = op1(&f, RU_OP_Tanh, a, NULL);
    (void)op1(&f, RU_OP_Sin, a, NULL);
    vid shape = op1(&f, RU_OP_Shape, s2, NULL);
    finish(&f, op2(&f, RU_OP_Reshape, op2(&f, RU_OP_Add, s1, s2, NULL), shape, NULL));
    ru_fold_ops ops = ru_ref_fold_ops();
    ru_graph d;
    assert_ok(ru_pass_fold(&f.g, &ops, 1 << 20, &f.a, &d, &f.err), f.err);
    same_results(&f, &f.g, &d, 1e-6);
    assert_int_equal(count(&d, RU_OP_Exp) + count(&d, RU_OP_Shape) + count(&d, RU_OP_Transpose), 0);
    assert_ok(ru_pass_dead(&d, &f.a, &d, &f.err), f.err);
    same_results(&f, &f.g, &d, 1e-6);
    assert_int_equal(count(&d, RU_OP_Sin), 0);
    assert_int_equal(d.n_nodes, 6);
    ru_arena_fini(&f.a);
}

/* Every allocation may fail: a pass then says RU_E_LIMIT and nothing else. */
static void test_full_arenas(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    ru_graph g;
    residual_step(&f, &g);
    static char buf[1 << 20];
    for (int which = 0; which < 5; which++) {
        bool done = false;
        for (int64_t size = 0; !done; size += size / 64 + 48) {
            assert_true(size < (int64_t)sizeof buf);
            ru_arena a;
            ru_arena_init_fixed(&a, buf, size);
            ru_graph d;
            ru_fold_ops ops = ru_ref_fold_ops();
            vid grads[1];
            vid wrt[1] = {ru_graph_find(&f.g, "w0")};
            ru_err err = {.status = RU_OK};
            ru_status st = which == 0   ? ru_pass_dead(&g, &a, &d, &err)
                           : which == 1 ? ru_pass_fold(&g, &ops, 1 << 10, &a, &d, &err)
                           : which == 2 ? ru_pass_fuse(&g, NULL, true, &a, &d, &err)
                           : which == 3
                               ? ru_pass_train(&g, &a, &d, &err)
                               : ru_graph_grad(&f.g, f.g.outputs[0], wrt, 1, &a, &d, grads, &err);
            done = st == RU_OK;
            if (!done) {
                assert_int_equal(st, RU_E_LIMIT);
            }
        }
    }
    ru_arena_fini(&f.a);
}

RU_TESTS(test_pass, cmocka_unit_test(test_activations),
         cmocka_unit_test(test_conv_residual_clip_silu), cmocka_unit_test(test_shared_values_stay),
         cmocka_unit_test(test_transposes), cmocka_unit_test(test_norm_folds_into_conv),
         cmocka_unit_test(test_training_step), cmocka_unit_test(test_train_form),
         cmocka_unit_test(test_untie), cmocka_unit_test(test_train_form_imported),
         cmocka_unit_test(test_gelu_forms), cmocka_unit_test(test_layernorm_form),
         cmocka_unit_test(test_attention_forms), cmocka_unit_test(test_attention_bhtd),
         cmocka_unit_test(test_attention_lookalikes), cmocka_unit_test(test_attention_masks),
         cmocka_unit_test(test_attention_other_sizes), cmocka_unit_test(test_attention_time_first),
         cmocka_unit_test(test_fold_dead), cmocka_unit_test(test_full_arenas))
