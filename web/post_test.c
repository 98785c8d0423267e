/* Requests of a loop against a server on the same loop. */
#include "web/post.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "test/test.h"
#include "web/http.h"

enum { MANY = 40, ROUNDS = 20000 };

typedef struct world {
    ru_arena arena;
    ru_loop *loop;
    ru_http *http;
    ru_posts *posts;
    char url[256], signature[512];
    uint32_t n_done, sends; /* each answer sends so many more */
    ru_post_answer last;
    char text[64], why[256];
    ru_post again;
} world;

static void on_request(void *self, ru_http_request *r)
{
    world *w = self;
    const char *sign = ru_http_asked(r, "Authorization"), *type = ru_http_asked(r, "Content-Type");
    const ru_http_field fields[] = {{"X-Note", type != NULL ? type : "none"}};
    const ru_http_span span = {r->body, r->body_bytes};
    (void)snprintf(w->signature, sizeof w->signature, "%s", sign != NULL ? sign : "");
    if (strcmp(r->path, "/full") == 0) {
        ru_http_refuse(r, 429, "too many", 1);
        return;
    }
    if (strcmp(r->path, "/silent") == 0) {
        return; /* until the world closes */
    }
    ru_http_answer(
        r, &(ru_http_reply){
               .status = 200, .fields = fields, .n_fields = 1, .spans = &span, .n_spans = 1});
}

static bool open_world(world *w, const char *sign)
{
    ru_err err = {0};
    *w = (world){0};
    ru_arena_init(&w->arena, 0);
    assert_ok(ru_loop_open(&w->loop, &err), err);
    const ru_http_options o = {
        .loop = w->loop, .listen = "0", .request = on_request, .self = w, .conns_max = MANY};
    ru_status st = ru_http_open(&o, &w->arena, &w->http, &err);
    st = st == RU_OK ? ru_posts_open(w->loop, sign, &w->arena, &w->posts, &err) : st;
    if (st == RU_E_UNSUPPORTED) {
        return false; /* a build without the libraries */
    }
    assert_ok(st, err);
    return true;
}

static void close_world(world *w)
{
    ru_posts_close(w->posts);
    ru_http_close(w->http);
    ru_loop_close(w->loop);
    ru_arena_fini(&w->arena);
}

static void on_done(void *self, const ru_post_answer *a)
{
    world *w = self;
    ru_err err = {0};
    w->n_done++;
    w->last = *a;
    (void)snprintf(w->text, sizeof w->text, "%.*s", (int)(a->n < 60 ? a->n : 60),
                   a->text != NULL ? a->text : "");
    (void)snprintf(w->why, sizeof w->why, "%s", a->why != NULL ? a->why : "");
    if (w->sends > 0) {
        w->sends--;
        assert_ok(ru_posts_send(w->posts, &w->again, &err), err);
    }
}

static void send_to(world *w, const char *path, const void *body, int64_t n)
{
    ru_err err = {0};
    (void)snprintf(w->url, sizeof w->url, "http://%s%s", ru_http_address(w->http), path);
    w->again = (ru_post){.url = w->url,
                         .body = body,
                         .body_bytes = n,
                         .type = "text/plain",
                         .note = "x-note",
                         .answer_max_bytes = 1 << 20,
                         .patience_ms = strcmp(path, "/silent") == 0 ? 1 : 0,
                         .done = on_done,
                         .self = w};
    assert_ok(ru_posts_send(w->posts, &w->again, &err), err);
}

static void wait_for(world *w, uint32_t n)
{
    ru_err err = {0};
    for (int k = 0; k < ROUNDS && w->n_done < n; k++) {
        assert_ok(ru_loop_round(w->loop, 1000000, &err), err);
    }
    assert_int_equal(w->n_done, n);
}

static void test_answers_come_back(void **state)
{
    (void)state;
    world w;
    if (open_world(&w, NULL)) {
        send_to(&w, "/x", "hello", 5);
        wait_for(&w, 1);
        assert_int_equal(w.last.status, 200);
        assert_string_equal(w.text, "hello");
        assert_string_equal(w.last.note, "text/plain");
        assert_string_equal(w.signature, "");
        char *big = calloc(1, (1 << 20) + 1); /* one byte more than the answer may have */
        send_to(&w, "/x", big, (1 << 20) + 1);
        wait_for(&w, 2);
        assert_int_equal(w.last.status, 0);
        assert_string_equal(w.why, "its answer is too large");
        send_to(&w, "/x", big, 1 << 20);
        wait_for(&w, 3);
        assert_true(w.last.status == 200 && w.last.n == 1 << 20);
        free(big);
        send_to(&w, "/full", "", 0);
        wait_for(&w, 4);
        assert_int_equal(w.last.status, 429);
        send_to(&w, "/silent", "", 0);
        wait_for(&w, 5);
        assert_int_equal(w.last.status, 0);
        assert_string_equal(w.why, "it does not answer in time");
        for (int k = 0; k < MANY / 2; k++) { /* at one time, and each sends another one */
            send_to(&w, "/x", "many", 4);
        }
        w.sends = MANY;
        wait_for(&w, 5 + MANY / 2 + MANY);
        assert_string_equal(w.text, "many");
    }
    close_world(&w);
}

static void test_a_closed_port_is_no_answer(void **state)
{
    (void)state;
    world w;
    if (open_world(&w, NULL)) {
        send_to(&w, "/x", "", 0);
        ru_http_close(w.http);
        w.http = NULL;
        wait_for(&w, 1);
        assert_int_equal(w.last.status, 0);
        assert_true(w.why[0] != '\0');
    }
    close_world(&w);
}

/* Form of the signature: user, day, region, service; a store of its own checks the rest. */
static void test_requests_are_signed(void **state)
{
    (void)state;
    world w;
    (void)setenv("AWS_ACCESS_KEY_ID", "someone", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    (void)setenv("AWS_REGION", "eu-central-1", 1);
    bool there = open_world(&w, "lambda");
    if (there) {
        send_to(&w, "/x", "hello", 5);
        wait_for(&w, 1);
        assert_int_equal(w.last.status, 200);
        assert_int_equal(strncmp(w.signature, "AWS4-HMAC-SHA256 Credential=someone/", 36), 0);
        assert_non_null(strstr(w.signature, "/eu-central-1/lambda/aws4_request"));
        assert_non_null(strstr(w.signature, "Signature="));
    }
    close_world(&w);
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    (void)unsetenv("AWS_SECRET_ACCESS_KEY");
    (void)unsetenv("AWS_REGION");
}

RU_TESTS(web_post, cmocka_unit_test(test_answers_come_back),
         cmocka_unit_test(test_a_closed_port_is_no_answer),
         cmocka_unit_test(test_requests_are_signed))
