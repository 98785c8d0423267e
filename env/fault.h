/* Code of users in this process. When it crashes, calls exit, or does not come back, the process
 * ends with one sentence and exit code 1, and a line in a file tells the other processes of the
 * job. (_exit ends it without a word.)
 *
 * A thread says what it calls before the call, and that it is back after it. Without ru_fault_open
 * this does nothing but that.
 *
 * Thread: ru_fault_enter and _leave any; the rest one caller. */
#ifndef RU_ENV_FAULT_H
#define RU_ENV_FAULT_H

#include "base/status.h"

#define RU_FAULT_NONE UINT32_MAX

typedef struct ru_fault_options {
    const char *who;      /* "app mf"; kept by the caller until close, as all texts */
    const char *what_now; /* the end of the sentence: what is intact, and what to do */
    const char *file;     /* a line is appended; NULL: none */
    const char *key;      /* name of the setting of limit_ns */
    int64_t limit_ns;     /* of one call; 0: fifty times the longest so far of the same function,
                             at least a minute; an hour before the first is over */
} ru_fault_options;

/* One at a time. Errors: those of starting a thread. */
RU_MUST_USE ru_status ru_fault_open(const ru_fault_options *opt, ru_err *err);
void ru_fault_close(void); /* fine when none is open */

/* The calling thread calls `name` ("run") for an executor in a clock; either may be NONE. Calls do
 * not nest. Cost: a few ns. */
void ru_fault_enter(const char *name, uint32_t executor, uint32_t clock);
void ru_fault_leave(void);

/* What the file tells: has the same call for executor k (NONE: for none) failed so often that
 * another try is of no use? Twice in one clock, or it did not come back. `why`: which. */
bool ru_fault_hopeless(const char *file, uint32_t executor, char why[256]);

#endif
