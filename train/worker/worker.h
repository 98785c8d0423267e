/* One worker process of a data-parallel job.
 *
 *   loop thread     membership, channel, elastic training (train/elastic): all control
 *   compute thread  the executable: build, step, update, evaluation, checkpoint
 *   adder thread    sums of gradients over workers of this host (train/worker/worker_local.c)
 *
 *       commands ----- mailbox ----->  compute
 *       loop  <------ events, wake --- compute
 *
 * The worker that leads tells what happened (run/report.h); after a takeover its successor
 * goes on in the same files.
 *
 * Thread: main, which becomes the loop thread. */
#ifndef RU_TRAIN_WORKER_WORKER_H
#define RU_TRAIN_WORKER_WORKER_H

#include "train/driver/trainer.h"

enum { RU_TOKEN_BYTES = 32, RU_WORKERS_MAX = 1024 };

typedef struct ru_worker_options {
    ru_train_options train; /* `out` is set and made; threads of the job count for this worker */
    const char *join;       /* address of any worker of the job; NULL: this one founds it */
    const char *listen;     /* host:port; NULL: this machine's address on the way to `join`, or
                               127.0.0.1:0 */
    const char *toward;     /* listening on all interfaces: tell the address on the way to this
                               host:port; NULL: to `join` */
    const uint8_t *token;   /* [token_bytes] secret of the job */
    uint32_t token_bytes;
    uint32_t founders; /* workers to wait for before the first step; 0: 1 */
    uint32_t n_min;    /* fewer: the job pauses until somebody joins; 0: 1 */
    uint32_t n_begin;  /* the same before the first step; 0: n_min */
    uint32_t n_max;    /* 0: RU_WORKERS_MAX */
    bool newcomer;     /* joins a job that runs: takes its state from the others */
    bool deterministic;
    bool equal_shares;
    bool sockets_only; /* sum over sockets even on one host (measurements) */
    bool transient;    /* its machine may be taken away: it joins without a vote */
    bool stop_leaves;  /* a stop signal lets this worker leave; else it ends the job */
    uint64_t cores;    /* of the compute threads: bit k is core k; 0: wherever */
    uint32_t number;   /* wished among those who come in together, as at the beginning; 0: any */
    /* Told once: where this worker listens, and which one it is in the job; may be NULL. */
    void (*address)(void *self, const char *address);
    void (*member)(void *self, uint32_t number, bool takes_state);
    void *self;
} ru_worker_options;

typedef struct ru_worker_result {
    bool reported; /* this worker led at the end and wrote the summary */
    ru_run_report_summary summary;
    uint32_t number; /* that it had; 0: it never got in */
    bool left;       /* by a stop signal; the others go on */
    int64_t step;    /* done when it ended */
    bool removed;    /* the others go on without it: it may join again ... */
    char again[128]; /* ... through one of them, here */
} ru_worker_result;

/* What processes with the same token claim the run directory with (ru_train_dir). */
uint64_t ru_worker_key(const uint8_t *token, uint32_t token_bytes);

/* Work until the job ends or this worker left. Errors: those of ru_train; RU_E_PEER when the job
 * cannot be reached or put this worker out. */
RU_MUST_USE ru_status ru_worker_run(const ru_worker_options *opt, ru_arena *arena,
                                    ru_worker_result *out, ru_err *err);

/* Ask a worker of a running job for the job (resolved YAML) and its run directory, as a newcomer
 * on another host does. Errors: RU_E_PEER when nobody answers or the token is another one. */
RU_MUST_USE ru_status ru_worker_job_fetch(const char *address, const uint8_t *token,
                                          uint32_t token_bytes, ru_arena *arena, const char **yaml,
                                          const char **out, ru_err *err);

/* The world file of a running job, from any worker of it: who does not lead says where the leader
 * is. Owner: *text [size_bytes] in `arena`. Errors: RU_E_PEER when nobody answers or the token is
 * not the job's, RU_E_AGAIN, RU_E_MEM. */
RU_MUST_USE ru_status ru_worker_world_fetch(const char *address, const uint8_t *token,
                                            uint32_t token_bytes, ru_arena *arena,
                                            const char **text, int64_t *size_bytes, ru_err *err);

typedef struct ru_worker_window {
    const char *dir;         /* on the leader's host */
    uint32_t saved, members; /* traces in it */
} ru_worker_window;

/* Let all workers of a running job keep the next so many steps of their traces; waits until they
 * did. Owner: into->dir in `arena`. Errors: RU_E_PEER when nobody answers, the token is not the
 * job's or the leader is lost meanwhile; RU_E_AGAIN when another window is under way. */
RU_MUST_USE ru_status ru_worker_trace_window(const char *address, const uint8_t *token,
                                             uint32_t token_bytes, uint32_t steps, ru_arena *arena,
                                             ru_worker_window *into, ru_err *err);

#endif
