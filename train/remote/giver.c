#include "train/remote/giver.h"

#include <string.h>

#include "base/wire.h"
#include "train/remote/remote_impl.h"

enum { GUESTS = 64, ITEMS_PER_GUEST = 1 << 14, MORE = 8 /* that come while others go */ };

typedef enum place { FREE, WAITS, HAS } place;

typedef struct visitor {
    ru_node_id node;
    place place;
    ru_time came;
    bool told; /* that it stays too long */
} visitor;

struct ru_giver {
    ru_giver_options opt;
    ru_chan *chan;
    ru_give *give;
    const ru_offer *offer; /* NULL: none */
    visitor *at;           /* [n_max] */
    uint32_t n_max;
    bool asked; /* wanted() was called, and neither set nor none since */
};

ru_status ru_offer_make(const ru_remote *w, ru_arena *arena, ru_offer *out, ru_err *err)
{
    *out = (ru_offer){.w = w};
    ru_map_init(&out->names, arena, RU_REMOTE_TENSORS_MAX);
    for (uint32_t i = 0; i < w->n; i++) {
        uint64_t *at = ru_map_put_c(&out->names, w->at[i].name, NULL);
        if (at == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the names of %u tensors", w->n);
        }
        *at = i;
    }
    RU_TRY(ru_remote_pack(w, arena, &out->model, err));
    out->hash = ru_hash_bytes(out->model.data, out->model.size_bytes, 0);
    return RU_OK;
}

ru_status ru_giver_open(const ru_giver_options *opt, ru_arena *arena, ru_giver **out, ru_err *err)
{
    ru_giver *g = RU_NEW(arena, ru_giver, 1);
    uint32_t n = (opt->guests_max > 0 ? opt->guests_max : GUESTS) + MORE;
    visitor *at = RU_NEW(arena, visitor, n);
    if (g == NULL || at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u guests", n);
    }
    *g = (ru_giver){.opt = *opt, .at = at, .n_max = n};
    *out = g;
    return RU_OK;
}

/* -- guests ---------------------------------------------------------------------------------------
 */

static visitor *visitor_of(ru_giver *g, ru_node_id node)
{
    for (uint32_t k = 0; k < g->n_max; k++) {
        if (g->at[k].place != FREE && ru_node_is(g->at[k].node, node)) {
            return &g->at[k];
        }
    }
    return NULL;
}

static void say_head(ru_giver *g, visitor *x, ru_effects *fx)
{
    uint8_t m[64];
    static const char program[] = "rubato " RU_VERSION;
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    ru_wire_put_u32(&o, RU_REMOTE_VERSION);
    ru_wire_put_u64(&o, (uint64_t)g->offer->model.size_bytes);
    ru_wire_put_u64(&o, g->offer->hash);
    ru_wire_put_text(&o, program, (uint32_t)sizeof program - 1);
    ru_fx_send(fx, x->node, RUI_REMOTE_HEAD, m, ru_wire_size(&o));
    x->place = HAS;
}

static void say_no(const visitor *x, const char *sentence, ru_effects *fx)
{
    ru_fx_send(fx, x->node, RUI_REMOTE_NO, sentence, (int64_t)strlen(sentence));
}

/* Nobody has the weights, and no stream of them is on its way. */
static void look_unused(ru_giver *g)
{
    bool used = g->offer == NULL || g->opt.unused == NULL || !ru_give_idle(g->give);
    for (uint32_t k = 0; k < g->n_max && !used; k++) {
        used = g->at[k].place == HAS;
    }
    if (!used) {
        g->offer = NULL;
        g->opt.unused(g->opt.self);
    }
}

static void hello(ru_giver *g, const ru_event *ev, ru_effects *fx)
{
    visitor *x = visitor_of(g, ev->node);
    for (uint32_t k = 0; k < g->n_max && x == NULL; k++) {
        x = g->at[k].place == FREE ? &g->at[k] : NULL;
    }
    if (x == NULL || x->place == HAS) {
        ru_chan_refuse(g->chan, ev->node, "it said twice that it is there", ev->now);
        return;
    }
    *x = (visitor){.node = ev->node, .place = WAITS, .came = ev->now};
    if (g->offer != NULL) {
        say_head(g, x, fx);
    } else if (!g->asked) { /* whoever asked first may have gone */
        g->asked = true;
        g->opt.wanted(g->opt.self, ev->now, fx);
    }
}

void ru_giver_set(ru_giver *g, const ru_offer *o, ru_effects *fx)
{
    RU_CHECK(g->offer == NULL);
    g->offer = o;
    g->asked = false;
    for (uint32_t k = 0; k < g->n_max; k++) {
        if (g->at[k].place == WAITS) {
            say_head(g, &g->at[k], fx);
        }
    }
    if (g->give != NULL) { /* those who waited may have gone */
        look_unused(g);
    }
}

void ru_giver_none(ru_giver *g, const char *sentence, ru_effects *fx)
{
    g->asked = false;
    for (uint32_t k = 0; k < g->n_max; k++) {
        if (g->at[k].place == WAITS) {
            say_no(&g->at[k], sentence, fx);
            g->at[k].place = FREE;
        }
    }
}

/* A guest that is still there says so, at the latest every ten seconds. */
static void still(ru_giver *g, const ru_event *ev, ru_effects *fx)
{
    visitor *x = visitor_of(g, ev->node);
    if (x == NULL || ru_time_since(ev->now, x->came) < RU_GIVER_STAY_NS) {
        ru_fx_send(fx, ev->node, RUI_REMOTE_STILL, NULL, 0);
    } else if (!x->told) {
        x->told = true;
        say_no(x, "this guest takes the weights for longer than a guest may", fx);
    } else {
        ru_chan_refuse(g->chan, ev->node, "it stays for longer than a guest may", ev->now);
    }
}

static bool find(void *self, ru_str name, ru_span *out)
{
    const ru_giver *g = self;
    const int64_t head = (int64_t)sizeof RUI_REMOTE_TENSOR - 1;
    if (ru_str_eq_c(name, RUI_REMOTE_MODEL)) {
        *out = g->offer->model;
        return true;
    }
    if (!ru_str_starts(name, RUI_REMOTE_TENSOR)) {
        return false;
    }
    const uint64_t *i = ru_map_get(&g->offer->names, ru_str_n(name.p + head, name.n - head));
    if (i == NULL) {
        return false;
    }
    const ru_remote_tensor *t = &g->offer->w->at[*i];
    union { /* the channel reads them only */
        const void *from;
        void *data;
    } bytes = {.from = t->data};
    *out = (ru_span){bytes.data, ru_type_bytes(&t->type)};
    return true;
}

/* -- the part ------------------------------------------------------------------------------------
 */

static void part_guest(void *self, const ru_event *ev, ru_effects *fx)
{
    ru_giver *g = self;
    visitor *x = visitor_of(g, ev->node);
    if (ev->kind == RU_EV_DOWN) {
        ru_give_hear(g->give, ev, fx);
        if (x != NULL) {
            x->place = FREE;
            look_unused(g);
        }
    } else if (ev->what == RUI_REMOTE_HELLO) {
        hello(g, ev, fx);
    } else if (ev->what == RUI_REMOTE_STILL) {
        still(g, ev, fx);
    } else if (x == NULL || x->place != HAS || ev->what < RUI_REMOTE_ASK) {
        ru_chan_refuse(g->chan, ev->node, "it asks for weights that it was not offered", ev->now);
    } else {
        ru_give_hear(g->give, ev, fx);
    }
}

static bool part_owns(void *self, uint64_t cookie)
{
    const ru_giver *g = self;
    return ru_give_owns(g->give, cookie);
}

static void part_over(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_giver *g = self;
    ru_give_over(g->give, cookie, now, fx);
    look_unused(g);
}

static void part_failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    (void)why;
    part_over(self, cookie, now, fx);
}

static void part_room(void *self, ru_time now, ru_effects *fx)
{
    ru_giver *g = self;
    ru_give_room(g->give, now, fx);
}

static const ru_part_ops part_ops = {.name = "weights",
                                     .owns = part_owns,
                                     .sent = part_over,
                                     .arrived = part_over,
                                     .failed = part_failed,
                                     .room = part_room,
                                     .guest = part_guest};

ru_part ru_giver_part(ru_giver *g)
{
    return (ru_part){.ops = &part_ops,
                     .self = g,
                     .what_first = RUI_REMOTE_END, /* it hears no member */
                     .what_end = RUI_REMOTE_END + 1,
                     .guest_first = RUI_REMOTE_HELLO,
                     .guest_end = RUI_REMOTE_END};
}

uint32_t ru_giver_conns(const ru_giver *g)
{
    return ru_guests_conns(g->n_max - MORE);
}

ru_guests_options ru_giver_guests(const ru_giver *g)
{
    uint32_t n = g->n_max - MORE;
    return (ru_guests_options){.job = RUI_REMOTE_JOB,
                               .n_max = n,
                               .message_bytes = RU_ASK_MESSAGE_BYTES,
                               .messages_per_s = 1000,
                               .bytes_per_s = 16 << 20,
                               .unanswered_max = 1000,
                               .streams_max = n * RU_GIVE_OUT_MAX};
}

ru_status ru_giver_ready(ru_giver *g, ru_node *node, ru_arena *arena, ru_err *err)
{
    g->chan = ru_node_guests_chan(node);
    const ru_give_options give = {.chan = g->chan,
                                  .askers_max = g->n_max,
                                  .items_max = g->n_max * ITEMS_PER_GUEST,
                                  .what_first = RUI_REMOTE_ASK,
                                  .self = g,
                                  .find = find};
    return ru_give_open(&give, arena, &g->give, err);
}
