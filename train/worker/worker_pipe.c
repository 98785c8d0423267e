#include "train/worker/worker_pipe.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "exec/pool.h"
#include "train/worker/agree.h"
#include "train/worker/worker_pipe_impl.h"

enum { XFERS_MAX = 1 << 15 };
#define BYE_NS INT64_C(50000000) /* the others hear that it is over */

/* -- what a pipeline cannot do ------------------------------------------------------------------
 */

const char *ru_pipe_job_against(const ru_job *job)
{
    const ru_job_train *t = &job->train;
    const struct {
        bool is;
        const char *why;
    } against[] = {
        {t->servers > 0, "has no sums that servers could add; leave out train.servers"},
        {t->clip_norm > 0, "does not add the norms of its stages; leave out train.clip_norm"},
        {t->ema > 0, "keeps no moving means; leave out train.ema"},
        {t->histograms > 0, "writes no histograms; leave out train.histograms"},
        {t->batch_schedule.n > 0, "has one size of micro-batches; leave out train.batch_schedule"},
        {t->adapt.batch_max > 0, "has one size of micro-batches; leave out train.adapt"},
        {job->data.augment.mixup > 0,
         "would mix within micro-batches; leave out data.augment.mixup"},
        {job->model.weights[0] != 0,
         "reads start values of whole models only; leave out model.weights"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(against); k++) {
        if (against[k].is) {
            return against[k].why;
        }
    }
    return NULL;
}

ru_status ru_pipe_job_check(const ru_job *job, uint32_t workers, ru_err *err)
{
    const ru_job_train *t = &job->train;
    const char *why = ru_pipe_job_against(job);
    if (why != NULL) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.parallel is pipeline, and a pipeline %s, or train data parallel",
                       why);
    }
    uint32_t stages = t->pipeline.cut.n + 1;
    if (t->pipeline.cut.n == 0 || stages > RU_STAGES_MAX) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.pipeline.cut names %u layers, expected 1 to %d; each of them begins "
                       "a stage, as in cut: [fc2]",
                       t->pipeline.cut.n, RU_STAGES_MAX - 1);
    }
    if (workers != stages) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.pipeline.cut makes %u stages, and each is one worker's: start the "
                       "job with -w %u",
                       stages, stages);
    }
    return RU_OK;
}

/* -- what the machine says ----------------------------------------------------------------------
 */

static void set(rui_pipe_worker *w, bool *what)
{
    ru_mutex_lock(&w->lock);
    *what = true;
    ru_cond_broadcast(&w->changed);
    ru_mutex_unlock(&w->lock);
}

static void on_decided(rui_pipe_worker *w, const ru_pipe_news *n)
{
    rui_pipe_decision d;
    if (n->a != (int64_t)sizeof d) {
        return;
    }
    memcpy(&d, n->data, sizeof d);
    ru_mutex_lock(&w->lock);
    RU_CHECK(w->told.n_decided - w->told.n_heard < RUI_PIPE_DECISIONS_MAX);
    w->told.decisions[w->told.n_decided++ % RUI_PIPE_DECISIONS_MAX] = d;
    ru_cond_broadcast(&w->changed);
    ru_mutex_unlock(&w->lock);
}

static void on_ended(rui_pipe_worker *w, const ru_pipe_news *n, ru_time now)
{
    ru_shell_end(&w->shell, n->status, n->text, now);
    set(w, &w->told.over);
    ru_shell_bye(&w->shell, ru_pipe_leads(w->pipe) ? BYE_NS : 0, now);
}

static void news(void *self, const ru_pipe_news *n, ru_time now)
{
    rui_pipe_worker *w = self;
    switch (n->what) {
    case RU_PIPE_VIEW:
        ru_pipe_links(w->pipe, w->links, w->n_links);
        ru_shell_number(&w->shell, ru_pipe_number(w->pipe, (uint32_t)n->a), false);
        if (w->opt->train.messages) {
            ru_shell_tell_view(&w->shell);
        }
        w->told.stage = (uint32_t)n->a;
        set(w, &w->told.viewed);
        break;
    case RU_PIPE_GO:
        set(w, &w->told.go);
        break;
    case RU_PIPE_SENT:
    case RU_PIPE_ARRIVED:
        rui_flow_moved(w, (uint32_t)n->a, (uint32_t)n->b);
        break;
    case RU_PIPE_DECIDED:
        on_decided(w, n);
        break;
    case RU_PIPE_STOP:
        set(w, &w->told.stop);
        break;
    case RU_PIPE_ENDED:
        on_ended(w, n, now);
        break;
    }
}

/* -- the shell's calls --------------------------------------------------------------------------
 */

static void on_stop(void *self, bool all, ru_time now, ru_effects *fx)
{
    (void)all; /* a stage cannot leave alone */
    ru_pipe_stop(((rui_pipe_worker *)self)->pipe, now, fx);
}

static void on_said(void *self, const void *element, ru_time now, ru_effects *fx)
{
    rui_pipe_worker *w = self;
    const rui_pipe_event *x = element;
    switch (x->word) {
    case RUI_PIPE_SAY_READY:
        ru_pipe_ready(w->pipe, now, fx);
        break;
    case RUI_PIPE_SAY_SEND:
        ru_pipe_send(w->pipe, x->link, x->number, rui_flow_span(w, x->link, x->number), now, fx);
        break;
    case RUI_PIPE_SAY_POST:
        ru_pipe_post(w->pipe, x->link, x->number, rui_flow_span(w, x->link, x->number), now, fx);
        break;
    case RUI_PIPE_SAY_DECIDE:
        ru_pipe_decide(w->pipe, &x->decision, sizeof x->decision, fx);
        break;
    case RUI_PIPE_SAY_FAILED:
        ru_pipe_end(w->pipe, w->told.failed, w->told.why.text, now, fx);
        break;
    case RUI_PIPE_SAY_FINISHED:
        if (ru_pipe_leads(w->pipe)) {
            ru_pipe_end(w->pipe, RU_OK, "done", now, fx);
        }
        break;
    }
}

static const ru_shell_ops shell_ops = {.stop = on_stop, .said = on_said};

static void on_log(void *self, int level, const char *line, ru_time now)
{
    (void)self;
    (void)now;
    level = level == RU_LOG_INFO ? RU_LOG_DEBUG : level;
    ru_log((ru_log_level)level, "train", "worker", "%s", line);
}

/* -- opening ----------------------------------------------------------------------------------- */

/* States of all stages, and where each stands in the message of its stage. */
static ru_status list_states(rui_pipe_worker *w, ru_err *err)
{
    uint32_t most = 0;
    for (uint32_t k = 0; k < w->stages.n; k++) {
        most += w->stages.at[k].step.graph.n_values;
    }
    w->states = RU_NEW(w->arena, rui_pipe_state, most);
    w->state_bytes = RU_NEW(w->arena, int64_t, w->stages.n);
    if (w->states == NULL || w->state_bytes == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    for (uint32_t k = 0; k < w->stages.n; k++) {
        const ru_graph *g = &w->stages.at[k].step.graph;
        for (uint32_t v = 1; v < g->n_values; v++) {
            const ru_value *x = &g->values[v];
            if (x->kind == RU_VALUE_STATE && x->name != NULL) {
                int64_t bytes = ru_type_bytes(&x->type);
                w->states[w->n_states++] = (rui_pipe_state){.name = x->name,
                                                            .stage = k,
                                                            .value = {v},
                                                            .offset = w->state_bytes[k],
                                                            .bytes = bytes};
                w->state_bytes[k] += (bytes + 63) / 64 * 64;
            }
        }
        w->state_bytes[k] = w->state_bytes[k] > 0 ? w->state_bytes[k] : 64;
    }
    return RU_OK;
}

static ru_pipe_link link_of(const rui_pipe_worker *w, uint32_t from, uint32_t to)
{
    char name[64];
    (void)snprintf(name, sizeof name, "stage %u to %u", from + 1, to + 1);
    return (ru_pipe_link){
        .from = from, .to = to, .label = ru_recorder_name(w->t.recorder, name, "stage")};
}

static ru_status list_links(rui_pipe_worker *w, ru_err *err)
{
    const ru_stages *s = &w->stages;
    w->n_links = 2 * s->n_edges + s->n;
    w->links = RU_NEW(w->arena, ru_pipe_link, w->n_links);
    if (w->links == NULL || w->n_links > RU_PIPE_LINKS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "%u values cross between the stages, expected at most %d",
                       s->n_edges, RU_PIPE_LINKS_MAX / 2 - RU_STAGES_MAX);
    }
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        w->links[2 * i] = link_of(w, e->from, e->to);
        w->links[2 * i + 1] = link_of(w, e->to, e->from);
    }
    for (uint32_t k = 0; k < s->n; k++) {
        w->links[2 * s->n_edges + k] = (ru_pipe_link){.from = k, .to = s->n - 1};
    }
    return RU_OK;
}

/* Without gradients from later stages a stage would run ahead of them without end. */
static ru_status check_back(const ru_stages *s, ru_err *err)
{
    for (uint32_t k = 0; k + 1 < s->n; k++) {
        bool back = false;
        for (uint32_t i = 0; i < s->n_edges; i++) {
            back = back || (s->edges[i].from == k && s->edges[i].grad.v != 0);
        }
        if (!back) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.pipeline.cut: stage %u of %u gets no gradient, because nothing "
                           "in it or before it learns; begin its successor earlier",
                           k + 1, s->n);
        }
    }
    return RU_OK;
}

static ru_status cut(rui_pipe_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    const ru_job_train *j = &t->job->train;
    ru_step_options so;
    ru_exe_options eo;
    rui_trainer_options(t, &so, &eo);
    w->micro = j->accumulate > 1 ? (uint32_t)j->accumulate : 1;
    w->micro_n = j->batch / w->micro;
    w->schedule = (ru_pipe_schedule)j->pipeline.schedule;
    so.share_of = j->batch;
    so.batch = w->micro_n;
    so.accumulate = 1;
    RU_TRY(ru_stages_build(&t->model.train, &so, j->pipeline.cut.at, j->pipeline.cut.n, w->arena,
                           &w->stages, err));
    RU_TRY(check_back(&w->stages, err));
    RU_TRY(list_states(w, err));
    return list_links(w, err);
}

static ru_status open_node(rui_pipe_worker *w, ru_err *err)
{
    const ru_train_options *o = &w->opt->train;
    ru_shell_node_options no = {.capacity = o->job->train.threads != 0 ? o->job->train.threads
                                                                       : ru_pool_cores(),
                                .n_max = w->stages.n,
                                .xfers_max = XFERS_MAX,
                                .out = w->t.out,
                                .yaml = w->t.job_yaml,
                                .recorder = w->t.recorder,
                                .rank = o->rank,
                                .log = on_log};
    RU_TRY(ru_worker_agreed(&w->t, w->opt, w->first_step, &w->arena_loop, &no.agreed, err));
    RU_TRY(ru_shell_node(&w->shell, &no, err));
    const ru_pipe_options po = {.node = w->shell.timers.node,
                                .self = w->shell.id,
                                .n = w->stages.n,
                                .news = news,
                                .news_self = w};
    return ru_pipe_open(&po, &w->arena_loop, &w->pipe, err);
}

static ru_status open_all(rui_pipe_worker *w, ru_err *err)
{
    if (w->opt->shell.newcomer) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "this job is a pipeline, whose stages all have their worker; nobody can "
                       "join it");
    }
    RU_TRY(ru_pipe_job_check(w->opt->train.job, w->opt->founders, err));
    if (w->opt->weights != NULL) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "--weights gives the weights of one worker, and one of a pipeline has those "
                       "of its stage; leave it out, or train data parallel");
    }
    RU_TRY(ru_shell_open(&w->shell, &w->opt->shell, &shell_ops, w, &w->arena_loop, err));
    RU_TRY(ru_shell_line(&w->shell, &w->line, RUI_PIPE_EVENTS_MAX, sizeof(rui_pipe_event), err));
    ru_loop_poll(w->shell.loop, w->t.job->train.poll_ns, true);
    RU_TRY(rui_trainer_prepare(&w->t, err));
    RU_TRY(w->opt->train.resume ? rui_trainer_look_back(&w->t, err) : RU_OK);
    w->first_step = w->t.goes_on ? w->t.from.at.step : 0;
    RU_TRY(cut(w, err));
    RU_TRY(open_node(w, err));
    return ru_thread_start(&w->thread, "compute", rui_pipe_compute, w, err);
}

static void close_all(rui_pipe_worker *w)
{
    set(w, &w->told.over);
    ru_thread_join(&w->thread);
    ru_node_quiet(w->shell.timers.node);
    ru_shell_close(&w->shell);
    rui_flows_close(w);
    rui_trainer_close(&w->t);
    ru_cond_fini(&w->changed);
    ru_mutex_fini(&w->lock);
}

static ru_status verdict_of(const rui_pipe_worker *w, ru_status st, ru_err *err)
{
    if (st != RU_OK || w->shell.end_status == RU_OK) {
        return st;
    }
    return ru_err_set(err, w->shell.end_status, "%s", w->shell.end_text);
}

ru_status ru_pipe_worker_run(const ru_worker_options *opt, ru_arena *arena, ru_worker_result *out,
                             ru_err *err)
{
    rui_pipe_worker *w = RU_NEW(arena, rui_pipe_worker, 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    w->opt = opt;
    w->arena = arena;
    ru_arena_init(&w->arena_loop, 0);
    w->t =
        (rui_trainer){.opt = &opt->train, .job = opt->train.job, .arena = arena, .saved_step = -1};
    w->t.key = ru_worker_key(opt->shell.token, opt->shell.token_bytes);
    ru_mutex_init(&w->lock);
    ru_cond_init(&w->changed);
    ru_status st = open_all(w, err);
    st = st == RU_OK ? ru_shell_run(&w->shell, err) : st;
    st = verdict_of(w, st, err);
    if (w->thread.started) {
        set(w, &w->told.over);
        ru_thread_join(&w->thread);
    }
    if (st != RU_OK && w->t.report != NULL) {
        ru_run_report_log(w->t.report, "failed after step %lld: %s", (long long)w->t.step_done,
                          err != NULL ? err->text : ru_status_name(st));
    }
    *out = (ru_worker_result){.reported = w->reported,
                              .summary = w->summary,
                              .number = w->shell.number,
                              .step = w->t.step_done};
    close_all(w);
    ru_arena_fini(&w->arena_loop);
    return st;
}
