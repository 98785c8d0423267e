/* The control groups this process is in: their folders, and the processor time they leave it.
 *
 * Thread: any. `arena` holds what is read meanwhile; the caller may rewind it. */
#ifndef RU_ENV_GROUPS_H
#define RU_ENV_GROUPS_H

#include "base/arena.h"
#include "base/str.h"

/* Smallest quota of processor time of the groups this process is in, those around them included, in
 * whole cores (a part of a core counts as one); 0: none. */
uint32_t ru_groups_cores(ru_arena *arena);
/* The same quota as it stands: so much processor time in each period. false: there is none. */
bool ru_groups_quota(ru_arena *arena, int64_t *quota_ns, int64_t *period_ns);

typedef void (*rui_group_fn)(void *arg, ru_arena *arena, const char *dir, bool two);

/* Call `fn` with the folder of each group named in `groups` (the text of /proc/self/cgroup) that
 * `controller` may bound, and with those of the groups around it, up to the root. `root` is where
 * the groups are mounted; `two`: the folder speaks version 2. */
void rui_groups_each(ru_arena *arena, ru_str groups, const char *root, const char *controller,
                     rui_group_fn fn, void *arg);
/* Is `what` one of the names in the list "a,b,c"? */
bool rui_groups_listed(ru_str list, char between, const char *what);
/* What this process' /proc/self/cgroup says; "": nothing that can be read. */
ru_str rui_groups_own(ru_arena *arena);
/* Where they are mounted. */
extern const char rui_groups_root[];

uint32_t rui_groups_cores_of(ru_arena *arena, ru_str groups, const char *root);
bool rui_groups_quota_of(ru_arena *arena, ru_str groups, const char *root, int64_t *quota_ns,
                         int64_t *period_ns);

#endif
