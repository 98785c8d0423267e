/* Shape rules of ops that read or write what indices, conditions or boxes name. */
#include "world/graph/infer_impl.h"

#include <string.h>

#include "world/graph/nms.h"
#include "world/graph/unique.h"

ru_status rui_shape_gather(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const ru_type *idx = rui_in(c, 1);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 0), x->rank, &axis));
    if (x->rank + idx->rank - 1 > RU_RANK_MAX || !ru_dtype_is_int(idx->dtype)) {
        return rui_infer_fail(c, "indices must be integers and the result of rank <= %d",
                              RU_RANK_MAX);
    }
    ru_type t = {.dtype = x->dtype};
    for (uint32_t i = 0; i < x->rank; i++) {
        for (uint32_t j = 0; i == axis && j < idx->rank; j++) {
            t.dims[t.rank++] = idx->dims[j];
        }
        if (i != axis) {
            t.dims[t.rank++] = x->dims[i];
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* Indices of ranks of the data reach no further than it, but along the axis. */
static ru_status elements_check(const rui_infer *c, const ru_type *x, const ru_type *idx,
                                uint32_t axis)
{
    if (idx->rank != x->rank) {
        return rui_infer_fail(c, "indices have rank %u, expected the %u of the data", idx->rank,
                              x->rank);
    }
    for (uint32_t i = 0; i < x->rank; i++) {
        if (i != axis && idx->dims[i] > x->dims[i] && x->dims[i] >= 0) {
            return rui_infer_fail(c, "axis %u of the indices is %lld, the data's %lld", i,
                                  (long long)idx->dims[i], (long long)x->dims[i]);
        }
    }
    if (x->dims[axis] == 0 && ru_type_count(idx) > 0) {
        return rui_infer_fail(c, "axis %u of the data is empty: no index names an element", axis);
    }
    return RU_OK;
}

ru_status rui_shape_gatherelements(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    ru_type t = *rui_in(c, 1);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 0), x->rank, &axis));
    if (t.rank != x->rank || !ru_dtype_is_int(t.dtype)) {
        return rui_infer_fail(c, "indices must be integers of the input's rank");
    }
    RU_TRY(elements_check(c, x, &t, axis));
    t.dtype = x->dtype;
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_scatterelements(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0), *idx = rui_in(c, 1);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 0), x->rank, &axis));
    RU_TRY(elements_check(c, x, idx, axis));
    rui_set_out(c, 0, x);
    return RU_OK;
}

/* data [...], indices [.., depth], updates [..] + what `depth` indices leave of the data's shape */
ru_status rui_shape_scatternd(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0), *idx = rui_in(c, 1), *u = rui_in(c, 2);
    int64_t depth = idx->dims[idx->rank - 1];
    if (depth < 1 || depth > (int64_t)x->rank) {
        return rui_infer_fail(c, "the last axis of the indices is %lld, expected 1..%u",
                              (long long)depth, x->rank);
    }
    ru_type want = {.dtype = x->dtype};
    bool fits = idx->rank - 1 + x->rank - (uint32_t)depth == u->rank;
    for (uint32_t i = 0; fits && i + 1 < idx->rank; i++) {
        want.dims[want.rank++] = idx->dims[i];
    }
    for (uint32_t i = (uint32_t)depth; fits && i < x->rank; i++) {
        want.dims[want.rank++] = x->dims[i];
    }
    for (uint32_t i = 0; fits && i < u->rank; i++) {
        fits = want.dims[i] == u->dims[i] || ru_dim_is_symbolic(want.dims[i]) ||
               ru_dim_is_symbolic(u->dims[i]);
    }
    for (uint32_t i = 0; i < (uint32_t)depth; i++) {
        if (x->dims[i] == 0 && ru_type_count(idx) > 0) {
            return rui_infer_fail(c, "axis %u of the data is empty: no index names a place", i);
        }
    }
    if (!fits) {
        return rui_infer_fail(c,
                              "input 2, the updates, must have the shape of the indices without "
                              "its last axis and then axes %lld.. of the data",
                              (long long)depth);
    }
    rui_set_out(c, 0, x);
    return RU_OK;
}

ru_status rui_shape_reversesequence(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0), *lens = rui_in(c, 1);
    int64_t batch = ru_node_int(&c->n, RU_ATTR_batch_axis, 1);
    int64_t time = ru_node_int(&c->n, RU_ATTR_time_axis, 0);
    if (batch == time) {
        return rui_infer_fail(c, "batch_axis and time_axis are both %lld", (long long)batch);
    }
    if (lens->dims[0] >= 0 && x->dims[batch] >= 0 && lens->dims[0] != x->dims[batch]) {
        return rui_infer_fail(c, "%lld lengths do not fit a batch of %lld",
                              (long long)lens->dims[0], (long long)x->dims[batch]);
    }
    rui_set_out(c, 0, x);
    return RU_OK;
}

ru_status rui_shape_gathernd(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const ru_type *idx = rui_in(c, 1);
    int64_t b = ru_node_int(&c->n, RU_ATTR_batch_dims, 0);
    int64_t depth = idx->rank > 0 ? idx->dims[idx->rank - 1] : -1;
    if (b < 0 || b >= (int64_t)idx->rank || depth < 1 || depth > (int64_t)x->rank - b) {
        return rui_infer_fail(c, "the last axis of the indices does not fit the input");
    }
    for (uint32_t i = 0; i < (uint32_t)b; i++) {
        if (idx->dims[i] >= 0 && x->dims[i] >= 0 && idx->dims[i] != x->dims[i]) {
            return rui_infer_fail(c, "batch axis %u is %lld in the indices, %lld in the data", i,
                                  (long long)idx->dims[i], (long long)x->dims[i]);
        }
    }
    int64_t rank = (int64_t)idx->rank - 1 + (int64_t)x->rank - depth - b;
    if (rank > RU_RANK_MAX) {
        return rui_infer_fail(c, "the result would have more than %d axes", RU_RANK_MAX);
    }
    ru_type t = {.dtype = x->dtype};
    for (uint32_t i = 0; i + 1 < idx->rank; i++) {
        t.dims[t.rank++] = idx->dims[i];
    }
    for (uint32_t i = (uint32_t)(b + depth); i < x->rank; i++) {
        t.dims[t.rank++] = x->dims[i];
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_compress(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    const ru_attr *a = ru_node_attr(&c->n, RU_ATTR_axis);
    uint32_t axis = 0;
    if (a == NULL) {
        t.rank = 1;
    } else {
        RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 0), t.rank, &axis));
    }
    const ru_type *mask = rui_in(c, 1);
    int64_t along = a != NULL ? t.dims[axis] : ru_type_count(rui_in(c, 0));
    uint32_t n;
    const int64_t *keep = rui_known_numbers(c, 1, &n);
    const uint8_t *bytes = rui_const_data(c, 1);
    if (mask->dtype != RU_BOOL || mask->rank != 1 || (along >= 0 && mask->dims[0] > along)) {
        return rui_infer_fail(c, "the condition must be a list of at most %lld booleans",
                              (long long)along);
    }
    if (keep == NULL && bytes == NULL) {
        RU_TRY(rui_dim_fresh(c, 0, axis, &t.dims[axis]));
    } else {
        t.dims[axis] = 0;
        for (int64_t i = 0; i < mask->dims[0]; i++) {
            t.dims[axis] += (keep != NULL ? keep[i] != 0 : bytes[i] != 0) ? 1 : 0;
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* Elements of constant data that are not 0; NaN is not, and neither is a sign without number. */
static int64_t count_nonzero(const ru_type *t, const uint8_t *data)
{
    int64_t n = 0, bytes = ru_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < ru_type_count(t); i++) {
        uint64_t x = 0;
        memcpy(&x, data + i * bytes, (size_t)bytes);
        bool sign = ru_dtype_is_float(t->dtype) && x == UINT64_C(1) << (8 * bytes - 1);
        n += x != 0 && !sign ? 1 : 0;
    }
    return n;
}

ru_status rui_shape_nonzero(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    ru_type t = {.dtype = RU_I64, .rank = 2, .dims = {x->rank > 0 ? x->rank : 1}};
    uint32_t n;
    const int64_t *known = rui_known_numbers(c, 0, &n);
    const void *data = rui_const_data(c, 0);
    if (data != NULL) {
        t.dims[1] = count_nonzero(x, data);
    } else if (known != NULL) {
        for (uint32_t i = 0; i < n; i++) {
            t.dims[1] += known[i] != 0 ? 1 : 0;
        }
    } else if (ru_type_is_concrete(x) && ru_type_count(x) == 0) {
        t.dims[1] = 0;
    } else {
        RU_TRY(rui_dim_fresh(c, 0, 1, &t.dims[1]));
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_unique(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const void *data = rui_const_data(c, 0);
    ru_type t = *x, list = {.dtype = RU_I64, .rank = 1};
    bool whole = ru_node_attr(&c->n, RU_ATTR_axis) == NULL;
    uint32_t axis = 0;
    if (whole) {
        t.rank = 1;
    } else {
        RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 0), t.rank, &axis));
    }
    int64_t all = whole ? ru_type_count(x) : x->dims[axis];
    if (data != NULL && ru_type_count(x) > 0) {
        ru_unique u;
        ru_arena_mark mark = ru_arena_mark_get(c->g->arena);
        RU_TRY(ru_unique_find(&c->n, x, data, c->g->arena, &u, c->err));
        ru_arena_rewind(c->g->arena, mark);
        t.dims[axis] = u.n;
    } else if (ru_type_is_concrete(x) && ru_type_count(x) == 0) {
        t.dims[axis] = all > 0 ? 1 : 0;
    } else {
        RU_TRY(rui_dim_fresh(c, 0, axis, &t.dims[axis]));
    }
    list.dims[0] = t.dims[axis];
    rui_set_out(c, 0, &t);
    rui_set_out(c, 1, &list);
    rui_set_out(c, 3, &list);
    list.dims[0] = all;
    rui_set_out(c, 2, &list);
    return all != RU_DIM_UNKNOWN ? RU_OK : rui_infer_fail(c, "its size is not known");
}

/* The number of rows is what the boxes say: known when all inputs are constant. */
ru_status rui_shape_nonmaxsuppression(const rui_infer *c)
{
    const ru_type *type[5] = {NULL};
    const void *data[5] = {NULL};
    bool constant = true;
    for (uint32_t k = 0; k < 5; k++) {
        type[k] = rui_in(c, k);
        const ru_value *v = &c->g->values[ru_node_has_in(&c->n, k) ? c->n.in[k].v : 0];
        data[k] = v->kind == RU_VALUE_CONST ? v->data : NULL;
        constant = constant && (type[k] == NULL || data[k] != NULL);
    }
    if (type[0]->rank != 3 || type[1]->rank != 3) {
        return rui_infer_fail(c,
                              "expected boxes [batch, boxes, 4], scores [batch, classes, boxes]");
    }
    ru_type t = {.dtype = RU_I64, .rank = 2, .dims = {0, 3}};
    if (constant) {
        ru_nms_in in;
        int64_t *rows;
        if (!ru_nms_arguments(&c->n, type, data, &in)) {
            return rui_infer_fail(c, "boxes, scores and limits do not fit each other");
        }
        ru_arena_mark mark = ru_arena_mark_get(c->g->arena);
        RU_TRY(ru_nms_select(&in, c->g->arena, &rows, &t.dims[0], c->err));
        ru_arena_rewind(c->g->arena, mark);
    } else {
        RU_TRY(rui_dim_fresh(c, 0, 0, &t.dims[0]));
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}
