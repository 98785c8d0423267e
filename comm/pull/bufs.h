/* Buffers of any size within one bound: free ones are kept by size class (four classes for each
 * power of two) and used again, so that steady traffic takes no memory from the machine.
 *
 * Thread: one at a time. */
#ifndef RU_COMM_PULL_BUFS_H
#define RU_COMM_PULL_BUFS_H

#include "base/arena.h"

enum { RU_BUFS_CLASSES = 160 };

typedef struct ru_bufs {
    ru_arena arena;
    void *free[RU_BUFS_CLASSES];
    int64_t used_bytes, max_bytes; /* of buffers in use, rounded up; bound */
} ru_bufs;

void ru_bufs_init(ru_bufs *b, int64_t max_bytes);
void ru_bufs_fini(ru_bufs *b); /* buffers in use, too */

/* Not zeroed, aligned to 64. NULL: none fits within the bound. A size of 0 is one of 1. */
RU_MUST_USE void *ru_bufs_get(ru_bufs *b, int64_t size_bytes);
/* The same, if need be beyond the bound: for what must not wait, and is bounded otherwise. NULL:
 * the machine has no memory. */
RU_MUST_USE void *ru_bufs_need(ru_bufs *b, int64_t size_bytes);
void ru_bufs_put(ru_bufs *b, void *buf); /* NULL is fine */

#endif
