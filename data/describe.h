/* What is in a data set: figures and a look at a few samples, as text or as JSON.
 *
 * Thread: any. */
#ifndef RU_DATA_DESCRIBE_H
#define RU_DATA_DESCRIBE_H

#include "base/str.h"
#include "data/reader.h"

typedef struct ru_describe_options {
    int64_t samples; /* shown; 0: 3, -1: none */
    int64_t scan;    /* samples looked at for ranges and classes; 0: 10000 */
    bool json;
} ru_describe_options;

/* Append the description of `d` to `out`. Errors: those of reading. */
RU_MUST_USE ru_status ru_data_describe(const ru_dataset *d, const ru_describe_options *opt,
                                       ru_text *out, ru_err *err);

/* Append one sample as `rubato data info` shows it: class, then a picture in letters, text, or its
 * first numbers. Errors: those of reading. */
RU_MUST_USE ru_status ru_data_show(const ru_dataset *d, int64_t index, ru_text *out, ru_err *err);

#endif
