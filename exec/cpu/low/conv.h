/* What the lowerings of convolutions and products share.
 *
 * Thread: one. */
#ifndef RU_EXEC_CPU_LOW_CONV_H
#define RU_EXEC_CPU_LOW_CONV_H

#include "exec/cpu/kern/kern.h"
#include "exec/cpu/low/prim.h"
#include "exec/cpu/low/window.h"

typedef enum rui_conv_dir {
    RUI_CONV_FWD,
    RUI_CONV_BWD_X,
    RUI_CONV_BWD_W,
} rui_conv_dir;

typedef struct rui_conv {
    rui_window w;
    dnnl_data_type_t act; /* of activations and of weights as kernels read them */
    bool bias;
    rui_post post; /* of the forward direction */
} rui_conv;

/* The primitive of a backward direction in layouts of its choice; NULL: none but a plain loop. */
dnnl_primitive_desc_t rui_conv_bwd(rui_low *lo, rui_conv_dir dir, const rui_conv *c,
                                   dnnl_alg_kind_t alg);

/* The forward primitive; without the activation of c->post where `alg` has none with it (or *fused
 * was false): *fused says so. NULL: none but a plain loop. */
dnnl_primitive_desc_t rui_conv_fwd(rui_low *lo, const rui_conv *c, dnnl_alg_kind_t alg,
                                   bool *fused);

/* Direct or Winograd: measured when the options ask for it (tune.c), else by rule. May turn c->act
 * to f32 on the bf16 path. */
dnnl_alg_kind_t rui_conv_alg(rui_low *lo, rui_conv_dir dir, rui_conv *c);

/* Is our own product the faster one for C[m,n] over k with rows of A `a_row` apart? So far: AVX2
 * and no more, long sums down the columns of a transposed A. */
bool rui_product_pays(int64_t m, int64_t n, int64_t k, int64_t a_row);
/* The step of it; pointers of `g` are not read, absent `bias` is none. */
ru_status rui_product_emit(rui_low *lo, const ru_kern_product *g, rui_buf a, rui_buf b,
                           rui_buf bias, rui_buf c);

/* f32 of t's dims in oneDNN's named order; NULL when there is no such order. */
const rui_layout *rui_layout_tag(rui_low *lo, const ru_type *t, dnnl_format_tag_t tag);

/* The activation fused into a node (attributes activation, activation_alpha, activation_beta), as a
 * post-op. Errors: RU_E_UNSUPPORTED when oneDNN has no such function. */
ru_status rui_post_of_node(rui_low *lo, const ru_node *n, rui_post *post);
/* The same for sums of integers, which hold no NaN that could be dropped. */
ru_status rui_post_of_whole(const ru_node *n, rui_post *post);

/* What a kernel without such a post-op leaves out, as steps on the result where it stands: the
 * bias of a Gemm (input 2), the residual (input 3), the activation fused into `n`; in this order.
 */
bool rui_bias_known(const rui_low *lo, const ru_node *n);
void rui_bias_emit(rui_low *lo, const ru_node *n);
void rui_residual_emit(rui_low *lo, const ru_node *n);
/* Has `n` an activation that is known? Then x becomes what it gives. */
bool rui_act_on(const ru_node *n, float *x, int64_t count);
/* Is `n` a convolution of f32 (or a transposed one) without a residual, and with no activation but
 * one that is known? Its window, then. */
bool rui_conv_plain(rui_low *lo, const ru_node *n, bool transposed, rui_window *w);
void rui_act_emit(rui_low *lo, const ru_node *n);
/* A copy of `n` with its first `n_in` inputs and without activation; NULL sets the sticky error. */
const ru_node *rui_node_bare(rui_low *lo, const ru_node *n, uint32_t n_in);

#endif
