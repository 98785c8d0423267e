/* Inside of the loop: its timers.
 *
 * A heap of places in a table of timers that hash chains find by name. Thread: loop only. */
#ifndef RU_ENV_LOOP_IMPL_H
#define RU_ENV_LOOP_IMPL_H

#include "env/loop/loop.h"

typedef struct rui_timer {
    ru_loop_timer_fn fn;
    void *self;
    uint32_t what;
    uint32_t chain; /* next of the same bucket, or of the free list; + 1, 0: end */
    uint32_t place; /* in the heap */
    int64_t at_ns;
    uint64_t order; /* number of the setting: breaks ties */
} rui_timer;

typedef struct rui_timers {
    rui_timer *table;  /* [cap] */
    uint32_t *heap;    /* [cap] indexes of the table; [n] in use */
    uint32_t *buckets; /* [cap] first of the chain + 1 */
    uint32_t n, cap, free, used;
    uint64_t sets;
} rui_timers;

/* Room for more; false: no memory, nothing changed. The loop opens with the first
 * room; setting more timers than there is memory for is a crash. */
bool rui_timers_grow(rui_timers *t);
void rui_timers_set(rui_timers *t, ru_loop_timer_fn fn, void *self, uint32_t what, ru_time at);
void rui_timers_off(rui_timers *t, ru_loop_timer_fn fn, void *self, uint32_t what);
/* When the first is due; false: there is none. */
bool rui_timers_first(const rui_timers *t, int64_t *at_ns);
/* Take the first one out when it is due at now_ns and was set before number `limit`. */
bool rui_timers_pop(rui_timers *t, int64_t now_ns, uint64_t limit, rui_timer *out);
void rui_timers_fini(rui_timers *t);

/* How long to look before a sleep (ru_loop_poll). Pure: fed with how long each wait took. */
typedef struct rui_poll {
    int64_t max_ns, window_ns; /* window: of the next wait; 0: sleep at once */
    uint32_t long_waits;       /* one after the other */
} rui_poll;

void rui_poll_waited(rui_poll *p, int64_t took_ns);

#endif
