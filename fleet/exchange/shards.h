/* How workers on functions exchange gradients through a store: in blocks, each cut into a shard for
 * every worker.
 *
 *   each block   put PIECES of the other shards | get the pieces of the own shard, sum by rank,
 *                put the SUM                    | get the sums of the other shards
 *
 * so that a worker sends G and takes in 2 G of a vector of G bytes, at the same time, as blocks
 * follow each other. A key carries job and epoch: what a worker of an older epoch puts is nobody's.
 *
 * A message is a number of keys, then these, with their bytes behind each (put) or alone (get); the
 * answer to a get holds the bytes of all, one behind the other. Numbers are little-endian.
 *
 * Bytes may stand in a store elsewhere (web/keys.h) instead: a worker puts them there first, then
 * the key without bytes here, and takes them from there once their keys are here. So epochs, order
 * and waiting are the same, and what is late there is nobody's.
 *
 * Thread: any, no shared state. */
#ifndef RU_FLEET_EXCHANGE_SHARDS_H
#define RU_FLEET_EXCHANGE_SHARDS_H

#include "base/wire.h"

enum { RU_SHARD_KEY_BYTES = 36, RU_SHARD_KEYS_MAX = 64, RU_SHARD_WORKERS_MAX = 64 };

/* The field of an answer that names the last step of an epoch, and the status of a request that is
 * of an older one. */
#define RU_SHARD_LAST   "X-Rubato-Last"
#define RU_SHARD_FENCED 409

typedef enum ru_shard_kind { RU_SHARD_PIECE, RU_SHARD_SUM, RU_SHARD_STATE } ru_shard_kind;

typedef struct ru_shard_key {
    uint64_t job;
    uint32_t epoch, kind; /* ru_shard_kind */
    int64_t step;
    uint32_t block, shard, rank; /* rank: of who puts a piece; else 0 */
} ru_shard_key;

void ru_shard_key_put(ru_wire_out *w, const ru_shard_key *k);
ru_shard_key ru_shard_key_get(ru_wire_in *w);

/* Where its bytes stand in a store elsewhere. */
enum { RU_SHARD_NAME_BYTES = 128 };
void ru_shard_name(const ru_shard_key *k, char into[RU_SHARD_NAME_BYTES]);

typedef struct ru_shards {
    int64_t count;    /* floats of the vector */
    int64_t block;    /* of a block, the last one may have fewer */
    uint32_t workers; /* shards of a block */
    uint32_t blocks;
} ru_shards;

ru_shards ru_shards_of(int64_t count, uint32_t workers);
/* Floats [*first, *first + *n) of the vector. */
void ru_shards_range(const ru_shards *s, uint32_t block, uint32_t shard, int64_t *first,
                     int64_t *n);

#endif
