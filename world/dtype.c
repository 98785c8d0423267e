/* Element types: the table and the half-precision conversions.
 *
 * Source: IEEE 754-2008 sec 3.6 (binary16), round to nearest even; bfloat16 is the upper half of
 * binary32. */
#include "world/dtype.h"

#include <string.h>

/* Names sit inside the rows so that the table needs no relocation and stays read-only. */
typedef struct dtype_row {
    char name[8];
    int32_t bytes, onnx;
} dtype_row;

static const dtype_row rows[RU_DTYPE_COUNT] = {
#define RU_X(name, word, bytes, onnx, st, np) {word, bytes, onnx},
    RU_DTYPE_LIST(RU_X)
#undef RU_X
};

const char *ru_dtype_name(ru_dtype t)
{
    return (uint32_t)t < RU_DTYPE_COUNT ? rows[t].name : "?";
}

int64_t ru_dtype_bytes(ru_dtype t)
{
    RU_CHECK((uint32_t)t < RU_DTYPE_COUNT);
    return rows[t].bytes;
}

bool ru_dtype_is_float(ru_dtype t)
{
    return t == RU_F32 || t == RU_F64 || t == RU_F16 || t == RU_BF16;
}

bool ru_dtype_is_int(ru_dtype t)
{
    return t >= RU_I8 && t <= RU_U64;
}

int32_t ru_dtype_onnx(ru_dtype t)
{
    RU_CHECK((uint32_t)t < RU_DTYPE_COUNT);
    return rows[t].onnx;
}

ru_dtype ru_dtype_from_onnx(int32_t number)
{
    for (uint32_t t = 1; t < RU_DTYPE_COUNT; t++) {
        if (rows[t].onnx == number) {
            return (ru_dtype)t;
        }
    }
    return RU_NONE;
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

uint16_t ru_f32_to_bf16(float x)
{
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)((u >> 16) | 0x40U); /* keep it a quiet NaN */
    }
    return (uint16_t)((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}

float ru_bf16_to_f32(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

uint16_t ru_f32_to_f16(float x)
{
    uint32_t u = bits_of(x);
    uint32_t sign = (u >> 16) & 0x8000U;
    uint32_t mag = u & 0x7fffffffU;
    if (mag > 0x7f800000U) {
        return (uint16_t)(sign | 0x7e00U | ((mag >> 13) & 0x1ffU));
    }
    if (mag >= 0x477ff000U) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00U);
    }
    if (mag >= 0x38800000U) { /* normal: rebias the exponent by 112, round 13 bits away */
        uint32_t r = mag - 0x38000000U;
        return (uint16_t)(sign | ((r + 0xfffU + ((r >> 13) & 1U)) >> 13));
    }
    if (mag < 0x33000000U) { /* below half of the smallest subnormal, 2^-25 */
        return (uint16_t)sign;
    }
    uint32_t mant = (mag & 0x7fffffU) | 0x800000U;
    uint32_t shift = 126U - (mag >> 23); /* 14 .. 24 */
    uint32_t half = 1U << (shift - 1);
    uint32_t rest = mant & ((1U << shift) - 1U);
    uint32_t q = mant >> shift;
    q += rest > half || (rest == half && (q & 1U) != 0) ? 1U : 0U;
    return (uint16_t)(sign | q);
}

float ru_f16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000U) << 16;
    uint32_t e = (x >> 10) & 0x1fU;
    uint32_t m = x & 0x3ffU;
    if (e == 0x1fU) {
        return float_of(sign | 0x7f800000U | (m << 13));
    }
    if (e != 0) {
        return float_of(sign | ((e + 112U) << 23) | (m << 13));
    }
    float v = (float)m * 0x1p-24F;
    return sign != 0 ? -v : v;
}
