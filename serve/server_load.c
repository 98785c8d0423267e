/* The loader: a thread that opens models and closes them, in the order of asking. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/process/memory.h"
#include "env/process/process.h"
#include "serve/far/far.h"
#include "serve/server_impl.h"

void rui_version_free(rui_version *v)
{
    rui_crew_close(v->crew);
    rui_scribe_close(v->scribe);
    ru_steps_close(v->steps);
    if (v->served != NULL) {
        ru_served_close(v->served);
    }
    ru_arena_fini(&v->fx_arena);
    ru_arena_fini(&v->arena);
    free(v->model);
    free(v->version);
    free(v);
}

/* As config.pbtxt counts dimensions: without those of rows where it allows batches, but some write
 * them. */
static bool dims_fit(const rui_config_tensor *t, const ru_type *type, bool batched)
{
    uint32_t n = t->rank < type->rank ? t->rank : type->rank;
    bool fit = !t->has_dims || t->rank == type->rank || (batched && t->rank == type->rank + 1) ||
               (!batched && t->rank + 1 == type->rank);
    for (uint32_t d = 1; fit && t->has_dims && d <= n; d++) {
        int64_t want = t->dims[t->rank - d];
        fit = want == -1 || want == type->dims[type->rank - d];
    }
    return fit;
}

static ru_status check_tensors(const char *what, const rui_config_tensor *t, uint32_t n,
                               const ru_served_value *values, uint32_t n_values, bool batched,
                               ru_err *err)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = 0;
        while (i < n_values && !ru_str_eq_c(t[k].name, values[i].name)) {
            i++;
        }
        if (i == n_values ||
            (t[k].type.n > 0 &&
             !ru_str_eq_c(t[k].type,
                          values[i].texts ? "BYTES" : ru_oip_datatype(values[i].type.dtype)))) {
            return RU_FAIL(err, RU_E_DATA, "config.pbtxt: the model has no %s '%.*s'%s%.*s", what,
                           RUI_CUT(t[k].name, 100), i < n_values ? " of type " : "",
                           i < n_values ? (int)(t[k].type.n < 20 ? t[k].type.n : 20) : 0,
                           t[k].type.n > 0 ? t[k].type.p : "");
        }
        if (!dims_fit(&t[k], &values[i].type, batched)) {
            char text[256];
            ru_type_print(NULL, &values[i].type, text, sizeof text);
            return RU_FAIL(err, RU_E_DATA,
                           "config.pbtxt: dims of %s '%s' are not those of the model, %s%s", what,
                           values[i].name, text, batched ? " with rows before them" : "");
        }
    }
    return RU_OK;
}

/* A language model also writes texts. */
static ru_status open_scribe(ru_server *s, rui_version *v, const ru_source *source, ru_err *err)
{
    enum { ROWS = 128 }; /* of a piece of a prompt */
    const ru_steps_options o = {
        .exe = s->opt.served.exe, .slots = s->opt.served.streams, .rows_max = ROWS};
    ru_err why = {0};
    ru_status st = o.slots == 0 ? RU_E_UNSUPPORTED : ru_steps_open(source, &o, &v->steps, &why);
    if (st != RU_OK) {
        return st == RU_E_UNSUPPORTED ? RU_OK : RU_FAIL(err, st, "%s", why.text);
    }
    v->words = (ru_words){ru_steps_facts_get(v->steps).vocab, source->tokenizer};
    RU_TRY(ru_words_check(&v->words, err));
    return rui_scribe_open(v->steps, s->opt.loop, s->waker, &v->scribe, err);
}

/* On the loader's thread. */
static ru_status open_version(ru_server *s, rui_version *v, ru_err *err)
{
    const rui_config *c = &v->config;
    ru_source source;
    ru_served_options o = s->opt.served;
    o.instances = c->instances > 0 ? (uint32_t)c->instances : o.instances;
    o.rows_max = c->rows_max == 0 ? 1 : c->rows_max > 0 ? c->rows_max : o.rows_max;
    const ru_server_functions *far = s->opt.functions;
    v->instances = far != NULL ? far->instances_max : o.instances;
    RU_TRY(s->opt.open(s->opt.open_self, v->path, &source, err));
    o.sizes = far != NULL && far->sizes > 1;
    o.late = far == NULL && o.streams > 0 && source.ops->steps != NULL;
    RU_TRY(ru_served_open(&source, &o, &v->served, err));
    const ru_served_facts *f = ru_served_facts_get(v->served);
    RU_TRY(check_tensors("input", c->inputs, c->n_inputs, f->inputs, f->n_inputs, f->batched, err));
    RU_TRY(check_tensors("output", c->outputs, c->n_outputs, f->outputs, f->n_outputs, f->batched,
                         err));
    if (far != NULL) { /* one row is computed here, to see whether rows depend on each other */
        return ru_served_first(v->served, err);
    }
    RU_TRY(open_scribe(s, v, &source, err));
    v->late = v->scribe != NULL; /* most ask it for texts alone */
    RU_TRY(v->late ? RU_OK : ru_served_first(v->served, err));
    return rui_crew_open(v->served, v->instances, s->opt.loop, s->waker, &v->crew, err);
}

/* What is planned gives way to what is served. */
static void choose(void *self)
{
    rui_order *o = self;
    ru_process_thread_background(10);
    o->st = rui_far_choose(o->version->far, &o->err);
}

static void carry_out(ru_server *s, rui_order *o)
{
    rui_version *v = o->version;
    ru_thread chooser = {0}; /* a thread without privileges does not get its priority back */
    ru_status st;
    switch (o->kind) {
    case RUI_OPEN:
        o->st = open_version(s, v, &o->err);
        break;
    case RUI_GROW:
        if (ru_served_grow(v->served, &o->err) != RU_OK) {
            ru_log(RU_LOG_WARN, "serve", "small", "%s: larger batches do not open: %s", v->model,
                   o->err.text);
        }
        break;
    case RUI_CHOOSE:
        st = ru_thread_start(&chooser, "chooser", choose, o, &o->err);
        ru_thread_join(&chooser);
        o->st = st == RU_OK ? o->st : st; /* else what it said */
        break;
    case RUI_CLOSE:
        rui_version_free(v);
        o->version = NULL;
        break;
    }
}

static void push(rui_order **list, rui_order *o)
{
    o->next = NULL;
    while (*list != NULL) {
        list = &(*list)->next;
    }
    *list = o;
}

static rui_order *pop(rui_order **list)
{
    rui_order *o = *list;
    *list = o != NULL ? o->next : NULL;
    return o;
}

static void load(void *self)
{
    ru_server *s = self;
    ru_mutex_lock(&s->lock);
    for (;;) {
        rui_order *o = pop(&s->orders);
        if (o == NULL) {
            if (s->loader_ends) {
                break;
            }
            ru_cond_wait(&s->more, &s->lock);
            continue;
        }
        if (s->loader_ends && o->kind != RUI_CLOSE) { /* nobody waits for it */
            free(o);
            continue;
        }
        ru_mutex_unlock(&s->lock);
        bool leaves_holes = o->kind == RUI_GROW || o->kind == RUI_CLOSE;
        carry_out(s, o);
        if (leaves_holes) { /* what opening took and no size keeps: 14 MB after 60 loads of LeNet */
            ru_memory_trim();
        }
        ru_mutex_lock(&s->lock);
        push(&s->answers, o);
        ru_loop_wake(s->opt.loop, s->waker);
    }
    ru_mutex_unlock(&s->lock);
}

ru_status rui_loader_start(ru_server *s, ru_err *err)
{
    ru_mutex_init(&s->lock);
    ru_cond_init(&s->more);
    return ru_thread_start(&s->loader, "loader", load, s, err);
}

static ru_status ask(ru_server *s, rui_version *v, rui_order_kind kind, ru_err *err)
{
    rui_order *o = calloc(1, sizeof *o);
    if (o == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to load a model");
    }
    *o = (rui_order){.kind = kind, .version = v};
    ru_mutex_lock(&s->lock);
    push(&s->orders, o);
    ru_cond_signal(&s->more);
    ru_mutex_unlock(&s->lock);
    return RU_OK;
}

void rui_version_grow(rui_version *v)
{
    ru_err err = {0};
    if (ask(v->server, v, RUI_GROW, &err) != RU_OK) {
        ru_served_stop(v->served);
        ru_log(RU_LOG_WARN, "serve", "small", "%s: %s", v->model, err.text);
    }
}

bool rui_version_choose(rui_version *v)
{
    ru_err err = {0};
    v->opening = ask(v->server, v, RUI_CHOOSE, &err) == RU_OK;
    return v->opening;
}

static void failed(rui_version *v, ru_status st)
{
    v->state = RUI_FAILED;
    v->err.status = st;
    if (v->done != NULL) {
        v->done(v->done_self, &v->err);
    }
}

/* The loader cannot be interrupted: what it opens meanwhile is closed when it is open. */
static void on_load_late(void *self, uint32_t what, ru_time now)
{
    rui_version *v = self;
    (void)what;
    (void)now;
    if (v->state == RUI_LOADING) {
        failed(v,
               RU_FAIL(&v->err, RU_E_AGAIN, "it is not open after the %g s that --load-max allows",
                       (double)v->server->opt.load_max_ns * 1e-9));
    }
}

void rui_loader_stop(ru_server *s)
{
    for (rui_version *v = s->versions; v != NULL; v = v->next) {
        if (v->served != NULL && (v->state == RUI_READY || v->state == RUI_DRAINING)) {
            ru_served_stop(v->served);
        }
    }
    ru_mutex_lock(&s->lock);
    s->loader_ends = true;
    ru_cond_signal(&s->more);
    ru_mutex_unlock(&s->lock);
    ru_thread_join(&s->loader);
    for (rui_order *o = pop(&s->answers); o != NULL; o = pop(&s->answers)) {
        free(o);
    }
    ru_cond_fini(&s->more);
    ru_mutex_fini(&s->lock);
    for (rui_version *v = s->versions; v != NULL; v = v->next) {
        ru_loop_timer_off(s->opt.loop, on_load_late, v, 0);
        rui_crew_close(v->crew);
        rui_scribe_close(v->scribe);
        rui_far_close(v->far);
        v->crew = NULL;
        v->scribe = NULL;
    }
}

void rui_versions_free(ru_server *s)
{
    while (s->versions != NULL) {
        rui_version *v = s->versions;
        s->versions = v->next;
        rui_version_free(v);
    }
}

/* -- on the loop -------------------------------------------------------------------------------
 */

/* What the loop needs to serve it. */
static ru_status prepare(rui_version *v, ru_time now, ru_err *err)
{
    const ru_server_options *o = &v->server->opt;
    uint32_t n = v->instances;
    const ru_serve_rule rule = {.batch = 1,
                                .timeout_ns = v->config.delay_us * 1000,
                                .eager = v->config.delay_us == 0,
                                .promise_ns = o->slo_ns};
    const double share = 1;
    const ru_serve_table table = {.n = 1, .n_classes = 1, .rule = &rule, .share = &share};
    const ru_serve_options so = {.requests_max = o->requests_max, .instances_max = n};
    RU_TRY(ru_serve_init(&so, &table, now, &v->arena, &v->machine, err));
    v->jobs = RU_NEW(&v->arena, rui_job, n);
    v->idle = RU_NEW(&v->arena, uint32_t, n);
    for (uint32_t k = 0; v->jobs != NULL && v->idle != NULL && k < n; k++) {
        v->jobs[k].instance = k;
        v->jobs[k].parts = RU_NEW(&v->arena, ru_served_part *, o->requests_max);
        if (v->jobs[k].parts == NULL) {
            break;
        }
        v->idle[v->n_idle++] = k;
    }
    ru_effects_init(&v->fx, &v->fx_arena);
    return v->n_idle == n ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for the model");
}

void rui_version_known(rui_version *v, ru_status st, const ru_err *err, ru_time now)
{
    if (v->state != RUI_LOADING) { /* it was too late */
        return;
    }
    if (st != RU_OK) {
        v->err = *err;
        failed(v, st);
        return;
    }
    v->state = RUI_READY;
    v->since = now;
    rui_infer_pace(v);
    ru_log(RU_LOG_INFO, "serve", "ready", "%s version %s", v->model, v->version);
    if (!v->late && v->far == NULL) {
        rui_version_grow(v);
    }
    if (v->done != NULL) {
        v->done(v->done_self, NULL);
    }
}

static void opened(ru_server *s, rui_order *o, ru_time now)
{
    rui_version *v = o->version;
    v->opening = false;
    ru_loop_timer_off(s->opt.loop, on_load_late, v, 0);
    if (v->state == RUI_DRAINING) { /* it was too late, and is not wanted any more */
        rui_version_drain(v);
        return;
    }
    if (v->state == RUI_FAILED) {
        return;
    }
    ru_status st = o->st == RU_OK ? prepare(v, now, &o->err) : o->st;
    st = st == RU_OK && s->opt.functions != NULL ? rui_far_open(v, &o->err) : st;
    if (st != RU_OK || v->far == NULL) { /* functions are probed first */
        rui_version_known(v, st, &o->err, now);
    }
}

/* One that drains may be closed already, and another may stand at its address. */
static bool listed(const ru_server *s, const rui_version *v)
{
    const rui_version *k = s->versions;
    while (k != NULL && k != v) {
        k = k->next;
    }
    return k != NULL;
}

static void chosen(const rui_order *o, ru_time now)
{
    rui_version *v = o->version;
    v->opening = false;
    if (v->state == RUI_DRAINING) {
        rui_version_drain(v);
    } else {
        rui_far_chosen(v->far, o->st, &o->err, now);
    }
}

void rui_loader_answers(ru_server *s, ru_time now)
{
    for (;;) {
        ru_mutex_lock(&s->lock);
        rui_order *o = pop(&s->answers);
        ru_mutex_unlock(&s->lock);
        if (o == NULL) {
            return;
        }
        if (o->kind == RUI_OPEN) {
            opened(s, o, now);
        } else if (o->kind == RUI_GROW && listed(s, o->version) && o->version->state == RUI_READY) {
            o->version->grown = true;
            rui_infer_pace(o->version);
        } else if (o->kind == RUI_CHOOSE && listed(s, o->version)) {
            chosen(o, now);
        }
        free(o);
    }
}

void rui_version_drain(rui_version *v)
{
    v->state = RUI_DRAINING;
    if (v->calls > 0 || v->opening) {
        return;
    }
    for (rui_version **at = &v->server->versions; *at != NULL; at = &(*at)->next) {
        if (*at == v) {
            *at = v->next;
            break;
        }
    }
    ru_err err = {0};
    rui_infer_end(v);
    rui_far_close(v->far);
    if (v->served != NULL) {
        ru_served_stop(v->served);
    }
    if (ask(v->server, v, RUI_CLOSE, &err) != RU_OK) { /* then the loop has to */
        rui_version_free(v);
    }
}

rui_version *rui_version_new(ru_server *s, const char *model, const char *version, ru_err *err)
{
    rui_version *v = calloc(1, sizeof *v);
    char *m = strdup(model), *n = strdup(version);
    if (v == NULL || m == NULL || n == NULL) {
        free(v);
        free(m);
        free(n);
        (void)RU_FAIL(err, RU_E_MEM, "no memory for model %s", model);
        return NULL;
    }
    *v = (rui_version){.server = s, .model = m, .version = n, .config = {.rows_max = -1}};
    ru_arena_init(&v->arena, 0);
    ru_arena_init(&v->fx_arena, 0);
    return v;
}

ru_status rui_version_begin(rui_version *v, ru_err *err)
{
    RU_TRY(ask(v->server, v, RUI_OPEN, err));
    v->opening = true;
    if (v->server->opt.load_max_ns > 0) {
        ru_loop_timer(v->server->opt.loop, on_load_late, v, 0,
                      ru_time_after(ru_clock_now(), v->server->opt.load_max_ns));
    }
    v->next = v->server->versions;
    v->server->versions = v;
    return RU_OK;
}

ru_status ru_server_load(ru_server *s, const char *model, const char *version, const char *path,
                         void (*done)(void *self, const ru_err *err), void *self, ru_err *err)
{
    rui_version *v = rui_version_new(s, model, version, err);
    if (v == NULL) {
        return RU_E_MEM;
    }
    v->done = done;
    v->done_self = self;
    v->path = ru_arena_str(&v->arena, path);
    ru_status st = v->path != NULL ? rui_version_begin(v, err)
                                   : RU_FAIL(err, RU_E_MEM, "no memory for model %s", model);
    if (st != RU_OK) {
        rui_version_free(v);
    }
    return st;
}
