/* Clocks on Linux, read through the vDSO: 20 to 60 ns. CLOCK_BOOTTIME goes on while the machine is
 * suspended, CLOCK_MONOTONIC does not: who slept for an hour must know it before it goes on as if
 * nothing had happened (comm/member). */
#include "env/clock.h"

#include <time.h>

static int64_t read_ns(clockid_t id)
{
    struct timespec ts;
    int rc = clock_gettime(id, &ts);
    RU_CHECK(rc == 0);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

ru_time ru_clock_now(void)
{
    return (ru_time){read_ns(CLOCK_BOOTTIME)};
}

int64_t ru_clock_cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t ru_clock_thread_cpu_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t ru_clock_wall_ns(void)
{
    return read_ns(CLOCK_REALTIME);
}

void ru_clock_pause(int64_t ns)
{
    struct timespec ts = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)nanosleep(&ts, NULL); /* a signal ends it */
}
