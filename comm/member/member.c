/* Membership: events in, and what owners ask. See member.h for the protocol, member_impl.h for the
 * files. */
#include "comm/member/member.h"

#include <stdio.h>
#include <string.h>

#include "comm/member/member_impl.h"

static int64_t or_default(int64_t v, int64_t def)
{
    return v == 0 ? def : v;
}

static ru_status options_check(const ru_member_options *o, ru_err *err)
{
    size_t n = strnlen(o->self.address, sizeof o->self.address);
    if (o->self.node.v == 0 || n == sizeof o->self.address ||
        !rui_m_address_ok(o->self.address, (uint32_t)n)) {
        return RU_FAIL(err, RU_E_ARG, "membership needs a node id and an address without spaces");
    }
    if (o->self.capacity > RU_MEMBER_CAPACITY_MAX || o->self.tier >= RU_TIERS) {
        return RU_FAIL(err, RU_E_ARG,
                       "a member has %u cores and tier %d, expected at most %d and %d",
                       o->self.capacity, (int)o->self.tier, RU_MEMBER_CAPACITY_MAX, RU_TIERS - 1);
    }
    if (o->join == NULL && o->self.no_vote) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the member that starts a job leads it, so it must vote; start the job on a "
                       "reliable machine and let this one join");
    }
    if (o->join != NULL && !rui_m_address_ok(o->join, (uint32_t)strnlen(o->join, 4096))) {
        return RU_FAIL(err, RU_E_ARG, "'%.100s' is not an address to join; expected host:port",
                       o->join);
    }
    if (o->agreed != NULL && strnlen(o->agreed, RU_MEMBER_AGREED_MAX) == RU_MEMBER_AGREED_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "the settings that members must share are longer than %d bytes",
                       RU_MEMBER_AGREED_MAX - 1);
    }
    if (o->n_max == 0 || o->n_max > RU_MEMBERS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "the largest number of members is %u, expected 1 to %d",
                       o->n_max, RU_MEMBERS_MAX);
    }
    if (o->beat_ns <= 0 || o->suspect_ns < o->beat_ns || o->dead_ns <= o->suspect_ns ||
        o->join_ns <= 0 || o->mesh_max > RUI_M_MESH_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "membership times must be 0 < beat <= suspect < dead and join > 0, and the "
                       "mesh at most %d",
                       RUI_M_MESH_MAX);
    }
    return RU_OK;
}

static bool index_new(rui_m_index *ix, uint32_t n, ru_arena *arena)
{
    uint32_t size = 16;
    while (size < n * 2) {
        size *= 2;
    }
    ix->mask = size - 1;
    ix->slots = RU_NEW(arena, uint32_t, size);
    return ix->slots != NULL;
}

/* Big tables are not zeroed: pages of places never used cost nothing. */
static bool tables_new(ru_member *m, ru_arena *arena)
{
    int64_t n = m->opt.n_max, peers = m->peers_max, info = (int64_t)sizeof(ru_member_info);
    m->bytes_max = n * (RUI_INFO_BYTES_MAX + 8) + RU_MEMBER_BLOB_MAX + 64;
    m->infos = ru_arena_alloc(arena, n * info, 8);
    m->next.at = ru_arena_alloc(arena, n * info, 8);
    m->wanted = ru_arena_alloc(arena, n * info, 8);
    m->joiners = ru_arena_alloc(arena, peers * info, 8);
    m->peers = ru_arena_alloc(arena, peers * (int64_t)sizeof *m->peers, 8);
    m->statuses = ru_arena_alloc(arena, peers * RU_MEMBER_STATUS_MAX, 8);
    m->blob = ru_arena_alloc(arena, RU_MEMBER_BLOB_MAX, 8);
    m->next.bytes = ru_arena_alloc(arena, m->bytes_max, 8);
    m->incoming.bytes = ru_arena_alloc(arena, m->bytes_max, 8);
    m->full = ru_arena_alloc(arena, m->bytes_max, 8);
    m->part = ru_arena_alloc(arena, RUI_M_PART_BYTES + RUI_SMALL_MAX, 8);
    m->join.targets = RU_NEW(arena, rui_m_target, m->opt.mesh_max + RUI_M_LINE);
    return m->infos != NULL && m->next.at != NULL && m->wanted != NULL && m->joiners != NULL &&
           m->peers != NULL && m->statuses != NULL && m->blob != NULL && m->next.bytes != NULL &&
           m->incoming.bytes != NULL && m->full != NULL && m->part != NULL &&
           m->join.targets != NULL && index_new(&m->ranks, m->opt.n_max, arena) &&
           index_new(&m->peer_index, m->peers_max, arena);
}

ru_status ru_member_open(const ru_member_options *opt, ru_arena *arena, ru_member **out,
                         ru_err *err)
{
    ru_member_options o = *opt;
    o.beat_ns = or_default(o.beat_ns, RU_MEMBER_BEAT_NS);
    o.suspect_ns = or_default(o.suspect_ns, RU_MEMBER_SUSPECT_NS);
    o.dead_ns = or_default(o.dead_ns, RU_MEMBER_DEAD_NS);
    o.join_ns = or_default(o.join_ns, 30000000000);
    o.mesh_max = o.mesh_max == 0 ? 64 : o.mesh_max;
    RU_TRY(options_check(&o, err));
    ru_member *m = RU_NEW(arena, ru_member, 1);
    if (m == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for membership");
    }
    m->opt = o;
    m->self = o.self;
    m->peers_max = o.n_max * 2 + 64;
    m->number_next = 1;
    m->sure = true;
    m->pace.more_at = UINT32_MAX;
    if (o.join != NULL) {
        memcpy(m->join.contact, o.join, strlen(o.join) + 1);
    }
    if (!tables_new(m, arena)) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a membership of up to %u", o.n_max);
    }
    m->view = (ru_view){.at = m->infos, .blob = m->blob};
    *out = m;
    return RU_OK;
}

const char *rui_m_who(const ru_member *m, ru_node_id node, char *buf, size_t cap)
{
    uint32_t rank = rui_m_rank(m, node);
    const rui_m_peer *p = rui_m_peer_find(m, node);
    if (rank != RUI_M_NONE) {
        const ru_member_info *i = &m->view.at[rank];
        int host = (int)strcspn(i->host, "/"); /* what follows tells machines of one name apart */
        snprintf(buf, cap, "worker %u (%.*s%s%.70s)", i->number, host > 40 ? 40 : host, i->host,
                 host > 0 ? ", " : "", i->address);
    } else if (p != NULL && p->joins) {
        snprintf(buf, cap, "the joining process at %.70s", rui_m_peer_joiner(m, p)->address);
    } else {
        snprintf(buf, cap, "process %016llx", (unsigned long long)node.v);
    }
    return buf;
}

void rui_m_hostile(ru_member *m, ru_effects *fx, ru_node_id from, const char *what)
{
    enum { ONE_LINE_PER_NS = 1000000000 };
    m->hostile++;
    if (m->hostile > 1 && rui_m_since(m, m->hostile_at) < ONE_LINE_PER_NS) {
        return;
    }
    m->hostile_at = m->now;
    char who[RUI_WHO_MAX];
    ru_fx_log(fx, RU_LOG_WARN, "membership refused %s from %s (%u so far)", what,
              rui_m_who(m, from, who, sizeof who), m->hostile);
}

static void out(ru_member *m, ru_status st, const char *why, ru_effects *fx)
{
    m->phase = RUI_OUT;
    m->lead.v = 0;
    m->pending = false;
    ru_fx_timer_off(fx, RUI_M_TICK);
    m->timer_at.ns = 0;
    ru_fx_log(fx, RU_LOG_INFO, "this process is no longer a member: %s", why);
    ru_fx_local(fx, RU_MEMBER_OUT, (int64_t)st, why, (int64_t)strlen(why) + 1);
}

void rui_m_out(ru_member *m, ru_effects *fx, const char *fmt, ...)
{
    char why[RUI_M_WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    out(m, RU_OK, why, fx);
}

void rui_m_out_for(ru_member *m, ru_effects *fx, ru_status st, const char *fmt, ...)
{
    char why[RUI_M_REFUSED_MAX + RUI_M_WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    out(m, st, why, fx);
}

void rui_m_seen(ru_member *m, uint32_t epoch)
{
    m->epoch_seen = epoch > m->epoch_seen ? epoch : m->epoch_seen;
}

/* -- beats
 * -----------------------------------------------------------------------------------------
 */

static void beat_broken(const ru_member *m, rui_m_beat *b)
{
    for (rui_m_peer *p = NULL;
         b->n_broken < RUI_M_BROKEN_MAX && (p = rui_m_peer_next(m, p)) != NULL;) {
        if (p->rank == RUI_M_NONE || ru_node_is(p->node, m->self.node)) {
            continue;
        }
        bool lost = !p->up && rui_m_since(m, p->down_at) >= m->opt.suspect_ns;
        /* The owner's doubt about a connection that stands is told for a few beats: the leader
         * asks. */
        bool doubt =
            p->suspected != 0 && (!p->up || rui_m_since(m, p->suspected_at) < 2 * m->opt.beat_ns);
        if (p->ended || doubt || lost) {
            bool certain = p->ended || (doubt && p->suspected == 2);
            b->broken[b->n_broken++] = (rui_m_broken){p->node, certain};
        }
    }
}

void rui_m_beat_send(ru_member *m, ru_node_id to, uint8_t extra, bool status, ru_effects *fx)
{
    rui_m_beat b = {.flags = extra,
                    .epoch = m->view.epoch,
                    .accepted = m->voted,
                    .promised = m->promised,
                    .promised_to = m->promised_to,
                    .has_status = status && m->has_status,
                    .status = m->status,
                    .status_bytes = m->status_bytes};
    if (m->phase == RUI_LEADS) {
        b.flags |= m->elect ? RUI_B_LEADS | RUI_B_ELECT : RUI_B_LEADS;
    } else if (m->phase == RUI_SEEKS) {
        b.flags |= rui_m_passes(m) ? RUI_B_SEEKS | RUI_B_PASSES : RUI_B_SEEKS;
    } else if (m->phase == RUI_JOINS) {
        b.flags |= m->join.ready ? RUI_B_READY : 0;
    } else {
        beat_broken(m, &b);
    }
    b.flags |= m->leaving ? RUI_B_LEAVES : 0;
    uint8_t buf[RUI_SMALL_MAX];
    int64_t n = rui_m_put_beat(buf, sizeof buf, &b);
    ru_fx_send(fx, to, RUI_M_BEAT, buf, n);
}

/* To all who follow: one message, many receivers. */
static void beats_lead(ru_member *m, ru_effects *fx)
{
    bool first = true;
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        if (!p->up || (p->rank == RUI_M_NONE && !p->joins)) {
            continue;
        }
        if (first) {
            rui_m_beat_send(m, p->node, 0, false, fx);
            first = false;
        } else {
            ru_fx_send_same(fx, p->node);
        }
    }
}

static void beats(ru_member *m, ru_effects *fx)
{
    m->beat_now = false;
    m->beat_at = ru_time_after(m->now, m->opt.beat_ns);
    m->told.ran_at = m->now;
    const rui_m_peer *lead = m->lead.v != 0 ? rui_m_peer_find(m, m->lead) : NULL;
    if (m->phase == RUI_LEADS) {
        beats_lead(m, fx);
    } else if (m->phase == RUI_SEEKS) {
        rui_m_ask_oldest(m, fx);
    } else if (lead != NULL && lead->up && (m->phase != RUI_JOINS || m->join.welcomed)) {
        rui_m_beat_send(m, m->lead, 0, m->status_new && m->phase == RUI_FOLLOWS, fx);
        m->status_new = m->status_new && m->phase != RUI_FOLLOWS;
        if (m->told.said_at.ns == 0 && ru_node_is(m->told.to, m->lead)) {
            m->told.said_at = m->now;
        }
    }
}

/* A leader's beat, seen by a member: is that whom we follow? */
static void follow(ru_member *m, rui_m_peer *p, const rui_m_beat *b, ru_effects *fx)
{
    bool elect = (b->flags & RUI_B_ELECT) != 0;
    bool bound = m->promised > m->view.epoch && m->promised > m->next.epoch;
    bool mine = elect ? b->promised >= m->promised : ru_node_is(p->node, m->view.leader);
    if (b->epoch != m->view.epoch || !mine ||
        (bound && !ru_node_is(m->promised_to, p->node) && b->promised <= m->promised)) {
        if (bound || b->epoch < m->view.epoch) {
            rui_m_beat_send(m, p->node, 0, false, fx); /* it should know what we promised */
        }
        return;
    }
    if (m->phase == RUI_FOLLOWS && ru_node_is(m->lead, p->node)) {
        rui_m_told_check(m);
        return;
    }
    if (m->phase == RUI_SEEKS) {
        char who[RUI_WHO_MAX];
        ru_fx_log(fx, RU_LOG_WARN, "%s is the leader now", rui_m_who(m, p->node, who, sizeof who));
    }
    if (!m->sure) {
        m->sure_at = ru_time_after(m->now, 2 * m->opt.dead_ns);
    }
    m->phase = RUI_FOLLOWS;
    m->asking = false;
    m->lead = p->node;
    m->status_new = true;
    m->beat_now = true;
}

/* What a beat says about epochs: who of us two is behind? */
static void beat_epochs(ru_member *m, rui_m_peer *p, const rui_m_beat *b, ru_effects *fx)
{
    if (b->epoch > m->view.epoch && m->next.epoch == b->epoch) {
        rui_m_in_force(m, fx);
        return;
    }
    if (b->epoch >= m->view.epoch || m->phase == RUI_OUT) {
        return;
    }
    if (p->rank == RUI_M_NONE) {
        if (b->epoch > 0) {
            rui_m_tell_out(m, p, "the others continued without it", fx);
        }
    } else if (b->accepted == m->view.epoch) {
        rui_m_beat_send(m, p->node, 0, false, fx);
    } else {
        rui_m_view_tell(m, p, fx);
    }
}

static void beat(ru_member *m, rui_m_peer *p, const ru_event *ev, ru_effects *fx)
{
    rui_m_beat b;
    uint32_t far = m->epoch_seen > UINT32_MAX - RUI_M_EPOCH_LEAP ? UINT32_MAX
                                                                 : m->epoch_seen + RUI_M_EPOCH_LEAP;
    if (!rui_m_get_beat(ev, &b) || b.epoch > far || b.accepted > far || b.promised > far) {
        rui_m_hostile(m, fx, ev->node, "a malformed beat");
        return;
    }
    p->epoch = b.epoch;
    m->votes += m->pending && rui_m_votes(m, p->rank) && b.accepted == m->next.epoch &&
                p->accepted != b.accepted;
    p->accepted = b.accepted;
    p->seeks = (b.flags & RUI_B_SEEKS) != 0;
    p->passes = (b.flags & RUI_B_PASSES) != 0;
    if (p->rank != RUI_M_NONE) {
        rui_m_seen(m, b.epoch);
        rui_m_seen(m, b.accepted);
        rui_m_seen(m, b.promised);
    }
    rui_m_pace_there(m, p, b.epoch > b.accepted ? b.epoch : b.accepted);
    beat_epochs(m, p, &b, fx);
    rui_m_view_more(m, fx);
    if (m->phase == RUI_OUT) {
        return;
    }
    if ((b.flags & RUI_B_ASK) != 0 && m->phase != RUI_IDLE) {
        rui_m_beat_send(m, p->node, 0, false, fx);
    }
    if (m->phase == RUI_LEADS) {
        rui_m_lead_beat(m, p, &b, fx);
    } else if ((m->phase == RUI_FOLLOWS || m->phase == RUI_SEEKS) && p->rank != RUI_M_NONE) {
        if ((b.flags & RUI_B_LEADS) != 0) {
            follow(m, p, &b, fx);
        }
        if (m->phase == RUI_FOLLOWS && p->seeks && ru_node_is(p->node, m->lead)) {
            char who[RUI_WHO_MAX];
            rui_m_seek_start(m, fx, "%s is no longer the leader",
                             rui_m_who(m, p->node, who, sizeof who));
        }
        if (m->asking && p->seeks) {
            rui_m_ask_takeover(m, p, fx);
        }
        if (m->phase == RUI_SEEKS) {
            rui_m_seek_check(m, fx);
        }
    }
}

/* -- events
 * ----------------------------------------------------------------------------------------
 */

static void heard(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    p->heard = p->sign_at = m->now;
    p->reported_at.ns = 0;
    if (p->named && fx != NULL) {
        char who[RUI_WHO_MAX];
        ru_fx_log(fx, RU_LOG_INFO, "%s answers again", rui_m_who(m, p->node, who, sizeof who));
    }
    p->named = p->named && fx == NULL;
    if (p->dead && !p->gone) {
        p->dead = false;
        m->change_told = false;
        rui_m_lost_count(m);
    }
}

static void out_message(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    uint32_t epoch;
    char why[RUI_M_WHY_MAX];
    if (!rui_m_get_out(ev, &epoch, why)) {
        rui_m_hostile(m, fx, ev->node, "a malformed leave message");
    } else if (m->phase == RUI_JOINS) {
        rui_m_join_again(m, why, fx);
    } else if (m->view.epoch > 0 &&
               (epoch > m->view.epoch || (m->leaving && ru_node_is(ev->node, m->lead)))) {
        m->removed = !m->leaving;
        rui_m_out(m, fx, "%s", why);
    }
}

static void message(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    rui_m_peer *p = rui_m_peer_find(m, ev->node);
    if (p == NULL || !p->up) {
        rui_m_hostile(m, fx, ev->node, "a message without a connection");
        return;
    }
    heard(m, p, fx);
    switch (ev->what) {
    case RUI_M_HELLO:
        rui_m_hello(m, ev, fx);
        break;
    case RUI_M_REDIRECT:
        rui_m_redirect(m, ev, fx);
        break;
    case RUI_M_WELCOME:
        rui_m_welcome(m, ev, fx);
        break;
    case RUI_M_VIEW:
        rui_m_view_message(m, ev, fx);
        break;
    case RUI_M_BEAT:
        beat(m, p, ev, fx);
        break;
    case RUI_M_TAKEOVER:
        rui_m_takeover(m, ev, fx);
        break;
    case RUI_M_STATUS:
        rui_m_answered(m, ev, fx);
        break;
    case RUI_M_OUT:
        out_message(m, ev, fx);
        break;
    case RUI_M_REFUSED:
        rui_m_refused(m, ev, fx);
        break;
    default:
        rui_m_hostile(m, fx, ev->node, "a message of unknown number");
    }
}

/* Its process is gone; was it out of touch with us before, for so long that it mattered? */
static void ended_mark(ru_member *m, rui_m_peer *p)
{
    p->lost = p->lost || (!p->ended && m->phase == RUI_SEEKS && rui_m_silent(m, p));
    p->ended = true;
}

/* An ended connection might be a mistake of the network: only when no new one can be had is the
 * process gone. */
static void ended_confirm(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    ended_mark(m, p);
    p->confirm_at = ru_time_after(m->now, m->opt.dead_ns - m->opt.suspect_ns);
    p->try_at = m->now;
    if (m->phase == RUI_LEADS || m->phase == RUI_SEEKS || ru_node_is(p->node, m->lead)) {
        rui_m_try(m, p, fx);
    }
}

static void ended_is_gone(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    p->gone = true;
    if (m->phase == RUI_LEADS) {
        rui_m_lead_ended(m, p, fx);
    } else if (m->phase == RUI_SEEKS) {
        rui_m_seek_check(m, fx);
    }
}

/* Does it count for a quorum? */
static bool counts(const rui_m_peer *p)
{
    return p->rank != RUI_M_NONE || p->in_next;
}

static void attempt_failed(ru_member *m, rui_m_peer *p, bool refused, ru_effects *fx)
{
    p->trying = false;
    if (refused && counts(p)) { /* nobody listens there any more */
        ended_mark(m, p);
    }
    p->try_at = ru_time_after(m->now, m->opt.beat_ns);
    if (p->ended && !p->gone) {
        ended_is_gone(m, p, fx);
    }
}

static void down(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    if (m->phase == RUI_JOINS) {
        rui_m_join_down(m, ev, fx);
    }
    rui_m_peer *p = ev->node.v != 0 ? rui_m_peer_find(m, ev->node) : NULL;
    if (ev->node.v == 0 && ev->data != NULL) {
        for (p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
            const char *a = p->trying ? rui_m_address(m, p->node) : NULL;
            if (a != NULL && strncmp(a, ev->data, (size_t)ev->size_bytes) == 0) {
                break;
            }
        }
    }
    if (p == NULL) {
        return;
    }
    if (!p->up) {
        attempt_failed(m, p, ev->value == RU_E_PEER, fx);
        return;
    }
    p->up = p->seeks = p->passes = p->trying = false;
    rui_m_pace_over(m, p);
    p->down_at = p->try_at = m->now;
    if (rui_m_joiner_drop(m, p)) {
        rui_m_change_check(m, false, fx);
    }
    if (!counts(p)) {
        rui_m_peer_remove(m, p);
        return;
    }
    if (ev->value == RU_E_PEER) {
        ended_confirm(m, p, fx);
        m->beat_now = m->phase == RUI_FOLLOWS;
        if (m->phase == RUI_FOLLOWS && ru_node_is(p->node, m->lead)) {
            rui_m_seek_ended(m, p, fx);
        }
    }
}

/* Another process answers where this one was reached: it is gone. */
static void replaced(ru_member *m, ru_node_id by, const ru_event *ev, ru_effects *fx)
{
    for (rui_m_peer *p = NULL; ev->data != NULL && (p = rui_m_peer_next(m, p)) != NULL;) {
        const char *a = p->ended && !p->gone ? rui_m_address(m, p->node) : NULL;
        if (a != NULL && !ru_node_is(p->node, by) &&
            strncmp(a, ev->data, (size_t)ev->size_bytes) == 0) {
            p->trying = false;
            ended_is_gone(m, p, fx);
            return;
        }
    }
}

static void up(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    rui_m_peer *p = ev->node.v != 0 && !ru_node_is(ev->node, m->self.node)
                        ? rui_m_peer_make(m, ev->node)
                        : NULL;
    if (p == NULL) {
        ru_fx_log(fx, RU_LOG_WARN, "a connection was refused: %u processes are known already",
                  m->peers_max);
        ru_fx_disconnect(fx, ev->node);
        return;
    }
    p->up = true;
    p->ended = p->gone = p->lost = p->trying = false;
    if (ru_node_is(p->node, m->told.to)) {
        m->told.said_at.ns = 0; /* by the connection before: the channel does not know any more */
    }
    heard(m, p, fx);
    replaced(m, ev->node, ev, fx);
    if (m->phase == RUI_JOINS) {
        rui_m_join_up(m, ev->node, fx);
    } else if (p->rank != RUI_M_NONE && m->phase != RUI_IDLE) {
        rui_m_beat_send(m, p->node, m->phase == RUI_SEEKS ? RUI_B_ASK : 0, false, fx);
    }
    if (m->asking) {
        rui_m_ask_takeover(m, p, fx);
    }
}

/* -- ticks
 * -----------------------------------------------------------------------------------------
 */

/* The younger side connects to the older ones it should be connected to, without a vote to all in
 * line; after a while the older one tries as well (the younger may not know that the connection is
 * broken). */
static void connect_tick(ru_member *m, ru_effects *fx)
{
    uint32_t self = rui_m_rank(m, m->self.node);
    bool mesh = m->view.n <= m->opt.mesh_max;
    uint32_t n = mesh ? m->view.n : m->line_end;
    for (uint32_t i = 0; self != RUI_M_NONE && i < n; i++) {
        bool connects = mesh ? i < self : rui_m_in_line(m, i) && (i < self || m->self.no_vote);
        if (!connects) {
            continue;
        }
        rui_m_peer *p = rui_m_peer_make(m, m->view.at[i].node);
        if (p != NULL && !p->up && !p->gone) {
            rui_m_try(m, p, fx);
        }
    }
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        if (p->rank != RUI_M_NONE && p->rank > self && !p->up && !p->gone && !p->dead &&
            rui_m_since(m, p->down_at) > 2 * m->opt.beat_ns) {
            rui_m_try(m, p, fx);
        }
    }
}

static void peers_tick(ru_member *m, ru_effects *fx)
{
    enum { STALE_NS = 5000000 };
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        p->trying = p->trying && rui_m_since(m, p->try_at) < 1000 * (int64_t)STALE_NS;
        if (p->ended && !p->gone && m->now.ns >= p->confirm_at.ns) {
            ended_is_gone(m, p, fx);
        }
        bool drop = p->drop_at.ns != 0 && m->now.ns >= p->drop_at.ns;
        if (!counts(p) && !p->joins && (drop || (!p->up && !p->trying))) {
            if (p->up) {
                ru_fx_disconnect(fx, p->node);
            }
            rui_m_peer_remove(m, p);
        }
    }
}

static void follow_tick(ru_member *m, ru_effects *fx)
{
    rui_m_peer *p = rui_m_peer_make(m, m->lead);
    RU_CHECK(p != NULL);
    int64_t silent = rui_m_since(m, p->heard);
    char who[RUI_WHO_MAX];
    rui_m_who(m, m->lead, who, sizeof who);
    if (silent >= m->opt.dead_ns) {
        rui_m_seek_start(m, fx, "the leader, %s, has been silent for %.1f s", who,
                         rui_m_seconds(silent));
        m->sure = false;
    } else if (silent >= m->opt.suspect_ns) {
        if (!p->named) {
            p->named = true;
            ru_fx_log(fx, RU_LOG_WARN, "the leader, %s, has been silent for %.1f s", who,
                      rui_m_seconds(silent));
        }
        rui_m_ask_oldest(m, fx);
    }
}

static void tick(ru_member *m, ru_effects *fx)
{
    peers_tick(m, fx);
    switch (m->phase) {
    case RUI_JOINS:
        rui_m_join_tick(m, fx);
        break;
    case RUI_FOLLOWS:
        connect_tick(m, fx);
        follow_tick(m, fx);
        break;
    case RUI_SEEKS:
        connect_tick(m, fx);
        rui_m_seek_tick(m, fx);
        break;
    case RUI_LEADS:
        connect_tick(m, fx);
        rui_m_lead_tick(m, fx);
        break;
    case RUI_IDLE:
    case RUI_OUT:
        break;
    }
    if (m->phase != RUI_OUT && (m->now.ns >= m->beat_at.ns || m->phase == RUI_SEEKS)) {
        m->beat_now = true;
    }
}

static void start(ru_member *m, ru_effects *fx)
{
    RU_CHECK(m->phase == RUI_IDLE);
    if (m->opt.join != NULL) {
        rui_m_join_start(m, fx);
        return;
    }
    m->phase = RUI_LEADS;
    m->lead = m->self.node;
    m->lead_since = m->now;
    ru_fx_local(fx, RU_MEMBER_LEAD, 0, NULL, 0);
}

static void finish(ru_member *m, ru_effects *fx)
{
    if (m->phase == RUI_OUT || m->phase == RUI_IDLE) {
        return;
    }
    if (m->beat_now) {
        beats(m, fx);
    }
    if (m->timer_at.ns <= m->now.ns) {
        m->timer_at = m->planned = ru_time_after(m->now, m->opt.beat_ns / 2);
        ru_fx_timer(fx, RUI_M_TICK, m->timer_at);
    }
}

void ru_member_step(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    ru_member_wake(m, ev->now, fx);
    if (m->phase == RUI_OUT) {
        return;
    }
    switch (ev->kind) {
    case RU_EV_START:
        start(m, fx);
        break;
    case RU_EV_TIMER:
        tick(m, fx);
        break;
    case RU_EV_MESSAGE:
        message(m, ev, fx);
        break;
    case RU_EV_UP:
        up(m, ev, fx);
        break;
    case RU_EV_DOWN:
        down(m, ev, fx);
        break;
    case RU_EV_LOCAL:
        break;
    }
    finish(m, fx);
}

/* -- what owners ask
 * -------------------------------------------------------------------------------
 */

void ru_member_status_set(ru_member *m, const void *blob, int64_t size_bytes, bool now_please,
                          ru_time now, ru_effects *fx)
{
    RU_CHECK(size_bytes >= 0 && size_bytes <= RU_MEMBER_STATUS_MAX);
    m->now = now.ns > m->now.ns ? now : m->now;
    if (size_bytes > 0) {
        memcpy(m->status, blob, (size_t)size_bytes);
    }
    m->status_bytes = (uint32_t)size_bytes;
    m->has_status = m->status_new = true;
    if (now_please && m->phase == RUI_FOLLOWS) {
        beats(m, fx);
    }
}

void ru_member_leave(ru_member *m, ru_time now, ru_effects *fx)
{
    m->now = now.ns > m->now.ns ? now : m->now;
    if (m->phase == RUI_OUT || m->leaving) {
        return;
    }
    m->leaving = true;
    bool alone = m->phase == RUI_LEADS && m->view.n <= 1;
    if (alone || m->phase == RUI_JOINS || m->phase == RUI_IDLE) {
        rui_m_out(m, fx, "it left");
        return;
    }
    if (m->phase == RUI_LEADS) {
        rui_m_change_check(m, false, fx);
    } else {
        beats(m, fx);
    }
}

void ru_member_suspect(ru_member *m, ru_node_id node, bool certain, ru_time now, ru_effects *fx)
{
    m->now = now.ns > m->now.ns ? now : m->now;
    rui_m_peer *p = rui_m_peer_find(m, node);
    bool known = p != NULL && p->suspected >= (certain ? 2 : 1) &&
                 rui_m_since(m, p->suspected_at) < 2 * m->opt.beat_ns;
    if (p == NULL || p->rank == RUI_M_NONE || known) {
        return;
    }
    p->suspected = certain ? 2 : 1;
    p->suspected_at = m->now;
    if (m->phase == RUI_FOLLOWS) {
        beats(m, fx);
    } else if (m->phase == RUI_LEADS && p->up) {
        p->reported_at = m->now;
        rui_m_beat_send(m, node, RUI_B_ASK, false, fx);
    }
}

void ru_member_heard(ru_member *m, ru_node_id node, ru_time now)
{
    m->now = now.ns > m->now.ns ? now : m->now;
    rui_m_peer *p = rui_m_peer_find(m, node);
    if (p != NULL && p->up) {
        heard(m, p, NULL);
    }
}
