/* Where arriving bytes go: slots posted by the user, found by (peer, stream, iter), filled in
 * place. A slot is complete when the intervals received cover it, whatever a frame's flags say.
 *
 *   POSTED    has a place
 *   EARLY     a whole small stream came before its slot: its bytes wait in blocks of the channel
 *   THROWN    withdrawn by ru_chan_unpost: what still comes is read and dropped, until all of it
 *             came or the sender says that it stopped
 *   STOPPED   cancelled by its sender, LOST by a broken connection, before it was posted: the post
 *             says so. These three are hints: a peer has its share of them (rui_share), beyond
 *             that its oldest give way.
 *
 * There is room for posted_max POSTED ones, which only the user asks for, for early_max EARLY ones
 * of each peer (the caller sees to that) and for the hints: no peer takes another's.
 *
 * Thread: loop only. */
#ifndef RU_COMM_CHAN_INGRESS_H
#define RU_COMM_CHAN_INGRESS_H

#include "comm/chan/frame.h"
#include "comm/chan/names.h"

typedef struct rui_ingress rui_ingress;

typedef enum rui_slot_state {
    RUI_SLOT_FREE,
    RUI_SLOT_POSTED,
    RUI_SLOT_EARLY,
    RUI_SLOT_THROWN,
    RUI_SLOT_STOPPED,
    RUI_SLOT_LOST
} rui_slot_state;

typedef struct rui_slot {
    rui_name name;
    uint32_t next, prev;   /* of the same peer, or the free list */
    uint32_t older, newer; /* hints of the peer by age */
    rui_slot_state state;
    uint32_t gen;
    uint64_t cookie;
    const ru_span *spans; /* [n_spans] view, or &one */
    ru_span one;
    uint32_t n_spans;
    uint32_t at_span;    /* where offset `at` lies: chunks mostly follow each other */
    int64_t at, at_base; /* at_base: offset of the first byte of at_span */
    int64_t total_bytes, got_bytes;
    rui_range held[RUI_HELD_MAX];
    uint32_t n_held;
    uint32_t block; /* EARLY: first block */
    bool ended;     /* STOPPED: nothing more comes on the bulk connection */
    bool soon;      /* complete when it was posted */
    bool lazy;      /* its sender does not wait for the acknowledgement */
    bool whole;     /* it came whole, and holds a part of its sender's budget of such streams */
    uint32_t soon_next;
    ru_time first, last; /* when bytes of it came; ns 0: none yet */
    uint32_t plan;       /* for its record */
    uint16_t label;
    /* Grants. */
    int64_t granted_bytes;
    bool wants; /* in the heap of those that want grants */
    uint8_t class;
    uint16_t rank;
    ru_time deadline;
    uint64_t arrival;
} rui_slot;

RU_MUST_USE ru_status rui_ingress_open(uint32_t slots_max, uint32_t peers_max, uint32_t early_max,
                                       ru_arena *arena, rui_ingress **out, ru_err *err);
rui_slot *rui_ingress_slot(rui_ingress *g, uint32_t s);
uint32_t rui_ingress_used(const rui_ingress *g); /* slots lie below */
uint32_t rui_ingress_find(const rui_ingress *g, uint32_t peer, uint64_t stream, uint32_t iter);
uint32_t rui_ingress_first(const rui_ingress *g, uint32_t peer); /* RUI_NONE: has none */

/* A new slot in `state`, RUI_NONE when there is no room. Only slots_max of them may be POSTED. */
uint32_t rui_ingress_new(rui_ingress *g, uint32_t peer, uint64_t stream, uint32_t iter,
                         rui_slot_state state);
/* Another state: POSTED ones are counted. */
void rui_ingress_state(rui_ingress *g, uint32_t s, rui_slot_state state);
void rui_ingress_free(rui_ingress *g, uint32_t s);
bool rui_ingress_full(const rui_ingress *g); /* no further slot may be POSTED */

/* May bytes [offset, offset + len) still come? RU_E_PEER: outside of the slot, or received already,
 * or more gaps than RUI_HELD_MAX. */
RU_MUST_USE ru_status rui_slot_check(const rui_slot *s, int64_t offset, int64_t len);
/* The place of [offset, offset + len): as many spans as fit. Returns the bytes placed. */
int64_t rui_slot_place(rui_slot *s, int64_t offset, int64_t len, ru_link_rx *rx);
/* The bytes have arrived; true when the slot is complete. */
bool rui_slot_commit(rui_slot *s, int64_t offset, int64_t len);
/* The same, counting what is granted and not received. */
bool rui_ingress_commit(rui_ingress *g, uint32_t s, int64_t offset, int64_t len);
/* CRC-32C of what lies there, continued from crc. */
uint32_t rui_slot_crc(rui_slot *s, uint32_t crc, int64_t offset, int64_t len);

/* Names whose stream & mask is `value` are thrown away from now on. */
void rui_ingress_throw(rui_ingress *g, uint64_t mask, uint64_t value);
bool rui_ingress_thrown(const rui_ingress *g, uint64_t stream);

/* -- grants --------------------------------------------------------------------------------------
 */

/* A stream's first chunk announced its key: the sender may send first_bytes without a grant and
 * requests the rest. */
void rui_ingress_want(rui_ingress *g, uint32_t s, int64_t first_bytes);
/* The slot to grant to next and up to where, while less than window_bytes are granted and not
 * received; RUI_NONE: none. */
uint32_t rui_ingress_grant(rui_ingress *g, int64_t window_bytes, int64_t chunk_bytes);

#endif
