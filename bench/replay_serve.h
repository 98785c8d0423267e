/* Requests of an arrival process through the server's step machine (serve/serve.h) in the
 * simulator's event queue.
 *
 * Thread: one. */
#ifndef RU_BENCH_REPLAY_SERVE_H
#define RU_BENCH_REPLAY_SERVE_H

#include "base/arena.h"
#include "cost/markov.h"
#include "serve/serve.h"

typedef struct rui_serve_in {
    ru_markov arrivals;
    ru_serve_table table;
    const double *class_share; /* [n_classes] of the requests */
    const double *class_size;  /* [n_classes] latencies are divided by it; NULL: 1 */
    /* Seconds and USD of a batch. */
    double (*service_s)(const void *self, uint32_t n, uint32_t largest, double memory_mb);
    double (*usd)(const void *self, uint32_t n, uint32_t largest, double memory_mb);
    const void *self;
    uint32_t requests;
    uint32_t instances_max;
    uint64_t seed;
} rui_serve_in;

typedef struct rui_serve_out {
    double *latency; /* [n] seconds (per unit of size), in order of the answers */
    uint32_t n;
    double usd_per_request, mean_batch;
} rui_serve_out;

/* Owner: latency in `arena`. Errors: of the simulator, RU_E_LIMIT. */
RU_MUST_USE ru_status rui_serve_run(const rui_serve_in *in, ru_arena *arena, rui_serve_out *out,
                                    ru_err *err);

#endif
