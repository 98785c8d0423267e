/* What the leader tells: reports opened when this worker leads, events as they come. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/file/file.h"
#include "train/job/batch.h"
#include "train/worker/worker_impl.h"

/* Steps that the leader before committed but had no time to tell. */
static void tell_missing(rui_worker *w)
{
    int64_t told = ru_run_report_told(w->t.report);
    rui_past past[RUI_HISTORY];
    ru_mutex_lock(&w->lock);
    memcpy(past, w->past, sizeof past);
    ru_mutex_unlock(&w->lock);
    for (int64_t s = told + 1; told > 0; s++) {
        const rui_past *p = &past[s % RUI_HISTORY];
        if (p->step != s) {
            break;
        }
        (void)!ru_run_report_step_put(w->t.report, &p->report, NULL);
    }
}

static ru_status open_reports(rui_worker *w, ru_err *err)
{
    ru_elastic_facts f;
    ru_elastic_facts_get(w->elastic, &f);
    bool successor = ru_member_view(ru_node_member(w->shell.timers.node))->epoch > 0;
    /* Who led before may have told one step more than this worker knows to be committed. */
    int64_t after = successor ? f.committed + 1 : w->list.first_step;
    if (w->t.report != NULL) {
        RU_TRY(ru_run_report_unmute(w->t.report, after, err));
    } else {
        rui_trainer now = w->t; /* the compute thread's own is not touched */
        now.job_begun = f.born;
        now.step_first = f.first_step;
        RU_TRY(rui_trainer_reports(&now, successor || w->opt->train.resume, after, &w->arena_loop,
                                   err));
        w->t.report = now.report;
    }
    if (successor) {
        tell_missing(w);
    }
    return RU_OK;
}

bool rui_worker_leads(rui_worker *w)
{
    bool leads = ru_member_leads(ru_node_member(w->shell.timers.node));
    if (w->led && !leads) {
        ru_run_report_mute(w->t.report);
    }
    ru_err err;
    if (leads && !w->led && open_reports(w, &err) != RU_OK) {
        ru_log(RU_LOG_ERROR, "train", "report", "%s", err.text);
    }
    w->led = leads;
    return leads;
}

void rui_worker_updated(rui_worker *w, int64_t done)
{
    if (w->led && rui_worker_leads(w) && w->t.report != NULL &&
        ru_run_report_told(w->t.report) < done) {
        tell_missing(w);
    }
}

static void event(rui_worker *w, const ru_elastic_news *n, const char *what,
                  const ru_run_report_details *more)
{
    ru_err err = {0};
    if (ru_run_report_event(w->t.report, n->step, what, (uint32_t)n->a, more, &err) != RU_OK) {
        ru_log(RU_LOG_ERROR, "train", "report", "%s", err.text);
    }
}

#define BYE_NS INT64_C(50000000) /* the others hear that it is over */

static void ended(rui_worker *w, const ru_elastic_news *n, ru_time now)
{
    ru_shell_end(&w->shell, n->status, n->sentence, now);
    /* Who led and was replaced has reports open, too: the summary is its successor's, unless the
     * end was told before. */
    bool leads = n->a != 0 || ru_member_leads(ru_node_member(w->shell.timers.node));
    if (n->status == RU_OK && w->led && leads) {
        ru_elastic_facts f;
        ru_elastic_facts_get(w->elastic, &f);
        bool done = strcmp(n->sentence, "done") == 0;
        rui_worker_steps_end(w);
        rui_worker_sums_end(w);
        rui_worker_command(w, &(rui_turn){.kind = RUI_TURN_FINISH,
                                          .ended = w->over != NULL ? w->over
                                                   : done          ? "done"
                                                                   : "stopped",
                                          .lost = f.samples_lost,
                                          .repeated = f.samples_repeated});
        return;
    }
    ru_shell_bye(&w->shell, BYE_NS, now);
}

static void tell_reads(rui_worker *w, const ru_elastic_news *n)
{
    ru_decisions_measured(w->t.decisions, &ru_policy_read_share, "wait_next_s", 1e-9 * (double)n->a,
                          1e-9 * (double)n->b);
    if (n->sentence != NULL) {
        ru_run_report_say(w->t.report,
                          "%s gets too little of what the storage delivers, and all wait for it; "
                          "the others keep fewer reads outstanding",
                          n->sentence);
    }
}

static void lost(rui_worker *w, const ru_elastic_news *n, ru_time now)
{
    ru_run_report_details more = ru_run_report_details_none();
    more.after_s = (double)n->b * 1e-9;
    event(w, n, "lost", &more);
    ru_tracing_lost(&w->shell.tracing, now);
    ru_run_report_say(w->t.report, "worker %lld failed; the others continue after step %lld",
                      (long long)n->a, (long long)n->step);
}

static void view(rui_worker *w, const ru_elastic_news *n)
{
    const ru_member *member = ru_node_member(w->shell.timers.node);
    if (n->b != 0 && ru_member_leads(member)) {
        ru_run_report_say(w->t.report, "the batch is %lld samples from step %lld on",
                          (long long)n->b, (long long)n->step + 1);
    }
    if (w->opt->train.messages) {
        ru_shell_tell_view(&w->shell);
    }
}

void rui_worker_news(void *self, const ru_elastic_news *n, ru_time now)
{
    rui_worker *w = self;
    ru_run_report_details more = ru_run_report_details_none();
    ru_run_report *r = w->t.report;
    switch (n->what) {
    case RU_ELASTIC_COMMITTED:
        rui_plan_committed(w);
        ru_rec_counter_at(w->t.recorder, w->t.names.cpu_loop, now.ns,
                          (double)ru_clock_thread_cpu_ns());
        break;
    case RU_ELASTIC_MEMBER:
        ru_shell_number(&w->shell, (uint32_t)n->a, n->b == 0);
        break;
    case RU_ELASTIC_VIEW:
        view(w, n);
        break;
    case RU_ELASTIC_JOINED:
        rui_worker_join_begun(w, (uint32_t)n->a, n->step, now);
        more.tier = n->b == RU_TIER_TRANSIENT ? "transient" : NULL;
        event(w, n, "join", &more);
        ru_run_report_say(
            r, "worker %lld joined%s; it receives the state from the others", (long long)n->a,
            n->b == RU_TIER_TRANSIENT ? " on a transient machine, without a vote" : "");
        break;
    case RU_ELASTIC_WORKS:
        rui_worker_join_ended(w, (uint32_t)n->a, n->step, now);
        more.samples = n->b;
        event(w, n, "works", &more);
        break;
    case RU_ELASTIC_LEFT:
        event(w, n, "leave", &more);
        ru_run_report_say(r, "worker %lld left", (long long)n->a);
        break;
    case RU_ELASTIC_LOST:
        lost(w, n, now);
        break;
    case RU_ELASTIC_LED:
        if (w->led) { /* another one led between two looks, and its files replaced ours */
            ru_run_report_mute(w->t.report);
            w->led = false;
        }
        (void)rui_worker_leads(w);
        event(w, n, "lead", &more);
        ru_run_report_say(w->t.report, "worker %lld leads now", (long long)n->a);
        break;
    case RU_ELASTIC_SLOW:
        more.waited_s = (double)n->b * 1e-9;
        event(w, n, "slow", &more);
        break;
    case RU_ELASTIC_SHARES:
        /* How long the longest should compute: step_s of the following steps is beside it. */
        more.shares = n->sentence;
        more.predicted_compute_s = n->b > 0 ? (double)n->b * 1e-9 : RU_NAN;
        event(w, n, "replan", &more);
        break;
    case RU_ELASTIC_PLANNED:
        ru_recorder_thread(w->t.recorder, "loop");
        rui_worker_sums_planned(w, n->step);
        break;
    case RU_ELASTIC_READS:
        tell_reads(w, n);
        break;
    case RU_ELASTIC_ENDED:
        ended(w, n, now);
        break;
    }
}

void rui_worker_log(void *self, int level, const char *line, ru_time now)
{
    (void)now;
    rui_worker *w = self;
    if (w->t.report != NULL && level >= RU_LOG_WARN) {
        ru_run_report_say(w->t.report, "%s", line);
    } else { /* what goes on in the group is for who asks (-v) */
        level = level == RU_LOG_INFO ? RU_LOG_DEBUG : level;
        ru_log((ru_log_level)level, "train", "worker", "%s", line);
    }
}
