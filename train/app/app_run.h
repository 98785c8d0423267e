/* Training with an app in one process, and using what it trained.
 *
 * A run's folder is that of any run: job.yaml, log, metrics.jsonl, checkpoints/<clock>/
 * (app_ckpt.h). A stop signal ends the run after the clock at hand, with a checkpoint. An error
 * leaves the newest checkpoint as it is.
 *
 * Thread: one caller. */
#ifndef RU_TRAIN_APP_APP_RUN_H
#define RU_TRAIN_APP_APP_RUN_H

#include "env/file/claim.h"
#include "run/report.h"
#include "train/app/app_ckpt.h"

/* What people read of a run that is resumed and has no clock left; its clocks as long long. */
#define RU_APP_COMPLETED                                                          \
    "the run has already completed its %lld clocks; raise train.epochs or train." \
    "steps to continue it"

typedef struct ru_app_train_options {
    const ru_app_job_file *file;
    const char *out; /* NULL: runs/<name>-<next number>; resume: the last one */
    bool resume, json, quiet;
    bool dir_made;        /* a process of the same job chose and checked `out`: this one joins */
    bool dir_shared;      /* a process of the same job may have made it at the same time */
    uint32_t columns;     /* of the terminal on stderr; 0: none */
    ru_run_opened opened; /* fn NULL: nobody wants to know */
} ru_app_train_options;

typedef struct ru_app_train_result {
    const char *out;
    int64_t clocks, items;
    double objective;
    ru_metrics metrics; /* of the last evaluation */
} ru_app_train_result;

/* Errors: RU_E_USAGE (a run is there already), RU_E_AGAIN (another job works there), those of data,
 * app and checkpoint. */
RU_MUST_USE ru_status ru_app_train(const ru_app_train_options *opt, ru_arena *arena,
                                   ru_app_train_result *result, ru_err *err);

/* Choose, make and claim the folder of a run as ru_app_train would: the launcher does so once for
 * all workers. key: of the job. Errors: as above. */
RU_MUST_USE ru_status ru_app_place(const ru_app_train_options *opt, uint64_t key, ru_arena *arena,
                                   const char **out, ru_claim **claim, ru_err *err);

/* A trained model: its tables, and data to use it on. */
typedef struct ru_app_model {
    ru_app_job_file file;
    ru_app_ckpt ckpt;
    ru_sparse_file *data;
    void *self;
    ru_app_state state;
} ru_app_model;

/* Read the checkpoint at `path` with data `paths` in the job's format (none: its test data).
 * Errors: RU_E_USAGE without data, RU_E_UNSUPPORTED when the app can do neither. */
RU_MUST_USE ru_status ru_app_model_open(const char *path, const char *const *paths,
                                        uint32_t n_paths, ru_arena *arena, ru_app_model *out,
                                        ru_err *err);
void ru_app_model_close(ru_app_model *m); /* accepts zeroed memory */
RU_MUST_USE ru_status ru_app_model_eval(const ru_app_model *m, ru_metrics *metrics, ru_err *err);
/* Rows to predict, in the order of the data: of ratings its lines. */
int64_t ru_app_model_rows(const ru_app_model *m);
/* Prediction of row `row` as text. */
RU_MUST_USE ru_status ru_app_model_predict(const ru_app_model *m, int64_t row, ru_text *out,
                                           ru_err *err);
/* The tables that are not hidden as safetensors. */
RU_MUST_USE ru_status ru_app_export(const char *path, const char *to, ru_arena *arena, ru_err *err);

/* Figures of `tables` on `data`. */
RU_MUST_USE ru_status ru_app_eval(const ru_app_ops *ops, const void *self,
                                  const ru_app_state *state, const ru_sparse_file *data,
                                  ru_metrics *metrics, ru_err *err);

#endif
