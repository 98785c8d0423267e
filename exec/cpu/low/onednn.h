/* oneDNN, loaded when the first executable for the CPU device opens.
 *
 * The library is a 40 MB shared object with three more behind it (2 ms of start-up measured), so it
 * is opened by name instead of linked: `rubato --version` and every command that computes nothing
 * never see it. Its functions stand in one table; only exec/cpu/low and exec/cpu/lower include this
 * header. What differs between versions 2 and 3 is answered by the helpers below and in onednn.c,
 * nowhere else.
 *
 * Thread: the table is read-only after rui_dnnl_open; engines and streams belong to one executable.
 */
#ifndef RU_EXEC_CPU_LOW_ONEDNN_H
#define RU_EXEC_CPU_LOW_ONEDNN_H

#include <dnnl.h>

#include "base/status.h"
#include "world/graph/graph.h"

/* X(name): dnnl_<name> */
/* clang-format off */
#define RUI_DNNL_LIST(X) \
    X(binary_desc_init) X(concat_primitive_desc_create) \
    X(dilated_convolution_backward_data_desc_init) \
    X(dilated_convolution_backward_weights_desc_init) X(dilated_convolution_forward_desc_init) \
    X(dilated_deconvolution_backward_data_desc_init) \
    X(dilated_deconvolution_backward_weights_desc_init) \
    X(dilated_deconvolution_forward_desc_init) X(eltwise_backward_desc_init) \
    X(eltwise_forward_desc_init) X(engine_create) X(engine_destroy) \
    X(get_effective_cpu_isa) \
    X(inner_product_backward_data_desc_init) X(inner_product_backward_weights_desc_init) \
    X(inner_product_forward_desc_init) X(lrn_forward_desc_init) X(matmul_desc_init) \
    X(memory_create) X(memory_desc_equal) X(memory_desc_get_size) X(memory_desc_init_by_strides) \
    X(memory_desc_init_by_tag) X(memory_destroy) X(memory_set_data_handle) \
    X(pooling_v2_backward_desc_init) X(pooling_v2_forward_desc_init) X(post_ops_append_binary) \
    X(post_ops_append_eltwise) X(post_ops_append_sum) X(post_ops_create) X(post_ops_destroy) \
    X(primitive_attr_create) X(primitive_attr_destroy) X(primitive_attr_set_output_scales) \
    X(primitive_attr_set_post_ops) X(primitive_attr_set_scratchpad_mode) \
    X(primitive_attr_set_zero_points) X(primitive_create) \
    X(primitive_desc_create) X(primitive_desc_destroy) X(primitive_desc_iterator_create) \
    X(primitive_desc_iterator_destroy) X(primitive_desc_iterator_fetch) \
    X(primitive_desc_iterator_next) X(primitive_desc_query) X(primitive_desc_query_md) \
    X(primitive_destroy) X(primitive_execute) X(reorder_primitive_desc_create) X(sgemm) \
    X(stream_create) X(stream_destroy) X(sum_primitive_desc_create) X(version)
/* clang-format on */

typedef struct rui_dnnl {
#define RUI_X(name) __typeof__(&dnnl_##name) name;
    RUI_DNNL_LIST(RUI_X)
#undef RUI_X
    void *library;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uint32_t primitives; /* created so far */
} rui_dnnl;

/* Load the library and make an engine and a stream.
 * Errors: RU_E_UNSUPPORTED when the library or one of its functions is missing. */
RU_MUST_USE ru_status rui_dnnl_open(rui_dnnl *nn, ru_err *err);
void rui_dnnl_close(rui_dnnl *nn); /* accepts zeroed memory */

/* Has the CPU dot products of bytes (VNNI)? Without them oneDNN adds pairs of products in 16 bits.
 * false when the library cannot be loaded. */
bool rui_dnnl_exact_bytes(void);

/* dnnl_f32, dnnl_bf16, ...; dnnl_data_type_undef for what oneDNN does not know. */
dnnl_data_type_t rui_dnnl_type(ru_dtype t);
ru_dtype rui_dnnl_dtype(dnnl_data_type_t t);
const char *rui_dnnl_status_name(dnnl_status_t st);

#endif
