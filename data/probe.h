/* What reading samples of a dataset takes, and keeping them on a disk would save: measured on a few
 * dozen samples, spread over the dataset, in the way streams read them.
 *
 * Thread: one, before streams read the dataset. */
#ifndef RU_DATA_PROBE_H
#define RU_DATA_PROBE_H

#include "data/reader.h"

/* Means of one sample. */
typedef struct ru_data_probe {
    double fetch_s;        /* from its files, many at one time */
    double decode_s;       /* of bytes in memory, on one thread */
    double unpack_s;       /* of a decoded sample that is kept, on one thread */
    int64_t bytes;         /* that RU_CACHE_BYTES keeps; 0: it can keep nothing */
    int64_t decoded_bytes; /* the same of RU_CACHE_DECODED */
} ru_data_probe;

/* Errors: those of reading; RU_E_MEM. */
RU_MUST_USE ru_status ru_data_probe_take(ru_dataset *d, ru_data_probe *out, ru_err *err);

/* Keep samples from now on (opt->cache), of a dataset that was opened with the same options and
 * RU_CACHE_NONE. Errors: those of the cache. */
RU_MUST_USE ru_status ru_dataset_keep(ru_dataset *d, const ru_data_options *opt, ru_err *err);

#endif
