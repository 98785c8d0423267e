/* Quantisation: numbers of 8 and 16 bits that stand for (q - zero) * scale, and products of them.
 */
#include "exec/cpu/ref/ref_int8_impl.h"

#include <math.h>
#include <string.h>

static void range_of(ru_dtype t, double *low, double *high)
{
    bool two = t == RU_U16 || t == RU_I16, sign = t == RU_I8 || t == RU_I16;
    *high = two ? (sign ? 32767 : 65535) : sign ? 127 : 255;
    *low = sign ? -*high - 1 : 0;
}

static double quantise(double x, double scale, double zero, ru_dtype t)
{
    double low, high;
    range_of(t, &low, &high);
    /* the standard divides in f32 */
    double q = rint((double)(float)(x / scale)) + zero;
    return q > low ? (q < high ? q : high) : low;
}

/* Which scale element i of `t` has, of `n` along the axis, or of blocks along it. */
typedef struct places {
    int64_t n, inner;
    int64_t dim, block; /* block > 0: so many of the axis' dim elements share one */
} places;

static ru_status places_of(const ru_ref_call *c, places *p, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    uint32_t axis = 0;
    *p = (places){.n = rui_ref_count(&c->in[1].type), .inner = 1};
    p->block = ru_node_int(c->node, RU_ATTR_block_size, 0);
    if (p->n == 1) {
        return RU_OK;
    }
    RU_TRY(rui_ref_axis(c, ru_node_int(c->node, RU_ATTR_axis, 1), t->rank, &axis, err));
    p->inner = rui_ref_span(t, axis + 1, t->rank);
    p->dim = t->dims[axis];
    return p->n == p->dim || p->block > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "%s: %lld scales for %lld elements of axis %u",
                         ru_op_get(c->node->op)->name, (long long)p->n, (long long)t->dims[axis],
                         axis);
}

static int64_t place(const places *p, int64_t i)
{
    if (p->n == 1) {
        return 0;
    }
    if (p->block == 0) {
        return i / p->inner % p->n;
    }
    int64_t row = i / p->inner, blocks = (p->dim - 1) / p->block + 1;
    return (row / p->dim * blocks + row % p->dim / p->block) * p->inner + i % p->inner;
}

ru_status rui_ref_QuantizeLinear(const ru_ref_call *c, ru_err *err)
{
    places p;
    double *x, *scale, *zero;
    RU_TRY(places_of(c, &p, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in(c, 1, &scale, err));
    RU_TRY(rui_ref_in(c, 2, &zero, err));
    for (int64_t i = 0; i < rui_ref_count(&c->in[0].type); i++) {
        int64_t k = place(&p, i);
        x[i] = quantise(x[i], scale[k], zero != NULL ? zero[k] : 0, c->out[0].type.dtype);
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

ru_status rui_ref_DequantizeLinear(const ru_ref_call *c, ru_err *err)
{
    places p;
    double *x, *scale, *zero;
    RU_TRY(places_of(c, &p, err));
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in(c, 1, &scale, err));
    RU_TRY(rui_ref_in(c, 2, &zero, err));
    for (int64_t i = 0; i < rui_ref_count(&c->in[0].type); i++) {
        int64_t k = place(&p, i);
        x[i] = (x[i] - (zero != NULL ? zero[k] : 0)) * scale[k];
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

/* In f32, as the standard says. A tensor of zeros has scale 1. */
ru_status rui_ref_DynamicQuantizeLinear(const ru_ref_call *c, ru_err *err)
{
    double *x;
    float low = 0, high = 0;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    for (int64_t i = 0; i < rui_ref_count(&c->in[0].type); i++) {
        low = (float)x[i] < low ? (float)x[i] : low;
        high = (float)x[i] > high ? (float)x[i] : high;
    }
    float scale = high > low ? (high - low) / 255.0F : 1;
    double zero = quantise(-(double)low, (double)scale, 0, RU_U8);
    for (int64_t i = 0; i < rui_ref_count(&c->in[0].type); i++) {
        x[i] = quantise(x[i], (double)scale, zero, RU_U8);
    }
    rui_ref_store(&c->out[0], x);
    rui_ref_set(c->out[1].type.dtype, c->out[1].data, 0, (double)scale);
    rui_ref_set(RU_U8, c->out[2].data, 0, zero);
    return RU_OK;
}

ru_status rui_ref_int8_in(const ru_ref_call *c, double **out, ru_err *err)
{
    double zero = (double)ru_node_int(c->node, RU_ATTR_x_zero, 0);
    RU_TRY(rui_ref_in(c, 0, out, err));
    for (int64_t i = 0; i < rui_ref_count(&c->in[0].type); i++) {
        (*out)[i] -= zero;
    }
    return RU_OK;
}

ru_status rui_ref_int8_out(const ru_ref_call *c, double *sum, uint32_t axis, ru_err *err)
{
    const ru_type *t = &c->out[0].type;
    double *bias, *scale, y_scale = ru_node_float(c->node, RU_ATTR_y_scale, 1);
    double y_zero = (double)ru_node_int(c->node, RU_ATTR_y_zero, 0);
    int64_t inner = rui_ref_span(t, axis + 1, t->rank), channels = t->dims[axis];
    bool whole = !rui_ref_is_float(t->dtype);
    rui_finish f;
    RU_TRY(rui_ref_in(c, 2, &scale, err));
    RU_TRY(rui_ref_in(c, 3, &bias, err));
    RU_TRY(rui_finish_make(c, UINT32_MAX, &f, err));
    int64_t n_scales = rui_ref_count(&c->in[2].type);
    for (int64_t i = 0; i < rui_ref_count(t); i++) {
        int64_t ch = i / inner % channels;
        double z = (sum[i] + (bias != NULL ? bias[ch] : 0)) * scale[n_scales > 1 ? ch : 0];
        z = rui_finish_apply(&f, i, z);
        sum[i] = whole ? quantise(z, y_scale, y_zero, t->dtype) : z;
    }
    rui_ref_store(&c->out[0], sum);
    return RU_OK;
}

/* a [.., K], b [K, N] or, with transB, [N, K]. */
ru_status rui_ref_MatMulInt8(const ru_ref_call *c, ru_err *err)
{
    const ru_type *ta = &c->in[0].type, *ty = &c->out[0].type;
    bool turned = ru_node_int(c->node, RU_ATTR_transB, 0) != 0;
    int64_t k = ta->dims[ta->rank - 1], n = ty->dims[ty->rank - 1], m = rui_ref_count(ta) / k;
    double *a, *b, *y;
    RU_TRY(rui_ref_int8_in(c, &a, err));
    RU_TRY(rui_ref_in(c, 1, &b, err));
    RU_TRY(rui_ref_zeros(c, m * n, &y, err));
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            for (int64_t e = 0; e < k; e++) {
                y[i * n + j] += a[i * k + e] * b[turned ? j * k + e : e * n + j];
            }
        }
    }
    return rui_ref_int8_out(c, y, ty->rank - 1, err);
}

/* Output 0 of real numbers, activated. */
static ru_status bytes_out(const ru_ref_call *c, double *x, ru_err *err)
{
    double scale = ru_node_float(c->node, RU_ATTR_y_scale, 1);
    double zero = (double)ru_node_int(c->node, RU_ATTR_y_zero, 0);
    rui_finish f;
    RU_TRY(rui_finish_make(c, UINT32_MAX, &f, err));
    for (int64_t i = 0; i < rui_ref_count(&c->out[0].type); i++) {
        x[i] = quantise(rui_finish_apply(&f, i, x[i]), scale, zero, c->out[0].type.dtype);
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

static ru_status two_bytes(const ru_ref_call *c, bool product, ru_err *err)
{
    double *a, *b;
    double a_zero = (double)ru_node_int(c->node, RU_ATTR_x_zero, 0);
    double b_zero = (double)ru_node_int(c->node, RU_ATTR_b_zero, 0);
    double a_scale = ru_node_float(c->node, RU_ATTR_x_scale, 1);
    double b_scale = ru_node_float(c->node, RU_ATTR_b_scale, 1);
    RU_TRY(rui_ref_load_as(c, &c->in[0], &c->out[0].type, &a, err));
    RU_TRY(rui_ref_load_as(c, &c->in[1], &c->out[0].type, &b, err));
    for (int64_t i = 0; i < rui_ref_count(&c->out[0].type); i++) {
        double x = (a[i] - a_zero) * a_scale, y = (b[i] - b_zero) * b_scale;
        a[i] = product ? x * y : x + y;
    }
    return bytes_out(c, a, err);
}

ru_status rui_ref_AddInt8(const ru_ref_call *c, ru_err *err)
{
    return two_bytes(c, false, err);
}

ru_status rui_ref_MulInt8(const ru_ref_call *c, ru_err *err)
{
    return two_bytes(c, true, err);
}

ru_status rui_ref_MapInt8(const ru_ref_call *c, ru_err *err)
{
    double *x, scale = ru_node_float(c->node, RU_ATTR_x_scale, 1);
    RU_TRY(rui_ref_int8_in(c, &x, err));
    for (int64_t i = 0; i < rui_ref_count(&c->out[0].type); i++) {
        x[i] *= scale;
    }
    return bytes_out(c, x, err);
}

ru_status rui_ref_MeanInt8(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    int64_t n = rui_ref_count(&c->out[0].type), size = rui_ref_span(t, 2, t->rank);
    double *x, *y, scale = ru_node_float(c->node, RU_ATTR_x_scale, 1);
    RU_TRY(rui_ref_int8_in(c, &x, err));
    RU_TRY(rui_ref_zeros(c, n, &y, err));
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < size; k++) {
            y[i] += x[i * size + k];
        }
        y[i] = y[i] * scale / (double)size;
    }
    return bytes_out(c, y, err);
}
