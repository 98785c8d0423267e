/* Inside the engine of collectives.
 *
 * Thread: loop only. */
#ifndef RU_COMM_COLL_COLL_IMPL_H
#define RU_COMM_COLL_COLL_IMPL_H

#include <stddef.h>

#include "base/wire.h"
#include "comm/coll/coll.h"

enum {
    RUI_COLL_LANES_MAX = 1 << 16,
    RUI_COLL_ALIGN = 64,
    RUI_COLL_SMALL_BYTES = 8 << 10, /* a step of a normal bucket that goes with the urgent ones */
};

/* A schedule of this rank, made ready to run; buckets with the same schedule share it. */
typedef struct rui_coll_shape {
    const ru_coll_schedule *schedule;
    const ru_coll_step *steps; /* [n] view */
    uint32_t n;
    uint32_t *waits;     /* [n] steps before each one that it must wait for */
    uint32_t *first;     /* [n + 1] */
    uint32_t *followers; /* steps that wait for step i: [first[i], first[i + 1]) */
    uint32_t *cuts; /* [n_cuts] blocks where some range begins or ends, rising, 0 .. n_blocks */
    uint32_t n_cuts;
    uint32_t *lo, *hi;  /* [n] cut where the blocks of step i begin and end */
    uint32_t *unit;     /* [n] place in the scratch, in blocks, of what step i receives */
    uint32_t *aside_of; /* [n] RECV_ASIDE, FOLD, PLACE: the step whose scratch is the aside */
    uint32_t units;     /* blocks of scratch */
    uint32_t n_recv, n_send;
    uint16_t *in, *out; /* [n_in], [n_out] peers that send to this rank, and it to them */
    uint16_t *out_of;   /* [n] of a send: index of its peer in `out` */
    uint32_t n_in, n_out;
    uint32_t tag_bits;
} rui_coll_shape;

enum { RUI_COLL_MSG_BYTES = 16 }; /* epoch, bucket, lane, run */

enum {
    RUI_STEP_FREE = 1,
    RUI_STEP_ARRIVED = 2,
    RUI_STEP_DONE = 4,
    RUI_STEP_POSTED = 8,
    RUI_STEP_KEPT = 16
};

/* What a member of this host said of a step: where the bytes lie that it sends. */
typedef struct rui_coll_here {
    uint32_t run; /* of the lane; 0: nothing said */
    uint32_t n_spans;
    ru_span *spans; /* [spans_max + cuts] in its memory as mapped here */
} rui_coll_here;

/* One chunk under way. The runs of a lane are numbered over all iterations, from 1 on. */
typedef struct rui_coll_lane {
    uint32_t bucket, index; /* index: of the lane in its bucket */
    uint32_t first;         /* chunk that it begins an iteration with */
    uint32_t chunk, iter;
    bool begun, queued, stalled;
    bool jumped;      /* opened for another iteration than the one expected */
    uint32_t left;    /* steps not done */
    uint32_t post_at; /* scratch receives before this step are posted */
    uint32_t *waits;  /* [n steps] */
    uint8_t *state;   /* [n steps] */
    ru_xfer_id *xfer; /* [n steps] under way; 0: none */
    uint32_t *ready;  /* [n steps] ring of steps whose turn has come */
    uint32_t head, tail;
    uint32_t run;     /* number of this run */
    uint32_t *opened; /* [n_out] runs that this peer has opened */
    uint32_t *held;   /* [n_held] sends that wait until their peer has opened the run */
    uint32_t n_held;
    uint32_t tell_at; /* peers before this one in `in` know that the run is open here */
    ru_span *one;     /* [n steps] scratch of receives */
    uint8_t *scratch;
    rui_coll_here *here; /* [n steps] of receives from this host; NULL: there are none */
    ru_span *spans;      /* the chunk's part of the user's spans, cut at `cuts` */
    uint32_t *cut_at;    /* [n_cuts] first span at or after a cut */
} rui_coll_lane;

typedef struct rui_coll_run {
    const ru_coll_bucket *bucket;
    const rui_coll_shape *shape;
    uint32_t n_chunks, n_lanes;
    uint32_t lane; /* first of its lanes */
    int64_t elem_bytes;
    int64_t stride_bytes; /* of a block in the scratch */
    bool by_block;        /* chunks are parts of every block */
    bool empty;           /* a barrier, or bytes that are only counted: no memory is touched */
    /* 2: the lanes of an all-reduce are two sets that take turns. A rank that is done with an
     * iteration knows that all have begun it. So all are done with the one before, and have opened
     * its lanes for the next: nobody needs to be told. */
    uint32_t sets;
    bool late; /* receives that replace what others need not have: open only when it has begun */
    bool began, ever;
    uint32_t iter, chunks_done, spans_cap;
    const ru_span *spans; /* [n_spans] the user's */
    uint32_t n_spans;
    ru_time deadline;
} rui_coll_run;

struct ru_coll {
    ru_coll_options opt;
    ru_coll_user user;
    ru_arena *arena;
    rui_coll_shape *shapes; /* [n_shapes] */
    uint32_t n_shapes;
    rui_coll_run *runs;   /* [n_buckets] */
    rui_coll_lane *lanes; /* [n_lanes] */
    uint32_t n_lanes;
    uint32_t *queue; /* [n_lanes] ring of lanes with work */
    uint32_t q_head, q_n;
    uint32_t n_stalled; /* lanes that wait for room in the channel */
    uint32_t *stalled;  /* [n_lanes] */
    bool draining, dead, closed;
    uint8_t *msg; /* [RU_CHAN_MESSAGE_MAX] of coll_near.c */
    ru_coll_size size;
};

/* Make a schedule ready; in the arena. */
ru_status rui_coll_shape_make(rui_coll_shape *shape, const ru_coll_schedule *s, uint32_t rank,
                              bool by_block, ru_arena *arena, ru_err *err);
bool rui_coll_by_block(ru_coll_op op);

/* The user's spans of the lane's chunk, cut where the schedule cuts. */
void rui_coll_lane_cut(const ru_coll *c, rui_coll_lane *lane);
/* Bytes of the blocks of step i in the lane's chunk. */
int64_t rui_coll_step_bytes(const ru_coll *c, const rui_coll_lane *lane, uint32_t step);

/* coll.c */
void rui_coll_enqueue(ru_coll *c, rui_coll_lane *lane);
void rui_coll_drain(ru_coll *c, ru_time now);
void rui_coll_die(ru_coll *c, uint32_t peer, ru_status why, ru_time now);
void rui_coll_step_done(ru_coll *c, rui_coll_lane *lane, uint32_t step);
/* Try again when a transfer ended or the channel has room; and: one did, or it has. */
void rui_coll_stall(ru_coll *c, rui_coll_lane *lane);
void rui_coll_unstall(ru_coll *c);
/* The user's spans of a step; an empty run: bytes only. */
const ru_span *rui_coll_spans_of(const ru_coll *c, rui_coll_lane *lane, uint32_t step,
                                 int64_t bytes, uint32_t *n);
void rui_coll_lane_open(ru_coll *c, rui_coll_lane *lane, uint32_t chunk, uint32_t iter);
void rui_coll_msg_begin(const ru_coll *c, const rui_coll_lane *lane, ru_wire_out *w);

/* coll_near.c */
static inline bool rui_coll_is_near(const ru_coll *c, uint32_t peer)
{
    return c->opt.near != NULL && c->opt.near[peer].size_bytes > 0;
}
bool rui_coll_near_lane(ru_coll *c, rui_coll_lane *lane); /* false: no memory */
void rui_coll_near_open(const ru_coll *c, rui_coll_lane *lane);
RU_MUST_USE ru_status rui_coll_near_check(const ru_coll *c, const rui_coll_run *run,
                                          const ru_span *spans, uint32_t n_spans, ru_err *err);
/* A step whose turn has come; as start() of coll.c. */
bool rui_coll_near_start(ru_coll *c, rui_coll_lane *lane, uint32_t step, ru_time now);
void rui_coll_near_heard(ru_coll *c, rui_coll_lane *lane, ru_node_id from, uint32_t run,
                         ru_wire_in *w, ru_time now);

/* What came before its turn and must not hold up its sender goes into the scratch. */
void rui_coll_near_keep(ru_coll *c, rui_coll_lane *lane, ru_time now);

/* The data work of a receive from this host, straight out of the other one's memory; and its copy
 * into the scratch. */
void rui_coll_keep_near(const ru_coll *c, rui_coll_lane *lane, uint32_t step);
void rui_coll_apply_near(ru_coll *c, rui_coll_lane *lane, uint32_t step);
/* The data work of a step: add, fold, place. */
void rui_coll_apply(ru_coll *c, rui_coll_lane *lane, uint32_t step);

static inline bool rui_coll_in_scratch(const ru_coll_step *s)
{
    return s->kind == RU_COLL_REDUCE_RECV || s->kind == RU_COLL_RECV_ASIDE;
}

#endif
