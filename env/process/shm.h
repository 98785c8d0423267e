/* Memory shared between processes of one host, and words in it to wait on.
 *
 * A segment is a sealed memfd: its size never changes, so that touching it can never fault, and it
 * lives until the last mapping is gone: it survives the death of its owner. Others map it by a
 * handle, a line of text that travels in any message:
 *
 *     pid of the owner : its descriptor : size : nonce     opened as /proc/<pid>/fd/<descriptor>
 *
 * The kernel admits only the same user. The nonce in the memfd's name reveals a reused pid or
 * descriptor. The owner keeps its descriptor until ru_shm_close.
 *
 * Words are counters that only grow. A waiter spins, then sleeps on a futex; a poster makes a
 * system call only when a waiter sleeps.
 *
 * Thread: a segment is opened and closed by one thread; words any thread of any process. */
#ifndef RU_ENV_SHM_H
#define RU_ENV_SHM_H

#include "base/status.h"

typedef struct ru_shm ru_shm;

enum { RU_SHM_HANDLE_MAX = 96, RU_SHM_HOST_MAX = 96 };

/* Zeroed memory, aligned to 2 MiB from that size up (and the kernel is asked for huge pages).
 * `name` shows in /proc/<pid>/maps. Errors: RU_E_ARG for a size outside 1 byte .. 1 TiB, RU_E_LIMIT
 * (descriptors), RU_E_MEM. */
RU_MUST_USE ru_status ru_shm_create(const char *name, int64_t size_bytes, ru_shm **out,
                                    ru_err *err);
/* The segment behind a handle, for reading and writing. size_bytes: what it must be; 0: any.
 * Errors: RU_E_PEER when the owner ended or closed it, RU_E_PERM for another user's process,
 * RU_E_DATA for text that is no handle or a segment that is not ours or not sealed. */
RU_MUST_USE ru_status ru_shm_map(const char *handle, int64_t size_bytes, ru_shm **out, ru_err *err);
/* Unmap. Others keep what they mapped; a handle not yet mapped is void when the owner closes. NULL
 * is fine. */
void ru_shm_close(ru_shm *s);

void *ru_shm_data(const ru_shm *s);
int64_t ru_shm_size_bytes(const ru_shm *s);
const char *ru_shm_handle(const ru_shm *s); /* view until closed; for mapped ones too */

/* Text that is equal for two processes exactly when they can share memory by handles: same boot,
 * same pid namespace, same network namespace (processes of two laboratory hosts on one machine are
 * meant to be strangers). */
void ru_shm_host(char into[RU_SHM_HOST_MAX]);

/* A counter on its own cache line in a segment; zeroed memory is a valid word. Values are compared
 * by their distance, so that wrapping around is harmless. */
typedef struct ru_shm_word {
    uint32_t value;
    uint32_t sleepers;
    uint8_t pad[56];
} ru_shm_word;

/* The value now; what was written before it was posted is visible. */
uint32_t ru_shm_look(const ru_shm_word *w);
/* Set the value and wake its waiters. Returns the new value. One writer per word. */
uint32_t ru_shm_post(ru_shm_word *w, uint32_t value);
/* Is value at or past target? */
static inline bool ru_shm_reached(uint32_t value, uint32_t target)
{
    return (int32_t)(value - target) >= 0;
}

typedef struct ru_shm_wait_options {
    int64_t spin_ns;    /* busy-wait first; 0: not */
    int64_t yield_ns;   /* then look after giving the core to others, again and again; 0: not */
    int64_t timeout_ns; /* 0: no timeout */
    /* Asked before sleeping and every check_ns (0: 1 ms) asleep; not RU_OK ends the wait with it
     * (a peer died, the operation was given up). May be NULL. */
    ru_status (*check)(void *self);
    void *self;
    int64_t check_ns;
} ru_shm_wait_options;

/* Until ru_shm_reached(value, target). Errors: RU_E_AGAIN on time-out, what `check` says. Blocks:
 * not for the loop thread. */
ru_status ru_shm_wait(ru_shm_word *w, uint32_t target, const ru_shm_wait_options *opt);

#endif
