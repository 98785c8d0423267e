/* Copies of checkpoints in an S3 store: s3://bucket/run7/000000250/model.safetensors, ...,
 * manifest.json last. A checkpoint is complete there when its manifest is.
 *
 *   checkpoint written --ru_copies_take--> waits (the newest; an older one that waits is passed
 *   over) --thread of low priority--> put, then what is older than the newest `keep` goes
 *
 * A slow or dead store never stops training: what cannot be copied is named in the log.
 *
 * Thread: any; one at a time. The copying thread is inside. */
#ifndef RU_RUN_COPIES_H
#define RU_RUN_COPIES_H

#include "base/arena.h"

typedef struct ru_copies ru_copies;

/* Errors: RU_E_CONFIG (address, login), RU_E_UNSUPPORTED (no libcurl), RU_E_MEM. */
RU_MUST_USE ru_status ru_copies_open(const char *address, uint32_t keep, ru_copies **out,
                                     ru_err *err);
/* The complete checkpoint of that step in folder `dir` (RUN/checkpoints); best_step is kept beside
 * the newest (0: none). */
void ru_copies_take(ru_copies *c, const char *dir, int64_t step, int64_t best_step);
/* Begin the one that waits, when the one before has ended. Never waits. */
void ru_copies_poll(ru_copies *c);
/* Waits for copies, unless what was asked of the store before was in vain. NULL is fine. */
void ru_copies_close(ru_copies *c);

/* The newest complete checkpoint at `address` into the run directory `out`, which is made, with
 * job.yaml: `rubato train --resume` goes on from it. Errors: RU_E_USAGE: `out` holds a job or a
 * run; RU_E_MISSING: there is none; RU_E_DATA: it is damaged; those of the store and of files. */
RU_MUST_USE ru_status ru_copies_fetch(const char *address, const char *out, ru_arena *arena,
                                      int64_t *step, ru_err *err);

/* A checkpoint in a store. */
typedef struct ru_copy {
    int64_t step;
    uint32_t files;
    bool complete; /* its manifest is there */
} ru_copy;
/* What stands at `address`, oldest first. Owner: arena. Errors: those of the store. */
RU_MUST_USE ru_status ru_copies_list(const char *address, ru_arena *arena, ru_copy **out,
                                     uint32_t *n, ru_err *err);

#endif
