/* The leader's plan of sums: which gradients are summed together, from measured ops and sums.
 *
 *   compute thread, after a step   ops and costs as measured --policy `sums`--> table
 *   loop thread                    the table --> train/elastic/elastic.h, in force with a new view
 *
 * A view begins by the rule of train/elastic/elastic_table.c. When a few steps of it are measured
 * the plan is made; it is made again when steps take another time than it said, or when a cost that
 * it rests on moved: of computing, or of a byte on the network, as the sums of the view tell. The
 * rule stays where the plan gains little. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "exec/update.h"
#include "plan/net/sums_live.h"
#include "train/worker/worker_impl.h"

/* Of a view, before a plan is made: fewer than until shares may change; between two looks at costs.
 */
enum { MEASURED_STEPS = 10, LOOK_STEPS = 20 };

/* Collectives are measured again when steps take another time than any plan by what is known of the
 * network: about so long (elastic_probe.c), and as small a part of the time as planning. */
#define MEASURING_NS 5e8

/* Step times tremble: a plan may cost so much of the time until the next one, which each doubles
 * while the same members train. */
#define PLANNING_PART 0.01
enum { PLANS_MAX = 16 };

ru_status rui_plan_open(rui_worker *w, ru_err *err)
{
    w->plan.parts = RU_NEW(w->arena, ru_elastic_part, RU_ELASTIC_BUCKETS_MAX);
    return w->plan.parts != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a worker");
}

void rui_plan_view_told(rui_worker *w, const ru_elastic_sums *s, const ru_elastic_facts *f)
{
    rui_plan *p = &w->plan;
    ru_mutex_lock(&w->lock);
    p->known = s->costs != NULL && !s->local && s->n_members > 1;
    if (s->epoch != p->told.epoch) {
        ru_sums_net_view(&p->net, s->measured != p->told.measured);
    }
    p->told = (rui_plan_view){.epoch = s->epoch,
                              .n_ranks = s->n_members,
                              .depth = f->depth,
                              .follows = s->follows,
                              .measured = s->measured,
                              .aside_said_bytes = f->aside_said_bytes,
                              .aside_bytes = f->aside_bytes};
    (void)snprintf(p->told.why, sizeof p->told.why, "%s", f->why != NULL ? f->why : "");
    if (p->known) {
        memcpy(p->costs, s->costs, sizeof p->costs);
    }
    ru_mutex_unlock(&w->lock);
}

void rui_plan_committed(rui_worker *w)
{
    ru_elastic_facts f;
    ru_elastic_facts_get(w->elastic, &f);
    ru_mutex_lock(&w->lock);
    ru_sums_net_step(&w->plan.net, f.step_off, f.sums_off);
    w->plan.told.server_said_bytes = f.server_said_bytes;
    w->plan.told.server_bytes = f.server_bytes;
    ru_mutex_unlock(&w->lock);
}

/* Gradients by their numbers; `made` never falls: a bucket of neighbours is ready with its last. */
static ru_status grads_of(const rui_worker *w, ru_arena *arena, ru_sums_grad **out, ru_err *err)
{
    uint32_t n = w->list.n_tensors, made = 0;
    ru_sums_grad *at = RU_NEW(arena, ru_sums_grad, n);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u gradients", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        const ru_exe_grad *g = &w->now->tensors[k];
        made = g->made > made ? g->made : made;
        at[k] = (ru_sums_grad){.name = g->param != NULL ? g->param : "loss and statistics",
                               .size_bytes = w->list.tensor_bytes[k],
                               .made = made,
                               .used = g->used};
    }
    *out = at;
    return RU_OK;
}

/* What the policy is asked: the list of steps as it ran so far, and the costs that the view was
 * begun with. */
static ru_status ask(const rui_worker *w, ru_sums_method method, ru_sums_grad **grads,
                     ru_arena *arena, ru_sums_policy_in *in, ru_err *err)
{
    ru_op_fact *ops;
    uint32_t n, first = UINT32_MAX;
    RU_TRY(ru_exe_ops(w->t.exe, 0, arena, &ops, &n, err));
    RU_TRY(grads_of(w, arena, grads, err));
    double *step_ns = RU_NEW(arena, double, n);
    if (step_ns == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u steps", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        step_ns[k] = ops[k].took.count > 0 ? ops[k].took.mean_ns : 0;
    }
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        uint32_t read = w->now->tensors[k].read;
        first = read < first ? read : first;
    }
    ru_coll_cost costs[RU_COLL_ALGOS];
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        costs[a] = ru_cost_coll_slower(&w->plan.costs_now[a], RU_COLL_ALL_REDUCE, (ru_coll_algo)a,
                                       w->plan.view.n_ranks, w->plan.slower);
    }
    const ru_sums_facts f = {.step_ns = step_ns,
                             .n_steps = n,
                             .update_from = first < n ? first : n,
                             .grads = *grads,
                             .n_grads = w->list.n_tensors,
                             .n_ranks = w->plan.view.n_ranks,
                             .costs = costs,
                             .barrier = w->plan.view.depth < 2 && !w->plan.held,
                             .why = w->plan.view.why,
                             .deterministic = w->opt->deterministic,
                             .method = method};
    return ru_sums_policy_in_of(&f, arena, in, err);
}

static ru_status table_of(const rui_worker *w, const ru_sums_in *q, const ru_sums_plan *plan,
                          const ru_sums_grad *grads, ru_arena *arena, ru_elastic_part **out,
                          uint32_t *n, ru_err *err)
{
    ru_sums_part *parts;
    uint32_t n_parts;
    RU_TRY(ru_sums_table(q, plan, grads, w->list.n_tensors, arena, &parts, &n_parts, err));
    for (uint32_t k = 0; k < n_parts && !w->plan.view.follows; k++) {
        parts[k].only = 0; /* another one is chosen whatever the plan says */
    }
    return ru_sums_cuts(parts, n_parts, w->list.tensor_bytes, RU_ELASTIC_CUTS_MAX, arena, out, n,
                        err);
}

/* Hand the table to the loop thread. */
static void hand_over(rui_worker *w, const ru_elastic_part *parts, uint32_t n, uint32_t flight,
                      const char *barrier)
{
    rui_plan *p = &w->plan;
    ru_mutex_lock(&w->lock);
    memcpy(p->parts, parts, n * sizeof *parts);
    p->n_parts = n;
    p->flight = flight;
    p->barrier = barrier;
    ru_mutex_unlock(&w->lock);
    ru_shell_say(&w->shell, &w->line, &(rui_event){.kind = RUI_EVENT_TABLE});
}

static bool in_force(const rui_worker *w, const ru_elastic_part *parts, uint32_t n)
{
    bool same = n == w->buckets.n;
    for (uint32_t k = 0; same && k < n; k++) {
        const ru_elastic_part *a = &parts[k], *b = &w->buckets.at[k];
        same = a->first == b->first && a->n == b->n && a->offset_bytes == b->offset_bytes &&
               a->size_bytes == b->size_bytes && a->only == b->only;
    }
    return same;
}

/* Played with the same question, what would a step take by the rule? */
static ru_status rule_ns(const ru_sums_in *q, ru_arena *arena, int64_t *ns, ru_err *err)
{
    ru_sums_in by_rule = *q;
    ru_sums_plan plan;
    by_rule.method = RU_SUMS_RULE;
    RU_TRY(ru_plan_sums(&by_rule, arena, arena, &plan, err));
    *ns = plan.step_ns;
    return RU_OK;
}

/* A plan that changes something tells why it was made. The first one follows no other. */
static void say_again(const rui_worker *w, ru_sums_again why)
{
    if (why != RU_SUMS_STANDS) {
        ru_run_report_log(w->t.report, "sums are planned again: %s", ru_sums_again_text(why));
    }
}

/* Why steps wait, a sentence for all members; the report has the figure. */
static const char *barrier_of(const rui_worker *w, const ru_sums_plan *plan, bool hold)
{
    if (!hold) {
        return NULL;
    }
    if (w->t.job->train.sums != RU_SUMS_CARAMEL) {
        return "the method of train.sums has it so";
    }
    double gain = plan->free_ns > 0 ? 1 - (double)plan->free_ns / (double)plan->held_ns : 0;
    ru_run_report_log(w->t.report,
                      "each step waits for all sums: else it would be %.1f %% shorter, less than "
                      "2 %%",
                      100 * gain);
    return "a step that does not wait would be less than 2 % shorter";
}

/* Steps take another time, and the plan is the same by all that is known: the network may have
 * changed before the first steps of the view. */
static bool measures_again(rui_worker *w, ru_sums_again why)
{
    rui_plan *p = &w->plan;
    bool differs = why == RU_SUMS_LONGER || why == RU_SUMS_SHORTER;
    double since_ns = (double)ru_time_since(w->at.updated, p->measured);
    if (!differs || since_ns < MEASURING_NS / PLANNING_PART) {
        return false;
    }
    ru_run_report_log(w->t.report, "collectives are measured again: %s", ru_sums_again_text(why));
    ru_shell_say(&w->shell, &w->line, &(rui_event){.kind = RUI_EVENT_MEASURE});
    return true;
}

/* The sums in force stay. Once collectives were measured twice, what steps take beside the plan is
 * an error of the model: that alone must not begin a view every 50 steps. */
static void stands(rui_worker *w, ru_sums_again why)
{
    rui_plan *p = &w->plan;
    if (!measures_again(w, why) && p->trusted) {
        p->watch = ru_sums_watch_of(p->mean_ns, &p->watch.costs);
    }
}

/* What two steps under way take more than one: gradients that outlive their step, what taking
 * updates back needs, and what sums of two steps put aside. By the lives of buffers and the
 * schedules of sums, and as they are placed. Told when a plan is made, and of the view that it
 * began. */
static void tell_memory(const rui_worker *w, const ru_policy *policy)
{
    ru_exe_stats s;
    if (!w->now->two) {
        return;
    }
    ru_exe_stats_get(w->now->exe, &s);
    const rui_plan_view *v = &w->plan.view;
    int64_t back = ru_exe_early_bytes(w->now->exe) - s.alone_bound_bytes;
    ru_decisions_measured(w->t.decisions, policy, "memory_of_two_steps_bytes",
                          (double)(s.arena_bound_bytes + back + v->aside_said_bytes),
                          (double)(s.arena_bytes + back + v->aside_bytes));
}

static ru_status make(rui_worker *w, ru_sums_again why, ru_arena *arena, ru_err *err)
{
    rui_plan *p = &w->plan;
    ru_sums_policy_in in;
    ru_sums_grad *grads = NULL;
    ru_sums_in q;
    ru_sums_plan plan;
    ru_elastic_part *parts = NULL;
    uint32_t n = 0;
    int64_t ruled_ns;
    ru_sums_method method = (ru_sums_method)w->t.job->train.sums;
    RU_TRY(ask(w, method, &grads, arena, &in, err));
    RU_TRY(ru_sums_in_of(&in, arena, &q, err));
    RU_TRY(ru_plan_sums(&q, arena, arena, &plan, err));
    RU_TRY(ru_plan_sums_check(&q, &plan, arena, err));
    RU_TRY(rule_ns(&q, arena, &ruled_ns, err));
    RU_TRY(table_of(w, &q, &plan, grads, arena, &parts, &n, err));
    const ru_sums_costs costs = ru_sums_costs_of(&q);
    p->watch = ru_sums_watch_of((double)plan.step_ns, &costs);
    p->watching = true;
    bool hold = plan.barrier && !q.barrier, other = hold != p->held;
    bool flies = !p->planned || p->flight == plan.depth;
    if (in_force(w, parts, n) && flies && !other) {
        stands(w, why);
        return RU_OK;
    }
    double gain = 1 - (double)plan.step_ns / (double)ruled_ns;
    if (method == RU_SUMS_CARAMEL && !p->planned && !other && gain < RU_SUMS_GAIN_MIN) {
        if (why == RU_SUMS_STANDS) {
            ru_run_report_log(
                w->t.report,
                "sums by rule: the best plan makes a step %.1f %% shorter, less than 2 %%",
                100 * gain);
        }
        stands(w, why);
        return RU_OK;
    }
    say_again(w, why);
    ru_run_report_log(
        w->t.report, "%u sums by plan, predicted step %.1f ms (by rule %.1f ms, bound %.1f ms)", n,
        (double)plan.step_ns * 1e-6, (double)ruled_ns * 1e-6, (double)plan.bound_ns * 1e-6);
    ru_decisions_add(w->t.decisions, &ru_policy_sums, &in, false);
    tell_memory(w, &ru_policy_sums);
    p->planned = true;
    p->held = hold;
    hand_over(w, parts, n, plan.depth, barrier_of(w, &plan, hold));
    return RU_OK;
}

/* Another view than at the last step? Then steps are counted anew; a plan that began it itself is
 * watched on. */
static bool take_view(rui_worker *w)
{
    rui_plan *p = &w->plan;
    ru_mutex_lock(&w->lock);
    bool known = p->known, other = p->told.epoch != p->view.epoch;
    p->slower = ru_sums_net_slower(&p->net);
    uint32_t n_ranks = p->view.n_ranks, measured = p->view.measured;
    p->view = p->told;
    if (known && other) {
        memcpy(p->costs_now, p->costs, sizeof p->costs);
    }
    ru_mutex_unlock(&w->lock);
    if (other) {
        p->steps = 0;
        p->mean_ns = 0;
        bool same = n_ranks == p->view.n_ranks, anew = measured != p->view.measured;
        p->measured = anew ? w->at.updated : p->measured;
        p->trusted = same && (p->trusted || anew);
        p->watching = p->watching && same && !anew;
        p->again_ns = same ? p->again_ns : 0;
        p->plans = same ? p->plans : 0;
        tell_memory(w, w->t.job->train.servers > 0 ? &ru_policy_order : &ru_policy_sums);
    }
    return known;
}

/* Costs as they are now beside those that the plan rests on. */
static ru_sums_again costs_moved(const rui_worker *w)
{
    ru_arena arena;
    ru_sums_policy_in in;
    ru_sums_grad *grads;
    ru_sums_in q;
    ru_err err;
    ru_sums_again why = RU_SUMS_STANDS;
    ru_arena_init(&arena, 0);
    if (ask(w, RU_SUMS_RULE, &grads, &arena, &in, &err) == RU_OK &&
        ru_sums_in_of(&in, &arena, &q, &err) == RU_OK) {
        const ru_sums_costs now = ru_sums_costs_of(&q);
        why = ru_sums_watch_costs(&w->plan.watch, &now);
    }
    ru_arena_fini(&arena);
    return why;
}

/* A step of the view more: is a plan due, and if there was one, why? */
static bool due(rui_worker *w, int64_t took_ns, ru_sums_again *why)
{
    rui_plan *p = &w->plan;
    bool may = w->at.updated.ns >= p->again_ns;
    *why = p->watching ? ru_sums_watch_step(&p->watch, (double)took_ns) : RU_SUMS_STANDS;
    if (may && p->watching && *why == RU_SUMS_STANDS && w->t.job->train.servers == 0 &&
        p->steps % LOOK_STEPS == 0) {
        *why = costs_moved(w);
    }
    bool wants = p->watching ? *why != RU_SUMS_STANDS : p->steps >= MEASURED_STEPS;
    return wants && may;
}

/* With servers sums are grouped by rule, and their order is made of what was measured. */
static void order_again(rui_worker *w, ru_sums_again why)
{
    rui_plan *p = &w->plan;
    p->watching = true;
    p->watch = ru_sums_watch_of(p->mean_ns, &(ru_sums_costs){0});
    bool other = rui_order_make(w);
    tell_memory(w, &ru_policy_order);
    if (other) {
        say_again(w, why);
        hand_over(w, w->buckets.at, w->buckets.n, 0, NULL);
    }
}

static void sums_again(rui_worker *w, ru_sums_again why)
{
    rui_plan *p = &w->plan;
    ru_err err = {0};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    if (make(w, why, &arena, &err) != RU_OK) { /* sums go on as they are */
        ru_log(RU_LOG_WARN, "train", "sums", "no plan of sums: %s", err.text);
        p->watching = true;
        p->watch = ru_sums_watch_of(p->mean_ns, &(ru_sums_costs){0});
    }
    ru_arena_fini(&arena);
}

void rui_plan_stepped(rui_worker *w, int64_t took_ns)
{
    rui_plan *p = &w->plan;
    bool serve = w->t.job->train.servers > 0, ruled = w->t.job->train.sums == RU_SUMS_RULE;
    if (!w->cmd.leads || (!take_view(w) && !serve) || took_ns <= 0 || (ruled && !serve)) {
        return;
    }
    p->steps++;
    double part = p->steps < RU_SUMS_WATCHED ? (double)p->steps : RU_SUMS_WATCHED;
    p->mean_ns += ((double)took_ns - p->mean_ns) / part;
    if (serve && p->steps % MEASURED_STEPS == 0) {
        ru_decisions_measured(w->t.decisions, &ru_policy_order, "step_s", RU_NAN,
                              p->mean_ns * 1e-9);
        if (p->view.server_bytes > 0) {
            ru_decisions_measured(w->t.decisions, &ru_policy_order, "memory_of_a_server_bytes",
                                  (double)p->view.server_said_bytes, (double)p->view.server_bytes);
        }
    }
    ru_sums_again why;
    if (!due(w, took_ns, &why)) {
        return;
    }
    int64_t cpu0 = ru_clock_thread_cpu_ns(); /* waiting for a processor is no work */
    if (serve) {
        order_again(w, why);
    } else {
        sums_again(w, why);
    }
    ru_time now = ru_clock_now();
    double took = (double)(ru_clock_thread_cpu_ns() - cpu0);
    p->again_ns = now.ns + (int64_t)(took / PLANNING_PART * (double)(UINT32_C(1) << p->plans));
    p->plans += p->plans < PLANS_MAX ? 1 : 0;
    w->at.updated = now; /* the next step does not pay for it */
}

void rui_plan_said(rui_worker *w, bool measure)
{
    rui_plan *p = &w->plan;
    ru_err err = {0};
    if (measure) {
        ru_elastic_measure(w->elastic);
        return;
    }
    ru_mutex_lock(&w->lock);
    ru_status st =
        ru_elastic_table_set(w->elastic, p->parts, p->n_parts, p->flight, p->barrier, &err);
    ru_mutex_unlock(&w->lock);
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "sums", "the plan of sums is not followed: %s", err.text);
    }
}
