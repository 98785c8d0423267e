/* A linear program with whole-number columns, as plain arrays: policies formulate and decode it,
 * solve/ solves it.
 *
 *   minimise (maximise)  constant + cost x
 *   subject to           row_low <= a x <= row_high,  low <= x <= high,  x_j whole where integer[j]
 *
 * -INFINITY and INFINITY stand for "no bound". Rows are sparse: row i holds the terms
 * row_at[i] .. row_at[i + 1] - 1. Thread: any. */
#ifndef RU_WORLD_MILP_H
#define RU_WORLD_MILP_H

#include "base/vec.h"

typedef struct ru_milp_rows {
    uint32_t n;
    const uint32_t *at;       /* [n + 1] at[0] = 0 */
    const uint32_t *col;      /* [at[n]] each column at most once in a row */
    const double *coef;       /* [at[n]] */
    const double *low, *high; /* [n] */
} ru_milp_rows;

typedef struct ru_milp {
    bool maximise;
    uint32_t n_cols;
    double constant;
    const double *cost;       /* [n_cols] */
    const double *low, *high; /* [n_cols] */
    const uint8_t *integer;   /* [n_cols] 1: whole numbers only; NULL: none */
    ru_milp_rows rows;
} ru_milp;

/* Sizes, indexes, bounds and numbers as above? RU_E_ARG names the first that is not. */
RU_MUST_USE ru_status ru_milp_check(const ru_milp *p, ru_err *err);
double ru_milp_value(const ru_milp *p, const double *x);
/* Does x keep bounds, rows and wholeness within `tol` (relative to 1 + |bound|)? RU_E_INFEASIBLE
 * names the first that it breaks. */
RU_MUST_USE ru_status ru_milp_feasible(const ru_milp *p, const double *x, double tol, ru_err *err);

/* -- formulating: columns and rows one after another, then ru_milp_done ------------------------ */

RU_VEC(rui_milp_f64s, double)
RU_VEC(rui_milp_u32s, uint32_t)
RU_VEC(rui_milp_u8s, uint8_t)

typedef struct ru_milp_builder {
    ru_arena *arena;
    bool full; /* the arena was: ru_milp_done says so */
    rui_milp_f64s cost, low, high, row_low, row_high, coef;
    rui_milp_u8s integer;
    rui_milp_u32s row_at, col;
} ru_milp_builder;

ru_milp_builder ru_milp_build(ru_arena *arena);
/* Index of the new column or row. Terms go to the row that was opened last; a column may be named
 * again: the coefficients add up in ru_milp_done. */
uint32_t ru_milp_col(ru_milp_builder *b, double cost, double low, double high, bool integer);
uint32_t ru_milp_row(ru_milp_builder *b, double low, double high);
void ru_milp_term(ru_milp_builder *b, uint32_t col, double coef);
/* The program; checked. Owner: arrays in the builder's arena. Errors: RU_E_LIMIT, RU_E_ARG. */
RU_MUST_USE ru_status ru_milp_done(ru_milp_builder *b, bool maximise, ru_milp *out, ru_err *err);
/* The rows alone, for ru_solve_lazy: columns are those of another program. */
RU_MUST_USE ru_status ru_milp_rows_done(ru_milp_builder *b, ru_milp_rows *out, ru_err *err);

#endif
