/* What the operators of ai.onnx.ml share: attributes, nodes, labels, transforms of scores. */
#include "world/onnx/onnx_ml.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "world/onnx/onnx_texts.h"

bool rui_ml_ok(const rui_ml *m)
{
    return m->st == RU_OK;
}

void rui_ml_fail(rui_ml *m, ru_status st, const char *fmt, ...)
{
    if (!rui_ml_ok(m)) {
        return;
    }
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    m->st = RU_FAIL(m->err, st, "%s", text);
}

void *rui_ml_alloc(rui_ml *m, int64_t size_bytes)
{
    void *p = rui_ml_ok(m) ? ru_arena_zalloc(m->l->arena, size_bytes, 64) : NULL;
    if (p == NULL) {
        rui_ml_fail(m, RU_E_LIMIT, "the arena is full");
    }
    return p;
}

/* -- attributes -------------------------------------------------------------------------------- */

/* The attribute when it is set, and of that kind. */
static const rui_onnx_attr *take(rui_ml *m, const char *name, rui_onnx_attr_type type,
                                 const char *kind)
{
    const rui_onnx_attr *a = rui_ml_ok(m) ? rui_lift_take(m->l, name) : NULL;
    if (a != NULL && a->type != type) {
        rui_ml_fail(m, RU_E_DATA, "attribute '%s' is not %s", name, kind);
        return NULL;
    }
    return a;
}

const double *rui_ml_floats(rui_ml *m, const char *name, uint32_t *n)
{
    const rui_onnx_attr *a = take(m, name, RUI_ONNX_FLOATS, "a list of floats");
    *n = a != NULL ? a->n : 0;
    return *n > 0 ? a->fs : NULL;
}

const int64_t *rui_ml_ints(rui_ml *m, const char *name, uint32_t *n)
{
    const rui_onnx_attr *a = take(m, name, RUI_ONNX_INTS, "a list of integers");
    *n = a != NULL ? a->n : 0;
    return *n > 0 ? a->is : NULL;
}

const char *const *rui_ml_strs(rui_ml *m, const char *name, uint32_t *n)
{
    const rui_onnx_attr *a = take(m, name, RUI_ONNX_STRINGS, "a list of texts");
    *n = a != NULL ? a->ss.n : 0;
    return *n > 0 ? a->ss.s : NULL;
}

const char *rui_ml_str(rui_ml *m, const char *name, const char *dflt)
{
    const rui_onnx_attr *a = take(m, name, RUI_ONNX_STRING, "a text");
    return a != NULL && a->s != NULL ? a->s : dflt;
}

double rui_ml_float(rui_ml *m, const char *name, double dflt)
{
    const rui_onnx_attr *a = take(m, name, RUI_ONNX_FLOAT, "a float");
    return a != NULL ? a->f : dflt;
}

int64_t rui_ml_int(rui_ml *m, const char *name, int64_t dflt)
{
    const rui_onnx_attr *a = take(m, name, RUI_ONNX_INT, "an integer");
    return a != NULL ? a->i : dflt;
}

/* Of the types that rui_ml_tensor takes. */
static double element(ru_dtype t, const void *data, int64_t k)
{
    return t == RU_F64   ? ((const double *)data)[k]
           : t == RU_F16 ? (double)ru_f16_to_f32(((const uint16_t *)data)[k])
           : t == RU_I64 ? (double)((const int64_t *)data)[k]
           : t == RU_U8  ? (double)((const uint8_t *)data)[k]
                         : (double)((const float *)data)[k];
}

/* A tensor attribute as it stands; false: not set, or an error. */
static bool tensor_take(rui_ml *m, const char *name, rui_onnx_tensor *t)
{
    const rui_onnx_attr *a = take(m, name, RUI_ONNX_TENSOR, "a tensor");
    if (a == NULL) {
        return false;
    }
    m->st = rui_onnx_tensor_parse(a->t, m->l->arena, t, m->err);
    if (rui_ml_ok(m) && t->external) {
        rui_ml_fail(m, RU_E_UNSUPPORTED, "attribute '%s' is stored in another file", name);
    }
    return rui_ml_ok(m);
}

const double *rui_ml_tensor(rui_ml *m, const char *name, uint32_t *n, ru_dtype *dtype)
{
    rui_onnx_tensor t;
    const void *data = NULL;
    *n = 0;
    *dtype = RU_NONE;
    if (!tensor_take(m, name, &t)) {
        return NULL;
    }
    if (t.type.dtype == RU_NONE) {
        rui_ml_fail(m, RU_E_UNSUPPORTED, "attribute '%s' is not of numbers", name);
    }
    if (rui_ml_ok(m)) {
        m->st = rui_onnx_tensor_data(&t, m->l->arena, &data, m->err);
    }
    int64_t count = rui_ml_ok(m) ? ru_type_count(&t.type) : 0;
    if (!rui_ml_ok(m) || count == 0) {
        return NULL;
    }
    if (t.type.dtype != RU_F64 && t.type.dtype != RU_F32 && t.type.dtype != RU_F16 &&
        t.type.dtype != RU_I64 && t.type.dtype != RU_U8) {
        rui_ml_fail(m, RU_E_UNSUPPORTED, "attribute '%s' is of %s", name,
                    ru_dtype_name(t.type.dtype));
    }
    double *v = count <= INT32_MAX ? rui_ml_alloc(m, count * (int64_t)sizeof *v) : NULL;
    for (int64_t k = 0; v != NULL && k < count; k++) {
        v[k] = element(t.type.dtype, data, k);
    }
    *n = v != NULL ? (uint32_t)count : 0;
    *dtype = t.type.dtype;
    return v;
}

/* -- nodes ------------------------------------------------------------------------------------- */

ru_value_id rui_ml_node(rui_ml *m, ru_op op, const ru_value_id *in, uint32_t n_in,
                        const ru_attr *attrs, uint32_t n_attrs)
{
    ru_value_id out = {0};
    if (rui_ml_ok(m)) {
        m->st = rui_lift_node(m->l, op, in, n_in, attrs, n_attrs, &out, m->err);
    }
    return out;
}

ru_value_id rui_ml_1(rui_ml *m, ru_op op, ru_value_id a)
{
    return rui_ml_node(m, op, &a, 1, NULL, 0);
}

ru_value_id rui_ml_2(rui_ml *m, ru_op op, ru_value_id a, ru_value_id b)
{
    return rui_ml_node(m, op, (ru_value_id[]){a, b}, 2, NULL, 0);
}

ru_value_id rui_ml_3(rui_ml *m, ru_op op, ru_value_id a, ru_value_id b, ru_value_id c)
{
    return rui_ml_node(m, op, (ru_value_id[]){a, b, c}, 3, NULL, 0);
}

static ru_attr attr_int(ru_attr_key key, int64_t v)
{
    return (ru_attr){.key = key, .kind = RU_ATTR_INT, .n = 1, .u.i = v};
}

static ru_dtype dtype_of(const rui_ml *m, ru_value_id v)
{
    return rui_ml_ok(m) && m->l->infer ? ru_graph_value(m->l->g, v)->type.dtype : RU_NONE;
}

ru_value_id rui_ml_cast(rui_ml *m, ru_value_id a, ru_dtype to)
{
    if (!rui_ml_ok(m) || dtype_of(m, a) == to) {
        return a;
    }
    ru_attr attr = attr_int(RU_ATTR_to, ru_dtype_onnx(to));
    return rui_ml_node(m, RU_OP_Cast, &a, 1, &attr, 1);
}

static ru_value_id constant(rui_ml *m, const ru_type *t, const void *data)
{
    ru_value_id out = {0};
    if (rui_ml_ok(m)) {
        m->st = rui_lift_const(m->l, t, data, &out, m->err);
    }
    return out;
}

static ru_value_id floats(rui_ml *m, const ru_type *t, const double *v)
{
    int64_t n = ru_type_count(t);
    float *f = rui_ml_alloc(m, n * (int64_t)sizeof *f);
    for (int64_t k = 0; f != NULL && k < n; k++) {
        f[k] = (float)v[k];
    }
    return constant(m, t, f);
}

ru_value_id rui_ml_scalar(rui_ml *m, double x)
{
    return floats(m, &(ru_type){.dtype = RU_F32}, &x);
}

ru_value_id rui_ml_list(rui_ml *m, const double *v, uint32_t n)
{
    return floats(m, &(ru_type){.dtype = RU_F32, .rank = 1, .dims = {n}}, v);
}

ru_value_id rui_ml_matrix(rui_ml *m, const double *v, int64_t rows, int64_t cols)
{
    return floats(m, &(ru_type){.dtype = RU_F32, .rank = 2, .dims = {rows, cols}}, v);
}

ru_value_id rui_ml_i64s(rui_ml *m, const int64_t *v, uint32_t n)
{
    return constant(m, &(ru_type){.dtype = RU_I64, .rank = 1, .dims = {n}}, v);
}

ru_value_id rui_ml_softmax(rui_ml *m, ru_value_id a)
{
    ru_attr axis = attr_int(RU_ATTR_axis, 1);
    return rui_ml_node(m, RU_OP_Softmax, &a, 1, &axis, 1);
}

ru_value_id rui_ml_beside(rui_ml *m, ru_value_id a, ru_value_id b)
{
    ru_attr axis = attr_int(RU_ATTR_axis, 1);
    return rui_ml_node(m, RU_OP_Concat, (ru_value_id[]){a, b}, 2, &axis, 1);
}

ru_value_id rui_ml_rows(rui_ml *m, bool wide, int64_t *features)
{
    ru_value_id x = m->l->n_in > 0 ? m->l->in[0] : (ru_value_id){0};
    *features = -1;
    if (x.v == 0) {
        rui_ml_fail(m, RU_E_DATA, "it has no input");
        return x;
    }
    const ru_type *t = rui_lift_type(m->l, 0);
    if (t == NULL) {
        return x;
    }
    if (t->dtype != RU_F32 && t->dtype != RU_F64 && t->dtype != RU_I64 && t->dtype != RU_I32 &&
        t->dtype != RU_F16) {
        rui_ml_fail(m, RU_E_DATA,
                    "its input is of %s; numbers of float, double, int32 or int64 "
                    "were expected",
                    ru_dtype_name(t->dtype));
    }
    if (t->rank != 1 && t->rank != 2) {
        rui_ml_fail(m, RU_E_DATA,
                    "its input has %u dimensions, a matrix of rows and features was "
                    "expected",
                    t->rank);
        return x;
    }
    int64_t cols = t->dims[t->rank - 1];
    *features = ru_dim_is_symbolic(cols) ? -1 : cols;
    if (t->rank == 1) {
        const int64_t row[2] = {1, -1};
        x = rui_ml_2(m, RU_OP_Reshape, x, rui_ml_i64s(m, row, 2));
    }
    return wide && dtype_of(m, x) == RU_F64 ? x : rui_ml_cast(m, x, RU_F32);
}

void rui_ml_out(rui_ml *m, uint32_t k, ru_value_id v)
{
    if (rui_ml_ok(m) && k < m->l->n_out_model) {
        m->l->out[k] = v;
    }
}

/* -- scores and labels ------------------------------------------------------------------------- */

rui_ml_post rui_ml_post_take(rui_ml *m)
{
    static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    const char *s = rui_ml_str(m, "post_transform", "NONE");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(names); k++) {
        if (strcmp(names[k], s) == 0) {
            return (rui_ml_post)k;
        }
    }
    rui_ml_fail(m, RU_E_DATA,
                "post_transform '%s' is none of NONE, SOFTMAX, LOGISTIC, "
                "SOFTMAX_ZERO, PROBIT",
                s);
    return RUI_ML_NONE;
}

/* Softmax over the scores that are not 0; the others stay 0 (e^-max times less than 1e-7). */
static ru_value_id softmax_zero(rui_ml *m, ru_value_id x)
{
    const int64_t axis = 1;
    ru_value_id in[2] = {x, rui_ml_i64s(m, &axis, 1)};
    ru_value_id max = rui_ml_node(m, RU_OP_ReduceMax, in, 2, NULL, 0);
    ru_value_id e = rui_ml_1(m, RU_OP_Exp, rui_ml_2(m, RU_OP_Sub, x, max));
    ru_value_id far = rui_ml_2(m, RU_OP_Greater, rui_ml_1(m, RU_OP_Abs, x), rui_ml_scalar(m, 1e-7));
    in[0] = rui_ml_3(m, RU_OP_Where, far, e, rui_ml_scalar(m, 0));
    ru_value_id sum = rui_ml_node(m, RU_OP_ReduceSum, in, 2, NULL, 0);
    ru_value_id near =
        rui_ml_2(m, RU_OP_Mul, x, rui_ml_1(m, RU_OP_Exp, rui_ml_1(m, RU_OP_Neg, max)));
    return rui_ml_2(m, RU_OP_Div, rui_ml_3(m, RU_OP_Where, far, e, near), sum);
}

/* sqrt(2) erfinv(2p - 1), with Winitzki's formula of the inverse error function (a = 0.147). */
static ru_value_id probit(rui_ml *m, ru_value_id p)
{
    const double a = 0.147, two_by_pi_a = 2 / (3.14159 * a);
    ru_value_id one = rui_ml_scalar(m, 1), half = rui_ml_scalar(m, 0.5);
    ru_value_id x = rui_ml_2(m, RU_OP_Sub, rui_ml_2(m, RU_OP_Add, p, p), one);
    ru_value_id log = rui_ml_1(
        m, RU_OP_Log,
        rui_ml_2(m, RU_OP_Mul, rui_ml_2(m, RU_OP_Sub, one, x), rui_ml_2(m, RU_OP_Add, one, x)));
    ru_value_id v =
        rui_ml_2(m, RU_OP_Add, rui_ml_2(m, RU_OP_Mul, log, half), rui_ml_scalar(m, two_by_pi_a));
    ru_value_id w = rui_ml_2(m, RU_OP_Mul, log, rui_ml_scalar(m, 1 / a));
    ru_value_id root =
        rui_ml_1(m, RU_OP_Sqrt, rui_ml_2(m, RU_OP_Sub, rui_ml_2(m, RU_OP_Mul, v, v), w));
    ru_value_id size = rui_ml_1(m, RU_OP_Sqrt, rui_ml_2(m, RU_OP_Sub, root, v));
    ru_value_id sign = rui_ml_3(m, RU_OP_Where, rui_ml_2(m, RU_OP_Less, x, rui_ml_scalar(m, 0)),
                                rui_ml_scalar(m, -1.41421356), rui_ml_scalar(m, 1.41421356));
    return rui_ml_2(m, RU_OP_Mul, size, sign);
}

ru_value_id rui_ml_post_apply(rui_ml *m, ru_value_id scores, rui_ml_post post)
{
    switch (post) {
    case RUI_ML_SOFTMAX:
        return rui_ml_softmax(m, scores);
    case RUI_ML_LOGISTIC:
        return rui_ml_1(m, RU_OP_Sigmoid, scores);
    case RUI_ML_SOFTMAX_ZERO:
        return softmax_zero(m, scores);
    case RUI_ML_PROBIT:
        return probit(m, scores);
    case RUI_ML_NONE:
        break;
    }
    return scores;
}

rui_ml_labels rui_ml_labels_take(rui_ml *m, const char *ints)
{
    rui_ml_labels l = {0};
    uint32_t n_ints;
    l.text = rui_ml_strs(m, "classlabels_strings", &l.n);
    l.ints = rui_ml_ints(m, ints, &n_ints);
    if (l.text != NULL && l.ints != NULL) {
        rui_ml_fail(m, RU_E_DATA, "it has class labels of texts and of numbers");
    }
    l.n = l.text != NULL ? l.n : n_ints;
    return l;
}

void rui_ml_labels_out(rui_ml *m, const rui_ml_labels *labels, ru_value_id index)
{
    int64_t *codes = rui_ml_alloc(m, labels->n * (int64_t)sizeof *codes);
    bool same = labels->text == NULL;
    for (uint32_t k = 0; codes != NULL && k < labels->n; k++) {
        codes[k] = labels->ints != NULL ? labels->ints[k] : 0;
        if (labels->text != NULL && rui_ml_ok(m)) {
            m->st = ru_texts_code(&m->l->texts->words, labels->text[k], &codes[k], m->err);
        }
        same = same && codes[k] == (int64_t)k;
    }
    if (!same) {
        index = rui_ml_2(m, RU_OP_Gather, rui_ml_i64s(m, codes, labels->n), index);
    }
    rui_ml_out(m, 0, index);
    if (labels->text != NULL && rui_ml_ok(m)) {
        m->st = rui_texts_mark(m->l->texts, index, m->err);
    }
}

ru_value_id rui_ml_argmax(rui_ml *m, ru_value_id scores)
{
    ru_attr attrs[2] = {attr_int(RU_ATTR_axis, 1), attr_int(RU_ATTR_keepdims, 0)};
    return rui_ml_node(m, RU_OP_ArgMax, &scores, 1, attrs, 2);
}

ru_value_id rui_ml_above(rui_ml *m, ru_value_id column, double x)
{
    const int64_t flat = -1;
    ru_value_id more =
        rui_ml_cast(m, rui_ml_2(m, RU_OP_Greater, column, rui_ml_scalar(m, x)), RU_I64);
    return rui_ml_2(m, RU_OP_Reshape, more, rui_ml_i64s(m, &flat, 1));
}
