#include "train/model/step.h"

#include <string.h>

#include "exec/ref.h"
#include "train/model/step_impl.h"
#include "world/onnx/onnx.h"
#include "world/pass/pass.h"

/* -- copying the model into the step ----------------------------------------------------------- */

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the step graph is full");
}

/* A model of fixed batch is always cut alike, so every numbering by the sample will do. */
static int64_t inner_of(const ru_graph *src, ru_value_id x, const rui_part *p)
{
    if (p->inner != NULL) {
        return p->inner[x.v];
    }
    int64_t count = ru_type_count(&ru_graph_value(src, x)->type);
    return count % p->n == 0 ? count / p->n : RU_SAMPLES_NONE;
}

/* Node `n` of a part: dropout is told which sample each element belongs to. */
static ru_status tell_part(const ru_graph *dst, const ru_graph *src, ru_node *n, const rui_part *p,
                           ru_err *err)
{
    if (n->op != RU_OP_DropoutTrain) {
        return RU_OK;
    }
    int64_t inner = inner_of(src, n->in[0], p);
    if (inner == RU_SAMPLES_UNKNOWN) {
        return p->of > p->n ? RU_FAIL(err, RU_E_UNSUPPORTED,
                                      "dropout%s%s: the model does not show which elements belong "
                                      "to which sample, so a batch cannot be split; train with one "
                                      "worker and without train.accumulate",
                                      n->name != NULL ? " " : "", n->name != NULL ? n->name : "")
                            : RU_OK;
    }
    const ru_attr told[] = {RU_AI(samples, p->n), RU_AI(inner, inner), RU_AI(start, p->first)};
    ru_attr *attrs = RU_NEW(dst->arena, ru_attr, n->n_attrs + RU_ARRAY_LEN(told));
    if (attrs == NULL) {
        return full(err);
    }
    memcpy(attrs, n->attrs, n->n_attrs * sizeof *attrs);
    memcpy(attrs + n->n_attrs, told, sizeof told);
    n->attrs = attrs;
    n->n_attrs += RU_ARRAY_LEN(told);
    return RU_OK;
}

static ru_status append_node(ru_graph *dst, const ru_graph *src, const ru_node *n,
                             const rui_part *p, ru_value_id *map, ru_err *err)
{
    ru_arena *a = dst->arena;
    ru_value_id *in = RU_NEW(a, ru_value_id, n->n_in), *out = RU_NEW(a, ru_value_id, n->n_out);
    if (in == NULL || out == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        in[k] = map[n->in[k].v];
    }
    ru_node told = *n;
    RU_TRY(tell_part(dst, src, &told, p, err));
    RU_TRY(ru_graph_add_node(dst, n->op, n->name, in, n->n_in, told.attrs, told.n_attrs, out,
                             n->n_out, err));
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (n->out[k].v == 0) {
            continue;
        }
        const ru_value *from = ru_graph_value(src, n->out[k]);
        ru_value *to = ru_graph_value(dst, out[k]);
        to->type = from->type;
        to->role = from->role;
        to->name = p->copy == 0 ? from->name : NULL;
        map[n->out[k].v] = out[k];
    }
    return RU_OK;
}

/* Copy all of `src` (concrete) but its inputs into `dst`. map[src id] is filled; entries set before
 * the call (inputs, shared state) are kept. State that is not mapped yet is created. Outputs and
 * updates are left to the caller. */
ru_status rui_step_append(ru_graph *dst, const ru_graph *src, const rui_part *p, ru_value_id *map,
                          ru_err *err)
{
    for (uint32_t v = 1; v < src->n_values; v++) {
        const ru_value *from = &src->values[v];
        if (map[v].v != 0 || (from->kind != RU_VALUE_CONST && from->kind != RU_VALUE_STATE)) {
            continue;
        }
        ru_value proto = *from;
        proto.name = from->kind == RU_VALUE_STATE || p->copy == 0 ? from->name : NULL;
        RU_TRY(ru_graph_add_value(dst, &proto, &map[v], err));
    }
    for (uint32_t k = 1; k < src->n_nodes; k++) {
        RU_TRY(append_node(dst, src, &src->nodes[k], p, map, err));
    }
    return RU_OK;
}

/* -- inputs ------------------------------------------------------------------------------------ */

ru_type rui_step_batched(const ru_type *sample, int64_t n)
{
    ru_type t = {.dtype = sample->dtype, .rank = sample->rank + 1};
    t.dims[0] = n;
    for (uint32_t d = 0; d < sample->rank && d + 1 < RU_RANK_MAX; d++) {
        t.dims[d + 1] = sample->dims[d];
    }
    return t;
}

/* The model with its batch as a number. */
static ru_status bind_batch(const ru_graph *model, int64_t n, ru_arena *arena, ru_graph *out,
                            ru_err *err)
{
    if (model->n_inputs != 1 || model->n_outputs < 1) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the model has %u inputs and %u outputs; training needs one input and one "
                       "output (the logits or predictions)",
                       model->n_inputs, model->n_outputs);
    }
    const ru_type *t = &ru_graph_value(model, model->inputs[0])->type;
    if (t->rank == 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the model's input is a scalar; it needs a batch dimension");
    }
    if (ru_dim_is_symbolic(t->dims[0])) {
        ru_fold_ops fold = ru_ref_fold_ops();
        ru_graph bound;
        RU_TRY(ru_graph_bind(model, ru_dim_sym(t->dims[0]), n, arena, &bound, err));
        return ru_onnx_settle(&bound, &fold, arena, out, err);
    }
    if (t->dims[0] != n) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the model's batch is fixed at %lld, but the job computes %lld samples at a "
                       "time (train.batch by train.accumulate and data-parallel workers; of an "
                       "evaluation an even part of its samples); make them equal",
                       (long long)t->dims[0], (long long)n);
    }
    *out = *model;
    return RU_OK;
}

/* Are the same axes, but for those of size 1, in another order? */
static bool is_turned(const ru_type *a, const ru_type *b)
{
    int64_t x[2][RU_RANK_MAX] = {{0}};
    uint32_t n[2] = {0, 0};
    const ru_type *types[] = {a, b};
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t d = 1; d < types[k]->rank; d++) {
            x[k][n[k]] = types[k]->dims[d];
            n[k] += types[k]->dims[d] != 1;
        }
    }
    return n[0] == n[1] && memcmp(x[0], x[1], n[0] * sizeof x[0][0]) != 0;
}

/* `x` as the model wants it: same count, its dtype and shape. */
ru_status rui_step_adapt(ru_build *b, const ru_graph *model, ru_value_id x, ru_value_id *out,
                         ru_err *err)
{
    const ru_type *want = &ru_graph_value(model, model->inputs[0])->type;
    const ru_type *have = &ru_graph_value(b->g, x)->type;
    bool turned = is_turned(want, have);
    if (ru_type_count(want) != ru_type_count(have) || turned) {
        char w[160], h[160];
        ru_type_print(model, want, w, sizeof w);
        ru_type_print(b->g, have, h, sizeof h);
        return RU_FAIL(err, RU_E_CONFIG, "the model's input is %s but a batch of the data is %s%s",
                       w, h, turned ? "; transpose the data" : "");
    }
    if (have->dtype != want->dtype) {
        x = ru_build_op1(b, RU_OP_Cast, x,
                         (ru_attr[]){RU_AI(to, ru_dtype_onnx(want->dtype)), RU_A_END});
    }
    if (!ru_type_equal(want, &ru_graph_value(b->g, x)->type)) {
        x = ru_build_op2(b, RU_OP_Reshape, x, ru_build_const_i64s(b, want->dims, want->rank), NULL);
    }
    *out = x;
    return RU_OK;
}

/* -- the training step ------------------------------------------------------------------------- */

/* Inputs, model and loss of micro-batch j; gives the loss divided by the number of micro-batches.
 */
static ru_status forward(rui_stepper *w, uint32_t j, ru_value_id *loss, rui_loss_out *judged,
                         ru_err *err)
{
    ru_build b;
    ru_build_init(&b, &w->g);
    uint32_t k = w->s->micro;
    int64_t n = w->opt->batch / k;
    const rui_part p = {.copy = j,
                        .first = n * j,
                        .n = n,
                        .of = w->opt->share_of > 0 ? w->opt->share_of : w->opt->batch,
                        .inner = w->inner};
    const char *xn = k == 1 ? "x" : ru_arena_printf(w->arena, "x%u", j);
    const char *yn = k == 1 ? "y" : ru_arena_printf(w->arena, "y%u", j);
    w->s->x[j] = ru_build_input(&b, xn, rui_step_batched(&w->opt->x, n));
    w->s->y[j] = ru_build_input(&b, yn, rui_step_batched(&w->opt->y, n));
    memset(w->map, 0, (size_t)w->model.n_values * sizeof *w->map);
    for (uint32_t v = 1; v < w->model.n_values; v++) {
        w->map[v] = w->now[v];
    }
    RU_TRY(rui_step_adapt(&b, &w->model, w->s->x[j], &w->map[w->model.inputs[0].v], err));
    RU_TRY(ru_build_finish(&b, err));
    RU_TRY(rui_step_append(&w->g, &w->model, &p, w->map, err));
    memcpy(w->copies + (size_t)j * w->model.n_values, w->map, w->model.n_values * sizeof *w->map);
    for (uint32_t v = 1; v < w->model.n_values; v++) {
        if (j == 0 && w->model.values[v].kind == RU_VALUE_STATE) {
            w->home[v] = w->now[v] = w->map[v];
        }
    }
    for (uint32_t u = 0; u < w->model.n_updates; u++) {
        const ru_update *up = &w->model.updates[u];
        w->now[up->state.v] = w->map[up->value.v];
    }
    RU_TRY(rui_step_loss(&b, w->opt, w->map[w->model.outputs[0].v], w->s->y[j], judged, err));
    *loss = judged->loss;
    double weight = w->opt->share_of > 0 ? (double)n / (double)w->opt->share_of : 1.0 / (double)k;
    if (k > 1 || (w->opt->share_of > 0 && w->opt->share_of != n)) {
        *loss = ru_build_op2(&b, RU_OP_Mul, *loss, ru_build_const_f32(&b, (float)weight), NULL);
    }
    return ru_build_finish(&b, err);
}

static void list_forward(ru_step_graph *s, ru_value_id loss, const rui_loss_out *judged)
{
    const ru_value_id ends[] = {loss, judged->correct, judged->count};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ends); k++) {
        if (ends[k].v != 0) {
            s->forward[s->n_forward++] = ends[k];
        }
    }
}

/* Parameters of the model, as ids of the step. */
ru_status rui_step_params(rui_stepper *w, ru_err *err)
{
    ru_step_graph *s = w->s;
    s->params = RU_NEW(w->arena, ru_value_id, w->model.n_values);
    s->grads = RU_NEW(w->arena, ru_value_id, w->model.n_values);
    if (s->params == NULL || s->grads == NULL) {
        return full(err);
    }
    for (uint32_t v = 1; v < w->model.n_values; v++) {
        const ru_value *p = &w->model.values[v];
        if (p->kind != RU_VALUE_STATE || p->role != RU_ROLE_PARAM) {
            continue;
        }
        const ru_param_group *group = rui_step_group(w->opt, p->name);
        if (group != NULL && group->freeze) {
            s->frozen += ru_type_count(&p->type);
        } else {
            s->params[s->n_params++] = w->home[v];
        }
    }
    if (w->stage) {
        return RU_OK;
    }
    if (s->n_params == 0 && s->frozen > 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.groups: all parameters are frozen; nothing is left to train");
    }
    if (s->n_params == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "the model has no parameters to train");
    }
    return RU_OK;
}

static ru_value_id add(ru_build *b, ru_op op, ru_value_id a, ru_value_id x)
{
    return a.v == 0 ? x : x.v == 0 ? a : ru_build_op2(b, op, a, x, NULL);
}

/* Backward part of micro-batch j, added to the sums so far. */
static ru_status backward(rui_stepper *w, ru_value_id loss, const rui_loss_out *judged, ru_err *err)
{
    ru_step_graph *s = w->s;
    ru_value_id *grads = RU_NEW(w->arena, ru_value_id, s->n_params);
    if (grads == NULL) {
        return full(err);
    }
    ru_graph next = {0};
    RU_TRY(ru_graph_grad(&w->g, loss, s->params, s->n_params, w->arena, &next, grads, err));
    w->g = next;
    ru_build b;
    ru_build_init(&b, &w->g);
    for (uint32_t k = 0; k < s->n_params; k++) {
        ru_value_id sum = add(&b, RU_OP_AddInto, s->grads[k], grads[k]);
        if (s->grads[k].v != 0 && grads[k].v != 0 && sum.v != 0) {
            /* Also a sum that more is added to: its parts are no gradients that leave. */
            ru_graph_value(&w->g, sum)->role = RU_ROLE_GRAD;
        }
        s->grads[k] = sum;
    }
    s->loss = add(&b, RU_OP_Add, s->loss, loss);
    s->correct = add(&b, RU_OP_Add, s->correct, judged->correct);
    s->count = add(&b, RU_OP_Add, s->count, judged->count);
    return ru_build_finish(&b, err);
}

/* Keep only parameters the loss depends on. */
void rui_step_drop_unused(rui_stepper *w)
{
    ru_step_graph *s = w->s;
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n_params; k++) {
        if (s->grads[k].v != 0) {
            s->params[n] = s->params[k];
            s->grads[n] = s->grads[k];
            ru_graph_value(&w->g, s->grads[n])->role = RU_ROLE_GRAD;
            s->parameters += ru_type_count(&ru_graph_value(&w->g, s->params[n])->type);
            n++;
        }
    }
    s->n_params = n;
}

static ru_status list_places(rui_stepper *w, ru_err *err)
{
    ru_step_place *places = RU_NEW(w->arena, ru_step_place, w->g.n_values);
    int64_t n = w->opt->batch / w->s->micro;
    if (places == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; w->inner != NULL && k < w->s->micro * w->model.n_values; k++) {
        int64_t inner = w->inner[k % w->model.n_values];
        if (inner > 0 && w->copies[k].v != 0) {
            places[w->copies[k].v] =
                (ru_step_place){.inner = inner, .first = n * (k / w->model.n_values), .n = n};
        }
    }
    w->s->places = places;
    return RU_OK;
}

static ru_status finish(rui_stepper *w, ru_err *err)
{
    ru_step_graph *s = w->s;
    rui_step_drop_unused(w);
    if (s->n_params == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "the loss depends on no parameter of the model");
    }
    ru_build b;
    ru_build_init(&b, &w->g);
    ru_value_id *states = RU_NEW(w->arena, ru_value_id, w->model.n_values);
    ru_value_id *news = RU_NEW(w->arena, ru_value_id, w->model.n_values);
    uint32_t n = 0;
    if (states == NULL || news == NULL) {
        return full(err);
    }
    for (uint32_t v = 1; v < w->model.n_values; v++) {
        if (w->home[v].v != w->now[v].v) {
            states[n] = w->home[v];
            news[n++] = w->now[v];
        }
    }
    if (w->opt->share_of > 0) {
        rui_step_own_grads(&b, s);
        RU_TRY(rui_step_shared(&b, w->opt, s, news, n, err));
    }
    for (uint32_t k = 0; k < n; k++) {
        ru_build_update(&b, states[k], news[k]);
    }
    rui_step_optimizer(&b, w->opt, false, s);
    rui_step_ema(&b, w->opt, s);
    ru_build_output(&b, s->loss, "loss");
    if (s->correct.v != 0) {
        ru_build_output(&b, s->correct, "correct");
        ru_build_output(&b, s->count, "count");
    }
    if (s->norm.v != 0) {
        ru_build_output(&b, s->norm, "norm");
    }
    RU_TRY(ru_build_finish(&b, err));
    RU_TRY(w->opt->share_of > 0 ? rui_step_order(&w->g, s, err) : RU_OK);
    RU_TRY(ru_graph_verify(&w->g, err));
    s->graph = w->g;
    return list_places(w, err);
}

ru_status rui_step_init(rui_stepper *w, const ru_graph *model, uint32_t micro, ru_err *err)
{
    RU_TRY(bind_batch(model, w->opt->batch / micro, w->arena, &w->model, err));
    int64_t batch = ru_graph_value(model, model->inputs[0])->type.dims[0];
    if (ru_dim_is_symbolic(batch)) {
        w->inner = ru_graph_samples(model, ru_dim_sym(batch), w->arena);
        if (w->inner == NULL) {
            return full(err);
        }
    }
    RU_TRY(ru_graph_init(&w->g, w->arena, model->name, err));
    w->map = RU_NEW(w->arena, ru_value_id, w->model.n_values);
    w->home = RU_NEW(w->arena, ru_value_id, w->model.n_values);
    w->now = RU_NEW(w->arena, ru_value_id, w->model.n_values);
    w->copies = RU_NEW(w->arena, ru_value_id, (int64_t)w->model.n_values * micro);
    w->s->micro = micro;
    w->s->x = RU_NEW(w->arena, ru_value_id, micro);
    w->s->y = RU_NEW(w->arena, ru_value_id, micro);
    if (w->map == NULL || w->home == NULL || w->now == NULL || w->copies == NULL ||
        w->s->x == NULL || w->s->y == NULL) {
        return full(err);
    }
    return RU_OK;
}

ru_status ru_step_build(const ru_graph *model, const ru_step_options *opt, ru_arena *arena,
                        ru_step_graph *out, ru_err *err)
{
    uint32_t micro = opt->accumulate > 0 ? opt->accumulate : 1;
    if (micro > RU_ACCUMULATE_MAX || opt->batch < 1 || opt->batch % micro != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "a batch of %lld samples cannot be split into %u equal parts",
                       (long long)opt->batch, micro);
    }
    if (opt->share_of != 0 && opt->share_of < opt->batch) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "a share of %lld samples is not possible in a batch of %lld",
                       (long long)opt->batch, (long long)opt->share_of);
    }
    ru_step_graph s = {0};
    rui_stepper w = {.opt = opt, .arena = arena, .s = &s};
    RU_TRY(rui_step_groups_check(opt, model, err));
    RU_TRY(rui_step_init(&w, model, micro, err));
    for (uint32_t j = 0; j < micro; j++) {
        ru_value_id loss;
        rui_loss_out judged;
        RU_TRY(forward(&w, j, &loss, &judged, err));
        if (micro == 1) {
            list_forward(&s, loss, &judged);
        }
        if (j == 0) {
            RU_TRY(rui_step_params(&w, err));
        }
        RU_TRY(backward(&w, loss, &judged, err));
    }
    RU_TRY(finish(&w, err));
    *out = s;
    return RU_OK;
}

/* -- the evaluation step ----------------------------------------------------------------------- */

ru_status rui_step_judge(ru_build *b, const ru_step_options *opt, ru_step_graph *s, ru_err *err)
{
    rui_loss_out judged;
    RU_TRY(rui_step_loss(b, opt, s->output, s->y[0], &judged, err));
    s->loss = judged.loss;
    s->correct = judged.correct;
    s->count = judged.count;
    ru_build_output(b, s->loss, "loss");
    if (s->correct.v != 0) {
        ru_build_output(b, s->correct, "correct");
        ru_build_output(b, s->count, "count");
    }
    if (opt->outputs) {
        ru_build_output(b, s->output, NULL);
    }
    return RU_OK;
}

ru_status ru_step_build_eval(const ru_graph *model, const ru_step_options *opt, ru_arena *arena,
                             ru_step_graph *out, ru_err *err)
{
    ru_step_graph s = {0};
    rui_stepper w = {.opt = opt, .arena = arena, .s = &s};
    RU_TRY(rui_step_init(&w, model, 1, err));
    ru_build b;
    ru_build_init(&b, &w.g);
    bool labels = opt->y.dtype != RU_NONE;
    s.x[0] = ru_build_input(&b, "x", rui_step_batched(&opt->x, opt->batch));
    if (labels) {
        s.y[0] = ru_build_input(&b, "y", rui_step_batched(&opt->y, opt->batch));
    }
    RU_TRY(rui_step_adapt(&b, &w.model, s.x[0], &w.map[w.model.inputs[0].v], err));
    RU_TRY(ru_build_finish(&b, err));
    const rui_part all = {.n = opt->batch, .of = opt->batch, .inner = w.inner};
    RU_TRY(rui_step_append(&w.g, &w.model, &all, w.map, err));
    s.output = w.map[w.model.outputs[0].v];
    if (labels) {
        RU_TRY(rui_step_judge(&b, opt, &s, err));
    } else {
        ru_build_output(&b, s.output, NULL);
    }
    RU_TRY(ru_build_finish(&b, err));
    RU_TRY(ru_graph_verify(&w.g, err));
    s.graph = w.g;
    *out = s;
    return RU_OK;
}
