/* A member of an elastic job inside any program: the program computes gradients of its share of a
 * step and updates its own parameters, Rubato adds the gradients of all members, keeps count of
 * samples, and handles members that come, leave and die. The loop thread is inside; calls block.
 *
 *   while (ru_team_begin(t, 0, &s, &err) == RU_OK && !s.over) {
 *       samples [s.position, s.position + s.n) of the global order: forward, backward;
 *       ru_team_ready(t, k) as soon as ru_team_gradient(t, k) holds gradient k
 *       if (ru_team_wait(t, 0, &err) == RU_OK) {  update the parameters with the sums in
 *           ru_team_gradient(t, 0 ..);  ru_team_done(t); }
 *       else RU_E_CANCELLED: a member was lost; nothing changed, the samples come again
 *   }
 *   ru_team_close(t);
 *
 * Gradients are sums, so each member scales its own: a mean over the batch has the factor
 * s.n / s.batch. A member that receives the state of the others has s.n 0: its gradients are zeros
 * and ready already; it goes straight to ru_team_wait and updates with everyone.
 *
 * State is what a newcomer receives: parameters, optimizer slots, counters. It changes only between
 * ru_team_wait and ru_team_done; at other times the loop thread may read it.
 *
 * Thread: ru_team_ready, ru_team_gradient, ru_team_leads and ru_team_leave on any thread, the
 * others on one thread at a time. */
#ifndef RU_TRAIN_EMBED_EMBED_H
#define RU_TRAIN_EMBED_EMBED_H

#include "base/status.h"

RU_API_BEGIN

typedef struct ru_team ru_team;

/* Memory of the program. */
typedef struct ru_team_state {
    void *data; /* NULL with ru_team_options.move */
    int64_t size_bytes;
    uint32_t group; /* members of one group are updated together: a parameter and its slots */
} ru_team_state;

/* Bytes [offset, offset + size) of state k into `memory`, or out of it into the state: for state
 * that is no memory of this process, such as a GPU's. On the loop thread, never between
 * ru_team_wait and ru_team_done. False: they could not be moved. The peer then does not get them; a
 * newcomer that could not take some must not update again, and leaves. */
typedef bool (*ru_team_move)(void *self, uint32_t k, int64_t offset, int64_t size, void *memory,
                             bool into_state);

typedef struct ru_team_options {
    const char *join;   /* HOST:PORT of any member; NULL: this one founds the job */
    const char *listen; /* HOST:PORT; NULL: this machine's address on the way to `join`, or
                           127.0.0.1:0 */
    const char *token;  /* secret of the job, 16 to 64 bytes, the same for all members */
    uint32_t number;    /* wished among the founders, from 1; 0: any */
    bool newcomer;      /* joins a job that runs: its state comes from the others */
    uint32_t founders;  /* members that the first step waits for; 0: 1 */
    uint32_t n_min;     /* with fewer the job pauses until others join; 0: 1 */
    uint32_t n_begin;   /* the same before the first step; 0: n_min */
    uint32_t n_max;     /* 0: 1024 */
    uint32_t capacity;  /* relative speed until it is measured; 0: 1 */
    int64_t batch;      /* samples of a step, of all members together */
    int64_t count;      /* samples of an epoch, whose last step takes what is left; 0: no epochs */
    int64_t steps;      /* the job ends after so many; 0: when its members leave */
    int64_t steps_before;          /* of a checkpoint that all founders hold */
    int64_t position_before;       /* samples of these */
    const int64_t *gradient_bytes; /* [n_gradients] in the order in which they are made */
    /* [n_gradients] memory of the program for them, 16-byte aligned, viewed until ru_team_close;
     * NULL: the team's own */
    float *const *gradients;
    uint32_t n_gradients;       /* 1 .. 4096 */
    bool bf16;                  /* gradients are bf16, an even number each; else f32 */
    const ru_team_state *state; /* [n_state] the same sizes and groups in all members */
    uint32_t n_state;
    ru_team_move move; /* NULL: the state is memory */
    void *move_self;
    /* Lines "name value" that all members must share, besides batch and sizes; NULL: none. */
    const char *agreed;
    bool equal_shares; /* do not give faster members more samples */
    /* Time for the state of newcomers, as part of that of a step's sums; 0: 0.1. */
    double join_part;
    /* Measure the noise of the first so many gradients (ru_team_step.noise_var): others may carry
     * what is no gradient. 0: of none. */
    uint32_t noise;
} ru_team_options;

typedef struct ru_team_step {
    bool over;        /* the job has ended; nothing else is set */
    int64_t step;     /* steps done before it */
    int64_t position; /* of this member's first sample in the global order, which goes on over
                         epochs; its n samples are all of one epoch when `count` was given */
    int64_t n, batch; /* samples of this member, and of all */
    int64_t first;    /* ... of the members before it; 0: no other member has an earlier sample */
    uint32_t members, number; /* of the job; this one's number */
    /* Option noise, from every eighth step, on all members: the squared length of the mean
     * gradient, and the variance of that of a batch of ru_team_options.batch; var 0: not known yet.
     * The noise scale is batch * var / sqr samples. */
    double noise_sqr, noise_var;
} ru_team_step;

/* It listens when this returns; whether it can join shows at ru_team_begin. Options are copied, the
 * state's memory is viewed until ru_team_close. Errors: RU_E_ARG, RU_E_MEM, those of the address
 * (RU_E_PEER, RU_E_CONFIG). */
RU_MUST_USE ru_status ru_team_open(const ru_team_options *opt, ru_team **out, ru_err *err);
/* Leaves, waits for the loop thread, frees. NULL is fine. */
void ru_team_close(ru_team *t);
/* HOST:PORT at which others can join; view until ru_team_close. */
const char *ru_team_address(const ru_team *t);

/* Waits for the next step, at most wait_ns; 0: without a limit. Errors: RU_E_AGAIN after wait_ns;
 * RU_E_PEER, RU_E_CONFIG and others with the reason why this process is not in the job any more;
 * RU_E_USAGE when the step before is not done. */
RU_MUST_USE ru_status ru_team_begin(ru_team *t, int64_t wait_ns, ru_team_step *into, ru_err *err);
/* Memory of gradient k [gradient_bytes[k]], 64-byte aligned: the program's from ru_team_begin until
 * it is ready, holds the sums from ru_team_wait until ru_team_done. */
float *ru_team_gradient(ru_team *t, uint32_t k);
/* Gradient k is complete, once a step. RU_E_CANCELLED: the step does not count any more, the rest
 * may be left out; ru_team_wait says it too. RU_E_USAGE: twice, or outside of a step. */
RU_MUST_USE ru_status ru_team_ready(ru_team *t, uint32_t k);
/* Waits for the sums of all gradients, at most wait_ns; 0: without a limit. RU_OK: update, then
 * ru_team_done. RU_E_CANCELLED: nothing changed and the samples come again with the next
 * ru_team_begin. Other errors as there. */
RU_MUST_USE ru_status ru_team_wait(ru_team *t, int64_t wait_ns, ru_err *err);
/* Does this member lead the job? Once the job has ended: did it lead at the end? */
bool ru_team_leads(ru_team *t);
/* The state is that after the step. Errors: RU_E_USAGE, RU_E_PEER. */
RU_MUST_USE ru_status ru_team_done(ru_team *t);
/* This member leaves; calls that block return RU_E_PEER. A step that it has begun is computed again
 * by the others. A stop signal does the same if the program called ru_self_stop_watch before
 * ru_team_open; it unwatches after ru_team_close. */
void ru_team_leave(ru_team *t);

RU_API_END

#endif
