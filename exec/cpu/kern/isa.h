/* The prototypes of one instruction set's copy of the kernels.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_KERN_ISA_H
#define RU_EXEC_CPU_KERN_ISA_H

#include "exec/cpu/kern/vec.h"

#define RU_X(ret, fn, args) ret RUI_K(rui_kern_##fn) args;
RU_KERN_LIST(RU_X)
#undef RU_X

/* Wait for the threads that share rows of a recurrence. */
static inline void kv_meet(const ru_kern_share *s)
{
    if (s->threads > 1) {
        s->wait();
    }
}

extern const ru_kern RUI_K(rui_kern_table);

/* gemm_bf16_packs of a CPU that multiplies pairs (k_gemm_bf16.c). */
bool RUI_K(rui_kern_gemm_bf16_pairs)(int64_t k);

#endif
