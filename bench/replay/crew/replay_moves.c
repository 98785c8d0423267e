/* Maps of executors and shards: the longest load over a lower bound, on a thousand random jobs with
 * at least eight executors a worker, and the cost of short horizons. The bound is the planner's own
 * dual bound or the largest executor; a linear program on some of the jobs says how far it is from
 * the best such bound. */
#include <math.h>

#include "base/rng.h"
#include "bench/replay/replay.h"
#include "plan/crew/moves.h"
#include "solve/solver.h"

enum { JOBS = 1000, LP_EVERY = 20 };

typedef struct job {
    ru_moves_in in;
    ru_moves_worker *worker;
    ru_moves_object *object;
} job;

/* By seed: equal or uneven workers, light or heavy tails of costs, without or with shards, all
 * workers in place or half of them new. */
static ru_status draw(uint64_t seed, uint32_t workers, ru_arena *a, job *k, ru_err *err)
{
    ru_rng r = ru_rng_from(seed, 77);
    bool uneven = seed % 2 != 0, shards = seed / 2 % 2 != 0, grown = seed / 4 % 2 != 0;
    double spread = seed / 8 % 2 != 0 ? 0.8 : 0.3;
    workers = workers > 0 ? workers : 2 + ru_rng_below(&r, 15);
    uint32_t executors = workers * (8 + ru_rng_below(&r, 9));
    uint32_t n = executors + (shards ? 2 * workers : 0), old = grown ? (workers + 1) / 2 : workers;
    k->worker = RU_NEW(a, ru_moves_worker, workers);
    k->object = RU_NEW(a, ru_moves_object, n);
    if (k->worker == NULL || k->object == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u executors", executors);
    }
    for (uint32_t w = 0; w < workers; w++) {
        k->worker[w] =
            (ru_moves_worker){.cores = uneven ? 1 + ru_rng_below(&r, 8) : 4,
                              .bytes_per_s = uneven ? 1e8 * (1 + ru_rng_below(&r, 4)) : 1.25e8};
    }
    for (uint32_t j = 0; j < n; j++) {
        bool shard = j >= executors;
        double cost = ru_math_exp(spread * ru_rng_normal(&r));
        k->object[j] = (ru_moves_object){
            .on = j % old,
            .home = RU_MOVES_NONE,
            .cpu_ns = shard ? 0 : (int64_t)(1e9 * cost),
            .net_bytes = shards ? (int64_t)ru_rng_below(&r, shard ? 40000000 : 8000000) : 0,
            .state_bytes = (int64_t)ru_rng_below(&r, 100000000)};
    }
    k->in = (ru_moves_in){.worker = k->worker,
                          .object = k->object,
                          .n_workers = workers,
                          .n_executors = executors,
                          .n_shards = n - executors,
                          .pause_ns = 10000000,
                          .iterations = 1e6,
                          .noise = RU_MOVES_NOISE};
    return RU_OK;
}

/* Largest load of the linear program: parts of objects on workers. */
static ru_status relaxed(const ru_moves_in *in, ru_arena *a, double *load_ns, ru_err *err)
{
    uint32_t n = in->n_executors + in->n_shards;
    ru_milp_builder b = ru_milp_build(a);
    uint32_t most = ru_milp_col(&b, 1, 0, INFINITY, false);
    for (uint32_t j = 0; j < n * in->n_workers; j++) {
        (void)ru_milp_col(&b, 0, 0, 1, false);
    }
    for (uint32_t j = 0; j < n; j++) {
        (void)ru_milp_row(&b, 1, 1);
        for (uint32_t w = 0; w < in->n_workers; w++) {
            ru_milp_term(&b, 1 + j * in->n_workers + w, 1);
        }
    }
    for (uint32_t w = 0; w < in->n_workers; w++) {
        (void)ru_milp_row(&b, -INFINITY, 0);
        ru_milp_term(&b, most, -1);
        for (uint32_t j = 0; j < n; j++) { /* in seconds: better scaled */
            double s = (double)in->object[j].cpu_ns * 1e-9 / in->worker[w].cores +
                       (double)in->object[j].net_bytes / in->worker[w].bytes_per_s;
            ru_milp_term(&b, 1 + j * in->n_workers + w, s);
        }
    }
    ru_milp p;
    ru_solution sol;
    RU_TRY(ru_milp_done(&b, false, &p, err));
    const ru_solve_in q = {.milp = &p};
    RU_TRY(ru_solver_library.lp(&q, a, &sol, err));
    if (sol.end != RU_SOLVE_OPTIMAL) {
        return RU_FAIL(err, RU_E_BUG, "the linear program of a job has no optimum");
    }
    *load_ns = sol.value * 1e9;
    return RU_OK;
}

typedef struct totals {
    double mean[RU_MOVES_METHODS], worst[RU_MOVES_METHODS];
    double lp, lp_worst, moved;
    uint32_t n, n_lp;
} totals;

static ru_status one(const job *k, ru_arena *a, double *value, double *bound, double *moved,
                     uint32_t methods, ru_err *err)
{
    for (uint32_t m = 0; m < methods; m++) {
        ru_moves_in in = k->in;
        ru_moves_plan p;
        in.method = (ru_moves_method)m;
        RU_TRY(ru_plan_moves(&in, a, a, &p, err));
        if (m == RU_MOVES_BALANCE) {
            RU_TRY(ru_plan_moves_check(&in, &p, a, err));
            *bound = (double)p.bound_ns;
            *moved = (double)p.n_moves / p.n;
        }
        value[m] = in.iterations >= 1e6 ? (double)p.iteration_ns : p.cost_ns / in.iterations;
    }
    return RU_OK;
}

static ru_status jobs(ru_replay *r, double iterations, double noise, uint32_t n, totals *t,
                      ru_err *err)
{
    for (uint64_t seed = 0; seed < n; seed++) {
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        job k;
        double value[RU_MOVES_METHODS], bound = 1, moved = 0;
        RU_TRY(draw(seed, 0, r->arena, &k, err));
        k.in.iterations = iterations;
        k.in.noise = noise;
        RU_TRY(one(&k, r->arena, value, &bound, &moved, RU_MOVES_METHODS, err));
        for (uint32_t m = 0; m < RU_MOVES_METHODS; m++) {
            t->mean[m] += value[m] / bound / n;
            t->worst[m] = fmax(t->worst[m], value[m] / bound);
        }
        t->moved += moved / n;
        if (seed % LP_EVERY == 3 && iterations >= 1e6 && noise == 0 && ru_solver_has_lp()) {
            double load = 0;
            RU_TRY(relaxed(&k.in, r->arena, &load, err));
            t->lp += load / bound;
            t->lp_worst = fmax(t->lp_worst, load / bound);
            t->n_lp++;
        }
        ru_arena_rewind(r->arena, mark);
    }
    return RU_OK;
}

static ru_status add(ru_replay *r, const char *name, const double *value, double goal,
                     const char *note, ru_err *err)
{
    static const char *const names[] = {"balance", "keep", "count", "lpt", "greedy", "restart"};
    ru_replay_row row = ru_replay_row_of(name, "time over bound", true);
    row.ours = value[0];
    row.bound = 1;
    row.goal = goal;
    row.note = note;
    for (uint32_t m = 1; m < RU_MOVES_METHODS; m++) {
        ru_replay_baseline(r, &row, names[m], value[m]);
    }
    return ru_replay_add(r, &row, err);
}

/* Many workers: 512 with 4,096 to 8,192 executors. */
static ru_status add_large(ru_replay *r, ru_err *err)
{
    job k;
    double value[RU_MOVES_METHODS] = {0}, bound = 1, moved = 0;
    RU_TRY(draw(0, 512, r->arena, &k, err));
    RU_TRY(one(&k, r->arena, value, &bound, &moved, RU_MOVES_METHODS, err));
    for (uint32_t m = 0; m < RU_MOVES_METHODS; m++) {
        value[m] /= bound;
    }
    return add(r, "an iteration, 512 workers, 1 job", value, 1.05, NULL, err);
}

ru_status rui_replay_moves(ru_replay *r, ru_err *err)
{
    totals t = {0}, brief = {0};
    uint32_t n = r->quick ? 50 : JOBS;
    RU_TRY(jobs(r, 1e6, 0, n, &t, err));
    char note[112];
    ru_text text = ru_text_into(note, sizeof note);
    if (t.n_lp > 0) {
        ru_text_putf(&text, "linear programs of %u jobs are %.4f times the bound, at most %.4f",
                     t.n_lp, t.lp / t.n_lp, t.lp_worst);
    } else {
        ru_text_put(&text, "no linear programs: this build has no Clp");
    }
    char name[64];
    ru_text head = ru_text_into(name, sizeof name);
    ru_text_putf(&head, "an iteration, worst of %u jobs", n);
    RU_TRY(add(r, name, t.worst, 1.05, note, err));
    RU_TRY(add(r, "an iteration, mean", t.mean, RU_NAN, NULL, err));
    RU_TRY(jobs(r, 1e6, RU_MOVES_NOISE, n, &brief, err));
    RU_TRY(add(r, "an iteration, worst, with noise", brief.worst, 1 / (1 - RU_MOVES_NOISE),
               "a map within the noise of the best one stays", err));
    static const double horizon[] = {3, 30};
    for (uint32_t h = 0; h < RU_ARRAY_LEN(horizon); h++) {
        brief = (totals){0};
        RU_TRY(jobs(r, horizon[h], RU_MOVES_NOISE, n / 5, &brief, err));
        head = ru_text_into(name, sizeof name);
        ru_text_putf(&head, "with moves, mean over %.0f iterations", horizon[h]);
        text = ru_text_into(note, sizeof note);
        ru_text_putf(&text, "%.0f %% of the objects move", 100 * brief.moved);
        RU_TRY(add(r, name, brief.mean, RU_NAN, note, err));
    }
    return add_large(r, err);
}
