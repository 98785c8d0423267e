/* Which float initialisers of an imported file are parameters (world/onnx/onnx_trained.c), called
 * by world/onnx/onnx_read.c.
 *
 * Thread: any, no shared state. */
#ifndef RU_WORLD_ONNX_ONNX_TRAINED_H
#define RU_WORLD_ONNX_ONNX_TRAINED_H

#include "world/graph/graph.h"

/* Of the STATE of `g`, just read for training: what decides shapes and what exporters write for
 * lack of a default become constants, running statistics BUFFER. Types are inferred again where
 * constants came to be. Errors: those of inference, RU_E_LIMIT. */
RU_MUST_USE ru_status rui_onnx_trained(ru_graph *g, ru_arena *arena, ru_err *err);

#endif
