/* What a leader does: hears members and joiners, gives up the dead, tells its owner what could
 * change, proposes what the owner wants. */
#include <string.h>

#include "comm/member/member_impl.h"

static bool is_self(const ru_member *m, ru_node_id node)
{
    return ru_node_is(node, m->self.node);
}

void rui_m_lead_start(ru_member *m, ru_effects *fx)
{
    m->lead_wait = false;
    m->change_told = false;
    ru_fx_local(fx, RU_MEMBER_LEAD, 0, NULL, 0);
}

/* -- who is wanted --------------------------------------------------------------------------------
 */

bool rui_m_wants(const ru_member *m, ru_node_id node)
{
    if (is_self(m, node)) {
        return !m->leaving;
    }
    const rui_m_peer *p = rui_m_peer_find(m, node);
    return p != NULL && !p->dead && !p->gone && !p->leaving;
}

typedef struct counts {
    uint32_t n, dead, leaving, joining;
} counts;

/* May it be in the next view? */
static bool may_join(const ru_member *m, const rui_m_peer *p)
{
    return p->joins && p->ready &&
           (m->view.n > 0 || (rui_m_peer_joiner(m, p)->number & RU_MEMBER_LATER) == 0);
}

static counts count(const ru_member *m)
{
    counts c = {0};
    for (uint32_t i = 0; i < m->view.n; i++) {
        ru_node_id node = m->view.at[i].node;
        const rui_m_peer *p = is_self(m, node) ? NULL : rui_m_peer_find(m, node);
        bool wants = rui_m_wants(m, node);
        bool leaves =
            is_self(m, node) ? m->leaving : p != NULL && p->leaving && !p->dead && !p->gone;
        c.n += wants;
        c.leaving += leaves;
        c.dead += !wants && !leaves;
    }
    c.n += m->view.n == 0;
    for (const rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        c.joining += may_join(m, p) && c.n + c.joining < m->opt.n_max;
    }
    c.n += c.joining;
    return c;
}

static bool arrived_before(const ru_member *m, const ru_member_info *a, const ru_member_info *b)
{
    uint32_t x = a->number & ~RU_MEMBER_LATER, y = b->number & ~RU_MEMBER_LATER;
    if (x != y) { /* 0, no wish, comes last */
        return x - 1 < y - 1;
    }
    return rui_m_peer_find(m, a->node)->arrival < rui_m_peer_find(m, b->node)->arrival;
}

/* The ready joiners into `into`, at most n_max of them, by what they wish, so that the numbers of a
 * job's first workers are those they were started with; those without a wish in order of arrival.
 * Records of peers are used again, so that their order is that of arrival only nearly. */
static uint32_t joiners_into(const ru_member *m, ru_member_info *into, uint32_t n_max)
{
    uint32_t n = 0;
    for (const rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        const ru_member_info *info = rui_m_peer_joiner(m, p);
        if (!may_join(m, p) || (n == n_max && (n == 0 || !arrived_before(m, info, &into[n - 1])))) {
            continue;
        }
        uint32_t at = n < n_max ? n++ : n - 1;
        for (; at > 0 && arrived_before(m, info, &into[at - 1]); at--) {
            into[at] = into[at - 1];
        }
        into[at] = *info;
    }
    for (uint32_t i = 0; i < n; i++) {
        into[i].number = m->number_next + i;
    }
    return n;
}

void ru_member_wanted_get(const ru_member *m, ru_member_wanted *into)
{
    counts c = count(m);
    uint32_t n = 0, first = m->number_next;
    if (m->view.n == 0) {
        m->wanted[n] = m->self;
        m->wanted[n++].number = first;
    }
    for (uint32_t i = 0; i < m->view.n; i++) {
        if (rui_m_wants(m, m->view.at[i].node)) {
            m->wanted[n++] = m->view.at[i];
        }
    }
    uint32_t joined = joiners_into(m, m->wanted + n, m->opt.n_max - n);
    for (uint32_t i = 0; i < joined; i++) {
        m->wanted[n + i].number = first + (m->view.n == 0) + i;
    }
    rui_m_voters(m->wanted, n + joined);
    *into = (ru_member_wanted){.at = m->wanted,
                               .n = n + joined,
                               .n_dead = c.dead,
                               .n_leaving = c.leaving,
                               .n_joining = joined};
}

/* Everybody wants to leave: there is no view to install, the job is over. */
static void all_leave(ru_member *m, ru_effects *fx)
{
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        if (p->rank != RUI_M_NONE && p->up) {
            uint8_t buf[RUI_SMALL_MAX];
            int64_t n = rui_m_put_out(buf, sizeof buf, m->view.epoch, "it left");
            p->told_at = m->now;
            ru_fx_send(fx, p->node, RUI_M_OUT, buf, n);
        }
    }
    rui_m_out(m, fx, "it left");
}

void rui_m_change_check(ru_member *m, bool again, ru_effects *fx)
{
    if (m->phase != RUI_LEADS || m->pending || m->lead_wait) {
        m->change_told = false;
        return;
    }
    counts c = count(m);
    if (c.n == 0) {
        all_leave(m, fx);
        return;
    }
    bool same = m->change_told && c.dead == m->change_dead && c.leaving == m->change_leaving &&
                c.joining == m->change_joining;
    if (same && !again) {
        return;
    }
    m->change_dead = c.dead;
    m->change_leaving = c.leaving;
    m->change_joining = c.joining;
    m->change_told = true;
    if (c.dead + c.leaving + c.joining > 0) {
        ru_fx_local(fx, RU_MEMBER_CHANGE, c.dead > 0, NULL, 0);
    }
}

static bool not_proposed(ru_effects *fx, uint32_t n, const char *why)
{
    ru_fx_log(fx, RU_LOG_DEBUG, "a view of %u members is not proposed: %s", n, why);
    return false;
}

bool ru_member_install(ru_member *m, const ru_node_id *nodes, uint32_t n, const void *blob,
                       int64_t blob_bytes, ru_time now, ru_effects *fx)
{
    RU_CHECK(n > 0 && blob_bytes >= 0 && blob_bytes <= RU_MEMBER_BLOB_MAX);
    m->now = now.ns > m->now.ns ? now : m->now;
    if (m->phase != RUI_LEADS || m->pending || m->lead_wait) {
        m->change_told = false;
        return not_proposed(fx, n,
                            m->phase != RUI_LEADS ? "this process does not lead"
                            : m->pending          ? "another one is not in force yet"
                                                  : "promises are missing");
    }
    ru_member_wanted w;
    ru_member_wanted_get(m, &w);
    uint32_t k = 0, number = m->number_next;
    for (uint32_t i = 0; i < w.n && k < n; i++) {
        if (ru_node_is(w.at[i].node, nodes[k])) {
            m->next.at[k] = w.at[i];
            bool fresh = rui_m_rank(m, nodes[k]) == RUI_M_NONE;
            m->next.at[k].number = fresh ? number++ : w.at[i].number;
            k++;
        }
    }
    if (k < n) {
        rui_m_change_check(m, true, fx);
        return not_proposed(fx, n, "one of them is gone");
    }
    m->next.n = n;
    rui_m_voters(m->next.at, n);
    ru_node_id lead = {0}; /* this process, else the oldest voter */
    for (uint32_t i = 0; i < n; i++) {
        bool leads = !m->next.at[i].no_vote && (lead.v == 0 || is_self(m, nodes[i]));
        lead = leads ? nodes[i] : lead;
    }
    uint32_t epoch = m->elect ? m->ballot : m->view.epoch + 1;
    rui_m_propose(m, epoch, lead, blob, blob_bytes, fx);
    return true;
}

/* -- hearing --------------------------------------------------------------------------------------
 */

static void give_up(ru_member *m, rui_m_peer *p, const char *why, ru_effects *fx)
{
    if (p->dead) {
        return;
    }
    p->dead = true;
    rui_m_pace_over(m, p);
    m->recheck = m->pending;
    rui_m_lost_count(m);
    char who[RUI_WHO_MAX];
    ru_fx_log(fx, RU_LOG_WARN, "%s counts as failed: %s", rui_m_who(m, p->node, who, sizeof who),
              why);
    m->change_told = false;
}

void rui_m_lead_ended(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    if (p->rank != RUI_M_NONE) {
        p->dead = false;
        give_up(m, p, "its process ended", fx);
        rui_m_commit_check(m, fx);
        rui_m_change_check(m, false, fx);
    }
}

static void status_take(ru_member *m, rui_m_peer *p, const rui_m_beat *b, ru_effects *fx)
{
    uint8_t *s = rui_m_peer_status(m, p);
    if (!b->has_status || (p->has_status && p->status_bytes == b->status_bytes &&
                           memcmp(s, b->status, b->status_bytes) == 0)) {
        return;
    }
    memcpy(s, b->status, b->status_bytes);
    p->status_bytes = (uint16_t)b->status_bytes;
    p->has_status = true;
    ru_fx_local_about(fx, p->node, RU_MEMBER_STATUS, 0, s, p->status_bytes);
}

static void broken_take(ru_member *m, rui_m_peer *p, const rui_m_beat *b, ru_effects *fx)
{
    if (p->n_broken == 0) {
        p->broken_at = m->now;
    }
    p->n_broken = b->n_broken;
    memcpy(p->broken, b->broken, sizeof p->broken);
    for (uint32_t i = 0; i < b->n_broken; i++) {
        rui_m_peer *q = rui_m_peer_find(m, b->broken[i].node);
        if (!b->broken[i].certain || q == NULL || q->rank == RUI_M_NONE || !q->up ||
            q->reported_at.ns != 0) {
            continue;
        }
        /* "Gone for certain" says a peer, our connection stands: ask, and believe silence. */
        q->reported_at = m->now;
        rui_m_beat_send(m, q->node, RUI_B_ASK, false, fx);
    }
}

static bool statuses_there(const ru_member *m)
{
    for (uint32_t i = 0; i < m->view.n; i++) {
        const rui_m_peer *p = rui_m_peer_find(m, m->view.at[i].node);
        bool self = is_self(m, m->view.at[i].node);
        if (!self && (p == NULL || (!p->dead && !p->gone && p->epoch < m->view.epoch))) {
            return false;
        }
    }
    return true;
}

static void lead_wait_check(ru_member *m, ru_effects *fx)
{
    if (m->lead_wait && statuses_there(m)) {
        rui_m_lead_start(m, fx);
        rui_m_change_check(m, false, fx);
    }
}

static void joiner_beat(ru_member *m, rui_m_peer *p, const rui_m_beat *b, ru_effects *fx)
{
    if (!p->joins) {
        uint8_t buf[RUI_SMALL_MAX];
        if (b->epoch == 0) {
            int64_t n = rui_m_put_redirect(buf, sizeof buf, m->self.node, m->self.address);
            ru_fx_send(fx, p->node, RUI_M_REDIRECT, buf, n);
        }
        return;
    }
    bool ready = (b->flags & RUI_B_READY) != 0;
    if ((b->flags & RUI_B_LEAVES) != 0) {
        rui_m_joiner_drop(m, p);
        m->change_told = false;
    } else if (ready != p->ready) {
        p->ready = ready;
        m->change_told = false;
    }
    if (m->pending && p->in_next && b->accepted < m->next.epoch) {
        rui_m_propose_again(m, p, fx);
    }
}

void rui_m_lead_beat(ru_member *m, rui_m_peer *p, const rui_m_beat *b, ru_effects *fx)
{
    if (p->rank == RUI_M_NONE) {
        joiner_beat(m, p, b, fx);
    } else {
        bool other = b->promised == m->promised && b->promised > m->view.epoch &&
                     !ru_node_is(b->promised_to, m->promised_to);
        if (b->promised > m->promised || other) {
            char who[RUI_WHO_MAX];
            rui_m_seek_start(m, fx, "%s has promised to follow another leader",
                             rui_m_who(m, p->node, who, sizeof who));
            return;
        }
        status_take(m, p, b, fx);
        broken_take(m, p, b, fx);
        bool leaves = (b->flags & RUI_B_LEAVES) != 0;
        m->change_told = m->change_told && leaves == p->leaving;
        p->leaving = leaves;
        if (m->pending && b->accepted == m->next.epoch) {
            rui_m_commit_check(m, fx);
        } else if (m->pending && b->epoch == m->view.epoch) {
            rui_m_propose_again(m, p, fx);
        }
        lead_wait_check(m, fx);
    }
    if (!m->change_told) {
        rui_m_change_check(m, false, fx);
    }
}

/* -- time passes ----------------------------------------------------------------------------------
 */

static bool vote_heard(const ru_member *m, ru_node_id node)
{
    const rui_m_peer *p = rui_m_peer_find(m, node);
    return is_self(m, node) || (p != NULL && rui_m_since(m, p->heard) < m->opt.dead_ns);
}

static void silence(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    int64_t silent = rui_m_since(m, p->heard);
    char who[RUI_WHO_MAX], why[RUI_M_WHY_MAX];
    if (silent >= m->opt.dead_ns) {
        ru_text t = ru_text_into(why, sizeof why);
        ru_text_putf(&t, "silent for %.1f s", rui_m_seconds(silent));
        give_up(m, p, why, fx);
    } else if (p->reported_at.ns != 0 && rui_m_since(m, p->reported_at) >= 2 * m->opt.beat_ns) {
        give_up(m, p, "a peer lost its connection to it, and it does not answer", fx);
    } else if (silent >= m->opt.suspect_ns && !p->named) {
        p->named = true;
        rui_m_pace_over(m, p);
        ru_fx_log(fx, RU_LOG_WARN, "%s has been silent for %.1f s",
                  rui_m_who(m, p->node, who, sizeof who), rui_m_seconds(silent));
    }
}

/* How many pairs of members that cannot reach each other, both heard here, name p? */
static uint32_t pairs_of(const ru_member *m, const rui_m_peer *p)
{
    uint32_t n = 0;
    for (const rui_m_peer *q = NULL; (q = rui_m_peer_next(m, q)) != NULL;) {
        bool old = q->n_broken > 0 && q->rank != RUI_M_NONE && !q->dead &&
                   rui_m_since(m, q->broken_at) >= m->opt.dead_ns - m->opt.suspect_ns;
        for (uint32_t i = 0; old && i < q->n_broken; i++) {
            const rui_m_peer *r = rui_m_peer_find(m, q->broken[i].node);
            bool living = r != NULL && r->rank != RUI_M_NONE && !r->dead;
            n += living && (r == p || q == p);
        }
    }
    return n;
}

static bool goes_before(const ru_member *m, const rui_m_peer *a, const rui_m_peer *b)
{
    bool x = rui_m_votes(m, a->rank), y = rui_m_votes(m, b->rank);
    return x != y ? y : a->rank > b->rank;
}

/* Two members that both are heard but do not reach each other cannot work together: who is named
 * most has to go, of equals one without a vote, then the youngest. One a tick: the next may be fine
 * then. */
static void pairs_judge(ru_member *m, ru_effects *fx)
{
    rui_m_peer *worst = NULL;
    uint32_t most = 0;
    bool any = false;
    for (const rui_m_peer *p = NULL; !any && (p = rui_m_peer_next(m, p)) != NULL;) {
        any = p->n_broken > 0 && rui_m_since(m, p->broken_at) >= m->opt.dead_ns - m->opt.suspect_ns;
    }
    for (rui_m_peer *p = NULL; any && (p = rui_m_peer_next(m, p)) != NULL;) {
        if (p->rank == RUI_M_NONE || p->dead) {
            continue;
        }
        uint32_t n = pairs_of(m, p);
        if (n > most || (n == most && n > 0 && worst != NULL && goes_before(m, p, worst))) {
            worst = p;
            most = n;
        }
    }
    if (worst != NULL) {
        give_up(m, worst, "it and other members cannot reach each other", fx);
    }
}

static void joiners_tick(ru_member *m, ru_effects *fx)
{
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        if (p->joins && (!p->up || rui_m_since(m, p->heard) >= 2 * m->opt.dead_ns)) {
            char who[RUI_WHO_MAX];
            ru_fx_log(fx, RU_LOG_INFO, "%s went silent and was removed",
                      rui_m_who(m, p->node, who, sizeof who));
            rui_m_joiner_drop(m, p);
            m->change_told = false;
        }
    }
}

void rui_m_lead_tick(ru_member *m, ru_effects *fx)
{
    uint32_t heard = 0;
    for (uint32_t i = 0; i < m->view.n; i++) {
        if (is_self(m, m->view.at[i].node)) {
            heard++;
            continue;
        }
        rui_m_peer *p = rui_m_peer_make(m, m->view.at[i].node);
        RU_CHECK(p != NULL);
        heard += rui_m_votes(m, i) && rui_m_since(m, p->heard) < m->opt.dead_ns && !p->gone;
        if (!p->dead) {
            silence(m, p, fx);
        }
    }
    if (!rui_m_quorum(m, m->view.at, m->view.n, vote_heard)) {
        rui_m_seek_start(m, fx,
                         "only %u of %u members%s answer, and the others may continue without them",
                         heard, m->voters, m->voters < m->view.n ? " that vote" : "");
        m->sure = false;
        return;
    }
    pairs_judge(m, fx);
    if (m->recheck) {
        m->recheck = false;
        rui_m_commit_check(m, fx);
    }
    joiners_tick(m, fx);
    rui_m_view_more(m, fx);
    lead_wait_check(m, fx);
    if (!m->change_told) {
        rui_m_change_check(m, false, fx);
    }
}
