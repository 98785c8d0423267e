/* How far predictions were from what was then measured, by predictor.
 *
 *   coll   the time of a sum, by its plan; from its begin until its result is there
 *   link   the time of a transfer of at least 16 KiB, by the measured rate of the interface;
 * without the wait for its first byte
 *
 * Spans that carry a prediction count under their category.
 *
 * Source: ours. Thread: any; results are plain data in the caller's arena. */
#ifndef RU_TRACE_PREDICTED_H
#define RU_TRACE_PREDICTED_H

#include "trace/read.h"

RU_API_BEGIN

/* Errors are parts of the measured time. */
typedef struct ru_predictor_error {
    const char *predictor;
    int64_t n;
    double median, p95;      /* of |predicted - measured| / measured */
    double bias;             /* all predicted times together against all measured ones */
    double late_s, late95_s; /* measured - predicted: median and 95th percentile */
} ru_predictor_error;

enum { RU_PREDICTORS_MAX = 16 };

/* Of the records that ended in the last last_ns of their trace (0: of all). Shape: traces [n], out
 * [RU_PREDICTORS_MAX] by name; further predictors are left out. Cost: O(records log records).
 * Errors: RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_trace_predicted(const ru_trace *traces, uint32_t n, int64_t last_ns,
                                         ru_arena *arena, ru_predictor_error *out, uint32_t *n_out,
                                         ru_err *err);

RU_API_END

#endif
