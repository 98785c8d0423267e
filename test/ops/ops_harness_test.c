/* Every row of ops.def: reference against finite differences, devices against the reference.
 *
 * For each op a few random cases are drawn. The case's graph and the graph of its gradient are
 * evaluated in f64 on the reference kernels; central differences of the f64 loss judge the
 * gradient. Then both graphs run on the devices, in f32 and bf16, and must agree with the f64
 * result within the row's tolerance, twice with the same bits. Rows without a gradient must say so.
 * In the end every row must have been met. */
#include "test/ops/ops.h"
#include "test/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exec/exe_impl.h"
#include "world/pass/pass.h"

enum { ROUNDS = 4, PROBES = 10 };

typedef struct row {
    const char *name, *grad;
} row;

static const row rows[RU_OP_COUNT] = {
#define RU_OP(name, onnx, i0, i1, o0, o1, shape, grad, ...) [RU_OP_##name] = {#name, #grad},
#include "world/graph/ops.def"
#undef RU_OP
};

/* -- a case as graphs ------------------------------------------------------------------- */

typedef struct made {
    ru_arena arena;
    ops_case c;
    ru_graph fwd, back; /* back: with gradients as outputs; n_nodes 0 when there is none */
    ru_value_id in[OPS_IN_MAX], out[OPS_OUT_MAX], loss;
    ru_value_id wrt[OPS_IN_MAX], grads[OPS_IN_MAX];
    uint32_t wrt_of[OPS_IN_MAX]; /* input number of each wrt */
    uint32_t n_wrt;
    ru_tensor inputs[OPS_IN_MAX];  /* in the order of the graph's inputs */
    uint32_t input_of[OPS_IN_MAX]; /* graph input of case input k */
    ru_err err;
} made;

static uint64_t case_seed(ru_op op, uint32_t round)
{
    return ru_test_seed() + 1000003 * (uint64_t)op + round;
}

/* The op's node over inputs and constants. */
static ru_status make_forward(made *m)
{
    ops_case *c = &m->c;
    ru_build b;
    uint32_t n = 0;
    RU_TRY(ru_graph_init(&m->fwd, &m->arena, rows[c->op].name, &m->err));
    ru_build_init(&b, &m->fwd);
    for (uint32_t k = 0; k < c->n_in; k++) {
        if (c->in[k].type.dtype == RU_NONE) {
            continue;
        }
        if (c->fixed[k]) {
            m->in[k] = ru_build_const(&b, c->in[k].type, c->in[k].data);
            continue;
        }
        char name[16];
        snprintf(name, sizeof name, "in%u", k);
        m->in[k] = ru_build_input(&b, name, c->in[k].type);
        m->input_of[k] = n;
        m->inputs[n++] = c->in[k];
    }
    ru_build_node(&b, c->op, m->in, c->n_in, c->attrs, m->out, c->n_out);
    return ru_build_finish(&b, &m->err);
}

/* loss = sum over outputs k of grad_out of sum(out_k * w_k), w_k random. */
static ru_status make_loss(made *m)
{
    ops_case *c = &m->c;
    ru_build b;
    ru_build_init(&b, &m->fwd);
    for (uint32_t k = 0; k < c->n_out; k++) {
        const ru_type t = m->fwd.values[m->out[k].v].type;
        if ((c->grad_out >> k & 1u) == 0 || t.dtype != RU_F32) {
            continue;
        }
        ops_case w = {.arena = &m->arena, .rng = ru_rng_split(&c->rng, k)};
        ru_tensor *x = ops_in_grid(&w, t, -1.0, 1.0);
        ru_value_id weighted =
            ru_build_op2(&b, RU_OP_Mul, m->out[k], ru_build_const(&b, t, x->data), NULL);
        ru_value_id sum =
            ru_build_op1(&b, RU_OP_ReduceSum, weighted, (ru_attr[]){RU_AI(keepdims, 0), RU_A_END});
        m->loss = m->loss.v == 0 ? sum : ru_build_op2(&b, RU_OP_Add, m->loss, sum, NULL);
    }
    return ru_build_finish(&b, &m->err);
}

static ru_status make_back(made *m)
{
    ops_case *c = &m->c;
    for (uint32_t k = 0; k < c->n_in; k++) {
        if ((c->grad_in >> k & 1u) != 0 && m->in[k].v != 0 && !c->fixed[k]) {
            m->wrt_of[m->n_wrt] = k;
            m->wrt[m->n_wrt++] = m->in[k];
        }
    }
    if (m->n_wrt == 0) {
        return RU_OK;
    }
    RU_TRY(make_loss(m));
    if (m->loss.v == 0) {
        return RU_OK;
    }
    ru_status st =
        ru_graph_grad(&m->fwd, m->loss, m->wrt, m->n_wrt, &m->arena, &m->back, m->grads, &m->err);
    if (st != RU_OK) {
        m->back.n_nodes = 0;
    }
    return st;
}

static ru_status make_outputs(ru_graph *g, const ru_value_id *v, uint32_t n, ru_err *err)
{
    for (uint32_t k = 0; k < n; k++) {
        if (v[k].v != 0) {
            RU_TRY(ru_graph_add_output(g, v[k], err));
        }
    }
    return RU_OK;
}

/* Draw case `round` of `op`. False: nothing to draw. */
static bool draw(made *m, ru_op op, uint32_t round)
{
    memset(m, 0, sizeof *m);
    ru_arena_init(&m->arena, 0);
    m->c = (ops_case){.arena = &m->arena,
                      .rng = ru_rng_from(case_seed(op, round), 7),
                      .plain = round % 2 == 0,
                      .big = round == 1 || round == 2,
                      .empty = round == ROUNDS - 1};
    ops_sample(&m->c, op);
    return !m->c.skip;
}

static int fault(const made *m, const char *what, const char *how)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    fprintf(stderr, "%s: %s: %s\n", rows[m->c.op].name, what, how);
    if (m->fwd.n_nodes > 1) {
        fprintf(stderr, "%s", ru_graph_print(&m->fwd, &arena));
    }
    ru_arena_fini(&arena);
    return 1;
}

/* -- gradients against finite differences ----------------------------------------------- */

static const ru_run_args run_args = {.seed = 42, .step = 3, .sample_offset = 2};

/* f64 copies of the inputs, so that they can be moved by little. */
static void widen_inputs(const made *m, ru_arena *arena, ru_tensor *wide)
{
    for (uint32_t i = 0; i < m->fwd.n_inputs; i++) {
        wide[i] = m->inputs[i];
        int64_t n = ops_count(&wide[i]);
        if (wide[i].type.dtype == RU_F32) {
            wide[i].type.dtype = RU_F64;
        }
        wide[i].data = ru_arena_zalloc(arena, n * ru_dtype_bytes(wide[i].type.dtype), 64);
        for (int64_t e = 0; e < n; e++) {
            ops_set(&wide[i], e, ops_get(&m->inputs[i], e));
        }
    }
}

static ru_status loss_at(made *m, const ru_tensor *inputs, double *loss)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_tensor *values = RU_NEW(&scratch, ru_tensor, m->fwd.n_values);
    ru_status st = ops_eval(&m->fwd, inputs, true, &run_args, &scratch, values, &m->err);
    *loss = st == RU_OK ? ops_get(&values[m->loss.v], 0) : 0.0;
    ru_arena_fini(&scratch);
    return st;
}

/* One input's gradient, a few elements. */
static int probe(made *m, ru_tensor *wide, uint32_t k, const ru_tensor *grad)
{
    ru_tensor *x = &wide[m->input_of[m->wrt_of[k]]];
    int64_t n = ops_count(x), most_probes = m->c.big ? 2 : PROBES;
    int64_t probes = n < most_probes ? n : most_probes;
    double most = 1.0;
    for (int64_t e = 0; grad->data != NULL && e < n; e++) {
        most = fmax(most, fabs(ops_get(grad, e)));
    }
    for (int64_t p = 0; p < probes; p++) {
        int64_t e = n <= most_probes ? p : ops_pick(&m->c, 0, n - 1);
        double old = ops_get(x, e), h = 1e-4, up, down;
        ops_set(x, e, old + h);
        ru_status st = loss_at(m, wide, &up);
        ops_set(x, e, old - h);
        st = st == RU_OK ? loss_at(m, wide, &down) : st;
        ops_set(x, e, old);
        if (st != RU_OK) {
            return fault(m, "evaluating", m->err.text);
        }
        double want = (up - down) / (2.0 * h), got = grad->data != NULL ? ops_get(grad, e) : 0.0;
        if (!(fabs(want - got) <= 1e-5 * most)) {
            char text[160];
            snprintf(text, sizeof text,
                     "input %u element %lld: gradient %.9g, finite difference %.9g", m->wrt_of[k],
                     (long long)e, got, want);
            return fault(m, "gradient", text);
        }
    }
    return 0;
}

static int check_gradient(made *m)
{
    ru_tensor wide[OPS_IN_MAX];
    ru_tensor *values = RU_NEW(&m->arena, ru_tensor, m->back.n_values);
    widen_inputs(m, &m->arena, wide);
    if (ops_eval(&m->back, wide, true, &run_args, &m->arena, values, &m->err) != RU_OK) {
        return fault(m, "evaluating its gradient", m->err.text);
    }
    int bad = 0;
    for (uint32_t k = 0; k < m->n_wrt && bad == 0; k++) {
        bad = probe(m, wide, k, &values[m->grads[k].v]);
    }
    return bad;
}

static void note_ops(const ru_graph *g, bool *met)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        met[g->nodes[i].op] = true;
    }
}

/* The forward graph alone runs, whatever its gradient. */
static int check_forward(made *m)
{
    ru_tensor wide[OPS_IN_MAX];
    ru_tensor *values = RU_NEW(&m->arena, ru_tensor, m->fwd.n_values);
    widen_inputs(m, &m->arena, wide);
    if (ops_eval(&m->fwd, wide, true, &run_args, &m->arena, values, &m->err) != RU_OK) {
        return fault(m, "evaluating", m->err.text);
    }
    return 0;
}

static int gradient_case(ru_op op, uint32_t round, bool *met)
{
    made m;
    int bad = 0;
    if (draw(&m, op, round)) {
        bool none = strcmp(rows[op].grad, "none") == 0, stop = strcmp(rows[op].grad, "stop") == 0;
        if (make_forward(&m) != RU_OK) {
            bad = fault(&m, "building", m.err.text);
        } else {
            note_ops(&m.fwd, met);
            bad = check_forward(&m);
            ru_status st = bad == 0 ? make_back(&m) : RU_OK;
            bool asked = bad == 0 && m.n_wrt > 0 && m.loss.v != 0;
            if (asked && none) {
                bad = st == RU_E_UNSUPPORTED ? 0 : fault(&m, "gradient", "none, yet one was made");
            } else if (asked && st != RU_OK) {
                bad = fault(&m, "differentiating", m.err.text);
            } else if (asked && !stop) {
                note_ops(&m.back, met);
                bad = check_gradient(&m);
            }
        }
    }
    ru_arena_fini(&m.arena);
    return bad;
}

static void test_gradients_are_finite_differences(void **state)
{
    (void)state;
    bool met[RU_OP_COUNT] = {false};
    int bad = 0;
    for (uint32_t op = 1; op < RU_OP_COUNT; op++) {
        for (uint32_t round = 0; round < ROUNDS; round++) {
            bad += gradient_case((ru_op)op, round, met);
        }
    }
    for (uint32_t op = 1; op < RU_OP_COUNT; op++) {
        if (!met[op]) {
            fprintf(stderr, "%s: no case meets it\n", rows[op].name);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

/* -- devices against the reference ------------------------------------------------------ */

typedef struct way {
    const char *name;
    ru_exe_options opt;
    bool guard;
} way;

static const way ways[] = {
    {"ref", {.device = RU_DEVICE_REF, .threads = 1}, false},
    {"cpu f32", {.device = RU_DEVICE_CPU, .threads = 1}, false},
    {"cpu f32, 2 threads", {.device = RU_DEVICE_CPU, .threads = 2}, true},
    {"cpu bf16", {.device = RU_DEVICE_CPU, .precision = RU_PRECISION_BF16, .threads = 2}, true},
};

/* Largest tolerance among the graph's ops: rounding of one shows in the others. */
static double tolerance(const ru_graph *g, bool bf16)
{
    double tol = 0.0;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_op_info *op = ru_op_get(g->nodes[i].op);
        tol = fmax(tol, bf16 ? op->tol_bf16 : op->tol_f32);
    }
    return g->n_nodes > 2 ? 2.0 * fmax(tol, 1e-5) : tol;
}

static bool opaque(const ru_graph *g, ru_value_id v)
{
    const ru_value *x = &g->values[v.v];
    const ru_node *n = &g->nodes[x->producer.v];
    return (n->op == RU_OP_LSTMTrain && x->producer_out == 3) ||
           (n->op == RU_OP_GRUTrain && x->producer_out == 2);
}

/* Relative to the largest element; integers and tolerance 0 exactly. */
static bool agree(const ru_tensor *want, const ru_tensor *got, double tol, char *text, size_t size)
{
    double most = 1e-3;
    int64_t n = ops_count(want);
    for (int64_t i = 0; i < n; i++) {
        double w = ops_get(want, i);
        most = isfinite(w) ? fmax(most, fabs(w)) : most;
    }
    for (int64_t i = 0; i < n; i++) {
        double w = ops_get(want, i), g = ops_get(got, i);
        bool is_float = got->type.dtype == RU_F32;
        double limit = is_float ? tol * most : 0.0;
        w = is_float && tol <= 0.0 ? (double)(float)w : w;
        if (!(fabs(w - g) <= limit) && !(isnan(w) && isnan(g)) && !(isinf(w) && w == g)) {
            snprintf(text, size, "element %lld of %lld is %.9g, expected %.9g within %.3g",
                     (long long)i, (long long)n, g, w, limit);
            return false;
        }
    }
    return true;
}

static int compare_outputs(made *m, const ru_graph *g, ru_exe *e, const way *w,
                           const ru_tensor *values, bool again)
{
    char text[256], what[64];
    bool bf16 = w->opt.precision == RU_PRECISION_BF16;
    double tol = tolerance(g, bf16);
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        ru_value_id v = g->outputs[k];
        ru_tensor got = {.type = g->values[v.v].type};
        const void *data = ru_exe_output(e, v);
        if (data == NULL) {
            return fault(m, w->name, "an output has no data");
        }
        got.data = ru_arena_copy(&m->arena, data, ru_type_bytes(&got.type), 64);
        snprintf(what, sizeof what, "%s, output %u%s", w->name, k, again ? ", second run" : "");
        if (!opaque(g, v) && !agree(&values[v.v], &got, tol, text, sizeof text)) {
            return fault(m, what, text);
        }
    }
    return 0;
}

/* Copies of all outputs one after the other, to compare two runs bit by bit. */
static uint8_t *snapshot(made *m, const ru_graph *g, ru_exe *e, int64_t *bytes)
{
    *bytes = 0;
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        *bytes += ru_type_bytes(&g->values[g->outputs[k].v].type);
    }
    uint8_t *all = ru_arena_zalloc(&m->arena, *bytes, 64), *at = all;
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        int64_t n = ru_type_bytes(&g->values[g->outputs[k].v].type);
        memcpy(at, ru_exe_output(e, g->outputs[k]), (size_t)n);
        at += n;
    }
    return all;
}

/* Ops of which some cases still run on reference kernels: forms that no exporter of PyTorch writes
 * by default. Every case of every other op runs on a kernel of its own: to take an op out of this
 * list is progress, to put one in is not. */
static const ru_op slow_ops[] = {
    RU_OP_Compress,                                            /* its size depends on data */
    RU_OP_DFT,           RU_OP_STFT,        RU_OP_ConvInteger, /* of data that are not constant on
                                                                  either side */
    RU_OP_MatMulInteger, RU_OP_CouplePairs, RU_OP_ReverseSequence, RU_OP_LRN, /* of an even size */
    RU_OP_LSTM, /* sequences of several lengths; unusual activations, limits and coupled gates */
    RU_OP_LSTMTrain,     RU_OP_GRU,         RU_OP_GRUTrain,        RU_OP_RNN,
};

static bool may_be_slow(const made *m)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(slow_ops); k++) {
        if (slow_ops[k] == m->c.op) {
            return true;
        }
    }
    return false;
}

/* An input that ends, as far as its alignment lets it, where the process has no memory, in pages
 * that cannot be written. */
typedef struct edge {
    uint8_t *pages;
    size_t bytes;
    void *data;
} edge;

static edge edge_make(const void *data, int64_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = ((size_t)bytes + page - 1) / page * page;
    edge x = {.bytes = size + page};
    x.pages = mmap(NULL, x.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RU_CHECK(x.pages != MAP_FAILED);
    x.data = x.pages + (size - (size_t)bytes) / RU_RUN_ALIGN * RU_RUN_ALIGN;
    memcpy(x.data, data, (size_t)bytes);
    RU_CHECK(mprotect(x.pages, size, PROT_READ) == 0);
    RU_CHECK(mprotect(x.pages + size, page, PROT_NONE) == 0);
    return x;
}

/* Once more with inputs in place: the same bits. */
static int run_in_place(made *m, const ru_graph *g, const way *w, ru_exe *e, const uint8_t *want)
{
    edge at[OPS_IN_MAX];
    ru_run_input in[OPS_IN_MAX];
    ru_run_args args = run_args;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        at[i] = edge_make(m->inputs[i].data, ru_type_bytes(&m->inputs[i].type));
        in[i] = (ru_run_input){g->inputs[i], at[i].data};
        memset(ru_exe_input(e, g->inputs[i]), 0xff, (size_t)ru_type_bytes(&m->inputs[i].type));
    }
    args.inputs = in;
    args.n_inputs = g->n_inputs;
    int bad = ru_exe_run(e, &args, &m->err) != RU_OK ? fault(m, w->name, m->err.text) : 0;
    const uint8_t *bits = bad == 0 ? snapshot(m, g, e, &bytes) : NULL;
    if (bits != NULL && memcmp(want, bits, (size_t)bytes) != 0) {
        bad = fault(m, w->name, "inputs in place give other bits");
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        munmap(at[i].pages, at[i].bytes);
        memcpy(ru_exe_input(e, g->inputs[i]), m->inputs[i].data,
               (size_t)ru_type_bytes(&m->inputs[i].type));
    }
    return bad;
}

static int run_way(made *m, const ru_graph *g, const way *w, const ru_tensor *values)
{
    ru_exe *e = NULL;
    int bad = 0;
    int64_t bytes = 0;
    uint8_t *first = NULL;
    if ((w->guard ? rui_exe_open_guarded : ru_exe_open)(g, &w->opt, &e, &m->err) != RU_OK) {
        return fault(m, w->name, m->err.text);
    }
    ru_exe_stats stats;
    ru_exe_stats_get(e, &stats);
    if (g == &m->fwd && w->opt.precision == RU_PRECISION_F32 && stats.n_slow > 0 &&
        !may_be_slow(m)) {
        bad = fault(m, w->name, "runs on a reference kernel");
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        memcpy(ru_exe_input(e, g->inputs[i]), m->inputs[i].data,
               (size_t)ru_type_bytes(&m->inputs[i].type));
    }
    for (int run = 0; run < 2 && bad == 0; run++) {
        if (ru_exe_run(e, &run_args, &m->err) != RU_OK) {
            bad = fault(m, w->name, m->err.text);
            break;
        }
        bad = compare_outputs(m, g, e, w, values, run == 1);
        uint8_t *bits = bad == 0 ? snapshot(m, g, e, &bytes) : NULL;
        if (bits != NULL && run == 1 && memcmp(first, bits, (size_t)bytes) != 0) {
            bad = fault(m, w->name, "two runs differ");
        }
        first = bits;
    }
    bad = bad == 0 ? run_in_place(m, g, w, e, first) : bad;
    if (bad == 0 && w->guard && rui_exe_guards_check(e, &m->err) != RU_OK) {
        bad = fault(m, w->name, m->err.text);
    }
    for (uint32_t i = 0; i < g->n_inputs && bad == 0; i++) {
        if (memcmp(ru_exe_input(e, g->inputs[i]), m->inputs[i].data,
                   (size_t)ru_type_bytes(&m->inputs[i].type)) != 0) {
            bad = fault(m, w->name, "an input was written");
        }
    }
    ru_exe_close(e);
    return bad;
}

static int run_graph(made *m, const ru_graph *g)
{
    ru_tensor wide[OPS_IN_MAX];
    ru_tensor *values = RU_NEW(&m->arena, ru_tensor, g->n_values);
    int bad = 0;
    widen_inputs(m, &m->arena, wide);
    if (ops_eval(g, wide, true, &run_args, &m->arena, values, &m->err) != RU_OK) {
        return fault(m, "evaluating", m->err.text);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ways); k++) {
        bool bf16 = ways[k].opt.precision == RU_PRECISION_BF16;
        bad += bf16 && m->c.f32_only ? 0 : run_way(m, g, &ways[k], values);
    }
    return bad;
}

static int device_case(ru_op op, uint32_t round, bool gradient)
{
    made m;
    int bad = 0;
    if (draw(&m, op, round)) {
        ru_status st = make_forward(&m);
        if (st == RU_OK && !gradient) {
            st = make_outputs(&m.fwd, m.out, m.c.n_out, &m.err);
            bad = st == RU_OK ? run_graph(&m, &m.fwd) : 0;
        } else if (st == RU_OK && make_back(&m) == RU_OK && m.back.n_nodes > 0) {
            st = make_outputs(&m.back, m.grads, m.n_wrt, &m.err);
            bad = st == RU_OK && m.back.n_outputs > 0 ? run_graph(&m, &m.back) : 0;
        }
        bad += st == RU_OK ? 0 : fault(&m, "building", m.err.text);
    }
    ru_arena_fini(&m.arena);
    return bad;
}

static void test_devices_agree(void **state)
{
    (void)state;
    int bad = 0;
    for (uint32_t op = 1; op < RU_OP_COUNT; op++) {
        for (uint32_t round = 0; round < ROUNDS; round++) {
            bad += device_case((ru_op)op, round, false);
        }
    }
    assert_int_equal(bad, 0);
}

static void test_devices_agree_on_gradients(void **state)
{
    (void)state;
    int bad = 0;
    for (uint32_t op = 1; op < RU_OP_COUNT; op++) {
        for (uint32_t round = 0; round < ROUNDS; round++) {
            bad += device_case((ru_op)op, round, true);
        }
    }
    assert_int_equal(bad, 0);
}

/* An op that is an exception has a case on a reference kernel. */
static void test_exceptions_are_needed(void **state)
{
    (void)state;
    const ru_exe_options opt = {.device = RU_DEVICE_CPU, .threads = 1};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(slow_ops); k++) {
        ru_exe_stats stats = {0};
        for (uint32_t round = 0; round < 40 && stats.n_slow == 0; round++) {
            made m;
            ru_exe *e = NULL;
            if (draw(&m, slow_ops[k], round)) {
                assert_ok(make_forward(&m), m.err);
                assert_ok(make_outputs(&m.fwd, m.out, m.c.n_out, &m.err), m.err);
                assert_ok(ru_exe_open(&m.fwd, &opt, &e, &m.err), m.err);
                ru_exe_stats_get(e, &stats);
                ru_exe_close(e);
            }
            ru_arena_fini(&m.arena);
        }
        if (stats.n_slow == 0) {
            fail_msg("%s has a kernel for every case: take it out of the list",
                     rows[slow_ops[k]].name);
        }
    }
}

/* -- what is not a number ---------------------------------------------------------------- */

/* Kernels of convolutions multiply what a window does not reach by zero, and Adam's reads the
 * parameter where nothing decays it: NaN may spread there, but is never lost. */
static bool may_spread(const ru_graph *g)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        ru_op op = g->nodes[i].op;
        if (op == RU_OP_Conv || op == RU_OP_ConvGradX || op == RU_OP_ConvGradW ||
            op == RU_OP_ConvTranspose || op == RU_OP_ConvTransposeGradX ||
            op == RU_OP_ConvTransposeGradW || op == RU_OP_AdamUpdate) {
            return true;
        }
    }
    return false;
}

/* Outputs hold NaN where the reference's do, and the same integers (places of the largest). */
static int same_nans(made *m, const ru_graph *g, ru_exe *e, const way *w, const ru_tensor *values)
{
    char text[160], what[64];
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        const ru_tensor *want = &values[g->outputs[k].v];
        ru_tensor got = {.type = g->values[g->outputs[k].v].type};
        if (opaque(g, g->outputs[k])) {
            continue;
        }
        got.data =
            ru_arena_copy(&m->arena, ru_exe_output(e, g->outputs[k]), ru_type_bytes(&got.type), 64);
        for (int64_t i = 0; i < ops_count(want); i++) {
            double a = ops_get(want, i), b = ops_get(&got, i);
            bool same = ru_dtype_is_float(got.type.dtype)
                            ? isnan(a) == isnan(b) || (isnan(b) && may_spread(g))
                            : !(fabs(a - b) > 0);
            if (!same) {
                snprintf(what, sizeof what, "%s, output %u", w->name, k);
                snprintf(text, sizeof text, "element %lld of %lld is %g, the reference says %g",
                         (long long)i, (long long)ops_count(want), b, a);
                return fault(m, what, text);
            }
        }
    }
    return 0;
}

/* Elements that only a product with zero could bring into the result, which kernels may leave out:
 * weights beside the first, absent state; keys and values that a causal row does not see; weights
 * of classes that are no row's label. */
static bool beside_zero(const made *m, uint32_t k)
{
    const ru_node *n = &m->fwd.nodes[1];
    return ru_node_int(n, RU_ATTR_causal, 0) != 0 || n->op == RU_OP_AttentionCached ||
           (k == 2 && n->op == RU_OP_SoftmaxCrossEntropy) ||
           (k >= 1 && k <= 3 && (n->op == RU_OP_LSTM || n->op == RU_OP_LSTMTrain));
}

/* Graph `g` with one NaN in input `k`. */
static int poisoned(made *m, const ru_graph *g, uint32_t k)
{
    ru_tensor wide[OPS_IN_MAX], *x = &m->inputs[k];
    ru_tensor *values = RU_NEW(&m->arena, ru_tensor, g->n_values);
    int64_t at = ops_pick(&m->c, 0, ops_count(x) - 1);
    double was = ops_get(x, at);
    int bad = 0;
    ops_set(x, at, RU_NAN);
    widen_inputs(m, &m->arena, wide);
    if (ops_eval(g, wide, true, &run_args, &m->arena, values, &m->err) != RU_OK) {
        bad = fault(m, "evaluating", m->err.text);
    }
    for (uint32_t i = 1; i < RU_ARRAY_LEN(ways) && bad == 0; i++) {
        ru_exe *e = NULL;
        if (ways[i].opt.threads == 1 ||
            (ways[i].opt.precision == RU_PRECISION_BF16 && !m->c.f32_only)) {
            bad = ru_exe_open(g, &ways[i].opt, &e, &m->err) != RU_OK;
            for (uint32_t j = 0; j < g->n_inputs && bad == 0; j++) {
                memcpy(ru_exe_input(e, g->inputs[j]), m->inputs[j].data,
                       (size_t)ru_type_bytes(&m->inputs[j].type));
            }
            bad = bad != 0 || ru_exe_run(e, &run_args, &m->err) != RU_OK
                      ? fault(m, ways[i].name, m->err.text)
                      : same_nans(m, g, e, &ways[i], values);
            ru_exe_close(e);
        }
    }
    ops_set(x, at, was);
    return bad;
}

static int nan_case(ru_op op, uint32_t round, bool gradient)
{
    made m;
    int bad = 0;
    if (draw(&m, op, round) && make_forward(&m) == RU_OK) {
        const ru_graph *g = gradient ? &m.back : &m.fwd;
        ru_status st = RU_OK;
        if (!gradient) {
            st = make_outputs(&m.fwd, m.out, m.c.n_out, &m.err);
        } else if (make_back(&m) == RU_OK && m.back.n_nodes > 0) {
            st = make_outputs(&m.back, m.grads, m.n_wrt, &m.err);
        }
        for (uint32_t k = 0; k < g->n_inputs && st == RU_OK && bad == 0 && g->n_outputs > 0; k++) {
            if (m.inputs[k].type.dtype == RU_F32 && ops_count(&m.inputs[k]) > 0 &&
                !beside_zero(&m, k)) {
                bad = poisoned(&m, g, k);
            }
        }
    }
    ru_arena_fini(&m.arena);
    return bad;
}

/* One NaN in each input in turn: it reaches what it reaches on the reference. */
static void test_nans_stay(void **state)
{
    (void)state;
    int bad = 0;
    for (uint32_t op = 1; op < RU_OP_COUNT; op++) {
        for (uint32_t round = 0; round < ROUNDS; round++) {
            bad += nan_case((ru_op)op, round, false);
            bad += nan_case((ru_op)op, round, true);
        }
    }
    assert_int_equal(bad, 0);
}

/* A byte written behind an input must be noticed. */
static void test_guards_bite(void **state)
{
    (void)state;
    made m;
    ru_exe *e = NULL;
    const ru_exe_options opt = {.device = RU_DEVICE_CPU, .threads = 1};
    assert_true(draw(&m, RU_OP_Relu, 0));
    assert_ok(make_forward(&m), m.err);
    assert_ok(make_outputs(&m.fwd, m.out, 1, &m.err), m.err);
    assert_ok(rui_exe_open_guarded(&m.fwd, &opt, &e, &m.err), m.err);
    uint8_t *in = ru_exe_input(e, m.fwd.inputs[0]);
    assert_ok(rui_exe_guards_check(e, &m.err), m.err);
    in[ru_type_bytes(&m.inputs[0].type)] = 1;
    assert_int_equal(rui_exe_guards_check(e, &m.err), RU_E_BUG);
    ru_exe_close(e);
    ru_arena_fini(&m.arena);
}

RU_TESTS(test_ops_harness, cmocka_unit_test(test_nans_stay), cmocka_unit_test(test_guards_bite),
         cmocka_unit_test(test_gradients_are_finite_differences),
         cmocka_unit_test(test_devices_agree), cmocka_unit_test(test_exceptions_are_needed),
         cmocka_unit_test(test_devices_agree_on_gradients))
