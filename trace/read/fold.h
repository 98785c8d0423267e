/* Folds records into facts by name: count, duration, bytes.
 *
 * Thread: any; results are plain data in the caller's arena. */
#ifndef RU_TRACE_FOLD_H
#define RU_TRACE_FOLD_H

#include "trace/read/read.h"
#include "world/facts.h"

/* The spans of one name. */
typedef struct ru_span_fact {
    const char *category, *name;
    ru_fact took;     /* of one span; its age is that of the newest at the trace's end */
    int64_t total_ns; /* time inside, children included */
    int64_t self_ns;  /* without spans nested in it on the same thread; 0 for asynchronous ones and
                         for sleeps of an event loop */
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

/* What the records of one executable gave. */
typedef struct ru_op_fold {
    int64_t records;     /* of its steps */
    uint32_t n_measured; /* steps with at least one */
    int64_t last_ns;     /* end of the newest, monotonic; 0: none */
} ru_op_fold;

/* Set `took` of the op instances of one executable: `ops` [n] is its list (ru_exe_ops), `exe` the
 * low half of its id. The first run of a step counts only when it is the only one; ages are at the
 * trace's end. Steps without a record keep what they have.
 * Cost: O(records log records). Errors: RU_E_LIMIT when `scratch` is full. */
RU_MUST_USE ru_status ru_trace_fold_ops(const ru_trace *t, uint32_t exe, ru_op_fact *ops,
                                        uint32_t n, ru_arena *scratch, ru_op_fold *out,
                                        ru_err *err);
/* Names of what a worker records of its processor time: counters in nanoseconds since its start, of
 * all threads and of the one that sends and receives; keys of its bound, in nanoseconds. */
#define RU_TRACE_CPU_ALL  "processor time of the process"
#define RU_TRACE_CPU_LOOP "processor time of messages"
#define RU_TRACE_QUOTA    "processor quota"
#define RU_TRACE_PERIOD   "processor period"

/* The processor time of the worker whose trace this is, and what its steps took. false: no steps
 * beside the first ones. Cost: O(records). */
bool ru_trace_fold_processor(const ru_trace *t, ru_processor_fact *out);

/* Load about the last bytes_max bytes of a trace file, its newest records, and all names, clocks
 * and facts before them. Errors: those of ru_trace_load. */
RU_MUST_USE ru_status ru_trace_load_end(const char *path, int64_t bytes_max, ru_arena *arena,
                                        ru_trace *out, ru_err *err);

/* Table for people: one line per fact, at most `rows_max` (0: all), in `arena`. */
const char *ru_span_facts_print(const ru_span_facts *f, uint32_t rows_max, ru_arena *arena);

#endif
