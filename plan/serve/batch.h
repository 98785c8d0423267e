/* How large a batch, how long to wait for it, and how much memory the function that serves it gets:
 * the cheapest choice that keeps a latency quantile.
 *
 * Exhaustive over the given grid with the exact law of cost/batch.h; a law depends on (batch,
 * timeout) only, so that all memories share it; it is computed only where the sizes alone, with no
 * wait at all, leave a chance of a cheaper choice. What clipper and `fixed` choose inside the
 * grid's bounds is tried too, so that neither is cheaper. The quantile keeps the objective less a
 * margin.
 *
 * Source: ali-2020 (BATCH); crankshaw-2017 (Clipper), zhang-2019 (MArk): rules to compare with; the
 * law, and that the search is exhaustive, are ours.
 * Cost: laws batch_max * timeouts, each O(grid B); figures at ten times the grid in
 * docs/policies/batch.md. Thread: any, pure. */
#ifndef RU_PLAN_BATCH_H
#define RU_PLAN_BATCH_H

#include "base/conf.h"
#include "cost/batch.h"

typedef enum ru_batch_method {
    RU_BATCH_EXACT,     /* ours */
    RU_BATCH_PUBLISHED, /* the artefact's rule: waits uniform, batch_max fixed */
    RU_BATCH_NONE,      /* every request alone, the best memory */
    RU_BATCH_CLIPPER,   /* the largest batch that is served within the objective: where additive
                           increase and multiplicative decrease swing; hardly any wait */
    RU_BATCH_MARK,      /* the whole wait and the whole batch's service fit the objective */
    RU_BATCH_FIXED,     /* what `fixed` says */
    RU_BATCH_METHODS
} ru_batch_method;

#define RU_BATCH_MARGIN    0.05  /* unless the user says otherwise */
#define RU_BATCH_CLIPPER_S 0.002 /* the wait of RU_BATCH_CLIPPER */

typedef struct ru_batch_choice {
    double memory_mb;
    uint32_t batch;
    double timeout_s;
} ru_batch_choice;

/* Seconds of a batch of k requests with m MB. Polynomial: 10 or 15 coefficients by rising degree,
 * t0 + t1 k + t2 m + t3 k^2 + t4 k m + t5 m^2 + t6 k^3 + t7 m k^2 + t8 k m^2 + t9 m^3 + (k^4, m
 * k^3, m^2 k^2, k m^3, m^4). */
typedef struct ru_batch_in {
    ru_markov arrivals;
    ru_conf_f64s service; /* coefficients */
    /* Measured instead: seconds of 1 to batch_max requests, for memories that begin at
     * measured_from_mb and rise by measured_step_mb. n 0: by coefficients. */
    ru_conf_f64s measured;
    double measured_from_mb, measured_step_mb;
    const double *memory_mb; /* [n_memory] candidates, rising */
    uint32_t n_memory;
    uint32_t batch_max;
    double timeout_max_s, timeout_step_s;
    double slo_s, quantile;
    double margin; /* part of slo_s that is left free for what figures are known to; 0 .. 1 */
    double usd_per_gb_s, usd_per_call, billing_step_s;
    ru_batch_method method;
    ru_batch_choice fixed;
} ru_batch_in;

typedef struct ru_batch_plan {
    ru_batch_choice at;
    double latency_s; /* the quantile, exact law */
    double usd_per_request;
    double mean_batch;
    const double *size_p; /* [batch + 1] */
    double instances;     /* batches that are served at one time, on average */
    uint32_t laws;        /* that were computed */
} ru_batch_plan;

/* What the quantile is kept at: the objective less the margin. */
double ru_batch_limit_s(const ru_batch_in *in);
double ru_batch_service_s(const ru_batch_in *in, uint32_t k, double memory_mb);
/* USD of one call that serves k requests. */
double ru_batch_call_usd(const ru_batch_in *in, uint32_t k, double memory_mb);

/* Is `fixed` one of the offered memories, batches and timeouts? */
bool ru_batch_fixed_fits(const ru_batch_in *in);

/* Owner: plan->size_p in `out`. Errors: RU_E_ARG, RU_E_INFEASIBLE with the least latency that there
 * is, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_batch(const ru_batch_in *in, ru_arena *out, ru_arena *scratch,
                                    ru_batch_plan *plan, ru_err *err);
/* A given choice under the exact law: for runners-up and replays. */
RU_MUST_USE ru_status ru_plan_batch_at(const ru_batch_in *in, const ru_batch_choice *at,
                                       ru_arena *out, ru_arena *scratch, ru_batch_plan *plan,
                                       ru_err *err);
/* The choice is one of the grid, its sizes are a law, its cost is theirs, its latency lies between
 * that without and that with the whole wait, and keeps the objective (exact and none only).
 * Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_batch_check(const ru_batch_in *in, const ru_batch_plan *plan,
                                          ru_err *err);

#endif
