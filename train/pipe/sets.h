/* Sets: the state of all workers of a pipeline, or of a placed step, after one and the same step,
 * in a file in memory that the launcher keeps (env/file/memfile.h). Whoever is killed, all go on
 * from the newest complete set.
 *
 *     head | marks of set 0 | marks of set 1 | states of set 0 | states of set 1
 *
 * A mark says after which step a state stands there; none while it is written. A set is complete
 * when all its marks say the same step, and the next one overwrites the older of both. Between two
 * sets of one worker every other one has written the first of them, because no worker ends a step
 * that another one has not begun. States stand in the order of their names, so that another cut, or
 * another placement, of the same model reads them.
 *
 * Source: pipedream-2019 (checkpoints of stages without coordination); here in memory, as often as
 * they cost a hundredth of the time. Thread: one per object. */
#ifndef RU_TRAIN_PIPE_SETS_H
#define RU_TRAIN_PIPE_SETS_H

#include "base/arena.h"

typedef struct ru_sets ru_sets;

typedef struct ru_sets_state {
    const char *name; /* no two are the same; view */
    int64_t bytes;
} ru_sets_state;

typedef struct ru_sets_at {
    int64_t step; /* steps done; 0: there is no set */
    int64_t samples;
} ru_sets_at;

/* The sets at `path` of a model with these states, all of them. What is there of another model does
 * not count. Lives in `arena` until ru_sets_close. Errors: RU_E_MEM, RU_E_PEER. */
RU_MUST_USE ru_status ru_sets_open(const char *path, const ru_sets_state *states, uint32_t n,
                                   ru_arena *arena, ru_sets **out, ru_err *err);
void ru_sets_close(ru_sets *s); /* NULL is fine */
/* The newest complete one when it was opened. */
ru_sets_at ru_sets_newest(const ru_sets *s);
/* Of that one: a piece of the state with a name. Errors: RU_E_DATA. */
RU_MUST_USE ru_status ru_sets_read(ru_sets *s, const char *name, int64_t offset_bytes,
                                   int64_t size_bytes, void *into, ru_err *err);

/* One worker, before any of them begins its first set. Only the newest set stays: whoever was
 * killed may have written parts of the other one after a step that comes again. */
RU_MUST_USE ru_status ru_sets_head(ru_sets *s, ru_err *err);
/* Another set begins, of this worker's states. */
void ru_sets_begin(ru_sets *s);
/* A state of it, by its place in the list of ru_sets_open: torn first, then pieces, then whole. */
RU_MUST_USE ru_status ru_sets_torn(ru_sets *s, uint32_t state, ru_err *err);
RU_MUST_USE ru_status ru_sets_write(ru_sets *s, uint32_t state, int64_t offset_bytes,
                                    int64_t size_bytes, const void *from, ru_err *err);
RU_MUST_USE ru_status ru_sets_whole(ru_sets *s, uint32_t state, ru_sets_at at, ru_err *err);

/* Step of the newest complete set in that file, of whatever model; 0: there is none. */
int64_t ru_sets_step(int fd);

#endif
