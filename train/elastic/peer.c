#include "train/elastic/peer.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "train/elastic/elastic_impl.h"

/* The channel asks for time at the number above all machines' timers. */
enum { CHAN_TIMER = 0x1000 };

struct ru_peer {
    ru_peer_options opt;
    ru_chan *chan;
    ru_member *member;
    ru_elastic *elastic;
    ru_arena memory[2]; /* of effects: those being performed, and those that come meanwhile */
    ru_effects fx[2];
    uint32_t side;
    uint32_t depth; /* of calls into the machines; effects are performed when the last returns */
    bool performing;
    ru_time tick_at;
};

/* -- effects -------------------------------------------------------------------------------------
 */

static ru_effects *fx_of(ru_peer *n)
{
    return &n->fx[n->side];
}

static void event(ru_peer *n, const ru_event *ev)
{
    bool training = ev->kind == RU_EV_TIMER || ev->kind == RU_EV_MESSAGE;
    if (ev->kind == RU_EV_MESSAGE && ev->what >= RU_ELASTIC_WHAT_FIRST) {
        ru_member_heard(n->member, ev->node, ev->now);
    }
    if (!training || ev->what < RU_ELASTIC_WHAT_FIRST) {
        ru_member_step(n->member, ev, fx_of(n));
    }
    if (!training || ev->what >= RU_ELASTIC_WHAT_FIRST) {
        ru_elastic_step(n->elastic, ev, fx_of(n));
    }
}

static void chan_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now);

static void say(ru_peer *n, int level, const char *line, ru_time now)
{
    bool over = ru_elastic_ended(n->elastic); /* that members of an ended job go is no news */
    if (n->opt.log != NULL && !over) {
        n->opt.log(n->opt.log_self, level, line, now);
    }
}

/* The machines rely on every message to a standing peer: with one missing they would wait for ever
 * for its answer. Who left so many unacknowledged that no further one fits is cut off instead, as
 * if its connection had broken. */
static void lose(ru_peer *n, ru_node_id node, ru_status why, ru_time now)
{
    char line[160];
    snprintf(line, sizeof line,
             "process %016llx is cut off: it takes no control messages any more (%s)",
             (unsigned long long)node.v, ru_status_name(why));
    say(n, RU_LOG_WARN, line, now);
    ru_chan_drop(n->chan, node, now);
    chan_down(n, node, NULL, RU_E_IO, now);
}

static void perform(ru_peer *n, const ru_effect *f, ru_time now)
{
    ru_err err;
    switch (f->kind) {
    case RU_FX_SEND: {
        ru_status st = ru_chan_message(n->chan, f->node, f->what, f->data, f->size_bytes, now);
        if (st == RU_E_ARG) {
            say(n, RU_LOG_ERROR, "a control message is longer than messages may be", now);
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
            say(n, RU_LOG_ERROR, err.text, now);
        }
        break;
    case RU_FX_DISCONNECT:
        ru_chan_drop(n->chan, f->node, now);
        break;
    case RU_FX_LOCAL:
        ru_elastic_step(n->elastic,
                        &(ru_event){.kind = RU_EV_LOCAL,
                                    .now = now,
                                    .node = f->node,
                                    .what = f->what,
                                    .value = f->value,
                                    .data = f->data,
                                    .size_bytes = f->size_bytes},
                        fx_of(n));
        break;
    case RU_FX_LOG:
        say(n, (int)f->value, f->data, now);
        break;
    }
}

/* Perform what the machines asked for, and what that led to, until nothing is left. */
static void perform_all(ru_peer *n, ru_time now)
{
    n->performing = true;
    while (fx_of(n)->n > 0) {
        ru_effects *todo = fx_of(n);
        n->side ^= 1;
        for (uint32_t i = 0; i < todo->n; i++) {
            perform(n, &todo->at[i], now);
        }
        ru_effects_clear(todo);
    }
    n->performing = false;
}

/* First of all this process learns that it stood still for long: it leads nobody then, whatever its
 * own device or the words of others from before say. */
static void enter(ru_peer *n, ru_time now)
{
    if (n->depth++ == 0 && !n->performing) {
        ru_member_wake(n->member, now, fx_of(n));
        perform_all(n, now);
    }
}

static void leave(ru_peer *n, ru_time now)
{
    if (--n->depth > 0 || n->performing) {
        return;
    }
    perform_all(n, now);
    ru_time next = ru_chan_tick(n->chan, now);
    if (next.ns != n->tick_at.ns) {
        n->tick_at = next;
        n->opt.timers.set(n->opt.timers.self, CHAN_TIMER, next);
    }
}

/* -- upcalls of the channel ----------------------------------------------------------------------
 */

static void chan_tick_at(void *self, ru_time at)
{
    ru_peer *n = self;
    n->tick_at = at;
    n->opt.timers.set(n->opt.timers.self, CHAN_TIMER, at);
}

static void chan_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    ru_peer *n = self;
    enter(n, now);
    event(n, &(ru_event){.kind = RU_EV_UP,
                         .now = now,
                         .node = node,
                         .data = address,
                         .size_bytes = (int64_t)strlen(address) + 1});
    leave(n, now);
}

static void chan_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    ru_peer *n = self;
    enter(n, now);
    event(n, &(ru_event){.kind = RU_EV_DOWN,
                         .now = now,
                         .node = node,
                         .value = why,
                         .data = address,
                         .size_bytes = address == NULL ? 0 : (int64_t)strlen(address) + 1});
    leave(n, now);
}

static void chan_message(void *self, ru_node_id from, uint32_t what, const void *data,
                         int64_t size_bytes, ru_time now)
{
    ru_peer *n = self;
    if (what >= RU_PEER_WHAT_OWNER) {
        if (n->opt.owner != NULL) {
            n->opt.owner(n->opt.owner_self, from, what, data, size_bytes, now);
        }
        return;
    }
    enter(n, now);
    event(n, &(ru_event){.kind = RU_EV_MESSAGE,
                         .now = now,
                         .node = from,
                         .what = what,
                         .data = data,
                         .size_bytes = size_bytes});
    leave(n, now);
}

static void chan_sent(void *self, uint64_t cookie, ru_time now)
{
    ru_peer *n = self;
    enter(n, now);
    if (ru_elastic_owns(n->elastic, cookie)) {
        ru_elastic_sent(n->elastic, cookie, now, fx_of(n));
    }
    leave(n, now);
}

static void chan_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    ru_peer *n = self;
    enter(n, now);
    if (ru_elastic_owns(n->elastic, cookie)) {
        ru_elastic_failed(n->elastic, cookie, why, now, fx_of(n));
    }
    leave(n, now);
}

static void chan_arrived(void *self, uint64_t cookie, ru_time now)
{
    ru_peer *n = self;
    enter(n, now);
    if (ru_elastic_owns(n->elastic, cookie)) {
        ru_elastic_arrived(n->elastic, cookie, now, fx_of(n));
    }
    leave(n, now);
}

static void chan_room(void *self, ru_time now)
{
    ru_peer *n = self;
    enter(n, now);
    ru_elastic_room(n->elastic, now, fx_of(n));
    leave(n, now);
}

/* -- opening -------------------------------------------------------------------------------------
 */

/* Members of a small view all exchange with each other; a job that grows beyond keeps those
 * connections and adds partners by halves and doubles (two for each power of two) and those next in
 * line to lead. Who may have fewer would be refused, and dial again, for ever. */
static ru_status check_peers(const ru_peer_options *o, ru_err *err)
{
    enum { IN_LINE = 8 };
    uint32_t others = o->member.n_max - 1, least = RUI_EL_PROBED_MAX + IN_LINE;
    for (uint32_t n = others; n > 0; n /= 2) {
        least += 2;
    }
    least = others < least ? others : least;
    if (o->chan.peers_max < least) {
        return RU_FAIL(err, RU_E_ARG,
                       "a job of up to %u members needs room for %u connections in each, not %u",
                       o->member.n_max, least, o->chan.peers_max);
    }
    return RU_OK;
}

static ru_status open_parts(ru_peer *n, ru_arena *arena, ru_err *err)
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
    RU_TRY(ru_member_open(&n->opt.member, arena, &n->member, err));
    RU_TRY(check_peers(&n->opt, err));
    n->opt.elastic.member = n->member;
    n->opt.elastic.chan = n->chan;
    n->opt.elastic.self = n->opt.chan.self;
    return ru_elastic_open(&n->opt.elastic, arena, &n->elastic, err);
}

ru_status ru_peer_open(const ru_peer_options *opt, ru_arena *arena, ru_peer **out, ru_err *err)
{
    RU_CHECK(ru_node_is(opt->chan.self, opt->member.self.node));
    ru_peer *n = RU_NEW(arena, ru_peer, 1);
    if (n == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    n->opt = *opt;
    for (uint32_t i = 0; i < 2; i++) {
        ru_arena_init(&n->memory[i], 0);
        ru_effects_init(&n->fx[i], &n->memory[i]);
    }
    ru_status st = open_parts(n, arena, err);
    if (st != RU_OK) {
        ru_peer_close(n);
        return st;
    }
    *out = n;
    return RU_OK;
}

void ru_peer_close(ru_peer *n)
{
    if (n == NULL) {
        return;
    }
    n->depth = 1; /* upcalls on the way out perform nothing */
    ru_elastic_close(n->elastic);
    ru_chan_close(n->chan);
    ru_arena_fini(&n->memory[0]);
    ru_arena_fini(&n->memory[1]);
}

const ru_link_user *ru_peer_link_user(ru_peer *n)
{
    return ru_chan_link_user(n->chan);
}

/* -- events from outside -------------------------------------------------------------------------
 */

void ru_peer_start(ru_peer *n, ru_time now)
{
    enter(n, now);
    event(n, &(ru_event){.kind = RU_EV_START, .now = now});
    leave(n, now);
}

void ru_peer_timer(ru_peer *n, uint32_t what, ru_time now)
{
    enter(n, now);
    if (what == CHAN_TIMER) {
        n->tick_at = (ru_time){0};
    } else {
        event(n, &(ru_event){.kind = RU_EV_TIMER, .now = now, .what = what});
    }
    leave(n, now);
}

void ru_peer_stop(ru_peer *n, bool all, ru_time now)
{
    enter(n, now);
    ru_elastic_stop(n->elastic, all, now, fx_of(n));
    leave(n, now);
}

void ru_peer_built(ru_peer *n, ru_status st, uint64_t layout, ru_time now)
{
    enter(n, now);
    ru_elastic_built(n->elastic, st, layout, now, fx_of(n));
    leave(n, now);
}

void ru_peer_ready(ru_peer *n, uint32_t tensor, const ru_span *span, ru_time now)
{
    enter(n, now);
    ru_elastic_ready(n->elastic, tensor, span, now, fx_of(n));
    leave(n, now);
}

void ru_peer_computed(ru_peer *n, ru_status st, int64_t compute_ns, ru_time now)
{
    enter(n, now);
    ru_elastic_computed(n->elastic, st, compute_ns, now, fx_of(n));
    leave(n, now);
}

void ru_peer_aborted(ru_peer *n, ru_time now)
{
    enter(n, now);
    ru_elastic_aborted(n->elastic, now, fx_of(n));
    leave(n, now);
}

void ru_peer_local_opened(ru_peer *n, ru_status st, ru_time now)
{
    enter(n, now);
    ru_elastic_local_opened(n->elastic, st, now, fx_of(n));
    leave(n, now);
}

void ru_peer_reduced(ru_peer *n, uint32_t batch, ru_time now)
{
    enter(n, now);
    ru_elastic_reduced(n->elastic, batch, now, fx_of(n));
    leave(n, now);
}

void ru_peer_updated(ru_peer *n, ru_status st, ru_time now)
{
    enter(n, now);
    ru_elastic_updated(n->elastic, st, now, fx_of(n));
    leave(n, now);
}

ru_member *ru_peer_member(ru_peer *n)
{
    return n->member;
}

ru_elastic *ru_peer_elastic(ru_peer *n)
{
    return n->elastic;
}

ru_chan *ru_peer_chan(ru_peer *n)
{
    return n->chan;
}
