/* Shape inference: symbolic dimensions, followed integers, window sizes against counting, binding.
 * Concrete shapes of every op are checked by the ONNX node vectors
 * (test/ops/onnx_conformance_test.c).
 */
#include "world/graph/build.h"

#include "test/test.h"

#include <stdio.h>
#include <string.h>

typedef ru_value_id vid;

#define A(...)    ((const ru_attr[]){__VA_ARGS__, RU_A_END})
#define INTS(...) ((const int64_t[]){__VA_ARGS__})

typedef struct fix {
    ru_arena a;
    ru_graph g;
    ru_build b;
    ru_err err;
    int64_t n, t; /* symbols N and T */
} fix;

static void fix_init(fix *f)
{
    uint32_t s;
    ru_arena_init(&f->a, 0);
    assert_ok(ru_graph_init(&f->g, &f->a, "test", &f->err), f->err);
    assert_ok(ru_graph_symbol(&f->g, "N", &s, &f->err), f->err);
    f->n = ru_dim_symbol(s, 1);
    assert_ok(ru_graph_symbol(&f->g, "T", &s, &f->err), f->err);
    f->t = ru_dim_symbol(s, 1);
    ru_build_init(&f->b, &f->g);
}

static vid input(fix *f, ru_dtype dtype, uint32_t rank, const int64_t *dims)
{
    return ru_build_input(&f->b, NULL, ru_type_make(dtype, rank, dims));
}

static vid ints(fix *f, uint32_t n, const int64_t *xs)
{
    return ru_build_const_i64s(&f->b, xs, n);
}

static vid op1(fix *f, ru_op op, vid x, const ru_attr *a)
{
    return ru_build_op1(&f->b, op, x, a);
}

static vid op2(fix *f, ru_op op, vid x, vid y, const ru_attr *a)
{
    return ru_build_op2(&f->b, op, x, y, a);
}

static void expect(fix *f, vid v, const char *want)
{
    char got[256];
    if (f->b.status != RU_OK) {
        fail_msg("%s", f->b.err.text);
    }
    assert_string_equal(ru_type_print(&f->g, &f->g.values[v.v].type, got, sizeof got), want);
}

/* -- symbols ----------------------------------------------------------------------------------- */

static void test_symbolic_shapes(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid x = input(&f, RU_F32, 3, INTS(f.n, f.t, 8));
    expect(&f, op2(&f, RU_OP_Reshape, x, ints(&f, 2, INTS(-1, 8)), NULL), "f32[N*T,8]");
    expect(&f, op2(&f, RU_OP_Reshape, x, ints(&f, 4, INTS(0, 0, 2, -1)), NULL), "f32[N,T,2,4]");
    expect(&f, op2(&f, RU_OP_Reshape, x, ints(&f, 1, INTS(-1)), NULL), "f32[8*N*T]");
    expect(&f, op1(&f, RU_OP_Flatten, x, NULL), "f32[N,8*T]");
    expect(&f, op1(&f, RU_OP_Transpose, x, A(RU_AIS(perm, INTS(2, 0, 1), 3))), "f32[8,N,T]");
    vid c[2] = {x, x};
    vid y;
    ru_build_node(&f.b, RU_OP_Concat, c, 2, A(RU_AI(axis, 0)), &y, 1);
    expect(&f, y, "f32[2*N,T,8]");
    c[1] = input(&f, RU_F32, 3, INTS(f.n, 3, 8));
    ru_build_node(&f.b, RU_OP_Concat, c, 2, A(RU_AI(axis, 1)), &y, 1);
    expect(&f, y, "f32[N,(T+3),8]");
    vid image = input(&f, RU_F32, 4, INTS(f.n, 3, f.t, 32));
    vid w = input(&f, RU_F32, 4, INTS(6, 3, 3, 3));
    y = op2(&f, RU_OP_Conv, image, w,
            A(RU_AIS(strides, INTS(2, 2), 2), RU_AIS(pads, INTS(1, 1, 1, 1), 4)));
    vid z = op2(&f, RU_OP_Conv, image, w,
                A(RU_AIS(strides, INTS(2, 2), 2), RU_AIS(pads, INTS(1, 1, 1, 1), 4)));
    expect(&f, op2(&f, RU_OP_Add, y, z, NULL), "f32[N,6,(((T-1)/2)+1),16]");
    vid m = op2(&f, RU_OP_MatMul, x, input(&f, RU_F32, 2, INTS(8, 5)), NULL);
    expect(&f, m, "f32[N,T,5]");
    expect(&f, op2(&f, RU_OP_MatMul, x, m, A(RU_AI(transA, 1))), "f32[N,8,5]");
    ru_arena_fini(&f.a);
}

/* Models may name a dimension like a product of ours. */
static void test_foreign_names(void **state)
{
    (void)state;
    fix f;
    uint32_t s;
    fix_init(&f);
    assert_ok(ru_graph_symbol(&f.g, "4*batch", &s, &f.err), f.err);
    vid x = input(&f, RU_F32, 2, INTS(ru_dim_symbol(s, 1), 6));
    expect(&f, op2(&f, RU_OP_Reshape, x, ints(&f, 3, INTS(-1, 2, 3)), NULL), "f32[4*batch,2,3]");
    assert_ok(ru_graph_symbol(&f.g, "*", &s, &f.err), f.err);
    x = input(&f, RU_F32, 2, INTS(ru_dim_symbol(s, 1), 6));
    expect(&f, op1(&f, RU_OP_Flatten, x, A(RU_AI(axis, 2))), "f32[6**,1]");
    ru_arena_fini(&f.a);
}

/* [Shape(x)[0], -1], prefixes of positions, halves of widths: what exporters compute. */
static void test_followed_integers(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid x = input(&f, RU_F32, 3, INTS(f.n, f.t, 8));
    vid s = op1(&f, RU_OP_Shape, x, NULL);
    vid n = op2(&f, RU_OP_Gather, s, ints(&f, 1, INTS(0)), NULL);
    vid in[3] = {n, ints(&f, 1, INTS(-1))};
    vid to;
    ru_build_node(&f.b, RU_OP_Concat, in, 2, A(RU_AI(axis, 0)), &to, 1);
    expect(&f, op2(&f, RU_OP_Reshape, x, to, NULL), "f32[N,8*T]");
    int64_t two = 2;
    vid width = op2(&f, RU_OP_Gather, s, ru_build_const(&f.b, ru_type_scalar(RU_I64), &two), NULL);
    vid half = op2(&f, RU_OP_Div, width, ru_build_const(&f.b, ru_type_scalar(RU_I64), &two), NULL);
    vid halves = op2(&f, RU_OP_Unsqueeze, half, ints(&f, 1, INTS(0)), NULL);
    vid cut;
    ru_build_node(&f.b, RU_OP_Slice,
                  (vid[]){x, ints(&f, 1, INTS(0)), halves, ints(&f, 1, INTS(-1))}, 4, NULL, &cut,
                  1);
    expect(&f, cut, "f32[N,T,4]");
    vid steps = op2(&f, RU_OP_Gather, s, ints(&f, 1, INTS(1)), NULL);
    vid scalar = op2(&f, RU_OP_Squeeze, steps, ints(&f, 1, INTS(0)), NULL);
    int64_t zero = 0;
    int64_t one = 1;
    vid r = ru_build_op3(&f.b, RU_OP_Range, ru_build_const(&f.b, ru_type_scalar(RU_I64), &zero),
                         scalar, ru_build_const(&f.b, ru_type_scalar(RU_I64), &one), NULL);
    expect(&f, r, "i64[T]");
    ru_arena_fini(&f.a);
}

/* Rows of a constant without elements: the shape is inferred, the elements stay unknown. */
static void test_rows_of_nothing(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid none = ints(&f, 0, NULL);
    vid rows = op2(&f, RU_OP_Gather, none, ints(&f, 1, INTS(0)), NULL);
    expect(&f, rows, "i64[1]");
    assert_null(f.g.values[rows.v].known);
    ru_arena_fini(&f.a);
}

static void expect_inner(fix *f, vid v, int64_t want)
{
    const int64_t *inner = ru_graph_samples(&f->g, ru_dim_sym(f->n), &f->a);
    assert_non_null(inner);
    if (inner[v.v] != want) {
        char type[128];
        fail_msg("%s: inner is %lld, expected %lld",
                 ru_type_print(&f->g, &f->g.values[v.v].type, type, sizeof type),
                 (long long)inner[v.v], (long long)want);
    }
}

/* Where samples stand, through what PyTorch's MultiheadAttention exports: time first, heads folded
 * into the batch. The numbers are those of the index formulas in the comments. */
static void test_samples(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid x = input(&f, RU_F32, 3, INTS(f.n, 5, 8));
    vid w = input(&f, RU_F32, 2, INTS(8, 8));
    expect_inner(&f, x, 40); /* n * 40 + ... */
    expect_inner(&f, w, RU_SAMPLES_NONE);
    vid rows = op2(&f, RU_OP_Reshape, x, ints(&f, 2, INTS(-1, 8)), NULL);
    rows = op2(&f, RU_OP_MatMul, rows, w, NULL);
    expect_inner(&f, rows, 40); /* [N*5, 8] */
    vid t = op1(&f, RU_OP_Transpose, x, A(RU_AIS(perm, INTS(1, 0, 2), 3)));
    expect_inner(&f, t, 8); /* [5, N, 8]: (t * N + n) * 8 */
    vid flat =
        op2(&f, RU_OP_MatMul, op2(&f, RU_OP_Reshape, t, ints(&f, 2, INTS(-1, 8)), NULL), w, NULL);
    expect_inner(&f, flat, 8); /* [5*N, 8] */
    vid heads = op2(&f, RU_OP_Reshape, flat, ints(&f, 3, INTS(5, -1, 4)), NULL);
    expect_inner(&f, heads, 8); /* [5, N*2, 4]: ((t * N + n) * 2 + h) * 4 */
    vid q = op1(&f, RU_OP_Transpose, heads, A(RU_AIS(perm, INTS(1, 0, 2), 3)));
    expect_inner(&f, q, 40); /* [N*2, 5, 4]: (n * 2 + h) * 20 */
    vid k = op1(&f, RU_OP_Transpose, heads, A(RU_AIS(perm, INTS(1, 2, 0), 3)));
    vid p = op1(&f, RU_OP_Softmax, op2(&f, RU_OP_MatMul, q, k, NULL), A(RU_AI(axis, -1)));
    expect_inner(&f, p, 50); /* [N*2, 5, 5]: (n * 2 + h) * 25 */
    vid y = op2(&f, RU_OP_MatMul, p, q, NULL);
    y = op1(&f, RU_OP_Transpose, y, A(RU_AIS(perm, INTS(1, 0, 2), 3)));
    expect_inner(&f, y, 8);
    vid both;
    ru_build_node(&f.b, RU_OP_Concat, (vid[]){x, x}, 2, A(RU_AI(axis, 0)), &both, 1);
    expect_inner(&f, both, RU_SAMPLES_UNKNOWN);
    vid across = op2(
        &f, RU_OP_MatMul, op2(&f, RU_OP_Reshape, x, ints(&f, 2, INTS(-1, 40)), NULL),
        op1(&f, RU_OP_Transpose, op2(&f, RU_OP_Reshape, x, ints(&f, 2, INTS(-1, 40)), NULL), NULL),
        NULL);
    expect_inner(&f, across, RU_SAMPLES_UNKNOWN); /* [N, N] */
    ru_arena_fini(&f.a);
}

/* Infer with symbols and then put numbers in, or bind and infer: the same types. */
static void test_bind_commutes(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid x = input(&f, RU_F32, 4, INTS(f.n, 3, f.t, 12));
    vid w = input(&f, RU_F32, 4, INTS(4, 3, 3, 3));
    vid y = op2(&f, RU_OP_Conv, x, w, A(RU_AIS(pads, INTS(1, 1, 1, 1), 4)));
    y = op1(&f, RU_OP_MaxPool, y,
            A(RU_AIS(kernel_shape, INTS(2, 2), 2), RU_AIS(strides, INTS(2, 2), 2)));
    vid s = op1(&f, RU_OP_Shape, y, NULL);
    vid n = op2(&f, RU_OP_Gather, s, ints(&f, 1, INTS(0)), NULL);
    vid to;
    ru_build_node(&f.b, RU_OP_Concat, (vid[]){n, ints(&f, 1, INTS(-1))}, 2, A(RU_AI(axis, 0)), &to,
                  1);
    y = op2(&f, RU_OP_Reshape, y, to, NULL);
    ru_build_output(&f.b, y, "y");
    assert_ok(ru_build_finish(&f.b, &f.err), f.err);
    ru_graph b;
    ru_graph c;
    assert_ok(ru_graph_bind(&f.g, ru_dim_sym(f.n), 5, &f.a, &b, &f.err), f.err);
    assert_ok(ru_graph_bind(&b, ru_dim_sym(f.t), 9, &f.a, &c, &f.err), f.err);
    char got[128];
    assert_string_equal(ru_type_print(&c, &c.values[y.v].type, got, sizeof got), "f32[5,96]");
    for (uint32_t i = 1; i < c.n_nodes; i++) {
        assert_true(ru_type_is_concrete(&c.values[c.nodes[i].out[0].v].type));
    }
    assert_true(ru_graph_hash(&b) != ru_graph_hash(&c));
    ru_arena_fini(&f.a);
}

/* -- windows against counting ------------------------------------------------------------------ */

/* Places where a window of k (dilated) fits into in + pads, every `s`; with ceil, one more place
 * while it starts inside the input or its left pad. */
static int64_t count_windows(int64_t in, int64_t k, int64_t s, int64_t d, int64_t lo, int64_t hi,
                             bool ceil)
{
    int64_t eff = (k - 1) * d + 1;
    int64_t n = 0;
    for (int64_t at = -lo; at + eff <= in + hi; at += s) {
        n++;
    }
    int64_t at = -lo + n * s;
    bool more = at < in + hi && at + eff > in + hi && (in + lo + hi - eff) % s != 0;
    return ceil && more && at < in ? n + 1 : n;
}

/* Does one of `n` windows hold nothing but padding? */
static bool empty_window(int64_t in, int64_t k, int64_t s, int64_t d, int64_t lo, int64_t n)
{
    bool empty = false;
    for (int64_t o = 0; o < n; o++) {
        bool held = false;
        for (int64_t t = 0; t < k; t++) {
            int64_t at = o * s - lo + t * d;
            held = held || (at >= 0 && at < in);
        }
        empty = empty || !held;
    }
    return empty;
}

static void test_windows_by_counting(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++) {
        int64_t v[7];
        uint32_t r = (uint32_t)i * 2654435761U;
        static const int64_t mod[7] = {9, 4, 3, 2, 3, 3, 2};
        for (int k = 0; k < 7; k++) {
            r = r * 1664525U + 1013904223U;
            v[k] = (int64_t)(r >> 16) % mod[k] + (k < 4 ? 1 : 0);
        }
        int64_t eff = (v[1] - 1) * v[3] + 1;
        if (v[4] >= v[1] || v[5] >= v[1] || v[0] + v[4] + v[5] < eff) {
            continue;
        }
        fix f;
        fix_init(&f);
        vid x = input(&f, RU_F32, 3, INTS(1, 1, v[0]));
        vid y = op1(&f, RU_OP_MaxPool, x,
                    A(RU_AIS(kernel_shape, &v[1], 1), RU_AIS(strides, &v[2], 1),
                      RU_AIS(dilations, &v[3], 1), RU_AIS(pads, &v[4], 2), RU_AI(ceil_mode, v[6])));
        int64_t want = count_windows(v[0], v[1], v[2], v[3], v[4], v[5], v[6] != 0);
        bool empty = empty_window(v[0], v[1], v[2], v[3], v[4], want);
        assert_int_equal(f.b.status, empty ? RU_E_DATA : RU_OK);
        if (!empty && f.g.values[y.v].type.dims[2] != want) {
            fail_msg("in %d k %d s %d d %d pads %d %d ceil %d: %d, counted %d", (int)v[0],
                     (int)v[1], (int)v[2], (int)v[3], (int)v[4], (int)v[5], (int)v[6],
                     (int)f.g.values[y.v].type.dims[2], (int)want);
        }
        ru_arena_fini(&f.a);
    }
}

/* -- Slice against a loop ---------------------------------------------------------------------- */

/* Python's range over slice indices, element by element. */
static int64_t slice_by_loop(int64_t dim, int64_t start, int64_t end, int64_t step)
{
    int64_t n = 0;
    int64_t s = start < 0 ? start + dim : start;
    int64_t e = end < 0 ? end + dim : end;
    int64_t low = step > 0 ? 0 : -1;
    int64_t high = step > 0 ? dim : dim - 1;
    s = s < low ? low : s > high ? high : s;
    e = e < low ? low : e > high ? high : e;
    s = s < 0 && step > 0 ? 0 : s;
    for (int64_t i = s; step > 0 ? i < e : i > e; i += step) {
        n++;
    }
    return n;
}

static void test_slices_exhaustive(void **state)
{
    (void)state;
    fix f;
    for (int64_t dim = 0; dim < 5; dim++) {
        for (int64_t start = -dim; start <= dim + 1; start++) {
            for (int64_t end = -dim - 2; end <= dim + 2; end++) {
                for (int64_t step = -3; step <= 3; step++) {
                    if (step == 0) {
                        continue;
                    }
                    fix_init(&f);
                    vid in[5] = {input(&f, RU_F32, 1, &dim), ints(&f, 1, &start), ints(&f, 1, &end),
                                 ints(&f, 1, INTS(0)), ints(&f, 1, &step)};
                    vid y;
                    ru_build_node(&f.b, RU_OP_Slice, in, 5, NULL, &y, 1);
                    assert_int_equal(f.b.status, RU_OK);
                    assert_int_equal(f.g.values[y.v].type.dims[0],
                                     slice_by_loop(dim, start, end, step));
                    ru_arena_fini(&f.a);
                }
            }
        }
    }
}

/* -- sentences --------------------------------------------------------------------------------- */

static void refuse(fix *f, const char *want)
{
    assert_int_equal(f->b.status, RU_E_DATA);
    if (strstr(f->b.err.text, want) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", f->b.err.text, want);
    }
    ru_arena_fini(&f->a);
}

static void test_sentences(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    (void)op2(&f, RU_OP_Add, input(&f, RU_F32, 2, INTS(2, 3)), input(&f, RU_F32, 1, INTS(4)), NULL);
    refuse(&f, "node 1 (Add of f32[2,3], f32[4]): shapes do not broadcast: axis 1");
    fix_init(&f);
    (void)op2(&f, RU_OP_Add, input(&f, RU_F32, 1, INTS(4)), input(&f, RU_F64, 1, INTS(4)), NULL);
    refuse(&f, "input 1 'B' is f64[4], expected f32");
    fix_init(&f);
    (void)op2(&f, RU_OP_Reshape, input(&f, RU_F32, 2, INTS(2, 3)), ints(&f, 2, INTS(4, -1)), NULL);
    refuse(&f, "6 elements cannot be divided by 4");
    fix_init(&f);
    (void)op2(&f, RU_OP_Conv, input(&f, RU_F32, 4, INTS(1, 3, 4, 4)),
              input(&f, RU_F32, 4, INTS(6, 2, 3, 3)), NULL);
    refuse(&f, "channels do not match the weights in 1 groups");
    fix_init(&f);
    (void)op1(&f, RU_OP_MaxPool, input(&f, RU_F32, 3, INTS(1, 1, 3)),
              A(RU_AIS(kernel_shape, INTS(5), 1)));
    refuse(&f, "the window of 5 is larger than axis 2 of 3");
    fix_init(&f);
    (void)op2(&f, RU_OP_Einsum, input(&f, RU_F32, 2, INTS(2, 3)), input(&f, RU_F32, 2, INTS(4, 5)),
              A(RU_AS(equation, "ij,jk->ik")));
    refuse(&f, "stands for sizes 3 and 4");
    fix_init(&f);
    (void)op1(&f, RU_OP_Softmax, (vid){0}, NULL);
    refuse(&f, "input 0 'input' is absent");
    fix_init(&f);
    (void)op2(&f, RU_OP_DequantizeLinear, input(&f, RU_I8, 2, INTS(3, 4)),
              input(&f, RU_F32, 1, INTS(5)), NULL);
    refuse(&f, "5 scales and 5 zero points do not fit the data");
}

static void test_flops(void **state)
{
    (void)state;
    fix f;
    fix_init(&f);
    vid x = input(&f, RU_F32, 4, INTS(2, 8, 10, 10));
    (void)op2(&f, RU_OP_Conv, x, input(&f, RU_F32, 4, INTS(16, 2, 3, 3)), A(RU_AI(group, 4)));
    /* 2 * outputs * (channels of a group * kernel) */
    assert_int_equal(ru_node_flops(&f.g, &f.g.nodes[1]), 2 * (2 * 16 * 8 * 8) * (2 * 9));
    (void)op2(&f, RU_OP_MatMul, input(&f, RU_F32, 3, INTS(5, 7, 6)),
              input(&f, RU_F32, 2, INTS(6, 4)), NULL);
    assert_int_equal(ru_node_flops(&f.g, &f.g.nodes[2]), 2 * 5 * 7 * 6 * 4);
    ru_arena_fini(&f.a);
}

RU_TESTS(world_infer, cmocka_unit_test(test_symbolic_shapes),
         cmocka_unit_test(test_followed_integers), cmocka_unit_test(test_foreign_names),
         cmocka_unit_test(test_samples), cmocka_unit_test(test_rows_of_nothing),
         cmocka_unit_test(test_bind_commutes), cmocka_unit_test(test_windows_by_counting),
         cmocka_unit_test(test_slices_exhaustive), cmocka_unit_test(test_sentences),
         cmocka_unit_test(test_flops))
