/* One clock for the traces of all ranks.
 *
 *   PEER samples --minimum of each round--> line through the rounds around --> offset at a round
 *   sends and receives of one flow --------> corrections, so that nothing arrives before it was
 * sent
 *
 * The clock of the reference, the trace with the least rank that others are tied to, is the global
 * one. A trace without measured ties to it (one process, a foreign file) is placed by the wall
 * clock, and its bound is not known.
 *
 * Source: mills-1991, duda-1987 (offsets as constraints of messages). Thread: one. */
#ifndef RU_TRACE_CLOCK_H
#define RU_TRACE_CLOCK_H

#include "trace/read/read.h"

/* Between knots the offset runs straight; beyond the outer ones it goes on with their slope. */
typedef struct ru_trace_knot {
    int64_t at_ns;     /* of the trace's own clock */
    int64_t offset_ns; /* global time less own time */
    int64_t bound_ns;  /* the offset is wrong by at most this */
} ru_trace_knot;

typedef struct ru_trace_clocks {
    uint32_t n, reference;       /* traces; index of the one whose clock is the global one */
    const ru_trace_knot **knots; /* [n][n_knots] rising */
    uint32_t *n_knots;           /* [n] at least 1 */
    bool *measured;              /* [n] else by the wall clock: no bound is known */
    int64_t wall_ns;             /* global time plus this is the reference's wall clock */
    int64_t flows;               /* transfers whose both ends are known */
    int64_t before, after; /* of these, arrived before they were sent: measured, and repaired */
    int64_t worst_ns;      /* by how much, at most, before the repair */
} ru_trace_clocks;

/* Errors: RU_E_LIMIT when `arena` is full. Cost: O(n log n) of records. */
RU_MUST_USE ru_status ru_trace_align(const ru_trace *traces, uint32_t n, ru_arena *arena,
                                     ru_trace_clocks *out, ru_err *err);

/* Global time of an instant of trace k; and how wrong at most, -1: not known. NULL clocks: its own
 * time. */
int64_t ru_trace_global(const ru_trace_clocks *c, uint32_t k, int64_t ns);
int64_t ru_trace_bound(const ru_trace_clocks *c, uint32_t k, int64_t ns);
/* The largest bound of trace k at its beginning, middle and end; -1: not measured. */
int64_t ru_trace_bound_of(const ru_trace_clocks *c, uint32_t k, const ru_trace *t);

#endif
