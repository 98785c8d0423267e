/* Scalers, encoders and linear models of ai.onnx.ml, and the table of its operators. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "world/onnx/onnx_ml.h"
#include "world/onnx/onnx_texts.h"

static bool is_text(const rui_ml *m, uint32_t k)
{
    return k < m->l->n_in && rui_texts_is(m->l->texts, m->l->in[k]);
}

static void text_refuse(rui_ml *m)
{
    for (uint32_t k = 0; k < m->l->n_in; k++) {
        if (is_text(m, k)) {
            rui_ml_fail(m, RU_E_DATA, "input %u is of texts, numbers were expected", k);
        }
    }
}

static void text_mark(rui_ml *m, ru_value_id v)
{
    if (rui_ml_ok(m)) {
        m->st = rui_texts_mark(m->l->texts, v, m->err);
    }
}

/* A list with one element for each column, or one for all. */
static void per_column(rui_ml *m, const char *name, uint32_t n, int64_t columns)
{
    if (n != 1 && columns >= 0 && n != columns) {
        rui_ml_fail(m, RU_E_DATA, "%s has %u elements for %lld columns", name, n,
                    (long long)columns);
    }
}

static void scaler(rui_ml *m)
{
    int64_t columns;
    uint32_t n_offset, n_scale;
    ru_value_id x = rui_ml_rows(m, false, &columns);
    const double *offset = rui_ml_floats(m, "offset", &n_offset);
    const double *scale = rui_ml_floats(m, "scale", &n_scale);
    if (offset != NULL) {
        per_column(m, "offset", n_offset, columns);
        x = rui_ml_2(m, RU_OP_Sub, x, rui_ml_list(m, offset, n_offset));
    }
    if (scale != NULL) {
        per_column(m, "scale", n_scale, columns);
        x = rui_ml_2(m, RU_OP_Mul, x, rui_ml_list(m, scale, n_scale));
    }
    rui_ml_out(m, 0, x);
}

/* A row of zeros stays as it is. */
static void normalizer(rui_ml *m)
{
    static const struct {
        const char *norm;
        ru_op op;
    } rows[] = {{"MAX", RU_OP_ReduceMax}, {"L1", RU_OP_ReduceL1}, {"L2", RU_OP_ReduceL2}};
    int64_t columns;
    const int64_t axis = 1;
    ru_value_id x = rui_ml_rows(m, false, &columns);
    const char *norm = rui_ml_str(m, "norm", "MAX");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (strcmp(rows[k].norm, norm) == 0) {
            ru_value_id in[2] = {x, rui_ml_i64s(m, &axis, 1)};
            ru_value_id size = rui_ml_node(m, rows[k].op, in, 2, NULL, 0);
            ru_value_id zero = rui_ml_2(m, RU_OP_Equal, size, rui_ml_scalar(m, 0));
            size = rui_ml_3(m, RU_OP_Where, zero, rui_ml_scalar(m, 1), size);
            rui_ml_out(m, 0, rui_ml_2(m, RU_OP_Div, x, size));
            return;
        }
    }
    rui_ml_fail(m, RU_E_DATA, "norm '%s' is none of MAX, L1, L2", norm);
}

static int64_t columns_of(const rui_ml *m, uint32_t k)
{
    const ru_type *t = rui_lift_type(m->l, k);
    return t == NULL || t->rank == 0 || ru_dim_is_symbolic(t->dims[t->rank - 1])
               ? -1
               : t->dims[t->rank - 1];
}

static void imputer(rui_ml *m)
{
    uint32_t n_floats, n_ints;
    const double *floats = rui_ml_floats(m, "imputed_value_floats", &n_floats);
    const int64_t *ints = rui_ml_ints(m, "imputed_value_int64s", &n_ints);
    double old_float = rui_ml_float(m, "replaced_value_float", 0);
    int64_t old_int = rui_ml_int(m, "replaced_value_int64", 0);
    ru_value_id x = m->l->in[0], old, with;
    if ((floats == NULL) == (ints == NULL)) {
        rui_ml_fail(m, RU_E_DATA, "it needs imputed_value_floats or imputed_value_int64s");
        return;
    }
    per_column(m, "the list of imputed values", floats != NULL ? n_floats : n_ints,
               columns_of(m, 0));
    const ru_type *t = rui_lift_type(m->l, 0);
    if (t != NULL && ru_dtype_is_float(t->dtype) != (floats != NULL)) {
        rui_ml_fail(m, RU_E_DATA, "its input is of %s, but its values are %s",
                    ru_dtype_name(t->dtype), floats != NULL ? "floats" : "integers");
        return;
    }
    ru_dtype dtype = t != NULL ? t->dtype : floats != NULL ? RU_F32 : RU_I64;
    if (floats != NULL) {
        with = rui_ml_cast(m, rui_ml_list(m, floats, n_floats), dtype);
        old = isnan(old_float)
                  ? rui_ml_1(m, RU_OP_IsNaN, x)
                  : rui_ml_2(m, RU_OP_Equal, x, rui_ml_cast(m, rui_ml_scalar(m, old_float), dtype));
    } else {
        with = rui_ml_cast(m, rui_ml_i64s(m, ints, n_ints), dtype);
        old = rui_ml_2(m, RU_OP_Equal, x, rui_ml_cast(m, rui_ml_i64s(m, &old_int, 1), dtype));
    }
    rui_ml_out(m, 0, rui_ml_3(m, RU_OP_Where, old, with, x));
}

static void binarizer(rui_ml *m)
{
    double threshold = rui_ml_float(m, "threshold", 0);
    const ru_type *t = rui_lift_type(m->l, 0);
    ru_dtype dtype = t != NULL ? t->dtype : RU_F32;
    ru_value_id at = rui_ml_cast(m, rui_ml_scalar(m, threshold), dtype);
    ru_value_id above = rui_ml_2(m, RU_OP_Greater, m->l->in[0], at);
    rui_ml_out(m, 0, rui_ml_cast(m, above, dtype));
}

/* Numbers of texts. */
static const int64_t *codes_of(rui_ml *m, const char *const *text, uint32_t n)
{
    int64_t *codes = rui_ml_alloc(m, n * (int64_t)sizeof *codes);
    for (uint32_t k = 0; codes != NULL && k < n && rui_ml_ok(m); k++) {
        m->st = ru_texts_code(&m->l->texts->words, text[k], &codes[k], m->err);
    }
    return codes;
}

/* -- encoders ---------------------------------------------------------------------------------- */

/* Keys or values of an encoder: a list of one kind. */
typedef struct column {
    const double *floats;
    const int64_t *ints; /* numbers of texts when `text` */
    uint32_t n;
    bool text;
    ru_dtype dtype;  /* F32, F64 or I64 */
    ru_dtype narrow; /* I32 or I16: what the model calls these I64; else NONE */
} column;

/* Integers of 16, 32 and 64 bits, floats, doubles or texts. */
static column column_tensor(rui_ml *m, const char *name, const rui_onnx_attr *a)
{
    enum { TEXTS = 8 };
    const void *data = NULL;
    rui_onnx_tensor tensor = {0}, *t = &tensor;
    if (a->type == RUI_ONNX_TENSOR) {
        m->st = rui_onnx_tensor_parse(a->t, m->l->arena, t, m->err);
    }
    int64_t n = ru_type_count(&t->type);
    ru_dtype d = t->external ? RU_NONE : t->type.dtype;
    column c = {.dtype = RU_I64, .text = !t->external && t->data_type == TEXTS};
    if (!rui_ml_ok(m)) {
        return c;
    }
    bool real = d == RU_F32 || d == RU_F64, whole = d == RU_I64 || d == RU_I32 || d == RU_I16;
    if (n < 0 || n > INT32_MAX || !(real || whole || c.text)) {
        rui_ml_fail(m, RU_E_UNSUPPORTED, "attribute '%s' is of %s", name,
                    d == RU_NONE ? "no element type that it may have" : ru_dtype_name(d));
        return c;
    }
    m->st = c.text ? rui_texts_tensor(m->l->texts, t, &data, m->err)
                   : rui_onnx_tensor_data(t, m->l->arena, &data, m->err);
    double *floats = real ? rui_ml_alloc(m, n * (int64_t)sizeof *floats) : NULL;
    int64_t *ints = !real ? rui_ml_alloc(m, n * (int64_t)sizeof *ints) : NULL;
    for (int64_t k = 0; k < n && rui_ml_ok(m); k++) {
        if (real) {
            floats[k] = d == RU_F64 ? ((const double *)data)[k] : (double)((const float *)data)[k];
        } else {
            ints[k] = d == RU_I32   ? ((const int32_t *)data)[k]
                      : d == RU_I16 ? ((const int16_t *)data)[k]
                                    : ((const int64_t *)data)[k];
        }
    }
    c.floats = floats;
    c.ints = ints;
    c.n = rui_ml_ok(m) ? (uint32_t)n : 0;
    c.dtype = real ? d : RU_I64;
    c.narrow = d == RU_I32 || d == RU_I16 ? d : RU_NONE;
    return c;
}

static column column_take(rui_ml *m, const char *head)
{
    char name[64];
    column c = {.dtype = RU_NONE};
    uint32_t n;
    snprintf(name, sizeof name, "%s_tensor", head);
    const rui_onnx_attr *tensor = rui_lift_take(m->l, name);
    if (tensor != NULL) {
        return column_tensor(m, name, tensor);
    }
    snprintf(name, sizeof name, "%s_floats", head);
    const double *floats = rui_ml_floats(m, name, &n);
    if (floats != NULL) {
        return (column){.floats = floats, .n = n, .dtype = RU_F32};
    }
    snprintf(name, sizeof name, "%s_int64s", head);
    const int64_t *ints = rui_ml_ints(m, name, &n);
    if (ints != NULL) {
        return (column){.ints = ints, .n = n, .dtype = RU_I64};
    }
    snprintf(name, sizeof name, "%s_strings", head);
    const char *const *text = rui_ml_strs(m, name, &n);
    if (text != NULL) {
        return (column){.ints = codes_of(m, text, n), .n = n, .text = true, .dtype = RU_I64};
    }
    rui_ml_fail(m, RU_E_DATA, "it has no %s_int64s, %s_floats or %s_strings", head, head, head);
    return c;
}

static bool above(const column *c, uint32_t a, uint32_t b)
{
    if (c->dtype == RU_I64) {
        return c->ints[a] > c->ints[b];
    }
    /* NaN stands last */
    return isnan(c->floats[a]) ? !isnan(c->floats[b]) : c->floats[a] > c->floats[b];
}

static void sift(const column *c, uint32_t *order, uint32_t at, uint32_t n)
{
    for (uint32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && above(c, order[child + 1], order[child]) ? 1 : 0;
        if (!above(c, order[child], order[at])) {
            return;
        }
        uint32_t swap = order[at];
        order[at] = order[child];
        order[child] = swap;
        at = child;
    }
}

/* Places of the elements, smallest first (heap sort). */
static uint32_t *order_of(rui_ml *m, const column *c)
{
    uint32_t *order = rui_ml_alloc(m, c->n * (int64_t)sizeof *order);
    for (uint32_t k = 0; order != NULL && k < c->n; k++) {
        order[k] = k;
    }
    for (uint32_t k = c->n / 2; order != NULL && k-- > 0;) {
        sift(c, order, k, c->n);
    }
    for (uint32_t n = c->n; order != NULL && n-- > 1;) {
        uint32_t swap = order[0];
        order[0] = order[n];
        order[n] = swap;
        sift(c, order, 0, n);
    }
    return order;
}

/* The column as a constant, in that order. */
static ru_value_id column_put(rui_ml *m, const column *c, const uint32_t *order)
{
    ru_type t = {.dtype = c->dtype, .rank = 1, .dims = {c->n}};
    void *data = rui_ml_alloc(m, c->n * 8);
    ru_value_id out = {0};
    for (uint32_t k = 0; data != NULL && k < c->n; k++) {
        if (c->dtype == RU_I64) {
            ((int64_t *)data)[k] = c->ints[order[k]];
        } else if (c->dtype == RU_F64) {
            ((double *)data)[k] = c->floats[order[k]];
        } else {
            ((float *)data)[k] = (float)c->floats[order[k]];
        }
    }
    if (rui_ml_ok(m)) {
        m->st = rui_lift_const(m->l, &t, data, &out, m->err);
    }
    return out;
}

/* The value of the key that equals x; dflt (one element) where there is none, and an error of the
 * run without dflt. */
static ru_value_id look_up(rui_ml *m, ru_value_id x, const column *keys, const column *values,
                           const column *dflt)
{
    if (keys->n != values->n) {
        rui_ml_fail(m, RU_E_DATA, "it has %u keys and %u values", keys->n, values->n);
        return x;
    }
    uint32_t *order = order_of(m, keys), zero = 0;
    ru_value_id in[4] = {x, column_put(m, keys, order), column_put(m, values, order)};
    for (uint32_t k = 1; order != NULL && k < keys->n; k++) {
        if (!above(keys, order[k], order[k - 1])) {
            rui_ml_fail(m, RU_E_DATA, "key %u stands there twice", order[k]);
        }
    }
    if (dflt != NULL) {
        in[3] = column_put(m, dflt, &zero);
    }
    return rui_ml_node(m, RU_OP_LookUp, in, dflt != NULL ? 4 : 3, NULL, 0);
}

static bool raw_has(const rui_ml *m, const char *name)
{
    for (uint32_t k = 0; k < m->l->n_raw; k++) {
        if (strcmp(m->l->raw[k].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The default of an encoder's values, as the standard gives it when the model does not. */
static column default_of(rui_ml *m, const column *values)
{
    static const double minus_zero = -0.0;
    int64_t *ints = rui_ml_alloc(m, sizeof *ints);
    double *floats = rui_ml_alloc(m, sizeof *floats);
    const char *text = rui_ml_str(m, "default_string", "_Unused");
    column c = {.n = 1,
                .dtype = values->dtype,
                .narrow = values->narrow,
                .text = values->text,
                .ints = ints,
                .floats = floats};
    if (!rui_ml_ok(m)) {
        return c;
    }
    *ints = rui_ml_int(m, "default_int64", -1);
    *floats = rui_ml_float(m, "default_float", minus_zero);
    if (raw_has(m, "default_tensor")) {
        return column_take(m, "default");
    }
    if (values->text) {
        c.ints = codes_of(m, &text, 1);
    }
    return c;
}

static void encode(rui_ml *m, const column *keys, const column *values)
{
    column dflt = default_of(m, values);
    if (is_text(m, 0) != keys->text) {
        rui_ml_fail(m, RU_E_DATA, "its input is of %s, but its keys are %s",
                    keys->text ? "numbers" : "texts", keys->text ? "texts" : "numbers");
    }
    const ru_type *t = rui_lift_type(m->l, 0);
    ru_dtype given = keys->narrow != RU_NONE ? keys->narrow : keys->dtype;
    if (t != NULL && t->dtype != given) {
        rui_ml_fail(m, RU_E_DATA, "its input is of %s, but its keys are of %s",
                    ru_dtype_name(t->dtype), ru_dtype_name(given));
    }
    if (dflt.n != 1 || dflt.dtype != values->dtype || dflt.text != values->text ||
        dflt.narrow != values->narrow) {
        rui_ml_fail(m, RU_E_DATA, "its default is not one element of its values' type");
        return;
    }
    ru_value_id x = rui_ml_cast(m, m->l->in[0], keys->dtype);
    ru_value_id y = look_up(m, x, keys, values, &dflt);
    y = values->narrow != RU_NONE ? rui_ml_cast(m, y, values->narrow) : y;
    rui_ml_out(m, 0, y);
    if (values->text) {
        text_mark(m, y);
    }
}

static column numbers_to(rui_ml *m, uint32_t n)
{
    int64_t *ints = rui_ml_alloc(m, n * (int64_t)sizeof *ints);
    for (uint32_t k = 0; ints != NULL && k < n; k++) {
        ints[k] = k;
    }
    return (column){.ints = ints, .n = n, .dtype = RU_I64};
}

static void label_encoder(rui_ml *m)
{
    uint32_t n;
    const char *const *classes = rui_ml_strs(m, "classes_strings", &n);
    if (classes != NULL) { /* version 1: texts to their places, or back */
        column text = {.ints = codes_of(m, classes, n), .n = n, .text = true, .dtype = RU_I64};
        column places = numbers_to(m, n);
        encode(m, is_text(m, 0) ? &text : &places, is_text(m, 0) ? &places : &text);
        return;
    }
    column keys = column_take(m, "keys");
    column values = column_take(m, "values");
    encode(m, &keys, &values);
}

static void category_mapper(rui_ml *m)
{
    uint32_t n, n_text;
    const int64_t *ints = rui_ml_ints(m, "cats_int64s", &n);
    const char *const *text = rui_ml_strs(m, "cats_strings", &n_text);
    column numbers = {.ints = ints, .n = n, .dtype = RU_I64};
    column texts = {.ints = codes_of(m, text, n_text), .n = n_text, .text = true, .dtype = RU_I64};
    encode(m, is_text(m, 0) ? &texts : &numbers, is_text(m, 0) ? &numbers : &texts);
}

static void one_hot(rui_ml *m)
{
    uint32_t n, n_text;
    const int64_t last = -1;
    const int64_t *cats = rui_ml_ints(m, "cats_int64s", &n);
    const char *const *text = rui_ml_strs(m, "cats_strings", &n_text);
    bool zeros = rui_ml_int(m, "zeros", 1) != 0;
    ru_value_id x = m->l->in[0];
    if ((cats == NULL) == (text == NULL) || is_text(m, 0) != (text != NULL)) {
        rui_ml_fail(m, RU_E_DATA,
                    "its input is of %s, but it needs one list of categories of the "
                    "same kind (cats_int64s or cats_strings)",
                    is_text(m, 0) ? "texts" : "numbers");
        return;
    }
    cats = text != NULL ? codes_of(m, text, n_text) : cats;
    n = text != NULL ? n_text : n;
    x = rui_ml_cast(m, x, RU_I64);
    if (!zeros) { /* an unknown category is an error */
        column keys = {.ints = cats, .n = n, .dtype = RU_I64};
        x = look_up(m, x, &keys, &keys, NULL);
    }
    x = rui_ml_2(m, RU_OP_Unsqueeze, x, rui_ml_i64s(m, &last, 1));
    ru_value_id hot = rui_ml_2(m, RU_OP_Equal, x, rui_ml_i64s(m, cats, n));
    rui_ml_out(m, 0, rui_ml_cast(m, hot, RU_F32));
}

/* -- columns ----------------------------------------------------------------------------------- */

static void feature_vectorizer(rui_ml *m)
{
    uint32_t n;
    const int64_t row[2] = {1, -1};
    const int64_t *dims = rui_ml_ints(m, "inputdimensions", &n);
    ru_value_id *in = rui_ml_alloc(m, m->l->n_in * (int64_t)sizeof *in);
    if (m->l->n_in == 0 || (dims != NULL && n != m->l->n_in)) {
        rui_ml_fail(m, RU_E_DATA, "it has %u inputs and %u inputdimensions", m->l->n_in, n);
    }
    for (uint32_t k = 0; k < m->l->n_in && rui_ml_ok(m); k++) {
        const ru_type *t = rui_lift_type(m->l, k);
        int64_t columns = columns_of(m, k);
        if (dims != NULL && columns >= 0 && columns != dims[k]) {
            rui_ml_fail(m, RU_E_DATA, "input %u has %lld columns, %lld were expected", k,
                        (long long)columns, (long long)dims[k]);
        }
        in[k] = m->l->in[k];
        if (t != NULL && t->rank == 1) {
            in[k] = rui_ml_2(m, RU_OP_Reshape, in[k], rui_ml_i64s(m, row, 2));
        }
        in[k] = rui_ml_cast(m, in[k], RU_F32);
    }
    ru_attr axis = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = 1};
    rui_ml_out(m, 0, rui_ml_node(m, RU_OP_Concat, in, m->l->n_in, &axis, 1));
}

/* Elements of the last axis; a vector counts as one row. */
static void array_feature_extractor(rui_ml *m)
{
    const int64_t row[2] = {1, -1}, flat = -1;
    if (m->l->n_in != 2) {
        rui_ml_fail(m, RU_E_DATA, "it has %u inputs, 2 were expected", m->l->n_in);
        return;
    }
    ru_value_id x = m->l->in[0];
    const ru_type *t = rui_lift_type(m->l, 0);
    if (t != NULL && t->rank == 1) {
        x = rui_ml_2(m, RU_OP_Reshape, x, rui_ml_i64s(m, row, 2));
    }
    ru_attr axis = {.key = RU_ATTR_axis, .kind = RU_ATTR_INT, .n = 1, .u.i = -1};
    ru_value_id in[2] = {x, rui_ml_2(m, RU_OP_Reshape, m->l->in[1], rui_ml_i64s(m, &flat, 1))};
    ru_value_id y = rui_ml_node(m, RU_OP_Gather, in, 2, &axis, 1);
    rui_ml_out(m, 0, y);
    if (is_text(m, 0)) {
        text_mark(m, y);
    }
}

/* -- linear models ----------------------------------------------------------------------------- */

/* x w^T + b for `n` outputs. */
static ru_value_id affine(rui_ml *m, uint32_t n, const double *w, uint32_t n_w, const double *b,
                          uint32_t n_b)
{
    int64_t columns;
    ru_value_id x = rui_ml_rows(m, false, &columns);
    if (n == 0 || w == NULL || n_w % n != 0 || (columns >= 0 && n_w / n != columns) ||
        (b != NULL && n_b != n)) {
        rui_ml_fail(m, RU_E_DATA,
                    "it has %u coefficients and %u intercepts for %u outputs of %lld features", n_w,
                    n_b, n, (long long)columns);
        return x;
    }
    ru_attr trans = {.key = RU_ATTR_transB, .kind = RU_ATTR_INT, .n = 1, .u.i = 1};
    ru_value_id in[3] = {x, rui_ml_matrix(m, w, n, n_w / n)};
    if (b != NULL) {
        in[2] = rui_ml_list(m, b, n_b);
    }
    return rui_ml_node(m, RU_OP_Gemm, in, b != NULL ? 3 : 2, &trans, 1);
}

static void linear_regressor(rui_ml *m)
{
    uint32_t n_w, n_b;
    const double *w = rui_ml_floats(m, "coefficients", &n_w);
    const double *b = rui_ml_floats(m, "intercepts", &n_b);
    int64_t n = rui_ml_int(m, "targets", 1);
    rui_ml_post post = rui_ml_post_take(m);
    ru_value_id y = affine(m, n > 0 && n < INT32_MAX ? (uint32_t)n : 0, w, n_w, b, n_b);
    rui_ml_out(m, 0, rui_ml_post_apply(m, y, post));
}

static void linear_classifier(rui_ml *m)
{
    static const int64_t none[2] = {0, 1};
    uint32_t n_w, n_b;
    const double *w = rui_ml_floats(m, "coefficients", &n_w);
    const double *b = rui_ml_floats(m, "intercepts", &n_b);
    rui_ml_labels labels = rui_ml_labels_take(m, "classlabels_ints");
    rui_ml_post post = rui_ml_post_take(m);
    rui_ml_int(m, "multi_class", 0);
    uint32_t n = b != NULL ? n_b : labels.n;
    ru_value_id y = affine(m, n, w, n_w, b, n_b);
    if (n > 1 && labels.n != n) {
        rui_ml_fail(m, RU_E_DATA, "it has %u classes and %u labels", n, labels.n);
    }
    if (n > 1) {
        rui_ml_labels_out(m, &labels, rui_ml_argmax(m, y));
        rui_ml_out(m, 1, rui_ml_post_apply(m, y, post));
        return;
    }
    bool two = labels.n == 2;
    labels = two ? labels : (rui_ml_labels){.n = 2, .ints = none};
    rui_ml_labels_out(m, &labels, rui_ml_above(m, y, 0));
    if (two) {
        y = rui_ml_post_apply(m, y, post == RUI_ML_LOGISTIC ? post : RUI_ML_NONE);
        y = rui_ml_beside(m, rui_ml_2(m, RU_OP_Sub, rui_ml_scalar(m, 1), y), y);
    }
    rui_ml_out(m, 1, y);
}

/* A list of maps from class to probability: the table itself. */
static void zip_map(rui_ml *m)
{
    rui_ml_labels_take(m, "classlabels_int64s");
    rui_ml_out(m, 0, m->l->in[0]);
    m->l->texts->maps = true;
}

/* -- the table --------------------------------------------------------------------------------- */

static const struct {
    const char *op;
    rui_ml_fn fn;
    bool texts; /* knows texts */
} rows[] = {
    {"ArrayFeatureExtractor", array_feature_extractor, true},
    {"Binarizer", binarizer, false},
    {"CategoryMapper", category_mapper, true},
    {"FeatureVectorizer", feature_vectorizer, false},
    {"Imputer", imputer, false},
    {"LabelEncoder", label_encoder, true},
    {"LinearClassifier", linear_classifier, false},
    {"LinearRegressor", linear_regressor, false},
    {"Normalizer", normalizer, false},
    {"OneHotEncoder", one_hot, true},
    {"Scaler", scaler, false},
    {"ZipMap", zip_map, false},
};

ru_status rui_lift_ml(rui_lift *l, ru_err *err)
{
    rui_ml m = {.l = l, .err = err};
    rui_ml_fn fn = rui_ml_trees_find(l->op_name);
    fn = fn != NULL ? fn : rui_ml_svm_find(l->op_name);
    bool texts = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (strcmp(rows[k].op, l->op_name) == 0) {
            fn = rows[k].fn;
            texts = rows[k].texts;
        }
    }
    if (fn == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "this operator of classical models is not supported (docs/onnx.md lists "
                       "those that are); do this step before the model");
    }
    if (l->n_in == 0 || l->in[0].v == 0) {
        return RU_FAIL(err, RU_E_DATA, "it has no input");
    }
    if (!texts) {
        text_refuse(&m);
    }
    if (rui_ml_ok(&m)) {
        fn(&m);
    }
    for (uint32_t k = 0; k < l->n_raw && rui_ml_ok(&m); k++) {
        if (!l->taken[k]) {
            rui_ml_fail(&m, RU_E_UNSUPPORTED, "attribute '%s' is not known", l->raw[k].name);
        }
    }
    for (uint32_t k = 0; k < l->n_out_model && rui_ml_ok(&m); k++) {
        if (l->wanted[k] && l->out[k].v == 0) {
            rui_ml_fail(&m, RU_E_DATA, "it has no output %u", k);
        }
    }
    l->done = true;
    return m.st;
}
