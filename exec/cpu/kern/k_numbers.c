/* Maps of f64, which k_elem.c has for f32; quantised numbers: q of 8 or 16 bits stands for
 * (q - zero) * scale.
 *
 * Error bounds (tested against long double): exp 1 unit in the last place, log 1, sigmoid 3,
 * tanh 4. NaN gives NaN, infinities their limits, denormal results are honoured. The series are
 * Taylor's: with 14 and 11 terms their rest is below 2^-57 of the sum. */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/numbers.h"

#ifdef __AVX512BW__
#include <immintrin.h>
#endif

RU_KERN_INLINE uint64_t wide_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

RU_KERN_INLINE double wide_float(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static const double ROUNDER = 0x1.8p52; /* adds to a number what rounds it to an integer */

/* e^x = 2^n (1 + q): q of the rest r = x - n log 2, |r| <= log(2) / 2. */
RU_KERN_INLINE double wide_exp_part(double x, int64_t *n)
{
    double t = x * 1.4426950408889634074 + ROUNDER;
    *n = (int64_t)(wide_bits(t) - wide_bits(ROUNDER));
    t -= ROUNDER;
    double r = x - t * 0x1.62e42fee00000p-1 - t * 0x1.a39ef35793c76p-33;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    return r + r * r * p;
}

RU_KERN_INLINE double wide_pow2(int64_t n)
{
    return wide_float((uint64_t)(n + 1023) << 52);
}

/* The power of two in two halves, as kv_exp does. */
RU_KERN_INLINE double wide_exp(double x)
{
    int64_t n;
    double c = x > 746.0 ? 746.0 : (x < -746.0 ? -746.0 : x);
    double y = 1.0 + wide_exp_part(x != x ? 0.0 : c, &n);
    int64_t half = (int64_t)((uint64_t)(n + 4096) >> 1) - 2048;
    return x != x ? x : y * wide_pow2(half) * wide_pow2(n - half);
}

RU_KERN_INLINE double wide_sigmoid(double x)
{
    double e = wide_exp(-fabs(x)), d = 1.0 / (1.0 + e);
    return x >= 0.0 ? d : (x != x ? x : e * d);
}

/* By m = e^2a - 1, which keeps its digits near 0: m / (m + 2). */
RU_KERN_INLINE double wide_tanh(double x)
{
    int64_t n;
    double a = fabs(x), c = a < 20.0 ? a : 20.0; /* from there it is 1; NaN too, here */
    double q = wide_exp_part(2.0 * c, &n), s = wide_pow2(n), m = s * q + (s - 1.0);
    return x != x ? x : copysign(m / (m + 2.0), x);
}

/* log of m 2^e with m in sqrt(1/2) .. sqrt(2): with f = m - 1 and s = f / (2 + f) it is
 * f - (f^2/2 - s (f^2/2 + R)), R = 2 (s^2/3 + s^4/5 + ...). */
RU_KERN_INLINE double wide_log(double x)
{
    double u = x < DBL_MIN ? x * 0x1p54 : x;
    uint64_t i = wide_bits(u);
    int64_t e = (int64_t)((i - 0x3fe6a09e667f3bcdu + (UINT64_C(1) << 62)) >> 52) - 1024;
    double m = wide_float(i - ((uint64_t)e << 52)), f = m - 1.0;
    double n = (double)(int32_t)e - (x < DBL_MIN ? 54.0 : 0.0);
    double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double p = 2.0 / 23.0;
    p = p * z + 2.0 / 21.0;
    p = p * z + 2.0 / 19.0;
    p = p * z + 2.0 / 17.0;
    p = p * z + 2.0 / 15.0;
    p = p * z + 2.0 / 13.0;
    p = p * z + 2.0 / 11.0;
    p = p * z + 2.0 / 9.0;
    p = p * z + 2.0 / 7.0;
    p = p * z + 2.0 / 5.0;
    p = p * z + 2.0 / 3.0;
    double y =
        n * 0x1.62e42fee00000p-1 - ((half - (s * (half + z * p) + n * 0x1.a39ef35793c76p-33)) - f);
    y = x == 0.0 ? -(double)INFINITY : y;
    y = x < 0.0 ? (double)NAN : y;
    return ((x == (double)INFINITY) | (x != x)) ? x : y;
}

/* f64 of the C library, one by one: a vector of them would not be faster. */
RU_KERN_INLINE double wide_softplus(double x)
{
    return log1p(exp(-fabs(x))) + (x > 0.0 ? x : 0.0);
}

static void map1(ru_kern_map1 op, const double *xs, double *ys, int64_t n)
{
    switch ((uint32_t)op) {
#define RU_X(name, f)                                       \
    case RU_KERN_MAP1_##name:                               \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
        {                                                   \
            double x = xs[i];                               \
            ys[i] = f;                                      \
        }                                                   \
        break;
        RU_KERN_WIDE1_LIST(RU_X)
#undef RU_X
    default:
        RU_CHECK(false);
    }
}

RU_KERN_INLINE double wide_floor_mod(double x, double y)
{
    double r = fmod(x, y);
    return r == 0.0 ? copysign(0.0, y) : (r < 0.0) != (y < 0.0) ? r + y : r;
}

RU_KERN_INLINE void map2_steps(ru_kern_map2 op, const double *xs, bool each_x, const double *ys,
                               bool each_y, double *zs, int64_t n)
{
    const double x0 = xs[0], y0 = ys[0];
    switch ((uint32_t)op) {
#define RU_X(name, f)                                                \
    case RU_KERN_MAP2_##name:                                        \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)          \
        {                                                            \
            double x = each_x ? xs[i] : x0, y = each_y ? ys[i] : y0; \
            zs[i] = f;                                               \
        }                                                            \
        break;
        RU_KERN_WIDE2_LIST(RU_X)
#undef RU_X
    default:
        RU_CHECK(false);
    }
}

static void map2(ru_kern_map2 op, const double *x, int64_t sx, const double *y, int64_t sy,
                 double *z, int64_t n)
{
    if (n <= 0) {
        return;
    }
    if (sx == 0) {
        map2_steps(op, x, false, y, sy != 0, z, n);
    } else if (sy == 0) {
        map2_steps(op, x, true, y, false, z, n);
    } else {
        map2_steps(op, x, true, y, true, z, n);
    }
}

static void cmp(ru_kern_cmp op, const double *xs, int64_t sx, const double *ys, int64_t sy,
                uint8_t *z, int64_t n)
{
    switch (op) {
#define RU_X(name, f)                              \
    case RU_KERN_CMP_##name:                       \
        for (int64_t i = 0; i < n; i++) {          \
            double x = xs[i * sx], y = ys[i * sy]; \
            z[i] = (uint8_t)(f);                   \
        }                                          \
        break;
        RU_KERN_CMP_LIST(RU_X)
#undef RU_X
    case RU_KERN_CMP_COUNT:
        break;
    }
}

/* -- numbers of few bits ------------------------------------------------------------------------
 *
 * In blocks whose length the compiler knows. A number is cut, then rounded to even by adding
 * 1.5 * 2^23: the low bits of the sum are the whole number, to which the zero point is added.
 */

enum { BITS_BLOCK = 64 };

typedef struct cut_to {
    float low, high; /* less the zero point */
    uint32_t zero;
} cut_to;

static cut_to cut_of(ru_dtype t, float zero)
{
    bool wide = t == RU_I16 || t == RU_U16;
    float low = t == RU_I8 ? -128.0f : t == RU_I16 ? -32768.0f : 0.0f;
    float high = low + (wide ? 65535.0f : 255.0f);
    return (cut_to){low - zero, high - zero, (uint32_t)(int32_t)zero};
}

/* x, or where less than a block is left, that in `pad` */
RU_KERN_INLINE const void *block_at(const void *x, int64_t bytes, int64_t left, void *pad)
{
    return left >= BITS_BLOCK ? x : memcpy(pad, x, (size_t)(left * bytes));
}

/* NaN becomes the least. */
#define CUT_BLOCK(name, T)                                                        \
    RU_KERN_INLINE void name(const float *v, const cut_to *c, T *y, int64_t left) \
    {                                                                             \
        uint32_t bits[BITS_BLOCK];                                                \
        T pad[BITS_BLOCK], *to = left >= BITS_BLOCK ? y : pad;                    \
        for (int j = 0; j < BITS_BLOCK; j++) {                                    \
            float q = v[j] > c->low ? v[j] : c->low;                              \
            q = q < c->high ? q : c->high;                                        \
            bits[j] = kv_bits(q + 12582912.0f);                                   \
        }                                                                         \
        for (int j = 0; j < BITS_BLOCK; j++) {                                    \
            to[j] = (T)((T)bits[j] + (T)c->zero);                                 \
        }                                                                         \
        if (left < BITS_BLOCK) {                                                  \
            memcpy(y, pad, (size_t)left * sizeof *y);                             \
        }                                                                         \
    }
CUT_BLOCK(cut_bytes, uint8_t)
CUT_BLOCK(cut_pairs, uint16_t)

void RUI_K(rui_kern_quantize)(const float *xs, float scale, float zero, ru_dtype t, void *y,
                              int64_t n)
{
    const cut_to c = cut_of(t, zero);
    const bool wide = t == RU_I16 || t == RU_U16;
    float pad[BITS_BLOCK] = {0}, v[BITS_BLOCK];
    for (int64_t i = 0; i < n; i += BITS_BLOCK) {
        const float *x = block_at(xs + i, 4, n - i, pad);
        for (int j = 0; j < BITS_BLOCK; j++) {
            v[j] = x[j] / scale;
        }
        if (wide) {
            cut_pairs(v, &c, (uint16_t *)y + i, n - i);
        } else {
            cut_bytes(v, &c, (uint8_t *)y + i, n - i);
        }
    }
}

/* ZERO and SCALE may name those of element i. */
#define DEQUANTIZE(type, ZERO, SCALE)             \
    do {                                          \
        const type *xs = x;                       \
        for (int64_t i = 0; i < n; i++) {         \
            y[i] = ((float)xs[i] - ZERO) * SCALE; \
        }                                         \
    } while (0)
#define DEQUANTIZE_ANY(ZERO, SCALE)            \
    do {                                       \
        if (t == RU_I8) {                      \
            DEQUANTIZE(int8_t, ZERO, SCALE);   \
        } else if (t == RU_U8) {               \
            DEQUANTIZE(uint8_t, ZERO, SCALE);  \
        } else if (t == RU_I16) {              \
            DEQUANTIZE(int16_t, ZERO, SCALE);  \
        } else if (t == RU_U16) {              \
            DEQUANTIZE(uint16_t, ZERO, SCALE); \
        } else {                               \
            DEQUANTIZE(int32_t, ZERO, SCALE);  \
        }                                      \
    } while (0)

void RUI_K(rui_kern_dequantize)(ru_dtype t, const void *x, float scale, float zero, float *y,
                                int64_t n)
{
    DEQUANTIZE_ANY(zero, scale);
}

/* A signed byte with its sign turned over is itself plus 128, unsigned. */
static uint8_t turn_of(bool sign)
{
    return sign ? 128 : 0;
}

/* Of sums of bytes: the offset, less what turning signs over adds. */
static float add_offset(const ru_kern_add8 *s)
{
    return s->c - (float)turn_of(s->types & 1U) * s->a - (float)turn_of(s->types & 2U) * s->b;
}

#ifdef __AVX512BW__
/* Bytes widened in place of pairs of pairs, as the compiler does it. Loads with a mask cost nothing
 * in a near cache; from memory, 22 M sums took 8.2 ms with them, 2.0 without (Zen 5). */
RU_KERN_INLINE __m512 bytes_at(const bool all, const uint8_t *x, __mmask16 some, uint8_t turn)
{
    __m128i v =
        all ? _mm_loadu_si128((const __m128i *)(const void *)x) : _mm_maskz_loadu_epi8(some, x);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_xor_si128(v, _mm_set1_epi8((char)turn))));
}

/* bs: of each element, or with `one` of all. */
RU_KERN_INLINE void add_bytes(const bool one, const ru_kern_add8 *s, const uint8_t *as,
                              const uint8_t *bs, uint8_t *y, int64_t n)
{
    const uint8_t ta = turn_of(s->types & 1U), tb = turn_of(s->types & 2U);
    const __m512 sa = _mm512_set1_ps(s->a), sb = _mm512_set1_ps(s->b);
    const __m512 more = _mm512_set1_ps(add_offset(s));
    const __m512 low = _mm512_set1_ps(s->low - s->zero), high = _mm512_set1_ps(s->high - s->zero);
    const __m512i zero = _mm512_set1_epi32((int32_t)s->zero);
    const __m512 same = _mm512_set1_ps((float)(*bs ^ tb) * s->b + add_offset(s));
#define ADD_SOME(all)                                                                   \
    __m512 b = one ? same : _mm512_fmadd_ps(bytes_at(all, bs + i, some, tb), sb, more); \
    __m512 v = _mm512_fmadd_ps(bytes_at(all, as + i, some, ta), sa, b);                 \
    v = _mm512_min_ps(_mm512_max_ps(v, low), high);                                     \
    const __m128i sum = _mm512_cvtepi32_epi8(_mm512_add_epi32(_mm512_cvtps_epi32(v), zero))
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 some = n - i >= 16 ? 0xffff : (__mmask16)((1U << (n - i)) - 1U);
        if (some == 0xffff) {
            ADD_SOME(true);
            _mm_storeu_si128((__m128i *)(void *)(y + i), sum);
        } else {
            ADD_SOME(false);
            _mm_mask_storeu_epi8(y + i, some, sum);
        }
    }
}
#else
RU_KERN_INLINE void add_bytes(const bool one, const ru_kern_add8 *s, const uint8_t *as,
                              const uint8_t *bs, uint8_t *y, int64_t n)
{
    const uint8_t ta = turn_of(s->types & 1U), tb = turn_of(s->types & 2U);
    const cut_to c = {s->low - s->zero, s->high - s->zero, (uint32_t)(int32_t)s->zero};
    const float sa = s->a, sb = s->b, more = add_offset(s), same = (float)(*bs ^ tb) * sb + more;
    uint8_t a_pad[BITS_BLOCK] = {0}, b_pad[BITS_BLOCK] = {0};
    float v[BITS_BLOCK];
    for (int64_t i = 0; i < n; i += BITS_BLOCK) {
        const uint8_t *a = block_at(as + i, 1, n - i, a_pad);
        const uint8_t *b = one ? b_pad : block_at(bs + i, 1, n - i, b_pad);
        for (int j = 0; j < BITS_BLOCK; j++) {
            v[j] = (float)(a[j] ^ ta) * sa + (one ? same : (float)(b[j] ^ tb) * sb + more);
        }
        cut_bytes(v, &c, y + i, n - i);
    }
}
#endif

void RUI_K(rui_kern_add_int8)(const ru_kern_add8 *s, const void *as, const void *bs, void *y,
                              int64_t n)
{
    add_bytes(false, s, as, bs, y, n);
}

static void add_one_int8(const ru_kern_add8 *s, const void *as, const void *b, void *y, int64_t n)
{
    add_bytes(true, s, as, b, y, n);
}

static void mul_int8(const ru_kern_add8 *s, const void *as, const void *bs, void *y, int64_t n)
{
    const uint8_t ta = turn_of(s->types & 1U), tb = turn_of(s->types & 2U);
    const cut_to c = {s->low - s->zero, s->high - s->zero, (uint32_t)(int32_t)s->zero};
    const float az = s->a + (float)ta, bz = s->b + (float)tb, scale = s->c;
    uint8_t a_pad[BITS_BLOCK] = {0}, b_pad[BITS_BLOCK] = {0};
    float v[BITS_BLOCK];
    for (int64_t i = 0; i < n; i += BITS_BLOCK) {
        const uint8_t *a = block_at((const uint8_t *)as + i, 1, n - i, a_pad);
        const uint8_t *b = block_at((const uint8_t *)bs + i, 1, n - i, b_pad);
        for (int j = 0; j < BITS_BLOCK; j++) {
            v[j] = ((float)(a[j] ^ ta) - az) * ((float)(b[j] ^ tb) - bz) * scale;
        }
        cut_bytes(v, &c, (uint8_t *)y + i, n - i);
    }
}

#if defined(__AVX512BW__)
/* 64 bytes at a time out of two halves of the table; how many. Not all processors of this set have
 * the permutation of bytes. */
__attribute__((target("avx512vbmi"))) static int64_t
look_up_64(const uint8_t *table, const uint8_t *x, uint8_t *y, int64_t n)
{
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
    const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i at = _mm512_loadu_si512(x + i);
        const __m512i low = _mm512_permutex2var_epi8(t0, at, t1);
        const __m512i high = _mm512_permutex2var_epi8(t2, at, t3);
        _mm512_storeu_si512(y + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
    }
    return i;
}
#endif

static void look_up(const uint8_t *table, const uint8_t *x, uint8_t *y, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512BW__)
    i = __builtin_cpu_supports("avx512vbmi") ? look_up_64(table, x, y, n) : 0;
#endif
    for (; i + 8 <= n; i += 8) { /* one load and one store for eight */
        uint64_t at, found = 0;
        memcpy(&at, x + i, sizeof at);
#pragma GCC unroll 8
        for (int q = 0; q < 64; q += 8) {
            found |= (uint64_t)table[at >> q & 255] << q;
        }
        memcpy(y + i, &found, sizeof found);
    }
    for (; i < n; i++) {
        y[i] = table[x[i]];
    }
}

static void limits(const float *x, int64_t n, float *limit)
{
    float low = limit[0], high = limit[1];
#pragma omp simd reduction(min : low) reduction(max : high)
    for (int64_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    limit[0] = low;
    limit[1] = high;
}

#define QUANTIZE_EACH(type)                                             \
    do {                                                                \
        type *ys = y;                                                   \
        for (int64_t i = 0; i < n; i++) {                               \
            float q = rintf(x[i] / scale[i]) + zero[i];                 \
            ys[i] = (type)(int)(q > low ? (q < high ? q : high) : low); \
        }                                                               \
    } while (0)

static void quantize(const float *x, const float *scale, const float *zero, ru_dtype t, void *y,
                     int64_t n)
{
    bool wide = t == RU_I16 || t == RU_U16;
    float low = t == RU_I8 ? -128.0f : t == RU_I16 ? -32768.0f : 0.0f;
    float high = low + (wide ? 65535.0f : 255.0f);
    if (t == RU_I8) {
        QUANTIZE_EACH(int8_t);
    } else if (t == RU_I16) {
        QUANTIZE_EACH(int16_t);
    } else if (t == RU_U16) {
        QUANTIZE_EACH(uint16_t);
    } else {
        QUANTIZE_EACH(uint8_t);
    }
}

static void dequantize(ru_dtype t, const void *x, const float *scale, const float *zero, float *y,
                       int64_t n)
{
    DEQUANTIZE_ANY(zero[i], scale[i]);
}

#define CUT(T)                                         \
    do {                                               \
        for (int64_t i = 0; i < n; i++) {              \
            ((T *)y)[i] = (T)(uint64_t)(int64_t)xs[i]; \
        }                                              \
    } while (0);                                       \
    break

static void cut_block(const double *xs, int64_t bytes, void *y, int64_t n)
{
    switch (bytes) {
    case 1:
        CUT(uint8_t);
    case 2:
        CUT(uint16_t);
    case 4:
        CUT(uint32_t);
    default:
        CUT(uint64_t);
    }
}

static void cut(const double *x, int64_t bytes, void *y, int64_t n)
{
    const double most = 0x1.fffffffffffffp62, least = -0x1p63;
    double near[KV_BLOCK];
    for (int64_t b = 0; b < n; b += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - b), far = 0;
        const double *xs = x + b;
        char *to = (char *)y + b * bytes;
#pragma omp simd reduction(| : far)
        for (int64_t i = 0; i < w; i++) {
            far |= fabs(xs[i]) < 0x1p62 ? 0 : 1;
        }
        for (int64_t i = 0; far != 0 && i < w; i++) {
            near[i] = xs[i] > least ? (xs[i] < most ? xs[i] : most) : least;
        }
        cut_block(far != 0 ? near : xs, bytes, to, w);
        const uint64_t top = bytes == 8 ? INT64_MAX : UINT64_MAX; /* which no f64 is */
        for (int64_t i = 0; far != 0 && i < w; i++) {
            if (xs[i] > most) {
                memcpy(to + i * bytes, &top, (size_t)bytes);
            }
        }
    }
}

/* Rows of at most so many bytes are summed eight at a time in a word: four sums of 16 bits. */
enum { SUM_SHORT = 96 };

static int32_t sum_short(const uint8_t *x, uint64_t turn, int64_t n)
{
    const uint64_t even = UINT64_C(0x00ff00ff00ff00ff);
    uint64_t sum = 0, word;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&word, x + i, 8);
        word ^= turn;
        sum += (word & even) + (word >> 8 & even);
    }
    uint32_t all = (uint32_t)(sum & 0xffff) + (uint32_t)(sum >> 16 & 0xffff) +
                   (uint32_t)(sum >> 32 & 0xffff) + (uint32_t)(sum >> 48);
    for (; i < n; i++) {
        all += x[i] ^ (uint8_t)turn;
    }
    return (int32_t)all - (turn != 0 ? 128 * (int32_t)n : 0);
}

static void sum_rows(bool sign, const void *x, int64_t rows, int64_t n, int32_t *y)
{
    for (int64_t i = 0; i < rows; i++) {
        int32_t sum = 0;
        const uint8_t *u = (const uint8_t *)x + i * n;
        const int8_t *s = (const int8_t *)x + i * n;
        if (n <= SUM_SHORT) {
            y[i] = sum_short(u, sign ? UINT64_C(0x8080808080808080) : 0, n);
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            sum += sign ? s[j] : u[j];
        }
        y[i] = sum;
    }
}

static void sum_columns(const int8_t *x, int64_t rows, int64_t n, int32_t *y)
{
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < n; j++) {
            y[j] += x[i * n + j];
        }
    }
}

static void less_terms(const uint32_t *rows, const uint32_t *by, const uint32_t *cols, uint32_t *y,
                       int64_t n_rows, int64_t n)
{
    for (int64_t i = 0; i < n_rows; i++, y += n) {
        const uint32_t row = rows != NULL ? rows[i] : 0;
        if (by == NULL) {
            for (int64_t j = 0; j < n; j++) {
                y[j] -= row + (cols != NULL ? cols[j] : 0);
            }
        } else if (cols == NULL) {
            for (int64_t j = 0; j < n; j++) {
                y[j] -= row * by[j];
            }
        } else {
            for (int64_t j = 0; j < n; j++) {
                y[j] -= row * by[j] + cols[j];
            }
        }
    }
}

/* -- places of the largest ----------------------------------------------------------------------
 * Of numbers turned so that the largest is looked for. `at` is as wide, at least 32 bits. */

enum { ARG_SIDE = 64, ARG_SHORT = 64, ARG_PIECE = 512, ARG_LOOK = 64 };

#define NO_NAN(v)        0
#define IS_NAN(v)        ((v) != (v))
#define TURN_WHOLE(T, v) (T)((v) ^ turn)
#define TURN_REAL(T, v)  (turn < 0 ? -(v) : (v))

/* `cols` lines side by side, their elements `step` apart. */
#define ARG_SIDES(T, A, name, TURN, NAN_OF)                                                        \
    RU_KERN_INLINE void name##_side(bool smallest, bool last, const T *x, int64_t dim,             \
                                    int64_t step, int64_t cols, int64_t *y)                        \
    {                                                                                              \
        T best[ARG_SIDE];                                                                          \
        A at[ARG_SIDE] = {0};                                                                      \
        const T turn = (T)(smallest ? -1 : 0);                                                     \
        for (int64_t j = 0; j < cols; j++) {                                                       \
            best[j] = TURN(T, x[j]);                                                               \
        }                                                                                          \
        for (A k = 1; k < (A)dim; k++) {                                                           \
            const T *from = x + k * step;                                                          \
            _Pragma("omp simd") for (int64_t j = 0; j < cols; j++)                                 \
            {                                                                                      \
                T v = TURN(T, from[j]), b = best[j];                                               \
                bool better = last ? NAN_OF(v) | !((b > v) | NAN_OF(b)) : !((v <= b) | NAN_OF(b)); \
                best[j] = better ? v : b;                                                          \
                at[j] = better ? k : at[j];                                                        \
            }                                                                                      \
        }                                                                                          \
        for (int64_t j = 0; j < cols; j++) {                                                       \
            y[j] = at[j];                                                                          \
        }                                                                                          \
    }                                                                                              \
    static void name##_any(const ru_kern_scan *s, const T *x, int64_t step, int64_t cols,          \
                           int64_t *y)                                                             \
    {                                                                                              \
        if (s->last) {                                                                             \
            name##_side(s->smallest, true, x, s->dim, step, cols, y);                              \
        } else {                                                                                   \
            name##_side(s->smallest, false, x, s->dim, step, cols, y);                             \
        }                                                                                          \
    }

/* The piece of a line that has the best, and then its place there. The compiler knows the
 * direction: else it chooses in the loop, or takes no vectors. */
#define ARG_LINE(T, A, name, TURN, NAN_OF)                                                        \
    RU_KERN_INLINE int64_t name##_in(const T *x, int64_t n, const T turn, bool nan, bool last,    \
                                     T best)                                                      \
    {                                                                                             \
        for (int64_t b = 0; b < n; b += ARG_LOOK) {                                               \
            int64_t w = kv_min_i64(ARG_LOOK, n - b), at = last ? n - b - w : b;                   \
            uint8_t hit[ARG_LOOK] = {0};                                                          \
            _Pragma("omp simd") for (int64_t i = 0; i < w; i++)                                   \
            {                                                                                     \
                T v = TURN(T, x[at + i]);                                                         \
                hit[i] = nan ? NAN_OF(v) : v == best;                                             \
            }                                                                                     \
            for (int64_t i = 0; i < ARG_LOOK; i += 8) {                                           \
                int64_t from = last ? ARG_LOOK - 8 - i : i, k = last ? 7 : 0;                     \
                uint64_t eight;                                                                   \
                memcpy(&eight, hit + from, sizeof eight);                                         \
                if (eight != 0) {                                                                 \
                    for (; hit[from + k] == 0; k += last ? -1 : 1) {                              \
                    }                                                                             \
                    return at + from + k;                                                         \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
        return 0;                                                                                 \
    }                                                                                             \
    RU_KERN_INLINE int64_t name##_line_by(const bool smallest, const ru_kern_scan *s, const T *x) \
    {                                                                                             \
        const T turn = (T)(smallest ? -1 : 0);                                                    \
        int64_t from = 0;                                                                         \
        T best = TURN(T, x[0]);                                                                   \
        bool nan = false;                                                                         \
        for (int64_t b = 0; b < s->dim; b += ARG_PIECE) {                                         \
            int64_t n = kv_min_i64(ARG_PIECE, s->dim - b);                                        \
            T m = TURN(T, x[b]);                                                                  \
            A odd = 0;                                                                            \
            _Pragma("omp simd reduction(max : m) reduction(| : odd)") for (int64_t i = 0; i < n;  \
                                                                           i++)                   \
            {                                                                                     \
                T v = TURN(T, x[b + i]);                                                          \
                m = v > m ? v : m;                                                                \
                odd |= NAN_OF(v) ? 1 : 0;                                                         \
            }                                                                                     \
            bool above = s->last ? m >= best : m > best;                                          \
            if (odd != 0 ? !nan || s->last : !nan && above) {                                     \
                from = b;                                                                         \
                best = m;                                                                         \
                nan = odd != 0;                                                                   \
            }                                                                                     \
        }                                                                                         \
        int64_t n = kv_min_i64(ARG_PIECE, s->dim - from);                                         \
        return from + name##_in(x + from, n, turn, nan, s->last, best);                           \
    }                                                                                             \
    static int64_t name##_line(const ru_kern_scan *s, const T *x)                                 \
    {                                                                                             \
        return s->smallest ? name##_line_by(true, s, x) : name##_line_by(false, s, x);            \
    }

#define ARG_KERNEL(T, A, name, TURN, NAN_OF)                                                \
    ARG_SIDES(T, A, name, TURN, NAN_OF)                                                     \
    ARG_LINE(T, A, name, TURN, NAN_OF)                                                      \
    static void name(const ru_kern_scan *s, const T *x, int64_t *y, int64_t o0, int64_t o1) \
    {                                                                                       \
        int64_t dim = s->dim, inner = s->inner, o = o0;                                     \
        T turned[ARG_SHORT * ARG_SIDE];                                                     \
        for (; inner == 1 && dim <= ARG_SHORT && o < o1; o += ARG_SIDE) {                   \
            int64_t n = kv_min_i64(ARG_SIDE, o1 - o);                                       \
            RUI_K(rui_kern_transpose)                                                       \
            (sizeof(T), x + o * dim, dim, turned, ARG_SIDE, n, dim);                        \
            name##_any(s, turned, ARG_SIDE, n, y + o);                                      \
        }                                                                                   \
        for (; inner == 1 && o < o1; o++) {                                                 \
            y[o] = name##_line(s, x + o * dim);                                             \
        }                                                                                   \
        for (int64_t c = 0; inner > 1 && c < (o1 - o0) * inner;) {                          \
            int64_t at = c % inner, n = kv_min_i64(ARG_SIDE, inner - at);                   \
            const T *from = x + (o0 + c / inner) * dim * inner + at;                        \
            name##_any(s, from, inner, n, y + o0 * inner + c);                              \
            c += n;                                                                         \
        }                                                                                   \
    }

ARG_KERNEL(double, int64_t, arg_f64, TURN_REAL, IS_NAN)
ARG_KERNEL(int64_t, int64_t, arg_i64, TURN_WHOLE, NO_NAN)
ARG_KERNEL(uint64_t, int64_t, arg_u64, TURN_WHOLE, NO_NAN)
ARG_KERNEL(int32_t, int32_t, arg_i32, TURN_WHOLE, NO_NAN)
ARG_KERNEL(uint32_t, int32_t, arg_u32, TURN_WHOLE, NO_NAN)
ARG_KERNEL(int16_t, int32_t, arg_i16, TURN_WHOLE, NO_NAN)
ARG_KERNEL(uint16_t, int32_t, arg_u16, TURN_WHOLE, NO_NAN)
ARG_KERNEL(int8_t, int32_t, arg_i8, TURN_WHOLE, NO_NAN)
ARG_KERNEL(uint8_t, int32_t, arg_u8, TURN_WHOLE, NO_NAN)

static void arg(const ru_kern_scan *s, ru_dtype t, const void *x, int64_t *y, int64_t o0,
                int64_t o1)
{
    switch ((uint32_t)t) {
    case RU_F64:
        arg_f64(s, x, y, o0, o1);
        break;
    case RU_I64:
        arg_i64(s, x, y, o0, o1);
        break;
    case RU_U64:
        arg_u64(s, x, y, o0, o1);
        break;
    case RU_I32:
        arg_i32(s, x, y, o0, o1);
        break;
    case RU_U32:
        arg_u32(s, x, y, o0, o1);
        break;
    case RU_I16:
        arg_i16(s, x, y, o0, o1);
        break;
    case RU_U16:
        arg_u16(s, x, y, o0, o1);
        break;
    case RU_I8:
        arg_i8(s, x, y, o0, o1);
        break;
    case RU_U8:
    case RU_BOOL:
        arg_u8(s, x, y, o0, o1);
        break;
    default:
        RU_CHECK(false);
    }
}

extern const ru_kern_numbers RUI_K(rui_kern_numbers);
const ru_kern_numbers RUI_K(rui_kern_numbers) = {
    .map1 = map1,
    .map2 = map2,
    .cmp = cmp,
    .quantize = quantize,
    .dequantize = dequantize,
    .cut = cut,
    .sum_rows = sum_rows,
    .sum_columns = sum_columns,
    .arg = arg,
    .mul_int8 = mul_int8,
    .add_one_int8 = add_one_int8,
    .look_up = look_up,
    .limits = limits,
    .less_terms = less_terms,
    .col2im_work = RUI_K(rui_kern_col2im_work),
    .col2im = RUI_K(rui_kern_col2im),
    .sample_work = RUI_K(rui_kern_sample_work),
    .sample_taps = RUI_K(rui_kern_sample_taps),
    .sample = RUI_K(rui_kern_sample),
    .roi = RUI_K(rui_kern_roi),
    .det = RUI_K(rui_kern_det),
    .gemm_f32 = RUI_K(rui_kern_gemm_f32),
    .gemm_u32 = RUI_K(rui_kern_gemm_u32),
    .gemm_u64 = RUI_K(rui_kern_gemm_u64),
    .apart_lanes = RUI_K(rui_kern_apart_lanes),
    .apart_work = RUI_K(rui_kern_apart_work),
    .apart = RUI_K(rui_kern_apart),
    .near_rows = RUI_K(rui_kern_near_rows),
    .near = RUI_K(rui_kern_near),
    .patch_floats = RUI_K(rui_kern_patch_floats),
    .patch_pack = RUI_K(rui_kern_patch_pack),
    .patch_work = RUI_K(rui_kern_patch_work),
    .patch = RUI_K(rui_kern_patch),
    .fourier_work = RUI_K(rui_kern_fourier_work),
    .fourier = RUI_K(rui_kern_fourier),
};
