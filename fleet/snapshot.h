/* What stays of each round of a federation: a snapshot of who computes it, of which the last few
 * are kept, and a line of RUN/federation.jsonl.
 *
 *   RUN/federation/<round>   written before the checkpoint of the round is, so that who goes on
 *                            after a checkpoint finds it
 *
 * Thread: any, one at a time. */
#ifndef RU_FLEET_SNAPSHOT_H
#define RU_FLEET_SNAPSHOT_H

#include "base/arena.h"

/* NULL: no memory. */
const char *rui_fed_snapshot_path(const char *out, int64_t round, ru_arena *arena);
/* Makes the folder. Errors: those of ru_dir_make, RU_E_MEM. */
RU_MUST_USE ru_status rui_fed_snapshot_open(const char *out, ru_err *err);
/* data NULL: there is none. Errors: those of files, RU_E_MEM. */
RU_MUST_USE ru_status rui_fed_snapshot_write(const char *out, int64_t round, const void *data,
                                             int64_t size_bytes, const char *line, int64_t n,
                                             ru_err *err);

#endif
