#include "function/runtime.h"

#include <ctype.h>
#include <string.h>

#include "base/log.h"
#include "web/post.h"

enum { CLAUSE = 200, REFUSE_MS = 10000 };

struct ru_function_runtime {
    ru_function_runtime_options opt;
    ru_posts *posts;
    const char *base; /* http://API/2018-06-01/runtime */
    ru_arena call;    /* of the call under way */
    char id[RU_POST_NOTE_BYTES];
    bool failed; /* the call under way: its failure is being told */
    ru_err why;  /* status RU_OK: somebody stopped the loop */
};

static void ask(ru_function_runtime *r);

static void end(ru_function_runtime *r, const char *what, const ru_post_answer *a)
{
    if (a->status == 0) {
        (void)ru_err_set(&r->why, RU_E_PEER, "%s/%s: %s", r->base, what, a->why);
    } else {
        (void)ru_err_set(&r->why, RU_E_PEER, "%s/%s: the platform answers %ld: %.*s", r->base, what,
                         a->status, (int)(a->n < CLAUSE ? a->n : CLAUSE), a->text);
    }
    ru_loop_stop(r->opt.loop);
}

/* -- an answer ------------------------------------------------------------------------------------
 */

static void on_told(void *self, const ru_post_answer *a);

static void tell(ru_function_runtime *r, const char *path, const ru_text *body)
{
    ru_err err;
    const char *url = ru_arena_printf(&r->call, "%s/%s", r->base, path);
    const ru_post post = {.url = url,
                          .direct = true,
                          .body = body->p,
                          .body_bytes = body->n,
                          .type = "application/json",
                          .done = on_told,
                          .self = r};
    ru_status st = url == NULL || body->cut ? RU_FAIL(&err, RU_E_MEM, "no memory for an answer")
                                            : ru_posts_send(r->posts, &post, &err);
    if (st != RU_OK) {
        r->why = err;
        ru_loop_stop(r->opt.loop);
    }
}

static void tell_failure(ru_function_runtime *r, const ru_err *why)
{
    ru_text t = ru_text_arena(&r->call);
    ru_function_failure(&t, why);
    r->failed = true;
    const char *path = ru_arena_printf(&r->call, "invocation/%s/error", r->id);
    tell(r, path != NULL ? path : "", &t);
}

static void on_told(void *self, const ru_post_answer *a)
{
    ru_function_runtime *r = self;
    if (a->status == 0 || a->status >= 500) {
        end(r, "invocation", a);
        return;
    }
    if (a->status == 413 && !r->failed) {
        ru_err why;
        (void)ru_err_set(&why, RU_E_LIMIT, "the answer is larger than the platform takes: %.*s",
                         (int)(a->n < CLAUSE ? a->n : CLAUSE), a->text);
        tell_failure(r, &why);
        return;
    }
    if (a->status >= 300) {
        ru_log(RU_LOG_WARN, "function", "not_taken",
               "the platform does not take the answer to call %s (%ld): %.*s", r->id, a->status,
               (int)(a->n < CLAUSE ? a->n : CLAUSE), a->text);
    }
    ask(r);
}

/* -- a call ---------------------------------------------------------------------------------------
 */

static bool is_name(const char *id)
{
    size_t n = strlen(id);
    for (size_t k = 0; k < n; k++) {
        if (!isalnum((unsigned char)id[k]) && id[k] != '-') {
            return false;
        }
    }
    return n > 0 && n + 1 < RU_POST_NOTE_BYTES;
}

/* The wall clock's time as that of this machine's other clock. */
static ru_status find_end(const char *text, ru_time *until, ru_err *err)
{
    int64_t ms = 0;
    *until = (ru_time){0};
    if (text[0] == '\0') {
        return RU_OK;
    }
    if (!ru_str_i64(ru_str_c(text), &ms) || ms <= 0 || ms > INT64_MAX / 2000000) {
        return RU_FAIL(err, RU_E_DATA, "the end of the call is not a time in ms: '%s'", text);
    }
    *until = ru_time_after(ru_clock_now(), ms * 1000000 - ru_clock_wall_ns());
    return RU_OK;
}

static void on_call(void *self, const ru_post_answer *a)
{
    ru_function_runtime *r = self;
    ru_err why = {0};
    ru_time until;
    if (a->status != 200) {
        end(r, "invocation/next", a);
        return;
    }
    if (!is_name(a->note)) {
        (void)ru_err_set(&r->why, RU_E_DATA,
                         "%s hands out a call whose Lambda-Runtime-Aws-Request-Id is '%s'", r->base,
                         a->note);
        ru_loop_stop(r->opt.loop);
        return;
    }
    memcpy(r->id, a->note, sizeof r->id);
    ru_arena_fini(&r->call);
    ru_arena_init(&r->call, 0);
    r->failed = false;
    ru_text out = ru_text_arena(&r->call);
    const char *path = ru_arena_printf(&r->call, "invocation/%s/response", r->id);
    ru_status st = find_end(a->also, &until, &why);
    if (st == RU_OK) {
        st =
            r->opt.handle(r->opt.self, (const uint8_t *)a->text, a->n, until, &r->call, &out, &why);
    }
    if (st == RU_OK && (out.cut || path == NULL)) {
        st = RU_FAIL(&why, RU_E_MEM, "no memory for the answer");
    }
    if (st == RU_OK) {
        tell(r, path, &out);
    } else {
        why.status = st;
        tell_failure(r, &why);
    }
}

static void ask(ru_function_runtime *r)
{
    ru_arena_fini(&r->call);
    ru_arena_init(&r->call, 0);
    ru_err err;
    const char *url = ru_arena_printf(&r->call, "%s/invocation/next", r->base);
    const ru_post post = {.url = url,
                          .direct = true,
                          .method = "GET",
                          .note = "Lambda-Runtime-Aws-Request-Id",
                          .also = "Lambda-Runtime-Deadline-Ms",
                          .done = on_call,
                          .self = r};
    ru_status st = url == NULL ? RU_FAIL(&err, RU_E_MEM, "no memory for a call")
                               : ru_posts_send(r->posts, &post, &err);
    if (st != RU_OK) {
        r->why = err;
        ru_loop_stop(r->opt.loop);
    }
}

/* -- from outside ---------------------------------------------------------------------------------
 */

ru_status ru_function_runtime_run(ru_function_runtime *r, ru_err *err)
{
    ask(r);
    RU_TRY(ru_loop_run(r->opt.loop, err));
    if (r->why.status != RU_OK && err != NULL) {
        *err = r->why;
    }
    return r->why.status;
}

static void on_refused(void *self, const ru_post_answer *a)
{
    ru_function_runtime *r = self;
    if (a->status < 200 || a->status >= 300) {
        ru_log(RU_LOG_WARN, "function", "not_told", "%s/init/error: %s (%ld)", r->base,
               a->status == 0 ? a->why : "the platform does not take it", a->status);
    }
    ru_loop_stop(r->opt.loop);
}

void ru_function_runtime_refuse(ru_function_runtime *r, const ru_err *why)
{
    ru_err err = {0};
    ru_text t = ru_text_arena(&r->call);
    ru_function_failure(&t, why);
    const char *url = ru_arena_printf(&r->call, "%s/init/error", r->base);
    const ru_post post = {.url = url,
                          .direct = true,
                          .body = t.p,
                          .body_bytes = t.n,
                          .type = "application/json",
                          .patience_ms = REFUSE_MS,
                          .done = on_refused,
                          .self = r};
    if (url == NULL || t.cut || ru_posts_send(r->posts, &post, &err) != RU_OK ||
        ru_loop_run(r->opt.loop, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "function", "not_told", "%s/init/error: %s", r->base, err.text);
    }
}

ru_status ru_function_runtime_open(const ru_function_runtime_options *opt, ru_arena *arena,
                                   ru_function_runtime **out, ru_err *err)
{
    ru_function_runtime *r = RU_NEW(arena, ru_function_runtime, 1);
    const char *base = ru_arena_printf(arena, "http://%s/2018-06-01/runtime", opt->api);
    if (r == NULL || base == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a function");
    }
    *r = (ru_function_runtime){.opt = *opt, .base = base};
    RU_TRY(ru_posts_open(opt->loop, NULL, arena, &r->posts, err));
    ru_arena_init(&r->call, 0);
    *out = r;
    return RU_OK;
}

void ru_function_runtime_close(ru_function_runtime *r)
{
    if (r != NULL) {
        ru_posts_close(r->posts);
        ru_arena_fini(&r->call);
    }
}
