/* How long something takes that comes again and again, such as the transfer of one gradient in each
 * step. A model tells a time from what is known at the moment (bytes in the queue, rate); what it
 * does not know is mostly the same each time: what overtakes, when the receiver is ready, how soon
 * processes wake up. Two ways to predict are followed side by side:
 *
 *   by the model, times what the measured times were of the modelled ones: exp(mean ln(t / model))
 *   by the times alone: exp(mean ln t)
 *
 * and whichever was closer lately counts. Means are exponential with a gain of 1/8, deviations with
 * 1/4, as round trips are followed; the first measurements count alike. A measurement moves a mean
 * by at most three deviations, so that one late wake-up is not taken for the new rule.
 *
 * Source: jacobson-1988 for the gains.
 * Thread: any, pure. */
#ifndef RU_COST_RECUR_H
#define RU_COST_RECUR_H

#include "base/status.h"

typedef struct ru_recur_track {
    double mean, off; /* of logarithms; mean of |distance from what was expected| */
    uint32_t n;
} ru_recur_track;

typedef struct ru_recur {
    ru_recur_track model, time;
} ru_recur; /* zero: nothing was measured */

/* It took took_ns > 0 where the model had told model_ns (0: nothing). */
void ru_recur_add(ru_recur *r, int64_t model_ns, int64_t took_ns);
/* model_ns (0: nothing) as it is when nothing was measured; 0: nobody knows. */
int64_t ru_recur_ns(const ru_recur *r, int64_t model_ns);

#endif
