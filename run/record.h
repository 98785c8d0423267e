/* The recorder of a run: OUT/trace/rank<k>.trace.
 *
 * Thread: any, no shared state. */
#ifndef RU_RUN_RECORD_H
#define RU_RUN_RECORD_H

#include "trace/record/recorder.h"

/* Open the recorder of process `rank` of the run in `out`; a resumed run keeps earlier traces. The
 * calling thread is `thread`. The trace of the environment (TRACEPARENT) becomes its parent.
 * Errors: those of ru_recorder_open. */
RU_MUST_USE ru_status ru_run_recorder(const char *out, uint32_t rank, bool resume,
                                      const char *thread, ru_recorder **recorder, ru_err *err);

#endif
