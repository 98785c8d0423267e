/* What one buffer of `route` costs at least, whatever its timeout. Thread: main only. */
#ifndef RU_BENCH_REPLAY_ROUTE_BOUND_H
#define RU_BENCH_REPLAY_ROUTE_BOUND_H

#include "plan/serve/route.h"

/* USD of a request of a buffer that takes `share` [n_classes] of all requests, over every memory,
 * batch size and timeout up to timeout_max_s; at most `most`, a cost that is reached.
 * Errors: of ru_markov_solve, RU_E_LIMIT. */
RU_MUST_USE ru_status rui_route_bound(const ru_route_in *in, const double *share, double most,
                                      ru_arena *scratch, double *usd, ru_err *err);

#endif
