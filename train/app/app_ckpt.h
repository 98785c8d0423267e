/* Checkpoints of jobs with an app: OUT/checkpoints/<clock>/ with
 *
 *     tables.safetensors     rows of all tables, [rows, width]
 *     rules.safetensors      state of their rules, [rows, floats] (when there is any)
 *     executors.safetensors  states of executors and driver, as bytes
 *     words.txt              vocabulary of text (when there is one)
 *     app.json               clock, executors, facts of the data, job
 *     manifest.json          size and hash of each file; written last
 *
 * The folder is filled under a temporary name and renamed: under its final name it is complete.
 * One process or many write the same format: whoever has all rows and states.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_APP_APP_CKPT_H
#define RU_TRAIN_APP_APP_CKPT_H

#include "train/app/app_job.h"
#include "train/app/state.h"

typedef struct ru_app_ckpt {
    const char *dir;
    int64_t clock, items, executors, seed;
    int64_t rows, cols, classes, numbers; /* of the training data */
    const char *words;                    /* vocabulary, a word a line; NULL: none */
    const char *job_yaml;
} ru_app_ckpt;

/* Write run_dir/checkpoints/<c->clock> and remove all but the newest `keep`.
 * Errors: RU_E_CREATE, RU_E_IO, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_app_ckpt_save(const char *run_dir, const ru_app_ckpt *c,
                                       const ru_app_state *state, uint32_t keep, ru_err *err);

/* Is `path` a run, or a checkpoint, of an app? */
bool ru_app_ckpt_is(const char *path);
/* Newest complete checkpoint of a run, or the one at `path`. Errors: RU_E_MISSING, RU_E_DATA. */
RU_MUST_USE ru_status ru_app_ckpt_find(const char *path, ru_arena *arena, ru_app_ckpt *out,
                                       ru_err *err);
/* Is it of a job with these figures? Errors: RU_E_CONFIG says which differ. */
RU_MUST_USE ru_status ru_app_ckpt_fits(const ru_app_ckpt *c, int64_t executors, int64_t rows,
                                       int64_t cols, int64_t seed, ru_err *err);
/* Rows of table `name` [rows, width] into `into`. Errors: RU_E_DATA. */
RU_MUST_USE ru_status ru_app_ckpt_tables(const ru_app_ckpt *c, ru_app_state *state, ru_err *err);
/* Everything else that training needs: rules, executors, driver. */
RU_MUST_USE ru_status ru_app_ckpt_states(const ru_app_ckpt *c, ru_app_state *state, ru_err *err);

#endif
