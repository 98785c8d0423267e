/* Ring and direct exchange.
 *
 * Source: thakur-2005 for the ring; the direct exchange is the "shuffle" of caramel-2020, with sums
 * in rank order. */
#include "plan/net/coll_impl.h"

/* After n - 1 turns rank r holds the sum of block r. */
static void ring_reduce_scatter(rui_coll_list *l)
{
    uint32_t n = l->n, next = (l->me + 1) % n, prev = (l->me + n - 1) % n;
    for (uint32_t s = 0; s + 1 < n; s++) {
        rui_coll_step(l, RU_COLL_SEND, next, s, (l->me + 2 * n - 1 - s) % n, 1);
        rui_coll_step_before(l, prev, s, (l->me + 2 * n - 2 - s) % n, 1);
    }
}

static void ring_all_gather(rui_coll_list *l, uint32_t tag)
{
    uint32_t n = l->n, next = (l->me + 1) % n, prev = (l->me + n - 1) % n;
    for (uint32_t s = 0; s + 1 < n; s++) {
        rui_coll_step(l, RU_COLL_SEND, next, tag + s, (l->me + n - s) % n, 1);
        rui_coll_step(l, RU_COLL_RECV, prev, tag + s, (l->me + 2 * n - 1 - s) % n, 1);
    }
}

/* A chain towards rank 0, block after block. */
static void chain_reduce(rui_coll_list *l)
{
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        if (l->me + 1 < l->n) {
            rui_coll_step(l, RU_COLL_REDUCE_RECV, l->me + 1, b, b, 1);
        }
        if (l->me > 0) {
            rui_coll_step(l, RU_COLL_SEND, l->me - 1, b, b, 1);
        }
    }
}

static void chain_broadcast(rui_coll_list *l)
{
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        if (l->me > 0) {
            rui_coll_step(l, RU_COLL_RECV, l->me - 1, b, b, 1);
        }
        if (l->me + 1 < l->n) {
            rui_coll_step(l, RU_COLL_SEND, l->me + 1, b, b, 1);
        }
    }
}

void rui_coll_ring(rui_coll_list *l)
{
    switch (l->op) {
    case RU_COLL_ALL_REDUCE:
        ring_reduce_scatter(l);
        ring_all_gather(l, l->n);
        break;
    case RU_COLL_REDUCE_SCATTER:
        ring_reduce_scatter(l);
        break;
    case RU_COLL_ALL_GATHER:
        ring_all_gather(l, 0);
        break;
    case RU_COLL_REDUCE:
        chain_reduce(l);
        break;
    case RU_COLL_BROADCAST:
        chain_broadcast(l);
        break;
    case RU_COLL_BARRIER:
        chain_reduce(l);
        chain_broadcast(l);
        break;
    case RU_COLL_ALL_TO_ALL:
    case RU_COLL_OPS:
        break;
    }
}

/* Receive `block` from everybody else and add in rank order. What stands before mine in that order
 * is summed aside; of two operands it does not matter which is which. */
static void add_in_rank_order(rui_coll_list *l, uint32_t tag, uint32_t block, uint32_t n_blocks)
{
    for (uint32_t q = 0; q < l->me; q++) {
        if (l->me == 1) {
            rui_coll_step_before(l, q, tag, block, n_blocks);
        } else {
            rui_coll_step(l, RU_COLL_RECV_ASIDE, q, tag, block, n_blocks);
        }
    }
    if (l->me > 1) {
        rui_coll_step(l, RU_COLL_FOLD, l->me, 0, block, n_blocks);
    }
    for (uint32_t q = l->me + 1; q < l->n; q++) {
        rui_coll_step(l, RU_COLL_REDUCE_RECV, q, tag, block, n_blocks);
    }
}

/* Peers from the next one on, so that not all ranks send to the same one at first. */
static void send_to_all(rui_coll_list *l, uint32_t tag, bool theirs, uint32_t block,
                        uint32_t n_blocks)
{
    for (uint32_t d = 1; d < l->n; d++) {
        uint32_t p = (l->me + d) % l->n;
        rui_coll_step(l, RU_COLL_SEND, p, tag, theirs ? p : block, n_blocks);
    }
}

static void direct_all_gather(rui_coll_list *l, uint32_t tag)
{
    send_to_all(l, tag, false, l->me, 1);
    for (uint32_t d = 1; d < l->n; d++) {
        uint32_t p = (l->me + l->n - d) % l->n;
        rui_coll_step(l, RU_COLL_RECV, p, tag, p, 1);
    }
}

/* In place: of each pair the higher rank takes aside, sends, then puts in place. */
static void direct_all_to_all(rui_coll_list *l)
{
    for (uint32_t p = 0; p < l->me; p++) {
        rui_coll_step(l, RU_COLL_RECV_ASIDE, p, 0, p, 1);
    }
    send_to_all(l, 0, true, 0, 1);
    for (uint32_t p = 0; p < l->me; p++) {
        rui_coll_step(l, RU_COLL_PLACE, l->me, 0, p, 1);
    }
    for (uint32_t p = l->me + 1; p < l->n; p++) {
        rui_coll_step(l, RU_COLL_RECV, p, 0, p, 1);
    }
}

void rui_coll_direct(rui_coll_list *l)
{
    switch (l->op) {
    case RU_COLL_ALL_REDUCE:
        send_to_all(l, 0, true, 0, 1);
        add_in_rank_order(l, 0, l->me, 1);
        direct_all_gather(l, 1);
        break;
    case RU_COLL_REDUCE_SCATTER:
        send_to_all(l, 0, true, 0, 1);
        add_in_rank_order(l, 0, l->me, 1);
        break;
    case RU_COLL_ALL_GATHER:
        direct_all_gather(l, 0);
        break;
    case RU_COLL_BARRIER:
        send_to_all(l, 0, false, 0, 1);
        for (uint32_t d = 1; d < l->n; d++) {
            rui_coll_step(l, RU_COLL_REDUCE_RECV, (l->me + d) % l->n, 0, 0, 1);
        }
        break;
    case RU_COLL_ALL_TO_ALL:
        direct_all_to_all(l);
        break;
    case RU_COLL_REDUCE:
        if (l->me == l->root) {
            add_in_rank_order(l, 0, 0, 1);
        } else {
            rui_coll_step(l, RU_COLL_SEND, l->root, 0, 0, 1);
        }
        break;
    case RU_COLL_BROADCAST:
        if (l->me == l->root) {
            send_to_all(l, 0, false, 0, 1);
        } else {
            rui_coll_step(l, RU_COLL_RECV, l->root, 0, 0, 1);
        }
        break;
    case RU_COLL_OPS:
        break;
    }
}
