/* The compute thread: the training driver's exchange with the other workers.
 *
 *   STEP k    forward, backward; the update opens            READY .., COMPUTED k --> loop
 *   COMMIT k  the verdict of the loop is UPDATE: the rest, its report      UPDATED k --> loop
 *   CANCEL    it is ABORT: what was updated is taken back                   ABORTED --> loop
 *
 * With two steps under way STEP k + 1 comes before the verdict about k. Its run waits in ports for
 * the sums that it needs, and hears the verdict there and between operators (commit_beside). The
 * update of k + 1 opens when k counts. A verdict is about the oldest step, ABORT about all.
 *
 * A share of 0 computes nothing: its gradients are zero, and the update runs alone on the sums. */
#include <string.h>

#include "exec/update.h"
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

/* -- the step whose update is open --------------------------------------------------------------
 */

/* Sleep until something changes, the lock held; the wait is recorded. */
static int64_t wait_for_sums(rui_worker *w)
{
    ru_time begun = ru_clock_now();
    ru_cond_wait(&w->changed, &w->lock);
    ru_time ended = ru_clock_now();
    ru_rec_wait(w->t.recorder, w->t.names.sums, begun.ns, ended.ns, w->t.names.sums);
    return ru_time_since(ended, begun);
}

/* The verdict that waits, the lock held. */
static rui_verdict take_verdict(rui_worker *w)
{
    rui_verdict v = w->verdict;
    w->verdict = RUI_VERDICT_NONE;
    ru_flag_set(&w->said, RUI_VERDICT_NONE);
    return v;
}

static void open_update(rui_worker *w, const ru_run_args *args)
{
    ru_err err = {0};
    ru_status st = w->now->early ? ru_exe_update_open(w->now->exe, args, &err) : RU_OK;
    RU_CHECK(st == RU_OK); /* what could keep it from opening was found when it was built */
}

/* The leader: all sums are there. */
static void note_gradients(rui_worker *w, const rui_turn *turn)
{
    for (uint32_t k = 0; turn->leads && rui_hists_due(&w->t) && k + 1 < w->list.n_tensors; k++) {
        const ru_exe_grad *g = &w->now->tensors[k]; /* the last parameter is the first */
        rui_hists_gradient(&w->t, w->list.n_tensors - 2 - k, g->data,
                           g->size_bytes / (int64_t)sizeof(float));
    }
}

static ru_status on_poll(void *self, uint32_t step);

static ru_status commit(void *self, const rui_turn *turn, const ru_run_args *args,
                        int64_t *waited_ns, ru_err *err)
{
    rui_worker *w = self;
    const rui_ran *r = &w->d.ran[0];
    const float *sums =
        w->now->tensors[w->list.n_tensors - 1].data; /* the loss of all is the first */
    *waited_ns = w->at.idle_ns;
    w->at.idle_ns = 0;
    note_gradients(w, turn);
    rui_noise_commit(w, turn);
    bool open = ru_exe_update_is_open(w->now->exe);
    ru_status st = rui_trainer_judge(&w->t, r->read ? (float)r->figures.loss : sums[0], false);
    if (st != RU_OK) {
        ru_exe_early_undo(w->now->exe);
    } else if (open) {
        st = ru_exe_update_keep(w->now->exe, err);
    } else {
        ru_exe_poll_set(w->now->exe, NULL, NULL); /* an update goes on to its end */
        st = ru_exe_phase(w->now->exe, RU_PHASE_UPDATE, args, err);
        ru_exe_poll_set(w->now->exe, on_poll, w);
    }
    ru_mutex_lock(&w->lock);
    rui_early_clear(w);
    ru_mutex_unlock(&w->lock);
    return st;
}

static void say_updated(rui_worker *w, int64_t step, ru_status st, const ru_err *err)
{
    failed(w, st, err);
    ru_mutex_lock(&w->lock);
    w->ahead.saved = w->t.saved;
    ru_mutex_unlock(&w->lock);
    say(w, &(rui_event){.kind = RUI_EVENT_UPDATED, .step = step, .status = st});
}

/* The step before counts, and the one under way goes on. */
static ru_status commit_beside(rui_worker *w)
{
    ru_err err = {0};
    ru_time begun = ru_clock_now();
    RU_CHECK(w->d.n_ran > 0);
    int64_t step = w->d.ran[0].turn.step;
    ru_status st = rui_driver_commit(&w->d, &err);
    if (st == RU_OK) {
        rui_weights_make(w);
    }
    w->at.made_ns += ru_time_since(ru_clock_now(), begun);
    say_updated(w, step, st, &err);
    return st == RU_OK ? RU_OK : RU_E_CANCELLED;
}

/* -- ports of the executable ------------------------------------------------------------------- */

/* What the loop thread said while a step is run: does that go on? */
static ru_status hear(rui_worker *w)
{
    ru_mutex_lock(&w->lock);
    bool quit = w->next.kind == RUI_TURN_QUIT || w->verdict == RUI_VERDICT_ABORT;
    bool counts = !quit && take_verdict(w) == RUI_VERDICT_UPDATE;
    ru_mutex_unlock(&w->lock);
    return quit ? RU_E_CANCELLED : counts ? commit_beside(w) : RU_OK;
}

static ru_status on_poll(void *self, uint32_t step)
{
    (void)step;
    rui_worker *w = self;
    return ru_flag_get(&w->said) == RUI_VERDICT_NONE ? RU_OK : hear(w);
}

/* Until value `v` is no more in use by the update of the step before. */
static ru_status await(rui_worker *w, ru_value_id v)
{
    ru_status st = RU_OK;
    while (st == RU_OK && !ru_exe_updated(w->now->exe, v)) {
        st = hear(w);
        ru_mutex_lock(&w->lock);
        bool more = st == RU_OK && ru_exe_update_is_open(w->now->exe) && !rui_early_next(w);
        if (more && w->verdict == RUI_VERDICT_NONE && w->next.kind != RUI_TURN_QUIT) {
            w->at.waited_ns += wait_for_sums(w);
        }
        ru_mutex_unlock(&w->lock);
    }
    return st;
}

static ru_status on_await(void *self, const ru_exe_at *at)
{
    return await(self, at->value);
}

/* The first gradient of a step is told when all sums of the step before are used: most are, since
 * the forward pass read their parameters. */
static ru_status all_summed(rui_worker *w)
{
    for (uint32_t k = 0; !w->at.summed && k < w->list.n_tensors; k++) {
        RU_TRY(await(w, w->now->tensors[k].value));
    }
    w->at.summed = true;
    return RU_OK;
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
    RU_TRY(all_summed(x->w));
    rui_noise_made(x->w, x->tensor, at->data);
    say_made(x->w, x->tensor);
    return RU_OK;
}

/* Memory of gradient `tensor` may be written again. */
static ru_status free_gradient(rui_worker *w, uint32_t tensor)
{
    RU_TRY(await(w, w->now->tensors[tensor].value));
    if (tensor + 1 == w->list.n_tensors && ru_exe_update_is_open(w->now->exe)) {
        rui_driver_figures(&w->d);
    }
    return RU_OK;
}

static ru_status on_again(void *self, const ru_exe_at *at)
{
    const leaving *x = self;
    (void)at;
    return free_gradient(x->w, x->tensor);
}

/* Each gradient leaves when it is made; with two steps under way the later one waits for what the
 * update of the one before makes. */
static ru_status set_ports(rui_worker *w, rui_build *b, ru_err *err)
{
    uint32_t most = 2 * w->list.n_tensors + w->list.n_states, n = 0;
    leaving *all = RU_NEW(&b->arena, leaving, w->list.n_tensors);
    ru_exe_port *ports = RU_NEW(&b->arena, ru_exe_port, most);
    if (all == NULL || ports == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u gradients", w->list.n_tensors);
    }
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        ru_value_id v = b->tensors[k].value;
        all[k] = (leaving){.w = w, .tensor = k};
        ports[n++] = (ru_exe_port){.value = v, .leaves = true, .fn = on_ready, .self = &all[k]};
        if (b->two) {
            ports[n++] = (ru_exe_port){.value = v, .again = true, .fn = on_again, .self = &all[k]};
        }
    }
    for (uint32_t k = 0; b->two && k < w->list.n_states; k++) {
        ports[n++] = (ru_exe_port){.value = b->states[k], .fn = on_await, .self = w};
    }
    ru_exe_poll_set(b->exe, on_poll, w);
    return ru_exe_ports_set(b->exe, ports, n, err);
}

static ru_status build(void *self, const rui_turn *turn, ru_err *err)
{
    rui_worker *w = self;
    rui_build *b, *before = w->now;
    RU_TRY(rui_build_open(w, turn->build_n, turn->plain, before == NULL, &b, err));
    rui_early_ready(w, b);
    rui_adapt_built(w, b);
    ru_status st = set_ports(w, b, err);
    st = st == RU_OK && before != NULL ? rui_build_take(w, before, b, err) : st;
    if (st != RU_OK) {
        rui_build_close(b);
        return st;
    }
    w->now = b;
    w->t.step = b->step;
    w->t.exe = b->exe;
    rui_build_close(before);
    tell_facts(w);
    (void)rui_order_make(w);
    return RU_OK;
}

/* -- one step ---------------------------------------------------------------------------------- */

/* A share of 0: zeros take part in the sums. */
static ru_status follow(rui_worker *w)
{
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        const ru_exe_grad *g = &w->now->tensors[k];
        RU_TRY(free_gradient(w, k));
        memset(g->data, 0, (size_t)g->size_bytes);
    }
    for (uint32_t k = 0; k < w->list.n_tensors; k++) { /* behind all sums of the step before */
        say_made(w, k);
    }
    return RU_OK;
}

/* The loss of all is no number: is it because of samples here? */
static ru_status odd(void *self, const rui_odd_step *s, ru_err *err)
{
    rui_worker *w = self;
    bool there = w->d.fed_step == s->args.step;
    RU_TRY(there ? rui_odd_find(&w->t, s, err)
                 : rui_odd_states(&w->t, s->args.step + 1, s->lr, err));
    return RU_FAIL(err, RU_E_USER,
                   "the loss is not a number at step %lld (lr %g)%s: training diverged; lower the "
                   "learning rate (train.optimizer, lr) or set train.clip_norm",
                   (long long)s->args.step + 1, s->lr,
                   there ? ", because of samples of another worker" : "");
}

static ru_status run(void *self, const rui_turn *turn, const ru_run_args *args, int64_t *waited_ns,
                     ru_err *err)
{
    rui_worker *w = self;
    w->at.begun = ru_clock_now();
    w->at.waited_ns = w->at.made_ns = 0;
    w->at.summed = false;
    RU_CHECK(turn->share.n == 0 || turn->share.n == w->now->n);
    rui_noise_begin(w);
    RU_TRY(turn->share.n == 0 ? follow(w) : ru_exe_phase(w->t.exe, RU_PHASE_GRADIENTS, args, err));
    rui_noise_end(w);
    *waited_ns = w->at.waited_ns;
    int64_t ns = ru_time_since(ru_clock_now(), w->at.begun) - w->at.waited_ns - w->at.made_ns;
    w->at.computed_ns = turn->share.n > 0 ? ns : 0;
    if (w->d.n_ran == 0) { /* else when the step before counts */
        open_update(w, args);
    }
    say(w, &(rui_event){
               .kind = RUI_EVENT_COMPUTED, .seq = w->cmd.seq, .ns = turn->share.n > 0 ? ns : 0});
    return RU_OK;
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
    rui_adapt_stepped(w, s);
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

/* What to do next, the lock held; NONE: nothing yet. */
static rui_turn_kind choose(const rui_worker *w)
{
    bool asked_for = w->capture.due || rui_weights_due(w); /* the world file comes first */
    bool written = asked_for && w->d.n_ran == 0;
    bool asked = w->next.kind == RUI_TURN_STEP; /* before the loop thread heard of a failure */
    bool stuck = w->end.failed && (w->d.n_ran > 0 || asked);
    return w->next.kind == RUI_TURN_QUIT      ? RUI_TURN_QUIT
           : w->verdict == RUI_VERDICT_ABORT  ? RUI_TURN_CANCEL
           : stuck || written                 ? RUI_TURN_NONE
           : w->verdict == RUI_VERDICT_UPDATE ? RUI_TURN_COMMIT
                                              : w->next.kind;
}

/* Until there is something to do: sums of the step that waits for its verdict. The lock held. */
static void pass_time(rui_worker *w)
{
    if (w->capture.due && w->d.n_ran == 0) {
        ru_mutex_unlock(&w->lock);
        rui_capture_make(w);
        ru_mutex_lock(&w->lock);
    } else if (rui_weights_due(w) && w->d.n_ran == 0) {
        ru_mutex_unlock(&w->lock);
        rui_weights_make(w);
        ru_mutex_lock(&w->lock);
    } else if (w->d.n_ran == 0 || w->end.failed) {
        ru_cond_wait(&w->changed, &w->lock);
    } else if (!rui_early_next(w)) {
        w->at.idle_ns += wait_for_sums(w);
    }
}

static void next(void *self, rui_turn *turn)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    rui_turn_kind kind;
    while ((kind = choose(w)) == RUI_TURN_NONE) {
        pass_time(w);
    }
    if (kind == RUI_TURN_COMMIT || kind == RUI_TURN_CANCEL) {
        (void)take_verdict(w);
        /* The job goes on: what failed belonged to a step that is given up. */
        w->end.failed = w->end.failed && kind == RUI_TURN_COMMIT;
        ru_mutex_unlock(&w->lock);
        *turn = (rui_turn){.kind = kind};
        return;
    }
    take_crew(w);
    w->cmd = w->next;
    w->next.kind = w->cmd.kind == RUI_TURN_QUIT ? RUI_TURN_QUIT : RUI_TURN_NONE;
    w->end.failed = w->end.failed && w->cmd.kind == RUI_TURN_QUIT; /* nothing follows it */
    ru_mutex_unlock(&w->lock);
    *turn = w->cmd;
    if (turn->kind == RUI_TURN_STEP) {
        begin_step(w, turn);
    }
}

/* No step that was run counts: all is as before the oldest of them. */
static void cancelled(rui_worker *w)
{
    if (w->now != NULL) {
        ru_exe_early_undo(w->now->exe);
    }
    w->at.idle_ns = 0;
    say(w, &(rui_event){.kind = RUI_EVENT_ABORTED});
}

static void committed(rui_worker *w, int64_t step, ru_status st, const ru_err *err)
{
    if (st == RU_OK) {
        rui_weights_make(w);
    }
    if (st == RU_OK && w->d.n_ran > 0) {
        open_update(w, &w->d.ran[0].s.args);
    }
    say_updated(w, step, st, err);
}

static void done(void *self, const rui_turn *turn, ru_status st, const ru_err *err)
{
    rui_worker *w = self;
    switch (turn->kind) {
    case RUI_TURN_BUILD:
        failed(w, st, err);
        say(w, &(rui_event){.kind = RUI_EVENT_BUILT,
                            .status = st,
                            .layout = st == RU_OK ? ru_exe_grads_hash(w->now->exe) : 0});
        break;
    case RUI_TURN_STEP: /* what was given up waits for the turn CANCEL */
        if (st != RU_OK && st != RU_E_CANCELLED) {
            failed(w, st, err);
            say(w, &(rui_event){.kind = RUI_EVENT_COMPUTED, .seq = w->cmd.seq, .status = st});
        }
        break;
    case RUI_TURN_COMMIT:
        committed(w, turn->step, st, err);
        break;
    case RUI_TURN_CANCEL:
        cancelled(w);
        break;
    case RUI_TURN_FINISH:
        failed(w, st, err);
        ru_mutex_lock(&w->lock);
        w->end.summary = w->d.summary;
        w->end.reported = st == RU_OK && w->now != NULL;
        ru_mutex_unlock(&w->lock);
        say(w, &(rui_event){.kind = RUI_EVENT_FINISHED, .status = st});
        break;
    case RUI_TURN_NONE:
    case RUI_TURN_QUIT:
        break;
    }
}

const rui_exchange_ops rui_worker_exchange = {.name = "elastic",
                                              .next = next,
                                              .done = done,
                                              .build = build,
                                              .run = run,
                                              .commit = commit,
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
