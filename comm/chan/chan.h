/* Timed, preemptible transfers between the processes of a job (TimedRPC).
 *
 *   ru_chan_send --> egress (one for all peers: key = class, latest start, rank, arrival)
 *                      | pull: the smallest key among connections with room, one chunk
 *                    link (urgent and bulk connection per peer)  ...  link
 *                      | head: chunk names (stream, offset): placed directly
 *                    slots <-- ru_chan_post               messages --> user->message
 *
 * A chunk is self-describing, so a paused stream needs no message: the sender sends other chunks
 * and continues later; no byte is sent twice. Messages up to RU_CHAN_MESSAGE_MAX need no slot; a
 * stream does: it must be posted before or soon after its first chunk arrives (chunks for a stream
 * not yet posted wait in the kernel: receiving on that bulk connection pauses, never on the urgent
 * one; with `grants` the sender does not go beyond the first window, and streams that the receiver
 * asked for do not start, before it grants by class, deadline, rank and arrival over all senders as
 * many bytes as fill its link: half as much again as rate times round trip). Pure control: the time
 * comes in, the link does the work, so that the same code runs on sockets and in the simulator.
 *
 * Source: tracing-tictac-caramel-timedrpc note, part 3 (homa-2018 for grants).
 * Thread: loop only. */
#ifndef RU_COMM_CHAN_CHAN_H
#define RU_COMM_CHAN_CHAN_H

#include "env/link/link.h"
#include "trace/record/recorder.h"

typedef struct ru_chan ru_chan;

enum { RU_CHAN_MESSAGE_MAX = 64 << 10 };

typedef enum ru_chan_class {
    RU_CLASS_CONTROL, /* membership, commits, clocks, all messages; above 2 % of the bytes no better
                         than RU_CLASS_URGENT: messages then let queued urgent streams go first, for
                         2 ms at most */
    RU_CLASS_URGENT,  /* a process waits for it now */
    RU_CLASS_NORMAL,  /* gradients, parameters */
    RU_CLASS_BACKGROUND, /* state for joiners, logs, checkpoints */
    RU_CLASS_COUNT
} ru_chan_class;

typedef struct ru_xfer_id {
    uint64_t v; /* 0: none */
} ru_xfer_id;

/* Names one transfer between two nodes: stream is chosen by the user (plan epoch, bucket, step),
 * iter distinguishes uses of the same stream. */
typedef struct ru_stream_name {
    uint64_t stream;
    uint32_t iter;
} ru_stream_name;

typedef struct ru_chan_send_in {
    ru_node_id to;
    ru_stream_name name;
    ru_chan_class class;
    uint16_t rank;        /* order inside a class: smaller first */
    ru_time deadline;     /* last byte should arrive by then; ns 0: none */
    const ru_span *spans; /* [n_spans] scattered source; array (unless of one) and bytes are view
                             until `sent` or `failed` */
    uint32_t n_spans;
    bool fence; /* wait for the receiver's acknowledgement before `sent` (else: handed to the
                   kernel) */
    bool asked; /* the receiver asked for it: with its option `grants` no byte leaves before it
                   grants (ru_chan_post_in.asked) */
    uint64_t cookie;
    uint32_t plan;  /* for its record: low bits of the plan's id; 0: none */
    uint16_t label; /* ... name of what it is a part of (ru_recorder_name); 0: nothing */
} ru_chan_send_in;

typedef struct ru_chan_post_in {
    ru_node_id from;
    ru_stream_name name;
    const ru_span *spans; /* [n_spans] scattered place; array (unless of one) and bytes are view
                             until `arrived`, `failed` or ru_chan_unpost */
    uint32_t n_spans;
    bool asked;          /* grant from the first byte on, in the order of these two */
    ru_chan_class class; /* ... */
    uint16_t rank;
    uint64_t cookie;
    uint32_t plan; /* as in ru_chan_send_in */
    uint16_t label;
} ru_chan_post_in;

typedef struct ru_chan_user {
    void *self;
    void (*up)(void *self, ru_node_id node, const char *address, ru_time now);
    void (*down)(void *self, ru_node_id node, const char *address, ru_status why, ru_time now);
    /* A message; data is view until return. */
    void (*message)(void *self, ru_node_id from, uint32_t what, const void *data,
                    int64_t size_bytes, ru_time now);
    void (*sent)(void *self, uint64_t cookie, ru_time now);
    void (*failed)(void *self, uint64_t cookie, ru_status why, ru_time now); /* send or slot */
    void (*arrived)(void *self, uint64_t cookie, ru_time now); /* a slot is complete */
    /* Predicted to miss its deadline by late_ns (once per transfer and doubling of lateness);
     * may be NULL. */
    void (*late)(void *self, uint64_t cookie, int64_t late_ns, ru_time now);
    /* A call was refused with RU_E_LIMIT, and since then a stream or a slot ended or a peer
     * acknowledged messages: there may be room. Called from ru_chan_tick only; may be NULL. */
    void (*room)(void *self, ru_time now);
    /* Call ru_chan_tick at `at`, sooner than it said last (also: as soon as possible). Called from
     * within any call of the channel: set a timer, do not tick. May be NULL for who asks after
     * each call (ru_chan_tick returns the time). */
    void (*tick_at)(void *self, ru_time at);
} ru_chan_user;

typedef struct ru_chan_options {
    ru_node_id self;
    const char *address;  /* where others reach this process, host:port; announced to peers */
    uint64_t job;         /* hash of the job's id: others are refused */
    const uint8_t *token; /* [token_bytes] shared secret; proved by HMAC challenge before anything
                             else is read */
    uint32_t token_bytes;
    /* Of a channel that only accepts: the secret of the peer of this name, which it proves instead
     * of `token`; *key [*key_bytes] is view until return. False: nobody has the name, and it is
     * refused. NULL: all peers have `token`. */
    bool (*key_of)(void *self, ru_node_id node, const uint8_t **key, uint32_t *key_bytes);
    void *key_self;
    uint32_t peers_max, streams_max, slots_max; /* bounds; RU_E_LIMIT beyond */
    int64_t chunk_bytes; /* 0: from the measured rate (0.5 ms worth, 64 KiB .. 4 MiB; below 3 MB/s
                            20 ms) */
    double rate_bytes_per_s; /* of the network interface, start value; 0: measured */
    bool grants;             /* receiver-driven: senders wait for GRANT beyond the first window */
    bool crc;                /* check every payload (CRC32C) */
    int64_t buffer_bytes;    /* copies of messages, both ways; 0: 8 to 128 MiB by peers_max */
    int64_t reconnect_ns;    /* how long a cut pair is mended before `down`; 0: 1 s */
    int64_t silence_ns;      /* nothing heard for so long: a cut; 0: 10 s */
    ru_recorder *recorder;   /* takes a record of each stream and message at both ends, with one
                                `flow`; view; NULL: none. The times are those of the calls */
} ru_chan_options;

RU_MUST_USE ru_status ru_chan_open(const ru_chan_options *opt, const ru_link *link,
                                   const ru_chan_user *user, ru_arena *arena, ru_chan **out,
                                   ru_err *err);
void ru_chan_close(ru_chan *ch); /* NULL is fine */
/* Slots that may be posted, and streams that may be in flight, at the same time. */
uint32_t ru_chan_slots(const ru_chan *ch);
uint32_t ru_chan_streams(const ru_chan *ch);
/* Connections that a channel may have at once: a link needs room for as many. */
uint32_t ru_chan_conns(uint32_t peers_max);
/* What the link calls. */
const ru_link_user *ru_chan_link_user(ru_chan *ch);

/* Open the connections to an address; `up` or `down` (node 0) follows, but for a node that is up
 * already. The side that connects proves first. */
RU_MUST_USE ru_status ru_chan_connect(ru_chan *ch, const char *address, ru_time now, ru_err *err);
/* Forget a peer: streams and slots fail with RU_E_CANCELLED, no `down` follows. */
void ru_chan_drop(ru_chan *ch, ru_node_id node, ru_time now);
/* A peer that broke the rules of the channel's user: it ends with the next tick as one that broke
 * those of the channel does, with `down` and RU_E_PEER. `sentence` goes to the log; it begins with
 * "it" and is view for good. */
void ru_chan_refuse(ru_chan *ch, ru_node_id node, const char *sentence, ru_time now);
bool ru_chan_is_up(const ru_chan *ch, ru_node_id node);
/* When the oldest message was queued that this peer has not acknowledged; ns 0: all are, or it is
 * no peer. It acknowledges with its own messages, else within half a second. */
ru_time ru_chan_unacked(const ru_chan *ch, ru_node_id node);
/* The step under way, for records of messages; streams belong to the step that is their iter. */
void ru_chan_step(ru_chan *ch, uint32_t step);

/* Errors of all three: RU_E_PEER (not connected), RU_E_LIMIT, RU_E_ARG (also a name that is in
 * use). Messages are copied and arrive in order per peer, once, whatever happens to the
 * connections. So do streams but those without `fence` whose last bytes were on their way when a
 * connection broke: `sent` let go of them, the receiver's slot fails with RU_E_IO. Posting a stream
 * that its sender cancelled or lost before says so: RU_E_CANCELLED, RU_E_IO. */
RU_MUST_USE ru_status ru_chan_message(ru_chan *ch, ru_node_id to, uint32_t what, const void *data,
                                      int64_t size_bytes, ru_time now);
RU_MUST_USE ru_status ru_chan_send(ru_chan *ch, const ru_chan_send_in *in, ru_time now,
                                   ru_xfer_id *id);
RU_MUST_USE ru_status ru_chan_post(ru_chan *ch, const ru_chan_post_in *in, ru_time now,
                                   ru_xfer_id *id);
/* Drop what is not sent yet (the receiver is notified, and its slot fails). `failed` with
 * RU_E_CANCELLED follows at once, or when the link releases the current chunk, unless everything
 * was sent. No-op for an id that is done. */
void ru_chan_cancel(ru_chan *ch, ru_xfer_id id, ru_time now);
/* Withdraw a slot: bytes still coming for it are read and thrown away. The memory is free at
 * return. */
void ru_chan_unpost(ru_chan *ch, ru_xfer_id id, ru_time now);
/* Cancel and unpost everything whose stream & mask == value (a whole plan epoch), and throw away
 * what still comes under such names from now on: nothing of it can hold up a connection. */
void ru_chan_cancel_all(ru_chan *ch, uint64_t mask, uint64_t value, ru_time now);

/* Does the link still read memory of a stream with stream & mask == value, cancelled or not? When
 * it let go, `sent` or `failed` is called. */
bool ru_chan_reads(const ru_chan *ch, uint64_t mask, uint64_t value);

/* Time passes: aging, lateness, rates, keep-alives, handshake time-outs. Returns when to call
 * again. Earlier calls, also from within an upcall, cost nothing and do nothing but say so. */
ru_time ru_chan_tick(ru_chan *ch, ru_time now);

typedef struct ru_chan_stats {
    int64_t tx_bytes, rx_bytes, tx_chunks, rx_chunks;       /* payload */
    int64_t preemptions, inversions, thrown_bytes, refused; /* refused: handshakes and frames, */
    int64_t denied;                                         /* ... of which for want of the token */
    int64_t demoted; /* messages that gave way to urgent streams: control had more than 2 % */
    double rate_bytes_per_s; /* estimate of the interface's egress */
    int64_t chunk_bytes;     /* in force */
    uint32_t queued;         /* streams with bytes left */
} ru_chan_stats;
void ru_chan_stats_get(const ru_chan *ch, ru_chan_stats *into);

#endif
