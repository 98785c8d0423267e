/* Where the buffers of one step lie in one arena, by first fit and local search.
 *
 * Every buffer lives from the step that first writes it to the step that last reads it, both
 * included; two buffers that live at the same step must not share a byte, unless one is declared
 * part of the other (results computed in place, views into a concatenation). The answer is one
 * offset per buffer; the peak is compared with the liveness lower bound, the largest sum of sizes
 * alive at one step.
 *
 * Thread: any, no shared state. Pure: equal input gives equal bytes. */
#ifndef RU_PLAN_MEM_H
#define RU_PLAN_MEM_H

#include "base/arena.h"
#include "base/status.h"

RU_API_BEGIN

enum { RU_MEM_BUFS_MAX = 1 << 20, RU_MEM_ALIGN_DEFAULT = 64 };

typedef struct ru_mem_buf {
    int64_t size_bytes;    /* >= 0; 0 takes no room */
    uint32_t first, last;  /* steps; first <= last */
    uint32_t part_of;      /* 1 + index of an earlier buffer this one lies in; 0: on its own */
    int64_t part_at_bytes; /* where in it, a multiple of the alignment; 0 when on its own */
} ru_mem_buf;

typedef struct ru_mem_in {
    const ru_mem_buf *bufs; /* [n] */
    uint32_t n;             /* 0 .. RU_MEM_BUFS_MAX */
    int64_t align_bytes;    /* of every offset, a power of two; 0: RU_MEM_ALIGN_DEFAULT */
    int64_t work_max;       /* neighbours looked at while improving; 0: a default, < 0: none */
    uint64_t seed;          /* of the improvement */
} ru_mem_in;

typedef enum ru_mem_order {
    RU_MEM_BY_SIZE,     /* largest first */
    RU_MEM_BY_START,    /* as the step runs */
    RU_MEM_BY_AREA,     /* size x lifetime */
    RU_MEM_BY_LIFETIME, /* longest first */
    RU_MEM_BY_PEAK,     /* what lives at the fullest step first, largest first */
    RU_MEM_ORDER_COUNT
} ru_mem_order;

typedef struct ru_mem_plan {
    const int64_t *offsets; /* [n] bytes from the arena's start */
    uint32_t n;
    int64_t peak_bytes;  /* size of the arena */
    int64_t bound_bytes; /* liveness lower bound, sizes rounded up to the alignment */
    ru_mem_order order;  /* the order that won */
    uint32_t improved;   /* improvement steps that helped after it */
    int64_t work;        /* neighbours looked at, all orders */
} ru_mem_plan;

/* Place the buffers: first fit in several orders, the best of them improved by moving the buffers
 * that make the peak to the front of the order. Stops at the bound or when the work is spent.
 * Owner:  plan->offsets lives in `out`; `scratch` is rewound.
 * Cost:   O(n^2) per order tried, no allocation outside the arenas.
 * Errors: RU_E_ARG for a field outside its limits, RU_E_LIMIT when an arena is full or the sum of
 *         sizes overflows. */
RU_MUST_USE ru_status ru_plan_mem(const ru_mem_in *in, ru_arena *out, ru_arena *scratch,
                                  ru_mem_plan *plan, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Is `plan` a legal answer to `in`? Shares no code with the planner; the executor calls it too.
 * Errors: RU_E_INFEASIBLE naming the two buffers that collide or the place that is wrong,
 *         RU_E_LIMIT when scratch is full. */
RU_MUST_USE ru_status ru_plan_mem_check(const ru_mem_in *in, const ru_mem_plan *plan,
                                        ru_arena *scratch, ru_err *err);

#endif
