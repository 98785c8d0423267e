/* Using weights that another process serves: the description first, then tensors in the order in
 * which they are needed, while the executable already computes.
 *
 *   ru_fetch_open   connects and gets the description
 *   ru_fetch_ask    asks for tensors by rank; from here on a thread of its own receives
 *   ru_fetch_wait   blocks until a tensor is here
 *
 * Each error is one sentence that names the address: nobody there, another token, another version,
 * a tensor that does not have the hash it was announced with, a server that went or stands still.
 *
 * Thread: the caller's; one of its own receives. */
#ifndef RU_TRAIN_REMOTE_FETCH_H
#define RU_TRAIN_REMOTE_FETCH_H

#include "env/clock.h"
#include "train/remote/remote.h"

typedef struct ru_fetch ru_fetch;

typedef struct ru_fetch_options {
    const char *address;
    const uint8_t *token; /* [token_bytes] */
    uint32_t token_bytes;
} ru_fetch_options;

/* Errors: RU_E_PEER, RU_E_DATA, RU_E_UNSUPPORTED, RU_E_MEM. */
RU_MUST_USE ru_status ru_fetch_open(const ru_fetch_options *opt, ru_fetch **out, ru_err *err);
void ru_fetch_close(ru_fetch *f);                     /* NULL is fine */
const ru_remote *ru_fetch_weights(const ru_fetch *f); /* view until close */

#define RU_FETCH_NO_RANK UINT32_MAX
/* Once. ranks [n] of the tensors in their order, below 65,536; RU_FETCH_NO_RANK: not wanted. */
RU_MUST_USE ru_status ru_fetch_ask(ru_fetch *f, const uint32_t *ranks, ru_err *err);
/* The bytes of tensor i; view until close. Errors: also RU_E_UNSUPPORTED when it was not asked for.
 */
RU_MUST_USE ru_status ru_fetch_wait(ru_fetch *f, uint32_t i, const void **data, ru_err *err);

/* What happened to a tensor; ns 0: it did not. */
typedef struct ru_fetch_times {
    ru_time asked, arrived;
    ru_time needed; /* ru_fetch_wait came */
} ru_fetch_times;
ru_fetch_times ru_fetch_times_of(ru_fetch *f, uint32_t i);

#endif
