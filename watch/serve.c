#include "watch/serve.h"

#include <stdlib.h>
#include <string.h>

#include "env/loop/loop.h"
#include "env/thread.h"
#include "watch/run.h"
#include "web/http.h"

#define LOOK_NS INT64_C(500000000)

struct ru_watch_serve {
    ru_arena arena;  /* of the server */
    ru_arena looked; /* of the view */
    ru_arena page;
    ru_thread thread;
    ru_loop *loop;
    ru_http *http;
    ru_watch *watch;
    ru_top view;
    ru_time at; /* of the last look; 0: none */
};

static ru_status look(ru_watch_serve *s, ru_err *err)
{
    ru_time now = ru_clock_now();
    if (s->at.ns != 0 && ru_time_since(now, s->at) < LOOK_NS) {
        return RU_OK;
    }
    s->at.ns = 0;
    ru_arena_fini(&s->looked);
    ru_arena_init(&s->looked, 0);
    RU_TRY(ru_watch_look(s->watch, &s->looked, &s->view, err));
    s->at = now;
    return RU_OK;
}

static ru_status on_page(void *self, const char *path, ru_http_page *into, ru_err *err)
{
    ru_watch_serve *s = self;
    bool metrics = strcmp(path, "/metrics") == 0;
    if (!metrics && strcmp(path, "/top") != 0) {
        return RU_OK;
    }
    RU_TRY(look(s, err));
    ru_text text = ru_text_arena(&s->page);
    if (metrics) {
        ru_watch_prometheus(ru_watch_totals_get(s->watch), &s->view, &text);
    } else {
        RU_TRY(ru_top_json(&s->view, &text, err));
    }
    if (text.cut) {
        return RU_FAIL(err, RU_E_MEM, "there is no memory for the page");
    }
    *into = (ru_http_page){.type = metrics ? "text/plain; version=0.0.4; charset=utf-8"
                                           : "application/json",
                           .text = text.p,
                           .size_bytes = text.n};
    return RU_OK;
}

static void on_done(void *self)
{
    ru_watch_serve *s = self;
    ru_arena_fini(&s->page);
    ru_arena_init(&s->page, 0);
}

static void serve(void *self)
{
    ru_watch_serve *s = self;
    ru_err err = {0};
    (void)!ru_loop_run(s->loop, &err); /* an error ends the pages, never the job */
}

static ru_status start(ru_watch_serve *s, const char *run, const char *listen, const char *token,
                       ru_err *err)
{
    RU_TRY(ru_watch_open(run, &s->arena, &s->watch, err));
    RU_TRY(look(s, err)); /* what is there already does not count */
    RU_TRY(ru_loop_open(&s->loop, err));
    const ru_http_options opt = {.loop = s->loop,
                                 .listen = listen,
                                 .token = token,
                                 .page = on_page,
                                 .done = on_done,
                                 .self = s};
    RU_TRY(ru_http_open(&opt, &s->arena, &s->http, err));
    return ru_thread_start(&s->thread, "metrics", serve, s, err);
}

ru_status ru_watch_serve_start(const char *run, const char *listen, const char *token,
                               ru_watch_serve **out, ru_err *err)
{
    ru_watch_serve *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "there is no memory for the metrics of the run");
    }
    ru_arena_init(&s->arena, 0);
    ru_arena_init(&s->looked, 0);
    ru_arena_init(&s->page, 0);
    ru_status st = start(s, run, listen, token, err);
    if (st != RU_OK) {
        ru_watch_serve_stop(s);
        return st;
    }
    *out = s;
    return RU_OK;
}

void ru_watch_serve_stop(ru_watch_serve *s)
{
    if (s == NULL) {
        return;
    }
    if (s->loop != NULL) {
        ru_loop_stop(s->loop);
    }
    ru_thread_join(&s->thread);
    ru_http_close(s->http);
    ru_loop_close(s->loop);
    ru_arena_fini(&s->page);
    ru_arena_fini(&s->looked);
    ru_arena_fini(&s->arena);
    free(s);
}

const char *ru_watch_serve_address(const ru_watch_serve *s)
{
    return ru_http_address(s->http);
}
