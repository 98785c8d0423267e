#include "cost/privacy.h"

#include <math.h>
#include <string.h>

#include "cost/math/norm.h"

enum { ORDER_MAX = 256, TENTHS = 89 }; /* orders 1.1, 1.2, ..., 9.9, then 10, 11, ..., 256 */

struct ru_privacy {
    double noise, share;            /* share: of `round`; 0: none yet */
    double log_f[ORDER_MAX + 1];    /* logarithms of factorials */
    double log_term[ORDER_MAX + 1]; /* [j] of term(j), from 2 */
    double spent[RU_PRIVACY_ORDERS], round[RU_PRIVACY_ORDERS];
};

static double order_at(uint32_t k)
{
    return k < TENTHS ? 1.1 + 0.1 * k : 10 + (double)(k - TENTHS);
}

static double log_add(double a, double b)
{
    double high = fmax(a, b), low = fmin(a, b);
    return high == (double)-INFINITY ? high : high + ru_num_log(1 + ru_num_exp(low - high));
}

/* log E[(r - 1)^j] for even j, r = exp(u / noise - 1 / (2 noise^2)), u normal. The integrand is
 * smooth and falls as a normal law does beyond both of its peaks, so equal steps converge faster
 * than any power. */
static double log_moment(double noise, uint32_t j)
{
    const double step = 1.0 / 16;
    double sum = (double)-INFINITY;
    int64_t n = (int64_t)((26 + j / noise) / step);
    for (int64_t k = 0; k <= n; k++) {
        double u = -13 + step * (double)k, t = u / noise - 1 / (2 * noise * noise);
        double far = t > 30 ? t : ru_num_log(fabs(expm1(t)));
        sum = log_add(sum, j * far - u * u / 2);
    }
    return sum + ru_num_log(step) - 0.5 * ru_num_log(2 * 3.14159265358979323846);
}

ru_status ru_privacy_open(double noise, ru_arena *arena, ru_privacy **out, ru_err *err)
{
    double d[ORDER_MAX + 2] = {0};
    if (!(noise >= 0.05 && noise <= 1e6)) {
        return RU_FAIL(err, RU_E_ARG, "noise of %g times what a record changes (0.05 to 1e6)",
                       noise);
    }
    ru_privacy *p = RU_NEW(arena, ru_privacy, 1);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an account of privacy");
    }
    memset(p, 0, sizeof *p);
    p->noise = noise;
    for (uint32_t j = 1; j <= ORDER_MAX; j++) {
        p->log_f[j] = p->log_f[j - 1] + ru_num_log(j);
    }
    for (uint32_t j = 2; j <= ORDER_MAX; j += 2) {
        d[j] = log_moment(noise, j);
    }
    for (uint32_t j = 2; j <= ORDER_MAX; j++) {
        double ratio = ru_num_log(2) + j * (j - 1.0) / (2 * noise * noise);
        double even = ru_num_log(4) + 0.5 * (d[j - j % 2] + d[j + j % 2]);
        p->log_term[j] = fmin(ratio, even);
    }
    *out = p;
    return RU_OK;
}

/* (order - 1) times the divergence of a round, for a whole order. */
static double whole(const ru_privacy *p, uint32_t order, double log_share)
{
    double sum = (double)-INFINITY;
    for (uint32_t j = 2; j <= order; j++) {
        double ways = p->log_f[order] - p->log_f[j] - p->log_f[order - j];
        sum = log_add(sum, ways + j * log_share + p->log_term[j]);
    }
    return sum < 0 ? log1p(ru_num_exp(sum)) : log_add(0, sum); /* also of rounds that tell 1e-20 */
}

/* The divergences of a round; that times (order - 1) is convex, so chords lie above it. */
static void look(ru_privacy *p, double share)
{
    double all[ORDER_MAX + 1] = {0};
    for (uint32_t a = 2; a <= ORDER_MAX && share < 1; a++) {
        all[a] = whole(p, a, ru_num_log(share));
    }
    for (uint32_t k = 0; k < RU_PRIVACY_ORDERS; k++) {
        double a = order_at(k), part = fmax(a - floor(a + 1e-9), 0);
        uint32_t low = (uint32_t)floor(a + 1e-9), high = low < ORDER_MAX ? low + 1 : low;
        double chord = ((1 - part) * all[low] + part * all[high]) / (a - 1);
        double full = a / (2 * p->noise * p->noise);
        p->round[k] = share < 1 ? fmin(chord, full) : full;
    }
    p->share = share;
}

void ru_privacy_add(ru_privacy *p, double share)
{
    RU_CHECK(share > 0 && share <= 1);
    if (!(p->share == share)) {
        look(p, share);
    }
    for (uint32_t k = 0; k < RU_PRIVACY_ORDERS; k++) {
        p->spent[k] += p->round[k];
    }
}

/* (epsilon, delta) of divergences of that order. */
static double epsilon_at(double order, double spent, double delta)
{
    return spent + ru_num_log((order - 1) / order) - ru_num_log(delta * order) / (order - 1);
}

double ru_privacy_epsilon(ru_privacy *p, double delta, double share)
{
    double least = (double)INFINITY;
    if (share > 0 && !(p->share == share)) {
        look(p, share);
    }
    for (uint32_t k = 0; k < RU_PRIVACY_ORDERS; k++) {
        double a = order_at(k), spent = p->spent[k] + (share > 0 ? p->round[k] : 0);
        if (spent == 0) {
            return 0; /* nothing was told */
        }
        least = fmin(least, epsilon_at(a, spent, delta));
    }
    return fmax(least, 0);
}

double ru_privacy_known(double noise, double rounds, double delta)
{
    double least = rounds > 0 ? (double)INFINITY : 0;
    for (uint32_t k = 0; k < RU_PRIVACY_ORDERS && rounds > 0; k++) {
        double a = order_at(k);
        least = fmin(least, epsilon_at(a, rounds * a / (2 * noise * noise), delta));
    }
    return fmax(least, 0);
}

double *ru_privacy_orders(ru_privacy *p)
{
    return p->spent;
}
