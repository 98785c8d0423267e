/* Facts of op instances of a run, folded from its traces.
 *
 *   OUT/trace/rank<k>.<id>.ops.json   a world file with the list of an executable of worker k: what
 *                                     each step computes, with which kernel, and the gradients
 *   OUT/trace/rank<k>*.trace          its records: executable, step, duration
 *
 * A worker whose share changes makes new executables, each with a list of its own. Facts are those
 * of the executable that ran last.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_RUN_OP_FACTS_H
#define RU_TRAIN_RUN_OP_FACTS_H

#include "exec/exe.h"
#include "world/world.h"

/* Of each trace file, for a run that is over, and for one whose steps wait meanwhile. */
#define RU_OP_FACTS_BYTES      (INT64_C(16) << 20)
#define RU_OP_FACTS_LIVE_BYTES (INT64_C(1) << 20)

/* Op instances and gradients of an executable into the facts of `w`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_op_list(const ru_exe *e, uint32_t rank, ru_arena *arena, ru_world *w,
                                 ru_err *err);
/* Write the list of an executable that is going to be recorded into the folder of traces. */
RU_MUST_USE ru_status ru_op_list_put(const char *trace_dir, const ru_exe *e, uint32_t rank,
                                     ru_err *err);

/* Replace the op instances and gradients of `w` by those that the traces of `run` tell of, reading
 * the last bytes_max bytes of each. Without lists or records `w` stays as it is. *records: read;
 * may be NULL. Owner: in `arena`. Errors: RU_E_DATA, RU_E_CONFIG for damaged files, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_op_facts(const char *run, int64_t bytes_max, ru_arena *arena, ru_world *w,
                                  int64_t *records, ru_err *err);
/* The same into RUN/world.json of a run that has ended. What prevents it is a warning: the run
 * itself is complete. */
void ru_op_facts_fold(const char *run);

#endif
