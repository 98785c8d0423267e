#include "train/run/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "env/clock.h"
#include "env/file.h"
#include "train/run/report_impl.h"

enum {
    LINE_MAX_BYTES = 4096,
};

double ru_metrics_get(const ru_metrics *m, const char *name)
{
    for (uint32_t k = 0; k < m->n; k++) {
        if (strcmp(m->at[k].name, name) == 0) {
            return m->at[k].value;
        }
    }
    return (double)NAN;
}

ru_status ru_report_open(const ru_report_options *opt, ru_arena *arena, ru_report **out,
                         ru_err *err)
{
    ru_report *r = RU_NEW(arena, ru_report, 1);
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

void ru_report_close(ru_report *r)
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

void ru_report_mute(ru_report *r)
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

ru_status ru_report_unmute(ru_report *r, int64_t after_step, ru_err *err)
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

int64_t ru_report_told(ru_report *r)
{
    ru_mutex_lock(&r->lock);
    int64_t told = r->told;
    ru_mutex_unlock(&r->lock);
    return told;
}

ru_report_details ru_report_details_none(void)
{
    const double none = (double)NAN;
    return (ru_report_details){.pause_s = none,
                               .samples = -1,
                               .after_s = none,
                               .waited_s = none,
                               .predicted_compute_s = none};
}

/* -- JSON -------------------------------------------------------------------------------------- */

static void put_f64(ru_text *t, const char *key, double v)
{
    ru_text_putf(t, ",\"%s\":", key);
    if (isfinite(v)) {
        ru_text_f64(t, v);
    } else {
        ru_text_put(t, "null");
    }
}

static void put_i64(ru_text *t, const char *key, int64_t v)
{
    ru_text_putf(t, ",\"%s\":%lld", key, (long long)v);
}

static void put_str(ru_text *t, const char *key, const char *v)
{
    ru_text_putf(t, ",\"%s\":", key);
    ru_text_json(t, ru_str_c(v));
}

static void put_metrics(ru_text *t, const ru_metrics *m)
{
    ru_text_put(t, ",\"metric\":{");
    for (uint32_t k = 0; k < m->n; k++) {
        ru_text_putf(t, "%s\"%s\":", k > 0 ? "," : "", m->at[k].name);
        if (isfinite(m->at[k].value)) {
            ru_text_f64(t, m->at[k].value);
        } else {
            ru_text_put(t, "null");
        }
    }
    ru_text_put(t, "}");
}

/* Every public function holds the lock from here to emit. */
static void enter(ru_report *r)
{
    ru_mutex_lock(&r->lock);
}

static ru_status write_out(ru_report *r, ru_text *t, ru_err *err)
{
    ru_text_put(t, "}\n");
    if (r->muted) {
        return RU_OK;
    }
    if (t->cut) {
        return RU_FAIL(err, RU_E_BUG, "a report line is longer than %d bytes", LINE_MAX_BYTES);
    }
    if (r->opt.json) {
        (void)fwrite(t->p, 1, (size_t)t->n, stdout);
        (void)fflush(stdout);
    }
    return r->metrics != NULL ? ru_log_file_append(r->metrics, t->p, t->n, err) : RU_OK;
}

static ru_status emit(ru_report *r, ru_text *t, ru_err *err)
{
    ru_status st = write_out(r, t, err);
    ru_mutex_unlock(&r->lock);
    return st;
}

ru_status ru_report_begin(ru_report *r, const ru_report_start *s, ru_err *err)
{
    if (r == NULL) {
        return RU_OK;
    }
    enter(r);
    char line[LINE_MAX_BYTES];
    ru_text t = ru_text_into(line, sizeof line);
    ru_text_put(&t, "{\"schema\":\"rubato.train.start/1\"");
    put_str(&t, "run", r->opt.run);
    put_str(&t, "out", r->opt.dir != NULL ? r->opt.dir : "");
    put_i64(&t, "parameters", s->parameters);
    put_i64(&t, "workers", r->workers);
    put_str(&t, "name", s->name);
    put_str(&t, "model", s->model);
    put_str(&t, "device", s->device);
    put_str(&t, "precision", s->precision);
    put_i64(&t, "threads", s->threads);
    put_i64(&t, "batch", s->batch);
    put_i64(&t, "steps", r->opt.steps);
    put_i64(&t, "epochs", r->opt.epochs);
    put_i64(&t, "train_samples", s->train_samples);
    put_i64(&t, "test_samples", s->test_samples);
    put_i64(&t, "arena_bytes", s->arena_bytes);
    put_i64(&t, "arena_bound_bytes", s->arena_bound_bytes);
    put_i64(&t, "state_bytes", s->state_bytes);
    put_i64(&t, "flops_step", s->flops_step);
    put_f64(&t, "open_s", (double)s->open_ns / 1e9);
    put_i64(&t, "resumed_step", s->resumed_step);
    char workers[32] = "";
    if (r->workers > 1) {
        (void)snprintf(workers, sizeof workers, "%lld workers of ", (long long)r->workers);
    }
    rui_report_say(r, "%s: %s, %lld parameters, batch %lld, %s, %s%lld thread%s -> %s", s->name,
                   s->model, (long long)s->parameters, (long long)s->batch, s->precision, workers,
                   (long long)s->threads, s->threads == 1 ? "" : "s",
                   r->opt.dir != NULL ? r->opt.dir : "(no run directory)");
    return emit(r, &t, err);
}

ru_status ru_report_step_put(ru_report *r, const ru_report_step *s, ru_err *err)
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
    char line[LINE_MAX_BYTES];
    ru_text t = ru_text_into(line, sizeof line);
    ru_text_put(&t, "{\"schema\":\"rubato.train.step/1\"");
    put_i64(&t, "step", s->step);
    put_i64(&t, "epoch", s->epoch);
    put_i64(&t, "samples", s->samples);
    put_f64(&t, r->opt.objective, s->loss);
    put_f64(&t, "lr", s->lr);
    put_f64(&t, "step_s", (double)s->step_ns / 1e9);
    put_f64(&t, "samples_per_s", s->step_ns > 0 ? (double)s->batch * 1e9 / (double)s->step_ns : 0);
    put_i64(&t, "workers", r->workers);
    if (s->accuracy >= 0) {
        put_f64(&t, "accuracy", s->accuracy);
    }
    if (s->norm >= 0) {
        put_f64(&t, "norm", s->norm);
    }
    rui_report_progress(r, s);
    return emit(r, &t, err);
}

ru_status ru_report_eval(ru_report *r, int64_t step, int64_t epoch, const ru_metrics *m,
                         int64_t eval_ns, ru_err *err)
{
    if (r == NULL) {
        return RU_OK;
    }
    enter(r);
    char line[LINE_MAX_BYTES];
    ru_text t = ru_text_into(line, sizeof line);
    ru_text_put(&t, "{\"schema\":\"rubato.train.eval/1\"");
    put_i64(&t, "step", step);
    put_i64(&t, "epoch", epoch);
    put_metrics(&t, m);
    put_f64(&t, "eval_s", (double)eval_ns / 1e9);
    rui_report_evaluation(r, step, epoch, m);
    return emit(r, &t, err);
}

void ru_report_workers_set(ru_report *r, uint32_t workers, uint32_t members, uint32_t voters)
{
    if (r != NULL) {
        ru_mutex_lock(&r->lock);
        r->workers = workers;
        r->members = members;
        r->voters = voters;
        ru_mutex_unlock(&r->lock);
    }
}

ru_status ru_report_event(ru_report *r, int64_t step, const char *what, const char *more,
                          ru_err *err)
{
    return ru_report_event_of(r, step, what, 0, more, err);
}

ru_status ru_report_event_of(ru_report *r, int64_t step, const char *what, uint32_t worker,
                             const char *more, ru_err *err)
{
    if (r == NULL) {
        return RU_OK;
    }
    enter(r);
    char line[LINE_MAX_BYTES];
    ru_text t = ru_text_into(line, sizeof line);
    ru_text_put(&t, "{\"schema\":\"rubato.train.event/1\"");
    put_i64(&t, "step", step);
    put_str(&t, "what", what);
    put_i64(&t, "worker", worker);
    ru_text_put(&t, more);
    return emit(r, &t, err);
}

ru_status ru_report_end(ru_report *r, const ru_report_summary *s, ru_err *err)
{
    if (r == NULL) {
        return RU_OK;
    }
    enter(r);
    char line[LINE_MAX_BYTES];
    ru_text t = ru_text_into(line, sizeof line);
    ru_text_put(&t, "{\"schema\":\"rubato.train.summary/1\"");
    put_i64(&t, "steps", s->steps);
    put_i64(&t, "epochs", s->epochs);
    put_i64(&t, "samples", s->samples);
    put_i64(&t, "samples_lost", s->samples_lost);
    put_i64(&t, "samples_repeated", s->samples_repeated);
    put_f64(&t, "wall_s", (double)s->wall_ns / 1e9);
    put_f64(&t, "samples_per_s", s->samples_per_s);
    put_f64(&t, r->opt.objective, s->loss);
    put_metrics(&t, &s->metrics);
    ru_text_put(&t, ",\"split\":{\"compute\":");
    ru_text_f64(&t, (double)s->split.compute_ns / 1e9);
    put_f64(&t, "network", (double)s->split.network_ns / 1e9);
    put_f64(&t, "input", (double)s->split.input_ns / 1e9);
    put_f64(&t, "wait", (double)s->split.wait_ns / 1e9);
    put_f64(&t, "other", (double)s->split.other_ns / 1e9);
    ru_text_put(&t, "}");
    put_i64(&t, "peak_rss_bytes", s->rss_peak_bytes);
    put_str(&t, "ended", s->ended);
    rui_report_end(r, s);
    return emit(r, &t, err);
}
