#include "run/place.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"
#include "run/ckpt_form.h"

static const char *const files[] = {"lock",         "job.yaml",     "metrics.jsonl",
                                    "log",          "token",        "world.json",
                                    "find-lr.csv",  "model.onnx",   "generation",
                                    "follow.files", "follow.jsonl", "federation.jsonl"};
static const char *const folders[] = {"checkpoints", "trace", "plans",
                                      "params",      "model", "histograms"};

static bool is_file_of_run(const char *name)
{
    bool is = strncmp(name, "log.", 4) == 0 || strncmp(name, "tell.", 5) == 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(files) && !is; k++) {
        is = strcmp(name, files[k]) == 0;
    }
    return is;
}

static bool is_folder_of_run(const char *name)
{
    bool is = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(folders) && !is; k++) {
        is = strcmp(name, folders[k]) == 0;
    }
    return is;
}

static ru_status refuse(const char *path, ru_path_kind kind, const char *wants, ru_err *err)
{
    static const char *const names[] = {"nothing",         "a file", "a folder",
                                        "a symbolic link", "a FIFO", "a device or socket"};
    return RU_FAIL(err, RU_E_CREATE,
                   "%s is %s, where the run needs %s of its own; remove it, or name another folder "
                   "with --out",
                   path, names[kind], wants);
}

/* What a run writes in its folders are files and folders, too. */
static ru_status check_folder(const char *dir, ru_arena *arena, ru_err *err)
{
    char **names;
    uint32_t n;
    RU_TRY(ru_dir_list(dir, arena, &names, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        const char *path = ru_path_join(arena, dir, names[k]);
        if (path == NULL) {
            return RU_FAIL(err, RU_E_MEM, "not enough memory to look at %s", dir);
        }
        ru_path_kind kind = ru_path_kind_of(path);
        bool best = kind == RU_PATH_LINK && strcmp(names[k], "best") == 0;
        if (kind != RU_PATH_FILE && kind != RU_PATH_DIR && kind != RU_PATH_NONE && !best) {
            return refuse(path, kind, "a file", err);
        }
    }
    return RU_OK;
}

/* Has a job of Rubato signed the folder? */
static bool is_of_a_run(const char *lock, ru_arena *arena)
{
    static const char head[] = "job ";
    char *text;
    int64_t n;
    ru_err ignored;
    return ru_path_kind_of(lock) == RU_PATH_FILE &&
           ru_file_read(lock, 4096, arena, &text, &n, &ignored) == RU_OK &&
           strncmp(text, head, sizeof head - 1) == 0 && strstr(text, " process ") != NULL;
}

ru_status ru_run_place_check(const char *out, bool fresh, ru_arena *arena, ru_err *err)
{
    char **names;
    uint32_t n;
    const char *taken = NULL, *lock = ru_path_join(arena, out, "lock");
    if (!ru_path_is_dir(out)) {
        return RU_OK; /* to be made, or refused when it is made */
    }
    RU_TRY(ru_dir_list(out, arena, &names, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        const char *path = ru_path_join(arena, out, names[k]);
        if (path == NULL || lock == NULL) {
            return RU_FAIL(err, RU_E_MEM, "not enough memory to look at %s", out);
        }
        ru_path_kind kind = ru_path_kind_of(path);
        if (is_file_of_run(names[k])) {
            taken = names[k];
            if (kind != RU_PATH_FILE && kind != RU_PATH_NONE) {
                return refuse(path, kind, "a file", err);
            }
        } else if (is_folder_of_run(names[k])) {
            if (kind != RU_PATH_NONE && !ru_path_is_dir(path)) {
                return refuse(path, kind, "a folder", err);
            }
            RU_TRY(check_folder(path, arena, err));
        }
    }
    if (fresh && taken != NULL && !is_of_a_run(lock, arena)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "%s contains a file '%s' that no run of Rubato wrote, and a run would "
                       "replace it; name another folder with --out",
                       out, taken);
    }
    return RU_OK;
}

/* -- a folder that is deleted under its run ---------------------------------------------------- */

enum { PATH_BYTES = 4096 };

static ru_status join(const ru_run_folder *f, const char *name, char into[PATH_BYTES], ru_err *err)
{
    int n = snprintf(into, PATH_BYTES, "%s/%s", f->out, name);
    return n > 0 && n < PATH_BYTES
               ? RU_OK
               : RU_FAIL(err, RU_E_CREATE, "the folder's name is too long: %s", f->out);
}

bool ru_run_place_gone(ru_run_folder *f)
{
    char job[PATH_BYTES];
    bool there = join(f, "job.yaml", job, NULL) != RU_OK || ru_path_exists(job);
    bool gone = f->had_job && !there;
    f->had_job = f->had_job || there;
    return gone;
}

/* Has whoever starts this job started it again meanwhile? */
static ru_status check_generation(const ru_run_folder *f, ru_err *err)
{
    char path[PATH_BYTES], *text;
    int64_t n, now = 0;
    ru_arena scratch;
    RU_TRY(join(f, "generation", path, err));
    if (f->generation == 0 || !ru_path_exists(path)) {
        return RU_OK;
    }
    ru_arena_init(&scratch, 0);
    ru_status st = ru_file_read(path, 64, &scratch, &text, &n, err);
    bool read = st == RU_OK && ru_str_i64(ru_str_trim(ru_str_n(text, n)), &now);
    ru_arena_fini(&scratch);
    RU_TRY(st);
    return read && now <= f->generation
               ? RU_OK
               : RU_FAIL(err, RU_E_PERM,
                         "the job was started again (generation %lld) and has the folder %s now; "
                         "this worker of generation %u ends and writes nothing",
                         (long long)now, f->out, f->generation);
}

static ru_status make(const ru_run_folder *f, ru_err *err)
{
    char path[PATH_BYTES];
    RU_TRY(ru_dir_make(f->out, err));
    for (uint32_t k = 0; k < 3; k++) {
        RU_TRY(join(f, folders[k], path, err));
        RU_TRY(ru_dir_make(path, err));
    }
    RU_TRY(join(f, "job.yaml", path, err));
    return ru_file_own(path, f->yaml, (int64_t)strlen(f->yaml), err);
}

ru_status ru_run_place_restore(ru_run_folder *f, bool *anew, ru_err *err)
{
    RU_TRY(check_generation(f, err));
    *anew = ru_run_place_gone(f);
    if (!*anew) {
        return RU_OK;
    }
    uint32_t tries = 0;
    ru_status st;
    do {
        st = make(f, err);
    } while (ru_ckpt_again(st, true, &tries));
    f->was_deleted = f->was_deleted || st == RU_OK;
    return st;
}

ru_status ru_run_place_kept(const ru_run_folder *f, int64_t step, ru_err *err)
{
    return !f->was_deleted
               ? RU_OK
               : RU_FAIL(err, RU_E_IO,
                         "the folder %s was deleted while the run used it; the checkpoint after "
                         "step %lld is there again and `rubato train JOB --out %s --resume` "
                         "continues from it, but metrics, log and traces before are lost",
                         f->out, (long long)step, f->out);
}
