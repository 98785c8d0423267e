/* What opsets after 21 say more than the graph's: new operators as standard ones, new attributes.
 * AffineGrid, of opset 20, as standard ones too, and MaxRoiPool of all opsets.
 *
 * Source: Changelog.md of the ONNX project, opsets 22 to 28. Most rows there only add element
 * types. */
#include <string.h>

#include "world/onnx/onnx_lift.h"

static ru_status two(rui_lift *l, ru_op op, ru_value_id a, ru_value_id b, ru_value_id *out,
                     ru_err *err)
{
    return rui_lift_node(l, op, (ru_value_id[]){a, b}, 2, NULL, 0, out, err);
}

static ru_status cast(rui_lift *l, ru_value_id a, ru_dtype to, ru_value_id *out, ru_err *err)
{
    ru_attr attr = {.key = RU_ATTR_to, .kind = RU_ATTR_INT, .n = 1, .u.i = ru_dtype_onnx(to)};
    return rui_lift_node(l, RU_OP_Cast, &a, 1, &attr, 1, out, err);
}

/* A number as a scalar of the element type of `like`. */
static ru_status number(rui_lift *l, double x, ru_value_id like, ru_value_id *out, ru_err *err)
{
    float f = (float)x;
    RU_TRY(rui_lift_const_f32s(l, &f, 1, true, out, err));
    return two(l, RU_OP_CastLike, *out, like, out, err);
}

static ru_status inputs_are(const rui_lift *l, uint32_t n, ru_err *err)
{
    for (uint32_t k = 0; k < l->n_in && k < n; k++) {
        if (l->in[k].v == 0) {
            return RU_FAIL(err, RU_E_DATA, "input %u is absent", k);
        }
    }
    return l->n_in == n && l->n_out_model == 1
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "it has %u inputs and %u outputs, expected %u and 1",
                         l->n_in, l->n_out_model, n);
}

static double float_take(rui_lift *l, const char *name, double dflt)
{
    const rui_onnx_attr *a = rui_lift_take(l, name);
    return a != NULL && a->type == RUI_ONNX_FLOAT ? a->f : dflt;
}

/* a sigmoid(alpha a) */
static ru_status gated(rui_lift *l, ru_value_id *out, ru_err *err)
{
    double alpha = float_take(l, "alpha", 1);
    ru_value_id a = l->in[0], scaled = a, factor;
    if (alpha < 1 || alpha > 1) {
        RU_TRY(number(l, alpha, a, &factor, err));
        RU_TRY(two(l, RU_OP_Mul, a, factor, &scaled, err));
    }
    RU_TRY(rui_lift_node(l, RU_OP_Sigmoid, &scaled, 1, NULL, 0, &scaled, err));
    return two(l, RU_OP_Mul, a, scaled, out, err);
}

static ru_status swish(rui_lift *l, ru_err *err)
{
    RU_TRY(inputs_are(l, 1, err));
    return gated(l, l->out, err);
}

/* The operator broadcasts nothing. A size that is not known yet may still turn out equal. */
static ru_status sizes_equal(const rui_lift *l, ru_err *err)
{
    const ru_type *a = rui_lift_type(l, 0), *b = rui_lift_type(l, 1);
    bool known = a != NULL && b != NULL, equal = !known || a->rank == b->rank;
    for (uint32_t d = 0; known && equal && d < a->rank; d++) {
        equal = a->dims[d] == b->dims[d] || ru_dim_is_symbolic(a->dims[d]) ||
                ru_dim_is_symbolic(b->dims[d]);
    }
    return equal ? RU_OK : RU_FAIL(err, RU_E_DATA, "A and B differ in their sizes");
}

static ru_status swiglu(rui_lift *l, ru_err *err)
{
    ru_value_id gate;
    RU_TRY(inputs_are(l, 2, err));
    RU_TRY(sizes_equal(l, err));
    RU_TRY(gated(l, &gate, err));
    return two(l, RU_OP_Mul, gate, l->in[1], l->out, err);
}

/* x / sqrt(mean of x^2 from `axis` on + epsilon) in f32, then times the scale in x's type. */
static ru_status rms_normalization(rui_lift *l, ru_err *err)
{
    RU_TRY(inputs_are(l, 2, err));
    const ru_type *t = rui_lift_type(l, 0);
    int64_t axis = rui_lift_take_int(l, "axis", -1), axes[RU_RANK_MAX];
    int64_t rank = t != NULL ? (int64_t)t->rank : RU_RANK_MAX;
    bool narrow = rui_lift_take_int(l, "stash_type", 1) == 1 && t != NULL && t->dtype != RU_F32;
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis >= rank) {
        return RU_FAIL(err, RU_E_DATA, "axis %lld of a tensor of rank %lld", (long long)axis,
                       (long long)rank);
    }
    for (int64_t k = axis; k < rank; k++) {
        axes[k - axis] = k;
    }
    ru_value_id x = l->in[0], mean, some, list;
    if (narrow) {
        RU_TRY(cast(l, x, RU_F32, &x, err));
    }
    RU_TRY(rui_lift_const_i64s(l, axes, (uint32_t)(rank - axis), &list, err));
    RU_TRY(two(l, RU_OP_Mul, x, x, &mean, err));
    RU_TRY(two(l, RU_OP_ReduceMean, mean, list, &mean, err));
    RU_TRY(number(l, float_take(l, "epsilon", (double)1e-5F), x, &some, err));
    RU_TRY(two(l, RU_OP_Add, mean, some, &mean, err));
    RU_TRY(rui_lift_node(l, RU_OP_Sqrt, &mean, 1, NULL, 0, &mean, err));
    RU_TRY(two(l, RU_OP_Div, x, mean, &x, err));
    if (narrow) {
        RU_TRY(cast(l, x, t->dtype, &x, err));
    }
    return two(l, RU_OP_Mul, x, l->in[1], l->out, err);
}

/* Elements from .. from + n of the list `size`. */
static ru_status part_of(rui_lift *l, ru_value_id size, int64_t from, int64_t n, ru_value_id *out,
                         ru_err *err)
{
    ru_value_id in[3] = {size};
    RU_TRY(rui_lift_const_i64s(l, &from, 1, &in[1], err));
    from += n;
    RU_TRY(rui_lift_const_i64s(l, &from, 1, &in[2], err));
    return rui_lift_node(l, RU_OP_Slice, in, 3, NULL, 0, out, err);
}

static ru_status joined(rui_lift *l, const ru_value_id *in, uint32_t n, int64_t axis,
                        ru_value_id *out, ru_err *err)
{
    ru_attr a = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = axis};
    return rui_lift_node(l, RU_OP_Concat, in, n, &a, 1, out, err);
}

/* Coordinates along axis d of an image, a list: 1 - (2 k + 1) / n for k = n - 1 .. 0, aligned
 * 1 - 2 k / (n - 1). One element that is aligned lies at 1, as in ONNX Runtime. */
static ru_status coordinate(rui_lift *l, int64_t d, bool align, ru_value_id *out, ru_err *err)
{
    int64_t at = d + 2;
    ru_value_id n, less, k, list, number_of[4];
    for (int64_t i = 0; i < 4; i++) { /* 0, 1, 2, -1 */
        int64_t v = i < 3 ? i : -1;
        RU_TRY(rui_lift_const(l, &(ru_type){.dtype = RU_I64}, &v, &number_of[i], err));
    }
    RU_TRY(rui_lift_const(l, &(ru_type){.dtype = RU_I64}, &at, &list, err));
    RU_TRY(two(l, RU_OP_Gather, l->in[1], list, &n, err));
    RU_TRY(two(l, RU_OP_Sub, n, number_of[1], &less, err));
    RU_TRY(rui_lift_node(l, RU_OP_Range, (ru_value_id[]){less, number_of[3], number_of[3]}, 3, NULL,
                         0, &k, err));
    RU_TRY(two(l, RU_OP_Mul, k, number_of[2], &k, err));
    RU_TRY(two(l, RU_OP_Add, k, number_of[align ? 0 : 1], &k, err));
    RU_TRY(two(l, RU_OP_Max, align ? less : n, number_of[1], &n, err));
    RU_TRY(two(l, RU_OP_CastLike, k, l->in[0], &k, err));
    RU_TRY(two(l, RU_OP_CastLike, n, l->in[0], &n, err));
    RU_TRY(two(l, RU_OP_Div, k, n, &k, err));
    RU_TRY(number(l, 1, l->in[0], &n, err));
    return two(l, RU_OP_Sub, n, k, out, err);
}

/* `in` with the sizes of `shape`, by an op whose second input is a list. */
static ru_status shaped(rui_lift *l, ru_op op, ru_value_id in, const int64_t *shape, uint32_t n,
                        ru_value_id *out, ru_err *err)
{
    ru_value_id list;
    RU_TRY(rui_lift_const_i64s(l, shape, n, &list, err));
    return two(l, op, in, list, out, err);
}

/* The left side: a row (1, y), or (1, y, z), for each line of places. */
static ru_status grid_lines(rui_lift *l, uint32_t r, bool align, ru_value_id *out, ru_err *err)
{
    ru_value_id parts[3], whole, list;
    int64_t one = 1, rows[2] = {-1, r};
    RU_TRY(part_of(l, l->in[1], 2, r - 1, &whole, err));
    RU_TRY(rui_lift_const_i64s(l, &one, 1, &list, err));
    RU_TRY(joined(l, (ru_value_id[]){whole, list}, 2, 0, &whole, err));
    RU_TRY(number(l, 1, l->in[0], &parts[0], err));
    for (uint32_t d = 0; d + 1 < r; d++) {
        ru_value_id *to = &parts[r - 1 - d];
        int64_t shape[3] = {1, 1, 1};
        shape[d] = -1;
        RU_TRY(coordinate(l, d, align, to, err));
        RU_TRY(shaped(l, RU_OP_Reshape, *to, shape, r, to, err));
    }
    for (uint32_t d = 0; d < r; d++) {
        RU_TRY(two(l, RU_OP_Expand, parts[d], whole, &parts[d], err));
    }
    RU_TRY(joined(l, parts, r, r - 1, out, err));
    return shaped(l, RU_OP_Reshape, *out, rows, 2, out, err);
}

/* The right side [N, r, W r]: what 1, y and z add to the places of a line, all coordinates of each
 * place side by side. */
static ru_status grid_columns(rui_lift *l, uint32_t r, bool align, ru_value_id *out, ru_err *err)
{
    ru_value_id x, wide, images, list, turned, part[4], rows[3];
    const int64_t of = r;
    ru_attr perm = {.key = RU_ATTR_perm, .kind = RU_ATTR_INTS, .n = 3};
    ru_attr axis = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = 1};
    perm.u.is = (const int64_t[]){0, 2, 1};
    RU_TRY(rui_lift_node(l, RU_OP_Transpose, l->in, 1, &perm, 1, &turned, err));
    for (int64_t k = 0; k <= r; k++) { /* [N, 1, r]: of x, y, (z,) 1 */
        RU_TRY(rui_lift_const_i64s(l, &k, 1, &list, err));
        RU_TRY(rui_lift_node(l, RU_OP_Gather, (ru_value_id[]){turned, list}, 2, &axis, 1, &part[k],
                             err));
    }
    RU_TRY(coordinate(l, r - 1, align, &x, err));
    RU_TRY(shaped(l, RU_OP_Reshape, x, (const int64_t[]){-1, 1}, 2, &x, err));
    RU_TRY(two(l, RU_OP_Mul, x, part[0], &rows[0], err));
    RU_TRY(two(l, RU_OP_Add, rows[0], part[r], &rows[0], err));
    RU_TRY(rui_lift_node(l, RU_OP_Shape, &x, 1, NULL, 0, &wide, err));
    for (uint32_t k = 1; k < r; k++) {
        RU_TRY(two(l, RU_OP_Expand, part[k], wide, &rows[k], err));
    }
    RU_TRY(joined(l, rows, r, 1, out, err));
    RU_TRY(part_of(l, l->in[1], r + 1, 1, &wide, err));
    RU_TRY(shaped(l, RU_OP_Mul, wide, &of, 1, &wide, err));
    RU_TRY(part_of(l, l->in[1], 0, 1, &images, err));
    RU_TRY(rui_lift_const_i64s(l, &of, 1, &list, err));
    RU_TRY(joined(l, (ru_value_id[]){images, list, wide}, 3, 0, &wide, err));
    return two(l, RU_OP_Reshape, *out, wide, out, err);
}

/* theta [N, r, r + 1] times the coordinates (x, y, .., 1) of each place of an image of `size`
 * [N, C, ..]: [N, .., r]. Places of a line differ in x alone, so that a line is a sum of r lines:
 * a product of wide rows, where one of a row for each place would have r columns. */
static ru_status affine_grid(rui_lift *l, ru_err *err)
{
    RU_TRY(inputs_are(l, 2, err));
    const ru_type *theta = rui_lift_type(l, 0), *size = rui_lift_type(l, 1);
    const bool align = rui_lift_take_int(l, "align_corners", 0) != 0;
    int64_t r = theta != NULL && theta->rank == 3 ? theta->dims[1] : 2;
    bool known = theta != NULL && size != NULL;
    if (known && (theta->rank != 3 || (r != 2 && r != 3) || theta->dims[2] != r + 1 ||
                  size->rank != 1 || size->dims[0] != r + 2 || !ru_dtype_is_float(theta->dtype))) {
        return RU_FAIL(err, RU_E_DATA,
                       "expected theta [N, 2, 3] and 4 sizes, or [N, 3, 4] and 5 sizes");
    }
    ru_value_id space, images, list, lines, columns, grid;
    RU_TRY(grid_lines(l, (uint32_t)r, align, &lines, err));
    RU_TRY(grid_columns(l, (uint32_t)r, align, &columns, err));
    RU_TRY(two(l, RU_OP_MatMul, lines, columns, &grid, err));
    RU_TRY(part_of(l, l->in[1], 0, 1, &images, err));
    RU_TRY(part_of(l, l->in[1], 2, r, &space, err));
    RU_TRY(rui_lift_const_i64s(l, &r, 1, &list, err));
    RU_TRY(joined(l, (ru_value_id[]){images, space, list}, 3, 0, &images, err));
    return two(l, RU_OP_Reshape, grid, images, l->out, err);
}

/* Columns [from, to) of a table. */
static ru_status columns_of(rui_lift *l, ru_value_id table, int64_t from, int64_t to,
                            ru_value_id *out, ru_err *err)
{
    const int64_t axis = 1;
    ru_value_id in[4] = {table};
    RU_TRY(rui_lift_const_i64s(l, &from, 1, &in[1], err));
    RU_TRY(rui_lift_const_i64s(l, &to, 1, &in[2], err));
    RU_TRY(rui_lift_const_i64s(l, &axis, 1, &in[3], err));
    return rui_lift_node(l, RU_OP_Slice, in, 4, NULL, 0, out, err);
}

/* A row of the regions is (image, x1, y1, x2, y2): RoiAlign with a pooled_shape, which takes images
 * as a list of their own. */
static ru_status max_roi_pool(rui_lift *l, ru_err *err)
{
    RU_TRY(inputs_are(l, 2, err));
    const rui_onnx_attr *shape = rui_lift_take(l, "pooled_shape");
    const ru_type *rois = rui_lift_type(l, 1);
    bool five = rois == NULL ||
                (rois->rank == 2 && (rois->dims[1] == 5 || ru_dim_is_symbolic(rois->dims[1])));
    if (shape == NULL || shape->type != RUI_ONNX_INTS || shape->n != 2 || !five) {
        return RU_FAIL(err, RU_E_DATA, "expected regions [R, 5] and a pooled_shape of 2 integers");
    }
    const ru_attr attrs[] = {
        {.key = RU_ATTR_pooled_shape, .kind = RU_ATTR_INTS, .n = 2, .u.is = shape->is},
        {.key = RU_ATTR_spatial_scale,
         .kind = RU_ATTR_FLOAT,
         .n = 1,
         .u.f = float_take(l, "spatial_scale", 1)}};
    ru_value_id in[3] = {l->in[0]};
    RU_TRY(columns_of(l, l->in[1], 1, 5, &in[1], err));
    RU_TRY(columns_of(l, l->in[1], 0, 1, &in[2], err));
    RU_TRY(shaped(l, RU_OP_Reshape, in[2], (const int64_t[]){-1}, 1, &in[2], err));
    RU_TRY(cast(l, in[2], RU_I64, &in[2], err));
    return rui_lift_node(l, RU_OP_RoiAlign, in, 3, attrs, RU_ARRAY_LEN(attrs), l->out, err);
}

static const struct {
    const char *op;
    ru_status (*fn)(rui_lift *l, ru_err *err);
} rows[] = {
    {"AffineGrid", affine_grid},
    {"MaxRoiPool", max_roi_pool},
    {"RMSNormalization", rms_normalization},
    {"SwiGLU", swiglu},
    {"Swish", swish},
};

bool rui_lift_later(const char *domain, const char *op, rui_lift *l, ru_status *status, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (strcmp(rows[k].op, op) != 0 || domain[0] != 0) {
            continue;
        }
        if (l != NULL) {
            *status = rows[k].fn(l, err);
            l->done = true;
            for (uint32_t i = 0; i < l->n_raw && *status == RU_OK; i++) {
                *status = l->taken[i] ? RU_OK
                                      : RU_FAIL(err, RU_E_UNSUPPORTED,
                                                "attribute '%s' is not known", l->raw[i].name);
            }
        }
        return true;
    }
    return false;
}

/* The result's type is told apart from the scale's since 23. */
static ru_status dequantize_type(rui_lift *l, ru_err *err)
{
    const ru_type *scale = rui_lift_type(l, 1);
    int64_t want = rui_lift_take_int(l, "output_dtype", 0);
    ru_dtype to = ru_dtype_from_onnx((int32_t)want);
    if (want == 0 || (scale != NULL && scale->dtype == to)) {
        return RU_OK;
    }
    if (!ru_dtype_is_float(to)) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "output_dtype %lld is no type of floats here",
                       (long long)want);
    }
    RU_TRY(rui_lift_emit(l, err));
    l->done = true;
    return cast(l, l->out[0], to, l->out, err);
}

/* The division is computed in f32 for every type of the scale. */
static ru_status quantize_precision(rui_lift *l, ru_err *err)
{
    int64_t want = rui_lift_take_int(l, "precision", 0);
    return want == 0 || want == ru_dtype_onnx(RU_F32)
               ? RU_OK
               : RU_FAIL(err, RU_E_UNSUPPORTED, "precision %lld is not supported; write 1 (float)",
                         (long long)want);
}

/* Ranges of half precision are computed in f32 (stash_type 1, the default of 27). */
static ru_status range_narrow(rui_lift *l, ru_err *err)
{
    const ru_type *t = rui_lift_type(l, 0);
    int64_t stash = rui_lift_take_int(l, "stash_type", ru_dtype_onnx(RU_F32));
    if (t == NULL || (t->dtype != RU_F16 && t->dtype != RU_BF16)) {
        return RU_OK;
    }
    ru_dtype was = t->dtype;
    if (stash != ru_dtype_onnx(RU_F32)) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "stash_type %lld is not supported; write 1 (float)",
                       (long long)stash);
    }
    for (uint32_t k = 0; k < l->n_in; k++) {
        RU_TRY(cast(l, l->in[k], RU_F32, &l->in[k], err));
    }
    RU_TRY(rui_lift_emit(l, err));
    l->done = true;
    return cast(l, l->out[0], was, l->out, err);
}

static ru_status space_to_depth(rui_lift *l, ru_err *err)
{
    const rui_onnx_attr *mode = rui_lift_take(l, "mode");
    return mode == NULL || (mode->s != NULL && strcmp(mode->s, "DCR") == 0)
               ? RU_OK
               : RU_FAIL(err, RU_E_UNSUPPORTED,
                         "mode CRD is not supported; write it as Reshape, Transpose, Reshape");
}

/* How a cast to float8e8m0 rounds, which is no type here: it changes nothing of other casts. */
static ru_status cast_rounding(rui_lift *l, ru_err *err)
{
    const rui_onnx_attr *mode = l->opset >= 24 ? rui_lift_take(l, "round_mode") : NULL;
    const char *name = mode != NULL && mode->s != NULL ? mode->s : "";
    return mode == NULL || strcmp(name, "up") == 0 || strcmp(name, "down") == 0 ||
                   strcmp(name, "nearest") == 0
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "round_mode '%s' is none of up, down, nearest", name);
}

ru_status rui_lift_later_attrs(rui_lift *l, ru_err *err)
{
    return l->op == RU_OP_DequantizeLinear                  ? dequantize_type(l, err)
           : l->op == RU_OP_Cast || l->op == RU_OP_CastLike ? cast_rounding(l, err)
           : l->op == RU_OP_Range                           ? range_narrow(l, err)
           : l->op == RU_OP_SpaceToDepth                    ? space_to_depth(l, err)
                                                            : quantize_precision(l, err);
}
