/* The compute thread of a stage.
 *
 *   for each part in the order of the schedule:
 *     F j   samples or pieces of earlier stages --> forward --> pieces for later ones; statistics
 *     B j   gradients of later stages --> backward --> gradients for earlier ones; their sums
 *   decision of the leader, then the update
 *
 * A schedule that flows on goes forward with micro-batch j + k, of the next step too, before it
 * goes back with j. All stages drain at an evaluation, a checkpoint and the end: those that the job
 * says each worker knows by itself, others the leader decides as many steps ahead as the first
 * stage is.
 *
 * stash: each micro-batch on its way has a slot with parameters of its own, a copy of those of
 * `home` from when it went forward. Where a step is one micro-batch the slot of one that went back
 * gets those of the next one at once, with vertical too, and gradients are not added up.
 *
 * vertical of several micro-batches, and 2bw: `ring` has the weights after each of the last
 * updates: an update copies the newest ones over the oldest, and updates the copy. A slot has an
 * executable for each of them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/process/memory.h"
#include "train/driver/keep.h"
#include "train/driver/op_facts.h"
#include "train/worker/worker_pipe_impl.h"

void rui_pipe_say(rui_pipe_worker *w, rui_pipe_event x)
{
    ru_shell_say(&w->shell, &w->line, &x);
}

static const ru_stage *own(const rui_pipe_worker *w)
{
    return &w->stages.at[w->at->stage];
}

/* -- opening ----------------------------------------------------------------------------------- */

ru_pipe_shape rui_pipe_shape(const rui_pipe_worker *w)
{
    return (ru_pipe_shape){
        .schedule = w->schedule, .n = w->stages.n, .micro = w->micro, .workers = w->seats.workers};
}

/* The memory of the gradients of `e` in value order: where each update follows its gradients, all
 * slots write them there. */
static ru_status grads_of(rui_pipe_worker *w, const ru_exe *e, void *const **out, ru_err *err)
{
    const ru_exe_grad *g;
    uint32_t n = ru_exe_grads(e, &g);
    void **at = RU_NEW(w->arena, void *, n + 1);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a stage");
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t place = 0;
        for (uint32_t i = 0; i < n; i++) {
            place += g[i].value.v < g[k].value.v;
        }
        at[place] = g[k].data;
    }
    *out = at;
    return RU_OK;
}

/* Nothing is added up: the executable with the state computes too. */
static bool is_alone(const rui_pipe_worker *w)
{
    return w->micro == 1 && !w->course.on;
}

/* apart: its weights are its own. there: gradients stand where `share` has them. */
static ru_status open_exe(rui_pipe_worker *w, ru_exe *share, bool apart, bool there, ru_exe **out,
                          ru_err *err)
{
    ru_step_options so;
    ru_exe_options eo;
    const ru_stage *s = own(w);
    const ru_placed *placed = &w->seats.placed;
    ru_value_id *ports = s->ports;
    bool together = placed->n > 0 && (share != NULL || is_alone(w));
    uint32_t n_brief = 0;
    rui_trainer_options(&w->t, &so, &eo);
    RU_TRY(placed->n > 0
               ? ru_placed_ports(&w->stages, placed, w->at->stage, w->arena, &ports, &n_brief, err)
               : RU_OK);
    eo.two_phase = true;
    eo.forward = s->ends;
    eo.n_forward = s->n_ends;
    eo.ports = ports;
    eo.n_ports = s->n_ports;
    eo.autotune = eo.autotune && !w->opt->deterministic;
    eo.share = share;
    eo.own_params = apart;
    eo.plain_grads = w->seats.workers[w->at->stage] > 1; /* workers may choose other layouts */
    if (there) {
        RU_TRY(grads_of(w, share, &eo.grad_at, err));
    }
    ru_status st = together ? ru_exe_open_part(&s->step.graph, &eo, n_brief, out, err)
                            : ru_exe_open(&s->step.graph, &eo, out, err);
    return st == RU_E_MEM ? ru_err_wrap(err, st,
                                        "%s %u of %u does not fit into memory with %u "
                                        "micro-batches of %lld samples; cut it, or raise "
                                        "train.accumulate",
                                        w->seats.called, w->seats.place[w->seats.own] + 1,
                                        w->seats.places, w->n_slots, (long long)w->micro_n)
                          : st;
}

/* -- what leaves ------------------------------------------------------------------------------- */

typedef struct leaving {
    rui_pipe_worker *w;
    uint32_t edge;
    bool back;
    const void **made; /* of a statistic; else NULL */
} leaving;

/* As soon as it is made. */
static ru_status on_made(void *self, const ru_exe_at *at)
{
    const leaving *x = self;
    if (x->made != NULL) {
        *x->made = at->data;
        return RU_OK;
    }
    if (x->w->course.redo) {
        return RU_OK;
    }
    const ru_stage_edge *e = &x->w->stages.edges[x->edge];
    const rui_pipe_part *to = rui_pipe_own(x->w, x->back ? e->from : e->to);
    if (to != NULL) { /* another part of this worker: one micro-batch is on its way */
        void *in = ru_exe_input(to->slot[0], x->back ? e->seed : e->in);
        memcpy(in, at->data, in != at->data ? (size_t)ru_type_bytes(&e->type) : 0);
        return RU_OK;
    }
    uint32_t number, link = rui_pipe_link_of(x->w, x->edge, x->back, &number);
    return rui_flow_put(x->w, link, number, at->data);
}

static ru_status set_ports(rui_pipe_worker *w, uint32_t slot, ru_err *err)
{
    const ru_stage *s = own(w);
    uint32_t most = 2 * w->stages.n_edges + s->n_stats, n = 0;
    leaving *all = RU_NEW(w->arena, leaving, most + 1);
    ru_exe_port *ports = RU_NEW(w->arena, ru_exe_port, most + 1);
    if (all == NULL || ports == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a stage");
    }
    for (uint32_t i = 0; i < 2 * w->stages.n_edges; i++) {
        const ru_stage_edge *x = &w->stages.edges[i / 2];
        bool back = i % 2 == 1;
        bool sent = back || rui_pipe_own(w, x->to) != NULL || w->plan.lead[i / 2] == i / 2;
        ru_value_id v = back ? x->grad : x->held || !sent ? (ru_value_id){0} : x->out;
        if ((back ? x->to : x->from) == w->at->stage && v.v != 0) {
            all[n] = (leaving){.w = w, .edge = i / 2, .back = back};
            ports[n] = (ru_exe_port){.value = v, .leaves = true, .fn = on_made, .self = &all[n]};
            n++;
        }
    }
    for (uint32_t i = 0; i < s->n_stats; i++) {
        all[n] = (leaving){.w = w, .made = &w->at->made[slot * s->n_stats + i]};
        ports[n] =
            (ru_exe_port){.value = s->news[i], .leaves = true, .fn = on_made, .self = &all[n]};
        n++;
    }
    return ru_exe_ports_set(w->at->slot[slot], ports, n, err);
}

/* Which records are whose (trace/read/stages.h). */
static void name_records(rui_pipe_worker *w)
{
    char text[256];
    ru_recorder *r = w->t.recorder;
    w->t.names.sums = ru_recorder_name(r, "wait for a stage", "train");
    w->names = (rui_pipe_names){.forward = ru_recorder_name(r, "forward", "train"),
                                .backward = ru_recorder_name(r, "backward", "train"),
                                .update = ru_recorder_name(r, "update", "train")};
    const rui_pipe_seats *s = &w->seats;
    bool placed = s->placed.n > 0;
    (void)snprintf(text, sizeof text, "%u %u %u %s %s", s->place[s->own], s->places, w->micro,
                   placed ? "placed" : ru_pipe_schedule_names[w->schedule],
                   placed ? s->placed.name[w->at->stage] : own(w)->first);
    ru_recorder_meta(r, s->n == s->places ? "pipe" : "pipe workers", text);
}

/* Links of the sums of this stage carry all its gradients. */
static void size_sums(rui_pipe_worker *w)
{
    const ru_exe_grad *g;
    uint32_t n = ru_exe_grads(w->at->home, &g), m = w->seats.workers[w->at->stage];
    int64_t bytes = 0;
    for (uint32_t k = 0; k < n; k++) {
        bytes += g[k].size_bytes;
    }
    for (uint32_t k = 0; k < m * m && m > 1; k++) {
        w->plan.bytes[w->plan.sum[w->at->stage] + k] = bytes;
    }
}

uint32_t rui_pipe_ahead(const rui_pipe_worker *w, uint32_t stage)
{
    const ru_pipe_shape shape = rui_pipe_shape(w);
    return w->seats.placed.n > 0 ? 1 : ru_pipe_in_flight(&shape, stage);
}

rui_pipe_part *rui_pipe_own(const rui_pipe_worker *w, uint32_t stage)
{
    for (uint32_t k = 0; k < w->n_parts; k++) {
        if (w->parts[k].stage == stage) {
            return &w->parts[k];
        }
    }
    return NULL;
}

/* Slots have the activations: of the memory of `home` between its first gradient and its inputs
 * only sums of gradients are touched. On large pages that would be most of it. */
static void keep_small(rui_pipe_worker *w)
{
    const ru_exe_grad *g;
    uint32_t n = ru_exe_grads(w->at->home, &g);
    uint8_t *from = n > 0 ? g[0].data : NULL, *to = ru_exe_input(w->at->home, own(w)->step.lr);
    for (uint32_t k = 1; k < n; k++) {
        from = (uint8_t *)g[k].data < from ? g[k].data : from;
    }
    if (from != NULL && to > from) {
        ru_memory_small(from, to - from);
    }
}

/* The executables of the part under way. */
static ru_status open_part(rui_pipe_worker *w, ru_err *err)
{
    rui_pipe_part *p = w->at;
    const rui_pipe_course *c = &w->course;
    p->slot = RU_NEW(w->arena, ru_exe *, w->n_exes);
    p->ring = RU_NEW(w->arena, ru_exe *, c->versions);
    p->made = RU_NEW(w->arena, const void *, w->n_exes *own(w)->n_stats + 1);
    if (p->slot == NULL || p->ring == NULL || p->made == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a stage");
    }
    for (uint32_t k = 0; k < c->versions; k++) {
        RU_TRY(open_exe(w, p->ring[0], k > 0, k > 0, &p->ring[k], err));
    }
    p->home = p->ring[0];
    bool alone = is_alone(w);
    if (!alone) {
        keep_small(w);
    }
    for (uint32_t k = 0; k < w->n_exes; k++) {
        ru_exe *share = p->ring[k / w->n_slots];
        p->slot[k] = alone ? p->home : NULL;
        RU_TRY(alone ? RU_OK : open_exe(w, share, c->apart, c->whole, &p->slot[k], err));
    }
    return RU_OK;
}

/* Ports and state of the part under way. */
static ru_status fill_part(rui_pipe_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    rui_pipe_part *p = w->at;
    const rui_pipe_course *c = &w->course;
    for (uint32_t k = 0; k < w->n_exes; k++) {
        RU_TRY(set_ports(w, k, err));
    }
    t->exe = p->home;
    t->step = own(w)->step;
    RU_TRY(rui_trainer_fill(t, err));
    RU_TRY(rui_sets_fill(w, err));
    for (uint32_t k = 0; k < (c->whole ? w->n_slots : c->versions); k++) {
        const ru_exe *e = c->whole ? p->slot[k] : p->ring[k]; /* writes what home reads */
        if (ru_exe_grads_hash(e) != ru_exe_grads_hash(p->home)) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "executables of stage %u lay out their gradients differently; set "
                           "train.autotune: false",
                           p->stage + 1);
        }
    }
    for (uint32_t k = 0; k < w->n_slots && c->whole && c->apart; k++) {
        RU_TRY(ru_exe_params_copy(p->slot[k], p->home, err));
    }
    return RU_OK;
}

/* What this worker computes: its stage, or the parts of its device. */
static ru_status list_parts(rui_pipe_worker *w, ru_err *err)
{
    const rui_pipe_seats *s = &w->seats;
    w->parts = RU_NEW(w->arena, rui_pipe_part, s->placed.n + 1);
    if (w->parts == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a stage");
    }
    for (uint32_t k = 0; k < s->placed.n; k++) {
        uint32_t stage = s->placed.order[k];
        if (s->first[stage] == s->own) {
            w->parts[w->n_parts++].stage = stage;
        }
    }
    if (s->placed.n == 0) {
        w->parts[w->n_parts++].stage = s->place[s->own];
    }
    w->at = w->parts;
    w->seats.replica = s->placed.n == 0 ? s->own - s->first[w->at->stage] : 0;
    return RU_OK;
}

static ru_status list_acts(rui_pipe_worker *w, ru_err *err)
{
    const ru_pipe_shape shape = rui_pipe_shape(w);
    rui_pipe_course *c = &w->course;
    uint32_t m = w->seats.workers[w->at->stage], late = ru_pipe_late(&shape, w->at->stage);
    *c = (rui_pipe_course){.on = ru_pipe_flows_on(w->schedule),
                           .whole = ru_pipe_whole(&shape),
                           .own = w->micro / m,
                           .n = 2 * w->micro / m * w->n_parts,
                           .ahead = rui_pipe_ahead(w, w->at->stage),
                           .limit = INT64_MAX};
    c->apart = late > 0 && (c->whole || w->schedule == RU_PIPE_SCHEDULE_STASH);
    c->versions = c->apart ? 1 : late + 1;
    w->n_slots = c->whole ? late + 1 : c->ahead;
    w->n_exes = w->n_slots * c->versions;
    RU_TRY(w->t.job->train.pipeline.recompute && w->n_slots > 1 ? rui_redo_open(w, err) : RU_OK);
    c->order = RU_NEW(w->arena, ru_pipe_act, c->n);
    c->has = RU_NEW(w->arena, int64_t, w->n_slots);
    if (c->order == NULL || c->has == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a stage");
    }
    for (uint32_t k = 0; k < w->n_slots; k++) {
        c->has[k] = -1;
    }
    if (w->seats.placed.n > 0) {
        RU_TRY(rui_pipe_list_placed(w, err));
    } else if (!c->on) {
        ru_pipe_order(&shape, w->at->stage, w->seats.replica, c->order);
    }
    return RU_OK;
}

static ru_status open_stage(rui_pipe_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    bool reads = false;
    w->plan.memory = ru_memory_touched_bytes();
    RU_TRY(list_parts(w, err));
    name_records(w);
    RU_TRY(list_acts(w, err));
    for (w->at = w->parts; w->at < w->parts + w->n_parts; w->at++) {
        RU_TRY(open_part(w, err));
    }
    RU_TRY(w->seats.placed.n > 0 ? rui_pipe_join_parts(w, err) : RU_OK);
    for (w->at = w->parts; w->at < w->parts + w->n_parts; w->at++) {
        RU_TRY(fill_part(w, err));
        reads = reads || own(w)->step.x[0].v != 0 || own(w)->step.y[0].v != 0;
    }
    w->at = w->parts;
    t->exe = w->at->home;
    const ru_stream_options so = {.seed = (uint64_t)t->job->train.seed,
                                  .augment = t->job->data.augment,
                                  .shuffle = ru_job_shuffle(t->job),
                                  .batch = w->micro_n,
                                  .stride = w->micro_n * w->seats.workers[w->at->stage],
                                  .start = t->samples + w->micro_n * w->seats.replica,
                                  .threads = t->job->data.threads,
                                  .bytes_max = t->job->data.memory,
                                  .recorder = t->recorder};
    RU_TRY(rui_keep_begin(t, err));
    RU_TRY(reads ? ru_stream_open(t->train_set, &so, &w->stream, err) : RU_OK);
    RU_TRY(rui_news_open(w, err));
    size_sums(w);
    RU_TRY(rui_flows_open(w, err));
    RU_TRY(rui_pipe_eval_open(w, err));
    return rui_pipe_check_memory(w, err);
}

/* -- one part of a step ------------------------------------------------------------------------ */

/* Every worker reads the samples that it needs by itself; its parts share those of a micro-batch,
 * which its first part reads. */
static ru_status feed(rui_pipe_worker *w, ru_exe *e, ru_err *err)
{
    const ru_step_graph *s = &own(w)->step;
    ru_batch *b = &w->course.batch;
    if (w->stream == NULL) {
        return RU_OK;
    }
    ru_time begun = ru_clock_now();
    RU_TRY(w->at == w->parts ? ru_stream_next(w->stream, b, err) : RU_OK);
    RU_CHECK(b->n == w->micro_n);
    for (uint32_t k = 0; k < 2; k++) {
        ru_value_id v = k == 0 ? s->x[0] : s->y[0];
        if (v.v != 0) {
            memcpy(ru_exe_input(e, v), b->fields[k],
                   (size_t)ru_type_bytes(&ru_graph_value(&s->graph, v)->type));
        }
    }
    ru_time now = ru_clock_now();
    w->t.split.input_ns += ru_time_since(now, begun);
    ru_rec_span(w->t.recorder, w->t.names.input, begun.ns, now.ns, 0);
    return RU_OK;
}

/* What came over an edge, to all parts of this worker that read it. */
static void spread(rui_pipe_worker *w, uint32_t edge, const void *piece)
{
    for (uint32_t i = 0; i < w->stages.n_edges; i++) {
        const ru_stage_edge *x = &w->stages.edges[i];
        if (w->plan.lead[i] == edge && i != edge) { /* one micro-batch is on its way */
            memcpy(ru_exe_input(rui_pipe_own(w, x->to)->slot[0], x->in), piece,
                   (size_t)ru_type_bytes(&x->type));
        }
    }
}

/* What other stages sent into the inputs; back: gradients. */
static ru_status take(rui_pipe_worker *w, ru_exe *e, bool back)
{
    for (uint32_t i = 0; i < w->stages.n_edges; i++) {
        const ru_stage_edge *x = &w->stages.edges[i];
        ru_value_id v = back ? x->seed : x->held ? (ru_value_id){0} : x->in;
        bool here = rui_pipe_own(w, back ? x->to : x->from) != NULL; /* put there by on_made */
        bool came = !back && w->plan.lead[i] != i; /* with that of an earlier part */
        if ((back ? x->from : x->to) != w->at->stage || v.v == 0 || here || came) {
            continue;
        }
        void *piece;
        uint32_t number, link = rui_pipe_link_of(w, i, back, &number);
        RU_TRY(rui_flow_place(w, link, number, &piece));
        if (!w->flows[link].lent) {
            memcpy(ru_exe_input(e, v), piece, (size_t)ru_type_bytes(&x->type));
        }
        if (!back) {
            spread(w, i, piece);
        }
        if (!w->flows[link].lent) { /* else rui_flows_release */
            rui_flow_go(w, link, number);
        }
    }
    return RU_OK;
}

static float figure(ru_exe *e, ru_value_id v, float sum, bool first)
{
    float x = v.v != 0 ? *(const float *)ru_exe_output(e, v) : 0;
    return first ? x : sum + x;
}

/* slot: of this micro-batch; first: of those of this worker in the step. Recomputed, all slots use
 * one executable. */
static ru_status forward(rui_pipe_worker *w, uint32_t slot, bool first, const ru_run_args *args,
                         ru_err *err)
{
    const ru_stage *s = own(w);
    ru_exe *e = w->at->slot[w->turn.slot];
    const void **made = w->at->made + w->turn.slot * s->n_stats;
    RU_TRY(w->at == w->parts ? rui_flows_sent(w, NULL) : RU_OK); /* all memory is used again */
    RU_TRY(feed(w, e, err));
    RU_TRY(take(w, e, false));
    rui_redo_keep(w, slot);
    RU_TRY(ru_exe_phase(e, RU_PHASE_FORWARD, args, err));
    for (uint32_t k = 0; k < s->n_stats; k++) {
        RU_TRY(ru_exe_state_write(w->at->home, s->stats[k], made[k], err));
    }
    if (own(w) == &w->stages.at[w->stages.n - 1]) {
        w->sum.loss = figure(e, s->step.loss, w->sum.loss, first);
        w->sum.correct = figure(e, s->step.correct, w->sum.correct, first);
        w->sum.count = figure(e, s->step.count, w->sum.count, first);
    }
    return RU_OK;
}

static ru_status backward(rui_pipe_worker *w, uint32_t slot, bool first, const ru_run_args *args,
                          ru_err *err)
{
    const ru_exe_grad *to, *from;
    ru_exe *e = w->at->slot[w->turn.slot];
    RU_TRY(rui_redo(w, slot, args, err));
    RU_TRY(take(w, e, true));
    RU_TRY(ru_exe_phase(e, RU_PHASE_BACKWARD, args, err));
    RU_TRY(rui_flows_release(w));
    if (w->course.whole || e == w->at->home) { /* they stand there */
        return RU_OK;
    }
    if (!first) {
        return ru_exe_grads_add(w->at->home, e, err);
    }
    uint32_t n = ru_exe_grads(w->at->home, &to);
    RU_CHECK(ru_exe_grads(e, &from) == n);
    for (uint32_t k = 0; k < n; k++) {
        memcpy(to[k].data, from[k].data, (size_t)to[k].size_bytes);
    }
    return RU_OK;
}

/* -- a step ------------------------------------------------------------------------------------ */

/* The slot of minibatch `step`, which went back, gets the newest weights, for one that goes forward
 * later; all get them where the stages have drained. */
static ru_status renew(rui_pipe_worker *w, int64_t step, ru_err *err)
{
    bool drained = step + 1 == w->course.limit;
    for (uint32_t k = 0; k < w->n_slots; k++) {
        bool own = k == (uint64_t)step % w->n_slots;
        RU_TRY(own || drained ? ru_exe_params_copy(w->at->slot[k], w->at->home, err) : RU_OK);
    }
    return RU_OK;
}

static ru_status update(rui_pipe_worker *w, double lr, const ru_run_args *args, ru_err *err)
{
    const ru_step_graph *s = &own(w)->step;
    if (s->n_params == 0) {
        return RU_OK;
    }
    if (w->course.versions > 1) { /* nothing in flight uses the weights there any more */
        ru_exe *newest = w->at->ring[(args->step + 1 - w->first_step) % w->course.versions];
        RU_TRY(ru_exe_params_copy(newest, w->at->home, err));
        w->at->home = newest;
    }
    *(float *)ru_exe_input(w->at->home, s->lr) = (float)lr;
    for (uint32_t k = 0; k < s->n_rates; k++) {
        *(float *)ru_exe_input(w->at->home, s->rates[k].input) = (float)(lr * s->rates[k].factor);
    }
    if (s->step.v != 0) {
        *(int64_t *)ru_exe_input(w->at->home, s->step) = args->step + 1;
    }
    ru_time begun = ru_clock_now();
    ru_status st = ru_exe_phase(w->at->home, RU_PHASE_UPDATE, args, err);
    st = st == RU_OK && w->course.whole && w->course.apart ? renew(w, args->step, err) : st;
    ru_rec_span(w->t.recorder, w->names.update, begun.ns, ru_clock_now().ns, 0);
    return st;
}

/* The next decision of the leader. */
static ru_status hear(rui_pipe_worker *w, rui_pipe_decision *d)
{
    ru_time begun = ru_clock_now();
    ru_mutex_lock(&w->lock);
    while (w->told.n_heard == w->told.n_decided && !w->told.over) {
        ru_cond_wait(&w->changed, &w->lock);
    }
    ru_status st = w->told.n_heard < w->told.n_decided ? RU_OK : RU_E_CANCELLED;
    *d = w->told.decisions[w->told.n_heard % RUI_PIPE_DECISIONS_MAX];
    w->told.n_heard += st == RU_OK;
    ru_mutex_unlock(&w->lock);
    w->waited_ns += ru_time_since(ru_clock_now(), begun);
    return st;
}

static bool leads(const rui_pipe_worker *w)
{
    return w->seats.own + 1 == w->seats.n;
}

static ru_status one_part(rui_pipe_worker *w, int64_t step, ru_pipe_act act, uint32_t slot,
                          bool first, ru_err *err)
{
    const ru_run_args args = {.seed = (uint64_t)w->t.job->train.seed,
                              .step = step,
                              .sample_offset = (int64_t)act.micro * w->micro_n};
    w->at = &w->parts[act.part];
    w->turn = (rui_pipe_turn){.round = (uint32_t)(step - w->first_step),
                              .micro = act.micro,
                              .slot = w->course.kept != NULL && !w->course.on ? 0 : slot};
    ru_time begun = ru_clock_now();
    RU_TRY(act.back ? backward(w, slot, first, &args, err) : forward(w, slot, first, &args, err));
    ru_rec_span(w->t.recorder, act.back ? w->names.backward : w->names.forward, begun.ns,
                ru_clock_now().ns, act.micro);
    return RU_OK;
}

/* Do the stages drain behind this minibatch, by what the job says? */
static bool drains(const rui_pipe_worker *w, int64_t step)
{
    const rui_trainer *t = &w->t;
    const rui_place from = {.step = step,
                            .samples = t->samples + (step - t->step_done) * t->job->train.batch};
    const rui_place to = {.step = step + 1, .samples = from.samples + t->job->train.batch};
    return step + 1 >= t->steps_end ||
           (t->test_set != NULL && rui_trainer_eval_between(t, &from, &to));
}

/* What goes forward in this slot uses the newest weights: those after so many updates. */
static ru_status weigh(rui_pipe_worker *w, uint32_t slot, int64_t updates, ru_err *err)
{
    rui_pipe_course *f = &w->course;
    RU_CHECK(updates == w->t.step_done);
    if (f->has[slot] == updates) {
        return RU_OK;
    }
    f->has[slot] = updates;
    return ru_exe_params_copy(w->parts[0].slot[slot], w->parts[0].home, err);
}

/* Part of what flows on: `at` as `gone` counts. What the last stage uses of another one is late as
 * it is there. */
static ru_status part_on(rui_pipe_worker *w, int64_t at, bool back, ru_err *err)
{
    const rui_pipe_course *f = &w->course;
    const ru_pipe_shape shape = rui_pipe_shape(w);
    uint32_t stage = w->parts[0].stage, m = w->seats.workers[stage], k = (uint32_t)(at % f->own);
    uint32_t slot = (uint32_t)(at % w->n_slots);
    int64_t step = at / f->own;
    const ru_pipe_act act = {.micro = k * m + w->seats.replica, .back = back};
    int64_t of = ru_pipe_version(&shape, rui_pipe_owner(w), step, act.micro, f->drained);
    int64_t updates = ru_pipe_version(&shape, stage, step, act.micro, f->drained);
    RU_TRY(back ? RU_OK : rui_news_take(w, (uint32_t)(of - w->first_step), err));
    RU_TRY(!back && f->apart && !f->whole ? weigh(w, slot, updates, err) : RU_OK);
    slot += (uint32_t)((updates - w->first_step) % f->versions) * w->n_slots;
    return one_part(w, step, act, slot, k == 0, err);
}

/* Forward as far as the schedule goes before each part back of `step`. */
static ru_status parts_on(rui_pipe_worker *w, int64_t step, double lr, rui_pipe_decision *d,
                          ru_err *err)
{
    rui_pipe_course *f = &w->course;
    const ru_pipe_shape shape = rui_pipe_shape(w);
    int64_t first = step * f->own;
    if (f->limit == step || f->gone == 0) { /* drained, or the first one */
        f->limit = INT64_MAX;
        f->drained = step;
    }
    f->gone = f->gone > first ? f->gone : first;
    for (int64_t at = first; at < first + f->own; at++) {
        for (; f->gone / f->own < f->limit && f->gone - at < f->ahead; f->gone++) {
            int64_t to = f->gone / f->own;
            RU_TRY(part_on(w, f->gone, false, err));
            f->limit = drains(w, to) ? to + 1 : f->limit;
        }
        bool all = at + 1 == first + f->own;
        RU_TRY(all && leads(w) ? rui_pipe_decide(w, step, lr, d, err) : RU_OK);
        RU_TRY(part_on(w, at, true, err));
    }
    RU_TRY(rui_pipe_sum_up(w, err));
    RU_TRY(leads(w) ? RU_OK : hear(w, d)); /* none has gone forward beyond this end: */
    int64_t end = step + 1 + ru_pipe_late(&shape, 0);
    f->limit = (d->flags & RUI_PIPE_DRAIN) != 0 && end < f->limit ? end : f->limit;
    return RU_OK;
}

static ru_status parts(rui_pipe_worker *w, int64_t step, double lr, rui_pipe_decision *d,
                       ru_err *err)
{
    uint32_t m = w->seats.workers[w->parts[0].stage], left = w->course.n / 2;
    for (uint32_t k = 0; k < w->course.n; k++) {
        uint32_t i = w->course.order[k].micro / m; /* of those of this worker */
        RU_TRY(one_part(w, step, w->course.order[k], i % w->n_slots, i == 0, err));
        left -= !w->course.order[k].back;
        bool all = left == 0 && !w->course.order[k].back;
        RU_TRY(all ? rui_pipe_figures(w) : RU_OK);
        RU_TRY(all && leads(w) ? rui_pipe_decide(w, step, lr, d, err) : RU_OK);
    }
    RU_TRY(rui_pipe_sum_up(w, err));
    return leads(w) ? RU_OK : hear(w, d);
}

/* This worker's stage of an evaluation; the leader has the metrics. */
static ru_status judge(rui_pipe_worker *w, ru_err *err)
{
    ru_metrics none;
    ru_time begun = ru_clock_now();
    RU_TRY(rui_pipe_eval_run(w, &none, err));
    ru_rec_span(w->t.recorder, w->t.names.eval, begun.ns, ru_clock_now().ns, w->t.step_done);
    return RU_OK;
}

/* What the leader decided: the states, an evaluation, and whether there is another step. After an
 * evaluation it may want the states. */
static ru_status follow(rui_pipe_worker *w, const rui_pipe_decision *d, bool *over, ru_err *err)
{
    rui_pipe_decision next = *d;
    if (leads(w)) {
        return rui_pipe_saved(w, d, over, err);
    }
    RU_TRY(rui_pipe_send_states(w, d->flags, err));
    RU_TRY((d->flags & RUI_PIPE_EVAL) != 0 && w->t.eval != NULL ? judge(w, err) : RU_OK);
    if ((d->flags & RUI_PIPE_WAIT) != 0) {
        RU_TRY(hear(w, &next));
        RU_TRY(rui_pipe_send_states(w, next.flags, err));
    }
    *over = (next.flags & RUI_PIPE_OVER) != 0;
    return RU_OK;
}

static ru_status one_step(rui_pipe_worker *w, bool *over, ru_err *err)
{
    rui_trainer *t = &w->t;
    int64_t step = t->step_done;
    double lr = ru_schedule_lr(&t->schedule, t->optimizer.lr, step);
    rui_pipe_decision d = {0};
    ru_time begun = ru_clock_now();
    int64_t read_ns = t->split.input_ns;
    w->waited_ns = 0;
    RU_TRY(w->course.on ? RU_OK : rui_news_take(w, (uint32_t)(step - w->first_step), err));
    RU_TRY(w->course.on ? parts_on(w, step, lr, &d, err) : parts(w, step, lr, &d, err));
    const ru_run_args args = {.seed = (uint64_t)t->job->train.seed, .step = step};
    RU_TRY(rui_pipe_norm(w, (uint32_t)(step - w->first_step)));
    for (w->at = w->parts; w->at < w->parts + w->n_parts; w->at++) {
        RU_TRY(update(w, lr, &args, err));
    }
    RU_TRY(rui_news_give(w, (uint32_t)(step - w->first_step), err));
    bool drained = w->course.on && w->course.limit == step + 1; /* states come behind them */
    drained = drained || (d.flags & RUI_PIPE_EVAL) != 0;
    RU_TRY(drained ? rui_news_take(w, (uint32_t)(step + 1 - w->first_step), err) : RU_OK);
    w->at = w->parts;
    t->batch = t->job->train.batch;
    t->step_done = step + 1;
    t->samples += t->batch;
    ru_time now = ru_clock_now();
    int64_t ns = ru_time_since(now, begun);
    t->split.network_ns += w->waited_ns;
    t->split.compute_ns += ns - w->waited_ns - (t->split.input_ns - read_ns);
    ru_rec_span(t->recorder, t->names.step, begun.ns, now.ns, t->step_done);
    RU_TRY(leads(w) ? rui_pipe_report(w, lr, ns, err) : RU_OK);
    RU_TRY(follow(w, &d, over, err));
    if ((d.flags & RUI_PIPE_SET) != 0 && !*over) { /* who goes on from it does not evaluate again */
        rui_sets_put(w, 0);
    }
    return RU_OK;
}

static ru_status wait_for(rui_pipe_worker *w, const bool *what)
{
    ru_mutex_lock(&w->lock);
    while (!*what && !w->told.over) {
        ru_cond_wait(&w->changed, &w->lock);
    }
    ru_status st = *what && !w->told.over ? RU_OK : RU_E_CANCELLED;
    ru_mutex_unlock(&w->lock);
    return st;
}

static ru_status work(rui_pipe_worker *w, ru_err *err)
{
    RU_TRY(wait_for(w, &w->told.viewed));
    w->seats.own = w->told.seat;
    RU_TRY(open_stage(w, err));
    RU_TRY(leads(w) ? rui_pipe_lead_open(w, err) : RU_OK);
    rui_pipe_tell_memory(w);
    rui_trainer_record(&w->t);
    rui_pipe_say(w, (rui_pipe_event){.word = RUI_PIPE_SAY_READY});
    RU_TRY(wait_for(w, &w->told.go));
    RU_TRY(rui_sets_hand(w, err));
    w->t.begun = w->t.saved = ru_clock_now();
    bool over = w->t.step_done >= w->t.steps_end;
    if (over && leads(w)) {
        const rui_pipe_decision d = {.flags = RUI_PIPE_OVER};
        return rui_pipe_saved(w, &d, &over, err);
    }
    while (!over) {
        RU_TRY(one_step(w, &over, err));
    }
    return RU_OK;
}

void rui_pipe_compute(void *self)
{
    rui_pipe_worker *w = self;
    ru_err err = {0};
    ru_thread_cores(w->opt->cores);
    ru_recorder_thread(w->t.recorder, "compute");
    ru_status st = work(w, &err);
    ru_mutex_lock(&w->lock);
    if (st != RU_OK && !w->told.over) {
        w->told.failed = st;
        w->told.why = err;
    }
    bool failed = w->told.failed != RU_OK;
    ru_mutex_unlock(&w->lock);
    if (failed || st == RU_OK) {
        rui_pipe_say(
            w, (rui_pipe_event){.word = failed ? RUI_PIPE_SAY_FAILED : RUI_PIPE_SAY_FINISHED});
    }
    ru_stream_close(w->stream);
}
