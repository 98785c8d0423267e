/* A job's data and model, opened to be measured. Inside of train/pipe. Thread: main. */
#ifndef RU_TRAIN_PIPE_METER_H
#define RU_TRAIN_PIPE_METER_H

#include "base/json.h"
#include "cost/step/profile.h"
#include "plan/row/policy.h"
#include "train/job/job.h"
#include "train/model/model.h"
#include "train/model/stage.h"
#include "train/pipe/measure.h"

enum { RUI_METER_RUNS = 7 }; /* of what is measured */

typedef struct rui_meter {
    const ru_job *job;
    ru_arena *arena;
    uint32_t threads; /* 0: all cores */
    ru_dataset *data;
    ru_model model;
    ru_step_options so; /* of one micro-batch as a part of the batch */
    ru_stages stages;
    const ru_profile_model *facts; /* times are predicted from them; NULL: measured */
    double cores;                  /* of a worker, by these facts; 0: not known */
    int64_t eval_n;                /* samples of an evaluation at once; 0: there is none */
} rui_meter;

/* Of `job`, `arena` and `threads`. Errors: those of data and model. */
RU_MUST_USE ru_status rui_meter_open(rui_meter *m, ru_err *err);
void rui_meter_close(rui_meter *m); /* also one that did not open */

/* The whole step of `batch` samples, open on m->threads threads, with start values and inputs.
 * `tune`: time algorithms, as the job says; else the library's own rule. */
RU_MUST_USE ru_status rui_meter_step(const rui_meter *m, int64_t batch, bool tune,
                                     ru_step_graph *step, ru_exe **out, ru_err *err);
/* Batches of the job from the first on; nothing is read ahead yet. Errors: also RU_E_CONFIG for a
 * batch that is larger than the data. */
RU_MUST_USE ru_status rui_meter_stream(const rui_meter *m, ru_stream **out, ru_err *err);
/* As ru_pipe_measure; opens train.pipeline.facts, if the job names them. */
RU_MUST_USE ru_status rui_meter_layers(rui_meter *m, const uint32_t *workers, uint32_t n,
                                       ru_pipe_layers *out, ru_err *err);

/* Take times from the type of device that the job names in train.pipeline from now on. *read_ns:
 * what was measured of reading this job's batch there, else as it was. Errors: those of the file.
 */
RU_MUST_USE ru_status rui_meter_facts(rui_meter *m, int64_t *read_ns, ru_err *err);

/* What m->facts say of an executable: of each micro-batch, and of the update. */
typedef struct ru_meter_told {
    double often_ns, once_ns, error;
} ru_meter_told;
RU_MUST_USE ru_status rui_meter_predict(const rui_meter *m, const ru_exe *e, ru_meter_told *out,
                                        ru_err *err);

/* What m->facts say of adding the gradients of a micro-batch to the sums of the step. */
RU_MUST_USE ru_status rui_meter_sums(const rui_meter *m, const ru_stage *s, const ru_exe *e,
                                     double *ns, ru_err *err);

/* Memory of an executable, or of that of a stage. */
typedef struct rui_meter_memory {
    int64_t state, step, grads; /* what stays; what a step needs, gradients among it; those alone */
} rui_meter_memory;
rui_meter_memory rui_meter_count(const ru_exe *e);
/* Of the evaluation of who has the whole model: `state` is the whole model's, which nobody shares
 * with it if it has a part. All 0: the job has no test data, or cannot evaluate (it says so when it
 * starts).
 */
rui_meter_memory rui_meter_eval(const rui_meter *m);
/* Of places for the states that a stage with so many bytes sends before an evaluation or a
 * checkpoint, at each end. */
int64_t rui_meter_message_bytes(int64_t state_bytes);
RU_MUST_USE ru_status rui_meter_stage_bytes(const rui_meter *m, const ru_stage *s,
                                            rui_meter_memory *out, ru_err *err);
int64_t rui_meter_bytes(const ru_graph *g, ru_value_role role); /* of states */
/* Of pieces of an edge at each end, `ahead` on their way. */
int64_t rui_meter_piece_bytes(const ru_stage_edge *e, uint32_t ahead);
/* A stage alone, in two phases, without start values. */
RU_MUST_USE ru_status rui_meter_stage(const rui_meter *m, const ru_stage *s, ru_exe **out,
                                      ru_err *err);
/* As a part of a placed step: its memory comes from ru_exe_together_open. */
RU_MUST_USE ru_status rui_meter_part(const rui_meter *m, const ru_stages *s, const ru_placed *p,
                                     uint32_t part, ru_exe **out, ru_err *err);
int64_t rui_meter_median(int64_t *ns); /* [RUI_METER_RUNS], which it sorts */

/* The policy's plan for `question`, JSON; it lives in `arena`. Errors: those of the policy. */
RU_MUST_USE ru_status rui_meter_ask(const ru_policy *policy, const ru_text *question,
                                    ru_arena *arena, const void **plan, ru_err *err);
void rui_meter_put_ns(ru_json *j, const char *key, int64_t ns);
/* Numbers like those of a network in all inputs: kernels take other times with zeros. */
void rui_meter_fill(const ru_graph *g, ru_exe *e);

#endif
