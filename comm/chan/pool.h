/* Memory of a channel for what it copies: sequenced frames not yet acknowledged (items) and the
 * bytes of messages (blocks of two sizes, chained). Taken at open, touched when used.
 *
 * Source: choudhury-1998 for the shares of those who take from one pool.
 * Thread: loop only. */
#ifndef RU_COMM_CHAN_POOL_H
#define RU_COMM_CHAN_POOL_H

#include <stddef.h>

#include "base/arena.h"
#include "comm/chan/pheap.h"
#include "env/link/link.h"

enum { RUI_BLOCK_SMALL = 256, RUI_BLOCK_LARGE = 4096 };

/* Cells of one size, free ones chained through `next`. */
typedef struct rui_cells {
    uint8_t *at;
    uint32_t *next; /* [max] */
    int64_t size_bytes;
    uint32_t max, used, free, taken; /* used: touched so far */
} rui_cells;

static inline bool rui_cells_init(rui_cells *c, ru_arena *a, int64_t size_bytes, uint32_t max)
{
    *c = (rui_cells){.size_bytes = size_bytes, .max = max, .free = RUI_NONE};
    c->at = ru_arena_alloc(a, size_bytes * max, 64);
    c->next = ru_arena_alloc(a, 4 * (int64_t)max, 64);
    return c->at != NULL && c->next != NULL;
}

static inline uint32_t rui_cells_take(rui_cells *c)
{
    uint32_t i = c->free;
    if (i != RUI_NONE) {
        c->free = c->next[i];
    } else if (c->used < c->max) {
        i = c->used++;
    } else {
        return RUI_NONE;
    }
    c->next[i] = RUI_NONE;
    c->taken++;
    return i;
}

static inline void rui_cells_give(rui_cells *c, uint32_t i)
{
    RU_CHECK(i < c->used && c->taken > 0);
    c->next[i] = c->free;
    c->free = i;
    c->taken--;
}

/* May one of several users, who has `held`, take `more` of the remaining `left`? Never more than
 * remains for the others: k users that return nothing get 1 / (k + 1) each, and as much remains for
 * all others. One user alone gets half. */
static inline bool rui_share(int64_t held, int64_t more, int64_t left)
{
    return held + more <= left - more;
}

static inline void *rui_cells_at(const rui_cells *c, uint32_t i)
{
    return c->at + (int64_t)i * c->size_bytes;
}

typedef struct rui_blocks {
    rui_cells small, large;
} rui_blocks;

/* Chains of small blocks have this bit in their first index; such a chain has one block. */
static const uint32_t RUI_BLOCK_IS_SMALL = 1u << 31;

/* A chain for size_bytes > 0 (at most RU_LINK_SPANS_MAX large blocks); RUI_NONE: none left. */
uint32_t rui_blocks_take(rui_blocks *b, int64_t size_bytes);
void rui_blocks_give(rui_blocks *b, uint32_t chain); /* RUI_NONE is fine */
/* Memory that a chain holds, 0 for RUI_NONE; and what is left in all. */
int64_t rui_blocks_held(const rui_blocks *b, uint32_t chain);
int64_t rui_blocks_left(const rui_blocks *b);
uint32_t rui_blocks_spans(const rui_blocks *b, uint32_t chain, int64_t size_bytes,
                          ru_span spans[RU_LINK_SPANS_MAX]);
/* Copy between a chain and scattered or plain memory; NULL data: only counted. */
void rui_blocks_fill(const rui_blocks *b, uint32_t chain, const ru_span *from, uint32_t n_from);
void rui_blocks_read(const rui_blocks *b, uint32_t chain, int64_t size_bytes, const ru_span *to,
                     uint32_t n_to);
/* The bytes in one piece: in place, or copied into buf. */
const void *rui_blocks_view(const rui_blocks *b, uint32_t chain, int64_t size_bytes, void *buf);

#endif
