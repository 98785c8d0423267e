/* Indexed reads and writes: gather, scatter, one-hot, compress, and the gradients of gathers. */
#include "exec/cpu/ref/ref_impl.h"

#include <string.h>

#include "world/graph/nms.h"

static size_t element(const ru_tensor *t)
{
    return (size_t)ru_dtype_bytes(t->type.dtype);
}

static void move(const ru_tensor *to, int64_t at, const ru_tensor *from, int64_t from_at, int64_t n)
{
    size_t size = element(to);
    memcpy((uint8_t *)to->data + (size_t)at * size,
           (const uint8_t *)from->data + (size_t)from_at * size, (size_t)n * size);
}

/* Indices of input k with negatives counted from `dim`. Errors: RU_E_DATA outside -dim .. dim-1. */
static ru_status load_indices(const ru_ref_call *c, uint32_t k, int64_t dim, int64_t **out,
                              ru_err *err)
{
    RU_TRY(rui_ref_in_ints(c, k, out, err));
    int64_t n = rui_ref_count(&c->in[k].type);
    for (int64_t i = 0; i < n; i++) {
        int64_t x = (*out)[i];
        if (x < -dim || x >= dim) {
            return RU_FAIL(err, RU_E_DATA, "%s: index %lld (position %lld) is outside %lld .. %lld",
                           ru_op_get(c->node->op)->name, (long long)x, (long long)i,
                           (long long)-dim, (long long)(dim - 1));
        }
        (*out)[i] = x < 0 ? x + dim : x;
    }
    return RU_OK;
}

static ru_status axis_of(const ru_ref_call *c, const ru_type *t, uint32_t *axis, ru_err *err)
{
    return rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, 0), t->rank, axis, err);
}

/* -- Gather ----------------------------------------------------------------------------- */

ru_status rui_ref_Gather(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    uint32_t axis;
    RU_TRY(axis_of(c, t, &axis, err));
    rui_axis3 a = rui_ref_axis3(t, axis);
    int64_t *index, n = rui_ref_count(&c->in[1].type);
    RU_TRY(load_indices(c, 1, a.dim, &index, err));
    for (int64_t o = 0; o < a.outer; o++) {
        for (int64_t k = 0; k < n; k++) {
            move(&c->out[0], (o * n + k) * a.inner, &c->in[0], (o * a.dim + index[k]) * a.inner,
                 a.inner);
        }
    }
    return RU_OK;
}

/* (dy, indices, x_like) -> dx */
ru_status rui_ref_GatherGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->out[0].type;
    uint32_t axis;
    RU_TRY(axis_of(c, t, &axis, err));
    rui_axis3 a = rui_ref_axis3(t, axis);
    int64_t *index, n = rui_ref_count(&c->in[1].type);
    double *dy, *dx;
    RU_TRY(load_indices(c, 1, a.dim, &index, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(t), &dx, err));
    for (int64_t o = 0; o < a.outer; o++) {
        for (int64_t k = 0; k < n; k++) {
            for (int64_t i = 0; i < a.inner; i++) {
                dx[(o * a.dim + index[k]) * a.inner + i] += dy[(o * n + k) * a.inner + i];
            }
        }
    }
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}

/* -- GatherElements --------------------------------------------------------------------- */

/* The offset in `t` that element `w` of the indices points at. */
static int64_t element_offset(const rui_walk *w, const int64_t *strides, uint32_t axis,
                              int64_t index)
{
    return rui_walk_dot(w, strides) + (index - w->at[axis]) * strides[axis];
}

ru_status rui_ref_GatherElements(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type, *it = &c->in[1].type;
    uint32_t axis;
    int64_t strides[RU_RANK_MAX], *index;
    RU_TRY(axis_of(c, t, &axis, err));
    RU_TRY(load_indices(c, 1, t->dims[axis], &index, err));
    rui_ref_strides(t, strides);
    rui_walk w;
    rui_walk_init(&w, it->dims, it->rank);
    for (int64_t i = 0; i < rui_ref_count(it); i++) {
        move(&c->out[0], i, &c->in[0], element_offset(&w, strides, axis, index[i]), 1);
        rui_walk_next(&w);
    }
    return RU_OK;
}

/* (dy, indices, x_like) -> dx */
ru_status rui_ref_GatherElementsGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->out[0].type, *it = &c->in[1].type;
    uint32_t axis;
    int64_t strides[RU_RANK_MAX], *index;
    double *dy, *dx;
    RU_TRY(axis_of(c, t, &axis, err));
    RU_TRY(load_indices(c, 1, t->dims[axis], &index, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(t), &dx, err));
    rui_ref_strides(t, strides);
    rui_walk w;
    rui_walk_init(&w, it->dims, it->rank);
    for (int64_t i = 0; i < rui_ref_count(it); i++) {
        dx[element_offset(&w, strides, axis, index[i])] += dy[i];
        rui_walk_next(&w);
    }
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}

/* -- GatherND --------------------------------------------------------------------------- */

typedef struct nd_plan {
    int64_t *offset; /* [n] start of the slice each index tuple names, in elements */
    int64_t n, slice;
} nd_plan;

/* Tuples of input `k_index` into a tensor of type `t`; the first batch_dims axes go in step. */
static ru_status nd_plan_make(const ru_ref_call *c, uint32_t k_index, const ru_type *t, nd_plan *p,
                              ru_err *err)
{
    const ru_type *it = &c->in[k_index].type;
    int64_t batch_dims = ru_node_int(c->node, RU_ATTR_batch_dims, 0);
    if (it->rank == 0 || batch_dims < 0 || batch_dims >= (int64_t)it->rank) {
        return RU_FAIL(err, RU_E_DATA, "%s: %lld batch dimensions of indices of rank %u",
                       ru_op_get(c->node->op)->name, (long long)batch_dims, it->rank);
    }
    uint32_t b = (uint32_t)batch_dims;
    int64_t depth = it->dims[it->rank - 1], strides[RU_RANK_MAX], *index;
    if (b + (uint64_t)depth > t->rank) {
        return RU_FAIL(err, RU_E_DATA, "%s: tuples of %lld indices into a rank of %u",
                       ru_op_get(c->node->op)->name, (long long)depth, t->rank);
    }
    uint32_t used = b + (uint32_t)depth;
    rui_ref_strides(t, strides);
    p->n = rui_ref_span(it, 0, it->rank - 1);
    p->slice = rui_ref_span(t, used, t->rank);
    int64_t batches = rui_ref_span(it, 0, b), per = batches > 0 ? p->n / batches : 0;
    int64_t batch_size = rui_ref_span(t, b, t->rank);
    RU_TRY(rui_ref_in_ints(c, k_index, &index, err));
    RU_TRY(rui_ref_zero_ints(c, p->n, &p->offset, err));
    for (int64_t i = 0; i < p->n; i++) {
        p->offset[i] = i / per * batch_size;
        for (uint32_t d = b; d < used; d++) {
            int64_t x = index[i * depth + (int64_t)(d - b)], dim = t->dims[d];
            if (x < -dim || x >= dim) {
                return RU_FAIL(err, RU_E_DATA, "%s: index %lld of axis %u is outside %lld .. %lld",
                               ru_op_get(c->node->op)->name, (long long)x, d, (long long)-dim,
                               (long long)(dim - 1));
            }
            p->offset[i] += (x < 0 ? x + dim : x) * strides[d];
        }
    }
    return RU_OK;
}

ru_status rui_ref_GatherND(const ru_ref_call *c, ru_err *err)
{
    nd_plan p;
    RU_TRY(nd_plan_make(c, 1, &c->in[0].type, &p, err));
    for (int64_t i = 0; i < p.n; i++) {
        move(&c->out[0], i * p.slice, &c->in[0], p.offset[i], p.slice);
    }
    return RU_OK;
}

/* (dy, indices, x_like) -> dx */
ru_status rui_ref_GatherNDGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->out[0].type;
    nd_plan p;
    double *dy, *dx;
    RU_TRY(nd_plan_make(c, 1, t, &p, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(t), &dx, err));
    for (int64_t i = 0; i < p.n; i++) {
        for (int64_t k = 0; k < p.slice; k++) {
            dx[p.offset[i] + k] += dy[i * p.slice + k];
        }
    }
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}

/* -- scatters: replace, or combine with what is there ----------------------------------- */

typedef enum scatter_kind { PUT, PUT_ADD, PUT_MUL, PUT_MAX, PUT_MIN } scatter_kind;

static ru_status scatter_kind_of(const ru_node *n, scatter_kind *out, ru_err *err)
{
    static const char *const words[] = {"none", "add", "mul", "max", "min"};
    const char *word = ru_node_str(n, RU_ATTR_reduction, "none");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        if (strcmp(word, words[k]) == 0) {
            *out = (scatter_kind)k;
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_UNSUPPORTED, "%s: reduction '%s' is none of none, add, mul, max, min",
                   ru_op_get(n->op)->name, word);
}

static double put_float(double old, double x, scatter_kind kind)
{
    switch (kind) {
    case PUT:
        return x;
    case PUT_ADD:
        return old + x;
    case PUT_MUL:
        return old * x;
    case PUT_MAX:
        return x > old ? x : old;
    case PUT_MIN:
        return x < old ? x : old;
    }
    return x;
}

static int64_t put_int(int64_t old, int64_t x, bool is_u64, scatter_kind kind)
{
    bool below = is_u64 ? (uint64_t)x < (uint64_t)old : x < old;
    switch (kind) {
    case PUT:
        return x;
    case PUT_ADD:
        return (int64_t)((uint64_t)old + (uint64_t)x);
    case PUT_MUL:
        return (int64_t)((uint64_t)old * (uint64_t)x);
    case PUT_MAX:
        return below ? old : x;
    case PUT_MIN:
        return below ? x : old;
    }
    return x;
}

/* Copy in[0], then put updates[i] at place[i], one after the other; sums stay in double to the end.
 */
static ru_status scatter(const ru_ref_call *c, const int64_t *place, int64_t n, ru_err *err)
{
    scatter_kind kind = PUT;
    RU_TRY(scatter_kind_of(c->node, &kind, err));
    if (rui_ref_is_float(c->in[0].type.dtype)) {
        double *x, *u;
        RU_TRY(rui_ref_in(c, 0, &x, err));
        RU_TRY(rui_ref_in(c, 2, &u, err));
        for (int64_t i = 0; i < n; i++) {
            x[place[i]] = put_float(x[place[i]], u[i], kind);
        }
        rui_ref_store(&c->out[0], x);
        return RU_OK;
    }
    int64_t *x, *u;
    RU_TRY(rui_ref_in_ints(c, 0, &x, err));
    RU_TRY(rui_ref_in_ints(c, 2, &u, err));
    for (int64_t i = 0; i < n; i++) {
        x[place[i]] = put_int(x[place[i]], u[i], c->in[0].type.dtype == RU_U64, kind);
    }
    rui_ref_store_ints(&c->out[0], x);
    return RU_OK;
}

ru_status rui_ref_ScatterElements(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type, *it = &c->in[1].type;
    uint32_t axis;
    int64_t strides[RU_RANK_MAX], *index, n = rui_ref_count(it);
    RU_TRY(axis_of(c, t, &axis, err));
    RU_TRY(load_indices(c, 1, t->dims[axis], &index, err));
    rui_ref_strides(t, strides);
    rui_walk w;
    rui_walk_init(&w, it->dims, it->rank);
    for (int64_t i = 0; i < n; i++) {
        index[i] = element_offset(&w, strides, axis, index[i]);
        rui_walk_next(&w);
    }
    return scatter(c, index, n, err);
}

ru_status rui_ref_ScatterND(const ru_ref_call *c, ru_err *err)
{
    nd_plan p;
    int64_t *place;
    RU_TRY(nd_plan_make(c, 1, &c->in[0].type, &p, err));
    RU_TRY(rui_ref_zero_ints(c, p.n * p.slice, &place, err));
    for (int64_t i = 0; i < p.n * p.slice; i++) {
        place[i] = p.offset[i / p.slice] + i % p.slice;
    }
    return scatter(c, place, p.n * p.slice, err);
}

/* -- one-hot, compress ------------------------------------------------------------------ */

/* Indices outside -depth .. depth-1 give a line of off values. */
ru_status rui_ref_OneHot(const ru_ref_call *c, ru_err *err)
{
    const ru_type *y = &c->out[0].type;
    uint32_t axis;
    int64_t *index, *depth;
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, -1), y->rank, &axis, err));
    RU_TRY(rui_ref_in_ints(c, 0, &index, err));
    RU_TRY(rui_ref_in_ints(c, 1, &depth, err));
    rui_axis3 a = rui_ref_axis3(y, axis);
    for (int64_t i = 0; i < a.outer * a.dim * a.inner; i++) {
        int64_t inner = i % a.inner, k = i / a.inner % a.dim, outer = i / a.inner / a.dim;
        int64_t want = index[outer * a.inner + inner];
        want = want < 0 ? want + depth[0] : want;
        move(&c->out[0], i, &c->in[2], want == k ? 1 : 0, 1);
    }
    return RU_OK;
}

/* The output's size was fixed before; only what the condition names is copied. */
ru_status rui_ref_Compress(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    const uint8_t *keep = c->in[1].data;
    int64_t n = rui_ref_count(&c->in[1].type), room = rui_ref_count(&c->out[0].type), at = 0;
    rui_axis3 a = {1, rui_ref_count(t), 1};
    if (ru_node_attr(c->node, RU_ATTR_axis) != NULL) {
        uint32_t axis;
        RU_TRY(axis_of(c, t, &axis, err));
        a = rui_ref_axis3(t, axis);
    }
    for (int64_t o = 0; o < a.outer; o++) {
        for (int64_t k = 0; k < a.dim && k < n; k++) {
            if (keep[k] == 0) {
                continue;
            }
            if (at + a.inner > room) {
                return RU_FAIL(
                    err, RU_E_DATA,
                    "Compress: the condition keeps more elements than the %lld of the output",
                    (long long)room);
            }
            move(&c->out[0], at, &c->in[0], (o * a.dim + k) * a.inner, a.inner);
            at += a.inner;
        }
    }
    return RU_OK;
}

/* The elements of input k as f32, its type with them; NULL: absent. */
static ru_status as_f32(const ru_ref_call *c, uint32_t k, ru_type *t, const void **out, ru_err *err)
{
    double *x;
    int64_t n = rui_ref_count(&c->in[k].type);
    float *f = ru_arena_alloc(c->scratch, n * (int64_t)sizeof *f, 4);
    RU_TRY(rui_ref_in(c, k, &x, err));
    if (f == NULL) {
        return RU_FAIL(err, RU_E_MEM, "NonMaxSuppression: no scratch");
    }
    for (int64_t i = 0; i < n; i++) {
        f[i] = (float)x[i];
    }
    *t = c->in[k].type;
    t->dtype = RU_F32;
    *out = f;
    return RU_OK;
}

/* The output's size was fixed before by the same function. */
ru_status rui_ref_NonMaxSuppression(const ru_ref_call *c, ru_err *err)
{
    ru_type types[5];
    const ru_type *type[5] = {NULL};
    const void *data[5] = {NULL};
    for (uint32_t k = 0; k < 5; k++) {
        if (rui_ref_has(c, k) && k != 2) {
            RU_TRY(as_f32(c, k, &types[k], &data[k], err));
            type[k] = &types[k];
        } else if (rui_ref_has(c, k)) {
            type[k] = &c->in[k].type;
            data[k] = c->in[k].data;
        }
    }
    ru_nms_in in;
    int64_t *rows, n, room = c->out[0].type.dims[0];
    if (!ru_nms_arguments(c->node, type, data, &in)) {
        return RU_FAIL(err, RU_E_DATA, "NonMaxSuppression: boxes, scores and limits do not fit");
    }
    RU_TRY(ru_nms_select(&in, c->scratch, &rows, &n, err));
    if (n != room) {
        return RU_FAIL(
            err, RU_E_DATA,
            "NonMaxSuppression: %lld boxes are selected, but the output has room for %lld",
            (long long)n, (long long)room);
    }
    rui_ref_store_ints(&c->out[0], rows);
    return RU_OK;
}
