/* What older opsets say differently, op by op.
 *
 * Each rule stands with the opset that ended its meaning. Source: Changelog.md of the ONNX project,
 * the version history of each operator. */
#include "world/onnx/onnx_lift.h"

#include <string.h>

typedef ru_status (*rule_fn)(rui_lift *l, ru_err *err);

/* -- attributes that became inputs ------------------------------------------------------------- */

static ru_status ints_to_input(rui_lift *l, const char *name, uint32_t k, ru_err *err)
{
    const rui_onnx_attr *a = rui_lift_take(l, name);
    if (a == NULL) {
        return RU_OK;
    }
    if (a->type != RUI_ONNX_INTS && a->type != RUI_ONNX_INT) {
        return RU_FAIL(err, RU_E_DATA, "attribute '%s' should be a list of integers", name);
    }
    ru_value_id v;
    bool one = a->type == RUI_ONNX_INT;
    RU_TRY(rui_lift_const_i64s(l, one ? &a->i : a->is, one ? 1 : a->n, &v, err));
    return rui_lift_set_in(l, k, v, err);
}

/* A float attribute as a scalar of input 0's dtype. */
static ru_status float_to_input(rui_lift *l, const char *name, uint32_t k, ru_err *err)
{
    const rui_onnx_attr *a = rui_lift_take(l, name);
    if (a == NULL) {
        return RU_OK;
    }
    if (a->type != RUI_ONNX_FLOAT) {
        return RU_FAIL(err, RU_E_DATA, "attribute '%s' should be a number", name);
    }
    float x = (float)a->f;
    ru_value_id v;
    RU_TRY(rui_lift_const_f32s(l, &x, 1, true, &v, err));
    const ru_type *t = rui_lift_type(l, 0);
    if (t != NULL && t->dtype != RU_F32) {
        ru_attr to = {
            .key = RU_ATTR_to, .kind = RU_ATTR_INT, .n = 1, .u.i = ru_dtype_onnx(t->dtype)};
        RU_TRY(rui_lift_node(l, RU_OP_Cast, &v, 1, &to, 1, &v, err));
    }
    return rui_lift_set_in(l, k, v, err);
}

static ru_status axes_input(rui_lift *l, ru_err *err)
{
    return ints_to_input(l, "axes", 1, err);
}

static ru_status split_input(rui_lift *l, ru_err *err)
{
    return ints_to_input(l, "split", 1, err);
}

static ru_status reshape_input(rui_lift *l, ru_err *err)
{
    return ints_to_input(l, "shape", 1, err);
}

static ru_status topk_input(rui_lift *l, ru_err *err)
{
    return ints_to_input(l, "k", 1, err);
}

static ru_status clip_inputs(rui_lift *l, ru_err *err)
{
    RU_TRY(float_to_input(l, "min", 1, err));
    return float_to_input(l, "max", 2, err);
}

static ru_status dropout_input(rui_lift *l, ru_err *err)
{
    (void)rui_lift_take(l, "is_test");
    const rui_onnx_attr *a = rui_lift_take(l, "ratio");
    float ratio = a != NULL ? (float)a->f : 0.5F;
    ru_value_id v;
    RU_TRY(rui_lift_const_f32s(l, &ratio, 1, true, &v, err));
    return rui_lift_set_in(l, 1, v, err);
}

static ru_status pad_inputs(rui_lift *l, ru_err *err)
{
    RU_TRY(ints_to_input(l, "paddings", 1, err));
    RU_TRY(ints_to_input(l, "pads", 1, err));
    return float_to_input(l, "value", 2, err);
}

static ru_status slice_inputs(rui_lift *l, ru_err *err)
{
    RU_TRY(ints_to_input(l, "starts", 1, err));
    RU_TRY(ints_to_input(l, "ends", 2, err));
    return ints_to_input(l, "axes", 3, err);
}

/* "From the very start" is often written as the least integer, which inference uses for "not
 * known": any number below every size means the same. */
static ru_status slice_bounds(rui_lift *l, ru_err *err)
{
    const int64_t low = -(INT64_C(1) << 60);
    for (uint32_t k = 1; k <= 2 && k < l->n_in; k++) {
        const ru_value *v = ru_graph_value(l->g, l->in[k]);
        if (v->kind != RU_VALUE_CONST || v->type.dtype != RU_I64 || v->type.rank != 1 ||
            v->data == NULL || v->type.dims[0] > RU_RANK_MAX) {
            continue;
        }
        const int64_t *had = v->data;
        int64_t now[RU_RANK_MAX];
        bool changed = false;
        for (int64_t i = 0; i < v->type.dims[0]; i++) {
            now[i] = had[i] < low ? low : had[i];
            changed = changed || now[i] != had[i];
        }
        if (changed) {
            RU_TRY(rui_lift_const_i64s(l, now, (uint32_t)v->type.dims[0], &l->in[k], err));
        }
    }
    return RU_OK;
}

/* The axis became an input in 20. */
static ru_status dft_axis_input(rui_lift *l, ru_err *err)
{
    ru_type scalar = {.dtype = RU_I64};
    int64_t axis = rui_lift_take_int(l, "axis", 1);
    ru_value_id v;
    RU_TRY(rui_lift_const(l, &scalar, &axis, &v, err));
    return rui_lift_set_in(l, 2, v, err);
}

/* Pads stand for the zero point, which may be known at the run only: the image is padded with it
 * before, so that what the convolution sees is the same everywhere. */
static ru_status convinteger_pads(rui_lift *l, ru_err *err)
{
    const rui_onnx_attr *pads = NULL;
    const ru_type *t = rui_lift_type(l, 0);
    int64_t all[2 * RU_RANK_MAX] = {0};
    for (uint32_t k = 0; k < l->n_raw; k++) {
        bool is = strcmp(l->raw[k].name, "pads") == 0 && l->raw[k].type == RUI_ONNX_INTS;
        pads = is ? &l->raw[k] : pads;
    }
    if (l->n_in < 3 || l->in[2].v == 0 || pads == NULL || t == NULL || t->rank < 3 ||
        pads->n != 2 * (t->rank - 2)) {
        return RU_OK; /* nothing to pad with, or pads that the shape rule refuses */
    }
    for (uint32_t k = 0; k < pads->n; k++) {
        if (pads->is[k] < 0) {
            return RU_OK;
        }
        all[k + (k < t->rank - 2 ? 2 : 4)] = pads->is[k];
    }
    (void)rui_lift_take(l, "pads");
    ru_value_id in[3] = {l->in[0], {0}, l->in[2]};
    RU_TRY(rui_lift_const_i64s(l, all, 2 * t->rank, &in[1], err));
    return rui_lift_node(l, RU_OP_Pad, in, 3, NULL, 0, &l->in[0], err);
}

/* Modes have other names since 20. */
static ru_status gridsample_modes(rui_lift *l, ru_err *err)
{
    (void)err;
    const rui_onnx_attr *mode = rui_lift_take(l, "mode");
    const char *had = mode != NULL && mode->s != NULL ? mode->s : "bilinear";
    rui_lift_dflt_str(l, RU_ATTR_mode,
                      strcmp(had, "bilinear") == 0  ? "linear"
                      : strcmp(had, "bicubic") == 0 ? "cubic"
                                                    : had);
    return RU_OK;
}

/* Regions began at whole places before 16. */
static ru_status roialign_old(rui_lift *l, ru_err *err)
{
    (void)err;
    rui_lift_dflt_str(l, RU_ATTR_coordinate_transformation_mode, "output_half_pixel");
    return RU_OK;
}

/* -- resizing ---------------------------------------------------------------------------------- */

/* Upsample (to 9) and Resize 10 know one geometry: asymmetric coordinates, floor. */
static void resize_old_geometry(rui_lift *l)
{
    const rui_onnx_attr *mode = rui_lift_take(l, "mode");
    bool linear = mode != NULL && mode->s != NULL && strcmp(mode->s, "nearest") != 0;
    rui_lift_dflt_str(l, RU_ATTR_mode, linear ? "linear" : "nearest");
    rui_lift_dflt_str(l, RU_ATTR_coordinate_transformation_mode, "asymmetric");
    rui_lift_dflt_str(l, RU_ATTR_nearest_mode, "floor");
}

static ru_status upsample(rui_lift *l, ru_err *err)
{
    l->op = RU_OP_Resize;
    const rui_onnx_attr *scales = rui_lift_take(l, "scales");
    const rui_onnx_attr *w = rui_lift_take(l, "width_scale");
    const rui_onnx_attr *h = rui_lift_take(l, "height_scale");
    float f[RU_RANK_MAX] = {1, 1, h != NULL ? (float)h->f : 1, w != NULL ? (float)w->f : 1};
    uint32_t n = 4;
    if (scales != NULL) {
        if (scales->type != RUI_ONNX_FLOATS || scales->n > RU_RANK_MAX) {
            return RU_FAIL(err, RU_E_DATA, "attribute 'scales' should be a list of numbers");
        }
        n = scales->n;
        for (uint32_t k = 0; k < n; k++) {
            f[k] = (float)scales->fs[k];
        }
    }
    ru_value_id v = l->n_in > 1 ? l->in[1] : (ru_value_id){0};
    if (v.v == 0) {
        RU_TRY(rui_lift_const_f32s(l, f, n, false, &v, err));
    }
    l->n_in = 1;
    resize_old_geometry(l);
    return rui_lift_set_in(l, 2, v, err);
}

static ru_status resize_10(rui_lift *l, ru_err *err)
{
    if (l->n_in != 2) {
        return RU_FAIL(err, RU_E_DATA, "Resize of opset 10 takes 2 inputs, not %u", l->n_in);
    }
    ru_value_id scales = l->in[1];
    l->n_in = 1;
    resize_old_geometry(l);
    return rui_lift_set_in(l, 2, scales, err);
}

/* Opset 11 wrote "not given" as a tensor without elements. */
static ru_status resize_empty(rui_lift *l, ru_err *err)
{
    (void)err;
    for (uint32_t k = 1; k < l->n_in; k++) {
        const ru_type *t = rui_lift_type(l, k);
        if (t != NULL && ru_type_count(t) == 0) {
            l->in[k] = (ru_value_id){0};
        }
    }
    return RU_OK;
}

/* -- softmax before 13: over everything from `axis` on ----------------------------------------- */

static ru_status softmax_flat(rui_lift *l, ru_err *err)
{
    int64_t axis = rui_lift_take_int(l, "axis", 1);
    const ru_type *t = rui_lift_type(l, 0);
    if (t == NULL) {
        return RU_OK;
    }
    int64_t rank = (int64_t)t->rank;
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis > rank) {
        return RU_FAIL(err, RU_E_DATA, "axis %lld of a tensor of rank %lld", (long long)axis,
                       (long long)rank);
    }
    if (axis == rank - 1) {
        rui_lift_dflt_int(l, RU_ATTR_axis, -1);
        return RU_OK;
    }
    ru_attr at = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = axis};
    ru_attr last = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = -1};
    ru_value_id shape, flat, y;
    RU_TRY(rui_lift_node(l, RU_OP_Shape, l->in, 1, NULL, 0, &shape, err));
    RU_TRY(rui_lift_node(l, RU_OP_Flatten, l->in, 1, &at, 1, &flat, err));
    RU_TRY(rui_lift_node(l, l->op, &flat, 1, &last, 1, &y, err));
    l->op = RU_OP_Reshape;
    l->in[0] = y;
    return rui_lift_set_in(l, 1, shape, err);
}

/* -- normalisation ----------------------------------------------------------------------------- */

static void batchnorm_trains(rui_lift *l)
{
    l->op = RU_OP_BatchNormTrain;
    rui_lift_dflt_float(l, RU_ATTR_epsilon, 1e-5);
    rui_lift_dflt_float(l, RU_ATTR_momentum, 0.9);
}

/* Before 14 five outputs say that it trains. */
static ru_status batchnorm_old(rui_lift *l, ru_err *err)
{
    (void)rui_lift_take(l, "is_test");
    if (rui_lift_take_int(l, "spatial", 1) != 1) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "spatial = 0 (statistics per pixel) is not supported");
    }
    if (l->n_out_model == 5) { /* the fourth and fifth have no meaning that was written down */
        l->n_out_model = 3;
        batchnorm_trains(l);
    }
    return RU_OK;
}

/* A mode that is written down stays: beside others that train, 0 means frozen. */
static ru_status batchnorm(rui_lift *l, ru_err *err)
{
    (void)err;
    const rui_onnx_attr *mode = rui_lift_take(l, "training_mode");
    if (mode != NULL && mode->i != 0) {
        batchnorm_trains(l);
    } else if (mode != NULL) {
        rui_lift_dflt_int(l, RU_ATTR_training_mode, 0);
    }
    l->n_out = l->op == RU_OP_BatchNormTrain ? 5 : 1;
    return RU_OK;
}

/* Scale and bias were per group, [num_groups]; they are per channel now. */
static ru_status groupnorm_per_channel(rui_lift *l, ru_err *err)
{
    int64_t groups = 0;
    for (uint32_t k = 0; k < l->n_raw; k++) {
        if (strcmp(l->raw[k].name, "num_groups") == 0 && l->raw[k].type == RUI_ONNX_INT) {
            groups = l->raw[k].i;
        }
    }
    if (groups <= 0 || l->n_in != 3) {
        return RU_FAIL(err, RU_E_DATA, "it needs 3 inputs and num_groups above 0");
    }
    ru_attr range[2] = {{.key = RU_ATTR_start, .kind = RU_ATTR_INT, .n = 1, .u.i = 1},
                        {.key = RU_ATTR_end, .kind = RU_ATTR_INT, .n = 1, .u.i = 2}};
    ru_attr axis = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = 0};
    ru_value_id g, channels, per, shape[2], one, flat;
    RU_TRY(rui_lift_const_i64s(l, &groups, 1, &g, err));
    RU_TRY(rui_lift_const_i64s(l, (int64_t[]){1}, 1, &one, err));
    RU_TRY(rui_lift_const_i64s(l, (int64_t[]){-1}, 1, &flat, err));
    RU_TRY(rui_lift_node(l, RU_OP_Shape, l->in, 1, range, 2, &channels, err));
    RU_TRY(rui_lift_node(l, RU_OP_Div, (ru_value_id[]){channels, g}, 2, NULL, 0, &per, err));
    shape[0] = g;
    shape[1] = per;
    RU_TRY(rui_lift_node(l, RU_OP_Concat, shape, 2, &axis, 1, &shape[0], err));
    for (uint32_t k = 1; k <= 2; k++) {
        ru_value_id v;
        RU_TRY(
            rui_lift_node(l, RU_OP_Unsqueeze, (ru_value_id[]){l->in[k], one}, 2, NULL, 0, &v, err));
        RU_TRY(rui_lift_node(l, RU_OP_Expand, (ru_value_id[]){v, shape[0]}, 2, NULL, 0, &v, err));
        RU_TRY(
            rui_lift_node(l, RU_OP_Reshape, (ru_value_id[]){v, flat}, 2, NULL, 0, &l->in[k], err));
    }
    return RU_OK;
}

/* -- broadcasting before 7 --------------------------------------------------------------------- */

/* broadcast = 1 lays the second operand's dims along the first's from `axis` on (default: last). */
static ru_status broadcast_old(rui_lift *l, ru_err *err)
{
    int64_t on = rui_lift_take_int(l, "broadcast", 0);
    const rui_onnx_attr *axis = rui_lift_take(l, "axis");
    const ru_type *x = rui_lift_type(l, 0);
    const ru_type *y = rui_lift_type(l, 1);
    if (on == 0 || axis == NULL || x == NULL || y == NULL || l->n_in != 2) {
        return RU_OK;
    }
    int64_t at = axis->i < 0 ? axis->i + (int64_t)x->rank : axis->i;
    int64_t behind = (int64_t)x->rank - at - (int64_t)y->rank;
    if (at < 0 || behind < 0) {
        return RU_FAIL(err, RU_E_DATA, "axis %lld does not fit the operands", (long long)axis->i);
    }
    int64_t axes[RU_RANK_MAX];
    for (int64_t k = 0; k < behind; k++) {
        axes[k] = (int64_t)y->rank + k;
    }
    ru_value_id v;
    RU_TRY(rui_lift_const_i64s(l, axes, (uint32_t)behind, &v, err));
    return rui_lift_node(l, RU_OP_Unsqueeze, (ru_value_id[]){l->in[1], v}, 2, NULL, 0, &l->in[1],
                         err);
}

/* The slope was [1] or one per channel. */
static ru_status prelu_old(rui_lift *l, ru_err *err)
{
    const ru_type *x = rui_lift_type(l, 0);
    const ru_type *s = rui_lift_type(l, 1);
    if (x == NULL || s == NULL || s->rank != 1 || s->dims[0] == 1 || x->rank <= 2) {
        return RU_OK;
    }
    int64_t axes[RU_RANK_MAX];
    uint32_t n = 0;
    for (uint32_t k = 2; k < x->rank; k++) {
        axes[n++] = (int64_t)k - 1;
    }
    ru_value_id v;
    RU_TRY(rui_lift_const_i64s(l, axes, n, &v, err));
    return rui_lift_node(l, RU_OP_Unsqueeze, (ru_value_id[]){l->in[1], v}, 2, NULL, 0, &l->in[1],
                         err);
}

static ru_status gemm_old(rui_lift *l, ru_err *err)
{
    (void)err;
    (void)rui_lift_take(l, "broadcast");
    return RU_OK;
}

/* -- the rest ---------------------------------------------------------------------------------- */

static ru_status concat_old(rui_lift *l, ru_err *err)
{
    (void)err;
    rui_lift_dflt_int(l, RU_ATTR_axis, 1);
    return RU_OK;
}

static ru_status selu_old(rui_lift *l, ru_err *err)
{
    (void)err;
    rui_lift_dflt_float(l, RU_ATTR_alpha, (double)1.6732F);
    rui_lift_dflt_float(l, RU_ATTR_gamma, (double)1.0507F);
    return RU_OK;
}

static ru_status cast_old(rui_lift *l, ru_err *err)
{
    const rui_onnx_attr *to = rui_lift_take(l, "to");
    static const char *const names[] = {"",      "FLOAT", "UINT8",  "INT8", "UINT16",  "INT16",
                                        "INT32", "INT64", "STRING", "BOOL", "FLOAT16", "DOUBLE"};
    for (uint32_t k = 1; to != NULL && to->s != NULL && k < RU_ARRAY_LEN(names); k++) {
        if (strcmp(names[k], to->s) == 0) {
            rui_lift_dflt_int(l, RU_ATTR_to, k);
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_UNSUPPORTED, "a cast to '%s' is not supported",
                   to != NULL && to->s != NULL ? to->s : "nothing");
}

static ru_status rnn_old(rui_lift *l, ru_err *err)
{
    (void)err;
    (void)rui_lift_take(l, "output_sequence");
    return RU_OK;
}

static ru_status refuse_old(rui_lift *l, ru_err *err)
{
    (void)l;
    return RU_FAIL(err, RU_E_UNSUPPORTED, "the form of this op before opset 6 is not supported");
}

static ru_status scatter_rename(rui_lift *l, ru_err *err)
{
    (void)err;
    l->op = RU_OP_ScatterElements;
    return RU_OK;
}

/* Constant: the value itself, no node. */
static ru_status constant(rui_lift *l, ru_err *err)
{
    static const char *const keys[] = {"value", "value_float", "value_floats", "value_int",
                                       "value_ints"};
    const rui_onnx_attr *a = NULL;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(keys) && a == NULL; k++) {
        a = rui_lift_take(l, keys[k]);
    }
    if (a == NULL || l->n_out_model != 1) {
        return RU_FAIL(
            err, RU_E_UNSUPPORTED,
            "it contains no tensor or number (sparse tensors and texts are not supported)");
    }
    l->done = true;
    if (a->type == RUI_ONNX_TENSOR) {
        rui_onnx_tensor t;
        const void *data = NULL;
        RU_TRY(rui_onnx_tensor_parse(a->t, l->arena, &t, err));
        rui_onnx_four_as_bytes(&t);
        if (t.external) {
            return RU_FAIL(err, RU_E_UNSUPPORTED, "its tensor is stored in another file");
        }
        RU_TRY(rui_onnx_tensor_data(&t, l->arena, &data, err));
        ru_value v = {.type = t.type, .kind = RU_VALUE_CONST, .data = data};
        return ru_graph_add_value(l->g, &v, l->out, err);
    }
    if (a->type == RUI_ONNX_FLOATS || a->type == RUI_ONNX_FLOAT) {
        bool one = a->type == RUI_ONNX_FLOAT;
        uint32_t n = one ? 1 : a->n;
        float *f = RU_NEW(l->arena, float, n);
        if (f == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena is full");
        }
        for (uint32_t k = 0; k < n; k++) {
            f[k] = (float)(one ? a->f : a->fs[k]);
        }
        return rui_lift_const_f32s(l, f, n, one, l->out, err);
    }
    if (a->type == RUI_ONNX_INT) {
        ru_type scalar = {.dtype = RU_I64};
        return rui_lift_const(l, &scalar, &a->i, l->out, err);
    }
    if (a->type == RUI_ONNX_INTS) {
        return rui_lift_const_i64s(l, a->is, a->n, l->out, err);
    }
    return RU_FAIL(err, RU_E_DATA, "attribute '%s' has a wrong kind", a->name);
}

/* op of the model, opset before which the rule applies (ALWAYS: at every opset) */
enum { ALWAYS = 1 << 20 };
static const struct {
    const char *op;
    int64_t before;
    rule_fn fn;
} rules[] = {
    {"Constant", ALWAYS, constant},
    {"Squeeze", 13, axes_input},
    {"Unsqueeze", 13, axes_input},
    {"ReduceSum", 13, axes_input},
    {"ReduceL1", 18, axes_input},
    {"ReduceL2", 18, axes_input},
    {"ReduceLogSum", 18, axes_input},
    {"ReduceLogSumExp", 18, axes_input},
    {"ReduceMax", 18, axes_input},
    {"ReduceMean", 18, axes_input},
    {"ReduceMin", 18, axes_input},
    {"ReduceProd", 18, axes_input},
    {"ReduceSumSquare", 18, axes_input},
    {"Split", 13, split_input},
    {"Reshape", 5, reshape_input},
    {"TopK", 10, topk_input},
    {"Clip", 11, clip_inputs},
    {"Dropout", 12, dropout_input},
    {"Pad", 11, pad_inputs},
    {"Slice", 10, slice_inputs},
    {"Slice", ALWAYS, slice_bounds},
    {"Upsample", ALWAYS, upsample},
    {"Resize", 11, resize_10},
    {"Resize", ALWAYS, resize_empty},
    {"Softmax", 13, softmax_flat},
    {"LogSoftmax", 13, softmax_flat},
    {"Hardmax", 13, softmax_flat},
    {"BatchNormalization", 14, batchnorm_old},
    {"BatchNormalization", ALWAYS, batchnorm},
    {"GroupNormalization", 21, groupnorm_per_channel},
    {"ConvInteger", ALWAYS, convinteger_pads},
    {"ConvInteger", ALWAYS, rui_lift_integer_weights},
    {"MatMulInteger", ALWAYS, rui_lift_integer_weights},
    {"Cast", ALWAYS, rui_lift_later_attrs},
    {"CastLike", ALWAYS, rui_lift_later_attrs},
    {"DequantizeLinear", ALWAYS, rui_lift_later_attrs},
    {"QuantizeLinear", ALWAYS, rui_lift_later_attrs},
    {"Range", ALWAYS, rui_lift_later_attrs},
    {"SpaceToDepth", ALWAYS, rui_lift_later_attrs},
    {"DFT", 20, dft_axis_input},
    {"GridSample", 20, gridsample_modes},
    {"RoiAlign", 16, roialign_old},
    {"Add", 7, broadcast_old},
    {"Sub", 7, broadcast_old},
    {"Mul", 7, broadcast_old},
    {"Div", 7, broadcast_old},
    {"Pow", 7, broadcast_old},
    {"And", 7, broadcast_old},
    {"Or", 7, broadcast_old},
    {"Xor", 7, broadcast_old},
    {"Equal", 7, broadcast_old},
    {"Greater", 7, broadcast_old},
    {"Less", 7, broadcast_old},
    {"PRelu", 7, prelu_old},
    {"Gemm", 7, gemm_old},
    {"Concat", 4, concat_old},
    {"Selu", 6, selu_old},
    {"Cast", 6, cast_old},
    {"Tile", 6, refuse_old},
    {"LSTM", 7, rnn_old},
    {"GRU", 7, rnn_old},
    {"RNN", 7, rnn_old},
    {"Scatter", ALWAYS, scatter_rename},
};

ru_status rui_lift_rules(rui_lift *l, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rules) && !l->done; k++) {
        if (l->opset < rules[k].before && strcmp(rules[k].op, l->op_name) == 0) {
            RU_TRY(rules[k].fn(l, err));
        }
    }
    return RU_OK;
}
