/* What the lowerings of convolutions and products share.
 *
 * Thread: one. */
#ifndef RU_EXEC_CPU_CONV_H
#define RU_EXEC_CPU_CONV_H

#include "exec/cpu/window.h"

typedef enum rui_conv_dir {
    RUI_CONV_FWD,
    RUI_CONV_BWD_X,
    RUI_CONV_BWD_W,
} rui_conv_dir;

/* Direct or Winograd, by measurement (tune.c). */
dnnl_alg_kind_t rui_conv_alg(rui_low *lo, rui_conv_dir dir, const rui_window *w,
                             dnnl_data_type_t act);

/* The activation fused into a node (attributes activation, activation_alpha, activation_beta), as a
 * post-op. Errors: RU_E_UNSUPPORTED when oneDNN has no such function. */
ru_status rui_post_of_node(const ru_node *n, rui_post *post);

#endif
