/* The compute thread: the training driver's exchange with the other workers.
 *
 *   STEP    inside of the run, before the first gradient is read:
 *             COMPUTED --> loop;  verdict <-- loop: UPDATE goes on, ABORT ends the run
 *           after everything that follows the update: UPDATED
 *
 * A share of 0 computes nothing: its gradients are zero, and the update runs alone on the sums. */
#include <string.h>

#include "train/driver/histograms.h"
#include "train/worker/worker_impl.h"

static void say(rui_worker *w, const rui_event *x)
{
    ru_shell_say(&w->shell, &w->line, x);
}

/* Keep the first sentence about what went wrong here. */
static void failed(rui_worker *w, ru_status st, const ru_err *err)
{
    ru_mutex_lock(&w->lock);
    if (!w->end.failed && st != RU_OK) {
        w->end.failed = true;
        w->end.err = *err;
    }
    ru_mutex_unlock(&w->lock);
}

/* -- building ---------------------------------------------------------------------------------- */

/* For the world file. */
static void tell_facts(rui_worker *w)
{
    rui_trainer *t = &w->t;
    t->workers = w->cmd.workers;
    t->share_n = w->now->n;
    t->gradient_bytes = (ru_conf_i64s){w->list.tensor_bytes, w->list.n_tensors};
    t->deterministic = w->opt->deterministic;
    t->equal_shares = w->opt->equal_shares;
    t->state_bytes = (ru_conf_i64s){w->list.state_bytes, w->list.n_states};
}

/* -- ports of the executable ------------------------------------------------------------------- */

static ru_status on_poll(void *self, uint32_t step)
{
    (void)step;
    rui_worker *w = self;
    return ru_flag_get(&w->abort) != 0 && !w->computed ? RU_E_CANCELLED : RU_OK;
}

/* Gradient `tensor` is made; the last of a bucket wakes the loop for all of it. */
static void say_made(rui_worker *w, uint32_t tensor)
{
    ru_elastic_part p = rui_buckets_ready(w, tensor);
    if (p.n > 0) {
        say(w,
            &(rui_event){.kind = RUI_EVENT_READY, .seq = w->cmd.seq, .tensor = p.first, .n = p.n});
    }
}

/* The port of one gradient. */
typedef struct leaving {
    rui_worker *w;
    uint32_t tensor;
} leaving;

static ru_status on_ready(void *self, const ru_exe_at *at)
{
    const leaving *x = self;
    RU_CHECK(at->data == x->w->now->tensors[x->tensor].data); /* where the loop looks for it */
    say_made(x->w, x->tensor);
    return RU_OK;
}

/* Sleep until something changes, the lock held; the wait is recorded. */
static void wait_for_sums(rui_worker *w)
{
    ru_time begun = ru_clock_now();
    ru_cond_wait(&w->changed, &w->lock);
    ru_rec_wait(w->t.recorder, w->t.names.sums, begun.ns, ru_clock_now().ns, w->t.names.sums);
}

static rui_verdict wait_verdict(rui_worker *w)
{
    w->early.ns = 0;
    ru_mutex_lock(&w->lock);
    while (w->verdict == RUI_VERDICT_NONE && w->next.kind != RUI_TURN_QUIT) {
        if (!rui_early_next(w)) {
            wait_for_sums(w);
        }
    }
    rui_verdict v = w->verdict == RUI_VERDICT_NONE ? RUI_VERDICT_ABORT : w->verdict;
    ru_mutex_unlock(&w->lock);
    w->at.verdict = ru_clock_now();
    if (v == RUI_VERDICT_ABORT) {
        rui_early_undo(w);
    }
    return v;
}

static rui_verdict say_computed(rui_worker *w, ru_status st)
{
    w->computed = true;
    w->at.computed = ru_clock_now();
    int64_t ns = w->cmd.share.n > 0 ? ru_time_since(w->at.computed, w->at.begun) : 0;
    say(w, &(rui_event){.kind = RUI_EVENT_COMPUTED, .seq = w->cmd.seq, .status = st, .ns = ns});
    return wait_verdict(w);
}

/* The leader: all sums are there. */
static void note_gradients(rui_worker *w)
{
    for (uint32_t k = 0; w->cmd.leads && rui_hists_due(&w->t) && k + 1 < w->list.n_tensors; k++) {
        const ru_exe_grad *g = &w->now->tensors[k]; /* the last parameter is the first */
        rui_hists_gradient(&w->t, w->list.n_tensors - 2 - k, g->data,
                           g->size_bytes / (int64_t)sizeof(float));
    }
}

static ru_status on_await(void *self, const ru_exe_at *at)
{
    (void)at;
    rui_worker *w = self;
    if (w->computed) {
        return RU_OK;
    }
    if (say_computed(w, RU_OK) != RUI_VERDICT_UPDATE) {
        return RU_E_CANCELLED;
    }
    note_gradients(w);
    const float *sums =
        w->now->tensors[w->list.n_tensors - 1].data; /* the loss of all is the first */
    return rui_trainer_judge(&w->t, sums[0], false);
}

/* Each gradient leaves when it is made, and is awaited as a sum. */
static ru_status set_ports(rui_worker *w, rui_build *b, ru_err *err)
{
    leaving *all = RU_NEW(&b->arena, leaving, w->list.n_tensors);
    ru_exe_port *ports = RU_NEW(&b->arena, ru_exe_port, w->list.n_tensors + 1);
    if (all == NULL || ports == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u gradients", w->list.n_tensors);
    }
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        all[k] = (leaving){.w = w, .tensor = k};
        ports[k] = (ru_exe_port){
            .value = b->tensors[k].value, .leaves = true, .fn = on_ready, .self = &all[k]};
    }
    ports[w->list.n_tensors] = (ru_exe_port){.fn = on_await, .self = w};
    ru_exe_poll_set(b->exe, on_poll, w);
    return ru_exe_ports_set(b->exe, ports, w->list.n_tensors + 1, err);
}

static ru_status build(void *self, const rui_turn *turn, ru_err *err)
{
    rui_worker *w = self;
    rui_build *b, *before = w->now;
    RU_TRY(rui_build_open(w, turn->build_n, turn->plain, before == NULL, &b, err));
    ru_status st = set_ports(w, b, err);
    st = st == RU_OK && before != NULL ? rui_build_take(w, before, b, err) : st;
    if (st != RU_OK) {
        rui_build_close(b);
        return st;
    }
    w->now = b;
    w->early.of = NULL;
    w->t.step = b->step;
    w->t.exe = b->exe;
    rui_build_close(before);
    tell_facts(w);
    return RU_OK;
}

/* -- one step ---------------------------------------------------------------------------------- */

/* A share of 0: zeros take part in the sums. */
static ru_status follow(rui_worker *w, const ru_run_args *args, ru_err *err)
{
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        const ru_exe_grad *g = &w->now->tensors[k];
        memset(g->data, 0, (size_t)g->size_bytes);
        say_made(w, k);
    }
    if (say_computed(w, RU_OK) != RUI_VERDICT_UPDATE) {
        return RU_E_CANCELLED;
    }
    note_gradients(w);
    return ru_exe_phase(w->t.exe, RU_PHASE_UPDATE, args, err);
}

/* The loss of all is no number: is it because of samples here? With updates made early parameters
 * are those after the step, and tell nothing. */
static ru_status odd(void *self, const rui_odd_step *s, ru_err *err)
{
    rui_worker *w = self;
    if (w->early.of == NULL) {
        RU_TRY(rui_odd_find(&w->t, s, err));
    }
    return RU_FAIL(err, RU_E_USER,
                   "the loss is not a number at step %lld (lr %g)%s: training diverged; lower the "
                   "learning rate (train.optimizer, lr) or set train.clip_norm",
                   (long long)s->args.step + 1, s->lr,
                   w->early.of == NULL ? ", because of samples of another worker" : "");
}

static ru_status run(void *self, const rui_turn *turn, const ru_run_args *args, int64_t *waited_ns,
                     ru_err *err)
{
    rui_worker *w = self;
    ru_status st;
    w->at.begun = ru_clock_now();
    if (turn->share.n == 0) {
        st = follow(w, args, err);
    } else {
        RU_CHECK(turn->share.n == w->now->n);
        st = ru_exe_run(w->t.exe, args, err);
    }
    *waited_ns = st == RU_OK ? ru_time_since(w->at.verdict, w->at.computed) - w->early.ns : 0;
    return st;
}

/* Whoever leads may have another launcher, or none: each worker tells its own how far the job is.
 */
static void tell_progress(rui_worker *w, const ru_run_report_step *s)
{
    const rui_trainer *t = &w->t;
    if (w->teller == NULL) {
        const ru_run_report_options ro = {
            .messages = true,
            .progress = true,
            .begun = w->cmd.job_begun,
            .step_first = w->cmd.job_first,
            .steps = t->steps_end == INT64_MAX ? 0 : t->steps_end,
            .epochs = t->job->train.epochs,
        };
        if (ru_run_report_open(&ro, w->arena, &w->teller, NULL) != RU_OK) {
            return;
        }
    }
    ru_run_report_workers_set(w->teller, w->cmd.workers, w->cmd.members, w->cmd.voters);
    ru_run_report_progress(w->teller, s);
}

static void stepped(void *self, const ru_run_report_step *s)
{
    rui_worker *w = self;
    ru_time before = w->at.updated;
    w->at.updated = ru_clock_now();
    rui_plan_stepped(w, before.ns > 0 ? ru_time_since(w->at.updated, before) : 0);
    if (w->opt->train.progress && !w->cmd.leads) {
        tell_progress(w, s);
    }
    ru_mutex_lock(&w->lock);
    w->past[s->step % RUI_HISTORY] = (rui_past){.step = s->step, .report = *s};
    ru_mutex_unlock(&w->lock);
}

/* The loop thread looks at the stream's reads, and passes on what the leader says of them. */
static void stream(void *self, ru_stream *s)
{
    rui_worker *w = self;
    bool reads = s != NULL && ru_stream_reads(s);
    ru_mutex_lock(&w->lock);
    if (w->reads.stream != NULL) {
        ru_stream_reads_sum x;
        ru_stream_reads_sum_get(w->reads.stream, &x);
        w->reads.before.bytes += x.bytes;
        w->reads.before.busy_ns += x.busy_ns;
        w->reads.before.stall_ns += x.stall_ns;
    }
    w->reads.stream = reads ? s : NULL;
    if (reads && w->reads.share > 0) {
        ru_stream_reads_share(s, w->reads.share);
    }
    ru_mutex_unlock(&w->lock);
}

static bool over(void *self, const char *why)
{
    say(self, &(rui_event){.kind = RUI_EVENT_OVER, .why = why});
    return false; /* the group ends after a step */
}

/* -- turns ------------------------------------------------------------------------------------- */

static void begin_step(rui_worker *w, rui_turn *turn)
{
    w->computed = false;
    turn->begun = w->at.updated.ns != 0 ? w->at.updated : ru_clock_now();
    rui_buckets_begin(w);
    if (turn->leads) { /* else the loop thread may be opening them: this worker takes over */
        tell_facts(w);
        ru_run_report_workers_set(w->t.report, turn->workers, turn->members, turn->voters);
    }
}

/* The members as of the command, the lock held. */
static void take_crew(rui_worker *w)
{
    if (w->crew.told_epoch != w->crew.epoch) {
        w->crew.told_epoch = w->crew.epoch;
        memcpy(w->crew.told, w->crew.at, w->crew.n * sizeof *w->crew.at);
        w->t.crew = w->crew.told;
        w->t.n_crew = w->crew.n;
        w->t.crew_self = w->next.rank;
    }
}

static void next(void *self, rui_turn *turn)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    while (w->next.kind == RUI_TURN_NONE || (w->capture.due && w->next.kind != RUI_TURN_QUIT)) {
        if (w->capture.due) {
            ru_mutex_unlock(&w->lock);
            rui_capture_make(w);
            ru_mutex_lock(&w->lock);
        } else {
            ru_cond_wait(&w->changed, &w->lock);
        }
    }
    take_crew(w);
    w->cmd = w->next;
    w->next.kind = w->cmd.kind == RUI_TURN_QUIT ? RUI_TURN_QUIT : RUI_TURN_NONE;
    /* The job goes on: what failed belonged to a step that was given up meanwhile. */
    w->end.failed = w->end.failed && w->cmd.kind == RUI_TURN_QUIT;
    ru_mutex_unlock(&w->lock);
    *turn = w->cmd;
    if (turn->kind == RUI_TURN_STEP) {
        begin_step(w, turn);
    }
}

static void step_done(rui_worker *w, ru_status st)
{
    if (st == RU_E_CANCELLED || (st != RU_OK && !w->computed)) {
        if (st != RU_E_CANCELLED) {
            (void)say_computed(w, st);
        }
        say(w, &(rui_event){.kind = RUI_EVENT_ABORTED});
    } else {
        say(w, &(rui_event){.kind = RUI_EVENT_UPDATED, .status = st});
    }
}

static void done(void *self, const rui_turn *turn, ru_status st, const ru_err *err)
{
    rui_worker *w = self;
    bool given_up = turn->kind == RUI_TURN_STEP && st == RU_E_CANCELLED;
    failed(w, given_up ? RU_OK : st, err);
    if (turn->kind == RUI_TURN_BUILD) {
        say(w, &(rui_event){.kind = RUI_EVENT_BUILT,
                            .status = st,
                            .layout = st == RU_OK ? ru_exe_grads_hash(w->now->exe) : 0});
    } else if (turn->kind == RUI_TURN_STEP) {
        step_done(w, st);
    } else {
        ru_mutex_lock(&w->lock);
        w->end.summary = w->d.summary;
        w->end.reported = st == RU_OK && w->now != NULL;
        ru_mutex_unlock(&w->lock);
        say(w, &(rui_event){.kind = RUI_EVENT_FINISHED, .status = st});
    }
}

const rui_exchange_ops rui_worker_exchange = {.name = "elastic",
                                              .next = next,
                                              .done = done,
                                              .build = build,
                                              .run = run,
                                              .odd = odd,
                                              .stream = stream,
                                              .stepped = stepped,
                                              .over = over,
                                              .helpers = &rui_worker_helpers};

void rui_worker_compute(void *self)
{
    rui_worker *w = self;
    ru_thread_cores(w->opt->cores);
    ru_recorder_thread(w->t.recorder, "compute");
    rui_driver_init(&w->d, &w->t, &rui_worker_exchange, w);
    w->d.takes_state = w->opt->shell.newcomer;
    rui_drive(&w->d);
    rui_driver_fini(&w->d);
    ru_run_report_close(w->teller);
    rui_build_close(w->now);
    w->now = NULL;
    w->t.exe = NULL;
}
