#include "train/elastic/peer.h"

#include <stddef.h>

#include "train/elastic/elastic_impl.h"

struct ru_peer {
    ru_peer_options opt;
    ru_node *node;
    ru_elastic *elastic;
};

/* -- elastic training as a part -------------------------------------------------------------------
 */

static void part_step(void *self, const ru_event *ev, ru_effects *fx)
{
    ru_elastic_step(self, ev, fx);
}

static bool part_owns(void *self, uint64_t cookie)
{
    return ru_elastic_owns(self, cookie);
}

static void part_sent(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_elastic_sent(self, cookie, now, fx);
}

static void part_arrived(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_elastic_arrived(self, cookie, now, fx);
}

static void part_failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    ru_elastic_failed(self, cookie, why, now, fx);
}

static void part_room(void *self, ru_time now, ru_effects *fx)
{
    ru_elastic_room(self, now, fx);
}

static bool part_ended(const void *self)
{
    return ru_elastic_ended(self);
}

static const ru_part_ops elastic_part = {.name = "elastic",
                                         .step = part_step,
                                         .owns = part_owns,
                                         .sent = part_sent,
                                         .arrived = part_arrived,
                                         .failed = part_failed,
                                         .room = part_room,
                                         .ended = part_ended};

/* Messages of the owner's own kinds. */
static void owner_step(void *self, const ru_event *ev, ru_effects *fx)
{
    (void)fx;
    const ru_peer *n = self;
    if (ev->kind == RU_EV_MESSAGE && n->opt.owner != NULL) {
        n->opt.owner(n->opt.owner_self, ev->node, ev->what, ev->data, ev->size_bytes, ev->now);
    }
}

static const ru_part_ops owner_part = {.name = "owner", .step = owner_step};

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
        return RU_FAIL(
            err, RU_E_ARG,
            "each process of a job of up to %u members needs %u connections, but its limit is %u",
            o->member.n_max, least, o->chan.peers_max);
    }
    return RU_OK;
}

static ru_status open_parts(ru_peer *n, ru_arena *arena, ru_err *err)
{
    const ru_peer_options *o = &n->opt;
    const ru_node_options no = {.chan = o->chan,
                                .link = o->link,
                                .member = o->member,
                                .timers = o->timers,
                                .log = o->log,
                                .log_self = o->log_self};
    RU_TRY(ru_node_open(&no, arena, &n->node, err));
    RU_TRY(check_peers(o, err));
    n->opt.elastic.member = ru_node_member(n->node);
    n->opt.elastic.chan = ru_node_chan(n->node);
    n->opt.elastic.self = o->chan.self;
    n->opt.elastic.recorder = o->chan.recorder;
    RU_TRY(ru_elastic_open(&n->opt.elastic, arena, &n->elastic, err));
    ru_node_part(n->node, &(ru_part){.ops = &elastic_part,
                                     .self = n->elastic,
                                     .what_first = RU_ELASTIC_WHAT_FIRST,
                                     .what_end = RU_PEER_WHAT_OWNER});
    ru_node_part(n->node, &(ru_part){.ops = &owner_part,
                                     .self = n,
                                     .what_first = RU_PEER_WHAT_OWNER,
                                     .what_end = 2 * RU_PEER_WHAT_OWNER});
    return RU_OK;
}

ru_status ru_peer_open(const ru_peer_options *opt, ru_arena *arena, ru_peer **out, ru_err *err)
{
    ru_peer *n = RU_NEW(arena, ru_peer, 1);
    if (n == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    n->opt = *opt;
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
    if (n->node != NULL) {
        ru_node_quiet(n->node);
    }
    ru_elastic_close(n->elastic);
    ru_node_close(n->node);
}

const ru_link_user *ru_peer_link_user(ru_peer *n)
{
    return ru_node_link_user(n->node);
}

/* -- events from outside -------------------------------------------------------------------------
 */

void ru_peer_start(ru_peer *n, ru_time now)
{
    ru_node_start(n->node, now);
}

void ru_peer_timer(ru_peer *n, uint32_t what, ru_time now)
{
    ru_node_timer(n->node, what, now);
}

void ru_peer_stop(ru_peer *n, bool all, ru_time now)
{
    ru_effects *fx = ru_node_enter(n->node, now);
    ru_elastic_stop(n->elastic, all, now, fx);
    ru_node_leave(n->node, now);
}

void ru_peer_built(ru_peer *n, ru_status st, uint64_t layout, ru_time now)
{
    ru_effects *fx = ru_node_enter(n->node, now);
    ru_elastic_built(n->elastic, st, layout, now, fx);
    ru_node_leave(n->node, now);
}

void ru_peer_ready(ru_peer *n, int64_t step, uint32_t tensor, const ru_span *span, ru_time now)
{
    ru_effects *fx = ru_node_enter(n->node, now);
    ru_elastic_ready(n->elastic, step, tensor, span, now, fx);
    ru_node_leave(n->node, now);
}

void ru_peer_computed(ru_peer *n, int64_t step, ru_status st, int64_t compute_ns, ru_time now)
{
    ru_effects *fx = ru_node_enter(n->node, now);
    ru_elastic_computed(n->elastic, step, st, compute_ns, now, fx);
    ru_node_leave(n->node, now);
}

void ru_peer_aborted(ru_peer *n, ru_time now)
{
    ru_effects *fx = ru_node_enter(n->node, now);
    ru_elastic_aborted(n->elastic, now, fx);
    ru_node_leave(n->node, now);
}

void ru_peer_local_opened(ru_peer *n, ru_status st, ru_time now)
{
    ru_effects *fx = ru_node_enter(n->node, now);
    ru_elastic_local_opened(n->elastic, st, now, fx);
    ru_node_leave(n->node, now);
}

void ru_peer_reduced(ru_peer *n, int64_t step, uint32_t bucket, ru_time now)
{
    ru_effects *fx = ru_node_enter(n->node, now);
    ru_elastic_reduced(n->elastic, step, bucket, now, fx);
    ru_node_leave(n->node, now);
}

void ru_peer_updated(ru_peer *n, int64_t step, ru_status st, ru_time now)
{
    ru_effects *fx = ru_node_enter(n->node, now);
    ru_elastic_updated(n->elastic, step, st, now, fx);
    ru_node_leave(n->node, now);
}

ru_node *ru_peer_node(ru_peer *n)
{
    return n->node;
}

ru_member *ru_peer_member(ru_peer *n)
{
    return ru_node_member(n->node);
}

ru_elastic *ru_peer_elastic(ru_peer *n)
{
    return n->elastic;
}

ru_chan *ru_peer_chan(ru_peer *n)
{
    return ru_node_chan(n->node);
}

ru_node_id ru_peer_self(const ru_peer *n)
{
    return n->opt.chan.self;
}
