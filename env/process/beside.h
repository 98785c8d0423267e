/* Events of a service for a training on the cores of the same machine: a ring in shared memory,
 * with one writer, who never waits, and one reader.
 *
 *   service: open --put, put, ...--> [ring] --next, next, ...--> map: training
 *            figures <-------------- [the reader's own] <--------- tell
 *
 * The writer writes over what was not read: the reader hears LOST then, and looks at who is inside.
 * Each side sees whether the other one still lives (process, boot, start), so that a dead service
 * frees its training, and the ring of a dead training is given away.
 *
 * Thread: each side one. */
#ifndef RU_ENV_BESIDE_H
#define RU_ENV_BESIDE_H

#include "env/clock.h"

typedef struct ru_beside ru_beside;

enum { RU_BESIDE_SLOTS = 4096, RU_BESIDE_HANDLE_MAX = 96 };

typedef enum ru_beside_kind {
    RU_BESIDE_ARRIVED, /* work for the service's instance */
    RU_BESIDE_BEGUN,   /* it computes it */
    RU_BESIDE_ENDED,
    RU_BESIDE_LOST, /* events were written over; value: are they inside? (0, 1) */
} ru_beside_kind;

typedef struct ru_beside_event {
    int64_t at_ns; /* monotonic clock of the machine */
    int64_t value;
    uint32_t kind, pad;
} ru_beside_event;

/* What the service knows of itself when the reader comes. */
typedef struct ru_beside_facts {
    double service_s; /* of one piece of work alone */
    double rate;      /* arrivals a second; 0: none yet */
    double promise_s; /* 0: none */
    double quantile;  /* of the promise, or 0.99 */
    double units;     /* cores that it computes on */
} ru_beside_facts;

/* What the reader says of itself. */
typedef struct ru_beside_figures {
    int64_t ops, held;                  /* asked for; that had to wait */
    int64_t held_ns, decide_ns, run_ns; /* waited; of all decisions; that ops ran */
    int64_t decide_p99_ns;              /* of one decision */
    int64_t steps;
    double lag_s, budget_s;     /* of the service behind its shadow, now; allowed */
    double predicted, measured; /* slowdown of a piece of work that had ops beside it, mean */
    int64_t pairs;              /* of them */
    int64_t parts;              /* of a batch of the reader's */
} ru_beside_figures;

/* Service. Errors: those of ru_shm_create. */
RU_MUST_USE ru_status ru_beside_open(int64_t reader_pid, const ru_beside_facts *facts,
                                     ru_beside **out, ru_err *err);
const char *ru_beside_handle(const ru_beside *b);
void ru_beside_put(ru_beside *b, ru_beside_kind kind, int64_t value, ru_time now);
/* Training. Errors: those of ru_shm_map. */
RU_MUST_USE ru_status ru_beside_map(const char *handle, ru_beside **out, ru_err *err);
const ru_beside_facts *ru_beside_facts_get(const ru_beside *b);
/* The next event; false: there is none now. */
bool ru_beside_next(ru_beside *b, ru_beside_event *out);
/* Sleep until there is another event, at most so long. */
void ru_beside_wait(ru_beside *b, int64_t most_ns);
void ru_beside_tell(ru_beside *b, const ru_beside_figures *f);
/* Linux divides cores among sessions first (autogroup, as on desktops): is the service of another
 * session than the training? Then the training's session comes behind others with 19, and is like
 * them with 0. False also where no such division is; best effort. */
bool ru_beside_apart(const ru_beside *b);
void ru_beside_session_nice(int32_t nice);
/* Both. */
ru_beside_figures ru_beside_told(const ru_beside *b);
int64_t ru_beside_reader(const ru_beside *b); /* its pid */
bool ru_beside_other_lives(const ru_beside *b);
void ru_beside_close(ru_beside *b); /* NULL is fine */

#endif
