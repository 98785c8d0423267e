/* Folds records into facts by name: count, duration, bytes.
 *
 * Thread: any; results are plain data in the caller's arena. */
#ifndef RU_TRACE_FOLD_H
#define RU_TRACE_FOLD_H

#include "trace/read.h"
#include "world/facts.h"

RU_API_BEGIN

/* The spans of one name. */
typedef struct ru_span_fact {
    const char *category, *name;
    ru_fact took;     /* of one span; its age is that of the newest at the trace's end */
    int64_t total_ns; /* time inside, children included */
    int64_t self_ns;  /* without spans nested in it on the same thread; 0 for asynchronous ones */
    int64_t value_total;                         /* sum of the records' values (bytes) */
    int64_t predicted_n;                         /* spans that carried a prediction */
    int64_t predicted_total_ns, actual_total_ns; /* of those */
} ru_span_fact;

typedef struct ru_span_facts {
    const ru_span_fact *facts; /* [n] largest self_ns first, then category, then name */
    uint32_t n;
    int64_t wall_ns; /* from the first start to the last end */
    int64_t busy_ns; /* of the busiest thread: time inside any span that is not a wait */
    int64_t wait_ns; /* of that thread: time inside waits */
} ru_span_facts;

/* Fold the spans of all threads. Cost: O(n log n). Errors: RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_trace_fold(const ru_trace *t, ru_arena *arena, ru_span_facts *out,
                                    ru_err *err);

/* Table for people: one line per fact, at most `rows_max` (0: all), in `arena`. */
const char *ru_span_facts_print(const ru_span_facts *f, uint32_t rows_max, ru_arena *arena);

RU_API_END

#endif
