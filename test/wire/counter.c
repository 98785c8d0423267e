#include "test/wire/counter.h"

#include <string.h>

enum { WHAT_FIRST = 0x300, COUNTS = WHAT_FIRST, TICK = WHAT_FIRST, WHAT_END = WHAT_FIRST + 1 };

/* What is known of it now. Guests may be as many as they like: those beyond a bound count nothing.
 */
static uint64_t merge(ru_counter *c, const ru_counter_seen *s)
{
    uint32_t guests = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        guests += c->seen[k].guest != 0;
        if (c->seen[k].node == s->node && c->seen[k].guest == s->guest) {
            c->seen[k].count = s->count > c->seen[k].count ? s->count : c->seen[k].count;
            return c->seen[k].count;
        }
    }
    if (s->guest != 0 && guests == RU_COUNTER_GUESTS_MAX) {
        return 0;
    }
    RU_CHECK(c->n < RU_COUNTER_SEEN_MAX);
    c->seen[c->n++] = *s;
    return s->count;
}

uint64_t ru_counter_total(const ru_counter *c)
{
    uint64_t total = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        total += c->seen[k].count;
    }
    return total;
}

static void tell(const ru_counter *c, ru_node_id to, ru_effects *fx)
{
    ru_fx_send(fx, to, COUNTS, c->seen, (int64_t)(c->n * sizeof c->seen[0]));
}

static void tell_all(const ru_counter *c, ru_effects *fx)
{
    const ru_view *v = ru_member_view(c->member);
    for (uint32_t k = 0; k < v->n; k++) {
        if (!ru_node_is(v->at[k].node, c->self)) {
            tell(c, v->at[k].node, fx);
        }
    }
}

static void hear(ru_counter *c, const ru_event *ev)
{
    const uint8_t *p = ev->data;
    for (int64_t at = 0; at + (int64_t)sizeof(ru_counter_seen) <= ev->size_bytes;
         at += (int64_t)sizeof(ru_counter_seen)) {
        ru_counter_seen s;
        memcpy(&s, p + at, sizeof s);
        (void)merge(c, &s);
    }
}

/* The leader lets everybody in who asks, and the dead out. */
static void install(ru_counter *c, ru_time now, ru_effects *fx)
{
    ru_member_wanted w;
    ru_node_id nodes[RU_COUNTER_SEEN_MAX];
    ru_member_wanted_get(c->member, &w);
    for (uint32_t k = 0; k < w.n; k++) {
        nodes[k] = w.at[k].node;
    }
    ru_member_install(c->member, nodes, w.n, "", 0, now, fx);
}

static void step(void *self, const ru_event *ev, ru_effects *fx)
{
    ru_counter *c = self;
    switch (ev->kind) {
    case RU_EV_START:
        ru_fx_timer(fx, TICK, ru_time_after(ev->now, c->step_ns));
        break;
    case RU_EV_TIMER:
        if (ru_member_view(c->member)->epoch > 0 && c->seen[0].count < c->goal) {
            c->seen[0].count++;
        }
        tell_all(c, fx); /* also without a change: who was cut off hears it again */
        ru_fx_timer(fx, TICK, ru_time_after(ev->now, c->step_ns));
        break;
    case RU_EV_MESSAGE:
        hear(c, ev);
        break;
    case RU_EV_LOCAL:
        if (ev->what == RU_MEMBER_CHANGE || ev->what == RU_MEMBER_LEAD) {
            install(c, ev->now, fx);
        }
        break;
    case RU_EV_UP:
    case RU_EV_DOWN:
        break;
    }
    if (c->told != NULL) {
        c->told(c->told_self, ru_counter_total(c));
    }
}

static void guest(void *self, const ru_event *ev, ru_effects *fx)
{
    ru_counter *c = self;
    if (ev->kind != RU_EV_MESSAGE) {
        return; /* what a guest counted stays when it goes */
    }
    ru_counter_seen s = {.node = ev->node.v, .guest = 1};
    ru_counter_known known = {0};
    if (ev->what == RU_COUNTER_ADD && ev->size_bytes == (int64_t)sizeof s.count) {
        memcpy(&s.count, ev->data, sizeof s.count);
        known.yours = merge(c, &s);
    }
    known.total = ru_counter_total(c);
    ru_fx_send(fx, ev->node, RU_COUNTER_KNOWN, &known, sizeof known);
}

static const ru_part_ops counter_part = {.name = "counter", .step = step, .guest = guest};

void ru_counter_part(ru_counter *c, ru_node *node)
{
    c->member = ru_node_member(node);
    c->n = 0;
    (void)merge(c, &(ru_counter_seen){.node = c->self.v});
    ru_node_part(node, &(ru_part){.ops = &counter_part,
                                  .self = c,
                                  .what_first = WHAT_FIRST,
                                  .what_end = WHAT_END,
                                  .guest_first = RU_COUNTER_ADD,
                                  .guest_end = RU_COUNTER_GUEST_END});
}
