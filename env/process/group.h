/* A control group that bounds processes: processor time, memory, number of processes, disk rates.
 *
 * It lies below the group that this process is in, so that the limits around it hold too. Version 1
 * and version 2 of the kernel's groups; with version 2 the processes of a group whose children are
 * bounded move to a group `rubato-rest` beside them, which the kernel requires.
 *
 * A limit needs its controller and the permission to make groups (root, or a subtree that was
 * delegated). What is missing is told by name; see `lacks`.
 *
 * Thread: one per object. */
#ifndef RU_ENV_GROUP_H
#define RU_ENV_GROUP_H

#include "base/status.h"

typedef struct ru_group ru_group;

enum { /* bits: what a group can bound */
       RU_GROUP_CPU = 1,
       RU_GROUP_MEMORY = 2,
       RU_GROUP_PIDS = 4,
       RU_GROUP_IO = 8,
};

/* Limits of one block device; 0: none. */
typedef struct ru_group_io {
    uint32_t major, minor;
    int64_t read_bytes_s, write_bytes_s;
    int64_t read_ops_s, write_ops_s;
} ru_group_io;

typedef struct ru_group_limits {
    int64_t cpu_quota_ns; /* processor time in each period; 0: no limit */
    int64_t
        cpu_period_ns;   /* 0: 10 ms. Longer where the quota would be less than the kernel's 1 ms */
    uint32_t cpu_weight; /* share where groups compete, 1 to 10000; 0: 100, the kernel's */
    bool cpu_idle;       /* only what nobody else wants */
    int64_t memory_bytes;  /* swapped memory included; 0: no limit */
    int64_t pids;          /* processes and threads; 0: no limit */
    const ru_group_io *io; /* [n_io] */
    uint32_t n_io;
    bool alone;        /* this handle has the group, and no other one that wants it alone */
    uint32_t measured; /* RU_GROUP_*: controllers that are wanted without a limit as well, for their
                          figures or a later ru_group_set */
} ru_group_limits;

/* Where groups are; NULL as a whole or in part: those of this process. */
typedef struct ru_group_place {
    const char *root; /* where groups are mounted, /sys/fs/cgroup */
    const char *own;  /* text like that of /proc/self/cgroup: the group to be below */
} ru_group_place;

/* Make the group `name` or take the one that exists, and set its limits. `name` has parts of
 * letters, digits, '-', '_' and '.', joined by '/'; the groups between are made and bound nothing.
 * lacks NULL: all limits or an error. Else RU_OK also without some or all of them: *lacks has the
 * RU_GROUP_* bits of what is not bounded, and `err` the sentence for the first of these.
 * Owner:  the group stays when the handle is closed.
 * Errors: RU_E_ARG, RU_E_PERM no permission, RU_E_MISSING no such controller, RU_E_LIMIT the kernel
 *         refuses a value. With `alone` RU_E_AGAIN: another one has it; nothing changed. */
RU_MUST_USE ru_status ru_group_make(const char *name, const ru_group_limits *limits,
                                    const ru_group_place *place, uint32_t *lacks, ru_group **out,
                                    ru_err *err);
/* Other limits from now on, for the controllers that the group has: those it got by ru_group_make.
 * Errors: RU_E_MISSING for a limit without its controller, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_group_set(ru_group *g, const ru_group_limits *limits, ru_err *err);
/* Move a process (its threads too; not its children). ru_process_options.group starts one there.
 * Errors: RU_E_MISSING it has ended, RU_E_PERM, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_group_enter(ru_group *g, int64_t pid, ru_err *err);
/* The process and all that came from it, as far as it still has its parents. Errors: as above, for
 * the process itself; RU_E_LIMIT also for 1,024 processes. */
RU_MUST_USE ru_status ru_group_enter_all(ru_group *g, int64_t pid, ru_err *err);

/* What the kernel counted for the group and those below it; -1: not known. */
typedef struct ru_group_figures {
    int64_t cpu_ns;
    int64_t throttled_ns, throttled; /* time stopped by the quota; periods in which it ran out */
    int64_t memory_bytes, memory_peak_bytes;
    int64_t oom_kills; /* processes ended by the kernel at the limit of memory */
    int64_t pids;
    int64_t read_bytes, write_bytes, read_ops, write_ops; /* ru_group_read_io */
} ru_group_figures;
void ru_group_read(const ru_group *g, ru_group_figures *out);
/* The last four, of one block device; 0: it was not used. */
void ru_group_read_io(const ru_group *g, uint32_t major, uint32_t minor, ru_group_figures *out);

/* SIGKILL to all its processes; returns how many there were. Some may take a moment to end. */
uint32_t ru_group_kill(const ru_group *g);
/* Remove the group, and those between that hold nothing else. Errors: RU_E_AGAIN processes are in
 * it still. */
RU_MUST_USE ru_status ru_group_remove(ru_group *g, ru_err *err);
void ru_group_close(ru_group *g); /* NULL is fine */
/* What an owner that was killed left: groups `name` with a number behind it that nobody has alone.
 * Their processes get SIGKILL, and they go. Returns how many processes there were. */
uint32_t ru_group_sweep(const char *name, const ru_group_place *place);

/* "cpu", "memory and pids": the names of these bits, for a sentence. */
const char *ru_group_names(uint32_t bits);

/* In a child between fork and exec: enter. false: errno. */
bool rui_group_enter_self(const ru_group *g);

#endif
