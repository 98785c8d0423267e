/* One process of a job: a channel, a membership, and parts. A part is a step machine with a range
 * of numbers for its messages and timers; elastic training is one, a parameter store or a service
 * are others. The node performs the effects that parts ask for, in the order they were asked.
 *
 *   link --upcalls--> chan --up/down/message--> member --LOCAL--> every part
 *                          --message------------------------> the part whose range it is in
 *                          --sent/arrived/failed------------> the part that owns the stream
 *   guests' link --> guests' chan --message--> the part whose guest numbers hold it (guests.h)
 *
 * The same node runs under Linux (train/worker, comm/node/loop.h) and in the simulator
 * (sim/process.h).
 *
 * Source: the effects of etcd's raft and of TigerBeetle's state machines as data; ours: several
 * machines behind one channel.
 * Thread: loop only. */
#ifndef RU_COMM_NODE_NODE_H
#define RU_COMM_NODE_NODE_H

#include "comm/chan/chan.h"
#include "comm/member/member.h"

typedef struct ru_node ru_node;

enum {
    RU_NODE_PARTS_MAX = 8,
    RU_NODE_WHAT_FIRST = 0x200,  /* numbers below are membership's */
    RU_NODE_WHAT_OWNER = 0x1000, /* from here on: messages of the process that owns the node */
};

/* What a part does. Every function is called on the loop thread and adds its effects to `fx`. */
typedef struct ru_part_ops {
    const char *name; /* for logs */
    /* START, UP, DOWN and membership's LOCAL come to every part; TIMER and MESSAGE only to the part
     * whose range holds ev->what. NULL: the part hears guests alone. */
    void (*step)(void *self, const ru_event *ev, ru_effects *fx);
    /* Streams of the channel, and of that of guests: who began this one? NULL: the part has none,
     * nor the next three. */
    bool (*owns)(void *self, uint64_t cookie);
    void (*sent)(void *self, uint64_t cookie, ru_time now, ru_effects *fx);
    void (*arrived)(void *self, uint64_t cookie, ru_time now, ru_effects *fx);
    void (*failed)(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx);
    /* The channel takes streams again. NULL: the part asks for few. */
    void (*room)(void *self, ru_time now, ru_effects *fx);
    /* Of guests (comm/node/guests.h): MESSAGE of a number of the part's guests, DOWN when one went
     * or was refused. Answers are RU_FX_SEND under such numbers. NULL: the part takes none. */
    void (*guest)(void *self, const ru_event *ev, ru_effects *fx);
    /* Is its work over, so that peers that go are no news? NULL: never. */
    bool (*ended)(const void *self);
} ru_part_ops;

typedef struct ru_part {
    const ru_part_ops *ops;
    void *self;
    uint32_t what_first, what_end;   /* its messages and timers; from RU_NODE_WHAT_FIRST on */
    uint32_t guest_first, guest_end; /* messages to and from guests, apart from those; both 0: it
                                        takes none */
} ru_part;

/* Timers of the driver. Setting one again moves it. */
typedef struct ru_node_timer_ops {
    void (*set)(void *self, uint32_t what, ru_time at);
    void (*off)(void *self, uint32_t what);
    void *self;
} ru_node_timer_ops;

typedef struct ru_node_options {
    ru_chan_options chan;
    ru_link link;
    ru_member_options member;
    ru_node_timer_ops timers;
    void (*log)(void *self, int level, const char *line, ru_time now); /* may be NULL */
    void *log_self;
} ru_node_options;

/* The link needs its user before it can be opened and the node its link: give the link's ops here,
 * then pass ru_node_link_user to the link. Parts are added before ru_node_start.
 * Errors: RU_E_MEM, those of the channel and of membership. */
RU_MUST_USE ru_status ru_node_open(const ru_node_options *opt, ru_arena *arena, ru_node **out,
                                   ru_err *err);
/* Ranges of parts must not overlap: a crash. */
void ru_node_part(ru_node *n, const ru_part *part);
/* No upcall and no effect from here on: owners close their parts between this and ru_node_close.
 * NULL is fine. */
void ru_node_quiet(ru_node *n);
void ru_node_close(ru_node *n); /* NULL is fine */
const ru_link_user *ru_node_link_user(ru_node *n);

void ru_node_start(ru_node *n, ru_time now);
void ru_node_timer(ru_node *n, uint32_t what, ru_time now);

/* Around every call that an owner makes into one of its parts from outside (a device's answer, a
 * request of a user): effects go into what ru_node_enter returns and are performed by the last
 * ru_node_leave. Nests. */
ru_effects *ru_node_enter(ru_node *n, ru_time now);
void ru_node_leave(ru_node *n, ru_time now);

ru_member *ru_node_member(ru_node *n);
ru_chan *ru_node_chan(ru_node *n);
const ru_node_options *ru_node_opened(const ru_node *n); /* what it was opened with */

#endif
