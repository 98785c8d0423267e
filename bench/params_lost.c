/* What a failure costs in clocks: logistic regression on four processes of the simulator, two of
 * which die at a random clock. The engine, its running checkpoint and its recovery are the real
 * ones; the device computes at once and answers later; files are kept in memory.
 *
 * Lost progress of a run: clocks that it makes until the loss is that of the undisturbed run after
 * TARGET clocks, less TARGET; clocks that are made twice count twice. Every method writes all
 * blocks in EVERY clocks, or as many; fractions round up. Source: qiao-2019 sec 5 (failures at a
 * geometric clock, mean 50). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/rng.h"
#include "bench/params.h"
#include "env/file.h"
#include "sim/process.h"
#include "store/shardlog.h"
#include "train/app/app_job.h"
#include "train/app/engine.h"
#include "train/app/state.h"

enum {
    PROCESSES = 4,
    KILLED = 2,
    EXECUTORS = 8,
    SHARDS = 64,
    TARGET = 100,
    CLOCKS = 400,
    EVERY = 8,
    TRIALS = 100,
    TRIALS_QUICK = 20,
    DOCUMENTS = 600,
    WORDS = 4000,
    CLASSES = 8,
};
#define TASK_NS 2000000

typedef struct method {
    const char *name;
    bool partial;
    ru_recover_method recover;
    ru_save_method save;
    double goal; /* per cent less than the first; 0: none */
    bool oracle; /* lost rows come back as they were: as if nobody had died */
} method;

static const method methods[] = {
    {"all roll back to a full checkpoint", false, RU_RECOVER_ROLLBACK, RU_SAVE_NONE, 0, false},
    {"no checkpoint", true, RU_RECOVER_RESET, RU_SAVE_NONE, 0, false},
    {"full checkpoint", true, RU_RECOVER_PARTIAL, RU_SAVE_FULL, 0, false},
    {"running checkpoint, random", true, RU_RECOVER_PARTIAL, RU_SAVE_RANDOM, 0, false},
    {"running checkpoint, round_robin", true, RU_RECOVER_PARTIAL, RU_SAVE_ROUND_ROBIN, 0, false},
    {"running checkpoint, priority", true, RU_RECOVER_PARTIAL, RU_SAVE_PRIORITY, 70, false},
    {"priority and caches", true, RU_RECOVER_NEWEST, RU_SAVE_PRIORITY, 95, false},
    {"oracle", true, RU_RECOVER_NEWEST, RU_SAVE_NONE, 0, true},
};

typedef struct item { /* of a file in memory */
    struct item *next;
    ru_engine_ckpt at;
    uint32_t object;
    int64_t n;
    uint8_t bytes[];
} item;

typedef struct answer {
    struct process *p;
    struct answer *next;
    enum { OPENED, RAN, WRITTEN, READ, LOGGED, LOG_READ } kind;
    ru_engine_ckpt at;
    uint32_t object, tag;
    ru_engine_task *task;
    bool over;
} answer;

typedef struct lost {
    const ru_app_job_file *file;
    ru_sparse_file *data;
    void *app;
    ru_app_state state;
    ru_sparse part[EXECUTORS];
    int64_t first[EXECUTORS + 1];
    /* of a trial */
    const method *m;
    ru_sim *sim;
    ru_rng rng;
    uint32_t kill_at; /* 0: never */
    bool killed, reached;
    item *files, *log;
    answer *answers;
    uint32_t made;
    double before, target, clocks; /* loss of the last clock; made until the target */
    int64_t written;               /* bytes of checkpoints in this trial */
    struct process {
        struct lost *w;
        ru_sim_process process;
        ru_node *node;
        ru_engine *engine;
        ru_node_id self;
        char address[32];
    } at[PROCESSES];
} lost;

typedef struct process process;

/* -- the device ----------------------------------------------------------------------------------
 */

static void give_log(process *p, const answer *a, ru_time now, ru_effects *fx)
{
    int64_t n = 0;
    for (const item *r = p->w->log; r != NULL; r = r->next) {
        n += r->n;
    }
    uint8_t *bytes = malloc((size_t)n + 1), *to = bytes;
    RU_CHECK(bytes != NULL);
    for (const item *r = p->w->log; r != NULL; r = r->next) {
        ru_shardlog_record x;
        for (int64_t end = 0, from = 0; ru_shardlog_next(r->bytes, r->n, &end, &x); from = end) {
            if (x.generation == a->at.generation && x.object == a->object) {
                memcpy(to, r->bytes + from, (size_t)(end - from));
                to += end - from;
            }
        }
    }
    ru_engine_log_read(p->engine, a->at.generation, a->object, bytes, to - bytes, RU_OK, NULL, now,
                       fx);
    free(bytes);
}

static void give_file(process *p, const answer *a, ru_time now, ru_effects *fx)
{
    const item *r = p->w->files;
    while (r != NULL && (r->at.generation != a->at.generation || r->at.clock != a->at.clock ||
                         r->object != a->object)) {
        r = r->next;
    }
    RU_CHECK(r != NULL);
    ru_engine_read(p->engine, a->tag, a->object, r->bytes, r->n, RU_OK, NULL, now, fx);
}

static void perform(void *self, uint64_t arg)
{
    answer *a = self;
    process *p = a->p;
    (void)arg;
    ru_time now = ru_sim_now(p->w->sim);
    ru_effects *fx = ru_node_enter(p->node, now);
    void *state = NULL;
    switch (a->kind) {
    case OPENED:
        RU_CHECK(p->w->file->ops->exec_open(p->w->app, a->object, &p->w->part[a->object], &state,
                                            NULL) == RU_OK);
        ru_engine_opened(p->engine, a->object, a->tag, state, RU_OK, NULL, now, fx);
        break;
    case RAN:
        ru_engine_compute(p->w->file->ops, &p->w->state.shape, a->task);
        ru_engine_ran(p->engine, a->task, now, fx);
        break;
    case WRITTEN:
        ru_engine_written(p->engine, a->at, a->object, RU_OK, NULL, now, fx);
        break;
    case READ:
        give_file(p, a, now, fx);
        break;
    case LOGGED:
        ru_engine_logged(p->engine, a->at.generation, 100000, RU_OK, NULL, now, fx);
        break;
    case LOG_READ:
        give_log(p, a, now, fx);
        break;
    }
    ru_node_leave(p->node, now);
}

static void later(process *p, answer a)
{
    answer *copy = malloc(sizeof *copy);
    RU_CHECK(copy != NULL);
    *copy = a;
    copy->p = p;
    copy->next = p->w->answers; /* freed with the trial */
    p->w->answers = copy;
    int64_t ns = a.kind == RAN ? TASK_NS : TASK_NS / 10;
    ns += (int64_t)ru_rng_below_u64(&p->w->rng, (uint64_t)ns / 4);
    ru_sim_process_at(&p->process, ru_time_after(ru_sim_now(p->w->sim), ns), perform, copy, 0);
}

static void keep(item **list, ru_engine_ckpt at, uint32_t object, const void *bytes, int64_t n)
{
    item *r = malloc(sizeof *r + (size_t)n);
    RU_CHECK(r != NULL);
    *r = (item){.next = *list, .at = at, .object = object, .n = n};
    if (n > 0) {
        memcpy(r->bytes, bytes, (size_t)n);
    }
    *list = r;
}

static void device_open(void *self, uint32_t executor, uint32_t helper)
{
    later(self, (answer){.kind = OPENED, .object = executor, .tag = helper});
}

static void device_close(void *self, uint32_t executor, void *state)
{
    const process *p = self;
    (void)executor;
    p->w->file->ops->exec_close(state);
}

static void device_run(void *self, ru_engine_task *task)
{
    later(self, (answer){.kind = RAN, .task = task});
}

static void device_write(void *self, ru_engine_ckpt at, uint32_t object, const void *bytes,
                         int64_t n)
{
    process *p = self;
    keep(&p->w->files, at, object, bytes, n);
    p->w->written += p->w->reached ? 0 : n;
    later(p, (answer){.kind = WRITTEN, .at = at, .object = object});
}

static void device_read(void *self, ru_engine_ckpt at, uint32_t object, uint32_t tag)
{
    later(self, (answer){.kind = READ, .at = at, .object = object, .tag = tag});
}

static void device_log(void *self, uint32_t generation, const void *bytes, int64_t n)
{
    process *p = self;
    keep(&p->w->log, (ru_engine_ckpt){0}, 0, bytes, n);
    p->w->written += p->w->reached ? 0 : n;
    later(p, (answer){.kind = LOGGED, .at = {.generation = generation}});
}

static void device_log_read(void *self, uint32_t generation, uint32_t object)
{
    later(self, (answer){.kind = LOG_READ, .at = {.generation = generation}, .object = object});
}

static const ru_engine_device_ops device = {device_open, device_close, device_run,     device_write,
                                            device_read, device_log,   device_log_read};

/* -- a trial -------------------------------------------------------------------------------------
 */

static void kill_some(void *self, uint64_t arg)
{
    lost *w = self;
    (void)arg;
    uint32_t a = ru_rng_below(&w->rng, PROCESSES), b = ru_rng_below(&w->rng, PROCESSES - 1);
    b += b >= a ? 1 : 0;
    ru_sim_crash(w->sim, w->at[a].process.node);
    ru_sim_crash(w->sim, w->at[b].process.node);
}

static void news(void *self, const ru_engine_news *n, ru_time now)
{
    process *p = self;
    lost *w = p->w;
    if (n->kind != RU_ENGINE_CLOCKED || w->reached) {
        return;
    }
    const ru_app_ops *ops = w->file->ops;
    double loss = ops->objective != NULL ? ops->objective(w->app, n->sums, n->told) : n->sums[0];
    w->made++;
    if (w->target > 0 && loss <= w->target) {
        double part = w->before > loss ? (w->before - w->target) / (w->before - loss) : 1;
        w->clocks = (double)w->made - 1 + (part < 0 ? 0 : part);
        w->reached = true;
    } else if (w->target <= 0 && w->made == TARGET) {
        w->before = loss;
        w->reached = true;
    }
    w->before = loss;
    if (w->kill_at > 0 && !w->killed && n->clock + 1 == w->kill_at) {
        w->killed = true;
        int64_t ns = (int64_t)ru_rng_below_u64(&w->rng, 3 * TASK_NS);
        (void)ru_sim_at(w->sim, ru_time_after(now, ns), kill_some, w, 0);
    }
}

static void fire(void *self, uint32_t what, ru_time now)
{
    process *p = self;
    ru_node_timer(p->node, what, now);
}

static void begin(void *self, uint64_t arg)
{
    process *p = self;
    (void)arg;
    ru_node_start(p->node, ru_sim_now(p->w->sim));
}

static ru_status add(lost *w, uint32_t k, ru_err *err)
{
    process *p = &w->at[k];
    *p = (process){.w = w, .self = {ru_rng_u64(&w->rng) | 1}};
    (void)snprintf(p->address, sizeof p->address, "10.0.0.%u:7", k);
    RU_TRY(ru_sim_process_open(&p->process, w->sim, p->address, &(ru_sim_nic){.bytes_per_s = 1e8},
                               fire, p, err));
    ru_node_options o = {.chan = {.self = p->self,
                                  .address = p->address,
                                  .job = 1,
                                  .token = (const uint8_t *)"a token of the trials, 32 bytes..",
                                  .token_bytes = 32,
                                  .peers_max = 2 * PROCESSES,
                                  .streams_max = 1024,
                                  .slots_max = 1024},
                         .link = p->process.link,
                         .member = {.join = k == 0 ? NULL : w->at[0].address, .n_max = PROCESSES},
                         .timers = {ru_sim_process_timer, ru_sim_process_timer_off, &p->process}};
    o.member.self.node = p->self;
    o.member.self.capacity = 1;
    (void)snprintf(o.member.self.address, sizeof o.member.self.address, "%s", p->address);
    RU_TRY(ru_node_open(&o, &p->process.arena, &p->node, err));
    ru_sim_process_user(&p->process, ru_node_link_user(p->node));
    const ru_engine_options eo = {.ops = w->file->ops,
                                  .app = w->app,
                                  .shape = &w->state.shape,
                                  .part = w->first,
                                  .shards = SHARDS,
                                  .block_bytes = w->file->job->recovery.block,
                                  .clocks = CLOCKS,
                                  .save_every = w->m->partial ? CLOCKS : EVERY,
                                  .partial = w->m->partial,
                                  .recover = w->m->recover,
                                  .saves = {.method = w->m->save, .clocks = EVERY},
                                  .founders = PROCESSES,
                                  .device = &device,
                                  .device_self = p,
                                  .member = ru_node_member(p->node),
                                  .chan = ru_node_chan(p->node),
                                  .self = p->self,
                                  .peers_max = 2 * PROCESSES,
                                  .memory_bytes = 64 << 20,
                                  .news = news,
                                  .news_self = p};
    RU_TRY(ru_engine_open(&eo, &p->process.arena, &p->engine, err));
    ru_part part = ru_engine_part(p->engine);
    ru_node_part(p->node, &part);
    ru_sim_process_at(&p->process, ru_sim_now(w->sim), begin, p, 0);
    return RU_OK;
}

static void free_all(item *r)
{
    while (r != NULL) {
        item *next = r->next;
        free(r);
        r = next;
    }
}

static void clear(lost *w)
{
    for (uint32_t k = 0; k < PROCESSES; k++) {
        if (w->at[k].node != NULL) {
            ru_node_quiet(w->at[k].node);
            ru_engine_close(w->at[k].engine);
            ru_node_close(w->at[k].node);
        }
    }
    ru_sim_close(w->sim);
    for (uint32_t k = 0; k < PROCESSES; k++) {
        ru_sim_process_fini(&w->at[k].process);
        w->at[k] = (process){0};
    }
    while (w->answers != NULL) {
        answer *a = w->answers;
        w->answers = a->next;
        free(a);
    }
    free_all(w->files);
    free_all(w->log);
    w->files = w->log = NULL;
}

/* Clocks until the target; kill_at 0: the loss after TARGET clocks is in w->before. */
static ru_status trial(lost *w, const method *m, uint64_t seed, uint32_t kill_at, ru_err *err)
{
    w->m = m;
    w->rng = ru_rng_from(seed, ru_rng_label("lost"));
    w->kill_at = m->oracle ? 0 : kill_at;
    w->killed = w->reached = false;
    w->made = 0;
    w->written = 0;
    w->before = w->clocks = 0;
    const ru_sim_options so = {.seed = seed, .nodes_max = PROCESSES};
    RU_TRY(ru_sim_open(&so, &w->sim, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < PROCESSES; k++) {
        st = add(w, k, err);
    }
    for (int64_t at = 0; st == RU_OK && !w->reached && at < 1200; at++) {
        st = ru_sim_run(w->sim, ru_time_after(ru_sim_now(w->sim), 50000000), err);
    }
    clear(w);
    return st == RU_OK && !w->reached
               ? RU_FAIL(err, RU_E_BUG, "%s, trial %llu: the target is not reached", m->name,
                         (unsigned long long)seed)
               : st;
}

/* -- all trials ----------------------------------------------------------------------------------
 */

/* Documents of classes: words of all, rarer ones less often, and some of the class. */
static ru_status make_data(const char *path, ru_arena *arena, ru_err *err)
{
    ru_text t = ru_text_arena(arena);
    ru_rng r = ru_rng_from(11, ru_rng_label("documents"));
    for (uint32_t d = 0; d < DOCUMENTS; d++) {
        uint32_t word = 0, class = d % CLASSES;
        ru_text_putf(&t, "%u", class);
        for (double gap = 1; word < WORDS; gap *= 1.25) {
            word += 1 + (uint32_t)(ru_rng_f64(&r) * gap);
            bool of_class = word % CLASSES == class && ru_rng_below(&r, 2) == 0;
            if (word <= WORDS) {
                ru_text_putf(&t, " %u:%u", word, of_class ? 3 : 1);
            }
        }
        ru_text_put(&t, "\n");
    }
    return t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for documents")
                 : ru_file_replace(path, t.p, t.n, err);
}

/* Digits of the data folder: features are 0 .. 16, and a row of weights is a block. Without it,
 * documents that are made. */
static ru_status job_of(ru_bench *b, const char **yaml, ru_err *err)
{
    const char *data = ru_conf_env("RUBATO_DATA");
    if (data != NULL) {
        *yaml = ru_arena_printf(b->arena,
                                "app: mlr\n"
                                "data: {format: csv, train: %s/federated/optdigits_train_a.csv}\n"
                                "mlr: {batch: 1000000, lr: 0.002}\nrecovery: {block: 40}\n",
                                data);
    } else {
        const char *path = ru_path_join(b->arena, b->dir, "documents.svm");
        RU_TRY(make_data(path, b->arena, err));
        *yaml = ru_arena_printf(b->arena,
                                "app: mlr\ndata: {format: libsvm, train: %s, cols: %d}\n"
                                "mlr: {batch: %d, lr: 0.5}\n",
                                path, WORDS + 1, DOCUMENTS);
    }
    return *yaml != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a job");
}

static ru_status open_app(lost *w, ru_app_job_file *file, ru_bench *b, ru_err *err)
{
    const char *yaml;
    RU_TRY(job_of(b, &yaml, err));
    RU_TRY(ru_app_job_parse("params", yaml, b->arena, file, err));
    RU_TRY(ru_app_job_data(file, file->job->data.train.at, 1, NULL, &w->data, err));
    w->file = file;
    const ru_app_setup setup = {.config = file->config,
                                .data = w->data,
                                .rows = ru_sparse_rows(w->data),
                                .cols = ru_sparse_cols(w->data),
                                .classes = ru_sparse_classes(w->data),
                                .executors = EXECUTORS,
                                .seed = 1};
    RU_TRY(file->ops->open(&setup, &w->app, err));
    RU_TRY(ru_app_state_init(&w->state, file->ops, w->app, EXECUTORS, setup.rows, 1, err));
    ru_sparse_cut(w->data, EXECUTORS, w->first);
    for (uint32_t k = 0; k < EXECUTORS; k++) {
        ru_sparse_part(w->data, w->first[k], w->first[k + 1] - w->first[k], &w->part[k]);
    }
    return RU_OK;
}

/* Mean of the lost clocks, and half of its interval of 95 %; bytes that a clock writes. */
static ru_status mean_of(lost *w, const method *m, uint32_t trials, double *mean, double *half,
                         double *bytes, ru_err *err)
{
    double sum = 0, squares = 0;
    *bytes = 0;
    for (uint32_t k = 0; k < trials; k++) {
        ru_rng r = ru_rng_from(k, ru_rng_label("failures"));
        uint32_t at = 0; /* geometric, within the run */
        while (at < 1 || at >= TARGET) {
            at = 1 + (uint32_t)(log(1 - ru_rng_f64(&r)) / log(1 - 1.0 / 50));
        }
        RU_TRY(trial(w, m, 1000 + k, at, err));
        double d = w->clocks - TARGET;
        sum += d;
        squares += d * d;
        *bytes += (double)w->written / w->made / trials;
    }
    *mean = sum / trials;
    *half = 1.96 * sqrt(fmax(squares / trials - *mean * *mean, 0) / trials);
    return RU_OK;
}

static ru_status all_methods(lost *w, ru_bench *b, ru_err *err)
{
    uint32_t trials = b->quick ? TRIALS_QUICK : TRIALS;
    double back = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(methods); k++) {
        const method *m = &methods[k];
        double mean, half, less, bytes;
        RU_TRY(mean_of(w, m, trials, &mean, &half, &bytes, err));
        back = k == 0 ? mean : back;
        less = 100 * (1 - mean / back);
        ru_bench_row row = {.unit = "clocks", .lower = true};
        row.name = ru_arena_printf(b->arena,
                                   "lost with 2 of 4: %s (+- %.2f, %u trials, %.0f bytes a clock)",
                                   m->name, half, trials, bytes);
        row.ours = ru_bench_stat_of(&mean, 1);
        RU_TRY(ru_bench_add(b, &row, err));
        if (k > 0) {
            row = (ru_bench_row){.unit = "% less", .goal = m->goal};
            row.name = ru_arena_printf(b->arena, "lost with 2 of 4: %s", m->name);
            row.ours = ru_bench_stat_of(&less, 1);
            RU_TRY(ru_bench_add(b, &row, err));
        }
    }
    return RU_OK;
}

ru_status ru_bench_params_lost(ru_bench *b, ru_err *err)
{
    static const method plain = {"undisturbed", false, RU_RECOVER_ROLLBACK, RU_SAVE_NONE, 0, false};
    lost *w = calloc(1, sizeof *w);
    ru_app_job_file file;
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for trials");
    }
    ru_status st = open_app(w, &file, b, err);
    st = st == RU_OK ? trial(w, &plain, 1, 0, err) : st;
    if (st == RU_OK) {
        w->target = w->before;
        st = all_methods(w, b, err);
    }
    ru_app_state_fini(&w->state);
    if (w->app != NULL && w->file->ops->close != NULL) {
        w->file->ops->close(w->app);
    }
    ru_sparse_close(w->data);
    free(w);
    return st;
}
