/* Inside tool/page: the lanes of a page. Thread: one. */
#ifndef RU_TOOL_PAGE_PAGE_IMPL_H
#define RU_TOOL_PAGE_PAGE_IMPL_H

#include "tool/page/page.h"

/* Spans of one thread that do not overlap, by start. */
typedef struct rui_lane {
    uint32_t trace, thread, depth;
    bool async;
    const char *label; /* what it holds: the thread, or "to rank 2", or the name of a sum */
    const ru_trace_span *const *spans; /* [n] */
    int64_t n;
    uint32_t *group; /* [n] spans of one number belong together; 0: alone. NULL: no transfers */
    bool predicted, plan, value;
    int64_t unit_ns, at_ns; /* of its numbers; global start of the first, less the page's start */
} rui_lane;

typedef struct rui_lanes {
    rui_lane *at; /* [n] by trace, thread, synchronous before asynchronous, depth */
    uint32_t n;
    int64_t start_ns, end_ns; /* global */
    uint32_t groups;
} rui_lanes;

RU_MUST_USE ru_status rui_lanes_make(const ru_page_in *in, ru_arena *arena, rui_lanes *out,
                                     ru_err *err);

#endif
