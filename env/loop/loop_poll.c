/* How long a loop looks for events before it sleeps.
 *
 *   took <= window   it came while we looked: stay
 *   took <= max      looking longer would have met it: twice as long
 *   else             once or twice: stay; then half as long each time, at last not at all
 *
 * Source: the kernel's haltpoll governor does the same for idle cores of guests. It halves at once;
 * with a pause here and there among exchanges (all-reduces of 1 KiB, 4 ranks on 2 cores) the window
 * was then mostly too short: 97 us instead of 85. */
#include "env/loop/loop_impl.h"

static const int64_t start_ns = 10000;
enum { LONG_WAITS = 2 };

void rui_poll_waited(rui_poll *p, int64_t took_ns)
{
    if (took_ns > p->max_ns) {
        if (++p->long_waits > LONG_WAITS) {
            p->window_ns = p->window_ns >= 2 * start_ns ? p->window_ns / 2 : 0;
        }
        return;
    }
    p->long_waits = 0;
    if (took_ns > p->window_ns) {
        int64_t longer = p->window_ns < start_ns / 2 ? start_ns : 2 * p->window_ns;
        p->window_ns = longer < p->max_ns ? longer : p->max_ns;
    }
}
