/* What rounds of clipped, noisy sums tell about one client: Renyi differential privacy.
 *
 * Two inputs are neighbours when the record of one client is replaced by any other. A round draws a
 * part `share` of the clients without replacement and adds normal noise, whose deviation is `noise`
 * times what one record can change. Renyi divergences of rounds add up; the account holds their sum
 * for every order and becomes an epsilon for a delta.
 *
 *   share 1      order / (2 noise^2)
 *   share q < 1  log(1 + sum over j from 2 to order of C(order, j) q^j term(j)) / (order - 1),
 *                term(j) = min(2 m(j), 4 sqrt(d(2 floor(j/2)) d(2 ceil(j/2)))),
 *                m(j) = exp(j (j - 1) / (2 noise^2)), d(j) = E[(r - 1)^j], r the likelihood ratio
 *                of two normal laws; orders that are not whole by interpolation; never above
 *                that of share 1
 *
 * Source: wang-2019 (theorem 9, sampling without replacement); mironov-2017; canonne-2020 (epsilon
 * from orders). Cost: 256^2 / 2 terms for a share that is new, else O(orders).
 * Thread: one at a time, pure. */
#ifndef RU_COST_PRIVACY_H
#define RU_COST_PRIVACY_H

#include "base/arena.h"

enum { RU_PRIVACY_ORDERS = 336 };

typedef struct ru_privacy ru_privacy;

/* noise: 0.05 to 1e6. Owner: in `arena`. Errors: RU_E_ARG, RU_E_MEM. */
RU_MUST_USE ru_status ru_privacy_open(double noise, ru_arena *arena, ru_privacy **out, ru_err *err);
/* One more round; 0 < share <= 1, the largest chance of a client to be in it. */
void ru_privacy_add(ru_privacy *p, double share);
/* Of all rounds so far; 0 < delta < 1. With `share` above 0 as if one more such round had been. */
double ru_privacy_epsilon(ru_privacy *p, double delta, double share);
/* What `rounds` rounds tell about a client that was in each of them, where everybody knows that it
 * was: no sampling hides it. Of a noise as ru_privacy_open takes it. */
double ru_privacy_known(double noise, double rounds, double delta);
/* The account itself, to be kept: the divergence of each order. */
double *ru_privacy_orders(ru_privacy *p); /* [RU_PRIVACY_ORDERS] */

#endif
