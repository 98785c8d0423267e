/* rubato explain: what was decided in a run and why, predicted beside measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/crew/reassign_policy.h"
#include "tool/cmd.h"
#include "tool/explain/explain_app.h"
#include "tool/explain/explain_errors.h"
#include "tool/explain/explain_follow.h"
#include "tool/explain/explain_functions.h"
#include "tool/explain/explain_ops.h"
#include "tool/explain/explain_order.h"
#include "tool/explain/explain_pipe.h"
#include "tool/explain/explain_place.h"
#include "tool/explain/explain_pulled.h"
#include "tool/explain/explain_rounds.h"
#include "tool/explain/explain_sums.h"
#include "tool/explain/what_if.h"
#include "tool/plan/world_in.h"
#include "tool/serve/client.h"

enum { SUMS_SHOWN = 24 };

/* -- facts ----------------------------------------------------------------------------------------
 */

static ru_status show_steps(const ru_world *w, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    if (w->facts.steps.n == 0) {
        if (w->facts.requests.n == 0) {
            ru_tell_note(out, "steps_note", "no step was measured");
        }
        return RU_OK;
    }
    ru_table t = ru_table_in(arena);
    static const char *const cols[] = {"rank",    "workers", "samples", "count",
                                       "compute", "network", "input",   "wait"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cols); k++) {
        ru_table_col(&t, cols[k], RU_TABLE_RIGHT);
    }
    for (uint32_t i = 0; i < w->facts.steps.n; i++) {
        const ru_step_fact *s = &w->facts.steps.at[i];
        ru_table_i64(&t, s->rank);
        ru_table_i64(&t, s->workers);
        ru_table_i64(&t, s->samples);
        ru_table_i64(&t, s->took.count);
        ru_table_ns(&t, (int64_t)s->compute_ns);
        ru_table_ns(&t, (int64_t)s->network_ns);
        ru_table_ns(&t, (int64_t)s->input_ns);
        ru_table_ns(&t, (int64_t)s->wait_ns);
    }
    RU_TRY(ru_tell_table(out, "steps", "steps", &t, err));
    if (w->facts.steps.at[0].gradient_noise > 0) {
        ru_tell_f64(out, "gradient_noise_samples", w->facts.steps.at[0].gradient_noise);
        ru_text_putf(out->text,
                     "  gradient noise scale: %.3g samples (in a batch of so many each counts half "
                     "of one in a small batch)\n",
                     w->facts.steps.at[0].gradient_noise);
    }
    return RU_OK;
}

static ru_status show_requests(const ru_world *w, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    if (w->facts.requests.n == 0) {
        return RU_OK;
    }
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "model", RU_TABLE_LEFT);
    static const char *const cols[] = {"per s", "answered", "took", "batch", "batches", "served"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cols); k++) {
        ru_table_col(&t, cols[k], RU_TABLE_RIGHT);
    }
    for (uint32_t i = 0; i < w->facts.requests.n; i++) {
        const ru_request_fact *f = &w->facts.requests.at[i];
        ru_table_str(&t, f->model);
        ru_table_f64(&t, f->rate_per_s, 1);
        ru_table_i64(&t, f->took.count);
        ru_table_ns(&t, (int64_t)f->took.mean_ns);
        ru_table_i64(&t, f->batch);
        ru_table_i64(&t, f->served.count);
        ru_table_ns(&t, (int64_t)f->served.mean_ns);
    }
    return ru_tell_table(out, "requests", "requests", &t, err);
}

static ru_status show_sums(const ru_world *w, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    uint32_t n = w->facts.collectives.n;
    if (n == 0) {
        return RU_OK;
    }
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "op", RU_TABLE_LEFT);
    ru_table_col(&t, "algorithm", RU_TABLE_LEFT);
    ru_table_col(&t, "ranks", RU_TABLE_RIGHT);
    ru_table_col(&t, "size", RU_TABLE_RIGHT);
    ru_table_col(&t, "count", RU_TABLE_RIGHT);
    ru_table_col(&t, "mean", RU_TABLE_RIGHT);
    ru_table_col(&t, "predicted", RU_TABLE_RIGHT);
    for (uint32_t i = n > SUMS_SHOWN ? n - SUMS_SHOWN : 0; i < n; i++) {
        const ru_coll_fact *f = &w->facts.collectives.at[i];
        ru_table_str(&t, f->op);
        ru_table_str(&t, f->algo);
        ru_table_i64(&t, f->n_ranks);
        ru_table_bytes(&t, f->size_bytes);
        ru_table_i64(&t, f->took.count);
        ru_table_ns(&t, (int64_t)f->took.mean_ns);
        if (f->took.predicted_ns > 0) {
            ru_table_ns(&t, (int64_t)f->took.predicted_ns);
        } else {
            ru_table_absent(&t, "s");
        }
    }
    return ru_tell_table(out, "collectives", "collectives", &t, err);
}

/* Machines, when they differ in what matters to decisions or there are several. */
static ru_status show_hosts(const ru_world *w, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    const ru_cluster *c = &w->cluster;
    if (c->hosts.n < 2) {
        return RU_OK;
    }
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "host", RU_TABLE_LEFT);
    ru_table_col(&t, "tier", RU_TABLE_LEFT);
    ru_table_col(&t, "cores", RU_TABLE_RIGHT);
    ru_table_col(&t, "workers", RU_TABLE_RIGHT);
    ru_table_col(&t, "with a vote", RU_TABLE_RIGHT);
    for (uint32_t i = 0; i < c->hosts.n; i++) {
        const ru_cluster_host *h = &c->hosts.at[i];
        uint32_t workers = 0, votes = 0;
        for (uint32_t k = 0; k < c->devices.n; k++) {
            bool here = strcmp(c->devices.at[k].host, h->name) == 0;
            workers += here;
            votes += here && c->devices.at[k].votes;
        }
        ru_table_str(&t, h->name);
        ru_table_str(&t, h->tier == RU_HOST_TRANSIENT ? "transient" : "reliable");
        if (h->cores > 0) {
            ru_table_i64(&t, h->cores);
        } else {
            ru_table_none(&t);
        }
        ru_table_i64(&t, workers);
        ru_table_i64(&t, votes);
    }
    return ru_tell_table(out, "hosts", "hosts", &t, err);
}

static ru_status show_facts(const ru_world *w, const char *path, ru_arena *arena,
                            const ru_tell *out, ru_err *err)
{
    ru_predictor_error ops;
    ru_tell_i64(out, "host_count", w->cluster.hosts.n);
    ru_tell_open(out, "jobs", '[');
    for (uint32_t i = 0; i < w->jobs.n; i++) {
        const ru_world_job *j = &w->jobs.at[i];
        ru_tell_open(out, NULL, '{');
        ru_tell_str(out, "name", j->name);
        ru_tell_str(out, "model", j->model);
        ru_tell_i64(out, "batch_samples", j->batch);
        ru_tell_i64(out, "parameters", j->parameters);
        ru_tell_close(out);
        ru_text_putf(out->text, "job %s: %s, batch %lld, %lld parameters, %u host%s\n", j->name,
                     j->model, (long long)j->batch, (long long)j->parameters, w->cluster.hosts.n,
                     w->cluster.hosts.n == 1 ? "" : "s");
    }
    ru_tell_close(out);
    RU_TRY(show_hosts(w, arena, out, err));
    RU_TRY(show_steps(w, arena, out, err));
    RU_TRY(show_requests(w, arena, out, err));
    RU_TRY(rui_explain_ops(w, arena, out, &ops, err));
    RU_TRY(show_sums(w, arena, out, err));
    return rui_explain_errors(w, path, &ops, arena, out, err);
}

/* -- plans ----------------------------------------------------------------------------------------
 */

static const double *value_of(const ru_conf_pairs *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcmp(list->at[i].key, name) == 0) {
            return &list->at[i].value;
        }
    }
    return NULL;
}

static void cell(ru_table *t, const char *name, const double *v)
{
    char text[64], json[64];
    ru_text x = ru_text_into(text, sizeof text), y = ru_text_into(json, sizeof json);
    ru_json j = ru_json_into(&y);
    if (v == NULL) {
        ru_table_none(t);
        return;
    }
    ru_figure_put(name, *v, &x);
    ru_json_f64(&j, NULL, *v);
    ru_table_raw(t, text, json);
}

/* Figures that were measured, beside what the plan said when it was installed. */
static ru_status show_measured(const ru_world_plan *p, const char *key, ru_arena *arena,
                               const ru_tell *out, ru_err *err)
{
    if (p->measured.n == 0) {
        ru_tell_note(out, "measured_note", "this decision has no measurements");
        return RU_OK;
    }
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "figure", RU_TABLE_LEFT);
    ru_table_col(&t, "predicted", RU_TABLE_RIGHT);
    ru_table_col(&t, "measured", RU_TABLE_RIGHT);
    ru_table_col(&t, "error", RU_TABLE_RIGHT);
    for (uint32_t i = 0; i < p->measured.n; i++) {
        const char *name = p->measured.at[i].key;
        const double *said = value_of(&p->predicted, name), is = p->measured.at[i].value;
        char label[64];
        ru_text x = ru_text_into(label, sizeof label), y = ru_text_arena(arena);
        ru_json j = ru_json_into(&y);
        ru_figure_put_name(name, &x);
        ru_json_str(&j, NULL, name); /* with its unit */
        ru_table_raw(&t, label, y.cut ? "null" : y.p);
        cell(&t, name, said);
        cell(&t, name, &is);
        if (said != NULL && is != 0 && *said != 0) {
            ru_table_percent(&t, (*said - is) / is, 0);
        } else {
            ru_table_absent(&t, "share");
        }
    }
    return ru_tell_table(out, key, "predicted and measured", &t, err);
}

/* A plan that was replaced before anything happened has no measurements; NULL: none has. */
static const ru_world_plan *newest_measured(const ru_world *w, const char *policy)
{
    for (uint32_t i = w->plans.n; i-- > 0;) {
        if (strcmp(w->plans.at[i].policy, policy) == 0 && w->plans.at[i].measured.n > 0) {
            return &w->plans.at[i];
        }
    }
    return NULL;
}

static uint32_t times_planned(const ru_world *w, const char *policy)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->plans.n; i++) {
        n += strcmp(w->plans.at[i].policy, policy) == 0;
    }
    return n;
}

/* Workers of which the run has measured steps. */
static uint32_t workers_of(const ru_world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->facts.steps.n; i++) {
        n = w->facts.steps.at[i].workers > n ? w->facts.steps.at[i].workers : n;
    }
    return n;
}

/* A clock as the method predicts it from the workers' own times, which lack messages, beside the
 * mean of those that the run measured. */
static ru_status show_clock(const ru_world *w, uint32_t clocks, const ru_report *r, ru_arena *arena,
                            const ru_tell *out, ru_err *err)
{
    double sum = 0;
    for (uint32_t i = 0; i < w->facts.steps.n; i++) {
        sum += w->facts.steps.at[i].took.mean_ns * 1e-9;
    }
    const ru_conf_pair said = {"clock_s", r->candidates.at[0].cost / clocks};
    const ru_conf_pair is = {"clock_s", sum / w->facts.steps.n};
    const ru_world_plan p = {.predicted = {&said, 1}, .measured = {&is, 1}};
    return show_measured(&p, "measured_clock", arena, out, err);
}

/* After the report: was it installed, and what came of it? */
static ru_status show_installed(const ru_world *w, const ru_world_plan *plan, const ru_hash128 *id,
                                bool changed, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    char text[33];
    ru_hash128_text(*id, text);
    if (plan == NULL) {
        ru_tell_note(out, "installed_note",
                     "the run installed no such plan; the input follows from its facts");
        return RU_OK;
    }
    if (strcmp(text, plan->id) != 0) {
        ru_tell_str(out, "installed_id", plan->id);
        ru_tell_i64(out, "installed_version", plan->version);
        ru_tell_note(out, "installed_note", "%s; the installed plan was %s (version %u)",
                     changed ? "input changed by --if" : "another input or version of the policy",
                     plan->id, plan->version);
        return RU_OK;
    }
    uint32_t n = times_planned(w, plan->policy);
    ru_tell_str(out, "installed_id", plan->id);
    ru_tell_i64(out, "plans", n);
    ru_text_putf(out->text, "installed; %u plan%s of this policy in all\n", n, n == 1 ? "" : "s");
    const ru_world_plan *with = newest_measured(w, plan->policy);
    if (with != NULL && with != plan) {
        ru_tell_str(out, "measured_id", with->id);
        ru_text_putf(out->text, "measured of an earlier plan, %s\n", with->id);
    }
    return show_measured(with != NULL ? with : plan, "measured", arena, out, err);
}

/* Values of --if: those for the stages of a pipeline, or the others. */
static const char *const *sets_of(ru_cmd_in *in, const ru_policy *p, bool stages, uint32_t *n)
{
    uint32_t all;
    const char *const *sets = ru_cmd_texts(in, "if", &all);
    const char **some = RU_NEW(in->arena, const char *, all + 1);
    *n = 0;
    for (uint32_t i = 0; i < all && some != NULL; i++) {
        if ((p == &ru_policy_pipe && rui_explain_pipe_is(sets[i])) == stages) {
            some[(*n)++] = sets[i];
        }
    }
    return some;
}

/* What became of the stages. *shown: there are records of some. */
static ru_status explain_stages(ru_cmd_in *in, const void *input, const void *plan,
                                const ru_tell *out, bool *shown, ru_err *err)
{
    uint32_t n;
    const char *const *sets = sets_of(in, &ru_policy_pipe, true, &n);
    return rui_explain_pipe(in->args[0], input, plan, sets, n, in->arena, out, shown, err);
}

static ru_status show_report(ru_policy_answer *a, const ru_tell *out, ru_err *err)
{
    char id[33];
    ru_hash128_text(a->head.id, id);
    ru_tell_str(out, "id", id);
    ru_tell_i64(out, "version", a->head.version);
    if (a->report.figures.n > 0) { /* what the costs of candidates are, and their unit */
        ru_tell_str(out, "objective", a->report.figures.at[0].name);
    }
    a->report.unit_keys = true;
    RU_TRY(out->json != NULL ? ru_report_json(&a->report, out->json, err) : RU_OK);
    return ru_report_print(&a->report, &a->head, out->text, err);
}

static ru_status explain(ru_cmd_in *in, const ru_world *w, const ru_conf *job, const ru_policy *p,
                         const ru_tell *out, ru_err *err)
{
    ru_conf *c;
    const ru_world_plan *plan;
    const char *const *method = NULL;
    uint32_t n_sets, n_method = 0;
    bool shown = false;
    const char *const *sets = sets_of(in, p, false, &n_sets);
    ru_text_putf(out->text, "\n-- %s: %s\n", p->name, p->decides);
    ru_tell_str(out, "policy", p->name);
    ru_tell_str(out, "decides", p->decides);
    if (p == &ru_policy_pipe && n_sets == 0 && ru_world_plan_newest(w, p->name) == NULL) {
        RU_TRY(explain_stages(in, NULL, NULL, out, &shown, err));
        if (shown) {
            ru_tell_note(out, "note",
                         "the job names its cut: nothing was predicted before it began");
            return RU_OK;
        }
    }
    if (p == &ru_policy_place && n_sets == 0 && ru_world_plan_newest(w, p->name) == NULL) {
        RU_TRY(rui_explain_place(in->args[0], NULL, NULL, in->arena, out, &shown, err));
        if (shown) {
            ru_tell_note(out, "note",
                         "the job names its devices: nothing was predicted before it began");
            return RU_OK;
        }
    }
    if (job != NULL && ru_world_plan_newest(w, p->name) == NULL &&
        rui_explain_app_none(job, w, p, out)) {
        method = rui_explain_app_reassign(job, p, workers_of(w), in->arena, &n_method);
        if (n_method == 0 && n_sets == 0) {
            return RU_OK;
        }
    }
    RU_TRY(ru_conf_new(p->in, in->arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(rui_world_question(w, in->args[0], p, c, in->arena, &plan, err));
    for (uint32_t i = 0; i < n_method; i++) {
        RU_TRY(ru_conf_add_set(c, method[i], err));
    }
    for (uint32_t i = 0; i < n_sets; i++) {
        RU_TRY(ru_conf_add_set(c, sets[i], err));
    }
    void *input = ru_arena_zalloc(in->arena, p->in->size_bytes, 64);
    RU_TRY(ru_conf_apply(c, input, err));
    ru_policy_tools tools = {in->arena, in->arena, NULL};
    ru_policy_answer a;
    RU_TRY(ru_policy_run(p, input, &tools, &a, err));
    RU_TRY(show_report(&a, out, err));
    if (p == &ru_policy_sums) {
        RU_TRY(rui_explain_sums(in->args[0], input, a.plan, in->arena, out, err));
    } else if (p == &ru_policy_order) {
        RU_TRY(rui_explain_order(input, a.plan, in->arena, out, err));
        RU_TRY(rui_explain_pulled(w, in->arena, out, err));
    } else if (p == &ru_policy_pipe) {
        RU_TRY(explain_stages(in, input, a.plan, out, &shown, err));
    } else if (p == &ru_policy_place) {
        RU_TRY(rui_explain_place(in->args[0], input, a.plan, in->arena, out, &shown, err));
    }
    RU_TRY(show_installed(w, plan, &a.head.id, n_sets > 0, in->arena, out, err));
    return n_method > 0 && n_sets == 0
               ? show_clock(w, ((const ru_reassign_policy_in *)input)->history.n, &a.report,
                            in->arena, out, err)
               : RU_OK;
}

/* A request of a server, by its id or a quantile. */
static ru_status explain_request(ru_cmd_in *in, ru_err *err)
{
    char *text;
    int64_t n;
    bool json = ru_cmd_flag(in, "json");
    const char *page =
        ru_arena_printf(in->arena, "/v2/rubato/explain/%s%s", in->args[1], json ? "/json" : "");
    ru_status st = page != NULL ? rui_served_get(in->args[0], page, in->arena, &text, &n, err)
                                : RU_FAIL(err, RU_E_MEM, "not enough memory");
    if (st == RU_E_MISSING && strcmp(in->args[1], "gate") == 0) {
        return RU_FAIL(err, st,
                       "no training is beside %s; `rubato train JOB --beside %s` starts one",
                       in->args[0], in->args[0]);
    }
    if (st == RU_E_MISSING) {
        return RU_FAIL(err, st,
                       "%s remembers no request '%s' (and it is no policy); name the id of one of "
                       "its last 1024 requests, or a quantile of their times such as p99",
                       in->args[0], in->args[1]);
    }
    RU_TRY(st);
    fputs(text, stdout);
    fputs(json ? "\n" : "", stdout);
    return RU_OK;
}

/* A policy's decision, or all that the run has. */
static ru_status explain_run(ru_cmd_in *in, const ru_world *w, const ru_policy *one,
                             const ru_tell *out, ru_err *err)
{
    uint32_t n;
    ru_conf *job;
    RU_TRY(show_facts(w, in->args[0], in->arena, out, err));
    RU_TRY(rui_explain_app_open(in->args[0], in->arena, &job, err));
    if (one == NULL) {
        RU_TRY(rui_explain_rounds(in->args[0], in->arena, out, err));
        RU_TRY(rui_explain_follow(in->args[0], in->arena, out, err));
        RU_TRY(rui_explain_functions(in->args[0], in->arena, out, err));
    }
    if (job != NULL && one == NULL) {
        RU_TRY(rui_explain_app_methods(job, w, in->arena, out, err));
    }
    const ru_policy *const *all = ru_policies(&n);
    ru_tell_open(out, "decisions", '[');
    for (uint32_t i = 0; i < n; i++) {
        if (one != NULL ? all[i] == one : ru_world_plan_newest(w, all[i]->name) != NULL) {
            ru_tell_open(out, NULL, '{');
            RU_TRY(explain(in, w, job, all[i], out, err));
            ru_tell_close(out);
        }
    }
    ru_tell_close(out);
    if (w->plans.n == 0 && one == NULL) {
        ru_tell_note(out, "decisions_note", "no plan was installed");
    }
    return RU_OK;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    ru_world w;
    ru_text text = ru_text_arena(in->arena), typed = ru_text_arena(in->arena);
    ru_json json = ru_json_into(&typed);
    const ru_tell out = {.text = &text, .json = ru_cmd_flag(in, "json") ? &json : NULL};
    const ru_policy *one = NULL;
    uint32_t n_sets;
    const char *const *sets = ru_cmd_texts(in, "if", &n_sets);
    if (in->n_args > 1 && rui_served_is_address(in->args[0]) &&
        ru_policy_find(in->args[1]) == NULL) {
        return explain_request(in, err);
    }
    if (in->n_args > 1 && rui_served_is_address(in->args[0]) &&
        (strcmp(in->args[1], "batch") == 0 || strcmp(in->args[1], "gate") == 0 ||
         strcmp(in->args[1], "route") == 0)) {
        ru_status st = explain_request(in, err);
        if (st != RU_E_MISSING ||
            in->args[1][0] != 'b') { /* else its batches are computed by itself */
            return st;
        }
    }
    if (in->n_args > 1) {
        RU_TRY(rui_policy_named(in->args[1], &one, err));
    }
    RU_TRY(rui_world_open(in->args[0], in->arena, &w, err));
    ru_tell_open(&out, NULL, '{');
    ru_tell_str(&out, "schema", "rubato.explain/1");
    RU_TRY(one == NULL && n_sets > 0 ? rui_what_if(&w, sets, n_sets, in->arena, &out, err)
                                     : explain_run(in, &w, one, &out, err));
    ru_tell_close(&out);
    if (text.cut || typed.cut) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory to explain %s", in->args[0]);
    }
    fputs(out.json != NULL ? typed.p : text.p, stdout);
    fputs(out.json != NULL ? "\n" : "", stdout);
    return RU_OK;
}

static const ru_opt opts[] = {
    RU_OPT(TEXTS, "if", "KEY=VALUE",
           "with a policy: decide again with this key of the input changed. Without: predict the "
           "step with changed costs: network=10Gbit or x0.5, workers=4, per_host=1, device=x2 or "
           "1:x0.5 (worker 1), quota=x2 or 1:x0.5, batch=256, collective=direct, storage=x0.5. "
           "With pipe: network=10Gbit or x0.5, worker3=x0.5, and the step of these stages then"),
    RU_OPT(FLAG, "json", NULL, "print one JSON object: figures as numbers, keys with their units"),
};

static const ru_example examples[] = {
    {"rubato explain runs/digits-1", "show every decision of a run"},
    {"rubato explain runs/digits-1 coll", "show one decision"},
    {"rubato explain world.json share --if gain_min=0", "input changed by --if"},
    {"rubato explain runs/digits-1 --json", "the same as typed fields, for programs"},
    {"rubato explain runs/digits-1 pipe --if worker2=x0.5",
     "the step of a pipeline if worker 2 had half the speed"},
    {"rubato explain 127.0.0.1:8000 p99",
     "where a served request at this quantile spent its time, and why its batch left"},
    {"rubato explain 127.0.0.1:8000 batch",
     "batches on functions: predicted beside measured, and what was spent"},
    {"rubato explain 127.0.0.1:8000 route",
     "requests routed by size to buffers before functions: the same, by size"},
    {"rubato explain 127.0.0.1:8000 gate",
     "trainings on the cores of a server (`rubato train --beside`)"},
    {"rubato explain runs/digits-1 --if network=10Gbit --if workers=4",
     "predict the step on another network with four workers"},
};

const ru_cmd rui_cmd_explain = {
    .name = "explain",
    .summary = "show the decisions of a run, their reasons and their measured results",
    .about =
        "RUN is the folder of a run or a world file (`rubato capture`). For each decision the "
        "output shows the facts, the candidates with their predicted cost, the winner, and "
        "predicted beside measured values. Rubato makes the plan again from the recorded "
        "input; an equal id shows that this program decides the same. With the address of a "
        "server (`rubato serve`; its token in RUBATO_TOKEN) and the id of a request or a quantile, "
        "the output shows how long that request was parsed, buffered, queued and computed. Of a "
        "job with an app it "
        "shows the methods that its keys choose, and of one that plans nothing it says so.",
    RU_CMD_ARGS("RUN|ADDRESS [POLICY|REQUEST|pQ]", 1, 2),
    RU_CMD_LISTS(opts, examples),
    .exits = "2 there is no such policy|66 there is no such run, or it lacks the facts|78 the "
             "world file is not valid",
    .run = run,
};
