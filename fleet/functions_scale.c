/* Workers and memory of a run on functions: the choice of the options, or those of `scale`, each
 * with what was predicted and measured of it; and what the run cost. */
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "env/file/file.h"
#include "fleet/functions_impl.h"
#include "plan/row/policy.h"
#include "train/job/batch.h"

#define EACH_NS INT64_C(1000000000) /* a look at the price; a line of what was spent */

static double spent_usd(const rui_functions *a)
{
    ru_function_meter m = ru_function_host_meter(a->host);
    const rui_functions_money *c = &a->money;
    return c->paid_usd + (m.gb_s - c->paid_gb_s) * c->usd_per_gb_s +
           (double)m.calls * a->opt->scale.usd_per_call;
}

/* The choice that was in force has ended. */
static void measure(rui_functions *a)
{
    double step_s = a->n_steps > 0 ? (double)a->steps_ns * 1e-9 / a->n_steps : 0;
    double steps = (double)(a->done - a->money.chosen_step);
    double init_s = fmax(0, (double)a->init_ns * 1e-9 - step_s); /* its first step is in it */
    if (a->memory) {
        ru_func_scale_failed(&a->scale);
    } else if (a->n_steps > 0) {
        ru_func_scale_measured(&a->scale, steps, step_s, init_s);
        ru_decisions_measured(a->run.decisions, &ru_policy_scale, "step_s", RU_NAN, step_s);
    }
    a->memory = false;
    a->steps_ns = a->init_ns = 0;
    a->n_steps = 0;
}

/* Of the calls under way. */
static double running_gb_s(const rui_functions *a, ru_time now)
{
    double running_s = (double)ru_time_since(now, a->epoch_at) * 1e-9;
    return a->choice.workers * (a->choice.memory_mb / 1024.0 * running_s);
}

static double running_usd(const rui_functions *a, ru_time now)
{
    return running_gb_s(a, now) * a->money.usd_per_gb_s +
           a->choice.workers * a->opt->scale.usd_per_call;
}

/* The last choice did the rest of the job: calls that answered, and those that end now. */
static void measure_rest(rui_functions *a, ru_time now)
{
    double usd = spent_usd(a) - a->money.chosen_usd + running_usd(a, now);
    ru_decisions_measured(a->run.decisions, &ru_policy_scale, "job_s", RU_NAN,
                          (double)ru_time_since(now, a->money.chosen_at) * 1e-9);
    ru_decisions_measured(a->run.decisions, &ru_policy_scale, "job_usd", RU_NAN, usd);
}

static void stop(rui_functions *a, const char *why)
{
    ru_log(RU_LOG_WARN, "functions", "budget",
           "the run stops after step %lld: %s; a larger --budget and --resume continue it",
           (long long)a->done, why);
    rui_functions_stop(a);
}

void rui_functions_took(rui_functions *a, ru_time now)
{
    if (a->summed_at.ns == 0) {
        int64_t ns = ru_time_since(now, a->epoch_at);
        a->init_ns = ns > a->init_ns ? ns : a->init_ns;
    } else if (!a->busy) { /* else it has waited for this process */
        a->steps_ns += ru_time_since(now, a->summed_at);
        a->n_steps++;
    }
    a->summed_at = now;
    if (ru_time_since(now, a->money.told) >= EACH_NS) {
        rui_functions_note(a, now, true);
    }
    if (a->done >= a->run.steps && ru_functions_scales(a->opt)) {
        measure(a); /* before the run is closed */
        measure_rest(a, now);
    }
    double limit = a->opt->scale.budget_usd;
    if (a->follow.files != NULL && limit > 0 && !a->follow.spent &&
        spent_usd(a) + running_usd(a, now) >= limit) {
        a->follow.spent = true;
        stop(a, "its budget is spent");
    }
}

void rui_functions_note(rui_functions *a, ru_time now, bool runs)
{
    ru_function_meter m = ru_function_host_meter(a->host);
    ru_func_figures f = ru_func_figures_of(a->machine);
    ru_arena scratch;
    ru_err err = {0};
    a->money.told = now;
    ru_arena_init(&scratch, 0);
    ru_text line = ru_text_arena(&scratch);
    ru_json j = ru_json_into(&line);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.functions/1");
    ru_json_f64(&j, "seconds", (double)ru_time_since(now, a->begun) * 1e-9);
    ru_json_i64(&j, "step", a->done);
    ru_json_i64(&j, "workers", a->choice.workers);
    ru_json_i64(&j, "memory_mb", a->choice.memory_mb);
    ru_json_bool(&j, "measures", ru_functions_scales(a->opt) && a->scale.plan.probe);
    ru_json_f64(&j, "usd", spent_usd(a) + (runs ? running_usd(a, now) : 0));
    ru_json_f64(&j, "usd_per_gb_s", a->money.usd_per_gb_s);
    ru_json_i64(&j, "calls", (int64_t)m.calls + (runs ? a->choice.workers : 0));
    ru_json_i64(&j, "epochs", f.epochs);
    ru_json_i64(&j, "given_up", f.fenced);
    ru_json_close(&j);
    ru_text_put(&line, "\n");
    if (line.cut || ru_log_file_append(a->money.log, line.p, line.n, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "functions", "note", "what was spent is not told: %s", err.text);
    }
    ru_arena_fini(&scratch);
}

ru_status ru_functions_price(const char *path, double *out, ru_err *err)
{
    enum { TEXT_MAX = 64 };
    ru_arena scratch;
    char *text;
    int64_t n;
    double usd = 0;
    ru_arena_init(&scratch, 0);
    ru_status st = ru_file_read(path, TEXT_MAX, &scratch, &text, &n, err);
    if (st == RU_OK && !(ru_str_f64(ru_str_trim(ru_str_n(text, n)), &usd) && usd > 0 && usd < 1)) {
        st = RU_FAIL(err, RU_E_DATA, "%s: expected US dollars for a GB-s, as 1.66667e-5", path);
    }
    ru_arena_fini(&scratch);
    RU_TRY(st);
    *out = usd;
    return RU_OK;
}

void rui_functions_price(rui_functions *a, ru_time now)
{
    ru_err err = {0};
    rui_functions_money *c = &a->money;
    double usd = c->usd_per_gb_s;
    if (a->opt->price == NULL || ru_time_since(now, c->looked) < EACH_NS) {
        return;
    }
    RU_CHECK(c->usd_per_gb_s > 0 && a->choice.workers > 0);
    c->looked = now;
    bool unread = ru_functions_price(a->opt->price, &usd, &err) != RU_OK;
    if (unread && !c->unread) { /* once, not each second */
        ru_log(RU_LOG_WARN, "functions", "price", "it stays at %g USD a GB-s: %s", usd, err.text);
    }
    c->unread = unread;
    if (usd == c->usd_per_gb_s) {
        return;
    }
    ru_log(RU_LOG_INFO, "functions", "price", "%g USD a GB-s from step %lld on, %g before", usd,
           (long long)a->done, c->usd_per_gb_s);
    double gb_s = ru_function_host_meter(a->host).gb_s + running_gb_s(a, now);
    c->paid_usd += (gb_s - c->paid_gb_s) * c->usd_per_gb_s;
    c->paid_gb_s = gb_s;
    c->usd_per_gb_s = a->scale.in.rules.usd_per_gb_s = usd;
    if (ru_functions_scales(a->opt)) {
        rui_functions_say(a, RU_FUNC_AGAIN, 0, NULL, 0);
    }
}

static void tell(const rui_functions *a, bool was_late, uint32_t parts)
{
    const ru_scale_plan *p = &a->scale.plan;
    char text[120] = "";
    if (!p->blind) {
        (void)snprintf(text, sizeof text, "; expected: %.3g s a step, %.3g s and %.3g USD for %s",
                       p->step_s, p->seconds, p->usd, parts > 1 ? "this batch" : "all");
    }
    ru_log(RU_LOG_INFO, "functions", "scale", "%s %u workers of %u MB from step %lld to %lld%s",
           p->probe ? "measures" : "runs", a->choice.workers, a->choice.memory_mb,
           (long long)a->done, (long long)a->choice.end, text);
    if (a->scale.late && !was_late) {
        ru_log(RU_LOG_WARN, "functions", "late",
               "no choice of workers and memory keeps --deadline any more; the fastest goes on");
    }
}

/* The rest of the run, a part for each batch; the last one has what there is no room for. */
static uint32_t parts_of(const rui_functions *a, ru_scale_part *parts)
{
    const ru_job_train *j = &a->opt->train->job->train;
    int64_t at = a->run.samples, left = a->run.steps - a->done;
    uint32_t n = 0;
    while (left > 0) {
        int64_t batch = ru_job_batch_at(j, at, a->run.epoch_samples);
        int64_t steps = ru_job_batch_steps(j, at, a->run.epoch_samples);
        steps = steps < left && n + 1 < RU_SCALE_PARTS_MAX ? steps : left;
        parts[n++] = (ru_scale_part){(double)steps, (double)batch};
        at += steps * batch;
        left -= steps;
    }
    return n;
}

static bool next_choice(rui_functions *a)
{
    ru_arena scratch;
    ru_scale_part parts[RU_SCALE_PARTS_MAX];
    uint32_t n = parts_of(a, parts);
    ru_err err = {0};
    bool late = a->scale.late;
    ru_arena_init(&scratch, 0);
    ru_status st = ru_func_scale_next(&a->scale, a->done, parts, n, spent_usd(a), ru_clock_now(),
                                      &scratch, &a->choice, &err);
    ru_arena_fini(&scratch);
    if (st == RU_E_INFEASIBLE) {
        stop(a, err.text);
    } else if (st != RU_OK) {
        rui_functions_fail(a, st, err.text);
    } else {
        a->money.chosen_at = ru_clock_now();
        a->money.chosen_step = a->done;
        a->money.chosen_usd = spent_usd(a);
        ru_decisions_add(a->run.decisions, &ru_policy_scale, &a->scale.asked, false);
        tell(a, late, n);
    }
    return st == RU_OK;
}

void rui_functions_choose(rui_functions *a)
{
    const ru_func_scale_options *o = &a->opt->scale;
    char text[120];
    bool goes_on = true;
    const ru_job_train *j = &a->opt->train->job->train;
    int64_t same = ru_job_batch_steps(j, a->run.samples, a->run.epoch_samples);
    if (j->batch_schedule.n > 0) {
        a->run.batch = ru_job_batch_at(j, a->run.samples, a->run.epoch_samples);
    }
    if (ru_functions_scales(a->opt)) {
        if (a->choice.workers > 0) {
            measure(a);
        }
        goes_on = next_choice(a);
    } else if (a->memory) {
        (void)snprintf(text, sizeof text, "workers need more than %g MB; raise --memory",
                       o->memory_min_mb);
        rui_functions_fail(a, RU_E_MEM, text);
        goes_on = false;
    } else if (a->follow.files != NULL) {
        rui_functions_follow_choose(a);
        goes_on = false; /* it says so itself */
    } else {
        a->choice =
            (ru_func_choice){.workers = o->workers_min,
                             .memory_mb = (uint32_t)o->memory_min_mb,
                             .end = same < a->run.steps - a->done ? a->done + same : a->run.steps};
    }
    if (goes_on) {
        rui_functions_note(a, ru_clock_now(), false);
        rui_functions_say(a, RU_FUNC_CHOICE, 0, &a->choice, sizeof a->choice);
    }
}

void rui_functions_tell(rui_functions *a)
{
    rui_functions_note(a, ru_clock_now(), false);
    ru_function_meter m = ru_function_host_meter(a->host);
    ru_func_figures f = ru_func_figures_of(a->machine);
    double s = (double)ru_time_since(ru_clock_now(), a->begun) * 1e-9;
    ru_log(RU_LOG_INFO, "functions", "spent",
           "%.4g USD for %.4g GB-s in %llu calls; %.4g s, %u epochs, %u given up", spent_usd(a),
           m.gb_s, (unsigned long long)m.calls, s, f.epochs, f.fenced);
}
