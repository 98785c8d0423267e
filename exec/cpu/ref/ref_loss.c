/* Losses: those of the ONNX standard and our own with their gradients. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

/* -- rows of classes -------------------------------------------------------------------- */

typedef struct class_rows {
    rui_axis3 a;     /* rows = outer x inner, classes along dim */
    int64_t *labels; /* [rows] */
    double *weight;  /* [classes] or NULL */
    int64_t ignore;
    bool has_ignore;
    bool by_rows; /* the mean is over rows, not over their weights */
} class_rows;

static ru_status class_rows_make(const ru_ref_call *c, const ru_type *t, uint32_t axis,
                                 uint32_t k_labels, class_rows *r, ru_err *err)
{
    r->a = rui_ref_axis3(t, axis);
    r->has_ignore = ru_node_attr(c->node, RU_ATTR_ignore_index) != NULL;
    r->ignore = ru_node_int(c->node, RU_ATTR_ignore_index, 0);
    r->by_rows = strcmp(ru_node_str(c->node, RU_ATTR_reduction, "mean"), "rows") == 0;
    RU_TRY(rui_ref_in_ints(c, k_labels, &r->labels, err));
    RU_TRY(rui_ref_in(c, k_labels + 1, &r->weight, err));
    int64_t rows = r->a.outer * r->a.inner;
    for (int64_t i = 0; i < rows; i++) {
        int64_t label = r->labels[i];
        bool ignored = r->has_ignore && label == r->ignore;
        if (!ignored && (label < 0 || label >= r->a.dim)) {
            return RU_FAIL(err, RU_E_DATA, "%s: label %lld of row %lld is outside 0 .. %lld",
                           ru_op_get(c->node->op)->name, (long long)label, (long long)i,
                           (long long)(r->a.dim - 1));
        }
    }
    return RU_OK;
}

static bool ignored(const class_rows *r, int64_t row)
{
    return r->has_ignore && r->labels[row] == r->ignore;
}

static double weight_of(const class_rows *r, int64_t class)
{
    return r->weight != NULL ? r->weight[class] : 1.0;
}

/* Place of class k of a row in the tensor. */
static int64_t place(const class_rows *r, int64_t row, int64_t k)
{
    return (row / r->a.inner * r->a.dim + k) * r->a.inner + row % r->a.inner;
}

/* log-softmax over the classes of every row, in place. */
static void log_softmax(double *x, const class_rows *r)
{
    for (int64_t row = 0; row < r->a.outer * r->a.inner; row++) {
        double top = (double)-INFINITY, sum = 0.0;
        for (int64_t k = 0; k < r->a.dim; k++) {
            top = fmax(top, x[place(r, row, k)]);
        }
        for (int64_t k = 0; k < r->a.dim; k++) {
            sum += exp(x[place(r, row, k)] - top);
        }
        for (int64_t k = 0; k < r->a.dim; k++) {
            x[place(r, row, k)] = (x[place(r, row, k)] - top) - log(sum);
        }
    }
}

/* -- the standard's two: log-probabilities, labels, reduction --------------------------- */

static ru_status nll(const ru_ref_call *c, const double *logp, const class_rows *r, ru_err *err)
{
    const char *reduction = ru_node_str(c->node, RU_ATTR_reduction, "mean");
    int64_t rows = r->a.outer * r->a.inner;
    double *each, sum = 0.0, weights = 0.0;
    RU_TRY(rui_ref_zeros(c, rows, &each, err));
    for (int64_t row = 0; row < rows; row++) {
        if (!ignored(r, row)) {
            double w = weight_of(r, r->labels[row]);
            each[row] = -w * logp[place(r, row, r->labels[row])];
            sum += each[row];
            weights += w;
        }
    }
    if (strcmp(reduction, "none") == 0) {
        rui_ref_store(&c->out[0], each);
        return RU_OK;
    }
    if (strcmp(reduction, "mean") != 0 && strcmp(reduction, "sum") != 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "%s: reduction '%s' is none of none, mean, sum",
                       ru_op_get(c->node->op)->name, reduction);
    }
    sum = strcmp(reduction, "mean") == 0 ? sum / weights : sum;
    rui_ref_store(&c->out[0], &sum);
    return RU_OK;
}

ru_status rui_ref_NegativeLogLikelihoodLoss(const ru_ref_call *c, ru_err *err)
{
    class_rows r;
    double *x;
    RU_TRY(class_rows_make(c, &c->in[0].type, 1, 1, &r, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    return nll(c, x, &r, err);
}

ru_status rui_ref_SoftmaxCrossEntropyLoss(const ru_ref_call *c, ru_err *err)
{
    class_rows r;
    double *x;
    RU_TRY(class_rows_make(c, &c->in[0].type, 1, 1, &r, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    log_softmax(x, &r);
    if (rui_ref_has_out(c, 1)) {
        rui_ref_store(&c->out[1], x);
    }
    return nll(c, x, &r, err);
}

/* -- our own softmax cross entropy
 * -------------------------------------------------------------------------
 *
 * Attribute reduction "rows": the sum of weighted losses is divided by the number of rows, else by
 * the sum of their weights, as here.
 *
 * With smoothing e, row i of label y aims at t_k = (1-e) w_y [k = y] + e/C w_k, and
 *     loss = - sum_ik t_ik log p_ik / sum_i w_yi,   d loss/d logit_ik = (p_ik sum_k t_ik - t_ik) /
 * sum w. */

static double target(const class_rows *r, int64_t row, int64_t k, double smoothing)
{
    int64_t label = r->labels[row];
    double t = k == label ? (1.0 - smoothing) * weight_of(r, label) : 0.0;
    return t + smoothing / (double)r->a.dim * weight_of(r, k);
}

/* What the sum over the rows that count is divided by: the sum of their weights, or their number,
 * which is *rows_counted. */
static double total_weight(const class_rows *r, double *rows_counted)
{
    double sum = 0.0, n = 0.0;
    for (int64_t row = 0; row < r->a.outer * r->a.inner; row++) {
        if (!ignored(r, row)) {
            sum += weight_of(r, r->labels[row]);
            n += 1.0;
        }
    }
    *rows_counted = n;
    return r->by_rows ? n : sum;
}

/* probs -> dlogits, in place. All rows ignored gives zeros. */
static void logits_grad(double *p, const class_rows *r, double smoothing, double dloss)
{
    double n, weights = total_weight(r, &n);
    for (int64_t row = 0; row < r->a.outer * r->a.inner; row++) {
        double sum = 0.0;
        bool zero = ignored(r, row) || weights <= 0.0;
        for (int64_t k = 0; !zero && k < r->a.dim; k++) {
            sum += target(r, row, k, smoothing);
        }
        for (int64_t k = 0; k < r->a.dim; k++) {
            double *x = &p[place(r, row, k)];
            *x = zero ? 0.0 : dloss * (*x * sum - target(r, row, k, smoothing)) / weights;
        }
    }
}

/* First largest class of a row. */
static int64_t best_class(const double *x, const class_rows *r, int64_t row)
{
    int64_t best = 0;
    for (int64_t k = 1; k < r->a.dim; k++) {
        best = x[place(r, row, k)] > x[place(r, row, best)] ? k : best;
    }
    return best;
}

ru_status rui_ref_SoftmaxCrossEntropy(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    double smoothing = ru_node_float(c->node, RU_ATTR_label_smoothing, 0.0);
    class_rows r;
    double *x, n, loss = 0.0, correct = 0.0;
    RU_TRY(class_rows_make(c, t, t->rank - 1, 1, &r, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    int64_t rows = r.a.outer, count = rui_ref_count(t);
    for (int64_t row = 0; row < rows; row++) {
        correct += !ignored(&r, row) && best_class(x, &r, row) == r.labels[row];
    }
    log_softmax(x, &r);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t k = 0; !ignored(&r, row) && k < r.a.dim; k++) {
            double aim = target(&r, row, k, smoothing);
            loss -= aim != 0.0 ? aim * x[place(&r, row, k)] : 0.0;
        }
    }
    double weights = total_weight(&r, &n);
    loss = weights > 0.0 ? loss / weights : 0.0;
    for (int64_t i = 0; i < count; i++) {
        x[i] = exp(x[i]);
    }
    if (ru_node_int(c->node, RU_ATTR_fused, 0) != 0) {
        logits_grad(x, &r, smoothing, ru_node_float(c->node, RU_ATTR_scale, 1.0));
    }
    const double *results[] = {&loss, x, &correct, &n};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(results); k++) {
        if (rui_ref_has_out(c, k)) {
            rui_ref_store(&c->out[k], results[k]);
        }
    }
    return RU_OK;
}

/* (dloss, probs, labels, weight?) -> dlogits */
ru_status rui_ref_SoftmaxCrossEntropyGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[1].type;
    class_rows r;
    double *dloss, *p;
    RU_TRY(class_rows_make(c, t, t->rank - 1, 2, &r, err));
    RU_TRY(rui_ref_in(c, 0, &dloss, err));
    RU_TRY(rui_ref_in(c, 1, &p, err));
    logits_grad(p, &r, ru_node_float(c->node, RU_ATTR_label_smoothing, 0.0), dloss[0]);
    rui_ref_store(&c->out[0], p);
    return RU_OK;
}

/* -- element-wise losses, averaged ------------------------------------------------------ */

typedef double (*pair_fn)(double x, double t);

static double bce(double x, double t)
{
    return (x > 0.0 ? x : 0.0) - x * t + log1p(exp(-fabs(x)));
}

static double bce_slope(double x, double t)
{
    return (x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x))) - t;
}

static double square(double x, double t)
{
    return (x - t) * (x - t);
}

static double square_slope(double x, double t)
{
    return 2.0 * (x - t);
}

static ru_status mean_loss(const ru_ref_call *c, pair_fn f, ru_err *err)
{
    double *x, *t, sum = 0.0;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_load_as(c, &c->in[1], &c->in[0].type, &t, err));
    int64_t n = rui_ref_count(&c->in[0].type);
    for (int64_t i = 0; i < n; i++) {
        sum += f(x[i], t[i]);
    }
    sum = n > 0 ? sum / (double)n : 0.0;
    rui_ref_store(&c->out[0], &sum);
    return RU_OK;
}

/* (dloss, x, target) -> dx */
static ru_status mean_loss_grad(const ru_ref_call *c, pair_fn slope, ru_err *err)
{
    double *dloss, *x, *t;
    RU_TRY(rui_ref_in(c, 0, &dloss, err));
    RU_TRY(rui_ref_in(c, 1, &x, err));
    RU_TRY(rui_ref_load_as(c, &c->in[2], &c->in[1].type, &t, err));
    int64_t n = rui_ref_count(&c->in[1].type);
    for (int64_t i = 0; i < n; i++) {
        x[i] = dloss[0] * slope(x[i], t[i]) / (double)n;
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

ru_status rui_ref_BinaryCrossEntropyLogits(const ru_ref_call *c, ru_err *err)
{
    return mean_loss(c, bce, err);
}

ru_status rui_ref_BinaryCrossEntropyLogitsGrad(const ru_ref_call *c, ru_err *err)
{
    return mean_loss_grad(c, bce_slope, err);
}

ru_status rui_ref_MeanSquaredError(const ru_ref_call *c, ru_err *err)
{
    return mean_loss(c, square, err);
}

ru_status rui_ref_MeanSquaredErrorGrad(const ru_ref_call *c, ru_err *err)
{
    return mean_loss_grad(c, square_slope, err);
}
