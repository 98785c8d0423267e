/* Predicted beside measured times of a run, for `rubato trace`.
 *
 * Thread: any. */
#ifndef RU_TOOL_TRACE_ERRORS_H
#define RU_TOOL_TRACE_ERRORS_H

#include "trace/read/predicted.h"

/* Write every comparison as a line of CSV. Errors: RU_E_IO, RU_E_LIMIT. */
RU_MUST_USE ru_status rui_trace_errors_csv(const ru_trace *traces, uint32_t n,
                                           const ru_trace_clocks *clocks, const char *path,
                                           ru_arena *arena, ru_err *err);

#endif
