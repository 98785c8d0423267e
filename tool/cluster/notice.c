#include "tool/cluster/notice.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "env/clock.h"
#include "env/thread.h"
#include "web/fetch.h"

enum { PATIENCE_MS = 5000 };
static const int64_t every_ns = 1000000000;

struct rui_notice {
    rui_notice_kind kind;
    const char *url;
    ru_thread thread;
    ru_flag ends;
    ru_status first; /* trouble that was told */
};

static ru_status ask(const rui_notice *n, const char *method, const char *path, const char *header,
                     ru_arena *arena, char **text, ru_err *err)
{
    int64_t bytes;
    const char *headers[] = {header};
    const ru_fetch f = {.url = ru_arena_printf(arena, "%s%s", n->url, path),
                        .method = method,
                        .header = headers,
                        .n_headers = 1,
                        .bytes_max = 4096,
                        .patience_ms = PATIENCE_MS};
    return f.url != NULL && header != NULL ? ru_http_fetch(&f, arena, text, &bytes, err)
                                           : RU_FAIL(err, RU_E_MEM, "no memory for a request");
}

static ru_status look(const rui_notice *n, ru_arena *arena, bool *yes, ru_err *err)
{
    char *text;
    if (n->kind == RUI_NOTICE_GCP) { /* it answers at once when that changes, else after 2 s */
        RU_TRY(ask(n, "GET",
                   "/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=2",
                   "Metadata-Flavor: Google", arena, &text, err));
        *yes = strncmp(text, "TRUE", 4) == 0;
        return RU_OK;
    }
    RU_TRY(ask(n, "PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 60", arena,
               &text, err));
    text[strcspn(text, "\r\n")] = 0;
    ru_status st =
        ask(n, "GET", "/latest/meta-data/spot/instance-action",
            ru_arena_printf(arena, "X-aws-ec2-metadata-token: %s", text), arena, &text, err);
    *yes = st == RU_OK;
    return st == RU_E_MISSING ? RU_OK : st;
}

static void watch(void *arg)
{
    rui_notice *n = arg;
    bool yes = false;
    while (!yes && ru_flag_get(&n->ends) == 0) {
        ru_arena arena;
        ru_err err;
        ru_arena_init(&arena, 0);
        ru_status st = look(n, &arena, &yes, &err);
        if (st != RU_OK && n->first != st) { /* each trouble once: it may last */
            ru_log(RU_LOG_WARN, "cluster", "notice", "cannot ask for notices: %s", err.text);
        }
        n->first = st;
        ru_arena_fini(&arena);
        if (yes) {
            ru_log(RU_LOG_INFO, "cluster", "notice", "the cloud takes this machine away");
            (void)kill(getpid(), SIGTERM);
        }
        for (uint32_t k = 0; !yes && k < 10 && ru_flag_get(&n->ends) == 0; k++) {
            ru_clock_pause(every_ns / 10);
        }
    }
}

ru_status rui_notice_open(rui_notice_kind kind, const char *url, ru_arena *arena, rui_notice **out,
                          ru_err *err)
{
    rui_notice *n = RU_NEW(arena, rui_notice, 1);
    ru_text none = ru_text_arena(arena);
    bool tls;
    if (n == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to hear of notices");
    }
    RU_TRY(ru_http_fetch_ready(&none, &tls, err)); /* the library opens here, not in two threads */
    n->kind = kind;
    n->url = url;
    RU_TRY(ru_thread_start(&n->thread, "notices", watch, n, err));
    *out = n;
    return RU_OK;
}

void rui_notice_close(rui_notice *n)
{
    if (n == NULL) {
        return;
    }
    ru_flag_set(&n->ends, 1);
    ru_thread_join(&n->thread);
}
