/* One worker process of a data-parallel job.
 *
 *   loop thread     a live process (host/shell.h) with elastic training (train/elastic): all
 * control compute thread  the executable: build, step, update, evaluation, checkpoint adder thread
 * sums of gradients over workers of this host (train/worker/worker_local.c)
 *
 *       commands ----- mailbox ----->  compute
 *       loop  <------ ring, wake ----- compute, adder
 *
 * The worker that leads tells what happened (run/report.h); after a takeover its successor
 * goes on in the same files.
 *
 * Thread: main, which becomes the loop thread. */
#ifndef RU_TRAIN_WORKER_WORKER_H
#define RU_TRAIN_WORKER_WORKER_H

#include "host/shell.h"
#include "train/driver/trainer.h"

typedef struct ru_worker_options {
    ru_train_options train; /* `out` is set and made; threads of the job count for this worker */
    ru_shell_options shell;
    uint32_t founders; /* workers to wait for before the first step; 0: 1 */
    uint32_t n_min;    /* fewer: the job pauses until somebody joins; 0: 1 */
    uint32_t n_begin;  /* the same before the first step; 0: n_min */
    bool deterministic;
    bool equal_shares;
    bool sockets_only; /* sum over sockets even on one host (measurements) */
    const char *sets;  /* file of train/pipe/sets.h of a pipeline or placed step; NULL: none */
    bool far;          /* only the worker that leads has it, and copies the state of all */
    int64_t after; /* far: all go on after this step, with states from the leader; 0: they do not */
    uint32_t
        spares; /* of the founders of such a job: those that joined it before it started again */
    const char *weights; /* host:port where guests get this worker's weights; NULL: nowhere */
    uint64_t cores;      /* of the compute threads: bit k is core k; 0: wherever */
} ru_worker_options;

typedef struct ru_worker_result {
    bool reported; /* this worker led at the end and wrote the summary */
    ru_run_report_summary summary;
    uint32_t number;  /* that it had; 0: it never got in */
    bool left;        /* by a stop signal; the others go on */
    int64_t step;     /* done when it ended */
    bool removed;     /* the others go on without it: it may join again ... */
    char again[128];  /* ... through one of them, here */
    bool spare;       /* of a pipeline or placed step: it never had a part */
    bool start_again; /* ... the others were lost, or divide the model anew: it asks for the job */
} ru_worker_result;

/* What processes with the same token claim the run directory with (ru_train_dir). */
uint64_t ru_worker_key(const uint8_t *token, uint32_t token_bytes);

/* Work until the job ends or this worker left. Errors: those of ru_train; RU_E_PEER when the job
 * cannot be reached or put this worker out. */
RU_MUST_USE ru_status ru_worker_run(const ru_worker_options *opt, ru_arena *arena,
                                    ru_worker_result *out, ru_err *err);

#endif
