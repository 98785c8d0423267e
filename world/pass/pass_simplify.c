/* Nodes that do nothing, pairs that undo each other, and inference normalisation folded into the
 * weights of the convolution before it. */
#include "world/pass/rewrite_impl.h"

#include <math.h>
#include <string.h>

/* out[0] of slot i is `x` under another name. */
static bool forward(rui_rw *rw, uint32_t i, ru_value_id x)
{
    ru_value_id out = rw->g.nodes[i].out[0];
    const ru_type *a = rui_rw_type(rw, out);
    const ru_type *b = rui_rw_type(rw, x);
    if (!ru_type_equal(a, b) || !rui_rw_replace(rw, out, x)) {
        return false;
    }
    rui_rw_kill(rw, i);
    return true;
}

/* Make slot i read `x` instead of its first input, with other attributes when given. */
static void reread(rui_rw *rw, uint32_t i, ru_value_id x, const ru_attr *more, uint32_t n_more)
{
    const ru_node n = rw->g.nodes[i];
    ru_value_id in[4] = {x};
    uint32_t count;
    RU_CHECK(n.n_in <= RU_ARRAY_LEN(in));
    for (uint32_t k = 1; k < n.n_in; k++) {
        in[k] = n.in[k];
    }
    ru_attr *attrs = rui_rw_attrs(rw, &n, more, n_more, &count);
    if (rw->status == RU_OK) {
        rui_rw_set(rw, i, n.op, in, n.n_in, attrs, count, n.out, n.n_out);
    }
}

static bool simplify_transpose(rui_rw *rw, uint32_t i)
{
    const ru_node *n = &rw->g.nodes[i];
    uint32_t rank;
    const int64_t *perm = ru_node_ints(n, RU_ATTR_perm, &rank);
    if (perm == NULL) {
        return false;
    }
    const ru_node *p = rui_rw_made_by(rw, n->in[0], RU_OP_Transpose);
    uint32_t before;
    const int64_t *first = p != NULL ? ru_node_ints(p, RU_ATTR_perm, &before) : NULL;
    int64_t both[RU_RANK_MAX];
    bool same = true;
    for (uint32_t k = 0; k < rank; k++) {
        both[k] = first != NULL ? first[perm[k]] : perm[k];
        same = same && both[k] == (int64_t)k;
    }
    ru_value_id src = first != NULL ? p->in[0] : n->in[0];
    if (same) {
        return forward(rw, i, src);
    }
    if (first == NULL) {
        return false;
    }
    ru_attr more = {.key = RU_ATTR_perm, .kind = RU_ATTR_INTS, .n = rank};
    more.u.is = ru_arena_copy(rw->g.arena, both, (int64_t)rank * 8, 8);
    if (more.u.is != NULL) {
        reread(rw, i, src, &more, 1);
    }
    return true;
}

/* A reshape of a reshape reads the first source; one to the same shape is nothing. A target that
 * copies input dimensions (0) depends on its input and stays. */
static bool simplify_reshape(rui_rw *rw, uint32_t i)
{
    const ru_node *n = &rw->g.nodes[i];
    if (forward(rw, i, n->in[0])) {
        return true;
    }
    uint32_t count;
    const int64_t *to = rui_rw_ints(rw, n->in[1], &count);
    const ru_node *p = rui_rw_made_by(rw, n->in[0], RU_OP_NONE);
    bool view = p != NULL && (p->op == RU_OP_Reshape || p->op == RU_OP_Flatten ||
                              p->op == RU_OP_Squeeze || p->op == RU_OP_Unsqueeze);
    for (uint32_t k = 0; to != NULL && k < count; k++) {
        view = view && to[k] != 0;
    }
    if (to == NULL || !view) {
        return false;
    }
    reread(rw, i, p->in[0], NULL, 0);
    return true;
}

static void simplify_node(rui_rw *rw, uint32_t i)
{
    const ru_node *n = &rw->g.nodes[i];
    switch ((uint32_t)n->op) {
    case RU_OP_Identity:
    case RU_OP_Cast:
    case RU_OP_CastLike:
    case RU_OP_Expand:
    case RU_OP_Flatten:
    case RU_OP_Squeeze:
    case RU_OP_Unsqueeze:
        (void)forward(rw, i, n->in[0]);
        return;
    case RU_OP_Dropout: {
        double on;
        bool training = n->n_in > 2 && n->in[2].v != 0 && !rui_rw_scalar(rw, n->in[2], &on);
        const ru_value *t = n->n_in > 2 ? &rw->g.values[n->in[2].v] : NULL;
        if (training && t->kind == RU_VALUE_CONST && t->type.dtype == RU_BOOL && t->data != NULL) {
            training = *(const uint8_t *)t->data != 0;
        }
        if (!training && !(n->n_out > 1 && n->out[1].v != 0 && rui_rw_uses(rw, n->out[1]) > 0)) {
            (void)forward(rw, i, n->in[0]);
        }
        return;
    }
    case RU_OP_Concat:
    case RU_OP_Sum:
    case RU_OP_Max:
    case RU_OP_Min:
    case RU_OP_Mean:
        if (n->n_in == 1) {
            (void)forward(rw, i, n->in[0]);
        }
        return;
    case RU_OP_Transpose:
        (void)simplify_transpose(rw, i);
        return;
    case RU_OP_Reshape:
        (void)simplify_reshape(rw, i);
        return;
    default:
        return;
    }
}

void rui_simplify_round(rui_rw *rw)
{
    for (uint32_t i = 1; i < rw->g.n_nodes && rw->status == RU_OK; i++) {
        simplify_node(rw, i);
    }
}

/* -- BatchNormalization after a convolution ---------------------------------------------------- */

static const float *const_f32(const rui_rw *rw, ru_value_id v, int64_t count)
{
    const ru_value *p = &rw->g.values[v.v];
    bool ok = v.v != 0 && p->kind == RU_VALUE_CONST && p->data != NULL && p->type.dtype == RU_F32 &&
              ru_type_count(&p->type) == count;
    return ok ? p->data : NULL;
}

/* k[c] = scale / sqrt(var + epsilon) and shift[c] = (bias0 - mean) * k + bias. */
static bool norm_factors(const rui_rw *rw, const ru_node *bn, const float *bias0, int64_t n,
                         float *k, float *shift)
{
    const float *scale = const_f32(rw, bn->in[1], n);
    const float *bias = const_f32(rw, bn->in[2], n);
    const float *mean = const_f32(rw, bn->in[3], n);
    const float *var = const_f32(rw, bn->in[4], n);
    double eps = ru_node_float(bn, RU_ATTR_epsilon, 1e-5);
    if (scale == NULL || bias == NULL || mean == NULL || var == NULL) {
        return false;
    }
    for (int64_t c = 0; c < n; c++) {
        double f = (double)scale[c] / sqrt((double)var[c] + eps);
        double b = bias0 != NULL ? (double)bias0[c] : 0.0;
        k[c] = (float)f;
        shift[c] = (float)((b - (double)mean[c]) * f + (double)bias[c]);
    }
    return true;
}

/* Weights, and a factor of each output channel. Conv: [C, ...]; ConvTranspose: [in, C/group, ...].
 */
typedef struct scaling {
    ru_type type;
    const float *w, *k;
    int64_t group; /* 0: no ConvTranspose */
} scaling;

/* The products to `out`; or, with `like`, whether they are its bits. */
static bool scale(const scaling *s, float *out, const float *like)
{
    int64_t blocks = s->type.dims[0] * s->type.dims[1];
    int64_t inner = blocks > 0 ? ru_type_count(&s->type) / blocks : 0;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t first = b / s->type.dims[1], second = b % s->type.dims[1];
        int64_t c =
            s->group > 0 ? first / (s->type.dims[0] / s->group) * s->type.dims[1] + second : first;
        for (int64_t e = b * inner; e < (b + 1) * inner; e++) {
            float x = s->w[e] * s->k[c];
            if (out != NULL) {
                out[e] = x;
            } else if (memcmp(&x, &like[e], sizeof x) != 0) {
                return false;
            }
        }
    }
    return true;
}

static const float *scaled_weights(rui_rw *rw, const scaling *s)
{
    for (uint32_t i = 1; rw->like != NULL && i < rw->like->n_values; i++) {
        const ru_value *v = &rw->like->values[i];
        if (v->kind == RU_VALUE_CONST && v->data != NULL && ru_type_equal(&v->type, &s->type) &&
            scale(s, NULL, v->data)) {
            return v->data;
        }
    }
    float *out = ru_arena_alloc(rw->g.arena, ru_type_bytes(&s->type), 64);
    if (out != NULL) {
        (void)scale(s, out, NULL);
    }
    return out;
}

static bool fold_norm(rui_rw *rw, uint32_t i)
{
    const ru_node bn = rw->g.nodes[i];
    const ru_node *p = rui_rw_made_by(rw, bn.in[0], RU_OP_NONE);
    bool transpose = p != NULL && p->op == RU_OP_ConvTranspose;
    if (p == NULL || (p->op != RU_OP_Conv && !transpose) || rui_rw_uses(rw, bn.in[0]) != 1 ||
        p->n_in > 3 || ru_node_str(p, RU_ATTR_activation, "")[0] != '\0' || bn.n_out != 1 ||
        bn.n_in != 5 || ru_node_int(&bn, RU_ATTR_training_mode, 0) != 0) {
        return false;
    }
    ru_node conv = *p;
    ru_type wt = *rui_rw_type(rw, conv.in[1]);
    int64_t n = rui_rw_type(rw, conv.out[0])->dims[1];
    const float *w = const_f32(rw, conv.in[1], ru_type_count(&wt));
    bool has_bias = ru_node_has_in(&conv, 2);
    const float *bias0 = has_bias ? const_f32(rw, conv.in[2], n) : NULL;
    if (n < 1 || w == NULL || (has_bias && bias0 == NULL)) {
        return false;
    }
    float *k = RU_NEW(rw->g.arena, float, n);
    float *shift = ru_arena_alloc(rw->g.arena, n * 4, 64);
    if (k == NULL || shift == NULL || !norm_factors(rw, &bn, bias0, n, k, shift)) {
        return false;
    }
    const scaling s = {wt, w, k, transpose ? ru_node_int(&conv, RU_ATTR_group, 1) : 0};
    const float *scaled = scaled_weights(rw, &s);
    ru_type bt = {.dtype = RU_F32, .rank = 1, .dims = {n}};
    ru_value_id in[3] = {conv.in[0], rui_rw_const(rw, wt, scaled), rui_rw_const(rw, bt, shift)};
    uint32_t j = rui_rw_index(rw, bn.in[0]);
    if (rw->status == RU_OK) {
        rui_rw_kill(rw, j);
        rui_rw_set(rw, i, conv.op, in, 3, conv.attrs, conv.n_attrs, bn.out, 1);
        rw->g.nodes[i].name = conv.name;
    }
    return true;
}

void rui_fold_norm_round(rui_rw *rw)
{
    for (uint32_t i = 1; i < rw->g.n_nodes && rw->status == RU_OK; i++) {
        if (rw->g.nodes[i].op == RU_OP_BatchNormalization) {
            (void)fold_norm(rw, i);
        }
    }
}
