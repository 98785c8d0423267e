/* The k-th system call fails: as seal.c does for memory, the linker sends the calls of our own code
 * through the functions below (--wrap in test/meson.build). One call fails with an error that it
 * may give at any time, the next one works again: what was begun must be undone, and can be.
 *
 * Calls that only give back (close, munmap, unlink) never fail here. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "env/thread.h"
#include "test/test.h"

static _Thread_local int64_t fail_at = -1; /* so many calls still pass; -1: all */
static _Thread_local int64_t made;
static _Thread_local bool dies;
static _Thread_local int64_t sends, record_ends;

void ru_test_os_fail(int64_t at)
{
    fail_at = at;
    made = 0;
}

void ru_test_os_die(int64_t at)
{
    ru_test_os_fail(at);
    dies = true;
}

int64_t ru_test_os_count(void)
{
    return made;
}

void ru_test_os_sends(int64_t *all, int64_t *ends)
{
    *all = sends;
    *ends = record_ends;
    sends = record_ends = 0;
}

/* -- all threads of a process --------------------------------------------------------------------
 */

static ru_mutex lock; /* zeroed: a valid one */
static bool everywhere_os;
static int64_t everywhere_at = -1, everywhere_made[2];

void ru_test_fail_everywhere(bool os, int64_t at)
{
    ru_mutex_lock(&lock);
    everywhere_os = os;
    everywhere_at = at;
    everywhere_made[0] = everywhere_made[1] = 0;
    ru_mutex_unlock(&lock);
}

int64_t ru_test_everywhere_count(bool os)
{
    ru_mutex_lock(&lock);
    int64_t n = everywhere_made[os ? 1 : 0];
    ru_mutex_unlock(&lock);
    return n;
}

bool ru_test_fails_everywhere(bool os)
{
    ru_mutex_lock(&lock);
    int64_t k = everywhere_made[os ? 1 : 0]++;
    bool it = os == everywhere_os && k == everywhere_at;
    ru_mutex_unlock(&lock);
    return it;
}

static bool fails(int error)
{
    made++;
    if (ru_test_fails_everywhere(true)) {
        errno = error;
        return true;
    }
    if (fail_at < 0 || fail_at-- > 0) {
        return false;
    }
    if (dies) {
        _exit(0);
    }
    errno = error;
    return true;
}

/* X(result, name, (parameters), (arguments), error, what it returns then) */
#define CALLS(X)                                                                                   \
    X(int, socket, (int a, int b, int c), (a, b, c), EMFILE, -1)                                   \
    X(int, bind, (int f, const struct sockaddr *a, socklen_t n), (f, a, n), EADDRINUSE, -1)        \
    X(int, listen, (int f, int n), (f, n), EADDRINUSE, -1)                                         \
    X(int, accept4, (int f, struct sockaddr *a, socklen_t *n, int g), (f, a, n, g), ECONNABORTED,  \
      -1)                                                                                          \
    X(int, connect, (int f, const struct sockaddr *a, socklen_t n), (f, a, n), ENETUNREACH, -1)    \
    X(int, setsockopt, (int f, int l, int o, const void *v, socklen_t n), (f, l, o, v, n),         \
      ENOBUFS, -1)                                                                                 \
    X(int, getsockopt, (int f, int l, int o, void *v, socklen_t *n), (f, l, o, v, n), ENOBUFS, -1) \
    X(int, getsockname, (int f, struct sockaddr *a, socklen_t *n), (f, a, n), ENOBUFS, -1)         \
    X(ssize_t, recvmsg, (int f, struct msghdr *m, int g), (f, m, g), ECONNRESET, -1)               \
    X(ssize_t, recv, (int f, void *b, size_t n, int g), (f, b, n, g), ECONNRESET, -1)              \
    X(int, epoll_create1, (int g), (g), EMFILE, -1)                                                \
    X(int, epoll_ctl, (int e, int o, int f, struct epoll_event *v), (e, o, f, v), ENOSPC, -1)      \
    X(int, timerfd_create, (int c, int g), (c, g), EMFILE, -1)                                     \
    X(int, eventfd, (unsigned n, int g), (n, g), EMFILE, -1)                                       \
    X(int, memfd_create, (const char *n, unsigned g), (n, g), EMFILE, -1)                          \
    X(int, ftruncate64, (int f, off_t n), (f, n), ENOSPC, -1)                                      \
    X(int, fstat64, (int f, struct stat *s), (f, s), EIO, -1)                                      \
    X(void *, mmap64, (void *a, size_t n, int p, int g, int f, off_t o), (a, n, p, g, f, o),       \
      ENOMEM, (void *)-1)                                                                          \
    X(ssize_t, read, (int f, void *b, size_t n), (f, b, n), EIO, -1)                               \
    X(ssize_t, pread64, (int f, void *b, size_t n, off_t o), (f, b, n, o), EIO, -1)                \
    X(ssize_t, write, (int f, const void *b, size_t n), (f, b, n), ENOSPC, -1)                     \
    X(int, fsync, (int f), (f), EIO, -1)                                                           \
    X(int, fdatasync, (int f), (f), EIO, -1)                                                       \
    X(int, rename, (const char *a, const char *b), (a, b), ENOSPC, -1)                             \
    X(int, mkdir, (const char *a, mode_t m), (a, m), ENOSPC, -1)                                   \
    X(ssize_t, readlink, (const char *a, char *b, size_t n), (a, b, n), EACCES, -1)

#define X(result, name, parameters, arguments, error, returned)   \
    result __real_##name parameters;                              \
    result __wrap_##name parameters;                              \
    result __wrap_##name parameters                               \
    {                                                             \
        return fails(error) ? returned : __real_##name arguments; \
    }
CALLS(X)
#undef X

ssize_t __real_pwrite64(int f, const void *b, size_t n, off_t o);
ssize_t __wrap_pwrite64(int f, const void *b, size_t n, off_t o);
ssize_t __wrap_pwrite64(int f, const void *b, size_t n, off_t o)
{
    if (dies && fail_at == 0) { /* a process may end within it: the record is torn */
        (void)!__real_pwrite64(f, b, n / 2, o);
    }
    return fails(made % 2 == 0 ? ENOSPC : EIO) ? -1 : __real_pwrite64(f, b, n, o);
}

/* Says its error instead of setting errno. */
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    return fails(EAGAIN) ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

int __real_posix_fallocate64(int fd, off_t at, off_t n);
int __wrap_posix_fallocate64(int fd, off_t at, off_t n);

int __wrap_posix_fallocate64(int fd, off_t at, off_t n)
{
    return fails(ENOSPC) ? ENOSPC : __real_posix_fallocate64(fd, at, n);
}

ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __real_send(int fd, const void *data, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t size, int flags);

static void count_send(int flags)
{
    sends++;
    record_ends += (flags & MSG_EOR) != 0;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
    count_send(flags);
    return fails(ENETDOWN) ? -1 : __real_sendmsg(fd, m, flags);
}

ssize_t __wrap_send(int fd, const void *data, size_t size, int flags)
{
    count_send(flags);
    return fails(ENETDOWN) ? -1 : __real_send(fd, data, size, flags);
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_fcntl64(int fd, int what, ...);
int __wrap_fcntl64(int fd, int what, ...);

int __wrap_open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fails(EMFILE) ? -1 : __real_open64(path, flags, mode);
}

int __wrap_fcntl64(int fd, int what, ...)
{
    va_list ap;
    va_start(ap, what);
    long value = va_arg(ap, long);
    va_end(ap);
    return fails(EINVAL) ? -1 : __real_fcntl64(fd, what, value);
}
