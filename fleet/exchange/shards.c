#include "fleet/exchange/shards.h"

#include <inttypes.h>
#include <stdio.h>

/* Blocks large enough that a request costs little beside them, and enough of them that sending and
 * taking in overlap. */
enum { BLOCK_MIN = 64 << 10, BLOCK_MAX = 1 << 20, BLOCKS = 16 };

void ru_shard_key_put(ru_wire_out *w, const ru_shard_key *k)
{
    ru_wire_put_u64(w, k->job);
    ru_wire_put_u32(w, k->epoch);
    ru_wire_put_u32(w, k->kind);
    ru_wire_put_u64(w, (uint64_t)k->step);
    ru_wire_put_u32(w, k->block);
    ru_wire_put_u32(w, k->shard);
    ru_wire_put_u32(w, k->rank);
}

ru_shard_key ru_shard_key_get(ru_wire_in *w)
{
    ru_shard_key k;
    k.job = ru_wire_u64(w);
    k.epoch = ru_wire_u32(w);
    k.kind = ru_wire_u32(w);
    k.step = (int64_t)ru_wire_u64(w);
    k.block = ru_wire_u32(w);
    k.shard = ru_wire_u32(w);
    k.rank = ru_wire_u32(w);
    return k;
}

void ru_shard_name(const ru_shard_key *k, char into[RU_SHARD_NAME_BYTES])
{
    (void)snprintf(into, RU_SHARD_NAME_BYTES, "rubato-%016" PRIx64 "/%u/%" PRId64 "/%u-%u-%u-%u",
                   k->job, k->epoch, k->step, k->kind, k->block, k->shard, k->rank);
}

ru_shards ru_shards_of(int64_t count, uint32_t workers)
{
    int64_t block = (count + BLOCKS - 1) / BLOCKS;
    block = block < BLOCK_MIN ? BLOCK_MIN : block > BLOCK_MAX ? BLOCK_MAX : block;
    return (ru_shards){.count = count,
                       .block = block,
                       .workers = workers,
                       .blocks = (uint32_t)((count + block - 1) / block)};
}

void ru_shards_range(const ru_shards *s, uint32_t block, uint32_t shard, int64_t *first, int64_t *n)
{
    int64_t at = (int64_t)block * s->block;
    int64_t size = s->count - at < s->block ? s->count - at : s->block;
    *first = at + size * shard / s->workers;
    *n = at + size * (shard + 1) / s->workers - *first;
}
