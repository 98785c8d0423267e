/* SMLT: published curves and drawn ones by every method; jobs with noise, a deadline and a drift of
 * the workload in the simulator; what an exchange of gradients takes. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "bench/replay/replay.h"
#include "bench/replay/replay_csv.h"
#include "env/clock.h"
#include "plan/fleet/scale.h"
#include "sim/sim.h"

static const char *const methods[] = {"joint", "product", "ucb",  "penalty",
                                      "heter", "random",  "fixed"};

/* Objective over numbers of workers from `first` on. */
typedef struct curve {
    uint32_t first, n;
    double value[400];
    double best;
} curve;

static ru_scale_in curve_in(const curve *c, ru_scale_method method, uint64_t seed)
{
    static const double memory = 1769;
    return (ru_scale_in){.workers_min = c->first,
                         .workers_max = c->first + c->n - 1,
                         .workers_step = 1,
                         .memory_mb = &memory,
                         .n_memory = 1,
                         .steps = 1e4,
                         .fastest = 1,
                         .rules = {.usd_per_gb_s = 1.66667e-5},
                         .core_mb = 1769,
                         .probe_steps = 1e-3,
                         .probes_max = 7,
                         .probing_max = 1,
                         .gain_min = 0,
                         .confidence = 0.95,
                         .seed = seed,
                         .method = method};
}

/* 1 - value of the choice after at most seven measurements / best. */
static ru_status regret_of(ru_replay *r, const curve *c, ru_scale_method method, uint64_t seed,
                           double *regret, uint32_t *probes, ru_err *err)
{
    ru_scale_probe probe[RU_SCALE_PROBES_MAX];
    ru_scale_in in = curve_in(c, method, seed);
    in.probe = probe;
    for (;;) {
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        ru_scale_plan p;
        RU_TRY(ru_plan_scale(&in, r->arena, &p, err));
        RU_TRY(ru_plan_scale_check(&in, &p, err));
        ru_arena_rewind(r->arena, mark);
        double v = c->value[p.workers - c->first];
        if (!p.probe) {
            *regret = 1 - v / c->best;
            *probes = in.n_probes;
            return RU_OK;
        }
        probe[in.n_probes++] = (ru_scale_probe){p.workers, p.memory_mb, 1e-3 / v, false, false};
    }
}

static ru_status curve_rows(ru_replay *r, const char *name, const curve *curves, uint32_t n,
                            double published, ru_err *err)
{
    uint32_t seeds = r->quick ? 20 : 200;
    char text[96];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "%s, %u seeds", name, seeds);
    ru_replay_row within = ru_replay_row_of(text, "within_2_percent", false),
                  mean = ru_replay_row_of(text, "mean_regret", true);
    for (uint32_t m = 0; m < RU_ARRAY_LEN(methods); m++) {
        double sum = 0, good = 0;
        for (uint32_t s = 0; s < seeds; s++) {
            double regret;
            uint32_t probes;
            RU_TRY(regret_of(r, &curves[s % n], (ru_scale_method)m, s, &regret, &probes, err));
            sum += regret / seeds;
            good += regret <= 0.02 ? 1.0 / seeds : 0;
        }
        if (m == RU_SCALE_JOINT) {
            within.ours = good;
            mean.ours = sum;
        } else if (m != RU_SCALE_PENALTY) { /* no limit here: as ucb */
            ru_replay_baseline(r, &within, methods[m], good);
            ru_replay_baseline(r, &mean, methods[m], sum);
        }
    }
    within.goal = isnan(published) ? RU_NAN : 0.99;
    within.published = published;
    within.bound = 1;
    mean.bound = 0;
    RU_TRY(ru_replay_add(r, &within, err));
    return ru_replay_add(r, &mean, err);
}

static ru_status read_curve(const rui_csv *csv, const char *model, curve *c)
{
    *c = (curve){0};
    for (uint32_t k = 0; k < csv->n; k++) {
        if (strcmp(rui_csv_text(csv, k, 0), model) == 0 && c->n < RU_ARRAY_LEN(c->value)) {
            c->first = c->n == 0 ? (uint32_t)rui_csv_f64(csv, k, 1) : c->first;
            c->value[c->n] = rui_csv_f64(csv, k, 2);
            c->best = fmax(c->best, c->value[c->n]);
            c->n++;
        }
    }
    return c->n > 0 ? RU_OK : RU_E_DATA;
}

/* A model and its network, drawn: what a step takes with n workers and m MB. */
typedef struct truth {
    double work_s; /* of a step on one core */
    double serial; /* part of a worker's step that more cores do not help */
    double bytes;
    ru_function_net net;
    ru_function_sync how;
} truth;

static truth draw_truth(ru_rng *rng)
{
    truth t = {.work_s = 20 * ru_math_exp(ru_rng_normal(rng)),
               .serial = 0.3 * ru_rng_f64(rng),
               .bytes = 4e7 * ru_math_exp(ru_rng_normal(rng)),
               .how = RU_SYNC_SHARDED};
    t.net = (ru_function_net){.worker_bytes_per_s = 7e7 * ru_rng_uniform(rng, 0.7, 1.3),
                              .store_bytes_per_s = 2.5e9 * ru_math_exp(0.5 * ru_rng_normal(rng)),
                              .latency_s = 0.002 * ru_rng_uniform(rng, 0.5, 4),
                              .operations_per_s = 1e5};
    return t;
}

static double step_of(const truth *t, double workers, double memory_mb)
{
    double cores = fmin(memory_mb / 1769, 6);
    ru_function_net net = t->net;
    net.worker_bytes_per_s *= fmin(1, memory_mb / 1769);
    return t->work_s / workers * (t->serial + (1 - t->serial) / cores) +
           ru_function_sync_s(t->how, &net, workers, t->bytes);
}

static ru_status curves(ru_replay *r, ru_err *err)
{
    const char *path = ru_replay_data(r, "functions/smlt_bo_curves.csv");
    rui_csv csv;
    RU_TRY(rui_csv_read(path, r->arena, &csv, err));
    static const char *const models[] = {"bert_small", "bert_medium"};
    for (uint32_t m = 0; m < RU_ARRAY_LEN(models); m++) {
        curve c;
        if (read_curve(&csv, models[m], &c) != RU_OK) {
            return RU_FAIL(err, RU_E_DATA, "%s has no curve of %s", path, models[m]);
        }
        RU_TRY(curve_rows(r, models[m], &c, 1, 0.99, err));
    }
    enum { DRAWN = 200 };
    curve *drawn = RU_NEW(r->arena, curve, DRAWN);
    if (drawn == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for curves");
    }
    ru_rng rng = ru_rng_from(13, ru_rng_label("drawn curves"));
    for (uint32_t i = 0; i < DRAWN; i++) {
        truth t = draw_truth(&rng);
        drawn[i].first = 4;
        drawn[i].n = 60 + ru_rng_below(&rng, 140);
        for (uint32_t k = 0; k < drawn[i].n; k++) {
            drawn[i].value[k] = 1 / step_of(&t, 4 + k, 1769);
            drawn[i].best = fmax(drawn[i].best, drawn[i].value[k]);
        }
    }
    return curve_rows(r, "drawn models, one curve a seed", drawn, DRAWN, RU_NAN, err);
}

/* -- jobs ------------------------------------------------------------------------------------- */

enum { WORKERS = 6, MEMORIES = 8 };
static const double memories[MEMORIES] = {512, 1024, 1769, 2304, 3072, 3584, 4608, 6144};

typedef struct job {
    ru_replay *r;
    ru_sim *sim;
    ru_scale_in in;
    truth truth;
    ru_scale_probe probe[RU_SCALE_PROBES_MAX];
    ru_rng rng;
    ru_scale_plan plan; /* in force */
    double epoch_steps; /* under way */
    double epoch_step_s;
    double usd, steps_all, change_at;
    int64_t begun_ns, took_ns;
    double limit_s, noise;
    bool fresh;
    ru_status st;
    ru_err *err;
} job;

static void begin_epoch(job *j);

static double usd_of(const job *j, double seconds, bool start)
{
    return j->plan.workers * (j->plan.memory_mb / 1024 * j->in.rules.usd_per_gb_s * seconds +
                              (start ? j->in.rules.usd_per_call : 0));
}

/* Asks the policy with what is known and left. */
static ru_status ask(job *j, ru_err *err)
{
    double elapsed = (double)(ru_sim_now(j->sim).ns - j->begun_ns) * 1e-9;
    ru_scale_in in = j->in;
    in.limit_s = j->limit_s > 0 ? fmax(j->limit_s - elapsed, 1e-3) : 0;
    ru_arena_mark mark = ru_arena_mark_get(j->r->arena);
    ru_scale_plan p;
    ru_err why;
    ru_status st = ru_plan_scale(&in, j->r->arena, &p, &why);
    if (st == RU_OK) {
        st = ru_plan_scale_check(&in, &p, &why);
    }
    ru_arena_rewind(j->r->arena, mark);
    if (st == RU_E_INFEASIBLE && j->plan.workers > 0) {
        j->plan.probe = false; /* what runs goes on */
        return RU_OK;
    }
    if (st != RU_OK) {
        return RU_FAIL(err, st, "%s", why.text);
    }
    if (p.drifted) {
        memmove(j->probe, j->probe + j->in.n_probes - 3, 3 * sizeof *j->probe);
        j->in.n_probes = 3;
    }
    j->fresh = p.workers != j->plan.workers || p.memory_mb != j->plan.memory_mb;
    j->plan = p;
    j->in.now_workers = p.workers;
    j->in.now_memory_mb = p.memory_mb;
    return RU_OK;
}

static void epoch_ended(void *self, uint64_t unused)
{
    job *j = self;
    (void)unused;
    j->in.steps -= j->epoch_steps;
    if (j->in.steps < 0.5) {
        j->took_ns = ru_sim_now(j->sim).ns - j->begun_ns;
        return;
    }
    double left = j->steps_all - j->in.steps;
    if (j->change_at > 0 && left >= j->change_at) {
        j->truth.work_s *= 2; /* the batch doubles */
        j->change_at = 0;
    }
    if (j->in.n_probes == RU_SCALE_PROBES_MAX) {
        memmove(j->probe, j->probe + 1, (RU_SCALE_PROBES_MAX - 1) * sizeof *j->probe);
        j->in.n_probes--;
    }
    j->probe[j->in.n_probes++] = (ru_scale_probe){j->plan.workers, j->plan.memory_mb,
                                                  j->epoch_step_s, false, !j->plan.probe};
    j->st = ask(j, j->err);
    if (j->st == RU_OK) {
        begin_epoch(j);
    }
}

static void begin_epoch(job *j)
{
    double steps = j->plan.probe ? j->in.probe_steps : fmax(j->steps_all / 20, 1);
    j->epoch_steps = fmin(steps, j->in.steps);
    j->epoch_step_s = step_of(&j->truth, j->plan.workers, j->plan.memory_mb) *
                      fmax(0.2, 1 + j->noise * ru_rng_normal(&j->rng));
    double seconds = j->epoch_steps * j->epoch_step_s + (j->fresh ? j->in.rules.init_s : 0);
    double usd = usd_of(j, seconds, j->fresh);
    j->usd += usd;
    ru_time at = {ru_sim_now(j->sim).ns + llround(seconds * 1e9)};
    (void)ru_sim_at(j->sim, at, epoch_ended, j, 0);
}

typedef struct outcome {
    double seconds, usd, best_usd, limit_s;
} outcome;

/* The least money over the whole grid that keeps the deadline without noise or measuring. */
static double exhaustive(const job *j, double *least_s)
{
    double best = (double)INFINITY;
    *least_s = (double)INFINITY;
    for (uint32_t k = 0; k < WORKERS * MEMORIES; k++) {
        double w = j->in.workers_min + k / MEMORIES * j->in.workers_step,
               m = memories[k % MEMORIES];
        truth after = j->truth;
        after.work_s *= 2;
        double first = j->change_at > 0 ? j->change_at : j->steps_all;
        ru_function_run run, rest = {0};
        (void)ru_function_run_of(&j->in.rules, w, m, first, step_of(&j->truth, w, m), &run);
        if (j->change_at > 0) {
            (void)ru_function_run_of(&j->in.rules, w, m, j->steps_all - first,
                                     step_of(&after, w, m), &rest);
        }
        *least_s = fmin(*least_s, run.seconds + rest.seconds);
        best = run.seconds + rest.seconds <= j->limit_s || !(j->limit_s > 0)
                   ? fmin(best, run.usd + rest.usd)
                   : best;
    }
    return best;
}

static ru_status run_job(ru_replay *r, uint64_t seed, ru_scale_method method, bool drift,
                         double noise, outcome *out, ru_err *err)
{
    job j = {.r = r, .rng = ru_rng_from(seed, ru_rng_label("jobs")), .noise = noise, .err = err};
    j.truth = draw_truth(&j.rng);
    j.steps_all = 2000 + ru_rng_below(&j.rng, 4000);
    j.in = (ru_scale_in){.workers_min = 8,
                         .workers_max = 48,
                         .workers_step = 8,
                         .memory_mb = memories,
                         .n_memory = MEMORIES,
                         .steps = j.steps_all,
                         .fastest = 0,
                         .probe = j.probe,
                         .rules = {900, 5, 1, 1.66667e-5, 2e-7, 0.001, 0},
                         .core_mb = 1769,
                         .noise = fmax(noise, 0.01),
                         .probe_steps = 20,
                         .plan_steps = j.steps_all / 20,
                         .probes_max = 7,
                         .probing_max = 0.1,
                         .gain_min = 0.002,
                         .confidence = 0.95,
                         .seed = seed,
                         .method = method};
    j.change_at = drift ? j.steps_all / 2 : 0;
    double least;
    (void)exhaustive(&j, &least);
    j.limit_s = least * ru_rng_uniform(&j.rng, 1.15, 3);
    out->best_usd = exhaustive(&j, &least);
    out->limit_s = j.limit_s;
    const ru_sim_options opt = {.seed = seed};
    RU_TRY(ru_sim_open(&opt, &j.sim, err));
    j.begun_ns = ru_sim_now(j.sim).ns;
    j.st = ask(&j, err);
    ru_status st = RU_OK;
    if (j.st == RU_OK) {
        begin_epoch(&j);
        st = ru_sim_run(j.sim, (ru_time){INT64_C(4000000000000000000)}, err);
    }
    out->usd = j.usd;
    out->seconds = (double)j.took_ns * 1e-9;
    ru_sim_close(j.sim);
    RU_TRY(st);
    return j.st;
}

/* Part of the jobs whose deadline is kept, money over the least possible. */
static ru_status job_rows(ru_replay *r, bool drift, ru_err *err)
{
    uint32_t seeds = r->quick ? 20 : 200;
    char text[96];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "%u jobs, noise 10 %%%s", seeds, drift ? ", batch doubles half-way" : "");
    ru_replay_row kept = ru_replay_row_of(text, "deadline_kept", false),
                  usd = ru_replay_row_of(text, "usd_over_least", true);
    for (uint32_t m = 0; m < RU_ARRAY_LEN(methods); m++) {
        double good = 0, ratio = 0;
        for (uint32_t s = 0; s < seeds; s++) {
            outcome o = {0};
            RU_TRY(run_job(r, s, (ru_scale_method)m, drift, 0.1, &o, err));
            good += o.seconds <= o.limit_s ? 1.0 / seeds : 0;
            ratio += o.usd / o.best_usd / seeds;
        }
        if (m == RU_SCALE_JOINT) {
            kept.ours = good;
            usd.ours = ratio;
        } else {
            ru_replay_baseline(r, &kept, methods[m], good);
            ru_replay_baseline(r, &usd, methods[m], ratio);
        }
    }
    kept.goal = drift ? RU_NAN : 0.95;
    kept.bound = 1;
    usd.goal = drift ? RU_NAN : 1.1;
    usd.bound = 1;
    RU_TRY(ru_replay_add(r, &kept, err));
    return ru_replay_add(r, &usd, err);
}

/* Regret of the choice on a grid of 6 x 8, measured without noise, no limits. */
static ru_status grid_row(ru_replay *r, ru_err *err)
{
    uint32_t runs = r->quick ? 10 : 50;
    ru_replay_row row =
        ru_replay_row_of("grid of 6 x 8, 7 measurements, 50 models", "within_5_percent", false);
    ru_rng rng = ru_rng_from(17, ru_rng_label("grids"));
    double good[RU_ARRAY_LEN(methods)] = {0};
    for (uint32_t s = 0; s < runs; s++) {
        truth t = draw_truth(&rng);
        ru_scale_probe probe[RU_SCALE_PROBES_MAX];
        for (uint32_t m = 0; m < RU_ARRAY_LEN(methods); m++) {
            ru_scale_in in = {.workers_min = 8,
                              .workers_max = 48,
                              .workers_step = 8,
                              .memory_mb = memories,
                              .n_memory = MEMORIES,
                              .steps = 1e5,
                              .fastest = 0,
                              .probe = probe};
            in.rules = (ru_function_rules){0, 5, 1, 1.66667e-5, 2e-7, 0.001, 0};
            in.core_mb = 1769;
            in.noise = 0.01;
            in.probe_steps = 20;
            in.probes_max = 7;
            in.probing_max = 1;
            in.confidence = 0.95;
            in.seed = s;
            in.method = (ru_scale_method)m;
            ru_scale_plan p = {.probe = true};
            while (p.probe) {
                ru_arena_mark mark = ru_arena_mark_get(r->arena);
                RU_TRY(ru_plan_scale(&in, r->arena, &p, err));
                RU_TRY(ru_plan_scale_check(&in, &p, err));
                ru_arena_rewind(r->arena, mark);
                if (p.probe) {
                    probe[in.n_probes++] = (ru_scale_probe){
                        p.workers, p.memory_mb, step_of(&t, p.workers, p.memory_mb), false, false};
                }
            }
            double best = (double)INFINITY, mine = 0;
            for (uint32_t k = 0; k < WORKERS * MEMORIES; k++) {
                uint32_t w = 8 + k / MEMORIES * 8;
                ru_function_run run;
                (void)ru_function_run_of(&in.rules, w, memories[k % MEMORIES], in.steps,
                                         step_of(&t, w, memories[k % MEMORIES]), &run);
                best = fmin(best, run.usd);
                mine = w == p.workers && memories[k % MEMORIES] == p.memory_mb ? run.usd : mine;
            }
            good[m] += mine <= best * 1.05 ? 1.0 / runs : 0;
        }
    }
    row.ours = good[0];
    for (uint32_t m = 1; m < RU_ARRAY_LEN(methods); m++) {
        if (m != RU_SCALE_PENALTY) {
            ru_replay_baseline(r, &row, methods[m], good[m]);
        }
    }
    row.goal = 0.9;
    row.bound = 1;
    return ru_replay_add(r, &row, err);
}

/* Ten times the choices. */
static ru_status time_rows(ru_replay *r, ru_err *err)
{
    double memory[46];
    for (uint32_t m = 0; m < RU_ARRAY_LEN(memory); m++) {
        memory[m] = 128 + 64 * m;
    }
    for (uint32_t times = 1; times <= 10; times *= 10) {
        const ru_scale_probe probe[] = {{40, 1024, 3, false, false},
                                        {120, 2048, 1.6, false, false},
                                        {60, 2944, 1.8, false, false},
                                        {200, 512, 4, false, false},
                                        {90, 1408, 1.9, false, false}};
        ru_scale_in in = {.workers_min = 1,
                          .workers_max = 200 * times,
                          .workers_step = 1,
                          .memory_mb = memory,
                          .n_memory = RU_ARRAY_LEN(memory),
                          .steps = 1e5,
                          .fastest = 0,
                          .limit_s = 3e5,
                          .probe = probe,
                          .n_probes = RU_ARRAY_LEN(probe),
                          .rules = {900, 5, 1, 1.66667e-5, 2e-7, 0.001, 0},
                          .core_mb = 1769,
                          .noise = 0.05,
                          .probe_steps = 20,
                          .probes_max = 7,
                          .probing_max = 0.1,
                          .confidence = 0.95};
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        ru_scale_plan p;
        int64_t begun = ru_clock_now().ns;
        RU_TRY(ru_plan_scale(&in, r->arena, &p, err));
        double took = (double)(ru_clock_now().ns - begun) * 1e-9;
        ru_arena_rewind(r->arena, mark);
        char text[96];
        ru_text t = ru_text_into(text, sizeof text);
        ru_text_putf(&t, "%u choices, five measurements", 9200 * times);
        ru_replay_row row = ru_replay_row_of(text, "decision_s", true);
        row.timed = true;
        row.ours = took;
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

ru_status rui_replay_scale(ru_replay *r, ru_err *err)
{
    if (ru_replay_data(r, "functions") == NULL) {
        return RU_FAIL(err, RU_E_MISSING,
                       "no folder 'functions' in the published data; set RUBATO_DATA");
    }
    RU_TRY(curves(r, err));
    RU_TRY(grid_row(r, err));
    RU_TRY(job_rows(r, false, err));
    RU_TRY(job_rows(r, true, err));
    return time_rows(r, err);
}
