/* `rubato explain RUN` of a training on functions: what was measured, what ran and what it cost, as
 * RUN/functions.jsonl has it. Nothing for other runs. Thread: main. */
#ifndef RU_TOOL_EXPLAIN_FUNCTIONS_H
#define RU_TOOL_EXPLAIN_FUNCTIONS_H

#include "base/tell.h"

/* Errors: those of reading the file. */
RU_MUST_USE ru_status rui_explain_functions(const char *run, ru_arena *arena, const ru_tell *out,
                                            ru_err *err);

#endif
