/* A client of a federation that trains as `rubato train` does: opens its data and the model of the
 * server, trains when it is asked to (fleet/local.h), scores what it holds out. A connection that
 * is lost is made again. Memory: the model's state and activations, one update. With memory_bytes a
 * model that needs more is refused with the figure, and the kernel gives the process no more.
 *
 * Thread: main. */
#ifndef RU_FLEET_JOIN_H
#define RU_FLEET_JOIN_H

#include "fleet/client/client.h"

typedef struct ru_fed_join_options {
    ru_fed_client_options client;
    const char *data;     /* file with the section `data` of a job */
    uint32_t threads;     /* that compute; 0: as the job says */
    int64_t memory_bytes; /* that the process may have; 0: not bounded */
} ru_fed_join_options;

/* Until the job is over, or a stop signal comes. Errors: those of ru_fed_client_next, RU_E_DATA and
 * RU_E_CONFIG when its data do not fit, RU_E_USER when its training diverges, RU_E_LIMIT when the
 * model does not fit into memory_bytes. */
RU_MUST_USE ru_status ru_fed_join(const ru_fed_join_options *opt, ru_err *err);

#endif
