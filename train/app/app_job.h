/* The job file of an app: `app:` in place of `model:`, and the app's settings in a section under
 * its name. One table is made for each app: the common keys below and that section.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_APP_APP_JOB_H
#define RU_TRAIN_APP_APP_JOB_H

#include "train/app/find.h"

typedef struct ru_app_job_data_keys {
    uint32_t format;
    ru_conf_texts train, test;
    const char *label;
    int64_t rows, cols;
} ru_app_job_data_keys;

typedef struct ru_app_job_clocks {
    uint32_t order; /* ru_app_order */
    uint32_t staleness, executors;
    uint32_t stragglers;   /* ru_engine_stragglers */
    uint32_t backup;       /* executors for which a clock does not wait */
    uint32_t moves;        /* ru_moves_method */
    int64_t shuffle_ns;    /* so often an object moves at random; 0: never */
    int64_t task_limit_ns; /* 0: by measured tasks (env/fault.h) */
} ru_app_job_clocks;

typedef struct ru_app_job_train {
    int64_t epochs, steps, seed, eval_every;
    ru_conf_pairs until;
    uint32_t threads;
} ru_app_job_train;

typedef enum ru_app_recovery {
    RU_APP_RECOVER_AUTO, /* NEWEST where the app repairs it, else ROLLBACK; never after reading */
    RU_APP_RECOVER_ROLLBACK,
    RU_APP_RECOVER_NEWEST,
    RU_APP_RECOVER_PARTIAL,
    RU_APP_RECOVER_RESET,
} ru_app_recovery;

typedef struct ru_app_job_checkpoint {
    int64_t every_ns;
    uint32_t keep;
} ru_app_job_checkpoint;

/* What becomes of rows whose worker died, and the running checkpoint. */
typedef struct ru_app_job_recovery {
    uint32_t method; /* ru_app_recovery */
    uint32_t save;   /* ru_save_method */
    double fraction, cost;
    uint32_t clocks, block;
} ru_app_job_recovery;

typedef enum ru_app_stages {
    RU_APP_STAGES_AUTO, /* these are ru_stage_method */
    RU_APP_STAGES_RATIO,
    RU_APP_STAGES_ONE,
    RU_APP_STAGES_TWO,
    RU_APP_STAGES_THREE,
    RU_APP_STAGES_OFF,
} ru_app_stages;

/* Workers on machines that may be taken away. */
typedef struct ru_app_job_stages {
    uint32_t method; /* ru_app_stages */
    int64_t notice_ns;
    double r12, r23;
} ru_app_job_stages;

/* The app's own settings stand behind it, at ru_app_job_config. */
typedef struct ru_app_job {
    const char *name, *app;
    ru_app_job_data_keys data;
    ru_app_job_clocks clocks;
    ru_app_job_train train;
    ru_app_job_checkpoint checkpoint;
    ru_app_job_recovery recovery;
    ru_app_job_stages stages;
} ru_app_job;

/* A job read: everything lives in the arena. */
typedef struct ru_app_job_file {
    const ru_app_ops *ops;
    const ru_conf_table *table;
    const ru_app_job *job;
    const void *config; /* the app's settings; NULL: it has none */
    const char *yaml;   /* resolved */
} ru_app_job_file;

/* Does this job file name an app? A file that cannot be read names none. */
bool ru_app_job_is(const char *path);
bool ru_app_job_text_is(const char *yaml); /* the same of its text */

/* Read and check a job file with `sets` on top; relative paths are taken from its folder.
 * Errors: RU_E_MISSING, RU_E_CONFIG with file:line:column; those of ru_app_find. */
RU_MUST_USE ru_status ru_app_job_load(const char *path, const char *const *sets, uint32_t n_sets,
                                      ru_arena *arena, ru_app_job_file *out, ru_err *err);
/* A resolved job from text. */
RU_MUST_USE ru_status ru_app_job_parse(const char *label, const char *yaml, ru_arena *arena,
                                       ru_app_job_file *out, ru_err *err);
/* May workers of this job be transient? Errors: RU_E_CONFIG, reliable ones cannot keep copies. */
RU_MUST_USE ru_status ru_app_job_transient(const ru_app_job *job, ru_err *err);
/* Keys of jobs with an app, for people. */
RU_MUST_USE ru_status ru_app_job_help(ru_arena *arena, ru_text *out, ru_err *err);

/* Open the job's training or test data, or `paths` in its format. `like`: rows, columns and words
 * are its; NULL: those found. */
RU_MUST_USE ru_status ru_app_job_data(const ru_app_job_file *f, const char *const *paths,
                                      uint32_t n_paths, const ru_sparse_options *like,
                                      ru_sparse_file **out, ru_err *err);

#endif
