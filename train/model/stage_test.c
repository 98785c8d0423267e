/* A step that is cut into stages, or placed on devices, is the step: its loss and all its state
 * have the bits of one process with as many micro-batches. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/together.h"
#include "test/test.h"
#include "train/model/stage.h"
#include "train/model/zoo.h"
#include "world/graph/build.h"

enum { MICRO = 3, BATCH = 6, STEPS = 2, STAGES_MAX = 16, CUTS_MAX = 3, CLASSES = 5 };
enum { HANDS_MAX = 256 };

typedef struct model {
    const char *name;
    ru_zoo_options zo;
    ru_type x, y;
    ru_loss_kind loss;
    const char *cut[CUTS_MAX];
    uint32_t n_cut;
    ru_placing placing; /* devices 0: `cut` counts */
} model;

/* What a port showed: a copy, and where it stood. */
typedef struct shown {
    void *copy;
    const void *stood;
} shown;

typedef struct rig {
    ru_arena arena;
    ru_graph graph;
    ru_zoo_model zoo;
    ru_step_graph whole;
    ru_exe *one;
    ru_stages stages;
    ru_placed placed; /* n 0: stages in their order */
    ru_exe *home[STAGES_MAX], *slot[STAGES_MAX][MICRO];
    shown *made[STAGES_MAX][MICRO]; /* by value */
    ru_exe_together *together;      /* memory of all slots; NULL: each has its own */
    int64_t apart_bytes;            /* of those, with their inputs */
    uint32_t copied, handed;        /* what crossed so far: into an input, or stood there */
} rig;

/* A copy, since with one memory for all the place of the value may serve others then; statistics
 * stay where they are. */
static ru_status on_made(void *self, const ru_exe_at *at)
{
    shown *to = &((shown *)self)[at->value.v];
    to->stood = at->data;
    if (to->copy != NULL && to->copy != at->data) {
        memcpy(to->copy, at->data, (size_t)at->size_bytes);
    } else {
        to->copy = at->data;
    }
    return RU_OK;
}

static bool is_news(const ru_stage *s, ru_value_id v)
{
    bool is = false;
    for (uint32_t i = 0; i < s->n_stats; i++) {
        is = is || s->news[i].v == v.v;
    }
    return is;
}

/* Those that are copied first. */
static uint32_t sort_ports(const ru_stage *s, ru_value_id *ports)
{
    uint32_t n = 0, brief = 0;
    for (uint32_t k = 0; k < 2 * s->n_ports; k++) {
        ru_value_id v = s->ports[k % s->n_ports];
        if (is_news(s, v) == (k >= s->n_ports)) {
            ports[n++] = v;
            brief += !is_news(s, v);
        }
    }
    return brief;
}

static void watch(rig *r, uint32_t k, uint32_t j)
{
    ru_err err = {0};
    const ru_stage *s = &r->stages.at[k];
    ru_exe_port ports[64];
    r->made[k][j] = RU_NEW(&r->arena, shown, s->step.graph.n_values);
    for (uint32_t i = 0; i < s->n_ports; i++) {
        int64_t bytes = ru_type_bytes(&ru_graph_value(&s->step.graph, s->ports[i])->type);
        r->made[k][j][s->ports[i].v].copy =
            is_news(s, s->ports[i]) ? NULL : ru_arena_alloc(&r->arena, bytes, 64);
        ports[i] = (ru_exe_port){
            .value = s->ports[i], .leaves = true, .fn = on_made, .self = r->made[k][j]};
    }
    assert_true(s->n_ports <= 64);
    assert_ok(ru_exe_ports_set(r->slot[k][j], ports, s->n_ports, &err), err);
}

static ru_step_options options(const model *m, bool cut)
{
    return (ru_step_options){
        .loss = m->loss,
        .optimizer = {.kind = RU_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
        .accumulate = cut ? 1 : MICRO,
        .batch = cut ? BATCH / MICRO : BATCH,
        .share_of = cut ? BATCH : 0,
        .x = m->x,
        .y = m->y};
}

static void fill(const rig *r, const ru_graph *g, ru_exe *e)
{
    ru_err err = {0};
    for (uint32_t k = 0; k < r->zoo.n_inits; k++) {
        const ru_value *p = ru_graph_value(&r->graph, r->zoo.inits[k].param);
        ru_value_id id = ru_graph_find(g, p->name);
        int64_t n = ru_type_count(&p->type);
        float *data = calloc((size_t)n, sizeof *data);
        ru_init_fill(&r->zoo.inits[k], 5, k, n, data);
        if (id.v != 0) {
            assert_ok(ru_exe_state_write(e, id, data, &err), err);
        }
        free(data);
    }
}

static ru_value_id linear(rig *r, ru_build *b, ru_value_id x, const char *name, int64_t in,
                          int64_t out)
{
    const int64_t dims[] = {in, out};
    float *w = RU_NEW(&r->arena, float, in *out);
    for (int64_t i = 0; i < in * out; i++) {
        w[i] = (float)sin((double)(i + name[0]));
    }
    return ru_build_op2(b, RU_OP_MatMul, x,
                        ru_build_param(b, name, ru_type_make(RU_F32, 2, dims), w), NULL);
}

/* One value with three readers, whose results are added. */
static void build_fan(rig *r)
{
    static const char *const names[] = {"a.weight", "b.weight", "c.weight"};
    ru_build b;
    ru_err err = {0};
    uint32_t sym;
    assert_ok(ru_graph_symbol(&r->graph, "batch", &sym, &err), err);
    const int64_t dims[] = {ru_dim_symbol(sym, 1), 7};
    ru_build_init(&b, &r->graph);
    ru_value_id y[3], x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, dims));
    x = ru_build_op1(&b, RU_OP_Tanh, linear(r, &b, x, "first.weight", 7, 9), NULL);
    for (uint32_t k = 0; k < 3; k++) {
        y[k] = linear(r, &b, x, names[k], 9, CLASSES);
    }
    ru_value_id sum = ru_build_op2(&b, RU_OP_Add, y[0], y[1], NULL);
    sum = ru_build_op2(&b, RU_OP_Add, sum, y[2], NULL);
    ru_build_output(&b, sum, "logits");
    assert_ok(ru_build_finish(&b, &err), err);
}

/* Three layers with one matrix, and another one before each. */
static void build_thrice(rig *r)
{
    static const char *const names[] = {"first.weight", "a.weight", "b.weight"};
    ru_build b;
    ru_err err = {0};
    uint32_t sym;
    assert_ok(ru_graph_symbol(&r->graph, "batch", &sym, &err), err);
    const int64_t dims[] = {ru_dim_symbol(sym, 1), 7}, square[] = {7, 7};
    float *data = RU_NEW(&r->arena, float, 49);
    for (int64_t i = 0; i < 49; i++) {
        data[i] = (float)cos((double)i);
    }
    ru_build_init(&b, &r->graph);
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, dims));
    ru_value_id w = ru_build_param(&b, "shared.weight", ru_type_make(RU_F32, 2, square), data);
    for (uint32_t k = 0; k < 3; k++) {
        x = ru_build_op1(&b, RU_OP_Tanh, linear(r, &b, x, names[k], 7, 7), NULL);
        x = ru_build_op1(&b, RU_OP_Tanh, ru_build_op2(&b, RU_OP_MatMul, x, w, NULL), NULL);
    }
    ru_build_output(&b, linear(r, &b, x, "last.weight", 7, CLASSES), "logits");
    assert_ok(ru_build_finish(&b, &err), err);
}

/* A state that no node reads is one of the first stage. */
static void add_unread(rig *r)
{
    static const float data[] = {1, 2, 3};
    const int64_t dim = RU_ARRAY_LEN(data);
    ru_err err = {0};
    ru_build b;
    ru_build_init(&b, &r->graph);
    (void)ru_build_param(&b, "unread", ru_type_make(RU_F32, 1, &dim), data);
    assert_ok(ru_build_finish(&b, &err), err);
}

/* The k-th stage that goes forward, and the k-th that goes back. */
static uint32_t turn(const rig *r, uint32_t k)
{
    return r->placed.n > 0 ? r->placed.order[k] : k;
}

static uint32_t turn_back(const rig *r, uint32_t k)
{
    return r->placed.n > 0 ? r->placed.back[k] : r->stages.n - 1 - k;
}

/* All stages are on one device, and hand over what crosses. */
static uint32_t list_hands(rig *r, ru_exe_hand *hands)
{
    ru_err err = {0};
    ru_exe_hand *one;
    uint32_t part[STAGES_MAX], n = 0;
    for (uint32_t k = 0; k < r->stages.n; k++) {
        part[k] = k;
    }
    assert_ok(ru_placed_hands(&r->stages, part, r->stages.n, &r->arena, &one, &n, &err), err);
    assert_true(n * MICRO <= HANDS_MAX);
    for (uint32_t k = 0; k < n * MICRO; k++) {
        hands[k] = one[k % n];
        hands[k].from += k / n * r->stages.n;
        hands[k].to += k / n * r->stages.n;
    }
    return n * MICRO;
}

/* One memory for the slots of all stages, in the order of staged_step. */
static void join_slots(rig *r)
{
    ru_err err = {0};
    ru_exe *all[STAGES_MAX * MICRO];
    ru_exe_turn turns[2 * STAGES_MAX * MICRO];
    ru_exe_hand hands[HANDS_MAX];
    uint32_t n = 0, stages = r->stages.n;
    for (uint32_t k = 0; k < stages * MICRO; k++) {
        all[k] = r->slot[k % stages][k / stages];
    }
    for (uint32_t k = 0; k < 2 * stages * MICRO; k++) {
        bool back = k >= stages * MICRO;
        uint32_t j = k / stages % MICRO, at = k % stages;
        turns[n++] = (ru_exe_turn){.exe = j * stages + (back ? turn_back(r, at) : turn(r, at)),
                                   .phase = back ? RU_PHASE_BACKWARD : RU_PHASE_FORWARD};
    }
    const ru_exe_order order = {turns, n, hands, list_hands(r, hands)};
    assert_ok(ru_exe_together_open(all, stages * MICRO, &order, &r->together, &err), err);
}

/* stays: one memory, and what leaves may do so until the next step begins. */
static void open_rig_as(rig *r, const model *m, bool together, bool stays)
{
    ru_err err = {0};
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    assert_ok(ru_graph_init(&r->graph, &r->arena, m->name, &err), err);
    if (strcmp(m->name, "fan") == 0) {
        build_fan(r);
    } else if (strcmp(m->name, "thrice") == 0) {
        build_thrice(r);
    } else {
        assert_ok(ru_zoo_build(m->name, &m->zo, true, &r->graph, &r->zoo, &err), err);
    }
    add_unread(r);
    const ru_step_options so = options(m, false), co = options(m, true);
    assert_ok(ru_step_build(&r->graph, &so, &r->arena, &r->whole, &err), err);
    ru_exe_options eo = {.threads = 1};
    assert_ok(ru_exe_open(&r->whole.graph, &eo, &r->one, &err), err);
    fill(r, &r->whole.graph, r->one);
    if (m->placing.devices > 0) {
        assert_ok(
            ru_stages_place(&r->graph, &co, &m->placing, &r->arena, &r->stages, &r->placed, &err),
            err);
    } else {
        assert_ok(ru_stages_build(&r->graph, &co, m->cut, m->n_cut, &r->arena, &r->stages, &err),
                  err);
    }
    assert_true(r->stages.n <= STAGES_MAX);
    for (uint32_t k = 0; k < r->stages.n; k++) {
        const ru_stage *s = &r->stages.at[k];
        eo = (ru_exe_options){
            .threads = 1, .two_phase = true, .forward = s->ends, .n_forward = s->n_ends};
        ru_value_id ports[64];
        assert_true(s->n_ports <= RU_ARRAY_LEN(ports));
        uint32_t brief = sort_ports(s, ports);
        brief = stays ? 0 : brief;
        eo.ports = ports;
        eo.n_ports = s->n_ports;
        assert_ok(ru_exe_open(&s->step.graph, &eo, &r->home[k], &err), err);
        fill(r, &s->step.graph, r->home[k]);
        eo.share = r->home[k];
        for (uint32_t j = 0; j < MICRO; j++) {
            ru_exe_stats bytes;
            assert_ok(together ? ru_exe_open_part(&s->step.graph, &eo, brief, &r->slot[k][j], &err)
                               : ru_exe_open(&s->step.graph, &eo, &r->slot[k][j], &err),
                      err);
            ru_exe_stats_get(r->slot[k][j], &bytes);
            r->apart_bytes += bytes.arena_bytes + (together ? 0 : bytes.io_bytes);
        }
    }
    if (together) {
        join_slots(r);
    }
    for (uint32_t k = 0; k < r->stages.n * MICRO; k++) {
        watch(r, k / MICRO, k % MICRO);
    }
}

static void open_rig(rig *r, const model *m)
{
    open_rig_as(r, m, false, false);
}

static void close_rig(rig *r)
{
    for (uint32_t k = 0; k < r->stages.n; k++) {
        for (uint32_t j = 0; j < MICRO; j++) {
            ru_exe_close(r->slot[k][j]);
        }
        ru_exe_close(r->home[k]);
    }
    ru_exe_together_close(r->together);
    ru_exe_close(r->one);
    ru_arena_fini(&r->arena);
}

static void samples(const ru_type *t, void *into, int64_t seed)
{
    for (int64_t i = 0; i < ru_type_count(t); i++) {
        if (t->dtype == RU_I64) {
            ((int64_t *)into)[i] = (i * 3 + seed) % CLASSES;
        } else {
            ((float *)into)[i] = (float)sin((double)(seed * 131 + i));
        }
    }
}

static void set(const ru_graph *g, ru_exe *e, ru_value_id v, int64_t seed)
{
    if (v.v != 0) {
        samples(&ru_graph_value(g, v)->type, ru_exe_input(e, v), seed);
    }
}

static void rates(const ru_step_graph *s, ru_exe *e, int64_t step)
{
    *(float *)ru_exe_input(e, s->lr) = 0.01f;
    *(int64_t *)ru_exe_input(e, s->step) = step + 1;
}

static float whole_step(rig *r, int64_t step)
{
    ru_err err = {0};
    const ru_step_graph *s = &r->whole;
    for (uint32_t j = 0; j < MICRO; j++) {
        set(&s->graph, r->one, s->x[j], step * MICRO + j);
        set(&s->graph, r->one, s->y[j], step * MICRO + j + 1);
    }
    rates(s, r->one, step);
    assert_ok(ru_exe_run(r->one, &(ru_run_args){.seed = 7, .step = step}, &err), err);
    return *(const float *)ru_exe_output(r->one, s->loss);
}

/* An input that is the port has no other copy that could hide what became of it meanwhile. */
static void cross(rig *r, const ru_stage_edge *e, uint32_t j, bool back)
{
    const shown *from = &r->made[back ? e->to : e->from][j][back ? e->grad.v : e->out.v];
    void *in = ru_exe_input(r->slot[back ? e->from : e->to][j], back ? e->seed : e->in);
    bool there = in == from->stood;
    if (!there) {
        memcpy(in, from->copy, (size_t)ru_type_bytes(&e->type));
    }
    r->copied += !there;
    r->handed += there;
}

static void forward(rig *r, uint32_t k, uint32_t j, int64_t step, float *loss)
{
    ru_err err = {0};
    const ru_stage *s = &r->stages.at[k];
    ru_exe *e = r->slot[k][j];
    set(&s->step.graph, e, s->step.x[0], step * MICRO + j);
    set(&s->step.graph, e, s->step.y[0], step * MICRO + j + 1);
    const ru_run_args args = {.seed = 7, .step = step, .sample_offset = j * (BATCH / MICRO)};
    assert_ok(ru_exe_phase(e, RU_PHASE_FORWARD, &args, &err), err);
    for (uint32_t i = 0; i < r->stages.n_edges; i++) {
        if (r->stages.edges[i].from == k && !r->stages.edges[i].held) {
            cross(r, &r->stages.edges[i], j, false);
        }
    }
    for (uint32_t i = 0; i < s->n_stats; i++) {
        const void *news = r->made[k][j][s->news[i].v].copy;
        assert_ok(ru_exe_state_write(r->home[k], s->stats[i], news, &err), err);
    }
    if (s->step.loss.v != 0) {
        float x = *(const float *)ru_exe_output(e, s->step.loss);
        *loss = j == 0 ? x : *loss + x;
    }
}

static void backward(rig *r, uint32_t k, uint32_t j, int64_t step)
{
    ru_err err = {0};
    const ru_exe_grad *to, *from;
    const ru_run_args args = {.seed = 7, .step = step, .sample_offset = j * (BATCH / MICRO)};
    assert_ok(ru_exe_phase(r->slot[k][j], RU_PHASE_BACKWARD, &args, &err), err);
    for (uint32_t i = 0; i < r->stages.n_edges; i++) {
        const ru_stage_edge *e = &r->stages.edges[i];
        if (e->to == k && e->grad.v != 0) {
            cross(r, e, j, true);
        }
    }
    uint32_t n = ru_exe_grads(r->home[k], &to);
    assert_int_equal(ru_exe_grads(r->slot[k][j], &from), n);
    for (uint32_t i = 0; i < n && j == 0; i++) {
        memcpy(to[i].data, from[i].data, (size_t)to[i].size_bytes);
    }
    if (j > 0) {
        assert_ok(ru_exe_grads_add(r->home[k], r->slot[k][j], &err), err);
    }
}

/* The new value of a parameter that a later stage has too. */
static void renew(rig *r, const ru_stage_edge *e)
{
    ru_err err = {0};
    void *w = calloc((size_t)ru_type_bytes(&e->type), 1);
    assert_ok(ru_exe_state_read(r->home[e->from], e->out, w, &err), err);
    assert_ok(ru_exe_state_write(r->home[e->to], e->in, w, &err), err);
    free(w);
}

/* All micro-batches forward, then all backward; the order between stages is no part of it. */
static float staged_step(rig *r, int64_t step)
{
    ru_err err = {0};
    float loss = NAN;
    for (uint32_t j = 0; j < MICRO; j++) {
        for (uint32_t k = 0; k < r->stages.n; k++) {
            forward(r, turn(r, k), j, step, &loss);
        }
    }
    for (uint32_t j = 0; j < MICRO; j++) {
        for (uint32_t k = 0; k < r->stages.n; k++) {
            backward(r, turn_back(r, k), j, step);
        }
    }
    for (uint32_t k = 0; k < r->stages.n; k++) {
        rates(&r->stages.at[k].step, r->home[k], step);
        assert_ok(ru_exe_phase(r->home[k], RU_PHASE_UPDATE, &(ru_run_args){.step = step}, &err),
                  err);
    }
    for (uint32_t i = 0; i < r->stages.n_edges; i++) {
        if (r->stages.edges[i].held) {
            renew(r, &r->stages.edges[i]);
        }
    }
    return loss;
}

/* Every state of every stage has the bits of the whole; each is in one stage, and a parameter that
 * several stages read in those. */
static void same_states(rig *r)
{
    uint32_t n = 0, all = 0;
    for (uint32_t i = 0; i < r->stages.n_edges; i++) {
        all += r->stages.edges[i].held;
    }
    ru_err err = {0};
    for (uint32_t v = 1; v < r->whole.graph.n_values; v++) {
        all += r->whole.graph.values[v].kind == RU_VALUE_STATE;
    }
    for (uint32_t k = 0; k < r->stages.n; k++) {
        const ru_graph *g = &r->stages.at[k].step.graph;
        for (uint32_t v = 1; v < g->n_values; v++) {
            const ru_value *s = &g->values[v];
            if (s->kind != RU_VALUE_STATE) {
                continue;
            }
            size_t bytes = (size_t)ru_type_bytes(&s->type);
            void *a = calloc(bytes, 1), *b = calloc(bytes, 1);
            assert_ok(ru_exe_state_read(r->home[k], (ru_value_id){v}, a, &err), err);
            assert_ok(ru_exe_state_read(r->one, ru_graph_find(&r->whole.graph, s->name), b, &err),
                      err);
            assert_memory_equal(a, b, bytes);
            free(a);
            free(b);
            n++;
        }
    }
    assert_int_equal(n, all);
}

/* The second block of layer2 on another device, a branch of layer3 on a third one. */
static const ru_conf_pair blocks[] = {
    {"layer3.0.downsample.0", 3}, {"layer2.1", 2}, {"layer4.1.conv2", 1}, {"layer4", 2}};
static const char *const branch_back[] = {"layer3.0.downsample.0"};
static const char *const fan_back[] = {"a", "b", "c"}; /* not in reverse */
/* The second reader of three is elsewhere; its gradient is added between those of the others. */
static const ru_conf_pair fan[] = {{"first", 2}, {"b", 2}};

/* The head, which reads the embedding too, on the device of the blocks. */
static const ru_conf_pair head[] = {{"transformer.h", 2}, {"transformer.wte@2", 2}};
/* A matrix that three layers have: on three devices, two of whose parts are on the first one. */
static const ru_conf_pair thrice[] = {{"a", 2}, {"shared@2", 3}, {"b", 2}, {"shared@3", 1}};
#define THRICE \
    .name = "thrice", .x = {.dtype = RU_F32, .rank = 1, .dims = {7}}, .y = {.dtype = RU_I64}
#define GPT                                                                                    \
    .name = "gpt",                                                                             \
    .zo = {.layers = 2, .heads = 2, .width = 16, .context = 6, .vocab = CLASSES, .tie = true}, \
    .x = {.dtype = RU_I64, .rank = 1, .dims = {6}},                                            \
    .y = {.dtype = RU_I64, .rank = 1, .dims = {6}}, .loss = RU_LOSS_NEXT_TOKEN

static const model models[] = {
    {GPT, .cut = {"transformer.h.0.mlp", "transformer.h.1.attn"}, .n_cut = 2}, /* tied */
    {GPT, .placing = {.at = head, .n = RU_ARRAY_LEN(head), .devices = 2}},
    {.name = "fan",
     .x = {.dtype = RU_F32, .rank = 1, .dims = {7}},
     .y = {.dtype = RU_I64},
     .placing = {.at = fan, .n = RU_ARRAY_LEN(fan), .back = fan_back, .n_back = 3, .devices = 2}},
    {.name = "mlp",
     .zo = {.classes = CLASSES, .input = {7}, .input_rank = 1, .dropout = 0.3},
     .x = {.dtype = RU_F32, .rank = 1, .dims = {7}},
     .y = {.dtype = RU_I64},
     .cut = {"fc2", "fc3"},
     .n_cut = 2},
    {.name = "lenet",
     .zo = {.classes = CLASSES, .input = {1, 16, 16}, .input_rank = 3, .width = 4},
     .x = {.dtype = RU_F32, .rank = 3, .dims = {1, 16, 16}},
     .y = {.dtype = RU_I64},
     .cut = {"fc1"},
     .n_cut = 1},
    {.name = "resnet18", /* running statistics; the cuts go through residuals */
     .zo = {.classes = CLASSES, .input = {3, 16, 16}, .input_rank = 3, .width = 8},
     .x = {.dtype = RU_F32, .rank = 3, .dims = {3, 16, 16}},
     .y = {.dtype = RU_I64},
     .cut = {"layer1.1.conv2", "layer3.0.conv2", "fc"},
     .n_cut = 3},
    {.name = "resnet18", /* the input of a block goes to two stages */
     .zo = {.classes = CLASSES, .input = {3, 16, 16}, .input_rank = 3, .width = 8},
     .x = {.dtype = RU_F32, .rank = 3, .dims = {3, 16, 16}},
     .y = {.dtype = RU_I64},
     .cut = {"layer1.1.conv1", "layer1.1.conv2"},
     .n_cut = 2},
    {THRICE, .cut = {"a", "b"}, .n_cut = 2},
    {THRICE, .placing = {.at = thrice, .n = RU_ARRAY_LEN(thrice), .devices = 3}},
    {.name = "resnet18",
     .zo = {.classes = CLASSES, .input = {3, 16, 16}, .input_rank = 3, .width = 8},
     .x = {.dtype = RU_F32, .rank = 3, .dims = {3, 16, 16}},
     .y = {.dtype = RU_I64},
     .placing =
         {.at = blocks, .n = RU_ARRAY_LEN(blocks), .back = branch_back, .n_back = 1, .devices = 3}},
};

/* Also where all stages, with all micro-batches on their way, have one memory, which is less than
 * that of each alone; what crosses between them stands where it was made. */
static void stages_are_the_step(void **state)
{
    (void)state;
    int64_t apart = 0;
    for (uint32_t i = 0; i < 2 * RU_ARRAY_LEN(models); i++) {
        rig r;
        open_rig_as(&r, &models[i / 2], i % 2 == 1, false);
        if (i % 2 == 1) {
            assert_int_equal(r.apart_bytes, 0);
            assert_true(ru_exe_together_bytes(r.together) > 0);
            assert_true(ru_exe_together_bytes(r.together) < apart);
        }
        apart = r.apart_bytes;
        for (int64_t step = 0; step < STEPS; step++) {
            float whole = whole_step(&r, step);
            assert_true(staged_step(&r, step) == whole);
        }
        same_states(&r);
        assert_true(i % 2 == 1 ? r.handed > r.copied : r.handed == 0);
        close_rig(&r);
    }
}

/* With one memory for all, what nobody copied stands where it was made until all are through. */
static void what_leaves_later_stays(void **state)
{
    (void)state;
    rig r;
    uint32_t n = 0;
    open_rig_as(&r, &models[0], true, true);
    (void)staged_step(&r, 0);
    for (uint32_t k = 0; k < r.stages.n; k++) {
        const ru_stage *s = &r.stages.at[k];
        for (uint32_t i = 0; i < s->n_ports * MICRO; i++) {
            ru_value_id v = s->ports[i / MICRO];
            const shown *x = &r.made[k][i % MICRO][v.v];
            assert_memory_equal(x->copy, x->stood,
                                (size_t)ru_type_bytes(&ru_graph_value(&s->step.graph, v)->type));
            n += x->copy != x->stood;
        }
    }
    assert_true(n > 0);
    close_rig(&r);
}

/* The embedding is one of the first stage; the last one, which has no optimizer for it, sends
 * gradients. A frozen one is in both, and nothing crosses. */
static void a_tied_parameter_learns_in_one_stage(void **state)
{
    (void)state;
    rig r;
    open_rig(&r, &models[0]);
    const ru_stage_edge *e = NULL;
    for (uint32_t i = 0; i < r.stages.n_edges; i++) {
        e = r.stages.edges[i].held ? &r.stages.edges[i] : e;
    }
    assert_non_null(e);
    assert_int_equal(e->from, 0);
    assert_int_equal(e->to, 2);
    assert_true(e->grad.v != 0 && e->seed.v != 0);
    assert_string_equal(ru_stages_held(&r.stages), "transformer.wte.weight");
    assert_true(ru_stage_holds(&r.stages, 2, e->in));
    assert_false(ru_stage_holds(&r.stages, 0, e->out));
    const ru_step_graph *last = &r.stages.at[2].step;
    for (uint32_t k = 0; k < last->n_params; k++) {
        assert_true(last->params[k].v != e->in.v);
    }
    const ru_param_group frozen = {.match = "*.wte.*", .freeze = true};
    ru_step_options co = options(&models[0], true);
    ru_stages s;
    ru_err err = {0};
    co.groups = &frozen;
    co.n_groups = 1;
    assert_ok(ru_stages_build(&r.graph, &co, models[0].cut, 2, &r.arena, &s, &err), err);
    assert_null(ru_stages_held(&s));
    assert_int_equal(s.n_edges + 1, r.stages.n_edges);
    close_rig(&r);
}

/* The residual of a block that is cut crosses beside what its layers make; through three stages the
 * gradients of a value that two of them need are added. */
static void what_crosses_is_listed(void **state)
{
    (void)state;
    rig r;
    open_rig(&r, &models[5]);
    uint32_t of[STAGES_MAX] = {0};
    for (uint32_t i = 0; i < r.stages.n_edges; i++) {
        const ru_stage_edge *e = &r.stages.edges[i];
        assert_true(e->from < e->to && e->out.v != 0 && e->in.v != 0);
        assert_true(e->grad.v != 0 && e->seed.v != 0);
        of[e->from]++;
    }
    assert_int_equal(of[0], 2);
    assert_int_equal(of[1], 2);
    assert_int_equal(of[2], 1);
    assert_string_equal(r.stages.at[3].first, "fc");
    close_rig(&r);
    open_rig(&r, &models[6]);
    assert_int_equal(r.stages.n_edges, 3);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(r.stages.edges[i].from, 0);
        assert_int_equal(r.stages.edges[i].to, i + 1);
        assert_int_equal(r.stages.edges[i].out.v, r.stages.edges[0].out.v);
    }
    close_rig(&r);
}

static void wrong_cuts_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *cut[2];
        uint32_t n;
        const char *says;
    } cases[] = {{{"fc9"}, 1, "no layer 'fc9'; its layers are fc1, fc2, fc3"},
                 {{"fc1"}, 1, "between the input and 'fc1'"},
                 {{"fc3", "fc2"}, 2, "between 'fc3' and 'fc2'"},
                 {{"fc2", "fc2"}, 2, "between 'fc2' and 'fc2'"}};
    rig r;
    open_rig(&r, &models[3]);
    const ru_step_options co = options(&models[3], true);
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cases); i++) {
        ru_stages s;
        ru_err err = {0};
        assert_int_equal(
            ru_stages_build(&r.graph, &co, cases[i].cut, cases[i].n, &r.arena, &s, &err),
            RU_E_CONFIG);
        if (strstr(err.text, cases[i].says) == NULL) {
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
        }
    }
    close_rig(&r);
}

/* A part waits for other devices at its start only and is waited for at its end only; devices that
 * compute their parts in the order never wait for each other in a circle; what the list names first
 * goes first. */
static void parts_go_in_their_order(void **state)
{
    (void)state;
    const model *m = &models[RU_ARRAY_LEN(models) - 1];
    uint32_t turn_of[STAGES_MAX], back_of[STAGES_MAX], of_device[3] = {0}, branch = 0, main = 0;
    rig r;
    open_rig(&r, m);
    assert_int_equal(r.placed.n, r.stages.n);
    for (uint32_t k = 0; k < r.placed.n; k++) {
        turn_of[r.placed.order[k]] = k;
        back_of[r.placed.back[k]] = k;
        of_device[r.placed.device[k]]++;
    }
    for (uint32_t i = 0; i < r.stages.n_edges; i++) {
        const ru_stage_edge *e = &r.stages.edges[i];
        assert_true(turn_of[e->from] < turn_of[e->to]);
        assert_true(back_of[e->from] > back_of[e->to]);
    }
    for (uint32_t k = 0; k < r.placed.n; k++) {
        branch = strcmp(r.placed.name[k], "layer3.0.downsample.0") == 0 ? k : branch;
        main = strcmp(r.placed.name[k], "layer3.0.conv1") == 0 ? k : main;
    }
    assert_true(turn_of[branch] > 0 &&
                turn_of[branch] < turn_of[main]); /* in the model it comes later */
    assert_true(back_of[branch] < back_of[main]); /* as its list says; the reverse comes later */
    assert_int_equal(of_device[0], 5); /* up to layer2.0, layer3.0, its join, layer4.1.conv2, fc */
    assert_int_equal(of_device[1], 3); /* layer2.1, layer4.0, layer4.1.conv1 */
    assert_int_equal(of_device[2], 1);
    assert_int_equal(r.placed.device[r.placed.n - 1], 0); /* fc */
    close_rig(&r);
}

/* Two parts of a device that read one value of another device get it once, with that part which
 * computes first; a value for two devices goes to each. */
static void a_value_crosses_once(void **state)
{
    (void)state;
    rig r;
    uint32_t again = 0, other = 0;
    open_rig(&r, &models[2]); /* the fan: its value is made on one device, a and c are on another */
    for (uint32_t i = 0; i < r.stages.n_edges; i++) {
        const ru_stage_edge *e = &r.stages.edges[i];
        uint32_t lead = ru_placed_lead(&r.stages, &r.placed, i);
        const ru_stage_edge *l = &r.stages.edges[lead];
        assert_true(l->from == e->from && l->out.v == e->out.v);
        assert_int_equal(r.placed.device[l->to], r.placed.device[e->to]);
        assert_int_equal(ru_placed_lead(&r.stages, &r.placed, lead), lead);
        again += lead != i;
        for (uint32_t k = 0; k < i; k++) {
            const ru_stage_edge *x = &r.stages.edges[k];
            other += x->from == e->from && x->out.v == e->out.v &&
                     r.placed.device[x->to] != r.placed.device[e->to];
        }
    }
    assert_int_equal(again, 1);
    assert_true(other >= 1);
    close_rig(&r);
}

static void wrong_places_are_named(void **state)
{
    (void)state;
    static const struct {
        ru_conf_pair at[2];
        uint32_t n;
        const char *says;
    } cases[] = {{{{"fc9", 2}}, 1, "no layer 'fc9'; its layers are fc1, fc2, fc3"},
                 {{{"fc2", 3}}, 1, "'fc2' is on device 3, expected a whole number from 1 to 2"},
                 {{{"fc2", 1.5}}, 1, "'fc2' is on device 1.5"},
                 {{{"fc2", 1}}, 1, "gives device 2 of 2 nothing to compute"},
                 {{{"fc1", 2}, {"fc", 2}}, 2, "no layer 'fc'"}};
    rig r;
    open_rig(&r, &models[3]);
    const ru_step_options co = options(&models[3], true);
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cases); i++) {
        ru_stages s;
        ru_placed p;
        ru_err err = {0};
        const ru_placing in = {.at = cases[i].at, .n = cases[i].n, .devices = 2};
        assert_int_equal(ru_stages_place(&r.graph, &co, &in, &r.arena, &s, &p, &err), RU_E_CONFIG);
        if (strstr(err.text, cases[i].says) == NULL) {
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
        }
    }
    static const char *const back[] = {"fc9"};
    ru_stages s;
    ru_placed p;
    ru_err err = {0};
    const ru_placing in = {
        .at = cases[3].at, .n = 1, .back = back, .n_back = 1, .devices = 2, .idle = true};
    assert_int_equal(ru_stages_place(&r.graph, &co, &in, &r.arena, &s, &p, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "train.placed.back: the model has no layer 'fc9'"));
    close_rig(&r);
}

RU_TESTS(train_stage, cmocka_unit_test(stages_are_the_step),
         cmocka_unit_test(what_leaves_later_stays),
         cmocka_unit_test(a_tied_parameter_learns_in_one_stage),
         cmocka_unit_test(what_crosses_is_listed), cmocka_unit_test(wrong_cuts_are_named),
         cmocka_unit_test(parts_go_in_their_order), cmocka_unit_test(a_value_crosses_once),
         cmocka_unit_test(wrong_places_are_named))
