/* Layer normalisation and softmax on the vector kernels. */
#include <math.h>
#include <string.h>

#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/lower/lower_kern.h"

enum { NORM_CHUNKS = 16 }; /* partial sums of parameter gradients: fixed, whatever the threads */

typedef struct norm_state {
    const ru_kern *k;
    ru_dtype t;
    int64_t rows, cols, inner;
    float epsilon;
    bool log, has_bias;
} norm_state;

static norm_state *norm_new(rui_low *lo, ru_dtype t, int64_t rows, int64_t cols)
{
    norm_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (norm_state){.k = ru_kern_best(), .t = t, .rows = rows, .cols = cols, .inner = 1};
    }
    return s;
}

/* The dtype a row kernel reads x in: as it stands when that is a float it knows. */
static ru_dtype row_dtype(rui_low *lo, ru_value_id v)
{
    ru_dtype t = rui_kern_dtype(lo, v);
    return rui_kern_float(t) ? t : RU_NONE;
}

static rui_buf in_f32(rui_low *lo, ru_value_id v)
{
    return v.v == 0 ? (rui_buf){0} : rui_in(lo, v, rui_plain_as(lo, rui_type(lo, v), RU_F32));
}

static rui_buf out_f32(rui_low *lo, const ru_node *n, uint32_t k)
{
    return ru_node_has_out(n, k)
               ? rui_out(lo, n->out[k], rui_plain_as(lo, rui_type(lo, n->out[k]), RU_F32))
               : (rui_buf){0};
}

static void layernorm_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const norm_state *s = state;
    int64_t at = begin * s->cols * ru_dtype_bytes(s->t);
    s->k->layernorm(s->t, (const char *)bufs[0] + at, bufs[1], bufs[2], s->epsilon,
                    (char *)bufs[3] + at, bufs[4] == NULL ? NULL : (float *)bufs[4] + begin,
                    bufs[5] == NULL ? NULL : (float *)bufs[5] + begin, end - begin, s->cols);
}

static ru_status layernorm_run(void *state, void *const *bufs, const rui_run *run)
{
    const norm_state *s = state;
    rui_kern_for(run, layernorm_part, s, bufs, s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

static bool covers(const rui_low *lo, ru_value_id v, int64_t n)
{
    return v.v == 0 || ru_type_count(rui_type(lo, v)) == n;
}

ru_status rui_lower_kern_layernorm(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    uint32_t axis = rui_axis(ru_node_int(n, RU_ATTR_axis, -1), x->rank);
    int64_t rows = rui_dims(x, 0, axis), cols = rui_dims(x, axis, x->rank);
    ru_value_id bias = ru_node_has_in(n, 2) ? n->in[2] : (ru_value_id){0};
    ru_dtype t = row_dtype(lo, n->in[0]);
    if (t == RU_NONE || cols == 0 || !covers(lo, n->in[1], cols) || !covers(lo, bias, cols)) {
        return RU_E_UNSUPPORTED;
    }
    norm_state *s = norm_new(lo, t, rows, cols);
    if (s == NULL) {
        return rui_done(lo);
    }
    s->epsilon = (float)ru_node_float(n, RU_ATTR_epsilon, 1e-5);
    const rui_layout *l = rui_plain_as(lo, x, t);
    rui_buf in = rui_in(lo, n->in[0], l);
    rui_buf scale = in_f32(lo, n->in[1]), b = in_f32(lo, bias);
    rui_buf bufs[6] = {
        in, scale, b, rui_out_over(lo, n->out[0], l, in), out_f32(lo, n, 1), out_f32(lo, n, 2)};
    rui_emit(lo, &(rui_step){.kernel = "kern layernorm",
                             .fn = layernorm_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 6});
    return rui_done(lo);
}

/* bufs: dy x scale mean invstd dx dscale dbias partial[NORM_CHUNKS][2][cols] */
static void layernorm_grad_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const norm_state *s = state;
    for (int64_t c = begin; c < end; c++) {
        int64_t r0 = s->rows * c / NORM_CHUNKS, r1 = s->rows * (c + 1) / NORM_CHUNKS;
        int64_t at = r0 * s->cols * ru_dtype_bytes(s->t);
        float *part = (float *)bufs[8] + 2 * c * s->cols;
        memset(part, 0, 2 * sizeof(float) * (size_t)s->cols);
        s->k->layernorm_grad(s->t, (const char *)bufs[0] + at, (const char *)bufs[1] + at, bufs[2],
                             (const float *)bufs[3] + r0, (const float *)bufs[4] + r0,
                             (char *)bufs[5] + at, part, part + s->cols, r1 - r0, s->cols);
    }
}

static ru_status layernorm_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const norm_state *s = state;
    rui_kern_for(run, layernorm_grad_part, s, bufs, NORM_CHUNKS,
                 s->rows * s->cols < 8192 ? NORM_CHUNKS : 1);
    const float *part = bufs[8];
    if (bufs[6] != NULL) {
        s->k->sum_rows(RU_F32, part, NORM_CHUNKS, 2 * s->cols, 0, s->cols, bufs[6]);
    }
    if (bufs[7] != NULL) {
        s->k->sum_rows(RU_F32, part + s->cols, NORM_CHUNKS, 2 * s->cols, 0, s->cols, bufs[7]);
    }
    return RU_OK;
}

ru_status rui_lower_kern_layernorm_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[1]);
    uint32_t axis = rui_axis(ru_node_int(n, RU_ATTR_axis, -1), x->rank);
    int64_t rows = rui_dims(x, 0, axis), cols = rui_dims(x, axis, x->rank);
    ru_dtype t = row_dtype(lo, n->in[1]);
    if (t == RU_NONE || cols == 0 || !covers(lo, n->in[2], cols)) {
        return RU_E_UNSUPPORTED;
    }
    norm_state *s = norm_new(lo, t, rows, cols);
    if (s == NULL) {
        return rui_done(lo);
    }
    const rui_layout *l = rui_plain_as(lo, x, t);
    rui_buf dy = rui_in(lo, n->in[0], l), xb = rui_in(lo, n->in[1], l);
    rui_buf scale = in_f32(lo, n->in[2]), mean = in_f32(lo, n->in[3]), is = in_f32(lo, n->in[4]);
    rui_buf dx =
        ru_node_has_out(n, 0) ? rui_out_over(lo, n->out[0], l, dy) : rui_scratch(lo, l->size_bytes);
    rui_buf bufs[9] = {dy,
                       xb,
                       scale,
                       mean,
                       is,
                       dx,
                       out_f32(lo, n, 1),
                       out_f32(lo, n, 2),
                       rui_scratch(lo, 2 * NORM_CHUNKS * cols * (int64_t)sizeof(float))};
    rui_emit(lo, &(rui_step){.kernel = "kern layernorm grad",
                             .fn = layernorm_grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 9});
    return rui_done(lo);
}

/* -- softmax -------------------------------------------------------------------------------------
 */

enum { WIDE_PIECE = 256, WIDE_COLUMNS = 64 };

static double wide_fold(const norm_state *s, ru_kern_red op, const double *x, int64_t n)
{
    double v;
    s->k->fold(op, RU_F64, false, x, n, 0, 1, true, &v);
    return v;
}

/* A row of doubles. */
static void wide_row(const norm_state *s, const double *x, double *y, int64_t n)
{
    const ru_kern_numbers *k = ru_kern_numbers_best();
    double e[WIDE_PIECE], sum = 0.0, top = wide_fold(s, RU_KERN_RED_MAX, x, n);
    k->map2(RU_KERN_MAP2_Sub, x, 1, &top, 0, y, n);
    for (int64_t c = 0, m; c < n; c += m) {
        m = n - c < WIDE_PIECE ? n - c : WIDE_PIECE;
        double *to = s->log ? e : y + c;
        k->map1(RU_KERN_MAP1_Exp, y + c, to, m);
        sum += wide_fold(s, RU_KERN_RED_SUM, to, m);
    }
    sum = s->log ? log(sum) : sum;
    k->map2(s->log ? RU_KERN_MAP2_Sub : RU_KERN_MAP2_Div, y, 1, &sum, 0, y, n);
}

/* w columns of doubles. */
static void wide_columns(const norm_state *s, const double *x, double *y, int64_t w)
{
    const ru_kern_numbers *k = ru_kern_numbers_best();
    double e[WIDE_COLUMNS], top[WIDE_COLUMNS], sum[WIDE_COLUMNS] = {0};
    s->k->fold(RU_KERN_RED_MAX, RU_F64, true, x, s->cols, s->inner, w, true, top);
    for (int64_t r = 0; r < s->cols; r++) {
        double *to = y + r * s->inner;
        k->map2(RU_KERN_MAP2_Sub, x + r * s->inner, 1, top, 1, to, w);
        k->map1(RU_KERN_MAP1_Exp, to, s->log ? e : to, w);
        k->map2(RU_KERN_MAP2_Add, sum, 1, s->log ? e : to, 1, sum, w);
    }
    for (int64_t j = 0; s->log && j < w; j++) {
        sum[j] = log(sum[j]);
    }
    for (int64_t r = 0; r < s->cols; r++) {
        double *to = y + r * s->inner;
        k->map2(s->log ? RU_KERN_MAP2_Sub : RU_KERN_MAP2_Div, to, 1, sum, 1, to, w);
    }
}

static void softmax_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const norm_state *s = state;
    int64_t step = s->cols * s->inner * ru_dtype_bytes(s->t);
    for (int64_t r = begin; s->t == RU_F64 && r < end; r++) {
        const double *x = (const double *)bufs[0] + r * s->cols * s->inner;
        double *y = (double *)bufs[1] + r * s->cols * s->inner;
        for (int64_t c = 0, w; s->inner > 1 && c < s->inner; c += w) {
            w = s->inner - c < WIDE_COLUMNS ? s->inner - c : WIDE_COLUMNS;
            wide_columns(s, x + c, y + c, w);
        }
        if (s->inner == 1) {
            wide_row(s, x, y, s->cols);
        }
    }
    if (s->t == RU_F64) {
        return;
    }
    if (s->inner == 1) {
        s->k->softmax(s->t, s->log, (const char *)bufs[0] + begin * step,
                      (char *)bufs[1] + begin * step, end - begin, s->cols);
        return;
    }
    for (int64_t r = begin; r < end; r++) {
        s->k->softmax_inner(s->t, s->log, (const char *)bufs[0] + r * step,
                            (char *)bufs[1] + r * step, s->cols, s->inner, 0, s->inner);
    }
}

static void softmax_grad_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const norm_state *s = state;
    int64_t step = s->cols * s->inner * ru_dtype_bytes(s->t);
    for (int64_t r = begin; r < end; r++) {
        const char *dy = (const char *)bufs[0] + r * step, *y = (const char *)bufs[1] + r * step;
        char *dx = (char *)bufs[2] + r * step;
        if (s->inner == 1) {
            s->k->softmax_grad(s->t, s->log, dy, y, dx, 1, s->cols);
        } else {
            s->k->softmax_inner_grad(s->t, s->log, dy, y, dx, s->cols, s->inner, 0, s->inner);
        }
    }
}

static ru_status softmax_run(void *state, void *const *bufs, const rui_run *run)
{
    const norm_state *s = state;
    rui_kern_for(run, softmax_part, s, bufs, s->rows, rui_kern_grain(s->cols * s->inner));
    return RU_OK;
}

static ru_status softmax_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const norm_state *s = state;
    rui_kern_for(run, softmax_grad_part, s, bufs, s->rows, rui_kern_grain(s->cols * s->inner));
    return RU_OK;
}

static norm_state *softmax_new(rui_low *lo, const ru_node *n, ru_value_id v, ru_dtype t)
{
    const ru_type *x = rui_type(lo, v);
    uint32_t axis = rui_axis(ru_node_int(n, RU_ATTR_axis, -1), x->rank);
    norm_state *s = norm_new(lo, t, rui_dims(x, 0, axis), x->dims[axis]);
    if (s != NULL) {
        s->inner = rui_dims(x, axis + 1, x->rank);
        s->log = n->op == RU_OP_LogSoftmax || n->op == RU_OP_LogSoftmaxGrad;
    }
    return s;
}

ru_status rui_lower_kern_softmax(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]);
    ru_dtype t = x->dtype == RU_F64 ? RU_F64 : row_dtype(lo, n->in[0]);
    if (t == RU_NONE || x->rank == 0) {
        return RU_E_UNSUPPORTED;
    }
    norm_state *s = softmax_new(lo, n, n->in[0], t);
    const rui_layout *l = rui_plain_as(lo, x, t);
    rui_buf in = rui_in(lo, n->in[0], l);
    rui_buf bufs[2] = {in, rui_out_over(lo, n->out[0], l, in)};
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern softmax", .fn = softmax_run, .state = s, .bufs = bufs, .n_bufs = 2});
    return rui_done(lo);
}

ru_status rui_lower_kern_softmax_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[1]);
    ru_dtype t = row_dtype(lo, n->in[1]);
    if (t == RU_NONE || x->rank == 0) {
        return RU_E_UNSUPPORTED;
    }
    norm_state *s = softmax_new(lo, n, n->in[1], t);
    const rui_layout *l = rui_plain_as(lo, x, t);
    rui_buf dy = rui_in(lo, n->in[0], l), y = rui_in(lo, n->in[1], l);
    rui_buf bufs[3] = {dy, y, rui_out_over(lo, n->out[0], l, dy)};
    rui_emit(lo, &(rui_step){.kernel = "kern softmax grad",
                             .fn = softmax_grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 3});
    return rui_done(lo);
}
