/* What the methods of `pick` share. Thread: any, pure. */
#ifndef RU_PLAN_PICK_IMPL_H
#define RU_PLAN_PICK_IMPL_H

#include "base/rng.h"
#include "plan/fleet/pick.h"

/* Move `k` of pool [n] to its front, all sets equally likely. */
void rui_pick_some(ru_rng *rng, uint32_t *pool, uint32_t n, uint32_t k);
/* The same, one after the other with chances by weight [clients]; who has none comes last. */
void rui_pick_weighted(ru_rng *rng, const double *weight, uint32_t *pool, uint32_t n, uint32_t k);
/* Methods that look at each client: the chosen ones move to the front of pool [n]; their number.
 * scratch holds 3 n doubles and 2 n indexes. */
RU_MUST_USE ru_status rui_pick_clients(const ru_pick_in *in, ru_rng *rng, uint32_t *pool,
                                       uint32_t n, ru_arena *scratch, uint32_t *chosen,
                                       ru_err *err);

#endif
