/* A second device behind the table of exec/dev.h, written apart from the lowering: every node is
 * one step on the reference kernel of its operator, every value has memory of its own, and a last
 * step copies updates into state. Whole networks of the zoo run on it through the same executable
 * and give the bits of the reference device. */
#include <stdlib.h>
#include <string.h>

#include "exec/exe_impl.h"
#include "exec/ref.h"
#include "test/test.h"
#include "train/model/step.h"
#include "train/model/zoo.h"

typedef struct plain_dev {
    rui_dev head; /* first */
    const ru_graph *g;
    ru_arena *arena;
    ru_arena scratch;
    void **at;       /* [n_values] */
    int64_t written; /* since the last preparation */
    int64_t prepared, steps;
} plain_dev;

static plain_dev *of(rui_dev *d)
{
    return (plain_dev *)(void *)d;
}

static const plain_dev *of_const(const rui_dev *d)
{
    return (const plain_dev *)(const void *)d;
}

static void plain_close(rui_dev *d)
{
    ru_arena_fini(&of(d)->scratch);
    free(d);
}

/* Step i runs node i + 1. */
static uint32_t step_of(const plain_dev *p, ru_value_id v)
{
    const ru_value *x = &p->g->values[v.v];
    return x->kind == RU_VALUE_TEMP ? x->producer.v - 1 : UINT32_MAX;
}

static bool plain_value(const rui_dev *d, ru_value_id v, rui_dev_value *out)
{
    const plain_dev *p = of_const(d);
    *out = (rui_dev_value){.data = p->at[v.v],
                           .size_bytes = ru_type_bytes(&p->g->values[v.v].type),
                           .order = v.v,
                           .made = step_of(p, v),
                           .read = UINT32_MAX};
    for (uint32_t i = p->g->n_nodes; i-- > 1;) {
        for (uint32_t k = 0; k < p->g->nodes[i].n_in; k++) {
            out->read = p->g->nodes[i].in[k].v == v.v ? i - 1 : out->read;
        }
    }
    return true;
}

/* Where forward ends, where the update begins, and whether it needs more than gradients. */
static void find_phases(plain_dev *p, const ru_exe_options *opt)
{
    const ru_graph *g = p->g;
    for (uint32_t k = 0; k < opt->n_forward; k++) {
        uint32_t end = step_of(p, opt->forward[k]) + 1;
        p->head.backward_from = end > p->head.backward_from ? end : p->head.backward_from;
    }
    for (uint32_t v = 1; v < g->n_values; v++) {
        uint32_t end = rui_grad_leaves(g, (ru_value_id){v}) ? step_of(p, (ru_value_id){v}) + 1 : 0;
        p->head.update_from = end > p->head.update_from ? end : p->head.update_from;
    }
    p->head.alone = true;
    for (uint32_t i = p->head.update_from + 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            ru_value_id v = g->nodes[i].in[k];
            uint32_t made = step_of(p, v);
            if (made < p->head.update_from && !rui_grad_leaves(g, v)) {
                p->head.alone = false;
                p->head.not_alone = i - 1;
            }
        }
    }
}

static ru_status plain_open(const rui_dev_in *in, rui_dev **out, ru_err *err);
static ru_status plain_prepare(rui_dev *d, ru_err *err)
{
    (void)err;
    of(d)->prepared += of(d)->written > 0;
    of(d)->written = 0;
    return RU_OK;
}

/* The last step: state := value, as if all at once. */
static void copy_updates(plain_dev *p)
{
    const ru_graph *g = p->g;
    ru_arena_mark mark = ru_arena_mark_get(&p->scratch);
    void **news = RU_NEW(&p->scratch, void *, g->n_updates);
    for (uint32_t k = 0; k < g->n_updates; k++) {
        const ru_type *t = &g->values[g->updates[k].value.v].type;
        news[k] = ru_arena_copy(&p->scratch, p->at[g->updates[k].value.v], ru_type_bytes(t), 64);
    }
    for (uint32_t k = 0; k < g->n_updates; k++) {
        const ru_type *t = &g->values[g->updates[k].value.v].type;
        memcpy(p->at[g->updates[k].state.v], news[k], (size_t)ru_type_bytes(t));
    }
    ru_arena_rewind(&p->scratch, mark);
}

static ru_status run_node(plain_dev *p, const ru_node *n, const ru_run_args *args, ru_err *err)
{
    ru_tensor in[64], out[64];
    assert_true(n->n_in <= 64 && n->n_out <= 64);
    for (uint32_t k = 0; k < n->n_in; k++) {
        in[k] = (ru_tensor){p->at[n->in[k].v], p->g->values[n->in[k].v].type};
    }
    for (uint32_t k = 0; k < n->n_out; k++) {
        out[k] = (ru_tensor){p->at[n->out[k].v], p->g->values[n->out[k].v].type};
    }
    const ru_ref_call call = {
        .node = n, .in = in, .out = out, .args = args, .scratch = &p->scratch};
    ru_arena_mark mark = ru_arena_mark_get(&p->scratch);
    ru_status st = ru_ref_kernel(n->op)(&call, err);
    ru_arena_rewind(&p->scratch, mark);
    return st;
}

static ru_status plain_run(rui_dev *d, uint32_t begin, uint32_t end, const ru_run_args *args,
                           uint32_t *at, ru_err *err)
{
    plain_dev *p = of(d);
    for (*at = begin; *at < end; ++*at, p->steps++) {
        if (*at + 1 < p->g->n_nodes) {
            RU_TRY(run_node(p, &p->g->nodes[*at + 1], args, err));
        } else {
            copy_updates(p);
        }
    }
    return RU_OK;
}

static void *plain_output(const rui_dev *d, uint32_t k)
{
    return of_const(d)->at[of_const(d)->g->outputs[k].v];
}

static ru_status plain_read(rui_dev *d, ru_value_id v, int64_t offset_bytes, int64_t size_bytes,
                            void *into, ru_err *err)
{
    (void)err;
    memcpy(into, (const uint8_t *)of(d)->at[v.v] + offset_bytes, (size_t)size_bytes);
    return RU_OK;
}

static ru_status plain_write(rui_dev *d, ru_value_id v, int64_t offset_bytes, int64_t size_bytes,
                             const void *from, ru_err *err)
{
    (void)err;
    memcpy((uint8_t *)of(d)->at[v.v] + offset_bytes, from, (size_t)size_bytes);
    of(d)->written++;
    return RU_OK;
}

static const char *plain_label(const rui_dev *d, uint32_t step)
{
    const plain_dev *p = of_const(d);
    return step + 1 < p->g->n_nodes ? ru_op_get(p->g->nodes[step + 1].op)->name : "update";
}

static const char *plain_kernel(const rui_dev *d, uint32_t step)
{
    (void)d;
    (void)step;
    return "plain";
}

static const char *plain_node(const rui_dev *d, uint32_t step)
{
    const plain_dev *p = of_const(d);
    const char *name = step + 1 < p->g->n_nodes ? p->g->nodes[step + 1].name : NULL;
    return name == NULL ? "" : name;
}

static void plain_stats(const rui_dev *d, ru_exe_stats *into)
{
    into->n_prepared = of_const(d)->prepared;
}

static const char *plain_print(const rui_dev *d, const rui_step_time *times, ru_arena *arena)
{
    ru_text t = ru_text_arena(arena);
    for (uint32_t i = 0; i < d->n_steps; i++) {
        ru_text_putf(&t, "%s %lld\n", plain_label(d, i),
                     times[i].n > 0 ? (long long)(times[i].ns_sum / times[i].n) : 0);
    }
    return t.p;
}

static ru_status plain_facts(const rui_dev *d, const rui_step_time *times, ru_arena *arena,
                             ru_op_fact **ops, ru_err *err)
{
    (void)err;
    *ops = RU_NEW(arena, ru_op_fact, d->n_steps);
    for (uint32_t i = 0; i < d->n_steps; i++) {
        (*ops)[i] = (ru_op_fact){.step = i,
                                 .op = plain_label(d, i),
                                 .kernel = "plain",
                                 .shapes = "",
                                 .node = plain_node(d, i),
                                 .device_type = d->ops->name,
                                 .took = {.count = times[i].n, .min_ns = times[i].ns_min}};
    }
    return RU_OK;
}

static const rui_dev_ops plain_ops = {
    .name = "plain",
    .as_given = true,
    .threads_max = 1,
    .open = plain_open,
    .close = plain_close,
    .prepare = plain_prepare,
    .run = plain_run,
    .value = plain_value,
    .output = plain_output,
    .read = plain_read,
    .write = plain_write,
    .label = plain_label,
    .kernel = plain_kernel,
    .node = plain_node,
    .stats = plain_stats,
    .print = plain_print,
    .facts = plain_facts,
};

static ru_status plain_open(const rui_dev_in *in, rui_dev **out, ru_err *err)
{
    if (in->share != NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "the plain device shares nothing");
    }
    plain_dev *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->g = in->graph;
    p->arena = in->arena;
    p->head.ops = &plain_ops;
    p->head.n_steps = in->graph->n_nodes; /* nodes[0] is unused; the last step updates */
    p->head.slow = "";
    ru_arena_init(&p->scratch, 0);
    p->at = RU_NEW(in->arena, void *, p->g->n_values);
    for (uint32_t v = 1; v < p->g->n_values; v++) {
        const ru_value *x = &p->g->values[v];
        p->at[v] = ru_arena_zalloc(in->arena, ru_type_bytes(&x->type), 64);
        if (x->kind == RU_VALUE_CONST && ru_type_bytes(&x->type) > 0) {
            memcpy(p->at[v], x->data, (size_t)ru_type_bytes(&x->type));
        }
    }
    find_phases(p, in->opt);
    *out = &p->head;
    return RU_OK;
}

/* -- networks ---------------------------------------------------------------------------------- */

typedef struct net {
    const char *name;
    ru_zoo_options zoo;
    ru_loss_kind loss;
    ru_type x, y;
} net;

typedef struct rig {
    ru_arena arena;
    ru_zoo_model zoo;
    ru_graph model;
    ru_step_graph step;
    ru_exe *exe;
} rig;

static void open_rig(rig *r, const net *n, const rui_dev_ops *ops)
{
    ru_err err = {0};
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    const ru_step_options so = {.loss = n->loss,
                                .optimizer = {.kind = RU_OPTIMIZER_SGD, .momentum = 0.9},
                                .batch = 2,
                                .share_of = 4,
                                .x = n->x,
                                .y = n->y};
    assert_ok(ru_graph_init(&r->model, &r->arena, n->name, &err), err);
    assert_ok(ru_zoo_build(n->name, &n->zoo, true, &r->model, &r->zoo, &err), err);
    assert_ok(ru_step_build(&r->model, &so, &r->arena, &r->step, &err), err);
    const ru_exe_options eo = {.device = RU_DEVICE_REF,
                               .threads = 4,
                               .two_phase = true,
                               .forward = r->step.forward,
                               .n_forward = r->step.n_forward};
    assert_ok(rui_exe_open_on(ops, &r->step.graph, &eo, &r->exe, &err), err);
    for (uint32_t k = 0; k < r->zoo.n_inits; k++) {
        const ru_value *p = ru_graph_value(&r->model, r->zoo.inits[k].param);
        int64_t count = ru_type_count(&p->type);
        float *data = calloc((size_t)count + 4, sizeof *data);
        ru_init_fill(&r->zoo.inits[k], 5, k, count, data);
        assert_ok(ru_exe_state_write(r->exe, ru_graph_find(&r->step.graph, p->name), data, &err),
                  err);
        free(data);
    }
}

static void feed(rig *r, int64_t step)
{
    for (uint32_t i = 0; i < r->step.graph.n_inputs; i++) {
        const ru_type *t = &ru_graph_value(&r->step.graph, r->step.graph.inputs[i])->type;
        void *p = ru_exe_input(r->exe, r->step.graph.inputs[i]);
        for (int64_t k = 0; k < ru_type_count(t); k++) {
            if (t->dtype == RU_I64) {
                ((int64_t *)p)[k] = (step + k * 7) % 3;
            } else {
                ((float *)p)[k] = (float)((step * 131 + k * 29) % 101) / 101.0f;
            }
        }
    }
    *(float *)ru_exe_input(r->exe, r->step.lr) = 0.05f;
}

static void close_rig(rig *r)
{
    ru_exe_close(r->exe);
    ru_arena_fini(&r->arena);
}

static uint32_t states_equal(rig *a, rig *b)
{
    ru_err err = {0};
    uint32_t n = 0;
    for (uint32_t v = 1; v < a->step.graph.n_values; v++) {
        const ru_value *s = &a->step.graph.values[v];
        if (s->kind != RU_VALUE_STATE) {
            continue;
        }
        size_t bytes = (size_t)ru_type_bytes(&s->type);
        uint8_t *p = malloc(bytes + 1), *q = malloc(bytes + 1);
        assert_ok(ru_exe_state_read(a->exe, (ru_value_id){v}, p, &err), err);
        assert_ok(ru_exe_state_read(b->exe, (ru_value_id){v}, q, &err), err);
        assert_memory_equal(p, q, bytes);
        free(p);
        free(q);
        n++;
    }
    return n;
}

static ru_status on_poll(void *self, uint32_t step)
{
    (void)step;
    ++*(int64_t *)self;
    return RU_OK;
}

static void net_runs_on_both(const net *n)
{
    rig a, b;
    ru_err err = {0};
    open_rig(&a, n, &plain_ops);
    open_rig(&b, n, rui_dev_of(RU_DEVICE_REF));
    int64_t polls = 0, steps = 0;
    ru_exe_poll_set(a.exe, on_poll, &polls);
    for (int64_t s = 0; s < 2; s++) {
        const ru_run_args args = {.seed = 1, .step = s};
        feed(&a, s);
        feed(&b, s);
        if (s == 0) {
            assert_ok(ru_exe_run(a.exe, &args, &err), err);
        }
        for (int p = RU_PHASE_FORWARD; p <= RU_PHASE_UPDATE && s == 1; p++) {
            assert_ok(ru_exe_phase(a.exe, (ru_phase)p, &args, &err), err);
        }
        assert_ok(ru_exe_run(b.exe, &args, &err), err);
        assert_true(states_equal(&a, &b) > 2);
        assert_memory_equal(ru_exe_output(a.exe, a.step.loss), ru_exe_output(b.exe, b.step.loss),
                            4);
        steps += a.step.graph.n_nodes;
        assert_int_equal(of_const(a.exe->dev)->steps, steps); /* it did all of the work */
        assert_int_equal(polls, steps);
    }
    ru_exe_stats stats;
    ru_exe_stats_get(a.exe, &stats);
    assert_int_equal(stats.n_prepared, 1); /* for all parameters together, before the first run */
    assert_non_null(strstr(ru_exe_print(a.exe, &a.arena), "SgdUpdate"));
    close_rig(&a);
    close_rig(&b);
}

static void networks_run_on_a_second_device(void **state)
{
    (void)state;
    const int64_t image[] = {1, 28, 28}, tokens[] = {6};
    const net nets[] = {
        {"lenet",
         {.classes = 3, .input = {1, 28, 28}, .input_rank = 3},
         RU_LOSS_CROSS_ENTROPY,
         ru_type_make(RU_F32, 3, image),
         ru_type_scalar(RU_I64)},
        {"gpt",
         {.vocab = 11, .context = 6, .layers = 2, .heads = 2, .width = 16, .bias = true},
         RU_LOSS_NEXT_TOKEN,
         ru_type_make(RU_I64, 1, tokens),
         ru_type_make(RU_I64, 1, tokens)},
        {"lstm",
         {.vocab = 11, .context = 6, .layers = 1, .width = 8},
         RU_LOSS_NEXT_TOKEN,
         ru_type_make(RU_I64, 1, tokens),
         ru_type_make(RU_I64, 1, tokens)},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(nets); k++) {
        net_runs_on_both(&nets[k]);
    }
}

/* A kernel's error names the step on any device. */
static void errors_name_the_step(void **state)
{
    (void)state;
    rig r;
    ru_err err = {0};
    const int64_t image[] = {1, 28, 28};
    const net n = {"lenet",
                   {.classes = 3, .input = {1, 28, 28}, .input_rank = 3},
                   RU_LOSS_CROSS_ENTROPY,
                   ru_type_make(RU_F32, 3, image),
                   ru_type_scalar(RU_I64)};
    open_rig(&r, &n, &plain_ops);
    feed(&r, 0);
    *(int64_t *)ru_exe_input(r.exe, r.step.y[0]) = 77; /* no such class */
    assert_int_equal(ru_exe_run(r.exe, NULL, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "SoftmaxCrossEntropy"));
    assert_non_null(strstr(err.text, "(plain)"));
    close_rig(&r);
}

RU_TESTS(test_exec_device, cmocka_unit_test(networks_run_on_a_second_device),
         cmocka_unit_test(errors_name_the_step))
