/* Child processes with pipes: benchmarks' peers, later workers.
 *
 * A child never outlives its parent by accident: it gets SIGKILL when the parent's thread that
 * started it dies (PR_SET_PDEATHSIG). One that is meant to outlive it has a session of its own and
 * writes into a file; another process finds it again by number and mark.
 *
 * Thread: one per object. */
#ifndef RU_ENV_PROCESS_H
#define RU_ENV_PROCESS_H

#include "base/arena.h"

typedef struct ru_process ru_process;

typedef struct ru_process_options {
    const char *const *argv;  /* NULL-terminated; argv[0] is looked up in PATH */
    const char *const *keep;  /* names: no others stay in the environment; NULL: all */
    const char *const *unset; /* NULL-terminated names removed from the environment; may be NULL */
    const char *const *set;   /* NULL-terminated NAME=VALUE added; may be NULL */
    bool pipe_in, pipe_out;   /* else inherited */
    bool pipe_err;
    bool quiet;          /* standard error goes nowhere */
    bool own_group;      /* a group of its own: signals of the terminal do not reach it */
    const char *outlive; /* file to which output and errors are appended: the child goes on when
                            this process ends; NULL: it does not. Of pipes it takes pipe_in only */
    int64_t cores_mask;  /* bit k: may run on core k; 0: as the parent */
    const struct ru_account
        *account;                 /* env/process/account.h: it runs under it, from before it opens
                                     `outlive` on, and never gets more rights; NULL: ours */
    const struct ru_group *group; /* env/process/group.h: it starts in there; NULL: as the parent */
} ru_process_options;

RU_MUST_USE ru_status ru_process_start(const ru_process_options *opt, ru_process **out,
                                       ru_err *err);

/* Write all bytes to the child's standard input. Errors: RU_E_PEER when it has ended. */
RU_MUST_USE ru_status ru_process_write(ru_process *p, const char *data, int64_t size_bytes,
                                       ru_err *err);

/* Next line of its output without the newline, view until the next call; NULL at the end. Waits at
 * most `timeout_ns` (0: no timeout). Errors: RU_E_AGAIN on timeout, RU_E_LIMIT for a line over 1
 * MiB. */
RU_MUST_USE ru_status ru_process_line(ru_process *p, int64_t timeout_ns, const char **line,
                                      ru_err *err);

/* Its piped output, or errors, to poll; -1: not piped. */
int ru_process_fd(const ru_process *p, bool errors);
/* The bytes available without waiting, up to cap bytes; 0: nothing now; -1: the stream ended. Not
 * together with ru_process_line. */
int64_t ru_process_read(ru_process *p, bool errors, void *into, int64_t cap);

/* Wait for its end: exit code, or 128 + signal. Closes its input first. */
int ru_process_wait(ru_process *p);
void ru_process_kill(ru_process *p, int sig);
int64_t ru_process_id(const ru_process *p);
/* Bound its address space from now on, where no control group bounds its memory; best effort. */
void ru_process_bound_space(ru_process *p, int64_t size_bytes);
/* Kills it when it still runs, waits, frees. NULL is fine. */
void ru_process_close(ru_process *p);
/* Frees and leaves the process alone: one with `outlive`. NULL is fine. */
void ru_process_leave(ru_process *p);

/* What tells a process from every other one of this machine that has or will have its number: boot
 * and time of start. false: no such process runs. */
enum { RU_PROCESS_MARK_BYTES = 64 };
bool ru_process_mark(int64_t pid, char into[RU_PROCESS_MARK_BYTES]);
/* Send `sig` to the process with this number and mark; 0: only look. false: it has ended. */
bool ru_process_signal(int64_t pid, const char *mark, int sig);

/* Path of the program `name` of the same build: in the folder of this program, as installed, or in
 * ../FOLDER, as in the build tree; NULL: in neither. */
const char *ru_process_beside(ru_arena *arena, const char *name, const char *folder);
/* Go on as the program at `path`, in this process and with its environment and streams. Returns
 * only when that fails. Errors: RU_E_MISSING. */
RU_MUST_USE ru_status ru_process_become(const char *path, const char *const *argv, ru_err *err);

/* Calling thread: threads as it was go first, more so with a larger number (1 .. 19, `nice`).
 * Best effort. */
void ru_process_thread_background(int32_t nice);
/* All threads of this process, and those that they start: they run only while nobody else wants
 * their core, and stop at once when somebody does; or as others again, which users may need a right
 * for (RLIMIT_NICE). Best effort. */
void ru_process_idle(bool idle);

#endif
