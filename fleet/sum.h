/* The average of the updates of a round, as they come: one sum, never the updates themselves.
 *
 * Sums are f64, weights are samples, so the result does not depend on the order beyond the last
 * bits of f32. Cost: 8 bytes of memory for each value. Thread: one at a time. */
#ifndef RU_FLEET_SUM_H
#define RU_FLEET_SUM_H

#include "base/arena.h"

typedef struct ru_fed_sum {
    double *at; /* [count] */
    int64_t count;
    double weight; /* of all updates so far */
    uint32_t n;
} ru_fed_sum;

/* Errors: RU_E_MEM. Owner: memory in `arena`. */
RU_MUST_USE ru_status ru_fed_sum_open(int64_t count, ru_arena *arena, ru_fed_sum *out, ru_err *err);
void ru_fed_sum_begin(ru_fed_sum *s);
/* Adds nothing unless all of values [count] are finite. Errors: RU_E_DATA names the first that is
 * not. */
RU_MUST_USE ru_status ru_fed_sum_add(ru_fed_sum *s, const float *values, double weight,
                                     ru_err *err);
/* Mean of at least one update. */
void ru_fed_sum_mean(const ru_fed_sum *s, float *into);

#endif
