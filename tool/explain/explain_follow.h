/* `rubato explain RUN` of a run that trains on what arrives: the samples that waited and who was
 * called for them, as RUN/follow.jsonl has them. Nothing for other runs. Thread: main. */
#ifndef RU_TOOL_EXPLAIN_FOLLOW_H
#define RU_TOOL_EXPLAIN_FOLLOW_H

#include "base/tell.h"

/* Errors: those of reading the file. */
RU_MUST_USE ru_status rui_explain_follow(const char *run, ru_arena *arena, const ru_tell *out,
                                         ru_err *err);

#endif
