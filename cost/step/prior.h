/* What lies behind measurements with errors, when many alike were measured: x = theta + an error
 * that is normal with a known deviation, each theta drawn from one law that nobody knows. The law
 * under which the measurements are likeliest is found on a grid by expectation and maximisation;
 * under it each theta has a mean and a variance. No shape is assumed: values in clusters are drawn
 * to their cluster, values that are spread evenly stay where they are.
 *
 * Source: kiefer-wolfowitz-1956, laird-1978. Thread: any, pure. */
#ifndef RU_COST_PRIOR_H
#define RU_COST_PRIOR_H

#include "base/arena.h"

enum { RU_PRIOR_GRID_MAX = 2048 };

/* Shape: x, mean [n] (may be one array). Returns the mean of the variances of theta in *variance.
 * Where x ranges over more than 2,048 deviations, or error is 0, the means are x.
 * Cost: O(n + 150 iterations of 31 range / error). Errors: RU_E_ARG, RU_E_LIMIT (scratch: 48 KiB).
 */
RU_MUST_USE ru_status ru_prior_means(const double *x, uint32_t n, double error, ru_arena *scratch,
                                     double *mean, double *variance, ru_err *err);

#endif
