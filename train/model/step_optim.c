/* Optimizer nodes: one update node per parameter; the executor fuses them over all parameters.
 *
 * Arithmetic is PyTorch's, that of Lion and LAMB their papers' (contracts in world/graph/ops.def).
 */
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
                ru_value_id lr, ru_value_id scale, double decay)
{
    ru_value_id p = s->params[k], out[2] = {{0}}, m = {0};
    bool momentum = o->momentum > 0;
    if (momentum) {
        m = slot(b, p, "momentum");
    }
    ru_build_node(b, RU_OP_SgdUpdate, (ru_value_id[]){lr, scale, p, s->grads[k], m}, 5,
                  (ru_attr[]){RU_AF(momentum, o->momentum), RU_AI(nesterov, o->nesterov),
                              RU_AF(weight_decay, decay), RU_A_END},
                  out, momentum ? 2 : 1);
    ru_build_update(b, p, out[0]);
    if (momentum) {
        ru_build_update(b, m, out[1]);
    }
}

static void adam(ru_build *b, const ru_optimizer *o, const ru_step_graph *s, uint32_t k,
                 ru_value_id lr, ru_value_id scale, double decay)
{
    ru_value_id p = s->params[k], out[3] = {{0}};
    ru_value_id m = slot(b, p, "exp_avg"), v = slot(b, p, "exp_avg_sq");
    ru_build_node(b, RU_OP_AdamUpdate, (ru_value_id[]){lr, scale, s->step, p, s->grads[k], m, v}, 7,
                  (ru_attr[]){RU_AF(beta1, o->beta1), RU_AF(beta2, o->beta2),
                              RU_AF(epsilon, o->epsilon), RU_AF(weight_decay, decay),
                              RU_AI(decoupled, o->kind == RU_OPTIMIZER_ADAMW), RU_A_END},
                  out, 3);
    ru_build_update(b, p, out[0]);
    ru_build_update(b, m, out[1]);
    ru_build_update(b, v, out[2]);
}

static void adagrad(ru_build *b, const ru_optimizer *o, const ru_step_graph *s, uint32_t k,
                    ru_value_id lr, ru_value_id scale, double decay)
{
    ru_value_id p = s->params[k], out[2] = {{0}}, sum = slot(b, p, "sum");
    ru_build_node(b, RU_OP_AdagradUpdate, (ru_value_id[]){lr, scale, p, s->grads[k], sum}, 5,
                  (ru_attr[]){RU_AF(epsilon, o->epsilon), RU_AF(weight_decay, decay), RU_A_END},
                  out, 2);
    ru_build_update(b, p, out[0]);
    ru_build_update(b, sum, out[1]);
}

static void rmsprop(ru_build *b, const ru_optimizer *o, const ru_step_graph *s, uint32_t k,
                    ru_value_id lr, ru_value_id scale, double decay)
{
    ru_value_id p = s->params[k], out[3] = {{0}}, sq = slot(b, p, "square_avg"), m = {0};
    bool momentum = o->momentum > 0;
    if (momentum) {
        m = slot(b, p, "momentum");
    }
    ru_build_node(b, RU_OP_RmspropUpdate, (ru_value_id[]){lr, scale, p, s->grads[k], sq, m}, 6,
                  (ru_attr[]){RU_AF(alpha, o->alpha), RU_AF(epsilon, o->epsilon),
                              RU_AF(momentum, o->momentum), RU_AF(weight_decay, decay), RU_A_END},
                  out, momentum ? 3 : 2);
    ru_build_update(b, p, out[0]);
    ru_build_update(b, sq, out[1]);
    if (momentum) {
        ru_build_update(b, m, out[2]);
    }
}

static void lion(ru_build *b, const ru_optimizer *o, const ru_step_graph *s, uint32_t k,
                 ru_value_id lr, ru_value_id scale, double decay)
{
    ru_value_id p = s->params[k], out[2] = {{0}}, m = slot(b, p, "exp_avg");
    ru_build_node(b, RU_OP_LionUpdate, (ru_value_id[]){lr, scale, p, s->grads[k], m}, 5,
                  (ru_attr[]){RU_AF(beta1, o->beta1), RU_AF(beta2, o->beta2),
                              RU_AF(weight_decay, decay), RU_A_END},
                  out, 2);
    ru_build_update(b, p, out[0]);
    ru_build_update(b, m, out[1]);
}

static void lamb(ru_build *b, const ru_optimizer *o, const ru_step_graph *s, uint32_t k,
                 ru_value_id lr, ru_value_id scale, double decay)
{
    ru_value_id p = s->params[k], out[3] = {{0}};
    ru_value_id m = slot(b, p, "exp_avg"), v = slot(b, p, "exp_avg_sq");
    ru_build_node(b, RU_OP_LambUpdate, (ru_value_id[]){lr, scale, s->step, p, s->grads[k], m, v}, 7,
                  (ru_attr[]){RU_AF(beta1, o->beta1), RU_AF(beta2, o->beta2),
                              RU_AF(epsilon, o->epsilon), RU_AF(weight_decay, decay), RU_A_END},
                  out, 3);
    ru_build_update(b, p, out[0]);
    ru_build_update(b, m, out[1]);
    ru_build_update(b, v, out[2]);
}

/* The rate of a group's parameters: an input of its own when its factor is not 1. */
static ru_value_id rate_of(ru_build *b, const ru_param_group *group, ru_step_graph *s)
{
    double factor = group != NULL ? group->lr : 1;
    if (factor >= 1 && factor <= 1) {
        return s->lr;
    }
    for (uint32_t k = 0; k < s->n_rates; k++) {
        if (s->rates[k].factor >= factor && s->rates[k].factor <= factor) {
            return s->rates[k].input;
        }
    }
    const char *name = ru_arena_printf(b->g->arena, "lr.%u", s->n_rates + 1);
    ru_step_rate *rate = &s->rates[s->n_rates++];
    *rate = (ru_step_rate){ru_build_input(b, name, ru_type_scalar(RU_F32)), factor};
    return rate->input;
}

/* gradient + prox (p - anchor) */
static ru_value_id pulled(ru_build *b, ru_value_id p, ru_value_id gradient, double prox)
{
    ru_value_id anchor = slot(b, p, RU_ANCHOR_SUFFIX), by = ru_build_const_f32(b, (float)prox);
    ru_value_id away = ru_build_op2(b, RU_OP_Sub, p, anchor, NULL);
    ru_value_id pull = ru_build_op2(b, RU_OP_Mul, away, by, NULL);
    ru_value_id sum = ru_build_op2(b, RU_OP_Add, gradient, pull, NULL);
    if (b->status == RU_OK) { /* this one is the gradient now; passes may fuse the other one away */
        ru_graph_value(b->g, gradient)->role = RU_ROLE_PLAIN;
        ru_graph_value(b->g, sum)->role = RU_ROLE_GRAD;
    }
    return sum;
}

void rui_step_optimizer(ru_build *b, const ru_step_options *opt, bool stage, ru_step_graph *s)
{
    const ru_optimizer *o = &opt->optimizer;
    s->lr = ru_build_input(b, "lr", ru_type_scalar(RU_F32));
    s->rates = RU_NEW(b->g->arena, ru_step_rate, opt->n_groups + 1);
    if (s->rates == NULL) {
        b->status = RU_FAIL(&b->err, RU_E_LIMIT, "the arena of the step graph is full");
        return;
    }
    if (o->kind == RU_OPTIMIZER_ADAM || o->kind == RU_OPTIMIZER_ADAMW ||
        o->kind == RU_OPTIMIZER_LAMB) {
        s->step = ru_build_input(b, "step", ru_type_scalar(RU_I64));
    }
    for (uint32_t k = 0; k < s->n_params && opt->prox > 0; k++) {
        s->grads[k] = pulled(b, s->params[k], s->grads[k], opt->prox);
    }
    ru_value_id scale = {0};
    if (opt->clip_norm > 0 && stage) {
        s->clip = scale = ru_build_input(b, "clip", ru_type_scalar(RU_F32));
    } else if (opt->clip_norm > 0) {
        ru_build_node(b, RU_OP_GlobalNorm, s->grads, s->n_params, NULL, &s->norm, 1);
        scale = ru_build_op1(b, RU_OP_ClipScale, s->norm,
                             (ru_attr[]){RU_AF(clip, opt->clip_norm), RU_A_END});
    }
    for (uint32_t k = 0; k < s->n_params; k++) {
        const ru_param_group *group = rui_step_group(opt, ru_graph_value(b->g, s->params[k])->name);
        ru_value_id lr = rate_of(b, group, s);
        bool spared = o->decay_matrices && rank_of(b, s->params[k]) < 2;
        bool own = group != NULL && group->weight_decay >= 0;
        double decay = spared ? 0.0 : own ? group->weight_decay : o->weight_decay;
        switch (o->kind) {
        case RU_OPTIMIZER_SGD:
            sgd(b, o, s, k, lr, scale, decay);
            break;
        case RU_OPTIMIZER_ADAM:
        case RU_OPTIMIZER_ADAMW:
            adam(b, o, s, k, lr, scale, decay);
            break;
        case RU_OPTIMIZER_ADAGRAD:
            adagrad(b, o, s, k, lr, scale, decay);
            break;
        case RU_OPTIMIZER_RMSPROP:
            rmsprop(b, o, s, k, lr, scale, decay);
            break;
        case RU_OPTIMIZER_LION:
            lion(b, o, s, k, lr, scale, decay);
            break;
        case RU_OPTIMIZER_LAMB:
            lamb(b, o, s, k, lr, scale, decay);
            break;
        }
    }
}

/* What value `state` has after the step. */
static ru_value_id after(const ru_graph *g, ru_value_id state)
{
    for (uint32_t k = 0; k < g->n_updates; k++) {
        if (g->updates[k].state.v == state.v) {
            return g->updates[k].value;
        }
    }
    return state;
}

/* Moving means of the parameters: e' = e - (1 - ema) * (e - p'), which is a step of SGD with rate
 * 1 - ema, decay 1 and gradient -p'. All stand behind the last update, so that they run as one. */
void rui_step_ema(ru_build *b, const ru_step_options *opt, const ru_step_graph *s)
{
    if (!(opt->ema > 0)) {
        return;
    }
    ru_value_id rate = ru_build_const_f32(b, (float)(1 - opt->ema));
    ru_value_id sign = ru_build_const_f32(b, -1.0f);
    for (uint32_t k = 0; k < s->n_params; k++) {
        ru_value_id mean = slot(b, s->params[k], RU_EMA_SUFFIX), out = {0};
        ru_build_node(b, RU_OP_SgdUpdate,
                      (ru_value_id[]){rate, sign, mean, after(b->g, s->params[k]), {0}}, 5,
                      (ru_attr[]){RU_AF(weight_decay, 1.0), RU_A_END}, &out, 1);
        ru_build_update(b, mean, out);
    }
}
