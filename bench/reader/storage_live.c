/* rubato bench storage, its rows of programs' files: recurrent pipelines write, read and remove
 * files in two folders, a fast one with a small quota and a slow one (store/tiers/tiers.h).
 *
 * Two worlds run at the same time, event by event: in one the policy `storage` says where a file
 * begins, in the other it is first fit. Files are real; the disks are throttled here: a queue for
 * each folder with operations and bytes a second, on a clock that is `speed` times as fast as the
 * real one. The oracle knows all files of the first world and takes the best by true saving. */
#include "bench/reader/storage_live.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "bench/reader/reader.h"
#include "cost/math/norm.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "plan/disk/storage.h"
#include "store/tiers/tiers.h"

enum {
    WORLDS = RUI_LIVE_WORLDS,
    PIPELINES = RUI_LIVE_PIPELINES,
    LOSERS = 2, /* pipelines whose files are large and read in a row */
    STEPS = RUI_LIVE_STEPS,
    KEPT = RUI_LIVE_KEPT,
    BYTES_MAX = RUI_LIVE_BYTES_MAX,
    RUNS_MAX = 2,
};
static const double disk_ops[2] = {5000, 120}, disk_bytes[2] = {500e6, 100e6};

static const char cost_name[] = "files of 8 pipelines on two throttled folders, cost";
static const char span_name[] = "files of 8 pipelines on two throttled folders, makespan";
static const char renamed_name[] =
    "files of 8 pipelines, 30 rounds after all steps got other names";
static const char decision_name[] = "a decision with a hint, files of 8 pipelines";

typedef rui_live_file live_file;

typedef struct world {
    ru_tiers *t;
    bool learned;
    double free_s[2];                 /* when each disk has done what it has to */
    double at_s[PIPELINES];           /* its next step */
    uint32_t step[PIPELINES];         /* which it is */
    uint32_t of[PIPELINES][KEPT + 1]; /* files [steps modulo this] */
    live_file *files;                 /* [n] */
    uint32_t n;
    double end_s;
} world;

typedef struct live {
    rui_live is;
    world w[WORLDS];
    uint8_t *bytes; /* [BYTES_MAX] of all files */
    ru_arena *arena;
} live;

uint32_t rui_live_lag(uint32_t pipeline)
{
    return pipeline < LOSERS ? KEPT : 2;
}

rui_live_file rui_live_drawn(const rui_live *l, uint32_t p, uint32_t k, double *think_s,
                             double *guess)
{
    ru_rng r = ru_rng_from(l->seed, (uint64_t)p << 32 | k);
    double noise = ru_math_exp(0.2 * ru_rng_normal(&r)), step = 1 + k % STEPS;
    live_file f = {.is = {.group = p * STEPS + k % STEPS, .writers = 1 + p, .readers = 1}};
    f.is.size_bytes = floor((p < LOSERS ? 1.1e6 + 1e5 * step : 1.5e5 + 4e4 * step) * noise);
    f.is.size_bytes = fmin(f.is.size_bytes, BYTES_MAX);
    f.jumps = p < LOSERS ? 0 : floor((30 + 10 * step + 2 * p) * noise);
    f.is.input_bytes = 3 * f.is.size_bytes * ru_math_exp(0.2 * ru_rng_normal(&r));
    f.is.ops = f.jumps + 2 * f.is.size_bytes / (1 << 20);
    *guess = f.is.size_bytes * ru_math_exp(0.2 * ru_rng_normal(&r));
    *think_s = ru_rng_uniform(&r, 0.5, 1.5);
    return f;
}

double rui_live_peak(const rui_live *l)
{
    double most = 0, think, guess;
    for (uint32_t k = 0; k < l->rounds * STEPS; k++) {
        double sum = 0;
        for (uint32_t p = 0; p < PIPELINES; p++) {
            for (uint32_t j = k < rui_live_lag(p) ? 0 : k - rui_live_lag(p) + 1; j <= k; j++) {
                sum += rui_live_drawn(l, p, j, &think, &guess).is.size_bytes;
            }
        }
        most = fmax(most, sum);
    }
    return most;
}

/* The disks get so much to do; when it is done. */
static double charge(world *w, const live_file *f, double jumps, double now_s)
{
    double done = now_s;
    for (uint32_t d = 0; d < 2; d++) {
        double bytes = (double)f->in[d], share = bytes / f->is.size_bytes;
        double took = (jumps * share + bytes / (1 << 20)) / disk_ops[d] + bytes / disk_bytes[d];
        w->free_s[d] = bytes > 0 ? fmax(w->free_s[d], now_s) + took : w->free_s[d];
        done = bytes > 0 ? fmax(done, w->free_s[d]) : done;
    }
    return done;
}

void rui_live_names(const rui_live *l, uint32_t p, uint32_t k, char name[32], char group[32])
{
    (void)snprintf(name, 32, "%u-%u", p, k);
    (void)snprintf(group, 32, "pipeline %u/%s %u", p,
                   k < l->rounds * STEPS / 2 ? "step" : "renamed", k % STEPS);
}

static ru_status write_file(const live *l, world *w, uint32_t p, uint32_t k, double guess,
                            live_file *f, ru_err *err)
{
    char name[32], group[32];
    ru_tier_file *file;
    ru_tier_entry e;
    rui_live_names(&l->is, p, k, name, group);
    const ru_tier_hint hint = {.expected_bytes = (int64_t)guess,
                               .group = w->learned ? group : NULL,
                               .input_bytes = (int64_t)f->is.input_bytes,
                               .writers = (uint32_t)f->is.writers,
                               .readers = (uint32_t)f->is.readers};
    RU_TRY(ru_tier_create(w->t, name, &hint, &file, err));
    ru_status st = ru_tier_write(file, l->bytes, (int64_t)f->is.size_bytes, err);
    st = st == RU_OK ? ru_tier_commit(file, err) : st;
    ru_tier_close(file);
    RU_TRY(st);
    RU_TRY(ru_tiers_look(w->t, err));
    for (uint32_t at = 0; ru_tiers_next(w->t, &at, &e);) {
        if (strcmp(e.name, name) == 0) {
            f->in[0] = e.in_bytes[0];
            f->in[1] = e.in_bytes[1];
        }
    }
    return RU_OK;
}

static ru_status read_file(const live *l, world *w, uint32_t p, uint32_t k, const live_file *f,
                           ru_err *err)
{
    char name[32], group[32];
    ru_tier_file *file;
    ru_rng r = ru_rng_from(p, k);
    int64_t size = (int64_t)f->is.size_bytes;
    rui_live_names(&l->is, p, k, name, group);
    RU_TRY(ru_tier_open(w->t, name, &file, err));
    ru_status st = f->jumps > 0 ? RU_OK : ru_tier_read(file, 0, l->bytes, size, err);
    for (uint32_t i = 0; st == RU_OK && i < f->jumps; i++) {
        st = ru_tier_read(file, ru_rng_below(&r, (uint32_t)size - 4096), l->bytes, 4096, err);
    }
    ru_tier_close(file);
    return st;
}

static ru_status remove_file(const live *l, world *w, uint32_t p, uint32_t k, double now_s,
                             ru_err *err)
{
    char name[32], group[32];
    live_file *f = &w->files[w->of[p][k % (KEPT + 1)]];
    rui_live_names(&l->is, p, k, name, group);
    f->is.life_s = now_s - f->is.open_s;
    return ru_tier_remove(w->t, name, err);
}

/* A step reads what the one before wrote, removes what nobody needs and writes its own file. */
static ru_status step(const live *l, world *w, uint32_t p, ru_err *err)
{
    uint32_t k = w->step[p]++, all = l->is.rounds * STEPS;
    double now = w->at_s[p], done = now, think = 0, guess;
    if (k > 0 && k <= all) {
        const live_file *f = &w->files[w->of[p][(k - 1) % (KEPT + 1)]];
        RU_TRY(read_file(l, w, p, k - 1, f, err));
        done = charge(w, f, f->jumps, done);
    }
    RU_TRY(k >= rui_live_lag(p) ? remove_file(l, w, p, k - rui_live_lag(p), now, err) : RU_OK);
    if (k < all) {
        live_file f = rui_live_drawn(&l->is, p, k, &think, &guess);
        RU_TRY(write_file(l, w, p, k, guess, &f, err));
        done = charge(w, &f, 0, done);
        f.is.open_s = now;
        w->of[p][k % (KEPT + 1)] = w->n;
        w->files[w->n++] = f;
    }
    w->at_s[p] = k + 1 < all + rui_live_lag(p) ? done + think : (double)INFINITY;
    w->end_s = fmax(w->end_s, done);
    return RU_OK;
}

/* All steps of both worlds in the order of time, each not before its time. */
static ru_status play(live *l, ru_err *err)
{
    ru_time begun = ru_clock_now();
    for (;;) {
        uint32_t best = WORLDS * PIPELINES;
        double at = (double)INFINITY;
        for (uint32_t i = 0; i < WORLDS * PIPELINES; i++) {
            double next = l->w[i % WORLDS].at_s[i / WORLDS];
            best = next < at ? i : best;
            at = fmin(at, next);
        }
        if (best == WORLDS * PIPELINES) {
            return RU_OK;
        }
        int64_t wait = (int64_t)(1e9 * at / l->is.speed) - ru_time_since(ru_clock_now(), begun);
        if (wait > 0) {
            ru_clock_pause(wait);
        }
        RU_TRY(step(l, &l->w[best % WORLDS], best / WORLDS, err));
    }
}

double rui_live_cost(const rui_live_file *files, uint32_t from, uint32_t to)
{
    double hdd = 0, saved = 0;
    for (uint32_t k = from * STEPS * PIPELINES; k < to * STEPS * PIPELINES; k++) {
        const live_file *f = &files[k];
        hdd += ru_density_hdd(&ru_density_list, &f->is);
        saved += ru_density_saving(&ru_density_list, &f->is) * (double)f->in[0] / f->is.size_bytes;
    }
    return 100 * (hdd - saved) / hdd;
}

ru_status rui_live_oracle(const rui_live *l, const rui_live_file *of, uint32_t from, uint32_t to,
                          ru_arena *arena, double *percent, ru_err *err)
{
    uint32_t n = to * STEPS * PIPELINES;
    ru_density_file *files = RU_NEW(arena, ru_density_file, n);
    if (files == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
    }
    for (uint32_t k = 0; k < n; k++) {
        files[k] = of[k].is;
    }
    const ru_storage_in in = {.files = files,
                              .n = n,
                              .n_groups = STEPS * PIPELINES,
                              .from_s = files[from * STEPS * PIPELINES].open_s,
                              .quota_bytes = (double)l->quota_bytes,
                              .prices = ru_density_list,
                              .window_s = 3600,
                              .method = RU_STORAGE_GREEDY};
    ru_storage_plan p;
    RU_TRY(ru_plan_storage(&in, arena, arena, &p, err));
    *percent = 100 * (p.hdd_usd - p.saving_usd) / p.hdd_usd;
    return RU_OK;
}

static ru_status open_worlds(live *l, const char *dir, ru_err *err)
{
    for (uint32_t k = 0; k < WORLDS; k++) {
        world *w = &l->w[k];
        const ru_disk_tier tiers[2] = {
            {ru_arena_printf(l->arena, "%s/fast %u", dir, k), l->is.quota_bytes},
            {ru_arena_printf(l->arena, "%s/slow %u", dir, k), INT64_C(1) << 40}};
        const ru_tiers_options o = {.tiers = tiers, .n_tiers = 2, .space = "bench"};
        w->learned = k == 0;
        w->files = RU_NEW(l->arena, live_file, (int64_t)l->is.rounds * STEPS * PIPELINES);
        if (w->files == NULL || tiers[0].path == NULL || tiers[1].path == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
        }
        RU_TRY(ru_tiers_open(&o, &w->t, err));
    }
    return RU_OK;
}

/* What one run of both worlds says. */
typedef struct seen {
    double cost[RUNS_MAX], fit[RUNS_MAX], oracle[RUNS_MAX], span[RUNS_MAX], fit_span[RUNS_MAX];
    double renamed[RUNS_MAX], decision_us[RU_BENCH_ROUNDS_MAX];
    uint32_t decisions;
} seen;

static ru_status one_run(live *l, const char *dir, uint32_t run, seen *s, ru_err *err)
{
    uint32_t half = l->is.rounds / 2, from = half / 2, at = 0;
    const char *group;
    ru_tier_told told;
    l->is.seed = 1 + run;
    l->is.quota_bytes = (int64_t)(0.1 * rui_live_peak(&l->is));
    memset(l->w, 0, sizeof l->w);
    ru_status st = open_worlds(l, dir, err);
    st = st == RU_OK ? play(l, err) : st;
    st = st == RU_OK ? ru_tiers_look(l->w[0].t, err) : st;
    while (st == RU_OK && s->decisions < RU_BENCH_ROUNDS_MAX &&
           ru_tiers_ended(l->w[0].t, &at, &group, &told)) {
        if (told.by == RU_TIER_BY_TREES && at % 16 == 0) { /* some of them */
            s->decision_us[s->decisions++] = 1e6 * told.decide_s;
        }
    }
    for (uint32_t k = 0; k < WORLDS; k++) {
        ru_tiers_close(l->w[k].t);
    }
    RU_TRY(st);
    s->cost[run] = rui_live_cost(l->w[0].files, from, half);
    s->fit[run] = rui_live_cost(l->w[1].files, from, half);
    s->span[run] = l->w[0].end_s;
    s->fit_span[run] = l->w[1].end_s;
    s->renamed[run] =
        rui_live_cost(l->w[0].files, half, half + 30 < l->is.rounds ? half + 30 : l->is.rounds);
    return rui_live_oracle(&l->is, l->w[0].files, from, half, l->arena, &s->oracle[run], err);
}

static ru_status add(ru_bench *b, const char *name, const char *unit, ru_bench_stat ours,
                     const char *peer, double *theirs, uint32_t n, double goal, ru_err *err)
{
    const ru_bench_row row = {.name = name,
                              .unit = unit,
                              .lower = true,
                              .ours = ours,
                              .theirs =
                                  theirs != NULL ? ru_bench_stat_of(theirs, n) : (ru_bench_stat){0},
                              .peer = peer,
                              .goal = goal};
    return ru_bench_add(b, &row, err);
}

ru_status rui_bench_live(ru_bench *b, const char *dir, ru_err *err)
{
    uint32_t runs = b->quick ? RUNS_MAX : 1;
    live *l = RU_NEW(b->arena, live, 1);
    seen *s = RU_NEW(b->arena, seen, 1);
    uint8_t *bytes = RU_NEW(b->arena, uint8_t, BYTES_MAX);
    if (l == NULL || s == NULL || bytes == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
    }
    if (!ru_bench_wants(b, cost_name) && !ru_bench_wants(b, span_name) &&
        !ru_bench_wants(b, renamed_name) && !ru_bench_wants(b, decision_name)) {
        return RU_OK;
    }
    *l = (live){.arena = b->arena,
                .bytes = bytes,
                .is = {.rounds = b->quick ? 60 : 240, .speed = b->quick ? 20 : 1}};
    for (uint32_t run = 0; run < runs; run++) {
        const char *of = ru_arena_printf(b->arena, "%s/live %u", dir, run);
        RU_TRY(of != NULL ? one_run(l, of, run, s, err)
                          : RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full"));
    }
    const char *unit = "% of all on the slow disk";
    double cost_of[RUNS_MAX], spans[RUNS_MAX];
    memcpy(cost_of, s->cost, sizeof cost_of);
    memcpy(spans, s->span, sizeof spans);
    const ru_bench_stat ours = ru_bench_stat_of(cost_of, runs);
    RU_TRY(add(b, cost_name, unit, ours, "first fit", s->fit, runs, 1 / 0.75, err));
    RU_TRY(add(b, cost_name, unit, ours, "an oracle", s->oracle, runs, 1 / 1.15, err));
    RU_TRY(add(b, span_name, "s", ru_bench_stat_of(spans, runs), "first fit", s->fit_span, runs, 1,
               err));
    RU_TRY(add(b, renamed_name, unit, ru_bench_stat_of(s->renamed, runs), "the rounds before",
               s->cost, runs, 1 / 1.2, err));
    return s->decisions == 0
               ? RU_OK
               : add(b, decision_name, "us", ru_bench_stat_of(s->decision_us, s->decisions), NULL,
                     NULL, 0, 100, err);
}
