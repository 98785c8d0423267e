/* Weights of this worker for guests (train/remote/giver.h), at an address and with a token of their
 * own: `rubato predict --from` reaches no other part of the worker.
 *
 *   loop     a guest asks: due                        made: every guest that waits gets HEAD
 *   compute  ... the update of a step is kept | copy, hashes | the next update opens ...
 *
 * The copy is made where no update is open, so all guests have the weights after one step, while
 * the job goes on. It lives until the last guest has it. */
#include "base/log.h"
#include "env/file/file.h"
#include "env/file/secret.h"
#include "env/process/memory.h"
#include "run/ckpt_form.h"
#include "train/remote/giver.h"
#include "train/worker/worker_impl.h"

enum { GUESTS = 8 };

struct rui_weights {
    ru_giver *giver;
    char token[RU_SECRET_TEXT];
    bool due; /* under the worker's lock */
    /* The compute thread's from `due` on, then the loop's until they are unused. */
    ru_arena arena;
    ru_remote w;
    ru_offer offer;
    int64_t step;
    ru_err why; /* status RU_OK: they are here */
};

/* -- compute thread ---------------------------------------------------------------------------- */

bool rui_weights_due(const rui_worker *w)
{
    return w->capture.weights != NULL && w->capture.weights->due;
}

/* What a checkpoint would call model.safetensors, in the order in which that has it: largest
 * elements first. Without data yet. Returns the bytes of all; < 0: no memory. */
static int64_t list(const ru_graph *g, ru_arena *arena, ru_remote_tensor *at, uint32_t *n)
{
    int64_t bytes = 0;
    for (int64_t elem = 8; elem > 0; elem /= 2) {
        for (uint32_t v = 1; v < g->n_values; v++) {
            const ru_value *s = &g->values[v];
            bool kept = s->kind == RU_VALUE_STATE && s->name != NULL, slot = true;
            if (!kept || ru_dtype_bytes(s->type.dtype) != elem) {
                continue;
            }
            const char *name = ru_ckpt_name(g, s, arena, &slot);
            if (name == NULL) {
                return -1;
            }
            if (!slot) {
                at[*n] = (ru_remote_tensor){.name = name, .type = s->type, .hash = v};
                bytes += ru_type_bytes(&s->type);
                (*n)++;
            }
        }
    }
    return bytes;
}

static ru_status copy_tensors(rui_worker *w, rui_weights *x, ru_err *err)
{
    const ru_graph *g = &w->now->step.graph;
    ru_remote_tensor *at = RU_NEW(&x->arena, ru_remote_tensor, g->n_values);
    int64_t bytes = at != NULL ? list(g, &x->arena, at, &x->w.n) : -1;
    int64_t free = ru_memory_free_bytes();
    if (bytes < 0) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the names of weights");
    }
    if (!rui_early_may(bytes, free)) {
        return RU_FAIL(err, RU_E_MEM,
                       "a copy of the weights (%lld MiB) needs more than half of this worker's "
                       "free memory",
                       (long long)(bytes >> 20));
    }
    for (uint32_t k = 0; k < x->w.n; k++) {
        int64_t size = ru_type_bytes(&at[k].type);
        void *data = ru_arena_alloc(&x->arena, size, 64);
        if (data == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for a copy of the weights");
        }
        RU_TRY(ru_exe_state_read(w->now->exe, (ru_value_id){(uint32_t)at[k].hash}, data, err));
        at[k].data = data;
        at[k].hash = ru_hash_bytes(data, size, 0);
    }
    x->w.at = at;
    return RU_OK;
}

static ru_status add_model(rui_worker *w, rui_weights *x, ru_err *err)
{
    const rui_trainer *t = &w->t;
    if (t->job->model.source != RU_MODEL_ONNX) {
        return RU_OK;
    }
    const char *one = ru_path_join(&x->arena, t->out, "model.onnx");
    const char *parts = ru_path_join(&x->arena, t->out, "model/model.onnx");
    if (one == NULL || parts == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the name of a model");
    }
    const ru_rundir run = {.dir = t->out, .onnx = ru_path_exists(one) ? one : parts};
    return ru_remote_onnx(&run, &x->w, err);
}

static ru_status copy(rui_worker *w, rui_weights *x, ru_err *err)
{
    const rui_trainer *t = &w->t;
    if (w->now == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "this worker has no weights yet; ask again later");
    }
    ru_text state = ru_text_arena(&x->arena);
    const ru_ckpt_options o = {
        .facts = &t->model.facts, .job_yaml = t->job_yaml, .seed = t->job->train.seed};
    const ru_ckpt_at at = {.step = t->step_done, .samples = t->samples};
    RU_TRY(copy_tensors(w, x, err));
    RU_TRY(add_model(w, x, err));
    ru_ckpt_state_put(&o, &at, &state);
    x->w.state = state.p;
    x->w.state_bytes = state.n;
    return state.cut ? RU_FAIL(err, RU_E_MEM, "no memory for the description of weights")
                     : ru_offer_make(&x->w, &x->arena, &x->offer, err);
}

void rui_weights_make(rui_worker *w)
{
    rui_weights *x = w->capture.weights;
    ru_mutex_lock(&w->lock);
    bool due = rui_weights_due(w);
    if (due) {
        x->due = false;
    }
    ru_mutex_unlock(&w->lock);
    if (due) {
        ru_time begun = ru_clock_now();
        x->why = (ru_err){0};
        x->why.status = copy(w, x, &x->why);
        x->step = w->t.step_done;
        ru_time ended = ru_clock_now();
        ru_rec_span(w->t.recorder, w->t.names.save, begun.ns, ended.ns, w->t.step_done);
        ru_shell_say(&w->shell, &w->line, &(rui_event){.kind = RUI_EVENT_WEIGHTS});
    }
}

/* -- loop thread ------------------------------------------------------------------------------- */

static void unused(void *self)
{
    rui_weights *x = self;
    ru_remote_close(&x->w);
    ru_arena_fini(&x->arena);
    ru_arena_init(&x->arena, 0);
}

static void wanted(void *self, ru_time now, ru_effects *fx)
{
    rui_worker *w = self;
    ru_elastic_facts f;
    (void)now;
    ru_elastic_facts_get(w->elastic, &f);
    if (w->opt->shell.newcomer && f.moves) {
        ru_giver_none(w->capture.weights->giver,
                      "the workers still send each other the state for a newcomer; ask again later",
                      fx);
        return;
    }
    ru_mutex_lock(&w->lock);
    w->capture.weights->due = true;
    ru_cond_broadcast(&w->changed);
    ru_mutex_unlock(&w->lock);
}

static void gone(void *self)
{
    rui_worker *w = self;
    unused(w->capture.weights);
}

void rui_weights_made(rui_worker *w, ru_effects *fx)
{
    rui_weights *x = w->capture.weights;
    if (x->why.status != RU_OK) {
        ru_giver_none(x->giver, x->why.text, fx);
        unused(x);
        return;
    }
    ru_log(RU_LOG_INFO, "train", "weights", "guests get the weights after step %lld",
           (long long)x->step);
    ru_giver_set(x->giver, &x->offer, fx);
}

/* The guests' token follows from that of the job, which cannot be told from it: all workers of a
 * job have the same. */
static ru_status make_token(rui_worker *w, rui_weights *x, ru_err *err)
{
    uint8_t key[RU_SECRET_BYTES];
    const ru_shell_options *o = &w->opt->shell;
    RU_TRY(ru_secret_derive(o->token, o->token_bytes, "rubato guests of weights", key, err));
    ru_secret_text(key, x->token);
    const char *path = ru_path_join(w->arena, w->t.out, "weights-token");
    return path != NULL ? ru_file_secret(path, x->token, (int64_t)sizeof x->token - 1, err)
                        : RU_FAIL(err, RU_E_MEM, "no memory for a worker");
}

ru_status rui_weights_open(rui_worker *w, ru_err *err)
{
    if (w->opt->weights == NULL) {
        return RU_OK;
    }
    rui_weights *x = RU_NEW(w->arena, rui_weights, 1);
    if (x == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    ru_arena_init(&x->arena, 0);
    w->capture.weights = x;
    const ru_giver_options gi = {.guests_max = GUESTS, .wanted = wanted, .unused = gone, .self = w};
    RU_TRY(ru_giver_open(&gi, &w->arena_loop, &x->giver, err));
    RU_TRY(make_token(w, x, err));
    ru_guests_options go = ru_giver_guests(x->giver);
    go.token = (const uint8_t *)x->token;
    go.token_bytes = (uint32_t)sizeof x->token - 1;
    RU_TRY(ru_shell_guests(&w->shell, w->opt->weights, ru_giver_conns(x->giver), &go, err));
    const ru_part part = ru_giver_part(x->giver);
    ru_node_part(w->shell.timers.node, &part);
    return ru_giver_ready(x->giver, w->shell.timers.node, &w->arena_loop, err);
}

void rui_weights_close(rui_worker *w)
{
    rui_weights *x = w->capture.weights;
    if (x != NULL) {
        unused(x);
        ru_arena_fini(&x->arena);
        w->capture.weights = NULL;
    }
}
