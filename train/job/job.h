/* The job file: what to train, on what, how, until when.
 *
 * The tables in job.c are the schema: type, default, range and help of every key; docs/job.md and
 * `rubato train --help-job` are printed from them. YAML or JSON in, resolved YAML out.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_JOB_JOB_H
#define RU_TRAIN_JOB_JOB_H

#include "base/conf.h"
#include "data/reader.h"
#include "exec/exe.h"
#include "train/job/schedule.h"
#include "train/model/step.h"
#include "train/model/weights.h"
#include "train/model/zoo.h"

RU_API_BEGIN

typedef enum ru_model_source { RU_MODEL_NONE, RU_MODEL_ZOO, RU_MODEL_ONNX } ru_model_source;

typedef enum ru_barrier { RU_BARRIER_AUTO, RU_BARRIER_ALWAYS } ru_barrier;

typedef enum ru_model_head { RU_HEAD_KEEP, RU_HEAD_NEW } ru_model_head;

typedef struct ru_job_model {
    uint32_t source; /* ru_model_source */
    uint32_t zoo;    /* index in ru_zoo_list */
    const char *onnx;
    uint32_t head;                /* ru_model_head */
    const char *weights;          /* safetensors file to start from; empty: none */
    ru_conf_sections weights_map; /* of ru_weight_rule */
    bool weights_partial;
    ru_conf_i64s hidden;
    uint32_t activation;
    int64_t layers, heads, width, context, vocab, patch, channels, classes;
    double dropout;
    bool bias, tie, batch_norm;
} ru_job_model;

typedef struct ru_job_data {
    uint32_t format;
    ru_conf_texts train, test;
    const char *generator, *label, *token_file;
    int64_t count, test_count, context, stride, features, classes, image_size, seed, token_bytes;
    double scale, shift, validation;
    ru_conf_f64s mean, std;
    ru_augment augment;
    ru_columns_options columns;
    bool header, one_hot, strict, direct;
    uint32_t threads;
    int64_t memory;                  /* of batches and requests ahead */
    int64_t follow_ns, follow_queue; /* 0: no new files; samples */
    uint32_t shuffle;                /* ru_shuffle */
    uint32_t cache;                  /* ru_cache_kind */
} ru_job_data;

typedef struct ru_job_sgd {
    double lr, momentum, weight_decay;
    bool nesterov;
} ru_job_sgd;

typedef struct ru_job_adam {
    double lr, beta1, beta2, epsilon, weight_decay;
} ru_job_adam;

typedef struct ru_job_rmsprop {
    double lr, alpha, epsilon, momentum, weight_decay;
} ru_job_rmsprop;

typedef struct ru_job_adagrad {
    double lr, epsilon, weight_decay;
} ru_job_adagrad;

typedef struct ru_job_optimizer {
    uint32_t which; /* 1 sgd, 2 adam, 3 adamw, 4 adagrad, 5 rmsprop, 6 lion, 7 lamb */
    ru_job_sgd sgd;
    ru_job_adam adam, adamw, lion, lamb; /* lion has no epsilon */
    ru_job_adagrad adagrad;
    ru_job_rmsprop rmsprop;
} ru_job_optimizer;

typedef struct ru_job_curve {
    int64_t warmup, every;
    double gamma, floor, start, rise;
} ru_job_curve;

typedef struct ru_job_schedule {
    uint32_t which; /* 1 constant, 2 step, 3 cosine, 4 linear, 5 one_cycle */
    ru_job_curve constant, step, cosine, linear, one_cycle;
} ru_job_schedule;

typedef enum ru_parallel {
    RU_PARALLEL_DATA,
    RU_PARALLEL_PIPELINE,
    RU_PARALLEL_AUTO, /* until the job starts: then one of the others */
    RU_PARALLEL_PLACED,
} ru_parallel;

typedef struct ru_job_pipeline {
    ru_conf_texts cut;    /* layers that begin a stage */
    ru_conf_i64s workers; /* of each stage; n 0: one each */
    uint32_t schedule;    /* ru_pipe_schedule */
    double bytes_per_s;   /* between two workers; 0: not known */
    const char *facts;    /* profiles from which times are predicted; "": they are measured */
    const char *type;     /* of device, in `facts` */
    bool stale;           /* train.stale: gradients of older weights are allowed */
    bool recompute;       /* train.recompute: activations are made again for the backward part */
    bool spare;           /* train.spare: whoever is lost is replaced; also of placed steps */
} ru_job_pipeline;

typedef struct ru_job_placed {
    ru_conf_pairs devices; /* layer -> device from 1, as ru_placing has them; n 0: by the plan */
    ru_conf_texts back;    /* layers as they go back; n 0: in reverse */
    int64_t memory_bytes;  /* the older name of train.memory */
    int64_t latency_ns;
    double bytes_per_s;
    double byte_ns; /* processor time that a byte costs at each end of a link */
} ru_job_placed;

typedef enum ru_adapt_rule { RU_ADAPT_ADASCALE, RU_ADAPT_SQRT, RU_ADAPT_LINEAR } ru_adapt_rule;

/* Batches that grow and shrink with what they are worth (train/worker/worker_adapt.c). */
typedef struct ru_job_adapt {
    int64_t batch_max; /* 0: the batch stays */
    int64_t local_max; /* samples of one pass of a worker; 0: by its memory */
    uint32_t rule;     /* ru_adapt_rule */
} ru_job_adapt;

typedef struct ru_job_train {
    uint32_t loss; /* 0 auto, else ru_loss_kind + 1 */
    ru_job_optimizer optimizer;
    ru_job_schedule schedule;
    uint32_t decay;          /* 0 all, 1 matrices */
    ru_conf_sections groups; /* of ru_param_group */
    int64_t batch, epochs, steps;
    ru_conf_texts transient; /* hosts that may be taken away */
    ru_job_adapt adapt;
    ru_conf_pairs batch_schedule; /* epoch -> batch from then on; train/job/batch.h */
    ru_conf_pairs until;
    ru_conf_texts metrics; /* figures of an evaluation beyond the basic ones; train/job/metric.h */
    int64_t seed, accumulate, eval_every, eval_batch, patience;
    uint32_t metric; /* 0 auto, else of ru_job_metric */
    double min_delta;
    double clip_norm, label_smoothing, ema;
    int64_t histograms;          /* steps between two files; 0: none */
    ru_conf_texts class_weights; /* numbers, or "balanced" */
    uint32_t precision, device;  /* ru_precision, ru_device_kind */
    uint32_t threads;
    uint32_t sums;     /* ru_sums_method */
    uint32_t barrier;  /* ru_barrier */
    uint32_t servers;  /* workers that add the gradients of the others */
    uint32_t order;    /* of sums from servers; 0: the best (train/worker/worker_order.c) */
    uint32_t parallel; /* ru_parallel */
    ru_job_pipeline pipeline;
    ru_job_placed placed;
    int64_t memory_bytes; /* of a worker with a part of the step; 0: no bound by the job */
    bool autotune, shuffle, early_update;
    int64_t poll_ns; /* several workers: time of polling for messages before sleeping; 0: never */
} ru_job_train;

/* What the server's model may tell about one client (cost/privacy.h). */
typedef struct ru_job_privacy {
    double clip, noise, delta, epsilon; /* 0: none */
} ru_job_privacy;

/* The server sees the sum of a round's updates alone (fleet/secure/mask.h). */
typedef struct ru_job_secure {
    uint32_t threshold;  /* 0: it sees each */
    uint32_t neighbours; /* 0: all */
    double range;
    int64_t wait_ns; /* 0: learned */
} ru_job_secure;

typedef struct ru_job_federated {
    int64_t rounds, epochs, eval_every, deadline_ns, profile_wait_ns;
    uint32_t per_round, clients_min, clients_max, answers_min;
    uint32_t method; /* ru_pick_method */
    uint32_t tiers, interval, profiles, at_once;
    uint32_t sum, optimizer; /* ru_fed_sum_kind, ru_fed_optimizer (fleet/sum.h) */
    double trim, lr, beta1, beta2, epsilon, prox;
    ru_job_privacy privacy;
    ru_job_secure secure;
} ru_job_federated;

typedef struct ru_job_checkpoint {
    int64_t every_ns; /* 0: only at the end */
    uint32_t keep;
    bool keep_best;
    bool in_storage;     /* tensors lie in the folders of `storage` */
    const char *copy_to; /* s3://...; "": nowhere */
} ru_job_checkpoint;

typedef struct ru_job {
    const char *name;
    ru_job_model model;
    ru_job_data data;
    ru_job_train train;
    ru_job_checkpoint checkpoint;
    ru_job_federated federated;
    RU_SECTIONS(ru_disk_tier) storage;
} ru_job;

/* Read and check a job file with `sets` ("a.b=c") on top. Relative paths in it are taken from the
 * file's folder and stored absolute. Everything lives in `arena`; `conf` (may be NULL) gives
 * origins. Errors: RU_E_MISSING, RU_E_CONFIG with file:line:column. */
RU_MUST_USE ru_status ru_job_load(const char *path, const char *const *sets, uint32_t n_sets,
                                  ru_arena *arena, ru_job *out, ru_conf **conf, ru_err *err);

/* Read a resolved job from text (a checkpoint's); its paths stay unchanged. Errors name `label`. */
RU_MUST_USE ru_status ru_job_parse(const char *label, const char *yaml, ru_arena *arena,
                                   ru_job *out, ru_err *err);

/* The resolved job as YAML. */
void ru_job_dump(const ru_job *job, const ru_conf *conf, ru_text *out);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
extern const ru_conf_table ru_job_table;
extern const ru_conf_table ru_job_columns_table; /* of data.columns */
/* Read a file that holds the section `data` of a job and nothing else, as ru_job_load reads it. */
RU_MUST_USE ru_status ru_job_data_load(const char *path, ru_arena *arena, ru_job_data *out,
                                       ru_err *err);

/* The folders in the file that RUBATO_STORAGE names, with whole paths; none where it names none.
 * Owner: arena. Errors: RU_E_MISSING, RU_E_CONFIG. */
RU_MUST_USE ru_status ru_job_storage_load(ru_arena *arena, const ru_disk_tier **out,
                                          uint32_t *n_out, ru_err *err);
const char *ru_job_zoo_name(const ru_job *job); /* NULL: an ONNX model */
/* Options of the zoo without what the data says (input, classes, vocab). */
ru_zoo_options ru_job_zoo_options(const ru_job *job);
/* Does the job say how columns become inputs? Any key of data.columns that is not its default does.
 */
bool ru_job_prepares(const ru_job *job);
/* Reader options of the training or the test data; `out->count` etc. as the job says. */
ru_data_options ru_job_data_options(const ru_job *job, bool test);
bool ru_job_has_test(const ru_job *job);
/* Name of the metric that says which evaluation is the best; static. */
const char *ru_job_metric(const ru_job *job, ru_loss_kind loss);
ru_shuffle ru_job_shuffle(const ru_job *job);
ru_optimizer ru_job_optimizer_get(const ru_job *job);
ru_schedule ru_job_schedule_get(const ru_job *job, int64_t steps);
/* The loss; `tokens`: the model reads tokens (decides `auto`). */
ru_loss_kind ru_job_loss(const ru_job *job, bool tokens);

#endif
