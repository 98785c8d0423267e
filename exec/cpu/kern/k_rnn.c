/* The recurrent part of LSTM, GRU and the plain layer, forward and backward, for a range of the
 * batch.
 *
 * The inputs times W for all time steps are one large product made before; here, step by step and
 * group by group of hidden units, h R^T follows with R packed once, and the gates of the group take
 * both while they are in L1. Rows of the batch are independent in time, so threads split the batch
 * and never wait for each other; only when there are fewer rows than threads do threads split the
 * hidden units, and meet after each step.
 *
 *   LSTM   i, o, f = s(x + h R + b)   c~ = tanh(..)   c' = f c + i c~   h' = o tanh(c')
 *          with peepholes p also p c in i and f, p c' in o. They come as packed_u [3, hidden] of
 *          i, o, f; NULL: none
 *   GRU    z = s(xz + h Rz + ..)   r = s(xr + h Rr + ..)   u = tanh(xu + r * lin)
 *          h' = (1 - z) u + z h
 *          lin = h Ru + b ("linear before reset": late), or u = tanh(xu + (r * h) Ru + b) (early)
 *   plain  h' = tanh or ReLU of x + h R + b
 *
 * Workspace row of (t, n): LSTM [i | o | f | c~ | c], GRU [z | r | u | lin], each `hidden` long,
 * gates after activation. Where no gradient follows LSTM keeps c alone, and only of the step
 * before. */
#include "exec/cpu/kern/isa.h"
#include "exec/pool.h"

/* Units of a group of LSTM; columns of any other group, all its gates together. */
enum { LSTM_UNITS = 16, GROUP = 96 };

typedef struct rnn_step {
    const ru_kern_share *mine;
    int64_t s, t, before; /* step, its time, the time of the step before */
    int64_t n0, rows;
    int64_t j0, j1;    /* units of this thread */
    const float *from; /* h of the step before, padded(hidden) in a row */
    const uint16_t *from_bf16;
    float *h;       /* h of this step, likewise */
    float *z, *arg; /* early: z and r * h, which are computed first */
    float *rec, *work;
} rnn_step;

static bool is_early(const ru_kern_rnn *a)
{
    return a->cell == RU_CELL_GRU && !a->late;
}

/* Rows of state and of gates' gradients stand a little more than a power of two apart, or the rows
 * of a product's tile would all fall into the same sets of L1. */
static int64_t padded(int64_t n)
{
    return n + 16;
}

static int64_t group_units(int64_t gates)
{
    return gates == RU_CELL_LSTM ? LSTM_UNITS : GROUP / gates;
}

static float *ws_row(const ru_kern_rnn *a, int64_t t, int64_t n)
{
    return a->ws + t * a->ws_step + n * (a->cells_only ? 1 : a->cell + 1) * a->hidden;
}

/* Cell states of (t, n). */
static float *cells(const ru_kern_rnn *a, int64_t t, int64_t n)
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

int64_t RUI_K(rui_kern_rnn_work)(const ru_kern_rnn *a, int64_t rows, bool grad)
{
    int64_t h = a->hidden, g = a->cell * h, one = a->cell * group_units(a->cell);
    int64_t back = a->cell == RU_CELL_GRU ? h + 2 * padded(g) : 2 * h + padded(g);
    return RUI_K(rui_kern_gemm_work)(rows, g, g) +
           rows * (grad ? back : (is_early(a) ? 4 : 2) * padded(h) + one);
}

/* What x gives (t, n) before activation. */
static const float *input_row(const ru_kern_rnn *a, int64_t t, int64_t n)
{
    int64_t at = t * a->batch + n;
    if (a->pre != NULL) {
        return a->pre + at * a->cell * a->hidden;
    }
    int64_t id = a->it == RU_I64 ? ((const int64_t *)a->ids)[a->ids_step * t + a->ids_row * n]
                                 : ((const int32_t *)a->ids)[a->ids_step * t + a->ids_row * n];
    id += id < 0 ? a->vocabulary : 0;
    return a->table + id * a->cell * a->hidden;
}

/* rec = from R^T of one group with all its gates. Where no state is given, nothing is multiplied by
 * R in the first step, whatever R holds. */
static void recur(const ru_kern_rnn *a, const rnn_step *p, const float *from, const float *packed,
                  int64_t gates, int64_t group)
{
    int64_t h = a->hidden, n = gates * group_units(gates);
    int64_t used = gates == 1 ? kv_min_i64(n, h - group * n) : n; /* of one gate zeros come last */
    int64_t at = group * RUI_K(rui_kern_gemm_pack_floats)(h, n);
    if (p->s == 0 && a->h0 == NULL) {
        memset(p->rec, 0, sizeof(float) * (size_t)(p->rows * n));
        return;
    }
    if (a->packed_bf16 != NULL) {
        RUI_K(rui_kern_gemm_bf16)
        (p->rows, n, h, p->from_bf16, h, a->packed_bf16 + at, p->rec, n, false);
        return;
    }
    ru_kern_gemm g = {.m = p->rows,
                      .n = used,
                      .k = h,
                      .packed_n = n,
                      .a = from,
                      .a_row = padded(h),
                      .a_col = 1,
                      .packed_b = packed + at,
                      .c = p->rec,
                      .c_row = n,
                      .alpha = 1.0f,
                      .thin = a->batch == 1,
                      .work = p->work};
    RUI_K(rui_kern_gemm)(&g);
}

/* -- LSTM forward --------------------------------------------------------------------------------
 */

typedef struct lstm_gates {
    int64_t step; /* from one gate to the next in x, g and bias */
    const float *x, *bias;
    const float *peep;   /* NULL: none */
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

/* The same with peepholes: the output gate waits for the new cell state. */
RU_KERN_INLINE void activate_peep(const lstm_gates *a, const int64_t n)
{
    static const float zeros[LSTM_UNITS];
    const float *x = a->x, *b = a->bias, *p = a->peep;
    const float *before = a->c_prev != NULL ? a->c_prev : zeros;
    const int64_t s = a->step;
    float *v = a->act;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float i = x[j] + v[j] + b[j], f = x[j + 2 * s] + v[j + 2 * LSTM_UNITS] + b[j + 2 * s];
        v[j] = kv_gate(i + p[j] * before[j]);
        v[j + LSTM_UNITS] += x[j + s] + b[j + s];
        v[j + 2 * LSTM_UNITS] = kv_gate(f + p[j + 2 * s] * before[j]);
        v[j + 3 * LSTM_UNITS] = kv_tanh(x[j + 3 * s] + v[j + 3 * LSTM_UNITS] + b[j + 3 * s]);
    }
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float c = v[j] * v[j + 3 * LSTM_UNITS] + v[j + 2 * LSTM_UNITS] * before[j];
        v[j + LSTM_UNITS] = kv_gate(v[j + LSTM_UNITS] + p[j + s] * c);
    }
}

/* Rows of x lie far apart: ask for what the group's gates will read while the product runs. */
static void ask_for_inputs(const ru_kern_rnn *a, const rnn_step *p, int64_t j)
{
    for (int64_t i = 0; i < p->rows; i++) {
        const float *x = input_row(a, p->t, p->n0 + i) + j;
        for (int64_t q = 0; q < 4; q++) {
            __builtin_prefetch(x + q * a->hidden, 0, 2);
        }
    }
}

/* Row `i` of the batch, units from `j`. */
RU_KERN_INLINE lstm_gates gates_of(const ru_kern_rnn *a, const rnn_step *p, int64_t i, int64_t j)
{
    int64_t h = a->hidden, n = p->n0 + i;
    return (lstm_gates){.step = h,
                        .x = input_row(a, p->t, n) + j,
                        .bias = a->bias + j,
                        .peep = a->packed_u == NULL ? NULL : a->packed_u + j,
                        .c_prev = p->s > 0 ? cells(a, p->before, n) + j
                                           : (a->c0 == NULL ? NULL : a->c0 + n * h + j),
                        .act = p->rec + i * 4 * LSTM_UNITS,
                        .g = a->cells_only ? NULL : ws_row(a, p->t, n) + j,
                        .c = cells(a, p->t, n) + j,
                        .h = p->h + i * padded(h) + j};
}

static void lstm_step(const ru_kern_rnn *a, const rnn_step *p)
{
    for (int64_t j = p->j0, group = j / LSTM_UNITS; j < p->j1; j += LSTM_UNITS, group++) {
        ask_for_inputs(a, p, j);
        recur(a, p, p->from, a->packed_r, RU_CELL_LSTM, group);
        int64_t n = kv_min_i64(LSTM_UNITS, p->j1 - j);
        for (int64_t i = 0; i < p->rows; i++) {
            lstm_gates g = gates_of(a, p, i, j);
            if (g.peep != NULL) {
                activate_peep(&g, n);
            } else if (RU_LIKELY(n == LSTM_UNITS)) {
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
}

/* -- GRU forward ---------------------------------------------------------------------------------
 */

/* Units j .. j + n of row i: u and h' from z, r * lin (or lin of r * h) and x. */
static void finish(const ru_kern_rnn *a, const rnn_step *p, int64_t i, int64_t j, int64_t n,
                   const float *z, const float *r, const float *lin)
{
    int64_t h = a->hidden, row = p->n0 + i;
    const float *x = input_row(a, p->t, row) + 2 * h + j;
    const float *bx = a->bias + 2 * h + j, *br = a->bias + 3 * h + j;
    const float *before = p->from + i * padded(h) + j;
    float *to = p->h + i * padded(h) + j, u[GROUP], l[GROUP];
    float *w = a->ws == NULL ? NULL : ws_row(a, p->t, row) + j;
    bool late = a->late;
    if (w != NULL) { /* r may be gone after the loop */
        memcpy(w, z, sizeof(float) * (size_t)n);
        memcpy(w + h, r, sizeof(float) * (size_t)n);
    }
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        l[k] = lin[k] + br[k];
        u[k] = x[k] + bx[k] + l[k] * (late ? r[k] : 1.0f);
    }
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        u[k] = kv_tanh(u[k]);
    }
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        to[k] = (1.0f - z[k]) * u[k] + z[k] * before[k];
    }
    if (w != NULL) {
        memcpy(w + 2 * h, u, sizeof(float) * (size_t)n);
        memcpy(w + 3 * h, l, sizeof(float) * (size_t)n);
    }
}

/* z and r of units j .. j + n of row i, into the first two parts of its rec row. */
static void open_gates(const ru_kern_rnn *a, const rnn_step *p, int64_t i, int64_t j, int64_t n,
                       int64_t units)
{
    int64_t h = a->hidden;
    const float *x = input_row(a, p->t, p->n0 + i) + j, *b = a->bias + j;
    float *v = p->rec + i * GROUP;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        v[k] = kv_gate(x[k] + v[k] + b[k]);
        v[k + units] = kv_gate(x[k + h] + v[k + units] + b[k + h]);
    }
}

/* All gates of 32 units at a time. */
static void late_step(const ru_kern_rnn *a, const rnn_step *p)
{
    enum { UNITS = GROUP / 3 };
    for (int64_t j = p->j0, g = j / UNITS; j < p->j1; j += UNITS, g++) {
        int64_t n = kv_min_i64(UNITS, p->j1 - j);
        recur(a, p, p->from, a->packed_r, RU_CELL_GRU, g);
        for (int64_t i = 0; i < p->rows; i++) {
            open_gates(a, p, i, j, n, UNITS);
        }
        for (int64_t i = 0; i < p->rows; i++) {
            const float *v = p->rec + i * GROUP;
            finish(a, p, i, j, n, v, v + UNITS, v + 2 * UNITS);
        }
    }
}

/* z, r and r * h of all units first, 48 at a time, then the rest, 96 at a time. */
static void early_step(const ru_kern_rnn *a, const rnn_step *p)
{
    enum { UNITS = GROUP / 2 };
    float *r = p->h; /* a unit's r is read before its h is written */
    int64_t ld = padded(a->hidden), j0, j1;
    ru_pool_split(a->hidden, UNITS, p->mine->thread, p->mine->threads, &j0, &j1);
    for (int64_t j = j0, g = j / UNITS; j < j1; j += UNITS, g++) {
        int64_t n = kv_min_i64(UNITS, j1 - j);
        recur(a, p, p->from, a->packed_r, 2, g);
        for (int64_t i = 0; i < p->rows; i++) {
            open_gates(a, p, i, j, n, UNITS);
            const float *v = p->rec + i * GROUP, *before = p->from + i * ld + j;
            float *arg = p->arg + i * ld + j;
            memcpy(p->z + i * ld + j, v, sizeof(float) * (size_t)n);
            memcpy(r + i * ld + j, v + UNITS, sizeof(float) * (size_t)n);
#pragma omp simd
            for (int64_t k = 0; k < n; k++) {
                arg[k] = v[k + UNITS] * before[k];
            }
        }
    }
    kv_meet(p->mine);
    for (int64_t j = p->j0, g = j / GROUP; j < p->j1; j += GROUP, g++) {
        recur(a, p, p->arg, a->packed_u, 1, g);
        for (int64_t i = 0; i < p->rows; i++) {
            finish(a, p, i, j, kv_min_i64(GROUP, p->j1 - j), p->z + i * ld + j, r + i * ld + j,
                   p->rec + i * GROUP);
        }
    }
}

/* -- plain layer forward -------------------------------------------------------------------------
 */

static void plain_step(const ru_kern_rnn *a, const rnn_step *p)
{
    int64_t h = a->hidden;
    for (int64_t j = p->j0, g = j / GROUP; j < p->j1; j += GROUP, g++) {
        int64_t n = kv_min_i64(GROUP, p->j1 - j);
        recur(a, p, p->from, a->packed_r, RU_CELL_PLAIN, g);
        for (int64_t i = 0; i < p->rows; i++) {
            const float *x = input_row(a, p->t, p->n0 + i) + j, *b = a->bias + j;
            const float *v = p->rec + i * GROUP;
            float *to = p->h + i * padded(h) + j;
            bool relu = a->relu;
#pragma omp simd
            for (int64_t k = 0; k < n; k++) {
                float sum = x[k] + v[k] + b[k];
                to[k] = relu ? kv_max(sum, 0.0f) : kv_tanh(sum);
            }
        }
    }
}

/* -- all steps -----------------------------------------------------------------------------------
 */

/* h0, or zeros, into the state before the first step. */
static void begin(const ru_kern_rnn *a, const rnn_step *p, float *state)
{
    int64_t h = a->hidden;
    memset(state, 0, sizeof(float) * (size_t)(p->rows * padded(h)));
    for (int64_t i = 0; a->h0 != NULL && i < p->rows; i++) {
        const float *from = a->h0 + (p->n0 + i) * h;
        if (a->packed_bf16 != NULL) {
            kv_narrow(from, (uint16_t *)(void *)state + i * h, h);
        } else {
            memcpy(state + i * padded(h), from, sizeof(float) * (size_t)h);
        }
    }
}

static void advance_all(const ru_kern_rnn *a, const rnn_step *p)
{
    switch (a->cell) {
    case RU_CELL_LSTM:
        lstm_step(a, p);
        break;
    case RU_CELL_GRU:
        (a->late ? late_step : early_step)(a, p);
        break;
    case RU_CELL_PLAIN:
        plain_step(a, p);
        break;
    }
    int64_t h = a->hidden;
    for (int64_t i = 0; a->y != NULL && i < p->rows; i++) {
        put(a->t, a->y, p->t * a->y_step + (p->n0 + i) * h + p->j0, p->h + i * padded(h) + p->j0,
            p->j1 - p->j0);
    }
}

void RUI_K(rui_kern_rnn)(const ru_kern_rnn *a, const ru_kern_share *mine)
{
    int64_t h = a->hidden, n0 = mine->n0, rows = mine->n1 - n0, ld = padded(h), size = rows * ld;
    float *state[2] = {mine->state, mine->state + size}; /* h of two steps, in turns */
    float *z = is_early(a) ? mine->state + 2 * size : NULL, *rec = mine->work + 2 * size;
    rec += z != NULL ? 2 * size : 0;
    rnn_step p = {.mine = mine,
                  .n0 = n0,
                  .rows = rows,
                  .z = z,
                  .arg = z != NULL ? z + size : NULL,
                  .rec = rec,
                  .work = rec + rows * a->cell * group_units(a->cell)};
    RU_CHECK(mine->threads == 1 || (mine->wait != NULL && mine->thread < mine->threads));
    RU_CHECK(a->packed_bf16 == NULL || a->y != NULL);
    ru_pool_split(h, is_early(a) ? GROUP : group_units(a->cell), mine->thread, mine->threads, &p.j0,
                  &p.j1);
    if (mine->thread == 0) {
        begin(a, &p, state[1]);
    }
    kv_meet(mine);
    for (int64_t s = 0; s < a->steps; s++) {
        p.s = s;
        p.t = a->reverse ? a->steps - 1 - s : s;
        p.before = a->reverse ? p.t + 1 : p.t - 1;
        p.from = state[(s + 1) % 2];
        p.from_bf16 = (const uint16_t *)(const void *)state[1];
        if (s > 0 && a->packed_bf16 != NULL) {
            p.from_bf16 = (const uint16_t *)a->y + p.before * a->y_step + n0 * h;
        }
        p.h = state[s % 2];
        advance_all(a, &p);
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

typedef struct rnn_back {
    int64_t s, t, before, n0, rows;
    float *dh, *dc; /* gradients of the state after the step, then before it; `hidden` in a row */
    float *dg, *dl; /* of the gates before activation, as W and as R see them; padded in a row */
    float *work;
} rnn_back;

/* Gates' gradients before activation into dg[4n]; dc becomes the gradient of the step before. */
static void lstm_grad(const float *g, const float *c_prev, const float *dh, float *dc, float *dg,
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

/* h of the step before as the product for dR wants it. */
static void put_h_prev(const ru_kern_rnn *a, const rnn_back *b, int64_t n)
{
    int64_t h = a->hidden, to = (b->t * a->batch + n) * h;
    int64_t bytes = ru_dtype_bytes(a->t);
    char *out = (char *)a->h_prev + to * bytes;
    if (b->s > 0) {
        memcpy(out, (const char *)a->y + (b->before * a->y_step + n * h) * bytes,
               (size_t)(h * bytes));
    } else if (a->h0 != NULL) {
        put(a->t, a->h_prev, to, a->h0 + n * h, h);
    } else {
        memset(out, 0, (size_t)(h * bytes));
    }
}

/* Gradients before activation: dg = [dz | dr | du]; dh becomes its direct share. For late reset
 * also dl = [dz | dr | dlin]; for early reset dr follows later. */
static void gru_grad(const ru_kern_rnn *a, const float *w, const float *hp, float *dh, float *dg,
                     float *dl)
{
    int64_t h = a->hidden;
    const float *z = w, *r = w + h, *u = w + 2 * h, *lin = w + 3 * h;
    bool late = a->late;
#pragma omp simd
    for (int64_t j = 0; j < h; j++) {
        float d = dh[j];
        float du = d * (1.0f - z[j]) * (1.0f - u[j] * u[j]);
        float dz = d * (hp[j] - u[j]) * z[j] * (1.0f - z[j]);
        float dr = late ? du * lin[j] * r[j] * (1.0f - r[j]) : 0.0f;
        dg[j] = dz;
        dg[j + h] = dr;
        dg[j + 2 * h] = du;
        dl[j] = dz;
        dl[j + h] = dr;
        dl[j + 2 * h] = du * r[j];
        dh[j] = d * z[j];
    }
}

/* Early reset: darg = du Ru has arrived; dr and its share of dh follow. */
static void reset_grad(int64_t h, const float *r, const float *hp, const float *darg, float *dh,
                       float *dr)
{
#pragma omp simd
    for (int64_t j = 0; j < h; j++) {
        dr[j] = darg[j] * hp[j] * r[j] * (1.0f - r[j]);
        dh[j] += darg[j] * r[j];
    }
}

/* Gradients of the gates of row `i`, and what multiplied R. */
static void row_grad(const ru_kern_rnn *a, const rnn_back *b, int64_t i)
{
    int64_t h = a->hidden, n = b->n0 + i, at = b->t * a->batch + n, ld = padded(a->cell * h);
    float *dh = b->dh + i * h, *dg = b->dg + i * ld;
    if (a->dy != NULL) {
        add_row(a->t, a->dy, b->t * a->y_step + n * h, dh, h);
    }
    put_h_prev(a, b, n);
    if (a->cell == RU_CELL_LSTM) {
        const float *c0 = a->c0 == NULL ? NULL : a->c0 + n * h;
        lstm_grad(ws_row(a, b->t, n), b->s > 0 ? cells(a, b->before, n) : c0, dh, b->dc + i * h, dg,
                  h);
        return;
    }
    const float *hp = (const float *)a->h_prev + at * h;
    if (a->cell == RU_CELL_GRU) {
        const float *w = ws_row(a, b->t, n);
        gru_grad(a, w, hp, dh, dg, b->dl + i * ld);
        for (int64_t j = 0; a->arg != NULL && j < h; j++) {
            a->arg[at * h + j] = w[h + j] * hp[j];
        }
        return;
    }
    const float *y = (const float *)a->y + b->t * a->y_step + n * h;
    bool relu = a->relu;
    for (int64_t j = 0; j < h; j++) {
        dg[j] = relu ? (y[j] > 0.0f ? dh[j] : 0.0f) : dh[j] * (1.0f - y[j] * y[j]);
    }
}

/* c = or += columns `from` .. `from` + k of a gradient times the rows of R that are packed. */
static void back_product(const ru_kern_rnn *a, const rnn_back *b, const float *from, int64_t k,
                         const float *packed, float *c, int64_t c_row, bool add)
{
    ru_kern_gemm g = {.m = b->rows,
                      .n = a->hidden,
                      .k = k,
                      .a = from,
                      .a_row = padded(a->cell * a->hidden),
                      .a_col = 1,
                      .packed_b = packed,
                      .c = c,
                      .c_row = c_row,
                      .alpha = 1.0f,
                      .add = add,
                      .work = b->work};
    RUI_K(rui_kern_gemm)(&g);
}

static void back_step(const ru_kern_rnn *a, const rnn_back *b)
{
    int64_t h = a->hidden, g = a->cell * h, ld = padded(g), at = b->t * a->batch + b->n0;
    bool early = is_early(a);
    for (int64_t i = 0; i < b->rows; i++) {
        row_grad(a, b, i);
        if (!early) {
            put(a->t, a->dg, (at + i) * g, b->dg + i * ld, g);
        }
        if (a->dl != NULL) {
            memcpy(a->dl + (at + i) * g, b->dl + i * ld, sizeof(float) * (size_t)g);
        }
    }
    if (a->packed_bf16 != NULL) {
        const uint16_t *from = (const uint16_t *)a->dg + at * g;
        RUI_K(rui_kern_gemm_bf16)(b->rows, h, g, from, g, a->packed_bf16, b->dh, h, false);
    } else if (!early) {
        bool gru = a->cell == RU_CELL_GRU; /* dh has a share that passed R by */
        back_product(a, b, gru ? b->dl : b->dg, g, a->packed_r, b->dh, h, gru);
    } else {
        back_product(a, b, b->dg + 2 * h, h, a->packed_u, b->dl, ld, false);
        for (int64_t i = 0; i < b->rows; i++) {
            float *dg = b->dg + i * ld;
            reset_grad(h, ws_row(a, b->t, b->n0 + i) + h, (const float *)a->h_prev + (at + i) * h,
                       b->dl + i * ld, b->dh + i * h, dg + h);
            put(a->t, a->dg, (at + i) * g, dg, g);
        }
        back_product(a, b, b->dg, 2 * h, a->packed_r, b->dh, h, true);
    }
}

/* `from`, or zeros where it is NULL. */
static void rows_in(float *to, const float *from, int64_t count)
{
    if (from != NULL) {
        memcpy(to, from, sizeof(float) * (size_t)count);
    } else {
        memset(to, 0, sizeof(float) * (size_t)count);
    }
}

void RUI_K(rui_kern_rnn_grad)(const ru_kern_rnn *a, int64_t n0, int64_t n1, float *work)
{
    int64_t h = a->hidden, rows = n1 - n0, all = rows * h, gates = rows * padded(a->cell * h);
    rnn_back b = {.n0 = n0, .rows = rows, .dh = work, .dc = work + all};
    bool lstm = a->cell == RU_CELL_LSTM;
    b.dg = b.dh + (a->cell == RU_CELL_GRU ? all : 2 * all);
    b.dl = b.dg + gates;
    b.work = a->cell == RU_CELL_GRU ? b.dl + gates : b.dl;
    rows_in(b.dh, a->dy_h == NULL ? NULL : a->dy_h + n0 * h, all);
    if (lstm) {
        rows_in(b.dc, a->dy_c == NULL ? NULL : a->dy_c + n0 * h, all);
    }
    for (b.s = a->steps - 1; b.s >= 0; b.s--) {
        b.t = a->reverse ? a->steps - 1 - b.s : b.s;
        b.before = a->reverse ? b.t + 1 : b.t - 1;
        back_step(a, &b);
    }
    if (a->dh0 != NULL) {
        memcpy(a->dh0 + n0 * h, b.dh, sizeof(float) * (size_t)all);
    }
    if (a->dc0 != NULL) {
        memcpy(a->dc0 + n0 * h, b.dc, sizeof(float) * (size_t)all);
    }
}
