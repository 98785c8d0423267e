/* A shard whose holder died, from the newest copies of its rows that there are.
 *
 * Copies of rows as bytes: for each run of rows of one block and one age, run | values. */
#include <math.h>
#include <string.h>

#include "comm/ps/ps_impl.h"

typedef struct copies {
    uint32_t row, n, closed, zero;
} copies;

enum { FIRST, CACHED, LOGGED, SAVED };

void ru_ps_fence(ru_ps *ps, uint32_t epoch)
{
    ps->fence = epoch;
    for (uint32_t i = 0; i < ps->ask_top; i++) { /* answers on their way are void */
        rui_ps_ask *a = rui_ps_ask_at(ps, i);
        a->again = a->again || (a->used && !a->over && !a->kept);
    }
}

void ru_ps_void(ru_ps *ps)
{
    if (ps->void_from == ps->fence) {
        return;
    }
    ps->void_from = ps->fence;
    for (uint32_t s = 0; s < ps->place.n_spread; s++) {
        if (ps->shard[s].here) {
            rui_ps_shard_fence(ps, s);
        }
    }
}

bool ru_ps_leaving(const ru_ps *ps, uint32_t k, ru_node_id to)
{
    const rui_ps_moving *m = &ps->moving[k];
    return m->bytes != NULL && !m->over && ru_node_is(m->to, to);
}

/* -- copies in caches ----------------------------------------------------------------------------
 */

/* Rows from r on that are copies of one age, up to `end`. */
static uint32_t alike(const ru_ps *ps, uint32_t r, uint32_t end)
{
    uint32_t n = 1;
    while (r + n < end && ps->copy[r + n].age == ps->copy[r].age) {
        n++;
    }
    return n;
}

void *ru_ps_copies(ru_ps *ps, uint32_t shard, int64_t *n)
{
    const rui_ps_place *p = &ps->place;
    uint8_t *out = NULL, *at = NULL;
    for (uint32_t pass = 0; pass < 2; pass++) {
        *n = 0;
        for (uint32_t k = p->shard_first[shard]; k < p->shard_first[shard + 1]; k++) {
            uint32_t b = p->block[k], width = p->table[rui_ps_block_table(p, b)].width;
            uint32_t rows;
            for (uint32_t r = p->block_row[b]; r < p->block_row[b + 1]; r += rows) {
                rows = alike(ps, r, p->block_row[b + 1]);
                if (ps->copy[r].age == 0 || ps->cache[b] == NULL) {
                    continue;
                }
                const copies c = {r, rows, ps->copy[r].age - 1, 0};
                size_t bytes = (size_t)rows * width * 4;
                *n += (int64_t)(sizeof c + bytes);
                if (out != NULL) {
                    memcpy(at, &c, sizeof c);
                    memcpy(at + sizeof c, ps->cache[b] + (size_t)(r - p->block_row[b]) * width,
                           bytes);
                    at += sizeof c + bytes;
                }
            }
        }
        if (pass == 0) {
            out = at = ru_bufs_get(&ps->bufs, *n);
            if (out == NULL) {
                return NULL;
            }
        }
    }
    return out;
}

/* -- putting together ----------------------------------------------------------------------------
 */

ru_status ru_ps_rebuild_begin(ru_ps *ps, uint32_t shard)
{
    const rui_ps_place *p = &ps->place;
    if (ps->copy_at == NULL) {
        ps->copy_at = ru_bufs_get(&ps->bufs, (int64_t)p->n_rows * 4);
    }
    if (ps->copy_from == NULL) {
        ps->copy_from = ru_bufs_get(&ps->bufs, p->n_rows);
    }
    if (ps->copy_at == NULL || ps->copy_from == NULL || !rui_ps_shard_make(ps, shard)) {
        return RU_E_MEM;
    }
    rui_ps_shard_begin(ps, shard);
    memset(ps->copy_at, 0xff, (size_t)p->n_rows * sizeof *ps->copy_at);
    ps->copy_moved = ps->copy_begun = 0;
    ps->newest_log = ps->newest_cache = -1;
    for (uint32_t k = p->shard_first[shard]; k < p->shard_first[shard + 1]; k++) {
        for (uint32_t r = p->block_row[p->block[k]]; r < p->block_row[p->block[k] + 1]; r++) {
            ps->copy_at[r] = 0;
            ps->copy_from[r] = FIRST;
        }
    }
    return RU_OK;
}

/* A copy of a clock that is not closed would be merged with the same changes again. */
static bool newer(const ru_ps *ps, uint32_t shard, uint32_t row, uint32_t closed, uint8_t from)
{
    bool known = shard >= ps->place.n_spread || closed <= ps->closed;
    return known && (closed > ps->copy_at[row] || ps->copy_from[row] == FIRST ||
                     (closed == ps->copy_at[row] && from == LOGGED));
}

static double apart(const float *row, const uint8_t *copy, uint32_t width)
{
    double sum = 0;
    for (uint32_t i = 0; i < width; i++) {
        float v;
        memcpy(&v, copy + (size_t)i * 4, sizeof v);
        sum += ((double)v - (double)row[i]) * ((double)v - (double)row[i]);
    }
    return sum;
}

/* Whole rows of a block, with the state of their rule. */
static void take_block(ru_ps *ps, uint32_t shard, uint32_t block, uint32_t closed, uint8_t from,
                       const uint8_t *at)
{
    const rui_ps_place *p = &ps->place;
    uint32_t t = rui_ps_block_table(p, block);
    size_t bytes = (size_t)rui_ps_stride(p, t) * 4;
    for (uint32_t r = p->block_row[block]; r < p->block_row[block + 1]; r++, at += bytes) {
        if (newer(ps, shard, r, closed, from)) {
            ps->newest_log = closed > ps->newest_log ? closed : ps->newest_log;
            float *row = rui_ps_row(ps, shard, t, r);
            ps->copy_begun += ps->copy_from[r] == FIRST ? apart(row, at, p->table[t].width) : 0;
            memcpy(row, at, bytes);
            ps->copy_at[r] = closed;
            ps->copy_from[r] = from;
        }
    }
}

ru_status ru_ps_rebuild_saved(ru_ps *ps, uint32_t shard, const void *bytes, int64_t n)
{
    const rui_ps_place *p = &ps->place;
    uint32_t closed;
    const uint8_t *values = rui_ps_shard_packed(ps, shard, bytes, n, &closed);
    if (values == NULL) {
        return RU_E_DATA;
    }
    for (uint32_t k = p->shard_first[shard]; k < p->shard_first[shard + 1]; k++) {
        uint32_t b = p->block[k];
        take_block(ps, shard, b, closed, SAVED, values + 4 * p->offset[b]);
    }
    return RU_OK;
}

ru_status ru_ps_rebuild_block(ru_ps *ps, uint32_t shard, uint32_t block, uint32_t closed,
                              const void *bytes, int64_t n)
{
    const rui_ps_place *p = &ps->place;
    if (block >= p->n_blocks || p->shard[block] != shard) {
        return RU_E_DATA;
    }
    uint32_t stride = rui_ps_stride(p, rui_ps_block_table(p, block));
    if (n != (int64_t)(p->block_row[block + 1] - p->block_row[block]) * stride * 4) {
        return RU_E_DATA;
    }
    take_block(ps, shard, block, closed, LOGGED, bytes);
    return RU_OK;
}

ru_status ru_ps_rebuild_rows(ru_ps *ps, uint32_t shard, const void *bytes, int64_t n)
{
    const rui_ps_place *p = &ps->place;
    const uint8_t *at = bytes;
    while (n > 0) {
        copies c;
        if (n < (int64_t)sizeof c) {
            return RU_E_DATA;
        }
        memcpy(&c, at, sizeof c);
        at += sizeof c;
        n -= (int64_t)sizeof c;
        if (c.row >= p->n_rows || c.n < 1) {
            return RU_E_DATA;
        }
        uint32_t t = rui_ps_table_of(p, c.row), b = rui_ps_block_of(p, t, c.row);
        int64_t width = p->table[t].width;
        if (p->shard[b] != shard || c.n > p->block_row[b + 1] - c.row || n < c.n * width * 4) {
            return RU_E_DATA;
        }
        for (uint32_t r = c.row; r < c.row + c.n; r++, at += width * 4, n -= width * 4) {
            if (newer(ps, shard, r, c.closed, CACHED)) {
                float *row = rui_ps_row(ps, shard, t, r);
                ps->newest_cache = c.closed > ps->newest_cache ? c.closed : ps->newest_cache;
                double d = apart(row, at, (uint32_t)width);
                ps->copy_moved += ps->copy_from[r] == LOGGED || ps->copy_from[r] == SAVED ? d : 0;
                ps->copy_begun += ps->copy_from[r] == FIRST ? d : 0;
                memcpy(row, at, (size_t)width * 4);
                ps->copy_at[r] = c.closed;
                ps->copy_from[r] = CACHED;
            }
        }
    }
    return RU_OK;
}

void ru_ps_rebuild_end(ru_ps *ps, uint32_t shard, uint32_t step, ru_ps_rebuilt *out, ru_time now,
                       ru_effects *fx)
{
    const rui_ps_place *p = &ps->place;
    rui_ps_shard *x = &ps->shard[shard];
    bool rotates = shard >= p->n_spread;
    uint32_t closed = ps->closed * (rotates ? ps->opt.rounds : 1);
    int64_t from[SAVED + 1] = {0};
    *out = (ru_ps_rebuilt){.at = ps->copy_at};
    closed = rotates && step > closed ? step : closed;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t k = p->shard_first[shard]; k < p->shard_first[shard + 1]; k++) {
            uint32_t b = p->block[k];
            for (uint32_t r = p->block_row[b]; r < p->block_row[b + 1]; r++) {
                if (pass == 0) {
                    closed = ps->copy_at[r] > closed ? ps->copy_at[r] : closed;
                    from[ps->copy_from[r]]++;
                    out->rows++;
                } else {
                    out->late += closed - ps->copy_at[r];
                }
            }
        }
    }
    x->closed = out->closed = closed;
    for (uint32_t e = 0; e < ps->opt.n_executors && !rotates; e++) {
        x->done[e] = ps->closed * ps->opt.rounds;
    }
    out->moved = sqrt(ps->copy_moved);
    out->begun = sqrt(ps->copy_begun);
    out->log_at = ps->newest_log;
    out->cache_at = ps->newest_cache;
    out->cached = from[CACHED];
    out->logged = from[LOGGED];
    out->saved = from[SAVED];
    rui_ps_installed(ps, shard, false, false, now, fx);
}
