/* The engine that executes collective schedules over channels.
 *
 * A group is an ordered set of nodes (ranks) at one membership epoch. Collectives of a group are
 * declared once (a plan: the same list on every rank, in the same order: no negotiation), then run
 * once per iteration: ru_coll_begin states that this rank's buffer is complete; `done` follows when
 * the result is. A peer may run ahead of a rank that has not started: what will be added waits in
 * scratch slots, posted from the first begin on and again as soon as an iteration is done; what
 * replaces waits in the kernel.
 *
 *   buffer = spans --cut--> chunks --> lanes (chunk c runs in lane c % depth, on its own)
 *     lane: steps whose earlier steps on the same blocks are done are started at once
 *       SEND                     views of the user's spans, to the channel with (class, deadline,
 *                                rank); no packing
 *       RECV                     straight into the user's spans
 *       REDUCE_RECV, RECV_ASIDE  into a scratch slot of its own; added when its turn comes, so the
 *                                order of additions is the schedule's, whatever the timing
 *
 * Chunks of an all-reduce, reduce and broadcast are ranges of the buffer, each cut into the blocks
 * of the schedule; where blocks belong to ranks, a chunk is the same part of every block.
 *
 * Nobody sends what the other side has no place for: a lane that opens for its next chunk
 * (broadcast, all-gather, all-to-all: that begins) says so in a message to those who will send, so
 * that no connection is ever held up by bytes that wait for others behind them. The first chunk
 * after open needs no such message; nor does the first of an iteration of an all-reduce, whose
 * lanes are two sets that take turns, one for every other iteration, or whose iterations the owner
 * keeps apart.
 *
 * Members of one host (`near`): a send says where its bytes lie, the other adds or copies them out
 * of there when the turn of its step comes, and says so; then the send is done. Nobody writes into
 * the memory of another one.
 *
 * Streams are named epoch 24 bits | bucket 16 | chunk and tag 24; the iteration is the stream's
 * iter. Buckets up to RU_COLL_BUCKETS_MAX leave 0xffff of the bucket bits to others.
 *
 * Memory, all taken at open: per lane the scratch of its chunk, (n - 1)/n of it for ring, halving
 * and direct, twice for trees, log2 n times for doubling, and some bytes a step; ru_coll_needs
 * tells. Lanes of a bucket: depth; of an all-reduce whose iterations are not apart: twice. Only a
 * begin with more spans than spans_max and than any before
 * takes more.
 *
 * Source: caramel-2020 for chunks and depth. Thread: loop only. */
#ifndef RU_COMM_COLL_COLL_H
#define RU_COMM_COLL_COLL_H

#include "comm/chan/chan.h"
#include "world/coll.h"
#include "world/dtype.h"

typedef struct ru_coll ru_coll;

enum {
    RU_COLL_BUCKETS_MAX = 4096,
    RU_COLL_WHAT = 0x2ff, /* messages of groups: for ru_coll_heard */
};

typedef struct ru_coll_bucket {
    ru_coll_op op;
    ru_coll_algo algo;
    ru_dtype dtype; /* RU_F32, or RU_BF16 summed in f32; others where nothing is summed */
    int64_t n;      /* elements over all spans */
    uint32_t root;
    int64_t chunk_bytes; /* 0 or >= size: one chunk; raised when there would be too many to name */
    uint32_t depth;      /* chunks in flight; 0: all */
    ru_chan_class class;
    uint16_t rank;  /* order among buckets */
    bool in_order;  /* others wait for this order: see ru_coll_class */
    uint16_t label; /* name of the sum for records of its transfers (ru_recorder_name); 0: none */
} ru_coll_bucket;

typedef struct ru_coll_user {
    void *self;
    /* May start the next iteration, also of other sums. */
    void (*done)(void *self, uint32_t bucket, uint32_t iter, ru_time now);
    /* A peer failed or was refused, so the whole group failed and everything in it is cancelled.
     * Called once. */
    void (*failed)(void *self, ru_node_id peer, ru_status why, ru_time now);
    /* Part of another rank's bytes is here for an iteration that has not begun here: it may begin
     * now. Leaves of trees, and ranks beyond a power of two, are never asked. NULL: not wanted. */
    void (*asked)(void *self, uint32_t bucket, uint32_t iter, ru_time now);
} ru_coll_user;

typedef struct ru_coll_options {
    ru_chan *chan;
    const ru_node_id *nodes; /* [n_ranks] */
    uint32_t n_ranks, rank;
    uint32_t epoch; /* 24 bits count */
    const ru_coll_bucket
        *buckets; /* [n_buckets] the plan; checked (ru_plan_coll_check by the owner) */
    const ru_coll_schedule *const *schedules; /* [n_buckets] of this rank at least; view until the
                                                 group is closed, like nodes and buckets */
    uint32_t n_buckets;
    uint32_t iter_first; /* iteration of the first begin; others work, but peers ahead must wait */
    uint32_t spans_max;  /* of one begin; 0: 8 */
    bool apart; /* the owner guarantees that no rank starts an iteration before all ranks finished
                   the last one, which saves the second set of lanes */
    /* [n_ranks] memory of the members of this host as it is mapped here, its own too; size 0: of
     * another host, reached by the channel. NULL: all are. Who is near is near both ways. Then the
     * spans of a begin lie inside of the own memory. View until the group is closed. */
    const ru_span *near;
    bool counted;  /* simulator: buffers are NULL, bytes are only counted */
    uint32_t plan; /* low bits of its id, for records of its transfers; 0: none */
} ru_coll_options;

/* All members have opened the group before any of them begins: a message for a group that is not
 * open is lost. Errors: RU_E_ARG when bucket and schedule do not fit each other; RU_E_LIMIT: too
 * many chunks in flight, or more slots or streams than the channel has (with fewer, ranks that take
 * them in different orders could wait for each other in a circle); RU_E_MEM. */
RU_MUST_USE ru_status ru_coll_open(const ru_coll_options *opt, const ru_coll_user *user,
                                   ru_arena *arena, ru_coll **out, ru_err *err);
/* Cancels what runs; NULL is fine. The link may still read spans of chunks that it has at hand:
 * they are the user's again when ru_chan_reads says so of the group's streams. */
void ru_coll_close(ru_coll *c, ru_time now);

typedef struct ru_coll_size {
    uint32_t slots, streams; /* of the channel, at most at one time */
    int64_t scratch_bytes;
} ru_coll_size;
/* What an open group takes at most. */
void ru_coll_needs(const ru_coll *c, ru_coll_size *into);

/* The class with which a step of so many bytes of a bucket of this class travels. A small one goes
 * with the urgent ones: whole, in one frame with what else goes to that peer, and is not worth a
 * turn of the bulk connection. But there nothing goes by rank: not where others wait for the order,
 * since hundreds of small ones hold up those that are needed first. */
ru_chan_class ru_coll_class(ru_chan_class class, bool in_order, int64_t bytes);

/* This rank's buffer of `bucket` is complete for iteration `iter`: scattered over spans (whole
 * elements each), reduced in place; untouchable until `done`, and so is the array of spans. `done`
 * may come before this returns when there is nothing to wait for. Iterations of a bucket come in
 * order. Errors: RU_E_PEER when the group is dead, RU_E_ARG, RU_E_MEM. */
RU_MUST_USE ru_status ru_coll_begin(ru_coll *c, uint32_t bucket, uint32_t iter,
                                    const ru_span *spans, uint32_t n_spans, ru_time deadline,
                                    ru_time now, ru_err *err);

/* Upcalls of the channel for streams of this group: the owner of the channel's user passes on what
 * ru_coll_owns says. Cookies of groups begin with the byte RU_COLL_COOKIE_BYTE, then the epoch. */
enum { RU_COLL_COOKIE_BYTE = 0xc0 };
bool ru_coll_owns(const ru_coll *c, uint64_t cookie);
void ru_coll_sent(ru_coll *c, uint64_t cookie, ru_time now);
void ru_coll_arrived(ru_coll *c, uint64_t cookie, ru_time now);
void ru_coll_xfer_failed(ru_coll *c, uint64_t cookie, ru_status why, ru_time now);
/* The channel has room again (ru_chan_user.room): work that waited for room continues. Call it for
 * every group. */
void ru_coll_room(ru_coll *c, ru_time now);
/* A message RU_COLL_WHAT came; those of other groups and malformed ones are ignored. */
void ru_coll_heard(ru_coll *c, ru_node_id from, const void *data, int64_t size_bytes, ru_time now);

#endif
