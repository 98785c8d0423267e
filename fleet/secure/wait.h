/* How long a stage of masked updates waits for its clients (fleet/secure/serve.h).
 *
 *   at first      5 s, and 20 ms for each client: their keys go through one server
 *   then          four times what it took until enough had answered, if that is more; half of it
 *                 less at a time, so that one fast stage is not believed
 *   too few came  twice as long in the next round, at most ten minutes
 *
 * A client that is lost without a word costs each stage this time, so it follows what answers take,
 * not what was waited. Pure. Thread: any. */
#ifndef RU_FLEET_SECURE_WAIT_H
#define RU_FLEET_SECURE_WAIT_H

#include "base/status.h"

typedef struct ru_mask_wait {
    int64_t fixed_ns;   /* > 0: that long, whatever was measured */
    int64_t learned_ns; /* 0: nothing yet */
    int64_t begun_ns, last_ns;
} ru_mask_wait;

/* A stage of n clients begins: when it ends at the latest, on the same clock. */
int64_t ru_mask_wait_begin(ru_mask_wait *w, uint32_t n, int64_t now_ns);
/* The n-th answer of a stage that needs so many. Those after them are not learned from, or one
 * client that takes its time would lengthen all rounds. */
void ru_mask_wait_heard(ru_mask_wait *w, uint32_t n, uint32_t need, int64_t now_ns);
/* It is over; few: the round cannot go on with those that came in time. */
void ru_mask_wait_end(ru_mask_wait *w, uint32_t n, bool few);

#endif
