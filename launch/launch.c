#include "launch/launch.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/claim.h"
#include "env/file.h"
#include "env/link_tcp.h"
#include "env/loop.h"
#include "env/process.h"
#include "env/self.h"
#include "env/thread.h"
#include "exec/pool.h"
#include "launch/fold.h"
#include "train/run/live.h"
#include "train/run/message.h"
#include "train/run/op_facts.h"

enum { EARLY_MAX_BYTES = 1 << 14, ARGS_MAX = 48, SPAWNS_MAX = 10000 };
#define DRAW_NS INT64_C(90000000) /* every worker here tells its progress ten times a second */
enum { SSH_FAILED = 255, SIGNALS_MAX = 64 };

/* Bytes that wait. */
typedef struct stream {
    char *at;
    int64_t n;
} stream;

typedef struct child {
    struct launcher *l;
    ru_process *p;
    uint32_t rank;    /* 1, 2, ... in order of starting */
    uint32_t number;  /* of the worker in the job; 0: it is not in yet */
    uint32_t slot;    /* of cores */
    const char *host; /* started there over ssh; NULL: this machine */
    ru_msg_in *in;    /* its messages */
    stream early;     /* what it said to people before it had a number */
    ru_log_file *log;
    char address[128]; /* where it listens; "": not known yet */
    bool alive, led;   /* led: it reported steps */
} child;

typedef struct launcher {
    const ru_launch_options *opt;
    ru_arena *arena;
    ru_loop *loop;
    ru_fold *fold;
    ru_live live;
    ru_train_place place;
    const char *out, *exe, *token;
    child *children; /* [n_children] */
    uint32_t n_children, n_alive, threads;
    uint64_t *cores; /* [n_max] mask of each slot */
    bool begun;      /* the first step was reported, or the start */
    bool told_end;   /* a worker here wrote the summary */
    int led_code;    /* of a worker here that led and failed; 0: none */
    bool summary;    /* the job ended well: a worker here wrote the summary, or ended with it */
    bool stopping;
    bool founded;  /* the other founders were started */
    int64_t told;  /* the last step that was told on stdout */
    int64_t drawn; /* the last step on the live line */
    ru_time drawn_at;
    ru_msg_view view;  /* the newest that a worker here told */
    char outside[128]; /* address of a worker that was not started here; "": none is known */
    int code;          /* of the first child that failed */
    ru_status status;
    ru_err err;
} launcher;

/* -- lines of children ------------------------------------------------------------------------- */

/* A line of the launcher's own, for people. */
RU_PRINTF(2, 3) static void say(launcher *l, const char *fmt, ...)
{
    ru_live_clear(&l->live);
    va_list ap;
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
}

static void start_others(launcher *l, const char *address);

/* The number by which workers and people know it; before that, how many were started. */
static uint32_t number_of(const child *c)
{
    return c->number > 0 ? c->number : c->rank;
}

/* OUT/log.<number>, or OUT/log.start-<rank> of one that never was a worker. A newcomer has the
 * number of the one before it in a resumed run only: else it is a new file. */
static void open_log(child *c)
{
    launcher *l = c->l;
    const char *name =
        ru_arena_printf(l->arena, c->number > 0 ? "log.%u" : "log.start-%u", number_of(c));
    const char *path = name != NULL ? ru_path_join(l->arena, l->out, name) : NULL;
    ru_err err = {0};
    ru_status st =
        path == NULL ? RU_E_MEM : ru_log_file_open(path, l->opt->train->resume, &c->log, &err);
    if (st == RU_OK) {
        st = ru_log_file_append(c->log, c->early.at, c->early.n, &err);
    }
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "tool", "worker_log", "cannot write the log of worker %u: %s",
               number_of(c), err.text);
    }
    c->early.n = 0;
}

static void on_number(child *c, int64_t number)
{
    launcher *l = c->l;
    if (number > 0 && number <= UINT32_MAX && c->number != (uint32_t)number) {
        ru_fold_end(l->fold, number_of(c), ru_clock_now());
        ru_log_file_close(c->log); /* it came back under another number */
        c->log = NULL;
        c->number = (uint32_t)number;
        open_log(c);
    }
}

static void on_address(child *c, const char *address)
{
    launcher *l = c->l;
    if (!ru_link_tcp_address_ok(address)) {
        return;
    }
    (void)snprintf(c->address, sizeof c->address, "%s", address);
    if (!l->founded) {
        start_others(l, c->address);
    }
}

/* False: two leaders told it, of whom one did not know yet that it leads no more. */
static bool is_new(launcher *l, const ru_msg *m)
{
    if (m->kind == RU_MSG_STEP) {
        bool later = m->step.step > l->told;
        l->begun = true;
        l->told = later ? m->step.step : l->told;
        return later;
    }
    l->told_end = l->told_end || m->kind == RU_MSG_SUMMARY;
    l->summary = l->summary || l->told_end;
    return true;
}

static void on_view(launcher *l, const ru_msg_view *view);

/* A message of a worker; what has a JSON form is told with --json. */
static void on_message(void *self, const ru_msg *m)
{
    child *c = self;
    launcher *l = c->l;
    char line[RU_MSG_BYTES_MAX];
    ru_text t = ru_text_into(line, sizeof line);
    switch (m->kind) {
    case RU_MSG_START:
    case RU_MSG_STEP:
    case RU_MSG_EVAL:
    case RU_MSG_EVENT:
    case RU_MSG_SUMMARY:
        c->led = true;
        if (is_new(l, m) && l->opt->train->json) {
            ru_msg_json(m, &t);
            ru_self_tell(t.p, t.cut ? 0 : t.n);
        }
        break;
    case RU_MSG_PROGRESS:
        if (m->progress.step > l->drawn && ru_time_since(ru_clock_now(), l->drawn_at) >= DRAW_NS) {
            l->drawn = m->progress.step;
            l->drawn_at = ru_clock_now();
            ru_msg_progress_text(&m->progress, true, &t);
            ru_live_draw(&l->live, t.p, t.n);
        }
        break;
    case RU_MSG_ADDRESS:
        on_address(c, m->address.address);
        break;
    case RU_MSG_NUMBER:
        on_number(c, m->number.number);
        break;
    case RU_MSG_VIEW:
        on_view(l, &m->view);
        break;
    case RU_MSG_KINDS:
        break;
    }
}

static void show_line(void *self, const char *text, int64_t size_bytes)
{
    say(self, "%.*s", (int)size_bytes, text);
}

static void on_fold_time(void *self, uint32_t what, ru_time now);

static void fold_again(launcher *l, ru_time now)
{
    ru_time next = ru_fold_tick(l->fold, now);
    if (next.ns != INT64_MAX) {
        ru_loop_timer(l->loop, on_fold_time, l, 0, next);
    }
}

static void on_fold_time(void *self, uint32_t what, ru_time now)
{
    (void)what;
    fold_again(self, now);
}

/* What a worker says to people: whole into its own log, folded with that of the others here. */
static void on_errors(child *c, const char *bytes, int64_t n)
{
    ru_err ignored;
    ru_time now = ru_clock_now();
    if (c->log == NULL && c->number == 0 && c->early.n + n > EARLY_MAX_BYTES) {
        open_log(c);
    }
    if (c->log != NULL) {
        (void)!ru_log_file_append(c->log, bytes, n, &ignored);
    } else if (c->number == 0) {
        memcpy(c->early.at + c->early.n, bytes, (size_t)n);
        c->early.n += n;
    }
    ru_fold_bytes(c->l->fold, number_of(c), bytes, n, now);
    fold_again(c->l, now);
}

/* No message: a greeting of a login shell on another host, say. */
static void on_text(void *self, const char *data, int64_t n)
{
    on_errors(self, data, n);
}

static void read_all(child *c, bool errors)
{
    char buf[16384];
    int64_t n;
    while ((n = ru_process_read(c->p, errors, buf, sizeof buf)) > 0) {
        if (errors) {
            on_errors(c, buf, n);
        } else {
            ru_msg_read(c->in, buf, n);
        }
    }
    int fd = ru_process_fd(c->p, errors);
    if (n < 0 && fd >= 0) {
        ru_loop_fd_off(c->l->loop, fd);
    }
}

static void on_fd(void *self, int fd, uint32_t events, ru_time now)
{
    (void)events;
    (void)now;
    child *c = self;
    read_all(c, fd == ru_process_fd(c->p, true));
}

/* -- children ---------------------------------------------------------------------------------- */

static void fail(launcher *l, ru_status st, const ru_err *err)
{
    if (l->status == RU_OK) {
        l->status = st;
        l->err = *err;
    }
    ru_loop_stop(l->loop);
}

typedef struct words {
    const char *at[ARGS_MAX];
    uint32_t n;
    ru_arena *arena;
} words;

static void word(words *w, const char *text)
{
    RU_CHECK(w->n + 1 < ARGS_MAX && text != NULL);
    w->at[w->n++] = text;
}

static void word_number(words *w, const char *name, int64_t v)
{
    word(w, name);
    word(w, ru_arena_printf(w->arena, "%lld", (long long)v));
}

static void say_how_much(const ru_launch_options *o, words *w)
{
    word(w, "--messages");
    word(w, o->train->columns > 0 ? "progress" : "run");
    if (o->train->quiet) {
        word(w, "-q");
    }
    for (int k = 0; k < o->verbose && k < 2; k++) {
        word(w, "-v");
    }
}

static void command_line(launcher *l, const child *c, const char *join, bool newcomer, words *w)
{
    const ru_launch_options *o = l->opt;
    word(w, l->exe);
    word(w, "worker");
    word(w, "--job");
    word(w, ru_path_join(l->arena, l->out, "job.yaml"));
    word(w, "--out");
    word(w, l->out);
    word_number(w, "--founders", o->n_start);
    word_number(w, "--begin", o->n_begin > 0 ? o->n_begin : 1);
    word_number(w, "--min", o->n_min);
    word_number(w, "--max", o->n_max);
    word_number(w, "--threads", l->threads);
    word_number(w, "--rank", o->rank_first + c->rank);
    if (l->cores != NULL && c->slot < o->n_max) {
        word(w, "--cores");
        word(w, ru_arena_printf(l->arena, "%llx", (unsigned long long)l->cores[c->slot]));
    }
    if (join != NULL) {
        word(w, "--join");
        word(w, join);
    }
    if (newcomer) {
        word(w, "--newcomer");
    }
    if (o->listen != NULL) {
        word(w, "--listen");
        word(w, join == NULL ? o->listen : ":0");
        if (join == NULL && o->toward != NULL) {
            word(w, "--toward");
            word(w, o->toward);
        }
    }
    if (o->train->resume) {
        word(w, "--resume");
    }
    if (o->deterministic) {
        word(w, "--deterministic");
    }
    if (o->equal_shares) {
        word(w, "--equal-shares");
    }
    if (o->sockets_only) {
        word(w, "--sockets");
    }
    if (o->transient) {
        word(w, "--tier");
        word(w, "transient");
    }
    say_how_much(o, w);
}

static uint32_t threads_asked(const launcher *l)
{
    const ru_launch_options *o = l->opt;
    return o->app != NULL ? o->app->job->train.threads : o->train->job->train.threads;
}

static void on_end(void *self, int64_t pid, ru_time now);
static ru_status start_at(launcher *l, uint32_t slot, const char *host, const char *join,
                          bool newcomer, ru_err *err);

/* The same program under the same path on another host, as a newcomer: it asks for job and state,
 * and reads the token from its input, where nobody sees it. RUBATO_SSH replaces the command. */
static void remote_line(launcher *l, const child *c, const char *join, words *w)
{
    const char *ssh = ru_conf_env("RUBATO_SSH");
    word(w, ssh != NULL ? ssh : "ssh");
    if (ssh == NULL) {
        word(w, "-oBatchMode=yes");
    }
    word(w, c->host);
    char *exe = realpath(l->exe, NULL);
    word(w, ru_arena_str(l->arena, exe != NULL ? exe : "rubato"));
    free(exe);
    word(w, "worker");
    word(w, "--join");
    word(w, join);
    word(w, ru_hosts_transient(l->opt->hosts, c->host) ? "--tier=transient" : "--tier=reliable");
    word(w, "--token-file");
    word(w, "-");
    word(w, "--listen");
    word(w, ":0");
    word_number(w, "--rank", c->rank);
    if (threads_asked(l) != 0) {
        word_number(w, "--threads", threads_asked(l));
    }
    if (l->opt->deterministic) {
        word(w, "--deterministic");
    }
    if (l->opt->equal_shares) {
        word(w, "--equal-shares");
    }
    say_how_much(l->opt, w);
}

static ru_status start(launcher *l, uint32_t slot, const char *join, bool newcomer, ru_err *err)
{
    return start_at(l, slot, NULL, join, newcomer, err);
}

static ru_status start_at(launcher *l, uint32_t slot, const char *host, const char *join,
                          bool newcomer, ru_err *err)
{
    if (l->n_children == SPAWNS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "%d workers were started and failed one after another; look into their logs "
                       "for the cause",
                       SPAWNS_MAX);
    }
    child *c = &l->children[l->n_children];
    *c = (child){.l = l, .rank = l->n_children + 1, .slot = slot, .host = host};
    c->in = RU_NEW(l->arena, ru_msg_in, 1);
    c->early.at = ru_arena_alloc(l->arena, EARLY_MAX_BYTES, 1);
    const char *token = ru_arena_printf(l->arena, "RUBATO_TOKEN=%s", l->token);
    if (c->in == NULL || c->early.at == NULL || token == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to start a worker");
    }
    *c->in = (ru_msg_in){.message = on_message, .text = on_text, .self = c};
    words w = {.arena = l->arena};
    if (host != NULL) {
        remote_line(l, c, join, &w);
    } else {
        command_line(l, c, join, newcomer, &w);
    }
    const char *set[] = {host == NULL ? token : NULL, NULL};
    const ru_process_options po = {.argv = w.at,
                                   .set = set,
                                   .pipe_in = host != NULL,
                                   .pipe_out = true,
                                   .pipe_err = true,
                                   .own_group = true};
    RU_TRY(ru_process_start(&po, &c->p, err));
    if (host != NULL) {
        RU_TRY(ru_process_write(c->p, l->token, (int64_t)strlen(l->token), err));
        RU_TRY(ru_process_write(c->p, "\n", 1, err));
    }
    l->n_children++;
    l->n_alive++;
    c->alive = true;
    ru_fold_workers(l->fold, l->n_alive, ru_clock_now());
    RU_TRY(ru_loop_fd(l->loop, ru_process_fd(c->p, false), 1 /* EPOLLIN */, on_fd, c, err));
    RU_TRY(ru_loop_fd(l->loop, ru_process_fd(c->p, true), 1, on_fd, c, err));
    return ru_loop_child(l->loop, ru_process_id(c->p), on_end, c, err);
}

static void start_others(launcher *l, const char *address)
{
    ru_err err = {0};
    l->founded = true;
    if (l->opt->open && !l->opt->train->quiet) {
        say(l, "to add a worker, run: rubato worker --join %s --token-file %s", address,
            ru_path_join(l->arena, l->out, "token"));
    }
    for (uint32_t k = 1; k < l->opt->n_start; k++) {
        ru_status st = start(l, k, address, false, &err);
        if (st != RU_OK) {
            fail(l, st, &err);
            return;
        }
    }
    const ru_hosts *h = l->opt->hosts;
    for (uint32_t k = 0; h != NULL && k < h->n; k++) {
        for (uint32_t i = 0; !h->at[k].here && i < h->at[k].workers; i++) {
            ru_status st = start_at(l, UINT32_MAX, h->at[k].name, address, true, &err);
            if (st != RU_OK) {
                fail(l, st, &err);
                return;
            }
        }
    }
}

static void signal_all(launcher *l, int sig)
{
    for (uint32_t k = 0; k < l->n_children; k++) {
        if (l->children[k].alive) {
            ru_process_kill(l->children[k].p, sig);
        }
    }
}

/* Workers of the job, with those of other launchers and those that joined by hand. */
static uint32_t workers_now(const launcher *l)
{
    uint32_t n = l->n_alive;
    for (uint32_t i = 0; i < l->view.n; i++) {
        bool here = false;
        for (uint32_t k = 0; k < l->n_children && !here; k++) {
            here = l->children[k].number == l->view.numbers[i];
        }
        n += here ? 0 : 1;
    }
    return n;
}

/* The least one that no living worker has. */
static uint32_t free_slot(const launcher *l)
{
    for (uint32_t slot = 0;; slot++) {
        bool used = false;
        for (uint32_t k = 0; k < l->n_children && !used; k++) {
            used = l->children[k].alive && l->children[k].slot == slot;
        }
        if (!used) {
            return slot;
        }
    }
}

/* Through whom a newcomer can join; NULL: nobody is known. */
static const char *contact(const launcher *l)
{
    for (uint32_t k = 0; k < l->n_children; k++) {
        if (l->children[k].alive && l->children[k].address[0] != 0) {
            return l->children[k].address;
        }
    }
    return l->outside[0] != 0 ? l->outside : NULL;
}

/* Fewer than the least number live: somebody new. */
static void refill(launcher *l)
{
    ru_err err = {0};
    uint32_t n = workers_now(l);
    const char *join = contact(l);
    if (n >= l->opt->n_min || n == 0 || join == NULL) {
        return;
    }
    say(l, "starting another worker: %u %s running, at least %u are required", n,
        n == 1 ? "is" : "are", l->opt->n_min);
    ru_status st = start(l, free_slot(l), join, true, &err);
    if (st != RU_OK) {
        fail(l, st, &err);
    }
}

static void on_view(launcher *l, const ru_msg_view *view)
{
    if (view->epoch > l->view.epoch) {
        l->view = *view;
        bool other = view->last > 0 && ru_link_tcp_address_ok(view->address);
        for (uint32_t k = 0; k < l->n_children && other; k++) {
            other = l->children[k].number != view->last;
        }
        (void)snprintf(l->outside, sizeof l->outside, "%s", other ? view->address : "");
        l->view.address = NULL; /* a view of the message */
        /* Whoever lost a worker replaces it; here that may have waited for others to leave. */
        if (l->begun && !l->summary && !l->stopping && l->n_alive < l->opt->n_start) {
            refill(l);
        }
    }
}

/* Is any worker left that has been in the job? Newcomers cannot join one that has no members. */
static bool job_lives(const launcher *l)
{
    bool lives = false;
    uint32_t outside = l->view.n;
    for (uint32_t k = 0; k < l->n_children; k++) {
        const child *c = &l->children[k];
        lives = lives || (c->alive && c->number > 0);
        for (uint32_t i = 0; i < l->view.n; i++) {
            outside -= c->number > 0 && l->view.numbers[i] == c->number;
        }
    }
    return lives || outside > 0;
}

/* The first worker could not listen: another launcher of this machine was a moment earlier. */
static bool found_taken(const launcher *l, const child *c, int code)
{
    return l->opt->join_if_taken != NULL && c->rank == 1 && !l->founded &&
           code == ru_status_exit_code(RU_E_PEER);
}

static ru_status join_all(launcher *l, const char *address, ru_err *err)
{
    l->founded = true;
    for (uint32_t k = 0; k < l->opt->n_start; k++) {
        RU_TRY(start(l, k, address, true, err));
    }
    return RU_OK;
}

static void join_instead(launcher *l)
{
    ru_err err = {0};
    l->code = 0;
    say(l, "another launcher has started the job at %s; joining it", l->opt->join_if_taken);
    ru_status st = join_all(l, l->opt->join_if_taken, &err);
    if (st != RU_OK) {
        fail(l, st, &err);
    }
}

static void on_end(void *self, int64_t pid, ru_time now)
{
    (void)pid;
    (void)now;
    child *c = self;
    launcher *l = c->l;
    read_all(c, false);
    read_all(c, true);
    ru_msg_read_end(c->in);
    ru_fold_end(l->fold, number_of(c), ru_clock_now());
    if (c->log == NULL && c->early.n > 0) {
        open_log(c);
    }
    int code = ru_process_wait(c->p);
    c->alive = false;
    l->n_alive--;
    ru_fold_workers(l->fold, l->n_alive > 0 ? l->n_alive : 1, ru_clock_now());
    l->summary = l->summary || (code == 0 && !l->stopping);
    bool ssh_failed = c->host != NULL && code == SSH_FAILED;
    bool by_signal = code > 128 && code <= 128 + SIGNALS_MAX;
    if (code != 0 && l->code == 0) {
        l->code = ssh_failed ? ru_status_exit_code(RU_E_PEER) : by_signal ? 1 : code;
    }
    if (c->led && code != 0 && !by_signal && code != ru_status_exit_code(RU_E_PEER)) {
        l->led_code = code; /* the others may have ended well before its last evaluation failed */
    }
    if (ssh_failed && !l->stopping && !l->summary) {
        say(l, "no worker started on %s; see the message of ssh above", c->host);
    } else if (c->host != NULL && code == ru_status_exit_code(RU_E_PEER) && !l->begun) {
        say(l,
            "%s cannot reach this machine at that address; give --listen HOST:0 with an address "
            "that it can reach",
            c->host);
    } else if (by_signal && !l->stopping && !l->summary) {
        say(l, "worker %u (pid %lld) was ended by signal %d", number_of(c),
            (long long)ru_process_id(c->p), code - 128);
    }
    bool over = l->summary || l->stopping;
    if (!over && found_taken(l, c, code)) {
        join_instead(l);
    } else if (l->n_alive == 0 && (over || !l->begun || workers_now(l) == 0)) {
        ru_loop_stop(l->loop);
    } else if (!over && !l->begun && code != 0) {
        l->stopping = true; /* a job that could not begin: the others would wait for ever */
        signal_all(l, SIGKILL);
    } else if (!over && l->begun && !job_lives(l)) {
        say(l, "all workers of the job have failed; continue from its newest checkpoint with "
               "--resume");
        l->stopping = true;
        signal_all(l, SIGKILL);
    } else if (!over) {
        refill(l);
        if (l->n_alive == 0) { /* others go on, and are enough */
            ru_loop_stop(l->loop);
        }
    }
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    (void)events;
    (void)now;
    launcher *l = self;
    ru_loop_fd_off(l->loop, fd);
    l->stopping = true;
    signal_all(l, SIGINT);
}

/* -- the job ----------------------------------------------------------------------------------- */

/* Disjoint cores for every worker, when there are enough; else nobody is pinned. */
static ru_status share_cores(launcher *l, ru_err *err)
{
    uint32_t cores = ru_pool_cores(), asked = threads_asked(l);
    l->threads = asked != 0 ? asked : cores / l->opt->n_start;
    l->threads = l->threads > 0 ? l->threads : 1;
    uint32_t ids[64], n = ru_thread_cores_list(ids, 64);
    while (n > 0 && ids[n - 1] > 63) {
        n--;
    }
    if ((uint64_t)l->threads * l->opt->n_start > n || l->threads > n) {
        return RU_OK;
    }
    l->cores = RU_NEW(l->arena, uint64_t, l->opt->n_max);
    if (l->cores == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the launcher");
    }
    for (uint32_t k = 0; k < l->opt->n_max; k++) {
        for (uint32_t t = 0; t < l->threads && (k + 1) * l->threads <= n; t++) {
            l->cores[k] |= UINT64_C(1) << ids[k * l->threads + t];
        }
    }
    return RU_OK;
}

/* The run directory, which the children claim with the same token. */
static ru_status open_place(launcher *l, ru_err *err)
{
    char *token = ru_arena_zalloc(l->arena, 2 * RU_TOKEN_BYTES + 1, 1);
    if (token == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the launcher");
    }
    ru_token_make(token);
    l->token = l->opt->token != NULL ? l->opt->token : token;
    uint64_t key = ru_worker_key((const uint8_t *)l->token, (uint32_t)strlen(l->token));
    if (l->opt->app != NULL) {
        const ru_app_train_options ao = {
            .file = l->opt->app, .out = l->opt->train->out, .resume = l->opt->train->resume};
        RU_TRY(ru_app_place(&ao, key, l->arena, &l->place.out, &l->place.claim, err));
    } else {
        RU_TRY(ru_train_dir(l->opt->train, key, l->arena, &l->place, err));
    }
    l->out = l->place.out;
    const char *path = ru_path_join(l->arena, l->out, "token");
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the launcher");
    }
    if (l->opt->join == NULL) { /* else whoever founded the job keeps it for those who join */
        RU_TRY(ru_file_secret(path, l->token, (int64_t)strlen(l->token), err));
    }
    const ru_run_opened *o = &l->opt->train->opened;
    return o->fn != NULL ? o->fn(o->self, l->out, err) : RU_OK;
}

static ru_status run(launcher *l, ru_err *err)
{
    l->children = RU_NEW(l->arena, child, SPAWNS_MAX);
    if (l->children == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the launcher");
    }
    RU_TRY(open_place(l, err));
    RU_TRY(share_cores(l, err));
    RU_TRY(ru_loop_open(&l->loop, err));
    const ru_fold_options fo = {.workers_max = RU_WORKERS_MAX, .line = show_line, .self = l};
    RU_TRY(ru_fold_open(&fo, l->arena, &l->fold, err));
    int fd = ru_self_stop_fd();
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(l->loop, fd, 1, on_stop, l, err));
    }
    if (l->opt->join != NULL) {
        RU_TRY(join_all(l, l->opt->join, err));
    } else {
        RU_TRY(start(l, 0, NULL, false, err));
    }
    RU_TRY(ru_loop_run(l->loop, err));
    if (l->status != RU_OK) {
        return ru_err_set(err, l->status, "%s", l->err.text);
    }
    return RU_OK;
}

ru_status ru_launch(const ru_launch_options *opt, ru_arena *arena, ru_launch_result *out,
                    ru_err *err)
{
    launcher l = {
        .opt = opt, .arena = arena, .exe = "/proc/self/exe", .live.columns = opt->train->columns};
    ru_status st = run(&l, err);
    if (l.fold != NULL) {
        ru_fold_flush(l.fold);
        ru_live_clear(&l.live);
    }
    for (uint32_t k = 0; k < l.n_children; k++) {
        ru_process_close(l.children[k].p);
        ru_log_file_close(l.children[k].log);
    }
    ru_loop_close(l.loop);
    if (st == RU_OK && l.summary && l.out != NULL &&
        opt->app == NULL) { /* all traces of this machine are whole now */
        ru_op_facts_fold(l.out);
    }
    ru_claim_close(l.place.claim);
    *out = (ru_launch_result){.out = l.out,
                              .code = l.summary     ? (l.told_end ? 0 : l.led_code)
                                      : l.code != 0 ? l.code
                                      : l.stopping  ? 0
                                                    : 1};
    return st;
}
