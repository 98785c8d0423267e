#include "train/worker/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "env/process/self.h"
#include "env/process/shm.h"
#include "exec/pool.h"
#include "train/job/batch.h"
#include "train/worker/worker_impl.h"

enum {
    XFERS_MAX = 1 << 15,
    QUEUE_NS = 5000000, /* the loop thread shares its core with a compute thread */
};

/* -- stop signals ----------------------------------------------------------------------------- */

void rui_worker_bye(void *self, uint32_t what, ru_time now)
{
    const uint32_t looks_max = 50; /* a second for traces of other hosts on their way */
    rui_worker *w = self;
    if (!ru_tracing_waits(&w->tracing) || what >= looks_max) {
        ru_loop_stop(w->loop);
        return;
    }
    ru_loop_timer(w->loop, rui_worker_bye, w, what + 1, ru_time_after(now, 20000000));
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    (void)events;
    rui_worker *w = self;
    ru_loop_fd_off(w->loop, fd);
    if (!w->ended) {
        w->asked_to_stop = true;
        ru_effects *fx = ru_node_enter(w->timers.node, now);
        ru_elastic_stop(w->elastic, !w->opt->stop_leaves, now, fx);
        ru_node_leave(w->timers.node, now);
    }
}

/* -- opening ----------------------------------------------------------------------------------- */

/* The step to begin with: a resumed run's founders all hold its newest checkpoint. */
static ru_status find_start(rui_worker *w, ru_err *err)
{
    w->first_step = 0;
    if (!w->opt->train.resume || w->opt->newcomer) {
        return RU_OK;
    }
    RU_TRY(rui_trainer_look_back(&w->t, err));
    if (!w->t.goes_on) {
        return RU_OK;
    }
    RU_TRY(rui_trainer_batch_stays(&w->t, err));
    w->first_step = w->t.from.at.step;
    return RU_OK;
}

/* Processes that can share memory have the same text. */
static void host_text(char into[64])
{
    char host[RU_SHM_HOST_MAX], name[256];
    ru_shm_host(host);
    ru_self_host(name, sizeof name);
    (void)snprintf(into, 64, "%.40s/%016llx", name,
                   (unsigned long long)ru_hash_bytes(host, (int64_t)strlen(host), 0));
}

static void member_options(rui_worker *w, ru_node_id self, ru_member_options *m)
{
    const ru_worker_options *o = w->opt;
    *m = (ru_member_options){
        .self = {.node = self,
                 .number = o->number | (o->newcomer ? RU_MEMBER_LATER : 0),
                 .capacity = o->train.job->train.threads != 0 ? o->train.job->train.threads
                                                              : ru_pool_cores()},
        .join = o->join,
        .n_max = o->n_max > 0 ? o->n_max : RU_WORKERS_MAX,
    };
    (void)snprintf(m->self.address, sizeof m->self.address, "%s", ru_link_tcp_address(w->link));
    m->self.tier = o->transient ? RU_TIER_TRANSIENT : RU_TIER_RELIABLE;
    m->self.no_vote = o->transient;
    host_text(m->self.host);
}

static int64_t batch_at(void *self, int64_t position)
{
    const rui_worker *w = self;
    return ru_job_batch_at(&w->t.job->train, position, w->t.count);
}

static ru_elastic_options elastic_options(rui_worker *w)
{
    int64_t position = w->first_step > 0 ? w->t.from.at.samples : 0;
    const ru_worker_options *o = w->opt;
    return (ru_elastic_options){
        .node = w->timers.node,
        .device = rui_worker_device(w),
        .news = rui_worker_news,
        .news_self = w,
        .summed = rui_worker_summed,
        .planned = rui_worker_planned,
        .batch = batch_at(w, position),
        .batch_at = batch_at,
        .first_step = w->first_step,
        .first_position = position,
        .steps_end = w->t.steps_end,
        .founders = o->founders,
        .n_min = o->n_min,
        .n_begin = o->n_begin,
        .tensor_bytes = w->tensor_bytes,
        .n_tensors = w->n_tensors,
        .state_bytes = w->state_bytes,
        .state_group = w->state_group,
        .n_state = w->n_states,
        .equal_shares = o->equal_shares,
        .deterministic = o->deterministic,
    };
}

/* Members, and those who join while others leave. */
static uint32_t peers_max(const ru_worker_options *o)
{
    return (o->n_max > 0 ? o->n_max : RU_WORKERS_MAX) + 16;
}

static ru_status open_link(rui_worker *w, ru_err *err)
{
    const ru_worker_options *o = w->opt;
    char near[RU_LINK_TCP_ADDRESS_MAX];
    const char *listen = o->listen != NULL ? o->listen : "127.0.0.1:0";
    if (o->listen == NULL && o->join != NULL) { /* later ones must reach it from where that is */
        bool known = ru_link_tcp_source(o->join, near);
        listen = known ? ru_arena_printf(&w->arena_loop, "%s:0", near) : ":0";
    }
    if (listen == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    ru_link_tcp_options lo = {
        .loop = w->loop,
        .listen = listen,
        .toward = o->toward != NULL ? o->toward : o->join,
        .psk = o->token,
        .psk_bytes = o->token_bytes,
        .conns_max = ru_chan_conns(peers_max(o)) + RU_LINK_TCP_STRANGERS,
        .queue_ns = QUEUE_NS,
    };
    return ru_link_tcp_open(&lo, &w->link, err);
}

static ru_status open_node(rui_worker *w, ru_err *err)
{
    const ru_worker_options *o = w->opt;
    ru_node_id self;
    ru_self_random(&self.v, sizeof self.v);
    ru_node_options no = {
        .chan = {.self = self,
                 .address = ru_link_tcp_address(w->link),
                 .job = ru_hash_bytes(o->token, o->token_bytes, 1),
                 .token = o->token,
                 .token_bytes = o->token_bytes,
                 .peers_max = peers_max(o),
                 .streams_max = XFERS_MAX,
                 .slots_max = XFERS_MAX,
                 .recorder = w->t.recorder},
        .link = ru_link_tcp_link(w->link),
        .timers = ru_node_loop_timers(&w->timers),
        .log = rui_worker_log,
        .log_self = w,
    };
    member_options(w, self, &no.member);
    w->timers.loop = w->loop;
    RU_TRY(rui_worker_agreed(w, &no.member.agreed, err));
    RU_TRY(ru_node_open(&no, &w->arena_loop, &w->timers.node, err));
    const ru_elastic_options eo = elastic_options(w);
    RU_TRY(ru_elastic_open(&eo, &w->arena_loop, &w->elastic, err));
    const ru_part messages = rui_worker_part(w);
    ru_node_part(w->timers.node, &messages);
    w->tracing = (ru_tracing){.recorder = w->t.recorder,
                              .loop = w->loop,
                              .chan = ru_node_chan(w->timers.node),
                              .member = ru_node_member(w->timers.node),
                              .self = self,
                              .out = w->t.out,
                              .rank = o->train.rank,
                              .over = &w->ended};
    ru_link_tcp_user(w->link, ru_node_link_user(w->timers.node));
    return RU_OK;
}

static ru_status open_all(rui_worker *w, ru_err *err)
{
    w->events = RU_NEW(w->arena, rui_event, RUI_EVENTS_MAX);
    w->crew_max = w->opt->n_max > 0 ? w->opt->n_max : RU_WORKERS_MAX;
    w->crew = RU_NEW(w->arena, ru_member_info, w->crew_max);
    w->crew_told = RU_NEW(w->arena, ru_member_info, w->crew_max);
    if (w->events == NULL || w->crew == NULL || w->crew_told == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    RU_TRY(ru_loop_open(&w->loop, err));
    /* Else the cores belong to the compute threads. */
    ru_loop_poll(w->loop, w->t.job->train.poll_ns, true);
    RU_TRY(ru_loop_waker(w->loop, rui_worker_events, w, &w->waker, err));
    RU_TRY(open_link(w, err)); /* first: others may want to know the address while data open */
    if (w->opt->address != NULL) {
        w->opt->address(w->opt->self, ru_link_tcp_address(w->link));
    }
    RU_TRY(rui_trainer_prepare(&w->t, err));
    char *path = realpath(w->t.out, NULL);
    w->out = ru_arena_str(&w->arena_loop, path != NULL ? path : w->t.out);
    free(path);
    if (w->out == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    RU_TRY(find_start(w, err));
    RU_TRY(rui_build_list(w, err));
    ru_err why;
    if (!w->opt->sockets_only && rui_local_open(w, &why) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "shared_memory", "gradients are summed over sockets: %s",
               why.text);
    }
    RU_TRY(rui_early_open(w, err));
    RU_TRY(rui_buckets_open(w, err));
    RU_TRY(open_node(w, err));
    int fd = ru_self_stop_fd();
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(w->loop, fd, 1 /* EPOLLIN */, on_stop, w, err));
    }
    return ru_thread_start(&w->thread, "compute", rui_worker_compute, w, err);
}

static void close_all(rui_worker *w)
{
    if (w->thread.started) {
        ru_mutex_lock(&w->lock);
        w->next = (rui_turn){.kind = RUI_TURN_QUIT};
        ru_flag_set(&w->abort, 1);
        ru_cond_broadcast(&w->changed);
        ru_mutex_unlock(&w->lock);
        ru_thread_join(&w->thread);
    }
    rui_local_stop(w);
    rui_worker_sums_end(w);
    rui_capture_close(w);
    ru_node_quiet(w->timers.node);
    ru_elastic_close(w->elastic);
    ru_node_close(w->timers.node);
    ru_link_tcp_close(w->link);
    ru_loop_close(w->loop);
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
    if (w->compute_failed) {
        return ru_err_set(err, w->compute_err.status, "%s", w->compute_err.text);
    }
    bool leaves = w->opt->stop_leaves || w->number == 0; /* 0: it never was in the job */
    if (w->end_status == RU_E_PEER && w->asked_to_stop && leaves) {
        return RU_OK; /* it left, as it was asked to */
    }
    if (w->end_status != RU_OK) {
        return ru_err_set(err, w->end_status, "%s", w->end_text);
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
    rui_worker *w = RU_NEW(arena, rui_worker, 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    w->opt = opt;
    w->arena = arena;
    ru_arena_init(&w->arena_loop, 0);
    w->t =
        (rui_trainer){.opt = &opt->train, .job = opt->train.job, .arena = arena, .saved_step = -1};
    w->t.key = ru_worker_key(opt->token, opt->token_bytes);
    ru_mutex_init(&w->lock);
    ru_cond_init(&w->changed);
    ru_cond_init(&w->local.changed);
    ru_status st = open_all(w, err);
    if (st == RU_OK) {
        w->t.begun = w->t.saved = ru_clock_now();
        ru_thread_prompt();
        ru_node_start(w->timers.node, ru_clock_now());
        st = ru_loop_run(w->loop, err);
    }
    st = verdict_of(w, st, err);
    if (st != RU_OK && w->t.report != NULL) {
        ru_run_report_log(w->t.report, "failed after step %lld: %s", (long long)w->t.step_done,
                          err != NULL ? err->text : ru_status_name(st));
    }
    *out = (ru_worker_result){.reported = w->reported,
                              .summary = w->summary,
                              .number = w->number,
                              .left = w->asked_to_stop && opt->stop_leaves,
                              .removed = w->removed && !w->asked_to_stop,
                              .step = w->t.step_done};
    (void)snprintf(out->again, sizeof out->again, "%s", w->again);
    close_all(w);
    ru_arena_fini(&w->arena_loop);
    return st;
}
