/* Inside of the step builder: the losses, the optimizer nodes, the parts of a larger step.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_STEP_IMPL_H
#define RU_TRAIN_MODEL_STEP_IMPL_H

#include "train/model/step.h"

typedef struct rui_loss_out {
    ru_value_id loss, correct, count; /* correct and count may be absent */
} rui_loss_out;

/* Nodes of the loss of `prediction` against input `y`. */
RU_MUST_USE ru_status rui_step_loss(ru_build *b, const ru_step_options *opt, ru_value_id prediction,
                                    ru_value_id y, rui_loss_out *out, ru_err *err);

/* step_group.c: the group of the parameter with that name; NULL: none. Does each group match one?
 */
const ru_param_group *rui_step_group(const ru_step_options *opt, const char *name);
RU_MUST_USE ru_status rui_step_groups_check(const ru_step_options *opt, const ru_graph *model,
                                            ru_err *err);

/* Clipping, slots and update nodes for all parameters; fills lr, rates, step, norm. */
void rui_step_optimizer(ru_build *b, const ru_step_options *opt, ru_step_graph *s);

/* Moving means of the parameters, after the optimizer's nodes. */
void rui_step_ema(ru_build *b, const ru_step_options *opt, const ru_step_graph *s);

/* share_of: gradients in memory of their own; then the vector of what else is summed. `news`
 * [n_news]: new values of states of the model, replaced by what comes from the sum. */
void rui_step_own_grads(ru_build *b, ru_step_graph *s);
RU_MUST_USE ru_status rui_step_shared(ru_build *b, const ru_step_options *opt, ru_step_graph *s,
                                      ru_value_id *news, uint32_t n_news, ru_err *err);

#endif
