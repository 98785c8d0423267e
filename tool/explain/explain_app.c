#include "tool/explain/explain_app.h"

#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"

enum { JOB_BYTES = 1 << 20 };

/* A key of the resolved job file; "": an older file that lacks it. */
static const char *key(const ru_conf *job, const char *path)
{
    const char *value = ru_conf_peek(job, path);
    return value != NULL ? value : "";
}

static bool is(const ru_conf *job, const char *path, const char *value)
{
    return strcmp(key(job, path), value) == 0;
}

static uint32_t number(const ru_conf *job, const char *path)
{
    return (uint32_t)strtoul(key(job, path), NULL, 10);
}

/* Only its keys are read: the library of an app of the user is not loaded. */
ru_status rui_explain_app_open(const char *path, ru_arena *arena, ru_conf **job, ru_err *err)
{
    static const ru_conf_table no_keys = {.name = "job"};
    *job = NULL;
    const char *file = ru_path_is_dir(path) ? ru_path_join(arena, path, "job.yaml") : NULL;
    if (file == NULL || !ru_path_exists(file)) {
        return RU_OK;
    }
    char *text;
    int64_t n;
    ru_conf *c;
    RU_TRY(ru_file_read(file, JOB_BYTES, arena, &text, &n, err));
    RU_TRY(ru_conf_new(&no_keys, arena, &c, err));
    RU_TRY(ru_conf_add_file(c, file, text, n, err));
    *job = ru_conf_peek(c, "app") != NULL ? c : NULL;
    return RU_OK;
}

static void row(ru_table *t, const ru_world *w, const char *policy, const char *keys)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->plans.n; i++) {
        n += strcmp(w->plans.at[i].policy, policy) == 0 ? 1 : 0;
    }
    ru_table_str(t, policy);
    ru_table_str(t, keys);
    ru_table_i64(t, n);
}

/* "clocks: {order: bsp, stragglers: backup, backup: 1}" */
static const char *clocks_of(const ru_conf *job, ru_arena *arena)
{
    ru_text t = ru_text_arena(arena);
    ru_text_putf(&t, "clocks: {order: %s", key(job, "clocks.order"));
    if (is(job, "clocks.order", "ssp")) {
        ru_text_putf(&t, ", staleness: %s", key(job, "clocks.staleness"));
    }
    ru_text_putf(&t, ", stragglers: %s", key(job, "clocks.stragglers"));
    if (is(job, "clocks.stragglers", "backup")) {
        ru_text_putf(&t, ", backup: %s", key(job, "clocks.backup"));
    }
    ru_text_put(&t, "}");
    return t.p;
}

ru_status rui_explain_app_methods(const ru_conf *job, const ru_world *w, ru_arena *arena,
                                  const ru_tell *out, ru_err *err)
{
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "policy", RU_TABLE_LEFT);
    ru_table_col(&t, "keys of the job", RU_TABLE_LEFT);
    ru_table_col(&t, "plans", RU_TABLE_RIGHT);
    row(&t, w, "moves", ru_arena_printf(arena, "clocks: {moves: %s}", key(job, "clocks.moves")));
    row(&t, w, "reassign", clocks_of(job, arena));
    row(&t, w, "save", ru_arena_printf(arena, "recovery: {save: %s}", key(job, "recovery.save")));
    row(&t, w, "recover",
        ru_arena_printf(arena, "recovery: {method: %s}", key(job, "recovery.method")));
    row(&t, w, "stage", ru_arena_printf(arena, "stages: {method: %s}", key(job, "stages.method")));
    return ru_tell_table(out, "methods", "methods", &t, err);
}

static void none_reassign(const ru_conf *job, const ru_tell *out)
{
    if (is(job, "clocks.stragglers", "wait") && is(job, "clocks.order", "async")) {
        ru_tell_note(out, "reason", "%s",
                     "clocks.stragglers is wait with clocks.order async: no executor waits for "
                     "another, and this method plans nothing");
    } else if (is(job, "clocks.stragglers", "wait")) {
        ru_tell_note(out, "reason",
                     "clocks.stragglers is wait with clocks.order %s: executors wait for the "
                     "others, and this method plans nothing",
                     key(job, "clocks.order"));
    } else if (is(job, "clocks.stragglers", "backup")) {
        ru_tell_note(out, "reason",
                     "clocks.stragglers is backup: a clock closes without its last "
                     "executors (at most %s), and this method plans nothing",
                     key(job, "clocks.backup"));
    } else {
        ru_tell_note(out, "reason",
                     "clocks.stragglers is %s, but the run made no plan: it needs several "
                     "workers, at most 256 executors, two closed clocks and 0.1 s",
                     key(job, "clocks.stragglers"));
    }
}

static void none_save(const ru_conf *job, const ru_tell *out)
{
    if (is(job, "recovery.method", "rollback")) {
        ru_tell_note(out, "reason", "%s",
                     "recovery.method is rollback: full checkpoints are made by time "
                     "(checkpoint.every), and this method plans nothing");
    } else if (is(job, "recovery.save", "none")) {
        ru_tell_note(out, "reason", "%s",
                     "recovery.save is none: there is no running checkpoint, and this method "
                     "plans nothing");
    } else {
        ru_tell_note(out, "reason",
                     "recovery.save is %s, but the process that led last has planned no save: "
                     "it held no rows, or the job ran in one process",
                     key(job, "recovery.save"));
    }
}

static void none_moves(const ru_conf *job, const ru_world *w, const ru_tell *out)
{
    if (ru_world_plan_newest(w, "stage") != NULL) {
        ru_tell_note(out, "reason", "%s",
                     "some workers were transient: the plans of stage place executors and "
                     "shards, and this method plans nothing");
        return;
    }
    bool shuffles = !is(job, "clocks.shuffle", "0") && !is(job, "clocks.shuffle", "");
    ru_tell_note(out, "reason",
                 "%sno worker joined or left while this leader led, so there was nothing to plan",
                 shuffles ? "clocks.shuffle moves what it draws at random and plans nothing; "
                          : "");
}

bool rui_explain_app_none(const ru_conf *job, const ru_world *w, const ru_policy *p,
                          const ru_tell *out)
{
    if (strcmp(p->name, "reassign") == 0) {
        none_reassign(job, out);
    } else if (strcmp(p->name, "save") == 0) {
        none_save(job, out);
    } else if (strcmp(p->name, "recover") == 0) {
        bool back = is(job, "recovery.method", "rollback");
        ru_tell_note(out, "reason", "%s",
                     back ? "recovery.method is rollback: all go back to the last checkpoint "
                            "when a worker dies, and this method plans nothing"
                          : "no rows had to be rebuilt in this run, so there was nothing to "
                            "plan");
    } else if (strcmp(p->name, "moves") == 0) {
        none_moves(job, w, out);
    } else if (strcmp(p->name, "stage") == 0) {
        bool off = is(job, "stages.method", "off");
        ru_tell_note(out, "reason", "%s",
                     off ? "stages.method is off: workers are not distinguished, and this "
                           "method plans nothing"
                         : "no worker was transient, so there was no stage to plan");
    } else {
        return false;
    }
    return true;
}

const char *const *rui_explain_app_reassign(const ru_conf *job, const ru_policy *p,
                                            uint32_t workers, ru_arena *arena, uint32_t *n)
{
    uint32_t slack = is(job, "clocks.order", "ssp") ? number(job, "clocks.staleness") : 0;
    uint32_t backup = number(job, "clocks.backup");
    const char **sets = RU_NEW(arena, const char *, 2);
    *n = 0;
    if (sets == NULL || strcmp(p->name, "reassign") != 0 || workers < 2) {
        return NULL;
    }
    if (is(job, "clocks.stragglers", "backup")) { /* the job counts executors, the policy workers */
        sets[0] = "method=backup";
        sets[1] = ru_arena_printf(arena, "backup=%u", backup);
        *n = sets[1] != NULL && number(job, "clocks.executors") == workers && backup < workers ? 2
                                                                                               : 0;
    } else if (is(job, "clocks.stragglers", "wait") && !is(job, "clocks.order", "async")) {
        sets[0] = slack == 0 ? "method=bsp" : slack == 1 ? "method=ssp1" : "method=ssp3";
        *n = slack <= 1 || slack == 3 ? 1 : 0;
    }
    return sets;
}
