/* What a copy of a shard on another machine lacks: rows that changed since it was taken, whole and
 * as they are now, so that a copy takes them in by overwriting.
 *
 *   as bytes: head | runs of rows, each within a block | values and state of the rules of all */
#include <string.h>

#include "comm/ps/ps_impl.h"

#define MAGIC UINT32_C(0x31447552) /* "RuD1" */

typedef struct head {
    uint32_t magic, shard, closed, n_runs;
} head;

/* Marked rows from r on, up to `end`. */
static uint32_t marked(const ru_ps *ps, uint32_t r, uint32_t end)
{
    uint32_t n = 0;
    while (r + n < end && ps->marked[r + n] != 0) {
        n++;
    }
    return n;
}

typedef struct sizes {
    uint32_t n_runs;
    int64_t floats;
} sizes;

/* runs and values NULL: the sizes alone. */
static sizes gather(const ru_ps *ps, uint32_t shard, rui_ps_run *runs, float *values)
{
    const rui_ps_place *p = &ps->place;
    sizes z = {0};
    for (uint32_t k = p->shard_first[shard]; k < p->shard_first[shard + 1]; k++) {
        uint32_t b = p->block[k], t = rui_ps_block_table(p, b), end = p->block_row[b + 1], n;
        for (uint32_t r = p->block_row[b]; r<end; r += n> 0 ? n : 1) {
            n = marked(ps, r, end);
            int64_t floats = (int64_t)n * rui_ps_stride(p, t);
            if (n == 0) {
                continue;
            }
            if (runs != NULL) {
                runs[z.n_runs] = (rui_ps_run){r, n};
                memcpy(values + z.floats, rui_ps_row(ps, shard, t, r), (size_t)floats * 4);
            }
            z.n_runs++;
            z.floats += floats;
        }
    }
    return z;
}

void *ru_ps_changes(ru_ps *ps, uint32_t shard, int64_t *n)
{
    RU_CHECK(ps->marked != NULL && ps->shard[shard].here);
    sizes z = gather(ps, shard, NULL, NULL);
    const head h = {MAGIC, shard, ps->shard[shard].closed, z.n_runs};
    *n = (int64_t)sizeof h + z.n_runs * (int64_t)sizeof(rui_ps_run) + 4 * z.floats;
    uint8_t *out = ru_bufs_get(&ps->bufs, *n);
    if (out != NULL) {
        rui_ps_run *runs = (void *)(out + sizeof h);
        memcpy(out, &h, sizeof h);
        (void)gather(ps, shard, runs, (float *)(void *)(runs + z.n_runs));
    }
    return out;
}

void ru_ps_unmark(ru_ps *ps, uint32_t shard)
{
    const rui_ps_place *p = &ps->place;
    RU_CHECK(ps->marked != NULL);
    for (uint32_t k = p->shard_first[shard]; k < p->shard_first[shard + 1]; k++) {
        uint32_t b = p->block[k];
        memset(ps->marked + p->block_row[b], 0, p->block_row[b + 1] - p->block_row[b]);
    }
}

/* Floats of the runs; below 0: they are not rows of this shard. */
static int64_t floats_of(const ru_ps *ps, uint32_t shard, const rui_ps_run *run, uint32_t n_runs)
{
    const rui_ps_place *p = &ps->place;
    int64_t floats = 0, width = 0;
    if (!rui_ps_runs_ok(ps, shard, run, n_runs * (int64_t)sizeof *run, n_runs, &width)) {
        return -1;
    }
    for (uint32_t k = 0; k < n_runs; k++) {
        floats += (int64_t)run[k].n * rui_ps_stride(p, rui_ps_table_of(p, run[k].row));
    }
    return floats;
}

ru_status ru_ps_changes_apply(const ru_ps *ps, uint32_t shard, void *saved, int64_t saved_bytes,
                              const void *changes, int64_t n)
{
    const rui_ps_place *p = &ps->place;
    head h;
    uint32_t before;
    const uint8_t *values = rui_ps_shard_packed(ps, shard, saved, saved_bytes, &before);
    if (values == NULL || n < (int64_t)sizeof h) {
        return RU_E_DATA;
    }
    memcpy(&h, changes, sizeof h);
    const rui_ps_run *run = (const void *)((const uint8_t *)changes + sizeof h);
    int64_t rest = n - (int64_t)sizeof h, runs_bytes = h.n_runs * (int64_t)sizeof *run;
    int64_t floats = h.magic == MAGIC && h.shard == shard && runs_bytes <= rest
                         ? floats_of(ps, shard, run, h.n_runs)
                         : -1;
    if (floats < 0 || rest != runs_bytes + 4 * floats) {
        return RU_E_DATA;
    }
    uint8_t *to = (uint8_t *)saved + (values - (const uint8_t *)saved);
    const uint8_t *from = (const uint8_t *)(run + h.n_runs);
    for (uint32_t k = 0; k < h.n_runs; k++) {
        uint32_t t = rui_ps_table_of(p, run[k].row), b = rui_ps_block_of(p, t, run[k].row);
        int64_t stride = rui_ps_stride(p, t);
        size_t bytes = (size_t)(run[k].n * stride * 4);
        memcpy(to + 4 * (p->offset[b] + (run[k].row - p->block_row[b]) * stride), from, bytes);
        from += bytes;
    }
    rui_ps_shard_packed_at(saved, h.closed);
    return RU_OK;
}
