/* One process that trains: a node (comm/node/node.h) with elastic training as a part, and the calls
 * by which its device answers.
 *
 * Thread: loop only. */
#ifndef RU_TRAIN_ELASTIC_PEER_H
#define RU_TRAIN_ELASTIC_PEER_H

#include "comm/node/node.h"
#include "train/elastic/elastic.h"

typedef struct ru_peer ru_peer;

enum { RU_PEER_WHAT_OWNER = 0x1000 }; /* messages from here on are the owner's own */

typedef struct ru_peer_options {
    ru_chan_options chan;
    ru_link link;
    ru_member_options member;
    ru_elastic_options elastic; /* member, chan, self are filled in here */
    ru_node_timer_ops timers;
    void (*log)(void *self, int level, const char *line, ru_time now); /* may be NULL */
    void *log_self;
    /* Messages of the owner's own kinds; may be NULL: ignored. */
    void (*owner)(void *self, ru_node_id from, uint32_t what, const void *data, int64_t size_bytes,
                  ru_time now);
    void *owner_self;
} ru_peer_options;

/* The link needs its user before it can be opened and the node its link: give the link's ops here,
 * then pass ru_peer_link_user to the link. */
RU_MUST_USE ru_status ru_peer_open(const ru_peer_options *opt, ru_arena *arena, ru_peer **out,
                                   ru_err *err);
void ru_peer_close(ru_peer *n);
const ru_link_user *ru_peer_link_user(ru_peer *n);

void ru_peer_start(ru_peer *n, ru_time now);
void ru_peer_timer(ru_peer *n, uint32_t what, ru_time now);
void ru_peer_stop(ru_peer *n, bool all, ru_time now);

/* Answers of the device, on the loop thread. */
void ru_peer_built(ru_peer *n, ru_status st, uint64_t layout, ru_time now);
void ru_peer_ready(ru_peer *n, int64_t step, uint32_t tensor, const ru_span *span, ru_time now);
void ru_peer_computed(ru_peer *n, int64_t step, ru_status st, int64_t compute_ns, ru_time now);
void ru_peer_aborted(ru_peer *n, ru_time now);
void ru_peer_local_opened(ru_peer *n, ru_status st, ru_time now);
void ru_peer_reduced(ru_peer *n, int64_t step, uint32_t bucket, ru_time now);
void ru_peer_updated(ru_peer *n, int64_t step, ru_status st, ru_time now);

ru_node *ru_peer_node(ru_peer *n);
ru_member *ru_peer_member(ru_peer *n);
ru_elastic *ru_peer_elastic(ru_peer *n);
ru_chan *ru_peer_chan(ru_peer *n);
ru_node_id ru_peer_self(const ru_peer *n);

#endif
