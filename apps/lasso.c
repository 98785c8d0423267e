/* Lasso by blocks of coordinates:  minimise |y - X w|^2 / (2 n) + lambda |w|_1.
 *
 * Each clock the driver names a block of columns (lasso_drive.c). In that clock an executor first
 * takes the steps of the block before to its residuals, then adds its part of X_j . r for each
 * column of the new block to table `products`; the driver makes the next steps of them. So rows
 * stay where they are, and what travels are a few numbers a column.
 *
 * `products` is used anew each clock: executor 0 takes what stood there away. It also writes the
 * new weights into table `weights`, for checkpoints and exports.
 *
 * When workers die, the driver sends all weights, and everything is made again from them.
 *
 * Source: litz-2018 (the app), lee-2014 (blocks of nearly independent columns by priority). */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "apps/lasso_impl.h"

enum { WEIGHTS, PRODUCTS };

typedef struct executor {
    const rui_lasso *m;
    ru_sparse part;
    rui_columns columns;
    double *residual; /* [rows] */
    bool first;       /* executor 0 */
    uint32_t *list;   /* [cols] columns of the block before, or of all weights */
} executor;

void rui_columns_fini(rui_columns *c)
{
    free(c->begin);
    free(c->row);
    free(c->value);
    *c = (rui_columns){0};
}

ru_status rui_columns_init(rui_columns *c, const ru_sparse *s, int64_t stride, ru_err *err)
{
    int64_t n = 0, cols = s->cols;
    *c = (rui_columns){0};
    for (int64_t r = 0; r < s->rows; r += stride) {
        n += s->begin[r + 1] - s->begin[r];
    }
    c->begin = calloc((size_t)cols + 2, sizeof *c->begin);
    c->row = calloc((size_t)n + 1, sizeof *c->row);
    c->value = calloc((size_t)n + 1, sizeof *c->value);
    if (c->begin == NULL || c->row == NULL || c->value == NULL) {
        rui_columns_fini(c);
        return RU_FAIL(err, RU_E_MEM, "no memory for %lld columns", (long long)cols);
    }
    for (int64_t r = 0; r < s->rows; r += stride) {
        for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            c->begin[(s->col != NULL ? s->col[i] : i - s->begin[r]) + 2]++;
        }
    }
    for (int64_t j = 0; j < cols; j++) {
        c->begin[j + 2] += c->begin[j + 1];
    }
    for (int64_t r = 0; r < s->rows; r += stride) {
        for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            int64_t at = c->begin[(s->col != NULL ? s->col[i] : i - s->begin[r]) + 1]++;
            c->row[at] = (uint32_t)r;
            c->value[at] = s->value[i];
        }
    }
    return RU_OK;
}

/* -- the app ----------------------------------------------------------------------------------- */

static ru_status lasso_open(const ru_app_setup *setup, void **self, ru_err *err)
{
    rui_lasso *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the app");
    }
    m->set = *(const rui_lasso_settings *)setup->config;
    m->rows = setup->rows;
    m->cols = setup->cols;
    m->seed = setup->seed;
    m->data = setup->data;
    m->block = (uint32_t)(m->set.block < m->cols ? m->set.block : m->cols);
    *self = m;
    return RU_OK;
}

static uint32_t lasso_tables(const void *self, ru_app_table *tables)
{
    const rui_lasso *m = self;
    tables[WEIGHTS] =
        (ru_app_table){.name = "weights", .rows = m->cols, .width = 1, .rule = RU_APP_ADD};
    tables[PRODUCTS] = (ru_app_table){
        .name = "products", .rows = m->block, .width = 1, .rule = RU_APP_ADD, .hidden = true};
    return 2;
}

static uint32_t lasso_pieces(const void *self)
{
    const rui_lasso *m = self;
    return (uint32_t)((m->cols + m->block - 1) / m->block);
}

static void lasso_exec_close(void *state)
{
    executor *x = state;
    rui_columns_fini(&x->columns);
    free(x->residual);
    free(x->list);
    free(x);
}

/* Residuals of no weights. */
static void begin(executor *x)
{
    for (int64_t r = 0; r < x->part.rows; r++) {
        x->residual[r] = (double)x->part.label[r];
    }
}

static ru_status lasso_exec_open(const void *self, uint32_t k, const ru_sparse *part, void **state,
                                 ru_err *err)
{
    const rui_lasso *m = self;
    executor *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an executor");
    }
    x->m = m;
    x->part = *part;
    x->first = k == 0;
    x->residual = calloc((size_t)part->rows + 1, sizeof *x->residual);
    x->list = calloc((size_t)m->cols + 1, sizeof *x->list);
    ru_status st = x->residual != NULL && x->list != NULL
                       ? rui_columns_init(&x->columns, part, 1, err)
                       : RU_FAIL(err, RU_E_MEM, "no memory for residuals");
    if (st != RU_OK) {
        lasso_exec_close(x);
        return st;
    }
    begin(x);
    *state = x;
    return RU_OK;
}

static void lasso_exec_save(const void *state, ru_app_bytes *to)
{
    const executor *x = state;
    ru_app_put(to, x->residual, x->part.rows * (int64_t)sizeof *x->residual);
}

static ru_status lasso_exec_load(void *state, const void *bytes, int64_t n, ru_err *err)
{
    executor *x = state;
    ru_app_cursor from = {bytes, n};
    bool fits =
        ru_app_take(&from, x->residual, x->part.rows * (int64_t)sizeof *x->residual) && from.n == 0;
    return fits ? RU_OK : RU_FAIL(err, RU_E_DATA, "the state belongs to other rows");
}

static uint32_t lasso_wants(void *state, const ru_app_task *task, ru_app_want *wants, uint32_t max)
{
    (void)max;
    executor *x = state;
    rui_lasso_args a = rui_lasso_args_of(task->args, task->args_bytes);
    uint32_t n = 0;
    wants[n++] = (ru_app_want){.table = PRODUCTS, .rows = a.n_block, .write = true};
    if (x->first && a.n_steps > 0) {
        for (uint32_t k = 0; k < a.n_steps; k++) {
            x->list[k] = a.steps[k].col;
        }
        wants[n++] =
            (ru_app_want){.table = WEIGHTS, .rows = a.n_steps, .list = x->list, .write = true};
    }
    return n;
}

static ru_status lasso_run(void *state, const ru_app_task *task, const ru_app_view *view,
                           ru_app_result *result, ru_err *err)
{
    (void)err;
    executor *x = state;
    const rui_columns *c = &x->columns;
    rui_lasso_args a = rui_lasso_args_of(task->args, task->args_bytes);
    if (task->recount) { /* the steps are all weights */
        begin(x);
    }
    for (uint32_t k = 0; k < a.n_steps; k++) {
        const rui_lasso_step *s = &a.steps[k];
        for (int64_t i = rui_columns_first(c, s->col); i < rui_columns_end(c, s->col); i++) {
            x->residual[c->row[i]] -= s->change * (double)c->value[i];
        }
        if (x->first) {
            view->value[1][k] = (float)s->weight;
        }
    }
    for (uint32_t k = 0; k < a.n_block; k++) {
        double dot = 0.0;
        for (int64_t i = rui_columns_first(c, a.block[k]); i < rui_columns_end(c, a.block[k]);
             i++) {
            dot += x->residual[c->row[i]] * (double)c->value[i];
        }
        view->value[0][k] = (x->first ? 0.0F : view->value[0][k]) + (float)dot;
    }
    for (int64_t r = 0; r < x->part.rows; r++) {
        result->sums[0] += x->residual[r] * x->residual[r];
    }
    result->sums[1] = x->first ? a.norm1 : 0.0;
    return RU_OK;
}

static double lasso_objective(const void *self, const double *sums, const float *const *told)
{
    (void)told;
    const rui_lasso *m = self;
    return sums[0] / (2.0 * (double)m->rows) + m->set.lambda * sums[1];
}

/* -- use --------------------------------------------------------------------------------------- */

static double value_of(const float *w, const ru_sparse *part, int64_t r)
{
    double y = 0.0;
    for (int64_t i = part->begin[r]; i < part->begin[r + 1]; i++) {
        int64_t col = part->col != NULL ? part->col[i] : i - part->begin[r];
        y += (double)w[col] * (double)part->value[i];
    }
    return y;
}

static ru_status lasso_eval(const void *self, const float *const *tables, const ru_sparse *part,
                            double *sums, ru_err *err)
{
    (void)self;
    (void)err;
    for (int64_t r = 0; r < part->rows; r++) {
        double e = (double)part->label[r] - value_of(tables[WEIGHTS], part, r);
        sums[0] += e * e;
        sums[1] += 1.0;
    }
    return RU_OK;
}

static uint32_t lasso_metrics(const void *self, const double *sums, ru_app_metric *metrics)
{
    (void)self;
    metrics[0] = (ru_app_metric){"mse", sums[0] / sums[1]};
    return 1;
}

static ru_status lasso_predict(const void *self, const float *const *tables, const ru_sparse *part,
                               int64_t row, ru_text *out, ru_err *err)
{
    (void)self;
    (void)err;
    ru_text_f64(out, value_of(tables[WEIGHTS], part, row));
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(F64, rui_lasso_settings, lambda, "0.1",
           "L1 penalty: factor of the sum of absolute weights", RU_IN(0, 1e12)),
    RU_ROW(I64, rui_lasso_settings, block, "32",
           "largest number of columns in a clock; Rubato takes fewer when the objective rises",
           RU_IN(1, 1 << 16)),
    RU_ROW(F64, rui_lasso_settings, correlation, "0.1",
           "largest correlation of two columns in a block", RU_OVER(0, 1)),
};
static const ru_conf_table table =
    RU_TABLE("lasso", rui_lasso_settings, fields, "lasso", .called = "alpha=lambda|l1=lambda");

const ru_app_ops ru_app_lasso = {
    .version = RU_APP_VERSION,
    .name = "lasso",
    .help = "sparse linear regression by blocks of coordinates",
    .config = &table,
    .config_bytes = sizeof(rui_lasso_settings),
    .labels = true,
    .recount = RU_APP_RECOUNT_DRIVER,
    .open = lasso_open,
    .close = free,
    .tables = lasso_tables,
    .pieces = lasso_pieces,
    .exec_open = lasso_exec_open,
    .exec_close = lasso_exec_close,
    .exec_save = lasso_exec_save,
    .exec_load = lasso_exec_load,
    .wants = lasso_wants,
    .run = lasso_run,
    .drive_open = rui_lasso_drive_open,
    .drive_close = rui_lasso_drive_close,
    .drive_wants = rui_lasso_drive_wants,
    .drive = rui_lasso_drive,
    .drive_save = rui_lasso_drive_save,
    .drive_load = rui_lasso_drive_load,
    .objective = lasso_objective,
    .objective_name = "loss",
    .eval = lasso_eval,
    .metrics = lasso_metrics,
    .predict = lasso_predict,
};
