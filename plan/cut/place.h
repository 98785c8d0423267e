/* Where the operators of one step run and in which order they and their transfers start, so that
 * the step ends as early as can be: devices and both directions of each link do one thing at a
 * time, memory fits.
 *
 *   gpu0  |op 0|op 2    |          |op 5|        an edge between two devices is a transfer; it
 * holds 0->1      |0-1|       |4-5|<--              its link direction from start to end gpu1 | |op
 * 1|op 4   |
 *
 * Ours takes the best of every list heuristic and of an annealed search over (device of each unit,
 * order of ops), on a coarser graph first when there are many ops; a small graph goes through an
 * integer program after that, which proves the optimum or a bound. All budgets count work.
 *
 * Longer than other policies: six published baselines with the list scheduler that they share, and
 * the search at two sizes of graph.
 *
 * Source: pesto-2021 sec 3 and 4 (problem, program, coarsening); baechi-2020 (m-TOPO, m-ETF,
 * m-SCT); topcuoglu-2002 (HEFT); tarnawski-2020 (splits by load). Thread: any, pure. */
#ifndef RU_PLAN_PLACE_H
#define RU_PLAN_PLACE_H

#include "base/arena.h"
#include "world/solver.h"

enum {
    RU_PLACE_OPS_MAX = 1 << 16,
    RU_PLACE_EDGES_MAX = 1 << 20,
    RU_PLACE_VALUES_MAX = 1 << 16,
    RU_PLACE_DEVICES_MAX = 64,
    RU_PLACE_ANY = -1,
};

typedef enum ru_place_method {
    RU_PLACE_SEARCH,
    RU_PLACE_SINGLE, /* the one device that is fastest */
    RU_PLACE_TOPO,   /* m-TOPO: fill devices in topological order */
    RU_PLACE_ETF,    /* m-ETF: earliest start first, planned without contention on links */
    RU_PLACE_SCT,    /* m-SCT: the same with favourite children from a linear program */
    RU_PLACE_HEFT,   /* by rank, earliest finish, with contention on links */
    RU_PLACE_SPLIT,  /* consecutive parts of a topological order, least load of the fullest */
    RU_PLACE_LOAD,   /* least load of the fullest device, by local search, whatever the order */
    RU_PLACE_GIVEN,  /* the placement that the input names */
    RU_PLACE_METHODS,
} ru_place_method;

typedef struct ru_place_op {
    int64_t time_ns; /* >= 0 on a device of speed 1 */
    int64_t bytes;   /* >= 0 that its device keeps for it during the step */
    int32_t group;   /* ops of one group share a device; RU_PLACE_ANY: of none */
    int32_t pin;     /* device it must run on; RU_PLACE_ANY: any */
    int32_t given;   /* device in a placement to compare with; RU_PLACE_ANY: unknown */
} ru_place_op;

typedef struct ru_place_edge {
    uint32_t from, to;
    int64_t time_ns; /* >= 0 of the transfer when both are apart, as measured */
    int64_t bytes;   /* >= 0 sent then: latency and bytes / bandwidth of the link come on top */
    uint32_t value; /* edges of one op with the same number carry one tensor, which goes to a device
                       once, for all readers there; 0: a tensor of its own */
} ru_place_edge;

typedef struct ru_place_device {
    int64_t memory_bytes; /* 0: no bound */
    double speed;         /* 0.01 .. 100 times that of op times */
} ru_place_device;

typedef struct ru_place_link {
    uint32_t from, to; /* devices; one direction */
    int64_t latency_ns;
    double bytes_per_s; /* > 0 */
} ru_place_link;

typedef struct ru_place_in {
    const ru_place_op *ops;     /* [n] */
    uint32_t n;                 /* 1 .. RU_PLACE_OPS_MAX */
    const ru_place_edge *edges; /* [n_edges]; no circle */
    uint32_t n_edges;
    const ru_place_device *devices; /* [n_devices] */
    uint32_t n_devices;
    int64_t latency_ns; /* of links that `links` does not name */
    double bytes_per_s;
    double byte_ns; /* >= 0 for which each byte of a transfer keeps both of its devices from ops, at
                       speed 1; the writer and the first reader take so much longer */
    const ru_place_link *links; /* [n_links] of another latency or bandwidth */
    uint32_t n_links;
    ru_place_method method;
    int64_t work_max;    /* ops and edges that the search may visit */
    int64_t nodes_max;   /* of the integer program; 0: none is solved */
    uint32_t coarse_ops; /* a graph with more ops is searched with so many first */
    uint64_t seed;
} ru_place_in;

/* What proves the bound. */
typedef enum ru_place_proof {
    RU_PLACE_BY_PATH,    /* the longest path */
    RU_PLACE_BY_WORK,    /* work of ops between two instants, over all devices */
    RU_PLACE_BY_MEMORY,  /* what a device can hold limits what it can compute */
    RU_PLACE_BY_PROGRAM, /* the integer program */
} ru_place_proof;

/* What became of the integer program. */
typedef enum ru_place_program {
    RU_PLACE_NOT_NEEDED, /* the bound was met before, or the method is a baseline */
    RU_PLACE_TOO_LARGE,  /* or with byte_ns or values, which it does not know */
    RU_PLACE_NO_SOLVER,
    RU_PLACE_PROVEN,
    RU_PLACE_ENDED, /* by its budget */
} ru_place_program;

typedef struct ru_place_plan {
    const uint32_t *device;  /* [n_ops] */
    const int64_t *start_ns; /* [n_ops] */
    const int64_t *took_ns;  /* [n_ops] on its device, with its transfers' byte_ns */
    const int64_t *send_ns;  /* [n_edges] start of the transfer; -1: both ops are on one device */
    uint32_t n_ops, n_edges;
    int64_t step_ns;
    int64_t bound_ns; /* no plan is shorter */
    ru_place_proof proof;
    ru_place_program program;
    ru_place_method
        from;       /* the heuristic whose plan stayed the best; RU_PLACE_SEARCH: the search */
    uint32_t units; /* ops that may move on their own */
    int64_t work;   /* visited */
} ru_place_plan;

/* `solver` may be NULL: m-SCT is then not there, and ours has neither it nor the program.
 * Owner: arrays of `plan` in `out`. Cost: work_max steps of some ns for ours;
 * docs/policies/place.md for the rest. Errors: RU_E_ARG, RU_E_INFEASIBLE when no placement fits,
 * RU_E_UNSUPPORTED without a solver that the method needs, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_place(const ru_place_in *in, const ru_solver *solver, ru_arena *out,
                                    ru_arena *scratch, ru_place_plan *plan, ru_err *err);

/* Plays the plan: every op and transfer from its start, devices and link directions one at a time,
 * inputs there before, memory, groups and pins kept, figures those of the input. Shares no code
 * with the planner. Cost: O((n + edges) log). Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_place_check(const ru_place_in *in, const ru_place_plan *plan,
                                          ru_arena *scratch, ru_err *err);

#endif
