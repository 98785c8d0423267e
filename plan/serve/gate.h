/* Which op of a training may run beside a request of a service, decided op by op, and whether a
 * training may share the device at all.
 *
 * Ours compares the service with a shadow that has the device to itself: from the arrivals and the
 * durations alone it knows when each request would have ended. The lag is how far the service is
 * behind it. Every latency is at most the shadow's plus the largest lag, so while
 *
 *     lag + margin * predicted loss of the op <= (goal - 1) * tail latency of the shadow
 *
 * holds, the tail is at most `goal` times the dedicated one, whatever the op costs. An op that
 * costs the request more than its own time waits until the device is idle. Losses are learned from
 * measured durations (cost/corun.h). With no request in the device every op may run.
 *
 * Source: hafeez-2022 ch. 4 (aim); strati-2024 (Orion's rule), han-2022 (REEF), cui-2021 (Abacus).
 * Thread: any, pure; a ru_gate belongs to one thread. */
#ifndef RU_PLAN_GATE_H
#define RU_PLAN_GATE_H

#include "cost/corun.h"

typedef enum ru_gate_method {
    RU_GATE_LAG,       /* ours */
    RU_GATE_DEDICATED, /* the training has no device */
    RU_GATE_FREE,      /* uncontrolled */
    RU_GATE_SLICES,    /* time slices: one alone, then the other */
    RU_GATE_PRIORITY,  /* no new op while a request is in the device: the plain gate */
    RU_GATE_QUOTA,     /* half of the device for the training at any time */
    RU_GATE_IDLE,      /* as PRIORITY, and the op under way stands still meanwhile */
    RU_GATE_ORION,
    RU_GATE_REEF,
    RU_GATE_ABACUS,
    RU_GATE_ORACLE, /* ours with true losses, which a measurement cannot know */
} ru_gate_method;

typedef struct ru_gate_op {
    ru_op_class cls;
    double units; /* of the device, >= 1 */
    double s;     /* alone, > 0 */
} ru_gate_op;

typedef struct ru_gate_in {
    ru_gate_method method;
    const ru_gate_op *service;  /* [n_service] ops of a request, in order */
    const ru_gate_op *training; /* [n_training] ops of a step, in order */
    uint32_t n_service, n_training;
    double device;   /* units */
    double goal;     /* tail at most so many times the dedicated one, > 1 */
    double quantile; /* of the tail: 0.99 */
    double slo_s;    /* ABACUS: latency of a request; 0: 2.5 times alone */
} ru_gate_in;

enum {
    RU_GATE_LATENCIES = 1024, /* of the shadow that are kept for its tail */
    RU_GATE_AHEAD = 32        /* ops of the request that a decision looks at */
};

typedef struct ru_gate {
    ru_gate_in in;
    ru_corun corun;
    uint8_t *service_kind, *training_kind;  /* [n_service], [n_training] */
    double *left_s;                         /* [n_service + 1] of a request from an op on, alone */
    double tail_s, budget_s;                /* of the shadow; lag that keeps the goal */
    double latency[RU_GATE_LATENCIES];      /* ring: of the shadow */
    uint32_t n_latencies;                   /* ever */
    double shadow_free_s;                   /* when the shadow has ended all requests so far */
    uint32_t waiting;                       /* requests that have not begun */
    bool busy;                              /* a request is in the device, */
    uint32_t op;                            /* in this op, */
    double op_begun_s, predicted_s, lost_s; /* since then; of the request so far */
    double stood_s;                         /* of a request of one op so far, as predicted */
    double granted_s;                       /* ABACUS: time alone of ops still to be issued */
    uint32_t issued;                        /* ops of the training issued and not ended */
    double issued_s, issued_units;          /* of them */
    bool drains;                            /* ORION: waits for them */
} ru_gate;

/* Owner: tables in `arena`. Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_gate_init(ru_gate *g, const ru_gate_in *in, ru_arena *arena, ru_err *err);

/* Times in seconds from any begin, never falling. */
void ru_gate_arrived(ru_gate *g, double now_s);
/* The first waiting request enters the device; it arrived at `arrived_s`. */
void ru_gate_begun(ru_gate *g, double now_s, double arrived_s, uint32_t next_training_op);
/* Op `op` of the request ended; what ran beside it. */
void ru_gate_service_op(ru_gate *g, double now_s, uint32_t op, const ru_corun_overlap *beside,
                        uint32_t n);
void ru_gate_ended(ru_gate *g, double now_s);
/* May op `op` of the training be issued now? Ops before it may still be under way. `true_loss`: of
 * the op beside the request, for ORACLE. Cost: O(RU_GATE_AHEAD). */
bool ru_gate_may(ru_gate *g, double now_s, uint32_t op, double true_loss);
void ru_gate_issued(ru_gate *g, uint32_t op);      /* after ru_gate_may said yes to it */
void ru_gate_training_op(ru_gate *g, uint32_t op); /* ended */
/* Who runs at `now_s`, when both have ops under way; SLICES and IDLE hold one of them up. */
void ru_gate_runs(const ru_gate *g, double now_s, bool *service, bool *training);
/* Seconds that the service is behind its shadow. A request of one op says nothing until it ends:
 * what ran beside it counts as predicted, and beyond the shadow's end time itself. */
double ru_gate_lag_s(const ru_gate *g, double now_s);

/* -- several trainings beside one service ---------------------------------------------------------
 *
 * The lag that keeps the goal is there once, so ops beside a request are those of one training at a
 * time: the one that has lost most progress, where a training alone would run all the time. */

/* Progress lost lately, after `over_s` more seconds in which its ops ran for `ran_s`. */
double ru_gate_lost_s(double lost_s, double over_s, double ran_s);
/* Whose turn is it? lost_s [n], negative: nobody is there; of equals the next one behind `last`. n
 * >= 1. */
uint32_t ru_gate_turn(const double *lost_s, uint32_t n, uint32_t last);

/* -- the plan: a table of what may run beside what ------------------------------------------------
 */

typedef struct ru_gate_pair {
    uint32_t service, op;
    const double *slow; /* [n] measured: time beside it over time alone, > 0 */
    uint32_t n;
} ru_gate_pair;

typedef struct ru_gate_service {
    double solo_s, tail_s; /* of a request alone; tail latency with the device to itself */
    double rate;           /* requests per second */
    uint32_t ops;          /* of a request, >= 1 */
    ru_op_class cls;       /* of most of its time, */
    double units;          /* and what that asks for */
} ru_gate_service;

typedef struct ru_gate_admit_in {
    ru_gate_method method;          /* not ORACLE */
    const ru_gate_service *service; /* [n_services] */
    const ru_gate_op *op;           /* [n_ops] kinds of ops of the training */
    const double *count;            /* [n_ops] of each in a step, > 0 */
    uint32_t n_services, n_ops;     /* at most RU_GATE_CELLS_MAX together multiplied */
    const ru_gate_pair *pair;       /* [n_pairs] what was measured, each pair once */
    uint32_t n_pairs;
    double device, goal;
    double miss;      /* share of measured ops that may lose more than the quantile says */
    double guess;     /* loss of a pair that was not measured */
    double share_min; /* admit the training only when it gets so much of a device */
} ru_gate_admit_in;

enum { RU_GATE_CELLS_MAX = 1 << 20 };

typedef struct ru_gate_cell {
    bool may;
    double loss;   /* quantile: share of the time beside the op that is lost */
    double lost_s; /* by a request beside one such op */
} ru_gate_cell;

typedef struct ru_gate_plan {
    const ru_gate_cell *cell; /* [n_services, n_ops] */
    const double *budget_s;   /* [n_services] lag that keeps the goal */
    const double *beside_s;   /* [n_services] work of the training beside a request */
    const double *lost_s;     /* [n_services] what that costs the request, on average */
    const double *tail_ratio; /* [n_services] tail over the dedicated one; INFINITY: no end */
    uint32_t n_services, n_ops;
    bool admit;
    double busy;  /* share of time that requests are in the device, alone */
    double share; /* of a device that the training gets */
} ru_gate_plan;

/* Owner: cells in `out`. Cost: O(n_services n_ops log n_ops + samples log samples).
 * Errors: RU_E_ARG, RU_E_INFEASIBLE (services need more than the device), RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_gate(const ru_gate_admit_in *in, ru_arena *out, ru_arena *scratch,
                                   ru_gate_plan *plan, ru_err *err);
/* Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_gate_check(const ru_gate_admit_in *in, const ru_gate_plan *plan,
                                         ru_err *err);

#endif
