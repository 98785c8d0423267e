/* Which step of an executable needs a state first: what a plan for the order of transfers asks.
 *
 * Thread: that of the executable. */
#ifndef RU_EXEC_READS_H
#define RU_EXEC_READS_H

#include "exec/exe.h"

/* The first step that reads state `v` of the caller's graph, directly or packed; UINT32_MAX: none
 * does, or it is no state. */
uint32_t ru_exe_read_first(const ru_exe *e, ru_value_id v);

#endif
