/* How long calls of users' code last.
 *
 * Thread: the watching one. */
#ifndef RU_ENV_FAULT_IMPL_H
#define RU_ENV_FAULT_IMPL_H

#include "env/fault.h"

/* What a thread does. It writes the first four, and the watching thread reads them. */
typedef struct rui_fault_place {
    const char *name; /* of the call under way, or of the last one */
    uint32_t executor, clock;
    uint32_t calls; /* odd: inside of one */
    /* the watching thread's */
    const char *was; /* the call when it looked */
    uint32_t seen;   /* calls when it looked */
    int64_t age_ns;  /* time of that call since */
} rui_fault_place;

typedef struct rui_fault_call {
    const char *name;
    uint32_t executor, clock;
    int64_t limit_ns;
} rui_fault_call;

enum { RUI_FAULT_NAMES = 32 };

/* The longest call of each function; those of further functions count for none. */
typedef struct rui_fault_longest {
    const char *name[RUI_FAULT_NAMES];
    int64_t ns[RUI_FAULT_NAMES];
    uint32_t n;
} rui_fault_longest;

/* Look at a thread, `since_ns` after the last look. true: `late` has been under way for longer than
 * its limit; set_ns: that of the settings. */
bool rui_fault_look(rui_fault_place *p, rui_fault_longest *l, int64_t since_ns, int64_t set_ns,
                    rui_fault_call *late);

#endif
