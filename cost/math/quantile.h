/* Order statistics and fits to them: quantiles of samples, linear quantile regression,
 * conformal bounds.
 *
 * Source: hyndman-fan-1996 (types of quantiles); portnoy-koenker-1997 (interior point for quantile
 * regression); vovk-2005 (conformal). Thread: any, pure. */
#ifndef RU_COST_QUANTILE_H
#define RU_COST_QUANTILE_H

#include "base/arena.h"

typedef enum ru_quantile_kind {
    RU_QUANTILE_LINEAR, /* type 7: between the neighbours of 1 + (n-1) q */
    RU_QUANTILE_LOWER,  /* the sample at or below that place */
    RU_QUANTILE_HIGHER, /* the sample at or above it */
    RU_QUANTILE_RANK,   /* type 1: the least sample with at least a share q of all at or below it */
} ru_quantile_kind;

/* Rising order, in place, by heap sort: no memory. NaN is a bug of the caller. */
void ru_sort_f64(double *v, uint32_t n);
/* Order of `key` [n] in `order` [n] (indexes 0..n-1); ties keep the order of indexes. */
void ru_sort_order_f64(const double *key, uint32_t *order, uint32_t n);

/* Quantile of a rising sample. 0 <= q <= 1, n >= 1. */
double ru_quantile_sorted(const double *v, uint32_t n, double q, ru_quantile_kind kind);
/* The same of a sample in any order, which it changes: O(n) in place of a sort. */
double ru_quantile_select(double *v, uint32_t n, double q, ru_quantile_kind kind);
/* The same, unchanged. Errors: RU_E_ARG (empty, NaN, q), RU_E_LIMIT (scratch). */
RU_MUST_USE ru_status ru_quantile(const double *v, uint32_t n, double q, ru_quantile_kind kind,
                                  ru_arena *scratch, double *out, ru_err *err);

typedef struct ru_quantile_regress_in {
    const double *a;      /* [m, n] */
    const double *b;      /* [m] */
    const double *weight; /* [m] >= 0; NULL: all 1 */
    uint32_t m, n;        /* 1 <= n <= 32, m >= n */
    double q;             /* 0 < q < 1 */
    const bool *nonneg;   /* [n] columns with x >= 0; NULL: none */
} ru_quantile_regress_in;

typedef struct ru_quantile_fit {
    double *x;   /* [n] */
    double loss; /* sum_i w_i (u_i (q - [u_i < 0])), u = b - a x */
    double gap;  /* loss - (a lower bound of it by the dual), >= 0 up to rounding */
    uint32_t iterations;
} ru_quantile_fit;

/* Linear quantile regression: the least loss. Owner: x lives in `out`.
 * Cost: 10 to 40 iterations of O(m n^2). Errors: RU_E_ARG; RU_E_INFEASIBLE when the columns are
 * dependent; RU_E_LIMIT (arenas). */
RU_MUST_USE ru_status ru_quantile_regress(const ru_quantile_regress_in *in, ru_arena *out,
                                          ru_arena *scratch, ru_quantile_fit *fit, ru_err *err);

/* Split-conformal bound: the ceil((n + 1) (1 - miss))-th smallest score, INFINITY when that is
 * above n. A new exchangeable score is at most that with probability >= 1 - miss. */
RU_MUST_USE ru_status ru_conformal(const double *scores, uint32_t n, double miss, ru_arena *scratch,
                                   double *out, ru_err *err);
/* Online form: the next level `miss` to ask for after one answer that was missed or not; stays in
 * (0, 1). Source: gibbs-candes-2021. */
double ru_conformal_next(double miss_now, double miss_goal, bool missed, double rate);

#endif
