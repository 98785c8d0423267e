/* Requests of an arrival process through the server's step machine (serve/serve.h) in the
 * simulator's event queue.
 *
 * Thread: one. */
#ifndef RU_BENCH_REPLAY_SERVE_H
#define RU_BENCH_REPLAY_SERVE_H

#include "base/arena.h"
#include "cost/math/markov.h"
#include "function/pool.h"
#include "serve/serve.h"

typedef struct rui_serve_in {
    ru_markov arrivals;
    const int64_t *given_ns; /* [requests] in order, from 0: arrivals of a real run; NULL: drawn */
    ru_serve_table table;
    const double *class_share; /* [n_classes] of the requests */
    const double *class_size;  /* [n_classes] latencies are divided by it; NULL: 1 */
    /* Seconds and USD of a batch. */
    double (*service_s)(const void *self, uint32_t n, uint32_t largest, double memory_mb);
    double (*usd)(const void *self, uint32_t n, uint32_t largest, double memory_mb);
    const void *self;
    uint32_t requests;
    uint32_t instances_max;
    bool functions; /* batches are calls of so many function instances, which start at once */
    uint64_t seed;
} rui_serve_in;

typedef struct rui_serve_out {
    double *latency; /* [n] seconds (per unit of size), in order of the answers */
    uint8_t *phase;  /* [n] of the process just after the request's arrival */
    uint16_t *batch; /* [n] requests in its batch */
    uint32_t n;
    double usd_per_request, mean_batch;
    double gb_s; /* that functions bill */
} rui_serve_out;

/* Owner: latency in `arena`. Errors: of the simulator, RU_E_LIMIT. */
RU_MUST_USE ru_status rui_serve_run(const rui_serve_in *in, ru_arena *arena, rui_serve_out *out,
                                    ru_err *err);

enum { RUI_SERVE_LEVELS = 3 };

/* Quantiles of latency and means of the same server, from as many runs as the errors need. */
typedef struct rui_serve_law {
    double quantile[RUI_SERVE_LEVELS];
    double error[RUI_SERVE_LEVELS]; /* standard error of the quantile over the quantile */
    double mean_batch, usd_per_request;
    uint32_t runs;
} rui_serve_law;

/* Estimates `levels` until every error is at most error_max, or from runs_max runs of in->requests.
 * Requests count by the phase they arrive in, each phase with its share in the steady state
 * (post-stratification): how often a slow process changes its rate in a run does not matter.
 * The error comes from means of blocks of requests.
 * Source: cochran-1977 (5A.9, ratio estimates of strata). Errors: of rui_serve_run. */
RU_MUST_USE ru_status rui_serve_estimate(const rui_serve_in *in,
                                         const double levels[RUI_SERVE_LEVELS], double error_max,
                                         uint32_t runs_max, ru_arena *arena, rui_serve_law *out,
                                         ru_err *err);

#endif
