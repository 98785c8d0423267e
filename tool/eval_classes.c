#include "tool/eval_classes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/run/predict.h"

enum { BATCH = 64, CLASSES_MAX = 4096, SHOWN_MAX = 16 };

/* -- from predictions to figures --------------------------------------------------------------- */

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
    return is == 0 || is == n ? (double)NAN : (ranks - own * (own + 1) / 2) / (own * others);
}

static double ratio(int64_t part, int64_t all)
{
    return all > 0 ? (double)part / (double)all : 0;
}

ru_status ru_class_scores_get(const int64_t *labels, const float *scores, int64_t n,
                              int64_t classes, ru_arena *arena, ru_class_scores *out, ru_err *err)
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
        for (int64_t i = 0; i < n; i++) {
            order[i] = (scored){scores[i * classes + k], labels[i] == k};
        }
        s.auc[k] = area(order, n);
    }
    s.top5 = classes > 5 ? ratio(top5, n) : (double)NAN;
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
    m.auc = areas > 0 ? m.auc / areas : (double)NAN;
    return m;
}

/* -- printing ---------------------------------------------------------------------------------- */

static const char *class_name(const ru_dataset *d, int64_t k, char into[24])
{
    const char *name = ru_dataset_class_name(d, k);
    ru_text t = ru_text_into(into, 24);
    ru_text_putf(&t, "%lld", (long long)k);
    return name != NULL ? name : into;
}

static void print_text(const ru_class_scores *s, const ru_dataset *d, ru_text *out)
{
    ru_class_means m = ru_class_means_get(s);
    char number[24];
    if (!isnan(s->top5)) {
        ru_text_putf(out, "%-10s %.6g\n", "top5", s->top5);
    }
    ru_text_putf(out, "%-10s %.6g\n%-10s %.6g\n%-10s %.6g\n%-10s %.6g\n", "precision", m.precision,
                 "recall", m.recall, "f1", m.f1, "auc", m.auc);
    ru_text_putf(out, "\n%-16s %9s %9s %9s %9s\n", "class", "precision", "recall", "f1", "auc");
    for (int64_t k = 0; k < s->classes; k++) {
        ru_text_putf(out, "%-16.16s %9.4f %9.4f %9.4f %9.4f\n", class_name(d, k, number),
                     s->precision[k], s->recall[k], s->f1[k], s->auc[k]);
    }
    if (s->classes > SHOWN_MAX) {
        ru_text_putf(out,
                     "\nthe confusion matrix of %lld classes is too wide to print; --json has it\n",
                     (long long)s->classes);
        return;
    }
    ru_text_put(out, "\nconfusion: row is the class, column the prediction\n                ");
    for (int64_t k = 0; k < s->classes; k++) {
        ru_text_putf(out, " %6.6s", class_name(d, k, number));
    }
    for (int64_t i = 0; i < s->classes; i++) {
        ru_text_putf(out, "\n%-16.16s", class_name(d, i, number));
        for (int64_t k = 0; k < s->classes; k++) {
            ru_text_putf(out, " %6lld", (long long)s->confusion[i * s->classes + k]);
        }
    }
    ru_text_put(out, "\n");
}

static void put_number(ru_text *out, double v)
{
    if (isfinite(v)) {
        ru_text_f64(out, v);
    } else {
        ru_text_put(out, "null");
    }
}

static void print_json(const ru_class_scores *s, const ru_dataset *d, ru_text *out)
{
    ru_class_means m = ru_class_means_get(s);
    const double means[] = {s->top5, m.precision, m.recall, m.f1, m.auc};
    static const char *const names[] = {"top5", "precision", "recall", "f1", "auc"};
    char number[24];
    for (uint32_t k = 0; k < RU_ARRAY_LEN(names); k++) {
        ru_text_putf(out, ",\"%s\":", names[k]);
        put_number(out, means[k]);
    }
    ru_text_put(out, ",\"classes\":[");
    for (int64_t k = 0; k < s->classes; k++) {
        const double at[] = {s->precision[k], s->recall[k], s->f1[k], s->auc[k]};
        ru_text_put(out, k > 0 ? ",{\"name\":" : "{\"name\":");
        ru_text_json(out, ru_str_c(class_name(d, k, number)));
        for (uint32_t i = 0; i < RU_ARRAY_LEN(at); i++) {
            ru_text_putf(out, ",\"%s\":", names[i + 1]);
            put_number(out, at[i]);
        }
        ru_text_put(out, "}");
    }
    ru_text_put(out, "],\"confusion\":[");
    for (int64_t i = 0; i < s->classes * s->classes; i++) {
        ru_text_putf(out, "%s%lld%s",
                     i % s->classes > 0 ? ","
                     : i > 0            ? ",["
                                        : "[",
                     (long long)s->confusion[i], (i + 1) % s->classes == 0 ? "]" : "");
    }
    ru_text_put(out, "]");
}

/* -- reading ----------------------------------------------------------------------------------- */

static ru_status predict_all(ru_predictor *p, const ru_dataset *d, const ru_field *fields_of,
                             void *y, int64_t *labels, float *scores, ru_err *err)
{
    int64_t count = ru_dataset_count(d), classes = ru_predictor_outputs(p);
    int64_t in_bytes = ru_type_bytes(&fields_of[0].type);
    uint8_t *input = ru_predictor_input(p);
    for (int64_t first = 0; first < count; first += BATCH) {
        int64_t n = count - first < BATCH ? count - first : BATCH;
        for (int64_t i = 0; i < n; i++) {
            void *fields[RU_FIELDS_MAX] = {input + i * in_bytes, y};
            RU_TRY(ru_dataset_read(d, first + i, fields, err));
            labels[first + i] = ru_label_class(&fields_of[1].type, y);
            if (labels[first + i] >= classes) {
                return RU_FAIL(err, RU_E_DATA, "sample %lld is of class %lld; the model has %lld",
                               (long long)(first + i), (long long)labels[first + i],
                               (long long)classes);
            }
        }
        const float *logits;
        RU_TRY(ru_predictor_run(p, &logits, err));
        memcpy(scores + first * classes, logits, (size_t)(n * classes) * sizeof *scores);
        for (int64_t i = 0; i < n; i++) {
            ru_softmax(scores + (first + i) * classes, classes);
        }
    }
    return RU_OK;
}

ru_status rui_eval_classes(const ru_rundir *run, const ru_dataset *data, bool json,
                           const ru_exe_options *exe_opt, ru_arena *arena, ru_text *out,
                           ru_err *err)
{
    const ru_field *fields;
    uint32_t n_fields = ru_dataset_fields(data, &fields);
    bool single = n_fields == 2 && ru_label_is_class(&fields[1].type, ru_dataset_classes(data));
    ru_predictor *p = NULL;
    ru_class_scores s;
    if (!single || ru_dataset_classes(data) > CLASSES_MAX) {
        return RU_FAIL(err, RU_E_USAGE, "--classes works with classifiers of 2 to %d classes only",
                       CLASSES_MAX);
    }
    RU_TRY(ru_predictor_open(run, BATCH, exe_opt, arena, &p, err));
    int64_t n = ru_dataset_count(data), classes = ru_predictor_outputs(p);
    int64_t *labels = RU_NEW(arena, int64_t, n);
    float *scores = RU_NEW(arena, float, n *classes);
    void *label = ru_arena_alloc(arena, ru_type_bytes(&fields[1].type), 8);
    ru_status st =
        labels == NULL || scores == NULL || label == NULL
            ? RU_FAIL(err, RU_E_MEM, "no memory for the scores of %lld samples", (long long)n)
            : predict_all(p, data, fields, label, labels, scores, err);
    if (st == RU_OK) {
        st = ru_class_scores_get(labels, scores, n, classes, arena, &s, err);
    }
    if (st == RU_OK) {
        (json ? print_json : print_text)(&s, data, out);
    }
    ru_predictor_close(p);
    return st;
}
