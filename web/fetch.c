#include "web/fetch.h"

#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/str.h"
#include "web/address.h"
#include "web/curl.h"

#ifdef RU_HAS_CURL

enum { BYTES = 16 << 20, PATIENCE_MS = 10000 };

typedef struct page {
    char *p;
    int64_t n, max;
    bool full;
} page;

static size_t on_bytes(char *data, size_t one, size_t n, void *self)
{
    page *p = self;
    if (p->n + (int64_t)(one * n) > p->max) {
        p->full = true;
        return 0; /* ends the request */
    }
    memcpy(p->p + p->n, data, one * n);
    p->n += (int64_t)(one * n);
    return one * n;
}

typedef struct refusal {
    const char *error;
} refusal;

static const ru_conf_field refusal_fields[] = {RU_ROW(TEXT, refusal, error, NULL, "why")};
static const ru_conf_table refusal_table = RU_TABLE("answer", refusal, refusal_fields, NULL);

/* The server's own sentence instead of ours, if it has one. */
static ru_status refused(const ru_fetch *g, ru_status st, const page *p, ru_err *err)
{
    ru_arena scratch;
    ru_conf *c;
    ru_err ignored;
    refusal r;
    ru_arena_init(&scratch, 0);
    if (g->says && ru_conf_new(&refusal_table, &scratch, &c, &ignored) == RU_OK &&
        ru_conf_add_json(c, g->url, p->p, p->n, &ignored) == RU_OK &&
        ru_conf_apply(c, &r, &ignored) == RU_OK && r.error[0] != 0) {
        st = RU_FAIL(err, st, "%s", r.error);
    }
    ru_arena_fini(&scratch);
    return st;
}

/* Of an answer that came. */
static ru_status judge_code(const ru_fetch *g, long code, const page *p, ru_err *err)
{
    if (code == 401 || code == 403) {
        return RU_FAIL(err, RU_E_PERM,
                       "%s refuses the request (status %ld): the token is not its own", g->url,
                       code);
    }
    if (code == 404) {
        return RU_FAIL(err, RU_E_MISSING, "%s: there is no such page", g->url);
    }
    if (code == 429 || (code >= 502 && code <= 504)) {
        return RU_FAIL(err, RU_E_AGAIN, "%s is overloaded (status %ld); try again later", g->url,
                       code);
    }
    if (code != 200) {
        ru_status st = g->says && (code == 400 || code == 413) ? RU_E_USAGE : RU_E_IO;
        return RU_FAIL(err, st, "%s answers with status %ld: %.*s", g->url, code,
                       (int)(p->n < 200 ? p->n : 200), p->p);
    }
    return RU_OK;
}

static ru_status judge(const ru_fetch *g, const rui_curl *c, CURL *h, CURLcode rc, const page *p,
                       ru_err *err)
{
    long code = 0;
    (void)c->easy_getinfo(h, CURLINFO_RESPONSE_CODE, &code);
    if (p->full) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: the answer has more than %lld bytes", g->url,
                       (long long)p->max);
    }
    if (rc == CURLE_URL_MALFORMAT || rc == CURLE_UNSUPPORTED_PROTOCOL) {
        return RU_FAIL(err, RU_E_USAGE, "%s is not an address: %s", g->url, c->easy_strerror(rc));
    }
    if (rc != CURLE_OK) {
        return RU_FAIL(err, RU_E_PEER, "%s does not answer: %s", g->url, c->easy_strerror(rc));
    }
    ru_status st = judge_code(g, code, p, err);
    return st == RU_OK ? st : refused(g, st, p, err);
}

/* All lines of the head that are our own. *head is the caller's, also after an error. */
static ru_status put_head(const rui_curl *c, const ru_fetch *g, ru_arena *arena,
                          struct curl_slist **head, ru_err *err)
{
    const char *trace = rui_trace_line(arena);
    for (uint32_t k = 0; k < g->n_headers; k++) {
        RU_TRY(rui_curl_line(c, head, g->header[k], err));
    }
    if (g->token != NULL) {
        RU_TRY(rui_curl_line(c, head, ru_arena_printf(arena, "Authorization: Bearer %s", g->token),
                             err));
    }
    RU_TRY(trace != NULL ? rui_curl_line(c, head, trace, err) : RU_OK);
    return g->body != NULL
               ? rui_curl_line(c, head, ru_arena_printf(arena, "Content-Type: %s", g->type), err)
               : RU_OK;
}

static ru_status perform(const rui_curl *c, CURL *h, const struct curl_slist *head,
                         const ru_fetch *g, page *p, ru_err *err)
{
    long patience_ms = g->patience_ms != 0 ? (long)g->patience_ms : PATIENCE_MS;
    rui_curl_request(c, h, g->url, head, rui_address_authority(ru_conf_env, false));
    (void)c->easy_setopt(h, CURLOPT_TIMEOUT_MS, patience_ms);
    (void)c->easy_setopt(h, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)c->easy_setopt(h, CURLOPT_WRITEDATA, p);
    if (g->method != NULL) {
        (void)c->easy_setopt(h, CURLOPT_CUSTOMREQUEST, g->method);
    }
    if (g->body != NULL) {
        (void)c->easy_setopt(h, CURLOPT_POST, 1L);
        (void)c->easy_setopt(h, CURLOPT_POSTFIELDS, g->body);
        (void)c->easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)g->body_bytes);
    }
    return judge(g, c, h, c->easy_perform(h), p, err);
}

ru_status ru_http_fetch(const ru_fetch *g, ru_arena *arena, char **text, int64_t *n, ru_err *err)
{
    rui_curl c = {0};
    RU_CHECK(g->n_headers <= RU_FETCH_HEADERS_MAX);
    RU_TRY(rui_curl_load(&c, err));
    page p = {.max = g->bytes_max != 0 ? g->bytes_max : BYTES};
    p.p = malloc((size_t)p.max + 1);
    CURL *h = p.p != NULL ? c.easy_init() : NULL;
    struct curl_slist *head = NULL;
    ru_status st = h == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a request")
                             : put_head(&c, g, arena, &head, err);
    st = st == RU_OK ? perform(&c, h, head, g, &p, err) : st;
    char *copy = st == RU_OK ? ru_arena_strn(arena, p.p, p.n) : NULL;
    if (st == RU_OK && copy == NULL) {
        st = RU_FAIL(err, RU_E_MEM, "no memory for the answer");
    }
    if (st == RU_OK) {
        *text = copy;
        *n = p.n;
    }
    if (h != NULL) {
        c.slist_free_all(head);
        c.easy_cleanup(h);
    }
    free(p.p);
    return st;
}

ru_status ru_http_fetch_ready(ru_text *library, bool *tls, ru_err *err)
{
    rui_curl c = {0};
    RU_TRY(rui_curl_load(&c, err));
    const curl_version_info_data *v = c.version_info(CURLVERSION_NOW);
    *tls = (v->features & CURL_VERSION_SSL) != 0;
    ru_text_putf(library, "libcurl %s", v->version);
    return RU_OK;
}

#else

ru_status ru_http_fetch(const ru_fetch *g, ru_arena *arena, char **text, int64_t *n, ru_err *err)
{
    (void)g;
    (void)arena;
    (void)text;
    (void)n;
    return rui_curl_none(err);
}

ru_status ru_http_fetch_ready(ru_text *library, bool *tls, ru_err *err)
{
    (void)library, (void)tls;
    return rui_curl_none(err);
}

#endif
