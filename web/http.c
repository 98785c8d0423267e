#include "web/http.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/link/link_tcp.h"
#include "web/http_impl.h"

#ifdef RU_HAS_MHD

enum { CONNS = 32, SILENT_S = 10, BODY_S = 60, HEAD_BYTES = 16 << 10 };
#define BODY_BYTES   (INT64_C(64) << 20)
#define STREAM_BYTES (INT64_C(256) << 10)
#define SWEEP_NS     INT64_C(1000000000)
#define CALM_NS      INT64_C(250000000)  /* without runs of several requests; then they are */
#define FORGET_NS    INT64_C(4000000000) /* forgotten in this time */

static ru_status load(ru_http *h, ru_err *err)
{
    void *library = dlopen(RU_MHD_SONAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "pages over HTTP need libmicrohttpd, but %s; run apt-get install "
                       "libmicrohttpd12",
                       dlerror());
    }
#define RUI_X(fn)                                                                             \
    {                                                                                         \
        void *at = dlsym(library, "MHD_" #fn);                                                \
        if (at == NULL) {                                                                     \
            return RU_FAIL(err, RU_E_UNSUPPORTED, "%s has no function MHD_%s", RU_MHD_SONAME, \
                           #fn);                                                              \
        }                                                                                     \
        memcpy(&h->fn, &at, sizeof at);                                                       \
    }
    RUI_MHD_LIST(RUI_X)
#undef RUI_X
    return RU_OK;
}

/* In a time that does not depend on where two tokens differ. */
static bool same_token(const char *given, const char *token)
{
    size_t n = strlen(token), m = strlen(given);
    unsigned differ = n != m;
    for (size_t i = 0; i < m; i++) {
        differ |=
            (unsigned)(unsigned char)given[i] ^ (unsigned)(unsigned char)token[n > 0 ? i % n : 0];
    }
    return differ == 0;
}

static const char NEEDS_TOKEN[] = "this page needs the header \"Authorization: Bearer TOKEN\"";

static bool may_read(const ru_http *h, struct MHD_Connection *c)
{
    static const char scheme[] = "Bearer ";
    if (h->opt.token == NULL) {
        return true;
    }
    const char *given = h->lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    return given != NULL && strncmp(given, scheme, sizeof scheme - 1) == 0 &&
           same_token(given + sizeof scheme - 1, h->opt.token);
}

static enum MHD_Result answer(ru_http *h, struct MHD_Connection *c, unsigned code, const char *type,
                              const char *text, int64_t n)
{
    struct MHD_Response *r =
        h->create_response_from_buffer((size_t)n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (r == NULL) {
        return MHD_NO; /* no memory: the connection ends */
    }
    enum MHD_Result ok = h->add_response_header(r, "Content-Type", type);
    if (code == 401) {
        ok = h->add_response_header(r, "WWW-Authenticate", "Bearer");
    }
    if (code == 405) {
        ok = h->add_response_header(r, "Allow", "GET, HEAD");
    }
    if (code == 503 && h->opt.request != NULL) {
        ok = h->add_response_header(r, "Retry-After", "1");
    }
    ok = ok == MHD_YES ? h->queue_response(c, code, r) : ok;
    h->destroy_response(r);
    return ok;
}

void rui_http_sentence(const ru_http *h, const char *path, uint32_t status, const char *sentence,
                       ru_text *t)
{
    bool openai = h->opt.openai != NULL && strncmp(path, h->opt.openai, strlen(h->opt.openai)) == 0;
    ru_text_put(t, openai ? "{\"error\":{\"message\":" : "{\"error\":");
    ru_text_json(t, ru_str_c(sentence));
    if (openai) {
        ru_text_put(t, status < 500 ? ",\"type\":\"invalid_request_error\""
                                    : ",\"type\":\"server_error\"");
        ru_text_put(t, ",\"param\":null,\"code\":null}");
    }
    ru_text_put(t, "}");
}

enum MHD_Result rui_http_say(ru_http *h, struct MHD_Connection *c, const char *path,
                             uint32_t status, const char *text)
{
    char line[RUI_HTTP_SENTENCE_BYTES];
    ru_text t = ru_text_into(line, sizeof line);
    if (h->opt.request == NULL) {
        ru_text_putf(&t, "%s\n", text);
        return answer(h, c, status, "text/plain; charset=utf-8", line, t.n);
    }
    rui_http_sentence(h, path, status, text, &t);
    return answer(h, c, status, "application/json", line, t.n);
}

static enum MHD_Result give_page(ru_http *h, struct MHD_Connection *c, const char *path)
{
    ru_http_page page = {0};
    ru_err err = {0};
    ru_status st = h->opt.page(h->opt.self, path, &page, &err);
    enum MHD_Result ok = st != RU_OK ? rui_http_say(h, c, path, 503, err.text)
                         : page.text == NULL
                             ? rui_http_say(h, c, path, 404, "there is no such page")
                             : answer(h, c, 200, page.type, page.text, page.size_bytes);
    if (h->opt.done != NULL) {
        h->opt.done(h->opt.self);
    }
    return ok;
}

/* "http://host/path" is "/path". */
static const char *origin_form(const char *path)
{
    const char *host = path[0] != '/' ? strstr(path, "://") : NULL;
    const char *own = host != NULL ? strchr(host + 3, '/') : path;
    return own != NULL ? own : "/";
}

static enum MHD_Result on_request(void *self, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_bytes, void **state)
{
    ru_http *h = self;
    path = origin_form(path);
    if (h->opt.request != NULL) {
        bool open = h->opt.open_path != NULL && strcmp(path, h->opt.open_path) == 0 &&
                    strcmp(method, "GET") == 0;
        return *state != NULL || open || may_read(h, c)
                   ? rui_http_step(h, c, path, method, version, body, body_bytes, state)
                   : rui_http_say(h, c, path, 401, NEEDS_TOKEN);
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        *body_bytes = 0;
        return rui_http_say(h, c, path, 405, "only GET and HEAD are answered");
    }
    if (*state == NULL) { /* the first call is before the body, of which GET has none */
        *state = h;
        return MHD_YES;
    }
    return may_read(h, c) ? give_page(h, c, path) : rui_http_say(h, c, path, 401, NEEDS_TOKEN);
}

/* -- in the loop ---------------------------------------------------------------------------------
 */

static void on_time(void *self, uint32_t what, ru_time now);
static void on_sweep(void *self, uint32_t what, ru_time now);
static void on_hold(void *self, uint32_t what, ru_time now);

/* After a rush it would make requests seem late that are not. */
rui_http_pace rui_http_pace_at(const rui_http_pace *p, ru_time now)
{
    int64_t calm_ns = ru_time_since(now, p->at) - CALM_NS;
    double left = calm_ns <= 0 ? 1 : calm_ns < FORGET_NS ? 1 - (double)calm_ns / FORGET_NS : 0;
    return (rui_http_pace){.turn_ns = (int64_t)(left * (double)p->turn_ns),
                           .wait_ns = (int64_t)(left * (double)p->wait_ns),
                           .at = p->at};
}

/* Steps up and down, by how many are to be longer: a run that lost its core to others counts once.
 */
void rui_http_pace_learn(rui_http_pace *p, int64_t took_ns, uint32_t n, ru_time now)
{
    *p = rui_http_pace_at(p, now);
    int64_t each = took_ns / n, step = p->turn_ns / 32 + 1, wait_step = p->wait_ns / 16 + 1000;
    p->turn_ns = p->turn_ns == 0 ? each : p->turn_ns + (each > p->turn_ns ? step : -step);
    p->wait_ns += took_ns > p->wait_ns ? wait_step : -wait_step / 19;
    p->at = now;
}

static void run(ru_http *h)
{
    h->ran_before = h->ran;
    h->ran = ru_clock_now();
    h->n_began = h->n_over = h->n_moved = 0;
    (void)h->run(h->daemon);
    h->runs = h->n_moved > 0 ? RUI_HTTP_RUNS : h->runs;
    uint32_t n = h->n_began < h->n_over ? h->n_began : h->n_over;
    if (n >= RUI_HTTP_TURN) {
        ru_time now = ru_clock_now();
        rui_http_pace_learn(&h->pace, ru_time_since(now, h->ran), n, now);
    }
}

static void go_on(ru_http *h, ru_time now)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;
    run(h);
    if (h->get_timeout(h->daemon, &wait_ms) != MHD_YES) {
        ru_loop_timer_off(h->opt.loop, on_time, h, 0);
    } else if (wait_ms == 0) { /* also for those who wait, which an answer moves */
        if (h->n_waits == 0 || h->runs > 0) {
            h->runs -= h->runs > 0 ? 1 : 0;
            rui_http_soon(h);
        }
    } else {
        int64_t ms = wait_ms < 60000 ? (int64_t)wait_ms : 60000;
        ru_loop_timer(h->opt.loop, on_time, h, 0, ru_time_after(now, ms * 1000000));
    }
    if (!h->holding && h->n_waits > 0) {
        h->holding = true;
        ru_loop_timer(h->opt.loop, on_hold, h, 0, ru_time_after(now, RUI_HTTP_HOLD_NS));
    }
    if (!h->sweeping && (h->calls != NULL || h->conns != NULL)) {
        h->sweeping = true;
        ru_loop_timer(h->opt.loop, on_sweep, h, 0, ru_time_after(now, SWEEP_NS));
    }
}

static void on_soon(void *self, ru_time now)
{
    go_on(self, now);
}

void rui_http_soon(ru_http *h)
{
    ru_loop_after(h->opt.loop, on_soon, h);
}

static void on_sweep(void *self, uint32_t what, ru_time now)
{
    (void)what;
    ru_http *h = self;
    h->sweeping = false;
    rui_http_sweep(h, now);
    go_on(h, now);
}

static void on_hold(void *self, uint32_t what, ru_time now)
{
    (void)what;
    ru_http *h = self;
    h->holding = false;
    rui_http_hold(h, now);
    go_on(h, now);
}

static void on_time(void *self, uint32_t what, ru_time now)
{
    (void)what;
    go_on(self, now);
}

static void on_ready(void *self, int fd, uint32_t events, ru_time now)
{
    (void)fd;
    (void)events;
    go_on(self, now);
}

/* A port alone is on this machine only: who wants more says so. */
static const char *where(const char *listen, ru_arena *arena)
{
    bool port = listen[0] != '\0' && strspn(listen, "0123456789") == strlen(listen);
    return port ? ru_arena_printf(arena, "127.0.0.1:%s", listen) : listen;
}

static void defaults(ru_http_options *o)
{
    o->conns_max = o->conns_max != 0 ? o->conns_max : CONNS;
    o->silent_max_s = o->silent_max_s != 0 ? o->silent_max_s : SILENT_S;
    o->body_max_bytes = o->body_max_bytes != 0 ? o->body_max_bytes : BODY_BYTES;
    o->bodies_max_bytes = o->bodies_max_bytes != 0 ? o->bodies_max_bytes : 8 * o->body_max_bytes;
    o->body_max_s = o->body_max_s != 0 ? o->body_max_s : BODY_S;
    o->stream_max_bytes = o->stream_max_bytes != 0 ? o->stream_max_bytes : STREAM_BYTES;
}

static ru_status begin(ru_http *h, ru_arena *arena, ru_err *err)
{
    int fd = -1;
    const char *at = where(h->opt.listen, arena);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the server");
    }
    RU_TRY(load(h, err));
    if (!ru_link_tcp_address_ok(at)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "'%s': expected PORT, :PORT or HOST:PORT with a port from 0 (any) to 65535",
                       h->opt.listen);
    }
    bool tls = h->opt.cert != NULL;
    struct MHD_OptionItem items[] = {
        {tls ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END, 0, (void *)(uintptr_t)h->opt.cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)h->opt.key},
        {MHD_OPTION_END, 0, NULL}};
    if (tls && h->is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "this libmicrohttpd was built without TLS");
    }
    RU_TRY(ru_link_tcp_listen(at, &fd, h->address, err));
    h->daemon = h->start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (tls ? MHD_USE_TLS : 0u), 0, NULL, NULL,
        on_request, h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)h->opt.conns_max, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->opt.silent_max_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
        rui_http_completed, h, MHD_OPTION_NOTIFY_CONNECTION, rui_http_connection, h,
        MHD_OPTION_ARRAY, items, MHD_OPTION_END);
    if (h->daemon == NULL) {
        close(fd);
        if (tls) {
            return RU_FAIL(
                err, RU_E_USAGE,
                "no server with TLS starts at %s: certificate and key are not PEM, or do "
                "not belong together",
                h->address);
        }
        return RU_FAIL(err, RU_E_MEM, "libmicrohttpd does not start a server at %s", h->address);
    }
    h->epoll_fd = h->get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    ru_status st = ru_loop_fd(h->opt.loop, h->epoll_fd, 1 /* EPOLLIN */, on_ready, h, err);
    h->epoll_fd = st == RU_OK ? h->epoll_fd : -1;
    return st;
}

ru_status ru_http_ready(ru_text *library, ru_err *err)
{
    ru_http h = {0};
    RU_TRY(load(&h, err));
    ru_text_putf(library, "libmicrohttpd %s", h.get_version());
    return RU_OK;
}

ru_status ru_http_open(const ru_http_options *opt, ru_arena *arena, ru_http **out, ru_err *err)
{
    ru_http *h = RU_NEW(arena, ru_http, 1);
    if (h == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the server");
    }
    *h = (ru_http){.opt = *opt, .epoll_fd = -1};
    defaults(&h->opt);
    ru_status st = begin(h, arena, err);
    if (st != RU_OK) {
        ru_http_close(h);
        return st;
    }
    *out = h;
    return RU_OK;
}

void ru_http_close(ru_http *h)
{
    if (h == NULL || h->daemon == NULL) {
        return;
    }
    rui_http_drop_all(h);
    ru_loop_timer_off(h->opt.loop, on_time, h, 0);
    ru_loop_timer_off(h->opt.loop, on_sweep, h, 0);
    ru_loop_timer_off(h->opt.loop, on_hold, h, 0);
    ru_loop_after_off(h->opt.loop, on_soon, h);
    if (h->epoll_fd >= 0) {
        ru_loop_fd_off(h->opt.loop, h->epoll_fd);
    }
    h->stop_daemon(h->daemon);
    rui_http_look_off(h); /* requests that end with it ask for a look */
    for (uint32_t k = 0; k < RUI_HTTP_FULL; k++) {
        if (h->full[k] != NULL) {
            h->destroy_response(h->full[k]);
        }
    }
    rui_http_halves_free(h);
    h->daemon = NULL;
}

const char *ru_http_address(const ru_http *h)
{
    return h->address;
}

void ru_http_turn(const ru_http *h, int64_t *each_ns, int64_t *wait_ns)
{
    rui_http_pace lately = rui_http_pace_at(&h->pace, ru_clock_now());
    *each_ns = lately.turn_ns;
    *wait_ns = lately.wait_ns;
}

#else /* built without the library */

static ru_status none(ru_err *err)
{
    return RU_FAIL(
        err, RU_E_UNSUPPORTED,
        "Rubato was built without libmicrohttpd; run apt-get install libmicrohttpd-dev and "
        "build it again");
}

ru_status ru_http_ready(ru_text *library, ru_err *err)
{
    (void)library;
    return none(err);
}

ru_status ru_http_open(const ru_http_options *opt, ru_arena *arena, ru_http **out, ru_err *err)
{
    (void)opt;
    (void)arena;
    (void)out;
    return none(err);
}

void ru_http_close(ru_http *h)
{
    RU_CHECK(h == NULL);
}

const char *ru_http_address(const ru_http *h)
{
    (void)h;
    return "";
}

bool ru_http_sends(const ru_http *h)
{
    RU_CHECK(h == NULL);
    return false;
}

void ru_http_turn(const ru_http *h, int64_t *each_ns, int64_t *wait_ns)
{
    RU_CHECK(h == NULL);
    *each_ns = *wait_ns = 0;
}

const char *ru_http_asked(const ru_http_request *r, const char *name)
{
    (void)r;
    (void)name;
    return NULL;
}

/* No server opens, so that there is no request. */
void ru_http_answer(ru_http_request *r, const ru_http_reply *a)
{
    (void)a;
    RU_CHECK(r == NULL);
}

void ru_http_refuse(ru_http_request *r, uint32_t status, const char *sentence, int64_t retry_s)
{
    (void)status;
    (void)retry_s;
    (void)sentence;
    RU_CHECK(r == NULL);
}

void ru_http_refuse_method(ru_http_request *r, const char *method)
{
    (void)method;
    RU_CHECK(r == NULL);
}

void ru_http_stream(ru_http_request *r, uint32_t status, const ru_http_field *fields,
                    uint32_t n_fields)
{
    (void)status;
    (void)fields;
    (void)n_fields;
    RU_CHECK(r == NULL);
}

bool ru_http_put(ru_http_request *r, const void *data, int64_t size_bytes)
{
    (void)data;
    (void)size_bytes;
    RU_CHECK(r == NULL);
    return false;
}

void ru_http_end(ru_http_request *r)
{
    RU_CHECK(r == NULL);
}

#endif
