/* Optimizer nodes: one update node per parameter; the executor fuses them over all parameters.
 *
 * Arithmetic is PyTorch's (contracts in world/ops.def). */
#include <stddef.h>

#include "train/model/step_impl.h"

/* A slot of the parameter's type, zero at start, named parameter.suffix. */
static ru_value_id slot(ru_build *b, ru_value_id param, const char *suffix)
{
    const ru_value *p = ru_graph_value(b->g, param);
    const char *name =
        ru_arena_printf(b->g->arena, "%s.%s", p->name != NULL ? p->name : "param", suffix);
    return ru_build_state(b, name, p->type, RU_ROLE_SLOT, NULL);
}

/* Dimensions above 1: biases and norm parameters have one. */
static uint32_t rank_of(const ru_build *b, ru_value_id v)
{
    const ru_type *t = &ru_graph_value(b->g, v)->type;
    uint32_t n = 0;
    for (uint32_t d = 0; d < t->rank; d++) {
        n += t->dims[d] > 1;
    }
    return n;
}

static void sgd(ru_build *b, const ru_optimizer *o, const ru_step_graph *s, uint32_t k,
                ru_value_id scale, double decay)
{
    ru_value_id p = s->params[k], out[2] = {{0}}, m = {0};
    bool momentum = o->momentum > 0;
    if (momentum) {
        m = slot(b, p, "momentum");
    }
    ru_build_node(b, RU_OP_SgdUpdate, (ru_value_id[]){s->lr, scale, p, s->grads[k], m}, 5,
                  (ru_attr[]){RU_AF(momentum, o->momentum), RU_AI(nesterov, o->nesterov),
                              RU_AF(weight_decay, decay), RU_A_END},
                  out, momentum ? 2 : 1);
    ru_build_update(b, p, out[0]);
    if (momentum) {
        ru_build_update(b, m, out[1]);
    }
}

static void adam(ru_build *b, const ru_optimizer *o, const ru_step_graph *s, uint32_t k,
                 ru_value_id scale, double decay)
{
    ru_value_id p = s->params[k], out[3] = {{0}};
    ru_value_id m = slot(b, p, "exp_avg"), v = slot(b, p, "exp_avg_sq");
    ru_build_node(b, RU_OP_AdamUpdate, (ru_value_id[]){s->lr, scale, s->step, p, s->grads[k], m, v},
                  7,
                  (ru_attr[]){RU_AF(beta1, o->beta1), RU_AF(beta2, o->beta2),
                              RU_AF(epsilon, o->epsilon), RU_AF(weight_decay, decay),
                              RU_AI(decoupled, o->kind == RU_OPTIMIZER_ADAMW), RU_A_END},
                  out, 3);
    ru_build_update(b, p, out[0]);
    ru_build_update(b, m, out[1]);
    ru_build_update(b, v, out[2]);
}

static void adagrad(ru_build *b, const ru_optimizer *o, const ru_step_graph *s, uint32_t k,
                    ru_value_id scale, double decay)
{
    ru_value_id p = s->params[k], out[2] = {{0}}, sum = slot(b, p, "sum");
    ru_build_node(b, RU_OP_AdagradUpdate, (ru_value_id[]){s->lr, scale, p, s->grads[k], sum}, 5,
                  (ru_attr[]){RU_AF(epsilon, o->epsilon), RU_AF(weight_decay, decay), RU_A_END},
                  out, 2);
    ru_build_update(b, p, out[0]);
    ru_build_update(b, sum, out[1]);
}

void rui_step_optimizer(ru_build *b, const ru_step_options *opt, ru_step_graph *s)
{
    const ru_optimizer *o = &opt->optimizer;
    s->lr = ru_build_input(b, "lr", ru_type_scalar(RU_F32));
    if (o->kind == RU_OPTIMIZER_ADAM || o->kind == RU_OPTIMIZER_ADAMW) {
        s->step = ru_build_input(b, "step", ru_type_scalar(RU_I64));
    }
    ru_value_id scale = {0};
    if (opt->clip_norm > 0) {
        ru_build_node(b, RU_OP_GlobalNorm, s->grads, s->n_params, NULL, &s->norm, 1);
        scale = ru_build_op1(b, RU_OP_ClipScale, s->norm,
                             (ru_attr[]){RU_AF(clip, opt->clip_norm), RU_A_END});
    }
    for (uint32_t k = 0; k < s->n_params; k++) {
        bool spared = o->decay_matrices && rank_of(b, s->params[k]) < 2;
        double decay = spared ? 0.0 : o->weight_decay;
        switch (o->kind) {
        case RU_OPTIMIZER_SGD:
            sgd(b, o, s, k, scale, decay);
            break;
        case RU_OPTIMIZER_ADAM:
        case RU_OPTIMIZER_ADAMW:
            adam(b, o, s, k, scale, decay);
            break;
        case RU_OPTIMIZER_ADAGRAD:
            adagrad(b, o, s, k, scale, decay);
            break;
        }
    }
}
