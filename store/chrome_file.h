/* Traces of other programs: Chrome trace JSON (an object with traceEvents, or the array alone), as
 * PyTorch's profiler writes it, plain or compressed with gzip.
 *
 * Thread: one. */
#ifndef RU_STORE_CHROME_FILE_H
#define RU_STORE_CHROME_FILE_H

#include "trace/read/read.h"

/* Complete events ("X") become spans of a thread for each pid and tid; all else is left out.
 * Errors: RU_E_MISSING, RU_E_IO, RU_E_DATA with what is wrong, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_chrome_file_load(const char *path, ru_arena *arena, ru_trace *out,
                                          ru_err *err);

#endif
