/* The step of a share: graph, executable, gradients by number.
 *
 * Gradients are numbered last parameter first (about the order in which they become ready) and end
 * with the vector of what else is summed; states in the order of the graph. Both orders depend on
 * the model alone, so that every worker counts alike whatever its share. */
#include <stdlib.h>
#include <string.h>

#include "train/worker/worker_impl.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the worker is full");
}

/* Micro-batches for n of `batch` samples when the job cuts its batch into `accumulate`: about as
 * large. */
static uint32_t micro_of(const rui_worker *w, int64_t n, int64_t batch)
{
    const ru_job_adapt *a = &w->t.job->train.adapt;
    int64_t k = w->t.job->train.accumulate;
    k = k > 1 ? k : 1;
    int64_t least = (n * k + batch - 1) / batch, local = w->noise.adapt.local_max;
    local = a->batch_max > 0 && a->local_max > 0 ? a->local_max : local; /* of the first step too */
    least = local > 0 && least < (n + local - 1) / local ? (n + local - 1) / local : least;
    for (int64_t m = least < 1 ? 1 : least; m < n && m < RU_ACCUMULATE_MAX; m++) {
        if (n % m == 0) {
            return (uint32_t)m;
        }
    }
    return n < RU_ACCUMULATE_MAX && n > 0 && (k > 1 || local > 0) && least > 1 ? (uint32_t)n : 1;
}

static ru_status step_of(rui_worker *w, int64_t n, ru_arena *arena, ru_step_graph *step,
                         ru_exe_options *eo, ru_err *err)
{
    ru_step_options so;
    rui_trainer_options(&w->t, &so, eo);
    so.batch = n;
    so.share_of = w->cmd.share.batch > 0 ? w->cmd.share.batch : w->t.job->train.batch;
    so.accumulate = micro_of(w, n, so.share_of);
    return ru_step_build(&w->t.model.train, &so, arena, step, err);
}

static ru_value_id grad_of(const ru_step_graph *s, uint32_t tensor)
{
    return tensor == s->n_params ? s->shared : s->grads[s->n_params - 1 - tensor];
}

static bool is_kept(const ru_value *v)
{
    return v->kind == RU_VALUE_STATE && v->name != NULL;
}

/* A slot ("fc1.weight.momentum") belongs to its parameter: an update of one whose other is not
 * there yet would spoil both, so they go to a joiner together. */
static void group_states(rui_worker *w)
{
    for (uint32_t k = 0; k < w->list.n_states; k++) {
        w->list.state_group[k] = k;
        const char *dot = strrchr(w->list.state_names[k], '.');
        size_t n = dot == NULL ? 0 : (size_t)(dot - w->list.state_names[k]);
        for (uint32_t i = 0; i < w->list.n_states && n > 0; i++) {
            if (strncmp(w->list.state_names[i], w->list.state_names[k], n) == 0 &&
                w->list.state_names[i][n] == 0) {
                w->list.state_group[k] = i;
            }
        }
    }
}

static ru_status list(rui_worker *w, const ru_step_graph *s, ru_err *err)
{
    w->list.n_tensors = s->n_params + 1;
    if (w->list.n_tensors > RU_ELASTIC_TENSORS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "the model has %u parameters; several workers can train at most %d",
                       s->n_params, RU_ELASTIC_TENSORS_MAX - 1);
    }
    w->list.tensor_bytes = RU_NEW(w->arena, int64_t, w->list.n_tensors);
    w->list.state_names = RU_NEW(w->arena, const char *, s->graph.n_values);
    w->list.state_bytes = RU_NEW(w->arena, int64_t, s->graph.n_values);
    w->list.state_group = RU_NEW(w->arena, uint32_t, s->graph.n_values);
    if (w->list.tensor_bytes == NULL || w->list.state_names == NULL ||
        w->list.state_bytes == NULL || w->list.state_group == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        w->list.tensor_bytes[k] = ru_type_bytes(&s->graph.values[grad_of(s, k).v].type);
    }
    for (uint32_t v = 1; v < s->graph.n_values; v++) {
        const ru_value *x = &s->graph.values[v];
        if (is_kept(x)) {
            w->list.state_names[w->list.n_states] = ru_arena_str(w->arena, x->name);
            w->list.state_bytes[w->list.n_states++] = ru_type_bytes(&x->type);
        }
    }
    group_states(w);
    return RU_OK;
}

ru_status rui_build_list(rui_worker *w, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_step_graph s;
    ru_exe_options eo;
    int64_t k = w->t.job->train.accumulate;
    int64_t n = w->t.job->train.batch / (k > 1 ? k : 1);
    ru_status st = step_of(w, n, &scratch, &s, &eo, err);
    if (st == RU_OK) {
        st = list(w, &s, err);
    }
    ru_arena_fini(&scratch);
    return st;
}

/* Where gradients and states of this build stand. */
static ru_status number(rui_worker *w, rui_build *b, ru_err *err)
{
    const ru_exe_grad *grads;
    uint32_t n = ru_exe_grads(b->exe, &grads);
    b->tensors = RU_NEW(&b->arena, ru_exe_grad, w->list.n_tensors);
    b->states = RU_NEW(&b->arena, ru_value_id, w->list.n_states);
    if (b->tensors == NULL || b->states == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        for (uint32_t i = 0; i < n; i++) {
            if (grads[i].value.v == grad_of(&b->step, k).v) {
                b->tensors[k] = grads[i];
            }
        }
        if (b->tensors[k].data == NULL || b->tensors[k].size_bytes != w->list.tensor_bytes[k]) {
            return RU_FAIL(err, RU_E_BUG, "gradient %u of the step has %lld bytes, expected %lld",
                           k, (long long)b->tensors[k].size_bytes,
                           (long long)w->list.tensor_bytes[k]);
        }
    }
    for (uint32_t k = 0; k < w->list.n_states; k++) {
        b->states[k] = ru_graph_find(&b->step.graph, w->list.state_names[k]);
        if (b->states[k].v == 0) {
            return RU_FAIL(err, RU_E_BUG, "the step has no state '%s'", w->list.state_names[k]);
        }
    }
    return RU_OK;
}

/* Gradients stand in the shared segment, in the order of their values. */
static ru_status place(rui_worker *w, rui_build *b, ru_exe_options *eo, ru_err *err)
{
    if (w->local.shm == NULL) {
        return RU_OK;
    }
    void **at = RU_NEW(&b->arena, void *, w->list.n_tensors);
    uint32_t n = 0;
    if (at == NULL) {
        return full(err);
    }
    for (uint32_t v = 1; v < b->step.graph.n_values; v++) {
        for (uint32_t k = 0; k < w->list.n_tensors; k++) {
            if (grad_of(&b->step, k).v == v) {
                at[n++] = rui_local_grad(w, k);
            }
        }
    }
    RU_CHECK(n == w->list.n_tensors);
    eo->grad_at = at;
    return RU_OK;
}

ru_status rui_build_open(rui_worker *w, int64_t n, bool plain, bool first, rui_build **out,
                         ru_err *err)
{
    rui_build *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a step");
    }
    ru_arena_init(&b->arena, 0);
    b->n = n;
    b->plain = plain;
    ru_exe_options eo;
    b->two = rui_early_two(w, &b->why);
    ru_status st = step_of(w, n, &b->arena, &b->step, &eo, err);
    if (st == RU_OK) {
        st = place(w, b, &eo, err);
    }
    eo.two_phase = true;
    eo.overlap = b->two;
    eo.plain_grads = plain;
    eo.autotune = eo.autotune && !w->opt->deterministic;
    eo.tuned_only = !first; /* a step of another size must not wait for measurements */
    if (st == RU_OK) {
        st = ru_exe_open(&b->step.graph, &eo, &b->exe, err);
        st = st == RU_E_MEM ? rui_trainer_too_large(&w->t, err) : st;
    }
    if (st == RU_OK) {
        st = number(w, b, err);
    }
    if (st != RU_OK) {
        rui_build_close(b);
        return st;
    }
    *out = b;
    return RU_OK;
}

void rui_build_close(rui_build *b)
{
    if (b == NULL) {
        return;
    }
    ru_exe_close(b->exe);
    ru_arena_fini(&b->arena);
    free(b);
}

/* Slots as well: ru_model_state_copy leaves them out. */
ru_status rui_build_take(rui_worker *w, rui_build *from, rui_build *to, ru_err *err)
{
    int64_t most = 64;
    for (uint32_t k = 0; k < w->list.n_states; k++) {
        most = w->list.state_bytes[k] > most ? w->list.state_bytes[k] : most;
    }
    void *data = aligned_alloc(64, (size_t)(most + 63) / 64 * 64);
    if (data == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to copy the state to the new step");
    }
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < w->list.n_states && st == RU_OK; k++) {
        st = ru_exe_state_read(from->exe, from->states[k], data, err);
        st = st == RU_OK ? ru_exe_state_write(to->exe, to->states[k], data, err) : st;
    }
    free(data);
    return st;
}
