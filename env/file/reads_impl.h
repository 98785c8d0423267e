/* Inside of many reads at once: the pieces of an engine, and what its two kinds share.
 *
 * Thread: as said at each field. */
#ifndef RU_ENV_READS_IMPL_H
#define RU_ENV_READS_IMPL_H

#include "env/file/reads.h"

#include <fcntl.h>
#include <stdatomic.h>

#include "env/thread.h"

enum { RUI_READS_PART_BYTES = 1 << 30 }; /* the kernel reads no more at once */
enum { RUI_READS_OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK };

typedef struct rui_ring rui_ring; /* reads_ring.c */

struct ru_reads {
    ru_read_piece *pieces;
    uint32_t n, next, ended, depth_max;
    _Atomic uint32_t depth;
    _Atomic int64_t bytes;        /* of pieces that ended */
    rui_ring *ring;               /* NULL: threads */
    char plain[RU_READS_WHY_MAX]; /* ru_reads_plain_why; "": NULL */
    /* threads; the lock of the pool guards these, and pieces, n, next, ended */
    ru_reads *after; /* in the pool */
    ru_cond done;
    uint32_t busy; /* pieces outstanding */
};

/* From `got` on; the piece's result. */
void rui_reads_rest(ru_read_piece *p, int64_t got);
/* Opens the file too, where none is open. */
void rui_reads_piece(ru_read_piece *p);
void rui_reads_count(ru_reads *r, const ru_read_piece *p);

/* False: the kernel forbids it, or there is no memory. `fixed`: with fixed files and memory. */
bool rui_ring_open(ru_reads *r, bool fixed);
void rui_ring_close(ru_reads *r);
void rui_ring_memory(ru_reads *r, void *at, int64_t size_bytes);
void rui_ring_issue(ru_reads *r);
void rui_ring_take(ru_reads *r); /* what has ended; issues more */
void rui_ring_end(ru_reads *r);

/* The pool of all engines of the process; its threads end when the last engine has left. */
RU_MUST_USE ru_status rui_pool_join(ru_reads *r, ru_err *err);
void rui_pool_leave(ru_reads *r);
void rui_pool_begin(ru_reads *r, ru_read_piece *pieces, uint32_t n, uint32_t depth);
void rui_pool_depth(ru_reads *r, uint32_t depth);
void rui_pool_end(ru_reads *r);

#endif
