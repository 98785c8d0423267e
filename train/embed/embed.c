/* The member in a process: the loop thread with shell and elastic training, and blocking calls over
 * the exchange of turns (device.c). */
#include "train/embed/embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "env/clock.h"
#include "host/shell.h"
#include "train/embed/device.h"
#include "train/embed/noise.h"

enum { XFERS_MAX = 1 << 15, LINE = 1 << 13, TOKEN_MIN = 16, TOKEN_MAX = 64, ALIGN = 64 };
#define BYE_NS   INT64_C(50000000)   /* what was said last is sent */
#define LEAVE_NS INT64_C(2000000000) /* the leader has not answered: gone without it */

struct ru_team {
    ru_team_options opt; /* texts and tables in the arena */
    ru_arena arena;
    ru_shell_options options;
    ru_shell shell;
    ru_spsc line;
    ru_elastic *elastic;
    ru_embed device;
    ru_thread thread;
    ru_cond changed; /* with device.lock */
    const ru_span *gradients;
    char *address;
    bool waits; /* loop thread: until the job lets it go */
    ru_embed_noise noise;
    ru_team_step now; /* that the program took */
    /* under device.lock */
    uint8_t *told; /* [n_gradients] ready in this step */
    uint32_t n_told;
    double squares; /* option noise: of those */
    uint32_t members, number;
    bool leads;
    ru_status why;
    char why_text[RU_ERR_TEXT_MAX];
};

/* -- the exchange ------------------------------------------------------------------------------ */

static void say(void *self, const ru_embed_event *e)
{
    ru_team *t = self;
    ru_shell_say(&t->shell, &t->line, e);
}

static void woken(void *self)
{
    ru_team *t = self;
    ru_cond_broadcast(&t->changed);
}

static const ru_embed_ops embed_ops = {.say = say, .woken = woken};

/* -- the loop thread --------------------------------------------------------------------------- */

static void end(ru_team *t, ru_status st, const char *why, int64_t wait_ns, ru_time now)
{
    if (!t->shell.ended) {
        ru_shell_end(&t->shell, st, why, now);
        ru_mutex_lock(&t->device.lock);
        t->why = st;
        (void)snprintf(t->why_text, sizeof t->why_text, "%s", why);
        ru_mutex_unlock(&t->device.lock);
        ru_embed_end(&t->device);
        ru_shell_bye(&t->shell, wait_ns, now);
    }
}

static void too_long(void *self, uint32_t what, ru_time now)
{
    (void)what;
    end(self, RU_E_PEER, "left without an answer of the job", 0, now);
}

static void said(void *self, const void *element, ru_time now, ru_effects *fx)
{
    ru_team *t = self;
    const ru_embed_event *e = element;
    if (e->kind == RU_EMBED_LEAVE && !t->waits) {
        t->waits = true;
        ru_loop_timer(t->shell.loop, too_long, t, 0, ru_time_after(now, LEAVE_NS));
    }
    ru_embed_said(&t->device, e, now, fx);
}

/* A signal that the program watches (ru_self_stop_watch). */
static void stop(void *self, bool all, ru_time now, ru_effects *fx)
{
    (void)all, (void)now, (void)fx;
    ru_team_leave(self);
}

static void on_news(void *self, const ru_elastic_news *n, ru_time now)
{
    ru_team *t = self;
    if (n->what == RU_ELASTIC_ENDED) {
        end(t, n->status, n->sentence != NULL ? n->sentence : "", BYE_NS, now);
        return;
    }
    if (n->what == RU_ELASTIC_MEMBER) {
        ru_shell_number(&t->shell, (uint32_t)n->a, n->b == 0);
    }
    if (n->what == RU_ELASTIC_LOST) {
        ru_log(RU_LOG_WARN, "train", "lost", "worker %lld was lost; the others continue",
               (long long)n->a);
    }
    const ru_member *m = ru_node_member(t->shell.timers.node);
    ru_mutex_lock(&t->device.lock);
    t->number = t->shell.number;
    t->members = ru_member_view(m)->n;
    t->leads = ru_member_leads(m);
    ru_mutex_unlock(&t->device.lock);
}

static void on_log(void *self, int level, const char *line, ru_time now)
{
    (void)self;
    (void)now;
    if (level >= RU_LOG_WARN) {
        ru_log((ru_log_level)level, "train", "team", "%s", line);
    }
}

static void run(void *self)
{
    ru_team *t = self;
    ru_err err = {0};
    ru_status st = ru_shell_run(&t->shell, &err);
    ru_mutex_lock(&t->device.lock);
    if (st != RU_OK) {
        t->why = st;
        (void)snprintf(t->why_text, sizeof t->why_text, "%s", err.text);
    }
    ru_mutex_unlock(&t->device.lock);
    ru_embed_end(&t->device);
}

/* -- opening ----------------------------------------------------------------------------------- */

static ru_status check(const ru_team_options *o, ru_err *err)
{
    size_t token = o->token != NULL ? strlen(o->token) : 0;
    if (token < TOKEN_MIN || token > TOKEN_MAX) {
        return RU_FAIL(err, RU_E_ARG, "the token of a team has %zu bytes, expected %d to %d", token,
                       TOKEN_MIN, TOKEN_MAX);
    }
    if (o->batch < 1 || o->batch > UINT32_MAX || o->count < 0 || o->steps < 0 ||
        o->steps_before < 0 || o->position_before < 0) {
        return RU_FAIL(err, RU_E_ARG,
                       "batch %lld, count %lld, steps %lld of a team: expected a batch of at least "
                       "1, the others not negative",
                       (long long)o->batch, (long long)o->count, (long long)o->steps);
    }
    uint32_t most = RU_ELASTIC_TENSORS_MAX - (o->noise > 0); /* a vector tells of noise */
    if (o->n_gradients < 1 || o->n_gradients > most) {
        return RU_FAIL(err, RU_E_ARG, "%u gradients of a team, expected 1 to %u", o->n_gradients,
                       most);
    }
    for (uint32_t k = 0; k < o->n_gradients; k++) {
        if (o->gradient_bytes[k] < 4 || o->gradient_bytes[k] % 4 != 0) {
            return RU_FAIL(err, RU_E_ARG,
                           "gradient %u of a team has %lld bytes, expected a "
                           "multiple of 4",
                           k, (long long)o->gradient_bytes[k]);
        }
    }
    if (o->noise > 0 && o->bf16) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "a team measures no noise of bf16 gradients");
    }
    if (o->noise > o->n_gradients) {
        return RU_FAIL(err, RU_E_ARG, "noise of %u gradients of a team that has %u", o->noise,
                       o->n_gradients);
    }
    for (uint32_t k = 0; k < o->n_state; k++) {
        if ((o->state[k].data == NULL && o->move == NULL) || o->state[k].size_bytes < 1) {
            return RU_FAIL(err, RU_E_ARG, "state %u of a team has no memory", k);
        }
    }
    return RU_OK;
}

static const char *copy(ru_arena *arena, const char *text, bool *ok)
{
    const char *own = text != NULL ? ru_arena_str(arena, text) : NULL;
    *ok = *ok && (own != NULL || text == NULL);
    return own;
}

/* Batch, epochs and sizes, then what the program adds. */
static const char *agreed(ru_team *t, bool *ok)
{
    const ru_team_options *o = &t->opt;
    uint64_t h = ru_hash_bytes(o->gradient_bytes, o->n_gradients * (int64_t)sizeof(int64_t), 3);
    for (uint32_t k = 0; k < o->n_state; k++) {
        const int64_t size[2] = {o->state[k].size_bytes, o->state[k].group};
        h = ru_hash_bytes(size, sizeof size, h);
    }
    const char *text = ru_arena_printf(
        &t->arena,
        "batch %lld\ncount %lld\nsteps %lld\ngradients %u\nstate %u\nsizes %016llx\nnoise %u\n%s%s",
        (long long)o->batch, (long long)o->count, (long long)o->steps, o->n_gradients, o->n_state,
        (unsigned long long)h, o->noise, o->bf16 ? "bytes bf16\n" : "",
        o->agreed != NULL ? o->agreed : "");
    *ok = *ok && text != NULL;
    return text;
}

/* The program's gradients, and the vector that tells of their squares. */
static uint32_t sums_of(const ru_team_options *o)
{
    return o->n_gradients + (o->noise > 0 ? 1 : 0);
}

static ru_status open_memory(ru_team *t, const ru_team_options *opt, ru_err *err)
{
    bool ok = true;
    ru_arena *a = &t->arena;
    ru_team_options *o = &t->opt;
    uint32_t n = sums_of(opt);
    int64_t elements = 0;
    ru_span *g = RU_NEW(a, ru_span, n);
    ru_span *s = RU_NEW(a, ru_span, opt->n_state);
    int64_t *sizes = RU_NEW(a, int64_t, n);
    t->told = RU_NEW(a, uint8_t, opt->n_gradients);
    o->join = copy(a, opt->join, &ok);
    o->listen = copy(a, opt->listen, &ok);
    o->token = copy(a, opt->token, &ok);
    for (uint32_t k = 0; ok && g != NULL && sizes != NULL && k < n; k++) {
        bool given = k < opt->n_gradients;
        sizes[k] = given ? opt->gradient_bytes[k] : RU_EMBED_NOISE_BYTES;
        elements += k < opt->noise ? sizes[k] / 4 : 0;
        void *own = given && opt->gradients != NULL ? opt->gradients[k]
                                                    : ru_arena_zalloc(a, sizes[k], ALIGN);
        g[k] = (ru_span){.data = own, .size_bytes = sizes[k]};
        ok = g[k].data != NULL;
    }
    for (uint32_t k = 0; s != NULL && k < opt->n_state; k++) {
        s[k] = (ru_span){.data = opt->state[k].data, .size_bytes = opt->state[k].size_bytes};
    }
    if (!ok || g == NULL || s == NULL || sizes == NULL || t->told == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the gradients of a team");
    }
    o->gradient_bytes = sizes;
    t->gradients = g;
    t->device.gradients = g;
    t->device.n = n;
    t->device.state = s;
    t->device.n_state = opt->n_state;
    t->device.move = opt->move;
    t->device.move_self = opt->move_self;
    return opt->noise > 0 ? ru_embed_noise_open(&t->noise, elements, err) : RU_OK;
}

/* An epoch's last step takes what is left. */
static int64_t batch_at(void *self, int64_t position)
{
    const ru_team *t = self;
    int64_t left = t->opt.count > 0 ? t->opt.count - position % t->opt.count : t->opt.batch;
    return left < t->opt.batch ? left : t->opt.batch;
}

static ru_status open_elastic(ru_team *t, ru_err *err)
{
    const ru_team_options *o = &t->opt;
    int64_t *bytes = RU_NEW(&t->arena, int64_t, o->n_state);
    uint32_t *group = RU_NEW(&t->arena, uint32_t, o->n_state);
    if (bytes == NULL || group == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the state of a team");
    }
    for (uint32_t k = 0; k < o->n_state; k++) {
        bytes[k] = o->state[k].size_bytes;
        group[k] = o->state[k].group;
    }
    const ru_elastic_options eo = {
        .node = t->shell.timers.node,
        .device = ru_embed_device(&t->device),
        .news = on_news,
        .news_self = t,
        .batch = batch_at(t, o->position_before),
        .batch_at = batch_at,
        .first_step = o->steps_before,
        .first_position = o->position_before,
        .steps_end = o->steps > 0 ? o->steps : INT64_MAX / UINT32_MAX,
        .founders = o->founders,
        .n_min = o->n_min,
        .n_begin = o->n_begin,
        .join_part = o->join_part,
        .tensor_bytes = o->gradient_bytes,
        .n_tensors = sums_of(o),
        .state_bytes = bytes,
        .state_group = group,
        .n_state = o->n_state,
        .equal_shares = o->equal_shares,
        .bf16 = o->bf16,
    };
    return ru_elastic_open(&eo, &t->arena, &t->elastic, err);
}

static ru_status open_all(ru_team *t, const ru_team_options *opt, ru_err *err)
{
    static const ru_shell_ops ops = {.stop = stop, .said = said};
    bool ok = true;
    RU_TRY(open_memory(t, opt, err));
    t->options = (ru_shell_options){.join = t->opt.join,
                                    .listen = t->opt.listen,
                                    .token = (const uint8_t *)t->opt.token,
                                    .token_bytes = (uint32_t)strlen(t->opt.token),
                                    .n_max = t->opt.n_max,
                                    .newcomer = t->opt.newcomer,
                                    .stop_leaves = true,
                                    .number = t->opt.number};
    RU_TRY(ru_shell_open(&t->shell, &t->options, &ops, t, &t->arena, err));
    RU_TRY(ru_shell_line(&t->shell, &t->line, LINE, sizeof(ru_embed_event), err));
    const ru_shell_node_options no = {.capacity = opt->capacity > 0 ? opt->capacity : 1,
                                      .agreed = agreed(t, &ok),
                                      .xfers_max = XFERS_MAX,
                                      .log = on_log};
    t->address = ok ? ru_arena_str(&t->arena, ru_link_tcp_address(t->shell.link)) : NULL;
    if (t->address == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a team");
    }
    RU_TRY(ru_shell_node(&t->shell, &no, err));
    RU_TRY(open_elastic(t, err));
    t->device.elastic = t->elastic;
    return ru_thread_start(&t->thread, "team", run, t, err);
}

ru_status ru_team_open(const ru_team_options *opt, ru_team **out, ru_err *err)
{
    RU_TRY(check(opt, err));
    ru_team *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a team");
    }
    t->opt = *opt;
    ru_arena_init(&t->arena, 0);
    ru_embed_init(&t->device, &embed_ops, t);
    ru_cond_init(&t->changed);
    ru_status st = open_all(t, opt, err);
    if (st != RU_OK) {
        ru_team_close(t);
        return st;
    }
    *out = t;
    return RU_OK;
}

void ru_team_close(ru_team *t)
{
    if (t == NULL) {
        return;
    }
    if (t->thread.started) {
        ru_team_leave(t);
        ru_thread_join(&t->thread);
    }
    if (t->shell.timers.node != NULL) {
        ru_node_quiet(t->shell.timers.node);
        ru_elastic_close(t->elastic);
    }
    ru_shell_close(&t->shell);
    ru_embed_fini(&t->device);
    ru_cond_fini(&t->changed);
    ru_embed_noise_close(&t->noise);
    ru_arena_fini(&t->arena);
    free(t);
}

const char *ru_team_address(const ru_team *t)
{
    return t->address;
}

/* -- calls of the program ---------------------------------------------------------------------- */

static ru_status why(ru_team *t, ru_status st, ru_err *err)
{
    if (st == RU_E_AGAIN) {
        return RU_FAIL(err, st, "the other members are not there yet");
    }
    if (st == RU_E_CANCELLED) {
        return RU_FAIL(err, st, "the members changed; the samples of this step come again");
    }
    if (st == RU_E_USAGE) {
        return RU_FAIL(err, st,
                       "calls of a team out of order: expected begin, ready for each gradient, "
                       "wait, done");
    }
    if (st == RU_OK) {
        return st;
    }
    ru_mutex_lock(&t->device.lock);
    bool told = st == RU_E_PEER && t->why != RU_OK && !t->device.leaves;
    st = told ? ru_err_set(err, t->why, "%s", t->why_text)
              : RU_FAIL(err, st, "this process has left the job");
    ru_mutex_unlock(&t->device.lock);
    return st;
}

/* Until `try` has an answer; with the lock not held. */
static ru_status wait_for(ru_team *t, ru_status (*try)(ru_team *t, ru_team_step *s),
                          ru_team_step *s, int64_t wait_ns)
{
    ru_time until = ru_time_after(ru_clock_now(), wait_ns);
    for (;;) {
        ru_mutex_lock(&t->device.lock);
        uint64_t seen = t->device.wakes;
        ru_mutex_unlock(&t->device.lock);
        ru_status st = try(t, s);
        int64_t left = ru_time_since(until, ru_clock_now());
        if (st != RU_E_AGAIN || (wait_ns > 0 && left <= 0)) {
            return st;
        }
        ru_mutex_lock(&t->device.lock);
        if (t->device.wakes == seen) {
            if (wait_ns > 0) {
                (void)ru_cond_wait_for(&t->changed, &t->device.lock, left);
            } else {
                ru_cond_wait(&t->changed, &t->device.lock);
            }
        }
        ru_mutex_unlock(&t->device.lock);
    }
}

static ru_status take(ru_team *t, ru_team_step *s)
{
    ru_share share;
    ru_status st = ru_embed_take(&t->device, ru_clock_now(), &s->step, &share);
    if (st == RU_OK) {
        s->position = share.at;
        s->n = share.n;
        s->batch = share.batch;
        s->first = share.first;
    }
    return st;
}

static ru_status sums(ru_team *t, ru_team_step *s)
{
    (void)s;
    return ru_embed_sums(&t->device);
}

ru_status ru_team_begin(ru_team *t, int64_t wait_ns, ru_team_step *into, ru_err *err)
{
    ru_team_step s = {0};
    ru_status st = wait_for(t, take, &s, wait_ns);
    ru_mutex_lock(&t->device.lock);
    bool over = st == RU_E_PEER && t->why == RU_OK && t->device.ended && !t->device.leaves;
    s.members = t->members;
    s.number = t->number;
    if (st == RU_OK) { /* else a step that it has goes on */
        memset(t->told, 0, t->opt.n_gradients);
        t->n_told = 0;
        t->squares = 0;
        t->now = s;
    }
    ru_mutex_unlock(&t->device.lock);
    if (t->opt.noise > 0 && !ru_embed_noise_known(&t->noise, &s.noise_sqr, &s.noise_var)) {
        s.noise_sqr = s.noise_var = 0;
    }
    if (over) {
        *into = (ru_team_step){.over = true};
        return RU_OK;
    }
    if (st != RU_OK) {
        return why(t, st, err);
    }
    for (uint32_t k = 0; s.n == 0 && k < t->opt.n_gradients; k++) {
        memset(t->gradients[k].data, 0, (size_t)t->gradients[k].size_bytes);
        if (ru_team_ready(t, k) != RU_OK) {
            break; /* ru_team_wait says it */
        }
    }
    *into = s;
    return RU_OK;
}

float *ru_team_gradient(ru_team *t, uint32_t k)
{
    return k < t->opt.n_gradients ? t->gradients[k].data : NULL;
}

/* Option noise: gradient k is complete and not the others' yet; true: it is the last. */
static bool square(ru_team *t, uint32_t k)
{
    const ru_span *g = &t->gradients[k];
    double squares = k < t->opt.noise && t->now.n > 0 && ru_embed_noise_measures(t->now.step)
                         ? ru_embed_noise_square(g->data, g->size_bytes / 4)
                         : 0;
    ru_mutex_lock(&t->device.lock);
    t->squares += squares;
    bool last = ++t->n_told == t->opt.n_gradients;
    ru_mutex_unlock(&t->device.lock);
    return last;
}

ru_status ru_team_ready(ru_team *t, uint32_t k)
{
    ru_mutex_lock(&t->device.lock);
    bool twice = k >= t->opt.n_gradients || t->told[k] != 0;
    if (!twice) {
        t->told[k] = 1;
    }
    ru_mutex_unlock(&t->device.lock);
    if (twice) {
        return RU_E_USAGE;
    }
    bool last = t->opt.noise > 0 && square(t, k);
    ru_status st = ru_embed_ready(&t->device, k, ru_clock_now());
    if (st == RU_OK && last) {
        const ru_team_step *s = &t->now;
        ru_embed_noise_tell(t->squares, (double)s->n / (double)s->batch,
                            t->gradients[t->opt.n_gradients].data);
        st = ru_embed_ready(&t->device, t->opt.n_gradients, ru_clock_now());
    }
    return st;
}

ru_status ru_team_wait(ru_team *t, int64_t wait_ns, ru_err *err)
{
    ru_status st = wait_for(t, sums, NULL, wait_ns);
    if (st == RU_OK && t->opt.noise > 0) {
        ru_embed_noise_summed(&t->noise, t->now.step, (double)t->now.batch / (double)t->opt.batch,
                              t->gradients, t->opt.noise, t->gradients[t->opt.n_gradients].data);
    }
    return why(t, st, err);
}

bool ru_team_leads(ru_team *t)
{
    ru_mutex_lock(&t->device.lock);
    bool leads = t->leads;
    ru_mutex_unlock(&t->device.lock);
    return leads;
}

ru_status ru_team_done(ru_team *t)
{
    return ru_embed_done(&t->device);
}

void ru_team_leave(ru_team *t)
{
    ru_embed_leave(&t->device);
}
