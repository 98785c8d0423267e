#include "test/test.h"

#include <math.h>
#include <string.h>

#include "exec/exe.h"
#include "train/model/step.h"
#include "train/model/zoo.h"

static const int64_t hidden[] = {6};

typedef struct rig {
    ru_arena arena;
    ru_graph model;
    ru_step_graph step;
    ru_exe *exe;
} rig;

static ru_step_options options(int64_t batch, uint32_t accumulate)
{
    return (ru_step_options){
        .loss = RU_LOSS_CROSS_ENTROPY,
        .optimizer = {.kind = RU_OPTIMIZER_SGD, .lr = 0.1, .momentum = 0.9},
        .accumulate = accumulate,
        .batch = batch,
        .x = ru_type_make(RU_F32, 1, (int64_t[]){4}),
        .y = ru_type_scalar(RU_I64),
    };
}

static void open_rig_on(rig *r, const ru_step_options *so, double dropout, ru_device_kind device)
{
    ru_err err = {0};
    ru_zoo_model zoo;
    ru_zoo_options zo = {.classes = 3,
                         .input = {4},
                         .input_rank = 1,
                         .hidden = hidden,
                         .hidden_n = 1,
                         .dropout = dropout};
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    assert_ok(ru_graph_init(&r->model, &r->arena, "mlp", &err), err);
    assert_ok(ru_zoo_build("mlp", &zo, true, &r->model, &zoo, &err), err);
    assert_ok(ru_step_build(&r->model, so, &r->arena, &r->step, &err), err);
    ru_exe_options eo = {.device = device, .threads = 1};
    assert_ok(ru_exe_open(&r->step.graph, &eo, &r->exe, &err), err);
    for (uint32_t k = 0; k < zoo.n_inits; k++) {
        const ru_value *p = ru_graph_value(&r->model, zoo.inits[k].param);
        float data[64];
        ru_init_fill(&zoo.inits[k], 5, k, ru_type_count(&p->type), data);
        assert_ok(ru_exe_state_write(r->exe, ru_graph_find(&r->step.graph, p->name), data, &err),
                  err);
    }
}

static void open_rig(rig *r, const ru_step_options *so, double dropout)
{
    open_rig_on(r, so, dropout, RU_DEVICE_REF);
}

static void close_rig(rig *r)
{
    ru_exe_close(r->exe);
    ru_arena_fini(&r->arena);
}

static void run_steps(rig *r, int64_t steps, int64_t batch)
{
    ru_err err = {0};
    int64_t part = batch / r->step.micro;
    for (int64_t s = 0; s < steps; s++) {
        for (int64_t k = 0; k < batch; k++) {
            float *x = ru_exe_input(r->exe, r->step.x[k / part]);
            int64_t *y = ru_exe_input(r->exe, r->step.y[k / part]);
            for (int64_t e = 0; e < 4; e++) {
                x[k % part * 4 + e] = (float)sin((double)(s * 100 + k * 4 + e));
            }
            y[k % part] = (s + k) % 3;
        }
        *(float *)ru_exe_input(r->exe, r->step.lr) = 0.1f;
        assert_ok(ru_exe_run(r->exe, &(ru_run_args){.seed = 1, .step = s}, &err), err);
    }
}

static void accumulation_gives_the_step_of_the_whole_batch(void **state)
{
    (void)state;
    rig a, b;
    ru_step_options one = options(12, 1), four = options(12, 4);
    open_rig(&a, &one, 0);
    open_rig(&b, &four, 0);
    assert_int_equal(b.step.micro, 4);
    run_steps(&a, 5, 12);
    run_steps(&b, 5, 12);
    for (uint32_t k = 0; k < a.step.n_params; k++) {
        ru_err err = {0};
        float p[64], q[64];
        int64_t n = ru_type_count(&ru_graph_value(&a.step.graph, a.step.params[k])->type);
        assert_ok(ru_exe_state_read(a.exe, a.step.params[k], p, &err), err);
        assert_ok(ru_exe_state_read(b.exe, b.step.params[k], q, &err), err);
        for (int64_t e = 0; e < n; e++) {
            if (!(fabsf(p[e] - q[e]) <= 1e-6f)) {
                fail_msg("parameter %u element %lld: %g and %g", k, (long long)e, (double)p[e],
                         (double)q[e]);
            }
        }
    }
    assert_true(fabsf(*(const float *)ru_exe_output(a.exe, a.step.loss) -
                      *(const float *)ru_exe_output(b.exe, b.step.loss)) < 1e-6f);
    close_rig(&a);
    close_rig(&b);
}

static void the_same_step_twice_gives_the_same_bits(void **state)
{
    (void)state;
    rig a, b;
    ru_step_options so = options(8, 2);
    open_rig(&a, &so, 0.5);
    open_rig(&b, &so, 0.5);
    run_steps(&a, 3, 8);
    run_steps(&b, 3, 8);
    for (uint32_t k = 0; k < a.step.n_params; k++) {
        ru_err err = {0};
        float p[64], q[64];
        int64_t n = ru_type_count(&ru_graph_value(&a.step.graph, a.step.params[k])->type);
        assert_ok(ru_exe_state_read(a.exe, a.step.params[k], p, &err), err);
        assert_ok(ru_exe_state_read(b.exe, b.step.params[k], q, &err), err);
        assert_memory_equal(p, q, (size_t)n * sizeof *p);
    }
    close_rig(&a);
    close_rig(&b);
}

/* Gradients leave one by one: the executable tells when each is ready. */
typedef struct seen {
    const ru_step_graph *s;
    uint32_t grads;
} seen;

static ru_status on_ready(void *self, const ru_exe_at *at)
{
    seen *x = self;
    for (uint32_t k = 0; k < x->s->n_params; k++) {
        if (x->s->grads[k].v == at->value.v) {
            x->grads++;
            assert_non_null(at->data);
            assert_int_equal(at->size_bytes,
                             ru_type_bytes(&ru_graph_value(&x->s->graph, at->value)->type));
        }
    }
    return RU_OK;
}

static void gradients_are_announced(void **state)
{
    (void)state;
    static const ru_device_kind devices[] = {RU_DEVICE_REF, RU_DEVICE_CPU};
    for (int k = 0; k < 2; k++) {
        rig r;
        ru_step_options so = options(4, 1);
        open_rig_on(&r, &so, 0, devices[k]);
        seen x = {.s = &r.step};
        ru_err err = {0};
        const ru_exe_port port = {.leaves = true, .fn = on_ready, .self = &x};
        assert_ok(ru_exe_ports_set(r.exe, &port, 1, &err), err);
        run_steps(&r, 1, 4);
        assert_int_equal(x.grads, r.step.n_params);
        close_rig(&r);
    }
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    const struct {
        ru_step_options so;
        const char *say;
    } cases[] = {
        {.so = options(10, 3), .say = "cannot be split"},
        {.so = {.loss = RU_LOSS_MSE,
                .batch = 4,
                .x = ru_type_make(RU_F32, 1, (int64_t[]){4}),
                .y = ru_type_make(RU_F32, 1, (int64_t[]){2})},
         .say = "same number of elements"},
        {.so = {.batch = 4,
                .x = ru_type_make(RU_F32, 1, (int64_t[]){5}),
                .y = ru_type_scalar(RU_I64)},
         .say = "the model's input is"},
        {.so = {.batch = 4,
                .x = ru_type_make(RU_F32, 1, (int64_t[]){4}),
                .y = ru_type_make(RU_I64, 1, (int64_t[]){3})},
         .say = "of each sample a class number or a share of each class"},
    };
    rig r;
    ru_step_options fine = options(4, 1);
    open_rig(&r, &fine, 0);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_err err = {0};
        ru_step_graph out;
        assert_int_equal(ru_step_build(&r.model, &cases[k].so, &r.arena, &out, &err), RU_E_CONFIG);
        if (strstr(err.text, cases[k].say) == NULL) {
            fail_msg("'%s' does not say '%s'", err.text, cases[k].say);
        }
    }
    close_rig(&r);
}

/* The first parameter of that rank after one step. */
static void after_one_step(double decay, bool matrices, uint32_t rank, float *into)
{
    rig r = {0};
    ru_err err = {0};
    ru_step_options so = options(6, 1);
    so.optimizer.weight_decay = decay;
    so.optimizer.decay_matrices = matrices;
    open_rig(&r, &so, 0);
    for (uint32_t k = 0; k < r.step.n_params; k++) { /* biases start at zero: nothing to decay */
        float ones[64];
        const ru_type *t = &ru_graph_value(&r.step.graph, r.step.params[k])->type;
        for (int64_t e = 0; e < ru_type_count(t); e++) {
            ones[e] = 1.0f + (float)e / 8;
        }
        assert_ok(ru_exe_state_write(r.exe, r.step.params[k], ones, &err), err);
    }
    run_steps(&r, 1, 6);
    uint32_t k = 0;
    while (ru_graph_value(&r.step.graph, r.step.params[k])->type.rank != rank) {
        assert_true(++k < r.step.n_params);
    }
    assert_ok(ru_exe_state_read(r.exe, r.step.params[k], into, &err), err);
    close_rig(&r);
}

/* With decay_matrices a bias moves as without decay, a weight as with it. */
static void biases_are_spared_from_decay(void **state)
{
    (void)state;
    for (uint32_t rank = 1; rank <= 2; rank++) {
        float none[64], all[64], matrices[64];
        after_one_step(0, false, rank, none);
        after_one_step(0.1, false, rank, all);
        after_one_step(0.1, true, rank, matrices);
        assert_true(none[1] != all[1]);
        assert_true(matrices[1] == (rank == 1 ? none[1] : all[1]));
    }
}

RU_TESTS(train_step, cmocka_unit_test(biases_are_spared_from_decay),
         cmocka_unit_test(accumulation_gives_the_step_of_the_whole_batch),
         cmocka_unit_test(the_same_step_twice_gives_the_same_bits),
         cmocka_unit_test(gradients_are_announced), cmocka_unit_test(what_does_not_fit_is_named))
