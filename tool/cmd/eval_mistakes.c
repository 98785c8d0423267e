/* Reads the data in order, predicts batch by batch, and shows the first samples that are wrong. */
#include "tool/cmd/eval_mistakes.h"

#include <string.h>

#include "data/describe.h"
#include "run/predict.h"

enum { BATCH = 64 }; /* a model whose batch is fixed has its own */

typedef struct search {
    const ru_dataset *data;
    ru_predictor *predictor;
    void *label; /* one sample's y */
    const ru_type *label_type;
    int64_t *labels; /* [batch] */
    int64_t classes;
    int64_t found, wanted;
    ru_text *out;
} search;

static void put_class(const search *s, int64_t k)
{
    const char *name = ru_dataset_class_name(s->data, k);
    if (name != NULL) {
        ru_text_put(s->out, name);
    } else {
        ru_text_putf(s->out, "%lld", (long long)k);
    }
}

/* Sample `index` with these logits: show it when it is wrong. */
static ru_status judge(search *s, int64_t index, int64_t label, const float *logits, float *scratch,
                       ru_err *err)
{
    int64_t best = 0;
    for (int64_t k = 1; k < s->classes; k++) {
        best = logits[k] > logits[best] ? k : best;
    }
    if (best == label || s->found == s->wanted) {
        return RU_OK;
    }
    s->found++;
    memcpy(scratch, logits, (size_t)s->classes * sizeof *scratch);
    ru_softmax(scratch, s->classes);
    RU_TRY(ru_data_show(s->data, index, s->out, err));
    ru_text_put(s->out, "  read as ");
    put_class(s, best);
    ru_text_putf(s->out, " with %.0f %%, as ", 100 * (double)scratch[best]);
    put_class(s, label);
    ru_text_putf(s->out, " with %.1f %%\n", 100 * (double)scratch[label]);
    return RU_OK;
}

static ru_status look_through(search *s, float *scratch, ru_err *err)
{
    int64_t count = ru_dataset_count(s->data), batch = ru_predictor_batch(s->predictor);
    for (int64_t first = 0; first < count && s->found < s->wanted; first += batch) {
        int64_t n = count - first < batch ? count - first : batch;
        for (int64_t i = 0; i < n; i++) {
            void *fields[RU_FIELDS_MAX] = {ru_predictor_input(s->predictor, i), s->label};
            RU_TRY(ru_dataset_read(s->data, first + i, fields, err));
            s->labels[i] = ru_label_class(s->label_type, s->label);
        }
        const float *logits;
        RU_TRY(ru_predictor_run(s->predictor, &logits, err));
        for (int64_t i = 0; i < n; i++) {
            RU_TRY(judge(s, first + i, s->labels[i], logits + i * s->classes, scratch, err));
        }
    }
    return RU_OK;
}

ru_status rui_eval_mistakes(const ru_rundir *run, const ru_dataset *data, int64_t n,
                            const ru_exe_options *exe_opt, ru_arena *arena, ru_text *out,
                            ru_err *err)
{
    const ru_field *fields;
    uint32_t n_fields = ru_dataset_fields(data, &fields);
    search s = {.data = data, .wanted = n, .out = out, .label_type = &fields[1].type};
    if (n_fields != 2 || !ru_label_is_class(s.label_type, ru_dataset_classes(data))) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--mistakes works with classifiers only; this model is not a classifier");
    }
    RU_TRY(ru_predictor_open(run, BATCH, exe_opt, arena, &s.predictor, err));
    s.classes = ru_predictor_outputs(s.predictor);
    s.labels = RU_NEW(arena, int64_t, ru_predictor_batch(s.predictor));
    s.label = ru_arena_zalloc(arena, ru_type_bytes(s.label_type), 8);
    float *scratch = RU_NEW(arena, float, s.classes);
    ru_status st = RU_FAIL(err, RU_E_LIMIT, "not enough memory in the arena for the samples");
    if (s.labels != NULL && s.label != NULL && scratch != NULL) {
        st = look_through(&s, scratch, err);
    }
    if (st == RU_OK && s.found == 0) {
        ru_text_put(out, "no mistakes\n");
    }
    ru_predictor_close(s.predictor);
    return st;
}
