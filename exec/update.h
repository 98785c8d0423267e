/* Updates in parts, while sums of gradients arrive, beside the next run, and back again.
 *
 *   run k    forward, backward | open ................. keep
 *   run k+1                    | forward ... backward .....| open ...
 *   sums of k                  | early  early    early |
 *
 * Whether a step counts may be known long after its gradients left. Until then its update is open:
 * each part is made when its sum is there, and can be taken back. The next run may go on meanwhile
 * (ru_exe_options.overlap) if it waits in ports for what is not made: a port of each state before
 * the first step that reads it, a port `again` of each gradient before its memory is written again.
 * An update has the bits of a run without any of that, in whatever order and pieces sums arrive.
 *
 * Thread: that of the executable. */
#ifndef RU_EXEC_UPDATE_H
#define RU_EXEC_UPDATE_H

#include "exec/exe.h"

/* Memory that taking back needs: parameters, slots, statistics. 0: updates of this executable need
 * several gradients at once (clipping by their norm), or it has not two phases. */
int64_t ru_exe_early_bytes(const ru_exe *e);
/* Get that memory. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_exe_early_open(ru_exe *e, ru_err *err);

/* The gradients of a run are made (RU_PHASE_GRADIENTS, RU_PHASE_BACKWARD, or the caller's): its
 * update opens, with the values that its inputs have now and with `args`. What needs no gradient is
 * made at once. Errors: RU_E_UNSUPPORTED naming a step that needs several gradients; RU_E_ARG while
 * another one is open, or without ru_exe_early_open. */
RU_MUST_USE ru_status ru_exe_update_open(ru_exe *e, const ru_run_args *args, ru_err *err);
bool ru_exe_update_is_open(const ru_exe *e);
/* Elements [offset_bytes, + size_bytes) of gradient `grad` are sums, each told once: update what
 * they update, blocks of 16,384 elements. Legal inside of ports of the next run. Nothing happens
 * when no update is open. */
void ru_exe_early(ru_exe *e, ru_value_id grad, int64_t offset_bytes, int64_t size_bytes);
/* A state: has it the value after the open update? A gradient: does nothing read it any more? Of
 * what no update changes, and while none is open: yes. */
bool ru_exe_updated(const ru_exe *e, ru_value_id v);
/* All gradients hold their sums: make what is left; it cannot be taken back any more, and the next
 * update may open. Errors: those of steps. */
RU_MUST_USE ru_status ru_exe_update_keep(ru_exe *e, ru_err *err);
/* Parameters, slots and statistics are as before the open update, if there is one. */
void ru_exe_early_undo(ru_exe *e);

/* Sum of the squares of x, or of x + y where y is not NULL, [first, first + n) of elements that lie
 * as those of gradient `grad` do. With Adam each is divided as its update divides it: by the root
 * of the mean square so far, of `step` steps. `x` and `y` begin with element 0. NAN: the device
 * cannot tell. Not while those elements are updated. */
double ru_exe_grad_squares(const ru_exe *e, ru_value_id grad, int64_t step, const float *x,
                           const float *y, int64_t first, int64_t n);

/* Sum of the squares of all gradients, added as the step's own norm adds them (GlobalNorm): who has
 * a part of a step adds those of the other parts. */
double ru_exe_grads_squares(const ru_exe *e);

#endif
