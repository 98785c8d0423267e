/* What it costs that executors and shards move: `rubato bench params --only litz`; with
 * `--only "litz sim"` the processes of the simulator alone.
 *
 * Real processes, all on this machine: two and four workers, and four among which something moves
 * every 20 ms, must end with the same bits; four workers against four of a job in which nothing may
 * move. Processes of the simulator, half of which join later:
 *
 *   clock 0        GROW                MOVE                        CLOCKS
 *   | half of them | the others join   | a shard moves every 50 ms   |
 *
 * The engine, its app and its messages are the real ones; a task takes TASK_NS of its process, one
 * after another. The clocks have the sums of a run on FEW processes, bit for bit.
 * Source: litz-2018 (what is asked for). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "bench/params/params.h"
#include "bench/params/params_sim.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"

enum {
    GROW = 6,
    STEADY = 12, /* the new rate is measured from here on */
    MOVE = 18,
    CLOCKS = 26,
    FEW = 25, /* processes of the run that nothing disturbs */
    EACH = 1, /* executors of a process, when all are there */
    WORDS = 400,
    SHARDS = 64,
};
#define TASK_NS   INT64_C(100000000)
#define MOVES_NS  INT64_C(50000000)
#define SETTLE_NS INT64_C(1000000000) /* the new rate, over so long */

typedef rui_params_process process;

typedef struct litz {
    rui_params_sim s;
    bool grows;
    const ru_engine_options *set;
    ru_time *busy; /* [processes] until then */
    /* of a run */
    uint32_t done;
    ru_time at[CLOCKS], joined; /* clock k was closed */
    int64_t cpu_ns[CLOCKS];
    uint64_t sums[CLOCKS];                 /* hash */
    int64_t moves, moved_bytes, settle_ns; /* after the others joined, until all had moved */
    int64_t shuffled;                      /* moves from MOVE on */
    ru_status status;
} litz;

/* -- the simulator -------------------------------------------------------------------------------
 */

static int64_t takes_ns(process *p, const ru_engine_task *task)
{
    const litz *w = p->s->user;
    if (task == NULL) {
        return 200000;
    }
    ru_time now = ru_sim_now(p->s->sim), *busy = &w->busy[p - p->s->at];
    *busy = ru_time_after(busy->ns > now.ns ? *busy : now, TASK_NS);
    return busy->ns - now.ns;
}

/* Nobody dies, so nothing is read. */
static void device_read(void *self, ru_engine_ckpt at, uint32_t object, uint32_t tag)
{
    (void)self, (void)at, (void)object, (void)tag;
    RU_CHECK(false);
}

static const ru_engine_device_ops device = {.open = rui_params_open,
                                            .close = rui_params_close,
                                            .run = rui_params_run,
                                            .write = rui_params_write,
                                            .read = device_read};

/* Shards alone: executors at random places would make clocks longer by themselves. */
static void shuffle(void *self, uint64_t arg)
{
    litz *w = self;
    process *p = &w->s.at[0]; /* it leads, nobody dies */
    ru_time now = ru_sim_now(w->s.sim);
    ru_effects *fx = ru_node_enter(p->node, now);
    ru_engine_move(p->engine, w->s.executors + ru_rng_below(&w->s.rng, SHARDS),
                   ru_rng_below(&w->s.rng, w->s.n), now, fx);
    ru_node_leave(p->node, now);
    (void)ru_sim_at(w->s.sim, ru_time_after(now, MOVES_NS), shuffle, w, arg);
}

static void grow(void *self, uint64_t arg)
{
    litz *w = self;
    (void)arg;
    w->joined = ru_sim_now(w->s.sim);
    while (w->status == RU_OK && w->s.n < w->s.n_max) {
        w->status = rui_params_sim_join(&w->s, w->set, NULL);
    }
}

static void news(void *self, const ru_engine_news *n, ru_time now)
{
    const process *p = self;
    litz *w = p->s->user;
    if (n->kind == RU_ENGINE_MOVED) {
        w->moves += w->done < MOVE ? 1 : 0;
        w->moved_bytes += w->done < MOVE ? n->bytes : 0;
        w->shuffled += w->done < MOVE ? 0 : 1;
    } else if (n->kind == RU_ENGINE_SETTLED && w->done < MOVE) {
        w->settle_ns = now.ns - w->joined.ns;
    } else if (n->kind == RU_ENGINE_CLOCKED && n->clock < CLOCKS) {
        w->at[n->clock] = now;
        w->cpu_ns[n->clock] = ru_clock_cpu_ns();
        w->sums[n->clock] = ru_hash_bytes(n->sums, RU_APP_SUMS_MAX * sizeof *n->sums, 0);
        w->done = n->clock + 1;
        if (w->grows && (w->done == GROW || w->done == MOVE)) {
            (void)ru_sim_at(w->s.sim, now, w->done == GROW ? grow : shuffle, w, 0);
        }
    }
}

static ru_status run(litz *w, uint32_t founders, uint32_t processes, ru_err *err)
{
    const ru_engine_options set = {.shards = SHARDS,
                                   .clocks = CLOCKS,
                                   .driver = RU_ENGINE_BSP,
                                   .device = &device,
                                   .news = news};
    w->set = &set;
    w->done = 0;
    w->grows = processes > founders;
    w->moves = w->moved_bytes = w->settle_ns = w->shuffled = 0;
    memset(w->busy, 0, processes * sizeof *w->busy);
    ru_rng rng = ru_rng_from(7, ru_rng_label("litz"));
    RU_TRY(rui_params_sim_start(&w->s, founders, processes, rng, 7, &set, err));
    ru_status st = RU_OK;
    int64_t limit_ns = (w->s.executors / founders + 1) * TASK_NS * CLOCKS * 10;
    while (st == RU_OK && w->done < CLOCKS && ru_sim_now(w->s.sim).ns < limit_ns) {
        st = ru_sim_run(w->s.sim, ru_time_after(ru_sim_now(w->s.sim), SETTLE_NS), err);
    }
    rui_params_sim_clear(&w->s);
    if (st == RU_OK && (w->done < CLOCKS || w->status != RU_OK)) {
        st = RU_FAIL(err, RU_E_BUG, "%u workers: clock %u does not end", processes, w->done);
    }
    return st;
}

/* Seconds of clocks first .. last - 1, each. */
static double clock_s(const litz *w, uint32_t first, uint32_t last)
{
    return 1e-9 * (double)ru_time_since(w->at[last - 1], w->at[first - 1]) / (last - first);
}

static ru_status figure(ru_bench *b, uint32_t n, const char *what, const char *unit, double value,
                        double goal, bool lower, ru_err *err)
{
    ru_bench_row row = {.unit = unit, .lower = lower, .goal = goal};
    row.name = ru_arena_printf(b->arena, "litz: %u simulated workers: %s", n, what);
    row.ours = ru_bench_stat_of(&value, 1);
    return ru_bench_add(b, &row, err);
}

static ru_status add_change(ru_bench *b, const litz *w, uint32_t n, ru_err *err)
{
    const double nic_bytes_s = 1e8;
    double before = clock_s(w, 2, GROW), after = clock_s(w, STEADY, MOVE), slowest = 0;
    double late = 1e-9 * (double)ru_time_since(w->at[MOVE - 1], w->joined);
    double allowed = 1.5 * (double)w->moved_bytes / nic_bytes_s;
    for (uint32_t k = GROW; k < MOVE; k++) {
        double one = clock_s(w, k, k + 1);
        slowest = one > slowest ? one : slowest;
    }
    for (uint32_t k = GROW, j = GROW; k < MOVE; k++) {
        while (j < MOVE && ru_time_since(w->at[j], w->at[k - 1]) < SETTLE_NS) {
            j++;
        }
        if (j < MOVE && clock_s(w, k, j + 1) <= after / 0.95) {
            late = 1e-9 * (double)ru_time_since(w->at[k - 1], w->joined);
            break;
        }
    }
    RU_TRY(figure(b, n, "half of them join: lowest rate of a clock", "x before", before / slowest,
                  0.7, false, err));
    RU_TRY(figure(b, n, "half of them join: new rate", "x before", before / after, 0, false, err));
    return figure(b, n, "half of them join: 95 % of the new rate after", "s", late,
                  allowed > 2 ? allowed : 2, true, err);
}

static ru_status add_cost(ru_bench *b, const litz *w, uint32_t n, ru_err *err)
{
    double still = clock_s(w, STEADY, MOVE), moving = clock_s(w, MOVE + 1, CLOCKS);
    double cpu_ms =
        1e-6 * (double)(w->cpu_ns[MOVE - 1] - w->cpu_ns[STEADY - 1]) / (MOVE - STEADY) / n;
    const char *moves = ru_arena_printf(b->arena, "half of them join: %lld moves are over after",
                                        (long long)w->moves);
    const char *shuffles =
        ru_arena_printf(b->arena, "clock, with %lld moves of shards in %d clocks",
                        (long long)w->shuffled, CLOCKS - MOVE);
    RU_TRY(figure(b, n, "clock", "x its tasks", still / (1e-9 * EACH * TASK_NS), 0, true, err));
    RU_TRY(figure(b, n, shuffles, "x without moves", moving / still, 0, true, err));
    RU_TRY(figure(b, n, moves, "s", 1e-9 * (double)w->settle_ns, 0, true, err));
    return figure(b, n, "processor time of a worker in a clock", "ms", cpu_ms, 0, true, err);
}

/* Each executor has two rows of ten words. */
static ru_status make_data(const char *path, uint32_t executors, ru_arena *arena, ru_err *err)
{
    ru_text t = ru_text_arena(arena);
    ru_rng r = ru_rng_from(11, ru_rng_label("rows"));
    for (uint32_t d = 0; d < 2 * executors; d++) {
        ru_text_putf(&t, "%u", d % 4);
        for (uint32_t k = 0; k < 10; k++) {
            ru_text_putf(&t, " %u:1", k * (WORDS / 10) + 1 + ru_rng_below(&r, WORDS / 10));
        }
        ru_text_put(&t, "\n");
    }
    return t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for rows")
                 : ru_file_replace(path, t.p, t.n, err);
}

static ru_status simulate(litz *w, ru_bench *b, uint32_t n, ru_err *err)
{
    const char *path = ru_path_join(b->arena, b->dir, "rows.svm");
    uint64_t sums[CLOCKS];
    RU_TRY(make_data(path, EACH * n, b->arena, err));
    const char *yaml = ru_arena_printf(b->arena,
                                       "app: mlr\ndata: {format: libsvm, train: %s, cols: %d}\n"
                                       "mlr: {batch: 1000000, lr: 0.5}\n",
                                       path, WORDS + 1);
    RU_TRY(rui_params_sim_init(&w->s, yaml, EACH * n, b->arena, err));
    RU_TRY(run(w, FEW, FEW, err));
    memcpy(sums, w->sums, sizeof sums);
    RU_TRY(run(w, n / 2, n, err));
    for (uint32_t k = 0; k < CLOCKS; k++) {
        if (sums[k] != w->sums[k]) {
            return RU_FAIL(err, RU_E_BUG, "%u workers: clock %u differs from that of %d workers", n,
                           k, FEW);
        }
    }
    RU_TRY(add_change(b, w, n, err));
    return add_cost(b, w, n, err);
}

static ru_status simulated(ru_bench *b, uint32_t n, ru_err *err)
{
    litz *w = calloc(1, sizeof *w);
    ru_time *busy = calloc(n, sizeof *busy);
    ru_status st =
        w != NULL && busy != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for %u processes", n);
    if (st == RU_OK) {
        w->busy = busy;
        w->s.takes_ns = takes_ns;
        w->s.task_ns = TASK_NS;
        w->s.user = w;
        st = simulate(w, b, n, err);
        rui_params_sim_fini(&w->s);
    }
    free(busy);
    free(w);
    return st;
}

ru_status ru_bench_params_litz(ru_bench *b, ru_err *err)
{
    if (ru_bench_wants(b, "litz processes")) {
        RU_TRY(rui_bench_litz_run(b, err));
    }
    if (!ru_bench_wants(b, "litz simulated")) {
        return RU_OK;
    }
    RU_TRY(simulated(b, 100, err));
    return b->quick ? RU_OK : simulated(b, 1000, err);
}
