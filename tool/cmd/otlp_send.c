#include "tool/cmd/otlp_send.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/str.h"
#include "env/clock.h"
#include "trace/export/export.h"
#include "web/fetch.h"

enum {
    SPANS = 4096, /* of a request: 2 MB, where collectors take 4 to 20 */
    TRIES = 4,
};
static const int64_t pause_ns = 500000000; /* doubled after each try */

typedef struct sender {
    ru_fetch ask;
    int64_t sent;
} sender;

/* What the collector did not take; a reply that says nothing readable took all. */
static int64_t rejected(const char *text, int64_t n)
{
    json_t *o = json_loadb(text, (size_t)n, 0, NULL);
    const json_t *part = json_object_get(o, "partialSuccess");
    const json_t *count = json_object_get(part, "rejectedSpans");
    const char *why = json_string_value(json_object_get(part, "errorMessage"));
    int64_t k = json_is_string(count) ? strtoll(json_string_value(count), NULL, 10)
                                      : (int64_t)json_integer_value(count);
    if (k > 0) {
        ru_log(RU_LOG_WARN, "tool", "otlp", "the collector refused %lld spans: %.200s",
               (long long)k, why != NULL ? why : "it gives no reason");
    }
    json_decref(o);
    return k > 0 ? k : 0;
}

static ru_status on_request(void *self, const char *json, int64_t n, int64_t spans, ru_err *err)
{
    sender *s = self;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    char *text;
    int64_t got;
    s->ask.body = json;
    s->ask.body_bytes = n;
    ru_status st = RU_E_AGAIN;
    for (int k = 0; k < TRIES && st == RU_E_AGAIN; k++) {
        if (k > 0) {
            ru_clock_pause(pause_ns << (k - 1));
        }
        st = ru_http_fetch(&s->ask, &arena, &text, &got, err);
    }
    if (st == RU_OK) {
        int64_t less = rejected(text, got);
        s->sent += spans - (less < spans ? less : spans);
    }
    ru_arena_fini(&arena);
    return st;
}

/* "name=value,name=value" of the environment as lines of a head. */
static ru_status read_headers(ru_fetch *f, ru_arena *arena, ru_err *err)
{
    const char *given = ru_conf_env("OTEL_EXPORTER_OTLP_HEADERS");
    const char **lines = RU_NEW(arena, const char *, RU_FETCH_HEADERS_MAX);
    ru_str rest = ru_str_c(given != NULL ? given : ""), word;
    while (lines != NULL && rest.n > 0 && ru_str_next(&rest, ',', &word)) {
        word = ru_str_trim(word);
        int64_t at = ru_str_find(word, "=");
        if (at <= 0 || f->n_headers == RU_FETCH_HEADERS_MAX) {
            return RU_FAIL(err, RU_E_USAGE,
                           "OTEL_EXPORTER_OTLP_HEADERS: expected at most %d pairs name=value with "
                           "commas between them",
                           RU_FETCH_HEADERS_MAX);
        }
        lines[f->n_headers++] = ru_arena_printf(arena, "%.*s: %.*s", (int)at, word.p,
                                                (int)(word.n - at - 1), word.p + at + 1);
    }
    f->header = lines;
    return lines != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "there is no memory for a request");
}

ru_status rui_otlp_send(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                        const char *url, ru_arena *arena, int64_t *sent, ru_err *err)
{
    static const char path[] = "/v1/traces";
    size_t have = strlen(url), want = sizeof path - 1;
    bool whole = have >= want && strcmp(url + have - want, path) == 0;
    sender s = {.ask.type = "application/json"};
    s.ask.url =
        whole ? url
              : ru_arena_printf(arena, "%.*s%s", (int)(have - (url[have - 1] == '/')), url, path);
    if (s.ask.url == NULL) {
        return RU_FAIL(err, RU_E_MEM, "there is no memory for a request");
    }
    RU_TRY(read_headers(&s.ask, arena, err));
    const ru_otlp_send send = {.fn = on_request, .self = &s};
    ru_status st = ru_trace_otlp_send(traces, n, clocks, SPANS, send, err);
    *sent = s.sent;
    return st;
}
