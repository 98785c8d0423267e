/* The number of buffers in front of functions, the sizes of requests of each buffer, and its
 * memory, batch size and timeout: the cheapest choice that meets the latency per unit of size.
 *
 * One buffer: every (memory, batch, timeout) of the grid is costed in closed form (cost/route.h);
 * those that no wait could spoil or save are settled by bounds; the rest, cheapest first, by the
 * exact law of cost/batch.h. Cuts: dynamic program over the classes in order of size; tables of
 * equal shares and widths that are cheaper are taken.
 *
 * Source: ali-2022 (MBS); the exact law, the exhaustive search and the cuts are ours.
 * Cost: n (n + 1) / 2 buffers for n classes; figures in docs/policies/route.md. Thread: any,
 * pure. */
#ifndef RU_PLAN_ROUTE_H
#define RU_PLAN_ROUTE_H

#include "cost/route.h"

typedef enum ru_route_method {
    RU_ROUTE_CUTS,   /* ours: cuts of whole classes, or equal or width where they are cheaper */
    RU_ROUTE_EQUAL,  /* by size, equal shares of requests; a class may be split (published) */
    RU_ROUTE_WIDTH,  /* by size, bins of equal width */
    RU_ROUTE_RANDOM, /* every buffer takes all classes alike */
    RU_ROUTE_SINGLE, /* one buffer */
    RU_ROUTE_NONE,   /* every request alone */
} ru_route_method;

typedef struct ru_route_in {
    ru_markov arrivals;
    uint32_t n_classes;
    const double *size;      /* [n_classes] rising, > 0 */
    const double *share;     /* [n_classes] of the requests, > 0, sum 1 */
    const double *memory_mb; /* [n_memory] */
    uint32_t n_memory;
    uint32_t batch_max;
    const double *service_s; /* [n_memory, n_classes, batch_max]: b requests, largest of class k */
    double timeout_max_s, timeout_step_s;
    double slo_s; /* latency per unit of size; with per_request of a request */
    double quantile;
    uint32_t per_request; /* 0: sizes have latencies in proportion; 1: every size has the same */
    uint32_t by_class;    /* 1: the quantile holds for every class; 0: over a buffer's requests */
    double usd_per_gb_s, usd_per_call, billing_step_s;
    uint32_t buffers_max;
    uint32_t buffers;     /* exactly so many; 0: the best number up to buffers_max */
    double instances_max; /* on average at one time, all buffers together */
    ru_route_method method;
} ru_route_in;

typedef struct ru_route_buffer {
    uint32_t memory; /* number of it */
    uint32_t batch;
    double timeout_s;
    double share; /* of all requests */
    double usd_per_request, mean_batch, instances;
    double latency_s;     /* the quantile of latency / size, or of latency */
    double met;           /* part of its requests within slo_s */
    double least_met;     /* the same of the class that fares worst */
    double padding;       /* (padded - real) / real size */
    const double *size_p; /* [batch + 1] */
} ru_route_buffer;

typedef struct ru_route_plan {
    uint32_t n;
    const ru_route_buffer *buffers; /* [n] */
    const double *share;            /* [n, n_classes] of all requests: the routing table */
    double usd_per_request, instances, met, padding;
    uint32_t searched; /* buffers that were optimised */
    uint32_t laws;     /* that were computed */
} ru_route_plan;

/* Longest latency of a request of class k where x is what slo_s says. */
double ru_route_allow_s(const ru_route_in *in, uint32_t k, double x);
/* USD of a batch of b whose largest member is of class k. */
double ru_route_call_usd(const ru_route_in *in, uint32_t memory, uint32_t k, uint32_t b);
/* The routing table of a method that does not search: n rows, of which empty ones have no share.
 * Shape: into [n, n_classes]. */
void ru_route_table(const ru_route_in *in, ru_route_method method, uint32_t n, double *into);

/* Owner: the plan's arrays in `out`. Errors: RU_E_ARG, RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_route(const ru_route_in *in, ru_arena *out, ru_arena *scratch,
                                    ru_route_plan *plan, ru_err *err);
/* Every class is routed, choices are of the grid, costs and padding follow from sizes, times
 * lie between those without and those with the whole wait and keep the objective.
 * Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_route_check(const ru_route_in *in, const ru_route_plan *plan,
                                          ru_err *err);

#endif
