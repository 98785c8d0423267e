/* Log lines about refused connections, limited so that no host can fill the log: the first line of
 * a host and kind of message appears at once; further ones are counted, and the count appears after
 * a minute, or at the end. Hosts beyond RU_REFUSALS_MAX within a minute are counted as one.
 *
 * Thread: loop only. */
#ifndef RU_ENV_REFUSAL_H
#define RU_ENV_REFUSAL_H

#include "env/clock.h"

enum { RU_REFUSALS_MAX = 32, RU_REFUSAL_TEXT = 96 };

typedef struct ru_refusal {
    uint64_t key; /* 0: free */
    ru_time since;
    int64_t silent; /* not logged since */
    char text[RU_REFUSAL_TEXT];
} ru_refusal;

/* Zero is empty. */
typedef struct ru_refusals {
    ru_refusal at[RU_REFUSALS_MAX + 1]; /* the last: further hosts */
    uint32_t n;                         /* in use, the last one left out */
} ru_refusals;

/* One refusal of `address` (host:port, or any word). Messages that differ only after their first
 * digit or colon are of one kind, because they may contain data from the other side. */
void ru_refusals_add(ru_refusals *r, const char *part, const char *address, const char *sentence,
                     ru_time now);
/* Tell what was only counted for a minute, forget who was quiet since; call now and then. */
void ru_refusals_tick(ru_refusals *r, const char *part, ru_time now);
/* Tell all that was only counted: the end. */
void ru_refusals_end(ru_refusals *r, const char *part);

#endif
