/* Broadcasting: the dimensions of a result, merged to as few as possible, and how its operands step
 * along them. Inside exec/cpu/lower only.
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
} rui_spread;

/* n operands of types t[] that broadcast to `out`. */
void rui_spread_plan(rui_spread *s, const ru_type *out, const ru_type *const *t, uint32_t n);

/* Elements of each operand before row `row`. */
static inline void rui_spread_at(const rui_spread *s, int64_t row, int64_t *at)
{
    for (uint32_t k = 0; k < s->n; k++) {
        at[k] = 0;
    }
    for (uint32_t d = s->rank; d-- > 0;) {
        int64_t i = row % s->dims[d];
        row /= s->dims[d];
        for (uint32_t k = 0; k < s->n; k++) {
            at[k] += i * s->by[k][d];
        }
    }
}

#endif
