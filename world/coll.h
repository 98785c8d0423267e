/* Collectives as data: who sends which blocks to whom, in which order.
 *
 * A buffer of n elements is cut into n_blocks nearly equal blocks (block b: elements
 * [n*b/n_blocks, n*(b+1)/n_blocks)). Every rank has a list of steps; steps of one rank that touch a
 * common block happen in list order, others may overlap. A send of rank r to rank p with tag t is
 * matched by the receive of p from r with the same tag; tags are unique per (sender, receiver).
 *
 * Thread: any, plain data. */
#ifndef RU_WORLD_COLL_H
#define RU_WORLD_COLL_H

#include "base/arena.h"

enum { RU_COLL_RANKS_MAX = 4096, RU_COLL_STEPS_MAX = 1 << 16 /* of one rank */ };

typedef enum ru_coll_op {
    RU_COLL_ALL_REDUCE,     /* every block of every rank: the sum over all ranks */
    RU_COLL_REDUCE_SCATTER, /* block b of its owner: the sum; others undefined */
    RU_COLL_ALL_GATHER,     /* block b of every rank: block b of its owner */
    RU_COLL_REDUCE,         /* root: the sum */
    RU_COLL_BROADCAST,      /* all: root's buffer */
    RU_COLL_ALL_TO_ALL,     /* blocks n_ranks: rank r's block p goes to p's place r */
    RU_COLL_BARRIER,        /* nobody is done before everybody began; blocks are empty */
    RU_COLL_OPS
} ru_coll_op;

typedef enum ru_coll_algo {
    RU_ALGO_RING,
    RU_ALGO_HALVING,     /* Rabenseifner: recursive halving, then doubling */
    RU_ALGO_DOUBLING,    /* recursive doubling of the whole buffer */
    RU_ALGO_TREE,        /* binary tree to rank 0 and back */
    RU_ALGO_DOUBLE_TREE, /* two complementary trees, half of the blocks each */
    RU_ALGO_DIRECT,      /* each rank owns a block; all send at once; summed in rank order, so that
                            the order of additions depends on nothing else: deterministic mode */
    RU_ALGO_HIERARCHY,   /* inside a host to its leader, ring over leaders, back */
    RU_COLL_ALGOS
} ru_coll_algo;

typedef enum ru_coll_step_kind {
    RU_COLL_SEND,        /* blocks [block, block + n_blocks) to peer */
    RU_COLL_RECV,        /* ... from peer, replace */
    RU_COLL_REDUCE_RECV, /* ... from peer, add to mine: mine = mine + theirs (or theirs + mine when
                            `before`: order of a float sum is written, not accidental) */
} ru_coll_step_kind;

typedef struct ru_coll_step {
    uint8_t kind;
    uint8_t before;
    uint16_t peer;
    uint16_t tag;
    uint16_t pad;
    uint32_t block, n_blocks;
    uint32_t into; /* ALL_TO_ALL receives: first block where they go; else == block */
} ru_coll_step;

typedef struct ru_coll_schedule {
    ru_coll_op op;
    ru_coll_algo algo;
    uint32_t n_ranks, n_blocks, root;
    const uint32_t *begin;     /* [n_ranks + 1] steps of rank r: [begin[r], begin[r+1]) */
    const ru_coll_step *steps; /* [begin[n_ranks]] */
} ru_coll_schedule;

/* Element range of a block range. */
static inline int64_t ru_coll_block_at(int64_t n, uint32_t n_blocks, uint32_t b)
{
    return n / n_blocks * b + n % n_blocks * b / n_blocks;
}

const char *ru_coll_op_name(ru_coll_op op);
const char *ru_coll_algo_name(ru_coll_algo algo); /* "ring", "halving", ... */
/* "rank 2: send 0..1 to 3, add 2 from 1, ..." in `arena`. */
const char *ru_coll_print(const ru_coll_schedule *s, ru_arena *arena);

#endif
