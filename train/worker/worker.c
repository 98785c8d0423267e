#include "train/worker/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "env/process/memory.h"
#include "env/process/self.h"
#include "env/process/shm.h"
#include "exec/pool.h"
#include "train/job/batch.h"
#include "train/worker/agree.h"
#include "train/worker/worker_impl.h"
#include "train/worker/worker_pipe.h"

enum {
    XFERS_MAX = 1 << 15,
};

/* -- the shell's calls --------------------------------------------------------------------------
 */

static void on_stop(void *self, bool all, ru_time now, ru_effects *fx)
{
    rui_worker *w = self;
    ru_elastic_stop(w->elastic, all, now, fx);
}

static void on_message(void *self, const ru_event *ev)
{
    rui_evals_hear(self, ev->what, ev->data, ev->size_bytes);
}

static const ru_shell_ops shell_ops = {
    .stop = on_stop, .said = rui_worker_said, .world = rui_capture_asked, .message = on_message};

/* -- opening ----------------------------------------------------------------------------------- */

/* The step to begin with: a resumed run's founders all hold its newest checkpoint. */
static ru_status find_start(rui_worker *w, ru_err *err)
{
    w->list.first_step = 0;
    if (!w->opt->train.resume || w->opt->shell.newcomer) {
        return RU_OK;
    }
    RU_TRY(rui_trainer_look_back(&w->t, err));
    if (!w->t.goes_on) {
        return RU_OK;
    }
    RU_TRY(rui_trainer_batch_stays(&w->t, err));
    w->list.first_step = w->t.from.at.step;
    w->list.first_done = w->t.from.at.done > 0 ? w->t.from.at.done : (double)w->t.from.at.step;
    return RU_OK;
}

static int64_t batch_at(void *self, int64_t position)
{
    const rui_worker *w = self;
    return ru_job_batch_at(&w->t.job->train, position, w->t.count);
}

static ru_elastic_options elastic_options(rui_worker *w)
{
    int64_t position = w->list.first_step > 0 ? w->t.from.at.samples : 0;
    const ru_worker_options *o = w->opt;
    bool adapts = w->t.job->train.adapt.batch_max > 0;
    return (ru_elastic_options){
        .node = w->shell.timers.node,
        .device = rui_worker_device(w),
        .news = rui_worker_news,
        .news_self = w,
        .summed = rui_worker_summed,
        .planned = rui_worker_planned,
        .batch = batch_at(w, position),
        .batch_at = adapts ? NULL : batch_at,
        .pace = adapts ? rui_adapt_pace : NULL,
        .first_done = w->list.first_done,
        .first_step = w->list.first_step,
        .first_position = position,
        .steps_end = w->t.steps_end,
        .founders = o->founders,
        .n_min = o->n_min,
        .n_begin = o->n_begin,
        .tensor_bytes = w->list.tensor_bytes,
        .n_tensors = w->list.n_tensors,
        .state_bytes = w->list.state_bytes,
        .state_group = w->list.state_group,
        .n_state = w->list.n_states,
        .servers = w->t.job->train.servers,
        .order = rui_order_ranks,
        .free_bytes = ru_memory_free_bytes,
        .equal_shares = o->equal_shares,
        .deterministic = o->deterministic,
        .barrier = w->t.job->train.barrier == RU_BARRIER_ALWAYS,
    };
}

static ru_status open_node(rui_worker *w, ru_err *err)
{
    const ru_train_options *o = &w->opt->train;
    ru_shell_node_options no = {.capacity = o->job->train.threads != 0 ? o->job->train.threads
                                                                       : ru_pool_cores(),
                                .n_max = w->t.job->train.servers > 0 ? RU_ELASTIC_SERVED_MAX : 0,
                                .xfers_max = XFERS_MAX,
                                .out = w->t.out,
                                .yaml = w->t.job_yaml,
                                .recorder = w->t.recorder,
                                .rank = o->rank,
                                .log = rui_worker_log};
    RU_TRY(ru_worker_agreed(&w->t, w->opt, w->list.first_step, &w->arena_loop, &no.agreed, err));
    RU_TRY(ru_shell_node(&w->shell, &no, err));
    const ru_elastic_options eo = elastic_options(w);
    return ru_elastic_open(&eo, &w->arena_loop, &w->elastic, err);
}

static ru_status open_all(rui_worker *w, ru_err *err)
{
    w->crew.max = ru_shell_peers_max(&w->opt->shell);
    w->crew.at = RU_NEW(w->arena, ru_member_info, w->crew.max);
    w->crew.told = RU_NEW(w->arena, ru_member_info, w->crew.max);
    if (w->crew.at == NULL || w->crew.told == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    /* First: others may want to know the address while data open. */
    RU_TRY(ru_shell_open(&w->shell, &w->opt->shell, &shell_ops, w, &w->arena_loop, err));
    RU_TRY(ru_shell_line(&w->shell, &w->line, RUI_EVENTS_MAX, sizeof(rui_event), err));
    /* Else the cores belong to the compute threads. */
    ru_loop_poll(w->shell.loop, w->t.job->train.poll_ns, true);
    RU_TRY(rui_trainer_prepare(&w->t, err));
    RU_TRY(find_start(w, err));
    RU_TRY(rui_build_list(w, err));
    ru_err why;
    if (!w->opt->sockets_only && rui_local_open(w, &why) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "shared_memory", "gradients are summed over sockets: %s",
               why.text);
    }
    RU_TRY(rui_early_open(w, err));
    RU_TRY(rui_buckets_open(w, err));
    RU_TRY(rui_noise_open(w, err));
    RU_TRY(rui_plan_open(w, err));
    RU_TRY(rui_order_open(w, err));
    RU_TRY(open_node(w, err));
    RU_TRY(rui_weights_open(w, err));
    return ru_thread_start(&w->thread, "compute", rui_worker_compute, w, err);
}

static void close_all(rui_worker *w)
{
    if (w->thread.started) {
        ru_mutex_lock(&w->lock);
        w->next = (rui_turn){.kind = RUI_TURN_QUIT};
        ru_flag_set(&w->said, RUI_VERDICT_ABORT);
        ru_cond_broadcast(&w->changed);
        ru_mutex_unlock(&w->lock);
        ru_thread_join(&w->thread);
    }
    rui_local_stop(w);
    rui_worker_sums_end(w);
    rui_capture_close(w);
    ru_node_quiet(w->shell.timers.node);
    ru_elastic_close(w->elastic);
    ru_shell_close(&w->shell);
    rui_weights_close(w);
    rui_noise_close(w);
    w->t.exe = NULL;
    rui_trainer_close(&w->t);
    ru_cond_fini(&w->changed);
    ru_cond_fini(&w->local.changed);
    ru_mutex_fini(&w->lock);
}

/* How it ended: the compute thread's own sentence says most. */
static ru_status verdict_of(rui_worker *w, ru_status st, ru_err *err)
{
    if (st != RU_OK) {
        return st;
    }
    if (w->end.failed) {
        return ru_err_set(err, w->end.err.status, "%s", w->end.err.text);
    }
    const ru_shell *h = &w->shell;
    bool leaves = ru_shell_leaves(h) || h->number == 0; /* 0: it never was in the job */
    if (h->end_status == RU_E_PEER && h->asked && leaves) {
        return RU_OK; /* it left, as it was asked to */
    }
    if (h->end_status != RU_OK) {
        return ru_err_set(err, h->end_status, "%s", h->end_text);
    }
    return RU_OK;
}

uint64_t ru_worker_key(const uint8_t *token, uint32_t token_bytes)
{
    return ru_hash_bytes(token, token_bytes, 2);
}

ru_status ru_worker_run(const ru_worker_options *opt, ru_arena *arena, ru_worker_result *out,
                        ru_err *err)
{
    if (ru_pipe_job_is(opt->train.job)) {
        return ru_pipe_worker_run(opt, arena, out, err);
    }
    rui_worker *w = RU_NEW(arena, rui_worker, 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    w->opt = opt;
    w->arena = arena;
    ru_arena_init(&w->arena_loop, 0);
    w->t =
        (rui_trainer){.opt = &opt->train, .job = opt->train.job, .arena = arena, .saved_step = -1};
    w->t.key = ru_worker_key(opt->shell.token, opt->shell.token_bytes);
    ru_mutex_init(&w->lock);
    ru_cond_init(&w->changed);
    ru_cond_init(&w->local.changed);
    ru_status st = open_all(w, err);
    if (st == RU_OK) {
        w->t.begun = w->t.saved = ru_clock_now();
        st = ru_shell_run(&w->shell, err);
    }
    st = verdict_of(w, st, err);
    if (st != RU_OK && w->t.report != NULL) {
        ru_run_report_log(w->t.report, "failed after step %lld: %s", (long long)w->t.step_done,
                          err != NULL ? err->text : ru_status_name(st));
    }
    *out = (ru_worker_result){.reported = w->end.reported,
                              .summary = w->end.summary,
                              .number = w->shell.number,
                              .left = w->shell.asked && ru_shell_leaves(&w->shell),
                              .step = w->t.step_done};
    out->removed = w->elastic != NULL && ru_shell_removed(&w->shell, out->again);
    close_all(w);
    ru_arena_fini(&w->arena_loop);
    return st;
}
