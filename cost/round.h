/* How long a synchronous round of federated learning lasts: `drawn` of n clients get a task, each
 * of them equally likely, and the round ends with the `wait`-th answer or at the deadline.
 *
 *   without jitter   P(the answer is the i-th fastest client's) =
 *                    binom(i-1, wait-1) binom(n-i, drawn-wait) / binom(n, drawn)
 *   with jitter      P(b of the drawn answer by x), each client by its P(log-normal <= x); the mean
 *                    by integration over x
 *
 * Up to RU_ROUND_EXACT_MAX drawn that is a recursion over clients. For more, with q = drawn / n:
 *
 *   P(all answer by x) = exp(drawn ((1 - q) log mean F + q mean log F))
 *
 * which is exact for few of many and for all of them; for `wait` below `drawn` the normal law of a
 * count without replacement. Of more than 4096 clients every so many-th of them in order of latency
 * stands for its neighbours.
 *
 * Source: david-nagaraja-2003 ch. 3 (order statistics of finite populations); the use is ours, the
 * published estimate is the mean of a tier (chai-2020). Thread: any, pure. */
#ifndef RU_COST_ROUND_H
#define RU_COST_ROUND_H

#include "base/arena.h"

enum { RU_ROUND_DRAWN_MAX = 1024, RU_ROUND_EXACT_MAX = 64 };

typedef struct ru_round_in {
    const double *latency_s; /* [n] means, > 0 */
    uint32_t n;
    double spread;        /* deviation of the logarithm of a client's latency; 0: no jitter */
    uint32_t drawn, wait; /* 1 <= wait <= drawn <= n, drawn <= RU_ROUND_DRAWN_MAX */
    double deadline_s;    /* 0: none */
} ru_round_in;

/* Mean seconds of a round. Cost: O(n log n), with jitter O(256 n drawn^2), for wait = drawn
 * O(256 n drawn), beyond RU_ROUND_EXACT_MAX O(n log n + 256 min(n, 4096)). Errors: RU_E_ARG,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_round_mean(const ru_round_in *in, ru_arena *scratch, double *seconds,
                                    ru_err *err);

#endif
