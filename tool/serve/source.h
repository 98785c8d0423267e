/* Where a served model comes from: a run (or one of its checkpoints), or an ONNX file.
 *
 * Thread: open by one; the rest is the server's (serve/model.h). */
#ifndef RU_TOOL_SERVE_SOURCE_H
#define RU_TOOL_SERVE_SOURCE_H

#include "serve/model.h"
#include "world/onnx/onnx.h"

typedef struct rui_served_source_options {
    const ru_onnx_dim *dims; /* [n_dims] of an ONNX model: symbols that get a number */
    uint32_t n_dims;
    const char
        *tokenizer;     /* tokenizer.json of a language model; NULL: the one in the run, or none */
    ru_exe_options exe; /* device of a run: that of its job */
} rui_served_source_options;

/* `path` is a run, a checkpoint, or a file MODEL.onnx. The server gives *out back by its close.
 * Errors: RU_E_MISSING, RU_E_DATA, RU_E_UNSUPPORTED (texts, shapes that depend on data). */
RU_MUST_USE ru_status rui_served_source_open(const char *path, const rui_served_source_options *opt,
                                             ru_source *out, ru_err *err);

#endif
