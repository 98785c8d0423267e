/* Grouped convolutions of one spatial dimension as convolutions of two, the first of size 1:
 * kernels for groups exist for images only (a depthwise one of 128 x 100: 1 GFLOP/s against 40).
 * After fusing, so that bias, residual and activation come along. */
#include "world/pass/rewrite_impl.h"

static ru_value_id widened(rui_rw *rw, uint32_t i, ru_value_id v, const ru_type *t)
{
    int64_t dims[4] = {t->dims[0], t->dims[1], 1, t->dims[2]}, four = 4;
    const void *data = ru_arena_copy(rw->g.arena, dims, (int64_t)sizeof dims, 8);
    ru_value_id in[2] = {v, rui_rw_const(rw, ru_type_make(RU_I64, 1, &four), data)};
    return rui_rw_insert(rw, i, RU_OP_Reshape, in, 2, NULL, 0);
}

/* An attribute of one or two numbers with the neutral one put before each. */
static ru_attr wide_attr(rui_rw *rw, const ru_node *n, ru_attr_key key, int64_t neutral)
{
    uint32_t count = 0;
    const int64_t *was = ru_node_ints(n, key, &count);
    int64_t now[4];
    ru_attr a = {.key = key, .kind = RU_ATTR_INTS, .n = 2 * count};
    RU_CHECK(was != NULL && count >= 1 && count <= 2);
    for (uint32_t k = 0; k < count; k++) {
        now[2 * k] = neutral;
        now[2 * k + 1] = was[k];
    }
    a.u.is = ru_arena_copy(rw->g.arena, now, (int64_t)(2 * count) * 8, 8);
    return a;
}

static bool fits(const rui_rw *rw, const ru_node *n)
{
    const ru_type *x = rui_rw_type(rw, n->in[0]), *w = rui_rw_type(rw, n->in[1]);
    bool known = x->rank == 3 && w->rank == 3 && ru_type_count(x) > 0 && ru_type_count(w) > 0;
    return known && ru_node_int(n, RU_ATTR_group, 1) > 1;
}

static void widen(rui_rw *rw, uint32_t i)
{
    static const struct {
        ru_attr_key key;
        int64_t neutral;
    } keys[] = {
        {RU_ATTR_kernel_shape, 1}, {RU_ATTR_strides, 1}, {RU_ATTR_dilations, 1}, {RU_ATTR_pads, 0}};
    const ru_node n = rw->g.nodes[i];
    ru_attr more[RU_ARRAY_LEN(keys)];
    uint32_t n_more = 0, count;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(keys); k++) {
        if (ru_node_ints(&n, keys[k].key, &count) != NULL) {
            more[n_more++] = wide_attr(rw, &n, keys[k].key, keys[k].neutral);
        }
    }
    ru_attr *attrs = rui_rw_attrs(rw, &n, more, n_more, &count);
    ru_value_id in[4] = {{0}}, y = n.out[0];
    for (uint32_t k = 0; k < n.n_in && k < 4; k++) {
        in[k] =
            k == 2 || n.in[k].v == 0 ? n.in[k] : widened(rw, i, n.in[k], rui_rw_type(rw, n.in[k]));
    }
    const ru_type *t = rui_rw_type(rw, y);
    int64_t three = 3;
    const void *dims = ru_arena_copy(rw->g.arena, t->dims, 3 * (int64_t)sizeof t->dims[0], 8);
    if (rw->status != RU_OK) {
        return;
    }
    ru_value_id wide = rui_rw_insert(rw, i, n.op, in, n.n_in, attrs, count);
    ru_value_id back[2] = {wide, rui_rw_const(rw, ru_type_make(RU_I64, 1, &three), dims)};
    if (rw->status == RU_OK) {
        rui_rw_set(rw, i, RU_OP_Reshape, back, 2, NULL, 0, &y, 1);
    }
}

void rui_widen_round(rui_rw *rw)
{
    for (uint32_t i = 1; i < rw->g.n_nodes && rw->status == RU_OK; i++) {
        if (rw->g.nodes[i].op == RU_OP_Conv && fits(rw, &rw->g.nodes[i])) {
            widen(rw, i);
        }
    }
}
