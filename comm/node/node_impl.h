/* Inside of a node: its state, and guests beside it. Thread: loop only. */
#ifndef RU_COMM_NODE_NODE_IMPL_H
#define RU_COMM_NODE_NODE_IMPL_H

#include "base/log.h"
#include "comm/node/guests.h"

/* Numbers of timers above all parts' own. */
#define RUI_NODE_TIMERS_FIRST UINT32_C(0xfffffff0)
#define RUI_NODE_CHAN_TIMER   UINT32_MAX /* the channel asks for time */
#define RUI_NODE_GUEST_TIMER  UINT32_C(0xfffffffe)
#define RUI_NODE_IDLE_TIMER   UINT32_C(0xfffffffd)

typedef struct rui_guests rui_guests;

struct ru_node {
    ru_node_options opt;
    ru_chan *chan;
    ru_member *member;
    rui_guests *guests; /* NULL: none are taken */
    ru_part parts[RU_NODE_PARTS_MAX];
    uint32_t n_parts;
    ru_arena memory[2]; /* of effects: those being performed, and those that come meanwhile */
    ru_effects fx[2];
    uint32_t side;
    uint32_t depth; /* of calls into the machines; effects are performed when the last returns */
    bool performing;
    ru_time tick_at;
};

/* node.c */
ru_effects *rui_node_fx(ru_node *n);
void rui_node_say(ru_node *n, int level, const char *line, ru_time now);

/* guests.c; all but the last take a node without guests */
const ru_part *rui_guests_part(const ru_node *n, uint32_t what); /* NULL: no guest's number */
void rui_guests_send(ru_node *n, const ru_effect *f, ru_time now);
void rui_guests_tick(ru_node *n, ru_time now);
bool rui_guests_timer(ru_node *n, uint32_t what, ru_time now); /* false: not one of theirs */
void rui_guests_close(rui_guests *g);                          /* NULL is fine */

#endif
