#include "web/curl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/str.h"

const char *rui_trace_line(ru_arena *arena)
{
    const char *text = ru_conf_env("TRACEPARENT");
    return text != NULL && ru_str_is_traceparent(text)
               ? ru_arena_printf(arena, "traceparent: %s", text)
               : NULL;
}

#ifdef RU_HAS_CURL

ru_status rui_curl_load(rui_curl *c, ru_err *err)
{
    void *library = dlopen(RU_CURL_SONAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "requests over HTTP need libcurl, but %s; run apt-get install libcurl4",
                       dlerror());
    }
#define RUI_X(fn)                                                                               \
    {                                                                                           \
        void *at = dlsym(library, "curl_" #fn);                                                 \
        if (at == NULL) {                                                                       \
            return RU_FAIL(err, RU_E_UNSUPPORTED, "%s has no function curl_%s", RU_CURL_SONAME, \
                           #fn);                                                                \
        }                                                                                       \
        memcpy(&c->fn, &at, sizeof at);                                                         \
    }
    RUI_CURL_LIST(RUI_X)
#undef RUI_X
    return RU_OK;
}

void rui_curl_request(const rui_curl *c, CURL *h, const char *url, const struct curl_slist *head,
                      const char *authority)
{
    (void)c->easy_setopt(h, CURLOPT_URL, url);
    (void)c->easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)c->easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)c->easy_setopt(h, CURLOPT_USERAGENT, "rubato/" RU_VERSION);
    (void)c->easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    (void)c->easy_setopt(h, CURLOPT_HTTPHEADER, head);
    if (authority != NULL) {
        (void)c->easy_setopt(h, CURLOPT_CAINFO, authority);
    }
}

ru_status rui_curl_line(const rui_curl *c, struct curl_slist **head, const char *line, ru_err *err)
{
    struct curl_slist *more = line != NULL ? c->slist_append(*head, line) : NULL;
    *head = more != NULL ? more : *head;
    return more != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a request");
}

ru_status rui_curl_sign(const rui_curl *c, CURL *h, const rui_s3_login *l, const char *service,
                        ru_err *err)
{
    char provider[128];
    if (l->key == NULL) {
        return RU_OK;
    }
    (void)snprintf(provider, sizeof provider, "aws:amz:%.60s:%.40s", l->region, service);
    /* A line "Expect:" would be signed and not sent, which servers take for a wrong signature. */
    (void)c->easy_setopt(h, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
    return c->easy_setopt(h, CURLOPT_AWS_SIGV4, provider) == CURLE_OK &&
                   c->easy_setopt(h, CURLOPT_USERNAME, l->key) == CURLE_OK &&
                   c->easy_setopt(h, CURLOPT_PASSWORD, l->secret) == CURLE_OK
               ? RU_OK
               : RU_FAIL(err, RU_E_UNSUPPORTED,
                         "libcurl cannot sign requests; it is older than 7.75");
}

#endif

ru_status rui_curl_none(ru_err *err)
{
    return RU_FAIL(err, RU_E_UNSUPPORTED,
                   "Rubato was built without libcurl; run apt-get install libcurl4-openssl-dev and "
                   "build it again");
}
