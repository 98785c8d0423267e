/* Special functions. See norm.h. Sums have terms of one sign wherever that can be had. */
#include "cost/math/norm.h"

#include "base/rng.h"

#include <math.h>

static const double half_log_2pi = 0.9189385332046727418, sqrt_half = 0.70710678118654752440;

/* The longest series here: near x = a, about 8 sqrt(a) terms. */
enum { TERMS_MAX = 1000000 };

double ru_num_exp(double x)
{
    if (isnan(x)) {
        return x;
    }
    if (fabs(x) <= 700) {
        return ru_math_exp(x);
    }
    /* Half the exponent squared reaches what is below the normal numbers and overflows by itself.
     */
    double half = ru_math_exp(x < -1400 ? -700 : x > 1400 ? 700 : 0.5 * x);
    return half * half;
}

double ru_num_log(double x)
{
    if (isnan(x) || x < 0) {
        return RU_NAN;
    }
    if (x == 0 || isinf(x)) {
        return x == 0 ? -(double)INFINITY : x;
    }
    /* 2^54 lifts what is below the normal numbers. */
    return x < 0x1p-1022 ? ru_math_log(x * 0x1p54) - 54 * 0.69314718055994530942 : ru_math_log(x);
}

/* log(1 + x) - x for x > -1. */
static double log1p_less(double x)
{
    if (x < -0.3 || x > 0.5) {
        return ru_num_log(1 + x) - x;
    }
    /* With s = x / (2 + x): log(1 + x) = 2 (s + s^3/3 + ...) and x = 2 s / (1 - s). */
    double s = x / (2 + x), s2 = s * s, sum = 0;
    for (int k = 41; k >= 3; k -= 2) {
        sum = (sum + 1.0 / k) * s2;
    }
    return 2 * s * sum - x * s;
}

/* log(gamma(x)) - ((x - 1/2) log x - x + log(2 pi) / 2), x >= 10. */
static double stirling_rest(double x)
{
    double r = 1 / x, r2 = r * r;
    return r *
           (1.0 / 12 -
            r2 * (1.0 / 360 -
                  r2 * (1.0 / 1260 -
                        r2 * (1.0 / 1680 - r2 * (1.0 / 1188 - r2 * (691.0 / 360360 - r2 / 156))))));
}

double ru_gamma_log(double x)
{
    RU_CHECK(x > 0);
    double product = 1;
    while (x < 10) {
        product *= x;
        x += 1;
    }
    return (x - 0.5) * ru_num_log(x) - x + half_log_2pi + stirling_rest(x) - ru_num_log(product);
}

/* x^a e^-x / gamma(a + 1). */
static double gamma_front(double a, double x)
{
    if (x <= 0) {
        return 0;
    }
    if (a < 10) {
        return ru_num_exp(a * ru_num_log(x) - x - ru_gamma_log(a + 1));
    }
    /* a log x - x - log gamma(a) without the difference of two large numbers. */
    double d = (x - a) / a;
    return ru_num_exp(a * log1p_less(d) - stirling_rest(a)) / sqrt(6.28318530717958647692 * a);
}

/* P(a, x) for x < a + 1: x^a e^-x / gamma(a + 1) (1 + x/(a+1) + x^2/((a+1)(a+2)) + ...). */
static double gamma_series(double a, double x)
{
    double sum = 1, term = 1;
    for (uint32_t k = 1; k < TERMS_MAX && term > sum * 1e-17; k++) {
        term *= x / (a + k);
        sum += term;
    }
    return sum * gamma_front(a, x);
}

/* Q(a, x) for x >= a + 1 by the continued fraction, evaluated forward (Lentz). */
static double gamma_fraction(double a, double x)
{
    double b = x + 1 - a, c = 1e300, d = 1 / b, value = d;
    for (uint32_t k = 1; k < TERMS_MAX; k++) {
        double an = -(double)k * ((double)k - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        value *= d * c;
        if (fabs(d * c - 1) < 1e-16) {
            break;
        }
    }
    return value * a * gamma_front(a, x);
}

double ru_gamma_p(double a, double x)
{
    RU_CHECK(a > 0 && x >= 0);
    if (isinf(x)) {
        return 1;
    }
    return x < a + 1 ? gamma_series(a, x) : 1 - gamma_fraction(a, x);
}

double ru_gamma_q(double a, double x)
{
    RU_CHECK(a > 0 && x >= 0);
    if (isinf(x)) {
        return 0;
    }
    return x < a + 1 ? 1 - gamma_series(a, x) : gamma_fraction(a, x);
}

double ru_erfc(double x)
{
    if (isnan(x)) {
        return x;
    }
    return x < 0 ? 1 + ru_gamma_p(0.5, x * x) : ru_gamma_q(0.5, x * x);
}

double ru_norm_pdf(double x)
{
    return ru_num_exp(-0.5 * x * x - half_log_2pi);
}

double ru_norm_cdf(double x)
{
    return 0.5 * ru_erfc(-x * sqrt_half);
}

double ru_norm_quantile(double p)
{
    RU_CHECK(p >= 0 && p <= 1);
    if (p > 0.5) {
        return -ru_norm_quantile(1 - p); /* exact difference */
    }
    if (p == 0) {
        return -(double)INFINITY;
    }
    /* A rational start, good to 4.5e-4 (26.2.23 of the handbook), then Halley's steps, each of
     * which cubes the error. */
    double t = sqrt(-2 * ru_num_log(p));
    double x = -(t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                         (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))));
    for (int k = 0; k < 3; k++) {
        double pdf = ru_norm_pdf(x);
        if (pdf > 0) {
            double off = (ru_norm_cdf(x) - p) / pdf;
            x -= off / (1 + 0.5 * x * off);
        }
    }
    return x;
}

/* The continued fraction of the incomplete beta function (26.5.8), forward. */
static double beta_fraction(double a, double b, double x)
{
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = fabs(d) < 1e-300 ? 1e300 : 1 / d;
    double value = d;
    for (uint32_t k = 1; k < TERMS_MAX; k++) {
        double m = k, even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / (1 + even * d);
        c = 1 + even / c;
        value *= d * c;
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        value *= d * c;
        if (fabs(d * c - 1) < 1e-16) {
            break;
        }
    }
    return value;
}

double ru_beta_inc(double a, double b, double x)
{
    RU_CHECK(a > 0 && b > 0);
    RU_CHECK(x >= 0 && x <= 1);
    if (x == 0 || x == 1) {
        return x;
    }
    double front = ru_num_exp(a * ru_num_log(x) + b * (log1p_less(-x) - x) + ru_gamma_log(a + b) -
                              ru_gamma_log(a) - ru_gamma_log(b));
    if (x < (a + 1) / (a + b + 2)) {
        return front * beta_fraction(a, b, x) / a;
    }
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double ru_student_cdf(double freedom, double t)
{
    if (isinf(t)) {
        return t > 0 ? 1 : 0;
    }
    double tail = 0.5 * ru_beta_inc(0.5 * freedom, 0.5, freedom / (freedom + t * t));
    return t > 0 ? 1 - tail : tail;
}

double ru_student_quantile(double freedom, double p)
{
    RU_CHECK(p >= 0 && p <= 1);
    if (p > 0.5) {
        return -ru_student_quantile(freedom, 1 - p);
    }
    if (p == 0.5 || p == 0) {
        return p == 0 ? -(double)INFINITY : 0;
    }
    double low = -1, high = 0;
    while (ru_student_cdf(freedom, low) > p && low > -1e300) {
        high = low;
        low *= 2;
    }
    for (int k = 0; k < 200 && high - low > -1e-15 * low; k++) {
        double mid = 0.5 * (low + high);
        bool below = ru_student_cdf(freedom, mid) < p;
        low = below ? mid : low;
        high = below ? high : mid;
    }
    return 0.5 * (low + high);
}
