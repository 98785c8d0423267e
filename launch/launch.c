#include "launch/launch_impl.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/file/claim.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "env/thread.h"
#include "exec/pool.h"
#include "train/driver/op_facts.h"

enum { EARLY_MAX_BYTES = 1 << 14, SPAWNS_MAX = 10000 };
#define DRAW_NS INT64_C(90000000) /* every worker here tells its progress ten times a second */
enum { SSH_FAILED = 255, SIGNALS_MAX = 64 };
/* From the end of the first worker after the job to that of those who do not notice it: whose host
 * is gone, who was suspended, who still wants to join. Traces on their way take one second. */
#define LINGER_NS INT64_C(5000000000)
/* The same when one that reports runs elsewhere: a connection that is held on this side would never
 * end. Its worker does not need the connection for its last checkpoint. */
#define REPORT_NS INT64_C(600000000000)
/* From the end of a member to a view without it, if the job goes on: its silence is certain after
 * 0.7 s. More than a moment of a busy machine. */
#define DOUBT_NS INT64_C(10000000000)
/* From when all others are there. A spare looks for its job five times a second, and opens data and
 * model anew, as the others did. */
#define SPARES_NS INT64_C(30000000000)

/* -- lines of children ------------------------------------------------------------------------- */

/* A line of the launcher's own, for people. */
RU_PRINTF(2, 3) static void say(rui_launcher *l, const char *fmt, ...)
{
    ru_live_clear(&l->live);
    va_list ap;
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
}

static void start_others(rui_launcher *l, const char *address);

/* The number by which workers and people know it; before that, how many were started. */
static uint32_t number_of(const rui_child *c)
{
    return c->number > 0 ? c->number : c->rank;
}

/* OUT/log.<number>, or OUT/log.start-<rank> of one that never was a worker. A newcomer has the
 * number of the one before it in a resumed run only: else it is a new file. */
static void open_log(rui_child *c)
{
    rui_launcher *l = c->l;
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

static void on_number(rui_child *c, int64_t number)
{
    rui_launcher *l = c->l;
    if (number > 0 && number <= UINT32_MAX && c->number != (uint32_t)number) {
        ru_fold_end(l->fold, number_of(c), ru_clock_now());
        ru_log_file_close(c->log); /* it came back under another number */
        c->log = NULL;
        c->number = (uint32_t)number;
        open_log(c);
        if (l->stopping && l->opt->again) { /* now it can tell the job, which saves */
            ru_process_kill(c->p, SIGINT);
        }
    }
}

static void on_address(rui_child *c, const char *address)
{
    rui_launcher *l = c->l;
    if (!ru_link_tcp_address_ok(address)) {
        return;
    }
    (void)snprintf(c->address, sizeof c->address, "%s", address);
    if (!l->founded) {
        start_others(l, c->address);
    }
}

/* False: two leaders told it, of whom one did not know yet that it leads no more. */
static bool is_new(rui_launcher *l, const ru_msg *m)
{
    if (m->kind == RU_MSG_STEP) {
        bool later = m->step.step > l->told;
        l->begun = true;
        l->told = later ? m->step.step : l->told;
        return later;
    }
    if (m->kind == RU_MSG_EVAL) { /* those that start again may come to one that was told */
        bool later = m->eval.step > l->told_eval || l->opt->sets == NULL;
        l->told_eval = later ? m->eval.step : l->told_eval;
        return later;
    }
    l->told_end = l->told_end || m->kind == RU_MSG_SUMMARY;
    l->summary = l->summary || l->told_end;
    return true;
}

static void on_view(rui_launcher *l, const ru_msg_view *view);
static void end_all(rui_launcher *l);

/* A message of a worker; what has a JSON form is told with --json. */
static void on_message(void *self, const ru_msg *m)
{
    rui_child *c = self;
    rui_launcher *l = c->l;
    char line[RU_MSG_BYTES_MAX];
    ru_text t = ru_text_into(line, sizeof line);
    switch (m->kind) {
    case RU_MSG_START:
    case RU_MSG_STEP:
    case RU_MSG_EVAL:
    case RU_MSG_EVENT:
    case RU_MSG_SUMMARY:
        c->led = true;
        c->told_end = c->told_end || m->kind == RU_MSG_SUMMARY;
        l->leads = c;
        if (is_new(l, m) && l->opt->train->json) {
            ru_msg_json(m, &t);
            ru_self_tell(t.p, t.cut ? 0 : t.n);
        }
        if (m->kind == RU_MSG_STEP && l->opt->told_step != NULL && !l->ends_all && !l->stopping &&
            l->opt->told_step(l->opt->self, l->out, m->step.step_s)) {
            end_all(l);
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

static void fold_again(rui_launcher *l, ru_time now)
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
static void on_errors(rui_child *c, const char *bytes, int64_t n)
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

static void read_all(rui_child *c, bool errors)
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
    rui_child *c = self;
    read_all(c, fd == ru_process_fd(c->p, true));
}

/* -- children ---------------------------------------------------------------------------------- */

static void fail(rui_launcher *l, ru_status st, const ru_err *err)
{
    if (l->status == RU_OK) {
        l->status = st;
        l->err = *err;
    }
    ru_loop_stop(l->loop);
}

static void on_end(void *self, int64_t pid, ru_time now);
static ru_status start_at(rui_launcher *l, uint32_t slot, const char *host, const char *join,
                          bool newcomer, ru_err *err);

static ru_status start(rui_launcher *l, uint32_t slot, const char *join, bool newcomer, ru_err *err)
{
    return start_at(l, slot, NULL, join, newcomer, err);
}

static ru_status start_at(rui_launcher *l, uint32_t slot, const char *host, const char *join,
                          bool newcomer, ru_err *err)
{
    if (l->n_children == SPAWNS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "%d workers were started and failed one after another; look into their logs "
                       "for the cause",
                       SPAWNS_MAX);
    }
    rui_child *c = &l->children[l->n_children];
    *c = (rui_child){.l = l, .rank = l->n_children + 1, .slot = slot, .host = host};
    c->in = RU_NEW(l->arena, ru_msg_in, 1);
    c->early.at = ru_arena_alloc(l->arena, EARLY_MAX_BYTES, 1);
    const char *token = ru_arena_printf(l->arena, "RUBATO_TOKEN=%s", l->token);
    if (c->in == NULL || c->early.at == NULL || token == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to start a worker");
    }
    *c->in = (ru_msg_in){.message = on_message, .text = on_text, .self = c};
    rui_words w = {.arena = l->arena};
    if (host != NULL) {
        rui_remote_line(l, c, join, &w);
    } else {
        rui_command_line(l, c, join, newcomer, &w);
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
        const char *line = ru_arena_printf(l->arena, "%s\n", l->token);
        ru_status st = line != NULL ? ru_process_write(c->p, line, (int64_t)strlen(line), err)
                                    : RU_FAIL(err, RU_E_MEM, "not enough memory to start a worker");
        RU_TRY(st == RU_E_PEER ? RU_OK : st); /* it has ended: on_end will hear why */
    }
    l->n_children++;
    l->n_alive++;
    c->alive = true;
    ru_fold_workers(l->fold, l->n_alive, ru_clock_now());
    RU_TRY(ru_loop_fd(l->loop, ru_process_fd(c->p, false), 1 /* EPOLLIN */, on_fd, c, err));
    RU_TRY(ru_loop_fd(l->loop, ru_process_fd(c->p, true), 1, on_fd, c, err));
    return ru_loop_child(l->loop, ru_process_id(c->p), on_end, c, err);
}

static void start_others(rui_launcher *l, const char *address)
{
    ru_err err = {0};
    l->founded = true;
    if (l->opt->open && !l->opt->again && !l->opt->train->quiet) {
        say(l, "to add a worker, run: rubato worker --join %s --token-file %s", address,
            ru_path_join(l->arena, l->out, "token"));
    }
    if (l->opt->weights != NULL && !l->opt->train->quiet) {
        say(l,
            "to use its weights while it trains: rubato predict - --from HOST:PORT (%s) "
            "--token-file %s",
            l->opt->weights, ru_path_join(l->arena, l->out, "weights-token"));
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

static void signal_all(rui_launcher *l, int sig)
{
    for (uint32_t k = 0; k < l->n_children; k++) {
        if (l->children[k].alive) {
            ru_process_kill(l->children[k].p, sig);
        }
    }
}

/* Workers of the job, with those of other launchers and those that joined by hand. */
static uint32_t workers_now(const rui_launcher *l)
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
static uint32_t free_slot(const rui_launcher *l)
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
static const char *contact(const rui_launcher *l)
{
    for (uint32_t k = 0; k < l->n_children; k++) {
        if (l->children[k].alive && l->children[k].address[0] != 0) {
            return l->children[k].address;
        }
    }
    return l->outside[0] != 0 ? l->outside : NULL;
}

/* Fewer than the least number live: somebody new. */
static void refill(rui_launcher *l)
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

static void on_spares_time(void *self, uint32_t what, ru_time now);

static void on_view(rui_launcher *l, const ru_msg_view *view)
{
    if (view->spares >= 0 && l->opt->parts) { /* its leader tells it */
        uint32_t n = (uint32_t)view->spares;
        if (n > l->spares && l->begun && !l->opt->train->quiet) { /* before, members come back */
            say(l, "spares that wait for a place: %u", n);
        }
        l->spares = n;
        if (view->n < l->opt->n_max) { /* those who had joined are missing */
            ru_loop_timer(l->loop, on_spares_time, l, 0, ru_time_after(ru_clock_now(), SPARES_NS));
        }
        if (l->opt->told_spares != NULL) {
            l->opt->told_spares(l->opt->self, l->spares);
        }
    }
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

/* Does any worker run that was started on this machine; `new`: and that is not in the job yet? */
static bool any_here(const rui_launcher *l, bool new)
{
    bool here = false;
    for (uint32_t k = 0; k < l->n_children; k++) {
        const rui_child *c = &l->children[k];
        here = here || (c->alive && c->host == NULL && (!new || c->number == 0));
    }
    return here;
}

/* Is any worker left that has been in the job? Newcomers cannot join one that has no members. */
static bool job_lives(const rui_launcher *l)
{
    bool lives = false;
    uint32_t outside = l->view.n;
    for (uint32_t k = 0; k < l->n_children; k++) {
        const rui_child *c = &l->children[k];
        lives = lives || (c->alive && c->number > 0);
        for (uint32_t i = 0; i < l->view.n; i++) {
            outside -= c->number > 0 && l->view.numbers[i] == c->number;
        }
    }
    return lives || outside > 0;
}

/* The first worker could not listen: another launcher of this machine was a moment earlier. */
static bool found_taken(const rui_launcher *l, const rui_child *c, int code)
{
    return l->opt->join_if_taken != NULL && c->rank == 1 && !l->founded &&
           code == ru_status_exit_code(RU_E_PEER);
}

static ru_status join_all(rui_launcher *l, const char *address, ru_err *err)
{
    l->founded = true;
    for (uint32_t k = 0; k < l->opt->n_start; k++) {
        RU_TRY(start(l, k, address, true, err));
    }
    return RU_OK;
}

static void join_instead(rui_launcher *l)
{
    ru_err err = {0};
    l->code = 0;
    say(l, "another launcher has started the job at %s; joining it", l->opt->join_if_taken);
    ru_status st = join_all(l, l->opt->join_if_taken, &err);
    if (st != RU_OK) {
        fail(l, st, &err);
    }
}

/* Whoever has not ended by now does not know that the job has. */
static void end_rest(rui_launcher *l)
{
    for (uint32_t k = 0; k < l->n_children; k++) {
        const rui_child *c = &l->children[k];
        if (c->alive && c->host != NULL) {
            say(l,
                "the job has ended, but %s does not answer; the worker that was started there may "
                "still run",
                c->host);
        } else if (c->alive) {
            say(l, "worker %u (pid %lld) did not end with the job; ending it", number_of(c),
                (long long)ru_process_id(c->p));
        }
    }
    ru_loop_stop(l->loop); /* ru_launch kills what lives */
}

static void on_linger(void *self, uint32_t what, ru_time now)
{
    (void)what;
    (void)now;
    end_rest(self);
}

/* A member ended, and nobody that was started here tells a view without it: the others are on hosts
 * that vanished, or have ended with it. Only a suspended worker of this machine may still go on
 * after one that was killed. */
static void on_doubt(void *self, uint32_t what, ru_time now)
{
    (void)what;
    rui_launcher *l = self;
    if (l->doubted != l->view.epoch || l->summary || l->stopping) {
        return;
    }
    if (any_here(l, true)) { /* the others may wait for it */
        ru_loop_timer(l->loop, on_doubt, l, 0, ru_time_after(now, DOUBT_NS));
    } else if (l->decided || !any_here(l, false)) {
        end_rest(l);
    }
}

static void doubt(rui_launcher *l, const rui_child *c, bool decided, ru_time now)
{
    bool member = false;
    for (uint32_t i = 0; i < l->view.n && c->number > 0; i++) {
        member = member || l->view.numbers[i] == c->number;
    }
    if (member) {
        l->decided = decided || (l->decided && l->doubted == l->view.epoch);
        l->doubted = l->view.epoch;
        ru_loop_timer(l->loop, on_doubt, l, 0, ru_time_after(now, DOUBT_NS));
    }
}

/* A worker ended after the job: the rest has a moment, but who reports has all the time that its
 * last checkpoint takes; elsewhere, REPORT_NS. */
static void linger(rui_launcher *l, ru_time now)
{
    bool reports = l->leads != NULL && l->leads->alive;
    if (!l->lingers && (!reports || l->leads->host != NULL)) {
        l->lingers = !reports;
        ru_loop_timer(l->loop, on_linger, l, 0,
                      ru_time_after(now, reports ? REPORT_NS : LINGER_NS));
    }
}

/* What this launcher started is gone, and the job goes on elsewhere. */
static void say_who_goes_on(rui_launcher *l)
{
    uint32_t n = workers_now(l);
    if (l->outside[0] != 0) {
        say(l,
            "all workers of this command have ended; the job goes on with %u other%s, one of them "
            "at %s. To add workers: rubato worker --join %s --token-file %s/token",
            n, n == 1 ? "" : "s", l->outside, l->outside, l->out);
    } else {
        say(l, "all workers of this command have ended; the job goes on with %u other%s", n,
            n == 1 ? "" : "s");
    }
}

/* How a worker ended, for people. */
static void say_end(rui_launcher *l, const rui_child *c, int code)
{
    bool over = l->stopping || l->summary || l->ends_all;
    if (c->host != NULL && code == SSH_FAILED && !over && c->number > 0) {
        say(l, "the connection to %s, where worker %u runs, ended", c->host, c->number);
    } else if (c->host != NULL && code == SSH_FAILED && !over) {
        say(l, "no worker started on %s; see the message of ssh above", c->host);
    } else if (c->host != NULL && code == ru_status_exit_code(RU_E_PEER) && !l->begun) {
        say(l,
            "%s cannot reach this machine at that address; give --listen HOST:0 with an address "
            "that it can reach",
            c->host);
    } else if (code > 128 && code <= 128 + SIGNALS_MAX && !over) {
        say(l, "worker %u (pid %lld) was ended by signal %d", number_of(c),
            (long long)ru_process_id(c->p), code - 128);
    }
}

/* A stage or a device is missing, so nobody goes on: all start again (launch/way.c). */
static void end_all(rui_launcher *l)
{
    if (l->n_alive == 0) {
        ru_loop_stop(l->loop);
    } else if (!l->ends_all) {
        l->ends_all = true;
        signal_all(l, SIGKILL);
    }
}

static void on_end(void *self, int64_t pid, ru_time now)
{
    (void)pid;
    rui_child *c = self;
    rui_launcher *l = c->l;
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
    bool decided = code != 0 && !by_signal && code != ru_status_exit_code(RU_E_PEER) && !ssh_failed;
    if (c->led && decided) {
        l->led_code = code; /* the others may have ended well before its last evaluation failed */
    }
    l->end_code = c->told_end && !by_signal ? code : l->end_code;
    say_end(l, c, code);
    bool no_host = ssh_failed && l->opt->again && c->number == 0 && !l->ends_all;
    bool gone = by_signal || code == ru_status_exit_code(RU_E_PEER) || no_host;
    l->n_lost += by_signal && c->host == NULL && !l->ends_all;
    l->no_host = no_host ? c->host : l->no_host;
    bool misses = l->begun || l->opt->again || (by_signal && l->opt->sets != NULL);
    l->lost = l->lost || (gone && misses && (!l->stopping || ru_self_stop_asked() != 0));
    bool over = l->summary || l->stopping;
    if (!over && l->lost && l->opt->sets != NULL) {
        end_all(l);
    } else if (!over && found_taken(l, c, code)) {
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
        doubt(l, c, decided, now);
        refill(l);
        if (l->n_alive == 0) { /* others go on, and are enough */
            say_who_goes_on(l);
            ru_loop_stop(l->loop);
        }
    } else {
        linger(l, now);
    }
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    (void)events;
    rui_launcher *l = self;
    ru_loop_fd_off(l->loop, fd);
    l->stopping = true;
    bool here = false; /* who is in the job, which it can tell */
    for (uint32_t k = 0; k < l->n_children; k++) {
        const rui_child *c = &l->children[k];
        here = here || (c->alive && c->host == NULL && c->number > 0);
    }
    for (uint32_t k = 0; k < l->n_children; k++) {
        const rui_child *c = &l->children[k];
        /* The job tells its members elsewhere; their ssh stays, to end with them or to show that
         * nothing comes from there any more. Those that start again have copies of the state, which
         * would be lost with them, so they are told when they are in (on_number). */
        bool waits = l->opt->again && c->number == 0;
        if (c->alive && !waits && (c->host == NULL || c->number == 0 || !here)) {
            ru_process_kill(c->p, SIGINT);
        }
    }
    if (!here && !l->opt->again) { /* nobody's end will tell that the others should have ended */
        linger(l, now);
    }
}

/* Those who had joined are not there again: nobody waits for them. */
static void on_spares_time(void *self, uint32_t what, ru_time now)
{
    (void)what;
    (void)now;
    rui_launcher *l = self;
    if (l->view.n < l->opt->n_max && !l->ends_all) {
        say(l, "a worker that had joined does not come back");
        l->lost = l->no_spare = true;
        end_all(l);
    }
}

/* -- the job ----------------------------------------------------------------------------------- */

static ru_status run(rui_launcher *l, ru_err *err)
{
    l->children = RU_NEW(l->arena, rui_child, SPAWNS_MAX);
    if (l->children == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the launcher");
    }
    RU_TRY(rui_open_place(l, err));
    RU_TRY(rui_share_cores(l, err));
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
    rui_launcher l = {.opt = opt,
                      .arena = arena,
                      .exe = "/proc/self/exe",
                      .doubted = -1,
                      .told = opt->told,
                      .told_eval = opt->told_eval,
                      .live.columns = opt->train->columns};
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
                              .code = l.summary     ? (l.told_end ? l.end_code : l.led_code)
                                      : l.code != 0 ? l.code
                                      : l.stopping  ? 0
                                                    : 1,
                              .lost = l.lost && !l.summary,
                              .step = l.told,
                              .no_host = l.no_host,
                              .n_lost = l.n_lost,
                              .spares = l.spares,
                              .no_spare = l.no_spare,
                              .at = l.children != NULL && l.children[0].address[0] != 0
                                        ? ru_arena_str(arena, l.children[0].address)
                                        : opt->at,
                              .eval_step = l.told_eval};
    return st;
}
