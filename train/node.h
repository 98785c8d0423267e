/* One process of a job, wired: channel, membership, elastic training; the same under Linux and in
 * the simulator. Performs the effects of the step machines and hands upcalls to who owns them.
 *
 *   link --upcalls--> chan --up/down/message--> member --LOCAL--> elastic --> device
 *                          --sent/arrived-----> elastic (and its group of collectives)
 *
 * Thread: loop only. */
#ifndef RU_TRAIN_NODE_H
#define RU_TRAIN_NODE_H

#include "train/elastic.h"

typedef struct ru_node ru_node;

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
    ru_elastic_options elastic; /* member, chan, self are filled in here */
    ru_node_timer_ops timers;
    void (*log)(void *self, int level, const char *line, ru_time now); /* may be NULL */
    void *log_self;
} ru_node_options;

/* The link needs its user before it can be opened and the node its link: give the link's ops here,
 * then pass ru_node_link_user to the link. */
RU_MUST_USE ru_status ru_node_open(const ru_node_options *opt, ru_arena *arena, ru_node **out,
                                   ru_err *err);
void ru_node_close(ru_node *n);
const ru_link_user *ru_node_link_user(ru_node *n);

void ru_node_start(ru_node *n, ru_time now);
void ru_node_timer(ru_node *n, uint32_t what, ru_time now);
void ru_node_stop(ru_node *n, bool all, ru_time now);

/* Answers of the device, on the loop thread. */
void ru_node_built(ru_node *n, ru_status st, uint64_t layout, ru_time now);
void ru_node_ready(ru_node *n, uint32_t tensor, const ru_span *span, ru_time now);
void ru_node_computed(ru_node *n, ru_status st, int64_t compute_ns, ru_time now);
void ru_node_aborted(ru_node *n, ru_time now);
void ru_node_local_opened(ru_node *n, ru_status st, ru_time now);
void ru_node_reduced(ru_node *n, uint32_t batch, ru_time now);
void ru_node_updated(ru_node *n, ru_status st, ru_time now);

ru_member *ru_node_member(ru_node *n);
ru_elastic *ru_node_elastic(ru_node *n);
ru_chan *ru_node_chan(ru_node *n);

#endif
