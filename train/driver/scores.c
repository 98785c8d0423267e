#include "train/driver/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/predict.h"
#include "train/job/metric.h"

/* -- classes ----------------------------------------------------------------------------------- */

static int64_t best_of(const float *row, int64_t classes)
{
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++) {
        best = row[k] > row[best] ? k : best;
    }
    return best;
}

/* Is the label among the five highest? Of equal scores the earlier class counts as higher. */
static bool in_top5(const float *row, int64_t classes, int64_t label)
{
    int64_t above = 0;
    for (int64_t k = 0; k < classes; k++) {
        above += row[k] > row[label] || (row[k] == row[label] && k < label);
    }
    return above < 5;
}

typedef struct scored {
    float score;
    bool is;
} scored;

static int by_score(const void *a, const void *b)
{
    float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x > y) - (x < y);
}

/* Chance that a sample of the class has a higher score than one of the others: the rank sum of
 * Mann and Whitney, with mean ranks for ties. */
static double area(scored *s, int64_t n)
{
    int64_t is = 0;
    double ranks = 0;
    qsort(s, (size_t)n, sizeof *s, by_score);
    for (int64_t i = 0, end; i < n; i = end) {
        int64_t here = 0;
        for (end = i; end < n && s[end].score == s[i].score; end++) {
            here += s[end].is;
        }
        ranks += (double)here * ((double)(i + end + 1) / 2.0);
        is += here;
    }
    double others = (double)(n - is), own = (double)is;
    return is == 0 || is == n ? RU_NAN : (ranks - own * (own + 1) / 2) / (own * others);
}

static double ratio(int64_t part, int64_t all)
{
    return all > 0 ? (double)part / (double)all : 0;
}

ru_status ru_class_scores_get(const int64_t *labels, const float *scores, int64_t n,
                              int64_t classes, bool areas, ru_arena *arena, ru_class_scores *out,
                              ru_err *err)
{
    int64_t *confusion = ru_arena_zalloc(arena, classes * classes * 8, 64), top5 = 0;
    ru_class_scores s = {.classes = classes,
                         .samples = n,
                         .confusion = confusion,
                         .precision = RU_NEW(arena, double, classes),
                         .recall = RU_NEW(arena, double, classes),
                         .f1 = RU_NEW(arena, double, classes),
                         .auc = RU_NEW(arena, double, classes)};
    scored *order = RU_NEW(arena, scored, n);
    if (confusion == NULL || s.precision == NULL || s.recall == NULL || s.f1 == NULL ||
        s.auc == NULL || order == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the scores of %lld classes",
                       (long long)classes);
    }
    for (int64_t i = 0; i < n; i++) {
        const float *row = scores + i * classes;
        RU_CHECK(labels[i] >= 0 && labels[i] < classes);
        confusion[labels[i] * classes + best_of(row, classes)]++;
        top5 += in_top5(row, classes, labels[i]);
    }
    for (int64_t k = 0; k < classes; k++) {
        int64_t taken = 0, own = 0, hit = confusion[k * classes + k];
        for (int64_t j = 0; j < classes; j++) {
            taken += confusion[j * classes + k];
            own += confusion[k * classes + j];
        }
        s.precision[k] = ratio(hit, taken);
        s.recall[k] = ratio(hit, own);
        s.f1[k] = ratio(2 * hit, taken + own);
        for (int64_t i = 0; areas && i < n; i++) {
            order[i] = (scored){scores[i * classes + k], labels[i] == k};
        }
        s.auc[k] = areas ? area(order, n) : RU_NAN;
    }
    s.top5 = classes > 5 ? ratio(top5, n) : RU_NAN;
    *out = s;
    return RU_OK;
}

ru_class_means ru_class_means_get(const ru_class_scores *s)
{
    ru_class_means m = {0};
    double occur = 0, areas = 0;
    for (int64_t k = 0; k < s->classes; k++) {
        int64_t own = 0;
        for (int64_t j = 0; j < s->classes; j++) {
            own += s->confusion[k * s->classes + j];
        }
        if (own == 0) {
            continue;
        }
        occur++;
        m.precision += s->precision[k];
        m.recall += s->recall[k];
        m.f1 += s->f1[k];
        m.auc += isnan(s->auc[k]) ? 0 : s->auc[k];
        areas += isnan(s->auc[k]) ? 0 : 1;
    }
    m.precision /= occur;
    m.recall /= occur;
    m.f1 /= occur;
    m.auc = areas > 0 ? m.auc / areas : RU_NAN;
    return m;
}

/* -- numbers ----------------------------------------------------------------------------------- */

typedef struct offs {
    double mae, rmse, r2;
} offs;

/* R2 of each output, then the mean over the outputs that vary. */
static offs offs_of(const float *x, const float *y, int64_t n, int64_t outputs)
{
    offs o = {0};
    double squares = 0, sum_r2 = 0, vary = 0;
    for (int64_t k = 0; k < outputs; k++) {
        double mean = 0, left = 0, all = 0;
        for (int64_t i = 0; i < n; i++) {
            mean += (double)y[i * outputs + k] / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            double label = (double)y[i * outputs + k], d = (double)x[i * outputs + k] - label;
            o.mae += fabs(d);
            left += d * d;
            all += (label - mean) * (label - mean);
        }
        squares += left;
        sum_r2 += all > 0 ? 1 - left / all : 0;
        vary += all > 0;
    }
    double parts = (double)(n * outputs);
    o.mae /= parts;
    o.rmse = sqrt(squares / parts);
    o.r2 = vary > 0 ? sum_r2 / vary : RU_NAN;
    return o;
}

/* -- named figures ----------------------------------------------------------------------------- */

static int64_t classes_of(const ru_scores *s)
{
    return s->outputs == 1 ? 2 : s->outputs; /* one output: the second of two classes, or not */
}

static bool classifies(const ru_scores *s)
{
    bool one = s->loss == RU_LOSS_BINARY_CROSS_ENTROPY && s->outputs == 1 && s->label->rank == 0;
    return one || (s->loss == RU_LOSS_CROSS_ENTROPY && s->outputs >= 2 &&
                   s->outputs <= RU_SCORED_CLASSES_MAX && ru_label_is_class(s->label, s->outputs));
}

ru_status ru_scores_open(ru_scores *s, ru_arena *arena, ru_err *err)
{
    s->label_bytes = ru_type_bytes(s->label);
    bool classes = classifies(s);
    bool numbers = s->loss == RU_LOSS_MSE && s->label->dtype == RU_F32 &&
                   ru_type_count(s->label) == s->outputs;
    for (uint32_t k = 0; k < s->n_names; k++) {
        const char *name = s->names[k];
        bool of_classes = ru_metric_is(RU_METRIC_CLASSES, name);
        if (!(of_classes ? classes : numbers)) {
            return RU_FAIL(err, RU_E_CONFIG, "the metric %s needs %s; leave it out", name,
                           of_classes ? "a classifier of 2 to 4096 classes with one class a sample"
                                      : "train.loss mse and labels that are numbers");
        }
        if (strcmp(name, "top5") == 0 && classes_of(s) <= 5) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "the metric top5 needs more than 5 classes, the data have %lld; leave "
                           "it out",
                           (long long)classes_of(s));
        }
    }
    s->predictions = ru_arena_alloc(arena, s->count * s->outputs * 4, 64);
    s->labels = ru_arena_alloc(arena, s->count * s->label_bytes, 64);
    return s->predictions != NULL && s->labels != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the outputs of %lld samples",
                         (long long)s->count);
}

void ru_scores_put(ru_scores *s, int64_t first, int64_t n, const float *outputs, const void *labels)
{
    RU_CHECK(first >= 0 && first + n <= s->count);
    memcpy(s->predictions + first * s->outputs, outputs, (size_t)(n * s->outputs) * 4);
    memcpy(s->labels + first * s->label_bytes, labels, (size_t)(n * s->label_bytes));
}

int64_t ru_scores_bytes(const ru_scores *s, int64_t n)
{
    return n * (s->outputs * 4 + s->label_bytes);
}

void ru_scores_pack(const ru_scores *s, int64_t first, int64_t n, void *into)
{
    RU_CHECK(first >= 0 && first + n <= s->count);
    uint8_t *to = into;
    memcpy(to, s->predictions + first * s->outputs, (size_t)(n * s->outputs) * 4);
    memcpy(to + n * s->outputs * 4, s->labels + first * s->label_bytes,
           (size_t)(n * s->label_bytes));
}

void ru_scores_unpack(ru_scores *s, int64_t first, int64_t n, const void *from)
{
    const uint8_t *at = from;
    RU_CHECK(first >= 0 && first + n <= s->count);
    memcpy(s->predictions + first * s->outputs, at, (size_t)(n * s->outputs) * 4);
    memcpy(s->labels + first * s->label_bytes, at + n * s->outputs * 4,
           (size_t)(n * s->label_bytes));
}

static bool wants(const ru_scores *s, const char *name)
{
    bool yes = false;
    for (uint32_t k = 0; k < s->n_names; k++) {
        yes = yes || strcmp(s->names[k], name) == 0;
    }
    return yes;
}

/* Probabilities and labels as class numbers. */
static void by_class(const ru_scores *s, float *scores, int64_t *labels)
{
    int64_t classes = classes_of(s);
    for (int64_t i = 0; i < s->count; i++) {
        const uint8_t *label = s->labels + i * s->label_bytes;
        float *row = scores + i * classes;
        row[0] = 0; /* of the class that has no output */
        memcpy(row + (s->outputs == 1), s->predictions + i * s->outputs, (size_t)s->outputs * 4);
        ru_softmax(row, classes);
        labels[i] = s->label->dtype == RU_F32 && s->label->rank == 0
                        ? *(const float *)(const void *)label > 0.5f
                        : ru_label_class(s->label, label);
    }
}

ru_status ru_scores_get(const ru_scores *s, ru_arena *scratch, ru_metrics *m, ru_err *err)
{
    offs o = {0};
    ru_class_means means = {0};
    ru_class_scores c = {0};
    if (s->loss == RU_LOSS_MSE) {
        o = offs_of(s->predictions, (const float *)(const void *)s->labels, s->count, s->outputs);
    } else {
        int64_t *labels = RU_NEW(scratch, int64_t, s->count);
        float *scores = RU_NEW(scratch, float, s->count *classes_of(s));
        if (labels == NULL || scores == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the scores of %lld samples",
                           (long long)s->count);
        }
        by_class(s, scores, labels);
        RU_TRY(ru_class_scores_get(labels, scores, s->count, classes_of(s), wants(s, "auc"),
                                   scratch, &c, err));
        means = ru_class_means_get(&c);
    }
    const ru_metric all[] = {{"top5", c.top5},         {"precision", means.precision},
                             {"recall", means.recall}, {"f1", means.f1},
                             {"auc", means.auc},       {"mae", o.mae},
                             {"rmse", o.rmse},         {"r2", o.r2}};
    for (uint32_t k = 0; k < s->n_names; k++) {
        for (uint32_t i = 0; i < RU_ARRAY_LEN(all); i++) {
            if (strcmp(all[i].name, s->names[k]) == 0 && m->n < RU_METRICS_MAX) {
                m->at[m->n++] = all[i];
            }
        }
    }
    return RU_OK;
}
