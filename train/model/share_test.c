/* Steps that are parts of a larger one: two executables whose gradients the hooks add up do what
 * one with the whole batch does; one without a share follows on their sums alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "exec/exe.h"
#include "test/test.h"
#include "train/model/step.h"
#include "train/model/zoo.h"

enum { PARTS_MAX = 3 };

typedef struct part {
    ru_step_graph step;
    ru_exe *exe;
    int64_t first, n;
    struct rig *rig;
    struct part *inner; /* runs inside of this one's first wait */
    uint32_t ready, waits;
    bool cancel;
} part;

typedef struct rig {
    ru_arena arena;
    ru_graph model;
    ru_zoo_model zoo;
    ru_step_options so; /* of the whole batch */
    part parts[PARTS_MAX];
    uint32_t n_parts;
    uint32_t pending;
    int64_t steps;
} rig;

static void open_part(rig *r, part *p, int64_t first, int64_t n, bool plain, ru_device_kind device)
{
    ru_err err = {0};
    ru_step_options so = r->so;
    so.batch = n;
    so.share_of = first < 0 ? 0 : r->so.batch;
    *p = (part){.first = first, .n = n, .rig = r};
    assert_ok(ru_step_build(&r->model, &so, &r->arena, &p->step, &err), err);
    ru_exe_options eo = {
        .device = device, .threads = 1, .two_phase = first >= 0, .plain_grads = plain};
    assert_ok(ru_exe_open(&p->step.graph, &eo, &p->exe, &err), err);
    for (uint32_t k = 0; k < r->zoo.n_inits; k++) {
        const ru_value *v = ru_graph_value(&r->model, r->zoo.inits[k].param);
        int64_t count = ru_type_count(&v->type);
        float *data = calloc((size_t)count + 4, sizeof *data);
        ru_init_fill(&r->zoo.inits[k], 5, k, count, data);
        assert_ok(ru_exe_state_write(p->exe, ru_graph_find(&p->step.graph, v->name), data, &err),
                  err);
        free(data);
    }
}

static void open_rig(rig *r, const char *name, const ru_zoo_options *zo, ru_step_options so)
{
    ru_err err = {0};
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    assert_ok(ru_graph_init(&r->model, &r->arena, name, &err), err);
    assert_ok(ru_zoo_build(name, zo, true, &r->model, &r->zoo, &err), err);
    r->so = so;
}

static void close_rig(rig *r)
{
    for (uint32_t k = 0; k < PARTS_MAX; k++) {
        ru_exe_close(r->parts[k].exe);
    }
    ru_arena_fini(&r->arena);
}

/* Samples [first, first + n) of step s. */
static void feed(part *p, int64_t s)
{
    const rig *r = p->rig;
    int64_t per_x = ru_type_count(&r->so.x), per_y = ru_type_count(&r->so.y);
    int64_t micro = p->n / p->step.micro, first = p->first < 0 ? 0 : p->first;
    for (int64_t k = 0; k < p->n; k++) {
        int64_t at = s * r->so.batch + first + k;
        void *x = ru_exe_input(p->exe, p->step.x[k / micro]);
        int64_t *y = ru_exe_input(p->exe, p->step.y[k / micro]);
        for (int64_t e = 0; e < per_x; e++) {
            if (r->so.x.dtype == RU_I64) {
                ((int64_t *)x)[k % micro * per_x + e] = (at * 31 + e * 7) % 11;
            } else {
                ((float *)x)[k % micro * per_x + e] = (float)sin((double)(at * 131 + e));
            }
        }
        for (int64_t e = 0; e < per_y; e++) {
            y[k % micro * per_y + e] = (at * 31 + e * 7 + 7) % 3;
        }
    }
    *(float *)ru_exe_input(p->exe, p->step.lr) = 0.05f;
    for (uint32_t k = 0; k < p->step.n_rates; k++) {
        *(float *)ru_exe_input(p->exe, p->step.rates[k].input) =
            0.05f * (float)p->step.rates[k].factor;
    }
    if (p->step.step.v != 0) {
        *(int64_t *)ru_exe_input(p->exe, p->step.step) = s + 1;
    }
}

static ru_status run_part(part *p, int64_t s, ru_err *err)
{
    feed(p, s);
    p->ready = p->waits = 0;
    return ru_exe_run(
        p->exe, &(ru_run_args){.seed = 1, .step = s, .sample_offset = p->first < 0 ? 0 : p->first},
        err);
}

static ru_status on_ready(void *self, const ru_exe_at *at)
{
    part *p = self;
    const ru_exe_grad *g;
    uint32_t n = ru_exe_grads(p->exe, &g);
    assert_true(p->waits == 0 && p->ready < n);
    assert_true(g[p->ready].value.v == at->value.v && g[p->ready].data == at->data &&
                g[p->ready].size_bytes == at->size_bytes);
    p->ready++;
    return RU_OK;
}

/* Everybody's gradients are there: all get the sums, in the order of the parts. */
static void add_all(rig *r)
{
    const ru_exe_grad *g[PARTS_MAX];
    uint32_t n = ru_exe_grads(r->parts[0].exe, &g[0]);
    for (uint32_t k = 1; k < r->n_parts; k++) {
        assert_int_equal(ru_exe_grads(r->parts[k].exe, &g[k]), n);
        assert_true(ru_exe_grads_hash(r->parts[k].exe) == ru_exe_grads_hash(r->parts[0].exe));
    }
    for (uint32_t i = 0; i < n; i++) {
        for (int64_t e = 0; e < g[0][i].size_bytes / 4; e++) {
            float sum = 0;
            for (uint32_t k = 0; k < r->n_parts; k++) {
                sum += r->parts[k].n > 0 && r->parts[k].ready > 0 ? ((float *)g[k][i].data)[e] : 0;
            }
            for (uint32_t k = 0; k < r->n_parts; k++) {
                ((float *)g[k][i].data)[e] = sum;
            }
        }
    }
}

static ru_status on_await(void *self, const ru_exe_at *at)
{
    (void)at;
    part *p = self;
    if (p->waits++ > 0) {
        return RU_OK;
    }
    if (p->cancel) {
        return RU_E_CANCELLED;
    }
    if (p->inner != NULL) {
        ru_err err = {0};
        assert_ok(run_part(p->inner, p->rig->steps, &err), err);
    } else {
        add_all(p->rig);
    }
    return RU_OK;
}

static void hook(part *p)
{
    ru_err err = {0};
    const ru_exe_port ports[] = {{.leaves = true, .fn = on_ready, .self = p},
                                 {.fn = on_await, .self = p}};
    assert_ok(ru_exe_ports_set(p->exe, ports, 2, &err), err);
}

static void near_states(const part *a, const part *b, double tolerance)
{
    ru_err err = {0};
    for (uint32_t v = 1; v < a->step.graph.n_values; v++) {
        const ru_value *s = &a->step.graph.values[v];
        if (s->kind != RU_VALUE_STATE) {
            continue;
        }
        int64_t n = ru_type_count(&s->type);
        float *p = calloc((size_t)n, sizeof *p), *q = calloc((size_t)n, sizeof *q);
        assert_ok(ru_exe_state_read(a->exe, (ru_value_id){v}, p, &err), err);
        assert_ok(ru_exe_state_read(b->exe, ru_graph_find(&b->step.graph, s->name), q, &err), err);
        for (int64_t e = 0; e < n; e++) {
            if (!(fabs((double)p[e] - (double)q[e]) <= tolerance * (1 + fabs((double)q[e])))) {
                fail_msg("%s[%lld]: %g and %g", s->name, (long long)e, (double)p[e], (double)q[e]);
            }
        }
        free(p);
        free(q);
    }
}

static float output(const part *p, ru_value_id v)
{
    return *(const float *)ru_exe_output(p->exe, v);
}

/* Parts of 3 and 5 of 8 samples, and one that only follows, against the whole. */
static void parts_equal_the_whole(rig *r, bool plain, ru_device_kind device, double tolerance)
{
    part whole;
    ru_err err = {0};
    open_part(r, &whole, -1, 8, false, device);
    open_part(r, &r->parts[0], 0, 3, plain, device);
    open_part(r, &r->parts[1], 3, 5, plain, device);
    open_part(r, &r->parts[2], 0, 1, plain, device);
    r->n_parts = 3;
    r->parts[0].inner = &r->parts[1];
    hook(&r->parts[0]);
    hook(&r->parts[1]);
    for (r->steps = 0; r->steps < 3; r->steps++) {
        assert_ok(run_part(&whole, r->steps, &err), err);
        assert_ok(run_part(&r->parts[0], r->steps, &err), err);
        feed(&r->parts[2], r->steps);
        assert_ok(ru_exe_phase(r->parts[2].exe, RU_PHASE_UPDATE,
                               &(ru_run_args){.seed = 1, .step = r->steps}, &err),
                  err);
        for (uint32_t k = 0; k < 3; k++) {
            const part *p = &r->parts[k];
            assert_true(fabsf(output(p, p->step.loss) - output(&whole, whole.step.loss)) <
                        (float)tolerance);
            assert_true(fabsf(output(p, p->step.count) - output(&whole, whole.step.count)) < 0.5f);
            assert_true(fabsf(output(p, p->step.correct) - output(&whole, whole.step.correct)) <
                        0.5f);
        }
    }
    for (uint32_t k = 0; k < 3; k++) {
        near_states(&r->parts[k], &whole, tolerance);
    }
    near_states(&r->parts[0], &r->parts[2], 0); /* the same bits everywhere */
    near_states(&r->parts[1], &r->parts[2], 0);
    ru_exe_close(whole.exe);
}

static ru_step_options options(ru_optimizer_kind kind)
{
    return (ru_step_options){.loss = RU_LOSS_CROSS_ENTROPY,
                             .optimizer = {.kind = kind,
                                           .lr = 0.05,
                                           .momentum = 0.9,
                                           .beta1 = 0.9,
                                           .beta2 = 0.999,
                                           .epsilon = 1e-6,
                                           .weight_decay = 1e-3},
                             .batch = 8,
                             .y = ru_type_scalar(RU_I64)};
}

static void mlp_parts(void **state)
{
    (void)state;
    static const int64_t hidden[] = {6};
    for (int device = 0; device < 2; device++) {
        rig r;
        ru_step_options so = options(RU_OPTIMIZER_SGD);
        so.x = ru_type_make(RU_F32, 1, (int64_t[]){4});
        so.clip_norm = 0.5;
        open_rig(&r, "mlp",
                 &(ru_zoo_options){.classes = 3,
                                   .input = {4},
                                   .input_rank = 1,
                                   .hidden = hidden,
                                   .hidden_n = 1,
                                   .dropout = 0.3},
                 so);
        parts_equal_the_whole(&r, device == 1, (ru_device_kind)device, 1e-5);
        close_rig(&r);
    }
}

/* Each optimizer, with moving means beside it. */
static void parts_with_every_optimizer(void **state)
{
    (void)state;
    static const int64_t hidden[] = {6};
    static const ru_optimizer_kind kinds[] = {RU_OPTIMIZER_RMSPROP, RU_OPTIMIZER_LION,
                                              RU_OPTIMIZER_LAMB};
    for (uint32_t k = 0; k < 2 * RU_ARRAY_LEN(kinds); k++) {
        rig r;
        ru_step_options so = options(kinds[k / 2]);
        so.x = ru_type_make(RU_F32, 1, (int64_t[]){4});
        so.optimizer.alpha = 0.9;
        so.optimizer.epsilon = 1;
        so.ema = 0.75;
        open_rig(&r, "mlp",
                 &(ru_zoo_options){
                     .classes = 3, .input = {4}, .input_rank = 1, .hidden = hidden, .hidden_n = 1},
                 so);
        parts_equal_the_whole(&r, k % 2 == 1, (ru_device_kind)(k % 2), 1e-5);
        close_rig(&r);
    }
}

/* A frozen first layer, rates of their own, and weights of the classes. */
static void parts_with_groups(void **state)
{
    (void)state;
    static const int64_t hidden[] = {6};
    static const ru_param_group groups[] = {
        {.match = "fc1.weight", .lr = 1, .freeze = true},
        {.match = "*.bias", .lr = 2, .weight_decay = 0},
        {.match = "fc2.*", .lr = 0.5, .weight_decay = 0.1},
    };
    for (int device = 0; device < 2; device++) {
        rig r;
        ru_step_options so = options(RU_OPTIMIZER_SGD);
        so.x = ru_type_make(RU_F32, 1, (int64_t[]){4});
        so.groups = groups;
        so.n_groups = RU_ARRAY_LEN(groups);
        so.class_weights = (const double[]){0.5, 2, 3};
        so.n_class_weights = 3;
        open_rig(&r, "mlp",
                 &(ru_zoo_options){
                     .classes = 3, .input = {4}, .input_rank = 1, .hidden = hidden, .hidden_n = 1},
                 so);
        parts_equal_the_whole(&r, device == 1, (ru_device_kind)device, 1e-5);
        assert_int_equal(r.parts[0].step.n_params, 3);
        close_rig(&r);
    }
}

static void lenet_parts(void **state)
{
    (void)state;
    rig r;
    ru_step_options so = options(RU_OPTIMIZER_ADAM);
    so.optimizer.epsilon = 1; /* else a rounding of a tiny gradient turns the step's sign */
    so.x = ru_type_make(RU_F32, 3, (int64_t[]){1, 28, 28});
    open_rig(&r, "lenet", &(ru_zoo_options){.classes = 3, .input = {1, 28, 28}, .input_rank = 3},
             so);
    parts_equal_the_whole(&r, true, RU_DEVICE_CPU, 1e-5);
    close_rig(&r);
}

static void gpt_parts(void **state)
{
    (void)state;
    for (int tie = 0; tie < 2; tie++) {
        rig r;
        ru_step_options so = options(RU_OPTIMIZER_SGD);
        so.loss = RU_LOSS_NEXT_TOKEN;
        so.x = so.y = ru_type_make(RU_I64, 1, (int64_t[]){6});
        open_rig(&r, "gpt",
                 &(ru_zoo_options){.vocab = 11,
                                   .classes = 11,
                                   .input = {6},
                                   .input_rank = 1,
                                   .context = 6,
                                   .layers = 2,
                                   .heads = 2,
                                   .width = 16,
                                   .bias = true,
                                   .tie = tie == 1},
                 so);
        parts_equal_the_whole(&r, true, RU_DEVICE_CPU, 1e-5);
        close_rig(&r);
    }
}

/* Batch norm sees its part: two parts equal one process with two micro-batches; the running
 * statistics are the mean of what the parts would have, by their samples. */
static void resnet_parts(void **state)
{
    (void)state;
    rig r;
    ru_err err = {0};
    part whole;
    ru_step_options so = options(RU_OPTIMIZER_SGD);
    so.x = ru_type_make(RU_F32, 3, (int64_t[]){3, 32, 32});
    so.batch = 4;
    so.accumulate = 2;
    open_rig(&r, "resnet18",
             &(ru_zoo_options){.classes = 3, .width = 16, .input = {3, 32, 32}, .input_rank = 3},
             so);
    open_part(&r, &whole, -1, 4, false, RU_DEVICE_CPU);
    r.so.accumulate = 1;
    open_part(&r, &r.parts[0], 0, 2, false, RU_DEVICE_CPU);
    open_part(&r, &r.parts[1], 2, 2, false, RU_DEVICE_CPU);
    r.n_parts = 2;
    r.parts[0].inner = &r.parts[1];
    hook(&r.parts[0]);
    hook(&r.parts[1]);
    assert_ok(run_part(&whole, 0, &err), err);
    assert_ok(run_part(&r.parts[0], 0, &err), err);
    part alone[2]; /* what each would have on its own */
    for (int k = 0; k < 2; k++) {
        open_part(&r, &alone[k], -1, 2, false, RU_DEVICE_CPU);
        alone[k].first = k * 2;
        assert_ok(run_part(&alone[k], 0, &err), err);
    }
    for (uint32_t v = 1; v < whole.step.graph.n_values; v++) {
        const ru_value *s = &whole.step.graph.values[v];
        if (s->kind != RU_VALUE_STATE || s->role == RU_ROLE_SLOT) {
            continue;
        }
        int64_t n = ru_type_count(&s->type);
        float *m[4];
        const part *from[4] = {&whole, &r.parts[0], &alone[0], &alone[1]};
        for (int k = 0; k < 4; k++) {
            m[k] = calloc((size_t)n, sizeof *m[k]);
            assert_ok(ru_exe_state_read(from[k]->exe, ru_graph_find(&from[k]->step.graph, s->name),
                                        m[k], &err),
                      err);
        }
        for (int64_t e = 0; e < n; e++) {
            float want = s->role == RU_ROLE_PARAM ? m[0][e] : 0.5f * (m[2][e] + m[3][e]);
            if (!(fabsf(m[1][e] - want) <= 2e-4f * (1 + fabsf(want)))) {
                fail_msg("%s[%lld]: %g, expected %g", s->name, (long long)e, (double)m[1][e],
                         (double)want);
            }
        }
        for (int k = 0; k < 4; k++) {
            free(m[k]);
        }
    }
    for (int k = 0; k < 2; k++) {
        ru_exe_close(alone[k].exe);
    }
    ru_exe_close(whole.exe);
    close_rig(&r);
}

/* Nodes that make a gradient of `p` stand right behind the last of what they read, but for others
 * like them. */
static void gradients_are_early(const part *p, uint32_t least)
{
    const ru_graph *g = &p->step.graph;
    bool *makes = calloc(g->n_nodes, sizeof *makes);
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->step.n_params; k++) {
        makes[g->values[p->step.grads[k].v].producer.v] = true;
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        uint32_t last = 0;
        for (uint32_t k = 0; makes[i] && k < g->nodes[i].n_in; k++) {
            uint32_t from = g->values[g->nodes[i].in[k].v].producer.v;
            last = from > last ? from : last;
        }
        bool early = makes[i];
        for (uint32_t k = last + 1; early && k < i; k++) {
            early = makes[k];
        }
        n += early ? 1 : 0;
    }
    free(makes);
    print_message("%s: %u nodes make gradients as soon as they can\n", g->name, n);
    assert_true(n >= least);
}

/* A part that holds all samples against the step in the order of the graph: the same bits. */
static void an_early_gradient_has_the_same_bits(void **state)
{
    (void)state;
    static const int64_t hidden[] = {40, 30};
    const ru_zoo_options image = {.classes = 3, .input = {1, 28, 28}, .input_rank = 3};
    const struct {
        const char *name;
        ru_zoo_options zoo;
        uint32_t accumulate, least; /* nodes; one may make two gradients */
    } nets[] = {
        {"mlp",
         {.classes = 3,
          .input = {28 * 28},
          .input_rank = 1,
          .hidden = hidden,
          .hidden_n = 2,
          .dropout = 0.3},
         1,
         6},
        {"lenet", image, 1, 6},
        {"resnet18", {.classes = 3, .width = 16, .input = {1, 28, 28}, .input_rank = 3}, 2, 62},
        {"gpt",
         {.vocab = 11,
          .classes = 11,
          .input = {6},
          .input_rank = 1,
          .context = 6,
          .layers = 2,
          .heads = 2,
          .width = 16,
          .bias = true,
          .tie = true},
         2,
         28}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(nets); k++) {
        rig r;
        ru_err err = {0};
        part whole;
        ru_step_options so = options(RU_OPTIMIZER_ADAM);
        so.accumulate = nets[k].accumulate;
        bool text = strcmp(nets[k].name, "gpt") == 0;
        so.loss = text ? RU_LOSS_NEXT_TOKEN : so.loss;
        so.x = text                          ? ru_type_make(RU_I64, 1, (int64_t[]){6})
               : nets[k].zoo.input_rank == 1 ? ru_type_make(RU_F32, 1, (int64_t[]){28 * 28})
                                             : ru_type_make(RU_F32, 3, (int64_t[]){1, 28, 28});
        so.y = text ? so.x : so.y;
        open_rig(&r, nets[k].name, &nets[k].zoo, so);
        open_part(&r, &whole, -1, 8, false, RU_DEVICE_CPU);
        open_part(&r, &r.parts[0], 0, 8, false, RU_DEVICE_CPU);
        gradients_are_early(&r.parts[0], nets[k].least);
        for (int64_t s = 0; s < 3; s++) {
            assert_ok(run_part(&whole, s, &err), err);
            assert_ok(run_part(&r.parts[0], s, &err), err);
        }
        near_states(&r.parts[0], &whole, 0);
        ru_exe_close(whole.exe);
        close_rig(&r);
    }
}

static ru_status on_poll(void *self, uint32_t step)
{
    uint32_t *left = self;
    (void)step;
    return (*left)-- == 0 ? RU_E_CANCELLED : RU_OK;
}

/* Given up at any step before the update, nothing has changed; pieces of state read meanwhile are
 * those of the whole. */
static void giving_up_leaves_no_trace(void **state)
{
    (void)state;
    rig r;
    ru_err err = {0};
    ru_step_options so = options(RU_OPTIMIZER_SGD);
    so.x = ru_type_make(RU_F32, 3, (int64_t[]){3, 32, 32});
    so.batch = 2;
    open_rig(&r, "resnet18",
             &(ru_zoo_options){.classes = 3, .width = 16, .input = {3, 32, 32}, .input_rank = 3},
             so);
    open_part(&r, &r.parts[0], 0, 2, false, RU_DEVICE_CPU);
    open_part(&r, &r.parts[1], 0, 2, false, RU_DEVICE_CPU);
    for (uint32_t after = 0; after < 90; after += 44) {
        uint32_t left = after;
        ru_exe_poll_set(r.parts[0].exe, on_poll, &left);
        assert_int_equal(run_part(&r.parts[0], 0, &err), RU_E_CANCELLED);
    }
    ru_exe_poll_set(r.parts[0].exe, NULL, NULL);
    r.parts[0].cancel = true;
    hook(&r.parts[0]);
    assert_int_equal(run_part(&r.parts[0], 0, &err), RU_E_CANCELLED);
    assert_true(r.parts[0].ready > 60);
    near_states(&r.parts[0], &r.parts[1], 0);
    for (uint32_t v = 1; v < r.parts[0].step.graph.n_values; v++) {
        const ru_value *s = &r.parts[0].step.graph.values[v];
        if (s->kind != RU_VALUE_STATE || s->type.rank != 4) {
            continue;
        }
        int64_t n = ru_type_count(&s->type), a = n / 3, b = n - n / 5;
        float *all = calloc((size_t)n, 4), *piece = calloc((size_t)n, 4);
        assert_ok(ru_exe_state_read(r.parts[0].exe, (ru_value_id){v}, all, &err), err);
        assert_ok(ru_exe_state_read_part(r.parts[0].exe, (ru_value_id){v}, a * 4, (b - a) * 4,
                                         piece, &err),
                  err);
        assert_memory_equal(all + a, piece, (size_t)(b - a) * 4);
        for (int64_t e = 0; e < n; e++) {
            all[e] = (float)e;
        }
        assert_ok(ru_exe_state_write_part(r.parts[0].exe, (ru_value_id){v}, 0, a * 4, all, &err),
                  err);
        assert_ok(ru_exe_state_write_part(r.parts[0].exe, (ru_value_id){v}, a * 4, (n - a) * 4,
                                          all + a, &err),
                  err);
        assert_ok(ru_exe_state_read(r.parts[0].exe, (ru_value_id){v}, piece, &err), err);
        assert_memory_equal(all, piece, (size_t)n * 4);
        assert_int_equal(
            ru_exe_state_read_part(r.parts[0].exe, (ru_value_id){v}, 4, n * 4, piece, &err),
            RU_E_ARG);
        free(all);
        free(piece);
    }
    close_rig(&r);
}

/* Gradients stand where the caller says, and the step is the same to the bit. */
static void gradients_stand_where_told(void **state)
{
    (void)state;
    rig r;
    ru_err err = {0};
    ru_step_options so = options(RU_OPTIMIZER_SGD);
    so.x = ru_type_make(RU_F32, 3, (int64_t[]){1, 28, 28});
    open_rig(&r, "lenet", &(ru_zoo_options){.classes = 3, .input = {1, 28, 28}, .input_rank = 3},
             so);
    open_part(&r, &r.parts[0], 0, 5, true, RU_DEVICE_CPU);
    open_part(&r, &r.parts[1], 0, 5, true, RU_DEVICE_CPU);
    const ru_exe_grad *g;
    uint32_t n = ru_exe_grads(r.parts[0].exe, &g);
    void *given[32] = {0}, *memory[32];
    assert_true(n > 4 && n <= 32);
    for (uint32_t k = 0; k < n; k++) { /* `given` goes by value, the list by readiness */
        uint32_t before = 0;
        for (uint32_t j = 0; j < n; j++) {
            before += g[j].value.v < g[k].value.v ? 1 : 0;
        }
        memory[k] = aligned_alloc(64, (size_t)(g[k].size_bytes + 63) / 64 * 64);
        given[before] = memory[k];
    }
    ru_exe_close(r.parts[1].exe);
    const ru_exe_options eo = {
        .threads = 1, .two_phase = true, .plain_grads = true, .grad_at = given};
    assert_ok(ru_exe_open(&r.parts[1].step.graph, &eo, &r.parts[1].exe, &err), err);
    for (uint32_t v = 1; v < r.parts[0].step.graph.n_values; v++) {
        const ru_value *s = &r.parts[0].step.graph.values[v];
        if (s->kind == RU_VALUE_STATE) {
            float *x = calloc((size_t)ru_type_count(&s->type), sizeof *x);
            assert_ok(ru_exe_state_read(r.parts[0].exe, (ru_value_id){v}, x, &err), err);
            assert_ok(ru_exe_state_write(r.parts[1].exe, (ru_value_id){v}, x, &err), err);
            free(x);
        }
    }
    for (int64_t s = 0; s < 3; s++) {
        assert_ok(run_part(&r.parts[0], s, &err), err);
        assert_ok(run_part(&r.parts[1], s, &err), err);
    }
    n = ru_exe_grads(r.parts[1].exe, &g);
    for (uint32_t k = 0; k < n; k++) {
        assert_ptr_equal(g[k].data, memory[k]);
    }
    near_states(&r.parts[0], &r.parts[1], 0);
    close_rig(&r);
    for (uint32_t k = 0; k < n; k++) {
        free(memory[k]);
    }
}

/* x W, W of two parameters. */
static void open_two(rig *r, ru_value_id (*weight)(ru_build *b, ru_value_id a, ru_value_id c))
{
    ru_err err = {0};
    ru_build b;
    uint32_t samples;
    memset(r, 0, sizeof *r);
    r->so = options(RU_OPTIMIZER_SGD);
    r->so.x = ru_type_make(RU_F32, 1, (int64_t[]){4});
    ru_arena_init(&r->arena, 0);
    assert_ok(ru_graph_init(&r->model, &r->arena, "two", &err), err);
    assert_ok(ru_graph_symbol(&r->model, "N", &samples, &err), err);
    ru_build_init(&b, &r->model);
    ru_type in = ru_type_make(RU_F32, 2, (int64_t[]){0, 4}),
            wt = ru_type_make(RU_F32, 2, (int64_t[]){4, 3});
    in.dims[0] = ru_dim_symbol(samples, 1);
    ru_value_id x = ru_build_input(&b, "x", in);
    ru_value_id w = weight(&b, ru_build_state(&b, "A", wt, RU_ROLE_PARAM, NULL),
                           ru_build_state(&b, "B", wt, RU_ROLE_PARAM, NULL));
    ru_build_output(&b, ru_build_op2(&b, RU_OP_MatMul, x, w, NULL), "y");
    assert_ok(ru_build_finish(&b, &err), err);
}

static ru_value_id sum_of(ru_build *b, ru_value_id a, ru_value_id c)
{
    return ru_build_op2(b, RU_OP_Add, a, c, NULL);
}

static ru_value_id sines_of(ru_build *b, ru_value_id a, ru_value_id c)
{
    return sum_of(b, ru_build_op1(b, RU_OP_Sin, a, NULL), ru_build_op1(b, RU_OP_Sin, c, NULL));
}

/* y = x (A + B): both parameters have the same gradient, which leaves twice. */
static void parameters_with_one_gradient(void **state)
{
    (void)state;
    rig r;
    open_two(&r, sum_of);
    parts_equal_the_whole(&r, true, RU_DEVICE_CPU, 1e-5);
    const ru_exe_grad *grads;
    assert_int_equal(ru_exe_grads(r.parts[0].exe, &grads), 3); /* and what is summed beside them */
    close_rig(&r);
}

/* A gradient needs the cosine of its parameter, which could be made at once: it is made before the
 * node that reads it, and does not take memory until then. */
static void what_needs_no_gradient_is_not_early(void **state)
{
    (void)state;
    rig r;
    open_two(&r, sines_of);
    open_part(&r, &r.parts[0], 0, 8, false, RU_DEVICE_CPU);
    const ru_graph *g = &r.parts[0].step.graph;
    uint32_t cosines = 0;
    for (uint32_t i = 1; i + 1 < g->n_nodes; i++) {
        if (g->nodes[i].op == RU_OP_Cos) {
            assert_int_equal(g->nodes[i + 1].op, RU_OP_Mul);
            assert_true(g->nodes[i + 1].in[1].v == g->nodes[i].out[0].v);
            cosines++;
        }
    }
    assert_int_equal(cosines, 2);
    close_rig(&r);
}

RU_TESTS(train_share, cmocka_unit_test(gradients_stand_where_told), cmocka_unit_test(mlp_parts),
         cmocka_unit_test(parts_with_groups), cmocka_unit_test(parts_with_every_optimizer),
         cmocka_unit_test(lenet_parts), cmocka_unit_test(gpt_parts), cmocka_unit_test(resnet_parts),
         cmocka_unit_test(giving_up_leaves_no_trace),
         cmocka_unit_test(an_early_gradient_has_the_same_bits),
         cmocka_unit_test(what_needs_no_gradient_is_not_early),
         cmocka_unit_test(parameters_with_one_gradient))
