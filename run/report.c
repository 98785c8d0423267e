#include "run/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "run/report_impl.h"

enum {
    LINE_MAX_BYTES = RU_MSG_BYTES_MAX, /* OUT is a path of up to 4095 bytes */
};

double ru_metrics_get(const ru_metrics *m, const char *name)
{
    for (uint32_t k = 0; k < m->n; k++) {
        if (strcmp(m->at[k].name, name) == 0) {
            return m->at[k].value;
        }
    }
    return RU_NAN;
}

ru_status ru_run_report_open(const ru_run_report_options *opt, ru_arena *arena, ru_run_report **out,
                             ru_err *err)
{
    ru_run_report *r = RU_NEW(arena, ru_run_report, 1);
    if (r == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the report is full");
    }
    r->opt = *opt;
    r->opt.objective = opt->objective != NULL ? opt->objective : "loss";
    ru_mutex_init(&r->lock);
    r->workers = 1;
    r->live.columns = opt->columns;
    r->begun = opt->begun.ns != 0 ? opt->begun : ru_clock_now();
    r->step_first = opt->step_first;
    r->shown = (ru_time){ru_clock_now().ns - RUI_REPORT_PERIOD_NS};
    if (opt->dir != NULL) {
        r->path_metrics = ru_path_join(arena, opt->dir, "metrics.jsonl");
        r->path_log = ru_path_join(arena, opt->dir, "log");
        if (r->path_metrics == NULL || r->path_log == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena of the report is full");
        }
        RU_TRY(rui_report_files(r, err));
    }
    *out = r;
    return RU_OK;
}

void ru_run_report_close(ru_run_report *r)
{
    if (r == NULL) {
        return;
    }
    ru_mutex_lock(&r->lock);
    ru_live_clear(&r->live);
    ru_mutex_unlock(&r->lock);
    ru_mutex_fini(&r->lock);
    ru_log_file_close(r->metrics);
    ru_log_file_close(r->log);
    r->metrics = r->log = NULL;
}

void ru_run_report_mute(ru_run_report *r)
{
    if (r != NULL) {
        ru_mutex_lock(&r->lock);
        ru_log_file_close(r->metrics);
        ru_log_file_close(r->log);
        r->metrics = r->log = NULL;
        r->muted = true;
        ru_live_clear(&r->live);
        ru_mutex_unlock(&r->lock);
    }
}

ru_status ru_run_report_unmute(ru_run_report *r, int64_t after_step, ru_err *err)
{
    ru_mutex_lock(&r->lock);
    RU_CHECK(r->muted);
    r->opt.append = true;
    r->opt.after_step = after_step;
    r->muted = false;
    ru_status st = r->path_metrics != NULL ? rui_report_files(r, err) : RU_OK;
    ru_mutex_unlock(&r->lock);
    return st;
}

int64_t ru_run_report_told(ru_run_report *r)
{
    ru_mutex_lock(&r->lock);
    int64_t told = r->told;
    ru_mutex_unlock(&r->lock);
    return told;
}

bool ru_run_report_goes_on(ru_run_report *r)
{
    ru_mutex_lock(&r->lock);
    bool goes_on = r->goes_on;
    ru_mutex_unlock(&r->lock);
    return goes_on;
}

int64_t ru_run_report_evaluated(ru_run_report *r)
{
    int64_t step = 0;
    if (r != NULL) {
        ru_mutex_lock(&r->lock);
        step = r->evaluated;
        ru_mutex_unlock(&r->lock);
    }
    return step;
}

/* -- messages ---------------------------------------------------------------------------------- */

ru_run_report_details ru_run_report_details_none(void)
{
    const double none = RU_NAN;
    return (ru_run_report_details){.pause_s = none,
                                   .samples = -1,
                                   .after_s = none,
                                   .waited_s = none,
                                   .predicted_compute_s = none};
}

/* Every public function holds the lock from here to emit. */
static void enter(ru_run_report *r)
{
    ru_mutex_lock(&r->lock);
}

static ru_status write_out(ru_run_report *r, const ru_msg *m, ru_err *err)
{
    char line[LINE_MAX_BYTES];
    ru_text t = ru_text_into(line, sizeof line);
    if (r->muted) {
        return RU_OK;
    }
    ru_msg_json(m, &t);
    if (t.cut) {
        return RU_FAIL(err, RU_E_BUG, "a report line is longer than %d bytes", LINE_MAX_BYTES);
    }
    if (r->opt.messages) {
        RU_TRY(ru_msg_tell(m, err));
    } else if (r->opt.json) {
        ru_self_tell(t.p, t.n);
    }
    return r->metrics != NULL ? ru_log_file_append(r->metrics, t.p, t.n, err) : RU_OK;
}

static ru_status emit(ru_run_report *r, const ru_msg *m, ru_err *err)
{
    ru_status st = write_out(r, m, err);
    ru_mutex_unlock(&r->lock);
    return st;
}

ru_status ru_run_report_begin(ru_run_report *r, const ru_run_report_start *s, ru_err *err)
{
    if (r == NULL) {
        return RU_OK;
    }
    enter(r);
    const ru_msg m = {.kind = RU_MSG_START,
                      .start = {.run = r->opt.run,
                                .out = r->opt.dir,
                                .parameters = s->parameters,
                                .workers = r->workers,
                                .name = s->name,
                                .model = s->model,
                                .device = s->device,
                                .precision = s->precision,
                                .threads = s->threads,
                                .batch = s->batch,
                                .steps = r->opt.steps,
                                .epochs = r->opt.epochs,
                                .train_samples = s->train_samples,
                                .test_samples = s->test_samples,
                                .arena_bytes = s->arena_bytes,
                                .arena_bound_bytes = s->arena_bound_bytes,
                                .state_bytes = s->state_bytes,
                                .flops_step = s->flops_step,
                                .open_s = (double)s->open_ns / 1e9,
                                .resumed_step = s->resumed_step,
                                .batch_max = s->batch_max > 0 ? s->batch_max : -1,
                                .local_max = s->local_max > 0 ? s->local_max : -1}};
    char workers[48] = "", servers[48] = "";
    if (r->workers > 1 || s->servers > 0) {
        (void)snprintf(workers, sizeof workers, "%lld worker%s of ", (long long)r->workers,
                       r->workers == 1 ? "" : "s");
    }
    if (s->servers > 0) {
        (void)snprintf(servers, sizeof servers, ", %lld server%s", (long long)s->servers,
                       s->servers == 1 ? "" : "s");
    }
    rui_report_say(r, "%s: %s, %lld parameters, batch %lld, %s, %s%lld thread%s%s -> %s", s->name,
                   s->model, (long long)s->parameters, (long long)s->batch, s->precision, workers,
                   (long long)s->threads, s->threads == 1 ? "" : "s", servers,
                   r->opt.dir != NULL ? r->opt.dir : "(no run directory)");
    return emit(r, &m, err);
}

ru_status ru_run_report_step_put(ru_run_report *r, const ru_run_report_step *s, ru_err *err)
{
    if (r == NULL) {
        return RU_OK;
    }
    enter(r);
    if (s->step <= r->told) { /* by who led before */
        ru_mutex_unlock(&r->lock);
        return RU_OK;
    }
    r->told = s->step;
    const ru_msg m = {
        .kind = RU_MSG_STEP,
        .step = {.step = s->step,
                 .epoch = s->epoch,
                 .samples = s->samples,
                 .loss = {r->opt.objective, s->loss},
                 .lr = s->lr,
                 .step_s = (double)s->step_ns / 1e9,
                 .samples_per_s = s->step_ns > 0 ? (double)s->batch * 1e9 / (double)s->step_ns : 0,
                 .workers = r->workers,
                 .accuracy = s->accuracy >= 0 ? s->accuracy : RU_NAN,
                 .norm = s->norm >= 0 ? s->norm : RU_NAN,
                 .noise = s->noise > 0 ? s->noise : RU_NAN,
                 .compute_s =
                     r->workers > 1 && s->compute_ns > 0 ? 1e-9 * (double)s->compute_ns : RU_NAN}};
    rui_report_progress(r, s);
    return emit(r, &m, err);
}

void ru_run_report_progress(ru_run_report *r, const ru_run_report_step *s)
{
    if (r != NULL) {
        enter(r);
        rui_report_progress(r, s);
        ru_mutex_unlock(&r->lock);
    }
}

ru_status ru_run_report_eval(ru_run_report *r, int64_t step, int64_t epoch, const ru_metrics *m,
                             int64_t eval_ns, ru_err *err)
{
    if (r == NULL) {
        return RU_OK;
    }
    enter(r);
    if (step <= r->evaluated) { /* by who led before */
        ru_mutex_unlock(&r->lock);
        return RU_OK;
    }
    r->evaluated = step;
    const ru_msg out = {
        .kind = RU_MSG_EVAL,
        .eval = {.step = step, .epoch = epoch, .metric = *m, .eval_s = (double)eval_ns / 1e9}};
    rui_report_evaluation(r, step, epoch, m);
    return emit(r, &out, err);
}

void ru_run_report_workers_set(ru_run_report *r, uint32_t workers, uint32_t members,
                               uint32_t voters)
{
    if (r != NULL) {
        ru_mutex_lock(&r->lock);
        r->workers = workers;
        r->members = members;
        r->voters = voters;
        ru_mutex_unlock(&r->lock);
    }
}

ru_status ru_run_report_event(ru_run_report *r, int64_t step, const char *what, uint32_t worker,
                              const ru_run_report_details *more, ru_err *err)
{
    if (r == NULL) {
        return RU_OK;
    }
    enter(r);
    const ru_msg m = {.kind = RU_MSG_EVENT,
                      .event = {.step = step,
                                .what = what,
                                .worker = worker,
                                .more = more != NULL ? *more : ru_run_report_details_none()}};
    return emit(r, &m, err);
}

ru_status ru_run_report_end(ru_run_report *r, const ru_run_report_summary *s, ru_err *err)
{
    if (r == NULL) {
        return RU_OK;
    }
    enter(r);
    const ru_run_report_split *p = &s->split;
    const ru_msg m = {.kind = RU_MSG_SUMMARY,
                      .summary = {.steps = s->steps,
                                  .epochs = s->epochs,
                                  .samples = s->samples,
                                  .samples_lost = s->samples_lost,
                                  .samples_repeated = s->samples_repeated,
                                  .samples_damaged = s->samples_damaged,
                                  .wall_s = (double)s->wall_ns / 1e9,
                                  .samples_per_s = s->samples_per_s,
                                  .loss = {r->opt.objective, s->loss},
                                  .metric = s->metrics,
                                  .compute_s = (double)p->compute_ns / 1e9,
                                  .network_s = (double)p->network_ns / 1e9,
                                  .input_s = (double)p->input_ns / 1e9,
                                  .wait_s = (double)p->wait_ns / 1e9,
                                  .other_s = (double)p->other_ns / 1e9,
                                  .peak_rss_bytes = s->rss_peak_bytes,
                                  .ended = s->ended}};
    rui_report_end(r, s);
    return emit(r, &m, err);
}
