/* Whom this process knows: peers by node, ranks of the view, quorums. Tables are open-addressed
 * over arrays that stay where they are; nothing is allocated after open, and walks follow the
 * arrays, so that no order depends on hashes. */
#include <string.h>

#include "comm/member/member_impl.h"

static uint32_t spread(ru_node_id node)
{
    uint64_t x = node.v * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(x >> 32);
}

void rui_m_index_put(rui_m_index *ix, ru_node_id node, uint32_t at)
{
    uint32_t s = spread(node) & ix->mask;
    while (ix->slots[s] != 0) {
        s = (s + 1) & ix->mask;
    }
    ix->slots[s] = at + 1;
}

void rui_m_index_clear(rui_m_index *ix)
{
    memset(ix->slots, 0, ((size_t)ix->mask + 1) * sizeof *ix->slots);
}

rui_m_peer *rui_m_peer_find(const ru_member *m, ru_node_id node)
{
    const rui_m_index *ix = &m->peer_index;
    for (uint32_t s = spread(node) & ix->mask; ix->slots[s] != 0; s = (s + 1) & ix->mask) {
        rui_m_peer *p = &m->peers[ix->slots[s] - 1];
        if (ru_node_is(p->node, node)) {
            return p;
        }
    }
    return NULL;
}

static void peers_index(ru_member *m)
{
    rui_m_index_clear(&m->peer_index);
    for (uint32_t i = 0; i < m->n_peers; i++) {
        if (m->peers[i].node.v != 0) {
            rui_m_index_put(&m->peer_index, m->peers[i].node, i);
        }
    }
}

rui_m_peer *rui_m_peer_make(ru_member *m, ru_node_id node)
{
    RU_CHECK(node.v != 0);
    rui_m_peer *p = rui_m_peer_find(m, node);
    if (p != NULL) {
        return p;
    }
    uint32_t i = 0;
    while (i < m->n_peers && m->peers[i].node.v != 0) {
        i++;
    }
    if (i == m->peers_max) {
        return NULL;
    }
    m->n_peers = i < m->n_peers ? m->n_peers : i + 1;
    p = &m->peers[i];
    uint32_t rank = rui_m_rank(m, node);
    *p = (rui_m_peer){.node = node,
                      .rank = rank,
                      .heard = m->now,
                      .sign_at = m->now,
                      .down_at = m->now,
                      .number = rank == RUI_M_NONE ? 0 : m->view.at[rank].number};
    rui_m_index_put(&m->peer_index, node, i);
    return p;
}

void rui_m_peer_remove(ru_member *m, rui_m_peer *p)
{
    rui_m_pace_over(m, p);
    p->node.v = 0;
    while (m->n_peers > 0 && m->peers[m->n_peers - 1].node.v == 0) {
        m->n_peers--;
    }
    peers_index(m);
}

rui_m_peer *rui_m_peer_next(const ru_member *m, const rui_m_peer *p)
{
    uint32_t i = p == NULL ? 0 : (uint32_t)(p - m->peers) + 1;
    while (i < m->n_peers && m->peers[i].node.v == 0) {
        i++;
    }
    return i < m->n_peers ? &m->peers[i] : NULL;
}

ru_member_info *rui_m_peer_joiner(const ru_member *m, const rui_m_peer *p)
{
    return &m->joiners[p - m->peers];
}

uint8_t *rui_m_peer_status(const ru_member *m, const rui_m_peer *p)
{
    return m->statuses + (p - m->peers) * RU_MEMBER_STATUS_MAX;
}

uint32_t rui_m_rank(const ru_member *m, ru_node_id node)
{
    const rui_m_index *ix = &m->ranks;
    for (uint32_t s = spread(node) & ix->mask; ix->slots[s] != 0; s = (s + 1) & ix->mask) {
        if (ru_node_is(m->view.at[ix->slots[s] - 1].node, node)) {
            return ix->slots[s] - 1;
        }
    }
    return RUI_M_NONE;
}

void rui_m_ranks_build(ru_member *m)
{
    rui_m_index_clear(&m->ranks);
    m->voters = m->line_end = 0;
    for (uint32_t i = 0; i < m->view.n; i++) {
        rui_m_index_put(&m->ranks, m->view.at[i].node, i);
        if (!m->view.at[i].no_vote) {
            m->oldest = m->voters == 0 ? i : m->oldest;
            m->line_end = m->voters < RUI_M_LINE ? i + 1 : m->line_end;
            m->voters++;
        }
    }
    RU_CHECK(m->voters > 0);
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        p->rank = rui_m_rank(m, p->node);
        if (p->rank != RUI_M_NONE) {
            p->number = m->view.at[p->rank].number;
        }
    }
}

/* All, since none of them is more reliable than another: one voter alone would take the job with it
 * when its machine is taken away. */
void rui_m_voters(ru_member_info *at, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && at[i].no_vote) {
        i++;
    }
    for (uint32_t k = 0; i == n && k < n; k++) {
        at[k].no_vote = false;
    }
}

const char *rui_m_address(const ru_member *m, ru_node_id node)
{
    uint32_t rank = rui_m_rank(m, node);
    if (rank != RUI_M_NONE) {
        return m->view.at[rank].address;
    }
    const rui_m_peer *p = rui_m_peer_find(m, node);
    if (p != NULL && p->joins) {
        return rui_m_peer_joiner(m, p)->address;
    }
    for (uint32_t i = 0; m->next.decoded && i < m->next.n; i++) {
        if (ru_node_is(m->next.at[i].node, node)) {
            return m->next.at[i].address;
        }
    }
    return NULL;
}

bool rui_m_gone(const ru_member *m, ru_node_id node)
{
    const rui_m_peer *p = rui_m_peer_find(m, node);
    return p != NULL && p->gone;
}

bool rui_m_quorum(const ru_member *m, const ru_member_info *at, uint32_t n, rui_m_vote vote)
{
    uint32_t all = 0, oldest = 0, living = 0, yes = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (at[i].no_vote) {
            continue;
        }
        oldest = all == 0 ? i : oldest;
        all++;
        bool gone = !ru_node_is(at[i].node, m->self.node) && rui_m_gone(m, at[i].node);
        living += !gone;
        yes += !gone && vote(m, at[i].node);
    }
    bool half =
        yes * 2 == all && all > 0 && !rui_m_gone(m, at[oldest].node) && vote(m, at[oldest].node);
    return (yes == living && m->sure) || yes * 2 > all || half || all == 0;
}

ru_time rui_m_unacked(const ru_member *m, ru_node_id node)
{
    return m->opt.unacked != NULL ? m->opt.unacked(m->opt.unacked_self, node) : (ru_time){0};
}

void rui_m_try(ru_member *m, rui_m_peer *p, ru_effects *fx)
{
    const char *address = rui_m_address(m, p->node);
    if (p->up || p->trying || m->now.ns < p->try_at.ns || address == NULL) {
        return;
    }
    p->trying = true;
    p->try_at = ru_time_after(m->now, m->opt.beat_ns);
    ru_fx_connect(fx, address);
}
