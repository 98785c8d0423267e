/* The compute thread: waits for a command, does it, says so.
 *
 *   BUILD   step graph and executable of a share; state moves over from the one before
 *   STEP    feed, run; inside of the run, before the first gradient is read:
 *             COMPUTED --> loop;  verdict <-- loop: UPDATE goes on, ABORT ends the run
 *           then the loss is told, evaluations and checkpoints that are due are made, UPDATED
 *   FINISH  last evaluation, checkpoint, summary
 *
 * A share of 0 computes nothing: its gradients are zero, and the update runs alone on the sums. */
#include <string.h>

#include "train/run/odd.h"
#include "train/worker/worker_impl.h"

void rui_worker_post(rui_worker *w, const rui_word *x)
{
    ru_mutex_lock(&w->lock);
    RU_CHECK(w->n_words < RUI_WORDS_MAX);
    w->words[(w->word_at + w->n_words) % RUI_WORDS_MAX] = *x;
    w->n_words++;
    bool wake = x->kind != RUI_WORD_READY || rui_buckets_ready(w, x->tensor);
    ru_mutex_unlock(&w->lock);
    if (wake) {
        ru_loop_wake(w->loop, w->waker);
    }
}

/* Keep the first sentence about what went wrong here. */
static void failed(rui_worker *w, ru_status st, const ru_err *err)
{
    ru_mutex_lock(&w->lock);
    if (!w->compute_failed && st != RU_OK) {
        w->compute_failed = true;
        w->compute_err = *err;
    }
    ru_mutex_unlock(&w->lock);
}

/* -- building ---------------------------------------------------------------------------------- */

/* The first executable of this worker: start values, and the first line of the report. */
static ru_status first_build(rui_worker *w, ru_err *err)
{
    return w->opt->newcomer ? RU_OK : rui_trainer_fill(&w->t, err);
}

/* What evaluates, and what only the leader needs, when it needs it. */
static ru_status lead_parts(rui_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    if (t->test_set != NULL && (w->cmd.leads || w->cmd.members > 1)) {
        RU_TRY(rui_evals_open(w, err));
    }
    if (!w->cmd.leads) {
        return RU_OK;
    }
    if (t->ckpt == NULL) {
        RU_TRY(rui_trainer_ckpt(t, err));
    }
    rui_trainer_decided(t);
    t->workers = w->cmd.workers;
    t->share_n = w->now->n;
    t->gradient_bytes = (ru_conf_i64s){w->tensor_bytes, w->n_tensors};
    t->state_bytes = (ru_conf_i64s){w->state_bytes, w->n_states};
    if (!w->started && w->first_step == t->step_done) { /* a successor goes on in the same files */
        RU_TRY(rui_trainer_dir_files(t, err));
        RU_TRY(rui_trainer_say_start(t, w->cmd.workers, err));
    }
    w->started = true;
    return RU_OK;
}

static ru_status build(rui_worker *w, ru_err *err)
{
    rui_build *b;
    RU_TRY(rui_build_open(w, w->cmd.build_n, w->cmd.plain, w->now == NULL, &b, err));
    rui_build *before = w->now;
    if (before != NULL) {
        ru_status st = rui_build_take(w, before, b, err);
        if (st != RU_OK) {
            rui_build_close(b);
            return st;
        }
    }
    w->now = b;
    w->early.of = NULL;
    w->t.step = b->step;
    w->t.exe = b->exe;
    int64_t part = b->n / b->step.micro;
    w->t.x_bytes = part * ru_type_bytes(&w->t.model.facts.x);
    w->t.y_bytes = part * ru_type_bytes(&w->t.model.facts.y);
    w->fed_step = -1;
    rui_trainer_record(&w->t);
    if (before == NULL) {
        RU_TRY(first_build(w, err));
    }
    rui_build_close(before);
    return lead_parts(w, err);
}

/* -- hooks of the executable ------------------------------------------------------------------- */

static ru_status on_poll(void *self)
{
    rui_worker *w = self;
    return ru_flag_get(&w->abort) != 0 && !w->computed ? RU_E_CANCELLED : RU_OK;
}

static void on_ready(void *self, ru_value_id v, void *data, int64_t size_bytes)
{
    rui_worker *w = self;
    for (uint32_t k = 0; k < w->n_tensors; k++) {
        if (w->now->tensors[k].value.v == v.v) {
            rui_worker_post(w, &(rui_word){.kind = RUI_WORD_READY,
                                           .seq = w->cmd.seq,
                                           .tensor = k,
                                           .span = {.data = data, .size_bytes = size_bytes}});
        }
    }
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
    while (w->verdict == RUI_VERDICT_NONE && w->next.kind != RUI_CMD_QUIT) {
        if (!rui_early_next(w)) {
            wait_for_sums(w);
        }
    }
    rui_verdict v = w->verdict == RUI_VERDICT_NONE ? RUI_VERDICT_ABORT : w->verdict;
    ru_mutex_unlock(&w->lock);
    w->verdict_at = ru_clock_now();
    if (v == RUI_VERDICT_ABORT) {
        rui_early_undo(w);
    }
    return v;
}

static rui_verdict say_computed(rui_worker *w, ru_status st)
{
    w->computed = true;
    w->computed_at = ru_clock_now();
    int64_t ns = w->cmd.share.n > 0 ? ru_time_since(w->computed_at, w->step_begun) : 0;
    rui_worker_post(
        w, &(rui_word){.kind = RUI_WORD_COMPUTED, .seq = w->cmd.seq, .status = st, .ns = ns});
    return wait_verdict(w);
}

static ru_status on_await(void *self, ru_value_id v)
{
    (void)v;
    rui_worker *w = self;
    if (w->computed) {
        return RU_OK;
    }
    if (say_computed(w, RU_OK) != RUI_VERDICT_UPDATE) {
        return RU_E_CANCELLED;
    }
    const float *sums = w->now->tensors[w->n_tensors - 1].data; /* the loss of all is the first */
    return rui_trainer_judge(&w->t, sums[0], false);
}

/* -- one step ---------------------------------------------------------------------------------- */

static ru_status open_stream(rui_worker *w, int64_t at, ru_err *err)
{
    const ru_job *job = w->t.job;
    ru_stream_close(w->stream);
    w->stream = NULL;
    ru_stream_options so = {
        .seed = (uint64_t)job->train.seed,
        .shuffle = ru_job_shuffle(job),
        .batch = w->cmd.share.n,
        .stride = w->cmd.share.batch,
        .start = at,
        .threads = job->data.threads,
        .recorder = w->t.recorder,
    };
    RU_TRY(ru_stream_open(w->t.train_set, &so, &w->stream, err));
    w->stream_next = at;
    w->stream_n = w->cmd.share.n;
    w->stream_stride = w->cmd.share.batch;
    return RU_OK;
}

/* The share's samples into the inputs, one part per micro-batch. */
static ru_status feed(rui_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    int64_t at = w->cmd.share.at, n = w->cmd.share.n;
    if (w->fed_step == w->cmd.step && w->fed_n == n && w->stream_stride == w->cmd.share.batch &&
        w->stream_next == at + w->stream_stride) {
        return RU_OK; /* the step before was given up: its samples are still there */
    }
    if (w->stream == NULL || w->stream_n != n || w->stream_stride != w->cmd.share.batch ||
        w->stream_next != at) {
        RU_TRY(open_stream(w, at, err));
    }
    ru_batch b;
    RU_TRY(ru_stream_next(w->stream, &b, err));
    RU_CHECK(b.n == n && b.position == at);
    w->stream_next = b.next;
    rui_trainer_feed(t, &b);
    w->fed_step = w->cmd.step;
    w->fed_n = n;
    return RU_OK;
}

static double set_scalars(rui_worker *w)
{
    rui_trainer *t = &w->t;
    double lr = ru_schedule_lr(&t->schedule, t->optimizer.lr, w->cmd.step);
    *(float *)ru_exe_input(t->exe, t->step.lr) = (float)lr;
    if (t->step.step.v != 0) {
        *(int64_t *)ru_exe_input(t->exe, t->step.step) = w->cmd.step + 1;
    }
    return lr;
}

/* A share of 0: zeros take part in the sums. */
static ru_status follow(rui_worker *w, const ru_run_args *args, ru_err *err)
{
    for (uint32_t k = 0; k < w->n_tensors; k++) {
        const ru_exe_grad *g = &w->now->tensors[k];
        memset(g->data, 0, (size_t)g->size_bytes);
        on_ready(w, g->value, g->data, g->size_bytes);
    }
    if (say_computed(w, RU_OK) != RUI_VERDICT_UPDATE) {
        return RU_E_CANCELLED;
    }
    return ru_exe_phase(w->t.exe, RU_PHASE_UPDATE, args, err);
}

/* The loss of all is no number: is it because of samples here? With updates made early parameters
 * are those after the step, and tell nothing. */
static ru_status look(rui_worker *w, const ru_run_args *args, ru_err *err)
{
    rui_trainer *t = &w->t;
    const rui_odd_step s = {
        .args = *args,
        .position = w->cmd.share.at,
        .stream = w->stream,
        .lr = ru_schedule_lr(&t->schedule, t->optimizer.lr, w->cmd.step),
    };
    if (w->early.of == NULL) {
        RU_TRY(rui_odd_find(t, &s, err));
    }
    return RU_FAIL(err, RU_E_USER,
                   "the loss is not a number at step %lld (lr %g)%s: training diverged; lower the "
                   "learning rate (train.optimizer, lr) or set train.clip_norm",
                   (long long)args->step + 1, s.lr,
                   w->early.of == NULL ? ", because of samples of another worker" : "");
}

static ru_status compute(rui_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    const ru_run_args args = {.seed = (uint64_t)t->job->train.seed,
                              .step = w->cmd.step,
                              .sample_offset = w->cmd.share.first};
    if (w->cmd.share.n == 0) {
        return follow(w, &args, err);
    }
    RU_CHECK(w->cmd.share.n == w->now->n);
    RU_TRY(feed(w, err));
    ru_time fed = ru_clock_now();
    t->split.input_ns += ru_time_since(fed, w->step_begun);
    ru_rec_span(t->recorder, t->names.input, w->step_begun.ns, fed.ns, w->cmd.share.n);
    w->step_begun = fed;
    ru_exe_hooks_set(
        t->exe, &(ru_exe_hooks){.ready = on_ready, .await = on_await, .poll = on_poll, .self = w});
    t->halted = false;
    ru_status st = ru_exe_run(t->exe, &args, err);
    ru_exe_hooks_set(t->exe, NULL);
    return t->halted ? look(w, &args, err) : st;
}

static void remember(rui_worker *w, double lr, int64_t step_ns)
{
    rui_trainer *t = &w->t;
    rui_past p = {.step = t->step_done, .report = rui_trainer_step_report(t, lr, step_ns)};
    ru_mutex_lock(&w->lock);
    w->past[t->step_done % RUI_HISTORY] = p;
    ru_mutex_unlock(&w->lock);
}

/* Everything that follows an update. */
static ru_status after_update(rui_worker *w, double lr, ru_err *err)
{
    rui_trainer *t = &w->t;
    ru_time now = ru_clock_now();
    RU_TRY(rui_trainer_loss(t, lr, err));
    if (w->cmd.share.n > 0 && ru_exe_invalid(t->exe)) { /* a NaN may have been lost */
        RU_TRY(rui_odd_states(t, w->cmd.step + 2, lr, err));
    }
    t->step_done = w->cmd.step + 1;
    t->batch = w->cmd.share.batch;
    t->samples = w->cmd.share.at - w->cmd.share.first + t->batch;
    t->split.compute_ns += ru_time_since(w->computed_at, w->step_begun) + w->early.ns +
                           ru_time_since(now, w->verdict_at);
    t->split.network_ns += ru_time_since(w->verdict_at, w->computed_at) - w->early.ns;
    ru_rec_span(t->recorder, t->names.step, w->step_begun.ns, now.ns, t->step_done);
    int64_t step_ns = ru_time_since(now, w->updated_at.ns != 0 ? w->updated_at : w->step_begun);
    w->updated_at = now;
    remember(w, lr, step_ns);
    if (!w->cmd.leads) {
        rui_worker_help(w);
        return RU_OK;
    }
    RU_TRY(lead_parts(w, err));
    ru_report_step r = rui_trainer_step_report(t, lr, step_ns);
    RU_TRY(rui_trainer_report_step(t, &r, err));
    if (rui_trainer_eval_due(t)) {
        ru_status st = rui_worker_evaluate(w, err);
        if (st == RU_E_CANCELLED) {
            return RU_OK; /* a stop signal */
        }
        RU_TRY(st);
        if (rui_trainer_over(t) != NULL) {
            rui_worker_post(w, &(rui_word){.kind = RUI_WORD_OVER, .why = rui_trainer_over(t)});
        }
    }
    return rui_trainer_save_if_due(t, err);
}

static void step(rui_worker *w)
{
    ru_err err = {0};
    w->computed = false;
    w->step_begun = ru_clock_now();
    rui_buckets_begin(w);
    if (w->cmd.leads) { /* else the loop thread may be opening them: this worker takes over */
        ru_report_workers_set(w->t.report, w->cmd.workers, w->cmd.members, w->cmd.voters);
    }
    double lr = set_scalars(w);
    ru_status st = compute(w, &err);
    if (st == RU_OK) {
        st = after_update(w, lr, &err);
        failed(w, st, &err);
        rui_worker_post(w, &(rui_word){.kind = RUI_WORD_UPDATED, .status = st});
        return;
    }
    if (st != RU_E_CANCELLED) {
        failed(w, st, &err);
        if (w->computed) { /* the update itself failed */
            rui_worker_post(w, &(rui_word){.kind = RUI_WORD_UPDATED, .status = st});
            return;
        }
        (void)say_computed(w, st);
    }
    rui_worker_post(w, &(rui_word){.kind = RUI_WORD_ABORTED});
}

/* -- the end ----------------------------------------------------------------------------------- */

static void finish(rui_worker *w)
{
    ru_err err = {0};
    ru_report_summary s = {0};
    w->t.lost = w->cmd.lost;
    w->t.repeated = w->cmd.repeated;
    w->t.job_begun = w->cmd.job_begun;
    w->t.step_first = w->cmd.job_first;
    ru_status st = w->now == NULL ? RU_OK : lead_parts(w, &err);
    if (st == RU_OK && w->now != NULL) {
        bool stopped = strcmp(w->cmd.ended, "stopped") == 0;
        st = rui_trainer_not_diverged(&w->t, stopped, &err);
        if (st == RU_OK && w->t.eval != NULL && !stopped && w->t.evaluated_step != w->t.step_done) {
            st = rui_worker_evaluate(w, &err);
        }
    }
    if (st == RU_OK && w->now != NULL) {
        st = rui_trainer_finish(&w->t, w->cmd.ended, &s, &err);
    }
    failed(w, st, &err);
    ru_mutex_lock(&w->lock);
    w->summary = s;
    w->reported = st == RU_OK && w->now != NULL;
    ru_mutex_unlock(&w->lock);
    rui_worker_post(w, &(rui_word){.kind = RUI_WORD_FINISHED, .status = st});
}

void rui_worker_compute(void *self)
{
    rui_worker *w = self;
    ru_thread_cores(w->opt->cores);
    ru_recorder_thread(w->t.recorder, "compute");
    for (;;) {
        ru_mutex_lock(&w->lock);
        while (w->next.kind == RUI_CMD_NONE && !w->capture.due) {
            ru_cond_wait(&w->changed, &w->lock);
        }
        if (w->capture.due && w->next.kind != RUI_CMD_QUIT) {
            ru_mutex_unlock(&w->lock);
            rui_capture_make(w);
            continue;
        }
        w->cmd = w->next;
        w->next.kind = w->cmd.kind == RUI_CMD_QUIT ? RUI_CMD_QUIT : RUI_CMD_NONE;
        /* The job goes on: what failed belonged to a step that was given up meanwhile. */
        w->compute_failed = w->compute_failed && w->cmd.kind == RUI_CMD_QUIT;
        ru_mutex_unlock(&w->lock);
        if (w->cmd.kind == RUI_CMD_QUIT) {
            break;
        }
        if (w->cmd.kind == RUI_CMD_BUILD) {
            ru_err err = {0};
            ru_status st = build(w, &err);
            failed(w, st, &err);
            rui_worker_post(
                w, &(rui_word){.kind = RUI_WORD_BUILT,
                               .status = st,
                               .layout = st == RU_OK ? ru_exe_grads_hash(w->now->exe) : 0});
        } else if (w->cmd.kind == RUI_CMD_STEP) {
            step(w);
        } else {
            finish(w);
        }
    }
    rui_build_close(w->now);
    w->now = NULL;
    w->t.exe = NULL;
    ru_stream_close(w->stream);
    w->stream = NULL;
}
