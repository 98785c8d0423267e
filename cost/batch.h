/* The exact law of batch-or-timeout: a buffer takes requests of a Markovian arrival process and
 * dispatches when it holds `batch` of them or `timeout_s` after its first one; each batch is served
 * at once by an instance of its own.
 *
 *   V_j(t): j arrivals in (0, t] by phases; a: phases just after a batch's first request
 *   size b < B, first request:  waits T, mass a V_{b-1}(T) 1
 *   size b < B, k-th:           density at wait T - s: a V_{k-2}(s) D1 V_{b-k}(T - s) 1
 *   size B, first:              P(W <= w) = 1 - sum_{j < B-1} a V_j(w) 1
 *   size B, k-th:               P(W <= w) = int_0^T a V_{k-2}(s) D1 G_{B-k}(min(w, T - s)) ds
 *   latency = wait + service(size)
 *
 * Integrals on a grid whose step follows the largest rate, by a rule of fourth order.
 *
 * Source: ali-2020 (BATCH) for the system; the law is ours. Thread: any, pure. */
#ifndef RU_COST_BATCH_H
#define RU_COST_BATCH_H

#include "cost/math/markov.h"

enum { RU_BATCH_MAX = 64, RU_BATCH_GRID_MAX = 4096 };

/* For one process, batch and timeout; whatever serves the batches. */
typedef struct ru_batch_law {
    uint32_t batch;       /* B */
    double timeout_s;     /* T, or less where every batch is full before */
    double mean_batch;    /* requests in a batch */
    const double *size_p; /* [B + 1] probability of a batch of size b; [0] is 0 */
    uint32_t n_grid;      /* waits 0, step_s, ..., n_grid step_s = timeout_s */
    double step_s;
    const double *seen; /* [B + 1, n_grid + 1] requests of a batch that has size b and that waited
                           at most w, without those that wait out the timeout */
    double rate;        /* arrivals a second */
} ru_batch_law;

/* `fine` multiplies the number of grid points (1: errors below 0.1 %, searches use 0.5).
 * Owner: the law's arrays live in `out`; `scratch` is rewound unless
 * both are one arena. Cost: O(grid B (12 n^3 + B n)).
 * Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_batch_law_of(const ru_markov_law *arrivals, uint32_t batch,
                                      double timeout_s, double fine, ru_arena *out,
                                      ru_arena *scratch, ru_batch_law *law, ru_err *err);

/* Requests of a batch that has size b, 1 <= b <= batch, and that waited at most w, a mean. */
double ru_batch_seen(const ru_batch_law *law, uint32_t b, double w);
/* P(latency <= x) of a request; service_s [B + 1]: seconds of a batch of each size. */
double ru_batch_cdf(const ru_batch_law *law, const double *service_s, double x);
/* The least x with P(latency <= x) >= p; 0 < p < 1. */
double ru_batch_quantile(const ru_batch_law *law, const double *service_s, double p);
/* Mean over batches of f(size) / mean batch: what a request pays of f. f_of [B + 1]. */
double ru_batch_per_request(const ru_batch_law *law, const double *f_of);

/* The published approximation (waits taken as uniform, phases as a ratio of rates): a baseline.
 * Same arguments; needs an MMPP for its phases to make sense. Source: ali-2020 (artefact). */
RU_MUST_USE ru_status ru_batch_law_published(const ru_markov_law *arrivals, uint32_t batch,
                                             double timeout_s, ru_arena *out, ru_arena *scratch,
                                             ru_batch_law *law, ru_err *err);

#endif
