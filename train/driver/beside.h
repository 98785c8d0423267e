/* A training beside servers, on their cores: before each op of a step it hears what each server
 * does and asks its gate (plan/serve/gate.h) whether the op may run now; refused, it sleeps until
 * that server says more. When all servers have ended, the training goes on alone.
 *
 * The first step runs behind the plain gate (nothing beside a batch), and measures the ops; then
 * plan/serve/gate.h says whether the training may be beside them at all.
 *
 * Thread: that of the training. */
#ifndef RU_TRAIN_RUN_BESIDE_H
#define RU_TRAIN_RUN_BESIDE_H

#include "exec/exe.h"
#include "train/driver/trainer.h"

typedef struct rui_beside rui_beside;

/* opt->beside: the servers' rings (env/process/beside.h). Errors: those of ru_beside_map.
 * beside_plain: no op beside a batch, also after the first step. beside_fixed: beside a batch the
 * team keeps its threads, so that sums have one order; else it is one thread there. */
RU_MUST_USE ru_status rui_beside_open(const ru_train_options *opt, rui_beside **out, ru_err *err);
void rui_beside_leave(rui_beside *b); /* NULL is fine */
/* Ops of this executable, with so many threads, are asked for from now on; it computes a batch in
 * so many parts. Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_beside_listen(rui_beside *b, ru_exe *exe, uint32_t threads,
                                        uint32_t parts, ru_err *err);
/* Parts of a batch with which no op takes longer than opt->beside_op_max_ns: as many as there are,
 * until the ops of this executable are measured; fewer again where more did not shorten them. */
uint32_t rui_beside_parts(const rui_beside *b);
/* A step was run with `st`, which is the answer, but after the first one: RU_E_INFEASIBLE with the
 * figures where the promise would be broken. */
RU_MUST_USE ru_status rui_beside_ran(rui_beside *b, ru_status st, ru_err *err);

#endif
