#include "comm/node/loop.h"

static void fire(void *self, uint32_t what, ru_time now)
{
    ru_node_loop *b = self;
    ru_node_timer(b->node, what, now);
}

static void timer_set(void *self, uint32_t what, ru_time at)
{
    ru_node_loop *b = self;
    ru_loop_timer(b->loop, fire, b, what, at);
}

static void timer_off(void *self, uint32_t what)
{
    ru_node_loop *b = self;
    ru_loop_timer_off(b->loop, fire, b, what);
}

ru_node_timer_ops ru_node_loop_timers(ru_node_loop *bridge)
{
    return (ru_node_timer_ops){timer_set, timer_off, bridge};
}
