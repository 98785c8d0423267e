/* The side that asks. An item is ASKED until READY, then POSTED until its bytes are there. */
#include "comm/pull/ask.h"

#include <string.h>

#include "base/wire.h"
#include "comm/pull/ask_impl.h"

typedef enum item_state { FREE, ASKED, POSTED, OVER } item_state;

typedef struct item {
    ru_ask_item it;
    ru_span span;
    ru_xfer_id xfer;
    item_state state;
} item;

struct ru_ask {
    ru_ask_options opt;
    item *at; /* [opt.n_max] */
    uint32_t n;
};

ru_status ru_ask_open(const ru_ask_options *opt, ru_arena *arena, ru_ask **out, ru_err *err)
{
    if (opt->n_max == 0 || opt->n_max > RU_ASK_ITEMS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "%u items may be asked for; expected 1 to %d", opt->n_max,
                       RU_ASK_ITEMS_MAX);
    }
    ru_ask *a = RU_NEW(arena, ru_ask, 1);
    item *at = RU_NEW(arena, item, opt->n_max);
    if (a == NULL || at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u items that are asked for", opt->n_max);
    }
    *a = (ru_ask){.opt = *opt, .at = at};
    *out = a;
    return RU_OK;
}

static ru_status check(const ru_ask *a, const ru_ask_item *it, uint32_t n, ru_err *err)
{
    if (n > a->opt.n_max - a->n) {
        return RU_FAIL(err, RU_E_LIMIT, "%u items would be asked for; expected at most %u",
                       a->n + n, a->opt.n_max);
    }
    for (uint32_t k = 0; k < n; k++) {
        size_t len = strlen(it[k].name);
        if (len == 0 || len > RU_ASK_NAME_MAX || it[k].size_bytes <= 0) {
            return RU_FAIL(err, RU_E_ARG,
                           "'%.40s' has a name of %zu bytes and holds %lld; expected names of 1 to "
                           "%d bytes that hold 1 or more",
                           it[k].name, len, (long long)it[k].size_bytes, RU_ASK_NAME_MAX);
        }
    }
    return RU_OK;
}

/* Items [from, to) go to one giver, as many as fit into a message; returns the next. */
static uint32_t send_some(const ru_ask *a, uint32_t from, uint8_t *m, int64_t *size)
{
    ru_wire_out o = ru_wire_out_into(m, RU_ASK_MESSAGE_BYTES);
    uint32_t k = from;
    ru_wire_put_u32(&o, from);
    for (; k < a->n && ru_node_is(a->at[k].it.from, a->at[from].it.from); k++) {
        const ru_ask_item *it = &a->at[k].it;
        uint32_t len = (uint32_t)strlen(it->name);
        if (ru_wire_size(&o) + RUI_ASK_ITEM_BYTES + len > RU_ASK_MESSAGE_BYTES) {
            break;
        }
        ru_wire_put_u16(&o, it->rank);
        ru_wire_put_u64(&o, (uint64_t)it->size_bytes);
        ru_wire_put_text(&o, it->name, len);
    }
    *size = ru_wire_size(&o);
    return k;
}

ru_status ru_ask_for(ru_ask *a, const ru_ask_item *items, uint32_t n, ru_time now, ru_err *err)
{
    uint8_t m[RU_ASK_MESSAGE_BYTES];
    uint32_t next = a->n;
    RU_TRY(check(a, items, n, err));
    for (uint32_t k = 0; k < n; k++) {
        a->at[a->n++] = (item){.it = items[k], .state = ASKED};
    }
    while (next < a->n) {
        int64_t size;
        const ru_node_id to = a->at[next].it.from;
        next = send_some(a, next, m, &size);
        ru_status st = ru_chan_message(a->opt.chan, to, a->opt.what_first + RUI_ASK, m, size, now);
        if (st != RU_OK) {
            return RU_FAIL(err, st, "the list of items cannot be sent: %s", ru_status_name(st));
        }
    }
    return RU_OK;
}

static void post(ru_ask *a, uint32_t i, ru_time now)
{
    item *x = &a->at[i];
    x->span = (ru_span){x->it.into, x->it.size_bytes};
    const ru_chan_post_in in = {.from = x->it.from,
                                .name = {RUI_ASK_TAG | i, 0},
                                .spans = &x->span,
                                .n_spans = 1,
                                .asked = true,
                                .class = RU_CLASS_NORMAL,
                                .rank = x->it.rank,
                                .cookie = RUI_ASK_TAG | i};
    ru_status st = ru_chan_post(a->opt.chan, &in, now, &x->xfer);
    x->state = POSTED;
    if (st != RU_OK) {
        x->state = OVER;
        a->opt.failed(a->opt.self, i, st, "its stream cannot be received", now);
    }
}

static item *asked(ru_ask *a, const ru_event *ev, uint32_t i)
{
    bool is = i < a->n && a->at[i].state == ASKED && ru_node_is(a->at[i].it.from, ev->node);
    return is ? &a->at[i] : NULL;
}

static void hear_no(ru_ask *a, const ru_event *ev)
{
    char sentence[RUI_NO_TEXT_MAX + 1];
    uint32_t n = 0;
    ru_wire_in in = ru_wire_in_from(ev->data, ev->size_bytes);
    uint32_t i = ru_wire_u32(&in);
    const char *text = ru_wire_text(&in, RUI_NO_TEXT_MAX, &n);
    item *x = text != NULL ? asked(a, ev, i) : NULL;
    if (x == NULL) {
        ru_chan_refuse(a->opt.chan, ev->node, "it refused what was not asked for", ev->now);
        return;
    }
    for (uint32_t k = 0; k < n; k++) { /* goes to a terminal */
        sentence[k] = text[k] >= ' ' && text[k] <= '~' ? text[k] : '?';
    }
    sentence[n] = '\0';
    x->state = OVER;
    a->opt.failed(a->opt.self, i, RU_E_MISSING, sentence, ev->now);
}

static void lose(ru_ask *a, const ru_event *ev)
{
    for (uint32_t i = 0; i < a->n; i++) { /* posted ones fail by themselves */
        if (asked(a, ev, i) != NULL) {
            a->at[i].state = OVER;
            a->opt.failed(a->opt.self, i, RU_E_PEER, "the connection was lost", ev->now);
        }
    }
}

void ru_ask_hear(ru_ask *a, const ru_event *ev)
{
    if (ev->kind == RU_EV_DOWN) {
        lose(a, ev);
        return;
    }
    if (ev->what == a->opt.what_first + RUI_NO) {
        hear_no(a, ev);
        return;
    }
    if (ev->what != a->opt.what_first + RUI_READY) {
        ru_chan_refuse(a->opt.chan, ev->node, "it asked for what is not given here", ev->now);
        return;
    }
    ru_wire_in in = ru_wire_in_from(ev->data, ev->size_bytes);
    while (ru_wire_left(&in) > 0) {
        uint32_t i = ru_wire_u32(&in);
        if (in.bad || asked(a, ev, i) == NULL) {
            ru_chan_refuse(a->opt.chan, ev->node, "it announced what was not asked for", ev->now);
            return;
        }
        post(a, i, ev->now);
    }
}

void ru_ask_arrived(ru_ask *a, uint64_t cookie, ru_time now)
{
    uint32_t i = (uint32_t)(cookie & ~RUI_ASK_TAG_MASK);
    RU_CHECK(a->at[i].state == POSTED);
    a->at[i].state = OVER;
    a->opt.arrived(a->opt.self, i, now);
}

void ru_ask_failed(ru_ask *a, uint64_t cookie, ru_status why, ru_time now)
{
    uint32_t i = (uint32_t)(cookie & ~RUI_ASK_TAG_MASK);
    RU_CHECK(a->at[i].state == POSTED);
    a->at[i].state = OVER;
    a->opt.failed(a->opt.self, i, why,
                  why == RU_E_PEER ? "the connection was lost" : "its stream ended before its end",
                  now);
}
