#include "cluster/sched.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const double second_ns = 1e9;

ru_status ru_sched_init(ru_sched *s, const ru_sched_spec *spec, ru_time now, ru_arena *arena,
                        ru_err *err)
{
    if (spec->jobs_max < 1 || spec->jobs_max > RU_ALLOC_JOBS_MAX || spec->nodes_max < 1 ||
        spec->nodes_max > RU_ALLOC_NODES_MAX || spec->restart_ns < 0 || spec->quantum_ns < 0) {
        return RU_FAIL(err, RU_E_ARG, "a cluster of %u nodes (1 to %d) for %u jobs (1 to %d)",
                       spec->nodes_max, RU_ALLOC_NODES_MAX, spec->jobs_max, RU_ALLOC_JOBS_MAX);
    }
    *s = (ru_sched){.spec = *spec,
                    .now = now,
                    .told = {INT64_MAX},
                    .nodes = RU_NEW(arena, ru_sched_node, spec->nodes_max),
                    .jobs = RU_NEW(arena, ru_sched_job, spec->jobs_max)};
    return s->nodes != NULL && s->jobs != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_LIMIT, "no memory for %u jobs", spec->jobs_max);
}

static void tell(const ru_sched *s, ru_sched_word word, int64_t about, ru_effects *fx)
{
    ru_fx_local(fx, s->spec.what_first + (uint32_t)word, about, NULL, 0);
}

static void account(ru_sched_job *j, ru_time to)
{
    if (to.ns <= j->since.ns) {
        return;
    }
    j->service_ns += j->replicas * (to.ns - j->since.ns);
    if (j->phase == RU_SCHED_RUNS) {
        j->progress += j->rate * (double)(to.ns - j->since.ns) / second_ns;
    }
    j->since = to;
}

/* When the goal is reached, and when that can be told: an instant that rounding has put too early
 * is told just after it, because at the instant itself the goal was still ahead. */
static ru_time goal_at(const ru_sched *s, const ru_sched_job *j, ru_time *told)
{
    ru_time at = {INT64_MAX};
    *told = at;
    if (j->phase != RU_SCHED_RUNS || !(j->rate > 0)) {
        return at;
    }
    double ns = fmax((j->goal - j->progress) / j->rate, 0) * second_ns;
    if (!(ns < 4e18) || j->since.ns > INT64_MAX / 2) {
        return at;
    }
    if (s->spec.quantum_ns == 0) {
        at.ns = j->since.ns + (int64_t)ceil(ns);
        *told = at;
        return at;
    }
    double whole = floor(ns / (double)s->spec.quantum_ns + 0.5) * (double)s->spec.quantum_ns;
    at.ns = j->since.ns + (int64_t)whole;
    told->ns = at.ns + (whole < ns ? 1 : 0);
    return at;
}

/* Gives up its devices; it keeps its rate. */
static void drop(ru_sched *s, uint32_t job)
{
    ru_sched_job *j = &s->jobs[job];
    for (uint32_t i = 0; i < j->n_parts; i++) {
        RU_CHECK(s->nodes[j->parts[i].node].used >= j->parts[i].devices);
        s->nodes[j->parts[i].node].used -= j->parts[i].devices;
    }
    j->n_parts = j->replicas = 0;
}

static void release(ru_sched *s, uint32_t job)
{
    drop(s, job);
    s->jobs[job].rate = 0;
}

static void stop(ru_sched *s, uint32_t job, ru_effects *fx)
{
    account(&s->jobs[job], s->now);
    if (s->jobs[job].n_parts > 0) {
        release(s, job);
        tell(s, RU_SCHED_STOP, job, fx);
    }
    s->jobs[job].phase = RU_SCHED_WAITS;
}

static void take(ru_sched *s, uint32_t job, const ru_alloc_part *parts, uint32_t n)
{
    ru_sched_job *j = &s->jobs[job];
    RU_CHECK(n <= RU_ALLOC_PARTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        RU_CHECK(parts[i].node < s->n_nodes);
        ru_sched_node *node = &s->nodes[parts[i].node];
        RU_CHECK(parts[i].devices <= node->devices - node->used);
        node->used += parts[i].devices;
        j->parts[i] = parts[i];
        j->replicas += parts[i].devices;
    }
    j->n_parts = n;
}

static void start(ru_sched *s, uint32_t job, const ru_alloc_part *parts, uint32_t n, ru_effects *fx)
{
    ru_sched_job *j = &s->jobs[job];
    take(s, job, parts, n);
    j->phase = RU_SCHED_RESTARTS;
    j->ready.ns = s->now.ns + s->spec.restart_ns;
    j->restarts += j->started;
    j->started = true;
    tell(s, RU_SCHED_START, job, fx);
}

static void tick(ru_sched *s, ru_effects *fx)
{
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        ru_sched_job *j = &s->jobs[i];
        ru_time told, at = goal_at(s, j, &told);
        if (j->phase == RU_SCHED_RESTARTS && j->ready.ns <= s->now.ns) {
            account(j, j->ready);
            j->phase = RU_SCHED_RUNS;
            tell(s, RU_SCHED_READY, i, fx);
        } else if (told.ns <= s->now.ns) {
            account(j, at);
            j->progress = j->goal;
            j->rate = 0;
            tell(s, RU_SCHED_GOAL, i, fx);
        }
    }
}

/* The node is gone: the job stops, or goes on without it. */
static void lose(ru_sched *s, uint32_t job, uint32_t node, ru_effects *fx)
{
    ru_sched_job *j = &s->jobs[job];
    uint32_t n = 0;
    if (!s->spec.resizes || j->n_parts < 2) {
        stop(s, job, fx);
        return;
    }
    ru_alloc_part left[RU_ALLOC_PARTS_MAX];
    for (uint32_t k = 0; k < j->n_parts; k++) {
        if (j->parts[k].node != node) {
            left[n++] = j->parts[k];
        }
    }
    account(j, s->now);
    drop(s, job);
    take(s, job, left, n);
    tell(s, RU_SCHED_RESIZE, job, fx);
}

static void set_node(ru_sched *s, const ru_sched_change *ev, ru_effects *fx)
{
    if (ev->node >= s->spec.nodes_max || ev->devices > RU_ALLOC_DEVICES_MAX) {
        tell(s, RU_SCHED_REFUSED, ev->node, fx);
        return;
    }
    s->n_nodes = ev->node < s->n_nodes ? s->n_nodes : ev->node + 1;
    ru_sched_node *node = &s->nodes[ev->node];
    for (uint32_t i = 0; node->used > ev->devices && i < s->n_jobs; i++) {
        const ru_sched_job *j = &s->jobs[i];
        for (uint32_t k = 0; k < j->n_parts; k++) {
            if (j->parts[k].node == ev->node) {
                lose(s, i, ev->node, fx);
                break;
            }
        }
    }
    *node = (ru_sched_node){ev->devices, node->used, ev->market, ev->lease};
}

static bool changed(const ru_sched_job *j, const ru_alloc_plan *p, uint32_t i)
{
    const ru_alloc_share *a = &p->jobs[i];
    if (a->n_parts != j->n_parts) {
        return true;
    }
    for (uint32_t k = 0; k < a->n_parts; k++) {
        const ru_alloc_part *x = &p->parts[a->first + k];
        bool found = false;
        for (uint32_t o = 0; o < j->n_parts; o++) {
            found = found || (j->parts[o].node == x->node && j->parts[o].devices == x->devices);
        }
        if (!found) {
            return true;
        }
    }
    return false;
}

/* First everybody whose devices change gives them up, then the others take theirs. */
static void install(ru_sched *s, const ru_sched_grants *g, ru_effects *fx)
{
    const ru_alloc_plan *p = g->plan;
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        uint32_t job = g->of[i];
        RU_CHECK(job < s->n_jobs && s->jobs[job].phase != RU_SCHED_NONE);
        ru_sched_job *j = &s->jobs[job];
        j->demoted = p->jobs[i].demoted;
        j->resized = false;
        if (!changed(j, p, i)) {
            continue;
        }
        j->resized = s->spec.resizes && j->n_parts > 0 && p->jobs[i].n_parts > 0;
        if (j->resized) {
            account(j, s->now);
            drop(s, job);
        } else {
            stop(s, job, fx);
        }
    }
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        const ru_alloc_share *a = &p->jobs[i];
        const ru_sched_job *j = &s->jobs[g->of[i]];
        if (j->resized) {
            take(s, g->of[i], &p->parts[a->first], a->n_parts);
            tell(s, RU_SCHED_RESIZE, g->of[i], fx);
        } else if (changed(j, p, i)) {
            start(s, g->of[i], &p->parts[a->first], a->n_parts, fx);
        }
    }
}

static ru_sched_job *job_of(const ru_sched *s, int64_t job)
{
    RU_CHECK(job >= 0 && job < s->spec.jobs_max && s->jobs[job].phase != RU_SCHED_NONE);
    return &s->jobs[job];
}

static void submit(ru_sched *s, int64_t job, ru_effects *fx)
{
    if (job < 0 || job >= s->spec.jobs_max || s->jobs[job].phase != RU_SCHED_NONE) {
        tell(s, RU_SCHED_REFUSED, job, fx);
        return;
    }
    s->jobs[job] = (ru_sched_job){.phase = RU_SCHED_WAITS, .arrived = s->now, .since = s->now};
    s->n_jobs = job < s->n_jobs ? s->n_jobs : (uint32_t)job + 1;
}

static void report(const ru_sched *s, const ru_sched_report *r)
{
    ru_sched_job *j = job_of(s, r->job);
    RU_CHECK(r->rate >= 0);
    if (j->rate > 0) {
        account(j, s->now);
    }
    j->rate = j->phase == RU_SCHED_RUNS ? r->rate : 0;
    j->goal = r->goal;
}

static void end(ru_sched *s, int64_t job)
{
    ru_sched_job *j = job_of(s, job);
    account(j, j->rate > 0 ? s->now : j->since);
    release(s, (uint32_t)job);
    j->phase = RU_SCHED_NONE;
}

/* When a restart ends or a goal is reached next. */
static ru_time next_of(const ru_sched *s)
{
    ru_time next = {INT64_MAX};
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        const ru_sched_job *j = &s->jobs[i];
        ru_time told;
        goal_at(s, j, &told);
        if (j->phase == RU_SCHED_RESTARTS && j->ready.ns < told.ns) {
            told = j->ready;
        }
        next.ns = told.ns < next.ns ? told.ns : next.ns;
    }
    return next;
}

static void hear(ru_sched *s, const ru_event *ev, ru_effects *fx)
{
    switch (ru_word(ev->what, s->spec.what_first, RU_SCHED_WORDS)) {
    case RU_SCHED_SUBMIT:
        submit(s, ev->value, fx);
        break;
    case RU_SCHED_NODE:
        set_node(s, ru_event_data(ev, sizeof(ru_sched_change)), fx);
        break;
    case RU_SCHED_PLAN:
        install(s, ru_event_data(ev, sizeof(ru_sched_grants)), fx);
        break;
    case RU_SCHED_REPORT:
        report(s, ru_event_data(ev, sizeof(ru_sched_report)));
        break;
    case RU_SCHED_END:
        end(s, ev->value);
        break;
    default:
        break;
    }
}

void ru_sched_step(ru_sched *s, const ru_event *ev, ru_effects *fx)
{
    RU_CHECK(ev->now.ns >= s->now.ns);
    s->now = ev->now;
    if (ev->kind == RU_EV_LOCAL) {
        hear(s, ev, fx);
    } else if (ev->kind == RU_EV_TIMER && ev->what == s->spec.what_first + RU_SCHED_TIMER) {
        s->told.ns = INT64_MAX;
        tick(s, fx);
    }
    ru_fx_wake(fx, s->spec.what_first + RU_SCHED_TIMER, next_of(s), &s->told);
}

void ru_sched_facts(const ru_sched *s, uint32_t job, ru_time now, ru_alloc_job *out)
{
    RU_CHECK(job < s->n_jobs && now.ns >= s->now.ns);
    const ru_sched_job *j = &s->jobs[job];
    out->age_s = (double)(now.ns - j->arrived.ns) / second_ns;
    int64_t since_ns = now.ns > j->since.ns ? now.ns - j->since.ns : 0;
    out->service_s = (double)(j->service_ns + j->replicas * since_ns) / second_ns;
    out->restarts = j->restarts;
    out->demoted = j->demoted;
    out->now = j->parts;
    out->n_now = j->n_parts;
}
