/* Levenberg-Marquardt within bounds. See minimize.h. */
#include "cost/minimize_impl.h"

#include "cost/dense.h"

#include <math.h>
#include <string.h>

typedef struct fit {
    const ru_curve_in *in;
    uint32_t m, n, calls, calls_max;
    double *x, *x_next, *low, *high, *grad, *step; /* [n] */
    double *r, *r_next;                            /* [m] */
    double *jac;                                   /* [m, n] */
    double *normal, *part;                         /* [n, n] */
    uint32_t *free_at;                             /* [n] */
    double squares;
    bool spent;
} fit;

/* Sum of squares; INFINITY where the residuals are not finite or the budget has ended. */
static double call(fit *f, const double *x, double *r, double *jac)
{
    if (f->calls >= f->calls_max) {
        f->spent = true;
        return (double)INFINITY;
    }
    f->calls++;
    f->in->fn(f->in->self, x, r, jac);
    double sum = ru_dense_dot(r, r, f->m);
    return isfinite(sum) ? sum : (double)INFINITY;
}

/* Forward differences, backward at an upper bound or at a wall. `r_next` is scratch. */
static void differences(fit *f)
{
    for (uint32_t j = 0; j < f->n; j++) {
        double at = f->x[j], size = fabs(at) > 1e-3 ? fabs(at) : 1e-3;
        double h = 1.5e-8 * size;
        for (int way = 0; way < 2; way++, h = -h) {
            double to = at + h;
            bool fits = to <= f->high[j] && to >= f->low[j];
            f->x[j] = to;
            double sum = fits ? call(f, f->x, f->r_next, NULL) : (double)INFINITY;
            f->x[j] = at;
            for (uint32_t i = 0; i < f->m; i++) {
                f->jac[(size_t)i * f->n + j] =
                    isfinite(sum) ? (f->r_next[i] - f->r[i]) / (to - at) : 0;
            }
            if (isfinite(sum)) {
                break;
            }
        }
    }
}

/* grad = J'r, normal = J'J. */
static void derivatives(fit *f)
{
    if (!f->in->has_jac) {
        differences(f);
    } else {
        (void)call(f, f->x, f->r, f->jac);
    }
    memset(f->grad, 0, f->n * sizeof *f->grad);
    memset(f->normal, 0, (size_t)f->n * f->n * sizeof *f->normal);
    for (uint32_t i = 0; i < f->m; i++) {
        const double *row = f->jac + (size_t)i * f->n;
        for (uint32_t j = 0; j < f->n; j++) {
            f->grad[j] += row[j] * f->r[i];
            for (uint32_t k = 0; k <= j; k++) {
                f->normal[(size_t)j * f->n + k] += row[j] * row[k];
            }
        }
    }
}

/* Into x_next: the step under damping mu, projected; the fall of the squares that the linear model
 * predicts, or a negative number when there is no step. */
static double propose(fit *f, double mu)
{
    uint32_t m = 0;
    double largest = 0;
    for (uint32_t j = 0; j < f->n; j++) {
        double d = f->normal[(size_t)j * f->n + j];
        largest = d > largest ? d : largest;
        bool held = (f->x[j] <= f->low[j] && f->grad[j] > 0) ||
                    (f->x[j] >= f->high[j] && f->grad[j] < 0) || f->low[j] == f->high[j];
        if (!held && d > 0) {
            f->free_at[m++] = j;
        }
    }
    for (uint32_t i = 0; i < m; i++) {
        uint32_t a = f->free_at[i];
        for (uint32_t j = 0; j <= i; j++) {
            f->part[(size_t)i * m + j] = f->normal[(size_t)a * f->n + f->free_at[j]];
        }
        f->part[(size_t)i * m + i] *= 1 + mu;
        f->part[(size_t)i * m + i] += 1e-300 * largest;
        f->step[i] = -f->grad[a];
    }
    if (m == 0 || ru_chol(f->part, m, m, NULL) != RU_OK) {
        return -1;
    }
    ru_chol_solve(f->part, m, m, f->step);
    memcpy(f->x_next, f->x, f->n * sizeof *f->x);
    for (uint32_t i = 0; i < m; i++) {
        uint32_t j = f->free_at[i];
        double to = f->x[j] + f->step[i];
        f->x_next[j] = to < f->low[j] ? f->low[j] : to > f->high[j] ? f->high[j] : to;
    }
    double fall = 0; /* -(2 g d + d'Nd) over what is left of the step */
    for (uint32_t i = 0; i < f->n; i++) {
        double d = f->x_next[i] - f->x[i];
        fall -= 2 * f->grad[i] * d + d * d * f->normal[(size_t)i * f->n + i];
        for (uint32_t j = 0; j < i; j++) {
            fall -= 2 * d * (f->x_next[j] - f->x[j]) * f->normal[(size_t)i * f->n + j];
        }
    }
    return fall;
}

static double longest_step(const fit *f)
{
    double longest = 0;
    for (uint32_t j = 0; j < f->n; j++) {
        double v = fabs(f->x_next[j] - f->x[j]) / (fabs(f->x[j]) + 1e-30);
        longest = v > longest ? v : longest;
    }
    return longest;
}

/* False: the budget ended. */
static bool descend(fit *f)
{
    double tol = f->in->step_tol > 0 ? f->in->step_tol : 1e-12, mu = 1e-3;
    derivatives(f);
    while (!f->spent && f->squares > 0) {
        double fall = propose(f, mu);
        if (fall <= 0 && mu >= 1e12) {
            return true; /* no free variable goes down */
        }
        double next = fall > 0 ? call(f, f->x_next, f->r_next, NULL) : (double)INFINITY;
        if (next < f->squares) {
            double gained = f->squares - next, step = longest_step(f);
            memcpy(f->x, f->x_next, f->n * sizeof *f->x);
            memcpy(f->r, f->r_next, f->m * sizeof *f->r);
            f->squares = next;
            mu = gained > 0.75 * fall ? mu / 5 : gained < 0.25 * fall ? mu * 3 : mu;
            mu = mu < 1e-15 ? 1e-15 : mu;
            if ((gained <= tol * next && fall <= tol * next) || step <= tol) {
                return true;
            }
            derivatives(f);
        } else {
            mu *= 8;
            if (mu > 1e14 || (fall > 0 && longest_step(f) <= 1e-15)) {
                return !f->spent;
            }
        }
    }
    return !f->spent;
}

ru_status ru_curve_fit(const ru_curve_in *in, ru_arena *arena, ru_minimum *out, ru_err *err)
{
    if (in->n == 0 || in->n > RU_MINIMIZE_N_MAX || in->m == 0) {
        return RU_FAIL(err, RU_E_ARG, "a fit of %u variables to %u residuals, 1 to %d variables",
                       in->n, in->m, RU_MINIMIZE_N_MAX);
    }
    int64_t n = in->n, m = in->m;
    fit f = {.in = in, .m = in->m, .n = in->n};
    f.calls_max =
        in->calls_max > 0 ? in->calls_max : 100 * (in->n + 1) * (in->has_jac ? 2 : in->n + 1);
    double *answer = RU_NEW(arena, double, n);
    ru_arena_mark mark = ru_arena_mark_get(arena);
    double *all = RU_NEW(arena, double, 6 * n + 2 * m + m * n + 2 * n * n);
    f.free_at = RU_NEW(arena, uint32_t, n);
    if (answer == NULL || all == NULL || f.free_at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a fit of %u variables to %u residuals",
                       in->n, in->m);
    }
    double **vectors[6] = {&f.x, &f.x_next, &f.low, &f.high, &f.grad, &f.step};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(vectors); k++, all += n) {
        *vectors[k] = all;
    }
    f.r = all;
    f.r_next = f.r + m;
    f.jac = f.r_next + m;
    f.normal = f.jac + m * n;
    f.part = f.normal + n * n;
    ru_status st = rui_bounds(in->n, in->start, in->low, in->high, f.x, f.low, f.high, err);
    if (st == RU_OK) {
        f.squares = call(&f, f.x, f.r, NULL);
        if (!isfinite(f.squares)) {
            st = RU_FAIL(err, RU_E_INFEASIBLE, "the residuals are not finite where the fit starts");
        }
    }
    if (st == RU_OK) {
        bool converged = descend(&f);
        memcpy(answer, f.x, (size_t)n * sizeof *answer);
        *out = (ru_minimum){answer, f.squares, f.calls, converged};
    }
    ru_arena_rewind(arena, mark);
    return st;
}
