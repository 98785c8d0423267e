/* What a failure costs in clocks: logistic regression on four processes of the simulator, two of
 * which die at a random clock. The engine, its running checkpoint and its recovery are the real
 * ones; the device computes at once and answers later; files are kept in memory.
 *
 * Lost progress of a run: clocks that it makes until the loss is that of the undisturbed run after
 * TARGET clocks, less TARGET; clocks that are made twice count twice. Every method writes all
 * blocks in EVERY clocks, or as many; fractions round up. Source: qiao-2019 sec 5 (failures at a
 * geometric clock, mean 50). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "bench/params/params.h"
#include "bench/params/params_sim.h"
#include "env/file/file.h"
#include "store/shardlog.h"

enum {
    PROCESSES = 4,
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

typedef struct lost {
    rui_params_sim s;
    /* of a trial */
    uint32_t kill_at; /* 0: never */
    bool killed, reached;
    item *files, *log;
    uint32_t made;
    double before, target, clocks; /* loss of the last clock; made until the target */
    int64_t written;               /* bytes of checkpoints in this trial */
} lost;

typedef rui_params_process process;
typedef rui_params_answer answer;

/* -- the device ----------------------------------------------------------------------------------
 */

static void give_log(const answer *a, ru_time now, ru_effects *fx)
{
    const lost *w = a->p->s->user;
    int64_t n = 0;
    for (const item *r = w->log; r != NULL; r = r->next) {
        n += r->n;
    }
    uint8_t *bytes = malloc((size_t)n + 1), *to = bytes;
    RU_CHECK(bytes != NULL);
    for (const item *r = w->log; r != NULL; r = r->next) {
        ru_shardlog_record x;
        for (int64_t end = 0, from = 0; ru_shardlog_next(r->bytes, r->n, &end, &x); from = end) {
            if (x.generation == a->at.generation && x.object == a->object) {
                memcpy(to, r->bytes + from, (size_t)(end - from));
                to += end - from;
            }
        }
    }
    ru_engine_log_read(a->p->engine, a->at.generation, a->object, bytes, to - bytes, RU_OK, NULL,
                       now, fx);
    free(bytes);
}

static void give_file(const answer *a, ru_time now, ru_effects *fx)
{
    const lost *w = a->p->s->user;
    const item *r = w->files;
    while (r != NULL && (r->at.generation != a->at.generation || r->at.clock != a->at.clock ||
                         r->object != a->object)) {
        r = r->next;
    }
    RU_CHECK(r != NULL);
    ru_engine_read(a->p->engine, a->tag, a->object, r->bytes, r->n, RU_OK, NULL, now, fx);
}

static void give_logged(const answer *a, ru_time now, ru_effects *fx)
{
    ru_engine_logged(a->p->engine, a->at.generation, 100000, RU_OK, NULL, now, fx);
}

static int64_t takes_ns(process *p, const ru_engine_task *task)
{
    int64_t ns = task != NULL ? TASK_NS : TASK_NS / 10;
    return ns + (int64_t)ru_rng_below_u64(&p->s->rng, (uint64_t)ns / 4);
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

static void device_write(void *self, ru_engine_ckpt at, uint32_t object, const void *bytes,
                         int64_t n)
{
    const process *p = self;
    lost *w = p->s->user;
    keep(&w->files, at, object, bytes, n);
    w->written += w->reached ? 0 : n;
    rui_params_write(self, at, object, bytes, n);
}

static void device_read(void *self, ru_engine_ckpt at, uint32_t object, uint32_t tag)
{
    rui_params_later(self, (answer){.give = give_file, .at = at, .object = object, .tag = tag});
}

static void device_log(void *self, uint32_t generation, uint32_t since, const void *bytes,
                       int64_t n)
{
    process *p = self;
    (void)since;
    lost *w = p->s->user;
    keep(&w->log, (ru_engine_ckpt){0}, 0, bytes, n);
    w->written += w->reached ? 0 : n;
    rui_params_later(p, (answer){.give = give_logged, .at = {.generation = generation}});
}

static void device_log_read(void *self, uint32_t generation, uint32_t since, uint32_t object)
{
    (void)since; /* of an app that counts: it is the generation */
    rui_params_later(
        self, (answer){.give = give_log, .at = {.generation = generation}, .object = object});
}

static const ru_engine_device_ops device = {.open = rui_params_open,
                                            .close = rui_params_close,
                                            .run = rui_params_run,
                                            .write = device_write,
                                            .read = device_read,
                                            .log = device_log,
                                            .log_read = device_log_read};

/* -- a trial -------------------------------------------------------------------------------------
 */

static void kill_some(void *self, uint64_t arg)
{
    lost *w = self;
    (void)arg;
    uint32_t a = ru_rng_below(&w->s.rng, PROCESSES), b = ru_rng_below(&w->s.rng, PROCESSES - 1);
    b += b >= a ? 1 : 0;
    ru_sim_crash(w->s.sim, w->s.at[a].process.node);
    ru_sim_crash(w->s.sim, w->s.at[b].process.node);
}

static void news(void *self, const ru_engine_news *n, ru_time now)
{
    const process *p = self;
    lost *w = p->s->user;
    if (n->kind != RU_ENGINE_CLOCKED || w->reached) {
        return;
    }
    const ru_app_ops *ops = w->s.file.ops;
    double loss = ops->objective != NULL ? ops->objective(w->s.app, n->sums, n->told) : n->sums[0];
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
        int64_t ns = (int64_t)ru_rng_below_u64(&w->s.rng, 3 * TASK_NS);
        (void)ru_sim_at(w->s.sim, ru_time_after(now, ns), kill_some, w, 0);
    }
}

static void free_all(item *r)
{
    while (r != NULL) {
        item *next = r->next;
        free(r);
        r = next;
    }
}

/* Clocks until the target; kill_at 0: the loss after TARGET clocks is in w->before. */
static ru_status trial(lost *w, const method *m, uint64_t seed, uint32_t kill_at, ru_err *err)
{
    const ru_engine_options set = {.shards = SHARDS,
                                   .block_bytes = w->s.file.job->recovery.block,
                                   .clocks = CLOCKS,
                                   .save_every = m->partial ? CLOCKS : EVERY,
                                   .partial = m->partial,
                                   .recover = m->recover,
                                   .saves = {.method = m->save, .clocks = EVERY},
                                   .device = &device,
                                   .news = news};
    w->kill_at = m->oracle ? 0 : kill_at;
    w->killed = w->reached = false;
    w->made = 0;
    w->written = 0;
    w->before = w->clocks = 0;
    ru_rng rng = ru_rng_from(seed, ru_rng_label("lost"));
    RU_TRY(rui_params_sim_start(&w->s, PROCESSES, PROCESSES, rng, seed, &set, err));
    ru_status st = RU_OK;
    for (int64_t at = 0; st == RU_OK && !w->reached && at < 1200; at++) {
        st = ru_sim_run(w->s.sim, ru_time_after(ru_sim_now(w->s.sim), 50000000), err);
    }
    rui_params_sim_clear(&w->s);
    free_all(w->files);
    free_all(w->log);
    w->files = w->log = NULL;
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
    const char *yaml;
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for trials");
    }
    w->s.takes_ns = takes_ns;
    w->s.user = w;
    ru_status st = job_of(b, &yaml, err);
    st = st == RU_OK ? rui_params_sim_init(&w->s, yaml, EXECUTORS, b->arena, err) : st;
    st = st == RU_OK ? trial(w, &plain, 1, 0, err) : st;
    if (st == RU_OK) {
        w->target = w->before;
        st = all_methods(w, b, err);
    }
    rui_params_sim_fini(&w->s);
    free(w);
    return st;
}
