#include "cost/step/prior.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/norm.h"

/* Grid points a deviation of the error; the law reaches five deviations from a measurement. */
enum { FINE = 3, REACH = 5 * FINE, ITERATIONS = 150 };

typedef struct grid {
    double low, step, error;
    uint32_t n;
    double *weight, *next, *count; /* [n] of the law; measurements by nearest point */
    double kernel[REACH + 1];      /* likelihood by distance in points */
} grid;

static uint32_t place(const grid *g, double x)
{
    double at = floor((x - g->low) / g->step + 0.5);
    return at < 0 ? 0 : at >= g->n ? g->n - 1 : (uint32_t)at;
}

static uint32_t first_of(uint32_t at)
{
    return at < REACH ? 0 : at - REACH;
}

static uint32_t last_of(const grid *g, uint32_t at)
{
    return g->n - 1 - at < REACH ? g->n - 1 : at + REACH;
}

static void iterate(grid *g, double all)
{
    for (uint32_t j = 0; j < g->n; j++) {
        g->next[j] = 0;
    }
    for (uint32_t b = 0; b < g->n; b++) {
        if (!(g->count[b] > 0)) {
            continue;
        }
        double sum = 0;
        for (uint32_t j = first_of(b); j <= last_of(g, b); j++) {
            sum += g->weight[j] * g->kernel[j > b ? j - b : b - j];
        }
        double part = g->count[b] / all / sum;
        for (uint32_t j = first_of(b); j <= last_of(g, b); j++) {
            g->next[j] += part * g->weight[j] * g->kernel[j > b ? j - b : b - j];
        }
    }
    double *t = g->weight;
    g->weight = g->next;
    g->next = t;
}

/* Mean and variance of what lies behind x under the law. */
static double behind(const grid *g, double x, double *variance)
{
    uint32_t at = place(g, x);
    double sum = 0, first = 0, square = 0;
    for (uint32_t j = first_of(at); j <= last_of(g, at); j++) {
        double off = g->low + j * g->step - x, z = off / g->error;
        double p = g->weight[j] * ru_num_exp(-z * z / 2);
        sum += p;
        first += p * off;
        square += p * off * off;
    }
    double shift = first / sum;
    *variance = square / sum - shift * shift;
    return x + shift;
}

ru_status ru_prior_means(const double *x, uint32_t n, double error, ru_arena *scratch, double *mean,
                         double *variance, ru_err *err)
{
    double low = (double)INFINITY, high = -(double)INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        if (!isfinite(x[i])) {
            return RU_FAIL(err, RU_E_ARG, "measurement %u is %g", i, x[i]);
        }
    }
    if (!(error >= 0) || !isfinite(error)) {
        return RU_FAIL(err, RU_E_ARG, "measurements with an error of %g", error);
    }
    *variance = 0;
    if (n < 2 || !(error > 0) || (high - low) / error * FINE > RU_PRIOR_GRID_MAX - 2) {
        for (uint32_t i = 0; i < n; i++) {
            mean[i] = x[i];
        }
        *variance = error * error;
        return RU_OK;
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    grid g = {.low = low, .step = error / FINE, .error = error};
    g.n = (uint32_t)ceil((high - low) / g.step) + 1;
    g.weight = RU_NEW(scratch, double, g.n);
    g.next = RU_NEW(scratch, double, g.n);
    g.count = RU_NEW(scratch, double, g.n);
    if (g.weight == NULL || g.next == NULL || g.count == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a law of %u points", g.n);
    }
    for (uint32_t j = 0; j < g.n; j++) {
        g.weight[j] = 1.0 / g.n;
    }
    for (uint32_t k = 0; k <= REACH; k++) {
        double z = (double)k / FINE;
        g.kernel[k] = ru_num_exp(-z * z / 2);
    }
    for (uint32_t i = 0; i < n; i++) {
        g.count[place(&g, x[i])] += 1;
    }
    for (uint32_t k = 0; k < ITERATIONS; k++) {
        iterate(&g, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        double v;
        mean[i] = behind(&g, x[i], &v);
        *variance += v / n;
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
