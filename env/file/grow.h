/* Files that a process appends to while others read them, and locks that end with their process.
 *
 * A growing file is locked (flock) while its writer lives, however it ends. Space is claimed before
 * it is written, so that the size of a file is what it may take of a bounded folder; closing gives
 * back what was not used. Who opens the file of a writer that died goes on with it, or cuts it.
 *
 * Thread: ru_grow_write any; the rest one at a time. */
#ifndef RU_ENV_GROW_H
#define RU_ENV_GROW_H

#include "base/status.h"

typedef struct ru_grow ru_grow;

/* A file that this process alone writes: a new one, readable by this user alone, or one whose
 * writer ended, with all that it claimed. Errors: RU_E_AGAIN: its writer lives, or the file system
 * knows no locks and cannot say so; RU_E_CREATE. */
RU_MUST_USE ru_status ru_grow_open(const char *path, ru_grow **out, ru_err *err);
/* The file may have `end_bytes` from now on. Errors: RU_E_CREATE (the disk is full), RU_E_IO. */
RU_MUST_USE ru_status ru_grow_claim(ru_grow *g, int64_t end_bytes, ru_err *err);
int64_t ru_grow_claimed(const ru_grow *g);
RU_MUST_USE ru_status ru_grow_write(ru_grow *g, int64_t offset, const void *data,
                                    int64_t size_bytes, ru_err *err);
/* What was written, and the file's name, survive a loss of power. Errors: RU_E_IO. */
RU_MUST_USE ru_status ru_grow_sync(ru_grow *g, ru_err *err);
/* The file keeps `end_bytes`, if it has more. */
void ru_grow_cut(ru_grow *g, int64_t end_bytes);
/* The same, and others may open it. NULL is fine. */
void ru_grow_close(ru_grow *g, int64_t end_bytes);

/* A lock file, made if it is missing; one that is shared takes the time of now. Errors: RU_E_AGAIN:
 * others hold it in a way that excludes this one (and `wait` is false); those of opening a file. */
typedef struct ru_lock ru_lock;
RU_MUST_USE ru_status ru_lock_open(const char *path, bool alone, bool wait, ru_lock **out,
                                   ru_err *err);
void ru_lock_close(ru_lock *l); /* NULL is fine */
/* A number, 0 or more, that stands in a lock file; -1: none, or not known. */
int64_t ru_lock_number(const char *path);
void ru_lock_number_put(ru_lock *l, int64_t n); /* who holds it alone; -1: none */

/* Sizes of all files in a folder and the folders in it; links are not followed. */
int64_t ru_dir_bytes(const char *path);
/* Of a file or folder: changes whenever its content was written anew; 0: there is none. */
uint64_t ru_path_stamp(const char *path);
int64_t ru_path_changed_ns(const char *path); /* since 1970; 0: there is none */
/* Is it a folder of this user's, which no other user can write into? A link is none. */
bool ru_dir_is_own(const char *path);

#endif
