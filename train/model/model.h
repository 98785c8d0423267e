/* The model of a job as two graphs: the training form and the inference form.
 *
 * Both forms have the same state by name. ru_model_facts holds what the model needs to know of its
 * data (sample types, classes and their names). A run directory stores it, so a trained model needs
 * neither its data nor its job file again.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_MODEL_H
#define RU_TRAIN_MODEL_MODEL_H

#include "store/onnx_file.h"
#include "train/job/job.h"

RU_API_BEGIN

typedef struct ru_model_facts {
    ru_type x, y;                   /* one sample; y.dtype RU_NONE: not known */
    int64_t classes;                /* classes of the data, or size of the vocabulary; 0: none */
    const char *const *class_names; /* [n_class_names] */
    uint32_t n_class_names;         /* 0: classes have numbers only */
    const char *not_classes; /* the first label that is no class number; NULL: none, or not known */
    ru_columns columns;      /* of a table; n 0: none, or not known */
} ru_model_facts;

typedef struct ru_model {
    ru_graph train, infer;
    const char *name;     /* "resnet18", "model.onnx" */
    const ru_init *inits; /* [n_inits] start values by id of `train`; of ONNX a new last layer's */
    uint32_t n_inits;
    bool tokens;
    ru_model_facts facts;
    ru_loss_kind loss;
    ru_onnx_file file; /* behind an imported model: weights are views of it until close */
} ru_model;

/* Types, classes and names of a dataset. Strings are copied into `arena`.
 * Errors: RU_E_CONFIG when a sample does not have an x and a y. */
RU_MUST_USE ru_status ru_model_facts_from(const ru_dataset *d, ru_arena *arena, ru_model_facts *out,
                                          ru_err *err);

/* Build both forms; ru_model_close after the last use of the graphs. `onnx_path` is the file of an
 * ONNX model (NULL: as the job says); it must not change before close.
 * Errors: RU_E_CONFIG when model and data do not match, those of the importer. */
RU_MUST_USE ru_status ru_model_open(const ru_job *job, const ru_model_facts *facts,
                                    const char *onnx_path, ru_arena *arena, ru_model *out,
                                    ru_err *err);

void ru_model_close(ru_model *m); /* accepts zeroed memory and a closed model */

/* Write initial values into the state of `exe`, whose graph is a step built from m->train, with
 * `threads` threads (0: all cores). The values do not depend on the number of threads. */
RU_MUST_USE ru_status ru_model_init(const ru_model *m, uint64_t seed, const ru_graph *step,
                                    ru_exe *exe, uint32_t threads, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Read an ONNX file for training on samples of type x: the symbols of its input, but for the batch,
 * are the sizes of a sample. `info` may be NULL. Errors: those of ru_onnx_read; RU_E_CONFIG when
 * samples do not tell the sizes. */
RU_MUST_USE ru_status ru_model_read_onnx(ru_onnx_file *file, const ru_type *x, ru_arena *arena,
                                         ru_graph *out, ru_onnx_info *info, ru_err *err);
/* The model in steps on caches (ru_zoo_steps), concrete, in `arena`; its parameters are those of
 * the other forms by name. Errors: RU_E_UNSUPPORTED for a model that has no such form. */
RU_MUST_USE ru_status ru_model_steps(const ru_job *job, const ru_model_facts *facts,
                                     const ru_zoo_steps *steps, ru_arena *arena, ru_graph *out,
                                     ru_err *err);
/* Outputs of a model that tells classes apart; 0: it does not. */
int64_t ru_model_outputs(const ru_model *m);
/* The inference form for sequences of `length`, at most the model's own, in `arena`; its parameters
 * are those of the other forms by name. Errors: RU_E_UNSUPPORTED for a model that has no such form,
 * RU_E_CONFIG for a length that it has not. */
RU_MUST_USE ru_status ru_model_of_length(const ru_job *job, const ru_model_facts *facts,
                                         int64_t length, ru_arena *arena, ru_graph *out,
                                         ru_err *err);
/* The moving mean of parameter `p` of a step; absent: the step keeps none. */
ru_value_id ru_model_ema(const ru_graph *step, const ru_value *p);
/* The moving means begin with the parameters. */
RU_MUST_USE ru_status ru_model_ema_begin(const ru_graph *step, ru_exe *exe, ru_err *err);
/* Copy state that both graphs have (by name) from one executable into another. Of parameters with a
 * moving mean that is copied. */
RU_MUST_USE ru_status ru_model_state_copy(const ru_graph *from_graph, ru_exe *from,
                                          const ru_graph *to_graph, ru_exe *to, ru_arena *scratch,
                                          ru_err *err);

#endif
