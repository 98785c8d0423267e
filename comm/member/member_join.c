/* Joining, from both sides.
 *
 * The joiner says HELLO to whomever it reached, follows a REDIRECT to the leader, is told whom to
 * connect to (the members and the joiners ahead of it in the queue, so that only the younger side
 * of a pair ever connects), and says in its beats when it is connected to all. HELLO is repeated
 * until then and answered with a fresh list each time: whoever is on the list and dies meanwhile
 * vanishes from it. */
#include <stdio.h>
#include <string.h>

#include "comm/member/member_impl.h"

static const int64_t hello_again_ns = 300000000;
static const int64_t try_again_ns = 200000000;
static const int64_t no_answer_ns = 500000000;
static const int64_t waits_named_ns = 5000000000;
static const int64_t forgotten_ns = 1500000000; /* an attempt without any answer */

static void obstacle(ru_member *m, const char *what)
{
    snprintf(m->join.obstacle, sizeof m->join.obstacle, "%s", what);
}

static void connect_to(ru_member *m, const char *address, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    j->trying = true;
    j->try_at = m->now;
    snprintf(j->tried, sizeof j->tried, "%s", address);
    ru_fx_connect(fx, address);
}

static void say_hello(ru_member *m, ru_node_id to, ru_effects *fx)
{
    m->join.hello_at = m->now;
    int64_t n = rui_m_put_hello(m->part, RUI_M_PART_BYTES, &m->self, ru_str_c(m->opt.agreed));
    ru_fx_send(fx, to, RUI_M_HELLO, m->part, n);
}

void rui_m_join_start(ru_member *m, ru_effects *fx)
{
    m->phase = RUI_JOINS;
    m->join.began = m->join.started = m->join.waits_named_at = m->now;
    obstacle(m, "no member answered");
    connect_to(m, m->join.contact, fx);
}

void rui_m_join_again(ru_member *m, const char *why, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    m->lead.v = 0;
    j->lead_address[0] = '\0';
    j->welcomed = j->ready = false;
    obstacle(m, why);
    ru_fx_log(fx, RU_LOG_INFO, "joining again: %s", why);
}

static bool trying_leader(const ru_member *m)
{
    return m->join.trying && strcmp(m->join.tried, m->join.lead_address) == 0;
}

/* Somebody of those we know, else the next address in turn. */
static void seek_contact(ru_member *m, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    if (rui_m_since(m, j->hello_at) < try_again_ns && j->hello_at.ns != 0) {
        return;
    }
    uint32_t n_up = 0;
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        n_up += p->up;
    }
    uint32_t turn = j->turn++, pick = turn % (n_up + 1), k = 0;
    for (rui_m_peer *p = NULL; (p = rui_m_peer_next(m, p)) != NULL;) {
        if (p->up && k++ == pick) {
            say_hello(m, p->node, fx);
            return;
        }
    }
    if (!j->trying && m->lead.v == 0 && rui_m_since(m, j->try_at) >= try_again_ns) {
        uint32_t at = turn / (n_up + 1) % (j->n_targets + 1);
        connect_to(m, at == 0 ? j->contact : j->targets[at - 1].address, fx);
    }
}

static void targets_try(ru_member *m, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    bool all = true;
    for (uint32_t i = 0; i < j->n_targets; i++) {
        rui_m_target *t = &j->targets[i];
        const rui_m_peer *p = rui_m_peer_find(m, t->node);
        if (p != NULL && p->up) {
            t->trying = false;
            continue;
        }
        all = false;
        if (t->trying ? rui_m_since(m, t->try_at) > forgotten_ns : m->now.ns >= t->try_at.ns) {
            t->trying = true;
            t->try_at = m->now;
            ru_fx_connect(fx, t->address);
        }
    }
    m->beat_now = m->beat_now || (all && !j->ready);
    j->ready = all;
}

static void waits(ru_member *m, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    if (rui_m_since(m, j->waits_named_at) < waits_named_ns) {
        return;
    }
    j->waits_named_at = m->now;
    ru_fx_log(fx, RU_LOG_WARN, "has waited %.0f s to join: %s",
              rui_m_seconds(rui_m_since(m, j->began)),
              !j->ready ? j->obstacle
              : j->full ? "the job has its largest number of workers"
                        : "the leader has not admitted this worker yet");
}

void rui_m_join_tick(ru_member *m, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    if (j->ready) {
        j->started = j->full ? m->now : j->started;
    } else if (rui_m_since(m, j->started) >= m->opt.join_ns) {
        rui_m_out(m, fx, "could not join within %.0f s through %s: %s",
                  rui_m_seconds(m->opt.join_ns), j->contact, j->obstacle);
        return;
    }
    if (j->trying && rui_m_since(m, j->try_at) > forgotten_ns) {
        j->trying = false;
    }
    waits(m, fx);
    const rui_m_peer *lead = m->lead.v != 0 ? rui_m_peer_find(m, m->lead) : NULL;
    if (lead != NULL && lead->up && rui_m_since(m, lead->heard) >= 2 * m->opt.dead_ns) {
        rui_m_join_again(m, "the leader does not answer", fx);
        lead = NULL;
    }
    if (m->lead.v == 0) {
        seek_contact(m, fx);
    } else if (lead == NULL || !lead->up) {
        if (!trying_leader(m) && rui_m_since(m, j->try_at) >= try_again_ns) {
            connect_to(m, j->lead_address, fx);
        } else if (rui_m_since(m, j->try_at) >= no_answer_ns) {
            seek_contact(m, fx); /* perhaps another one leads by now */
        }
    } else {
        if (!j->ready && rui_m_since(m, j->hello_at) >= hello_again_ns) {
            say_hello(m, m->lead, fx);
        }
        if (j->welcomed) {
            targets_try(m, fx);
        }
    }
}

void rui_m_join_up(ru_member *m, ru_node_id node, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    if (m->lead.v == 0) {
        j->trying = false;
        say_hello(m, node, fx);
    } else if (ru_node_is(node, m->lead)) {
        j->trying = false;
        say_hello(m, node, fx);
    }
    if (j->welcomed) {
        targets_try(m, fx);
    }
}

void rui_m_join_down(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    char address[RU_MEMBER_ADDRESS_MAX] = "";
    if (ev->data != NULL && ev->size_bytes > 0) {
        snprintf(address, sizeof address, "%.*s", (int)ev->size_bytes, (const char *)ev->data);
    }
    if (ev->node.v == 0 || ru_node_is(ev->node, m->lead)) {
        if (ev->node.v != 0) {
            rui_m_join_again(m, "the connection to the leader broke", fx);
        }
        if (j->trying && (address[0] == '\0' || strcmp(address, j->tried) == 0)) {
            bool leader = trying_leader(m);
            j->trying = false;
            j->try_at = m->now;
            snprintf(j->obstacle, sizeof j->obstacle, "cannot connect to %s%s",
                     leader ? "the leader at " : "", j->tried);
            if (leader) {
                m->lead.v = 0;
                j->lead_address[0] = '\0';
            }
        }
    }
    for (uint32_t i = 0; i < j->n_targets; i++) {
        rui_m_target *t = &j->targets[i];
        bool it =
            ev->node.v != 0 ? ru_node_is(t->node, ev->node) : strcmp(t->address, address) == 0;
        if (it) {
            t->trying = false;
            t->try_at = ru_time_after(m->now, try_again_ns);
            j->ready = false;
            snprintf(j->obstacle, sizeof j->obstacle, "cannot connect to a member at %s",
                     t->address);
        }
    }
}

void rui_m_redirect(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    ru_node_id lead;
    char address[RU_MEMBER_ADDRESS_MAX];
    if (!rui_m_get_redirect(ev, &lead, address) || ru_node_is(lead, m->self.node)) {
        rui_m_hostile(m, fx, ev->node, "a malformed redirection");
        return;
    }
    const rui_m_peer *old = m->lead.v != 0 ? rui_m_peer_find(m, m->lead) : NULL;
    if (m->phase != RUI_JOINS || (old != NULL && old->up && !ru_node_is(m->lead, ev->node))) {
        return;
    }
    if (ru_node_is(m->lead, lead) && trying_leader(m)) {
        return;
    }
    if (lead.v == 0) {
        obstacle(m, "the job has no leader at the moment");
        m->lead.v = 0;
        return;
    }
    j->redirects++;
    m->lead = lead;
    memcpy(j->lead_address, address, sizeof j->lead_address);
    const rui_m_peer *p = rui_m_peer_find(m, lead);
    if (p != NULL && p->up) {
        say_hello(m, lead, fx);
    } else {
        connect_to(m, address, fx);
    }
}

void rui_m_welcome(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    rui_m_join *j = &m->join;
    if (m->phase != RUI_JOINS) {
        return;
    }
    uint32_t n;
    bool full;
    if (!rui_m_get_welcome(ev, j->targets, m->opt.mesh_max + RUI_M_LINE, &n, &full)) {
        j->n_targets = 0;
        rui_m_hostile(m, fx, ev->node, "a malformed welcome");
        return;
    }
    m->lead = ev->node;
    j->n_targets = n;
    j->full = full;
    j->welcomed = true;
    targets_try(m, fx);
}

/* -- the other side -------------------------------------------------------------------------------
 */

static void redirect_to(ru_member *m, ru_node_id to, ru_node_id lead, ru_effects *fx)
{
    const char *address = lead.v == 0                      ? ""
                          : ru_node_is(lead, m->self.node) ? m->self.address
                                                           : rui_m_address(m, lead);
    uint8_t buf[RUI_SMALL_MAX];
    int64_t n = rui_m_put_redirect(buf, sizeof buf, address != NULL ? lead : (ru_node_id){0},
                                   address != NULL ? address : "");
    ru_fx_send(fx, to, RUI_M_REDIRECT, buf, n);
}

static void put_target(ru_wire_out *w, uint32_t *n, ru_node_id node, const char *address)
{
    ru_wire_put_u64(w, node.v);
    ru_wire_put_text(w, address, (uint32_t)strlen(address));
    (*n)++;
}

/* Members and joiners ahead of p; in a big job only the oldest. */
static uint32_t put_targets(ru_member *m, const rui_m_peer *p, ru_wire_out *w)
{
    uint32_t n = 0, ahead = 0;
    for (rui_m_peer *q = NULL; (q = rui_m_peer_next(m, q)) != NULL;) {
        ahead += q->joins && q->arrival < p->arrival;
    }
    bool mesh = m->view.n + ahead < m->opt.mesh_max;
    if (m->view.n == 0) {
        put_target(w, &n, m->self.node, m->self.address);
    }
    for (uint32_t i = 0; i < m->view.n && (mesh || i < m->line_end); i++) {
        if (!mesh && !rui_m_in_line(m, i)) {
            continue;
        }
        const rui_m_peer *q = rui_m_peer_find(m, m->view.at[i].node);
        bool living = ru_node_is(m->view.at[i].node, m->self.node) || (q != NULL && !q->dead);
        if (living) {
            put_target(w, &n, m->view.at[i].node, m->view.at[i].address);
        }
    }
    for (rui_m_peer *q = NULL; mesh && (q = rui_m_peer_next(m, q)) != NULL;) {
        if (q->joins && q->arrival < p->arrival) {
            put_target(w, &n, q->node, rui_m_peer_joiner(m, q)->address);
        }
    }
    return n;
}

static void send_welcome(ru_member *m, const rui_m_peer *p, ru_effects *fx)
{
    enum { HEAD = 5 };
    uint8_t *buf = m->full; /* whole views are encoded just before they are sent */
    ru_wire_out body = ru_wire_out_into(buf + HEAD, m->bytes_max - HEAD);
    uint32_t n = put_targets(m, p, &body);
    ru_wire_out head = ru_wire_out_into(buf, HEAD);
    ru_wire_put_u8(&head, m->view.n >= m->opt.n_max);
    ru_wire_put_u32(&head, n);
    RU_CHECK(!body.bad && !head.bad);
    ru_fx_send(fx, p->node, RUI_M_WELCOME, buf, HEAD + ru_wire_size(&body));
}

void rui_m_hello(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    ru_member_info info;
    ru_str agreed;
    if (!rui_m_same_version(m, ev, fx)) {
        return;
    }
    if (!rui_m_get_hello(ev, &info, &agreed)) {
        rui_m_hostile(m, fx, ev->node, "a malformed or foreign greeting");
        return;
    }
    rui_m_peer *p = rui_m_peer_find(m, ev->node);
    RU_CHECK(p != NULL);
    if (m->phase != RUI_LEADS) {
        redirect_to(m, ev->node, m->phase == RUI_FOLLOWS ? m->lead : (ru_node_id){0}, fx);
        return;
    }
    if (p->rank != RUI_M_NONE) {
        rui_m_view_tell(m, p, fx); /* it is a member and does not know */
        return;
    }
    if (!p->joins && !rui_m_agrees(m, p, &info, agreed, fx)) {
        return;
    }
    if (!p->joins) {
        p->joins = true;
        p->ready = p->dead = p->leaving = false;
        p->drop_at.ns = 0;
        p->arrival = ++m->arrivals;
        ru_fx_log(fx, RU_LOG_INFO, "%.100s (%.*s, %u cores%s%s%s) wants to join", info.address,
                  (int)strcspn(info.host, "/"), info.host, info.capacity,
                  info.tier != RU_TIER_RELIABLE ? ", " : "",
                  info.tier != RU_TIER_RELIABLE ? ru_tier_text(info.tier) : "",
                  info.no_vote ? ", without a vote" : "");
    }
    *rui_m_peer_joiner(m, p) = info;
    send_welcome(m, p, fx);
}

bool rui_m_joiner_drop(ru_member *m, rui_m_peer *p)
{
    bool joined = p->joins;
    (void)m;
    p->joins = p->ready = false;
    return joined;
}
