/* The side that gives. What an asker asked for waits in a heap of its own, smallest rank first; the
 * first RU_GIVE_OUT_MAX of it are streams of the channel, whose egress orders those of all askers.
 */
#include <stdio.h>
#include <string.h>

#include "base/wire.h"
#include "comm/chan/pheap.h"
#include "comm/pull/ask_impl.h"

#define GIVE_TAG (UINT64_C(0xa6) << 56)

typedef struct want {
    ru_span span;
    uint64_t order; /* of arrival */
    uint32_t id;    /* the asker's number */
    uint32_t asker, next;
    uint16_t rank;
    bool used, out;
} want;

typedef struct asker {
    ru_node_id node; /* 0: free */
    uint32_t root;   /* of its heap */
    uint32_t n, out; /* wants; streams */
} asker;

struct ru_give {
    ru_give_options opt;
    want *at;         /* [opt.items_max] */
    rui_pnode *nodes; /* [opt.items_max] */
    rui_pheap heap;
    asker *askers; /* [opt.askers_max] */
    uint32_t free, used, n;
    uint64_t order;
};

static bool before(const void *self, uint32_t a, uint32_t b)
{
    const ru_give *g = self;
    const want *x = &g->at[a], *y = &g->at[b];
    return x->rank != y->rank ? x->rank < y->rank : x->order < y->order;
}

ru_status ru_give_open(const ru_give_options *opt, ru_arena *arena, ru_give **out, ru_err *err)
{
    ru_give *g = RU_NEW(arena, ru_give, 1);
    want *at = ru_arena_alloc(arena, (int64_t)opt->items_max * (int64_t)sizeof *at, 64);
    rui_pnode *nodes = ru_arena_alloc(arena, (int64_t)opt->items_max * (int64_t)sizeof *nodes, 64);
    asker *askers = RU_NEW(arena, asker, opt->askers_max);
    if (g == NULL || at == NULL || nodes == NULL || askers == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u items of %u askers", opt->items_max,
                       opt->askers_max);
    }
    *g = (ru_give){.opt = *opt, .at = at, .nodes = nodes, .askers = askers, .free = RUI_NONE};
    g->heap = (rui_pheap){nodes, before, g};
    *out = g;
    return RU_OK;
}

static uint32_t want_new(ru_give *g)
{
    uint32_t i = g->free;
    if (i != RUI_NONE) {
        g->free = g->at[i].next;
    } else if (g->used < g->opt.items_max) {
        i = g->used++;
    }
    g->n += i != RUI_NONE;
    return i;
}

static void want_free(ru_give *g, uint32_t i)
{
    g->askers[g->at[i].asker].n--;
    g->at[i] = (want){.next = g->free};
    g->free = i;
    g->n--;
}

/* The one of this name; else a new one; RUI_NONE: there are as many as the channel has peers. */
static uint32_t asker_of(ru_give *g, ru_node_id node, bool make)
{
    uint32_t empty = RUI_NONE;
    for (uint32_t k = 0; k < g->opt.askers_max; k++) {
        if (ru_node_is(g->askers[k].node, node)) {
            return k;
        }
        empty = g->askers[k].node.v == 0 && empty == RUI_NONE ? k : empty;
    }
    if (make && empty != RUI_NONE) {
        g->askers[empty] = (asker){.node = node, .root = RUI_NONE};
    }
    return make ? empty : RUI_NONE;
}

/* -- handing over --------------------------------------------------------------------------------
 */

static ru_status stream(ru_give *g, uint32_t i, ru_time now)
{
    want *x = &g->at[i];
    ru_xfer_id id;
    const ru_chan_send_in in = {.to = g->askers[x->asker].node,
                                .name = {RUI_ASK_TAG | x->id, 0},
                                .class = RU_CLASS_NORMAL,
                                .rank = x->rank,
                                .spans = &x->span,
                                .n_spans = 1,
                                .fence = true,
                                .asked = true,
                                .cookie = GIVE_TAG | i};
    return ru_chan_send(g->opt.chan, &in, now, &id); /* fenced: it is not over within this call */
}

/* The smallest ranks become streams, and their asker hears which. */
static void hand(ru_give *g, uint32_t k, ru_time now, ru_effects *fx)
{
    uint8_t m[4 * RU_GIVE_OUT_MAX];
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    asker *a = &g->askers[k];
    while (a->root != RUI_NONE && a->out < RU_GIVE_OUT_MAX) {
        uint32_t i = a->root;
        uint32_t id = g->at[i].id;
        rui_pheap_remove(&g->heap, &a->root, i);
        ru_status st = stream(g, i, now);
        if (st == RU_E_LIMIT) { /* ru_give_room comes */
            rui_pheap_push(&g->heap, &a->root, i);
            break;
        }
        if (st != RU_OK) { /* an id that is in use, or the asker went */
            want_free(g, i);
            ru_chan_refuse(g->opt.chan, a->node, "it asked for two things under one number", now);
            continue;
        }
        g->at[i].out = true;
        a->out++;
        ru_wire_put_u32(&o, id);
    }
    if (ru_wire_size(&o) > 0) {
        ru_fx_send(fx, a->node, g->opt.what_first + RUI_READY, m, ru_wire_size(&o));
    }
}

void ru_give_room(ru_give *g, ru_time now, ru_effects *fx)
{
    for (uint32_t k = 0; k < g->opt.askers_max; k++) {
        if (g->askers[k].node.v != 0) {
            hand(g, k, now, fx);
        }
    }
}

/* -- asked ---------------------------------------------------------------------------------------
 */

static void say_no(const ru_give *g, const ru_event *ev, uint32_t id, const char *sentence,
                   ru_effects *fx)
{
    uint8_t m[RUI_NO_TEXT_MAX + 8];
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    ru_wire_put_u32(&o, id);
    ru_wire_put_text(&o, sentence, (uint32_t)strlen(sentence));
    ru_fx_send(fx, ev->node, g->opt.what_first + RUI_NO, m, ru_wire_size(&o));
}

/* One entry of a list; false: it was refused. */
static bool take(ru_give *g, uint32_t k, const ru_event *ev, uint32_t id, uint16_t rank,
                 int64_t size, ru_str name, ru_effects *fx)
{
    char why[RUI_NO_TEXT_MAX];
    ru_span span = {0};
    uint32_t share = g->opt.items_max / g->opt.askers_max;
    if (!g->opt.find(g->opt.self, name, &span)) {
        (void)snprintf(why, sizeof why, "nothing is given under the name '%.*s'", RU_STR_ARG(name));
    } else if (span.size_bytes != size) {
        (void)snprintf(why, sizeof why, "'%.*s' has %lld bytes, not %lld", RU_STR_ARG(name),
                       (long long)span.size_bytes, (long long)size);
    } else if (g->askers[k].n >= share) {
        (void)snprintf(why, sizeof why, "more than %u things are asked for at one time", share);
    } else {
        uint32_t i = want_new(g);
        RU_CHECK(i != RUI_NONE); /* shares add up to all */
        g->at[i] = (want){
            .span = span, .order = g->order++, .id = id, .asker = k, .rank = rank, .used = true};
        g->askers[k].n++;
        rui_pheap_push(&g->heap, &g->askers[k].root, i);
        return true;
    }
    say_no(g, ev, id, why, fx);
    return false;
}

static void hear_list(ru_give *g, uint32_t k, const ru_event *ev, ru_effects *fx)
{
    ru_wire_in in = ru_wire_in_from(ev->data, ev->size_bytes);
    uint32_t id = ru_wire_u32(&in);
    for (bool fine = true; fine && !in.bad && ru_wire_left(&in) > 0; id++) {
        uint32_t n = 0;
        uint16_t rank = ru_wire_u16(&in);
        uint64_t size = ru_wire_u64(&in);
        const char *name = ru_wire_text(&in, RU_ASK_NAME_MAX, &n);
        if (name == NULL || size > INT64_MAX || id >= RU_ASK_ITEMS_MAX) {
            in.bad = true;
            break;
        }
        fine = take(g, k, ev, id, rank, (int64_t)size, ru_str_n(name, n), fx);
    }
    if (in.bad) {
        ru_chan_refuse(g->opt.chan, ev->node, "it sent a list that is no list of names", ev->now);
    }
}

/* Its streams fail by themselves. */
static void lose(ru_give *g, uint32_t k)
{
    asker *a = &g->askers[k];
    while (a->root != RUI_NONE) {
        uint32_t i = a->root;
        rui_pheap_remove(&g->heap, &a->root, i);
        want_free(g, i);
    }
    if (a->n == 0) {
        a->node.v = 0;
    }
}

void ru_give_hear(ru_give *g, const ru_event *ev, ru_effects *fx)
{
    uint32_t k = asker_of(g, ev->node, ev->kind == RU_EV_MESSAGE);
    if (ev->kind == RU_EV_DOWN) {
        if (k != RUI_NONE) {
            lose(g, k);
        }
        return;
    }
    if (k == RUI_NONE || ev->what != g->opt.what_first + RUI_ASK) {
        ru_chan_refuse(g->opt.chan, ev->node, "it sent what only a giver sends", ev->now);
        return;
    }
    hear_list(g, k, ev, fx);
    hand(g, k, ev->now, fx);
}

bool ru_give_owns(const ru_give *g, uint64_t cookie)
{
    return (cookie & RUI_ASK_TAG_MASK) == GIVE_TAG && (cookie & ~RUI_ASK_TAG_MASK) < g->used;
}

void ru_give_over(ru_give *g, uint64_t cookie, ru_time now, ru_effects *fx)
{
    uint32_t i = (uint32_t)(cookie & ~RUI_ASK_TAG_MASK), k = g->at[i].asker;
    RU_CHECK(g->at[i].used && g->at[i].out);
    g->askers[k].out--;
    want_free(g, i);
    if (ru_chan_is_up(g->opt.chan, g->askers[k].node)) {
        hand(g, k, now, fx);
    }
    if (g->askers[k].n == 0) { /* DOWN may have come long before the connection ends */
        g->askers[k].node.v = 0;
    }
}

bool ru_give_idle(const ru_give *g)
{
    return g->n == 0;
}
