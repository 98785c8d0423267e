/* Inside of lasso: columns, what the driver tells the executors.
 *
 * Thread: the driver and each executor on one thread at a time. */
#ifndef RU_APPS_LASSO_IMPL_H
#define RU_APPS_LASSO_IMPL_H

#include "train/app/app.h"

typedef struct rui_lasso_settings {
    double lambda, correlation;
    int64_t block;
} rui_lasso_settings;

typedef struct rui_lasso {
    rui_lasso_settings set;
    const ru_sparse_file *data;
    int64_t rows, cols;
    uint32_t block;
    uint64_t seed;
} rui_lasso;

/* Some rows, column by column. */
typedef struct rui_columns {
    int64_t *begin; /* [cols + 2] column j: rui_columns_first .. rui_columns_end - 1 */
    uint32_t *row;
    float *value;
} rui_columns;

/* Rows 0, stride, 2 stride ... of `s`. */
RU_MUST_USE ru_status rui_columns_init(rui_columns *c, const ru_sparse *s, int64_t stride,
                                       ru_err *err);
void rui_columns_fini(rui_columns *c);

static inline int64_t rui_columns_first(const rui_columns *c, int64_t col)
{
    return c->begin[col];
}

static inline int64_t rui_columns_end(const rui_columns *c, int64_t col)
{
    return c->begin[col + 1];
}

typedef struct rui_lasso_step {
    double change, weight; /* of the weight, its new value */
    uint32_t col, unused;
} rui_lasso_step;

/* Arguments of a clock: a head, n_steps steps by column, then n_block columns. */
typedef struct rui_lasso_args {
    double norm1; /* sum of absolute weights after the steps */
    uint32_t n_steps, n_block;
    const rui_lasso_step *steps;
    const uint32_t *block;
} rui_lasso_args;

typedef struct rui_lasso_head {
    double norm1;
    uint32_t n_steps, n_block;
} rui_lasso_head;

/* View of the bytes; none of both when there are none. */
static inline rui_lasso_args rui_lasso_args_of(const void *bytes, int64_t n)
{
    if (n < (int64_t)sizeof(rui_lasso_head)) {
        return (rui_lasso_args){0};
    }
    const rui_lasso_head *h = bytes;
    const rui_lasso_step *steps = (const rui_lasso_step *)(const void *)(h + 1);
    return (rui_lasso_args){.norm1 = h->norm1,
                            .n_steps = h->n_steps,
                            .n_block = h->n_block,
                            .steps = steps,
                            .block = (const uint32_t *)(const void *)(steps + h->n_steps)};
}

/* lasso_drive.c */
ru_status rui_lasso_drive_open(const void *self, void **driver, ru_err *err);
void rui_lasso_drive_close(void *driver);
uint32_t rui_lasso_drive_wants(void *driver, uint32_t clock, ru_app_want *wants, uint32_t max);
ru_status rui_lasso_drive(void *driver, uint32_t clock, const double *sums, const ru_app_view *view,
                          ru_app_bytes *args, ru_err *err);
void rui_lasso_drive_save(const void *driver, ru_app_bytes *to);
ru_status rui_lasso_drive_load(void *driver, const void *bytes, int64_t n, ru_err *err);

#endif
