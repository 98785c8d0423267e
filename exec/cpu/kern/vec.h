/* Vector mathematics, written as branch-free scalar functions that the compiler turns into vectors
 * of whatever width the instruction set of this build has. Every kernel source is compiled once per
 * instruction set; RUI_K(name) gives each copy its own name.
 *
 * Error bounds (tested against double over the whole range, in units of the last place): exp 1,
 * log 1, tanh 2, asin 3, acos 3, atan 2, sigmoid 2, erf 2, gelu 4 (its tanh form 24 in the left
 * tail, where the argument is rounded before the exponential). NaN gives NaN, infinities their
 * limits, denormal inputs and results are honoured. Polynomials are our own weighted minimax fits.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_KERN_VEC_H
#define RU_EXEC_CPU_KERN_VEC_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "exec/cpu/kern/kern.h"

#ifndef RU_KERN_ISA
#define RU_KERN_ISA base
#endif
#define RUI_K2(name, isa) name##_##isa
#define RUI_K1(name, isa) RUI_K2(name, isa)
#define RUI_K(name)       RUI_K1(name, RU_KERN_ISA)

#if defined(__GNUC__)
#define RU_KERN_INLINE static inline __attribute__((always_inline, unused))
#else
#define RU_KERN_INLINE static inline
#endif

enum {
    KV_BLOCK = 1024, /* floats staged at a time when a tensor is not f32: stays in L1 */
    KV_LANES = 64,   /* partial sums of a reduction: the same on every instruction set */
};

RU_KERN_INLINE uint32_t kv_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

RU_KERN_INLINE float kv_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

RU_KERN_INLINE float kv_from_bf16(uint16_t h)
{
    return kv_float((uint32_t)h << 16);
}

/* Round to nearest even; NaN stays NaN. */
RU_KERN_INLINE uint16_t kv_to_bf16(float x)
{
    uint32_t u = kv_bits(x);
    uint32_t r = u + 0x7fffu + ((u >> 16) & 1u);
    r = x != x ? (u | 0x400000u) : r;
    return (uint16_t)(r >> 16);
}

RU_KERN_INLINE float kv_max(float a, float b)
{
    return ((a > b) | (a != a)) ? a : b;
}

RU_KERN_INLINE float kv_min(float a, float b)
{
    return ((a < b) | (a != a)) ? a : b;
}

/* asin(x) / x - 1 over z = x * x <= 1/4, times z */
RU_KERN_INLINE float kv_asin_poly(float z)
{
    float p = 3.38056002e-2f;
    p = p * z + 1.70779612e-2f;
    p = p * z + 3.1116131e-2f;
    p = p * z + 4.4598035e-2f;
    p = p * z + 7.50009875e-2f;
    return (p * z + 1.66666663e-1f) * z;
}

/* Beyond 1/2: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)). Outside -1 .. 1: NaN. */
RU_KERN_INLINE float kv_asin(float x)
{
    float a = fabsf(x), z = a > 0.5f ? 0.5f - 0.5f * a : a * a;
    float s = a > 0.5f ? sqrtf(z) : a, y = s + s * kv_asin_poly(z);
    y = a > 0.5f ? 1.57079637f - (2.0f * y + 4.37113883e-8f) : y;
    return copysignf(y, x);
}

RU_KERN_INLINE float kv_acos(float x)
{
    float a = fabsf(x), z = a > 0.5f ? 0.5f - 0.5f * a : a * a;
    float s = a > 0.5f ? sqrtf(z) : x, y = s + s * kv_asin_poly(z);
    float outer = x < 0.0f ? 3.14159274f - (2.0f * y + 8.74227766e-8f) : 2.0f * y;
    return a > 0.5f ? outer : 1.57079637f - (y + 4.37113883e-8f);
}

RU_KERN_INLINE float kv_atan(float x)
{
    float a = fabsf(x), t = a > 1.0f ? 1.0f / a : a, z = t * t;
    float p = 1.5267353e-3f;
    p = p * z - 9.31734191e-3f;
    p = p * z + 2.66321212e-2f;
    p = p * z - 4.92951486e-2f;
    p = p * z + 7.05190452e-2f;
    p = p * z - 8.93885928e-2f;
    p = p * z + 1.1089656e-1f;
    p = p * z - 1.42841429e-1f;
    p = p * z + 1.99999547e-1f;
    p = p * z - 3.33333331e-1f;
    float y = t + t * (p * z);
    y = a > 1.0f ? 1.57079637f - (y + 4.37113883e-8f) : y;
    return copysignf(y, x);
}

/* 2^n for -126 <= n <= 127. */
RU_KERN_INLINE float kv_pow2(int32_t n)
{
    return kv_float((uint32_t)(n + 127) << 23);
}

/* The least of two sizes by their bits, which NaN loses: a compiler that sees what a clamp of
 * floats leads to drops it, and infinity minus infinity then looks like an operation that made a
 * NaN (ru_pool_invalid). */
RU_KERN_INLINE float kv_least(float x, float most)
{
    uint32_t u = kv_bits(x), m = kv_bits(most);
    return kv_float(u < m ? u : m);
}

/* e^x. The power of two is applied in two halves so that denormal results round once more but never
 * vanish, and overflow becomes infinity by itself. */
RU_KERN_INLINE float kv_exp(float x)
{
    float c = copysignf(kv_least(fabsf(x), 104.0f), x);
    float t = c * 1.44269504f + 12583039.0f; /* rounds to an integer in the low mantissa bits */
    int32_t n = (int32_t)(kv_bits(t) - 0x4b40007fu);
    t -= 12583039.0f;
    float r = c - t * 0x1.62ep-1f;
    r -= t * 3.19461833e-05f;
    float p = 1.395171725e-03f;
    p = p * r + 8.369598410e-03f;
    p = p * r + 4.166618728e-02f;
    p = p * r + 1.666651289e-01f;
    p = p * r + 5.000000101e-01f;
    float y = (p * r) * r + r + 1.0f;
    int32_t half = n >> 1;
    y = y * kv_pow2(half) * kv_pow2(n - half);
    return x != x ? x : y;
}

/* e^x for -64 <= x <= 64 without the clamp of the others, bit for bit what kv_exp gives there: with
 * smaller powers of two the product below loses digits. `raised`: s is 2^n of this power more. */
RU_KERN_INLINE float kv_exp_raised(float x, const float raised)
{
    float t = x * 1.44269504f + (12583039.0f + raised); /* low bits: the exponent with its bias */
    float s = kv_float(kv_bits(t) << 23);
    t -= 12583039.0f + raised;
    float r = x - t * 0x1.62ep-1f;
    r -= t * 3.19461833e-05f;
    float p = 1.395171725e-03f;
    p = p * r + 8.369598410e-03f;
    p = p * r + 4.166618728e-02f;
    p = p * r + 1.666651289e-01f;
    p = p * r + 5.000000101e-01f;
    return s * ((p * r) * r + r) + s;
}

RU_KERN_INLINE float kv_exp_near(float x)
{
    return kv_exp_raised(x, 0.0f);
}

/* e^x for x <= 0, or of NaN anything: one power of two, 2^64 too large until the end, where
 * denormal results are rounded. */
RU_KERN_INLINE float kv_exp_down(float x)
{
    return kv_exp_raised(kv_least(x, -104.0f), 64.0f) * 0x1p-64f;
}

/* e^x for x <= 0, flushed to zero below -87: one multiplication less, for softmax and the like. */
RU_KERN_INLINE float kv_exp_neg(float x)
{
    float c = kv_least(x, -87.0f);
    float t = c * 1.44269504f + 12582912.0f;
    uint32_t n = kv_bits(t) << 23;
    t -= 12582912.0f;
    float r = c - t * 0x1.62ep-1f;
    r -= t * 3.19461833e-05f;
    float p = 1.395171725e-03f;
    p = p * r + 8.369598410e-03f;
    p = p * r + 4.166618728e-02f;
    p = p * r + 1.666651289e-01f;
    p = p * r + 5.000000101e-01f;
    float y = (p * r) * r + r + 1.0f;
    y = kv_float(kv_bits(y) + n);
    return x < -87.0f ? 0.0f : (x != x ? x : y);
}

RU_KERN_INLINE float kv_log(float x)
{
    float s = x < FLT_MIN ? x * 8388608.0f : x;
    uint32_t i = kv_bits(s);
    int32_t e = (int32_t)(i - 0x3f3504f3u) >> 23;
    float f = kv_float(i - ((uint32_t)e << 23)) - 1.0f;
    float n = (float)e - (x < FLT_MIN ? 23.0f : 0.0f);
    float p = -7.859545865e-02f;
    p = p * f + 1.288162240e-01f;
    p = p * f + -1.312876763e-01f;
    p = p * f + 1.418119611e-01f;
    p = p * f + -1.662455314e-01f;
    p = p * f + 2.000228608e-01f;
    p = p * f + -2.500081043e-01f;
    p = p * f + 3.333331673e-01f;
    float y = (f * f) * (f * p - 0.5f);
    y += n * 3.19461833e-05f;
    y += f;
    y += n * 0x1.62ep-1f;
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return ((x == INFINITY) | (x != x)) ? x : y;
}

/* log(1 + e), exact where 1 + e rounds. For e >= 0. */
RU_KERN_INLINE float kv_log1p(float e)
{
    float u = 1.0f + e;
    float d = e - (u - 1.0f);
    float y = kv_log(u) + d / u;
    return e == INFINITY ? e : y;
}

RU_KERN_INLINE float kv_sigmoid(float x)
{
    float e = kv_exp_down(-fabsf(x));
    float d = 1.0f / (1.0f + e);
    return x >= 0.0f ? d : (x != x ? x : e * d);
}

/* The same for -64 <= x <= 64. */
RU_KERN_INLINE float kv_sigmoid_near(float x)
{
    float e = kv_exp_near(-fabsf(x));
    float d = 1.0f / (1.0f + e);
    return x >= 0.0f ? d : e * d;
}

/* The same for gates: below -87 it is 0, which saves the second half of the power of two. */
RU_KERN_INLINE float kv_gate(float x)
{
    float e = kv_exp_neg(-fabsf(x));
    float d = 1.0f / (1.0f + e);
    return x >= 0.0f ? d : (x != x ? x : e * d);
}

RU_KERN_INLINE float kv_tanh(float x)
{
    float a = fabsf(x), c = kv_least(a, 10.0f), s = c * c;
    float e = kv_exp_near(-2.0f * c);
    float big = 1.0f - 2.0f * e / (1.0f + e);
    float p = -5.717036560e-03f;
    p = p * s + 2.065057900e-02f;
    p = p * s + -5.374349526e-02f;
    p = p * s + 1.333149125e-01f;
    p = p * s + -3.333328392e-01f;
    float small = (p * s) * c + a;
    /* One division for both signs; a sum of zeros of both signs is +0, and tanh(-0) is -0. */
    return kv_float(kv_bits(a >= 0.625f ? big : small) | (kv_bits(x) & 0x80000000u));
}

/* Phi(-a) * e^(a*a/2) for a >= 0, Phi the normal distribution: a polynomial in 1/(1 + 0.35 a),
 * within 2.7e-8 relative for a <= 14. */
RU_KERN_INLINE float kv_mills(float a)
{
    float t = 1.0f / (1.0f + 0.35f * a);
    float p = -2.804748157e-02f;
    p = p * t + 1.382675878e-01f;
    p = p * t + -2.429661478e-01f;
    p = p * t + 1.431292095e-01f;
    p = p * t + -1.061683471e-02f;
    p = p * t + 9.928808863e-02f;
    p = p * t + 1.218065394e-01f;
    p = p * t + 1.394781150e-01f;
    p = p * t + 1.396627944e-01f;
    return p * t + -1.884040054e-06f;
}

/* e^(-x*x/2) with the rounding error of the square put back. */
RU_KERN_INLINE float kv_gauss(float x)
{
    float s = x * x;
    float e = kv_exp_neg(-0.5f * s);
#ifdef __FMA__
    float lost = __builtin_fmaf(x, x, -s);
#else
    float hi = kv_float(kv_bits(x) & 0xfffff000u), lo = x - hi;
    float lost = ((hi * hi - s) + 2.0f * (hi * lo)) + lo * lo;
#endif
    return s < 170.0f ? e - e * (0.5f * lost) : e;
}

RU_KERN_INLINE float kv_erf(float x)
{
    float a = fabsf(x), s = x * x;
    float p = 7.889119538e-05f;
    p = p * s + -8.020841282e-04f;
    p = p * s + 5.189535340e-03f;
    p = p * s + -2.685444459e-02f;
    p = p * s + 1.128360018e-01f;
    p = p * s + -3.761262714e-01f;
    p = p * s + 1.283791659e-01f;
    float small = p * x + x;
    float z = kv_least(a, 4.0f);
    float q = -1.855741139e-04f; /* -log(1 - erf(z)) from 1 on, where q has the digits it needs */
    q = q * z + 2.939608414e-03f;
    q = q * z + -2.180532180e-02f;
    q = q * z + 1.030373797e-01f;
    q = q * z + 6.382256746e-01f;
    q = q * z + 1.127040029e+00f;
    q = q * z + 3.537177108e-04f;
    float big = 1.0f - kv_exp_near(-q);
    big = kv_float(kv_bits(big) | (kv_bits(x) & 0x80000000u));
    return a >= 1.0f ? big : small;
}

/* x * Phi(x); relative precision holds in the left tail, where the written-out form cancels. */
RU_KERN_INLINE float kv_gelu(float x)
{
    float a = kv_least(fabsf(x), 14.0f); /* there the tail is 0 */
    float tail = copysignf(a, x) * (kv_gauss(a) * kv_mills(a));
    return x <= 0.0f ? tail : x - tail;
}

/* d/dx of the above: Phi(x) + x * phi(x). */
RU_KERN_INLINE float kv_gelu_slope(float x)
{
    float a = kv_least(fabsf(x), 14.0f);
    float g = kv_gauss(a);
    float tail = g * kv_mills(a);
    float phi = x > 0.0f ? 1.0f - tail : tail;
    float y = phi + copysignf(a, x) * (0.398942280f * g);
    return x != x ? x : y;
}

/* The tanh form: x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3). */
RU_KERN_INLINE float kv_gelu_tanh(float x)
{
    float c = kv_least(x, -20.0f); /* of numbers below 0; there the sigmoid is 0 */
    float y = c * kv_sigmoid(c * (1.59576912f + 0.0713548162f * (c * c)));
    return x != x ? x : y;
}

RU_KERN_INLINE float kv_gelu_tanh_slope(float x)
{
    float c = x > 20.0f ? 20.0f : (x < -20.0f ? -20.0f : x);
    float q = c * c;
    float s = kv_sigmoid(c * (1.59576912f + 0.0713548162f * q));
    float y = s + c * s * (1.0f - s) * (1.59576912f + 0.2140644486f * q);
    return x != x ? x : y;
}

RU_KERN_INLINE float kv_softplus(float x)
{
    float y = (x > 0.0f ? x : 0.0f) + kv_log1p(kv_exp_down(-fabsf(x)));
    return x != x ? x : y;
}

/* -- staging -------------------------------------------------------------------------------------
 */

RU_KERN_INLINE void kv_widen(const uint16_t *x, float *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = kv_from_bf16(x[i]);
    }
}

RU_KERN_INLINE void kv_narrow(const float *x, uint16_t *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = kv_to_bf16(x[i]);
    }
}

/* View of n floats at element `at` of x: x itself when f32, else widened into `buf`. */
RU_KERN_INLINE const float *kv_load(ru_dtype t, const void *x, int64_t at, int64_t n, float *buf)
{
    if (t == RU_F32) {
        return (const float *)x + at;
    }
    kv_widen((const uint16_t *)x + at, buf, n);
    return buf;
}

/* Where to write n floats that end up at element `at` of y; kv_store finishes. */
RU_KERN_INLINE float *kv_dest(ru_dtype t, void *y, int64_t at, float *buf)
{
    return t == RU_F32 ? (float *)y + at : buf;
}

RU_KERN_INLINE void kv_store(ru_dtype t, void *y, int64_t at, int64_t n, const float *buf)
{
    if (t != RU_F32) {
        kv_narrow(buf, (uint16_t *)y + at, n);
    }
}

RU_KERN_INLINE int64_t kv_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sum of the lanes, pairwise: one written order. */
RU_KERN_INLINE float kv_lanes_sum(float *acc)
{
    for (int64_t w = KV_LANES / 2; w > 0; w /= 2) {
#pragma omp simd
        for (int64_t i = 0; i < w; i++) {
            acc[i] += acc[i + w];
        }
    }
    return acc[0];
}

#endif
