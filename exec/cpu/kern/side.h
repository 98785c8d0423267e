/* Pools of several planes side by side, one in each lane of a vector: rows of few elements fill no
 * vector, and so neither padding, nor strides, nor dilation cost anything per element.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_KERN_SIDE_H
#define RU_EXEC_CPU_KERN_SIDE_H

#include "exec/cpu/kern/kern.h"

enum { RU_KERN_SIDE_BYTES = 64 }; /* of so many planes' elements as are side by side */

/* Taps of a result along one axis that lie inside the image: the first, their number; `all`: also
 * those of the padding that a mean counts. */
typedef struct ru_kern_side_taps {
    int64_t from, n, all;
} ru_kern_side_taps;

typedef struct ru_kern_side {
    ru_dtype t;      /* f32; maxima without places also u8, i8 */
    bool max;        /* else means */
    bool by_columns; /* places count with the last axis slowest */
    int64_t in[3], out[3], dilation[3];
    const ru_kern_side_taps *taps[3]; /* [out] of each axis */
} ru_kern_side;

typedef struct ru_kern_sides {
    /* Bytes of `work` for results a0 .. a1 of axis 0. */
    int64_t (*work)(const ru_kern_side *p, int64_t a0, int64_t a1);
    /* Results a0 .. a1 of axis 0 of each plane from x on; place (NULL: none) counts from `first`,
     * of the first plane. planes: at most RU_KERN_SIDE_BYTES of elements */
    void (*pool)(const ru_kern_side *p, const void *x, int64_t planes, int64_t a0, int64_t a1,
                 void *work, void *y, int64_t *place, int64_t first);
} ru_kern_sides;

/* Of the best instruction set that this CPU has. */
const ru_kern_sides *ru_kern_sides_best(void);

#endif
