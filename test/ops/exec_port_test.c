/* Ports: values leave when they are made, and a run waits for values before their first reader. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exe.h"
#include "test/test.h"
#include "train/model/step.h"
#include "train/model/zoo.h"

enum { CLASSES = 5 };

typedef struct rig {
    ru_arena arena;
    ru_zoo_model zoo;
    ru_graph model;
    ru_step_graph step;
    ru_exe *exe;
    ru_device_kind device;
} rig;

/* LeNet; `train`: a step of it, else its evaluation, in which all weights are frozen. */
static void build_rig(rig *r, bool train, ru_device_kind device)
{
    ru_err err = {0};
    memset(r, 0, sizeof *r);
    r->device = device;
    ru_arena_init(&r->arena, 0);
    const ru_zoo_options zo = {.classes = CLASSES, .input = {1, 28, 28}, .input_rank = 3};
    const ru_step_options so = {.loss = RU_LOSS_CROSS_ENTROPY,
                                .optimizer = {.kind = RU_OPTIMIZER_SGD, .momentum = 0.9},
                                .batch = 4,
                                .x = ru_type_make(RU_F32, 3, zo.input),
                                .y = ru_type_scalar(RU_I64)};
    assert_ok(ru_graph_init(&r->model, &r->arena, "lenet", &err), err);
    assert_ok(ru_zoo_build("lenet", &zo, train, &r->model, &r->zoo, &err), err);
    assert_ok(train ? ru_step_build(&r->model, &so, &r->arena, &r->step, &err)
                    : ru_step_build_eval(&r->model, &so, &r->arena, &r->step, &err),
              err);
}

static void open_rig(rig *r, const ru_value_id *ports, uint32_t n_ports)
{
    ru_err err = {0};
    const ru_exe_options eo = {.device = r->device,
                               .threads = 1,
                               .two_phase = r->step.n_params > 0,
                               .ports = ports,
                               .n_ports = n_ports};
    assert_ok(ru_exe_open(&r->step.graph, &eo, &r->exe, &err), err);
    for (uint32_t i = 0; i < r->step.graph.n_inputs; i++) {
        const ru_type *t = &ru_graph_value(&r->step.graph, r->step.graph.inputs[i])->type;
        void *p = ru_exe_input(r->exe, r->step.graph.inputs[i]);
        for (int64_t k = 0; k < ru_type_count(t); k++) {
            if (t->dtype == RU_I64) {
                ((int64_t *)p)[k] = k % CLASSES;
            } else {
                ((float *)p)[k] = (float)(k * 29 % 101) / 101.0f;
            }
        }
    }
    if (r->step.lr.v != 0) {
        *(float *)ru_exe_input(r->exe, r->step.lr) = 0.05f;
    }
}

static void close_rig(rig *r)
{
    ru_exe_close(r->exe);
    ru_arena_fini(&r->arena);
}

/* The initial values of parameter `id` of the step; the caller frees. */
static float *initial(const rig *r, ru_value_id id)
{
    for (uint32_t k = 0; k < r->zoo.n_inits; k++) {
        const ru_value *p = ru_graph_value(&r->model, r->zoo.inits[k].param);
        if (ru_graph_find(&r->step.graph, p->name).v == id.v) {
            int64_t n = ru_type_count(&p->type);
            float *data = calloc((size_t)n + 4, sizeof *data);
            ru_init_fill(&r->zoo.inits[k], 5, k, n, data);
            return data;
        }
    }
    return NULL;
}

static void write_initial(rig *r, ru_value_id id)
{
    ru_err err = {0};
    float *data = initial(r, id);
    if (data != NULL) {
        assert_ok(ru_exe_state_write(r->exe, id, data, &err), err);
        free(data);
    }
}

static void write_all(rig *r)
{
    for (uint32_t v = 1; v < r->step.graph.n_values; v++) {
        if (r->step.graph.values[v].kind == RU_VALUE_STATE) {
            write_initial(r, (ru_value_id){v});
        }
    }
}

static void states_equal(rig *a, rig *b)
{
    ru_err err = {0};
    for (uint32_t v = 1; v < a->step.graph.n_values; v++) {
        const ru_value *s = &a->step.graph.values[v];
        if (s->kind == RU_VALUE_STATE) {
            size_t bytes = (size_t)ru_type_bytes(&s->type);
            uint8_t *p = malloc(bytes + 1), *q = malloc(bytes + 1);
            assert_ok(ru_exe_state_read(a->exe, (ru_value_id){v}, p, &err), err);
            assert_ok(ru_exe_state_read(b->exe, (ru_value_id){v}, q, &err), err);
            assert_memory_equal(p, q, bytes);
            free(p);
            free(q);
        }
    }
}

/* One port of the tests: what it has seen, and what it does. */
typedef struct watcher {
    rig *r;
    uint32_t calls, last_step;
    bool writes; /* the state that it is called for */
    bool clears; /* the value that it is called for */
    ru_status fails;
    float *copy; /* [size] of the value when it was called for; NULL: none */
    uint32_t step_min;
} watcher;

static ru_status on_port(void *self, const ru_exe_at *at)
{
    watcher *w = self;
    w->calls++;
    assert_true(at->step >= w->last_step || w->calls == 1); /* in the order of the steps */
    w->last_step = at->step;
    assert_true(at->step >= w->step_min);
    if (w->writes) {
        write_initial(w->r, at->value);
    }
    if (w->copy != NULL) {
        memcpy(w->copy, at->data, (size_t)at->size_bytes);
    }
    if (w->clears) {
        memset(at->data, 0, (size_t)at->size_bytes);
    }
    return w->fails;
}

static void set_ports(rig *r, const ru_exe_port *ports, uint32_t n)
{
    ru_err err = {0};
    assert_ok(ru_exe_ports_set(r->exe, ports, n, &err), err);
}

/* A port on every state of the step. Returns their number; the caller frees `*out`. */
static uint32_t ports_of_states(const rig *r, bool leaves, watcher *w, ru_exe_port **out)
{
    uint32_t n = 0;
    *out = calloc(r->step.graph.n_values, sizeof **out);
    for (uint32_t v = 1; v < r->step.graph.n_values; v++) {
        if (r->step.graph.values[v].kind == RU_VALUE_STATE) {
            (*out)[n++] = (ru_exe_port){.value = {v}, .leaves = leaves, .fn = on_port, .self = w};
        }
    }
    return n;
}

/* Parameters that arrive one by one, each before its first reader, give the bits of parameters that
 * were there before: also where a kernel reads a packed copy of a frozen weight. */
static void awaited_states_are_as_good_as_written(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        rig before, during;
        ru_err err = {0};
        ru_exe_port *ports;
        ru_device_kind device = k % 2 == 0 ? RU_DEVICE_CPU : RU_DEVICE_REF;
        build_rig(&before, k < 2, device);
        build_rig(&during, k < 2, device);
        open_rig(&before, NULL, 0);
        open_rig(&during, NULL, 0);
        write_all(&before);
        watcher w = {.r = &during, .writes = true};
        uint32_t n = ports_of_states(&during, false, &w, &ports);
        set_ports(&during, ports, n);
        assert_ok(ru_exe_run(before.exe, NULL, &err), err);
        assert_ok(ru_exe_run(during.exe, NULL, &err), err);
        assert_int_equal(w.calls, n);
        assert_true(w.last_step > 0);
        states_equal(&before, &during);
        assert_memory_equal(ru_exe_output(before.exe, before.step.loss),
                            ru_exe_output(during.exe, during.step.loss), 4);
        free(ports);
        close_rig(&before);
        close_rig(&during);
    }
}

/* Gradients leave in backward, states after their update, with their new contents. */
static void states_leave_after_their_update(void **state)
{
    (void)state;
    for (int device = 0; device < 2; device++) {
        rig r;
        ru_err err = {0};
        build_rig(&r, true, (ru_device_kind)device);
        open_rig(&r, NULL, 0);
        write_all(&r);
        const ru_exe_grad *grads;
        uint32_t n_grads = ru_exe_grads(r.exe, &grads), last = grads[n_grads - 1].made;
        ru_value_id param = r.step.params[0];
        const ru_type *t = &ru_graph_value(&r.step.graph, param)->type;
        watcher g = {.r = &r}, sum = {.r = &r, .step_min = last + 1},
                s = {.r = &r,
                     .step_min = last + 1,
                     .copy = calloc((size_t)ru_type_count(t) * 2 + 64, sizeof(float))};
        const ru_exe_port ports[] = {{.leaves = true, .fn = on_port, .self = &g},
                                     {.fn = on_port, .self = &sum},
                                     {.value = param, .leaves = true, .fn = on_port, .self = &s}};
        set_ports(&r, ports, 3);
        assert_ok(ru_exe_run(r.exe, NULL, &err), err);
        assert_int_equal(g.calls, n_grads);
        assert_int_equal(sum.calls, n_grads);
        assert_int_equal(g.last_step, last);
        assert_int_equal(s.calls, 1);
        float *now = calloc((size_t)ru_type_count(t), sizeof *now);
        float *start = initial(&r, param);
        assert_ok(ru_exe_state_read(r.exe, param, now, &err), err);
        if (device == RU_DEVICE_REF) { /* row-major there */
            assert_memory_equal(now, s.copy, (size_t)ru_type_bytes(t));
        }
        assert_true(memcmp(now, start, (size_t)ru_type_bytes(t)) != 0);
        free(now);
        free(start);
        free(s.copy);
        close_rig(&r);
    }
}

/* The prediction of the model: an input of the loss that no output of the step is. */
static ru_value_id logits_of(const rig *r)
{
    for (uint32_t k = 1; k < r->step.graph.n_nodes; k++) {
        if (r->step.graph.nodes[k].op == RU_OP_SoftmaxCrossEntropy) {
            return r->step.graph.nodes[k].in[0];
        }
    }
    fail_msg("the step has no loss");
    return (ru_value_id){0};
}

/* A result inside the graph leaves row-major, and what a port writes there is what its readers get:
 * logits of zero have a loss of log(classes). */
static void results_leave_and_come_back(void **state)
{
    (void)state;
    enum { N = 4 * CLASSES };
    float ref[N] = {0}, cpu[N] = {0};
    for (int device = 0; device < 2; device++) {
        rig r;
        ru_err err = {0};
        build_rig(&r, true, (ru_device_kind)device);
        ru_value_id logits = logits_of(&r);
        open_rig(&r, &logits, 1);
        write_all(&r);
        watcher out = {.r = &r, .copy = device == RU_DEVICE_REF ? ref : cpu};
        watcher in = {.r = &r, .clears = true};
        const ru_exe_port ports[] = {{.value = logits, .leaves = true, .fn = on_port, .self = &out},
                                     {.value = logits, .fn = on_port, .self = &in}};
        set_ports(&r, ports, 1);
        assert_ok(ru_exe_run(r.exe, NULL, &err), err);
        double loss = (double)*(const float *)ru_exe_output(r.exe, r.step.loss);
        assert_true(fabs(loss - log(CLASSES)) > 1e-4);
        set_ports(&r, ports, 2);
        assert_ok(ru_exe_run(r.exe, NULL, &err), err);
        assert_true(out.calls == 2 && in.calls == 1 && in.last_step > out.last_step);
        loss = (double)*(const float *)ru_exe_output(r.exe, r.step.loss);
        assert_true(fabs(loss - log(CLASSES)) < 1e-6);
        close_rig(&r);
    }
    bool any = false;
    for (int k = 0; k < N; k++) {
        assert_true(fabsf(ref[k] - cpu[k]) <= 1e-3f * (1 + fabsf(ref[k])));
        any = any || ref[k] != 0.0f;
    }
    assert_true(any);
}

/* The failure of any port ends the run with its status; before the update nothing has changed, and
 * the next run is as if there had been none. */
static void a_failing_port_ends_the_run(void **state)
{
    (void)state;
    rig r, other;
    ru_err err = {0};
    build_rig(&r, true, RU_DEVICE_CPU);
    build_rig(&other, true, RU_DEVICE_CPU);
    open_rig(&r, NULL, 0);
    open_rig(&other, NULL, 0);
    write_all(&r);
    write_all(&other);
    watcher w = {.r = &r, .fails = RU_E_IO};
    const ru_exe_port ports[] = {
        {.value = r.step.x[0], .fn = on_port, .self = &w},
        {.value = r.step.params[1], .fn = on_port, .self = &w},
        {.value = r.step.grads[0], .leaves = true, .fn = on_port, .self = &w},
        {.value = r.step.grads[0], .fn = on_port, .self = &w},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ports); k++) {
        w.calls = 0;
        set_ports(&r, &ports[k], 1);
        assert_int_equal(ru_exe_run(r.exe, NULL, &err), RU_E_IO);
        assert_non_null(strstr(err.text, "the run was aborted"));
        assert_int_equal(w.calls, 1);
        states_equal(&r, &other);
    }
    set_ports(&r, NULL, 0);
    assert_ok(ru_exe_run(r.exe, NULL, &err), err);
    assert_ok(ru_exe_run(other.exe, NULL, &err), err);
    states_equal(&r, &other);
    close_rig(&r);
    close_rig(&other);
}

static void what_has_no_port_is_named(void **state)
{
    (void)state;
    rig r;
    ru_err err = {0};
    watcher w = {.r = &r};
    build_rig(&r, true, RU_DEVICE_CPU);
    ru_value_id logits = logits_of(&r), constant = {0};
    open_rig(&r, NULL, 0);
    for (uint32_t v = 1; v < r.step.graph.n_values; v++) {
        constant.v = r.step.graph.values[v].kind == RU_VALUE_CONST ? v : constant.v;
    }
    const ru_exe_port bad[] = {
        {.value = logits, .fn = on_port, .self = &w},
        {.value = logits, .leaves = true, .fn = on_port, .self = &w},
        {.value = constant, .fn = on_port, .self = &w},
        {.value = r.step.x[0], .leaves = true, .fn = on_port, .self = &w},
        {.value = {r.step.graph.n_values}, .fn = on_port, .self = &w},
    };
    const ru_exe_port good = {.value = r.step.x[0], .fn = on_port, .self = &w};
    set_ports(&r, &good, 1);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(ru_exe_ports_set(r.exe, &bad[k], 1, &err), RU_E_ARG);
        assert_non_null(strstr(err.text, bad[k].leaves ? "cannot leave" : "cannot be awaited"));
    }
    assert_ok(ru_exe_run(r.exe, NULL, &err), err); /* a refused list replaces nothing */
    assert_int_equal(w.calls, 1);
    ru_exe *e = NULL;
    const ru_exe_options eo = {.threads = 1, .ports = r.step.x, .n_ports = 1};
    assert_int_equal(ru_exe_open(&r.step.graph, &eo, &e, &err), RU_E_ARG);
    assert_non_null(strstr(err.text, "is not the result of a node"));
    close_rig(&r);
}

/* A write of one parameter packs again only what was packed from it. */
static void a_write_packs_its_own_state(void **state)
{
    (void)state;
    rig r;
    ru_err err = {0};
    ru_exe_stats s;
    build_rig(&r, false, RU_DEVICE_CPU);
    open_rig(&r, NULL, 0);
    write_all(&r);
    assert_ok(ru_exe_run(r.exe, NULL, &err), err);
    ru_exe_stats_get(r.exe, &s);
    int64_t all = s.n_prepared / 2; /* when it was opened, and now */
    assert_true(all >= 2);
    int64_t sum = 0;
    for (uint32_t v = 1; v < r.step.graph.n_values; v++) {
        if (r.step.graph.values[v].kind == RU_VALUE_STATE) {
            int64_t before = s.n_prepared;
            write_initial(&r, (ru_value_id){v});
            assert_ok(ru_exe_run(r.exe, NULL, &err), err);
            ru_exe_stats_get(r.exe, &s);
            assert_true(s.n_prepared - before < all);
            sum += s.n_prepared - before;
        }
    }
    assert_int_equal(sum, all); /* each packed copy belongs to one state here */
    int64_t before = s.n_prepared;
    assert_ok(ru_exe_run(r.exe, NULL, &err), err);
    ru_exe_stats_get(r.exe, &s);
    assert_int_equal(s.n_prepared, before);
    close_rig(&r);
}

RU_TESTS(test_exec_port, cmocka_unit_test(awaited_states_are_as_good_as_written),
         cmocka_unit_test(states_leave_after_their_update),
         cmocka_unit_test(results_leave_and_come_back),
         cmocka_unit_test(a_failing_port_ends_the_run), cmocka_unit_test(what_has_no_port_is_named),
         cmocka_unit_test(a_write_packs_its_own_state))
