/* The recurrent part of LSTM, forward and backward, for a range of the batch.
 *
 * The inputs times W for all time steps are one large product made before; here, step by step, h
 * R^T is added to it with R packed once, and the gates follow. Rows of the batch are independent in
 * time, so threads split the batch and never wait for each other.
 *
 * Workspace row of (t, n): [i | o | f | c~ | c], each `hidden` long, gates after activation. */
#include "exec/kern/isa.h"

static float *ws_row(const ru_kern_lstm *a, int64_t t, int64_t n)
{
    return a->ws + t * a->ws_step + n * 5 * a->hidden;
}

static void put(ru_dtype t, void *y, int64_t at, const float *x, int64_t n)
{
    if (t == RU_F32) {
        memcpy((float *)y + at, x, sizeof(float) * (size_t)n);
    } else {
        kv_narrow(x, (uint16_t *)y + at, n);
    }
}

static void gates(const float *x, float *g, const float *bias, const float *c_prev, float *h,
                  int64_t n)
{
    const float *xi = x, *xo = x + n, *xf = x + 2 * n, *xc = x + 3 * n;
    float *gi = g, *go = g + n, *gf = g + 2 * n, *gc = g + 3 * n, *c = g + 4 * n;
    const float *bi = bias, *bo = bias + n, *bf = bias + 2 * n, *bc = bias + 3 * n;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float i = kv_sigmoid(xi[j] + bi[j]);
        float f = kv_sigmoid(xf[j] + bf[j]);
        float u = kv_tanh(xc[j] + bc[j]);
        float v = i * u + (c_prev != NULL ? f * c_prev[j] : 0.0f);
        gi[j] = i;
        gf[j] = f;
        gc[j] = u;
        c[j] = v;
    }
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float o = kv_sigmoid(xo[j] + bo[j]);
        go[j] = o;
        h[j] = o * kv_tanh(c[j]);
    }
}

int64_t RUI_K(rui_kern_lstm_work)(const ru_kern_lstm *a, int64_t rows, bool grad)
{
    int64_t h = a->hidden;
    return rows * h + rows * (grad ? 6 : 4) * h + RUI_K(rui_kern_gemm_work)(rows, 4 * h, 4 * h);
}

/* Rows of the table for time step t, into the work area. */
static float *look_up(const ru_kern_lstm *a, int64_t t, int64_t n0, int64_t rows, float *work)
{
    int64_t h = a->hidden;
    float *pre = work + rows * h;
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = t * a->batch + n0 + i;
        int64_t id =
            a->it == RU_I64 ? ((const int64_t *)a->ids)[at] : ((const int32_t *)a->ids)[at];
        id += id < 0 ? a->vocabulary : 0;
        memcpy(pre + i * 4 * h, a->table + id * 4 * h, sizeof(float) * (size_t)(4 * h));
    }
    return pre;
}

/* pre += h R^T, h of time step `before` (-1: h0). On the bf16 path h is read as it was stored in y.
 */
static void add_recurrent(const ru_kern_lstm *a, int64_t before, int64_t n0, int64_t rows,
                          float *work, float *pre)
{
    int64_t h = a->hidden;
    if (a->packed_bf16 == NULL) {
        ru_kern_gemm g = {.m = rows,
                          .n = 4 * h,
                          .k = h,
                          .a = work,
                          .a_row = h,
                          .a_col = 1,
                          .packed_b = a->packed_r,
                          .c = pre,
                          .c_row = 4 * h,
                          .alpha = 1.0f,
                          .add = true,
                          .thin = a->batch == 1,
                          .work = work + 5 * rows * h};
        RUI_K(rui_kern_gemm)(&g);
        return;
    }
    uint16_t *first = (uint16_t *)(void *)(work + 5 * rows * h);
    const uint16_t *from = first;
    if (before < 0) {
        kv_narrow(work, first, rows * h);
    } else {
        from = (const uint16_t *)a->y + before * a->y_step + n0 * h;
    }
    RUI_K(rui_kern_gemm_bf16)(rows, 4 * h, h, from, h, a->packed_bf16, pre, 4 * h, true);
}

void RUI_K(rui_kern_lstm)(const ru_kern_lstm *a, int64_t n0, int64_t n1, float *work)
{
    int64_t h = a->hidden, rows = n1 - n0;
    float *state = work; /* h of the last step [rows, h] */
    if (a->h0 != NULL) {
        memcpy(state, a->h0 + n0 * h, sizeof(float) * (size_t)(rows * h));
    }
    for (int64_t s = 0; s < a->steps; s++) {
        int64_t t = a->reverse ? a->steps - 1 - s : s, before = a->reverse ? t + 1 : t - 1;
        float *pre =
            a->pre != NULL ? a->pre + (t * a->batch + n0) * 4 * h : look_up(a, t, n0, rows, work);
        if (s > 0 || a->h0 != NULL) {
            add_recurrent(a, s > 0 ? before : -1, n0, rows, work, pre);
        }
        for (int64_t i = 0; i < rows; i++) {
            const float *c_prev = s > 0 ? ws_row(a, before, n0 + i) + 4 * h
                                        : (a->c0 == NULL ? NULL : a->c0 + (n0 + i) * h);
            gates(pre + i * 4 * h, ws_row(a, t, n0 + i), a->bias, c_prev, state + i * h, h);
            put(a->t, a->y, t * a->y_step + (n0 + i) * h, state + i * h, h);
        }
    }
    int64_t last = a->reverse ? 0 : a->steps - 1;
    for (int64_t i = 0; i < rows; i++) {
        if (a->y_h != NULL) {
            memcpy(a->y_h + (n0 + i) * h, state + i * h, sizeof(float) * (size_t)h);
        }
        if (a->y_c != NULL) {
            memcpy(a->y_c + (n0 + i) * h, ws_row(a, last, n0 + i) + 4 * h,
                   sizeof(float) * (size_t)h);
        }
    }
}

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
    float *dh = work, *dc = dh + rows * h, *dg = dc + rows * h, *gemm_work = dg + 4 * rows * h;
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
            const float *c_prev = s > 0 ? ws_row(a, before, n0 + i) + 4 * h
                                        : (a->c0 == NULL ? NULL : a->c0 + (n0 + i) * h);
            if (a->dy != NULL) {
                add_row(a->t, a->dy, t * a->y_step + (n0 + i) * h, dh + i * h, h);
            }
            gates_grad(ws_row(a, t, n0 + i), c_prev, dh + i * h, dc + i * h, dg + i * 4 * h, h);
            put(a->t, a->dg, (t * a->batch + n0 + i) * 4 * h, dg + i * 4 * h, 4 * h);
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
                              .a_row = 4 * h,
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
