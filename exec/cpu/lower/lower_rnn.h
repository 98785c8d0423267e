/* What the lowerings of recurrent layers share: sizes, buffers, and the products of all time steps
 * at once. Inside exec/cpu/lower and exec/cpu/low only.
 *
 * Thread: as the executable. */
#ifndef RU_EXEC_LOWER_LOWER_RNN_H
#define RU_EXEC_LOWER_LOWER_RNN_H

#include "exec/cpu/low/prim.h"
#include "exec/cpu/lower/lower_kern.h"

typedef struct rui_rnn_dims {
    int64_t steps, batch, in, hidden, dirs, gates;
    bool reverse_first;
} rui_rnn_dims;

/* False when the node asks for what the kernels do not do (layout 1, clip, input_forget). `x` is
 * the place of X among the inputs. */
bool rui_rnn_dims_of(rui_low *lo, const ru_node *n, uint32_t x, int64_t gates, rui_rnn_dims *d);

/* Are the activations of each direction these, given or by default? */
bool rui_rnn_activations(const ru_node *n, const char *const *names, uint32_t count,
                         bool by_default);

/* Input or output k in f32, row-major; absent gives absent. */
rui_buf rui_rnn_in(rui_low *lo, const ru_node *n, uint32_t k);
rui_buf rui_rnn_out(rui_low *lo, const ru_node *n, uint32_t k);
/* Piece `i` of `parts` equal pieces; the whole when there is one. */
rui_buf rui_rnn_piece(rui_low *lo, rui_buf b, int64_t i, int64_t parts, int64_t all_bytes);
rui_buf rui_rnn_floats(rui_low *lo, int64_t n);

/* `floats` of R and the biases as `pack` puts them (bufs: 0 R 1 B 2 packed 3 work): before the
 * first run only, when they never change. */
typedef ru_status (*rui_rnn_pack_fn)(void *state, void *const *bufs, const rui_run *run);
rui_buf rui_rnn_pack(rui_low *lo, const ru_node *n, rui_rnn_pack_fn pack, void *state,
                     int64_t floats, int64_t hidden, rui_buf r, rui_buf b);

/* c = a b, or c += a b. */
typedef struct rui_rnn_product {
    dnnl_memory_desc_t a, b, c;
    rui_buf ab, bb, cb;
    bool add;
    bool prep; /* of what never changes: made once */
} rui_rnn_product;

/* Threads of a recurrence split the rows of the batch. When there are fewer rows than threads they
 * split the hidden units instead, if R is large enough that half of its product takes longer than
 * meeting after each step. Rows of one thread, for the size of its work: */
bool rui_rnn_splits_units(const rui_low *lo, const rui_rnn_dims *d);
int64_t rui_rnn_rows(const rui_low *lo, const rui_rnn_dims *d);

/* Run a recurrence's forward pass; `work`: `floats` for each thread. */
typedef void (*rui_rnn_forward)(const void *job, const ru_kern_share *mine);
void rui_rnn_run(const rui_run *run, rui_rnn_forward fn, const void *job, int64_t batch,
                 bool by_units, float *work, int64_t floats);

/* Type of the products' operands: bf16 where it is asked for and oneDNN multiplies it on this
 * processor (it needs AVX-512), else f32. */
ru_dtype rui_rnn_dtype(rui_low *lo);

ru_status rui_rnn_emit(rui_low *lo, const rui_rnn_product *m);
dnnl_memory_desc_t rui_rnn_md(rui_low *lo, int64_t rows, int64_t cols, int64_t row_step,
                              int64_t col_step, ru_dtype t);

/* pre = X W^T. Frozen weights of one direction are packed as the product likes them. */
ru_status rui_rnn_input(rui_low *lo, const rui_rnn_dims *d, ru_dtype t, rui_buf x, ru_value_id w,
                        int64_t dir, rui_buf pre);

/* dX, dW, dR of one direction from dG; those with absent cb are left out.
 * io[0]: ab = X, bb = W, cb = dX; io[1]: ab = dG, bb = H', cb = dW; io[2]: cb = dR, and ab = dG as
 * R sees it where that differs. */
ru_status rui_rnn_grads(rui_low *lo, const rui_rnn_dims *d, ru_dtype t, ru_dtype dx_t,
                        const rui_rnn_product *io, int64_t dir);

#endif
