#include "train/script/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/clock.h"
#include "host/shell.h"
#include "train/elastic/elastic.h"

enum { XFERS_MAX = 1 << 14, PIECES = 512 };

#define ABORT_NS 100000
#define BYE_NS   INT64_C(300000000) /* beside other work the last words take their time */
#define START_NS INT64_C(60000000000)

typedef enum phase { IDLE, BUILD, STEP, COMPUTED, UPDATE, ABORT } phase;

typedef struct process {
    const ru_script_run_options *opt;
    ru_arena arena;
    ru_shell_options options;
    ru_shell shell;
    ru_elastic *elastic;
    uint8_t *gradients;   /* all of them, one after the other */
    int64_t *offset;      /* [n] */
    int64_t *summed;      /* [n] bytes that hold sums, of the step whose gradients came last */
    uint8_t *piece;       /* of state that leaves: zeros */
    void *pieces[PIECES]; /* of state that comes; NULL: free */

    phase phase;            /* of the newest step */
    ru_script_play play[2]; /* of step % 2 */
    ru_share share;
    int64_t step, older;  /* the newest; the one before whose update does not count yet, -1: none */
    uint32_t told;        /* gradients that are */
    bool works, computes; /* a timer runs; it is computing, else an update */
    bool stood;           /* nothing was under way: the next work begins when it does */
    ru_time at;           /* end of the work so far */
    int64_t computed_ns;  /* of the newest step */

    int64_t committed, first_ns, last_ns, timed;
    ru_script_run_result result;
    ru_err wrong; /* the first sum that is; status RU_OK: none */
} process;

enum { WORK, KEEP, LOOK }; /* timers */

/* Around an answer of the device. */
static ru_effects *enter(process *p, ru_time now)
{
    return ru_node_enter(p->shell.timers.node, now);
}

static void leave(process *p, ru_time now)
{
    ru_node_leave(p->shell.timers.node, now);
}

/* -- the device ----------------------------------------------------------------------------------
 */

static void due(void *self, uint32_t what, ru_time now);

/* Sleep until the work after what was done before has ended. */
static void work(process *p, int64_t ns, bool computes)
{
    p->works = true;
    p->computes = computes;
    p->at = ru_time_after(p->stood ? ru_clock_now() : p->at, ns);
    p->stood = false;
    ru_loop_timer(p->shell.loop, due, p, WORK, p->at);
}

static bool is_ahead(const process *p)
{
    return p->older >= 0;
}

static ru_script_play *play_of(process *p, int64_t step)
{
    return &p->play[step % 2];
}

static bool is_summed(const process *p, uint32_t k)
{
    return p->summed[k] == p->opt->script->size_bytes[k];
}

/* The forward pass goes on to the next parameter; false: it waits for its sums. */
static bool has_parameters(process *p)
{
    ru_script_play *play = play_of(p, p->step);
    uint32_t k;
    while (ru_script_needs(play, &k)) {
        if (is_ahead(p) && !is_summed(p, k)) {
            return false;
        }
        ru_script_has(play);
    }
    return true;
}

/* One thing at a time: sums that are there are applied first, then it computes. */
static void go_on(process *p)
{
    if (p->works) {
        return;
    }
    bool early = p->phase == COMPUTED || (p->phase == STEP && is_ahead(p));
    int64_t ns = early ? ru_script_update_early(play_of(p, is_ahead(p) ? p->older : p->step)) : 0;
    const ru_script_play *play = play_of(p, p->step);
    if (ns > 0) {
        work(p, ns, false);
    } else if (p->phase == STEP && play->n_ready < p->opt->script->n && has_parameters(p)) {
        ns = ru_script_compute(play_of(p, p->step));
        p->computed_ns += ns;
        work(p, ns, true);
    } else if (p->phase == UPDATE) {
        work(p, ru_script_update(play_of(p, p->step)), false);
    } else {
        p->stood = true;
    }
}

/* What process `number` puts into each element of a gradient, so that sums are exact. */
static float value_of(int64_t number, uint32_t k, int64_t step)
{
    return (float)(number * (1 + (k + step) % 7));
}

static void fill(process *p, uint32_t k)
{
    float *x = (float *)(void *)(p->gradients + p->offset[k]);
    float v = value_of(p->opt->number, k, p->step);
    for (int64_t i = 0; p->opt->check && i < p->opt->script->size_bytes[k] / 4; i++) {
        x[i] = v;
    }
}

/* A step whose members went is repeated by those who stay. */
static bool all_are_here(const process *p)
{
    ru_elastic_facts f;
    ru_elastic_facts_get(p->elastic, &f);
    return f.members == p->opt->founders;
}

static void check(process *p, int64_t step, uint32_t k, int64_t offset, int64_t size)
{
    const float *x = (const float *)(const void *)(p->gradients + p->offset[k] + offset);
    int64_t n = p->opt->founders;
    float v = value_of(n * (n + 1) / 2, k, step);
    for (int64_t i = 0; p->opt->check && i < size / 4 && p->wrong.status == RU_OK; i++) {
        if (x[i] != v && all_are_here(p)) {
            (void)RU_FAIL(&p->wrong, RU_E_DATA,
                          "element %lld of the sum of gradient %u in step %lld is %g, not %g",
                          (long long)(offset / 4 + i), k, (long long)step, (double)x[i], (double)v);
        }
    }
}

/* May gradient `told` be summed now? */
static bool may_tell(process *p)
{
    uint32_t ready = play_of(p, p->step)->n_ready;
    bool all = ready == p->opt->script->n;
    return p->phase == STEP && p->told < ready &&
           (!p->opt->serial || (all && (p->told == 0 || is_summed(p, p->told - 1))));
}

static void tell_ready(process *p, ru_time now)
{
    const ru_script *s = p->opt->script;
    while (may_tell(p)) {
        uint32_t k = p->told++;
        if (k == 0) {
            memset(p->summed, 0, s->n * sizeof *p->summed);
        }
        fill(p, k);
        const ru_span span = {.data = p->gradients + p->offset[k], .size_bytes = s->size_bytes[k]};
        ru_elastic_ready(p->elastic, p->step, k, &span, now, enter(p, now));
        leave(p, now);
    }
    if (p->phase == STEP && p->told == s->n) {
        p->phase = COMPUTED;
        ru_elastic_computed(p->elastic, p->step, RU_OK, p->computed_ns, now, enter(p, now));
        leave(p, now);
    }
}

static void answer(process *p, ru_time now)
{
    phase was = p->phase;
    p->phase = IDLE;
    if (was == BUILD) {
        ru_elastic_built(p->elastic, RU_OK, 1, now, enter(p, now));
    } else if (was == ABORT) {
        ru_elastic_aborted(p->elastic, now, enter(p, now));
    } else {
        ru_elastic_updated(p->elastic, p->step, RU_OK, now, enter(p, now));
    }
    leave(p, now);
}

/* The update of the older step counts. */
static void kept(process *p, ru_time now)
{
    int64_t step = p->older;
    p->older = -1;
    ru_elastic_updated(p->elastic, step, RU_OK, now, enter(p, now));
    leave(p, now);
}

static void due(void *self, uint32_t what, ru_time now)
{
    process *p = self;
    bool worked = what == WORK, early = worked && !p->computes;
    p->works = p->works && !worked;
    if (what == KEEP) {
        kept(p, now);
    } else if (worked && (p->phase == BUILD || p->phase == ABORT)) {
        answer(p, now);
    } else if (early && p->phase == UPDATE &&
               p->play[p->step % 2].updated_ns >= p->opt->script->update_ns) {
        answer(p, now);
    } else if (p->phase == STEP) {
        tell_ready(p, now);
    }
    go_on(p);
}

static void dev_build(void *self, const ru_share *share, bool plain)
{
    process *p = self;
    (void)plain;
    p->phase = BUILD;
    p->share = *share;
    work(p, ABORT_NS, false);
}

static void dev_step(void *self, int64_t step, const ru_share *share)
{
    process *p = self;
    p->older = p->phase == COMPUTED ? p->step : -1;
    p->phase = STEP;
    p->step = step;
    p->share = *share;
    p->told = 0;
    p->computed_ns = 0;
    ru_script_begin(play_of(p, step), p->opt->script, share->n, 1, is_ahead(p));
    go_on(p);
}

static uint32_t dev_depth(void *self, const char **why)
{
    const process *p = self;
    *why = "the script asks for it";
    return p->opt->ahead ? 2 : 1;
}

static void dev_abort(void *self)
{
    process *p = self;
    ru_loop_timer_off(p->shell.loop, due, p, WORK);
    p->phase = ABORT;
    p->older = -1;
    p->stood = true;
    work(p, ABORT_NS, false);
}

static void dev_update(void *self, int64_t step)
{
    process *p = self;
    if (is_ahead(p) && step == p->older) {
        ru_loop_timer(p->shell.loop, due, p, KEEP, ru_clock_now());
        return;
    }
    p->phase = UPDATE;
    go_on(p);
}

static void dev_summed(void *self, int64_t step, uint32_t k, int64_t offset, int64_t size)
{
    process *p = self;
    check(p, step, k, offset, size);
    p->summed[k] += size;
    ru_script_summed(play_of(p, step), size);
    if (p->opt->serial) { /* not within an answer of ours */
        ru_loop_timer(p->shell.loop, due, p, LOOK, ru_clock_now());
    } else {
        go_on(p);
    }
}

static ru_status dev_state_copy(void *self, uint32_t k, int64_t offset, int64_t size, ru_span *span,
                                uint64_t *cookie)
{
    process *p = self;
    (void)k;
    (void)offset;
    *span = (ru_span){.data = p->piece, .size_bytes = size};
    *cookie = 0;
    return RU_OK;
}

static void dev_state_release(void *self, uint64_t cookie)
{
    (void)self;
    (void)cookie;
}

static ru_status dev_state_place(void *self, uint32_t k, int64_t offset, int64_t size,
                                 ru_span *span, uint64_t *cookie)
{
    process *p = self;
    (void)k;
    (void)offset;
    for (uint32_t i = 0; i < PIECES; i++) {
        if (p->pieces[i] == NULL) {
            p->pieces[i] = malloc((size_t)size);
            *span = (ru_span){.data = p->pieces[i], .size_bytes = size};
            *cookie = i;
            return p->pieces[i] != NULL ? RU_OK : RU_E_MEM;
        }
    }
    return RU_E_LIMIT;
}

static void dev_state_placed(void *self, uint64_t cookie, bool arrived)
{
    process *p = self;
    (void)arrived;
    RU_CHECK(cookie < PIECES && p->pieces[cookie] != NULL);
    free(p->pieces[cookie]);
    p->pieces[cookie] = NULL;
}

static const ru_elastic_device_ops device_ops = {.name = "script",
                                                 .build = dev_build,
                                                 .step = dev_step,
                                                 .abort = dev_abort,
                                                 .update = dev_update,
                                                 .depth = dev_depth,
                                                 .summed = dev_summed,
                                                 .state_copy = dev_state_copy,
                                                 .state_release = dev_state_release,
                                                 .state_place = dev_state_place,
                                                 .state_placed = dev_state_placed};

/* -- the job -------------------------------------------------------------------------------------
 */

/* Processes that were started have failed, or were never started. */
static void too_late(void *self, uint32_t what, ru_time now)
{
    process *p = self;
    ru_err why;
    (void)what;
    if (p->timed == 0 && !p->shell.ended) {
        (void)ru_err_set(&why, RU_E_PEER,
                         "no step was done within %d s; are all %u processes started, with the "
                         "same token and options?",
                         (int)(START_NS / 1000000000), p->opt->founders);
        ru_shell_end(&p->shell, RU_E_PEER, why.text, now);
        ru_shell_bye(&p->shell, 0, now);
    }
}

/* What the collectives were measured at, before it is forgotten. */
static void keep_costs(process *p)
{
    ru_elastic_sums sums;
    ru_arena a;
    ru_arena_init(&a, 0);
    if (ru_elastic_sums_get(p->elastic, &a, &sums, NULL) == RU_OK && sums.costs != NULL) {
        memcpy(p->result.costs, sums.costs, sizeof p->result.costs);
    }
    ru_arena_fini(&a);
}

static void on_news(void *self, const ru_elastic_news *n, ru_time now)
{
    process *p = self;
    if (n->what == RU_ELASTIC_COMMITTED) {
        p->committed = n->step;
        if (p->opt->commit_ns != NULL && p->timed < p->opt->steps) {
            p->opt->commit_ns[p->timed] = now.ns;
        }
        p->first_ns = p->timed == 0 ? now.ns : p->first_ns;
        p->last_ns = now.ns;
        p->timed++;
        p->result.members = (uint32_t)n->b;
    } else if (n->what == RU_ELASTIC_PLANNED) {
        keep_costs(p);
    } else if (n->what == RU_ELASTIC_ENDED && !p->shell.ended) {
        ru_shell_end(&p->shell, n->status, n->sentence != NULL ? n->sentence : "", now);
        ru_shell_bye(&p->shell, BYE_NS, now);
    }
}

static ru_status open_memory(process *p, int64_t **state_bytes, uint32_t **group, ru_err *err)
{
    const ru_script *s = p->opt->script;
    int64_t all = 0, most = 1 << 20;
    p->offset = RU_NEW(&p->arena, int64_t, s->n);
    p->summed = RU_NEW(&p->arena, int64_t, s->n);
    *state_bytes = RU_NEW(&p->arena, int64_t, s->n);
    *group = RU_NEW(&p->arena, uint32_t, s->n);
    bool fits = p->offset != NULL && p->summed != NULL && *state_bytes != NULL && *group != NULL;
    for (uint32_t k = 0; fits && k < s->n; k++) {
        p->offset[k] = all;
        (*state_bytes)[k] = s->size_bytes[k];
        (*group)[k] = k;
        all += (s->size_bytes[k] + 63) / 64 * 64;
        most = s->size_bytes[k] > most ? s->size_bytes[k] : most;
    }
    p->gradients = calloc(1, (size_t)(all > 0 ? all : 1));
    p->piece = calloc(1, (size_t)most);
    return fits && p->gradients != NULL && p->piece != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for %u gradients", s->n);
}

static ru_status open_all(process *p, ru_err *err)
{
    static const ru_shell_ops no_ops = {0};
    const ru_script_run_options *o = p->opt;
    char host[24];
    int64_t *state_bytes;
    uint32_t *group;
    p->options = (ru_shell_options){.join = o->join,
                                    .listen = o->listen != NULL ? o->listen : "127.0.0.1:0",
                                    .token = o->token,
                                    .token_bytes = o->token_bytes,
                                    .n_max = o->founders,
                                    .number = o->number,
                                    .address = o->address,
                                    .self = o->self};
    (void)snprintf(host, sizeof host, "script%u", o->number);
    const ru_shell_node_options no = {.capacity = 1, .host = host, .xfers_max = XFERS_MAX};
    RU_TRY(ru_shell_open(&p->shell, &p->options, &no_ops, p, &p->arena, err));
    RU_TRY(open_memory(p, &state_bytes, &group, err));
    RU_TRY(ru_shell_node(&p->shell, &no, err));
    const ru_elastic_options eo = {.node = p->shell.timers.node,
                                   .device = {&device_ops, p},
                                   .news = on_news,
                                   .news_self = p,
                                   .batch = o->batch,
                                   .steps_end = o->steps,
                                   .founders = o->founders,
                                   .n_min = 1,
                                   .n_begin = o->founders,
                                   .tensor_bytes = o->script->size_bytes,
                                   .n_tensors = o->script->n,
                                   .state_bytes = state_bytes,
                                   .state_group = group,
                                   .n_state = o->script->n,
                                   .equal_shares = o->equal_shares,
                                   .deterministic = o->deterministic,
                                   .sums = o->sums};
    RU_TRY(ru_elastic_open(&eo, &p->arena, &p->elastic, err));
    return o->table != NULL
               ? ru_elastic_table_set(p->elastic, o->table, o->n_table, o->flight, o->barrier, err)
               : RU_OK;
}

ru_status ru_script_run(const ru_script_run_options *opt, ru_script_run_result *into, ru_err *err)
{
    process p = {.opt = opt, .older = -1, .stood = true};
    RU_CHECK(opt->script->n > 0 && opt->founders > 0);
    ru_arena_init(&p.arena, 0);
    ru_status st = open_all(&p, err);
    if (st == RU_OK) {
        ru_loop_timer(p.shell.loop, too_late, &p, 0, ru_time_after(ru_clock_now(), START_NS));
        st = ru_shell_run(&p.shell, err);
    }
    if (st == RU_OK && p.shell.end_status != RU_OK) {
        st = ru_err_set(err, p.shell.end_status, "%s", p.shell.end_text);
    }
    if (st == RU_OK && p.wrong.status != RU_OK) {
        st = ru_err_set(err, p.wrong.status, "%s", p.wrong.text);
    }
    ru_node_quiet(p.shell.timers.node);
    ru_elastic_close(p.elastic);
    ru_shell_close(&p.shell);
    for (uint32_t i = 0; i < PIECES; i++) {
        free(p.pieces[i]);
    }
    free(p.gradients);
    free(p.piece);
    ru_arena_fini(&p.arena);
    p.result.committed = p.committed;
    p.result.step_ns = p.timed > 1 ? (p.last_ns - p.first_ns) / (p.timed - 1) : 0;
    *into = p.result;
    return st;
}
