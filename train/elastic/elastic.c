#include "train/elastic/elastic.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "train/elastic/elastic_impl.h"

enum { PIECE_BYTES = 1 << 20 };

/* -- opening -------------------------------------------------------------------------------------
 */

static ru_status check_options(const ru_elastic_options *o, ru_err *err)
{
    if (o->probe_bytes != 0 && (o->probe_bytes < 1024 || o->probe_bytes % 1024 != 0)) {
        return RU_FAIL(err, RU_E_ARG,
                       "elastic training: probe_bytes is %lld, expected a multiple of 1024",
                       (long long)o->probe_bytes);
    }
    if (o->piece_bytes < 0 || o->piece_bytes % 64 != 0) {
        return RU_FAIL(err, RU_E_ARG,
                       "elastic training: piece_bytes is %lld, expected a multiple of 64",
                       (long long)o->piece_bytes);
    }
    uint32_t most = ru_node_opened(o->node)->member.n_max;
    if (o->servers > 0 && most > RU_ELASTIC_SERVED_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "elastic training: %u members may join, but with servers at most %d can",
                       most, RU_ELASTIC_SERVED_MAX);
    }
    if (o->batch < 1 || o->batch > UINT32_MAX || o->n_tensors < 1 ||
        o->n_tensors > RU_ELASTIC_TENSORS_MAX || o->first_step < 0 || o->first_position < 0 ||
        o->steps_end < o->first_step || o->steps_end > INT64_MAX / UINT32_MAX) {
        return RU_FAIL(err, RU_E_ARG, "elastic training: batch, tensors or steps out of range");
    }
    for (uint32_t k = 0; k < o->n_tensors; k++) {
        if (o->tensor_bytes[k] < 4 || o->tensor_bytes[k] % 4 != 0) {
            return RU_FAIL(err, RU_E_ARG, "gradient %u has %lld bytes, expected a multiple of 4", k,
                           (long long)o->tensor_bytes[k]);
        }
    }
    return RU_OK;
}

/* Members of a small view all exchange with each other; a job that grows beyond keeps those
 * connections and adds partners by halves and doubles (two for each power of two) and those next in
 * line to lead. Who may have fewer would be refused, and dial again, for ever. */
static ru_status check_peers(const ru_node_options *o, ru_err *err)
{
    enum { IN_LINE = 8 };
    uint32_t others = o->member.n_max - 1, least = RUI_EL_PROBED_MAX + IN_LINE;
    for (uint32_t n = others; n > 0; n /= 2) {
        least += 2;
    }
    least = others < least ? others : least;
    if (o->chan.peers_max < least) {
        return RU_FAIL(
            err, RU_E_ARG,
            "each process of a job of up to %u members needs %u connections, but its limit is %u",
            o->member.n_max, least, o->chan.peers_max);
    }
    return RU_OK;
}

static const ru_part_ops part_ops;

ru_status ru_elastic_open(const ru_elastic_options *opt, ru_arena *arena, ru_elastic **out,
                          ru_err *err)
{
    const ru_node_options *no = ru_node_opened(opt->node);
    RU_TRY(check_peers(no, err));
    RU_TRY(check_options(opt, err));
    ru_elastic *e = RU_NEW(arena, ru_elastic, 1);
    if (e == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for elastic training");
    }
    e->opt = *opt;
    e->opt.member = ru_node_member(opt->node);
    e->opt.chan = ru_node_chan(opt->node);
    e->opt.self = no->chan.self;
    e->opt.recorder = no->chan.recorder;
    e->arena = arena;
    e->opt.founders = opt->founders > 0 ? opt->founders : 1;
    e->opt.n_min = opt->n_min > 0 ? opt->n_min : 1;
    e->opt.join_part = opt->join_part > 0 ? opt->join_part : 0.1;
    e->opt.piece_bytes = opt->piece_bytes > 0 ? opt->piece_bytes : PIECE_BYTES;
    e->opt.slow_ns = opt->slow_ns > 0 ? opt->slow_ns : INT64_C(5000000000);
    e->step = e->committed = opt->first_step;
    e->steps.held_from = RUI_EL_NEVER;
    e->position = opt->first_position > 0 ? opt->first_position : opt->first_step * opt->batch;
    e->x = rui_el_reduce_ops();
    RU_TRY(e->x->open(e, err));
    RU_TRY(rui_el_state_open(e, err));
    ru_arena_init(&e->view_arena[0], 0);
    ru_arena_init(&e->view_arena[1], 0);
    ru_node_part(opt->node, &(ru_part){.ops = &part_ops,
                                       .self = e,
                                       .what_first = RU_ELASTIC_WHAT_FIRST,
                                       .what_end = RU_NODE_WHAT_OWNER});
    *out = e;
    return RU_OK;
}

void ru_elastic_close(ru_elastic *e)
{
    if (e == NULL) {
        return;
    }
    e->x->close(e);
    rui_el_state_close(e);
    ru_arena_fini(&e->view_arena[0]);
    ru_arena_fini(&e->view_arena[1]);
}

/* -- small ---------------------------------------------------------------------------------------
 */

rui_el_member *rui_el_member_of(const ru_elastic *e, ru_node_id node)
{
    uint32_t i = 0;
    while (i < e->v.n && !ru_node_is(e->v.at[i].node, node)) {
        i++;
    }
    return i < e->v.n ? &e->v.at[i] : NULL;
}

bool rui_el_leads(const ru_elastic *e)
{
    return ru_member_leads(e->opt.member);
}

void rui_el_news(ru_elastic *e, ru_elastic_what what, int64_t a, int64_t b, ru_time now)
{
    if (e->opt.news != NULL) {
        e->opt.news(e->opt.news_self,
                    &(ru_elastic_news){.what = what, .step = e->committed, .a = a, .b = b}, now);
    }
}

void rui_el_end(ru_elastic *e, ru_status st, const char *sentence, ru_time now, ru_effects *fx)
{
    if (e->phase == RUI_EL_ENDED) {
        return;
    }
    e->x->view_left(e, now);
    rui_el_state_drop(e, now);
    e->phase = RUI_EL_ENDED;
    ru_fx_timer_off(fx, RUI_EL_WATCH_TIMER);
    if (e->opt.news != NULL) {
        ru_elastic_news n = {.what = RU_ELASTIC_ENDED,
                             .step = e->committed,
                             .a = e->said_end,
                             .status = st,
                             .sentence = sentence};
        e->opt.news(e->opt.news_self, &n, now);
    }
}

void rui_el_status_set(ru_elastic *e, ru_time now, ru_effects *fx)
{
    uint8_t buf[16];
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u64(&w, (uint64_t)e->committed);
    ru_wire_put_u8(&w, e->stop_all ? 1 : 0);
    ru_member_status_set(e->opt.member, buf, ru_wire_size(&w), e->stop_all, now, fx);
}

static const char *handle_of(ru_elastic *e)
{
    const ru_elastic_device_ops *ops = e->opt.device.ops;
    const char *h = (e->v.local || e->v.near) && ops->local_handle != NULL
                        ? ops->local_handle(e->opt.device.self)
                        : NULL;
    return h != NULL && strlen(h) < RU_ELASTIC_HANDLE_MAX ? h : "";
}

void rui_el_say_ready(ru_elastic *e, ru_time now, ru_effects *fx)
{
    const char *why = "", *handle = handle_of(e);
    uint32_t depth = rui_el_depth(e, &why);
    uint8_t buf[64 + RU_ELASTIC_HANDLE_MAX + RUI_EL_WHY_MAX];
    ru_wire_out w = rui_el_word(e, buf, sizeof buf);
    ru_wire_put_u64(&w, e->layout);
    ru_wire_put_text(&w, handle, (uint32_t)strlen(handle));
    ru_wire_put_u8(&w, (uint8_t)depth);
    ru_wire_put_text(&w, why, depth > 1 ? 0 : (uint32_t)strnlen(why, RUI_EL_WHY_MAX - 1));
    if (e->v.at[e->v.me].serves && e->opt.free_bytes != NULL) {
        int64_t free = e->opt.free_bytes();
        ru_wire_put_u64(&w, free > 0 ? (uint64_t)free : 0);
    }
    rui_el_say(e, RUI_EL_READY_MSG, &w, now, fx);
}

void rui_el_redo(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (e->phase != RUI_EL_ENDED && !rui_el_stale(e)) {
        rui_el_say_only(e, RUI_EL_REDO_MSG, now, fx);
    }
}

void rui_el_broken(ru_elastic *e, ru_time now)
{
    e->broken = true;
    e->broken_ns = now.ns;
}

void rui_el_lost(ru_elastic *e, ru_node_id peer, ru_status why, ru_time now)
{
    ru_member_suspect(e->opt.member, peer, false, now, e->fx);
    if (why == RU_E_PEER) { /* most likely it died, and the view without it comes at once */
        rui_el_broken(e, now);
    } else {
        rui_el_redo(e, now, e->fx);
    }
}

/* The device failed here: the leader decides whether that is everybody's end. */
void rui_el_device_failed(ru_elastic *e, ru_status st, const char *doing, int64_t step,
                          const char *why, ru_time now, ru_effects *fx)
{
    char text[RUI_EL_FAIL_TEXT_MAX];
    snprintf(text, sizeof text, "worker %u %s while %s step %lld%s%s",
             e->v.me < e->v.n ? e->v.at[e->v.me].number : 0,
             st == RU_E_CANCELLED ? "left" : "failed", doing, (long long)step + 1,
             why != NULL ? ": " : "", why != NULL ? why : "");
    bool leads = rui_el_leads(e);
    uint8_t buf[RUI_EL_FAIL_TEXT_MAX + 16];
    ru_wire_out w = rui_el_word(e, buf, sizeof buf);
    ru_wire_put_u32(&w, (uint32_t)st);
    ru_wire_put_text(&w, text, (uint32_t)strlen(text));
    rui_el_say(e, RUI_EL_FAIL_MSG, &w, now, fx);
    if (!leads) {
        ru_member_leave(e->opt.member, now, fx);
        rui_el_end(e, st, text, now, fx);
    }
}

/* -- phases --------------------------------------------------------------------------------------
 */

/* Put the newest view in force. Only between steps. */
static void take_view(ru_elastic *e, ru_time now, ru_effects *fx)
{
    ru_err err;
    e->view_new = false;
    e->view_side ^= 1;
    ru_arena *arena = &e->view_arena[e->view_side];
    ru_arena_rewind(arena, (ru_arena_mark){0});
    rui_el_view v;
    ru_status st = rui_el_blob_read(e, ru_member_view(e->opt.member), arena, &v, &err);
    if (st != RU_OK) {
        ru_member_leave(e->opt.member, now, fx);
        rui_el_end(e, st, err.text, now, fx);
        return;
    }
    if (v.me == v.n) {
        return; /* the member machine says RU_MEMBER_OUT */
    }
    if (e->v.n > 0 && (v.start != e->committed || v.position != e->position)) {
        ru_member_leave(e->opt.member, now, fx);
        rui_el_end(e, RU_E_BUG,
                   "the new view starts at a step that does not match this worker's state", now,
                   fx);
        return;
    }
    bool first = e->v.n == 0;
    bool gained = !first && !e->v.at[e->v.me].full && v.at[v.me].full;
    int64_t other_batch = first || v.batch == e->v.batch ? 0 : v.batch;
    rui_el_reads_view(e, &v);
    e->v = v;
    if (!e->born) { /* the others count the job's time as its founder does */
        e->born = true;
        e->born_ns = now.ns - v.age_ns;
        e->first_step = v.first;
    }
    if (first || gained) {
        rui_el_news(e, RU_ELASTIC_MEMBER, v.at[v.me].number, v.at[v.me].full, now);
    }
    rui_el_news(e, RU_ELASTIC_VIEW, v.n, other_batch, now);
    st = e->x->view_taken(e, arena, &err);
    if (st != RU_OK) {
        ru_member_leave(e->opt.member, now, fx);
        rui_el_end(e, st, err.text, now, fx);
        return;
    }
    ru_arena_fini(&e->view_arena[e->view_side ^ 1]); /* READY tells what memory is free */
    e->connect_asked = e->broken = false;
    e->steps.held_from = RUI_EL_NEVER;
    e->steps.depth = 1;
    e->steps.why[0] = 0;
    e->mover.has_state = v.at[v.me].full;
    e->step = e->committed = v.start;
    e->position = v.position;
    e->progress_ns = now.ns;
    e->lead.n_ready = e->lead.n_done = 0;
    e->lead.depth = 2;
    rui_el_status_set(e, now, fx);
    if (v.paused || e->ending) {
        e->phase = RUI_EL_IDLE;
        return;
    }
    ru_share want = v.at[v.me].share;
    if (e->has_built && e->built.n == want.n && e->built.batch == want.batch &&
        e->built_plain == v.plain) {
        e->built = want;
        e->phase = RUI_EL_CONNECT;
        return;
    }
    e->built = want;
    e->built_plain = v.plain;
    e->has_built = false;
    e->phase = RUI_EL_BUILD;
    e->opt.device.ops->build(e->opt.device.self, &e->built, v.plain);
}

static void go_ready(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (!e->x->connected(e, fx)) {
        return;
    }
    e->phase = RUI_EL_READY;
    rui_el_say_ready(e, now, fx);
}

void rui_el_abort(ru_elastic *e, ru_time now)
{
    e->x->view_left(e, now); /* nobody else writes gradients from here on */
    rui_el_state_drop(e, now);
    e->phase = RUI_EL_ABORT;
    e->steps.n = 0;
    e->opt.device.ops->abort(e->opt.device.self);
}

/* A newer view exists: leave the old one as soon as nothing of it runs. */
static void leave_view(ru_elastic *e, ru_time now, ru_effects *fx)
{
    const ru_view *view = ru_member_view(e->opt.member);
    switch (e->phase) {
    case RUI_EL_STEP: {
        rui_el_view next;
        ru_arena *arena = &e->view_arena[e->view_side ^ 1];
        ru_arena_rewind(arena, (ru_arena_mark){0});
        ru_err err;
        bool counts =
            rui_el_blob_read(e, view, arena, &next, &err) == RU_OK && next.start == e->step + 1;
        e->x->view_left(e, now);
        if (counts && rui_el_older(e)->done_sent) {
            rui_el_commit(e, now, fx); /* it was committed; the message was lost */
        }
        if (!e->steps.updating) { /* else when it has updated */
            e->redone += e->steps.n;
            rui_el_abort(e, now);
        }
        return;
    }
    case RUI_EL_BUILD:
    case RUI_EL_UPDATE:
    case RUI_EL_ABORT:
    case RUI_EL_ENDED:
        return;
    case RUI_EL_IDLE:
    case RUI_EL_CONNECT:
    case RUI_EL_READY:
    case RUI_EL_PROBE:
    case RUI_EL_LOCAL:
        e->x->view_left(e, now);
        rui_el_state_drop(e, now);
        e->phase = RUI_EL_IDLE;
        if (!e->x->reads(e)) {
            take_view(e, now, fx);
        } /* else when the link let go: the device may overwrite its gradients from here on */
        return;
    }
}

/* Is the view in force here older than the membership's? Its message may still be on the way. */
bool rui_el_stale(ru_elastic *e)
{
    e->view_new = ru_member_view(e->opt.member)->epoch != e->v.epoch;
    return e->view_new;
}

void rui_el_settle(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (rui_el_stale(e) && e->phase != RUI_EL_ENDED) {
        leave_view(e, now, fx);
    }
    if (!e->view_new && e->lead.early.n > 0) {
        rui_el_hear_early(e, now, fx);
    }
    if (!e->view_new && e->phase == RUI_EL_CONNECT) {
        go_ready(e, now, fx);
    }
    /* No step ends in a view that pauses the job: who came while it was not yet taken waits now. */
    bool waits = e->lead.change && e->v.paused && e->phase == RUI_EL_IDLE;
    if (!e->view_new && (e->lead.urgent || waits) && rui_el_leads(e)) {
        rui_el_lead_change(e, e->lead.urgent, now, fx);
    }
}

/* -- events --------------------------------------------------------------------------------------
 */

static void on_local(ru_elastic *e, const ru_event *ev, ru_effects *fx)
{
    if (ev->what == RU_MEMBER_VIEW) {
        rui_el_settle(e, ev->now, fx);
    } else if (ev->what == RU_MEMBER_OUT) {
        char why[RU_ERR_TEXT_MAX];
        snprintf(why, sizeof why, "%.*s", (int)ev->size_bytes,
                 ev->data == NULL ? "" : (const char *)ev->data);
        ru_status st = ev->value != 0 ? (ru_status)ev->value : RU_E_PEER;
        e->said_end = e->said_end && e->leaves; /* whom the others put out has a successor */
        rui_el_end(e, e->ending ? e->end_status : st, e->ending ? e->end_text : why, ev->now, fx);
    } else {
        rui_el_lead_member(e, ev, fx);
    }
}

static void on_timer(ru_elastic *e, const ru_event *ev, ru_effects *fx)
{
    if (ev->what == RUI_EL_LINGER_TIMER && e->ending) {
        rui_el_end(e, e->end_status, e->end_text, ev->now, fx);
    } else if (ev->what == RUI_EL_WATCH_TIMER) {
        e->connect_asked = false;
        rui_el_settle(e, ev->now, fx);
        if (e->broken && e->broken_ns + RUI_EL_WATCH_NS <= ev->now.ns) {
            e->broken_ns = ev->now.ns;
            rui_el_redo(e, ev->now, fx);
        }
        rui_el_lead_watch(e, ev->now, fx);
        rui_el_reads_tell(e, ev->now, fx);
        ru_fx_timer(fx, RUI_EL_WATCH_TIMER, ru_time_after(ev->now, RUI_EL_WATCH_NS));
    }
}

/* The member machine decides what it means. Where it means nothing, because the connection is made
 * again, messages between the leader and a member may be lost. */
static void on_down(ru_elastic *e, const ru_event *ev)
{
    bool leads = rui_el_leads(e);
    bool ours = leads ? rui_el_member_of(e, ev->node) != NULL : ru_node_is(ev->node, e->v.leader);
    if (ours && !e->ending) {
        rui_el_broken(e, ev->now);
    }
}

static void step(void *self, const ru_event *ev, ru_effects *fx)
{
    ru_elastic *e = self;
    if (e->phase == RUI_EL_ENDED) {
        return;
    }
    switch (ev->kind) {
    case RU_EV_START:
        e->progress_ns = ev->now.ns;
        ru_fx_timer(fx, RUI_EL_WATCH_TIMER, ru_time_after(ev->now, RUI_EL_WATCH_NS));
        break;
    case RU_EV_TIMER:
        on_timer(e, ev, fx);
        break;
    case RU_EV_MESSAGE:
        rui_el_hear(e, ev, fx);
        break;
    case RU_EV_UP:
        rui_el_settle(e, ev->now, fx);
        break;
    case RU_EV_DOWN:
        on_down(e, ev);
        break;
    case RU_EV_LOCAL:
        on_local(e, ev, fx);
        break;
    }
}

static bool owns(void *self, uint64_t cookie)
{
    const ru_elastic *e = self;
    /* Also of groups that are closed: their memory may be waited for. */
    return rui_el_state_owns(cookie) || e->x->owns(cookie);
}

static bool ended(const void *self)
{
    const ru_elastic *e = self;
    return e->phase == RUI_EL_ENDED;
}

static const ru_part_ops part_ops = {.name = "elastic",
                                     .step = step,
                                     .owns = owns,
                                     .sent = rui_el_sent,
                                     .arrived = rui_el_arrived,
                                     .failed = rui_el_failed,
                                     .room = rui_el_room,
                                     .ended = ended};

/* -- answers of the device -----------------------------------------------------------------------
 */

void ru_elastic_built(ru_elastic *e, ru_status st, uint64_t layout, ru_time now, ru_effects *fx)
{
    if (e->phase != RUI_EL_BUILD) {
        return;
    }
    if (st != RU_OK) {
        rui_el_device_failed(e, st, "preparing", e->step, NULL, now, fx);
        return;
    }
    e->has_built = true;
    e->layout = layout;
    e->phase = RUI_EL_CONNECT;
    rui_el_settle(e, now, fx);
}

void ru_elastic_aborted(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (e->phase != RUI_EL_ABORT) {
        return;
    }
    e->phase = RUI_EL_IDLE;
    if (e->ending && !e->said_end) {
        rui_el_end(e, e->end_status, e->end_text, now, fx);
    } else {
        rui_el_settle(e, now, fx);
    }
}

void ru_elastic_stop(ru_elastic *e, bool all, ru_time now, ru_effects *fx)
{
    if (e->phase == RUI_EL_ENDED) {
        return;
    }
    ru_member_facts f;
    ru_member_facts_get(e->opt.member, &f);
    if (!all || f.outside) { /* outside there is nobody to ask for the job's end: it goes alone */
        e->leaves = true;
        ru_member_leave(e->opt.member, now, fx);
        return;
    }
    e->stop_all = true;
    rui_el_status_set(e, now, fx); /* to whoever leads, now and later */
    rui_el_lead_stop(e, now, fx);
}
