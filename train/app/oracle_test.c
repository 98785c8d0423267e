/* Apps against other programs: objectives per clock of test/data/apps/oracle.py (numpy); matrix
 * factorisation written down as it is defined; the likelihood of lda by definition; planted topics;
 * tables counted again against those that were trained. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "test/test.h"
#include "test/where.h"
#include "train/app/app_job.h"
#include "train/app/local.h"
#include "train/app/rule.h"

#define DATA RU_SOURCE_ROOT "/test/data/apps/"

typedef struct session {
    ru_arena arena;
    ru_app_job_file file;
    ru_sparse_file *data;
    ru_app_local *local;
    ru_app_state *state;
} session;

static void open_job(session *s, const char *yaml, uint32_t executors)
{
    ru_err err = {0};
    *s = (session){0};
    ru_arena_init(&s->arena, 0);
    assert_ok(ru_app_job_parse("job", yaml, &s->arena, &s->file, &err), err);
    const ru_conf_texts *train = &s->file.job->data.train;
    assert_ok(ru_app_job_data(&s->file, train->at, train->n, NULL, &s->data, &err), err);
    const ru_app_local_options o = {.ops = s->file.ops,
                                    .setup = {.config = s->file.config,
                                              .data = s->data,
                                              .rows = ru_sparse_rows(s->data),
                                              .cols = ru_sparse_cols(s->data),
                                              .classes = ru_sparse_classes(s->data),
                                              .executors = executors,
                                              .seed = 3},
                                    .threads = 1};
    assert_ok(ru_app_local_open(&o, &s->local, &err), err);
    assert_ok(ru_app_local_save(s->local, &s->state, &err), err);
}

static double clock_of(session *s)
{
    double sums[RU_APP_SUMS_MAX];
    ru_err err = {0};
    assert_ok(ru_app_local_clock(s->local, sums, &err), err);
    return ru_app_local_objective(s->local, sums);
}

static void close_job(session *s)
{
    ru_app_local_close(s->local);
    ru_sparse_close(s->data);
    ru_arena_fini(&s->arena);
}

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(1.0, fabs(want)))) {
        fail_msg("%.12g is not %.12g", got, want);
    }
}

/* The line of golden.txt that begins with `name`. */
static uint32_t golden(const char *name, double into[16])
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    char *text;
    int64_t n;
    ru_err err = {0};
    assert_ok(ru_file_read(DATA "golden.txt", 0, &arena, &text, &n, &err), err);
    ru_str rest = ru_str_n(text, n), line, word;
    uint32_t found = 0;
    while (ru_str_next(&rest, '\n', &line)) {
        (void)ru_str_next(&line, ' ', &word);
        while (ru_str_eq_c(word, name) && found < 16 && line.n > 0) {
            ru_str number;
            (void)ru_str_next(&line, ' ', &number);
            assert_true(ru_str_f64(number, &into[found++]));
        }
    }
    ru_arena_fini(&arena);
    assert_true(found > 0);
    return found;
}

static void test_objectives(void **state)
{
    (void)state;
    static const struct {
        const char *name, *yaml;
    } cases[] = {
        {"mlr", "app: mlr\ndata: {format: libsvm, train: " DATA
                "rows.svm}\nmlr: {lr: 0.5, batch: 1000}\n"},
        {"lasso", "app: lasso\ndata: {format: csv, train: " DATA
                  "numbers.csv}\nlasso: {lambda: 0.1, block: 12, correlation: 1}\n"},
        {"kmeans", "app: kmeans\ndata: {format: csv, label: none, train: " DATA
                   "numbers.csv}\nkmeans: {clusters: 5, first: rows}\n"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        double want[16];
        uint32_t n = golden(cases[k].name, want);
        for (uint32_t executors = 1; executors <= 7; executors += 3) {
            session s;
            open_job(&s, cases[k].yaml, executors);
            for (uint32_t c = 0; c < n; c++) {
                near(clock_of(&s), want[c], 1e-6);
            }
            close_job(&s);
        }
    }
}

/* -- matrix factorisation ---------------------------------------------------------------------- */

static const char *ratings_file(char path[64])
{
    snprintf(path, 64, "/tmp/rubato-oracle-%ld", (long)getpid());
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    ru_rng r = ru_rng_from(5, 0);
    for (int i = 0; i < 1500; i++) {
        uint32_t user = ru_rng_below(&r, 50), item = ru_rng_below(&r, 30);
        fprintf(f, "%u,%u,%.3f\n", user, item, 3.0 + sin(user) * cos(item));
    }
    fprintf(f, "0,0,3\n49,29,3\n");
    assert_int_equal(fclose(f), 0);
    return path;
}

typedef struct factors {
    double u[50][6], v[30][6], bu[50], bv[30]; /* rank 6 */
} factors;

static void copy_factors(const ru_app_state *s, factors *f)
{
    uint32_t width = s->shape.table[0].width;
    for (int64_t k = 0; k < 6; k++) {
        for (int64_t i = 0; i < 50; i++) {
            f->u[i][k] = (double)s->value[0][i * width + k];
        }
        for (int64_t i = 0; i < 30; i++) {
            f->v[i][k] = (double)s->value[1][i * width + k];
        }
    }
}

/* One rating: the step as it is defined, in double precision. */
static double sgd(factors *f, uint32_t i, uint32_t j, double y)
{
    const double lr = 0.05, lambda = 0.02;
    double e = y - f->bu[i] - f->bv[j];
    for (int k = 0; k < 6; k++) {
        e -= f->u[i][k] * f->v[j][k];
    }
    for (int k = 0; k < 6; k++) {
        double u = f->u[i][k], v = f->v[j][k];
        f->u[i][k] += lr * (e * v - lambda * u);
        f->v[j][k] += lr * (e * u - lambda * v);
    }
    f->bu[i] += lr * (e - lambda * f->bu[i]);
    f->bv[j] += lr * (e - lambda * f->bv[j]);
    return e * e;
}

/* A pass by rotation: in round r executor e has block (e + r) mod E, users in order. */
static double rotation(const session *s, factors *f, uint32_t executors)
{
    ru_sparse all;
    ru_sparse_part(s->data, 0, 50, &all);
    int64_t first[8], n = all.begin[50];
    const int64_t *cut = s->state->shape.cut[1];
    ru_sparse_cut(s->data, executors, first);
    double mean = 0.0, sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        mean += (double)all.value[i] / (double)n;
    }
    for (uint32_t round = 0; round < executors; round++) {
        for (uint32_t e = 0; e < executors; e++) {
            uint32_t b = (e + round) % executors;
            for (int64_t r = first[e]; r < first[e + 1]; r++) {
                for (int64_t i = all.begin[r]; i < all.begin[r + 1]; i++) {
                    bool held = all.col[i] >= cut[b] && all.col[i] < cut[b + 1];
                    sum += held ? sgd(f, (uint32_t)r, all.col[i], (double)all.value[i] - mean) : 0;
                }
            }
        }
    }
    return sqrt(sum / (double)n);
}

static void test_matrix_factorisation(void **state)
{
    (void)state;
    char path[64], yaml[256];
    snprintf(yaml, sizeof yaml,
             "app: mf\ndata: {format: ratings, train: %s}\nmf: {rank: 6, lr: 0.05, lambda: 0.02}\n",
             ratings_file(path));
    for (uint32_t executors = 1; executors <= 7; executors += 2) {
        session s;
        factors f = {0};
        open_job(&s, yaml, executors);
        copy_factors(s.state, &f);
        for (int c = 0; c < 10; c++) {
            near(clock_of(&s), rotation(&s, &f, executors), 1e-6);
        }
        close_job(&s);
    }
    (void)unlink(path);
}

/* -- topics ------------------------------------------------------------------------------------ */

enum { TOPICS = 6, VOCAB = 120, DOCS = 800, LENGTH = 40 };

static double truth[TOPICS][VOCAB];

static const char *documents_file(char path[64])
{
    snprintf(path, 64, "/tmp/rubato-oracle-%ld", (long)getpid());
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    ru_rng r = ru_rng_from(9, 0);
    for (int k = 0; k < TOPICS; k++) {
        double sum = 0.0;
        for (int w = 0; w < VOCAB; w++) {
            sum += truth[k][w] = ru_rng_gamma(&r, 0.1) + 1e-9;
        }
        for (int w = 0; w < VOCAB; w++) {
            truth[k][w] /= sum;
        }
    }
    for (int d = 0; d < DOCS; d++) {
        double mix[TOPICS];
        int count[VOCAB] = {0};
        for (int k = 0; k < TOPICS; k++) {
            mix[k] = ru_rng_gamma(&r, 0.3) + 1e-9;
        }
        for (int i = 0; i < LENGTH; i++) {
            count[ru_rng_pick(&r, truth[ru_rng_pick(&r, mix, TOPICS)], VOCAB)]++;
        }
        fprintf(f, "0");
        for (int w = 0; w < VOCAB; w++) {
            if (count[w] > 0) {
                fprintf(f, " %d:%d", w + 1, count[w]);
            }
        }
        fprintf(f, "\n");
    }
    assert_int_equal(fclose(f), 0);
    return path;
}

/* Joint log likelihood by word from the tables and the lists that the executors save: z, n_k, then
 * for each document its number of topics, the topics, their counts. */
static double likelihood(const session *s, uint32_t executors, double alpha, double beta)
{
    const ru_app_state *t = s->state;
    int64_t vocab = t->shape.table[0].rows, tokens = 0, first[9];
    double sum = 0.0;
    ru_sparse_cut(s->data, executors, first);
    for (int64_t k = 0; k < TOPICS; k++) {
        double n = 0.0;
        for (int64_t w = 0; w < vocab; w++) {
            double c = (double)t->value[0][w * TOPICS + k];
            sum += lgamma(c + beta) - lgamma(beta);
            n += c;
        }
        near((double)t->value[1][k], n, 1e-12);
        sum += lgamma((double)vocab * beta) - lgamma(n + (double)vocab * beta);
        tokens += (int64_t)n;
    }
    for (uint32_t e = 0; e < executors; e++) {
        ru_app_cursor c = {t->exec[e].p, t->exec[e].n};
        int64_t words;
        assert_true(ru_app_take(&c, &words, sizeof words));
        c.p += words * 2 + TOPICS * 4;
        for (int64_t d = first[e]; d < first[e + 1]; d++) {
            uint32_t n;
            uint16_t topic[TOPICS];
            float count[TOPICS];
            double all = 0.0;
            c.n = INT64_MAX;
            assert_true(ru_app_take(&c, &n, 4) && n <= TOPICS && ru_app_take(&c, topic, n * 2) &&
                        ru_app_take(&c, count, n * 4));
            for (uint32_t j = 0; j < n; j++) {
                sum += lgamma((double)count[j] + alpha) - lgamma(alpha);
                all += (double)count[j];
            }
            sum += lgamma(TOPICS * alpha) - lgamma(all + TOPICS * alpha);
        }
    }
    assert_int_equal(tokens, DOCS * LENGTH);
    return sum / (double)tokens;
}

static double cosine(const float *words, int64_t vocab, int64_t k, const double *want)
{
    double dot = 0.0, a = 0.0, b = 0.0;
    for (int64_t w = 0; w < VOCAB; w++) {
        double x = w < vocab ? (double)words[w * TOPICS + k] : 0.0;
        dot += x * want[w];
        a += x * x;
        b += want[w] * want[w];
    }
    return dot / sqrt(a * b);
}

/* Each planted topic takes the best of those left; the mean of the cosines. */
static double greedy(const ru_app_state *t)
{
    bool used[TOPICS] = {false};
    double sum = 0.0;
    for (int k = 0; k < TOPICS; k++) {
        int best = -1;
        double most = -1.0;
        for (int j = 0; j < TOPICS; j++) {
            double c = cosine(t->value[0], t->shape.table[0].rows, j, truth[k]);
            if (!used[j] && c > most) {
                most = c;
                best = j;
            }
        }
        used[best] = true;
        sum += most;
    }
    return sum / TOPICS;
}

static void test_planted_topics(void **state)
{
    (void)state;
    char path[64], yaml[256];
    snprintf(yaml, sizeof yaml,
             "app: lda\ndata: {format: libsvm, train: %s}\nlda: {topics: %d, alpha: 0.3, beta: "
             "0.1}\n",
             documents_file(path), TOPICS);
    for (uint32_t executors = 1; executors <= 8; executors += 7) {
        session s;
        ru_err err = {0};
        double got = 0.0;
        open_job(&s, yaml, executors);
        for (int c = 0; c < 60; c++) {
            got = clock_of(&s);
        }
        assert_ok(ru_app_local_save(s.local, &s.state, &err), err);
        near(got, likelihood(&s, executors, 0.3, 0.1), 1e-9);
        double found = greedy(s.state);
        if (found < 0.95) {
            fail_msg("%u executors: the planted topics are found to %.3f", executors, found);
        }
        close_job(&s);
    }
    (void)unlink(path);
}

/* -- tables that are counted again ---------------------------------------------------------------
 */

typedef struct recount {
    session s;
    ru_app_state fresh;
    ru_app_bytes args;
    void *exec[8];
    ru_sparse part[8];
} recount;

/* Executors with the states that were saved, and tables with first values. */
static void open_recount(recount *c, uint32_t executors)
{
    const ru_app_ops *ops = c->s.file.ops;
    const void *self = ru_app_local_self(c->s.local);
    const ru_app_state *was = c->s.state;
    int64_t first[9];
    ru_err err = {0};
    ru_sparse_cut(c->s.data, executors, first);
    assert_ok(ru_app_state_init(&c->fresh, ops, self, executors, first[executors], 3, &err), err);
    for (uint32_t e = 0; e < executors; e++) {
        ru_sparse_part(c->s.data, first[e], first[e + 1] - first[e], &c->part[e]);
        assert_ok(ops->exec_open(self, e, &c->part[e], &c->exec[e], &err), err);
        assert_ok(ops->exec_load(c->exec[e], was->exec[e].p, was->exec[e].n, &err), err);
    }
    for (uint32_t t = 0; t < was->shape.n_tables; t++) {
        const ru_app_table *table = &was->shape.table[t];
        for (int64_t r = 0; r < table->rows; r++) {
            ru_app_first(ops, self, &was->shape, t, r, c->fresh.value[t] + r * table->width);
        }
    }
}

static void close_recount(recount *c, uint32_t executors)
{
    for (uint32_t e = 0; e < executors; e++) {
        c->s.file.ops->exec_close(c->exec[e]);
    }
    ru_app_bytes_fini(&c->args);
    ru_app_state_fini(&c->fresh);
    close_job(&c->s);
}

/* What the driver says when all begins again from its state. */
static void drive_again(recount *c)
{
    const ru_app_ops *ops = c->s.file.ops;
    ru_app_cursor saved = {c->s.state->driver.p, c->s.state->driver.n};
    double sums[RU_APP_SUMS_MAX];
    ru_app_want wants[RU_APP_WANTS_MAX];
    float *value[RU_APP_WANTS_MAX] = {0};
    void *driver;
    ru_err err = {0};
    assert_ok(ops->drive_open(ru_app_local_self(c->s.local), &driver, &err), err);
    assert_true(ru_app_take(&saved, sums, sizeof sums));
    assert_ok(ops->drive_load(driver, saved.p, saved.n, &err), err);
    uint32_t n = ops->drive_wants(driver, c->s.state->clock, wants, RU_APP_WANTS_MAX);
    for (uint32_t k = 0; k < n; k++) {
        assert_null(wants[k].list);
        uint32_t width = c->fresh.shape.table[wants[k].table].width;
        value[k] = c->fresh.value[wants[k].table] + wants[k].first * width;
    }
    const ru_app_view view = {.value = value, .delta = value};
    assert_ok(ops->drive(driver, c->s.state->clock, NULL, &view, &c->args, &err), err);
    ops->drive_close(driver);
}

/* One want of a task, before and after it. */
typedef struct rows {
    float *value, *delta;
} rows;

static rows rows_of(const recount *c, const ru_app_want *w)
{
    const ru_app_table *t = &c->fresh.shape.table[w->table];
    const float *from = c->fresh.value[w->table];
    rows r = {calloc((size_t)(w->rows * t->width) + 1, 4),
              calloc((size_t)(w->rows * t->width) + 1, 4)};
    assert_true(r.value != NULL && r.delta != NULL);
    for (int64_t i = 0; i < w->rows; i++) {
        int64_t row = w->list != NULL ? w->list[i] : w->first + i;
        memcpy(r.value + i * t->width, from + row * t->width, t->width * sizeof(float));
    }
    return r;
}

static void merge(recount *c, const ru_app_want *w, rows r)
{
    const ru_app_state *s = &c->fresh;
    const ru_app_table *t = &s->shape.table[w->table];
    for (int64_t i = 0; i < w->rows; i++) {
        int64_t row = w->list != NULL ? w->list[i] : w->first + i;
        float *into = s->value[w->table] + row * t->width, *extra = s->extra[w->table];
        float *update = (t->rule == RU_APP_ADD ? r.value : r.delta) + i * t->width;
        for (uint32_t j = 0; t->rule == RU_APP_ADD && j < t->width; j++) {
            update[j] -= into[j];
        }
        ru_rule_merge(c->s.file.ops, ru_app_local_self(c->s.local), t, w->table, 0, into,
                      extra != NULL ? extra + row * s->extra_width[w->table] : NULL, update);
    }
    free(r.value);
    free(r.delta);
}

static void count_again(recount *c, uint32_t executor, uint32_t round)
{
    const ru_app_ops *ops = c->s.file.ops;
    const ru_app_shape *shape = &c->s.state->shape;
    ru_app_task task =
        ru_app_task_of(shape, executor, c->s.state->clock, round, c->part[executor].rows);
    ru_app_want wants[RU_APP_WANTS_MAX];
    float *value[RU_APP_WANTS_MAX], *delta[RU_APP_WANTS_MAX];
    rows r[RU_APP_WANTS_MAX];
    ru_app_result result = {0};
    ru_err err = {0};
    task.recount = true;
    task.args = c->args.p;
    task.args_bytes = c->args.n;
    uint32_t n = ops->wants(c->exec[executor], &task, wants, RU_APP_WANTS_MAX);
    for (uint32_t k = 0; k < n; k++) {
        r[k] = rows_of(c, &wants[k]);
        value[k] = r[k].value;
        delta[k] = r[k].delta;
    }
    const ru_app_view view = {.value = value, .delta = delta};
    assert_ok(ops->run(c->exec[executor], &task, &view, &result, &err), err);
    for (uint32_t k = 0; k < n; k++) {
        merge(c, &wants[k], r[k]);
    }
}

static void all_near(const float *got, const float *want, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++) {
        near((double)got[i], (double)want[i], tolerance);
    }
}

/* Residuals of lasso: the state of an executor. */
static void same_residuals(recount *c, uint32_t executor)
{
    ru_app_bytes got = {0};
    const ru_app_bytes *want = &c->s.state->exec[executor];
    c->s.file.ops->exec_save(c->exec[executor], &got);
    assert_int_equal(got.n, want->n);
    for (int64_t i = 0; i < got.n / (int64_t)sizeof(double); i++) {
        near(((const double *)(const void *)got.p)[i], ((const double *)(const void *)want->p)[i],
             1e-9);
    }
    ru_app_bytes_fini(&got);
}

/* Counts are exact. Sums of kmeans, and what lasso computes with them, are rounded in another
 * order; the products of lasso are those of the next block. */
static void test_tables_are_counted_again(void **state)
{
    (void)state;
    enum { LDA, KMEANS, LASSO, APPS };
    char path[64], lda[256];
    snprintf(lda, sizeof lda, "app: lda\ndata: {format: libsvm, train: %s}\nlda: {topics: 6}\n",
             documents_file(path));
    const char *const yaml[APPS] = {
        lda,
        "app: kmeans\ndata: {format: csv, label: none, train: " DATA
        "numbers.csv}\nkmeans: {clusters: 5, first: rows}\n",
        "app: lasso\ndata: {format: csv, train: " DATA
        "numbers.csv}\nlasso: {lambda: 0.1, block: 4, correlation: 1}\n"};
    for (uint32_t k = 0; k < 2 * APPS; k++) {
        uint32_t app = k / 2, executors = k % 2 == 0 ? 1 : 4;
        recount c = {0};
        ru_err err = {0};
        open_job(&c.s, yaml[app], executors);
        for (uint32_t clock = 0; clock < 7; clock++) {
            (void)clock_of(&c.s);
        }
        assert_ok(ru_app_local_save(c.s.local, &c.s.state, &err), err);
        open_recount(&c, executors);
        if (c.s.file.ops->drive != NULL) {
            drive_again(&c);
        }
        for (uint32_t step = 0; step < executors * c.fresh.shape.rounds; step++) {
            count_again(&c, step % executors, step / executors);
        }
        const ru_app_state *was = c.s.state;
        for (uint32_t t = 0; t < (app == LASSO ? 1 : was->shape.n_tables); t++) {
            const ru_app_table *table = &was->shape.table[t];
            double tolerance = app == KMEANS ? 1e-4 : 0;
            all_near(c.fresh.value[t], was->value[t], table->rows * table->width, tolerance);
            all_near(c.fresh.extra[t], was->extra[t], table->rows * was->extra_width[t], tolerance);
            for (int64_t r = 0; app == KMEANS && r < table->rows; r++) { /* the counts */
                int64_t at = (r + 1) * table->width - 1;
                assert_true(c.fresh.extra[t][at] == was->extra[t][at] && was->extra[t][at] > 0);
            }
        }
        for (uint32_t e = 0; app == LASSO && e < executors; e++) {
            same_residuals(&c, e);
        }
        close_recount(&c, executors);
    }
    (void)unlink(path);
}

RU_TESTS(train_oracle, cmocka_unit_test(test_objectives),
         cmocka_unit_test(test_matrix_factorisation), cmocka_unit_test(test_planted_topics),
         cmocka_unit_test(test_tables_are_counted_again))
