/* Workers of a clocked job in the simulator: each is the step machine of train/tasks, its speed a
 * trace, messages take a while, servers close clocks. Thread: main. */
#ifndef RU_BENCH_REPLAY_REASSIGN_FLEET_H
#define RU_BENCH_REPLAY_REASSIGN_FLEET_H

#include "base/arena.h"
#include "plan/crew/reassign.h"

/* How speeds change, from the reference's generators. */
typedef enum rui_fleet_pattern {
    RUI_FLEET_SLOW,    /* in each 0.1 s 1 in 100 becomes 1 to 5 times slower for 1 s */
    RUI_FLEET_DISRUPT, /* every 20 s 1 in 5 runs at half speed for up to 20 s */
    RUI_FLEET_POWER,   /* in each second as much slower as Pareto of shape 4 */
    RUI_FLEET_HALF,    /* half the machines are half as fast */
    RUI_FLEET_PATTERNS
} rui_fleet_pattern;

enum { RUI_FLEET_SLOT_NS = 50 * 1000 * 1000 };

typedef struct rui_fleet_trace {
    uint32_t workers, slots;
    double *speed; /* [workers, slots] */
    double *done;  /* [workers, slots + 1] work done before each slot, in ns at speed 1 */
} rui_fleet_trace;

RU_MUST_USE ru_status rui_fleet_trace_make(rui_fleet_pattern pattern, uint32_t workers,
                                           uint32_t clocks, uint64_t seed, ru_arena *a,
                                           rui_fleet_trace *out, ru_err *err);
/* When all workers together have done work_ns at speed 1: no schedule ends sooner. */
double rui_fleet_ideal_s(const rui_fleet_trace *t, double work_ns);

typedef struct rui_fleet_in {
    const rui_fleet_trace *trace;
    ru_reassign_in policy; /* took and clocks are those of the run */
    uint32_t items, clocks;
    int64_t latency_ns; /* of a message, one way */
} rui_fleet_in;

typedef struct rui_fleet_out {
    double took_s;
    int64_t messages, reassigned; /* items */
    int64_t events;
} rui_fleet_out;

RU_MUST_USE ru_status rui_fleet_run(const rui_fleet_in *in, ru_arena *a, rui_fleet_out *out,
                                    ru_err *err);

#endif
