/* What became of a placed step: its devices and links, predicted beside recorded.
 *
 * Thread: main. */
#ifndef RU_TOOL_EXPLAIN_PLACE_H
#define RU_TOOL_EXPLAIN_PLACE_H

#include "base/tell.h"
#include "plan/cut/place_policy.h"

/* Of the run at `path`. `input` and `plan` of the policy; NULL: the job names its devices. *shown:
 * there are records of all of them. Errors: those of reading traces. */
RU_MUST_USE ru_status rui_explain_place(const char *path, const ru_place_file *input,
                                        const ru_place_plan *plan, ru_arena *arena,
                                        const ru_tell *out, bool *shown, ru_err *err);

#endif
