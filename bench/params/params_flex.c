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
#include <stdlib.h>

#include "bench/params/params.h"
#include "bench/params/params_sim.h"
#include "data/make/make.h"
#include "lab/worlds/speed.h"

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

typedef struct flex {
    rui_params_sim s;
    uint32_t clocks;
    /* of a run */
    ru_speeds speeds;
    ru_time begun;
    uint32_t done;            /* clocks */
    int64_t took_ns[CLOCKS];  /* until clock k was closed */
    double objective[CLOCKS]; /* of clock k */
} flex;

/* -- a run ---------------------------------------------------------------------------------------
 */

static int64_t ends_ns(const rui_params_process *p, const ru_engine_task *task, int64_t begun_ns,
                       uint32_t units)
{
    const flex *w = p->s->user;
    double part = task->cut.units == 0 ? 1 : (double)units / task->cut.units;
    return ru_speed_ends_ns(&w->speeds, (uint32_t)(p - p->s->at), begun_ns, part * CLOCK_NS);
}

static int64_t takes_ns(rui_params_process *p, const ru_engine_task *task)
{
    int64_t now = ru_sim_now(p->s->sim).ns;
    return task == NULL ? 200000 : ends_ns(p, task, now, 0) - now;
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

static const ru_engine_device_ops device = {.open = rui_params_open,
                                            .close = rui_params_close,
                                            .run = rui_params_run,
                                            .hold = rui_params_hold,
                                            .release = rui_params_release,
                                            .write = rui_params_write,
                                            .read = device_read};

static void news(void *self, const ru_engine_news *n, ru_time now)
{
    const rui_params_process *p = self;
    flex *w = p->s->user;
    if (n->kind == RU_ENGINE_RESTORED && w->begun.ns == 0) {
        w->begun = now;
    } else if (n->kind == RU_ENGINE_CLOCKED && n->clock < w->clocks) {
        w->took_ns[n->clock] = now.ns - w->begun.ns;
        w->objective[n->clock] = p->s->file.ops->objective(p->s->app, n->sums, n->told);
        w->done = n->clock + 1;
    }
}

static ru_status run(flex *w, const rival *v, ru_speed_pattern pattern, uint64_t seed, ru_err *err)
{
    const ru_engine_options set = {.shards = PROCESSES,
                                   .clocks = w->clocks,
                                   .driver = v->driver,
                                   .slack = v->slack,
                                   .stragglers = v->stragglers,
                                   .backup = 1,
                                   .device = &device,
                                   .news = news};
    w->speeds = (ru_speeds){seed, pattern};
    w->done = 0;
    w->begun = (ru_time){0};
    ru_rng rng = ru_rng_from(seed, ru_rng_label("flex"));
    RU_TRY(rui_params_sim_start(&w->s, PROCESSES, PROCESSES, rng, seed, &set, err));
    ru_status st = RU_OK;
    for (uint32_t at = 0; st == RU_OK && w->done < w->clocks && at < 20 * w->clocks; at++) {
        st = ru_sim_run(w->s.sim, ru_time_after(ru_sim_now(w->s.sim), CLOCK_NS / 2), err);
    }
    rui_params_sim_clear(&w->s);
    return st == RU_OK && w->done < w->clocks
               ? RU_FAIL(err, RU_E_BUG, "%s, seed %llu: clock %u does not end", v->name,
                         (unsigned long long)seed, w->done)
               : st;
}

/* -- all runs ------------------------------------------------------------------------------------
 */

static ru_status open_app(flex *w, ru_bench *b, ru_err *err)
{
    ru_make_options make = {.name = "ratings", .dir = b->dir, .count = RATINGS, .seed = 5};
    ru_make_report report;
    make.gen = (ru_gen_options){.users = 1600, .items = 300, .rank = 4};
    RU_TRY(ru_data_make(&make, &report, err));
    const char *yaml = ru_arena_printf(b->arena,
                                       "app: mf\ndata: {format: ratings, train: %s/train.csv}\n"
                                       "mf: {update: adarevision, rank: 8, lr: 0.05, pieces: 1}\n",
                                       b->dir);
    return rui_params_sim_init(&w->s, yaml, PROCESSES, b->arena, err);
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
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for processes that become slow");
    }
    w->s.takes_ns = takes_ns;
    w->s.ends_ns = ends_ns;
    w->s.user = w;
    ru_status st = open_app(w, b, err);
    st = st == RU_OK ? all_runs(w, b, err) : st;
    rui_params_sim_fini(&w->s);
    free(w);
    return st;
}
