/* Serving trained weights to guests (comm/node/guests.h), each with limits of its own.
 *
 * Thread: the loop's. */
#ifndef RU_TRAIN_REMOTE_SERVE_H
#define RU_TRAIN_REMOTE_SERVE_H

#include "train/remote/remote.h"

typedef struct ru_remote_serve_options {
    const ru_remote *weights;
    const char *listen;
    const uint8_t *token; /* [token_bytes] of the guests */
    uint32_t token_bytes;
    uint32_t guests_max; /* 0: 64 */
    /* It listens there now. May be NULL. */
    void (*address)(void *self, const char *address);
    void *self;
} ru_remote_serve_options;

/* Until a stop signal comes. Errors: RU_E_ARG, RU_E_PEER (the address is taken), RU_E_MEM. */
RU_MUST_USE ru_status ru_remote_serve(const ru_remote_serve_options *opt, ru_arena *arena,
                                      ru_err *err);

#endif
