/* Mean and std of a job: x becomes (x - mean) / std, the same for files, arrays and lines.
 *
 * Thread: any, no shared state. */
#ifndef RU_DATA_NORM_H
#define RU_DATA_NORM_H

#include "data/reader.h"

typedef struct ru_norm {
    float *sub, *mul;        /* [channels] x becomes (x - sub) * mul; NULL: stays */
    int64_t channels, inner; /* of x: [channels, inner] */
} ru_norm;

/* For samples of type `x`. Without mean and std in `opt`: x stays. Errors: RU_E_CONFIG when their
 * numbers do not fit x, with `where` before it. */
RU_MUST_USE ru_status ru_norm_open(const ru_data_options *opt, const ru_type *x, const char *where,
                                   ru_arena *arena, ru_norm *out, ru_err *err);
/* n samples, in place. */
void ru_norm_apply(const ru_norm *norm, float *x, int64_t n);

#endif
