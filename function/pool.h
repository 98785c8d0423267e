/* Function instances as a step machine: calls come, instances of the memory that they want start,
 * serve one call at a time, stay warm for a while, and end.
 *
 *   instance: NONE --SPAWN--> STARTS --UP--> IDLE --INVOKE--> BUSY --REPLY--> IDLE --keep--> END
 *             STARTS, BUSY --its time is up--> END (killed)      any --DOWN--> NONE (died)
 *   call:     waits for an instance --INVOKE--> runs --REPLY--> ANSWER
 *             no instance may start and waiting_max wait: ANSWER throttled, at once
 *             throttled by the endpoint, or its instance died: again later, tries_max times in all
 *
 * An idle instance of another memory ends when a call needs its place. Behind an address (`remote`)
 * the platform starts instances by itself: places are calls at one time, and are warm at once.
 *
 * The meter counts as function platforms bill: memory x time of each call, in whole billing steps,
 * whatever its answer, and so much for each call. Cold starts are counted beside it.
 *
 * Thread: loop only. No clock; memory at init alone. */
#ifndef RU_FUNCTION_POOL_H
#define RU_FUNCTION_POOL_H

#include "base/arena.h"
#include "env/event.h"

enum { RU_FUNCTIONS_MAX = 4096 };
#define RU_FUNCTION_NONE UINT32_MAX

typedef struct ru_functions_options {
    uint32_t instances_max; /* alive at one time; 1 .. RU_FUNCTIONS_MAX */
    uint32_t waiting_max;   /* calls that wait for one; more are throttled */
    uint32_t tries_max;     /* of one call; 0: 1, nothing is called twice */
    int64_t limit_ns;       /* of one call; 0: none */
    int64_t start_max_ns;   /* from SPAWN to UP; 0: none */
    int64_t keep_ns;        /* an idle instance ends after it; 0: never */
    int64_t again_ns;       /* before the second try, then twice as long each; 0: 50 ms */
    int64_t billing_ns;     /* step of the bill; 0: 1 ms */
    bool remote;
    uint32_t what_first; /* of its words */
} ru_functions_options;

typedef enum ru_function_result {
    RU_FUNCTION_OK,
    RU_FUNCTION_ERROR,     /* the function says that it failed (X-Amz-Function-Error) */
    RU_FUNCTION_THROTTLED, /* 429 */
    RU_FUNCTION_FAULT,     /* the endpoint or the connection failed: 5xx, no answer */
    RU_FUNCTION_LATE,      /* its time is up; the instance was killed */
    RU_FUNCTION_DIED,      /* its instance ended meanwhile */
    RU_FUNCTION_MEMORY,    /* its instance ended for want of memory */
    RU_FUNCTION_START,     /* no instance starts */
    RU_FUNCTION_RESULTS
} ru_function_result;

/* Words (env/event.h), and what comes with them. */
typedef enum ru_function_word {
    RU_FUNCTION_CALL,  /* in: ru_function_call */
    RU_FUNCTION_UP,    /* in, value: an instance that answers now */
    RU_FUNCTION_REPLY, /* in: ru_function_reply */
    RU_FUNCTION_DOWN,  /* in: ru_function_reply: the instance has ended; MEMORY, or anything */
    RU_FUNCTION_TIMER,
    RU_FUNCTION_SPAWN,  /* out: ru_function_order */
    RU_FUNCTION_INVOKE, /* out: ru_function_order */
    RU_FUNCTION_END,    /* out: ru_function_order: end it; DOWN follows */
    RU_FUNCTION_ANSWER, /* out: ru_function_answer */
    RU_FUNCTION_WORDS
} ru_function_word;

typedef struct ru_function_call {
    uint64_t id; /* the caller's */
    uint32_t memory_mb;
} ru_function_call;

typedef struct ru_function_reply {
    uint32_t instance;
    uint32_t try; /* of its INVOKE; a reply to an older one is forgotten */
    ru_function_result result;
} ru_function_reply;

typedef struct ru_function_order {
    uint32_t instance, memory_mb;
    uint32_t try;    /* INVOKE: number that its reply carries */
    bool kill;       /* END: at once */
    uint64_t id;     /* INVOKE */
    int64_t left_ns; /* INVOKE: of its time; 0: no limit */
} ru_function_order;

typedef struct ru_function_answer {
    uint64_t id;
    ru_function_result result;
    uint32_t instance; /* that gave it; RU_FUNCTION_NONE: none did */
    uint32_t tries;
    bool cold;         /* it waited for an instance to start */
    int64_t wait_ns;   /* for an instance, and between tries */
    int64_t run_ns;    /* of the last try */
    int64_t billed_ns; /* of all tries */
} ru_function_answer;

typedef struct ru_function_meter {
    uint64_t calls; /* tries that ran: what is billed */
    uint64_t of[RU_FUNCTION_RESULTS];
    uint64_t again;             /* tries after the first */
    uint64_t starts;            /* instances that answered */
    int64_t start_ns;           /* of all of these */
    double billed_s, gb_s;      /* s; GB (1024 MB) x s */
    uint32_t alive, idle, busy; /* instances now */
    uint32_t waiting;           /* calls */
} ru_function_meter;

typedef struct ru_functions ru_functions;

/* Owner: everything in `arena`. Errors: RU_E_ARG for bounds that make no sense, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_functions_init(const ru_functions_options *opt, ru_arena *arena,
                                        ru_functions **out, ru_err *err);
void ru_functions_step(ru_functions *f, const ru_event *ev, ru_effects *fx);
ru_function_meter ru_functions_meter(const ru_functions *f);
const char *ru_function_result_text(ru_function_result r); /* "its time is up", ... */

#endif
