/* Where the bytes of a chunk lie, and the additions. */
#include <string.h>

#include "comm/coll/coll_add.h"
#include "comm/coll/coll_impl.h"

/* Elements [*at, return value) of cut interval [b, e) blocks in chunk `chunk`. */
static int64_t range_of(const rui_coll_run *run, uint32_t chunk, uint32_t b, uint32_t e,
                        int64_t *at)
{
    uint32_t nb = run->shape->schedule->n_blocks;
    int64_t n = run->bucket->n;
    if (run->by_block) { /* one block: the chunk is a part of it */
        int64_t lo = ru_coll_block_at(n, nb, b), size = ru_coll_block_at(n, nb, b + 1) - lo;
        *at = lo + ru_coll_block_at(size, run->n_chunks, chunk);
        return lo + ru_coll_block_at(size, run->n_chunks, chunk + 1);
    }
    int64_t lo = ru_coll_block_at(n, run->n_chunks, chunk);
    int64_t size = ru_coll_block_at(n, run->n_chunks, chunk + 1) - lo;
    *at = lo + ru_coll_block_at(size, nb, b);
    return lo + ru_coll_block_at(size, nb, e);
}

int64_t rui_coll_step_bytes(const ru_coll *c, const rui_coll_lane *lane, uint32_t step)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const ru_coll_step *x = &run->shape->steps[step];
    if (run->bucket->op == RU_COLL_BARRIER) {
        return 1;
    }
    int64_t at, bytes = 0;
    if (!run->by_block) {
        return (range_of(run, lane->chunk, x->block, x->block + x->n_blocks, &at) - at) *
               run->elem_bytes;
    }
    for (uint32_t b = x->block; b < x->block + x->n_blocks; b++) {
        int64_t end = range_of(run, lane->chunk, b, b + 1, &at);
        bytes += (end - at) * run->elem_bytes;
    }
    return bytes;
}

void rui_coll_lane_cut(const ru_coll *c, rui_coll_lane *lane)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const rui_coll_shape *shape = run->shape;
    uint32_t n = 0, k = 0; /* spans written; the user's span that holds byte `base` first */
    int64_t base = 0;
    if (run->empty) {
        return;
    }
    for (uint32_t j = 0; j + 1 < shape->n_cuts; j++) {
        int64_t at, end = range_of(run, lane->chunk, shape->cuts[j], shape->cuts[j + 1], &at);
        at *= run->elem_bytes;
        end *= run->elem_bytes;
        lane->cut_at[j] = n;
        while (at < end) {
            while (base + run->spans[k].size_bytes <= at) {
                base += run->spans[k++].size_bytes;
            }
            int64_t room = base + run->spans[k].size_bytes;
            int64_t part = (room < end ? room : end) - at;
            lane->spans[n++] =
                (ru_span){.data = (uint8_t *)run->spans[k].data + (at - base), .size_bytes = part};
            at += part;
        }
    }
    lane->cut_at[shape->n_cuts - 1] = n;
    RU_CHECK(n <= run->spans_cap + shape->n_cuts);
}

/* mine += theirs over the spans of a step; theirs first when `before`. */
static void add_spans(const rui_coll_lane *lane, const rui_coll_run *run, uint32_t step,
                      const uint8_t *theirs, bool before)
{
    const rui_coll_shape *shape = run->shape;
    for (uint32_t k = lane->cut_at[shape->lo[step]]; k < lane->cut_at[shape->hi[step]]; k++) {
        const ru_span *mine = &lane->spans[k];
        ru_coll_add(run->bucket->dtype, mine->data, theirs, mine->size_bytes / run->elem_bytes,
                    before);
        theirs += mine->size_bytes;
    }
}

static void place_spans(const rui_coll_lane *lane, const rui_coll_run *run, uint32_t step,
                        const uint8_t *from)
{
    const rui_coll_shape *shape = run->shape;
    for (uint32_t k = lane->cut_at[shape->lo[step]]; k < lane->cut_at[shape->hi[step]]; k++) {
        memcpy(lane->spans[k].data, from, (size_t)lane->spans[k].size_bytes);
        from += lane->spans[k].size_bytes;
    }
}

void rui_coll_apply(ru_coll *c, rui_coll_lane *lane, uint32_t step)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const rui_coll_shape *shape = run->shape;
    const ru_coll_step *x = &shape->steps[step];
    int64_t bytes = rui_coll_step_bytes(c, lane, step);
    uint32_t aside = shape->aside_of[step];
    bool first_aside = x->kind == RU_COLL_RECV_ASIDE && aside == step;
    if (run->bucket->op == RU_COLL_BARRIER || bytes == 0 || first_aside) {
        return;
    }
    if (run->empty) {
        return;
    }
    const uint8_t *theirs = lane->one[step].data, *kept = lane->one[aside].data;
    switch ((ru_coll_step_kind)x->kind) {
    case RU_COLL_REDUCE_RECV:
        add_spans(lane, run, step, theirs, x->before != 0);
        break;
    case RU_COLL_RECV_ASIDE:
        ru_coll_add(run->bucket->dtype, lane->one[aside].data, theirs, bytes / run->elem_bytes,
                    false);
        break;
    case RU_COLL_FOLD:
        add_spans(lane, run, step, kept, true);
        break;
    case RU_COLL_PLACE:
        place_spans(lane, run, step, kept);
        break;
    case RU_COLL_SEND:
    case RU_COLL_RECV:
    case RU_COLL_STEP_KINDS:
        break;
    }
}

/* Theirs (pieces as they lie in the other's memory) into mine (pieces as they lie here): copied, or
 * added. Both are as many bytes, in whole elements. */
static void merge(ru_dtype dtype, const ru_span *mine, const ru_span *theirs, int64_t bytes,
                  bool copy, bool before)
{
    int64_t at = 0, from = 0, elem = ru_dtype_bytes(dtype);
    while (bytes > 0) {
        int64_t n = mine->size_bytes - at, m = theirs->size_bytes - from;
        if (n == 0 || m == 0) {
            mine += n == 0 ? 1 : 0;
            at = n == 0 ? 0 : at;
            theirs += m == 0 ? 1 : 0;
            from = m == 0 ? 0 : from;
            continue;
        }
        n = n < m ? n : m;
        uint8_t *to = (uint8_t *)mine->data + at;
        const uint8_t *source = (const uint8_t *)theirs->data + from;
        if (copy) {
            memcpy(to, source, (size_t)n);
        } else {
            ru_coll_add(dtype, to, source, n / elem, before);
        }
        at += n;
        from += n;
        bytes -= n;
    }
}

void rui_coll_keep_near(const ru_coll *c, rui_coll_lane *lane, uint32_t step)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    if (!run->empty) {
        merge(run->bucket->dtype, &lane->one[step], lane->here[step].spans,
              lane->one[step].size_bytes, true, false);
    }
}

void rui_coll_apply_near(ru_coll *c, rui_coll_lane *lane, uint32_t step)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const ru_coll_step *x = &run->shape->steps[step];
    int64_t bytes = rui_coll_step_bytes(c, lane, step);
    uint32_t aside = run->shape->aside_of[step];
    bool copy = x->kind == RU_COLL_RECV || (x->kind == RU_COLL_RECV_ASIDE && aside == step);
    if (run->bucket->op == RU_COLL_BARRIER) {
        return;
    }
    if (run->empty) {
        return;
    }
    uint32_t n;
    const ru_span *mine = x->kind == RU_COLL_RECV_ASIDE
                              ? &lane->one[aside]
                              : rui_coll_spans_of(c, lane, step, bytes, &n);
    merge(run->bucket->dtype, mine, lane->here[step].spans, bytes, copy, x->before != 0);
}
