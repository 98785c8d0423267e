/* Without a leader. Whoever misses it says so to the oldest members; the oldest of those that
 * answer asks all for a promise once a quorum misses the leader (so that one bad connection
 * disturbs nobody), learns what they know, and leads when a quorum promised and everybody else is
 * gone or had time to answer. */
#include <stdio.h>
#include <string.h>

#include "comm/member/member_impl.h"

enum { STUCK_NAMES = 3, STUCK_TEXT_MAX = STUCK_NAMES * RUI_WHO_MAX, STUCK_DOUBLES = 4 };

static const int64_t stuck_ns = 5000000000;

static bool is_self(const ru_member *m, ru_node_id node)
{
    return ru_node_is(node, m->self.node);
}

/* How long somebody may take to answer. */
static int64_t patience_ns(const ru_member *m)
{
    return m->opt.dead_ns - m->opt.suspect_ns;
}

/* The older, the sooner it tries again. */
static int64_t turn_ns(const ru_member *m)
{
    uint32_t rank = rui_m_rank(m, m->self.node);
    return m->opt.beat_ns * (1 + (rank < RUI_M_ASKED ? rank : RUI_M_ASKED));
}

bool rui_m_silent(const ru_member *m, const rui_m_peer *p)
{
    return p->asked_at.ns != 0 && p->heard.ns < p->asked_at.ns &&
           rui_m_since(m, p->asked_at) >= patience_ns(m);
}

/* May those that are neither the leader nor this process have put a view in force without it before
 * it missed the leader? They need to be a quorum, and to have waited for its answer. */
static bool others_decided(const ru_member *m)
{
    const rui_m_peer *lead = m->lead.v != 0 ? rui_m_peer_find(m, m->lead) : NULL;
    if (lead == NULL || rui_m_since(m, lead->heard) < patience_ns(m)) {
        return false;
    }
    uint32_t others = m->voters > 2 ? m->voters - 2 : 0;
    ru_node_id oldest = m->view.at[m->oldest].node;
    bool with_oldest = !is_self(m, oldest) && !ru_node_is(oldest, lead->node);
    return others * 2 > m->voters || (others * 2 == m->voters && with_oldest);
}

/* And since then? A member that lost touch with this one, dead by now or not, may have stopped
 * waiting for it and taken over. Members that answer here count for that other one as well: each
 * may have promised it, and tells what it accepted only later. A member that died while it was in
 * touch took no part. */
bool rui_m_others_decide(const ru_member *m)
{
    uint32_t n = 0;
    bool oldest = false, silent = false;
    for (uint32_t i = 0; i < m->view.n; i++) {
        if (!rui_m_votes(m, i) || is_self(m, m->view.at[i].node)) {
            continue;
        }
        const rui_m_peer *p = rui_m_peer_find(m, m->view.at[i].node);
        bool lost = p != NULL && (p->lost || (!p->ended && rui_m_silent(m, p)));
        bool may = p == NULL || !p->ended || lost;
        silent = silent || lost;
        n += may;
        oldest = i == m->oldest ? may : oldest;
    }
    return silent && (n * 2 > m->voters || (n * 2 == m->voters && oldest));
}

/* Was the leader itself not heard for so long that it may have gone on without this process? Others
 * may have told of its view meanwhile. */
static bool out_of_touch(const ru_member *m)
{
    const rui_m_peer *lead = m->phase == RUI_FOLLOWS ? rui_m_peer_find(m, m->lead) : NULL;
    return lead != NULL && rui_m_since(m, lead->sign_at) >= rui_m_replaced_after_ns(m);
}

void rui_m_seek_start(ru_member *m, ru_effects *fx, const char *fmt, ...)
{
    char why[RUI_M_WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    bool led = m->phase == RUI_LEADS;
    m->sure = m->now.ns >= m->sure_at.ns && !others_decided(m) && !out_of_touch(m);
    m->phase = RUI_SEEKS;
    m->lead.v = 0;
    m->seek_since = m->ask_at = m->now;
    m->asking = m->pending = m->elect = m->adopting = m->lead_wait = false;
    m->stuck_named = 0;
    m->stuck_at = ru_time_after(m->now, stuck_ns);
    m->beat_now = true;
    rui_m_pace_end(m);
    ru_fx_log(fx, RU_LOG_WARN, "%s: %s", led ? "this process stops leading" : "no leader", why);
    ru_fx_local(fx, RU_MEMBER_LEADERLESS, led, why, (int64_t)strlen(why) + 1);
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        p->joins = p->ready = false;
        if (p->ended && !p->gone && p->rank != RUI_M_NONE) {
            rui_m_try(m, p, fx);
        }
    }
}

void rui_m_seek_ended(ru_member *m, const rui_m_peer *lead, ru_effects *fx)
{
    char who[RUI_WHO_MAX];
    rui_m_seek_start(m, fx, "the connection to the leader, %s, was closed",
                     rui_m_who(m, lead->node, who, sizeof who));
}

/* Whom a process without a leader asks: voters among members [0, n) of the view, of them those that
 * live. The oldest voters ask everybody, since one of them is to lead. */
static uint32_t asked_n(const ru_member *m)
{
    uint32_t self = rui_m_rank(m, m->self.node), n = 0, living = 0;
    while (n < m->view.n && living < RUI_M_ASKED) {
        living += n != self && rui_m_votes(m, n) && !rui_m_gone(m, m->view.at[n].node);
        n++;
    }
    return self < n && !m->self.no_vote ? m->view.n : n;
}

void rui_m_ask_oldest(ru_member *m, ru_effects *fx)
{
    bool first = true;
    for (uint32_t i = 0, n = asked_n(m); i < n; i++) {
        ru_node_id node = m->view.at[i].node;
        bool asks = !is_self(m, node) && (rui_m_votes(m, i) || !m->self.no_vote);
        rui_m_peer *p = asks ? rui_m_peer_make(m, node) : NULL;
        if (p == NULL || p->gone) {
            continue;
        }
        if (p->asked_at.ns == 0 || p->heard.ns >= p->asked_at.ns) {
            p->asked_at = m->now; /* else: the oldest question without an answer counts */
        }
        if (!p->up) {
            continue;
        }
        if (first) {
            rui_m_beat_send(m, p->node, RUI_B_ASK, false, fx);
            first = false;
        } else {
            ru_fx_send_same(fx, p->node);
        }
    }
}

/* -- deciding -------------------------------------------------------------------------------------
 */

static bool vote_seeks(const ru_member *m, ru_node_id node)
{
    const rui_m_peer *p = rui_m_peer_find(m, node);
    return is_self(m, node) || (p != NULL && p->up && p->seeks);
}

static bool vote_granted(const ru_member *m, ru_node_id node)
{
    const rui_m_peer *p = rui_m_peer_find(m, node);
    return is_self(m, node) || (p != NULL && p->granted == m->ballot);
}

bool rui_m_passes(const ru_member *m)
{
    if (m->self.no_vote) {
        return false;
    }
    for (uint32_t i = 0; i < m->view.n && !m->sure; i++) {
        if (rui_m_votes(m, i) && !vote_seeks(m, m->view.at[i].node) &&
            !rui_m_gone(m, m->view.at[i].node)) {
            return false;
        }
    }
    return !m->sure && !rui_m_quorum(m, m->view.at, m->view.n, vote_seeks);
}

/* Is it up to this process to take over? Yes when it votes and every older voter is gone or does
 * not answer, or lacks the certainty that this process has. */
static bool is_candidate(const ru_member *m)
{
    for (uint32_t i = 0; i < m->view.n && !m->self.no_vote; i++) {
        ru_node_id node = m->view.at[i].node;
        if (!rui_m_votes(m, i)) {
            continue;
        }
        if (is_self(m, node)) {
            return true;
        }
        const rui_m_peer *p = rui_m_peer_find(m, node);
        bool passed = p != NULL && (p->gone || rui_m_silent(m, p) || (p->passes && m->sure));
        /* Whoever is older and answers but gets nowhere: the next in line try in turn. */
        int64_t late_ns = 4 * m->opt.dead_ns + (int64_t)(i + 1) * 4 * m->opt.beat_ns;
        if (!passed && rui_m_since(m, m->seek_since) < late_ns) {
            return false;
        }
    }
    return false;
}

void rui_m_ask_takeover(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    bool again = p->asked == m->ballot && rui_m_since(m, p->takeover_at) < m->opt.beat_ns / 2;
    if (!m->asking || !p->up || p->granted == m->ballot || again) {
        return;
    }
    p->asked = m->ballot;
    p->takeover_at = m->now;
    uint8_t buf[RUI_SMALL_MAX];
    int64_t n = rui_m_put_takeover(buf, sizeof buf, m->ballot, m->view.epoch, m->next.epoch);
    ru_fx_send(fx, p->node, RUI_M_TAKEOVER, buf, n);
}

static void ask_all(ru_member *m, const ru_member_info *at, uint32_t n, ru_effects *fx)
{
    for (uint32_t i = 0; i < n; i++) {
        rui_m_peer *p = is_self(m, at[i].node) ? NULL : rui_m_peer_make(m, at[i].node);
        if (p == NULL) {
            continue;
        }
        if (p->asked_at.ns == 0 || p->heard.ns >= p->asked_at.ns) {
            p->asked_at = m->now;
        }
        if (p->up) {
            rui_m_ask_takeover(m, p, fx);
        } else if (!p->gone) {
            rui_m_try(m, p, fx);
        }
    }
}

static void ask(ru_member *m, ru_effects *fx)
{
    if (rui_m_next_decode(m)) {
        ask_all(m, m->next.at, m->next.n, fx);
        rui_m_next_mark(m);
    }
    ask_all(m, m->view.at, m->view.n, fx);
}

static void ask_start(ru_member *m, ru_effects *fx)
{
    rui_m_seen(m, m->promised);
    m->ballot = m->epoch_seen + 2; /* plus 1 may be under way at the leader that is missed */
    rui_m_seen(m, m->ballot);
    m->promised = m->ballot;
    m->promised_to = m->self.node;
    m->asking = true;
    m->ask_at = m->now;
    ask(m, fx);
}

/* Has everybody answered, or had the time to? */
static bool settled(const ru_member *m, const ru_member_info *at, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const rui_m_peer *p = rui_m_peer_find(m, at[i].node);
        if (is_self(m, at[i].node) || (p != NULL && (p->gone || p->granted == m->ballot))) {
            continue;
        }
        bool late =
            rui_m_since(m, m->ask_at) >= patience_ns(m) || (p != NULL && rui_m_silent(m, p));
        if (!late) {
            return false;
        }
    }
    return true;
}

/* Can what is under way be in force somewhere? Not when its proposer, the leader of the view
 * before, answered that it is not; nor when those that may have accepted it are too few. Any vote
 * after the view counts: an older proposal of the same content may be in force. */
static bool may_be_in_force(const ru_member *m)
{
    const ru_view *v = &m->view;
    const rui_m_peer *lead = rui_m_peer_find(m, v->leader);
    bool asked = is_self(m, v->leader) ||
                 (lead != NULL && lead->granted == m->ballot && lead->epoch == v->epoch);
    if (m->next.epoch == v->epoch + 1 && asked) {
        return false;
    }
    uint32_t may = 0;
    bool oldest = false;
    for (uint32_t i = 0; i < v->n; i++) {
        if (!rui_m_votes(m, i)) {
            continue;
        }
        const rui_m_peer *p = rui_m_peer_find(m, v->at[i].node);
        bool no = is_self(m, v->at[i].node) ? m->voted <= v->epoch
                                            : p != NULL && p->granted == m->ballot &&
                                                  p->epoch <= v->epoch && p->accepted <= v->epoch;
        may += !no;
        oldest = i == m->oldest ? !no : oldest;
    }
    return may * 2 > m->voters || (may * 2 == m->voters && oldest);
}

static ru_node_id adopted_leader(const ru_member *m)
{
    for (uint32_t i = 0; i < m->next.n; i++) {
        if (is_self(m, m->next.at[i].node)) {
            return m->self.node;
        }
    }
    for (uint32_t i = 0; i < m->next.n; i++) {
        if (!m->next.at[i].no_vote && vote_granted(m, m->next.at[i].node)) {
            return m->next.at[i].node;
        }
    }
    uint32_t oldest = 0;
    while (m->next.at[oldest].no_vote) { /* somebody votes, or it had not been accepted */
        oldest++;
        RU_CHECK(oldest < m->next.n);
    }
    return m->next.at[oldest].node;
}

/* A view was under way when its leader was lost: first it is put in force, by the new leader. */
static void adopt(ru_member *m, ru_effects *fx)
{
    rui_m_view_head h;
    RU_CHECK(rui_m_next_decode(m));
    RU_CHECK(rui_m_get_view(m->next.bytes, m->next.size_bytes, m->opt.n_max, &h));
    m->incoming.from.v = 0;
    memcpy(m->incoming.bytes, h.blob, h.blob_bytes);
    m->adopting = true;
    rui_m_propose(m, m->ballot, adopted_leader(m), m->incoming.bytes, h.blob_bytes, fx);
}

static void win(ru_member *m, ru_effects *fx)
{
    uint32_t answered = 0;
    RU_CHECK(!m->self.no_vote);
    for (uint32_t i = 0; i < m->view.n; i++) {
        ru_node_id node = m->view.at[i].node;
        bool here = vote_granted(m, node);
        rui_m_peer *p = is_self(m, node) ? NULL : rui_m_peer_make(m, node);
        answered += here;
        if (p != NULL) {
            p->dead = !here;
            p->heard = here ? m->now : p->heard;
            p->seeks = false;
            p->reported_at.ns = 0;
        }
    }
    m->phase = RUI_LEADS;
    m->lead = m->self.node;
    m->lead_since = m->now;
    m->elect = true;
    m->asking = false;
    m->change_told = false;
    m->beat_now = true;
    ru_fx_log(fx, RU_LOG_WARN,
              "this process is the leader now: %u of %u members answered after %.2f s", answered,
              m->view.n, rui_m_seconds(rui_m_since(m, m->seek_since)));
    if (m->next.epoch != 0) {
        adopt(m, fx);
    } else {
        rui_m_lead_start(m, fx);
    }
}

void rui_m_seek_check(ru_member *m, ru_effects *fx)
{
    if (m->phase != RUI_SEEKS || m->view.epoch == 0) {
        return;
    }
    m->sure = m->sure && !rui_m_others_decide(m);
    if (!m->asking) {
        if (is_candidate(m) && m->now.ns >= m->ask_at.ns &&
            rui_m_quorum(m, m->view.at, m->view.n, vote_seeks)) {
            ask_start(m, fx);
        }
        if (!m->asking) {
            return;
        }
    }
    bool under_way = rui_m_next_decode(m) && may_be_in_force(m);
    if (under_way && m->ballot < m->next.epoch + 2) {
        ask_start(m, fx); /* somebody knew of a newer view: promises for later than that */
        return;
    }
    if (rui_m_quorum(m, m->view.at, m->view.n, vote_granted) &&
        (!under_way || rui_m_quorum(m, m->next.at, m->next.n, vote_granted)) &&
        settled(m, m->view.at, m->view.n) && (!under_way || settled(m, m->next.at, m->next.n))) {
        win(m, fx);
    }
}

/* Nobody can come back who is missing: all other voters are gone for certain. */
static bool alone(const ru_member *m)
{
    for (uint32_t i = 0; i < m->view.n; i++) {
        if (rui_m_votes(m, i) && !is_self(m, m->view.at[i].node) &&
            !rui_m_gone(m, m->view.at[i].node)) {
            return false;
        }
    }
    return true;
}

/* Voters that are not heard: those that might be, or those gone for certain. */
static uint32_t missing_put(const ru_member *m, bool gone, ru_text *t)
{
    char who[RUI_WHO_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->view.n; i++) {
        ru_node_id node = m->view.at[i].node;
        if (!rui_m_votes(m, i) || vote_seeks(m, node) || rui_m_gone(m, node) != gone) {
            continue;
        }
        if (n < STUCK_NAMES) {
            ru_text_put(t, n > 0 ? ", " : "");
            ru_text_put(t, rui_m_who(m, node, who, sizeof who));
        }
        n++;
    }
    if (n > STUCK_NAMES) {
        ru_text_putf(t, " and %u more", n - STUCK_NAMES);
    }
    return n;
}

/* No majority: who is missing, since when, and what everybody waits for. At 5 s, then ever less
 * often. */
static void name_stuck(ru_member *m, ru_effects *fx)
{
    if (m->now.ns < m->stuck_at.ns) {
        return;
    }
    if (alone(m)) {
        rui_m_out(m, fx, "%s",
                  m->self.no_vote ? "all members that vote have failed, and this one must not lead"
                                  : "all other members have failed, and while this one was out of "
                                    "contact they may have continued with others");
        return;
    }
    int64_t pause_ns =
        stuck_ns << (m->stuck_named < STUCK_DOUBLES ? m->stuck_named : STUCK_DOUBLES);
    m->stuck_at = ru_time_after(m->now, pause_ns);
    m->stuck_named++;
    char silent_text[STUCK_TEXT_MAX], gone_text[STUCK_TEXT_MAX];
    ru_text silent_t = ru_text_into(silent_text, sizeof silent_text);
    ru_text gone_t = ru_text_into(gone_text, sizeof gone_text);
    uint32_t n_silent = missing_put(m, false, &silent_t), n_gone = missing_put(m, true, &gone_t);
    ru_fx_log(fx, RU_LOG_ERROR,
              "there has been no leader for %.0f s: %u of %u members%s answer, but more than half "
              "must answer (or half with the oldest); waiting for %s%s%s",
              rui_m_seconds(rui_m_since(m, m->seek_since)), m->voters - n_silent - n_gone,
              m->voters, m->voters < m->view.n ? " that vote" : "",
              n_silent > 0 ? silent_text : "a member that takes over",
              n_gone > 0 ? "; failed: " : "", gone_text);
}

void rui_m_seek_tick(ru_member *m, ru_effects *fx)
{
    for (uint32_t i = 0, n = asked_n(m); i < n; i++) {
        rui_m_peer *p = rui_m_peer_find(m, m->view.at[i].node);
        if (p != NULL && !p->gone) {
            rui_m_try(m, p, fx);
        }
    }
    if (m->asking) {
        ask(m, fx);
    }
    rui_m_seek_check(m, fx);
    if (m->phase == RUI_SEEKS) {
        name_stuck(m, fx);
    }
}

/* -- messages -------------------------------------------------------------------------------------
 */

/* May the sender of a TAKEOVER have our promise? Not while the leader is heard. */
static bool may_promise(const ru_member *m, ru_node_id to)
{
    if (m->phase == RUI_FOLLOWS) {
        const rui_m_peer *lead = rui_m_peer_find(m, m->lead);
        return ru_node_is(m->lead, to) ||
               (lead != NULL && rui_m_since(m, lead->heard) >= m->opt.suspect_ns);
    }
    return m->phase == RUI_SEEKS || m->phase == RUI_JOINS;
}

void rui_m_takeover(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    uint32_t ballot, epoch, accepted;
    rui_m_peer *p = rui_m_peer_find(m, ev->node);
    if (!rui_m_get_takeover(ev, &ballot, &epoch, &accepted) ||
        ballot - 1 >= (uint64_t)m->epoch_seen + RUI_M_EPOCH_LEAP) {
        rui_m_hostile(m, fx, ev->node, "a malformed takeover");
        return;
    }
    if (epoch < m->view.epoch) {
        if (p->rank == RUI_M_NONE) {
            rui_m_tell_out(m, p, "the others continued without it", fx);
            return;
        }
        rui_m_view_tell(m, p, fx);
    }
    bool old =
        ballot < m->promised || (ballot == m->promised && !ru_node_is(m->promised_to, p->node));
    bool may_lead = p->rank == RUI_M_NONE || rui_m_votes(m, p->rank);
    bool granted = epoch >= m->view.epoch && !old && may_lead && may_promise(m, ev->node);
    if (granted) {
        m->promised = ballot;
        m->promised_to = ev->node;
        m->asking = false;
        m->ask_at = ru_time_after(m->now, patience_ns(m) + turn_ns(m)); /* let it finish */
        rui_m_seen(m, ballot);
        if (m->phase == RUI_FOLLOWS) {
            rui_m_seek_start(m, fx, "another member takes over");
            m->ask_at = ru_time_after(m->now, patience_ns(m) + turn_ns(m));
        }
        if (epoch == m->view.epoch && m->next.epoch > accepted) {
            rui_m_accepted_tell(m, ev->node, fx);
        }
    }
    rui_m_answer a = {.ballot = ballot,
                      .granted = granted,
                      .epoch = m->view.epoch,
                      .accepted = m->next.epoch,
                      .promised = m->promised,
                      .status = m->status,
                      .status_bytes = m->status_bytes};
    uint8_t buf[RUI_SMALL_MAX];
    ru_fx_send(fx, ev->node, RUI_M_STATUS, buf, rui_m_put_answer(buf, sizeof buf, &a));
}

void rui_m_answered(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    rui_m_answer a;
    rui_m_peer *p = rui_m_peer_find(m, ev->node);
    if (!rui_m_get_answer(ev, &a) || a.promised - 1 > (uint64_t)m->epoch_seen + RUI_M_EPOCH_LEAP) {
        rui_m_hostile(m, fx, ev->node, "a malformed answer");
        return;
    }
    rui_m_seen(m, a.promised);
    if (!m->asking || a.ballot != m->ballot) {
        return;
    }
    if (a.granted) {
        p->granted = a.ballot;
        p->epoch = a.epoch;
        p->accepted = a.accepted;
        memcpy(rui_m_peer_status(m, p), a.status, a.status_bytes);
        p->status_bytes = (uint16_t)a.status_bytes;
        p->has_status = a.status_bytes > 0;
    } else if (a.promised >= m->ballot) {
        /* Somebody else asks as well: again later, the older the sooner. */
        m->asking = false;
        m->ask_at = ru_time_after(m->now, turn_ns(m));
    }
    rui_m_seek_check(m, fx);
}
