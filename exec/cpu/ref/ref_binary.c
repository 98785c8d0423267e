/* Element-wise ops of several inputs with broadcasting. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

typedef double (*float_fn)(double x, double y);
typedef int64_t (*int_fn)(int64_t x, int64_t y, bool is_unsigned);

/* out = f(in0, in1), both broadcast to the output; integers go through g. The first input's dtype
 * decides which. */
static ru_status binary(const ru_ref_call *c, float_fn f, int_fn g, ru_err *err)
{
    const ru_type *shape = &c->out[0].type;
    int64_t n = rui_ref_count(shape);
    if (rui_ref_is_float(c->in[0].type.dtype)) {
        double *x, *y;
        RU_TRY(rui_ref_load_as(c, &c->in[0], shape, &x, err));
        RU_TRY(rui_ref_load_as(c, &c->in[1], shape, &y, err));
        for (int64_t i = 0; i < n; i++) {
            x[i] = f(x[i], y[i]);
        }
        rui_ref_store(&c->out[0], x);
        return RU_OK;
    }
    bool u = rui_ref_is_unsigned(c->in[0].type.dtype);
    int64_t *x, *y;
    RU_TRY(rui_ref_load_ints_as(c, &c->in[0], shape, &x, err));
    RU_TRY(rui_ref_load_ints_as(c, &c->in[1], shape, &y, err));
    for (int64_t i = 0; i < n; i++) {
        x[i] = g(x[i], y[i], u);
    }
    rui_ref_store_ints(&c->out[0], x);
    return RU_OK;
}

static bool below(int64_t x, int64_t y, bool u)
{
    return u ? (uint64_t)x < (uint64_t)y : x < y;
}

/* X(op, float form, integer form (u = unsigned)) */
#define BINARY_LIST(X)                                      \
    X(Add, x + y, (int64_t)((uint64_t)x + (uint64_t)y))     \
    X(AddInto, x + y, (int64_t)((uint64_t)x + (uint64_t)y)) \
    X(Sub, x - y, (int64_t)((uint64_t)x - (uint64_t)y))     \
    X(Mul, x *y, (int64_t)((uint64_t)x * (uint64_t)y))      \
    X(Equal, x == y, x == y)                                \
    X(Greater, x > y, below(y, x, u))                       \
    X(GreaterOrEqual, x >= y, !below(x, y, u))              \
    X(Less, x < y, below(x, y, u))                          \
    X(LessOrEqual, x <= y, !below(y, x, u))                 \
    X(And, x != 0.0 && y != 0.0, x != 0 && y != 0)          \
    X(Or, x != 0.0 || y != 0.0, x != 0 || y != 0)           \
    X(Xor, (x != 0.0) != (y != 0.0), (x != 0) != (y != 0))  \
    X(BitwiseAnd, x, x &y)                                  \
    X(BitwiseOr, x, x | y)                                  \
    X(BitwiseXor, x, x ^ y)                                 \
    X(PRelu, x < 0.0 ? x * y : x, (x < 0 && !u) ? (int64_t)((uint64_t)x * (uint64_t)y) : x)

#define RU_X(name, float_form, int_form)                            \
    static double f_##name(double x, RU_UNUSED double y)            \
    {                                                               \
        return float_form;                                          \
    }                                                               \
    static int64_t i_##name(int64_t x, int64_t y, RU_UNUSED bool u) \
    {                                                               \
        return int_form;                                            \
    }                                                               \
    ru_status rui_ref_##name(const ru_ref_call *c, ru_err *err)     \
    {                                                               \
        return binary(c, f_##name, i_##name, err);                  \
    }
BINARY_LIST(RU_X)
#undef RU_X

/* -- division, modulus, shift, power ---------------------------------------------------- */

static double f_div(double x, double y)
{
    return x / y;
}

static int64_t i_div(int64_t x, int64_t y, bool u)
{
    if (u) {
        return (int64_t)((uint64_t)x / (uint64_t)y);
    }
    return y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

static ru_status refuse_zero(const ru_ref_call *c, ru_err *err)
{
    const ru_tensor *t = &c->in[1];
    if (rui_ref_is_float(t->type.dtype)) {
        return RU_OK;
    }
    int64_t n = rui_ref_count(&t->type);
    for (int64_t i = 0; i < n; i++) {
        if (rui_ref_get_int(t->type.dtype, t->data, i) == 0) {
            return RU_FAIL(err, RU_E_DATA, "%s: element %lld of the integer divisor is 0",
                           ru_op_get(c->node->op)->name, (long long)i);
        }
    }
    return RU_OK;
}

ru_status rui_ref_Div(const ru_ref_call *c, ru_err *err)
{
    RU_TRY(refuse_zero(c, err));
    return binary(c, f_div, i_div, err);
}

/* Sign of the divisor, as Python's %. */
static int64_t i_mod(int64_t x, int64_t y, bool u)
{
    if (u) {
        return (int64_t)((uint64_t)x % (uint64_t)y);
    }
    int64_t r = y == -1 ? 0 : x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static int64_t i_fmod(int64_t x, int64_t y, bool u)
{
    if (u) {
        return (int64_t)((uint64_t)x % (uint64_t)y);
    }
    return y == -1 ? 0 : x % y;
}

static double f_mod(double x, double y)
{
    double r = fmod(x, y);
    return r == 0.0 ? copysign(0.0, y) : (r < 0.0) != (y < 0.0) ? r + y : r;
}

ru_status rui_ref_Mod(const ru_ref_call *c, ru_err *err)
{
    RU_TRY(refuse_zero(c, err));
    if (ru_node_int(c->node, RU_ATTR_fmod, 0) != 0) {
        return binary(c, fmod, i_fmod, err);
    }
    return binary(c, f_mod, i_mod, err);
}

static int64_t i_left(int64_t x, int64_t y, bool u)
{
    (void)u;
    return (uint64_t)y >= 64 ? 0 : (int64_t)((uint64_t)x << y);
}

/* Signs fill a signed number; `u`: x is a u64. */
static int64_t i_right(int64_t x, int64_t y, bool u)
{
    bool fill = !u && x < 0;
    uint64_t bits = fill ? ~(uint64_t)x : (uint64_t)x;
    bits = (uint64_t)y >= 64 ? 0 : bits >> y;
    return (int64_t)(fill ? ~bits : bits);
}

ru_status rui_ref_BitShift(const ru_ref_call *c, ru_err *err)
{
    const char *direction = ru_node_str(c->node, RU_ATTR_direction, "");
    bool left = strcmp(direction, "LEFT") == 0;
    if (!left && strcmp(direction, "RIGHT") != 0) {
        return RU_FAIL(err, RU_E_DATA, "BitShift: direction is '%s', it must be LEFT or RIGHT",
                       direction);
    }
    return binary(c, f_div, left ? i_left : i_right, err);
}

/* Integer power by squaring; negative exponents give 0 except for bases 1 and -1. */
static int64_t i_pow(int64_t x, int64_t y)
{
    if (y < 0) {
        return x == 1 ? 1 : (x == -1 ? (y % 2 == 0 ? 1 : -1) : 0);
    }
    uint64_t base = (uint64_t)x, r = 1;
    for (; y > 0; y >>= 1) {
        r = (y & 1) != 0 ? r * base : r;
        base *= base;
    }
    return (int64_t)r;
}

ru_status rui_ref_Pow(const ru_ref_call *c, ru_err *err)
{
    const ru_type *shape = &c->out[0].type;
    int64_t n = rui_ref_count(shape);
    if (!rui_ref_is_float(c->in[0].type.dtype) && !rui_ref_is_float(c->in[1].type.dtype)) {
        int64_t *x, *y;
        RU_TRY(rui_ref_load_ints_as(c, &c->in[0], shape, &x, err));
        RU_TRY(rui_ref_load_ints_as(c, &c->in[1], shape, &y, err));
        for (int64_t i = 0; i < n; i++) {
            x[i] = i_pow(x[i], y[i]);
        }
        rui_ref_store_ints(&c->out[0], x);
        return RU_OK;
    }
    double *x, *y;
    RU_TRY(rui_ref_load_as(c, &c->in[0], shape, &x, err));
    RU_TRY(rui_ref_load_as(c, &c->in[1], shape, &y, err));
    for (int64_t i = 0; i < n; i++) {
        x[i] = pow(x[i], y[i]);
    }
    rui_ref_store(&c->out[0], x);
    return RU_OK;
}

/* -- any number of inputs --------------------------------------------------------------- */

static double f_max(double x, double y)
{
    return isnan(x) || x >= y ? x : y;
}

static double f_min(double x, double y)
{
    return isnan(x) || x <= y ? x : y;
}

static double f_add(double x, double y)
{
    return x + y;
}

static int64_t i_max(int64_t x, int64_t y, bool u)
{
    return below(x, y, u) ? y : x;
}

static int64_t i_min(int64_t x, int64_t y, bool u)
{
    return below(y, x, u) ? y : x;
}

static int64_t i_add(int64_t x, int64_t y, bool u)
{
    (void)u;
    return (int64_t)((uint64_t)x + (uint64_t)y);
}

static ru_status many(const ru_ref_call *c, float_fn f, int_fn g, double scale, ru_err *err)
{
    const ru_type *shape = &c->out[0].type;
    int64_t n = rui_ref_count(shape);
    bool is_float = rui_ref_is_float(c->in[0].type.dtype);
    bool u = rui_ref_is_unsigned(c->in[0].type.dtype);
    double *fx = NULL, *fy = NULL;
    int64_t *ix = NULL, *iy = NULL;
    for (uint32_t k = 0; k < c->node->n_in; k++) {
        if (is_float) {
            RU_TRY(rui_ref_load_as(c, &c->in[k], shape, k == 0 ? &fx : &fy, err));
        } else {
            RU_TRY(rui_ref_load_ints_as(c, &c->in[k], shape, k == 0 ? &ix : &iy, err));
        }
        for (int64_t i = 0; k > 0 && i < n; i++) {
            if (is_float) {
                fx[i] = f(fx[i], fy[i]);
            } else {
                ix[i] = g(ix[i], iy[i], u);
            }
        }
    }
    if (!is_float) {
        rui_ref_store_ints(&c->out[0], ix);
        return RU_OK;
    }
    for (int64_t i = 0; scale != 1.0 && i < n; i++) {
        fx[i] *= scale;
    }
    rui_ref_store(&c->out[0], fx);
    return RU_OK;
}

ru_status rui_ref_Max(const ru_ref_call *c, ru_err *err)
{
    return many(c, f_max, i_max, 1.0, err);
}

ru_status rui_ref_Min(const ru_ref_call *c, ru_err *err)
{
    return many(c, f_min, i_min, 1.0, err);
}

ru_status rui_ref_Sum(const ru_ref_call *c, ru_err *err)
{
    return many(c, f_add, i_add, 1.0, err);
}

ru_status rui_ref_Mean(const ru_ref_call *c, ru_err *err)
{
    return many(c, f_add, i_add, 1.0 / (double)c->node->n_in, err);
}

/* min(max(x, lo), hi): hi wins when lo > hi. */
ru_status rui_ref_Clip(const ru_ref_call *c, ru_err *err)
{
    int64_t n = rui_ref_count(&c->in[0].type);
    if (rui_ref_is_float(c->in[0].type.dtype)) {
        double *x, *lo, *hi;
        RU_TRY(rui_ref_in(c, 0, &x, err));
        RU_TRY(rui_ref_in(c, 1, &lo, err));
        RU_TRY(rui_ref_in(c, 2, &hi, err));
        for (int64_t i = 0; i < n; i++) {
            x[i] = lo != NULL && x[i] < lo[0] ? lo[0] : x[i];
            x[i] = hi != NULL && x[i] > hi[0] ? hi[0] : x[i];
        }
        rui_ref_store(&c->out[0], x);
        return RU_OK;
    }
    bool u = rui_ref_is_unsigned(c->in[0].type.dtype);
    int64_t *x, *lo, *hi;
    RU_TRY(rui_ref_in_ints(c, 0, &x, err));
    RU_TRY(rui_ref_in_ints(c, 1, &lo, err));
    RU_TRY(rui_ref_in_ints(c, 2, &hi, err));
    for (int64_t i = 0; i < n; i++) {
        x[i] = lo != NULL && below(x[i], lo[0], u) ? lo[0] : x[i];
        x[i] = hi != NULL && below(hi[0], x[i], u) ? hi[0] : x[i];
    }
    rui_ref_store_ints(&c->out[0], x);
    return RU_OK;
}

ru_status rui_ref_Where(const ru_ref_call *c, ru_err *err)
{
    const ru_type *shape = &c->out[0].type;
    size_t size = (size_t)ru_dtype_bytes(shape->dtype);
    int64_t s[3][RU_RANK_MAX];
    for (uint32_t k = 0; k < 3; k++) {
        RU_TRY(rui_ref_strides_as(&c->in[k].type, shape, s[k], err));
    }
    rui_walk w;
    rui_walk_init(&w, shape->dims, shape->rank);
    int64_t n = rui_ref_count(shape);
    for (int64_t i = 0; i < n; i++) {
        uint32_t from = ((const uint8_t *)c->in[0].data)[rui_walk_dot(&w, s[0])] != 0 ? 1 : 2;
        const uint8_t *src = c->in[from].data;
        memcpy((uint8_t *)c->out[0].data + (size_t)i * size,
               src + (size_t)rui_walk_dot(&w, s[from]) * size, size);
        rui_walk_next(&w);
    }
    return RU_OK;
}
