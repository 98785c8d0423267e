/* Inference of any folder of ONNX models against ONNX Runtime and OpenVINO, in turns.
 *
 * FOLDER/NAME.onnx runs on the arrays of FOLDER/NAME.npz; without such a file floats are random,
 * whole numbers are 0 and 1 in turn, and symbolic dimensions are 1. All sides tell the mean size of
 * the first output's elements; sides that differ in it are not compared. */
#include "bench/train/zoo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "env/file/file.h"
#include "exec/pool.h"
#include "exec/ref.h"
#include "world/onnx/onnx.h"
#include "world/pass/pass.h"

/* -- our side ------------------------------------------------------------------------------------
 */

static ru_status array_for(const ru_value *v, uint32_t k, ru_arena *arena, ru_array *a, ru_err *err)
{
    *a = (ru_array){.name = v->name, .type = v->type};
    for (uint32_t d = 0; d < a->type.rank; d++) {
        a->type.dims[d] = ru_dim_is_symbolic(a->type.dims[d]) ? 1 : a->type.dims[d];
    }
    int64_t n = ru_type_count(&a->type), bytes = ru_dtype_bytes(a->type.dtype);
    uint8_t *data = ru_arena_zalloc(arena, ru_type_bytes(&a->type), 64);
    if (data == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for input '%s'", v->name);
    }
    ru_rng rng = ru_rng_from(1, k);
    for (int64_t i = 0; i < n; i++) {
        float f = (float)ru_rng_normal(&rng);
        int64_t whole = i % 2;
        if (a->type.dtype == RU_F32) {
            memcpy(data + i * bytes, &f, sizeof f);
        } else if (!ru_dtype_is_float(a->type.dtype)) {
            memcpy(data + i * bytes, &whole, (size_t)bytes);
        }
    }
    a->data = data;
    return RU_OK;
}

static ru_status arrays_for(const ru_graph *g, ru_zoo_side *s, ru_arena *arena, ru_arrays *arrays,
                            ru_err *err)
{
    const char *npz = ru_arena_printf(arena, "%.*s.npz", (int)(strlen(s->path) - 5), s->path);
    if (npz != NULL && ru_path_exists(npz)) {
        return ru_npz_open(npz, arena, &s->map, arrays, err);
    }
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        ru_array a;
        RU_TRY(array_for(ru_graph_value(g, g->inputs[k]), k, arena, &a, err));
        RU_TRY(ru_arrays_add(arrays, arena, &a, err));
    }
    return RU_OK;
}

ru_status ru_bench_zoo_open(ru_zoo_side *s, const ru_exe_options *exe, ru_arena *arena, ru_err *err)
{
    ru_graph signature;
    ru_arrays arrays = {0};
    RU_TRY(ru_onnx_file_open(s->path, &s->file, err));
    ru_onnx_external external = ru_onnx_file_external(&s->file);
    ru_onnx_options opt = {.external = &external, .signature = true};
    const ru_map_file *m = &s->file.model;
    RU_TRY(ru_onnx_read(m->data, m->size_bytes, &opt, arena, &signature, NULL, err));
    RU_TRY(arrays_for(&signature, s, arena, &arrays, err));
    opt.signature = false;
    RU_TRY(ru_onnx_read_bound(m->data, m->size_bytes, &opt, arrays.at, arrays.n, arena, &s->g, NULL,
                              err));
    if (ru_graph_trains(&s->g)) {
        RU_TRY(ru_pass_infer(&s->g, arena, &s->g, err));
    }
    const ru_fold_ops fold = ru_ref_fold_ops();
    RU_TRY(ru_onnx_settle(&s->g, &fold, arena, &s->g, err));
    RU_TRY(ru_exe_open(&s->g, exe, &s->exe, err));
    for (uint32_t k = 0; k < s->g.n_inputs; k++) {
        const ru_value *v = ru_graph_value(&s->g, s->g.inputs[k]);
        const ru_array *a = ru_arrays_find(&arrays, v->name);
        if (a == NULL || !ru_type_equal(&a->type, &v->type)) {
            return RU_FAIL(err, RU_E_DATA, "no array of its type for input '%s' in the .npz beside",
                           v->name);
        }
        if (ru_type_bytes(&v->type) > 0) {
            memcpy(ru_exe_input(s->exe, s->g.inputs[k]), a->data, (size_t)ru_type_bytes(&v->type));
        }
    }
    return RU_OK;
}

static double size_at(ru_dtype t, const void *y, int64_t i)
{
    switch ((int)t) {
    case RU_F32:
        return fabs((double)((const float *)y)[i]);
    case RU_F64:
        return fabs(((const double *)y)[i]);
    case RU_F16:
        return fabs((double)ru_f16_to_f32(((const uint16_t *)y)[i]));
    case RU_I64:
        return fabs((double)((const int64_t *)y)[i]);
    case RU_U8:
    case RU_BOOL:
        return ((const uint8_t *)y)[i];
    default:
        return RU_NAN;
    }
}

double ru_bench_zoo_mean(ru_zoo_side *s)
{
    const ru_type *t = &ru_graph_value(&s->g, s->g.outputs[0])->type;
    const void *y = ru_exe_output(s->exe, s->g.outputs[0]);
    int64_t n = ru_type_count(t);
    double sum = n > 0 ? 0 : RU_NAN;
    for (int64_t i = 0; i < n && !isnan(sum); i++) {
        sum += size_at(t->dtype, y, i);
    }
    return sum / (double)n;
}

void ru_bench_zoo_close(ru_zoo_side *s)
{
    ru_exe_close(s->exe);
    ru_file_unmap(&s->map);
    ru_onnx_file_close(&s->file);
}

/* -- the benchmark -------------------------------------------------------------------------------
 */

enum { SIDES = RU_ZOO_SIDES };

static const char *const peers[SIDES] = {"", "ONNX Runtime", "OpenVINO"};
static const char *const words[SIDES] = {"", "ort", "openvino"};
static const double each[SIDES] = {0, 0.85, 0.85}, mean[SIDES] = {0, 1.2, 1.1};
static const char install[] = "pip install onnxruntime openvino numpy";

static const char **argv_of(ru_bench *b, const char *path, uint32_t threads, uint32_t side)
{
    const char **argv = RU_NEW(b->arena, const char *, 16);
    const char *count = ru_arena_printf(b->arena, "%u", threads);
    if (argv == NULL) {
        return NULL;
    }
    if (side == 0) {
        const char *ours[] = {
            ru_bench_rubato(b->arena), "bench", "--worker", "zoo", path, count, "f32", "0"};
        memcpy(argv, ours, sizeof ours);
    } else {
        const char *scripts = ru_bench_scripts(b->arena);
        const char *theirs[] = {
            "python3",   ru_path_join(b->arena, scripts != NULL ? scripts : "", "peer.py"),
            "--side",    words[side],
            "--task",    "zoo",
            "--model",   "zoo",
            "--threads", count,
            "--onnx",    path};
        memcpy(argv, theirs, sizeof theirs);
    }
    return argv;
}

static bool same_result(double a, double b)
{
    return !isfinite(a) || !isfinite(b) || fabs(a - b) <= 1e-3 * fmax(fabs(a), fabs(b)) + 1e-6;
}

static ru_status add_row(ru_bench *b, const char *name, ru_bench_side *ours, ru_bench_side *theirs,
                         uint32_t side, uint32_t rounds, ru_zoo_tally *t, ru_err *err)
{
    ru_bench_row row = {.name = name,
                        .unit = "runs/s",
                        .ours = ru_bench_stat_of(ours->rates, rounds),
                        .peer = peers[side],
                        .goal = each[side]};
    if (theirs->missing != NULL) {
        row.missing = ru_arena_printf(b->arena, "%s; install: %s", theirs->missing, install);
    } else if (!same_result(ours->loss, theirs->loss)) {
        row.missing = ru_arena_printf(b->arena, "results differ: mean size %g, theirs %g",
                                      ours->loss, theirs->loss);
    } else {
        row.theirs = ru_bench_stat_of(theirs->rates, rounds);
        row.peer = ru_arena_printf(b->arena, "%s: %s", peers[side], theirs->detail);
    }
    double ratio = ru_bench_ratio(&row);
    if (ratio > 0) {
        t->logs += log(ratio);
        t->least_name = t->n == 0 || ratio < t->least ? name : t->least_name;
        t->least = t->n == 0 || ratio < t->least ? ratio : t->least;
        t->n++;
    }
    return ru_bench_add(b, &row, err);
}

ru_status ru_bench_zoo_model(ru_bench *b, const char *model, const char *path, uint32_t threads,
                             uint32_t n_sides, ru_zoo_tally *tallies, uint32_t *refused,
                             ru_err *err)
{
    RU_CHECK(n_sides <= SIDES);
    const char *name =
        ru_arena_printf(b->arena, "%s %u thread%s", model, threads, threads == 1 ? "" : "s");
    if (name == NULL || !ru_bench_wants(b, name)) {
        return RU_OK;
    }
    ru_bench_side sides[SIDES] = {{.argv = argv_of(b, path, threads, 0)},
                                  {.argv = argv_of(b, path, threads, 1)},
                                  {.argv = argv_of(b, path, threads, 2)}};
    double seconds = n_sides < SIDES ? 0.05 : 0.3; /* of single ops there are hundreds */
    ru_bench_turns t = {.rounds = b->quick ? 5 : 9,
                        .seconds = b->quick ? seconds / 3 : seconds,
                        .threads = threads};
    ru_err why = {0};
    if (ru_bench_run_turns(sides, n_sides, &t, b->arena, &why) != RU_OK) {
        fprintf(stderr, "%-38s not run: %s\n", name, why.text);
        (*refused)++;
        return RU_OK;
    }
    for (uint32_t k = 1; k < n_sides; k++) {
        RU_TRY(add_row(b, name, &sides[0], &sides[k], k, t.rounds, &tallies[k], err));
    }
    return RU_OK;
}

ru_status ru_bench_zoo_mean_row(ru_bench *b, uint32_t threads, uint32_t side, const ru_zoo_tally *t,
                                ru_err *err)
{
    double x = t->n > 0 ? exp(t->logs / (double)t->n) : 0;
    if (t->n == 0) {
        return RU_OK;
    }
    ru_bench_row row = {.name = ru_arena_printf(b->arena, "mean of %u over %s, %u thread%s", t->n,
                                                peers[side], threads, threads == 1 ? "" : "s"),
                        .unit = "ratio",
                        .ours = {x, x, x, 1},
                        .goal = mean[side]};
    RU_TRY(ru_bench_add(b, &row, err));
    row.name = ru_arena_printf(b->arena, "least over %s, %u thread%s: %s", peers[side], threads,
                               threads == 1 ? "" : "s", t->least_name);
    row.ours = (ru_bench_stat){t->least, t->least, t->least, 1};
    row.goal = each[side];
    return ru_bench_add(b, &row, err);
}

static bool is_model(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".onnx") == 0;
}

ru_status ru_bench_zoo(ru_bench *b, ru_err *err)
{
    char **names = NULL;
    uint32_t n = 0, cores = ru_pool_cores(), models = 0, refused = 0;
    RU_TRY(ru_dir_list(b->zoo, b->arena, &names, &n, err));
    for (uint32_t threads = 1; threads <= 2 && threads <= cores; threads++) {
        ru_zoo_tally tallies[SIDES] = {{0}};
        for (uint32_t k = 0; k < n; k++) {
            if (!is_model(names[k]) || (b->threads != 0 && b->threads != threads)) {
                continue;
            }
            models++;
            const char *model = ru_arena_strn(b->arena, names[k], (int64_t)strlen(names[k]) - 5);
            RU_TRY(ru_bench_zoo_model(b, model, ru_path_join(b->arena, b->zoo, names[k]), threads,
                                      SIDES, tallies, &refused, err));
        }
        for (uint32_t k = 1; k < SIDES; k++) {
            RU_TRY(ru_bench_zoo_mean_row(b, threads, k, &tallies[k], err));
        }
    }
    if (models == 0) {
        return RU_FAIL(err, RU_E_MISSING, "%s holds no .onnx model; bench/zoo.py exports some",
                       b->zoo);
    }
    double count = (double)refused;
    ru_bench_row row = {.name = "models that were not run",
                        .unit = "models",
                        .lower = true,
                        .ours = {count, count, count, 1}};
    return ru_bench_add(b, &row, err);
}
