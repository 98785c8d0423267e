/* Checkpoints: OUT/checkpoints/<step>/ with
 *
 *     model.safetensors      parameters and running statistics; with train.ema the moving means of
 *                            the parameters, under their names
 *     optimizer.safetensors  optimizer slots (when there are any); with train.ema the parameters
 *     state.json             step, samples, seed, job, facts of the model
 *     manifest.json          size and hash of each file; written last
 *
 * The folder is filled under a temporary name, every file synced, then renamed: a folder under its
 * final name is complete. Saving copies the state to memory between two steps (the pause) and
 * writes from a thread of its own. With folders of `storage` the tensors lie there, as
 * run/ckpt_store.h says. Random numbers need no state: they are counted by step and position.
 *
 * Thread: the trainer's loop; the writer's thread is inside. */
#ifndef RU_RUN_CKPT_H
#define RU_RUN_CKPT_H

#include "exec/exe.h"
#include "store/tiers/tiers.h"
#include "trace/record/recorder.h"
#include "train/model/model.h"

RU_API_BEGIN

typedef struct ru_ckpt ru_ckpt;

typedef struct ru_ckpt_options {
    const char *run_dir;
    const ru_graph *graph; /* its STATE values with names are saved; view, may later be the graph of
                              another step of the same model, for whose executable save is called */
    const char *job_yaml;  /* resolved job */
    const ru_model_facts *facts;
    int64_t seed;
    uint32_t keep;     /* number of newest checkpoints to keep; >= 1 */
    int64_t best_step; /* step of the best one so far, which is kept too; 0: none */
    bool go_on;        /* after from_step: later ones, which were damaged, are renamed */
    int64_t from_step;
    bool takes_over;       /* from a process of the run that may write still: what is there stays */
    ru_recorder *recorder; /* may be NULL */
    const char *copy_to;   /* s3://BUCKET/FOLDER (run/copies.h); NULL, "": nowhere */
    const ru_disk_tier *tiers; /* [n_tiers] folders for tensors (run/ckpt_store.h); view */
    uint32_t n_tiers;          /* 0: they stand in the run's folder */
} ru_ckpt_options;

typedef struct ru_ckpt_at {
    int64_t step;    /* steps done */
    int64_t samples; /* samples used: the position in the data */
    double done;     /* progress in steps of train.batch, where batches adapt; 0: the steps */
    bool best;       /* of all so far: it stays, and checkpoints/best leads to it */
} ru_ckpt_at;

/* Unless it takes over: removes files of a killed writer; gives damaged checkpoints another name
 * (<step>.damaged), so that they do not count as the newest. Lives in `arena`. Errors: RU_E_CREATE,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_ckpt_open(const ru_ckpt_options *opt, ru_arena *arena, ru_ckpt **out,
                                   ru_err *err);
void ru_ckpt_close(ru_ckpt *c); /* waits for a running write; NULL is valid */

/* Copy the state now and write it in the background. Waits for the previous write, if it still
 * runs, and reports its failure. `pause_ns` (may be NULL): how long the copy took. */
RU_MUST_USE ru_status ru_ckpt_save(ru_ckpt *c, ru_exe *exe, const ru_ckpt_at *at, int64_t *pause_ns,
                                   ru_err *err);

/* Wait for the running write and return its result. */
RU_MUST_USE ru_status ru_ckpt_wait(ru_ckpt *c, ru_err *err);

/* -- reading -------------------------------------------------------------------------------------
 */

typedef struct ru_ckpt_info {
    const char *dir; /* the checkpoint's folder */
    ru_ckpt_at at;
    int64_t seed;
    const char *job_yaml;
    ru_model_facts facts;
} ru_ckpt_info;

/* Newest complete checkpoint under `run_dir`; a damaged one is skipped and named in the log.
 * Errors: RU_E_MISSING when there is none, RU_E_DATA when all are damaged, others when one cannot
 * be read. Everything lives in `arena`. */
RU_MUST_USE ru_status ru_ckpt_find(const char *run_dir, ru_arena *arena, ru_ckpt_info *out,
                                   ru_err *err);

/* Load the state of `graph` into `exe`. `slots` false leaves optimizer state out.
 * Errors: RU_E_DATA naming the first tensor that is missing or has another shape. */
RU_MUST_USE ru_status ru_ckpt_load(const ru_ckpt_info *info, const ru_graph *graph, ru_exe *exe,
                                   bool slots, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Read the folder of one checkpoint: manifest, sizes, hashes, state.json.
 * Errors: RU_E_MISSING, RU_E_DATA. */
RU_MUST_USE ru_status ru_ckpt_read(const char *dir, ru_arena *arena, ru_ckpt_info *out,
                                   ru_err *err);
/* Where states go that are read; `put` copies one. */
typedef struct ru_ckpt_sink {
    ru_status (*put)(void *self, ru_value_id state, const void *data, ru_err *err);
    void *self;
} ru_ckpt_sink;
/* As ru_ckpt_load, but into `to`. */
RU_MUST_USE ru_status ru_ckpt_load_to(const ru_ckpt_info *info, const ru_graph *graph,
                                      const ru_ckpt_sink *to, bool slots, ru_err *err);
/* Load parameters and statistics into `graph` itself: its STATE values get data (in `arena`). */
RU_MUST_USE ru_status ru_ckpt_load_graph(const ru_ckpt_info *info, ru_graph *graph, ru_arena *arena,
                                         ru_err *err);
/* From now on ru_ckpt_save takes each state from `read`, by its name in the graph (states of
 * several processes), and its `exe` may be NULL. */
void ru_ckpt_source(ru_ckpt *c,
                    ru_status (*read)(void *self, const char *state, void *into, ru_err *err),
                    void *self);
/* Has the last write ended? RU_OK with *done false while it runs. The first call after its end
 * returns its result and fills `at`; later ones set *done false. Never waits. */
RU_MUST_USE ru_status ru_ckpt_poll(ru_ckpt *c, bool *done, ru_ckpt_at *at, ru_err *err);
bool ru_ckpt_busy(ru_ckpt *c);
/* What state.json of a checkpoint says; of the options facts, job_yaml and seed count. */
void ru_ckpt_state_put(const ru_ckpt_options *o, const ru_ckpt_at *at, ru_text *t);
/* Text of state.json in a checkpoint's folder, and what such a text says, also of a checkpoint that
 * is not here: `dir` and `path` are what errors call it. */
RU_MUST_USE ru_status ru_ckpt_state(const char *dir, ru_arena *arena, char **text, int64_t *n,
                                    ru_err *err);
RU_MUST_USE ru_status ru_ckpt_parse(const char *dir, const char *path, const char *text, int64_t n,
                                    ru_arena *arena, ru_ckpt_info *out, ru_err *err);

#endif
