/* The executable: passes, lowering, planning at open; a flat list of steps at run.
 *
 *   graph --passes--> graph --lowering--> steps over buffers --planning--> addresses --> run, run
 * ...
 *
 * Ids of the caller's graph stay valid at this border: inputs and outputs keep their positions
 * through the passes, state keeps its name. */
#include "exec/exe_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/clock.h"
#include "exec/low/low.h"
#include "exec/low/optim.h"
#include "exec/ref.h"
#include "trace/recorder.h"
#include "world/pass.h"

enum { FOLD_BYTES_MAX = 64 << 20 }; /* larger constants are computed once by prep steps instead */

/* -- open ----------------------------------------------------------------------------------------
 */

static ru_status run_passes(ru_exe *e, ru_err *err)
{
    if (e->opt.no_fuse || e->opt.keep_temps || e->opt.device == RU_DEVICE_REF) {
        e->g = *e->outer;
        return RU_OK;
    }
    ru_graph folded;
    ru_graph fused;
    ru_graph again; /* fusing batch norm into weights leaves arithmetic on constants */
    const ru_fold_ops fold = ru_ref_fold_ops();
    RU_TRY(ru_pass_fold(e->outer, &fold, FOLD_BYTES_MAX, &e->arena, &folded, err));
    RU_TRY(ru_pass_fuse(&folded, &e->arena, &fused, err));
    RU_TRY(ru_pass_fold(&fused, &fold, FOLD_BYTES_MAX, &e->arena, &again, err));
    return ru_pass_dead(&again, &e->arena, &e->g, err);
}

/* The state of the inner graph that stands for `id` of the outer one; `k` counts unnamed states. */
static ru_value_id inner_state(const ru_exe *e, ru_value_id id)
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

static uint32_t first_step_with(const rui_low *lo, uint32_t root)
{
    for (uint32_t i = 0; i < lo->run.n; i++) {
        for (uint32_t k = 0; k < lo->run.at[i].s.n_bufs; k++) {
            rui_buf b = lo->run.at[i].s.bufs[k];
            if (b.v != 0 && rui_root(lo, b) == root) {
                return i;
            }
        }
    }
    return UINT32_MAX;
}

static ru_status map_states(ru_exe *e, ru_err *err)
{
    const ru_graph *g = e->outer;
    e->states = RU_NEW(&e->arena, exe_state, g->n_values);
    if (e->states == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the states of an executable");
    }
    for (uint32_t i = 1; i < g->n_values; i++) {
        if (g->values[i].kind != RU_VALUE_STATE) {
            continue;
        }
        exe_state *s = &e->states[e->n_states++];
        *s = (exe_state){
            .id = {i}, .inner = inner_state(e, (ru_value_id){i}), .need_step = UINT32_MAX};
        const rui_home *h = s->inner.v == 0 ? NULL : rui_home_find(&e->lo, s->inner, NULL);
        if (h == NULL) {
            s->inner.v = 0;
            s->orphan = ru_arena_zalloc(&e->arena, ru_type_bytes(&g->values[i].type), 64);
            if (s->orphan == NULL) {
                return RU_FAIL(err, RU_E_MEM, "no memory for state %s", g->values[i].name);
            }
        } else {
            s->need_step = first_step_with(&e->lo, rui_root(&e->lo, h->buf));
        }
        if (g->values[i].data != NULL) {
            RU_TRY(ru_exe_state_write(e, s->id, g->values[i].data, err));
        }
    }
    return RU_OK;
}

/* Gradients keep their order through the passes: the k-th that leaves here is the k-th of the
 * caller's graph. */
static ru_status map_grads(ru_exe *e, ru_err *err)
{
    uint32_t n = e->lo.n_grads, k = 0;
    e->grads = RU_NEW(&e->arena, ru_exe_grad, n + 1);
    e->marks = RU_NEW(&e->arena, exe_grad, n + 1);
    e->reads = RU_NEW(&e->arena, uint32_t, n + 1);
    if (e->grads == NULL || e->marks == NULL || e->reads == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the gradients of an executable");
    }
    for (uint32_t i = 1; i < e->outer->n_values; i++) {
        if (!rui_grad_leaves(e->outer, (ru_value_id){i})) {
            continue;
        }
        const rui_grad *from = k < n ? &e->lo.grads[k] : NULL;
        if (from == NULL) {
            return RU_FAIL(err, RU_E_BUG, "a pass lost a gradient");
        }
        uint32_t at = k++;
        for (; at > 0 && e->marks[at - 1].made > from->made; at--) {
            e->grads[at] = e->grads[at - 1];
            e->marks[at] = e->marks[at - 1];
        }
        e->grads[at] = (ru_exe_grad){.value = {i},
                                     .data = rui_buf_ptr(&e->lo, from->buf),
                                     .size_bytes = from->layout->size_bytes,
                                     .made = from->made,
                                     .read = from->read};
        e->marks[at] = (exe_grad){.made = from->made, .read = from->read};
    }
    e->n_grads = k;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t at = i;
        for (; at > 0 && e->marks[e->reads[at - 1]].read > e->marks[i].read; at--) {
            e->reads[at] = e->reads[at - 1];
        }
        e->reads[at] = i;
    }
    return k == n ? RU_OK : RU_FAIL(err, RU_E_BUG, "a pass made a gradient of its own");
}

uint32_t ru_exe_grads(const ru_exe *e, const ru_exe_grad **grads)
{
    *grads = e->grads;
    return e->n_grads;
}

uint64_t ru_exe_grads_hash(const ru_exe *e)
{
    return rui_grads_hash(&e->lo);
}

static ru_status run_steps(ru_exe *e, rui_step_list *list, const ru_run_args *args, ru_err *err);

/* Graphs run as given (to find errors) are expected to be slow; any other says so. */
static void tell_slow(const ru_exe *e)
{
    if (e->lo.n_slow > 0 && !e->opt.no_fuse && !e->opt.keep_temps && !e->opt.guard &&
        !e->opt.keep_nan) {
        ru_log(RU_LOG_WARN, "exec", "reference_kernels",
               "%u of %u operators have no fast kernel for their types and attributes: %s",
               e->lo.n_slow, e->g.n_nodes - 1, e->slow);
    }
}

static ru_status open_into(ru_exe *e, ru_err *err)
{
    RU_TRY(run_passes(e, err));
    RU_TRY(rui_low_fits(&e->g, err));
    uint32_t threads = e->opt.device == RU_DEVICE_REF ? 1 : e->opt.threads;
    RU_TRY(ru_pool_new(threads, &e->pool, err));
    RU_TRY(rui_low_init(&e->lo, &e->g, &e->opt, ru_pool_threads(e->pool), &e->arena, err));
    RU_TRY(rui_low_graph(&e->lo, err));
    RU_TRY(rui_low_slow(&e->lo, &e->slow, err));
    tell_slow(e);
    RU_TRY(rui_low_plan(&e->lo, err));
    RU_TRY(map_states(e, err));
    RU_TRY(map_grads(e, err));
    for (uint32_t i = 1; i < e->g.n_nodes; i++) {
        e->flops += ru_node_flops(&e->g, &e->g.nodes[i]);
    }
    e->stale = false;
    e->id = rui_low_id(&e->lo);
    const ru_run_args none = {0};
    RU_TRY(run_steps(e, &e->lo.prep, &none, err));
    (void)ru_pool_invalid(e->pool); /* what its threads met before */
    return RU_OK;
}

ru_status ru_exe_open(const ru_graph *g, const ru_exe_options *opt, ru_exe **out, ru_err *err)
{
    ru_time start = ru_clock_now();
    ru_exe *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an executable");
    }
    ru_arena_init(&e->arena, 0);
    ru_arena_init(&e->scratch, 0);
    e->outer = g;
    e->opt = *opt;
    ru_status st = open_into(e, err);
    if (st != RU_OK) {
        ru_exe_close(e);
        return ru_err_wrap(err, st, "open executable of %s", g->name == NULL ? "graph" : g->name);
    }
    e->open_ns = ru_time_since(ru_clock_now(), start);
    *out = e;
    return RU_OK;
}

void ru_exe_close(ru_exe *e)
{
    if (e == NULL) {
        return;
    }
    ru_exe_close(e->keeper);
    rui_optim_early_close(&e->lo);
    rui_low_fini(&e->lo);
    ru_pool_free(e->pool);
    ru_arena_fini(&e->scratch);
    ru_arena_fini(&e->arena);
    free(e);
}

/* -- run -----------------------------------------------------------------------------------------
 */

static ru_status step_failed(const ru_exe *e, const rui_step_rec *r, ru_status st, ru_err *err)
{
    const ru_node *n = r->node == 0 ? NULL : &e->g.nodes[r->node];
    if (err != NULL && err->status != st) {
        (void)ru_err_set(err, st, "the kernel failed");
    }
    return ru_err_wrap(err, st, "%s %s (%s)", rui_step_label(&e->lo, r),
                       n == NULL || n->name == NULL ? "" : n->name, r->s.kernel);
}

static void tell_needed(const ru_exe *e, uint32_t step)
{
    for (uint32_t k = 0; k < e->n_states; k++) {
        if (e->states[k].need_step == step) {
            e->hooks.need(e->hooks.self, e->states[k].id);
        }
    }
}

/* How far the hooks of a run have come in the lists of gradients. */
typedef struct cursor {
    uint32_t ready, await;
} cursor;

static ru_status hooks_before(const ru_exe *e, uint32_t step, cursor *at, ru_err *err)
{
    const ru_exe_hooks *h = &e->hooks;
    ru_status st = h->poll != NULL ? h->poll(h->self) : RU_OK;
    for (; at->await < e->n_grads && e->marks[e->reads[at->await]].read == step; at->await++) {
        if (st == RU_OK && h->await != NULL) {
            st = h->await(h->self, e->grads[e->reads[at->await]].value);
        }
    }
    if (st != RU_OK) {
        return RU_FAIL(err, st, "the run was aborted before step %u of %u", step, e->lo.run.n);
    }
    if (h->need != NULL) {
        tell_needed(e, step);
    }
    return RU_OK;
}

static void hooks_after(const ru_exe *e, uint32_t step, cursor *at)
{
    for (; at->ready < e->n_grads && e->marks[at->ready].made == step; at->ready++) {
        const ru_exe_grad *g = &e->grads[at->ready];
        if (e->hooks.ready != NULL) {
            e->hooks.ready(e->hooks.self, g->value, g->data, g->size_bytes);
        }
    }
}

static rui_run run_of(ru_exe *e, const ru_run_args *args, ru_err *err)
{
    return (rui_run){.args = args,
                     .pool = e->pool,
                     .scratch = &e->scratch,
                     .stream = e->lo.nn.stream,
                     .err = err};
}

/* Steps [begin, end) of a list, without hooks. */
static ru_status run_range(ru_exe *e, rui_step_list *list, uint32_t begin, uint32_t end,
                           const ru_run_args *args, ru_err *err)
{
    const rui_run run = run_of(e, args, err);
    for (uint32_t i = begin; i < end; i++) {
        rui_step_rec *r = &list->at[i];
        ru_status st = r->s.fn(r->s.state, r->ptrs, &run);
        if (RU_UNLIKELY(st != RU_OK)) {
            return step_failed(e, r, st, err);
        }
    }
    return RU_OK;
}

static ru_status run_steps(ru_exe *e, rui_step_list *list, const ru_run_args *args, ru_err *err)
{
    return run_range(e, list, 0, list->n, args, err);
}

static ru_status run_plain(ru_exe *e, uint32_t begin, uint32_t end, const ru_run_args *args,
                           ru_err *err)
{
    if (e->judge != NULL && e->judge_step >= begin && e->judge_step < end) {
        RU_TRY(run_range(e, &e->lo.run, begin, e->judge_step + 1, args, err));
        RU_TRY(rui_exe_ask(e, err));
        begin = e->judge_step + 1;
    }
    return run_range(e, &e->lo.run, begin, end, args, err);
}

/* The first gradients that are made, and read, at `step` or later. */
static cursor cursor_at(const ru_exe *e, uint32_t step)
{
    cursor at = {0, 0};
    while (at.ready < e->n_grads && e->marks[at.ready].made < step) {
        at.ready++;
    }
    while (at.await < e->n_grads && e->marks[e->reads[at.await]].read < step) {
        at.await++;
    }
    return at;
}

/* Steps with hooks or the time of each; apart, so that the plain path has no branch for it. */
static ru_status run_watched(ru_exe *e, uint32_t begin, uint32_t end, const ru_run_args *args,
                             ru_err *err)
{
    const rui_run run = run_of(e, args, err);
    bool profile = e->opt.profile || e->recorder != NULL;
    cursor at = cursor_at(e, begin);
    int64_t before = profile ? ru_rec_now() : 0;
    for (uint32_t i = begin; i < end; i++) {
        rui_step_rec *r = &e->lo.run.at[i];
        if (e->has_hooks) {
            RU_TRY(hooks_before(e, i, &at, err));
            before = profile ? ru_rec_now() : 0; /* waiting is not the step's own time */
        }
        ru_status st = r->s.fn(r->s.state, r->ptrs, &run);
        if (st != RU_OK) {
            return step_failed(e, r, st, err);
        }
        if (e->has_hooks) {
            hooks_after(e, i, &at);
        }
        if (e->judge != NULL && i == e->judge_step) {
            RU_TRY(rui_exe_ask(e, err));
        }
        if (profile) {
            int64_t after = ru_rec_now();
            rui_step_took(r, after - before);
            ru_rec_act(e->recorder, r->trace_name, before, after, i, (uint32_t)e->id, 0);
            before = after;
        }
    }
    e->profiled += profile && end == e->lo.run.n ? 1 : 0;
    return RU_OK;
}

void ru_exe_record(ru_exe *e, ru_recorder *r)
{
    e->recorder = r;
    for (uint32_t i = 0; i < e->lo.run.n && r != NULL; i++) {
        rui_step_rec *s = &e->lo.run.at[i];
        s->trace_name = ru_recorder_name(r, rui_step_label(&e->lo, s), "op");
    }
}

void ru_exe_profile(ru_exe *e, bool on)
{
    e->opt.profile = on;
    if (on) {
        e->profiled = 0;
        for (uint32_t i = 0; i < e->lo.run.n; i++) {
            rui_step_forget(&e->lo.run.at[i]);
        }
    }
}

/* Run steps [begin, end) and note whether they met NaN. */
static ru_status run_part(ru_exe *e, uint32_t begin, uint32_t end, const ru_run_args *args,
                          ru_err *err)
{
    const ru_run_args none = {0};
    args = args == NULL ? &none : args;
    if (err != NULL) {
        err->status = RU_OK;
    }
    ru_pool_enter(e->pool);
    if (e->stale) {
        RU_TRY(run_steps(e, &e->lo.prep, args, err));
        e->stale = false;
    }
    ru_pool_valid();
    RU_TRY(e->has_hooks || e->opt.profile || e->recorder != NULL
               ? run_watched(e, begin, end, args, err)
               : run_plain(e, begin, end, args, err));
    bool asked = e->lo.drops_nan || e->judge != NULL;
    e->invalid = (asked && ru_pool_invalid(e->pool)) || e->invalid;
    return RU_OK;
}

ru_status ru_exe_run(ru_exe *e, const ru_run_args *args, ru_err *err)
{
    e->invalid = false;
    e->next = RU_PHASE_FORWARD;
    RU_TRY(run_part(e, 0, e->lo.run.n, args, err));
    return RU_UNLIKELY(e->invalid) && e->lo.drops_nan && e->outer->n_updates == 0
               ? rui_exe_repeat(e, args, err)
               : RU_OK;
}

static ru_status update_possible(const ru_exe *e, ru_err *err)
{
    if (!e->opt.two_phase) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "only a two-phase executable can run its update alone");
    }
    if (e->next != RU_PHASE_UPDATE && !e->lo.alone) {
        const rui_step_rec *r = &e->lo.run.at[e->lo.not_alone];
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the update needs more than gradients: step %u, %s (%s), reads a result of "
                       "an earlier step",
                       e->lo.not_alone, rui_step_label(&e->lo, r), r->s.kernel);
    }
    return RU_OK;
}

ru_status ru_exe_phase(ru_exe *e, ru_phase phase, const ru_run_args *args, ru_err *err)
{
    const uint32_t bounds[] = {0, e->lo.backward_from, e->lo.update_from, e->lo.run.n};
    if (phase == RU_PHASE_UPDATE) {
        RU_TRY(update_possible(e, err));
    } else if (e->opt.n_forward == 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "forward and backward cannot run separately: the executable was opened "
                       "without the values that end its forward part");
    } else if (phase == RU_PHASE_BACKWARD && e->next != RU_PHASE_BACKWARD) {
        return RU_FAIL(err, RU_E_ARG, "backward must follow forward of the same samples");
    }
    e->invalid = phase != RU_PHASE_FORWARD && e->invalid;
    e->next = RU_PHASE_FORWARD; /* after a failure the run starts again */
    RU_TRY(run_part(e, bounds[phase], bounds[phase + 1], args, err));
    e->next = phase == RU_PHASE_UPDATE ? RU_PHASE_FORWARD : phase + 1;
    return RU_OK;
}

int64_t ru_exe_early_bytes(const ru_exe *e)
{
    return rui_optim_early_bytes(&e->lo);
}

ru_status ru_exe_early_open(ru_exe *e, ru_err *err)
{
    return rui_optim_early_open(&e->lo, err);
}

void ru_exe_early(ru_exe *e, ru_value_id grad, int64_t offset_bytes, int64_t size_bytes)
{
    const rui_run run = run_of(e, NULL, NULL);
    for (uint32_t k = 0; k < e->n_grads; k++) {
        const ru_exe_grad *g = &e->grads[k];
        if (g->value.v == grad.v) {
            RU_CHECK(offset_bytes >= 0 && size_bytes >= 0 && offset_bytes % 4 == 0 &&
                     size_bytes % 4 == 0 && offset_bytes + size_bytes <= g->size_bytes);
            int64_t begin = offset_bytes / 4;
            rui_optim_early_do(&e->lo, &run, g->data, g->size_bytes / 4, begin,
                               begin + size_bytes / 4);
        }
    }
}

void ru_exe_early_undo(ru_exe *e)
{
    rui_optim_undo(&e->lo);
}

void ru_exe_hooks_set(ru_exe *e, const ru_exe_hooks *hooks)
{
    e->has_hooks = hooks != NULL && (hooks->ready != NULL || hooks->need != NULL ||
                                     hooks->await != NULL || hooks->poll != NULL);
    e->hooks = hooks != NULL ? *hooks : (ru_exe_hooks){0};
}

/* -- inputs, outputs, state
 * ------------------------------------------------------------------------ */

void *ru_exe_input(ru_exe *e, ru_value_id input)
{
    for (uint32_t i = 0; i < e->outer->n_inputs; i++) {
        if (e->outer->inputs[i].v == input.v) {
            const rui_home *h = rui_home_find(&e->lo, e->g.inputs[i], NULL);
            return h == NULL ? NULL : rui_buf_ptr(&e->lo, h->buf);
        }
    }
    return NULL;
}

const void *ru_exe_output(ru_exe *e, ru_value_id output)
{
    for (uint32_t i = 0; i < e->outer->n_outputs; i++) {
        if (e->outer->outputs[i].v == output.v) {
            return rui_buf_ptr(&e->lo, e->lo.outputs[i]);
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

static ru_status state_copy(ru_exe *e, ru_value_id id, const void *from, void *into, ru_err *err)
{
    exe_state *s = state_find(e, id);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_ARG, "value %u of the graph is not a state", id.v);
    }
    const ru_type *t = &e->outer->values[id.v].type;
    if (s->inner.v == 0) {
        memcpy(from != NULL ? s->orphan : into, from != NULL ? from : s->orphan,
               (size_t)ru_type_bytes(t));
        return RU_OK;
    }
    const rui_home *h = rui_home_find(&e->lo, s->inner, NULL);
    const rui_layout *plain = rui_plain(&e->lo, t);
    void *mine = rui_buf_ptr(&e->lo, h->buf);
    if (from == NULL) {
        return rui_copy_now(&e->lo, h->layout, mine, plain, into, err);
    }
    e->stale = true;
    return rui_copy_now(&e->lo, plain, from, h->layout, mine, err);
}

ru_status ru_exe_state_read(ru_exe *e, ru_value_id state, void *into, ru_err *err)
{
    return state_copy(e, state, NULL, into, err);
}

ru_status ru_exe_state_write(ru_exe *e, ru_value_id state, const void *from, ru_err *err)
{
    return state_copy(e, state, from, NULL, err);
}

/* Walk the row-major elements [first, first + n) of a blocked state and copy each. */
static ru_status copy_part(const rui_layout *l, int64_t first, int64_t n, uint8_t *mine,
                           uint8_t *theirs, bool out, ru_err *err)
{
    int64_t one = ru_dtype_bytes(l->type.dtype), sizes[RU_RANK_MAX];
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    int64_t *places[RU_RANK_MAX], idx[RU_RANK_MAX];
    uint32_t rank = l->type.rank;
    ru_status st = RU_OK;
    for (uint32_t d = 0; d < rank && st == RU_OK; d++) {
        sizes[d] = l->type.dims[d];
        places[d] = RU_NEW(&scratch, int64_t, sizes[d]);
        if (places[d] == NULL) {
            st = RU_FAIL(err, RU_E_MEM, "no memory to copy a piece of a state");
        } else {
            rui_layout_places(l, d, places[d]);
        }
    }
    int64_t left = first;
    for (uint32_t d = rank; d-- > 0 && st == RU_OK;) {
        idx[d] = left % sizes[d];
        left /= sizes[d];
    }
    for (int64_t k = 0; k < n && st == RU_OK; k++) {
        int64_t at = 0;
        for (uint32_t d = 0; d < rank; d++) {
            at += places[d][idx[d]];
        }
        memcpy(out ? theirs + k * one : mine + at * one, out ? mine + at * one : theirs + k * one,
               (size_t)one);
        for (uint32_t d = rank; d-- > 0 && ++idx[d] == sizes[d];) {
            idx[d] = 0;
        }
    }
    ru_arena_fini(&scratch);
    return st;
}

static ru_status state_part(ru_exe *e, ru_value_id id, int64_t offset, int64_t size, void *theirs,
                            bool out, ru_err *err)
{
    exe_state *s = state_find(e, id);
    int64_t one = s == NULL ? 1 : ru_dtype_bytes(e->outer->values[id.v].type.dtype);
    if (s == NULL || offset < 0 || size < 0 || offset % one != 0 || size % one != 0 ||
        size > ru_type_bytes(&e->outer->values[id.v].type) - offset) {
        return RU_FAIL(err, RU_E_ARG, "bytes [%lld, +%lld) are not inside state %u",
                       (long long)offset, (long long)size, id.v);
    }
    const rui_home *h = s->inner.v == 0 ? NULL : rui_home_find(&e->lo, s->inner, NULL);
    uint8_t *mine = h == NULL ? s->orphan : rui_buf_ptr(&e->lo, h->buf);
    if (!out) {
        e->stale = true;
    }
    if (h == NULL || h->layout->plain) {
        memcpy(out ? theirs : mine + offset, out ? mine + offset : theirs, (size_t)size);
        return RU_OK;
    }
    return copy_part(h->layout, offset / one, size / one, mine, theirs, out, err);
}

ru_status ru_exe_state_read_part(ru_exe *e, ru_value_id state, int64_t offset_bytes,
                                 int64_t size_bytes, void *into, ru_err *err)
{
    return state_part(e, state, offset_bytes, size_bytes, into, true, err);
}

ru_status ru_exe_state_write_part(ru_exe *e, ru_value_id state, int64_t offset_bytes,
                                  int64_t size_bytes, const void *from, ru_err *err)
{
    union {
        const void *in;
        void *out;
    } theirs = {.in = from}; /* only read */
    return state_part(e, state, offset_bytes, size_bytes, theirs.out, false, err);
}

ru_status ru_exe_value_read(ru_exe *e, ru_value_id v, void *into, ru_err *err)
{
    if (!e->opt.keep_temps || v.v == 0 || v.v >= e->g.n_values) {
        return RU_FAIL(err, RU_E_ARG,
                       "value %u can be read only from an executable that keeps its "
                       "temporary values",
                       v.v);
    }
    const rui_home *h = rui_home_find(&e->lo, v, NULL);
    if (h == NULL) {
        return RU_FAIL(err, RU_E_ARG, "value %u is not computed separately in this executable",
                       v.v);
    }
    return rui_copy_now(&e->lo, h->layout, rui_buf_ptr(&e->lo, h->buf),
                        rui_plain(&e->lo, &e->g.values[v.v].type), into, err);
}

/* -- reports
 * --------------------------------------------------------------------------------------- */

ru_status ru_exe_guards_check(const ru_exe *e, ru_err *err)
{
    RU_CHECK(e->opt.guard);
    return rui_low_guards(&e->lo, err);
}

void ru_exe_stats_get(const ru_exe *e, ru_exe_stats *into)
{
    *into = (ru_exe_stats){.n_nodes = e->g.n_nodes - 1,
                           .n_steps = e->lo.run.n,
                           .n_reorders = e->lo.n_reorders,
                           .n_slow = e->lo.n_slow,
                           .slow = e->slow,
                           .n_primitives = e->lo.nn.primitives,
                           .arena_bytes = e->lo.arena_bytes,
                           .arena_bound_bytes = e->lo.arena_bound_bytes,
                           .state_bytes = e->lo.state_bytes,
                           .const_bytes = e->lo.const_bytes,
                           .scratch_bytes = e->lo.scratch_bytes,
                           .io_bytes = e->lo.io_bytes,
                           .flops = e->flops,
                           .open_ns = e->open_ns};
}

const char *ru_exe_print(const ru_exe *e, ru_arena *arena)
{
    return rui_low_print(&e->lo, e->profiled, e->slow, arena);
}

ru_status ru_exe_ops(const ru_exe *e, uint32_t rank, ru_arena *arena, ru_op_fact **ops, uint32_t *n,
                     ru_err *err)
{
    return rui_low_ops(&e->lo, e->profiled, rank, arena, ops, n, err);
}

uint64_t ru_exe_id(const ru_exe *e)
{
    return e->id;
}

uint32_t ru_exe_plans(const ru_exe *e, const ru_exe_plan **plans)
{
    *plans = e->lo.plans;
    return e->lo.n_plans;
}
