/* Updates that are open while the next step computes: sums come in any order and in pieces into the
 * ports of that step, steps are given up, updates are taken back and made again. After each step
 * parameters, slots and statistics have the bytes of a run that does one step after the other.
 *
 * The sums of a step are its gradients doubled, as of two equal workers. What has not arrived is
 * NaN in memory, so that nobody can have read it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "exec/update.h"
#include "test/test.h"
#include "train/model/step.h"
#include "train/model/zoo.h"

enum { PIECES = 5, STEPS = 5 };

typedef struct net {
    const char *name;
    ru_zoo_options zoo;
    ru_step_options step;
    ru_device_kind device;
    ru_precision precision;
} net;

/* Elements [begin, end) of gradient `grad` on their way. */
typedef struct piece {
    uint32_t grad;
    int64_t begin, end;
} piece;

typedef struct side {
    ru_step_graph step;
    ru_exe *exe;
    const ru_exe_grad *grads; /* [n] */
    uint32_t n;
    float **net;   /* [n] sums on their way */
    piece *pieces; /* [n * PIECES] that have not arrived */
    uint32_t n_pieces;
    ru_rng rng;
    uint32_t give_up; /* at so many ports from now; 0: never */
    uint32_t waits, early, undone, aborted;
    float loss; /* of the step whose update is open, all parts together */
} side;

typedef struct rig {
    ru_arena arena;
    ru_graph model;
    ru_zoo_model zoo;
    side plain, split;
} rig;

/* -- sides --------------------------------------------------------------------------------------
 */

static void fill_states(rig *r, side *s)
{
    ru_err err = {0};
    for (uint32_t k = 0; k < r->zoo.n_inits; k++) {
        const ru_value *p = ru_graph_value(&r->model, r->zoo.inits[k].param);
        int64_t count = ru_type_count(&p->type);
        float *data = test_calloc((size_t)count + 4, sizeof *data);
        ru_init_fill(&r->zoo.inits[k], 5, k, count, data);
        assert_ok(ru_exe_state_write(s->exe, ru_graph_find(&s->step.graph, p->name), data, &err),
                  err);
        test_free(data);
    }
}

static void open_side(rig *r, side *s, const net *n, bool overlap)
{
    ru_err err = {0};
    assert_ok(ru_step_build(&r->model, &n->step, &r->arena, &s->step, &err), err);
    const ru_exe_options eo = {.device = n->device,
                               .precision = n->precision,
                               .threads = 1,
                               .two_phase = true,
                               .overlap = overlap};
    assert_ok(ru_exe_open(&s->step.graph, &eo, &s->exe, &err), err);
    fill_states(r, s);
    s->n = ru_exe_grads(s->exe, &s->grads);
    s->net = RU_NEW(&r->arena, float *, s->n);
    s->pieces = RU_NEW(&r->arena, piece, s->n * PIECES);
    for (uint32_t k = 0; k < s->n; k++) {
        s->net[k] = RU_NEW(&r->arena, float, s->grads[k].size_bytes / 4);
    }
    s->rng = ru_rng_from(11, overlap ? 1 : 0);
}

/* Inputs and scalars of step k: rate and step number change with it. */
static void feed(side *s, int64_t k)
{
    const ru_graph *g = &s->step.graph;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const ru_type *t = &g->values[g->inputs[i].v].type;
        void *p = ru_exe_input(s->exe, g->inputs[i]);
        for (int64_t e = 0; p != NULL && e < ru_type_count(t); e++) {
            if (t->dtype == RU_I64) {
                ((int64_t *)p)[e] = (k + e * 7) % 3;
            } else {
                ((float *)p)[e] = (float)((k * 131 + e * 29) % 101) / 101.0f;
            }
        }
    }
    float lr = 0.05f / (float)(1 + k);
    *(float *)ru_exe_input(s->exe, s->step.lr) = lr;
    for (uint32_t i = 0; i < s->step.n_rates; i++) {
        *(float *)ru_exe_input(s->exe, s->step.rates[i].input) =
            lr * (float)s->step.rates[i].factor;
    }
    if (s->step.step.v != 0) {
        *(int64_t *)ru_exe_input(s->exe, s->step.step) = k + 1;
    }
}

static ru_run_args args_of(int64_t k)
{
    return (ru_run_args){.seed = 1, .step = k, .sample_offset = 0};
}

static uint8_t *states_of(const side *s, int64_t *bytes)
{
    ru_err err = {0};
    const ru_graph *g = &s->step.graph;
    *bytes = 0;
    for (uint32_t v = 1; v < g->n_values; v++) {
        *bytes += g->values[v].kind == RU_VALUE_STATE ? ru_type_bytes(&g->values[v].type) : 0;
    }
    uint8_t *all = test_calloc((size_t)*bytes + 1, 1), *at = all;
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].kind == RU_VALUE_STATE) {
            assert_ok(ru_exe_state_read(s->exe, (ru_value_id){v}, at, &err), err);
            at += ru_type_bytes(&g->values[v].type);
        }
    }
    return all;
}

static void states_equal(const rig *r, bool equal)
{
    int64_t n, m;
    uint8_t *a = states_of(&r->plain, &n), *b = states_of(&r->split, &m);
    assert_int_equal(n, m);
    assert_true((memcmp(a, b, (size_t)n) == 0) == equal);
    test_free(a);
    test_free(b);
}

/* -- sums ---------------------------------------------------------------------------------------
 */

/* The gradient is made: it goes away, and leaves nothing that could be taken for a sum. */
static ru_status on_leave(void *self, const ru_exe_at *at)
{
    side *s = self;
    for (uint32_t k = 0; k < s->n; k++) {
        float *data = s->grads[k].data;
        for (int64_t i = 0; s->grads[k].value.v == at->value.v && i < at->size_bytes / 4; i++) {
            s->net[k][i] = 2 * data[i];
            data[i] = NAN;
        }
    }
    return RU_OK;
}

/* All gradients are away: cut into pieces, some of one element, in any order. */
static void cut(side *s)
{
    s->n_pieces = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        int64_t n = s->grads[k].size_bytes / 4, at = 0;
        for (uint32_t c = 1; at < n; c++) {
            int64_t left = n - at;
            int64_t size = c == PIECES ? left : 1 + (int64_t)ru_rng_below(&s->rng, (uint32_t)left);
            s->pieces[s->n_pieces++] = (piece){k, at, at + size};
            at += size;
        }
    }
}

static void arrive(side *s)
{
    uint32_t at = ru_rng_below(&s->rng, s->n_pieces);
    piece p = s->pieces[at];
    s->pieces[at] = s->pieces[--s->n_pieces];
    memcpy((float *)s->grads[p.grad].data + p.begin, s->net[p.grad] + p.begin,
           (size_t)(p.end - p.begin) * sizeof(float));
    ru_exe_early(s->exe, s->grads[p.grad].value, 4 * p.begin, 4 * (p.end - p.begin));
    s->early++;
}

/* -- ports of the next step ---------------------------------------------------------------------
 */

static ru_status on_await(void *self, const ru_exe_at *at)
{
    side *s = self;
    s->waits++;
    if (s->give_up > 0 && --s->give_up == 0) {
        return RU_E_CANCELLED;
    }
    while (!ru_exe_updated(s->exe, at->value)) {
        arrive(s);
    }
    if (s->n_pieces > 0 && ru_rng_below(&s->rng, 3) == 0) {
        arrive(s); /* it may be any */
    }
    return RU_OK;
}

/* The vector of loss and statistics is about to be written again. */
static ru_status on_again(void *self, const ru_exe_at *at)
{
    side *s = self;
    ru_status st = on_await(self, at);
    if (at->value.v == s->step.shared.v && st == RU_OK) {
        s->loss = *(const float *)ru_exe_output(s->exe, s->step.loss);
    }
    return st;
}

static void hook(rig *r, side *s)
{
    ru_err err = {0};
    const ru_graph *g = &s->step.graph;
    ru_exe_port *ports = RU_NEW(&r->arena, ru_exe_port, g->n_values + 2);
    uint32_t n = 0;
    ports[n++] = (ru_exe_port){.leaves = true, .fn = on_leave, .self = s};
    ports[n++] = (ru_exe_port){.again = true, .fn = on_again, .self = s};
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].kind == RU_VALUE_STATE) {
            ports[n++] = (ru_exe_port){.value = {v}, .fn = on_await, .self = s};
        }
    }
    assert_ok(ru_exe_ports_set(s->exe, ports, n, &err), err);
}

/* -- both sides ---------------------------------------------------------------------------------
 */

static void plain_step(side *s, int64_t k)
{
    ru_err err = {0};
    feed(s, k);
    const ru_run_args args = args_of(k);
    assert_ok(ru_exe_phase(s->exe, RU_PHASE_GRADIENTS, &args, &err), err);
    for (uint32_t i = 0; i < s->n; i++) {
        memcpy(s->grads[i].data, s->net[i], (size_t)s->grads[i].size_bytes);
    }
    assert_ok(ru_exe_phase(s->exe, RU_PHASE_UPDATE, &args, &err), err);
    s->loss = *(const float *)ru_exe_output(s->exe, s->step.loss);
}

/* Gradients of step k, beside the open update of k - 1; false: given up. */
static bool gradients(side *s, int64_t k, bool may_give_up)
{
    ru_err err = {0};
    const ru_run_args args = args_of(k);
    s->give_up = may_give_up ? 1 + ru_rng_below(&s->rng, 2 * s->n) : 0;
    feed(s, k);
    ru_status st = ru_exe_phase(s->exe, RU_PHASE_GRADIENTS, &args, &err);
    if (s->give_up == 0 && may_give_up) {
        assert_int_equal(st, RU_E_CANCELLED);
        s->aborted++;
        return false;
    }
    assert_ok(st, err);
    return true;
}

static void open_update(side *s, int64_t k)
{
    ru_err err = {0};
    const ru_run_args args = args_of(k);
    assert_ok(ru_exe_update_open(s->exe, &args, &err), err);
    assert_true(ru_exe_update_is_open(s->exe));
    cut(s);
    feed(s, k + 100); /* the inputs of another step are there already */
}

static void keep(rig *r, bool all_there)
{
    side *s = &r->split;
    ru_err err = {0};
    while (all_there && s->n_pieces > 0) {
        arrive(s);
    }
    for (; s->n_pieces > 0; s->n_pieces--) { /* sums that nobody told of */
        const piece *p = &s->pieces[s->n_pieces - 1];
        memcpy((float *)s->grads[p->grad].data + p->begin, s->net[p->grad] + p->begin,
               (size_t)(p->end - p->begin) * sizeof(float));
    }
    assert_ok(ru_exe_update_keep(s->exe, &err), err);
    assert_false(ru_exe_update_is_open(s->exe));
}

/* Step k is given up, and so is the update of the step before: that step is done again. */
static void take_back(rig *r, int64_t k)
{
    side *s = &r->split;
    ru_exe_early_undo(s->exe);
    s->n_pieces = 0;
    s->undone++;
    assert_true(ru_exe_updated(s->exe, s->step.params[0]));
    states_equal(r, true); /* the plain side has not done that step yet */
    assert_true(gradients(s, k - 1, false));
    open_update(s, k - 1);
}

static void open_rig(rig *r, const net *n)
{
    ru_err err = {0};
    *r = (rig){0};
    ru_arena_init(&r->arena, 0);
    assert_ok(ru_graph_init(&r->model, &r->arena, n->name, &err), err);
    assert_ok(ru_zoo_build(n->name, &n->zoo, true, &r->model, &r->zoo, &err), err);
}

static void close_rig(rig *r)
{
    ru_exe_close(r->plain.exe);
    ru_exe_close(r->split.exe);
    ru_arena_fini(&r->arena);
}

static void split_equals_plain(const net *n)
{
    rig r;
    ru_err err = {0};
    open_rig(&r, n);
    open_side(&r, &r.plain, n, false);
    open_side(&r, &r.split, n, true);
    hook(&r, &r.split);
    const ru_exe_port leaves = {.leaves = true, .fn = on_leave, .self = &r.plain};
    assert_ok(ru_exe_ports_set(r.plain.exe, &leaves, 1, &err), err);
    assert_true(ru_exe_early_bytes(r.split.exe) > 0);
    assert_ok(ru_exe_early_open(r.split.exe, &err), err);
    assert_true(gradients(&r.split, 0, false));
    open_update(&r.split, 0);
    for (int64_t k = 1; k < STEPS; k++) {
        for (int tries = 0; !gradients(&r.split, k, tries < 3); tries++) {
            if (ru_rng_below(&r.split.rng, 2) == 0) {
                take_back(&r, k);
            }
        }
        assert_true(r.split.waits > 0);
        float loss = r.split.loss; /* of k - 1 */
        keep(&r, ru_rng_below(&r.split.rng, 2) == 0);
        states_equal(&r, false); /* the comparison sees a step */
        plain_step(&r.plain, k - 1);
        states_equal(&r, true);
        assert_memory_equal(&loss, &r.plain.loss, sizeof loss);
        open_update(&r.split, k);
    }
    keep(&r, true);
    plain_step(&r.plain, STEPS - 1);
    states_equal(&r, true);
    assert_true(r.split.early > r.split.n && r.split.aborted >= 3 && r.split.undone > 0);
    close_rig(&r);
}

/* -- networks -----------------------------------------------------------------------------------
 */

static const int64_t hidden[] = {190, 9};

static net mlp(ru_optimizer_kind kind)
{
    return (net){.name = "mlp",
                 .zoo = {.classes = 3,
                         .input = {200},
                         .input_rank = 1,
                         .hidden = hidden,
                         .hidden_n = 2,
                         .dropout = 0.3},
                 .step = {.loss = RU_LOSS_CROSS_ENTROPY,
                          .optimizer = {.kind = kind,
                                        .momentum = 0.9,
                                        .alpha = 0.9,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .epsilon = 1e-6,
                                        .weight_decay = 1e-3},
                          .batch = 8,
                          .share_of = 16,
                          .x = ru_type_make(RU_F32, 1, (int64_t[]){200}),
                          .y = ru_type_scalar(RU_I64)}};
}

static net convolutions(void)
{
    net n = mlp(RU_OPTIMIZER_ADAMW);
    n.name = "resnet18";
    n.zoo = (ru_zoo_options){.classes = 3, .input = {3, 16, 16}, .input_rank = 3, .width = 4};
    n.step.batch = 4;
    n.step.share_of = 8;
    n.step.x = ru_type_make(RU_F32, 3, (int64_t[]){3, 16, 16});
    return n;
}

static void every_optimizer(void **state)
{
    (void)state;
    for (int kind = RU_OPTIMIZER_SGD; kind <= RU_OPTIMIZER_LAMB; kind++) {
        net n = mlp((ru_optimizer_kind)kind);
        split_equals_plain(&n);
        n.device = RU_DEVICE_REF;
        split_equals_plain(&n);
    }
}

/* Rates of their own, frozen parameters, no decay of biases: several optimizer steps. */
static void groups(void **state)
{
    (void)state;
    static const ru_param_group rates[] = {{.match = "fc1.bias", .freeze = true},
                                           {.match = "fc1.*", .lr = 0.5, .weight_decay = 0.1},
                                           {.match = "fc3.*", .lr = 2, .weight_decay = -1}};
    net n = mlp(RU_OPTIMIZER_ADAM);
    n.step.optimizer.decay_matrices = true;
    n.step.groups = rates;
    n.step.n_groups = RU_ARRAY_LEN(rates);
    split_equals_plain(&n);
    n.step.optimizer.kind = RU_OPTIMIZER_SGD;
    n.step.optimizer.momentum = 0;
    split_equals_plain(&n);
}

static void statistics_of_batches(void **state)
{
    (void)state;
    net n = convolutions();
    split_equals_plain(&n);
    n.precision = RU_PRECISION_BF16;
    split_equals_plain(&n);
    n.precision = RU_PRECISION_F32;
    n.device = RU_DEVICE_REF;
    n.step.optimizer.kind = RU_OPTIMIZER_SGD;
    split_equals_plain(&n);
}

static void micro_batches(void **state)
{
    (void)state;
    net n = convolutions();
    n.step.accumulate = 2;
    split_equals_plain(&n);
    n.precision = RU_PRECISION_BF16;
    split_equals_plain(&n);
    n = mlp(RU_OPTIMIZER_ADAM);
    n.step.accumulate = 4;
    split_equals_plain(&n);
    n.device = RU_DEVICE_REF;
    split_equals_plain(&n);
}

static void attention(void **state)
{
    (void)state;
    net n = mlp(RU_OPTIMIZER_LION);
    n.name = "gpt";
    n.zoo = (ru_zoo_options){.vocab = 11,
                             .classes = 11,
                             .input = {6},
                             .input_rank = 1,
                             .context = 6,
                             .layers = 2,
                             .heads = 2,
                             .width = 16,
                             .bias = true,
                             .tie = true};
    n.step.loss = RU_LOSS_NEXT_TOKEN;
    n.step.x = n.step.y = ru_type_make(RU_I64, 1, (int64_t[]){6});
    split_equals_plain(&n);
    n.precision = RU_PRECISION_BF16;
    split_equals_plain(&n);
}

/* An update that opens and is kept with no run beside it needs no memory of its own. */
static void without_a_run_beside_it(void **state)
{
    (void)state;
    net n = convolutions();
    rig r;
    ru_err err = {0};
    open_rig(&r, &n);
    open_side(&r, &r.plain, &n, false);
    open_side(&r, &r.split, &n, false);
    side *s = &r.split;
    const ru_exe_port leaves[] = {{.leaves = true, .fn = on_leave, .self = &r.plain},
                                  {.leaves = true, .fn = on_leave, .self = s}};
    assert_ok(ru_exe_ports_set(r.plain.exe, &leaves[0], 1, &err), err);
    assert_ok(ru_exe_ports_set(s->exe, &leaves[1], 1, &err), err);
    assert_ok(ru_exe_early_open(s->exe, &err), err);
    for (int64_t k = 0; k < STEPS; k++) {
        bool twice = k % 2 == 0;
        for (int tries = twice ? 0 : 1; tries < 2; tries++) {
            feed(s, k);
            const ru_run_args args = args_of(k);
            assert_ok(ru_exe_phase(s->exe, RU_PHASE_GRADIENTS, &args, &err), err);
            assert_ok(ru_exe_update_open(s->exe, &args, &err), err);
            cut(s);
            for (uint32_t i = s->n_pieces / 2; tries == 0 && i > 0; i--) {
                arrive(s);
            }
            if (tries == 0) {
                ru_exe_early_undo(s->exe);
                states_equal(&r, true);
            }
        }
        keep(&r, k < 3);
        plain_step(&r.plain, k);
        states_equal(&r, true);
        assert_memory_equal(ru_exe_output(s->exe, s->step.loss), &r.plain.loss, sizeof(float));
    }
    close_rig(&r);
}

static ru_exe *open_exe(rig *r, const net *n, bool overlap, bool early)
{
    ru_err err = {0};
    open_rig(r, n);
    open_side(r, &r->split, n, overlap);
    assert_ok(early ? ru_exe_early_open(r->split.exe, &err) : RU_OK, err);
    feed(&r->split, 0);
    const ru_run_args args = args_of(0);
    assert_ok(ru_exe_phase(r->split.exe, RU_PHASE_GRADIENTS, &args, &err), err);
    return r->split.exe;
}

static void what_cannot_be_is_named(void **state)
{
    (void)state;
    rig r;
    ru_err err = {0};
    net n = mlp(RU_OPTIMIZER_SGD), clipped = n, averaged = n;
    clipped.step.clip_norm = 0.5;
    averaged.step.ema = 0.9;
    const net *whole[] = {&clipped, &averaged};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(whole); k++) {
        ru_exe *e = open_exe(&r, whole[k], true, true);
        assert_int_equal(ru_exe_early_bytes(e), 0);
        assert_int_equal(ru_exe_update_open(e, NULL, &err), RU_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "several gradients at once"));
        assert_ok(ru_exe_phase(e, RU_PHASE_UPDATE, NULL, &err), err);
        close_rig(&r);
    }
    ru_exe *e = open_exe(&r, &n, true, false);
    assert_int_equal(ru_exe_update_open(e, NULL, &err), RU_E_ARG);
    assert_non_null(strstr(err.text, "ru_exe_early_open"));
    assert_int_equal(ru_exe_update_keep(e, &err), RU_E_ARG);
    assert_ok(ru_exe_early_open(e, &err), err);
    assert_ok(ru_exe_update_open(e, NULL, &err), err);
    assert_int_equal(ru_exe_update_open(e, NULL, &err), RU_E_ARG); /* one is open */
    assert_int_equal(ru_exe_run(e, NULL, &err), RU_E_ARG);
    assert_non_null(strstr(err.text, "keep it or take it back"));
    assert_int_equal(ru_exe_phase(e, RU_PHASE_GRADIENTS, NULL, &err), RU_E_ARG);
    assert_non_null(strstr(err.text, "no port has waited for it"));
    ru_exe_early_undo(e);
    assert_ok(ru_exe_run(e, NULL, &err), err);
    close_rig(&r);
    e = open_exe(&r, &n, false, true);
    assert_ok(ru_exe_update_open(e, NULL, &err), err);
    assert_int_equal(ru_exe_phase(e, RU_PHASE_GRADIENTS, NULL, &err), RU_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "without option overlap"));
    close_rig(&r);
}

RU_TESTS(train_open, cmocka_unit_test(without_a_run_beside_it),
         cmocka_unit_test(what_cannot_be_is_named), cmocka_unit_test(every_optimizer),
         cmocka_unit_test(groups), cmocka_unit_test(statistics_of_batches),
         cmocka_unit_test(micro_batches), cmocka_unit_test(attention))
