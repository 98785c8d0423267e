#include "cost/progress.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

static double mean_log(const double *took, uint32_t n)
{
    double sum = 0;
    for (uint32_t w = 0; w < n; w++) {
        sum += ru_math_log(took[w]);
    }
    return sum / n;
}

/* How far worker w was from the mean in clock c, in logarithms. */
static double apart(const double *took, uint32_t c, uint32_t n, uint32_t w, double mean)
{
    return ru_math_log(took[(uint64_t)c * n + w]) - mean;
}

double ru_progress_next(const double *took, uint32_t clocks, uint32_t n, double *next)
{
    double level = 0, within = 0, between = 0, both = 0, before = 0, last_mean = 0;
    double low = took[0], high = took[0];
    memset(next, 0, n * sizeof *next);
    for (uint32_t c = 0; c < clocks; c++) {
        last_mean = mean_log(took + (uint64_t)c * n, n);
        level += last_mean / clocks;
        for (uint32_t w = 0; w < n; w++) {
            next[w] += apart(took, c, n, w, last_mean) / clocks;
            low = fmin(low, took[(uint64_t)c * n + w]);
            high = fmax(high, took[(uint64_t)c * n + w]);
        }
    }
    for (uint32_t c = 0; c < clocks; c++) {
        double mean = mean_log(took + (uint64_t)c * n, n);
        for (uint32_t w = 0; w < n; w++) {
            double d = apart(took, c, n, w, mean) - next[w];
            within += clocks > 1 ? d * d / ((double)n * (clocks - 1)) : 0;
            between += c == 0 ? next[w] * next[w] / n : 0;
        }
    }
    /* Of a worker's mean: what is no accident of so many clocks. Below 1e-12 are rounding errors.
     */
    double lasts = clocks > 1 && between > 1e-12 ? fmax(1 - within / clocks / between, 0) : 0;
    double old_mean = 0;
    for (uint32_t c = 0; c < clocks; c++) {
        double mean = mean_log(took + (uint64_t)c * n, n);
        for (uint32_t w = 0; c > 0 && w < n; w++) {
            double x = apart(took, c - 1, n, w, old_mean) - lasts * next[w];
            both += x * (apart(took, c, n, w, mean) - lasts * next[w]);
            before += x * x;
        }
        old_mean = mean;
    }
    double follows = before > 1e-12 * n ? fmin(fmax(both / before, 0), 1) : 0;
    for (uint32_t w = 0; w < n; w++) {
        double rest = apart(took, clocks - 1, n, w, last_mean) - lasts * next[w];
        double s = ru_math_exp(level + lasts * next[w] + follows * rest);
        next[w] = fmin(fmax(s, low), high);
    }
    return lasts;
}

/* The k-th largest of [n], k from 0, by counting: n is small and nothing is kept. */
static double kth_largest(const double *v, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t above = 0, same = 0;
        for (uint32_t j = 0; j < n; j++) {
            above += v[j] > v[i] ? 1 : 0;
            same += v[j] == v[i] ? 1 : 0;
        }
        if (above <= k && k < above + same) {
            return v[i];
        }
    }
    return 0;
}

ru_status ru_progress_bounded(const double *took, uint32_t clocks, uint32_t n, uint32_t slack,
                              uint32_t backup, ru_arena *scratch, double *total_s, ru_err *err)
{
    double *end = RU_NEW(scratch, double, n), *all = RU_NEW(scratch, double, (int64_t)clocks + 1);
    if (end == NULL || all == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers over %u clocks", n, clocks);
    }
    for (uint32_t c = 0; c < clocks; c++) {
        double gate = c > slack ? all[c - slack - 1] : 0;
        for (uint32_t w = 0; w < n; w++) {
            end[w] = fmax(end[w], gate) + took[(uint64_t)c * n + w];
        }
        all[c] = backup == 0 ? 0 : kth_largest(end, n, backup);
        for (uint32_t w = 0; w < n; w++) {
            /* Whoever is late is told to drop the clock when the others have ended it. */
            end[w] = backup > 0 ? fmin(end[w], all[c]) : end[w];
            all[c] = fmax(all[c], end[w]);
        }
    }
    *total_s = clocks > 0 ? all[clocks - 1] * n / (n - backup) : 0;
    return RU_OK;
}

double ru_progress_ideal(const double *took, uint32_t clocks, uint32_t n)
{
    double sum = 0;
    for (uint32_t c = 0; c < clocks; c++) {
        double rate = 0;
        for (uint32_t w = 0; w < n; w++) {
            rate += 1 / took[(uint64_t)c * n + w];
        }
        sum += n / rate;
    }
    return sum;
}
