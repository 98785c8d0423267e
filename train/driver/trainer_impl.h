/* Inside of the trainer: what one run holds.
 *
 * Thread: main. */
#ifndef RU_TRAIN_RUN_TRAINER_IMPL_H
#define RU_TRAIN_RUN_TRAINER_IMPL_H

#include "env/clock.h"
#include "env/file/claim.h"
#include "run/best.h"
#include "run/ckpt.h"
#include "run/decisions.h"
#include "run/place.h"
#include "train/driver/eval.h"
#include "train/driver/trainer.h"

typedef struct rui_names { /* of trace records */
    uint16_t step, input, eval, save, loss, rate, sums, early, cpu_all, cpu_loop;
} rui_names;

/* What a step computed beside its update. */
typedef struct rui_figures {
    double loss, correct, count, norm; /* correct, norm: -1: none */
} rui_figures;

/* Sentences that are said once. */
typedef struct rui_said {
    bool nan;    /* the metric of the best evaluation had no value */
    bool damage; /* samples were left out */
} rui_said;

/* What the gradients told (train/worker/worker_noise.c). */
typedef struct rui_learned {
    double noise; /* gradient noise scale in samples; 0: not measured */
    double done;  /* progress: with train.adapt in steps of train.batch, else the steps done */
    double gain;  /* of the last step */
} rui_learned;

/* Does the loss rise? */
typedef struct rui_rise {
    double first;    /* loss of this process; 0: none yet */
    uint32_t n_high; /* steps in a row whose loss is far above it */
} rui_rise;

/* A place of a run, before or behind a step. */
typedef struct rui_place {
    int64_t step, samples; /* done */
    double done;           /* progress (rui_learned) */
} rui_place;

struct ru_share; /* train/elastic/elastic.h */

typedef struct rui_trainer {
    const ru_train_options *opt;
    const ru_job *job;
    ru_arena *arena;
    const char *out;      /* run directory */
    ru_run_folder folder; /* the same while it works */
    ru_claim *claim;      /* on it */
    uint64_t key;         /* of the job, for the claim */
    bool looked;          /* for a checkpoint to go on from */
    bool goes_on;         /* there is one: */
    ru_ckpt_info from;
    const double *class_weights; /* [n_class_weights] 0: all classes count alike */
    uint32_t n_class_weights;
    const char *weights_said; /* about the file of start values; NULL: none was read */
    const char *changed;      /* settings that are not as they were then; NULL: none */
    const ru_job *before;     /* with the settings as they were then; NULL: it begins */
    const char *run;          /* its last part */
    const char *job_yaml;
    const char *tune_dir;             /* kernel choices of this run */
    ru_dataset *train_set, *test_set; /* test_set NULL: none */
    ru_model model;
    ru_step_graph step;
    ru_exe *exe;
    ru_eval *eval; /* NULL: no test data */
    ru_run_report *report;
    ru_ckpt *ckpt;
    ru_recorder *recorder;
    rui_names names;
    ru_optimizer optimizer;
    ru_schedule schedule;
    int64_t x_bytes, y_bytes; /* of one micro-batch */
    int64_t count;            /* samples of an epoch */
    int64_t batch;            /* of the step that was done last */
    int64_t steps_end;        /* stop here at the latest */
    int64_t step_done, samples, step_resumed;
    int64_t step_first;     /* steps done when this job began */
    int64_t lost, repeated; /* samples, by the positions of the batches */
    int64_t saved_step;     /* of the last checkpoint asked for; -1: none */
    ru_time begun, saved;
    ru_time job_begun; /* with several workers, when this one led; 0: as `begun` */
    ru_run_report_split split;
    ru_metrics metrics; /* of the last evaluation */
    ru_best best;       /* evaluation so far; of a worker: once it led */
    int64_t evaluated_step;
    double loss;
    bool halted; /* the last run was ended before its update: its loss is no number, or a NaN may
                    have been lost on the way */
    uint32_t doubts; /* of those, how many were looked into without a finding */
    rui_said said;
    rui_learned learned;
    bool sealed; /* nothing may be allocated */
    rui_rise rise;
    struct rui_keep *keep; /* train/driver/keep.h; NULL: data.cache is not auto */
    int64_t first_step_ns;
    ru_decisions *decisions;
    struct rui_hists
        *hists; /* train/driver/histograms.h; NULL: none, or this process does not lead */
    /* For the world file. */
    bool deterministic, equal_shares;         /* sums and shares of the workers */
    ru_conf_i64s gradient_bytes, state_bytes; /* none: as the executable has them */
    uint32_t workers;                         /* 0: one */
    const struct ru_member_info *crew;        /* [n_crew] all members, oldest first */
    uint32_t n_crew;                          /* 0: this process alone */
    uint32_t crew_self;                       /* place of this process in it */
    uint32_t cores;         /* of this machine, before threads are bound to some */
    int64_t share_n;        /* samples of this process; 0: the whole batch */
    double net_bytes_per_s; /* 0: not measured */
} rui_trainer;

/* trainer_open.c: what comes before the step is built: data, directory, model, length, recorder.
 * rui_trainer_close accepts a half-open one. */
RU_MUST_USE ru_status rui_trainer_prepare(rui_trainer *t, ru_err *err);
void rui_trainer_close(rui_trainer *t);
/* Options of step and executable as the job says; the worker changes its share. */
void rui_trainer_options(const rui_trainer *t, ru_step_options *so, ru_exe_options *eo);
/* class_weights.c. Errors: RU_E_CONFIG, those of the data. */
RU_MUST_USE ru_status rui_trainer_class_weights(rui_trainer *t, ru_err *err);
ru_status rui_trainer_too_large(const rui_trainer *t, ru_err *err); /* RU_E_MEM, with advice */
/* stage: of the model; NULL: all of it. */
RU_MUST_USE ru_status rui_trainer_eval_open(rui_trainer *t, const ru_exe_options *eo,
                                            const ru_eval_stage *stage, ru_err *err);
RU_MUST_USE ru_status rui_trainer_fill(rui_trainer *t, ru_err *err);
/* `after_step`: of what was told before, this stays (when append). */
RU_MUST_USE ru_status rui_trainer_reports(rui_trainer *t, bool append, int64_t after_step,
                                          ru_arena *arena, ru_err *err);
/* `takes_over`: another process wrote those of this run so far. */
RU_MUST_USE ru_status rui_trainer_ckpt(rui_trainer *t, bool takes_over, ru_err *err);
/* Damaged samples of a set that were left out (data.strict: false), unless it was said before. */
void rui_trainer_say_damaged(rui_trainer *t, const ru_dataset *d, const char *what);
RU_MUST_USE ru_status rui_trainer_say_start(rui_trainer *t, uint32_t workers, ru_err *err);

/* They stand in the executable until the next step makes its own. */
rui_figures rui_trainer_figures(rui_trainer *t);
ru_run_report_step rui_trainer_step_report(const rui_trainer *t, const rui_figures *f, double lr,
                                           int64_t step_ns);
/* trainer.c: what one step's end brings; t->report, t->eval NULL: nothing to tell, no test data. */
/* Is the loss a number? */
RU_MUST_USE ru_status rui_trainer_loss(rui_trainer *t, double loss, double lr, ru_err *err);
RU_MUST_USE ru_status rui_trainer_not_diverged(const rui_trainer *t, bool stopped, ru_err *err);
/* For the sentence of a run that diverged: the inputs are not scaled, or nothing. */
const char *rui_trainer_scale_hint(const rui_trainer *t, char *into, int64_t size_bytes);
/* May this thread allocate from now on? Returns what was. */
bool rui_trainer_seal(rui_trainer *t, bool on);
/* Hosts of the members, each counted once, at least 1; mates: members on this one. NULL: not asked.
 */
uint32_t rui_trainer_hosts(const rui_trainer *t, uint32_t *mates);
/* The executable's judge: sets `halted`. */
ru_status rui_trainer_judge(void *self, float loss, bool invalid);
RU_MUST_USE ru_status rui_trainer_report_step(rui_trainer *t, const ru_run_report_step *s,
                                              ru_err *err);
bool rui_trainer_eval_due(const rui_trainer *t);
/* Is an evaluation due behind the step that leads from one place to the other? */
bool rui_trainer_eval_between(const rui_trainer *t, const rui_place *from, const rui_place *to);
/* Epochs that are over there. */
int64_t rui_trainer_epochs(const rui_trainer *t, const rui_place *at);
/* Learning rate of a step with this share. */
double rui_trainer_lr(const rui_trainer *t, int64_t step, const struct ru_share *share);
/* t->metrics are those of the state after the last step. */
RU_MUST_USE ru_status rui_trainer_evaluated(rui_trainer *t, ru_time begun, ru_err *err);
/* Does the last evaluation end the run? "target", "patience", or NULL. */
const char *rui_trainer_over(const rui_trainer *t);
RU_MUST_USE ru_status rui_trainer_save(rui_trainer *t, ru_err *err);
RU_MUST_USE ru_status rui_trainer_save_if_due(rui_trainer *t, ru_err *err);
/* Tell of the checkpoint that was being written, if it is. */
RU_MUST_USE ru_status rui_trainer_save_poll(rui_trainer *t, ru_err *err);
/* Last checkpoint, the summary. `ended`: done, target, patience,
 * stopped. */
RU_MUST_USE ru_status rui_trainer_finish(rui_trainer *t, const char *ended,
                                         ru_run_report_summary *summary, ru_err *err);

/* resume.c: is the folder one that can be resumed? Errors: RU_E_MISSING. */
RU_MUST_USE ru_status rui_trainer_resume_check(rui_trainer *t, ru_err *err);
/* Find the checkpoint to go on from (t->goes_on), once; nothing to do without `resume`. Errors:
 * RU_E_DATA when all are damaged, RU_E_CONFIG when the order of samples is another one now. */
RU_MUST_USE ru_status rui_trainer_look_back(rui_trainer *t, ru_err *err);

/* How a run that is resumed prepares its inputs; `out` stays when it is not known. */
RU_MUST_USE ru_status rui_trainer_columns_before(const rui_trainer *t, ru_columns *out,
                                                 ru_err *err);

/* The classes that a run which is resumed began with; `out` keeps its own when they are not known.
 */
RU_MUST_USE ru_status rui_trainer_classes_before(const rui_trainer *t, ru_data_options *out,
                                                 ru_err *err);

/* Several workers count samples by steps. Errors: RU_E_CONFIG. */
RU_MUST_USE ru_status rui_trainer_batch_stays(const rui_trainer *t, ru_err *err);

/* trainer_dir.c: choose and fill the run directory. The folder of a run that is resumed is known
 * before. */
RU_MUST_USE ru_status rui_trainer_dir_resumed(rui_trainer *t, ru_err *err);
RU_MUST_USE ru_status rui_trainer_dir(rui_trainer *t, ru_err *err);
/* Put an imported model and its weights beside the run and give the copy's path (NULL: a model of
 * the zoo). A resumed run keeps the copy it has. */
RU_MUST_USE ru_status rui_trainer_dir_model(rui_trainer *t, const ru_type *x, const char **path,
                                            ru_err *err);
RU_MUST_USE ru_status rui_trainer_dir_files(rui_trainer *t, ru_err *err);
/* job.yaml and an imported model. */
RU_MUST_USE ru_status rui_trainer_dir_job(rui_trainer *t, ru_err *err);
/* Begin the folder anew when it was deleted under the run, with a warning. Called before each
 * checkpoint. Errors: RU_E_CREATE. */
RU_MUST_USE ru_status rui_trainer_dir_restore(rui_trainer *t, ru_err *err);
/* trainer_world.c. The run as a world, in `arena`; plans of the executable in force are noted. */
RU_MUST_USE ru_status rui_trainer_world(rui_trainer *t, ru_arena *arena, ru_world *w, ru_err *err);
/* Machines and workers of the run, by t->crew. */
RU_MUST_USE ru_status rui_trainer_cluster(const rui_trainer *t, ru_arena *arena, ru_world *w,
                                          ru_err *err);
/* Record t->exe from now on, and its list beside the trace (train/driver/op_facts.h). */
void rui_trainer_record(rui_trainer *t);
void rui_trainer_decided(rui_trainer *t);
/* world.json again, now with what was measured. */
RU_MUST_USE ru_status rui_trainer_dir_facts(rui_trainer *t, ru_err *err);
RU_MUST_USE ru_status rui_trainer_tuned_in(rui_trainer *t, ru_err *err);
void rui_trainer_tuned_out(rui_trainer *t);

#endif
