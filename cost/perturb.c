#include "cost/perturb.h"

#include <math.h>

#include "cost/math/norm.h"

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
