/* Why a job waits, and why it has what it has: from the book, from what agents say and from the
 * job's own files. */
#include <string.h>

#include "base/unit.h"
#include "cluster/scheduler_impl.h"

/* Of each method: what it does, and what puts a job of the same priority before another. */
static const struct {
    const char *does, *before;
} rules[RU_ALLOC_METHODS] = {
    [RU_ALLOC_POLLUX] = {"the best use of all slots by measured goodput", "a better use of them"},
    [RU_ALLOC_TIRESIAS] = {"what a job requests, to those with little service first",
                           "it is before this one in the queues"},
    [RU_ALLOC_OPTIMUS] = {"one more worker where it saves most time", "it saves more time there"},
    [RU_ALLOC_FIFO] = {"what a job requests, in the order of arrival",
                       "it came earlier or fitted where this one does not"},
    [RU_ALLOC_SRTF] = {"what a job requests, to those that end soonest first", "it ends sooner"},
};

static void put_method(const rui_scheduler *s, const ru_book_job *j, const ru_cluster_figures *f,
                       ru_text *t)
{
    const ru_alloc_method m = s->book.method;
    ru_alloc_job facts = {0};
    ru_sched_facts(&s->book.sched, j->slot, (ru_time){rui_scheduler_clock(s)}, &facts);
    ru_text_putf(t, "method %s: %s\n", ru_alloc_method_name(m), rules[m].does);
    if (ru_alloc_fixed(m)) {
        ru_text_putf(t, "  it requests %u workers, and has them or none\n", ru_book_request(j));
    }
    if (m == RU_ALLOC_TIRESIAS && facts.demoted > 0) {
        ru_text_putf(t, "  it has had %.4g slot-seconds: in the lower queue, at place %u\n",
                     facts.service_s, facts.demoted);
    } else if (m == RU_ALLOC_TIRESIAS) {
        ru_text_putf(t, "  it has had %.4g of the %.4g slot-seconds of the upper queue\n",
                     facts.service_s, 1e-3 * (double)s->book.demote_ms);
    } else if ((m == RU_ALLOC_OPTIMUS || m == RU_ALLOC_SRTF) && f->step > 0) {
        ru_text_putf(t, "  it has about %.6g steps left%s\n", ru_figures_remaining(f),
                     f->total > 0 ? "" : ": it tells no end, so as many as it has done");
    }
}

/* What the users whose jobs have this priority have, beside what their weights would give them. */
static void put_weights(const rui_scheduler *s, const ru_book_job *j, ru_text *t)
{
    struct {
        const char *owner;
        uint32_t weight, jobs, slots;
    } of[RU_BOOK_USERS_MAX + 1];
    uint32_t n = 0, weights = 0, slots = 0;
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *o = ru_book_job_at(&s->book, s->book.of[slot]);
        if (o == NULL || o->cancelled || o->priority != j->priority) {
            continue;
        }
        uint32_t k = 0, has = s->book.sched.jobs[slot].replicas;
        while (k < n && strcmp(of[k].owner, o->owner) != 0) {
            k++;
        }
        if (k == n) {
            of[n].owner = o->owner;
            of[n].jobs = of[n].slots = 0;
            weights += of[n].weight = ru_book_weight(&s->book, o->owner);
            n++;
        }
        of[k].jobs++;
        of[k].slots += has;
        slots += has;
    }
    if (weights == 0 || s->book.method != RU_ALLOC_POLLUX) {
        return;
    }
    ru_text_put(t,
                "  users share the slots of this priority by weight, as far as they use them:\n");
    for (uint32_t k = 0; k < n; k++) {
        ru_text_putf(t, "    %s: weight %u, %u job%s, %u slots; %.4g by weight\n", of[k].owner,
                     of[k].weight, of[k].jobs, of[k].jobs == 1 ? "" : "s", of[k].slots,
                     (double)slots * of[k].weight / weights);
    }
}

static void put_where(const rui_scheduler *s, const ru_sched_job *p, ru_text *t)
{
    for (uint32_t k = 0; k < p->n_parts; k++) {
        ru_text_putf(t, "%s%s:%u", k > 0 ? " " : "", s->book.nodes[p->parts[k].node].name,
                     p->parts[k].devices);
    }
}

/* Who holds slots, those that go first before others. */
static void put_holders(const rui_scheduler *s, const ru_book_job *j, ru_text *t)
{
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *o = ru_book_job_at(&s->book, s->book.of[slot]);
        uint32_t has = o != NULL && o != j ? s->book.sched.jobs[slot].replicas : 0;
        if (has > 0) {
            const char *goes_on = rules[s->book.method].before;
            ru_text_putf(t, "  job %u '%s' of %s has %u%s%s\n", s->book.of[slot], o->spec.name,
                         o->owner, has,
                         o->priority > j->priority    ? ": its priority is higher"
                         : o->cancelled               ? ": until its processes are gone"
                         : o->priority == j->priority ? ": the same priority, and "
                                                      : "",
                         o->priority == j->priority && !o->cancelled ? goes_on : "");
            n++;
        }
    }
    if (n == 0) {
        ru_text_put(t, "  no other job has slots\n");
    }
}

static void put_wait(const rui_scheduler *s, const ru_book_job *j, ru_text *t)
{
    uint32_t all = ru_book_slots(&s->book, false), needs = j->min;
    if (ru_alloc_fixed(s->book.method) && ru_book_request(j) > needs) {
        needs = ru_book_request(j) < all ? ru_book_request(j) : all > needs ? all : needs;
    }
    if (all < j->min) {
        ru_text_putf(t,
                     "waits: it needs %u slots at once, and the nodes that are up have %u (a job "
                     "lies on at most %d nodes)\n",
                     j->min, all, RU_BOOK_SPREAD_MAX);
        return;
    }
    ru_text_putf(t,
                 "waits: it needs %u of %u slots at once, until others end, shrink or lose their "
                 "priority\n",
                 needs, all);
    put_holders(s, j, t);
}

/* Workers of it that failed while others go on. */
static void put_failed(const rui_scheduler *s, const ru_book_job *j, ru_text *t)
{
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        const ru_cluster_state *st = &s->live[k].state;
        for (uint32_t i = 0; i < st->n; i++) {
            const ru_cluster_proc *p = &st->procs[i];
            if (p->job == s->book.of[j->slot] && p->generation == j->generation && !p->alive &&
                !p->left && p->code != 0) {
                ru_text_putf(t, "  a worker on %s failed: %s\n", s->book.nodes[k].name,
                             rui_scheduler_why(p));
            }
        }
    }
}

/* How its slots change. */
static void put_moves(const rui_scheduler *s, const ru_book_job *j, const ru_cluster_figures *f,
                      ru_text *t)
{
    const uint32_t stops = s->figures[j->slot].stops;
    if (s->book.restarts) {
        ru_text_put(t,
                    "resize restart: when its slots change it stops with a checkpoint and starts "
                    "from it\n");
    }
    if (j->moves > 0) {
        ru_text_putf(t, "it was stopped and started %u time%s, as its slots changed", j->moves,
                     j->moves == 1 ? "" : "s");
        if (stops > 0) {
            ru_text_putf(t, "; %.3g s from the order to its first worker",
                         s->figures[j->slot].stopped_s / stops);
        }
        ru_text_put(t, "\n");
    }
    if (f->pauses > 0) {
        ru_text_putf(t, "its workers changed %u times, %.3g s of pause each\n", f->pauses,
                     f->paused_s / f->pauses);
    }
}

static void put_has(const rui_scheduler *s, const ru_book_job *j, const ru_sched_job *p, ru_text *t)
{
    uint32_t ready, alive = rui_scheduler_alive(s, j, &ready, NULL);
    ru_text_putf(t, "has %u of at most %u slots (", p->replicas, j->max);
    put_where(s, p, t);
    ru_text_putf(t, "); %u of %u processes are in the job\n", ready, alive);
    if (alive > 0 && ready == 0 && j->moved == j->generation) {
        ru_text_put(t, "  it stops with a checkpoint, or starts from it\n");
    } else if (alive < p->replicas) {
        ru_text_put(t, "  a slot is free only when the process that had it is gone\n");
    }
    if (p->replicas < j->min) {
        ru_text_putf(t, "  waits for %u slots, and goes on with these until it can have them\n",
                     j->min);
    }
    put_failed(s, j, t);
    if (p->replicas < (ru_alloc_fixed(s->book.method) ? ru_book_request(j) : j->max)) {
        put_holders(s, j, t);
    }
}

/* Steps as measured beside what the plan expects of them. */
static ru_status put_steps(const ru_cluster_figures *f, ru_arena *arena, ru_text *t, ru_err *err)
{
    ru_goodput_model m;
    ru_figures_model(f, &m);
    if (f->n == 0) {
        return RU_OK;
    }
    ru_table table = ru_table_in(arena);
    static const char *const names[] = {">workers", ">nodes",    ">each",
                                        ">steps",   ">measured", ">predicted"};
    rui_scheduler_columns(&table, names, RU_ARRAY_LEN(names));
    for (uint32_t k = 0; k < f->n; k++) {
        ru_table_i64(&table, f->seen[k].replicas);
        ru_table_i64(&table, f->seen[k].nodes);
        ru_table_i64(&table, f->seen[k].local);
        ru_table_i64(&table, (int64_t)f->seen[k].steps);
        ru_table_ns(&table, (int64_t)(1e9 * f->seen[k].step_s / f->seen[k].steps));
        if (m.perf.overlap >= 1) {
            ru_table_ns(&table,
                        (int64_t)(1e9 * ru_perf_step_s(&m.perf, f->seen[k].nodes,
                                                       f->seen[k].replicas, f->seen[k].local, 0)));
        } else {
            ru_table_none(&table);
        }
    }
    return ru_table_print(&table, 2, t, err);
}

ru_status rui_scheduler_explain(rui_scheduler *s, const ru_book_job *j, ru_arena *arena, ru_text *t,
                                ru_err *err)
{
    const ru_sched_job *p = ru_book_place(&s->book, j);
    ru_text_putf(t, "job '%s' of %s, priority %lld, %u to %u workers, started %u time%s\n",
                 j->spec.name, j->owner, (long long)j->priority, j->min, j->max, j->generation,
                 j->generation == 1 ? "" : "s");
    if (j->why[0] != 0) {
        ru_text_putf(t, "%s: %s\n", p != NULL ? "it failed last with" : "why", j->why);
    }
    if (p == NULL) {
        ru_text_putf(t, "%s\n", ru_book_state_name(j->state));
        rui_market_explain(s, j, t);
        return RU_OK;
    }
    if (!s->leads) {
        ru_text_put(t, "the journal is not there: until it is, everything stays as it is\n");
    }
    const ru_cluster_figures *f = rui_scheduler_figures(s, j);
    put_method(s, j, f, t);
    put_weights(s, j, t);
    if (j->cancelled) {
        ru_text_put(t, "ends: it was cancelled, and writes its checkpoint\n");
    } else if (p->n_parts == 0) {
        const ru_book_user *u = ru_book_user_of(&s->book, j->owner);
        put_wait(s, j, t);
        if (u != NULL && u->slots > 0) {
            ru_text_putf(t, "  all jobs of %s may have %u slots at one time\n", u->name, u->slots);
        }
    } else {
        put_has(s, j, p, t);
    }
    rui_market_explain(s, j, t);
    if (f->step > 0) {
        ru_text_putf(t, "step %lld, loss %.4g, %.4g samples/s on %u workers\n", (long long)f->step,
                     f->loss, f->samples_per_s, f->workers);
    }
    if (f->noise > 0) {
        ru_text_putf(t, "gradient noise scale %.3g samples; batch %u", f->noise, f->batch);
        if (f->batch_max > 0) {
            ru_text_putf(t, " to %u", f->batch_max);
        }
        ru_text_put(t, "\n");
    }
    put_moves(s, j, f, t);
    return put_steps(f, arena, t, err);
}

void rui_scheduler_top(rui_scheduler *s, ru_table *t)
{
    static const char *const names[] = {">job",           ">workers", ">step", ">loss",
                                        ">samples_per_s", "name",     "user"};
    rui_scheduler_columns(t, names, RU_ARRAY_LEN(names));
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
        if (j == NULL || j->state != RU_BOOK_RUNS) {
            continue;
        }
        const ru_cluster_figures *f = rui_scheduler_figures(s, j);
        ru_table_i64(t, s->book.of[slot]);
        ru_table_i64(t, f->workers);
        ru_table_i64(t, f->step);
        ru_table_f64(t, f->loss, 4);
        ru_table_f64(t, f->samples_per_s, 1);
        ru_table_str(t, j->spec.name);
        ru_table_str(t, j->owner);
    }
}

bool rui_scheduler_services(const rui_scheduler *s, ru_table *t)
{
    static const char *const names[] = {"service", "node", "state", "says"};
    bool any = false;
    rui_scheduler_columns(t, names, RU_ARRAY_LEN(names));
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        const ru_cluster_state *st = &s->live[k].state;
        for (uint32_t i = 0; i < st->n_services; i++) {
            const ru_cluster_service *v = &st->services[i];
            any = true;
            ru_table_str(t, v->name);
            ru_table_str(t, s->book.nodes[k].name);
            ru_table_str(t, s->live[k].guest.v == 0 ? "silent" : v->up ? "paced" : "waits");
            ru_table_str(t, v->line[0] != 0 ? v->line : NULL);
        }
    }
    return any;
}

ru_status rui_scheduler_service(const rui_scheduler *s, const char *name, ru_text *t, ru_err *err)
{
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        const ru_cluster_state *st = &s->live[k].state;
        for (uint32_t i = 0; i < st->n_services; i++) {
            const ru_cluster_service *v = &st->services[i];
            if (strcmp(v->name, name) == 0) {
                ru_text_putf(t, "service '%s' on node %s: %s\n  %s\n", name, s->book.nodes[k].name,
                             v->up ? "its pace is set by its credits"
                                   : "nobody paces it; it is tried again every few seconds",
                             v->line[0] != 0 ? v->line : "its first window has not ended");
            }
        }
    }
    return t->n > 0 ? RU_OK
                    : RU_FAIL(err, RU_E_MISSING,
                              "there is no job and no service '%s'; see rubato cluster ps", name);
}
