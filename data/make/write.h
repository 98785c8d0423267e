/* Writing data sets as ordinary files: what `rubato data make` and `rubato data import` share.
 *
 * Thread: any; one set of files belongs to one call. */
#ifndef RU_DATA_WRITE_H
#define RU_DATA_WRITE_H

#include "data/reader.h"

/* Buffered writing of one file; appears under its name when finished. Accepts zeroed memory. */
typedef struct rui_file {
    struct ru_out *out;
    uint8_t *buf;
    int64_t n;       /* bytes in buf */
    int64_t written; /* in all */
} rui_file;

RU_MUST_USE ru_status rui_file_open(rui_file *f, const char *dir, const char *name, ru_err *err);
RU_MUST_USE ru_status rui_file_put(rui_file *f, const void *data, int64_t size_bytes, ru_err *err);
RU_MUST_USE ru_status rui_file_finish(rui_file *f, ru_err *err);
void rui_file_close(rui_file *f); /* unfinished: removes it */

/* One array as dir/name in npy form. */
RU_MUST_USE ru_status rui_npy_save(const char *dir, const char *name, ru_dtype dtype, uint32_t rank,
                                   const int64_t *dims, const void *data, ru_err *err);
/* Samples first .. first+n-1 of `d` as files called PREFIX... in `dir`. */
typedef struct rui_write_job {
    ru_dataset *d;
    int64_t first, n;
    const char *dir, *prefix;
    uint32_t threads; /* reading ones; 0: 2 */
} rui_write_job;

typedef struct rui_writer {
    const char *name;
    const char *help;
    ru_status (*write)(const rui_write_job *job, ru_err *err);
} rui_writer;

/* X(name, help): the formats that can be written; rui_write_<name>. */
#define RUI_WRITER_LIST(X)                                \
    X(idx, "PREFIX-images and PREFIX-labels (u8 or f32)") \
    X(npy, "PREFIX-FIELD.npy for each field")             \
    X(csv, "PREFIX.csv, one line per sample")             \
    X(libsvm, "PREFIX.svm, elements that are not zero")   \
    X(images, "PREFIX/CLASS/NUMBER.png")                  \
    X(packed, "PREFIX.pack, Rubato's own format: one record per sample, with a checksum")

#define RUI_X(name, help) ru_status rui_write_##name(const rui_write_job *job, ru_err *err);
RUI_WRITER_LIST(RUI_X)
#undef RUI_X

const rui_writer *rui_writer_find(const char *name);
const rui_writer *rui_writer_at(uint32_t k); /* NULL past the end */

/* Calls `each` for every batch of the job in order. */
RU_MUST_USE ru_status rui_write_batches(const rui_write_job *job,
                                        ru_status (*each)(void *self, const ru_batch *b,
                                                          ru_err *err),
                                        void *self, ru_err *err);

#endif
