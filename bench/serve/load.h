/* A client that asks a server over HTTP: in an open loop, at times that do not depend on the
 * answers, with latencies from the scheduled time; or in a closed one, as fast as answers come.
 *
 * A closed loop hides what a slow server does to those who would have come meanwhile.
 *
 * Thread: one. */
#ifndef RU_BENCH_SERVE_LOAD_H
#define RU_BENCH_SERVE_LOAD_H

#include "base/hist.h"
#include "cost/math/markov.h"

enum { RUI_LOAD_KINDS = 16, RUI_LOAD_WINDOWS = 64 };

/* Requests of one kind among others. */
typedef struct rui_load_kind {
    const void *request; /* [size_bytes] */
    int64_t size_bytes;
    double weight; /* part of the requests, of the sum of all weights */
} rui_load_kind;

/* A request of a trace: its kind, and when it comes. */
typedef struct rui_load_at {
    double at_s; /* never falling */
    uint32_t kind;
} rui_load_at;

typedef struct rui_load_count {
    uint64_t n, late; /* asked; answered with 200 later than promised, or not with 200 */
} rui_load_count;

typedef struct rui_load {
    const char *address; /* host:port, IPv4 */
    const void *request; /* [size_bytes] head and body */
    int64_t size_bytes;
    /* One of `urgent_of` requests is this one, to be counted apart; NULL: none. */
    const void *urgent;
    int64_t urgent_bytes;
    uint32_t urgent_of;
    const rui_load_kind *kinds; /* [n_kinds] in place of `request`; NULL: none */
    uint32_t n_kinds;           /* at most RUI_LOAD_KINDS */
    const ru_markov *arrivals;  /* in place of Poisson's, while per_s is not 0; NULL: none */
    const rui_load_at *given;   /* [n_given] in place of drawn ones, with per_s not 0; NULL: none */
    uint32_t n_given;
    double given_from_s; /* those before it are left out, and it is the begin */
    double window_s;     /* late ones are counted by windows too; 0: not */
    uint32_t silent;     /* connections that open before the others and ask nothing */
    bool greets;         /* each of the others is answered once before the load begins */
    uint32_t conns;      /* open loop: requests beyond that wait at the client, and count */
    double per_s;        /* Poisson arrivals; 0: closed loop */
    double seconds;
    uint64_t seed;
    int64_t patience_s; /* for answers after the last request; 0: 5 */
    int64_t promise_ns; /* answers later than that are counted; 0: none is */
} rui_load;

typedef struct rui_load_out {
    uint64_t sent;              /* with those that nobody answered */
    ru_hist latency;            /* of answers with 200 */
    uint64_t ok, late;          /* 200; of these later than promised */
    uint64_t full, over, other; /* 429 or 503; 504; anything else */
    uint64_t urgent_ok, urgent_late, urgent_other;
    rui_load_count of_kind[RUI_LOAD_KINDS], of_window[RUI_LOAD_WINDOWS];
    double seconds;
} rui_load_out;

/* A connection to host:port. Errors: RU_E_PEER. */
RU_MUST_USE ru_status rui_load_dial(const char *address, int *fd, ru_err *err);
/* Errors: RU_E_PEER (nobody answers, or not HTTP), RU_E_MEM. */
RU_MUST_USE ru_status rui_load_run(const rui_load *l, rui_load_out *out, ru_err *err);

#endif
