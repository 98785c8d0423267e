/* Guests: peers that are no members. A function, a federated client or a load generator dials in
 * (comm/node/guest.h) with the guests' own token at an address of its own, and exchanges messages
 * with one part of the process. It is in no view, counts in no quorum, reaches no other part, and
 * shares no memory with the members' channel.
 *
 *   guest --MESSAGE(what)--> limits --> the part whose guest numbers hold `what`
 *   guest <--MESSAGE(what)-- the part's RU_FX_SEND under one of its guest numbers
 *   guest <--REFUSED(sentence)-- beyond a limit; half a second later the connection is closed
 *
 * What one guest may do is bounded in everything: number of guests, bytes of a message, messages
 * and bytes a second, messages without an answer, time without a message. A part answers each
 * message of a guest with one message, in any order and at any time.
 *
 * Each guest that there may be takes at most 120 KiB of the arena from the start, of which half is
 * for messages on their way: the system gives an idle guest only the pages that it has used.
 *
 * Thread: loop only. */
#ifndef RU_COMM_NODE_GUESTS_H
#define RU_COMM_NODE_GUESTS_H

#include "comm/node/node.h"

enum { RU_GUEST_REFUSED = 1 /* number of that message; others are the parts' */ };

typedef struct ru_guests_options {
    ru_node_id self;      /* as guests see this process */
    const char *address;  /* where they reach it */
    uint64_t job;         /* hash of the service's name: others are refused */
    const uint8_t *token; /* [token_bytes] of the guests, never the job's */
    uint32_t token_bytes;
    /* Each guest has a key of its own: that of the guest whose node is `node`, which ru_guest_name
     * makes of its name. As ru_chan_options.key_of; NULL: all have `token`. */
    bool (*key_of)(void *self, ru_node_id node, const uint8_t **key, uint32_t *key_bytes);
    void *key_self;
    ru_link link;            /* of its own; room for ru_guests_conns connections */
    uint32_t n_max;          /* guests at once; 0: 64 */
    uint32_t message_bytes;  /* of a message; 0: 4 KiB; at most RU_CHAN_MESSAGE_MAX */
    uint32_t messages_per_s; /* of a guest, a second's worth at once; 0: 100 */
    uint32_t bytes_per_s;    /* likewise; 0: 256 KiB; at least message_bytes */
    uint32_t unanswered_max; /* messages of a guest that wait for their answer; 0: 16 */
    int64_t idle_ns;         /* without a message for so long: refused; 0: 60 s */
    uint32_t streams_max;    /* that parts send to guests at one time; 0: none */
    uint32_t slots_max;      /* that parts receive from guests at one time; 0: none */
} ru_guests_options;

/* The node of the guest of this name, for services with a key for each guest. */
ru_node_id ru_guest_name(const char *name);

/* Connections that the link needs room for. */
uint32_t ru_guests_conns(uint32_t n_max);

/* Take guests, after ru_node_open and before ru_node_start. Everything lives in `arena`.
 * Errors: RU_E_ARG for options outside of their limits, RU_E_MEM, those of the channel. */
RU_MUST_USE ru_status ru_node_guests(ru_node *n, const ru_guests_options *opt, ru_arena *arena,
                                     ru_err *err);
/* What that link calls. */
const ru_link_user *ru_node_guests_link_user(ru_node *n);

/* Their channel, for parts that send streams to guests: `sent`, `failed` and `room` come to the
 * part whose `owns` knows the cookie, as for those of members. */
ru_chan *ru_node_guests_chan(ru_node *n);

typedef struct ru_guests_facts {
    uint32_t n;       /* connected now and not refused */
    uint64_t taken;   /* messages handed to parts so far */
    uint64_t refused; /* guests refused so far */
} ru_guests_facts;
void ru_node_guests_facts(const ru_node *n, ru_guests_facts *into);

#endif
