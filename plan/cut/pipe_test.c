#include "plan/cut/pipe.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { LAYERS = 10, EDGES = 24 };

typedef struct small {
    ru_pipe_layer layers[LAYERS];
    ru_pipe_edge edges[EDGES];
    ru_pipe_level levels[2];
    ru_pipe_in in;
} small;

static void small_make(small *s, ru_rng *r, bool chain, ru_pipe_model model)
{
    memset(s, 0, sizeof *s);
    uint32_t n = 1 + ru_rng_below(r, LAYERS);
    for (uint32_t i = 0; i < n; i++) {
        s->layers[i].compute_ns = ru_rng_below(r, 5) == 0 ? 0 : ru_rng_below(r, 50000000);
        s->layers[i].param_bytes = ru_rng_below(r, 3) == 0 ? 0 : ru_rng_below(r, 30000000);
        s->layers[i].activation_bytes = ru_rng_below(r, 20000000);
    }
    static const double links[] = {1e8, 1e9, 1e10}, compression[] = {0, 1, 1, 2};
    s->levels[0] = (ru_pipe_level){1 + ru_rng_below(r, 6), links[ru_rng_below(r, 3)]};
    s->levels[1] = (ru_pipe_level){1 + ru_rng_below(r, 3), links[ru_rng_below(r, 2)]};
    s->in = (ru_pipe_in){.layers = s->layers,
                         .n = n,
                         .edges = s->edges,
                         .levels = s->levels,
                         .n_levels = 1,
                         .model = model,
                         .compression = compression[ru_rng_below(r, 4)],
                         .overlap = 0.25 * ru_rng_below(r, 5),
                         .state = 1,
                         .microbatches = 1 + ru_rng_below(r, 8),
                         .cuts_max = 4096};
    for (uint32_t i = 1; i < n; i++) {
        uint32_t from = chain ? i - 1 : ru_rng_below(r, i);
        s->edges[s->in.n_edges++] = (ru_pipe_edge){from, i};
    }
    for (uint32_t k = ru_rng_below(r, 6); !chain && n > 2 && k > 0; k--) {
        uint32_t a = ru_rng_below(r, n), b = ru_rng_below(r, n);
        if (a < b) {
            s->edges[s->in.n_edges++] = (ru_pipe_edge){a, b};
        }
    }
}

/* Of a chain: every cut and every number of units, by the definitions. */
typedef struct trial {
    const ru_pipe_in *in;
    uint32_t units; /* that are all used */
    double best;
} trial;

static double stage_s(const ru_pipe_in *in, uint32_t first, uint32_t end, uint32_t m)
{
    double c = 0, w = 0, b = in->levels[0].bytes_per_s;
    for (uint32_t i = first; i < end; i++) {
        c += (double)in->layers[i].compute_ns * 1e-9;
        w += (double)in->layers[i].param_bytes;
    }
    switch (in->model) {
    case RU_PIPE_REPO:
        return (c + 4.0 * (m - 1) * w / (b * m)) / m;
    case RU_PIPE_PAPER:
        return fmax(c, 2.0 * (m - 1) * w / b) / m;
    case RU_PIPE_CALIBRATED:
        break;
    }
    double g = 2.0 * (m - 1) * w / (b * m);
    return (fmax(c, g) + (1 - in->overlap) * fmin(c, g)) / m;
}

static bool stage_fits(const ru_pipe_in *in, uint32_t first, uint32_t end, uint32_t m,
                       uint32_t behind)
{
    double w = 0, a = 0, ahead = ceil((double)behind / m);
    for (uint32_t i = first; i < end; i++) {
        w += (double)in->layers[i].param_bytes;
        a += (double)in->layers[i].activation_bytes;
    }
    double bytes =
        in->model == RU_PIPE_REPO ? ahead * (w + a) : (ahead + 1) * (w + a) + in->state * w;
    return in->memory_bytes <= 0 || bytes <= in->memory_bytes;
}

static void try_stages(trial *t, uint32_t first, uint32_t left, uint32_t before, double worst)
{
    const ru_pipe_in *in = t->in;
    if (first == in->n) {
        t->best = left == 0 ? fmin(t->best, worst) : t->best;
        return;
    }
    for (uint32_t end = first + 1; end <= in->n; end++) {
        for (uint32_t m = 1; m <= left; m++) {
            /* no minibatch is ahead of units that stay idle, but the planner counts all there are
             */
            uint32_t behind = left - m + in->levels[0].units - t->units;
            double s = stage_s(in, first, end, m), b = in->levels[0].bytes_per_s;
            if (!stage_fits(in, first, end, m, behind)) {
                continue;
            }
            if (first > 0 && in->compression > 0) {
                double o = 2.0 * (double)in->layers[first - 1].activation_bytes / b;
                double links = in->model == RU_PIPE_PAPER                ? 1
                               : in->model == RU_PIPE_REPO || m < before ? m
                                                                         : before;
                s = fmax(s, o / links / in->compression);
                double out = 2.0 * (double)in->layers[end - 1].activation_bytes / b;
                bool twice = in->model == RU_PIPE_REPO && end < in->n;
                s = twice ? fmax(s, out / m / in->compression) : s;
            }
            try_stages(t, end, left - m, m, fmax(worst, s));
        }
    }
}

static double exhaustive(const ru_pipe_in *in)
{
    trial t = {in, in->levels[0].units, INFINITY};
    for (; t.units > 0; t.units--) {
        try_stages(&t, 0, t.units, 0, 0);
        if (in->model != RU_PIPE_CALIBRATED) {
            break;
        }
    }
    return t.best;
}

/* The least time of the baselines that train alike, each asked for by itself. */
static double best_alike(const ru_pipe_in *in, ru_arena *a, ru_arena *scratch)
{
    static const ru_pipe_method alike[] = {RU_PIPE_SINGLE,  RU_PIPE_DATA_PARALLEL, RU_PIPE_STRAIGHT,
                                           RU_PIPE_IN_TURN, RU_PIPE_HYBRID,        RU_PIPE_GPIPE,
                                           RU_PIPE_FLUSH};
    double best = INFINITY;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(alike); k++) {
        ru_pipe_in q = *in;
        ru_pipe_plan p;
        ru_err err;
        q.method = alike[k];
        if (ru_plan_pipe(&q, a, scratch, &p, &err) == RU_OK) {
            best = fmin(best, p.minibatch_s);
        }
    }
    return best;
}

static void chains_are_optimal(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 31);
    ru_arena a, scratch;
    ru_arena_init(&a, 0);
    ru_arena_init(&scratch, 0);
    uint32_t refused = 0;
    for (uint32_t round = 0; round < 300; round++) {
        small s;
        ru_pipe_plan p;
        ru_err err;
        ru_arena_mark mark = ru_arena_mark_get(&a);
        small_make(&s, &r, true, (ru_pipe_model)(round % 3));
        s.in.memory_bytes = round % 2 == 0 ? 0 : 1e7 + ru_rng_below(&r, 300000000);
        double best = fmin(exhaustive(&s.in), best_alike(&s.in, &a, &scratch));
        ru_status st = ru_plan_pipe(&s.in, &a, &scratch, &p, &err);
        if (isinf(best)) {
            assert_int_equal(st, RU_E_INFEASIBLE);
            refused++;
        } else {
            assert_ok(st, err);
            assert_ok(ru_plan_pipe_check(&s.in, &p, &scratch, &err), err);
            assert_true(fabs(p.minibatch_s - best) <= 1e-9 * best);
        }
        ru_arena_rewind(&a, mark);
    }
    assert_true(refused > 0 && refused < 100);
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

/* Workers of unequal speed: every cut of a chain, for each method that gives a worker a stage. */
static void unequal_workers_are_optimal(void **state)
{
    (void)state;
    static const ru_pipe_method methods[] = {RU_PIPE_STRAIGHT, RU_PIPE_FLUSH, RU_PIPE_GPIPE};
    ru_rng r = ru_rng_from(ru_test_seed(), 33);
    ru_arena a;
    ru_arena_init(&a, 0);
    uint32_t planned = 0;
    for (uint32_t round = 0; round < 300; round++) {
        small s;
        ru_pipe_plan p;
        ru_err err;
        double speeds[6], best = INFINITY;
        small_make(&s, &r, true, (ru_pipe_model)(round % 3));
        uint32_t n = s.levels[0].units, layers = s.in.n;
        s.in.method = methods[round / 3 % 3];
        s.in.memory_bytes = s.in.method != RU_PIPE_STRAIGHT || round % 2 == 0
                                ? 0
                                : 1e7 + ru_rng_below(&r, 300000000);
        s.in.speeds = speeds;
        s.in.n_speeds = n;
        for (uint32_t k = 0; k < n; k++) {
            speeds[k] = 0.25 * (1 + ru_rng_below(&r, 12));
        }
        for (uint32_t cut = 0; cut < 1u << (layers - 1); cut++) { /* bit i: a cut behind layer i */
            double worst = 0, b = s.levels[0].bytes_per_s;
            uint32_t k = 0, first = 0;
            for (uint32_t i = 0; i < layers; i++) {
                bool ends = i + 1 == layers || (cut >> i & 1) != 0;
                if (!ends) {
                    continue;
                }
                bool fits = k < n && stage_fits(&s.in, first, i + 1, 1, n - 1 - k);
                worst = fits ? fmax(worst, stage_s(&s.in, first, i + 1, 1) / speeds[k])
                             : (double)INFINITY;
                if (i + 1 < layers && s.in.compression > 0) {
                    double o = 2.0 * (double)s.layers[i].activation_bytes / b;
                    worst = fmax(worst, o / s.in.compression);
                }
                first = i + 1;
                k++;
            }
            best = k == n ? fmin(best, worst) : best;
        }
        double m = s.in.microbatches;
        best *= s.in.method == RU_PIPE_STRAIGHT ? 1 : (m + n - 1) / m;
        ru_status st = ru_plan_pipe(&s.in, &a, &a, &p, &err);
        assert_int_equal(st, isinf(best) ? RU_E_INFEASIBLE : RU_OK);
        if (st == RU_OK) {
            assert_ok(ru_plan_pipe_check(&s.in, &p, &a, &err), err);
            assert_true(fabs(p.minibatch_s - best) <= 1e-9 * best);
            speeds[n - 1] *= 1.01; /* the plan is of other workers */
            bool zero = p.stages[n - 1].compute_s <= 0;
            assert_true(zero || ru_plan_pipe_check(&s.in, &p, &a, &err) == RU_E_INFEASIBLE);
            planned++;
        }
        s.in.method = RU_PIPE_HYBRID;
        assert_int_equal(ru_plan_pipe(&s.in, &a, &a, &p, &err), RU_E_INFEASIBLE);
        s.in.method = RU_PIPE_PIPELINE; /* the best of those that can be */
        s.in.memory_bytes = 0;
        assert_ok(ru_plan_pipe(&s.in, &a, &a, &p, &err), err);
        assert_ok(ru_plan_pipe_check(&s.in, &p, &a, &err), err);
        assert_true(p.minibatch_s <= p.single_s && p.minibatch_s <= p.data_parallel_s);
    }
    assert_true(planned > 100);
    ru_arena_fini(&a);
}

/* All methods on graphs and two levels: judged, and never better than all workers without a wait.
 */
static void every_method_passes_the_judge(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 32);
    ru_arena a, scratch;
    ru_arena_init(&a, 0);
    ru_arena_init(&scratch, 0);
    for (uint32_t round = 0; round < 600; round++) {
        small s;
        ru_pipe_plan p;
        ru_err err;
        ru_arena_mark mark = ru_arena_mark_get(&a);
        small_make(&s, &r, false, (ru_pipe_model)(round / 2 % 3));
        s.in.n_levels = 1 + round % 2;
        s.in.cuts_max = round % 5 == 0 ? 4 : 4096;
        s.in.method = (ru_pipe_method)(round % RU_PIPE_METHODS);
        uint32_t total = s.levels[0].units * (s.in.n_levels > 1 ? s.levels[1].units : 1);
        if (ru_rng_below(&r, 3) == 0) {
            s.in.memory_bytes = 1e7 + ru_rng_below(&r, 400000000);
        }
        ru_status st = ru_plan_pipe(&s.in, &a, &scratch, &p, &err);
        bool line = s.in.method == RU_PIPE_STRAIGHT && s.in.n_levels > 1; /* too few layers */
        assert_true(st == RU_OK || (st == RU_E_INFEASIBLE && (line || s.in.memory_bytes > 0)));
        if (st == RU_OK) {
            assert_ok(ru_plan_pipe_check(&s.in, &p, &scratch, &err), err);
            assert_true(p.minibatch_s >= p.single_s / total * (1 - 1e-9));
            assert_true(p.workers <= total);
            for (uint32_t k = 0; s.in.memory_bytes > 0 && k < p.n_stages; k++) {
                assert_true(p.stages[k].memory_bytes <= s.in.memory_bytes);
            }
        }
        bool ours = s.in.method == RU_PIPE_PIPELINE && s.in.model == RU_PIPE_CALIBRATED;
        if (st == RU_OK && ours && s.in.memory_bytes <= 0) {
            assert_true(p.minibatch_s <= p.data_parallel_s * (1 + 1e-9));
        }
        ru_arena_rewind(&a, mark);
    }
    ru_arena_fini(&scratch);
    ru_arena_fini(&a);
}

/* A network of four layers on four workers in two hosts, cut where little crosses. */
static small plain(void)
{
    small s = {.layers = {{40000000, 1000, 50000000},
                          {40000000, 2000, 1000},
                          {40000000, 90000000, 50000000},
                          {40000000, 80000000, 1000}},
               .edges = {{0, 1}, {1, 2}, {2, 3}},
               .levels = {{2, 1e9}, {2, 1e8}}};
    s.in = (ru_pipe_in){.n = 4,
                        .n_edges = 3,
                        .n_levels = 2,
                        .compression = 1,
                        .overlap = 1,
                        .state = 1,
                        .memory_bytes = 1e9,
                        .microbatches = 4,
                        .cuts_max = 100};
    return s;
}

#define REFUSED(change)                                                             \
    do {                                                                            \
        ru_pipe_plan q = p;                                                         \
        ru_pipe_stage stages[LAYERS];                                               \
        ru_pipe_part parts[LAYERS];                                                 \
        uint32_t stage_of[LAYERS];                                                  \
        memcpy(stages, p.stages, p.n_stages * sizeof *stages);                      \
        memcpy(parts, p.parts, p.n_parts * sizeof *parts);                          \
        memcpy(stage_of, p.stage_of, p.n_layers * sizeof *stage_of);                \
        q.stages = stages;                                                          \
        q.parts = parts;                                                            \
        q.stage_of = stage_of;                                                      \
        change;                                                                     \
        assert_int_equal(ru_plan_pipe_check(&s.in, &q, &a, &err), RU_E_INFEASIBLE); \
        assert_true(strlen(err.text) > 10);                                         \
    } while (0)

static void the_checker_refuses(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_pipe_plan p;
    small s = plain();
    s.in.layers = s.layers;
    s.in.edges = s.edges;
    s.in.levels = s.levels;
    assert_ok(ru_plan_pipe(&s.in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_pipe_check(&s.in, &p, &a, &err), err);
    assert_true(p.n_stages >= 2 && p.n_parts > p.n_stages);
    REFUSED(q.n_layers--);
    REFUSED(q.n_stages--);
    REFUSED(q.n_stages++);
    REFUSED(q.copies++);
    REFUSED(q.workers--);
    REFUSED(q.in_flight++);
    REFUSED(q.minibatch_s *= 1.000001);
    REFUSED(q.minibatch_s = RU_NAN);
    REFUSED(q.single_s *= 0.99);
    REFUSED(q.data_parallel_s *= 1.01);
    REFUSED(q.n_parts--);
    for (uint32_t i = 0; i < p.n_layers; i++) {
        REFUSED(stage_of[i]++);
        REFUSED(stage_of[i]--);
    }
    for (uint32_t k = 0; k < p.n_stages; k++) {
        REFUSED(stages[k].workers++);
        REFUSED(stages[k].in_flight++);
        REFUSED(stages[k].versions--);
        REFUSED(stages[k].compute_s *= 1.01);
        REFUSED(stages[k].param_bytes += 1);
        REFUSED(stages[k].activation_bytes -= 1);
        REFUSED(stages[k].cut_bytes += 1);
        REFUSED(stages[k].memory_bytes += 1);
    }
    for (uint32_t k = 0; k < p.n_parts; k++) {
        REFUSED(parts[k].level++);
        REFUSED(parts[k].units++);
        REFUSED(parts[k].first++);
        REFUSED(parts[k].end++);
        REFUSED(parts[k].time_s *= 1.01);
    }
    s.in.memory_bytes = p.stages[0].memory_bytes - 1; /* a bound that the plan does not keep */
    assert_int_equal(ru_plan_pipe_check(&s.in, &p, &a, &err), RU_E_INFEASIBLE);
    ru_arena_fini(&a);
}

static void bad_facts_are_refused(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_pipe_plan p;
    const double speeds[] = {1, 0};
    for (uint32_t k = 0; k < 9; k++) {
        small s = plain();
        s.in.layers = s.layers;
        s.in.edges = s.edges;
        s.in.levels = s.levels;
        ru_status want = RU_E_ARG;
        switch (k) {
        case 0:
            s.in.n = 0;
            break;
        case 1:
            s.in.n_levels = 5;
            break;
        case 2:
            s.levels[1].units = 0;
            break;
        case 3:
            s.levels[0].bytes_per_s = RU_NAN;
            break;
        case 4:
            s.edges[0].to = 4;
            break;
        case 5:
            s.edges[0] = (ru_pipe_edge){2, 0}; /* 0 and 1 wait for 2, which waits for 1 */
            s.edges[1] = (ru_pipe_edge){0, 2};
            want = RU_E_INFEASIBLE;
            break;
        case 6:
            s.in.speeds = speeds; /* of one worker too few */
            s.in.n_speeds = 1;
            s.in.n_levels = 1;
            break;
        case 7:
            s.in.speeds = speeds;
            s.in.n_speeds = 2;
            s.in.n_levels = 1;
            break;
        default:
            s.in.memory_bytes = 1000;
            want = RU_E_INFEASIBLE;
            break;
        }
        assert_int_equal(ru_plan_pipe(&s.in, &a, &a, &p, &err), want);
        assert_true(strlen(err.text) > 10);
    }
    ru_arena_fini(&a);
}

/* More cuts than cuts_max: those of one order, and the plan says so. */
static void wide_graphs_are_cut_along_one_order(void **state)
{
    (void)state;
    enum { WIDE = 60 };
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_pipe_plan p;
    ru_pipe_layer layers[WIDE];
    ru_pipe_edge edges[2 * WIDE];
    ru_pipe_level level = {4, 1e10};
    uint32_t n_edges = 0;
    for (uint32_t i = 0; i < WIDE; i++) { /* one layer, 58 beside each other, one that joins them */
        layers[i] = (ru_pipe_layer){1000000, 1000, 1000};
        if (i > 0 && i + 1 < WIDE) {
            edges[n_edges++] = (ru_pipe_edge){0, i};
            edges[n_edges++] = (ru_pipe_edge){i, WIDE - 1};
        }
    }
    const ru_pipe_in in = {.layers = layers,
                           .n = WIDE,
                           .edges = edges,
                           .n_edges = n_edges,
                           .levels = &level,
                           .n_levels = 1,
                           .compression = 1,
                           .overlap = 1,
                           .microbatches = 1,
                           .cuts_max = 500,
                           .method = RU_PIPE_STRAIGHT};
    assert_ok(ru_plan_pipe(&in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_pipe_check(&in, &p, &a, &err), err);
    assert_false(p.all_cuts);
    assert_int_equal(p.n_stages, 4);
    assert_true(fabs(p.minibatch_s - 15e-3) < 1e-9); /* 60 layers of 1 ms on 4 workers */
    ru_arena_fini(&a);
}

RU_TESTS(plan_pipe, cmocka_unit_test(chains_are_optimal),
         cmocka_unit_test(unequal_workers_are_optimal),
         cmocka_unit_test(every_method_passes_the_judge), cmocka_unit_test(the_checker_refuses),
         cmocka_unit_test(bad_facts_are_refused),
         cmocka_unit_test(wide_graphs_are_cut_along_one_order))
