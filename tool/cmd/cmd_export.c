/* rubato export: a trained model, or an ONNX file, as ONNX or safetensors. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "launch/launch.h"
#include "run/rundir.h"
#include "store/onnx_file.h"
#include "store/safetensors.h"
#include "tool/cmd.h"
#include "train/app/app_run.h"
#include "train/model/inputs.h"
#include "train/remote/serve.h"

typedef struct source {
    ru_graph graph;         /* inference form, weights as data of STATE or CONST values */
    ru_onnx_file file;      /* behind an ONNX source */
    ru_model model;         /* behind a run */
    ru_columns columns;     /* of its table; n 0: none */
    bool normalizes;        /* the graph takes numbers of the table as they stand */
    ru_conf_f64s mean, std; /* of the job: the graph takes inputs to which they were applied */
    ru_onnx_external external;
} source;

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static ru_status from_onnx(const char *path, ru_arena *arena, source *s, ru_err *err)
{
    RU_TRY(ru_onnx_file_open(path, &s->file, err));
    s->external = ru_onnx_file_external(&s->file);
    ru_onnx_options opt = {.external = &s->external};
    ru_status st = ru_onnx_read(s->file.model.data, s->file.model.size_bytes, &opt, arena,
                                &s->graph, NULL, err);
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", path);
}

static ru_status from_run(const char *path, ru_arena *arena, source *s, ru_err *err)
{
    ru_rundir dir;
    RU_TRY(ru_rundir_open(path, arena, &dir, err));
    RU_TRY(ru_rundir_model(&dir, arena, &s->model, err));
    s->graph = s->model.infer;
    s->columns = dir.ckpt.facts.columns;
    s->mean = dir.job.data.mean;
    s->std = dir.job.data.std;
    if (!s->columns.normalize && s->columns.missing != RU_MISSING_MEAN) {
        return RU_OK;
    }
    ru_graph raw;
    ru_status st = ru_model_normalizing(&s->model.infer, &s->columns, arena, &raw, err);
    s->normalizes = st == RU_OK;
    s->graph = s->normalizes ? raw : s->graph;
    return st == RU_E_UNSUPPORTED ? RU_OK : st; /* then who uses it has to do that */
}

/* Someone else has to make the inputs from the cells of a table. */
static void say_inputs(const ru_columns *c, const char *file, bool normalizes)
{
    enum { MOST = 12 };
    char text[2000];
    ru_text t = ru_text_into(text, sizeof text);
    bool texts = false;
    for (uint32_t k = 0; k < c->n; k++) {
        texts = texts || c->at[k].categories.n > 0;
    }
    if (!c->normalize && !texts && c->ignored.n == 0 && c->missing == RU_MISSING_ERROR) {
        return;
    }
    ru_model_inputs_text(c, MOST, &t);
    bool fills = normalizes && c->missing == RU_MISSING_MEAN;
    printf("the inputs of %s are, in this order, %s; %s%s%s%s\n", file, text,
           c->normalize && !normalizes ? "numbers must be normalised before, with the means and "
                                         "deviations in the checkpoint's state.json"
                                       : "numbers stand as in the table",
           fills ? ", NaN stands for a missing number, and the model puts the mean of its column "
                   "there"
                 : ", and none may be missing",
           c->normalize && normalizes ? "; the model normalises them itself" : "",
           texts ? "; texts must be given as these 1 and 0, all 0 for a missing one" : "");
}

static void put_numbers(const char *name, const ru_conf_f64s *list, ru_text *t)
{
    enum { MOST = 8 };
    for (uint32_t k = 0; k < list->n && k < MOST; k++) {
        ru_text_putf(t, "%s%.9g", k == 0 ? name : ", ", list->at[k]);
    }
    ru_text_put(t, list->n > MOST ? ", ..." : "");
}

/* Someone else has to apply data.mean and data.std of the job. */
static void say_scale(const source *s, const char *file)
{
    char text[400];
    ru_text t = ru_text_into(text, sizeof text);
    if (s->mean.n == 0 && s->std.n == 0) {
        return;
    }
    put_numbers("mean ", &s->mean, &t);
    put_numbers(s->mean.n > 0 ? ", std " : "std ", &s->std, &t);
    printf("the inputs of %s are those of the data after data.mean and data.std of the job, (x - "
           "mean) / std: %s\n",
           file, text);
}

/* Named weights: state of a trained model, constants of an ONNX file that nodes read. */
static ru_status weights_list(const ru_graph *g, ru_arena *arena, ru_arrays *out, ru_err *err)
{
    for (uint32_t k = 1; k < g->n_values; k++) {
        const ru_value *v = &g->values[k];
        bool weight = v->kind == RU_VALUE_STATE ||
                      (v->kind == RU_VALUE_CONST && ru_dtype_is_float(v->type.dtype));
        if (weight && v->name != NULL && v->data != NULL && v->role != RU_ROLE_SLOT) {
            ru_array a = {.name = v->name, .type = v->type, .data = v->data};
            RU_TRY(ru_arrays_add(out, arena, &a, err));
        }
    }
    if (out->n == 0) {
        return RU_FAIL(err, RU_E_DATA, "the model has no weights");
    }
    return RU_OK;
}

static ru_status write_all(const ru_cmd_in *in, const source *s, ru_err *err)
{
    const char *onnx = ru_cmd_text(in, "onnx"), *safetensors = ru_cmd_text(in, "safetensors");
    if (onnx != NULL) {
        ru_onnx_write_options opt = {.opset = ru_cmd_i64(in, "opset"),
                                     .producer_version = RU_VERSION,
                                     .external = ru_cmd_flag(in, "external")};
        bool external;
        RU_TRY(ru_onnx_file_save(onnx, &s->graph, &opt, &external, err));
        printf("wrote %s\n", onnx);
        if (external) {
            printf("wrote %s.data\n", onnx);
        }
        say_inputs(&s->columns, onnx, s->normalizes);
        say_scale(s, onnx);
    }
    if (safetensors != NULL) {
        ru_arrays list = {0};
        RU_TRY(weights_list(&s->graph, in->arena, &list, err));
        const ru_meta meta[] = {{"format", "pt"}, {"producer", "rubato " RU_VERSION}};
        RU_TRY(ru_safetensors_save(safetensors, list.at, list.n, meta, RU_ARRAY_LEN(meta), err));
        printf("wrote %s\n", safetensors);
        say_inputs(&s->columns, safetensors, false);
        say_scale(s, safetensors);
    }
    return RU_OK;
}

static void listens(void *self, const char *address)
{
    (void)self;
    printf("serving weights at %s until a stop signal comes\n", address);
    (void)fflush(stdout);
}

/* Serve the weights to `rubato predict --from` and `rubato eval --from`. */
static ru_status serve(ru_cmd_in *in, ru_err *err)
{
    ru_rundir dir;
    ru_remote w;
    const char *token, *listen = ru_cmd_text(in, "listen");
    if (ru_cmd_given(in, "onnx") || ru_cmd_given(in, "safetensors")) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--listen serves the weights and writes no file; give it without --onnx and "
                       "--safetensors");
    }
    if (!ru_link_tcp_address_ok(listen)) {
        return RU_FAIL(
            err, RU_E_USAGE,
            "--listen '%s': expected HOST:PORT, [v6]:PORT or :PORT with a port from 0 to "
            "65535",
            listen);
    }
    RU_TRY(ru_token_get(ru_cmd_text(in, "token-file"), in->arena, &token, err));
    RU_TRY(ru_rundir_open(in->args[0], in->arena, &dir, err));
    RU_TRY(ru_remote_open(&dir, in->arena, &w, err));
    const ru_remote_serve_options o = {.weights = &w,
                                       .listen = listen,
                                       .token = (const uint8_t *)token,
                                       .token_bytes = (uint32_t)strlen(token),
                                       .guests_max = (uint32_t)ru_cmd_i64(in, "guests"),
                                       .address = listens};
    ru_self_stop_watch();
    ru_status st = ru_remote_serve(&o, in->arena, err);
    in->exit_code = 128 + ru_self_stop_asked();
    ru_self_stop_unwatch();
    ru_remote_close(&w);
    return st;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    if (ru_cmd_given(in, "listen")) {
        return serve(in, err);
    }
    if (ru_cmd_text(in, "onnx") == NULL && ru_cmd_text(in, "safetensors") == NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "there is nothing to write; give --onnx FILE or --safetensors FILE, or "
                       "--listen HOST:PORT to serve the weights");
    }
    source s = {0};
    const char *path = in->args[0], *safetensors = ru_cmd_text(in, "safetensors");
    if (ru_app_ckpt_is(path)) {
        if (safetensors == NULL || ru_cmd_text(in, "onnx") != NULL) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "the tables of an app are written with --safetensors FILE, not --onnx");
        }
        RU_TRY(ru_app_export(path, safetensors, in->arena, err));
        printf("wrote %s\n", safetensors);
        return RU_OK;
    }
    ru_status st = ends_with(path, ".onnx") && !ru_path_is_dir(path)
                       ? from_onnx(path, in->arena, &s, err)
                       : from_run(path, in->arena, &s, err);
    if (st == RU_OK) {
        st = write_all(in, &s, err);
    }
    ru_onnx_file_close(&s.file);
    ru_model_close(&s.model);
    return st;
}

static const ru_opt opts[] = {
    RU_OPT(TEXT, "onnx", "FILE", "write the inference graph with its weights as an ONNX model"),
    RU_OPT(TEXT, "safetensors", "FILE", "write the weights as a safetensors file"),
    RU_OPT(FLAG, "external", NULL,
           "write the weights to FILE.data beside the ONNX model; always on above 2 GiB"),
    RU_OPT(TEXT, "listen", "HOST:PORT",
           "serve the weights to `rubato predict --from` and `rubato eval --from` until a stop "
           "signal comes; port 0: any"),
    RU_OPT(TEXT, "token-file", "FILE",
           "with --listen: file with the token that guests must have (default: RUBATO_TOKEN)"),
    RU_OPT(I64, "guests", "N", "with --listen: guests at one time", .def = "64", RU_IN(1, 1000)),
    RU_OPT(I64, "opset", "N", "opset of the ONNX model", .def = "21", RU_IN(17, 21)),
};

static const ru_example examples[] = {
    {"rubato export runs/last --onnx model.onnx", "export the newest checkpoint as an ONNX model"},
    {"rubato export runs/last --listen :4100 --token-file token",
     "serve the newest checkpoint's weights"},
    {"rubato export old.onnx --onnx new.onnx --opset 17", "convert an ONNX model to another opset"},
};

const ru_cmd rui_cmd_export = {
    .name = "export",
    .summary = "write a trained model as ONNX or safetensors",
    .about =
        "RUN is the folder of a run (its best checkpoint where the run keeps it, else the newest), "
        "the folder of one checkpoint, or an ONNX file. Weights "
        "keep their names from training. A model of a table with data.columns takes numbers as "
        "they stand there, normalises them itself, and puts means where a number is NaN (missing: "
        "mean); a line says what its inputs are. Inputs of a job with data.mean and data.std are "
        "those after them, and a line gives the numbers. With --listen the weights are served "
        "instead: "
        "each guest has limits of its own and reaches nothing else.",
    RU_CMD_ARGS("RUN", 1, 1),
    RU_CMD_LISTS(opts, examples),
    .exits = "65 ONNX cannot express the model|66 the run or a file is missing|73 the output "
             "cannot be created or written|69 the address of --listen is taken",
    .run = run,
};
