/* On which processor core a thread runs (those that it may use: env/thread.h).
 *
 * A kernel may wake a thread on the core of the one that woke it, although another core is idle:
 * where it sees no cache that cores share (virtual machines), it looks no further, and two threads
 * that are always ready then stay on one core for seconds.
 *
 * Thread: any; each function is about the calling thread. */
#ifndef RU_ENV_PROCESS_CORES_H
#define RU_ENV_PROCESS_CORES_H

#include "base/status.h"

/* The core on which the thread runs now; -1: unknown. Cost: a few nanoseconds. */
int32_t ru_cores_here(void);

/* From now on the thread may use this core only. False: it may not be used; nothing changed. */
bool ru_cores_stay(uint32_t core);

/* Move the thread to a core; the cores that it may use stay as they are. False: as above.
 * Cost: up to 100 us when it runs elsewhere. */
bool ru_cores_go(uint32_t core);

#endif
