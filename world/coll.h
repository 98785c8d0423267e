/* Collectives as data: who sends which blocks to whom, in which order.
 *
 * A buffer of n elements is cut into n_blocks nearly equal blocks (block b: elements
 * [n*b/n_blocks, n*(b+1)/n_blocks)). Every rank has a list of steps. Two steps of one rank that
 * touch a common block, at least one of them writing it, happen in list order; all others may
 * overlap. Beside each block stands its aside, empty at first: a place for sums of others that do
 * not hold mine yet.
 *
 *   kind         reads   writes        meaning
 *   SEND         mine                  to peer
 *   RECV                 mine          mine = theirs
 *   REDUCE_RECV  mine    mine          mine = mine + theirs (theirs + mine when `before`)
 *   RECV_ASIDE   aside   aside         aside = aside + theirs; the first one: aside = theirs
 *   FOLD         both    mine, aside   mine = aside + mine, the aside is empty again
 *   PLACE        aside   mine, aside   mine = aside, the aside is empty again
 *
 * A send of rank r to rank p with tag t is matched by the receive of p from r with the same tag;
 * tags are unique per (sender, receiver). What is added may come at any time; a RECV gets its bytes
 * only once the steps before it are done, so a schedule must not need it earlier.
 *
 * Thread: any, plain data. */
#ifndef RU_WORLD_COLL_H
#define RU_WORLD_COLL_H

#include "base/arena.h"

enum { RU_COLL_RANKS_MAX = 4096, RU_COLL_STEPS_MAX = 1 << 16 /* of one rank */ };

typedef enum ru_coll_op {
    RU_COLL_ALL_REDUCE,     /* every block of every rank: the sum over all ranks */
    RU_COLL_REDUCE_SCATTER, /* block b of rank b: the sum; others undefined */
    RU_COLL_ALL_GATHER,     /* block b of every rank: block b of rank b */
    RU_COLL_REDUCE,         /* root: the sum; others undefined */
    RU_COLL_BROADCAST,      /* all: root's buffer */
    RU_COLL_ALL_TO_ALL,     /* blocks n_ranks: rank r's block p goes to p's place r */
    RU_COLL_BARRIER,        /* nobody is done before everybody began; blocks are empty */
    RU_COLL_OPS
} ru_coll_op;

typedef enum ru_coll_algo {
    RU_ALGO_RING,
    RU_ALGO_HALVING,     /* Rabenseifner: recursive halving, then doubling */
    RU_ALGO_DOUBLING,    /* recursive doubling of the whole buffer */
    RU_ALGO_TREE,        /* binary tree to the root (rank 0) and back */
    RU_ALGO_DOUBLE_TREE, /* two complementary trees, half of the blocks each */
    RU_ALGO_DIRECT,      /* each rank owns a block; all send at once; every element is summed in
                            rank order, x0 + x1 + x2 ..., so that its bits depend on nothing else:
                            deterministic mode */
    RU_ALGO_HIERARCHY,   /* inside a host to its leader, another algorithm over leaders, back */
    RU_COLL_ALGOS
} ru_coll_algo;

typedef enum ru_coll_step_kind {
    RU_COLL_SEND,
    RU_COLL_RECV,
    RU_COLL_REDUCE_RECV,
    RU_COLL_RECV_ASIDE,
    RU_COLL_FOLD,
    RU_COLL_PLACE,
    RU_COLL_STEP_KINDS
} ru_coll_step_kind;

typedef struct ru_coll_step {
    uint8_t kind;   /* ru_coll_step_kind */
    uint8_t before; /* REDUCE_RECV: theirs is the left operand; the order of a float sum is
                       written, not accidental */
    uint16_t peer;  /* own rank in FOLD and PLACE */
    uint16_t tag;
    uint16_t pad;             /* 0 */
    uint32_t block, n_blocks; /* [block, block + n_blocks) of the own buffer; >= 1 */
} ru_coll_step;

typedef struct ru_coll_schedule {
    ru_coll_op op;
    ru_coll_algo algo;
    uint32_t n_ranks, n_blocks, root;
    const uint32_t *begin;     /* [n_ranks + 1] steps of rank r: [begin[r], begin[r+1]) */
    const ru_coll_step *steps; /* [begin[n_ranks]] */
    const bool *idle; /* [n_ranks] their blocks are zeros, which a sum may leave out; NULL: none */
} ru_coll_schedule;

/* Element range of a block range: the first element of block b of n_blocks. */
static inline int64_t ru_coll_block_at(int64_t n, uint32_t n_blocks, uint32_t b)
{
    return n / n_blocks * b + n % n_blocks * b / n_blocks;
}

static inline bool ru_coll_step_receives(const ru_coll_step *s)
{
    return s->kind == RU_COLL_RECV || s->kind == RU_COLL_REDUCE_RECV ||
           s->kind == RU_COLL_RECV_ASIDE;
}

const char *ru_coll_op_name(ru_coll_op op);       /* "all-reduce", ... */
const char *ru_coll_algo_name(ru_coll_algo algo); /* "ring", "halving", ... */
/* Index of the name, or the count when there is none such. */
ru_coll_op ru_coll_op_find(const char *name);
ru_coll_algo ru_coll_algo_find(const char *name);

#endif
