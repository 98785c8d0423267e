/* How fast a burstable machine should run: throttle its resources so that their credits last,
 * while a latency quantile keeps its objective.
 *
 * Latency is a quantile regression on what a profile measured, over the mean service and waiting
 * times of a queue (cost/closed.h) at each load and speed. Every point of a grid of speeds is
 * tried: the least use of credits, each by its cap, that keeps the objective. When speed saves
 * nothing (requests that come at a rate of their own need the same credits at any speed) it stands
 * down.
 *
 * Source: ali-2018 (CEDULE, throttling by quantile regression); ali-2021 (several resources). The
 * features and standing down are ours. Thread: any, pure. */
#ifndef RU_PLAN_BURST_H
#define RU_PLAN_BURST_H

#include "base/arena.h"
#include "cost/closed.h"
#include "cost/credit.h"

enum {
    RU_BURST_RESOURCES_MAX = 3,
    RU_BURST_FEATURES_MAX = 1 + 3 * RU_BURST_RESOURCES_MAX,
    RU_BURST_SPEEDS_MAX = 20,
    RU_BURST_CLIENTS_MAX = 4096,
};

typedef enum ru_burst_method {
    RU_BURST_MODEL, /* ours */
    RU_BURST_NONE,  /* full speed: what providers do */
    RU_BURST_HALF,  /* everything at half speed */
    RU_BURST_FIRST, /* ours on the first resource alone */
} ru_burst_method;

typedef enum ru_burst_action {
    RU_BURST_THROTTLE,
    RU_BURST_STAND_DOWN, /* full speed: nothing to save */
    RU_BURST_SWITCH,     /* another machine is needed: late even at full speed, or soon empty */
} ru_burst_action;

typedef struct ru_burst_resource {
    const char *name; /* for the report */
    ru_credit_rules rules;
    ru_credit now;
    double need;      /* tokens of a request */
    uint32_t servers; /* that share `burst`: vCPUs */
} ru_burst_resource;

typedef struct ru_burst_load {
    bool open;
    double rate; /* open: requests per second */
    uint32_t clients;
    double think_s;
} ru_burst_load;

/* One request of a profile. */
typedef struct ru_burst_sample {
    double load; /* clients, or requests per second */
    double speed[RU_BURST_RESOURCES_MAX];
    double latency_s;
} ru_burst_sample;

typedef struct ru_burst_in {
    struct {                               /* a pair as ru_conf_sections */
        const ru_burst_resource *resource; /* [n] */
        uint32_t n;
    };
    ru_burst_load load;
    struct {                 /* a pair as ru_conf_f64s */
        const double *model; /* [ru_burst_features_n] coefficients */
        uint32_t n_model;    /* of a file */
    };
    double slo_s, quantile, margin, gain_min, reserve_s;
    double speed_min;
    uint32_t speeds; /* grid from speed_min to 1; 1: full speed alone */
    ru_burst_method method;
} ru_burst_in;

typedef struct ru_burst_plan {
    ru_burst_action action;
    double speed[RU_BURST_RESOURCES_MAX]; /* of burst, 0 < speed <= 1 */
    double use[RU_BURST_RESOURCES_MAX];   /* tokens per second */
    double
        empty_s[RU_BURST_RESOURCES_MAX]; /* time until its credits are used up; INFINITY: never */
    double rate;                         /* requests per second */
    double latency_s;                    /* the quantile */
    double spend;                        /* sum of use / cap, per second */
    uint32_t n;                          /* resources */
    double stretch; /* least time to empty over that at full speed; 1 when neither ends */
} ru_burst_plan;

/* Coefficients of the model of n resources: a constant, then of each resource service, waiting time
 * and the root of their product. */
uint32_t ru_burst_features_n(uint32_t n);
/* false: the load is more than these speeds can serve. */
bool ru_burst_features(const ru_burst_resource *r, uint32_t n, const ru_burst_load *load,
                       const double *speed, double *x, ru_queue_mean *mean);
/* Fit the quantile of a profile's latencies; coefficients are >= 0, so latency rises with load and
 * falls with speed. Owner: *model in `out`. Cost: O(m) queues. Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_burst_fit(const ru_burst_resource *r, uint32_t n,
                                   const ru_burst_load *load, const ru_burst_sample *samples,
                                   uint32_t m, double quantile, ru_arena *out, ru_arena *scratch,
                                   const double **model, ru_err *err);

/* Cost: speeds^n queues. Errors: RU_E_INFEASIBLE when full speed cannot serve an open load. */
RU_MUST_USE ru_status ru_plan_burst(const ru_burst_in *in, ru_burst_plan *plan, ru_err *err);
/* Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_burst_check(const ru_burst_in *in, const ru_burst_plan *plan,
                                          ru_err *err);

#endif
