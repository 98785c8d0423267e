#include "train/pipe/pipe.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "comm/member/among.h"

enum {
    READY = RU_NODE_WHAT_FIRST,
    GO,
    DECIDE,
    STOP,
    FAIL,
    END,
    WHAT_END,
    TEXT_MAX = 1024,
    MESSAGE_MAX = TEXT_MAX + 64,
};

/* Cookies: this part's mark, sent or posted, link, number. */
#define MARK       (UINT64_C(0x9f) << 56)
#define MARK_MASK  (UINT64_C(0xff) << 56)
#define POSTED     (UINT64_C(1) << 55)
#define LINK_SHIFT 32
#define LINK_MASK  UINT64_C(0xffff)

struct ru_pipe {
    ru_pipe_options opt;
    ru_member *member;
    ru_chan *chan;
    const ru_pipe_link *links;
    uint32_t n_links;
    ru_node_id *nodes; /* [n] by stage; none before the view */
    uint32_t *numbers; /* [n] */
    bool *ready;       /* [n] leader */
    bool *broken;      /* [n] pieces or words to or from it were lost */
    uint32_t epoch;    /* 0: no view yet */
    uint32_t stage;
    uint32_t spares; /* as was told */
    bool leads, ended;
};

static void tell(ru_pipe *p, const ru_pipe_news *n, ru_time now)
{
    p->opt.news(p->opt.news_self, n, now);
}

static ru_node_id leader(const ru_pipe *p)
{
    return p->nodes[p->opt.n - 1];
}

static void to_others(const ru_pipe *p, uint32_t what, const void *data, int64_t size_bytes,
                      ru_effects *fx)
{
    for (uint32_t k = 0; k < p->opt.n && p->epoch > 0; k++) {
        if (k != p->stage) {
            ru_fx_send(fx, p->nodes[k], what, data, size_bytes);
        }
    }
}

/* Those who wait are wanted, but not in the view. */
static void to_spares(const ru_pipe *p, uint32_t what, const void *data, int64_t size_bytes,
                      ru_effects *fx)
{
    ru_member_wanted w;
    ru_member_wanted_get(p->member, &w);
    for (uint32_t k = w.n - w.n_joining; k < w.n; k++) {
        ru_fx_send(fx, w.at[k].node, what, data, size_bytes);
    }
}

uint32_t ru_pipe_number(const ru_pipe *p, uint32_t stage)
{
    return p->epoch > 0 && stage < p->opt.n ? p->numbers[stage] : 0;
}

bool ru_pipe_leads(const ru_pipe *p)
{
    return p->leads;
}

/* -- the end ----------------------------------------------------------------------------------- */

static void ended(ru_pipe *p, ru_status st, const char *text, ru_time now)
{
    if (!p->ended) {
        p->ended = true;
        if (p->epoch > 0) {
            ru_chan_cancel_all(p->chan, UINT64_MAX << 32, (uint64_t)p->epoch << 32, now);
        }
        tell(p, &(ru_pipe_news){.what = RU_PIPE_ENDED, .status = st, .text = text}, now);
    }
}

void ru_pipe_end(ru_pipe *p, ru_status st, const char *text, ru_time now, ru_effects *fx)
{
    uint8_t buf[MESSAGE_MAX];
    ru_wire_out w = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u32(&w, (uint32_t)st);
    ru_wire_put_text(&w, text, (uint32_t)strnlen(text, TEXT_MAX - 1));
    if (p->ended) {
        return;
    }
    if (p->leads) {
        to_others(p, END, buf, ru_wire_size(&w), fx);
        to_spares(p, END, buf, ru_wire_size(&w), fx);
        ended(p, st, text, now);
    } else if (p->epoch > 0 && st != RU_OK) {
        ru_fx_send(fx, leader(p), FAIL, buf, ru_wire_size(&w)); /* END comes back */
    } else {
        ended(p, st, text, now);
    }
}

/* The stage as people count. */
static uint32_t place_of(const ru_pipe *p, uint32_t stage)
{
    return p->opt.stage_of != NULL ? p->opt.stage_of[stage] : stage;
}

static void lost(ru_pipe *p, uint32_t stage, const char *how, ru_time now, ru_effects *fx)
{
    char text[TEXT_MAX];
    (void)snprintf(text, sizeof text,
                   "worker %u, which had %s %u of %u, %s; continue from the newest "
                   "checkpoint with --resume",
                   p->numbers[stage], p->opt.called != NULL ? p->opt.called : "stage",
                   place_of(p, stage) + 1, p->opt.stages > 0 ? p->opt.stages : p->opt.n, how);
    ru_pipe_end(p, RU_E_PEER, text, now, fx);
}

/* -- members ----------------------------------------------------------------------------------- */

static void count_spares(ru_pipe *p, const ru_member_wanted *w, ru_time now)
{
    if (p->leads && w->n_joining != p->spares) {
        p->spares = w->n_joining;
        tell(p, &(ru_pipe_news){.what = RU_PIPE_SPARES, .a = p->spares}, now);
    }
}

/* The first view has all who were started for it. Those who joined later are wanted from then on,
 * and the second one has as many of them as are missing. */
static void install(ru_pipe *p, ru_time now, ru_effects *fx)
{
    bool first = ru_member_view(p->member)->n == 0;
    uint32_t n = first ? p->opt.n - p->opt.spares : p->opt.n;
    uint8_t blob[8];
    ru_wire_out after = ru_wire_out_into(blob, sizeof blob);
    ru_member_wanted w;
    ru_node_id nodes[256];
    ru_member_wanted_get(p->member, &w);
    if (p->epoch > 0 && w.n_dead + w.n_leaving > 0) {
        for (uint32_t k = 0; k < p->opt.n; k++) {
            if (ru_member_among(w.at, w.n, p->nodes[k]) == NULL) {
                lost(p, k, "was lost", now, fx);
                return;
            }
        }
    }
    count_spares(p, &w, now);
    if (p->epoch > 0 || w.n < n || n > RU_ARRAY_LEN(nodes)) {
        return;
    }
    for (uint32_t k = 0; k < n; k++) {
        nodes[k] = w.at[k].node;
    }
    ru_wire_put_u64(&after, (uint64_t)p->opt.after);
    (void)ru_member_install(p->member, nodes, n, blob, ru_wire_size(&after), now, fx);
}

static void take_view(ru_pipe *p, ru_time now)
{
    const ru_view *v = ru_member_view(p->member);
    if (v->n != p->opt.n || p->epoch > 0) {
        if (p->epoch == 0 && ru_member_leads(p->member)) { /* it waits for those who joined */
            tell(p, &(ru_pipe_news){.what = RU_PIPE_SPARES, .a = p->spares}, now);
        }
        return;
    }
    uint32_t next = 0;
    for (uint32_t k = 0; k < v->n; k++) {
        uint32_t stage = ru_node_is(v->at[k].node, v->leader) ? v->n - 1 : next++;
        RU_CHECK(stage < v->n);
        p->nodes[stage] = v->at[k].node;
        p->numbers[stage] = v->at[k].number;
        p->stage = ru_node_is(v->at[k].node, p->opt.self) ? stage : p->stage;
    }
    ru_wire_in after = ru_wire_in_from(v->blob, v->blob_bytes);
    p->epoch = v->epoch;
    p->leads = ru_node_is(v->leader, p->opt.self);
    tell(p, &(ru_pipe_news){.what = RU_PIPE_VIEW, .a = p->stage, .b = (int64_t)ru_wire_u64(&after)},
         now);
}

static void is_ready(ru_pipe *p, uint32_t stage, ru_time now, ru_effects *fx)
{
    uint32_t n = 0;
    p->ready[stage] = true;
    for (uint32_t k = 0; k < p->opt.n; k++) {
        n += p->ready[k];
    }
    if (n == p->opt.n) {
        to_others(p, GO, "", 0, fx);
        tell(p, &(ru_pipe_news){.what = RU_PIPE_GO}, now);
    }
}

void ru_pipe_ready(ru_pipe *p, ru_time now, ru_effects *fx)
{
    if (p->leads) {
        is_ready(p, p->stage, now, fx);
    } else if (!p->ended) {
        ru_fx_send(fx, leader(p), READY, "", 0);
    }
}

void ru_pipe_stop(ru_pipe *p, ru_time now, ru_effects *fx)
{
    if (p->epoch == 0) {
        ru_member_leave(p->member, now, fx);
        ended(p, RU_E_PEER, "stopped before all workers were there", now);
    } else if (p->leads) {
        tell(p, &(ru_pipe_news){.what = RU_PIPE_STOP}, now);
    } else {
        ru_fx_send(fx, leader(p), STOP, "", 0);
    }
}

void ru_pipe_decide(ru_pipe *p, const void *data, int64_t size_bytes, ru_time now, ru_effects *fx)
{
    RU_CHECK(p->leads && size_bytes <= RU_PIPE_DECISION_MAX);
    if (!p->ended) {
        ru_member_wanted w;
        ru_member_wanted_get(p->member, &w);
        count_spares(p, &w, now); /* nobody tells when a spare is gone */
        to_others(p, DECIDE, data, size_bytes, fx);
    }
}

/* -- links ------------------------------------------------------------------------------------- */

static uint64_t stream_of(const ru_pipe *p, uint32_t link)
{
    return (uint64_t)p->epoch << 32 | link;
}

static uint64_t cookie_of(uint32_t link, uint32_t number, uint64_t posted)
{
    return MARK | posted | (uint64_t)link << LINK_SHIFT | number;
}

void ru_pipe_links(ru_pipe *p, const ru_pipe_link *links, uint32_t n)
{
    RU_CHECK(n <= RU_PIPE_LINKS_MAX);
    p->links = links;
    p->n_links = n;
}

/* Who waits for what was on its way would wait for ever. */
static void came_back(ru_pipe *p, uint32_t stage, ru_time now, ru_effects *fx)
{
    lost(p, stage, "was out of reach until what was on its way to or from it was lost", now, fx);
}

/* A pair that is cut is mended for a while. When that fails, a member is lost, or it comes back
 * without what was on its way. */
static void breaks(ru_pipe *p, uint32_t stage, ru_time now, ru_effects *fx)
{
    p->broken[stage] = true;
    if (ru_chan_is_up(p->chan, p->nodes[stage])) {
        came_back(p, stage, now, fx);
    } else {
        ru_member_suspect(p->member, p->nodes[stage], false, now, fx);
    }
}

static void refused(ru_pipe *p, uint32_t stage, ru_status st, ru_time now, ru_effects *fx)
{
    if (st == RU_E_PEER) {
        breaks(p, stage, now, fx);
    } else if (st != RU_OK) {
        ru_pipe_end(p, st, "the channel takes no more transfers", now, fx);
    }
}

static ru_chan_class class_of(const ru_pipe *p, uint32_t link)
{
    return p->links[link].urgent ? RU_CLASS_URGENT : RU_CLASS_NORMAL;
}

void ru_pipe_send(ru_pipe *p, uint32_t link, uint32_t number, ru_span span, ru_time now,
                  ru_effects *fx)
{
    RU_CHECK(link < p->n_links && p->links[link].from == p->stage);
    uint32_t to = p->links[link].to;
    ru_xfer_id id;
    const ru_chan_send_in in = {.to = p->nodes[to],
                                .name = {stream_of(p, link), number},
                                .class = class_of(p, link),
                                .rank = p->links[link].rank,
                                .spans = &span,
                                .n_spans = 1,
                                .fence = true,
                                .cookie = cookie_of(link, number, 0),
                                .label = p->links[link].label};
    if (!p->ended) {
        refused(p, to, ru_chan_send(p->chan, &in, now, &id), now, fx);
    }
}

void ru_pipe_post(ru_pipe *p, uint32_t link, uint32_t number, ru_span span, ru_time now,
                  ru_effects *fx)
{
    RU_CHECK(link < p->n_links && p->links[link].to == p->stage);
    uint32_t from = p->links[link].from;
    ru_xfer_id id;
    const ru_chan_post_in in = {.from = p->nodes[from],
                                .name = {stream_of(p, link), number},
                                .spans = &span,
                                .n_spans = 1,
                                .class = class_of(p, link),
                                .rank = p->links[link].rank,
                                .cookie = cookie_of(link, number, POSTED),
                                .label = p->links[link].label};
    if (!p->ended) {
        refused(p, from, ru_chan_post(p->chan, &in, now, &id), now, fx);
    }
}

static bool owns(void *self, uint64_t cookie)
{
    (void)self;
    return (cookie & MARK_MASK) == MARK;
}

static void moved(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    (void)fx;
    tell(self,
         &(ru_pipe_news){.what = (cookie & POSTED) != 0 ? RU_PIPE_ARRIVED : RU_PIPE_SENT,
                         .a = (int64_t)(cookie >> LINK_SHIFT & LINK_MASK),
                         .b = (int64_t)(cookie & UINT32_MAX)},
         now);
}

static void failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    ru_pipe *p = self;
    uint32_t link = (uint32_t)(cookie >> LINK_SHIFT & LINK_MASK);
    if (!p->ended && why != RU_E_CANCELLED) {
        const ru_pipe_link *l = &p->links[link];
        breaks(p, l->from == p->stage ? l->to : l->from, now, fx);
    }
}

/* -- events ------------------------------------------------------------------------------------ */

static uint32_t stage_of(const ru_pipe *p, ru_node_id node)
{
    uint32_t k = 0;
    while (k < p->opt.n && p->epoch > 0 && !ru_node_is(p->nodes[k], node)) {
        k++;
    }
    return p->epoch > 0 ? k : p->opt.n;
}

/* FAIL, or END. */
static void told_end(ru_pipe *p, const ru_event *ev, ru_time now, ru_effects *fx)
{
    ru_wire_in w = ru_wire_in_from(ev->data, ev->size_bytes);
    ru_status st = (ru_status)ru_wire_u32(&w);
    uint32_t n = 0;
    const char *s = ru_wire_text(&w, TEXT_MAX - 1, &n);
    char text[TEXT_MAX] = "", more[TEXT_MAX + 64];
    if (s == NULL) {
        return;
    }
    memcpy(text, s, n);
    if (ev->what == FAIL) {
        (void)snprintf(more, sizeof more, "worker %u: %s", p->numbers[stage_of(p, ev->node)], text);
        more[TEXT_MAX - 1] = 0;
        ru_pipe_end(p, st != RU_OK ? st : RU_E_BUG, more, now, fx);
    } else { /* what failed is not this one's if it is a spare: it may ask again */
        ended(p, p->epoch == 0 && st != RU_OK ? RU_E_PEER : st, text, now);
    }
}

static void hear(ru_pipe *p, const ru_event *ev, ru_effects *fx)
{
    uint32_t from = stage_of(p, ev->node);
    bool leads = from + 1 == p->opt.n; /* the sender */
    ru_member_heard(p->member, ev->node, ev->now);
    if (p->ended) {
        return;
    }
    if (p->epoch == 0 && ev->what == END) { /* this one is a spare */
        told_end(p, ev, ev->now, fx);
        return;
    }
    if (from >= p->opt.n) {
        return;
    }
    if (ev->what == READY && p->leads) {
        is_ready(p, from, ev->now, fx);
    } else if (ev->what == GO && leads) {
        tell(p, &(ru_pipe_news){.what = RU_PIPE_GO}, ev->now);
    } else if (ev->what == DECIDE && leads && ev->size_bytes <= RU_PIPE_DECISION_MAX) {
        tell(p, &(ru_pipe_news){.what = RU_PIPE_DECIDED, .a = ev->size_bytes, .data = ev->data},
             ev->now);
    } else if (ev->what == STOP && p->leads) {
        tell(p, &(ru_pipe_news){.what = RU_PIPE_STOP}, ev->now);
    } else if ((ev->what == FAIL && p->leads) || (ev->what == END && leads)) {
        told_end(p, ev, ev->now, fx);
    }
}

static void local(ru_pipe *p, const ru_event *ev, ru_effects *fx)
{
    switch (ev->what) {
    case RU_MEMBER_VIEW:
        take_view(p, ev->now);
        break;
    case RU_MEMBER_LEAD:
    case RU_MEMBER_CHANGE:
        if (p->epoch == 0 || p->leads) {
            install(p, ev->now, fx);
            break;
        } /* else who led is gone */
        /* fall through */
    case RU_MEMBER_LEADERLESS:
        if (p->epoch > 0) {
            ended(p, RU_E_PEER,
                  "the worker that led was lost; continue from the newest checkpoint with --resume",
                  ev->now);
        }
        break;
    case RU_MEMBER_OUT:
        ended(p, ev->value != 0 ? (ru_status)ev->value : RU_E_PEER, ev->data, ev->now);
        break;
    default:
        break;
    }
}

/* Words go between the leader and all others. */
static void connected(ru_pipe *p, const ru_event *ev, ru_effects *fx)
{
    uint32_t stage = stage_of(p, ev->node);
    if (stage < p->opt.n && ev->kind == RU_EV_UP && p->broken[stage]) {
        came_back(p, stage, ev->now, fx);
    } else if (stage < p->opt.n && ev->kind == RU_EV_DOWN) {
        p->broken[stage] = p->broken[stage] || p->leads || stage + 1 == p->opt.n;
    }
}

static void step(void *self, const ru_event *ev, ru_effects *fx)
{
    ru_pipe *p = self;
    if (ev->kind == RU_EV_MESSAGE) {
        hear(p, ev, fx);
    } else if (ev->kind == RU_EV_LOCAL && !p->ended) {
        local(p, ev, fx);
    } else if ((ev->kind == RU_EV_DOWN || ev->kind == RU_EV_UP) && !p->ended) {
        connected(p, ev, fx);
    }
}

static bool is_over(const void *self)
{
    return ((const ru_pipe *)self)->ended;
}

static const ru_part_ops part_ops = {.name = "pipe",
                                     .step = step,
                                     .owns = owns,
                                     .sent = moved,
                                     .arrived = moved,
                                     .failed = failed,
                                     .ended = is_over};

ru_status ru_pipe_open(const ru_pipe_options *opt, ru_arena *arena, ru_pipe **out, ru_err *err)
{
    ru_pipe *p = RU_NEW(arena, ru_pipe, 1);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a pipeline");
    }
    *p = (ru_pipe){.opt = *opt,
                   .member = ru_node_member(opt->node),
                   .chan = ru_node_chan(opt->node),
                   .nodes = RU_NEW(arena, ru_node_id, opt->n),
                   .numbers = RU_NEW(arena, uint32_t, opt->n),
                   .ready = RU_NEW(arena, bool, opt->n),
                   .broken = RU_NEW(arena, bool, opt->n)};
    if (p->nodes == NULL || p->numbers == NULL || p->ready == NULL || p->broken == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a pipeline");
    }
    ru_node_part(
        opt->node,
        &(ru_part){.ops = &part_ops, .self = p, .what_first = READY, .what_end = WHAT_END});
    *out = p;
    return RU_OK;
}
