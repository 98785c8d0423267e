/* A service of this machine, run at the pace that its credits allow (burst/pace.h): its processes
 * in a control group, what they use, what their requests take, the quota.
 *
 *   FOLDER/windows.jsonl   a line for each window (rubato.burst/1), what was measured beside what
 *                          was predicted; beyond 64 MiB it becomes windows.jsonl.1
 *   FOLDER/state.json      the bucket, for the next start
 *   FOLDER/log             what the guard says
 *
 * Speeds are chosen for the processor, the disk, the network card, or several of them together;
 * buckets of the others that it has (burst/meter.h) are kept beside: their limits, and alarms.
 *
 * The quota does not outlive who set it: a guard (this program again) waits for the end of this
 * process and takes the quota away, and so does the next start.
 *
 * Thread: main. */
#ifndef RU_BURST_SERVICE_H
#define RU_BURST_SERVICE_H

#include "burst/meter.h"
#include "burst/pace.h"
#include "burst/source.h"

enum { RU_BURST_METERS = 2 };

typedef struct ru_burst_options {
    const char *name;     /* of the service: a word for a control group */
    const char *folder;   /* whole path */
    const char *pid_file; /* number of its first process */
    const char *load;     /* one command that makes the profile's load, for sh; "": none */
    ru_pace_options pace;
    uint32_t paced[RU_PACE_RESOURCES]; /* [pace.n] rising: 0 the processor, 1 + k meters[k] */
    ru_source_options source;
    ru_meter_options meters[RU_BURST_METERS]; /* disk and network, or none */
    int64_t patience_ns;                      /* end after so long; 0: at a stop signal */
    const char *const *guard;                 /* [NULL] command of the guard */
} ru_burst_options;

/* Until a stop signal; then the service runs without a quota. Errors: RU_E_MISSING (pid file, log,
 * control groups), RU_E_PERM, RU_E_AGAIN when another process paces it or one
 * of its name, RU_E_CONFIG for more cores than there are, or a pid file that names who started this
 * process. */
RU_MUST_USE ru_status ru_burst_run(const ru_burst_options *o, ru_arena *arena, ru_err *err);
/* The guard: wait for the end of standard input; without a word there first, take the quota away
 * unless another process paces the service by then. */
RU_MUST_USE ru_status ru_burst_guard(const ru_burst_options *o, ru_err *err);
/* What happened, for people: the last windows, and all in all. Errors: RU_E_MISSING. */
RU_MUST_USE ru_status ru_burst_explain(const char *folder, uint32_t rows, ru_arena *arena,
                                       ru_text *out, ru_err *err);

#endif
