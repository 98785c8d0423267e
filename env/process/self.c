#include "env/process/self.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/stop.h"

static volatile sig_atomic_t stop_signal;
static volatile sig_atomic_t stop_fd = -1, patient;
static _Atomic int64_t stop_ns; /* when the first one came */

/* timeout(1) signals its child and then its group; a launcher passes on what its worker has got
 * from the terminal as well. What comes this soon is the same request. */
enum { STOP_SAME_NS = 50000000 };

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
static struct sigaction before[RU_ARRAY_LEN(stop_signals)]; /* of those that are watched */
static bool watched[RU_ARRAY_LEN(stop_signals)];
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t watchers; /* ru_self_stop_watch without its ru_self_stop_unwatch */

static void on_stop(int number)
{
    if (stop_signal != 0) {
        if (patient || ru_clock_now().ns - stop_ns < STOP_SAME_NS) {
            return;
        }
        _exit(128 + number);
    }
    stop_ns = ru_clock_now().ns;
    stop_signal = number;
    if (stop_fd >= 0) {
        int kept = errno;
        uint64_t one = 1;
        (void)!write(stop_fd, &one, sizeof one);
        errno = kept;
    }
}

void ru_self_stop_patient(void)
{
    patient = 1;
}

void ru_self_stop_watch(void)
{
    struct sigaction sa = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    pthread_mutex_lock(&watch_lock);
    watchers++;
    if (stop_fd < 0) {
        stop_signal = 0;
        stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(stop_signals); k++) {
        struct sigaction old;
        bool known = !watched[k] && sigaction(stop_signals[k], NULL, &old) == 0;
        if (known && old.sa_handler != SIG_IGN && sigaction(stop_signals[k], &sa, NULL) == 0) {
            before[k] = old;
            watched[k] = true;
        }
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write(), with a sentence */
    (void)signal(SIGPIPE, SIG_IGN); /* see ru_self_tell */
    pthread_mutex_unlock(&watch_lock);
}

int ru_self_stop_asked(void)
{
    return stop_signal;
}

void ru_self_stop_ask(void)
{
    pthread_mutex_lock(&watch_lock);
    if (watchers > 0 && stop_signal == 0) {
        on_stop(SIGINT);
    }
    pthread_mutex_unlock(&watch_lock);
}

int ru_self_stop_fd(void)
{
    return stop_fd;
}

static void unwatch(void)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(stop_signals); k++) {
        if (watched[k]) {
            (void)sigaction(stop_signals[k], &before[k], NULL);
            watched[k] = false;
        }
    }
    if (stop_fd >= 0) {
        int fd = stop_fd;
        stop_fd = -1;
        close(fd);
    }
    patient = 0;
    stop_signal = 0; /* the next run of this process has not been asked to stop */
}

void ru_self_stop_unwatch(void)
{
    pthread_mutex_lock(&watch_lock);
    watchers -= watchers > 0 ? 1 : 0;
    if (watchers == 0) {
        unwatch();
    }
    pthread_mutex_unlock(&watch_lock);
}

void ru_self_tell(const void *data, int64_t size_bytes)
{
    struct stat st;
    bool whole = fwrite(data, 1, (size_t)size_bytes, stdout) == (size_t)size_bytes;
    if (fflush(stdout) == 0 && whole) {
        return;
    }
    bool gone = errno == EPIPE || errno == EBADF ||
                (errno == EIO && fstat(STDOUT_FILENO, &st) == 0 && S_ISCHR(st.st_mode));
    int nowhere = gone ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    if (nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) == STDOUT_FILENO) {
        (void)fflush(stdout); /* what is left of it */
        clearerr(stdout);
    }
    if (nowhere > STDERR_FILENO) {
        close(nowhere);
    }
}

void ru_self_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            /* The wrong way round, so that a use of it fails as that of a closed one does. */
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

int64_t ru_self_rss_peak_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_maxrss * 1024 : 0;
}

int64_t ru_self_preempted(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (int64_t)u.ru_nivcsw : 0;
}

int64_t ru_self_rss_bytes(void)
{
    long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL) {
        return 0;
    }
    int n = fscanf(f, "%lld %lld", &size, &resident);
    (void)fclose(f);
    return n == 2 ? (int64_t)resident * sysconf(_SC_PAGESIZE) : 0;
}

/* Field 22 of /proc/self/stat counts clock ticks since boot, as ru_clock_now does. Resolution: one
 * tick (10 ms). */
int64_t ru_self_start_ns(void)
{
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    if (f == NULL) {
        return 0;
    }
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = 0;
    const char *at = strrchr(text, ')');
    unsigned long long ticks = 0;
    if (at == NULL ||
        sscanf(at + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks) != 1) {
        return 0;
    }
    return (int64_t)(ticks * (1000000000ULL / (unsigned long long)sysconf(_SC_CLK_TCK)));
}

int64_t ru_self_pid(void)
{
    return (int64_t)getpid();
}

uint32_t ru_self_columns(int fd)
{
    struct winsize w = {0};
    if (isatty(fd) == 0 || ioctl(fd, TIOCGWINSZ, &w) != 0) {
        return 0;
    }
    return w.ws_col;
}

void ru_self_host(char *into, int64_t size_bytes)
{
    if (gethostname(into, (size_t)size_bytes) != 0) {
        (void)snprintf(into, (size_t)size_bytes, "unknown");
    }
    into[size_bytes - 1] = 0;
}

uint32_t ru_self_addresses(char (*into)[RU_SELF_ADDRESS_BYTES], uint32_t max)
{
    struct ifaddrs *all = NULL;
    uint32_t n = 0;
    if (getifaddrs(&all) != 0) {
        return 0;
    }
    for (const struct ifaddrs *a = all; a != NULL && n < max; a = a->ifa_next) {
        bool v4 = a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET;
        bool v6 = a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET6;
        socklen_t size = v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        n += (v4 || v6) && (a->ifa_flags & IFF_UP) != 0 &&
             getnameinfo(a->ifa_addr, size, into[n], RU_SELF_ADDRESS_BYTES, NULL, 0,
                         NI_NUMERICHOST) == 0;
    }
    freeifaddrs(all);
    return n;
}

void ru_self_cpu(char *into, int64_t size_bytes)
{
    (void)snprintf(into, (size_t)size_bytes, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *at = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && at != NULL) {
            line[strcspn(line, "\n")] = 0;
            (void)snprintf(into, (size_t)size_bytes, "%s", at + 1 + strspn(at + 1, " "));
            break;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
}

int64_t ru_self_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    return pages > 0 ? (int64_t)pages * sysconf(_SC_PAGESIZE) : 0;
}

void ru_self_again(const char *name, const char *value)
{
    enum { WORDS_MAX = 4096 };
    ru_arena arena;
    ru_arena_init(&arena, 0);
    char *text;
    int64_t n;
    char **words = RU_NEW(&arena, char *, WORDS_MAX + 1);
    uint32_t k = 0;
    if (words != NULL && setenv(name, value, 1) == 0 &&
        ru_file_read("/proc/self/cmdline", 0, &arena, &text, &n, NULL) == RU_OK) {
        for (int64_t at = 0; at < n && k < WORDS_MAX; at += (int64_t)strlen(text + at) + 1) {
            words[k++] = text + at;
        }
        if (k > 0 && k < WORDS_MAX) {
            (void)execv("/proc/self/exe", words);
        }
    }
    ru_arena_fini(&arena);
}

void ru_self_name(const char *name)
{
    (void)prctl(PR_SET_NAME, name); /* cosmetic: no harm without */
}

void ru_self_random(void *into, int64_t size_bytes)
{
    uint8_t *at = into;
    while (size_bytes > 0) {
        ssize_t n = getrandom(at, (size_t)size_bytes, 0);
        RU_CHECK(n > 0 || errno == EINTR);
        at += n > 0 ? n : 0;
        size_bytes -= n > 0 ? n : 0;
    }
}

typedef struct build {
    uint8_t id[20];
    uint32_t n; /* bytes of it that are known */
} build;

/* The note of the linker in a segment of notes. */
static void read_notes(const uint8_t *note, uint64_t size_bytes, build *b)
{
    Elf64_Nhdr h;
    for (uint64_t i = 0; b->n == 0 && i + sizeof h <= size_bytes;) {
        memcpy(&h, note + i, sizeof h);
        uint64_t name = i + sizeof h, desc = name + ((h.n_namesz + 3U) & ~3U);
        bool whole = desc + h.n_descsz <= size_bytes;
        if (whole && h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 &&
            memcmp(note + name, "GNU", 4) == 0) {
            b->n = h.n_descsz < sizeof b->id ? h.n_descsz : (uint32_t)sizeof b->id;
            memcpy(b->id, note + desc, b->n);
        }
        i = desc + ((h.n_descsz + 3U) & ~3U);
    }
}

/* Of the loaded program or library that holds this code. */
static void look_for_build(build *b)
{
    Dl_info object;
    Elf64_Ehdr head;
    if (dladdr(&stop_signals, &object) == 0) {
        return;
    }
    const uint8_t *at = object.dli_fbase, *load = at;
    memcpy(&head, at, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64) {
        return;
    }
    bool loaded = false;
    for (uint32_t k = 0; k < head.e_phnum; k++) {
        Elf64_Phdr p;
        memcpy(&p, at + head.e_phoff + (uint64_t)k * sizeof p, sizeof p);
        if (p.p_type == PT_LOAD && !loaded) { /* a program that is not moved has its addresses */
            load = at - (p.p_vaddr - p.p_offset);
            loaded = true;
        }
    }
    for (uint32_t k = 0; k < head.e_phnum; k++) {
        Elf64_Phdr p;
        memcpy(&p, at + head.e_phoff + (uint64_t)k * sizeof p, sizeof p);
        if (p.p_type == PT_NOTE) {
            read_notes(load + p.p_vaddr, p.p_memsz, b);
        }
    }
}

void ru_self_build(char into[RU_SELF_BUILD_BYTES])
{
    build b = {.n = 0};
    ru_map_file map;
    look_for_build(&b);
    if (b.n == 0 && ru_file_map("/proc/self/exe", &map, NULL) == RU_OK) {
        uint64_t hash = ru_hash_bytes(map.data, map.size_bytes, 0);
        memcpy(b.id, &hash, sizeof hash);
        b.n = sizeof hash;
        ru_file_unmap(&map);
    }
    (void)snprintf(into, RU_SELF_BUILD_BYTES, "unknown");
    for (uint32_t k = 0; k < b.n; k++) {
        (void)snprintf(into + 2 * (size_t)k, 3, "%02x", b.id[k]);
    }
}

uint32_t ru_self_cores(void)
{
    cpu_set_t set;
    bool known = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0;
    return known ? (uint32_t)CPU_COUNT(&set) : 1;
}
