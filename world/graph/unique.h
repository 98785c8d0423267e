/* Distinct elements of a tensor, or distinct slices along one of its axes.
 *
 * Thread: any, no shared state. */
#ifndef RU_WORLD_UNIQUE_H
#define RU_WORLD_UNIQUE_H

#include "world/graph/graph.h"

typedef struct ru_unique {
    int64_t n;            /* distinct ones */
    const int64_t *first; /* [n] place of each, where it stands first */
    const int64_t *of;    /* [all] the number of the distinct one that stands there */
    const int64_t *count; /* [n] how often each stands */
} ru_unique;

/* Of node n (attributes axis, sorted) on `data` of type `t`: in rising order (numbers first, NaN
 * last), or in the order in which they stand first. All lists live in `arena`.
 * Cost: O(all log all) comparisons. Errors: RU_E_LIMIT when the arena is full. */
RU_MUST_USE ru_status ru_unique_find(const ru_node *n, const ru_type *t, const void *data,
                                     ru_arena *arena, ru_unique *out, ru_err *err);

#endif
