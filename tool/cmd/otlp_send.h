/* Spans of a recording to a collector of OpenTelemetry, over HTTP. Thread: main; blocks. */
#ifndef RU_TOOL_OTLP_SEND_H
#define RU_TOOL_OTLP_SEND_H

#include "trace/read/clock.h"

/* `url`: of the collector, with or without /v1/traces. Headers come from
 * OTEL_EXPORTER_OTLP_HEADERS. *sent: spans that it took. Errors: those of ru_http_fetch; RU_E_USAGE
 * (headers). */
RU_MUST_USE ru_status rui_otlp_send(const ru_trace *traces, uint32_t n,
                                    const ru_trace_clocks *clocks, const char *url, ru_arena *arena,
                                    int64_t *sent, ru_err *err);

#endif
