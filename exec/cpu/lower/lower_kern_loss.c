/* Losses on the vector kernels. Row losses are written apart and summed in row order in double, so
 * the value does not depend on the number of threads. */
#include <string.h>

#include "exec/cpu/lower/lower_kern.h"

enum { LOSS_BLOCK = 4096 }; /* elements summed as one for bce and mse: fixed */

typedef struct loss_state {
    const ru_kern *k;
    ru_dtype t, lt;
    int64_t rows, cols, ignore_index;
    float smoothing;
    bool fused;  /* output 1 is the gradient of the logits ... */
    float scale; /* ... times this */
    bool bce;
    bool by_rows; /* the mean is over rows, not over their weights */
} loss_state;

/* bufs: 0 logits 1 labels 2 weight 3 loss 4 probs 5 correct 6 count 7 row_loss 8 row_weight 9 flags
 * 10 bad rows, one per grain */
static void ce_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const loss_state *s = state;
    int64_t at = begin * s->cols * ru_dtype_bytes(s->t);
    const char *labels = (const char *)bufs[1] + begin * ru_dtype_bytes(s->lt);
    int64_t bad = s->k->cross_entropy(s->t, (const char *)bufs[0] + at, s->lt, labels, bufs[2],
                                      s->ignore_index, s->smoothing, (char *)bufs[4] + at,
                                      (float *)bufs[7] + begin, (float *)bufs[8] + begin,
                                      (uint8_t *)bufs[9] + begin, end - begin, s->cols);
    if (bad >= 0) { /* flags say so: the row that stopped the part */
        ((uint8_t *)bufs[9])[begin + bad] = 0x80;
    }
}

static int64_t label_of(const loss_state *s, const void *labels, int64_t r)
{
    return s->lt == RU_I64 ? ((const int64_t *)labels)[r] : ((const int32_t *)labels)[r];
}

/* Output 1 becomes the gradient of the logits, in place of the probabilities. */
static void ce_fused_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const loss_state *s = state;
    char *probs = (char *)bufs[4] + begin * s->cols * ru_dtype_bytes(s->t);
    s->k->cross_entropy_grad(
        s->t, probs, s->lt, (const char *)bufs[1] + begin * ru_dtype_bytes(s->lt), bufs[2],
        s->ignore_index, s->smoothing, *(const float *)bufs[7], probs, end - begin, s->cols);
}

static ru_status ce_run(void *state, void *const *bufs, const rui_run *run)
{
    const loss_state *s = state;
    memset(bufs[9], 0, (size_t)s->rows);
    rui_kern_for(run, ce_part, s, bufs, s->rows, rui_kern_grain(s->cols));
    const float *loss = bufs[7], *weight = bufs[8];
    const uint8_t *flags = bufs[9];
    double sum = 0.0, total = 0.0;
    int64_t correct = 0, count = 0;
    for (int64_t r = 0; r < s->rows; r++) {
        if (flags[r] == 0x80) {
            return RU_FAIL(run->err, RU_E_DATA,
                           "label %lld of row %lld is outside 0..%lld (and is not %lld, the value "
                           "to ignore); check the number of classes",
                           (long long)label_of(s, bufs[1], r), (long long)r,
                           (long long)(s->cols - 1), (long long)s->ignore_index);
        }
        sum += (double)loss[r];
        total += s->by_rows ? (double)(flags[r] & 1) : (double)weight[r];
        count += flags[r] & 1;
        correct += flags[r] >> 1 & 1;
    }
    *(float *)bufs[3] = (float)(sum / total);
    if (s->fused) {
        float *scale = bufs[7]; /* the losses of the rows are summed up: their place is free */
        *scale = total > 0.0 ? (float)((double)s->scale / total) : 0.0f;
        rui_kern_for(run, ce_fused_part, s, bufs, s->rows, rui_kern_grain(s->cols));
    }
    if (bufs[5] != NULL) {
        *(float *)bufs[5] = (float)correct;
    }
    if (bufs[6] != NULL) {
        *(float *)bufs[6] = (float)count;
    }
    return RU_OK;
}

static loss_state *ce_new(rui_low *lo, const ru_node *n, ru_value_id x, ru_value_id labels)
{
    const ru_type *t = rui_type(lo, x);
    loss_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s =
            (loss_state){.k = ru_kern_best(),
                         .t = rui_kern_dtype(lo, x),
                         .lt = rui_type(lo, labels)->dtype,
                         .rows = rui_dims(t, 0, t->rank - 1),
                         .cols = t->dims[t->rank - 1],
                         .ignore_index = ru_node_int(n, RU_ATTR_ignore_index, INT64_MIN),
                         .smoothing = (float)ru_node_float(n, RU_ATTR_label_smoothing, 0.0),
                         .fused = ru_node_int(n, RU_ATTR_fused, 0) != 0,
                         .scale = (float)ru_node_float(n, RU_ATTR_scale, 1.0),
                         .by_rows = strcmp(ru_node_str(n, RU_ATTR_reduction, "mean"), "rows") == 0};
    }
    return s;
}

static bool ce_takes(rui_low *lo, ru_value_id x, ru_value_id labels)
{
    ru_dtype lt = rui_type(lo, labels)->dtype;
    return rui_kern_float(rui_kern_dtype(lo, x)) && rui_type(lo, x)->rank >= 1 &&
           rui_type(lo, x)->dims[rui_type(lo, x)->rank - 1] > 0 && (lt == RU_I64 || lt == RU_I32);
}

static rui_buf out_scalar(rui_low *lo, const ru_node *n, uint32_t k)
{
    return ru_node_has_out(n, k)
               ? rui_out(lo, n->out[k], rui_plain_as(lo, rui_type(lo, n->out[k]), RU_F32))
               : (rui_buf){0};
}

static rui_buf weight_in(rui_low *lo, const ru_node *n, uint32_t k)
{
    return ru_node_has_in(n, k)
               ? rui_in(lo, n->in[k], rui_plain_as(lo, rui_type(lo, n->in[k]), RU_F32))
               : (rui_buf){0};
}

ru_status rui_lower_kern_cross_entropy(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    if (!ce_takes(lo, n->in[0], n->in[1])) {
        return RU_E_UNSUPPORTED;
    }
    loss_state *s = ce_new(lo, n, n->in[0], n->in[1]);
    if (s == NULL) {
        return rui_done(lo);
    }
    const rui_layout *l = rui_plain_as(lo, rui_type(lo, n->in[0]), s->t);
    rui_buf x = rui_in(lo, n->in[0], l), labels = rui_in_plain(lo, n->in[1]);
    rui_buf weight = weight_in(lo, n, 2);
    rui_buf probs =
        ru_node_has_out(n, 1) ? rui_out_over(lo, n->out[1], l, x) : rui_scratch(lo, l->size_bytes);
    rui_buf bufs[10] = {x,
                        labels,
                        weight,
                        out_scalar(lo, n, 0),
                        probs,
                        out_scalar(lo, n, 2),
                        out_scalar(lo, n, 3),
                        rui_scratch(lo, s->rows * 4),
                        rui_scratch(lo, s->rows * 4),
                        rui_scratch(lo, s->rows)};
    rui_emit(
        lo,
        &(rui_step){
            .kernel = "kern cross entropy", .fn = ce_run, .state = s, .bufs = bufs, .n_bufs = 10});
    return rui_done(lo);
}

/* bufs: 0 dloss 1 probs 2 labels 3 weight 4 dx 5 scale */
static void ce_grad_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const loss_state *s = state;
    int64_t at = begin * s->cols * ru_dtype_bytes(s->t);
    s->k->cross_entropy_grad(s->t, (const char *)bufs[1] + at, s->lt,
                             (const char *)bufs[2] + begin * ru_dtype_bytes(s->lt), bufs[3],
                             s->ignore_index, s->smoothing, *(const float *)bufs[5],
                             (char *)bufs[4] + at, end - begin, s->cols);
}

static ru_status ce_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const loss_state *s = state;
    const float *weight = bufs[3];
    double total = 0.0;
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t label = label_of(s, bufs[2], r);
        if (label != s->ignore_index && label >= 0 && label < s->cols) {
            total += weight == NULL || s->by_rows ? 1.0 : (double)weight[label];
        }
    }
    *(float *)bufs[5] = total > 0.0 ? (float)((double)*(const float *)bufs[0] / total) : 0.0f;
    rui_kern_for(run, ce_grad_part, s, bufs, s->rows, rui_kern_grain(s->cols));
    return RU_OK;
}

ru_status rui_lower_kern_cross_entropy_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    if (!ce_takes(lo, n->in[1], n->in[2])) {
        return RU_E_UNSUPPORTED;
    }
    loss_state *s = ce_new(lo, n, n->in[1], n->in[2]);
    if (s == NULL) {
        return rui_done(lo);
    }
    const rui_layout *l = rui_plain_as(lo, rui_type(lo, n->in[1]), s->t);
    rui_buf dloss = weight_in(lo, n, 0), probs = rui_in(lo, n->in[1], l);
    rui_buf labels = rui_in_plain(lo, n->in[2]), weight = weight_in(lo, n, 3);
    rui_buf bufs[6] = {
        dloss, probs, labels, weight, rui_out_over(lo, n->out[0], l, probs), rui_scratch(lo, 4)};
    rui_emit(lo, &(rui_step){.kernel = "kern cross entropy grad",
                             .fn = ce_grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 6});
    return rui_done(lo);
}

/* -- binary cross-entropy and mean square
 * ---------------------------------------------------------- */

/* bufs: 0 x 1 target 2 loss 3 partial sums */
static void pair_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const loss_state *s = state;
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b * LOSS_BLOCK, left = s->rows - at;
        int64_t n = left < LOSS_BLOCK ? left : LOSS_BLOCK;
        const char *x = (const char *)bufs[0] + at * ru_dtype_bytes(s->t);
        const char *y = (const char *)bufs[1] + at * ru_dtype_bytes(s->t);
        ((float *)bufs[3])[b] = s->bce ? s->k->bce(s->t, x, y, n) : s->k->mse(s->t, x, y, n);
    }
}

static ru_status pair_run(void *state, void *const *bufs, const rui_run *run)
{
    const loss_state *s = state;
    int64_t blocks = (s->rows + LOSS_BLOCK - 1) / LOSS_BLOCK;
    rui_kern_for(run, pair_part, s, bufs, blocks, 1);
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++) {
        sum += (double)((const float *)bufs[3])[b];
    }
    *(float *)bufs[2] = (float)(sum / (double)s->rows);
    return RU_OK;
}

static loss_state *pair_new(rui_low *lo, const ru_node *n, ru_value_id x)
{
    loss_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (loss_state){.k = ru_kern_best(),
                          .t = rui_kern_dtype(lo, x),
                          .rows = ru_type_count(rui_type(lo, x)),
                          .bce = n->op == RU_OP_BinaryCrossEntropyLogits ||
                                 n->op == RU_OP_BinaryCrossEntropyLogitsGrad};
    }
    return s;
}

ru_status rui_lower_kern_pair_loss(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    if (!rui_kern_float(rui_kern_dtype(lo, n->in[0])) ||
        !ru_type_equal(rui_type(lo, n->in[0]), rui_type(lo, n->in[1])) ||
        rui_type(lo, n->out[0])->dtype != RU_F32) {
        return RU_E_UNSUPPORTED;
    }
    loss_state *s = pair_new(lo, n, n->in[0]);
    if (s == NULL) {
        return rui_done(lo);
    }
    const rui_layout *l = rui_plain_as(lo, rui_type(lo, n->in[0]), s->t);
    rui_buf bufs[4] = {rui_in(lo, n->in[0], l), rui_in(lo, n->in[1], l),
                       rui_out_plain(lo, n->out[0]),
                       rui_scratch(lo, (s->rows / LOSS_BLOCK + 1) * 4)};
    rui_emit(lo, &(rui_step){.kernel = s->bce ? "kern bce" : "kern mse",
                             .fn = pair_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 4});
    return rui_done(lo);
}

/* bufs: 0 dloss 1 x 2 target 3 dx */
static void pair_grad_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const loss_state *s = state;
    int64_t at = begin * ru_dtype_bytes(s->t);
    float scale = *(const float *)bufs[0] / (float)s->rows;
    const char *x = (const char *)bufs[1] + at, *y = (const char *)bufs[2] + at;
    if (s->bce) {
        s->k->bce_grad(s->t, scale, x, y, (char *)bufs[3] + at, end - begin);
    } else {
        s->k->mse_grad(s->t, scale, x, y, (char *)bufs[3] + at, end - begin);
    }
}

static ru_status pair_grad_run(void *state, void *const *bufs, const rui_run *run)
{
    const loss_state *s = state;
    rui_kern_for(run, pair_grad_part, s, bufs, s->rows, 4096);
    return RU_OK;
}

ru_status rui_lower_kern_pair_loss_grad(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    if (!rui_kern_float(rui_kern_dtype(lo, n->in[1])) ||
        !ru_type_equal(rui_type(lo, n->in[1]), rui_type(lo, n->in[2]))) {
        return RU_E_UNSUPPORTED;
    }
    loss_state *s = pair_new(lo, n, n->in[1]);
    if (s == NULL) {
        return rui_done(lo);
    }
    const rui_layout *l = rui_plain_as(lo, rui_type(lo, n->in[1]), s->t);
    rui_buf dloss = weight_in(lo, n, 0), x = rui_in(lo, n->in[1], l), y = rui_in(lo, n->in[2], l);
    rui_buf bufs[4] = {dloss, x, y, rui_out_over(lo, n->out[0], l, x)};
    rui_emit(lo, &(rui_step){.kernel = s->bce ? "kern bce grad" : "kern mse grad",
                             .fn = pair_grad_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = 4});
    return rui_done(lo);
}
