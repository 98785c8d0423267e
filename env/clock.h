/* Clocks. Only env/ reads them; control code gets the time in its events.
 *
 * Thread: any. */
#ifndef RU_ENV_CLOCK_H
#define RU_ENV_CLOCK_H

#include "base/status.h"

typedef struct ru_time {
    int64_t ns; /* monotonic, since boot; continues while the machine sleeps */
} ru_time;

ru_time ru_clock_now(void);
static inline int64_t ru_time_since(ru_time later, ru_time earlier)
{
    return later.ns - earlier.ns;
}
static inline ru_time ru_time_after(ru_time t, int64_t delay_ns)
{
    ru_time after = {t.ns + delay_ns}; /* also C++: the header is installed */
    return after;
}
/* Processor time of this process, all threads. */
int64_t ru_clock_cpu_ns(void);
int64_t ru_clock_thread_cpu_ns(void); /* of the calling thread */
/* Wall clock, ns since 1970-01-01 UTC; for names of files and foreign formats only. */
int64_t ru_clock_wall_ns(void);
/* Wait so long, or until a signal comes. For commands that look again and again; nothing else waits
 * for time without an event. */
void ru_clock_pause(int64_t ns);

#endif
