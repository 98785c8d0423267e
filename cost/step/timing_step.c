/* Whole steps from sums over ops. See timing.h. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cost/math/lsq.h"
#include "cost/math/trees.h"
#include "cost/step/timing.h"

enum { COLUMNS = 5, TRAITS = 7, SUMS_MIN = 3 };

static void columns_of(const ru_timing_step *s, double *x)
{
    x[0] = s->ops_s;
    x[1] = s->launches;
    x[2] = s->host_bytes;
    x[3] = 1;
    x[4] = s->param_bytes;
}

static double line_at(const ru_timing_step_model *m, const ru_timing_step *s)
{
    double x[COLUMNS], sum = 0;
    columns_of(s, x);
    for (uint32_t c = 0; c < COLUMNS; c++) {
        sum += m->theta[c] * x[c];
    }
    return sum;
}

static void traits_of(const ru_timing_step_model *m, const ru_timing_step *s, float *t)
{
    double line = line_at(m, s), ops = fmax(s->ops_s, 1e-9);
    t[0] = (float)ru_math_log(ops / fmax(s->launches, 1));
    t[1] = (float)ru_math_log(fmax(line, 1e-9));
    t[2] = (float)ru_math_log(1 + s->launches);
    t[3] = (float)ru_math_log(1 + s->host_bytes);
    t[4] = (float)ru_math_log(1 + s->param_bytes);
    t[5] = (float)ru_math_log(ops / fmax(line, 1e-9));
    t[6] = (float)ru_math_log((1 + s->host_bytes) / (1 + s->param_bytes));
}

static ru_status check(const ru_timing_step *steps, uint32_t n, ru_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const ru_timing_step *s = &steps[i];
        if (!(s->ops_s >= 0 && s->ops_s <= 1e9) || !(s->launches >= 0 && s->launches <= 1e12) ||
            !(s->host_bytes >= 0 && s->host_bytes <= 1e18) || s->devices < 1 ||
            !(s->param_bytes >= 0 && s->param_bytes <= 1e18) ||
            !(s->seconds >= 0 && s->seconds <= 1e9)) {
            return RU_FAIL(err, RU_E_ARG, "step %u takes %g s on %u devices, ops take %g s", i,
                           s->seconds, s->devices, s->ops_s);
        }
    }
    return RU_OK;
}

/* Least squares of n rows with `k` columns; `w` by time, as for ops. */
static ru_status squares(double *a, double *b, uint32_t n, uint32_t k, ru_arena *scratch, double *x,
                         ru_err *err)
{
    double scale[COLUMNS] = {0}, *w = RU_NEW(scratch, double, n);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        w[i] = 1 / fmax(b[i], 1e-4);
        for (uint32_t c = 0; c < k; c++) {
            scale[c] = fmax(scale[c], a[(size_t)i * k + c]);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < k; c++) {
            a[(size_t)i * k + c] /= scale[c] > 0 ? scale[c] : 1;
        }
    }
    const ru_lsq_in in = {
        .a = a, .b = b, .weight = w, .m = n, .n = k, .ridge = 1e-12, .nonneg = true};
    ru_lsq_fit fit;
    RU_TRY(ru_lsq_solve(&in, scratch, scratch, &fit, err));
    for (uint32_t c = 0; c < k; c++) {
        x[c] = scale[c] > 0 ? fit.x[c] / scale[c] : 0;
    }
    return RU_OK;
}

static ru_status boost(const ru_timing_step *steps, uint32_t n, const ru_solver *solver,
                       uint64_t seed, ru_arena *out, ru_arena *scratch, ru_timing_step_model *m,
                       ru_err *err)
{
    float *x = RU_NEW(scratch, float, (int64_t)n *TRAITS), *y = RU_NEW(scratch, float, n);
    if (x == NULL || y == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", n);
    }
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        double line = line_at(m, &steps[i]);
        if (steps[i].devices == 1 && line > 0 && steps[i].seconds > 0) {
            traits_of(m, &steps[i], x + (size_t)rows * TRAITS);
            y[rows++] = (float)ru_math_log(steps[i].seconds / line);
        }
    }
    const ru_trees_in t = {.x = x,
                           .y = y,
                           .m = rows,
                           .n = TRAITS,
                           .goal = RU_TREES_SQUARED,
                           .rounds = 150,
                           .depth = 4,
                           .leaf_weight_min = 5,
                           .seed = seed};
    RU_TRY(solver->trees(&t, out, &m->trees, err));
    m->has_trees = true;
    return RU_OK;
}

ru_status ru_timing_step_fit(const ru_timing_step *steps, uint32_t n, const ru_solver *solver,
                             uint64_t seed, ru_arena *out, ru_arena *scratch,
                             ru_timing_step_model *m, ru_err *err)
{
    RU_TRY(check(steps, n, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *a = RU_NEW(scratch, double, (int64_t)n *COLUMNS + 1);
    double *b = RU_NEW(scratch, double, n + 1);
    if (a == NULL || b == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", n);
    }
    ru_timing_step_model model = {.theta = {1}};
    uint32_t ones = 0, more = 0;
    for (uint32_t i = 0; i < n; i++) {
        ones += steps[i].devices == 1 ? 1 : 0;
    }
    uint32_t k = ones >= RU_TIMING_ROWS_MIN ? COLUMNS : 1;
    for (uint32_t i = 0, row = 0; i < n; i++) {
        double x[COLUMNS];
        columns_of(&steps[i], x);
        if (steps[i].devices == 1) {
            memcpy(a + (size_t)row * k, x, k * sizeof *x);
            b[row++] = steps[i].seconds;
        }
    }
    if (ones > 0) {
        RU_TRY(squares(a, b, ones, k, scratch, model.theta, err));
    }
    if (solver != NULL && ones >= RU_TIMING_ROWS_MIN) {
        RU_TRY(boost(steps, n, solver, seed, out, scratch, &model, err));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (steps[i].devices > 1) {
            double d = steps[i].devices;
            a[2 * (size_t)more] = 2 * (d - 1);
            a[2 * (size_t)more + 1] = 2 * (d - 1) / d * steps[i].param_bytes;
            b[more++] = fmax(steps[i].seconds - ru_timing_step_at(&model, &steps[i]), 0);
        }
    }
    if (more >= SUMS_MIN) {
        double x[2];
        RU_TRY(squares(a, b, more, 2, scratch, x, err));
        model.sums = true;
        model.round_s = x[0];
        model.byte_s = x[1];
    }
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    *m = model;
    return RU_OK;
}

double ru_timing_step_at(const ru_timing_step_model *m, const ru_timing_step *s)
{
    double line = line_at(m, s);
    if (!m->has_trees || line <= 0) {
        return line;
    }
    float traits[TRAITS];
    traits_of(m, s, traits);
    double log = (double)ru_trees_value(&m->trees, traits);
    return line * ru_math_exp(fmin(fmax(log, -3.0), 3.0));
}

double ru_timing_sum_at(const ru_timing_step_model *m, const ru_timing_step *s)
{
    double d = s->devices;
    return m->round_s * 2 * (d - 1) + m->byte_s * 2 * (d - 1) / d * s->param_bytes;
}
