/* Cutting a step into stages: the forward model by its nodes, then loss, gradients and optimizer
 * of each part, the last one first, because it says which values get gradients; and an evaluation,
 * the inference form at the same layers. */
#include <string.h>

#include "base/str.h"
#include "train/model/stage_impl.h"
#include "train/model/step_impl.h"
#include "world/pass/pass.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the step graph is full");
}

/* -- where the stages begin -------------------------------------------------------------------- */

bool rui_layer_has(const char *layer, const char *name)
{
    size_t n = strlen(layer);
    return name != NULL && strncmp(name, layer, n) == 0 && (name[n] == 0 || name[n] == '.');
}

/* The first node of a layer; 0: there is none. */
static uint32_t first_of(const ru_graph *g, const char *layer)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        bool here = n->name != NULL && strcmp(n->name, layer) == 0;
        for (uint32_t k = 0; k < n->n_in && !here; k++) {
            const ru_value *v = &g->values[n->in[k].v];
            here = v->kind == RU_VALUE_STATE && rui_layer_has(layer, v->name);
        }
        if (here) {
            return i;
        }
    }
    return 0;
}

const char *rui_layer_names(const ru_graph *g, ru_arena *arena)
{
    enum { NAMES_MAX = 12 };
    ru_text t = ru_text_arena(arena);
    const char *last = "";
    int64_t last_n = 0;
    uint32_t n = 0;
    for (uint32_t v = 1; v < g->n_values && n < NAMES_MAX; v++) {
        const char *name = g->values[v].name;
        const char *dot = name != NULL ? strrchr(name, '.') : NULL;
        if (g->values[v].kind != RU_VALUE_STATE || dot == NULL ||
            (dot - name == last_n && strncmp(name, last, (size_t)last_n) == 0)) {
            continue;
        }
        last = name;
        last_n = dot - name;
        ru_text_putf(&t, "%s%.*s", n++ > 0 ? ", " : "", (int)last_n, last);
    }
    return n > 0 ? t.p : "none with a name";
}

typedef struct cuts {
    const char *const *at; /* [n] */
    uint32_t n;
} cuts;

static ru_status find_parts(void *self, const ru_graph *g, const bool *held, ru_arena *arena,
                            uint32_t **out, uint32_t *n_parts, ru_err *err)
{
    (void)held;
    const cuts *all = self;
    const char *const *cut = all->at;
    uint32_t n_cut = all->n;
    uint32_t *part = RU_NEW(arena, uint32_t, g->n_nodes), before = 1;
    if (part == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n_cut; k++) {
        uint32_t at = first_of(g, cut[k]);
        if (at == 0) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.pipeline.cut: the model has no layer '%.80s'; its layers are %s",
                           cut[k], rui_layer_names(g, arena));
        }
        if (at <= before) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.pipeline.cut: no layer stands between %s%.80s%s and '%.80s', so "
                           "a stage would be empty; name layers in the order of the model",
                           k > 0 ? "'" : "", k > 0 ? cut[k - 1] : "the input", k > 0 ? "'" : "",
                           cut[k]);
        }
        for (uint32_t i = at; i < g->n_nodes; i++) {
            part[i] = k + 1;
        }
        before = at;
    }
    *out = part;
    *n_parts = n_cut + 1;
    return RU_OK;
}

/* Parameters that learn: stages that read one of them have it together. */
static ru_status list_learning(const ru_graph *g, const ru_step_options *opt, ru_arena *arena,
                               bool **out, ru_err *err)
{
    bool *learns = RU_NEW(arena, bool, g->n_values);
    for (uint32_t v = 1; v < g->n_values && learns != NULL; v++) {
        const ru_value *x = &g->values[v];
        const ru_param_group *group = rui_step_group(opt, x->name);
        learns[v] = x->kind == RU_VALUE_STATE && x->role == RU_ROLE_PARAM &&
                    (group == NULL || !group->freeze);
    }
    *out = learns;
    return learns != NULL ? RU_OK : full(err);
}

/* A state that forward parts replace would have two new values. */
static ru_status check_stats(const ru_graph *g, const rui_cutting *c, const uint32_t *part_of,
                             ru_arena *arena, ru_err *err)
{
    uint32_t *reader = RU_NEW(arena, uint32_t, g->n_values); /* stage + 1 */
    bool *replaced = RU_NEW(arena, bool, g->n_values);
    if (reader == NULL || replaced == NULL) {
        return full(err);
    }
    for (uint32_t u = 0; u < g->n_updates; u++) {
        replaced[g->updates[u].state.v] = true;
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            uint32_t v = g->nodes[i].in[k].v;
            if (!replaced[v]) {
                continue;
            }
            if (reader[v] != 0 && reader[v] != part_of[i] + 1) {
                return RU_FAIL(err, RU_E_CONFIG,
                               "%s: %ss %u and %u both use the running statistic '%s'; cut so "
                               "that one %s has all layers that share it, or train data parallel",
                               c->key, c->part, reader[v], part_of[i] + 1,
                               g->values[v].name != NULL ? g->values[v].name : "a state", c->part);
            }
            reader[v] = part_of[i] + 1;
        }
    }
    return RU_OK;
}

/* -- one stage --------------------------------------------------------------------------------- */

typedef struct stager {
    const rui_cutting *how;
    const ru_graph *whole;     /* bound */
    const ru_value_id *values; /* [n_edges] of `whole` */
    ru_stages *all;
    uint32_t k;
    ru_stage *s;
    rui_stepper w;
} stager;

static bool is_last(const stager *c)
{
    return c->k + 1 == c->all->n;
}

/* Samples and what earlier stages make. */
static ru_status inputs(stager *c, ru_build *b, ru_err *err)
{
    rui_stepper *w = &c->w;
    ru_step_graph *s = &c->s->step;
    for (uint32_t i = 0; i < w->model.n_inputs; i++) {
        ru_value_id id = w->model.inputs[i];
        const ru_type type = ru_graph_value(&w->model, id)->type;
        if (id.v == c->whole->inputs[0].v) {
            s->x[0] = ru_build_input(b, "x", rui_step_batched(&w->opt->x, w->opt->batch));
            RU_TRY(rui_step_adapt(b, c->whole, s->x[0], &w->map[id.v], err));
        } else {
            w->map[id.v] = ru_build_input(b, ru_arena_printf(w->arena, "in.%u", id.v), type);
        }
    }
    return ru_build_finish(b, err);
}

static void put_once(ru_value_id *list, uint32_t *n, ru_value_id v)
{
    for (uint32_t k = 0; k < *n; k++) {
        if (list[k].v == v.v) {
            return;
        }
    }
    list[(*n)++] = v;
}

static ru_status check_output(const stager *c, ru_err *err)
{
    return c->w.map[c->whole->outputs[0].v].v != 0
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG, "%s: the last %s does not compute the model's output",
                         c->how->key, c->how->part);
}

static ru_status forward(stager *c, ru_value_id *loss, rui_loss_out *judged, ru_err *err)
{
    rui_stepper *w = &c->w;
    ru_step_graph *s = &c->s->step;
    const rui_part p = {.n = w->opt->batch, .of = w->opt->share_of, .inner = w->inner};
    ru_build b;
    ru_build_init(&b, &w->g);
    RU_TRY(inputs(c, &b, err));
    RU_TRY(rui_step_append(&w->g, &w->model, &p, w->map, err));
    for (uint32_t v = 1; v < w->model.n_values; v++) {
        w->home[v] = w->model.values[v].kind == RU_VALUE_STATE ? w->map[v] : (ru_value_id){0};
    }
    if (is_last(c)) {
        RU_TRY(check_output(c, err));
        s->y[0] = ru_build_input(&b, "y", rui_step_batched(&w->opt->y, w->opt->batch));
        RU_TRY(rui_step_loss(&b, w->opt, w->map[c->whole->outputs[0].v], s->y[0], judged, err));
        *loss = judged->loss;
        if (w->opt->share_of != w->opt->batch) {
            double weight = (double)w->opt->batch / (double)w->opt->share_of;
            *loss = ru_build_op2(&b, RU_OP_Mul, *loss, ru_build_const_f32(&b, (float)weight), NULL);
        }
        s->loss = *loss;
        s->correct = judged->correct;
        s->count = judged->count;
    }
    return ru_build_finish(&b, err);
}

/* What an earlier stage has too learns there. */
static void drop_held(stager *c)
{
    ru_step_graph *s = &c->s->step;
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n_params; k++) {
        if (!ru_stage_holds(c->all, c->k, s->params[k])) {
            s->params[n++] = s->params[k];
        }
    }
    s->n_params = n;
}

/* Gradients of the parameters, and of what came from earlier stages. */
static ru_status backward(stager *c, ru_value_id loss, ru_err *err)
{
    rui_stepper *w = &c->w;
    ru_step_graph *s = &c->s->step;
    uint32_t most = s->n_params + c->all->n_edges + 1, n_y = 0, n_wrt = s->n_params;
    ru_value_id *ys = RU_NEW(w->arena, ru_value_id, most),
                *seeds = RU_NEW(w->arena, ru_value_id, most);
    ru_value_id *wrt = RU_NEW(w->arena, ru_value_id, most),
                *grads = RU_NEW(w->arena, ru_value_id, most);
    if (ys == NULL || seeds == NULL || wrt == NULL || grads == NULL) {
        return full(err);
    }
    ru_build b;
    ru_build_init(&b, &w->g);
    if (loss.v != 0) {
        ys[n_y++] = loss;
    }
    for (uint32_t i = c->all->n_edges; i-- > 0;) { /* later stages first, as in one graph */
        ru_stage_edge *e = &c->all->edges[i];
        if (e->from == c->k && e->grad.v != 0) {
            e->seed = ru_build_input(&b, ru_arena_printf(w->arena, "seed.%u", i), e->type);
            ys[n_y] = e->out;
            seeds[n_y++] = e->seed;
        }
    }
    RU_TRY(ru_build_finish(&b, err));
    memcpy(wrt, s->params, s->n_params * sizeof *wrt);
    for (uint32_t i = 0; i < c->all->n_edges; i++) {
        const ru_stage_edge *e = &c->all->edges[i];
        if (e->to == c->k && ru_dtype_is_float(e->type.dtype)) {
            wrt[n_wrt++] = e->in;
        }
    }
    ru_graph next = {0};
    RU_TRY(ru_graph_grad_from(&w->g, ys, seeds, n_y, wrt, n_wrt, w->arena, &next, grads, err));
    w->g = next;
    memcpy(s->grads, grads, s->n_params * sizeof *grads);
    ru_build_init(&b, &w->g);
    for (uint32_t i = 0, at = s->n_params; i < c->all->n_edges; i++) {
        ru_stage_edge *e = &c->all->edges[i];
        if (e->to == c->k && ru_dtype_is_float(e->type.dtype) && grads[at++].v != 0) {
            /* A result of its own: what is added over micro-batches are the parameters' alone. */
            e->grad = ru_build_op1(&b, RU_OP_Identity, grads[at - 1], NULL);
            ru_graph_value(&w->g, grads[at - 1])->role = RU_ROLE_PLAIN;
        }
    }
    for (uint32_t i = 0; i < s->n_params && b.status == RU_OK; i++) {
        if (s->grads[i].v != 0) {
            ru_graph_value(&w->g, s->grads[i])->role = RU_ROLE_GRAD;
        }
    }
    return ru_build_finish(&b, err);
}

/* Values that leave, once each. */
static ru_status ends(stager *c, ru_build *b, ru_err *err)
{
    static const char *const names[] = {"loss", "correct", "count"};
    ru_stage *s = c->s;
    uint32_t most = 2 * c->all->n_edges + s->n_stats + RU_ARRAY_LEN(names);
    s->ends = RU_NEW(c->w.arena, ru_value_id, most);
    s->ports = RU_NEW(c->w.arena, ru_value_id, most);
    if (s->ends == NULL || s->ports == NULL) {
        return full(err);
    }
    for (uint32_t i = 0; i < c->all->n_edges; i++) {
        if (c->all->edges[i].from == c->k && !c->all->edges[i].held) {
            put_once(s->ends, &s->n_ends, c->all->edges[i].out);
        }
    }
    for (uint32_t i = 0; i < s->n_stats; i++) {
        put_once(s->ends, &s->n_ends, s->news[i]);
    }
    memcpy(s->ports, s->ends, s->n_ends * sizeof *s->ports);
    s->n_ports = s->n_ends;
    for (uint32_t i = 0; i < c->all->n_edges; i++) {
        const ru_stage_edge *e = &c->all->edges[i];
        if (e->to == c->k && e->grad.v != 0) {
            put_once(s->ports, &s->n_ports, e->grad);
        }
    }
    const ru_value_id judged[] = {s->step.loss, s->step.correct, s->step.count};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(judged); i++) {
        if (judged[i].v != 0) {
            put_once(s->ends, &s->n_ends, judged[i]);
            ru_build_output(b, judged[i], names[i]);
        }
    }
    return ru_build_finish(b, err);
}

/* States that the forward part replaces. */
static ru_status stats(stager *c, ru_err *err)
{
    const rui_stepper *w = &c->w;
    ru_stage *s = c->s;
    s->stats = RU_NEW(w->arena, ru_value_id, w->model.n_updates + 1);
    s->news = RU_NEW(w->arena, ru_value_id, w->model.n_updates + 1);
    if (s->stats == NULL || s->news == NULL) {
        return full(err);
    }
    for (uint32_t u = 0; u < w->model.n_updates; u++) {
        s->stats[s->n_stats] = w->map[w->model.updates[u].state.v];
        s->news[s->n_stats++] = w->map[w->model.updates[u].value.v];
    }
    return RU_OK;
}

static const char *first_layer(const ru_graph *g, ru_arena *arena)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            const ru_value *v = &g->values[g->nodes[i].in[k].v];
            const char *dot = v->name != NULL ? strrchr(v->name, '.') : NULL;
            if (v->kind == RU_VALUE_STATE && dot != NULL) {
                return ru_arena_strn(arena, v->name, dot - v->name);
            }
        }
    }
    return "";
}

static ru_status begin(stager *c, const uint32_t *part_of, ru_err *err)
{
    rui_stepper *w = &c->w;
    ru_step_graph *s = &c->s->step;
    RU_TRY(ru_graph_init(&w->g, w->arena, c->whole->name, err));
    memset(w->map, 0, (size_t)c->whole->n_values * sizeof *w->map);
    RU_TRY(ru_pass_part(c->whole, part_of, c->k, w->arena, &w->model, err));
    w->s = s;
    s->micro = 1;
    s->x = RU_NEW(w->arena, ru_value_id, 1);
    s->y = RU_NEW(w->arena, ru_value_id, 1);
    if (s->x == NULL || s->y == NULL) {
        return full(err);
    }
    c->s->first = first_layer(&w->model, w->arena);
    return RU_OK;
}

/* What crosses, in the graph of this stage. */
static void cross(stager *c)
{
    for (uint32_t i = 0; i < c->all->n_edges; i++) {
        ru_stage_edge *e = &c->all->edges[i];
        e->out = e->from == c->k ? c->w.map[c->values[i].v] : e->out;
        e->in = e->to == c->k ? c->w.map[c->values[i].v] : e->in;
    }
}

static ru_status build_stage(stager *c, const uint32_t *part_of, ru_err *err)
{
    rui_stepper *w = &c->w;
    ru_step_graph *s = &c->s->step;
    ru_value_id loss = {0};
    rui_loss_out judged = {0};
    RU_TRY(begin(c, part_of, err));
    RU_TRY(forward(c, &loss, &judged, err));
    cross(c);
    RU_TRY(rui_step_params(w, err));
    drop_held(c);
    RU_TRY(backward(c, loss, err));
    rui_step_drop_unused(w);
    RU_TRY(stats(c, err));
    ru_build b;
    ru_build_init(&b, &w->g);
    rui_step_own_grads(&b, s);
    RU_TRY(ends(c, &b, err));
    rui_step_optimizer(&b, w->opt, true, s);
    RU_TRY(ru_build_finish(&b, err));
    RU_TRY(ru_graph_verify(&w->g, err));
    s->graph = w->g;
    return RU_OK;
}

/* *values [all->n_edges]: what crosses, in the graph of the whole. */
static ru_status list_edges(const ru_graph *whole, const ru_part_edge *edges, const bool *held,
                            ru_arena *arena, ru_stages *all, ru_value_id **values, ru_err *err)
{
    all->at = RU_NEW(arena, ru_stage, all->n);
    all->edges = RU_NEW(arena, ru_stage_edge, all->n_edges + 1);
    ru_value_id *at = RU_NEW(arena, ru_value_id, all->n_edges + 1);
    if (all->at == NULL || all->edges == NULL || at == NULL) {
        return full(err);
    }
    for (uint32_t i = 0; i < all->n_edges; i++) {
        at[i] = edges[i].value;
        all->edges[i] = (ru_stage_edge){.from = edges[i].from,
                                        .to = edges[i].to,
                                        .held = held != NULL && held[at[i].v],
                                        .type = ru_graph_value(whole, at[i])->type};
    }
    *values = at;
    return RU_OK;
}

ru_status rui_stages_cut(const ru_graph *model, const ru_step_options *opt, const rui_cutting *how,
                         ru_arena *arena, ru_stages *out, ru_err *err)
{
    RU_CHECK(opt->batch >= 1 && opt->share_of >= opt->batch);
    ru_stages all = {0};
    ru_step_graph none = {0};
    rui_stepper w = {.opt = opt, .arena = arena, .s = &none, .stage = true};
    uint32_t *part_of = NULL;
    bool *held;
    ru_part_edge *edges;
    RU_TRY(rui_step_groups_check(opt, model, err));
    RU_TRY(rui_step_init(&w, model, 1, err));
    const ru_graph whole = w.model;
    RU_TRY(list_learning(&whole, opt, arena, &held, err));
    RU_TRY(how->find(how->self, &whole, held, arena, &part_of, &all.n, err));
    RU_TRY(check_stats(&whole, how, part_of, arena, err));
    RU_TRY(ru_pass_part_edges(&whole, part_of, held, arena, &edges, &all.n_edges, err));
    ru_value_id *values;
    RU_TRY(list_edges(&whole, edges, held, arena, &all, &values, err));
    for (uint32_t k = all.n; k-- > 0;) {
        stager c = {.how = how,
                    .whole = &whole,
                    .values = values,
                    .all = &all,
                    .k = k,
                    .s = &all.at[k],
                    .w = w};
        RU_TRY(build_stage(&c, part_of, err));
    }
    *out = all;
    return RU_OK;
}

/* -- evaluation -------------------------------------------------------------------------------- */

/* Forward alone: what later stages need, or loss and figures, are outputs. */
static ru_status build_judge(stager *c, const uint32_t *part_of, ru_err *err)
{
    rui_stepper *w = &c->w;
    ru_stage *s = c->s;
    const rui_part all = {.n = w->opt->batch, .of = w->opt->batch, .inner = w->inner};
    ru_build b;
    RU_TRY(begin(c, part_of, err));
    s->ends = RU_NEW(w->arena, ru_value_id, c->all->n_edges + 1);
    if (s->ends == NULL) {
        return full(err);
    }
    ru_build_init(&b, &w->g);
    RU_TRY(inputs(c, &b, err));
    RU_TRY(rui_step_append(&w->g, &w->model, &all, w->map, err));
    cross(c);
    for (uint32_t i = 0; i < c->all->n_edges; i++) {
        if (c->all->edges[i].from == c->k) {
            put_once(s->ends, &s->n_ends, c->all->edges[i].out);
        }
    }
    if (s->n_ends == 0 && !is_last(c)) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "its inference form needs nothing of stage %u",
                       c->k + 1);
    }
    for (uint32_t i = 0; i < s->n_ends; i++) {
        ru_build_output(&b, s->ends[i], NULL);
    }
    if (is_last(c)) {
        RU_TRY(check_output(c, err));
        s->step.output = w->map[c->whole->outputs[0].v];
        s->step.y[0] = ru_build_input(&b, "y", rui_step_batched(&w->opt->y, w->opt->batch));
        RU_TRY(rui_step_judge(&b, w->opt, &s->step, err));
    }
    RU_TRY(ru_build_finish(&b, err));
    RU_TRY(ru_graph_verify(&w->g, err));
    s->step.graph = w->g;
    return RU_OK;
}

/* Whoever has the stage of the step has all states of that of the evaluation. */
static ru_status check_states(const ru_stage *s, const ru_stage *step, ru_err *err)
{
    const ru_graph *g = &s->step.graph, *of = &step->step.graph;
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        if (x->kind != RU_VALUE_STATE) {
            continue;
        }
        ru_value_id id = x->name != NULL ? ru_graph_find(of, x->name) : (ru_value_id){0};
        if (id.v == 0 || !ru_type_equal(&of->values[id.v].type, &x->type)) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "its inference form reads '%.80s' in another stage",
                           x->name != NULL ? x->name : "a state");
        }
    }
    return RU_OK;
}

ru_status ru_stages_build_eval(const ru_graph *model, const ru_step_options *opt,
                               const char *const *cut, uint32_t n_cut, const ru_stages *step,
                               ru_arena *arena, ru_stages *out, ru_err *err)
{
    cuts names = {.at = cut, .n = n_cut};
    const rui_cutting how = {
        .find = find_parts, .self = &names, .key = "train.pipeline.cut", .part = "stage"};
    ru_stages all = {0};
    ru_step_graph none = {0};
    rui_stepper w = {.opt = opt, .arena = arena, .s = &none, .stage = true};
    uint32_t *part_of = NULL;
    ru_part_edge *edges;
    ru_value_id *values;
    RU_CHECK(step->n == n_cut + 1);
    RU_TRY(rui_step_init(&w, model, 1, err));
    const ru_graph whole = w.model;
    RU_TRY(find_parts(&names, &whole, NULL, arena, &part_of, &all.n, err));
    RU_TRY(ru_pass_part_edges(&whole, part_of, NULL, arena, &edges, &all.n_edges, err));
    RU_TRY(list_edges(&whole, edges, NULL, arena, &all, &values, err));
    for (uint32_t k = 0; k < all.n; k++) {
        stager c = {.how = &how,
                    .whole = &whole,
                    .values = values,
                    .all = &all,
                    .k = k,
                    .s = &all.at[k],
                    .w = w};
        RU_TRY(build_judge(&c, part_of, err));
        RU_TRY(check_states(&all.at[k], &step->at[k], err));
    }
    *out = all;
    return RU_OK;
}

bool ru_stage_holds(const ru_stages *s, uint32_t stage, ru_value_id state)
{
    bool is = false;
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        is = is || (e->held && e->to == stage && e->in.v == state.v);
    }
    return is;
}

const char *ru_stages_held(const ru_stages *s)
{
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        if (e->held) {
            return ru_graph_value(&s->at[e->from].step.graph, e->out)->name;
        }
    }
    return NULL;
}

ru_status ru_stages_build(const ru_graph *model, const ru_step_options *opt, const char *const *cut,
                          uint32_t n_cut, ru_arena *arena, ru_stages *out, ru_err *err)
{
    cuts all = {.at = cut, .n = n_cut};
    const rui_cutting how = {
        .find = find_parts, .self = &all, .key = "train.pipeline.cut", .part = "stage"};
    RU_CHECK(n_cut < RU_STAGES_MAX);
    return rui_stages_cut(model, opt, &how, arena, out, err);
}
