#include "comm/node/loop.h"

#include <stddef.h>

#include "env/process/self.h"

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

/* -- a node without members ----------------------------------------------------------------------
 */

static ru_status nobody(void *self, const char *address, ru_link_class class, ru_conn_id *c,
                        ru_err *err)
{
    (void)self;
    (void)class;
    (void)c;
    return RU_FAIL(err, RU_E_ARG, "%s: this process has no members", address);
}

static void no_conn(void *self, ru_conn_id c)
{
    (void)self;
    (void)c;
}

static const ru_link_ops no_link = {
    .name = "none", .connect = nobody, .close = no_conn, .wake = no_conn, .resume = no_conn};

ru_status ru_node_loop_alone(ru_node_loop *bridge, const ru_part *part,
                             const ru_guests_options *guests, ru_arena *arena, ru_err *err)
{
    uint8_t token[32]; /* that nobody has */
    ru_node_id self;
    ru_guests_options go = *guests;
    ru_part p = *part;
    ru_self_random(token, sizeof token);
    ru_self_random(&self.v, sizeof self.v);
    ru_self_random(&go.self.v, sizeof go.self.v);
    const ru_node_options o = {.chan = {.self = self,
                                        .address = "none:0",
                                        .job = go.job,
                                        .token = token,
                                        .token_bytes = sizeof token,
                                        .peers_max = 1,
                                        .streams_max = 1,
                                        .slots_max = 1},
                               .link = {&no_link, NULL},
                               .member = {.self = {.node = self, .address = "none:0"}, .n_max = 1},
                               .timers = ru_node_loop_timers(bridge)};
    RU_TRY(ru_node_open(&o, arena, &bridge->node, err));
    p.what_first = p.guest_end;
    p.what_end = p.guest_end + 1;
    ru_node_part(bridge->node, &p);
    return ru_node_guests(bridge->node, &go, arena, err);
}
