/* Memory of this machine, and files, as this process may use them.
 *
 * Thread: any. `arena` holds what is read meanwhile; the caller may rewind it. */
#ifndef RU_ENV_MEMORY_H
#define RU_ENV_MEMORY_H

#include "base/arena.h"
#include "base/str.h"

/* What could be had now without swapping: as the kernel estimates it for the machine, and within
 * what the processes of its control groups leave of their limits; -1: not known. */
int64_t ru_memory_free_bytes(void);
/* Smallest limit of the control groups this process is in, those around them included; 0: none. */
int64_t ru_memory_limit_bytes(ru_arena *arena);

/* Memory of its own that this process may write: heap, stacks and mappings, touched or not; 0: not
 * known. */
int64_t ru_memory_own_bytes(void);
/* What of it is in memory now; 0: not known. */
int64_t ru_memory_touched_bytes(void);
/* It gets no more than so much of that: what would need more fails. */
void ru_memory_own_bound(int64_t size_bytes);

/* How many files this process may have open; raised to `want` where the system lets it. */
uint32_t ru_files_max(uint32_t want);

/* Zeroed pages of this process, of RU_MEMORY_LARGE_BYTES on on large pages where the system has
 * them; NULL: there are none. */
enum { RU_MEMORY_LARGE_BYTES = 4 << 20, RU_MEMORY_PAGE_BYTES = 2 << 20 /* of a large one */ };
void *ru_memory_map(int64_t size_bytes);
/* Of [p, p + n_bytes) only a few places will be touched: no large pages there. */
void ru_memory_small(void *p, int64_t n_bytes);
/* The first `n_bytes` of it are zero again; the system has their whole pages back until then. */
void ru_memory_forget(void *p, int64_t n_bytes, int64_t size_bytes);
/* What was freed goes back to the system; takes about a millisecond. */
void ru_memory_trim(void);
/* Nobody reads [p, p + n_bytes) any more: the system has the whole pages inside back. */
void ru_memory_drop(const void *p, int64_t n_bytes);
void ru_memory_unmap(void *p, int64_t size_bytes); /* the size that was asked for; NULL is fine */

typedef struct rui_memory_groups {
    int64_t limit_bytes; /* the smallest; 0: none */
    int64_t rest_bytes;  /* least of what is left below a limit (files that the kernel may drop do
                            not count as used); INT64_MAX: no limit */
} rui_memory_groups;

/* Limits of the groups named in `groups` (the text of /proc/self/cgroup), below folder `root`. */
rui_memory_groups rui_memory_groups_of(ru_arena *arena, ru_str groups, const char *root);

#endif
