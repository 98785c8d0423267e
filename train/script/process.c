#include "train/script/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/clock.h"
#include "host/shell.h"
#include "train/elastic/elastic.h"

enum { XFERS_MAX = 1 << 14, PIECES = 512 };

#define ABORT_NS 100000
#define BYE_NS   INT64_C(50000000)
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
    uint8_t *piece;       /* of state that leaves: zeros */
    void *pieces[PIECES]; /* of state that comes; NULL: free */

    phase phase;
    ru_script_play play;
    ru_share share;
    int64_t step;
    uint32_t told;     /* gradients that are */
    bool works;        /* a timer runs */
    ru_time begun, at; /* of the step; end of the work so far */

    int64_t committed, first_ns, last_ns, timed;
    ru_script_run_result result;
} process;

/* Around an answer of the device. */
static ru_effects *enter(process *p, ru_time now)
{
    return ru_node_enter(p->shell.timers.node, now);
}

/* -- the device ----------------------------------------------------------------------------------
 */

static void due(void *self, uint32_t what, ru_time now);

/* Sleep until the work after what was done before has ended. */
static void work(process *p, int64_t ns)
{
    p->works = true;
    p->at = ru_time_after(p->at, ns);
    ru_loop_timer(p->shell.loop, due, p, 0, p->at);
}

/* Nothing was under way: the work begins now. */
static void work_now(process *p, int64_t ns)
{
    p->at = ru_clock_now();
    work(p, ns);
}

static void update_some(process *p)
{
    if (p->phase == COMPUTED && !p->works) {
        int64_t ns = ru_script_update_early(&p->play);
        if (ns > 0) {
            work_now(p, ns);
        }
    }
}

static void tell_ready(process *p, ru_time now)
{
    const ru_script *s = p->opt->script;
    while (p->told < p->play.n_ready && p->phase == STEP) {
        uint32_t k = p->told++;
        const ru_span span = {.data = p->gradients + p->offset[k], .size_bytes = s->size_bytes[k]};
        ru_elastic_ready(p->elastic, p->step, k, &span, now, enter(p, now));
        ru_node_leave(p->shell.timers.node, now);
    }
    if (p->phase != STEP) {
        return; /* it was given up */
    }
    if (p->told < s->n) {
        work(p, ru_script_compute(&p->play));
        return;
    }
    p->phase = COMPUTED;
    ru_elastic_computed(p->elastic, p->step, RU_OK, ru_time_since(now, p->begun), now,
                        enter(p, now));
    ru_node_leave(p->shell.timers.node, now);
    update_some(p);
}

static void due(void *self, uint32_t what, ru_time now)
{
    process *p = self;
    (void)what;
    p->works = false;
    switch (p->phase) {
    case BUILD:
        p->phase = IDLE;
        ru_elastic_built(p->elastic, RU_OK, 1, now, enter(p, now));
        ru_node_leave(p->shell.timers.node, now);
        break;
    case STEP:
        tell_ready(p, now);
        break;
    case COMPUTED:
        update_some(p);
        break;
    case UPDATE:
        if (p->play.updated_ns < p->opt->script->update_ns) { /* what was early has ended */
            work(p, ru_script_update(&p->play));
            break;
        }
        p->phase = IDLE;
        ru_elastic_updated(p->elastic, p->step, RU_OK, now, enter(p, now));
        ru_node_leave(p->shell.timers.node, now);
        break;
    case ABORT:
        p->phase = IDLE;
        ru_elastic_aborted(p->elastic, now, enter(p, now));
        ru_node_leave(p->shell.timers.node, now);
        break;
    case IDLE:
        break;
    }
}

static void dev_build(void *self, const ru_share *share, bool plain)
{
    process *p = self;
    (void)plain;
    p->phase = BUILD;
    p->share = *share;
    work_now(p, ABORT_NS);
}

static void dev_step(void *self, int64_t step, const ru_share *share)
{
    process *p = self;
    p->phase = STEP;
    p->step = step;
    p->share = *share;
    p->told = 0;
    p->begun = ru_clock_now();
    ru_script_begin(&p->play, p->opt->script, share->n, 1, false);
    work_now(p, ru_script_compute(&p->play));
}

static void dev_abort(void *self)
{
    process *p = self;
    ru_loop_timer_off(p->shell.loop, due, p, 0);
    p->phase = ABORT;
    work_now(p, ABORT_NS);
}

static void dev_update(void *self, int64_t step)
{
    process *p = self;
    (void)step;
    p->phase = UPDATE;
    if (!p->works) {
        work_now(p, ru_script_update(&p->play));
    }
}

static void dev_summed(void *self, int64_t step, uint32_t k, int64_t offset, int64_t size)
{
    process *p = self;
    (void)step;
    (void)k;
    (void)offset;
    ru_script_summed(&p->play, size);
    update_some(p);
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
        p->result.ring = sums.costs[RU_ALGO_RING];
    }
    ru_arena_fini(&a);
}

static void on_news(void *self, const ru_elastic_news *n, ru_time now)
{
    process *p = self;
    if (n->what == RU_ELASTIC_COMMITTED) {
        p->committed = n->step;
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
    *state_bytes = RU_NEW(&p->arena, int64_t, s->n);
    *group = RU_NEW(&p->arena, uint32_t, s->n);
    for (uint32_t k = 0; p->offset != NULL && *state_bytes != NULL && *group != NULL && k < s->n;
         k++) {
        p->offset[k] = all;
        (*state_bytes)[k] = s->size_bytes[k];
        (*group)[k] = k;
        all += (s->size_bytes[k] + 63) / 64 * 64;
        most = s->size_bytes[k] > most ? s->size_bytes[k] : most;
    }
    p->gradients = calloc(1, (size_t)(all > 0 ? all : 1));
    p->piece = calloc(1, (size_t)most);
    bool fits = p->offset != NULL && *state_bytes != NULL && *group != NULL &&
                p->gradients != NULL && p->piece != NULL;
    return fits ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for %u gradients", s->n);
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
    return ru_elastic_open(&eo, &p->arena, &p->elastic, err);
}

ru_status ru_script_run(const ru_script_run_options *opt, ru_script_run_result *into, ru_err *err)
{
    process p = {.opt = opt};
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
