/* Groups of parameters: rates and decays of their own, and parameters that do not learn. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exe.h"
#include "test/test.h"
#include "train/model/step.h"
#include "train/model/zoo.h"

enum { BATCH = 6, STATE_MAX = 64 };

static const int64_t hidden[] = {6, 5};

typedef struct rig {
    ru_arena arena;
    ru_graph model;
    ru_step_graph step;
    ru_exe *exe;
} rig;

static ru_step_options options(const ru_param_group *groups, uint32_t n, double lr, double decay)
{
    return (ru_step_options){
        .loss = RU_LOSS_CROSS_ENTROPY,
        .optimizer = {.kind = RU_OPTIMIZER_SGD, .lr = lr, .momentum = 0.9, .weight_decay = decay},
        .groups = groups,
        .n_groups = n,
        .batch = BATCH,
        .x = ru_type_make(RU_F32, 1, (int64_t[]){4}),
        .y = ru_type_scalar(RU_I64)};
}

static ru_status open_step(rig *r, const ru_step_options *so, ru_zoo_model *zoo, ru_err *err)
{
    const ru_zoo_options zo = {
        .classes = 3, .input = {4}, .input_rank = 1, .hidden = hidden, .hidden_n = 2};
    *r = (rig){0};
    ru_arena_init(&r->arena, 0);
    RU_TRY(ru_graph_init(&r->model, &r->arena, "mlp", err));
    RU_TRY(ru_zoo_build("mlp", &zo, true, &r->model, zoo, err));
    return ru_step_build(&r->model, so, &r->arena, &r->step, err);
}

/* Three steps with these settings; the device is the second half of the cases. */
static void train(rig *r, const ru_step_options *so, ru_device_kind device)
{
    ru_err err = {0};
    ru_zoo_model zoo;
    assert_ok(open_step(r, so, &zoo, &err), err);
    const ru_exe_options eo = {.device = device, .threads = 1};
    assert_ok(ru_exe_open(&r->step.graph, &eo, &r->exe, &err), err);
    for (uint32_t k = 0; k < zoo.n_inits; k++) {
        const ru_value *p = ru_graph_value(&r->model, zoo.inits[k].param);
        float data[STATE_MAX];
        ru_init_fill(&zoo.inits[k], 5, k, ru_type_count(&p->type), data);
        assert_ok(ru_exe_state_write(r->exe, ru_graph_find(&r->step.graph, p->name), data, &err),
                  err);
    }
    for (int64_t s = 0; s < 3; s++) {
        float *x = ru_exe_input(r->exe, r->step.x[0]);
        int64_t *y = ru_exe_input(r->exe, r->step.y[0]);
        for (int64_t e = 0; e < BATCH * 4; e++) {
            x[e] = (float)sin((double)(s * 100 + e));
        }
        for (int64_t e = 0; e < BATCH; e++) {
            y[e] = (s + e) % 3;
        }
        *(float *)ru_exe_input(r->exe, r->step.lr) = (float)so->optimizer.lr;
        for (uint32_t k = 0; k < r->step.n_rates; k++) {
            *(float *)ru_exe_input(r->exe, r->step.rates[k].input) =
                (float)(so->optimizer.lr * r->step.rates[k].factor);
        }
        assert_ok(ru_exe_run(r->exe, &(ru_run_args){.seed = 1, .step = s}, &err), err);
    }
}

static void close_rig(rig *r)
{
    ru_exe_close(r->exe);
    ru_arena_fini(&r->arena);
}

static void state_of(rig *r, const char *name, float into[STATE_MAX])
{
    ru_err err = {0};
    ru_value_id v = ru_graph_find(&r->step.graph, name);
    assert_true(v.v != 0);
    memset(into, 0, STATE_MAX * sizeof *into);
    assert_ok(ru_exe_state_read(r->exe, v, into, &err), err);
}

/* Layers read their parameters one after another, before any gradient is made. */
static void gradients_say_who_reads_their_parameters(void **state)
{
    (void)state;
    for (int device = 0; device < 2; device++) {
        rig r;
        const ru_step_options so = options(NULL, 0, 0.1, 0);
        train(&r, &so, (ru_device_kind)device);
        const ru_exe_grad *grads;
        uint32_t n = ru_exe_grads(r.exe, &grads), seen = 0;
        uint32_t first[5] = {0, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}, last[5] = {0};
        for (uint32_t k = 0; k < r.step.n_params; k++) { /* fc1.weight ... fc3.bias */
            uint32_t layer =
                (uint32_t)(ru_graph_value(&r.step.graph, r.step.params[k])->name[2] - '0');
            for (uint32_t i = 0; i < n; i++) {
                if (grads[i].value.v == r.step.grads[k].v) {
                    uint32_t used = grads[i].used;
                    assert_string_equal(grads[i].param,
                                        ru_graph_value(&r.step.graph, r.step.params[k])->name);
                    assert_true(used < grads[0].made && grads[i].made < grads[i].read);
                    first[layer] = used < first[layer] ? used : first[layer];
                    last[layer] = used > last[layer] ? used : last[layer];
                    seen++;
                }
            }
        }
        assert_int_equal(seen, 6);
        assert_true(last[1] < first[2] && last[2] < first[3]);
        close_rig(&r);
    }
}

/* What all layers before a frozen last layer do must not change: only what is asked is frozen. */
static void frozen_parameters_take_no_gradient(void **state)
{
    (void)state;
    static const ru_param_group groups[] = {{.match = "fc1.*", .lr = 1, .freeze = true},
                                            {.match = "fc2.bias", .lr = 1, .freeze = true}};
    for (int device = 0; device < 2; device++) {
        rig all, some;
        const ru_step_options whole = options(NULL, 0, 0.1, 0);
        const ru_step_options frozen = options(groups, 2, 0.1, 0);
        train(&all, &whole, (ru_device_kind)device);
        train(&some, &frozen, (ru_device_kind)device);
        assert_int_equal(all.step.n_params, 6);
        assert_int_equal(some.step.n_params, 3);
        assert_int_equal(some.step.frozen, 4 * 6 + 6 + 5);
        assert_int_equal(some.step.frozen + some.step.parameters, all.step.parameters);
        assert_true(ru_graph_find(&all.step.graph, "fc1.weight.momentum").v != 0);
        assert_true(ru_graph_find(&some.step.graph, "fc1.weight.momentum").v == 0);
        assert_true(ru_graph_find(&some.step.graph, "fc2.weight.momentum").v != 0);
        const ru_exe_grad *grads;
        assert_int_equal(ru_exe_grads(some.exe, &grads), 3);
        float was[STATE_MAX] = {0}, is[STATE_MAX], moved[STATE_MAX];
        ru_zoo_model zoo;
        rig fresh;
        ru_err err = {0};
        assert_ok(open_step(&fresh, &whole, &zoo, &err), err);
        ru_init_fill(&zoo.inits[0], 5, 0, 24, was);
        state_of(&some, "fc1.weight", is);
        state_of(&all, "fc1.weight", moved);
        assert_memory_equal(is, was, sizeof is);
        assert_memory_not_equal(moved, was, sizeof is);
        close_rig(&fresh);
        close_rig(&all);
        close_rig(&some);
    }
}

/* A group of everything with half the rate is the step with half the rate; with its own decay it is
 * the step with that decay. */
static void groups_have_rates_and_decays_of_their_own(void **state)
{
    (void)state;
    static const ru_param_group half = {.match = "*", .lr = 0.5, .weight_decay = -1};
    static const ru_param_group decay = {.match = "fc*", .lr = 1, .weight_decay = 0.25};
    static const ru_param_group mixed[] = {{.match = "fc1.weight", .lr = 0.5, .weight_decay = -1},
                                           {.match = "fc1.*", .lr = 2, .weight_decay = -1}};
    const struct {
        ru_step_options a, b;
    } same[] = {
        {options(&half, 1, 0.25, 0.125), options(NULL, 0, 0.125, 0.125)},
        {options(&decay, 1, 0.25, 0.125), options(NULL, 0, 0.25, 0.25)},
    };
    for (uint32_t k = 0; k < 2 * RU_ARRAY_LEN(same); k++) {
        rig a, b;
        train(&a, &same[k / 2].a, (ru_device_kind)(k % 2));
        train(&b, &same[k / 2].b, (ru_device_kind)(k % 2));
        for (uint32_t v = 0; v < a.step.n_params; v++) {
            float p[STATE_MAX], q[STATE_MAX];
            const char *name = ru_graph_value(&a.step.graph, a.step.params[v])->name;
            state_of(&a, name, p);
            state_of(&b, name, q);
            assert_memory_equal(p, q, sizeof p);
        }
        close_rig(&a);
        close_rig(&b);
    }
    rig r;
    const ru_step_options so = options(mixed, 2, 0.1, 0);
    train(&r, &so, RU_DEVICE_CPU);
    assert_int_equal(r.step.n_rates, 2);
    assert_true(r.step.rates[0].factor == 0.5 && r.step.rates[1].factor == 2);
    close_rig(&r);
}

static void groups_that_do_nothing_are_named(void **state)
{
    (void)state;
    static const ru_param_group none = {.match = "layer*", .lr = 1};
    static const ru_param_group all = {.match = "*", .lr = 1, .freeze = true};
    static const ru_param_group late[] = {{.match = "*", .lr = 2}, {.match = "fc1.*", .lr = 1}};
    const struct {
        ru_step_options so;
        const char *say;
    } cases[] = {
        {options(&none, 1, 0.1, 0),
         "no parameter matches 'layer*'; the model has fc1.weight, fc1."},
        {options(&all, 1, 0.1, 0), "all parameters are frozen"},
        {options(late, 2, 0.1, 0), "earlier groups match all parameters that 'fc1.*' matches"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        rig r;
        ru_err err = {0};
        ru_zoo_model zoo;
        assert_int_equal(open_step(&r, &cases[k].so, &zoo, &err), RU_E_CONFIG);
        if (strstr(err.text, cases[k].say) == NULL) {
            fail_msg("'%s' does not say '%s'", err.text, cases[k].say);
        }
        close_rig(&r);
    }
}

RU_TESTS(train_group, cmocka_unit_test(gradients_say_who_reads_their_parameters),
         cmocka_unit_test(frozen_parameters_take_no_gradient),
         cmocka_unit_test(groups_have_rates_and_decays_of_their_own),
         cmocka_unit_test(groups_that_do_nothing_are_named))
