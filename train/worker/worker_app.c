#include "train/worker/worker_app.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/str.h"
#include "comm/member/among.h"
#include "env/fault.h"
#include "env/process/self.h"
#include "train/app/call.h"
#include "train/worker/worker_app_impl.h"

enum { STREAMS_MAX = 1 << 14, SHARDS = 16 };

/* -- news ----------------------------------------------------------------------------------------
 */

static double objective(const rui_app_worker *w, const ru_engine_news *n)
{
    return ru_app_call_objective(w->opt->file->ops, w->self, n->clock, n->sums, n->told);
}

static void put_step(rui_app_worker *w, uint32_t clock, double loss, int64_t took_ns)
{
    const ru_run_report_step s =
        ru_app_data_step(&w->data, w->state.shape.pieces, clock, loss, took_ns);
    ru_err err;
    if (ru_run_report_step_put(w->tells.report, &s, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "report", "%s", err.text);
    }
}

/* A line for each clock up to this one that who led before closed and had no time to tell; its sums
 * are gone with it. */
static void tell_missing(rui_app_worker *w, int64_t closed)
{
    rui_app_report_open(w);
    bool any = w->tells.report != NULL && ru_run_report_goes_on(w->tells.report);
    for (int64_t c = any ? ru_run_report_told(w->tells.report) + 1 : closed + 1; c <= closed; c++) {
        put_step(w, (uint32_t)c, RU_NAN, 0);
    }
}

static void on_clock(rui_app_worker *w, const ru_engine_news *n, ru_time now)
{
    uint32_t clock = n->clock + 1;
    double v = objective(w, n);
    w->plans.clocks++;
    w->run.left_out += n->left_out;
    w->run.objective = isfinite(v) ? v : w->run.objective;
    w->run.clock = clock;
    w->run.items = ru_app_data_items(&w->data, w->state.shape.pieces, clock);
    int64_t took_ns = now.ns - w->run.clock_at.ns;
    w->run.clock_at = w->run.worked_at = now;
    tell_missing(w, n->clock);
    if (w->tells.report != NULL && clock > w->run.told) {
        put_step(w, clock, v, took_ns);
    }
    w->run.told = clock > w->run.told ? clock : w->run.told;
    if (ru_app_data_reached(&w->data, w->run.objective, &w->run.metrics)) {
        w->run.target = true;
    }
}

static void on_saved(rui_app_worker *w, const ru_engine_news *n)
{
    rui_app_command c = {.kind = RUI_APP_EXPORT, .at = n->ckpt};
    w->exports++;
    rui_app_post(w, &c);
}

static void find_number(rui_app_worker *w)
{
    const ru_view *v = ru_member_view(ru_node_member(w->shell.timers.node));
    const ru_member_info *m = ru_member_among(v->at, v->n, w->shell.id);
    if (m != NULL) {
        ru_shell_number(&w->shell, m->number, false);
    }
}

static void end_soon(rui_app_worker *w, ru_time now)
{
    if (w->shell.ended && w->exports == 0) {
        ru_shell_bye(&w->shell, 0, now);
    }
}

static void news(void *self, const ru_engine_news *n, ru_time now)
{
    rui_app_worker *w = self;
    ru_engine_facts f;
    ru_engine_facts_get(w->engine, &f);
    switch (n->kind) {
    case RU_ENGINE_CLOSED:
        ru_tracing_updated(&w->shell.tracing, (int64_t)n->clock - 1, now);
        ru_tracing_step(&w->shell.tracing, n->clock, now);
        break;
    case RU_ENGINE_CLOCKED:
        on_clock(w, n, now);
        break;
    case RU_ENGINE_SAVED:
        on_saved(w, n);
        break;
    case RU_ENGINE_SETTLED:
        rui_app_settled(w, n, now);
        break;
    case RU_ENGINE_MOVED:
        ru_log(RU_LOG_DEBUG, "train", "moved", "object %u of %lld bytes came in %.3f ms", n->object,
               (long long)n->bytes, (double)n->took_ns * 1e-6);
        break;
    case RU_ENGINE_LOGGED:
        rui_app_logged(w, n);
        ru_log(RU_LOG_DEBUG, "train", "logged", "clock %u: %lld bytes in %.3f ms", n->clock,
               (long long)n->bytes, (double)n->took_ns * 1e-6);
        break;
    case RU_ENGINE_REBUILT:
        ru_log(RU_LOG_DEBUG, "train", "rebuilt",
               "object %u in %.3f ms: %lld rows, %lld from caches, %lld from the running "
               "checkpoint, %lld from a checkpoint; together %lld clocks behind",
               n->object, (double)n->took_ns * 1e-6, (long long)n->rebuilt->rows,
               (long long)n->rebuilt->cached, (long long)n->rebuilt->logged,
               (long long)n->rebuilt->saved, (long long)n->rebuilt->late);
        break;
    case RU_ENGINE_RESTORED:
        w->run.clock_at = now;
        if (w->run.items == 0) {
            w->run.clock = n->clock;
            w->run.items = w->run.items_first =
                ru_app_data_items(&w->data, w->state.shape.pieces, n->clock);
        }
        if (f.leads && f.restores > 1) {
            rui_app_event(w, n->clock,
                          n->ckpt.generation == RU_ENGINE_COUNTED ? "recounted" : "restored", 0,
                          NULL);
            ru_tracing_lost(&w->shell.tracing, now);
        }
        if (w->shell.number == 0) {
            find_number(w);
        }
        break;
    case RU_ENGINE_ENDED:
        if (f.leads && n->status == RU_OK) { /* also a run that had no clock left */
            tell_missing(w, f.closed);
        }
        if (w->run.left_out > 0) {
            ru_log(RU_LOG_INFO, "train", "left_out",
                   "%lld times a clock closed without an executor, whose changes were dropped",
                   (long long)w->run.left_out);
        }
        ru_log(RU_LOG_INFO, "train", "moves", "%u executors and shards came from other workers",
               f.moves);
        w->log_done = f.leads && n->status == RU_OK;
        ru_shell_end(&w->shell, n->status, n->text, now);
        end_soon(w, now);
        break;
    }
    rui_app_trace_news(w, n, now);
}

void rui_app_exported(rui_app_worker *w, const rui_app_command *c)
{
    w->exports--;
    w->run.worked_at = ru_clock_now();
    w->export_err = (ru_err){0};
    if (c->status != RU_OK) {
        bool ends = c->status == RU_E_DATA || c->status == RU_E_USER; /* the job, with it */
        ru_log(ends ? RU_LOG_DEBUG : RU_LOG_ERROR, "train", "checkpoint", "%s", c->err.text);
        w->export_err = c->err;
    } else {
        rui_app_event(w, c->at.clock, "checkpoint", 0, NULL);
        ru_err err;
        if (c->metrics.n > 0) {
            w->run.metrics = c->metrics;
            if (w->tells.report != NULL &&
                ru_run_report_eval(w->tells.report, c->at.clock,
                                   c->at.clock / w->state.shape.pieces, &c->metrics, c->eval_ns,
                                   &err) != RU_OK) {
                ru_log(RU_LOG_WARN, "train", "report", "%s", err.text);
            }
        }
    }
    end_soon(w, w->run.worked_at);
}

static void log_line(void *self, int level, const char *line, ru_time now)
{
    (void)self;
    (void)now;
    ru_log(level == RU_LOG_INFO ? RU_LOG_DEBUG : (ru_log_level)level, "train", "member", "%s",
           line);
}

/* -- opening -------------------------------------------------------------------------------------
 */

static ru_status open_data(rui_app_worker *w, ru_err *err)
{
    const ru_app_job_file *f = w->opt->file;
    RU_TRY(ru_app_data_open(f, w->arena, &w->data, err));
    const ru_app_setup setup = ru_app_data_setup(&w->data);
    RU_TRY(ru_app_call_open(f->ops, &setup, &w->self, err));
    w->app_open = true;
    RU_TRY(ru_app_state_init(&w->state, f->ops, w->self, setup.executors, setup.rows, setup.seed,
                             err));
    w->run.parameters = ru_app_state_parameters(&w->state);
    w->part = RU_NEW(w->arena, int64_t, w->data.executors + 1);
    if (w->part == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    ru_sparse_cut(w->data.train, w->data.executors, w->part);
    if (w->opt->worker->shell.join == NULL) { /* mistakes in them end the job before it begins */
        RU_TRY(ru_app_data_test(&w->data, err));
    }
    int64_t all =
        f->job->train.epochs > 0 ? f->job->train.epochs * w->state.shape.pieces : UINT32_MAX / 2;
    all = f->job->train.steps > 0 && f->job->train.steps < all ? f->job->train.steps : all;
    w->run.clocks = all > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)all;
    return RU_OK;
}

/* What all workers must share: the job without the comments that say where each value is from. */
static const char *agreed(rui_app_worker *w)
{
    ru_hasher h;
    ru_str rest = ru_str_c(w->opt->file->yaml), line;
    ru_hasher_init(&h);
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t n = 0;
        while (n < line.n && (line.p[n] != '#' || n == 0 || line.p[n - 1] != ' ')) {
            n++;
        }
        while (n > 0 && line.p[n - 1] == ' ') {
            n--;
        }
        ru_hasher_put(&h, line.p, n);
        ru_hasher_put(&h, "\n", 1);
    }
    char job[33], build[RU_SELF_BUILD_BYTES];
    ru_self_build(build);
    ru_hash128_text(ru_hasher_get(&h), job);
    return ru_arena_printf(w->arena,
                           "program %s\nprogram-build %.16s\njob %s\ndata.rows %lld\ndata.cols "
                           "%lld\ndata.entries %lld\n",
                           RU_VERSION, build, job, (long long)ru_sparse_rows(w->data.train),
                           (long long)ru_sparse_cols(w->data.train),
                           (long long)ru_sparse_entries(w->data.train));
}

static ru_status open_node(rui_app_worker *w, ru_err *err)
{
    const ru_train_options *o = &w->opt->worker->train;
    const ru_shell_node_options no = {.capacity = w->n_threads,
                                      .agreed = agreed(w),
                                      .xfers_max = STREAMS_MAX,
                                      .buffer_bytes = 64 << 20,
                                      .out = o->out,
                                      .yaml = w->opt->file->yaml,
                                      .recorder = w->recorder,
                                      .rank = o->rank,
                                      .log = log_line};
    return ru_shell_node(&w->shell, &no, err);
}

static ru_recover_method recover_of(uint32_t method)
{
    return method == RU_APP_RECOVER_PARTIAL ? RU_RECOVER_PARTIAL
           : method == RU_APP_RECOVER_RESET ? RU_RECOVER_RESET
                                            : RU_RECOVER_NEWEST;
}

_Static_assert((int)RU_APP_STAGES_THREE == (int)RU_STAGE_THREE, "methods of plan/stage");

static ru_engine_stages stages_of(const ru_app_job_stages *s)
{
    bool off = s->method == RU_APP_STAGES_OFF;
    return (ru_engine_stages){.method = off ? RU_ENGINE_STAGES_OFF : RU_ENGINE_STAGES + s->method,
                              .notice_ns = s->notice_ns,
                              .ratio_two = s->r12,
                              .ratio_three = s->r23};
}

static ru_status open_engine(rui_app_worker *w, ru_err *err)
{
    const ru_worker_options *o = w->opt->worker;
    const ru_app_job *job = w->opt->file->job;
    const int64_t memory = ru_self_memory_bytes() / 2;
    const ru_engine_options eo = {.ops = w->opt->file->ops,
                                  .app = w->self,
                                  .shape = &w->state.shape,
                                  .part = w->part,
                                  .shards = SHARDS,
                                  .block_bytes = job->recovery.block,
                                  .moves = job->clocks.moves,
                                  .clocks = w->run.clocks,
                                  .driver = job->clocks.order,
                                  .slack = job->clocks.staleness,
                                  .stragglers = job->clocks.stragglers,
                                  .backup = job->clocks.backup,
                                  .stages = stages_of(&job->stages),
                                  .save_ns = job->checkpoint.every_ns,
                                  .partial = job->recovery.method != RU_APP_RECOVER_ROLLBACK,
                                  .recover = recover_of(job->recovery.method),
                                  .saves = {.method = job->recovery.save,
                                            .fraction = job->recovery.fraction,
                                            .clocks = job->recovery.clocks,
                                            .cost_max = job->recovery.cost},
                                  .from = w->from,
                                  .founders = o->founders,
                                  .device = &rui_app_device,
                                  .device_self = w,
                                  .member = ru_node_member(w->shell.timers.node),
                                  .chan = ru_node_chan(w->shell.timers.node),
                                  .self = w->shell.id,
                                  .peers_max = w->tells.crew_max,
                                  .memory_bytes = memory > RU_ENGINE_MEMORY ? memory : 0,
                                  .recorder = w->recorder,
                                  .news = news,
                                  .news_self = w,
                                  .planned = rui_app_planned,
                                  .saving = rui_app_saving,
                                  .recovered = rui_app_recovered,
                                  .staged = rui_app_staged,
                                  .reassigned = rui_app_reassigned};
    RU_TRY(ru_engine_open(&eo, w->arena, &w->engine, err));
    const ru_part part = ru_engine_part(w->engine);
    ru_node_part(w->shell.timers.node, &part);
    return RU_OK;
}

/* -- the shell's calls --------------------------------------------------------------------------
 */

static void on_stop(void *self, bool all, ru_time now, ru_effects *fx)
{
    rui_app_worker *w = self;
    ru_engine_stop(w->engine, all, now, fx);
}

static void world_asked(void *self, ru_time now)
{
    (void)now;
    rui_app_post(self, &(rui_app_command){.kind = RUI_APP_WORLD});
}

static const ru_shell_ops shell_ops = {
    .stop = on_stop, .world = world_asked, .view = rui_app_viewed};

/* The leader of the moment moves something, whoever that is. */
static void shuffle(void *self, uint32_t what, ru_time now)
{
    rui_app_worker *w = self;
    uint32_t members = ru_member_view(ru_node_member(w->shell.timers.node))->n;
    uint32_t objects = ru_engine_objects(w->engine) - 1; /* the driver stays with the leader */
    if (members > 0) {
        ru_effects *fx = ru_node_enter(w->shell.timers.node, now);
        ru_engine_move(w->engine, ru_rng_below(&w->shuffle, objects),
                       ru_rng_below(&w->shuffle, members), now, fx);
        ru_node_leave(w->shell.timers.node, now);
    }
    ru_loop_timer(w->shell.loop, shuffle, w, what,
                  ru_time_after(now, w->opt->file->job->clocks.shuffle_ns));
}

static ru_status open_all(rui_app_worker *w, ru_err *err)
{
    const ru_worker_options *o = w->opt->worker;
    w->folder = (ru_run_folder){
        .out = o->train.out, .yaml = w->opt->file->yaml, .generation = o->train.generation};
    (void)ru_run_place_gone(&w->folder);
    if (o->shell.transient) {
        RU_TRY(ru_app_job_transient(w->opt->file->job, err));
    }
    w->tells.crew_max = ru_shell_peers_max(&o->shell);
    w->tells.crew = RU_NEW(w->arena, ru_member_info, w->tells.crew_max);
    if (w->tells.crew == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    RU_TRY(ru_shell_open(&w->shell, &o->shell, &shell_ops, w, w->arena, err));
    RU_TRY(ru_loop_waker(w->shell.loop, rui_app_answers, w, &w->waker, err));
    RU_TRY(ru_app_watch(w->opt->file, o->train.out, w->arena, err));
    RU_TRY(open_data(w, err));
    RU_TRY(rui_app_trace_open(w, err));
    if (o->train.resume && !o->shell.newcomer) {
        RU_TRY(rui_app_from(w, &w->from, err));
    }
    if (!o->shell.newcomer) {
        rui_app_log_clean(w, false);
    }
    w->n_threads = w->opt->threads > 0 ? w->opt->threads : 1;
    w->n_threads = w->n_threads < RUI_APP_THREADS_MAX ? w->n_threads : RUI_APP_THREADS_MAX;
    RU_TRY(ru_decisions_open(o->train.out, w->opt->file->job->name, &w->plans.decisions, err));
    RU_TRY(open_node(w, err));
    RU_TRY(open_engine(w, err));
    return rui_app_threads_start(w, err);
}

static void close_all(rui_app_worker *w)
{
    ru_node_quiet(w->shell.timers.node);
    rui_app_threads_stop(w);
    if (w->log_done) { /* the last checkpoint has all */
        rui_app_log_clean(w, true);
    }
    ru_engine_close(w->engine);
    ru_shell_close(&w->shell);
    ru_run_report_close(w->tells.report);
    ru_decisions_close(w->plans.decisions);
    if (w->app_open && w->opt->file->ops->close != NULL) {
        w->opt->file->ops->close(w->self);
    }
    ru_app_state_fini(&w->state);
    ru_app_state_fini(&w->given);
    ru_app_data_close(&w->data);
    ru_shardlog_close(w->log);
    ru_recorder_close(w->recorder);
    ru_fault_close();
    rui_app_threads_fini(w);
    ru_mutex_fini(&w->given_lock);
    ru_mutex_fini(&w->lock);
    ru_mutex_fini(&w->part_lock);
}

/* What an app's mistake does not touch. */
static const char *intact(rui_app_worker *w)
{
    ru_engine_ckpt at = {0};
    bool apps = w->shell.end_status == RU_E_USER || w->shell.end_status == RU_E_DATA;
    if (!apps || rui_app_newest(w, &at, NULL) != RU_OK || at.generation == 0) {
        return "";
    }
    const char *text =
        ru_arena_printf(w->arena, "the checkpoint of clock %u is intact: ", at.clock);
    return text != NULL ? text : "";
}

static ru_status verdict(rui_app_worker *w, ru_worker_result *out, ru_err *err)
{
    int64_t wall =
        w->run.worked_at.ns - w->run.begun.ns; /* without the time that the end lingers */
    ru_engine_facts f;
    ru_engine_facts_get(w->engine, &f);
    out->step = f.closed;
    out->number = w->shell.number;
    out->left = w->shell.asked && ru_shell_leaves(&w->shell);
    out->removed = ru_shell_removed(&w->shell, out->again);
    if (w->shell.end_status == RU_E_PEER && (w->shell.asked || w->stopping)) {
        return RU_OK;
    }
    if (w->shell.end_status != RU_OK) {
        return ru_err_set(err, w->shell.end_status, "%s%s", intact(w), w->shell.end_text);
    }
    if (w->export_err.status != RU_OK) {
        return ru_err_set(err, w->export_err.status, "%s", w->export_err.text);
    }
    if (w->tells.report == NULL) {
        return RU_OK;
    }
    int64_t here = w->run.items - w->run.items_first;
    bool stopped = w->shell.asked && w->run.clock < w->run.clocks; /* else all is done */
    out->reported = true;
    out->summary =
        (ru_run_report_summary){.steps = w->run.clock,
                                .epochs = w->run.clock / w->state.shape.pieces,
                                .samples = w->run.items,
                                .wall_ns = wall,
                                .samples_per_s = wall > 0 ? (double)here * 1e9 / (double)wall : 0,
                                .loss = w->run.objective,
                                .metrics = w->run.metrics,
                                .split = {.compute_ns = f.compute_ns,
                                          .network_ns = f.network_ns,
                                          .wait_ns = f.wait_ns,
                                          .other_ns = f.other_ns},
                                .rss_peak_bytes = ru_self_rss_peak_bytes(),
                                .ended = w->run.target ? "target"
                                         : stopped     ? "stopped"
                                                       : "done"};
    RU_TRY(ru_run_report_end(w->tells.report, &out->summary, err));
    return ru_run_place_kept(&w->folder, w->run.clock, err);
}

ru_status ru_app_worker_run(const ru_app_worker_options *opt, ru_arena *arena,
                            ru_worker_result *out, ru_err *err)
{
    rui_app_worker *w = RU_NEW(arena, rui_app_worker, 1);
    *out = (ru_worker_result){0};
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    w->opt = opt;
    w->arena = arena;
    w->run.objective = RU_NAN;
    ru_mutex_init(&w->lock);
    ru_mutex_init(&w->part_lock);
    ru_mutex_init(&w->given_lock);
    rui_app_threads_init(w);
    ru_status st = open_all(w, err);
    if (st == RU_OK) {
        w->run.begun = w->run.clock_at = w->run.worked_at = ru_clock_now();
        if (opt->file->job->clocks.shuffle_ns > 0) {
            w->shuffle = ru_rng_from((uint64_t)opt->file->job->train.seed, ru_rng_label("shuffle"));
            shuffle(w, 0, ru_clock_now());
        }
        st = ru_shell_run(&w->shell, err);
    }
    if (st == RU_OK) {
        st = verdict(w, out, err);
    }
    rui_app_world(w);
    close_all(w);
    return st;
}
