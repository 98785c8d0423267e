/* The sliding window that convolutions and pools share.
 *
 *   big image:    pads before | big[d] elements | pads after
 *   small image:  position s reads taps t at  s*stride + t*dilation - before
 *
 * Thread: any, no shared state. */
#ifndef RU_EXEC_CPU_REF_REF_CONV_IMPL_H
#define RU_EXEC_CPU_REF_REF_CONV_IMPL_H

#include "exec/cpu/ref/ref_impl.h"

enum { RUI_SPATIAL_MAX = RU_RANK_MAX - 2 };

typedef struct rui_window {
    uint32_t rank;
    int64_t big[RUI_SPATIAL_MAX], small[RUI_SPATIAL_MAX], kernel[RUI_SPATIAL_MAX];
    int64_t stride[RUI_SPATIAL_MAX], dilation[RUI_SPATIAL_MAX];
    int64_t before[RUI_SPATIAL_MAX], after[RUI_SPATIAL_MAX];
} rui_window;

/* From the attributes of the node and the two image types [N, C, spatial...]; SAME pads are worked
 * out from the sizes. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_window_make(const ru_ref_call *c, const ru_type *big,
                                      const ru_type *small, const int64_t *kernel, uint32_t rank,
                                      rui_window *w, ru_err *err);

/* Offset in the big image's plane that tap `tap` of position `at` reads; -1 in the padding. */
static inline int64_t rui_window_big(const rui_window *w, const int64_t *at, const int64_t *tap)
{
    int64_t off = 0;
    for (uint32_t d = 0; d < w->rank; d++) {
        int64_t b = at[d] * w->stride[d] + tap[d] * w->dilation[d] - w->before[d];
        if (b < 0 || b >= w->big[d]) {
            return -1;
        }
        off = off * w->big[d] + b;
    }
    return off;
}

#endif
