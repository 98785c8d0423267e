/* The executable: passes, lowering, planning at open; a flat list of steps at run.
 *
 *   graph --passes--> graph --device--> list of steps with memory --> run, run ...
 *
 * Ids of the caller's graph stay valid at this border: inputs and outputs keep their positions
 * through the passes, state keeps its name. */
#include "exec/exe_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "env/clock.h"
#include "env/process/memory.h"
#include "exec/ref.h"
#include "trace/record/recorder.h"
#include "world/pass/pass.h"

enum { SHARED_BYTES_MIN = 64 /* of a constant that is compared with those of the base */ };
enum { FOLD_BYTES_MAX = 64 << 20 }; /* larger constants are computed once by prep steps instead */

/* -- open ----------------------------------------------------------------------------------------
 */

/* Lists of the options outlive the call. */
static ru_status keep_options(ru_exe *e, ru_err *err)
{
    ru_exe_options *o = &e->opt;
    int64_t one = (int64_t)sizeof *o->forward;
    o->forward = ru_arena_copy(&e->arena, o->forward, o->n_forward * one, 4);
    o->ports = ru_arena_copy(&e->arena, o->ports, o->n_ports * one, 4);
    return o->forward != NULL && o->ports != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the options of an executable");
}

/* The caller's graph with the values of ports among its outputs, so that they stay. */
static ru_status add_ports(ru_exe *e, ru_graph *g, ru_err *err)
{
    *g = *e->outer;
    uint32_t most = g->n_outputs + e->opt.n_ports;
    g->outputs = RU_NEW(&e->arena, ru_value_id, most + 1);
    if (g->outputs == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u outputs", most);
    }
    for (uint32_t k = 0; k < g->n_outputs; k++) {
        g->outputs[k] = e->outer->outputs[k];
    }
    for (uint32_t k = 0; k < e->opt.n_ports; k++) {
        ru_value_id v = e->opt.ports[k];
        if (v.v >= g->n_values || g->values[v.v].kind != RU_VALUE_TEMP) {
            return RU_FAIL(err, RU_E_ARG, "value %u is not the result of a node: it has no port",
                           v.v);
        }
        g->outputs[g->n_outputs++] = v;
    }
    return RU_OK;
}

static bool same_ids(const ru_value_id *a, uint32_t n, const ru_value_id *b, uint32_t m)
{
    return n == m && (n == 0 || memcmp(a, b, n * sizeof *a) == 0);
}

/* Does the executable that shares its state have the same graph and options that shape the steps?
 */
static bool is_twin(const ru_exe *e)
{
    const ru_exe_options *a = &e->opt, *b = e->base != NULL ? &e->base->opt : NULL;
    return b != NULL && e->outer == e->base->outer && a->precision == b->precision &&
           a->threads == b->threads && a->keep_temps == b->keep_temps && a->no_fuse == b->no_fuse &&
           a->keep_nan == b->keep_nan && a->two_phase == b->two_phase && a->overlap == b->overlap &&
           a->plain_grads == b->plain_grads && same_ids(a->ports, a->n_ports, b->ports, b->n_ports);
}

/* Constants that passes made, as of a normalisation inside weights, are those of the base
 * where they are equal: what is packed of them is then shared. */
static void share_constants(ru_exe *e)
{
    const ru_graph *b = e->base != NULL ? &e->base->g : NULL;
    for (uint32_t i = 1; b != NULL && i < e->g.n_values; i++) {
        ru_value *v = &e->g.values[i];
        int64_t bytes = v->kind == RU_VALUE_CONST && v->data != NULL ? ru_type_bytes(&v->type) : 0;
        for (uint32_t k = 1; bytes >= SHARED_BYTES_MIN && k < b->n_values; k++) {
            const ru_value *o = &b->values[k];
            if (o->kind == RU_VALUE_CONST && o->data != NULL && ru_type_equal(&o->type, &v->type) &&
                (o->data == v->data || memcmp(o->data, v->data, (size_t)bytes) == 0)) {
                v->data = o->data;
                break;
            }
        }
    }
}

/* What passes leave behind is as large as many graphs: they work in `scratch`. */
static ru_status run_all(ru_exe *e, const ru_graph *given, ru_arena *scratch, ru_err *err)
{
    ru_graph folded, fused, again; /* batch norm in weights leaves arithmetic on constants */
    ru_fold_ops fold = ru_ref_fold_ops();
    fold.like = e->base != NULL ? &e->base->g : NULL;
    RU_TRY(ru_pass_fold(given, &fold, FOLD_BYTES_MAX, scratch, &folded, err));
    RU_TRY(ru_pass_fuse(&folded, fold.like, e->ops->exact_bytes(), scratch, &fused, err));
    RU_TRY(ru_pass_fold(&fused, &fold, FOLD_BYTES_MAX, scratch, &again, err));
    RU_TRY(ru_pass_dead(&again, &e->arena, &e->g, err));
    share_constants(e);
    return ru_pass_keep(&e->g, scratch, err);
}

static ru_status run_passes(ru_exe *e, ru_err *err)
{
    if (is_twin(e)) {
        e->g = e->base->g;
        return RU_OK;
    }
    ru_graph given = *e->outer;
    if (e->opt.n_ports > 0) {
        RU_TRY(add_ports(e, &given, err));
    }
    if (e->opt.no_fuse || e->opt.keep_temps || e->ops->as_given) {
        e->g = given;
        return RU_OK;
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st = run_all(e, &given, &scratch, err);
    ru_arena_fini(&scratch);
    return st;
}

ru_value_id rui_inner_state(const ru_exe *e, ru_value_id id)
{
    if (e->g.values == e->outer->values) {
        return id;
    }
    const char *name = e->outer->values[id.v].name;
    for (uint32_t i = 1; i < e->g.n_values && name != NULL; i++) {
        const ru_value *v = &e->g.values[i];
        if (v->kind == RU_VALUE_STATE && v->name != NULL && strcmp(v->name, name) == 0) {
            return (ru_value_id){i};
        }
    }
    return (ru_value_id){0};
}

/* The state of `base` that a state of `g` is. */
static ru_value_id state_of_base(const ru_exe *base, const ru_value *like)
{
    const ru_graph *g = base->outer;
    for (uint32_t i = 1; i < g->n_values && like->name != NULL; i++) {
        const ru_value *v = &g->values[i];
        if (v->kind == RU_VALUE_STATE && v->name != NULL && strcmp(v->name, like->name) == 0 &&
            ru_type_equal(&v->type, &like->type)) {
            return (ru_value_id){i};
        }
    }
    return (ru_value_id){0};
}

/* A state that no step reads. */
static ru_status keep_state(ru_exe *e, exe_state *s, ru_err *err)
{
    const ru_value *v = &e->outer->values[s->id.v];
    s->inner.v = 0;
    if (e->base != NULL) {
        s->shared = state_of_base(e->base, v);
    }
    if (s->shared.v == 0) {
        s->orphan = ru_arena_zalloc(&e->arena, ru_type_bytes(&v->type), 64);
        if (s->orphan == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for state %s", v->name);
        }
    }
    return RU_OK;
}

static ru_status map_states(ru_exe *e, ru_err *err)
{
    const ru_graph *g = e->outer;
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->n_values; i++) {
        n += g->values[i].kind == RU_VALUE_STATE ? 1 : 0;
    }
    e->states = RU_NEW(&e->arena, exe_state, n);
    if (e->states == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the states of an executable");
    }
    for (uint32_t i = 1; i < g->n_values; i++) {
        if (g->values[i].kind != RU_VALUE_STATE) {
            continue;
        }
        exe_state *s = &e->states[e->n_states++];
        *s = (exe_state){.id = {i}, .inner = rui_inner_state(e, (ru_value_id){i})};
        if (s->inner.v == 0 || !e->ops->value(e->dev, s->inner, &s->at)) {
            RU_TRY(keep_state(e, s, err));
        }
        if (g->values[i].data != NULL && !s->at.shared && s->shared.v == 0) {
            RU_TRY(ru_exe_state_write(e, s->id, g->values[i].data, err));
        }
    }
    return RU_OK;
}

/* Of each value the parameter that an operator updates by it: the state that stands before it among
 * the inputs (world/graph/ops.def). */
static void find_params(const ru_graph *g, ru_value_id *of)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        for (uint32_t k = 1; k < n->n_in; k++) {
            if (g->values[n->in[k - 1].v].kind == RU_VALUE_STATE) {
                of[n->in[k].v] = n->in[k - 1];
            }
        }
    }
}

/* The first step before `update` that reads the parameter. */
static uint32_t first_use(const ru_exe *e, ru_value_id param, uint32_t update)
{
    rui_dev_value at = {.read = UINT32_MAX};
    param = param.v != 0 ? rui_inner_state(e, param) : param;
    (void)(param.v != 0 && e->ops->value(e->dev, param, &at));
    return at.read < update ? at.read : UINT32_MAX;
}

static void put_grad(ru_exe *e, uint32_t at, ru_value_id v, const rui_dev_value *from,
                     ru_value_id param)
{
    for (; at > 0 && e->grads[at - 1].made > from->made; at--) {
        e->grads[at] = e->grads[at - 1];
    }
    e->grads[at] = (ru_exe_grad){.value = v,
                                 .data = from->data,
                                 .size_bytes = from->size_bytes,
                                 .made = from->made,
                                 .read = from->read,
                                 .used = first_use(e, param, from->read),
                                 .param = param.v != 0 ? e->outer->values[param.v].name : NULL};
}

/* Passes keep the ids of gradients. */
static ru_status map_grads(ru_exe *e, ru_err *err)
{
    ru_hasher order;
    ru_hasher_init(&order);
    uint32_t n = 0;
    for (uint32_t i = 1; i < e->outer->n_values; i++) {
        n += rui_grad_leaves(e->outer, (ru_value_id){i}) ? 1 : 0;
    }
    e->grads = RU_NEW(&e->arena, ru_exe_grad, n);
    ru_value_id *params = RU_NEW(&e->arena, ru_value_id, e->outer->n_values);
    if (e->grads == NULL || params == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the gradients of an executable");
    }
    find_params(e->outer, params);
    for (uint32_t i = 1; i < e->outer->n_values; i++) {
        const ru_value_id v = {i};
        rui_dev_value from;
        if (!rui_grad_leaves(e->outer, v)) {
            continue;
        }
        if (!rui_grad_leaves(&e->g, v) || !e->ops->value(e->dev, v, &from)) {
            return RU_FAIL(err, RU_E_BUG, "a pass lost a gradient");
        }
        put_grad(e, e->n_grads++, v, &from, params[i]);
        ru_hasher_put_u64(&order, from.order);
    }
    e->grads_hash = ru_hasher_get(&order).low;
    return RU_OK;
}

uint32_t ru_exe_grads(const ru_exe *e, const ru_exe_grad **grads)
{
    *grads = e->grads;
    return e->n_grads;
}

uint64_t ru_exe_grads_hash(const ru_exe *e)
{
    return e->grads_hash;
}

typedef struct addition {
    float *to;
    const float *from;
    int64_t n;
} addition;

static void add_part(void *arg, uint32_t thread, uint32_t threads)
{
    const addition *a = arg;
    int64_t begin, end;
    ru_pool_split(a->n, 16, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        a->to[i] += a->from[i];
    }
}

/* Gradients of one order of elements, by id: they may be made in another order. */
static const ru_exe_grad *grad_like(const ru_exe *e, const ru_exe_grad *like)
{
    for (uint32_t k = 0; k < e->n_grads; k++) {
        if (e->grads[k].value.v == like->value.v) {
            return &e->grads[k];
        }
    }
    return NULL;
}

ru_status ru_exe_grads_add(ru_exe *to, const ru_exe *from, ru_err *err)
{
    if (!to->opt.two_phase || !from->opt.two_phase || to->outer != from->outer ||
        to->grads_hash != from->grads_hash) {
        return RU_FAIL(err, RU_E_ARG,
                       "gradients can be added between two-phase executables of one graph with the "
                       "same order of elements");
    }
    for (uint32_t k = 0; k < to->n_grads; k++) {
        const ru_exe_grad *a = &to->grads[k], *b = grad_like(from, a);
        RU_CHECK(b != NULL && b->size_bytes == a->size_bytes);
        addition sum = {.to = a->data, .from = b->data, .n = a->size_bytes / 4};
        ru_pool_run(to->pool, add_part, &sum);
    }
    return RU_OK;
}

/* Graphs run as given (to find errors) are expected to be slow; any other says so. */
static void tell_slow(const ru_exe *e)
{
    if (e->dev->n_slow > 0 && !e->opt.no_fuse && !e->opt.keep_temps && !e->how.guard &&
        !e->opt.keep_nan) {
        ru_log(RU_LOG_WARN, "exec", "reference_kernels",
               "%u of %u operators have no fast kernel for their types and attributes: %s",
               e->dev->n_slow, e->g.n_nodes - 1, e->dev->slow);
    }
}

static ru_status open_dev(ru_exe *e, ru_err *err)
{
    uint32_t most = e->ops->threads_max;
    uint32_t threads =
        most != 0 && (e->opt.threads == 0 || e->opt.threads > most) ? most : e->opt.threads;
    RU_TRY(ru_pool_new(threads, &e->pool, err));
    const rui_dev_in in = {.graph = &e->g,
                           .opt = &e->opt,
                           .pool = e->pool,
                           .arena = &e->arena,
                           .how = e->how,
                           .share = e->base != NULL ? e->base->dev : NULL,
                           .twin = is_twin(e)};
    RU_TRY(e->ops->open(&in, &e->dev, err));
    tell_slow(e);
    e->times = RU_NEW(&e->arena, rui_step_time, e->dev->n_steps + 1);
    e->trace_names = RU_NEW(&e->arena, uint16_t, e->dev->n_steps + 1);
    return e->times != NULL && e->trace_names != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the steps of an executable");
}

static ru_status open_into(ru_exe *e, ru_err *err)
{
    RU_TRY(keep_options(e, err));
    RU_TRY(run_passes(e, err));
    RU_TRY(open_dev(e, err));
    RU_TRY(map_states(e, err));
    RU_TRY(map_grads(e, err));
    for (uint32_t i = 1; i < e->g.n_nodes; i++) {
        e->flops += ru_node_flops(&e->g, &e->g.nodes[i]);
    }
    RU_TRY(e->ops->prepare(e->dev, err));
    (void)ru_pool_invalid(e->pool); /* what its threads met before */
    return RU_OK;
}

static void exe_free(ru_exe *e)
{
    if (e->dev != NULL) {
        e->ops->close(e->dev);
    }
    ru_pool_free(e->pool);
    free(e->leaves.at);
    free(e->awaits.at);
    ru_arena_fini(&e->arena);
    free(e);
}

ru_status rui_exe_open_how(const rui_dev_ops *ops, rui_dev_how how, const ru_graph *g,
                           const ru_exe_options *opt, ru_exe **out, ru_err *err)
{
    ru_time start = ru_clock_now();
    ru_exe *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an executable");
    }
    ru_arena_init(&e->arena, 0);
    e->ops = ops;
    e->how = how;
    e->outer = g;
    e->opt = *opt;
    e->base = opt->share;
    ru_status st = e->base == NULL || e->base->ops == ops
                       ? open_into(e, err)
                       : RU_FAIL(err, RU_E_ARG, "state can be shared on one device only (%s, %s)",
                                 e->base->ops->name, ops->name);
    if (st != RU_OK) {
        exe_free(e);
        return ru_err_wrap(err, st, "open executable of %s", g->name == NULL ? "graph" : g->name);
    }
    if (e->base != NULL && out != &e->base->keeper) { /* which a run opens, on its own thread */
        e->base->refs++;
    }
    e->open_ns = ru_time_since(ru_clock_now(), start);
    *out = e;
    return RU_OK;
}

ru_status rui_exe_open_on(const rui_dev_ops *ops, const ru_graph *g, const ru_exe_options *opt,
                          ru_exe **out, ru_err *err)
{
    return rui_exe_open_how(ops, (rui_dev_how){0}, g, opt, out, err);
}

ru_status rui_exe_open_guarded(const ru_graph *g, const ru_exe_options *opt, ru_exe **out,
                               ru_err *err)
{
    return rui_exe_open_how(rui_dev_of(opt->device), (rui_dev_how){.guard = true}, g, opt, out,
                            err);
}

ru_status ru_exe_open(const ru_graph *g, const ru_exe_options *opt, ru_exe **out, ru_err *err)
{
    return rui_exe_open_on(rui_dev_of(opt->device), g, opt, out, err);
}

void ru_exe_close(ru_exe *e)
{
    if (e == NULL) {
        return;
    }
    if (e->keeper != NULL) {
        exe_free(e->keeper);
        e->keeper = NULL;
    }
    e->closed = true;
    while (e != NULL && e->closed && e->refs == 0) {
        ru_exe *base = e->base;
        exe_free(e);
        if (base != NULL) {
            base->refs--;
        }
        e = base;
    }
}

/* -- run -----------------------------------------------------------------------------------------
 */

static ru_status step_failed(const ru_exe *e, uint32_t step, ru_status st, ru_err *err)
{
    if (err != NULL && err->status != st) {
        (void)ru_err_set(err, st, "the kernel failed");
    }
    return ru_err_wrap(err, st, "%s %s (%s)", e->ops->label(e->dev, step),
                       e->ops->node(e->dev, step), e->ops->kernel(e->dev, step));
}

/* Steps [begin, end), without ports. */
static ru_status run_range(ru_exe *e, uint32_t begin, uint32_t end, const ru_run_args *args,
                           ru_err *err)
{
    uint32_t at = begin;
    ru_status st = e->ops->run(e->dev, begin, end, args, &at, err);
    return RU_UNLIKELY(st != RU_OK) ? step_failed(e, at, st, err) : RU_OK;
}

void rui_step_took(rui_step_time *t, int64_t ns)
{
    RU_DCHECK(ns >= 0);
    t->ns_min = t->n == 0 || ns < t->ns_min ? ns : t->ns_min;
    t->ns_max = ns > t->ns_max ? ns : t->ns_max;
    t->n++;
    t->ns_sum += ns;
    t->ns_squares += (double)ns * (double)ns;
}

static ru_status run_plain(ru_exe *e, uint32_t begin, uint32_t end, const ru_run_args *args,
                           ru_err *err)
{
    if (e->judge != NULL && e->judge_step >= begin && e->judge_step < end) {
        RU_TRY(run_range(e, begin, e->judge_step + 1, args, err));
        RU_TRY(rui_exe_ask(e, err));
        begin = e->judge_step + 1;
    }
    return run_range(e, begin, end, args, err);
}

/* Steps with ports, a poll or the time of each; apart, so that the plain path has no branch for it.
 */
static ru_status run_watched(ru_exe *e, uint32_t begin, uint32_t end, const ru_run_args *args,
                             ru_err *err)
{
    bool profile = e->opt.profile || e->recorder != NULL;
    uint32_t awaits = rui_ports_from(&e->awaits, begin), leaves = rui_ports_from(&e->leaves, begin);
    uint32_t guards = 0;
    bool waits = e->poll != NULL || e->awaits.n > 0;
    int64_t before = profile ? ru_rec_now() : 0;
    for (uint32_t i = begin; i < end; i++) {
        RU_TRY(rui_ports_before(e, i, &awaits, err));
        RU_TRY(rui_update_guard(e, i, &guards, err));
        before = profile && waits ? ru_rec_now() : before; /* waiting is not the step's own time */
        RU_TRY(run_range(e, i, i + 1, args, err));
        RU_TRY(rui_ports_after(e, i, &leaves, err));
        if (e->judge != NULL && i == e->judge_step) {
            RU_TRY(rui_exe_ask(e, err));
        }
        if (profile) {
            int64_t after = ru_rec_now();
            rui_step_took(&e->times[i], after - before);
            ru_rec_act(e->recorder, e->trace_names[i], before, after, i, (uint32_t)e->dev->id, 0);
            before = after;
        }
    }
    return RU_OK;
}

void ru_exe_record(ru_exe *e, ru_recorder *r)
{
    e->recorder = r;
    for (uint32_t i = 0; i < e->dev->n_steps && r != NULL; i++) {
        e->trace_names[i] = ru_recorder_name(r, e->ops->label(e->dev, i), "op");
    }
}

void ru_exe_profile(ru_exe *e, bool on)
{
    e->opt.profile = on;
    if (on) {
        memset(e->times, 0, e->dev->n_steps * sizeof *e->times);
    }
}

static ru_status run_noted(ru_exe *e, uint32_t begin, uint32_t end, const ru_run_args *args,
                           ru_err *err)
{
    if (err != NULL) {
        err->status = RU_OK;
    }
    ru_pool_enter(e->pool);
    RU_TRY(e->ops->prepare(e->dev, err));
    ru_pool_valid();
    bool watched = e->poll != NULL || e->awaits.n > 0 || e->leaves.n > 0 || e->opt.profile ||
                   e->recorder != NULL || e->update.open;
    RU_TRY(watched ? run_watched(e, begin, end, args, err) : run_plain(e, begin, end, args, err));
    /* what kernels that keep NaN met must not be taken for the next run's */
    bool asked = e->dev->drops_nan || e->opt.keep_nan || e->judge != NULL;
    e->invalid = (asked && ru_pool_invalid(e->pool)) || e->invalid;
    ru_pool_leave(e->pool);
    return RU_OK;
}

/* Run steps [begin, end) and note whether they met NaN. */
static ru_status run_part(ru_exe *e, uint32_t begin, uint32_t end, const ru_run_args *args,
                          ru_err *err)
{
    const ru_run_args none = {0};
    args = args == NULL ? &none : args;
    RU_TRY(rui_update_allows(e, end, err));
    if (RU_LIKELY(args->n_inputs + args->n_outputs == 0)) {
        return run_noted(e, begin, end, args, err);
    }
    RU_TRY(rui_places_take(e, args, err));
    ru_status st = run_noted(e, begin, end, args, err);
    rui_places_back(e, args, st == RU_OK);
    return st;
}

/* Where the last step has run and NaN may have been lost, all of it once more. */
static ru_status run_steps(ru_exe *e, uint32_t begin, uint32_t end, const ru_run_args *args,
                           ru_err *err)
{
    e->invalid = begin > 0 && e->invalid;
    e->next = RU_PHASE_FORWARD;
    RU_TRY(run_part(e, begin, end, args, err));
    return RU_UNLIKELY(e->invalid) && end == e->dev->n_steps && e->dev->drops_nan &&
                   e->outer->n_updates == 0 && !e->opt.once
               ? rui_exe_repeat(e, args, err)
               : RU_OK;
}

ru_status ru_exe_run(ru_exe *e, const ru_run_args *args, ru_err *err)
{
    return run_steps(e, 0, e->dev->n_steps, args, err);
}

ru_status ru_exe_run_next(ru_exe *e, uint32_t *step, ru_err *err)
{
    RU_TRY(run_steps(e, *step, *step + 1, &(ru_run_args){0}, err));
    *step = (*step + 1) % e->dev->n_steps;
    return RU_OK;
}

ru_status ru_exe_phase(ru_exe *e, ru_phase phase, const ru_run_args *args, ru_err *err)
{
    const uint32_t bounds[] = {0, e->dev->backward_from, e->dev->update_from, e->dev->n_steps};
    bool joint = phase == RU_PHASE_GRADIENTS;
    if (phase == RU_PHASE_UPDATE) {
        RU_TRY(rui_update_possible(e, err));
    } else if (joint && !e->opt.two_phase) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "only a two-phase executable can stop before its update");
    } else if (!joint && e->opt.n_forward == 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "forward and backward cannot run separately: the executable was opened "
                       "without the values that end its forward part");
    } else if (phase == RU_PHASE_BACKWARD && e->next != RU_PHASE_BACKWARD) {
        return RU_FAIL(err, RU_E_ARG, "backward must follow forward of the same samples");
    }
    bool begins = phase == RU_PHASE_FORWARD || joint;
    e->invalid = !begins && e->invalid;
    e->next = RU_PHASE_FORWARD; /* after a failure the run starts again */
    RU_TRY(run_part(e, begins ? 0 : bounds[phase],
                    joint ? bounds[RU_PHASE_UPDATE] : bounds[phase + 1], args, err));
    e->next = joint ? RU_PHASE_UPDATE : phase == RU_PHASE_UPDATE ? RU_PHASE_FORWARD : phase + 1;
    return RU_OK;
}

/* -- inputs, outputs, state
 * ------------------------------------------------------------------------ */

void *ru_exe_input(ru_exe *e, ru_value_id input)
{
    rui_dev_value at;
    for (uint32_t i = 0; i < e->outer->n_inputs; i++) {
        if (e->outer->inputs[i].v == input.v) {
            return e->ops->value(e->dev, e->g.inputs[i], &at) ? at.data : NULL;
        }
    }
    return NULL;
}

const void *ru_exe_output(ru_exe *e, ru_value_id output)
{
    for (uint32_t i = 0; i < e->outer->n_outputs; i++) {
        if (e->outer->outputs[i].v == output.v) {
            return e->ops->output(e->dev, i);
        }
    }
    return NULL;
}

static exe_state *state_find(ru_exe *e, ru_value_id id)
{
    for (uint32_t k = 0; k < e->n_states; k++) {
        if (e->states[k].id.v == id.v) {
            return &e->states[k];
        }
    }
    return NULL;
}

/* Bytes of a state into `into`, or from `from`: one of them. */
static ru_status state_copy(ru_exe *e, ru_value_id id, int64_t offset, int64_t size,
                            const void *from, void *into, ru_err *err)
{
    const exe_state *s = state_find(e, id);
    int64_t one = s == NULL ? 1 : ru_dtype_bytes(e->outer->values[id.v].type.dtype);
    if (s == NULL || offset < 0 || size < 0 || offset % one != 0 || size % one != 0 ||
        size > ru_type_bytes(&e->outer->values[id.v].type) - offset) {
        return RU_FAIL(err, RU_E_ARG, "bytes [%lld, +%lld) are not inside state %u",
                       (long long)offset, (long long)size, id.v);
    }
    if (s->shared.v != 0) {
        return state_copy(e->base, s->shared, offset, size, from, into, err);
    }
    if (s->orphan != NULL) {
        uint8_t *mine = (uint8_t *)s->orphan + offset;
        memcpy(from != NULL ? mine : into, from != NULL ? from : mine, (size_t)size);
        return RU_OK;
    }
    return from != NULL ? e->ops->write(e->dev, s->inner, offset, size, from, err)
                        : e->ops->read(e->dev, s->inner, offset, size, into, err);
}

ru_status ru_exe_params_copy(ru_exe *to, const ru_exe *from, ru_err *err)
{
    const ru_graph *g = to->outer;
    bool alike = to->ops == from->ops && g == from->outer && to->n_states == from->n_states;
    for (uint32_t k = 0; k < to->n_states && alike; k++) {
        const rui_dev_value *x = &to->states[k].at, *y = &from->states[k].at;
        if (g->values[to->states[k].id.v].role != RU_ROLE_PARAM || x->data == y->data) {
            continue;
        }
        alike = x->data != NULL && y->data != NULL && x->order == y->order;
        if (alike) {
            memcpy(x->data, y->data, (size_t)x->size_bytes);
        }
    }
    return alike ? RU_OK
                 : RU_FAIL(err, RU_E_ARG,
                           "parameters can be copied between executables of one graph on one "
                           "device, of which one has parameters of its own beside the other's");
}

/* 0 for what is no value: state_copy names it. */
static int64_t bytes_of(const ru_exe *e, ru_value_id id)
{
    return id.v < e->outer->n_values ? ru_type_bytes(&e->outer->values[id.v].type) : 0;
}

ru_status ru_exe_state_read(ru_exe *e, ru_value_id state, void *into, ru_err *err)
{
    return state_copy(e, state, 0, bytes_of(e, state), NULL, into, err);
}

ru_status ru_exe_state_write(ru_exe *e, ru_value_id state, const void *from, ru_err *err)
{
    return state_copy(e, state, 0, bytes_of(e, state), from, NULL, err);
}

ru_status ru_exe_state_read_part(ru_exe *e, ru_value_id state, int64_t offset_bytes,
                                 int64_t size_bytes, void *into, ru_err *err)
{
    return state_copy(e, state, offset_bytes, size_bytes, NULL, into, err);
}

ru_status ru_exe_state_write_part(ru_exe *e, ru_value_id state, int64_t offset_bytes,
                                  int64_t size_bytes, const void *from, ru_err *err)
{
    return state_copy(e, state, offset_bytes, size_bytes, from, NULL, err);
}

ru_status ru_exe_value_read(ru_exe *e, ru_value_id v, void *into, ru_err *err)
{
    if (!e->opt.keep_temps || v.v == 0 || v.v >= e->g.n_values) {
        return RU_FAIL(err, RU_E_ARG,
                       "value %u can be read only from an executable that keeps its "
                       "temporary values",
                       v.v);
    }
    return e->ops->read(e->dev, v, 0, bytes_of(e, v), into, err);
}

/* -- reports
 * --------------------------------------------------------------------------------------- */

ru_status rui_exe_guards_check(const ru_exe *e, ru_err *err)
{
    RU_CHECK(e->how.guard);
    return e->ops->guards != NULL ? e->ops->guards(e->dev, err) : RU_OK;
}

void ru_exe_rest(ru_exe *e)
{
    if (e->ops->rest != NULL) {
        e->ops->rest(e->dev);
    }
    ru_memory_drop(e->arena.at, e->arena.end - e->arena.at); /* nothing is there yet */
}

void ru_exe_stats_get(const ru_exe *e, ru_exe_stats *into)
{
    *into = (ru_exe_stats){.n_nodes = e->g.n_nodes - 1,
                           .n_steps = e->dev->n_steps,
                           .n_slow = e->dev->n_slow,
                           .slow = e->dev->slow,
                           .copied_bytes = e->copied_bytes,
                           .flops = e->flops,
                           .open_ns = e->open_ns};
    e->ops->stats(e->dev, into);
}

const char *ru_exe_print(const ru_exe *e, ru_arena *arena)
{
    return e->ops->print(e->dev, e->times, arena);
}

ru_status ru_exe_ops(const ru_exe *e, uint32_t rank, ru_arena *arena, ru_op_fact **ops, uint32_t *n,
                     ru_err *err)
{
    RU_TRY(e->ops->facts(e->dev, e->times, arena, ops, err));
    for (uint32_t i = 0; i < e->dev->n_steps; i++) {
        (*ops)[i].rank = rank;
    }
    *n = e->dev->n_steps;
    return RU_OK;
}

uint64_t ru_exe_id(const ru_exe *e)
{
    return e->dev->id;
}

uint32_t ru_exe_plans(const ru_exe *e, const ru_exe_plan **plans)
{
    *plans = e->dev->plans;
    return e->dev->n_plans;
}
