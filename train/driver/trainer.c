#include "train/driver/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "train/driver/beside.h"
#include "train/driver/driver.h"
#include "train/driver/find_lr.h"
#include "train/driver/histograms.h"
#include "train/driver/op_facts.h"
#include "train/job/batch.h"
#include "train/job/metric.h"

enum { DOUBTS_MAX = 8 }; /* fruitless looks for what is not finite; each costs some steps' time */

/* -- one step ---------------------------------------------------------------------------------- */

static double scalar(rui_trainer *t, ru_value_id v)
{
    return (double)*(const float *)ru_exe_output(t->exe, v);
}

rui_figures rui_trainer_figures(rui_trainer *t)
{
    bool judged = t->step.correct.v != 0;
    return (rui_figures){.loss = scalar(t, t->step.loss),
                         .correct = judged ? scalar(t, t->step.correct) : -1,
                         .count = judged ? scalar(t, t->step.count) : 0,
                         .norm = t->step.norm.v != 0 ? scalar(t, t->step.norm) : -1};
}

static bool adapts(const rui_trainer *t)
{
    return t->job->train.adapt.batch_max > 0;
}

/* Gains are sums of what is not exact. */
static int64_t whole(double x)
{
    return (int64_t)(x + 1e-6);
}

static rui_place place_of(const rui_trainer *t, bool before)
{
    int64_t batch = t->batch > 0 ? t->batch : t->job->train.batch;
    return (rui_place){.step = t->step_done - (before ? 1 : 0),
                       .samples = t->samples - (before ? batch : 0),
                       .done = t->learned.done - (before ? t->learned.gain : 0)};
}

ru_run_report_step rui_trainer_step_report(const rui_trainer *t, const rui_figures *f, double lr,
                                           int64_t step_ns)
{
    int64_t batch = t->batch > 0 ? t->batch : t->job->train.batch;
    bool judged = t->step.correct.v != 0;
    const rui_place before = place_of(t, true);
    return (ru_run_report_step){
        .step = t->step_done,
        .epoch = t->opt->rounds ? t->step_done : rui_trainer_epochs(t, &before) + 1,
        .samples = t->samples,
        .loss = f->loss,
        .lr = lr,
        .accuracy = !judged        ? -1
                    : f->count > 0 ? f->correct / f->count
                                   : 0,
        .norm = f->norm,
        .noise = t->learned.noise,
        .step_ns = step_ns,
        .batch = batch,
    };
}

ru_status rui_trainer_report_step(rui_trainer *t, const ru_run_report_step *s, ru_err *err)
{
    ru_rec_counter(t->recorder, t->names.loss, s->loss);
    ru_rec_counter(t->recorder, t->names.rate,
                   s->step_ns > 0 ? (double)s->batch * 1e9 / (double)s->step_ns : 0);
    return ru_run_report_step_put(t->report, s, err);
}

bool rui_trainer_seal(rui_trainer *t, bool on)
{
    bool was = t->sealed;
    if (on && !was) {
        ru_alloc_seal();
    } else if (!on && was) {
        ru_alloc_unseal();
    }
    t->sealed = on;
    return was;
}

uint32_t rui_trainer_hosts(const rui_trainer *t, uint32_t *mates)
{
    uint32_t n = 0, here = 0;
    for (uint32_t k = 0; k < t->n_crew; k++) {
        const char *host = t->crew[k].host;
        uint32_t i = 0;
        while (i < k && strcmp(t->crew[i].host, host) != 0) {
            i++;
        }
        n += i == k;
        here += t->crew_self < t->n_crew && strcmp(t->crew[t->crew_self].host, host) == 0;
    }
    if (mates != NULL) {
        *mates = here > 0 ? here : 1;
    }
    return n > 0 ? n : 1;
}

/* Inputs that are far from 1 are the usual reason. */
const char *rui_trainer_scale_hint(const rui_trainer *t, char *into, int64_t size_bytes)
{
    enum { LOOK = 64, LARGE = 100, BYTES_MAX = 16 << 10 };
    float x[BYTES_MAX / 4], most = 0, y[BYTES_MAX / 4];
    const ru_type *type = &t->model.facts.x;
    void *fields[RU_FIELDS_MAX] = {x, y};
    const ru_field *f;
    ru_text text = ru_text_into(into, size_bytes);
    bool fits = ru_dataset_fields(t->train_set, &f) == 2 && type->dtype == RU_F32 &&
                ru_type_bytes(type) <= BYTES_MAX && ru_type_bytes(&f[1].type) <= BYTES_MAX;
    for (int64_t i = 0; fits && i < LOOK && i < ru_dataset_count(t->train_set); i++) {
        fits = ru_dataset_read(t->train_set, i, fields, NULL) == RU_OK;
        for (int64_t k = 0; fits && k < ru_type_count(type); k++) {
            most = fabsf(x[k]) > most ? fabsf(x[k]) : most;
        }
    }
    if (most >= LARGE) {
        ru_text_putf(&text, "; the inputs are not scaled (they reach %.3g): %s", (double)most,
                     strcmp(ru_dataset_format(t->train_set), "csv") == 0
                         ? "data.columns: {normalize: true} scales them"
                         : "data.mean and data.std scale them");
    }
    return into;
}

static ru_status no_number(const rui_trainer *t, double lr, ru_err *err)
{
    char hint[128] = "";
    return RU_FAIL(err, RU_E_USER,
                   "the loss is not a number at step %lld (lr %g), although all recomputed values "
                   "before it are finite: training diverged; lower the learning rate "
                   "(train.optimizer, lr) or set train.clip_norm%s",
                   (long long)t->step_done + 1, lr, rui_trainer_scale_hint(t, hint, sizeof hint));
}

/* A loss so far above the first is no outlier when it stays, or when the run would end with it. */
#define DIVERGED 1e4
#define RISEN    3 /* between the first step and the last: people are warned */
enum { HIGH_MAX = 10 };

static ru_status diverged(const rui_trainer *t, double lr, ru_err *err)
{
    char hint[128] = "";
    return RU_FAIL(
        err, RU_E_USER,
        "training diverged: the loss is %.3g after step %lld (lr %g), and was %.3g at the first "
        "step; lower the learning rate (train.optimizer, lr) or set train.clip_norm%s",
        t->loss, (long long)t->step_done, lr, t->rise.first,
        rui_trainer_scale_hint(t, hint, sizeof hint));
}

ru_status rui_trainer_loss(rui_trainer *t, double loss, double lr, ru_err *err)
{
    t->loss = loss;
    if (!isfinite(t->loss)) {
        return no_number(t, lr, err);
    }
    if (t->rise.first == 0) {
        t->rise.first = fabs(t->loss);
    }
    double limit = DIVERGED * (t->rise.first > 1 ? t->rise.first : 1);
    t->rise.n_high = fabs(t->loss) > limit ? t->rise.n_high + 1 : 0;
    return t->rise.n_high < HIGH_MAX ? RU_OK : diverged(t, lr, err);
}

ru_status rui_trainer_judge(void *self, float loss, bool invalid)
{
    rui_trainer *t = self;
    t->loss = (double)loss;
    t->halted = !isfinite(loss) || (invalid && t->doubts < DOUBTS_MAX);
    return t->halted ? RU_E_CANCELLED : RU_OK;
}

ru_status rui_trainer_not_diverged(const rui_trainer *t, bool stopped, ru_err *err)
{
    if (stopped || t->rise.n_high == 0) {
        return RU_OK;
    }
    return diverged(t, ru_schedule_lr(&t->schedule, t->optimizer.lr, t->step_done - 1), err);
}

/* -- evaluation -------------------------------------------------------------------------------- */

int64_t rui_trainer_epochs(const rui_trainer *t, const rui_place *at)
{
    return adapts(t) ? whole(at->done * (double)t->job->train.batch / (double)t->count)
                     : at->samples / t->count;
}

bool rui_trainer_eval_between(const rui_trainer *t, const rui_place *from, const rui_place *to)
{
    int64_t every = t->job->train.eval_every;
    if (every > 0) {
        int64_t a = adapts(t) ? whole(from->done) : from->step;
        int64_t b = adapts(t) ? whole(to->done) : to->step;
        return b / every > a / every;
    }
    return rui_trainer_epochs(t, to) > rui_trainer_epochs(t, from);
}

bool rui_trainer_eval_due(const rui_trainer *t)
{
    rui_place from = place_of(t, true), to = place_of(t, false);
    return t->eval != NULL && rui_trainer_eval_between(t, &from, &to);
}

double rui_trainer_lr(const rui_trainer *t, int64_t step, const ru_share *share)
{
    const ru_job_train *j = &t->job->train;
    if (!adapts(t)) {
        return ru_schedule_lr(&t->schedule, t->optimizer.lr, step);
    }
    double scale = (double)share->batch / (double)j->batch;
    double factor = j->adapt.rule == RU_ADAPT_ADASCALE ? share->gain
                    : j->adapt.rule == RU_ADAPT_SQRT   ? sqrt(scale)
                                                       : scale;
    return factor * ru_schedule_lr(&t->schedule, t->optimizer.lr, whole(share->done));
}

ru_status rui_trainer_evaluated(rui_trainer *t, ru_time t0, ru_err *err)
{
    ru_time t1 = ru_clock_now();
    t->evaluated_step = t->step_done;
    ru_rec_span(t->recorder, t->names.eval, t0.ns, t1.ns, t->step_done);
    const rui_place now = place_of(t, false);
    int64_t epoch = t->opt->rounds ? t->step_done : rui_trainer_epochs(t, &now); /* completed */
    epoch = epoch > 0 ? epoch : 1;
    RU_TRY(ru_run_report_eval(t->report, t->step_done, epoch, &t->metrics, ru_time_since(t1, t0),
                              err));
    double value = ru_metrics_get(&t->metrics, t->best.metric);
    bool best = ru_best_put(&t->best, t->step_done, value);
    bool matters = t->job->train.patience > 0 || t->job->checkpoint.keep_best;
    if (isnan(value) && matters && !t->said.nan) {
        t->said.nan = true;
        ru_run_report_say(t->report,
                          "warning: %s has no value at step %lld (too few samples or classes in "
                          "the test data, or a loss that is not finite); an evaluation without "
                          "one counts as no improvement",
                          t->best.metric, (long long)t->step_done);
    }
    return best && t->job->checkpoint.keep_best ? rui_trainer_save(t, err) : RU_OK;
}

/* Are all targets of `until` met by the last evaluation? */
static bool target_met(const rui_trainer *t)
{
    const ru_conf_pairs *until = &t->job->train.until;
    for (uint32_t k = 0; k < until->n; k++) {
        double v = ru_metrics_get(&t->metrics, until->at[k].key);
        bool more = ru_metric_more(until->at[k].key);
        if (!(more ? v >= until->at[k].value : v <= until->at[k].value)) {
            return false;
        }
    }
    return until->n > 0;
}

const char *rui_trainer_over(const rui_trainer *t)
{
    int64_t patience = t->job->train.patience;
    return target_met(t) ? "target" : patience > 0 && t->best.since >= patience ? "patience" : NULL;
}

/* -- checkpoints ------------------------------------------------------------------------------- */

ru_status rui_trainer_save(rui_trainer *t, ru_err *err)
{
    int64_t pause_ns = 0;
    RU_TRY(rui_trainer_dir_restore(t, err));
    ru_time t0 = ru_clock_now();
    const ru_ckpt_at at = {
        .step = t->step_done,
        .samples = t->samples,
        .done = adapts(t) ? t->learned.done : 0,
        .best = t->job->checkpoint.keep_best && t->best.step == t->step_done,
    };
    RU_TRY(ru_ckpt_save(t->ckpt, t->exe, &at, &pause_ns, err));
    ru_time t1 = ru_clock_now();
    t->split.wait_ns += ru_time_since(t1, t0);
    ru_rec_span(t->recorder, t->names.save, t0.ns, t1.ns, t->step_done);
    t->saved = t1;
    t->saved_step = t->step_done;
    RU_TRY(rui_trainer_dir_facts(t, err)); /* a run that is killed has it as of its checkpoint */
    ru_run_report_details more = ru_run_report_details_none();
    more.pause_s = (double)pause_ns / 1e9;
    return ru_run_report_event(t->report, t->step_done, "checkpoint", 0, &more, err);
}

/* Start a checkpoint when it is time; report the end of one under way. */
ru_status rui_trainer_save_poll(rui_trainer *t, ru_err *err)
{
    bool done;
    ru_ckpt_at at;
    RU_TRY(ru_ckpt_poll(t->ckpt, &done, &at, err));
    return done ? ru_run_report_event(t->report, at.step, "checkpoint_written", 0, NULL, err)
                : RU_OK;
}

ru_status rui_trainer_save_if_due(rui_trainer *t, ru_err *err)
{
    RU_TRY(rui_trainer_save_poll(t, err));
    int64_t every = t->job->checkpoint.every_ns;
    if (every == 0 || ru_time_since(ru_clock_now(), t->saved) < every || ru_ckpt_busy(t->ckpt)) {
        return RU_OK;
    }
    return rui_trainer_save(t, err);
}

/* -- the end ----------------------------------------------------------------------------------- */

static void summarise(rui_trainer *t, const char *ended, ru_run_report_summary *s)
{
    ru_time now = ru_clock_now();
    int64_t wall = ru_time_since(now, t->job_begun.ns != 0 ? t->job_begun : t->begun);
    ru_run_report_split *p = &t->split; /* of this process */
    p->other_ns =
        ru_time_since(now, t->begun) - p->compute_ns - p->input_ns - p->wait_ns - p->network_ns;
    bool from = t->goes_on && t->from.at.step == t->step_first; /* maybe with another batch */
    int64_t before =
        from ? t->from.at.samples : ru_job_samples_of(&t->job->train, t->step_first, t->count);
    int64_t here = t->samples - before;
    const rui_place at = place_of(t, false);
    *s = (ru_run_report_summary){
        .steps = t->step_done,
        .epochs = t->opt->rounds ? t->step_done : rui_trainer_epochs(t, &at),
        .samples = t->samples,
        .wall_ns = wall,
        .samples_lost = t->lost,
        .samples_repeated = t->repeated,
        .samples_damaged = ru_dataset_skipped(t->train_set),
        .samples_per_s = wall > 0 ? (double)here * 1e9 / (double)wall : 0,
        .loss = t->loss,
        .metrics = t->metrics,
        .split = *p,
        .rss_peak_bytes = ru_self_rss_peak_bytes(),
        .ended = ended,
    };
}

ru_status rui_trainer_finish(rui_trainer *t, const char *ended, ru_run_report_summary *summary,
                             ru_err *err)
{
    bool stopped = strcmp(ended, "stopped") == 0;
    bool saved = t->saved_step == t->step_done && !ru_run_place_gone(&t->folder);
    if (!saved && t->opt->sweep == NULL) {
        RU_TRY(rui_trainer_save(t, err));
    }
    ru_time t0 = ru_clock_now();
    RU_TRY(ru_ckpt_wait(t->ckpt, err));
    t->split.wait_ns += ru_time_since(ru_clock_now(), t0);
    if (stopped) {
        const char *how =
            ru_arena_printf(t->arena, "; `rubato train JOB --out %s --resume` continues", t->out);
        ru_run_report_say(t->report, "stopped after %s %lld with a checkpoint%s",
                          t->opt->rounds ? "round" : "step", (long long)t->step_done,
                          t->opt->rounds || how == NULL ? "" : how);
        RU_TRY(ru_run_report_event(t->report, t->step_done, "stop", 0, NULL, err));
    }
    if (t->job->checkpoint.keep_best && t->best.step > 0 && isnan(t->best.value)) {
        ru_run_report_say(t->report,
                          "no evaluation gave a value of %s; %s/checkpoints/best is the first one",
                          t->best.metric, t->out);
    } else if (t->job->checkpoint.keep_best && t->best.step > 0) {
        ru_run_report_say(t->report, "best %s %g after step %lld: %s/checkpoints/best",
                          t->best.metric, t->best.value, (long long)t->best.step, t->out);
    }
    if (!stopped && t->rise.first > 0 && t->loss > RISEN * t->rise.first) {
        ru_run_report_say(
            t->report,
            "warning: the loss rose from %.3g at the first step to %.3g at the last; the "
            "learning rate (train.optimizer, lr) is probably too high",
            t->rise.first, t->loss);
    }
    rui_trainer_say_damaged(t, t->train_set, "training");
    RU_TRY(rui_trainer_dir_facts(t, err));
    summarise(t, ended, summary);
    RU_TRY(ru_run_report_end(t->report, summary, err));
    return ru_run_place_kept(&t->folder, t->saved_step, err);
}

/* -- a job of one process ---------------------------------------------------------------------- */

typedef struct alone {
    rui_trainer *t;
    rui_driver d;
    rui_beside *beside; /* servers on the same cores; NULL: none */
    const char *over;   /* why an evaluation ended the job */
    bool built, finished;
    int64_t batch;  /* of the executable */
    uint32_t parts; /* ... in which it computes a batch */
    bool whole;     /* more than the job says are not possible */
    ru_status st;
    ru_err *err;
} alone;

/* Of a batch: as the job says, or more where servers are beside it. */
static uint32_t parts_of(const alone *a, int64_t batch)
{
    int64_t least = a->t->job->train.accumulate, parts = least > 1 ? least : 1;
    uint32_t wanted = a->beside != NULL && !a->whole ? rui_beside_parts(a->beside) : 0;
    for (int64_t m = parts; m <= batch && m <= RU_ACCUMULATE_MAX && parts < wanted; m++) {
        parts = batch % m == 0 ? m : parts;
    }
    return (uint32_t)parts;
}

static void next(void *self, rui_turn *turn)
{
    alone *a = self;
    rui_trainer *t = a->t;
    int64_t batch = ru_job_batch_at(&t->job->train, t->samples, t->count);
    *turn = (rui_turn){.kind = RUI_TURN_STEP,
                       .share = {.n = batch,
                                 .batch = batch,
                                 .at = t->samples,
                                 .done = (double)t->step_done,
                                 .gain = 1},
                       .build_n = batch,
                       .step = t->step_done,
                       .begun = ru_clock_now(),
                       .leads = true,
                       .workers = 1,
                       .voters = 1,
                       .members = 1,
                       .job_first = t->step_first};
    if (a->st != RU_OK || a->finished) {
        turn->kind = RUI_TURN_QUIT;
    } else if (!a->built) {
        turn->kind = RUI_TURN_BUILD;
    } else if (a->over != NULL || t->step_done >= t->steps_end || ru_self_stop_asked() != 0) {
        turn->kind = RUI_TURN_FINISH;
        turn->ended = a->over != NULL ? a->over : t->step_done >= t->steps_end ? "done" : "stopped";
    } else if (batch != a->batch || parts_of(a, batch) != a->parts) {
        turn->kind = RUI_TURN_BUILD;
    }
}

static void done(void *self, const rui_turn *turn, ru_status st, const ru_err *err)
{
    alone *a = self;
    a->st = st;
    if (st != RU_OK && a->err != NULL) {
        *a->err = *err;
    }
    a->built = true;
    a->finished = turn->kind == RUI_TURN_FINISH;
}

/* All state into the executable of another batch, or of other parts. */
static ru_status take_state(const rui_trainer *t, const ru_graph *was, ru_exe *from, ru_err *err)
{
    const ru_graph *g = &t->step.graph;
    ru_status st = RU_OK;
    for (uint32_t v = 1; v < g->n_values && st == RU_OK; v++) {
        if (g->values[v].kind != RU_VALUE_STATE || g->values[v].name == NULL) {
            continue;
        }
        ru_value_id of = ru_graph_find(was, g->values[v].name);
        RU_CHECK(of.v != 0);
        int64_t bytes = ru_type_bytes(&g->values[v].type);
        void *data = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
        st = data == NULL ? RU_FAIL(err, RU_E_MEM, "no memory to copy the state to another batch")
                          : ru_exe_state_read(from, of, data, err);
        st = st == RU_OK ? ru_exe_state_write(t->exe, (ru_value_id){v}, data, err) : st;
        free(data);
    }
    return st;
}

/* The graph; whole where it cannot be cut into the parts that servers beside it want. */
static ru_status build_graph(alone *a, ru_step_options *so, ru_err *err)
{
    rui_trainer *t = a->t;
    uint32_t least = (uint32_t)(t->job->train.accumulate > 1 ? t->job->train.accumulate : 1);
    so->accumulate = a->parts = parts_of(a, so->batch);
    ru_status st = ru_step_build(&t->model.train, so, t->arena, &t->step, err);
    if ((st == RU_E_UNSUPPORTED || st == RU_E_CONFIG) && a->parts > least) {
        ru_log(RU_LOG_WARN, "train", "beside", "batches stay in %u part%s: %s", least,
               least == 1 ? "" : "s", err->text);
        a->whole = true;
        so->accumulate = a->parts = least;
        st = ru_step_build(&t->model.train, so, t->arena, &t->step, err);
    }
    return st;
}

static ru_status build(void *self, const rui_turn *turn, ru_err *err)
{
    alone *a = self;
    rui_trainer *t = a->t;
    ru_step_options so;
    ru_exe_options eo;
    ru_exe *before = t->exe;
    const ru_graph was = t->step.graph;
    uint32_t parts = a->parts;
    int64_t batch = a->batch;
    rui_trainer_options(t, &so, &eo);
    so.batch = a->batch = turn->share.batch;
    RU_TRY(build_graph(a, &so, err));
    ru_status st = ru_exe_open(&t->step.graph, &eo, &t->exe, err);
    RU_TRY(st == RU_E_MEM ? rui_trainer_too_large(t, err) : st);
    if (before != NULL) {
        st = take_state(t, &was, before, err);
        ru_exe_close(before);
        RU_TRY(st);
    }
    if (before != NULL && batch != a->batch) {
        ru_run_report_say(t->report, "the batch is %lld samples from step %lld on",
                          (long long)so.batch, (long long)t->step_done + 1);
    }
    if (before != NULL && parts != a->parts) {
        ru_run_report_say(t->report, "a batch is computed in %u part%s from step %lld on", a->parts,
                          a->parts == 1 ? "" : "s", (long long)t->step_done + 1);
    }
    RU_TRY(rui_hists_listen(t, err));
    if (a->beside != NULL) {
        int64_t threads = t->job->train.threads;
        RU_TRY(rui_beside_listen(
            a->beside, t->exe, threads != 0 ? (uint32_t)threads : ru_pool_cores(), a->parts, err));
    }
    return ru_exe_judge_set(t->exe, t->step.loss, rui_trainer_judge, t, err);
}

static ru_status opened(void *self, ru_err *err)
{
    rui_trainer *t = ((alone *)self)->t;
    rui_trainer_tuned_out(t);
    t->begun = t->saved = ru_clock_now();
    return rui_trainer_reports(t, t->opt->resume, t->step_resumed, t->arena, err);
}

static ru_status run(void *self, const rui_turn *turn, const ru_run_args *args, int64_t *waited_ns,
                     ru_err *err)
{
    (void)turn;
    (void)waited_ns;
    alone *a = self;
    ru_status st = ru_exe_run(a->t->exe, args, err);
    return a->beside != NULL ? rui_beside_ran(a->beside, st, err) : st;
}

/* The run ended before its update: what is not finite? Nothing: it goes on. */
static ru_status odd(void *self, const rui_odd_step *s, ru_err *err)
{
    rui_trainer *t = ((alone *)self)->t;
    bool sealed = rui_trainer_seal(t, false);
    ru_status st = rui_odd_find(t, s, err);
    (void)rui_trainer_seal(t, sealed);
    RU_TRY(st);
    if (!isfinite(t->loss)) {
        return no_number(t, s->lr, err);
    }
    uint32_t doubts = t->doubts + 1;
    t->doubts = DOUBTS_MAX; /* not of the same step again */
    st = ru_exe_run(t->exe, &s->args, err);
    t->doubts = doubts;
    return st;
}

static void stepped(void *self, const ru_run_report_step *s)
{
    alone *a = self;
    if (a->t->opt->sweep != NULL && rui_sweep_put(a->t->opt->sweep, s->lr, s->loss)) {
        a->over = "done";
    }
}

static bool over(void *self, const char *why)
{
    ((alone *)self)->over = why;
    return true;
}

static const rui_exchange_ops ops = {.name = "alone",
                                     .next = next,
                                     .done = done,
                                     .build = build,
                                     .opened = opened,
                                     .run = run,
                                     .odd = odd,
                                     .stepped = stepped,
                                     .over = over,
                                     .seals = true};

/* Batch norm would take its mean over a part: other results than those of the job. */
static ru_status can_cut(const rui_trainer *t, ru_err *err)
{
    const ru_graph *g = &t->model.train;
    for (uint32_t k = 0; k < g->n_nodes; k++) {
        if (g->nodes[k].op == RU_OP_BatchNormTrain) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--op-max computes batches in parts, and the batch norm of this model "
                           "takes its means over a whole batch; leave out --op-max, or set "
                           "train.accumulate where that is meant");
        }
    }
    return RU_OK;
}

ru_status ru_train(const ru_train_options *opt, ru_arena *arena, ru_train_result *out, ru_err *err)
{
    rui_trainer t = {.opt = opt, .job = opt->job, .arena = arena, .saved_step = -1};
    alone a = {.t = &t, .err = err};
    ru_self_random(&t.key, sizeof t.key);
    rui_driver_init(&a.d, &t, &ops, &a);
    a.st = opt->job->train.adapt.batch_max > 0
               ? RU_FAIL(err, RU_E_CONFIG,
                         "train.adapt needs a run with workers: rubato train JOB -w 1, or more")
               : RU_OK;
    a.st = a.st == RU_OK && opt->n_besides > 0 ? rui_beside_open(opt, &a.beside, err) : a.st;
    a.st = a.st == RU_OK ? rui_trainer_prepare(&t, err) : a.st;
    a.st = a.st == RU_OK && opt->beside_op_max_ns > 0 ? can_cut(&t, err) : a.st;
    rui_drive(&a.d);
    if (a.st != RU_OK && t.report != NULL) {
        ru_run_report_log(t.report, "failed after step %lld: %s", (long long)t.step_done,
                          err != NULL ? err->text : ru_status_name(a.st));
    }
    rui_driver_fini(&a.d);
    rui_trainer_close(&t);
    rui_beside_leave(a.beside);
    if (a.st == RU_OK && !opt->no_trace) { /* the trace is whole now */
        ru_op_facts_fold(t.out);
    }
    if (a.st == RU_OK) {
        *out = (ru_train_result){
            .out = t.out, .summary = a.d.summary, .first_step_ns = t.first_step_ns};
    }
    return a.st;
}
