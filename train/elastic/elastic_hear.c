/* What the other processes of a view say: the leader's messages, members' messages to the leader,
 * and messages of views that are over or not yet in force here. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "train/elastic/elastic_impl.h"

/* GO of the leader, with what the exchange needs to know for the view. */
static void on_go(ru_elastic *e, ru_wire_in *w, ru_time now, ru_effects *fx)
{
    if (rui_el_held(e)) { /* the view that was to follow the commit does not come */
        e->steps.held_from = RUI_EL_NEVER;
        if (e->phase == RUI_EL_IDLE && !rui_el_stale(e)) {
            rui_el_step_begin(e, now, fx);
        }
        return;
    }
    if ((e->phase != RUI_EL_READY && e->phase != RUI_EL_PROBE) || rui_el_stale(e)) {
        return;
    }
    uint32_t depth = ru_wire_u8(w), n = 0;
    const char *why = ru_wire_text(w, sizeof e->steps.why - 1, &n);
    e->steps.depth = depth;
    snprintf(e->steps.why, sizeof e->steps.why, "%.*s", w->bad ? 0 : (int)n, w->bad ? "" : why);
    ru_err err;
    ru_status st = w->bad || depth < 1 || depth > 2
                       ? RU_FAIL(&err, RU_E_DATA, "the leader's GO is damaged")
                       : e->x->go_read(e, w, now, &err);
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_ERROR, "%s", err.text);
        rui_el_device_failed(e, st, "opening the group for", e->step, err.text, now, fx);
    } else if (e->phase != RUI_EL_LOCAL) {
        e->phase = RUI_EL_READY;
        e->x->planned(e, now);
        rui_el_step_begin(e, now, fx);
    }
}

static void on_end(ru_elastic *e, ru_wire_in *w, ru_time now, ru_effects *fx)
{
    uint32_t st = ru_wire_u32(w), n = 0;
    const char *text = ru_wire_text(w, sizeof e->end_text - 1, &n);
    if (w->bad || st >= RU_STATUS_COUNT) {
        return;
    }
    e->ending = true;
    e->end_status = (ru_status)st;
    snprintf(e->end_text, sizeof e->end_text, "%.*s", (int)n, text);
    ru_fx_send(fx, e->v.leader, RUI_EL_BYE_MSG, NULL, 0);
    if (e->steps.updating || e->phase == RUI_EL_ABORT) {
        return; /* after that */
    }
    if (e->phase == RUI_EL_STEP && st == RU_OK) { /* what began ahead does not count */
        rui_el_abort(e, now);
    } else {
        rui_el_end(e, e->end_status, e->end_text, now, fx);
    }
}

/* A message of the leader, of this epoch. */
static void on_leader(ru_elastic *e, uint32_t what, ru_wire_in *w, ru_time now, ru_effects *fx)
{
    switch (what) {
    case RUI_EL_GO_MSG:
        on_go(e, w, now, fx);
        break;
    case RUI_EL_COMMIT_MSG:
        if ((int64_t)ru_wire_u64(w) == e->step && e->phase == RUI_EL_STEP &&
            rui_el_older(e)->done_sent) {
            uint32_t held = ru_wire_u8(w);
            if (!w->bad) {
                e->steps.held_from = held == 0 ? RUI_EL_NEVER : e->step + (held == 2 ? 2 : 1);
                rui_el_sums_learn(e, w);
                rui_el_commit(e, now, fx);
            }
        }
        break;
    case RUI_EL_PROBE_MSG:
        if (e->phase == RUI_EL_READY && !rui_el_stale(e)) {
            e->x->measure_begin(e, now, fx);
        }
        break;
    case RUI_EL_PROBE_TURN_MSG:
        e->x->measure_hear(e, w, now, fx);
        break;
    case RUI_EL_END_MSG:
        on_end(e, w, now, fx);
        break;
    case RUI_EL_READ_SHARE_MSG:
        rui_el_reads_share(e, w);
        break;
    default:
        break;
    }
}

/* A text of the message into `into`, with its NUL. */
static void take_text(ru_wire_in *w, uint32_t size, char *into)
{
    uint32_t n = 0;
    const char *text = ru_wire_text(w, size - 1, &n);
    snprintf(into, size, "%.*s", w->bad ? 0 : (int)n, w->bad ? "" : text);
}

/* A message of a member to its leader, of this epoch. */
static void on_member(ru_elastic *e, ru_node_id from, uint32_t what, ru_wire_in *w, ru_time now,
                      ru_effects *fx)
{
    switch (what) {
    case RUI_EL_READY_MSG: {
        char handle[RU_ELASTIC_HANDLE_MAX], why[RUI_EL_WHY_MAX];
        rui_el_ready said = {.layout = ru_wire_u64(w), .handle = handle, .why = why};
        take_text(w, sizeof handle, handle);
        said.depth = ru_wire_u8(w);
        take_text(w, sizeof why, why);
        said.free_bytes = ru_wire_left(w) >= 8 ? (int64_t)ru_wire_u64(w) : 0;
        if (!w->bad) {
            rui_el_lead_ready(e, from, &said, now, fx);
        }
        break;
    }
    case RUI_EL_PROBED_MSG:
        rui_el_lead_probed(e, now, fx);
        break;
    case RUI_EL_REDO_MSG:
        rui_el_lead_redo(e, from, now, fx);
        break;
    case RUI_EL_APART_MSG:
        rui_el_lead_apart(e, now, fx);
        break;
    case RUI_EL_DONE_MSG: {
        int64_t step = (int64_t)ru_wire_u64(w);
        rui_el_member part = {.part_first = (int64_t)ru_wire_u64(w)};
        part.part_n = (int64_t)ru_wire_u64(w);
        int64_t ns = (int64_t)ru_wire_u64(w);
        part.aside_bytes = e->v.servers > 0 ? (int64_t)ru_wire_u64(w) : 0;
        if (!w->bad && step == e->step) {
            rui_el_lead_done(e, from, &part, ns, w, now, fx);
        }
        break;
    }
    case RUI_EL_READS_MSG:
        rui_el_reads_hear(e, from, w);
        break;
    case RUI_EL_FAIL_MSG: {
        uint32_t st = ru_wire_u32(w), n = 0;
        const char *text = ru_wire_text(w, RUI_EL_FAIL_TEXT_MAX, &n);
        if (!w->bad && st < RU_STATUS_COUNT) {
            char line[256];
            snprintf(line, sizeof line, "%.*s", (int)n, text);
            rui_el_lead_fail(e, from, (ru_status)st, line, now, fx);
        }
        break;
    }
    default:
        break;
    }
}

/* Keep a READY of the view that is about to be in force here. */
static void keep_early(ru_elastic *e, const ru_event *ev)
{
    if (ev->what != RUI_EL_READY_MSG || ev->size_bytes > (int64_t)sizeof e->lead.early.at->data ||
        !rui_el_leads(e) || e->lead.early.n >= RU_MEMBERS_MAX) {
        return;
    }
    for (uint32_t i = 0; i < e->lead.early.n; i++) { /* one of each: nobody takes another's place */
        if (ru_node_is(e->lead.early.at[i].from, ev->node)) {
            return;
        }
    }
    rui_el_early *k = rui_el_earlies_push(&e->lead.early, e->arena);
    if (k != NULL) {
        k->from = ev->node;
        k->size_bytes = ev->size_bytes;
        memcpy(k->data, ev->data, (size_t)ev->size_bytes);
    }
}

/* A message of an epoch that ended may arrive late. If its sender is no member of this epoch, a
 * line says so, at most once a minute. */
static void refused(ru_elastic *e, const ru_event *ev, uint32_t epoch, ru_effects *fx)
{
    if (rui_el_member_of(e, ev->node) != NULL || e->v.n == 0 || epoch > e->v.epoch) {
        return;
    }
    e->lead.n_refused++;
    if (e->lead.n_refused == 1 || ev->now.ns - e->lead.refused_ns >= 60000000000) {
        e->lead.refused_ns = ev->now.ns;
        ru_fx_log(fx, RU_LOG_WARN,
                  "refused a message of epoch %u from process %016llx, which is not a member of "
                  "epoch %u (%u so far)",
                  epoch, (unsigned long long)ev->node.v, e->v.epoch, e->lead.n_refused);
    }
}

void rui_el_hear(ru_elastic *e, const ru_event *ev, ru_effects *fx)
{
    if (ev->what == RUI_EL_BYE_MSG) {
        e->lead.n_bye += rui_el_member_of(e, ev->node) != NULL ? 1 : 0;
        if (e->ending && rui_el_leads(e) && e->lead.n_bye + 1 >= e->v.n) {
            rui_el_end(e, e->end_status, e->end_text, ev->now, fx);
        }
        return;
    }
    if (ev->what == e->x->what) {
        e->x->hear(e, ev, fx);
        return;
    }
    ru_wire_in w = ru_wire_in_from(ev->data, ev->size_bytes);
    uint32_t epoch = ru_wire_u32(&w);
    if (epoch != e->v.epoch && epoch == ru_member_view(e->opt.member)->epoch) {
        keep_early(e, ev);
    }
    if (epoch != e->v.epoch || w.bad) {
        refused(e, ev, w.bad ? e->v.epoch : epoch, fx);
        return;
    }
    if (ru_node_is(ev->node, e->v.leader)) {
        if (!ru_member_obeys(e->opt.member)) {
            return; /* this process promised a successor to hear nothing of the old leader */
        }
        on_leader(e, ev->what, &w, ev->now, fx);
    } else if (rui_el_leads(e)) {
        on_member(e, ev->node, ev->what, &w, ev->now, fx);
    }
}

/* -- what this process says ----------------------------------------------------------------------
 */

ru_wire_out rui_el_word(const ru_elastic *e, uint8_t *buf, int64_t size_bytes)
{
    ru_wire_out w = ru_wire_out_into(buf, size_bytes);
    ru_wire_put_u32(&w, e->v.epoch);
    return w;
}

/* What stands behind the epoch. */
static ru_wire_in own(const ru_wire_out *w)
{
    RU_CHECK(!w->bad);
    return ru_wire_in_from(w->start + 4, ru_wire_size(w) - 4);
}

void rui_el_say(ru_elastic *e, uint32_t what, const ru_wire_out *w, ru_time now, ru_effects *fx)
{
    ru_wire_in in = own(w);
    if (rui_el_leads(e)) {
        on_member(e, e->opt.self, what, &in, now, fx);
    } else {
        ru_fx_send(fx, e->v.leader, what, w->start, ru_wire_size(w));
    }
}

void rui_el_say_only(ru_elastic *e, uint32_t what, ru_time now, ru_effects *fx)
{
    uint8_t buf[4];
    const ru_wire_out w = rui_el_word(e, buf, sizeof buf);
    rui_el_say(e, what, &w, now, fx);
}

void rui_el_tell_others(ru_elastic *e, uint32_t what, const ru_wire_out *w, ru_effects *fx)
{
    RU_CHECK(!w->bad);
    for (uint32_t i = 0; i < e->v.n; i++) {
        if (i != e->v.me) {
            ru_fx_send(fx, e->v.at[i].node, what, w->start, ru_wire_size(w));
        }
    }
}

void rui_el_tell_all(ru_elastic *e, uint32_t what, const ru_wire_out *w, ru_time now,
                     ru_effects *fx)
{
    ru_wire_in in = own(w);
    rui_el_tell_others(e, what, w, fx);
    on_leader(e, what, &in, now, fx);
}

void rui_el_hear_early(ru_elastic *e, ru_time now, ru_effects *fx)
{
    uint32_t n = e->lead.early.n;
    e->lead.early.n = 0;
    for (uint32_t i = 0; i < n; i++) {
        rui_el_early k = e->lead.early.at[i]; /* may move: what is still early is kept again */
        rui_el_hear(e,
                    &(ru_event){.kind = RU_EV_MESSAGE,
                                .now = now,
                                .node = k.from,
                                .what = RUI_EL_READY_MSG,
                                .data = k.data,
                                .size_bytes = k.size_bytes},
                    fx);
    }
}
