/* rubato run: any ONNX model on named arrays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "env/clock.h"
#include "exec/exe.h"
#include "exec/pool.h"
#include "exec/settle.h"
#include "store/npy.h"
#include "store/onnx_file.h"
#include "tool/cmd.h"

enum { DIMS_MAX = 64 };

typedef struct session {
    ru_cmd_in *in;
    ru_arena *arena;
    ru_onnx_file file;
    ru_onnx_external external;
    ru_map_file arrays_map;
    ru_arrays arrays; /* what the model will run on */
    ru_texts texts;   /* of the model and of the arrays */
    ru_onnx_dim dims[DIMS_MAX];
    ru_onnx_options opt;
    ru_onnx_ahead ahead;
    ru_settle settle; /* parts of the model that ran while it was opened */
    ru_graph signature, g;
    ru_onnx_info info;
    ru_exe *exe;
    int64_t open_ns, *run_ns; /* [repeat] */
} session;

/* -- what it runs on --------------------------------------------------------------------------- */

/* --dim N=32 */
static ru_status dims_read(session *s, ru_err *err)
{
    uint32_t n;
    const char *const *texts = ru_cmd_texts(s->in, "dim", &n);
    for (uint32_t k = 0; k < n; k++) {
        const char *eq = strchr(texts[k], '=');
        char *end = NULL;
        long long v = eq != NULL ? strtoll(eq + 1, &end, 10) : -1;
        if (eq == NULL || eq[1] == 0 || *end != 0 || v < 0 || n > DIMS_MAX) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--dim %s: expected NAME=NUMBER, as in --dim N=32 (at most %d of them)",
                           texts[k], DIMS_MAX);
        }
        s->dims[k] = (ru_onnx_dim){ru_arena_strn(s->arena, texts[k], eq - texts[k]), v};
    }
    s->opt.dims = s->dims;
    s->opt.n_dims = n;
    return RU_OK;
}

/* Texts go to inputs of texts; bits of 16 (u2) may be given where the model wants bf16. */
static ru_status array_fit(const session *s, uint32_t input, ru_array *a, ru_err *err)
{
    ru_dtype want = ru_graph_value(&s->signature, s->signature.inputs[input])->type.dtype;
    if (s->info.texts_in[input] != (a->text != NULL)) {
        return RU_FAIL(err, RU_E_DATA, "input '%s' is of %s, but the given array is of %s", a->name,
                       s->info.texts_in[input] ? "texts" : "numbers",
                       a->text != NULL ? "texts" : "numbers");
    }
    if (want == RU_BF16 && a->type.dtype == RU_U16) {
        a->type.dtype = RU_BF16;
    }
    return RU_OK;
}

static ru_status arrays_fit(session *s, ru_err *err)
{
    for (uint32_t k = 0; k < s->signature.n_inputs; k++) {
        const char *name = ru_graph_value(&s->signature, s->signature.inputs[k])->name;
        for (uint32_t i = 0; i < s->arrays.n; i++) {
            if (strcmp(s->arrays.at[i].name, name) == 0) {
                RU_TRY(array_fit(s, k, &s->arrays.at[i], err));
            }
        }
    }
    return RU_OK;
}

/* A nameless array (.npy) belongs to the only input. */
static ru_status arrays_read(session *s, ru_err *err)
{
    const char *path = ru_cmd_text(s->in, "in");
    if (path == NULL) {
        return RU_OK;
    }
    s->arrays.texts = &s->texts;
    RU_TRY(ru_npz_open(path, s->arena, &s->arrays_map, &s->arrays, err));
    if (s->arrays.n == 1 && s->arrays.at[0].name[0] == 0) {
        if (s->signature.n_inputs != 1) {
            return RU_FAIL(
                err, RU_E_DATA,
                "%s holds one array but the model has %u inputs; use an .npz file with their names",
                path, s->signature.n_inputs);
        }
        s->arrays.at[0].name = ru_graph_value(&s->signature, s->signature.inputs[0])->name;
    }
    return arrays_fit(s, err);
}

static void random_fill(const ru_type *t, ru_rng *rng, int64_t below, void *data)
{
    int64_t n = ru_type_count(t), bytes = ru_dtype_bytes(t->dtype);
    for (int64_t k = 0; k < n; k++) {
        double x = ru_dtype_is_float(t->dtype) ? ru_rng_normal(rng) : 0;
        uint64_t u = ru_rng_below_u64(rng, t->dtype == RU_BOOL ? 2 : (uint64_t)below);
        float f = (float)x;
        uint16_t half = t->dtype == RU_F16 ? ru_f32_to_f16(f) : ru_f32_to_bf16(f);
        const void *from = t->dtype == RU_F64                          ? (const void *)&x
                           : t->dtype == RU_F32                        ? (const void *)&f
                           : t->dtype == RU_F16 || t->dtype == RU_BF16 ? (const void *)&half
                                                                       : (const void *)&u;
        memcpy((uint8_t *)data + k * bytes, from, (size_t)bytes);
    }
}

/* Random elements for the inputs that --in does not give; symbolic dimensions become 1 unless --dim
 * says otherwise. */
static ru_status random_add(session *s, ru_err *err)
{
    uint64_t seed = (uint64_t)ru_cmd_i64(s->in, "seed");
    for (uint32_t k = 0; k < s->signature.n_inputs; k++) {
        const ru_value *v = ru_graph_value(&s->signature, s->signature.inputs[k]);
        if (ru_arrays_find(&s->arrays, v->name) != NULL) {
            continue;
        }
        if (s->info.shapes[k]) {
            return RU_FAIL(
                err, RU_E_DATA,
                "input '%s' determines shapes, so it cannot be random; give it with --in", v->name);
        }
        if (s->info.texts_in[k]) {
            return RU_FAIL(err, RU_E_DATA,
                           "input '%s' is of texts, so it cannot be random; give it with --in",
                           v->name);
        }
        ru_array a = {.name = v->name, .type = v->type};
        for (uint32_t d = 0; d < a.type.rank; d++) {
            a.type.dims[d] = ru_dim_is_symbolic(a.type.dims[d]) ? 1 : a.type.dims[d];
        }
        void *data = ru_arena_zalloc(s->arena, ru_type_bytes(&a.type), 64);
        if (data == NULL) {
            return RU_FAIL(err, RU_E_MEM, "not enough memory for input '%s'", v->name);
        }
        ru_rng rng = ru_rng_from(seed, k);
        random_fill(&a.type, &rng, ru_cmd_i64(s->in, "random-below"), data);
        a.data = data;
        RU_TRY(ru_arrays_add(&s->arrays, s->arena, &a, err));
    }
    return RU_OK;
}

static ru_status inputs_complete(const session *s, ru_err *err)
{
    for (uint32_t k = 0; k < s->signature.n_inputs; k++) {
        const ru_value *v = ru_graph_value(&s->signature, s->signature.inputs[k]);
        if (ru_arrays_find(&s->arrays, v->name) == NULL) {
            char type[256];
            return RU_FAIL(err, RU_E_MISSING,
                           "there is no array for input '%s' (%s); give it with --in FILE.npz, or "
                           "use --random",
                           v->name, ru_type_print(&s->signature, &v->type, type, sizeof type));
        }
    }
    return RU_OK;
}

/* -- opening and running ----------------------------------------------------------------------- */

/* What went wrong inside the model is told with its name. */
static ru_status about_model(const session *s, ru_status st, ru_err *err)
{
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", s->in->args[0]);
}

static ru_status model_load(session *s, ru_err *err)
{
    RU_TRY(ru_onnx_file_open(s->in->args[0], &s->file, err));
    s->external = ru_onnx_file_external(&s->file);
    s->opt.external = &s->external;
    s->opt.signature = true;
    const ru_map_file *m = &s->file.model;
    ru_status st =
        ru_onnx_read(m->data, m->size_bytes, &s->opt, s->arena, &s->signature, &s->info, err);
    s->opt.signature = false;
    s->texts = (ru_texts){.arena = s->arena};
    for (uint32_t k = 0; st == RU_OK && k < s->info.words.n; k++) {
        int64_t code;
        st = ru_texts_code(&s->texts, s->info.words.text[k], &code, err);
    }
    return about_model(s, st, err);
}

static ru_exe_options exe_options(const session *s)
{
    return (ru_exe_options){
        .device = ru_cmd_choice(s->in, "device") == 0 ? RU_DEVICE_CPU : RU_DEVICE_REF,
        .precision = ru_cmd_choice(s->in, "precision") == 0 ? RU_PRECISION_F32 : RU_PRECISION_BF16,
        .threads = (uint32_t)ru_cmd_i64(s->in, "threads"),
        .autotune = ru_cmd_flag(s->in, "autotune"),
        .cache_dir = ru_cmd_text(s->in, "cache"),
        .profile = ru_cmd_flag(s->in, "steps"),
        .no_fuse = !ru_cmd_flag(s->in, "fuse"),
    };
}

/* Bind to the arrays; shapes and branches that elements decide need those computed. */
static ru_status model_bind(session *s, ru_err *err)
{
    const ru_map_file *m = &s->file.model;
    const ru_exe_options o = exe_options(s);
    s->settle = (ru_settle){.opt = &o, .arrays = &s->arrays, .arena = s->arena};
    s->ahead = ru_exe_ahead(&s->settle);
    s->opt.ahead = &s->ahead;
    /* the list may grow meanwhile */
    const ru_arrays given = s->arrays;
    RU_TRY(ru_onnx_read_bound(m->data, m->size_bytes, &s->opt, given.at, given.n, s->arena, &s->g,
                              &s->info, err));
    if (ru_graph_trains(&s->g) && !ru_cmd_flag(s->in, "training")) {
        fprintf(stderr,
                "rubato run: %s was exported in training mode; Rubato runs its inference form "
                "(running statistics, no dropout); --training runs it unchanged\n",
                s->in->args[0]);
        RU_TRY(ru_pass_infer(&s->g, s->arena, &s->g, err));
    }
    if (s->info.maps) {
        fprintf(stderr,
                "rubato run: %s makes a map of each row (ZipMap); Rubato gives the table that goes "
                "into it, one column for each class\n",
                s->in->args[0]);
    }
    RU_TRY(ru_exe_settle(&s->settle, &s->g, &s->g, err));
    if (s->settle.ran > 0) {
        fprintf(stderr,
                "rubato run: sizes or branches of %s depend on data; the ops before them ran once "
                "on these arrays, and the times cover only the ops after them\n",
                s->in->args[0]);
    }
    return RU_OK;
}

static ru_status model_open(session *s, ru_err *err)
{
    const ru_exe_options o = exe_options(s);
    RU_TRY(ru_exe_open(&s->g, &o, &s->exe, err));
    for (uint32_t k = 0; k < s->g.n_inputs; k++) {
        const ru_value *v = ru_graph_value(&s->g, s->g.inputs[k]);
        const ru_array *a = ru_arrays_find(&s->arrays, v->name);
        RU_CHECK(a != NULL && ru_type_equal(&a->type, &v->type));
        if (ru_type_bytes(&v->type) > 0) {
            memcpy(ru_exe_input(s->exe, s->g.inputs[k]), a->data, (size_t)ru_type_bytes(&v->type));
        }
    }
    return RU_OK;
}

static ru_status run_all(session *s, ru_err *err)
{
    int64_t repeat = ru_cmd_i64(s->in, "repeat");
    s->run_ns = RU_NEW(s->arena, int64_t, repeat);
    if (s->run_ns == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for the times of %lld runs",
                       (long long)repeat);
    }
    for (int64_t k = 0; k < repeat; k++) {
        ru_run_args args = {.seed = (uint64_t)ru_cmd_i64(s->in, "seed"), .step = k};
        ru_time t = ru_clock_now();
        RU_TRY(ru_exe_run(s->exe, &args, err));
        s->run_ns[k] = ru_time_since(ru_clock_now(), t);
    }
    return RU_OK;
}

/* The texts of output k, from their numbers. */
static ru_status texts_of(const session *s, uint32_t k, ru_array *a, ru_err *err)
{
    int64_t n = ru_type_count(&a->type);
    const int64_t *codes = a->data;
    const char **text = RU_NEW(s->arena, const char *, n);
    if (text == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for output '%s'", s->info.outputs[k]);
    }
    for (int64_t i = 0; i < n; i++) {
        text[i] = ru_texts_find(&s->texts, codes[i]);
        RU_CHECK(text[i] != NULL);
    }
    a->text = text;
    return RU_OK;
}

static ru_status outputs_save(const session *s, ru_err *err)
{
    const char *path = ru_cmd_text(s->in, "out");
    if (path == NULL) {
        return RU_OK;
    }
    ru_array *out = RU_NEW(s->arena, ru_array, s->g.n_outputs);
    if (out == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for %u outputs", s->g.n_outputs);
    }
    for (uint32_t k = 0; k < s->g.n_outputs; k++) {
        out[k] = (ru_array){.name = s->info.outputs[k],
                            .type = ru_graph_value(&s->g, s->g.outputs[k])->type,
                            .data = ru_exe_output(s->exe, s->g.outputs[k])};
        RU_TRY(s->info.texts_out[k] ? texts_of(s, k, &out[k], err) : RU_OK);
    }
    return ru_npz_save(path, out, s->g.n_outputs, err);
}

/* -- report ------------------------------------------------------------------------------------ */

typedef struct times {
    double open_s, first_s, median_s, p10_s, p90_s, min_s;
    int64_t n; /* runs behind the quantiles: all but the first, unless it is the only one */
} times;

static int by_ns(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static times times_of(const session *s)
{
    int64_t repeat = ru_cmd_i64(s->in, "repeat");
    times t = {.open_s = (double)s->open_ns * 1e-9, .first_s = (double)s->run_ns[0] * 1e-9};
    int64_t *v = repeat > 1 ? s->run_ns + 1 : s->run_ns;
    t.n = repeat > 1 ? repeat - 1 : 1;
    qsort(v, (size_t)t.n, sizeof *v, by_ns);
    t.median_s = (double)(v[(t.n - 1) / 2] + v[t.n / 2]) * 0.5e-9;
    t.p10_s = (double)v[(t.n - 1) / 10] * 1e-9;
    t.p90_s = (double)v[(t.n - 1) * 9 / 10] * 1e-9;
    t.min_s = (double)v[0] * 1e-9;
    return t;
}

static void values_put(ru_text *t, const ru_graph *g, const ru_value_id *ids, uint32_t n,
                       const char *const *names, const bool *texts)
{
    for (uint32_t k = 0; k < n; k++) {
        const ru_type *type = &ru_graph_value(g, ids[k])->type;
        ru_text_putf(t, "%s{\"name\":", k > 0 ? "," : "");
        ru_text_json(t, ru_str_c(names != NULL ? names[k] : ru_graph_value(g, ids[k])->name));
        ru_text_putf(t, ",\"dtype\":\"%s\",\"shape\":[",
                     texts != NULL && texts[k] ? "text" : ru_dtype_name(type->dtype));
        for (uint32_t d = 0; d < type->rank; d++) {
            ru_text_putf(t, "%s%lld", d > 0 ? "," : "", (long long)type->dims[d]);
        }
        ru_text_putf(t, "]}");
    }
}

static void report_json(const session *s, ru_text *t)
{
    ru_exe_stats stats;
    ru_exe_stats_get(s->exe, &stats);
    times m = times_of(s);
    ru_text_putf(t, "{\"schema\":\"rubato.run/1\",\"model\":");
    ru_text_json(t, ru_str_c(s->in->args[0]));
    ru_text_putf(t, ",\"opset\":%lld,\"producer\":", (long long)s->info.opset);
    ru_text_json(t, ru_str_c(s->info.producer));
    ru_text_putf(t, ",\"device\":\"%s\",\"precision\":\"%s\",\"inputs\":[",
                 ru_cmd_text(s->in, "device"), ru_cmd_text(s->in, "precision"));
    values_put(t, &s->g, s->g.inputs, s->g.n_inputs, NULL, s->info.texts_in);
    ru_text_putf(t, "],\"outputs\":[");
    values_put(t, &s->g, s->g.outputs, s->g.n_outputs, s->info.outputs, s->info.texts_out);
    ru_text_putf(
        t,
        "],\"open_s\":%.9g,\"first_s\":%.9g,\"runs\":%lld,\"median_s\":%.9g,\"p10_s\":%.9g,"
        "\"p90_s\":%.9g,\"min_s\":%.9g,\"flops\":%lld,\"arena_bytes\":%lld,"
        "\"const_bytes\":%lld,\"steps\":%u,\"reorders\":%u,\"on_reference\":%u}\n",
        m.open_s, m.first_s, (long long)m.n, m.median_s, m.p10_s, m.p90_s, m.min_s,
        (long long)stats.flops, (long long)stats.arena_bytes, (long long)stats.const_bytes,
        stats.n_steps, stats.n_reorders, stats.n_slow);
}

static void report_text(const session *s, ru_text *t)
{
    times m = times_of(s);
    char type[256];
    for (uint32_t k = 0; k < s->g.n_inputs; k++) {
        const ru_value *v = ru_graph_value(&s->g, s->g.inputs[k]);
        ru_text_putf(t, "input   %s %s\n", v->name,
                     ru_type_print(&s->g, &v->type, type, sizeof type));
    }
    for (uint32_t k = 0; k < s->g.n_outputs; k++) {
        const ru_value *v = ru_graph_value(&s->g, s->g.outputs[k]);
        ru_type_print(&s->g, &v->type, type, sizeof type);
        ru_text_putf(t, "output  %s %s%s\n", s->info.outputs[k], s->info.texts_out[k] ? "text" : "",
                     s->info.texts_out[k] ? type + strlen("i64") : type);
    }
    ru_text_putf(t, "open    %.3f ms\nfirst   %.3f ms\n", m.open_s * 1e3, m.first_s * 1e3);
    if (ru_cmd_i64(s->in, "repeat") > 1) {
        ru_text_putf(t, "run     %.4f ms (median of %lld; p10 %.4f, p90 %.4f, min %.4f)\n",
                     m.median_s * 1e3, (long long)m.n, m.p10_s * 1e3, m.p90_s * 1e3, m.min_s * 1e3);
    }
}

static ru_status session_run(session *s, ru_err *err)
{
    RU_TRY(dims_read(s, err));
    ru_time t = ru_clock_now();
    RU_TRY(model_load(s, err));
    int64_t load_ns = ru_time_since(ru_clock_now(), t);
    RU_TRY(arrays_read(s, err));
    if (ru_cmd_flag(s->in, "random")) {
        RU_TRY(random_add(s, err));
    }
    RU_TRY(inputs_complete(s, err));
    t = ru_clock_now();
    RU_TRY(about_model(s, model_bind(s, err), err));
    RU_TRY(about_model(s, model_open(s, err), err));
    s->open_ns = load_ns + ru_time_since(ru_clock_now(), t);
    RU_TRY(about_model(s, run_all(s, err), err));
    RU_TRY(outputs_save(s, err));
    if (ru_cmd_flag(s->in, "steps")) {
        fputs(ru_exe_print(s->exe, s->arena), stderr);
    }
    ru_text text = ru_text_arena(s->arena);
    if (ru_cmd_flag(s->in, "json")) {
        report_json(s, &text);
    } else {
        report_text(s, &text);
    }
    fputs(text.p, stdout);
    return RU_OK;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    session s = {.in = in, .arena = in->arena};
    ru_status st = session_run(&s, err);
    ru_exe_close(s.exe);
    ru_file_unmap(&s.arrays_map);
    ru_onnx_file_close(&s.file);
    return st;
}

static const ru_opt opts[] = {
    RU_OPT(TEXT, "in", "FILE", "input arrays by name (.npz), or the only input (.npy)",
           .letter = 'i'),
    RU_OPT(TEXT, "out", "FILE", "write the outputs by name as .npz", .letter = 'o'),
    RU_OPT(FLAG, "random", NULL, "fill inputs that --in does not give with random numbers"),
    RU_OPT(I64, "random-below", "N",
           "upper bound (exclusive) of random integers, such as token numbers", .def = "10",
           RU_IN(1, 1e15)),
    RU_OPT(I64, "seed", "N", "seed of random inputs", .def = "1", RU_IN(0, 9e15)),
    RU_OPT(TEXTS, "dim", "NAME=N", "value of a symbolic dimension; may be given several times"),
    RU_OPT(I64, "repeat", "N", "number of runs; times exclude the first run", .letter = 'n',
           .def = "1", RU_IN(1, 1e8)),
    RU_OPT_THREADS('t'),
    RU_OPT(CHOICE, "device", NULL, "device; ref is the reference in plain C", .def = "cpu",
           .choices = "cpu|ref"),
    RU_OPT(CHOICE, "precision", NULL, "bf16: compute f32 matrix products in bf16", .def = "f32",
           .choices = "f32|bf16"),
    RU_OPT(FLAG, "autotune", NULL,
           "do not time algorithms for this model's shapes; it opens faster and runs slower",
           .def = "true"),
    RU_OPT(FLAG, "fuse", NULL, "do not merge operators; useful to find errors", .def = "true"),
    RU_OPT(FLAG, "training", NULL,
           "run a model that was exported in training mode unchanged, not its inference form"),
    RU_OPT(TEXT, "cache", "DIR", "folder that keeps autotuned choices between runs"),
    RU_OPT(FLAG, "steps", NULL, "print the planned steps with their times on stderr"),
    RU_OPT(FLAG, "json", NULL, "print the report as one JSON object (rubato.run/1)"),
};

static const ru_example examples[] = {
    {"rubato run model.onnx --in x.npz --out y.npz", "run once on arrays that numpy saved"},
    {"rubato run model.onnx --random --dim N=32 --repeat 100",
     "measure with random inputs and a batch of 32"},
};

const ru_cmd rui_cmd_run = {
    .name = "run",
    .summary = "run an ONNX model on named arrays",
    .about = "Reads ONNX models of opsets 1 to 28 (docs/onnx.md lists the operators). Inputs and "
             "outputs are files of numpy's savez. Inputs that determine shapes become constants. "
             "If other data determine sizes or branches, the ops before them run once, while the "
             "model is opened. "
             "Symbolic dimensions take their values from the arrays or from --dim.",
    RU_CMD_ARGS("MODEL.onnx", 1, 1),
    RU_CMD_LISTS(opts, examples),
    .exits = "65 the model or the arrays are damaged or not supported|66 a file or an input is "
             "missing|73 the output cannot be created or written",
    .computes = true,
    .run = run,
};
