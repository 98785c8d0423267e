/* The engine that executes collective schedules over channels, and over shared memory.
 *
 * A group is an ordered set of nodes (ranks) at one membership epoch. Collectives of a group are
 * declared once (a plan: the same list on every rank, in the same order: no negotiation), then run
 * once per iteration: ru_coll_begin says that this rank's buffer is complete, `done` follows when
 * its result is. A peer may run ahead of a rank that has not begun: its chunks wait in scratch
 * slots or in the kernel.
 *
 *   buffer = spans --cut--> chunks (chunk_bytes), `depth` in flight, each runs the schedule on its
 *   own: send effects go to the channel with (class, deadline, rank), receives are slots; additions
 *   happen on arrival, in the schedule's order.
 *
 * Streams are named (epoch 24 bits, batch 16, chunk 16, tag 8...) by the engine; the iteration is
 * the stream's iter.
 *
 * Source: the note on Caramel, sections 2.2 and 2.4. Thread: loop only. */
#ifndef RU_COMM_COLL_H
#define RU_COMM_COLL_H

#include "comm/chan.h"
#include "world/coll.h"
#include "world/dtype.h"

typedef struct ru_coll ru_coll;

enum { RU_COLL_BATCHES_MAX = 4096 };

typedef struct ru_coll_batch {
    ru_coll_op op;
    ru_coll_algo algo;
    ru_dtype dtype; /* RU_F32, or RU_BF16 summed in f32 */
    int64_t n;      /* elements over all spans */
    uint32_t root;
    int64_t chunk_bytes; /* 0 or >= size: one chunk */
    uint32_t depth;      /* chunks in flight; 0: all */
    ru_chan_class class;
    uint16_t rank; /* order among batches */
} ru_coll_batch;

typedef struct ru_coll_user {
    void *self;
    void (*done)(void *self, uint32_t batch, uint32_t iter, ru_time now);
    /* A peer is gone or refused; the whole group is dead: everything of it is cancelled. */
    void (*failed)(void *self, ru_node_id peer, ru_status why, ru_time now);
} ru_coll_user;

typedef struct ru_coll_options {
    ru_chan *chan;
    const ru_node_id *nodes; /* [n_ranks] */
    const uint16_t *hosts;   /* [n_ranks]; NULL: unknown */
    uint32_t n_ranks, rank;
    uint32_t epoch;
    const ru_coll_batch
        *batches; /* [n_batches] the plan; checked (ru_plan_coll_check by the owner) */
    const ru_coll_schedule *const *schedules; /* [n_batches] of this rank at least */
    uint32_t n_batches;
    bool counted; /* simulator: buffers are NULL, bytes are only counted */
} ru_coll_options;

RU_MUST_USE ru_status ru_coll_open(const ru_coll_options *opt, const ru_coll_user *user,
                                   ru_arena *arena, ru_coll **out, ru_err *err);
void ru_coll_close(ru_coll *c, ru_time now); /* cancels what runs; NULL is fine */

/* This rank's buffer of `batch` is complete for iteration `iter`: scattered over spans (whole
 * elements each), reduced in place; untouchable until `done`. Iterations of a batch come in order.
 * Errors: RU_E_PEER, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_coll_begin(ru_coll *c, uint32_t batch, uint32_t iter, const ru_span *spans,
                                    uint32_t n_spans, ru_time deadline, ru_time now, ru_err *err);

/* Upcalls of the channel for streams of this group: the owner of the channel's user passes on what
 * ru_coll_owns says. */
bool ru_coll_owns(const ru_coll *c, uint64_t cookie);
void ru_coll_sent(ru_coll *c, uint64_t cookie, ru_time now);
void ru_coll_arrived(ru_coll *c, uint64_t cookie, ru_time now);
void ru_coll_xfer_failed(ru_coll *c, uint64_t cookie, ru_status why, ru_time now);

typedef struct ru_coll_stats {
    uint64_t begun, done;
    int64_t sent_bytes, added_bytes, copied_bytes;
} ru_coll_stats;
void ru_coll_stats_get(const ru_coll *c, ru_coll_stats *into);

/* mine[k] += theirs[k] (or theirs + mine), at memory speed. dtype f32 or bf16 (f32 inside). */
void ru_coll_add(ru_dtype dtype, void *mine, const void *theirs, int64_t n, bool before);

#endif
