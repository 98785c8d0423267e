/* A node on the loop of a Linux process: its timers, and one without members.
 *
 *     ru_node_loop bridge = {.loop = loop};
 *     ru_node_options o = {..., .timers = ru_node_loop_timers(&bridge)};
 *     ru_node_open(&o, arena, &bridge.node, err);
 *
 * Thread: loop only. */
#ifndef RU_COMM_NODE_LOOP_H
#define RU_COMM_NODE_LOOP_H

#include "comm/node/guests.h"
#include "env/loop/loop.h"

/* Owner: the caller; must not move while the loop runs. */
typedef struct ru_node_loop {
    ru_loop *loop;
    ru_node *node;
} ru_node_loop;

ru_node_timer_ops ru_node_loop_timers(ru_node_loop *bridge);

/* bridge->node without members: nobody can join it, and its only part hears guests. `part` needs
 * no numbers but those of its guests, `guests` no `self`. Then ru_node_start.
 * Errors: those of ru_node_open and ru_node_guests; bridge->node may be there then. */
RU_MUST_USE ru_status ru_node_loop_alone(ru_node_loop *bridge, const ru_part *part,
                                         const ru_guests_options *guests, ru_arena *arena,
                                         ru_err *err);

#endif
