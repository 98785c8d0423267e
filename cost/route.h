/* A buffer that takes requests of several classes of sizes: a batch is padded to its largest
 * member. The class of a request does not depend on when it comes. F_k: part of the buffer's
 * requests of class k or smaller.
 *
 *   P(largest of b <= k) = F_k^b
 *   P(largest of b = j | one of them is of class k) = F_j^(b-1) - F_(j-1)^(b-1) for j > k,
 *                                                     F_k^(b-1) for j = k
 *
 * Source: ali-2022 (MBS) for the system; the closed forms are ours. Thread: any, pure. */
#ifndef RU_COST_ROUTE_H
#define RU_COST_ROUTE_H

#include "cost/batch.h"

enum { RU_ROUTE_CLASSES_MAX = 64 };

typedef struct ru_route_mix {
    uint32_t n;                              /* classes with requests, by rising size */
    uint32_t class_of[RU_ROUTE_CLASSES_MAX]; /* their numbers outside */
    double p[RU_ROUTE_CLASSES_MAX];          /* of the buffer's requests; sum 1 */
    double share;                            /* of all requests */
    uint32_t batch_max;
    const double *power; /* [batch_max + 1, n]: F_k^b */
} ru_route_mix;

/* share [n]: of all requests, that the buffer takes; n <= RU_ROUTE_CLASSES_MAX.
 * Owner: power in `arena`. Errors: RU_E_ARG for no requests, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_route_mix_of(const double *share, uint32_t n, uint32_t batch_max,
                                      ru_arena *arena, ru_route_mix *mix, ru_err *err);
/* P(largest of b = class j of the mix). */
double ru_route_largest(const ru_route_mix *mix, uint32_t b, uint32_t j);
/* Mean over batches of b of f(b, largest). f_of [classes outside, batch_max], b = 1 first. */
double ru_route_mean(const ru_route_mix *mix, uint32_t b, const double *f_of);

/* Part of the requests in batches of b that are served in time, all of them having waited `wait_s`.
 * service_s: as f_of above; allow_s [classes outside]: longest latency. */
double ru_route_kept(const ru_route_mix *mix, uint32_t b, const double *service_s,
                     const double *allow_s, double wait_s);
/* Part of the requests that are served in time, waits by `law`; by_class [mix->n]: of each class.
 * Cost: O(n^2 B). */
double ru_route_met(const ru_route_mix *mix, const ru_batch_law *law, const double *service_s,
                    const double *allow_s, double *by_class);

/* Sizes of batches under every limit and timeout at once: into[k, B, b] = P(size = b) for batches
 * of at most B and a timeout of k step_s, 1 <= k <= n_steps; [0, 1, 1] is 1, a batch of one does
 * not wait. No law of waits: cheaper by the grid. Shape: into [n_steps + 1, batch_max + 1,
 * batch_max + 1], zeroes before. Cost: O(n_steps B^2 n^3). Errors: of ru_markov_count. */
RU_MUST_USE ru_status ru_route_sizes(const ru_markov_law *arrivals, uint32_t batch_max,
                                     double step_s, uint32_t n_steps, ru_arena *scratch,
                                     double *into, ru_err *err);

#endif
