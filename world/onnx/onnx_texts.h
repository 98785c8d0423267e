/* Which values of a graph that is being read hold texts (world/graph/texts.h).
 *
 * Thread: one per graph. */
#ifndef RU_WORLD_ONNX_ONNX_TEXTS_H
#define RU_WORLD_ONNX_ONNX_TEXTS_H

#include "world/graph/graph.h"
#include "world/graph/texts.h"
#include "world/onnx/onnx_lift.h"

typedef struct rui_texts {
    ru_texts words;
    uint8_t *is_text; /* [n_marks] by value */
    uint32_t n_marks;
    bool maps; /* a ZipMap was passed over */
} rui_texts;

/* The value holds texts. */
RU_MUST_USE ru_status rui_texts_mark(rui_texts *t, ru_value_id v, ru_err *err);
bool rui_texts_is(const rui_texts *t, ru_value_id v);
/* The elements of a tensor of texts, as numbers. */
RU_MUST_USE ru_status rui_texts_tensor(rui_texts *t, const rui_onnx_tensor *tensor,
                                       const void **out, ru_err *err);
/* May the op work on its inputs? Only ops that move elements, or ask whether two are the same, may
 * have texts. *out: its results are texts. Errors: RU_E_UNSUPPORTED, RU_E_DATA. */
RU_MUST_USE ru_status rui_texts_pass(const rui_lift *l, bool *out, ru_err *err);
/* Which of `ids` hold texts. */
RU_MUST_USE ru_status rui_texts_list(const rui_texts *t, const ru_value_id *ids, uint32_t n,
                                     const bool **out, ru_err *err);

#endif
