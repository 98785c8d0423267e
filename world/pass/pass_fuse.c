/* Fusing: products and convolutions with bias, residual and activation; normalisation with what
 * follows it; the loss with its gradient. The fused forms are specified in world/graph/ops.def.
 *
 * Rounds of patterns until nothing changes. In training graphs nothing special is needed: a value
 * that a gradient reads has a second use, and patterns only swallow values with one use. */
#include "world/pass/pass.h"
#include "world/pass/rewrite_impl.h"

#include <string.h>

static bool is_product(ru_op op)
{
    return op == RU_OP_Conv || op == RU_OP_ConvTranspose || op == RU_OP_Gemm || op == RU_OP_MatMul;
}

static bool is_norm(ru_op op)
{
    return op == RU_OP_BatchNormTrain || op == RU_OP_BatchNormalization;
}

static uint32_t residual_slot(ru_op op)
{
    return is_norm(op) ? 5 : 3;
}

static bool has_activation(const ru_node *n)
{
    return ru_node_str(n, RU_ATTR_activation, "")[0] != '\0';
}

/* Move node j into slot i > j (or keep it when equal) with other inputs, outputs, attributes. */
static void move(rui_rw *rw, uint32_t j, uint32_t i, const ru_value_id *in, uint32_t n_in,
                 const ru_attr *more, uint32_t n_more, ru_value_id out0)
{
    ru_node n = rw->g.nodes[j];
    ru_value_id out[8];
    uint32_t count;
    RU_CHECK(n.n_out <= RU_ARRAY_LEN(out));
    ru_attr *attrs = rui_rw_attrs(rw, &n, more, n_more, &count);
    for (uint32_t k = 0; k < n.n_out; k++) {
        out[k] = n.out[k];
    }
    out[0] = out0;
    if (rw->status != RU_OK) {
        return;
    }
    rui_rw_kill(rw, j);
    rui_rw_set(rw, i, n.op, in, n_in, attrs, count, out, n.n_out);
    rw->g.nodes[i].name = n.name;
}

/* The inputs of `n` with `v` at place k, absent values between. Returns their number. */
static uint32_t with_input(const ru_node *n, uint32_t k, ru_value_id v, ru_value_id into[8])
{
    uint32_t n_in = n->n_in > k + 1 ? n->n_in : k + 1;
    for (uint32_t i = 0; i < n_in; i++) {
        into[i] = i < n->n_in ? n->in[i] : (ru_value_id){0};
    }
    into[k] = v;
    return n_in;
}

/* May node j (a multi-output normalisation) move down to slot i? Its other outputs must be read
 * later than i only. */
static bool may_move(const rui_rw *rw, uint32_t j, uint32_t i)
{
    const ru_node *n = &rw->g.nodes[j];
    for (uint32_t k = 1; k < n->n_out; k++) {
        uint32_t v = n->out[k].v;
        if (v != 0 && (v >= rw->n0 || (rw->first[v] != 0 && rw->first[v] < i))) {
            return false;
        }
    }
    return true;
}

/* -- bias and residual ------------------------------------------------------------------------- */

/* MatMul(a, b) + bias [n], Gemm without C + bias [n], Conv without bias + bias [1,C,1,1] is left.
 */
static bool fuse_bias(rui_rw *rw, uint32_t i)
{
    const ru_node *add = &rw->g.nodes[i];
    for (uint32_t k = 0; k < 2; k++) {
        ru_value_id z = add->in[k];
        ru_value_id b = add->in[1 - k];
        const ru_node *n = rui_rw_made_by(rw, z, RU_OP_NONE);
        const ru_type *t = rui_rw_type(rw, z);
        const ru_type *bt = rui_rw_type(rw, b);
        if (n == NULL || (n->op != RU_OP_MatMul && n->op != RU_OP_Gemm) ||
            rui_rw_uses(rw, z) != 1 || ru_node_has_in(n, 2) || ru_node_has_in(n, 3) ||
            has_activation(n) || bt->rank != 1 || t->rank < 2 ||
            rui_rw_type(rw, n->in[1])->rank < 2 || bt->dims[0] != t->dims[t->rank - 1] ||
            bt->dtype != t->dtype) {
            continue;
        }
        ru_value_id in[8];
        uint32_t n_in = with_input(n, 2, b, in);
        ru_attr one = {.key = RU_ATTR_beta, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = 1.0};
        move(rw, rui_rw_index(rw, z), i, in, n_in, &one, n->op == RU_OP_Gemm ? 1 : 0, add->out[0]);
        return true;
    }
    return false;
}

static bool fuse_residual(rui_rw *rw, uint32_t i)
{
    const ru_node *add = &rw->g.nodes[i];
    uint32_t best = 2;
    for (uint32_t k = 0; k < 2; k++) { /* the later of two candidates, so that the other is ready */
        ru_value_id z = add->in[k];
        const ru_node *n = rui_rw_made_by(rw, z, RU_OP_NONE);
        bool fits = n != NULL && (is_product(n->op) || n->op == RU_OP_BatchNormalization) &&
                    rui_rw_uses(rw, z) == 1 && !has_activation(n) &&
                    !ru_node_has_in(n, residual_slot(n->op)) &&
                    ru_type_equal(rui_rw_type(rw, z), rui_rw_type(rw, add->in[1 - k])) &&
                    add->in[0].v != add->in[1].v && rui_rw_type(rw, z)->rank >= 2 &&
                    may_move(rw, rui_rw_index(rw, z), i);
        if (fits && (best == 2 || rui_rw_index(rw, z) > rui_rw_index(rw, add->in[best]))) {
            best = k;
        }
    }
    if (best == 2) {
        return false;
    }
    ru_value_id z = add->in[best];
    const ru_node *n = rui_rw_made_by(rw, z, RU_OP_NONE);
    ru_value_id in[8];
    uint32_t n_in = with_input(n, residual_slot(n->op), add->in[1 - best], in);
    move(rw, rui_rw_index(rw, z), i, in, n_in, NULL, 0, add->out[0]);
    return true;
}

/* -- activation -------------------------------------------------------------------------------- */

typedef struct activation {
    const char *name; /* NULL: none */
    bool has_alpha, has_beta;
    double alpha, beta;
} activation;

static activation activation_of(const rui_rw *rw, const ru_node *n)
{
    switch ((uint32_t)n->op) {
    case RU_OP_Relu:
        return (activation){.name = "relu"};
    case RU_OP_Sigmoid:
        return (activation){.name = "sigmoid"};
    case RU_OP_Tanh:
        return (activation){.name = "tanh"};
    case RU_OP_HardSwish:
        return (activation){.name = "hardswish"};
    case RU_OP_Gelu: {
        bool tanh = strcmp(ru_node_str(n, RU_ATTR_approximate, "none"), "tanh") == 0;
        return (activation){.name = tanh ? "gelu_tanh" : "gelu"};
    }
    case RU_OP_LeakyRelu:
        return (activation){.name = "leaky_relu",
                            .has_alpha = true,
                            .alpha = ru_node_float(n, RU_ATTR_alpha, 0.01)};
    case RU_OP_Elu:
        return (activation){
            .name = "elu", .has_alpha = true, .alpha = ru_node_float(n, RU_ATTR_alpha, 1.0)};
    case RU_OP_HardSigmoid:
        return (activation){.name = "hardsigmoid",
                            .has_alpha = true,
                            .has_beta = true,
                            .alpha = ru_node_float(n, RU_ATTR_alpha, 0.2),
                            .beta = ru_node_float(n, RU_ATTR_beta, 0.5)};
    case RU_OP_Clip: {
        activation a = {.name = "clip", .has_alpha = true, .has_beta = true};
        bool both = n->n_in == 3 && rui_rw_scalar(rw, n->in[1], &a.alpha) &&
                    rui_rw_scalar(rw, n->in[2], &a.beta);
        return both ? a : (activation){.name = NULL};
    }
    default:
        return (activation){.name = NULL};
    }
}

static uint32_t activation_attrs(const activation *a, ru_attr *attrs)
{
    uint32_t n = 0;
    attrs[n++] = (ru_attr){.key = RU_ATTR_activation, .kind = RU_ATTR_STR, .n = 1, .u.s = a->name};
    if (a->has_alpha) {
        attrs[n++] = (ru_attr){
            .key = RU_ATTR_activation_alpha, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = a->alpha};
    }
    if (a->has_beta) {
        attrs[n++] = (ru_attr){
            .key = RU_ATTR_activation_beta, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = a->beta};
    }
    return n;
}

uint32_t rui_rw_activation(const rui_rw *rw, const ru_node *n, ru_attr *attrs)
{
    activation a = activation_of(rw, n);
    return a.name != NULL ? activation_attrs(&a, attrs) : 0;
}

static void set_activation(rui_rw *rw, uint32_t j, uint32_t i, const activation *a, ru_value_id out)
{
    ru_attr more[3];
    uint32_t n = activation_attrs(a, more);
    const ru_node *p = &rw->g.nodes[j];
    ru_value_id in[8];
    RU_CHECK(p->n_in <= RU_ARRAY_LEN(in));
    memcpy(in, p->in, sizeof *in * p->n_in);
    move(rw, j, i, in, p->n_in, more, n, out);
}

static bool takes_activation(const rui_rw *rw, const ru_node *p, const char *name)
{
    if (p == NULL || has_activation(p) || !ru_dtype_is_float(rui_rw_type(rw, p->out[0])->dtype)) {
        return false;
    }
    return is_product(p->op) || (is_norm(p->op) && strcmp(name, "relu") == 0);
}

static bool fuse_activation(rui_rw *rw, uint32_t i)
{
    const ru_node *act = &rw->g.nodes[i];
    activation a = activation_of(rw, act);
    if (a.name == NULL) {
        return false;
    }
    ru_value_id z = act->in[0];
    const ru_node *p = rui_rw_made_by(rw, z, RU_OP_NONE);
    uint32_t j = rui_rw_index(rw, z);
    if (!takes_activation(rw, p, a.name) || rui_rw_uses(rw, z) != 1 || !may_move(rw, j, i)) {
        return false;
    }
    set_activation(rw, j, i, &a, act->out[0]);
    return true;
}

/* z * sigmoid(z), the two uses of z. */
static bool fuse_silu(rui_rw *rw, uint32_t i)
{
    const ru_node *mul = &rw->g.nodes[i];
    for (uint32_t k = 0; k < 2; k++) {
        ru_value_id z = mul->in[k];
        const ru_node *s = rui_rw_made_by(rw, mul->in[1 - k], RU_OP_Sigmoid);
        const ru_node *p = rui_rw_made_by(rw, z, RU_OP_NONE);
        if (s == NULL || s->in[0].v != z.v || rui_rw_uses(rw, mul->in[1 - k]) != 1 ||
            rui_rw_uses(rw, z) != 2 || p == NULL || !is_product(p->op) ||
            !takes_activation(rw, p, "silu")) {
            continue;
        }
        rui_rw_kill(rw, rui_rw_index(rw, mul->in[1 - k]));
        set_activation(rw, rui_rw_index(rw, z), i, &(activation){.name = "silu"}, mul->out[0]);
        return true;
    }
    return false;
}

/* BatchNormTrain + residual + relu in one step: the sum alone is not worth a fused form. */
static bool fuse_norm_add_relu(rui_rw *rw, uint32_t i)
{
    const ru_node *relu = &rw->g.nodes[i];
    const ru_node *add = rui_rw_made_by(rw, relu->in[0], RU_OP_Add);
    if (add == NULL || rui_rw_uses(rw, relu->in[0]) != 1) {
        return false;
    }
    uint32_t best = 2;
    for (uint32_t k = 0; k < 2; k++) {
        ru_value_id z = add->in[k];
        const ru_node *n = rui_rw_made_by(rw, z, RU_OP_BatchNormTrain);
        if (n != NULL && rui_rw_uses(rw, z) == 1 && !has_activation(n) && !ru_node_has_in(n, 5) &&
            ru_type_equal(rui_rw_type(rw, z), rui_rw_type(rw, add->in[1 - k])) &&
            may_move(rw, rui_rw_index(rw, z), i) &&
            (best == 2 || rui_rw_index(rw, z) > rui_rw_index(rw, add->in[best]))) {
            best = k;
        }
    }
    if (best == 2) {
        return false;
    }
    uint32_t j = rui_rw_index(rw, add->in[best]);
    ru_value_id in[8];
    uint32_t n_in = with_input(&rw->g.nodes[j], 5, add->in[1 - best], in);
    ru_attr more = {.key = RU_ATTR_activation, .kind = RU_ATTR_STR, .n = 1, .u.s = "relu"};
    ru_value_id out = relu->out[0];
    rui_rw_kill(rw, rui_rw_index(rw, relu->in[0]));
    move(rw, j, i, in, n_in, &more, 1, out);
    return true;
}

/* -- gradients --------------------------------------------------------------------------------- */

/* dz = ReluGrad(dy, y); dx.. = BatchNormGrad(dz, x, scale, mean, invstd) with y the masked output
 * of that normalisation -> BatchNormGrad(dy, x, scale, mean, invstd, y) with dz as 4th output. */
static bool fuse_norm_grad(rui_rw *rw, uint32_t i)
{
    ru_node rg = rw->g.nodes[i];
    const ru_node *bn = rui_rw_made_by(rw, rg.in[1], RU_OP_BatchNormTrain);
    ru_value_id dz = rg.out[0];
    if (bn == NULL || strcmp(ru_node_str(bn, RU_ATTR_activation, ""), "relu") != 0) {
        return false;
    }
    for (uint32_t j = i + 1; j <= rw->last[dz.v] && dz.v < rw->n0; j++) {
        ru_node g = rw->g.nodes[j];
        if (g.op != RU_OP_BatchNormGrad || g.n_in != 5 || g.in[0].v != dz.v ||
            g.in[3].v != bn->out[3].v) {
            continue;
        }
        ru_attr more = {.key = RU_ATTR_activation, .kind = RU_ATTR_STR, .n = 1, .u.s = "relu"};
        uint32_t count;
        ru_attr *attrs = rui_rw_attrs(rw, &g, &more, 1, &count);
        ru_value_id in[6] = {rg.in[0], g.in[1], g.in[2], g.in[3], g.in[4], rg.in[1]};
        bool shared = rui_rw_uses(rw, dz) != 1;
        ru_value_id out[4] = {g.out[0], g.out[1], g.out[2], dz};
        rui_rw_kill(rw, j);
        rui_rw_set(rw, i, RU_OP_BatchNormGrad, in, 6, attrs, count, out, shared ? 4 : 3);
        return true;
    }
    return false;
}

/* The loss whose gradient has a constant factor writes dlogits at once. */
static bool fuse_loss(rui_rw *rw, uint32_t i)
{
    const ru_node *grad = &rw->g.nodes[i];
    ru_value_id probs = grad->in[1];
    uint32_t j = rui_rw_index(rw, probs);
    double scale;
    if (j == 0 || rw->g.nodes[j].op != RU_OP_SoftmaxCrossEntropy ||
        rw->g.values[probs.v].producer_out != 1 || rui_rw_uses(rw, probs) != 1 ||
        !rui_rw_scalar(rw, grad->in[0], &scale) || rw->g.nodes[j].in[1].v != grad->in[2].v ||
        ru_node_int(&rw->g.nodes[j], RU_ATTR_fused, 0) != 0) {
        return false;
    }
    ru_node n = rw->g.nodes[j];
    ru_attr more[2] = {
        {.key = RU_ATTR_fused, .kind = RU_ATTR_INT, .n = 1, .u.i = 1},
        {.key = RU_ATTR_scale, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = scale},
    };
    uint32_t count;
    ru_attr *attrs = rui_rw_attrs(rw, &n, more, 2, &count);
    ru_value_id out[4] = {n.out[0], grad->out[0], n.out[2], n.out[3]};
    rui_rw_kill(rw, i);
    rui_rw_set(rw, j, n.op, n.in, n.n_in, attrs, count, out, 4);
    return true;
}

/* -- transposes into products ------------------------------------------------------------------ */

static bool swaps_last_two(const ru_node *t, uint32_t rank)
{
    uint32_t n;
    const int64_t *perm = ru_node_ints(t, RU_ATTR_perm, &n);
    if (rank < 2 || (perm == NULL && rank != 2)) {
        return false;
    }
    for (uint32_t i = 0; perm != NULL && i < rank; i++) {
        int64_t want = i + 2 < rank ? (int64_t)i : (int64_t)(2 * rank - 3 - i);
        if (perm[i] != want) {
            return false;
        }
    }
    return true;
}

static bool fuse_transpose(rui_rw *rw, uint32_t i)
{
    const ru_node *n = &rw->g.nodes[i];
    for (uint32_t k = 0; k < 2; k++) {
        const ru_node *t = rui_rw_made_by(rw, n->in[k], RU_OP_Transpose);
        if (t == NULL || !swaps_last_two(t, rui_rw_type(rw, n->in[k])->rank)) {
            continue;
        }
        ru_attr_key key = k == 0 ? RU_ATTR_transA : RU_ATTR_transB;
        ru_attr more = {.key = key, .kind = RU_ATTR_INT, .n = 1};
        more.u.i = ru_node_int(n, key, 0) != 0 ? 0 : 1;
        ru_value_id in[8];
        uint32_t n_in = with_input(n, k, t->in[0], in);
        uint32_t count;
        ru_attr *attrs = rui_rw_attrs(rw, n, &more, 1, &count);
        ru_value_id out = n->out[0];
        if (rw->status == RU_OK) {
            rui_rw_set(rw, i, n->op, in, n_in, attrs, count, &out, 1);
        }
        return true;
    }
    return false;
}

/* -- indices written out ----------------------------------------------------------------------- */

/* ScatterElements along the first axis by indices [n, 1, ..] repeated over whole rows: ScatterND
 * by [n, 1]. Exporters write sums over the edges of a graph so. */
static bool fuse_scatter_rows(rui_rw *rw, uint32_t i)
{
    const ru_node *n = &rw->g.nodes[i];
    const ru_node *repeat = rui_rw_made_by(rw, n->in[1], RU_OP_Expand);
    const ru_type *x = rui_rw_type(rw, n->in[0]), *index = rui_rw_type(rw, n->in[1]);
    int64_t axis = ru_node_int(n, RU_ATTR_axis, 0);
    if (repeat == NULL || x->rank < 2 || index->rank != x->rank || index->dtype != RU_I64 ||
        (axis != 0 && axis != -(int64_t)x->rank)) {
        return false;
    }
    const ru_type *few = rui_rw_type(rw, repeat->in[0]);
    bool rows = few->rank == x->rank && few->dims[0] == index->dims[0] && few->dims[0] >= 0;
    for (uint32_t d = 1; rows && d < x->rank; d++) {
        rows = few->dims[d] == 1 && index->dims[d] == x->dims[d];
    }
    if (!rows) {
        return false;
    }
    ru_value_id in[3] = {n->in[0], repeat->in[0], n->in[2]}, out = n->out[0];
    if (x->rank > 2) {
        int64_t *shape = ru_arena_alloc(rw->g.arena, 2 * (int64_t)sizeof *shape, 8);
        if (shape == NULL) {
            return false;
        }
        shape[0] = few->dims[0];
        shape[1] = 1;
        ru_value_id to = rui_rw_const(rw, ru_type_make(RU_I64, 1, (int64_t[]){2}), shape);
        in[1] = rui_rw_insert(rw, i, RU_OP_Reshape, (ru_value_id[]){in[1], to}, 2, NULL, 0);
    }
    const char *word = ru_node_str(n, RU_ATTR_reduction, "none");
    ru_attr how = {.key = RU_ATTR_reduction, .kind = RU_ATTR_STR, .n = 1, .u.s = word};
    rui_rw_set(rw, i, RU_OP_ScatterND, in, 3, &how, 1, &out, 1);
    return true;
}

/* -- the pass ---------------------------------------------------------------------------------- */

static void try_node(rui_rw *rw, uint32_t i)
{
    switch ((uint32_t)rw->g.nodes[i].op) {
    case RU_OP_Add:
        (void)(fuse_bias(rw, i) || fuse_residual(rw, i));
        return;
    case RU_OP_Relu:
        (void)(fuse_norm_add_relu(rw, i) || fuse_activation(rw, i));
        return;
    case RU_OP_Mul:
        (void)fuse_silu(rw, i);
        return;
    case RU_OP_ReluGrad:
        (void)fuse_norm_grad(rw, i);
        return;
    case RU_OP_SoftmaxCrossEntropyGrad:
        (void)fuse_loss(rw, i);
        return;
    case RU_OP_MatMul:
    case RU_OP_Gemm:
        (void)fuse_transpose(rw, i);
        return;
    case RU_OP_ScatterElements:
        (void)fuse_scatter_rows(rw, i);
        return;
    default:
        (void)fuse_activation(rw, i);
        return;
    }
}

void rui_fuse_round(rui_rw *rw)
{
    for (uint32_t i = 1; i < rw->g.n_nodes && rw->status == RU_OK; i++) {
        try_node(rw, i);
    }
}

typedef void (*round_fn)(rui_rw *rw);

/* Rounds of one kind until nothing changes. */
static ru_status settle_like(const ru_graph *g, const ru_graph *like, round_fn fn, ru_arena *arena,
                             ru_graph *out, ru_err *err)
{
    enum { ROUNDS_MAX = 16 };
    ru_graph now = *g;
    for (int r = 0; r < ROUNDS_MAX; r++) {
        rui_rw rw;
        ru_arena_mark mark = ru_arena_mark_get(arena);
        RU_TRY(rui_rw_open(&now, arena, &rw, err));
        rw.like = like;
        fn(&rw);
        if (rw.changes == 0 && rw.status == RU_OK) {
            ru_arena_rewind(arena, mark);
            break;
        }
        RU_TRY(rui_rw_close(&rw, arena, &now, err));
    }
    *out = now;
    return RU_OK;
}

static ru_status settle(const ru_graph *g, round_fn fn, ru_arena *arena, ru_graph *out, ru_err *err)
{
    return settle_like(g, NULL, fn, arena, out, err);
}

ru_status ru_pass_lift(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err)
{
    ru_graph a;
    RU_TRY(settle(g, rui_simplify_round, arena, &a, err));
    RU_TRY(settle(&a, rui_lift_round, arena, &a, err));
    return ru_pass_dead(&a, arena, out, err);
}

ru_status ru_pass_fuse(const ru_graph *g, const ru_graph *like, bool exact_bytes, ru_arena *arena,
                       ru_graph *out, ru_err *err)
{
    ru_graph a;
    RU_TRY(settle(g, rui_expand_round, arena, &a, err));
    RU_TRY(settle(&a, rui_half_round, arena, &a, err));
    RU_TRY(ru_pass_lift(&a, arena, &a, err));
    RU_TRY(settle_like(&a, like, rui_fold_norm_round, arena, &a, err));
    RU_TRY(settle(&a, rui_fuse_round, arena, &a, err));
    RU_TRY(settle(&a, exact_bytes ? rui_int8_round : rui_int8_signed_round, arena, &a, err));
    RU_TRY(settle(&a, rui_unpack_round, arena, &a, err));
    RU_TRY(settle(&a, rui_widen_round, arena, &a, err));
    return ru_pass_dead(&a, arena, out, err);
}
