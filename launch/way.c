#include "launch/way.h"

#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "env/file/memfile.h"
#include "env/process/memory.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "launch/drift.h"
#include "run/ckpt.h"
#include "train/pipe/sets.h"
#include "train/pipe/ways.h"
#include "train/worker/worker_pipe.h"

static uint32_t threads_of(const ru_job *job, uint32_t workers)
{
    uint32_t cores = ru_pool_cores();
    return job->train.threads > 0 ? job->train.threads : cores < workers ? 1 : cores / workers;
}

/* Of n workers those of this machine. */
static uint32_t here_of(const ru_hosts *hosts, uint32_t n)
{
    uint32_t others = 0;
    for (uint32_t k = 0; k < hosts->n; k++) {
        others += hosts->at[k].here ? 0 : hosts->at[k].workers;
    }
    return n > others ? n - others : 1;
}

static void put_way(const ru_way *x, int64_t memory_bytes, ru_text *t)
{
    static const char *const called[RU_WAY_KINDS] = {"one worker", "data parallel", "pipeline",
                                                     "pipeline",   "pipeline",      "pipeline",
                                                     "pipeline",   "placed"};
    if (x->memory_bytes < 0) {
        ru_text_putf(t, "%s %s", called[x->kind],
                     x->memory_bytes == RU_PIPE_FIXED_BATCH ? "would divide the model's fixed batch"
                                                            : "needs more memory than is free");
        return;
    }
    ru_text_putf(t, "%s %.3g ms", called[x->kind], 1e3 * x->step_s);
    for (uint32_t k = 0; k < x->c.n_cut; k++) {
        ru_text_putf(t, "%s%s", k > 0 ? ", " : ", cut at ", x->c.cut[k]);
    }
    for (uint32_t k = 0; k <= x->c.n_cut && x->c.n_cut > 0 && x->c.n_cut + 1 < x->workers; k++) {
        ru_text_putf(t, "%s%lld", k > 0 ? "-" : ", workers ", (long long)x->c.workers[k]);
    }
    if (!x->fits) {
        ru_text_putf(t, ", which needs %lld of the %lld bytes of a worker",
                     (long long)x->memory_bytes, (long long)memory_bytes);
    }
}

/* How the way that is taken is called; data parallel also where another one is a little faster. */
static const char *taken_as(const ru_way *w, const ru_way *at, uint32_t n, ru_arena *arena)
{
    const char *as = NULL;
    for (uint32_t k = 0; k < n && w->kind == RU_WAY_DATA && as == NULL; k++) {
        bool faster = at[k].same && at[k].fits && at[k].step_s < w->step_s;
        as = faster ? ru_arena_printf(arena, "data parallel, because no other way gains %d %%",
                                      RU_WAY_GAIN)
                    : NULL;
    }
    return as != NULL                 ? as
           : w->c.n_cut > 0           ? "as a pipeline"
           : w->kind == RU_WAY_PLACED ? "placed"
                                      : "data parallel";
}

/* The way, and what it leaves open, in the job. */
static void take_way(ru_job *job, const ru_way *w, const ru_pipe_layers *layers, ru_way_choice *out)
{
    bool pipeline = w->c.n_cut > 0, placed = w->kind == RU_WAY_PLACED;
    out->asked = pipeline ? w->c.asked : placed ? w->placed.asked : NULL;
    out->layers = pipeline && w->c.n_cut + 1 == w->workers ? layers : NULL;
    out->step_s = w->step_s;
    job->train.parallel = pipeline ? RU_PARALLEL_PIPELINE
                          : placed ? RU_PARALLEL_PLACED
                                   : RU_PARALLEL_DATA;
    job->train.pipeline.cut = (ru_conf_texts){.at = w->c.cut, .n = w->c.n_cut};
    if (pipeline && w->c.n_cut + 1 < w->workers) {
        job->train.pipeline.workers = (ru_conf_i64s){.at = w->c.workers, .n = w->c.n_cut + 1};
    }
    if (placed) {
        job->train.placed.devices = w->placed.devices;
        job->train.placed.back = w->placed.back;
    }
}

/* Among all ways that the job may take, and a cut or a placement, by measured layers. */
static ru_status choose_among(ru_job *job, uint32_t n, uint32_t here, const ru_ways *ways,
                              ru_arena *arena, ru_way_choice *out, ru_err *err)
{
    ru_way at[RU_WAY_KINDS];
    uint32_t n_ways;
    double bytes_per_s = job->train.pipeline.bytes_per_s;
    int64_t memory = ru_units_share(job, here, arena);
    bool pipeline = job->train.parallel == RU_PARALLEL_PIPELINE, some = false;
    ru_text t = ru_text_arena(arena);
    RU_TRY(ru_ways_list(ways, n, bytes_per_s > 0 ? bytes_per_s : 2e9, memory, at, &n_ways, err));
    for (uint32_t k = 0; k < n_ways; k++) {
        if (at[k].same) {
            put_way(&at[k], memory, &t);
            ru_text_put(&t, ", ");
            some = some || !pipeline || at[k].c.n_cut > 0;
        }
    }
    const ru_way *w = ru_ways_best(at, n_ways, pipeline);
    if (w == NULL && some) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no way of %u workers fits into their memory: %.*s; lower train.batch, "
                       "raise train.accumulate or train.memory, or start more workers",
                       n, (int)(t.n > 2 ? t.n - 2 : 0), t.p);
    }
    ru_pipe_schedule schedule = (ru_pipe_schedule)job->train.pipeline.schedule;
    if (w == NULL && n > ways->layers.micro && schedule == RU_PIPE_SCHEDULE_2BW) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.pipeline.schedule is 2bw, and train.accumulate is %u, expected at "
                       "least %u for as many stages; raise it, or choose flush",
                       ways->layers.micro, n);
    }
    if (w == NULL) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no cut of the %u measured layers keeps %u workers busy; use fewer workers, "
                       "or name the layers in train.pipeline.cut",
                       ways->layers.n, n);
    }
    char single[64] = "does not fit";
    if (at[0].c.single_s > 0) { /* data parallel stands first */
        (void)snprintf(single, sizeof single, "%.3g ms", 1e3 * at[0].c.single_s);
    }
    (void)fprintf(stderr,
                  "%u layers %s; predicted for a step of %u workers: %s%.*s (one worker: %s); "
                  "trains %s\n",
                  ways->layers.n, job->train.pipeline.facts[0] != 0 ? "predicted" : "measured", n,
                  n_ways > 1 ? "" : "no pipeline keeps all busy, ", (int)(t.n > 2 ? t.n - 2 : 0),
                  t.p, single, taken_as(w, at, n_ways, arena));
    ru_pipe_layers *layers = RU_NEW(arena, ru_pipe_layers, 1);
    if (layers == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the layers");
    }
    *layers = ways->layers;
    take_way(job, w, layers, out);
    return RU_OK;
}

static ru_status choose_way(ru_job *job, uint32_t n, uint32_t here, ru_arena *arena,
                            ru_way_choice *out, ru_err *err)
{
    bool automatic = job->train.parallel == RU_PARALLEL_AUTO;
    ru_ways ways;
    ru_status st = ru_ways_open(job, NULL, automatic, threads_of(job, n), &n, 1, arena, &ways, err);
    if (st == RU_OK && ways.no_pipeline != NULL && !automatic) {
        st = RU_FAIL(err, RU_E_CONFIG, "%s", ways.no_pipeline);
    }
    if (st == RU_OK && ways.no_pipeline != NULL) {
        (void)fprintf(stderr, "trains data parallel: %s\n", ways.no_pipeline);
        job->train.parallel = RU_PARALLEL_DATA;
    } else if (st == RU_OK) {
        st = choose_among(job, n, here, &ways, arena, out, err);
    }
    ru_ways_close(&ways);
    ru_memory_trim(); /* the workers have it from now on */
    return st;
}

/* Which device has which layers, by measured or predicted units. */
static ru_status choose_devices(ru_job *job, uint32_t n, uint32_t here, ru_arena *arena,
                                ru_way_choice *out, ru_err *err)
{
    ru_units_choice c;
    char single[64] = "does not fit";
    const char *how = job->train.pipeline.facts[0] != '\0' ? "predicted" : "measured";
    RU_TRY(ru_units_choose(job, threads_of(job, n), n, here, arena, &c, err));
    ru_memory_trim(); /* the workers have it from now on */
    if (c.used == 1) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "one device takes the shortest step, %.3g ms for the %u %s layers; "
                       "leave out train.parallel, or name layers of other devices in "
                       "train.placed.devices, as in {branch2: 2}",
                       1e3 * c.step_s, c.n, how);
    }
    if (c.used < n) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the shortest step of the %u %s layers takes %.3g ms on %u of %u "
                       "devices; start as many workers, or name the layers of each in "
                       "train.placed.devices",
                       c.n, how, 1e3 * c.step_s, c.used, n);
    }
    if (c.single_s > 0) {
        (void)snprintf(single, sizeof single, "%.3g ms", 1e3 * c.single_s);
    }
    (void)fprintf(stderr,
                  "%u layers %s; predicted for a step of %u devices: %.3g ms, %.3g MB "
                  "between them (one device: %s)\n",
                  c.n, how, n, 1e3 * c.step_s, 1e-6 * (double)c.sent_bytes, single);
    *out = (ru_way_choice){.asked = c.asked, .step_s = c.step_s};
    job->train.placed.devices = c.devices;
    job->train.placed.back = c.back;
    return RU_OK;
}

ru_status ru_way_check(ru_job *job, const ru_hosts_plan *plan, ru_arena *arena, ru_way_choice *out,
                       ru_err *err)
{
    bool automatic = job->train.parallel == RU_PARALLEL_AUTO;
    bool placed = job->train.parallel == RU_PARALLEL_PLACED;
    bool several = plan->is_worker || plan->source == RU_HOSTS_TORCHRUN;
    uint32_t begin = plan->workers_min; /* of MIN:MAX; others may join */
    bool range = automatic && plan->workers_min != plan->workers_max;
    const char *against = several ? "is started by one command; leave out the variables of other "
                                    "launchers, or name all machines with --hosts"
                          : range ? "begins with a fixed number of workers; start it with -w N"
                          : begin < 2 ? "needs at least 2 workers; start it with -w"
                                      : ru_pipe_job_against(job);
    if (job->train.pipeline.recompute && job->train.parallel != RU_PARALLEL_PIPELINE) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.recompute is for pipelines; leave it out, or set "
                       "train.parallel: pipeline");
    }
    if (job->train.parallel == RU_PARALLEL_DATA) {
        return RU_OK;
    }
    if (automatic && against != NULL) { /* nothing to choose */
        (void)fprintf(stderr, "trains data parallel: a pipeline %s\n", against);
        job->train.parallel = RU_PARALLEL_DATA;
        return RU_OK;
    }
    if (against != NULL) {
        return RU_FAIL(err, RU_E_CONFIG, "train.parallel is %s, and %s %s, or train data parallel",
                       placed ? "placed" : "pipeline", placed ? "a placed step" : "a pipeline",
                       against);
    }
    if (placed && job->train.placed.devices.n == 0 && job->train.placed.back.n > 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.placed.back names an order of layers, but train.placed.devices names "
                       "no devices; name both, or leave both out and Rubato chooses them");
    }
    if (placed) {
        RU_TRY(job->train.placed.devices.n == 0
                   ? choose_devices(job, begin, here_of(&plan->hosts, begin), arena, out, err)
                   : RU_OK);
        return ru_pipe_job_check(job, begin, err);
    }
    if (job->train.pipeline.cut.n == 0 && job->train.pipeline.workers.n > 0) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "train.pipeline.workers names workers of stages, but train.pipeline.cut names "
            "no stages; name both, or leave both out and Rubato chooses them");
    }
    if (automatic || job->train.pipeline.cut.n == 0) {
        RU_TRY(choose_way(job, begin, here_of(&plan->hosts, begin), arena, out, err));
    }
    return job->train.parallel == RU_PARALLEL_DATA ? RU_OK : ru_pipe_job_check(job, begin, err);
}

/* The folder is there: what was asked for its cut, for the worker that leads; and the checkpoint
 * that it sends to those of other hosts, which need no folder. */
typedef struct asked {
    ru_run_opened inner;
    const char *text, *file;
    ru_launch_options *with;
    ru_arena *arena;
} asked;

static ru_status put_asked(void *self, const char *out, ru_err *err)
{
    const asked *x = self;
    ru_launch_options *with = x->with;
    ru_ckpt_info info;
    const char *dir = ru_path_join(x->arena, out, "plans");
    const char *path = dir != NULL ? ru_path_join(x->arena, dir, x->file) : NULL;
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a path");
    }
    if (x->text != NULL) {
        RU_TRY(ru_dir_make(dir, err));
        RU_TRY(ru_file_own(path, x->text, (int64_t)strlen(x->text), err));
    } else if (ru_path_exists(path)) { /* of another cut */
        RU_TRY(ru_path_remove(path, err));
    }
    if (with->hosts != NULL && with->train->resume && !with->again &&
        ru_ckpt_find(out, x->arena, &info, NULL) == RU_OK) {
        with->after = info.at.step;
    }
    return x->inner.fn != NULL ? x->inner.fn(x->inner.self, out, err) : RU_OK;
}

/* Losses one after the other between which neither a newer state nor a further step came: then the
 * job goes on without the worker, and at last it ends. */
enum { FEWER_MAX = 5, LOSSES_MAX = 10, EARLY_MAX = 3 /* no step yet: too small a machine */ };

/* Where the workers of a pipeline or placed step went on the last time, and the sets that they
 * wrote since. */
typedef struct losses {
    int fd;               /* -1: none are kept */
    int64_t before, told; /* the furthest step so far */
    uint32_t n;
    uint32_t joined; /* workers that take part, and joined when the job ran */
    ru_job job;      /* as it was planned again */
    ru_hosts hosts;  /* others, without those that are gone; workers: theirs */
    ru_host at[RU_HOSTS_MAX];
    rui_drift drift;
    const ru_job *earlier; /* with the plan before another one; NULL: that one has run */
    ru_job earlier_job;
    const char *earlier_asked;
    uint32_t earlier_n, earlier_joined;
    int64_t earlier_told; /* the last step then */
} losses;

/* What was chosen by layers, without a bound of memory that another plan might break, and without
 * layers that do not learn. */
static void watch_way(losses *x, const ru_job *job, uint32_t workers, const ru_way_choice *c)
{
    const ru_job_pipeline *p = &job->train.pipeline;
    bool is =
        c != NULL && job->train.memory_bytes == 0 && job->train.groups.n == 0 && p->facts[0] == 0;
    bool cut = is && c->layers != NULL;
    bool placed = is && c->layers == NULL && job->train.parallel == RU_PARALLEL_PLACED;
    double bytes_per_s = p->bytes_per_s > 0 ? p->bytes_per_s : 2e9;
    x->drift = (rui_drift){.arena = x->drift.arena,
                           .layers = cut ? c->layers : NULL,
                           .asked = placed ? c->asked : NULL,
                           .now = {.workers = workers,
                                   .cut = p->cut,
                                   .devices = job->train.placed.devices,
                                   .step_s = is ? c->step_s : 0},
                           .bytes_per_s = bytes_per_s,
                           .spares = x->drift.spares,
                           .most = x->drift.most,
                           .sets = x->fd};
}

static bool told_step(void *self, const char *out, double step_s)
{
    return rui_drift_step(self, out, step_s);
}

static void told_spares(void *self, uint32_t n)
{
    rui_drift_spares(self, n);
}

/* All ended to take another plan. */
static bool recut(ru_train_options *to, ru_launch_options *with, losses *x, asked *ask,
                  const ru_launch_result *r)
{
    rui_drift *d = &x->drift;
    const rui_next *next = &d->next;
    bool is =
        next->is && r->n_lost == 0 && ru_sets_step(x->fd) > next->set && ru_self_stop_asked() == 0;
    if (is) {
        ru_job_train *t = &x->job.train;
        x->earlier_job = *to->job;
        x->earlier = &x->earlier_job;
        x->earlier_asked = ask->text;
        x->earlier_n = with->n_max;
        x->earlier_joined = x->joined;
        x->earlier_told = x->told;
        x->job = *to->job;
        t->pipeline.cut = next->cut;
        t->pipeline.workers = next->stage_workers;
        t->placed.devices = next->devices;
        t->placed.back = next->back;
        to->job = &x->job;
        ask->text = next->asked;
        x->joined += next->workers - with->n_max;
        with->n_max = next->workers;
        d->layers = next->stage_workers.n > 0 ? NULL : d->layers;
        d->asked = d->asked != NULL ? next->asked : NULL;
        d->now = *next;
    }
    return is;
}

/* Workers that cannot start with another cut go on with the earlier one, and look for no further
 * one: records would lead to the same. True: they end without a step of it. */
static bool earlier_cut(ru_train_options *to, ru_launch_options *with, losses *x, asked *ask,
                        const ru_launch_result *r)
{
    const ru_job *was = x->earlier;
    x->earlier = NULL;
    if (was == NULL || (r->code == 0 && !r->lost) || r->step > x->earlier_told ||
        r->no_host != NULL || ru_self_stop_asked() != 0) {
        return false;
    }
    (void)fprintf(stderr, "no step ended with the other %s; the job goes back to the earlier one",
                  was->train.parallel == RU_PARALLEL_PLACED ? "placement" : "cut");
    for (uint32_t k = 0; k < was->train.pipeline.cut.n; k++) {
        (void)fprintf(stderr, "%s%s", k > 0 ? ", " : ", at ", was->train.pipeline.cut.at[k]);
    }
    (void)fputc('\n', stderr);
    x->job = *was;
    to->job = &x->job;
    ask->text = x->earlier_asked;
    with->n_max = x->earlier_n;
    x->joined = x->earlier_joined;
    x->drift.layers = NULL;
    x->drift.asked = NULL;
    x->drift.next.is = false;
    return true;
}

/* Workers that joined may have less memory, or lack what the others have: when no step ends with
 * them, the job goes on without them. True: it ended so. */
static bool without_joined(losses *x, ru_launch_result *r)
{
    if (x->joined == 0 || r->code == 0 || r->lost || r->step > x->told || r->no_host != NULL ||
        ru_self_stop_asked() != 0) {
        return false;
    }
    (void)fprintf(stderr, "no step ended with the workers that joined\n");
    r->no_spare = true;
    return true;
}

/* The hosts on which others start workers, in memory of `x`. */
static void list_hosts(losses *x, ru_launch_options *with)
{
    for (uint32_t k = 0; with->hosts != NULL && k < with->hosts->n; k++) {
        const ru_host *h = &with->hosts->at[k];
        x->at[k] = *h;
        x->hosts.workers += h->here ? 0 : h->workers;
        x->hosts.n = k + 1;
    }
    x->hosts.at = x->at;
    with->hosts = with->hosts != NULL ? &x->hosts : NULL;
}

/* The last one with a worker: there is one. */
static ru_host *last_host(losses *x)
{
    uint32_t k = x->hosts.n;
    while (k > 1 && (x->at[k - 1].here || x->at[k - 1].workers == 0)) {
        k--;
    }
    return &x->at[k - 1];
}

/* How many workers it had. */
static uint32_t drop_host(losses *x, const char *name)
{
    for (uint32_t k = 0; k < x->hosts.n && name != NULL; k++) {
        uint32_t n = x->at[k].workers;
        if (!x->at[k].here && n > 0 && strcmp(x->at[k].name, name) == 0) {
            x->at[k].workers = 0;
            x->hosts.workers -= n;
            return n;
        }
    }
    return 0;
}

/* Who has the places when all start again: the workers of other hosts, those of this one that were
 * not lost, then whoever joined; a new process those that are left, unless `fewer`. Returns how
 * many workers that makes. */
static uint32_t seat(ru_launch_options *with, losses *x, const ru_launch_result *r, bool fewer)
{
    bool one = r->n_lost > 0 || r->no_host != NULL; /* else who joined, or nobody knows who */
    uint32_t lost = one || x->joined > 0 ? r->n_lost : 1;
    uint32_t there = x->hosts.workers, own = with->n_start > lost ? with->n_start - lost : 1;
    uint32_t joined = x->joined + r->spares - (!one && x->joined > 0), left;
    joined = r->no_spare ? 0 : joined;
    left = with->n_max > there + own ? with->n_max - there - own : 0;
    x->joined = joined < left ? joined : left;
    if (x->joined > 0) {
        (void)fprintf(stderr, "%u of the workers joined when the job ran\n", x->joined);
    }
    uint32_t left_over = there + with->n_start + x->joined; /* also where one of another host was */
    left_over = left_over > lost + 1 ? left_over - lost : 1;
    if (fewer && left_over < with->n_max) {
        return left_over;
    }
    with->n_start = with->n_max - there - x->joined;
    return with->n_max;
}

/* Fewer workers divide the model anew: at most n. Tensors have names, so sets and checkpoints suit
 * any cut. One that is left has a single stage. */
static void plan_fewer(ru_arena *arena, ru_train_options *to, ru_launch_options *with, losses *x,
                       asked *ask, uint32_t n)
{
    ru_status st = RU_E_INFEASIBLE;
    for (n++; st != RU_OK && n > 1;) {
        ru_err err = {0};
        ru_job job = *to->job;
        bool placed = job.train.parallel == RU_PARALLEL_PLACED;
        job.train.pipeline.cut = (ru_conf_texts){0};
        job.train.pipeline.workers = (ru_conf_i64s){0};
        job.train.placed.devices = (ru_conf_pairs){0};
        job.train.placed.back = (ru_conf_texts){0};
        ru_way_choice c = {0};
        if (--n == 1) {
            job.train.parallel = RU_PARALLEL_PIPELINE;
            st = RU_OK;
        } else {
            uint32_t here = here_of(&x->hosts, n);
            st = placed ? choose_devices(&job, n, here, arena, &c, &err)
                        : choose_way(&job, n, here, arena, &c, &err);
            st = st == RU_OK ? ru_pipe_job_check(&job, n, &err) : st;
        }
        if (st != RU_OK) {
            (void)fprintf(stderr, "%u workers cannot go on: %s\n", n, err.text);
            continue;
        }
        (void)fprintf(stderr, "the job goes on with %u worker%s, which divide%s the model anew\n",
                      n, n == 1 ? "" : "s", n == 1 ? "s" : "");
        x->job = job;
        to->job = &x->job;
        ask->text = c.asked;
        watch_way(x, &job, n, &c);
        ask->file = job.train.parallel == RU_PARALLEL_PLACED ? "place.json" : "pipe.json";
        with->n_max = n;
        while (x->hosts.workers >= n) {
            last_host(x)->workers--;
            x->hosts.workers--;
        }
        x->joined = x->hosts.workers + x->joined < n ? x->joined : n - 1 - x->hosts.workers;
        with->n_start = n - x->hosts.workers - x->joined;
    }
}

/* Whoever joined takes the place of whoever was lost, else a new process does, unless the job wants
 * none or several of them were lost without a further step. */
static void replace(ru_arena *arena, ru_train_options *to, ru_launch_options *with, losses *x,
                    asked *ask, const ru_launch_result *r)
{
    bool stops = ru_self_stop_asked() != 0; /* they start to save */
    bool spare = to->job->train.pipeline.spare, gone = drop_host(x, r->no_host) > 0;
    bool replaced = !gone && (stops || (spare && x->n < FEWER_MAX));
    uint32_t n = seat(with, x, r, !replaced);
    if (n < with->n_max) {
        plan_fewer(arena, to, with, x, ask, n);
    }
}

/* A stage or a device cannot be missing: when its worker is lost, all start again from the newest
 * set or checkpoint, or from the beginning; a few times without a newer one. After a stop signal
 * only to save what the set has. */
static bool starts_again(ru_arena *arena, ru_train_options *to, const ru_launch_result *r,
                         losses *x)
{
    ru_ckpt_info info;
    if (to->job == NULL || !ru_pipe_job_is(to->job) || !r->lost || r->out == NULL) {
        return false;
    }
    ru_status found = ru_ckpt_find(r->out, arena, &info, NULL);
    bool saved = found == RU_OK;
    int64_t saved_step = saved ? info.at.step : 0, set = x->fd >= 0 ? ru_sets_step(x->fd) : 0;
    int64_t step = set > saved_step ? set : saved_step;
    const char *all = to->job->train.parallel == RU_PARALLEL_PLACED ? "devices" : "stages";
    x->n = step > x->before || r->step > x->told ? 0 : x->n + 1;
    x->told = r->step > x->told ? r->step : x->told;
    bool stops = ru_self_stop_asked() != 0 && set <= saved_step; /* nothing is there to be saved */
    if (stops || (!saved && found != RU_E_MISSING)) {            /* damaged: no way on */
        return false;
    }
    if (x->n >= (x->told > 0 || step > 0 ? LOSSES_MAX : EARLY_MAX)) {
        (void)fprintf(stderr,
                      "%u losses of workers followed each other without a further step; look into "
                      "%s/log.* for the cause, then continue with --resume\n",
                      x->n, r->out);
        return false;
    }
    if (set > saved_step) {
        (void)fprintf(stderr, "all %s start again from their copies in memory after step %lld\n",
                      all, (long long)step);
    } else if (saved) {
        (void)fprintf(stderr, "all %s start again from the checkpoint after step %lld\n", all,
                      (long long)step);
    } else {
        (void)fprintf(stderr, "all %s start again from the beginning: there is no checkpoint yet\n",
                      all);
    }
    x->before = step;
    to->out = r->out;
    to->dir_made = to->resume = true;
    return true;
}

ru_status ru_way_launch(const ru_launch_options *lo, ru_train_options *to,
                        const ru_way_choice *choice, ru_arena *arena, ru_launch_result *out,
                        ru_err *err)
{
    losses lost = {.fd = -1, .before = -1};
    char sets[RU_MEMFILE_PATH], token[2 * RU_TOKEN_BYTES + 1];
    ru_launch_options with = *lo;
    const ru_job *job = to->job;
    ru_status st;
    asked x = {.inner = to->opened,
               .text = choice != NULL ? choice->asked : NULL,
               .file = "pipe.json",
               .with = &with,
               .arena = arena};
    if (to->job != NULL && ru_pipe_job_is(to->job)) {
        bool placed = to->job->train.parallel == RU_PARALLEL_PLACED;
        if (lo->hosts != NULL && lo->hosts->n > 1 && !job->train.pipeline.spare) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.spare is false, but on several hosts the place of a lost worker "
                           "is always taken; leave it out, or start on one machine");
        }
        RU_TRY(ru_memfile_share(&lost.fd, sets, err));
        ru_token_make(token); /* who joined has it whenever all start again */
        with.token = with.token != NULL ? with.token : token;
        with.sets = sets;
        with.parts = true;
        x.file = placed ? "place.json" : x.file;
        list_hosts(&lost, &with);
        lost.drift.arena = arena;
        lost.drift.most = lo->n_min > 1 ? lo->n_max : RU_WORKERS_MAX;
        with.n_max = lo->n_min > 1 ? lo->n_min : lo->n_max; /* of MIN:MAX */
        with.n_start = with.n_start < with.n_max ? with.n_start : with.n_max;
        with.n_min = 1;
        watch_way(&lost, job, with.n_max, choice);
        with.told_step = told_step;
        with.told_spares = told_spares;
        with.self = &lost.drift;
        to->opened = (ru_run_opened){.fn = put_asked, .self = &x};
    }
    ru_self_stop_watch();
    rui_drift_begin(&lost.drift);
    st = ru_launch(&with, arena, out, err);
    while (st == RU_OK) {
        bool back = earlier_cut(to, &with, &lost, &x, out);
        out->lost = out->lost || back || without_joined(&lost, out);
        if (!starts_again(arena, to, out, &lost)) {
            break;
        }
        with.again = true;
        with.told = out->step;
        with.told_eval = out->eval_step;
        with.at = out->at;
        if (!back && !recut(to, &with, &lost, &x, out)) {
            replace(arena, to, &with, &lost, &x, out);
        }
        with.spares = lost.joined;
        bool far = with.hosts != NULL || lost.joined > 0; /* others may not have the folder */
        with.after = far ? lost.before : 0;
        rui_drift_begin(&lost.drift);
        st = ru_launch(&with, arena, out, err);
    }
    to->job = job;
    ru_self_stop_unwatch();
    ru_memfile_close(lost.fd);
    to->opened = x.inner;
    return st;
}
