#include "run/rundir.h"

#include <string.h>

#include "base/log.h"
#include "env/file/file.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the run directory is full");
}

/* The imported model stands in the run directory: here, or two folders above a checkpoint; in a
 * folder of its own when it keeps weights in other files. */
static ru_status find_onnx(const char *path, ru_arena *arena, ru_rundir *r, ru_err *err)
{
    static const char *const places[] = {"model.onnx", "model/model.onnx", "../../model.onnx",
                                         "../../model/model.onnx"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(places); k++) {
        const char *file = ru_path_join(arena, path, places[k]);
        if (file == NULL) {
            return full(err);
        }
        if (ru_path_exists(file)) {
            r->onnx = file;
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_MISSING, "%s: the imported model (model.onnx of the run) is missing",
                   path);
}

static ru_status parse_job(ru_rundir *r, ru_arena *arena, ru_err *err)
{
    ru_status st = ru_job_parse("state.json: job", r->ckpt.job_yaml, arena, &r->job, err);
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", r->ckpt.dir);
}

/* A run that keeps its best checkpoint is used with that one. */
static ru_status take_best(const char *path, ru_arena *arena, ru_rundir *r, ru_err *err)
{
    const char *best = ru_path_join(arena, path, "checkpoints/best");
    int64_t newest = r->ckpt.at.step;
    if (best == NULL) {
        return full(err);
    }
    if (!ru_path_is_dir(best)) {
        return RU_OK;
    }
    RU_TRY(ru_ckpt_read(best, arena, &r->ckpt, err));
    RU_TRY(parse_job(r, arena, err));
    ru_log(RU_LOG_INFO, "run", "checkpoint",
           "%s: the best checkpoint is used, after step %lld; the newest is after step %lld", path,
           (long long)r->ckpt.at.step, (long long)newest);
    return RU_OK;
}

/* What stands there instead, or nothing. */
static ru_status no_folder(const char *path, ru_err *err)
{
    size_t n = strlen(path);
    bool file = ru_path_exists(path);
    if (file && n > 5 && strcmp(path + n - 5, ".onnx") == 0) {
        return RU_FAIL(
            err, RU_E_MISSING,
            "%s is an ONNX model, not a run: 'rubato run %s --in ARRAYS.npz --out "
            "RESULTS.npz' computes its outputs; to have classes and a score, train a job "
            "with model.onnx and name its run directory",
            path, path);
    }
    return RU_FAIL(err, RU_E_MISSING, "%s %s; name a run directory or one of its checkpoints", path,
                   file ? "is not a folder" : "does not exist");
}

ru_status ru_rundir_open(const char *path, ru_arena *arena, ru_rundir *out, ru_err *err)
{
    ru_rundir r = {.dir = path};
    const char *manifest = ru_path_join(arena, path, "manifest.json");
    if (manifest == NULL) {
        return full(err);
    }
    if (!ru_path_is_dir(path)) {
        return no_folder(path, err);
    }
    if (ru_path_exists(manifest)) {
        RU_TRY(ru_ckpt_read(path, arena, &r.ckpt, err));
    } else {
        RU_TRY(ru_ckpt_find(path, arena, &r.ckpt, err));
    }
    RU_TRY(parse_job(&r, arena, err));
    if (!ru_path_exists(manifest) && r.job.checkpoint.keep_best) {
        RU_TRY(take_best(path, arena, &r, err));
    }
    if (r.job.model.source == RU_MODEL_ONNX) {
        RU_TRY(find_onnx(path, arena, &r, err));
    }
    *out = r;
    return RU_OK;
}

ru_status ru_rundir_model(const ru_rundir *r, ru_arena *arena, ru_model *out, ru_err *err)
{
    ru_model m;
    RU_TRY(ru_model_open(&r->job, &r->ckpt.facts, r->onnx, arena, &m, err));
    ru_status st = ru_ckpt_load_graph(&r->ckpt, &m.infer, arena, err);
    if (st != RU_OK) {
        ru_model_close(&m);
        return st;
    }
    *out = m;
    return RU_OK;
}

ru_status ru_rundir_data(const ru_rundir *r, const char *const *paths, uint32_t n_paths,
                         bool labels, ru_dataset **out, ru_err *err)
{
    const ru_model_facts *f = &r->ckpt.facts;
    if (n_paths == 0 && !ru_job_has_test(&r->job)) {
        return RU_FAIL(err, RU_E_USAGE, "the job has no test data; name data with --data");
    }
    ru_data_options d = ru_job_data_options(&r->job, true);
    d.class_names = f->class_names;
    d.n_class_names = f->n_class_names;
    d.columns = &f->columns;
    d.blank_damaged = !labels; /* each sample gets an answer of its own */
    d.only_good = labels;      /* each sample counts once */
    d.unlabelled = !labels && (f->columns.n > 0 || strcmp(d.format, "images") == 0);
    d.classes = d.classes != 0 ? d.classes : f->classes;
    d.context = d.context != 0 || f->x.rank != 1 ? d.context : f->x.dims[0];
    if (n_paths > 0) {
        d.paths = paths;
        d.n_paths = n_paths;
        d.count = d.held > 0 ? 0 : d.count; /* of the training data */
        d.held = 0;
    }
    d.cache.kind = RU_CACHE_NONE; /* they are read once, perhaps on another machine */
    ru_dataset *set;
    RU_TRY(ru_dataset_open(&d, &set, err));
    const ru_field *fields;
    if (ru_dataset_fields(set, &fields) < 1 || !ru_type_equal(&fields[0].type, &f->x)) {
        char have[160], want[160];
        ru_type_print(NULL, &fields[0].type, have, sizeof have);
        ru_type_print(NULL, &f->x, want, sizeof want);
        ru_dataset_close(set);
        return RU_FAIL(err, RU_E_DATA,
                       "samples of the data are %s, but the model was trained on samples of %s",
                       have, want);
    }
    *out = set;
    return RU_OK;
}
