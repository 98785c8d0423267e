/* Reading a trace file back, also of a run that was killed: it returns everything before the first
 * damaged block, and `damaged_at` is the place of that block.
 *
 * Thread: one while reading; the result is read-only data. */
#ifndef RU_TRACE_READ_H
#define RU_TRACE_READ_H

#include "base/arena.h"
#include "trace/record/recorder.h"

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

/* What this process measured of the clock of another one; see trace/record/format.h, PEER. */
typedef struct ru_trace_peer {
    int64_t at_ns;
    uint64_t peer;
    int64_t offset_ns, bound_ns;
} ru_trace_peer;

typedef struct ru_trace_meta {
    const char *key, *value;
} ru_trace_meta;

typedef struct ru_trace {
    const char *process;
    uint32_t rank, segment;         /* segment: number of the first one that was read */
    int64_t wall_ns, mono_ns;       /* the two clocks read together at the start */
    const ru_trace_name *names;     /* [n_names] by id */
    const ru_trace_thread *threads; /* [n_threads] */
    uint32_t n_names, n_threads;
    uint64_t node;              /* its id, as the others' records name it; 0: not known */
    const ru_trace_peer *peers; /* [n_peers] */
    const ru_trace_meta *meta;  /* [n_meta] the last value of a key is in force */
    uint32_t n_peers, n_meta;
    int64_t records, dropped;  /* the second halves of transfers are counted as well */
    int64_t first_ns, last_ns; /* earliest start and latest end; both 0 when there are no records */
    bool complete;             /* the run closed its trace */
    int64_t damaged_at;        /* byte offset of the first block not understood; -1: none */
} ru_trace;

/* Parse a file. Errors: also RU_E_MISSING, RU_E_IO. */
RU_MUST_USE ru_status ru_trace_load(const char *path, ru_arena *arena, ru_trace *out, ru_err *err);

/* All traces of a run: the *.trace files of RUN/trace, of RUN itself when there is no such folder,
 * or RUN alone when it is a file. Segments of one recording are one trace. In order of rank, then
 * of recording. Errors: RU_E_MISSING when there are none. */
RU_MUST_USE ru_status ru_trace_run_load(const char *run, ru_arena *arena, ru_trace **traces,
                                        uint32_t *n, ru_err *err);

/* Records of one thread sorted by start, outer spans before the spans they contain; spans that the
 * recorder split at 4.29 s are joined. In `arena`. */
typedef struct ru_trace_span {
    int64_t start_ns, end_ns;
    const ru_record *record;
    uint32_t depth; /* 0: not inside another span of the thread */
} ru_trace_span;
RU_MUST_USE ru_status ru_trace_spans(const ru_trace_thread *t, ru_arena *arena,
                                     ru_trace_span **spans, int64_t *n, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Parse bytes of a trace file. Records are copied into `arena`. Errors: RU_E_DATA when it is not a
 * trace at all, RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_trace_parse(const uint8_t *data, int64_t size_bytes, ru_arena *arena,
                                     ru_trace *out, ru_err *err);
/* Value of a key; NULL: not there. */
const char *ru_trace_meta_get(const ru_trace *t, const char *key);
/* The same of its asynchronous spans, transfers and sums among them. `depth` is a lane: the least
 * one that is free when the span starts, so that those of one lane never overlap. */
RU_MUST_USE ru_status ru_trace_asyncs(const ru_trace_thread *t, ru_arena *arena,
                                      ru_trace_span **spans, int64_t *n, ru_err *err);
/* The newest records of each rank of a run that may still go on: about bytes_max bytes of the last
 * segment of its last recording. Errors: those of ru_trace_run_load. */
RU_MUST_USE ru_status ru_trace_run_load_end(const char *run, int64_t bytes_max, ru_arena *arena,
                                            ru_trace **traces, uint32_t *n, ru_err *err);
/* The second half of a transfer, a sum, or a task; NULL where there is none. `r` stands in
 * t->records. */
const ru_record_more *ru_trace_more(const ru_trace_thread *t, const ru_record *r);
/* Number of the worker in its job, for people; the rank of the file where that is not known. */
uint32_t ru_trace_number(const ru_trace *t);

#endif
