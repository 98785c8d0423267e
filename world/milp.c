/* Linear programs with whole-number columns: formulating and checking. See milp.h. */
#include "world/milp.h"

#include <math.h>

ru_milp_builder ru_milp_build(ru_arena *arena)
{
    return (ru_milp_builder){.arena = arena};
}

static void put_f64(ru_milp_builder *b, rui_milp_f64s *v, double x)
{
    double *at = rui_milp_f64s_push(v, b->arena);
    b->full = b->full || at == NULL;
    if (at != NULL) {
        *at = x;
    }
}

static void put_u32(ru_milp_builder *b, rui_milp_u32s *v, uint32_t x)
{
    uint32_t *at = rui_milp_u32s_push(v, b->arena);
    b->full = b->full || at == NULL;
    if (at != NULL) {
        *at = x;
    }
}

uint32_t ru_milp_col(ru_milp_builder *b, double cost, double low, double high, bool integer)
{
    uint32_t index = b->cost.n;
    put_f64(b, &b->cost, cost);
    put_f64(b, &b->low, low);
    put_f64(b, &b->high, high);
    uint8_t *at = rui_milp_u8s_push(&b->integer, b->arena);
    b->full = b->full || at == NULL;
    if (at != NULL) {
        *at = integer;
    }
    return index;
}

uint32_t ru_milp_row(ru_milp_builder *b, double low, double high)
{
    uint32_t index = b->row_low.n;
    put_u32(b, &b->row_at, b->col.n);
    put_f64(b, &b->row_low, low);
    put_f64(b, &b->row_high, high);
    return index;
}

void ru_milp_term(ru_milp_builder *b, uint32_t col, double coef)
{
    RU_CHECK(b->row_low.n > 0 || b->full);
    /* A row is short or its columns are new: a look back over the row finds the repeated. */
    uint32_t begin = b->row_at.n > 0 ? b->row_at.at[b->row_at.n - 1] : 0;
    for (uint32_t k = b->col.n; k-- > begin && !b->full;) {
        if (b->col.at[k] == col) {
            b->coef.at[k] += coef;
            return;
        }
    }
    put_u32(b, &b->col, col);
    put_f64(b, &b->coef, coef);
}

ru_status ru_milp_rows_done(ru_milp_builder *b, ru_milp_rows *out, ru_err *err)
{
    put_u32(b, &b->row_at, b->col.n);
    if (b->full) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a program of %u rows and %u terms",
                       b->row_low.n, b->col.n);
    }
    *out = (ru_milp_rows){b->row_low.n, b->row_at.at,  b->col.at,
                          b->coef.at,   b->row_low.at, b->row_high.at};
    return RU_OK;
}

ru_status ru_milp_done(ru_milp_builder *b, bool maximise, ru_milp *out, ru_err *err)
{
    ru_milp p = {.maximise = maximise,
                 .n_cols = b->cost.n,
                 .cost = b->cost.at,
                 .low = b->low.at,
                 .high = b->high.at,
                 .integer = b->integer.at};
    RU_TRY(ru_milp_rows_done(b, &p.rows, err));
    RU_TRY(ru_milp_check(&p, err));
    *out = p;
    return RU_OK;
}

static bool bounds_cross(double low, double high)
{
    return !(low <= high) || low == (double)INFINITY || high == -(double)INFINITY;
}

static ru_status check_rows(const ru_milp_rows *r, uint32_t n_cols, ru_err *err)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (bounds_cross(r->low[i], r->high[i])) {
            return RU_FAIL(err, RU_E_ARG, "row %u has the bounds %g and %g, which are not valid", i,
                           r->low[i], r->high[i]);
        }
        if (r->at[0] != 0 || r->at[i + 1] < r->at[i]) {
            return RU_FAIL(err, RU_E_ARG, "row %u ends at term %u, before it begins", i,
                           r->at[i + 1]);
        }
        for (uint32_t k = r->at[i]; k < r->at[i + 1]; k++) {
            if (r->col[k] >= n_cols || !isfinite(r->coef[k])) {
                return RU_FAIL(
                    err, RU_E_ARG,
                    "row %u has the coefficient %g for column %u of %u, which is not valid", i,
                    r->coef[k], r->col[k], n_cols);
            }
        }
    }
    return RU_OK;
}

ru_status ru_milp_check(const ru_milp *p, ru_err *err)
{
    if (p->n_cols == 0 || !isfinite(p->constant)) {
        return RU_FAIL(err, RU_E_ARG, "a program with %u columns and the constant %g is not valid",
                       p->n_cols, p->constant);
    }
    for (uint32_t j = 0; j < p->n_cols; j++) {
        if (!isfinite(p->cost[j]) || bounds_cross(p->low[j], p->high[j])) {
            return RU_FAIL(
                err, RU_E_ARG,
                "column %u has the cost %g and the bounds %g and %g, which are not valid", j,
                p->cost[j], p->low[j], p->high[j]);
        }
    }
    return check_rows(&p->rows, p->n_cols, err);
}

double ru_milp_value(const ru_milp *p, const double *x)
{
    double sum = p->constant;
    for (uint32_t j = 0; j < p->n_cols; j++) {
        sum += p->cost[j] * x[j];
    }
    return sum;
}

static bool outside(double v, double low, double high, double tol)
{
    double below = isinf(low) ? 0 : tol * (1 + fabs(low));
    double above = isinf(high) ? 0 : tol * (1 + fabs(high));
    return !(v >= low - below && v <= high + above);
}

ru_status ru_milp_feasible(const ru_milp *p, const double *x, double tol, ru_err *err)
{
    for (uint32_t j = 0; j < p->n_cols; j++) {
        if (outside(x[j], p->low[j], p->high[j], tol)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "column %u is %g, expected %g to %g", j, x[j],
                           p->low[j], p->high[j]);
        }
        if (p->integer != NULL && p->integer[j] && fabs(x[j] - round(x[j])) > tol) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "column %u is %g, expected an integer", j, x[j]);
        }
    }
    for (uint32_t i = 0; i < p->rows.n; i++) {
        double sum = 0;
        for (uint32_t k = p->rows.at[i]; k < p->rows.at[i + 1]; k++) {
            sum += p->rows.coef[k] * x[p->rows.col[k]];
        }
        if (outside(sum, p->rows.low[i], p->rows.high[i], tol)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "row %u is %g, expected %g to %g", i, sum,
                           p->rows.low[i], p->rows.high[i]);
        }
    }
    return RU_OK;
}
