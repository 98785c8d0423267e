/* Gradients of ops that move data. */
#include "world/grad/grad_impl.h"

#include <string.h>

void rui_grad_reshape(rui_grad *c)
{
    rui_give(c, 0, rui_reshape_like(c, rui_dy(c, 0), rui_x(c, 0)));
}

void rui_grad_transpose(rui_grad *c)
{
    uint32_t n;
    const int64_t *perm = ru_node_ints(&c->n, RU_ATTR_perm, &n);
    int64_t inverse[RU_RANK_MAX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        inverse[perm[i] < 0 ? perm[i] + (int64_t)n : perm[i]] = (int64_t)i;
    }
    ru_attr attrs[2] = {RU_AIS(perm, inverse, n), RU_A_END};
    rui_give(c, 0,
             ru_build_op1(&c->b, RU_OP_Transpose, rui_dy(c, 0), perm != NULL ? attrs : attrs + 1));
}

void rui_grad_expand(rui_grad *c)
{
    rui_give_reduced(c, 0, rui_dy(c, 0));
}

/* i64 list of the sizes along `axis` of `n` values; constant when all are numbers. */
static vid sizes_along(rui_grad *c, const vid *v, uint32_t n, int64_t axis)
{
    vid parts[64];
    int64_t sizes[64];
    bool numbers = true;
    if (n > RU_ARRAY_LEN(parts)) {
        rui_no_gradient(c, "more than 64 parts have no gradient");
        return (vid){0};
    }
    for (uint32_t k = 0; k < n; k++) {
        sizes[k] = rui_type(c, v[k]).dims[axis];
        numbers = numbers && sizes[k] >= 0;
    }
    if (numbers) {
        return ru_build_const_i64s(&c->b, sizes, n);
    }
    for (uint32_t k = 0; k < n; k++) {
        parts[k] = ru_build_op1(&c->b, RU_OP_Shape, v[k],
                                (ru_attr[]){RU_AI(start, axis), RU_AI(end, axis + 1), RU_A_END});
    }
    vid out;
    ru_build_node(&c->b, RU_OP_Concat, parts, n, (ru_attr[]){RU_AI(axis, 0), RU_A_END}, &out, 1);
    return out;
}

static int64_t axis_of(const rui_grad *c, uint32_t rank)
{
    int64_t axis = ru_node_int(&c->n, RU_ATTR_axis, 0);
    return axis < 0 ? axis + (int64_t)rank : axis;
}

void rui_grad_concat(rui_grad *c)
{
    int64_t axis = axis_of(c, rui_type(c, rui_dy(c, 0)).rank);
    vid sizes = sizes_along(c, c->n.in, c->n.n_in, axis);
    vid out[64];
    if (c->b.status != RU_OK) {
        return;
    }
    ru_build_node(&c->b, RU_OP_Split, (vid[]){rui_dy(c, 0), sizes}, 2,
                  (ru_attr[]){RU_AI(axis, axis), RU_A_END}, out, c->n.n_in);
    for (uint32_t k = 0; k < c->n.n_in; k++) {
        rui_give(c, k, out[k]);
    }
}

void rui_grad_split(rui_grad *c)
{
    vid parts[64];
    if (c->n.n_out > RU_ARRAY_LEN(parts)) {
        rui_no_gradient(c, "more than 64 parts have no gradient");
        return;
    }
    for (uint32_t k = 0; k < c->n.n_out; k++) {
        parts[k] = rui_dy(c, k);
        if (parts[k].v == 0) {
            vid y = rui_y(c, k).v != 0 ? rui_y(c, k) : rui_force_output(c, k);
            parts[k] = rui_zeros_like(c, y);
        }
    }
    int64_t axis = axis_of(c, rui_type(c, rui_x(c, 0)).rank);
    vid out;
    ru_build_node(&c->b, RU_OP_Concat, parts, c->n.n_out, (ru_attr[]){RU_AI(axis, axis), RU_A_END},
                  &out, 1);
    rui_give(c, 0, out);
}

void rui_grad_slice(rui_grad *c)
{
    vid in[6] = {rui_dy(c, 0), rui_x(c, 0), rui_x(c, 1), rui_x(c, 2), rui_x(c, 3), rui_x(c, 4)};
    vid out;
    ru_build_node(&c->b, RU_OP_SliceGrad, in, c->n.n_in + 1, NULL, &out, 1);
    rui_give(c, 0, out);
}

/* PadGrad wants pads for all axes: spread those given for some. */
void rui_grad_pad(rui_grad *c)
{
    vid pads = rui_x(c, 1);
    uint32_t rank = rui_type(c, rui_x(c, 0)).rank;
    if (ru_node_has_in(&c->n, 3)) {
        const ru_graph *g = c->b.g;
        const int64_t *p = g->values[pads.v].known;
        const int64_t *axes = g->values[c->n.in[3].v].known;
        int64_t n = ru_type_count(&g->values[c->n.in[3].v].type);
        int64_t full[2 * RU_RANK_MAX] = {0};
        if (p == NULL || axes == NULL) {
            rui_no_gradient(c, "pads and axes must be constant");
            return;
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t a = axes[i] < 0 ? axes[i] + (int64_t)rank : axes[i];
            full[a] = p[i];
            full[a + (int64_t)rank] = p[i + n];
        }
        pads = ru_build_const_i64s(&c->b, full, 2 * rank);
    }
    rui_give(c, 0, rui_op_same(c, RU_OP_PadGrad, (vid[]){rui_dy(c, 0), pads, rui_x(c, 0)}, 3));
}

void rui_grad_resize(rui_grad *c)
{
    vid in[5] = {rui_dy(c, 0), rui_x(c, 0)};
    for (uint32_t k = 1; k < 4; k++) {
        in[k + 1] = ru_node_has_in(&c->n, k) ? rui_x(c, k) : (vid){0};
    }
    rui_give(c, 0, rui_op_same(c, RU_OP_ResizeGrad, in, 5));
}

/* -- gathering and scattering ------------------------------------------------------------------ */

static void gather_rule(rui_grad *c, ru_op op)
{
    vid in[3] = {rui_dy(c, 0), rui_x(c, 1), rui_x(c, 0)};
    rui_give(c, 0, rui_op_same(c, op, in, 3));
}

void rui_grad_gather(rui_grad *c)
{
    gather_rule(c, RU_OP_GatherGrad);
}

void rui_grad_gatherelements(rui_grad *c)
{
    gather_rule(c, RU_OP_GatherElementsGrad);
}

void rui_grad_gathernd(rui_grad *c)
{
    gather_rule(c, RU_OP_GatherNDGrad);
}

/* Each element went to one place of the flat output. */
void rui_grad_maxunpool(rui_grad *c)
{
    int64_t flat = -1;
    vid dy = ru_build_op2(&c->b, RU_OP_Reshape, rui_dy(c, 0), ru_build_const_i64s(&c->b, &flat, 1),
                          NULL);
    rui_give(c, 0, ru_build_op2(&c->b, RU_OP_Gather, dy, rui_x(c, 1), NULL));
}

/* The chosen values' gradient goes back to where they stood. */
void rui_grad_topk(rui_grad *c)
{
    int64_t axis = ru_node_int(&c->n, RU_ATTR_axis, -1);
    if (rui_dy(c, 0).v != 0) {
        rui_give(c, 0,
                 ru_build_op3(&c->b, RU_OP_GatherElementsGrad, rui_dy(c, 0), rui_y(c, 1),
                              rui_x(c, 0), (ru_attr[]){RU_AI(axis, axis), RU_A_END}));
    }
}

/* y = data with updates at indices: data gets dy outside, updates get dy there. */
static void scatter_rule(rui_grad *c, ru_op gather, ru_op scatter)
{
    const char *how = ru_node_str(&c->n, RU_ATTR_reduction, "none");
    bool add = strcmp(how, "add") == 0;
    ru_attr attrs[2] = {RU_A_END, RU_A_END};
    if (gather == RU_OP_GatherElements) {
        attrs[0] = (ru_attr)RU_AI(axis, ru_node_int(&c->n, RU_ATTR_axis, 0));
    }
    if (!add && strcmp(how, "none") != 0) {
        rui_no_gradient(c, "a reduction other than none and add has no gradient");
        return;
    }
    vid dy = rui_dy(c, 0);
    if (rui_want(c, 0)) {
        vid d = dy;
        if (!add) {
            d = ru_build_op3(&c->b, scatter, dy, rui_x(c, 1), rui_zeros_like(c, rui_x(c, 2)),
                             attrs);
        }
        rui_give(c, 0, d);
    }
    if (rui_want(c, 2)) {
        rui_give(c, 2, ru_build_op2(&c->b, gather, dy, rui_x(c, 1), attrs));
    }
}

void rui_grad_scatterelements(rui_grad *c)
{
    scatter_rule(c, RU_OP_GatherElements, RU_OP_ScatterElements);
}

void rui_grad_scatternd(rui_grad *c)
{
    scatter_rule(c, RU_OP_GatherND, RU_OP_ScatterND);
}

/* -- rearranging ------------------------------------------------------------------------------- */

void rui_grad_spacetodepth(rui_grad *c)
{
    rui_give(c, 0, rui_op_same(c, RU_OP_DepthToSpace, (vid[]){rui_dy(c, 0)}, 1));
}

/* DCR is the inverse of SpaceToDepth; CRD keeps the block axes inside the channel:
 * dy [N,C,H,b,W,b] -> [N,C,b,b,H,W]. */
void rui_grad_depthtospace(rui_grad *c)
{
    vid dy = rui_dy(c, 0);
    int64_t b = ru_node_int(&c->n, RU_ATTR_blocksize, 1);
    if (strcmp(ru_node_str(&c->n, RU_ATTR_mode, "DCR"), "CRD") != 0) {
        rui_give(c, 0,
                 ru_build_op1(&c->b, RU_OP_SpaceToDepth, dy,
                              (ru_attr[]){RU_AI(blocksize, b), RU_A_END}));
        return;
    }
    ru_type x = rui_type(c, rui_x(c, 0));
    if (x.dims[2] < 0 || x.dims[3] < 0 || x.dims[1] < 0) {
        rui_no_gradient(c, "only the batch may be symbolic");
        return;
    }
    int64_t shape[6] = {-1, x.dims[1] / (b * b), x.dims[2], b, x.dims[3], b};
    vid d = rui_op2(c, RU_OP_Reshape, dy, ru_build_const_i64s(&c->b, shape, 6));
    int64_t perm[6] = {0, 1, 3, 5, 2, 4};
    d = ru_build_op1(&c->b, RU_OP_Transpose, d, (ru_attr[]){RU_AIS(perm, perm, 6), RU_A_END});
    rui_give(c, 0, rui_reshape_like(c, d, rui_x(c, 0)));
}

/* Sum over the copies: view dy as [r0,d0,r1,d1,...] (only for axes that repeat) and sum the r's. */
void rui_grad_tile(rui_grad *c)
{
    ru_type x = rui_type(c, rui_x(c, 0));
    ru_type y = rui_type(c, rui_y(c, 0));
    int64_t shape[2 * RU_RANK_MAX];
    int64_t axes[RU_RANK_MAX];
    uint32_t n = 0;
    uint32_t n_axes = 0;
    uint32_t open = 0;
    for (uint32_t i = 0; i < x.rank; i++) {
        int64_t r = ru_dim_div(y.dims[i], x.dims[i]);
        if (r == RU_DIM_UNKNOWN || r < 0) {
            rui_no_gradient(c, "the repeats must be constant");
            return;
        }
        if (r != 1) {
            axes[n_axes++] = n;
            shape[n++] = r;
        }
        open += x.dims[i] < 0 ? 1 : 0;
        shape[n++] = x.dims[i] < 0 ? -1 : x.dims[i];
    }
    if (n > RU_RANK_MAX || open > 1) {
        rui_no_gradient(c, "too many repeated or symbolic axes");
        return;
    }
    vid d = rui_dy(c, 0);
    if (n_axes > 0) {
        d = rui_op2(c, RU_OP_Reshape, d, ru_build_const_i64s(&c->b, shape, n));
        d = ru_build_op1(&c->b, RU_OP_ReduceSum, d,
                         (ru_attr[]){RU_AIS(axes, axes, n_axes), RU_AI(keepdims, 0), RU_A_END});
    }
    rui_give(c, 0, d);
}

void rui_grad_trilu(rui_grad *c)
{
    vid in[2] = {rui_dy(c, 0), rui_x(c, 1)};
    rui_give(c, 0, rui_op_same(c, RU_OP_Trilu, in, c->n.n_in));
}
