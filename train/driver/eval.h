/* Evaluation: loss and metrics of a model over a whole dataset, each sample once.
 *
 * Thread: one at a time. */
#ifndef RU_TRAIN_RUN_EVAL_H
#define RU_TRAIN_RUN_EVAL_H

#include "run/report.h"
#include "train/model/model.h"

typedef struct ru_eval ru_eval;

/* A stage of an evaluation whose batches go through several processes (ru_stages_build_eval).
 * Around each run, in the order of the batches, `take` fills the inputs that other stages make, and
 * `give` takes what leaves. A stop signal does not end it, because the others would wait. */
typedef struct ru_eval_stage {
    const ru_step_graph *step[2]; /* of a batch, and of the last one where that is shorter */
    ru_status (*take)(void *self, int64_t batch, bool tail, ru_exe *e);
    ru_status (*give)(void *self, int64_t batch, bool tail, ru_exe *e);
    void *self;
} ru_eval_stage;

typedef struct ru_eval_options {
    int64_t batch; /* at most so many samples at once */
    double label_smoothing;
    ru_exe_options exe;
    uint32_t readers; /* reading threads */
    const char *const
        *figures; /* [n_figures] computed too (train/driver/scores.h); view until close */
    uint32_t n_figures;
    const ru_eval_stage *stage; /* NULL: the whole model */
} ru_eval_options;

/* Most samples at once, as the job says. */
int64_t ru_eval_batch(const ru_job *job);
/* Of `count` samples, at least 1: those of a batch, and those of a last shorter one (0: none). */
void ru_eval_sizes(int64_t count, int64_t batch, int64_t size[2]);

/* Prepare the evaluation of `m` on `data` (view, until close). A last short batch, if there is one,
 * runs in an executable of its own size. Lives in `arena`. Errors: RU_E_CONFIG names a figure that
 * fits neither loss nor labels. */
RU_MUST_USE ru_status ru_eval_open(const ru_model *m, ru_dataset *data, const ru_eval_options *opt,
                                   ru_arena *arena, ru_eval **out, ru_err *err);
void ru_eval_close(ru_eval *e); /* NULL is fine */

/* Figures need the outputs and labels of every sample: bytes of those of a batch, which go with
 * its sums (0: none are needed). */
int64_t ru_eval_rows_bytes(const ru_eval *e, int64_t batch);
void ru_eval_rows_pack(const ru_eval *e, int64_t batch, void *into);
void ru_eval_rows_unpack(ru_eval *e, int64_t batch, const void *from);

/* Take parameters and statistics from `from`, whose graph is `graph`. */
RU_MUST_USE ru_status ru_eval_state_from(ru_eval *e, const ru_graph *graph, ru_exe *from,
                                         ru_err *err);

/* That its executables plan; *packed: what they touch when they open. */
int64_t ru_eval_bytes(const ru_eval *e, int64_t *packed);

/* The executable whose state ru_eval_run uses, and its graph (to load weights into). */
ru_exe *ru_eval_exe(ru_eval *e, const ru_graph **graph);

/* Batches of the data, and the sums of each; the sums of all batches give the metrics. */
typedef struct ru_eval_sums {
    double loss, weight; /* loss times its weight; samples or rows */
    double correct, count;
} ru_eval_sums;
int64_t ru_eval_batches(const ru_eval *e);

/* Run batches [first, end) in turn. */
typedef struct ru_eval_part {
    int64_t first, end;
    bool (*stop)(void *self); /* called before each batch; NULL: never */
    bool whole;               /* also after a stop signal */
    void (*done)(void *self, int64_t batch, const ru_eval_sums *sums);
    void *self;
} ru_eval_part;
RU_MUST_USE ru_status ru_eval_run_part(ru_eval *e, const ru_eval_part *part, ru_err *err);
/* Metrics from the sums of all batches, added in their order: the same bits for every distribution
 * of batches over workers. */
RU_MUST_USE ru_status ru_eval_metrics(ru_eval *e, const ru_eval_sums *at, ru_metrics *out,
                                      ru_err *err);

/* All of it; of a stage without the loss the metrics say nothing. Metrics: loss, and accuracy
 * (share of rows hit) for class and binary losses, perplexity for next_token, mse for mse. Errors:
 * those of the data and of kernels; RU_E_CANCELLED when a stop signal came. */
RU_MUST_USE ru_status ru_eval_run(ru_eval *e, ru_metrics *out, ru_err *err);

#endif
