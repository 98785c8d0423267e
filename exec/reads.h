/* What the steps of an executable need: which one needs a state first, what a plan for the order of
 * transfers asks, and which constants none of them needs any more.
 *
 * Thread: that of the executable. */
#ifndef RU_EXEC_READS_H
#define RU_EXEC_READS_H

#include "exec/exe.h"

/* The first step that reads state `v` of the caller's graph, directly or packed; UINT32_MAX: none
 * does, or it is no state. */
uint32_t ru_exe_read_first(const ru_exe *e, ru_value_id v);

/* May a run turn NaN into a number? */
bool ru_exe_drops_nan(const ru_exe *e);

/* The constants of these executables, their graphs' own and those that passes made, are lost but
 * for those that a run reads: their memory goes back to the system. They are all that share any of
 * them; each has option `once` or drops no NaN; no other one opens on their graphs. NULL entries
 * are passed over. A graph with states keeps all, as what is packed of them is packed again.
 * Thread: any, also while they run. */
void ru_exe_drop_packed(ru_exe *const *list, uint32_t n);

#endif
