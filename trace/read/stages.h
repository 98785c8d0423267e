/* Stages of a pipeline and what crosses between them: a typical step, from what all ranks recorded.
 * Means are those without the shortest and the longest tenth, of transfers a third.
 *
 *   meta `pipe`                  "1 3 8 flush fc2": stage 1 (from 0) of 3, 8 micro-batches, its
 *                                schedule, its first layer; "placed": devices are its stages, each
 *                                with several parts
 *   meta `pipe workers`          the same, where some stages have several workers
 *   meta `pipe memory`           "3 4096 131072 8192 1": versions of the weights, bytes of one, of
 *                                all memory of steps, of what evaluations and checkpoints need
 *                                beside; steps by which its gradients are late at most
 *   forward, backward, update    spans; value: the micro-batch in its step
 *   wait for a stage             a wait inside of one; what it waited for: the name of a link
 *   "stage 1 to 2"               a link (stages from 1; "device 1 to 2"): label of its sends and
 *                                receives, whose step is the number of the micro-batch in all
 *   input                        reading samples, inside of a forward part
 *
 * Thread: any; results are plain data in the caller's arena. */
#ifndef RU_TRACE_STAGES_H
#define RU_TRACE_STAGES_H

#include "trace/read/clock.h"

typedef struct ru_stage_time {
    uint32_t trace;                             /* its index; UINT32_MAX: none was recorded */
    const char *first;                          /* layer; view of the trace */
    int64_t steps;                              /* recorded */
    int64_t step_ns;                            /* means: a step of its worker */
    int64_t input_ns;                           /* reading of a micro-batch; 0: it reads none */
    int64_t forward_ns, backward_ns, update_ns; /* a part, without waits and reading */
    double parts, updates;                      /* that go forward in a step; that are updated */
} ru_stage_time;

/* Values that cross from one stage to another, all together; each has one that comes back. */
typedef struct ru_stage_flow {
    uint32_t from, to; /* from > to: gradients */
    int64_t bytes;     /* of a micro-batch */
    int64_t n;         /* micro-batches whose both ends are recorded */
    int64_t xfer_ns;   /* mean: how long its pieces occupy the sender's link */
    int64_t *wait_ns;  /* [micro] mean time that the receiver waited for it in a step */
} ru_stage_flow;

typedef struct ru_trace_pipe {
    uint32_t n, micro;
    const char *schedule;
    ru_stage_time *stages; /* [n] */
    ru_stage_flow *flows;  /* [n_flows] by from, to */
    uint32_t n_flows;
} ru_trace_pipe;

/* The newest pipeline that these traces are of; n 0: of none. Errors: RU_E_LIMIT when `arena` is
 * full. Cost: O(records log records). */
RU_MUST_USE ru_status ru_trace_pipe_read(const ru_trace *traces, uint32_t n,
                                         const ru_trace_clocks *clocks, ru_arena *arena,
                                         ru_trace_pipe *out, ru_err *err);

#endif
