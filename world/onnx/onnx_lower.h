/* Writing a graph in the ops of one ONNX opset (world/onnx/onnx_lower.c), the opposite of lifting.
 *
 * Thread: any, no shared state. */
#ifndef RU_WORLD_ONNX_ONNX_LOWER_H
#define RU_WORLD_ONNX_ONNX_LOWER_H

#include "world/graph/graph.h"

/* The inference meaning of `g` in standard ops as opset `opset` knows them: our own ops written
 * out, training forms replaced by inference forms, updates and dead nodes dropped. Ids of values
 * that stay are those of `g`; types of new values are open. Errors: RU_E_UNSUPPORTED naming the
 * node, RU_E_LIMIT. */
RU_MUST_USE ru_status rui_onnx_lower(const ru_graph *g, int64_t opset, ru_arena *arena,
                                     ru_graph *out, ru_err *err);

#endif
