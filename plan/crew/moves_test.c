/* Moves of executors: the optimum by trying all maps, the bound on random jobs, and a
 * checker that refuses changed plans. */
#include "plan/crew/moves.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/many.h"
#include "test/test.h"

enum { WORKERS_MAX = 16, OBJECTS_MAX = 320, PAIRS_MAX = 64 };

typedef struct job {
    ru_moves_worker worker[WORKERS_MAX];
    ru_moves_object object[OBJECTS_MAX];
    ru_moves_pair pair[PAIRS_MAX];
    ru_moves_in in;
} job;

/* Executors of uneven cost (a few heavy ones), shards that only use the link, pairs between them.
 */
static void draw(job *k, ru_rng *r, uint32_t workers, uint32_t executors, uint32_t shards,
                 uint32_t pairs)
{
    bool uneven = ru_rng_below(r, 2) != 0;
    double spread = ru_rng_uniform(r, 0, 0.7);
    uint32_t n = executors + shards;
    for (uint32_t w = 0; w < workers; w++) {
        k->worker[w] =
            (ru_moves_worker){.cores = uneven ? 1 + ru_rng_below(r, 4) : 2,
                              .bytes_per_s = uneven ? 1e8 * (1 + ru_rng_below(r, 3)) : 1e8};
    }
    for (uint32_t j = 0; j < n; j++) {
        bool shard = j >= executors;
        k->object[j] = (ru_moves_object){
            .on = ru_rng_below(r, workers),
            .home = RU_MOVES_NONE,
            .cpu_ns = shard ? 0 : (int64_t)(1e9 * ru_math_exp(spread * ru_rng_normal(r))),
            .net_bytes = (int64_t)ru_rng_below(r, shard ? 40000000 : 4000000) + 2000000,
            .state_bytes = ru_rng_below(r, 100000000)};
    }
    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t a = ru_rng_below(r, executors), b = executors + ru_rng_below(r, shards);
        k->pair[i] = (ru_moves_pair){a, b, 2000000 / pairs};
    }
    k->in = (ru_moves_in){.worker = k->worker,
                          .object = k->object,
                          .pair = k->pair,
                          .n_workers = workers,
                          .n_executors = executors,
                          .n_shards = shards,
                          .n_pairs = pairs,
                          .iterations = 1e6,
                          .barrier_ns = ru_rng_below(r, 1000000),
                          .pause_ns = 1000000,
                          .nodes_max = 1000000};
}

/* The cost of one map by its definition; infinite: not legal. */
static double cost_of(const ru_moves_in *in, const uint32_t *to)
{
    double load = 0, moving = 0;
    for (uint32_t w = 0; w < in->n_workers; w++) {
        int64_t cpu = 0, net = 0, memory = 0, moved = 0, pause = 0;
        for (uint32_t j = 0; j < in->n_executors + in->n_shards; j++) {
            const ru_moves_object *o = &in->object[j];
            cpu += to[j] == w ? o->cpu_ns : 0;
            net += to[j] == w ? o->net_bytes : 0;
            memory += to[j] == w ? o->state_bytes + o->data_bytes : 0;
            bool in_or_out = to[j] != o->on && (to[j] == w || o->on == w);
            moved += in_or_out ? o->state_bytes : 0;
            moved += in_or_out && to[j] == w && o->home != w ? o->data_bytes : 0;
            pause += in_or_out ? in->pause_ns : 0;
        }
        for (uint32_t i = 0; i < in->n_pairs; i++) {
            bool both = to[in->pair[i].a] == w && to[in->pair[i].b] == w;
            net -= both ? 2 * in->pair[i].bytes : 0;
        }
        const ru_moves_worker *k = &in->worker[w];
        bool holds = memory > 0 || cpu > 0 || net > 0;
        if ((k->memory_bytes > 0 && memory > k->memory_bytes) || (k->leaving && holds)) {
            return INFINITY;
        }
        load = fmax(load, round((double)cpu / k->cores + (double)net * 1e9 / k->bytes_per_s));
        moving = fmax(moving, round((double)pause + (double)moved * 1e9 / k->bytes_per_s));
    }
    return in->iterations * (load + (double)in->barrier_ns) + moving;
}

static double best_of_all(const ru_moves_in *in)
{
    uint32_t n = in->n_executors + in->n_shards, to[8] = {0};
    double best = INFINITY;
    for (;;) {
        best = fmin(best, cost_of(in, to));
        uint32_t j = 0;
        while (j < n && ++to[j] == in->n_workers) {
            to[j++] = 0;
        }
        if (j == n) {
            return best;
        }
    }
}

static void test_small_jobs_get_the_optimum(void **state)
{
    (void)state;
    static const double horizons[] = {0, 1, 3, 10, 1e6};
    uint32_t stayed = 0, moved = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        ru_rng r = ru_rng_from(seed, 1);
        job k;
        draw(&k, &r, 2 + ru_rng_below(&r, 2), 4 + ru_rng_below(&r, 2), 1 + ru_rng_below(&r, 2), 3);
        k.in.iterations = horizons[seed % 5];
        k.worker[1].leaving = seed % 7 == 0;
        k.object[0].on = seed % 11 == 0 ? RU_MOVES_NONE : k.object[0].on;
        k.object[1].data_bytes = 50000000;
        k.object[1].home = ru_rng_below(&r, k.in.n_workers);
        k.worker[0].memory_bytes = seed % 3 == 0 ? 200000000 : 0;
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_moves_plan p;
        ru_err err;
        double best = best_of_all(&k.in);
        ru_status st = ru_plan_moves(&k.in, &a, &a, &p, &err);
        assert_int_equal(st, isinf(best) ? RU_E_INFEASIBLE : RU_OK);
        if (st == RU_OK) {
            assert_true(p.optimal);
            assert_true(p.cost_ns == best);
            assert_ok(ru_plan_moves_check(&k.in, &p, &a, &err), err);
            stayed += p.n_moves == 0 ? 1 : 0;
            moved += p.n_moves > 0 ? 1 : 0;
        }
        ru_arena_fini(&a);
    }
    assert_true(stayed > 10 && moved > 50);
}

static void test_random_jobs_come_near_the_bound(void **state)
{
    (void)state;
    enum { JOBS = 100 }; /* a thousand in the replay */
    double worst = 0, sum = 0;
    for (uint64_t seed = 0; seed < JOBS; seed++) {
        ru_rng r = ru_rng_from(seed, 2);
        job k;
        uint32_t workers = 2 + ru_rng_below(&r, 14), each = 8 + ru_rng_below(&r, 8);
        draw(&k, &r, workers, workers * each, ru_rng_below(&r, 3) * workers, 0);
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_moves_plan p;
        ru_err err;
        assert_ok(ru_plan_moves(&k.in, &a, &a, &p, &err), err);
        if (seed % 10 == 0) {
            assert_ok(ru_plan_moves_check(&k.in, &p, &a, &err), err);
        }
        double ratio = (double)p.iteration_ns / (double)p.bound_ns;
        worst = fmax(worst, ratio);
        sum += ratio;
        ru_arena_fini(&a);
    }
    if (worst > 1.05) {
        fail_msg("worst %g, mean %g times the bound", worst, sum / JOBS);
    }
}

static void test_nothing_moves_that_does_not_pay(void **state)
{
    (void)state;
    for (uint64_t seed = 0, n = ru_test_many(60, 3); seed < n; seed++) {
        ru_rng r = ru_rng_from(seed, 3);
        job k;
        draw(&k, &r, 6, 60, 12, 40);
        k.in.iterations = ru_math_exp(ru_rng_uniform(&r, -1, 6));
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_moves_plan p, stay;
        ru_err err;
        assert_ok(ru_plan_moves(&k.in, &a, &a, &p, &err), err);
        uint32_t to[OBJECTS_MAX];
        memcpy(to, p.to, p.n * sizeof *to);
        for (uint32_t i = 0; i < p.n_moves; i++) {
            to[p.move[i]] = k.object[p.move[i]].on;
            assert_true(cost_of(&k.in, to) >= p.cost_ns);
            to[p.move[i]] = p.to[p.move[i]];
        }
        for (uint32_t m = 1; m < RU_MOVES_METHODS; m++) {
            k.in.method = (ru_moves_method)m;
            assert_ok(ru_plan_moves(&k.in, &a, &a, &stay, &err), err);
            assert_ok(ru_plan_moves_check(&k.in, &stay, &a, &err), err);
            assert_true(p.cost_ns <= stay.cost_ns * (m == RU_MOVES_KEEP ? 1 : 1.02));
        }
        ru_arena_fini(&a);
    }
}

static void refuse(const ru_moves_in *in, const ru_moves_plan *p, ru_arena *a)
{
    ru_err err;
    assert_int_equal(ru_plan_moves_check(in, p, a, &err), RU_E_INFEASIBLE);
}

static void test_checker_refuses_changed_plans(void **state)
{
    (void)state;
    job k;
    ru_rng r = ru_rng_from(5, 4);
    draw(&k, &r, 4, 30, 6, 10);
    k.in.iterations = 20;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_moves_plan p, q;
    ru_err err;
    assert_ok(ru_plan_moves(&k.in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_moves_check(&k.in, &p, &a, &err), err);
    assert_true(p.n_moves > 2);
    uint32_t to[OBJECTS_MAX], move[OBJECTS_MAX];
    memcpy(move, p.move, p.n_moves * sizeof *move);
    for (uint32_t j = 0; j < p.n; j++) {
        for (uint32_t w = 0; w <= k.in.n_workers; w++) {
            memcpy(to, p.to, p.n * sizeof *to);
            to[j] = w;
            q = p, q.to = to;
            if (w != p.to[j]) {
                refuse(&k.in, &q, &a);
            }
        }
    }
    for (uint32_t i = 0; i < p.n_moves; i++) {
        uint32_t old = move[i];
        q = p, q.move = move;
        for (uint32_t j = 0; j <= p.n; j++) {
            move[i] = j;
            if (j != old) {
                refuse(&k.in, &q, &a);
            }
        }
        move[i] = old;
    }
    q = p, q.n--, refuse(&k.in, &q, &a);
    q = p, q.n_moves--, refuse(&k.in, &q, &a);
    q = p, q.iteration_ns++, refuse(&k.in, &q, &a);
    q = p, q.moving_ns--, refuse(&k.in, &q, &a);
    q = p, q.moved_bytes++, refuse(&k.in, &q, &a);
    q = p, q.cost_ns *= 1.0001, refuse(&k.in, &q, &a);
    q = p, q.bound_ns = q.iteration_ns + 1, refuse(&k.in, &q, &a);
    k.worker[p.to[0]].leaving = true;
    refuse(&k.in, &p, &a);
    k.worker[p.to[0]].leaving = false;
    k.worker[p.to[0]].memory_bytes = 1;
    refuse(&k.in, &p, &a);
    ru_arena_fini(&a);
}

static void expect(const ru_moves_in *in, ru_status want)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_moves_plan p;
    ru_err err;
    assert_int_equal(ru_plan_moves(in, &a, &a, &p, &err), want);
    assert_true(strlen(err.text) > 10);
    ru_arena_fini(&a);
}

static void test_bad_facts_are_refused(void **state)
{
    (void)state;
    job k;
    ru_rng r = ru_rng_from(6, 4);
    draw(&k, &r, 3, 6, 2, 1);
    ru_moves_in good = k.in;
    k.in.n_workers = 0, expect(&k.in, RU_E_ARG), k.in = good;
    k.in.iterations = RU_NAN, expect(&k.in, RU_E_ARG), k.in = good;
    k.in.pause_ns = -1, expect(&k.in, RU_E_ARG), k.in = good;
    k.worker[1].cores = RU_NAN, expect(&k.in, RU_E_ARG), k.worker[1].cores = 1;
    k.worker[1].bytes_per_s = 0, expect(&k.in, RU_E_ARG), k.worker[1].bytes_per_s = 1e8;
    k.object[2].on = 3, expect(&k.in, RU_E_ARG), k.object[2].on = 0;
    k.object[2].cpu_ns = -5, expect(&k.in, RU_E_ARG), k.object[2].cpu_ns = INT64_MAX;
    expect(&k.in, RU_E_ARG), k.object[2].cpu_ns = 5;
    k.pair[0].b = 8, expect(&k.in, RU_E_ARG), k.pair[0].b = 7;
    k.pair[0].bytes = INT64_C(1) << 60, expect(&k.in, RU_E_ARG), k.pair[0].bytes = 1;
    k.worker[0].leaving = k.worker[1].leaving = k.worker[2].leaving = true;
    expect(&k.in, RU_E_INFEASIBLE);
    k.worker[0].leaving = k.worker[1].leaving = k.worker[2].leaving = false;
    k.worker[0].memory_bytes = k.worker[1].memory_bytes = k.worker[2].memory_bytes = 1;
    expect(&k.in, RU_E_INFEASIBLE);
}

/* Twenty executors on four workers, measured anew for each of 40 plans. Seconds of all iterations
 * by their true costs, and of moving; how many objects moved in the last 30 plans. */
static double replan(uint64_t seed, double error, double noise, uint32_t *moved)
{
    enum { N = 20, W = 4, PLANS = 40, EACH = 50 };
    ru_rng r = ru_rng_from(seed, 23);
    ru_moves_worker w[W];
    ru_moves_object o[N];
    double truth[N], total = 0;
    for (uint32_t i = 0; i < W; i++) {
        w[i] = (ru_moves_worker){.cores = 4, .bytes_per_s = 125e6};
    }
    for (uint32_t j = 0; j < N; j++) {
        truth[j] = 1e9 * ru_rng_uniform(&r, 0.2, 2);
        o[j] =
            (ru_moves_object){.on = j % W, .home = RU_MOVES_NONE, .state_bytes = 40 * 1000 * 1000};
    }
    ru_moves_in in = {.worker = w,
                      .object = o,
                      .n_workers = W,
                      .n_executors = N,
                      .pause_ns = 10000000,
                      .noise = noise,
                      .nodes_max = 20000};
    *moved = 0;
    for (uint32_t k = 0; k < PLANS; k++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_err err;
        ru_moves_plan p;
        double load[W] = {0}, worst = 0;
        for (uint32_t j = 0; j < N; j++) {
            o[j].cpu_ns = (int64_t)(truth[j] * (1 + error * ru_rng_normal(&r)));
        }
        in.iterations = EACH * (PLANS - k);
        assert_ok(ru_plan_moves(&in, &a, &a, &p, &err), err);
        assert_ok(ru_plan_moves_check(&in, &p, &a, &err), err);
        for (uint32_t j = 0; j < N; j++) {
            o[j].on = p.to[j];
            load[p.to[j]] += truth[j] / 4;
        }
        for (uint32_t i = 0; i < W; i++) {
            worst = fmax(worst, load[i]);
        }
        *moved += k >= 10 ? p.n_moves : 0;
        total += EACH * worst + (double)p.moving_ns;
        ru_arena_fini(&a);
    }
    return total * 1e-9;
}

static void test_plans_from_noisy_costs_do_not_churn(void **state)
{
    (void)state;
    double with = 0, without = 0;
    uint32_t moved = 0, churned = 0;
    const uint64_t seeds = ru_test_many(20, 4);
    for (uint64_t seed = 0; seed < seeds; seed++) {
        uint32_t n;
        with += replan(seed, 0.03, RU_MOVES_NOISE, &n);
        moved += n;
        without += replan(seed, 0.03, 0, &n);
        churned += n;
    }
    assert_true(churned > 50 * seeds); /* the noise is worth moves at nearly every plan */
    assert_true(moved * 20 < churned);
    assert_true(with < without);
}

RU_TESTS(plan_moves, cmocka_unit_test(test_plans_from_noisy_costs_do_not_churn),
         cmocka_unit_test(test_small_jobs_get_the_optimum),
         cmocka_unit_test(test_random_jobs_come_near_the_bound),
         cmocka_unit_test(test_nothing_moves_that_does_not_pay),
         cmocka_unit_test(test_checker_refuses_changed_plans),
         cmocka_unit_test(test_bad_facts_are_refused))
