/* Child processes on fork and execvp. Between fork and exec only async-signal-safe calls are made.
 */
#include "env/process/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "env/clock.h"
#include "env/process/account.h"
#include "env/process/group.h"
#include "env/process/origin.h"

extern char **environ;

enum { LINE_MAX_BYTES = 1 << 20 };

struct ru_process {
    pid_t pid;
    int in, out, errors; /* our ends; -1: none */
    bool done;
    int code;
    char *buffer; /* [cap] bytes [at, end) are not yet given */
    size_t cap, at, end;
};

static bool env_is(const char *entry, const char *name)
{
    size_t n = strcspn(name, "=");
    return strncmp(entry, name, n) == 0 && entry[n] == '=';
}

static bool env_in(const char *entry, const char *const *names)
{
    while (names != NULL && *names != NULL && !env_is(entry, *names)) {
        names++;
    }
    return names != NULL && *names != NULL;
}

/* The child's environment: ours without `unset` and `set` names, then `set`. */
static char **env_make(const ru_process_options *opt)
{
    size_t n = 0, n_set = 0;
    while (environ[n] != NULL) {
        n++;
    }
    while (opt->set != NULL && opt->set[n_set] != NULL) {
        n_set++;
    }
    char **env = calloc(n + n_set + 1, sizeof *env);
    size_t used = 0;
    for (size_t i = 0; env != NULL && i < n; i++) {
        if ((opt->keep == NULL || env_in(environ[i], opt->keep)) &&
            !env_in(environ[i], opt->unset) && !env_in(environ[i], opt->set)) {
            env[used++] = environ[i];
        }
    }
    for (size_t k = 0; env != NULL && k < n_set; k++) {
        env[used++] = (char *)(uintptr_t)opt->set[k];
    }
    return env;
}

static void pin(int64_t mask)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int k = 0; k < 63; k++) {
        if ((mask >> k) & 1) {
            CPU_SET((size_t)k, &set);
        }
    }
    (void)sched_setaffinity(0, sizeof set, &set);
}

RU_NORETURN static void give_up(int report)
{
    int e = errno;
    ssize_t rc = write(report, &e, sizeof e);
    _exit(rc == sizeof e ? 127 : 126);
}

/* A session of its own, and no stream that ends with the parent, which waits here: a FIFO that has
 * the log's name holds up nobody. */
static bool outlives(const char *log)
{
    enum { FLAGS = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };
    int in = open("/dev/null", O_RDONLY);
    int out = open(log, FLAGS, 0600);
    return setsid() >= 0 && in >= 0 && out >= 0 && dup2(in, STDIN_FILENO) >= 0 &&
           dup2(out, STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0 && close(in) == 0;
}

RU_NORETURN static void child(const ru_process_options *opt, char **env, int in, int out,
                              int errors, int report)
{
    signal(SIGPIPE, SIG_DFL);
    if ((opt->group != NULL && !rui_group_enter_self(opt->group)) ||
        (opt->account != NULL && !rui_account_become(opt->account))) {
        give_up(report);
    }
    if (opt->outlive == NULL) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    } else if (!outlives(opt->outlive)) {
        give_up(report);
    }
    if (opt->own_group ||
        opt->outlive != NULL) { /* its parent alone stops it, also where a shell ignores SIGINT */
        (void)setpgid(0, 0);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
    }
    if (errors >= 0) {
        dup2(errors, STDERR_FILENO);
    }
    if (in >= 0) {
        dup2(in, STDIN_FILENO);
    }
    if (out >= 0) {
        dup2(out, STDOUT_FILENO);
    }
    if (opt->quiet) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
    }
    if (opt->cores_mask != 0) {
        pin(opt->cores_mask);
    }
    environ = env;
    execvp(opt->argv[0], (char *const *)(uintptr_t)opt->argv);
    give_up(report);
}

static void close_pair(int *pair)
{
    for (int k = 0; k < 2; k++) {
        if (pair[k] >= 0) {
            close(pair[k]);
        }
        pair[k] = -1;
    }
}

/* fork, exec, and learn through a close-on-exec pipe whether exec worked. */
static ru_status launch(const ru_process_options *opt, char **env, ru_process *p, ru_err *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, errors[2] = {-1, -1}, report[2] = {-1, -1};
    ru_status st = RU_OK;
    if ((opt->pipe_in && pipe2(in, O_CLOEXEC) != 0) ||
        (opt->pipe_out && pipe2(out, O_CLOEXEC) != 0) ||
        (opt->pipe_err && pipe2(errors, O_CLOEXEC) != 0) || pipe2(report, O_CLOEXEC) != 0) {
        st = RU_FAIL(err, RU_E_LIMIT, "cannot make a pipe for %s: %s", opt->argv[0],
                     strerror(errno));
    }
    p->pid = st == RU_OK ? fork() : -1;
    if (p->pid == 0) {
        child(opt, env, in[0], out[1], errors[1], report[1]);
    }
    if (st == RU_OK && p->pid < 0) {
        st = RU_FAIL(err, RU_E_LIMIT, "cannot start %s: %s", opt->argv[0], strerror(errno));
    }
    int failed = 0;
    if (st == RU_OK) {
        close(report[1]);
        report[1] = -1;
        ssize_t n;
        do {
            n = read(report[0], &failed, sizeof failed);
        } while (n < 0 && errno == EINTR);
        failed = n == (ssize_t)sizeof failed ? failed : 0;
    }
    if (failed != 0) {
        (void)waitpid(p->pid, NULL, 0);
        st =
            RU_FAIL(err, failed == ENOENT ? RU_E_MISSING : RU_E_PERM, "cannot run %s%s%s%s%s%s: %s",
                    opt->argv[0], opt->account != NULL ? " as " : "",
                    opt->account != NULL ? opt->account->name : "",
                    opt->group != NULL ? " in its control group" : "",
                    opt->outlive != NULL ? " with its output in " : "",
                    opt->outlive != NULL ? opt->outlive : "", strerror(failed));
    }
    if (st == RU_OK) {
        p->in = in[1];
        p->out = out[0];
        p->errors = errors[0];
        in[1] = out[0] = errors[0] = -1;
    }
    close_pair(in);
    close_pair(out);
    close_pair(errors);
    close_pair(report);
    return st;
}

ru_status ru_process_start(const ru_process_options *opt, ru_process **out, ru_err *err)
{
    ru_process *p = calloc(1, sizeof *p);
    char **env = env_make(opt);
    if (p == NULL || env == NULL) {
        free(p);
        free(env);
        return RU_FAIL(err, RU_E_MEM, "no memory to start %s", opt->argv[0]);
    }
    p->in = p->out = p->errors = -1;
    signal(SIGPIPE, SIG_IGN);
    ru_status st = launch(opt, env, p, err);
    free(env);
    if (st != RU_OK) {
        free(p);
        return st;
    }
    *out = p;
    return RU_OK;
}

ru_status ru_process_write(ru_process *p, const char *data, int64_t size_bytes, ru_err *err)
{
    int64_t done = 0;
    while (done < size_bytes) {
        ssize_t n = write(p->in, data + done, (size_t)(size_bytes - done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return RU_FAIL(err, RU_E_PEER, "the child process %ld no longer reads: %s",
                           (long)p->pid, strerror(errno));
        }
        done += n;
    }
    return RU_OK;
}

/* Make room behind `end`; moves the unread bytes to the front first. */
static bool make_room(ru_process *p)
{
    if (p->at > 0) {
        memmove(p->buffer, p->buffer + p->at, p->end - p->at);
        p->end -= p->at;
        p->at = 0;
    }
    if (p->end + 1 < p->cap) {
        return true;
    }
    size_t cap = p->cap == 0 ? 4096 : p->cap * 2;
    char *bigger = cap <= 2 * LINE_MAX_BYTES ? realloc(p->buffer, cap) : NULL;
    if (bigger == NULL) {
        return false;
    }
    p->buffer = bigger;
    p->cap = cap;
    return true;
}

/* Wait for bytes; true when there are some or the stream ended. */
static bool wait_readable(int fd, int64_t timeout_ns, int64_t deadline_ns)
{
    for (;;) {
        int64_t left = timeout_ns == 0 ? -1 : (deadline_ns - ru_clock_now().ns) / 1000000;
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        int ms = timeout_ns == 0 ? -1 : left < 0 ? 0 : left > 1000000 ? 1000000 : (int)left;
        int rc = poll(&pf, 1, ms);
        if (rc > 0) {
            return true;
        }
        if (rc == 0 && left <= 0) {
            return false;
        }
    }
}

ru_status ru_process_line(ru_process *p, int64_t timeout_ns, const char **line, ru_err *err)
{
    int64_t deadline_ns = ru_clock_now().ns + timeout_ns;
    for (;;) {
        char *nl = p->end > p->at ? memchr(p->buffer + p->at, '\n', p->end - p->at) : NULL;
        if (nl != NULL) {
            *nl = '\0';
            *line = p->buffer + p->at;
            p->at = (size_t)(nl - p->buffer) + 1;
            return RU_OK;
        }
        if (!make_room(p)) {
            return RU_FAIL(err, RU_E_LIMIT, "the child process %ld sent a line over %d bytes",
                           (long)p->pid, LINE_MAX_BYTES);
        }
        if (!wait_readable(p->out, timeout_ns, deadline_ns)) {
            return RU_FAIL(err, RU_E_AGAIN, "no answer from the child process %ld after %.1f s",
                           (long)p->pid, (double)timeout_ns * 1e-9);
        }
        ssize_t n = read(p->out, p->buffer + p->end, p->cap - p->end - 1);
        if (n == 0) {
            *line = NULL;
            return RU_OK;
        }
        p->end += n > 0 ? (size_t)n : 0;
    }
}

int ru_process_wait(ru_process *p)
{
    if (p->in >= 0) {
        close(p->in);
        p->in = -1;
    }
    if (!p->done) {
        int status = 0;
        while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
        }
        p->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        p->done = true;
    }
    return p->code;
}

void ru_process_kill(ru_process *p, int sig)
{
    if (!p->done) {
        (void)kill(p->pid, sig);
    }
}

int64_t ru_process_id(const ru_process *p)
{
    return p->pid;
}

void ru_process_bound_space(ru_process *p, int64_t size_bytes)
{
    const struct rlimit most = {(rlim_t)size_bytes, (rlim_t)size_bytes};
    if (!p->done) {
        (void)prlimit(p->pid, RLIMIT_AS, &most, NULL);
    }
}

void ru_process_close(ru_process *p)
{
    if (p == NULL) {
        return;
    }
    ru_process_kill(p, SIGKILL);
    (void)ru_process_wait(p);
    if (p->out >= 0) {
        close(p->out);
    }
    if (p->errors >= 0) {
        close(p->errors);
    }
    free(p->buffer);
    free(p);
}

void ru_process_leave(ru_process *p)
{
    if (p != NULL) {
        p->done = true;
        ru_process_close(p);
    }
}

bool ru_process_mark(int64_t pid, char into[RU_PROCESS_MARK_BYTES])
{
    char boot[40] = {0};
    int64_t start;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t m = fd >= 0 ? read(fd, boot, sizeof boot - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    boot[strcspn(boot, "\n")] = 0;
    return m > 0 && rui_process_field(pid, 22, &start) && /* in ticks after boot */
           snprintf(into, RU_PROCESS_MARK_BYTES, "%s/%lld", boot, (long long)start) > 0;
}

bool ru_process_signal(int64_t pid, const char *mark, int sig)
{
    char now[RU_PROCESS_MARK_BYTES];
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0); /* first: its number stays its own */
    bool is = fd >= 0 && ru_process_mark(pid, now) && strcmp(now, mark) == 0;
    bool sent = is && (sig == 0 || syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0);
    if (fd >= 0) {
        close(fd);
    }
    return sent;
}

int ru_process_fd(const ru_process *p, bool errors)
{
    return errors ? p->errors : p->out;
}

int64_t ru_process_read(ru_process *p, bool errors, void *into, int64_t cap)
{
    struct pollfd pf = {.fd = errors ? p->errors : p->out, .events = POLLIN};
    if (pf.fd < 0) {
        return -1;
    }
    if (poll(&pf, 1, 0) <= 0) {
        return 0;
    }
    ssize_t n = read(pf.fd, into, (size_t)cap);
    return n > 0 ? n : n < 0 && (errno == EINTR || errno == EAGAIN) ? 0 : -1;
}

const char *ru_process_beside(ru_arena *arena, const char *name, const char *folder)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash == NULL) {
        return NULL;
    }
    *slash = 0;
    const char *beside = ru_arena_printf(arena, "%s/%s", self, name);
    if (beside != NULL && access(beside, X_OK) != 0) {
        beside = ru_arena_printf(arena, "%s/../%s/%s", self, folder, name);
    }
    return beside != NULL && access(beside, X_OK) == 0 ? beside : NULL;
}

ru_status ru_process_become(const char *path, const char *const *argv, ru_err *err)
{
    (void)execv(path, (char *const *)(uintptr_t)argv);
    return RU_FAIL(err, RU_E_MISSING, "cannot start %s: %s", path, strerror(errno));
}

void ru_process_thread_background(int32_t nice)
{
    int own = getpriority(PRIO_PROCESS, 0); /* under Linux of the calling thread alone */
    (void)setpriority(PRIO_PROCESS, 0, own + nice < 19 ? own + nice : 19);
}

void ru_process_idle(bool idle)
{
    const struct sched_param none = {0};
    DIR *d = opendir("/proc/self/task");
    const struct dirent *e;
    while (d != NULL && (e = readdir(d)) != NULL) {
        int64_t thread = 0;
        if (ru_str_i64(ru_str_c(e->d_name), &thread)) {
            (void)sched_setscheduler((pid_t)thread, idle ? SCHED_IDLE : SCHED_OTHER, &none);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
}
