/* The samples a classifier gets wrong, shown.
 *
 * Thread: main only. */
#ifndef RU_TOOL_EVAL_MISTAKES_H
#define RU_TOOL_EVAL_MISTAKES_H

#include "base/str.h"
#include "data/reader.h"
#include "run/rundir.h"

/* Append the first `n` samples of `data` that the model of `run` puts into another class than their
 * label, each with both classes and the probability the model gave. Errors: RU_E_USAGE when the
 * model is no classifier; those of reading and running. */
RU_MUST_USE ru_status rui_eval_mistakes(const ru_rundir *run, const ru_dataset *data, int64_t n,
                                        const ru_exe_options *exe_opt, ru_arena *arena,
                                        ru_text *out, ru_err *err);

#endif
