/* Jobs of a cluster in virtual time: the scheduler's own book and plans, steps that take as long as
 * a model says. The plans know of a job what its steps would have told: the time of the
 * configurations in which it has worked, its gradient noise, and how many steps are left. Batches
 * grow as train/worker/worker_adapt.c lets them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/cluster.h"
#include "cluster/book.h"
#include "cluster/figures.h"

static const double tick_s = 0.05, patience_s = 36000;
/* Steps until the noise is known; of a batch, until it may grow to so many times. */
static const double noise_steps = 40, batch_steps = 11, batch_more = 4;

typedef struct played {
    ru_cluster_figures figures;
    double left;        /* samples of the first batch */
    double ready_s;     /* it works from then on */
    double most, steps; /* the largest batch that it may have now, 0: its first; steps with that */
    bool done;
} played;

typedef struct world {
    const ru_bench_played *o;
    ru_arena arena;
    ru_book book;
    int64_t seq;
    double now_s, planned_s, sum_s;
    uint32_t submitted, done, changes;
    bool due;
    played *jobs; /* [o->n] */
} world;

static ru_status fold(world *w, ru_journal_event e, ru_err *err)
{
    e.seq = ++w->seq;
    e.at_ns = (int64_t)(1e9 * w->now_s);
    e.who = "admin";
    e.text = e.text != NULL ? e.text : "";
    return ru_book_fold(&w->book, &e, err);
}

/* What the job has: its batch stays unless the method lets it adapt. */
static ru_goodput_model model_of(const world *w, uint32_t k)
{
    ru_goodput_model m = w->o->models[k];
    if (w->o->method != RU_ALLOC_POLLUX) {
        m.batch = m.batch_max = m.batch_first;
        m.sqr = m.var = 0;
    }
    return m;
}

static void learn(played *p, const ru_goodput_model *m, const ru_sched_job *at,
                  const ru_goodput_choice *c)
{
    ru_cluster_figures *f = &p->figures;
    uint32_t k = 0, nodes = at->n_parts > 1 ? 2 : 1;
    while (k < f->n && (f->seen[k].nodes != nodes || f->seen[k].replicas != at->replicas ||
                        f->seen[k].local != c->local)) {
        k++;
    }
    if (k == RU_FIGURES_SAMPLES) {
        return;
    }
    f->n = k == f->n ? k + 1 : f->n;
    double step_s = ru_perf_step_s(&m->perf, nodes, at->replicas, c->local, c->passes);
    double steps = tick_s / step_s;
    f->seen[k].nodes = nodes;
    f->seen[k].replicas = at->replicas;
    f->seen[k].local = c->local;
    f->seen[k].steps += steps;
    f->seen[k].step_s += tick_s;
    f->seen[k].pass_s += steps * fmin(ru_perf_pass_s(&m->perf, c->local), step_s);
    f->batch = m->batch_first;
    f->batch_max = m->batch > 0 ? 0 : m->batch_max;
    f->local_max = m->local_max;
    f->noise = m->batch > 0 || !(p->most > 0) ? 0 : m->batch_first * m->var / m->sqr;
    f->workers = at->replicas;
}

/* What it does in a tick, with a batch that may grow further later. */
static ru_goodput_choice choose(played *p, const ru_goodput_model *m, const ru_sched_job *at)
{
    const uint32_t nodes = at->n_parts > 1 ? 2 : 1;
    ru_goodput_model now = *m;
    if (m->batch == 0) {
        double most = fmax(fmax(p->most, m->batch_first), at->replicas);
        now.batch_max = (uint32_t)fmin(most, m->batch_max);
    }
    ru_goodput_choice c = ru_goodput_best(&now, nodes, at->replicas);
    p->steps += tick_s / ru_perf_step_s(&m->perf, nodes, at->replicas, c.local, c.passes);
    if (p->steps >= (p->most > 0 ? batch_steps : noise_steps)) {
        p->most = fmin(batch_more * now.batch_max, m->batch_max);
        p->steps = 0;
    }
    return c;
}

static ru_status work(world *w, ru_err *err)
{
    for (uint32_t k = 0; k < w->submitted; k++) {
        const ru_goodput_model m = model_of(w, k);
        played *p = &w->jobs[k];
        const ru_book_job *j = ru_book_job_at(&w->book, k + 1);
        const ru_sched_job *at = p->done ? NULL : ru_book_place(&w->book, j);
        if (at == NULL || at->replicas == 0 || w->now_s < p->ready_s) {
            continue;
        }
        ru_goodput_choice c = choose(p, &m, at);
        p->left -= c.goodput * tick_s;
        learn(p, &m, at, &c);
        if (p->left <= 0) {
            p->done = true;
            w->done++;
            w->sum_s += w->now_s + tick_s - w->o->at_s[k];
            w->due = true;
            RU_TRY(fold(w, (ru_journal_event){.kind = RU_BOOK_END, .job = k + 1, .a = RU_BOOK_DONE},
                        err));
        }
    }
    return RU_OK;
}

static ru_status plan(world *w, ru_err *err)
{
    ru_journal_event *events;
    uint32_t n = 0;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_book_measured *of = RU_NEW(&scratch, ru_book_measured, w->book.sched.n_jobs + 1);
    for (uint32_t slot = 0; of != NULL && slot < w->book.sched.n_jobs; slot++) {
        const played *p = w->book.of[slot] > 0 ? &w->jobs[w->book.of[slot] - 1] : NULL;
        if (p != NULL && p->figures.n > 0) {
            ru_figures_model(&p->figures, &of[slot].model);
            of[slot].remaining = fmax(p->left / w->o->models[w->book.of[slot] - 1].batch_first, 1);
            double *step_s = RU_NEW(&scratch, double, w->o->most);
            if (step_s != NULL && w->o->method == RU_ALLOC_OPTIMUS) {
                of[slot].step_s = step_s;
                of[slot].n_step =
                    ru_figures_steps(&p->figures, &of[slot].model, w->o->slots, step_s, w->o->most);
            }
        }
    }
    w->book.pause_s = w->o->pause_s;
    ru_status st = of == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a round")
                              : ru_book_plan(&w->book, of, (int64_t)(1e9 * w->now_s), &scratch,
                                             &events, &n, err);
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        const ru_sched_job *at = ru_book_place(&w->book, ru_book_job_at(&w->book, events[k].job));
        bool began = at->replicas == 0;
        w->jobs[events[k].job - 1].ready_s = w->now_s + (began ? w->o->start_s : w->o->pause_s);
        w->changes++;
        st = fold(w, events[k], err);
    }
    ru_arena_fini(&scratch);
    w->planned_s = w->now_s;
    w->due = false;
    return st;
}

static ru_status submit(world *w, ru_err *err)
{
    uint32_t k = w->submitted++;
    ru_text spec = ru_text_arena(&w->arena);
    ru_book_spec_put(
        &(ru_book_spec){"job", "0123456789abcdef", "/srv/jobs/1", "name: job\n", w->o->request[k]},
        &spec);
    w->jobs[k].left = w->o->steps[k] * w->o->models[k].batch_first;
    w->due = true;
    return fold(w,
                (ru_journal_event){
                    .kind = RU_BOOK_SUBMIT, .job = k + 1, .a = 1, .b = w->o->most, .text = spec.p},
                err);
}

static ru_status run(world *w, ru_err *err)
{
    char name[32];
    const ru_bench_played *o = w->o;
    RU_TRY(ru_book_init(&w->book, &w->arena, err));
    RU_TRY(fold(w,
                (ru_journal_event){
                    .kind = RU_BOOK_METHOD, .a = o->method, .b = (int64_t)(1e3 * o->demote_s)},
                err));
    RU_TRY(fold(w, (ru_journal_event){.kind = RU_BOOK_RESIZE, .a = o->restarts}, err));
    for (uint32_t k = 0; k < o->nodes; k++) {
        (void)snprintf(name, sizeof name, "n%u", k);
        RU_TRY(fold(
            w, (ru_journal_event){.kind = RU_BOOK_NODE, .node = k, .a = o->slots, .text = name},
            err));
    }
    for (; w->done < o->n; w->now_s += tick_s) {
        while (w->submitted < o->n && o->at_s[w->submitted] <= w->now_s) {
            RU_TRY(submit(w, err));
        }
        if (w->due || w->now_s >= w->planned_s + o->round_s) {
            RU_TRY(plan(w, err));
        }
        RU_TRY(work(w, err));
        if (w->now_s > patience_s) {
            return RU_FAIL(err, RU_E_BUG, "%u of %u jobs end in virtual time", w->done, o->n);
        }
    }
    return RU_OK;
}

ru_status ru_bench_cluster_play(const ru_bench_played *o, ru_arena *arena, double *mean_s,
                                ru_err *err)
{
    world *w = RU_NEW(arena, world, 1);
    played *jobs = RU_NEW(arena, played, o->n);
    if (w == NULL || jobs == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to play %u jobs", o->n);
    }
    *w = (world){.o = o, .jobs = jobs};
    ru_arena_init(&w->arena, 0);
    ru_status st = run(w, err);
    *mean_s = w->sum_s / o->n;
    if (w->book.fx.arena != NULL) {
        ru_arena_fini(w->book.fx.arena);
    }
    ru_arena_fini(&w->arena);
    return st;
}
