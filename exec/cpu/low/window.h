/* Windows of convolution and pooling: attributes of a node as oneDNN's numbers.
 *
 * Thread: one. */
#ifndef RU_EXEC_CPU_LOW_WINDOW_H
#define RU_EXEC_CPU_LOW_WINDOW_H

#include "exec/cpu/low/prim.h"

typedef struct rui_window {
    int nsp; /* spatial dimensions, 1 .. 3 */
    int64_t n, ci, co, groups;
    dnnl_dims_t in, out, kernel; /* [nsp] of each; oneDNN declares its arguments of full length */
    dnnl_dims_t stride, dilate;  /* dilate counts from 0, as oneDNN does */
    dnnl_dims_t pad_l, pad_r;
    dnnl_dims_t x_dims, w_dims, y_dims; /* w with a leading group dim when groups > 1 */
    int w_ndims;
} rui_window;

/* A window over three axes: those that are missing come first, with one of everything. */
typedef struct rui_cube {
    int64_t in[3], out[3], kernel[3], stride[3], dilate[3], pad[3]; /* dilate counts from 1 */
    int64_t taps, places; /* of the kernel, of the result */
    bool inside;          /* no tap meets padding */
    bool same;            /* one tap, and each place of the image is one of the result */
} rui_cube;

rui_cube rui_cube_of(const rui_window *w);

/* Does nobody but the caller read what `n` makes, in rows (of another shape perhaps), so that
 * oneDNN would reorder it back? */
bool rui_leaves(const rui_low *lo, const ru_node *n);

/* From the types of the forward operation's tensors; `transposed` for ConvTranspose, `w` NULL for
 * pooling (then kernel_shape is read, or the whole image when `global`).
 * Errors: RU_E_UNSUPPORTED for ranks oneDNN does not take (err untouched). */
ru_status rui_window_of(const ru_node *n, const ru_type *x, const ru_type *w, const ru_type *y,
                        bool transposed, bool global, rui_window *out);
/* As many images; the rest as it is. */
void rui_window_images(rui_window *w, int64_t n);

/* Executables of 8, 12, ... samples that share weights with another one, on one thread, run the
 * primitive for 4 of them several times, and those of 2 the one for a single sample twice, so that
 * oneDNN has its kernels once (a further batch size of GPT scoring: 4.8 % of its weights, was 6.0).
 * `n` where that is not so. */
int64_t rui_part_images(const rui_low *lo, int64_t n);
/* Do source and result of `times` runs stand like one part after the other? */
bool rui_pd_repeats(rui_low *lo, const_dnnl_primitive_desc_t pd, int64_t times);

#endif
