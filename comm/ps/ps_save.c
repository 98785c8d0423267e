/* What a running checkpoint has of the shards that are here: a copy of the values of each block as
 * it is stored, against which its distance is measured. */
#include <math.h>
#include <string.h>

#include "comm/ps/ps_impl.h"

uint32_t ru_ps_blocks(const ru_ps *ps)
{
    return ps->place.n_blocks;
}

static uint32_t rows_of(const rui_ps_place *p, uint32_t block)
{
    return p->block_row[block + 1] - p->block_row[block];
}

const float *ru_ps_block(const ru_ps *ps, uint32_t block, int64_t *floats, uint32_t *shard,
                         uint32_t *closed)
{
    const rui_ps_place *p = &ps->place;
    const rui_ps_shard *x = &ps->shard[p->shard[block]];
    if (!x->here) {
        return NULL;
    }
    *shard = p->shard[block];
    *closed = x->closed;
    *floats = (int64_t)rows_of(p, block) * rui_ps_stride(p, rui_ps_block_table(p, block));
    return x->values + p->offset[block];
}

double ru_ps_block_moved(const ru_ps *ps, uint32_t block)
{
    const rui_ps_place *p = &ps->place;
    uint32_t t = rui_ps_block_table(p, block), width = p->table[t].width;
    const float *old = ps->saved[block], *is = ps->shard[p->shard[block]].values + p->offset[block];
    double sum = 0;
    if (old == NULL) {
        return -1;
    }
    for (uint32_t r = 0; r < rows_of(p, block); r++, is += rui_ps_stride(p, t), old += width) {
        for (uint32_t i = 0; i < width; i++) {
            double d = (double)is[i] - (double)old[i];
            sum += d * d;
        }
    }
    return sqrt(sum);
}

void ru_ps_block_saved(ru_ps *ps, uint32_t block, const void *values)
{
    const rui_ps_place *p = &ps->place;
    uint32_t t = rui_ps_block_table(p, block), rows = rows_of(p, block);
    size_t width = p->table[t].width, stride = rui_ps_stride(p, t);
    if (!ps->shard[p->shard[block]].here) {
        return;
    }
    if (ps->saved[block] == NULL) { /* no memory: saved again before those that moved */
        ps->saved[block] = ru_bufs_get(&ps->bufs, (int64_t)(rows * width * 4));
    }
    for (uint32_t r = 0; ps->saved[block] != NULL && r < rows; r++) {
        memcpy(ps->saved[block] + r * width, (const uint8_t *)values + r * stride * 4, width * 4);
    }
}

void rui_ps_unsaved(ru_ps *ps, uint32_t s)
{
    for (uint32_t k = ps->place.shard_first[s]; k < ps->place.shard_first[s + 1]; k++) {
        ru_bufs_put(&ps->bufs, ps->saved[ps->place.block[k]]);
        ps->saved[ps->place.block[k]] = NULL;
    }
}
