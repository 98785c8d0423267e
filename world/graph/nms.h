/* Non-maximum suppression: of boxes that overlap, keep the best.
 *
 * Thread: any, no shared state. */
#ifndef RU_WORLD_NMS_H
#define RU_WORLD_NMS_H

#include "world/graph/graph.h"

typedef struct ru_nms_in {
    const float *boxes;  /* [batch, boxes, 4]: y1, x1, y2, x2, or centre x, y, width, height */
    const float *scores; /* [batch, classes, boxes] */
    int64_t n_batch, n_classes, n_boxes;
    int64_t per_class_max;  /* boxes kept of a class; 0 or less: none */
    float iou_max;          /* a box that overlaps a kept one by more is dropped */
    const float *score_min; /* boxes must score more; NULL: all take part */
    bool centre;            /* boxes are centres and sizes */
} ru_nms_in;

/* The boxes that stay, as (batch, class, box), by batch, class and falling score (ties: the earlier
 * box first). *out: [*n, 3] in `arena`.
 * Cost: O(kept * boxes) a class. Errors: RU_E_LIMIT when the arena is full. */
RU_MUST_USE ru_status ru_nms_select(const ru_nms_in *in, ru_arena *arena, int64_t **out, int64_t *n,
                                    ru_err *err);

/* The arguments of a NonMaxSuppression node from the types and elements of its five inputs (absent:
 * NULL type and elements). false: they are not what the op takes. */
bool ru_nms_arguments(const ru_node *n, const ru_type *const type[5], const void *const data[5],
                      ru_nms_in *out);

#endif
