/* Whole numbers and truth values: two operands, one operand, tests of bits. */
#include "exec/cpu/kern/isa.h"

enum { WHOLE_BLOCK = 1024 };

#define LOOP(T, R, f)                                       \
    do {                                                    \
        const T *xs = x, *ys = y;                           \
        R *zs = z;                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
        {                                                   \
            T a = xs[i], b = ys[i];                         \
            zs[i] = (R)(f);                                 \
        }                                                   \
    } while (0);                                            \
    break

/* What depends on the width alone. `wide`: where products and shifts of T do not overflow. */
#define WIDTH(T, wide, name)                                                             \
    static void name(ru_kern_whole op, const void *x, const void *y, void *z, int64_t n) \
    {                                                                                    \
        switch ((uint32_t)op) {                                                          \
        case RU_KERN_WHOLE_ADD:                                                          \
            LOOP(T, T, a + b);                                                           \
        case RU_KERN_WHOLE_SUB:                                                          \
            LOOP(T, T, a - b);                                                           \
        case RU_KERN_WHOLE_MUL:                                                          \
            LOOP(T, T, (wide)a *b);                                                      \
        case RU_KERN_WHOLE_AND:                                                          \
            LOOP(T, T, a &b);                                                            \
        case RU_KERN_WHOLE_OR:                                                           \
            LOOP(T, T, a | b);                                                           \
        case RU_KERN_WHOLE_XOR:                                                          \
            LOOP(T, T, a ^ b);                                                           \
        case RU_KERN_WHOLE_EQUAL:                                                        \
            LOOP(T, uint8_t, a == b);                                                    \
        case RU_KERN_WHOLE_LEFT:                                                         \
            LOOP(T, T, b >= 8 * sizeof(T) ? 0 : (wide)a << b);                           \
        default:                                                                         \
            LOOP(T, T, b >= 8 * sizeof(T) ? 0 : (wide)a >> b);                           \
        }                                                                                \
    }

WIDTH(uint8_t, uint32_t, width_1)
WIDTH(uint16_t, uint32_t, width_2)
WIDTH(uint32_t, uint32_t, width_4)
WIDTH(uint64_t, uint64_t, width_8)

/* The rest of a floored quotient: the divisor's sign. b is not 0. */
RU_KERN_INLINE int64_t floor_mod(int64_t a, int64_t b)
{
    int64_t r = b == -1 ? 0 : a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* By squaring; negative exponents give 0 except for bases 1 and -1. */
RU_KERN_INLINE int64_t power(int64_t x, int64_t y)
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

/* What depends on the sign too. */
#define ORDER(T, name, div, mod, fmod)                                                   \
    static void name(ru_kern_whole op, const void *x, const void *y, void *z, int64_t n) \
    {                                                                                    \
        switch ((uint32_t)op) {                                                          \
        case RU_KERN_WHOLE_MAX:                                                          \
            LOOP(T, T, a > b ? a : b);                                                   \
        case RU_KERN_WHOLE_MIN:                                                          \
            LOOP(T, T, a < b ? a : b);                                                   \
        case RU_KERN_WHOLE_LESS:                                                         \
            LOOP(T, uint8_t, a < b);                                                     \
        case RU_KERN_WHOLE_LESS_EQUAL:                                                   \
            LOOP(T, uint8_t, a <= b);                                                    \
        case RU_KERN_WHOLE_DIV:                                                          \
            LOOP(T, T, div);                                                             \
        case RU_KERN_WHOLE_MOD:                                                          \
            LOOP(T, T, mod);                                                             \
        case RU_KERN_WHOLE_FMOD:                                                         \
            LOOP(T, T, fmod);                                                            \
        default:                                                                         \
            LOOP(T, T, power((int64_t)a, (int64_t)b));                                   \
        }                                                                                \
    }
/* Quotients of at most 32 bits by way of f64, which has vectors of them and is exact: what is no
 * whole number is 1 / b away from the next, and rounded by less than that. */
#define BY_F64(T) (T)((double)a / (double)b)
#define SIGNED(T, name, quotient)                                                    \
    ORDER(T, name, b == -1 ? (int64_t)(0 - (uint64_t)a) : quotient, floor_mod(a, b), \
          b == -1 ? 0 : a % b)
#define UNSIGNED(T, name, quotient) ORDER(T, name, quotient, a % b, a % b)

SIGNED(int8_t, order_i8, BY_F64(int32_t))
SIGNED(int16_t, order_i16, BY_F64(int32_t))
SIGNED(int32_t, order_i32, BY_F64(int32_t))
SIGNED(int64_t, order_i64, a / b)
UNSIGNED(uint8_t, order_u8, BY_F64(int32_t))
UNSIGNED(uint16_t, order_u16, BY_F64(int32_t))
UNSIGNED(uint32_t, order_u32, BY_F64(uint32_t))
UNSIGNED(uint64_t, order_u64, a / b)

static void block(ru_kern_whole op, ru_dtype t, const void *x, const void *y, void *z, int64_t n)
{
    static void (*const by_width[])(ru_kern_whole, const void *, const void *, void *, int64_t) = {
        width_1, width_2, NULL, width_4, NULL, NULL, NULL, width_8};
    if (op < RU_KERN_WHOLE_MAX) {
        by_width[ru_dtype_bytes(t) - 1](op, x, y, z, n);
        return;
    }
    switch ((uint32_t)t) {
    case RU_I8:
        order_i8(op, x, y, z, n);
        break;
    case RU_I16:
        order_i16(op, x, y, z, n);
        break;
    case RU_I32:
        order_i32(op, x, y, z, n);
        break;
    case RU_I64:
        order_i64(op, x, y, z, n);
        break;
    case RU_U16:
        order_u16(op, x, y, z, n);
        break;
    case RU_U32:
        order_u32(op, x, y, z, n);
        break;
    case RU_U64:
        order_u64(op, x, y, z, n);
        break;
    default:
        order_u8(op, x, y, z, n);
        break;
    }
}

#define REPEAT(T)                         \
    do {                                  \
        T *to = (T *)buf;                 \
        const T one = *(const T *)x;      \
        for (int64_t i = 0; i < w; i++) { \
            to[i] = one;                  \
        }                                 \
    } while (0);                          \
    break

/* w times the one element at x. */
static const void *repeat(int64_t bytes, const void *x, int64_t w, void *buf)
{
    switch (bytes) {
    case 1:
        memset(buf, *(const uint8_t *)x, (size_t)w);
        break;
    case 2:
        REPEAT(uint16_t);
    case 4:
        REPEAT(uint32_t);
    default:
        REPEAT(uint64_t);
    }
    return buf;
}

void RUI_K(rui_kern_whole2)(ru_kern_whole op, ru_dtype t, const void *x, int64_t sx, const void *y,
                            int64_t sy, void *z, int64_t n)
{
    uint64_t bx[WHOLE_BLOCK], by[WHOLE_BLOCK];
    bool compares = op == RU_KERN_WHOLE_EQUAL || op >= RU_KERN_WHOLE_LESS;
    int64_t bytes = ru_dtype_bytes(t), z_bytes = compares ? 1 : bytes;
    int64_t step = sx != 0 && sy != 0 ? n : WHOLE_BLOCK, first = kv_min_i64(step, n);
    if (n <= 0) {
        return;
    }
    const void *one_x = sx == 0 ? repeat(bytes, x, first, bx) : NULL;
    const void *one_y = sy == 0 ? repeat(bytes, y, first, by) : NULL;
    for (int64_t i = 0; i < n; i += step) {
        block(op, t, sx == 0 ? one_x : (const char *)x + i * bytes,
              sy == 0 ? one_y : (const char *)y + i * bytes, (char *)z + i * z_bytes,
              kv_min_i64(step, n - i));
    }
}

#define TEST(T)                                                \
    do {                                                       \
        const T *xs = x;                                       \
        T m = (T)mask, least = (T)low, span = (T)(high - low); \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)    \
        {                                                      \
            y[i] = (T)((T)(xs[i] & m) - least) <= span;        \
        }                                                      \
    } while (0);                                               \
    break

void RUI_K(rui_kern_bits_within)(int64_t bytes, uint64_t mask, uint64_t low, uint64_t high,
                                 const void *x, uint8_t *y, int64_t n)
{
    switch (bytes) {
    case 1:
        TEST(uint8_t);
    case 2:
        TEST(uint16_t);
    case 4:
        TEST(uint32_t);
    default:
        TEST(uint64_t);
    }
}
