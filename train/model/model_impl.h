/* Imported models, between model.c, import.c and head.c.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_MODEL_IMPL_H
#define RU_TRAIN_MODEL_MODEL_IMPL_H

#include "train/model/model.h"

/* Both forms of the ONNX file `path`, for samples of m->facts. The caller closes m->file. */
RU_MUST_USE ru_status rui_model_import(const ru_job *job, const char *path, ru_arena *arena,
                                       ru_model *m, ru_err *err);

/* Put the new last layer into m->infer (inferred, not yet in training form) that model.head and
 * model.classes ask for, if they do: m->inits fills it.
 * Errors: RU_E_UNSUPPORTED when the model does not end with a linear layer of its own. */
RU_MUST_USE ru_status rui_model_head(const ru_job *job, ru_arena *arena, ru_model *m, ru_err *err);

/* Outputs that the data ask for: classes, or numbers of a label; 0: not known. */
int64_t rui_model_outputs_wanted(const ru_job *job, const ru_model_facts *f);

#endif
