/* Inside of laying traces over each other. Thread: one. */
#ifndef RU_TRACE_CLOCK_IMPL_H
#define RU_TRACE_CLOCK_IMPL_H

#include "trace/read/clock.h"

/* What trace a measured of the clock of b. */
typedef struct rui_tie {
    uint32_t a, b;
    ru_trace_peer *samples; /* [n] */
    ru_trace_knot *knots;   /* [n] offset: clock of b less that of a */
    uint32_t n;
    int64_t weight; /* its bound in the middle */
} rui_tie;

/* n >= 1 knots, rising. */
int64_t rui_knots_offset(const ru_trace_knot *k, uint32_t n, int64_t ns);
int64_t rui_knots_bound(const ru_trace_knot *k, uint32_t n, int64_t ns);

/* clock_repair.c: count transfers that arrive before they were sent, and move knots so that none
 * does where that is possible. */
RU_MUST_USE ru_status rui_clock_repair(const ru_trace *t, ru_trace_clocks *c, ru_trace_knot **knots,
                                       ru_arena *arena, ru_err *err);

#endif
