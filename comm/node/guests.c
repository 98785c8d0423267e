/* Guests of a process: a channel of their own, each message held against the limits of its guest
 * before a part sees it. Rates are kept as the time at which a guest that used its whole allowance
 * would have earned it again (the generic cell rate algorithm): no state but two instants. */
#include "comm/node/guests.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "comm/node/node_impl.h"

enum {
    N_MAX = 4096,
    SPARE = 8, /* guests beyond n_max that are told why they may not stay */
    STREAMS = 8,
    GUEST_BUFFER_BYTES = 64 << 10,
    BUFFER_MIN = 1 << 20,
    REASON_MAX = 120,
};

static const int64_t second_ns = 1000000000;
static const int64_t parting_ns = 500000000; /* for the sentence to arrive */

typedef struct guest {
    ru_node_id node;
    bool used;
    bool refused;        /* nothing of it is heard any more; closed at close_at */
    uint32_t unanswered; /* messages */
    ru_time heard, close_at;
    ru_time messages_at, bytes_at; /* the whole allowance is there again */
} guest;

struct rui_guests {
    ru_guests_options opt;
    ru_node *node;
    ru_chan *chan;
    guest *at;       /* [cap] */
    uint32_t cap, n; /* n: used and not refused */
    bool watched;    /* the idle timer runs */
    ru_time tick_at;
    uint64_t taken, n_refused;
};

static guest *guest_of(rui_guests *g, ru_node_id node)
{
    for (uint32_t k = 0; k < g->cap; k++) {
        if (g->at[k].used && ru_node_is(g->at[k].node, node)) {
            return &g->at[k];
        }
    }
    return NULL;
}

const ru_part *rui_guests_part(const ru_node *n, uint32_t what)
{
    for (uint32_t k = 0; k < n->n_parts; k++) {
        const ru_part *p = &n->parts[k];
        if (what >= p->guest_first && what < p->guest_end) {
            return p;
        }
    }
    return NULL;
}

/* -- the end of a guest ---------------------------------------------------------------------------
 */

static void watch(rui_guests *g, ru_time now)
{
    if (!g->watched) {
        g->watched = true;
        int64_t pause_ns = g->opt.idle_ns / 4 < parting_ns ? g->opt.idle_ns / 4 : parting_ns;
        g->node->opt.timers.set(g->node->opt.timers.self, RUI_NODE_IDLE_TIMER,
                                ru_time_after(now, pause_ns > 0 ? pause_ns : 1));
    }
}

static void tell_parts(rui_guests *g, ru_node_id node, ru_time now)
{
    const ru_event ev = {.kind = RU_EV_DOWN, .now = now, .node = node};
    for (uint32_t k = 0; k < g->node->n_parts; k++) {
        const ru_part *p = &g->node->parts[k];
        if (p->guest_end > p->guest_first) {
            p->ops->guest(p->self, &ev, rui_node_fx(g->node));
        }
    }
}

static void refuse(rui_guests *g, guest *x, ru_time now, const char *fmt, ...) RU_PRINTF(4, 5);
static void refuse(rui_guests *g, guest *x, ru_time now, const char *fmt, ...)
{
    char why[REASON_MAX], line[REASON_MAX + 64];
    va_list ap;
    va_start(ap, fmt);
    int size = vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    size = size < (int)sizeof why ? size : (int)sizeof why - 1;
    snprintf(line, sizeof line, "guest %016llx is refused: %s", (unsigned long long)x->node.v, why);
    rui_node_say(g->node, RU_LOG_INFO, line, now);
    /* Where even that finds no room, the guest learns no more than that it is closed. */
    (void)!ru_chan_message(g->chan, x->node, RU_GUEST_REFUSED, why, size, now);
    x->refused = true;
    x->close_at = ru_time_after(now, parting_ns);
    g->n_refused++;
    watch(g, now);
}

/* It was one of those that parts know. */
static void refuse_known(rui_guests *g, guest *x, const char *why, ru_time now)
{
    refuse(g, x, now, "%s", why);
    g->n--;
    tell_parts(g, x->node, now);
}

static void idle_tick(rui_guests *g, ru_time now)
{
    bool any = false;
    char why[REASON_MAX];
    g->watched = false;
    for (uint32_t k = 0; k < g->cap; k++) {
        guest *x = &g->at[k];
        if (!x->used) {
            continue;
        }
        any = true;
        if (x->refused && now.ns >= x->close_at.ns) {
            ru_chan_drop(g->chan, x->node, now);
            x->used = false;
        } else if (!x->refused && ru_time_since(now, x->heard) >= g->opt.idle_ns) {
            snprintf(why, sizeof why, "no message for %.1f s", (double)g->opt.idle_ns / 1e9);
            refuse_known(g, x, why, now);
        }
    }
    if (any) {
        watch(g, now);
    }
}

/* -- limits ---------------------------------------------------------------------------------------
 */

/* May it have `cost_ns` more of what earns a second's worth a second? */
static bool allow(ru_time *full_at, int64_t cost_ns, ru_time now)
{
    int64_t from_ns = full_at->ns > now.ns ? full_at->ns : now.ns;
    if (from_ns + cost_ns - now.ns > second_ns) {
        return false;
    }
    full_at->ns = from_ns + cost_ns;
    return true;
}

/* NULL: the message is within all limits. */
static const char *beyond(const rui_guests *g, guest *x, uint32_t what, int64_t size_bytes,
                          char why[REASON_MAX], ru_time now)
{
    const ru_guests_options *o = &g->opt;
    why[0] = '\0';
    if (rui_guests_part(g->node, what) == NULL) {
        snprintf(why, REASON_MAX, "guests may not send message %#x", what);
    } else if (size_bytes > o->message_bytes) {
        snprintf(why, REASON_MAX, "a message has %lld bytes; guests may send at most %u",
                 (long long)size_bytes, o->message_bytes);
    } else if (x->unanswered >= o->unanswered_max) {
        snprintf(why, REASON_MAX, "more than %u unanswered messages", o->unanswered_max);
    } else if (!allow(&x->messages_at, second_ns / o->messages_per_s, now)) {
        snprintf(why, REASON_MAX, "more than %u messages per second", o->messages_per_s);
    } else if (!allow(&x->bytes_at, size_bytes * second_ns / o->bytes_per_s, now)) {
        snprintf(why, REASON_MAX, "more than %u bytes per second", o->bytes_per_s);
    }
    return why[0] != '\0' ? why : NULL;
}

/* -- upcalls of the channel -----------------------------------------------------------------------
 */

static void on_tick_at(void *self, ru_time at)
{
    rui_guests *g = self;
    g->tick_at = at;
    g->node->opt.timers.set(g->node->opt.timers.self, RUI_NODE_GUEST_TIMER, at);
}

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    rui_guests *g = self;
    (void)address;
    ru_node_enter(g->node, now);
    guest *x = guest_of(g, node);
    RU_CHECK(x == NULL); /* `down` comes before the same one is up again */
    for (uint32_t k = 0; k < g->cap && x == NULL; k++) {
        x = !g->at[k].used ? &g->at[k] : NULL;
    }
    RU_CHECK(x != NULL); /* the channel has as many peers */
    *x = (guest){.node = node, .used = true, .heard = now};
    if (g->n == g->opt.n_max) {
        refuse(g, x, now, "this process already has %u guests, its limit", g->opt.n_max);
    } else {
        g->n++;
        watch(g, now);
    }
    ru_node_leave(g->node, now);
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    rui_guests *g = self;
    (void)address;
    (void)why;
    ru_node_enter(g->node, now);
    guest *x = guest_of(g, node);
    if (x != NULL) {
        x->used = false;
        if (!x->refused) {
            g->n--;
            tell_parts(g, node, now);
        }
    }
    ru_node_leave(g->node, now);
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    rui_guests *g = self;
    char why[REASON_MAX];
    ru_effects *fx = ru_node_enter(g->node, now);
    guest *x = guest_of(g, from);
    if (x != NULL && !x->refused) {
        x->heard = now;
        if (beyond(g, x, what, size_bytes, why, now) != NULL) {
            refuse_known(g, x, why, now);
        } else {
            const ru_part *p = rui_guests_part(g->node, what);
            x->unanswered++;
            g->taken++;
            p->ops->guest(p->self,
                          &(ru_event){.kind = RU_EV_MESSAGE,
                                      .now = now,
                                      .node = from,
                                      .what = what,
                                      .data = data,
                                      .size_bytes = size_bytes},
                          fx);
        }
    }
    ru_node_leave(g->node, now);
}

/* The part whose stream to or from a guest this is. */
static const ru_part *sender(const rui_guests *g, uint64_t cookie)
{
    for (uint32_t k = 0; k < g->node->n_parts; k++) {
        const ru_part *p = &g->node->parts[k];
        if (p->guest_end > p->guest_first && p->ops->owns != NULL &&
            p->ops->owns(p->self, cookie)) {
            return p;
        }
    }
    return NULL;
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    rui_guests *g = self;
    ru_effects *fx = ru_node_enter(g->node, now);
    const ru_part *p = sender(g, cookie);
    if (p != NULL) {
        p->ops->sent(p->self, cookie, now, fx);
    }
    ru_node_leave(g->node, now);
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    rui_guests *g = self;
    ru_effects *fx = ru_node_enter(g->node, now);
    const ru_part *p = sender(g, cookie);
    if (p != NULL) {
        p->ops->failed(p->self, cookie, why, now, fx);
    }
    ru_node_leave(g->node, now);
}

static void on_room(void *self, ru_time now)
{
    rui_guests *g = self;
    ru_effects *fx = ru_node_enter(g->node, now);
    for (uint32_t k = 0; k < g->node->n_parts; k++) {
        const ru_part *p = &g->node->parts[k];
        if (p->guest_end > p->guest_first && p->ops->owns != NULL) {
            p->ops->room(p->self, now, fx);
        }
    }
    ru_node_leave(g->node, now);
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    rui_guests *g = self;
    ru_effects *fx = ru_node_enter(g->node, now);
    const ru_part *p = sender(g, cookie);
    if (p != NULL) {
        p->ops->arrived(p->self, cookie, now, fx);
    }
    ru_node_leave(g->node, now);
}

/* -- for the node ---------------------------------------------------------------------------------
 */

void rui_guests_send(ru_node *n, const ru_effect *f, ru_time now)
{
    rui_guests *g = n->guests;
    guest *x = g != NULL ? guest_of(g, f->node) : NULL;
    if (x == NULL || x->refused) {
        return; /* it went; its part has been told */
    }
    ru_status st = ru_chan_message(g->chan, f->node, f->what, f->data, f->size_bytes, now);
    x->unanswered -= x->unanswered > 0 ? 1 : 0;
    if (st == RU_E_LIMIT) {
        refuse_known(g, x, "it does not acknowledge answers fast enough", now);
    } else if (st == RU_E_ARG) {
        rui_node_say(n, RU_LOG_ERROR, "an answer to a guest is longer than messages may be", now);
    }
}

void rui_guests_tick(ru_node *n, ru_time now)
{
    rui_guests *g = n->guests;
    if (g == NULL) {
        return;
    }
    ru_time next = ru_chan_tick(g->chan, now);
    if (next.ns != g->tick_at.ns) {
        on_tick_at(g, next);
    }
}

bool rui_guests_timer(ru_node *n, uint32_t what, ru_time now)
{
    if (what == RUI_NODE_GUEST_TIMER) {
        n->guests->tick_at = (ru_time){0};
    } else if (what == RUI_NODE_IDLE_TIMER) {
        idle_tick(n->guests, now);
    }
    return what == RUI_NODE_GUEST_TIMER || what == RUI_NODE_IDLE_TIMER;
}

void rui_guests_close(rui_guests *g)
{
    if (g != NULL) {
        ru_chan_close(g->chan);
    }
}

/* -- opening --------------------------------------------------------------------------------------
 */

static uint32_t or_default(uint32_t v, uint32_t def)
{
    return v != 0 ? v : def;
}

static ru_status options_check(const ru_guests_options *o, ru_err *err)
{
    if (o->n_max > N_MAX || o->message_bytes > RU_CHAN_MESSAGE_MAX || o->idle_ns < 0) {
        return RU_FAIL(err, RU_E_ARG,
                       "there may be %u guests and messages of %u bytes; expected at most %d "
                       "guests and %d bytes",
                       o->n_max, o->message_bytes, N_MAX, RU_CHAN_MESSAGE_MAX);
    }
    if (o->bytes_per_s < o->message_bytes) {
        return RU_FAIL(err, RU_E_ARG,
                       "the limit of %u bytes per second is smaller than a message of %u bytes",
                       o->bytes_per_s, o->message_bytes);
    }
    return RU_OK;
}

ru_node_id ru_guest_name(const char *name)
{
    uint64_t v = ru_hash_bytes(name, (int64_t)strlen(name), 0);
    return (ru_node_id){v != 0 ? v : 1};
}

uint32_t ru_guests_conns(uint32_t n_max)
{
    return ru_chan_conns(or_default(n_max, 64) + SPARE);
}

ru_status ru_node_guests(ru_node *n, const ru_guests_options *opt, ru_arena *arena, ru_err *err)
{
    RU_CHECK(n->guests == NULL);
    rui_guests *g = RU_NEW(arena, rui_guests, 1);
    if (g == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for guests");
    }
    g->opt = *opt;
    g->opt.n_max = or_default(opt->n_max, 64);
    g->opt.message_bytes = or_default(opt->message_bytes, 4 << 10);
    g->opt.messages_per_s = or_default(opt->messages_per_s, 100);
    g->opt.bytes_per_s = or_default(opt->bytes_per_s, 256 << 10);
    g->opt.unanswered_max = or_default(opt->unanswered_max, 16);
    g->opt.idle_ns = opt->idle_ns != 0 ? opt->idle_ns : 60 * second_ns;
    RU_TRY(options_check(&g->opt, err));
    g->node = n;
    g->cap = g->opt.n_max + SPARE;
    g->at = RU_NEW(arena, guest, g->cap);
    if (g->at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u guests", g->opt.n_max);
    }
    int64_t buffer = (int64_t)g->cap * GUEST_BUFFER_BYTES;
    const ru_chan_options co = {.self = opt->self,
                                .address = opt->address,
                                .job = opt->job,
                                .token = opt->token,
                                .token_bytes = opt->token_bytes,
                                .peers_max = g->cap,
                                .streams_max = STREAMS + opt->streams_max,
                                .key_of = opt->key_of,
                                .key_self = opt->key_self,
                                .slots_max = STREAMS + opt->slots_max,
                                .buffer_bytes = buffer > BUFFER_MIN ? buffer : BUFFER_MIN};
    const ru_chan_user user = {.self = g,
                               .tick_at = on_tick_at,
                               .up = on_up,
                               .down = on_down,
                               .message = on_message,
                               .sent = on_sent,
                               .failed = on_failed,
                               .arrived = on_arrived,
                               .room = on_room};
    RU_TRY(ru_chan_open(&co, &opt->link, &user, arena, &g->chan, err));
    n->guests = g;
    return RU_OK;
}

ru_chan *ru_node_guests_chan(ru_node *n)
{
    return n->guests->chan;
}

const ru_link_user *ru_node_guests_link_user(ru_node *n)
{
    return ru_chan_link_user(n->guests->chan);
}

void ru_node_guests_facts(const ru_node *n, ru_guests_facts *into)
{
    const rui_guests *g = n->guests;
    *into = (ru_guests_facts){.n = g->n, .taken = g->taken, .refused = g->n_refused};
}
