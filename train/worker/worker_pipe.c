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

static bool is_placed(const ru_job *job)
{
    return job->train.parallel == RU_PARALLEL_PLACED;
}

const char *ru_pipe_job_against(const ru_job *job)
{
    const ru_job_train *t = &job->train;
    const struct {
        bool is;
        const char *why;
    } against[] = {
        {t->servers > 0, "has no sums that servers could add; leave out train.servers"},
        {t->clip_norm > 0 && t->parallel == RU_PARALLEL_PIPELINE &&
             ru_pipe_flows_on((ru_pipe_schedule)t->pipeline.schedule),
         "whose stages update at different times has no norm of all gradients; leave out "
         "train.clip_norm, or take flush or gpipe"},
        {t->pipeline.recompute && t->parallel == RU_PARALLEL_PLACED,
         "has one micro-batch on its way, and computes nothing again; leave out train.recompute"},
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

bool ru_pipe_job_is(const ru_job *job)
{
    return job->train.parallel == RU_PARALLEL_PIPELINE || is_placed(job);
}

static ru_status check_placed(const ru_job *job, uint32_t workers, ru_err *err)
{
    if (job->train.placed.devices.n == 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.parallel is placed, but train.placed.devices is empty; name the "
                       "worker of some layers, as in devices: {branch2: 2}");
    }
    const char *other = job->train.pipeline.stale           ? "train.stale"
                        : job->train.pipeline.cut.n > 0     ? "train.pipeline.cut"
                        : job->train.pipeline.workers.n > 0 ? "train.pipeline.workers"
                                                            : NULL;
    if (other != NULL) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.parallel is placed, and %s is for pipelines; leave it out, or set "
                       "train.parallel to pipeline",
                       other);
    }
    return workers > 1 ? RU_OK
                       : RU_FAIL(err, RU_E_CONFIG,
                                 "train.parallel is placed, which needs at least 2 workers; start "
                                 "the job with -w 2");
}

/* What 2bw has in flight must be of two steps at most. */
static ru_status check_micro(const ru_job_train *t, uint32_t stages, ru_err *err)
{
    uint32_t workers[RU_STAGES_MAX], micro = t->accumulate > 1 ? (uint32_t)t->accumulate : 1;
    for (uint32_t k = 0; k < stages; k++) {
        workers[k] = t->pipeline.workers.n > 0 ? (uint32_t)t->pipeline.workers.at[k] : 1;
    }
    ru_pipe_schedule schedule = (ru_pipe_schedule)t->pipeline.schedule;
    const ru_pipe_shape shape = {
        .schedule = schedule, .n = stages, .micro = micro, .workers = workers};
    uint32_t least = ru_pipe_micro_min(&shape);
    return micro >= least
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "train.accumulate is %u, expected at least %u: with "
                         "train.pipeline.schedule %s so many micro-batches are on their way in %u "
                         "stages; raise it, or choose flush",
                         micro, least, ru_pipe_schedule_names[schedule], stages);
}

ru_status ru_pipe_job_check(const ru_job *job, uint32_t workers, ru_err *err)
{
    const ru_job_train *t = &job->train;
    const char *why = ru_pipe_job_against(job);
    if (why != NULL) {
        return RU_FAIL(err, RU_E_CONFIG, "train.parallel is %s, and %s %s, or train data parallel",
                       is_placed(job) ? "placed" : "pipeline",
                       is_placed(job) ? "a placed step" : "a pipeline", why);
    }
    if (is_placed(job)) {
        return check_placed(job, workers, err);
    }
    if (workers == 1 && t->pipeline.cut.n == 0) { /* the last one of several (launch/way.c) */
        return RU_OK;
    }
    uint32_t stages = t->pipeline.cut.n + 1, seats = 0;
    const ru_conf_i64s *of = &t->pipeline.workers;
    if (t->pipeline.cut.n == 0 || stages > RU_STAGES_MAX) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.pipeline.cut names %u layers, expected 1 to %d; each of them begins "
                       "a stage, as in cut: [fc2]",
                       t->pipeline.cut.n, RU_STAGES_MAX - 1);
    }
    if (of->n > 0 && of->n != stages) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.pipeline.workers has %u numbers, expected one for each of the %u "
                       "stages",
                       of->n, stages);
    }
    ru_pipe_schedule schedule = (ru_pipe_schedule)t->pipeline.schedule;
    if (of->n > 0 && of->at[of->n - 1] != 1 && ru_pipe_flows_on(schedule)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.pipeline.workers does not end with 1, which "
                       "train.pipeline.schedule %s needs: the last stage of a pipeline that never "
                       "drains has one worker; set it to 1, or take flush or gpipe",
                       ru_pipe_schedule_names[schedule]);
    }
    for (uint32_t k = 0; k < stages; k++) {
        int64_t m = of->n > 0 ? of->at[k] : 1, micro = t->accumulate > 1 ? t->accumulate : 1;
        seats += (uint32_t)m;
        if (micro % m != 0) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.accumulate is %lld, expected a multiple of the %lld workers of "
                           "stage %u, which take its micro-batches in turn",
                           (long long)micro, (long long)m, k + 1);
        }
    }
    RU_TRY(check_micro(t, stages, err));
    if (workers != seats) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.pipeline.cut makes %u stages, and each is one worker's%s: start the "
                       "job with -w %u",
                       stages, of->n > 0 ? " or those of train.pipeline.workers" : "", seats);
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
        rui_sets_after(w, w->opt->shell.newcomer ? n->b : w->opt->after);
        w->told.seat = (uint32_t)n->a;
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
    case RU_PIPE_SPARES:
        if (w->opt->train.messages) {
            ru_shell_tell_view(&w->shell);
        }
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
    rui_pipe_worker *w = self;
    if (all || !w->opt->shell.newcomer) { /* a stage cannot leave alone ... */
        ru_pipe_stop(w->pipe, now, fx);
    } else { /* ... but who came by itself: the others start again without it */
        on_ended(w, &(ru_pipe_news){.status = RU_OK, .text = "left"}, now);
    }
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
        ru_pipe_decide(w->pipe, &x->decision, sizeof x->decision, now, fx);
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
    const rui_pipe_worker *w = self;
    (void)now;
    bool waits = w->opt->shell.newcomer && w->shell.number == 0; /* as a spare does */
    level = level == RU_LOG_INFO || waits ? RU_LOG_DEBUG : level;
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
            bool here = x->kind == RU_VALUE_STATE && x->name != NULL &&
                        !ru_stage_holds(&w->stages, k, (ru_value_id){v});
            if (here) {
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

/* A link between seats. */
static void put_link(rui_pipe_worker *w, const ru_pipe_link *l, int64_t bytes)
{
    w->links[w->n_links] = *l;
    w->plan.bytes[w->n_links++] = bytes;
}

/* Of pieces: what the plan computes first leaves first, forward and then backward. */
static void put_piece(rui_pipe_worker *w, uint32_t from, uint32_t to, const ru_stage_edge *e,
                      bool back, int64_t bytes)
{
    const ru_placed *p = &w->seats.placed;
    uint32_t turn = 0;
    char name[64];
    while (turn < p->n && (back ? p->back[turn] != e->from : p->order[turn] != e->to)) {
        turn++;
    }
    turn += back ? p->n : 0;
    (void)snprintf(name, sizeof name, "%s %u to %u", w->seats.called, w->seats.place[from] + 1,
                   w->seats.place[to] + 1);
    put_link(w,
             &(ru_pipe_link){.from = from,
                             .to = to,
                             .label = ru_recorder_name(w->t.recorder, name, "stage"),
                             .rank = (uint16_t)(turn < UINT16_MAX ? turn : UINT16_MAX),
                             .urgent = p->n > 0},
             bytes);
}

/* Of an evaluation, while nothing else is on its way. */
static void put_eval(rui_pipe_worker *w)
{
    rui_pipe_eval *v = &w->plan.eval;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(v->at); k++) {
        v->first[k] = w->n_links;
        for (uint32_t i = 0; i < v->at[k].n_edges; i++) {
            const ru_stage_edge *e = &v->at[k].edges[i];
            const ru_pipe_link l = {.from = rui_pipe_eval_seat(w, e->from),
                                    .to = rui_pipe_eval_seat(w, e->to)};
            put_link(w, &l, ru_type_bytes(&e->type));
        }
    }
}

/* Pieces leave before sums, sums before states. Replicas a and b have a micro-batch in common where
 * some j is a mod one number of workers and b mod the other. */
static void put_links(rui_pipe_worker *w)
{
    const ru_stages *s = &w->stages;
    const uint32_t *first = w->seats.first, *workers = w->seats.workers;
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        uint32_t m = workers[e->from], n = workers[e->to];
        int64_t bytes = ru_type_bytes(&e->type), back = e->grad.v != 0 ? bytes : 0;
        int64_t there = e->held || w->plan.lead[i] != i ? 0 : bytes;
        w->plan.edge[i] = w->n_links;
        for (uint32_t k = 0; k < m * n; k++) {
            uint32_t a = k / n, b = k % n, j = a;
            while (j % n != b && j < m * n) {
                j += m;
            }
            bool meet = j < m * n;
            a += first[e->from];
            b += first[e->to];
            put_piece(w, a, b, e, false, meet ? there : 0);
            put_piece(w, b, a, e, true, meet ? back : 0);
        }
    }
    w->plan.sums = w->n_links;
    for (uint32_t k = 0; k < s->n; k++) {
        w->plan.sum[k] = w->n_links;
        for (uint32_t i = 0; i < workers[k] * workers[k] && workers[k] > 1; i++) {
            ru_pipe_link l = {
                .from = first[k] + i / workers[k], .to = first[k] + i % workers[k], .rank = 1};
            put_link(w, &l, 0);
        }
    }
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        w->plan.news[i] = w->n_links;
        for (uint32_t b = 0; b < workers[e->to] && e->held; b++) {
            ru_pipe_link l = {.from = first[e->from], .to = first[e->to] + b, .rank = 1};
            put_link(w, &l, ru_type_bytes(&e->type));
        }
    }
    w->plan.norm = w->n_links;
    for (uint32_t k = 0; k + 1 < w->seats.n && w->t.job->train.clip_norm > 0; k++) {
        put_link(w, &(ru_pipe_link){.from = k, .to = w->seats.n - 1, .rank = 1}, 8);
        put_link(w, &(ru_pipe_link){.from = w->seats.n - 1, .to = k, .rank = 1}, 8);
    }
    w->plan.figures = w->n_links;
    for (uint32_t r = 0; r + 1 < workers[s->n - 1]; r++) {
        ru_pipe_link l = {.from = first[s->n - 1] + r, .to = w->seats.n - 1, .rank = 1};
        put_link(w, &l, RUI_PIPE_FIGURES_BYTES);
    }
    put_eval(w);
    w->plan.state = w->n_links;
    for (uint32_t k = 0; k < s->n; k++) {
        bool leads = workers[k] > 1 && k + 1 == s->n; /* one of them: it has the state */
        ru_pipe_link l = {
            .from = leads ? w->seats.n - 1 : first[k], .to = w->seats.n - 1, .rank = 2};
        put_link(w, &l, rui_pipe_piece_bytes(w, k, 0));
    }
    w->plan.fill = w->n_links;
    for (uint32_t k = 0; k < s->n; k++) {
        for (uint32_t r = 0; r < workers[k]; r++) {
            put_link(w, &(ru_pipe_link){.from = w->seats.n - 1, .to = first[k] + r}, 0);
        }
    }
}

static ru_status list_links(rui_pipe_worker *w, ru_err *err)
{
    const ru_stages *s = &w->stages;
    const uint32_t *workers = w->seats.workers;
    const rui_pipe_eval *v = &w->plan.eval;
    uint64_t n = s->n + 3 * w->seats.n + v->at[0].n_edges + v->at[1].n_edges;
    for (uint32_t k = 0; k < s->n; k++) {
        n += workers[k] + (workers[k] > 1 ? workers[k] * workers[k] : 0);
    }
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const ru_stage_edge *e = &s->edges[i];
        n += 2 * (uint64_t)workers[e->from] * workers[e->to] + (e->held ? workers[e->to] : 0);
    }
    if (n > RU_PIPE_LINKS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "%u values cross between the stages over %llu links, expected at most %d",
                       s->n_edges, (unsigned long long)n, RU_PIPE_LINKS_MAX);
    }
    w->links = RU_NEW(w->arena, ru_pipe_link, n);
    w->plan = (rui_pipe_plan){.edge = RU_NEW(w->arena, uint32_t, s->n_edges + 1),
                              .lead = RU_NEW(w->arena, uint32_t, s->n_edges + 1),
                              .news = RU_NEW(w->arena, uint32_t, s->n_edges + 1),
                              .sum = RU_NEW(w->arena, uint32_t, s->n),
                              .eval = *v,
                              .bytes = RU_NEW(w->arena, int64_t, n)};
    if (w->links == NULL || w->plan.edge == NULL || w->plan.lead == NULL || w->plan.news == NULL ||
        w->plan.sum == NULL || w->plan.bytes == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    for (uint32_t i = 0; i < s->n_edges; i++) {
        w->plan.lead[i] = w->seats.placed.n > 0 ? ru_placed_lead(s, &w->seats.placed, i) : i;
    }
    put_links(w);
    return RU_OK;
}

/* Devices in their order, the one with the loss last, because it leads. */
static void seat_devices(rui_pipe_worker *w)
{
    rui_pipe_seats *s = &w->seats;
    uint32_t leads = s->placed.device[s->placed.n - 1], seat = 0;
    for (uint32_t d = 0; d < s->n; d++) {
        s->place[d == leads ? s->n - 1 : seat++] = d;
    }
    for (uint32_t k = 0; k < s->placed.n; k++) {
        s->workers[k] = 1;
        for (uint32_t at = 0; at < s->n; at++) {
            s->first[k] = s->place[at] == s->placed.device[k] ? at : s->first[k];
        }
    }
}

/* Who has which stage. Running statistics follow each other from micro-batch to micro-batch, so
 * they need one worker. */
static ru_status list_seats(rui_pipe_worker *w, ru_err *err)
{
    const ru_conf_i64s *of = &w->t.job->train.pipeline.workers;
    uint32_t stages = w->stages.n;
    rui_pipe_seats *s = &w->seats;
    bool placed = s->placed.n > 0;
    *s = (rui_pipe_seats){.n = w->seats.n,
                          .workers = RU_NEW(w->arena, uint32_t, stages),
                          .first = RU_NEW(w->arena, uint32_t, stages),
                          .place = RU_NEW(w->arena, uint32_t, w->seats.n),
                          .called = placed ? "device" : "stage",
                          .places = placed ? w->seats.n : stages,
                          .placed = s->placed};
    if (s->workers == NULL || s->first == NULL || s->place == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    if (placed) {
        seat_devices(w);
        return RU_OK;
    }
    for (uint32_t k = 0, seat = 0; k < stages; k++) {
        s->workers[k] = of->n > 0 ? (uint32_t)of->at[k] : 1;
        s->first[k] = seat;
        for (uint32_t r = 0; r < s->workers[k]; r++) {
            s->place[seat++] = k;
        }
        if (s->workers[k] > 1 && w->stages.at[k].n_stats > 0) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.pipeline.workers: stage %u has running statistics (batch "
                           "normalisation), which several workers cannot share; expected 1 there",
                           k + 1);
        }
    }
    return RU_OK;
}

/* Only the last stage has no micro-batch in flight when it takes a new value of a parameter of
 * another stage, and the copy has one place. All copies are as late as their stage, which is one.
 */
static ru_status check_held(const rui_pipe_worker *w, ru_err *err)
{
    const char *held = ru_stages_held(&w->stages);
    uint32_t owner = rui_pipe_owner(w);
    bool last = true;
    for (uint32_t i = 0; i < w->stages.n_edges && ru_pipe_flows_on(w->schedule); i++) {
        const ru_stage_edge *e = &w->stages.edges[i];
        last = last && (!e->held || (e->to + 1 == w->stages.n && e->from == owner));
    }
    return last ? RU_OK
                : RU_FAIL(err, RU_E_CONFIG,
                          "train.pipeline.schedule is %s, and several stages use '%.80s', which "
                          "late gradients allow for one stage and the last one; take flush, set "
                          "model.tie: false, or cut so that no other stage uses it",
                          ru_pipe_schedule_names[w->schedule], held);
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
    if (is_placed(t->job)) {
        const ru_placing in = {.at = j->placed.devices.at,
                               .n = j->placed.devices.n,
                               .back = j->placed.back.at,
                               .n_back = j->placed.back.n,
                               .devices = w->seats.n};
        w->schedule = RU_PIPE_SCHEDULE_FLUSH;
        RU_TRY(ru_stages_place(&t->model.train, &so, &in, w->arena, &w->stages, &w->seats.placed,
                               err));
    } else {
        RU_TRY(ru_stages_build(&t->model.train, &so, j->pipeline.cut.at, j->pipeline.cut.n,
                               w->arena, &w->stages, err));
        RU_TRY(check_back(&w->stages, err));
        RU_TRY(check_held(w, err));
    }
    RU_TRY(list_seats(w, err));
    RU_TRY(list_states(w, err));
    RU_TRY(rui_pipe_eval_cut(w, err));
    return list_links(w, err);
}

ru_status rui_pipe_list_placed(rui_pipe_worker *w, ru_err *err)
{
    const ru_placed *p = &w->seats.placed;
    uint32_t *back = RU_NEW(w->arena, uint32_t, w->n_parts + 1), n = 0;
    if (back == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a stage");
    }
    for (uint32_t k = 0; k < p->n; k++) {
        const rui_pipe_part *own = rui_pipe_own(w, p->back[k]);
        if (own != NULL) {
            back[n++] = (uint32_t)(own - w->parts);
        }
    }
    ru_pipe_order_placed(w->n_parts, back, w->micro, w->course.order);
    return RU_OK;
}

static ru_status open_node(rui_pipe_worker *w, ru_err *err)
{
    const ru_train_options *o = &w->opt->train;
    ru_shell_node_options no = {.capacity = o->job->train.threads != 0 ? o->job->train.threads
                                                                       : ru_pool_cores(),
                                .n_max = w->seats.n + RU_PIPE_SPARES_MAX,
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
                                .n = w->seats.n,
                                .stage_of = w->seats.place,
                                .called = w->seats.called,
                                .stages = w->seats.places,
                                .spares = w->opt->spares,
                                .after = w->opt->after,
                                .news = news,
                                .news_self = w};
    return ru_pipe_open(&po, &w->arena_loop, &w->pipe, err);
}

/* Workers that the job's cut or placement needs: who joins later is not told. */
static uint32_t seats_of(const ru_job *job)
{
    const ru_job_train *t = &job->train;
    int64_t n = is_placed(job) ? 1 : t->pipeline.workers.n > 0 ? 0 : t->pipeline.cut.n + 1;
    for (uint32_t k = 0; k < t->placed.devices.n && is_placed(job); k++) {
        int64_t device = (int64_t)t->placed.devices.at[k].value;
        n = device > n ? device : n;
    }
    for (uint32_t k = 0; k < t->pipeline.workers.n && !is_placed(job); k++) {
        n += t->pipeline.workers.at[k];
    }
    return n > 0 && n <= RU_WORKERS_MAX ? (uint32_t)n : 1;
}

static ru_status open_all(rui_pipe_worker *w, ru_err *err)
{
    w->seats.n = w->opt->shell.newcomer ? seats_of(w->opt->train.job) : w->opt->founders;
    RU_TRY(ru_pipe_job_check(w->opt->train.job, w->seats.n, err));
    if (w->opt->weights != NULL) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "--weights gives the weights of one worker, and one of this job has those "
                       "of its layers; leave it out, or train data parallel");
    }
    RU_TRY(ru_shell_open(&w->shell, &w->opt->shell, &shell_ops, w, &w->arena_loop, err));
    RU_TRY(ru_shell_line(&w->shell, &w->line, RUI_PIPE_EVENTS_MAX, sizeof(rui_pipe_event), err));
    ru_loop_poll(w->shell.loop, w->t.job->train.poll_ns, true);
    RU_TRY(rui_trainer_prepare(&w->t, err));
    RU_TRY(w->opt->train.resume ? rui_trainer_look_back(&w->t, err) : RU_OK);
    w->first_step = w->t.goes_on ? w->t.from.at.step : 0;
    RU_TRY(cut(w, err));
    RU_TRY(rui_sets_open(w, err));
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
    rui_pipe_parts_close(w); /* links used their memory */
    ru_sets_close(w->sets.at);
    rui_trainer_close(&w->t);
    ru_exe_together_close(w->course.together);
    ru_cond_fini(&w->changed);
    ru_mutex_fini(&w->lock);
}

static ru_status verdict_of(const rui_pipe_worker *w, ru_status st, ru_err *err)
{
    bool gave_up = w->shell.asked && w->shell.number == 0 && w->opt->shell.newcomer;
    if (st != RU_OK || w->shell.end_status == RU_OK || gave_up) {
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
    bool newcomer = opt->shell.newcomer;
    *out = (ru_worker_result){
        .reported = w->reported,
        .spare = newcomer && w->shell.number == 0,
        .left = newcomer && w->shell.asked,
        .start_again = newcomer && w->told.failed == RU_OK && st != RU_OK && w->pipe != NULL &&
                       (st == RU_E_PEER || st == RU_E_CONFIG || w->shell.number > 0),
        .summary = w->summary,
        .number = w->shell.number,
        .step = w->t.step_done};
    close_all(w);
    ru_arena_fini(&w->arena_loop);
    return st;
}
