/* A step is the same whatever its cut: every model of the zoo, with dropout, as one process with
 * one batch, as one with micro-batches, and as workers with unequal shares.
 *
 * The masks are the same bits, so what differs is the order of f32 sums. A step of 8 samples adds
 * at most a few thousand products in another order: TOLERANCE is 2e-5 relative to 1 + |x|, 150
 * times below what one other mask does at the first step (3e-3). Batch norm judges the samples that
 * stand together, so a model that has it is held against one process with the workers' shares as
 * micro-batches. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exe.h"
#include "test/test.h"
#include "train/model/step.h"
#include "train/model/zoo.h"

enum { BATCH = 8, STEPS = 2, WORKERS_MAX = 3 };

static const double TOLERANCE = 2e-5;

typedef struct worker {
    ru_step_graph step;
    ru_exe *exe;
    int64_t first, n;
    struct team *team;
    uint32_t number, waits;
} worker;

/* Who computes one batch: workers[0] runs, and its wait for sums runs the next one. */
typedef struct team {
    ru_arena arena;
    const struct model *m;
    worker workers[WORKERS_MAX];
    uint32_t n;
    int64_t steps;
    double losses[STEPS];
} team;

typedef struct model {
    const char *name;
    ru_zoo_options zo;
    ru_step_options so;
    bool tokens, norm; /* norm: batch normalisation */
    ru_graph graph;
    ru_zoo_model zoo;
    ru_arena arena;
} model;

static void feed(worker *w, int64_t step)
{
    const ru_step_options *so = &w->team->m->so;
    int64_t per_x = ru_type_count(&so->x), per_y = ru_type_count(&so->y);
    int64_t part = w->n / w->step.micro;
    for (int64_t k = 0; k < w->n; k++) {
        int64_t at = step * BATCH + w->first + k;
        char *x = ru_exe_input(w->exe, w->step.x[k / part]);
        int64_t *y = ru_exe_input(w->exe, w->step.y[k / part]);
        for (int64_t e = k % part * per_x, i = 0; i < per_x; e++, i++) {
            if (so->x.dtype == RU_I64) {
                ((int64_t *)x)[e] = (at * 31 + i * 7) % 11;
            } else {
                ((float *)x)[e] = (float)sin((double)(at * 131 + i));
            }
        }
        for (int64_t e = k % part * per_y, i = 0; i < per_y; e++, i++) {
            y[e] = (at * 31 + i * 7 + 7) % 3;
        }
    }
    *(float *)ru_exe_input(w->exe, w->step.lr) = 0.05f;
}

static void run_worker(worker *w)
{
    ru_err err = {0};
    int64_t step = w->team->steps;
    feed(w, step);
    w->waits = 0;
    const ru_run_args args = {.seed = 3, .step = step, .sample_offset = w->first};
    assert_ok(ru_exe_run(w->exe, &args, &err), err);
    assert_false(ru_exe_invalid(w->exe)); /* no kernel makes a NaN on the way to good numbers */
}

/* Gradient k of a worker: of parameter k, or what else is summed. The order in which executables
 * list them is that in which they become ready, which the share may change. */
static const ru_exe_grad *grad_of(const worker *w, uint32_t k)
{
    const ru_exe_grad *g;
    uint32_t n = ru_exe_grads(w->exe, &g), i = 0;
    uint32_t v = k < w->step.n_params ? w->step.grads[k].v : w->step.shared.v;
    while (i < n && g[i].value.v != v) {
        i++;
    }
    assert_true(i < n);
    return &g[i];
}

static void add_all(team *t)
{
    for (uint32_t i = 0; i <= t->workers[0].step.n_params; i++) {
        const ru_exe_grad *sum = grad_of(&t->workers[0], i);
        for (uint32_t k = 1; k < t->n; k++) {
            const float *x = grad_of(&t->workers[k], i)->data;
            for (int64_t e = 0; e < sum->size_bytes / 4; e++) {
                ((float *)sum->data)[e] += x[e];
            }
        }
        for (uint32_t k = 1; k < t->n; k++) {
            memcpy(grad_of(&t->workers[k], i)->data, sum->data, (size_t)sum->size_bytes);
        }
    }
}

static ru_status on_await(void *self, const ru_exe_at *at)
{
    (void)at;
    worker *w = self;
    if (w->waits++ == 0) {
        if (w->number + 1 < w->team->n) {
            run_worker(&w->team->workers[w->number + 1]);
        } else {
            add_all(w->team);
        }
    }
    return RU_OK;
}

static void open_worker(team *t, worker *w, uint32_t accumulate)
{
    ru_err err = {0};
    ru_step_options so = t->m->so;
    so.batch = w->n;
    so.accumulate = accumulate;
    so.share_of = t->n > 1 ? BATCH : 0;
    assert_ok(ru_step_build(&t->m->graph, &so, &t->arena, &w->step, &err), err);
    const ru_exe_options eo = {.threads = 1, .two_phase = t->n > 1, .plain_grads = true};
    assert_ok(ru_exe_open(&w->step.graph, &eo, &w->exe, &err), err);
    const ru_exe_port port = {.fn = on_await, .self = w};
    assert_ok(ru_exe_ports_set(w->exe, &port, t->n > 1 ? 1 : 0, &err), err);
}

/* The same start for all. */
static void fill(team *t)
{
    ru_err err = {0};
    for (uint32_t k = 0; k < t->m->zoo.n_inits; k++) {
        const ru_value *v = ru_graph_value(&t->m->graph, t->m->zoo.inits[k].param);
        int64_t count = ru_type_count(&v->type);
        float *data = calloc((size_t)count + 4, sizeof *data);
        ru_init_fill(&t->m->zoo.inits[k], 5, k, count, data);
        for (uint32_t i = 0; i < t->n; i++) {
            const worker *w = &t->workers[i];
            assert_ok(
                ru_exe_state_write(w->exe, ru_graph_find(&w->step.graph, v->name), data, &err),
                err);
        }
        free(data);
    }
}

/* Workers with these shares, each with `accumulate` micro-batches, train STEPS steps. */
static void train(team *t, const model *m, const int64_t *shares, uint32_t n, uint32_t accumulate)
{
    memset(t, 0, sizeof *t);
    ru_arena_init(&t->arena, 0);
    t->m = m;
    t->n = n;
    int64_t first = 0;
    for (uint32_t k = 0; k < n; k++) {
        t->workers[k] = (worker){.first = first, .n = shares[k], .team = t, .number = k};
        first += shares[k];
        open_worker(t, &t->workers[k], accumulate);
    }
    assert_int_equal(first, BATCH);
    fill(t);
    for (t->steps = 0; t->steps < STEPS; t->steps++) {
        run_worker(&t->workers[0]);
        const worker *w = &t->workers[0];
        t->losses[t->steps] = (double)*(const float *)ru_exe_output(w->exe, w->step.loss);
    }
}

static void end(team *t)
{
    for (uint32_t k = 0; k < t->n; k++) {
        ru_exe_close(t->workers[k].exe);
    }
    ru_arena_fini(&t->arena);
}

static float *state_of(const team *t, const char *name, int64_t n)
{
    ru_err err = {0};
    const worker *w = &t->workers[0];
    float *x = calloc((size_t)n, sizeof *x);
    assert_ok(ru_exe_state_read(w->exe, ru_graph_find(&w->step.graph, name), x, &err), err);
    return x;
}

/* Losses and parameters of both; running statistics count the cuts, so they are left out. */
static void same(const team *a, const team *b, const char *what)
{
    for (int s = 0; s < a->steps; s++) {
        if (!(fabs(a->losses[s] - b->losses[s]) <= TOLERANCE * (1 + fabs(a->losses[s])))) {
            fail_msg("%s, %s: the loss of step %d is %.9g and %.9g", a->m->name, what, s + 1,
                     a->losses[s], b->losses[s]);
        }
    }
    for (uint32_t v = 1; v < a->m->graph.n_values; v++) {
        const ru_value *s = &a->m->graph.values[v];
        if (s->kind != RU_VALUE_STATE || s->role != RU_ROLE_PARAM) {
            continue;
        }
        int64_t n = ru_type_count(&s->type);
        float *p = state_of(a, s->name, n), *q = state_of(b, s->name, n);
        for (int64_t e = 0; e < n; e++) {
            double d = fabs((double)p[e] - (double)q[e]);
            if (!(d <= TOLERANCE * (1 + fabs((double)p[e])))) {
                fail_msg("%s, %s: %s[%lld] is %.9g and %.9g", a->m->name, what, s->name,
                         (long long)e, (double)p[e], (double)q[e]);
            }
        }
        free(p);
        free(q);
    }
}

static void open_model(model *m, const char *name, const ru_zoo_options *zo)
{
    ru_err err = {0};
    *m = (model){.name = name, .zo = *zo};
    ru_arena_init(&m->arena, 0);
    assert_ok(ru_graph_init(&m->graph, &m->arena, name, &err), err);
    assert_ok(ru_zoo_build(name, &m->zo, true, &m->graph, &m->zoo, &err), err);
    m->tokens = m->zoo.tokens;
    for (uint32_t k = 1; k < m->graph.n_nodes; k++) {
        m->norm = m->norm || m->graph.nodes[k].op == RU_OP_BatchNormTrain;
    }
    m->so = (ru_step_options){
        .loss = m->tokens ? RU_LOSS_NEXT_TOKEN : RU_LOSS_CROSS_ENTROPY,
        .optimizer = {.kind = RU_OPTIMIZER_SGD, .lr = 0.05, .momentum = 0.9},
        .batch = BATCH,
        .x = ru_type_make(m->tokens ? RU_I64 : RU_F32, zo->input_rank, zo->input),
        .y = m->tokens ? ru_type_make(RU_I64, 1, zo->input) : ru_type_scalar(RU_I64),
    };
}

static void check_cuts(const char *name, const ru_zoo_options *zo)
{
    static const int64_t one[] = {8}, halves[] = {4, 4}, three[] = {3, 1, 4};
    model m;
    team whole, other;
    open_model(&m, name, zo);
    train(&whole, &m, one, 1, m.norm ? 2 : 1);
    train(&other, &m, halves, 2, m.norm ? 1 : 4);
    same(&whole, &other, m.norm ? "two workers" : "two workers with four micro-batches each");
    end(&other);
    if (!m.norm) {
        train(&other, &m, three, 3, 1);
        same(&whole, &other, "workers with unequal shares");
        end(&other);
        train(&other, &m, one, 1, 4);
        same(&whole, &other, "four micro-batches");
        end(&other);
    }
    end(&whole);
    ru_arena_fini(&m.arena);
}

static ru_zoo_options options_of(const char *name)
{
    static const int64_t hidden[] = {24};
    ru_zoo_options o = {
        .classes = 3, .dropout = 0.2, .bias = true, .hidden = hidden, .hidden_n = 1};
    bool gpt = strcmp(name, "gpt") == 0, lstm = strcmp(name, "lstm") == 0;
    if (gpt || lstm) {
        o.vocab = o.classes = 11;
        o.input[0] = o.context = 6;
        o.input_rank = 1;
        o.layers = 2;
        o.width = 16;
    } else {
        bool vit = strcmp(name, "vit") == 0, mlp = strcmp(name, "mlp") == 0;
        o.input_rank = 3;
        o.input[0] = 3;
        o.input[1] = o.input[2] = vit || mlp ? 16 : 32;
        o.layers = vit ? 2 : 0;
        o.width = vit ? 32 : mlp ? 0 : 16;
        o.channels = strncmp(name, "vgg", 3) == 0 ? 8 : 0;
    }
    o.heads = gpt || strcmp(name, "vit") == 0 ? 2 : 0;
    return o;
}

static void every_model_is_the_same_whatever_the_cut(void **state)
{
    (void)state;
    uint32_t n;
    const ru_zoo_row *rows = ru_zoo_list(&n);
    for (uint32_t k = 0; k < n; k++) {
        ru_zoo_options o = options_of(rows[k].name);
        check_cuts(rows[k].name, &o);
    }
    ru_zoo_options o = options_of("vgg11");
    o.batch_norm = true;
    check_cuts("vgg11", &o);
    o = (ru_zoo_options){
        .classes = 3, .dropout = 0.2, .input = {5, 7}, .input_rank = 2, .layers = 2, .width = 16};
    check_cuts("lstm", &o); /* features, not tokens */
}

RU_TESTS(train_cut, cmocka_unit_test(every_model_is_the_same_whatever_the_cut))
