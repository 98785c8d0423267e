#include "web/http.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "test/test.h"
#include "web/http_impl.h"

enum { KEPT_MAX = 16, ROUNDS = 400 };

/* A server and what its owner saw. */
typedef struct world {
    ru_arena arena;
    ru_loop *loop;
    ru_http *http;
    ru_http_request *kept[KEPT_MAX];
    uint32_t n_kept, n_requests, n_gone, n_done, n_sent;
    bool echo; /* answer at once with the body */
    char seen[256];
} world;

static void on_done(void *self)
{
    world *w = self;
    w->n_done++;
}

static void reply_with(world *w, ru_http_request *r, const ru_http_span *spans, uint32_t n)
{
    static const ru_http_field fields[] = {{"Content-Type", "text/plain"}};
    ru_http_reply a = {.status = 200,
                       .fields = fields,
                       .n_fields = 1,
                       .spans = spans,
                       .n_spans = n,
                       .done = on_done,
                       .self = w};
    ru_http_answer(r, &a);
}

static void on_request(void *self, ru_http_request *r)
{
    world *w = self;
    w->n_requests++;
    const char *x = ru_http_asked(r, "x-test");
    snprintf(w->seen, sizeof w->seen, "%s %s %.*s %s", r->method, r->path, (int)r->body_bytes,
             (const char *)r->body, x != NULL ? x : "-");
    if (w->echo) {
        ru_http_refuse(r, 400, "no \"quotes\"", 0);
        return;
    }
    assert_true(w->n_kept < KEPT_MAX);
    w->kept[w->n_kept++] = r;
}

static void on_gone(void *self, ru_http_request *r)
{
    world *w = self;
    assert_null(ru_http_asked(r, "x-test"));
    w->n_gone++;
}

static void on_sent(void *self)
{
    world *w = self;
    w->n_sent++;
}

static bool open_with(world *w, ru_http_options o)
{
    ru_err err = {0};
    *w = (world){0};
    ru_arena_init(&w->arena, 0);
    assert_ok(ru_loop_open(&w->loop, &err), err);
    o.loop = w->loop;
    o.listen = "0";
    o.request = on_request;
    o.gone = on_gone;
    o.sent = on_sent;
    o.self = w;
    ru_status st = ru_http_open(&o, &w->arena, &w->http, &err);
    if (st == RU_E_UNSUPPORTED) {
        ru_loop_close(w->loop);
        ru_arena_fini(&w->arena);
        return false; /* no libmicrohttpd here */
    }
    assert_ok(st, err);
    return true;
}

static void close_all(world *w)
{
    ru_http_close(w->http);
    ru_loop_close(w->loop);
    ru_arena_fini(&w->arena);
}

static int dial(const world *w)
{
    const char *colon = strrchr(ru_http_address(w->http), ':');
    int64_t port = 0;
    assert_true(ru_str_i64(ru_str_c(colon + 1), &port));
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void turn(world *w, uint32_t rounds)
{
    ru_err err = {0};
    for (uint32_t k = 0; k < rounds; k++) {
        assert_ok(ru_loop_round(w->loop, 200000, &err), err);
    }
}

/* What comes until `end` does, or the connection ends. */
static const char *hear(world *w, int fd, const char *end)
{
    static char text[1 << 16];
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t k = 0; k < ROUNDS && strstr(text, end) == NULL; k++) {
        turn(w, 1);
        ssize_t got = recv(fd, text + n, sizeof text - 1 - n, MSG_DONTWAIT);
        if (got == 0) {
            break;
        }
        n += got > 0 ? (size_t)got : 0;
        text[n] = '\0';
    }
    return text;
}

static void until(world *w, const uint32_t *count, uint32_t want)
{
    for (uint32_t k = 0; k < ROUNDS && *count < want; k++) {
        turn(w, 1);
    }
    assert_int_equal(*count, want);
}

static void answers_late_and_in_spans(void **state)
{
    (void)state;
    world w;
    if (!open_with(&w, (ru_http_options){0})) {
        skip();
    }
    int a = dial(&w), b = dial(&w);
    say(a, "POST /v2/x?y=1 HTTP/1.1\r\nHost: h\r\nX-Test: t\r\nContent-Length: 5\r\n\r\nhel");
    turn(&w, 4);
    assert_int_equal(w.n_requests, 0); /* the body is not there yet */
    say(a, "lo");
    until(&w, &w.n_requests, 1);
    assert_string_equal(w.seen, "POST /v2/x hello t");
    say(b, "DELETE /f HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 2);
    assert_string_equal(w.seen, "DELETE /f  -");
    const ru_http_span two[] = {{"one ", 4}, {"two", 3}};
    reply_with(&w, w.kept[1], two, 1);
    assert_non_null(strstr(hear(&w, b, "one "), "200 OK"));
    reply_with(&w, w.kept[0], two, 2);
    assert_non_null(strstr(hear(&w, a, "one two"), "one two"));
    until(&w, &w.n_done, 2);
    /* the connection goes on; chunks make a body too */
    say(a, "PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
           "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
    until(&w, &w.n_requests, 3);
    assert_string_equal(w.seen, "PUT /c abcdefg -");
    reply_with(&w, w.kept[2], NULL, 0);
    assert_non_null(strstr(hear(&w, a, "\r\n\r\n"), "Content-Length: 0"));
    w.echo = true; /* at once, within the library's call */
    say(a, "GET /now HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_non_null(strstr(hear(&w, a, "}"), "{\"error\":\"no \\\"quotes\\\"\"}"));
    close(a);
    close(b);
    close_all(&w);
    assert_int_equal(w.n_gone, 0);
    assert_int_equal(w.n_done, 3);
}

/* The library looks at all that wait in each of its runs: one that only waits asks for none. */
static void a_request_that_waits_is_left_alone(void **state)
{
    (void)state;
#ifdef RU_HAS_MHD
    world w;
    if (!open_with(&w, (ru_http_options){0})) {
        skip();
    }
    int a = dial(&w), b = dial(&w);
    for (uint32_t k = 0; k < 2; k++) {
        say(k == 0 ? a : b, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok");
        until(&w, &w.n_requests, k + 1);
        assert_true(w.http->n_waits == k + 1 && w.http->runs == 0);
    }
    reply_with(&w, w.kept[0], NULL, 0); /* the other one still waits */
    assert_non_null(strstr(hear(&w, a, "\r\n\r\n"), "200 OK"));
    say(a, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\no");
    turn(&w, 8);
    assert_true(w.n_requests == 2 && w.http->n_waits == 1 && w.http->runs == 0);
    say(a, "k");
    until(&w, &w.n_requests, 3);
    close(a);
    close(b);
    close_all(&w);
#endif
}

static void sees_a_client_leave(void **state)
{
    (void)state;
    world w;
    if (!open_with(&w, (ru_http_options){0})) {
        skip();
    }
    int a = dial(&w), b = dial(&w);
    say(a, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    until(&w, &w.n_requests, 1);
    close(a);
    until(&w, &w.n_gone, 1);
    assert_memory_equal(w.kept[0]->body, "x", 1); /* until the owner ends it */
    const ru_http_span s = {"late", 4};
    reply_with(&w, w.kept[0], &s, 1);
    assert_int_equal(w.n_done, 1);
    /* one that leaves in the middle of its body is nobody's business */
    say(b, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx");
    turn(&w, 4);
    close(b);
    turn(&w, 4);
    assert_int_equal(w.n_requests, 1);
    /* close with one that is held */
    int c = dial(&w);
    say(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 2);
    close_all(&w);
    assert_int_equal(w.n_gone, 2);
    close(c);
}

/* A client that only ends its sending is answered, whole or in a stream; one that has left as well
 * is gone once the interim answer has met nobody. */
static void answers_who_sends_no_more(void **state)
{
    (void)state;
    world w;
    if (!open_with(&w, (ru_http_options){0})) {
        skip();
    }
    int a = dial(&w), b = dial(&w), c = dial(&w);
    const ru_http_span s = {"late", 4};
    const ru_http_field f = {"Content-Type", "text/event-stream"};
    say(a, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    until(&w, &w.n_requests, 1);
    assert_int_equal(shutdown(a, SHUT_WR), 0);
    const char *got = hear(&w, a, "\r\n\r\n");
    assert_non_null(strstr(got, "HTTP/1.1 100 "));
    turn(&w, 4);
    assert_int_equal(w.n_gone, 0);
    reply_with(&w, w.kept[0], &s, 1);
    until(&w, &w.n_sent, 1);
    assert_true(ru_http_sends(w.http)); /* the library has sent it, but not the pair */
    got = hear(&w, a, "late");
    assert_non_null(strstr(got, "200 OK"));
    until(&w, &w.n_sent, 2);
    assert_false(ru_http_sends(w.http));
    say(b, "GET /s HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 2);
    ru_http_stream(w.kept[1], 200, &f, 1);
    assert_true(ru_http_put(w.kept[1], "data: 1\n\n", 9));
    (void)hear(&w, b, "data: 1\n\n");
    assert_int_equal(shutdown(b, SHUT_WR), 0);
    turn(&w, 4);
    assert_true(ru_http_put(w.kept[1], "data: 2\n\n", 9));
    ru_http_end(w.kept[1]);
    assert_non_null(strstr(hear(&w, b, "0\r\n\r\n"), "data: 2\n\n"));
    say(c, "GET / HTTP/1.0\r\n\r\n"); /* it may not get an interim answer */
    until(&w, &w.n_requests, 3);
    assert_int_equal(shutdown(c, SHUT_WR), 0);
    until(&w, &w.n_gone, 1);
    reply_with(&w, w.kept[2], &s, 1);
    close(a);
    close(b);
    close(c);
    close_all(&w);
}

/* Two requests, of which the library has not read all when their client ends its sending. */
static void reads_what_came_before_the_end(void **state)
{
    (void)state;
    static char body[48 << 10];
    world w;
    if (!open_with(&w, (ru_http_options){0})) {
        skip();
    }
    int c = dial(&w);
    const ru_http_span s = {"late", 4};
    memset(body, 'z', sizeof body);
    say(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 1); /* it reads no more until it has answered */
    say(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 49152\r\n\r\n");
    assert_int_equal(send(c, body, sizeof body, MSG_NOSIGNAL), sizeof body);
    assert_int_equal(shutdown(c, SHUT_WR), 0);
    assert_non_null(strstr(hear(&w, c, "\r\n\r\n"), "HTTP/1.1 100 "));
    for (uint32_t k = 0; k < 2; k++) {
        until(&w, &w.n_requests, k + 1);
        reply_with(&w, w.kept[k], &s, 1);
        assert_int_equal(w.kept[k]->body_bytes, k == 0 ? 0 : sizeof body);
        assert_non_null(strstr(hear(&w, c, "late"), "200 OK"));
    }
    close(c);
    close_all(&w);
}

/* The end of sending comes with the requests, and they are answered at once: the connection ends.
 */
static void an_end_that_comes_with_requests_is_seen(void **state)
{
    (void)state;
    world w;
    if (!open_with(&w, (ru_http_options){0})) {
        skip();
    }
    int c = dial(&w);
    char byte;
    w.echo = true;
    say(c, "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(shutdown(c, SHUT_WR), 0);
    const char *first = strstr(hear(&w, c, "never"), "\"}");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "\"}"));
    assert_int_equal(recv(c, &byte, 1, MSG_DONTWAIT), 0);
    close(c);
    close_all(&w);
}

/* A request came whole when the last of its body did. */
static void knows_when_a_slow_body_came(void **state)
{
    (void)state;
    world w;
    if (!open_with(&w, (ru_http_options){0})) {
        skip();
    }
    int a = dial(&w), b = dial(&w);
    say(a, "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx");
    say(b, "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    until(&w, &w.n_requests, 1);
    for (ru_time from = ru_clock_now(); ru_time_since(ru_clock_now(), from) < 50000000;) {
        turn(&w, 1); /* longer than a step of the kernel's clock */
    }
    say(a, "x");
    until(&w, &w.n_requests, 2);
    const ru_http_request *slow = w.kept[1], *quick = w.kept[0];
    assert_true(ru_time_since(slow->whole, slow->since) > 20000000);
    assert_true(slow->whole.ns <= ru_clock_now().ns && quick->whole.ns < slow->whole.ns);
    close(a);
    close(b);
    until(&w, &w.n_gone, 2);
    ru_http_refuse(w.kept[0], 400, "", 0);
    ru_http_refuse(w.kept[1], 400, "", 0);
    close_all(&w);
}

/* Sockets of clients that send no more are bounded: one more than a fourth of all has left. */
static void a_fourth_may_send_no_more(void **state)
{
    (void)state;
    enum { N = 5 };
    world w;
    if (!open_with(&w, (ru_http_options){.conns_max = 4 * (N - 1)})) {
        skip();
    }
    int fd[N];
    const ru_http_span s = {"late", 4};
    for (uint32_t k = 0; k < N; k++) {
        fd[k] = dial(&w);
        say(fd[k], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        until(&w, &w.n_requests, k + 1);
        assert_int_equal(w.n_gone, 0);
        assert_int_equal(shutdown(fd[k], SHUT_WR), 0);
        (void)hear(&w, fd[k], "100 ");
    }
    until(&w, &w.n_gone, 1);
    for (uint32_t k = 0; k < N; k++) {
        reply_with(&w, w.kept[k], &s, 1);
        assert_true(k == N - 1 || strstr(hear(&w, fd[k], "late"), "200 OK") != NULL);
        close(fd[k]);
    }
    close_all(&w);
}

/* All connections wait for answers, so that another one is not let in; afterwards it is. */
static void answered_clients_make_room(void **state)
{
    (void)state;
    world w;
    if (!open_with(&w, (ru_http_options){.conns_max = KEPT_MAX, .silent_max_s = 600})) {
        skip();
    }
    int fd[KEPT_MAX + 1];
    const ru_http_span s = {"late", 4};
    for (uint32_t k = 0; k <= KEPT_MAX; k++) {
        fd[k] = dial(&w);
        say(fd[k], "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        until(&w, &w.n_requests, k < KEPT_MAX ? k + 1 : KEPT_MAX);
    }
    turn(&w, 4);
    assert_int_equal(w.n_requests, KEPT_MAX);
    w.echo = true;
    for (uint32_t k = 0; k < KEPT_MAX; k++) {
        reply_with(&w, w.kept[k], &s, 1);
    }
    assert_non_null(strstr(hear(&w, fd[KEPT_MAX], "}"), "400"));
    for (uint32_t k = 0; k <= KEPT_MAX; k++) {
        close(fd[k]);
    }
    close_all(&w);
}

/* More connections than there may be: those who ask nothing make room, one that waits for its
 * answer stays. */
static void idle_clients_make_room(void **state)
{
    (void)state;
    enum { IDLE = 60 };
    world w;
    if (!open_with(&w, (ru_http_options){.conns_max = 16})) {
        skip();
    }
    int idle[IDLE], held = dial(&w);
    const ru_http_span s = {"late", 4};
    say(held, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 1);
    for (uint32_t k = 0; k < IDLE; k++) {
        idle[k] = dial(&w);
        turn(&w, 1);
    }
    int last = dial(&w);
    say(last, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 2);
    assert_non_null(strstr(hear(&w, idle[0], "try again\"}"), "503 Service Unavailable"));
    for (uint32_t k = 0; k < 2; k++) {
        reply_with(&w, w.kept[k], &s, 1);
        assert_non_null(strstr(hear(&w, k == 0 ? held : last, "late"), "200 OK"));
    }
    assert_int_equal(w.n_gone, 0);
    for (uint32_t k = 0; k < IDLE; k++) {
        close(idle[k]);
    }
    close(held);
    close(last);
    close_all(&w);
}

/* Refusals of a crowd are one response; another sentence, or another time, is not. */
static void refuses_a_crowd(void **state)
{
    (void)state;
    static const struct {
        const char *sentence, *end, *after;
        int64_t retry_s;
    } of[] = {{"full", "\"full\"}", "Retry-After: 2", 2},
              {"full", "\"full\"}", "Retry-After: 2", 2},
              {"full", "\"full\"}", "Retry-After: 9", 9},
              {"other", "\"other\"}", "Retry-After: 2", 2},
              {"full", "\"full\"}", "Retry-After: 1", 1}};
    world w;
    if (!open_with(&w, (ru_http_options){0})) {
        skip();
    }
    int last = dial(&w);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(of); k++) {
        int fd = dial(&w);
        say(fd, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        until(&w, &w.n_requests, k + 1);
        ru_http_refuse(w.kept[k], 429, of[k].sentence, of[k].retry_s);
        const char *refused = hear(&w, fd, of[k].end);
        assert_true(strstr(refused, "429") && strstr(refused, of[k].after));
        close(fd);
    }
    say(last, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, RU_ARRAY_LEN(of) + 1);
    ru_http_refuse(w.kept[RU_ARRAY_LEN(of)], 429, "full", 2); /* it is not sent */
    close(last);
    close_all(&w);
}

static void bounds_bodies(void **state)
{
    (void)state;
    world w;
    if (!open_with(&w, (ru_http_options){.body_max_bytes = 10, .bodies_max_bytes = 15})) {
        skip();
    }
    int a = dial(&w), b = dial(&w), c = dial(&w);
    say(a, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n01234567890");
    const char *refused = hear(&w, a, "10 bytes\"}");
    assert_true(strstr(refused, "413") && strstr(refused, "{\"error\":\"a body may"));
    say(a, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
           "b\r\n01234567890\r\n0\r\n\r\n");
    assert_non_null(strstr(hear(&w, a, "10 bytes"), "413"));
    say(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n");
    assert_non_null(strstr(hear(&w, c, "10 bytes"), "413"));
    assert_int_equal(w.n_requests, 0);
    say(a, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789");
    until(&w, &w.n_requests, 1);
    say(b, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n012345");
    refused = hear(&w, b, "try again\"}");
    assert_true(strstr(refused, "503") && strstr(refused, "Retry-After: 1"));
    reply_with(&w, w.kept[0], NULL, 0);
    (void)hear(&w, a, "\r\n\r\n");
    say(b, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n012345");
    until(&w, &w.n_requests, 2);
    assert_string_equal(w.seen, "POST / 012345 -");
    close(a);
    close(b);
    close(c);
    close_all(&w);
}

static void streams_and_stops_at_a_slow_reader(void **state)
{
    (void)state;
    world w;
    if (!open_with(&w, (ru_http_options){.stream_max_bytes = 64 << 10})) {
        skip();
    }
    int a = dial(&w), b = dial(&w);
    const ru_http_field f = {"Content-Type", "text/event-stream"};
    say(a, "GET /s HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 1);
    ru_http_stream(w.kept[0], 200, &f, 1);
    assert_true(ru_http_put(w.kept[0], "data: 1\n\n", 9));
    assert_non_null(strstr(hear(&w, a, "data: 1\n\n"), "text/event-stream"));
    assert_true(ru_http_put(w.kept[0], "data: 2\n\n", 9));
    assert_true(ru_http_sends(w.http));
    ru_http_end(w.kept[0]);
    assert_true(ru_http_sends(w.http)); /* it ended here, but has not gone */
    assert_non_null(strstr(hear(&w, a, "0\r\n\r\n"), "data: 2\n\n"));
    until(&w, &w.n_sent, 1);
    assert_false(ru_http_sends(w.http));
    say(b, "GET /s HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 2);
    ru_http_stream(w.kept[1], 200, &f, 1);
    static char block[16 << 10];
    int64_t put = 0;
    while (put < INT64_C(256) << 20 && ru_http_put(w.kept[1], block, sizeof block)) {
        put += (int64_t)sizeof block;
        turn(&w, 1);
    }
    assert_true(put < INT64_C(256) << 20); /* it does not read: put says so */
    close(b);
    until(&w, &w.n_gone, 1);
    assert_false(ru_http_put(w.kept[1], block, 1));
    ru_http_end(w.kept[1]);
    close(a);
    close_all(&w);
}

/* A stream goes on while another request waits and is not suspended yet: nothing but the stream's
 * own bytes makes the library run. */
static void streams_beside_one_that_waits(void **state)
{
    (void)state;
    enum { RUNS = 12 };
    world w;
    if (!open_with(&w, (ru_http_options){0})) {
        skip();
    }
    char got[256];
    ru_err err = {0};
    int a = dial(&w), b = dial(&w);
    const ru_http_field f = {"Content-Type", "text/event-stream"};
    say(a, "GET /s HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 1);
    ru_http_stream(w.kept[0], 200, &f, 1);
    assert_true(ru_http_put(w.kept[0], "data: 1\n\n", 9));
    assert_non_null(strstr(hear(&w, a, "data: 1\n\n"), "text/event-stream"));
    turn(&w, 4); /* the stream is suspended */
    say(b, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until(&w, &w.n_requests, 2);
    for (uint32_t k = 0; k < 2 * RUNS; k++) {
        assert_true(k != RUNS || ru_http_put(w.kept[0], "data: 2\n\n", 9));
        assert_ok(ru_loop_round(w.loop, 0, &err), err);
    }
    assert_true(recv(a, got, sizeof got, MSG_DONTWAIT) > 0);
    ru_http_end(w.kept[0]);
    reply_with(&w, w.kept[1], NULL, 0);
    (void)hear(&w, b, "\r\n\r\n");
    close(a);
    close(b);
    close_all(&w);
}

/* Damaged heads and bodies in any pieces: the server stays, and what was begun ends. */
static void survives_noise(void **state)
{
    (void)state;
    static const char *const pieces[] = {"POST ",
                                         "GET ",
                                         "/",
                                         "/a b",
                                         " HTTP/1.1",
                                         "\r\n",
                                         "\r\n\r\n",
                                         "Host:h",
                                         "Content-Length: 3",
                                         "abc",
                                         "Transfer-Encoding: chunked",
                                         "ffffffffffffffff",
                                         "0\r\n",
                                         ":",
                                         "\x80\xff",
                                         "Content-Length: -1"};
    world w;
    if (!open_with(&w, (ru_http_options){.body_max_bytes = 64})) {
        skip();
    }
    w.echo = true;
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t k = 0; k < 300; k++) {
        int fd = dial(&w);
        for (uint32_t i = ru_rng_below(&rng, 12); i > 0; i--) {
            const char *p = pieces[ru_rng_below(&rng, RU_ARRAY_LEN(pieces))];
            (void)!send(fd, p, strlen(p), MSG_NOSIGNAL);
            turn(&w, ru_rng_below(&rng, 2));
        }
        turn(&w, 1);
        close(fd);
    }
    int fd = dial(&w);
    say(fd, "POST /last HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok");
    assert_non_null(strstr(hear(&w, fd, "}"), "400"));
    assert_string_equal(w.seen, "POST /last ok -");
    close(fd);
    close_all(&w);
}

/* A body whose end the head says twice, or not, is refused with its connection: a proxy before the
 * server may see another end. */
static void one_end_of_a_body(void **state)
{
    (void)state;
    static const struct {
        const char *head, *status, *word;
    } rows[] = {
        {"Content-Length: 2\r\nContent-Length: 3\r\n\r\nokx", "400", "once"},
        {"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "400",
         "once"},
        {"Transfer-Encoding: gzip\r\n\r\nok", "400", "once"},
        {"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "400", "once"},
        {"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok", "415", "Content-Encoding"},
        {"Content-Encoding: br\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "415",
         "Content-Encoding"},
        {"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", "400", "once"},
        {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400",
         "once"},
        {"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", "400", "once"},
        {"Content-Length : 2\r\n\r\nok", "400", "once"},
        {"Content-Length: 2\r\n 3\r\n\r\nokx", "400", "once"},
        {"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", "400", "once"},
        {"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n", "400", "once"},
    };
    world w;
    if (!open_with(&w, (ru_http_options){.openai = "/v1/"})) {
        skip();
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        int fd = dial(&w);
        say(fd,
            k % 2 == 0 ? "POST /v1/a HTTP/1.1\r\nHost: h\r\n" : "POST /a HTTP/1.1\r\nHost: h\r\n");
        say(fd, rows[k].head);
        const char *got = hear(&w, fd, "}");
        assert_non_null(strstr(got, rows[k].status));
        assert_non_null(strstr(got, rows[k].word));
        assert_non_null(strstr(got, k % 2 == 0 ? "{\"error\":{\"message\":\"" : "{\"error\":\""));
        assert_true((strstr(got, "Connection: close") != NULL) != (k == 4)); /* that one is read */
        close(fd);
    }
    assert_int_equal(w.n_requests, 0);
    int fd = dial(&w);
    say(fd, "POST http://h:1/at/once HTTP/1.1\r\nHost: h\r\nContent-Encoding: identity\r\n"
            "Transfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    until(&w, &w.n_requests, 1);
    assert_string_equal(w.seen, "POST /at/once ok -");
    close(fd);
    close_all(&w);
}

/* What runs took in a rush does not count seconds later. */
static void a_rush_is_forgotten(void **state)
{
    (void)state;
#ifdef RU_HAS_MHD
    enum { RUNS = 1000, TOOK_NS = 4000000 };
    rui_http_pace p = {0};
    ru_time now = {1};
    for (uint32_t k = 0; k < RUNS; k++) {
        now = ru_time_after(now, TOOK_NS);
        rui_http_pace_learn(&p, TOOK_NS, 16, now);
    }
    assert_in_range(p.turn_ns, TOOK_NS / 16 * 9 / 10, TOOK_NS / 16 * 11 / 10);
    assert_in_range(p.wait_ns, TOOK_NS * 9 / 10, TOOK_NS * 11 / 10);
    rui_http_pace soon = rui_http_pace_at(&p, ru_time_after(now, TOOK_NS));
    assert_true(soon.turn_ns == p.turn_ns && soon.wait_ns == p.wait_ns);
    rui_http_pace later = rui_http_pace_at(&p, ru_time_after(now, INT64_C(2000000000)));
    assert_in_range(later.wait_ns, p.wait_ns / 2, p.wait_ns * 2 / 3);
    rui_http_pace calm = rui_http_pace_at(&p, ru_time_after(now, INT64_C(5000000000)));
    assert_true(calm.turn_ns == 0 && calm.wait_ns == 0);
    now = ru_time_after(now, INT64_C(5000000000));
    rui_http_pace_learn(&p, 160000, 16, now); /* another rush begins anew */
    assert_true(p.turn_ns == 10000 && p.wait_ns < 10000);
#endif
}

RU_TESTS(web_http, cmocka_unit_test(a_rush_is_forgotten), cmocka_unit_test(one_end_of_a_body),
         cmocka_unit_test(a_request_that_waits_is_left_alone),
         cmocka_unit_test(answers_late_and_in_spans), cmocka_unit_test(sees_a_client_leave),
         cmocka_unit_test(answers_who_sends_no_more),
         cmocka_unit_test(reads_what_came_before_the_end),
         cmocka_unit_test(an_end_that_comes_with_requests_is_seen),
         cmocka_unit_test(knows_when_a_slow_body_came), cmocka_unit_test(a_fourth_may_send_no_more),
         cmocka_unit_test(answered_clients_make_room), cmocka_unit_test(idle_clients_make_room),
         cmocka_unit_test(refuses_a_crowd), cmocka_unit_test(bounds_bodies),
         cmocka_unit_test(streams_and_stops_at_a_slow_reader),
         cmocka_unit_test(streams_beside_one_that_waits), cmocka_unit_test(survives_noise))
