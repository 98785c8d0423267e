/* Another clock for a process that does not know of it: preloaded, it shows CLOCK_BOOTTIME and
 * CLOCK_MONOTONIC as those of a machine that booted at another time and whose crystal is off.
 *
 *   RUBATO_SKEW="AT OFFSET PPM"   shown = t + OFFSET + (t - AT) * PPM / 10^6      (ns)
 *
 * What the kernel is told of such times (timers, deadlines of conditions) is translated back. The
 * wall clock, which stamps what arrives, stays as it is. For bench clock. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int64_t at_ns, offset_ns, ppm;
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_settime)(int, int, const struct itimerspec *, struct itimerspec *);
static int (*real_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

#pragma GCC visibility push(default)
int clock_gettime(clockid_t id, struct timespec *ts);
int timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old);
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *at);
#pragma GCC visibility pop

/* POSIX gives functions as void pointers. */
static void find(void *into, const char *name)
{
    *(void **)into = dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void start(void)
{
    find(&real_gettime, "clock_gettime");
    find(&real_settime, "timerfd_settime");
    find(&real_timedwait, "pthread_cond_timedwait");
    static const char key[] = "RUBATO_SKEW=";
    const char *text = NULL;
    for (char **e = environ; e != NULL && *e != NULL && text == NULL; e++) {
        text = strncmp(*e, key, sizeof key - 1) == 0 ? *e + sizeof key - 1 : NULL;
    }
    char *end = NULL;
    if (text != NULL) {
        at_ns = strtoll(text, &end, 10);
        offset_ns = strtoll(end, &end, 10);
        ppm = strtoll(end, &end, 10);
    }
}

static int64_t ns_of(const struct timespec *ts)
{
    return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

static struct timespec of_ns(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static int64_t shown(int64_t t)
{
    return t + offset_ns + (t - at_ns) / 1000 * ppm / 1000;
}

static int64_t true_of(int64_t show)
{
    int64_t t = show - offset_ns;
    for (int k = 0; k < 3; k++) {
        t -= shown(t) - show;
    }
    return t > 1 ? t : 1;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    if (real_gettime == NULL) {
        start();
    }
    int rc = real_gettime(id, ts);
    if (rc == 0 && (id == CLOCK_BOOTTIME || id == CLOCK_MONOTONIC)) {
        *ts = of_ns(shown(ns_of(ts)));
    }
    return rc;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old)
{
    struct itimerspec v = *value;
    if ((flags & TFD_TIMER_ABSTIME) != 0 && ns_of(&v.it_value) != 0) {
        v.it_value = of_ns(true_of(ns_of(&v.it_value)));
    }
    return real_settime(fd, flags, &v, old);
}

/* All conditions of this program wait on the monotonic clock. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *at)
{
    struct timespec t = of_ns(true_of(ns_of(at)));
    return real_timedwait(cond, mutex, &t);
}
