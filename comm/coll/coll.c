/* The engine of collectives: lanes, their steps, and what the channel says about them.
 *
 * All work goes through one queue of lanes: an upcall marks its step, puts the lane into the queue
 * and drains it, unless it came from within a drain (the user began the next iteration inside
 * `done`), which goes on by itself. */
#include "comm/coll/coll.h"

#include <string.h>

#include "base/wire.h"
#include "comm/coll/coll_impl.h"

/* -- names ---------------------------------------------------------------------------------------
 */

static uint64_t stream_of(const ru_coll *c, const rui_coll_lane *lane, const ru_coll_step *x)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    return (uint64_t)(c->opt.epoch & 0xffffff) << 40 | (uint64_t)lane->bucket << 24 |
           (uint64_t)lane->chunk << run->shape->tag_bits | x->tag;
}

static uint64_t cookie_of(const ru_coll *c, const rui_coll_lane *lane, uint32_t step)
{
    return (uint64_t)RU_COLL_COOKIE_BYTE << 56 | (uint64_t)(c->opt.epoch & 0xffffff) << 32 |
           (uint64_t)(lane - c->lanes) << 16 | step;
}

bool ru_coll_owns(const ru_coll *c, uint64_t cookie)
{
    return cookie >> 32 == ((uint64_t)RU_COLL_COOKIE_BYTE << 24 | (c->opt.epoch & 0xffffff));
}

static rui_coll_lane *lane_of(ru_coll *c, uint64_t cookie, uint32_t *step)
{
    uint32_t at = (uint32_t)cookie >> 16;
    *step = (uint32_t)cookie & 0xffff;
    RU_CHECK(ru_coll_owns(c, cookie) && at < c->n_lanes);
    rui_coll_lane *lane = &c->lanes[at];
    RU_CHECK(*step < c->runs[lane->bucket].shape->n);
    return lane;
}

void rui_coll_enqueue(ru_coll *c, rui_coll_lane *lane)
{
    if (!lane->queued) {
        lane->queued = true;
        c->queue[(c->q_head + c->q_n++) % c->n_lanes] = (uint32_t)(lane - c->lanes);
    }
}

/* -- death ---------------------------------------------------------------------------------------
 */

static void cancel_all(ru_coll *c, ru_time now)
{
    for (uint32_t l = 0; l < c->n_lanes; l++) {
        rui_coll_lane *lane = &c->lanes[l];
        const rui_coll_shape *shape = c->runs[lane->bucket].shape;
        for (uint32_t i = 0; i < shape->n; i++) {
            ru_xfer_id id = lane->xfer[i];
            lane->xfer[i] = (ru_xfer_id){0};
            if (id.v != 0 && shape->steps[i].kind == RU_COLL_SEND) {
                ru_chan_cancel(c->opt.chan, id, now);
            } else if (id.v != 0) {
                ru_chan_unpost(c->opt.chan, id, now);
            }
        }
    }
}

void rui_coll_die(ru_coll *c, uint32_t peer, ru_status why, ru_time now)
{
    if (c->dead) {
        return;
    }
    c->dead = true;
    cancel_all(c, now);
    c->user.failed(c->user.self, c->opt.nodes[peer], why, now);
}

/* -- steps ---------------------------------------------------------------------------------------
 */

static void make_ready(rui_coll_lane *lane, const rui_coll_shape *shape, uint32_t step)
{
    lane->ready[lane->tail++ % shape->n] = step;
}

void rui_coll_step_done(ru_coll *c, rui_coll_lane *lane, uint32_t step)
{
    const rui_coll_shape *shape = c->runs[lane->bucket].shape;
    lane->state[step] |= RUI_STEP_DONE;
    lane->left--;
    for (uint32_t k = shape->first[step]; k < shape->first[step + 1]; k++) {
        uint32_t next = shape->followers[k];
        if (--lane->waits[next] == 0) {
            make_ready(lane, shape, next);
        }
    }
}

/* Try again when a transfer ended, or the channel has room. */
void rui_coll_stall(ru_coll *c, rui_coll_lane *lane)
{
    if (!lane->stalled) {
        c->stalled[c->n_stalled++] = (uint32_t)(lane - c->lanes);
    }
    lane->stalled = true;
}

/* What the channel answered to a transfer: room for it? No room is no failure: when there is some
 * again, the channel says so (ru_coll_room). */
static bool accepted(ru_coll *c, rui_coll_lane *lane, uint32_t step, ru_status st, ru_time now)
{
    if (st == RU_OK) {
        return true;
    }
    lane->xfer[step] = (ru_xfer_id){0};
    if (st == RU_E_LIMIT) {
        rui_coll_stall(c, lane);
    } else {
        rui_coll_die(c, c->runs[lane->bucket].shape->steps[step].peer, st, now);
    }
    return false;
}

/* NULL: bytes are only counted. */
static uint8_t *scratch_at(const rui_coll_lane *lane, int64_t offset)
{
    return lane->scratch != NULL ? lane->scratch + offset : NULL;
}

/* The user's spans of a step; an empty run: bytes only. */
const ru_span *rui_coll_spans_of(const ru_coll *c, rui_coll_lane *lane, uint32_t step,
                                 int64_t bytes, uint32_t *n)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const rui_coll_shape *shape = run->shape;
    if (run->empty) {
        lane->one[step] = (ru_span){.data = scratch_at(lane, step), .size_bytes = bytes};
        *n = 1;
        return &lane->one[step];
    }
    *n = lane->cut_at[shape->hi[step]] - lane->cut_at[shape->lo[step]];
    return &lane->spans[lane->cut_at[shape->lo[step]]];
}

ru_chan_class ru_coll_class(ru_chan_class class, bool in_order, int64_t bytes)
{
    bool small = bytes <= RUI_COLL_SMALL_BYTES && !in_order;
    return small && class == RU_CLASS_NORMAL ? RU_CLASS_URGENT : class;
}

static bool send(ru_coll *c, rui_coll_lane *lane, uint32_t step, int64_t bytes, ru_time now)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const ru_coll_step *x = &run->shape->steps[step];
    ru_chan_send_in in = {.to = c->opt.nodes[x->peer],
                          .name = {.stream = stream_of(c, lane, x), .iter = lane->iter},
                          .class = ru_coll_class(run->bucket->class, run->bucket->in_order, bytes),
                          .rank = run->bucket->rank,
                          .deadline = run->deadline,
                          .cookie = cookie_of(c, lane, step),
                          .plan = c->opt.plan,
                          .label = run->bucket->label};
    in.spans = rui_coll_spans_of(c, lane, step, bytes, &in.n_spans);
    ru_status st = ru_chan_send(c->opt.chan, &in, now, &lane->xfer[step]);
    return accepted(c, lane, step, st, now);
}

static bool post(ru_coll *c, rui_coll_lane *lane, uint32_t step, const ru_span *spans, uint32_t n,
                 ru_time now)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const ru_coll_step *x = &run->shape->steps[step];
    ru_chan_post_in in = {.from = c->opt.nodes[x->peer],
                          .name = {.stream = stream_of(c, lane, x), .iter = lane->iter},
                          .spans = spans,
                          .n_spans = n,
                          .cookie = cookie_of(c, lane, step),
                          .plan = c->opt.plan,
                          .label = run->bucket->label};
    return accepted(c, lane, step, ru_chan_post(c->opt.chan, &in, now, &lane->xfer[step]), now);
}

/* Is this run open at whoever receives, without being told? The first one; the first of an
 * iteration where iterations are apart or lanes take turns. */
static bool is_open_untold(const ru_coll *c, const rui_coll_lane *lane)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    bool turns = c->opt.apart || (run->sets == 2 && !lane->jumped);
    return (lane->run == 1 || (turns && lane->chunk == lane->first)) && !run->late;
}

static bool is_open_there(const ru_coll *c, const rui_coll_lane *lane, uint32_t step)
{
    uint32_t o = c->runs[lane->bucket].shape->out_of[step];
    return is_open_untold(c, lane) || (int32_t)(lane->opened[o] - lane->run) >= 0;
}

/* A step whose turn has come. false: no room in the channel, or the group died. */
static bool start(ru_coll *c, rui_coll_lane *lane, uint32_t step, ru_time now)
{
    const ru_coll_step *x = &c->runs[lane->bucket].shape->steps[step];
    int64_t bytes = rui_coll_step_bytes(c, lane, step);
    lane->state[step] |= RUI_STEP_FREE;
    bool moves = x->kind == RU_COLL_SEND || ru_coll_step_receives(x);
    if (moves && bytes == 0) {
        rui_coll_step_done(c, lane, step);
        return true;
    }
    if (x->kind == RU_COLL_SEND && !is_open_there(c, lane, step)) {
        lane->held[lane->n_held++] = step;
        return true;
    }
    if (moves && rui_coll_is_near(c, x->peer)) {
        return rui_coll_near_start(c, lane, step, now);
    }
    if (x->kind == RU_COLL_SEND) {
        return send(c, lane, step, bytes, now);
    }
    if (x->kind == RU_COLL_RECV) {
        uint32_t n;
        const ru_span *spans = rui_coll_spans_of(c, lane, step, bytes, &n);
        return post(c, lane, step, spans, n, now);
    }
    if (!moves || (lane->state[step] & RUI_STEP_ARRIVED) != 0) {
        rui_coll_apply(c, lane, step);
        rui_coll_step_done(c, lane, step);
    }
    return true;
}

/* -- lanes ---------------------------------------------------------------------------------------
 */

/* Scratch receives go to the channel before anything else. */
static bool post_scratch(ru_coll *c, rui_coll_lane *lane, ru_time now)
{
    const rui_coll_shape *shape = c->runs[lane->bucket].shape;
    for (; lane->post_at < shape->n; lane->post_at++) {
        uint32_t i = lane->post_at;
        bool comes = rui_coll_in_scratch(&shape->steps[i]) && lane->one[i].size_bytes > 0;
        if (!comes || rui_coll_is_near(c, shape->steps[i].peer)) {
            continue;
        }
        if (!post(c, lane, i, &lane->one[i], 1, now)) {
            return false;
        }
    }
    return true;
}

void rui_coll_msg_begin(const ru_coll *c, const rui_coll_lane *lane, ru_wire_out *w)
{
    ru_wire_put_u32(w, c->opt.epoch);
    ru_wire_put_u32(w, lane->bucket);
    ru_wire_put_u32(w, lane->index);
    ru_wire_put_u32(w, lane->run);
}

/* Tell those who will send that this run is open. */
static bool tell_open(ru_coll *c, rui_coll_lane *lane, ru_time now)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const rui_coll_shape *shape = run->shape;
    if (is_open_untold(c, lane) || (run->late && !lane->begun)) {
        return true;
    }
    uint8_t buf[RUI_COLL_MSG_BYTES];
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    rui_coll_msg_begin(c, lane, &w);
    for (; lane->tell_at < shape->n_in; lane->tell_at++) {
        uint32_t peer = shape->in[lane->tell_at];
        ru_status st =
            ru_chan_message(c->opt.chan, c->opt.nodes[peer], RU_COLL_WHAT, buf, sizeof buf, now);
        if (st == RU_E_LIMIT) {
            rui_coll_stall(c, lane);
            return false;
        }
        if (st != RU_OK) {
            rui_coll_die(c, peer, st, now);
            return false;
        }
    }
    return true;
}

/* Number of the run for a chunk of an iteration: the same on every rank. */
static uint32_t run_of(const ru_coll *c, const rui_coll_lane *lane, uint32_t chunk, uint32_t iter)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    uint32_t chunks = (run->n_chunks - lane->first + run->n_lanes - 1) / run->n_lanes;
    return 1 + (iter - c->opt.iter_first) * chunks + (chunk - lane->first) / run->n_lanes;
}

/* Get ready for a chunk: what will be added may come from now on. */
void rui_coll_lane_open(ru_coll *c, rui_coll_lane *lane, uint32_t chunk, uint32_t iter)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const rui_coll_shape *shape = run->shape;
    lane->chunk = chunk;
    lane->iter = iter;
    lane->begun = false;
    lane->left = shape->n;
    lane->post_at = lane->head = lane->tail = lane->n_held = lane->tell_at = 0;
    lane->run = run_of(c, lane, chunk, iter);
    memcpy(lane->waits, shape->waits, shape->n * sizeof *lane->waits);
    memset(lane->state, 0, shape->n);
    for (uint32_t i = 0; i < shape->n; i++) {
        if (!rui_coll_in_scratch(&shape->steps[i])) {
            continue;
        }
        bool barrier = run->bucket->op == RU_COLL_BARRIER;
        int64_t off = barrier ? i : (int64_t)shape->unit[i] * run->stride_bytes;
        lane->one[i] =
            (ru_span){.data = scratch_at(lane, off), .size_bytes = rui_coll_step_bytes(c, lane, i)};
    }
    rui_coll_near_open(c, lane);
    rui_coll_enqueue(c, lane);
}

static void lane_begin(ru_coll *c, rui_coll_lane *lane)
{
    const rui_coll_shape *shape = c->runs[lane->bucket].shape;
    lane->begun = true;
    rui_coll_lane_cut(c, lane);
    for (uint32_t i = 0; i < shape->n; i++) {
        if (lane->waits[i] == 0) {
            make_ready(lane, shape, i);
        }
    }
    rui_coll_enqueue(c, lane);
}

/* All steps of the chunk are done: the next chunk of this lane, or the next iteration. */
static void lane_end(ru_coll *c, rui_coll_lane *lane, ru_time now)
{
    rui_coll_run *run = &c->runs[lane->bucket];
    uint32_t next = lane->chunk + run->n_lanes, iter = lane->iter;
    run->chunks_done++;
    if (next < run->n_chunks) {
        rui_coll_lane_open(c, lane, next, iter);
        lane_begin(c, lane);
    } else {
        lane->jumped = false;
        rui_coll_lane_open(c, lane, lane->first, iter + run->sets);
    }
    if (run->chunks_done == run->n_chunks) {
        run->began = false;
        c->user.done(c->user.self, lane->bucket, iter, now);
    }
}

/* As far as its steps go. */
static void lane_steps(ru_coll *c, rui_coll_lane *lane, ru_time now)
{
    uint32_t n = c->runs[lane->bucket].shape->n;
    while (lane->head != lane->tail && !c->dead) {
        if (!start(c, lane, lane->ready[lane->head % n], now)) {
            return;
        }
        lane->head++;
    }
}

static void lane_work(ru_coll *c, rui_coll_lane *lane, ru_time now)
{
    lane->queued = false;
    if (!post_scratch(c, lane, now) || !tell_open(c, lane, now)) {
        return;
    }
    if (lane->begun) {
        lane_steps(c, lane, now);
    }
    if (!c->dead) {
        rui_coll_near_keep(c, lane, now);
    }
    if (lane->begun && lane->left == 0 && !c->dead) {
        lane_end(c, lane, now);
    }
}

void rui_coll_drain(ru_coll *c, ru_time now)
{
    if (c->draining) {
        return;
    }
    c->draining = true;
    while (c->q_n > 0 && !c->dead && !c->closed) {
        rui_coll_lane *lane = &c->lanes[c->queue[c->q_head]];
        c->q_head = (c->q_head + 1) % c->n_lanes;
        c->q_n--;
        lane_work(c, lane, now);
    }
    c->draining = false;
}

/* A transfer ended: those that found no room try again. */
void rui_coll_unstall(ru_coll *c)
{
    for (uint32_t k = 0; k < c->n_stalled; k++) {
        c->lanes[c->stalled[k]].stalled = false;
        rui_coll_enqueue(c, &c->lanes[c->stalled[k]]);
    }
    c->n_stalled = 0;
}

/* -- upcalls of the channel -----------------------------------------------------------------------
 */

void ru_coll_sent(ru_coll *c, uint64_t cookie, ru_time now)
{
    uint32_t step;
    rui_coll_lane *lane = lane_of(c, cookie, &step);
    if (c->dead || c->closed) {
        return;
    }
    lane->xfer[step] = (ru_xfer_id){0};
    rui_coll_step_done(c, lane, step);
    rui_coll_enqueue(c, lane);
    rui_coll_unstall(c);
    rui_coll_drain(c, now);
}

void ru_coll_arrived(ru_coll *c, uint64_t cookie, ru_time now)
{
    uint32_t step;
    rui_coll_lane *lane = lane_of(c, cookie, &step);
    if (c->dead || c->closed) {
        return;
    }
    lane->xfer[step] = (ru_xfer_id){0};
    lane->state[step] |= RUI_STEP_ARRIVED;
    bool scratch = rui_coll_in_scratch(&c->runs[lane->bucket].shape->steps[step]);
    if (!scratch || (lane->state[step] & RUI_STEP_FREE) != 0) {
        if (scratch) {
            rui_coll_apply(c, lane, step);
        }
        rui_coll_step_done(c, lane, step);
        rui_coll_enqueue(c, lane);
    }
    if (!lane->begun && c->user.asked != NULL) {
        c->user.asked(c->user.self, lane->bucket, lane->iter, now);
    }
    rui_coll_unstall(c);
    rui_coll_drain(c, now);
}

void ru_coll_xfer_failed(ru_coll *c, uint64_t cookie, ru_status why, ru_time now)
{
    uint32_t step;
    rui_coll_lane *lane = lane_of(c, cookie, &step);
    if (!c->dead && !c->closed) {
        lane->xfer[step] = (ru_xfer_id){0};
        rui_coll_die(c, c->runs[lane->bucket].shape->steps[step].peer, why, now);
    }
}

void ru_coll_room(ru_coll *c, ru_time now)
{
    if (!c->dead && !c->closed) {
        rui_coll_unstall(c);
        rui_coll_drain(c, now);
    }
}

void ru_coll_heard(ru_coll *c, ru_node_id from, const void *data, int64_t size_bytes, ru_time now)
{
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    uint32_t epoch = ru_wire_u32(&w), bucket = ru_wire_u32(&w), index = ru_wire_u32(&w);
    uint32_t number = ru_wire_u32(&w);
    if (w.bad || epoch != c->opt.epoch || bucket >= c->opt.n_buckets ||
        index >= c->runs[bucket].n_lanes * c->runs[bucket].sets || c->dead || c->closed) {
        return;
    }
    const rui_coll_shape *shape = c->runs[bucket].shape;
    rui_coll_lane *lane = &c->lanes[c->runs[bucket].lane + index];
    if (ru_wire_left(&w) != 0) {
        rui_coll_near_heard(c, lane, from, number, &w, now);
        return;
    }
    for (uint32_t o = 0; o < shape->n_out; o++) {
        if (ru_node_is(c->opt.nodes[shape->out[o]], from) &&
            (int32_t)(number - lane->opened[o]) > 0) {
            lane->opened[o] = number;
        }
    }
    for (uint32_t k = 0; k < lane->n_held; k++) {
        make_ready(lane, shape, lane->held[k]);
    }
    lane->n_held = 0;
    rui_coll_enqueue(c, lane);
    rui_coll_drain(c, now);
}

/* -- the user's side ------------------------------------------------------------------------------
 */

static ru_status check_spans(const ru_coll *c, uint32_t bucket, const ru_span *spans,
                             uint32_t n_spans, ru_err *err)
{
    const rui_coll_run *run = &c->runs[bucket];
    int64_t bytes = 0, want = run->bucket->n * run->elem_bytes;
    for (uint32_t k = 0; k < n_spans; k++) {
        if (spans[k].size_bytes < 0 || spans[k].size_bytes % run->elem_bytes != 0) {
            return RU_FAIL(
                err, RU_E_ARG,
                "sum %u: span %u has %lld bytes, which is not a multiple of the element size %lld",
                bucket, k, (long long)spans[k].size_bytes, (long long)run->elem_bytes);
        }
        bytes += spans[k].size_bytes;
    }
    if (bytes != want && run->bucket->op != RU_COLL_BARRIER) {
        return RU_FAIL(err, RU_E_ARG,
                       "sum %u: the spans have %lld bytes, but the plan expects %lld", bucket,
                       (long long)bytes, (long long)want);
    }
    return RU_OK;
}

/* Room for more spans than before in the lanes of a run. */
static ru_status grow_spans(ru_coll *c, rui_coll_run *run, uint32_t n_spans, ru_err *err)
{
    for (uint32_t l = 0; l < run->n_lanes * run->sets && !run->empty; l++) {
        ru_span *spans = RU_NEW(c->arena, ru_span, (int64_t)n_spans + run->shape->n_cuts);
        if (spans == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for %u spans", n_spans);
        }
        c->lanes[run->lane + l].spans = spans;
    }
    run->spans_cap = n_spans;
    return RU_OK;
}

/* The l-th lane of an iteration. */
static rui_coll_lane *lane_for(const ru_coll *c, const rui_coll_run *run, uint32_t iter, uint32_t l)
{
    uint32_t set = (iter - c->opt.iter_first) % run->sets;
    return &c->lanes[run->lane + set * run->n_lanes + l];
}

/* Lanes that wait for another iteration than the one that came: withdraw their slots. */
static void reopen(ru_coll *c, rui_coll_run *run, uint32_t iter, ru_time now)
{
    for (uint32_t l = 0; l < run->n_lanes; l++) {
        rui_coll_lane *lane = lane_for(c, run, iter, l);
        if (lane->iter == iter) {
            continue;
        }
        lane->jumped = true;
        for (uint32_t i = 0; i < run->shape->n; i++) {
            if (lane->xfer[i].v != 0) {
                ru_xfer_id id = lane->xfer[i];
                lane->xfer[i] = (ru_xfer_id){0};
                ru_chan_unpost(c->opt.chan, id, now);
            }
        }
        rui_coll_lane_open(c, lane, lane->first, iter);
    }
}

ru_status ru_coll_begin(ru_coll *c, uint32_t bucket, uint32_t iter, const ru_span *spans,
                        uint32_t n_spans, ru_time deadline, ru_time now, ru_err *err)
{
    RU_CHECK(bucket < c->opt.n_buckets && !c->closed);
    rui_coll_run *run = &c->runs[bucket];
    if (c->dead) {
        return RU_FAIL(err, RU_E_PEER, "the group of epoch %u has failed", c->opt.epoch);
    }
    if (run->began || (run->ever && (int32_t)(iter - run->iter) <= 0)) {
        return RU_FAIL(err, RU_E_ARG, "sum %u starts iteration %u after iteration %u%s", bucket,
                       iter, run->iter, run->began ? ", which is still running" : "");
    }
    RU_TRY(check_spans(c, bucket, spans, n_spans, err));
    RU_TRY(rui_coll_near_check(c, run, spans, n_spans, err));
    if (n_spans > run->spans_cap) {
        RU_TRY(grow_spans(c, run, n_spans, err));
    }
    reopen(c, run, iter, now);
    run->began = run->ever = true;
    run->iter = iter;
    run->chunks_done = 0;
    run->spans = spans;
    run->n_spans = n_spans;
    run->deadline = deadline;
    for (uint32_t l = 0; l < run->n_lanes; l++) {
        lane_begin(c, lane_for(c, run, iter, l));
    }
    rui_coll_drain(c, now);
    return RU_OK;
}

void ru_coll_close(ru_coll *c, ru_time now)
{
    if (c != NULL && !c->closed) {
        c->closed = true;
        cancel_all(c, now);
    }
}

void ru_coll_needs(const ru_coll *c, ru_coll_size *into)
{
    *into = c->size;
}
