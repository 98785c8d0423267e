/* What a worker does with sums that are there before the others: the loop's part and the compute
 * thread's, on a step of one worker whose gradients stand for sums. */
#include <stdlib.h>
#include <string.h>

#include "exec/update.h"
#include "test/test.h"
#include "train/model/zoo.h"
#include "train/worker/worker_impl.h"

enum { IN = 300, HIDDEN = 200, BATCH = 4, LOWER = 2 * 16384 };

typedef struct rig {
    ru_arena arena;
    ru_job job;
    rui_build build;
    rui_worker w;
    ru_elastic_device_ops ops;
    uint32_t largest;                              /* gradient: the weights of the first layer */
    uint32_t done;                                 /* updates made early */
    float before[IN * HIDDEN], early[IN * HIDDEN]; /* those weights; early: while the step waits */
} rig;

static void read_weights(const rig *r, float *into)
{
    ru_err err = {0};
    ru_value_id v = ru_graph_find(&r->build.step.graph, "fc1.weight");
    assert_ok(ru_exe_state_read(r->build.exe, v, into, &err), err);
}

static void open_exe(rig *r, double clip_norm)
{
    ru_err err = {0};
    ru_graph model;
    ru_zoo_model zoo;
    static const int64_t hidden[] = {HIDDEN};
    ru_zoo_options zo = {
        .classes = 3, .input = {IN}, .input_rank = 1, .hidden = hidden, .hidden_n = 1};
    ru_step_options so = {.loss = RU_LOSS_CROSS_ENTROPY,
                          .optimizer = {.kind = RU_OPTIMIZER_SGD, .momentum = 0.9},
                          .batch = BATCH,
                          .clip_norm = clip_norm,
                          .x = ru_type_make(RU_F32, 1, (int64_t[]){IN}),
                          .y = ru_type_make(RU_I64, 0, NULL)};
    assert_ok(ru_graph_init(&model, &r->arena, "mlp", &err), err);
    assert_ok(ru_zoo_build("mlp", &zo, true, &model, &zoo, &err), err);
    assert_ok(ru_step_build(&model, &so, &r->arena, &r->build.step, &err), err);
    ru_exe_options eo = {.threads = 1, .two_phase = true};
    assert_ok(ru_exe_open(&r->build.step.graph, &eo, &r->build.exe, &err), err);
    for (uint32_t k = 0; k < zoo.n_inits; k++) {
        const ru_value *v = ru_graph_value(&model, zoo.inits[k].param);
        int64_t n = ru_type_count(&v->type);
        float *data = RU_NEW(&r->arena, float, n);
        ru_init_fill(&zoo.inits[k], 5, k, n, data);
        ru_value_id in_step = ru_graph_find(&r->build.step.graph, v->name);
        assert_ok(ru_exe_state_write(r->build.exe, in_step, data, &err), err);
    }
    float *x = ru_exe_input(r->build.exe, r->build.step.x[0]);
    for (int64_t i = 0; i < BATCH * IN; i++) {
        x[i] = (float)(i % 17) - 8.0f;
    }
    *(float *)ru_exe_input(r->build.exe, r->build.step.lr) = 0.5f;
}

static rig *rig_open(bool early_update, double clip_norm)
{
    ru_err err = {0};
    rig *r = aligned_alloc(_Alignof(rig), sizeof *r); /* its rings stand on lines of their own */
    assert_non_null(r);
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    open_exe(r, clip_norm);
    const ru_exe_grad *g;
    r->w.list.n_tensors = ru_exe_grads(r->build.exe, &g);
    r->build.tensors = RU_NEW(&r->arena, ru_exe_grad, r->w.list.n_tensors);
    r->w.list.tensor_bytes = RU_NEW(&r->arena, int64_t, r->w.list.n_tensors);
    for (uint32_t k = 0; k < r->w.list.n_tensors; k++) {
        r->build.tensors[k] = g[k];
        r->w.list.tensor_bytes[k] = g[k].size_bytes;
        r->largest = g[k].size_bytes == 4 * IN * HIDDEN ? k : r->largest;
    }
    r->job.train.early_update = early_update;
    r->w.t.job = &r->job;
    r->w.arena = &r->arena;
    r->w.now = &r->build;
    ru_mutex_init(&r->w.lock);
    ru_cond_init(&r->w.changed);
    r->w.cmd.members = 2;
    assert_ok(rui_early_open(&r->w, &err), err);
    rui_early_ops(&r->ops);
    rui_early_ready(&r->w, &r->build);
    return r;
}

static void rig_close(rig *r)
{
    ru_exe_close(r->build.exe);
    ru_cond_fini(&r->w.changed);
    ru_mutex_fini(&r->w.lock);
    ru_arena_fini(&r->arena);
    free(r);
}

/* Gradients; sums come, the compute thread looks for them, the verdict follows. */
static void run(rig *r, const rui_early_sum *sums, uint32_t n, bool give_up)
{
    ru_err err = {0};
    ru_exe *e = r->build.exe;
    const ru_run_args args = {.seed = 1};
    r->done = 0;
    assert_ok(ru_exe_phase(e, RU_PHASE_GRADIENTS, &args, &err), err);
    read_weights(r, r->before);
    for (uint32_t k = 0; k < n; k++) {
        r->ops.summed(&r->w, 0, sums[k].tensor == UINT32_MAX ? r->largest : sums[k].tensor,
                      sums[k].offset_bytes, sums[k].size_bytes);
    }
    ru_mutex_lock(&r->w.lock);
    assert_false(rui_early_next(&r->w)); /* none is open */
    ru_mutex_unlock(&r->w.lock);
    assert_ok(r->build.early ? ru_exe_update_open(e, &args, &err) : RU_OK, err);
    ru_mutex_lock(&r->w.lock);
    while (rui_early_next(&r->w)) {
        r->done++;
    }
    rui_early_clear(&r->w);
    ru_mutex_unlock(&r->w.lock);
    read_weights(r, r->early);
    if (give_up) {
        ru_exe_early_undo(e);
    } else {
        assert_ok(r->build.early ? ru_exe_update_keep(e, &err)
                                 : ru_exe_phase(e, RU_PHASE_UPDATE, &args, &err),
                  err);
    }
}

/* Weights [begin, end) that differ between two copies. */
static uint32_t changed(const float *a, const float *b, uint32_t begin, uint32_t end)
{
    uint32_t n = 0;
    for (uint32_t i = begin; i < end; i++) {
        n += memcmp(&a[i], &b[i], sizeof a[i]) != 0 ? 1 : 0;
    }
    return n;
}

/* The weights from the third block on of those that are updated together. */
static const rui_early_sum upper[] = {{UINT32_MAX, 4 * LOWER, 4 * (IN * HIDDEN - LOWER)}};
static const rui_early_sum whole[] = {{UINT32_MAX, 0, 4 * IN *HIDDEN}};

static void sums_are_updated_where_they_are(void **state)
{
    (void)state;
    rig *r = rig_open(true, 0);
    run(r, upper, 1, false);
    assert_int_equal(r->done, 1);
    assert_true(r->w.at.made_ns > 0);
    assert_int_equal(changed(r->before, r->early, 0, LOWER), 0);
    assert_true(changed(r->before, r->early, LOWER, IN * HIDDEN) > 0);
    float after[IN * HIDDEN];
    read_weights(r, after);
    assert_int_equal(changed(r->early, after, LOWER, IN * HIDDEN), 0);
    assert_true(changed(r->early, after, 0, LOWER) > 0);
    rig_close(r);
}

static void a_step_given_up_takes_updates_back(void **state)
{
    (void)state;
    rig *r = rig_open(true, 0);
    float after[IN * HIDDEN];
    for (int step = 0; step < 2; step++) {
        run(r, whole, 1, true);
        assert_true(changed(r->before, r->early, 0, IN * HIDDEN) > 0);
        read_weights(r, after);
        assert_int_equal(changed(r->before, after, 0, IN * HIDDEN), 0);
    }
    rig_close(r);
}

/* Not asked for, or not possible as the update needs all gradients: all is done at the end. */
static void nothing_is_early(void **state)
{
    (void)state;
    for (int clipped = 0; clipped < 2; clipped++) {
        rig *r = rig_open(clipped != 0, clipped != 0 ? 0.5 : 0.0);
        assert_false(r->build.early);
        assert_int_equal(r->w.early.told, clipped);
        for (int step = 0; step < 2; step++) {
            run(r, whole, 1, false);
            assert_int_equal(changed(r->before, r->early, 0, IN * HIDDEN), 0);
            assert_int_equal(r->done, 0);
        }
        rig_close(r);
    }
}

/* What the leader measures of step 8 when sums come in that order; taken back. */
static double squares_of(rig *r, const rui_early_sum *sums, uint32_t n)
{
    ru_err err = {0};
    const ru_run_args args = {.seed = 1};
    const rui_turn turn = {.leads = true, .step = 8, .share = {.n = 1, .batch = 2}};
    r->w.d.ran[0].turn = turn;
    r->w.noise.sum_step = -1;
    assert_ok(ru_exe_phase(r->build.exe, RU_PHASE_GRADIENTS, &args, &err), err);
    assert_ok(ru_exe_update_open(r->build.exe, &args, &err), err);
    for (uint32_t k = 0; k < n; k++) {
        r->ops.summed(&r->w, 8, sums[k].tensor, sums[k].offset_bytes, sums[k].size_bytes);
    }
    ru_mutex_lock(&r->w.lock);
    while (rui_early_next(&r->w)) {
    }
    ru_mutex_unlock(&r->w.lock);
    rui_noise_commit(&r->w, &turn);
    assert_int_equal(r->w.noise.all_step, 8);
    rui_early_clear(&r->w);
    ru_exe_early_undo(r->build.exe);
    return r->w.noise.all;
}

/* With --deterministic the noise has the same bits however sums are cut and in whatever order they
 * come. */
static void noise_does_not_depend_on_the_order_of_sums(void **state)
{
    (void)state;
    ru_err err = {0};
    rig *r = rig_open(true, 0);
    const ru_worker_options opt = {.deterministic = true};
    rui_early_sum sums[16];
    double first = 0;
    r->w.opt = &opt;
    assert_ok(rui_noise_open(&r->w, &err), err);
    for (uint32_t cut = 1; cut < 8; cut++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k + 1 < r->w.list.n_tensors; k++) {
            int64_t bytes = r->w.list.tensor_bytes[k], at = k == r->largest ? 4 * 777 * cut : 0;
            sums[n++] = (rui_early_sum){k, at, bytes - at};
            sums[n++] = (rui_early_sum){k, 0, at};
            n -= at == 0;
        }
        double is = squares_of(r, sums, n);
        first = cut == 1 ? is : first;
        assert_true(is > 0 && memcmp(&is, &first, sizeof is) == 0);
    }
    rui_noise_close(&r->w);
    rig_close(r);
}

/* Two steps under way: as the job says, with others, and when the update can be open. */
static void depth_says_why(void **state)
{
    (void)state;
    rig *r = rig_open(true, 0);
    const char *why = NULL;
    assert_true(rui_early_two(&r->w, &why) && why == NULL);
    r->build.two = true;
    rui_early_ready(&r->w, &r->build);
    assert_int_equal(r->ops.depth(&r->w, &why), 2);
    r->job.train.barrier = RU_BARRIER_ALWAYS;
    assert_false(rui_early_two(&r->w, &why));
    assert_string_equal(why, "train.barrier is always");
    r->job.train.barrier = RU_BARRIER_AUTO;
    r->w.cmd.members = 1;
    assert_false(rui_early_two(&r->w, &why));
    assert_string_equal(why, "the step was made for one worker alone");
    rig_close(r);
    r = rig_open(true, 0.5);
    r->build.two = true;
    rui_early_ready(&r->w, &r->build);
    assert_int_equal(r->ops.depth(&r->w, &why), 1);
    assert_string_equal(why, "the update needs all gradients at once");
    rig_close(r);
}

/* What training can do without may take half of the free memory and not a byte more; where nobody
 * knows what is free, it is taken. A step that needs more waits for all sums. */
static void half_of_the_free_memory_is_the_most(void **state)
{
    (void)state;
    static const struct {
        int64_t needed, free;
        bool may;
    } rows[] = {{0, 0, true},
                {1, 0, false},
                {1, 1, false},
                {1, 2, true},
                {500, 1000, true},
                {501, 1000, false},
                {500, 1001, true},
                {501, 1001, false},
                {501, 1002, true},
                {INT64_MAX, -1, true},
                {INT64_MAX / 2, INT64_MAX, true},
                {INT64_MAX / 2 + 1, INT64_MAX, false}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        assert_int_equal(rui_early_may(rows[k].needed, rows[k].free), rows[k].may);
    }
    rig *r = rig_open(true, 0);
    const char *why = NULL;
    int64_t *bytes = &r->w.list.tensor_bytes[r->largest], was = *bytes;
    *bytes = INT64_C(1) << 60;
    assert_false(rui_early_two(&r->w, &why));
    assert_string_equal(why, "gradients and what can be taken back need more than half of the free "
                             "memory");
    *bytes = was;
    assert_true(rui_early_two(&r->w, &why) && why == NULL);
    rig_close(r);
}

static void assert_made(rig *r, uint32_t tensor, uint32_t first, uint32_t n)
{
    ru_elastic_part p = rui_buckets_ready(&r->w, tensor);
    assert_int_equal(p.n, n);
    assert_int_equal(n > 0 ? p.first : first, first);
}

/* Gradients become ready in any order; 2 is cut into two buckets, 3 and 4 are one. */
static void the_last_gradient_of_a_bucket_tells_of_it(void **state)
{
    (void)state;
    ru_err err = {0};
    rig *r = rig_open(true, 0);
    rui_buckets *b = &r->w.buckets;
    static const ru_elastic_part plan[] = {{.first = 0, .n = 2},
                                           {.first = 2, .n = 1, .size_bytes = 8},
                                           {.first = 2, .n = 1, .offset_bytes = 8, .size_bytes = 8},
                                           {.first = 3, .n = 2}};
    r->w.list.n_tensors = 6;
    assert_ok(rui_buckets_open(&r->w, &err), err);
    rui_buckets_begin(&r->w);
    assert_made(r, 1, 1, 1); /* no plan yet */
    memcpy(b->planned, plan, sizeof plan);
    b->n_planned = RU_ARRAY_LEN(plan);
    b->changed = true;
    assert_made(r, 0, 0, 1); /* planned while a step was under way */
    for (int step = 0; step < 3; step++) {
        rui_buckets_begin(&r->w);
        assert_made(r, 4, 0, 0);
        assert_made(r, 1, 0, 0);
        if (step == 1) {
            continue; /* it is given up */
        }
        assert_made(r, 2, 2, 1);
        assert_made(r, 3, 3, 2);
        assert_made(r, 0, 0, 2);
        assert_made(r, 5, 5, 1); /* in none: not known */
    }
    rig_close(r);
}

RU_TESTS(train_worker_early, cmocka_unit_test(the_last_gradient_of_a_bucket_tells_of_it),
         cmocka_unit_test(sums_are_updated_where_they_are),
         cmocka_unit_test(a_step_given_up_takes_updates_back), cmocka_unit_test(depth_says_why),
         cmocka_unit_test(half_of_the_free_memory_is_the_most),
         cmocka_unit_test(noise_does_not_depend_on_the_order_of_sums),
         cmocka_unit_test(nothing_is_early))
