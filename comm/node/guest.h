/* The other side of comm/node/guests.h: a process that is no member dials in to a service.
 *
 *   ru_guest_dial --> up --> ru_guest_send ... message --> down (lost, or refused with a sentence)
 *
 * After `down` its owner may dial again, also another process of the service. What was sent and not
 * answered before may have been done or not: messages are such that doing them twice is no harm.
 *
 * Thread: loop only. */
#ifndef RU_COMM_NODE_GUEST_H
#define RU_COMM_NODE_GUEST_H

#include "comm/node/guests.h"

typedef struct ru_guest ru_guest;

enum { RU_GUEST_TIMER = 1, RU_GUEST_REASON_MAX = 120 };

typedef struct ru_guest_options {
    ru_node_id self;      /* drawn at random, its name for life */
    const char *address;  /* of its link, although no process connects to it; "" is valid */
    uint64_t job;         /* as in ru_guests_options */
    const uint8_t *token; /* [token_bytes] of the guests */
    uint32_t token_bytes;
    ru_link link;             /* room for ru_guest_conns connections */
    ru_node_timer_ops timers; /* one: RU_GUEST_TIMER */
    void (*up)(void *self, ru_time now);
    void (*message)(void *self, uint32_t what, const void *data, int64_t size_bytes, ru_time now);
    /* RU_E_PERM: refused, with the service's sentence; else the connection was lost or could not be
     * had. Dialing again from within is fine. */
    void (*down)(void *self, ru_status why, const char *sentence, ru_time now);
    /* Streams of the service: so many slots of ru_guest_chan at one time, with grants. 0: none;
     * the two may be NULL then. */
    uint32_t slots_max;
    void (*arrived)(void *self, uint64_t cookie, ru_time now);
    void (*failed)(void *self, uint64_t cookie, ru_status why, ru_time now);
    /* Streams to the service; NULL: it sends none. `room`: the channel takes streams again. */
    void (*sent)(void *self, uint64_t cookie, ru_time now);
    void (*room)(void *self, ru_time now);
    void *self_up;
} ru_guest_options;

uint32_t ru_guest_conns(void);

/* Errors: RU_E_MEM, those of the channel. Everything lives in `arena`. */
RU_MUST_USE ru_status ru_guest_open(const ru_guest_options *opt, ru_arena *arena, ru_guest **out,
                                    ru_err *err);
void ru_guest_close(ru_guest *g); /* NULL is fine */
const ru_link_user *ru_guest_link_user(ru_guest *g);
void ru_guest_timer(ru_guest *g, ru_time now);
ru_chan *ru_guest_chan(ru_guest *g);
ru_node_id ru_guest_host(const ru_guest *g); /* the service that it is connected to; 0: none */

/* Leaves the service that it is connected to, if any. Errors: RU_E_ARG for no address. */
RU_MUST_USE ru_status ru_guest_dial(ru_guest *g, const char *address, ru_time now, ru_err *err);
/* Errors: RU_E_PEER while it is not connected, RU_E_LIMIT, RU_E_ARG for more than
 * RU_CHAN_MESSAGE_MAX bytes. */
RU_MUST_USE ru_status ru_guest_send(ru_guest *g, uint32_t what, const void *data,
                                    int64_t size_bytes, ru_time now);

#endif
