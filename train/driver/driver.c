#include "train/driver/driver.h"

#include <string.h>

#include "base/log.h"
#include "env/file/reads.h"
#include "env/process/self.h"
#include "train/driver/histograms.h"
#include "train/driver/keep.h"

enum { AHEAD_MAX = 256 }; /* batches; memory bounds them first, where they are large */
enum { ROOM_PART = 4 };   /* a share may grow by this part of it before its stream is opened anew */

void rui_driver_init(rui_driver *d, rui_trainer *t, const rui_exchange_ops *ops, void *self)
{
    *d = (rui_driver){.t = t, .ops = ops, .self = self, .fed_step = -1};
}

static void tell_stream(const rui_driver *d, ru_stream *s)
{
    if (d->ops->stream != NULL) {
        d->ops->stream(d->self, s);
    }
}

static void close_stream(rui_driver *d)
{
    tell_stream(d, NULL);
    ru_stream_close(d->stream);
    d->stream = NULL;
}

void rui_driver_data(rui_driver *d)
{
    close_stream(d);
    d->fed_step = -1;
}

void rui_driver_fini(rui_driver *d)
{
    close_stream(d);
}

/* -- samples ----------------------------------------------------------------------------------- */

static void tell_plain_reads(rui_driver *d)
{
    char why[RU_READS_WHY_MAX];
    uint32_t n = ru_stream_reads_plain(d->stream, why, sizeof why);
    if (n > d->plain_told) {
        ru_log(RU_LOG_INFO, "data", "reads",
               "%u queues of io_uring look up memory or files for every request: %s", n, why);
        d->plain_told = n;
    }
}

/* The tuner of the stream's requests, which begins anew with another batch. */
static ru_status open_reads(rui_driver *d, int64_t batch, ru_err *err)
{
    rui_trainer *t = d->t;
    if (t->job->data.direct && (!ru_stream_reads(d->stream) || ru_stream_reads_files(d->stream))) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data.direct: the training samples are %s; leave data.direct out",
                       ru_stream_reads(d->stream)
                           ? "in a file each, and only parts of larger files are read directly"
                           : "kept in memory, and nothing is read during training");
    }
    if (!ru_stream_reads(d->stream)) {
        return RU_OK;
    }
    if (d->reads == NULL) {
        const char *by = ru_stream_reads_by(d->stream);
        ru_log(RU_LOG_INFO, "data", "reads", "files are read by %s%s%s", by,
               strcmp(by, "threads") == 0 ? ", because this system does not allow io_uring" : "",
               t->job->data.direct ? ", past the system's cache" : "");
        d->reads = RU_NEW(t->arena, rui_read_tune, 1);
    }
    if (d->reads == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the requests of the training data");
    }
    int64_t sample = ru_dataset_bytes(t->train_set) / t->count;
    d->fed_at.ns = 0;
    /* Shuffled samples stand alone, blocks have about 1 MiB, samples in order a whole batch. */
    ru_shuffle shuffle = (ru_shuffle)t->job->data.shuffle;
    int64_t run = shuffle == RU_SHUFFLE_FULL    ? sample
                  : shuffle == RU_SHUFFLE_BLOCK ? sample + (1 << 20)
                                                : sample * batch;
    rui_read_tune_options to = {.sample_bytes = sample,
                                .batch_bytes = sample * batch,
                                .run_bytes = run,
                                .memory_bytes = ru_stream_reads_memory(d->stream),
                                .far = ru_stream_reads_far(d->stream),
                                .files = ru_stream_reads_files(d->stream)};
    ru_stream_ahead_range(d->stream, &to.ahead_min, &to.ahead_max);
    RU_TRY(rui_read_tune_open(d->reads, &to, t->arena, err));
    ru_stream_reads_set(d->stream, d->reads->plan.size_bytes, d->reads->plan.depth);
    return RU_OK;
}

static ru_status open_stream(rui_driver *d, int64_t at, ru_err *err)
{
    const ru_job *job = d->t->job;
    const ru_share *share = &d->turn.share;
    close_stream(d);
    ru_stream_options so = {
        .seed = (uint64_t)job->train.seed,
        .augment = job->data.augment,
        .shuffle = ru_job_shuffle(job),
        .batch = share->n,
        .room = share->n + share->n / ROOM_PART,
        .stride = share->batch,
        .start = at,
        .threads = job->data.threads,
        .ahead_max = AHEAD_MAX,
        .bytes_max = job->data.memory,
        .recorder = d->t->recorder,
    };
    RU_TRY(rui_keep_begin(d->t, err));
    RU_TRY(ru_stream_open(d->t->train_set, &so, &d->stream, err));
    RU_TRY(open_reads(d, share->n, err));
    tell_stream(d, d->stream);
    d->stream_next = at;
    d->stream_n = share->n;
    d->stream_stride = share->batch;
    return RU_OK;
}

/* Shares that change by a little keep the stream, what it has read ahead, and its tuned requests.
 */
static bool keep_stream(rui_driver *d, int64_t at, int64_t n)
{
    if (!ru_stream_share_set(d->stream, at, n)) {
        return false;
    }
    if (d->reads != NULL) {
        d->reads->in.batch_mb *= (double)n / (double)d->stream_n;
    }
    d->stream_next = at;
    d->stream_n = n;
    return true;
}

/* One part per micro-batch. */
static void copy_inputs(rui_trainer *t, const ru_batch *b)
{
    const uint8_t *x = b->fields[0], *y = b->fields[1];
    for (uint32_t j = 0; j < t->step.micro; j++) {
        memcpy(ru_exe_input(t->exe, t->step.x[j]), x + (int64_t)j * t->x_bytes, (size_t)t->x_bytes);
        memcpy(ru_exe_input(t->exe, t->step.y[j]), y + (int64_t)j * t->y_bytes, (size_t)t->y_bytes);
    }
}

/* binary_cross_entropy has no meaning for labels outside 0 to 1. */
static ru_status check_labels(const rui_driver *d, const ru_batch *b, ru_err *err)
{
    const rui_trainer *t = d->t;
    const ru_type *y = &t->model.facts.y;
    int64_t per = ru_type_count(y);
    if (t->model.loss != RU_LOSS_BINARY_CROSS_ENTROPY || y->dtype != RU_F32) {
        return RU_OK;
    }
    const float *labels = b->fields[1];
    for (int64_t i = 0; i < b->n * per; i++) {
        if (!(labels[i] >= 0 && labels[i] <= 1)) {
            char where[512];
            int64_t sample = ru_stream_sample(d->stream, b->position + i / per);
            return RU_FAIL(
                err, RU_E_DATA,
                "train.loss binary_cross_entropy needs labels from 0 to 1, but the label "
                "of %s is %g; set train.loss to mse for regression",
                ru_dataset_where(t->train_set, sample, where, sizeof where), (double)labels[i]);
        }
    }
    return RU_OK;
}

/* The share's samples into the inputs. */
static ru_status feed(rui_driver *d, ru_err *err)
{
    const ru_share *share = &d->turn.share;
    int64_t at = share->at, n = share->n, stride = share->batch;
    if (d->fed_step == d->turn.step && d->fed_n == n && d->stream_stride == stride &&
        d->stream_next == at + stride) {
        return RU_OK; /* the step before was given up: its samples are still there */
    }
    bool same = d->stream != NULL && d->stream_stride == stride;
    if (!same || ((d->stream_n != n || d->stream_next != at) && !keep_stream(d, at, n))) {
        RU_TRY(open_stream(d, at, err));
    }
    ru_batch b = {0};
    ru_time from = ru_clock_now();
    RU_TRY(ru_stream_next(d->stream, &b, err));
    rui_keep_waited(d->t, ru_time_since(ru_clock_now(), from));
    RU_CHECK(b.n == n && b.position == at); /* the stream is endless */
    d->stream_next = b.next;
    if (d->reads != NULL) {
        ru_time now = ru_clock_now();
        rui_read_step step = {.wait_ns = b.wait_ns,
                              .step_ns = d->fed_at.ns != 0 ? ru_time_since(now, d->fed_at) : 0,
                              .fill_ns = b.fill_ns};
        rui_read_tune_step(d->reads, d->stream, &step, d->t->decisions);
        d->fed_at = now;
        tell_plain_reads(d);
    }
    RU_TRY(check_labels(d, &b, err));
    copy_inputs(d->t, &b);
    d->fed_step = d->turn.step;
    d->fed_n = n;
    return RU_OK;
}

/* -- evaluation -------------------------------------------------------------------------------- */

ru_status rui_driver_evals_open(rui_driver *d, ru_err *err)
{
    rui_trainer *t = d->t;
    const rui_helpers *h = d->ops->helpers;
    if (t->eval == NULL) {
        ru_step_options so;
        ru_exe_options eo;
        rui_trainer_options(t, &so, &eo);
        RU_TRY(rui_trainer_eval_open(t, &eo, NULL, err));
    }
    int64_t n = ru_eval_batches(t->eval);
    if (d->n_sums == n) {
        return RU_OK;
    }
    d->sums = RU_NEW(t->arena, ru_eval_sums, n);
    if (d->sums == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the evaluation");
    }
    RU_TRY(h != NULL ? h->open(d->self, n, err) : RU_OK);
    d->n_sums = n;
    return RU_OK;
}

static bool is_over(void *self)
{
    rui_driver *d = self;
    return d->ops->helpers->is_over(d->self, d->t->step_done);
}

static void keep(void *self, int64_t batch, const ru_eval_sums *sums)
{
    rui_driver *d = self;
    d->sums[batch] = *sums;
}

static void send(void *self, int64_t batch, const ru_eval_sums *sums)
{
    rui_driver *d = self;
    d->ops->helpers->send(d->self, d->t->step_done, batch, sums);
}

/* Do others evaluate too? Not when a batch and its outputs do not fit into a message. */
static bool shared(const rui_driver *d)
{
    const rui_helpers *h = d->ops->helpers;
    return h != NULL && ru_eval_rows_bytes(d->t->eval, 0) <= h->rows_max_bytes;
}

/* The batches of this process: [rank/members, (rank+1)/members) of all. */
static ru_eval_part part_of(rui_driver *d)
{
    bool all = !shared(d);
    int64_t n = d->n_sums, members = all || d->turn.members == 0 ? 1 : d->turn.members;
    int64_t rank = all ? 0 : d->turn.rank;
    return (ru_eval_part){
        .first = n * rank / members, .end = n * (rank + 1) / members, .done = keep, .self = d};
}

/* Its own part, then from the last batch backwards what nobody has sent yet, so it waits for
 * nobody. The sums are added in the order of the batches: the metrics are those of one process. */
ru_status rui_driver_evaluate(rui_driver *d, ru_err *err)
{
    rui_trainer *t = d->t;
    const rui_helpers *h = shared(d) ? d->ops->helpers : NULL;
    ru_time begun = ru_clock_now();
    /* Who is asked to leave a job that is done still tells how it ended: nobody else does. */
    const bool whole = d->turn.kind == RUI_TURN_FINISH && d->ops->helpers != NULL;
    RU_TRY(ru_eval_state_from(t->eval, &t->step.graph, t->exe, err));
    ru_eval_part own = part_of(d);
    own.whole = whole;
    RU_TRY(ru_eval_run_part(t->eval, &own, err));
    for (int64_t b = d->n_sums - 1; b >= 0; b--) {
        const ru_eval_part one = {
            .first = b, .end = b + 1, .whole = whole, .done = keep, .self = d};
        bool there = b >= own.first && b < own.end;
        if (!there && (h == NULL || !h->got(d->self, t->step_done, b, &d->sums[b]))) {
            RU_TRY(ru_eval_run_part(t->eval, &one, err));
        }
    }
    if (h != NULL) {
        h->over(d->self, t->step_done);
    }
    RU_TRY(ru_eval_metrics(t->eval, d->sums, &t->metrics, err));
    return rui_trainer_evaluated(t, begun, err);
}

/* What fails here is the leader's to find: it runs what is missing. */
void rui_driver_help(rui_driver *d)
{
    rui_trainer *t = d->t;
    ru_err err = {0};
    if (d->ops->helpers == NULL || !rui_trainer_eval_due(t) || d->turn.share.n == 0 ||
        d->turn.members < 2 || !shared(d) || is_over(d)) {
        return;
    }
    ru_eval_part part = part_of(d);
    part.stop = is_over;
    part.done = send;
    ru_time begun = ru_clock_now();
    ru_status st = ru_eval_state_from(t->eval, &t->step.graph, t->exe, &err);
    st = st == RU_OK ? ru_eval_run_part(t->eval, &part, &err) : st;
    ru_rec_span(t->recorder, t->names.eval, begun.ns, ru_clock_now().ns, t->step_done);
    if (st != RU_OK && st != RU_E_CANCELLED) {
        ru_log(RU_LOG_WARN, "train", "evaluation",
               "this worker cannot evaluate its part, so the leader does: %s", err.text);
    }
}

/* -- build ------------------------------------------------------------------------------------- */

/* What evaluates, and what only the leader needs, when it needs it. */
static ru_status lead(rui_driver *d, ru_err *err)
{
    rui_trainer *t = d->t;
    if (t->test_set != NULL && (d->turn.leads || d->turn.members > 1)) {
        RU_TRY(rui_driver_evals_open(d, err));
    }
    if (!d->turn.leads) {
        return RU_OK;
    }
    if (t->ckpt == NULL) {
        bool others = d->takes_state || t->step_done != d->first_step; /* led before */
        RU_TRY(rui_trainer_ckpt(t, others, err));
    }
    RU_TRY(rui_hists_open(t, err));
    if (!d->decided) {
        rui_trainer_decided(t);
        d->decided = true;
    }
    if (!d->started && d->first_step == t->step_done) { /* a successor continues the same files */
        RU_TRY(rui_trainer_dir_files(t, err));
        RU_TRY(d->ops->opened != NULL ? d->ops->opened(d->self, err) : RU_OK);
        RU_TRY(rui_trainer_say_start(t, d->turn.workers, err));
    }
    d->started = true;
    return RU_OK;
}

static ru_status build(rui_driver *d, ru_err *err)
{
    rui_trainer *t = d->t;
    const rui_turn *turn = &d->turn;
    RU_TRY(d->ops->build(d->self, turn, err));
    int64_t part = turn->build_n / t->step.micro;
    t->x_bytes = part * ru_type_bytes(&t->model.facts.x);
    t->y_bytes = part * ru_type_bytes(&t->model.facts.y);
    d->fed_step = -1;
    d->decided = false;
    rui_trainer_record(t);
    if (!d->built) {
        RU_TRY(d->takes_state ? RU_OK : rui_trainer_fill(t, err));
        d->first_step = t->step_done;
        d->built = true;
    }
    d->built_at = t->step_done;
    bool other = d->stream == NULL || (d->ops->seals && d->stream_n != turn->share.n);
    if (other && turn->share.n == turn->share.batch) { /* reading ahead begins */
        RU_TRY(open_stream(d, t->samples, err));
    }
    return lead(d, err);
}

/* -- step -------------------------------------------------------------------------------------- */

static double set_scalars(rui_driver *d)
{
    rui_trainer *t = d->t;
    double lr = rui_trainer_lr(t, d->turn.step, &d->turn.share);
    *(float *)ru_exe_input(t->exe, t->step.lr) = (float)lr;
    for (uint32_t k = 0; k < t->step.n_rates; k++) {
        const ru_step_rate *rate = &t->step.rates[k];
        *(float *)ru_exe_input(t->exe, rate->input) = (float)(lr * rate->factor);
    }
    if (t->step.step.v != 0) {
        *(int64_t *)ru_exe_input(t->exe, t->step.step) = d->turn.step + 1;
    }
    return lr;
}

void rui_driver_figures(rui_driver *d)
{
    if (d->n_ran > 0 && !d->ran[0].read) {
        d->ran[0].figures =
            d->ops->figures != NULL ? d->ops->figures(d->self) : rui_trainer_figures(d->t);
        d->ran[0].read = true;
    }
}

/* Is the loss a number, and did the backward part meet a value that is none? */
static ru_status check(rui_driver *d, const rui_ran *r, ru_err *err)
{
    rui_trainer *t = d->t;
    RU_TRY(rui_trainer_loss(t, r->figures.loss, r->s.lr, err));
    if (r->turn.share.n == 0 || !(r->invalid || ru_exe_invalid(t->exe))) {
        return RU_OK;
    }
    bool sealed = rui_trainer_seal(t, false);
    ru_status st = rui_odd_states(t, r->turn.step + 2, r->s.lr, err);
    (void)rui_trainer_seal(t, sealed);
    return st;
}

/* The step counts: what the trainer knows of it, and its report. */
static ru_status count(rui_driver *d, const rui_ran *r, int64_t waited_ns, ru_err *err)
{
    rui_trainer *t = d->t;
    const ru_share *share = &r->turn.share;
    ru_time now = ru_clock_now();
    ru_time begun = d->committed.ns > r->begun.ns ? d->committed : r->begun;
    ru_time since = d->committed.ns > r->turn.begun.ns ? d->committed : r->turn.begun;
    d->committed = now;
    t->step_done = r->turn.step + 1;
    t->batch = share->batch;
    t->learned.done = share->done + share->gain;
    t->learned.gain = share->gain;
    t->samples = share->at - share->first + t->batch;
    t->split.compute_ns += r->ns - r->waited_ns;
    t->split.network_ns += r->waited_ns + waited_ns;
    rui_keep_stepped(t, r->begun, now);
    ru_rec_span(t->recorder, t->names.step, begun.ns, now.ns, t->step_done);
    ru_rec_counter_at(t->recorder, t->names.cpu_all, now.ns, (double)ru_clock_cpu_ns());
    if (t->first_step_ns == 0) {
        t->first_step_ns = now.ns - ru_self_start_ns();
    }
    ru_run_report_step s =
        rui_trainer_step_report(t, &r->figures, r->s.lr, ru_time_since(now, since));
    /* Its samples too: to a plan all is computing that others do not hold up. Where steps overlap,
     * a wait may lie before this one. */
    int64_t alone_ns = s.step_ns - r->waited_ns - waited_ns, run_ns = r->ns - r->waited_ns;
    s.compute_ns = alone_ns > run_ns ? alone_ns : run_ns;
    if (d->ops->stepped != NULL) {
        d->ops->stepped(d->self, &s);
    }
    return r->turn.leads ? rui_trainer_report_step(t, &s, err) : RU_OK;
}

/* The samples of a later step may be in place: that one is over. */
static ru_status find_odd(rui_driver *d, rui_ran *r, ru_err *err)
{
    if (r->turn.share.n > 0 && d->fed_step != r->turn.step) {
        const rui_turn now = d->turn;
        d->turn = r->turn;
        ru_status st = feed(d, err);
        (void)set_scalars(d);
        d->turn = now;
        RU_TRY(st);
        r->s.stream = d->stream;
    }
    return d->ops->odd(d->self, &r->s, err);
}

ru_status rui_driver_commit(rui_driver *d, ru_err *err)
{
    rui_trainer *t = d->t;
    RU_CHECK(d->n_ran > 0);
    int64_t waited_ns = 0;
    ru_time begun = ru_clock_now();
    rui_ran *r = &d->ran[0];
    if (d->ops->commit != NULL) {
        t->halted = false;
        ru_status st = d->ops->commit(d->self, &r->turn, &r->s.args, &waited_ns, err);
        RU_TRY(t->halted ? find_odd(d, r, err) : st);
        if (!d->beside) { /* else it is part of the run under way */
            r->ns += ru_time_since(ru_clock_now(), begun);
        }
    }
    rui_driver_figures(d);
    RU_TRY(check(d, r, err));
    const rui_ran done = *r;
    d->ran[0] = d->ran[1];
    d->n_ran--;
    return count(d, &done, waited_ns, err);
}

/* Input, then the run: all of it, or up to the gradients. */
static ru_status compute(rui_driver *d, ru_err *err)
{
    rui_trainer *t = d->t;
    const rui_turn *turn = &d->turn;
    const ru_share *share = &turn->share;
    RU_CHECK(d->n_ran < RUI_RAN_MAX);
    ru_time begun = ru_clock_now();
    RU_TRY(share->n > 0 ? feed(d, err) : RU_OK);
    rui_ran r = {
        .turn = *turn,
        .begun = begun,
        .s = {.args = {.seed = (uint64_t)t->job->train.seed,
                       .step = turn->step,
                       .sample_offset = share->first},
              .position = share->at,
              .stream = d->stream,
              .lr = set_scalars(d)},
    };
    ru_time fed = ru_clock_now();
    if (share->n > 0) {
        t->split.input_ns += ru_time_since(fed, begun);
        ru_rec_span(t->recorder, t->names.input, begun.ns, fed.ns, share->n);
    }
    t->halted = false;
    d->beside = d->n_ran > 0;
    ru_status st = d->ops->run(d->self, turn, &r.s.args, &r.waited_ns, err);
    d->beside = false;
    RU_TRY(t->halted && d->ops->commit == NULL ? d->ops->odd(d->self, &r.s, err) : st);
    r.ns = ru_time_since(ru_clock_now(), fed);
    r.invalid = ru_exe_invalid(t->exe);
    d->ran[d->n_ran++] = r;
    return d->ops->commit == NULL ? rui_driver_commit(d, err) : RU_OK;
}

/* The leader: evaluation when it is due, then a checkpoint when that is. */
static ru_status settle(rui_driver *d, ru_err *err)
{
    rui_trainer *t = d->t;
    RU_TRY(rui_hists_write(t, err));
    if (rui_trainer_eval_due(t)) {
        ru_status st = rui_driver_evaluate(d, err);
        if (st == RU_E_CANCELLED) {
            return RU_OK; /* a stop signal */
        }
        RU_TRY(st);
        if (rui_trainer_over(t) != NULL && d->ops->over(d->self, rui_trainer_over(t))) {
            return RU_OK;
        }
    }
    return rui_trainer_save_if_due(t, err);
}

/* Whoever continues a run, after a stop or as the next leader: was the evaluation after its last
 * step made and told? Does it end the run: *why then, else NULL. */
static ru_status catch_up(rui_driver *d, const char **why, ru_err *err)
{
    rui_trainer *t = d->t;
    *why = NULL;
    if (!d->turn.leads || d->led || t->step_done == 0 || t->step_done == t->evaluated_step ||
        !rui_trainer_eval_due(t)) {
        return RU_OK;
    }
    /* Its metrics are not told by the file, and a target needs them. */
    bool again = t->job->train.until.n > 0 || ru_run_report_evaluated(t->report) < t->step_done;
    ru_status st = again ? rui_driver_evaluate(d, err) : RU_OK;
    if (st == RU_E_CANCELLED) {
        return RU_OK; /* a stop signal */
    }
    RU_TRY(st);
    *why = rui_trainer_over(t);
    return RU_OK;
}

/* A step counts and no later one has begun. */
static ru_status after(rui_driver *d, ru_err *err)
{
    if (d->turn.leads) {
        return settle(d, err);
    }
    rui_driver_help(d);
    return RU_OK;
}

static ru_status step(rui_driver *d, ru_err *err)
{
    const char *why;
    RU_TRY(lead(d, err));
    RU_TRY(catch_up(d, &why, err));
    if (why != NULL && d->ops->over(d->self, why)) {
        return RU_OK;
    }
    rui_trainer *t = d->t;
    (void)rui_trainer_seal(t, d->ops->seals && t->step_done > d->built_at);
    ru_status st = compute(d, err);
    (void)rui_trainer_seal(t, false);
    RU_TRY(st);
    return d->ops->commit == NULL ? after(d, err) : RU_OK;
}

static ru_status commit(rui_driver *d, ru_err *err)
{
    RU_CHECK(d->n_ran > 0);
    d->turn = d->ran[0].turn;
    d->turn.kind = RUI_TURN_COMMIT;
    RU_TRY(rui_driver_commit(d, err));
    return d->n_ran == 0 ? after(d, err) : RU_OK;
}

/* -- the end ----------------------------------------------------------------------------------- */

static ru_status finish(rui_driver *d, ru_err *err)
{
    rui_trainer *t = d->t;
    rui_turn *turn = &d->turn;
    const char *why = NULL;
    if (!d->built) {
        return RU_OK;
    }
    bool stopped = strcmp(turn->ended, "stopped") == 0;
    turn->rank = 0; /* the others are gone */
    turn->members = 1;
    t->lost = turn->lost;
    t->repeated = turn->repeated;
    t->job_begun = turn->job_begun;
    t->step_first = turn->job_first;
    RU_TRY(lead(d, err));
    RU_TRY(stopped ? RU_OK : catch_up(d, &why, err));
    turn->ended = why != NULL ? why : turn->ended;
    RU_TRY(rui_trainer_not_diverged(t, stopped, err));
    if (t->eval != NULL && !stopped && t->evaluated_step != t->step_done) {
        RU_TRY(rui_driver_evaluate(d, err));
    }
    return rui_trainer_finish(t, turn->ended, &d->summary, err);
}

void rui_drive(rui_driver *d)
{
    for (;;) {
        ru_err err = {0};
        ru_status st = RU_OK;
        d->turn = (rui_turn){0};
        d->ops->next(d->self, &d->turn);
        switch (d->turn.kind) {
        case RUI_TURN_NONE:
            break;
        case RUI_TURN_BUILD:
            st = build(d, &err);
            break;
        case RUI_TURN_STEP:
            st = step(d, &err);
            d->led = d->turn.leads;
            break;
        case RUI_TURN_COMMIT:
            st = commit(d, &err);
            break;
        case RUI_TURN_CANCEL:
            d->n_ran = 0;
            break;
        case RUI_TURN_FINISH:
            st = finish(d, &err);
            break;
        case RUI_TURN_QUIT:
            return;
        }
        d->ops->done(d->self, &d->turn, st, &err);
    }
}
