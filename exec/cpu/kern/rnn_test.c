/* All cells of the recurrence, forward and backward, against their definition in double and its
 * finite differences, on odd sizes and on every instruction set that this CPU has. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cpu/kern/kern.h"
#include "test/test.h"

enum { T = 3, N = 5, MOST = 99 };

/* Hidden units beyond one group of each cell. */
typedef struct layer {
    const char *name;
    ru_kern_cell cell;
    bool late, relu, peeps;
    int64_t h;
    /* of one case */
    bool reverse, given; /* h0 and c0 */
    double *pre, *r, *bias, *h0, *c0, *peep;
} layer;

static const layer layers[] = {
    {.name = "lstm", .cell = RU_CELL_LSTM, .h = 19},
    {.name = "lstm with peepholes", .cell = RU_CELL_LSTM, .peeps = true, .h = 37},
    {.name = "gru", .cell = RU_CELL_GRU, .h = 50},
    {.name = "late gru", .cell = RU_CELL_GRU, .late = true, .h = 35},
    {.name = "plain", .cell = RU_CELL_PLAIN, .h = MOST},
    {.name = "relu", .cell = RU_CELL_PLAIN, .relu = true, .h = MOST}};

enum { CASES = 4 * (int)(sizeof layers / sizeof layers[0]) };

/* -- numbers ------------------------------------------------------------------------------------
 */

static double *doubles(int64_t n, uint64_t seed)
{
    double *p = malloc(sizeof *p * (size_t)n);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = (seed * 1000003 + (uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
        p[i] = (double)((float)(x >> 44) / (float)(1 << 19) - 1.0f);
    }
    return p;
}

/* The same in single precision; NULL gives NULL. */
static float *floats(const double *x, int64_t n)
{
    float *p = x == NULL ? NULL : aligned_alloc(64, (size_t)((n * 4 + 127) / 64 * 64));
    assert_true(x == NULL || p != NULL);
    for (int64_t i = 0; x != NULL && i < n; i++) {
        p[i] = (float)x[i];
    }
    return p;
}

static float *noise(int64_t n, uint64_t seed)
{
    double *x = doubles(n, seed);
    float *p = floats(x, n);
    free(x);
    return p;
}

static layer layer_of(int c)
{
    layer l = layers[c / 4];
    int64_t g = l.cell * l.h;
    l.reverse = (c & 1) != 0;
    l.given = (c & 2) != 0;
    l.pre = doubles(T * N * g, 1);
    l.r = doubles(g * l.h, 2);
    l.bias = doubles(g + l.h, 3);
    l.h0 = l.given ? doubles(N * l.h, 4) : NULL;
    l.c0 = l.given && l.cell == RU_CELL_LSTM ? doubles(N * l.h, 5) : NULL;
    l.peep = l.peeps ? doubles(3 * l.h, 14) : NULL;
    for (int64_t i = 0; i < g * l.h; i++) {
        l.r[i] = (double)(float)(l.r[i] * 0.25);
    }
    return l;
}

static void layer_free(layer *l)
{
    free(l->pre), free(l->r), free(l->bias), free(l->h0), free(l->c0), free(l->peep);
}

static void near(double got, double want, double tol, const layer *l, const char *what,
                 const ru_kern *k)
{
    if (!(fabs(got - want) <= tol * fmax(1.0, fabs(want)))) {
        fail_msg("%s%s%s, %s on %s: %.9g, expected %.9g", l->name, l->reverse ? ", reverse" : "",
                 l->given ? ", from a state" : "", what, k->name, got, want);
    }
}

/* -- the definition -----------------------------------------------------------------------------
 */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* Row `unit` of gate q of R times x. */
static double through_r(const layer *l, int64_t q, int64_t unit, const double *x)
{
    double sum = 0.0;
    for (int64_t k = 0; k < l->h; k++) {
        sum += l->r[(q * l->h + unit) * l->h + k] * x[k];
    }
    return sum;
}

/* x and the biases of gate q; of GRU's u, W's alone. */
static double gate_in(const layer *l, int64_t q, int64_t unit, const double *pre)
{
    return pre[q * l->h + unit] + l->bias[q * l->h + unit];
}

/* What gate q sees of its unit's cell. */
static double peephole(const layer *l, int64_t q, int64_t unit, const double *c)
{
    return l->peep != NULL ? l->peep[q * l->h + unit] * c[unit] : 0.0;
}

/* One step of one row: h and c become those after it. */
static void cell_step(const layer *l, const double *pre, double *h, double *c)
{
    double to[MOST], z[MOST], r[MOST], arg[MOST];
    for (int64_t j = 0; j < l->h; j++) {
        double first = gate_in(l, 0, j, pre) + through_r(l, 0, j, h);
        if (l->cell == RU_CELL_PLAIN) {
            to[j] = l->relu ? fmax(first, 0.0) : tanh(first);
        } else if (l->cell == RU_CELL_LSTM) {
            double o = gate_in(l, 1, j, pre) + through_r(l, 1, j, h);
            double f = gate_in(l, 2, j, pre) + through_r(l, 2, j, h) + peephole(l, 2, j, c);
            double u = tanh(gate_in(l, 3, j, pre) + through_r(l, 3, j, h));
            c[j] = sigmoid(f) * c[j] + sigmoid(first + peephole(l, 0, j, c)) * u;
            to[j] = sigmoid(o + peephole(l, 1, j, c)) * tanh(c[j]);
        } else {
            z[j] = sigmoid(first);
            r[j] = sigmoid(gate_in(l, 1, j, pre) + through_r(l, 1, j, h));
            arg[j] = l->late ? h[j] : r[j] * h[j];
        }
    }
    for (int64_t j = 0; l->cell == RU_CELL_GRU && j < l->h; j++) {
        double lin = through_r(l, 2, j, arg) + l->bias[3 * l->h + j];
        double u = tanh(gate_in(l, 2, j, pre) + (l->late ? r[j] : 1.0) * lin);
        to[j] = (1.0 - z[j]) * u + z[j] * h[j];
    }
    memcpy(h, to, sizeof to[0] * (size_t)l->h);
}

/* y [T, N, h], and the last states [N, h]. */
static void define(const layer *l, double *y, double *y_h, double *y_c)
{
    int64_t h = l->h, g = l->cell * h;
    for (int64_t n = 0; n < N; n++) {
        double *hn = y_h + n * h, *cn = y_c + n * h;
        for (int64_t j = 0; j < h; j++) {
            hn[j] = l->h0 != NULL ? l->h0[n * h + j] : 0.0;
            cn[j] = l->c0 != NULL ? l->c0[n * h + j] : 0.0;
        }
        for (int64_t s = 0; s < T; s++) {
            int64_t t = l->reverse ? T - 1 - s : s;
            cell_step(l, l->pre + (t * N + n) * g, hn, cn);
            memcpy(y + (t * N + n) * h, hn, sizeof *y * (size_t)h);
        }
    }
}

/* -- the kernel ---------------------------------------------------------------------------------
 */

typedef struct bench {
    ru_kern_rnn a;
    float *r, *pre, *h0, *c0, *bias, *packed, *packed_u, *work, *scratch;
    float *y, *ws, *y_h, *y_c;
} bench;

static bench bench_of(const ru_kern *k, const layer *l)
{
    int64_t h = l->h, g = l->cell * h, early = l->cell == RU_CELL_GRU && !l->late;
    int64_t gates = early ? 2 : l->cell;
    bench b = {.r = floats(l->r, g * h),
               .pre = floats(l->pre, T * N * g),
               .h0 = floats(l->h0, N * h),
               .c0 = floats(l->c0, N * h),
               .bias = floats(l->bias, g + h),
               .packed = noise(k->rnn_pack_floats(gates, h), 6),
               .packed_u = l->cell == RU_CELL_LSTM ? floats(l->peep, 3 * h)
                                                   : noise(k->rnn_pack_floats(1, h), 7),
               .scratch = noise(96 * h, 8),
               .y = noise(T * N * h, 9),
               .ws = noise(T * N * (g + h), 10),
               .y_h = noise(N * h, 11),
               .y_c = noise(N * h, 12)};
    k->rnn_pack(gates, h, b.r, false, b.scratch, b.packed);
    if (early) {
        k->rnn_pack(1, h, b.r + 2 * h * h, false, b.scratch, b.packed_u);
    }
    b.a = (ru_kern_rnn){.cell = l->cell,
                        .t = RU_F32,
                        .reverse = l->reverse,
                        .late = l->late,
                        .relu = l->relu,
                        .steps = T,
                        .batch = N,
                        .hidden = h,
                        .pre = b.pre,
                        .ws = l->cell == RU_CELL_PLAIN ? NULL : b.ws,
                        .ws_step = N * (g + h),
                        .packed_r = b.packed,
                        .packed_u = b.packed_u,
                        .bias = b.bias,
                        .h0 = b.h0,
                        .c0 = b.c0,
                        .y = b.y,
                        .y_step = N * h,
                        .y_h = b.y_h,
                        .y_c = l->cell == RU_CELL_LSTM ? b.y_c : NULL};
    b.work = noise(k->rnn_work(&b.a, N, false), 13);
    return b;
}

static void bench_free(bench *b)
{
    free(b->r), free(b->pre), free(b->h0), free(b->c0), free(b->bias), free(b->packed);
    free(b->packed_u), free(b->work), free(b->scratch), free(b->y), free(b->ws), free(b->y_h);
    free(b->y_c);
}

static void rows_run(const ru_kern *k, bench *b, int64_t n0, int64_t n1)
{
    ru_kern_share mine = {.n0 = n0, .n1 = n1, .threads = 1, .state = b->work, .work = b->work};
    k->rnn(&b->a, &mine);
}

typedef void case_fn(const ru_kern *k, const layer *l);

static void each_case(case_fn *fn)
{
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (int c = 0; k != NULL && c < CASES; c++) {
            layer l = layer_of(c);
            fn(k, &l);
            layer_free(&l);
        }
    }
}

/* -- forward ------------------------------------------------------------------------------------
 */

static void agree_case(const ru_kern *k, const layer *l)
{
    double y[T * N * MOST], y_h[N * MOST], y_c[N * MOST];
    bench b = bench_of(k, l);
    rows_run(k, &b, 0, N);
    define(l, y, y_h, y_c);
    for (int64_t i = 0; i < T * N * l->h; i++) {
        near((double)b.y[i], y[i], 1e-5, l, "y", k);
    }
    for (int64_t i = 0; i < N * l->h; i++) {
        near((double)b.y_h[i], y_h[i], 1e-5, l, "last h", k);
        near(b.a.y_c == NULL ? 0.0 : (double)b.y_c[i], b.a.y_c == NULL ? 0.0 : y_c[i], 1e-5, l,
             "last c", k);
    }
    bench_free(&b);
}

static void cells_agree_with_their_definition(void **state)
{
    (void)state;
    each_case(agree_case);
}

/* Threads split the batch; inference keeps neither gates nor y: the same bits come out. */
static void lean_case(const ru_kern *k, const layer *l)
{
    bench one = bench_of(k, l), split = bench_of(k, l), lean = bench_of(k, l);
    size_t h = (size_t)l->h, g = (size_t)l->cell * h;
    rows_run(k, &one, 0, N);
    rows_run(k, &split, 0, 2);
    rows_run(k, &split, 2, N);
    assert_memory_equal(one.y, split.y, sizeof(float) * T * N * h);
    assert_memory_equal(one.ws, split.ws, sizeof(float) * T * N * (g + h));
    lean.a.y = NULL;
    if (l->cell == RU_CELL_LSTM) {
        lean.a.cells_only = true;
        lean.a.ws_step = 0;
    } else {
        lean.a.ws = NULL;
    }
    rows_run(k, &lean, 0, N);
    assert_memory_equal(one.y_h, split.y_h, sizeof(float) * N * h);
    assert_memory_equal(one.y_h, lean.y_h, sizeof(float) * N * h);
    assert_memory_equal(one.y_c, lean.y_c, sizeof(float) * N * h);
    bench_free(&one), bench_free(&split), bench_free(&lean);
}

static void neither_the_split_nor_what_is_kept_changes_bits(void **state)
{
    (void)state;
    each_case(lean_case);
}

/* A layer that starts with no state multiplies nothing by R in its first step. */
static void first_step_case(const ru_kern *k, const layer *l)
{
    bench b = bench_of(k, l);
    int64_t gates = l->cell == RU_CELL_GRU && !l->late ? 2 : l->cell;
    b.a.steps = 1;
    for (int64_t i = 0; i < l->cell * l->h * l->h; i++) {
        b.r[i] = NAN;
    }
    k->rnn_pack(gates, l->h, b.r, false, b.scratch, b.packed);
    if (l->cell != RU_CELL_LSTM) {
        k->rnn_pack(1, l->h, b.r, false, b.scratch, b.packed_u);
    }
    rows_run(k, &b, 0, N);
    for (int64_t i = 0; i < N * l->h; i++) {
        assert_int_equal(isnan(b.y[i]) != 0, l->given);
    }
    bench_free(&b);
}

static void a_first_step_without_a_state_reads_no_r(void **state)
{
    (void)state;
    each_case(first_step_case);
}

/* -- backward -----------------------------------------------------------------------------------
 */

typedef struct back {
    float *dy, *dy_h, *dy_c, *dg, *dl, *h_prev, *arg, *dh0, *dc0, *packed, *packed_u, *work;
} back;

static back back_run(const ru_kern *k, const layer *l, bench *b)
{
    int64_t h = l->h, g = l->cell * h;
    bool early = l->cell == RU_CELL_GRU && !l->late;
    back q = {.dy = noise(T * N * h, 20),
              .dy_h = noise(N * h, 21),
              .dy_c = noise(N * h, 22),
              .dg = noise(T * N * g, 23),
              .dl = noise(T * N * g, 24),
              .h_prev = noise(T * N * h, 25),
              .arg = noise(T * N * h, 26),
              .dh0 = noise(N * h, 27),
              .dc0 = noise(N * h, 28),
              .packed = noise(k->gemm_pack_floats(g, h), 29),
              .packed_u = noise(k->gemm_pack_floats(h, h), 30),
              .work = noise(k->rnn_work(&b->a, N, true), 31)};
    k->gemm_pack(b->r, h, 1, early ? 2 * h : g, h, q.packed);
    if (early) {
        k->gemm_pack(b->r + 2 * h * h, h, 1, h, h, q.packed_u);
    }
    ru_kern_rnn a = b->a;
    a.packed_r = q.packed;
    a.packed_u = q.packed_u;
    a.dy = q.dy;
    a.dy_h = q.dy_h;
    a.dy_c = l->cell == RU_CELL_LSTM ? q.dy_c : NULL;
    a.dg = q.dg;
    a.dl = l->cell == RU_CELL_GRU && l->late ? q.dl : NULL;
    a.h_prev = q.h_prev;
    a.arg = early ? q.arg : NULL;
    a.dh0 = q.dh0;
    a.dc0 = l->cell == RU_CELL_LSTM ? q.dc0 : NULL;
    k->rnn_grad(&a, 0, N, q.work);
    return q;
}

static void back_free(back *q)
{
    free(q->dy), free(q->dy_h), free(q->dy_c), free(q->dg), free(q->dl), free(q->h_prev);
    free(q->arg), free(q->dh0), free(q->dc0), free(q->packed), free(q->packed_u), free(q->work);
}

static double loss(const layer *l, const back *q)
{
    double y[T * N * MOST], y_h[N * MOST], y_c[N * MOST], sum = 0.0;
    define(l, y, y_h, y_c);
    for (int64_t i = 0; i < T * N * l->h; i++) {
        sum += y[i] * (double)q->dy[i];
    }
    for (int64_t i = 0; i < N * l->h; i++) {
        sum += y_h[i] * (double)q->dy_h[i];
        sum += l->cell == RU_CELL_LSTM ? y_c[i] * (double)q->dy_c[i] : 0.0;
    }
    return sum;
}

static double slope(const layer *l, const back *q, double *at)
{
    const double keep = *at, step = 1e-6;
    *at = keep + step;
    double up = loss(l, q);
    *at = keep - step;
    double down = loss(l, q);
    *at = keep;
    return (up - down) / (2 * step);
}

/* Element (unit of a gate, k) of dR, as the products after the kernel give it. */
static double grad_r(const layer *l, const back *q, int64_t gate_unit, int64_t k)
{
    bool early_u = l->cell == RU_CELL_GRU && !l->late && gate_unit >= 2 * l->h;
    const float *g = l->late ? q->dl : q->dg, *x = early_u ? q->arg : q->h_prev;
    double sum = 0.0;
    for (int64_t i = 0; i < T * N; i++) {
        sum += (double)g[i * l->cell * l->h + gate_unit] * (double)x[i * l->h + k];
    }
    return sum;
}

static void gradient_case(const ru_kern *k, const layer *l)
{
    int64_t h = l->h, g = l->cell * h;
    if (l->peeps) { /* no kernel gives their gradients */
        return;
    }
    bench b = bench_of(k, l);
    rows_run(k, &b, 0, N);
    back q = back_run(k, l, &b);
    for (int64_t i = 3; i < T * N * g; i += 211) {
        near((double)q.dg[i], slope(l, &q, &l->pre[i]), 2e-4, l, "gradient of a gate", k);
    }
    for (int64_t i = 1; i < g * h; i += 997) {
        near(grad_r(l, &q, i / h, i % h), slope(l, &q, &l->r[i]), 2e-4, l, "dR", k);
    }
    for (int64_t i = 0; l->given && i < N * h; i += 31) {
        near((double)q.dh0[i], slope(l, &q, &l->h0[i]), 2e-4, l, "dh0", k);
        if (l->c0 != NULL) {
            near((double)q.dc0[i], slope(l, &q, &l->c0[i]), 2e-4, l, "dc0", k);
        }
    }
    back_free(&q);
    bench_free(&b);
}

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    each_case(gradient_case);
}

RU_TESTS(exec_rnn, cmocka_unit_test(cells_agree_with_their_definition),
         cmocka_unit_test(neither_the_split_nor_what_is_kept_changes_bits),
         cmocka_unit_test(a_first_step_without_a_state_reads_no_r),
         cmocka_unit_test(gradients_agree_with_finite_differences))
