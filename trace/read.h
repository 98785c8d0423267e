/* Reading a trace file back, also of a run that was killed: it returns everything before the first
 * damaged block, and `damaged_at` is the place of that block.
 *
 * Thread: one while reading; the result is read-only data. */
#ifndef RU_TRACE_READ_H
#define RU_TRACE_READ_H

#include "base/arena.h"
#include "trace/recorder.h"

RU_API_BEGIN

typedef struct ru_trace_name {
    const char *category, *name; /* "" for ids never named */
} ru_trace_name;

typedef struct ru_trace_thread {
    const char *name;
    const ru_record *records; /* [n] by end time as recorded */
    int64_t n;
    int64_t dropped;
} ru_trace_thread;

typedef struct ru_trace {
    const char *process;
    uint32_t rank;
    int64_t wall_ns, mono_ns;       /* the two clocks read together at the start */
    const ru_trace_name *names;     /* [n_names] by id */
    const ru_trace_thread *threads; /* [n_threads] */
    uint32_t n_names, n_threads;
    int64_t records, dropped;
    int64_t first_ns, last_ns; /* earliest start and latest end; both 0 when there are no records */
    bool complete;             /* the run closed its trace */
    int64_t damaged_at;        /* byte offset of the first block not understood; -1: none */
} ru_trace;

/* Parse bytes of a trace file. Records are copied into `arena`. Errors: RU_E_DATA when it is not a
 * trace at all, RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_trace_parse(const uint8_t *data, int64_t size_bytes, ru_arena *arena,
                                     ru_trace *out, ru_err *err);

/* Parse a file. Errors: also RU_E_MISSING, RU_E_IO. */
RU_MUST_USE ru_status ru_trace_load(const char *path, ru_arena *arena, ru_trace *out, ru_err *err);

/* Records of one thread sorted by start, outer spans before the spans they contain; spans that the
 * recorder split at 4.29 s are joined. In `arena`. */
typedef struct ru_trace_span {
    int64_t start_ns, end_ns;
    const ru_record *record;
    uint32_t depth; /* 0: not inside another span of the thread */
} ru_trace_span;
RU_MUST_USE ru_status ru_trace_spans(const ru_trace_thread *t, ru_arena *arena,
                                     ru_trace_span **spans, int64_t *n, ru_err *err);
/* The same of its asynchronous spans. `depth` is a lane: the least one that is free when the span
 * starts, so that those of one lane never overlap. */
RU_MUST_USE ru_status ru_trace_asyncs(const ru_trace_thread *t, ru_arena *arena,
                                      ru_trace_span **spans, int64_t *n, ru_err *err);

RU_API_END

#endif
