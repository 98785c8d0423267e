/* The loop thread of the server: what guests say, updates that come, timers and wakes. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "fleet/client/pack.h"
#include "fleet/secure/serve.h"
#include "fleet/server_impl.h"

enum { RUI_FED_BODY_BYTES_PER_S = 128000 }; /* slower ones do not end */

static const int64_t second_ns = 1000000000, body_wait_ns = 60000000000, end_wait_ns = 3000000000,
                     other_ns = 5000000000; /* a name is free again */

/* -- what guests say ------------------------------------------------------------------------------
 */

static void on_hello(rui_fed_server *s, const ru_event *ev, ru_effects *fx)
{
    char name[RUI_FED_NAME_MAX + 1];
    ru_wire_in w = ru_wire_in_from(ev->data, ev->size_bytes);
    uint32_t version = ru_wire_u32(&w), n = 0;
    const char *text = ru_wire_text(&w, RUI_FED_NAME_MAX, &n);
    uint64_t process = ru_wire_u64(&w);
    if (text == NULL || version != RUI_FED_VERSION) {
        rui_fed_say_no(ev->node, fx,
                       "this server speaks version %d of the protocol, the client version "
                       "%u; run the same version of rubato on both sides",
                       RUI_FED_VERSION, version);
        return;
    }
    memcpy(name, text, n);
    name[n] = '\0';
    if (!rui_fed_name_ok(name) || !ru_node_is(ru_guest_name(name), ev->node)) {
        rui_fed_say_no(ev->node, fx, "the token is not that of the name it says");
        return;
    }
    rui_fed_member *m = rui_fed_member_new(s, name);
    if (m == NULL) {
        rui_fed_say_no(ev->node, fx,
                       "this federation has %u clients, its largest number "
                       "(federated.clients_max)",
                       s->job->clients_max);
        return;
    }
    if (m->greeted) {
        rui_fed_say_no(ev->node, fx, "it greets twice");
        return;
    }
    if (m->process != 0 && m->process != process && ev->now.ns - m->gone_at.ns < other_ns) {
        rui_fed_say_no(ev->node, fx,
                       "another process takes part as %s, or did five seconds ago; a token is for "
                       "one client",
                       m->name);
        return;
    }
    uint8_t head[RUI_FED_HEAD_MAX];
    m->process = process;
    m->greeted = true;
    (void)ru_pull_send(s->pull, ev->node, RUI_FED_START, head,
                       rui_fed_start_put(&s->welcome.head, head), s->welcome.state,
                       s->welcome.state_bytes, false, RUI_FED_COOKIE_NONE, ev->now, fx);
}

static void on_ready(rui_fed_server *s, const ru_event *ev, ru_effects *fx)
{
    rui_fed_ready r;
    rui_fed_member *m = rui_fed_member_of(s, ev->node);
    if (m == NULL || !m->greeted || m->up || !rui_fed_ready_get(ev->data, ev->size_bytes, &r)) {
        rui_fed_say_no(ev->node, fx,
                       "it says that it is ready at a wrong time, or with invalid numbers");
        return;
    }
    if (r.count != (uint64_t)s->flat.count || r.hash != s->flat.hash) {
        rui_fed_say_no(ev->node, fx,
                       "its model has other values than that of this server (%llu, not %lld)",
                       (unsigned long long)r.count, (long long)s->flat.count);
        return;
    }
    rui_fed_heard(ev->node, fx);
    m->up = true;
    m->rests = false;
    m->samples = r.samples;
    m->unpacks = r.unpacks != 0;
    m->held = r.held;
    s->there++;
    ru_log(RU_LOG_INFO, "fed", "joined", "client %s with %.0f samples; %u are here", m->name,
           m->samples, s->there);
    rui_fed_local(s, RU_FED_JOIN, rui_fed_number(s, m), &m->samples, sizeof m->samples, ev->now,
                  fx);
}

/* Out of its hours: nobody waits for it, and it says when it is ready again. */
static void on_away(rui_fed_server *s, const ru_event *ev, ru_effects *fx)
{
    ru_wire_in w = ru_wire_in_from(ev->data, ev->size_bytes);
    uint32_t minutes = ru_wire_u32(&w);
    rui_fed_member *m = rui_fed_member_of(s, ev->node);
    if (m == NULL || !m->greeted || w.bad || minutes > 24 * 60) {
        rui_fed_say_no(
            ev->node, fx,
            "it says that it is out of its hours at a wrong time, or with an invalid one");
        return;
    }
    rui_fed_heard(ev->node, fx);
    if (!m->rests) { /* who says it again and again fills no log */
        ru_log(RU_LOG_INFO, "fed", "rests",
               "client %s is out of its hours for %u:%02u h; %u are here", m->name, minutes / 60,
               minutes % 60, s->there - (m->up ? 1 : 0));
    }
    m->rests = true;
    rui_fed_leave(s, m, ev->now, fx);
}

static void on_score(rui_fed_server *s, const ru_event *ev, ru_effects *fx)
{
    rui_fed_score c;
    rui_fed_member *m = rui_fed_member_of(s, ev->node);
    rui_fed_heard(ev->node, fx);
    if (m == NULL || !m->up) {
        return;
    }
    if (!rui_fed_score_get(ev->data, ev->size_bytes, &c) || c.count > m->held * s->labels) {
        rui_fed_expel(s, m, "its score counts what nobody can count", ev->now, fx);
        return;
    }
    if (m->task != c.task || m->kind != RUI_FED_EVALUATE || s->eval_left == 0) {
        return; /* late */
    }
    uint32_t tier = ru_fed_tier_of(s->fed)[rui_fed_number(s, m)];
    m->task = 0;
    if (tier < s->job->tiers) {
        s->scores[tier].hits += c.correct;
        s->scores[tier].rows += c.count;
    }
    if (--s->eval_left == 0) {
        rui_fed_evaluated(s, ev->now, fx);
    }
}

static void on_failed(rui_fed_server *s, const ru_event *ev, ru_effects *fx)
{
    char text[RUI_FED_TEXT_MAX];
    ru_wire_in w = ru_wire_in_from(ev->data, ev->size_bytes);
    uint32_t task = ru_wire_u32(&w), n = 0;
    const char *why = ru_wire_text(&w, RUI_FED_TEXT_MAX - 1, &n);
    rui_fed_member *m = rui_fed_member_of(s, ev->node);
    rui_fed_heard(ev->node, fx);
    if (m == NULL || !m->up || m->task != task || why == NULL) {
        return;
    }
    for (uint32_t k = 0; k < n; k++) { /* goes to a terminal */
        text[k] = why[k] >= ' ' && why[k] <= '~' ? why[k] : '?';
    }
    text[n] = '\0';
    ru_log(RU_LOG_WARN, "fed", "failed", "client %s could not do its task: %s", m->name, text);
    rui_fed_leave(s, m, ev->now, fx);
}

/* An offer of a body: only of an update that it owes, one at a time. */
static bool may_offer(rui_fed_server *s, const ru_event *ev, ru_effects *fx)
{
    rui_fed_member *m = rui_fed_member_of(s, ev->node);
    uint32_t kind = ev->what - RUI_FED_PARCELS;
    if (kind == 1) { /* its GRANT */
        return m != NULL;
    }
    if (m == NULL || !(m->up || m->rests) || m->offered) { /* rests: begun before its hours ended */
        rui_fed_say_no(ev->node, fx, "it sends an update that nobody asked for");
        if (m != NULL) {
            rui_fed_leave(s, m, ev->now, fx);
        }
        return false;
    }
    m->offered = true;
    m->offered_at = ev->now;
    return true;
}

static void part_guest(void *self, const ru_event *ev, ru_effects *fx)
{
    rui_fed_server *s = self;
    if (ev->kind != RU_EV_DOWN) {
        rui_secure_word(s, rui_fed_member_of(s, ev->node), ev->now, fx);
    }
    if (ev->kind == RU_EV_DOWN) {
        ru_pull_step(s->pull, ev, fx);
        rui_fed_member *m = rui_fed_member_of(s, ev->node);
        if (m != NULL && m->greeted) {
            m->greeted = m->offered = m->rests = false;
            m->gone_at = ev->now;
        }
        if (m != NULL && m->up) {
            ru_log(RU_LOG_INFO, "fed", "lost", "client %s is gone; %u are here", m->name,
                   s->there - 1);
            rui_fed_leave(s, m, ev->now, fx);
        }
    } else if (ev->what >= RUI_FED_PARCELS) {
        if (may_offer(s, ev, fx)) {
            ru_pull_step(s->pull, ev, fx);
        }
    } else if (ev->what == RUI_FED_HELLO) {
        on_hello(s, ev, fx);
    } else if (ev->what == RUI_FED_READY) {
        on_ready(s, ev, fx);
    } else if (ev->what == RUI_FED_AWAY) {
        on_away(s, ev, fx);
    } else if (ev->what == RUI_FED_SCORE) {
        on_score(s, ev, fx);
    } else if (ev->what == RUI_FED_FAILED) {
        on_failed(s, ev, fx);
    } else if (ev->what == RUI_FED_KEYS && s->secure != NULL) {
        rui_secure_keys(s, ev, fx);
    } else {
        rui_fed_heard(ev->node, fx);
    }
}

/* -- updates --------------------------------------------------------------------------------------
 */

/* What is wrong with it; NULL: nothing. */
static const char *wrong(uint32_t what, const void *head, uint32_t head_bytes, rui_fed_update *u)
{
    return what != RUI_FED_UPDATE || !rui_fed_update_get(head, head_bytes, u)
               ? "its update has a head that is none, or a loss that is not a number"
               : NULL;
}

/* Its values unpacked, of s->bufs; NULL: it is damaged, or there is no memory. */
static float *unpack(rui_fed_server *s, const void *body, int64_t body_bytes)
{
    float *values = ru_bufs_get(&s->bufs, s->flat.count * (int64_t)sizeof *values);
    if (values != NULL && !rui_fed_unpack(body, body_bytes, values, s->flat.count)) {
        ru_bufs_put(&s->bufs, values);
        values = NULL;
    }
    return values;
}

static void take(rui_fed_server *s, rui_fed_member *m, const rui_fed_update *u, const float *values,
                 ru_time now, ru_effects *fx)
{
    ru_err err;
    uint32_t i = rui_fed_number(s, m);
    if (m->task == 0 || u->task != m->task || m->kind == RUI_FED_EVALUATE) {
        ru_log(RU_LOG_INFO, "fed", "late",
               "client %s sends an update of task %u, which nobody "
               "waits for",
               m->name, u->task);
        return;
    }
    if (ru_fed_counts(s->fed, i, u->task)) {
        m->took_s = (double)(now.ns - s->round_begun.ns) * 1e-9;
        ru_status st = s->secure != NULL ? rui_secure_add(s, m, values, &err)
                                         : ru_fed_sum_add(&s->sum, values, m->samples, &err);
        if (st != RU_OK) {
            rui_fed_expel(s, m, err.text, now, fx);
            return;
        }
        s->loss_sum += u->loss * m->samples;
        s->loss_weight += m->samples;
        if (u->accuracy >= 0) { /* else the client does not know it */
            s->correct_sum += u->accuracy * m->samples;
            s->correct_weight += m->samples;
        }
    }
    m->task = 0;
    const ru_fed_answer a = {.client = i, .task = u->task, .loss = u->loss_rms};
    rui_fed_local(s, RU_FED_ANSWER, 0, &a, sizeof a, now, fx);
}

void rui_fed_got(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                 void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    rui_fed_server *s = self;
    rui_fed_update u;
    rui_fed_member *m = rui_fed_member_of(s, from);
    m->offered = false; /* may_offer knows who sends it */
    rui_fed_heard(from, fx);
    if (s->secure != NULL && (what == RUI_FED_BOXES || what == RUI_FED_PARTS)) {
        rui_secure_parcel(s, m, what, head, head_bytes, body, body_bytes, now, fx);
        ru_bufs_put(&s->bufs, body);
        return;
    }
    const char *why = wrong(what, head, head_bytes, &u);
    if (m->up && why == NULL && body_bytes != s->flat.count * (int64_t)sizeof(float)) {
        float *values = m->unpacks ? unpack(s, body, body_bytes) : NULL;
        why = values == NULL ? "its update has another size than the model, or is damaged" : NULL;
        ru_bufs_put(&s->bufs, body);
        body = values;
    }
    if (m->up && why != NULL) {
        rui_fed_expel(s, m, why, now, fx);
    } else if (m->up) {
        take(s, m, &u, body, now, fx);
    }
    ru_bufs_put(&s->bufs, body);
}

void rui_fed_sent(void *self, uint64_t cookie, bool ok, ru_time now, ru_effects *fx)
{
    rui_fed_server *s = self;
    (void)ok; /* who did not get it is gone, or late */
    if (cookie == RUI_FED_COOKIE_NONE) {
        return;
    }
    uint32_t e = (uint32_t)(cookie & 0xff);
    s->editions[e].refs--;
    rui_fed_member *m = &s->members[cookie >> 8];
    m->reading = m->reading == 1 + e ? 0 : m->reading;
    rui_fed_pace_sent(&s->pace);
    rui_fed_paced_on(s, now, fx);
}

/* -- timers and wakes -----------------------------------------------------------------------------
 */

/* Bodies that do not end give their memory back: updates, and values that nobody takes. Many
 * clients share a line: twenty on 100 Mbit/s have 0.6 MB/s each, and an update waits for its turn.
 */
static void look_at_bodies(rui_fed_server *s, ru_time now)
{
    const int64_t bytes = s->flat.count * (int64_t)sizeof(float);
    const int64_t wait_ns = body_wait_ns + bytes * (second_ns / RUI_FED_BODY_BYTES_PER_S);
    for (uint32_t i = 0; i < s->n; i++) {
        rui_fed_member *m = &s->members[i];
        bool sends = m->offered && now.ns - m->offered_at.ns > wait_ns;
        bool reads = m->reading != 0 && now.ns - m->task_at.ns > wait_ns;
        if (sends || reads) {
            ru_log(RU_LOG_WARN, "fed", "refused", "client %s: %s does not end", m->name,
                   sends ? "its update" : "the model on its way to it");
            ru_chan_refuse(ru_node_guests_chan(s->bridge.node), m->node, "it does not end a parcel",
                           now);
        }
    }
    rui_fed_tell_clients(s);
    ru_loop_timer(s->loop, rui_fed_timer, s, RUI_FED_TIMER_BODIES,
                  ru_time_after(now, 5 * second_ns));
}

void rui_fed_timer(void *self, uint32_t what, ru_time now)
{
    rui_fed_server *s = self;
    ru_effects *fx = ru_node_enter(s->bridge.node, now);
    if (what == RUI_FED_TIMER_FED) {
        rui_fed_step(s, (ru_event){.kind = RU_EV_TIMER, .now = now, .what = RU_FED_TIMER}, fx);
    } else if (what == RUI_FED_TIMER_EVAL) {
        rui_fed_evaluated(s, now, fx);
    } else if (what == RUI_FED_TIMER_SECURE) {
        rui_secure_timer(s, now, fx);
    } else if (what == RUI_FED_TIMER_PACE) {
        rui_fed_paced_look(s, now, fx);
    } else if (what == RUI_FED_TIMER_BODIES) {
        look_at_bodies(s, now);
    }
    ru_node_leave(s->bridge.node, now);
    ru_guests_facts f;
    ru_node_guests_facts(s->bridge.node, &f);
    if (what == RUI_FED_TIMER_END && (f.n == 0 || now.ns - s->round_begun.ns > end_wait_ns)) {
        ru_loop_stop(s->loop);
    } else if (what == RUI_FED_TIMER_END) {
        ru_loop_timer(s->loop, rui_fed_timer, s, RUI_FED_TIMER_END,
                      ru_time_after(now, second_ns / 20));
    }
}

static void say_bye(rui_fed_server *s, ru_time now)
{
    ru_effects *fx = ru_node_enter(s->bridge.node, now);
    s->over = true;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->members[i].up || s->members[i].rests) {
            ru_fx_send(fx, s->members[i].node, RUI_FED_BYE, NULL, 0);
        }
    }
    ru_node_leave(s->bridge.node, now);
    s->round_begun = now;
    ru_loop_timer(s->loop, rui_fed_timer, s, RUI_FED_TIMER_END, ru_time_after(now, 1));
}

void rui_fed_wake(void *self, ru_time now)
{
    rui_fed_server *s = self;
    ru_mutex_lock(&s->lock);
    bool kept = s->slot.kept, ending = s->slot.ending;
    bool unmasked = s->slot.masked == RUI_UNMASKED;
    s->slot.masked = unmasked ? RUI_MASKED_NONE : s->slot.masked;
    rui_edition *e = kept ? s->slot.edition : NULL;
    s->slot.kept = false;
    if (kept) {
        s->slot.edition = NULL;
    }
    ru_mutex_unlock(&s->lock);
    if (e != NULL) {
        e->refs--;
        ru_effects *fx = ru_node_enter(s->bridge.node, now);
        rui_fed_local(s, RU_FED_KEPT, 0, NULL, 0, now, fx);
        ru_node_leave(s->bridge.node, now);
    }
    if (unmasked) {
        ru_effects *fx = ru_node_enter(s->bridge.node, now);
        rui_secure_unmasked(s, now, fx);
        ru_node_leave(s->bridge.node, now);
    }
    if (ending && !s->over) {
        say_bye(s, now);
    }
}

void rui_fed_stop(void *self, int fd, uint32_t events, ru_time now)
{
    rui_fed_server *s = self;
    (void)events;
    (void)now;
    ru_loop_fd_off(s->loop, fd);
    rui_fed_end(s, "stopped");
}

/* -- the part -------------------------------------------------------------------------------------
 */

static void part_step(void *self, const ru_event *ev, ru_effects *fx)
{
    rui_fed_server *s = self;
    if (ev->kind == RU_EV_LOCAL && ev->what == RUI_FED_LOCAL) {
        ru_pull_local(s->pull, ev->now, fx);
    }
}

static bool part_owns(void *self, uint64_t cookie)
{
    const rui_fed_server *s = self;
    return ru_pull_owns(s->pull, cookie);
}

static void part_sent(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_pull_sent(((rui_fed_server *)self)->pull, cookie, now, fx);
}

static void part_arrived(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_pull_arrived(((rui_fed_server *)self)->pull, cookie, now, fx);
}

static void part_failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    ru_pull_failed(((rui_fed_server *)self)->pull, cookie, why, now, fx);
}

static void part_room(void *self, ru_time now, ru_effects *fx)
{
    ru_pull_room(((rui_fed_server *)self)->pull, now, fx);
}

const ru_part_ops rui_fed_part = {.name = "federation",
                                  .step = part_step,
                                  .owns = part_owns,
                                  .sent = part_sent,
                                  .arrived = part_arrived,
                                  .failed = part_failed,
                                  .room = part_room,
                                  .guest = part_guest};
