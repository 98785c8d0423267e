/* Traces in the formats of other tools.
 *
 * Thread: one. Files appear under their names only when complete. */
#ifndef RU_TRACE_EXPORT_H
#define RU_TRACE_EXPORT_H

#include "trace/read/clock.h"

/* Perfetto protobuf: one process track per rank, one thread track per thread, begin and end events
 * that nest, counters as counter tracks, flows between the ends of transfers and sums; peer, step,
 * predicted time, plan and value as annotations. Times are those of the global clock (NULL clocks:
 * each trace's own); snapshots tie it to the wall clock and to the clock of each rank.
 * Source: perfetto trace protos, field numbers in docs/trace-live.md. */
RU_MUST_USE ru_status ru_trace_perfetto(const ru_trace *traces, uint32_t n,
                                        const ru_trace_clocks *clocks, const char *path,
                                        ru_err *err);

/* Chrome JSON (chrome://tracing, Speedscope, TensorBoard's profiler): complete events, asynchronous
 * ones on lanes of their own, flows. Best below 300 MB; larger runs use Perfetto. */
RU_MUST_USE ru_status ru_trace_chrome(const ru_trace *traces, uint32_t n,
                                      const ru_trace_clocks *clocks, const char *path, ru_err *err);

/* Traces as HolisticTraceAnalysis reads them: a file rank-<k>.json per rank in `dir`. Ops are
 * kernels of stream 7, sums communication kernels ("ncclKernel ...") of further streams, so that
 * its breakdown into computation, communication and idle time and their overlap are those of the
 * ops and sums. */
RU_MUST_USE ru_status ru_trace_hta(const ru_trace *traces, uint32_t n,
                                   const ru_trace_clocks *clocks, const char *dir, ru_err *err);

/* OpenTelemetry: OTLP/JSON (an ExportTraceServiceRequest), a resource per rank, a span for each but
 * ops; receives link to their sends. The trace id and the parent of all are those of META
 * "traceparent", else made of the job. Times are of the reference's wall clock. */
RU_MUST_USE ru_status ru_trace_otlp(const ru_trace *traces, uint32_t n,
                                    const ru_trace_clocks *clocks, const char *path, ru_err *err);

/* The same as requests of at most `spans_max` spans, one after the other. fn: one request as JSON,
 * view until return; its error ends the export. */
typedef struct ru_otlp_send {
    ru_status (*fn)(void *self, const char *json, int64_t n, int64_t spans, ru_err *err);
    void *self;
} ru_otlp_send;
RU_MUST_USE ru_status ru_trace_otlp_send(const ru_trace *traces, uint32_t n,
                                         const ru_trace_clocks *clocks, int64_t spans_max,
                                         ru_otlp_send send, ru_err *err);

/* The trace id and the span id of a W3C traceparent, version 00; false: it is none. */
bool ru_traceparent_read(const char *text, char trace_id[33], char parent[17]);

/* A TensorBoard event file: scalars by tag and step. */
typedef struct ru_tensorboard ru_tensorboard;
/* Makes `dir`/events.out.tfevents.<seconds>.<host>. */
RU_MUST_USE ru_status ru_tensorboard_open(const char *dir, int64_t wall_ns, ru_tensorboard **out,
                                          ru_err *err);
RU_MUST_USE ru_status ru_tensorboard_scalar(ru_tensorboard *t, const char *tag, int64_t step,
                                            int64_t wall_ns, double value, ru_err *err);
/* Makes the file appear; the object is then only to be closed. */
/* `limits` [n] ascending upper edges of the bins, `counts` [n]. */
typedef struct ru_tb_histogram {
    double min, max, num, sum, squares;
    const double *limits, *counts;
    int64_t n;
} ru_tb_histogram;
RU_MUST_USE ru_status ru_tensorboard_histogram(ru_tensorboard *t, const char *tag, int64_t step,
                                               int64_t wall_ns, const ru_tb_histogram *h,
                                               ru_err *err);
RU_MUST_USE ru_status ru_tensorboard_commit(ru_tensorboard *t, ru_err *err);
void ru_tensorboard_close(ru_tensorboard *t); /* NULL is fine; without commit nothing is left */

#endif
