/* The leader's part: when everybody is ready, when a step counts, what the next view is. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/wire.h"
#include "plan/crew/share.h"
#include "train/elastic/elastic_impl.h"

enum { SPEED_SAMPLES_MIN = 8, SHARES_EVERY = 16 };

rui_el_known *rui_el_lead_known(ru_elastic *e, ru_node_id node, bool make)
{
    for (uint32_t i = 0; i < e->lead.known.n; i++) {
        if (ru_node_is(e->lead.known.at[i].node, node)) {
            return &e->lead.known.at[i];
        }
    }
    rui_el_known *k = make ? rui_el_knowns_push(&e->lead.known, e->arena) : NULL;
    if (k != NULL) {
        k->node = node;
    }
    return k;
}

/* -- the end -------------------------------------------------------------------------------------
 */

static ru_wire_out end_message(const ru_elastic *e, uint8_t buf[RUI_EL_END_BYTES])
{
    ru_wire_out w = rui_el_word(e, buf, RUI_EL_END_BYTES);
    ru_wire_put_u32(&w, (uint32_t)e->end_status);
    ru_wire_put_text(&w, e->end_text, (uint32_t)strlen(e->end_text));
    return w;
}

static void say_end(ru_elastic *e, ru_status st, const char *text, ru_time now, ru_effects *fx)
{
    uint8_t buf[RUI_EL_END_BYTES];
    e->ending = e->said_end = true;
    e->end_status = st;
    snprintf(e->end_text, sizeof e->end_text, "%s", text);
    ru_wire_out w = end_message(e, buf);
    rui_el_tell_others(e, RUI_EL_END_MSG, &w, fx);
    ru_fx_timer(fx, RUI_EL_LINGER_TIMER, ru_time_after(now, RUI_EL_LINGER_NS));
}

bool rui_el_lead_ends(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (!e->ending) {
        bool over = rui_el_over(e, e->committed);
        if (!e->stop_all && !over) {
            return false;
        }
        say_end(e, RU_OK, over ? "done" : "stopped", now, fx);
    }
    if (e->phase == RUI_EL_IDLE && e->lead.n_bye + 1 >= e->v.n) {
        rui_el_end(e, e->end_status, e->end_text, now, fx);
    }
    return true;
}

void rui_el_lead_stop(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (e->stop_all && rui_el_leads(e) && e->phase == RUI_EL_IDLE) {
        (void)rui_el_lead_ends(e, now, fx);
    }
}

/* Does a member's status say that it was asked to end the job? */
static void hear_stop(ru_elastic *e, const void *status, int64_t size_bytes)
{
    ru_wire_in in = ru_wire_in_from(status, size_bytes);
    (void)ru_wire_u64(&in);
    bool stop = ru_wire_u8(&in) != 0;
    e->stop_all = e->stop_all || (stop && !in.bad);
}

void rui_el_lead_fail(ru_elastic *e, ru_node_id from, ru_status st, const char *text, ru_time now,
                      ru_effects *fx)
{
    bool everybody = st == RU_E_USER || st == RU_E_DATA || st == RU_E_CONFIG ||
                     st == RU_E_UNSUPPORTED || st == RU_E_MISSING;
    if (everybody && !e->ending) {
        say_end(e, st, text, now, fx);
    }
    if (ru_node_is(from, e->opt.self)) {
        if (!everybody) {
            ru_member_leave(e->opt.member, now, fx);
        }
        rui_el_end(e, st, text, now, fx);
    } else if (!everybody) {
        ru_fx_log(fx, st == RU_E_CANCELLED ? RU_LOG_INFO : RU_LOG_WARN,
                  "%s (%s); the others continue", text, ru_status_name(st));
    }
}

/* -- the next view -------------------------------------------------------------------------------
 */

/* Pieces of state that a member of the next view has. */
static uint32_t held_of(ru_elastic *e, ru_node_id node)
{
    if (e->v.n == 0) {
        return e->mover.n_pieces; /* founders start from the same state */
    }
    const rui_el_member *m = rui_el_member_of(e, node);
    return m == NULL ? 0 : m->held;
}

/* What each member of `v` computes so far and how fast it is (0: not known, below 0: it lacks the
 * state or serves). true: all that compute are measured. */
static bool speeds_of(ru_elastic *e, const rui_el_view *v, double *speed, int64_t *now)
{
    bool measured = true;
    for (uint32_t i = 0; i < v->n; i++) {
        const rui_el_known *k = rui_el_lead_known(e, v->at[i].node, false);
        const rui_el_member *m = rui_el_member_of(e, v->at[i].node);
        bool enough = k != NULL && k->samples >= SPEED_SAMPLES_MIN && !e->opt.equal_shares &&
                      !e->opt.deterministic;
        now[i] = m == NULL ? 0 : m->share.n;
        bool none = !v->at[i].full || v->at[i].serves;
        speed[i] = none ? -1 : enough ? k->speed : 0;
        measured = measured && (none || now[i] == 0 || enough);
    }
    return measured;
}

static ru_status share_out(ru_elastic *e, rui_el_view *v, ru_arena *arena, ru_err *err)
{
    double *speed = RU_NEW(arena, double, v->n);
    int64_t *before = RU_NEW(arena, int64_t, v->n);
    if (speed == NULL || before == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to share the batch");
    }
    (void)speeds_of(e, v, speed, before);
    int64_t sum = 0;
    bool all_work = true; /* somebody new must get a part at once */
    bool known = false;
    for (uint32_t i = 0; i < v->n; i++) {
        known = known || speed[i] > 0;
        sum += before[i];
        all_work = all_work && (before[i] > 0 || speed[i] < 0);
    }
    all_work = all_work && sum == v->batch;
    v->share_in = (ru_share_in){.batch = v->batch,
                                .speed = speed,
                                .n = v->n,
                                .now = before,
                                .n_now = all_work ? v->n : 0,
                                .gain_min = 0.1,
                                .method = known ? RU_SHARE_SPEED : RU_SHARE_EQUAL};
    ru_share_plan plan;
    RU_TRY(ru_plan_share(&v->share_in, arena, &plan, err));
    RU_TRY(ru_plan_share_check(&v->share_in, &plan, err));
    int64_t first = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        v->at[i].share = (ru_share){.first = first, .n = plan.share[i], .batch = v->batch};
        first += plan.share[i];
    }
    e->lead.share_s = plan.predicted_s;
    return RU_OK;
}

/* Bytes of state for one joiner in one step, as the policy `join` has it. */
static ru_status budget(const ru_elastic *e, rui_el_view *v, ru_err *err)
{
    ru_chan_stats s;
    ru_chan_stats_get(e->opt.chan, &s);
    int64_t state = 0;
    for (uint32_t k = 0; k < e->opt.n_state; k++) {
        state += e->opt.state_bytes[k];
    }
    v->join_in = (ru_join_in){.rate_bytes_per_s = s.rate_bytes_per_s,
                              .step_ns = (double)e->lead.step_ns,
                              .part = e->opt.join_part,
                              .piece_bytes = e->opt.piece_bytes,
                              .state_bytes = state};
    ru_join_plan plan;
    RU_TRY(ru_plan_join(&v->join_in, &plan, err));
    RU_TRY(ru_plan_join_check(&v->join_in, &plan, err));
    v->budget_bytes = plan.budget_bytes;
    return RU_OK;
}

/* Numbers for the hosts. Members of one host read each other's memory where the view has several
 * hosts and one of several members; not so for who is `deterministic`: sums in rank order. */
static void see_hosts(const ru_elastic *e, const ru_member_wanted *w, rui_el_view *v)
{
    bool may = !e->reduce.apart && !v->local && !e->opt.deterministic && e->opt.servers == 0 &&
               w->n <= RUI_EL_PROBED_MAX && e->opt.device.ops->local_memory != NULL;
    uint32_t most, hosts = 0;
    for (uint32_t i = 0; may && i < w->n; i++) {
        uint32_t k = 0;
        while (strcmp(w->at[k].host, w->at[i].host) != 0) {
            k++;
        }
        v->at[i].host = k < i ? v->at[k].host : (uint16_t)hosts++;
        may = w->at[i].host[0] != 0;
    }
    v->near = may && rui_el_hosts(v, &most) < w->n;
}

/* Members without whom nothing goes on. */
uint32_t rui_el_needed(const ru_elastic *e)
{
    bool begins = e->committed == e->opt.first_step && e->opt.n_begin > e->opt.n_min;
    return begins ? e->opt.n_begin : e->opt.n_min;
}

int64_t rui_el_batch_at(const ru_elastic *e, int64_t position)
{
    if (e->opt.batch_at == NULL) {
        return e->v.n > 0 ? e->v.batch : e->opt.batch;
    }
    int64_t batch = e->opt.batch_at(e->opt.news_self, position);
    RU_CHECK(batch >= 1 && batch <= UINT32_MAX);
    return batch;
}

double rui_el_progress(const ru_elastic *e, int64_t steps)
{
    if (e->v.n > 0) {
        return e->v.done + (double)(steps - e->v.start) * e->v.gain;
    }
    return e->opt.pace != NULL ? e->opt.first_done : (double)steps;
}

bool rui_el_over(const ru_elastic *e, int64_t steps)
{
    return rui_el_progress(e, steps) >= (double)e->opt.steps_end * (1 - 1e-12);
}

static ru_pace pace(const ru_elastic *e, int64_t position)
{
    ru_pace p = {.batch = rui_el_batch_at(e, position), .gain = e->v.n > 0 ? e->v.gain : 1};
    if (e->opt.pace != NULL) {
        e->opt.pace(e->opt.news_self, &p);
        RU_CHECK(p.batch >= 1 && p.batch <= UINT32_MAX && p.gain > 0);
    }
    return p;
}

/* Of the next view: this process if it stays, else the oldest that votes, as membership has it. */
static ru_node_id next_leader(const ru_elastic *e, const ru_member_wanted *w)
{
    ru_node_id lead = {0};
    for (uint32_t i = 0; i < w->n; i++) {
        bool first = lead.v == 0 && !w->at[i].no_vote;
        lead = first || ru_node_is(w->at[i].node, e->opt.self) ? w->at[i].node : lead;
    }
    return lead;
}

static ru_status compose(ru_elastic *e, const ru_member_wanted *w, ru_arena *arena, rui_el_view *v,
                         ru_err *err)
{
    const ru_pace p = pace(e, e->position);
    *v = (rui_el_view){.start = e->committed,
                       .position = e->position,
                       .batch = p.batch,
                       .done = rui_el_progress(e, e->committed),
                       .gain = p.gain,
                       .plain = e->v.plain,
                       .n = w->n,
                       .at = RU_NEW(arena, rui_el_member, w->n)};
    if (v->at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a view of %u members", w->n);
    }
    uint32_t full = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        v->at[i] = (rui_el_member){.node = w->at[i].node, .held = held_of(e, w->at[i].node)};
        v->at[i].full = v->at[i].held == e->mover.n_pieces;
        full += v->at[i].full ? 1 : 0;
    }
    if (full == 0) {
        return RU_FAIL(err, RU_E_PEER,
                       "no remaining worker has the whole state; continue from the last checkpoint "
                       "with --resume");
    }
    v->paused = w->n < rui_el_needed(e);
    rui_el_servers_mark(e, v, next_leader(e, w));
    v->local = !e->reduce.apart && e->opt.servers == 0 && w->n > 1 && w->at[0].host[0] != 0 &&
               e->opt.device.ops->local_handle != NULL;
    for (uint32_t i = 1; i < w->n; i++) {
        v->local = v->local && strcmp(w->at[i].host, w->at[0].host) == 0;
    }
    see_hosts(e, w, v);
    RU_TRY(budget(e, v, err));
    RU_TRY(share_out(e, v, arena, err));
    return RU_OK;
}

void rui_el_tell_plan(const ru_elastic *e, const ru_policy *policy, const void *in, ru_time now)
{
    if (e->opt.planned != NULL) {
        e->opt.planned(e->opt.news_self, policy, in, now);
    }
}

/* "1:32 2:16 3:16", as many as there is room for. */
static void tell_shares(ru_elastic *e, const ru_member_wanted *w, const rui_el_view *v, ru_time now)
{
    char text[512];
    ru_text t = ru_text_into(text, sizeof text);
    for (uint32_t k = 0; k < w->n && t.cap - t.n > 32; k++) {
        ru_text_putf(&t, "%s%u:%lld", k > 0 ? " " : "", w->at[k].number,
                     (long long)v->at[k].share.n);
    }
    if (e->opt.news != NULL) {
        e->opt.news(e->opt.news_self,
                    &(ru_elastic_news){.what = RU_ELASTIC_SHARES,
                                       .step = e->committed,
                                       .b = (int64_t)(e->lead.share_s * 1e9),
                                       .sentence = text},
                    now);
    }
}

static void tell_changes(ru_elastic *e, const ru_member_wanted *w, const rui_el_view *v,
                         ru_time now)
{
    for (uint32_t i = 0; i < e->v.n; i++) {
        if (ru_member_among(w->at, w->n, e->v.at[i].node) == NULL) {
            bool lost = !ru_member_leaves(e->opt.member, e->v.at[i].node);
            rui_el_news(e, lost ? RU_ELASTIC_LOST : RU_ELASTIC_LEFT, e->v.at[i].number,
                        ru_member_silent_ns(e->opt.member, e->v.at[i].node, now), now);
        }
    }
    bool shares = false;
    for (uint32_t k = 0; k < w->n; k++) {
        const rui_el_member *m = rui_el_member_of(e, w->at[k].node);
        if (m == NULL) {
            rui_el_news(e, RU_ELASTIC_JOINED, w->at[k].number, w->at[k].tier, now);
        } else if (m->share.n == 0 && v->at[k].share.n > 0) {
            rui_el_news(e, RU_ELASTIC_WORKS, w->at[k].number, v->at[k].share.n, now);
        }
        shares = shares || (m != NULL && m->share.n != v->at[k].share.n);
    }
    if (shares) {
        tell_shares(e, w, v, now);
    }
}

static ru_status install(ru_elastic *e, rui_el_view *v, const ru_member_wanted *w, ru_arena *arena,
                         ru_time now, ru_effects *fx, ru_err *err)
{
    ru_node_id *nodes = RU_NEW(arena, ru_node_id, v->n);
    void *blob = ru_arena_alloc(arena, RU_MEMBER_BLOB_MAX, 8);
    if (nodes == NULL || blob == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a view of %u members", v->n);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        nodes[i] = v->at[i].node;
    }
    if (!e->born) {
        e->born = true;
        e->born_ns = now.ns;
        e->first_step = e->opt.first_step;
    }
    v->age_ns = now.ns - e->born_ns;
    v->first = e->first_step;
    int64_t size = rui_el_blob_write(v, blob, RU_MEMBER_BLOB_MAX);
    if (size == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "too many workers for one view");
    }
    bool urgent = e->lead.urgent;
    e->lead.change = e->lead.urgent = false;
    e->progress_ns = now.ns;
    tell_changes(e, w, v, now);
    rui_el_tell_plan(e, &ru_policy_share, &v->share_in, now);
    rui_el_tell_plan(e, &ru_policy_join, &v->join_in, now);
    if (!ru_member_install(e->opt.member, nodes, v->n, blob, size, now, fx)) {
        e->lead.change = true; /* the next look proposes it */
        e->lead.urgent = urgent;
    }
    return RU_OK;
}

/* Those a job begins with come into it together: their numbers are those they were started with. */
static bool waits_for_more(ru_elastic *e, const ru_member_wanted *w)
{
    if (e->v.n == 0) {
        return w->n < e->opt.founders;
    }
    ru_member_facts f;
    ru_member_facts_get(e->opt.member, &f);
    return e->v.paused && !f.elect && e->committed == e->opt.first_step &&
           w->n < rui_el_needed(e) && w->n_dead + w->n_leaving == 0;
}

bool rui_el_lead_change(ru_elastic *e, bool urgent, ru_time now, ru_effects *fx)
{
    e->lead.change = true;
    e->lead.urgent = e->lead.urgent || urgent;
    if (e->ending || rui_el_stale(e) || (rui_el_waits(e) && !urgent)) {
        return false; /* joins and leaves wait for the end of the step */
    }
    ru_member_wanted w;
    ru_member_wanted_get(e->opt.member, &w);
    if (w.n == 0 || waits_for_more(e, &w)) {
        return false;
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    rui_el_view v;
    ru_err err;
    ru_status st = compose(e, &w, &scratch, &v, &err);
    st = st == RU_OK ? install(e, &v, &w, &scratch, now, fx, &err) : st;
    if (st == RU_E_PEER) { /* nobody can go on */
        say_end(e, st, err.text, now, fx);
        rui_el_end(e, st, err.text, now, fx);
    } else if (st != RU_OK) {
        rui_el_lead_fail(e, e->opt.self, st, err.text, now, fx);
    }
    ru_arena_fini(&scratch);
    return st == RU_OK;
}

/* The same members again: with plain gradients, or with other shares. */
static bool shares_due(ru_elastic *e)
{
    if (e->opt.equal_shares || e->opt.deterministic || e->v.n < 2 ||
        e->committed % SHARES_EVERY != 0 || e->committed == e->v.start) {
        return false;
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    double *speed = RU_NEW(&scratch, double, e->v.n);
    int64_t *now = RU_NEW(&scratch, int64_t, e->v.n);
    bool usable = speed != NULL && now != NULL && speeds_of(e, &e->v, speed, now);
    ru_share_plan plan = {0};
    const ru_share_in in = {.batch = e->v.batch,
                            .n = e->v.n,
                            .speed = speed,
                            .now = now,
                            .n_now = e->v.n,
                            .gain_min = 0.1};
    bool due = usable && ru_plan_share(&in, &scratch, &plan, NULL) == RU_OK && plan.changed;
    ru_arena_fini(&scratch);
    return due;
}

/* -- readiness and commits -----------------------------------------------------------------------
 */

static bool layouts_differ(const ru_elastic *e)
{
    for (uint32_t i = 1; i < e->v.n; i++) {
        if (e->v.at[i].layout != e->v.at[0].layout) {
            return true;
        }
    }
    return false;
}

/* Steps that may be under way, and why there are not two. */
static void put_depth(const ru_elastic *e, ru_wire_out *w, ru_effects *fx)
{
    const char *why = e->v.n == 1          ? "one worker waits for no sums"
                      : e->v.local         ? "the workers add gradients in shared memory"
                      : e->lead.depth != 2 ? e->lead.why
                                           : e->reduce.barrier;
    bool two = e->v.n > 1 && !e->v.local && e->lead.depth == 2 && e->reduce.barrier == NULL;
    if (two && !e->x->room_for_two(e)) {
        two = false;
        why = "the channels have no room for the sums of two steps";
    }
    if (two && !rui_el_servers_fit_two(e)) {
        two = false;
        why = "the sums of two steps need more than half of a server's free memory";
    }
    if (e->opt.device.ops->depth != NULL && e->v.n > 1) {
        ru_fx_log(fx, RU_LOG_INFO,
                  two ? "a step begins while the sums of the one before arrive"
                      : "each step waits for all sums of the one before: %s",
                  why);
    }
    ru_wire_put_u8(w, two ? 2 : 1);
    ru_wire_put_text(w, why, two ? 0 : (uint32_t)strlen(why));
}

static void say_go(ru_elastic *e, ru_time now, ru_effects *fx)
{
    ru_arena *arena = &e->view_arena[e->view_side];
    uint8_t *buf = ru_arena_alloc(arena, RUI_EL_GO_MAX, 8);
    uint8_t *rest = ru_arena_alloc(arena, RUI_EL_GO_MAX, 8);
    if (buf == NULL || rest == NULL) {
        rui_el_lead_fail(e, e->opt.self, RU_E_MEM, "no memory to begin a view", now, fx);
        return;
    }
    ru_wire_out w = rui_el_word(e, buf, RUI_EL_GO_MAX);
    ru_wire_out more = ru_wire_out_into(rest, RUI_EL_GO_MAX - RUI_EL_GO_HEAD);
    ru_err err;
    if (e->x->go_write(e, &more, now, &err) != RU_OK) {
        rui_el_lead_fail(e, e->opt.self, RU_E_CONFIG, err.text, now, fx);
        return;
    }
    put_depth(e, &w, fx);
    rui_el_servers_tell(e, fx);
    ru_wire_put_bytes(&w, rest, ru_wire_size(&more));
    rui_el_tell_all(e, RUI_EL_GO_MSG, &w, now, fx);
}

static void tell_only(ru_elastic *e, uint32_t what, ru_time now, ru_effects *fx)
{
    uint8_t buf[4];
    const ru_wire_out w = rui_el_word(e, buf, sizeof buf);
    rui_el_tell_all(e, what, &w, now, fx);
}

/* The view that held everybody back is not needed any more. */
void rui_el_say_release(ru_elastic *e, ru_time now, ru_effects *fx)
{
    tell_only(e, RUI_EL_GO_MSG, now, fx);
}

static void all_ready(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (e->stop_all || rui_el_over(e, e->committed)) { /* the leader before could not say it */
        e->phase = RUI_EL_IDLE;
        (void)rui_el_lead_ends(e, now, fx);
        return;
    }
    if (!e->x->measure_due(e, now)) {
        say_go(e, now, fx);
        return;
    }
    e->lead.n_probed = 0;
    tell_only(e, RUI_EL_PROBE_MSG, now, fx);
}

void rui_el_lead_probed(ru_elastic *e, ru_time now, ru_effects *fx)
{
    e->progress_ns = now.ns;
    if (e->phase != RUI_EL_PROBE || ++e->lead.n_probed < e->v.n) {
        return;
    }
    ru_err err;
    if (e->x->measured(e, &err) != RU_OK) {
        ru_fx_log(fx, RU_LOG_WARN, "the measurements of the network cannot be used: %s", err.text);
    }
    say_go(e, now, fx);
}

void rui_el_lead_apart(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (!e->reduce.apart) {
        ru_fx_log(fx, RU_LOG_WARN,
                  "workers of this host cannot share memory; gradients are summed over sockets");
        e->reduce.apart = true;
        rui_el_lead_change(e, true, now, fx);
    }
}

void rui_el_lead_redo(ru_elastic *e, ru_node_id from, ru_time now, ru_effects *fx)
{
    const rui_el_member *m = rui_el_member_of(e, from);
    ru_fx_log(fx, RU_LOG_WARN,
              "worker %u lost data of step %lld with a broken connection; the step is repeated",
              m == NULL ? 0 : m->number, (long long)e->step + 1);
    rui_el_lead_change(e, true, now, fx);
}

void rui_el_lead_ready(ru_elastic *e, ru_node_id from, const rui_el_ready *said, ru_time now,
                       ru_effects *fx)
{
    rui_el_member *m = rui_el_member_of(e, from);
    if (m == NULL || m->ready) {
        return;
    }
    if (e->said_end) { /* in the view before, which it had left */
        uint8_t buf[RUI_EL_END_BYTES];
        ru_wire_out w = end_message(e, buf);
        ru_fx_send(fx, from, RUI_EL_END_MSG, buf, ru_wire_size(&w));
        return;
    }
    m->ready = true;
    m->layout = said->layout;
    snprintf(m->handle, sizeof m->handle, "%s", said->handle);
    m->free_bytes = said->free_bytes;
    if (said->depth < e->lead.depth) {
        e->lead.depth = said->depth;
        snprintf(e->lead.why, sizeof e->lead.why, "%s", said->why);
    }
    e->progress_ns = now.ns;
    if (++e->lead.n_ready < e->v.n || rui_el_stale(e)) {
        return;
    }
    if (layouts_differ(e) && !e->v.plain) {
        ru_fx_log(fx, RU_LOG_INFO,
                  "kernels of the workers use different layouts of gradients; they are summed in "
                  "row-major order");
        e->v.plain = true;
        rui_el_lead_change(e, true, now, fx);
        return;
    }
    for (uint32_t i = 0; (e->v.local || e->v.near) && i < e->v.n; i++) {
        if (e->v.at[i].handle[0] == 0) {
            rui_el_lead_apart(e, now, fx);
            return;
        }
    }
    all_ready(e, now, fx);
}

/* The parts of all members must be exactly the positions of the step. */
static void count_samples(ru_elastic *e)
{
    ru_share_cover c = {0};
    for (uint32_t i = 0; i < e->v.n; i++) {
        ru_share_cover_part(&c, e->v.at[i].part_first, e->v.at[i].part_n, e->v.batch);
    }
    ru_share_cover_end(&c, e->v.batch);
    e->lead.samples_lost += c.lost;
    e->lead.samples_repeated += c.repeated;
}

static void measure(ru_elastic *e, const rui_el_member *m, int64_t compute_ns)
{
    rui_el_known *k = rui_el_lead_known(e, m->node, true);
    if (k == NULL || compute_ns <= 0 || m->share.n == 0) {
        return;
    }
    double speed = (double)m->share.n * 1e9 / (double)compute_ns;
    k->speed = k->samples == 0 ? speed : k->speed + (speed - k->speed) / 8;
    k->samples++;
    k->compute_ns = compute_ns;
}

/* Has a joiner everything after this commit? */
static bool joiner_filled(const ru_elastic *e)
{
    for (uint32_t i = 0; i < e->v.n; i++) {
        const rui_el_member *m = &e->v.at[i];
        if (!m->full && m->held + rui_el_pieces_now(e, m->held) == e->mover.n_pieces) {
            return true;
        }
    }
    return false;
}

/* A view or the end is due: no step begins behind the one that is committed now (1), or behind the
 * next one, where somebody may have begun that (2). 0: they go on. */
static uint32_t held_after(ru_elastic *e)
{
    bool ahead = e->steps.n == 2 || rui_el_barrier(e) == NULL;
    bool told = e->step + 1 == e->steps.held_from;
    const ru_pace p = pace(e, e->position + e->v.batch);
    bool other = p.batch != e->v.batch || p.gain < e->v.gain || p.gain > e->v.gain;
    bool due = told || e->stop_all || rui_el_over(e, e->committed + 1) || e->lead.change || other ||
               joiner_filled(e) || shares_due(e);
    return !due ? 0 : ahead ? 2 : 1;
}

static void commit_all(ru_elastic *e, ru_time now, ru_effects *fx)
{
    count_samples(e);
    e->lead.timed += e->lead.longest_now_ns > 0 ? 1 : 0;
    e->lead.longest_ns += e->lead.longest_now_ns;
    e->lead.longest_now_ns = 0;
    e->lead.change = e->lead.change || e->x->measure_ripe(e, now);
    uint32_t held = held_after(e);
    uint8_t buf[16 + 4 * RUI_EL_TOLD_MAX];
    ru_wire_out w = rui_el_word(e, buf, sizeof buf);
    ru_wire_put_u64(&w, (uint64_t)e->step);
    ru_wire_put_u8(&w, (uint8_t)held);
    rui_el_sums_least(e, &w);
    rui_el_tell_all(e, RUI_EL_COMMIT_MSG, &w, now, fx);
    if ((held == 1 || e->ending) && !rui_el_lead_ends(e, now, fx) &&
        !rui_el_lead_change(e, false, now, fx)) {
        rui_el_say_release(e, now, fx);
    }
}

/* A view that begins with this very step was proposed: somebody died after its DONE, say. It may be
 * accepted by now, so the step is its own; those who have it done begin it again. */
bool rui_el_view_under_way(const ru_elastic *e)
{
    ru_member_facts f;
    ru_member_facts_get(e->opt.member, &f);
    return f.pending;
}

void rui_el_lead_done(ru_elastic *e, ru_node_id from, const rui_el_member *part, int64_t compute_ns,
                      ru_wire_in *sums, ru_time now, ru_effects *fx)
{
    rui_el_member *m = rui_el_member_of(e, from);
    if (m == NULL || e->phase != RUI_EL_STEP || m->done > e->step || rui_el_stale(e)) {
        return;
    }
    m->done = e->step + 1;
    m->part_first = part->part_first;
    m->part_n = part->part_n;
    m->aside_bytes = part->aside_bytes;
    e->progress_ns = now.ns;
    measure(e, m, compute_ns);
    rui_el_sums_told(e, sums);
    e->lead.longest_now_ns =
        compute_ns > e->lead.longest_now_ns ? compute_ns : e->lead.longest_now_ns;
    if (++e->lead.n_done == e->v.n && !rui_el_view_under_way(e)) {
        commit_all(e, now, fx);
    }
}

/* -- leading -------------------------------------------------------------------------------------
 */

/* The furthest commit any survivor saw; also whether one was asked to end the job. */
static int64_t furthest(ru_elastic *e)
{
    int64_t most = e->committed;
    ru_member_wanted w;
    ru_member_wanted_get(e->opt.member, &w);
    for (uint32_t i = 0; i < w.n; i++) {
        int64_t size = 0;
        const void *blob = ru_member_status_get(e->opt.member, w.at[i].node, &size);
        if (blob == NULL || rui_el_member_of(e, w.at[i].node) == NULL) {
            continue;
        }
        ru_wire_in in = ru_wire_in_from(blob, size);
        int64_t committed = (int64_t)ru_wire_u64(&in);
        most = committed > most ? committed : most;
        hear_stop(e, blob, size);
    }
    return most;
}

static void lead_on(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (e->v.n > 0) {
        rui_el_news(e, RU_ELASTIC_LED, e->v.at[e->v.me].number, 0, now);
        int64_t start = furthest(e);
        if (start == e->step + 1 && e->phase == RUI_EL_STEP && rui_el_older(e)->done_sent) {
            e->x->view_left(e, now);
            rui_el_commit(e, now, fx);
        }
        if (start != e->committed) {
            char why[RU_ERR_TEXT_MAX];
            snprintf(why, sizeof why,
                     "the new leader missed step %lld, which others completed; continue from the "
                     "last checkpoint with --resume",
                     (long long)start);
            say_end(e, RU_E_PEER, why, now, fx);
            rui_el_end(e, RU_E_PEER, why, now, fx);
            return;
        }
    }
    rui_el_lead_change(e, true, now, fx);
}

void rui_el_lead_member(ru_elastic *e, const ru_event *ev, ru_effects *fx)
{
    if (e->ending && !e->said_end) {
        return; /* the leader said that the job is over; it ends here after the update */
    }
    if (ev->what == RU_MEMBER_LEAD) {
        lead_on(e, ev->now, fx);
    } else if (ev->what == RU_MEMBER_CHANGE && rui_el_leads(e)) {
        rui_el_lead_change(e, ev->value == 1, ev->now, fx);
    } else if (ev->what == RU_MEMBER_STATUS) {
        hear_stop(e, ev->data, ev->size_bytes);
        rui_el_lead_stop(e, ev->now, fx);
    }
}
