/* Members of an elastic job that are any program's processes (train/embed/embed.h): starts them on
 * this machine, tells them of each other by their environment, and replaces those that die while
 * fewer than the minimum live.
 *
 *   RUBATO_LISTEN   where it listens
 *   RUBATO_JOIN     where another one does; not for the first
 *   RUBATO_TOKEN    secret of the job
 *   RUBATO_WORKERS, RUBATO_MIN, RUBATO_MAX
 *
 * Their output is not touched. Thread: main. */
#ifndef RU_LAUNCH_SCRIPT_H
#define RU_LAUNCH_SCRIPT_H

#include "base/arena.h"
#include "base/status.h"

typedef struct ru_launch_script_options {
    const char *const *argv;        /* NULL-terminated */
    uint32_t n_min, n_start, n_max; /* 1 <= n_min <= n_start <= n_max */
    bool refill;                    /* fewer than n_min: another one is started */
    const char *listen;             /* host of all members; NULL: 127.0.0.1 */
    const char *join;               /* HOST:PORT of a job that runs; NULL: founded here */
    const char *token;
    bool quiet;
} ru_launch_script_options;

/* Until all have ended. *code: 0 when one ended well, else that of the first that failed. Errors:
 * those of starting processes. */
RU_MUST_USE ru_status ru_launch_script(const ru_launch_script_options *opt, ru_arena *arena,
                                       int *code, ru_err *err);

#endif
