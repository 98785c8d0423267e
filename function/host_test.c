/* A host and the program side of a function on one loop, as an endpoint is. */
#include "function/host.h"

#include <stdio.h>
#include <string.h>

#include "function/instance.h"
#include "test/test.h"

enum { ROUNDS = 20000 };

typedef struct world {
    ru_arena arena;
    ru_loop *loop;
    ru_function_instance *instance;
    ru_function_host *host;
    uint32_t n_done, more; /* each answer calls so often again */
    ru_function_outcome last;
    char text[64], why[256];
} world;

/* Says its body twice; an empty one fails. */
static ru_status twice(void *self, const uint8_t *body, int64_t body_bytes, ru_time until,
                       ru_arena *arena, ru_text *out, ru_err *err)
{
    (void)self;
    (void)until;
    (void)arena;
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
    char url[128];
    *w = (world){0};
    ru_arena_init(&w->arena, 0);
    assert_ok(ru_loop_open(&w->loop, &err), err);
    const ru_function_instance_options o = {
        .loop = w->loop, .listen = "0", .name = "twice", .handle = twice};
    ru_status st = ru_function_instance_open(&o, &w->arena, &w->instance, &err);
    if (st == RU_OK) {
        const char *at = ru_function_instance_url(w->instance);
        (void)snprintf(url, sizeof url, "%.*s/", (int)(strstr(at, "/2015") - at), at);
        const ru_function_host_options h = {
            .loop = w->loop,
            .pool = {.instances_max = 2, .waiting_max = 8, .tries_max = 2, .again_ns = 1000},
            .url = ru_arena_str(&w->arena, url),
            .name = "twice"};
        st = ru_function_host_open(&h, &w->arena, &w->host, &err);
    }
    if (st == RU_E_UNSUPPORTED) {
        return false; /* a build without the libraries */
    }
    assert_ok(st, err);
    return true;
}

static void close_world(world *w)
{
    ru_function_host_close(w->host);
    ru_function_instance_close(w->instance);
    ru_loop_close(w->loop);
    ru_arena_fini(&w->arena);
}

static void call(world *w, const char *body);

static void on_done(void *self, const ru_function_outcome *o)
{
    world *w = self;
    w->n_done++;
    w->last = *o;
    (void)snprintf(w->text, sizeof w->text, "%.*s", (int)o->n, o->text);
    (void)snprintf(w->why, sizeof w->why, "%s", o->why);
    if (w->more > 0) {
        w->more--;
        call(w, "more");
    }
}

static void call(world *w, const char *body)
{
    ru_err err = {0};
    char once[32];
    (void)snprintf(once, sizeof once, "%s", body); /* it is copied */
    assert_ok(ru_function_host_call(w->host, 1024, once, (int64_t)strlen(once), on_done, w, &err),
              err);
    memset(once, 0, sizeof once);
}

static void wait_for(world *w, uint32_t n)
{
    ru_err err = {0};
    for (int k = 0; k < ROUNDS && w->n_done < n; k++) {
        assert_ok(ru_loop_round(w->loop, 1000000, &err), err);
    }
    assert_int_equal(w->n_done, n);
}

static void test_calls_over_http(void **state)
{
    (void)state;
    world w;
    if (open_world(&w)) {
        call(&w, "hello");
        wait_for(&w, 1);
        assert_int_equal(w.last.answer.result, RU_FUNCTION_OK);
        assert_string_equal(w.text, "hellohello");
        call(&w, "");
        wait_for(&w, 2);
        assert_int_equal(w.last.answer.result, RU_FUNCTION_ERROR);
        assert_non_null(strstr(w.why, "there is nothing to say"));
        for (int k = 0; k < 8; k++) {
            call(&w, "many");
        }
        w.more = 20;
        wait_for(&w, 30);
        ru_function_meter m = ru_function_host_meter(w.host);
        assert_true(m.of[RU_FUNCTION_OK] == 29 && m.calls == 30 && m.waiting == 0 && m.busy == 0);
    }
    close_world(&w);
}

static void test_an_endpoint_that_is_gone(void **state)
{
    (void)state;
    world w;
    if (open_world(&w)) {
        ru_function_instance_close(w.instance);
        w.instance = NULL;
        call(&w, "hello");
        wait_for(&w, 1);
        assert_true(w.last.answer.result == RU_FUNCTION_FAULT && w.last.answer.tries == 2);
        assert_non_null(strstr(w.why, "http://127.0.0.1:"));
        call(&w, "dropped");
    }
    close_world(&w); /* with a call under way */
}

RU_TESTS(function_host, cmocka_unit_test(test_calls_over_http),
         cmocka_unit_test(test_an_endpoint_that_is_gone))
