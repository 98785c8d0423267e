#include "web/bucket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/str.h"
#include "env/clock.h"
#include "env/file/secret.h"
#include "web/address.h"
#include "web/answer.h"
#include "web/curl.h"

#ifdef RU_HAS_CURL

enum {
    PART_BYTES = 16 << 20,
    PARTS_MAX = 10000, /* of an upload; a store's own bound */
    PATIENCE_MS = 120000,
    TELL_MS = 5000,
    CONNECT_MS = 10000,
    SLOW_BYTES = 256,
    STALL_S = 10,
    TEXT_MAX = 16 << 20,
    ID_BYTES = 1024,
    PART_NS = 100000000, /* of a pause */
    OBJECTS_MAX = 1 << 26,
};

struct ru_bucket {
    rui_curl curl;
    CURL *handle;
    ru_sha256 *sha;
    const uint8_t *next;    /* [n_next] of an upload: it is hashed while the part before is sent, */
    int64_t n_next, hashed; /* so far */
    ru_arena arena;
    rui_s3_login login;
    const char *base, *prefix, *name; /* name: for messages */
    const char *authority;
    ru_rng rng;
    ru_arena scratch; /* of a request */
    ru_arena_mark empty;
    ru_time heard_at;         /* since then nothing came that helps */
    bool told;                /* ... and a line says so */
    bool (*over)(void *self); /* NULL: never */
    void *over_self;
};

typedef struct request {
    const char *method, *key; /* NULL: of the bucket */
    const char *query;        /* encoded, in the order of names; NULL: none */
    const uint8_t *body;      /* [n] */
    int64_t n;
    const char *hash; /* of the body; NULL: not known yet */
} request;

typedef struct reply {
    rui_answer answer;
    ru_text text;
    const request *q;
    int64_t sent;
    curl_off_t moved; /* bytes */
    ru_bucket *of;
} reply;

static ru_status no_memory(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for requests to a store");
}

/* -- one request --------------------------------------------------------------------------------
 */

static size_t on_head(char *line, size_t one, size_t n, void *self)
{
    reply *r = self;
    rui_answer_line(&r->answer, line, (int64_t)(one * n));
    return one * n;
}

static size_t on_body(char *data, size_t one, size_t n, void *self)
{
    reply *r = self;
    ru_text_put_n(&r->text, data, (int64_t)(one * n));
    return r->text.cut || r->text.n > TEXT_MAX ? 0 : one * n;
}

/* So much more of the next part: the line is busy meanwhile. */
static void hash_next(ru_bucket *b, int64_t n)
{
    int64_t left = b->n_next - b->hashed;
    n = n < left ? n : left;
    if (n > 0) {
        ru_sha256_put(b->sha, b->next + b->hashed, n);
        b->hashed += n;
    }
}

static size_t on_read(char *into, size_t one, size_t n, void *self)
{
    reply *r = self;
    int64_t left = r->q->n - r->sent, most = (int64_t)(one * n), part = left < most ? left : most;
    if (part > 0) {
        memcpy(into, r->q->body + r->sent, (size_t)part);
    }
    r->sent += part;
    hash_next(r->of, part);
    return (size_t)part;
}

/* Whoever waits for the store learns it, once until it answers: it has been silent, or will be
 * before it is asked again. */
static void tell(ru_bucket *b, int64_t more_ns)
{
    int64_t silent_ns = ru_time_since(ru_clock_now(), b->heard_at) + more_ns;
    if (!b->told && silent_ns >= (int64_t)TELL_MS * 1000000) {
        b->told = true;
        ru_log(RU_LOG_WARN, "store", "store_waits",
               "waits for %s, which has given no good answer yet; it is asked for up to %d s",
               b->name, PATIENCE_MS / 1000);
    }
}

static bool is_over(const ru_bucket *b)
{
    return b->over != NULL && b->over(b->over_self);
}

/* False: it was over before. */
static bool pause_for(const ru_bucket *b, int64_t ns)
{
    for (int64_t part; ns > 0 && !is_over(b); ns -= part) {
        part = ns < PART_NS ? ns : PART_NS;
        ru_clock_pause(part);
    }
    return ns <= 0;
}

/* libcurl calls it about once a second. */
static int on_progress(void *self, curl_off_t all_down, curl_off_t down, curl_off_t all_up,
                       curl_off_t up)
{
    (void)all_down;
    (void)all_up;
    reply *r = self;
    curl_off_t moved = up + (r->answer.status < 300 ? down : 0); /* not of refusals */
    if (moved > r->moved) {
        r->moved = moved;
        r->of->heard_at = ru_clock_now();
    }
    tell(r->of, 0);
    return is_over(r->of) ? 1 : 0;
}

static const char *url_of(ru_bucket *b, const request *q)
{
    ru_text t = ru_text_arena(&b->scratch);
    ru_text_putf(&t, "%s/", b->base);
    if (q->key != NULL) {
        rui_address_put(&t, b->prefix, true);
        rui_address_put(&t, q->key, true);
    }
    if (q->query != NULL) {
        ru_text_putf(&t, "?%s", q->query);
    }
    return t.cut ? NULL : t.p;
}

static ru_status head_of(ru_bucket *b, const request *q, struct curl_slist **head, ru_err *err)
{
    char hash[RU_SECRET_TEXT];
    const char *trace = rui_trace_line(&b->scratch);
    if (q->hash == NULL) {
        ru_sha256_text(q->body, q->n, hash);
    }
    RU_TRY(rui_curl_line(
        &b->curl, head,
        ru_arena_printf(&b->scratch, "x-amz-content-sha256: %s", q->hash != NULL ? q->hash : hash),
        err));
    RU_TRY(b->login.key == NULL ? rui_curl_line(&b->curl, head, "Expect:", err) : RU_OK);
    RU_TRY(trace != NULL ? rui_curl_line(&b->curl, head, trace, err) : RU_OK);
    return b->login.session == NULL
               ? RU_OK
               : rui_curl_line(
                     &b->curl, head,
                     ru_arena_printf(&b->scratch, "x-amz-security-token: %s", b->login.session),
                     err);
}

static void set_up(ru_bucket *b, const request *q, reply *r, const char *url,
                   struct curl_slist *head)
{
    CURL *h = b->handle;
    const rui_curl *c = &b->curl;
    bool puts = strcmp(q->method, "PUT") == 0, posts = strcmp(q->method, "POST") == 0;
    rui_curl_request(c, h, url, head, b->authority);
    (void)c->easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    (void)c->easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    (void)c->easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    (void)c->easy_setopt(h, CURLOPT_HEADERFUNCTION, on_head);
    (void)c->easy_setopt(h, CURLOPT_HEADERDATA, r);
    (void)c->easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    (void)c->easy_setopt(h, CURLOPT_WRITEDATA, r);
    (void)c->easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    (void)c->easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)c->easy_setopt(h, CURLOPT_XFERINFODATA, r);
    if (puts) {
        (void)c->easy_setopt(h, CURLOPT_UPLOAD, 1L);
        (void)c->easy_setopt(h, CURLOPT_READFUNCTION, on_read);
        (void)c->easy_setopt(h, CURLOPT_READDATA, r);
        (void)c->easy_setopt(h, CURLOPT_INFILESIZE_LARGE, (curl_off_t)q->n);
    } else if (posts) {
        (void)c->easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->n);
        (void)c->easy_setopt(h, CURLOPT_POSTFIELDS, q->n > 0 ? (const char *)q->body : "");
    } else if (strcmp(q->method, "DELETE") == 0) {
        (void)c->easy_setopt(h, CURLOPT_CUSTOMREQUEST, q->method);
    }
}

/* Once. AGAIN and STOP: `err` says why. */
static rui_verdict ask_once(ru_bucket *b, const request *q, reply *r, ru_err *err)
{
    b->curl.easy_reset(b->handle);
    ru_arena_rewind(&b->scratch, b->empty);
    *r = (reply){.text = ru_text_arena(&b->scratch), .q = q, .of = b};
    rui_answer_begin(&r->answer);
    struct curl_slist *head = NULL;
    const char *url = url_of(b, q);
    ru_status st = url != NULL ? head_of(b, q, &head, err) : no_memory(err);
    st = st == RU_OK ? rui_curl_sign(&b->curl, b->handle, &b->login, "s3", err) : st;
    if (st != RU_OK) {
        b->curl.slist_free_all(head);
        return RUI_STOP;
    }
    set_up(b, q, r, url, head);
    CURLcode rc = b->curl.easy_perform(b->handle);
    b->curl.slist_free_all(head);
    const rui_asked asked = {
        .name = b->name, .s3 = true, .login = b->login.key != NULL, .version = NULL};
    if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE) {
        (void)RU_FAIL(err, RU_E_PERM,
                      "%s: the server's certificate is not trusted (%s); name the file of its "
                      "authority in SSL_CERT_FILE",
                      b->name, b->curl.easy_strerror(rc));
        return RUI_STOP;
    }
    if (rc != CURLE_OK && r->answer.status < 300) {
        (void)RU_FAIL(err, RU_E_PEER, "%s: %s", b->name,
                      rc == CURLE_OPERATION_TIMEDOUT ? "the server does not answer in time"
                                                     : b->curl.easy_strerror(rc));
        return RUI_AGAIN;
    }
    rui_answer_body(&r->answer, r->text.p, r->text.n);
    return rui_answer_written(&r->answer, &asked, err);
}

/* Until it is done, or nobody answers well for too long. */
static ru_status ask(ru_bucket *b, const request *q, reply *r, ru_err *err)
{
    ru_time since = b->heard_at = ru_clock_now();
    for (uint32_t tries = 0;; tries++) {
        ru_err why = {0};
        rui_verdict v = ask_once(b, q, r, &why);
        if (v == RUI_TAKE) {
            b->told = false;
            return RU_OK;
        }
        int64_t wait = rui_answer_wait_ns(tries, r->answer.retry_after_s, &b->rng);
        int64_t past = ru_time_since(ru_clock_now(), since);
        if (v == RUI_STOP || past + wait > (int64_t)PATIENCE_MS * 1000000) {
            return v == RUI_STOP ? RU_FAIL(err, why.status, "%s", why.text)
                                 : RU_FAIL(err, why.status, "no good answer for %lld s: %s",
                                           (long long)((past + 999999999) / 1000000000), why.text);
        }
        tell(b, wait);
        if (!pause_for(b, wait)) {
            return RU_FAIL(err, RU_E_CANCELLED, "%s: nobody waits for it any more", b->name);
        }
    }
}

/* -- texts of the store --------------------------------------------------------------------------
 */

/* The text between <name> and </name> from *at on, which moves behind it. False: there is none. */
static bool element(ru_str *at, const char *name, ru_str *out)
{
    char open[40], close[40];
    (void)snprintf(open, sizeof open, "<%s>", name);
    (void)snprintf(close, sizeof close, "</%s>", name);
    int64_t i = ru_str_find(*at, open);
    if (i < 0) {
        return false;
    }
    ru_str rest = ru_str_from(*at, i + (int64_t)strlen(open));
    int64_t n = ru_str_find(rest, close);
    if (n < 0) {
        return false;
    }
    *out = ru_str_n(rest.p, n);
    *at = ru_str_from(rest, n + (int64_t)strlen(close));
    return true;
}

/* The character of a reference such as &#39; or &#xE4; at the start of `s`, as UTF-8: its bytes in
 * `out`. Gives the length of the reference; 0: there is none. */
static int64_t reference(ru_str s, char out[4], int64_t *n)
{
    uint64_t c;
    int64_t end = ru_str_find(s, ";");
    bool hex = ru_str_starts(s, "&#x");
    if (!ru_str_starts(s, "&#") || end < 0 || end > 10) {
        return 0;
    }
    char text[16] = "0x";
    (void)snprintf(text + (hex ? 2 : 0), 12, "%.*s", (int)end - (hex ? 3 : 2), s.p + (hex ? 3 : 2));
    if (!ru_str_u64(ru_str_c(text), &c) || c == 0 || c > 0x10ffff) {
        return 0;
    }
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    *n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int64_t k = *n - 1; k > 0; k--, c >>= 6) {
        out[k] = (char)(0x80 | (c & 0x3f));
    }
    out[0] = (char)(first[*n] | c);
    return end + 1;
}

/* Without the escapes of XML: its five, and numbers. */
static char *plain(ru_str s, ru_arena *arena)
{
    static const struct {
        const char *from;
        char to;
    } escapes[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    char *out = ru_arena_strn(arena, s.p, s.n);
    int64_t n = 0;
    for (int64_t i = 0, more; out != NULL && i < s.n; n += more) {
        const ru_str rest = ru_str_from(s, i);
        uint32_t k = 0;
        while (k < RU_ARRAY_LEN(escapes) && !ru_str_starts(rest, escapes[k].from)) {
            k++;
        }
        int64_t taken = k < RU_ARRAY_LEN(escapes) ? (int64_t)strlen(escapes[k].from)
                                                  : reference(rest, out + n, &more);
        if (taken == 0 || k < RU_ARRAY_LEN(escapes)) {
            out[n] = taken > 0 ? escapes[k].to : s.p[i];
            more = 1;
        }
        i += taken > 0 ? taken : 1;
    }
    if (out != NULL) {
        out[n] = '\0';
    }
    return out;
}

/* -- put -----------------------------------------------------------------------------------------
 */

/* `query` with the id of an upload behind it. */
static const char *with_id(ru_arena *arena, const char *query, const char *id)
{
    ru_text t = ru_text_arena(arena);
    ru_text_putf(&t, "%suploadId=", query);
    rui_address_put(&t, id, false);
    return t.cut ? NULL : t.p;
}

/* Of this part, which may be known in part; what follows in the object is hashed next. */
static void hash_of_part(ru_bucket *b, request *q, int64_t left, char hash[RU_SECRET_TEXT])
{
    if (b->next != q->body || b->n_next != q->n) { /* the first one */
        b->next = q->body;
        b->n_next = q->n;
        b->hashed = 0;
        ru_sha256_take(b->sha, hash);
    }
    hash_next(b, q->n);
    ru_sha256_take(b->sha, hash);
    q->hash = hash;
    b->next = q->body + q->n;
    b->n_next = left - q->n < q->n ? left - q->n : q->n;
    b->hashed = 0;
}

static ru_status put_parts(ru_bucket *b, const char *key, const uint8_t *data, int64_t size,
                           const char *id, ru_arena *arena, ru_err *err)
{
    ru_text list = ru_text_arena(arena);
    char hash[RU_SECRET_TEXT];
    int64_t part = (int64_t)PART_BYTES;
    part = part > size / PARTS_MAX + 1 ? part : size / PARTS_MAX + 1;
    ru_text_put(&list, "<CompleteMultipartUpload>");
    for (int64_t at = 0, k = 1; at < size; at += part, k++) {
        char number[40];
        (void)snprintf(number, sizeof number, "partNumber=%lld&", (long long)k);
        request q = {.method = "PUT", .key = key, .query = with_id(arena, number, id)};
        reply r;
        q.body = data + at;
        q.n = size - at < part ? size - at : part;
        hash_of_part(b, &q, size - at, hash);
        RU_TRY(q.query != NULL ? ask(b, &q, &r, err) : no_memory(err));
        ru_text_putf(&list, "<Part><PartNumber>%lld</PartNumber><ETag>%s</ETag></Part>",
                     (long long)k, r.answer.version.tag);
    }
    ru_text_put(&list, "</CompleteMultipartUpload>");
    request done = {.method = "POST", .key = key, .query = with_id(arena, "", id)};
    reply r;
    done.body = (const uint8_t *)list.p;
    done.n = list.n;
    return list.cut || done.query == NULL ? no_memory(err) : ask(b, &done, &r, err);
}

static ru_status put_large(ru_bucket *b, const char *key, const void *data, int64_t size,
                           ru_arena *arena, ru_err *err)
{
    reply r;
    ru_str id, at;
    const request begin = {.method = "POST", .key = key, .query = "uploads="};
    RU_TRY(ask(b, &begin, &r, err));
    at = ru_str_n(r.text.p, r.text.n);
    const char *upload = element(&at, "UploadId", &id) && id.n < ID_BYTES ? plain(id, arena) : NULL;
    if (upload == NULL) {
        return RU_FAIL(err, RU_E_IO, "%s: the server begins an upload without a name", b->name);
    }
    ru_status st = put_parts(b, key, data, size, upload, arena, err);
    b->next = NULL;
    b->n_next = b->hashed = 0;
    if (st != RU_OK) { /* its parts would stay; what cannot be removed now is swept later */
        ru_err ignored = {0};
        const request away = {.method = "DELETE", .key = key, .query = with_id(arena, "", upload)};
        (void)(away.query == NULL || ask_once(b, &away, &r, &ignored));
    }
    return st;
}

ru_status ru_bucket_put(ru_bucket *b, const char *key, const void *data, int64_t size_bytes,
                        ru_err *err)
{
    reply r;
    if (size_bytes > (int64_t)PART_BYTES) {
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_status st = put_large(b, key, data, size_bytes, &arena, err);
        ru_arena_fini(&arena);
        return st;
    }
    const request q = {.method = "PUT", .key = key, .body = data, .n = size_bytes};
    return ask(b, &q, &r, err);
}

ru_status ru_bucket_remove(ru_bucket *b, const char *key, ru_err *err)
{
    reply r;
    const request q = {.method = "DELETE", .key = key};
    ru_status st = ask(b, &q, &r, err);
    return st == RU_E_MISSING && strcmp(r.answer.code, "NoSuchBucket") != 0 ? RU_OK : st;
}

/* -- list ----------------------------------------------------------------------------------------
 */

/* The text of an element of `in`; "": there is none. NULL: no memory. */
static const char *text_in(ru_str in, const char *name, ru_arena *arena)
{
    ru_str text;
    return element(&in, name, &text) ? plain(text, arena) : "";
}

/* One more place; NULL: no memory, or there are too many. */
static ru_bucket_object *more(ru_arena *arena, ru_bucket_object **all, uint32_t *n, uint32_t *cap)
{
    if (*n == *cap) {
        uint32_t twice = *cap > 0 ? 2 * *cap : 64;
        ru_bucket_object *list =
            twice <= OBJECTS_MAX ? RU_NEW(arena, ru_bucket_object, twice) : NULL;
        if (list == NULL) {
            return NULL;
        }
        if (*n > 0) {
            memcpy(list, *all, *n * sizeof *list);
        }
        *all = list;
        *cap = twice;
    }
    return &(*all)[(*n)++];
}

static ru_status take_page(const ru_bucket *b, ru_str page, ru_arena *arena, ru_bucket_object **all,
                           uint32_t *n, uint32_t *cap, ru_err *err)
{
    ru_str object;
    size_t head = strlen(b->prefix);
    while (element(&page, "Contents", &object)) {
        const char *key = text_in(object, "Key", arena), *size = text_in(object, "Size", arena);
        ru_bucket_object *o = more(arena, all, n, cap);
        if (key == NULL || size == NULL || o == NULL) {
            return no_memory(err);
        }
        *o = (ru_bucket_object){.tag = text_in(object, "ETag", arena),
                                .changed = text_in(object, "LastModified", arena)};
        if (o->tag == NULL || o->changed == NULL) {
            return no_memory(err);
        }
        if (strncmp(key, b->prefix, head) != 0 || !ru_str_i64(ru_str_c(size), &o->size_bytes) ||
            o->size_bytes < 0) {
            return RU_FAIL(err, RU_E_IO, "%s: the server's list of objects is damaged", b->name);
        }
        o->key = key + head;
    }
    return RU_OK;
}

/* In the order of names, as signatures need it. */
static const char *list_query(const ru_bucket *b, bool folders, const char *token, ru_arena *arena)
{
    ru_text query = ru_text_arena(arena);
    if (token != NULL) {
        ru_text_put(&query, "continuation-token=");
        rui_address_put(&query, token, false);
        ru_text_put(&query, "&");
    }
    ru_text_put(&query, folders ? "" : "delimiter=%2F&");
    ru_text_put(&query, "list-type=2&prefix=");
    rui_address_put(&query, b->prefix, false);
    return query.cut ? NULL : query.p;
}

ru_status ru_bucket_list(ru_bucket *b, bool folders, ru_arena *arena, ru_bucket_object **out,
                         uint32_t *n, ru_err *err)
{
    uint32_t cap = 0;
    const char *token = NULL, *before = NULL; /* of a page before, at twice as many each time */
    *out = NULL;
    *n = 0;
    for (uint64_t page = 1; page == 1 || token[0] != '\0'; page++) {
        reply r;
        const request q = {.method = "GET", .query = list_query(b, folders, token, arena)};
        RU_TRY(q.query != NULL ? ask(b, &q, &r, err) : no_memory(err));
        const ru_str text = ru_str_n(r.text.p, r.text.n);
        RU_TRY(take_page(b, text, arena, out, n, &cap, err));
        token = text_in(text, "NextContinuationToken", arena);
        if (token == NULL) {
            return no_memory(err);
        }
        if (before != NULL && strcmp(token, before) == 0) {
            return RU_FAIL(err, RU_E_IO, "%s: the server's list of objects goes in a circle",
                           b->name);
        }
        before = (page & (page - 1)) == 0 ? token : before;
    }
    return RU_OK;
}

ru_status ru_bucket_sweep(ru_bucket *b, bool (*is)(const char *key), ru_err *err)
{
    reply r;
    ru_arena arena;
    ru_str upload, key, id;
    size_t head = strlen(b->prefix);
    ru_arena_init(&arena, 0);
    ru_text query = ru_text_arena(&arena);
    ru_text_put(&query, "prefix=");
    rui_address_put(&query, b->prefix, false);
    ru_text_put(&query, "&uploads=");
    const request q = {.method = "GET", .query = query.p};
    ru_status st = query.cut ? no_memory(err) : ask(b, &q, &r, err);
    const char *text = st == RU_OK ? ru_arena_strn(&arena, r.text.p, r.text.n) : NULL;
    ru_str at = ru_str_c(text);
    while (st == RU_OK && element(&at, "Upload", &upload)) {
        ru_str in = upload;
        char *name = element(&in, "Key", &key) ? plain(key, &arena) : NULL;
        in = upload;
        char *which = element(&in, "UploadId", &id) ? plain(id, &arena) : NULL;
        if (name != NULL && which != NULL && strncmp(name, b->prefix, head) == 0 &&
            is(name + head)) {
            const request away = {
                .method = "DELETE", .key = name + head, .query = with_id(&arena, "", which)};
            st = away.query != NULL ? ask(b, &away, &r, err) : no_memory(err);
            st = st == RU_E_MISSING ? RU_OK : st;
        }
    }
    ru_arena_fini(&arena);
    return st;
}

/* -- open ----------------------------------------------------------------------------------------
 */

static ru_status find(ru_bucket *b, const char *address, ru_err *err)
{
    const char *rest = strncmp(address, "s3://", 5) == 0 ? address + 5 : NULL;
    size_t n = rest != NULL ? strcspn(rest, "/") : 0;
    if (n == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "'%s': expected s3://BUCKET or s3://BUCKET/FOLDER",
                       address);
    }
    rui_address at;
    const char *any = ru_arena_printf(&b->arena, "s3://%.*s/x", (int)n, rest);
    const char *prefix = rest[n] == '/' ? rest + n + 1 : "";
    size_t end = strlen(prefix);
    while (end > 0 && prefix[end - 1] == '/') {
        end--;
    }
    b->prefix = ru_arena_printf(&b->arena, "%.*s%s", (int)end, prefix, end > 0 ? "/" : "");
    b->name = ru_arena_str(&b->arena, address);
    if (any == NULL || b->prefix == NULL || b->name == NULL) {
        return no_memory(err);
    }
    RU_TRY(rui_s3_login_find(ru_conf_env, &b->arena, &b->login, err));
    RU_TRY(rui_address_read(any, ru_conf_env, b->login.region, &b->arena, &at, err));
    b->base = ru_arena_strn(&b->arena, at.url, (int64_t)strlen(at.url) - 2);
    b->authority = rui_address_authority(ru_conf_env, true);
    return b->base != NULL ? RU_OK : no_memory(err);
}

ru_status ru_bucket_open(const char *address, ru_bucket **out, ru_err *err)
{
    ru_bucket *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return no_memory(err);
    }
    b->rng = ru_rng_from((uint64_t)ru_clock_now().ns, 0);
    ru_arena_init(&b->arena, 0);
    ru_arena_init(&b->scratch, 0);
    b->empty = ru_arena_mark_get(&b->scratch);
    ru_status st = rui_curl_load(&b->curl, err);
    st = st == RU_OK ? find(b, address, err) : st;
    b->handle = st == RU_OK ? b->curl.easy_init() : NULL;
    b->sha = ru_sha256_new();
    if (st == RU_OK && (b->handle == NULL || b->sha == NULL)) {
        st = no_memory(err);
    }
    if (st != RU_OK) {
        ru_bucket_close(b);
        return st;
    }
    *out = b;
    return RU_OK;
}

void ru_bucket_until(ru_bucket *b, bool (*over)(void *self), void *self)
{
    b->over = over;
    b->over_self = self;
}

void ru_bucket_close(ru_bucket *b)
{
    if (b == NULL) {
        return;
    }
    if (b->handle != NULL) {
        b->curl.easy_cleanup(b->handle);
    }
    ru_sha256_free(b->sha);
    ru_arena_fini(&b->scratch);
    ru_arena_fini(&b->arena);
    free(b);
}

#else

ru_status ru_bucket_open(const char *address, ru_bucket **out, ru_err *err)
{
    (void)address;
    (void)out;
    return rui_curl_none(err);
}

/* Without ru_bucket_open there is no bucket: nobody comes here. */
void ru_bucket_close(ru_bucket *b)
{
    RU_CHECK(b == NULL);
}
ru_status ru_bucket_put(ru_bucket *b, const char *key, const void *data, int64_t size_bytes,
                        ru_err *err)
{
    (void)key;
    (void)data;
    RU_CHECK(b == NULL && size_bytes >= 0);
    return rui_curl_none(err);
}
ru_status ru_bucket_list(ru_bucket *b, bool folders, ru_arena *arena, ru_bucket_object **out,
                         uint32_t *n, ru_err *err)
{
    (void)folders;
    (void)arena;
    (void)out;
    RU_CHECK(b == NULL && n != NULL);
    return rui_curl_none(err);
}
void ru_bucket_until(ru_bucket *b, bool (*over)(void *self), void *self)
{
    (void)self;
    RU_CHECK(b == NULL && over != NULL);
}
ru_status ru_bucket_remove(ru_bucket *b, const char *key, ru_err *err)
{
    (void)key;
    RU_CHECK(b == NULL);
    return rui_curl_none(err);
}
ru_status ru_bucket_sweep(ru_bucket *b, bool (*is)(const char *key), ru_err *err)
{
    (void)is;
    RU_CHECK(b == NULL);
    return rui_curl_none(err);
}

#endif
