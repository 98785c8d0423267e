/* One training run in this process: data, step, evaluation, checkpoints, reports.
 *
 * Exact: the parameters after step k are a function of the job alone. A run that was killed at any
 * moment and continues with `resume` gives the same bits as an uninterrupted run: the checkpoint
 * holds step, position, parameters, statistics and slots, and everything random is counted.
 *
 * Thread: main. */
#ifndef RU_TRAIN_RUN_TRAINER_H
#define RU_TRAIN_RUN_TRAINER_H

#include "run/report.h"
#include "train/job/job.h"

RU_API_BEGIN

struct ru_lr_sweep; /* train/driver/find_lr.h */

typedef struct ru_train_options {
    const ru_job *job;
    const ru_conf *conf; /* origins for the resolved job file; may be NULL */
    const char *out;     /* run directory; NULL: runs/<name>-<number>, the next free number, with
                            resume the highest */
    bool resume;
    bool json, quiet;
    uint32_t columns;      /* of the terminal on stderr; 0: none */
    const char *cache_dir; /* autotune results; NULL: not kept */
    bool no_trace;         /* tests: no recorder */
    bool dir_made;         /* the starter of this worker chose, checked and created `out` */
    bool dir_shared;       /* a process of the same job may have made it at the same time */
    uint32_t rank;         /* of this worker in trace files */
    uint32_t generation;   /* of this start of the job (run/place.h); 0: none */
    bool beside_plain;     /* no op of the training beside a batch of servers on its cores */
    bool beside_fixed;     /* beside a batch the team keeps its threads */
    bool messages;         /* frames on stdout, for the launcher */
    bool rounds;           /* of ru_train_rounds: others compute its steps, which count as epochs */
    bool progress;         /* ... with the progress, which it draws */
    struct ru_lr_sweep *sweep; /* rates to try instead of the job's schedule; NULL: none */
    ru_run_opened opened;      /* fn NULL: nobody wants to know */
    const char *const *files;  /* [n_files] of data.train that show what samples of data.follow look
                                  like; others train on them */
    uint32_t n_files;
    const char *const *beside; /* [n_besides] rings of servers on the same cores */
    uint32_t n_besides;
    int64_t beside_op_max_ns; /* no op there takes longer: batches in parts; 0: as long as it may */
    int64_t beside_quiet_ns;  /* no op begins there so soon behind a batch */
} ru_train_options;

typedef struct ru_train_result {
    const char *out; /* run directory, in the caller's arena */
    ru_run_report_summary summary;
    int64_t first_step_ns; /* from the start of the process to the end of the first step; 0: none */
} ru_train_result;

/* Train to the end, to the target, or to the first stop signal (summary.ended says which).
 * Errors: RU_E_USER when the loss is not a number; those of data, disk and configuration. The last
 * complete checkpoint stays whatever happens. */
RU_MUST_USE ru_status ru_train(const ru_train_options *opt, ru_arena *arena, ru_train_result *out,
                               ru_err *err);

RU_API_END

typedef struct ru_train_place {
    const char *out;
    struct ru_claim *claim; /* no other job uses it; the caller closes it */
} ru_train_place;

/* Choose, claim and make the run directory as ru_train would: the launcher does so once for all
 * workers. `key`: of the job, the same for all its processes.
 * Errors: RU_E_USAGE when it already holds a run and `resume` is not set, RU_E_AGAIN when another
 * job uses it, RU_E_MISSING, those of the disk. */
RU_MUST_USE ru_status ru_train_dir(const ru_train_options *opt, uint64_t key, ru_arena *arena,
                                   ru_train_place *place, ru_err *err);

#endif
