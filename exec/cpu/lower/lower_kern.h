/* What the lowerings onto exec/cpu/kern share: splitting a range over the pool, and small questions
 * about values. Inside exec/cpu/lower and exec/cpu/low only.
 *
 * Thread: as the executable. */
#ifndef RU_EXEC_CPU_LOWER_LOWER_KERN_H
#define RU_EXEC_CPU_LOWER_LOWER_KERN_H

#include <string.h>

#include "exec/cpu/kern/kern.h"
#include "exec/cpu/lower/lower.h"

/* Do [begin, end) of the step's range; `bufs` as the step's. */
typedef void (*rui_kern_part)(const void *state, void *const *bufs, int64_t begin, int64_t end);

/* Split [0, n) over the pool in multiples of `grain`; a range of one grain runs inline. */
void rui_kern_for(const rui_run *run, rui_kern_part fn, const void *state, void *const *bufs,
                  int64_t n, int64_t grain);

/* The same for parts that need memory of their thread's own: `own_bytes` each, side by side at
 * `own`. */
typedef void (*rui_kern_own_part)(const void *state, void *const *bufs, int64_t begin, int64_t end,
                                  void *own);
void rui_kern_for_own(const rui_run *run, rui_kern_own_part fn, const void *state,
                      void *const *bufs, int64_t n, int64_t grain, void *own, int64_t own_bytes);

/* Rows of `cols` elements that make a piece worth a thread. */
int64_t rui_kern_grain(int64_t cols);

enum { RUI_SPREAD_PAST = 4 }; /* floats past the end that rui_kern_spread may write */

/* to[i * each .. (i + 1) * each) = v[i] of n values. */
static inline void rui_kern_spread(const float *v, int64_t n, int64_t each, float *to)
{
    for (int64_t i = 0; i < n; i++, to += each) {
        const float x = v[i];
        for (int64_t j = 0; j < each; j += 4) { /* what passes the end is overwritten */
            const float four[4] = {x, x, x, x};
            memcpy(to + j, four, sizeof four);
        }
    }
}

static inline const ru_type *rui_type(const rui_low *lo, ru_value_id v)
{
    return &rui_graph(lo)->values[v.v].type;
}

/* f32, or bf16: what the kernels compute on. */
static inline bool rui_kern_float(ru_dtype t)
{
    return t == RU_F32 || t == RU_BF16;
}

/* Product of dims[from .. to). */
static inline int64_t rui_dims(const ru_type *t, uint32_t from, uint32_t to)
{
    int64_t n = 1;
    for (uint32_t d = from; d < to; d++) {
        n *= t->dims[d];
    }
    return n;
}

/* Channels of a block when the layout is nChw16c (AVX-512) or nChw8c (AVX2); else 0. */
int64_t rui_block_lanes(const rui_layout *l);

/* Channels that stand side by side: of a block, or all of them (channels last); else 0. */
int64_t rui_side_by_side(const rui_layout *l, const ru_type *x);

/* Axis attribute or input, counted from the front. */
static inline uint32_t rui_axis(int64_t axis, uint32_t rank)
{
    return (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
}

/* Integers of a constant value (axes, perm); NULL when it is not constant. */
const int64_t *rui_const_i64(const rui_low *lo, ru_value_id v, uint32_t *n);

/* Which dimensions a Reduce node reduces; `k`: the input that gives the axes. False when they are
 * not known here. */
bool rui_reduced_axes(const rui_low *lo, const ru_node *n, uint32_t k, const ru_type *x,
                      bool *reduced);

/* Does an LSTM read the result of this Gather (or of this Transpose of one) by token, so that
 * nobody reads the result itself? */
bool rui_rnn_reads_past(rui_low *lo, const ru_node *n);

/* The dtype a float value of the graph stands in: bf16 where the executor stores it so. */
static inline ru_dtype rui_kern_dtype(rui_low *lo, ru_value_id v)
{
    return rui_standing(lo, v)->type.dtype;
}

#endif
