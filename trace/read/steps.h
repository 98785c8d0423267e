/* Where the time of every step went, on every rank: its own arithmetic, the network, waiting for a
 * peer that came late, input, other.
 *
 * A rank waits for a sum of gradients. Until the last rank has begun that sum, it waits for that
 * rank; from then on it waits for the network. The five parts of a step add up to its wall time.
 *
 * Source: ours.
 * Thread: any; results are plain data in the caller's arena. */
#ifndef RU_TRACE_STEPS_H
#define RU_TRACE_STEPS_H

#include "trace/read/clock.h"
#include "trace/read/read.h"

RU_API_BEGIN

typedef enum ru_step_part {
    RU_STEP_COMPUTE, /* inside ops of the executable; in a trace without ops, what is no wait */
    RU_STEP_NETWORK, /* waiting for a sum that all ranks have begun */
    RU_STEP_PEER,    /* waiting for a rank that has not begun the sum yet */
    RU_STEP_INPUT,   /* waiting for the reader */
    RU_STEP_OTHER,
    RU_STEP_PARTS
} ru_step_part;

/* For people: "compute", "network", "peer", "input", "other". */
const char *ru_step_part_name(ru_step_part part);

#define RU_STEP_NOBODY UINT32_MAX

typedef struct ru_step_time {
    int64_t step;             /* from 1; a step that was repeated stands twice */
    int64_t start_ns, end_ns; /* global time */
    int64_t part_ns[RU_STEP_PARTS];
    uint32_t late;   /* index of the trace that it waited for longest; RU_STEP_NOBODY: none */
    int64_t late_ns; /* so long */
    int64_t samples; /* that the rank computed; 0: not known */
} ru_step_time;

typedef struct ru_rank_steps {
    const ru_step_time *at; /* [n] by start */
    int64_t n;
    uint32_t thread; /* of the trace: where the steps ran */
    int64_t total_ns[RU_STEP_PARTS];
    int64_t step_ns; /* sum of the steps' wall times */
} ru_rank_steps;

/* Shape: traces [n], out [n]; traces without steps get n 0. `clocks` may be NULL: all own times are
 * global. Cost: O(records log records). Errors: RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_trace_steps(const ru_trace *traces, uint32_t n,
                                     const ru_trace_clocks *clocks, ru_arena *arena,
                                     ru_rank_steps *out, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* The chain that sets the pace: in every step the rank that waited least for peers, because the
 * others waited for it. Its parts, added up over the steps. Shape: on [n][RU_STEP_PARTS]
 * nanoseconds of the chain on each rank. */
RU_MUST_USE ru_status ru_trace_chain(const ru_rank_steps *ranks, uint32_t n, ru_arena *arena,
                                     int64_t (**on)[RU_STEP_PARTS], ru_err *err);

#endif
