/* libcurl, opened when the first request needs it: other commands do not wait for it.
 *
 * Thread: any; a table belongs to its owner. */
#ifndef RU_WEB_CURL_H
#define RU_WEB_CURL_H

#include "base/arena.h"

#ifdef RU_HAS_CURL
#include <curl/curl.h>

#include "web/address.h"

#define RUI_CURL_LIST(X)   \
    X(easy_init)           \
    X(easy_setopt)         \
    X(easy_perform)        \
    X(easy_getinfo)        \
    X(easy_reset)          \
    X(easy_cleanup)        \
    X(easy_strerror)       \
    X(multi_init)          \
    X(multi_setopt)        \
    X(multi_add_handle)    \
    X(multi_remove_handle) \
    X(multi_perform)       \
    X(multi_poll)          \
    X(multi_wakeup)        \
    X(multi_socket_action) \
    X(multi_info_read)     \
    X(multi_cleanup)       \
    X(version_info)        \
    X(slist_append)        \
    X(slist_free_all)

typedef struct rui_curl {
#define RUI_X(fn) __typeof__(&curl_##fn) fn;
    RUI_CURL_LIST(RUI_X)
#undef RUI_X
} rui_curl;

/* The line of a request that names the trace of who started this process (TRACEPARENT); NULL: the
 * environment names none, or `arena` is full. */
const char *rui_trace_line(ru_arena *arena);

/* Errors: RU_E_UNSUPPORTED. */
RU_MUST_USE ru_status rui_curl_load(rui_curl *c, ru_err *err);

/* What all requests have; `authority`: file of certificates, NULL: the system's. */
void rui_curl_request(const rui_curl *c, CURL *h, const char *url, const struct curl_slist *head,
                      const char *authority);
/* One more line of `head`; NULL, as of a full arena, is RU_E_MEM. */
RU_MUST_USE ru_status rui_curl_line(const rui_curl *c, struct curl_slist **head, const char *line,
                                    ru_err *err);
/* Signed with that login for a service, as "s3"; without one as it is. Errors: RU_E_UNSUPPORTED. */
RU_MUST_USE ru_status rui_curl_sign(const rui_curl *c, CURL *h, const rui_s3_login *l,
                                    const char *service, ru_err *err);
#endif

/* Errors: RU_E_UNSUPPORTED, of a build without libcurl. */
RU_MUST_USE ru_status rui_curl_none(ru_err *err);

#endif
