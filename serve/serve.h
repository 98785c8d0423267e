/* The server's buffers as a step machine: requests come, buffers fill, batches leave when they are
 * full or their time is up, instances serve them.
 *
 *   buffer:  EMPTY --first request at t--> OPEN until t + timeout (or a member's own time)
 *            OPEN --full | its time | drained--> batch --> EMPTY
 *   batch:   READY --an instance is free--> RUNNING --DONE--> answered
 *
 * Before an event happens, every buffer whose time is up by then leaves: a request that comes at
 * the very deadline opens the next batch, and a late timer changes nothing but the time of leaving.
 * Times are absolute. A class that several buffers take is sent by lot, as plan/serve/route.h
 * assumes. A new table lets open buffers leave by their own deadlines; those of the table before
 * that leave at once. Counts are of requests, never of batches.
 *
 * Thread: loop only. No clock; memory at init alone. */
#ifndef RU_SERVE_SERVE_H
#define RU_SERVE_SERVE_H

#include "base/arena.h"
#include "base/rng.h"
#include "env/event.h"

enum { RU_SERVE_BUFFERS_MAX = 32, RU_SERVE_CLASSES_MAX = 64 };
#define RU_SERVE_NONE UINT32_MAX

typedef enum ru_serve_reason { /* why a batch left its buffer */
                               RU_SERVE_FULL,
                               RU_SERVE_TIMEOUT,
                               RU_SERVE_DUE,   /* a member's own deadline is near */
                               RU_SERVE_DRAIN, /* two tables later, or the server stops */
                               RU_SERVE_REASONS
} ru_serve_reason;

typedef struct ru_serve_rule {
    uint32_t batch; /* requests; 1: no wait */
    int64_t timeout_ns;
    double memory_mb; /* of the instance that serves its batches; handed through */
} ru_serve_rule;

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
    RU_SERVE_STOP,    /* in: every open buffer leaves */
    RU_SERVE_TIMER,
    RU_SERVE_TAKEN,     /* out: ru_serve_request with its place */
    RU_SERVE_REFUSED,   /* out: ru_serve_request: requests_max are there, it may come again */
    RU_SERVE_CANCELLED, /* out: ru_serve_request: it was still in a buffer and is not served */
    RU_SERVE_START,     /* out: ru_serve_start */
    RU_SERVE_WORDS
} ru_serve_word;

typedef struct ru_serve_request {
    uint64_t id;       /* the caller's */
    uint32_t class_of; /* of its size; too large or unknown: the largest */
    uint32_t place;    /* in the machine */
    ru_time due;       /* ns <= 0: none */
} ru_serve_request;

/* A batch that goes to an instance. */
typedef struct ru_serve_start {
    uint32_t batch;   /* number for DONE */
    uint32_t n;       /* requests */
    uint32_t first;   /* place of the first; ru_serve_next goes on */
    uint32_t largest; /* class of the largest member */
    uint32_t buffer;  /* of its table */
    double memory_mb;
    ru_serve_reason why;
} ru_serve_start;

typedef struct ru_serve_stats {
    uint64_t requests, refused, cancelled, batches;
    uint64_t why[RU_SERVE_REASONS]; /* batches by reason */
    uint64_t size_sum;              /* requests of all batches that left */
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
/* Requests of a batch until DONE: id of a place, and the place after it (RU_SERVE_NONE: the last).
 */
uint64_t ru_serve_id(const ru_serve *s, uint32_t place);
uint32_t ru_serve_next(const ru_serve *s, uint32_t place);
ru_serve_stats ru_serve_stats_get(const ru_serve *s);

#endif
