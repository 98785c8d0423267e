#include "cost/arrive.h"

#include <math.h>

#include "cost/math/norm.h"

static const uint32_t lags[] = {1, 2, 5, 10, 20, 50, 100, 200};

/* Correlation of gap[i] and gap[i + lag]. */
static double correlation(const double *gap, uint32_t n, uint32_t lag, double mean, double variance)
{
    double sum = 0;
    for (uint32_t i = 0; i + lag < n; i++) {
        sum += (gap[i] - mean) * (gap[i + lag] - mean);
    }
    return sum / (n - lag) / variance;
}

/* Least squares of ln(rho_k / a) = k ln gamma through the origin. */
static double decay(const double *gap, uint32_t n, double mean, double variance, double a)
{
    double top = 0, bottom = 0;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(lags) && lags[i] < n / 4; i++) {
        double rho = correlation(gap, n, lags[i], mean, variance), k = lags[i];
        /* A correlation within the noise of independent times says nothing. */
        if (rho > 2 / sqrt(n)) {
            top += k * ru_num_log(fmin(rho / a, 1));
            bottom += k * k;
        }
    }
    return bottom > 0 ? fmin(ru_num_exp(top / bottom), 0.999999) : 0;
}

/* Rates and probability of two exponential laws with these three moments. */
static void two_laws(double m1, double m2, double m3, double *mu1, double *mu2, double *p)
{
    double x = m1 * m3 - 1.5 * m2 * m2, y = m2 - 2 * m1 * m1, c2 = m2 / (m1 * m1) - 1;
    if (x >= 0 && y > 0) {
        double q = x + 1.5 * y * y - 3 * m1 * m1 * y;
        double s = sqrt(q * q + 18 * m1 * m1 * y * y * y);
        double mid = x + 1.5 * y * y + 3 * m1 * m1 * y;
        double t1 = (mid + s) / (6 * m1 * y), t2 = (mid - s) / (6 * m1 * y);
        if (t1 > t2 && t2 > 0 && m1 > t2 && m1 < t1) {
            *mu1 = 1 / t1;
            *mu2 = 1 / t2;
            *p = (m1 - t2) / (t1 - t2);
            return;
        }
    }
    *p = (1 + sqrt((c2 - 1) / (c2 + 1))) / 2; /* balanced means */
    *mu1 = 2 * *p / m1;
    *mu2 = 2 * (1 - *p) / m1;
}

ru_status ru_arrive_of(const double *gap_s, uint32_t n, ru_arrive_fit *out, ru_err *err)
{
    double m1 = 0, m2 = 0, m3 = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(gap_s[i] >= 0) || !(gap_s[i] < 1e12)) {
            return RU_FAIL(err, RU_E_ARG, "interarrival time %u is %g s, expected 0 or more", i,
                           gap_s[i]);
        }
        m1 += gap_s[i] / n;
        m2 += gap_s[i] * gap_s[i] / n;
        m3 += gap_s[i] * gap_s[i] * gap_s[i] / n;
    }
    if (n < 2 || !(m1 > 0)) {
        return RU_FAIL(err, RU_E_ARG,
                       "%u interarrival times with mean %g s: a rate needs at least two above 0", n,
                       m1);
    }
    double c2 = m2 / (m1 * m1) - 1;
    ru_arrive_fit f = {.mean_s = m1, .scv = c2, .n = n};
    if (n < 1000 || (c2 >= 0.9 && c2 <= 1.02)) {
        f.kind = RU_ARRIVE_POISSON;
        f.process = ru_markov_poisson(1 / m1);
    } else if (c2 < 0.9) {
        double phases = fmin(floor(1 / fmax(c2, 0.125) + 0.5), RU_MARKOV_PHASES_MAX);
        f.kind = RU_ARRIVE_ERLANG;
        f.process = ru_markov_erlang((uint32_t)phases, 1 / m1);
    } else {
        double mu1, mu2, p;
        two_laws(m1, m2, m3, &mu1, &mu2, &p);
        f.kind = RU_ARRIVE_TWO;
        f.gamma = decay(gap_s, n, m1, m2 - m1 * m1, (1 - 1 / c2) / 2);
        f.process = ru_markov_hyper(mu1, mu2, p, f.gamma);
    }
    *out = f;
    return RU_OK;
}
