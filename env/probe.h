/* What env/ itself does, for who records it: a hook of the calling thread. env/ knows no recorder;
 * trace/ sets the hook (ru_recorder_env).
 *
 * Thread: each has its own hook. Cost without one: a load of a thread's own word. */
#ifndef RU_ENV_PROBE_H
#define RU_ENV_PROBE_H

#include "base/status.h"

typedef enum ru_probe_act {
    RU_PROBE_SLEEP, /* the loop slept RU_PROBE_SLEEP_NS or longer; value: ready descriptors */
    RU_PROBE_CALL,  /* a callback of the loop took RU_PROBE_CALL_NS or longer */
    RU_PROBE_LATE,  /* a timer ran RU_PROBE_LATE_NS or more after it was due, the time between */
    RU_PROBE_WRITE, /* bytes were written to a file; value: bytes */
    RU_PROBE_SYNC,  /* a file or its folder was synced */
    RU_PROBE_ACTS
} ru_probe_act;

enum { RU_PROBE_SLEEP_NS = 20000, RU_PROBE_CALL_NS = 200000, RU_PROBE_LATE_NS = 1000000 };

typedef void (*ru_probe_fn)(void *self, ru_probe_act act, int64_t start_ns, int64_t end_ns,
                            int64_t value);

/* NULL: none, as at first. */
void ru_probe_set(ru_probe_fn fn, void *self);
void *ru_probe_self(void); /* of the hook of this thread; NULL: none */

#endif
