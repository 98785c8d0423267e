/* Collectives in shared memory: what each member adds and copies. */
#include "comm/coll/coll_shm.h"

#include <string.h>

#include "comm/coll/coll_add.h"
#include "comm/coll/coll_shm_impl.h"

/* Measured on the 2-core test machine (docs/comm.md): a block small enough that what one member
 * just added is still in the shared cache when the others take it. Targets are written around the
 * caches where buffers are larger than those. */
enum { BLOCK_BYTES = 512 << 10, STREAM_BYTES = 32 << 20, LINE = 64 };

/* A part of the ranges as pieces of data: bytes [at, end) of all ranges in a row. */
typedef struct walk {
    const ru_coll_shm_range *ranges;
    int64_t at, end;
    uint32_t k;   /* range that holds `at`, or one before */
    int64_t base; /* first byte of range k in the row */
} walk;

static walk walk_from(const ru_coll_shm_range *ranges, int64_t at, int64_t end)
{
    return (walk){.ranges = ranges, .at = at, .end = end};
}

/* The next piece: offset in the data and bytes; false at the end. */
static bool walk_next(walk *w, int64_t *offset, int64_t *bytes)
{
    if (w->at >= w->end) {
        return false;
    }
    while (w->base + w->ranges[w->k].size_bytes <= w->at) {
        w->base += w->ranges[w->k++].size_bytes;
    }
    int64_t room = w->base + w->ranges[w->k].size_bytes;
    *offset = w->ranges[w->k].offset + (w->at - w->base);
    *bytes = (room < w->end ? room : w->end) - w->at;
    w->at += *bytes;
    return true;
}

/* Bytes of all ranges; -1 when one is not in the data or cuts an element. */
static int64_t total_of(const ru_coll_shm *c, int64_t elem_bytes, const ru_coll_shm_range *ranges,
                        uint32_t n)
{
    int64_t total = 0, room = ru_shm_size_bytes(c->own) - RUI_SHM_DATA_AT;
    for (uint32_t k = 0; k < n; k++) {
        const ru_coll_shm_range *r = &ranges[k];
        if (r->offset < 0 || r->size_bytes < 0 || r->offset > room ||
            r->size_bytes > room - r->offset || r->size_bytes % elem_bytes != 0 ||
            r->offset % elem_bytes != 0) {
            return -1;
        }
        total += r->size_bytes;
    }
    return c->n == 0 ? -1 : total;
}

static int64_t elem_of(ru_dtype dtype)
{
    return dtype == RU_F32 ? 4 : 2;
}

typedef struct job {
    ru_dtype dtype;
    const ru_coll_shm_range *ranges;
    int64_t total;
    bool stream;
} job;

/* mine = sum over all members, in rank order, for bytes [at, end) of the row. */
static void add_part(ru_coll_shm *c, const job *j, int64_t at, int64_t end)
{
    walk w = walk_from(j->ranges, at, end);
    int64_t offset, bytes;
    while (walk_next(&w, &offset, &bytes)) {
        const void *from[RU_COLL_SHM_RANKS_MAX];
        for (uint32_t r = 0; r < c->n; r++) {
            from[r] = c->data[r] + offset;
        }
        ru_coll_sum(j->dtype, c->data[c->rank] + offset, from, c->n, bytes / elem_of(j->dtype),
                    false);
    }
}

static void take_part(ru_coll_shm *c, const job *j, uint32_t from, int64_t at, int64_t end)
{
    walk w = walk_from(j->ranges, at, end);
    int64_t offset, bytes;
    while (walk_next(&w, &offset, &bytes)) {
        ru_coll_copy(c->data[c->rank] + offset, c->data[from] + offset, bytes, j->stream);
    }
}

/* -- small
 * ----------------------------------------------------------------------------------------- */

/* Slots take turns: whoever is in the call after the next one has seen all of this one end. */
static ru_status small_sum(ru_coll_shm *c, const job *j)
{
    uint32_t turn = c->small++ % 2;
    uint8_t *mine = c->slots[c->rank] + (int64_t)turn * RU_COLL_SHM_SLOT_BYTES;
    walk w = walk_from(j->ranges, 0, j->total);
    int64_t offset, bytes, at = 0;
    while (walk_next(&w, &offset, &bytes)) {
        memcpy(mine + at, c->data[c->rank] + offset, (size_t)bytes);
        at += bytes;
    }
    rui_shm_arrive(c);
    RU_TRY(rui_shm_wait_all(c));
    w = walk_from(j->ranges, 0, j->total);
    for (at = 0; walk_next(&w, &offset, &bytes); at += bytes) {
        const void *from[RU_COLL_SHM_RANKS_MAX];
        for (uint32_t r = 0; r < c->n; r++) {
            from[r] = c->slots[r] + (int64_t)turn * RU_COLL_SHM_SLOT_BYTES + at;
        }
        ru_coll_sum(j->dtype, c->data[c->rank] + offset, from, c->n, bytes / elem_of(j->dtype),
                    false);
    }
    return RU_OK;
}

/* -- large
 * ----------------------------------------------------------------------------------------- */

/* Slice of rank r in [at, end), whole lines. */
static int64_t slice_at(const ru_coll_shm *c, int64_t at, int64_t end, uint32_t r)
{
    int64_t each = (end - at + c->n - 1) / c->n;
    int64_t begin = at + (each + LINE - 1) / LINE * LINE * r;
    return begin < end ? begin : end;
}

/* Slices of block [at, end) from the others: they have finished it at `tick`. */
static ru_status take_block(ru_coll_shm *c, const job *j, int64_t at, int64_t end, uint32_t tick)
{
    for (uint32_t d = 1; d < c->n; d++) {
        uint32_t r = (c->rank + d) % c->n;
        RU_TRY(rui_shm_wait_rank(c, r, tick));
        take_part(c, j, r, slice_at(c, at, end, r), slice_at(c, at, end, r + 1));
    }
    return RU_OK;
}

/* Members outnumber the cores: few long phases instead of many short ones. */
static int64_t block_of(const ru_coll_shm *c, int64_t total)
{
    if (c->opt.block_bytes > 0) {
        return (c->opt.block_bytes + LINE - 1) / LINE * LINE;
    }
    return c->crowded ? total : BLOCK_BYTES;
}

static ru_status large_sum(ru_coll_shm *c, const job *j)
{
    int64_t block = block_of(c, j->total);
    rui_shm_arrive(c);
    RU_TRY(rui_shm_wait_all(c));
    uint32_t base = c->tick;
    int64_t n = (j->total + block - 1) / block;
    for (int64_t b = 0; b <= n; b++) {
        int64_t at = b * block, end = at + block < j->total ? at + block : j->total;
        if (b < n) {
            add_part(c, j, slice_at(c, at, end, c->rank), slice_at(c, at, end, c->rank + 1));
            rui_shm_arrive(c);
        }
        if (b > 0) {
            if (c->crowded) {
                RU_TRY(rui_shm_wait_all(c));
            }
            at -= block;
            end = at + block < j->total ? at + block : j->total;
            RU_TRY(take_block(c, j, at, end, base + (uint32_t)b));
        }
    }
    rui_shm_arrive(c);
    return rui_shm_wait_all(c);
}

static ru_status begin_job(const ru_coll_shm *c, job *j, ru_dtype dtype,
                           const ru_coll_shm_range *ranges, uint32_t n)
{
    *j = (job){.dtype = dtype, .ranges = ranges};
    j->total = total_of(c, elem_of(dtype), ranges, n);
    j->stream = j->total >= STREAM_BYTES;
    return j->total < 0 || (dtype != RU_F32 && dtype != RU_BF16) ? RU_E_ARG : RU_OK;
}

ru_status ru_coll_shm_all_reduce(ru_coll_shm *c, ru_dtype dtype, const ru_coll_shm_range *ranges,
                                 uint32_t n)
{
    job j;
    RU_TRY(begin_job(c, &j, dtype, ranges, n));
    if (c->n == 1 || j.total == 0) {
        return RU_OK;
    }
    return j.total <= RU_COLL_SHM_SLOT_BYTES ? small_sum(c, &j) : large_sum(c, &j);
}
