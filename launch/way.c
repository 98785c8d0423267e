#include "launch/way.h"

#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "run/ckpt.h"
#include "train/pipe/measure.h"
#include "train/pipe/units.h"
#include "train/worker/worker_pipe.h"

static uint32_t threads_of(const ru_job *job, uint32_t workers)
{
    uint32_t cores = ru_pool_cores();
    return job->train.threads > 0 ? job->train.threads : cores < workers ? 1 : cores / workers;
}

/* Data parallel or a pipeline, and its cut, by measured layers. */
static ru_status choose_way(ru_job *job, const ru_hosts_plan *plan, ru_arena *arena,
                            const char **asked, ru_err *err)
{
    uint32_t n = plan->workers_max;
    ru_pipe_layers l;
    ru_pipe_choice c;
    double bytes_per_s = job->train.pipeline.bytes_per_s;
    bytes_per_s = bytes_per_s > 0 ? bytes_per_s : 2e9;
    ru_status st = ru_pipe_measure(job, threads_of(job, n), &n, 1, arena, &l, err);
    if (st == RU_E_CONFIG && job->train.parallel == RU_PARALLEL_AUTO) { /* it has no cut */
        (void)fprintf(stderr, "trains data parallel: %s\n", err->text);
        job->train.parallel = RU_PARALLEL_DATA;
        return RU_OK;
    }
    RU_TRY(st);
    RU_TRY(ru_pipe_choose(&l, n, bytes_per_s, arena, &c, err));
    bool forced = job->train.parallel == RU_PARALLEL_PIPELINE;
    if (forced && c.n_cut == 0) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no cut of the %u measured layers keeps %u workers busy; use fewer workers, "
                       "or name the layers in train.pipeline.cut",
                       l.n, n);
    }
    bool pipeline = forced || c.pipeline;
    ru_text t = ru_text_arena(arena);
    if (c.n_cut > 0) {
        ru_text_putf(&t, "pipeline %.3g ms, cut at ", 1e3 * c.pipeline_s);
    } else {
        ru_text_put(&t, "no pipeline keeps all busy");
    }
    for (uint32_t k = 0; k < c.n_cut; k++) {
        ru_text_putf(&t, "%s%s", k > 0 ? ", " : "", c.cut[k]);
    }
    for (uint32_t k = 0; k <= c.n_cut && c.n_cut > 0 && c.n_cut + 1 < n; k++) {
        ru_text_putf(&t, "%s%lld", k > 0 ? "-" : ", workers ", (long long)c.workers[k]);
    }
    (void)fprintf(stderr,
                  "%u layers %s; predicted for a step of %u workers: data parallel %.3g ms, "
                  "%s (one worker: %.3g ms); trains %s\n",
                  l.n, job->train.pipeline.facts[0] != 0 ? "predicted" : "measured", n,
                  1e3 * c.data_s, t.p, 1e3 * c.single_s,
                  pipeline ? "as a pipeline" : "data parallel");
    *asked = pipeline ? c.asked : NULL;
    job->train.parallel = pipeline ? RU_PARALLEL_PIPELINE : RU_PARALLEL_DATA;
    job->train.pipeline.cut = (ru_conf_texts){.at = c.cut, .n = pipeline ? c.n_cut : 0};
    if (pipeline && c.n_cut + 1 < n) {
        job->train.pipeline.workers = (ru_conf_i64s){.at = c.workers, .n = c.n_cut + 1};
    }
    return RU_OK;
}

/* Which device has which layers, by measured units. */
static ru_status choose_devices(ru_job *job, uint32_t n, ru_arena *arena, const char **asked,
                                ru_err *err)
{
    ru_units_choice c;
    char single[64] = "does not fit";
    RU_TRY(ru_units_choose(job, threads_of(job, n), n, arena, &c, err));
    if (c.used == 1) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "one device takes the shortest step, %.3g ms for the %u measured layers; "
                       "leave out train.parallel, or name layers of other devices in "
                       "train.placed.devices, as in {branch2: 2}",
                       1e3 * c.step_s, c.n);
    }
    if (c.used < n) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "the shortest step of the %u measured layers takes %.3g ms on %u of %u "
                       "devices; start as many workers, or name the layers of each in "
                       "train.placed.devices",
                       c.n, 1e3 * c.step_s, c.used, n);
    }
    if (c.single_s > 0) {
        (void)snprintf(single, sizeof single, "%.3g ms", 1e3 * c.single_s);
    }
    (void)fprintf(stderr,
                  "%u layers measured; predicted for a step of %u devices: %.3g ms, %.3g MB "
                  "between them (one device: %s)\n",
                  c.n, n, 1e3 * c.step_s, 1e-6 * (double)c.sent_bytes, single);
    *asked = c.asked;
    job->train.placed.devices = c.devices;
    return RU_OK;
}

ru_status ru_way_check(ru_job *job, const ru_hosts_plan *plan, ru_arena *arena, const char **asked,
                       ru_err *err)
{
    bool automatic = job->train.parallel == RU_PARALLEL_AUTO;
    bool placed = job->train.parallel == RU_PARALLEL_PLACED;
    bool several = plan->hosts.n > 1 || plan->is_worker || plan->source == RU_HOSTS_TORCHRUN;
    bool range = plan->workers_min != plan->workers_max || plan->workers_max < 2;
    const char *against = several ? "has its workers on this machine; leave out --hosts and the "
                                    "variables of other launchers"
                          : range ? "needs a fixed number of at least 2 workers; start it with -w"
                                  : ru_pipe_job_against(job);
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
    if (placed) {
        RU_TRY(job->train.placed.devices.n == 0
                   ? choose_devices(job, plan->workers_max, arena, asked, err)
                   : RU_OK);
        return ru_pipe_job_check(job, plan->workers_max, err);
    }
    if (job->train.pipeline.cut.n == 0 && job->train.pipeline.workers.n > 0) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "train.pipeline.workers names workers of stages, but train.pipeline.cut names "
            "no stages; name both, or leave both out and Rubato chooses them");
    }
    if (automatic || job->train.pipeline.cut.n == 0) {
        RU_TRY(choose_way(job, plan, arena, asked, err));
    }
    return job->train.parallel == RU_PARALLEL_DATA ? RU_OK
                                                   : ru_pipe_job_check(job, plan->workers_max, err);
}

/* A stage or a device cannot be missing: when its worker is lost, all start again from the newest
 * checkpoint, as long as there is a newer one than the last time (`before`). */
static bool starts_again(ru_arena *arena, ru_train_options *to, const ru_launch_result *r,
                         int64_t *before)
{
    ru_ckpt_info info;
    if (to->job == NULL || !ru_pipe_job_is(to->job) || !r->lost || r->out == NULL ||
        ru_self_stop_asked() != 0 || ru_ckpt_find(r->out, arena, &info, NULL) != RU_OK ||
        info.at.step <= *before) {
        return false;
    }
    (void)fprintf(stderr, "all %s start again from the checkpoint after step %lld\n",
                  to->job->train.parallel == RU_PARALLEL_PLACED ? "devices" : "stages",
                  (long long)info.at.step);
    *before = info.at.step;
    to->out = r->out;
    to->resume = true;
    return true;
}

/* The folder is there: what was asked for its cut, for the worker that leads. */
typedef struct asked {
    ru_run_opened inner;
    const char *text, *file;
    ru_arena *arena;
} asked;

static ru_status put_asked(void *self, const char *out, ru_err *err)
{
    const asked *x = self;
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
    return x->inner.fn != NULL ? x->inner.fn(x->inner.self, out, err) : RU_OK;
}

ru_status ru_way_launch(const ru_launch_options *lo, ru_train_options *to, ru_arena *arena,
                        ru_launch_result *out, ru_err *err)
{
    int64_t before = -1;
    ru_status st;
    asked x = {.inner = to->opened, .text = to->cut_asked, .file = "pipe.json", .arena = arena};
    if (to->job != NULL && ru_pipe_job_is(to->job)) {
        bool placed = to->job->train.parallel == RU_PARALLEL_PLACED;
        x.file = placed ? "place.json" : x.file;
        to->opened = (ru_run_opened){.fn = put_asked, .self = &x};
    }
    ru_self_stop_watch();
    do {
        st = ru_launch(lo, arena, out, err);
    } while (st == RU_OK && starts_again(arena, to, out, &before));
    ru_self_stop_unwatch();
    to->opened = x.inner;
    return st;
}
