/* Special functions: error function, normal, gamma, beta and what tests of statistics need of them.
 *
 * Built on ru_math_log and ru_math_exp, so that every machine gives the same bits. Relative error
 * below 1e-12 of results above 1e-290; of ru_beta_inc and what stands on it 1e-15 times the larger
 * parameter when that is more (norm_test.c holds values).
 *
 * Source: abramowitz-stegun-1964 ch. 6, 7, 26.
 * Thread: any, pure. */
#ifndef RU_COST_NORM_H
#define RU_COST_NORM_H

#include "base/status.h"

/* ru_math_exp and _log for all numbers: exp under- and overflows to 0 and INFINITY, log(0) is
 * -INFINITY. NaN stays NaN. */
double ru_num_exp(double x);
double ru_num_log(double x); /* x >= 0 */

double ru_erfc(double x); /* 1 - erf, without cancellation */

double ru_norm_pdf(double x);
double ru_norm_cdf(double x);
double ru_norm_quantile(double p); /* 0 <= p <= 1; -INFINITY and INFINITY at the ends */

double ru_gamma_log(double x);         /* log of the gamma function; x > 0 */
double ru_gamma_p(double a, double x); /* regularised lower incomplete gamma; a > 0, x >= 0 */
double ru_gamma_q(double a, double x); /* 1 - that, without cancellation */
double ru_beta_inc(double a, double b, double x); /* regularised incomplete beta; 0 <= x <= 1 */

/* P(T <= t) of Student's law, and its inverse. */
double ru_student_cdf(double freedom, double t);
double ru_student_quantile(double freedom, double p);

#endif
