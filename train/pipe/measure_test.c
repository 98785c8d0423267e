/* How the job of measured layers should be trained: against all cuts, by the published formula. */
#include "train/pipe/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "env/file/file.h"
#include "test/test.h"
#include "train/pipe/profile.h"

enum { LAYERS_MAX = 8 };

typedef struct layers {
    ru_pipe_layers l;
    const char *name[LAYERS_MAX];
    int64_t forward[LAYERS_MAX], backward[LAYERS_MAX], update[LAYERS_MAX];
    int64_t params[LAYERS_MAX], cross[LAYERS_MAX];
    bool stats[LAYERS_MAX];
} layers;

static void init(layers *x, uint32_t n, uint32_t micro)
{
    static const char *const names[LAYERS_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    memset(x, 0, sizeof *x);
    memcpy(x->name, names, sizeof names);
    for (uint32_t k = 0; k < n; k++) {
        x->params[k] = 1; /* each layer learns */
    }
    x->l = (ru_pipe_layers){.name = x->name,
                            .n = n,
                            .forward_ns = x->forward,
                            .backward_ns = x->backward,
                            .update_ns = x->update,
                            .param_bytes = x->params,
                            .cross_bytes = x->cross,
                            .stats = x->stats,
                            .micro = micro,
                            .state = 2};
}

static void sides_of(const layers *x, uint32_t k, double side[2])
{
    side[0] = side[1] = 0;
    for (uint32_t i = 0; i < x->l.n; i++) {
        side[i >= k] += 1e-9 * (double)(x->forward[i] + x->backward[i]);
    }
}

/* Two stages cut before layer k: the slower stage or the cut decides, and the pipeline drains. */
static double cut_s(const layers *x, uint32_t k, double bytes_per_s)
{
    double side[2];
    sides_of(x, k, side);
    double cross = 2 * (double)x->cross[k - 1] / bytes_per_s;
    double worst = fmax(fmax(side[0], side[1]), cross);
    return worst * (x->l.micro + 1.0) / x->l.micro;
}

static void two_workers_get_the_best_cut(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(7, 1);
    for (uint32_t round = 0; round < 200; round++) {
        layers x;
        ru_arena arena;
        ru_err err = {0};
        ru_pipe_choice c;
        ru_arena_init(&arena, 0);
        init(&x, 2 + (uint32_t)(ru_rng_u64(&r) % (LAYERS_MAX - 1)), 1 + ru_rng_u64(&r) % 8);
        for (uint32_t i = 0; i < x.l.n; i++) {
            x.forward[i] = 1000 + (int64_t)(ru_rng_u64(&r) % 1000000);
            x.backward[i] = 2 * x.forward[i];
            x.params[i] = (int64_t)(ru_rng_u64(&r) % 1000000);
            x.cross[i] = (int64_t)(ru_rng_u64(&r) % 1000000);
        }
        double b = 1e8 * (1 + (double)(ru_rng_u64(&r) % 40)), best = (double)INFINITY;
        for (uint32_t k = 1; k < x.l.n; k++) {
            best = fmin(best, cut_s(&x, k, b));
        }
        assert_ok(ru_pipe_choose(&x.l, 2, b, &arena, &c, &err), err);
        assert_int_equal(c.n_cut, 1);
        uint32_t k = (uint32_t)(c.cut[0][0] - 'a');
        assert_true(fabs(cut_s(&x, k, b) - best) <= 1e-9 * best);
        /* No list is shorter than what one worker, or one direction of the link, has to do, or
         * longer than all of it one after the other; with one micro-batch it is that. */
        double side[2], sent = (double)x.cross[k - 1] / b, error = 1e-7;
        sides_of(&x, k, side);
        double all = side[0] + side[1] + 2 * sent;
        assert_true(c.pipeline_s >= fmax(fmax(side[0], side[1]), sent) - error);
        assert_true(c.pipeline_s <= all + error);
        assert_true(x.l.micro > 1 || fabs(c.pipeline_s - all) <= error);
        ru_arena_fini(&arena);
    }
}

/* Four equal layers and a free network: a step is (m + d - 1) / m of a stage, and the updates. */
static void the_lists_are_played(void **state)
{
    (void)state;
    layers x;
    ru_arena arena;
    ru_err err = {0};
    ru_pipe_choice c;
    ru_arena_init(&arena, 0);
    init(&x, 4, 8);
    for (uint32_t i = 0; i < 4; i++) {
        x.forward[i] = 8000000;
        x.backward[i] = 16000000;
        x.update[i] = 1000000;
        x.params[i] = 400000000;
    }
    assert_ok(ru_pipe_choose(&x.l, 4, 1e9, &arena, &c, &err), err);
    assert_int_equal(c.n_cut, 3);
    assert_true(fabs(c.pipeline_s - (0.024 * 11 / 8 + 0.001)) < 1e-7);
    for (uint32_t i = 0; i < 3; i++) {
        x.cross[i] = 8000000; /* 125 us a micro-batch */
    }
    double free_s = c.pipeline_s;
    assert_ok(ru_pipe_choose(&x.l, 4, 8e9, &arena, &c, &err), err);
    assert_true(c.pipeline_s >= free_s && c.pipeline_s <= free_s + 8 * 6 * 0.000125 + 1e-7);
    ru_arena_fini(&arena);
}

/* Three stages of 1 ms forward and 1 ms back, activations that take 1 ms on a link, and a parameter
 * of the first and the last one that takes 3: its value goes first, its gradient last. With
 * one micro-batch: F0, value, cut, F1, cut, F2, B2, cut, then B1 and cut beside the gradient, B0.
 */
static void a_shared_parameter_passes_the_stages_between(void **state)
{
    (void)state;
    const ru_pipe_held held = {.from = 0, .to = 2, .value = 1, .bytes = 3000000};
    layers x;
    ru_arena arena;
    ru_err err = {0};
    ru_pipe_choice c;
    ru_arena_init(&arena, 0);
    init(&x, 3, 1);
    for (uint32_t i = 0; i < 3; i++) {
        x.forward[i] = x.backward[i] = 1000000;
        x.cross[i] = i < 2 ? 1000000 + 3000000 : 0;
    }
    x.l.helds = &held;
    x.l.n_helds = 1;
    assert_ok(ru_pipe_choose(&x.l, 3, 1e9, &arena, &c, &err), err);
    assert_int_equal(c.n_cut, 2);
    assert_true(fabs(c.pipeline_s - 0.001 * (1 + 3 + 1 + 1 + 1 + 1 + 1 + 1 + 3 + 1)) < 1e-7);
    ru_arena_fini(&arena);
}

/* Convolutions with few weights before products with many: over a slow network the weights stay
 * where they are, over a fast one each worker has all of them. */
static void the_network_decides(void **state)
{
    (void)state;
    layers x;
    ru_arena arena;
    ru_err err = {0};
    ru_pipe_choice c;
    ru_arena_init(&arena, 0);
    init(&x, 4, 16);
    for (uint32_t i = 0; i < 4; i++) {
        x.forward[i] = 10000000;
        x.backward[i] = 20000000;
        x.params[i] = i < 2 ? 10000 : 400000000;
        x.cross[i] = 100000;
    }
    assert_ok(ru_pipe_choose(&x.l, 2, 12.5e6, &arena, &c, &err), err);
    assert_true(c.pipeline_s < c.data_s && c.n_cut == 1);
    assert_string_equal(c.cut[0], "c");
    assert_true(c.data_s > 10 * c.pipeline_s);
    assert_true(fabs(c.data_s - 800020000 / 12.5e6) < 1e-9); /* a ring of two sends all once */
    assert_ok(ru_pipe_choose(&x.l, 2, 1e12, &arena, &c, &err), err);
    assert_true(c.pipeline_s >= c.data_s);
    assert_true(fabs(c.data_s - 0.06) < 1e-9); /* half of the computation */
    ru_arena_fini(&arena);
}

/* Two layers for three workers: the slow one, which holds little, gets two of them. */
static void a_stage_gets_several_workers(void **state)
{
    (void)state;
    layers x;
    ru_arena arena;
    ru_err err = {0};
    ru_pipe_choice c;
    ru_arena_init(&arena, 0);
    init(&x, 2, 4);
    for (uint32_t i = 0; i < 2; i++) {
        x.forward[i] = i == 0 ? 20000000 : 10000000;
        x.backward[i] = 2 * x.forward[i];
        x.params[i] = i == 0 ? 10000 : 400000000;
        x.cross[i] = 100000;
    }
    assert_ok(ru_pipe_choose(&x.l, 3, 12.5e6, &arena, &c, &err), err);
    assert_true(c.pipeline_s < c.data_s && c.n_cut == 1 && c.workers[0] == 2 && c.workers[1] == 1);
    assert_string_equal(c.cut[0], "b");
    /* 30 ms of both stages, 5 of 4 times, and 10 kB between the two workers. */
    assert_true(fabs(c.pipeline_s - (0.03 * 5 / 4 + 10000 / 12.5e6)) < 1e-9);
    static const ru_pipe_schedule on[] = {RU_PIPE_SCHEDULE_STASH, RU_PIPE_SCHEDULE_VERTICAL,
                                          RU_PIPE_SCHEDULE_2BW};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(on); k++) { /* without draining */
        x.l.schedule = on[k];
        assert_ok(ru_pipe_choose(&x.l, 3, 12.5e6, &arena, &c, &err), err);
        assert_true(c.n_cut == 1 && c.workers[0] == 2 && c.workers[1] == 1);
        assert_true(fabs(c.pipeline_s - (0.03 + 10000 / 12.5e6)) < 1e-9);
    }
    x.l.schedule = RU_PIPE_SCHEDULE_FLUSH;
    x.cross[0] = 400000; /* the cut decides: one worker receives all */
    assert_ok(ru_pipe_choose(&x.l, 3, 12.5e6, &arena, &c, &err), err);
    assert_true(fabs(c.pipeline_s - (0.064 * 5 / 4 + 10000 / 12.5e6)) < 1e-9);
    x.stats[0] = true; /* each of the two would have running statistics of its own */
    assert_ok(ru_pipe_choose(&x.l, 3, 12.5e6, &arena, &c, &err), err);
    assert_int_equal(c.n_cut, 0);
    init(&x, 2, 4); /* the last stage, too ... */
    x.forward[0] = 10000000;
    x.forward[1] = 20000000;
    x.params[0] = 400000000;
    x.params[1] = 10000;
    assert_ok(ru_pipe_choose(&x.l, 3, 12.5e6, &arena, &c, &err), err);
    assert_true(c.n_cut == 1 && c.workers[0] == 1 && c.workers[1] == 2);
    assert_true(fabs(c.pipeline_s - (0.01 * 5 / 4 + 10000 / 12.5e6)) < 1e-9);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(on); k++) { /* ... but of what drains */
        x.l.schedule = on[k];
        assert_ok(ru_pipe_choose(&x.l, 3, 12.5e6, &arena, &c, &err), err);
        assert_int_equal(c.n_cut, 0);
    }
    init(&x, 2, 3); /* three micro-batches for two workers */
    x.forward[0] = 20000000;
    x.forward[1] = 10000000;
    x.params[1] = 400000000;
    assert_ok(ru_pipe_choose(&x.l, 3, 12.5e6, &arena, &c, &err), err);
    assert_int_equal(c.n_cut, 0);
    ru_arena_fini(&arena);
}

/* Whole steps of the shares, sums that the backward part hides, and reading, which is divided. */
static void data_parallel_steps_are_those_of_the_shares(void **state)
{
    (void)state;
    layers x;
    ru_arena arena;
    ru_err err = {0};
    ru_pipe_choice c;
    const ru_pipe_share shares[] = {{1, 100000000, 3, 7}, {4, 30000000, 3, 5}};
    const ru_pipe_share large[] = {{1, 0, 0, -1}, {4, 30000000, 3, 5}};
    ru_arena_init(&arena, 0);
    init(&x, 2, 4);
    x.forward[0] = x.forward[1] = 10000000;
    x.backward[0] = x.backward[1] = 20000000;
    x.l.shares = shares;
    x.l.n_shares = 2;
    x.l.weight_bytes = 1000000;
    assert_ok(ru_pipe_choose(&x.l, 4, 1e7, &arena, &c, &err), err);
    assert_true(fabs(c.single_s - 0.1) < 1e-12 && fabs(c.compute_s - 0.03) < 1e-12);
    assert_true(fabs(c.sum_s - 0.15) < 1e-12); /* 2 * 3 / 4 of a megabyte */
    assert_true(fabs(c.data_s - (0.01 + 0.15)) < 1e-9);
    assert_ok(ru_pipe_choose(&x.l, 4, 1e9, &arena, &c, &err), err);
    assert_true(fabs(c.data_s - 0.03) < 1e-12); /* hidden */
    x.l.read_ns = 400000000;
    assert_ok(ru_pipe_choose(&x.l, 4, 1e9, &arena, &c, &err), err);
    assert_true(fabs(c.data_s - 0.1) < 1e-12 && fabs(c.single_s - 0.4) < 1e-12);
    x.l.shares = large; /* of one worker nothing is known: it did not fit */
    c = (ru_pipe_choice){0};
    ru_pipe_data(&x.l, 4, 1e9, &c);
    assert_true(c.single_s == 0 && fabs(c.data_s - 0.1) < 1e-12);
    x.l.n = 0; /* a model that cannot be cut */
    assert_ok(ru_pipe_choose(&x.l, 4, 1e9, &arena, &c, &err), err);
    assert_true(c.n_cut == 0 && fabs(c.data_s - 0.1) < 1e-12);
    ru_arena_fini(&arena);
}

/* -- what facts tell of the sums of micro-batches -----------------------------------------------
 */

typedef struct told {
    ru_arena arena;
    char dir[64];
    ru_pipe_layers l;
} told;

/* A type on which only the sums of these tensors [n] were timed, ns each; together they were the
 * step, so that a step takes what its ops take. */
static const char *facts_of(told *t, const char *const *shapes, const int64_t *ns, uint32_t n)
{
    const char *path = ru_path_join(&t->arena, t->dir, "facts.json");
    ru_text y = ru_text_arena(&t->arena);
    ru_err err = {0};
    int64_t all = 0;
    ru_text_putf(&y, "{\"schema\": \"rubato.world/1\", \"profiled\": %d, \"facts\": {\"ops\": [",
                 RU_PROFILE_VERSION);
    for (uint32_t k = 0; k < n; k++) {
        const char *x = shapes[k];
        ru_text_putf(&y,
                     "%s{\"step\": %u, \"op\": \"AddInto\", \"kernel\": \"kern map2\", \"shapes\": "
                     "\"%s %s > %s\", \"device_type\": \"t\", \"flops\": 60, \"bytes\": 720, "
                     "\"took\": {\"count\": 3, \"mean_ns\": %lld, \"min_ns\": %lld}}",
                     k > 0 ? ", " : "", k, x, x, x, (long long)ns[k], (long long)ns[k]);
        all += ns[k];
    }
    ru_text_putf(&y,
                 "], \"steps\": [{\"job\": \"other\", \"workers\": 1, \"batch\": 8, "
                 "\"compute_ns\": %lld, \"took\": {\"count\": 3, \"mean_ns\": %lld}}]}}",
                 (long long)all, (long long)all);
    assert_ok(ru_file_replace(path, y.p, y.n, &err), err);
    return path;
}

static void ask_facts(told *t, uint32_t micro, const char *facts)
{
    static const char text[] =
        "name: t\n"
        "model: {zoo: mlp, hidden: [6]}\n"
        "data: {format: synthetic, generator: digits, count: 16}\n"
        "train: {batch: 8, steps: 1, threads: 1, optimizer: {sgd: {lr: 1}}}\n";
    const char *path = ru_path_join(&t->arena, t->dir, "job.yaml");
    ru_job *job = RU_NEW(&t->arena, ru_job, 1);
    ru_err err = {0};
    assert_ok(ru_file_replace(path, text, (int64_t)strlen(text), &err), err);
    assert_ok(ru_job_load(path, NULL, 0, &t->arena, job, NULL, &err), err);
    job->train.accumulate = micro;
    job->train.pipeline.facts = facts;
    job->train.pipeline.type = "t";
    assert_ok(ru_pipe_measure(job, 1, NULL, 0, &t->arena, &t->l, &err), err);
    assert_int_equal(t->l.n, 2);
}

/* A part back is told as two thirds of a micro-batch; what is more are the sums of the gradients
 * of the layer, once for each micro-batch, and none where the step has one. */
static void sums_of_micro_batches_are_told(void **state)
{
    (void)state;
    static const char *const shapes[] = {"f32[6,784]", "f32[6]", "f32[10,6]", "f32[10]"};
    const int64_t ns[] = {400000, 10000, 70000, 15000}, of[] = {410000, 85000};
    told t;
    ru_err err;
    ru_arena_init(&t.arena, 0);
    (void)snprintf(t.dir, sizeof t.dir, "/tmp/rubato-test-XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    const char *facts = facts_of(&t, shapes, ns, 4);
    for (uint32_t micro = 1; micro <= 4; micro *= 2) {
        ask_facts(&t, micro, facts);
        for (uint32_t k = 0; k < 2; k++) {
            int64_t more = t.l.backward_ns[k] - 2 * t.l.forward_ns[k];
            int64_t sums = micro > 1 ? micro * of[k] : 0;
            if (llabs((long long)(more - sums)) > 3) { /* rounded thirds */
                fail_msg("layer %u, %u micro-batches: sums of %lld ns, not of %lld", k, micro,
                         (long long)more, (long long)sums);
            }
        }
    }
    (void)!ru_path_remove(t.dir, &err);
    ru_arena_fini(&t.arena);
}

RU_TESTS(train_measure, cmocka_unit_test(the_lists_are_played),
         cmocka_unit_test(a_shared_parameter_passes_the_stages_between),
         cmocka_unit_test(sums_of_micro_batches_are_told),
         cmocka_unit_test(a_stage_gets_several_workers),
         cmocka_unit_test(two_workers_get_the_best_cut), cmocka_unit_test(the_network_decides),
         cmocka_unit_test(data_parallel_steps_are_those_of_the_shares))
