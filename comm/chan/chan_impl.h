/* Inside of a channel. Files by meaning:
 *
 *   chan.c        open, close, what the user calls
 *   chan_shake.c  connections until they are proved: greeting, proof, refusal, time-out
 *   chan_peer.c   peers: a proved pair is adopted, cut, resumed, down
 *   chan_item.c   sequenced frames: messages and control messages about streams; kept until
 * acknowledged chan_send.c   what the link pulls; streams until acknowledged chan_recv.c   what the
 * link brings chan_control.c   control messages about streams: acknowledgements, grants, cancels,
 * questions chan_tick.c   time chan_trace.c  records of streams and messages chan_clock.c  what the
 * clocks of peers show  chan_expect.c  what streams took
 *
 * A peer outlives its connections: after a cut both sides keep their streams, slots and items;
 * whoever opened the pair opens a new one, the proofs say how far each got (session, received),
 * items are repeated from there and each stream asks which intervals the receiver holds.
 *
 * Thread: loop only. */
#ifndef RU_COMM_CHAN_CHAN_IMPL_H
#define RU_COMM_CHAN_CHAN_IMPL_H

#include "comm/chan/chan.h"
#include "comm/chan/egress.h"
#include "comm/chan/frame.h"
#include "comm/chan/hmac.h"
#include "comm/chan/ingress.h"
#include "comm/chan/names.h"
#include "comm/chan/pool.h"
#include "cost/step/recur.h"
#include "env/link/refusal.h"

enum {
    RUI_WHOLE_MAX = 64 << 10,     /* urgent streams up to this are copied and sent whole: they do
                                     not wait behind chunks that other sockets hold */
    RUI_WHOLE_BUDGET = 256 << 10, /* of them per peer, unacknowledged; a part of the protocol */
    RUI_WHOLE_COST = 2048,        /* each counts this much more */
    RUI_EARLY_MAX = RUI_WHOLE_BUDGET / (RUI_WHOLE_COST + 1), /* so that there are no more */
    RUI_SINK_BYTES = 256 << 10, /* thrown bytes are read over each other here */
    RUI_UNPROVED_MIN = 64,
    RUI_FIRST_WINDOW = 64 << 10, /* with grants: sent unasked; a part of the protocol */
    RUI_ACK_EVERY = 32,          /* sequenced frames, or so many bytes of them */
    RUI_ACK_BYTES = 32 << 10,
    RUI_LAZY_MAX = 16,         /* acknowledgements of whole streams that wait for company */
    RUI_LAZY_BYTES = 64 << 10, /* of such streams: a part of RUI_WHOLE_BUDGET */
    RUI_LAZY_NS = 2000000,
    RUI_LAZY_BULK_NS = 100000000, /* of streams in chunks: only their records wait */
    RUI_LAZY_GRID_NS = 50000000,  /* these leave at common instants: one tick for many peers */
};

typedef enum rui_conn_state {
    RUI_CONN_FREE,
    RUI_CONN_DIALING,
    RUI_CONN_GREET, /* waits for the other's greeting */
    RUI_CONN_PROVE, /* waits for the other's proof */
    RUI_CONN_READY, /* proved, waits for the other connection of its pair */
    RUI_CONN_LIVE,
    RUI_CONN_DYING, /* says why, then closes */
} rui_conn_state;

enum { RUI_OUT_HELLO = 1, RUI_OUT_PROOF = 2, RUI_OUT_ERR = 4 };

typedef enum rui_rx_kind {
    RUI_RX_NONE,
    RUI_RX_SHAKE,
    RUI_RX_ITEM,
    RUI_RX_SLOT, /* bulk chunk or whole stream into a slot */
    RUI_RX_THROW,
} rui_rx_kind;

/* What a connection needs for its handshake, its end and control messages. Apart from it: frames
 * look at the connection only, and with this inside there would be two of them in a page, not
 * twenty. */
typedef struct rui_shake {
    rui_hmac *own; /* of a peer with a key of its own, until its connection lives; else NULL */
    rui_proof mine, theirs;
    uint8_t digest_mine[RUI_HMAC_BYTES], digest_theirs[RUI_HMAC_BYTES];
    uint8_t hello_out[RUI_HELLO_MAX], proof_out[RUI_PROOF_BYTES];
    uint8_t in[RUI_HELLO_MAX];
    uint32_t hello_bytes;
    ru_status err_status;
    const char *err_text; /* static */
    uint8_t err_out[96];
    char address[RUI_ADDRESS_MAX + 1]; /* of the connection; of the node once it proved itself */
    char claimed[RUI_ADDRESS_MAX + 1]; /* of the node, as it greeted */
} rui_shake;

typedef struct rui_conn {
    rui_name name; /* stream: the link's id */
    rui_conn_state state;
    bool accepted;
    uint8_t class;
    uint8_t out; /* RUI_OUT_ to be pulled */
    uint32_t next_free;
    uint32_t peer, dial; /* RUI_NONE: none */
    ru_time since;
    /* The frame that arrives. */
    uint32_t tx_live; /* frames the link has */
    rui_rx_kind rx_kind;
    rui_frame rx;
    uint8_t rx_head[RU_LINK_HEAD_BYTES];
    uint32_t rx_slot, rx_slot_gen, rx_block;
    ru_time rx_begun;    /* its header came */
    int64_t rx_placed;   /* bytes whose place the link knows */
    int64_t rx_part;     /* of these, before the part it has now */
    bool rx_dup;         /* a repeated frame */
    bool rx_more, waits; /* waits: for the slot that rx names, or until the pair is adopted */
    uint64_t node, pair;
    uint64_t host; /* hash of the connection's address without its port */
    uint32_t wishes;
    rui_shake *shake; /* its own, for life */
} rui_conn;

typedef struct rui_dial {
    bool used;
    uint64_t pair;
    uint32_t conn[RU_LINK_CLASSES];
    uint32_t peer; /* to be reconnected, RUI_NONE: a first connection */
    ru_time at;    /* next attempt; ns 0: in progress */
    int64_t pause_ns;
    char address[RUI_ADDRESS_MAX + 1];
} rui_dial;

typedef enum rui_peer_state {
    RUI_PEER_FREE,
    RUI_PEER_UP,
    RUI_PEER_CUT,
    RUI_PEER_ENDING
} rui_peer_state;

/* Asking a peer for its time. */
typedef struct rui_clock {
    bool ask, answer;            /* to be pulled */
    ru_time asked;               /* our time in the question under way; ns 0: none */
    uint64_t question;           /* their time in the question to be answered */
    ru_time came;                /* when it came */
    uint32_t n;                  /* answers in this round */
    ru_time at;                  /* of the best of them: the middle */
    int64_t offset_ns, round_ns; /* their clock less ours; both ways together */
    bool known;                  /* by either side */
    int64_t best_ns;             /* their clock less ours, by the best answer so far */
    int64_t best_bound_ns;       /* of its error; where this side asks */
    ru_time best_at;
} rui_clock;

typedef struct rui_peer {
    rui_name name; /* stream: node id */
    rui_peer_state state;
    uint32_t next_free;
    /* Ticks look at all of this for many peers: in as few lines of the cache as may be. */
    bool opener;          /* this side opened the pair */
    bool active, in_link; /* in the list of those; the kernel has bytes to it, or had some since
                             the last sample */
    uint32_t lazy;        /* acknowledgements that leave with the next frame, or at lazy_at */
    ru_time lazy_at;
    ru_time yields_at;  /* a message gives way to urgent streams since; ns 0: none does */
    const char *doomed; /* it ends with the next tick: why, one sentence; NULL: it stays */
    uint32_t conn[RU_LINK_CLASSES];
    ru_conn_id link[RU_LINK_CLASSES]; /* of conn, where there is one: waking looks at no more */
    ru_time cut_at, mend_at, heard_at, spoke_at;
    uint64_t rx_seq, rx_told;
    uint64_t pair;
    uint64_t session[2]; /* its name, and another one by which the other side may know it; 0 */
    uint32_t wishes;
    uint32_t dial;
    ru_status cut_why;
    uint32_t cuts; /* since something arrived */
    /* Sequenced frames. */
    uint64_t tx_seq, tx_acked;
    uint32_t item_first, item_last, item_next; /* unacknowledged; next to be pulled */
    uint32_t items;                            /* unacknowledged */
    int64_t block_bytes;                       /* their memory */
    int64_t whole_out, whole_in;               /* budgets of whole streams */
    uint32_t stream_first, cancel_first;       /* streams; those whose cancel is to be pulled */
    bool ack_due;
    int64_t untold_bytes; /* that came in sequenced frames and are not acknowledged */
    int64_t lazy_bytes;
    int64_t acked_bytes[RU_LINK_CLASSES]; /* as the link said last */
    rui_clock clock;
    char address[RUI_ADDRESS_MAX + 1], dialed[RUI_ADDRESS_MAX + 1];
} rui_peer;

typedef struct rui_item {
    uint32_t next;
    rui_frame_type type;
    uint8_t class, flags;
    uint16_t rank;
    uint32_t iter, len, block;
    uint64_t stream, offset, seq;
    ru_time since;                     /* queued; of messages */
    uint32_t stream_index, stream_gen; /* whole streams: whom to tell; RUI_NONE: nobody */
} rui_item;

typedef enum rui_stream_state {
    RUI_STREAM_FREE,
    RUI_STREAM_WHOLE,  /* copied into an item */
    RUI_STREAM_QUEUED, /* NEW, QUEUED, ACTIVE and PAUSED: the egress has it, or it waits for a grant
                          or for the receiver's intervals */
    RUI_STREAM_DRAINED, /* last byte handed to the kernel */
    RUI_STREAM_CANCEL,  /* cancel to be pulled, or pulled and not confirmed */
} rui_stream_state;

typedef struct rui_stream {
    rui_name name;
    uint32_t next, prev; /* of the peer */
    uint32_t cancel_next;
    rui_stream_state state;
    uint32_t gen;
    uint8_t class;
    bool fence, told, doubt; /* told: `sent` or `failed` was called; doubt: asked what is held */
    bool cancel_queued;
    bool cut;      /* a connection was lost meanwhile */
    bool given_up; /* cancelled when all of it was in the link: not repeated after a cut */
    uint32_t asks; /* questions without an answer yet: only the last one's counts */
    uint16_t rank;
    uint32_t in_link; /* frames the link has */
    uint64_t cookie;
    ru_time deadline;
    const ru_span *spans;
    ru_span one;
    uint32_t n_spans, at_span;
    int64_t at, at_base, total_bytes, granted_bytes, left_bytes; /* left: not handed out yet */
    rui_range held[RUI_HELD_MAX];
    uint32_t n_held;
    ru_time since, first, last; /* sent by the user; first byte pulled, last byte let go; ns 0: not
                                   yet */
    int64_t predicted_ns;       /* from `since` until the receiver has all; 0: nobody knows */
    int64_t model_ns;           /* ... by the egress scheduler alone */
    uint32_t plan;
    uint16_t label;
    bool recorded;
} rui_stream;

typedef struct rui_expect rui_expect;

/* Names of records, by class. */
typedef struct rui_chan_names {
    uint16_t send[RU_CLASS_COUNT], recv[RU_CLASS_COUNT], message_out, message_in, up, down;
} rui_chan_names;

struct ru_chan {
    ru_chan_options opt;
    char address[RUI_ADDRESS_MAX + 1];
    ru_link link;
    ru_link_user link_user;
    ru_chan_user user;
    rui_hmac *hmac;
    uint64_t draws; /* nonces and pairs given out */
    rui_egress *egress;
    rui_expect *expect; /* NULL: nothing is recorded */
    rui_ingress *ingress;
    rui_conn *conns;
    rui_shake *shakes; /* [conns_max] */
    rui_peer *peers;
    rui_dial *dials;
    rui_stream *streams;
    uint32_t conns_max, conns_used, conns_free, unproved, unproved_max;
    uint32_t conns_open, conns_live; /* records taken; of these in RUI_CONN_LIVE */
    uint32_t peers_used, peers_free, dials_live;
    uint32_t *active; /* [n_active] peers that something came from or went to of late */
    uint32_t n_active;
    uint32_t streams_max, streams_used, streams_free, streams_live;
    rui_names conn_names, peer_names, stream_names;
    rui_cells items;
    rui_blocks blocks;
    uint8_t *sink;                     /* [RUI_SINK_BYTES] */
    uint8_t *scratch;                  /* [RUI_MESSAGE_MAX] */
    uint32_t soon_first;               /* slots filled when they were posted: `arrived` is due */
    int64_t window_bytes, grant_bytes; /* grants: outstanding in all, and one */
    double rx_rate;                    /* bytes/s that arrive, at most lately */
    int64_t rx_mark_bytes;
    ru_time sample_at, left_at; /* facts of all; what the kernels hold, before a send */
    ru_time tick_at;            /* of the next tick that does anything */
    ru_time scan_at;            /* ... that looks at all peers, dials and handshakes */
    bool starved, room;         /* a call found no room; something came back since then */
    uint32_t inside;
    ru_time now; /* of the last call */
    ru_refusals refusals;
    ru_chan_stats stats;
    ru_recorder *recorder; /* NULL: none */
    rui_chan_names names;
    uint32_t step;
    ru_time clock_at;    /* of the next question to all peers; ns 0: at once */
    uint32_t clock_left; /* in this round */
};

/* chan.c */
/* Something that calls find no room for came back: `room` is due, if one of them did. */
void rui_room(ru_chan *ch);
/* The slot that the bulk connection waits for, if any, is there now. */
void rui_resume_waiting(ru_chan *ch, uint32_t p, uint64_t stream, uint32_t iter);

/* chan_shake.c */
void rui_chan_opened(void *self, ru_conn_id id, bool accepted, const char *address, ru_time now);
void rui_shake_pull(ru_chan *ch, rui_conn *c, ru_link_tx *tx);
void rui_shake_sent(ru_chan *ch, rui_conn *c, uint64_t what, ru_time now);
ru_status rui_shake_head(ru_chan *ch, rui_conn *c, ru_link_rx *rx, ru_time now);
ru_status rui_shake_body(ru_chan *ch, rui_conn *c, ru_time now);
void rui_shake_tick(ru_chan *ch, ru_time now);
rui_conn *rui_conn_find(ru_chan *ch, ru_conn_id id);
rui_conn *rui_conn_new(ru_chan *ch, ru_conn_id id, ru_time now);
void rui_conn_free(ru_chan *ch, rui_conn *c);  /* the link knows already */
void rui_conn_close(ru_chan *ch, rui_conn *c); /* and tells the link */
void rui_conn_state_set(ru_chan *ch, rui_conn *c, rui_conn_state state);
ru_conn_id rui_conn_id_of(const rui_conn *c);
uint64_t rui_chan_draw(ru_chan *ch, ru_time now, uint8_t nonce[RUI_NONCE_BYTES]);
/* Say why to the other side, then close. `text` is static. */
void rui_conn_refuse(ru_chan *ch, rui_conn *c, ru_status why, const char *text);
void rui_log_refusal(ru_chan *ch, const char *address, const char *sentence);

/* chan_peer.c */
uint32_t rui_peer_find(const ru_chan *ch, uint64_t node);
ru_status rui_dial_start(ru_chan *ch, const char *address, uint32_t peer, ru_time now, ru_err *err);
void rui_conn_ready(ru_chan *ch, rui_conn *c, ru_time now);
/* c is of no use any more: close it and tell its dial or peer. */
void rui_conn_lost(ru_chan *ch, rui_conn *c, ru_status why, ru_time now);
void rui_chan_closed(void *self, ru_conn_id id, ru_status why, const char *sentence, ru_time now);
void rui_dial_free(ru_chan *ch, uint32_t d);
bool rui_dial_is(const ru_chan *ch, uint64_t pair); /* is being opened from here */
void rui_peer_cut(ru_chan *ch, uint32_t p, ru_status why, ru_time now);
void rui_peer_end(ru_chan *ch, uint32_t p, ru_status why, bool tell, ru_time now);
void rui_peer_hostile(ru_chan *ch, uint32_t p, const char *sentence, ru_time now);
/* The same with the next tick, from where the peer is still in use. The first sentence counts;
 * NULL: no message to the peer fits any more. */
void rui_peer_doom(ru_chan *ch, uint32_t p, const char *sentence, ru_time now);
/* Look at all peers and dials; returns when to look again, at the latest at `next`. */
ru_time rui_peer_tick(ru_chan *ch, ru_time now, ru_time next);

/* chan_item.c */
/* Memory for the bytes of an item; RUI_NONE: the pool or the peer's share is spent. */
uint32_t rui_item_block(ru_chan *ch, uint32_t p, rui_frame_type type, int64_t size_bytes);
/* RU_E_LIMIT: the pool or the peer's share is spent. Wakes the link. */
ru_status rui_item_push(ru_chan *ch, uint32_t p, const rui_item *item, ru_time now);
void rui_control(ru_chan *ch, uint32_t p, rui_frame_type type, uint8_t flags, uint64_t stream,
                 uint32_t iter, int64_t offset, ru_time now);
/* That all of a slot's stream is here. Nobody waits for it unless its sender fenced it: it leaves
 * with the next frame to the peer, or with a tick, together with others (an exchange of small
 * streams takes half the frames, of large ones a quarter of the acknowledgements). */
void rui_item_ack(ru_chan *ch, uint32_t p, const rui_slot *s, ru_time now);
bool rui_item_pull(ru_chan *ch, uint32_t p, ru_link_tx *tx, ru_time now);
/* False: it acknowledges what was not sent. */
bool rui_item_acked(ru_chan *ch, uint32_t p, uint64_t ack);
void rui_item_repeat(ru_chan *ch, uint32_t p, uint64_t received, ru_time now);
void rui_item_drop_all(ru_chan *ch, uint32_t p);

/* chan_send.c */
bool rui_chan_pull(void *self, ru_conn_id id, int64_t room_bytes, ru_link_tx *tx, ru_time now);
void rui_chan_sent(void *self, ru_conn_id id, uint64_t cookie, ru_time now);
void rui_wake(ru_chan *ch, ru_time now); /* lines that may send now */
void rui_wake_conn(ru_chan *ch, uint32_t p, ru_link_class class);
uint32_t rui_stream_new(ru_chan *ch, uint32_t p, const ru_chan_send_in *in, ru_time now);
void rui_stream_free(ru_chan *ch, uint32_t s);
void rui_stream_queue(ru_chan *ch, uint32_t s, ru_time now);
void rui_stream_stop(ru_chan *ch, uint32_t s, ru_status why, ru_time now);
void rui_stream_finish(ru_chan *ch, uint32_t s, ru_time now); /* acknowledged */
void rui_stream_doubt(ru_chan *ch, uint32_t p, ru_time now);  /* after a cut */
void rui_stream_held(ru_chan *ch, uint32_t s, const rui_range *held, uint32_t n, ru_time now);
void rui_tx_crc(const ru_chan *ch, rui_frame *f, ru_link_tx *tx);

/* chan_recv.c */
ru_status rui_chan_head(void *self, ru_conn_id id, const uint8_t *head, ru_link_rx *rx,
                        ru_time now);
ru_status rui_chan_body(void *self, ru_conn_id id, ru_time now);
void rui_slot_done(ru_chan *ch, uint32_t s, ru_time now);
void rui_slot_fail(ru_chan *ch, uint32_t s, ru_status why, ru_time now);
/* The memory of slot s is the user's again: what the link is reading into it goes elsewhere. The
 * peer may end by it, and the slot with it. */
void rui_slot_detach(ru_chan *ch, uint32_t s, ru_time now);
void rui_slot_early_free(ru_chan *ch, uint32_t s);
void rui_soon_add(ru_chan *ch, uint32_t s, ru_time now);
void rui_soon_drop(ru_chan *ch, uint32_t s);
void rui_soon(ru_chan *ch, ru_time now);

/* chan_control.c */
ru_status rui_control_heard(ru_chan *ch, uint32_t p, const rui_frame *f, const uint8_t *data,
                            ru_time now);
void rui_cancel_heard(ru_chan *ch, uint32_t p, const rui_frame *f, ru_time now);

void rui_slot_key(ru_chan *ch, uint32_t s, const rui_frame *f, ru_time now);
void rui_grant(ru_chan *ch, ru_time now);

/* chan_tick.c */
void rui_chan_ask_tick(ru_chan *ch, ru_time at);
void rui_chan_ask_scan(ru_chan *ch, ru_time at); /* for cuts, dials, the doomed */
void rui_peer_active(ru_chan *ch, uint32_t p);
void rui_peer_inactive(ru_chan *ch, uint32_t p);

/* chan_clock.c */
bool rui_clock_pull(ru_chan *ch, uint32_t p, ru_link_tx *tx, ru_time now);
void rui_clock_asked(ru_chan *ch, uint32_t p, const rui_frame *f, ru_time now);
void rui_clock_told(ru_chan *ch, uint32_t p, const rui_frame *f, ru_time now);
void rui_clock_keep(ru_chan *ch, rui_peer *p);    /* record what this round said so far */
ru_time rui_clock_tick(ru_chan *ch, ru_time now); /* when to come again */
ru_time rui_clock_now(const ru_chan *ch, ru_time now);

/* chan_expect.c */
RU_MUST_USE bool rui_expect_open(ru_chan *ch, ru_arena *arena); /* false: no memory */
/* Where something is recorded: s->model_ns, as the same took before. */
int64_t rui_expect_ns(const ru_chan *ch, const rui_stream *s);
/* All of s is at its receiver since `stamp` of its clock. */
void rui_expect_arrived(ru_chan *ch, const rui_stream *s, uint16_t stamp, ru_time now);

/* chan_trace.c: nothing without a recorder */
void rui_trace_open(ru_chan *ch);
void rui_trace_stream(ru_chan *ch, rui_stream *s); /* once: let go, or given up */
void rui_trace_slot(ru_chan *ch, const rui_slot *s);
void rui_trace_message_out(ru_chan *ch, const rui_peer *p, const rui_item *it, ru_time now);
void rui_trace_message_in(ru_chan *ch, const rui_conn *c, ru_time now);
void rui_trace_peer(ru_chan *ch, const rui_peer *p, bool up, ru_time now);

static inline uint32_t rui_conn_index(const ru_chan *ch, const rui_conn *c)
{
    return (uint32_t)(c - ch->conns);
}

#endif
