/* A worker's part of the exchange of gradients through a store (fleet/exchange/shards.h).
 *
 * Thread: loop only; a call runs the loop until all bytes are there. */
#ifndef RU_FLEET_EXCHANGE_EXCHANGE_H
#define RU_FLEET_EXCHANGE_EXCHANGE_H

#include "base/arena.h"
#include "env/loop/loop.h"
#include "fleet/exchange/shards.h"

typedef struct ru_exchange ru_exchange;

typedef struct ru_exchange_options { /* texts are view while it is open */
    ru_loop *loop;
    const char *store, *token; /* http://HOST:PORT */
    const char *keys;          /* of bytes elsewhere: redis:// or s3://; "": in the store */
    uint64_t job;
    uint32_t epoch, rank, workers;
    ru_time until; /* requests end then; ns 0: no limit */
} ru_exchange_options;

/* Errors: RU_E_MEM, those of ru_posts_open and ru_keys_open. */
RU_MUST_USE ru_status ru_exchange_open(const ru_exchange_options *opt, ru_arena *arena,
                                       ru_exchange **out, ru_err *err);
void ru_exchange_close(ru_exchange *x); /* NULL is fine */
/* vec[count] becomes the sum over all workers, added in the order of ranks. *last: the last step of
 * the epoch as the store names it; -1: none.
 * Errors: RU_E_CANCELLED: the epoch is over; RU_E_PEER, RU_E_PERM: the store does not answer, or
 * refuses; then the exchange takes no more calls. */
RU_MUST_USE ru_status ru_exchange_sum(ru_exchange *x, int64_t step, float *vec, int64_t count,
                                      int64_t *last, ru_err *err);
/* The state behind `step` steps, of n bytes. Errors: as ru_exchange_sum. */
RU_MUST_USE ru_status ru_exchange_state(ru_exchange *x, int64_t step, void *state, int64_t n,
                                        ru_err *err);

#endif
