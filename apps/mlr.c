/* Multinomial logistic regression by mini-batch gradient descent on sparse or dense rows.
 *
 * Table `weights`: a row of one number a class for each feature, and one for the bias behind them.
 * A task reads and changes only the rows of the features that its examples have:
 *
 *     P = softmax(X W)    W += -lr / n X' (P - Y)    n: examples of the clock over all executors
 *
 * The sum over executors of these changes is the step of the whole mini-batch.
 *
 * Source: litz-2018 (the app). */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "train/app/app.h"

typedef struct settings {
    double lr, decay;
    int64_t batch, classes;
} settings;

typedef struct mlr {
    settings set;
    int64_t cols, classes;
    uint32_t pieces;
    double batch; /* examples of a clock over all executors */
} mlr;

typedef struct executor {
    const mlr *m;
    ru_sparse part;
    uint32_t *list;           /* [cols + 1] rows that the task at hand wants, ascending */
    uint32_t *place;          /* [cols + 1] of a row in the list, + 1; 0: not in it */
    int64_t n;                /* rows of the list, */
    int64_t list_lo, list_hi; /* which is that of these examples */
    double *p;                /* [classes] */
} executor;

static ru_status mlr_open(const ru_app_setup *setup, void **self, ru_err *err)
{
    mlr *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the app");
    }
    m->set = *(const settings *)setup->config;
    m->cols = setup->cols;
    int64_t found = setup->classes, rows = setup->rows;
    m->classes = m->set.classes > 0 ? m->set.classes : found;
    if (found == 0 || found > m->classes || m->classes < 2) {
        free(m);
        return RU_FAIL(err, RU_E_DATA,
                       found == 0
                           ? "the labels are not class numbers (whole numbers from 0, or -1 and 1)"
                           : "the labels name %lld classes; expected 2 to mlr.classes",
                       (long long)found);
    }
    int64_t pieces = (rows + m->set.batch - 1) / m->set.batch;
    m->pieces = (uint32_t)(pieces < 1 ? 1 : pieces > 1 << 30 ? 1 << 30 : pieces);
    m->batch = (double)rows / m->pieces;
    *self = m;
    return RU_OK;
}

static uint32_t mlr_tables(const void *self, ru_app_table *tables)
{
    const mlr *m = self;
    tables[0] = (ru_app_table){.name = "weights",
                               .rows = m->cols + 1,
                               .width = (uint32_t)m->classes,
                               .rule = RU_APP_STEP,
                               .lr = 1.0};
    return 1;
}

static uint32_t mlr_pieces(const void *self)
{
    return ((const mlr *)self)->pieces;
}

static void mlr_exec_close(void *state)
{
    executor *x = state;
    free(x->list);
    free(x->place);
    free(x->p);
    free(x);
}

static ru_status mlr_exec_open(const void *self, uint32_t k, const ru_sparse *part, void **state,
                               ru_err *err)
{
    (void)k;
    const mlr *m = self;
    executor *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an executor");
    }
    x->m = m;
    x->part = *part;
    x->list = calloc((size_t)m->cols + 1, sizeof *x->list);
    x->place = calloc((size_t)m->cols + 1, sizeof *x->place);
    x->p = calloc((size_t)m->classes, sizeof *x->p);
    if (x->list == NULL || x->place == NULL || x->p == NULL) {
        mlr_exec_close(x);
        return RU_FAIL(err, RU_E_MEM, "no memory for the lists of an executor");
    }
    *state = x;
    return RU_OK;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The rows of examples lo .. hi - 1, and the bias. */
static void list_rows(executor *x, int64_t lo, int64_t hi)
{
    if (x->n > 0 && lo == x->list_lo && hi == x->list_hi) { /* of the last clock */
        return;
    }
    x->list_lo = lo;
    x->list_hi = hi;
    for (int64_t i = 0; i < x->n; i++) {
        x->place[x->list[i]] = 0;
    }
    x->n = 0;
    int64_t begin = x->part.begin[lo], end = x->part.begin[hi], cols = x->m->cols;
    for (int64_t i = begin; x->part.col != NULL && i < end; i++) {
        uint32_t c = x->part.col[i];
        if (x->place[c] == 0) {
            x->place[c] = 1;
            x->list[x->n++] = c;
        }
    }
    for (int64_t c = 0; x->part.col == NULL && c < cols && lo < hi; c++) {
        x->list[x->n++] = (uint32_t)c;
    }
    if (x->part.col != NULL) {
        qsort(x->list, (size_t)x->n, sizeof *x->list, by_number);
    }
    x->list[x->n++] = (uint32_t)cols;
    for (int64_t i = 0; i < x->n; i++) {
        x->place[x->list[i]] = (uint32_t)i + 1;
    }
}

static uint32_t mlr_wants(void *state, const ru_app_task *task, ru_app_want *wants, uint32_t max)
{
    (void)max;
    executor *x = state;
    list_rows(x, task->lo, task->hi);
    wants[0] = (ru_app_want){.table = 0, .rows = x->n, .list = x->list, .write = true};
    return 1;
}

/* Column of entry i of row r. */
static int64_t col_of(const ru_sparse *s, int64_t r, int64_t i)
{
    return s->col != NULL ? s->col[i] : i - s->begin[r];
}

/* p [classes] becomes the probabilities of the classes; returns log p of class y. */
static double softmax(double *p, int64_t classes, int64_t y)
{
    double most = p[0], sum = 0.0;
    for (int64_t k = 1; k < classes; k++) {
        most = p[k] > most ? p[k] : most;
    }
    double at = p[y] - most;
    for (int64_t k = 0; k < classes; k++) {
        p[k] = exp(p[k] - most);
        sum += p[k];
    }
    for (int64_t k = 0; k < classes; k++) {
        p[k] /= sum;
    }
    return at - log(sum);
}

static int64_t best_of(const double *p, int64_t classes)
{
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++) {
        best = p[k] > p[best] ? k : best;
    }
    return best;
}

/* Labels -1 and 1 are classes 0 and 1. */
static int64_t class_of(float label)
{
    return label < 0.0F ? 0 : (int64_t)label;
}

static void add_row(double *p, const float *w, double v, int64_t classes)
{
    for (int64_t k = 0; k < classes; k++) {
        p[k] += v * (double)w[k];
    }
}

/* Adds `scale` times the gradient of example r to rows in the order of the list. */
static void example(executor *x, const float *w, float *grad, double scale, int64_t r, double *sums)
{
    int64_t classes = x->m->classes, y = class_of(x->part.label[r]), bias = x->n - 1;
    memset(x->p, 0, (size_t)classes * sizeof *x->p);
    add_row(x->p, w + bias * classes, 1.0, classes);
    for (int64_t i = x->part.begin[r]; i < x->part.begin[r + 1]; i++) {
        int64_t at = (int64_t)x->place[col_of(&x->part, r, i)] - 1;
        add_row(x->p, w + at * classes, (double)x->part.value[i], classes);
    }
    sums[2] += best_of(x->p, classes) == y;
    sums[0] -= softmax(x->p, classes, y);
    sums[1] += 1.0;
    x->p[y] -= 1.0;
    for (int64_t k = 0; k < classes; k++) {
        x->p[k] *= scale;
    }
    for (int64_t i = x->part.begin[r]; i <= x->part.begin[r + 1]; i++) {
        bool entry = i < x->part.begin[r + 1];
        int64_t at = entry ? (int64_t)x->place[col_of(&x->part, r, i)] - 1 : bias;
        float v = entry ? x->part.value[i] : 1.0F, *g = grad + at * classes;
        for (int64_t k = 0; k < classes; k++) {
            g[k] += v * (float)x->p[k];
        }
    }
}

static ru_status mlr_run(void *state, const ru_app_task *task, const ru_app_view *view,
                         ru_app_result *result, ru_err *err)
{
    (void)err;
    executor *x = state;
    const settings *set = &x->m->set;
    double lr = set->lr;
    if (set->decay > 0) {
        lr /= 1.0 + (double)task->clock / set->decay;
    }
    double scale = lr / x->m->batch;
    for (int64_t r = task->lo; r < task->hi; r++) {
        example(x, view->value[0], view->delta[0], scale, r, result->sums);
    }
    return RU_OK;
}

static double mlr_objective(const void *self, const double *sums, const float *const *told)
{
    (void)self;
    (void)told;
    return sums[1] > 0 ? sums[0] / sums[1] : RU_NAN;
}

/* -- use --------------------------------------------------------------------------------------- */

static void scores(const mlr *m, const float *w, const ru_sparse *part, int64_t r, double *p)
{
    memset(p, 0, (size_t)m->classes * sizeof *p);
    add_row(p, w + m->cols * m->classes, 1.0, m->classes);
    for (int64_t i = part->begin[r]; i < part->begin[r + 1]; i++) {
        add_row(p, w + col_of(part, r, i) * m->classes, (double)part->value[i], m->classes);
    }
}

static ru_status mlr_eval(const void *self, const float *const *tables, const ru_sparse *part,
                          double *sums, ru_err *err)
{
    const mlr *m = self;
    double *p = calloc((size_t)m->classes, sizeof *p);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %lld classes", (long long)m->classes);
    }
    for (int64_t r = 0; r < part->rows; r++) {
        float label = part->label[r];
        if (!(label >= -1.0F && label < (float)m->classes) || label != truncf(label)) {
            free(p);
            return RU_FAIL(err, RU_E_DATA,
                           "row %lld has the label %g; expected a class from 0 to %lld",
                           (long long)r + 1, (double)label, (long long)m->classes - 1);
        }
        int64_t y = class_of(label);
        scores(m, tables[0], part, r, p);
        sums[2] += best_of(p, m->classes) == y;
        sums[0] -= softmax(p, m->classes, y);
        sums[1] += 1.0;
    }
    free(p);
    return RU_OK;
}

static uint32_t mlr_metrics(const void *self, const double *sums, ru_app_metric *metrics)
{
    (void)self;
    metrics[0] = (ru_app_metric){"accuracy", sums[2] / sums[1]};
    metrics[1] = (ru_app_metric){"loss", sums[0] / sums[1]};
    return 2;
}

static ru_status mlr_predict(const void *self, const float *const *tables, const ru_sparse *part,
                             int64_t row, ru_text *out, ru_err *err)
{
    const mlr *m = self;
    double *p = calloc((size_t)m->classes, sizeof *p);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %lld classes", (long long)m->classes);
    }
    scores(m, tables[0], part, row, p);
    ru_text_putf(out, "%lld", (long long)best_of(p, m->classes));
    free(p);
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(F64, settings, lr, "0.5", "learning rate of the first clock", RU_OVER(0, 1e6)),
    RU_ROW(F64, settings, decay, "0",
           "the learning rate of clock c is lr / (1 + c / decay); 0: constant", RU_IN(0, 1e12)),
    RU_ROW(I64, settings, batch, "1024", "number of examples in a clock, over all executors",
           RU_IN(1, 1e15)),
    RU_ROW(I64, settings, classes, "0", "number of classes; 0: those of the training data",
           RU_IN(0, 1 << 20)),
};
static const ru_conf_table table =
    RU_TABLE("mlr", settings, fields, "multinomial logistic regression",
             .called = "learning_rate=lr|batch_size=batch");

const ru_app_ops ru_app_mlr = {
    .version = RU_APP_VERSION,
    .name = "mlr",
    .partial = true,
    .help = "multinomial logistic regression by mini-batch gradient descent",
    .config = &table,
    .config_bytes = sizeof(settings),
    .labels = true,
    .open = mlr_open,
    .close = free,
    .tables = mlr_tables,
    .pieces = mlr_pieces,
    .exec_open = mlr_exec_open,
    .exec_close = mlr_exec_close,
    .wants = mlr_wants,
    .run = mlr_run,
    .objective = mlr_objective,
    .objective_name = "loss",
    .eval = mlr_eval,
    .metrics = mlr_metrics,
    .predict = mlr_predict,
};
