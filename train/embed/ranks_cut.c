#include "train/embed/ranks_cut.h"

static int64_t bytes_of(uint32_t size)
{
    return (int64_t)RUI_RANKS_LEAST << 2 * size;
}

void rui_ranks_table_make(rui_ranks_table *t, uint32_t n_ranks)
{
    t->n = 0;
    t->n_ranks = n_ranks;
    for (uint32_t kind = 0; kind < RUI_RANKS_KINDS; kind++) {
        for (uint32_t root = 0; root < (kind == RUI_RANKS_CAST ? n_ranks : 1); root++) {
            for (uint32_t k = 0; k < RUI_RANKS_OF_KIND; k++) {
                uint32_t size = k / RUI_RANKS_SIDE_BY_SIDE;
                size = size < RUI_RANKS_SIZES ? size : RUI_RANKS_SIZES - 1;
                t->at[t->n++] = (rui_ranks_row){.kind = (rui_ranks_kind)kind,
                                                .root = root,
                                                .size = size,
                                                .size_bytes = bytes_of(size)};
            }
        }
    }
}

void rui_ranks_find(rui_ranks_kind kind, uint32_t root, uint32_t size, uint32_t *first, uint32_t *n)
{

    *first = ((uint32_t)kind + root) * RUI_RANKS_OF_KIND + size * RUI_RANKS_SIDE_BY_SIDE;
    *n = size == RUI_RANKS_SIZES - 1 ? RUI_RANKS_LARGEST_BESIDE : RUI_RANKS_SIDE_BY_SIDE;
}

rui_ranks_kind rui_ranks_kind_of(ru_coll_op op, ru_dtype dtype)
{
    bool bf16 = dtype == RU_BF16;
    return op == RU_COLL_ALL_REDUCE       ? (bf16 ? RUI_RANKS_SUM_BF16 : RUI_RANKS_SUM)
           : op == RU_COLL_REDUCE_SCATTER ? (bf16 ? RUI_RANKS_SCATTER_BF16 : RUI_RANKS_SCATTER)
           : op == RU_COLL_ALL_GATHER     ? RUI_RANKS_GATHER
                                          : RUI_RANKS_CAST;
}

/* Among few ranks everybody sends to everybody at once: as few bytes as a ring, in two steps. */
static ru_coll_algo algo_of(ru_coll_op op, uint32_t n_ranks, int64_t size_bytes)
{
    bool small = size_bytes <= 16 << 10;
    if (op == RU_COLL_BROADCAST) {
        return n_ranks <= 2 ? RU_ALGO_DIRECT : small ? RU_ALGO_TREE : RU_ALGO_RING;
    }
    return n_ranks <= 8                        ? RU_ALGO_DIRECT
           : small && op == RU_COLL_ALL_REDUCE ? RU_ALGO_DOUBLING
                                               : RU_ALGO_RING;
}

ru_coll_bucket rui_ranks_bucket(const rui_ranks_table *t, uint32_t k)
{
    static const struct {
        ru_coll_op op;
        ru_dtype dtype;
    } of[] = {
        [RUI_RANKS_SUM] = {RU_COLL_ALL_REDUCE, RU_F32},
        [RUI_RANKS_SUM_BF16] = {RU_COLL_ALL_REDUCE, RU_BF16},
        [RUI_RANKS_SCATTER] = {RU_COLL_REDUCE_SCATTER, RU_F32},
        [RUI_RANKS_SCATTER_BF16] = {RU_COLL_REDUCE_SCATTER, RU_BF16},
        [RUI_RANKS_GATHER] = {RU_COLL_ALL_GATHER, RU_U8},
        [RUI_RANKS_CAST] = {RU_COLL_BROADCAST, RU_U8},
    };
    const rui_ranks_row *r = &t->at[k];
    bool whole =
        r->kind == RUI_RANKS_SUM || r->kind == RUI_RANKS_SUM_BF16 || r->kind == RUI_RANKS_CAST;
    return (ru_coll_bucket){
        .op = of[r->kind].op,
        .algo = algo_of(of[r->kind].op, t->n_ranks, r->size_bytes),
        .dtype = of[r->kind].dtype,
        .n = r->size_bytes / ru_dtype_bytes(of[r->kind].dtype) * (whole ? 1 : t->n_ranks),
        .root = r->root,
        .depth = 1,
        /* One chunk: of several the later ones wait for a message each. But what is for each of
         * many ranks would take scratch of all of them at once. */
        .chunk_bytes = 4 << 20,
        .class = RU_CLASS_NORMAL,
    };
}

uint32_t rui_ranks_cut(int64_t at, int64_t n_bytes, rui_ranks_piece *cut)
{
    uint32_t n = 0, size = RUI_RANKS_SIZES - 1;
    do {
        int64_t left = n_bytes - at;
        while (size > 0 && bytes_of(size) > left) {
            size--;
        }
        int64_t take = bytes_of(size) < left ? bytes_of(size) : left;
        cut[n++] = (rui_ranks_piece){.size = size, .at = at, .size_bytes = take};
        at += take;
    } while (at < n_bytes && n < RUI_RANKS_CUT_MAX);
    return n;
}

uint32_t rui_ranks_pieces(int64_t n_bytes)
{
    rui_ranks_piece cut[RUI_RANKS_CUT_MAX];
    int64_t most = bytes_of(RUI_RANKS_SIZES - 1), whole = n_bytes / most * most;
    uint32_t n = (uint32_t)(n_bytes / most);
    for (int64_t at = whole; at < n_bytes || n == 0;) {
        uint32_t k = rui_ranks_cut(at, n_bytes, cut);
        n += k;
        at = cut[k - 1].at + cut[k - 1].size_bytes;
    }
    return n;
}
