/* An arrival process from a trace: two phases, fitted to three moments of the interarrival times
 * and to the decay of their autocorrelation. Nearly memoryless traces become Poisson, steadier ones
 * Erlang.
 *
 *   c2 = m2/m1^2 - 1;  c2 <= 1.02 or fewer than 1,000 times: Poisson;  c2 < 0.9: Erlang of
 * round(1/c2) else two exponential laws with rates from m1, m2, m3 (balanced means where these do
 * not fit) and gamma = exp(sum k ln(rho_k / a) / sum k^2), a = (1 - 1/c2)/2, over lags with rho_k >
 * 0
 *
 * Source: the H2 moment fit of whitt-1982; the decay fit is ours. Thread: any, pure. */
#ifndef RU_COST_ARRIVE_H
#define RU_COST_ARRIVE_H

#include "cost/math/markov.h"

typedef enum ru_arrive_kind { RU_ARRIVE_POISSON, RU_ARRIVE_ERLANG, RU_ARRIVE_TWO } ru_arrive_kind;

typedef struct ru_arrive_fit {
    ru_arrive_kind kind;
    ru_markov process;
    double mean_s, scv; /* of the interarrival times */
    double gamma;       /* decay of their correlation; 0: none found */
    uint32_t n;         /* interarrival times */
} ru_arrive_fit;

/* gap_s [n]: interarrival times in order, >= 0, not all 0. Cost: O(8 n).
 * Errors: RU_E_ARG (n < 2, a negative or not finite time). */
RU_MUST_USE ru_status ru_arrive_of(const double *gap_s, uint32_t n, ru_arrive_fit *out,
                                   ru_err *err);

#endif
