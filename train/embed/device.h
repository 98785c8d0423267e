/* The third device of elastic training (train/elastic/elastic.h): a program of its own that
 * computes gradients and updates its parameters between calls. This is the exchange of turns
 * between the program and the loop thread, without a thread of its own, so that a process (embed.c)
 * and the simulator (lab/program.c) drive the same code. One step is under way at a time.
 *
 *   loop:     step(k) -------> offered          aborted? --> CANCELLED      update(k) --> SUMS
 *   program:            take <-'   gradients made: ready(0) .. ready(n - 1)     sums <--'   done
 *
 * A step that the program took and that is aborted stays its own until a call told the program so:
 * till then nothing else writes its gradients or its state. A step that was not taken yet is taken
 * back at once.
 *
 * Thread: the operations of the device and ru_embed_said on the loop thread, the program's calls on
 * any thread; each takes the lock. */
#ifndef RU_TRAIN_EMBED_DEVICE_H
#define RU_TRAIN_EMBED_DEVICE_H

#include "env/thread.h"
#include "train/elastic/elastic.h"
#include "train/embed/embed.h"

typedef enum ru_embed_kind {
    RU_EMBED_BUILT,
    RU_EMBED_READY, /* `tensor` of step `step` */
    RU_EMBED_ABORTED,
    RU_EMBED_UPDATED,
    RU_EMBED_LEAVE,
} ru_embed_kind;

/* What the loop thread is told. */
typedef struct ru_embed_event {
    ru_embed_kind kind;
    uint32_t tensor;
    int64_t step, ns; /* READY of the last gradient: how long the step was computed; else ns < 0 */
} ru_embed_event;

/* Calls out, with the lock held: they return at once and call nothing of this device. */
typedef struct ru_embed_ops {
    /* Give `e` to ru_embed_said later, on the loop thread and outside of elastic training. At most
     * one event a gradient and four more wait at a time. */
    void (*say)(void *self, const ru_embed_event *e);
    /* Something changed for the program: what it waits for may be there. */
    void (*woken)(void *self);
} ru_embed_ops;

typedef enum ru_embed_phase {
    RU_EMBED_IDLE,
    RU_EMBED_OFFERED,
    RU_EMBED_TAKEN,
    RU_EMBED_CANCELLED, /* taken, and the program does not know yet */
    RU_EMBED_SUMS,      /* the program may update */
    RU_EMBED_UPDATING,
} ru_embed_phase;

typedef struct ru_embed {
    const ru_embed_ops *ops;
    void *self;
    ru_elastic *elastic;      /* set by the owner before anything runs */
    const ru_span *gradients; /* [n] of the program, as its state: set by the owner */
    uint32_t n;
    const ru_span *state; /* [n_state] row-major, as elastic training has it */
    uint32_t n_state;
    ru_team_move move; /* of state that is no memory of this process; NULL: `state` is */
    void *move_self;
    ru_mutex lock;
    ru_embed_phase phase;
    int64_t step;
    ru_share share;
    ru_time taken;
    uint32_t n_ready;
    bool leaves, ended;
    uint64_t wakes; /* so often `woken` was called */
} ru_embed;

void ru_embed_init(ru_embed *d, const ru_embed_ops *ops, void *self);
void ru_embed_fini(ru_embed *d);

/* Operations of the device; each `self` is the ru_embed. */
void ru_embed_device_build(void *self, const ru_share *share, bool plain);
void ru_embed_device_step(void *self, int64_t step, const ru_share *share);
void ru_embed_device_abort(void *self);
void ru_embed_device_update(void *self, int64_t step);
ru_elastic_device ru_embed_device(ru_embed *d); /* with the state in the program's memory */
/* Loop thread: what `say` was given, between ru_node_enter, which gives `fx`, and ru_node_leave. */
void ru_embed_said(ru_embed *d, const ru_embed_event *e, ru_time now, ru_effects *fx);
/* Loop thread: the job is over for this process; every call of the program answers RU_E_PEER. */
void ru_embed_end(ru_embed *d);

/* The program's calls. None waits: RU_E_AGAIN until it may go on, RU_E_PEER when the job is over.
 * RU_E_CANCELLED: the step that it took does not count, take another; told once.
 * RU_E_USAGE: not in this order. */
RU_MUST_USE ru_status ru_embed_take(ru_embed *d, ru_time now, int64_t *step, ru_share *share);
RU_MUST_USE ru_status ru_embed_ready(ru_embed *d, uint32_t k, ru_time now);
RU_MUST_USE ru_status ru_embed_sums(ru_embed *d);
RU_MUST_USE ru_status ru_embed_done(ru_embed *d);
void ru_embed_leave(ru_embed *d);

#endif
