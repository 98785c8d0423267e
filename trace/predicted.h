/* How far predictions were from what was then measured, by predictor. Each row compares a
 * prediction with exactly what it predicts:
 *
 *   link       of a transfer of at least 16 KiB, when it is sent: until its receiver has all of it.
 *              Measured from the call of the sender to the arrival of the last byte, both ends
 *              joined by their flow and on one clock. Transfers of which one end is not recorded,
 *              or whose clocks were not measured, do not count.
 *   coll       of a sum, when a rank begins it: until its result is there, if all ranks have begun.
 *              Only the rank that began last knows that they have, so its prediction and its time
 *              count: one comparison for each sum.
 *   coll step  of all sums of a step: from the first that all ranks have begun until the last is
 *              predicted to end, and until it ended; of steps with at least two sums.
 *
 * Spans that carry a prediction count under their category.
 *
 * Source: ours. Thread: any; results are plain data in the caller's arena. */
#ifndef RU_TRACE_PREDICTED_H
#define RU_TRACE_PREDICTED_H

#include "trace/clock.h"
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

/* Of the records that began in the last last_ns of their trace (0: of all). Shape: traces [n],
 * `clocks` as ru_trace_align made them, out [RU_PREDICTORS_MAX] by name; further predictors are
 * left out. Cost: O(records log records). Errors: RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_trace_predicted(const ru_trace *traces, uint32_t n,
                                         const ru_trace_clocks *clocks, int64_t last_ns,
                                         ru_arena *arena, ru_predictor_error *out, uint32_t *n_out,
                                         ru_err *err);

RU_API_END

#endif
