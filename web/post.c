#include "web/post.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/conf.h"
#include "env/file/secret.h"
#include "web/address.h"
#include "web/curl.h"

#ifdef RU_HAS_CURL

#define ANSWER_BYTES (INT64_C(64) << 20)
enum { CONNECT_MS = 5000, READ = 1, WRITE = 4 /* EPOLLIN, EPOLLOUT */ };

typedef struct posted {
    struct posted *next, **at; /* of those under way */
    ru_posts *of;
    ru_post post;
    CURL *handle;
    struct curl_slist *head;
    char *text; /* [cap] */
    int64_t cap;
    bool full;
    ru_post_answer answer;
} posted;

struct ru_posts {
    ru_loop *loop;
    rui_curl curl;
    CURLM *multi;
    posted *under_way;
    const char *sign;   /* whose signatures */
    bool s3;            /* those of S3 */
    rui_s3_login login; /* key NULL: no request is signed */
};

static void posted_free(posted *q)
{
    const rui_curl *c = &q->of->curl;
    if (q->handle != NULL) {
        c->easy_cleanup(q->handle);
    }
    c->slist_free_all(q->head);
    free(q->text);
    free(q);
}

static void take_out(posted *q)
{
    *q->at = q->next;
    if (q->next != NULL) {
        q->next->at = q->at;
    }
    (void)q->of->curl.multi_remove_handle(q->of->multi, q->handle);
}

/* -- libcurl and the loop ----------------------------------------------------------------------
 */

/* Requests that have ended. Their owners may send more meanwhile. */
static void gather(ru_posts *p)
{
    CURLMsg *m;
    int left;
    while ((m = p->curl.multi_info_read(p->multi, &left)) != NULL) {
        if (m->msg != CURLMSG_DONE) {
            continue;
        }
        CURL *h = m->easy_handle;
        CURLcode rc = m->data.result;
        posted *q = p->under_way;
        while (q != NULL && q->handle != h) {
            q = q->next;
        }
        RU_CHECK(q != NULL);
        if (rc == CURLE_OK) {
            (void)p->curl.easy_getinfo(h, CURLINFO_RESPONSE_CODE, &q->answer.status);
        }
        q->answer.why = q->full                          ? "its answer is too large"
                        : rc == CURLE_OPERATION_TIMEDOUT ? "it does not answer in time"
                                                         : p->curl.easy_strerror(rc);
        take_out(q);
        q->answer.text = q->text != NULL ? q->text : "";
        q->post.done(q->post.self, &q->answer);
        posted_free(q);
    }
}

static void act(ru_posts *p, curl_socket_t fd, int what)
{
    int running;
    (void)p->curl.multi_socket_action(p->multi, fd, what, &running);
    gather(p);
}

static void on_fd(void *self, int fd, uint32_t events, ru_time now)
{
    int what = ((events & READ) != 0 ? CURL_CSELECT_IN : 0) |
               ((events & WRITE) != 0 ? CURL_CSELECT_OUT : 0);
    (void)now;
    act(self, fd, what != 0 ? what : CURL_CSELECT_ERR);
}

static void on_time(void *self, uint32_t what, ru_time now)
{
    (void)what;
    (void)now;
    act(self, CURL_SOCKET_TIMEOUT, 0);
}

static int want_fd(CURL *h, curl_socket_t fd, int what, void *self, void *mine)
{
    ru_posts *p = self;
    ru_err err;
    (void)h;
    (void)mine;
    if (what == CURL_POLL_REMOVE) {
        ru_loop_fd_off(p->loop, fd);
        return 0;
    }
    uint32_t events = ((what & CURL_POLL_IN) != 0 ? (uint32_t)READ : 0) |
                      ((what & CURL_POLL_OUT) != 0 ? (uint32_t)WRITE : 0);
    return ru_loop_fd(p->loop, fd, events, on_fd, p, &err) == RU_OK ? 0 : -1;
}

static int want_time(CURLM *multi, long ms, void *self)
{
    ru_posts *p = self;
    (void)multi;
    if (ms < 0) {
        ru_loop_timer_off(p->loop, on_time, p, 0);
    } else {
        ru_loop_timer(p->loop, on_time, p, 0, ru_time_after(ru_clock_now(), ms * 1000000));
    }
    return 0;
}

/* -- one request -------------------------------------------------------------------------------
 */

static void take_field(const char *line, size_t size, const char *name, char *into)
{
    size_t head = name != NULL ? strlen(name) : 0;
    if (name != NULL && size > head && line[head] == ':' && strncasecmp(line, name, head) == 0) {
        ru_str value = ru_str_trim(ru_str_n(line + head + 1, (int64_t)(size - head - 1)));
        (void)snprintf(into, RU_POST_NOTE_BYTES, "%.*s", (int)value.n, value.p);
    }
}

static size_t on_head(char *line, size_t one, size_t n, void *self)
{
    posted *q = self;
    take_field(line, one * n, q->post.note, q->answer.note);
    take_field(line, one * n, q->post.also, q->answer.also);
    return one * n;
}

static size_t on_body(char *data, size_t one, size_t count, void *self)
{
    posted *q = self;
    int64_t n = (int64_t)(one * count), have = q->answer.n;
    int64_t most = q->post.answer_max_bytes != 0 ? q->post.answer_max_bytes : ANSWER_BYTES;
    if (n > most - have) {
        q->full = true;
        return 0; /* ends the request */
    }
    if (have + n + 1 > q->cap) {
        int64_t cap = have + n + 1 > 2 * q->cap ? have + n + 1 : 2 * q->cap;
        char *more = realloc(q->text, (size_t)cap);
        if (more == NULL) {
            return 0;
        }
        q->text = more;
        q->cap = cap;
    }
    memcpy(q->text + have, data, (size_t)n);
    q->text[have + n] = '\0';
    q->answer.n += n;
    return (size_t)n;
}

/* One more line of its head, "NAMEvalue", of any length. */
static bool put_line(posted *q, const char *name, const char *value)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    const char *line = ru_arena_printf(&a, "%s%s", name, value);
    struct curl_slist *more = line != NULL ? q->of->curl.slist_append(q->head, line) : NULL;
    ru_arena_fini(&a);
    q->head = more != NULL ? more : q->head;
    return more != NULL;
}

static bool put_hash(posted *q)
{
    char hash[RU_SECRET_TEXT];
    ru_sha256_text(q->post.body, q->post.body_bytes, hash);
    return put_line(q, "x-amz-content-sha256: ", hash);
}

static bool put_lines(posted *q)
{
    const char *session = q->of->login.session;
    return (q->post.type == NULL || put_line(q, "Content-Type: ", q->post.type)) &&
           (!q->of->s3 || put_hash(q)) &&
           /* No wait for "100 Continue"; for requests that are signed, see rui_curl_sign. */
           (q->of->login.key != NULL || put_line(q, "Expect:", "")) &&
           (q->post.token == NULL || put_line(q, "Authorization: Bearer ", q->post.token)) &&
           (session == NULL || put_line(q, "X-Amz-Security-Token: ", session));
}

static void put_options(posted *q)
{
    const rui_curl *c = &q->of->curl;
    CURL *h = q->handle;
    const char *method = q->post.method;
    rui_curl_request(c, h, q->post.url, q->head, rui_address_authority(ru_conf_env, q->of->s3));
    if (method == NULL || strcmp(method, "PUT") == 0) {
        (void)c->easy_setopt(h, CURLOPT_POST, 1L);
        (void)c->easy_setopt(h, CURLOPT_POSTFIELDS, q->post.body);
        (void)c->easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->post.body_bytes);
    }
    if (method != NULL && strcmp(method, "GET") != 0) {
        (void)c->easy_setopt(h, CURLOPT_CUSTOMREQUEST, method);
    }
    if (q->post.direct) {
        (void)c->easy_setopt(h, CURLOPT_PROXY, "");
    }
    (void)c->easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    (void)c->easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)q->post.patience_ms);
    (void)c->easy_setopt(h, CURLOPT_HEADERFUNCTION, on_head);
    (void)c->easy_setopt(h, CURLOPT_HEADERDATA, q);
    (void)c->easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    (void)c->easy_setopt(h, CURLOPT_WRITEDATA, q);
}

ru_status ru_posts_send(ru_posts *p, const ru_post *post, ru_err *err)
{
    posted *q = calloc(1, sizeof *q);
    if (q == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a request");
    }
    q->of = p;
    q->post = *post;
    q->handle = p->curl.easy_init();
    if (q->handle == NULL || !put_lines(q)) {
        posted_free(q);
        return RU_FAIL(err, RU_E_MEM, "no memory for a request");
    }
    put_options(q);
    ru_status st = rui_curl_sign(&p->curl, q->handle, &p->login, p->sign, err);
    if (st != RU_OK) {
        posted_free(q);
        return st;
    }
    if (p->curl.multi_add_handle(p->multi, q->handle) != CURLM_OK) {
        posted_free(q);
        return RU_FAIL(err, RU_E_MEM, "no memory for a request");
    }
    q->next = p->under_way;
    q->at = &p->under_way;
    if (q->next != NULL) {
        q->next->at = &q->next;
    }
    p->under_way = q;
    return RU_OK;
}

static ru_status log_in(ru_posts *p, const char *sign, ru_arena *arena, ru_err *err)
{
    RU_TRY(rui_s3_login_find(ru_conf_env, arena, &p->login, err));
    if (p->login.key == NULL) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "requests to %s need a login; set AWS_ACCESS_KEY_ID and "
                       "AWS_SECRET_ACCESS_KEY",
                       sign);
    }
    p->s3 = strcmp(sign, "s3") == 0;
    return RU_OK;
}

ru_status ru_posts_open(ru_loop *loop, const char *sign, ru_arena *arena, ru_posts **out,
                        ru_err *err)
{
    ru_posts *p = RU_NEW(arena, ru_posts, 1);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for requests");
    }
    *p = (ru_posts){.loop = loop, .sign = sign};
    RU_TRY(rui_curl_load(&p->curl, err));
    RU_TRY(sign != NULL ? log_in(p, sign, arena, err) : RU_OK);
    p->multi = p->curl.multi_init();
    if (p->multi == NULL ||
        p->curl.multi_setopt(p->multi, CURLMOPT_SOCKETFUNCTION, want_fd) != CURLM_OK ||
        p->curl.multi_setopt(p->multi, CURLMOPT_SOCKETDATA, p) != CURLM_OK ||
        p->curl.multi_setopt(p->multi, CURLMOPT_TIMERFUNCTION, want_time) != CURLM_OK ||
        p->curl.multi_setopt(p->multi, CURLMOPT_TIMERDATA, p) != CURLM_OK) {
        return RU_FAIL(err, RU_E_MEM, "no memory for requests");
    }
    *out = p;
    return RU_OK;
}

void ru_posts_close(ru_posts *p)
{
    if (p == NULL) {
        return;
    }
    while (p->under_way != NULL) {
        posted *q = p->under_way;
        take_out(q);
        posted_free(q);
    }
    (void)p->curl.multi_cleanup(p->multi);
    ru_loop_timer_off(p->loop, on_time, p, 0);
}

#else

ru_status ru_posts_open(ru_loop *loop, const char *sign, ru_arena *arena, ru_posts **out,
                        ru_err *err)
{
    (void)loop, (void)sign, (void)arena, (void)out;
    return rui_curl_none(err);
}

void ru_posts_close(ru_posts *p)
{
    (void)p;
}

ru_status ru_posts_send(ru_posts *p, const ru_post *post, ru_err *err)
{
    (void)p, (void)post;
    return rui_curl_none(err);
}

#endif
