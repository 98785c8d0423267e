/* Elements in and out of tensors, broadcasting, odometers. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

int64_t rui_ref_span(const ru_type *t, uint32_t from, uint32_t to)
{
    int64_t n = 1;
    for (uint32_t d = from; d < to; d++) {
        n *= t->dims[d];
    }
    return n;
}

int64_t rui_ref_count(const ru_type *t)
{
    return rui_ref_span(t, 0, t->rank);
}

bool rui_ref_is_float(ru_dtype t)
{
    return t == RU_F32 || t == RU_F64 || t == RU_F16 || t == RU_BF16;
}

bool rui_ref_is_unsigned(ru_dtype t)
{
    return t == RU_U8 || t == RU_U16 || t == RU_U32 || t == RU_U64 || t == RU_BOOL;
}

static int64_t cut(double x)
{
    if (!(x > -9223372036854775808.0)) {
        return INT64_MIN;
    }
    return x >= 9223372036854775808.0 ? INT64_MAX : (int64_t)x;
}

int64_t rui_ref_get_int(ru_dtype t, const void *data, int64_t i)
{
    switch (t) {
    case RU_I8:
        return ((const int8_t *)data)[i];
    case RU_U8:
    case RU_BOOL:
        return ((const uint8_t *)data)[i];
    case RU_I16:
        return ((const int16_t *)data)[i];
    case RU_U16:
        return ((const uint16_t *)data)[i];
    case RU_I32:
        return ((const int32_t *)data)[i];
    case RU_U32:
        return ((const uint32_t *)data)[i];
    case RU_I64:
        return ((const int64_t *)data)[i];
    case RU_U64:
        return (int64_t)((const uint64_t *)data)[i];
    case RU_F32:
    case RU_F64:
    case RU_F16:
    case RU_BF16:
        return cut(rui_ref_get(t, data, i));
    case RU_NONE:
    case RU_DTYPE_COUNT:
        break;
    }
    ru_panic(__FILE__, __LINE__, "dtype %d has no elements", (int)t);
}

double rui_ref_get(ru_dtype t, const void *data, int64_t i)
{
    switch (t) {
    case RU_F32:
        return (double)((const float *)data)[i];
    case RU_F64:
        return ((const double *)data)[i];
    case RU_F16:
        return (double)ru_f16_to_f32(((const uint16_t *)data)[i]);
    case RU_BF16:
        return (double)ru_bf16_to_f32(((const uint16_t *)data)[i]);
    case RU_U64:
        return (double)((const uint64_t *)data)[i];
    case RU_I8:
    case RU_U8:
    case RU_BOOL:
    case RU_I16:
    case RU_U16:
    case RU_I32:
    case RU_U32:
    case RU_I64:
    case RU_NONE:
    case RU_DTYPE_COUNT:
        break;
    }
    return (double)rui_ref_get_int(t, data, i);
}

void rui_ref_set_int(ru_dtype t, void *data, int64_t i, int64_t x)
{
    switch (t) {
    case RU_I8:
    case RU_U8:
        ((uint8_t *)data)[i] = (uint8_t)x;
        return;
    case RU_BOOL:
        ((uint8_t *)data)[i] = x != 0;
        return;
    case RU_I16:
    case RU_U16:
        ((uint16_t *)data)[i] = (uint16_t)x;
        return;
    case RU_I32:
    case RU_U32:
        ((uint32_t *)data)[i] = (uint32_t)x;
        return;
    case RU_I64:
    case RU_U64:
        ((int64_t *)data)[i] = x;
        return;
    case RU_F32:
        ((float *)data)[i] = (float)x;
        return;
    case RU_F64:
    case RU_F16:
    case RU_BF16:
        rui_ref_set(t, data, i, (double)x);
        return;
    case RU_NONE:
    case RU_DTYPE_COUNT:
        break;
    }
    ru_panic(__FILE__, __LINE__, "dtype %d has no elements", (int)t);
}

/* To f32 with round-to-odd, so that the rounding to 16 bits that follows is the only one that
 * shows: an inexact result keeps a set last bit as the memory of what was cut. */
static float to_f32_odd(double x)
{
    float f = (float)x;
    if ((double)f == x || isnan(x) || isinf(f)) {
        return f;
    }
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 1u) != 0) {
        return f;
    }
    return nextafterf(f, (double)f < x ? INFINITY : -INFINITY);
}

void rui_ref_set(ru_dtype t, void *data, int64_t i, double x)
{
    switch (t) {
    case RU_F32:
        ((float *)data)[i] = (float)x;
        return;
    case RU_F64:
        ((double *)data)[i] = x;
        return;
    case RU_F16:
        ((uint16_t *)data)[i] = ru_f32_to_f16(to_f32_odd(x));
        return;
    case RU_BF16:
        ((uint16_t *)data)[i] = ru_f32_to_bf16(to_f32_odd(x));
        return;
    case RU_BOOL:
        ((uint8_t *)data)[i] = x != 0.0;
        return;
    case RU_U64:
        ((uint64_t *)data)[i] = x >= 9223372036854775808.0
                                    ? (x >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)x)
                                    : (uint64_t)cut(x);
        return;
    case RU_I8:
    case RU_U8:
    case RU_I16:
    case RU_U16:
    case RU_I32:
    case RU_U32:
    case RU_I64:
    case RU_NONE:
    case RU_DTYPE_COUNT:
        break;
    }
    rui_ref_set_int(t, data, i, cut(x));
}

/* Memory for n numbers of 8 bytes; `out` is the address of a pointer to them. */
static ru_status room(const ru_ref_call *c, int64_t n, bool zero, void *out, ru_err *err)
{
    void *p = zero ? ru_arena_zalloc(c->scratch, n * 8, 8) : ru_arena_alloc(c->scratch, n * 8, 8);
    memcpy(out, &p, sizeof p);
    return p != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "%s: the reference kernel needs %lld more bytes of scratch",
                         ru_op_get(c->node->op)->name, (long long)n * 8);
}

/* All elements as int64_t or double, as they lie or broadcast to `shape`; NULL without data. */
static ru_status load(const ru_ref_call *c, const ru_tensor *t, const ru_type *shape, bool ints,
                      void *out, ru_err *err)
{
    int64_t strides[RU_RANK_MAX], n = rui_ref_count(shape != NULL ? shape : &t->type);
    void *to = NULL;
    rui_walk w = {0};
    if (t->data == NULL && shape == NULL) {
        memcpy(out, &to, sizeof to);
        return RU_OK;
    }
    if (shape != NULL) {
        RU_TRY(rui_ref_strides_as(&t->type, shape, strides, err));
        rui_walk_init(&w, shape->dims, shape->rank);
    }
    RU_TRY(room(c, n, false, &to, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = shape != NULL ? rui_walk_dot(&w, strides) : i;
        if (ints) {
            ((int64_t *)to)[i] = rui_ref_get_int(t->type.dtype, t->data, at);
        } else {
            ((double *)to)[i] = rui_ref_get(t->type.dtype, t->data, at);
        }
        if (shape != NULL) {
            (void)rui_walk_next(&w);
        }
    }
    memcpy(out, &to, sizeof to);
    return RU_OK;
}

ru_status rui_ref_zeros(const ru_ref_call *c, int64_t n, double **out, ru_err *err)
{
    return room(c, n, true, out, err);
}

ru_status rui_ref_zero_ints(const ru_ref_call *c, int64_t n, int64_t **out, ru_err *err)
{
    return room(c, n, true, out, err);
}

ru_status rui_ref_load(const ru_ref_call *c, const ru_tensor *t, double **out, ru_err *err)
{
    return load(c, t, NULL, false, out, err);
}

ru_status rui_ref_load_ints(const ru_ref_call *c, const ru_tensor *t, int64_t **out, ru_err *err)
{
    return load(c, t, NULL, true, out, err);
}

ru_status rui_ref_load_as(const ru_ref_call *c, const ru_tensor *t, const ru_type *shape,
                          double **out, ru_err *err)
{
    return load(c, t, shape, false, out, err);
}

ru_status rui_ref_load_ints_as(const ru_ref_call *c, const ru_tensor *t, const ru_type *shape,
                               int64_t **out, ru_err *err)
{
    return load(c, t, shape, true, out, err);
}

ru_status rui_ref_in(const ru_ref_call *c, uint32_t k, double **out, ru_err *err)
{
    *out = NULL;
    return rui_ref_has(c, k) ? rui_ref_load(c, &c->in[k], out, err) : RU_OK;
}

ru_status rui_ref_in_ints(const ru_ref_call *c, uint32_t k, int64_t **out, ru_err *err)
{
    *out = NULL;
    return rui_ref_has(c, k) ? rui_ref_load_ints(c, &c->in[k], out, err) : RU_OK;
}

void rui_ref_store(const ru_tensor *t, const double *x)
{
    int64_t n = rui_ref_count(&t->type);
    for (int64_t i = 0; i < n; i++) {
        rui_ref_set(t->type.dtype, t->data, i, x[i]);
    }
}

void rui_ref_store_ints(const ru_tensor *t, const int64_t *x)
{
    int64_t n = rui_ref_count(&t->type);
    for (int64_t i = 0; i < n; i++) {
        rui_ref_set_int(t->type.dtype, t->data, i, x[i]);
    }
}

void rui_ref_strides(const ru_type *t, int64_t *strides)
{
    int64_t s = 1;
    for (uint32_t d = t->rank; d > 0; d--) {
        strides[d - 1] = s;
        s *= t->dims[d - 1];
    }
}

ru_status rui_ref_strides_as(const ru_type *t, const ru_type *shape, int64_t *strides, ru_err *err)
{
    int64_t own[RU_RANK_MAX];
    rui_ref_strides(t, own);
    uint32_t more = t->rank > shape->rank ? t->rank - shape->rank : 0; /* leading axes of 1 */
    uint32_t lead = more == 0 ? shape->rank - t->rank : 0;
    for (uint32_t d = 0; d < more; d++) {
        if (t->dims[d] != 1) {
            return RU_FAIL(err, RU_E_DATA, "a tensor of rank %u does not broadcast to rank %u",
                           t->rank, shape->rank);
        }
    }
    for (uint32_t d = 0; d < shape->rank; d++) {
        int64_t dim = d < lead ? 1 : t->dims[d - lead + more];
        if (dim != 1 && dim != shape->dims[d]) {
            return RU_FAIL(err, RU_E_DATA, "dimension %u of size %lld does not broadcast to %lld",
                           d, (long long)dim, (long long)shape->dims[d]);
        }
        strides[d] = dim == 1 ? 0 : own[d - lead + more];
    }
    return RU_OK;
}

void rui_walk_init(rui_walk *w, const int64_t *dims, uint32_t rank)
{
    RU_CHECK(rank <= RU_ARRAY_LEN(w->dims));
    *w = (rui_walk){.rank = rank};
    for (uint32_t d = 0; d < rank; d++) {
        w->dims[d] = dims[d];
    }
}

bool rui_walk_next(rui_walk *w)
{
    for (uint32_t d = w->rank; d > 0; d--) {
        if (++w->at[d - 1] < w->dims[d - 1]) {
            return true;
        }
        w->at[d - 1] = 0;
    }
    return false;
}

void rui_ref_gather_copy(const ru_tensor *out, const ru_type *shape, const ru_tensor *in,
                         int64_t base, const int64_t *strides)
{
    size_t size = (size_t)ru_dtype_bytes(out->type.dtype);
    int64_t n = rui_ref_count(shape);
    const uint8_t *from = in->data;
    uint8_t *to = out->data;
    rui_walk w;
    rui_walk_init(&w, shape->dims, shape->rank);
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + (size_t)i * size, from + (size_t)(base + rui_walk_dot(&w, strides)) * size,
               size);
        rui_walk_next(&w);
    }
}

ru_status rui_ref_axis(const ru_ref_call *c, int64_t axis, uint32_t rank, uint32_t *out,
                       ru_err *err)
{
    int64_t r = (int64_t)rank;
    if (axis < -r || axis >= r) {
        return RU_FAIL(err, RU_E_DATA, "%s: axis %lld is outside %lld .. %lld",
                       ru_op_get(c->node->op)->name, (long long)axis, (long long)-r,
                       (long long)(r - 1));
    }
    *out = (uint32_t)(axis < 0 ? axis + r : axis);
    return RU_OK;
}

rui_axis3 rui_ref_axis3(const ru_type *t, uint32_t axis)
{
    return (rui_axis3){rui_ref_span(t, 0, axis), t->dims[axis], rui_ref_span(t, axis + 1, t->rank)};
}
