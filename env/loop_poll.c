/* How long a loop looks for events before it sleeps.
 *
 *   took <= window   it came while we looked: stay
 *   took <= max      looking longer would have met it: twice as long
 *   else             half as long, at last not at all
 *
 * Source: the kernel's haltpoll governor does the same for idle cores of guests; there is no
 * other memory than the window, so a change of the traffic is followed within a few waits. */
#include "env/loop_impl.h"

static const int64_t start_ns = 10000;

void rui_poll_waited(rui_poll *p, int64_t took_ns)
{
    if (took_ns <= p->window_ns) {
        return;
    }
    if (took_ns <= p->max_ns) {
        int64_t longer = p->window_ns < start_ns / 2 ? start_ns : 2 * p->window_ns;
        p->window_ns = longer < p->max_ns ? longer : p->max_ns;
    } else {
        p->window_ns = p->window_ns >= 2 * start_ns ? p->window_ns / 2 : 0;
    }
}
