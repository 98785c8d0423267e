/* Parcels: a head of a few bytes and a body of any size, from one process to another.
 *
 *   small    head and body in one message
 *   large    OFFER(head, size) -> ; the receiver finds memory, posts a slot -> GRANT ; the body as
 *            a stream, straight into that memory
 *
 * A receiver grants what its bound of memory allows, in the order of the offers, and a sender has
 * RU_PULL_OFFERS_MAX offers at one receiver: so no peer takes more than it is given, and no stream
 * ever waits for a slot. A parcel arrives once or, when the connection ends, perhaps not: `sent`
 * says what is certain. Large parcels may overtake each other.
 *
 * No connection outlives a parcel that no honest sender sends: one of wrong sizes, or an offer that
 * the receiver could never grant, because its body is small, larger than body_max, or on its way
 * already. Such an offer would stay first in the list and hold up those of all others.
 * Nor does one on which more than RU_PULL_WAITS_MAX offers wait. An honest sender counts an offer
 * until it hears of the grant, and counts from 0 again with a new connection only, when the
 * receiver forgets the offers of the old one: no more than RU_PULL_OFFERS_MAX of its offers wait.
 *
 * Part of a node's part: the owner hands it the messages of its range and its streams. Parcels to
 * this process itself take the same way without the channel: the owner calls ru_pull_local when the
 * RU_FX_LOCAL of that number comes.
 *
 * Source: homa-2018 (grants by the receiver). Thread: loop only. */
#ifndef RU_COMM_PULL_PULL_H
#define RU_COMM_PULL_PULL_H

#include "comm/chan/chan.h"
#include "comm/pull/bufs.h"

typedef struct ru_pull ru_pull;

enum {
    RU_PULL_HEAD_MAX = 192,
    RU_PULL_SMALL_MAX = 16384, /* bodies up to here travel in the message */
    RU_PULL_OFFERS_MAX = 32,
    RU_PULL_WAITS_MAX = 4 * RU_PULL_OFFERS_MAX, /* of one peer, at a receiver */
    RU_PULL_MESSAGES = 3,                       /* numbers of messages that it uses */
};

typedef struct ru_pull_user {
    void *self;
    /* A parcel: `head` is view until return; `body` is the user's from here on (ru_bufs_put; NULL:
     * it has none). */
    void (*got)(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx);
    /* The body of a parcel with a cookie is read no more. !ok: the receiver may not have it. */
    void (*sent)(void *self, uint64_t cookie, bool ok, ru_time now, ru_effects *fx);
} ru_pull_user;

typedef struct ru_pull_options {
    ru_chan *chan;
    ru_node_id self;
    ru_bufs *bufs; /* of bodies, both ways */
    ru_pull_user user;
    uint32_t peers_max;
    uint32_t what_first;   /* RU_PULL_MESSAGES numbers of messages from here on */
    uint32_t local;        /* number of its RU_FX_LOCAL */
    uint64_t background;   /* bit w: large parcels with `what` w let all others go first; w < 64 */
    int64_t body_max;      /* bytes of a body that comes; 0: what `bufs` may hold */
    int64_t granted_bytes; /* bodies under way to this process at one time; 0: a quarter of bufs */
} ru_pull_options;

/* Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_pull_open(const ru_pull_options *opt, ru_arena *arena, ru_pull **out,
                                   ru_err *err);
void ru_pull_close(ru_pull *p); /* bodies that it holds go back; NULL is fine */

/* Send a parcel, of at most what the receiver's `bufs` may hold. take: the body is a buffer of
 * `bufs` and belongs to the parcel now. Otherwise true: the body was copied; false: it is a view
 * until `sent` with the cookie. To a process that is not connected a large one is not sent: `sent`
 * with !ok follows. */
bool ru_pull_send(ru_pull *p, ru_node_id to, uint32_t what, const void *head, uint32_t head_bytes,
                  void *body, int64_t body_bytes, bool take, uint64_t cookie, ru_time now,
                  ru_effects *fx);

/* The sender has no more use for the body of the one parcel with this cookie: it belongs to the
 * parcel now, and `sent` is not called. false: there is not exactly one. */
bool ru_pull_give(ru_pull *p, uint64_t cookie);

/* What the owner's part hears. */
void ru_pull_step(ru_pull *p, const ru_event *ev,
                  ru_effects *fx); /* MESSAGE of its range, UP, DOWN */
void ru_pull_local(ru_pull *p, ru_time now, ru_effects *fx);
bool ru_pull_owns(const ru_pull *p, uint64_t cookie);
void ru_pull_sent(ru_pull *p, uint64_t cookie, ru_time now, ru_effects *fx);
void ru_pull_arrived(ru_pull *p, uint64_t cookie, ru_time now, ru_effects *fx);
void ru_pull_failed(ru_pull *p, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx);
void ru_pull_room(ru_pull *p, ru_time now, ru_effects *fx);

/* Parcels of peers that are not connected any more fail: after the owner, or membership, dropped a
 * peer, of which the channel says nothing. */
void ru_pull_sweep(ru_pull *p, ru_effects *fx);

#endif
