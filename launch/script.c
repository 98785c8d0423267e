#include "launch/script.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "env/link/link_tcp.h"
#include "env/loop/loop.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "exec/pool.h"

enum { SPAWNS_MAX = 10000, SIGNALS_MAX = 64, VARIABLES = 8, TRIES_MAX = 100 };

typedef struct script script;

typedef struct member {
    script *s;
    ru_process *p;
    const char *address; /* where it listens, or will */
    uint32_t number;     /* in order of starting, from 1 */
    bool alive;
} member;

struct script {
    const ru_launch_script_options *opt;
    ru_arena *arena;
    ru_loop *loop;
    member *at; /* [SPAWNS_MAX] */
    uint32_t n, n_alive;
    bool stopping, over; /* over: one ended well, and the rest will */
    int code;            /* of the first that failed */
    ru_status status;
    ru_err err;
};

static bool is_given(const script *s, const char *address)
{
    for (uint32_t k = 0; k < s->n; k++) {
        if (s->at[k].alive && strcmp(s->at[k].address, address) == 0) {
            return true;
        }
    }
    return false;
}

/* A port that is free now: it is told to the others before the member listens there. The system may
 * give that of a member which does not listen yet. */
static ru_status free_address(const script *s, const char **out, ru_err *err)
{
    int fd;
    char at[RU_LINK_TCP_ADDRESS_MAX];
    const char *host = s->opt->listen != NULL ? s->opt->listen : "127.0.0.1";
    const char *any = ru_arena_printf(s->arena, "%s:0", host);
    if (any == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to start a worker");
    }
    for (uint32_t k = 0; k == 0 || (k < TRIES_MAX && is_given(s, at)); k++) {
        RU_TRY(ru_link_tcp_listen(any, &fd, at, err));
        (void)close(fd);
    }
    *out = ru_arena_str(s->arena, at);
    return *out != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "not enough memory to start a worker");
}

/* Through whom another one can join: the oldest that lives. */
static const char *contact(const script *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        if (s->at[k].alive) {
            return s->at[k].address;
        }
    }
    return s->opt->join;
}

static void on_end(void *self, int64_t pid, ru_time now);

static ru_status start(script *s, ru_err *err)
{
    const ru_launch_script_options *o = s->opt;
    if (s->n == SPAWNS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "%d workers were started and died one after another",
                       SPAWNS_MAX);
    }
    const char *join = contact(s);
    member *m = &s->at[s->n];
    *m = (member){.s = s, .number = s->n + 1};
    RU_TRY(free_address(s, &m->address, err));
    uint32_t threads = ru_pool_cores() / o->n_start;
    const char *set[VARIABLES + 1] = {
        ru_arena_printf(s->arena, "RUBATO_LISTEN=%s", m->address),
        ru_arena_printf(s->arena, "RUBATO_TOKEN=%s", o->token),
        ru_arena_printf(s->arena, "RUBATO_WORKERS=%u", o->n_min),
        ru_arena_printf(s->arena, "RUBATO_MIN=%u", o->refill ? o->n_min : 1),
        ru_arena_printf(s->arena, "RUBATO_MAX=%u", o->refill ? o->n_max : 0),
    };
    uint32_t n = 5;
    if (join != NULL) {
        set[n++] = ru_arena_printf(s->arena, "RUBATO_JOIN=%s", join);
    }
    if (ru_conf_env("OMP_NUM_THREADS") == NULL) { /* else each takes all cores */
        set[n++] = ru_arena_printf(s->arena, "OMP_NUM_THREADS=%u", threads > 0 ? threads : 1);
    }
    for (uint32_t k = 0; k < n; k++) {
        if (set[k] == NULL) {
            return RU_FAIL(err, RU_E_MEM, "not enough memory to start a worker");
        }
    }
    const char *const unset[] = {"RUBATO_JOIN", NULL};
    const ru_process_options po = {.argv = o->argv, .unset = unset, .set = set, .own_group = true};
    RU_TRY(ru_process_start(&po, &m->p, err));
    s->n++;
    s->n_alive++;
    m->alive = true;
    return ru_loop_child(s->loop, ru_process_id(m->p), on_end, m, err);
}

static void refill(script *s)
{
    ru_err err = {0};
    if (!s->opt->refill || s->over || s->stopping || s->n_alive >= s->opt->n_min ||
        (s->n_alive == 0 && s->opt->join == NULL)) {
        return;
    }
    if (!s->opt->quiet) {
        (void)fprintf(stderr, "starting another worker: %u running, at least %u are required\n",
                      s->n_alive, s->opt->n_min);
    }
    ru_status st = start(s, &err);
    if (st != RU_OK) {
        s->status = st;
        s->err = err;
        ru_loop_stop(s->loop);
    }
}

static void stop(script *s)
{
    s->stopping = true;
    for (uint32_t k = 0; k < s->n; k++) {
        if (s->at[k].alive) {
            ru_process_kill(s->at[k].p, SIGINT);
        }
    }
}

static void on_end(void *self, int64_t pid, ru_time now)
{
    (void)now;
    member *m = self;
    script *s = m->s;
    int code = ru_process_wait(m->p);
    bool by_signal = code > 128 && code <= 128 + SIGNALS_MAX;
    m->alive = false;
    s->n_alive--;
    s->over = s->over || code == 0;
    if (code != 0 && s->code == 0) {
        s->code = by_signal ? 1 : code;
    }
    if (code != 0 && !s->stopping) {
        (void)fprintf(stderr, "worker %u (pid %lld) %s %d%s\n", m->number, (long long)pid,
                      by_signal ? "was ended by signal" : "ended with code",
                      by_signal ? code - 128 : code, s->n_alive > 0 ? "; the others continue" : "");
    }
    if (by_signal) {
        refill(s);
    } else if (code != 0 && s->opt->refill && !s->over && !s->stopping && s->n_alive > 0 &&
               s->n_alive <
                   s->opt->n_min) { /* another one would fail too, and the rest would wait */
        (void)fprintf(
            stderr,
            "%u of at least %u workers are left, and one more would fail as the last did; "
            "ending the others\n",
            s->n_alive, s->opt->n_min);
        stop(s);
    }
    if (s->n_alive == 0) {
        ru_loop_stop(s->loop);
    }
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    (void)events;
    (void)now;
    script *s = self;
    ru_loop_fd_off(s->loop, fd);
    stop(s);
}

static ru_status run(script *s, ru_err *err)
{
    s->at = RU_NEW(s->arena, member, SPAWNS_MAX);
    if (s->at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the launcher");
    }
    RU_TRY(ru_loop_open(&s->loop, err));
    int fd = ru_self_stop_fd();
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(s->loop, fd, 1 /* EPOLLIN */, on_stop, s, err));
    }
    for (uint32_t k = 0; k < s->opt->n_start; k++) {
        RU_TRY(start(s, err));
    }
    bool reached = s->opt->listen != NULL && s->opt->join == NULL; /* from other machines */
    if (!s->opt->quiet && (s->opt->refill || reached)) {
        (void)fprintf(stderr, "others can join with --join %s and RUBATO_TOKEN=%s\n",
                      s->at[0].address, s->opt->token);
    }
    RU_TRY(ru_loop_run(s->loop, err));
    return s->status == RU_OK ? RU_OK : ru_err_set(err, s->status, "%s", s->err.text);
}

ru_status ru_launch_script(const ru_launch_script_options *opt, ru_arena *arena, int *code,
                           ru_err *err)
{
    script s = {.opt = opt, .arena = arena};
    ru_status st = run(&s, err);
    for (uint32_t k = 0; k < s.n; k++) {
        ru_process_close(s.at[k].p);
    }
    ru_loop_close(s.loop);
    *code = s.over ? 0 : s.code != 0 ? s.code : s.stopping ? 0 : 1;
    return st;
}
