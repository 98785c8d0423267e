/* Gaussian process: what a few measurements say about a smooth function, with its uncertainty.
 *
 *   y = mean + f(x) + noise,  k(x, x') = signal (1 + a + a^2/3) e^-a,  a = sqrt(5) |(x -
 * x')/length|
 *
 * Matern 5/2 with one length for each dimension (ARD). Inputs should be scaled to about [0,1] by
 * the caller; outputs are standardised here. Hyperparameters maximise the marginal likelihood with
 * weak log-normal priors that keep few points from extreme lengths; several starts by seed.
 *
 * Source: rasmussen-williams-2006 sec 2.2, 4.2, 5.4; jones-1998 (expected improvement);
 * gardner-2014 (with constraints). Thread: any, pure. */
#ifndef RU_COST_GP_H
#define RU_COST_GP_H

#include "base/arena.h"

enum { RU_GP_DIMS_MAX = 16, RU_GP_POINTS_MAX = 512 };

typedef struct ru_gp {
    uint32_t n, n_max, dims;
    double *x;    /* [n_max, dims] */
    double *y;    /* [n_max] as given */
    double *chol; /* [n_max, n_max] of the covariance, standardised */
    double *coef; /* [n_max] covariance^-1 (y - mean) / scale */
    double mean, scale;
    double signal, noise;          /* variances, of standardised y */
    double length[RU_GP_DIMS_MAX]; /* [dims] */
    double likelihood;             /* log marginal, standardised, priors left out */
} ru_gp;

typedef struct ru_gp_fit_options {
    uint64_t seed;
    uint32_t starts;    /* 0: 4 */
    uint32_t calls_max; /* of the likelihood, for each start; 0: 60 */
    double noise;       /* > 0: fixed variance of standardised y; 0: fitted, at least noise_min */
    double noise_min;   /* 0: 1e-6 */
    bool flat_prior;    /* no priors: the plain marginal likelihood */
} ru_gp_fit_options;

/* An empty process of up to n_max points. Owner: memory in `arena`. Errors: RU_E_ARG, RU_E_LIMIT.
 */
RU_MUST_USE ru_status ru_gp_init(ru_gp *gp, uint32_t dims, uint32_t n_max, ru_arena *arena,
                                 ru_err *err);

/* Add a measurement under the hyperparameters that stand. Shape: x [dims]. Cost: O(n^2).
 * Errors: RU_E_ARG (not finite), RU_E_LIMIT (n_max points). */
RU_MUST_USE ru_status ru_gp_add(ru_gp *gp, const double *x, double y, ru_err *err);

/* Choose the hyperparameters and standardise again. Needs 1 point; with fewer than 3 or equal
 * values the defaults stay. Cost: starts * calls_max * O(n^3 + n^2 dims). Errors: RU_E_LIMIT when
 * `scratch` is full. */
RU_MUST_USE ru_status ru_gp_fit(ru_gp *gp, const ru_gp_fit_options *opt, ru_arena *scratch,
                                ru_err *err);

/* Set them by hand (lengths [dims]; signal and noise of standardised y), keeping mean and scale. */
RU_MUST_USE ru_status ru_gp_set(ru_gp *gp, const double *lengths, double signal, double noise,
                                ru_err *err);

/* Mean and variance of f (without the noise) at x [dims], in the units of y. Cost: O(n^2). */
void ru_gp_predict(const ru_gp *gp, const double *x, double *mean, double *variance);

/* How much below `best` the value is expected to come; 0 <= result. */
double ru_expected_improvement(double mean, double variance, double best);
/* Probability that the value is at most `limit`. */
double ru_probability_below(double mean, double variance, double limit);
/* Expected improvement of `goal` at x, times the probability that each constraint k is at most
 * limits[k]. `best`: least goal among feasible points; INFINITY while there is none: then the
 * probability alone. */
double ru_expected_improvement_constrained(const ru_gp *goal, double best,
                                           const ru_gp *const *constraints, const double *limits,
                                           uint32_t n_constraints, const double *x);

#endif
