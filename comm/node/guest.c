#include "comm/node/guest.h"

#include <string.h>

enum { PEERS = 4, STREAMS = 4, BUFFER_BYTES = 1 << 20 };

struct ru_guest {
    ru_guest_options opt;
    ru_chan *chan;
    ru_node_id host;                  /* 0: not connected */
    bool dials;                       /* waits for an address */
    char reason[RU_GUEST_REASON_MAX]; /* of a refusal that was heard */
    ru_time tick_at;
};

static void on_tick_at(void *self, ru_time at)
{
    ru_guest *g = self;
    g->tick_at = at;
    g->opt.timers.set(g->opt.timers.self, RU_GUEST_TIMER, at);
}

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    ru_guest *g = self;
    (void)address;
    if (!g->dials) {
        ru_chan_drop(g->chan, node, now); /* dialed, and left since */
        return;
    }
    g->dials = false;
    g->host = node;
    g->opt.up(g->opt.self_up, now);
}

static void ended(ru_guest *g, ru_status why, const char *sentence, ru_time now)
{
    char text[RU_GUEST_REASON_MAX];
    memcpy(text, sentence, strlen(sentence) + 1);
    g->host.v = 0;
    g->dials = false;
    g->reason[0] = '\0';
    g->opt.down(g->opt.self_up, why, text, now);
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    ru_guest *g = self;
    (void)address;
    if (ru_node_is(node, g->host) && node.v != 0) {
        ended(g, why, "the connection was lost", now);
    } else if (node.v == 0 && g->dials) {
        ended(g, why, "no connection could be established, or the token is wrong", now);
    }
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    ru_guest *g = self;
    if (!ru_node_is(from, g->host)) {
        return;
    }
    if (what != RU_GUEST_REFUSED) {
        g->opt.message(g->opt.self_up, what, data, size_bytes, now);
        return;
    }
    const char *p = data;
    uint32_t n = 0;
    for (; n < size_bytes && n + 1 < sizeof g->reason; n++) { /* goes to a terminal */
        g->reason[n] = p[n] >= ' ' && p[n] <= '~' ? p[n] : '?';
    }
    g->reason[n] = '\0';
    ru_chan_drop(g->chan, g->host, now);
    ended(g, RU_E_PERM, g->reason, now);
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    ru_guest *g = self;
    if (g->opt.sent != NULL) {
        g->opt.sent(g->opt.self_up, cookie, now);
    }
}

static void on_room(void *self, ru_time now)
{
    ru_guest *g = self;
    if (g->opt.room != NULL) {
        g->opt.room(g->opt.self_up, now);
    }
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    ru_guest *g = self;
    g->opt.arrived(g->opt.self_up, cookie, now);
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    ru_guest *g = self;
    g->opt.failed(g->opt.self_up, cookie, why, now);
}

ru_chan *ru_guest_chan(ru_guest *g)
{
    return g->chan;
}

ru_node_id ru_guest_host(const ru_guest *g)
{
    return g->host;
}

uint32_t ru_guest_conns(void)
{
    return ru_chan_conns(PEERS);
}

ru_status ru_guest_open(const ru_guest_options *opt, ru_arena *arena, ru_guest **out, ru_err *err)
{
    ru_guest *g = RU_NEW(arena, ru_guest, 1);
    if (g == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a guest");
    }
    g->opt = *opt;
    const ru_chan_options co = {.self = opt->self,
                                .address = opt->address,
                                .job = opt->job,
                                .token = opt->token,
                                .token_bytes = opt->token_bytes,
                                .peers_max = PEERS,
                                .streams_max = STREAMS,
                                .slots_max = STREAMS + opt->slots_max,
                                .grants = opt->slots_max > 0,
                                .buffer_bytes = BUFFER_BYTES};
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
    *out = g;
    return RU_OK;
}

void ru_guest_close(ru_guest *g)
{
    if (g != NULL) {
        ru_chan_close(g->chan);
    }
}

const ru_link_user *ru_guest_link_user(ru_guest *g)
{
    return ru_chan_link_user(g->chan);
}

static void tick(ru_guest *g, ru_time now)
{
    ru_time next = ru_chan_tick(g->chan, now);
    if (next.ns != g->tick_at.ns) {
        on_tick_at(g, next);
    }
}

void ru_guest_timer(ru_guest *g, ru_time now)
{
    g->tick_at = (ru_time){0};
    tick(g, now);
}

ru_status ru_guest_dial(ru_guest *g, const char *address, ru_time now, ru_err *err)
{
    if (g->host.v != 0) {
        ru_chan_drop(g->chan, g->host, now);
        g->host.v = 0;
    }
    RU_TRY(ru_chan_connect(g->chan, address, now, err));
    g->dials = true;
    tick(g, now);
    return RU_OK;
}

ru_status ru_guest_send(ru_guest *g, uint32_t what, const void *data, int64_t size_bytes,
                        ru_time now)
{
    if (g->host.v == 0) {
        return RU_E_PEER;
    }
    ru_status st = ru_chan_message(g->chan, g->host, what, data, size_bytes, now);
    tick(g, now);
    return st;
}
