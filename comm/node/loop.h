/* The timers of a node on the loop of a Linux process.
 *
 *     ru_node_loop bridge = {.loop = loop};
 *     ru_node_options o = {..., .timers = ru_node_loop_timers(&bridge)};
 *     ru_node_open(&o, arena, &bridge.node, err);
 *
 * Thread: loop only. */
#ifndef RU_COMM_NODE_LOOP_H
#define RU_COMM_NODE_LOOP_H

#include "comm/node/node.h"
#include "env/loop/loop.h"

/* Owner: the caller; must not move while the loop runs. */
typedef struct ru_node_loop {
    ru_loop *loop;
    ru_node *node;
} ru_node_loop;

ru_node_timer_ops ru_node_loop_timers(ru_node_loop *bridge);

#endif
