#include "run/predict.h"

#include <math.h>
#include <string.h>

struct ru_predictor {
    ru_model model;
    ru_step_graph step;
    ru_exe *exe;
    int64_t batch, inputs, outputs;
    bool *left_out;      /* [batch] of the last run; NULL: none ever is */
    ru_late_ports *late; /* trained values come during the first run; NULL: they are here */
};

/* The trained values go straight into the executable: they are in memory once. */
static ru_status open_exe(const ru_rundir *r, int64_t batch, const ru_exe_options *exe_opt,
                          ru_arena *arena, ru_predictor *p, ru_err *err)
{
    const ru_type *in = &ru_graph_value(&p->model.infer, p->model.infer.inputs[0])->type;
    if (in->rank > 0 && !ru_dim_is_symbolic(in->dims[0])) {
        batch = in->dims[0]; /* an imported model may have a fixed batch */
    }
    ru_step_options so = {.loss = p->model.loss, .batch = batch, .x = p->model.facts.x};
    RU_TRY(ru_step_build_eval(&p->model.infer, &so, arena, &p->step, err));
    const ru_type *t = &ru_graph_value(&p->step.graph, p->step.output)->type;
    if (t->dtype != RU_F32 || t->rank == 0 || t->dims[0] != batch) {
        char text[160];
        ru_type_print(&p->step.graph, t, text, sizeof text);
        return RU_FAIL(
            err, RU_E_UNSUPPORTED,
            "the model's output is %s; predictions need f32 with the batch as first dimension",
            text);
    }
    p->batch = batch;
    p->inputs = ru_type_count(&p->model.facts.x);
    p->outputs = ru_type_count(t) / batch;
    const ru_model_facts *f = &p->model.facts;
    bool gaps = f->columns.missing == RU_MISSING_DROP || !r->job.data.strict;
    if (gaps && f->x.dtype == RU_F32) {
        p->left_out = RU_NEW(arena, bool, batch);
        if (p->left_out == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena of the predictor is full");
        }
    }
    RU_TRY(ru_exe_open(&p->step.graph, exe_opt, &p->exe, err));
    if (r->late != NULL) {
        return ru_late_set(r->late, &p->step.graph, p->exe, arena, &p->late, err);
    }
    return ru_ckpt_load(&r->ckpt, &p->step.graph, p->exe, false, err);
}

ru_status ru_predictor_open(const ru_rundir *r, int64_t batch, const ru_exe_options *exe_opt,
                            ru_arena *arena, ru_predictor **out, ru_err *err)
{
    ru_predictor *p = RU_NEW(arena, ru_predictor, 1);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the predictor is full");
    }
    RU_TRY(ru_model_open(&r->job, &r->ckpt.facts, r->onnx, arena, &p->model, err));
    ru_status st = open_exe(r, batch, exe_opt, arena, p, err);
    if (st != RU_OK) {
        ru_predictor_close(p);
        return st;
    }
    *out = p;
    return RU_OK;
}
void ru_predictor_close(ru_predictor *p)
{
    if (p != NULL) {
        ru_exe_close(p->exe);
        p->exe = NULL;
        ru_model_close(&p->model);
    }
}

const ru_model *ru_predictor_model(const ru_predictor *p)
{
    return &p->model;
}

int64_t ru_predictor_batch(const ru_predictor *p)
{
    return p->batch;
}

int64_t ru_predictor_inputs(const ru_predictor *p)
{
    return p->inputs;
}

int64_t ru_predictor_outputs(const ru_predictor *p)
{
    return p->outputs;
}

void *ru_predictor_input(ru_predictor *p, int64_t k)
{
    RU_CHECK(k >= 0 && k < p->batch);
    return (uint8_t *)ru_exe_input(p->exe, p->step.x[0]) + k * ru_type_bytes(&p->model.facts.x);
}

/* NaN in an input leaves its sample out; zeros take its place. */
static void leave_out(ru_predictor *p)
{
    float *x = ru_predictor_input(p, 0);
    for (int64_t k = 0; p->left_out != NULL && k < p->batch; k++, x += p->inputs) {
        p->left_out[k] = false;
        for (int64_t i = 0; i < p->inputs; i++) {
            p->left_out[k] = p->left_out[k] || isnan(x[i]);
        }
        for (int64_t i = 0; i < p->inputs && p->left_out[k]; i++) {
            x[i] = 0;
        }
    }
}

bool ru_predictor_left_out(const ru_predictor *p, int64_t k)
{
    return p->left_out != NULL && p->left_out[k];
}

ru_status ru_predictor_run(ru_predictor *p, const float **outputs, ru_err *err)
{
    leave_out(p);
    ru_status st = ru_exe_run(p->exe, &(ru_run_args){0}, err);
    if (p->late != NULL) {
        RU_TRY(ru_late_why(p->late, st, err));
        RU_TRY(ru_late_over(p->late, err));
        p->late = NULL;
    }
    RU_TRY(st);
    *outputs = ru_exe_output(p->exe, p->step.output);
    return RU_OK;
}

void ru_softmax(float *x, int64_t n)
{
    float most = x[0];
    double sum = 0;
    for (int64_t k = 1; k < n; k++) {
        most = x[k] > most ? x[k] : most;
    }
    for (int64_t k = 0; k < n; k++) {
        x[k] = expf(x[k] - most);
        sum += (double)x[k];
    }
    for (int64_t k = 0; k < n; k++) {
        x[k] = (float)((double)x[k] / sum);
    }
}

static int64_t largest(const float *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t k = 1; k < n; k++) {
        at = x[k] > x[at] ? k : at;
    }
    return at;
}

bool ru_label_is_class(const ru_type *label, int64_t classes)
{
    ru_dtype t = label->dtype;
    bool number = label->rank == 0 && (t == RU_I64 || t == RU_I32 || t == RU_U8);
    return classes >= 2 &&
           (number || (t == RU_F32 && label->rank == 1 && label->dims[0] == classes));
}

int64_t ru_label_class(const ru_type *label, const void *at)
{
    switch ((int)label->dtype) {
    case RU_F32:
        return largest(at, label->dims[0]);
    case RU_I64:
        return *(const int64_t *)at;
    case RU_I32:
        return *(const int32_t *)at;
    default:
        return *(const uint8_t *)at;
    }
}
