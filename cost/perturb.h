/* What a perturbation of the parameters costs, in iterations.
 *
 *   x_k parameters, x* limit, |f(x) - x*| <= c |x - x*|;  y_{k+1} = f(y_k + d_k), d_k = 0 after T
 *   |y_k - x*| <= c^k (|x_0 - x*| + D_T),   D_T = sum_{l <= T} c^-l |d_l|
 *   extra iterations <= ln(1 + D_T / |x_0 - x*|) / ln(1/c)
 *
 * Only the norm of a perturbation matters, and later ones cost more. A stochastic f: norms in
 * expectation.
 *
 * Source: qiao-2019 (SCAR); the derivation is ours. Thread: any, pure. */
#ifndef RU_COST_PERTURB_H
#define RU_COST_PERTURB_H

#include "base/status.h"

/* Bound on the extra iterations of one perturbation of norm `d` before iteration `at`; `begin`:
 * |x_0 - x*| > 0; 0 < c < 1. Large exponents stay finite: computed in logarithms. */
double ru_perturb_iterations(double c, double begin, double at, double d);

#endif
