/* The run directory: its name, and the files written before the first step. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "run/ckpt_form.h"
#include "run/place.h"
#include "train/driver/trainer_impl.h"

#define CLAIM_WAIT_NS INT64_C(3000000000) /* of a killed job's processes to end */

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the run is full");
}

/* Highest number of runs/<name>-<number>; 0: none. */
static ru_status last_number(rui_trainer *t, int64_t *number, ru_err *err)
{
    *number = 0;
    if (!ru_path_is_dir("runs")) {
        return RU_OK;
    }
    char **names;
    uint32_t n;
    RU_TRY(ru_dir_list("runs", t->arena, &names, &n, err));
    size_t head = strlen(t->job->name);
    for (uint32_t k = 0; k < n; k++) {
        int64_t v;
        if (strncmp(names[k], t->job->name, head) == 0 && names[k][head] == '-' &&
            ru_str_i64(ru_str_c(names[k] + head + 1), &v) && v > *number) {
            *number = v;
        }
    }
    return RU_OK;
}

/* A name that stays inside runs/. */
static ru_status check_name(const char *name, ru_err *err)
{
    bool fine = name[0] != 0 && name[0] != '.';
    for (const char *p = name; *p != 0; p++) {
        fine = fine && *p != '/' && (unsigned char)*p >= ' ';
    }
    if (!fine) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the job's name '%s' cannot be a folder name; use letters, digits, - and _",
                       name);
    }
    return RU_OK;
}

static ru_status claim(rui_trainer *t, ru_err *err)
{
    const ru_claim_options co = {.dir = t->out,
                                 .key = t->key,
                                 .alone = !t->opt->dir_made && !t->opt->dir_shared,
                                 .wait_ns = CLAIM_WAIT_NS};
    return ru_claim_open(&co, &t->claim, err);
}

/* runs/<name>-<number> with the next number that nobody takes meanwhile. */
static ru_status make_next(rui_trainer *t, ru_err *err)
{
    int64_t number;
    bool made = false;
    RU_TRY(check_name(t->job->name, err));
    RU_TRY(ru_dir_make("runs", err));
    RU_TRY(last_number(t, &number, err));
    while (!made) {
        t->out = ru_arena_printf(t->arena, "runs/%s-%lld", t->job->name, (long long)++number);
        if (t->out == NULL) {
            return full(err);
        }
        RU_TRY(ru_dir_make_new(t->out, &made, err));
    }
    return RU_OK;
}

ru_status rui_trainer_dir_resumed(rui_trainer *t, ru_err *err)
{
    t->out = t->opt->out;
    if (t->out != NULL) {
        return RU_OK;
    }
    int64_t number;
    RU_TRY(last_number(t, &number, err));
    if (number == 0) {
        return RU_FAIL(err, RU_E_MISSING,
                       "there is nothing to resume: no folder runs/%s-<number> exists; name the "
                       "folder of the run with --out",
                       t->job->name);
    }
    t->out = ru_arena_printf(t->arena, "runs/%s-%lld", t->job->name, (long long)number);
    return t->out != NULL ? RU_OK : full(err);
}

static ru_status choose(rui_trainer *t, ru_err *err)
{
    if (t->opt->resume) {
        return rui_trainer_dir_resumed(t, err);
    }
    t->out = t->opt->out;
    return t->out != NULL ? RU_OK : make_next(t, err);
}

static bool holds_checkpoints(rui_trainer *t)
{
    char **names;
    uint32_t n = 0;
    const char *dir = ru_path_join(t->arena, t->out, "checkpoints");
    ru_err ignored;
    return dir != NULL && ru_path_is_dir(dir) &&
           ru_dir_list(dir, t->arena, &names, &n, &ignored) == RU_OK && n > 0;
}

ru_status rui_trainer_dir(rui_trainer *t, ru_err *err)
{
    static const char *const folders[] = {"checkpoints", "trace", "plans"};
    bool resumes = t->opt->resume && !t->opt->dir_made;
    RU_TRY(choose(t, err));
    bool fresh = !t->opt->resume && !t->opt->dir_made && !t->opt->dir_shared;
    RU_TRY(ru_run_place_check(t->out, fresh, t->arena, err));
    RU_TRY(resumes ? rui_trainer_resume_check(t, err) : ru_dir_make(t->out, err));
    RU_TRY(claim(t, err));
    RU_TRY(resumes ? rui_trainer_look_back(t, err) : RU_OK);
    if (!t->opt->resume && !t->opt->dir_made && holds_checkpoints(t)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "%s already contains a run; continue it with --resume, or start a new run "
                       "with another --out",
                       t->out);
    }
    if (resumes && !t->goes_on) {
        ru_log(RU_LOG_WARN, "train", "resume",
               "%s contains no checkpoint; the run starts from the beginning", t->out);
    }
    const char *slash = strrchr(t->out, '/');
    t->run = slash != NULL && slash[1] != 0 ? slash + 1 : t->out;
    t->folder =
        (ru_run_folder){.out = t->out, .yaml = t->job_yaml, .generation = t->opt->generation};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(folders); k++) {
        const char *dir = ru_path_join(t->arena, t->out, folders[k]);
        if (dir == NULL) {
            return full(err);
        }
        RU_TRY(ru_dir_make(dir, err));
    }
    (void)ru_run_place_gone(&t->folder); /* the launcher wrote job.yaml */
    return RU_OK;
}

ru_status rui_trainer_dir_restore(rui_trainer *t, ru_err *err)
{
    bool anew;
    RU_TRY(ru_run_place_restore(&t->folder, &anew, err));
    if (!anew) {
        return RU_OK;
    }
    ru_claim_close(t->claim);
    t->claim = NULL;
    ru_run_report_say(t->report,
                      "warning: the folder %s was deleted while the run uses it; checkpoints are "
                      "written there anew, metrics, log and traces until now are lost",
                      t->out);
    uint32_t tries = 0;
    ru_status st;
    do {
        st = claim(t, err);
    } while (ru_ckpt_again(st, true, &tries));
    return st;
}

ru_status ru_train_dir(const ru_train_options *opt, uint64_t key, ru_arena *arena,
                       ru_train_place *place, ru_err *err)
{
    rui_trainer t = {.opt = opt, .job = opt->job, .arena = arena, .key = key};
    ru_text yaml = ru_text_arena(arena);
    ru_job_dump(opt->job, opt->conf, &yaml);
    t.job_yaml = yaml.p;
    ru_status st = rui_trainer_dir(&t, err);
    st = st == RU_OK ? rui_trainer_batch_stays(&t, err) : st;
    st = st == RU_OK ? rui_trainer_dir_job(&t, err) : st;
    if (st != RU_OK) {
        ru_claim_close(t.claim);
        return st;
    }
    *place = (ru_train_place){.out = t.out, .claim = t.claim};
    return RU_OK;
}

/* -- kernel choices ---------------------------------------------------------------------------- */

/* Copy the files of folder `from` into `to`; what cannot be read or written is left out: choices
 * that are not known are measured again. */
static void copy_files(rui_trainer *t, const char *from, const char *to)
{
    char **names;
    uint32_t n = 0;
    ru_err ignored;
    if (!ru_path_is_dir(from) || ru_dir_make(to, &ignored) != RU_OK ||
        ru_dir_list(from, t->arena, &names, &n, &ignored) != RU_OK) {
        return;
    }
    for (uint32_t k = 0; k < n; k++) {
        ru_map_file map, old = {0};
        const char *a = ru_path_join(t->arena, from, names[k]);
        const char *b = ru_path_join(t->arena, to, names[k]);
        if (a == NULL || b == NULL || ru_path_is_dir(a) ||
            ru_file_map(a, &map, &ignored) != RU_OK) {
            continue;
        }
        bool same = ru_path_exists(b) && ru_file_map(b, &old, &ignored) == RU_OK &&
                    old.size_bytes == map.size_bytes &&
                    memcmp(old.data, map.data, (size_t)map.size_bytes) == 0;
        if (!same) {
            (void)!ru_file_own(b, map.data, map.size_bytes, &ignored);
        }
        ru_file_unmap(&old);
        ru_file_unmap(&map);
    }
}

/* A kernel decides the last bits, so a run keeps its own choices: a resumed run must not measure
 * again. They start as the user's and go back to the user for the next run. */
ru_status rui_trainer_tuned_in(rui_trainer *t, ru_err *err)
{
    t->tune_dir = ru_path_join(t->arena, t->out, "plans/kernels");
    if (t->tune_dir == NULL) {
        return full(err);
    }
    if (!t->opt->resume && t->opt->cache_dir != NULL) {
        copy_files(t, t->opt->cache_dir, t->tune_dir);
    }
    return RU_OK;
}

void rui_trainer_tuned_out(rui_trainer *t)
{
    if (t->opt->cache_dir != NULL) {
        copy_files(t, t->tune_dir, t->opt->cache_dir);
    }
}

/* -- files ------------------------------------------------------------------------------------- */

static ru_status put_file(rui_trainer *t, const char *name, const ru_text *text, ru_err *err)
{
    const char *path = ru_path_join(t->arena, t->out, name);
    if (path == NULL || text->cut) {
        return full(err);
    }
    return ru_file_own(path, text->p, text->n, err);
}

/* -- an imported model ------------------------------------------------------------------------- */

/* It goes along, so that the run needs nothing else: OUT/model.onnx, or OUT/model/ when it keeps
 * weights in other files. */

static ru_status copy_into(rui_trainer *t, const char *dir, const char *name,
                           const ru_map_file *map, ru_err *err)
{
    const char *path = ru_path_join(t->arena, dir, name);
    char *parent = ru_arena_str(t->arena, path);
    if (path == NULL || parent == NULL) {
        return full(err);
    }
    *strrchr(parent, '/') = 0;
    RU_TRY(ru_dir_make(parent, err));
    return ru_file_own(path, map->data, map->size_bytes, err);
}

static ru_status copy_model(rui_trainer *t, const ru_onnx_file *f, ru_err *err)
{
    const char *dir = f->n_parts == 0 ? t->out : ru_path_join(t->arena, t->out, "model");
    if (dir == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < f->n_parts; k++) {
        if (strcmp(f->parts[k].location, "model.onnx") == 0) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "the model's weights are in a file named model.onnx, which is the name "
                           "of the model's copy in the run; save the weights under another name");
        }
        RU_TRY(copy_into(t, dir, f->parts[k].location, &f->parts[k].map, err));
    }
    return copy_into(t, dir, "model.onnx", &f->model, err);
}

/* Reading it says which other files it takes weights from, and whether it can be read at all. */
static ru_status take_model(rui_trainer *t, const ru_type *x, ru_err *err)
{
    ru_onnx_file f;
    ru_arena scratch;
    ru_graph g;
    ru_onnx_info info;
    RU_TRY(ru_onnx_file_open(t->job->model.onnx, &f, err));
    ru_arena_init(&scratch, 0);
    ru_status st = ru_model_read_onnx(&f, x, &scratch, &g, &info, err);
    if (st == RU_OK && info.notice != NULL) {
        ru_log(RU_LOG_WARN, "train", "import", "%s: %s", t->job->model.onnx, info.notice);
    }
    if (st == RU_OK) {
        st = copy_model(t, &f, err);
    }
    ru_arena_fini(&scratch);
    ru_onnx_file_close(&f);
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", t->job->model.onnx);
}

ru_status rui_trainer_dir_model(rui_trainer *t, const ru_type *x, const char **path, ru_err *err)
{
    *path = NULL;
    if (t->job->model.source != RU_MODEL_ONNX) {
        return RU_OK;
    }
    const char *one = ru_path_join(t->arena, t->out, "model.onnx");
    const char *parts = ru_path_join(t->arena, t->out, "model/model.onnx");
    if (one == NULL || parts == NULL) {
        return full(err);
    }
    if (!t->opt->resume || !(ru_path_exists(one) || ru_path_exists(parts))) {
        RU_TRY(take_model(t, x, err));
    }
    *path = ru_path_exists(one) ? one : parts;
    return RU_OK;
}

ru_status rui_trainer_dir_job(rui_trainer *t, ru_err *err)
{
    ru_text yaml = ru_text_arena(t->arena);
    ru_text_put(&yaml, t->job_yaml);
    t->folder.had_job = true;
    return put_file(t, "job.yaml", &yaml, err);
}

ru_status rui_trainer_dir_files(rui_trainer *t, ru_err *err)
{
    RU_TRY(rui_trainer_dir_job(t, err));
    RU_TRY(rui_trainer_dir_facts(t, err));
    ru_text plan = ru_text_arena(t->arena);
    const char *steps = ru_exe_print(t->exe, t->arena);
    ru_text_put(&plan, steps != NULL ? steps : "");
    return put_file(t, "plans/step.txt", &plan, err);
}
