/* What a worker does with sums that are there before the others: the loop's part and the compute
 * thread's, on a step of one worker whose gradients stand for sums. */
#include <string.h>

#include "exec/exe.h"
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
    uint32_t largest;          /* gradient: the weights of the first layer */
    const rui_early_sum *sums; /* given in the step */
    uint32_t n, done, waits;   /* sums; updates made early */
    bool give_up;
    float before[IN * HIDDEN], early[IN * HIDDEN]; /* those weights; early: while the step waits */
} rig;

static void read_weights(const rig *r, float *into)
{
    ru_err err = {0};
    ru_value_id v = ru_graph_find(&r->build.step.graph, "fc1.weight");
    assert_ok(ru_exe_state_read(r->build.exe, v, into, &err), err);
}

/* Sums come, the compute thread looks for them, the verdict follows. */
static ru_status on_await(void *self, const ru_exe_at *at)
{
    (void)at;
    rig *r = self;
    if (r->waits++ > 0) {
        return RU_OK;
    }
    read_weights(r, r->before);
    for (uint32_t k = 0; k < r->n; k++) {
        const rui_early_sum *s = &r->sums[k];
        r->ops.summed(&r->w, 0, s->tensor == UINT32_MAX ? r->largest : s->tensor, s->offset_bytes,
                      s->size_bytes);
    }
    ru_mutex_lock(&r->w.lock);
    while (rui_early_next(&r->w)) {
        r->done++;
    }
    ru_mutex_unlock(&r->w.lock);
    read_weights(r, r->early);
    if (r->give_up) {
        rui_early_undo(&r->w);
        return RU_E_CANCELLED;
    }
    return RU_OK;
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
    rig *r = test_calloc(1, sizeof *r);
    ru_arena_init(&r->arena, 0);
    open_exe(r, clip_norm);
    const ru_exe_grad *g;
    r->w.list.n_tensors = ru_exe_grads(r->build.exe, &g);
    r->build.tensors = RU_NEW(&r->arena, ru_exe_grad, r->w.list.n_tensors);
    for (uint32_t k = 0; k < r->w.list.n_tensors; k++) {
        r->build.tensors[k] = g[k];
        r->largest = g[k].size_bytes == 4 * IN * HIDDEN ? k : r->largest;
    }
    r->job.train.early_update = early_update;
    r->w.t.job = &r->job;
    r->w.arena = &r->arena;
    r->w.now = &r->build;
    ru_mutex_init(&r->w.lock);
    ru_cond_init(&r->w.changed);
    assert_ok(rui_early_open(&r->w, &err), err);
    rui_early_ops(&r->ops);
    const ru_exe_port port = {.fn = on_await, .self = r};
    assert_ok(ru_exe_ports_set(r->build.exe, &port, 1, &err), err);
    return r;
}

static void rig_close(rig *r)
{
    ru_exe_close(r->build.exe);
    ru_cond_fini(&r->w.changed);
    ru_mutex_fini(&r->w.lock);
    ru_arena_fini(&r->arena);
    test_free(r);
}

static ru_status run(rig *r, const rui_early_sum *sums, uint32_t n, bool give_up)
{
    r->sums = sums;
    r->n = n;
    r->done = r->waits = 0;
    r->give_up = give_up;
    return ru_exe_run(r->build.exe, &(ru_run_args){.seed = 1}, NULL);
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
    assert_int_equal(run(r, upper, 1, false), RU_OK);
    assert_int_equal(r->done, 1);
    assert_true(r->w.early.ns > 0);
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
        assert_int_equal(run(r, whole, 1, true), RU_E_CANCELLED);
        assert_true(changed(r->before, r->early, 0, IN * HIDDEN) > 0);
        read_weights(r, after);
        assert_int_equal(changed(r->before, after, 0, IN * HIDDEN), 0);
        rui_early_begin(&r->w);
    }
    rig_close(r);
}

/* What was noted in a step that was given up before it was done is no sum of the next. */
static void a_step_begins_without_sums(void **state)
{
    (void)state;
    rig *r = rig_open(true, 0);
    assert_int_equal(run(r, whole, 1, false), RU_OK);
    r->ops.summed(&r->w, 0, r->largest, 0, 4 * IN * HIDDEN);
    rui_early_begin(&r->w);
    assert_int_equal(run(r, NULL, 0, false), RU_OK);
    assert_int_equal(r->done, 0);
    assert_int_equal(changed(r->before, r->early, 0, IN * HIDDEN), 0);
    rig_close(r);
}

/* Not asked for, or not possible as the update needs all gradients: all is done at the end. */
static void nothing_is_early(void **state)
{
    (void)state;
    for (int clipped = 0; clipped < 2; clipped++) {
        rig *r = rig_open(clipped != 0, clipped != 0 ? 0.5 : 0.0);
        for (int step = 0; step < 2; step++) {
            assert_int_equal(run(r, whole, 1, false), RU_OK);
            assert_int_equal(changed(r->before, r->early, 0, IN * HIDDEN), 0);
            assert_true(r->w.early.off);
            assert_int_equal(r->done, clipped != 0 && step == 0 ? 1 : 0);
            rui_early_begin(&r->w);
        }
        rig_close(r);
    }
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
         cmocka_unit_test(a_step_given_up_takes_updates_back),
         cmocka_unit_test(a_step_begins_without_sums), cmocka_unit_test(nothing_is_early))
