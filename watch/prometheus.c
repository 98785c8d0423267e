/* Figures of a run in Prometheus' text format 0.0.4.
 *
 * Names: prefix rubato_, base units, _total for counters. Ranks are labels, so only the first
 * RU_WATCH_RANKS have some: a server of many jobs keeps one series for each. Source: the exposition
 * formats of Prometheus. */
#include <math.h>

#include "watch/run.h"

static void put_head(ru_text *out, const char *name, const char *type, const char *help)
{
    ru_text_putf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_number(ru_text *out, double v)
{
    if (isnan(v)) {
        ru_text_put(out, "NaN");
    } else if (isinf(v)) {
        ru_text_put(out, v > 0 ? "+Inf" : "-Inf");
    } else {
        ru_text_f64(out, v);
    }
    ru_text_put(out, "\n");
}

static void put_one(ru_text *out, const char *name, const char *type, const char *help, double v)
{
    put_head(out, name, type, help);
    ru_text_putf(out, "%s ", name);
    put_number(out, v);
}

static void put_if(ru_text *out, const char *name, const char *help, double v)
{
    if (!isnan(v)) {
        put_one(out, name, "gauge", help, v);
    }
}

static void put_label(ru_text *out, const char *value)
{
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '\n') {
            ru_text_put(out, "\\n");
        } else {
            ru_text_putf(out, "%s%c", *p == '\\' || *p == '"' ? "\\" : "", *p);
        }
    }
}

/* Fixed bounds, so that histograms of all jobs merge. A bucket of ru_hist that reaches over a bound
 * counts above it: at most 3 % of a doubling. */
static void put_steps(const ru_hist *h, ru_text *out)
{
    static const char name[] = "rubato_train_step_duration_seconds";
    static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                    0.5,   1,      2.5,   5,    10,    25,   50,  100};
    put_head(out, name, "histogram", "Duration of a training step.");
    uint64_t below = 0;
    uint32_t b = 0;
    for (uint32_t k = 0; k < sizeof bounds / sizeof bounds[0]; k++) {
        while (b + 1 < RU_HIST_BUCKETS && (double)ru_hist_low(b + 1) <= bounds[k] * 1e9) {
            below += h->counts[b++];
        }
        ru_text_putf(out, "%s_bucket{le=\"%g\"} %llu\n", name, bounds[k],
                     (unsigned long long)below);
    }
    ru_text_putf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum ", name, (unsigned long long)h->n, name);
    put_number(out, h->sum / 1e9);
    ru_text_putf(out, "%s_count %llu\n", name, (unsigned long long)h->n);
}

static void put_counts(const ru_watch_totals *t, ru_text *out)
{
    put_one(out, "rubato_train_steps_total", "counter", "Training steps done.", (double)t->steps);
    put_one(out, "rubato_train_samples_total", "counter", "Samples trained, each once.",
            (double)t->samples);
    put_one(out, "rubato_train_lost_samples_total", "counter",
            "Samples that no step used; known when the job has ended.", (double)t->lost);
    put_one(out, "rubato_train_repeated_samples_total", "counter",
            "Samples that two steps used; known when the job has ended.", (double)t->repeated);
    if (t->n_events > 0) {
        put_head(out, "rubato_train_events_total", "counter", "Events of the job by kind.");
    }
    for (uint32_t k = 0; k < t->n_events; k++) {
        ru_text_put(out, "rubato_train_events_total{event=\"");
        put_label(out, t->event[k].name);
        ru_text_putf(out, "\"} %lld\n", (long long)t->event[k].count);
    }
}

static void put_functions(const ru_top_functions *f, ru_text *out)
{
    if (f->workers == 0) {
        return;
    }
    put_one(out, "rubato_functions_workers", "gauge", "Function instances of a step.",
            (double)f->workers);
    put_one(out, "rubato_functions_memory_megabytes", "gauge", "Memory of each.",
            (double)f->memory_mb);
    put_one(out, "rubato_functions_measuring", "gauge",
            "1 while a choice of them is measured, 0 while one runs.", f->measures);
    put_one(out, "rubato_functions_spent_dollars_total", "counter", "US dollars spent.", f->usd);
    put_one(out, "rubato_functions_calls_total", "counter", "Calls of functions.",
            (double)f->calls);
    put_one(out, "rubato_functions_given_up_total", "counter",
            "Epochs of calls that were given up, as a worker was lost.", (double)f->given_up);
}

static void put_gauges(const ru_watch_totals *t, const ru_top *view, ru_text *out)
{
    put_one(out, "rubato_train_running", "gauge", "1 while the job runs.", t->ended[0] == '\0');
    put_one(out, "rubato_train_planned_steps", "gauge", "Steps of the whole job; 0: open.",
            (double)view->steps);
    put_one(out, "rubato_train_workers", "gauge", "Workers that compute.", (double)t->workers);
    put_one(out, "rubato_train_batch_samples", "gauge", "Samples of a step.",
            (double)t->batch_samples);
    put_one(out, "rubato_train_parameters", "gauge", "Parameters of the model.",
            (double)t->parameters);
    put_one(out, "rubato_train_epoch", "gauge", "Epoch of the last step, from 1.",
            (double)t->epoch);
    put_if(out, "rubato_train_goodput_samples_per_second", "Samples a second, each counted once.",
           t->samples_per_s);
    put_if(out, "rubato_train_loss", "Loss of the last step.", t->loss);
    put_if(out, "rubato_train_accuracy_ratio", "Accuracy of the last step's batch.", t->accuracy);
    put_if(out, "rubato_train_learning_rate", "Learning rate of the last step.", t->lr);
    put_if(out, "rubato_train_gradient_norm", "Gradient norm of the last step before clipping.",
           t->norm);
    put_if(out, "rubato_train_gradient_noise_samples",
           "Gradient noise scale: in a batch of so many samples each counts half of one in a small "
           "batch.",
           t->noise);
    if (t->round.asked > 0) {
        put_one(out, "rubato_federation_asked_clients", "gauge", "Clients of the last round.",
                (double)t->round.asked);
        put_one(out, "rubato_federation_answers", "gauge",
                "Clients of the last round whose answers came in time.", (double)t->round.answers);
        put_one(out, "rubato_federation_late_clients", "gauge",
                "Clients of the last round that had no answer in time.", (double)t->round.late);
        put_one(out, "rubato_federation_lost_clients", "gauge",
                "Clients of the last round that went away.", (double)t->round.lost);
    }
    if (t->round.here > 0) {
        put_one(out, "rubato_federation_here_clients", "gauge",
                "Clients that were there at the end of the last round, or are while none goes on.",
                (double)t->round.here);
    }
    if (t->round.resting > 0) {
        put_one(out, "rubato_federation_resting_clients", "gauge",
                "Clients that were out of their hours at the end of the last round, or are while "
                "none goes on.",
                (double)t->round.resting);
    }
    if (t->round.epsilon > 0) {
        put_one(out, "rubato_federation_epsilon", "gauge",
                "What all rounds so far tell about one client (differential privacy).",
                t->round.epsilon);
    }
    put_functions(&t->functions, out);
    if (t->follow.told) {
        put_one(out, "rubato_follow_samples_total", "counter", "Samples that came (data.follow).",
                (double)t->follow.arrived);
        put_one(out, "rubato_follow_queue_samples", "gauge", "Samples that wait.",
                (double)t->follow.queue);
        put_one(out, "rubato_follow_workers", "gauge",
                "Workers that were called for them; 0: no step can be made of them.",
                (double)t->follow.workers);
    }
    if (view->left_s >= 0) {
        put_one(out, "rubato_train_remaining_seconds", "gauge", "Predicted time to the end.",
                view->left_s);
    }
    if (t->n_metrics > 0) {
        put_head(out, "rubato_train_evaluation", "gauge", "Metrics of the last evaluation.");
    }
    for (uint32_t k = 0; k < t->n_metrics; k++) {
        ru_text_put(out, "rubato_train_evaluation{metric=\"");
        put_label(out, t->metric[k].name);
        ru_text_put(out, "\"} ");
        put_number(out, t->metric[k].value);
    }
}

static void put_waits(const ru_top *v, uint32_t n, ru_text *out)
{
    put_head(out, "rubato_worker_barrier_wait_seconds", "gauge",
             "Mean time of a step that the rank waited for peers that came late to a sum.");
    for (uint32_t k = 0; k < n; k++) {
        ru_text_putf(out, "rubato_worker_barrier_wait_seconds{rank=\"%u\"} ", v->ranks[k].rank);
        put_number(out, v->ranks[k].waited_s);
    }
    put_head(out, "rubato_worker_awaited_seconds", "gauge",
             "Mean time of a step that another rank waited for this one, the longest.");
    for (uint32_t k = 0; k < n; k++) {
        ru_text_putf(out, "rubato_worker_awaited_seconds{rank=\"%u\"} ", v->ranks[k].rank);
        put_number(out, v->ranks[k].awaited_s);
    }
}

static void put_ranks(const ru_top *v, ru_text *out)
{
    static const char *const classes[RU_TOP_CLASSES] = {"control", "urgent", "normal",
                                                        "background"};
    uint32_t n = v->n < RU_WATCH_RANKS ? v->n : RU_WATCH_RANKS;
    if (n == 0) {
        return;
    }
    put_head(out, "rubato_worker_step", "gauge", "Last step that the rank ended.");
    for (uint32_t k = 0; k < n; k++) {
        ru_text_putf(out, "rubato_worker_step{rank=\"%u\"} %lld\n", v->ranks[k].rank,
                     (long long)v->ranks[k].step);
    }
    put_head(out, "rubato_worker_silent_seconds", "gauge", "Time since the rank's last record.");
    for (uint32_t k = 0; k < n; k++) {
        ru_text_putf(out, "rubato_worker_silent_seconds{rank=\"%u\"} ", v->ranks[k].rank);
        put_number(out, v->ranks[k].quiet_s > 0 ? v->ranks[k].quiet_s : 0);
    }
    put_head(out, "rubato_worker_time_ratio", "gauge",
             "Part of the step time of the last ten seconds.");
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
            ru_text_putf(out, "rubato_worker_time_ratio{rank=\"%u\",part=\"%s\"} ",
                         v->ranks[k].rank, ru_step_part_name((ru_step_part)p));
            put_number(out, v->ranks[k].part[p]);
        }
    }
    put_head(out, "rubato_worker_sent_bytes_per_second", "gauge",
             "Bytes a second sent in the last ten seconds, by class.");
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t c = 0; c < RU_TOP_CLASSES; c++) {
            ru_text_putf(out, "rubato_worker_sent_bytes_per_second{rank=\"%u\",class=\"%s\"} ",
                         v->ranks[k].rank, classes[c]);
            put_number(out, v->ranks[k].sent_per_s[c]);
        }
    }
    put_waits(v, n, out);
}

/* A gauge of every predictor that acted in the window, by percentile. */
static void put_percentiles(const ru_top *v, bool late, const char *name, const char *help,
                            ru_text *out)
{
    if (v->n_predictors > 0) {
        put_head(out, name, "gauge", help);
    }
    for (uint32_t k = 0; k < v->n_predictors; k++) {
        const ru_predictor_error *e = &v->predictors[k];
        const double at[2] = {late ? e->late_s : e->median, late ? e->late95_s : e->p95};
        for (uint32_t q = 0; q < 2; q++) {
            ru_text_putf(out, "%s{predictor=\"", name);
            put_label(out, e->predictor);
            ru_text_putf(out, "\",percentile=\"%s\"} ", q == 0 ? "50" : "95");
            put_number(out, at[q]);
        }
    }
}

/* Figures of plans that were predicted and measured. */
static void put_plans(const ru_watch_totals *t, ru_text *out)
{
    static const char name[] = "rubato_plan_error_ratio";
    bool head = false;
    for (uint32_t k = 0; k < t->n_figures; k++) {
        const ru_watch_figure *f = &t->figure[k];
        if (!(fabs(f->predicted) > 0) || !(fabs(f->measured) > 0)) { /* nobody knew it */
            continue;
        }
        if (!head) {
            put_head(out, name, "gauge",
                     "Predicted less measured figure over the measured one, of the policy's last "
                     "plan that was measured.");
        }
        head = true;
        ru_text_putf(out, "%s{policy=\"", name);
        put_label(out, f->policy);
        ru_text_put(out, "\",figure=\"");
        put_label(out, f->name);
        ru_text_put(out, "\"} ");
        put_number(out, (f->predicted - f->measured) / f->measured);
    }
}

void ru_watch_prometheus(const ru_watch_totals *t, const ru_top *view, ru_text *out)
{
    put_head(out, "rubato_build_info", "gauge", "Version of this program.");
    ru_text_putf(out, "rubato_build_info{version=\"%s\"} 1\n", RU_VERSION);
    put_counts(t, out);
    put_steps(&t->step_ns, out);
    put_gauges(t, view, out);
    put_ranks(view, out);
    put_percentiles(view, true, "rubato_predictor_lateness_seconds",
                    "Measured less predicted time of acts in the last ten seconds.", out);
    put_percentiles(view, false, "rubato_predictor_error_ratio",
                    "Error of predicted times over the measured ones in the last ten seconds.",
                    out);
    put_plans(t, out);
}
