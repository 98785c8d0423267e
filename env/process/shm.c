/* Shared segments on memfd, words on futexes.
 *
 * Sleeping: the waiter raises `sleepers` before it looks at the value for the last time, the poster
 * writes the value before it looks at `sleepers`; both sequentially consistent, so one of them sees
 * the other. */
#include "env/process/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "env/clock.h"

enum {
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    HUGE_BYTES = 2 << 20,
    CHECK_NS = 1000000,
    SPINS_PER_LOOK = 32, /* reads of the word between two looks at the clock (about 1 us) */
};

struct ru_shm {
    int fd;          /* -1 in those who mapped */
    uint8_t *mapped; /* [mapped_bytes], reserved with room for alignment */
    int64_t mapped_bytes;
    uint8_t *data; /* [size_bytes] */
    int64_t size_bytes;
    char handle[RU_SHM_HANDLE_MAX];
};

/* Map fd at an address aligned for huge pages: reserve more than needed, put it inside. */
static ru_status map_fd(ru_shm *s, int fd, ru_err *err)
{
    int64_t align = s->size_bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    s->mapped_bytes = s->size_bytes + align;
    void *room = mmap(NULL, (size_t)s->mapped_bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return RU_FAIL(err, RU_E_MEM, "no address space for a shared segment of %lld bytes: %s",
                       (long long)s->size_bytes, strerror(errno));
    }
    s->mapped = room;
    uintptr_t at = (uintptr_t)room;
    uintptr_t up = align > 0 ? (at + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES - at : 0;
    void *want = s->mapped + up;
    void *got =
        mmap(want, (size_t)s->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (got == MAP_FAILED) {
        return RU_FAIL(err, RU_E_MEM, "cannot map a shared segment of %lld bytes: %s",
                       (long long)s->size_bytes, strerror(errno));
    }
    s->data = got;
    if (align > 0) {
        (void)madvise(got, (size_t)s->size_bytes, MADV_HUGEPAGE); /* advice only */
    }
    return RU_OK;
}

ru_status ru_shm_create(const char *name, int64_t size_bytes, ru_shm **out, ru_err *err)
{
    if (size_bytes < 1 || size_bytes > (int64_t)1 << 40) {
        return RU_FAIL(err, RU_E_ARG, "a shared segment has %lld bytes, expected 1 to 2^40",
                       (long long)size_bytes);
    }
    ru_shm *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a shared segment");
    }
    s->size_bytes = size_bytes;
    uint64_t nonce = 0;
    (void)!getrandom(&nonce, sizeof nonce, 0);
    char label[64];
    snprintf(label, sizeof label, "rubato-%.24s-%016" PRIx64, name, nonce);
    s->fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ru_status st = RU_OK;
    if (s->fd < 0) {
        st = RU_FAIL(err, RU_E_LIMIT, "cannot create the shared segment %s: %s; raise ulimit -n",
                     label, strerror(errno));
    } else if (ftruncate(s->fd, size_bytes) != 0 || fcntl(s->fd, F_ADD_SEALS, SEALS) != 0) {
        st = RU_FAIL(err, RU_E_MEM, "cannot size the shared segment %s to %lld bytes: %s", label,
                     (long long)size_bytes, strerror(errno));
    }
    st = st == RU_OK ? map_fd(s, s->fd, err) : st;
    if (st != RU_OK) {
        ru_shm_close(s);
        return st;
    }
    snprintf(s->handle, sizeof s->handle, "%ld:%d:%lld:%016" PRIx64, (long)getpid(), s->fd,
             (long long)size_bytes, nonce);
    *out = s;
    return RU_OK;
}

typedef struct handle_parts {
    long pid;
    int fd;
    long long size_bytes;
    uint64_t nonce;
} handle_parts;

static bool parse(const char *handle, handle_parts *into)
{
    handle_parts p = {0};
    int end = 0;
    bool ok = strlen(handle) < RU_SHM_HANDLE_MAX &&
              sscanf(handle, "%9ld:%9d:%15lld:%16" SCNx64 "%n", &p.pid, &p.fd, &p.size_bytes,
                     &p.nonce, &end) == 4 &&
              handle[end] == '\0' && p.pid > 0 && p.fd >= 0 && p.size_bytes > 0;
    *into = p;
    return ok;
}

/* Is `link` (the text of a /proc/<pid>/fd entry) a segment of ours with this nonce? */
static bool named(const char *link, uint64_t nonce)
{
    char want[24];
    snprintf(want, sizeof want, "-%016" PRIx64, nonce);
    return strncmp(link, "/memfd:rubato-", 14) == 0 && strstr(link, want) != NULL;
}

static ru_status open_handle(const char *handle, const handle_parts *p, int *out, ru_err *err)
{
    char path[64], link[128];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", p->pid, p->fd);
    ssize_t n = readlink(path, link, sizeof link - 1);
    if (n < 0 && (errno == EACCES || errno == EPERM)) {
        return RU_FAIL(
            err, RU_E_PERM,
            "shared segment %s: process %ld belongs to another user; run both as the same user",
            handle, p->pid);
    }
    link[n < 0 ? 0 : n] = '\0';
    if (n < 0 || !named(link, p->nonce)) {
        return RU_FAIL(err, RU_E_PEER, "shared segment %s: its owner, process %ld, has ended",
                       handle, p->pid);
    }
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0) {
        int e = errno;
        if (fd >= 0) {
            close(fd);
        }
        return RU_FAIL(err, e == EACCES || e == EPERM ? RU_E_PERM : RU_E_PEER,
                       "shared segment %s: cannot open %s: %s", handle, path, strerror(e));
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || stat.st_size != p->size_bytes) {
        close(fd);
        return RU_FAIL(err, RU_E_DATA,
                       "shared segment %s: it has %lld bytes and seals %d, so it is not a sealed "
                       "segment of its size",
                       handle, (long long)stat.st_size, seals);
    }
    *out = fd;
    return RU_OK;
}

ru_status ru_shm_map(const char *handle, int64_t size_bytes, ru_shm **out, ru_err *err)
{
    handle_parts p;
    if (!parse(handle, &p)) {
        return RU_FAIL(err, RU_E_DATA,
                       "'%.95s' is not a handle of a shared segment (pid:fd:size:nonce)", handle);
    }
    if (size_bytes != 0 && size_bytes != p.size_bytes) {
        return RU_FAIL(err, RU_E_DATA,
                       "shared segment %s: %lld bytes were expected; both processes must be of one "
                       "build of Rubato",
                       handle, (long long)size_bytes);
    }
    int fd = -1;
    RU_TRY(open_handle(handle, &p, &fd, err));
    ru_shm *s = calloc(1, sizeof *s);
    ru_status st = s != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a shared segment");
    if (st == RU_OK) {
        s->fd = -1;
        s->size_bytes = p.size_bytes;
        snprintf(s->handle, sizeof s->handle, "%s", handle);
        st = map_fd(s, fd, err);
    }
    close(fd);
    if (st != RU_OK) {
        ru_shm_close(s);
        return st;
    }
    *out = s;
    return RU_OK;
}

void ru_shm_close(ru_shm *s)
{
    if (s == NULL) {
        return;
    }
    if (s->mapped != NULL) {
        (void)munmap(s->mapped, (size_t)s->mapped_bytes);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    free(s);
}

void *ru_shm_data(const ru_shm *s)
{
    return s->data;
}

int64_t ru_shm_size_bytes(const ru_shm *s)
{
    return s->size_bytes;
}

const char *ru_shm_handle(const ru_shm *s)
{
    return s->handle;
}

static uint64_t inode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

void ru_shm_host(char into[RU_SHM_HOST_MAX])
{
    char boot[40] = "unknown";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f != NULL) {
        if (fscanf(f, "%36s", boot) != 1) {
            snprintf(boot, sizeof boot, "unknown");
        }
        fclose(f);
    }
    snprintf(into, RU_SHM_HOST_MAX, "%s-%" PRIu64 "-%" PRIu64, boot, inode_of("/proc/self/ns/pid"),
             inode_of("/proc/self/ns/net"));
}

static long futex(uint32_t *at, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, at, op, value, timeout, NULL, 0);
}

uint32_t ru_shm_look(const ru_shm_word *w)
{
    return __atomic_load_n(&w->value, __ATOMIC_ACQUIRE);
}

static void wake_sleepers(ru_shm_word *w)
{
    if (__atomic_load_n(&w->sleepers, __ATOMIC_SEQ_CST) != 0) {
        (void)futex(&w->value, FUTEX_WAKE, INT32_MAX, NULL);
    }
}

uint32_t ru_shm_post(ru_shm_word *w, uint32_t value)
{
    __atomic_store_n(&w->value, value, __ATOMIC_SEQ_CST);
    wake_sleepers(w);
    return value;
}

static void pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Busy-wait; true when the target was reached. */
static bool spin(const ru_shm_word *w, uint32_t target, int64_t until_ns)
{
    do {
        for (uint32_t k = 0; k < SPINS_PER_LOOK; k++) {
            if (ru_shm_reached(ru_shm_look(w), target)) {
                return true;
            }
            pause_core();
        }
    } while (ru_clock_now().ns < until_ns);
    return false;
}

/* The same, with others that want the core in between: where there are more waiters than cores, the
 * one waited for may need ours, and a look costs less than to be woken up. */
static bool yield_until(const ru_shm_word *w, uint32_t target, int64_t until_ns)
{
    do {
        (void)sched_yield();
        if (ru_shm_reached(ru_shm_look(w), target)) {
            return true;
        }
    } while (ru_clock_now().ns < until_ns);
    return false;
}

/* Sleep until the value is no longer `seen`, or for at most `sleep_ns`. */
static void sleep_on(ru_shm_word *w, uint32_t target, int64_t sleep_ns)
{
    (void)__atomic_add_fetch(&w->sleepers, 1, __ATOMIC_SEQ_CST);
    uint32_t seen = __atomic_load_n(&w->value, __ATOMIC_SEQ_CST);
    if (!ru_shm_reached(seen, target)) {
        struct timespec ts = {.tv_sec = sleep_ns / 1000000000, .tv_nsec = sleep_ns % 1000000000};
        (void)futex(&w->value, FUTEX_WAIT, seen, &ts);
    }
    (void)__atomic_sub_fetch(&w->sleepers, 1, __ATOMIC_SEQ_CST);
}

ru_status ru_shm_wait(ru_shm_word *w, uint32_t target, const ru_shm_wait_options *opt)
{
    if (ru_shm_reached(ru_shm_look(w), target)) {
        return RU_OK;
    }
    int64_t start_ns = ru_clock_now().ns;
    int64_t check_ns = opt->check_ns > 0 ? opt->check_ns : CHECK_NS;
    if (opt->spin_ns > 0 && spin(w, target, start_ns + opt->spin_ns)) {
        return RU_OK;
    }
    if (opt->yield_ns > 0 && yield_until(w, target, start_ns + opt->spin_ns + opt->yield_ns)) {
        return RU_OK;
    }
    for (;;) {
        if (ru_shm_reached(ru_shm_look(w), target)) {
            return RU_OK;
        }
        if (opt->check != NULL) {
            RU_TRY(opt->check(opt->self));
        }
        int64_t left_ns = INT64_MAX;
        if (opt->timeout_ns > 0) {
            left_ns = opt->timeout_ns - (ru_clock_now().ns - start_ns);
            if (left_ns <= 0) {
                return RU_E_AGAIN;
            }
        }
        int64_t sleep_ns = opt->check != NULL ? check_ns : (int64_t)1000000000;
        sleep_on(w, target, sleep_ns < left_ns ? sleep_ns : left_ns);
    }
}
