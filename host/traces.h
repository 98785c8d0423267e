/* Windows of the traces of all workers, flight recordings, and traces of other hosts
 * (traces.c): of a job with a model, whose steps are training steps, or an app, whose steps
 * are clocks.
 *
 * Thread: loop only. */
#ifndef RU_HOST_TRACES_H
#define RU_HOST_TRACES_H

#include "comm/chan/chan.h"
#include "comm/member/member.h"
#include "env/loop/loop.h"
#include "trace/record/recorder.h"

enum {
    RUI_BEGUN_MAX = 64, /* steps of which is known when they began */
    RUI_TRACES_MAX = 4096,
};

/* Of all traces, what belongs to steps first .. end - 1; or the last back_ns before `end` began. */
typedef struct rui_window {
    uint64_t id;
    int64_t first, end, back_ns, from_ns; /* from: when `first` began here; 0: not yet */
    bool waits, saving, ships;            /* for `end`; for the writer; to the leader's host */
    uint32_t saves, failed;               /* of the recorder before it */
    int64_t ship_at;
} rui_window;

typedef struct rui_step_begun {
    int64_t step, ns;
} rui_step_begun;

/* Where sending the trace to another host stands. */
typedef struct rui_ship {
    ru_node_id to;
    uint32_t segment;
    int64_t at;
    bool have; /* it is there: a common disk */
    char name[64];
} rui_ship;

typedef struct ru_tracing {
    /* set by who owns it; recorder NULL: nothing is recorded */
    ru_recorder *recorder;
    ru_loop *loop;
    ru_chan *chan;
    ru_member *member;
    ru_node_id self;
    const char *out;  /* folder of the run */
    uint32_t rank;    /* of the trace */
    const bool *over; /* the job is */
    rui_window window;
    rui_step_begun begun[RUI_BEGUN_MAX];
    int64_t step; /* begun last */
    uint32_t told_epoch;
    bool looks; /* the timer is set */
    rui_ship ship;
    bool said_end;
    /* the leader's */
    ru_node_id asker; /* v 0: nobody waits */
    uint32_t saved, ended, flights;
    ru_time saved_at, flight_at;
    double mean_ns, var_ns2; /* of steps */
    int64_t timed;
    bool lost;                      /* a part of another host's trace; said once */
    uint64_t files[RUI_TRACES_MAX]; /* hashes of names begun from parts; 0: free */
} ru_tracing;

void ru_tracing_step(ru_tracing *t, int64_t step, ru_time now);    /* it begins here */
void ru_tracing_updated(ru_tracing *t, int64_t step, ru_time now); /* its verdict is there */
void ru_tracing_lost(ru_tracing *t, ru_time now);                  /* the leader: of a member */
void ru_tracing_hear(ru_tracing *t, ru_node_id from, uint32_t what, const void *data,
                     int64_t size_bytes, ru_time now);
void ru_tracing_end(ru_tracing *t, ru_time now); /* the job is over */
bool ru_tracing_waits(ru_tracing *t);            /* traces are still on their way */

#endif
