/* How far predictions were from what was then measured, by predictor. Each row compares a
 * prediction with exactly what it predicts:
 *
 *   link       of a transfer of at least 4 KiB, when it is sent: until its receiver has all of it.
 *              Measured from the call of the sender to the arrival of the last byte, both ends
 *              joined by their flow and on one clock. Transfers of which one end is not recorded,
 *              or whose clocks were not measured, do not count.
 *   link probe the same of the sums that measure the network before the first step.
 *   coll       of a sum, when a rank begins it: until its result is there, if all ranks have begun.
 *              Only the rank that began last knows that they have, so its prediction and its time
 *              count: one comparison for each sum.
 *   coll step  of all sums of a step: from the first that all ranks have begun until the last is
 *              predicted to end, and until it ended; of steps with at least two sums.
 *
 * Spans that carry a prediction count under their category.
 *
 * How far could a prediction be right at all? What repeats in every step with the same ends and the
 * same bytes takes another time each time. `repeat` is how far its measured times are from their
 * own median: the error of a predictor that knows the median of each before the run and nothing of
 * the moment.
 *
 * Source: ours. Thread: any; results are plain data in the caller's arena. */
#ifndef RU_TRACE_PREDICTED_H
#define RU_TRACE_PREDICTED_H

#include "trace/read/clock.h"
#include "trace/read/read.h"

/* Errors are parts of the measured time. */
typedef struct ru_predictor_error {
    const char *predictor;
    int64_t n;
    double median, p95;               /* of |predicted - measured| / measured */
    double bias;                      /* all predicted times together against all measured ones */
    double late_s, late95_s;          /* measured - predicted: median and 95th percentile */
    int64_t repeat_n;                 /* of them with four measurements of the same or more */
    double repeat_median, repeat_p95; /* of |median of the same - measured| / measured; 0 of none */
} ru_predictor_error;

/* One comparison. */
typedef struct ru_predicted {
    const char *predictor;
    double said_ns, took_ns; /* > 0 */
    uint64_t same;           /* equal for what repeats; 0: nothing is known to be the same */
    int64_t start_ns;        /* on the clock of all */
    int64_t size_bytes;      /* or count, as in the record */
    uint32_t trace;          /* of who predicted */
    uint32_t to;             /* of a transfer: 1 + the trace of its receiver; 0: something else */
    uint32_t step;
    uint32_t part;      /* of a sum: its number in the step */
    uint16_t label;     /* of a sum: its name in that trace, 0: none */
    uint8_t chan_class; /* of a transfer or a sum */
} ru_predicted;

enum { RU_PREDICTORS_MAX = 16 };

/* All comparisons of the records that began in the last last_ns of their trace (0: of all), in no
 * order. Shape: traces [n], `clocks` as ru_trace_align made them, *out [*n_out] in the arena.
 * Cost: O(records log records). Errors: RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_trace_compare(const ru_trace *traces, uint32_t n,
                                       const ru_trace_clocks *clocks, int64_t last_ns,
                                       ru_arena *arena, ru_predicted **out, int64_t *n_out,
                                       ru_err *err);

/* Errors of comparisons by the name of their predictor, sorted by it; further names than max are
 * left out. Shape: all [n], which is sorted, out [max]. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_predicted_errors(ru_predicted *all, int64_t n, ru_arena *arena,
                                          ru_predictor_error *out, uint32_t max, uint32_t *n_out,
                                          ru_err *err);

/* Both: out [RU_PREDICTORS_MAX]. */
RU_MUST_USE ru_status ru_trace_predicted(const ru_trace *traces, uint32_t n,
                                         const ru_trace_clocks *clocks, int64_t last_ns,
                                         ru_arena *arena, ru_predictor_error *out, uint32_t *n_out,
                                         ru_err *err);

#endif
