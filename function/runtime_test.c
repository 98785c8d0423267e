/* The program side of a function against a runtime API on the same loop. */
#include "function/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "test/test.h"
#include "web/http.h"

enum { HEARD_MAX = 8, LEFT_S = 1000 };

/* A call that the platform hands out, and how it answers the answer. */
typedef struct given {
    const char *id, *body;
    uint32_t answers[2]; /* to the answer; to the failure that follows a refusal of it */
    const char *due;     /* NULL: in LEFT_S */
} given;

typedef struct world {
    ru_arena arena;
    ru_loop *loop;
    ru_http *http;
    ru_function_runtime *runtime;
    const given *calls; /* [n] then `then`: 0: hold the request, stop the loop */
    uint32_t n, next, then, n_answers;
    char heard[HEARD_MAX][256]; /* [n_heard] path and body */
    uint32_t n_heard;
    int64_t left_ns; /* of the last call */
} world;

static void hand_out(world *w, ru_http_request *r)
{
    if (w->next == w->n && w->then == 0) {
        ru_loop_stop(w->loop);
        return; /* until the world closes */
    }
    if (w->next == w->n) {
        ru_http_refuse(r, w->then, "the sandbox is broken", 0);
        return;
    }
    const given *g = &w->calls[w->next++];
    char due[32];
    (void)snprintf(due, sizeof due, "%lld",
                   (long long)(ru_clock_wall_ns() / 1000000 + LEFT_S * 1000));
    const ru_http_field fields[] = {{"lambda-runtime-aws-request-id", g->id},
                                    {"Lambda-Runtime-Deadline-Ms", g->due != NULL ? g->due : due}};
    const ru_http_span span = {g->body, (int64_t)strlen(g->body)};
    w->n_answers = 0;
    ru_http_answer(
        r, &(ru_http_reply){
               .status = 200, .fields = fields, .n_fields = 2, .spans = &span, .n_spans = 1});
}

static void on_request(void *self, ru_http_request *r)
{
    world *w = self;
    if (strcmp(r->method, "GET") == 0) {
        assert_string_equal(r->path, "/2018-06-01/runtime/invocation/next");
        hand_out(w, r);
        return;
    }
    assert_true(w->n_heard < HEARD_MAX);
    (void)snprintf(w->heard[w->n_heard++], sizeof w->heard[0], "%s %.*s",
                   r->path + strlen("/2018-06-01/runtime/"), (int)r->body_bytes,
                   (const char *)r->body);
    uint32_t status = w->next > 0 ? w->calls[w->next - 1].answers[w->n_answers++] : 202;
    const ru_http_span span = {"{}", 2};
    ru_http_answer(r, &(ru_http_reply){.status = status, .spans = &span, .n_spans = 1});
}

static ru_status twice(void *self, const uint8_t *body, int64_t body_bytes, ru_time until,
                       ru_arena *arena, ru_text *out, ru_err *err)
{
    (void)arena;
    ((world *)self)->left_ns = ru_time_since(until, ru_clock_now());
    if (body_bytes == 0) {
        return RU_FAIL(err, RU_E_DATA, "there is nothing to say");
    }
    ru_text_put_n(out, (const char *)body, body_bytes);
    ru_text_put_n(out, (const char *)body, body_bytes);
    return RU_OK;
}

static bool open_world(world *w)
{
    ru_err err = {0};
    *w = (world){0};
    ru_arena_init(&w->arena, 0);
    assert_ok(ru_loop_open(&w->loop, &err), err);
    const ru_http_options o = {.loop = w->loop, .listen = "0", .request = on_request, .self = w};
    ru_status st = ru_http_open(&o, &w->arena, &w->http, &err);
    if (st == RU_OK) {
        const ru_function_runtime_options f = {
            .loop = w->loop, .api = ru_http_address(w->http), .handle = twice, .self = w};
        st = ru_function_runtime_open(&f, &w->arena, &w->runtime, &err);
    }
    if (st == RU_E_UNSUPPORTED) {
        return false; /* a build without the libraries */
    }
    assert_ok(st, err);
    return true;
}

static void close_world(world *w)
{
    ru_function_runtime_close(w->runtime);
    ru_http_close(w->http);
    ru_loop_close(w->loop);
    ru_arena_fini(&w->arena);
}

static ru_status take(world *w, const given *calls, uint32_t n, uint32_t then, ru_err *err)
{
    w->calls = calls;
    w->n = n;
    w->then = then;
    return ru_function_runtime_run(w->runtime, err);
}

static void test_calls_and_what_follows(void **state)
{
    (void)state;
    const given calls[] = {{.id = "id-1", .body = "hello", .answers = {202}},
                           {.id = "id-2", .body = "", .answers = {202}},
                           {.id = "id-3", .body = "big", .answers = {413, 202}},
                           {.id = "id-4", .body = "gone", .answers = {400}},
                           {.id = "id-5", .body = "when", .answers = {202}, .due = "soon"},
                           {.id = "id-6", .body = "last", .answers = {202}}};
    world w;
    ru_err err = {0};
    const char *was = ru_conf_env("http_proxy");
    char keep[256] = "";
    (void)snprintf(keep, sizeof keep, "%s", was != NULL ? was : "");
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0); /* for other requests */
    if (open_world(&w)) {
        assert_ok(take(&w, calls, 6, 0, &err), err);
        assert_int_equal(w.n_heard, 7);
        assert_string_equal(w.heard[0], "invocation/id-1/response hellohello");
        assert_string_equal(w.heard[1], "invocation/id-2/error {\"errorType\":\"data\","
                                        "\"errorMessage\":\"there is nothing to say\"}");
        assert_string_equal(w.heard[2], "invocation/id-3/response bigbig");
        assert_non_null(strstr(w.heard[3], "invocation/id-3/error"));
        assert_non_null(strstr(w.heard[3], "larger than the platform takes"));
        assert_string_equal(w.heard[4], "invocation/id-4/response gonegone");
        assert_non_null(strstr(w.heard[5], "not a time in ms: 'soon'"));
        assert_string_equal(w.heard[6], "invocation/id-6/response lastlast");
        assert_true(w.left_ns > INT64_C(1000000000) * (LEFT_S - 300) &&
                    w.left_ns <= INT64_C(1000000000) * LEFT_S);
    }
    close_world(&w);
    assert_int_equal(was != NULL ? setenv("http_proxy", keep, 1) : unsetenv("http_proxy"), 0);
}

static void test_a_platform_that_is_broken(void **state)
{
    (void)state;
    const given call = {.id = "id-1", .body = "hello", .answers = {500}};
    world w;
    ru_err err = {0};
    if (open_world(&w)) {
        assert_int_equal(take(&w, &call, 0, 500, &err), RU_E_PEER);
        assert_non_null(strstr(err.text, "invocation/next: the platform answers 500"));
    }
    close_world(&w);
    if (open_world(&w)) {
        assert_int_equal(take(&w, &call, 1, 0, &err), RU_E_PEER);
    }
    close_world(&w);
    if (open_world(&w)) { /* nobody is there */
        ru_http_close(w.http);
        w.http = NULL;
        assert_int_equal(ru_function_runtime_run(w.runtime, &err), RU_E_PEER);
    }
    close_world(&w);
}

static void test_a_call_whose_name_is_a_path(void **state)
{
    (void)state;
    const given calls[] = {{.id = "../x", .body = "hello"}, {.id = "", .body = "hello"}};
    for (uint32_t k = 0; k < 2; k++) {
        world w;
        ru_err err = {0};
        if (open_world(&w)) {
            assert_int_equal(take(&w, &calls[k], 1, 0, &err), RU_E_DATA);
            assert_int_equal(w.n_heard, 0);
        }
        close_world(&w);
    }
}

static void test_a_program_that_cannot_begin(void **state)
{
    (void)state;
    const ru_err why = {.status = RU_E_MISSING, .text = "there is no model"};
    world w;
    if (open_world(&w)) {
        ru_function_runtime_refuse(w.runtime, &why);
        assert_int_equal(w.n_heard, 1);
        assert_non_null(strstr(w.heard[0], "init/error {\"errorType\":"));
        assert_non_null(strstr(w.heard[0], "\"there is no model\""));
    }
    close_world(&w);
}

RU_TESTS(function_runtime, cmocka_unit_test(test_calls_and_what_follows),
         cmocka_unit_test(test_a_platform_that_is_broken),
         cmocka_unit_test(test_a_call_whose_name_is_a_path),
         cmocka_unit_test(test_a_program_that_cannot_begin))
