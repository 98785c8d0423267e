/* The running checkpoint of a worker of a job with an app: its log, and the logs of all.
 * OUT/params/log-RUN/GENERATION-WORKER.log; RUN differs each time the job is started. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "train/worker/worker_app_impl.h"

static void name_of(const rui_app_worker *w, char into[32])
{
    const ru_worker_options *o = w->opt->worker;
    (void)snprintf(into, 32, "log-%016llx",
                   (unsigned long long)ru_hash_bytes(o->shell.token, o->shell.token_bytes, 1));
}

static void folder_of(const rui_app_worker *w, char into[512])
{
    char name[32];
    name_of(w, name);
    (void)snprintf(into, 512, "%s/params/%s", w->opt->worker->train.out, name);
}

/* The log of this generation; those before `since` and of earlier runs are of no use. */
static ru_status open_log(rui_app_worker *w, uint32_t generation, uint32_t since, ru_err *err)
{
    char dir[512];
    ru_arena arena;
    if (w->log != NULL && w->log_generation == generation) {
        return RU_OK;
    }
    ru_shardlog_close(w->log);
    w->log = NULL;
    folder_of(w, dir);
    ru_arena_init(&arena, 0);
    const char *path = ru_shardlog_path(&arena, dir, generation, w->shell.id.v);
    ru_status st = path == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for the name of a log")
                                : ru_dir_make(dir, err);
    st = st == RU_OK ? ru_shardlog_clean(dir, since, err) : st;
    st = st == RU_OK ? ru_shardlog_open(path, &w->log, err) : st;
    w->log_generation = generation;
    ru_arena_fini(&arena);
    return st;
}

void rui_app_log_append(rui_app_worker *w, rui_app_command *c)
{
    ru_time begin = ru_clock_now();
    c->status = c->at.generation < w->log_generation
                    ? RU_FAIL(&c->err, RU_E_MISSING, "generation %u is over", c->at.generation)
                    : open_log(w, c->at.generation, c->since, &c->err);
    c->status =
        c->status == RU_OK ? ru_shardlog_append(w->log, c->bytes, c->n, &c->err) : c->status;
    c->busy_ns = ru_clock_now().ns - begin.ns;
}

void rui_app_log_gather(const rui_app_worker *w, rui_app_command *c)
{
    char dir[512];
    ru_arena arena;
    folder_of(w, dir);
    ru_arena_init(&arena, 0);
    ru_text text = ru_text_arena(&arena);
    c->status = ru_shardlog_gather(dir, c->since, c->at.generation, c->object, &text, &c->err);
    c->bytes = c->status == RU_OK ? malloc((size_t)text.n + 1) : NULL;
    if (c->bytes != NULL && text.n > 0) {
        memcpy(c->bytes, text.p, (size_t)text.n);
    }
    c->n = text.n;
    if (c->status == RU_OK && c->bytes == NULL) {
        c->status = RU_FAIL(&c->err, RU_E_MEM, "no memory for the records of object %u", c->object);
    }
    ru_arena_fini(&arena);
}

void rui_app_log_clean(const rui_app_worker *w, bool all)
{
    char dir[512], mine[32];
    ru_arena arena;
    char **names;
    uint32_t n = 0;
    ru_err err;
    name_of(w, mine);
    ru_arena_init(&arena, 0);
    (void)snprintf(dir, sizeof dir, "%s/params", w->opt->worker->train.out);
    ru_status st = ru_path_is_dir(dir) ? ru_dir_list(dir, &arena, &names, &n, &err) : RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < n; k++) {
        const char *path = ru_path_join(&arena, dir, names[k]);
        bool log = strncmp(names[k], "log-", 4) == 0;
        if (path != NULL && log && (all || strcmp(names[k], mine) != 0)) {
            st = ru_path_remove(path, &err);
            st = st == RU_E_MISSING ? RU_OK : st; /* another worker did */
        }
    }
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "checkpoint", "old logs could not be removed: %s", err.text);
    }
    ru_arena_fini(&arena);
}
