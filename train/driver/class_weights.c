/* Weights of the classes in the loss: given, or by how often each class occurs. */
#include <string.h>

#include "base/str.h"
#include "run/predict.h"
#include "train/driver/trainer_impl.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the run is full");
}

/* How often each class stands among the labels of all training samples. */
static ru_status count_labels(rui_trainer *t, int64_t *counts, ru_err *err)
{
    const ru_field *fields;
    uint32_t n = ru_dataset_fields(t->train_set, &fields);
    void *at[RU_FIELDS_MAX] = {0};
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    const ru_type *y = &fields[1].type;
    int64_t classes = t->model.facts.classes;
    bool shares = y->dtype == RU_F32 && ru_label_is_class(y, classes);
    ru_status st =
        y->dtype == RU_I64 || shares
            ? RU_OK
            : RU_FAIL(err, RU_E_CONFIG, "train.class_weights: balanced needs classes as labels");
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        at[k] = ru_arena_alloc(&scratch, ru_type_bytes(&fields[k].type), 64);
        st = at[k] != NULL ? RU_OK : full(err);
    }
    for (int64_t i = 0; i < t->count && st == RU_OK; i++) {
        st = ru_dataset_read(t->train_set, i, at, err);
        for (int64_t e = 0; e < (shares ? 1 : ru_type_count(y)) && st == RU_OK; e++) {
            int64_t label = shares ? ru_label_class(y, at[1]) : ((const int64_t *)at[1])[e];
            counts[label >= 0 && label < classes ? label : 0]++;
        }
    }
    ru_arena_fini(&scratch);
    return st;
}

/* Each class has the same part in the sum of the weights of all samples, which is their number. */
static ru_status balance(rui_trainer *t, double *w, ru_err *err)
{
    int64_t n = t->model.facts.classes, present = 0, all = 0;
    int64_t *counts = RU_NEW(t->arena, int64_t, n);
    if (counts == NULL) {
        return full(err);
    }
    RU_TRY(count_labels(t, counts, err));
    for (int64_t k = 0; k < n; k++) {
        present += counts[k] > 0;
        all += counts[k];
    }
    for (int64_t k = 0; k < n; k++) {
        w[k] = counts[k] > 0 ? (double)all / ((double)present * (double)counts[k]) : 1;
    }
    return RU_OK;
}

ru_status rui_trainer_class_weights(rui_trainer *t, ru_err *err)
{
    const ru_conf_texts *given = &t->job->train.class_weights;
    int64_t classes = t->model.facts.classes;
    if (given->n == 0) {
        return RU_OK;
    }
    if (t->model.loss != RU_LOSS_CROSS_ENTROPY || classes < 1) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.class_weights needs the loss cross_entropy and labels that are "
                       "classes");
    }
    double *w = RU_NEW(t->arena, double, classes);
    if (w == NULL) {
        return full(err);
    }
    bool balanced = strcmp(given->at[0], "balanced") == 0;
    if (!balanced && given->n != classes) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.class_weights has %u numbers, but the data have %lld classes",
                       given->n, (long long)classes);
    }
    RU_TRY(balanced ? balance(t, w, err) : RU_OK);
    for (int64_t k = 0; k < classes && !balanced; k++) {
        RU_CHECK(ru_str_f64(ru_str_c(given->at[k]), &w[k])); /* checked with the job */
    }
    t->class_weights = w;
    t->n_class_weights = (uint32_t)classes;
    return RU_OK;
}
