/* Distributions and the machine-independent functions under them.
 *
 * Built with -ffp-contract=off: every operation is one IEEE operation, so the bits agree between
 * compilers and processors with and without fused multiply-add. */
#include "base/rng.h"

#include <math.h>
#include <string.h>

double ru_math_log(double x)
{
    RU_CHECK(x > 0);
    /* x = 2^k m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m-1)/(m+1), |s| < 0.1716.
     * The odd series in s is cut after s^23: the rest is below 1e-19 relative. */
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int k = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m >= 1.4142135623730951) {
        m *= 0.5;
        k++;
    }
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, sum = 0.0;
    for (int i = 23; i >= 3; i -= 2) {
        sum = (sum + 1.0 / (double)i) * s2;
    }
    /* ln 2 in two parts, so that k * high is exact for |k| < 2^11. */
    double high = 0x1.62e42fefa38p-1, low = 0x1.ef35793c7673p-45;
    return (double)k * high + (2.0 * s + (2.0 * s * sum + (double)k * low));
}

double ru_math_exp(double x)
{
    RU_CHECK(x >= -700.0);
    RU_CHECK(x <= 700.0);
    /* e^x = 2^k e^r with |r| <= ln(2)/2, Taylor series to r^13 (rest below 5e-18). */
    double scaled = x * 1.4426950408889634;
    int k = (int)(scaled + (scaled >= 0 ? 0.5 : -0.5));
    double high = 0x1.62e42fefa38p-1, low = 0x1.ef35793c7673p-45;
    double r = (x - (double)k * high) - (double)k * low;
    double sum = 1.0;
    for (int i = 13; i >= 1; i--) {
        sum = 1.0 + sum * r / (double)i;
    }
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double two_k;
    memcpy(&two_k, &bits, sizeof two_k);
    return sum * two_k;
}

/* cos and sin of 2 pi t for t in [0, 1/8] by Taylor series: 2 pi t <= pi/4. */
static double cos_small(double t)
{
    double a = t * 6.283185307179586, a2 = a * a, sum = 0.0;
    for (int i = 16; i >= 2; i -= 2) {
        sum = (1.0 - sum) * a2 / (double)(i * (i - 1));
    }
    return 1.0 - sum;
}

static double sin_small(double t)
{
    double a = t * 6.283185307179586, a2 = a * a, sum = 0.0;
    for (int i = 17; i >= 3; i -= 2) {
        sum = (1.0 - sum) * a2 / (double)(i * (i - 1));
    }
    return a * (1.0 - sum);
}

double ru_math_cos2pi(double t)
{
    RU_CHECK(t >= 0);
    RU_CHECK(t < 1);
    /* Mirror into the first octant; all of these subtractions are exact. */
    t = t > 0.5 ? 1.0 - t : t;
    bool minus = t > 0.25;
    t = minus ? 0.5 - t : t;
    double v = t > 0.125 ? sin_small(0.25 - t) : cos_small(t);
    return minus ? -v : v;
}

double ru_math_sin2pi(double t)
{
    RU_CHECK(t >= 0);
    RU_CHECK(t < 1);
    bool minus = t > 0.5;
    t = minus ? 1.0 - t : t;
    t = t > 0.25 ? 0.5 - t : t;
    double v = t > 0.125 ? cos_small(0.25 - t) : sin_small(t);
    return minus ? -v : v;
}

double ru_math_pow(double x, double y)
{
    double e = y * ru_math_log(x);
    if (e < -700.0) {
        return 0.0;
    }
    return e > 700.0 ? (double)INFINITY : ru_math_exp(e);
}

double ru_rng_uniform(ru_rng *r, double low, double high)
{
    return low + (high - low) * ru_rng_f64(r);
}

/* Uniform in (0,1]: never a logarithm of zero. */
static double f64_above_zero(ru_rng *r)
{
    return ((double)(ru_rng_u64(r) >> 11) + 1.0) * 0x1p-53;
}

double ru_rng_normal(ru_rng *r)
{
    /* Box-Muller; four words a draw, so that draw i never depends on how the others were used. */
    double u = f64_above_zero(r), t = ru_rng_f64(r);
    return sqrt(-2.0 * ru_math_log(u)) * ru_math_cos2pi(t);
}

double ru_rng_exponential(ru_rng *r)
{
    return -ru_math_log(f64_above_zero(r));
}

double ru_rng_gamma(ru_rng *r, double shape)
{
    RU_CHECK(shape > 0);
    /* Squeeze by a cubed normal; below 1 the sample of shape + 1 times u^(1/shape).
     * Source: marsaglia-tsang-2000. */
    double boost = 1.0;
    if (shape < 1.0) {
        boost = ru_math_pow(f64_above_zero(r), 1.0 / shape);
        shape += 1.0;
    }
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = ru_rng_normal(r), v = 1.0 + c * x;
        if (v <= 0.0) {
            continue;
        }
        v = v * v * v;
        double u = f64_above_zero(r);
        if (ru_math_log(u) < 0.5 * x * x + d - d * v + d * ru_math_log(v)) {
            return d * v * boost;
        }
    }
}

uint32_t ru_rng_poisson(ru_rng *r, double mean)
{
    RU_CHECK(mean >= 0 && mean <= 1e6);
    uint32_t count = 0;
    /* Split large means by a gamma variate (the time of the m-th event), then count small ones by
     * adding exponential gaps. */
    while (mean > 16.0) {
        uint32_t m = (uint32_t)(mean * 0.875);
        double at = ru_rng_gamma(r, (double)m);
        if (at > mean) {
            /* m-1 events fall uniformly before `at`: those before `mean` are binomial. */
            for (uint32_t i = 1; i < m; i++) {
                count += ru_rng_f64(r) < mean / at;
            }
            return count;
        }
        count += m;
        mean -= at;
    }
    for (double t = ru_rng_exponential(r); t < mean; t += ru_rng_exponential(r)) {
        count++;
    }
    return count;
}

/* Integral of x^-s from 1 to x, and its inverse. */
static double zipf_area(double x, double s)
{
    double lg = ru_math_log(x), e = (1.0 - s) * lg;
    if (e > -1e-8 && e < 1e-8) {
        return lg * (1.0 + 0.5 * e);
    }
    return (ru_math_exp(e) - 1.0) / (1.0 - s);
}

static double zipf_from_area(double area, double s)
{
    double e = area * (1.0 - s);
    if (e > -1e-8 && e < 1e-8) {
        return ru_math_exp(area * (1.0 - 0.5 * e));
    }
    return ru_math_exp(ru_math_log(1.0 + e) / (1.0 - s));
}

uint32_t ru_rng_zipf(ru_rng *r, uint32_t n, double s)
{
    RU_CHECK(n >= 1);
    RU_CHECK(s >= 0);
    /* Rejection from the continuous density x^-s over [1/2, n + 1/2], which lies above each bar of
     * the discrete one because x^-s is convex. Source: hormann-derflinger-1996. */
    if (n == 1) {
        return 0;
    }
    double low = zipf_area(0.5, s), high = zipf_area((double)n + 0.5, s);
    for (;;) {
        double x = zipf_from_area(low + (high - low) * ru_rng_f64(r), s);
        double k = floor(x + 0.5);
        k = k < 1.0 ? 1.0 : k > (double)n ? (double)n : k;
        /* Bar area (the density's over [k-1/2, k+1/2]) is at least k^-s: accept with the ratio. */
        double bar = zipf_area(k + 0.5, s) - zipf_area(k - 0.5, s);
        if (ru_rng_f64(r) * bar <= ru_math_pow(k, -s)) {
            return (uint32_t)k - 1;
        }
    }
}

uint32_t ru_rng_pick(ru_rng *r, const double *weights, uint32_t n)
{
    RU_CHECK(n >= 1);
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        sum += weights[i];
    }
    RU_CHECK(sum > 0);
    double at = ru_rng_f64(r) * sum;
    uint32_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (weights[i] > 0) {
            last = i;
            if (at < weights[i]) {
                return i;
            }
        }
        at -= weights[i];
    }
    return last; /* rounding left a crumb */
}
