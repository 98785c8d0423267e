/* The room of a bounded folder. How much of it is taken stands in its lock file, so that nobody
 * looks at all files to know it.
 *
 * Who makes a file larger takes the bytes before, who makes one smaller gives them back afterwards,
 * both with the lock held over the change: nobody counts the files between, and a process that is
 * killed may leave less room than there is, never more. Files that come or go
 * without that are counted once somebody forgets the number, as each does that begins to use the
 * folder.
 *
 * Thread: any. */
#ifndef RU_ENV_ROOM_H
#define RU_ENV_ROOM_H

#include "env/file/grow.h"

typedef struct ru_room {
    const char *lock;       /* file */
    const char *folders[2]; /* whose files count */
    int64_t quota_bytes;
} ru_room;

/* Bytes; below 0: more is taken than the quota now allows. `held`: its lock, held alone; NULL:
 * others may take some at once. */
int64_t ru_room_left(const ru_room *r, ru_lock *held);
void ru_room_take(const ru_room *r, ru_lock *held, int64_t bytes);
ru_lock *ru_room_hold(const ru_room *r); /* waits for its lock; NULL: there is none to be had */
void ru_room_give(const ru_room *r, ru_lock *held, int64_t bytes); /* back, and the lock with it */
void ru_room_forget(const ru_room *r, ru_lock *held);              /* NULL: as above */

#endif
