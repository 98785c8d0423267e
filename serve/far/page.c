/* What was chosen, what the law says, what was measured. */
#include "serve/far/far_impl.h"

static double spent_usd(const rui_far *f, const ru_function_meter *from,
                        const ru_function_meter *to)
{
    return (to->gb_s - from->gb_s) * f->opt->usd_per_gb_s +
           (double)(to->calls - from->calls) * f->opt->usd_per_call;
}

/* A figure under its key, and as a line in a unit `times` as small. */
static void both(const ru_tell *o, const char *key, const char *what, const char *unit,
                 double times, double predicted, double measured)
{
    ru_tell_open(o, key, '{');
    ru_tell_f64(o, "predicted", predicted);
    ru_tell_f64(o, "measured", measured);
    ru_tell_close(o);
    ru_text_putf(o->text, "%-28s %10.4g%-4s %10.4g%s\n", what, times * predicted, unit,
                 times * measured, unit);
}

static void put_choice(const rui_far *f, const ru_function_meter *m, const ru_tell *o)
{
    ru_text *t = o->text;
    const rui_far_choice *c = &f->now;
    uint64_t n = f->took.n, calls = m->calls - f->since.meter.calls;
    double q = f->v->server->opt.slo_q;
    double over_s = (double)ru_time_since(ru_clock_now(), f->since.at) * 1e-9;
    ru_tell_f64(o, "chosen_for_s", over_s);
    ru_tell_i64(o, "buffers_n", f->size != NULL ? f->size->now.n : 1);
    if (f->size != NULL) {
        ru_text_putf(t, "choice: %u buffer%s by size, for %.0f s\n", f->size->now.n,
                     f->size->now.n == 1 ? "" : "s", over_s);
    } else {
        ru_tell_f64(o, "memory_mb", c->at.memory_mb);
        ru_tell_i64(o, "batch", c->at.batch);
        ru_tell_f64(o, "wait_s", c->at.timeout_s);
        ru_text_putf(t,
                     "choice: functions with %g MB, batches of %u, a wait of %.4g s, for %.0f s\n",
                     c->at.memory_mb, c->at.batch, c->at.timeout_s, over_s);
    }
    char latency[32];
    ru_text l = ru_text_into(latency, sizeof latency);
    ru_text_putf(&l, "p%g", q * 100);
    ru_text_putf(t, "%-28s %12s   %12s\n", "", "predicted", "measured");
    both(o, "latency_s", latency, " s", 1, c->latency_s,
         (double)ru_hist_quantile(&f->took, q) * 1e-9);
    both(o, "requests_in_a_batch", "requests in a batch", "", 1, c->mean_batch,
         calls > 0 ? (double)n / (double)calls : 0);
    both(o, "request_usd", "a request", " USD", 1, c->usd,
         n > 0 ? spent_usd(f, &f->since.meter, m) / (double)n : 0);
    both(o, "instances_at_a_time", "instances at a time", "", 1, c->instances,
         over_s > 0 ? (m->billed_s - f->since.meter.billed_s) / over_s : 0);
    both(o, "late_share", "later than promised", " %", 100, 1 - q,
         n > 0 ? (double)f->late / (double)n : 0);
}

static void put_money(const rui_far *f, const ru_function_meter *m, const ru_tell *o)
{
    ru_text *t = o->text;
    const ru_function_meter zero = {0};
    double own = spent_usd(f, &f->ready.meter, m), none = f->alone.usd * (double)f->all.n;
    ru_tell_f64(o, "spent_usd", own);
    ru_tell_i64(o, "requests", (int64_t)f->all.n);
    ru_tell_f64(o, "gb_seconds", m->gb_s - f->ready.meter.gb_s);
    ru_tell_i64(o, "calls", (int64_t)(m->calls - f->ready.meter.calls));
    ru_tell_f64(o, "to_measure_usd", spent_usd(f, &zero, &f->ready.meter));
    ru_tell_f64(o, "alone_request_usd", f->alone.usd);
    ru_tell_f64(o, "alone_memory_mb", f->alone.at.memory_mb);
    if (none > 0) {
        ru_tell_f64(o, "alone_usd", none);
        ru_tell_f64(o, own < none ? "less_share" : "more_share",
                    own < none ? 1 - own / none : own / none - 1);
    }
    ru_text_putf(t, "spent: %.6g USD for %llu requests (%.6g GB-s, %llu calls)", own,
                 (unsigned long long)f->all.n, m->gb_s - f->ready.meter.gb_s,
                 (unsigned long long)(m->calls - f->ready.meter.calls));
    ru_text_putf(t, ", and %.4g USD to measure service times\n",
                 spent_usd(f, &zero, &f->ready.meter));
    ru_tell_f64(o, "law_usd", f->all.law_usd);
    ru_tell_f64(o, "law_gb_seconds", f->all.law_gb_s);
    ru_text_putf(t, "by the laws in force: %.6g USD (%.6g GB-s)\n", f->all.law_usd,
                 f->all.law_gb_s);
    ru_text_putf(t, "without batching: %.4g USD a request with %g MB", f->alone.usd,
                 f->alone.at.memory_mb);
    if (none > 0) {
        ru_text_putf(t, ", %.4g USD: batching spends %.3g %% %s", none,
                     own < none ? 100 * (1 - own / none) : 100 * (own / none - 1),
                     own < none ? "less" : "more");
    }
    ru_text_put(t, "\n");
}

static void put_instances(const rui_far *f, const ru_function_meter *m, const ru_tell *o)
{
    ru_text *t = o->text;
    ru_tell_i64(o, "instances_live", m->alive);
    ru_tell_i64(o, "instances_most", f->v->instances);
    ru_tell_i64(o, "instances_busy", m->busy);
    ru_tell_i64(o, "starts", (int64_t)m->starts);
    ru_tell_ns(o, "start_s", m->starts > 0 ? (double)m->start_ns / (double)m->starts : 0);
    ru_tell_i64(o, "again", (int64_t)m->again);
    ru_tell_open(o, "failed_calls", '[');
    ru_text_putf(t,
                 "instances: %u of at most %u live, %u compute; %llu started, in %.3g s on average",
                 m->alive, f->v->instances, m->busy, (unsigned long long)m->starts,
                 m->starts > 0 ? (double)m->start_ns * 1e-9 / (double)m->starts : 0);
    for (int r = RU_FUNCTION_ERROR; r < RU_FUNCTION_RESULTS; r++) {
        if (m->of[r] > 0) {
            ru_tell_open(o, NULL, '{');
            ru_tell_i64(o, "calls", (int64_t)m->of[r]);
            ru_tell_str(o, "what", ru_function_result_text((ru_function_result)r));
            ru_tell_close(o);
            ru_text_putf(t, "; %llu calls: %s", (unsigned long long)m->of[r],
                         ru_function_result_text((ru_function_result)r));
        }
    }
    ru_tell_close(o);
    ru_text_putf(t, "; %llu tries again\n", (unsigned long long)m->again);
    if (ru_function_host_lacks(f->host)[0] != '\0') {
        ru_tell_note(o, "unbounded", "control groups do not bound the %s of instances",
                     ru_function_host_lacks(f->host));
    }
}

static void put_times(const rui_far *f, const ru_tell *o)
{
    ru_text *t = o->text;
    uint32_t classes = f->size != NULL ? f->size->n : 1;
    ru_text_putf(t, "seconds of a batch now, by memory%s and rows\n      MB%s",
                 classes > 1 ? ", size" : "", classes > 1 ? "      size" : "");
    for (uint32_t k = 0; k < f->n_sizes; k++) {
        ru_text_putf(t, " %9u", 1u << k);
    }
    ru_tell_open(o, "batch_times", '[');
    for (uint32_t row = 0; row < f->n_memory * classes; row++) {
        uint32_t m = row / classes, c = row % classes;
        ru_text_putf(t, "\n%8g", f->memory_mb[m]);
        if (classes > 1) {
            ru_text_putf(t, " %9g", rui_size_bound(f, c));
        }
        for (uint32_t k = 0; k < f->n_sizes; k++) {
            double s = rui_far_now_s(f, c, m, 1u << k);
            ru_text_putf(t, " %9.4g", s);
            ru_tell_open(o, NULL, '{');
            ru_tell_f64(o, "memory_mb", f->memory_mb[m]);
            if (classes > 1) {
                ru_tell_f64(o, "size", rui_size_bound(f, c));
            }
            ru_tell_i64(o, "rows", 1u << k);
            ru_tell_f64(o, "batch_s", s);
            ru_tell_close(o);
        }
    }
    ru_tell_close(o);
    ru_tell_f64(o, "times_as_long", rui_far_slow(f));
    ru_text_putf(t, "\nbatches take %.3g times as long now as in the probes\n", rui_far_slow(f));
}

void rui_far_explain(const rui_far *f, const ru_tell *o)
{
    ru_text *t = o->text;
    ru_tell_open(o, NULL, '{');
    ru_tell_str(o, "model", f->v->model);
    ru_tell_str(o, "at", f->opt->url);
    ru_tell_f64(o, "promise_share", f->v->server->opt.slo_q);
    ru_tell_f64(o, "promise_s", (double)f->v->server->opt.slo_ns * 1e-9);
    const ru_function_meter m = ru_function_host_meter(f->host);
    ru_text_putf(t, "%s: batches on functions %s%s, promise p%g = %g s\n", f->v->model,
                 f->opt->url != NULL ? "at " : "of this machine",
                 f->opt->url != NULL ? f->opt->url : "", f->v->server->opt.slo_q * 100,
                 (double)f->v->server->opt.slo_ns * 1e-9);
    put_choice(f, &m, o);
    if (f->size != NULL) {
        rui_size_explain(f, o);
    }
    put_money(f, &m, o);
    ru_tell_f64(o, "arrivals_per_s", f->facts.rate);
    ru_tell_f64(o, "arrivals_scv", f->facts.scv);
    ru_tell_i64(o, "gaps", f->facts.n);
    ru_tell_i64(o, "choices", f->choices);
    ru_tell_i64(o, "taken", f->installed);
    ru_tell_i64(o, "refused", f->refused);
    ru_text_putf(t,
                 "arrivals: %.4g a second, squared coefficient of variation %.3g, from %u gaps; "
                 "looked for a choice %u times, took %u, refused %u\n",
                 f->facts.rate, f->facts.scv, f->facts.n, f->choices, f->installed, f->refused);
    if (f->refusal[0] != '\0') {
        ru_tell_str(o, "refusal", f->refusal);
        ru_text_putf(t, "refused: %s\n", f->refusal);
    }
    put_instances(f, &m, o);
    put_times(f, o);
    ru_tell_close(o);
}
