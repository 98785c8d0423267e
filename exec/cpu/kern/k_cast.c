/* Conversions between element types. */
#include "exec/cpu/kern/isa.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

#define CAST_LOOP(from_t, to_t, f)                          \
    do {                                                    \
        const from_t *xs = x;                               \
        to_t *ys = y;                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
        {                                                   \
            from_t v = xs[i];                               \
            ys[i] = f;                                      \
        }                                                   \
        return true;                                        \
    } while (0)

/* -- f16 -----------------------------------------------------------------------------------------
 */

/* Round to nearest even; NaN stays NaN. Below 2^-14 the sum with 1/2 rounds to multiples of 2^-24.
 */
RU_KERN_INLINE uint16_t kv_to_f16(float x)
{
    uint32_t u = kv_bits(x), mag = u & 0x7fffffffu;
    uint32_t usual = (mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1u)) >> 13;
    uint32_t tiny = kv_bits(kv_float(mag < 0x38800000u ? mag : 0) + 0.5f) - 0x3f000000u;
    uint32_t r = mag < 0x38800000u ? tiny : usual;
    r = mag >= 0x477ff000u ? 0x7c00u : r; /* 65520 and above */
    r = mag > 0x7f800000u ? 0x7e00u | ((mag >> 13) & 0x1ffu) : r;
    return (uint16_t)(r | (u >> 16 & 0x8000u));
}

static void narrow_f16(const float *x, uint16_t *y, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) {
        __m256i h =
            _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_storeu_si256((__m256i *)(void *)(y + i), h);
    }
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(y + i), h);
    }
#endif
#pragma omp simd
    for (int64_t j = i; j < n; j++) {
        y[j] = kv_to_f16(x[j]);
    }
}

RU_KERN_INLINE float kv_from_f16(uint16_t h)
{
    uint32_t mag = h & 0x7fffu, at = mag << 13;
    uint32_t usual = at + 0x38000000u;
    uint32_t tiny = kv_bits((float)(int32_t)(mag & 0x3ffu) * 5.9604644775390625e-8f);
    uint32_t r = mag < 0x400u ? tiny : usual;
    r = mag >= 0x7c00u ? at + 0x70000000u : r;
    return kv_float(r | (uint32_t)(h & 0x8000u) << 16);
}

/* -- floats to whole numbers: toward zero; beyond 64 bits the nearest, then wrapped to the width;
 * from 2^63 on u64 has numbers of its own
 * ------------------------------------------------------------- */

/* Do all of x lie within 31 bits? */
static bool is_small(const float *x, int64_t n)
{
    uint32_t top = 0;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++) {
        uint32_t mag = kv_bits(x[i]) & 0x7fffffffu;
        top = mag > top ? mag : top;
    }
    return top < 0x4f000000u;
}

/* The conversion itself sees a magnitude below 2^63, cut off by bits: a compiler that knows the
 * comparisons below drops one of floats, and what does not fit then looks like an operation that
 * made a NaN (ru_pool_invalid). NaN is the least. */
static void cut_any(const float *x, int64_t *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = kv_bits(x[i]), mag = u & 0x7fffffffu;
        mag = mag < 0x5effffffu ? mag : 0x5effffffu;
        int64_t v = (int64_t)kv_float(mag | (u & 0x80000000u));
        v = x[i] >= 9223372036854775808.0f ? INT64_MAX : v;
        y[i] = x[i] > -9223372036854775808.0f ? v : INT64_MIN;
    }
}

/* What cut_any gave as 2^63 - 1: the 24 bits of the float at their place, from 2^64 on the most. */
static void cut_high(const float *x, uint64_t *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = kv_bits(x[i]);
        uint64_t v = (uint64_t)((u & 0x7fffffu) | 0x800000u) << 40;
        v = u >= 0x5f800000u ? UINT64_MAX : v;
        y[i] = u >= 0x5f000000u && u <= 0x7f800000u ? v : y[i];
    }
}

static void cut_small(const float *x, int32_t *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = (int32_t)x[i];
    }
}

/* n whole numbers of type I to the widths of `to`. */
#define NARROW(I, name)                                              \
    static bool name(const void *x, ru_dtype to, void *y, int64_t n) \
    {                                                                \
        if (to == RU_BOOL) {                                         \
            CAST_LOOP(I, uint8_t, v != 0);                           \
        }                                                            \
        if (ru_dtype_bytes(to) == (int64_t)sizeof(I) && n > 0) {     \
            memcpy(y, x, (size_t)n * sizeof(I));                     \
            return true;                                             \
        }                                                            \
        switch (ru_dtype_bytes(to)) {                                \
        case 1:                                                      \
            CAST_LOOP(I, uint8_t, (uint8_t)v);                       \
        case 2:                                                      \
            CAST_LOOP(I, uint16_t, (uint16_t)v);                     \
        case 4:                                                      \
            CAST_LOOP(I, uint32_t, (uint32_t)v);                     \
        default:                                                     \
            CAST_LOOP(I, uint64_t, (uint64_t)v);                     \
        }                                                            \
    }
NARROW(int8_t, from_i8)
NARROW(uint8_t, from_u8)
NARROW(int16_t, from_i16)
NARROW(uint16_t, from_u16)
NARROW(int32_t, from_i32)
NARROW(uint32_t, from_u32)
NARROW(int64_t, from_i64)

static bool from_whole(ru_dtype from, const void *x, ru_dtype to, void *y, int64_t n)
{
    switch ((uint32_t)from) {
    case RU_I8:
        return from_i8(x, to, y, n);
    case RU_U8:
    case RU_BOOL:
        return from_u8(x, to, y, n);
    case RU_I16:
        return from_i16(x, to, y, n);
    case RU_U16:
        return from_u16(x, to, y, n);
    case RU_I32:
        return from_i32(x, to, y, n);
    case RU_U32:
        return from_u32(x, to, y, n);
    default:
        return from_i64(x, to, y, n);
    }
}

static bool cut_floats(const float *x, ru_dtype to, void *y, int64_t n)
{
    int32_t small[KV_BLOCK];
    int64_t wide[KV_BLOCK], bytes = ru_dtype_bytes(to);
    for (int64_t i = 0; i < n; i += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - i);
        char *at = (char *)y + i * bytes;
        if (is_small(x + i, w)) {
            cut_small(x + i, bytes == 4 ? (void *)at : small, w);
            (void)(bytes == 4 || from_i32(small, to, at, w));
        } else {
            cut_any(x + i, bytes == 8 ? (void *)at : wide, w);
            (void)(bytes == 8 || from_i64(wide, to, at, w));
            if (to == RU_U64) {
                cut_high(x + i, (void *)at, w);
            }
        }
    }
    return true;
}

/* -- all others ----------------------------------------------------------------------------------
 */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
static bool to_f32(ru_dtype from, const void *x, float *y, int64_t n)
{
    switch ((uint32_t)from) {
    case RU_BF16:
        CAST_LOOP(uint16_t, float, kv_from_bf16(v));
    case RU_F16:
        CAST_LOOP(uint16_t, float, kv_from_f16(v));
    case RU_F64:
        CAST_LOOP(double, float, (float)v);
    case RU_I8:
        CAST_LOOP(int8_t, float, (float)v);
    case RU_U8:
    case RU_BOOL:
        CAST_LOOP(uint8_t, float, (float)v);
    case RU_I16:
        CAST_LOOP(int16_t, float, (float)v);
    case RU_U16:
        CAST_LOOP(uint16_t, float, (float)v);
    case RU_I32:
        CAST_LOOP(int32_t, float, (float)v);
    case RU_U32:
        CAST_LOOP(uint32_t, float, (float)v);
    case RU_I64:
        CAST_LOOP(int64_t, float, (float)v);
    case RU_U64:
        CAST_LOOP(uint64_t, float, (float)v);
    default:
        return false;
    }
}
#pragma GCC diagnostic pop

static bool from_f32(const void *x, ru_dtype to, void *y, int64_t n)
{
    switch ((uint32_t)to) {
    case RU_BF16:
        kv_narrow(x, y, n);
        return true;
    case RU_F16:
        narrow_f16(x, y, n);
        return true;
    case RU_F64:
        CAST_LOOP(float, double, (double)v);
    case RU_BOOL:
        CAST_LOOP(float, uint8_t, v != 0.0f);
    default:
        return ru_dtype_is_int(to) && cut_floats(x, to, y, n);
    }
}

/* -- by way of f32, where that rounds once -------------------------------------------------------
 */

/* From numbers of one or two bytes, which an f32 holds. */
static bool by_f32(ru_dtype from, const void *x, ru_dtype to, void *y, int64_t n)
{
    float mid[KV_BLOCK];
    int64_t in = ru_dtype_bytes(from), out = ru_dtype_bytes(to);
    bool can = from_f32(x, to, y, 0);
    for (int64_t i = 0; can && i < n; i += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - i);
        can = to_f32(from, (const char *)x + i * in, mid, w) &&
              from_f32(mid, to, (char *)y + i * out, w);
    }
    return can;
}

/* 14 digits, of which the last one remembers all that were cut: rounding that to the 11 of f16 or
 * the 8 of bf16 is rounding x. An f32 holds them, but for numbers that are 0 in either. */
static void keep_odd(const double *x, float *y, int64_t n)
{
    const uint64_t last = UINT64_C(1) << 39, low = last - 1;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint64_t u;
        double v;
        memcpy(&u, &x[i], sizeof u);
        u = (u & ~low) | (((u & low) + low) & last);
        memcpy(&v, &u, sizeof v);
        y[i] = (float)v;
    }
}

static bool to_f64(ru_dtype from, const void *x, double *y, int64_t n)
{
    switch ((uint32_t)from) {
    case RU_I32:
        CAST_LOOP(int32_t, double, (double)v);
    case RU_U32:
        CAST_LOOP(uint32_t, double, (double)v);
    case RU_I64:
        CAST_LOOP(int64_t, double, (double)v);
    case RU_U64:
        CAST_LOOP(uint64_t, double, (double)v);
    default:
        return false;
    }
}

/* From f64 and whole numbers of four or eight bytes to f16 or bf16. A whole number that an f64
 * rounds is an infinity in f16, and in bf16 what the f64 is. */
static void to_half(ru_dtype from, const void *x, ru_dtype to, uint16_t *y, int64_t n)
{
    double wide[KV_BLOCK];
    float mid[KV_BLOCK];
    for (int64_t i = 0; i < n; i += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - i);
        const void *at = (const char *)x + i * ru_dtype_bytes(from);
        keep_odd(to_f64(from, at, wide, w) ? wide : at, mid, w);
        (void)from_f32(mid, to, y + i, w);
    }
}

bool RUI_K(rui_kern_cast)(ru_dtype from, const void *x, ru_dtype to, void *y, int64_t n)
{
    bool real = ru_dtype_is_float(from), real_to = ru_dtype_is_float(to);
    if (to == RU_F32) {
        return to_f32(from, x, y, n);
    }
    if (from == RU_F32) {
        return from_f32(x, to, y, n);
    }
    if (!real && !real_to) {
        return from_whole(from, x, to, y, n);
    }
    if (ru_dtype_bytes(from) <= 2) {
        return by_f32(from, x, to, y, n);
    }
    if (to == RU_F16 || to == RU_BF16) {
        to_half(from, x, to, y, n);
        return true;
    }
    if (from == RU_F64 && to == RU_BOOL) {
        CAST_LOOP(double, uint8_t, v != 0.0);
    }
    return to == RU_F64 && to_f64(from, x, y, n);
}
