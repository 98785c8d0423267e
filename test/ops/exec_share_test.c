/* Executables that share state: twins for inference, evaluation beside training, micro-batches in
 * flight. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exe.h"
#include "test/test.h"
#include "train/model/step.h"
#include "train/model/zoo.h"

enum { CLASSES = 5 };

/* A network with batch norm, so that evaluation reads statistics that training updates. */
typedef struct rig {
    ru_arena arena;
    ru_zoo_model zoo;
    ru_graph model;
    ru_step_graph step;
    ru_exe *exe;
} rig;

static const ru_zoo_options options = {
    .classes = CLASSES, .width = 16, .input = {3, 32, 32}, .input_rank = 3};

static void build(rig *r, bool train, int64_t batch, int64_t share_of)
{
    ru_err err = {0};
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    const ru_step_options so = {.loss = RU_LOSS_CROSS_ENTROPY,
                                .optimizer = {.kind = RU_OPTIMIZER_SGD, .momentum = 0.9},
                                .batch = batch,
                                .share_of = share_of,
                                .x = ru_type_make(RU_F32, 3, options.input),
                                .y = ru_type_scalar(RU_I64)};
    assert_ok(ru_graph_init(&r->model, &r->arena, "resnet18", &err), err);
    assert_ok(ru_zoo_build("resnet18", &options, train, &r->model, &r->zoo, &err), err);
    assert_ok(train ? ru_step_build(&r->model, &so, &r->arena, &r->step, &err)
                    : ru_step_build_eval(&r->model, &so, &r->arena, &r->step, &err),
              err);
}

static ru_exe *open_exe(const rig *r, ru_exe *share)
{
    ru_err err = {0};
    ru_exe *e = NULL;
    const bool train = r->step.n_params > 0;
    const ru_exe_options eo = {.threads = 1,
                               .two_phase = train,
                               .forward = r->step.forward,
                               .n_forward = train ? r->step.n_forward : 0,
                               .share = share};
    assert_ok(ru_exe_open(&r->step.graph, &eo, &e, &err), err);
    return e;
}

/* Start values times `scale`, so that a change of them shows. */
static void write_states(const rig *r, ru_exe *e, float scale)
{
    ru_err err = {0};
    for (uint32_t k = 0; k < r->zoo.n_inits; k++) {
        const ru_value *p = ru_graph_value(&r->model, r->zoo.inits[k].param);
        ru_value_id id = ru_graph_find(&r->step.graph, p->name);
        int64_t n = ru_type_count(&p->type);
        float *data = calloc((size_t)n + 4, sizeof *data);
        ru_init_fill(&r->zoo.inits[k], 5, k, n, data);
        for (int64_t i = 0; i < n; i++) {
            data[i] *= scale;
        }
        if (id.v != 0) {
            assert_ok(ru_exe_state_write(e, id, data, &err), err);
        }
        free(data);
    }
}

/* Samples of micro-batch `k`. */
static void feed(const rig *r, ru_exe *e, int64_t k)
{
    for (uint32_t i = 0; i < r->step.graph.n_inputs; i++) {
        const ru_type *t = &ru_graph_value(&r->step.graph, r->step.graph.inputs[i])->type;
        void *p = ru_exe_input(e, r->step.graph.inputs[i]);
        for (int64_t j = 0; j < ru_type_count(t); j++) {
            if (t->dtype == RU_I64) {
                ((int64_t *)p)[j] = (j + k) % CLASSES;
            } else {
                ((float *)p)[j] = (float)((k * 131 + j * 29) % 101) / 101.0f;
            }
        }
    }
    if (r->step.lr.v != 0) {
        *(float *)ru_exe_input(e, r->step.lr) = 0.05f;
    }
}

static float loss_of(const rig *r, ru_exe *e)
{
    ru_err err = {0};
    feed(r, e, 0);
    assert_ok(ru_exe_run(e, NULL, &err), err);
    return *(const float *)ru_exe_output(e, r->step.loss);
}

static void close_rig(rig *r)
{
    ru_exe_close(r->exe);
    ru_arena_fini(&r->arena);
}

/* A twin has no weights of its own, computes the same bits, and sees what either writes. */
static void twins_have_one_set_of_weights(void **state)
{
    (void)state;
    rig r;
    build(&r, false, 2, 0);
    r.exe = open_exe(&r, NULL);
    write_states(&r, r.exe, 1);
    ru_exe *twin = open_exe(&r, r.exe), *third = open_exe(&r, twin), *alone = open_exe(&r, NULL);
    ru_exe_stats one, two;
    ru_exe_stats_get(r.exe, &one);
    ru_exe_stats_get(twin, &two);
    assert_true(one.state_bytes + one.const_bytes > 1 << 20);
    assert_int_equal(two.state_bytes + two.const_bytes, 0);
    const float scales[] = {1, 0.5f, 2};
    float before = NAN;
    for (int k = 0; k < 3; k++) {
        write_states(&r, k == 1 ? twin : k == 2 ? third : r.exe, scales[k]);
        write_states(&r, alone, scales[k]);
        float loss = loss_of(&r, alone);
        assert_true(loss == loss && loss != before);
        assert_true(loss_of(&r, twin) == loss); /* the writer or not, first to run or not */
        assert_true(loss_of(&r, r.exe) == loss);
        assert_true(loss_of(&r, third) == loss);
        before = loss;
    }
    ru_exe_stats_get(twin, &two);
    assert_int_equal(two.n_prepared, 0);
    ru_exe_close(r.exe); /* its memory stays */
    r.exe = NULL;
    assert_true(loss_of(&r, twin) == before);
    ru_exe_close(twin);
    assert_true(loss_of(&r, third) == before);
    ru_exe_close(third);
    ru_exe_close(alone);
    close_rig(&r);
}

/* Another batch size has hardly any weights of its own, and sees what either writes. */
static void batch_sizes_share_packed_weights(void **state)
{
    (void)state;
    rig small, large;
    build(&small, false, 2, 0);
    build(&large, false, 8, 0);
    small.exe = open_exe(&small, NULL);
    large.exe = open_exe(&large, small.exe);
    ru_exe *alone = open_exe(&large, NULL);
    ru_exe_stats one, more;
    ru_exe_stats_get(small.exe, &one);
    ru_exe_stats_get(large.exe, &more);
    int64_t weights = one.state_bytes + one.const_bytes;
    assert_true(weights > 1 << 20);
    assert_true(20 * (more.state_bytes + more.const_bytes) <= weights);
    for (int k = 1; k <= 3; k++) {
        write_states(&small, k == 2 ? large.exe : small.exe, (float)k);
        write_states(&large, alone, (float)k);
        float loss = loss_of(&large, alone), first = loss_of(&small, small.exe);
        assert_true(loss == loss && first == first);
        float shared = loss_of(&large, large.exe);
        assert_true(fabsf(shared - loss) <= 1e-5f * fabsf(loss));
        ru_exe_rest(large.exe); /* what it held is gone, and comes again in the same bits */
        assert_true(*(const float *)ru_exe_output(large.exe, large.step.loss) == 0);
        ru_exe_rest(small.exe); /* but for what both have packed */
        assert_true(loss_of(&large, large.exe) == shared);
        assert_true(loss_of(&small, small.exe) == first);
    }
    ru_exe_close(alone);
    close_rig(&large);
    close_rig(&small);
}

/* Evaluation reads the parameters of training after each step as if they had been copied. */
static void evaluation_reads_what_training_updates(void **state)
{
    (void)state;
    rig train, eval;
    ru_err err = {0};
    build(&train, true, 4, 0);
    build(&eval, false, 2, 0);
    train.exe = open_exe(&train, NULL);
    write_states(&train, train.exe, 1);
    eval.exe = open_exe(&eval, train.exe);
    ru_exe *copy = open_exe(&eval, NULL);
    ru_exe_stats s;
    ru_exe_stats_get(eval.exe, &s);
    assert_int_equal(s.state_bytes, 0);
    float before = NAN;
    for (int64_t step = 0; step < 3; step++) {
        feed(&train, train.exe, step);
        assert_ok(ru_exe_run(train.exe, &(ru_run_args){.step = step}, &err), err);
        for (uint32_t v = 1; v < eval.step.graph.n_values; v++) {
            const ru_value *x = &eval.step.graph.values[v];
            if (x->kind == RU_VALUE_STATE) {
                void *data = malloc((size_t)ru_type_bytes(&x->type) + 1);
                ru_value_id from = ru_graph_find(&train.step.graph, x->name);
                assert_ok(ru_exe_state_read(train.exe, from, data, &err), err);
                assert_ok(ru_exe_state_write(copy, (ru_value_id){v}, data, &err), err);
                free(data);
            }
        }
        float loss = loss_of(&eval, copy);
        assert_true(loss_of(&eval, eval.exe) == loss && loss != before);
        before = loss;
    }
    ru_exe_close(train.exe);
    train.exe = NULL;
    assert_true(loss_of(&eval, eval.exe) == before);
    ru_exe_close(copy);
    close_rig(&eval);
    close_rig(&train);
}

/* -- micro-batches in flight ------------------------------------------------------------------- */

enum { MICRO = 4, STEPS = 2 };

static void phase(ru_exe *e, ru_phase p, int64_t step)
{
    ru_err err = {0};
    assert_ok(ru_exe_phase(e, p, &(ru_run_args){.seed = 1, .step = step}, &err), err);
}

static void clear_grads(ru_exe *e)
{
    const ru_exe_grad *g;
    uint32_t n = ru_exe_grads(e, &g);
    for (uint32_t k = 0; k < n; k++) {
        memset(g[k].data, 0, (size_t)g[k].size_bytes);
    }
}

/* Steps of MICRO micro-batches with `slots` of them in flight: forward of the next ones before
 * backward of the first (1F1B). The sums and the update are those of r->exe. */
static void run_pipelined(const rig *r, int64_t slots)
{
    ru_exe *slot[MICRO];
    for (int64_t k = 0; k < slots; k++) {
        slot[k] = open_exe(r, r->exe);
    }
    for (int64_t step = 0; step < STEPS; step++) {
        ru_err err = {0};
        clear_grads(r->exe);
        for (int64_t k = 0; k < MICRO + slots - 1; k++) {
            int64_t back = k - (slots - 1);
            if (k < MICRO) {
                feed(r, slot[k % slots], step * MICRO + k);
                phase(slot[k % slots], RU_PHASE_FORWARD, step);
            }
            if (back >= 0) {
                phase(slot[back % slots], RU_PHASE_BACKWARD, step);
                assert_ok(ru_exe_grads_add(r->exe, slot[back % slots], &err), err);
            }
        }
        feed(r, r->exe, 0); /* the learning rate */
        phase(r->exe, RU_PHASE_UPDATE, step);
    }
    for (int64_t k = 0; k < slots; k++) {
        ru_exe_close(slot[k]);
    }
}

/* Largest difference of states, relative to 1 + their size. */
static double far_apart(const rig *a, const rig *b)
{
    double worst = 0;
    for (uint32_t v = 1; v < a->step.graph.n_values; v++) {
        const ru_value *s = &a->step.graph.values[v];
        if (s->kind == RU_VALUE_STATE && s->name != NULL) {
            ru_err err = {0};
            int64_t n = ru_type_count(&s->type);
            float *p = calloc((size_t)n, sizeof *p), *q = calloc((size_t)n, sizeof *q);
            ru_value_id other = ru_graph_find(&b->step.graph, s->name);
            assert_ok(ru_exe_state_read(a->exe, (ru_value_id){v}, p, &err), err);
            assert_ok(ru_exe_state_read(b->exe, other, q, &err), err);
            for (int64_t i = 0; i < n; i++) {
                double d = fabs((double)p[i] - (double)q[i]) / (1 + fabs((double)q[i]));
                worst = d > worst || d != d ? d : worst;
            }
            free(p);
            free(q);
        }
    }
    return worst;
}

static void micro_batches_in_flight_give_the_step(void **state)
{
    (void)state;
    rig one, many, joint;
    ru_err err = {0};
    build(&one, true, 2, 2 * MICRO);
    build(&many, true, 2, 2 * MICRO);
    one.exe = open_exe(&one, NULL);
    many.exe = open_exe(&many, NULL);
    write_states(&one, one.exe, 1);
    write_states(&many, many.exe, 1);
    run_pipelined(&one, 1);
    run_pipelined(&many, 3);
    assert_true(far_apart(&one, &many) == 0.0); /* the same sums in the same order */

    /* One graph that contains all micro-batches: the gradients are those of the same samples, the
     * running statistics a mean there and one after the other here. */
    const ru_step_options so = {.loss = RU_LOSS_CROSS_ENTROPY,
                                .optimizer = {.kind = RU_OPTIMIZER_SGD, .momentum = 0.9},
                                .batch = 2 * MICRO,
                                .accumulate = MICRO,
                                .x = ru_type_make(RU_F32, 3, options.input),
                                .y = ru_type_scalar(RU_I64)};
    build(&joint, true, 2, 0);
    assert_ok(ru_step_build(&joint.model, &so, &joint.arena, &joint.step, &err), err);
    const ru_exe_options eo = {.threads = 1};
    assert_ok(ru_exe_open(&joint.step.graph, &eo, &joint.exe, &err), err);
    write_states(&joint, joint.exe, 1);
    for (int64_t step = 0; step < STEPS; step++) {
        for (uint32_t k = 0; k < MICRO; k++) {
            for (int y = 0; y < 2; y++) {
                ru_value_id from = y == 0 ? many.step.x[0] : many.step.y[0];
                ru_value_id to = y == 0 ? joint.step.x[k] : joint.step.y[k];
                feed(&many, many.exe, step * MICRO + k);
                memcpy(ru_exe_input(joint.exe, to), ru_exe_input(many.exe, from),
                       (size_t)ru_type_bytes(&ru_graph_value(&joint.step.graph, to)->type));
            }
        }
        *(float *)ru_exe_input(joint.exe, joint.step.lr) = 0.05f;
        assert_ok(ru_exe_run(joint.exe, &(ru_run_args){.seed = 1, .step = step}, &err), err);
    }
    for (uint32_t k = 0; k < joint.step.n_params; k++) {
        ru_value_id id = joint.step.params[k];
        const ru_value *p = ru_graph_value(&joint.step.graph, id);
        ru_value_id other = ru_graph_find(&many.step.graph, p->name);
        int64_t n = ru_type_count(&p->type);
        float *a = calloc((size_t)n, sizeof *a), *b = calloc((size_t)n, sizeof *b);
        assert_ok(ru_exe_state_read(joint.exe, id, a, &err), err);
        assert_ok(ru_exe_state_read(many.exe, other, b, &err), err);
        for (int64_t i = 0; i < n; i++) {
            assert_true(fabsf(a[i] - b[i]) <= 2e-4f * (1 + fabsf(a[i])));
        }
        free(a);
        free(b);
    }
    close_rig(&one);
    close_rig(&many);
    close_rig(&joint);
}

static float forward_loss(const rig *r, ru_exe *e)
{
    feed(r, e, 0);
    phase(e, RU_PHASE_FORWARD, 0);
    return *(const float *)ru_exe_output(e, r->step.loss);
}

/* One with parameters of its own computes with those of the last copy, forward and backward, and
 * holds no optimizer state. */
static void old_weights_stay_until_they_are_copied(void **state)
{
    (void)state;
    rig r, like;
    ru_err err = {0};
    ru_exe *old = NULL;
    ru_exe_stats own, all;
    build(&r, true, 2, 0);
    build(&like, true, 2, 0);
    r.exe = open_exe(&r, NULL);
    like.exe = open_exe(&like, NULL);
    const ru_exe_options eo = {.threads = 1,
                               .two_phase = true,
                               .forward = r.step.forward,
                               .n_forward = r.step.n_forward,
                               .share = r.exe,
                               .own_params = true};
    assert_ok(ru_exe_open(&r.step.graph, &eo, &old, &err), err);
    ru_exe_stats_get(old, &own);
    ru_exe_stats_get(r.exe, &all);
    assert_true(own.state_bytes > 1 << 20 && 2 * own.state_bytes <= all.state_bytes);
    write_states(&r, r.exe, 1);
    assert_ok(ru_exe_params_copy(old, r.exe, &err), err);
    write_states(&like, like.exe, 1);
    float loss = forward_loss(&like, like.exe);
    assert_true(forward_loss(&r, old) == loss);
    write_states(&r, r.exe, 0.5f);
    assert_true(forward_loss(&r, r.exe) != loss);
    assert_true(forward_loss(&r, old) == loss);
    phase(old, RU_PHASE_BACKWARD, 0);
    phase(like.exe, RU_PHASE_BACKWARD, 0);
    phase(r.exe, RU_PHASE_BACKWARD, 0); /* others, of the newest weights */
    clear_grads(r.exe);
    assert_ok(ru_exe_grads_add(r.exe, old, &err), err);
    write_states(&like, like.exe, 0.5f);
    phase(r.exe, RU_PHASE_UPDATE, 0);
    phase(like.exe, RU_PHASE_UPDATE, 0);
    loss = forward_loss(&like, like.exe);
    assert_true(forward_loss(&r, old) != loss);
    assert_ok(ru_exe_params_copy(old, r.exe, &err), err);
    assert_true(forward_loss(&r, old) == loss && forward_loss(&r, r.exe) == loss);
    assert_int_equal(ru_exe_params_copy(old, like.exe, &err), RU_E_ARG);
    ru_exe_close(old);
    close_rig(&like);
    close_rig(&r);
}

/* Images through a convolution and a pool, 32 lines of each sample through a product. */
typedef struct sampled {
    ru_graph g;
    ru_value_id in[2], out[2];
    ru_exe *exe;
} sampled;

enum { SIDE = 20, LINES = 32, WIDE = 48 };

static void open_sampled(sampled *s, int64_t n, ru_arena *a, const float *weights, ru_exe *share)
{
    ru_err err = {0};
    ru_build b;
    assert_ok(ru_graph_init(&s->g, a, "sampled", &err), err);
    ru_build_init(&b, &s->g);
    s->in[0] = ru_build_input(&b, "x", ru_type_make(RU_F32, 4, (int64_t[]){n, 1, SIDE, SIDE}));
    s->in[1] = ru_build_input(&b, "t", ru_type_make(RU_F32, 3, (int64_t[]){n, LINES, WIDE}));
    ru_value_id w = ru_build_const(&b, ru_type_make(RU_F32, 4, (int64_t[]){16, 1, 5, 5}), weights);
    ru_value_id v = ru_build_const(&b, ru_type_make(RU_F32, 2, (int64_t[]){WIDE, WIDE}), weights);
    ru_value_id y =
        ru_build_op2(&b, RU_OP_Conv, s->in[0], w,
                     (ru_attr[]){RU_AIS(kernel_shape, ((int64_t[]){5, 5}), 2), RU_A_END});
    y = ru_build_op1(&b, RU_OP_Relu, y, NULL);
    s->out[0] = ru_build_op1(&b, RU_OP_MaxPool, y,
                             (ru_attr[]){RU_AIS(kernel_shape, ((int64_t[]){2, 2}), 2),
                                         RU_AIS(strides, ((int64_t[]){2, 2}), 2), RU_A_END});
    s->out[1] = ru_build_op2(&b, RU_OP_MatMul, s->in[1], v, NULL);
    ru_build_output(&b, s->out[0], "y");
    ru_build_output(&b, s->out[1], "z");
    assert_ok(ru_build_finish(&b, &err), err);
    assert_ok(ru_exe_open(&s->g, &(ru_exe_options){.threads = 1, .share = share}, &s->exe, &err),
              err);
}

/* Input `which` of the samples from `first` on. */
static void feed_sampled(const sampled *s, uint32_t which, int64_t first)
{
    const ru_type *t = &ru_graph_value(&s->g, s->in[which])->type;
    int64_t each = ru_type_count(t) / t->dims[0];
    float *x = ru_exe_input(s->exe, s->in[which]);
    for (int64_t i = 0; i < t->dims[0] * each; i++) {
        x[i] = (float)sin((double)(first * each + i));
    }
}

/* Each of its samples has the answer that it has alone. */
static void same_as_alone(const sampled *some, int64_t n, const sampled *one)
{
    ru_err err = {0};
    feed_sampled(some, 0, 0);
    feed_sampled(some, 1, 0);
    assert_ok(ru_exe_run(some->exe, NULL, &err), err);
    for (int64_t i = 0; i < n; i++) {
        feed_sampled(one, 0, i);
        feed_sampled(one, 1, i);
        assert_ok(ru_exe_run(one->exe, NULL, &err), err);
        for (uint32_t k = 0; k < 2; k++) {
            int64_t each = ru_type_count(&ru_graph_value(&one->g, one->out[k])->type);
            const float *x = ru_exe_output(one->exe, one->out[k]);
            const float *y = (const float *)ru_exe_output(some->exe, some->out[k]) + i * each;
            for (int64_t j = 0; j < each; j++) {
                assert_true(fabsf(x[j] - y[j]) <= 1e-5f);
            }
        }
    }
}

/* Executables of many samples beside others run a kernel for four of them several times, those of
 * two one for a single sample twice, unless its parts are too small (products). */
static void many_samples_run_in_parts(void **state)
{
    (void)state;
    enum { SAMPLES = 12 };
    ru_arena a;
    sampled one = {0}, two = {0}, four = {0}, many = {0};
    ru_arena_init(&a, 0);
    float *weights = ru_arena_alloc(&a, WIDE * WIDE * 4, 64);
    for (int64_t i = 0; i < WIDE * WIDE; i++) {
        weights[i] = (float)cos((double)(i * 3)) / 8;
    }
    open_sampled(&one, 1, &a, weights, NULL);
    open_sampled(&two, 2, &a, weights, one.exe);
    open_sampled(&four, 4, &a, weights, two.exe);
    open_sampled(&many, SAMPLES, &a, weights, four.exe);
    assert_null(strstr(ru_exe_print(four.exe, &a), " times"));
    const char *const text[] = {ru_exe_print(two.exe, &a), ru_exe_print(many.exe, &a)};
    for (uint32_t k = 0; k < 6; k++) {
        static const char *const what[] = {"dnnl conv", "dnnl pool", "dnnl matmul"};
        const char *times = k / 3 == 0 ? ", 2 times" : ", 3 times";
        const char *at = strstr(text[k / 3], what[k % 3]);
        bool small = k / 3 == 0 && k % 3 == 2;
        assert_true(at == NULL || (strncmp(strchr(at, ','), times, 9) == 0) != small);
    }
    same_as_alone(&two, 2, &one);
    same_as_alone(&many, SAMPLES, &one);
    ru_exe_close(many.exe);
    ru_exe_close(four.exe);
    ru_exe_close(two.exe);
    ru_exe_close(one.exe);
    ru_arena_fini(&a);
}

static void what_cannot_be_shared_is_named(void **state)
{
    (void)state;
    rig r, other;
    ru_err err = {0};
    ru_exe *e = NULL;
    build(&r, true, 2, 0);
    build(&other, true, 4, 0);
    r.exe = open_exe(&r, NULL);
    other.exe = open_exe(&other, NULL);
    const ru_exe_options eo = {.device = RU_DEVICE_REF, .share = r.exe};
    assert_int_equal(ru_exe_open(&r.step.graph, &eo, &e, &err), RU_E_ARG);
    assert_non_null(strstr(err.text, "on one device only"));
    assert_int_equal(ru_exe_grads_add(r.exe, other.exe, &err), RU_E_ARG);
    close_rig(&other);
    close_rig(&r);
}

RU_TESTS(test_exec_share, cmocka_unit_test(twins_have_one_set_of_weights),
         cmocka_unit_test(batch_sizes_share_packed_weights),
         cmocka_unit_test(evaluation_reads_what_training_updates),
         cmocka_unit_test(old_weights_stay_until_they_are_copied),
         cmocka_unit_test(micro_batches_in_flight_give_the_step),
         cmocka_unit_test(many_samples_run_in_parts),
         cmocka_unit_test(what_cannot_be_shared_is_named))
