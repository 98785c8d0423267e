#include "train/app/app_job.h"

#include <stddef.h>
#include <string.h>

#include "train/app/local.h"
#include "train/engine/engine.h"
#include "train/job/job_impl.h"

static const char *const formats[] = {"libsvm", "ratings", "bow", "text", "csv", "idx"};

static const ru_conf_field data_fields[] = {
    RU_ROW(CHOICE, ru_app_job_data_keys, format, NULL,
           "format of the files: sparse rows with labels, lines of user, item and value, the "
           "three-number bag of words with its vocabulary file, one document a line, rows of "
           "numbers",
           .choices = "libsvm|ratings|bow|text|csv|idx"),
    RU_ROW(TEXT_LIST, ru_app_job_data_keys, train, "[]",
           "files of the training data, relative to the job file's folder"),
    RU_ROW(TEXT_LIST, ru_app_job_data_keys, test, "[]", "files of the test data"),
    RU_ROW(TEXT, ru_app_job_data_keys, label, "",
           "csv: name or number of the label's column; empty: the last, if the app needs "
           "labels"),
    RU_ROW(I64, ru_app_job_data_keys, rows, "0", "ratings: number of users; 0: those found",
           RU_IN(0, 1 << 28)),
    RU_ROW(I64, ru_app_job_data_keys, cols, "0",
           "number of items, words or features; 0: those found", RU_IN(0, 1 << 28)),
};
static const ru_conf_table data_table =
    RU_TABLE("data", ru_app_job_data_keys, data_fields, "training and test data",
             .called = "features=cols|users="
                       "rows|items=cols");

static const ru_conf_field clocks_fields[] = {
    RU_ROW(CHOICE, ru_app_job_clocks, order, "bsp",
           "bsp: all executors are in the same clock; ssp: at most clocks.staleness clocks "
           "apart; async: independent of each other; in apps that rotate blocks of parameters "
           "the rotation takes the place of bsp",
           .choices = "bsp|ssp|async"),
    RU_ROW(U32, ru_app_job_clocks, staleness, "1",
           "ssp: number of clocks that the fastest executor may be ahead of the slowest",
           RU_IN(0, 1000)),
    RU_ROW(CHOICE, ru_app_job_clocks, stragglers, "wait",
           "what the others do when executors of several workers fall behind in a clock: wait; "
           "take over part of their work (reassign; paper: with the settings of the FlexRR "
           "paper, and with bsp those for a barrier); ask for work once they are done (steal); go "
           "on without the last clocks.backup "
           "of them, whose changes of the clock are dropped (backup)",
           .choices = "wait|reassign|paper|steal|backup"),
    RU_ROW(U32, ru_app_job_clocks, backup, "1",
           "clocks.stragglers backup: number of executors for which a clock does not wait",
           RU_IN(1, RU_APP_EXECUTORS_MAX)),
    RU_ROW_AS("task_limit", TIME, ru_app_job_clocks, task_limit_ns, "0s",
              "time after which a task counts as an endless loop and ends the job; 0s: fifty times "
              "the longest task so far, at least a minute, and an hour for the first",
              RU_IN(0, 1e18)),
    RU_ROW(CHOICE, ru_app_job_clocks, moves, "balance",
           "what happens with executors and shards when workers join; balance: those move that "
           "make clocks shorter, while the others work; keep: nothing moves; count: as many on "
           "each worker; lpt: all are placed anew; greedy: from the most to the least loaded "
           "worker; restart: all stop, save, and load on new places",
           .choices = "balance|keep|count|lpt|greedy|restart"),
    RU_ROW_AS("shuffle", TIME, ru_app_job_clocks, shuffle_ns, "0s",
              "time after which one executor or shard, chosen at random, moves to a worker "
              "chosen at random, again and again, to test that an app does not depend on "
              "where its parts are; 0s: never",
              RU_IN(0, 1e18)),
    RU_ROW(U32, ru_app_job_clocks, executors, "0",
           "number of parts of the data, each with one executor; it does not change when "
           "workers join or leave; 0: 16, or the number of rows if that is smaller",
           RU_IN(0, RU_APP_EXECUTORS_MAX)),
};
static const ru_conf_table clocks_table =
    RU_TABLE("clocks", ru_app_job_clocks, clocks_fields, "synchronisation of the executors");

static const ru_conf_field train_fields[] = {
    RU_ROW(I64, ru_app_job_train, epochs, "0",
           "number of passes over the training data; 0: no limit, or 10 if steps and until "
           "are not given either",
           RU_IN(0, 1e9)),
    RU_ROW(I64, ru_app_job_train, steps, "0", "number of clocks; 0: no limit", RU_IN(0, 4e9)),
    RU_ROW(F64_MAP, ru_app_job_train, until, "{}",
           "stop when all of these targets are reached: the objective, or metrics of an "
           "evaluation"),
    RU_ROW(I64, ru_app_job_train, eval_every, "1",
           "number of passes between two evaluations of the test data", RU_IN(1, 1e9)),
    RU_ROW(I64, ru_app_job_train, seed, "1", "seed of initial values and of every random choice",
           RU_IN(0, 9e15)),
    RU_ROW(U32, ru_app_job_train, threads, "0",
           "number of compute threads; 0: all cores that this process may use", RU_IN(0, 1024)),
};
static const ru_conf_table train_table =
    RU_TABLE("train", ru_app_job_train, train_fields, "training settings",
             .called = "iterations=epochs|passes=epochs|clocks=steps|num_threads="
                       "threads|random_seed=seed");

static const ru_conf_field checkpoint_fields[] = {
    RU_ROW_AS("every", TIME, ru_app_job_checkpoint, every_ns, "60s",
              "time between two checkpoints; 0s: save only at the end", RU_IN(0, 1e18)),
    RU_ROW(U32, ru_app_job_checkpoint, keep, "3", "number of newest checkpoints to keep",
           RU_IN(1, 1e6)),
};
static const ru_conf_table checkpoint_table =
    RU_TABLE("checkpoint", ru_app_job_checkpoint, checkpoint_fields, "checkpoints during training");

static const ru_conf_field recovery_fields[] = {
    RU_ROW(CHOICE, ru_app_job_recovery, method, "auto",
           "what happens on several workers when some of them die; rollback: all go back to the "
           "last checkpoint, and the result stays the same bits; newest: the others go on, and "
           "each lost row comes from its newest copy, in a cache of a worker, the running "
           "checkpoint, or a checkpoint; partial: the same without caches; reset: lost rows get "
           "their first values; auto: newest for apps that repair such rows (mf, mlr) or count "
           "them again (lda, kmeans, lasso) if clocks.stragglers is wait or clocks.order is bsp, "
           "else rollback",
           .choices = "auto|rollback|newest|partial|reset"),
    RU_ROW(CHOICE, ru_app_job_recovery, save, "priority",
           "which rows the running checkpoint writes next: those that moved farthest since they "
           "were written, in a cycle, at random, all, or none",
           .choices = "priority|round_robin|random|full|none"),
    RU_ROW(F64, ru_app_job_recovery, fraction, "0.125",
           "fraction of the rows that the running checkpoint writes at a time", RU_OVER(0, 1)),
    RU_ROW(U32, ru_app_job_recovery, clocks, "8",
           "clocks in which the running checkpoint writes as much as all rows have", RU_IN(1, 1e6)),
    RU_ROW(U32, ru_app_job_recovery, block, "1024",
           "bytes of rows that the running checkpoint writes, and a failure takes, together; "
           "small ones save what moved more exactly and cost more requests",
           RU_IN(4, 1 << 30)),
    RU_ROW(F64, ru_app_job_recovery, cost, "0.02",
           "share of a thread's time that the running checkpoint may take; it writes less often "
           "when its disk is slow; 0: no limit",
           RU_IN(0, 1)),
};
static const ru_conf_table recovery_table =
    RU_TABLE("recovery", ru_app_job_recovery, recovery_fields, "what is lost when workers die");

static const ru_conf_field stages_fields[] = {
    RU_ROW(CHOICE, ru_app_job_stages, method, "auto",
           "what transient workers hold (--tier, --hosts); stage1: no parameters; stage2: the "
           "parameters, and reliable workers keep copies; stage3: the same, and reliable workers "
           "do not compute; ratio: by the number of transient workers for each reliable one; "
           "auto: the stage with the shortest predicted clock; off: workers are not "
           "distinguished, and there are no copies",
           .choices = "auto|ratio|stage1|stage2|stage3|off"),
    RU_ROW_AS(
        "notice", TIME, ru_app_job_stages, notice_ns, "120s",
        "time between the notice that a machine is taken away and its end; what is not copied "
        "can be sent in half of it",
        RU_IN(0, 1e15)),
    RU_ROW(F64, ru_app_job_stages, r12, "1",
           "ratio: stage 2 above so many transient workers for each reliable one", RU_OVER(0, 1e9)),
    RU_ROW(F64, ru_app_job_stages, r23, "15", "ratio: stage 3 above so many", RU_OVER(0, 1e9)),
};
static const ru_conf_table stages_table = RU_TABLE("stages", ru_app_job_stages, stages_fields,
                                                   "workers on machines that may be taken away");

static const ru_conf_field job_fields[] = {
    RU_ROW(TEXT, ru_app_job, name, "job",
           "name of the job, used in the names of runs and in reports"),
    RU_ROW(TEXT, ru_app_job, app, NULL,
           "mf, lda, mlr, lasso, kmeans, or the path of a library with an app of your own"),
    RU_ROW(SECTION, ru_app_job, data, NULL, "training and test data", .table = &data_table),
    RU_ROW(SECTION, ru_app_job, clocks, NULL, "synchronisation of the executors",
           .table = &clocks_table),
    RU_ROW(SECTION, ru_app_job, train, NULL, "training settings", .table = &train_table),
    RU_ROW(SECTION, ru_app_job, checkpoint, NULL, "checkpoints during training",
           .table = &checkpoint_table),
    RU_ROW(SECTION, ru_app_job, recovery, NULL, "what is lost when workers die",
           .table = &recovery_table),
    RU_ROW(SECTION, ru_app_job, stages, NULL, "workers on machines that may be taken away",
           .table = &stages_table),
};

enum {
    JOB_FIELDS = sizeof job_fields / sizeof job_fields[0],
    CONFIG_AT = (sizeof(ru_app_job) + 63) / 64 * 64,
};

static ru_status job_check(const void *section, ru_err *err)
{
    return rui_job_name_check(((const ru_app_job *)section)->name, err);
}

/* The common keys and the app's section. */
static ru_status make_table(const ru_app_ops *ops, ru_arena *arena, const ru_conf_table **out,
                            ru_err *err)
{
    ru_conf_table *t = RU_NEW(arena, ru_conf_table, 1);
    ru_conf_field *fields = RU_NEW(arena, ru_conf_field, JOB_FIELDS + 1);
    if (t == NULL || fields == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the job is full");
    }
    memcpy(fields, job_fields, sizeof job_fields);
    fields[JOB_FIELDS] = (ru_conf_field){
        .name = ops->name,
        .type = RU_CONF_SECTION,
        .offset = CONFIG_AT,
        .table = ops->config,
        .help = ops->help != NULL ? ops->help : "settings of the app",
    };
    uint32_t config_bytes = ops->config != NULL ? ops->config->size_bytes : 0;
    *t = (ru_conf_table){
        .name = "job",
        .fields = fields,
        .n = JOB_FIELDS + (ops->config != NULL),
        .size_bytes = CONFIG_AT + config_bytes,
        .check = job_check,
        .called = "dataset=data|checkpoints=checkpoint|trainer=train|epochs=train: {epochs: "
                  "...}|seed=train: {seed: ...}|executors=clocks: {executors: ...}",
        .help = "a job with an app",
    };
    *out = t;
    return RU_OK;
}

static ru_status resolve_clocks(const ru_app_ops *ops, ru_app_job *job, ru_err *err)
{
    uint32_t *m = &job->recovery.method;
    const int64_t shuffle_min_ns = 1000000;
    if (job->clocks.shuffle_ns > 0 && job->clocks.shuffle_ns < shuffle_min_ns) {
        return RU_FAIL(err, RU_E_CONFIG, "clocks.shuffle is %lld ns; expected 0s or at least 1ms",
                       (long long)job->clocks.shuffle_ns);
    }
    bool backup = job->clocks.stragglers == RU_ENGINE_BACKUP;
    if (backup && job->clocks.order != RU_ENGINE_BSP) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "clocks.stragglers backup drops changes when a clock closes, which only "
                       "clocks.order bsp can do; set clocks.order to bsp, or clocks.stragglers to "
                       "wait");
    }
    if (backup && *m != RU_APP_RECOVER_AUTO && *m != RU_APP_RECOVER_ROLLBACK) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "with clocks.stragglers backup all go back to a checkpoint when a worker "
                       "dies; set recovery.method to rollback, or clocks.stragglers to wait");
    }
    /* Slices that shards have merged cannot be taken out when their owner dies. */
    bool waits = job->clocks.stragglers == RU_ENGINE_WAIT || job->clocks.order == RU_ENGINE_BSP;
    bool goes_on = ops->partial || ops->recount != RU_APP_RECOUNT_NEVER;
    if (*m == RU_APP_RECOVER_AUTO) {
        *m = goes_on && waits && !backup ? RU_APP_RECOVER_NEWEST : RU_APP_RECOVER_ROLLBACK;
    }
    if (*m != RU_APP_RECOVER_ROLLBACK && !waits) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "with clocks.order ssp or async, work that executors hand to others cannot be "
            "rebuilt when workers die: set recovery.method to rollback, clocks.order to "
            "bsp, or clocks.stragglers to wait");
    }
    return *m == RU_APP_RECOVER_ROLLBACK || goes_on
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "app '%s' cannot go on with rows that are older than the others; set "
                         "recovery.method to rollback",
                         ops->name);
}

ru_status ru_app_job_transient(const ru_app_job *job, ru_err *err)
{
    bool async = job->clocks.order == RU_ENGINE_ASYNC;
    bool far =
        job->clocks.order == RU_ENGINE_SSP && job->clocks.staleness > RU_ENGINE_COPIES_SLACK_MAX;
    if (job->stages.method == RU_APP_STAGES_OFF || (!async && !far)) {
        return RU_OK;
    }
    return RU_FAIL(
        err, RU_E_CONFIG,
        "reliable workers cannot keep copies of what transient workers hold with %s; set "
        "clocks.order to bsp, or to ssp with clocks.staleness up to %d, or set "
        "stages.method to off (then transient workers count as reliable ones)",
        async ? "clocks.order async" : "so large a clocks.staleness", RU_ENGINE_COPIES_SLACK_MAX);
}

/* The value of `app`, before anything else is checked; NULL: none. */
static ru_status peek_app(const char *label, const char *text, int64_t n, ru_arena *arena,
                          const char **app, ru_err *err)
{
    static const ru_conf_field fields[] = {
        {.name = "app", .type = RU_CONF_TEXT, .def = "", .help = "name of the app"},
    };
    static const ru_conf_table table = {
        .name = "job", .fields = fields, .n = 1, .size_bytes = sizeof(char *)};
    ru_conf *c;
    RU_TRY(ru_conf_new(&table, arena, &c, err));
    RU_TRY(ru_conf_add_file(c, label, text, n, err));
    *app = ru_conf_peek(c, "app");
    return RU_OK;
}

bool ru_app_job_is(const char *path)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    char *text;
    int64_t n;
    ru_err err;
    const char *app = NULL;
    bool is = rui_job_text(path, &arena, &text, &n, &err) == RU_OK &&
              peek_app(path, text, n, &arena, &app, &err) == RU_OK && app != NULL;
    ru_arena_fini(&arena);
    return is;
}

bool ru_app_job_text_is(const char *yaml)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_err err;
    const char *app = NULL;
    bool is =
        peek_app("job", yaml, (int64_t)strlen(yaml), &arena, &app, &err) == RU_OK && app != NULL;
    ru_arena_fini(&arena);
    return is;
}

static ru_status read_job(const char *path, bool resolve, const char *text, int64_t n,
                          const char *const *sets, uint32_t n_sets, ru_arena *arena,
                          ru_app_job_file *out, ru_err *err)
{
    const char *app = NULL;
    ru_app_job_file f = {0};
    ru_conf *c;
    RU_TRY(peek_app(path, text, n, arena, &app, err));
    if (app == NULL) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: the job names no app", path);
    }
    if (strchr(app, '/') != NULL || ru_str_ends(ru_str_c(app), ".so")) {
        app = resolve ? rui_job_path(arena, path, app) : app;
    }
    if (app == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the job is full");
    }
    RU_TRY(ru_app_find(app, &f.ops, err));
    RU_TRY(make_table(f.ops, arena, &f.table, err));
    RU_TRY(ru_conf_new(f.table, arena, &c, err));
    RU_TRY(ru_conf_add_file(c, path, text, n, err));
    if (resolve) {
        RU_TRY(ru_conf_add_env(c, err));
    }
    for (uint32_t k = 0; k < n_sets; k++) {
        RU_TRY(ru_conf_add_set(c, sets[k], err));
    }
    uint8_t *into = ru_arena_zalloc(arena, f.table->size_bytes, 64);
    if (into == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the job is full");
    }
    RU_TRY(ru_conf_apply(c, into, err));
    ru_app_job *job = (ru_app_job *)(void *)into;
    job->app = app;
    RU_TRY(resolve_clocks(f.ops, job, err));
    if (job->stages.method != RU_APP_STAGES_AUTO) { /* auto: no worker may be transient */
        RU_TRY(ru_app_job_transient(job, err));
    }
    if (resolve) {
        RU_TRY(rui_job_paths(arena, path, &job->data.train, err));
        RU_TRY(rui_job_paths(arena, path, &job->data.test, err));
    }
    if (job->train.epochs == 0 && job->train.steps == 0 && job->train.until.n == 0) {
        job->train.epochs = 10;
    }
    ru_text yaml = ru_text_arena(arena);
    ru_conf_dump(f.table, job, c, &yaml);
    f.job = job;
    f.config = f.ops->config != NULL ? into + CONFIG_AT : NULL;
    f.yaml = yaml.p;
    *out = f;
    return yaml.cut ? RU_FAIL(err, RU_E_LIMIT, "the arena of the job is full") : RU_OK;
}

ru_status ru_app_job_load(const char *path, const char *const *sets, uint32_t n_sets,
                          ru_arena *arena, ru_app_job_file *out, ru_err *err)
{
    char *text;
    int64_t n;
    RU_TRY(rui_job_text(path, arena, &text, &n, err));
    return read_job(path, true, text, n, sets, n_sets, arena, out, err);
}

ru_status ru_app_job_parse(const char *label, const char *yaml, ru_arena *arena,
                           ru_app_job_file *out, ru_err *err)
{
    return read_job(label, false, yaml, (int64_t)strlen(yaml), NULL, 0, arena, out, err);
}

ru_status ru_app_job_help(ru_arena *arena, ru_text *out, ru_err *err)
{
    for (uint32_t k = 0; ru_app_at(k) != NULL; k++) {
        const ru_app_ops *ops = ru_app_at(k);
        const ru_conf_table *table;
        if (k == 0) {
            RU_TRY(make_table(ops, arena, &table, err));
            ru_text_put(out, "\nJobs with an app (docs/apps.md):\n\n");
            ru_conf_help(table, 0, out);
        } else if (ops->config != NULL) {
            ru_text_putf(out, "\n%s: %s\n", ops->name, ops->help);
            ru_conf_help(ops->config, 0, out);
        }
    }
    return RU_OK;
}

ru_status ru_app_job_data(const ru_app_job_file *f, const char *const *paths, uint32_t n_paths,
                          const ru_sparse_options *like, ru_sparse_file **out, ru_err *err)
{
    const ru_app_job_data_keys *d = &f->job->data;
    ru_sparse_options o =
        like != NULL ? *like : (ru_sparse_options){.rows = d->rows, .cols = d->cols};
    o.format = formats[d->format];
    o.paths = paths;
    o.n_paths = n_paths;
    o.label = d->label[0] != '\0' ? d->label : NULL;
    o.labels = f->ops->labels;
    if (n_paths == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "the job names no training data (data.train)");
    }
    return ru_sparse_open(&o, out, err);
}
