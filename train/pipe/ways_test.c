/* All ways of a job side by side: what is said to fit fits, and less memory never takes more. */
#include "train/pipe/ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/file/file.h"
#include "store/onnx_file.h"
#include "test/test.h"
#include "world/graph/build.h"

static const char text[] = "name: t\n"
                           "model: {zoo: mlp, hidden: [64, 32, 16]}\n"
                           "data: {format: synthetic, generator: digits, count: 16}\n"
                           "train: {batch: 8, accumulate: 4, steps: 1, threads: 1}\n";

static void load(const char *dir, ru_arena *arena, ru_job *job)
{
    ru_err err = {0};
    const char *path = ru_path_join(arena, dir, "job.yaml");
    assert_ok(ru_file_replace(path, text, (int64_t)strlen(text), &err), err);
    assert_ok(ru_job_load(path, NULL, 0, arena, job, NULL, &err), err);
}

static const ru_way *way_of(const ru_way *at, uint32_t n, ru_way_kind kind)
{
    for (uint32_t k = 0; k < n; k++) {
        if (at[k].kind == kind) {
            return &at[k];
        }
    }
    return NULL;
}

/* A job, and what is written for it in a folder of its own. */
static void begin(char *dir, ru_arena *arena, ru_job *job)
{
    ru_arena_init(arena, 0);
    assert_non_null(mkdtemp(dir));
    load(dir, arena, job);
}

static void end(const char *dir, ru_arena *arena)
{
    ru_err err;
    (void)!ru_path_remove(dir, &err);
    ru_arena_fini(arena);
}

static void memory_bounds_the_ways(void **state)
{
    (void)state;
    const uint32_t two = 2;
    char dir[] = "/tmp/rubato-test-XXXXXX";
    ru_arena arena;
    ru_err err = {0};
    ru_job job;
    ru_ways w;
    ru_way all[RU_WAY_KINDS], some[RU_WAY_KINDS];
    uint32_t n, m;
    begin(dir, &arena, &job);
    assert_ok(ru_ways_open(&job, NULL, true, 1, &two, 1, &arena, &w, &err), err);
    assert_ok(ru_ways_list(&w, 1, 1e9, 0, all, &n, &err), err);
    assert_int_equal(n, 1);
    assert_int_equal(all[0].kind, RU_WAY_SINGLE);
    assert_ok(ru_ways_list(&w, 2, 1e9, 0, all, &n, &err), err);
    const ru_way *flush = way_of(all, n, RU_WAY_FLUSH), *gpipe = way_of(all, n, RU_WAY_GPIPE);
    assert_non_null(way_of(all, n, RU_WAY_DATA));
    assert_non_null(way_of(all, n, RU_WAY_PLACED));
    assert_null(way_of(all, n, RU_WAY_STASH)); /* late gradients are not allowed */
    assert_true(flush->same && !gpipe->same);
    for (uint32_t k = 0; k < n; k++) {
        assert_true(all[k].fits && all[k].memory_bytes > 0 && all[k].step_s > 0);
    }
    w.layers.read_ns = 400000000; /* no step is shorter; data-parallel workers divide it */
    assert_ok(ru_ways_list(&w, 2, 1e9, 0, some, &m, &err), err);
    assert_true(way_of(some, m, RU_WAY_DATA)->step_s >= 0.2);
    assert_true(way_of(some, m, RU_WAY_FLUSH)->step_s >= 0.4);
    assert_true(way_of(some, m, RU_WAY_PLACED)->step_s >= 0.4);
    for (int64_t memory = flush->memory_bytes; memory > 1000; memory /= 2) {
        assert_ok(ru_ways_list(&w, 2, 1e9, memory, some, &m, &err), err);
        for (uint32_t k = 0; k < m; k++) {
            assert_int_equal(some[k].fits, some[k].memory_bytes <= memory);
        }
    }
    for (uint32_t k = 0; k < m; k++) {
        assert_false(some[k].fits);
    }
    ru_ways_close(&w);
    end(dir, &arena);
}

/* With test data each stage has its part of the model once more, and pieces of less than 4 KiB;
 * data parallel the leader shares the state. */
static void evaluations_count(void **state)
{
    (void)state;
    const uint32_t two = 2;
    char dir[] = "/tmp/rubato-test-XXXXXX";
    ru_arena arena;
    ru_err err = {0};
    ru_job job;
    ru_ways w;
    ru_way all[RU_WAY_KINDS];
    int64_t data = 0;
    uint32_t n;
    begin(dir, &arena, &job);
    for (uint32_t turn = 0; turn < 2; turn++) {
        job.data.test_count = turn == 0 ? 0 : 16;
        assert_ok(ru_ways_open(&job, NULL, false, 1, &two, 1, &arena, &w, &err), err);
        assert_ok(ru_ways_list(&w, 2, 1e9, 0, all, &n, &err), err);
        assert_true((w.eval_bytes > 0) == (turn == 1));
        int64_t now = way_of(all, n, RU_WAY_DATA)->memory_bytes;
        assert_true(turn == 0 || now == data + w.eval_bytes - w.eval_state_bytes);
        data = now;
        ru_ways plain = w; /* the same cut without evaluations */
        plain.eval_bytes = 0;
        now = way_of(all, n, RU_WAY_FLUSH)->memory_bytes;
        assert_ok(ru_ways_list(&plain, 2, 1e9, 0, all, &n, &err), err);
        int64_t less = way_of(all, n, RU_WAY_FLUSH)->memory_bytes;
        assert_true(turn == 0 ? now == less : now > less && now < less + w.eval_bytes + 4096);
        ru_ways_close(&w);
    }
    end(dir, &arena);
}

/* Why a pipeline and a placed step are left out. */
static void what_stands_against_is_told(void **state)
{
    (void)state;
    const uint32_t two = 2;
    char dir[] = "/tmp/rubato-test-XXXXXX";
    ru_arena arena;
    ru_err err = {0};
    ru_job job;
    ru_ways w;
    ru_way all[RU_WAY_KINDS];
    uint32_t n;
    begin(dir, &arena, &job);
    assert_ok(ru_ways_open(&job, "sings", true, 1, &two, 1, &arena, &w, &err), err);
    assert_string_equal(w.no_pipeline, "a pipeline sings");
    assert_ok(ru_ways_list(&w, 2, 1e9, 0, all, &n, &err), err);
    assert_int_equal(n, 1);
    ru_ways_close(&w);
    job.train.pipeline.stale = true;
    assert_ok(ru_ways_open(&job, NULL, true, 1, &two, 1, &arena, &w, &err), err);
    assert_null(w.no_pipeline);
    assert_string_equal(w.no_placed, "train.stale is for pipelines");
    ru_ways_close(&w);
    end(dir, &arena);
}

/* A file whose model takes 8 samples alone: two products. */
static void save_fixed(const char *path, ru_arena *arena)
{
    enum { SIDE = 28, HIDDEN = 16, CLASSES = 10 };
    const int64_t x[] = {8, 1, SIDE, SIDE}, in[] = {SIDE * SIDE, HIDDEN}, out[] = {HIDDEN, CLASSES};
    static float weights[SIDE * SIDE * HIDDEN];
    const ru_onnx_write_options opt = {0};
    ru_graph g;
    ru_build b;
    ru_err err = {0};
    assert_ok(ru_graph_init(&g, arena, "fixed", &err), err);
    ru_build_init(&b, &g);
    ru_value_id v = ru_build_input(&b, "x", ru_type_make(RU_F32, 4, x));
    v = ru_build_op1(&b, RU_OP_Flatten, v, (ru_attr[]){RU_AI(axis, 1), RU_A_END});
    v = ru_build_op2(&b, RU_OP_MatMul, v,
                     ru_build_param(&b, "a.weight", ru_type_make(RU_F32, 2, in), weights), NULL);
    v = ru_build_op1(&b, RU_OP_Relu, v, NULL);
    v = ru_build_op2(&b, RU_OP_MatMul, v,
                     ru_build_param(&b, "b.weight", ru_type_make(RU_F32, 2, out), weights), NULL);
    ru_build_output(&b, v, "logits");
    assert_ok(ru_build_finish(&b, &err), err);
    assert_ok(ru_onnx_file_save(path, &g, &opt, NULL, &err), err);
}

/* Stages take the batch of the model; data-parallel workers cannot. */
static void a_fixed_batch_is_not_divided(void **state)
{
    (void)state;
    const uint32_t two = 2;
    char dir[] = "/tmp/rubato-test-XXXXXX";
    ru_arena arena;
    ru_err err = {0};
    ru_job job;
    ru_ways w;
    ru_way all[RU_WAY_KINDS];
    uint32_t n;
    begin(dir, &arena, &job);
    job.model.onnx = ru_path_join(&arena, dir, "fixed.onnx");
    job.model.source = RU_MODEL_ONNX;
    job.train.accumulate = 1;
    save_fixed(job.model.onnx, &arena);
    assert_ok(ru_ways_open(&job, NULL, true, 1, &two, 1, &arena, &w, &err), err);
    assert_ok(ru_ways_list(&w, 2, 1e9, 0, all, &n, &err), err);
    const ru_way *data = way_of(all, n, RU_WAY_DATA), *flush = way_of(all, n, RU_WAY_FLUSH);
    assert_int_equal(data->memory_bytes, RU_PIPE_FIXED_BATCH);
    assert_false(data->fits);
    assert_true(flush->fits && flush->step_s > 0 && flush->c.n_cut == 1);
    assert_true(flush->c.single_s > 0); /* one worker has the whole batch */
    ru_ways_close(&w);
    end(dir, &arena);
}

/* By hand: what is not 5 % faster than data parallel is not taken. */
static void little_gain_is_not_taken(void **state)
{
    (void)state;
    enum { DATA, FLUSH, GPIPE, PLACED, NONE };
    static const struct {
        double step_s[4];
        uint32_t fits; /* bits */
        bool pipeline;
        int best;
    } cases[] = {
        {{1, 0.96, 0.1, 0.953}, 15, false, DATA},  {{1, 0.951, 0.1, 2}, 15, false, FLUSH},
        {{1, 0.96, 0.1, 0.95}, 15, false, PLACED}, {{1, 0.9, 0.1, 0.89}, 15, false, PLACED},
        {{1, 0.9, 0.1, 0.91}, 15, false, FLUSH},   {{1, 1, 0.1, 1}, 15, false, DATA},
        {{1, 3, 0.1, 2.99}, 14, false, PLACED},    {{1, 3, 0.1, 2}, 6, false, FLUSH},
        {{1, 3, 0.1, 2}, 15, true, FLUSH},         {{1, 3, 0.1, 2}, 13, true, NONE},
        {{1, 3, 0.1, 2}, 4, false, NONE},
    };
    static const char *const cut[] = {"fc2"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        static const ru_way_kind kinds[] = {RU_WAY_DATA, RU_WAY_FLUSH, RU_WAY_GPIPE, RU_WAY_PLACED};
        ru_way at[RU_ARRAY_LEN(kinds)] = {0};
        for (uint32_t i = 0; i < RU_ARRAY_LEN(at); i++) {
            bool pipeline = kinds[i] == RU_WAY_FLUSH || kinds[i] == RU_WAY_GPIPE;
            at[i].kind = kinds[i];
            at[i].step_s = cases[k].step_s[i];
            at[i].same = kinds[i] != RU_WAY_GPIPE;
            at[i].fits = (cases[k].fits >> i & 1) != 0;
            at[i].c = (ru_pipe_choice){.cut = cut, .n_cut = pipeline ? 1 : 0};
        }
        const ru_way *best = ru_ways_best(at, RU_ARRAY_LEN(at), cases[k].pipeline);
        assert_ptr_equal(best, cases[k].best == NONE ? NULL : &at[cases[k].best]);
    }
}

RU_TESTS(train_ways, cmocka_unit_test(a_fixed_batch_is_not_divided),
         cmocka_unit_test(little_gain_is_not_taken), cmocka_unit_test(memory_bounds_the_ways),
         cmocka_unit_test(evaluations_count), cmocka_unit_test(what_stands_against_is_told))
