/* Shape rules of ops that read or write what indices, conditions or boxes name. */
#include "world/infer_impl.h"

#include <string.h>

#include "world/nms.h"
#include "world/unique.h"

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

ru_status rui_shape_gatherelements(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    ru_type t = *rui_in(c, 1);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 0), x->rank, &axis));
    if (t.rank != x->rank || !ru_dtype_is_int(t.dtype)) {
        return rui_infer_fail(c, "indices must be integers of the input's rank");
    }
    t.dtype = x->dtype;
    rui_set_out(c, 0, &t);
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
