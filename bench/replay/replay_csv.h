/* Tables of published data: a head line, then rows; commas, or tabs when the head has some; no
 * quotes, plain or gzip. Thread: main. */
#ifndef RU_BENCH_REPLAY_CSV_H
#define RU_BENCH_REPLAY_CSV_H

#include "base/arena.h"

typedef struct rui_csv {
    const char *const *head;  /* [n_columns] */
    const char *const *cells; /* [n, n_columns] */
    uint32_t n, n_columns;    /* rows without the head */
} rui_csv;

/* NULL `path`: RU_E_MISSING. Short rows are padded with "". */
RU_MUST_USE ru_status rui_csv_read(const char *path, ru_arena *arena, rui_csv *out, ru_err *err);
/* By its name in the head; UINT32_MAX: there is none. */
uint32_t rui_csv_column(const rui_csv *c, const char *name);
const char *rui_csv_text(const rui_csv *c, uint32_t row, uint32_t column);
/* NaN where the cell holds no number. */
double rui_csv_f64(const rui_csv *c, uint32_t row, uint32_t column);

#endif
