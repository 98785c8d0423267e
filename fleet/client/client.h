/* A client of a federation: dials out, keeps its data to itself, trains when it is asked to.
 *
 *   main thread:     loop, guest, parcels
 *   compute thread:  opens data and model, trains, evaluates (fleet/local.h)
 *
 * A connection that is lost is made again for as long as the process lives: a client may come
 * before its server and outlive it. Memory: the model's state and activations, one update.
 *
 * Thread: main. */
#ifndef RU_FLEET_CLIENT_CLIENT_H
#define RU_FLEET_CLIENT_CLIENT_H

#include "base/arena.h"

typedef struct ru_fed_client_options {
    const char *address; /* of the server */
    const char *name;
    const uint8_t *key; /* [key_bytes] */
    uint32_t key_bytes;
    const char *data; /* file with the section `data` of a job */
    uint32_t threads; /* that compute; 0: as the job says */
} ru_fed_client_options;

/* Until the job is over, or a stop signal comes. Errors: RU_E_PERM with the server's sentence when
 * it may not take part, RU_E_DATA and RU_E_CONFIG when its data do not fit, RU_E_USER when its
 * training diverges. */
RU_MUST_USE ru_status ru_fed_join(const ru_fed_client_options *opt, ru_arena *arena, ru_err *err);

#endif
