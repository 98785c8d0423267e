/* What the worker with the last stage does for all: it decides what follows a step, reports,
 * evaluates and saves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "env/process/self.h"
#include "run/ckpt_held.h"
#include "train/worker/worker_pipe_impl.h"

/* -- states of all ----------------------------------------------------------------------------- */

static const rui_pipe_state *find_state(const rui_pipe_worker *w, const char *name)
{
    for (uint32_t k = 0; k < w->n_states; k++) {
        if (strcmp(w->states[k].name, name) == 0) {
            return &w->states[k];
        }
    }
    return NULL;
}

/* A state for a checkpoint, by its name: what others sent stands there already. */
static ru_status read_state(void *self, const char *name, void *into, ru_err *err)
{
    rui_pipe_worker *w = self;
    const rui_pipe_state *s = find_state(w, name);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_BUG, "no stage has '%s'", name);
    }
    const rui_pipe_part *own = rui_pipe_own(w, s->stage);
    return own != NULL ? ru_exe_state_read(own->home, s->value, into, err) : RU_OK;
}

/* A piece that came, into the copy of the state. */
static ru_status keep_piece(rui_pipe_worker *w, uint32_t stage, uint32_t k, const uint8_t *piece,
                            ru_err *err)
{
    int64_t at = (int64_t)k * RU_STAGE_PIECE_BYTES, n = rui_pipe_piece_bytes(w, stage, k);
    for (uint32_t i = 0; i < w->n_states; i++) {
        const rui_pipe_state *s = &w->states[i];
        int64_t from = 0, bytes = s->stage == stage ? rui_pipe_overlap(s, at, n, &from) : 0;
        void *to = NULL;
        RU_TRY(bytes > 0 ? ru_ckpt_held(w->t.ckpt, s->name, &to, err) : RU_OK);
        if (to != NULL) {
            memcpy((uint8_t *)to + from, piece + s->offset + from - at, (size_t)bytes);
        }
    }
    return RU_OK;
}

/* The states of all others, piece by piece, into the copy that is made for checkpoints. An earlier
 * one of them is written by then. */
static ru_status gather(rui_pipe_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    void *piece;
    bool alone = w->n_parts == w->stages.n, busy = ru_ckpt_busy(t->ckpt);
    RU_TRY(alone ? RU_OK : ru_ckpt_wait(t->ckpt, err));
    RU_TRY(busy && !alone
               ? ru_run_report_event(t->report, t->saved_step, "checkpoint_written", 0, NULL, err)
               : RU_OK);
    for (uint32_t stage = 0; stage < w->stages.n; stage++) {
        uint32_t link = w->plan.state + stage, pieces = rui_pipe_pieces(w, stage);
        for (uint32_t k = 0; k < pieces && rui_pipe_own(w, stage) == NULL; k++) {
            uint32_t number = w->counts.saves * pieces + k;
            RU_TRY(rui_flow_place(w, link, number, &piece));
            RU_TRY(keep_piece(w, stage, k, piece, err));
            rui_flow_go(w, link, number);
        }
    }
    w->counts.saves++;
    return RU_OK;
}

/* -- opening ----------------------------------------------------------------------------------- */

/* By how many steps gradients are late, and what that holds in memory, of each stage. */
static void say_late(const rui_pipe_worker *w, const char *who)
{
    uint32_t n = w->stages.n;
    const ru_pipe_shape shape = rui_pipe_shape(w);
    char micro[48] = "";
    ru_text late = ru_text_arena(w->arena), versions = ru_text_arena(w->arena);
    for (uint32_t k = 0; k < n; k++) {
        const char *sep = k == 0 ? "" : k + 1 < n ? ", " : " and ";
        ru_text_putf(&late, "%s%u", sep, ru_pipe_late(&shape, k));
        ru_text_putf(&versions, "%s%u", sep, ru_pipe_versions(&shape, k));
    }
    if (w->micro > 1) {
        (void)snprintf(micro, sizeof micro, "%u micro-batches of ", w->micro);
    }
    ru_run_report_say(w->t.report,
                      "pipeline of %u stages: %s; schedule %s: batches of %s%lld samples follow "
                      "each other without draining, the gradients of the stages are late by %s "
                      "steps, and they keep %s versions of their weights",
                      n, who, ru_pipe_schedule_names[w->schedule], micro, (long long)w->micro_n,
                      late.p, versions.p);
}

static void say_stages(const rui_pipe_worker *w)
{
    ru_text t = ru_text_arena(w->arena);
    if (w->stages.n == 1) {
        ru_run_report_say(w->t.report, "worker %u has all layers; %u micro-batches of %lld samples",
                          ru_pipe_number(w->pipe, 0), w->micro, (long long)w->micro_n);
        return;
    }
    for (uint32_t k = 0; k < w->stages.n; k++) {
        uint32_t n = w->seats.workers[k], first = w->seats.first[k];
        ru_text_putf(&t, "%sworker%s %u", k > 0 ? ", " : "", n > 1 ? "s" : "",
                     ru_pipe_number(w->pipe, first));
        for (uint32_t r = 1; r < n; r++) {
            ru_text_putf(&t, "%s%u", r + 1 < n ? ", " : " and ",
                         ru_pipe_number(w->pipe, first + r));
        }
        ru_text_putf(&t, " from %s", k == 0 ? "the input" : w->stages.at[k].first);
    }
    if (w->course.on) {
        say_late(w, t.p);
        return;
    }
    if (w->seats.n > w->stages.n) {
        ru_run_report_say(w->t.report,
                          "pipeline of %u stages: %s; %u micro-batches of %lld samples",
                          w->stages.n, t.p, w->micro, (long long)w->micro_n);
        return;
    }
    double idle = (double)(w->stages.n - 1) / (double)(w->micro + w->stages.n - 1);
    ru_run_report_say(w->t.report,
                      "pipeline of %u stages: %s; %u micro-batches of %lld samples leave each "
                      "worker without work for at least %.0f %% of a step%s",
                      w->stages.n, t.p, w->micro, (long long)w->micro_n, 100 * idle,
                      w->micro < w->stages.n ? "; raise train.accumulate" : "");
}

/* Which worker is which device, and the layers with which its parts begin. */
static void say_devices(const rui_pipe_worker *w)
{
    enum { NAMES_MAX = 6 };
    const rui_pipe_seats *s = &w->seats;
    ru_text t = ru_text_arena(w->arena);
    for (uint32_t d = 0; d < s->n; d++) {
        uint32_t seat = 0, n = 0;
        while (s->place[seat] != d) {
            seat++;
        }
        ru_text_putf(&t, "%sdevice %u is worker %u with ", d > 0 ? "; " : "", d + 1,
                     ru_pipe_number(w->pipe, seat));
        for (uint32_t k = 0; k < s->placed.n; k++) {
            uint32_t part = s->placed.order[k];
            if (s->placed.device[part] == d && n++ < NAMES_MAX) {
                ru_text_putf(&t, "%s%s", n > 1 ? ", " : "", s->placed.name[part]);
            }
        }
        ru_text_put(&t, n > NAMES_MAX ? ", ..." : "");
    }
    ru_run_report_say(w->t.report, "placed on %u devices in %u parts, by their first layers: %s",
                      s->n, s->placed.n, t.p);
}

static bool places(const rui_pipe_worker *w)
{
    return w->seats.placed.n > 0;
}

static const ru_policy *policy_of(const rui_pipe_worker *w)
{
    return places(w) ? &ru_policy_place : &ru_policy_pipe;
}

/* The plan whose cut this is, if Rubato chose it (launch/way.c). */
static ru_status read_plan(rui_pipe_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    const ru_policy *policy = policy_of(w);
    char *text;
    int64_t size;
    ru_conf *c;
    const char *path =
        ru_path_join(t->arena, t->out, places(w) ? "plans/place.json" : "plans/pipe.json");
    void *in = ru_arena_zalloc(t->arena, policy->in->size_bytes, 64);
    if (path == NULL || in == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the plan of the stages");
    }
    if (!ru_path_exists(path)) {
        return RU_OK;
    }
    RU_TRY(ru_file_read(path, RU_CONF_BULK_BYTES_MAX, t->arena, &text, &size, err));
    RU_TRY(ru_conf_new(policy->in, t->arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(ru_conf_add_json(c, path, text, size, err));
    RU_TRY(ru_conf_apply(c, in, err));
    ru_decisions_add(t->decisions, policy, in, false);
    return RU_OK;
}

/* Mean time of a step so far, beside what the plan says. */
static void tell_step(rui_pipe_worker *w)
{
    rui_trainer *t = &w->t;
    const ru_run_report_split *p = &t->split;
    int64_t steps = t->step_done - t->step_resumed;
    if (steps > 0) {
        ru_decisions_measured(
            t->decisions, policy_of(w), places(w) ? "step_s" : "minibatch_s", RU_NAN,
            1e-9 * (double)(p->compute_ns + p->network_ns + p->input_ns) / (double)steps);
    }
}

ru_status rui_pipe_lead_open(rui_pipe_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    ru_step_options so;
    ru_exe_options eo;
    rui_trainer_options(t, &so, &eo);
    RU_TRY(ru_step_build(&t->model.train, &so, w->arena, &t->step, err));
    RU_TRY(rui_trainer_ckpt(t, false, err));
    ru_ckpt_source(t->ckpt, read_state, w);
    rui_pipe_save_where(w);
    rui_trainer_decided(t);
    RU_TRY(read_plan(w, err));
    RU_TRY(rui_trainer_dir_files(t, err));
    t->begun = t->saved = ru_clock_now();
    RU_TRY(rui_trainer_reports(t, t->opt->resume, t->step_resumed, w->arena, err));
    RU_TRY(rui_trainer_say_start(t, w->seats.n, err));
    RU_TRY(w->sets.at != NULL ? ru_sets_head(w->sets.at, err) : RU_OK); /* nobody writes yet */
    if (w->sets.from.step > 0 && !t->goes_on) {                         /* else it is said */
        ru_run_report_details more = ru_run_report_details_none();
        ru_run_report_say(t->report, "continues after step %lld", (long long)t->step_resumed);
        RU_TRY(ru_run_report_event(t->report, t->step_resumed, "restore", 0, &more, err));
    }
    if (places(w)) {
        say_devices(w);
    } else {
        say_stages(w);
    }
    if (w->plan.eval.alone != NULL) {
        ru_run_report_say(t->report, "the last stage evaluates the whole model by itself: %s",
                          w->plan.eval.alone);
    }
    return RU_OK;
}

/* -- a step ------------------------------------------------------------------------------------ */

static void say(rui_pipe_worker *w, const rui_pipe_decision *d)
{
    rui_pipe_say(w, (rui_pipe_event){.word = RUI_PIPE_SAY_DECIDE, .decision = *d});
}

static bool stop_asked(rui_pipe_worker *w)
{
    ru_mutex_lock(&w->lock);
    bool stop = w->told.stop;
    ru_mutex_unlock(&w->lock);
    return stop;
}

/* Does the leader evaluate the whole model? For that it takes the states of the others. */
static bool is_whole(const rui_pipe_worker *w)
{
    return w->plan.eval.at[0].n == 0;
}

ru_status rui_pipe_decide(rui_pipe_worker *w, int64_t step, double lr, rui_pipe_decision *out,
                          ru_err *err)
{
    rui_trainer *t = &w->t;
    RU_TRY(rui_trainer_loss(t, (double)w->sum.loss, lr, err)); /* before any stage updates */
    bool last = step + 1 >= t->steps_end, stop = stop_asked(w);
    const rui_place from = {.step = step, .samples = t->samples};
    const rui_place to = {.step = step + 1, .samples = t->samples + t->job->train.batch};
    bool eval = t->eval != NULL && rui_trainer_eval_between(t, &from, &to);
    int64_t every = t->job->checkpoint.every_ns;
    bool save =
        every > 0 && ru_time_since(ru_clock_now(), t->saved) >= every && !ru_ckpt_busy(t->ckpt);
    bool states = is_whole(w) || save || t->job->checkpoint.keep_best; /* before it evaluates */
    *out = (rui_pipe_decision){.step = step + 1};
    if (w->course.on && w->course.limit != step + 1) { /* others are ahead */
        bool ask = (stop || save) && w->course.limit == INT64_MAX;
        out->flags = ask ? RUI_PIPE_DRAIN : 0;
    } else if (last || stop) {
        out->flags = RUI_PIPE_SAVE | RUI_PIPE_OVER;
        out->flags |= last && t->eval != NULL ? RUI_PIPE_EVAL : 0;
    } else if (eval) {
        out->flags = RUI_PIPE_EVAL | RUI_PIPE_WAIT | (states ? RUI_PIPE_SAVE : 0);
    } else if (save) {
        out->flags = RUI_PIPE_SAVE;
    }
    bool drained = !w->course.on || (out->flags & (RUI_PIPE_SAVE | RUI_PIPE_EVAL)) != 0;
    bool writes = w->opt->far && ru_ckpt_busy(t->ckpt); /* from the copy that others fill */
    out->flags |= drained && !last && !stop && !writes && rui_sets_due(w)
                      ? (uint32_t)(w->opt->far ? RUI_PIPE_FAR : RUI_PIPE_SET)
                      : 0;
    say(w, out);
    return RU_OK;
}

ru_status rui_pipe_report(rui_pipe_worker *w, double lr, int64_t step_ns, ru_err *err)
{
    rui_trainer *t = &w->t;
    const rui_figures f = {.loss = (double)w->sum.loss,
                           .correct = t->step.correct.v != 0 ? (double)w->sum.correct : -1,
                           .count = (double)w->sum.count,
                           .norm = t->job->train.clip_norm > 0 ? (double)w->sum.norm : -1};
    const ru_run_report_step s = rui_trainer_step_report(t, &f, lr, step_ns);
    if (t->first_step_ns == 0) {
        t->first_step_ns = ru_clock_now().ns - ru_self_start_ns();
    }
    return rui_trainer_report_step(t, &s, err);
}

/* A state of this worker, or of the copy, into the evaluation of the whole model. */
static ru_status put_eval(rui_pipe_worker *w, ru_exe *e, ru_value_id v, const rui_pipe_state *s,
                          ru_err *err)
{
    const rui_pipe_part *own = rui_pipe_own(w, s->stage);
    void *held;
    if (own == NULL) {
        RU_TRY(ru_ckpt_held(w->t.ckpt, s->name, &held, err));
        RU_CHECK(held != NULL);
        return ru_exe_state_write(e, v, held, err);
    }
    void *data = aligned_alloc(64, (size_t)(s->bytes + 64) / 64 * 64);
    ru_status st = data == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for the evaluation")
                                : ru_exe_state_read(own->home, s->value, data, err);
    st = st == RU_OK ? ru_exe_state_write(e, v, data, err) : st;
    free(data);
    return st;
}

static ru_status fill_eval(rui_pipe_worker *w, ru_err *err)
{
    const ru_graph *g;
    ru_exe *e = ru_eval_exe(w->t.eval, &g);
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        bool is = x->kind == RU_VALUE_STATE && x->name != NULL;
        const rui_pipe_state *s = is ? find_state(w, x->name) : NULL;
        RU_TRY(s != NULL ? put_eval(w, e, (ru_value_id){v}, s, err) : RU_OK);
    }
    return RU_OK;
}

/* *stopped: a stop signal ended it. */
static ru_status evaluate(rui_pipe_worker *w, bool *stopped, ru_err *err)
{
    rui_trainer *t = &w->t;
    ru_time begun = ru_clock_now();
    RU_TRY(is_whole(w) ? fill_eval(w, err) : RU_OK);
    ru_status st = is_whole(w) ? ru_eval_run(t->eval, &t->metrics, err)
                               : rui_pipe_eval_run(w, &t->metrics, err);
    *stopped = st == RU_E_CANCELLED && is_whole(w);
    RU_TRY(*stopped ? RU_OK : st);
    return *stopped ? RU_OK : rui_trainer_evaluated(t, begun, err);
}

static ru_status finish(rui_pipe_worker *w, const char *ended, ru_err *err)
{
    rui_trainer *t = &w->t;
    bool stopped = strcmp(ended, "stopped") == 0;
    RU_TRY(rui_trainer_not_diverged(t, stopped, err));
    tell_step(w);
    RU_TRY(rui_trainer_finish(t, ended, &w->summary, err));
    w->reported = true;
    return RU_OK;
}

/* After an evaluation: is there another step? The end is saved. */
static ru_status decide_again(rui_pipe_worker *w, const rui_pipe_decision *d, bool over, bool there,
                              ru_err *err)
{
    rui_pipe_decision next = {.step = d->step, .flags = over ? RUI_PIPE_OVER : 0};
    next.flags |= over && !there ? RUI_PIPE_SAVE : 0;
    say(w, &next);
    return over && !there ? gather(w, err) : RU_OK;
}

ru_status rui_pipe_saved(rui_pipe_worker *w, const rui_pipe_decision *d, bool *over, ru_err *err)
{
    rui_trainer *t = &w->t;
    RU_TRY(rui_trainer_save_poll(t, err));
    const char *why = NULL;
    bool last = (d->flags & RUI_PIPE_OVER) != 0, some = (d->flags & RUI_PIPE_SAVE) != 0;
    bool waits = (d->flags & RUI_PIPE_WAIT) != 0;
    bool stopped = last && t->step_done < t->steps_end;
    bool all = some || (d->flags & RUI_PIPE_FAR) != 0;
    ru_time begun = ru_clock_now();
    RU_TRY(all ? gather(w, err) : RU_OK);
    int64_t waited_ns = ru_time_since(ru_clock_now(), begun);
    if ((d->flags & RUI_PIPE_EVAL) != 0) {
        RU_TRY(evaluate(w, &stopped, err));
        why = stopped ? NULL : rui_trainer_over(t);
        stopped = stopped || (waits && stop_asked(w));
    }
    *over = last || stopped || why != NULL;
    RU_TRY(waits ? decide_again(w, d, *over, all, err) : RU_OK);
    if (all && w->opt->far && !*over) { /* also beside a checkpoint: nothing is sent for it */
        rui_sets_put(w, waited_ns);     /* who goes on from it does not evaluate again */
    }
    if (*over) {
        return finish(w, why != NULL ? why : stopped ? "stopped" : "done", err);
    }
    if (some) {
        RU_TRY(waits ? rui_trainer_save_if_due(t, err) : rui_trainer_save(t, err));
    }
    return RU_OK;
}
