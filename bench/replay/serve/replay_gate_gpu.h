/* A device with a service and a training on it, op by op in the simulator's event queue: what
 * judges the gate. Two ops that run at the same time slow each other down by a law that is drawn
 * for the pair of networks and hidden from the gate.
 *
 *   CLASSES   ops of one class collide, others hardly do                          (strati-2024)
 *   EXCESS    what both ask of arithmetic, bandwidth and units beyond the device  (williams-2009)
 *   PRESSURE  pressure of the one times sensitivity of the other                  (mars-2011)
 *
 * Thread: main. */
#ifndef RU_BENCH_REPLAY_GATE_GPU_H
#define RU_BENCH_REPLAY_GATE_GPU_H

#include "base/rng.h"
#include "plan/serve/gate.h"
#include "sim/sim.h"

typedef enum rui_gate_law { RUI_LAW_CLASSES, RUI_LAW_EXCESS, RUI_LAW_PRESSURE } rui_gate_law;

enum { RUI_GATE_LAWS = 3 };

typedef struct rui_gate_case {
    ru_gate_in in;
    rui_gate_law law;
    double strength; /* 0 to 2: an op beside the worst one takes 1 + strength times as long */
    double load;     /* share of the device that requests need */
    uint32_t requests;
    uint64_t seed;
} rui_gate_case;

typedef struct rui_gate_result {
    double p50_s, p99_s;
    double training;      /* work done per time */
    double s;             /* simulated */
    double margin, error; /* of the gate at the end; relative error of predicted losses */
    uint64_t decisions;
} rui_gate_result;

/* Errors: of the gate and the simulator. */
RU_MUST_USE ru_status rui_gate_play(const rui_gate_case *c, ru_arena *arena, rui_gate_result *out,
                                    ru_err *err);

#endif
