/* Files of a folder, or objects of a store, as samples that follow each other (data.follow): a file
 * counts once it stands still, in the order of arrival, once and for all.
 *
 *   look: a file that is as the look before saw it --> fresh --take--> known, a line of
 * RUN/follow.files
 *
 * A line has the number of its samples and its name, so that each sample has a number of its own,
 * the same in every later process of the run. Folders, empty files, and names that begin with a
 * dot or are no UTF-8 are passed over. An object is what its size, ETag and date say; those of a
 * folder are the ones whose keys have no '/' behind it.
 *
 * Thread: one at a time. No clock: the caller lets data.follow pass between two looks. */
#ifndef RU_FLEET_FOLLOW_H
#define RU_FLEET_FOLLOW_H

#include "base/arena.h"
#include "base/status.h"

typedef struct ru_follow ru_follow;

/* Some of the files, one behind the other. */
typedef struct ru_follow_part {
    const char *const *paths; /* [n] */
    uint32_t n;
    int64_t before, samples; /* of the run before the first file; in these */
} ru_follow_part;

/* `dir`: a folder, or s3://BUCKET/FOLDER, which nobody asks for yet. `over`: nobody waits for looks
 * any more; NULL: somebody does. Errors: RU_E_MEM, RU_E_MISSING when there is no such folder; those
 * of ru_bucket_open. */
RU_MUST_USE ru_status ru_follow_open(const char *dir, bool (*over)(void *self), void *self,
                                     ru_follow **out, ru_err *err);
void ru_follow_close(ru_follow *f); /* NULL is fine */
/* Names of files that stand still and were not taken, the oldest first. View until the next look.
 * Blocks on I/O. Errors: those of the folder; RU_E_CANCELLED when it was over. */
RU_MUST_USE ru_status ru_follow_look(ru_follow *f, const char *const **names, uint32_t *n,
                                     ru_err *err);
/* dir/name in `arena`; NULL: no memory. */
const char *ru_follow_path(const ru_follow *f, const char *name, ru_arena *arena);

/* What is taken is added to the file `notes`. goes_on: what stands there is known; else it is of a
 * run that read nothing, and goes. Errors: RU_E_DATA for a line that makes no sense; those of the
 * file. */
RU_MUST_USE ru_status ru_follow_begin(ru_follow *f, const char *notes, bool goes_on, ru_err *err);
/* The samples of a file come next; 0: it is left out. Its line is in the notes, and on the disk
 * behind ru_follow_sync, which any thread may call. Errors: those of writing. */
RU_MUST_USE ru_status ru_follow_take(ru_follow *f, const char *name, int64_t samples, ru_err *err);
RU_MUST_USE ru_status ru_follow_sync(ru_follow *f, ru_err *err);

int64_t ru_follow_samples(const ru_follow *f); /* of all files that were taken */
/* The number behind the last sample of the file of sample `from` and those that follow it, `files`
 * in all. */
int64_t ru_follow_reach(const ru_follow *f, int64_t from, uint32_t files);
/* The files with samples [from, to), which are known. Owner: arena. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_follow_find(const ru_follow *f, int64_t from, int64_t to, ru_arena *arena,
                                     ru_follow_part *out, ru_err *err);

#endif
