/* Blocks of whole numbers and truth values of any width as 64-bit integers. Inside exec/cpu/lower
 * only.
 *
 * Thread: any. */
#ifndef RU_EXEC_CPU_LOWER_LOWER_KERN_WHOLE_H
#define RU_EXEC_CPU_LOWER_LOWER_KERN_WHOLE_H

#include "exec/cpu/lower/lower_kern.h"

static inline bool rui_is_whole(ru_dtype t)
{
    return t != RU_NONE && !ru_dtype_is_float(t);
}

/* to[i] = x[i]; u64 by its bits. */
void rui_wholes_load(ru_dtype t, const void *x, int64_t n, int64_t *to);

#endif
