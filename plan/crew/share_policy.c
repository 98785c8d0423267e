/* The row of `share` in plan/row/policy.def: its input as a file, its report. */

#include <math.h>
#include <string.h>

#include "plan/crew/share.h"
#include "plan/row/policy.h"

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_share_in *in = section;
    if (in->n < 1 || in->n > RU_SHARES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'speed' has %u workers, expected 1 to %d", in->n,
                       RU_SHARES_MAX);
    }
    int64_t sum = 0;
    for (uint32_t i = 0; i < in->n_now; i++) {
        sum += in->now[i] > in->batch - sum ? in->batch + 1 - sum : in->now[i];
    }
    if (in->n_now != 0 && (in->n_now != in->n || sum != in->batch)) {
        return RU_FAIL(err, RU_E_ARG,
                       "'now' must hold one share for each of the %u workers, %lld samples in all",
                       in->n, (long long)in->batch);
    }
    uint32_t may = 0, known = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        double v = in->speed[i];
        may += v >= 0 ? 1 : 0;
        known += v > 0 ? 1 : 0;
        if (v > 0 && v < RU_SHARE_SPEED_MIN) {
            return RU_FAIL(err, RU_E_ARG,
                           "'speed' has %g samples per second for worker %u; expected at least %g, "
                           "0 for a worker that is not measured, or -1 for one that gets nothing",
                           v, i, RU_SHARE_SPEED_MIN);
        }
    }
    if (may == 0) {
        return RU_FAIL(err, RU_E_ARG, "every worker of 'speed' is excluded (below 0)");
    }
    if (known == 0 && in->method == RU_SHARE_SPEED) {
        return RU_FAIL(
            err, RU_E_ARG,
            "no worker of 'speed' has a measured speed (above 0); measure one, or choose "
            "method equal");
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(I64, ru_share_in, batch, NULL, "samples of one step over all workers", RU_IN(1, 1e15)),
    RU_ROW(F64_LIST, ru_share_in, speed, NULL,
           "samples per second of each worker; 0: not measured yet; -1: the worker gets no samples",
           RU_IN(-1, 1e15)),
    RU_ROW(I64_LIST, ru_share_in, now, "[]",
           "samples that each worker computes now; empty: there are no shares yet", RU_IN(0, 1e15)),
    RU_ROW(F64, ru_share_in, gain_min, "0.1",
           "smallest reduction of the step time, as a fraction, for which shares change",
           RU_IN(0, 1)),
    RU_ROW(CHOICE, ru_share_in, method, "speed",
           "speed: shares by measured speed; equal: equal shares (baseline)",
           .choices = "speed|equal"),
};

static const ru_conf_table table =
    RU_TABLE("share", ru_share_in, fields, "one synchronous data-parallel step", .check = check_in);

static ru_status plan_share(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    return ru_plan_share(in, tools->out, plan, err);
}

static ru_status check_share(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    (void)scratch;
    return ru_plan_share_check(in, plan, err);
}

/* Seconds of a step with these shares at the measured speeds. 0: no speed is known. */
static double step_s(const ru_share_in *in, const int64_t *share)
{
    double most = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        if (in->speed[i] > 0) {
            most = fmax(most, (double)share[i] / in->speed[i]);
        }
    }
    return most;
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_share_plan *p = v->won, *other = v->plan;
    double mine = step_s(v->in, p->share), others = step_s(v->in, other->share);
    ru_rival_is(v, others, p->changed || others >= mine, "%s",
                !p->changed && others < mine
                    ? "shortens the step by less than gain_min, for which nothing changes"
                : v->method == RU_SHARE_EQUAL ? "the slowest worker ends last"
                                              : "the method was given");
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_DECISION(I64, ru_share_plan, share, "shares_samples", RU_LIST(ru_share_plan, n)),
    RU_DECISION(BOOL, ru_share_plan, changed, "changed"),
};

static ru_status report_share(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const ru_share_in *s = in;
    const ru_share_plan *p = plan;
    ru_report_answer(r, "%s", p->changed ? "compute these shares" : "keep the shares in force");
    double mine = step_s(s, p->share);
    ru_report_figure(r, "step_s", mine);
    ru_report_figure(r, "samples_per_s", mine > 0 ? (double)s->batch / mine : 0);
    ru_table *t = ru_report_grid_of(r, "shares", ">worker >samples >compute_s");
    for (uint32_t i = 0; i < p->n; i++) {
        ru_table_i64(t, i);
        ru_table_i64(t, p->share[i]);
        if (s->speed[i] > 0) {
            ru_table_f64(t, (double)p->share[i] / s->speed[i], 4);
        } else {
            ru_table_none(t);
        }
    }
    RU_TRY(ru_policy_rivals(&ru_policy_share, in, plan, tools, judge, r, err));
    if (s->n_now > 0) {
        bool legal = true; /* who is excluded now may keep nothing */
        for (uint32_t i = 0; i < p->n; i++) {
            legal = legal && (s->now[i] == 0 || s->speed[i] >= 0);
        }
        ru_report_candidate(r, "now", step_s(s, s->now), legal, "%s",
                            !legal       ? "an excluded worker computes"
                            : p->changed ? "new shares shorten the step by more than gain_min"
                                         : "same as the plan");
    }
    ru_report_assume(r, "speeds stay as measured; a worker without a speed has the mean of the "
                        "others");
    ru_report_trigger(r, "step_s", s->gain_min);
    return RU_OK;
}

/* The latest facts of each worker of one job: samples and time of its step. */
static ru_status derive_share(const ru_world *w, ru_arena *scratch, ru_json *j, ru_err *err)
{
    (void)scratch;
    uint32_t n = 0;
    const ru_step_fact *first = w->facts.steps.at;
    for (uint32_t i = 0; i < w->facts.steps.n; i++) {
        n += w->facts.steps.at[i].rank == n && strcmp(w->facts.steps.at[i].job, first->job) == 0;
    }
    if (n == 0 || first->batch <= 0) {
        return RU_FAIL(err, RU_E_MISSING,
                       "facts.steps must hold a record with 'batch' for each worker of a job, "
                       "ranks from 0");
    }
    ru_json_i64(j, "batch", first->batch);
    ru_json_open(j, "speed", '[');
    uint32_t rank = 0;
    int64_t sum = 0;
    for (uint32_t i = 0; i < w->facts.steps.n && rank < n; i++) {
        const ru_step_fact *s = &w->facts.steps.at[i];
        if (s->rank == rank && strcmp(s->job, first->job) == 0) {
            double ns = s->compute_ns > 0 ? s->compute_ns : s->took.mean_ns;
            ru_json_f64(j, NULL, ns > 0 ? (double)s->samples / (ns * 1e-9) : 0);
            sum += s->samples;
            rank++;
        }
    }
    ru_json_close(j);
    if (sum != first->batch) {
        return RU_OK; /* shares of different views: none are in force */
    }
    ru_json_open(j, "now", '[');
    rank = 0;
    for (uint32_t i = 0; i < w->facts.steps.n && rank < n; i++) {
        const ru_step_fact *s = &w->facts.steps.at[i];
        if (s->rank == rank && strcmp(s->job, first->job) == 0) {
            ru_json_i64(j, NULL, s->samples);
            rank++;
        }
    }
    ru_json_close(j);
    return RU_OK;
}

const ru_policy ru_policy_share = {
    .name = "share",
    .version = 2,
    .decides = "how many samples of each batch every worker computes",
    .source = "litz-2018",
    .in = &table,
    .plan_bytes = sizeof(ru_share_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_share,
    .check = check_share,
    .report = report_share,
    .derive = derive_share,
    .example = "# Four workers, one of them slow; the first steps ran with equal shares.\n"
               "batch: 128\n"
               "speed: [410, 395, 402, 130]  # samples per second, measured\n"
               "now: [32, 32, 32, 32]\n",
};
