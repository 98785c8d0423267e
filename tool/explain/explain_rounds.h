/* `rubato explain RUN` of a federation: its last rounds and what their clients did, as
 * RUN/federation.jsonl has them. Nothing for other runs. Thread: main. */
#ifndef RU_TOOL_EXPLAIN_ROUNDS_H
#define RU_TOOL_EXPLAIN_ROUNDS_H

#include "base/tell.h"

/* Errors: those of reading the file. */
RU_MUST_USE ru_status rui_explain_rounds(const char *run, ru_arena *arena, const ru_tell *out,
                                         ru_err *err);

#endif
