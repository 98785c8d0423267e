/* Views on their way: proposed, accepted, in force, told.
 *
 * Bytes of a view: epoch, prev (the view it follows), base (0: all members are listed; else only
 * the changes against prev), leader, next number for people, count; the removed; the added; blob.
 * Sent in parts, so that a view of thousands of members fits into messages. */
#include <string.h>

#include "comm/member/member_impl.h"

enum { OUT_AGAIN_NS = 200000000, DROP_AFTER_NS = 2000000000 };

/* -- bytes ----------------------------------------------------------------------------------------
 */

typedef struct draft {
    uint32_t epoch, prev, base;
    ru_node_id leader;
    const ru_member_info *at; /* [n] */
    uint32_t n, number_next;
    const void *blob;
    int64_t blob_bytes;
} draft;

static int64_t encode(const ru_member *m, uint8_t *into, const draft *d)
{
    ru_wire_out w = ru_wire_out_into(into, m->bytes_max);
    ru_wire_put_u32(&w, d->epoch);
    ru_wire_put_u32(&w, d->prev);
    ru_wire_put_u32(&w, d->base);
    ru_wire_put_u64(&w, d->leader.v);
    ru_wire_put_u32(&w, d->number_next);
    ru_wire_put_u32(&w, d->n);
    uint32_t kept = 0, n_old = d->base != 0 ? m->view.n : 0;
    for (uint32_t i = 0; i < n_old; i++) {
        kept += kept < d->n && ru_node_is(d->at[kept].node, m->view.at[i].node);
    }
    ru_wire_put_u32(&w, n_old - kept);
    uint32_t k = 0;
    for (uint32_t i = 0; i < n_old; i++) {
        if (k < d->n && ru_node_is(d->at[k].node, m->view.at[i].node)) {
            k++;
        } else {
            ru_wire_put_u64(&w, m->view.at[i].node.v);
        }
    }
    ru_wire_put_u32(&w, d->n - kept);
    for (; k < d->n; k++) {
        rui_m_put_info(&w, &d->at[k]);
    }
    ru_wire_put_text(&w, d->blob, (uint32_t)d->blob_bytes);
    RU_CHECK(!w.bad);
    return ru_wire_size(&w);
}

static ru_node_id removed_at(const rui_m_view_head *h, uint32_t i)
{
    ru_wire_in w = ru_wire_in_from(h->removed + (size_t)i * 8, 8);
    return (ru_node_id){ru_wire_u64(&w)};
}

/* Members of the view that h describes into `into` (may be the view's own array); false when h does
 * not fit to the view in force. */
static bool apply(const ru_member *m, const rui_m_view_head *h, ru_member_info *into, uint32_t *n)
{
    uint32_t n_old = h->base != 0 ? m->view.n : 0, removed = 0, k = 0;
    for (uint32_t i = 0; i < n_old; i++) {
        if (removed < h->n_removed && ru_node_is(removed_at(h, removed), m->view.at[i].node)) {
            removed++;
        } else {
            into[k++] = m->view.at[i];
        }
    }
    ru_wire_in w = h->added;
    for (uint32_t i = 0; i < h->n_added && k < m->opt.n_max; i++) {
        if (!rui_m_get_info(&w, &into[k])) {
            return false;
        }
        k++;
    }
    *n = k;
    rui_m_voters(into, k);
    return removed == h->n_removed && k == h->n_total;
}

/* Would apply succeed, and is the leader among the members, with a vote? Touches nothing. */
static bool fits(const ru_member *m, const rui_m_view_head *h)
{
    if (h->base != 0 && h->base != m->view.epoch) {
        return false;
    }
    uint32_t n_old = h->base != 0 ? m->view.n : 0, removed = 0;
    bool leader = false, votes = false, any = false; /* the leader; a vote of it, of anybody */
    for (uint32_t i = 0; i < n_old; i++) {
        if (removed < h->n_removed && ru_node_is(removed_at(h, removed), m->view.at[i].node)) {
            removed++;
        } else {
            bool leads = ru_node_is(m->view.at[i].node, h->leader);
            leader = leader || leads;
            votes = votes || (leads && rui_m_votes(m, i));
            any = any || rui_m_votes(m, i);
        }
    }
    uint32_t last = n_old > 0 ? m->view.at[n_old - 1].number : 0;
    ru_wire_in w = h->added;
    for (uint32_t i = 0; i < h->n_added; i++) {
        ru_member_info info;
        if (!rui_m_get_info(&w, &info) || info.number <= last ||
            (n_old > 0 && rui_m_rank(m, info.node) != RUI_M_NONE)) {
            return false;
        }
        last = info.number;
        bool leads = ru_node_is(info.node, h->leader);
        leader = leader || leads;
        votes = votes || (leads && !info.no_vote);
        any = any || !info.no_vote;
    }
    return leader && votes == any && removed == h->n_removed &&
           n_old - removed + h->n_added == h->n_total;
}

bool rui_m_next_decode(ru_member *m)
{
    rui_m_view_head h;
    if (m->next.epoch == 0) {
        return false;
    }
    if (!m->next.decoded) {
        RU_CHECK(rui_m_get_view(m->next.bytes, m->next.size_bytes, m->opt.n_max, &h));
        m->next.decoded = apply(m, &h, m->next.at, &m->next.n);
        RU_CHECK(m->next.decoded);
    }
    return true;
}

/* -- sending --------------------------------------------------------------------------------------
 */

typedef bool (*receives)(const rui_m_peer *p);

static bool receives_changes(const rui_m_peer *p)
{
    return p->up && p->rank != RUI_M_NONE;
}
static bool receives_whole(const rui_m_peer *p)
{
    return p->up && p->rank == RUI_M_NONE && p->in_next;
}

static int64_t part_make(ru_member *m, rui_m_view_kind kind, uint32_t epoch, const uint8_t *bytes,
                         int64_t size_bytes, int64_t offset)
{
    int64_t n = size_bytes - offset < RUI_M_PART_BYTES ? size_bytes - offset : RUI_M_PART_BYTES;
    ru_wire_out w = ru_wire_out_into(m->part, RUI_M_PART_BYTES + RUI_SMALL_MAX);
    ru_wire_put_u8(&w, (uint8_t)kind);
    ru_wire_put_u32(&w, epoch);
    ru_wire_put_u32(&w, (uint32_t)size_bytes);
    ru_wire_put_u32(&w, (uint32_t)offset);
    ru_wire_put_bytes(&w, bytes + offset, n);
    RU_CHECK(!w.bad);
    return ru_wire_size(&w);
}

static void send_one(ru_member *m, ru_node_id to, rui_m_view_kind kind, uint32_t epoch,
                     const uint8_t *bytes, int64_t size_bytes, ru_effects *fx)
{
    for (int64_t at = 0; at < size_bytes; at += RUI_M_PART_BYTES) {
        int64_t n = part_make(m, kind, epoch, bytes, size_bytes, at);
        ru_fx_send(fx, to, RUI_M_VIEW, m->part, n);
    }
}

/* To as many as the window lets; the others follow when it has room (rui_m_view_more). */
static void send_proposal(ru_member *m, receives to, const uint8_t *bytes, int64_t size_bytes,
                          ru_effects *fx)
{
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        p->marked = to(p) && rui_m_pace_fits(m, size_bytes);
        if (p->marked) {
            rui_m_pace_sent(m, p, m->next.epoch, size_bytes);
        } else if (to(p)) {
            m->pace.more_at = 0;
        }
    }
    for (int64_t at = 0; at < size_bytes; at += RUI_M_PART_BYTES) {
        int64_t n = part_make(m, RUI_VIEW_PROPOSED, m->next.epoch, bytes, size_bytes, at);
        bool first = true;
        for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
            if (!p->marked) {
                continue;
            }
            if (first) {
                ru_fx_send(fx, p->node, RUI_M_VIEW, m->part, n);
                first = false;
            } else {
                ru_fx_send_same(fx, p->node);
            }
        }
    }
}

static int64_t whole(ru_member *m, const draft *d)
{
    m->pace.whole_epoch = d->epoch;
    m->pace.whole_bytes = encode(m, m->full, d);
    return m->pace.whole_bytes;
}

/* Of the whole view of this epoch; 0: it was not encoded of late. */
static int64_t whole_size(const ru_member *m, uint32_t epoch)
{
    return m->pace.whole_epoch == epoch ? m->pace.whole_bytes : 0;
}

static draft next_draft(const ru_member *m, const rui_m_view_head *h)
{
    return (draft){.epoch = h->epoch,
                   .prev = h->prev,
                   .leader = h->leader,
                   .at = m->next.at,
                   .n = m->next.n,
                   .number_next = h->number_next,
                   .blob = h->blob,
                   .blob_bytes = h->blob_bytes};
}

/* What was accepted, listing all members, into m->full. */
static int64_t next_whole(ru_member *m)
{
    rui_m_view_head h;
    RU_CHECK(rui_m_next_decode(m));
    RU_CHECK(rui_m_get_view(m->next.bytes, m->next.size_bytes, m->opt.n_max, &h));
    draft d = next_draft(m, &h);
    return whole(m, &d);
}

void rui_m_next_mark(ru_member *m)
{
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        p->in_next = false;
    }
    for (uint32_t i = 0; i < m->next.n; i++) {
        rui_m_peer *p = rui_m_peer_find(m, m->next.at[i].node);
        if (p != NULL) {
            p->in_next = true;
        }
    }
}

void rui_m_propose(ru_member *m, uint32_t epoch, ru_node_id leader, const void *blob,
                   int64_t blob_bytes, ru_effects *fx)
{
    rui_m_next *x = &m->next;
    RU_CHECK(x->n > 0 && x->n <= m->opt.n_max && epoch > m->view.epoch && epoch >= m->promised);
    uint32_t number = x->at[x->n - 1].number + 1;
    draft d = {.epoch = epoch,
               .prev = m->view.epoch,
               .base = m->view.epoch,
               .leader = leader,
               .at = x->at,
               .n = x->n,
               .number_next = number > m->number_next ? number : m->number_next,
               .blob = blob,
               .blob_bytes = blob_bytes};
    x->size_bytes = encode(m, x->bytes, &d);
    x->epoch = m->voted = m->promised = epoch;
    x->from = m->promised_to = m->self.node;
    x->decoded = true;
    rui_m_seen(m, epoch);
    m->pending = true;
    m->pace.more_at = UINT32_MAX;
    m->votes = 0;
    m->next_adds = false;
    for (uint32_t i = 0; i < x->n && !m->next_adds; i++) {
        uint32_t rank = rui_m_rank(m, x->at[i].node);
        m->next_adds = rank == RUI_M_NONE || (m->view.at[rank].no_vote && !x->at[i].no_vote);
    }
    rui_m_lost_count(m);
    rui_m_next_mark(m);
    bool whole = false;
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        whole = whole || receives_whole(p);
    }
    if (m->view.epoch > 0) {
        send_proposal(m, receives_changes, x->bytes, x->size_bytes, fx);
    }
    if (whole) {
        send_proposal(m, receives_whole, m->full, next_whole(m), fx);
    }
    rui_m_commit_check(m, fx);
}

static int64_t proposal_size(const ru_member *m, const rui_m_peer *p)
{
    return p->rank != RUI_M_NONE ? m->next.size_bytes : whole_size(m, m->next.epoch);
}

static void propose_to(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    bool member = p->rank != RUI_M_NONE;
    int64_t n = member ? m->next.size_bytes : next_whole(m);
    rui_m_pace_sent(m, p, m->next.epoch, n);
    send_one(m, p->node, RUI_VIEW_PROPOSED, m->next.epoch, member ? m->next.bytes : m->full, n, fx);
}

void rui_m_propose_again(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    bool lacks = p->rank != RUI_M_NONE || p->in_next;
    if (m->pending && p->up && lacks && rui_m_pace_again(m, p, proposal_size(m, p))) {
        propose_to(m, p, fx);
    }
}

static void tell_to(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    draft d = {.epoch = m->view.epoch,
               .prev = m->view.epoch - 1,
               .leader = m->view.leader,
               .at = m->view.at,
               .n = m->view.n,
               .number_next = m->number_next,
               .blob = m->view.blob,
               .blob_bytes = m->view.blob_bytes};
    int64_t n = whole(m, &d);
    rui_m_pace_sent(m, p, m->view.epoch, n);
    send_one(m, p->node, RUI_VIEW_IN_FORCE, m->view.epoch, m->full, n, fx);
}

void rui_m_view_tell(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    if (m->view.epoch > 0 && rui_m_pace_again(m, p, whole_size(m, m->view.epoch))) {
        tell_to(m, p, fx);
    }
}

void rui_m_view_more(ru_member *m, ru_effects *fx)
{
    uint32_t epoch = m->pending ? m->next.epoch : m->view.epoch;
    for (; m->phase == RUI_LEADS && m->pace.more_at < m->n_peers; m->pace.more_at++) {
        rui_m_peer *p = &m->peers[m->pace.more_at];
        bool in = p->rank != RUI_M_NONE || (m->pending && p->in_next);
        bool has = p->copy_epoch >= epoch || p->accepted >= epoch || p->epoch >= epoch;
        if (p->node.v == 0 || !p->up || !in || has) {
            continue;
        }
        if (!rui_m_pace_fits(m, m->pending ? proposal_size(m, p) : whole_size(m, epoch))) {
            return;
        }
        m->pending ? propose_to(m, p, fx) : tell_to(m, p, fx);
    }
}

void rui_m_accepted_tell(ru_member *m, ru_node_id to, ru_effects *fx)
{
    int64_t n = next_whole(m);
    send_one(m, to, RUI_VIEW_ACCEPTED, m->next.epoch, m->full, n, fx);
}

void rui_m_tell_out(ru_member *m, rui_m_peer *p, const char *why, ru_effects *fx)
{
    if (!p->up || (p->told_at.ns != 0 && rui_m_since(m, p->told_at) < OUT_AGAIN_NS)) {
        return;
    }
    p->told_at = m->now;
    uint8_t buf[RUI_SMALL_MAX];
    ru_fx_send(fx, p->node, RUI_M_OUT, buf, rui_m_put_out(buf, sizeof buf, m->view.epoch, why));
}

/* -- in force -------------------------------------------------------------------------------------
 */

static bool vote_accepted(const ru_member *m, ru_node_id node)
{
    const rui_m_peer *p = rui_m_peer_find(m, node);
    return ru_node_is(node, m->self.node) || (p != NULL && p->accepted == m->next.epoch);
}

/* A view with new members, or new voters, is in force only when no voter is left behind: one that
 * knew nothing of them and survives every other voter it knows would go on without them. */
static bool left_behind(const ru_member *m)
{
    for (uint32_t i = 0; m->next_adds && i < m->view.n; i++) {
        const rui_m_peer *p = rui_m_peer_find(m, m->view.at[i].node);
        if (rui_m_votes(m, i) && !vote_accepted(m, m->view.at[i].node) &&
            (p == NULL || (!p->gone && !p->dead))) {
            return true;
        }
    }
    return false;
}

void rui_m_lost_count(ru_member *m)
{
    m->lost = 0;
    for (const rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        m->lost += rui_m_votes(m, p->rank) && (p->gone || p->dead);
    }
}

void rui_m_commit_check(ru_member *m, ru_effects *fx)
{
    uint32_t most = m->votes + 1 + m->lost; /* counting is cheap, looking at everybody is not */
    bool enough = most >= m->voters || (most * 2 >= m->voters && !m->next_adds);
    if (m->phase == RUI_LEADS && m->pending && enough && !left_behind(m) &&
        rui_m_quorum(m, m->view.at, m->view.n, vote_accepted)) {
        rui_m_in_force(m, fx);
    }
}

static const char *why_removed(const ru_member *m, const rui_m_peer *p, char *buf, size_t cap)
{
    ru_text t = ru_text_into(buf, (int64_t)cap);
    if (p->leaving) {
        ru_text_put(&t, "it left");
    } else {
        ru_text_putf(&t, "the others continued without it after it was silent for %.1f s",
                     rui_m_seconds(rui_m_since(m, p->heard)));
    }
    return buf;
}

/* Peers after a new view: who came, who went. */
static void peers_settle(ru_member *m, bool tell, ru_effects *fx)
{
    char why[RUI_M_WHY_MAX];
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        p->in_next = false;
        p->suspected = 0;
        p->n_broken = 0;
        if (p->rank != RUI_M_NONE) {
            p->heard = p->marked ? p->heard : m->now;
            p->joins = p->ready = false;
            p->drop_at.ns = 0;
            p->left = false;
        } else if (p->marked) {
            p->told_at.ns = 0;
            p->left = p->leaving;
            if (tell) {
                rui_m_tell_out(m, p, why_removed(m, p, why, sizeof why), fx);
            }
            p->has_status = p->dead = p->leaving = false;
            p->drop_at = ru_time_after(m->now, DROP_AFTER_NS);
        }
    }
}

static void role_after_view(ru_member *m, bool own)
{
    if (ru_node_is(m->view.leader, m->self.node)) {
        m->phase = RUI_LEADS;
        m->lead = m->self.node;
        m->beat_now = true;
        m->lead_wait = !own;
        m->lead_since = own ? m->lead_since : m->now;
        return;
    }
    if (m->phase == RUI_LEADS) { /* another one's view was in force before it was heard of */
        rui_m_pace_end(m);
    }
    m->phase = RUI_FOLLOWS;
    m->lead = m->view.leader;
    rui_m_peer *lead = rui_m_peer_make(m, m->lead);
    RU_CHECK(lead != NULL);
    lead->heard = m->now;
    m->status_new = m->beat_now = true;
}

void rui_m_in_force(ru_member *m, ru_effects *fx)
{
    rui_m_view_head h;
    rui_m_next *x = &m->next;
    RU_CHECK(x->epoch > m->view.epoch);
    RU_CHECK(rui_m_get_view(x->bytes, x->size_bytes, m->opt.n_max, &h));
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        p->marked = p->rank != RUI_M_NONE;
    }
    bool own = ru_node_is(x->from, m->self.node) && m->phase == RUI_LEADS;
    bool adopted = own && m->adopting;
    RU_CHECK(apply(m, &h, m->infos, &m->view.n));
    m->view.epoch = h.epoch;
    m->view.leader = h.leader;
    m->view.blob_bytes = h.blob_bytes;
    memcpy(m->blob, h.blob, h.blob_bytes);
    m->number_next = h.number_next;
    x->epoch = 0;
    x->decoded = false;
    m->pending = m->elect = m->adopting = m->asking = false;
    m->pace.more_at = m->pace.more_at < m->n_peers ? 0 : m->pace.more_at;
    if (own) {
        m->sure = true;
        m->sure_at.ns = 0;
    }
    rui_m_seen(m, h.epoch);
    rui_m_ranks_build(m);
    peers_settle(m, own, fx);
    bool in = rui_m_rank(m, m->self.node) != RUI_M_NONE;
    if (!in && own) {
        m->beat_now = false;
        for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
            if (p->up && p->rank != RUI_M_NONE) {
                rui_m_beat_send(m, p->node, 0, false, fx);
            }
        }
    }
    if (!in) {
        m->removed = !m->leaving;
        rui_m_out(m, fx, "%s", m->leaving ? "it left" : "the others continued without it");
        return;
    }
    const ru_member_info *self = &m->view.at[rui_m_rank(m, m->self.node)];
    m->self.number = self->number;
    m->self.no_vote = self->no_vote;
    role_after_view(m, own);
    ru_fx_local(fx, RU_MEMBER_VIEW, 0, NULL, 0);
    const rui_m_peer *lead = rui_m_peer_find(m, m->lead);
    if (m->phase == RUI_FOLLOWS && lead != NULL && lead->ended) {
        /* Another member told of the view of a leader that died with it. */
        bool sure = m->sure;
        rui_m_seek_ended(m, lead, fx);
        m->sure = m->sure && sure;
        return;
    }
    if (m->phase == RUI_LEADS && m->promised > m->view.epoch) {
        /* Named leader by a view that is older than what it promised: others may have as well. */
        rui_m_seek_start(m, fx, "a member requested a later view");
        return;
    }
    if (adopted && m->phase == RUI_LEADS) {
        rui_m_lead_start(m, fx);
    }
    if (m->phase == RUI_LEADS) {
        m->change_told = false;
        rui_m_change_check(m, true, fx);
    }
}

/* -- receiving ------------------------------------------------------------------------------------
 */

/* The bytes put together become `next`. */
static void take_incoming(ru_member *m, ru_node_id from)
{
    uint8_t *bytes = m->next.bytes;
    m->next.bytes = m->incoming.bytes;
    m->next.size_bytes = m->incoming.total_bytes;
    m->next.epoch = m->incoming.epoch;
    m->next.from = from;
    m->next.decoded = false;
    m->incoming.bytes = bytes;
    rui_m_seen(m, m->next.epoch);
}

static void proposed(ru_member *m, const rui_m_view_head *h, ru_node_id from, ru_effects *fx)
{
    bool bound =
        h->epoch < m->promised || (h->epoch == m->promised && !ru_node_is(m->promised_to, from));
    bool here = m->view.epoch == 0 ? h->base == 0 : h->prev == m->view.epoch && h->base == h->prev;
    if (h->epoch == m->voted && ru_node_is(m->next.from, from)) {
        rui_m_beat_send(m, from, 0, false, fx);
        return;
    }
    if (h->epoch <= m->view.epoch || bound || !here || !fits(m, h)) {
        rui_m_beat_send(m, from, 0, false, fx); /* says what we have and what we promised */
        return;
    }
    if (m->phase == RUI_LEADS) {
        char who[RUI_WHO_MAX], why[RUI_M_WHY_MAX];
        ru_text t = ru_text_into(why, sizeof why);
        ru_text_putf(&t, "%s took over", rui_m_who(m, from, who, sizeof who));
        ru_fx_local(fx, RU_MEMBER_LEADERLESS, 1, why, t.n + 1);
        rui_m_pace_end(m);
    }
    take_incoming(m, from);
    m->voted = m->promised = h->epoch;
    m->promised_to = from;
    m->pending = m->elect = m->adopting = m->asking = m->lead_wait = false;
    if (m->phase != RUI_JOINS) {
        m->phase = RUI_FOLLOWS;
        m->lead = from;
    }
    rui_m_beat_send(m, from, 0, false, fx);
}

static void told_in_force(ru_member *m, const rui_m_view_head *h, ru_node_id from, ru_effects *fx)
{
    if (h->epoch <= m->view.epoch) {
        return;
    }
    bool in = false;
    ru_wire_in w = h->added;
    for (uint32_t i = 0; i < h->n_added; i++) {
        ru_member_info info;
        in = (rui_m_get_info(&w, &info) && ru_node_is(info.node, m->self.node)) || in;
    }
    if (in) {
        take_incoming(m, from);
        rui_m_in_force(m, fx);
    } else if (m->view.epoch > 0) {
        m->removed = !m->leaving;
        rui_m_out(m, fx, "the others continued without it");
    }
}

static void told_accepted(ru_member *m, const rui_m_view_head *h, ru_effects *fx)
{
    if (m->asking && h->prev == m->view.epoch && h->epoch > m->next.epoch) {
        take_incoming(m, (ru_node_id){0});
        rui_m_seek_check(m, fx);
    }
}

void rui_m_view_message(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    rui_m_view_part p;
    rui_m_incoming *in = &m->incoming;
    if (!rui_m_get_view_part(ev, &p) || p.total_bytes > m->bytes_max ||
        p.epoch - 1 >= (uint64_t)m->epoch_seen + RUI_M_EPOCH_LEAP) {
        rui_m_hostile(m, fx, ev->node, "a malformed part of a view");
        return;
    }
    if (p.offset == 0) {
        *in = (rui_m_incoming){.from = ev->node,
                               .kind = p.kind,
                               .epoch = p.epoch,
                               .total_bytes = p.total_bytes,
                               .bytes = in->bytes};
    } else if (!ru_node_is(in->from, ev->node) || in->kind != p.kind || in->epoch != p.epoch ||
               in->total_bytes != p.total_bytes || in->got_bytes != p.offset) {
        return; /* of a view whose beginning was overtaken by another's */
    }
    memcpy(in->bytes + p.offset, p.data, (size_t)p.data_bytes);
    in->got_bytes += (uint32_t)p.data_bytes;
    if (in->got_bytes < in->total_bytes) {
        return;
    }
    in->from.v = 0;
    rui_m_view_head h;
    if (!rui_m_get_view(in->bytes, in->total_bytes, m->opt.n_max, &h) || h.epoch != p.epoch ||
        (p.kind != RUI_VIEW_PROPOSED && (h.base != 0 || !fits(m, &h)))) {
        rui_m_hostile(m, fx, ev->node, "a malformed view");
    } else if (p.kind == RUI_VIEW_PROPOSED) {
        proposed(m, &h, ev->node, fx);
    } else if (p.kind == RUI_VIEW_IN_FORCE) {
        told_in_force(m, &h, ev->node, fx);
    } else {
        told_accepted(m, &h, fx);
    }
}
