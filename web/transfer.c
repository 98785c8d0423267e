/* One request for a range: what is asked, where its bytes go, what its end means. */
#include "web/objects_impl.h"

#include <stdio.h>
#include <string.h>

#ifdef RU_HAS_CURL

enum {
    CONNECT_MS = 10000,
    SLOW_BYTES = 256, /* a second: less is a request that stands still */
    BUFFER_BYTES = 64 << 10,
    BODY_MAX = 64 << 10, /* of an answer without the bytes; more ends the request */
    REDIRECTS_MAX = 5,
};

static size_t on_head(char *line, size_t one, size_t n, void *self)
{
    rui_transfer *t = self;
    rui_answer_line(&t->answer, line, (int64_t)(one * n));
    return one * n;
}

static void judge(rui_transfer *t)
{
    ru_object *b = t->object;
    const rui_asked q = {.name = b->address.name,
                         .s3 = b->address.s3,
                         .login = t->of->login.key != NULL,
                         .token = t->of->opt.token != NULL,
                         .offset = t->piece->offset + t->got_before,
                         .size_bytes = t->piece->size_bytes - t->got_before,
                         .version = &b->version};
    t->judged = true;
    t->verdict = rui_answer_judge(&t->answer, &q, &t->err);
    if (t->verdict == RUI_TAKE) {
        b->version = b->version.size_bytes < 0 ? t->answer.version : b->version;
        t->want = t->answer.last >= 0 ? t->answer.last + 1 - t->piece->offset : 0;
    }
}

/* 0 ends the request. */
static size_t on_body(char *data, size_t one, size_t count, void *self)
{
    rui_transfer *t = self;
    int64_t n = (int64_t)(one * count);
    if (t->answer.status == 206 || t->answer.status == 200) {
        if (!t->judged) {
            judge(t);
        }
        if (t->verdict != RUI_TAKE || n > t->want - t->got) {
            t->over = t->verdict == RUI_TAKE;
            return 0;
        }
        memcpy(t->piece->into + t->got, data, (size_t)n);
        t->got += n;
        return (size_t)n;
    }
    int64_t room = RUI_BODY_BYTES - t->n_body, part = n < room ? n : room;
    memcpy(t->body + t->n_body, data, (size_t)part);
    t->n_body += part;
    t->n_dropped += n - part;
    return t->n_dropped > BODY_MAX ? 0 : (size_t)n;
}

static ru_status put_login(const rui_transfer *t, CURL *h, ru_err *err)
{
    const ru_objects *o = t->of;
    const rui_curl *c = &o->curl;
    if (t->object->address.s3) {
        return rui_curl_sign(c, h, &o->login, "s3", err);
    }
    bool ok = o->opt.token != NULL /* not sent on to another host */
                  ? c->easy_setopt(h, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER) == CURLE_OK &&
                        c->easy_setopt(h, CURLOPT_XOAUTH2_BEARER, o->opt.token) == CURLE_OK
                  : c->easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL) == CURLE_OK;
    return ok ? RU_OK : RU_FAIL(err, RU_E_UNSUPPORTED, "libcurl cannot log in");
}

static void put_address(const rui_transfer *t, CURL *h)
{
    const ru_object *b = t->object;
    const rui_curl *c = &t->of->curl;
    bool tls = strncmp(b->address.url, "https://", 8) == 0;
    rui_curl_request(c, h, b->address.url, b->head, b->authority);
    (void)c->easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
    /* A signature is for one host; the error says in which region the bucket is. */
    (void)c->easy_setopt(h, CURLOPT_FOLLOWLOCATION, b->address.s3 ? 0L : 1L);
    (void)c->easy_setopt(h, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
}

ru_status rui_transfer_begin(rui_transfer *t, ru_err *err)
{
    const rui_curl *c = &t->of->curl;
    char range[64];
    if (t->handle == NULL) {
        t->handle = c->easy_init();
    }
    CURL *h = t->handle;
    if (h == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a request");
    }
    c->easy_reset(h);
    put_address(t, h);
    RU_TRY(put_login(t, h, err));
    int64_t first = t->piece->offset + t->got, last = t->piece->offset + t->piece->size_bytes - 1;
    (void)snprintf(range, sizeof range, "%lld-%lld", (long long)first, (long long)last);
    (void)c->easy_setopt(h, CURLOPT_RANGE, range);
    (void)c->easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    (void)c->easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    (void)c->easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)t->of->opt.stall_s);
    (void)c->easy_setopt(h, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    (void)c->easy_setopt(h, CURLOPT_HEADERFUNCTION, on_head);
    (void)c->easy_setopt(h, CURLOPT_HEADERDATA, t);
    (void)c->easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    (void)c->easy_setopt(h, CURLOPT_WRITEDATA, t);
    (void)c->easy_setopt(h, CURLOPT_PRIVATE, t);
    rui_answer_begin(&t->answer);
    t->got_before = t->got;
    t->judged = t->over = false;
    t->n_body = t->n_dropped = 0;
    t->err = (ru_err){0};
    return RU_OK;
}

/* The connection or the address is at fault, not the answer. */
static rui_verdict broken(rui_transfer *t, CURLcode rc)
{
    const char *name = t->object->address.name, *why = t->of->curl.easy_strerror(rc);
    if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE) {
        (void)RU_FAIL(&t->err, RU_E_PERM,
                      "%s: the server's certificate is not trusted (%s); name the file of its "
                      "authority in SSL_CERT_FILE",
                      name, why);
        return RUI_STOP;
    }
    bool away = t->answer.status >= 300 && t->answer.status < 400; /* else: no HTTP came */
    if (rc == CURLE_URL_MALFORMAT || (rc == CURLE_UNSUPPORTED_PROTOCOL && away)) {
        (void)RU_FAIL(&t->err, RU_E_CONFIG, "%s is no address that can be read: %s", name, why);
        return RUI_STOP;
    }
    if (rc == CURLE_TOO_MANY_REDIRECTS || rc == CURLE_OUT_OF_MEMORY) {
        (void)RU_FAIL(&t->err, rc == CURLE_OUT_OF_MEMORY ? RU_E_MEM : RU_E_IO, "%s: %s", name, why);
        return RUI_STOP;
    }
    (void)RU_FAIL(&t->err, RU_E_PEER, "%s: %s", name,
                  rc == CURLE_OPERATION_TIMEDOUT ? "the server does not answer in time"
                  : rc == CURLE_OK               ? "the answer ends early"
                                                 : why);
    return RUI_AGAIN;
}

rui_verdict rui_transfer_end(rui_transfer *t, CURLcode rc)
{
    bool whole = rc == CURLE_OK || (rc == CURLE_WRITE_ERROR && t->n_dropped > BODY_MAX);
    if (!t->judged && whole) {
        rui_answer_body(&t->answer, t->body, t->n_body);
        judge(t);
    }
    if (t->judged && t->verdict != RUI_TAKE) {
        return t->verdict;
    }
    if (t->over) { /* its head was wrong: so may its bytes be */
        t->got = t->got_before;
        (void)RU_FAIL(&t->err, RU_E_PEER, "%s: the server sends more than was asked for",
                      t->object->address.name);
        return RUI_AGAIN;
    }
    int64_t size = t->piece->size_bytes, left = t->object->version.size_bytes - t->piece->offset;
    if (!t->judged || t->got < t->want || t->got < (left < size ? left : size)) {
        return broken(t, rc);
    }
    return RUI_TAKE;
}

#endif
