/* What a step of a pipeline takes: its fixed lists (order.h) played with given durations.
 *
 * A worker computes one part at a time and sends one piece at a time; a part begins when the worker
 * is free and the last of its pieces is there. A step ends with the updates, which follow the
 * decision after the last forward part of the last stage. Several steps are played, so that the
 * first stage goes on while later ones still compute. Of a schedule that flows on
 * steps follow each other, each with its update, and those in the middle count; `micro` of 2bw is
 * at least ru_pipe_micro_min.
 *
 * Thread: any, pure. */
#ifndef RU_TRAIN_PIPE_PLAY_H
#define RU_TRAIN_PIPE_PLAY_H

#include "base/arena.h"
#include "train/pipe/order.h"

typedef struct ru_pipe_play_link {
    uint32_t from, to; /* stages; from > to: gradients */
    int64_t xfer_ns;   /* of a micro-batch */
} ru_pipe_play_link;

typedef struct ru_pipe_play_in {
    uint32_t n, micro;
    ru_pipe_schedule schedule;
    const int64_t *forward_ns, *backward_ns; /* [n] of a micro-batch */
    const int64_t *update_ns;                /* [n] of a step */
    const ru_pipe_play_link *links;          /* [n_links]; every stage but the last has some, and
                                                each has one that comes back */
    uint32_t n_links;
} ru_pipe_play_in;

typedef struct ru_pipe_play {
    int64_t step_ns;  /* from step to step */
    int64_t *busy_ns; /* [n] of it */
    int64_t *wait_ns; /* [n_links, micro] that the receiver is without work because this piece is
                         the last that is not there */
} ru_pipe_play;

/* Owner: in `arena`. Cost: O(links micro). Errors: RU_E_LIMIT when it is full. */
RU_MUST_USE ru_status ru_pipe_play_step(const ru_pipe_play_in *in, ru_arena *arena,
                                        ru_pipe_play *out, ru_err *err);

#endif
