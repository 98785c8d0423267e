#include "bench/reader/range_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "env/loop/loop.h"
#include "env/thread.h"

enum {
    CONNS_MAX = 1024,
    HEAD_MAX = 16 << 10,
    CHUNK = 32 << 10,
    TAKEN = 256 << 10, /* of a body at a time */
    BURST_NS = 10000000,
    TAKEN_BURST_NS = 1000000, /* a store that is written makes up for no pause of the writer */
    WIDE_LINE = 3000,
    WIDE_LINES = 100,
};

typedef struct conn {
    ru_range_server *server;
    int fd; /* -1: free */
    char head[HEAD_MAX];
    uint32_t n_head;
    char *out; /* what is to be sent before the file's bytes */
    int64_t n_out, at_out;
    int file; /* -1: none */
    int64_t offset, left;
    int64_t body; /* of the request, still to come */
    bool busy;    /* a request is being answered */
    bool quiet;   /* and never ends */
    bool last;    /* and the connection ends after it */
} conn;

struct ru_range_server {
    ru_range_server_options opt;
    ru_loop *loop;
    ru_thread thread;
    int fd, log;
    uint32_t port;
    conn *conns;     /* [CONNS_MAX] */
    int64_t free_ns; /* the line is taken until */
    uint8_t chunk[TAKEN];
    int64_t requests;
};

static void on_conn(void *self, int fd, uint32_t events, ru_time now);
static void on_time(void *self, uint32_t what, ru_time now);

static void drop(conn *c)
{
    ru_range_server *s = c->server;
    ru_loop_timer_off(s->loop, on_time, c, 0);
    ru_loop_fd_off(s->loop, c->fd);
    close(c->fd);
    if (c->file >= 0) {
        close(c->file);
    }
    free(c->out);
    *c = (conn){.fd = -1, .file = -1};
}

static void listen_for(conn *c, uint32_t events)
{
    ru_err err = {0};
    if (ru_loop_fd(c->server->loop, c->fd, events, on_conn, c, &err) != RU_OK) {
        drop(c);
    }
}

/* -- requests ------------------------------------------------------------------------------------
 */

typedef struct request {
    char path[1024];
    int64_t first, last; /* -1: none */
    char match[200];     /* If-Match; "": none */
    bool head_only;
} request;

static void header(const conn *c, const char *name, char *into, size_t room)
{
    ru_str text = ru_str_n(c->head, c->n_head), line;
    size_t n = strlen(name);
    into[0] = '\0';
    while (ru_str_next(&text, '\n', &line)) {
        if (line.n > (int64_t)n && strncasecmp(line.p, name, n) == 0 && line.p[n] == ':') {
            ru_str v = ru_str_trim(ru_str_from(line, (int64_t)n + 1));
            (void)snprintf(into, room, "%.*s", (int)v.n, v.p);
        }
    }
}

static bool parse(const conn *c, request *r)
{
    char range[80], path[1024];
    *r = (request){.first = -1, .last = -1};
    r->head_only = strncmp(c->head, "HEAD ", 5) == 0;
    if ((!r->head_only && strncmp(c->head, "GET ", 4) != 0) ||
        sscanf(c->head, "%*s %1000s", path) != 1 || strstr(path, "..") != NULL) {
        return false;
    }
    char *mark = strchr(path, '?');
    if (mark != NULL) {
        *mark = '\0';
    }
    uint32_t n = 0; /* %20 and the like */
    for (const char *p = path; *p != '\0'; p++, n++) {
        unsigned v = 0;
        bool code = *p == '%' && sscanf(p + 1, "%2x", &v) == 1;
        r->path[n] = code ? (char)v : *p;
        p += code ? 2 : 0;
    }
    r->path[n] = '\0';
    header(c, "Range", range, sizeof range);
    long long first = 0, last = 0;
    if (sscanf(range, "bytes=%lld-%lld", &first, &last) == 2) {
        r->first = first;
        r->last = last;
    }
    header(c, "If-Match", r->match, sizeof r->match);
    return true;
}

static bool hit(const ru_range_server *s, ru_range_fault f)
{
    return s->opt.every[f] > 0 && s->requests % s->opt.every[f] == 0;
}

static void put_out(conn *c, const char *text)
{
    c->out = strdup(text);
    RU_CHECK(c->out != NULL);
    c->n_out = (int64_t)strlen(text);
    c->at_out = 0;
}

static void simple(conn *c, const char *status, const char *more, const char *body)
{
    char text[4096];
    (void)snprintf(text, sizeof text, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n%s", status,
                   more, strlen(body), body);
    put_out(c, text);
}

static void flood(conn *c, const char *range)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_text t = ru_text_arena(&a);
    ru_text_putf(&t, "HTTP/1.1 206 Partial Content\r\n%sTransfer-Encoding: chunked\r\n\r\n", range);
    for (int k = 0; k < 256; k++) {
        ru_text_put(&t, "1000\r\n");
        ru_text_char(&t, 'x', 4096);
        ru_text_put(&t, "\r\n");
    }
    ru_text_put(&t, "0\r\n\r\n");
    put_out(c, t.p);
    ru_arena_fini(&a);
}

static void wide(conn *c)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_text t = ru_text_arena(&a);
    ru_text_put(&t, "HTTP/1.1 503 Service Unavailable\r\n");
    for (int k = 0; k < WIDE_LINES; k++) {
        ru_text_putf(&t, "X-%d: ", k);
        ru_text_char(&t, 'y', WIDE_LINE);
        ru_text_put(&t, "\r\n");
    }
    ru_text_put(&t, "Content-Length: 0\r\n\r\n");
    put_out(c, t.p);
    ru_arena_fini(&a);
}

/* The head of a good answer, with its faults. */
static void answer_file(conn *c, const request *r, const struct stat *st)
{
    const ru_range_server *s = c->server;
    char range[1200], text[2000], tag[96];
    int64_t size = st->st_size, first = r->first < 0 ? 0 : r->first;
    int64_t last = r->first < 0 || r->last >= size ? size - 1 : r->last;
    (void)snprintf(tag, sizeof tag, "\"%llx-%llx-%llx%s\"", (unsigned long long)size,
                   (unsigned long long)st->st_ino,
                   (unsigned long long)st->st_mtim.tv_sec * 1000000000u +
                       (unsigned long long)st->st_mtim.tv_nsec,
                   hit(s, RU_RANGE_twist) ? "-other" : "");
    if (r->match[0] != '\0' && strcmp(r->match, tag) != 0 && !hit(s, RU_RANGE_twist)) {
        simple(c, "412 Precondition Failed", "", "");
        return;
    }
    if (first >= size) {
        (void)snprintf(text, sizeof text, "Content-Range: bytes */%lld\r\n", (long long)size);
        simple(c, "416 Range Not Satisfiable", text, "");
        return;
    }
    bool whole = r->first < 0 || hit(s, RU_RANGE_whole), half = hit(s, RU_RANGE_brief);
    first = whole ? 0 : first + (hit(s, RU_RANGE_lie) ? 1 : 0);
    last = whole ? size - 1 : half ? first + (last - first) / 2 : last;
    int64_t n = last + 1 - first;
    (void)snprintf(range, sizeof range, "Content-Range: bytes %lld-%lld/%lld\r\nETag: %s\r\n%s",
                   (long long)first, (long long)last, (long long)size, tag,
                   hit(s, RU_RANGE_gzip) ? "Content-Encoding: gzip\r\n" : "");
    if (hit(s, RU_RANGE_flood)) {
        flood(c, range);
        return;
    }
    (void)snprintf(text, sizeof text, "HTTP/1.1 %s\r\n%sContent-Length: %lld\r\n\r\n",
                   whole ? "200 OK" : "206 Partial Content",
                   whole || hit(s, RU_RANGE_mute) ? "" : range, (long long)n);
    put_out(c, text);
    c->offset = first;
    c->left = r->head_only ? 0 : n;
    c->last = hit(s, RU_RANGE_cut);
    c->quiet = hit(s, RU_RANGE_stall);
    c->left = c->last || c->quiet ? n / 2 : c->left;
    if (s->log >= 0) {
        (void)dprintf(s->log, "sends: %lld\n", (long long)c->left);
    }
}

/* What an S3 store says that forgets what it takes. */
static void answer_taken(conn *c)
{
    const char *query = memchr(c->head, '?', strcspn(c->head, "\r"));
    bool begins = strncmp(c->head, "POST ", 5) == 0 && query != NULL && strstr(query, "?uploads");
    if (strncmp(c->head, "DELETE ", 7) == 0) {
        put_out(c, "HTTP/1.1 204 No Content\r\n\r\n");
    } else {
        simple(c, "200 OK", "ETag: \"taken\"\r\n",
               begins ? "<R><UploadId>1</UploadId></R>" : "<R><ETag>taken</ETag></R>");
    }
}

static void answer(conn *c)
{
    ru_range_server *s = c->server;
    request r;
    struct stat st;
    char path[4096];
    s->requests++;
    if (s->opt.takes) {
        answer_taken(c);
        return;
    }
    if (!parse(c, &r)) {
        simple(c, "400 Bad Request", "", "");
        return;
    }
    bool far = strncmp(r.path, "/far/", 5) == 0;
    const char *name = far ? r.path + 4 : r.path;
    if (hit(s, RU_RANGE_busy)) {
        simple(c, "503 Service Unavailable", "Retry-After: 0\r\n",
               "<Error><Code>SlowDown</Code></Error>");
    } else if (hit(s, RU_RANGE_noise)) {
        put_out(c, "\x01\x02 no HTTP at all\r\n\r\n");
        c->last = true;
    } else if (hit(s, RU_RANGE_wide)) {
        wide(c);
        c->last = true;
    } else if (hit(s, RU_RANGE_forbid)) {
        simple(c, "403 Forbidden", "", "<Error><Code>AccessDenied</Code></Error>");
    } else if (hit(s, RU_RANGE_send) && !far) {
        (void)snprintf(path, sizeof path, "Location: /far%s\r\n", name);
        simple(c, "302 Found", path, "elsewhere");
    } else {
        (void)snprintf(path, sizeof path, "%s%s", s->opt.dir, name);
        c->file = open(path, O_RDONLY | O_CLOEXEC);
        if (c->file < 0 || fstat(c->file, &st) != 0 || !S_ISREG(st.st_mode)) {
            simple(c, "404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>");
        } else {
            answer_file(c, &r, &st);
        }
    }
}

/* -- connections ---------------------------------------------------------------------------------
 */

/* The answer is sent: the next request may already be there. */
static void done(conn *c)
{
    if (c->quiet) {
        listen_for(c, 0);
        return;
    }
    if (c->last) {
        drop(c);
        return;
    }
    if (c->file >= 0) {
        close(c->file);
    }
    free(c->out);
    c->out = NULL;
    c->file = -1;
    c->n_out = c->left = 0;
    c->n_head = 0;
    c->busy = false;
    listen_for(c, EPOLLIN);
}

static void write_on(conn *c, ru_time now)
{
    ru_range_server *s = c->server;
    while (c->at_out < c->n_out || c->left > 0) {
        if (c->left > 0 && c->at_out == c->n_out && s->free_ns > now.ns) {
            listen_for(c, 0);
            ru_loop_timer(s->loop, on_time, c, 0, (ru_time){s->free_ns});
            return;
        }
        const void *p = c->out + c->at_out;
        int64_t n = c->n_out - c->at_out;
        if (n == 0) {
            int64_t want = c->left < CHUNK ? c->left : CHUNK;
            n = pread(c->file, s->chunk, (size_t)want, c->offset);
            p = s->chunk;
            if (n <= 0) {
                drop(c);
                return;
            }
        }
        ssize_t sent = send(c->fd, p, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            listen_for(c, EPOLLOUT);
            return;
        }
        if (c->at_out < c->n_out) {
            c->at_out += sent;
            continue;
        }
        c->offset += sent;
        c->left -= sent;
        if (s->opt.bytes_per_s > 0) {
            int64_t from = now.ns - BURST_NS; /* who comes late does not lose the line's time */
            s->free_ns =
                (s->free_ns > from ? s->free_ns : from) + sent * 1000000000 / s->opt.bytes_per_s;
        }
    }
    done(c);
}

static void begin_answer(conn *c, ru_time now)
{
    ru_range_server *s = c->server;
    c->busy = true;
    answer(c);
    if (s->opt.delay_ns > 0) {
        listen_for(c, 0);
        ru_loop_timer(s->loop, on_time, c, 0, (ru_time){now.ns + s->opt.delay_ns});
    } else {
        write_on(c, now);
    }
}

/* The body of a request, as fast as the line is. */
static void take_on(conn *c, ru_time now)
{
    ru_range_server *s = c->server;
    if (c->body > 0 && s->free_ns > now.ns) {
        listen_for(c, 0);
        ru_loop_timer(s->loop, on_time, c, 0, (ru_time){s->free_ns});
        return;
    }
    ssize_t n = c->body == 0 ? 0
                             : recv(c->fd, s->chunk, c->body < TAKEN ? (size_t)c->body : TAKEN,
                                    MSG_DONTWAIT);
    if (c->body > 0 && n <= 0 && !(n < 0 && errno == EAGAIN)) {
        drop(c);
        return;
    }
    n = n < 0 ? 0 : n;
    c->body -= n;
    if (s->opt.bytes_per_s > 0 && n > 0) {
        int64_t from = now.ns - TAKEN_BURST_NS;
        s->free_ns = (s->free_ns > from ? s->free_ns : from) + n * 1000000000 / s->opt.bytes_per_s;
    }
    if (c->body == 0) {
        begin_answer(c, now);
    } else {
        listen_for(c, EPOLLIN);
    }
}

static void on_time(void *self, uint32_t what, ru_time now)
{
    conn *c = self;
    (void)what;
    if (c->fd >= 0 && c->body > 0) {
        take_on(c, now);
    } else if (c->fd >= 0) {
        write_on(c, now);
    }
}

static void read_on(conn *c, ru_time now)
{
    ru_range_server *s = c->server;
    ssize_t n = recv(c->fd, c->head + c->n_head, HEAD_MAX - 1 - c->n_head, MSG_DONTWAIT);
    if (n <= 0) {
        drop(c);
        return;
    }
    c->n_head += (uint32_t)n;
    c->head[c->n_head] = '\0';
    if (strstr(c->head, "\r\n\r\n") == NULL) {
        if (c->n_head == HEAD_MAX - 1) {
            drop(c);
        }
        return;
    }
    if (s->log >= 0) {
        (void)!write(s->log, c->head, c->n_head);
    }
    char bytes[24], expect[32];
    header(c, "Content-Length", bytes, sizeof bytes);
    header(c, "Expect", expect, sizeof expect);
    int64_t begun = c->n_head - (strstr(c->head, "\r\n\r\n") + 4 - c->head);
    c->body = s->opt.takes ? strtoll(bytes, NULL, 10) - begun : 0;
    c->body = c->body > 0 ? c->body : 0;
    if (s->opt.takes && expect[0] != '\0') {
        (void)!send(c->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    take_on(c, now);
}

static void on_conn(void *self, int fd, uint32_t events, ru_time now)
{
    conn *c = self;
    (void)fd;
    if (c->body > 0 && (events & EPOLLIN) != 0) {
        take_on(c, now);
    } else if (!c->busy && (events & EPOLLIN) != 0) {
        read_on(c, now);
    } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
        drop(c);
    } else if (c->busy && (events & EPOLLOUT) != 0) {
        write_on(c, now);
    }
}

static void on_listen(void *self, int fd, uint32_t events, ru_time now)
{
    ru_range_server *s = self;
    (void)events;
    (void)now;
    int one = 1, got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    conn *c = NULL;
    for (uint32_t k = 0; got >= 0 && c == NULL && k < CONNS_MAX; k++) {
        c = s->conns[k].fd < 0 ? &s->conns[k] : NULL;
    }
    if (c == NULL) {
        if (got >= 0) {
            close(got);
        }
        return;
    }
    (void)setsockopt(got, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->server = s;
    c->fd = got;
    c->file = -1;
    listen_for(c, EPOLLIN);
}

/* -- the server ----------------------------------------------------------------------------------
 */

static ru_status begin(ru_range_server *s, ru_err *err)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)s->opt.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int one = 1;
    RU_TRY(ru_loop_open(&s->loop, err));
    s->conns = calloc(CONNS_MAX, sizeof *s->conns);
    if (s->conns == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a server");
    }
    for (uint32_t k = 0; k < CONNS_MAX; k++) {
        s->conns[k].fd = s->conns[k].file = -1;
    }
    if (s->opt.log != NULL) {
        s->log = open(s->opt.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0 || setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(s->fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(s->fd, 256) != 0 ||
        getsockname(s->fd, (struct sockaddr *)&a, &n) != 0) {
        return RU_FAIL(err, RU_E_PEER, "cannot listen on port %u of 127.0.0.1", s->opt.port);
    }
    s->port = ntohs(a.sin_port);
    return ru_loop_fd(s->loop, s->fd, EPOLLIN, on_listen, s, err);
}

ru_status ru_range_server_open(const ru_range_server_options *opt, ru_range_server **out,
                               ru_err *err)
{
    ru_range_server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a server");
    }
    s->opt = *opt;
    s->fd = s->log = -1;
    ru_status st = begin(s, err);
    if (st != RU_OK) {
        ru_range_server_close(s);
        return st;
    }
    *out = s;
    return RU_OK;
}

ru_status ru_range_server_run(ru_range_server *s, ru_err *err)
{
    return ru_loop_run(s->loop, err);
}

static void run(void *self)
{
    ru_range_server *s = self;
    ru_err err = {0};
    RU_CHECK(ru_loop_run(s->loop, &err) == RU_OK);
}

ru_status ru_range_server_start(ru_range_server *s, ru_err *err)
{
    return ru_thread_start(&s->thread, "ranges", run, s, err);
}

void ru_range_server_close(ru_range_server *s)
{
    if (s == NULL) {
        return;
    }
    if (s->thread.started) {
        ru_loop_stop(s->loop);
    }
    ru_thread_join(&s->thread);
    for (uint32_t k = 0; s->conns != NULL && k < CONNS_MAX; k++) {
        if (s->conns[k].fd >= 0) {
            drop(&s->conns[k]);
        }
    }
    if (s->fd >= 0) {
        ru_loop_fd_off(s->loop, s->fd);
        close(s->fd);
    }
    if (s->log >= 0) {
        close(s->log);
    }
    ru_loop_close(s->loop);
    free(s->conns);
    free(s);
}

uint32_t ru_range_server_port(const ru_range_server *s)
{
    return s->port;
}
