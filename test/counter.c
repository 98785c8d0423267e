#include "test/counter.h"

#include <string.h>

enum { WHAT_FIRST = 0x300, COUNTS = WHAT_FIRST, TICK = WHAT_FIRST, WHAT_END = WHAT_FIRST + 1 };

static void merge(ru_counter *c, const ru_counter_seen *s)
{
    for (uint32_t k = 0; k < c->n; k++) {
        if (c->seen[k].node == s->node) {
            c->seen[k].count = s->count > c->seen[k].count ? s->count : c->seen[k].count;
            return;
        }
    }
    RU_CHECK(c->n < RU_COUNTER_SEEN_MAX);
    c->seen[c->n++] = *s;
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
        merge(c, &s);
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

static const ru_part_ops counter_part = {.name = "counter", .step = step};

void ru_counter_part(ru_counter *c, ru_node *node)
{
    c->member = ru_node_member(node);
    c->n = 0;
    merge(c, &(ru_counter_seen){c->self.v, 0});
    ru_node_part(node, &(ru_part){&counter_part, c, WHAT_FIRST, WHAT_END});
}
