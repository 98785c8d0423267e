/* k-means (Lloyd) on sparse or dense rows.
 *
 * Table `centres`: a row a cluster: the mean of its members, and how many they are. A task sends by
 * how much the sums and counts of clusters change because rows have gone from one to another; the
 * app's merge keeps the sums beside the row and makes the mean of them. First centres are drawn as
 * k-means++ draws them, from a sample of the rows. A cluster that loses all members keeps its
 * centre. When workers die, sums and counts are made again from the clusters of all rows; a cluster
 * that has no rows then gets its first centre.
 *
 * Source: arthur-2007 (first centres). */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "train/app/app.h"

enum { SAMPLE_ROWS = 50 /* a cluster */ };
static const uint32_t none = UINT32_MAX; /* cluster of a row at the start */

enum { SPREAD, ROWS }; /* first centres */

typedef struct settings {
    int64_t clusters;
    uint32_t first;
} settings;

typedef struct kmeans {
    int64_t cols, clusters;
    uint32_t first;
    float *seeds; /* [clusters, cols]; NULL: for eval */
} kmeans;

typedef struct executor {
    const kmeans *m;
    ru_sparse part;
    uint32_t *of;  /* [rows] cluster; none at the start */
    float *across; /* [cols, clusters] centres, cluster by cluster of each column */
    float *score;  /* [clusters] x . c */
    double *norm;  /* [clusters] c . c */
} executor;

static int64_t col_of(const ru_sparse *s, int64_t r, int64_t i)
{
    return s->col != NULL ? s->col[i] : i - s->begin[r];
}

static double square(const ru_sparse *s, int64_t r)
{
    double sum = 0.0;
    for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
        sum += (double)s->value[i] * (double)s->value[i];
    }
    return sum;
}

/* Square of the distance of row r to the dense centre c. */
static double distance(const ru_sparse *s, int64_t r, const float *c, double norm)
{
    double dot = 0.0;
    for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
        dot += (double)s->value[i] * (double)c[col_of(s, r, i)];
    }
    double d = square(s, r) - 2.0 * dot + norm;
    return d > 0 ? d : 0.0;
}

typedef struct seeding {
    kmeans *m;
    const ru_sparse *all;
    int64_t rows, n; /* of the data, of the sample: row i of it is row i * rows / n */
    double *near;    /* [n] square of the distance to the nearest centre so far */
    double *best;    /* [n] the same with the best candidate for the next one */
    double *trial;   /* [n] */
} seeding;

/* The sum of the squares of distances if row `pick` of the sample were a centre too. */
static double try_seed(const seeding *s, int64_t pick, bool first, float *c)
{
    int64_t row = pick * s->rows / s->n;
    double norm = 0.0, sum = 0.0;
    memset(c, 0, (size_t)s->m->cols * sizeof *c);
    for (int64_t i = s->all->begin[row]; i < s->all->begin[row + 1]; i++) {
        c[col_of(s->all, row, i)] = s->all->value[i];
        norm += (double)s->all->value[i] * (double)s->all->value[i];
    }
    for (int64_t i = 0; i < s->n; i++) {
        double d = distance(s->all, i * s->rows / s->n, c, norm);
        s->trial[i] = first || d < s->near[i] ? d : s->near[i];
        sum += s->trial[i];
    }
    return sum;
}

/* k-means++ on rows that stand evenly in the data: candidates are drawn with chances that grow with
 * the squares of their distances to the nearest centre so far; the best of some becomes the next
 * one. */
static void draw_all(const seeding *s, uint64_t seed, float *c)
{
    kmeans *m = s->m;
    ru_rng rng = ru_rng_from(seed, ru_rng_label("kmeans"));
    int trials = 2 + (int)log((double)m->clusters);
    for (int64_t k = 0; k < m->clusters; k++) {
        double sum = 0.0, least = INFINITY;
        for (int64_t i = 0; k > 0 && i < s->n; i++) {
            sum += s->near[i];
        }
        for (int t = 0; t < (k > 0 ? trials : 1); t++) {
            int64_t pick = sum > 0 ? ru_rng_pick(&rng, s->near, (uint32_t)s->n)
                                   : (int64_t)ru_rng_below_u64(&rng, (uint64_t)s->n);
            double now = try_seed(s, pick, k == 0, c);
            if (now < least) {
                least = now;
                memcpy(s->best, s->trial, (size_t)s->n * sizeof *s->best);
                memcpy(m->seeds + k * m->cols, c, (size_t)m->cols * sizeof *c);
            }
        }
        memcpy(s->near, s->best, (size_t)s->n * sizeof *s->near);
    }
}

static ru_status draw_seeds(kmeans *m, const ru_app_setup *setup, ru_err *err)
{
    ru_sparse all;
    ru_sparse_part(setup->data, 0, setup->rows, &all);
    int64_t n = m->clusters * SAMPLE_ROWS;
    seeding s = {.m = m, .all = &all, .rows = setup->rows, .n = n < setup->rows ? n : setup->rows};
    s.near = calloc((size_t)s.n * 3, sizeof *s.near);
    float *c = calloc((size_t)m->cols + 1, sizeof *c);
    m->seeds = calloc((size_t)(m->clusters * m->cols), sizeof *m->seeds);
    bool fine = s.near != NULL && m->seeds != NULL && c != NULL;
    s.best = fine ? s.near + s.n : NULL;
    s.trial = fine ? s.best + s.n : NULL;
    if (fine && m->first == SPREAD) {
        draw_all(&s, setup->seed, c);
    }
    s.rows = s.n; /* the sample is the first rows */
    for (int64_t k = 0; fine && m->first == ROWS && k < m->clusters; k++) {
        (void)try_seed(&s, k, true, m->seeds + k * m->cols);
    }
    free(s.near);
    free(c);
    return fine ? RU_OK
                : RU_FAIL(err, RU_E_MEM, "no memory for %lld centres", (long long)m->clusters);
}

static void kmeans_close(void *self)
{
    kmeans *m = self;
    free(m->seeds);
    free(m);
}

static ru_status kmeans_open(const ru_app_setup *setup, void **self, ru_err *err)
{
    kmeans *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the app");
    }
    m->cols = setup->cols;
    m->clusters = ((const settings *)setup->config)->clusters;
    m->first = ((const settings *)setup->config)->first;
    ru_status st = RU_OK;
    if (m->clusters > setup->rows) {
        st = RU_FAIL(err, RU_E_CONFIG, "kmeans.clusters is %lld, but the data has %lld rows",
                     (long long)m->clusters, (long long)setup->rows);
    } else if (!setup->eval) {
        st = draw_seeds(m, setup, err);
    }
    if (st != RU_OK) {
        kmeans_close(m);
        return st;
    }
    *self = m;
    return RU_OK;
}

static uint32_t kmeans_tables(const void *self, ru_app_table *tables)
{
    const kmeans *m = self;
    uint32_t width = (uint32_t)m->cols + 1;
    tables[0] = (ru_app_table){.name = "centres",
                               .rows = m->clusters,
                               .width = width,
                               .rule = RU_APP_USER,
                               .extra = width};
    return 1;
}

static void kmeans_first(const void *self, uint32_t table, int64_t row, ru_rng *rng, float *value)
{
    (void)table;
    (void)rng;
    const kmeans *m = self;
    if (m->seeds != NULL) {
        memcpy(value, m->seeds + row * m->cols, (size_t)m->cols * sizeof *value);
    }
}

static void kmeans_merge(const void *self, uint32_t table, float *value, float *extra,
                         const float *update)
{
    (void)table;
    const kmeans *m = self;
    for (int64_t i = 0; i <= m->cols; i++) {
        extra[i] += update[i];
    }
    float n = extra[m->cols];
    for (int64_t i = 0; n > 0.5F && i < m->cols; i++) {
        value[i] = extra[i] / n;
    }
    value[m->cols] = n;
}

static void kmeans_exec_close(void *state)
{
    executor *x = state;
    free(x->of);
    free(x->across);
    free(x->score);
    free(x->norm);
    free(x);
}

static ru_status kmeans_exec_open(const void *self, uint32_t k, const ru_sparse *part, void **state,
                                  ru_err *err)
{
    (void)k;
    const kmeans *m = self;
    executor *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an executor");
    }
    size_t clusters = (size_t)m->clusters;
    x->m = m;
    x->part = *part;
    x->of = malloc(((size_t)part->rows + 1) * sizeof *x->of);
    x->across = calloc((size_t)m->cols * clusters + 1, sizeof *x->across);
    x->score = calloc(clusters, sizeof *x->score);
    x->norm = calloc(clusters, sizeof *x->norm);
    if (x->of == NULL || x->across == NULL || x->score == NULL || x->norm == NULL) {
        kmeans_exec_close(x);
        return RU_FAIL(err, RU_E_MEM, "no memory for the centres of an executor");
    }
    memset(x->of, 0xFF, (size_t)part->rows * sizeof *x->of);
    *state = x;
    return RU_OK;
}

static void kmeans_exec_save(const void *state, ru_app_bytes *to)
{
    const executor *x = state;
    ru_app_put(to, x->of, x->part.rows * (int64_t)sizeof *x->of);
}

static ru_status kmeans_exec_load(void *state, const void *bytes, int64_t n, ru_err *err)
{
    executor *x = state;
    ru_app_cursor from = {bytes, n};
    bool fits = ru_app_take(&from, x->of, x->part.rows * (int64_t)sizeof *x->of) && from.n == 0;
    for (int64_t r = 0; fits && r < x->part.rows; r++) {
        fits = x->of[r] == none || x->of[r] < x->m->clusters;
    }
    return fits ? RU_OK : RU_FAIL(err, RU_E_DATA, "the state is damaged or belongs to other rows");
}

static uint32_t kmeans_wants(void *state, const ru_app_task *task, ru_app_want *wants, uint32_t max)
{
    (void)task;
    (void)max;
    const executor *x = state;
    wants[0] = (ru_app_want){.table = 0, .rows = x->m->clusters, .write = true};
    return 1;
}

static void turn_centres(const kmeans *m, const float *centres, float *across, double *norm)
{
    for (int64_t k = 0; k < m->clusters; k++) {
        const float *c = centres + k * (m->cols + 1);
        norm[k] = 0.0;
        for (int64_t i = 0; i < m->cols; i++) {
            across[i * m->clusters + k] = c[i];
            norm[k] += (double)c[i] * (double)c[i];
        }
    }
}

/* The nearest cluster of a row, and the square of its distance. */
static uint32_t nearest(const kmeans *m, const ru_sparse *s, int64_t r, const float *across,
                        const double *norm, float *score, double *away)
{
    memset(score, 0, (size_t)m->clusters * sizeof *score);
    for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
        const float *row = across + col_of(s, r, i) * m->clusters;
        float v = s->value[i];
        for (int64_t k = 0; k < m->clusters; k++) {
            score[k] += v * row[k];
        }
    }
    uint32_t best = 0;
    double least = norm[0] - 2.0 * (double)score[0];
    for (uint32_t k = 1; k < m->clusters; k++) {
        double d = norm[k] - 2.0 * (double)score[k];
        if (d < least) {
            least = d;
            best = k;
        }
    }
    double d = least + square(s, r);
    *away = d > 0 ? d : 0.0;
    return best;
}

static void add_row(const executor *x, float *delta, int64_t r, uint32_t k, float by)
{
    float *d = delta + (int64_t)k * (x->m->cols + 1);
    for (int64_t i = x->part.begin[r]; i < x->part.begin[r + 1]; i++) {
        d[col_of(&x->part, r, i)] += by * x->part.value[i];
    }
    d[x->m->cols] += by;
}

static ru_status kmeans_run(void *state, const ru_app_task *task, const ru_app_view *view,
                            ru_app_result *result, ru_err *err)
{
    (void)err;
    executor *x = state;
    for (int64_t r = 0; task->recount && r < x->part.rows; r++) {
        if (x->of[r] != none) {
            add_row(x, view->delta[0], r, x->of[r], 1.0F);
        }
    }
    if (task->recount) { /* there are no centres */
        result->sums[2] = 1.0;
        return RU_OK;
    }
    turn_centres(x->m, view->value[0], x->across, x->norm);
    for (int64_t r = task->lo; r < task->hi; r++) {
        double away;
        uint32_t k = nearest(x->m, &x->part, r, x->across, x->norm, x->score, &away);
        result->sums[0] += away;
        if (k == x->of[r]) {
            continue;
        }
        if (x->of[r] != none) {
            add_row(x, view->delta[0], r, x->of[r], -1.0F);
        }
        add_row(x, view->delta[0], r, k, 1.0F);
        x->of[r] = k;
        result->sums[1] += 1.0;
    }
    return RU_OK;
}

static double kmeans_objective(const void *self, const double *sums, const float *const *told)
{
    (void)self;
    (void)told;
    return sums[2] > 0 ? RU_NAN : sums[0];
}

/* -- use --------------------------------------------------------------------------------------- */

static ru_status with_centres(const kmeans *m, const float *centres, float **across, double **norm,
                              ru_err *err)
{
    size_t clusters = (size_t)m->clusters, cols = (size_t)m->cols;
    *across = calloc((cols + 1) * clusters, sizeof **across); /* the last row: scores */
    *norm = calloc(clusters, sizeof **norm);
    if (*across == NULL || *norm == NULL) {
        free(*across);
        free(*norm);
        return RU_FAIL(err, RU_E_MEM, "no memory for %lld centres", (long long)m->clusters);
    }
    turn_centres(m, centres, *across, *norm);
    return RU_OK;
}

static ru_status kmeans_eval(const void *self, const float *const *tables, const ru_sparse *part,
                             double *sums, ru_err *err)
{
    const kmeans *m = self;
    float *across;
    double *norm, away;
    RU_TRY(with_centres(m, tables[0], &across, &norm, err));
    for (int64_t r = 0; r < part->rows; r++) {
        (void)nearest(m, part, r, across, norm, across + m->cols * m->clusters, &away);
        sums[0] += away;
    }
    free(across);
    free(norm);
    return RU_OK;
}

static uint32_t kmeans_metrics(const void *self, const double *sums, ru_app_metric *metrics)
{
    (void)self;
    metrics[0] = (ru_app_metric){"inertia", sums[0]};
    return 1;
}

static ru_status kmeans_predict(const void *self, const float *const *tables, const ru_sparse *part,
                                int64_t row, ru_text *out, ru_err *err)
{
    const kmeans *m = self;
    float *across;
    double *norm, away;
    RU_TRY(with_centres(m, tables[0], &across, &norm, err));
    ru_text_putf(out, "%u",
                 nearest(m, part, row, across, norm, across + m->cols * m->clusters, &away));
    free(across);
    free(norm);
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(I64, settings, clusters, "8", "number of clusters", RU_IN(1, 1 << 20)),
    RU_ROW(CHOICE, settings, first, "spread",
           "initial centres: random rows far from each other (k-means++), or the first rows",
           .choices = "spread|rows"),
};
static const ru_conf_table table =
    RU_TABLE("kmeans", settings, fields, "k-means", .called = "k=clusters|n_clusters=clusters");

const ru_app_ops ru_app_kmeans = {
    .version = RU_APP_VERSION,
    .name = "kmeans",
    .help = "k-means clustering",
    .config = &table,
    .config_bytes = sizeof(settings),
    .recount = RU_APP_RECOUNT_STATES,
    .open = kmeans_open,
    .close = kmeans_close,
    .tables = kmeans_tables,
    .first = kmeans_first,
    .exec_open = kmeans_exec_open,
    .exec_close = kmeans_exec_close,
    .exec_save = kmeans_exec_save,
    .exec_load = kmeans_exec_load,
    .wants = kmeans_wants,
    .run = kmeans_run,
    .merge = kmeans_merge,
    .objective = kmeans_objective,
    .objective_name = "inertia",
    .eval = kmeans_eval,
    .metrics = kmeans_metrics,
    .predict = kmeans_predict,
};
