/* Inside the planner of collective schedules: one list being written.
 *
 * Algorithms are written for ranks 0..n-1, most with root 0; the builder turns them into real ranks
 * (rotated so that the root is 0, or the leaders of hosts). Every list is written twice: once to
 * count (steps NULL), once for good.
 *
 * Thread: any, plain data. */
#ifndef RU_PLAN_COLL_IMPL_H
#define RU_PLAN_COLL_IMPL_H

#include "plan/net/coll.h"

typedef struct rui_hosts {
    const uint16_t *leader_of; /* [n_ranks] rank of the leader of each rank's host */
    const uint16_t *leaders;   /* [n_leaders] in order of their first rank */
    uint32_t n_leaders;
    uint32_t root; /* index of the root's host */
} rui_hosts;

typedef struct rui_coll_list {
    ru_coll_step *steps; /* NULL: count only */
    uint32_t at;         /* steps so far */
    ru_coll_op op;
    uint32_t n, me;      /* ranks of the algorithm, and mine */
    uint32_t root;       /* 0 in all but direct, whose sums are in order of real ranks */
    uint32_t turn;       /* real rank = (rank + turn) % n, then through map */
    const uint16_t *map; /* [n] NULL: itself */
    uint32_t n_blocks;
    uint32_t tag;     /* added to every tag */
    const bool *idle; /* [n] as in ru_coll_in */
} rui_coll_list;

/* One step with rank `peer` of the algorithm. */
void rui_coll_step(rui_coll_list *l, ru_coll_step_kind kind, uint32_t peer, uint32_t tag,
                   uint32_t block, uint32_t n_blocks);
/* REDUCE_RECV with theirs as the left operand. */
void rui_coll_step_before(rui_coll_list *l, uint32_t peer, uint32_t tag, uint32_t block,
                          uint32_t n_blocks);

void rui_coll_ring(rui_coll_list *l);
void rui_coll_halving(rui_coll_list *l);
void rui_coll_doubling(rui_coll_list *l);
void rui_coll_tree(rui_coll_list *l);
void rui_coll_double_tree(rui_coll_list *l);
void rui_coll_direct(rui_coll_list *l);
/* `l` is for all ranks; `leaders` writes the part among leaders. */
void rui_coll_hierarchy(rui_coll_list *l, const rui_hosts *hosts, void (*leaders)(rui_coll_list *));

/* Largest power of two <= n, n >= 1. */
static inline uint32_t rui_floor2(uint32_t n)
{
    uint32_t p = 1;
    while (p <= n / 2) {
        p *= 2;
    }
    return p;
}

#endif
