/* Products of all time steps of a recurrent layer at once. Inside exec/cpu/lower only.
 *
 * Thread: as the executable. */
#ifndef RU_EXEC_CPU_LOWER_LOWER_RNN_H
#define RU_EXEC_CPU_LOWER_LOWER_RNN_H

#include "exec/cpu/low/prim.h"
#include "exec/cpu/lower/lower_kern.h"

typedef struct rui_rnn_dims {
    int64_t steps, batch, in, hidden, dirs, gates;
} rui_rnn_dims;

/* Piece `i` of `parts` equal pieces; the whole when there is one. */
rui_buf rui_rnn_piece(rui_low *lo, rui_buf b, int64_t i, int64_t parts, int64_t all_bytes);

/* c = a b, or c += a b. */
typedef struct rui_rnn_product {
    dnnl_memory_desc_t a, b, c;
    rui_buf ab, bb, cb;
    bool add;
    bool prep; /* of what never changes: made once */
} rui_rnn_product;

/* Type of the products' operands: bf16 where it is asked for and oneDNN multiplies it on this
 * processor (it needs AVX-512), else f32. */
ru_dtype rui_rnn_dtype(rui_low *lo);

ru_status rui_rnn_emit(rui_low *lo, const rui_rnn_product *m);
dnnl_memory_desc_t rui_rnn_md(rui_low *lo, int64_t rows, int64_t cols, int64_t row_step,
                              int64_t col_step, ru_dtype t);

/* pre = X W^T. Frozen weights of one direction are packed as the product likes them. */
ru_status rui_rnn_input(rui_low *lo, const rui_rnn_dims *d, ru_dtype t, rui_buf x, ru_value_id w,
                        int64_t dir, rui_buf pre);

/* Sequences that are shorter than the time steps (`lens`, i32): steps around those of a direction
 * that computes all of them forward. turns: it runs backward. */
typedef struct rui_rnn_lens {
    rui_buf lens, h0, c0;
    rui_buf ws; /* gates and c of all steps; absent where y_c is */
    rui_buf y, y_h, y_c;
} rui_rnn_lens;

void rui_rnn_lens_before(rui_low *lo, const rui_rnn_dims *d, bool turns, rui_buf lens, rui_buf pre);
void rui_rnn_lens_after(rui_low *lo, const rui_rnn_dims *d, bool turns, const rui_rnn_lens *l);

/* dX, dW, dR of one direction from dG; those with absent cb are left out.
 * io[0]: ab = X, bb = W, cb = dX; io[1]: ab = dG, bb = H', cb = dW; io[2]: cb = dR, and ab = dG as
 * R sees it where that differs. */
ru_status rui_rnn_grads(rui_low *lo, const rui_rnn_dims *d, ru_dtype t, ru_dtype dx_t,
                        const rui_rnn_product *io, int64_t dir);

#endif
