/* The loader: a thread that opens models and closes them, in the order of asking. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/server_impl.h"

static void free_version(rui_version *v)
{
    rui_crew_close(v->crew);
    if (v->served != NULL) {
        ru_served_close(v->served);
    }
    ru_arena_fini(&v->fx_arena);
    ru_arena_fini(&v->arena);
    free(v->model);
    free(v->version);
    free(v);
}

static void carry_out(ru_server *s, rui_order *o)
{
    rui_version *v = o->version;
    switch (o->kind) {
    case RUI_OPEN:
        o->st = ru_served_open(&v->source, &s->opt.served, &v->served, &o->err);
        if (o->st == RU_OK) {
            o->st = rui_crew_open(v->served, s->opt.served.instances, s->opt.loop, s->waker,
                                  &v->crew, &o->err);
        }
        break;
    case RUI_GROW:
        if (ru_served_grow(v->served, &o->err) != RU_OK) {
            ru_log(RU_LOG_WARN, "serve", "small", "%s: larger batches do not open: %s", v->model,
                   o->err.text);
        }
        break;
    case RUI_CLOSE:
        free_version(v);
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
        ru_mutex_unlock(&s->lock);
        carry_out(s, o);
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

void rui_loader_stop(ru_server *s)
{
    for (rui_version *v = s->versions; v != NULL; v = v->next) {
        if (v->served != NULL && v->state == RUI_READY) {
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
        rui_crew_close(v->crew);
        v->crew = NULL;
    }
}

void rui_versions_free(ru_server *s)
{
    while (s->versions != NULL) {
        rui_version *v = s->versions;
        s->versions = v->next;
        free_version(v);
    }
}

/* -- on the loop -------------------------------------------------------------------------------
 */

/* What the loop needs to serve it. */
static ru_status prepare(rui_version *v, ru_time now, ru_err *err)
{
    const ru_server_options *o = &v->server->opt;
    uint32_t n = o->served.instances;
    const ru_serve_rule rule = {.batch = 1, .eager = true, .promise_ns = o->slo_ns};
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

static void opened(ru_server *s, rui_order *o, ru_time now)
{
    rui_version *v = o->version;
    ru_status st = o->st == RU_OK ? prepare(v, now, &o->err) : o->st;
    v->state = st == RU_OK ? RUI_READY : RUI_FAILED;
    v->err = o->err;
    v->err.status = st;
    if (st == RU_OK) {
        rui_infer_pace(v);
        ru_log(RU_LOG_INFO, "serve", "ready", "%s version %s", v->model, v->version);
        if (ask(s, v, RUI_GROW, &o->err) != RU_OK) {
            ru_log(RU_LOG_WARN, "serve", "small", "%s: %s", v->model, o->err.text);
        }
    }
    if (v->done != NULL) {
        v->done(v->done_self, st == RU_OK ? NULL : &v->err);
    }
}

/* One that drains may be closed already. */
static bool listed(const ru_server *s, const rui_version *v)
{
    const rui_version *k = s->versions;
    while (k != NULL && k != v) {
        k = k->next;
    }
    return k != NULL;
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
        } else if (o->kind == RUI_GROW && listed(s, o->version)) {
            rui_infer_pace(o->version);
        }
        free(o);
    }
}

void rui_version_drain(rui_version *v)
{
    v->state = RUI_DRAINING;
    if (v->calls > 0) {
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
    ru_served_stop(v->served);
    if (ask(v->server, v, RUI_CLOSE, &err) != RU_OK) { /* then the loop has to */
        free_version(v);
    }
}

ru_status ru_server_load(ru_server *s, const char *model, const char *version,
                         const ru_source *source, void (*done)(void *self, const ru_err *err),
                         void *self, ru_err *err)
{
    rui_version *v = calloc(1, sizeof *v);
    char *m = strdup(model), *n = strdup(version);
    if (v == NULL || m == NULL || n == NULL) {
        free(v);
        free(m);
        free(n);
        source->ops->close(source->self);
        return RU_FAIL(err, RU_E_MEM, "no memory for model %s", model);
    }
    *v = (rui_version){.server = s,
                       .model = m,
                       .version = n,
                       .source = *source,
                       .done = done,
                       .done_self = self,
                       .next = s->versions};
    ru_arena_init(&v->arena, 0);
    ru_arena_init(&v->fx_arena, 0);
    ru_status st = ask(s, v, RUI_OPEN, err);
    if (st != RU_OK) {
        source->ops->close(source->self);
        free_version(v);
        return st;
    }
    s->versions = v;
    return RU_OK;
}
