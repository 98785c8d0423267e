/* What owners may know of membership. */
#include <stddef.h>

#include "comm/member/member_impl.h"

const char *ru_tier_text(ru_tier tier)
{
    static const char *const texts[RU_TIERS] = {"reliable", "transient"};
    RU_CHECK(tier < RU_TIERS);
    return texts[tier];
}

const ru_view *ru_member_view(const ru_member *m)
{
    return &m->view;
}

bool ru_member_leads(const ru_member *m)
{
    return m->phase == RUI_LEADS;
}

ru_node_id ru_member_leader(const ru_member *m)
{
    return m->lead;
}

bool ru_member_obeys(const ru_member *m)
{
    bool bound = m->promised > m->view.epoch && !ru_node_is(m->promised_to, m->view.leader);
    return ru_node_is(m->lead, m->view.leader) || (m->phase == RUI_SEEKS && !bound);
}

const void *ru_member_status_get(const ru_member *m, ru_node_id node, int64_t *size_bytes)
{
    if (ru_node_is(node, m->self.node)) {
        *size_bytes = m->status_bytes;
        return m->has_status ? m->status : NULL;
    }
    const rui_m_peer *p = rui_m_peer_find(m, node);
    if (p == NULL || !p->has_status) {
        return NULL;
    }
    *size_bytes = p->status_bytes;
    return rui_m_peer_status(m, p);
}

bool ru_member_leaves(const ru_member *m, ru_node_id node)
{
    const rui_m_peer *p = rui_m_peer_find(m, node);
    return ru_node_is(node, m->self.node) ? m->leaving : p != NULL && (p->leaving || p->left);
}

int64_t ru_member_silent_ns(const ru_member *m, ru_node_id node, ru_time now)
{
    if (ru_node_is(node, m->self.node)) {
        return 0;
    }
    const rui_m_peer *p = rui_m_peer_find(m, node);
    return p == NULL ? INT64_MAX : now.ns - p->heard.ns;
}

void ru_member_facts_get(ru_member *m, ru_member_facts *into)
{
    *into = (ru_member_facts){.asks = m->phase == RUI_SEEKS && m->asking,
                              .elect = m->phase == RUI_LEADS && m->elect,
                              .pending = m->phase == RUI_LEADS && m->pending,
                              .adds = m->phase == RUI_LEADS && m->pending && m->next_adds,
                              .stuck = m->phase == RUI_SEEKS && m->stuck_named > 0,
                              .redirects = m->join.redirects,
                              .alone = true,
                              .voters = m->voters,
                              .removed = m->removed,
                              .sure = m->sure,
                              .refused = m->refused,
                              .refused_why = m->refused_why};
    for (rui_m_peer *p = NULL; into->alone && (p = rui_m_peer_next(m, p)) != NULL;) {
        into->alone = !p->up;
    }
    into->outside = m->phase == RUI_JOINS && into->alone;
    if (m->view.epoch > 0 && rui_m_next_decode(m)) {
        into->next = m->next.at;
        into->next_n = m->next.n;
    }
}
