/* Opening a group: its buckets checked, their shapes, lanes and scratch made. */
#include "comm/coll/coll_impl.h"

static ru_status check_bucket(const ru_coll_options *opt, uint32_t b, ru_err *err)
{
    const ru_coll_bucket *x = &opt->buckets[b];
    const ru_coll_schedule *s = opt->schedules[b];
    bool sums =
        x->op == RU_COLL_ALL_REDUCE || x->op == RU_COLL_REDUCE_SCATTER || x->op == RU_COLL_REDUCE;
    bool types = sums ? x->dtype == RU_F32 || x->dtype == RU_BF16 : ru_dtype_bytes(x->dtype) > 0;
    bool fits =
        s->op == x->op && s->algo == x->algo && s->n_ranks == opt->n_ranks && s->root == x->root;
    if (!fits || x->n < 0 || x->chunk_bytes < 0 || (!types && x->op != RU_COLL_BARRIER) ||
        (uint32_t)x->class >= RU_CLASS_COUNT) {
        return RU_FAIL(
            err, RU_E_ARG,
            "sum %u: %s by %s of %lld %s does not match its schedule: %s by %s, %u ranks of %u", b,
            ru_coll_op_name(x->op), ru_coll_algo_name(x->algo), (long long)x->n,
            ru_dtype_name(x->dtype), ru_coll_op_name(s->op), ru_coll_algo_name(s->algo), s->n_ranks,
            opt->n_ranks);
    }
    return RU_OK;
}

static ru_status find_shape(ru_coll *c, uint32_t b, const rui_coll_shape **out, ru_err *err)
{
    const ru_coll_schedule *s = c->opt.schedules[b];
    for (uint32_t k = 0; k < c->n_shapes; k++) {
        if (c->shapes[k].schedule == s) {
            *out = &c->shapes[k];
            return RU_OK;
        }
    }
    rui_coll_shape *shape = &c->shapes[c->n_shapes];
    bool by_block = rui_coll_by_block(s->op);
    RU_TRY(rui_coll_shape_make(shape, s, c->opt.rank, by_block, c->arena, err));
    c->n_shapes++;
    *out = shape;
    return RU_OK;
}

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Chunks, lanes and sizes of a bucket. */
static ru_status open_run(ru_coll *c, uint32_t b, ru_err *err)
{
    rui_coll_run *run = &c->runs[b];
    RU_TRY(check_bucket(&c->opt, b, err));
    *run = (rui_coll_run){.bucket = &c->opt.buckets[b], .lane = c->n_lanes};
    RU_TRY(find_shape(c, b, &run->shape, err));
    bool barrier = run->bucket->op == RU_COLL_BARRIER;
    run->empty = barrier || c->opt.counted;
    run->elem_bytes = barrier ? 1 : ru_dtype_bytes(run->bucket->dtype);
    int64_t bytes = run->bucket->n * run->elem_bytes, most = INT64_C(1)
                                                             << (24 - run->shape->tag_bits);
    int64_t n = run->bucket->chunk_bytes > 0 ? divide_up(bytes, run->bucket->chunk_bytes) : 1;
    n = n < 1 || barrier ? 1 : n;
    run->n_chunks = (uint32_t)(n < most ? n : most);
    run->n_lanes = run->bucket->depth > 0 && run->bucket->depth < run->n_chunks ? run->bucket->depth
                                                                                : run->n_chunks;
    run->by_block = rui_coll_by_block(run->bucket->op);
    run->late = run->bucket->op == RU_COLL_BROADCAST || run->bucket->op == RU_COLL_ALL_GATHER ||
                run->bucket->op == RU_COLL_ALL_TO_ALL;
    int64_t block =
        divide_up(divide_up(run->bucket->n, run->n_chunks), run->shape->schedule->n_blocks);
    if (run->by_block) {
        block = divide_up(divide_up(run->bucket->n, run->shape->schedule->n_blocks), run->n_chunks);
    }
    run->stride_bytes = round_up(block * run->elem_bytes, RUI_COLL_ALIGN);
    run->spans_cap = c->opt.spans_max > 0 ? c->opt.spans_max : 8;
    bool all = run->bucket->op == RU_COLL_ALL_REDUCE || run->bucket->op == RU_COLL_BARRIER;
    run->sets = all && !c->opt.apart ? 2 : 1;
    c->n_lanes += run->n_lanes * run->sets;
    if (c->n_lanes > RUI_COLL_LANES_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "more than %d chunks would be in flight; lower the depth",
                       RUI_COLL_LANES_MAX);
    }
    return RU_OK;
}

static ru_status open_lane(ru_coll *c, uint32_t bucket, uint32_t index, ru_err *err)
{
    const rui_coll_run *run = &c->runs[bucket];
    const rui_coll_shape *shape = run->shape;
    rui_coll_lane *lane = &c->lanes[run->lane + index];
    bool barrier = run->bucket->op == RU_COLL_BARRIER;
    int64_t scratch = barrier ? shape->n : (int64_t)shape->units * run->stride_bytes;
    *lane = (rui_coll_lane){.bucket = bucket, .index = index, .first = index % run->n_lanes};
    lane->waits = RU_NEW(c->arena, uint32_t, shape->n);
    lane->state = RU_NEW(c->arena, uint8_t, shape->n);
    lane->xfer = RU_NEW(c->arena, ru_xfer_id, shape->n);
    lane->ready = RU_NEW(c->arena, uint32_t, shape->n);
    lane->one = RU_NEW(c->arena, ru_span, shape->n);
    lane->held = RU_NEW(c->arena, uint32_t, shape->n);
    lane->opened = RU_NEW(c->arena, uint32_t, shape->n_out);
    bool room = rui_coll_near_lane(c, lane) && lane->held != NULL && lane->opened != NULL &&
                lane->waits != NULL && lane->state != NULL && lane->xfer != NULL &&
                lane->ready != NULL && lane->one != NULL;
    if (room && !c->opt.counted) {
        lane->scratch = barrier ? RU_NEW(c->arena, uint8_t, scratch)
                                : ru_arena_alloc(c->arena, scratch, RUI_COLL_ALIGN);
        c->size.scratch_bytes += scratch;
        room = lane->scratch != NULL;
    }
    if (room && !run->empty) {
        lane->spans = RU_NEW(c->arena, ru_span, (int64_t)run->spans_cap + shape->n_cuts);
        lane->cut_at = RU_NEW(c->arena, uint32_t, shape->n_cuts);
        room = lane->spans != NULL && lane->cut_at != NULL;
    }
    c->size.slots += shape->n_recv;
    c->size.streams += shape->n_send;
    if (!room) {
        return RU_FAIL(err, RU_E_MEM,
                       "not enough memory for %s of sum %u: %lld bytes of scratch per lane",
                       ru_coll_op_name(run->bucket->op), bucket, (long long)scratch);
    }
    return RU_OK;
}

static ru_status open_all(ru_coll *c, ru_err *err)
{
    for (uint32_t b = 0; b < c->opt.n_buckets; b++) {
        RU_TRY(open_run(c, b, err));
    }
    c->lanes = RU_NEW(c->arena, rui_coll_lane, c->n_lanes);
    c->queue = RU_NEW(c->arena, uint32_t, c->n_lanes);
    c->stalled = RU_NEW(c->arena, uint32_t, c->n_lanes);
    if (c->lanes == NULL || c->queue == NULL || c->stalled == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u chunks in flight", c->n_lanes);
    }
    for (uint32_t b = 0; b < c->opt.n_buckets; b++) {
        for (uint32_t l = 0; l < c->runs[b].n_lanes * c->runs[b].sets; l++) {
            RU_TRY(open_lane(c, b, l, err));
        }
    }
    return RU_OK;
}

/* Others use the same channel, and streams end only when they are acknowledged: a transfer may have
 * to wait for room, but never for one that waits for it. */
static ru_status check_room(const ru_coll *c, ru_err *err)
{
    uint32_t slots = ru_chan_slots(c->opt.chan), streams = ru_chan_streams(c->opt.chan);
    if (c->size.slots > slots || c->size.streams > streams) {
        return RU_FAIL(
            err, RU_E_LIMIT,
            "a group of %u ranks needs %u slots and %u streams at the same time, but its channel "
            "has %u and %u; lower the depth or raise slots_max and streams_max",
            c->opt.n_ranks, c->size.slots, c->size.streams, slots, streams);
    }
    return RU_OK;
}

ru_status ru_coll_open(const ru_coll_options *opt, const ru_coll_user *user, ru_arena *arena,
                       ru_coll **out, ru_err *err)
{
    if (opt->n_ranks < 1 || opt->n_ranks > RU_COLL_RANKS_MAX || opt->rank >= opt->n_ranks ||
        opt->n_buckets > RU_COLL_BUCKETS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "cannot open a group of rank %u of %u with %u sums",
                       opt->rank, opt->n_ranks, opt->n_buckets);
    }
    ru_coll *c = RU_NEW(arena, ru_coll, 1);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a group of %u", opt->n_ranks);
    }
    *c = (ru_coll){.opt = *opt, .user = *user, .arena = arena};
    c->shapes = RU_NEW(arena, rui_coll_shape, opt->n_buckets);
    c->runs = RU_NEW(arena, rui_coll_run, opt->n_buckets);
    if (c->shapes == NULL || c->runs == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for %u sums", opt->n_buckets);
    }
    RU_TRY(open_all(c, err));
    RU_TRY(check_room(c, err));
    for (uint32_t l = 0; l < c->n_lanes; l++) {
        const rui_coll_lane *lane = &c->lanes[l];
        uint32_t set = lane->index / c->runs[lane->bucket].n_lanes;
        rui_coll_lane_open(c, &c->lanes[l], lane->first, opt->iter_first + set);
    }
    *out = c;
    return RU_OK;
}
