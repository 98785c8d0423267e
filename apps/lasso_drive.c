/* The driver of lasso: which columns, and their steps.
 *
 * Steps of one block are taken at the same time, which converges when its columns are nearly
 * independent. So a block is drawn column by column, those whose weight moved most first, and a
 * column is left out when its correlation with one already in the block is at the bound. The
 * correlation is estimated on at most 512 rows that stand evenly in the data. When the objective
 * rises all the same, blocks are halved; they grow again slowly.
 *
 * Source: lee-2014. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "apps/lasso_impl.h"

enum {
    SAMPLE_ROWS = 512,
    CANDIDATES = 4, /* columns that are looked at for each place of a block */
};
static const double priority_min = 1e-4; /* of a column whose weight did not move */

typedef struct candidate {
    double key;
    uint32_t col;
} candidate;

typedef struct driver {
    const rui_lasso *m;
    rui_columns sample;
    double *norm;     /* [cols] X_j . X_j over all rows */
    double *around;   /* [cols] the same over the sample */
    double *weight;   /* [cols] */
    double *priority; /* [cols] */
    candidate *pool;  /* [cols] */
    uint32_t *block;  /* [m->block] of the clock before, ascending */
    rui_lasso_step *steps;
    float *dense; /* [rows] a column of the sample, zeros between uses */
    uint32_t n_block, size;
    double before; /* objective of the clock before; < 0: none */
} driver;

void rui_lasso_drive_close(void *self)
{
    driver *d = self;
    rui_columns_fini(&d->sample);
    free(d->norm);
    free(d->around);
    free(d->weight);
    free(d->priority);
    free(d->pool);
    free(d->block);
    free(d->steps);
    free(d->dense);
    free(d);
}

static void find_norms(driver *d, const ru_sparse *all)
{
    for (int64_t r = 0; r < all->rows; r++) {
        for (int64_t i = all->begin[r]; i < all->begin[r + 1]; i++) {
            int64_t col = all->col != NULL ? all->col[i] : i - all->begin[r];
            d->norm[col] += (double)all->value[i] * (double)all->value[i];
        }
    }
    for (int64_t j = 0; j < d->m->cols; j++) {
        for (int64_t i = rui_columns_first(&d->sample, j); i < rui_columns_end(&d->sample, j);
             i++) {
            d->around[j] += (double)d->sample.value[i] * (double)d->sample.value[i];
        }
        d->priority[j] = 1.0; /* every column is tried first */
    }
}

ru_status rui_lasso_drive_open(const void *self, void **out, ru_err *err)
{
    const rui_lasso *m = self;
    driver *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the driver");
    }
    size_t cols = (size_t)m->cols;
    d->m = m;
    d->size = m->block;
    d->before = -1.0;
    d->norm = calloc(cols, sizeof *d->norm);
    d->around = calloc(cols, sizeof *d->around);
    d->weight = calloc(cols, sizeof *d->weight);
    d->priority = calloc(cols, sizeof *d->priority);
    d->pool = calloc(cols, sizeof *d->pool);
    d->block = calloc(m->block, sizeof *d->block);
    d->steps = calloc(m->block, sizeof *d->steps);
    d->dense = calloc((size_t)m->rows, sizeof *d->dense);
    ru_sparse all;
    ru_sparse_part(m->data, 0, m->rows, &all);
    bool fine = d->norm != NULL && d->around != NULL && d->weight != NULL && d->priority != NULL &&
                d->pool != NULL && d->block != NULL && d->steps != NULL && d->dense != NULL;
    ru_status st = fine ? rui_columns_init(&d->sample, &all, 1 + m->rows / SAMPLE_ROWS, err)
                        : RU_FAIL(err, RU_E_MEM, "no memory for %zu columns", cols);
    if (st != RU_OK) {
        rui_lasso_drive_close(d);
        return st;
    }
    find_norms(d, &all);
    *out = d;
    return RU_OK;
}

uint32_t rui_lasso_drive_wants(void *self, uint32_t clock, ru_app_want *wants, uint32_t max)
{
    (void)max;
    const driver *d = self;
    if (clock == 0) {
        return 0;
    }
    wants[0] = (ru_app_want){.table = 1, .rows = d->n_block};
    return 1;
}

/* Steps of the block from its products; returns how many weights move. */
static uint32_t take_steps(driver *d, const float *products)
{
    uint32_t n = 0;
    double rows = (double)d->m->rows;
    for (uint32_t k = 0; k < d->n_block; k++) {
        uint32_t j = d->block[k];
        double scale = d->norm[j] / rows, at = (double)products[k] / rows + d->weight[j] * scale;
        double size = fabs(at) - d->m->set.lambda;
        double w = size > 0 && scale > 0 ? copysign(size, at) / scale : 0.0;
        double change = w - d->weight[j];
        d->priority[j] = fabs(change) * sqrt(scale) + priority_min;
        if (change != 0.0) {
            d->weight[j] = w;
            d->steps[n++] = (rui_lasso_step){.change = change, .weight = w, .col = j};
        }
    }
    return n;
}

static int larger_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? 1 : -1) : (x->col > y->col) - (x->col < y->col);
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Is column j nearly independent of the n columns chosen so far? */
static bool independent(driver *d, uint32_t j, uint32_t n)
{
    const rui_columns *c = &d->sample;
    bool fine = true;
    for (int64_t i = rui_columns_first(c, j); i < rui_columns_end(c, j); i++) {
        d->dense[c->row[i]] = c->value[i];
    }
    for (uint32_t k = 0; k < n && fine; k++) {
        uint32_t other = d->block[k];
        double dot = 0.0, bound = d->m->set.correlation;
        for (int64_t i = rui_columns_first(c, other); i < rui_columns_end(c, other); i++) {
            dot += (double)c->value[i] * (double)d->dense[c->row[i]];
        }
        fine = dot * dot <= bound * bound * d->around[j] * d->around[other];
    }
    for (int64_t i = rui_columns_first(c, j); i < rui_columns_end(c, j); i++) {
        d->dense[c->row[i]] = 0.0F;
    }
    return fine;
}

/* The next block: keys u^(1/priority) draw without putting back (efraimidis-2006). */
static void choose(driver *d, uint32_t clock)
{
    ru_rng rng = ru_rng_from(d->m->seed, ru_rng_label("lasso") + clock);
    int64_t cols = d->m->cols;
    for (int64_t j = 0; j < cols; j++) {
        d->pool[j] = (candidate){-ru_rng_exponential(&rng) / d->priority[j], (uint32_t)j};
    }
    qsort(d->pool, (size_t)cols, sizeof *d->pool, larger_first);
    d->n_block = 0;
    for (int64_t k = 0; k < cols && k < (int64_t)d->size * CANDIDATES && d->n_block < d->size;
         k++) {
        if (d->norm[d->pool[k].col] > 0 && independent(d, d->pool[k].col, d->n_block)) {
            d->block[d->n_block++] = d->pool[k].col;
        }
    }
    qsort(d->block, d->n_block, sizeof *d->block, by_number);
}

/* Fewer columns at a time when the objective rose, else slowly more. */
static void resize(driver *d, const double *sums)
{
    double now = sums[0] / (2.0 * (double)d->m->rows) + d->m->set.lambda * sums[1];
    if (d->before >= 0 && now > d->before * (1.0 + 1e-6)) {
        d->size = d->size > 1 ? d->size / 2 : 1;
    } else {
        uint32_t more = d->size + 1 + d->size / 16;
        d->size = more < d->m->block ? more : d->m->block;
    }
    d->before = now;
}

ru_status rui_lasso_drive(void *self, uint32_t clock, const double *sums, const ru_app_view *view,
                          ru_app_bytes *args, ru_err *err)
{
    (void)err;
    driver *d = self;
    rui_lasso_head head = {0};
    bool again = clock > 0 && sums == NULL; /* everybody begins with these weights */
    if (clock > 0 && !again) {
        resize(d, sums);
        head.n_steps = take_steps(d, view->value[0]);
    }
    choose(d, clock);
    head.n_block = d->n_block;
    for (int64_t j = 0; j < d->m->cols; j++) {
        head.norm1 += fabs(d->weight[j]);
        head.n_steps += again && d->weight[j] != 0.0 ? 1 : 0;
    }
    ru_app_put(args, &head, sizeof head);
    for (int64_t j = 0; again && j < d->m->cols; j++) {
        const rui_lasso_step step = {
            .change = d->weight[j], .weight = d->weight[j], .col = (uint32_t)j};
        if (d->weight[j] != 0.0) {
            ru_app_put(args, &step, sizeof step);
        }
    }
    ru_app_put(args, d->steps, again ? 0 : head.n_steps * (int64_t)sizeof *d->steps);
    ru_app_put(args, d->block, head.n_block * (int64_t)sizeof *d->block);
    return RU_OK;
}

void rui_lasso_drive_save(const void *self, ru_app_bytes *to)
{
    const driver *d = self;
    int64_t cols = d->m->cols;
    ru_app_put(to, &d->n_block, sizeof d->n_block);
    ru_app_put(to, &d->size, sizeof d->size);
    ru_app_put(to, &d->before, sizeof d->before);
    ru_app_put(to, d->block, d->n_block * (int64_t)sizeof *d->block);
    ru_app_put(to, d->weight, cols * (int64_t)sizeof *d->weight);
    ru_app_put(to, d->priority, cols * (int64_t)sizeof *d->priority);
}

ru_status rui_lasso_drive_load(void *self, const void *bytes, int64_t n, ru_err *err)
{
    driver *d = self;
    ru_app_cursor c = {bytes, n};
    int64_t cols = d->m->cols;
    uint32_t n_block = 0, size = 0;
    bool fits = ru_app_take(&c, &n_block, sizeof n_block) && n_block <= d->m->block &&
                ru_app_take(&c, &size, sizeof size) && size >= 1 && size <= d->m->block &&
                ru_app_take(&c, &d->before, sizeof d->before) &&
                ru_app_take(&c, d->block, n_block * (int64_t)sizeof *d->block) &&
                ru_app_take(&c, d->weight, cols * (int64_t)sizeof *d->weight) &&
                ru_app_take(&c, d->priority, cols * (int64_t)sizeof *d->priority) && c.n == 0;
    for (uint32_t k = 0; fits && k < n_block; k++) {
        fits = d->block[k] < cols && (k == 0 || d->block[k] > d->block[k - 1]);
    }
    for (int64_t j = 0; fits && j < cols; j++) {
        fits = isfinite(d->weight[j]) && d->priority[j] > 0;
    }
    d->n_block = n_block;
    d->size = size;
    return fits ? RU_OK
                : RU_FAIL(err, RU_E_DATA, "the state of the driver is damaged or of another job");
}
