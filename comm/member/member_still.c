/* This process itself stood still: what others may have decided meanwhile, and what it may not hold
 * against them. */
#include <stddef.h>

#include "comm/member/member_impl.h"

/* For how long may this process say nothing before the others can have put a view in force without
 * it? INT64_MAX: they are too few. */
int64_t rui_m_replaced_after_ns(const ru_member *m)
{
    uint32_t n = m->voters, others = n > 0 ? n - 1 : 0;
    bool oldest = n > 0 && ru_node_is(m->view.at[m->oldest].node, m->self.node);
    if (m->self.no_vote || m->phase == RUI_JOINS) { /* nobody waits for it; its vote may begin */
        return m->opt.dead_ns - m->opt.suspect_ns;
    }
    if (m->phase == RUI_IDLE || others * 2 < n || (others * 2 == n && oldest)) {
        return INT64_MAX;
    }
    /* Also without their leader, if it was lost meanwhile? Then nobody waits for dead_ns. */
    bool without = m->phase != RUI_LEADS && (others - 1) * 2 > n;
    return without ? m->opt.dead_ns - m->opt.suspect_ns : m->opt.dead_ns;
}

/* The others may have gone on without this process, and even have ended since: that none of them is
 * left proves nothing any more. */
static void doubt(ru_member *m)
{
    m->sure = false;
    m->sure_at = ru_time_after(m->now, 2 * m->opt.dead_ns);
}

void rui_m_told_check(ru_member *m)
{
    rui_m_told *t = &m->told;
    if (!ru_node_is(t->to, m->lead)) {
        t->to = m->lead;
        t->heard_at = m->now;
        t->said_at.ns = 0;
    }
    ru_time left = rui_m_unacked(m, m->lead);
    if (t->said_at.ns != 0 && (left.ns == 0 || left.ns > t->said_at.ns)) {
        t->heard_at = t->said_at;
        t->said_at.ns = 0;
    }
}

/* May the leader have heard nothing of this process for so long that it went on without it? What
 * the leader says proves nothing: it may have waited here while this process stood still, and what
 * this process said since may never have reached the leader. */
static bool unheard(const ru_member *m)
{
    return m->phase == RUI_FOLLOWS && ru_node_is(m->told.to, m->lead) &&
           rui_m_since(m, m->told.heard_at) >= m->opt.dead_ns &&
           rui_m_replaced_after_ns(m) <= m->opt.dead_ns;
}

static void unsure(ru_member *m, ru_effects *fx)
{
    int64_t quiet = rui_m_since(m, m->told.ran_at);
    m->told.ran_at = m->now;
    if (m->phase == RUI_LEADS) {
        rui_m_seek_start(m, fx, "it was suspended for %.1f s, and another member may lead by now",
                         rui_m_seconds(quiet));
    }
    doubt(m);
}

/* Without a leader: can the others have put a view in force meanwhile? Who was not heard for long
 * may have taken over with the promises of all others: silence does not count against them, but all
 * of it, before and during the suspension, was time for them to decide: who takes over waits for an
 * answer for dead_ns - suspect_ns, and nobody was heard during the suspension. */
static bool others_decide(const ru_member *m)
{
    uint32_t n = 0;
    bool oldest = false, quiet = false;
    for (uint32_t i = 0; i < m->view.n; i++) {
        const rui_m_peer *p = rui_m_peer_find(m, m->view.at[i].node);
        bool may = p != NULL && rui_m_votes(m, i) && !p->gone;
        quiet = quiet || (may && rui_m_since(m, p->heard) >= m->opt.dead_ns - m->opt.suspect_ns);
        n += may;
        oldest = i == m->oldest ? may : oldest;
    }
    return quiet && (n * 2 > m->voters || (n * 2 == m->voters && oldest));
}

/* This process itself stood still (stopped, starved of the processor, its machine asleep): what it
 * did not hear meanwhile says nothing about the others. */
static void stood_still(ru_member *m, ru_effects *fx)
{
    int64_t late = m->planned.ns == 0 ? 0 : rui_m_since(m, m->planned);
    if (late > 0 && m->phase == RUI_SEEKS) { /* before it learns who is gone by now */
        m->sure = m->sure && !rui_m_others_decide(m);
    }
    if (late > m->opt.suspect_ns / 2) {
        ru_fx_log(fx, RU_LOG_WARN, "this process was suspended for %.1f s", rui_m_seconds(late));
        if (m->phase == RUI_SEEKS && others_decide(m)) {
            doubt(m);
        }
        for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
            p->heard.ns += late;
            p->heard.ns = p->heard.ns > m->now.ns ? m->now.ns : p->heard.ns;
            p->asked_at.ns += p->asked_at.ns == 0 ? 0 : late;
            p->confirm_at.ns += late;
        }
        m->planned = m->now;
    }
    /* The first bound is below every answer of the second, which looks at the view. */
    int64_t quiet_ns = rui_m_since(m, m->told.ran_at);
    if ((m->view.n > 1 || m->phase == RUI_JOINS) &&
        quiet_ns >= m->opt.dead_ns - m->opt.suspect_ns && quiet_ns >= rui_m_replaced_after_ns(m)) {
        unsure(m, fx);
    }
    if (unheard(m)) {
        doubt(m);
    }
}

void ru_member_wake(ru_member *m, ru_time now, ru_effects *fx)
{
    m->now = now.ns > m->now.ns ? now : m->now;
    if (m->told.ran_at.ns == 0) {
        m->told.ran_at = m->now; /* it has just begun: no beat was due yet */
    }
    if (m->phase != RUI_OUT) {
        stood_still(m, fx);
    }
}
