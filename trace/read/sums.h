/* When the sums of a step were begun, and when their results were there: a typical step, from what
 * all ranks recorded.
 *
 * Source: ours. Thread: any; results are plain data in the caller's arena. */
#ifndef RU_TRACE_SUMS_H
#define RU_TRACE_SUMS_H

#include "trace/read/predicted.h"

/* One sum of every step; times are medians over steps, from the begin of the step on the rank that
 * began it first. */
typedef struct ru_sum_time {
    uint32_t sum; /* its number in the table of the job */
    int64_t size_bytes;
    int64_t n;         /* steps */
    int64_t ready_ns;  /* the last rank has begun it */
    int64_t arrive_ns; /* that rank has the result */
    int64_t said_ns;   /* when it was to have it, by its own prediction */
    const char *name;  /* as the newest was recorded, it ends with its algorithm; "": it has none */
    uint32_t last;     /* index of the trace that began it last most often */
    int64_t last_n;    /* so many times */
} ru_sum_time;

/* Sums that carry a prediction, by number; those of another size than the newest with their number
 * do not count, nor numbers that the last steps lack: they are of an earlier table. Shape: traces
 * [n], *out [*n_out]. Cost: O(records log records). Errors: RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_trace_sums(const ru_trace *traces, uint32_t n,
                                    const ru_trace_clocks *clocks, ru_arena *arena,
                                    ru_sum_time **out, uint32_t *n_out, ru_err *err);

#endif
