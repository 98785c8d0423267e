/* The recurrent part of LSTM, forward and backward, for a range of the batch.
 *
 * The inputs times W for all time steps are one large product made before; here, step by step and
 * group by group of hidden units, h R^T follows with R packed once, and the gates of the group take
 * both while they are in L1. Rows of the batch are independent in time, so threads split the batch
 * and never wait for each other; only when there are fewer rows than threads do threads split the
 * hidden units, and meet after each step.
 *
 * Workspace row of (t, n): [i | o | f | c~ | c], each `hidden` long, gates after activation. Where
 * no gradient follows only c is kept, and only of the step before. */
#include "exec/cpu/kern/isa.h"
#include "exec/pool.h"

enum { LSTM_UNITS = 16 };

static float *ws_row(const ru_kern_lstm *a, int64_t t, int64_t n)
{
    return a->ws + t * a->ws_step + n * (a->cells_only ? 1 : 5) * a->hidden;
}

/* Cell states of (t, n). */
static float *cells(const ru_kern_lstm *a, int64_t t, int64_t n)
{
    return ws_row(a, t, n) + (a->cells_only ? 0 : 4 * a->hidden);
}

static void put(ru_dtype t, void *y, int64_t at, const float *x, int64_t n)
{
    if (t == RU_F32) {
        memcpy((float *)y + at, x, sizeof(float) * (size_t)n);
    } else {
        kv_narrow(x, (uint16_t *)y + at, n);
    }
}

/* -- packed recurrent weights --------------------------------------------------------------------
 *
 * Units stand in groups, all gates of a group side by side, so that one small product gives all
 * that the gates of the group need, and it is still in L1 when they do. */

static int64_t group_units(int64_t gates)
{
    return gates == 4 ? LSTM_UNITS : 96 / gates;
}

int64_t RUI_K(rui_kern_rnn_pack_floats)(int64_t gates, int64_t hidden)
{
    int64_t units = group_units(gates), groups = (hidden + units - 1) / units;
    return groups * RUI_K(rui_kern_gemm_pack_floats)(hidden, gates * units);
}

void RUI_K(rui_kern_rnn_pack)(int64_t gates, int64_t hidden, const float *r, bool pairs,
                              float *work, void *packed)
{
    int64_t units = group_units(gates), n = gates * units;
    int64_t step = RUI_K(rui_kern_gemm_pack_floats)(hidden, n);
    for (int64_t j = 0, g = 0; j < hidden; j += units, g++) {
        int64_t w = kv_min_i64(units, hidden - j);
        for (int64_t q = 0; q < gates; q++) {
            float *to = work + q * units * hidden;
            memcpy(to, r + (q * hidden + j) * hidden, sizeof(float) * (size_t)(w * hidden));
            memset(to + w * hidden, 0, sizeof(float) * (size_t)((units - w) * hidden));
        }
        if (pairs) {
            RUI_K(rui_kern_gemm_bf16_pack)
            (work, 1, hidden, hidden, n, (uint16_t *)packed + g * step);
        } else {
            RUI_K(rui_kern_gemm_pack)(work, 1, hidden, hidden, n, (float *)packed + g * step);
        }
    }
}

/* -- forward -------------------------------------------------------------------------------------
 */

typedef struct lstm_gates {
    int64_t step; /* from one gate to the next in x, g and bias */
    const float *x, *bias;
    const float *c_prev; /* NULL: zero */
    float *act;          /* in: h R^T, out: gates after activation; LSTM_UNITS apart */
    float *g, *c, *h;    /* g: gates to keep, or NULL */
} lstm_gates;

/* The two halves of a cell step run over all rows one after the other: many short chains of
 * dependent instructions, instead of one long chain a row. */
RU_KERN_INLINE void activate(const lstm_gates *a, const int64_t n)
{
    const float *x = a->x, *b = a->bias;
    const int64_t s = a->step;
    float *v = a->act;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        v[j] = kv_gate(x[j] + v[j] + b[j]);
        v[j + LSTM_UNITS] = kv_gate(x[j + s] + v[j + LSTM_UNITS] + b[j + s]);
        v[j + 2 * LSTM_UNITS] = kv_gate(x[j + 2 * s] + v[j + 2 * LSTM_UNITS] + b[j + 2 * s]);
        v[j + 3 * LSTM_UNITS] = kv_tanh(x[j + 3 * s] + v[j + 3 * LSTM_UNITS] + b[j + 3 * s]);
    }
}

RU_KERN_INLINE void advance(const lstm_gates *a, const int64_t n)
{
    const float *gi = a->act, *go = gi + LSTM_UNITS, *gf = go + LSTM_UNITS, *gu = gf + LSTM_UNITS;
    float *c = a->c, *h = a->h;
    if (a->c_prev != NULL) {
        const float *before = a->c_prev;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            c[j] = gi[j] * gu[j] + gf[j] * before[j];
            h[j] = go[j] * kv_tanh(c[j]);
        }
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            c[j] = gi[j] * gu[j];
            h[j] = go[j] * kv_tanh(c[j]);
        }
    }
    for (int64_t q = 0; a->g != NULL && q < 4; q++) {
        memcpy(a->g + q * a->step, a->act + q * LSTM_UNITS, sizeof(float) * (size_t)n);
    }
}

/* Rows of state and of gates' gradients stand a little more than a power of two apart, or the rows
 * of a product's tile would all fall into the same sets of L1. */
static int64_t padded(int64_t n)
{
    return n + 16;
}

int64_t RUI_K(rui_kern_lstm_work)(const ru_kern_lstm *a, int64_t rows, bool grad)
{
    int64_t h = a->hidden;
    int64_t gemm = RUI_K(rui_kern_gemm_work)(rows, 4 * h, 4 * h);
    return gemm + (grad ? rows * (2 * h + padded(4 * h)) : rows * (2 * padded(h) + 4 * LSTM_UNITS));
}

/* What x gives (t, n) before activation. */
static const float *input_row(const ru_kern_lstm *a, int64_t t, int64_t n)
{
    int64_t at = t * a->batch + n;
    if (a->pre != NULL) {
        return a->pre + at * 4 * a->hidden;
    }
    int64_t id = a->it == RU_I64 ? ((const int64_t *)a->ids)[a->ids_step * t + a->ids_row * n]
                                 : ((const int32_t *)a->ids)[a->ids_step * t + a->ids_row * n];
    id += id < 0 ? a->vocabulary : 0;
    return a->table + id * 4 * a->hidden;
}

typedef struct lstm_step {
    int64_t s, t, before; /* step, its time, the time of the step before */
    int64_t n0, rows;
    int64_t j0, j1;    /* units of this thread */
    const float *from; /* h of the step before, padded(hidden) in a row */
    const uint16_t *from_bf16;
    float *h; /* h of this step, likewise */
    float *rec, *work;
} lstm_step;

/* rec = h R^T of one group. */
static void recur(const ru_kern_lstm *a, const lstm_step *p, int64_t group)
{
    int64_t h = a->hidden, n = 4 * LSTM_UNITS;
    int64_t at = group * RUI_K(rui_kern_gemm_pack_floats)(h, n);
    if (a->packed_bf16 != NULL) {
        RUI_K(rui_kern_gemm_bf16)
        (p->rows, n, h, p->from_bf16, h, a->packed_bf16 + at, p->rec, n, false);
        return;
    }
    ru_kern_gemm g = {.m = p->rows,
                      .n = n,
                      .k = h,
                      .a = p->from,
                      .a_row = padded(h),
                      .a_col = 1,
                      .packed_b = a->packed_r + at,
                      .c = p->rec,
                      .c_row = n,
                      .alpha = 1.0f,
                      .thin = a->batch == 1,
                      .work = p->work};
    RUI_K(rui_kern_gemm)(&g);
}

/* Rows of x lie far apart: ask for what the group's gates will read while the product runs. */
static void ask_for_inputs(const ru_kern_lstm *a, const lstm_step *p, int64_t j)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const float *x = input_row(a, p->t, p->n0 + i) + j;
        for (int64_t q = 0; q < 4; q++) {
            __builtin_prefetch(x + q * a->hidden, 0, 2);
        }
    }
}

/* Row `i` of the batch, units from `j`. */
RU_KERN_INLINE lstm_gates gates_of(const ru_kern_lstm *a, const lstm_step *p, int64_t i, int64_t j)
{
    int64_t h = a->hidden, n = p->n0 + i;
    return (lstm_gates){.step = h,
                        .x = input_row(a, p->t, n) + j,
                        .bias = a->bias + j,
                        .c_prev = p->s > 0 ? cells(a, p->before, n) + j
                                           : (a->c0 == NULL ? NULL : a->c0 + n * h + j),
                        .act = p->rec + i * 4 * LSTM_UNITS,
                        .g = a->cells_only ? NULL : ws_row(a, p->t, n) + j,
                        .c = cells(a, p->t, n) + j,
                        .h = p->h + i * padded(h) + j};
}

static void forward_step(const ru_kern_lstm *a, const lstm_step *p)
{
    int64_t h = a->hidden;
    bool recurs = p->s > 0 || a->h0 != NULL;
    for (int64_t j = p->j0, group = j / LSTM_UNITS; j < p->j1; j += LSTM_UNITS, group++) {
        ask_for_inputs(a, p, j);
        if (recurs) {
            recur(a, p, group);
        } else {
            memset(p->rec, 0, sizeof(float) * (size_t)(p->rows * 4 * LSTM_UNITS));
        }
        int64_t n = kv_min_i64(LSTM_UNITS, p->j1 - j);
        for (int64_t i = 0; i < p->rows; i++) {
            lstm_gates g = gates_of(a, p, i, j);
            if (RU_LIKELY(n == LSTM_UNITS)) {
                activate(&g, LSTM_UNITS);
            } else {
                activate(&g, n);
            }
        }
        for (int64_t i = 0; i < p->rows; i++) {
            lstm_gates g = gates_of(a, p, i, j);
            if (RU_LIKELY(n == LSTM_UNITS)) {
                advance(&g, LSTM_UNITS);
            } else {
                advance(&g, n);
            }
        }
    }
    for (int64_t i = 0; i < p->rows; i++) {
        put(a->t, a->y, p->t * a->y_step + (p->n0 + i) * h + p->j0, p->h + i * padded(h) + p->j0,
            p->j1 - p->j0);
    }
}

/* h0 into the state before the first step. */
static void begin(const ru_kern_lstm *a, const lstm_step *p, float *state, uint16_t *first)
{
    int64_t h = a->hidden;
    for (int64_t i = 0; a->h0 != NULL && i < p->rows; i++) {
        const float *from = a->h0 + (p->n0 + i) * h;
        if (a->packed_bf16 != NULL) {
            kv_narrow(from, first + i * h, h);
        } else {
            memcpy(state + i * padded(h), from, sizeof(float) * (size_t)h);
        }
    }
}

void RUI_K(rui_kern_lstm)(const ru_kern_lstm *a, const ru_kern_share *mine)
{
    int64_t h = a->hidden, n0 = mine->n0, rows = mine->n1 - n0, ld = padded(h);
    float *state[2] = {mine->state, mine->state + rows * ld}; /* h of two steps, in turns */
    float *rec = mine->work + 2 * rows * ld;
    lstm_step p = {.n0 = n0, .rows = rows, .rec = rec, .work = rec + rows * 4 * LSTM_UNITS};
    uint16_t *first = (uint16_t *)(void *)state[1]; /* h0 as bf16 */
    RU_CHECK(mine->threads == 1 || (mine->wait != NULL && mine->thread < mine->threads));
    ru_pool_split(h, LSTM_UNITS, mine->thread, mine->threads, &p.j0, &p.j1);
    if (mine->thread == 0) {
        begin(a, &p, state[1], first);
    }
    kv_meet(mine);
    for (int64_t s = 0; s < a->steps; s++) {
        p.s = s;
        p.t = a->reverse ? a->steps - 1 - s : s;
        p.before = a->reverse ? p.t + 1 : p.t - 1;
        p.from = state[(s + 1) % 2];
        p.from_bf16 = s > 0 ? (const uint16_t *)a->y + p.before * a->y_step + n0 * h : first;
        p.h = state[s % 2];
        forward_step(a, &p);
        kv_meet(mine);
    }
    int64_t last = a->reverse ? 0 : a->steps - 1;
    for (int64_t i = 0; mine->thread == 0 && i < rows; i++) {
        if (a->y_h != NULL) {
            memcpy(a->y_h + (n0 + i) * h, p.h + i * ld, sizeof(float) * (size_t)h);
        }
        if (a->y_c != NULL) {
            memcpy(a->y_c + (n0 + i) * h, cells(a, last, n0 + i), sizeof(float) * (size_t)h);
        }
    }
}

/* -- backward ------------------------------------------------------------------------------------
 */

/* Gates' gradients before activation into dg[4n]; dc becomes the gradient of the step before. */
static void gates_grad(const float *g, const float *c_prev, const float *dh, float *dc, float *dg,
                       int64_t n)
{
    const float *gi = g, *go = g + n, *gf = g + 2 * n, *gu = g + 3 * n, *c = g + 4 * n;
    float *di = dg, *dout = dg + n, *df = dg + 2 * n, *du = dg + 3 * n;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float i = gi[j], o = go[j], f = gf[j], u = gu[j];
        float th = kv_tanh(c[j]);
        float d = dc[j] + dh[j] * o * (1.0f - th * th);
        float prev = c_prev != NULL ? c_prev[j] : 0.0f;
        dout[j] = dh[j] * th * o * (1.0f - o);
        di[j] = d * u * i * (1.0f - i);
        df[j] = d * prev * f * (1.0f - f);
        du[j] = d * i * (1.0f - u * u);
        dc[j] = d * f;
    }
}

static void add_row(ru_dtype t, const void *x, int64_t at, float *y, int64_t n)
{
    if (t == RU_F32) {
        const float *s = (const float *)x + at;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            y[j] += s[j];
        }
    } else {
        const uint16_t *s = (const uint16_t *)x + at;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            y[j] += kv_from_bf16(s[j]);
        }
    }
}

/* h of the step before `t` as the product for dR wants it. */
static void put_h_prev(const ru_kern_lstm *a, int64_t s, int64_t t, int64_t before, int64_t n)
{
    int64_t h = a->hidden, to = (t * a->batch + n) * h;
    int64_t bytes = ru_dtype_bytes(a->t);
    char *out = (char *)a->h_prev + to * bytes;
    if (s > 0) {
        memcpy(out, (const char *)a->y + (before * a->y_step + n * h) * bytes, (size_t)(h * bytes));
    } else if (a->h0 != NULL) {
        put(a->t, a->h_prev, to, a->h0 + n * h, h);
    } else {
        memset(out, 0, (size_t)(h * bytes));
    }
}

void RUI_K(rui_kern_lstm_grad)(const ru_kern_lstm *a, int64_t n0, int64_t n1, float *work)
{
    int64_t h = a->hidden, rows = n1 - n0;
    int64_t ld = padded(4 * h);
    float *dh = work, *dc = dh + rows * h, *dg = dc + rows * h, *gemm_work = dg + rows * ld;
    memset(work, 0, sizeof(float) * (size_t)(2 * rows * h));
    for (int64_t i = 0; i < rows; i++) {
        if (a->dy_h != NULL) {
            memcpy(dh + i * h, a->dy_h + (n0 + i) * h, sizeof(float) * (size_t)h);
        }
        if (a->dy_c != NULL) {
            memcpy(dc + i * h, a->dy_c + (n0 + i) * h, sizeof(float) * (size_t)h);
        }
    }
    for (int64_t s = a->steps - 1; s >= 0; s--) {
        int64_t t = a->reverse ? a->steps - 1 - s : s, before = a->reverse ? t + 1 : t - 1;
        for (int64_t i = 0; i < rows; i++) {
            const float *c_prev =
                s > 0 ? cells(a, before, n0 + i) : (a->c0 == NULL ? NULL : a->c0 + (n0 + i) * h);
            if (a->dy != NULL) {
                add_row(a->t, a->dy, t * a->y_step + (n0 + i) * h, dh + i * h, h);
            }
            gates_grad(ws_row(a, t, n0 + i), c_prev, dh + i * h, dc + i * h, dg + i * ld, h);
            put(a->t, a->dg, (t * a->batch + n0 + i) * 4 * h, dg + i * ld, 4 * h);
            put_h_prev(a, s, t, before, n0 + i);
        }
        if (a->packed_bf16 != NULL) {
            const uint16_t *from = (const uint16_t *)a->dg + (t * a->batch + n0) * 4 * h;
            RUI_K(rui_kern_gemm_bf16)(rows, h, 4 * h, from, 4 * h, a->packed_bf16, dh, h, false);
        } else {
            ru_kern_gemm g = {.m = rows,
                              .n = h,
                              .k = 4 * h,
                              .a = dg,
                              .a_row = ld,
                              .a_col = 1,
                              .packed_b = a->packed_r,
                              .c = dh,
                              .c_row = h,
                              .alpha = 1.0f,
                              .work = gemm_work};
            RUI_K(rui_kern_gemm)(&g);
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        if (a->dh0 != NULL) {
            memcpy(a->dh0 + (n0 + i) * h, dh + i * h, sizeof(float) * (size_t)h);
        }
        if (a->dc0 != NULL) {
            memcpy(a->dc0 + (n0 + i) * h, dc + i * h, sizeof(float) * (size_t)h);
        }
    }
}
