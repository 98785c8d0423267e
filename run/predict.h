/* Using a trained model: predictions for rows or files, and text from a language model.
 *
 * Thread: one at a time. */
#ifndef RU_RUN_PREDICT_H
#define RU_RUN_PREDICT_H

#include "run/rundir.h"

RU_API_BEGIN

typedef struct ru_predictor ru_predictor;

/* Open the model of `r` for batches of up to `batch` samples; a model whose batch is fixed has that
 * one instead (ru_predictor_batch). Lives in `arena`. */
RU_MUST_USE ru_status ru_predictor_open(const ru_rundir *r, int64_t batch,
                                        const ru_exe_options *exe_opt, ru_arena *arena,
                                        ru_predictor **out, ru_err *err);
void ru_predictor_close(ru_predictor *p); /* NULL is fine */

const ru_model *ru_predictor_model(const ru_predictor *p);
int64_t ru_predictor_batch(const ru_predictor *p);
/* Elements of one sample's input and of its output. */
int64_t ru_predictor_inputs(const ru_predictor *p);
int64_t ru_predictor_outputs(const ru_predictor *p);

/* Where the input of sample `k` of the batch, and of those behind it, belongs: of the type of
 * facts.x, row-major. Fill samples from 0 on, then run. */
void *ru_predictor_input(ru_predictor *p, int64_t k);
/* Outputs [batch, outputs], f32, view until the next run. */
RU_MUST_USE ru_status ru_predictor_run(ru_predictor *p, const float **outputs, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Had sample k of the last run an input without a value (NaN), where data.columns.missing is drop
 * or data.strict is false? Then its outputs say nothing. */
bool ru_predictor_left_out(const ru_predictor *p, int64_t k);
/* Do labels of this type say one class of `classes`: its number, or a vector with the largest
 * element there? */
bool ru_label_is_class(const ru_type *label, int64_t classes);
/* The class that such a label says. */
int64_t ru_label_class(const ru_type *label, const void *at);
/* Logits of one sample -> probabilities, in place. `binary`: one independent probability each. */
void ru_softmax(float *x, int64_t n);

#endif
