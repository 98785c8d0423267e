/* Buckets of a group, and how tensors are cut into pieces of their sizes. Pure.
 * Thread: any. */
#ifndef RU_TRAIN_EMBED_RANKS_CUT_H
#define RU_TRAIN_EMBED_RANKS_CUT_H

#include "comm/coll/coll.h"

enum {
    RUI_RANKS_LEAST = 4 << 10, /* bytes; each size is four times the one before */
    RUI_RANKS_SIZES = 5,
    RUI_RANKS_CUT_MAX = 16,
    /* Buckets of a size, which is how many pieces of it are under way at one time: enough of the
     * largest that the link has something to send while this process is late to add. */
    RUI_RANKS_SIDE_BY_SIDE = 4,
    RUI_RANKS_LARGEST_BESIDE = 8,
    RUI_RANKS_OF_KIND = (RUI_RANKS_SIZES - 1) * RUI_RANKS_SIDE_BY_SIDE + RUI_RANKS_LARGEST_BESIDE
};

typedef enum rui_ranks_kind {
    RUI_RANKS_SUM,
    RUI_RANKS_SUM_BF16,
    RUI_RANKS_SCATTER,
    RUI_RANKS_SCATTER_BF16,
    RUI_RANKS_GATHER,
    RUI_RANKS_CAST, /* the first of n_ranks: one for each root */
    RUI_RANKS_KINDS
} rui_ranks_kind;

typedef struct rui_ranks_row {
    rui_ranks_kind kind;
    uint32_t root, size;
    int64_t size_bytes; /* of a block */
} rui_ranks_row;

enum { RUI_RANKS_BUCKETS_MAX = (5 + 64) * RUI_RANKS_OF_KIND };

typedef struct rui_ranks_table {
    rui_ranks_row at[RUI_RANKS_BUCKETS_MAX];
    uint32_t n, n_ranks;
} rui_ranks_table;

void rui_ranks_table_make(rui_ranks_table *t, uint32_t n_ranks);
ru_coll_bucket rui_ranks_bucket(const rui_ranks_table *t, uint32_t k);
rui_ranks_kind rui_ranks_kind_of(ru_coll_op op, ru_dtype dtype);
/* The buckets of a size: [*first, *first + *n). */
void rui_ranks_find(rui_ranks_kind kind, uint32_t root, uint32_t size, uint32_t *first,
                    uint32_t *n);

typedef struct rui_ranks_piece {
    uint32_t size;
    int64_t at, size_bytes; /* of the tensor; less than the bucket's where it is padded */
} rui_ranks_piece;

/* The next pieces of n_bytes from `at` on, in `cut` [RUI_RANKS_CUT_MAX]; returns how many, at least
 * one, also of nothing. */
uint32_t rui_ranks_cut(int64_t at, int64_t n_bytes, rui_ranks_piece *cut);
uint32_t rui_ranks_pieces(int64_t n_bytes); /* of the whole */

#endif
