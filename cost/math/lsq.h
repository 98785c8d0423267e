/* Linear least squares:  minimise  sum_i w_i (b_i - a_i x)^2 + sum_j ridge_j x_j^2
 *                        subject to  c x = d  and  x_j >= 0 for chosen columns.
 *
 * Without bounds by Householder QR with column exchange: dependent columns get 0 and `rank` says
 * how many are not. Equalities by elimination of as many columns. Bounds by the active-set method
 * of Lawson and Hanson, extended by the multipliers of the equalities.
 *
 * Source: lawson-hanson-1974 ch. 20 to 23. Thread: any, pure. */
#ifndef RU_COST_LSQ_H
#define RU_COST_LSQ_H

#include "base/arena.h"

typedef struct ru_lsq_in {
    const double *a;      /* [m, n] one row an observation */
    const double *b;      /* [m] */
    const double *weight; /* [m] >= 0; NULL: all 1 */
    uint32_t m, n;        /* n >= 1 */
    double ridge;         /* of every column; >= 0 */
    const double *ridges; /* [n] of each column instead of `ridge`; NULL: none */
    bool nonneg;          /* x >= 0 */
    const bool *any_sign; /* [n] columns that may be negative all the same; NULL: none */
    const double *c, *d;  /* [n_eq, n], [n_eq] equalities; NULL when n_eq is 0 */
    uint32_t n_eq;        /* <= n */
} ru_lsq_in;

typedef struct ru_lsq_fit {
    double *x;        /* [n] */
    double *residual; /* [m] b - a x, not weighted */
    uint32_t n, m;    /* of the input */
    uint32_t rank;    /* columns that are free: neither dependent, nor at a bound, nor eliminated */
    double squares;   /* sum of weighted squared residuals, without the ridge */
    double variance;  /* squares / (m - rank) of weight 1; 0 when m <= rank */
    double *covariance; /* [n, n] of x (ridge as prior); rows of columns that are not free are 0 */
} ru_lsq_fit;

/* Owner: x, residual and covariance live in `out`; `scratch` is left as it was.
 * Cost:  O(m n^2); with bounds that for each column that enters, about n times in practice.
 * Errors: RU_E_ARG for sizes, weights and numbers outside the contract, RU_E_INFEASIBLE when the
 * equalities (with the bounds) contradict each other, RU_E_LIMIT when an arena is full. */
RU_MUST_USE ru_status ru_lsq_solve(const ru_lsq_in *in, ru_arena *out, ru_arena *scratch,
                                   ru_lsq_fit *fit, ru_err *err);

#endif
