/* Sums at memory speed: AVX-512, AVX2 or plain code, chosen at run time. All give the same bits:
 * every element is one IEEE addition (bf16: of the two as f32, rounded to nearest even).
 *
 * Thread: any. */
#ifndef RU_COMM_COLL_COLL_ADD_H
#define RU_COMM_COLL_COLL_ADD_H

#include "world/dtype.h"

enum { RU_COLL_SUM_MAX = 64 };

/* mine[k] = mine[k] + theirs[k], or theirs[k] + mine[k] when `before`. dtype f32 or bf16; the
 * buffers do not overlap. */
void ru_coll_add(ru_dtype dtype, void *mine, const void *theirs, int64_t n, bool before);

/* into[k] = from[0][k] + from[1][k] + ... in this order, one pass over memory; bf16 is added in f32
 * and rounded once. 1 <= n_from <= RU_COLL_SUM_MAX; `into` may be one of them. `stream`: into will
 * not be read soon: write it around the caches. */
void ru_coll_sum(ru_dtype dtype, void *into, const void *const *from, uint32_t n_from, int64_t n,
                 bool stream);

/* A copy; `stream` as above. The buffers do not overlap. */
void ru_coll_copy(void *into, const void *from, int64_t size_bytes, bool stream);

/* The instruction set in use: "avx512", "avx2", "plain". */
const char *ru_coll_add_isa(void);

#endif
