/* A job's data and model, opened to be measured. Inside of train/pipe. Thread: main. */
#ifndef RU_TRAIN_PIPE_METER_H
#define RU_TRAIN_PIPE_METER_H

#include "base/json.h"
#include "cost/step/profile.h"
#include "plan/row/policy.h"
#include "train/job/job.h"
#include "train/model/model.h"
#include "train/model/stage.h"

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
/* A stage alone, in two phases, without start values. */
RU_MUST_USE ru_status rui_meter_stage(const rui_meter *m, const ru_stage *s, ru_exe **out,
                                      ru_err *err);
int64_t rui_meter_median(int64_t *ns); /* [RUI_METER_RUNS], which it sorts */

/* The policy's plan for `question`, JSON; it lives in `arena`. Errors: those of the policy. */
RU_MUST_USE ru_status rui_meter_ask(const ru_policy *policy, const ru_text *question,
                                    ru_arena *arena, const void **plan, ru_err *err);
void rui_meter_put_ns(ru_json *j, const char *key, int64_t ns);
/* Numbers like those of a network in all inputs: kernels take other times with zeros. */
void rui_meter_fill(const ru_graph *g, ru_exe *e);

#endif
