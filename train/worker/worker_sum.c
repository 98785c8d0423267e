/* Sums as this worker saw them: spans in its trace beside what was predicted; where it leads, plans
 * and measured times for the world file of the run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "train/worker/worker_impl.h"

/* What was measured beside what was predicted: the times of each bucket as facts, and all together
 * beside the plan. */
static void keep(rui_worker *w)
{
    const rui_sums *s = &w->sums;
    double predicted = 0, took = 0;
    for (uint32_t b = 0; b < s->plan.n_buckets; b++) {
        const rui_sum_measured *m = &s->measured[b];
        if (m->n == 0) {
            continue;
        }
        const ru_elastic_bucket *at = &s->plan.at[b];
        double n = (double)m->n;
        predicted += (double)m->predicted_ns / n;
        took += (double)m->took_ns / n;
        bool cut = at->choice.chunk_bytes < at->part.size_bytes;
        const ru_coll_fact fact = {
            .op = ru_coll_op_name(RU_COLL_ALL_REDUCE),
            .algo = s->plan.local ? "memory" : ru_coll_algo_name(at->choice.algo),
            .n_ranks = s->plan.n_members,
            .size_bytes = at->part.size_bytes,
            .chunk_bytes = s->plan.local || !cut ? 0 : at->choice.chunk_bytes,
            .depth = at->choice.depth,
            .took = {.count = m->n,
                     .mean_ns = (double)m->took_ns / n,
                     .predicted_ns = (double)m->predicted_ns / n}};
        ru_decisions_sum(w->t.decisions, &fact);
    }
    if (s->plan.plan != 0) {
        ru_decisions_measured(w->t.decisions, &ru_policy_coll, "queued_s", predicted * 1e-9,
                              took * 1e-9);
    }
}

void rui_worker_join_begun(rui_worker *w, uint32_t number, int64_t step, ru_time now)
{
    if (w->joins.n < RUI_JOINS_MAX) { /* more at a time are not measured */
        w->joins.at[w->joins.n++] = (rui_join){number, step, now};
    }
}

void rui_worker_join_ended(rui_worker *w, uint32_t number, int64_t step, ru_time now)
{
    for (uint32_t k = 0; k < w->joins.n; k++) {
        const rui_join j = w->joins.at[k];
        if (j.number == number) {
            w->joins.at[k] = w->joins.at[--w->joins.n];
            ru_decisions_measured(w->t.decisions, &ru_policy_join, "join_steps", RU_NAN,
                                  (double)(step - j.step));
            ru_decisions_measured(w->t.decisions, &ru_policy_join, "join_s", RU_NAN,
                                  (double)ru_time_since(now, j.begun) * 1e-9);
            return;
        }
    }
}

/* The times that the choice rests on, as facts. */
static void keep_probes(rui_worker *w)
{
    const ru_elastic_sums *p = &w->sums.plan;
    for (uint32_t a = 0; p->costs != NULL && a < RU_COLL_ALGOS; a++) {
        if (a == RU_ALGO_TREE || a == RU_ALGO_DOUBLE_TREE) {
            continue; /* they are taken to cost what doubling costs */
        }
        for (uint32_t k = 0; k < p->costs[a].n_at; k++) {
            const ru_coll_point *at = &p->costs[a].at[k];
            const ru_coll_fact fact = {.op = ru_coll_op_name(RU_COLL_ALL_REDUCE),
                                       .algo = ru_coll_algo_name((ru_coll_algo)a),
                                       .n_ranks = p->n_members,
                                       .size_bytes = at->size_bytes,
                                       .took = {.count = 1, .mean_ns = (double)at->ns}};
            ru_decisions_sum(w->t.decisions, &fact);
        }
    }
}

void rui_worker_planned(void *self, const ru_policy *policy, const void *in, ru_time now)
{
    (void)now;
    rui_worker *w = self;
    if (policy == &ru_policy_share) { /* what was in force is over */
        rui_worker_steps_end(w);
    }
    ru_decisions_add(w->t.decisions, policy, in, false);
}

void rui_worker_steps_end(rui_worker *w)
{
    ru_elastic_facts f;
    ru_elastic_facts_get(w->elastic, &f);
    int64_t n = f.timed - w->began.timed;
    if (n > 0) {
        ru_decisions_measured(w->t.decisions, &ru_policy_share, "step_s", RU_NAN,
                              (double)(f.longest_ns - w->began.longest_ns) * 1e-9 / (double)n);
    }
    w->began.timed = f.timed;
    w->began.longest_ns = f.longest_ns;
}

void rui_worker_sums_end(rui_worker *w)
{
    rui_sums *s = &w->sums;
    bool any = false;
    for (uint32_t b = 0; s->measured != NULL && b < s->plan.n_buckets; b++) {
        any = any || s->measured[b].n > 0;
    }
    if (s->led && any) {
        keep(w);
    }
    if (s->open) {
        ru_arena_fini(&s->arena);
    }
    *s = (rui_sums){0};
}

/* -- buckets ----------------------------------------------------------------------------------- */

ru_status rui_buckets_open(rui_worker *w, ru_err *err)
{
    rui_buckets *b = &w->buckets;
    b->planned = RU_NEW(w->arena, ru_elastic_part, RU_ELASTIC_BUCKETS_MAX);
    b->at = RU_NEW(w->arena, ru_elastic_part, RU_ELASTIC_BUCKETS_MAX);
    b->left = RU_NEW(w->arena, uint32_t, RU_ELASTIC_BUCKETS_MAX);
    b->of = RU_NEW(w->arena, uint32_t, w->list.n_tensors);
    b->changed = true;
    return b->planned != NULL && b->at != NULL && b->left != NULL && b->of != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for a worker");
}

/* Loop thread: those of the plan in force, for the next step. */
static void buckets_planned(rui_worker *w)
{
    rui_buckets *b = &w->buckets;
    RU_CHECK(w->sums.plan.n_buckets <= RU_ELASTIC_BUCKETS_MAX);
    ru_mutex_lock(&w->lock);
    b->n_planned = w->sums.plan.n_buckets;
    for (uint32_t k = 0; k < b->n_planned; k++) {
        b->planned[k] = w->sums.plan.at[k].part;
    }
    b->changed = true;
    ru_mutex_unlock(&w->lock);
}

void rui_buckets_begin(rui_worker *w)
{
    rui_buckets *b = &w->buckets;
    ru_mutex_lock(&w->lock);
    bool changed = b->changed;
    uint32_t n = b->n_planned;
    if (changed) {
        memcpy(b->at, b->planned, n * sizeof *b->at);
        b->n = n;
        b->changed = false;
    }
    ru_mutex_unlock(&w->lock);
    for (uint32_t k = 0; changed && k < w->list.n_tensors; k++) {
        b->of[k] = UINT32_MAX;
    }
    for (uint32_t k = 0; changed && k < n; k++) {
        const ru_elastic_part *p = &b->at[k];
        RU_CHECK(p->first < w->list.n_tensors && p->n <= w->list.n_tensors - p->first);
        for (uint32_t t = p->first; t < p->first + p->n; t++) {
            bool cut = p->n == 1 && b->of[t] != UINT32_MAX && b->at[b->of[t]].n == 1;
            RU_CHECK(cut || b->of[t] == UINT32_MAX); /* only cuts of one gradient share it */
            b->of[t] = cut ? b->of[t] : k;
        }
    }
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        if (b->of[k] != UINT32_MAX) {
            b->left[b->of[k]] = b->at[b->of[k]].n;
        }
    }
}

ru_elastic_part rui_buckets_ready(rui_worker *w, uint32_t tensor)
{
    const rui_buckets *b = &w->buckets;
    uint32_t of = b->of[tensor];
    if (of == UINT32_MAX) {
        return (ru_elastic_part){.first = tensor, .n = 1};
    }
    RU_CHECK(b->left[of] > 0);
    return --b->left[of] == 0 ? b->at[of] : (ru_elastic_part){0};
}

/* -- the plan in force ---------------------------------------------------------------------- */

void rui_worker_sums_planned(rui_worker *w, int64_t step)
{
    rui_worker_sums_end(w);
    rui_sums *s = &w->sums;
    ru_arena_init(&s->arena, 0);
    s->open = true;
    ru_err err = {.text = "no memory"};
    ru_status st = ru_elastic_sums_get(w->elastic, &s->arena, &s->plan, &err);
    rui_sum_measured *measured =
        st == RU_OK ? RU_NEW(&s->arena, rui_sum_measured, s->plan.n_buckets) : NULL;
    if (measured == NULL) {
        ru_log(RU_LOG_WARN, "train", "plan", "sums are not recorded: %s", err.text);
        return;
    }
    s->measured = measured;
    s->step = step;
    buckets_planned(w);
    ru_elastic_facts f;
    ru_elastic_facts_get(w->elastic, &f);
    rui_plan_view_told(w, &s->plan, &f);
    s->led = ru_member_leads(ru_node_member(w->shell.timers.node));
    if (s->led) {
        keep_probes(w);
    }
}

void rui_worker_summed(void *self, const ru_elastic_sum *sum)
{
    rui_worker *w = self;
    rui_sums *s = &w->sums;
    if (s->measured == NULL || sum->bucket >= s->plan.n_buckets) {
        return;
    }
    rui_sum_measured *m = &s->measured[sum->bucket];
    m->n++;
    m->took_ns += ru_time_since(sum->ended, sum->begun);
    m->predicted_ns += sum->predicted_ns;
}
