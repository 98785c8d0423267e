/* Convolutions of bytes whose sums are short.
 *
 * Thread: one; used while an executable opens. */
#ifndef RU_EXEC_CPU_LOWER_LOWER_FEW_H
#define RU_EXEC_CPU_LOWER_LOWER_FEW_H

#include "exec/cpu/low/window.h"
#include "exec/cpu/lower/lower_kern.h"

enum { RUI_FEW_TERMS = 64 }; /* of a sum */

/* ConvInteger of constant weights around 0; `zero`: x may have a zero point.
 * Errors: RU_E_UNSUPPORTED for long sums, and where the CPU has no such products. */
ru_status rui_lower_few_places(rui_low *lo, const ru_node *n, const rui_window *w,
                               const int8_t *from, bool zero);

#endif
