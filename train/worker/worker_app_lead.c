/* What the leader of a job with an app reports: files that go on with another leader, events, and
 * who came and went. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "comm/member/among.h"
#include "train/worker/worker_app_impl.h"

static void report_workers(const rui_app_worker *w)
{
    const ru_view *v = ru_member_view(ru_node_member(w->shell.timers.node));
    uint32_t voters = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        voters += !v->at[i].no_vote;
    }
    ru_run_report_workers_set(w->tells.report, v->n, v->n, voters);
}

/* What cannot go on without a rollback says so. */
static void tell_recovery(const rui_app_worker *w)
{
    bool back = w->opt->file->job->recovery.method == RU_APP_RECOVER_ROLLBACK;
    if (back || w->opt->file->ops->drive != NULL) {
        ru_log(RU_LOG_INFO, "train", "recovery",
               "if %s dies, all workers go back to the last checkpoint (checkpoint.every)",
               back ? "a worker" : "the worker that leads");
    }
}

/* Who led before may have told some clocks more than this worker knows to be closed: one, and as
 * many as executors may be ahead. */
static int64_t after_step(const rui_app_worker *w, int64_t closed)
{
    return closed + (w->tells.followed ? 1 + w->opt->file->job->clocks.staleness : 0);
}

/* Does the report go on with that of an earlier process: a run that is resumed, or whose first
 * leader is another one? */
static bool report_goes_on(const rui_app_worker *w, const ru_engine_facts *f)
{
    return w->tells.followed || w->opt->worker->shell.newcomer || f->generation > 1 ||
           w->from.generation > 0;
}

/* Files of a run that goes on with another leader. */
void rui_app_report_open(rui_app_worker *w)
{
    const ru_worker_options *o = w->opt->worker;
    const ru_app_ops *ops = w->opt->file->ops;
    ru_engine_facts f;
    ru_engine_facts_get(w->engine, &f);
    if (w->tells.report != NULL || w->tells.failed) {
        return;
    }
    const char *slash = strrchr(o->train.out, '/');
    const ru_run_report_options ro = {.run = slash != NULL ? slash + 1 : o->train.out,
                                      .dir = o->train.out,
                                      .json = o->train.json,
                                      .quiet = o->train.quiet,
                                      .append = report_goes_on(w, &f),
                                      .after_step = after_step(w, f.closed),
                                      .step_first = f.closed,
                                      .columns = o->train.columns,
                                      .steps = w->run.clocks,
                                      .epochs = w->opt->file->job->train.epochs,
                                      .samples_epoch = ru_sparse_rows(w->data.train),
                                      .objective = ops->objective_name,
                                      .messages = o->train.messages,
                                      .progress = o->train.progress};
    ru_err err;
    ru_status st = ru_run_report_open(&ro, w->arena, &w->tells.report, &err);
    const ru_run_report_start s = {.name = w->opt->file->job->name,
                                   .model = ops->name,
                                   .device = "cpu",
                                   .precision = "f32",
                                   .parameters = w->run.parameters,
                                   .batch = ru_sparse_rows(w->data.train) / w->state.shape.pieces,
                                   .train_samples = ru_sparse_rows(w->data.train),
                                   .test_samples =
                                       w->data.test != NULL ? ru_sparse_rows(w->data.test) : 0,
                                   .threads = w->n_threads,
                                   .resumed_step = report_goes_on(w, &f) ? f.closed : 0};
    tell_recovery(w);
    if (st == RU_OK) {
        report_workers(w);
        st = ru_run_report_begin(w->tells.report, &s, &err);
    }
    if (st == RU_OK && w->from.generation > 0 && w->from.clock >= w->run.clocks) {
        ru_run_report_say(w->tells.report, RU_APP_COMPLETED, (long long)w->from.clock);
    }
    if (st != RU_OK) {
        w->tells.failed = true;
        ru_log(RU_LOG_WARN, "train", "report", "%s", err.text);
    }
    const ru_app_world a = rui_app_world_of(w);
    ru_app_world_put(&a); /* for a run that is killed, or asked while it goes on */
}

void rui_app_event(rui_app_worker *w, int64_t step, const char *what, uint32_t worker,
                   const ru_run_report_details *more)
{
    ru_err err;
    rui_app_report_open(w);
    if (w->tells.report != NULL &&
        ru_run_report_event(w->tells.report, step, what, worker, more, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "report", "%s", err.text);
    }
}

/* -- who is in the job ------------------------------------------------------------------------- */

static void tell_gone(rui_app_worker *w, const ru_member_info *m, int64_t step, ru_time now)
{
    const ru_member *member = ru_node_member(w->shell.timers.node);
    ru_run_report_details more = ru_run_report_details_none();
    if (ru_member_leaves(member, m->node)) {
        rui_app_event(w, step, "leave", m->number, &more);
        ru_run_report_say(w->tells.report, "worker %u left", m->number);
        return;
    }
    int64_t silent_ns = ru_member_silent_ns(member, m->node, now);
    more.after_s = silent_ns < INT64_MAX ? 1e-9 * (double)silent_ns : RU_NAN;
    rui_app_event(w, step, "lost", m->number, &more);
    ru_run_report_say(w->tells.report, "worker %u failed; the others continue after clock %lld",
                      m->number, (long long)step);
}

static void tell_came(rui_app_worker *w, const ru_member_info *m, int64_t step)
{
    bool transient = m->tier == RU_TIER_TRANSIENT;
    ru_run_report_details more = ru_run_report_details_none();
    more.tier = transient ? "transient" : NULL;
    rui_app_event(w, step, "join", m->number, &more);
    ru_run_report_say(w->tells.report, "worker %u joined%s", m->number,
                      transient ? " on a transient machine, without a vote" : "");
}

/* The leader: what the view changes. The members of the first one did not join: they began. */
static void tell_changes(rui_app_worker *w, const ru_view *v, bool took_over, ru_time now)
{
    ru_engine_facts f;
    ru_engine_facts_get(w->engine, &f);
    if (took_over) {
        rui_app_event(w, f.closed, "lead", w->shell.number, NULL);
        ru_run_report_say(w->tells.report, "worker %u leads now", w->shell.number);
    }
    for (uint32_t k = 0; k < w->tells.n_crew; k++) {
        if (ru_member_among(v->at, v->n, w->tells.crew[k].node) == NULL) {
            tell_gone(w, &w->tells.crew[k], f.closed, now);
        }
    }
    for (uint32_t k = 0; k < v->n && w->tells.n_crew > 0; k++) {
        if (ru_member_among(w->tells.crew, w->tells.n_crew, v->at[k].node) == NULL) {
            tell_came(w, &v->at[k], f.closed);
        }
    }
}

/* Who does not lead any more writes no line; if it leads again, it goes on in the files of who led
 * meanwhile. */
static void lead_or_follow(rui_app_worker *w, bool leads)
{
    ru_engine_facts f;
    ru_err err;
    ru_engine_facts_get(w->engine, &f);
    if (w->tells.led && !leads) {
        ru_run_report_mute(w->tells.report);
        w->tells.muted = w->tells.report != NULL;
    } else if (leads && w->tells.muted) {
        w->tells.muted = false;
        if (ru_run_report_unmute(w->tells.report, after_step(w, f.closed), &err) != RU_OK) {
            ru_log(RU_LOG_WARN, "train", "report", "%s", err.text);
        }
    }
    w->tells.followed = w->tells.followed || !leads;
}

void rui_app_viewed(void *self, ru_time now)
{
    rui_app_worker *w = self;
    const ru_member *member = ru_node_member(w->shell.timers.node);
    const ru_view *v = ru_member_view(member);
    bool leads = ru_node_is(v->leader, w->shell.id);
    /* A leader's own views have epochs that follow each other; else another one led meanwhile. */
    if (leads && w->tells.led && v->epoch > w->tells.epoch + 1) {
        lead_or_follow(w, false);
        w->tells.led = false;
    }
    bool took_over = leads && !w->tells.led && w->tells.n_crew > 0;
    lead_or_follow(w, leads);
    w->tells.led = leads;
    w->tells.epoch = v->epoch;
    if (leads) {
        tell_changes(w, v, took_over, now);
    }
    w->tells.n_crew = v->n <= w->tells.crew_max ? v->n : 0;
    if (w->tells.n_crew > 0) {
        memcpy(w->tells.crew, v->at, w->tells.n_crew * sizeof *w->tells.crew);
    }
    report_workers(w);
    if (w->opt->worker->train.messages) {
        ru_shell_tell_view(&w->shell);
    }
}
