/* Which samples of a data set a simulated client has: a view by number, made anew whenever it is
 * asked for, so that a hundred thousand clients take no memory.
 *
 *   iid        all samples alike
 *   classes    `classes` of all classes, and samples of those alone
 *   dirichlet  shares of the classes drawn from Dirichlet(alpha): small alpha, unlike clients
 *   file       line k of a text file has the number of the client that has sample k
 *
 * Without `samples` each has as many as there are for each client; more clients than samples share
 * them. Drawn with replacement, but for a file.
 *
 * A second split of the same options over other data (held out) gives each client the same classes
 * in the same shares.
 *
 * Source: mcmahan-2017 (shards), hsu-2019 (Dirichlet). Thread: any. */
#ifndef RU_FLEET_SPLIT_H
#define RU_FLEET_SPLIT_H

#include "data/reader.h"

typedef enum ru_split_kind {
    RU_SPLIT_IID,
    RU_SPLIT_CLASSES,
    RU_SPLIT_DIRICHLET,
    RU_SPLIT_FILE,
} ru_split_kind;

typedef struct ru_split_options {
    ru_split_kind kind;
    uint32_t classes; /* of a client */
    double alpha;
    const char *file;
    uint32_t clients;
    int64_t samples; /* of a client; 0: as many as there are for each */
    uint64_t seed;
} ru_split_options;

typedef struct ru_split ru_split;

/* `data` is view. Everything lives in `arena`. Errors: RU_E_CONFIG (more classes than there are),
 * RU_E_DATA (labels that are no classes, a damaged file), RU_E_MEM. */
RU_MUST_USE ru_status ru_split_open(const ru_split_options *opt, const ru_dataset *data,
                                    ru_arena *arena, ru_split **out, ru_err *err);
int64_t ru_split_most(const ru_split *s); /* samples of a client, at most */
/* Indexes into the data; returns how many. into [ru_split_most]. */
int64_t ru_split_view(const ru_split *s, uint32_t client, int64_t *into);
#endif
