/* The threads that compute one version of a model: one for each instance, fed by rings.
 *
 *   loop --give--> ring --> thread: ru_served_run --> ring --take--> loop (woken)
 *
 * Thread: loop only; the threads are inside. */
#ifndef RU_SERVE_CREW_H
#define RU_SERVE_CREW_H

#include "env/loop/loop.h"
#include "serve/model.h"

typedef struct rui_crew rui_crew;

/* A batch on its way. The caller keeps it until it is taken back. */
typedef struct rui_job {
    struct rui_job *next; /* of those that functions have done */
    double memory_mb;     /* of the function that computes it */
    uint32_t batch, instance;
    uint32_t n;
    ru_served_part **parts; /* [n] */
    ru_time left, given;    /* left: its buffer; given: by the loop */
    ru_time begun, ended;   /* of the computation */
    uint32_t rows, why;     /* of all parts; ru_serve_reason */
    ru_err err;             /* of the last part that failed */
} rui_job;

/* `waker` of the loop is woken when jobs are done. Errors: RU_E_MEM, those of threads. */
RU_MUST_USE ru_status rui_crew_open(ru_served *served, uint32_t instances, ru_loop *loop,
                                    uint32_t waker, rui_crew **out, ru_err *err);
/* Waits for the jobs that run; NULL is fine. */
void rui_crew_close(rui_crew *c);
/* To an instance that has none. */
void rui_crew_give(rui_crew *c, rui_job *job);
/* The same on the calling thread: no other is woken for a batch that takes less than that. */
void rui_crew_run(rui_crew *c, rui_job *job);
rui_job *rui_crew_take(rui_crew *c); /* NULL: none is done */

#endif
