/* Collectives between processes of one host, in memory that they share.
 *
 * Each member owns a segment and maps those of the others:
 *
 *   segment = control words | small slots | data: the owner's buffers
 *
 * A collective works on ranges of the data, at the same offsets in every member. No member writes
 * into the segment of another one, so a process that was frozen and continues harms only itself.
 *
 *   small (<= slot)   every member copies its ranges into its slot, says so, waits for all, and
 *                     adds all slots itself
 *   large             in blocks: say that mine is ready; add my slice of the block over all members
 *                     into mine; say so; take the other slices from those who added them
 *
 * Additions are in rank order, x0 + x1 + ..., whatever the sizes and the timing: all members get
 * the same bits, those of RU_ALGO_DIRECT.
 *
 * Waiting: looks for a while as long as that pays off, then gives its core away between looks, then
 * sleeps on a futex; `check` is asked all the while, so that a dead member ends the wait.
 *
 * With several hosts: the mapped data of the members (ru_coll_shm_data_of) are the `near` memory of
 * a ru_coll group over all of them.
 *
 * Thread: one at a time; calls block, so not the loop thread. All members make the same calls in
 * the same order. */
#ifndef RU_COMM_COLL_COLL_SHM_H
#define RU_COMM_COLL_COLL_SHM_H

#include "base/arena.h"
#include "env/process/shm.h"
#include "world/dtype.h"

typedef struct ru_coll_shm ru_coll_shm;

enum {
    RU_COLL_SHM_RANKS_MAX = 64,
    RU_COLL_SHM_SLOT_BYTES = 32 << 10,
};

typedef struct ru_coll_shm_options {
    const char *name;    /* shows in /proc; NULL: "collective" */
    int64_t data_bytes;  /* of the owner's buffers; the same in all members */
    int64_t block_bytes; /* large collectives go in blocks of this; 0: chosen; same in all */
    /* Called while waiting; any status but RU_OK ends the call with it. May be NULL: the wait has
     * no timeout. */
    ru_status (*check)(void *self);
    void *self;
} ru_coll_shm_options;

/* This process' segment. Errors: as ru_shm_create. */
RU_MUST_USE ru_status ru_coll_shm_open(const ru_coll_shm_options *opt, ru_coll_shm **out,
                                       ru_err *err);
void ru_coll_shm_close(ru_coll_shm *c); /* NULL is fine */
void *ru_coll_shm_data(const ru_coll_shm *c);
const char *ru_coll_shm_handle(const ru_coll_shm *c); /* view; give it to the others */

/* Become rank `rank` of n members with these handles, in the group `epoch` (larger than those
 * before). Waits until all members joined. Errors: RU_E_ARG, those of ru_shm_map, of `check`. */
RU_MUST_USE ru_status ru_coll_shm_join(ru_coll_shm *c, const char *const *handles, uint32_t n,
                                       uint32_t rank, uint32_t epoch, ru_err *err);
/* The data of a member as it is mapped here, until the group is left; NULL when there is none such.
 */
void *ru_coll_shm_data_of(const ru_coll_shm *c, uint32_t rank);
/* Forget the others; fine when not joined. */
void ru_coll_shm_leave(ru_coll_shm *c);

/* Bytes [offset, offset + size) of the data of every member; whole elements. */
typedef struct ru_coll_shm_range {
    int64_t offset, size_bytes;
} ru_coll_shm_range;

/* When a call returns RU_OK the result is complete here and no member reads this member's ranges
 * any more. dtype f32 or bf16 (summed in f32). Errors: RU_E_ARG; the status of `check`: the ranges
 * are then undefined, and the member must leave the group. */
RU_MUST_USE ru_status ru_coll_shm_all_reduce(ru_coll_shm *c, ru_dtype dtype,
                                             const ru_coll_shm_range *ranges, uint32_t n);
RU_MUST_USE ru_status ru_coll_shm_barrier(ru_coll_shm *c);

#endif
