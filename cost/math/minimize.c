/* Bounded minimisation of functions of several variables. See minimize.h. */
#include "cost/math/minimize.h"

#include "cost/math/dense.h"

#include <math.h>
#include <string.h>

typedef struct search {
    const ru_minimize_in *in;
    uint32_t n, calls, calls_max;
    double *x, *grad, *x_next, *grad_next; /* [n] */
    double *low, *high;                    /* [n] */
    double *step, *change;                 /* [n] s and y of the update */
    double *curve;                         /* [n, n] approximates the second derivatives */
    double *part, *go;                     /* [n, n], [n]: the free variables alone */
    uint32_t *free_at;                     /* [n] */
    double value;
    bool spent; /* the budget ended */
} search;

static double inside(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

/* One call; what is not a number is a wall. */
static double call(search *s, const double *x, double *grad)
{
    if (s->calls >= s->calls_max) {
        s->spent = true;
        return (double)INFINITY;
    }
    s->calls++;
    double v = s->in->fn(s->in->self, x, grad);
    return isnan(v) ? (double)INFINITY : v;
}

/* The gradient at x by central differences, one-sided where a bound is near. */
static void differences(search *s, double *x, double value, double *grad)
{
    for (uint32_t j = 0; j < s->n; j++) {
        double at = x[j], span = s->high[j] - s->low[j], size = fabs(at);
        size = size > 1e-3 ? size : span < 1 ? 1e-3 * span : 1e-3;
        double h = 6e-6 * size, up = at + h, down = at - h;
        up = up > s->high[j] ? at : up;
        down = down < s->low[j] ? at : down;
        x[j] = up;
        double f_up = up > at ? call(s, x, NULL) : value;
        x[j] = down;
        double f_down = down < at ? call(s, x, NULL) : value;
        x[j] = at;
        if (!isfinite(f_up) || !isfinite(f_down)) { /* a wall on one side: use the other */
            double g = isfinite(f_up)     ? (f_up - value) / (up - at)
                       : isfinite(f_down) ? (value - f_down) / (at - down)
                                          : 0;
            grad[j] = isfinite(g) ? g : 0;
        } else {
            grad[j] = up > down ? (f_up - f_down) / (up - down) : 0;
        }
    }
}

/* Value and gradient at s->x_next. */
static double look(search *s)
{
    if (s->in->has_grad) {
        return call(s, s->x_next, s->grad_next);
    }
    return call(s, s->x_next, NULL);
}

/* How far the projected gradient is from 0, as a step: 0 at a minimum within the bounds. */
static double slope(const search *s)
{
    double largest = 0;
    for (uint32_t j = 0; j < s->n; j++) {
        double v = fabs(inside(s->x[j] - s->grad[j], s->low[j], s->high[j]) - s->x[j]);
        largest = v > largest ? v : largest;
    }
    return largest;
}

static void forget(search *s)
{
    memset(s->curve, 0, (size_t)s->n * s->n * sizeof *s->curve);
    for (uint32_t j = 0; j < s->n; j++) {
        double scale = s->in->scale != NULL ? s->in->scale[j] : 1;
        s->curve[(size_t)j * s->n + j] = 1 / (scale * scale);
    }
}

/* Into s->go: where the quadratic model over the free variables has its least value. A variable at
 * a bound that the gradient pushes against is not free. */
static uint32_t direction(search *s)
{
    uint32_t m = 0;
    for (uint32_t j = 0; j < s->n; j++) {
        double near = 1e-12 * (1 + fabs(s->x[j]));
        bool held = (s->x[j] - s->low[j] <= near && s->grad[j] > 0) ||
                    (s->high[j] - s->x[j] <= near && s->grad[j] < 0) || s->low[j] == s->high[j];
        if (!held) {
            s->free_at[m++] = j;
        }
    }
    for (int tries = 0; tries < 2; tries++) {
        for (uint32_t i = 0; i < m; i++) {
            for (uint32_t j = 0; j <= i; j++) {
                s->part[(size_t)i * m + j] = s->curve[(size_t)s->free_at[i] * s->n + s->free_at[j]];
            }
            s->go[i] = -s->grad[s->free_at[i]];
        }
        if (ru_chol(s->part, m, m, NULL) == RU_OK) {
            ru_chol_solve(s->part, m, m, s->go);
            return m;
        }
        forget(s);
    }
    return m; /* downhill, unscaled */
}

/* Backtrack along the projection of x + t go until the value falls enough. The first step of a
 * fresh curvature is short: nothing is known of its length yet. */
static bool line_search(search *s, uint32_t m, bool fresh, double *value)
{
    double longest = 0;
    for (uint32_t i = 0; i < m; i++) {
        double scale = s->in->scale != NULL ? s->in->scale[s->free_at[i]] : 1;
        double v = fabs(s->go[i]) / scale;
        longest = v > longest ? v : longest;
    }
    double t = fresh && longest > 1 ? 1 / longest : 1;
    for (uint32_t k = 0; k < 60 && !s->spent; k++, t *= k < 4 ? 0.5 : 0.1) {
        memcpy(s->x_next, s->x, s->n * sizeof *s->x);
        double fall = 0, moved = 0;
        for (uint32_t i = 0; i < m; i++) {
            uint32_t j = s->free_at[i];
            s->x_next[j] = inside(s->x[j] + t * s->go[i], s->low[j], s->high[j]);
            double d = s->x_next[j] - s->x[j];
            fall -= s->grad[j] * d;
            moved = fabs(d) > moved ? fabs(d) : moved;
        }
        if (moved == 0) {
            return false;
        }
        *value = look(s);
        if (*value <= s->value - 1e-4 * fall && fall > 0) {
            return true;
        }
    }
    return false;
}

/* BFGS with Powell's damping: the curvature stays positive definite. */
static void update(search *s)
{
    double sy = 0, sbs = 0, *bs = s->go;
    ru_dense_mul_col(s->curve, s->step, s->n, s->n, bs);
    sbs = ru_dense_dot(s->step, bs, s->n);
    sy = ru_dense_dot(s->step, s->change, s->n);
    if (!(sbs > 0) || !isfinite(sy)) {
        return;
    }
    double keep = sy >= 0.2 * sbs ? 1 : 0.8 * sbs / (sbs - sy);
    for (uint32_t j = 0; j < s->n; j++) {
        s->change[j] = keep * s->change[j] + (1 - keep) * bs[j];
    }
    sy = ru_dense_dot(s->step, s->change, s->n);
    for (uint32_t i = 0; sy > 0 && i < s->n; i++) {
        for (uint32_t j = 0; j < s->n; j++) {
            s->curve[(size_t)i * s->n + j] +=
                s->change[i] * s->change[j] / sy - bs[i] * bs[j] / sbs;
        }
    }
}

/* After the first step: the size of the second derivatives along it. */
static void rescale(search *s)
{
    double sy = 0, sds = 0;
    for (uint32_t j = 0; j < s->n; j++) {
        sy += s->step[j] * s->change[j];
        sds += s->step[j] * s->step[j] * s->curve[(size_t)j * s->n + j];
    }
    double factor = sy > 0 && sds > 0 ? sy / sds : 1;
    for (uint32_t j = 0; j < s->n; j++) {
        s->curve[(size_t)j * s->n + j] *= factor;
    }
}

static bool descend(search *s)
{
    double grad_tol = s->in->grad_tol > 0 ? s->in->grad_tol : 1e-9;
    double step_tol = s->in->step_tol > 0 ? s->in->step_tol : 1e-14;
    bool fresh = true;
    uint32_t still = 0;
    while (!s->spent) {
        if (slope(s) <= grad_tol * (1 + fabs(s->value))) {
            return true;
        }
        double value = s->value;
        uint32_t m = direction(s);
        if (!line_search(s, m, fresh, &value)) {
            if (fresh || s->spent) {
                return !s->spent; /* not even downhill: as low as rounding lets it go */
            }
            forget(s);
            fresh = true;
            continue;
        }
        if (!s->in->has_grad) {
            differences(s, s->x_next, value, s->grad_next);
        }
        double fall = s->value - value;
        for (uint32_t j = 0; j < s->n; j++) {
            s->step[j] = s->x_next[j] - s->x[j];
            s->change[j] = s->grad_next[j] - s->grad[j];
            s->x[j] = s->x_next[j];
            s->grad[j] = s->grad_next[j];
        }
        s->value = value;
        if (fresh) {
            rescale(s);
        }
        fresh = false;
        update(s);
        still = fall <= step_tol * (1 + fabs(value)) ? still + 1 : 0;
        if (still >= 2) {
            return true;
        }
    }
    return false;
}

static ru_status take_bounds(uint32_t n, const double *start, const double *low, const double *high,
                             double *x, double *l, double *h, ru_err *err)
{
    for (uint32_t j = 0; j < n; j++) {
        l[j] = low != NULL ? low[j] : -(double)INFINITY;
        h[j] = high != NULL ? high[j] : (double)INFINITY;
        if (!(l[j] <= h[j]) || l[j] == (double)INFINITY || h[j] == -(double)INFINITY) {
            return RU_FAIL(err, RU_E_ARG, "variable %u has the bounds %g and %g", j, l[j], h[j]);
        }
        if (!isfinite(start[j])) {
            return RU_FAIL(err, RU_E_ARG, "variable %u starts at %g", j, start[j]);
        }
        x[j] = inside(start[j], l[j], h[j]);
    }
    return RU_OK;
}

static ru_status begin(search *s, ru_err *err)
{
    RU_TRY(take_bounds(s->n, s->in->start, s->in->low, s->in->high, s->x, s->low, s->high, err));
    forget(s);
    memcpy(s->x_next, s->x, s->n * sizeof *s->x);
    s->value = look(s);
    if (!isfinite(s->value)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the function is %g where the search starts",
                       s->value);
    }
    if (!s->in->has_grad) {
        differences(s, s->x_next, s->value, s->grad_next);
    }
    memcpy(s->grad, s->grad_next, s->n * sizeof *s->grad);
    return RU_OK;
}

ru_status ru_minimize(const ru_minimize_in *in, ru_arena *arena, ru_minimum *out, ru_err *err)
{
    if (in->n == 0 || in->n > RU_MINIMIZE_N_MAX) {
        return RU_FAIL(err, RU_E_ARG, "a search over %u variables, 1 to %d", in->n,
                       RU_MINIMIZE_N_MAX);
    }
    uint32_t n = in->n, each = in->has_grad ? 1 : 2 * n + 1;
    search s = {.in = in, .n = n};
    s.calls_max = in->calls_max > 0 ? in->calls_max : 200 * (n + 1) * each;
    double *answer = RU_NEW(arena, double, n);
    ru_arena_mark mark = ru_arena_mark_get(arena);
    double *all = RU_NEW(arena, double, 9 * (int64_t)n + 2 * (int64_t)n * n);
    s.free_at = RU_NEW(arena, uint32_t, n);
    if (answer == NULL || all == NULL || s.free_at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a search over %u variables", n);
    }
    double **vectors[9] = {&s.x,    &s.grad, &s.x_next, &s.grad_next, &s.low,
                           &s.high, &s.step, &s.change, &s.go};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(vectors); k++) {
        *vectors[k] = all + (size_t)k * n;
    }
    s.curve = all + (size_t)RU_ARRAY_LEN(vectors) * n;
    s.part = s.curve + (size_t)n * n;
    ru_status st = begin(&s, err);
    if (st == RU_OK) {
        bool converged = descend(&s);
        memcpy(answer, s.x, n * sizeof *answer);
        *out = (ru_minimum){answer, s.value, s.calls, converged};
    }
    ru_arena_rewind(arena, mark);
    return st;
}
