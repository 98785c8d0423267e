/* Parts of the text formats (csv, libsvm): growable buffers, fast numbers, labels of a column.
 *
 * Thread: one thread at a time. */
#ifndef RU_DATA_TABLE_H
#define RU_DATA_TABLE_H

#include "base/str.h"
#include "data/data_impl.h"

/* A growable array on the heap; freed by its owner. */
typedef struct rui_buf {
    void *p;
    int64_t n, room; /* bytes */
} rui_buf;

/* Room for `bytes` more at the end, which then counts as used; NULL when out of memory. */
void *rui_buf_push(rui_buf *b, int64_t bytes);
/* Give back what growth took too much. */
void rui_buf_fit(rui_buf *b);
void rui_buf_free(rui_buf *b);

/* A finite decimal number filling the whole slice: rounded as strtod rounds. */
bool rui_number(const char *p, int64_t n, double *out);

/* The label texts of all rows, resolved together when all are known. */
typedef struct rui_label {
    const char *p; /* view of the file's text */
    int32_t n;
    uint32_t file;
    int64_t line;
} rui_label;

typedef struct rui_labels {
    rui_buf rows;             /* rui_label each */
    const char *const *paths; /* by rui_label.file */
} rui_labels;

RU_MUST_USE ru_status rui_labels_add(rui_labels *l, ru_str text, uint32_t file, int64_t line,
                                     ru_err *err);

/* What the labels are, in this order: names when class names are given or a label is not a number;
 * class numbers when all are integers >= 0 (-1 and 1 count as 0 and 1) and written so, or integers
 * of any notation when `classes` is set; else numbers (regression). Adds field "y"; *values gets 4
 * bytes a row, i32 classes or f32 numbers (d->y_field tells), in d's arena. Errors: RU_E_DATA with
 * file and line. */
RU_MUST_USE ru_status rui_labels_resolve(ru_dataset *d, const ru_data_options *opt,
                                         const rui_labels *l, const void **values, ru_err *err);
/* Write row `index` of the resolved labels. */
void rui_label_put(const ru_dataset *d, const void *values, int64_t index, void *into);

#endif
