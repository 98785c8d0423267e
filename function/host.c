#include "function/host.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/process/group.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "web/post.h"

enum { ARGS_MAX = 60, LINE_BYTES = 512, READ = 1 /* EPOLLIN */ };

/* A call, until it is answered and no request carries its body. */
typedef struct calling {
    struct calling *next, **at; /* of all */
    ru_function_host *host;
    ru_function_done_fn done; /* NULL: answered */
    void *self;
    uint32_t posts; /* under way */
    int64_t n;
    char body[]; /* [n] */
} calling;

/* A request under way. */
typedef struct asking {
    struct asking *next, **at; /* of all */
    ru_function_host *host;
    calling *of;
    uint32_t instance, try;
} asking;

/* A process. */
typedef struct member {
    ru_function_host *host;
    uint32_t index;
    ru_process *process; /* NULL: none */
    ru_group *group;
    uint32_t try; /* of its call */
    int fd;
    char line[LINE_BYTES]; /* [n_line] of its output */
    uint32_t n_line;
    char url[LINE_BYTES]; /* "": it does not answer yet */
} member;

/* An event that waits for the effects of the one before it. */
typedef struct later {
    struct later *next;
    ru_event ev;
    uint8_t data[sizeof(ru_function_call) > sizeof(ru_function_reply) ? sizeof(ru_function_call)
                                                                      : sizeof(ru_function_reply)];
} later;

struct ru_function_host {
    ru_function_host_options opt;
    ru_arena *arena;
    ru_arena fx_arena;
    ru_effects fx;
    ru_functions *machine;
    ru_posts *posts;
    member *members; /* [pool.instances_max] of processes */
    calling *calls;
    asking *asked;
    const char *url; /* of the endpoint's function */
    uint32_t lacks;  /* RU_GROUP_* that are not bounded */
    bool told, closing, stepping;
    later *first, **last; /* what follows from the effects that are performed */
    const char *text;     /* of the answer that is being told */
    int64_t n_text;
    char why[RU_ERR_TEXT_MAX];
};

static void step(ru_function_host *h, ru_event ev);

static void say(ru_function_host *h, ru_function_word word, uint32_t instance, uint32_t try,
                ru_function_result result)
{
    const ru_function_reply r = {.instance = instance, .try = try, .result = result};
    step(h, (ru_event){
                .kind = RU_EV_LOCAL, .what = (uint32_t)word, .data = &r, .size_bytes = sizeof r});
}

/* -- processes ---------------------------------------------------------------------------------
 */

static void forget(member *m)
{
    ru_err err;
    if (m->process != NULL) {
        ru_loop_fd_off(m->host->opt.loop, m->fd);
        ru_process_close(m->process);
    }
    if (m->group != NULL && ru_group_remove(m->group, &err) != RU_OK) {
        ru_log(RU_LOG_DEBUG, "function", "group_stays", "%s", err.text);
    }
    ru_group_close(m->group);
    m->process = NULL;
    m->group = NULL;
    m->url[0] = '\0';
    m->n_line = 0;
}

/* Its output has ended: so has it, or it ends now. */
static void ended(member *m)
{
    ru_function_host *h = m->host;
    ru_group_figures f = {.oom_kills = -1};
    ru_process_kill(m->process, SIGKILL);
    int code = ru_process_wait(m->process);
    if (m->group != NULL) {
        ru_group_read(m->group, &f);
    }
    bool memory = f.oom_kills > 0 || code == ru_status_exit_code(RU_E_MEM);
    (void)snprintf(h->why, sizeof h->why, "process %lld of the function ended with code %d%s",
                   (long long)ru_process_id(m->process), code,
                   memory ? ": it has too little memory" : "");
    if (code != 128 + SIGKILL || memory) {
        ru_log(RU_LOG_WARN, "function", "instance_ended", "%s", h->why);
    }
    forget(m);
    say(h, RU_FUNCTION_DOWN, m->index, 0, memory ? RU_FUNCTION_MEMORY : RU_FUNCTION_DIED);
}

/* "http://HOST:PORT/... answers": it is up. */
static void on_output(void *self, int fd, uint32_t events, ru_time now)
{
    member *m = self;
    (void)fd;
    (void)events;
    (void)now;
    int64_t n = ru_process_read(m->process, false, m->line + m->n_line,
                                (int64_t)sizeof m->line - m->n_line);
    if (n < 0) {
        ended(m);
        return;
    }
    m->n_line += (uint32_t)n;
    const char *end = memchr(m->line, '\n', m->n_line);
    const char *blank = memchr(m->line, ' ', m->n_line);
    if (m->url[0] == '\0' && end != NULL && blank != NULL && blank < end) {
        (void)snprintf(m->url, sizeof m->url, "%.*s", (int)(blank - m->line), m->line);
        step(m->host,
             (ru_event){.kind = RU_EV_LOCAL, .what = RU_FUNCTION_UP, .value = (int64_t)m->index});
    }
    m->n_line = m->n_line == sizeof m->line || end != NULL ? 0 : m->n_line;
}

/* One sentence about what is not bounded. */
static void tell_lacks(ru_function_host *h, uint32_t lacks, const ru_err *err)
{
    h->lacks |= lacks;
    if (lacks != 0 && !h->told) {
        h->told = true;
        ru_log(RU_LOG_WARN, "function", "unbounded",
               "control groups do not bound the %s of functions on this machine%s: %s",
               ru_group_names(lacks),
               (lacks & RU_GROUP_MEMORY) != 0 ? "; their address space is bounded instead" : "",
               err->text);
    }
}

static ru_status start(member *m, uint32_t memory_mb, ru_err *err)
{
    ru_function_host *h = m->host;
    const char *argv[ARGS_MAX + 3];
    char memory[24], name[64];
    uint32_t n = 0, lacks = 0;
    const int64_t period_ns = 10000000, bytes = (int64_t)memory_mb << 20;
    while (n < ARGS_MAX && h->opt.argv[n] != NULL) {
        argv[n] = h->opt.argv[n];
        n++;
    }
    (void)snprintf(memory, sizeof memory, "%u", memory_mb);
    (void)snprintf(name, sizeof name, "rubato-function-%lld-%u", (long long)ru_self_pid(),
                   m->index);
    argv[n++] = "--memory";
    argv[n++] = memory;
    argv[n] = NULL;
    const ru_group_limits limits = {.cpu_quota_ns = period_ns * memory_mb / RU_FUNCTION_CORE_MB,
                                    .cpu_period_ns = period_ns,
                                    .memory_bytes = bytes};
    RU_TRY(ru_group_make(name, &limits, NULL, &lacks, &m->group, err));
    tell_lacks(h, lacks, err);
    const ru_process_options o = {
        .argv = argv, .pipe_out = true, .own_group = true, .group = m->group};
    RU_TRY(ru_process_start(&o, &m->process, err));
    if ((lacks & RU_GROUP_MEMORY) != 0) {
        ru_process_bound_space(m->process, bytes);
    }
    m->fd = ru_process_fd(m->process, false);
    return ru_loop_fd(h->opt.loop, m->fd, READ, on_output, m, err);
}

static void spawn(ru_function_host *h, const ru_function_order *o)
{
    member *m = &h->members[o->instance];
    ru_err err = {0};
    if (start(m, o->memory_mb, &err) != RU_OK) {
        (void)snprintf(h->why, sizeof h->why, "no instance starts: %.600s", err.text);
        ru_log(RU_LOG_WARN, "function", "no_start", "%s", err.text);
        forget(m);
        say(h, RU_FUNCTION_DOWN, o->instance, 0, RU_FUNCTION_DIED);
    }
}

/* -- calls -------------------------------------------------------------------------------------
 */

static void calling_drop(calling *c)
{
    if (c->done == NULL && c->posts == 0) {
        *c->at = c->next;
        if (c->next != NULL) {
            c->next->at = c->at;
        }
        free(c);
    }
}

static void asking_free(asking *q)
{
    *q->at = q->next;
    if (q->next != NULL) {
        q->next->at = q->at;
    }
    free(q);
}

static void on_answer(void *self, const ru_post_answer *a)
{
    asking *q = self;
    ru_function_host *h = q->host;
    calling *c = q->of;
    uint32_t instance = q->instance, try = q->try;
    asking_free(q);
    if (h->members != NULL && a->status == 0) { /* what it does now is unknown: its end says why */
        if (h->members[instance].process != NULL && h->members[instance].try == try) {
            ru_process_kill(h->members[instance].process, SIGKILL);
        }
    } else {
        bool failed = a->note[0] != '\0';
        bool killed = failed && strstr(a->text, "signal: killed") != NULL;
        ru_function_result r = a->status == 429   ? RU_FUNCTION_THROTTLED
                               : a->status != 200 ? RU_FUNCTION_FAULT
                               : killed           ? RU_FUNCTION_MEMORY
                               : failed           ? RU_FUNCTION_ERROR
                                                  : RU_FUNCTION_OK;
        if (a->status == 0) {
            (void)snprintf(h->why, sizeof h->why, "%s: %s", h->url, a->why);
        } else if (r != RU_FUNCTION_OK) {
            (void)snprintf(h->why, sizeof h->why, "%s: status %ld%s%s: %.*s",
                           h->url != NULL ? h->url : "a function of this machine", a->status,
                           failed ? ", " : "", a->note, (int)(a->n < 300 ? a->n : 300), a->text);
        }
        h->text = a->text;
        h->n_text = a->n;
        say(h, RU_FUNCTION_REPLY, instance, try, r);
    }
    c->posts--;
    calling_drop(c);
}

static void invoke(ru_function_host *h, const ru_function_order *o)
{
    calling *c = (calling *)(uintptr_t)o->id;
    asking *q = calloc(1, sizeof *q);
    ru_err err = {0};
    bool remote = h->members == NULL;
    if (!remote) {
        h->members[o->instance].try = o->try;
    }
    const ru_post post = {.url = remote ? h->url : h->members[o->instance].url,
                          .body = c->body,
                          .body_bytes = c->n,
                          .type = "application/json",
                          .note = "X-Amz-Function-Error",
                          .patience_ms = o->left_ns > 0 ? o->left_ns / 1000000 + 1 : 0,
                          .done = on_answer,
                          .self = q};
    ru_status st = q != NULL ? RU_OK : RU_FAIL(&err, RU_E_MEM, "no memory for a call");
    if (st == RU_OK) {
        *q = (asking){.next = h->asked,
                      .at = &h->asked,
                      .host = h,
                      .of = c,
                      .instance = o->instance,
                      .try = o->try};
        if (q->next != NULL) {
            q->next->at = &q->next;
        }
        h->asked = q;
        st = ru_posts_send(h->posts, &post, &err);
    }
    if (st == RU_OK) {
        c->posts++;
        return;
    }
    if (q != NULL) {
        asking_free(q);
    }
    (void)snprintf(h->why, sizeof h->why, "%.700s", err.text);
    say(h, RU_FUNCTION_REPLY, o->instance, o->try, RU_FUNCTION_FAULT);
}

static void tell(ru_function_host *h, const ru_function_answer *a)
{
    calling *c = (calling *)(uintptr_t)a->id;
    ru_function_done_fn done = c->done;
    bool own = a->result != RU_FUNCTION_THROTTLED && a->result != RU_FUNCTION_LATE;
    const ru_function_outcome o = {
        .answer = *a,
        .text = h->text != NULL ? h->text : "",
        .n = h->n_text,
        .why = own && h->why[0] != '\0' ? h->why : ru_function_result_text(a->result)};
    c->done = NULL;
    done(c->self, &o);
    calling_drop(c);
}

/* -- the machine -------------------------------------------------------------------------------
 */

static void on_timer(void *self, uint32_t what, ru_time now)
{
    (void)now;
    step(self, (ru_event){.kind = RU_EV_TIMER, .what = what});
}

static void perform(ru_function_host *h, const ru_effect *fx)
{
    ru_loop *loop = h->opt.loop;
    ru_function_order o = {0};
    if (fx->kind == RU_FX_TIMER) {
        ru_loop_timer(loop, on_timer, h, fx->what, fx->at);
    } else if (fx->kind == RU_FX_TIMER_OFF) {
        ru_loop_timer_off(loop, on_timer, h, fx->what);
    } else if (fx->what == RU_FUNCTION_ANSWER) {
        tell(h, fx->data);
    } else {
        memcpy(&o, fx->data, sizeof o);
        if (fx->what == RU_FUNCTION_SPAWN) {
            spawn(h, &o);
        } else if (fx->what == RU_FUNCTION_INVOKE) {
            invoke(h, &o);
        } else if (h->members[o.instance].process != NULL) {
            ru_process_kill(h->members[o.instance].process, SIGKILL);
        }
    }
}

static void once(ru_function_host *h, ru_event ev)
{
    ev.now = ru_clock_now();
    ru_functions_step(h->machine, &ev, &h->fx);
    for (uint32_t k = 0; k < h->fx.n; k++) {
        perform(h, &h->fx.at[k]);
    }
    ru_effects_clear(&h->fx);
}

/* What an effect leads to waits for those beside it. */
static void step(ru_function_host *h, ru_event ev)
{
    if (h->closing) {
        return;
    }
    if (h->stepping) {
        later *l = calloc(1, sizeof *l);
        RU_CHECK(l != NULL && ev.size_bytes <= (int64_t)sizeof l->data);
        l->ev = ev;
        if (ev.size_bytes > 0) {
            memcpy(l->data, ev.data, (size_t)ev.size_bytes);
        }
        *h->last = l;
        h->last = &l->next;
        return;
    }
    h->stepping = true;
    once(h, ev);
    h->text = NULL; /* the answer was told */
    h->n_text = 0;
    while (h->first != NULL) {
        later *l = h->first;
        h->first = l->next;
        h->last = h->first == NULL ? &h->first : h->last;
        l->ev.data = l->data;
        once(h, l->ev);
        free(l);
    }
    h->stepping = false;
}

/* -- from outside ------------------------------------------------------------------------------
 */

ru_status ru_function_host_call(ru_function_host *h, uint32_t memory_mb, const void *body,
                                int64_t body_bytes, ru_function_done_fn done, void *self,
                                ru_err *err)
{
    calling *c = malloc(sizeof *c + (size_t)body_bytes);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a call of %lld bytes", (long long)body_bytes);
    }
    *c = (calling){.next = h->calls, .at = &h->calls, .host = h, .done = done, .self = self};
    c->n = body_bytes;
    memcpy(c->body, body, (size_t)body_bytes);
    if (c->next != NULL) {
        c->next->at = &c->next;
    }
    h->calls = c;
    const ru_function_call ask = {.id = (uint64_t)(uintptr_t)c, .memory_mb = memory_mb};
    step(h, (ru_event){.kind = RU_EV_LOCAL,
                       .what = RU_FUNCTION_CALL,
                       .data = &ask,
                       .size_bytes = sizeof ask});
    return RU_OK;
}

static ru_status begin(ru_function_host *h, ru_err *err)
{
    uint32_t n = h->opt.pool.instances_max;
    h->opt.pool.remote = h->opt.url != NULL;
    h->opt.pool.what_first = 0;
    RU_TRY(ru_functions_init(&h->opt.pool, h->arena, &h->machine, err));
    RU_TRY(ru_posts_open(h->opt.loop, h->opt.sign ? "lambda" : NULL, h->arena, &h->posts, err));
    if (h->opt.url != NULL) {
        int64_t size = (int64_t)strlen(h->opt.url);
        size -= size > 0 && h->opt.url[size - 1] == '/' ? 1 : 0;
        h->url = ru_arena_printf(h->arena, "%.*s/2015-03-31/functions/%s/invocations", (int)size,
                                 h->opt.url, h->opt.name);
        return h->url != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for functions");
    }
    h->members = RU_NEW(h->arena, member, n);
    if (h->members == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u instances", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        h->members[k] = (member){.host = h, .index = k, .fd = -1};
    }
    return RU_OK;
}

ru_status ru_function_host_open(const ru_function_host_options *opt, ru_arena *arena,
                                ru_function_host **out, ru_err *err)
{
    ru_function_host *h = RU_NEW(arena, ru_function_host, 1);
    if (h == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for functions");
    }
    *h = (ru_function_host){.opt = *opt, .arena = arena};
    h->last = &h->first;
    ru_arena_init(&h->fx_arena, 0);
    ru_effects_init(&h->fx, &h->fx_arena);
    ru_status st = begin(h, err);
    if (st != RU_OK) {
        ru_function_host_close(h);
        return st;
    }
    *out = h;
    return RU_OK;
}

void ru_function_host_close(ru_function_host *h)
{
    if (h == NULL) {
        return;
    }
    h->closing = true;
    for (uint32_t k = 0; h->members != NULL && k < h->opt.pool.instances_max; k++) {
        forget(&h->members[k]);
    }
    ru_loop_timer_off(h->opt.loop, on_timer, h, RU_FUNCTION_TIMER);
    ru_posts_close(h->posts);
    while (h->asked != NULL) {
        asking_free(h->asked);
    }
    while (h->calls != NULL) {
        calling *c = h->calls;
        h->calls = c->next;
        free(c);
    }
    ru_arena_fini(&h->fx_arena);
}

ru_function_meter ru_function_host_meter(const ru_function_host *h)
{
    return ru_functions_meter(h->machine);
}

const char *ru_function_host_lacks(const ru_function_host *h)
{
    return h->lacks != 0 ? ru_group_names(h->lacks) : "";
}
