/* The row of `reassign` in plan/row/policy.def: its input as a file, its report. */
#include "plan/crew/reassign_policy.h"

#include <math.h>
#include <string.h>

#include "plan/crew/reassign.h"
#include "plan/row/policy.h"

enum { SHOWN_MAX = 40 };

static const ru_conf_field clock_fields[] = {
    RU_ROW(F64_LIST, ru_reassign_policy_clock, took_s, NULL,
           "time that each worker needed for its own items, without waiting [s]", RU_IN(1e-9, 1e6)),
};
static const ru_conf_table clock_table =
    RU_TABLE("clock", ru_reassign_policy_clock, clock_fields, NULL);

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_reassign_policy_in *in = section;
    const ru_reassign_policy_clock *c = in->history.at;
    const ru_reassign_in *q = &in->q;
    uint32_t n = in->history.n > 0 ? c[0].took_s.n : 0;
    if (n < 1 || n > RU_REASSIGN_WORKERS_MAX || in->history.n > 1000000) {
        return RU_FAIL(err, RU_E_ARG,
                       "'history' has %u clocks of %u workers; expected 1 to 1000000 clocks and 1 "
                       "to %d workers",
                       in->history.n, n, RU_REASSIGN_WORKERS_MAX);
    }
    for (uint32_t i = 0; i < in->history.n; i++) {
        if (c[i].took_s.n != n) {
            return RU_FAIL(err, RU_E_ARG,
                           "clock %u of 'history' has %u workers, but the first clock has %u", i,
                           c[i].took_s.n, n);
        }
    }
    if (q->n_machine != 0 && q->n_machine != n) {
        return RU_FAIL(err, RU_E_ARG, "'machines' names %u workers, but 'history' has %u",
                       q->n_machine, n);
    }
    if (q->backup >= n && q->backup > 0) {
        return RU_FAIL(err, RU_E_ARG, "'backup' leaves out all %u workers", n);
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, ru_reassign_policy_in, history, NULL, "measured clocks, the oldest first",
           .table = &clock_table),
    RU_ROW_AS("machines", I64_LIST, ru_reassign_in, machine, "[]",
              "machine of each worker; helpers must be on other machines; empty: each worker has a "
              "machine of its own",
              RU_IN(0, 4294967294.0)),
    RU_ROW(U32, ru_reassign_in, items, "1000", "number of items of a worker in a clock",
           RU_IN(1, RU_REASSIGN_ITEMS_MAX)),
    RU_ROW(U32, ru_reassign_in, group_max, "0",
           "largest number of helpers of a worker, limited by memory; 0: the default of the method",
           RU_IN(0, RU_REASSIGN_GROUP_MAX)),
    RU_ROW(F64, ru_reassign_in, tail, "0.75",
           "fraction of a worker's items, at the end of its list, that its helpers hold",
           RU_IN(0, 1)),
    RU_ROW(U32, ru_reassign_in, slack_max, "1",
           "number of clocks that a worker may be ahead of the slowest", RU_IN(0, 1000)),
    RU_ROW(U32, ru_reassign_in, backup, "0",
           "method backup: number of workers for which a clock does not wait; 0: the best number "
           "for the history"),
    RU_ROW_AS("rtt", TIME, ru_reassign_in, rtt_ns, "1ms", "measured round-trip time of a message",
              RU_IN(0, 1e15)),
    RU_ROW(CHOICE, ru_reassign_in, method, "sticky",
           "sticky: Rubato's; flexrr: the settings of the paper; slices: slices with a barrier; "
           "steal: workers that have finished request items; bsp: barrier only; ssp1, ssp3: "
           "bounded staleness 1 and 3; static: fixed assignment from the history; backup: a "
           "clock ends without the slowest workers",
           .choices = "sticky|flexrr|slices|steal|bsp|ssp1|ssp3|static|backup"),
};

static const ru_conf_table table =
    RU_TABLE("reassign", ru_reassign_policy_in, fields,
             "workers of a clocked job and how fast they were", .check = check_in);

static ru_status inner(const ru_reassign_policy_in *in, ru_arena *a, ru_reassign_in *out,
                       ru_err *err)
{
    uint32_t n = in->history.at[0].took_s.n;
    double *took = RU_NEW(a, double, (int64_t)in->history.n *n);
    if (took == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", n);
    }
    for (uint32_t i = 0; i < in->history.n; i++) {
        memcpy(took + (uint64_t)i * n, in->history.at[i].took_s.at, n * sizeof *took);
    }
    *out = in->q;
    out->n = n;
    out->clocks = in->history.n;
    out->took = took;
    return RU_OK;
}

static ru_status plan_reassign(const void *in, const ru_policy_tools *tools, void *plan,
                               ru_err *err)
{
    ru_reassign_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_reassign(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_reassign(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_reassign_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_reassign_check(&q, plan, scratch, err);
}

static void show_grants(const ru_reassign_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(r, "boundaries", ">worker >next_s <gives_to");
    uint32_t shown = 0, all = 0;
    for (uint32_t w = 0; w < p->n; w++) {
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        ru_text text = ru_text_arena(r->arena);
        for (uint32_t k = 0; k < p->rules.group; k++) {
            uint64_t e = (uint64_t)w * p->rules.group + k;
            if (p->grant[e] > 0) {
                ru_text_putf(&text, "%s%u items to %u", text.n > 0 ? ", " : "", p->grant[e],
                             p->helper[e]);
            }
        }
        bool gives = text.n > 0;
        all += gives ? 1 : 0;
        if (gives && shown < SHOWN_MAX) {
            shown++;
            ru_table_i64(t, w);
            ru_table_f64(t, p->next_s[w], 4);
            ru_table_str(t, text.p);
        } else {
            ru_arena_rewind(r->arena, mark);
        }
    }
    if (all > shown) {
        ru_report_assume(r, "%u more workers that hand over items are not shown", all - shown);
    }
}

static void show_rules(const ru_reassign_rules *q, ru_report *r)
{
    if (q->push && q->trigger_ppm < 1000000) {
        ru_report_answer(r,
                         "workers that are %g %% of a clock behind one of their %u helpers hand it "
                         "slices of %g to %g %%",
                         (double)q->trigger_ppm * 1e-4, q->group, (double)q->first_ppm * 1e-4,
                         (double)q->next_ppm * 1e-4);
        if (q->behind_ppm > 0) {
            ru_report_answer(r,
                             "a worker that is not %g %% behind the mean of its helpers hands "
                             "nothing to those that work",
                             (double)q->behind_ppm * 1e-4);
        }
    } else if (q->pull) {
        ru_report_answer(r, "a worker that has finished asks one of those it may help for half of "
                            "what is left");
    } else {
        ru_report_answer(r, "no items move between workers during a clock");
    }
    if (q->slack > 0) {
        ru_report_answer(r, "a worker may be %u clock%s ahead of the slowest", q->slack,
                         q->slack > 1 ? "s" : "");
    } else if (q->backup > 0) {
        ru_report_answer(r, "a clock ends without its last %u workers", q->backup);
    } else {
        ru_report_answer(r, "all workers finish a clock before the next one begins");
    }
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_reassign_in *s = v->in; /* the first of the file's fields */
    const ru_reassign_plan *p = v->won, *other = v->plan;
    const ru_reassign_rules *rules = &other->rules;
    double took = (double)other->history_ns, ideal = (double)other->ideal_ns;
    const char *why = rules->slack > s->slack_max ? ": staler than 'slack_max'"
                      : rules->backup > 0         ? ": work of every clock is lost"
                      : rules->slack > p->rules.slack && took < (double)p->history_ns
                          ? ": staler for less than 1 %"
                          : NULL;
    ru_rival_is(v, took * 1e-9, why == NULL, "%.3g times the ideal%s", took / ideal,
                why != NULL ? why : "");
    return RU_OK;
}

#define RULE(type_, field_) RU_DECISION(type_, ru_reassign_plan, rules.field_, #field_)
static const ru_report_row rows[] = {
    RU_FIGURE(NS, ru_reassign_plan, history_ns, "history_s"),
    RU_FIGURE(NS, ru_reassign_plan, ideal_ns, "ideal_s"),
    RU_FIGURE(NS, ru_reassign_plan, clock_ns, "next_clock_s"),
    RU_FIGURE(NS, ru_reassign_plan, bound_ns, "next_clock_bound_s"),
    RU_FIGURE(F64, ru_reassign_plan, stays, "differences_that_stay"),
    RULE(BOOL, push),
    RULE(BOOL, pull),
    RULE(U32, slack),
    RULE(U32, backup),
    RULE(U32, group),
    RULE(I64, trigger_ppm),
    RULE(I64, idle_ppm),
    RULE(I64, behind_ppm),
    RULE(I64, first_ppm),
    RULE(I64, next_ppm),
    RULE(I64, least_ppm),
    RULE(I64, report_ppm),
    RULE(I64, grain_ppm),
    RU_DECISION(U32, ru_reassign_plan, helper, "helpers",
                RU_LISTS(ru_reassign_plan, n, rules.group)),
    RU_DECISION(U32, ru_reassign_plan, grant, "grants_items",
                RU_LISTS(ru_reassign_plan, n, rules.group)),
    RU_DECISION(F64, ru_reassign_plan, next_s, "next_s", RU_LIST(ru_reassign_plan, n)),
};

static ru_status report_reassign(const void *in, const void *plan, const ru_policy_tools *tools,
                                 ru_report *r, ru_err *err)
{
    const ru_reassign_plan *p = plan;
    show_rules(&p->rules, r);
    show_grants(p, r);
    RU_TRY(ru_policy_rivals(&ru_policy_reassign, in, plan, tools, judge, r, err));
    ru_report_candidate(r, "ideal", (double)p->ideal_ns * 1e-9, false,
                        "bound: all work can move freely at any time");
    ru_report_assume(
        r, "differences between workers persist from clock to clock as much as in the history");
    ru_report_assume(r, "servers and links are fast enough; only workers can be slow");
    ru_report_trigger(r, "next_clock_s", 0.1);
    return RU_OK;
}

/* The record of the first job with the smallest rank from `rank` on, which then is behind it; NULL:
 * there is none. Workers of a job with an app count from 1, one that left has no record, and those
 * that joined by hand stand in any order. */
static const ru_step_fact *next_worker(const ru_world *w, uint32_t *rank)
{
    const ru_step_fact *next = NULL;
    for (uint32_t i = 0; i < w->facts.steps.n; i++) {
        const ru_step_fact *s = &w->facts.steps.at[i];
        if (s->rank >= *rank && strcmp(s->job, w->facts.steps.at[0].job) == 0 && s->samples > 0 &&
            s->compute_ns > 0 && (next == NULL || s->rank < next->rank)) {
            next = s;
        }
    }
    *rank = next != NULL ? next->rank + 1 : *rank;
    return next;
}

/* Seconds that every worker of the first job needs for the mean number of samples. A mean over many
 * steps has few accidents left: it stands for two equal clocks. */
static ru_status derive_reassign(const ru_world *w, ru_arena *scratch, ru_json *j, ru_err *err)
{
    (void)scratch;
    const ru_step_fact *s;
    uint32_t n = 0, rank = 0;
    int64_t samples = 0, least = INT64_MAX;
    while ((s = next_worker(w, &rank)) != NULL) {
        n++;
        samples += s->samples;
        least = s->took.count < least ? s->took.count : least;
    }
    if (n == 0) {
        return RU_FAIL(err, RU_E_MISSING,
                       "facts.steps must hold a record with 'samples' and 'compute_ns' for each "
                       "worker of a job");
    }
    int64_t items = samples / n > 0 ? samples / n : 1;
    ru_json_i64(j, "items", items < RU_REASSIGN_ITEMS_MAX ? items : RU_REASSIGN_ITEMS_MAX);
    ru_json_open(j, "history", '[');
    for (uint32_t clock = 0; clock < (least > 1 ? 2u : 1u); clock++) {
        ru_json_open(j, NULL, '{');
        ru_json_open(j, "took_s", '[');
        rank = 0;
        while ((s = next_worker(w, &rank)) != NULL) {
            ru_json_f64(j, NULL, s->compute_ns * 1e-9 * (double)items / (double)s->samples);
        }
        ru_json_close(j);
        ru_json_close(j);
    }
    ru_json_close(j);
    return RU_OK;
}

const ru_policy ru_policy_reassign = {
    .name = "reassign",
    .version = 3,
    .decides = "who helps whom when workers fall behind, how much, and how stale parameters may be",
    .source = "flexrr-2016",
    .in = &table,
    .plan_bytes = sizeof(ru_reassign_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_reassign,
    .check = check_reassign,
    .report = report_reassign,
    .derive = derive_reassign,
    .example =
        "# Eight workers, two to a machine. Worker 5 is slow for good, others now and then.\n"
        "machines: [0, 0, 1, 1, 2, 2, 3, 3]\n"
        "items: 2000\n"
        "rtt: 2ms\n"
        "history:\n"
        "  - took_s: [1.02, 0.98, 1.31, 1.00, 0.99, 1.95, 1.01, 1.00]\n"
        "  - took_s: [1.00, 1.44, 1.02, 0.99, 1.00, 2.02, 1.03, 0.98]\n"
        "  - took_s: [0.99, 1.01, 1.00, 1.02, 1.27, 1.98, 1.00, 1.01]\n"
        "  - took_s: [1.01, 1.00, 0.98, 1.01, 1.00, 2.01, 1.52, 1.00]\n",
};
