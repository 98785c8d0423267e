#include "cost/load.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

enum { ROUNDS_MAX = 200 };

int64_t ru_load_ns(int64_t cpu_ns, double cores, int64_t net_bytes, double bytes_per_s)
{
    RU_CHECK(cores > 0 && bytes_per_s > 0);
    double ns = (double)cpu_ns / cores + (double)net_bytes * 1e9 / bytes_per_s;
    return (int64_t)fmin(ns + 0.5, 1e18);
}

static ru_status check_samples(const ru_load_sample *s, uint32_t n, uint32_t executors,
                               uint32_t workers, ru_err *err)
{
    if (n < 1) {
        return RU_FAIL(err, RU_E_ARG, "no task was measured");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (s[i].executor >= executors || s[i].worker >= workers) {
            return RU_FAIL(err, RU_E_ARG,
                           "sample %u is of executor %u on worker %u; there are %u executors and "
                           "%u workers",
                           i, s[i].executor, s[i].worker, executors, workers);
        }
        if (!(s[i].took_s >= 1e-12 && s[i].took_s <= 1e12)) {
            return RU_FAIL(err, RU_E_ARG, "sample %u took %g s, expected 1e-12 to 1e12", i,
                           s[i].took_s);
        }
    }
    return RU_OK;
}

typedef struct fit {
    const ru_load_sample *s;
    uint32_t n, executors, workers;
    double *took;          /* [n] logarithm of took_s */
    uint32_t *of_executor; /* [executors] samples */
    uint32_t *of_worker;   /* [workers] samples, and one of speed 1 that keeps speeds near 1 */
} fit;

/* Logarithms of all speeds from those of all costs. Returns the largest change. */
static double speeds(const fit *f, const double *cost, double *next, double *speed)
{
    memset(next, 0, f->workers * sizeof *next);
    for (uint32_t i = 0; i < f->n; i++) {
        next[f->s[i].worker] += cost[f->s[i].executor] - f->took[i];
    }
    double change = 0;
    for (uint32_t w = 0; w < f->workers; w++) {
        double v = next[w] / f->of_worker[w];
        change = fmax(change, fabs(v - speed[w]));
        speed[w] = v;
    }
    return change;
}

static void costs(const fit *f, const double *speed, double *cost)
{
    memset(cost, 0, f->executors * sizeof *cost);
    for (uint32_t i = 0; i < f->n; i++) {
        cost[f->s[i].executor] += f->took[i] + speed[f->s[i].worker];
    }
    for (uint32_t e = 0; e < f->executors; e++) {
        cost[e] /= f->of_executor[e] > 0 ? f->of_executor[e] : 1;
    }
}

/* From logarithms to the plain mean of took * speed of each executor. */
static void finish(const fit *f, double *cost, double *speed)
{
    memset(cost, 0, f->executors * sizeof *cost);
    for (uint32_t w = 0; w < f->workers; w++) {
        speed[w] = ru_math_exp(speed[w]);
    }
    double sum = 0;
    uint32_t known = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        cost[f->s[i].executor] += f->s[i].took_s * speed[f->s[i].worker];
    }
    for (uint32_t e = 0; e < f->executors; e++) {
        if (f->of_executor[e] > 0) {
            cost[e] /= f->of_executor[e];
            sum += cost[e];
            known++;
        }
    }
    for (uint32_t e = 0; e < f->executors; e++) {
        cost[e] = f->of_executor[e] > 0 ? cost[e] : sum / known;
    }
}

ru_status ru_load_fit(const ru_load_sample *samples, uint32_t n, uint32_t executors,
                      uint32_t workers, ru_arena *scratch, double *cost_s, double *speed,
                      ru_err *err)
{
    RU_TRY(check_samples(samples, n, executors, workers, err));
    fit f = {.s = samples, .n = n, .executors = executors, .workers = workers};
    f.took = RU_NEW(scratch, double, n);
    f.of_executor = RU_NEW(scratch, uint32_t, executors);
    f.of_worker = RU_NEW(scratch, uint32_t, workers);
    double *next = RU_NEW(scratch, double, workers);
    if (f.took == NULL || f.of_executor == NULL || f.of_worker == NULL || next == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u measured tasks", n);
    }
    for (uint32_t w = 0; w < workers; w++) {
        f.of_worker[w] = 1;
        speed[w] = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        f.took[i] = ru_math_log(samples[i].took_s);
        f.of_executor[samples[i].executor]++;
        f.of_worker[samples[i].worker]++;
    }
    double change = 1;
    for (uint32_t round = 0; round < ROUNDS_MAX && change > 1e-12; round++) {
        costs(&f, speed, cost_s);
        change = speeds(&f, cost_s, next, speed);
    }
    finish(&f, cost_s, speed);
    return RU_OK;
}
