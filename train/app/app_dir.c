#include "train/app/app_dir.h"

#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "run/place.h"
#include "train/app/call.h"

static const int64_t claim_wait_ns = INT64_C(3000000000); /* of a killed job's process to end */

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the run is full");
}

/* Highest number of runs/<name>-<number>; 0: none. */
static ru_status last_number(const char *name, ru_arena *arena, int64_t *number, ru_err *err)
{
    char **names;
    uint32_t n = 0;
    size_t head = strlen(name);
    *number = 0;
    if (ru_path_is_dir("runs")) {
        RU_TRY(ru_dir_list("runs", arena, &names, &n, err));
    }
    for (uint32_t k = 0; k < n; k++) {
        int64_t v;
        if (strncmp(names[k], name, head) == 0 && names[k][head] == '-' &&
            ru_str_i64(ru_str_c(names[k] + head + 1), &v) && v > *number) {
            *number = v;
        }
    }
    return RU_OK;
}

static ru_status choose(rui_app_dir *d, const char *name, bool resume, ru_arena *arena, ru_err *err)
{
    int64_t number;
    bool made = false;
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the job's name '%s' cannot be a folder name; use letters, digits, - and _",
                       name);
    }
    RU_TRY(last_number(name, arena, &number, err));
    if (resume && number == 0) {
        return RU_FAIL(err, RU_E_MISSING,
                       "there is nothing to resume: no folder runs/%s-<number> exists; name the "
                       "folder of the run with --out",
                       name);
    }
    RU_TRY(ru_dir_make("runs", err));
    while (!made) {
        number += !resume;
        d->out = ru_arena_printf(arena, "runs/%s-%lld", name, (long long)number);
        if (d->out == NULL) {
            return full(err);
        }
        made = resume;
        if (!resume) {
            RU_TRY(ru_dir_make_new(d->out, &made, err));
        }
    }
    return RU_OK;
}

static bool holds_checkpoints(const char *dir, ru_arena *arena)
{
    char **names;
    uint32_t n = 0;
    ru_err ignored;
    return ru_path_is_dir(dir) && ru_dir_list(dir, arena, &names, &n, &ignored) == RU_OK && n > 0;
}

ru_status rui_app_dir_open(rui_app_dir *d, const ru_app_train_options *opt, uint64_t key,
                           ru_arena *arena, ru_err *err)
{
    const char *yaml = opt->file->yaml;
    bool resumes = opt->resume && !opt->dir_made, begins = !opt->resume && !opt->dir_made;
    d->out = opt->out;
    if (opt->out == NULL) {
        RU_TRY(choose(d, opt->file->job->name, opt->resume, arena, err));
    }
    const char *checkpoints = ru_path_join(arena, d->out, "checkpoints");
    const char *job = ru_path_join(arena, d->out, "job.yaml");
    if (checkpoints == NULL || job == NULL) {
        return full(err);
    }
    RU_TRY(ru_run_place_check(d->out, begins && !opt->dir_shared, arena, err));
    if (resumes && !ru_path_is_dir(d->out)) {
        return RU_FAIL(err, RU_E_MISSING, "there is nothing to resume: %s does not exist", d->out);
    }
    if (begins && holds_checkpoints(checkpoints, arena)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "%s already contains a run; continue it with --resume, or start a new run "
                       "with another --out",
                       d->out);
    }
    RU_TRY(ru_dir_make(checkpoints, err));
    const ru_claim_options co = {.dir = d->out,
                                 .key = key,
                                 .alone = !opt->dir_made && !opt->dir_shared,
                                 .wait_ns = claim_wait_ns};
    RU_TRY(ru_claim_open(&co, &d->claim, err));
    ru_app_hope(d->out);
    const char *slash = strrchr(d->out, '/');
    d->run = slash != NULL && slash[1] != '\0' ? slash + 1 : d->out;
    return ru_file_own(job, yaml, (int64_t)strlen(yaml), err);
}

void rui_app_dir_close(rui_app_dir *d)
{
    ru_claim_close(d->claim);
    d->claim = NULL;
}
