/* Services with processor credits of a node: a process that paces each (`rubato cluster burst`),
 * started again some time after it ended. It ends with its agent, and its guard takes the quota
 * away then. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "cluster/agent_impl.h"

static const int64_t again_ns = 5 * INT64_C(1000000000), close_ns = 10 * INT64_C(1000000000);
static const int64_t look_ns = 20000000;

struct rui_burst {
    const char *path;
    ru_cluster_service is; /* its line is `line` */
    ru_process *pacer;     /* NULL: it has ended */
    ru_time ended;
    char line[RU_CLUSTER_TEXT_MAX + 1], part[2][RU_CLUSTER_TEXT_MAX + 1];
};

/* What it says on standard output (a line for each window) or error; the last line counts. false:
 * it ended. */
static bool hear(struct rui_burst *b, bool errors)
{
    char bytes[4096], *part = b->part[errors];
    int64_t n;
    while ((n = ru_process_read(b->pacer, errors, bytes, sizeof bytes)) > 0) {
        size_t used = strlen(part);
        for (int64_t k = 0; k < n; k++) {
            if (bytes[k] == '\n') {
                part[used] = 0;
                (void)snprintf(b->line, sizeof b->line, "%s", part);
                used = 0;
            } else if (used < RU_CLUSTER_TEXT_MAX && bytes[k] != 0) {
                part[used++] = bytes[k];
            }
        }
        part[used] = 0;
    }
    return n == 0;
}

static void begin(rui_agent *a, struct rui_burst *b, ru_time now)
{
    const char *argv[] = {"/proc/self/exe", "cluster", "burst", b->path, NULL};
    const ru_process_options o = {
        .argv = argv, .pipe_out = true, .pipe_err = true, .own_group = true};
    ru_err err;
    b->is.up = ru_process_start(&o, &b->pacer, &err) == RU_OK;
    if (!b->is.up) {
        b->ended = now;
        (void)snprintf(b->line, sizeof b->line, "%.*s", RU_CLUSTER_TEXT_MAX, err.text);
    }
    rui_agent_changed(a);
}

static void end(rui_agent *a, struct rui_burst *b, ru_time now)
{
    int code = ru_process_wait(b->pacer);
    ru_process_close(b->pacer);
    b->pacer = NULL;
    b->ended = now;
    b->is.up = false;
    b->part[0][0] = b->part[1][0] = 0;
    ru_log(RU_LOG_WARN, "cluster", "burst", "%s ended with %d: %s", b->is.name, code, b->line);
    rui_agent_changed(a);
}

void rui_agent_pace(rui_agent *a, ru_time now)
{
    for (uint32_t k = 0; k < a->opt->n_bursts; k++) {
        struct rui_burst *b = &a->bursts[k];
        if (b->pacer == NULL && (b->ended.ns == 0 || ru_time_since(now, b->ended) > again_ns)) {
            begin(a, b, now);
        } else if (b->pacer != NULL) {
            bool lives = hear(b, false);
            lives = hear(b, true) && lives;
            if (!lives) {
                end(a, b, now);
            }
        }
    }
}

void rui_agent_services(const rui_agent *a, ru_cluster_state *s)
{
    s->n_services = a->opt->n_bursts;
    for (uint32_t k = 0; k < s->n_services; k++) {
        s->services[k] = a->bursts[k].is;
    }
}

ru_status rui_agent_bursts_open(rui_agent *a, ru_err *err)
{
    RU_CHECK(a->opt->n_bursts <= RU_CLUSTER_SERVICES_MAX);
    a->bursts = RU_NEW(a->arena, struct rui_burst, a->opt->n_bursts + 1);
    if (a->bursts == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for services");
    }
    for (uint32_t k = 0; k < a->opt->n_bursts; k++) {
        const char *path = a->opt->bursts[k], *name = strrchr(path, '/');
        name = name != NULL ? name + 1 : path;
        int64_t n = (int64_t)strlen(name);
        n = ru_str_ends(ru_str_c(name), ".yaml") ? n - 5 : n;
        a->bursts[k].path = path;
        a->bursts[k].is = (ru_cluster_service){.name = ru_arena_strn(a->arena, name, n),
                                               .line = a->bursts[k].line};
        if (a->bursts[k].is.name == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for services");
        }
    }
    return RU_OK;
}

void rui_agent_bursts_close(rui_agent *a)
{
    const ru_time began = ru_clock_now();
    for (uint32_t k = 0; a->bursts != NULL && k < a->opt->n_bursts; k++) {
        if (a->bursts[k].pacer != NULL) {
            ru_process_kill(a->bursts[k].pacer, SIGTERM);
        }
    }
    for (uint32_t k = 0; a->bursts != NULL && k < a->opt->n_bursts; k++) {
        struct rui_burst *b = &a->bursts[k];
        bool lives = b->pacer != NULL; /* it takes the quota away first; else its guard does */
        while (lives && ru_time_since(ru_clock_now(), began) < close_ns) {
            bool more = hear(b, false);
            lives = hear(b, true) || more;
            ru_clock_pause(look_ns);
        }
        if (lives) {
            ru_log(RU_LOG_WARN, "cluster", "burst", "%s does not end; it is killed", b->is.name);
        }
        ru_process_close(b->pacer);
    }
}
