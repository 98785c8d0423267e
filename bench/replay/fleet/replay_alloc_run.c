/* One workload on one cluster: cluster/sched.h in the simulator's event queue, decisions by
 * plan/fleet/alloc.h every interval, jobs that run as fast as was measured. */
#include <math.h>
#include <string.h>

#include "bench/replay/fleet/replay_alloc.h"
#include "cluster/sched.h"
#include "env/clock.h"
#include "sim/sim.h"

enum { SAMPLES_MAX = 512, NODES_MAX = 64 };

typedef struct job {
    const rui_app *app;
    uint32_t epoch, local, passes;
    uint32_t most; /* replicas it has run on */
    bool dirty;    /* samples have come since the fit */
    bool interfered;
    ru_goodput_model model;
    ru_perf_sample *samples; /* [SAMPLES_MAX] */
    uint32_t n_samples;
    double steps_s[64]; /* oracle of optimus and srtf */
} job;

enum { TOLD_MAX = 2 * RUI_ALLOC_JOBS };

typedef struct told {
    ru_sched_word word;
    uint32_t job;
} told;

typedef struct drive {
    const rui_cluster_in *in;
    rui_cluster_out *out;
    ru_sim *sim;
    ru_sched s;
    ru_arena memory; /* of effects */
    ru_effects fx;
    told told[TOLD_MAX]; /* [n_told] in the last step */
    uint32_t n_told;
    ru_time next; /* when the machine wants its timer */
    job *jobs;    /* [n_rows] */
    ru_alloc_job *facts;
    uint32_t *of, devices[NODES_MAX];
    uint32_t done, nodes; /* nodes: in use; `in->nodes` without autoscaling */
    uint64_t timer;       /* of the next tick that the machine wants */
    ru_time timer_at;
    ru_arena arena; /* of a decision */
    ru_err err;
    ru_status failed;
} drive;

static const double second_ns = 1e9;

static void stop(drive *d, ru_status st)
{
    d->failed = d->failed == RU_OK ? st : d->failed;
    ru_sim_stop(d->sim);
}

static void settle(drive *d);

static void step(drive *d, ru_event ev)
{
    ev.now = ru_sim_now(d->sim);
    d->n_told = 0;
    d->next.ns = ev.kind == RU_EV_TIMER ? INT64_MAX : d->next.ns;
    ru_sched_step(&d->s, &ev, &d->fx);
    for (uint32_t i = 0; i < d->fx.n; i++) {
        const ru_effect *e = &d->fx.at[i];
        if (e->kind != RU_FX_LOCAL) {
            d->next.ns = e->kind == RU_FX_TIMER ? e->at.ns : INT64_MAX;
        } else {
            RU_CHECK(d->n_told < TOLD_MAX);
            d->told[d->n_told++] = (told){(ru_sched_word)e->what, (uint32_t)e->value};
        }
    }
    ru_effects_clear(&d->fx);
}

static void say(drive *d, ru_sched_word word, uint32_t about, const void *data, int64_t size_bytes)
{
    step(d, (ru_event){.kind = RU_EV_LOCAL,
                       .what = word,
                       .value = about,
                       .data = data,
                       .size_bytes = size_bytes});
}

static void fit(drive *d, job *j)
{
    if (!j->dirty || d->failed != RU_OK) {
        return;
    }
    int64_t begin = ru_clock_cpu_ns();
    ru_arena_mark mark = ru_arena_mark_get(&d->arena);
    ru_status st = ru_perf_fit(j->samples, j->n_samples, &j->model.perf, &d->arena, &j->model.perf,
                               NULL, &d->err);
    ru_arena_rewind(&d->arena, mark);
    j->dirty = false;
    d->out->fits++;
    d->out->fit_s += (double)(ru_clock_cpu_ns() - begin) / second_ns;
    if (st != RU_OK) {
        stop(d, st);
    }
}

/* How fast the job truly is on what it has, and what its agent measures of it. */
static void report(drive *d, uint32_t i)
{
    job *j = &d->jobs[i];
    const ru_sched_job *s = &d->s.jobs[i];
    uint32_t parts[RU_ALLOC_PARTS_MAX], pollux = d->in->method == RU_ALLOC_POLLUX;
    for (uint32_t k = 0, at; k < s->n_parts; k++) {
        /* The published simulator lists the nodes of a job in the order in which it took them:
         * pollux by number, the others the emptiest first. Measured times depend on it. */
        for (at = k; !pollux && at > 0 && parts[at - 1] < s->parts[k].devices; at--) {
            parts[at] = parts[at - 1];
        }
        parts[at] = s->parts[k].devices;
    }
    double step, sync, batch = (double)s->replicas * j->local * (j->passes + 1.0);
    rui_app_speed(j->app, parts, s->n_parts, j->local, &step, &sync);
    rui_app_noise(j->app, batch, j->epoch, &j->model.sqr, &j->model.var);
    j->most = s->replicas > j->most ? s->replicas : j->most;
    bool seen = d->in->method != RU_ALLOC_POLLUX;
    for (uint32_t k = 0; !seen && k < j->n_samples; k++) {
        const ru_perf_sample *p = &j->samples[k];
        seen = p->nodes == s->n_parts && p->replicas == s->replicas && p->local == j->local;
    }
    if (!seen && j->n_samples < SAMPLES_MAX) {
        j->samples[j->n_samples++] =
            (ru_perf_sample){s->n_parts, s->replicas, j->local, step - sync, step};
        j->dirty = true;
    }
    double scale = batch / j->app->batch_first;
    double gain = (j->model.var + j->model.sqr) / (j->model.var / scale + j->model.sqr);
    if (d->in->blind) { /* no batch is too large */
        j->model.sqr = 0;
        j->model.var = 1;
    }
    double rate = gain / (step + j->passes * (step - sync));
    rate *= j->interfered ? 1 - d->in->slowed : 1;
    const ru_sched_report r = {.job = i, .rate = rate, .goal = rui_app_goal(j->app, j->epoch)};
    say(d, RU_SCHED_REPORT, 0, &r, sizeof r);
}

static void choose(drive *d, uint32_t i)
{
    job *j = &d->jobs[i];
    const ru_sched_job *s = &d->s.jobs[i];
    fit(d, j);
    if (j->model.batch == 0 && j->model.perf.overlap >= 1) {
        ru_goodput_choice c = ru_goodput_best(&j->model, s->n_parts, s->replicas);
        if (c.local > 0) {
            j->local = c.local;
            j->passes = c.passes;
        }
    }
}

static void reached(drive *d, uint32_t i)
{
    job *j = &d->jobs[i];
    if (++j->epoch < j->app->epochs) {
        choose(d, i);
        report(d, i);
        return;
    }
    double at = (double)d->s.jobs[i].since.ns / second_ns;
    d->out->jct_s[i] = at - d->in->rows[i].at_s;
    d->out->makespan_s = fmax(d->out->makespan_s, at);
    d->out->restarts += d->s.jobs[i].restarts;
    say(d, RU_SCHED_END, i, NULL, 0);
    if (++d->done == d->in->n_rows) {
        ru_sim_stop(d->sim);
    }
}

static void on_timer(void *self, uint64_t unused)
{
    drive *d = self;
    (void)unused;
    d->timer = 0;
    settle(d);
}

/* Everything that is due by now, then a timer for what comes next. */
static void settle(drive *d)
{
    told due[TOLD_MAX];
    for (;;) {
        step(d, (ru_event){.kind = RU_EV_TIMER, .what = RU_SCHED_TIMER});
        uint32_t n = d->n_told;
        memcpy(due, d->told, n * sizeof *due);
        for (uint32_t k = 0; k < n; k++) {
            if (due[k].word == RU_SCHED_GOAL) {
                reached(d, due[k].job);
            } else {
                report(d, due[k].job);
            }
        }
        if (n == 0) {
            break;
        }
    }
    ru_time next = d->next;
    if (d->timer != 0 && next.ns != d->timer_at.ns) {
        ru_sim_cancel(d->sim, d->timer);
        d->timer = 0;
    }
    if (d->timer == 0 && next.ns < INT64_MAX) {
        d->timer_at = next;
        d->timer = ru_sim_at(d->sim, next, on_timer, d, 0);
    }
}

static uint32_t facts_of(drive *d)
{
    uint32_t n = 0;
    bool pollux = d->in->method == RU_ALLOC_POLLUX;
    for (uint32_t i = 0; i < d->s.n_jobs; i++) {
        job *j = &d->jobs[i];
        if (d->s.jobs[i].phase == RU_SCHED_NONE) {
            continue;
        }
        fit(d, j);
        const rui_row *row = &d->in->rows[i];
        bool single = strcmp(j->app->name, "ncf") == 0; /* does not get faster by more */
        uint32_t most = pollux ? (j->most > 0 ? 2 * j->most : 1) : row->batch / j->app->local_min;
        ru_alloc_job *f = &d->facts[n];
        *f = (ru_alloc_job){.model = j->model,
                            .replicas_max = single || most < 1 ? 1
                                            : most < 64        ? most
                                                               : 64,
                            .replicas = row->replicas};
        ru_sched_facts(&d->s, i, d->s.now, f);
        /* A user gives epochs and samples: what is left of them is known, unlike its time. */
        double end = rui_app_goal(j->app, j->app->epochs - 1);
        f->left = d->in->told ? fmax(end - d->s.jobs[i].progress, 1) * j->app->batch_first : 0;
        if (!pollux) {
            double all = rui_app_steps(j->app, row->batch, j->app->epochs - 1);
            bool last = j->epoch + 1 >= j->app->epochs;
            f->remaining = last ? 1 : all - rui_app_steps(j->app, row->batch, j->epoch);
            f->step_s = j->steps_s;
            f->n_step = RU_ARRAY_LEN(j->steps_s);
        }
        d->of[n++] = i;
    }
    return n;
}

/* A job that spans nodes is slowed where another one does. */
static void interfere(drive *d)
{
    uint32_t spans[NODES_MAX] = {0};
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < d->s.n_jobs; i++) {
            const ru_sched_job *s = &d->s.jobs[i];
            d->jobs[i].interfered = false;
            for (uint32_t k = 0; s->n_parts > 1 && k < s->n_parts; k++) {
                spans[s->parts[k].node] += pass == 0;
                d->jobs[i].interfered = d->jobs[i].interfered || spans[s->parts[k].node] > 1;
            }
        }
    }
}

static void set_node(drive *d, uint32_t node, uint32_t devices)
{
    d->devices[node] = devices;
    const ru_sched_change c = {.node = node, .devices = devices, .market = RU_SCHED_OWNED};
    say(d, RU_SCHED_NODE, 0, &c, sizeof c);
}

/* Nodes come and go as the plan wants; who runs on one that goes stops. */
static void scale(drive *d, uint32_t wanted)
{
    for (; d->nodes < wanted; d->nodes++) {
        set_node(d, d->nodes, d->in->devices);
    }
    for (; d->nodes > wanted; d->nodes--) {
        set_node(d, d->nodes - 1, 0);
    }
}

static void decide(drive *d)
{
    ru_arena_mark mark = ru_arena_mark_get(&d->arena);
    ru_alloc_in in = {.jobs = d->facts,
                      .n_jobs = facts_of(d),
                      .devices = d->devices,
                      .n_nodes = d->nodes,
                      .power = d->in->power,
                      .restart_s = d->in->restart_s,
                      .hold_s = d->in->hold_s,
                      .decay = d->in->decay,
                      .decay_s = 14400,
                      .rush = 0.5,
                      .share_links = d->in->share_links,
                      .seed = d->in->seed + 1000003 * (uint64_t)d->out->rounds,
                      .tries = d->in->tries,
                      .time_price = d->in->time_price,
                      .util_low = d->in->util_low,
                      .util_high = d->in->util_high,
                      .nodes_min = 1,
                      .nodes_max = d->in->nodes,
                      .method = d->in->method};
    ru_alloc_plan p;
    int64_t begin = ru_clock_cpu_ns();
    ru_status st = ru_plan_alloc(&in, &d->arena, &d->arena, &p, &d->err);
    double took = (double)(ru_clock_cpu_ns() - begin) / second_ns;
    st = st == RU_OK && d->in->check ? ru_plan_alloc_check(&in, &p, &d->arena, &d->err) : st;
    if (st != RU_OK) {
        stop(d, st);
        return;
    }
    d->out->slowest_s = fmax(d->out->slowest_s, took);
    d->out->mean_round_s += took;
    d->out->rounds++;
    d->out->node_s += d->nodes * d->in->interval_s;
    d->out->used += p.used;
    const ru_sched_grants grants = {&p, d->of};
    say(d, RU_SCHED_PLAN, 0, &grants, sizeof grants);
    uint32_t wanted = p.nodes_wanted;
    interfere(d);
    for (uint32_t k = 0; k < p.n_jobs; k++) {
        uint32_t i = d->of[k];
        if (p.jobs[k].replicas > 0) {
            d->jobs[i].local = p.jobs[k].local;
            d->jobs[i].passes = p.jobs[k].passes;
        }
        if (d->s.jobs[i].phase == RU_SCHED_RUNS) {
            report(d, i);
        }
    }
    ru_arena_rewind(&d->arena, mark);
    scale(d, wanted);
}

static void on_round(void *self, uint64_t k)
{
    drive *d = self;
    settle(d);
    if (d->done < d->in->n_rows) {
        decide(d);
        settle(d);
        ru_time next = {(int64_t)((double)(k + 2) * d->in->interval_s * second_ns)};
        ru_sim_at(d->sim, next, on_round, d, k + 1);
    }
}

static void on_arrival(void *self, uint64_t k)
{
    drive *d = self;
    say(d, RU_SCHED_SUBMIT, (uint32_t)k, NULL, 0);
    if (d->in->at_once) {
        settle(d);
        decide(d);
        settle(d);
    }
}

/* Seconds of a step with the job's batch on 1.. packed devices, as measured. */
static void oracle(drive *d, job *j, uint32_t batch)
{
    for (uint32_t k = 1; k <= RU_ARRAY_LEN(j->steps_s); k++) {
        uint32_t parts[RU_ALLOC_PARTS_MAX], n = 0;
        for (uint32_t left = k; left > 0; left -= parts[n++]) {
            parts[n] = left < d->in->devices ? left : d->in->devices;
        }
        ru_goodput_choice c = ru_goodput_split(&j->model, k, batch);
        if (k == 1 && c.passes == 0) {
            c = (ru_goodput_choice){.local = (batch + 1) / 2, .passes = 1};
        }
        double step, sync;
        rui_app_speed(j->app, parts, n, c.local, &step, &sync);
        j->steps_s[k - 1] = step + c.passes * (step - sync);
    }
}

static ru_status prepare(drive *d, ru_err *err)
{
    const rui_cluster_in *in = d->in;
    int64_t *at_ns = RU_NEW(&d->arena, int64_t, in->n_rows);
    d->jobs = RU_NEW(&d->arena, job, in->n_rows);
    d->facts = RU_NEW(&d->arena, ru_alloc_job, in->n_rows);
    d->of = RU_NEW(&d->arena, uint32_t, in->n_rows);
    d->next.ns = INT64_MAX;
    if (at_ns == NULL || d->jobs == NULL || d->facts == NULL || d->of == NULL ||
        in->n_rows > RUI_ALLOC_JOBS || in->nodes > NODES_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "a workload of %u jobs (at most %d)", in->n_rows,
                       RUI_ALLOC_JOBS);
    }
    const ru_sched_spec spec = {in->n_rows,         in->nodes, (int64_t)(in->restart_s * second_ns),
                                (int64_t)second_ns, 0,         false};
    RU_TRY(ru_sched_init(&d->s, &spec, (ru_time){0}, &d->arena, err));
    for (uint32_t i = 0; i < in->n_rows; i++) {
        job *j = &d->jobs[i];
        const rui_app *a = &in->apps[in->rows[i].app];
        bool pollux = in->method == RU_ALLOC_POLLUX, single = strcmp(a->name, "ncf") == 0;
        /* just before a round of the same second, which sees it */
        at_ns[i] = (int64_t)fmax(in->rows[i].at_s * second_ns - 1, 0);
        j->app = a;
        j->model = (ru_goodput_model){.batch_first = a->batch_first,
                                      .batch_max = a->batch_max,
                                      .local_min = a->local_min,
                                      .local_max = a->local_max,
                                      .batch = !pollux  ? in->rows[i].batch
                                               : single ? a->batch_max
                                                        : 0};
        j->samples = RU_NEW(&d->arena, ru_perf_sample, SAMPLES_MAX);
        if (j->samples == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for the samples of %u jobs", in->n_rows);
        }
        if (!pollux) {
            oracle(d, j, in->rows[i].batch);
        }
    }
    scale(d, in->util_high > 0 || in->time_price > 0 ? 1 : in->nodes);
    ru_sim_feed(d->sim, at_ns, in->n_rows, on_arrival, d);
    ru_sim_at(d->sim, (ru_time){(int64_t)(in->interval_s * second_ns)}, on_round, d, 0);
    return RU_OK;
}

ru_status rui_cluster_run(const rui_cluster_in *in, rui_cluster_out *out, ru_err *err)
{
    drive d = {.in = in, .out = out};
    memset(out, 0, sizeof *out);
    ru_arena_init(&d.arena, 0);
    ru_arena_init(&d.memory, 0);
    ru_effects_init(&d.fx, &d.memory);
    RU_TRY(ru_sim_open(&(ru_sim_options){.seed = 1}, &d.sim, err));
    ru_status st = prepare(&d, err);
    st = st == RU_OK ? ru_sim_run(d.sim, (ru_time){INT64_MAX / 4}, err) : st;
    if (st == RU_OK && d.failed != RU_OK) {
        st = RU_FAIL(err, d.failed, "%s", d.err.text);
    }
    ru_sim_close(d.sim);
    ru_arena_fini(&d.memory);
    ru_arena_fini(&d.arena);
    RU_TRY(st);
    for (uint32_t i = 0; i < in->n_rows; i++) {
        out->mean_s += out->jct_s[i] / in->n_rows;
    }
    out->used /= out->rounds;
    out->mean_round_s /= out->rounds;
    out->fit_s /= out->fits > 0 ? out->fits : 1;
    return RU_OK;
}
