/* Collectives of a fixed set of processes, for programs that bring their own tensors: all ranks
 * call the same collectives with the same sizes in the same order, and each of them runs beside
 * the others. No size is announced: a tensor is cut into pieces of a few sizes, whose sums were
 * declared when the group was opened.
 *
 *   call = pieces of 1 MiB, 256 KiB, ... 4 KiB (the last one padded) --> the next bucket of its
 * size bucket: one piece at a time, in the order of the calls
 *
 * A rank that is lost, or closes, ends the group: calls that are not done return RU_E_PEER with a
 * sentence that names it. A process that ends is lost at once, one that is silent after 8 s.
 *
 * Memory: scratch of the sizes that occur, 10 MiB for large sums among two ranks, 14 MiB among
 * four, and up to 32 MiB for what is scattered; nothing grows with the tensors. Thread: any; calls
 * that begin something take turns. */
#ifndef RU_TRAIN_EMBED_RANKS_H
#define RU_TRAIN_EMBED_RANKS_H

#include "world/coll.h"
#include "world/dtype.h"

typedef struct ru_ranks ru_ranks;

enum {
    RU_RANKS_RANKS_MAX = 64,
    RU_RANKS_CALLS_MAX = 4096 /* begun and not done */
};

typedef struct ru_ranks_options {
    const char *join;   /* HOST:PORT of rank 0; NULL: this is rank 0 */
    const char *listen; /* HOST:PORT; NULL: this machine's address on the way to `join`, or
                           127.0.0.1:0 */
    const char *token;  /* secret, 16 to 64 bytes, the same for all ranks */
    uint32_t rank, n_ranks;
} ru_ranks_options;

/* It listens when this returns. Texts are copied. Errors: RU_E_ARG, RU_E_MEM, those of the address.
 */
RU_MUST_USE ru_status ru_ranks_open(const ru_ranks_options *opt, ru_ranks **out, ru_err *err);
/* Calls that are not done are given up. NULL is fine. */
void ru_ranks_close(ru_ranks *g);
/* HOST:PORT where others join; view until ru_ranks_close. */
const char *ru_ranks_address(const ru_ranks *g);

/* Waits until all ranks are there, at most wait_ns. Errors: RU_E_AGAIN after it; RU_E_PEER,
 * RU_E_CONFIG with the reason why they cannot meet. */
RU_MUST_USE ru_status ru_ranks_meet(ru_ranks *g, int64_t wait_ns, ru_err *err);

/* Begins a collective of all ranks; `data` is untouchable until it is done.
 *
 *   op              data
 *   ALL_REDUCE      [n] f32 or bf16: the sum
 *   REDUCE_SCATTER  [n_ranks][n] f32 or bf16: the own block becomes the sum, the others undefined
 *   ALL_GATHER      [n_ranks][n] bytes (RU_U8): the others' blocks, the own one is given
 *   BROADCAST       [n] bytes (RU_U8): root's
 *   BARRIER         nothing
 *
 * *call counts from 1. Errors: RU_E_ARG, RU_E_UNSUPPORTED, RU_E_LIMIT (too many not done),
 * RU_E_PEER. */
RU_MUST_USE ru_status ru_ranks_begin(ru_ranks *g, ru_coll_op op, ru_dtype dtype, uint32_t root,
                                     void *data, int64_t n, uint64_t *call, ru_err *err);
/* Waits for it, at most wait_ns. Errors: RU_E_AGAIN after it; RU_E_PEER. */
RU_MUST_USE ru_status ru_ranks_wait(ru_ranks *g, uint64_t call, int64_t wait_ns, ru_err *err);

#endif
