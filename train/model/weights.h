/* Start values from a safetensors file: tensors by name, renamed by patterns where a file has other
 * names.
 *
 * Parameters and running statistics take part. A file of PyTorch's counts of batches
 * (num_batches_tracked) is read without them.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_WEIGHTS_H
#define RU_TRAIN_MODEL_WEIGHTS_H

#include "exec/exe.h"

RU_API_BEGIN

/* Tensors of the file whose names match `from` are called `to`: each * of `to` becomes what the
 * same * of `from` stands for. An empty `to` leaves them out. The first rule that matches. */
typedef struct ru_weight_rule {
    const char *from, *to;
} ru_weight_rule;

typedef struct ru_weights_options {
    const char *path;
    const ru_weight_rule *rules; /* [n_rules] */
    uint32_t n_rules;
    bool partial; /* what does not fit is left out: tensors of the model keep their values */
} ru_weights_options;

/* Into the state of `exe`, whose graph is `step`. Numbers of f16, bf16 and f64 are converted.
 * *said: how many tensors were read, and what did not fit; in `arena`. Errors: those of the file;
 * RU_E_DATA when names or shapes do not fit, naming them. */
RU_MUST_USE ru_status ru_weights_load(const ru_weights_options *opt, const ru_graph *step,
                                      ru_exe *exe, ru_arena *arena, const char **said, ru_err *err);

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Has `to` no more * than `from`? Errors: RU_E_CONFIG. */
RU_MUST_USE ru_status ru_weight_rule_check(const ru_weight_rule *r, ru_err *err);

#endif
