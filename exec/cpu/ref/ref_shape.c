/* Shape and data movement: bytes are copied, nothing is computed. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

static size_t element(const ru_tensor *t)
{
    return (size_t)ru_dtype_bytes(t->type.dtype);
}

static ru_status copy_all(const ru_ref_call *c, ru_err *err)
{
    int64_t n = rui_ref_count(&c->in[0].type);
    if (n != rui_ref_count(&c->out[0].type)) {
        return RU_FAIL(err, RU_E_DATA, "%s: %lld elements do not fill an output of %lld",
                       ru_op_get(c->node->op)->name, (long long)n,
                       (long long)rui_ref_count(&c->out[0].type));
    }
    memcpy(c->out[0].data, c->in[0].data, (size_t)n * element(&c->in[0]));
    return RU_OK;
}

ru_status rui_ref_Reshape(const ru_ref_call *c, ru_err *err)
{
    return copy_all(c, err);
}

ru_status rui_ref_Flatten(const ru_ref_call *c, ru_err *err)
{
    return copy_all(c, err);
}

ru_status rui_ref_Squeeze(const ru_ref_call *c, ru_err *err)
{
    return copy_all(c, err);
}

ru_status rui_ref_Unsqueeze(const ru_ref_call *c, ru_err *err)
{
    return copy_all(c, err);
}

/* -- Cast: integers go to floats directly, so that 64 bits round once ------------------- */

static ru_status cast(const ru_ref_call *c)
{
    const ru_tensor *x = &c->in[0], *y = &c->out[0];
    int64_t n = rui_ref_count(&x->type);
    bool from_float = rui_ref_is_float(x->type.dtype);
    for (int64_t i = 0; i < n; i++) {
        if (from_float || x->type.dtype == RU_U64) {
            bool keep = !rui_ref_is_float(y->type.dtype) && !from_float;
            if (keep) {
                rui_ref_set_int(y->type.dtype, y->data, i,
                                rui_ref_get_int(x->type.dtype, x->data, i));
            } else {
                rui_ref_set(y->type.dtype, y->data, i, rui_ref_get(x->type.dtype, x->data, i));
            }
        } else {
            rui_ref_set_int(y->type.dtype, y->data, i, rui_ref_get_int(x->type.dtype, x->data, i));
        }
    }
    return RU_OK;
}

ru_status rui_ref_Cast(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    return cast(c);
}

ru_status rui_ref_CastLike(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    return cast(c);
}

/* -- constants -------------------------------------------------------------------------- */

ru_status rui_ref_Constant(const ru_ref_call *c, ru_err *err)
{
    const ru_node *n = c->node;
    const ru_tensor *y = &c->out[0];
    const ru_attr *a = ru_node_attr(n, RU_ATTR_value);
    if (a != NULL && a->kind == RU_ATTR_TENSOR) {
        memcpy(y->data, a->u.t.data, (size_t)rui_ref_count(&y->type) * element(y));
        return RU_OK;
    }
    if ((a = ru_node_attr(n, RU_ATTR_value_float)) != NULL) {
        rui_ref_set(y->type.dtype, y->data, 0, a->u.f);
        return RU_OK;
    }
    if ((a = ru_node_attr(n, RU_ATTR_value_int)) != NULL) {
        rui_ref_set_int(y->type.dtype, y->data, 0, a->u.i);
        return RU_OK;
    }
    if ((a = ru_node_attr(n, RU_ATTR_value_floats)) != NULL && a->kind == RU_ATTR_FLOATS) {
        rui_ref_store(y, a->u.fs);
        return RU_OK;
    }
    if ((a = ru_node_attr(n, RU_ATTR_value_ints)) != NULL && a->kind == RU_ATTR_INTS) {
        rui_ref_store_ints(y, a->u.is);
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_UNSUPPORTED, "Constant '%s' has no numeric value attribute",
                   n->name != NULL ? n->name : "");
}

ru_status rui_ref_ConstantOfShape(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    const ru_attr *a = ru_node_attr(c->node, RU_ATTR_value);
    int64_t n = rui_ref_count(&c->out[0].type);
    size_t size = element(&c->out[0]);
    static const uint8_t zero[8] = {0};
    const void *one = a != NULL && a->kind == RU_ATTR_TENSOR ? a->u.t.data : zero;
    for (int64_t i = 0; i < n; i++) {
        memcpy((uint8_t *)c->out[0].data + (size_t)i * size, one, size);
    }
    return RU_OK;
}

ru_status rui_ref_EyeLike(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    const ru_type *t = &c->out[0].type;
    int64_t k = ru_node_int(c->node, RU_ATTR_k, 0);
    for (int64_t i = 0; i < t->dims[0]; i++) {
        for (int64_t j = 0; j < t->dims[1]; j++) {
            rui_ref_set_int(t->dtype, c->out[0].data, i * t->dims[1] + j, j - i == k);
        }
    }
    return RU_OK;
}

ru_status rui_ref_Range(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    const ru_type *t = &c->out[0].type;
    for (int64_t i = 0; i < t->dims[0]; i++) {
        if (rui_ref_is_float(t->dtype)) {
            double start = rui_ref_get(c->in[0].type.dtype, c->in[0].data, 0);
            double step = rui_ref_get(c->in[2].type.dtype, c->in[2].data, 0);
            rui_ref_set(t->dtype, c->out[0].data, i, start + (double)i * step);
        } else {
            int64_t start = rui_ref_get_int(c->in[0].type.dtype, c->in[0].data, 0);
            int64_t step = rui_ref_get_int(c->in[2].type.dtype, c->in[2].data, 0);
            rui_ref_set_int(t->dtype, c->out[0].data, i, start + i * step);
        }
    }
    return RU_OK;
}

ru_status rui_ref_Shape(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    int64_t r = (int64_t)c->in[0].type.rank;
    int64_t start = ru_node_int(c->node, RU_ATTR_start, 0);
    start = start < 0 ? start + r : start;
    start = start < 0 ? 0 : (start > r ? r : start);
    for (int64_t i = 0; i < rui_ref_count(&c->out[0].type); i++) {
        ((int64_t *)c->out[0].data)[i] = c->in[0].type.dims[start + i];
    }
    return RU_OK;
}

ru_status rui_ref_Size(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    *(int64_t *)c->out[0].data = rui_ref_count(&c->in[0].type);
    return RU_OK;
}

/* -- strided views ---------------------------------------------------------------------- */

ru_status rui_ref_Expand(const ru_ref_call *c, ru_err *err)
{
    int64_t s[RU_RANK_MAX];
    RU_TRY(rui_ref_strides_as(&c->in[0].type, &c->out[0].type, s, err));
    rui_ref_gather_copy(&c->out[0], &c->out[0].type, &c->in[0], 0, s);
    return RU_OK;
}

ru_status rui_ref_Transpose(const ru_ref_call *c, ru_err *err)
{
    uint32_t n_perm, rank = c->in[0].type.rank;
    const int64_t *perm = ru_node_ints(c->node, RU_ATTR_perm, &n_perm);
    int64_t own[RU_RANK_MAX], s[RU_RANK_MAX] = {0};
    rui_ref_strides(&c->in[0].type, own);
    for (uint32_t d = 0; d < rank; d++) {
        uint32_t from = rank - 1 - d;
        if (perm != NULL) {
            RU_TRY(rui_ref_axis(c, perm[d], rank, &from, err));
        }
        s[d] = own[from];
    }
    rui_ref_gather_copy(&c->out[0], &c->out[0].type, &c->in[0], 0, s);
    return RU_OK;
}

/* Per axis of `t`: first index taken and step, from Slice's inputs that begin at input `k`. */
static ru_status slice_plan(const ru_ref_call *c, uint32_t k, const ru_type *t, int64_t *first,
                            int64_t *step, ru_err *err)
{
    int64_t *starts, *axes, *steps;
    RU_TRY(rui_ref_in_ints(c, k, &starts, err));
    RU_TRY(rui_ref_in_ints(c, k + 2, &axes, err));
    RU_TRY(rui_ref_in_ints(c, k + 3, &steps, err));
    for (uint32_t d = 0; d < t->rank; d++) {
        first[d] = 0;
        step[d] = 1;
    }
    int64_t n = rui_ref_count(&c->in[k].type);
    for (int64_t i = 0; i < n; i++) {
        uint32_t d;
        RU_TRY(rui_ref_axis(c, axes != NULL ? axes[i] : i, t->rank, &d, err));
        int64_t dim = t->dims[d];
        int64_t most = dim > 0 ? dim : 1; /* a larger step leaves the axis as well */
        step[d] = steps == NULL ? 1 : steps[i] > most ? most : steps[i] < -most ? -most : steps[i];
        int64_t s = starts[i] < 0 ? starts[i] + dim : starts[i];
        int64_t last = step[d] < 0 ? dim - 1 : dim;
        first[d] = s < 0 ? 0 : (s > last ? last : s);
    }
    return RU_OK;
}

ru_status rui_ref_Slice(const ru_ref_call *c, ru_err *err)
{
    int64_t first[RU_RANK_MAX], step[RU_RANK_MAX], s[RU_RANK_MAX], base = 0;
    const ru_type *t = &c->in[0].type;
    RU_TRY(slice_plan(c, 1, t, first, step, err));
    rui_ref_strides(t, s);
    for (uint32_t d = 0; d < t->rank; d++) {
        base += first[d] * s[d];
        s[d] *= step[d];
    }
    rui_ref_gather_copy(&c->out[0], &c->out[0].type, &c->in[0], base, s);
    return RU_OK;
}

/* (dy, x_like, starts, ends, axes?, steps?): dy goes back to where Slice took it from. */
ru_status rui_ref_SliceGrad(const ru_ref_call *c, ru_err *err)
{
    int64_t first[RU_RANK_MAX], step[RU_RANK_MAX], s[RU_RANK_MAX], base = 0;
    const ru_type *t = &c->out[0].type;
    RU_TRY(slice_plan(c, 2, t, first, step, err));
    rui_ref_strides(t, s);
    for (uint32_t d = 0; d < t->rank; d++) {
        base += first[d] * s[d];
        s[d] *= step[d];
    }
    size_t size = element(&c->out[0]);
    memset(c->out[0].data, 0, (size_t)rui_ref_count(t) * size);
    rui_walk w;
    rui_walk_init(&w, c->in[0].type.dims, c->in[0].type.rank);
    int64_t n = rui_ref_count(&c->in[0].type);
    for (int64_t i = 0; i < n; i++) {
        memcpy((uint8_t *)c->out[0].data + (size_t)(base + rui_walk_dot(&w, s)) * size,
               (const uint8_t *)c->in[0].data + (size_t)i * size, size);
        rui_walk_next(&w);
    }
    return RU_OK;
}

ru_status rui_ref_Tile(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    const ru_type *t = &c->in[0].type;
    int64_t s[RU_RANK_MAX];
    rui_ref_strides(t, s);
    size_t size = element(&c->out[0]);
    rui_walk w;
    rui_walk_init(&w, c->out[0].type.dims, c->out[0].type.rank);
    int64_t n = rui_ref_count(&c->out[0].type);
    for (int64_t i = 0; i < n; i++) {
        int64_t off = 0;
        for (uint32_t d = 0; d < t->rank; d++) {
            off += w.at[d] % t->dims[d] * s[d];
        }
        memcpy((uint8_t *)c->out[0].data + (size_t)i * size,
               (const uint8_t *)c->in[0].data + (size_t)off * size, size);
        rui_walk_next(&w);
    }
    return RU_OK;
}

/* -- joining and cutting ---------------------------------------------------------------- */

/* Copy the block [at, at + part) of `whole`'s axis to or from `piece`. */
static void copy_part(const ru_tensor *whole, const ru_tensor *piece, uint32_t axis, int64_t at,
                      bool into_whole)
{
    rui_axis3 w = rui_ref_axis3(&whole->type, axis), p = rui_ref_axis3(&piece->type, axis);
    size_t row = (size_t)(p.dim * p.inner) * element(whole);
    size_t pitch = (size_t)(w.dim * w.inner) * element(whole);
    size_t shift = (size_t)(at * w.inner) * element(whole);
    for (int64_t o = 0; o < w.outer && row > 0; o++) {
        uint8_t *in_whole = (uint8_t *)whole->data + (size_t)o * pitch + shift;
        uint8_t *in_piece = (uint8_t *)piece->data + (size_t)o * row;
        memcpy(into_whole ? in_whole : in_piece, into_whole ? in_piece : in_whole, row);
    }
}

ru_status rui_ref_Concat(const ru_ref_call *c, ru_err *err)
{
    uint32_t axis;
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, 0), c->out[0].type.rank, &axis, err));
    int64_t at = 0;
    for (uint32_t k = 0; k < c->node->n_in; k++) {
        copy_part(&c->out[0], &c->in[k], axis, at, true);
        at += c->in[k].type.dims[axis];
    }
    return RU_OK;
}

ru_status rui_ref_Split(const ru_ref_call *c, ru_err *err)
{
    uint32_t axis;
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, 0), c->in[0].type.rank, &axis, err));
    int64_t at = 0;
    for (uint32_t k = 0; k < c->node->n_out; k++) {
        if (rui_ref_has_out(c, k)) {
            copy_part(&c->in[0], &c->out[k], axis, at, false);
        }
        at += c->out[k].type.dims[axis];
    }
    return RU_OK;
}

/* -- blocks <-> depth: a six-dimensional transposition ---------------------------------- */

/* Output index order is dims[0..5]; `from` names, for each of the input's six axes (outermost
 * first), the output position it goes to. */
static void six(const ru_ref_call *c, const int64_t *dims_in, const uint32_t *order)
{
    int64_t own[6], s[6], st = 1;
    for (uint32_t d = 6; d > 0; d--) {
        own[d - 1] = st;
        st *= dims_in[d - 1];
    }
    ru_type shape = {.dtype = c->out[0].type.dtype, .rank = 6};
    for (uint32_t d = 0; d < 6; d++) {
        shape.dims[d] = dims_in[order[d]];
        s[d] = own[order[d]];
    }
    rui_ref_gather_copy(&c->out[0], &shape, &c->in[0], 0, s);
}

ru_status rui_ref_DepthToSpace(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    const int64_t *d = c->in[0].type.dims;
    int64_t b = ru_node_int(c->node, RU_ATTR_blocksize, 1);
    if (strcmp(ru_node_str(c->node, RU_ATTR_mode, "DCR"), "CRD") == 0) {
        six(c, (int64_t[]){d[0], d[1] / (b * b), b, b, d[2], d[3]}, (uint32_t[]){0, 1, 4, 2, 5, 3});
    } else {
        six(c, (int64_t[]){d[0], b, b, d[1] / (b * b), d[2], d[3]}, (uint32_t[]){0, 3, 4, 1, 5, 2});
    }
    return RU_OK;
}

ru_status rui_ref_SpaceToDepth(const ru_ref_call *c, ru_err *err)
{
    (void)err;
    const int64_t *d = c->in[0].type.dims;
    int64_t b = ru_node_int(c->node, RU_ATTR_blocksize, 1);
    six(c, (int64_t[]){d[0], d[1], d[2] / b, b, d[3] / b, b}, (uint32_t[]){0, 3, 5, 1, 2, 4});
    return RU_OK;
}

/* -- triangles, reversals, padding ------------------------------------------------------ */

ru_status rui_ref_Trilu(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    int64_t *k;
    RU_TRY(rui_ref_in_ints(c, 1, &k, err));
    int64_t diag = k != NULL ? k[0] : 0;
    bool upper = ru_node_int(c->node, RU_ATTR_upper, 1) != 0;
    int64_t rows = t->dims[t->rank - 2], cols = t->dims[t->rank - 1];
    size_t size = element(&c->in[0]);
    int64_t n = rui_ref_count(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t col = i % cols, row = i / cols % rows;
        bool keep = upper ? col - row >= diag : col - row <= diag;
        uint8_t *to = (uint8_t *)c->out[0].data + (size_t)i * size;
        if (keep) {
            memcpy(to, (const uint8_t *)c->in[0].data + (size_t)i * size, size);
        } else {
            memset(to, 0, size);
        }
    }
    return RU_OK;
}

ru_status rui_ref_ReverseSequence(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    uint32_t batch_axis = (uint32_t)ru_node_int(c->node, RU_ATTR_batch_axis, 1) & 1u;
    uint32_t time_axis = 1 - batch_axis;
    int64_t *lens;
    RU_TRY(rui_ref_in_ints(c, 1, &lens, err));
    size_t row = (size_t)rui_ref_span(t, 2, t->rank) * element(&c->in[0]);
    for (int64_t i = 0; i < t->dims[0]; i++) {
        for (int64_t j = 0; j < t->dims[1]; j++) {
            int64_t time = time_axis == 0 ? i : j, batch = time_axis == 0 ? j : i;
            if (lens[batch] < 0 || lens[batch] > t->dims[time_axis]) {
                return RU_FAIL(err, RU_E_DATA, "ReverseSequence: length %lld is outside 0 .. %lld",
                               (long long)lens[batch], (long long)t->dims[time_axis]);
            }
            int64_t from = time < lens[batch] ? lens[batch] - 1 - time : time;
            int64_t src = time_axis == 0 ? from * t->dims[1] + j : i * t->dims[1] + from;
            memcpy((uint8_t *)c->out[0].data + (size_t)(i * t->dims[1] + j) * row,
                   (const uint8_t *)c->in[0].data + (size_t)src * row, row);
        }
    }
    return RU_OK;
}

typedef enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP } pad_mode;

static ru_status pad_mode_of(const ru_node *n, pad_mode *out, ru_err *err)
{
    static const char *const words[] = {"constant", "reflect", "edge", "wrap"};
    const char *mode = ru_node_str(n, RU_ATTR_mode, "constant");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        if (strcmp(mode, words[k]) == 0) {
            *out = (pad_mode)k;
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_UNSUPPORTED, "%s: mode '%s' is none of constant, reflect, edge, wrap",
                   ru_op_get(n->op)->name, mode);
}

/* Where position `i` (counted from the first kept element) of a padded axis reads; -1: the fill. */
static int64_t pad_source(int64_t i, int64_t dim, pad_mode mode)
{
    if (i >= 0 && i < dim) {
        return i;
    }
    switch (mode) {
    case PAD_CONSTANT:
        return -1;
    case PAD_EDGE:
        return i < 0 ? 0 : dim - 1;
    case PAD_WRAP:
        return (i % dim + dim) % dim;
    case PAD_REFLECT:
        break;
    }
    if (dim == 1) {
        return 0;
    }
    int64_t period = 2 * (dim - 1);
    int64_t r = (i % period + period) % period;
    return r < dim ? r : period - r;
}

/* For every element of the padded shape, its source offset in the unpadded one or -1. */
static int64_t pad_offset(const rui_walk *w, const ru_type *small, const int64_t *before,
                          pad_mode mode)
{
    int64_t off = 0;
    for (uint32_t d = 0; d < small->rank; d++) {
        int64_t from = pad_source(w->at[d] - before[d], small->dims[d], mode);
        if (from < 0 || from >= small->dims[d]) {
            return -1;
        }
        off = off * small->dims[d] + from;
    }
    return off;
}

/* before[d] from the pads input, which lists befores then afters of `axes` (input k_axes) or all.
 */
static ru_status pads_before(const ru_ref_call *c, uint32_t k_pads, uint32_t k_axes, uint32_t rank,
                             int64_t *before, ru_err *err)
{
    int64_t *pads, *axes;
    RU_TRY(rui_ref_in_ints(c, k_pads, &pads, err));
    RU_TRY(rui_ref_in_ints(c, k_axes, &axes, err));
    int64_t n = rui_ref_count(&c->in[k_pads].type) / 2;
    memset(before, 0, RU_RANK_MAX * sizeof before[0]);
    for (int64_t i = 0; i < n; i++) {
        uint32_t d;
        RU_TRY(rui_ref_axis(c, axes != NULL ? axes[i] : i, rank, &d, err));
        before[d] = pads[i];
    }
    return RU_OK;
}

ru_status rui_ref_Pad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *small = &c->in[0].type;
    int64_t before[RU_RANK_MAX];
    pad_mode mode;
    RU_TRY(pads_before(c, 1, 3, small->rank, before, err));
    RU_TRY(pad_mode_of(c->node, &mode, err));
    size_t size = element(&c->in[0]);
    static const uint8_t zero[8] = {0};
    const void *fill = rui_ref_has(c, 2) ? c->in[2].data : zero;
    rui_walk w;
    rui_walk_init(&w, c->out[0].type.dims, small->rank);
    int64_t n = rui_ref_count(&c->out[0].type);
    for (int64_t i = 0; i < n; i++) {
        int64_t off = pad_offset(&w, small, before, mode);
        const void *src = off < 0 ? fill : (const uint8_t *)c->in[0].data + (size_t)off * size;
        memcpy((uint8_t *)c->out[0].data + (size_t)i * size, src, size);
        rui_walk_next(&w);
    }
    return RU_OK;
}

/* (dy, pads, x_like): every padded position gives its share back to its source. */
ru_status rui_ref_PadGrad(const ru_ref_call *c, ru_err *err)
{
    const ru_type *small = &c->out[0].type, *big = &c->in[0].type;
    int64_t before[RU_RANK_MAX];
    pad_mode mode;
    double *dy, *dx;
    RU_TRY(pads_before(c, 1, UINT32_MAX, small->rank, before, err));
    RU_TRY(pad_mode_of(c->node, &mode, err));
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    RU_TRY(rui_ref_zeros(c, rui_ref_count(small), &dx, err));
    rui_walk w;
    rui_walk_init(&w, big->dims, big->rank);
    int64_t n = rui_ref_count(big);
    for (int64_t i = 0; i < n; i++) {
        int64_t off = pad_offset(&w, small, before, mode);
        if (off >= 0) {
            dx[off] += dy[i];
        }
        rui_walk_next(&w);
    }
    rui_ref_store(&c->out[0], dx);
    return RU_OK;
}
