#include "cost/round.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/norm.h"
#include "cost/math/quantile.h"

enum { GRID = 256, MANY = 4096 };

static double log_choose(double n, double k)
{
    return ru_gamma_log(n + 1) - ru_gamma_log(k + 1) - ru_gamma_log(n - k + 1);
}

/* latency [n] rising. */
static double without_jitter(const ru_round_in *in, const double *latency)
{
    double sum = 0;
    if (in->drawn > RU_ROUND_EXACT_MAX && in->wait == in->drawn) {
        /* without logarithms, from the slowest down: P(i) = P(i + 1) (i + 1 - drawn) / i */
        double p = (double)in->drawn / in->n;
        for (uint32_t i = in->n; i >= in->drawn && p > 1e-20; i--) {
            double s = latency[i - 1];
            sum += p * (in->deadline_s > 0 ? fmin(s, in->deadline_s) : s);
            p *= i > 1 ? (double)(i - in->drawn) / (i - 1) : 0;
        }
        return sum;
    }
    double all = log_choose(in->n, in->drawn);
    for (uint32_t i = in->wait; i <= in->n - in->drawn + in->wait; i++) {
        double p =
            log_choose(i - 1, in->wait - 1) + log_choose(in->n - i, in->drawn - in->wait) - all;
        double s = latency[i - 1];
        sum += ru_num_exp(p) * (in->deadline_s > 0 ? fmin(s, in->deadline_s) : s);
    }
    return sum;
}

/* P(fewer than `wait` of the drawn answer by x). p[s][b]: of s clients drawn from the first i, b
 * answer by x; drawing one more at random keeps it a mean over all sets. */
static double late(const ru_round_in *in, const double *log_s, double x)
{
    double p[RU_ROUND_EXACT_MAX + 1][RU_ROUND_EXACT_MAX + 1];
    uint32_t k = in->drawn;
    bool all = in->wait == k; /* then only b = s counts */
    for (uint32_t s = 0; s <= k; s++) {
        for (uint32_t b = 0; b <= s; b++) {
            p[s][b] = s == 0 ? 1 : 0;
        }
    }
    double lx = ru_num_log(x), half = in->spread * in->spread / 2;
    for (uint32_t i = 1; i <= in->n; i++) {
        double z = (lx - log_s[i - 1] + half) / in->spread;
        double f = z > 8 ? 1 : z < -8 ? 0 : ru_norm_cdf(z);
        for (uint32_t s = i < k ? i : k; s >= 1; s--) {
            double in_set = (double)s / i;
            for (uint32_t b = all ? s : 0; b <= s; b++) {
                double with =
                    (b > 0 ? f * p[s - 1][b - 1] : 0) + (b < s ? (1 - f) * p[s - 1][b] : 0);
                p[s][b] = (b <= s && s < i ? (1 - in_set) * p[s][b] : 0) + in_set * with;
            }
        }
    }
    if (all) {
        return 1 - p[k][k];
    }
    double sum = 0;
    for (uint32_t b = 0; b < in->wait; b++) {
        sum += p[k][b];
    }
    return sum;
}

/* The same for many drawn ones; log_s [m] of m clients that stand for all n. */
static double late_many(const ru_round_in *in, const double *log_s, uint32_t m, double x)
{
    double lx = ru_num_log(x), half = in->spread * in->spread / 2, k = in->drawn;
    double sum = 0, square = 0, log_sum = 0, q = k / in->n;
    for (uint32_t i = 0; i < m; i++) {
        double f = ru_norm_cdf((lx - log_s[i] + half) / in->spread);
        sum += f;
        square += f * f;
        log_sum += f > 1e-300 ? ru_num_log(f) : -690;
    }
    double mean = sum / m, between = fmax(square / m - mean * mean, 0);
    if (in->wait == in->drawn) {
        double l = mean > 1e-300 ? (1 - q) * ru_num_log(mean) + q * log_sum / m : -690;
        return 1 - ru_num_exp(fmax(k * l, -690));
    }
    double within = fmax(mean - square / m, 0);
    double deviation = sqrt(k * within + k * (1 - q) * between);
    return deviation > 1e-12 ? ru_norm_cdf((in->wait - 0.5 - k * mean) / deviation)
                             : (k * mean < in->wait - 0.5 ? 1 : 0);
}

/* Clients in order of latency, at most MANY of them, evenly spread. */
static uint32_t stand_for(double *log_s, uint32_t n)
{
    uint32_t m = n < MANY ? n : MANY;
    ru_sort_f64(log_s, n);
    for (uint32_t i = 0; i < m; i++) {
        log_s[i] = log_s[(uint32_t)((uint64_t)(2 * i + 1) * n / (2 * (uint64_t)m))];
    }
    return m;
}

ru_status ru_round_mean(const ru_round_in *in, ru_arena *scratch, double *seconds, ru_err *err)
{
    if (in->wait < 1 || in->wait > in->drawn || in->drawn > in->n ||
        in->drawn > RU_ROUND_DRAWN_MAX || !(in->spread >= 0) || !(in->deadline_s >= 0)) {
        return RU_FAIL(err, RU_E_ARG,
                       "a round that waits for %u of %u clients of %u (at most %d are drawn)",
                       in->wait, in->drawn, in->n, RU_ROUND_DRAWN_MAX);
    }
    double low = (double)INFINITY, high = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        if (!(in->latency_s[i] > 0) || !isfinite(in->latency_s[i])) {
            return RU_FAIL(err, RU_E_ARG, "client %u answers in %g s", i, in->latency_s[i]);
        }
        low = fmin(low, in->latency_s[i]);
        high = fmax(high, in->latency_s[i]);
    }
    if (!(in->spread > 1e-6)) {
        ru_arena_mark mark = ru_arena_mark_get(scratch);
        double *latency = ru_arena_copy(scratch, in->latency_s,
                                        (int64_t)in->n * (int64_t)sizeof *latency, sizeof *latency);
        if (latency == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for %u clients", in->n);
        }
        ru_sort_f64(latency, in->n);
        *seconds = without_jitter(in, latency);
        ru_arena_rewind(scratch, mark);
        return RU_OK;
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *log_s = RU_NEW(scratch, double, in->n);
    if (log_s == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u clients", in->n);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        log_s[i] = ru_num_log(in->latency_s[i]);
    }
    low *= ru_num_exp(-6 * in->spread);
    high *= ru_num_exp(6 * in->spread);
    high = in->deadline_s > 0 ? fmin(high, in->deadline_s) : high;
    low = fmin(low, high);
    bool many = in->drawn > RU_ROUND_EXACT_MAX;
    uint32_t m = many ? stand_for(log_s, in->n) : in->n;
    double factor = ru_num_exp(ru_num_log(high / low) / GRID), x = low, sum = low, before = 1;
    for (uint32_t g = 1; g <= GRID; g++) {
        double next = g == GRID ? high : x * factor, now;
        now = many ? late_many(in, log_s, m, next) : late(in, log_s, next);
        sum += (next - x) * (before + now) / 2;
        before = now;
        x = next;
    }
    ru_arena_rewind(scratch, mark);
    *seconds = sum;
    return RU_OK;
}
