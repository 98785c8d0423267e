#include "cost/perturb.h"

#include <math.h>

#include "cost/norm.h"

double ru_perturb_iterations(double c, double begin, double at, double d)
{
    if (!(d > 0)) {
        return 0;
    }
    /* ln(1 + e^z), z = ln(c^-at d / begin): z itself where e^z would overflow. */
    double z = ru_num_log(d) - ru_num_log(begin) - at * ru_num_log(c);
    double grown = z > 40 ? z : ru_num_log(1 + ru_num_exp(z));
    return grown / -ru_num_log(c);
}

double ru_perturb_noise(double c, double d)
{
    return c * d / (1 - c);
}

ru_status ru_perturb_rate(const double *loss, uint32_t n, double least, double *c, ru_err *err)
{
    double sk = 0, sy = 0, skk = 0, sky = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (!(loss[k] > least) || !isfinite(loss[k])) {
            return RU_FAIL(err, RU_E_ARG, "loss %u is %g, expected above the least one, %g", k,
                           loss[k], least);
        }
        double y = 0.5 * ru_num_log(loss[k] - least);
        sk += k;
        sy += y;
        skk += (double)k * k;
        sky += k * y;
    }
    if (n < 3) {
        return RU_FAIL(err, RU_E_ARG, "%u losses, expected at least 3", n);
    }
    double slope = (n * sky - sk * sy) / (n * skk - sk * sk);
    if (!(slope < 0)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the losses do not fall: no rate of convergence, no bound");
    }
    *c = ru_num_exp(slope);
    return RU_OK;
}
