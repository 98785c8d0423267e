/* A parameter server on machines with links, message by message in the simulator's event queue:
 * what judges the stages. It knows machines, queues and messages, no formula of the clock.
 *
 *   worker: ask every server --parts arrive--> compute --> send updates to every server
 *   server: answers clock c + 1 once it has the updates of all workers of clock c
 *   stream: every clock a server sends one part of its partitions, what changed in a batch of
 *           clocks, to the machines of the copies, spread over a clock, behind reads and updates
 *           in its own queue; a clock waits for copies that are clocks_max behind
 *
 * A link sends pieces first come first served, one after the other, and the receiver's link takes
 * them the same way. Thread: main. */
#ifndef RU_BENCH_REPLAY_STAGE_NET_H
#define RU_BENCH_REPLAY_STAGE_NET_H

#include "plan/crew/stage.h"

typedef struct rui_stage_case {
    ru_stage_in in;
    ru_backup_layout layout;
    uint32_t first_server, first_worker; /* machines */
    uint32_t batch;                      /* clocks of the stream */
    double spread_s;                     /* the stream of a clock is sent over so long */
    uint32_t clocks, warm;               /* simulated; the first ones do not count */
    double jitter;                       /* deviation of a worker's computing */
    uint64_t seed;
} rui_stage_case;

/* Mean seconds of a clock, and clocks that the slowest copy is behind at the end. Errors: of the
 * simulator, RU_E_LIMIT. */
RU_MUST_USE ru_status rui_stage_play(const rui_stage_case *c, ru_arena *arena, double *clock_s,
                                     double *behind, ru_err *err);

#endif
