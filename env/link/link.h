/* The interface of bulk data between processes: connections that carry frames.
 *
 * A frame is a header of RU_LINK_HEAD_BYTES and a payload. A link decides nothing: when a
 * connection has room it *pulls* the next frame from its user, who picks the most urgent chunk at
 * that moment; when a header has arrived it asks where the payload goes and puts it there, without
 * a copy in between. Implemented by env/link/link_tcp (sockets, optionally TLS) and sim/vnet
 * (virtual time).
 *
 * Every op may be called from within an upcall, `close` of the same connection included: the link
 * touches nothing of it afterwards.
 *
 * Thread: loop only; every call and upcall. Upcalls never nest inside ops calls, except `pull`,
 * which a link may call at any time but from within an upcall. */
#ifndef RU_ENV_LINK_H
#define RU_ENV_LINK_H

#include "env/event.h"

enum { RU_LINK_HEAD_BYTES = 40, RU_LINK_SPANS_MAX = 16, RU_LINK_FRAME_MAX = 64 << 20 };

typedef struct ru_conn_id {
    uint32_t v; /* index and generation; 0: none */
} ru_conn_id;

typedef enum ru_link_class {
    RU_LINK_URGENT, /* small messages: low-delay type of service */
    RU_LINK_BULK,   /* chunks of long transfers: throughput type of service */
    RU_LINK_CLASSES
} ru_link_class;

typedef struct ru_span {
    void *data; /* NULL (simulator): bytes that are only counted */
    int64_t size_bytes;
} ru_span;

/* A frame to send. The payload is read until `sent`. */
typedef struct ru_link_tx {
    uint8_t head[RU_LINK_HEAD_BYTES];
    ru_span spans[RU_LINK_SPANS_MAX];
    uint32_t n_spans;
    uint64_t cookie; /* given back by `sent` */
} ru_link_tx;

/* Where the payload of an arriving frame goes; the sizes (of all parts) add up to what the header
 * says. A place in more than RU_LINK_SPANS_MAX pieces is given in parts: when the spans of one are
 * full, `head` is asked again with the same header for the next. */
typedef struct ru_link_rx {
    ru_span spans[RU_LINK_SPANS_MAX];
    uint32_t n_spans;
    bool more; /* a further part follows; n_spans > 0 then */
} ru_link_rx;

typedef struct ru_link_user {
    void *self;
    /* A connection stands (TCP, and TLS where asked). `accepted`: the other side opened it. */
    void (*opened)(void *self, ru_conn_id c, bool accepted, const char *address, ru_time now);
    /* It ended, or could not be opened; c is dead now. `why` as in RU_EV_DOWN. */
    void (*closed)(void *self, ru_conn_id c, ru_status why, const char *sentence, ru_time now);
    /* There is room for at least one frame of up to room_bytes: fill tx. false: nothing to send;
     * the link asks again after `wake`. */
    bool (*pull)(void *self, ru_conn_id c, int64_t room_bytes, ru_link_tx *tx, ru_time now);
    /* The last byte of a pulled frame was handed to the kernel (left the sender, in the simulator).
     */
    void (*sent)(void *self, ru_conn_id c, uint64_t cookie, ru_time now);
    /* A header arrived. RU_OK: rx holds the payload's place and, by its sizes, its size; none: no
     * payload, `body` follows at once. RU_E_AGAIN: no place yet; the link keeps the header and
     * reads nothing more of this connection (the sender's window fills) until ops->resume(c), then
     * asks again with the same header. Any other status closes the connection with that reason. */
    ru_status (*head)(void *self, ru_conn_id c, const uint8_t *head, ru_link_rx *rx, ru_time now);
    /* The whole payload is in place. Any status but RU_OK closes the connection with that reason.
     */
    ru_status (*body)(void *self, ru_conn_id c, ru_time now);
} ru_link_user;

/* What a connection measured; 0: not known. */
typedef struct ru_link_facts {
    int64_t acked_bytes; /* since it opened */
    int64_t unsent_bytes, unacked_bytes;
    int64_t rtt_ns, rtt_min_ns;
    double delivery_bytes_per_s; /* as the kernel estimates it */
    bool app_limited;            /* the estimate stems from a time with nothing to send */
} ru_link_facts;

/* Knobs, set by plans; 0: leave. */
typedef struct ru_link_knobs {
    int64_t notsent_bytes;   /* no room while more than this is unsent in the kernel */
    int64_t sndbuf_bytes;    /* bound of unsent + unacked */
    double pace_bytes_per_s; /* never send faster */
    const char *congestion;  /* algorithm by name; absent ones are left with a log line */
} ru_link_knobs;

typedef struct ru_link_ops {
    const char *name;
    /* Start to open a connection to host:port; `opened` or `closed` follows. Never blocks.
     * Errors: RU_E_ARG for an address that is none, RU_E_LIMIT. */
    ru_status (*connect)(void *self, const char *address, ru_link_class class, ru_conn_id *c,
                         ru_err *err);
    /* At once; no `closed` follows, pulled frames are forgotten without `sent`. */
    void (*close)(void *self, ru_conn_id c);
    /* There may be something to pull now. */
    void (*wake)(void *self, ru_conn_id c);
    /* Continue after `head` returned RU_E_AGAIN; `head` is called again soon, but not inside this
     * call. No-op for a connection that does not wait. */
    void (*resume)(void *self, ru_conn_id c);
    /* The rest of the payload that arrives on c just now goes here instead, spans of the same sizes
     * in all: its place was withdrawn. What arrived already stays where it is; the first bytes of
     * rx are not touched. No-op when none arrives. May be NULL: the user closes the connection
     * instead. */
    void (*redirect)(void *self, ru_conn_id c, const ru_link_rx *rx);
    void (*knobs)(void *self, ru_conn_id c, const ru_link_knobs *knobs);
    void (*facts)(void *self, ru_conn_id c, ru_link_facts *into);
    /* This process' clock now: later than `now` of an upcall that takes long. NULL: `now` is exact.
     */
    ru_time (*clock)(void *self);
    /* When the last bytes read from c came to this machine, as its kernel stamped them: never
     * before those of the frame that is told. ns 0: not known. May be NULL. */
    ru_time (*arrived)(void *self, ru_conn_id c);
} ru_link_ops;

typedef struct ru_link {
    const ru_link_ops *ops;
    void *self;
} ru_link;

#endif
