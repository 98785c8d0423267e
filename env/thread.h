/* Threads, mutexes, conditions: thin names over pthreads, for the few places that may block.
 *
 * Thread: any. */
#ifndef RU_ENV_THREAD_H
#define RU_ENV_THREAD_H

#include <pthread.h>

#include "base/status.h"

typedef struct ru_thread {
    pthread_t handle;
    bool started;
} ru_thread;

typedef struct ru_mutex {
    pthread_mutex_t m;
} ru_mutex;

typedef struct ru_cond {
    pthread_cond_t c; /* waits on the monotonic clock */
} ru_cond;

/* `name` (at most 15 bytes) shows in debuggers. */
RU_MUST_USE ru_status ru_thread_start(ru_thread *t, const char *name, void (*fn)(void *), void *arg,
                                      ru_err *err);
void ru_thread_join(ru_thread *t); /* zeroed or joined: fine */
/* Calling thread, and threads it starts, on the cores of the mask (bit k: core k; 0: as it is);
 * best effort. */
void ru_thread_cores(uint64_t mask);
/* Calling thread: it works in short pieces and is wanted as soon as something wakes it, also where
 * another thread computes on its core. Best effort; threads it starts later are like it. */
void ru_thread_prompt(void);
/* Numbers of the cores the calling thread may use, at most `max`; returns how many. */
uint32_t ru_thread_cores_list(uint32_t *into, uint32_t max);

/* A word that one thread sets and others read; earlier writes are visible after reading it. */
typedef struct ru_flag {
    uint32_t v;
} ru_flag;
void ru_flag_set(ru_flag *f, uint32_t v);
uint32_t ru_flag_get(const ru_flag *f);

void ru_mutex_init(ru_mutex *m);
void ru_mutex_fini(ru_mutex *m);
void ru_mutex_lock(ru_mutex *m);
void ru_mutex_unlock(ru_mutex *m);

void ru_cond_init(ru_cond *c);
void ru_cond_fini(ru_cond *c);
void ru_cond_wait(ru_cond *c, ru_mutex *m);
/* false: timed out after `timeout_ns`. */
bool ru_cond_wait_for(ru_cond *c, ru_mutex *m, int64_t timeout_ns);
void ru_cond_signal(ru_cond *c);
void ru_cond_broadcast(ru_cond *c);

/* One place per thread for the recorder's ring: `owner` and `stamp` tell whether it is this
 * recorder's (another may have been opened at the same address). */
typedef struct ru_thread_slot {
    const void *owner;
    int64_t stamp;
    void *value;
} ru_thread_slot;
ru_thread_slot *ru_thread_trace_slot(void);

#endif
