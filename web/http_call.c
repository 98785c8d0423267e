#include "web/http_impl.h"

#ifdef RU_HAS_MHD
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define AWAY_NS INT64_C(4000000) /* a step of the kernel's clock for data of a connection */
/* Requests that wait unsuspended: the library looks at each of them in each run (0.1 us). */
enum { SPANS_MAX = 1024, WAITS_MAX = 4096 };

static const char JSON[] = "application/json";

/* -- bookkeeping -------------------------------------------------------------------------------
 */

static void unlist(rui_http_call *k)
{
    if (k->before != NULL) {
        k->before->next = k->next;
    } else {
        k->http->calls = k->next;
    }
    if (k->next != NULL) {
        k->next->before = k->before;
    }
}

/* Free when neither the library nor the owner has it. */
static void let_go(rui_http_call *k)
{
    if (k->conn != NULL || k->owned) {
        return;
    }
    unlist(k);
    k->http->bodies_bytes -= k->body_cap + k->pending_cap;
    free(k->body);
    free(k->pending);
    free(k);
}

static void unwatch(rui_http_call *k)
{
    if (k->watched) {
        ru_loop_fd_off(
            k->http->opt.loop,
            k->http->get_connection_info(k->conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
        k->watched = false;
    }
}

static void wait_over(rui_http_call *k)
{
    k->http->n_waits -= k->waits ? 1 : 0;
    k->waits = false;
}

static void resume(rui_http_call *k)
{
    if (k->waits) {
        wait_over(k);
    } else if (k->suspended) {
        unwatch(k);
        k->suspended = false;
        k->http->resume_connection(k->conn);
    } else {
        return;
    }
    k->http->runs = RUI_HTTP_RUNS;
    rui_http_soon(k->http); /* one run of the library does not see what it resumes itself */
}

/* The client left: the library closes the connection, the owner is told. */
void rui_http_leave(rui_http_call *k)
{
    k->state = RUI_HTTP_GONE;
    resume(k);
    if (k->owned && k->http->opt.gone != NULL) {
        k->http->opt.gone(k->http->opt.self, &k->r);
    }
}

/* A client that sends no more may wait for its answer, or have left: the two differ once bytes go
 * to it. A stream sends some soon; before another answer goes an interim one, which clients of HTTP
 * 1.1 pass over. Over TLS, and of clients of HTTP 1.0, the end of sending is the end. */
static bool still_reads(const rui_http_call *k, int fd)
{
    static const char probe[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (k->http->opt.cert != NULL || !k->http_1_1) {
        return false;
    }
    return k->state == RUI_HTTP_STREAM ||
           send(fd, probe, sizeof probe - 1, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof probe - 1;
}

static void on_hang_up(void *self, int fd, uint32_t events, ru_time now)
{
    (void)now;
    rui_http_call *k = self;
    bool lost = (events & (EPOLLERR | EPOLLHUP)) != 0;
    if (lost || !still_reads(k, fd) || !rui_http_half_open(k, fd)) {
        rui_http_leave(k);
    } else {
        k->watched = false; /* the half watches it */
    }
}

static void suspend(rui_http_call *k)
{
    ru_http *h = k->http;
    int fd = h->get_connection_info(k->conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    h->suspend_connection(k->conn);
    k->suspended = true;
    /* without memory for it nobody sees the hang-up before the answer is sent */
    k->watched =
        k->half == NULL && ru_loop_fd(h->opt.loop, fd, EPOLLRDHUP, on_hang_up, k, NULL) == RU_OK;
}

void rui_http_hold(ru_http *h, ru_time now)
{
    for (rui_http_call *k = h->calls; k != NULL; k = k->next) {
        if (k->waits && ru_time_since(now, k->held) >= RUI_HTTP_HOLD_NS) {
            wait_over(k);
            suspend(k);
        }
    }
}

/* -- reading -----------------------------------------------------------------------------------
 */

/* Bytes of the body as the head says; -1: it does not (chunked). */
static int64_t announced(const ru_http *h, struct MHD_Connection *c)
{
    const char *text = h->lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
    int64_t n = -1;
    return text != NULL && ru_str_i64(ru_str_c(text), &n) && n >= 0 ? n : -1;
}

static bool room(rui_http_call *k, int64_t bytes)
{
    ru_http *h = k->http;
    if (bytes <= k->body_cap) {
        return true;
    }
    int64_t cap = bytes < 2 * k->body_cap ? 2 * k->body_cap : bytes;
    cap = cap > h->opt.body_max_bytes ? h->opt.body_max_bytes : cap;
    if (h->bodies_bytes - k->body_cap + cap > h->opt.bodies_max_bytes) {
        return false;
    }
    uint8_t *more = realloc(k->body, (size_t)cap);
    if (more == NULL) {
        return false;
    }
    h->bodies_bytes += cap - k->body_cap;
    k->body = more;
    k->body_cap = cap;
    return true;
}

/* What its head says of the body. */
typedef struct about {
    uint32_t lengths, codings; /* fields of it */
    bool chunked, coded, odd;
} about;

static enum MHD_Result on_field(void *self, enum MHD_ValueKind kind, const char *name,
                                const char *value)
{
    (void)kind;
    static const char length[] = "Content-Length", coding[] = "Transfer-Encoding";
    about *a = self;
    if (strcasecmp(name, length) == 0) {
        a->lengths++;
    } else if (strcasecmp(name, coding) == 0) {
        a->codings++;
        a->chunked = value != NULL && strcasecmp(value, "chunked") == 0;
    } else if (strncasecmp(name, length, sizeof length - 1) == 0 ||
               strncasecmp(name, coding, sizeof coding - 1) == 0) {
        a->odd = true; /* a blank before the colon, or the rest of a folded line */
    } else if (strcasecmp(name, "Content-Encoding") == 0) {
        a->coded = a->coded || (value != NULL && strcasecmp(value, "identity") != 0);
    }
    return MHD_YES;
}

static enum MHD_Result refuse(ru_http *h, struct MHD_Connection *c, const char *path,
                              uint32_t status)
{
    char text[128];
    ru_text t = ru_text_into(text, sizeof text);
    switch (status) {
    case 400:
        ru_text_put(&t, "the head must say once how long the body is: by Content-Length, or by "
                        "Transfer-Encoding: chunked");
        break;
    case 413:
        ru_text_putf(&t, "a body may have at most %lld bytes", (long long)h->opt.body_max_bytes);
        break;
    case 415:
        ru_text_put(&t, "bodies with a Content-Encoding are not taken; send this one as it is");
        break;
    default:
        ru_text_put(&t, "bodies of other requests take all memory for bodies; try again");
        break;
    }
    return rui_http_say(h, c, path, status, text);
}

/* When the last of what it says came, after `after`. When that is longer ago than a moment, the
 * kernel knows (in steps of 4 ms). */
static ru_time came(const ru_http *h, struct MHD_Connection *c, ru_time after)
{
    struct tcp_info info;
    socklen_t n = sizeof info;
    ru_time now = ru_clock_now();
    int64_t away_ns = ru_time_since(now, after);
    if (after.ns == 0 || away_ns < AWAY_NS) {
        return now;
    }
    int fd = h->get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0 ||
        n < offsetof(struct tcp_info, tcpi_last_data_recv) + sizeof info.tcpi_last_data_recv) {
        return now;
    }
    int64_t age_ns = (int64_t)info.tcpi_last_data_recv * 1000000;
    return (ru_time){now.ns - (age_ns < away_ns ? age_ns : away_ns)};
}

/* A client that sends its body slowly is not what the server takes. */
static ru_time whole(const rui_http_call *k)
{
    if (k->r.body_bytes == 0 || k->run.ns == k->http->ran.ns) {
        return k->r.since;
    }
    ru_time at = came(k->http, k->conn, k->r.since);
    return ru_time_since(at, k->r.since) < AWAY_NS ? k->r.since : at;
}

static enum MHD_Result begin(ru_http *h, struct MHD_Connection *c, const char *path,
                             const char *method, const char *version, void **state)
{
    int64_t n = announced(h, c);
    about a = {0};
    (void)h->get_connection_values(c, MHD_HEADER_KIND, on_field, &a);
    if (a.odd || a.lengths + a.codings > 1 || (a.codings > 0 && !a.chunked)) {
        return refuse(h, c, path, 400); /* where it ends is unknown: the connection does, too */
    }
    uint32_t status = n > h->opt.body_max_bytes ? 413 : a.coded ? 415 : 0;
    if (status != 0 && h->lookup_connection_value(c, MHD_HEADER_KIND, "Expect") != NULL) {
        return refuse(h, c, path, status); /* the client waits with the body */
    }
    rui_http_call *k = calloc(1, sizeof *k);
    rui_http_conn *conn = rui_http_conn_of(h, c);
    if (k == NULL) {
        return MHD_NO;
    }
    if (conn != NULL) {
        conn->asks = conn->asked = true;
    }
    k->http = h;
    k->conn = c;
    k->http_1_1 = strcmp(version, "HTTP/1.1") == 0;
    k->next = h->calls;
    h->calls = k;
    if (k->next != NULL) {
        k->next->before = k;
    }
    k->r = (ru_http_request){.method = method, .path = path, .since = came(h, c, h->ran_before)};
    k->run = k->step = h->ran;
    h->n_began++;
    *state = k;
    k->status = status != 0 ? status : n > 0 && !room(k, n) ? 503 : 0;
    return MHD_YES;
}

/* A body that is refused is read to its end, so that the client reads the answer. */
static void take(rui_http_call *k, const char *data, size_t n)
{
    int64_t bytes = k->r.body_bytes + (int64_t)n;
    if (k->status == 0 && bytes > k->http->opt.body_max_bytes) {
        k->status = 413;
    } else if (k->status == 0 && !room(k, bytes)) {
        k->status = 503;
    }
    if (k->status == 0) {
        memcpy(k->body + k->r.body_bytes, data, n);
    }
    k->r.body_bytes = bytes;
}

static void drop_response(rui_http_call *k)
{
    if (k->response != NULL && !k->shared) {
        k->http->destroy_response(k->response);
    }
    k->response = NULL;
}

static enum MHD_Result queue(rui_http_call *k)
{
    enum MHD_Result ok = k->http->queue_response(k->conn, k->status, k->response);
    drop_response(k);
    return ok;
}

enum MHD_Result rui_http_step(ru_http *h, struct MHD_Connection *c, const char *path,
                              const char *method, const char *version, const char *data, size_t *n,
                              void **state)
{
    rui_http_call *k = *state;
    if (k == NULL) {
        h->n_moved++;
        return begin(h, c, path, method, version, state);
    }
    if (!k->waits && k->step.ns != h->ran.ns) {
        k->step = h->ran;
        h->n_moved++;
    }
    if (*n > 0) {
        take(k, data, *n);
        *n = 0;
        return MHD_YES;
    }
    if (k->state == RUI_HTTP_READING) {
        if (k->status != 0) {
            return refuse(h, c, path, k->status);
        }
        k->r.body = k->body;
        k->r.whole = whole(k);
        k->state = RUI_HTTP_HELD;
        k->owned = true;
        h->opt.request(h->opt.self, &k->r);
        if (k->state == RUI_HTTP_HELD && h->n_waits < WAITS_MAX) {
            k->held = ru_clock_now();
            k->waits = true;
            h->n_waits++;
            h->n_moved--; /* all of it is read: nothing moves before its answer */
            return MHD_YES;
        }
        if (k->state == RUI_HTTP_HELD) {
            suspend(k);
            return MHD_YES;
        }
    }
    if (k->waits) {
        return MHD_YES;
    }
    if (k->late) {
        return rui_http_say(h, c, path, 504, "the answer took longer than the server allows");
    }
    return k->response != NULL ? queue(k) : MHD_NO;
}

void rui_http_completed(void *self, struct MHD_Connection *c, void **state,
                        enum MHD_RequestTerminationCode why)
{
    (void)why;
    ru_http *h = self;
    rui_http_call *k = *state;
    rui_http_conn *conn = rui_http_conn_of(h, c);
    if (conn != NULL) {
        rui_http_conn_idle(h, conn);
    }
    if (h->opt.request == NULL || k == NULL) {
        return;
    }
    unwatch(k);
    wait_over(k);
    h->n_over++;
    k->suspended = false;
    drop_response(k);
    if (k->owned && k->state != RUI_HTTP_GONE) {
        rui_http_leave(k);
    }
    if (k->half != NULL) {
        rui_http_half_end(k->half);
        k->half = NULL;
    }
    k->conn = NULL;
    k->r.method = k->r.path = "";
    k->state = RUI_HTTP_GONE;
    *state = NULL;
    let_go(k);
    if (h->n_conns - h->n_ended >= h->opt.conns_max) { /* others are not even let in */
        rui_http_make_room(h);
    }
    if (h->opt.sent != NULL) {
        h->opt.sent(h->opt.self);
    }
}

bool ru_http_sends(const ru_http *h)
{
    if (h->halves != NULL) {
        return true;
    }
    for (const rui_http_call *k = h->calls; k != NULL; k = k->next) {
        if (k->state == RUI_HTTP_ANSWERED || k->state == RUI_HTTP_STREAM) {
            return true;
        }
    }
    return false;
}

/* -- answers -----------------------------------------------------------------------------------
 */

const char *ru_http_asked(const ru_http_request *r, const char *name)
{
    const rui_http_call *k = (const rui_http_call *)(const void *)r;
    return k->conn == NULL || k->state == RUI_HTTP_GONE
               ? NULL
               : k->http->lookup_connection_value(k->conn, MHD_HEADER_KIND, name);
}

static void add_fields(rui_http_call *k, const ru_http_field *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        (void)k->http->add_response_header(k->response, f[i].name, f[i].value);
    }
}

static struct MHD_Response *response_of(const ru_http *h, const ru_http_reply *a)
{
    struct MHD_IoVec at[SPANS_MAX];
    RU_CHECK(a->n_spans <= SPANS_MAX);
    if (a->n_spans <= 1) {
        const void *p = a->n_spans == 1 ? a->spans[0].data : "";
        size_t n = a->n_spans == 1 ? (size_t)a->spans[0].size_bytes : 0;
        return h->create_response_from_buffer_with_free_callback_cls(n, (void *)(uintptr_t)p,
                                                                     a->done, a->self);
    }
    for (uint32_t i = 0; i < a->n_spans; i++) {
        at[i] = (struct MHD_IoVec){a->spans[i].data, (size_t)a->spans[i].size_bytes};
    }
    return h->create_response_from_iovec(at, a->n_spans, a->done, a->self);
}

static void answered(rui_http_call *k, uint32_t status, int64_t bytes)
{
    if (k->http->opt.answered != NULL) {
        k->http->opt.answered(k->http->opt.self, &k->r, status, bytes);
    }
}

static void give(rui_http_call *k, uint32_t status, struct MHD_Response *response)
{
    k->status = status;
    k->response = response;
    k->state = response != NULL ? RUI_HTTP_ANSWERED : RUI_HTTP_GONE; /* no memory: it closes */
    resume(k);
}

void ru_http_answer(ru_http_request *r, const ru_http_reply *a)
{
    rui_http_call *k = (rui_http_call *)(void *)r;
    int64_t bytes = 0;
    RU_CHECK(k->owned && (k->state == RUI_HTTP_HELD || k->state == RUI_HTTP_GONE));
    for (uint32_t i = 0; i < a->n_spans; i++) {
        bytes += a->spans[i].size_bytes;
    }
    answered(k, a->status, bytes);
    k->owned = false;
    k->response = k->state == RUI_HTTP_HELD ? response_of(k->http, a) : NULL;
    if (k->response == NULL && a->done != NULL) {
        a->done(a->self);
    }
    if (k->state == RUI_HTTP_GONE) {
        let_go(k);
        return;
    }
    if (k->response != NULL) {
        add_fields(k, a->fields, a->n_fields);
    }
    give(k, a->status, k->response);
}

/* more: a field beside the type; NULL: none. */
static void say_no(ru_http_request *r, uint32_t status, const char *sentence,
                   const ru_http_field *more)
{
    const ru_http_field fields[] = {{"Content-Type", JSON},
                                    more != NULL ? *more : (ru_http_field){0}};
    char *p = malloc(RUI_HTTP_SENTENCE_BYTES);
    ru_http_reply a = {.status = status,
                       .fields = fields,
                       .n_fields = more != NULL ? 2 : 1,
                       .done = free,
                       .self = p};
    ru_http_span span = {0};
    if (p != NULL) {
        const ru_http *h = ((rui_http_call *)(void *)r)->http;
        ru_text t = ru_text_into(p, RUI_HTTP_SENTENCE_BYTES);
        rui_http_sentence(h, r->path, status, sentence, &t);
        span = (ru_http_span){p, t.n};
        a.spans = &span;
        a.n_spans = 1;
    }
    ru_http_answer(r, &a);
}

/* The refusal of a server that is full, made once: a crowd of those who are refused costs less.
 * NULL: no memory, or it is another one. */
static struct MHD_Response *full(rui_http_call *k, const char *sentence, int64_t retry_s)
{
    ru_http *h = k->http;
    size_t n = strlen(sentence);
    bool openai =
        h->opt.openai != NULL && strncmp(k->r.path, h->opt.openai, strlen(h->opt.openai)) == 0;
    if (openai || retry_s < 1 || retry_s > RUI_HTTP_FULL || n >= sizeof h->full_text) {
        return NULL;
    }
    if (h->full_text[0] == '\0') {
        memcpy(h->full_text, sentence, n + 1);
    }
    struct MHD_Response **at = &h->full[retry_s - 1];
    if (strcmp(h->full_text, sentence) == 0 && *at == NULL) {
        char body[RUI_HTTP_SENTENCE_BYTES], after[24];
        ru_text t = ru_text_into(body, sizeof body), u = ru_text_into(after, sizeof after);
        rui_http_sentence(h, "", 429, sentence, &t);
        ru_text_putf(&u, "%lld", (long long)retry_s);
        *at = h->create_response_from_buffer((size_t)t.n, body, MHD_RESPMEM_MUST_COPY);
        if (*at != NULL && (h->add_response_header(*at, "Content-Type", JSON) != MHD_YES ||
                            h->add_response_header(*at, "Retry-After", after) != MHD_YES)) {
            h->destroy_response(*at);
            *at = NULL;
        }
        h->full_bytes = t.n;
    }
    return strcmp(h->full_text, sentence) == 0 ? *at : NULL;
}

void ru_http_refuse(ru_http_request *r, uint32_t status, const char *sentence, int64_t retry_s)
{
    rui_http_call *k = (rui_http_call *)(void *)r;
    struct MHD_Response *made =
        status == 429 && k->state == RUI_HTTP_HELD ? full(k, sentence, retry_s) : NULL;
    if (made != NULL) {
        RU_CHECK(k->owned);
        answered(k, status, k->http->full_bytes);
        k->owned = false;
        k->shared = true;
        give(k, status, made);
        return;
    }
    char after[24];
    ru_text t = ru_text_into(after, sizeof after);
    ru_text_putf(&t, "%lld", (long long)retry_s);
    const ru_http_field field = {"Retry-After", after};
    say_no(r, status, sentence, retry_s > 0 ? &field : NULL);
}

void ru_http_refuse_method(ru_http_request *r, const char *method)
{
    char sentence[160];
    ru_text t = ru_text_into(sentence, sizeof sentence);
    ru_text_putf(&t, "%.80s is asked by %s", r->path, method);
    const ru_http_field field = {"Allow", strcmp(method, "GET") == 0 ? "GET, HEAD" : method};
    say_no(r, 405, sentence, &field);
}

/* -- streams -----------------------------------------------------------------------------------
 */

static ssize_t on_read(void *self, uint64_t at, char *into, size_t max)
{
    (void)at;
    rui_http_call *k = self;
    int64_t n = k->pending_n - k->pending_at;
    if (k->state == RUI_HTTP_GONE) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (n == 0) {
        if (k->ended) {
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        suspend(k);
        return 0;
    }
    k->http->runs = RUI_HTTP_RUNS; /* this is sent, and what follows read, by other runs */
    n = n > (int64_t)max ? (int64_t)max : n;
    memcpy(into, k->pending + k->pending_at, (size_t)n);
    k->pending_at += n;
    return (ssize_t)n;
}

void ru_http_stream(ru_http_request *r, uint32_t status, const ru_http_field *fields,
                    uint32_t n_fields)
{
    rui_http_call *k = (rui_http_call *)(void *)r;
    ru_http *h = k->http;
    if (k->state == RUI_HTTP_GONE) {
        return;
    }
    RU_CHECK(k->state == RUI_HTTP_HELD);
    k->status = status;
    k->response = h->create_response_from_callback(MHD_SIZE_UNKNOWN, 32 << 10, on_read, k, NULL);
    if (k->response == NULL) {
        rui_http_leave(k);
        return;
    }
    k->state = RUI_HTTP_STREAM;
    add_fields(k, fields, n_fields);
    resume(k);
}

bool ru_http_put(ru_http_request *r, const void *data, int64_t size_bytes)
{
    rui_http_call *k = (rui_http_call *)(void *)r;
    int64_t n = k->pending_n - k->pending_at;
    if (k->state != RUI_HTTP_STREAM || n + size_bytes > k->http->opt.stream_max_bytes) {
        return false;
    }
    if (k->pending_n + size_bytes > k->pending_cap && k->pending_at > 0) {
        memmove(k->pending, k->pending + k->pending_at, (size_t)n);
        k->pending_at = 0;
        k->pending_n = n;
    }
    if (n + size_bytes > k->pending_cap) {
        int64_t cap = 2 * (n + size_bytes), grown = k->http->bodies_bytes - k->pending_cap + cap;
        uint8_t *more =
            grown <= k->http->opt.bodies_max_bytes ? realloc(k->pending, (size_t)cap) : NULL;
        if (more == NULL) {
            return false;
        }
        k->http->bodies_bytes = grown;
        k->pending = more;
        k->pending_cap = cap;
    }
    memcpy(k->pending + k->pending_n, data, (size_t)size_bytes);
    k->pending_n += size_bytes;
    k->put_bytes += size_bytes;
    resume(k);
    return true;
}

void ru_http_end(ru_http_request *r)
{
    rui_http_call *k = (rui_http_call *)(void *)r;
    RU_CHECK(k->owned && (k->state == RUI_HTTP_STREAM || k->state == RUI_HTTP_GONE));
    answered(k, k->status, k->put_bytes);
    k->owned = false;
    k->ended = true;
    resume(k);
    let_go(k);
}

/* -- times -------------------------------------------------------------------------------------
 */

/* A head or a body that comes too slowly: the connection ends as if the client had left. */
static void sweep_slow(ru_http *h, ru_time now)
{
    int64_t idle_ns = 2 * h->opt.silent_max_s * 1000000000;
    for (const rui_http_call *k = h->calls; k != NULL; k = k->next) {
        rui_http_conn *c = rui_http_conn_of(h, k->conn);
        if (c != NULL && k->state == RUI_HTTP_READING &&
            ru_time_since(now, k->r.since) > h->opt.body_max_s * 1000000000) {
            rui_http_conn_end(h, c);
        }
    }
    for (rui_http_conn *c = h->last_conn; c != NULL && ru_time_since(now, c->idle_since) > idle_ns;
         c = c->before) {
        if (!c->asks) {
            rui_http_conn_end(h, c);
        }
    }
}

void rui_http_sweep(ru_http *h, ru_time now)
{
    int64_t max_ns = h->opt.answer_max_s * 1000000000;
    if (h->opt.request == NULL) {
        return;
    }
    sweep_slow(h, now);
    for (rui_http_call *k = h->calls; k != NULL && max_ns > 0; k = k->next) {
        if (k->state == RUI_HTTP_HELD && ru_time_since(now, k->r.since) > max_ns) {
            k->late = true;
            rui_http_leave(k); /* k stays: the library has it */
        }
    }
}

void rui_http_drop_all(ru_http *h)
{
    for (rui_http_call *k = h->calls, *next; k != NULL; k = next) {
        if (k->state == RUI_HTTP_HELD || k->state == RUI_HTTP_STREAM) {
            rui_http_leave(k);
        }
        next = k->next;
        k->owned = false;
        let_go(k);
    }
}

#endif
