/* The part of a node that runs the collectives of a group (ranks.h): it meets the other ranks,
 * opens the buckets, cuts calls into pieces and begins each when its turn in its bucket comes.
 *
 *   rank r --OPENED--> rank 0 --GO (all have)--> all; whoever loses one --LOST--> all
 *
 * Thread: loop only. */
#ifndef RU_TRAIN_EMBED_RANKS_PART_H
#define RU_TRAIN_EMBED_RANKS_PART_H

#include "comm/node/node.h"
#include "train/embed/ranks.h"
#include "train/embed/ranks_cut.h"

enum { RUI_RANKS_SPANS_MAX = 2 * RU_RANKS_RANKS_MAX };

typedef struct rui_ranks_call {
    ru_coll_op op;
    ru_dtype dtype;
    uint32_t root;
    uint8_t *data;
    int64_t n_bytes; /* of a block */
    uint64_t call;
} rui_ranks_call;

typedef struct rui_ranks_ops {
    void (*met)(void *self);
    void (*done)(void *self, uint64_t call); /* a piece of it */
    /* Once. The callers' memory is theirs again when the loop has ended. */
    void (*ended)(void *self, ru_status st, const char *text, ru_time now);
} rui_ranks_ops;

typedef struct rui_piece rui_piece;
typedef struct rui_bucket rui_bucket;

typedef struct rui_ranks_part {
    const rui_ranks_ops *ops;
    void *self;
    ru_node *node;
    ru_node_id id;
    uint32_t rank, n_ranks;
    int64_t silent_ns; /* a rank that is silent for so long is lost */
    /* its own */
    ru_arena *arena;
    ru_coll *coll;
    ru_member_info *ranks; /* [n_ranks] as they met */
    rui_ranks_table table;
    rui_bucket *buckets;                             /* [table.n] */
    uint32_t turn[RUI_RANKS_KINDS][RUI_RANKS_SIZES]; /* the next bucket of that size */
    rui_piece *spare;
    rui_ranks_call *early; /* [n_early] begun before all have met */
    uint32_t n_early, n_opened;
    ru_node_id lead;       /* the newest leader */
    bool met, ended, told; /* told: all know who is gone */
    uint32_t gone;         /* 1 + the rank for whom it ended; 0: none */
} rui_ranks_part;

/* `g` holds what stands before "its own", the rest is zero; memory comes from `arena`. Adds the
 * part to the node. Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_ranks_part_open(rui_ranks_part *g, ru_arena *arena, ru_err *err);
/* Between ru_node_quiet and ru_node_close. */
void rui_ranks_part_close(rui_ranks_part *g, ru_time now);
void rui_ranks_part_begin(rui_ranks_part *g, const rui_ranks_call *t, ru_time now);

#endif
