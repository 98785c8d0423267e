/* Shape rules of ops that move data: reshaping, joining, cutting, generating. */
#include "world/graph/infer_impl.h"

#include <string.h>

ru_status rui_shape_reshape(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const ru_type *s = rui_in(c, 1);
    uint32_t n;
    const int64_t *want = rui_known(c, 1, &n);
    ru_type t = {.dtype = x->dtype};
    if (s->rank != 1 || s->dims[0] < 0 || s->dims[0] > RU_RANK_MAX) {
        return rui_infer_fail(c, "the target shape must be a list of at most %d numbers",
                              RU_RANK_MAX);
    }
    t.rank = (uint32_t)s->dims[0];
    bool copy_zero = ru_node_int(&c->n, RU_ATTR_allowzero, 0) == 0;
    uint32_t open = RU_RANK_MAX; /* the axis of -1, or the only unknown one */
    uint32_t unknown = 0;
    for (uint32_t i = 0; i < t.rank; i++) {
        int64_t d = want != NULL ? want[i] : RU_DIM_UNKNOWN;
        if (d == 0 && copy_zero && i >= x->rank) {
            return rui_infer_fail(c, "0 at axis %u copies a dimension that the input does not have",
                                  i);
        }
        t.dims[i] = d == 0 && copy_zero ? x->dims[i] : d;
        unknown += d == RU_DIM_UNKNOWN ? 1 : 0;
        if (d == -1) {
            if (open != RU_RANK_MAX) {
                return rui_infer_fail(c, "the target shape has -1 twice");
            }
            open = i;
        } else if (d < 0 && d != RU_DIM_UNKNOWN && !ru_dim_is_symbolic(d)) {
            return rui_infer_fail(c, "the target shape has %lld at axis %u", (long long)d, i);
        }
    }
    for (uint32_t i = 0; i < t.rank; i++) {
        if (t.dims[i] == RU_DIM_UNKNOWN && (unknown > 1 || open != RU_RANK_MAX)) {
            RU_TRY(rui_dim_fresh(c, 0, i, &t.dims[i]));
        } else if (t.dims[i] == RU_DIM_UNKNOWN) {
            open = i;
        }
    }
    if (open != RU_RANK_MAX) {
        int64_t rest[RU_RANK_MAX];
        uint32_t n_rest = 0;
        for (uint32_t i = 0; i < t.rank; i++) {
            if (i != open) {
                rest[n_rest++] = t.dims[i];
            }
        }
        RU_TRY(rui_dims_quotient(c, x->dims, x->rank, rest, n_rest, &t.dims[open]));
    }
    int64_t a = ru_type_count(x);
    int64_t b = ru_type_count(&t);
    if (a >= 0 && b >= 0 && a != b) {
        return rui_infer_fail(c, "%lld elements do not fit the target of %lld", (long long)a,
                              (long long)b);
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_flatten(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    int64_t axis = ru_node_int(&c->n, RU_ATTR_axis, 1);
    axis += axis < 0 ? (int64_t)x->rank : 0;
    if (axis < 0 || axis > (int64_t)x->rank) {
        return rui_infer_fail(c, "axis %lld is outside 0..%u", (long long)axis, x->rank);
    }
    uint32_t at = (uint32_t)axis;
    ru_type t = {.dtype = x->dtype, .rank = 2};
    RU_TRY(rui_dims_product(c, x->dims, at, &t.dims[0]));
    RU_TRY(rui_dims_product(c, x->dims + at, x->rank - at, &t.dims[1]));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* Axes from input `k`, else from attribute axes. NULL: not given. */
static ru_status axes_read(const rui_infer *c, uint32_t k, const int64_t **axes, uint32_t *n)
{
    if (!ru_node_has_in(&c->n, k)) {
        *axes = ru_node_ints(&c->n, RU_ATTR_axes, n);
        return RU_OK;
    }
    if (rui_in(c, k)->rank > 1) { /* one number may stand for a list of one, as exporters do */
        return rui_infer_fail(c, "the axes have %u dimensions, expected one", rui_in(c, k)->rank);
    }
    *axes = rui_known_numbers(c, k, n);
    return *axes != NULL ? RU_OK : rui_infer_fail(c, "the axes must be constant");
}

ru_status rui_shape_squeeze(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const int64_t *axes;
    uint32_t n;
    RU_TRY(axes_read(c, 1, &axes, &n));
    bool gone[RU_RANK_MAX] = {false};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a;
        RU_TRY(rui_axis(c, axes[i], x->rank, &a));
        if (x->dims[a] != 1 && !ru_dim_is_symbolic(x->dims[a])) {
            return rui_infer_fail(c, "axis %u has %lld elements, expected 1", a,
                                  (long long)x->dims[a]);
        }
        gone[a] = true;
    }
    ru_type t = {.dtype = x->dtype};
    for (uint32_t i = 0; i < x->rank; i++) {
        if (axes == NULL ? x->dims[i] != 1 : !gone[i]) {
            t.dims[t.rank++] = x->dims[i];
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_unsqueeze(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    const int64_t *axes;
    uint32_t n;
    RU_TRY(axes_read(c, 1, &axes, &n));
    if (axes == NULL || x->rank + n > RU_RANK_MAX) {
        return rui_infer_fail(c, "the axes are missing or more than %d result", RU_RANK_MAX);
    }
    ru_type t = {.dtype = x->dtype, .rank = x->rank + n};
    bool fresh[RU_RANK_MAX] = {false};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a;
        RU_TRY(rui_axis(c, axes[i], t.rank, &a));
        if (fresh[a]) {
            return rui_infer_fail(c, "axis %u is given twice", a);
        }
        fresh[a] = true;
    }
    uint32_t from = 0;
    for (uint32_t i = 0; i < t.rank; i++) {
        t.dims[i] = fresh[i] ? 1 : x->dims[from++];
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_transpose(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    uint32_t n;
    const int64_t *perm = ru_node_ints(&c->n, RU_ATTR_perm, &n);
    if (perm != NULL && n != x->rank) {
        return rui_infer_fail(c, "attribute perm has %u entries, expected %u", n, x->rank);
    }
    ru_type t = {.dtype = x->dtype, .rank = x->rank};
    bool used[RU_RANK_MAX] = {false};
    for (uint32_t i = 0; i < x->rank; i++) {
        uint32_t a = x->rank - 1 - i;
        if (perm != NULL && (perm[i] < 0 || perm[i] >= (int64_t)x->rank)) {
            return rui_infer_fail(c, "attribute perm has entry %lld, expected 0..%u",
                                  (long long)perm[i], x->rank - 1);
        }
        a = perm != NULL ? (uint32_t)perm[i] : a;
        if (used[a]) {
            return rui_infer_fail(c, "attribute perm names axis %u twice", a);
        }
        used[a] = true;
        t.dims[i] = x->dims[a];
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_concat(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 0), t.rank, &axis));
    for (uint32_t k = 1; k < c->n.n_in; k++) {
        const ru_type *u = rui_in(c, k);
        if (u == NULL || u->dtype != t.dtype || u->rank != t.rank) {
            return rui_infer_fail(c, "input %u differs in type or rank", k);
        }
        for (uint32_t i = 0; i < t.rank; i++) {
            bool bad = t.dims[i] != u->dims[i] && t.dims[i] >= 0 && u->dims[i] >= 0;
            if (i == axis) {
                RU_TRY(rui_dim_sum(c, t.dims[i], u->dims[i], &t.dims[i]));
            } else if (bad) {
                return rui_infer_fail(c, "input %u differs at axis %u", k, i);
            }
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_split(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    uint32_t axis;
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, 0), t.rank, &axis));
    int64_t whole = t.dims[axis];
    uint32_t n = 0;
    const int64_t *sizes = NULL;
    if (ru_node_has_in(&c->n, 1)) {
        sizes = rui_known(c, 1, &n);
        if (sizes == NULL || n != c->n.n_out) {
            return rui_infer_fail(c, "the sizes must be constant, one for each output");
        }
    }
    int64_t each = RU_DIM_UNKNOWN;
    int64_t parts = ru_node_int(&c->n, RU_ATTR_num_outputs, c->n.n_out);
    if (parts != (int64_t)c->n.n_out) {
        return rui_infer_fail(c, "num_outputs is %lld but there are %u outputs", (long long)parts,
                              c->n.n_out);
    }
    RU_TRY(rui_dim_floordiv(c, whole, parts, true, &each));
    int64_t left = whole;
    for (uint32_t k = 0; k < c->n.n_out; k++) {
        int64_t d = sizes != NULL ? sizes[k] : whole >= 0 && each > left ? left : each;
        if (d == RU_DIM_UNKNOWN || (d < 0 && !ru_dim_is_symbolic(d)) || (whole >= 0 && d > left)) {
            return rui_infer_fail(c, "size %u of the split is negative, too large or not known", k);
        }
        left = whole >= 0 && d >= 0 ? left - d : left;
        t.dims[axis] = d;
        rui_set_out(c, k, &t);
    }
    if (whole >= 0 && left != 0) {
        return rui_infer_fail(c, "the sizes do not add up to %lld", (long long)whole);
    }
    return RU_OK;
}

/* -- Slice ------------------------------------------------------------------------------------- */

/* Size of [start, end) by step over `dim`, everything a number but perhaps dim. */
static ru_status slice_len(const rui_infer *c, int64_t dim, int64_t start, int64_t end,
                           int64_t step, uint32_t axis, int64_t *out)
{
    if (dim == 0) {
        *out = 0;
        return RU_OK;
    }
    if (dim >= 0 && !ru_dim_is_symbolic(start) && !ru_dim_is_symbolic(end)) {
        int64_t lo = step > 0 ? 0 : -1;
        int64_t hi = step > 0 ? dim : dim - 1;
        int64_t s = start < 0 ? start + dim : start;
        int64_t e = end < -dim ? lo : end < 0 ? end + dim : end;
        s = start < -dim || s < 0 ? 0 : s > hi ? hi : s;
        e = e < lo ? lo : e > dim ? dim : e;
        int64_t room = step > 0 ? e - s : s - e;
        uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
        *out = room <= 0 ? 0 : (int64_t)(((uint64_t)room - 1) / by) + 1;
        return RU_OK;
    }
    bool sym = ru_dim_is_symbolic(dim);
    bool whole = sym && start == 0 && step >= 1 && (end == dim || end >= INT32_MAX);
    if (whole) {
        return rui_dim_floordiv(c, dim, step, true, out);
    }
    if (sym && step == 1 && start >= 0 && (end == dim || end >= INT32_MAX)) {
        return rui_dim_sum(c, dim, -start, out);
    }
    if (sym && step == 1 && start == 0 && end < 0 && !ru_dim_is_symbolic(end)) {
        return rui_dim_sum(c, dim, end, out);
    }
    if (step == 1 && start == 0 && (sym || ru_dim_is_symbolic(end))) {
        *out = end; /* a prefix: models cut prefixes that exist */
        return RU_OK;
    }
    if (sym && step == 1 && start < 0 && !ru_dim_is_symbolic(start) && end >= INT32_MAX) {
        *out = -start;
        return RU_OK;
    }
    if (step == 1 && start >= 0 && end >= start) {
        *out = end - start;
        return RU_OK;
    }
    return rui_dim_fresh(c, 0, axis, out);
}

ru_status rui_shape_slice(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    uint32_t n;
    uint32_t n_end;
    uint32_t n_axes = 0;
    uint32_t n_steps = 0;
    const ru_type *ts = rui_in(c, 1);
    if (ts->rank != 1 || ts->dims[0] < 0 || ts->dims[0] > RU_RANK_MAX) {
        return rui_infer_fail(c, "starts must be a list of at most %d numbers", RU_RANK_MAX);
    }
    const int64_t *start = rui_known(c, 1, &n);
    const int64_t *end = rui_known(c, 2, &n_end);
    const int64_t *axes = rui_known_numbers(c, 3, &n_axes);
    const int64_t *steps = rui_known_numbers(c, 4, &n_steps);
    uint32_t count = (uint32_t)ts->dims[0];
    if ((ru_node_has_in(&c->n, 3) && n_axes != count) ||
        (ru_node_has_in(&c->n, 4) && n_steps != count) || (end != NULL && n_end != count) ||
        count > t.rank) {
        return rui_infer_fail(c, "starts, ends, axes and steps differ in length or are not known");
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t a = i;
        if (axes != NULL) {
            RU_TRY(rui_axis(c, axes[i], t.rank, &a));
        }
        int64_t step = steps != NULL ? steps[i] : 1;
        if (step == 0) {
            return rui_infer_fail(c, "step 0 at axis %u", a);
        }
        if (start == NULL || end == NULL || start[i] == RU_DIM_UNKNOWN ||
            end[i] == RU_DIM_UNKNOWN) {
            RU_TRY(rui_dim_fresh(c, 0, a, &t.dims[a]));
        } else {
            RU_TRY(slice_len(c, t.dims[a], start[i], end[i], step, a, &t.dims[a]));
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* -- growing ----------------------------------------------------------------------------------- */

/* The shape that input k spells, of known length; unknown entries become fresh symbols. */
static ru_status shape_input(const rui_infer *c, uint32_t k, ru_type *t)
{
    const ru_type *s = rui_in(c, k);
    if (s->rank != 1 || s->dims[0] < 0 || s->dims[0] > RU_RANK_MAX) {
        return rui_infer_fail(c, "a shape must be a list of at most %d numbers", RU_RANK_MAX);
    }
    uint32_t n;
    const int64_t *v = rui_known(c, k, &n);
    t->rank = (uint32_t)s->dims[0];
    for (uint32_t i = 0; i < t->rank; i++) {
        t->dims[i] = v != NULL ? v[i] : RU_DIM_UNKNOWN;
        if (t->dims[i] == RU_DIM_UNKNOWN) {
            RU_TRY(rui_dim_fresh(c, 0, i, &t->dims[i]));
        } else if (t->dims[i] < 0 && !ru_dim_is_symbolic(t->dims[i])) {
            return rui_infer_fail(c, "the shape has %lld at axis %u", (long long)t->dims[i], i);
        }
    }
    return RU_OK;
}

ru_status rui_shape_expand(const rui_infer *c)
{
    const ru_type *x = rui_in(c, 0);
    ru_type t = {.dtype = x->dtype};
    RU_TRY(shape_input(c, 1, &t));
    RU_TRY(rui_broadcast(c, x, &t, &t));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_tile(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    ru_type r = {.dtype = RU_I64};
    RU_TRY(shape_input(c, 1, &r));
    if (r.rank != t.rank) {
        return rui_infer_fail(c, "repeats has %u entries, expected %u", r.rank, t.rank);
    }
    for (uint32_t i = 0; i < t.rank; i++) {
        RU_TRY(rui_dims_product(c, (const int64_t[]){t.dims[i], r.dims[i]}, 2, &t.dims[i]));
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_pad(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    uint32_t n_axes = 0;
    uint32_t n;
    const int64_t *axes = rui_known_numbers(c, 3, &n_axes);
    const int64_t *pads = rui_known(c, 1, &n);
    if (ru_node_has_in(&c->n, 3) && axes == NULL) {
        return rui_infer_fail(c, "the axes must be constant");
    }
    uint32_t count = axes != NULL ? n_axes : t.rank;
    if (pads != NULL && n != 2 * count) {
        return rui_infer_fail(c, "pads has %u entries, expected %u", n, 2 * count);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t a = i;
        if (axes != NULL) {
            RU_TRY(rui_axis(c, axes[i], t.rank, &a));
        }
        int64_t more = pads != NULL ? ru_dim_add(pads[i], pads[i + count]) : RU_DIM_UNKNOWN;
        if (more == RU_DIM_UNKNOWN) {
            RU_TRY(rui_dim_fresh(c, 0, a, &t.dims[a]));
            continue;
        }
        if (t.dims[a] == 0 && (pads[i] > 0 || pads[i + count] > 0) &&
            strcmp(ru_node_str(&c->n, RU_ATTR_mode, "constant"), "constant") != 0) {
            return rui_infer_fail(c, "axis %u is empty: there is no element to pad with", a);
        }
        RU_TRY(rui_dim_sum(c, t.dims[a], more, &t.dims[a]));
        if (t.dims[a] < 0 && !ru_dim_is_symbolic(t.dims[a])) {
            return rui_infer_fail(c, "axis %u would have %lld elements", a, (long long)t.dims[a]);
        }
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_depthtospace(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    int64_t b = ru_node_int(&c->n, RU_ATTR_blocksize, 0);
    if (t.rank != 4 || b < 1 || b > 1 << 15 || ru_dim_div(t.dims[1], b * b) == RU_DIM_UNKNOWN) {
        return rui_infer_fail(c, "expected [N,C,H,W] with C a multiple of blocksize^2");
    }
    t.dims[1] = ru_dim_div(t.dims[1], b * b);
    t.dims[2] = ru_dim_mul(t.dims[2], b);
    t.dims[3] = ru_dim_mul(t.dims[3], b);
    if (t.dims[2] == RU_DIM_UNKNOWN || t.dims[3] == RU_DIM_UNKNOWN) {
        return rui_infer_fail(c, "the output would be too large");
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_spacetodepth(const rui_infer *c)
{
    ru_type t = *rui_in(c, 0);
    int64_t b = ru_node_int(&c->n, RU_ATTR_blocksize, 0);
    if (t.rank != 4 || b < 1 || b > 1 << 15) {
        return rui_infer_fail(c, "expected [N,C,H,W] and blocksize >= 1");
    }
    for (uint32_t i = 2; i < 4; i++) {
        if (t.dims[i] >= 0 && t.dims[i] % b != 0) {
            return rui_infer_fail(c, "axis %u of %lld is not a multiple of blocksize %lld", i,
                                  (long long)t.dims[i], (long long)b);
        }
    }
    t.dims[1] = ru_dim_mul(t.dims[1], b * b);
    if (t.dims[1] == RU_DIM_UNKNOWN) {
        return rui_infer_fail(c, "the output would have too many channels");
    }
    RU_TRY(rui_dim_floordiv(c, t.dims[2], b, false, &t.dims[2]));
    RU_TRY(rui_dim_floordiv(c, t.dims[3], b, false, &t.dims[3]));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

/* -- generating -------------------------------------------------------------------------------- */

ru_status rui_shape_constant(const rui_infer *c)
{
    const ru_attr *a = c->n.n_attrs > 0 ? &c->n.attrs[0] : NULL;
    ru_type t = {.dtype = RU_NONE};
    if (a != NULL) {
        bool one = a->kind == RU_ATTR_INT || a->kind == RU_ATTR_FLOAT;
        bool ints = a->kind == RU_ATTR_INT || a->kind == RU_ATTR_INTS;
        bool floats = a->kind == RU_ATTR_FLOAT || a->kind == RU_ATTR_FLOATS;
        t.dtype = ints ? RU_I64 : floats ? RU_F32 : RU_NONE;
        t.rank = one ? 0 : 1;
        t.dims[0] = one ? 0 : (int64_t)a->n;
        if (a->kind == RU_ATTR_TENSOR) {
            t = *a->u.t.type;
        }
    }
    if (t.dtype == RU_NONE) {
        return rui_infer_fail(c, "the constant has no value, or one of a type not supported");
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_constantofshape(const rui_infer *c)
{
    const ru_attr *a = ru_node_attr(&c->n, RU_ATTR_value);
    bool set = a != NULL && a->kind == RU_ATTR_TENSOR;
    ru_type t = {.dtype = set ? a->u.t.type->dtype : RU_F32};
    RU_TRY(shape_input(c, 0, &t));
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_onehot(const rui_infer *c)
{
    const ru_type *idx = rui_in(c, 0);
    ru_type t = {.dtype = rui_in(c, 2)->dtype, .rank = idx->rank + 1};
    uint32_t axis;
    if (t.rank > RU_RANK_MAX) {
        return rui_infer_fail(c, "the result would have more than %d axes", RU_RANK_MAX);
    }
    RU_TRY(rui_axis(c, ru_node_int(&c->n, RU_ATTR_axis, -1), t.rank, &axis));
    uint32_t n;
    const int64_t *depth = rui_known(c, 1, &n);
    uint32_t n_float;
    const double *fdepth = rui_const_floats(c, 1, &n_float);
    int64_t d = RU_DIM_UNKNOWN;
    if (depth != NULL && n == 1) {
        d = depth[0];
    } else if (fdepth != NULL && n_float == 1 && fdepth[0] >= 0.0 && fdepth[0] < 1e9) {
        d = (int64_t)fdepth[0];
    }
    uint32_t from = 0;
    for (uint32_t i = 0; i < t.rank; i++) {
        if (i != axis) {
            t.dims[i] = idx->dims[from++];
        } else if (d != RU_DIM_UNKNOWN) {
            t.dims[i] = d;
        } else {
            RU_TRY(rui_dim_fresh(c, 0, i, &t.dims[i]));
        }
    }
    if (t.dims[axis] < 0 && !ru_dim_is_symbolic(t.dims[axis])) {
        return rui_infer_fail(c, "depth %lld is negative", (long long)t.dims[axis]);
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

static int64_t range_floats(const double *s, const double *l, const double *d)
{
    double n = __builtin_ceil((*l - *s) / *d);
    return n > 0.0 ? (n < 1e15 ? (int64_t)n : INT64_MAX) : 0; /* NaN: none */
}

ru_status rui_shape_range(const rui_infer *c)
{
    ru_type t = {.dtype = rui_in(c, 0)->dtype, .rank = 1, .dims = {RU_DIM_UNKNOWN}};
    uint32_t n;
    const int64_t *s = rui_known(c, 0, &n);
    const int64_t *l = rui_known(c, 1, &n);
    const int64_t *d = rui_known_numbers(c, 2, &n);
    const double *fs = rui_const_floats(c, 0, &n);
    const double *fl = rui_const_floats(c, 1, &n);
    const double *fd = rui_const_floats(c, 2, &n);
    if ((d != NULL && d[0] == 0) || (fd != NULL && fd[0] == 0.0)) {
        return rui_infer_fail(c, "delta is 0");
    }
    if (fs != NULL && fl != NULL && fd != NULL) {
        t.dims[0] = range_floats(fs, fl, fd);
    } else if (s != NULL && l != NULL && d != NULL && *s != RU_DIM_UNKNOWN &&
               *l != RU_DIM_UNKNOWN) {
        bool numbers = !ru_dim_is_symbolic(*s) && !ru_dim_is_symbolic(*l);
        if (numbers) {
            t.dims[0] =
                range_floats(&(double){(double)*s}, &(double){(double)*l}, &(double){(double)*d});
        } else if (*s == 0 && *d >= 1) {
            RU_TRY(rui_dim_floordiv(c, *l, *d, true, &t.dims[0]));
        } else if (*d == 1 && !ru_dim_is_symbolic(*s) && *s != INT64_MIN) {
            RU_TRY(rui_dim_sum(c, *l, -*s, &t.dims[0]));
        }
    }
    if (t.dims[0] == RU_DIM_UNKNOWN) {
        RU_TRY(rui_dim_fresh(c, 0, 0, &t.dims[0]));
    }
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_shape(const rui_infer *c)
{
    int64_t rank = (int64_t)rui_in(c, 0)->rank;
    int64_t s = ru_node_int(&c->n, RU_ATTR_start, 0);
    int64_t e = ru_node_int(&c->n, RU_ATTR_end, rank);
    s = s < -rank ? 0 : s < 0 ? s + rank : s > rank ? rank : s;
    e = e < -rank ? 0 : e < 0 ? e + rank : e > rank ? rank : e;
    ru_type t = {.dtype = RU_I64, .rank = 1, .dims = {e > s ? e - s : 0}};
    rui_set_out(c, 0, &t);
    return RU_OK;
}

ru_status rui_shape_size(const rui_infer *c)
{
    ru_type t = ru_type_scalar(RU_I64);
    rui_set_out(c, 0, &t);
    return RU_OK;
}
