/* Broadcasting: the dimensions of a result, merged to as few as possible, how its operands step
 * along them, and the loop over them. Inside exec/cpu/lower only.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_LOWER_LOWER_SPREAD_H
#define RU_EXEC_CPU_LOWER_LOWER_SPREAD_H

#include "exec/cpu/lower/lower_kern.h"

enum { RUI_SPREAD_MAX = 16 }; /* operands */

/* A row is the last merged dimension. There an operand steps by 1, or by 0 where it repeats. */
typedef struct rui_spread {
    uint32_t n, rank; /* operands; outer dimensions */
    int64_t rows, cols;
    int64_t dims[RU_RANK_MAX];               /* of the outer dimensions */
    int64_t by[RUI_SPREAD_MAX][RU_RANK_MAX]; /* steps along them */
    int64_t step[RUI_SPREAD_MAX];            /* steps along a row */
    int64_t bytes[RUI_SPREAD_MAX + 1];       /* of an element of each operand, then of the result */
} rui_spread;

/* n operands of types t[] that broadcast to `out`. */
void rui_spread_plan(rui_spread *s, const ru_type *out, const ru_type *const *t, uint32_t n);

/* n neighbours of the result: at[k] is where operand k has the first, step[k] (0 or 1) how it goes
 * on; at[operands] is where the first goes. */
typedef void (*rui_spread_piece)(const void *state, void *const *at, const int64_t *step,
                                 int64_t n);

/* The whole result in pieces, split over the pool. bufs: the operands, then the result.
 *
 * A piece is part of a row or several rows: rows of a few elements are put one behind the other
 * first, since a call costs more than they do. */
void rui_spread_run(const rui_run *run, const rui_spread *s, rui_spread_piece fn, const void *state,
                    void *const *bufs);

#endif
