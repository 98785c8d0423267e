/* The reference kernels and autodiff against PyTorch: stored outputs and gradients of single ops.
 *
 * test/oracle/ops_oracle.py makes the cases. Each builds a graph of one op, a loss that weighs its
 * outputs, and the graph of the gradient; all is evaluated in f64 and must agree to f32 rounding.
 */
#include "test/ops/ops.h"
#include "test/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "world/pass/pass.h"

typedef struct oracle_tensor {
    ru_type type;     /* dtype RU_NONE: absent */
    const void *data; /* float or int64_t */
} oracle_tensor;

typedef struct oracle_case {
    const char *name;
    ru_op op;
    ru_attr attrs[8];
    oracle_tensor in[8], out[5], weight[5], grad[8];
    uint32_t n_in, n_out;
} oracle_case;

#include "test/oracle/data/ops.inc"

/* PyTorch's doubles are stored with 9 digits; what is left is the rounding of attributes to f32. */
static const double tolerance = 2e-6;

typedef struct fixture {
    ru_arena arena;
    ru_graph g, back;
    ru_value_id in[8], out[5], loss, wrt[8], grads[8];
    uint32_t wrt_of[8], n_wrt;
    ru_tensor inputs[8];
    ru_err err;
} fixture;

static int differs(const char *name, const char *what, uint32_t k, const oracle_tensor *want,
                   const ru_tensor *got)
{
    ru_tensor w = {.type = want->type, .data = (void *)(uintptr_t)want->data};
    double most = 1e-3;
    for (int64_t i = 0; i < ops_count(&w); i++) {
        most = fmax(most, fabs(ops_get(&w, i)));
    }
    for (int64_t i = 0; i < ops_count(&w); i++) {
        double x = got->data != NULL ? ops_get(got, i) : 0.0;
        if (!(fabs(x - ops_get(&w, i)) <= tolerance * most)) {
            fprintf(stderr, "%s: %s %u element %lld is %.9g, PyTorch has %.9g\n", name, what, k,
                    (long long)i, x, ops_get(&w, i));
            return 1;
        }
    }
    return 0;
}

static void build_op(fixture *f, const oracle_case *c)
{
    ru_build b;
    uint32_t n = 0;
    assert_ok(ru_graph_init(&f->g, &f->arena, c->name, &f->err), f->err);
    ru_build_init(&b, &f->g);
    for (uint32_t k = 0; k < c->n_in; k++) {
        if (c->in[k].type.dtype != RU_NONE) {
            char name[16];
            snprintf(name, sizeof name, "in%u", k);
            f->in[k] = ru_build_input(&b, name, c->in[k].type);
            f->inputs[n].type = c->in[k].type;
            f->inputs[n++].data = (void *)(uintptr_t)c->in[k].data;
        }
        if (c->grad[k].type.dtype != RU_NONE) {
            f->wrt_of[f->n_wrt] = k;
            f->wrt[f->n_wrt++] = f->in[k];
        }
    }
    ru_build_node(&b, c->op, f->in, c->n_in, c->attrs, f->out, c->n_out);
    for (uint32_t k = 0; k < c->n_out && f->n_wrt > 0; k++) {
        const oracle_tensor *w = &c->weight[k];
        if (w->type.dtype == RU_NONE) {
            continue;
        }
        ru_value_id p =
            ru_build_op2(&b, RU_OP_Mul, f->out[k], ru_build_const(&b, w->type, w->data), NULL);
        p = ru_build_op1(&b, RU_OP_ReduceSum, p, (ru_attr[]){RU_AI(keepdims, 0), RU_A_END});
        f->loss = f->loss.v == 0 ? p : ru_build_op2(&b, RU_OP_Add, f->loss, p, NULL);
    }
    assert_ok(ru_build_finish(&b, &f->err), f->err);
}

static int run_case(const oracle_case *c)
{
    fixture *f = test_calloc(1, sizeof *f);
    int bad = 0;
    ru_arena_init(&f->arena, 0);
    build_op(f, c);
    const ru_graph *g = &f->g;
    if (f->n_wrt > 0) {
        assert_ok(
            ru_graph_grad(&f->g, f->loss, f->wrt, f->n_wrt, &f->arena, &f->back, f->grads, &f->err),
            f->err);
        g = &f->back;
    }
    ru_tensor *values = RU_NEW(&f->arena, ru_tensor, g->n_values);
    assert_ok(ops_eval(g, f->inputs, true, NULL, &f->arena, values, &f->err), f->err);
    for (uint32_t k = 0; k < c->n_out; k++) {
        bool there = c->out[k].type.dtype != RU_NONE;
        bad += there ? differs(c->name, "output", k, &c->out[k], &values[f->out[k].v]) : 0;
    }
    for (uint32_t k = 0; k < f->n_wrt; k++) {
        bad += differs(c->name, "gradient", f->wrt_of[k], &c->grad[f->wrt_of[k]],
                       &values[f->grads[k].v]);
    }
    ru_arena_fini(&f->arena);
    test_free(f);
    return bad;
}

static void test_ops_equal_pytorch(void **state)
{
    (void)state;
    int bad = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        bad += run_case(&cases[k]);
    }
    assert_int_equal(bad, 0);
}

/* -- dropout: a witness by statistics --------------------------------------------------- */

static void draw(const ru_attr *attrs, uint32_t n_attrs, const int64_t *dims,
                 const ru_run_args *args, uint8_t *mask)
{
    ru_arena arena;
    ru_err err;
    ru_arena_init(&arena, 0);
    const ru_type t = ops_type(RU_F32, 2, dims), m = ops_type(RU_U8, 2, dims);
    const ru_node n = {
        .op = RU_OP_DropoutTrain, .attrs = attrs, .n_attrs = n_attrs, .n_in = 1, .n_out = 2};
    ru_tensor in = {.type = t, .data = ru_arena_zalloc(&arena, dims[0] * dims[1] * 4, 8)};
    ru_tensor out[2] = {{.type = t, .data = ru_arena_zalloc(&arena, dims[0] * dims[1] * 4, 8)},
                        {.type = m, .data = mask}};
    const ru_ref_call call = {&n, &in, out, args, &arena};
    assert_ok(ru_ref_kernel(n.op)(&call, &err), err);
    ru_arena_fini(&arena);
}

static uint32_t draw_mask(int64_t samples, int64_t offset, int64_t step, double ratio,
                          uint8_t *mask)
{
    const ru_attr attrs[] = {RU_AF(ratio, ratio), RU_AI(stream, 5)};
    draw(attrs, 2, (int64_t[]){samples, 37},
         &(ru_run_args){.seed = 9, .step = step, .sample_offset = offset}, mask);
    uint32_t kept = 0;
    for (int64_t i = 0; i < samples * 37; i++) {
        kept += mask[i];
    }
    return kept;
}

static void draw_as(const ru_attr *attrs, uint32_t n_attrs, const int64_t *dims, int64_t offset,
                    uint8_t *mask)
{
    draw(attrs, n_attrs, dims, &(ru_run_args){.seed = 9, .step = 4, .sample_offset = offset}, mask);
}

static void test_dropout_keeps_its_share(void **state)
{
    (void)state;
    enum { SAMPLES = 400, N = SAMPLES * 37 };
    static uint8_t one[N], two[N], part[N];
    for (int r = 0; r <= 4; r++) {
        double ratio = 0.25 * r, mean = (1.0 - ratio) * N, sigma = sqrt(N * ratio * (1.0 - ratio));
        uint32_t kept = draw_mask(SAMPLES, 0, 1, ratio, one);
        assert_true(fabs((double)kept - mean) <= 5.0 * sigma);
    }
    /* Another step draws anew; half the batch elsewhere draws the same. */
    (void)draw_mask(SAMPLES, 0, 1, 0.5, one);
    (void)draw_mask(SAMPLES, 0, 2, 0.5, two);
    uint32_t same = 0;
    for (int64_t i = 0; i < N; i++) {
        same += one[i] == two[i];
    }
    assert_true(fabs((double)same - N / 2.0) <= 5.0 * sqrt(N) / 2.0);
    (void)draw_mask(SAMPLES / 2, SAMPLES / 2, 1, 0.5, part);
    assert_memory_equal(part, one + N / 2, N / 2);
}

/* A sample's mask is its own wherever its elements stand: [4 times, 3 samples, 5] against the
 * samples one after the other, and a batch without samples against itself. */
static void test_dropout_follows_the_sample(void **state)
{
    (void)state;
    uint8_t by_sample[60], by_time[60], moved[60];
    static const ru_attr first[] = {RU_AF(ratio, 0.5), RU_AI(stream, 5)};
    static const ru_attr time[] = {RU_AF(ratio, 0.5), RU_AI(stream, 5), RU_AI(samples, 3),
                                   RU_AI(inner, 5), RU_AI(start, 2)};
    static const ru_attr none[] = {RU_AF(ratio, 0.5), RU_AI(stream, 5), RU_AI(samples, 3),
                                   RU_AI(inner, 0), RU_AI(start, 2)};
    draw_as(first, 2, (int64_t[]){3, 20}, 9, by_sample);
    draw_as(time, 5, (int64_t[]){12, 5}, 7, by_time);
    for (int t = 0; t < 4; t++) {
        for (int n = 0; n < 3; n++) {
            assert_memory_equal(by_time + (t * 3 + n) * 5, by_sample + n * 20 + t * 5, 5);
        }
    }
    draw_as(none, 5, (int64_t[]){12, 5}, 0, by_time);
    draw_as(none, 5, (int64_t[]){12, 5}, 7, moved);
    assert_memory_equal(by_time, moved, 60);
}

RU_TESTS(test_ops_oracle, cmocka_unit_test(test_dropout_follows_the_sample),
         cmocka_unit_test(test_ops_equal_pytorch), cmocka_unit_test(test_dropout_keeps_its_share))
