/* Steps between members of one host: a message says where the bytes lie, another one that they were
 * taken.
 *
 *   sender    SEND's turn: HERE(step's tag, places)  --> receiver       TAKEN --> the send is done
 *   receiver  HERE and the receive's turn: add or copy out of the sender's memory, TAKEN
 *
 *   message = epoch, bucket, lane, run (as of an opened run) | kind 16, tag 16 | (offset 64, size
 * 64)
 * ...
 *
 * Places are offsets in the sender's memory; the receiver checks that they lie inside of what it
 * has mapped and are as many bytes as its step. A message may come before its run is open here: it
 * is kept with the step, whose sender cannot say more before that run is over.
 *
 * What is added may come at any time, says the contract of schedules: two ranks that exchange
 * blocks must not each wait for the other's turn. So such bytes are copied when their turn is not
 * there yet; in a hierarchy, where a send leads to nothing but the wait for its result, they are
 * not. */
#include <string.h>

#include "comm/coll/coll_impl.h"

enum { HERE = 1, TAKEN = 2 };

static uint32_t spans_cap(const ru_coll *c, const rui_coll_run *run)
{
    return (c->opt.spans_max > 0 ? c->opt.spans_max : 8) + run->shape->n_cuts;
}

static bool is_near_receive(const ru_coll *c, const ru_coll_step *x)
{
    return ru_coll_step_receives(x) && rui_coll_is_near(c, x->peer);
}

bool rui_coll_near_lane(ru_coll *c, rui_coll_lane *lane)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const rui_coll_shape *shape = run->shape;
    if (c->opt.near == NULL) {
        return true;
    }
    c->msg = c->msg != NULL ? c->msg : ru_arena_alloc(c->arena, RU_CHAN_MESSAGE_MAX, 8);
    lane->here = RU_NEW(c->arena, rui_coll_here, shape->n);
    bool room = c->msg != NULL && lane->here != NULL;
    for (uint32_t i = 0; room && i < shape->n; i++) {
        if (is_near_receive(c, &shape->steps[i])) {
            lane->here[i].spans = RU_NEW(c->arena, ru_span, spans_cap(c, run));
            room = lane->here[i].spans != NULL;
        }
    }
    return room;
}

void rui_coll_near_open(const ru_coll *c, rui_coll_lane *lane)
{
    uint32_t n = c->runs[lane->bucket].shape->n;
    for (uint32_t i = 0; lane->here != NULL && i < n; i++) {
        if (lane->here[i].run == lane->run) {
            lane->state[i] |= RUI_STEP_ARRIVED;
        }
    }
}

ru_status rui_coll_near_check(const ru_coll *c, const rui_coll_run *run, const ru_span *spans,
                              uint32_t n_spans, ru_err *err)
{
    if (c->opt.near == NULL || run->empty) {
        return RU_OK;
    }
    if (n_spans + run->shape->n_cuts > spans_cap(c, run)) {
        return RU_FAIL(err, RU_E_ARG, "%u spans in memory of the host, %u were expected at most",
                       n_spans, spans_cap(c, run) - run->shape->n_cuts);
    }
    const ru_span *own = &c->opt.near[c->opt.rank];
    for (uint32_t k = 0; k < n_spans; k++) {
        const uint8_t *base = own->data, *at = spans[k].data;
        if (spans[k].size_bytes > 0 &&
            (at < base || at + spans[k].size_bytes > base + own->size_bytes)) {
            return RU_FAIL(err, RU_E_ARG, "span %u of %lld bytes lies outside the shared memory", k,
                           (long long)spans[k].size_bytes);
        }
    }
    return RU_OK;
}

static bool say(ru_coll *c, uint32_t peer, const ru_wire_out *w, rui_coll_lane *lane, ru_time now)
{
    ru_status st = ru_chan_message(c->opt.chan, c->opt.nodes[peer], RU_COLL_WHAT, c->msg,
                                   ru_wire_size(w), now);
    if (st == RU_E_LIMIT && lane != NULL) {
        rui_coll_stall(c, lane);
        return false;
    }
    if (st != RU_OK) {
        rui_coll_die(c, peer, st, now);
        return false;
    }
    return true;
}

static ru_wire_out msg_of(const ru_coll *c, const rui_coll_lane *lane, uint16_t kind, uint16_t tag)
{
    ru_wire_out w = ru_wire_out_into(c->msg, RU_CHAN_MESSAGE_MAX);
    rui_coll_msg_begin(c, lane, &w);
    ru_wire_put_u16(&w, kind);
    ru_wire_put_u16(&w, tag);
    return w;
}

static bool say_here(ru_coll *c, rui_coll_lane *lane, uint32_t step, ru_time now)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const ru_coll_step *x = &run->shape->steps[step];
    ru_wire_out w = msg_of(c, lane, HERE, x->tag);
    if (!run->empty) {
        uint32_t n;
        const ru_span *spans =
            rui_coll_spans_of(c, lane, step, rui_coll_step_bytes(c, lane, step), &n);
        const uint8_t *base = c->opt.near[c->opt.rank].data;
        for (uint32_t k = 0; k < n; k++) {
            ru_wire_put_u64(&w, (uint64_t)((const uint8_t *)spans[k].data - base));
            ru_wire_put_u64(&w, (uint64_t)spans[k].size_bytes);
        }
    }
    if (w.bad) {
        rui_coll_die(c, x->peer, RU_E_LIMIT, now);
        return false;
    }
    return say(c, x->peer, &w, lane, now);
}

/* The sender may go on. */
static bool say_taken(ru_coll *c, rui_coll_lane *lane, uint32_t step, ru_time now)
{
    const ru_coll_step *x = &c->runs[lane->bucket].shape->steps[step];
    lane->here[step].run = 0;
    ru_wire_out w = msg_of(c, lane, TAKEN, x->tag);
    return say(c, x->peer, &w, NULL, now);
}

/* Are the places as many bytes as the step? Else the sender is no honest member. */
static bool fits(ru_coll *c, rui_coll_lane *lane, uint32_t step, ru_time now)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const rui_coll_here *h = &lane->here[step];
    int64_t bytes = 0;
    for (uint32_t k = 0; k < h->n_spans; k++) {
        bytes += h->spans[k].size_bytes;
    }
    if (!run->empty && bytes != rui_coll_step_bytes(c, lane, step)) {
        rui_coll_die(c, run->shape->steps[step].peer, RU_E_DATA, now);
        return false;
    }
    return true;
}

/* The bytes are there and it is their turn. */
static bool take(ru_coll *c, rui_coll_lane *lane, uint32_t step, ru_time now)
{
    if ((lane->state[step] & RUI_STEP_KEPT) != 0) {
        rui_coll_apply(c, lane, step);
    } else {
        if (!fits(c, lane, step, now)) {
            return false;
        }
        rui_coll_apply_near(c, lane, step);
        if (!say_taken(c, lane, step, now)) {
            return false;
        }
    }
    rui_coll_step_done(c, lane, step);
    return true;
}

void rui_coll_near_keep(ru_coll *c, rui_coll_lane *lane, ru_time now)
{
    const rui_coll_shape *shape = c->runs[lane->bucket].shape;
    if (lane->here == NULL || shape->schedule->algo == RU_ALGO_HIERARCHY) {
        return;
    }
    for (uint32_t i = 0; i < shape->n && !c->dead; i++) {
        uint8_t is = lane->state[i] & (RUI_STEP_ARRIVED | RUI_STEP_FREE | RUI_STEP_KEPT);
        bool early = is == RUI_STEP_ARRIVED && rui_coll_in_scratch(&shape->steps[i]) &&
                     rui_coll_is_near(c, shape->steps[i].peer);
        if (early && fits(c, lane, i, now)) {
            rui_coll_keep_near(c, lane, i);
            lane->state[i] |= RUI_STEP_KEPT;
            (void)say_taken(c, lane, i, now);
        }
    }
}

bool rui_coll_near_start(ru_coll *c, rui_coll_lane *lane, uint32_t step, ru_time now)
{
    if (c->runs[lane->bucket].shape->steps[step].kind == RU_COLL_SEND) {
        return say_here(c, lane, step, now);
    }
    return (lane->state[step] & RUI_STEP_ARRIVED) == 0 || take(c, lane, step, now);
}

/* The step that a message speaks of; the count when there is none. */
static uint32_t step_of(const ru_coll *c, const rui_coll_shape *shape, ru_node_id from, bool send,
                        uint16_t tag)
{
    uint32_t i = 0;
    for (; i < shape->n; i++) {
        const ru_coll_step *x = &shape->steps[i];
        bool is = send ? x->kind == RU_COLL_SEND : ru_coll_step_receives(x);
        if (is && x->tag == tag && rui_coll_is_near(c, x->peer) &&
            ru_node_is(c->opt.nodes[x->peer], from)) {
            break;
        }
    }
    return i;
}

/* Places into the step's; false: they are not in the sender's memory. */
static bool read_places(const ru_coll *c, const rui_coll_lane *lane, uint32_t step, ru_wire_in *w)
{
    const rui_coll_run *run = &c->runs[lane->bucket];
    const ru_span *theirs = &c->opt.near[run->shape->steps[step].peer];
    rui_coll_here *h = &lane->here[step];
    for (h->n_spans = 0; ru_wire_left(w) > 0; h->n_spans++) {
        uint64_t at = ru_wire_u64(w), size = ru_wire_u64(w), all = (uint64_t)theirs->size_bytes;
        if (w->bad || h->n_spans == spans_cap(c, run) || at > all || size > all - at ||
            (at | size) % (uint64_t)run->elem_bytes != 0) {
            return false;
        }
        h->spans[h->n_spans] = (ru_span){(uint8_t *)theirs->data + at, (int64_t)size};
    }
    return true;
}

void rui_coll_near_heard(ru_coll *c, rui_coll_lane *lane, ru_node_id from, uint32_t number,
                         ru_wire_in *w, ru_time now)
{
    const rui_coll_shape *shape = c->runs[lane->bucket].shape;
    uint16_t kind = ru_wire_u16(w), tag = ru_wire_u16(w);
    uint32_t step = step_of(c, shape, from, kind == TAKEN, tag);
    bool known = !w->bad && (kind == HERE || kind == TAKEN) && step < shape->n &&
                 (int32_t)(number - lane->run) >= 0;
    if (!known) {
        return;
    }
    if (kind == HERE) {
        if (!read_places(c, lane, step, w)) {
            rui_coll_die(c, shape->steps[step].peer, RU_E_DATA, now);
            return;
        }
        lane->here[step].run = number;
        if (number != lane->run) {
            return;
        }
        lane->state[step] |= RUI_STEP_ARRIVED;
        if ((lane->state[step] & RUI_STEP_FREE) != 0 && !take(c, lane, step, now)) {
            return;
        }
    } else {
        bool due = (lane->state[step] & (RUI_STEP_FREE | RUI_STEP_DONE)) == RUI_STEP_FREE;
        if (number != lane->run || !due) {
            return;
        }
        rui_coll_step_done(c, lane, step);
        rui_coll_unstall(c);
    }
    rui_coll_enqueue(c, lane);
    rui_coll_drain(c, now);
}
