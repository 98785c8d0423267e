#include "serve/server.h"

#include <stdlib.h>

#include "env/process/memory.h"
#include "serve/beside/beside.h"
#include "serve/server_impl.h"

enum { REQUESTS = 1024, CONNS = 4096, OUTPUTS_BYTES = 512 << 20 };
#define FLUSH_NS INT64_C(1000000000) /* lines of the access log wait so long */

static void on_gone(void *self, ru_http_request *r)
{
    if (!rui_text_gone(self, r)) {
        rui_infer_gone(self, r);
    }
}

static void on_flush(void *self, uint32_t what, ru_time now)
{
    ru_server *s = self;
    (void)what;
    s->flushes = !rui_journal_flush(s->journal);
    if (s->flushes) {
        ru_loop_timer(s->opt.loop, on_flush, s, 0, ru_time_after(now, FLUSH_NS));
    }
}

/* Into the journal: what its infer request knows of it already, or nothing but the request. */
static void on_answered(void *self, const ru_http_request *r, uint32_t status, int64_t bytes)
{
    ru_server *s = self;
    rui_call *c = r->mine;
    rui_entry own = {0}, *e = c != NULL ? &c->entry : &own;
    ru_text method = ru_text_into(e->method, sizeof e->method);
    ru_text path = ru_text_into(e->path, sizeof e->path);
    ru_time now = ru_clock_now();
    ru_text_put(&method, r->method);
    ru_text_put(&path, r->path);
    e->status = status;
    e->bytes_in = r->body_bytes;
    e->bytes_out = bytes;
    e->all_ns = ru_time_since(now, r->since);
    e->at_ns = ru_clock_wall_ns() - e->all_ns;
    if (rui_journal_add(s->journal, e) && !s->flushes) {
        s->flushes = true;
        ru_loop_timer(s->opt.loop, on_flush, s, 0, ru_time_after(now, FLUSH_NS));
    }
}

/* It may have been what a stop waits for. */
static void on_sent(void *self)
{
    const ru_server *s = self;
    if (s->stopped != NULL) {
        ru_loop_wake(s->opt.loop, s->waker);
    }
}

/* Jobs or orders are done. */
static void on_wake(void *self, ru_time now)
{
    ru_server *s = self;
    rui_text_looks(s, now);
    for (rui_version *v = s->versions, *next; v != NULL; v = next) {
        next = v->next;
        if (v->machine != NULL) {
            rui_infer_jobs(v);
        }
        if (v->state == RUI_DRAINING) {
            rui_version_drain(v);
        }
    }
    rui_loader_answers(s, now);
    if (s->stopped != NULL && s->n_calls == 0 && !ru_http_sends(s->http)) {
        void (*stopped)(void *) = s->stopped;
        s->stopped = NULL;
        stopped(s->stopped_self);
    }
}

/* Clients that send no more, a fourth of all, have two more each; other files have the rest. */
static uint32_t conns_max(void)
{
    uint32_t files = ru_files_max(2 * CONNS);
    return files / 2 > 16 ? files / 2 : 16;
}

static ru_status begin(ru_server *s, ru_arena *arena, ru_err *err)
{
    RU_TRY(rui_journal_open(s->opt.access_log, arena, &s->journal, err));
    RU_TRY(ru_loop_waker(s->opt.loop, on_wake, s, &s->waker, err));
    s->has_waker = true;
    const ru_http_options o = {.loop = s->opt.loop,
                               .listen = s->opt.listen,
                               .token = s->opt.token,
                               .open_path = "/",
                               .openai = "/v1/",
                               .cert = s->opt.cert,
                               .key = s->opt.key,
                               .conns_max = conns_max(),
                               .silent_max_s = 60,
                               .answer_max_s = s->opt.answer_max_s,
                               .request = rui_route,
                               .gone = on_gone,
                               .answered = on_answered,
                               .sent = on_sent,
                               .self = s};
    return ru_http_open(&o, arena, &s->http, err);
}

ru_status ru_server_open(const ru_server_options *opt, ru_arena *arena, ru_server **out,
                         ru_err *err)
{
    ru_server *s = RU_NEW(arena, ru_server, 1);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the server");
    }
    s->opt = *opt;
    s->arena = arena;
    s->spans = ru_rng_from((uint64_t)ru_clock_wall_ns(), ru_rng_label("spans"));
    s->opt.requests_max = opt->requests_max != 0 ? opt->requests_max : REQUESTS;
    s->opt.outputs_max_bytes = opt->outputs_max_bytes != 0 ? opt->outputs_max_bytes : OUTPUTS_BYTES;
    s->opt.served.instances = opt->served.instances != 0 ? opt->served.instances : 1;
    RU_TRY(rui_loader_start(s, err));
    ru_status st = begin(s, arena, err);
    if (st != RU_OK) {
        ru_server_close(s);
        return st;
    }
    *out = s;
    return RU_OK;
}

void ru_server_close(ru_server *s)
{
    if (s == NULL) {
        return;
    }
    rui_loader_stop(s);
    ru_http_close(s->http); /* nobody computes on a body any more */
    rui_journal_close(s->journal);
    ru_loop_timer_off(s->opt.loop, on_flush, s, 0);
    if (s->has_waker) {
        ru_loop_waker_off(s->opt.loop, s->waker);
    }
    rui_beside_close(s);
    rui_texts_free(s);
    rui_versions_free(s);
    rui_calls_free(s);
}

const char *ru_server_address(const ru_server *s)
{
    return ru_http_address(s->http);
}

void ru_server_stop(ru_server *s, void (*done)(void *self), void *self)
{
    s->stopping = true;
    s->stopped = done;
    s->stopped_self = self;
    rui_repository_stop(s);
    ru_loop_wake(s->opt.loop, s->waker);
}
