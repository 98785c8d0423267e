#include "web/curl.h"

#include <dlfcn.h>
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

#endif

ru_status rui_curl_none(ru_err *err)
{
    return RU_FAIL(err, RU_E_UNSUPPORTED,
                   "Rubato was built without libcurl; run apt-get install libcurl4-openssl-dev and "
                   "build it again");
}
