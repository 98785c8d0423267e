#include "cost/round.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/norm.h"
#include "cost/math/quantile.h"

enum { GRID = 256 };

static double log_choose(double n, double k)
{
    return ru_gamma_log(n + 1) - ru_gamma_log(k + 1) - ru_gamma_log(n - k + 1);
}

/* latency [n] rising. */
static double without_jitter(const ru_round_in *in, const double *latency)
{
    double sum = 0, all = log_choose(in->n, in->drawn);
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
    double p[RU_ROUND_DRAWN_MAX + 1][RU_ROUND_DRAWN_MAX + 1];
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
    double factor = ru_num_exp(ru_num_log(high / low) / GRID), x = low, sum = low, before = 1;
    for (uint32_t g = 1; g <= GRID; g++) {
        double next = g == GRID ? high : x * factor, now = late(in, log_s, next);
        sum += (next - x) * (before + now) / 2;
        before = now;
        x = next;
    }
    ru_arena_rewind(scratch, mark);
    *seconds = sum;
    return RU_OK;
}
