/* The bucket of a disk or a network card that a service uses: what it counts, what is left, and the
 * rate that an empty one leaves. Where the speed of the service is chosen for it (burst/pace.h),
 * the bucket is kept there, and this only counts and bounds.
 *
 *   disk      bytes or operations of the service's control group on one device, both ways; bounded
 *             by the group's controller, each way
 *   network   bytes that one interface sends, of all processes; bounded by a token bucket of the
 *             kernel (tc, tbf) at its root, in place of the kernel's own queue only
 *
 * Thread: one per object. ru_meter_step has no clock and no system. */
#ifndef RU_BURST_METER_H
#define RU_BURST_METER_H

#include "base/arena.h"
#include "cost/credit.h"
#include "env/clock.h"
#include "env/process/group.h"

typedef enum ru_meter_kind {
    RU_METER_NONE,
    RU_METER_DISK_BYTES,
    RU_METER_DISK_OPS,
    RU_METER_NETWORK
} ru_meter_kind;

typedef struct ru_meter_options {
    ru_meter_kind kind;
    const char *name;      /* disk, network */
    const char *service;   /* whose it is */
    const char *at;        /* disk: a path on its file system; network: the interface */
    ru_credit_rules rules; /* tokens are bytes or operations, in seconds of the bucket's clock */
    double level;          /* at the first start */
    double clock;          /* seconds of that clock in one of ours */
    double reserve_s;      /* alarm below it, on that clock */
} ru_meter_options;

typedef struct ru_meter {
    const ru_meter_options *opt;
    ru_credit bucket;
    ru_time last, begun; /* tick; window */
    int64_t count;       /* of the kernel's counter */
    bool known;          /* `last` and `count` are */
    bool limited, alarmed;
    double rate;     /* that is in force, tokens per second; 0: none */
    double used;     /* tokens in the window */
    ru_group_io io;  /* disk: the device and its limits now */
    double use;      /* of the window that ended, tokens per second */
    double empty_s;  /* at that use, on the bucket's clock; INFINITY: never */
    char alarm[256]; /* of the window that ended; "": none. Once, when tokens begin to run out */
} ru_meter;

/* Errors: RU_E_MISSING no such path or interface, RU_E_CONFIG, and for a network RU_E_MISSING
 * without tc or its token bucket, RU_E_AGAIN for an interface that somebody shapes already. */
RU_MUST_USE ru_status ru_meter_open(ru_meter *m, const ru_meter_options *o, ru_arena *arena,
                                    ru_err *err);
/* The counter now; -1: it is not known. */
int64_t ru_meter_count(const ru_meter *m, const ru_group *group);
/* `count` of the counter at `now`; true: m->rate is another one. */
bool ru_meter_step(ru_meter *m, int64_t count, ru_time now);
/* In place of ru_meter_step where another one keeps the bucket: tokens since the last count, and
 * the rate from now on. */
double ru_meter_used(ru_meter *m, int64_t count);
void ru_meter_let(ru_meter *m, double rate);
/* A window ends: use, empty_s and alarm. */
void ru_meter_window(ru_meter *m, ru_time now);
/* Network: let m->rate be in force. Disk: m->io is, as a limit for ru_group_set. */
RU_MUST_USE ru_status ru_meter_set(ru_meter *m, ru_err *err);
/* Network: no limit any more. Without the limit of ours nothing is done. */
void ru_meter_clear(const ru_meter_options *o);

#endif
