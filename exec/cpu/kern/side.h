/* Pools of several planes side by side, one in each lane of a vector: rows of few elements fill no
 * vector, and so neither padding, nor strides, nor dilation cost anything per element. Sums of few
 * products of bytes.
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

/* -- bytes ----------------------------------------------------------------------------------------
 * Sums of few products of bytes, which stay in registers until zero points are taken off: an
 * instruction set that adds four products of bytes at once has them, and VBMI. */

enum {
    RU_KERN_BYTES_COLS = 64, /* of a packed piece */
    RU_KERN_BYTES_OWN = 16,
    RU_KERN_BYTES_ROWS = 6, /* that go together */
};

/* y[i, j] = sum over k of a[i, k] * c[k, j], less rows[i] * by[j] + cols[j] (NULL: 0, 1, 0). With
 * `own` rows[i] is (the sum of row i of a, less `all`) * each, and n is at most
 * RU_KERN_BYTES_OWN. */
typedef struct ru_kern_bytes_sums {
    bool own;
    uint32_t all, each;
    bool a_sign;               /* a is i8 and c is u8, else a is u8 and c is i8 */
    int64_t terms, n;          /* n <= RU_KERN_BYTES_COLS columns */
    const uint8_t *a;          /* rows a_step apart */
    const uint8_t *c;          /* packed */
    const uint32_t *rows;      /* [n_rows] */
    const uint32_t *by, *cols; /* [n] */
    uint32_t *y;               /* rows y_step apart */
    int64_t a_step, y_step;
} ru_kern_bytes_sums;

typedef struct ru_kern_bytes {
    /* Bytes of a piece of RU_KERN_BYTES_COLS columns. */
    int64_t (*piece)(int64_t terms);
    /* n <= RU_KERN_BYTES_COLS columns of `terms` lines of x, `step` apart, each byte ^ flip. sums
     * [n] of what is packed (as i8: sign); NULL: none */
    void (*pack)(const uint8_t *x, int64_t step, int64_t terms, int64_t n, uint8_t flip, bool sign,
                 uint8_t *to, int32_t *sums);
    /* to[i] = x[i * step] of n <= RU_KERN_BYTES_COLS; `to` has room for as many */
    void (*line)(const uint8_t *x, int64_t step, int64_t n, uint8_t *to);
    void (*sums)(const ru_kern_bytes_sums *s, int64_t n_rows);
} ru_kern_bytes;

/* NULL: this CPU does not have the instructions. */
const ru_kern_bytes *ru_kern_bytes_here(void);

#endif
