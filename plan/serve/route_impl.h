/* The search of one buffer, shared by the files of plan/serve/route*.c. Thread: any, pure. */
#ifndef RU_PLAN_ROUTE_IMPL_H
#define RU_PLAN_ROUTE_IMPL_H

#include "plan/serve/route.h"

typedef struct rui_route_best {
    bool found;
    int64_t cost; /* 1e-18 USD a request of all */
    double instances;
    uint32_t memory, batch, timeout; /* timeout: in steps */
} rui_route_best;

typedef struct rui_route_search {
    const ru_route_in *in;
    ru_arena *out, *scratch;
    const double *usd;     /* [n_memory, n_classes, batch_max] of a call */
    const double *allow_s; /* [n_classes] longest latency */
    uint32_t n_timeouts;   /* steps; 0 is the timeout of single requests */
    uint32_t searched, laws;
} rui_route_search;

RU_MUST_USE ru_status rui_route_open(const ru_route_in *in, ru_arena *out, ru_arena *scratch,
                                     rui_route_search *s, ru_err *err);
/* The cheapest choice for a buffer that takes share [n_classes]. */
RU_MUST_USE ru_status rui_route_best_of(rui_route_search *s, const double *share,
                                        rui_route_best *best, ru_err *err);
/* All figures of a choice. */
RU_MUST_USE ru_status rui_route_figures(rui_route_search *s, const double *share,
                                        const rui_route_best *at, ru_route_buffer *b, ru_err *err);

#endif
