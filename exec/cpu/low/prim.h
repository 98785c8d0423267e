/* oneDNN primitives as steps: descriptors in, one emitted step out.
 *
 * Thread: one; used while an executable opens. */
#ifndef RU_EXEC_CPU_LOW_PRIM_H
#define RU_EXEC_CPU_LOW_PRIM_H

#include "exec/cpu/lower/lower.h"

enum { RUI_PRIM_ARGS_MAX = 24 };

typedef struct rui_arg {
    int arg; /* DNNL_ARG_SRC ... */
    dnnl_memory_desc_t md;
    rui_buf buf;
} rui_arg;

/* A primitive being put together. */
typedef struct rui_prim {
    rui_low *lo;
    dnnl_primitive_desc_t pd;
    rui_arg args[RUI_PRIM_ARGS_MAX];
    uint32_t n_args;
    bool prep;      /* once, before the first run: all operands frozen; set after rui_prim_begin */
    uint32_t times; /* the primitive runs so often, over that many parts of its source and result,
                       along their first dimension; set after rui_prim_begin */
} rui_prim;

/* Fused element-wise function of an output; kind RUI_ACT_NONE: nothing. */
typedef struct rui_post {
    bool sum; /* dst += result, before the activation */
    bool has_act;
    dnnl_alg_kind_t act;
    float alpha, beta;
    dnnl_memory_desc_t add_md[2]; /* binary additions, broadcast as oneDNN allows; ndims 0: none */
    bool scaled;
    float scale; /* of the result, before everything */
    /* 8-bit products: scales of the integer sum, before everything; NULL: none */
    const float *scales; /* [n_scales] */
    int64_t n_scales;
    int scales_mask;
    float act_scale; /* factor of the activation's result; 0: 1 */
    int32_t x_zero, y_zero;
} rui_post;

/* Attributes with a scratchpad of ours and the post-ops; NULL when oneDNN refuses. */
dnnl_primitive_attr_t rui_attr_make(rui_low *lo, const rui_post *post);

/* First implementation that fits an operation, of which `described` says whether oneDNN could
 * describe it; NULL when there is none. */
dnnl_primitive_desc_t rui_pd_make(rui_low *lo, dnnl_status_t described, const_dnnl_op_desc_t desc,
                                  const rui_post *post);
/* The same for a gradient, given the primitive of its forward pass (NULL: none), and only a fast
 * one. */
dnnl_primitive_desc_t rui_pd_backward(rui_low *lo, dnnl_status_t described,
                                      const_dnnl_op_desc_t desc,
                                      dnnl_primitive_desc_t forward_take);
void rui_pd_free(rui_low *lo, dnnl_primitive_desc_t pd);
const char *rui_pd_name(rui_low *lo, const_dnnl_primitive_desc_t pd);
/* The primitive; NULL when there is none, or when it is a plain loop ("ref:any"), which is slow. */
dnnl_primitive_desc_t rui_pd_fast(rui_low *lo, dnnl_primitive_desc_t pd_take);
/* Descriptor that the implementation chose for argument `arg`; of ndims 0 when it has none. */
dnnl_memory_desc_t rui_pd_md(rui_low *lo, const_dnnl_primitive_desc_t pd, int arg);

/* Descriptors. `any`: the implementation chooses. */
dnnl_memory_desc_t rui_md_any(rui_low *lo, int ndims, const int64_t *dims, dnnl_data_type_t dt);
dnnl_memory_desc_t rui_md_strided(rui_low *lo, int ndims, const int64_t *dims,
                                  const int64_t *strides, dnnl_data_type_t dt);
dnnl_memory_desc_t rui_md_plain(rui_low *lo, int ndims, const int64_t *dims, dnnl_data_type_t dt);
/* Row-major one-dimensional. */
dnnl_memory_desc_t rui_md_vec(rui_low *lo, int64_t n, dnnl_data_type_t dt);

/* Collect the arguments, then emit. The prim takes pd. rui_prim_in asks for the value in `md`,
 * given its dims (a plain value may be read under other dims of equal count); NULL: as the
 * implementation chose. rui_prim_emit_as also stores the result as the executor stores values. */
void rui_prim_begin(rui_prim *p, rui_low *lo, dnnl_primitive_desc_t pd_take);
void rui_prim_in(rui_prim *p, int arg, ru_value_id v, const dnnl_memory_desc_t *md);
void rui_prim_out(rui_prim *p, int arg, ru_value_id v, const dnnl_memory_desc_t *md);
void rui_prim_buf(rui_prim *p, int arg, rui_buf b, const dnnl_memory_desc_t *md);
ru_status rui_prim_emit(rui_prim *p, const char *what);
ru_status rui_prim_emit_as(rui_prim *p, const char *what, ru_value_id result);

#endif
