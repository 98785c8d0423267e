/* How well a classifier tells each class, printed (train/driver/scores.h).
 *
 * Thread: main. */
#ifndef RU_TOOL_EVAL_CLASSES_H
#define RU_TOOL_EVAL_CLASSES_H

#include "run/rundir.h"

/* Predict all samples of `data` and print, as text or as JSON members.
 * Errors: RU_E_USAGE when the model is no classifier of at most 4,096 classes; those of the data.
 */
RU_MUST_USE ru_status rui_eval_classes(const ru_rundir *run, const ru_dataset *data, bool json,
                                       const ru_exe_options *exe_opt, ru_arena *arena, ru_text *out,
                                       ru_err *err);

#endif
