/* Who of several workers gets how much of shared storage, and whether somebody is treated unfairly.
 *
 * Storage delivers to each worker in proportion to what it keeps outstanding, so that is what is
 * set. x = delivered / needed; Jain's index of all x below 0.95 in three windows in a row, while
 * somebody waits for data, mostly because of that, and the storage delivers about all it can: then
 * delivery is unfair. Otherwise the slow worker has another reason and nothing changes.
 *
 * Source: jain-1984 (index); hashemi-2020 (aim); the rule of repair is ours.
 * Cost: O(n). Thread: any, pure. */
#ifndef RU_PLAN_READ_SHARE_H
#define RU_PLAN_READ_SHARE_H

#include "base/arena.h"

typedef enum ru_read_share_method {
    RU_READ_SHARE_BALANCE, /* ours */
    RU_READ_SHARE_NONE,
    RU_READ_SHARE_EQUAL, /* the same for everybody, whatever is needed */
} ru_read_share_method;

enum { RU_READ_WORKERS_MAX = 1 << 16, RU_READ_UNFAIR_WINDOWS = 3 };

typedef struct ru_read_worker {
    double need_bytes_per_s;  /* > 0 */
    double bytes_per_s;       /* delivered while there was room, > 0 */
    double outstanding_bytes; /* that it may have, > 0 */
    double stall_s;           /* of the window: waited for data */
    double late_s;            /* of the window: behind the first worker at barriers */
} ru_read_worker;

typedef struct ru_read_share_in {
    ru_read_share_method method;
    const ru_read_worker *worker; /* [n] */
    uint32_t n;                   /* 1 .. RU_READ_WORKERS_MAX */
    double seconds;               /* of the window */
    double capacity_bytes_per_s;  /* most that the storage has delivered to all */
    uint32_t windows;             /* in a row that looked unfair before this one */
    bool repairs;                 /* a repair is under way */
} ru_read_share_in;

typedef struct ru_read_share_plan {
    double jain;                     /* of this window */
    uint32_t windows;                /* in a row that look unfair */
    bool flagged;                    /* unfair */
    bool repairs;                    /* outstanding bytes change, also in the next window */
    uint32_t worst;                  /* worker with the least x */
    const double *outstanding_bytes; /* [n] from now on; the same in sum */
    uint32_t n;
    double jain_next; /* predicted: shares as outstanding bytes */
    /* Of a window, how long all wait for the bytes of the worst worker: by its rates, predicted. */
    double wait_s, wait_next_s;
} ru_read_share_plan;

/* Owner: list in `out`. Errors: RU_E_ARG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_read_share(const ru_read_share_in *in, ru_arena *out,
                                         ru_read_share_plan *plan, ru_err *err);
/* May a repair for the worker `worst` change what is outstanding to `to` [n] in one window? */
bool ru_read_share_may(const ru_read_share_in *in, const double *to, uint32_t worst);
/* Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_read_share_check(const ru_read_share_in *in,
                                               const ru_read_share_plan *plan, ru_err *err);

#endif
