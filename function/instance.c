#include "function/instance.h"

#include <string.h>

#include "web/http.h"

struct ru_function_instance {
    ru_function_instance_options opt;
    ru_http *http;
    const char *path, *url;
};

/* The arena of an answer, until it has gone. */
typedef struct answering {
    ru_arena arena;
} answering;

static void answered(void *self)
{
    answering *a = self;
    ru_arena kept = a->arena; /* it holds itself */
    ru_arena_fini(&kept);
}

void ru_function_failure(ru_text *t, const ru_err *err)
{
    ru_text_put(t, "{\"errorType\":");
    ru_text_json(t, ru_str_c(ru_status_name(err->status)));
    ru_text_put(t, ",\"errorMessage\":");
    ru_text_json(t, ru_str_c(err->text));
    ru_text_put(t, "}");
}

static void fail(ru_http_request *r, ru_arena *arena, answering *a, const ru_err *err)
{
    ru_text t = ru_text_arena(arena);
    ru_function_failure(&t, err);
    const ru_http_span span = {t.p, t.n};
    const ru_http_field fields[] = {{"Content-Type", "application/json"},
                                    {"X-Amz-Function-Error", "Unhandled"}};
    a->arena = *arena;
    ru_http_answer(r, &(ru_http_reply){.status = 200,
                                       .fields = fields,
                                       .n_fields = 2,
                                       .spans = &span,
                                       .n_spans = t.cut ? 0 : 1,
                                       .done = answered,
                                       .self = a});
}

static void on_request(void *self, ru_http_request *r)
{
    const ru_function_instance *f = self;
    ru_err err = {0};
    if (strcmp(r->path, f->path) != 0 || strcmp(r->method, "POST") != 0) {
        ru_http_refuse(r, 404, "POST a call to /2015-03-31/functions/NAME/invocations", 0);
        return;
    }
    ru_arena arena;
    ru_arena_init(&arena, 0);
    answering *a = RU_NEW(&arena, answering, 1);
    if (a == NULL) {
        ru_http_refuse(r, 500, "no memory for a call", 0);
        return;
    }
    ru_text out = ru_text_arena(&arena);
    ru_status st =
        f->opt.handle(f->opt.self, r->body, r->body_bytes, (ru_time){0}, &arena, &out, &err);
    if (st == RU_OK && out.cut) {
        st = RU_FAIL(&err, RU_E_MEM, "no memory for the answer");
    }
    if (st != RU_OK) {
        err.status = st;
        fail(r, &arena, a, &err);
        return;
    }
    const ru_http_span span = {out.p, out.n};
    const ru_http_field fields[] = {{"Content-Type", "application/json"}};
    a->arena = arena;
    ru_http_answer(r, &(ru_http_reply){.status = 200,
                                       .fields = fields,
                                       .n_fields = 1,
                                       .spans = &span,
                                       .n_spans = 1,
                                       .done = answered,
                                       .self = a});
}

ru_status ru_function_instance_open(const ru_function_instance_options *opt, ru_arena *arena,
                                    ru_function_instance **out, ru_err *err)
{
    ru_function_instance *f = RU_NEW(arena, ru_function_instance, 1);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a function");
    }
    *f = (ru_function_instance){.opt = *opt};
    f->path = ru_arena_printf(arena, "/2015-03-31/functions/%s/invocations", opt->name);
    const ru_http_options o = {.loop = opt->loop,
                               .listen = opt->listen,
                               .silent_max_s = 3600, /* its caller keeps the connection */
                               .request = on_request,
                               .self = f};
    RU_TRY(ru_http_open(&o, arena, &f->http, err));
    f->url = ru_arena_printf(arena, "http://%s%s", ru_http_address(f->http), f->path);
    if (f->path == NULL || f->url == NULL) {
        ru_http_close(f->http);
        return RU_FAIL(err, RU_E_MEM, "no memory for a function");
    }
    *out = f;
    return RU_OK;
}

void ru_function_instance_close(ru_function_instance *f)
{
    if (f != NULL) {
        ru_http_close(f->http);
    }
}

const char *ru_function_instance_url(const ru_function_instance *f)
{
    return f->url;
}
