#include "serve/scribe.h"

#include <stdlib.h>

#include "env/thread.h"

struct rui_scribe {
    ru_streams *streams;
    ru_loop *loop;
    uint32_t waker;
    ru_thread thread;
    ru_mutex lock;
    ru_cond more;
    rui_written *given; /* not taken yet, the last first */
    rui_written *mine;  /* under way */
    bool stop;
};

/* What the loop said since the last step. */
static void hear(rui_scribe *w)
{
    rui_written *in_order = NULL;
    while (w->given != NULL) {
        rui_written *t = w->given;
        w->given = t->next;
        t->next = in_order;
        in_order = t;
    }
    while (in_order != NULL) {
        rui_written *t = in_order;
        in_order = t->next;
        ru_streams_ask(w->streams, &t->stream);
        t->next = w->mine;
        w->mine = t;
    }
    for (rui_written *t = w->mine; t != NULL; t = t->next) {
        if (t->leaves) {
            ru_streams_drop(&t->stream);
        }
    }
}

static void tell(rui_scribe *w, const ru_err *err)
{
    for (rui_written **at = &w->mine; *at != NULL;) {
        rui_written *t = *at;
        if (t->stream.end == RU_STREAM_FAILED) {
            t->err = *err;
        }
        if (t->stream.end != RU_STREAM_RUNS) {
            *at = t->next; /* the loop may free it once it sees the end */
        } else {
            at = &t->next;
        }
        t->n = t->stream.cached > 0 ? t->stream.n : 0;
        t->end = t->stream.end;
    }
    ru_loop_wake(w->loop, w->waker);
}

static void work(void *self)
{
    rui_scribe *w = self;
    ru_err err = {0};
    ru_mutex_lock(&w->lock);
    while (!w->stop) {
        hear(w);
        if (w->mine == NULL) {
            ru_cond_wait(&w->more, &w->lock);
            continue;
        }
        ru_mutex_unlock(&w->lock);
        (void)ru_streams_step(w->streams, &err);
        ru_mutex_lock(&w->lock);
        tell(w, &err);
    }
    ru_mutex_unlock(&w->lock);
}

ru_status rui_scribe_open(ru_steps *steps, ru_loop *loop, uint32_t waker, rui_scribe **out,
                          ru_err *err)
{
    rui_scribe *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for texts under way");
    }
    w->loop = loop;
    w->waker = waker;
    ru_mutex_init(&w->lock);
    ru_cond_init(&w->more);
    ru_status st = ru_streams_open(steps, &w->streams, err);
    st = st == RU_OK ? ru_thread_start(&w->thread, "writer", work, w, err) : st;
    if (st != RU_OK) {
        rui_scribe_close(w);
        return st;
    }
    *out = w;
    return RU_OK;
}

void rui_scribe_close(rui_scribe *w)
{
    if (w == NULL) {
        return;
    }
    ru_mutex_lock(&w->lock);
    w->stop = true;
    ru_cond_signal(&w->more);
    ru_mutex_unlock(&w->lock);
    ru_thread_join(&w->thread);
    ru_streams_close(w->streams);
    ru_cond_fini(&w->more);
    ru_mutex_fini(&w->lock);
    free(w);
}

void rui_scribe_give(rui_scribe *w, rui_written *t)
{
    t->n = 0;
    t->end = RU_STREAM_RUNS;
    t->leaves = false;
    ru_mutex_lock(&w->lock);
    t->next = w->given;
    w->given = t;
    ru_cond_signal(&w->more);
    ru_mutex_unlock(&w->lock);
}

void rui_scribe_drop(rui_scribe *w, rui_written *t)
{
    ru_mutex_lock(&w->lock);
    t->leaves = true;
    ru_mutex_unlock(&w->lock);
}

ru_stream_end rui_scribe_look(rui_scribe *w, rui_written *t, int64_t *n, ru_err *err)
{
    ru_mutex_lock(&w->lock);
    *n = t->n;
    ru_stream_end end = t->end;
    if (end == RU_STREAM_FAILED) {
        *err = t->err;
    }
    ru_mutex_unlock(&w->lock);
    return end;
}
