/* The half of the report that people see. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/str.h"
#include "train/run/report_impl.h"

enum { BAR_WIDTH = 20 };

static const int64_t line_period_ns = 30000000000; /* without a terminal */

/* A line in OUT/log with the time of day. A log that cannot be written must not stop the training:
 * the metrics file reports the full disk. */
static void log_line(ru_report *r, const char *text)
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

static void say(ru_report *r, const char *text)
{
    log_line(r, text);
    if (!r->opt.quiet) {
        ru_live_clear(&r->live);
        (void)fprintf(stderr, "%s\n", text);
    }
}

void rui_report_say(ru_report *r, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_vputf(&t, fmt, ap);
    va_end(ap);
    say(r, text);
}

void ru_report_say(ru_report *r, const char *fmt, ...)
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

void ru_report_log(ru_report *r, const char *fmt, ...)
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

/* 1234567 -> "1.23 M" */
static const char *count_text(double v, char into[32])
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    uint32_t k = 0;
    while (v >= 1000 && k + 1 < RU_ARRAY_LEN(units)) {
        v /= 1000;
        k++;
    }
    (void)snprintf(into, 32, k == 0 ? "%.0f%s" : "%.3g%s", v, units[k]);
    return into;
}

static const char *duration_text(double s, char into[32])
{
    if (!isfinite(s) || s < 0) {
        s = 0;
    }
    int64_t t = (int64_t)(s + 0.5);
    if (t >= 3600) {
        (void)snprintf(into, 32, "%lld:%02lld:%02lld", (long long)(t / 3600),
                       (long long)(t / 60 % 60), (long long)(t % 60));
    } else if (t >= 60) {
        (void)snprintf(into, 32, "%lld:%02lld", (long long)(t / 60), (long long)(t % 60));
    } else {
        (void)snprintf(into, 32, "%.1f s", s);
    }
    return into;
}

/* Part of the way, 0..1; -1 when the run has no fixed length. */
static double way(const ru_report *r, const ru_report_step *s)
{
    if (r->opt.steps <= 0) {
        return -1;
    }
    double p = (double)s->step / (double)r->opt.steps;
    return p > 1 ? 1 : p;
}

static void progress_text(const ru_report *r, const ru_report_step *s, bool bar, ru_text *t)
{
    char rate[32], left[32];
    double p = way(r, s);
    double elapsed_s = (double)ru_time_since(ru_clock_now(), r->begun) * 1e-9;
    int64_t here = s->step - r->step_first; /* steps of this job, from its start or resume */
    double per_s = elapsed_s > 0 ? (double)here / elapsed_s : 0;
    if (r->opt.epochs > 0) {
        ru_text_putf(t, "epoch %lld/%lld  ", (long long)s->epoch, (long long)r->opt.epochs);
    }
    ru_text_putf(t, "step %lld", (long long)s->step);
    if (r->opt.steps > 0) {
        ru_text_putf(t, "/%lld", (long long)r->opt.steps);
    }
    if (bar && p >= 0) {
        int full = (int)(p * BAR_WIDTH);
        ru_text_put(t, "  [");
        ru_text_char(t, '#', full);
        ru_text_char(t, '.', BAR_WIDTH - full);
        ru_text_put(t, "]");
    }
    ru_text_putf(t, "  %s %.4f", r->opt.objective, r->loss_mean);
    if (s->accuracy >= 0) {
        ru_text_putf(t, "  accuracy %.1f %%", s->accuracy * 100);
    }
    if (r->voters < r->members) {
        ru_text_putf(t, "  %u workers, %u vote%s", r->members, r->voters,
                     r->voters == 1 ? "s" : "");
    }
    ru_text_putf(t, "  %s samples/s", count_text(per_s * (double)s->batch, rate));
    if (p > 0 && per_s > 0) {
        ru_text_putf(t, "  %s left", duration_text((double)(r->opt.steps - s->step) / per_s, left));
    }
}

void rui_report_progress(ru_report *r, const ru_report_step *s)
{
    double old = r->loss_mean;
    r->loss_mean = !r->seen ? s->loss : 0.95 * old + 0.05 * s->loss;
    r->seen = true;
    if (r->opt.quiet || r->muted) {
        return;
    }
    char text[512];
    ru_text t = ru_text_into(text, sizeof text);
    ru_time now = ru_clock_now();
    if (r->opt.columns > 0 || r->opt.progress_lines) {
        if (ru_time_since(now, r->shown) < RUI_REPORT_PERIOD_NS) {
            return;
        }
        progress_text(r, s, true, &t);
        ru_live_draw(&r->live, t.p, t.n);
        if (r->opt.progress_lines) {
            ru_live_tell(text);
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
        progress_text(r, s, false, &t);
        (void)fprintf(stderr, "%s\n", text);
        r->shown = now;
        r->percent_shown = twentieth;
    }
}

void rui_report_evaluation(ru_report *r, int64_t step, int64_t epoch, const ru_metrics *m)
{
    char text[512];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "epoch %lld  step %lld  train %s %.4f  test", (long long)epoch,
                 (long long)step, r->opt.objective, r->loss_mean);
    for (uint32_t k = 0; k < m->n; k++) {
        if (strcmp(m->at[k].name, "accuracy") == 0) {
            ru_text_putf(&t, " accuracy %.2f %%", m->at[k].value * 100);
        } else {
            ru_text_putf(&t, " %s %.4f", m->at[k].name, m->at[k].value);
        }
    }
    say(r, text);
}

void rui_report_end(ru_report *r, const ru_report_summary *s)
{
    char rate[32], wall[32];
    const ru_report_split *p = &s->split;
    double all = (double)(p->compute_ns + p->network_ns + p->input_ns + p->wait_ns + p->other_ns);
    double k = all > 0 ? 100 / all : 0;
    rui_report_say(
        r,
        "%s: %lld steps, %lld samples in %s, %s samples/s; compute %.0f %%, input %.0f %%, "
        "network %.0f %%, wait %.0f %%, other %.0f %%; peak memory %lld MB",
        s->ended, (long long)s->steps, (long long)s->samples,
        duration_text((double)s->wall_ns * 1e-9, wall), count_text(s->samples_per_s, rate),
        (double)p->compute_ns * k, (double)p->input_ns * k, (double)p->network_ns * k,
        (double)p->wait_ns * k, (double)p->other_ns * k, (long long)(s->rss_peak_bytes / 1000000));
}
