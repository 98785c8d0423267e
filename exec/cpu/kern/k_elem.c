/* Element-wise maps: one input, two inputs, comparison, selection, bias with activation. */
#include "exec/cpu/kern/isa.h"
#include "exec/cpu/kern/vec.h"

/* A remainder with the sign of y. */
RU_KERN_INLINE float kv_floor_mod(float x, float y)
{
    float r = fmodf(x, y);
    return r == 0.0f ? copysignf(0.0f, y) : (r < 0.0f) != (y < 0.0f) ? r + y : r;
}

RU_KERN_INLINE float kv_clip(float x, float lo, float hi)
{
    float y = x < lo ? lo : x;
    return y > hi ? hi : y;
}

/* e^x - 1 for x <= 0 and small x: by tanh(x/2), which keeps the low bits. */
RU_KERN_INLINE float kv_expm1(float x)
{
    float th = kv_tanh(copysignf(kv_least(fabsf(x), 1.0f), x) * 0.5f);
    float small = 2.0f * th / (1.0f - th);
    return fabsf(x) < 1.0f ? small : kv_exp(x) - 1.0f;
}

/* x tanh(log(1 + e^x)) without the logarithm: with n = e^2x + 2e^x it is x n / (n + 2); for x > 0
 * both are divided by e^2x. */
RU_KERN_INLINE float kv_mish(float x)
{
    float e = kv_exp_neg(-fabsf(x)), q = e * e;
    float n = x < 0.0f ? q + 2.0f * e : 1.0f + 2.0f * e;
    float d = x < 0.0f ? n + 2.0f : n + 2.0f * q;
    return kv_least(x, -88.0f) * (n / d); /* of numbers below 0; there n is 0 */
}

enum { TURN_MAX = 8192 }; /* to here three constants take multiples of pi/2 off in f32 */

/* sin(x + quarter * pi/2) for |x| <= TURN_MAX: what is left after the nearest multiple of pi/2, and
 * the polynomials of both functions on +-pi/4. */
RU_KERN_INLINE float kv_turn(float x, uint32_t quarter)
{
    float t = x * 0.636619772f + 12582912.0f;
    uint32_t q = kv_bits(t) + quarter;
    t -= 12582912.0f;
    float r = x - t * 1.5703125f;
    r -= t * 4.837512969970703125e-4f;
    r -= t * 7.54978995489188216e-8f;
    float s = r * r;
    float p = ((-1.9515295891e-4f * s + 8.3321608736e-3f) * s - 1.6666654611e-1f) * (s * r) + r;
    float c = 2.443315711809948e-5f * s - 1.388731625493765e-3f;
    c = (c * s + 4.166664568298827e-2f) * (s * s) - 0.5f * s + 1.0f;
    p = kv_float(kv_bits(p) | (kv_bits(r) & 0x80000000u)); /* the sign of -0, which a sum loses */
    float y = (q & 1u) != 0 ? c : p;
    return kv_float(kv_bits(y) ^ ((q & 2u) << 30));
}

/* Near 0 a polynomial (Cephes' atanhf), else by the logarithm. */
RU_KERN_INLINE float kv_atanh(float x)
{
    float a = fabsf(x), z = x * x, p = 1.81740078349e-1f;
    p = p * z + 8.24370301058e-2f;
    p = p * z + 1.46691431730e-1f;
    p = p * z + 1.99782164500e-1f;
    p = p * z + 3.33337300303e-1f;
    float near = p * z * x + x;
    float far = copysignf(0.5f * kv_log((1.0f + a) / (1.0f - a)), x);
    return a < 0.5f ? near : far;
}

static void atanh_f32(const float *x, float *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = kv_atanh(x[i]);
    }
}

RU_KERN_INLINE float kv_mish_slope(float x)
{
    float th = kv_tanh(kv_softplus(x));
    return th + x * kv_sigmoid(x) * (1.0f - th * th);
}

/* In two passes: GCC 12 leaves a loop of an exponential and a logarithm scalar. */
static void softplus_f32(const float *xs, float *ys, int64_t n)
{
    float e[KV_BLOCK];
    for (int64_t i = 0; i < n; i += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - i);
        const float *x = xs + i;
        float *y = ys + i;
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            e[j] = kv_exp_down(-fabsf(x[j]));
        }
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            e[j] = kv_log1p(e[j]);
        }
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            float s = (x[j] > 0.0f ? x[j] : 0.0f) + e[j];
            y[j] = x[j] != x[j] ? x[j] : s;
        }
    }
}

/* Blocks in -64 .. 64 need no clamp and one power of two. */
#define NEAR_MAP(name, near, far)                                   \
    static void name(const float *xs, float *ys, int64_t n)         \
    {                                                               \
        for (int64_t i = 0; i < n; i += KV_BLOCK) {                 \
            int64_t w = kv_min_i64(KV_BLOCK, n - i);                \
            const float *x = xs + i;                                \
            float *y = ys + i;                                      \
            if (all_near(x, w)) {                                   \
                _Pragma("omp simd") for (int64_t j = 0; j < w; j++) \
                {                                                   \
                    y[j] = near(x[j]);                              \
                }                                                   \
            } else {                                                \
                _Pragma("omp simd") for (int64_t j = 0; j < w; j++) \
                {                                                   \
                    y[j] = far(x[j]);                               \
                }                                                   \
            }                                                       \
        }                                                           \
    }

RU_KERN_INLINE bool all_near(const float *x, int64_t n)
{
    const uint32_t edge = kv_bits(64.0f);
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < n; j++) {
        uint32_t size = kv_bits(x[j]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    return most <= edge;
}

NEAR_MAP(exp_f32, kv_exp_near, kv_exp)
NEAR_MAP(sigmoid_f32, kv_sigmoid_near, kv_sigmoid)

/* Elements beyond the range of kv_turn go through the C library. */
static bool turns_far(const float *xs, int64_t n)
{
    int32_t far = 0;
#pragma omp simd reduction(| : far)
    for (int64_t i = 0; i < n; i++) {
        far |= fabsf(xs[i]) > (float)TURN_MAX ? 1 : 0;
    }
    return far != 0;
}

static void turn_libm(ru_kern_map1 op, const float *xs, float *ys, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        ys[i] = op == RU_KERN_MAP1_Sin ? sinf(xs[i]) : cosf(xs[i]);
    }
}

static void map1_f32(ru_kern_map1 op, float a, float b, const float *xs, float *ys, int64_t n)
{
    if (op == RU_KERN_MAP1_Softplus) {
        softplus_f32(xs, ys, n);
        return;
    }
    if (op == RU_KERN_MAP1_Exp) {
        exp_f32(xs, ys, n);
        return;
    }
    if (op == RU_KERN_MAP1_Sigmoid) {
        sigmoid_f32(xs, ys, n);
        return;
    }
    if (op == RU_KERN_MAP1_Atanh) {
        atanh_f32(xs, ys, n);
        return;
    }
    if ((op == RU_KERN_MAP1_Sin || op == RU_KERN_MAP1_Cos) && turns_far(xs, n)) {
        turn_libm(op, xs, ys, n);
        return;
    }
    (void)a;
    (void)b;
    switch (op) {
#define RU_X(name, f)                                       \
    case RU_KERN_MAP1_##name:                               \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
        {                                                   \
            float x = xs[i];                                \
            ys[i] = f;                                      \
        }                                                   \
        break;
        RU_KERN_MAP1_LIST(RU_X)
#undef RU_X
    case RU_KERN_MAP1_COUNT:
        break;
    }
}

void RUI_K(rui_kern_map1)(ru_kern_map1 op, float a, float b, ru_dtype t, const void *x, void *y,
                          int64_t n)
{
    if (t == RU_F32) {
        map1_f32(op, a, b, x, y, n);
        return;
    }
    float buf[KV_BLOCK];
    for (int64_t i = 0; i < n; i += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - i);
        kv_widen((const uint16_t *)x + i, buf, w);
        map1_f32(op, a, b, buf, buf, w);
        kv_narrow(buf, (uint16_t *)y + i, w);
    }
}

/* x^y of a normal x > 0 and a finite y, within 0.6 units in the last place: 2^(y log2 x) in f64.
 * With x = m 2^e and s = (m - 1) / (m + 1) the logarithm is e + 2/log(2) (s + s^3/3 + ...); the
 * quotient starts in f32 and takes one step of Newton's. */
RU_KERN_INLINE float kv_power(float x, float y)
{
    uint32_t i = kv_bits(x);
    int32_t e = (int32_t)(i - 0x3f3504f3u) >> 23;
    float m = kv_float(i - ((uint32_t)e << 23));
    double one = (double)m + 1.0, r = (double)(1.0f / (m + 1.0f));
    double s = ((double)m - 1.0) * (r * (2.0 - one * r)), z = s * s;
    double p = 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    double t = (double)y * ((double)e + s * (p * 2.8853900817779268));
    t = t > 200.0 ? 200.0 : (t < -200.0 ? -200.0 : t);
    double n = t + (0x1.8p52 + 1023.0);
    uint64_t u;
    memcpy(&u, &n, sizeof u);
    double f = (t - (n - (0x1.8p52 + 1023.0))) * 0.69314718055994531;
    u <<= 52;
    double scale;
    memcpy(&scale, &u, sizeof scale);
    double q = 1.0 / 40320.0;
    q = q * f + 1.0 / 5040.0;
    q = q * f + 1.0 / 720.0;
    q = q * f + 1.0 / 120.0;
    q = q * f + 1.0 / 24.0;
    q = q * f + 1.0 / 6.0;
    q = q * f + 0.5;
    q = q * f + 1.0;
    return (float)(scale * (q * f + 1.0));
}

/* In blocks: one with other numbers goes through the C library. */
RU_KERN_INLINE void power_f32(const float *xs, bool each_x, const float *ys, bool each_y, float *zs,
                              int64_t n)
{
    enum { BLOCK = 128 };
    const float x0 = xs[0], y0 = ys[0];
    for (int64_t b = 0; b < n; b += BLOCK) {
        const int64_t end = kv_min_i64(b + BLOCK, n);
        uint32_t other = 0;
#pragma omp simd reduction(| : other)
        for (int64_t i = b; i < end; i++) {
            uint32_t x = kv_bits(each_x ? xs[i] : x0), y = kv_bits(each_y ? ys[i] : y0);
            other |= x - 0x00800000u >= 0x7f000000u ? 1u : 0u;
            other |= (y & 0x7fffffffu) >= 0x7f800000u ? 1u : 0u;
        }
        if (other != 0) {
            for (int64_t i = b; i < end; i++) {
                zs[i] = powf(each_x ? xs[i] : x0, each_y ? ys[i] : y0);
            }
            continue;
        }
#pragma omp simd
        for (int64_t i = b; i < end; i++) {
            zs[i] = kv_power(each_x ? xs[i] : x0, each_y ? ys[i] : y0);
        }
    }
}

/* Remainders in doubles, where quotients below 2^27 in size give them exactly: no quotient of two
 * floats that is not whole is as near to a whole number as a double's rounding. Blocks with other
 * numbers go through the C library. */
static void mod_f32(bool floors, const float *xs, bool each_x, const float *ys, bool each_y,
                    float *zs, int64_t n)
{
    enum { BLOCK = 128 };
    float x_all[BLOCK], y_all[BLOCK];
    for (int64_t i = 0; i < BLOCK; i++) {
        x_all[i] = xs[0];
        y_all[i] = ys[0];
    }
    for (int64_t b = 0; b < n; b += BLOCK) {
        const int64_t w = kv_min_i64(BLOCK, n - b);
        const float *x = each_x ? xs + b : x_all, *y = each_y ? ys + b : y_all;
        uint32_t other = 0;
#pragma omp simd reduction(| : other)
        for (int64_t i = 0; i < w; i++) {
            float size = fabsf(y[i]);
            other |= fabsf(x[i]) < 134217728.0f * size ? 0u : 1u;
            other |= size <= FLT_MAX ? 0u : 1u;
        }
        for (int64_t i = 0; other != 0 && i < w; i++) {
            zs[b + i] = floors ? kv_floor_mod(x[i], y[i]) : fmodf(x[i], y[i]);
        }
#pragma omp simd
        for (int64_t i = 0; i < (other != 0 ? 0 : w); i++) {
            double q = (double)(int32_t)((double)x[i] / (double)y[i]);
            float r = copysignf((float)((double)x[i] - q * (double)y[i]), x[i]);
            float up = (r < 0.0f) != (y[i] < 0.0f) ? r + y[i] : r;
            up = r == 0.0f ? copysignf(0.0f, y[i]) : up;
            zs[b + i] = floors ? up : r;
        }
    }
}

/* An operand that is not `each` is one number. */
RU_KERN_INLINE void map2_steps(ru_kern_map2 op, float a, float b, const float *xs, bool each_x,
                               const float *ys, bool each_y, float *zs, int64_t n)
{
    const float x0 = xs[0], y0 = ys[0];
    (void)a;
    (void)b;
    if (op == RU_KERN_MAP2_Pow) {
        power_f32(xs, each_x, ys, each_y, zs, n);
        return;
    }
    if (op == RU_KERN_MAP2_Mod || op == RU_KERN_MAP2_FloorMod) {
        mod_f32(op == RU_KERN_MAP2_FloorMod, xs, each_x, ys, each_y, zs, n);
        return;
    }
    switch (op) {
#define RU_X(name, f)                                               \
    case RU_KERN_MAP2_##name:                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)         \
        {                                                           \
            float x = each_x ? xs[i] : x0, y = each_y ? ys[i] : y0; \
            zs[i] = f;                                              \
        }                                                           \
        break;
        RU_KERN_MAP2_LIST(RU_X)
#undef RU_X
    case RU_KERN_MAP2_COUNT:
        break;
    }
}

static void map2_vv(ru_kern_map2 op, float a, float b, const float *xs, const float *ys, float *zs,
                    int64_t n)
{
    map2_steps(op, a, b, xs, true, ys, true, zs, n);
}

void RUI_K(rui_kern_map2)(ru_kern_map2 op, float a, float b, ru_dtype t, const void *x, int64_t sx,
                          const void *y, int64_t sy, void *z, int64_t n)
{
    float bx[KV_BLOCK], by[KV_BLOCK], bz[KV_BLOCK];
    if (n <= 0) {
        return;
    }
    if (sx == 0 && sy == 0) {
        float zero = 0.0f;
        map2_vv(op, a, b, kv_load(t, x, 0, 1, bx), kv_load(t, y, 0, 1, by), &zero, 1);
        by[0] = zero; /* every element is the same */
        for (int64_t i = 0; i < n; i += KV_BLOCK) {
            int64_t w = kv_min_i64(KV_BLOCK, n - i);
            float *o = kv_dest(t, z, i, bz);
            for (int64_t k = 0; k < w; k++) {
                o[k] = zero;
            }
            kv_store(t, z, i, w, bz);
        }
        return;
    }
    int64_t block = t == RU_F32 ? n : KV_BLOCK;
    for (int64_t i = 0; i < n; i += block) {
        int64_t w = kv_min_i64(block, n - i);
        float *o = kv_dest(t, z, i, bz);
        if (sx == 0) {
            map2_steps(op, a, b, kv_load(t, x, 0, 1, bx), false, kv_load(t, y, i, w, by), true, o,
                       w);
        } else if (sy == 0) {
            map2_steps(op, a, b, kv_load(t, x, i, w, bx), true, kv_load(t, y, 0, 1, by), false, o,
                       w);
        } else {
            map2_vv(op, a, b, kv_load(t, x, i, w, bx), kv_load(t, y, i, w, by), o, w);
        }
        kv_store(t, z, i, w, bz);
    }
}

/* A scalar operand is spread over the buffer first. */
static const float *spread(ru_dtype t, const void *x, int64_t at, int64_t step, int64_t n,
                           float *buf)
{
    if (step == 1) {
        return kv_load(t, x, at, n, buf);
    }
    float one[1];
    float v = kv_load(t, x, 0, 1, one)[0];
    for (int64_t i = 0; i < n; i++) {
        buf[i] = v;
    }
    return buf;
}

void RUI_K(rui_kern_cmp)(ru_kern_cmp op, ru_dtype t, const void *x, int64_t sx, const void *y,
                         int64_t sy, uint8_t *z, int64_t n)
{
    float bx[KV_BLOCK], by[KV_BLOCK];
    for (int64_t at = 0; at < n; at += KV_BLOCK) {
        int64_t w = kv_min_i64(KV_BLOCK, n - at);
        const float *xs = spread(t, x, at, sx, w, bx);
        const float *ys = spread(t, y, at, sy, w, by);
        uint8_t *zs = z + at;
        switch (op) {
#define RU_X(name, f)                                       \
    case RU_KERN_CMP_##name:                                \
        _Pragma("omp simd") for (int64_t i = 0; i < w; i++) \
        {                                                   \
            float x = xs[i], y = ys[i];                     \
            zs[i] = (uint8_t)(f);                           \
        }                                                   \
        break;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
            RU_KERN_CMP_LIST(RU_X)
#pragma GCC diagnostic pop
#undef RU_X
        case RU_KERN_CMP_COUNT:
            break;
        }
    }
}

/* Steps of 0 and 1 apart, so that each loop is one of vectors. */
#define WHERE_EACH(type, u, v)                          \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
    {                                                   \
        type uu = u, vv = v;                            \
        zs[i] = c[i] != 0 ? uu : vv;                    \
    }

#define WHERE_LOOP(type)                             \
    do {                                             \
        const type *xs = x, *ys = y;                 \
        type *zs = z;                                \
        if (n <= 0) {                                \
            break;                                   \
        }                                            \
        const type x0 = xs[0], y0 = ys[0];           \
        if (sc != 1) {                               \
            for (int64_t i = 0; i < n; i++) {        \
                type u = xs[i * sx], v = ys[i * sy]; \
                zs[i] = c[i * sc] != 0 ? u : v;      \
            }                                        \
        } else if (sx == 0 && sy == 0) {             \
            WHERE_EACH(type, x0, y0)                 \
        } else if (sx == 0) {                        \
            WHERE_EACH(type, x0, ys[i * sy])         \
        } else if (sy == 0) {                        \
            WHERE_EACH(type, xs[i * sx], y0)         \
        } else {                                     \
            WHERE_EACH(type, xs[i * sx], ys[i * sy]) \
        }                                            \
    } while (0)

void RUI_K(rui_kern_where)(int64_t bytes, const uint8_t *c, int64_t sc, const void *x, int64_t sx,
                           const void *y, int64_t sy, void *z, int64_t n)
{
    switch (bytes) {
    case 1:
        WHERE_LOOP(uint8_t);
        break;
    case 2:
        WHERE_LOOP(uint16_t);
        break;
    case 4:
        WHERE_LOOP(uint32_t);
        break;
    default:
        WHERE_LOOP(uint64_t);
        break;
    }
}

void RUI_K(rui_kern_bias_act)(ru_kern_map1 op, float a, float b, ru_dtype t, const void *x,
                              const float *bias, void *y, int64_t rows, int64_t cols)
{
    float bx[KV_BLOCK], bz[KV_BLOCK];
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c += KV_BLOCK) {
            int64_t w = kv_min_i64(KV_BLOCK, cols - c);
            int64_t at = r * cols + c;
            float *o = kv_dest(t, y, at, bz);
            map2_vv(RU_KERN_MAP2_Add, 0.0f, 0.0f, kv_load(t, x, at, w, bx), bias + c, o, w);
            if (op != RU_KERN_MAP1_Identity) {
                map1_f32(op, a, b, o, o, w);
            }
            kv_store(t, y, at, w, bz);
        }
    }
}
