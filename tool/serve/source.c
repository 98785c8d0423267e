#include "tool/serve/source.h"

#include <stdlib.h>
#include <string.h>

#include "data/norm.h"
#include "env/file/file.h"
#include "exec/settle.h"
#include "run/rundir.h"
#include "store/onnx_file.h"
#include "store/tokenizer.h"
#include "train/model/step.h"
#include "world/pass/pass.h"

typedef struct source {
    ru_arena arena;
    rui_served_source_options opt;
    /* a run */
    ru_rundir run;
    ru_model model;
    ru_norm norm;
    /* an ONNX file */
    ru_onnx_file file; /* where its weights outside are; the model itself is a copy, because a file
                          may be replaced while it is served */
    ru_arena file_arena; /* of its bytes; empty when no graph is read any more */
    char *bytes;
    int64_t size_bytes;
    ru_onnx_external external;
    ru_onnx_info info;
    const char *batch[RU_OIP_TENSORS_MAX]; /* [n_batch] symbols of the number of rows */
    uint32_t n_batch;
    ru_graph first; /* weights of the others are views of its own */
    /* of the graph of one row, which is read first and lives as long as the model */
    ru_texts words;
    bool texts_in[RU_OIP_TENSORS_MAX], texts_out[RU_OIP_TENSORS_MAX], has_first;
} source;

static void close_source(void *self)
{
    source *s = self;
    ru_model_close(&s->model);
    ru_onnx_file_close(&s->file);
    ru_arena_fini(&s->file_arena);
    ru_arena_fini(&s->arena);
    free(s);
}

/* -- runs --------------------------------------------------------------------------------------
 */

static ru_status run_graph(void *self, int64_t rows, int64_t length, ru_arena *arena, ru_graph *out,
                           ru_err *err)
{
    source *s = self;
    const ru_graph *infer = &s->model.infer;
    const ru_type *in = &ru_graph_value(infer, infer->inputs[0])->type;
    if (in->rank > 0 && !ru_dim_is_symbolic(in->dims[0])) {
        rows = in->dims[0]; /* an imported model may have a fixed batch */
    }
    ru_step_options so = {.loss = s->model.loss, .batch = rows, .x = s->model.facts.x};
    ru_step_graph step;
    ru_graph other;
    if (length > 0) {
        RU_TRY(ru_model_of_length(&s->run.job, &s->run.ckpt.facts, length, arena, &other, err));
        infer = &other;
        so.x.dims[0] = length;
    }
    RU_TRY(ru_step_build_eval(infer, &so, arena, &step, err));
    *out = step.graph;
    return RU_OK;
}

static ru_status run_steps(void *self, int64_t rows, int64_t wanted, int64_t slots, bool bf16,
                           ru_arena *arena, ru_graph *out, ru_err *err)
{
    source *s = self;
    const ru_zoo_steps steps = {.rows = rows, .wanted = wanted, .slots = slots, .bf16 = bf16};
    return ru_model_steps(&s->run.job, &s->run.ckpt.facts, &steps, arena, out, err);
}

static ru_status run_load(void *self, const ru_graph *g, ru_exe *exe, ru_err *err)
{
    source *s = self;
    return ru_ckpt_load(&s->run.ckpt, g, exe, false, err);
}

/* As `rubato predict` prepares the samples of an array. */
static void run_before(void *self, void *rows, int64_t n)
{
    source *s = self;
    const ru_type *x = &s->model.facts.x;
    int64_t per = ru_type_count(x);
    for (int64_t k = 0; x->dtype == RU_F32 && k < n; k++) {
        float *row = (float *)rows + k * per;
        ru_columns_normalize(&s->model.facts.columns, row);
        ru_norm_apply(&s->norm, row, 1);
    }
}

static const ru_source_ops run_ops = {.name = "rubato_run",
                                      .graph = run_graph,
                                      .steps = run_steps,
                                      .load = run_load,
                                      .before = run_before,
                                      .close = close_source};

/* The one that is named, else the one in the run's folder. */
static ru_status open_tokenizer(source *s, const char *run, const ru_tokenizer **out, ru_err *err)
{
    const char *path = s->opt.tokenizer;
    ru_tokenizer *t = NULL;
    if (path == NULL) {
        path = ru_path_join(&s->arena, run, "tokenizer.json");
        path = path != NULL && ru_path_exists(path) ? path : NULL;
    }
    RU_TRY(path != NULL ? ru_tokenizer_open(path, &s->arena, &t, err) : RU_OK);
    *out = t;
    return RU_OK;
}

static ru_status open_run(source *s, const char *path, ru_source *out, ru_err *err)
{
    static const char *const outputs[] = {"output"};
    RU_TRY(ru_rundir_open(path, &s->arena, &s->run, err));
    RU_TRY(ru_model_open(&s->run.job, &s->run.ckpt.facts, s->run.onnx, &s->arena, &s->model, err));
    const ru_data_options d = ru_job_data_options(&s->run.job, false);
    RU_TRY(ru_norm_open(&d, &s->model.facts.x, "the job", &s->arena, &s->norm, err));
    *out = (ru_source){.ops = &run_ops, .self = s, .outputs = outputs};
    return open_tokenizer(s, path, &out->tokenizer, err);
}

/* -- ONNX --------------------------------------------------------------------------------------
 */

/* Symbols of the first dimensions are the number of rows, unless the user gave them one. */
static void find_batch(source *s, const ru_graph *signature)
{
    for (uint32_t k = 0; k < signature->n_inputs && k < RU_OIP_TENSORS_MAX; k++) {
        const ru_type *t = &ru_graph_value(signature, signature->inputs[k])->type;
        if (t->rank == 0 || !ru_dim_is_symbolic(t->dims[0])) {
            continue;
        }
        const char *name = signature->symbols[ru_dim_sym(t->dims[0])];
        bool known = false;
        for (uint32_t i = 0; i < s->n_batch; i++) {
            known = known || strcmp(s->batch[i], name) == 0;
        }
        if (!known) {
            s->batch[s->n_batch++] = name;
        }
    }
}

static void keep_first(source *s, const ru_graph *g, const ru_onnx_info *info)
{
    if (s->has_first) {
        return;
    }
    s->has_first = true;
    s->words = info->words;
    s->first = *g;
    for (uint32_t k = 0; k < g->n_inputs && k < RU_OIP_TENSORS_MAX; k++) {
        s->texts_in[k] = info->texts_in[k];
    }
    for (uint32_t k = 0; k < g->n_outputs && k < RU_OIP_TENSORS_MAX; k++) {
        s->texts_out[k] = info->texts_out[k];
    }
}

static ru_status onnx_graph(void *self, int64_t rows, int64_t length, ru_arena *arena,
                            ru_graph *out, ru_err *err)
{
    source *s = self;
    uint32_t n = s->n_batch + s->opt.n_dims;
    if (length > 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "an ONNX model is served with one size of inputs");
    }
    ru_onnx_dim *dims = RU_NEW(arena, ru_onnx_dim, n);
    if (dims == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    for (uint32_t k = 0; k < n; k++) {
        dims[k] = k < s->n_batch ? (ru_onnx_dim){s->batch[k], rows} : s->opt.dims[k - s->n_batch];
    }
    const ru_onnx_options o = {.external = &s->external,
                               .dims = dims,
                               .n_dims = n,
                               .like = s->has_first ? &s->first : NULL};
    ru_arrays none = {0};
    ru_settle settle = {.opt = &s->opt.exe, .arrays = &none, .arena = arena};
    ru_onnx_info info;
    RU_TRY(ru_onnx_read(s->bytes, s->size_bytes, &o, arena, out, &info, err));
    RU_TRY(ru_pass_keep(out, &s->file_arena, err));
    keep_first(s, out, &info);
    if (ru_graph_trains(out)) {
        RU_TRY(ru_pass_infer(out, arena, out, err));
    }
    return ru_exe_settle(&settle, out, out, err);
}

static void onnx_rest(void *self)
{
    source *s = self;
    ru_arena_fini(&s->file_arena);
    s->bytes = NULL;
    s->size_bytes = 0;
}

static const ru_source_ops onnx_ops = {
    .name = "rubato_onnx", .graph = onnx_graph, .rest = onnx_rest, .close = close_source};

static ru_status open_onnx(source *s, const char *path, ru_source *out, ru_err *err)
{
    ru_graph signature;
    RU_TRY(ru_onnx_file_open(path, &s->file, err));
    RU_TRY(ru_file_read(path, INT64_MAX / 2, &s->file_arena, &s->bytes, &s->size_bytes, err));
    s->external = ru_onnx_file_external(&s->file);
    const ru_onnx_options o = {
        .external = &s->external, .dims = s->opt.dims, .n_dims = s->opt.n_dims, .signature = true};
    RU_TRY(ru_onnx_read(s->bytes, s->size_bytes, &o, &s->arena, &signature, &s->info, err));
    for (uint32_t k = 0; k < signature.n_inputs; k++) {
        const char *name = ru_graph_value(&signature, signature.inputs[k])->name;
        if (s->info.shapes[k]) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "input '%s' determines shapes, so the model cannot be served", name);
        }
    }
    find_batch(s, &signature);
    *out = (ru_source){.ops = &onnx_ops,
                       .self = s,
                       .outputs = s->info.outputs,
                       .texts_in = s->texts_in,
                       .texts_out = s->texts_out,
                       .words = &s->words};
    return RU_OK;
}

ru_status rui_served_source_open(const char *path, const rui_served_source_options *opt,
                                 ru_source *out, ru_err *err)
{
    source *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    s->opt = *opt;
    ru_arena_init(&s->arena, 0);
    ru_arena_init(&s->file_arena, 0);
    ru_status st =
        ru_path_is_dir(path) ? open_run(s, path, out, err) : open_onnx(s, path, out, err);
    if (st != RU_OK) {
        close_source(s);
        return ru_path_is_dir(path) ? st : ru_err_wrap(err, st, "%s", path);
    }
    return RU_OK;
}
