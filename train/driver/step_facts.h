/* Facts of the steps of each rank, from the traces of a run: for runs whose processes do not write
 * them themselves (apps).
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_RUN_STEP_FACTS_H
#define RU_TRAIN_RUN_STEP_FACTS_H

#include "base/arena.h"
#include "world/world.h"

/* Give `w` the steps of each rank, if it has none: from the last bytes_max bytes of each trace of
 * `run`, its first job. Without traces `w` stays as it is. Owner: in `arena`. Errors: those of
 * damaged traces; RU_E_LIMIT. */
RU_MUST_USE ru_status ru_step_facts(const char *run, int64_t bytes_max, ru_arena *arena,
                                    ru_world *w, ru_err *err);

#endif
