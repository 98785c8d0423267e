/* The end of fused ops in f64: y = act(z + residual).
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_REF_FINISH_H
#define RU_EXEC_CPU_REF_FINISH_H

#include "world/graph/graph.h"

/* Zeroed: y = z. */
typedef struct rui_finish {
    uint32_t act; /* 0: none */
    double a, b;
    double *residual; /* shaped as the output, or NULL */
} rui_finish;

/* The activation fused into `n`; false: it is not known. */
bool rui_finish_of(const ru_node *n, rui_finish *f);
double rui_finish_apply(const rui_finish *f, int64_t i, double z);

#endif
