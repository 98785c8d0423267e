/* Vector mathematics and element-wise kernels against double precision, on every instruction set
 * that this CPU has. */
#include "exec/cpu/kern/numbers.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/cpu/ref/ref_impl.h"
#include "test/test.h"

static double gelu_of(double x)
{
    return x * 0.5 * erfc(-x * 0.70710678118654752440);
}

static double sigmoid_of(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double gelu_tanh_of(double x)
{
    return x * sigmoid_of(1.5957691216057308 * (x + 0.044715 * x * x * x));
}

static double softplus_of(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

typedef struct math_case {
    ru_kern_map1 op;
    const char *name;
    double (*f)(double);
    double lo, hi, ulp_max;
} math_case;

static const math_case math_cases[] = {
    {RU_KERN_MAP1_Exp, "exp", exp, -103.0, 88.7, 1.5},
    {RU_KERN_MAP1_Log, "log", log, 1e-44, 3e38, 1.5},
    {RU_KERN_MAP1_Log, "log", log, 0.5, 2.0, 1.5},
    {RU_KERN_MAP1_Tanh, "tanh", tanh, -12.0, 12.0, 3.0},
    {RU_KERN_MAP1_Tanh, "tanh", tanh, -0.7, 0.7, 3.0},
    {RU_KERN_MAP1_Sigmoid, "sigmoid", sigmoid_of, -87.0, 30.0, 3.0},
    {RU_KERN_MAP1_Erf, "erf", erf, -5.0, 5.0, 3.0},
    {RU_KERN_MAP1_Gelu, "gelu", gelu_of, -10.0, 10.0, 5.0},
    {RU_KERN_MAP1_GeluTanh, "gelu_tanh", gelu_tanh_of, -4.0, 10.0, 24.0},
    {RU_KERN_MAP1_Softplus, "softplus", softplus_of, -80.0, 80.0, 3.0},
    {RU_KERN_MAP1_Atanh, "atanh", atanh, -0.99999, 0.99999, 3.0},
};

/* Distance in units of the last place of the true value. */
static double ulps(float got, double want)
{
    float w = (float)want;
    float next = nextafterf(fabsf(w), INFINITY);
    double ulp = (double)next - fabs((double)w);
    return fabs((double)got - want) / ulp;
}

static void check_math(const ru_kern *k, const math_case *c)
{
    enum { N = 20011 };
    static const int64_t n = N;
    float x[4096], y[4096];
    double worst = 0.0;
    bool log_grid = c->lo > 0.0 && c->hi / c->lo > 1e6;
    for (int64_t base = 0; base < n; base += 4096) {
        int64_t w = n - base < 4096 ? n - base : 4096;
        for (int64_t i = 0; i < w; i++) {
            double u = (double)(base + i) / (double)(n - 1);
            x[i] = (float)(log_grid ? c->lo * pow(c->hi / c->lo, u) : c->lo + (c->hi - c->lo) * u);
        }
        k->map1(c->op, 0.0f, 0.0f, RU_F32, x, y, w);
        for (int64_t i = 0; i < w; i++) {
            double e = ulps(y[i], c->f((double)x[i]));
            if (!(e <= worst)) {
                worst = e;
            }
        }
    }
    if (!(worst <= c->ulp_max)) {
        fail_msg("%s on %s is off by %.2f ulp, allowed %.2f", c->name, k->name, worst, c->ulp_max);
    }
}

static void math_is_within_bounds(void **state)
{
    (void)state;
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t c = 0; k != NULL && c < RU_ARRAY_LEN(math_cases); c++) {
            check_math(k, &math_cases[c]);
        }
    }
}

static void special_values_keep_their_meaning(void **state)
{
    (void)state;
    static const ru_kern_map1 ops[] = {
        RU_KERN_MAP1_Exp,  RU_KERN_MAP1_Log,      RU_KERN_MAP1_Tanh,
        RU_KERN_MAP1_Erf,  RU_KERN_MAP1_Sigmoid,  RU_KERN_MAP1_Gelu,
        RU_KERN_MAP1_Relu, RU_KERN_MAP1_Softplus, RU_KERN_MAP1_GeluTanh};
    static const float at_inf[] = {INFINITY, INFINITY, 1.0f,     1.0f,    1.0f,
                                   INFINITY, INFINITY, INFINITY, INFINITY};
    static const float at_minus_inf[] = {0.0f, NAN, -1.0f, -1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t o = 0; k != NULL && o < RU_ARRAY_LEN(ops); o++) {
            float x[17], y[17];
            for (int i = 0; i < 17; i++) {
                x[i] = i % 3 == 0 ? NAN : (i % 3 == 1 ? INFINITY : -INFINITY);
            }
            k->map1(ops[o], 0.0f, 0.0f, RU_F32, x, y, 17);
            for (int i = 0; i < 17; i++) {
                float want = i % 3 == 0 ? NAN : (i % 3 == 1 ? at_inf[o] : at_minus_inf[o]);
                bool same = isnan(want) ? isnan(y[i]) : y[i] == want;
                if (!same) {
                    fail_msg("map %d on %s of %g gives %g, expected %g", (int)ops[o], k->name,
                             (double)x[i], (double)y[i], (double)want);
                }
            }
        }
    }
}

/* Powers against double: normal numbers, and those that the C library takes. */
static void powers_are_right(void **state)
{
    (void)state;
    enum { N = 4099 };
    static float x[N], y[N], z[N];
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t form = 0; k != NULL && form < 3; form++) {
            for (int i = 0; i < N; i++) {
                x[i] = (float)exp(((i * 37 % N) - N / 2) * 0.004);
                y[i] = (float)(i * 91 % N - N / 2) * 0.004f;
                x[i] = i > N - 200 && i % 3 == 0 ? -x[i] : x[i];
                y[i] = i > N - 200 && i % 2 == 0 ? rintf(y[i]) : y[i];
                x[i] = i < 300 && i % 50 == 0 ? (i % 100 == 0 ? 0.0f : INFINITY) : x[i];
            }
            x[0] = form == 1 ? 1.5f : x[0];
            k->map2(RU_KERN_MAP2_Pow, 0, 0, RU_F32, x, form != 1, y, form != 2, z, N);
            for (int i = 0; i < N; i++) {
                double want = pow((double)x[form == 1 ? 0 : i], (double)y[form == 2 ? 0 : i]);
                bool same = isnan(want) ? isnan(z[i]) : (float)want == z[i];
                if (!same && !(ulps(z[i], want) <= 1.0)) {
                    fail_msg("power %u of %g, %g on %s is %g, not %g", form, (double)x[i],
                             (double)y[i], k->name, (double)z[i], want);
                }
            }
        }
    }
}

static bool same_bits(float a, float b)
{
    return isnan(b) ? isnan(a) : a == b && (signbit(a) != 0) == (signbit(b) != 0);
}

/* Remainders bit for bit as the C library's: near quotients that are whole, of quotients up to
 * 2^30, of zeros, infinities, NaN and numbers next to 0. */
static void remainders_are_exact(void **state)
{
    (void)state;
    enum { N = 4111 };
    static const float others[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, -3e-39f, FLT_MAX};
    static float x[N], y[N], z[N];
    for (uint32_t c = 0; c < RU_KERN_LEVELS * 6; c++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)(c / 6));
        const uint32_t form = c % 3;
        const bool floors = c % 6 >= 3;
        for (int i = 0; i < N; i++) {
            y[i] = (float)((i * 379 % 1013) - 506) * 0.37f + 0.01f;
            x[i] = y[i] * (float)(i * 91 % 65537 - 30000);
            x[i] = i % 3 == 0 ? nextafterf(x[i], i % 2 == 0 ? 0.0f : INFINITY) : x[i];
            x[i] = i % 5 == 0 ? ldexpf(x[i], i % 7 - 3) : x[i];
            x[i] = i >= 3000 && i % 9 == 0 ? y[i] * 1.3e9f : x[i];
            x[i] = i >= 3500 && i % 8 == 0 ? others[i / 8 % 8] : x[i];
            y[i] = i >= 3500 && i % 11 == 0 ? others[i / 11 % 8] : y[i];
        }
        x[0] = form == 1 ? 1000.5f : x[0];
        y[0] = form == 2 ? 0.3f : y[0];
        if (k != NULL) {
            k->map2(floors ? RU_KERN_MAP2_FloorMod : RU_KERN_MAP2_Mod, 0, 0, RU_F32, x, form != 1,
                    y, form != 2, z, N);
        }
        for (int i = 0; k != NULL && i < N; i++) {
            float u = x[form == 1 ? 0 : i], v = y[form == 2 ? 0 : i], want = fmodf(u, v);
            if (floors) {
                want = want == 0.0f                  ? copysignf(0.0f, v)
                       : (want < 0.0f) != (v < 0.0f) ? want + v
                                                     : want;
            }
            if (!same_bits(z[i], want)) {
                fail_msg("%g mod %g on %s is %g, not %g (form %u)", (double)u, (double)v, k->name,
                         (double)z[i], (double)want, c % 6);
            }
        }
    }
}

static void ends_of_atanh(void **state)
{
    (void)state;
    static const float x[] = {1.0f, -1.0f, 1.5f, NAN, -INFINITY, 0.5f, -0.0f};
    float y[RU_ARRAY_LEN(x)];
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        if (k != NULL) {
            k->map1(RU_KERN_MAP1_Atanh, 0, 0, RU_F32, x, y, RU_ARRAY_LEN(x));
            assert_true(y[0] == INFINITY && y[1] == -INFINITY);
            assert_true(isnan(y[2]) && isnan(y[3]) && isnan(y[4]));
            assert_true(fabsf(y[5] - 0.5493061443f) < 2e-7f && same_bits(y[6], -0.0f));
        }
    }
}

/* Maps of f64 in units of their last place, at the ends too. */
static void wide_maps_are_right(void **state)
{
    (void)state;
    static const struct {
        ru_kern_map1 op;
        double (*f)(double);
        double lo, hi, at_inf, at_minus_inf;
    } cases[] = {{RU_KERN_MAP1_Exp, exp, -745, 709.7, INFINITY, 0},
                 {RU_KERN_MAP1_Exp, exp, -1, 1, INFINITY, 0},
                 {RU_KERN_MAP1_Log, log, 1e-320, 1e-300, INFINITY, NAN},
                 {RU_KERN_MAP1_Log, log, 0.4, 3, INFINITY, NAN},
                 {RU_KERN_MAP1_Tanh, tanh, -22, 22, 1, -1},
                 {RU_KERN_MAP1_Tanh, tanh, -1e-3, 1e-3, 1, -1},
                 {RU_KERN_MAP1_Sigmoid, sigmoid_of, -700, 40, 1, 0}};
    enum { N = 5003 };
    static double x[N], y[N];
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern_numbers *k = ru_kern_numbers_at((ru_kern_level)level);
        for (uint32_t c = 0; k != NULL && c < RU_ARRAY_LEN(cases); c++) {
            for (int i = 0; i < N; i++) {
                x[i] = cases[c].lo + (cases[c].hi - cases[c].lo) * i / (N - 1);
            }
            x[0] = NAN;
            x[1] = INFINITY;
            x[2] = -INFINITY;
            k->map1(cases[c].op, x, y, N);
            bool ends =
                isnan(y[0]) && y[1] == cases[c].at_inf &&
                (isnan(cases[c].at_minus_inf) ? isnan(y[2]) : y[2] == cases[c].at_minus_inf);
            assert_true(ends);
            for (int i = 3; i < N; i++) {
                double want = cases[c].f(x[i]), size = fabs(want);
                double error = fabs(y[i] - want) / (nextafter(size, INFINITY) - size);
                if (!(error <= 4.0)) {
                    fail_msg("f64 map %d of %.17g is %.17g, not %.17g", (int)cases[c].op, x[i],
                             y[i], want);
                }
            }
        }
    }
}

/* f64 cut to whole numbers: toward zero, the nearest beyond 64 bits, the least for NaN. */
static void doubles_are_cut(void **state)
{
    (void)state;
    static const double x[] = {0.9,
                               -0.9,
                               300.5,
                               -129.0,
                               3e9,
                               -3e9,
                               0x1p62,
                               -0x1p62,
                               0x1p63,
                               1e300,
                               -1e300,
                               (double)INFINITY,
                               -(double)INFINITY,
                               (double)NAN,
                               2.5};
    static const int64_t want[] = {0,
                                   0,
                                   300,
                                   -129,
                                   3000000000,
                                   -3000000000,
                                   INT64_C(1) << 62,
                                   -(INT64_C(1) << 62),
                                   INT64_MAX,
                                   INT64_MAX,
                                   INT64_MIN,
                                   INT64_MAX,
                                   INT64_MIN,
                                   INT64_MIN,
                                   2};
    enum { N = RU_ARRAY_LEN(x) };
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern_numbers *k = ru_kern_numbers_at((ru_kern_level)level);
        for (int64_t bytes = 1; k != NULL && bytes <= 8; bytes *= 2) {
            char y[N * 8];
            k->cut(x, bytes, y, N);
            for (uint32_t i = 0; i < N; i++) {
                assert_memory_equal(y + i * bytes, &want[i], (size_t)bytes);
            }
        }
    }
}

/* Infinity is no reason to look for a lost NaN: no operation on the way makes one. */
static void infinity_makes_no_nan(void **state)
{
    (void)state;
    static const ru_kern_map1 ops[] = {RU_KERN_MAP1_Exp,  RU_KERN_MAP1_Tanh,     RU_KERN_MAP1_Erf,
                                       RU_KERN_MAP1_Gelu, RU_KERN_MAP1_GeluTanh, RU_KERN_MAP1_Mish,
                                       RU_KERN_MAP1_Elu,  RU_KERN_MAP1_Softplus, RU_KERN_MAP1_Log,
                                       RU_KERN_MAP1_Selu, RU_KERN_MAP1_Sigmoid,  RU_KERN_MAP1_Celu};
    float x[35], y[35];
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t o = 0; k != NULL && o < RU_ARRAY_LEN(ops); o++) {
            for (int i = 0; i < 35; i++) {
                x[i] = i % 2 == 0 || ops[o] == RU_KERN_MAP1_Log ? INFINITY : -INFINITY;
            }
            feclearexcept(FE_ALL_EXCEPT);
            k->map1(ops[o], 1.0f, 1.0f, RU_F32, x, y, 35);
            if (fetestexcept(FE_INVALID) != 0) {
                fail_msg("map %d on %s is invalid", (int)ops[o], k->name);
            }
        }
    }
}

/* An element is the same beside any others. */
static void neighbours_do_not_matter(void **state)
{
    (void)state;
    enum { N = 4000 };
    static float x[N], y[N], z[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)i * 0.032f - 64.0f;
    }
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        if (k == NULL) {
            continue;
        }
        for (int op = 0; op < 2; op++) {
            ru_kern_map1 map = op == 0 ? RU_KERN_MAP1_Exp : RU_KERN_MAP1_Sigmoid;
            x[7] = x[1300] = x[N - 1] = 0.0f;
            k->map1(map, 0, 0, RU_F32, x, y, N);
            x[7] = -100.0f;
            x[1300] = 70.0f;
            x[N - 1] = NAN;
            k->map1(map, 0, 0, RU_F32, x, z, N);
            assert_true(isnan(z[N - 1]));
            y[7] = z[7];
            y[1300] = z[1300];
            y[N - 1] = z[N - 1];
            assert_memory_equal(y, z, sizeof y);
        }
    }
}

/* Of functions with f(x) ~ x at 0: zeros of both signs and the least numbers stay as they are. */
static void zeros_keep_their_sign(void **state)
{
    (void)state;
    static const ru_kern_map1 ops[] = {
        RU_KERN_MAP1_Tanh,  RU_KERN_MAP1_Tan,   RU_KERN_MAP1_Sin,
        RU_KERN_MAP1_Asin,  RU_KERN_MAP1_Atan,  RU_KERN_MAP1_Sinh,
        RU_KERN_MAP1_Asinh, RU_KERN_MAP1_Atanh, RU_KERN_MAP1_Softsign};
    static const float x[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 0.0f,   -0.0f, 1e-45f, -1e-45f, -0.0f,
                              0.0f, -0.0f, 1e-38f, -0.0f,   1e-40f, -0.0f, 0.0f,   -0.0f};
    float y[RU_ARRAY_LEN(x)], zeros[RU_ARRAY_LEN(x)];
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t o = 0; k != NULL && o < RU_ARRAY_LEN(ops); o++) {
            k->map1(ops[o], 0.0f, 0.0f, RU_F32, x, y, RU_ARRAY_LEN(x));
            if (memcmp(x, y, sizeof x) != 0) {
                fail_msg("map %d on %s: of %g %g %g", (int)ops[o], k->name, (double)y[0],
                         (double)y[1], (double)y[2]);
            }
        }
        for (uint32_t i = 0; k != NULL && i < RU_ARRAY_LEN(x); i++) {
            zeros[i] = i % 2 == 0 ? -0.0f : 0.0f;
        }
        if (k != NULL) {
            k->map1(RU_KERN_MAP1_Erf, 0.0f, 0.0f, RU_F32, zeros, y, RU_ARRAY_LEN(x));
            assert_memory_equal(zeros, y, sizeof y);
        }
    }
}

/* Odd lengths, odd addresses: every element is written, nothing beside is. */
static void ranges_are_exact(void **state)
{
    (void)state;
    float x[200], y[200], z[200];
    for (int i = 0; i < 200; i++) {
        x[i] = (float)i * 0.25f - 20.0f;
        y[i] = (float)(i % 13) - 6.0f;
    }
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (int64_t n = 0; k != NULL && n < 130; n += 1) {
            memset(z, 0x5a, sizeof z);
            k->map2(RU_KERN_MAP2_Axpy, 2.0f, 0.0f, RU_F32, x + 1, 1, y + 3, 1, z + 5, n);
            for (int64_t i = 0; i < n; i++) {
                assert_true(z[5 + i] == x[1 + i] + 2.0f * y[3 + i]);
            }
            k->map2(RU_KERN_MAP2_Sub, 0.0f, 0.0f, RU_F32, x + 1, 0, y + 3, 1, z + 5, n);
            for (int64_t i = 0; i < n; i++) {
                assert_true(z[5 + i] == x[1] - y[3 + i]);
            }
            uint32_t guard[2];
            memcpy(guard, &z[4], 4);
            memcpy(guard + 1, &z[5 + n], 4);
            assert_int_equal(guard[0], 0x5a5a5a5a);
            assert_int_equal(guard[1], 0x5a5a5a5a);
        }
    }
}

static float widen(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Is h a nearest bf16 of x? Neighbours are not nearer, and a tie went to the even one. */
static bool is_nearest(uint16_t h, float x)
{
    double d = fabs((double)widen(h) - (double)x);
    for (int step = -1; step <= 1; step += 2) {
        uint16_t other = (uint16_t)(h + step);
        double e = fabs((double)widen(other) - (double)x);
        if (e < d || (e == d && (h & 1) != 0 && isfinite((double)widen(other)))) {
            return false;
        }
    }
    return true;
}

static void bf16_rounds_once(void **state)
{
    (void)state;
    float x[777], back[777];
    uint16_t h[777], z[777];
    for (int i = 0; i < 777; i++) {
        x[i] = ldexpf(1.0f + (float)i / 777.0f, i % 60 - 30) * (i % 2 == 0 ? 1.0f : -1.0f);
    }
    x[5] = NAN;
    x[6] = INFINITY;
    x[7] = 3.4e38f;
    x[8] = 1e-40f;
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        if (k == NULL) {
            continue;
        }
        assert_true(k->cast(RU_F32, x, RU_BF16, h, 777));
        assert_true(k->cast(RU_BF16, h, RU_F32, back, 777));
        for (int i = 0; i < 777; i++) {
            assert_true(i == 5 ? isnan(back[i]) : back[i] == widen(h[i]));
            assert_true(i == 5 || i == 6 || i == 7 || is_nearest(h[i], x[i]));
        }
        assert_true(isinf(back[6]) && isinf(back[7]));
        k->map1(RU_KERN_MAP1_Neg, 0.0f, 0.0f, RU_BF16, h + 9, z, 700);
        for (int i = 0; i < 700; i++) {
            assert_int_equal(z[i], h[9 + i] ^ 0x8000);
        }
    }
}

enum { CASTS = 70000 };

/* Every f16, and any f32, NaN and infinities among them. */
static void f16_converts_as_by_hand(void **state)
{
    (void)state;
    static float x[CASTS], back[CASTS];
    static uint16_t h[CASTS], all[CASTS];
    for (int i = 0; i < CASTS; i++) {
        uint32_t u = (uint32_t)i * 2654435761u;
        u = i % 3 == 0 ? u : (u & 0x8fffffffu) | 0x30000000u; /* around what f16 can hold */
        memcpy(&x[i], &u, sizeof u);
        all[i] = (uint16_t)i;
    }
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        if (k == NULL) {
            continue;
        }
        assert_true(k->cast(RU_F16, all, RU_F32, back, CASTS));
        assert_true(k->cast(RU_F32, x, RU_F16, h, CASTS));
        for (int i = 0; i < CASTS; i++) {
            float want = ru_f16_to_f32(all[i]);
            if (memcmp(&want, &back[i], sizeof want) != 0 || h[i] != ru_f32_to_f16(x[i])) {
                fail_msg("element %d: f16 to f32 %a for %a, f32 to f16 %x for %x", i,
                         (double)back[i], (double)want, h[i], ru_f32_to_f16(x[i]));
            }
        }
    }
}

/* As the reference cuts them, on every instruction set. */
static void floats_are_cut_to_whole_numbers(void **state)
{
    (void)state;
    static float x[3000];
    static int64_t y[3000];
    static const ru_dtype types[] = {RU_I8, RU_U8, RU_I16, RU_U16, RU_I32, RU_U32, RU_I64, RU_U64};
    for (int k = 0; k < RU_KERN_LEVELS * (int)RU_ARRAY_LEN(types); k++) {
        const ru_kern *kern = ru_kern_at((ru_kern_level)(k % RU_KERN_LEVELS));
        ru_dtype t = types[k / RU_KERN_LEVELS];
        int64_t bytes = ru_dtype_bytes(t);
        for (int i = 0; i < 3000; i++) { /* the last block of 1024 is small all through */
            x[i] = ldexpf((float)(i * 37 % 999) / 7.0f - 70.0f, i < 2048 ? i % 67 : i % 20);
        }
        x[7] = NAN;
        x[300] = INFINITY;
        x[301] = -INFINITY;
        x[302] = -9223372036854775808.0f;
        x[303] = 9223372036854775808.0f;
        x[304] = 1e19f;
        x[305] = nextafterf(18446744073709551616.0f, 0.0f);
        x[306] = 18446744073709551616.0f;
        if (kern == NULL) {
            continue;
        }
        assert_true(kern->cast(RU_F32, x, t, y, 3000));
        for (int i = 0; i < 3000; i++) {
            int64_t want = 0;
            rui_ref_set(t, &want, 0, (double)x[i]);
            if (memcmp((const char *)y + i * bytes, &want, (size_t)bytes) != 0) {
                fail_msg("%a to %s on %s", (double)x[i], ru_dtype_name(t), kern->name);
            }
        }
    }
}

/* The value of f16 bits, by the definition of the format. */
static double half_of(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return (h & 0x8000) != 0 ? -size : size;
}

/* All f16 numbers widen to their values; each comes back, and a number between two neighbours goes
 * to the nearer one, of equally near ones to the even one. */
static void f16_rounds_once(void **state)
{
    (void)state;
    enum { N = 0x7c00, ODD = N - 3 };
    static uint16_t h[2 * N], back[2 * N];
    static float x[2 * N];
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (int i = 0; k != NULL && i < 2 * N; i++) {
            h[i] = (uint16_t)(i < N ? i : 0x8000 | (i - N));
        }
        if (k == NULL) {
            continue;
        }
        assert_true(k->cast(RU_F16, h, RU_F32, x, 2 * N));
        for (int i = 0; i < 2 * N; i++) {
            assert_true((double)x[i] == half_of(h[i]) && (signbit(x[i]) != 0) == (i >= N));
        }
        assert_true(k->cast(RU_F32, x, RU_F16, back, 2 * N));
        assert_memory_equal(h, back, sizeof h);
        for (int i = 0; i < ODD; i++) { /* halfway, and a little to each side of it */
            float middle = (float)((half_of((uint16_t)i) + half_of((uint16_t)(i + 1))) / 2);
            x[i] = i % 3 == 0 ? middle : nextafterf(middle, i % 3 == 1 ? 0.0f : INFINITY);
        }
        assert_true(k->cast(RU_F32, x, RU_F16, back, ODD));
        for (int i = 0; i < ODD; i++) {
            int want = i % 3 == 0 ? i + (i & 1) : i % 3 == 1 ? i : i + 1;
            assert_int_equal(back[i], want);
        }
        const float ends[9] = {65519.9f, 65520.0f, -1e9f, INFINITY, -INFINITY,
                               NAN,      2e-8f,    -0.0f, 1};
        assert_true(k->cast(RU_F32, ends, RU_F16, back, 9));
        static const uint16_t want[9] = {0x7bff, 0x7c00, 0xfc00, 0x7c00, 0xfc00,
                                         0,      0,      0x8000, 0x3c00};
        for (int i = 0; i < 9; i++) {
            assert_true(i == 5 ? (back[i] & 0x7fff) > 0x7c00 : back[i] == want[i]);
        }
        assert_true(k->cast(RU_F16, back, RU_F32, x, 9) && isinf(x[3]) && isnan(x[5]));
    }
}

/* The nearest step, ties to even, then the zero point, then the ends of the type; and back. */
static void quantised_by_the_definition(void **state)
{
    (void)state;
    enum { N = 1003 };
    static const struct {
        ru_dtype t;
        int64_t low, high;
        float zero;
    } types[] = {{RU_U8, 0, 255, 128},
                 {RU_I8, -128, 127, -3},
                 {RU_U16, 0, 65535, 32768},
                 {RU_I16, -32768, 32767, 5}};
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t c = 0; k != NULL && c < RU_ARRAY_LEN(types); c++) {
            float x[N], back[N], scale = 0.25f;
            uint16_t y[N];
            for (int i = 0; i < N; i++) { /* every other one is a tie */
                x[i] = (float)((i * 7919) % 1400 - 700) * (types[c].high > 255 ? 18.125f : 0.125f);
            }
            k->quantize(x, scale, types[c].zero, types[c].t, y, N);
            k->dequantize(types[c].t, y, scale, types[c].zero, back, N);
            for (int i = 0; i < N; i++) {
                int64_t want = llrint((double)x[i] / 0.25) + (int64_t)types[c].zero;
                want = want < types[c].low ? types[c].low : want;
                want = want > types[c].high ? types[c].high : want;
                int64_t got = types[c].t == RU_U8    ? ((uint8_t *)y)[i]
                              : types[c].t == RU_I8  ? ((int8_t *)y)[i]
                              : types[c].t == RU_U16 ? y[i]
                                                     : ((int16_t *)y)[i];
                assert_int_equal(got, want);
                assert_true((double)back[i] == (double)(want - (int64_t)types[c].zero) * 0.25);
            }
        }
    }
}

/* One element, as the reference casts it. */
static void cast_one(ru_dtype from, const void *x, ru_dtype to, void *y, int64_t i)
{
    if (ru_dtype_is_float(from) || (from == RU_U64 && ru_dtype_is_float(to))) {
        rui_ref_set(to, y, 0, rui_ref_get(from, x, i));
    } else {
        rui_ref_set_int(to, y, 0, rui_ref_get_int(from, x, i));
    }
}

/* Any bits and, of the larger types, halves between two neighbours of f16 or bf16; all pairs but
 * those of f32 and those of f64 to whole numbers, which have tests of their own. */
static void pairs_are_cast_on_every_set(void **state)
{
    (void)state;
    enum { N = 4099, TYPES = 12 };
    static const ru_dtype types[TYPES] = {RU_F64, RU_F16, RU_BF16, RU_BOOL, RU_I8,  RU_U8,
                                          RU_I16, RU_U16, RU_I32,  RU_U32,  RU_I64, RU_U64};
    static uint64_t x[N], y[N];
    for (uint32_t k = 0; k < TYPES * TYPES * RU_KERN_LEVELS; k++) {
        const ru_kern *kern = ru_kern_at((ru_kern_level)(k / TYPES / TYPES));
        ru_dtype from = types[k % TYPES], to = types[k / TYPES % TYPES];
        int64_t bytes = ru_dtype_bytes(to);
        if (kern == NULL || from == to ||
            (from == RU_F64 && to != RU_BOOL && !ru_dtype_is_float(to))) {
            continue;
        }
        for (uint32_t i = 0; i < N; i++) {
            uint64_t u = (i + 1) * 0x9E3779B97F4A7C15U, off = (uint64_t)i % 3 - 1;
            u ^= u >> 29;
            uint64_t half = i % 4 < 2 ? u % 4096 << 40 : u % 512 << 43;
            uint64_t size = i % 4 < 2 ? 990 + u % 60 : 860 + u % 300;
            uint64_t tie = (size << 52 | half) + off, whole = (u % 4096 << u % 53) + off;
            x[i] = i % 2 == 0 || ru_dtype_bytes(from) < 8 ? u : from == RU_F64 ? tie : whole;
            x[i] &= from == RU_BOOL ? 0x0101010101010101u : UINT64_MAX;
        }
        assert_true(kern->cast(from, x, to, y, N));
        for (int64_t i = 0; i < N; i++) {
            uint64_t want = 0;
            cast_one(from, x, to, &want, i);
            if (memcmp((const char *)y + i * bytes, &want, (size_t)bytes) != 0) {
                fail_msg("element %lld of %s to %s on %s", (long long)i, ru_dtype_name(from),
                         ru_dtype_name(to), kern->name);
            }
        }
    }
}

/* Every way in which operands step. */
static void choices_on_every_set(void **state)
{
    (void)state;
    enum { N = 203 };
    static uint8_t c[N], x[N * 8], y[N * 8], z[N * 8];
    for (int i = 0; i < N * 8; i++) {
        c[i % N] = (uint8_t)(i * 37 % 5 < 2);
        x[i] = (uint8_t)(i * 7);
        y[i] = (uint8_t)(i * 11 + 3);
    }
    for (int k = 0; k < RU_KERN_LEVELS * 32; k++) {
        const ru_kern *kern = ru_kern_at((ru_kern_level)(k / 32));
        int64_t bytes = 1 << k % 4, sc = k / 4 % 2, sx = k / 8 % 2, sy = k / 16 % 2;
        if (kern == NULL) {
            continue;
        }
        kern->where(bytes, c, sc, x, sx, y, sy, z, N);
        for (int64_t i = 0; i < N; i++) {
            const uint8_t *want = c[i * sc] != 0 ? x + i * sx * bytes : y + i * sy * bytes;
            assert_memory_equal(z + i * bytes, want, (size_t)bytes);
        }
    }
}

RU_TESTS(exec_elem, cmocka_unit_test(pairs_are_cast_on_every_set),
         cmocka_unit_test(choices_on_every_set), cmocka_unit_test(f16_rounds_once),
         cmocka_unit_test(quantised_by_the_definition), cmocka_unit_test(f16_converts_as_by_hand),
         cmocka_unit_test(floats_are_cut_to_whole_numbers), cmocka_unit_test(math_is_within_bounds),
         cmocka_unit_test(special_values_keep_their_meaning),
         cmocka_unit_test(infinity_makes_no_nan), cmocka_unit_test(neighbours_do_not_matter),
         cmocka_unit_test(zeros_keep_their_sign), cmocka_unit_test(ranges_are_exact),
         cmocka_unit_test(bf16_rounds_once), cmocka_unit_test(powers_are_right),
         cmocka_unit_test(doubles_are_cut), cmocka_unit_test(wide_maps_are_right),
         cmocka_unit_test(remainders_are_exact), cmocka_unit_test(ends_of_atanh))
