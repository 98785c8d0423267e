/* Gradients and state of an executable as vectors, the same for owner and workers.
 *
 * Thread: that of the executable. */
#ifndef RU_TRAIN_DRIVER_SUMMED_IMPL_H
#define RU_TRAIN_DRIVER_SUMMED_IMPL_H

#include "train/driver/trainer_impl.h"

typedef struct rui_summed_grad {
    float *data; /* [count] in the executable */
    int64_t count;
} rui_summed_grad;

typedef struct rui_summed_vec {
    rui_summed_grad *grads;    /* [n_grads] of parameters, then what else is summed */
    const ru_value_id *states; /* [n_states] */
    uint32_t n_grads, n_states;
    int64_t count;       /* floats of all gradients */
    int64_t state_bytes; /* of all states */
} rui_summed_vec;

/* The step of n samples of a batch of `of`, with gradients that leave: t->step, t->exe, which the
 * trainer closes. Owner: graph and vectors in `arena`. */
RU_MUST_USE ru_status rui_summed_build(rui_trainer *t, int64_t n, int64_t of, ru_arena *arena,
                                       rui_summed_vec *out, ru_err *err);
void rui_summed_grads_read(const rui_summed_vec *v, float *into);
void rui_summed_grads_write(const rui_summed_vec *v, const float *from);
RU_MUST_USE ru_status rui_summed_state_read(const rui_summed_vec *v, rui_trainer *t, void *into,
                                            ru_err *err);
RU_MUST_USE ru_status rui_summed_state_write(const rui_summed_vec *v, rui_trainer *t,
                                             const void *from, ru_err *err);

#endif
