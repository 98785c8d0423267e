/* Functions of one variable: golden section, Brent's minimum and root. See minimize.h. */
#include "cost/minimize.h"

#include <math.h>

static const double golden = 0.38196601125010515180; /* (3 - sqrt 5) / 2 */

typedef struct line {
    ru_line_fn fn;
    void *self;
    uint32_t calls;
} line;

static double call(line *l, double x)
{
    l->calls++;
    double v = l->fn(l->self, x);
    return isnan(v) ? (double)INFINITY : v;
}

ru_line_point ru_line_golden(ru_line_fn fn, void *self, double low, double high, double x_tol,
                             uint32_t calls_max)
{
    RU_CHECK(low <= high && calls_max >= 2);
    line l = {fn, self, 0};
    double a = low + golden * (high - low), b = high - golden * (high - low);
    double f_a = call(&l, a), f_b = call(&l, b);
    while (high - low > x_tol && l.calls < calls_max && a < b) {
        if (f_a <= f_b) {
            high = b;
            b = a;
            f_b = f_a;
            a = low + golden * (high - low);
            f_a = call(&l, a);
        } else {
            low = a;
            a = b;
            f_a = f_b;
            b = high - golden * (high - low);
            f_b = call(&l, b);
        }
    }
    return f_a <= f_b ? (ru_line_point){a, f_a, l.calls} : (ru_line_point){b, f_b, l.calls};
}

/* The least value of the parabola through the three points as a step from x; false when it is not
 * to be trusted: outside the bracket, or not half of the step before the last. */
static bool parabola(const double x[3], const double f[3], double low, double high, double before,
                     double *step)
{
    double r = (x[0] - x[1]) * (f[0] - f[2]), q = (x[0] - x[2]) * (f[0] - f[1]);
    double p = (x[0] - x[2]) * q - (x[0] - x[1]) * r, d = 2 * (q - r);
    p = d > 0 ? -p : p;
    d = fabs(d);
    if (!(fabs(p) < fabs(0.5 * d * before)) || !(p > d * (low - x[0])) ||
        !(p < d * (high - x[0]))) {
        return false;
    }
    *step = p / d;
    return true;
}

ru_line_point ru_line_brent(ru_line_fn fn, void *self, double low, double high, double x_tol,
                            uint32_t calls_max)
{
    RU_CHECK(low <= high && calls_max >= 2);
    line l = {fn, self, 0};
    /* x[0] is the best, x[1] the second, x[2] what was second before. */
    double x[3], f[3], step = 0, before = 0;
    x[0] = x[1] = x[2] = low + golden * (high - low);
    f[0] = f[1] = f[2] = call(&l, x[0]);
    while (l.calls < calls_max) {
        double mid = 0.5 * (low + high), tol = x_tol * 0.5 + 1.5e-8 * fabs(x[0]) * 1e-4;
        if (fabs(x[0] - mid) <= 2 * tol - 0.5 * (high - low)) {
            break;
        }
        double last = before;
        before = step;
        if (fabs(last) <= tol || !parabola(x, f, low, high, last, &step)) {
            before = x[0] < mid ? high - x[0] : low - x[0];
            step = golden * before;
        } else if (x[0] + step - low < 2 * tol || high - x[0] - step < 2 * tol) {
            step = x[0] < mid ? tol : -tol;
        }
        double at = fabs(step) >= tol ? x[0] + step : x[0] + (step > 0 ? tol : -tol);
        double value = call(&l, at);
        if (value <= f[0]) {
            *(at < x[0] ? &high : &low) = x[0];
            x[2] = x[1], f[2] = f[1];
            x[1] = x[0], f[1] = f[0];
            x[0] = at, f[0] = value;
        } else {
            *(at < x[0] ? &low : &high) = at;
            if (value <= f[1] || x[1] == x[0]) {
                x[2] = x[1], f[2] = f[1];
                x[1] = at, f[1] = value;
            } else if (value <= f[2] || x[2] == x[0] || x[2] == x[1]) {
                x[2] = at, f[2] = value;
            }
        }
    }
    return (ru_line_point){x[0], f[0], l.calls};
}

ru_status ru_line_root(ru_line_fn fn, void *self, double low, double high, double x_tol,
                       uint32_t calls_max, ru_line_point *out, ru_err *err)
{
    uint32_t calls = 2;
    double a = low, b = high, f_a = fn(self, a), f_b = fn(self, b);
    if (!(f_a <= 0 && f_b >= 0) && !(f_a >= 0 && f_b <= 0)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "no root between %g and %g: the values are %g and %g",
                       low, high, f_a, f_b);
    }
    /* b is the best so far, c the end on the other side, a where b was before. */
    double c = a, f_c = f_a, step = b - a, before = step;
    while (calls < calls_max && f_b != 0) {
        if ((f_b > 0) == (f_c > 0)) {
            c = a, f_c = f_a;
            step = before = b - a;
        }
        if (fabs(f_c) < fabs(f_b)) {
            a = b, b = c, c = a;
            f_a = f_b, f_b = f_c, f_c = f_a;
        }
        double tol = 2.3e-16 * fabs(b) * 2 + 0.5 * x_tol, half = 0.5 * (c - b);
        if (fabs(half) <= tol) {
            break;
        }
        double p = 0, q = 0;
        if (fabs(before) >= tol && fabs(f_a) > fabs(f_b)) {
            double s = f_b / f_a, t = f_a / f_c, u = f_b / f_c;
            p = a == c ? 2 * half * s : s * (2 * half * t * (t - u) - (b - a) * (u - 1));
            q = a == c ? 1 - s : (t - 1) * (u - 1) * (s - 1);
            q = p > 0 ? -q : q;
            p = fabs(p);
        }
        bool fast = p > 0 && 2 * p < 3 * half * q - fabs(tol * q) && 2 * p < fabs(before * q);
        before = fast ? step : half;
        step = fast ? p / q : half;
        a = b, f_a = f_b;
        b += fabs(step) > tol ? step : half > 0 ? tol : -tol;
        f_b = fn(self, b);
        calls++;
    }
    *out = (ru_line_point){b, f_b, calls};
    return RU_OK;
}
