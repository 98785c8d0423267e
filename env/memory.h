/* Memory of this machine as this process may use it.
 *
 * Thread: any. `arena` holds what is read meanwhile; the caller may rewind it. */
#ifndef RU_ENV_MEMORY_H
#define RU_ENV_MEMORY_H

#include "base/arena.h"

/* What could be had now without swapping, as the kernel estimates it; 0: not known. */
int64_t ru_memory_free_bytes(ru_arena *arena);
/* Smallest limit of the control groups this process is in; 0: none. */
int64_t ru_memory_limit_bytes(ru_arena *arena);

#endif
