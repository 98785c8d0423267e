/* Hosting step machines: effects performed in order, upcalls handed to whose they are. */
#include "comm/node/node.h"

#include <stdio.h>
#include <string.h>

#include "comm/node/node_impl.h"

/* -- effects -------------------------------------------------------------------------------------
 */

ru_effects *rui_node_fx(ru_node *n)
{
    return &n->fx[n->side];
}

static void step_part(ru_node *n, const ru_part *p, const ru_event *ev)
{
    if (p->ops->step != NULL) {
        p->ops->step(p->self, ev, rui_node_fx(n));
    }
}

static void step_all(ru_node *n, const ru_event *ev)
{
    for (uint32_t k = 0; k < n->n_parts; k++) {
        step_part(n, &n->parts[k], ev);
    }
}

static void event(ru_node *n, const ru_event *ev)
{
    bool one = ev->kind == RU_EV_TIMER || ev->kind == RU_EV_MESSAGE;
    if (!one) {
        ru_member_step(n->member, ev, rui_node_fx(n));
        step_all(n, ev);
        return;
    }
    if (ev->what < RU_NODE_WHAT_FIRST) {
        ru_member_step(n->member, ev, rui_node_fx(n));
        return;
    }
    if (ev->kind == RU_EV_MESSAGE) {
        ru_member_heard(n->member, ev->node, ev->now);
    }
    for (uint32_t k = 0; k < n->n_parts; k++) {
        const ru_part *p = &n->parts[k];
        if (ev->what >= p->what_first && ev->what < p->what_end) {
            step_part(n, p, ev);
            return;
        }
    }
}

static void chan_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now);

void rui_node_say(ru_node *n, int level, const char *line, ru_time now)
{
    bool over = false; /* that members of an ended job go is no news */
    for (uint32_t k = 0; k < n->n_parts; k++) {
        const ru_part *p = &n->parts[k];
        over = over || (p->ops->ended != NULL && p->ops->ended(p->self));
    }
    if (n->opt.log != NULL && !over) {
        n->opt.log(n->opt.log_self, level, line, now);
    }
}

/* The machines rely on every message to a connected peer: with one missing they would wait for its
 * answer until their timeouts. A peer that left so many unacknowledged that no further one fits is
 * cut off instead, as if its connection had broken. */
static void lose(ru_node *n, ru_node_id node, ru_status why, ru_time now)
{
    char line[160];
    snprintf(line, sizeof line,
             "process %016llx is disconnected, because it accepts no control messages (%s)",
             (unsigned long long)node.v, ru_status_name(why));
    rui_node_say(n, RU_LOG_WARN, line, now);
    ru_chan_drop(n->chan, node, now);
    chan_down(n, node, NULL, RU_E_IO, now);
}

static void perform(ru_node *n, const ru_effect *f, ru_time now)
{
    ru_err err;
    switch (f->kind) {
    case RU_FX_SEND: {
        if (rui_guests_part(n, f->what) != NULL) {
            rui_guests_send(n, f, now);
            break;
        }
        ru_status st = ru_chan_message(n->chan, f->node, f->what, f->data, f->size_bytes, now);
        if (st == RU_E_ARG) {
            rui_node_say(n, RU_LOG_ERROR, "a control message is longer than the largest message",
                         now);
        } else if (st != RU_OK && st != RU_E_PEER) { /* a lost peer is told by `down` */
            lose(n, f->node, st, now);
        }
        break;
    }
    case RU_FX_TIMER:
        n->opt.timers.set(n->opt.timers.self, f->what, f->at);
        break;
    case RU_FX_TIMER_OFF:
        n->opt.timers.off(n->opt.timers.self, f->what);
        break;
    case RU_FX_CONNECT:
        if (ru_chan_connect(n->chan, f->data, now, &err) != RU_OK) {
            rui_node_say(n, RU_LOG_ERROR, err.text, now);
        }
        break;
    case RU_FX_DISCONNECT:
        ru_chan_drop(n->chan, f->node, now);
        break;
    case RU_FX_LOCAL:
        step_all(n, &(ru_event){.kind = RU_EV_LOCAL,
                                .now = now,
                                .node = f->node,
                                .what = f->what,
                                .value = f->value,
                                .data = f->data,
                                .size_bytes = f->size_bytes});
        break;
    case RU_FX_LOG:
        rui_node_say(n, (int)f->value, f->data, now);
        break;
    }
}

/* Perform what the machines asked for, and what that led to, until nothing is left. */
static void perform_all(ru_node *n, ru_time now)
{
    n->performing = true;
    while (rui_node_fx(n)->n > 0) {
        ru_effects *todo = rui_node_fx(n);
        n->side ^= 1;
        for (uint32_t i = 0; i < todo->n; i++) {
            perform(n, &todo->at[i], now);
        }
        ru_effects_clear(todo);
    }
    n->performing = false;
}

/* First of all this process learns that it stood still for long: it leads nobody then, whatever its
 * own device or messages of others from before say. */
ru_effects *ru_node_enter(ru_node *n, ru_time now)
{
    if (n->depth++ == 0 && !n->performing) {
        ru_member_wake(n->member, now, rui_node_fx(n));
        perform_all(n, now);
    }
    return rui_node_fx(n);
}

void ru_node_leave(ru_node *n, ru_time now)
{
    if (--n->depth > 0 || n->performing) {
        return;
    }
    perform_all(n, now);
    rui_guests_tick(n, now);
    ru_time next = ru_chan_tick(n->chan, now);
    if (next.ns != n->tick_at.ns) {
        n->tick_at = next;
        n->opt.timers.set(n->opt.timers.self, RUI_NODE_CHAN_TIMER, next);
    }
}

/* -- upcalls of the channel ----------------------------------------------------------------------
 */

static void chan_tick_at(void *self, ru_time at)
{
    ru_node *n = self;
    n->tick_at = at;
    n->opt.timers.set(n->opt.timers.self, RUI_NODE_CHAN_TIMER, at);
}

static ru_time chan_unacked(void *self, ru_node_id node)
{
    const ru_node *n = self;
    return ru_chan_unacked(n->chan, node);
}

static void chan_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    ru_node *n = self;
    ru_node_enter(n, now);
    event(n, &(ru_event){.kind = RU_EV_UP,
                         .now = now,
                         .node = node,
                         .data = address,
                         .size_bytes = (int64_t)strlen(address) + 1});
    ru_node_leave(n, now);
}

static void chan_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    ru_node *n = self;
    ru_node_enter(n, now);
    event(n, &(ru_event){.kind = RU_EV_DOWN,
                         .now = now,
                         .node = node,
                         .value = why,
                         .data = address,
                         .size_bytes = address == NULL ? 0 : (int64_t)strlen(address) + 1});
    ru_node_leave(n, now);
}

static void chan_message(void *self, ru_node_id from, uint32_t what, const void *data,
                         int64_t size_bytes, ru_time now)
{
    ru_node *n = self;
    ru_node_enter(n, now);
    event(n, &(ru_event){.kind = RU_EV_MESSAGE,
                         .now = now,
                         .node = from,
                         .what = what,
                         .data = data,
                         .size_bytes = size_bytes});
    ru_node_leave(n, now);
}

static const ru_part *owner_of(const ru_node *n, uint64_t cookie)
{
    for (uint32_t k = 0; k < n->n_parts; k++) {
        const ru_part *p = &n->parts[k];
        if (p->ops->owns != NULL && p->ops->owns(p->self, cookie)) {
            return p;
        }
    }
    return NULL;
}

static void chan_sent(void *self, uint64_t cookie, ru_time now)
{
    ru_node *n = self;
    ru_effects *fx = ru_node_enter(n, now);
    const ru_part *p = owner_of(n, cookie);
    if (p != NULL) {
        p->ops->sent(p->self, cookie, now, fx);
    }
    ru_node_leave(n, now);
}

static void chan_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    ru_node *n = self;
    ru_effects *fx = ru_node_enter(n, now);
    const ru_part *p = owner_of(n, cookie);
    if (p != NULL) {
        p->ops->failed(p->self, cookie, why, now, fx);
    }
    ru_node_leave(n, now);
}

static void chan_arrived(void *self, uint64_t cookie, ru_time now)
{
    ru_node *n = self;
    ru_effects *fx = ru_node_enter(n, now);
    const ru_part *p = owner_of(n, cookie);
    if (p != NULL) {
        p->ops->arrived(p->self, cookie, now, fx);
    }
    ru_node_leave(n, now);
}

static void chan_room(void *self, ru_time now)
{
    ru_node *n = self;
    ru_effects *fx = ru_node_enter(n, now);
    for (uint32_t k = 0; k < n->n_parts; k++) {
        const ru_part *p = &n->parts[k];
        if (p->ops->room != NULL) {
            p->ops->room(p->self, now, fx);
        }
    }
    ru_node_leave(n, now);
}

/* -- opening -------------------------------------------------------------------------------------
 */

static ru_status open_parts(ru_node *n, ru_arena *arena, ru_err *err)
{
    const ru_chan_user user = {.self = n,
                               .tick_at = chan_tick_at,
                               .up = chan_up,
                               .down = chan_down,
                               .message = chan_message,
                               .sent = chan_sent,
                               .failed = chan_failed,
                               .arrived = chan_arrived,
                               .room = chan_room};
    RU_TRY(ru_chan_open(&n->opt.chan, &n->opt.link, &user, arena, &n->chan, err));
    n->opt.member.unacked = chan_unacked;
    n->opt.member.unacked_self = n;
    return ru_member_open(&n->opt.member, arena, &n->member, err);
}

ru_status ru_node_open(const ru_node_options *opt, ru_arena *arena, ru_node **out, ru_err *err)
{
    RU_CHECK(ru_node_is(opt->chan.self, opt->member.self.node));
    ru_node *n = RU_NEW(arena, ru_node, 1);
    if (n == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a process of a job");
    }
    n->opt = *opt;
    for (uint32_t i = 0; i < 2; i++) {
        ru_arena_init(&n->memory[i], 0);
        ru_effects_init(&n->fx[i], &n->memory[i]);
    }
    ru_status st = open_parts(n, arena, err);
    if (st != RU_OK) {
        ru_node_close(n);
        return st;
    }
    *out = n;
    return RU_OK;
}

void ru_node_part(ru_node *n, const ru_part *part)
{
    RU_CHECK(n->n_parts < RU_NODE_PARTS_MAX);
    RU_CHECK(part->what_first >= RU_NODE_WHAT_FIRST);
    RU_CHECK(part->what_first < part->what_end && part->what_end <= RUI_NODE_TIMERS_FIRST);
    bool guests = part->guest_end > part->guest_first;
    RU_CHECK(!guests || (part->ops->guest != NULL && part->guest_first >= RU_NODE_WHAT_FIRST));
    for (uint32_t k = 0; k < n->n_parts; k++) {
        const ru_part *p = &n->parts[k];
        RU_CHECK(part->what_end <= p->what_first || part->what_first >= p->what_end);
        RU_CHECK(!guests || part->guest_end <= p->guest_first || part->guest_first >= p->guest_end);
        RU_CHECK(!guests || part->guest_end <= p->what_first || part->guest_first >= p->what_end);
        RU_CHECK(p->guest_end <= part->what_first || p->guest_first >= part->what_end);
    }
    n->parts[n->n_parts++] = *part;
}

void ru_node_quiet(ru_node *n)
{
    if (n != NULL) {
        n->depth = 1; /* upcalls on the way out perform nothing */
    }
}

void ru_node_close(ru_node *n)
{
    if (n == NULL) {
        return;
    }
    ru_node_quiet(n);
    rui_guests_close(n->guests);
    ru_chan_close(n->chan);
    ru_arena_fini(&n->memory[0]);
    ru_arena_fini(&n->memory[1]);
}

const ru_link_user *ru_node_link_user(ru_node *n)
{
    return ru_chan_link_user(n->chan);
}

/* -- events from outside -------------------------------------------------------------------------
 */

void ru_node_start(ru_node *n, ru_time now)
{
    ru_node_enter(n, now);
    event(n, &(ru_event){.kind = RU_EV_START, .now = now});
    ru_node_leave(n, now);
}

void ru_node_timer(ru_node *n, uint32_t what, ru_time now)
{
    ru_node_enter(n, now);
    if (what == RUI_NODE_CHAN_TIMER) {
        n->tick_at = (ru_time){0};
    } else if (what < RUI_NODE_TIMERS_FIRST || !rui_guests_timer(n, what, now)) {
        event(n, &(ru_event){.kind = RU_EV_TIMER, .now = now, .what = what});
    }
    ru_node_leave(n, now);
}

ru_member *ru_node_member(ru_node *n)
{
    return n->member;
}

ru_chan *ru_node_chan(ru_node *n)
{
    return n->chan;
}

const ru_node_options *ru_node_opened(const ru_node *n)
{
    return &n->opt;
}
