/* Matrix factorisation: a rating is mean + bias of the user + bias of the item + u . v.
 *
 * update: rotation      rows of users are local, those of items rotate in blocks; every rating is a
 *                       plain step on rows that nobody else holds
 *         adarevision   items are shared: gradients of a clock go to the servers, whose rule
 *                       corrects the step for what others added meanwhile; users are local, with a
 *                       step size by AdaGrad
 *
 * Ratings of an executor are cut by blocks of items, and stand user by user within a block.
 *
 * Source: litz-2018 (rotation), adarevision-2014. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "apps/mf_kern.h"
#include "train/app/app.h"

enum { ROTATION, ADAREVISION };
enum { USERS, ITEMS, MEAN, USER_BIAS, ITEM_BIAS, TABLES_BIAS };
enum { SUMS = USER_BIAS }; /* adarevision: squares of users' gradients, in place of the biases */

typedef struct settings {
    int64_t rank, pieces;
    double lr, lambda, decay, spread;
    uint32_t update;
    bool bias;
} settings;

typedef struct mf {
    settings set;
    int64_t users, items;
    uint32_t width, blocks;
    float mean;
    uint32_t base; /* number of the first user and item in the files */
    int64_t *cut;  /* [executors + 1] blocks of items with as many ratings each */
} mf;

typedef struct block {
    int64_t first; /* user run and rating where the block begins */
    int64_t rating;
} block;

typedef struct executor {
    const mf *m;
    ru_sparse part;
    uint32_t blocks;
    int64_t *run;                     /* [blocks + 1] first run of users of each block */
    uint32_t *user;                   /* [runs] within the part */
    int64_t *begin;                   /* [runs + 1] */
    uint32_t *item;                   /* [ratings + RUI_MF_AHEAD] within the block */
    float *value;                     /* [ratings] */
    uint32_t *list;                   /* adarevision: items of the task, ascending */
    int64_t list_lo, list_hi, listed; /* of these rows; it has so many */
    uint32_t *place;                  /* [items] of an item in the list */
} executor;

/* Blocks of items that have equal shares of the ratings. */
static ru_status cut_items(mf *m, const ru_app_setup *setup, ru_err *err)
{
    m->cut = calloc(setup->executors + 1, sizeof *m->cut);
    int64_t *count = calloc((size_t)m->items + 1, sizeof *count);
    if (m->cut == NULL || count == NULL) {
        free(count);
        return RU_FAIL(err, RU_E_MEM, "no memory for the blocks of %lld items",
                       (long long)m->items);
    }
    ru_sparse all;
    ru_sparse_part(setup->data, 0, ru_sparse_rows(setup->data), &all);
    int64_t n = all.begin[all.rows], at = 0, item = 0;
    for (int64_t i = 0; i < n; i++) {
        count[all.col[i]]++;
    }
    for (uint32_t b = 1; b < m->blocks; b++) {
        int64_t until = n * b / m->blocks;
        for (; item < m->items && at < until; item++) {
            at += count[item];
        }
        m->cut[b] = item;
    }
    m->cut[m->blocks] = m->items;
    free(count);
    return RU_OK;
}

static void mf_close(void *self)
{
    mf *m = self;
    free(m->cut);
    free(m);
}

static ru_status mf_open(const ru_app_setup *setup, void **self, ru_err *err)
{
    mf *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the app");
    }
    m->set = *(const settings *)setup->config;
    m->users = setup->rows;
    m->items = setup->cols;
    m->width = (uint32_t)(m->set.rank + 7) / 8 * 8;
    m->blocks = setup->executors;
    m->base = ru_sparse_numbered(setup->data) == RU_NUMBERS_FROM_1;
    ru_sparse all;
    ru_sparse_part(setup->data, 0, ru_sparse_rows(setup->data), &all);
    int64_t n = all.begin[all.rows] - all.begin[0];
    if (all.col == NULL || n == 0) {
        mf_close(m);
        return RU_FAIL(err, RU_E_DATA, "mf needs ratings (data.format: ratings), not %s",
                       ru_sparse_format(setup->data));
    }
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)all.value[i];
    }
    m->mean = (float)(sum / (double)n);
    ru_status st = cut_items(m, setup, err);
    if (st != RU_OK) {
        mf_close(m);
        return st;
    }
    *self = m;
    return RU_OK;
}

static uint32_t mf_tables(const void *self, ru_app_table *tables)
{
    const mf *m = self;
    bool rotates = m->set.update == ROTATION;
    tables[USERS] = (ru_app_table){
        .name = "users", .rows = m->users, .width = m->width, .rule = RU_APP_ADD, .local = true};
    tables[ITEMS] = (ru_app_table){.name = "items",
                                   .rows = m->items,
                                   .width = m->width,
                                   .rule = rotates ? RU_APP_ADD : RU_APP_ADAREVISION,
                                   .lr = m->set.lr,
                                   .rotate = rotates,
                                   .cut = rotates ? m->cut : NULL};
    tables[MEAN] = (ru_app_table){.name = "mean",
                                  .rows = 1,
                                  .width = 1,
                                  .rule = rotates ? RU_APP_ADD : RU_APP_STEP}; /* never changed */
    if (!rotates) {
        tables[SUMS] = tables[USERS];
        tables[SUMS].name = "users.sums";
        tables[SUMS].hidden = true;
        return SUMS + 1;
    }
    if (!m->set.bias) {
        return MEAN + 1;
    }
    tables[USER_BIAS] = tables[USERS];
    tables[USER_BIAS].name = "user_bias";
    tables[USER_BIAS].width = 1;
    tables[ITEM_BIAS] = tables[ITEMS];
    tables[ITEM_BIAS].name = "item_bias";
    tables[ITEM_BIAS].width = 1;
    return TABLES_BIAS;
}

static uint32_t mf_pieces(const void *self)
{
    const mf *m = self;
    return m->set.update == ROTATION ? 1 : (uint32_t)m->set.pieces;
}

static void mf_first(const void *self, uint32_t table, int64_t row, ru_rng *rng, float *value)
{
    (void)row;
    const mf *m = self;
    if (table == MEAN) {
        value[0] = m->mean;
    }
    float spread = (float)(m->set.spread / sqrt((double)m->set.rank));
    for (int64_t k = 0; table <= ITEMS && k < m->set.rank; k++) {
        value[k] = spread * (2.0F * ru_rng_f32(rng) - 1.0F);
    }
}

static float dot(const float *u, const float *v, uint32_t width)
{
    float sum = 0.0F;
    for (uint32_t k = 0; k < width; k++) {
        sum += u[k] * v[k];
    }
    return sum;
}

/* -- executors --------------------------------------------------------------------------------- */

static void mf_exec_close(void *state)
{
    executor *x = state;
    free(x->run);
    free(x->user);
    free(x->begin);
    free(x->item);
    free(x->value);
    free(x->list);
    free(x->place);
    free(x);
}

/* Block of an item. */
static uint32_t block_of(const int64_t *cut, uint32_t blocks, int64_t item)
{
    uint32_t lo = 0, hi = blocks - 1;
    while (lo < hi) {
        uint32_t mid = (lo + hi + 1) / 2;
        if (cut[mid] <= item) {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    return lo;
}

/* Cut the part by blocks: first runs and ratings of each block are counted, then placed. */
static void cut_part(executor *x, block *at)
{
    const ru_sparse *p = &x->part;
    const int64_t *cut = x->m->cut;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t r = 0; r < p->rows; r++) {
            uint32_t last = UINT32_MAX;
            for (int64_t i = p->begin[r]; i < p->begin[r + 1]; i++) {
                uint32_t b = block_of(cut, x->blocks, p->col[i]); /* rises along a row */
                if (pass == 0) {
                    at[b + 1].first += b != last;
                    at[b + 1].rating++;
                } else {
                    if (b != last) {
                        x->user[at[b].first] = (uint32_t)r;
                        x->begin[at[b].first++] = at[b].rating;
                    }
                    x->item[at[b].rating] = (uint32_t)(p->col[i] - cut[b]);
                    x->value[at[b].rating++] = p->value[i] - x->m->mean;
                }
                last = b;
            }
        }
        for (uint32_t b = 0; pass == 0 && b < x->blocks; b++) {
            at[b + 1].first += at[b].first;
            at[b + 1].rating += at[b].rating;
            x->run[b + 1] = at[b + 1].first;
        }
    }
}

static ru_status open_rotation(executor *x, uint32_t blocks, ru_err *err)
{
    int64_t n = x->part.begin[x->part.rows] - x->part.begin[0];
    x->blocks = blocks;
    block *at = calloc(blocks + 1, sizeof *at);
    x->run = calloc(blocks + 1, sizeof *x->run);
    x->user = calloc((size_t)n + 1, sizeof *x->user);
    x->begin = calloc((size_t)n + 1, sizeof *x->begin);
    x->item = calloc((size_t)n + RUI_MF_AHEAD, sizeof *x->item);
    x->value = calloc((size_t)n + 1, sizeof *x->value);
    bool fine = at != NULL && x->run != NULL && x->user != NULL && x->begin != NULL &&
                x->item != NULL && x->value != NULL;
    if (fine) {
        cut_part(x, at);
        x->begin[x->run[blocks]] = n;
    }
    free(at);
    return fine ? RU_OK
                : RU_FAIL(err, RU_E_MEM, "no memory for the %lld ratings of an executor",
                          (long long)n);
}

static ru_status mf_exec_open(const void *self, uint32_t k, const ru_sparse *part, void **state,
                              ru_err *err)
{
    (void)k;
    const mf *m = self;
    executor *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an executor");
    }
    x->m = m;
    x->part = *part;
    ru_status st = RU_OK;
    if (m->set.update == ROTATION) {
        st = open_rotation(x, m->blocks, err);
    } else {
        x->list = calloc((size_t)m->items, sizeof *x->list);
        x->place = calloc((size_t)m->items, sizeof *x->place);
        if (x->list == NULL || x->place == NULL) {
            st = RU_FAIL(err, RU_E_MEM, "no memory for the lists of an executor");
        }
    }
    if (st != RU_OK) {
        mf_exec_close(x);
        return st;
    }
    *state = x;
    return RU_OK;
}

/* The items of rows lo .. hi - 1, ascending. */
static int64_t list_items(executor *x, int64_t lo, int64_t hi)
{
    int64_t n = 0;
    if (lo == x->list_lo && hi == x->list_hi) { /* of the last clock */
        return x->listed;
    }
    memset(x->place, 0, (size_t)x->m->items * sizeof *x->place);
    for (int64_t i = x->part.begin[lo]; i < x->part.begin[hi]; i++) {
        x->place[x->part.col[i]] = 1;
    }
    for (int64_t item = 0; item < x->m->items; item++) {
        if (x->place[item] != 0) {
            x->list[n] = (uint32_t)item;
            x->place[item] = (uint32_t)n++;
        }
    }
    x->list_lo = lo;
    x->list_hi = hi;
    x->listed = n;
    return n;
}

static uint32_t mf_wants(void *state, const ru_app_task *task, ru_app_want *wants, uint32_t max)
{
    (void)max;
    executor *x = state;
    const mf *m = x->m;
    uint32_t n = 0;
    ru_app_want users = {
        .table = USERS, .first = x->part.first, .rows = x->part.rows, .write = true};
    wants[n++] = users;
    if (m->set.update == ADAREVISION) {
        int64_t items = list_items(x, task->lo, task->hi);
        wants[n++] = (ru_app_want){.table = ITEMS, .rows = items, .list = x->list, .write = true};
        users.table = SUMS;
        wants[n++] = users;
        return n;
    }
    ru_app_want items = {.table = ITEMS,
                         .first = m->cut[task->block],
                         .rows = m->cut[task->block + 1] - m->cut[task->block],
                         .write = true};
    wants[n++] = items;
    if (m->set.bias) {
        users.table = USER_BIAS;
        items.table = ITEM_BIAS;
        wants[n++] = users;
        wants[n++] = items;
    }
    return n;
}

static void rotation(executor *x, const ru_app_task *task, const ru_app_view *view, double *sums)
{
    const settings *set = &x->m->set;
    int64_t run = x->run[task->block], runs = x->run[task->block + 1] - run;
    const rui_mf_ratings r = {.user = x->user + run,
                              .begin = x->begin + run,
                              .item = x->item,
                              .value = x->value,
                              .n_users = runs};
    const rui_mf_step s = {.users = view->value[0],
                           .items = view->value[1],
                           .user_bias = set->bias ? view->value[2] : NULL,
                           .item_bias = set->bias ? view->value[3] : NULL,
                           .width = x->m->width,
                           .lr = (float)(set->lr / (1.0 + set->decay * task->clock)),
                           .lambda = (float)set->lambda};
    sums[0] = rui_mf_sgd(&r, &s);
    sums[1] = (double)(r.begin[runs] - r.begin[0]);
}

/* One user's ratings: steps of the user's row, gradients of the items. */
static void user_gradients(executor *x, int64_t row, const ru_app_view *view, double *sums)
{
    const mf *m = x->m;
    uint32_t width = m->width;
    float *u = view->value[0] + row * width, *sum = view->value[2] + row * width;
    float lr = (float)m->set.lr, lambda = (float)m->set.lambda;
    for (int64_t i = x->part.begin[row]; i < x->part.begin[row + 1]; i++) {
        int64_t at = (int64_t)x->place[x->part.col[i]] * width;
        const float *v = view->value[1] + at;
        float *g = view->delta[1] + at;
        float e = x->part.value[i] - m->mean - dot(u, v, width);
        sums[0] += (double)e * (double)e;
        sums[1] += 1.0;
        for (uint32_t k = 0; k < width; k++) {
            float gu = lambda * u[k] - e * v[k];
            g[k] += lambda * v[k] - e * u[k];
            sum[k] += gu * gu;
            u[k] -= lr * gu / sqrtf(sum[k] + 1.0F);
        }
    }
}

static ru_status mf_run(void *state, const ru_app_task *task, const ru_app_view *view,
                        ru_app_result *result, ru_err *err)
{
    executor *x = state;
    if (x->m->set.update == ROTATION) {
        rotation(x, task, view, result->sums);
    }
    for (int64_t r = task->lo; x->m->set.update == ADAREVISION && r < task->hi; r++) {
        user_gradients(x, r, view, result->sums);
    }
    return isfinite(result->sums[0])
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "the error is not finite; lower mf.lr");
}

static double mf_objective(const void *self, const double *sums, const float *const *told)
{
    (void)self;
    (void)told;
    return sums[1] > 0 ? sqrt(sums[0] / sums[1]) : RU_NAN;
}

/* -- use --------------------------------------------------------------------------------------- */

static double predicted(const mf *m, const float *const *tables, int64_t user, int64_t item)
{
    double y = (double)tables[MEAN][0] + (double)dot(tables[USERS] + user * m->width,
                                                     tables[ITEMS] + item * m->width, m->width);
    if (m->set.update == ROTATION && m->set.bias) {
        y += (double)tables[USER_BIAS][user] + (double)tables[ITEM_BIAS][item];
    }
    return y;
}

static ru_status mf_eval(const void *self, const float *const *tables, const ru_sparse *part,
                         double *sums, ru_err *err)
{
    (void)err;
    const mf *m = self;
    for (int64_t r = 0; r < part->rows; r++) {
        for (int64_t i = part->begin[r]; i < part->begin[r + 1]; i++) {
            double e = (double)part->value[i] - predicted(m, tables, part->first + r, part->col[i]);
            sums[0] += e * e;
            sums[1] += 1.0;
        }
    }
    return RU_OK;
}

static uint32_t mf_metrics(const void *self, const double *sums, ru_app_metric *metrics)
{
    (void)self;
    metrics[0] = (ru_app_metric){"rmse", sqrt(sums[0] / sums[1])};
    return 1;
}

/* "user item value" of every pair that the row has, with the numbers of the files. */
static ru_status mf_predict(const void *self, const float *const *tables, const ru_sparse *part,
                            int64_t row, ru_text *out, ru_err *err)
{
    (void)err;
    const mf *m = self;
    for (int64_t i = part->begin[row]; i < part->begin[row + 1]; i++) {
        ru_text_putf(out, "%s%lld %u %.4f", out->n > 0 ? "\n" : "",
                     (long long)(part->first + row + m->base), part->col[i] + m->base,
                     predicted(m, tables, part->first + row, part->col[i]));
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(I64, settings, rank, "32", "number of factors of a user or item", RU_IN(1, 4096)),
    RU_ROW(F64, settings, lr, "0.01", "learning rate of the first pass", RU_OVER(0, 100)),
    RU_ROW(F64, settings, lambda, "0.05", "L2 penalty of factors and biases", RU_IN(0, 1000)),
    RU_ROW(F64, settings, decay, "0", "rotation: the learning rate of pass c is lr / (1 + c decay)",
           RU_IN(0, 1000)),
    RU_ROW(F64, settings, spread, "0.3",
           "initial factors are uniform from -spread to spread, divided by the square root of the "
           "rank",
           RU_OVER(0, 100)),
    RU_ROW(BOOL, settings, bias, "true", "rotation: each user and item has a bias"),
    RU_ROW(CHOICE, settings, update, "rotation",
           "rotation: blocks of items rotate between executors, and each rating is one update; "
           "adarevision: executors share all items, and servers adapt the step size of each "
           "gradient to its delay",
           .choices = "rotation|adarevision"),
    RU_ROW(I64, settings, pieces, "10", "adarevision: number of clocks in a pass",
           RU_IN(1, 1 << 20)),
};
static const ru_conf_table table =
    RU_TABLE("mf", settings, fields, "matrix factorisation",
             .called = "factors=rank|k=rank|learning_rate=lr|reg=lambda|"
                       "regularization=lambda|n_factors=rank");

const ru_app_ops ru_app_mf = {
    .version = RU_APP_VERSION,
    .name = "mf",
    .partial = true,
    .help = "matrix factorisation of ratings by gradient descent",
    .config = &table,
    .config_bytes = sizeof(settings),
    .open = mf_open,
    .close = mf_close,
    .tables = mf_tables,
    .pieces = mf_pieces,
    .first = mf_first,
    .exec_open = mf_exec_open,
    .exec_close = mf_exec_close,
    .wants = mf_wants,
    .run = mf_run,
    .objective = mf_objective,
    .objective_name = "rmse",
    .eval = mf_eval,
    .metrics = mf_metrics,
    .predict = mf_predict,
};
