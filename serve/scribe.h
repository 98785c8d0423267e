/* The thread that writes the texts of one version of a model: it takes steps as long as there are
 * texts, and tells the loop after each.
 *
 * Thread: loop only; the thread is inside. */
#ifndef RU_SERVE_SCRIBE_H
#define RU_SERVE_SCRIBE_H

#include "env/loop/loop.h"
#include "serve/streams.h"

typedef struct rui_scribe rui_scribe;

/* A text on its way. The caller fills `stream` and keeps it until it has ended. */
typedef struct rui_written {
    ru_stream stream;
    struct rui_written *next; /* the writer's, and all below: under its lock */
    int64_t n; /* tokens that are there, the prompt's too; 0: no step has read of it yet */
    ru_stream_end end;
    bool leaves;
    ru_err err;
} rui_written;

/* `waker` of the loop is woken after each step. `steps` must live until close.
 * Errors: RU_E_MEM, those of threads. */
RU_MUST_USE ru_status rui_scribe_open(ru_steps *steps, ru_loop *loop, uint32_t waker,
                                      rui_scribe **out, ru_err *err);
void rui_scribe_close(rui_scribe *w); /* waits for the step that runs; NULL is fine */
void rui_scribe_give(rui_scribe *w, rui_written *t);
/* Nobody wants it any more: it ends before the next step. */
void rui_scribe_drop(rui_scribe *w, rui_written *t);
/* *n as above; its end, and then why it failed. */
ru_stream_end rui_scribe_look(rui_scribe *w, rui_written *t, int64_t *n, ru_err *err);

#endif
