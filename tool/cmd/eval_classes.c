#include "tool/cmd/eval_classes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/predict.h"
#include "train/driver/scores.h"

enum {
    BATCH = 64, /* a model whose batch is fixed has its own */
    CLASSES_MAX = RU_SCORED_CLASSES_MAX,
    SHOWN_MAX = 16,
};

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

static ru_status predict_all(ru_predictor *p, const ru_dataset *d, const ru_type *label_type,
                             void *y, int64_t *labels, float *scores, ru_err *err)
{
    int64_t count = ru_dataset_count(d), classes = ru_predictor_outputs(p);
    int64_t batch = ru_predictor_batch(p);
    for (int64_t first = 0; first < count; first += batch) {
        int64_t n = count - first < batch ? count - first : batch;
        for (int64_t i = 0; i < n; i++) {
            void *fields[RU_FIELDS_MAX] = {ru_predictor_input(p, i), y};
            RU_TRY(ru_dataset_read(d, first + i, fields, err));
            labels[first + i] = ru_label_class(label_type, y);
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
            : predict_all(p, data, &fields[1].type, label, labels, scores, err);
    if (st == RU_OK) {
        st = ru_class_scores_get(labels, scores, n, classes, true, arena, &s, err);
    }
    if (st == RU_OK) {
        (json ? print_json : print_text)(&s, data, out);
    }
    ru_predictor_close(p);
    return st;
}
