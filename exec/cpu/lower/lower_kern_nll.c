/* The standard's losses of classes: NegativeLogLikelihoodLoss, and SoftmaxCrossEntropyLoss with its
 * log-probabilities. Classes stand along axis 1. The losses of all rows are written apart and
 * summed in their order in double, so the value does not depend on the number of threads. */
#include <string.h>

#include "exec/cpu/lower/lower_kern.h"

enum { BLOCK = 4096 }; /* elements of rows whose log-probabilities are made at a time */

typedef enum nll_reduction { NLL_NONE, NLL_SUM, NLL_MEAN } nll_reduction;

typedef struct nll_state {
    const ru_kern *k;
    const char *op;
    ru_dtype lt;
    int64_t outer, dim, inner, rows; /* rows: outer * inner */
    nll_reduction reduction;
    bool softmax, has_ignore;
    int64_t ignore;
} nll_state;

enum { N_X, N_LABELS, N_WEIGHT, N_LOSS, N_LOGP, N_EACH, N_OWN, N_BUFS };

static int64_t label_of(const nll_state *s, const void *labels, int64_t r)
{
    return s->lt == RU_I64 ? ((const int64_t *)labels)[r] : ((const int32_t *)labels)[r];
}

/* Losses of rows from .. to, whose log-probabilities begin at `logp`, class k of the i-th of them
 * at k * step + i * apart. */
static void take_rows(const nll_state *s, void *const *bufs, int64_t from, int64_t to,
                      const float *logp, int64_t step, int64_t apart)
{
    const float *weight = bufs[N_WEIGHT];
    float *each = bufs[N_EACH];
    for (int64_t r = from; r < to; r++) {
        int64_t label = label_of(s, bufs[N_LABELS], r);
        bool gone = s->has_ignore && label == s->ignore;
        float w = gone || weight == NULL ? 1.0f : weight[label];
        each[r] = gone ? 0.0f : -w * logp[label * step + (r - from) * apart];
    }
}

/* Whole rows, classes side by side. `own`: BLOCK floats, or one row of them. */
static void nll_rows(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const nll_state *s = state;
    const float *x = bufs[N_X];
    int64_t block = s->dim < BLOCK ? BLOCK / s->dim : 1;
    for (int64_t r = begin; r < end; r += block) {
        int64_t n = end - r < block ? end - r : block;
        const float *logp = x + r * s->dim;
        if (s->softmax) {
            float *to = bufs[N_LOGP] != NULL ? (float *)bufs[N_LOGP] + r * s->dim : own;
            s->k->softmax(RU_F32, true, logp, to, n, s->dim);
            logp = to;
        }
        take_rows(s, bufs, r, r + n, logp, 1, s->dim);
    }
}

/* Samples [dim, inner]. */
static void nll_samples(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const nll_state *s = state;
    for (int64_t o = begin; o < end; o++) {
        const float *logp = (const float *)bufs[N_X] + o * s->dim * s->inner;
        if (s->softmax) {
            float *to = (float *)bufs[N_LOGP] + o * s->dim * s->inner;
            s->k->softmax_inner(RU_F32, true, logp, to, s->dim, s->inner, 0, s->inner);
            logp = to;
        }
        take_rows(s, bufs, o * s->inner, (o + 1) * s->inner, logp, s->inner, 1);
    }
}

static int64_t own_bytes(const nll_state *s)
{
    return (s->dim < BLOCK ? BLOCK : s->dim) * (int64_t)sizeof(float);
}

static ru_status check_labels(const nll_state *s, void *const *bufs, ru_err *err)
{
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t label = label_of(s, bufs[N_LABELS], r);
        if (!(s->has_ignore && label == s->ignore) && (label < 0 || label >= s->dim)) {
            return RU_FAIL(err, RU_E_DATA, "%s: label %lld of row %lld is outside 0 .. %lld", s->op,
                           (long long)label, (long long)r, (long long)(s->dim - 1));
        }
    }
    return RU_OK;
}

static ru_status nll_run(void *state, void *const *bufs, const rui_run *run)
{
    const nll_state *s = state;
    RU_TRY(check_labels(s, bufs, run->err));
    if (s->inner == 1) {
        rui_kern_for_own(run, nll_rows, s, bufs, s->rows, rui_kern_grain(s->dim), bufs[N_OWN],
                         own_bytes(s));
    } else {
        rui_kern_for(run, nll_samples, s, bufs, s->outer, rui_kern_grain(s->dim * s->inner));
    }
    if (s->reduction == NLL_NONE) {
        return RU_OK;
    }
    const float *each = bufs[N_EACH], *weight = bufs[N_WEIGHT];
    double sum = 0.0, total = 0.0;
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t label = label_of(s, bufs[N_LABELS], r);
        if (!(s->has_ignore && label == s->ignore)) {
            sum += (double)each[r];
            total += weight == NULL ? 1.0 : (double)weight[label];
        }
    }
    *(float *)bufs[N_LOSS] = (float)(s->reduction == NLL_MEAN ? sum / total : sum);
    return RU_OK;
}

static nll_reduction reduction_of(const ru_node *n)
{
    const char *word = ru_node_str(n, RU_ATTR_reduction, "mean");
    return strcmp(word, "none") == 0 ? NLL_NONE : strcmp(word, "sum") == 0 ? NLL_SUM : NLL_MEAN;
}

ru_status rui_lower_kern_nll(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    const ru_type *x = rui_type(lo, n->in[0]), *y = rui_type(lo, n->out[0]);
    ru_dtype lt = rui_type(lo, n->in[1])->dtype;
    bool logp = ru_node_has_out(n, 1);
    if (x->dtype != RU_F32 || y->dtype != RU_F32 || x->rank < 2 || x->dims[1] < 1 ||
        (lt != RU_I64 && lt != RU_I32) ||
        (ru_node_has_in(n, 2) && rui_type(lo, n->in[2])->dtype != RU_F32)) {
        return RU_E_UNSUPPORTED;
    }
    nll_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    *s = (nll_state){.k = ru_kern_best(),
                     .op = ru_op_get(n->op)->name,
                     .lt = lt,
                     .outer = x->dims[0],
                     .dim = x->dims[1],
                     .inner = rui_dims(x, 2, x->rank),
                     .reduction = reduction_of(n),
                     .softmax = n->op == RU_OP_SoftmaxCrossEntropyLoss,
                     .has_ignore = ru_node_attr(n, RU_ATTR_ignore_index) != NULL,
                     .ignore = ru_node_int(n, RU_ATTR_ignore_index, 0)};
    s->rows = s->outer * s->inner;
    const rui_layout *l = rui_plain_as(lo, x, RU_F32);
    bool whole = s->softmax && s->inner != 1 && !logp;
    rui_buf bufs[N_BUFS] = {rui_in(lo, n->in[0], l), rui_in_plain(lo, n->in[1])};
    bufs[N_WEIGHT] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[N_LOSS] = rui_out(lo, n->out[0], rui_plain_as(lo, y, RU_F32));
    bufs[N_LOGP] = logp ? rui_out(lo, n->out[1], l) : rui_scratch(lo, whole ? l->size_bytes : 0);
    bufs[N_EACH] = s->reduction == NLL_NONE ? bufs[N_LOSS] : rui_scratch(lo, s->rows * 4);
    bufs[N_OWN] = rui_scratch(lo, s->softmax ? own_bytes(s) * rui_threads(lo) : 0);
    rui_emit(lo, &(rui_step){.kernel = "kern class loss",
                             .fn = nll_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = N_BUFS});
    return rui_done(lo);
}
