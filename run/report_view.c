/* The half of the report that people see. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/str.h"
#include "run/report_impl.h"

static const int64_t line_period_ns = 30000000000; /* without a terminal */

/* A line in OUT/log with the time of day. A log that cannot be written must not stop the training:
 * the metrics file reports the full disk. */
static void log_line(ru_run_report *r, const char *text)
{
    if (r->log == NULL) {
        return;
    }
    char line[1200];
    time_t now = (time_t)(ru_clock_wall_ns() / 1000000000);
    struct tm tm;
    (void)gmtime_r(&now, &tm);
    ru_text t = ru_text_into(line, sizeof line);
    ru_text_putf(&t, "%04d-%02d-%02dT%02d:%02d:%02dZ %s\n", tm.tm_year + 1900, tm.tm_mon + 1,
                 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, text);
    ru_err ignored;
    (void)!ru_log_file_append(r->log, t.p, t.n, &ignored);
}

static void say(ru_run_report *r, const char *text)
{
    log_line(r, text);
    if (!r->opt.quiet) {
        ru_live_clear(&r->live);
        (void)fprintf(stderr, "%s\n", text);
    }
}

void rui_report_say(ru_run_report *r, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_vputf(&t, fmt, ap);
    va_end(ap);
    say(r, text);
}

void ru_run_report_say(ru_run_report *r, const char *fmt, ...)
{
    if (r == NULL) {
        return;
    }
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_vputf(&t, fmt, ap);
    va_end(ap);
    ru_mutex_lock(&r->lock);
    say(r, text);
    ru_mutex_unlock(&r->lock);
}

void ru_run_report_log(ru_run_report *r, const char *fmt, ...)
{
    if (r == NULL) {
        return;
    }
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_vputf(&t, fmt, ap);
    va_end(ap);
    ru_mutex_lock(&r->lock);
    log_line(r, text);
    ru_mutex_unlock(&r->lock);
}

/* Part of the way, 0..1; -1 when the run has no fixed length. */
static double way(const ru_run_report *r, const ru_run_report_step *s)
{
    if (r->opt.steps <= 0) {
        return -1;
    }
    double p = (double)s->step / (double)r->opt.steps;
    return p > 1 ? 1 : p;
}

void rui_report_progress_fill(const ru_run_report *r, const ru_run_report_step *s,
                              ru_msg_progress *out)
{
    double elapsed_s = (double)ru_time_since(ru_clock_now(), r->begun) * 1e-9;
    int64_t here = s->step - r->step_first; /* steps of this job, from its start or resume */
    double per_s = elapsed_s > 0 ? (double)here / elapsed_s : 0;
    bool known = way(r, s) > 0 && per_s > 0;
    *out = (ru_msg_progress){
        .step = s->step,
        .steps = r->opt.steps,
        .epoch = s->epoch,
        .epochs = r->opt.epochs,
        .loss = {r->opt.objective, r->loss_mean},
        .accuracy = r->judged ? r->accuracy_mean : RU_NAN,
        .samples_per_s = per_s * (double)s->batch,
        .left_s = known ? (double)(r->opt.steps - s->step) / per_s : RU_NAN,
        .members = r->members,
        .voters = r->voters,
    };
}

void rui_report_progress(ru_run_report *r, const ru_run_report_step *s)
{
    const bool exact = r->opt.exact; /* nothing stays of a loss before, which may be no number */
    r->loss_mean = !r->seen || exact ? s->loss : 0.95 * r->loss_mean + 0.05 * s->loss;
    if (s->accuracy >= 0) {
        r->accuracy_mean =
            !r->judged || exact ? s->accuracy : 0.95 * r->accuracy_mean + 0.05 * s->accuracy;
        r->judged = true;
    }
    r->seen = true;
    if (r->opt.quiet || r->muted) {
        return;
    }
    char text[512];
    ru_text t = ru_text_into(text, sizeof text);
    ru_time now = ru_clock_now();
    ru_msg m = {.kind = RU_MSG_PROGRESS};
    if (r->opt.columns > 0 || r->opt.progress) {
        if (ru_time_since(now, r->shown) < RUI_REPORT_PERIOD_NS) {
            return;
        }
        rui_report_progress_fill(r, s, &m.progress);
        if (r->opt.progress) {
            (void)!ru_msg_tell(&m, NULL); /* it is short enough */
        } else {
            ru_msg_progress_text(&m.progress, true, &t);
            ru_live_draw(&r->live, t.p, t.n);
        }
        r->shown = now;
        return;
    }
    double p = way(r, s);
    int64_t twentieth = p >= 0 ? (int64_t)(p * 20) : 0;
    if (!r->clock) { /* the first step only starts the clock */
        r->clock = true;
        r->shown = now;
        r->percent_shown = twentieth;
        return;
    }
    if (ru_time_since(now, r->shown) >= line_period_ns ||
        (twentieth > r->percent_shown &&
         ru_time_since(now, r->shown) >= 10 * RUI_REPORT_PERIOD_NS)) {
        rui_report_progress_fill(r, s, &m.progress);
        ru_msg_progress_text(&m.progress, false, &t);
        (void)fprintf(stderr, "%s\n", text);
        r->shown = now;
        r->percent_shown = twentieth;
    }
}

void rui_report_evaluation(ru_run_report *r, int64_t step, int64_t epoch, const ru_metrics *m)
{
    char text[512];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "epoch %lld  step %lld  train %s %.4f", (long long)epoch, (long long)step,
                 r->opt.objective, r->loss_mean);
    if (r->judged) {
        ru_text_putf(&t, " accuracy %.2f %%", r->accuracy_mean * 100);
    }
    ru_text_put(&t, "  test");
    for (uint32_t k = 0; k < m->n; k++) {
        const char *name = m->at[k].name;
        if (strcmp(name, "accuracy") == 0 || strcmp(name, "top5") == 0) {
            ru_text_putf(&t, " %s %.2f %%", name, m->at[k].value * 100);
        } else {
            ru_text_putf(&t, " %s %.4f", name, m->at[k].value);
        }
    }
    say(r, text);
}

void rui_report_end(ru_run_report *r, const ru_run_report_summary *s)
{
    char rate[32], wall[32];
    const ru_run_report_split *p = &s->split;
    double all = (double)(p->compute_ns + p->network_ns + p->input_ns + p->wait_ns + p->other_ns);
    double k = all > 0 ? 100 / all : 0;
    char damaged[64] = "";
    ru_text t = ru_text_into(damaged, sizeof damaged);
    if (s->samples_damaged > 0) {
        ru_text_putf(&t, " (%lld damaged ones left out)", (long long)s->samples_damaged);
    }
    rui_report_say(
        r,
        "%s: %lld steps, %lld samples%s in %s, %s samples/s; compute %.0f %%, input %.0f %%, "
        "network %.0f %%, wait %.0f %%, other %.0f %%; peak memory %lld MB",
        s->ended, (long long)s->steps, (long long)s->samples, damaged,
        rui_duration_text((double)s->wall_ns * 1e-9, wall), rui_count_text(s->samples_per_s, rate),
        (double)p->compute_ns * k, (double)p->input_ns * k, (double)p->network_ns * k,
        (double)p->wait_ns * k, (double)p->other_ns * k, (long long)(s->rss_peak_bytes / 1000000));
}
