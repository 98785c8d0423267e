/* The server's buffers as a step machine: requests come, buffers fill, batches leave when they are
 * full, their time is up or an instance is idle, instances serve them.
 *
 *   buffer:  EMPTY --first request at t--> OPEN until t + timeout (or a member's own time)
 *            OPEN --full | its time | drained--> batch --> EMPTY
 *            eager: requests wait, by priority, then due, until an instance is free --> batch
 *   batch:   READY --an instance is free--> RUNNING --DONE--> answered
 *   request: due while it waits, wherever --> LATE; it is never computed
 *
 * Before an event happens, every buffer whose time is up by then leaves: a request that comes at
 * the very deadline opens the next batch, and a late timer changes nothing but the time of leaving.
 * Times are absolute. A class that several buffers take is sent by lot, as plan/serve/route.h
 * assumes. A new table lets open buffers leave by their own deadlines; those of the table before
 * that leave at once. Batches are counted in rows; a request of more rows than a batch leaves
 * alone.
 *
 * With a promise and measured service times (PACE), a request that would be answered later than
 * promised is refused at once, with the time after which it would not be. Where the promise has
 * refused some for long, as many may wait as the instances take next, and half as many again.
 *
 * Thread: loop only. No clock; memory at init alone. */
#ifndef RU_SERVE_SERVE_H
#define RU_SERVE_SERVE_H

#include "base/arena.h"
#include "base/rng.h"
#include "env/event.h"

enum {
    RU_SERVE_BUFFERS_MAX = 32,
    RU_SERVE_CLASSES_MAX = 64,
    RU_SERVE_PRIORITIES = 8, /* 1: the highest, 7: the lowest; 0 becomes RU_SERVE_PRIORITY */
    RU_SERVE_PRIORITY = 4,
    RU_SERVE_SIZES = 16, /* batches of 1, 2, 4, ... rows */
};
#define RU_SERVE_NONE UINT32_MAX

typedef enum ru_serve_reason { /* why a batch left its buffer */
                               RU_SERVE_FULL,
                               RU_SERVE_TIMEOUT,
                               RU_SERVE_DUE,   /* a member's own deadline is near */
                               RU_SERVE_DRAIN, /* two tables later, or the server stops */
                               RU_SERVE_IDLE,  /* eager: an instance is free, waiting gains nothing
                                                */
                               RU_SERVE_REASONS
} ru_serve_reason;

typedef struct ru_serve_rule {
    uint32_t batch; /* rows; 1: no wait */
    int64_t timeout_ns;
    double memory_mb;   /* of the instance that serves its batches; handed through */
    uint32_t instances; /* that serve this buffer at one time; 0: all */
    bool eager;         /* leave as soon as an instance is free; there is no timeout */
    int64_t promise_ns; /* from request to answer; 0: none, nothing is refused for it */
} ru_serve_rule;

/* What batches of a buffer take. */
typedef struct ru_serve_pace {
    uint32_t buffer;                    /* of the table in force */
    uint32_t batch;                     /* rows, in place of the rule's */
    int64_t service_ns[RU_SERVE_SIZES]; /* of 1, 2, 4, ... rows; 0: not known */
    int64_t turn_ns;                    /* that each request takes of the loop beside that */
    int64_t margin_ns;                  /* that answers lately came later than predicted */
} ru_serve_pace;

/* What plan/serve/batch.h (one buffer) or plan/serve/route.h decided. */
typedef struct ru_serve_table {
    uint32_t n, n_classes;     /* at most RU_SERVE_BUFFERS_MAX, RU_SERVE_CLASSES_MAX */
    const ru_serve_rule *rule; /* [n] */
    const double *share;       /* [n, n_classes] of the requests, by class */
} ru_serve_table;

typedef struct ru_serve_options {
    uint32_t requests_max;  /* in buffers, ready and running together */
    uint32_t instances_max; /* batches that run at one time */
    int64_t reserve_ns;     /* a batch leaves so long before a member is due */
    uint64_t seed;          /* of the lots */
    uint32_t what_first;    /* of its words */
} ru_serve_options;

/* Words (env/event.h), and what comes with them. */
typedef enum ru_serve_word {
    RU_SERVE_REQUEST, /* in: ru_serve_request */
    RU_SERVE_CANCEL,  /* in: ru_serve_request with its place: its client has left */
    RU_SERVE_DONE,    /* in, value: a batch, whose instance is free */
    RU_SERVE_TABLE,   /* in: ru_serve_table that has passed ru_serve_table_check */
    RU_SERVE_PACE,    /* in: ru_serve_pace */
    RU_SERVE_STOP,    /* in: every open buffer leaves */
    RU_SERVE_TIMER,
    RU_SERVE_TAKEN,     /* out: ru_serve_request with its place */
    RU_SERVE_REFUSED,   /* out: ru_serve_request: requests_max are there, or it would be too late;
                           it may come again after wait_ns */
    RU_SERVE_LATE,      /* out: ru_serve_request: it was due while it waited */
    RU_SERVE_CANCELLED, /* out: ru_serve_request: it was still in a buffer and is not served */
    RU_SERVE_START,     /* out: ru_serve_start */
    RU_SERVE_WORDS
} ru_serve_word;

typedef struct ru_serve_request {
    uint64_t id;       /* the caller's */
    uint32_t class_of; /* of its size; too large or unknown: the largest */
    uint32_t place;    /* in the machine */
    ru_time due;       /* ns <= 0: none */
    uint32_t rows;     /* 0: 1 */
    uint32_t priority; /* below RU_SERVE_PRIORITIES */
    ru_time since;     /* it came then; ns <= 0: now */
    int64_t wait_ns;   /* out, refused: until one like it would be taken; taken: the predicted time
                          from since to its answer; 0: not known */
    bool more;         /* others that came with it follow: no batch starts before the last */
} ru_serve_request;

/* A batch that goes to an instance. */
typedef struct ru_serve_start {
    uint32_t batch;   /* number for DONE */
    uint32_t n, rows; /* requests, and their rows */
    uint32_t first;   /* place of the first; ru_serve_next goes on */
    uint32_t largest; /* class of the largest member */
    uint32_t buffer;  /* of its table */
    double memory_mb;
    ru_serve_reason why;
    ru_time left; /* when it left its buffer */
} ru_serve_start;

typedef struct ru_serve_stats {
    uint64_t requests, refused, cancelled, late, batches;
    uint64_t why[RU_SERVE_REASONS]; /* batches by reason */
    uint64_t size_sum, rows_sum;    /* requests, rows of all batches that left */
    uint32_t open, ready, running;  /* requests in buffers; batches */
} ru_serve_stats;

typedef struct ru_serve ru_serve;

/* Owner: everything in `arena`. Errors: RU_E_ARG for a table or bounds that make no sense,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_serve_init(const ru_serve_options *opt, const ru_serve_table *table,
                                    ru_time now, ru_arena *arena, ru_serve **out, ru_err *err);
/* Errors: RU_E_ARG for a table that makes no sense. */
RU_MUST_USE ru_status ru_serve_table_check(const ru_serve_table *table, ru_err *err);
void ru_serve_step(ru_serve *s, const ru_event *ev, ru_effects *fx);
/* Would a request like this one, of `rows` with those that are not asked for yet, be refused now?
 * Then it is refused, and counted; else nothing has happened. One buffer, else false. */
bool ru_serve_refuse(ru_serve *s, const ru_serve_request *like, ru_time now, int64_t *wait_ns);
/* Requests of a batch until DONE: id of a place, and the place after it (RU_SERVE_NONE: the last).
 */
uint64_t ru_serve_id(const ru_serve *s, uint32_t place);
uint32_t ru_serve_next(const ru_serve *s, uint32_t place);
ru_serve_stats ru_serve_stats_get(const ru_serve *s);

#endif
