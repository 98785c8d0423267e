/* The recurrent part of GRU and of the plain recurrent layer, forward and backward, for a range of
 * the batch: like LSTM (k_rnn.c), group by group of hidden units.
 *
 *   z = s(xz + h Rz + ..)   r = s(xr + h Rr + ..)   u = tanh(xu + r * lin)   h' = (1 - z) u + z h
 *   lin = h Ru + b ("linear before reset"), or u = tanh(xu + (r * h) Ru + b)
 *
 * Workspace row of (t, n): [z | r | u | lin], each `hidden` long. */
#include "exec/cpu/kern/isa.h"
#include "exec/pool.h"

enum { GRU_WIDE = 96 }; /* columns of a group, all its gates together */

typedef struct gru_step {
    int64_t t, n0, rows;
    const ru_kern_share *mine;
    const float *from;  /* h of the step before, padded(hidden) in a row */
    float *h, *z, *arg; /* of this step; z and r * h where they are computed first */
    float *rec, *work;
} gru_step;

static int64_t padded(int64_t n)
{
    return n + 16;
}

/* This thread's units, in whole groups. */
static void units_of(const ru_kern_gru *a, const gru_step *p, int64_t group, int64_t *j0,
                     int64_t *j1)
{
    ru_pool_split(a->hidden, group, p->mine->thread, p->mine->threads, j0, j1);
}

int64_t RUI_K(rui_kern_gru_work)(const ru_kern_gru *a, int64_t rows, bool grad)
{
    int64_t h = a->hidden, gemm = RUI_K(rui_kern_gemm_work)(rows, 3 * h, 3 * h);
    return gemm + rows * (grad ? h + 2 * padded(3 * h) : 4 * padded(h) + GRU_WIDE);
}

/* rec = from R^T of one group. */
static void recur(const ru_kern_gru *a, const gru_step *p, const float *from, const float *packed,
                  int64_t group)
{
    int64_t h = a->hidden;
    ru_kern_gemm g = {.m = p->rows,
                      .n = GRU_WIDE,
                      .k = h,
                      .a = from,
                      .a_row = padded(h),
                      .a_col = 1,
                      .packed_b = packed + group * RUI_K(rui_kern_gemm_pack_floats)(h, GRU_WIDE),
                      .c = p->rec,
                      .c_row = GRU_WIDE,
                      .alpha = 1.0f,
                      .thin = a->batch == 1,
                      .work = p->work};
    RUI_K(rui_kern_gemm)(&g);
}

static float *ws_row(const ru_kern_gru *a, int64_t t, int64_t n)
{
    return a->ws + t * a->ws_step + n * 4 * a->hidden;
}

/* Units j .. j + n of row i: u and h' from z, r * lin (or lin of r * h) and x. */
static void finish(const ru_kern_gru *a, const gru_step *p, int64_t i, int64_t j, int64_t n,
                   const float *z, const float *r, const float *lin)
{
    int64_t h = a->hidden, row = p->n0 + i;
    const float *x = a->pre + (p->t * a->batch + row) * 3 * h + 2 * h + j;
    const float *bx = a->bias + 2 * h + j, *br = a->bias + 3 * h + j;
    const float *before = p->from + i * padded(h) + j;
    float *to = p->h + i * padded(h) + j, u[GRU_WIDE], l[GRU_WIDE];
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
static void open_gates(const ru_kern_gru *a, const gru_step *p, int64_t i, int64_t j, int64_t n,
                       int64_t units)
{
    int64_t h = a->hidden;
    const float *x = a->pre + (p->t * a->batch + p->n0 + i) * 3 * h + j, *b = a->bias + j;
    float *v = p->rec + i * GRU_WIDE;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        v[k] = kv_gate(x[k] + v[k] + b[k]);
        v[k + units] = kv_gate(x[k + h] + v[k + units] + b[k + h]);
    }
}

/* All gates of 32 units at a time. */
static void late_step(const ru_kern_gru *a, const gru_step *p)
{
    enum { UNITS = GRU_WIDE / 3 };
    int64_t j0, j1;
    units_of(a, p, UNITS, &j0, &j1);
    for (int64_t j = j0, g = j / UNITS; j < j1; j += UNITS, g++) {
        int64_t n = kv_min_i64(UNITS, j1 - j);
        recur(a, p, p->from, a->packed_r, g);
        for (int64_t i = 0; i < p->rows; i++) {
            open_gates(a, p, i, j, n, UNITS);
        }
        for (int64_t i = 0; i < p->rows; i++) {
            const float *v = p->rec + i * GRU_WIDE;
            finish(a, p, i, j, n, v, v + UNITS, v + 2 * UNITS);
        }
    }
}

/* z, r and r * h of all units first, 48 at a time, then the rest, 96 at a time. */
static void early_step(const ru_kern_gru *a, const gru_step *p)
{
    enum { UNITS = GRU_WIDE / 2 };
    float *r = p->h; /* a unit's r is read before its h is written */
    int64_t ld = padded(a->hidden), j0, j1;
    units_of(a, p, UNITS, &j0, &j1);
    for (int64_t j = j0, g = j / UNITS; j < j1; j += UNITS, g++) {
        int64_t n = kv_min_i64(UNITS, j1 - j);
        recur(a, p, p->from, a->packed_r, g);
        for (int64_t i = 0; i < p->rows; i++) {
            open_gates(a, p, i, j, n, UNITS);
            const float *v = p->rec + i * GRU_WIDE, *before = p->from + i * ld + j;
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
    units_of(a, p, GRU_WIDE, &j0, &j1);
    for (int64_t j = j0, g = j / GRU_WIDE; j < j1; j += GRU_WIDE, g++) {
        recur(a, p, p->arg, a->packed_u, g);
        for (int64_t i = 0; i < p->rows; i++) {
            finish(a, p, i, j, kv_min_i64(GRU_WIDE, j1 - j), p->z + i * ld + j, r + i * ld + j,
                   p->rec + i * GRU_WIDE);
        }
    }
}

/* h0, or zeros, into the state before the first step. */
static void begin(const ru_kern_gru *a, const gru_step *p, float *state)
{
    int64_t h = a->hidden, ld = padded(h);
    memset(state, 0, sizeof(float) * (size_t)(p->rows * ld));
    for (int64_t i = 0; a->h0 != NULL && i < p->rows; i++) {
        memcpy(state + i * ld, a->h0 + (p->n0 + i) * h, sizeof(float) * (size_t)h);
    }
}

/* All steps, and what they give. */
static void forward(const ru_kern_gru *a, gru_step *p, float *const *state,
                    void (*step)(const ru_kern_gru *a, const gru_step *p))
{
    int64_t h = a->hidden, ld = padded(h);
    bool first = p->mine->thread == 0;
    RU_CHECK(p->mine->threads == 1 || p->mine->wait != NULL);
    if (first) {
        begin(a, p, state[1]);
    }
    kv_meet(p->mine);
    for (int64_t s = 0; s < a->steps; s++) {
        p->t = a->reverse ? a->steps - 1 - s : s;
        p->from = state[(s + 1) % 2];
        p->h = state[s % 2];
        step(a, p);
        kv_meet(p->mine);
        for (int64_t i = 0; first && i < p->rows && a->y != NULL; i++) {
            memcpy(a->y + p->t * a->y_step + (p->n0 + i) * h, p->h + i * ld,
                   sizeof(float) * (size_t)h);
        }
    }
    for (int64_t i = 0; first && i < p->rows && a->y_h != NULL; i++) {
        memcpy(a->y_h + (p->n0 + i) * h, p->h + i * ld, sizeof(float) * (size_t)h);
    }
}

void RUI_K(rui_kern_gru)(const ru_kern_gru *a, const ru_kern_share *mine)
{
    int64_t rows = mine->n1 - mine->n0, size = rows * padded(a->hidden);
    gru_step p = {.n0 = mine->n0,
                  .rows = rows,
                  .mine = mine,
                  .z = mine->state + 2 * size,
                  .arg = mine->state + 3 * size,
                  .rec = mine->work + 4 * size,
                  .work = mine->work + 4 * size + rows * GRU_WIDE};
    forward(a, &p, (float *[]){mine->state, mine->state + size}, a->late ? late_step : early_step);
}

/* -- backward ------------------------------------------------------------------------------------
 */

/* dh += or = dg R for columns [from, from + k) of the gates. */
static void back_product(const ru_kern_gru *a, int64_t rows, const float *dg, int64_t k,
                         const float *packed, float *dh, bool add, float *work)
{
    int64_t h = a->hidden;
    ru_kern_gemm g = {.m = rows,
                      .n = h,
                      .k = k,
                      .a = dg,
                      .a_row = padded(3 * h),
                      .a_col = 1,
                      .packed_b = packed,
                      .c = dh,
                      .c_row = add ? h : padded(3 * h),
                      .alpha = 1.0f,
                      .add = add,
                      .work = work};
    RUI_K(rui_kern_gemm)(&g);
}

/* Gradients before activation: dg = [dz | dr | du]; dh becomes its direct share. For late reset
 * also dl = [dz | dr | dlin]; for early reset dr follows later. */
static void gates_grad(const ru_kern_gru *a, const float *w, const float *hp, float *dh, float *dg,
                       float *dl)
{
    int64_t h = a->hidden;
    const float *z = w, *r = w + h, *u = w + 2 * h, *lin = w + 3 * h;
    bool late = a->late;
#pragma omp simd
    for (int64_t j = 0; j < h; j++) {
        float d = dh[j], old = hp != NULL ? hp[j] : 0.0f;
        float du = d * (1.0f - z[j]) * (1.0f - u[j] * u[j]);
        float dz = d * (old - u[j]) * z[j] * (1.0f - z[j]);
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
static void reset_grad(int64_t h, const float *w, const float *hp, const float *darg, float *dh,
                       float *dr)
{
    const float *r = w + h;
#pragma omp simd
    for (int64_t j = 0; j < h; j++) {
        float old = hp != NULL ? hp[j] : 0.0f;
        dr[j] = darg[j] * old * r[j] * (1.0f - r[j]);
        dh[j] += darg[j] * r[j];
    }
}

/* What multiplied R in this step: h before, and for early reset r * h. */
static void put_factors(const ru_kern_gru *a, int64_t at, const float *w, const float *hp)
{
    int64_t h = a->hidden;
    float *to = a->h_prev + at * h, *arg = a->late ? NULL : a->arg + at * h;
    for (int64_t j = 0; j < h; j++) {
        float old = hp != NULL ? hp[j] : 0.0f;
        to[j] = old;
        if (arg != NULL) {
            arg[j] = w[h + j] * old;
        }
    }
}

static void back_step(const ru_kern_gru *a, int64_t s, int64_t n0, int64_t rows, float *dh,
                      float *dg, float *dl, float *work)
{
    int64_t h = a->hidden, ld = padded(3 * h);
    int64_t t = a->reverse ? a->steps - 1 - s : s, before = a->reverse ? t + 1 : t - 1;
    for (int64_t phase = 0; phase < 2; phase++) {
        for (int64_t i = 0; i < rows; i++) {
            int64_t n = n0 + i, at = t * a->batch + n;
            const float *w = ws_row(a, t, n);
            const float *hp =
                s > 0 ? a->y + before * a->y_step + n * h : (a->h0 == NULL ? NULL : a->h0 + n * h);
            float *d = dh + i * h, *g = dg + i * ld, *l = dl + i * ld;
            if (phase == 0) {
                const float *dy = a->dy == NULL ? NULL : a->dy + t * a->y_step + n * h;
                for (int64_t j = 0; dy != NULL && j < h; j++) {
                    d[j] += dy[j];
                }
                gates_grad(a, w, hp, d, g, l);
                put_factors(a, at, w, hp);
            } else if (!a->late) {
                reset_grad(h, w, hp, l, d, g + h);
            }
            if (phase == 1) {
                memcpy(a->dg + at * 3 * h, g, sizeof(float) * (size_t)(3 * h));
                if (a->late) {
                    memcpy(a->dl + at * 3 * h, l, sizeof(float) * (size_t)(3 * h));
                }
            }
        }
        if (phase == 0 && a->late) {
            back_product(a, rows, dl, 3 * h, a->packed_r, dh, true, work);
        } else if (phase == 0) {
            back_product(a, rows, dg + 2 * h, h, a->packed_u, dl, false, work);
        } else if (!a->late) {
            back_product(a, rows, dg, 2 * h, a->packed_r, dh, true, work);
        }
    }
}

void RUI_K(rui_kern_gru_grad)(const ru_kern_gru *a, int64_t n0, int64_t n1, float *work)
{
    int64_t h = a->hidden, rows = n1 - n0, ld = padded(3 * h);
    float *dh = work, *dg = dh + rows * h, *dl = dg + rows * ld;
    memset(dh, 0, sizeof(float) * (size_t)(rows * h));
    if (a->dy_h != NULL) {
        memcpy(dh, a->dy_h + n0 * h, sizeof(float) * (size_t)(rows * h));
    }
    for (int64_t s = a->steps - 1; s >= 0; s--) {
        back_step(a, s, n0, rows, dh, dg, dl, dl + rows * ld);
    }
    if (a->dh0 != NULL) {
        memcpy(a->dh0 + n0 * h, dh, sizeof(float) * (size_t)(rows * h));
    }
}

/* -- the plain recurrent layer -------------------------------------------------------------------
 */

static void plain_step(const ru_kern_gru *a, const gru_step *p)
{
    int64_t h = a->hidden, j0, j1;
    units_of(a, p, GRU_WIDE, &j0, &j1);
    for (int64_t j = j0, g = j / GRU_WIDE; j < j1; j += GRU_WIDE, g++) {
        int64_t n = kv_min_i64(GRU_WIDE, j1 - j);
        recur(a, p, p->from, a->packed_r, g);
        for (int64_t i = 0; i < p->rows; i++) {
            const float *x = a->pre + (p->t * a->batch + p->n0 + i) * h + j, *b = a->bias + j;
            const float *v = p->rec + i * GRU_WIDE;
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

void RUI_K(rui_kern_rnn)(const ru_kern_gru *a, const ru_kern_share *mine)
{
    int64_t rows = mine->n1 - mine->n0, size = rows * padded(a->hidden);
    gru_step p = {.n0 = mine->n0,
                  .rows = rows,
                  .mine = mine,
                  .rec = mine->work + 2 * size,
                  .work = mine->work + 2 * size + rows * GRU_WIDE};
    forward(a, &p, (float *[]){mine->state, mine->state + size}, plain_step);
}

void RUI_K(rui_kern_rnn_grad)(const ru_kern_gru *a, int64_t n0, int64_t n1, float *work)
{
    int64_t h = a->hidden, rows = n1 - n0, ld = padded(3 * h);
    float *dh = work, *dg = dh + rows * h;
    bool relu = a->relu;
    memset(dh, 0, sizeof(float) * (size_t)(rows * h));
    if (a->dy_h != NULL) {
        memcpy(dh, a->dy_h + n0 * h, sizeof(float) * (size_t)(rows * h));
    }
    for (int64_t s = a->steps - 1; s >= 0; s--) {
        int64_t t = a->reverse ? a->steps - 1 - s : s, before = a->reverse ? t + 1 : t - 1;
        for (int64_t i = 0; i < rows; i++) {
            int64_t n = n0 + i, at = t * a->batch + n;
            const float *y = a->y + t * a->y_step + n * h;
            const float *dy = a->dy == NULL ? NULL : a->dy + t * a->y_step + n * h;
            const float *hp =
                s > 0 ? a->y + before * a->y_step + n * h : (a->h0 == NULL ? NULL : a->h0 + n * h);
            float *g = dg + i * ld, *d = dh + i * h;
            for (int64_t j = 0; j < h; j++) {
                float sum = d[j] + (dy != NULL ? dy[j] : 0.0f);
                g[j] = relu ? (y[j] > 0.0f ? sum : 0.0f) : sum * (1.0f - y[j] * y[j]);
                a->h_prev[at * h + j] = hp != NULL ? hp[j] : 0.0f;
            }
            memcpy(a->dg + at * h, g, sizeof(float) * (size_t)h);
        }
        memset(dh, 0, sizeof(float) * (size_t)(rows * h));
        back_product(a, rows, dg, h, a->packed_r, dh, true, dg + rows * ld);
    }
    if (a->dh0 != NULL) {
        memcpy(a->dh0 + n0 * h, dh, sizeof(float) * (size_t)(rows * h));
    }
}
