/* What processes that become slow cost: matrix factorisation (AdaRevision) on eight processes of
 * the simulator, with an executor each, under four patterns of speed and every way to deal with
 * them. The engine and its slices are the real ones, and so is the learning; a clock takes a second
 * of virtual time at speed 1, in proportion to its items.
 *
 *   time        until the last clock, over that of all work spread freely at all times
 *   objective   after the same clocks, over that of bsp
 *   sooner      virtual time until the objective of bsp at its end, against the time of bsp
 *
 * Source: flexrr-2016 (patterns, rivals). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench/params.h"
#include "data/make.h"
#include "env/file.h"
#include "sim/process.h"
#include "sim/speed.h"
#include "train/app/app_job.h"
#include "train/app/engine.h"
#include "train/app/state.h"

enum {
    PROCESSES = 8,
    CLOCKS = 40,
    CLOCKS_QUICK = 15,
    SEEDS = 5,
    RATINGS = 40000,
};
#define CLOCK_NS INT64_C(1000000000)

typedef struct rival {
    const char *name;
    uint32_t driver, slack, stragglers;
    double goal; /* time over the ideal */
} rival;

static const rival rivals[] = {
    {"bsp", RU_ENGINE_BSP, 0, RU_ENGINE_WAIT, 0},
    {"ssp 1", RU_ENGINE_SSP, 1, RU_ENGINE_WAIT, 0},
    {"ssp 3", RU_ENGINE_SSP, 3, RU_ENGINE_WAIT, 0},
    {"reassign, bsp", RU_ENGINE_BSP, 0, RU_ENGINE_REASSIGN, 0},
    {"reassign, ssp 1", RU_ENGINE_SSP, 1, RU_ENGINE_REASSIGN, 1.04},
    {"paper, ssp 1", RU_ENGINE_SSP, 1, RU_ENGINE_PAPER, 0},
    {"steal, ssp 1", RU_ENGINE_SSP, 1, RU_ENGINE_STEAL, 0},
    {"backup of 1, bsp", RU_ENGINE_BSP, 0, RU_ENGINE_BACKUP, 0},
};

typedef struct answer {
    struct process *p;
    struct answer *next;
    enum { OPENED, RAN, WRITTEN } kind;
    ru_engine_ckpt at;
    uint32_t object, tag;
    ru_engine_task *task;
} answer;

typedef struct flex {
    const ru_app_job_file *file;
    ru_sparse_file *data;
    void *app;
    ru_app_state state;
    ru_sparse part[PROCESSES];
    int64_t first[PROCESSES + 1];
    uint32_t clocks;
    /* of a run */
    const rival *v;
    ru_speeds speeds;
    ru_sim *sim;
    ru_rng rng;
    answer *answers;
    ru_time begun;
    uint32_t done;            /* clocks */
    int64_t took_ns[CLOCKS];  /* until clock k was closed */
    double objective[CLOCKS]; /* of clock k */
    struct process {
        struct flex *w;
        ru_sim_process process;
        ru_node *node;
        ru_engine *engine;
        ru_node_id self;
        char address[32];
    } at[PROCESSES];
} flex;

typedef struct process process;

/* -- the device ----------------------------------------------------------------------------------
 */

static void perform(void *self, uint64_t arg)
{
    answer *a = self;
    process *p = a->p;
    const flex *w = p->w;
    (void)arg;
    ru_time now = ru_sim_now(w->sim);
    ru_effects *fx = ru_node_enter(p->node, now);
    if (a->kind == OPENED) {
        void *state = NULL;
        RU_CHECK(w->file->ops->exec_open(w->app, a->object, &w->part[a->object], &state, NULL) ==
                 RU_OK);
        ru_engine_opened(p->engine, a->object, a->tag, state, RU_OK, NULL, now, fx);
    } else if (a->kind == RAN) {
        ru_engine_compute(w->file->ops, &w->state.shape, a->task);
        ru_engine_ran(p->engine, a->task, now, fx);
    } else {
        ru_engine_written(p->engine, a->at, a->object, RU_OK, NULL, now, fx);
    }
    ru_node_leave(p->node, now);
}

static void later(process *p, answer a, ru_time at)
{
    answer *copy = malloc(sizeof *copy);
    RU_CHECK(copy != NULL);
    *copy = a;
    copy->p = p;
    copy->next = p->w->answers; /* freed with the run */
    p->w->answers = copy;
    ru_sim_process_at(&p->process, at, perform, copy, 0);
}

static ru_time soon(const process *p)
{
    return ru_time_after(ru_sim_now(p->w->sim), 200000);
}

static void device_open(void *self, uint32_t executor, uint32_t helper)
{
    later(self, (answer){.kind = OPENED, .object = executor, .tag = helper}, soon(self));
}

static void device_close(void *self, uint32_t executor, void *state)
{
    const process *p = self;
    (void)executor;
    p->w->file->ops->exec_close(state);
}

static void device_run(void *self, ru_engine_task *task)
{
    process *p = self;
    const flex *w = p->w;
    uint32_t k = task->task.executor;
    double part = (double)(task->task.hi - task->task.lo) / (double)(w->first[k + 1] - w->first[k]);
    int64_t now = ru_sim_now(w->sim).ns;
    int64_t end = ru_speed_ends_ns(&w->speeds, (uint32_t)(p - w->at), now, part * CLOCK_NS);
    later(p, (answer){.kind = RAN, .task = task}, (ru_time){end > now ? end : now + 1});
}

static void device_write(void *self, ru_engine_ckpt at, uint32_t object, const void *bytes,
                         int64_t n)
{
    (void)bytes;
    (void)n;
    later(self, (answer){.kind = WRITTEN, .at = at, .object = object}, soon(self));
}

/* Nobody dies, so nothing is read. */
static void device_read(void *self, ru_engine_ckpt at, uint32_t object, uint32_t tag)
{
    (void)self;
    (void)at;
    (void)object;
    (void)tag;
    RU_CHECK(false);
}

static const ru_engine_device_ops device = {device_open, device_close, device_run, device_write,
                                            device_read, NULL,         NULL};

/* -- a run ---------------------------------------------------------------------------------------
 */

static void news(void *self, const ru_engine_news *n, ru_time now)
{
    const process *p = self;
    flex *w = p->w;
    if (n->kind == RU_ENGINE_RESTORED && w->begun.ns == 0) {
        w->begun = now;
    } else if (n->kind == RU_ENGINE_CLOCKED && n->clock < w->clocks) {
        w->took_ns[n->clock] = now.ns - w->begun.ns;
        w->objective[n->clock] = w->file->ops->objective(w->app, n->sums, n->told);
        w->done = n->clock + 1;
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

static ru_status add(flex *w, uint32_t k, ru_err *err)
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
                                  .shards = PROCESSES,
                                  .clocks = w->clocks,
                                  .driver = w->v->driver,
                                  .slack = w->v->slack,
                                  .stragglers = w->v->stragglers,
                                  .backup = 1,
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

static void clear(flex *w)
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
}

static ru_status run(flex *w, const rival *v, ru_speed_pattern pattern, uint64_t seed, ru_err *err)
{
    w->v = v;
    w->speeds = (ru_speeds){seed, pattern};
    w->rng = ru_rng_from(seed, ru_rng_label("flex"));
    w->done = 0;
    w->begun = (ru_time){0};
    const ru_sim_options so = {.seed = seed, .nodes_max = PROCESSES};
    RU_TRY(ru_sim_open(&so, &w->sim, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < PROCESSES; k++) {
        st = add(w, k, err);
    }
    for (uint32_t at = 0; st == RU_OK && w->done < w->clocks && at < 20 * w->clocks; at++) {
        st = ru_sim_run(w->sim, ru_time_after(ru_sim_now(w->sim), CLOCK_NS / 2), err);
    }
    clear(w);
    return st == RU_OK && w->done < w->clocks
               ? RU_FAIL(err, RU_E_BUG, "%s, seed %llu: clock %u does not end", v->name,
                         (unsigned long long)seed, w->done)
               : st;
}

/* -- all runs ------------------------------------------------------------------------------------
 */

static ru_status open_app(flex *w, ru_app_job_file *file, ru_bench *b, ru_err *err)
{
    char yaml[900];
    ru_make_options make = {.name = "ratings", .dir = b->dir, .count = RATINGS, .seed = 5};
    ru_make_report report;
    make.gen = (ru_gen_options){.users = 1600, .items = 300, .rank = 4};
    RU_TRY(ru_data_make(&make, &report, err));
    (void)snprintf(yaml, sizeof yaml,
                   "app: mf\ndata: {format: ratings, train: %s/train.csv}\n"
                   "mf: {update: adarevision, rank: 8, lr: 0.05, pieces: 1}\n",
                   b->dir);
    RU_TRY(ru_app_job_parse("params", yaml, b->arena, file, err));
    RU_TRY(ru_app_job_data(file, file->job->data.train.at, 1, NULL, &w->data, err));
    w->file = file;
    const ru_app_setup setup = {.config = file->config,
                                .data = w->data,
                                .rows = ru_sparse_rows(w->data),
                                .cols = ru_sparse_cols(w->data),
                                .executors = PROCESSES,
                                .seed = 1};
    RU_TRY(file->ops->open(&setup, &w->app, err));
    RU_TRY(ru_app_state_init(&w->state, file->ops, w->app, PROCESSES, setup.rows, 1, err));
    ru_sparse_cut(w->data, PROCESSES, w->first);
    for (uint32_t k = 0; k < PROCESSES; k++) {
        ru_sparse_part(w->data, w->first[k], w->first[k + 1] - w->first[k], &w->part[k]);
    }
    return RU_OK;
}

typedef struct figures {
    double over[SEEDS]; /* time over the ideal */
    double worse;       /* per cent, of the objective after all clocks, over bsp */
    double sooner;      /* per cent */
} figures;

/* Bsp runs first: its objective is the target of the others. */
static ru_status measure(flex *w, const rival *v, ru_speed_pattern pattern, uint32_t seeds,
                         double *objective, int64_t *bsp_ns, figures *f, ru_err *err)
{
    *f = (figures){0};
    for (uint32_t s = 0; s < seeds; s++) {
        RU_TRY(run(w, v, pattern, s + 1, err));
        int64_t took_ns = w->took_ns[w->clocks - 1], reached_ns = -1;
        double last = w->objective[w->clocks - 1];
        f->over[s] = (double)took_ns / ru_speed_ideal_ns(&w->speeds, PROCESSES, w->begun.ns,
                                                         (double)PROCESSES * w->clocks * CLOCK_NS);
        if (v == rivals) {
            objective[s] = last;
            bsp_ns[s] = took_ns;
        }
        for (uint32_t k = 0; k < w->clocks && reached_ns < 0; k++) {
            reached_ns = w->objective[k] <= objective[s] * 1.0000001 ? w->took_ns[k] : -1;
        }
        f->worse += 100 * (last / objective[s] - 1) / seeds;
        f->sooner +=
            reached_ns < 0 ? -1e9 : 100 * (1 - (double)reached_ns / (double)bsp_ns[s]) / seeds;
    }
    return RU_OK;
}

static ru_status add_rows(ru_bench *b, const char *pattern, const rival *v, figures *f,
                          uint32_t seeds, ru_err *err)
{
    ru_bench_row row = {.unit = "x ideal", .lower = true, .goal = v->goal};
    row.name = f->sooner < -1e6
                   ? ru_arena_printf(b->arena,
                                     "stragglers: %s: %s (objective %+.2f %%, bsp's not reached)",
                                     pattern, v->name, f->worse)
                   : ru_arena_printf(
                         b->arena, "stragglers: %s: %s (objective %+.2f %%, bsp's %.0f %% sooner)",
                         pattern, v->name, f->worse, f->sooner);
    row.ours = ru_bench_stat_of(f->over, seeds);
    return ru_bench_add(b, &row, err);
}

static ru_status all_runs(flex *w, ru_bench *b, ru_err *err)
{
    static const char *const patterns[RU_SPEED_PATTERNS] = {"even", "1 in 100 slow for 1 s",
                                                            "1 in 5 at half speed", "power law",
                                                            "half at half speed for good"};
    uint32_t seeds = b->quick ? 1 : SEEDS;
    w->clocks = b->quick ? CLOCKS_QUICK : CLOCKS;
    for (uint32_t p = RU_SPEED_EVEN; p < RU_SPEED_PATTERNS; p++) {
        double objective[SEEDS];
        int64_t bsp_ns[SEEDS];
        for (uint32_t k = 0; k < RU_ARRAY_LEN(rivals); k++) {
            figures f;
            RU_TRY(measure(w, &rivals[k], (ru_speed_pattern)p, seeds, objective, bsp_ns, &f, err));
            RU_TRY(add_rows(b, patterns[p], &rivals[k], &f, seeds, err));
        }
    }
    return RU_OK;
}

ru_status ru_bench_params_flex(ru_bench *b, ru_err *err)
{
    flex *w = calloc(1, sizeof *w);
    ru_app_job_file file;
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for processes that become slow");
    }
    ru_status st = open_app(w, &file, b, err);
    st = st == RU_OK ? all_runs(w, b, err) : st;
    ru_app_state_fini(&w->state);
    if (w->app != NULL && w->file->ops->close != NULL) {
        w->file->ops->close(w->app);
    }
    ru_sparse_close(w->data);
    free(w);
    return st;
}
