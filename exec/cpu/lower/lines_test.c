/* Ops along lines against the same in double by hand: every way in which lines lie, values whose
 * squares leave the range, lines of zeros, NaN and infinities. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/exe.h"
#include "test/test.h"
#include "world/graph/build.h"

enum { COUNT_MAX = 40000 };

typedef struct form {
    uint32_t rank;
    int64_t dims[4];
    int64_t axes[3];
    uint32_t n_axes; /* with more than one: no LpNormalization, no Hardmax */
} form;

static const form forms[] = {
    {2, {5, 700}, {1}, 1},        {2, {70, 7}, {1}, 1},         {2, {130, 16}, {-1}, 1},
    {2, {65, 17}, {1}, 1},        {2, {300, 7}, {0}, 1},        {2, {9, 1100}, {0}, 1},
    {3, {3, 20, 259}, {1}, 1},    {3, {4, 33, 5}, {1}, 1},      {3, {2, 500, 3}, {1}, 1},
    {1, {3001}, {0}, 1},          {2, {7, 1}, {1}, 1},          {4, {3, 5, 7, 11}, {0, 2, 3}, 3},
    {4, {2, 3, 4, 5}, {2, 3}, 2}, {3, {3, 4, 1500}, {0, 2}, 2}, {3, {6, 4, 9}, {0, 1}, 2},
    {2, {37, 41}, {0, 1}, 2},
};

static const ru_op ops[] = {RU_OP_Hardmax, RU_OP_LpNormalization, RU_OP_MeanVarianceNormalization,
                            RU_OP_ReduceLogSumExp};

static float value_at(int64_t i, uint32_t what)
{
    uint64_t u = ((uint64_t)i + 77) * 0x9E3779B97F4A7C15U;
    u = (u ^ u >> 31) * 0xBF58476D1CE4E5B9U;
    float x = (float)(u >> 40) / (float)(1 << 23) - 1.0f;
    return what == 0   ? x
           : what == 1 ? 1e25f * x
           : what == 2 ? 1e-25f * x
           : what == 3 ? 0.0f
           : what == 4 ? 1000.0f + x
           : what == 5 ? (u % 50 == 0 ? NAN : x)
                       : (u % 50 == 0   ? INFINITY
                          : u % 50 == 1 ? -INFINITY
                                        : x);
}

/* Which line element i is in. */
static int64_t line_of(const form *f, int64_t i)
{
    int64_t line = 0, step = 1;
    for (uint32_t d = f->rank; d-- > 0; i /= f->dims[d]) {
        bool gone = false;
        for (uint32_t k = 0; k < f->n_axes; k++) {
            gone = gone || (f->axes[k] + f->rank) % f->rank == d;
        }
        line += gone ? 0 : i % f->dims[d] * step;
        step *= gone ? 1 : f->dims[d];
    }
    return line;
}

/* The largest of a line, NaN above all; sums about it. */
typedef struct line {
    double n, sum, sizes, squares, around, top, exps;
    int64_t at;
} line;

static void measure(const form *f, const float *x, int64_t n, line *l)
{
    for (int64_t i = 0; i < n; i++) {
        l[i] = (line){.top = (double)-INFINITY, .at = -1};
    }
    for (int64_t i = 0; i < n; i++) {
        line *a = &l[line_of(f, i)];
        double v = (double)x[i];
        a->n += 1;
        a->sum += v;
        a->sizes += fabs(v);
        a->squares += v * v;
        if (a->at < 0 || v > a->top || (isnan(v) && !isnan(a->top))) {
            a->top = v;
            a->at = i;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        line *a = &l[line_of(f, i)];
        double d = (double)x[i] - a->sum / a->n;
        a->around += d * d;
        a->exps += exp((double)x[i] - (isinf(a->top) ? 0.0 : a->top));
    }
}

static double wanted(const line *l, ru_op op, bool l1, float x, int64_t i)
{
    double norm = l1 ? l->sizes : sqrt(l->squares);
    switch ((uint32_t)op) {
    case RU_OP_Hardmax:
        return i == l->at ? 1.0 : 0.0;
    case RU_OP_LpNormalization:
        return norm == 0.0 ? 0.0 : (double)x / norm;
    case RU_OP_MeanVarianceNormalization:
        return ((double)x - l->sum / l->n) / (sqrt(l->around / l->n) + 1e-9);
    default:
        return (isinf(l->top) ? 0.0 : l->top) + log(l->exps);
    }
}

static ru_exe *run(ru_graph *g, ru_arena *arena, const form *f, ru_op op, bool l1, const float *x,
                   ru_value_id *y, uint32_t threads)
{
    ru_build b;
    ru_err err = {0};
    ru_exe *e = NULL;
    assert_ok(ru_graph_init(g, arena, "lines", &err), err);
    ru_build_init(&b, g);
    ru_value_id in[2] = {ru_build_input(&b, "x", ru_type_make(RU_F32, f->rank, f->dims))};
    ru_attr many[] = {RU_AIS(axes, f->axes, f->n_axes), RU_A_END};
    ru_attr one[] = {RU_AI(axis, f->axes[0]), RU_AI(p, l1 ? 1 : 2), RU_A_END};
    one[1] = op == RU_OP_Hardmax ? (ru_attr)RU_A_END : one[1];
    bool reduces = op == RU_OP_ReduceLogSumExp;
    in[1] = reduces ? ru_build_const_i64s(&b, f->axes, f->n_axes) : (ru_value_id){0};
    ru_build_node(&b, op, in, reduces ? 2 : 1,
                  op == RU_OP_MeanVarianceNormalization ? many
                  : reduces                             ? NULL
                                                        : one,
                  y, 1);
    ru_build_output(&b, *y, "y");
    assert_ok(ru_build_finish(&b, &err), err);
    assert_ok(ru_exe_open(g, &(ru_exe_options){.threads = threads}, &e, &err), err);
    memcpy(ru_exe_input(e, in[0]), x, (size_t)ru_type_bytes(&g->values[in[0].v].type));
    assert_ok(ru_exe_run(e, NULL, &err), err);
    ru_exe_stats s;
    ru_exe_stats_get(e, &s);
    assert_int_equal(s.n_slow, 0);
    return e;
}

static void check(const form *f, ru_op op, bool l1, uint32_t what, uint32_t threads)
{
    static _Thread_local float x[COUNT_MAX];
    static _Thread_local line l[COUNT_MAX];
    ru_arena arena;
    ru_graph g;
    ru_value_id v;
    int64_t n = 1;
    for (uint32_t d = 0; d < f->rank; d++) {
        n *= f->dims[d];
    }
    assert_true(n <= COUNT_MAX);
    for (int64_t i = 0; i < n; i++) {
        x[i] = value_at(i, what);
    }
    measure(f, x, n, l);
    ru_arena_init(&arena, 0);
    ru_exe *e = run(&g, &arena, f, op, l1, x, &v, threads);
    const float *y = ru_exe_output(e, v);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = line_of(f, i);
        double want = wanted(&l[at], op, l1, x[i], i);
        double got = (double)y[op == RU_OP_ReduceLogSumExp ? at : i];
        /* 1000 + x has lost four digits of x before the op begins */
        double tol = (what == 4 ? 1e-3 : 2e-5) * (1.0 + fabs(want));
        if (isnan(want) ? !isnan(got) : !(got == want || fabs(got - want) <= tol)) {
            fail_msg("%s, values %u, %u threads: element %lld is %g, must be %g",
                     ru_op_get(op)->name, what, threads, (long long)i, got, want);
        }
    }
    ru_exe_close(e);
    ru_arena_fini(&arena);
}

static void lines_of_every_form(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(forms) * RU_ARRAY_LEN(ops) * 7; k++) {
        const form *f = &forms[k % RU_ARRAY_LEN(forms)];
        ru_op op = ops[k / RU_ARRAY_LEN(forms) % RU_ARRAY_LEN(ops)];
        uint32_t what = k / (RU_ARRAY_LEN(forms) * RU_ARRAY_LEN(ops));
        bool single = op == RU_OP_Hardmax || op == RU_OP_LpNormalization;
        /* squares of 1e25 leave f32 in the definition of that op too */
        bool far = op == RU_OP_MeanVarianceNormalization && (what == 1 || what == 2);
        if ((!single || f->n_axes == 1) && !far) {
            check(f, op, k % 2 == 0, what, k % 3 == 0 ? 3 : 1);
        }
    }
}

/* A group whose elements are equal has no deviation: nothing but zeros, whatever they are. */
static void equal_elements_become_zeros(void **state)
{
    (void)state;
    static float x[3000];
    static const form all[] = {{2, {3, 1000}, {1}, 1}, {2, {1000, 3}, {0}, 1}};
    for (uint32_t k = 0; k < 2; k++) {
        ru_arena arena;
        ru_graph g;
        ru_value_id v;
        for (int64_t i = 0; i < 3000; i++) {
            x[i] = 0.1f;
        }
        ru_arena_init(&arena, 0);
        ru_exe *e = run(&g, &arena, &all[k], RU_OP_MeanVarianceNormalization, false, x, &v, 1);
        const float *y = ru_exe_output(e, v);
        for (int64_t i = 0; i < 3000; i++) {
            if (!(fabsf(y[i]) < 1e-3f)) {
                fail_msg("form %u: element %lld of equal ones is %g", k, (long long)i,
                         (double)y[i]);
            }
        }
        ru_exe_close(e);
        ru_arena_fini(&arena);
    }
}

RU_TESTS(exec_lines, cmocka_unit_test(lines_of_every_form),
         cmocka_unit_test(equal_elements_become_zeros))
