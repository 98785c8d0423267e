/* Small dense algebra: products, LU and Cholesky solves, inverse, log-determinant, matrix
 * exponential. Matrices are row-major arrays of double without gaps; everything is plain loops in
 * one written order, so that two machines give the same bits.
 *
 * Meant for up to a few hundred rows. Source: golub-vanloan-2013 sec 3.4, 4.2, 11.3.
 * Thread: any, pure. */
#ifndef RU_COST_DENSE_H
#define RU_COST_DENSE_H

#include "base/arena.h"

/* into = a b. Shape: a [m, k], b [k, n], into [m, n], no overlap. */
void ru_dense_mul(const double *a, const double *b, uint32_t m, uint32_t k, uint32_t n,
                  double *into);
/* y = x a and y = a x. Shape: a [m, n]; no overlap. */
void ru_dense_row_mul(const double *x, const double *a, uint32_t m, uint32_t n, double *y);
void ru_dense_mul_col(const double *a, const double *x, uint32_t m, uint32_t n, double *y);
double ru_dense_dot(const double *a, const double *b, uint32_t n);

/* LU with row exchange, in place of `a`. Shape: a [n, n], perm [n] (row k changed places with
 * perm[k]).
 * Errors: RU_E_INFEASIBLE when the matrix is singular or holds what is not a number. */
RU_MUST_USE ru_status ru_dense_lu(double *a, uint32_t n, uint32_t *perm, ru_err *err);
/* Solve a x = b, and x a = b, in place of b [n] by what ru_dense_lu left. */
void ru_dense_lu_solve(const double *lu, const uint32_t *perm, uint32_t n, double *b);
void ru_dense_lu_solve_left(const double *lu, const uint32_t *perm, uint32_t n, double *b);

/* Cholesky a = L L' in place: L in the lower half (the upper is left alone). `ld`: distance of two
 * rows, >= n. Errors: RU_E_INFEASIBLE when `a` is not positive definite. */
RU_MUST_USE ru_status ru_chol(double *a, uint32_t n, uint32_t ld, ru_err *err);
/* Row n of L for the bordered matrix [a b; b' c]: `row` [n + 1] holds b then c before, the row of L
 * after. Cost: O(n^2). Errors: as ru_chol; `row` is spoiled then. */
RU_MUST_USE ru_status ru_chol_append(const double *l, uint32_t n, uint32_t ld, double *row,
                                     ru_err *err);
/* In place of b [n]: L y = b; L' y = b; L L' y = b. */
void ru_chol_forward(const double *l, uint32_t n, uint32_t ld, double *b);
void ru_chol_backward(const double *l, uint32_t n, uint32_t ld, double *b);
void ru_chol_solve(const double *l, uint32_t n, uint32_t ld, double *b);
/* log det(L L'). */
double ru_chol_log_det(const double *l, uint32_t n, uint32_t ld);
/* Inverse of L L', symmetric. Shape: into [n, n]. */
void ru_chol_inverse(const double *l, uint32_t n, uint32_t ld, double *into);

#endif
