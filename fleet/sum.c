#include "fleet/sum.h"

#include <math.h>
#include <string.h>

ru_status ru_fed_sum_open(int64_t count, ru_arena *arena, ru_fed_sum *out, ru_err *err)
{
    *out = (ru_fed_sum){.at = RU_NEW(arena, double, count), .count = count};
    return out->at != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the sum of %lld values", (long long)count);
}

void ru_fed_sum_begin(ru_fed_sum *s)
{
    memset(s->at, 0, (size_t)s->count * sizeof *s->at);
    s->weight = 0;
    s->n = 0;
}

ru_status ru_fed_sum_add(ru_fed_sum *s, const float *values, double weight, ru_err *err)
{
    for (int64_t i = 0; i < s->count; i++) {
        if (!isfinite(values[i])) {
            return RU_FAIL(err, RU_E_DATA, "value %lld of the update is not finite", (long long)i);
        }
    }
    for (int64_t i = 0; i < s->count; i++) {
        s->at[i] += weight * (double)values[i];
    }
    s->weight += weight;
    s->n++;
    return RU_OK;
}

void ru_fed_sum_mean(const ru_fed_sum *s, float *into)
{
    RU_CHECK(s->n > 0);
    for (int64_t i = 0; i < s->count; i++) {
        into[i] = (float)(s->at[i] / s->weight);
    }
}
