/* Inside of the step builder: the losses, the optimizer nodes, the parts of a larger step.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_STEP_IMPL_H
#define RU_TRAIN_MODEL_STEP_IMPL_H

#include "train/model/step.h"

typedef struct rui_loss_out {
    ru_value_id loss, correct, count; /* correct and count may be absent */
} rui_loss_out;

/* One of the parts that a batch is cut into, each with a copy of the model. */
typedef struct rui_part {
    uint32_t copy;
    int64_t first, n, of; /* samples [first, first + n) of this step; `of` in the global batch */
    const int64_t *inner; /* of ru_graph_samples; NULL: the model's batch is a number */
} rui_part;

typedef struct rui_stepper {
    const ru_step_options *opt;
    ru_arena *arena;
    ru_graph model;       /* bound */
    ru_graph g;           /* the step so far */
    ru_value_id *map;     /* [model.n_values] of the current micro-batch */
    ru_value_id *home;    /* [model.n_values] state of the step */
    ru_value_id *now;     /* [model.n_values] its newest value */
    const int64_t *inner; /* [model.n_values] of ru_graph_samples, or NULL */
    ru_value_id *copies;  /* [micro][model.n_values] values of the step */
    ru_step_graph *s;
    bool stage; /* of a pipeline: it may have no parameters */
} rui_stepper;

/* step.c: what a step and a stage of one are built of. `map` [src->n_values]: values of `src` in
 * `dst`; entries that are set before stay. */
RU_MUST_USE ru_status rui_step_init(rui_stepper *w, const ru_graph *model, uint32_t micro,
                                    ru_err *err);
RU_MUST_USE ru_status rui_step_append(ru_graph *dst, const ru_graph *src, const rui_part *p,
                                      ru_value_id *map, ru_err *err);
ru_type rui_step_batched(const ru_type *sample, int64_t n);
RU_MUST_USE ru_status rui_step_adapt(ru_build *b, const ru_graph *model, ru_value_id x,
                                     ru_value_id *out, ru_err *err);
RU_MUST_USE ru_status rui_step_params(rui_stepper *w, ru_err *err); /* into w->s */
void rui_step_drop_unused(rui_stepper *w); /* parameters without a gradient */

/* Nodes of the loss of `prediction` against input `y`. */
RU_MUST_USE ru_status rui_step_loss(ru_build *b, const ru_step_options *opt, ru_value_id prediction,
                                    ru_value_id y, rui_loss_out *out, ru_err *err);

/* Loss and figures of s->output against s->y[0], as outputs of the graph. */
RU_MUST_USE ru_status rui_step_judge(ru_build *b, const ru_step_options *opt, ru_step_graph *s,
                                     ru_err *err);

/* step_group.c: the group of the parameter with that name; NULL: none. Does each group match one?
 */
const ru_param_group *rui_step_group(const ru_step_options *opt, const char *name);
RU_MUST_USE ru_status rui_step_groups_check(const ru_step_options *opt, const ru_graph *model,
                                            ru_err *err);

/* Clipping, slots and update nodes for all parameters; fills lr, rates, step, norm. */
/* A stage gets the scale of its gradients from outside: the norm is of all stages. */
void rui_step_optimizer(ru_build *b, const ru_step_options *opt, bool stage, ru_step_graph *s);

/* Moving means of the parameters, after the optimizer's nodes. */
void rui_step_ema(ru_build *b, const ru_step_options *opt, const ru_step_graph *s);

/* share_of: gradients in memory of their own; then the vector of what else is summed. `news`
 * [n_news]: new values of states of the model, replaced by what comes from the sum. */
void rui_step_own_grads(ru_build *b, ru_step_graph *s);
RU_MUST_USE ru_status rui_step_shared(ru_build *b, const ru_step_options *opt, ru_step_graph *s,
                                      ru_value_id *news, uint32_t n_news, ru_err *err);

/* step_order.c, share_of: each gradient is made as early as the graph lets it; only nodes change
 * places. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status rui_step_order(const ru_graph *g, const ru_step_graph *step, ru_err *err);

#endif
