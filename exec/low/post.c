/* Activations fused into convolutions and products, as post-ops of oneDNN. */
#include <string.h>

#include "exec/low/conv.h"

typedef struct act_row {
    const char *name;
    dnnl_alg_kind_t alg;
    double alpha, beta; /* defaults, as ONNX says */
} act_row;

/* Only functions whose oneDNN definition equals the graph's. */
static const act_row rows[] = {
    {"relu", dnnl_eltwise_relu, 0.0, 0.0},
    {"leaky_relu", dnnl_eltwise_relu, 0.01, 0.0},
    {"tanh", dnnl_eltwise_tanh, 0.0, 0.0},
    {"sigmoid", dnnl_eltwise_logistic, 0.0, 0.0},
    {"elu", dnnl_eltwise_elu, 1.0, 0.0},
    {"gelu", dnnl_eltwise_gelu_erf, 0.0, 0.0},
    {"gelu_tanh", dnnl_eltwise_gelu_tanh, 0.0, 0.0},
    {"silu", dnnl_eltwise_swish, 1.0, 0.0},
    {"clip", dnnl_eltwise_clip_v2, 0.0, 6.0},
    {"hardswish", dnnl_eltwise_hardswish, 0.0, 0.0},
};

ru_status rui_post_of_node(const ru_node *n, rui_post *post)
{
    const char *name = ru_node_str(n, RU_ATTR_activation, NULL);
    if (name == NULL || name[0] == '\0') {
        return RU_OK;
    }
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            post->has_act = true;
            post->act = rows[i].alg;
            post->alpha = (float)ru_node_float(n, RU_ATTR_activation_alpha, rows[i].alpha);
            post->beta = (float)ru_node_float(n, RU_ATTR_activation_beta, rows[i].beta);
            return RU_OK;
        }
    }
    return RU_E_UNSUPPORTED;
}
