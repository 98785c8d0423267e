/* What a step takes in memory: the most that is alive at once.
 *
 *   of buffers with lifetimes   the largest sum of sizes alive at one step: no placement needs less
 *   of a graph                  the same of its values, each from the node that makes it to its
 * last reader, plus what stays: state and constants
 *
 * Kernels add scratch memory and save what they compute in place, so a graph's figure is an
 * estimate; an executable knows its own (plan/step/mem.h).
 *
 * Thread: any, pure. Unit: bytes. */
#ifndef RU_COST_MEMORY_H
#define RU_COST_MEMORY_H

#include "world/graph/graph.h"

typedef struct ru_memory_use {
    int64_t size_bytes;   /* >= 0 */
    uint32_t first, last; /* steps; first <= last */
} ru_memory_use;

typedef struct ru_memory_peak {
    int64_t bytes; /* sizes rounded up to `align` */
    uint32_t step; /* where, the earliest */
} ru_memory_peak;

/* Cost: O(n log n). Errors: RU_E_ARG, RU_E_LIMIT (scratch, or a sum above 2^62). */
RU_MUST_USE ru_status ru_cost_memory(const ru_memory_use *uses, uint32_t n, int64_t align_bytes,
                                     ru_arena *scratch, ru_memory_peak *peak, ru_err *err);

typedef struct ru_memory_graph {
    int64_t state_bytes, const_bytes, io_bytes;
    ru_memory_peak temps; /* step: index of the node */
} ru_memory_graph;

/* `g` is inferred and concrete, nodes in order. Errors: RU_E_ARG for a type without a size,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_cost_memory_graph(const ru_graph *g, ru_arena *scratch,
                                           ru_memory_graph *out, ru_err *err);

#endif
