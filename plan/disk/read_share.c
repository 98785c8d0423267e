#include "plan/disk/read_share.h"

#include <math.h>
#include <stddef.h>

#define JAIN_UNFAIR 0.95
#define JAIN_FAIR   0.99 /* a repair ends */
#define STALLED     0.05 /* of a window */
#define SATURATED   0.8  /* of what the storage has delivered at most */
#define EXPLAINS    0.5  /* of a worker's lateness */
#define STEP        2    /* a share grows or falls at most by this in a window */

static double x_of(const ru_read_worker *w)
{
    return w->bytes_per_s / w->need_bytes_per_s;
}

static ru_status check_in(const ru_read_share_in *in, ru_err *err)
{
    if (in->n < 1 || in->n > RU_READ_WORKERS_MAX || !(in->seconds > 0)) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u workers and a window of %g s; expected 1 to %d workers and a "
                       "window above 0",
                       in->n, in->seconds, RU_READ_WORKERS_MAX);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_worker *w = &in->worker[i];
        bool right = w->need_bytes_per_s > 0 && w->bytes_per_s > 0 && w->outstanding_bytes > 0 &&
                     w->stall_s >= 0 && w->late_s >= 0;
        if (!right || !isfinite(x_of(w) + 1 / x_of(w) + w->outstanding_bytes)) {
            return RU_FAIL(err, RU_E_ARG,
                           "worker %u must need, receive and keep outstanding more than 0 bytes",
                           i);
        }
    }
    return RU_OK;
}

static double jain_of(const double *x, uint32_t n)
{
    double most = 0, sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        most = fmax(most, x[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += x[i] / most;
        squares += x[i] / most * (x[i] / most);
    }
    return sum * sum / (n * squares);
}

/* Time of a window for which all wait for the worker with the least x. */
static double wait_of(const ru_read_share_in *in, const double *x)
{
    double least = 1;
    for (uint32_t i = 0; i < in->n; i++) {
        least = fmin(least, x[i]);
    }
    return in->seconds * (1 - least);
}

/* Delivery is the reason: the worst worker waits, mostly for data, and the storage is busy. */
static bool looks_unfair(const ru_read_share_in *in, double jain, uint32_t worst)
{
    const ru_read_worker *w = &in->worker[worst];
    double all = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        all += in->worker[i].bytes_per_s;
    }
    return jain < JAIN_UNFAIR && w->stall_s > STALLED * in->seconds &&
           w->stall_s > EXPLAINS * w->late_s && all >= SATURATED * in->capacity_bytes_per_s;
}

/* Each by what it lacks against the mean, within a step, the sum kept. */
static void repair(const ru_read_share_in *in, double *to)
{
    double lack = 0, sum = 0, before = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        lack += 1 / x_of(&in->worker[i]) / in->n;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        double factor = 1 / x_of(&in->worker[i]) / lack;
        factor = fmin(fmax(factor, 1.0 / STEP), STEP);
        to[i] = in->worker[i].outstanding_bytes * factor;
        sum += to[i];
        before += in->worker[i].outstanding_bytes;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        to[i] *= before / sum;
    }
}

bool ru_read_share_may(const ru_read_share_in *in, const double *to, uint32_t worst)
{
    double most = to[worst] / in->worker[worst].outstanding_bytes;
    bool may = true;
    for (uint32_t i = 0; i < in->n; i++) {
        double part = to[i] / in->worker[i].outstanding_bytes;
        may = may && part <= most && STEP * STEP * part >= most;
    }
    return may;
}

/* What is delivered follows what is outstanding: x of the next window into `x`. */
static double next_jain(const ru_read_share_in *in, const double *to, double *x)
{
    for (uint32_t i = 0; i < in->n; i++) {
        x[i] = x_of(&in->worker[i]) * (to[i] / in->worker[i].outstanding_bytes);
    }
    return jain_of(x, in->n);
}

/* Where equal shares are within a step and fairer, they are the repair. */
static void set(const ru_read_share_in *in, bool repairs, uint32_t worst, double *to, double *x)
{
    double sum = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        sum += in->worker[i].outstanding_bytes;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        to[i] = repairs || in->method == RU_READ_SHARE_EQUAL ? sum / in->n
                                                             : in->worker[i].outstanding_bytes;
    }
    if (repairs) {
        double equal = ru_read_share_may(in, to, worst) ? next_jain(in, to, x) : 0;
        repair(in, to);
        bool fairer = equal > next_jain(in, to, x);
        for (uint32_t i = 0; i < in->n && fairer; i++) {
            to[i] = sum / in->n;
        }
    }
}

ru_status ru_plan_read_share(const ru_read_share_in *in, ru_arena *out, ru_read_share_plan *plan,
                             ru_err *err)
{
    RU_TRY(check_in(in, err));
    double *to = RU_NEW(out, double, in->n), *x = RU_NEW(out, double, in->n);
    if (to == NULL || x == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", in->n);
    }
    uint32_t worst = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        x[i] = x_of(&in->worker[i]);
        worst = x[i] < x[worst] ? i : worst;
    }
    ru_read_share_plan p = {.jain = jain_of(x, in->n), .worst = worst, .n = in->n};
    p.wait_s = wait_of(in, x);
    bool unfair = looks_unfair(in, p.jain, worst);
    uint32_t more = in->windows < RU_READ_UNFAIR_WINDOWS ? in->windows + 1 : in->windows;
    p.windows = unfair ? more : 0;
    p.flagged = p.windows >= RU_READ_UNFAIR_WINDOWS;
    bool ours = in->method == RU_READ_SHARE_BALANCE;
    p.repairs = ours && (p.flagged || (in->repairs && p.jain < JAIN_FAIR));
    set(in, p.repairs, worst, to, x);
    p.jain_next = next_jain(in, to, x);
    p.wait_next_s = wait_of(in, x);
    p.outstanding_bytes = to;
    *plan = p;
    return RU_OK;
}
