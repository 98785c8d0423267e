/* The server of a federation: keeps the model, chooses clients, averages what they learned
 * (fleet/fed.h has the rounds, train/driver/rounds.h the run).
 *
 *   main thread:  ru_train_rounds: checkpoints, evaluations, reports
 *   loop thread:  guests, parcels, the step machine, the sum
 *
 * Clients come at any time and go at any time. What a client sends is checked before it counts; a
 * client that sends what nobody may send is refused with a sentence and the round goes on.
 * Memory: the model, the values of the last rounds that are still on their way (RU_FED_EDITIONS of
 * them; when there are more, connections that still wait for old ones are closed), one f64 sum, and
 * RU_FED_BODIES updates that are arriving, or RU_FED_BODIES_BYTES of them.
 *
 * Thread: main. */
#ifndef RU_FLEET_SERVER_H
#define RU_FLEET_SERVER_H

#include "fleet/fed.h"
#include "fleet/wire.h"
#include "train/driver/rounds.h"

enum { RU_FED_EDITIONS = 4, RU_FED_EDITIONS_MAX = 64, RU_FED_BODIES = 8 };
#define RU_FED_BODIES_BYTES \
    INT64_C(16000000) /* more than RU_FED_BODIES, if so many bytes hold more */

typedef struct ru_fed_serve_options {
    const ru_train_options *train; /* its job's train.steps are the rounds */
    const char *listen;            /* host:port */
    const char *secret; /* file from which the keys of all clients are derived; made when missing */
} ru_fed_serve_options;

/* The key of a client. Errors: RU_E_USAGE for a name that is none; those of ru_secret_key. */
RU_MUST_USE ru_status ru_fed_key(const char *secret, const char *name,
                                 uint8_t key[RU_FED_KEY_BYTES], ru_err *err);

/* Until all rounds are done or a stop signal comes. Errors: those of ru_train_rounds; RU_E_PEER
 * (the address is taken). */
RU_MUST_USE ru_status ru_fed_serve(const ru_fed_serve_options *opt, ru_arena *arena,
                                   ru_train_result *out, ru_err *err);

#endif
