/* One line about an imported file that is to be trained (world/onnx/onnx_notice.c), called by
 * world/onnx/onnx_read.c.
 *
 * Thread: any, no shared state. */
#ifndef RU_WORLD_ONNX_ONNX_NOTICE_H
#define RU_WORLD_ONNX_ONNX_NOTICE_H

#include "world/onnx/onnx_proto.h"
#include "world/pass/pass.h"

/* What its author may not expect when `g`, read from `m` for training, is trained: a text in
 * `arena`, NULL when nothing is to be said. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status rui_onnx_notice(const rui_onnx_model *m, const ru_graph *g, ru_arena *arena,
                                      const char **out, ru_err *err);

#endif
