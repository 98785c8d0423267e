/* The own store of training on functions: bytes in the memory of this process, over HTTP.
 *
 *   POST /put   keys and bytes (shards.h)     200; waits while the step is too far ahead
 *   POST /get   keys                          200 and the bytes, when all are there
 *   409: the key is of an older epoch         401: another token
 *
 * It holds one epoch of one job. The first put of a key counts, a second one changes nothing: a
 * platform may run a call twice. Memory: what the steps of the window put.
 *
 * Thread: loop only. */
#ifndef RU_FLEET_EXCHANGE_STORE_H
#define RU_FLEET_EXCHANGE_STORE_H

#include "env/loop/loop.h"
#include "fleet/exchange/shards.h"

typedef struct ru_store ru_store;

typedef struct ru_store_options {
    ru_loop *loop;
    const char *listen; /* as ru_http_options */
    const char *token;  /* of every request */
    uint64_t job;
    uint32_t workers_max;
    /* A key was put for the first time; the bytes are view. May fence and put. */
    void (*put)(void *self, const ru_shard_key *key, const void *data, int64_t size_bytes);
    void (*drop)(void *self, const ru_shard_key *key); /* it is dropped; may be NULL */
    void *self;
} ru_store_options;

/* Errors: those of ru_http_open. */
RU_MUST_USE ru_status ru_store_open(const ru_store_options *opt, ru_arena *arena, ru_store **out,
                                    ru_err *err);
void ru_store_close(ru_store *s);                /* NULL is fine */
const char *ru_store_address(const ru_store *s); /* host:port */

/* This epoch from now on, and nothing that was put before. 0: none. */
void ru_store_epoch(ru_store *s, uint32_t epoch);
/* Keys of steps below `low` are dropped, those of steps from `high` on wait. */
void ru_store_window(ru_store *s, int64_t low, int64_t high);
/* Every answer from now on names this step as the last of its epoch; -1: none. */
void ru_store_last(ru_store *s, int64_t step);
/* As a request does; copied. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_store_put(ru_store *s, const ru_shard_key *key, const void *data,
                                   int64_t size_bytes, ru_err *err);

#endif
