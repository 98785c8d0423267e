#include "serve/crew.h"

#include <stdlib.h>

#include "base/ring.h"
#include "env/thread.h"

enum { SLOTS = 2 };

typedef struct worker {
    rui_crew *crew;
    uint32_t instance;
    ru_thread thread;
    /* Also of what its instance holds: the loop computes there, or it gives it back. */
    ru_mutex lock;
    ru_cond more;
    bool stop;
    bool rests, used; /* used: by the loop, since the thread looked */
    ru_spsc in, out;
    rui_job *in_slots[SLOTS], *out_slots[SLOTS];
} worker;

struct rui_crew {
    ru_arena arena;
    ru_served *served;
    ru_loop *loop;
    uint32_t waker, n, looked; /* looked: where take goes on */
    ru_mutex first;            /* of a late model: one thread opens it */
    worker *workers;           /* [n] */
    rui_job *here;             /* computed by the loop, not taken yet */
};

/* The next job; NULL: it is to end. An instance that has none for a while rests. */
static rui_job *next(worker *w)
{
    rui_job *job = NULL;
    ru_mutex_lock(&w->lock);
    w->rests = false;
    while (!ru_spsc_pop(&w->in, &job) && !w->stop) {
        if (w->rests) {
            ru_cond_wait(&w->more, &w->lock);
        } else if (!ru_cond_wait_for(&w->more, &w->lock, RU_SERVED_REST_NS)) {
            w->rests = !w->used;
            w->used = false;
            if (w->rests) {
                ru_served_rest(w->crew->served, w->instance);
            }
        }
    }
    ru_mutex_unlock(&w->lock);
    return job;
}

static void compute(worker *w, rui_job *job)
{
    rui_crew *c = w->crew;
    ru_status st = RU_OK;
    if (ru_served_service_ns(c->served, 1) == 0) { /* it is late, and not open yet */
        ru_mutex_lock(&c->first);
        st = ru_served_first(c->served, &job->err);
        ru_mutex_unlock(&c->first);
    }
    if (st == RU_OK) {
        ru_served_run(c->served, w->instance, job->parts, job->n, &job->err);
    }
    for (uint32_t k = 0; st != RU_OK && k < job->n; k++) {
        job->parts[k]->st = st;
    }
}

static void work(void *self)
{
    worker *w = self;
    for (rui_job *job = next(w); job != NULL; job = next(w)) {
        job->begun = ru_clock_now();
        compute(w, job);
        job->ended = ru_clock_now();
        *(rui_job **)ru_spsc_place(&w->out) = job; /* there is room: one job at a time */
        ru_spsc_put(&w->out);
        ru_loop_wake(w->crew->loop, w->crew->waker);
    }
}

ru_status rui_crew_open(ru_served *served, uint32_t instances, ru_loop *loop, uint32_t waker,
                        rui_crew **out, ru_err *err)
{
    rui_crew *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the threads of a model");
    }
    *c = (rui_crew){.served = served, .loop = loop, .waker = waker};
    ru_arena_init(&c->arena, 0);
    ru_mutex_init(&c->first);
    c->workers = RU_NEW(&c->arena, worker, instances);
    ru_status st =
        c->workers != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for the threads of a model");
    while (st == RU_OK && c->n < instances) {
        worker *w = &c->workers[c->n];
        *w = (worker){.crew = c, .instance = c->n};
        ru_mutex_init(&w->lock);
        ru_cond_init(&w->more);
        ru_spsc_init(&w->in, w->in_slots, SLOTS, sizeof w->in_slots[0]);
        ru_spsc_init(&w->out, w->out_slots, SLOTS, sizeof w->out_slots[0]);
        c->n++;
        st = ru_thread_start(&w->thread, "compute", work, w, err);
    }
    if (st != RU_OK) {
        rui_crew_close(c);
        return st;
    }
    *out = c;
    return RU_OK;
}

void rui_crew_close(rui_crew *c)
{
    if (c == NULL) {
        return;
    }
    for (uint32_t k = 0; k < c->n; k++) {
        worker *w = &c->workers[k];
        ru_mutex_lock(&w->lock);
        w->stop = true;
        ru_cond_signal(&w->more);
        ru_mutex_unlock(&w->lock);
        ru_thread_join(&w->thread);
        ru_cond_fini(&w->more);
        ru_mutex_fini(&w->lock);
    }
    ru_mutex_fini(&c->first);
    ru_arena_fini(&c->arena);
    free(c);
}

void rui_crew_give(rui_crew *c, rui_job *job)
{
    worker *w = &c->workers[job->instance];
    job->given = ru_clock_now();
    rui_job **at = ru_spsc_place(&w->in);
    RU_CHECK(at != NULL);
    *at = job;
    ru_spsc_put(&w->in);
    ru_mutex_lock(&w->lock);
    ru_cond_signal(&w->more);
    ru_mutex_unlock(&w->lock);
}

void rui_crew_run(rui_crew *c, rui_job *job)
{
    worker *w = &c->workers[job->instance];
    RU_CHECK(c->here == NULL);
    ru_mutex_lock(&w->lock);
    job->given = job->begun = ru_clock_now();
    compute(w, job);
    job->ended = ru_clock_now();
    w->used = true;
    if (w->rests) { /* it looks again, in a while */
        w->rests = false;
        ru_cond_signal(&w->more);
    }
    ru_mutex_unlock(&w->lock);
    c->here = job;
}

rui_job *rui_crew_take(rui_crew *c)
{
    rui_job *job = c->here;
    c->here = NULL;
    for (uint32_t k = 0; k < c->n && job == NULL; k++) {
        c->looked = (c->looked + 1) % c->n;
        (void)ru_spsc_pop(&c->workers[c->looked].out, &job);
    }
    return job;
}
