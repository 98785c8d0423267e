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

/* A copy survives this process more often than not. Not below 1/16, so that rows
 * in all caches are saved as well. */
static double lost_share(const ru_ps *ps, uint32_t row, uint32_t closed)
{
    static const double share[] = {1, 1.0 / 4, 1.0 / 16};
    const rui_ps_read_by *x = &ps->read_by[row];
    uint32_t by = x->clock == closed ? x->now | x->before : x->clock + 1 == closed ? x->now : 0;
    uint32_t n = (uint32_t)__builtin_popcount(by);
    return share[n < RU_ARRAY_LEN(share) ? n : RU_ARRAY_LEN(share) - 1];
}

double ru_ps_block_moved(const ru_ps *ps, uint32_t block, bool caches)
{
    const rui_ps_place *p = &ps->place;
    const rui_ps_shard *x = &ps->shard[p->shard[block]];
    uint32_t t = rui_ps_block_table(p, block), width = p->table[t].width;
    const float *old = ps->saved[block], *is = x->values + p->offset[block];
    double all = 0;
    if (old == NULL) {
        return -1;
    }
    for (uint32_t r = 0; r < rows_of(p, block); r++, is += rui_ps_stride(p, t), old += width) {
        double sum = 0;
        for (uint32_t i = 0; i < width; i++) {
            double d = (double)is[i] - (double)old[i];
            sum += d * d;
        }
        caches = caches && ps->read_by != NULL;
        all += sum * (caches ? lost_share(ps, p->block_row[block] + r, x->closed) : 1);
    }
    return sqrt(all);
}

static float *saved_room(ru_ps *ps, uint32_t block)
{
    const rui_ps_place *p = &ps->place;
    int64_t width = p->table[rui_ps_block_table(p, block)].width;
    if (ps->saved[block] == NULL) { /* no memory: saved again before those that moved */
        ps->saved[block] = ru_bufs_get(&ps->bufs, rows_of(p, block) * width * 4);
    }
    return ps->saved[block];
}

void ru_ps_block_first(ru_ps *ps, uint32_t block)
{
    const rui_ps_place *p = &ps->place;
    uint32_t t = rui_ps_block_table(p, block), width = p->table[t].width;
    float *row = ps->shard[p->shard[block]].here ? saved_room(ps, block) : NULL;
    for (uint32_t r = 0; row != NULL && r < rows_of(p, block); r++, row += width) {
        memset(row, 0, width * sizeof *row);
        if (ps->opt.user.first != NULL) {
            int64_t at = p->block_row[block] + r - p->first[t];
            ps->opt.user.first(ps->opt.user.self, t, at, row);
        }
    }
}

void ru_ps_block_saved(ru_ps *ps, uint32_t block, const void *values)
{
    const rui_ps_place *p = &ps->place;
    uint32_t t = rui_ps_block_table(p, block), rows = rows_of(p, block);
    size_t width = p->table[t].width, stride = rui_ps_stride(p, t);
    if (!ps->shard[p->shard[block]].here) {
        return;
    }
    float *room = saved_room(ps, block);
    for (uint32_t r = 0; room != NULL && r < rows; r++) {
        memcpy(room + r * width, (const uint8_t *)values + r * stride * 4, width * 4);
    }
}

void rui_ps_unsaved(ru_ps *ps, uint32_t s)
{
    for (uint32_t k = ps->place.shard_first[s]; k < ps->place.shard_first[s + 1]; k++) {
        ru_bufs_put(&ps->bufs, ps->saved[ps->place.block[k]]);
        ps->saved[ps->place.block[k]] = NULL;
    }
}
