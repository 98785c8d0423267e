#include "tool/cmd/metrics.h"

#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "launch/launch.h"

/* The token of the job, OUT/token, which a job of several workers has already. */
static ru_status get_token(rui_metrics *m, const char *out, const char **path, ru_err *err)
{
    ru_arena *a = m->in->arena;
    char *fresh = ru_arena_zalloc(a, 2 * RU_TOKEN_BYTES + 1, 1);
    *path = ru_path_join(a, out, "token");
    if (fresh == NULL || *path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for --metrics");
    }
    if (ru_cmd_text(m->in, "token-file") != NULL) {
        *path = ru_cmd_text(m->in, "token-file");
        return ru_token_get(*path, a, &m->token, err);
    }
    if (ru_path_exists(*path)) {
        return ru_token_get(*path, a, &m->token, err);
    }
    ru_token_make(fresh);
    m->token = fresh;
    return ru_file_secret(*path, fresh, (int64_t)strlen(fresh), err);
}

static ru_status on_opened(void *self, const char *out, ru_err *err)
{
    rui_metrics *m = self;
    const char *path = NULL;
    bool open = ru_cmd_flag(m->in, "metrics-open");
    rui_metrics_close(m); /* of a start before: a job that starts again has another token */
    if (!open) {
        RU_TRY(get_token(m, out, &path, err));
    }
    ru_status st =
        ru_watch_serve_start(out, ru_cmd_text(m->in, "metrics"), m->token, &m->serve, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "--metrics");
    }
    if (m->in->verbose >= 0) {
        (void)fprintf(stderr, "metrics at http://%s/metrics%s%s\n",
                      ru_watch_serve_address(m->serve), open ? "" : ", token in ",
                      open ? "" : path);
    }
    return RU_OK;
}

ru_run_opened rui_metrics_opened(rui_metrics *m)
{
    bool asked = ru_cmd_text(m->in, "metrics") != NULL;
    return (ru_run_opened){.fn = asked ? on_opened : NULL, .self = m};
}

void rui_metrics_close(rui_metrics *m)
{
    ru_watch_serve_stop(m->serve);
    m->serve = NULL;
}
