#include "train/driver/rounds.h"

#include <stdlib.h>
#include <string.h>

#include "env/process/self.h"
#include "train/driver/driver.h"
#include "train/driver/op_facts.h"

typedef struct rounds {
    rui_trainer *t;
    rui_driver d;
    const ru_rounds_ops *ops;
    void *self;
    ru_flat flat;
    ru_round round;
    const char *over; /* why an evaluation ended the job */
    bool built, begun, finished;
    ru_status st;
    ru_err *err;
} rounds;

/* -- settings -------------------------------------------------------------------------------------
 */

static ru_status check(const ru_job *job, ru_err *err)
{
    const ru_job_train *j = &job->train;
    const struct {
        bool set;
        const char *key;
    } rows[] = {
        {job->model.source == RU_MODEL_ONNX, "model.onnx (those who compute do not have the file)"},
        {j->ema > 0, "train.ema"},
        {j->accumulate > 1, "train.accumulate"},
        {j->batch_schedule.n > 0, "train.batch_schedule"},
        {j->histograms > 0, "train.histograms"},
        {j->class_weights.n > 0, "train.class_weights"},
        {j->steps < 1, "a job without rounds; federated.rounds says how many"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (rows[k].set) {
            return RU_FAIL(err, RU_E_CONFIG, "federated training has no use for %s; leave it out",
                           rows[k].key);
        }
    }
    return RU_OK;
}

/* -- the exchange ---------------------------------------------------------------------------------
 */

/* The values that the run has now, first of all on disk: a round repeats from there. */
static ru_status keep(rounds *a, ru_err *err)
{
    rui_trainer *t = a->t;
    if (t->saved_step != t->step_done) {
        RU_TRY(rui_trainer_save(t, err));
    }
    return ru_ckpt_wait(t->ckpt, err);
}

/* What those who compute must know. */
static ru_status describe(const rounds *a, ru_rounds_start *s, ru_err *err)
{
    char *text;
    int64_t n, layout = ru_flat_layout(&a->flat, &a->t->step.graph, NULL);
    RU_TRY(ru_ckpt_state(s->run.ckpt.dir, a->t->arena, &text, &n, err));
    s->state_bytes = layout + n;
    s->state = RU_NEW(a->t->arena, uint8_t, s->state_bytes);
    if (s->state == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the description of a model");
    }
    ru_wire_out o = ru_wire_out_into(s->state, s->state_bytes);
    (void)ru_flat_layout(&a->flat, &a->t->step.graph, &o);
    ru_wire_put_bytes(&o, text, n);
    RU_CHECK(!o.bad && ru_wire_size(&o) == s->state_bytes);
    return RU_OK;
}

static ru_status begin(rounds *a, ru_err *err)
{
    rui_trainer *t = a->t;
    ru_rounds_start s = {.out = t->out, .round = t->step_done, .flat = &a->flat};
    float *values = malloc((size_t)a->flat.count * sizeof *values);
    if (values == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the values of the model");
    }
    ru_status st = keep(a, err);
    st = st == RU_OK ? ru_rundir_open(t->out, t->arena, &s.run, err) : st;
    st = st == RU_OK ? describe(a, &s, err) : st;
    st = st == RU_OK ? ru_flat_read(&a->flat, &t->step.graph, t->exe, values, err) : st;
    if (st == RU_OK) {
        s.values = values;
        st = a->ops->begin(a->self, &s, err);
    }
    free(values);
    return st;
}

static ru_status wait_for(rounds *a, ru_err *err)
{
    if (!a->begun) {
        RU_TRY(begin(a, err));
        a->begun = true;
    }
    return a->ops->next(a->self, &a->round, err);
}

static void next(void *self, rui_turn *turn)
{
    rounds *a = self;
    rui_trainer *t = a->t;
    *turn = (rui_turn){.kind = RUI_TURN_STEP,
                       .build_n = t->job->train.batch,
                       .step = t->step_done,
                       .begun = ru_clock_now(),
                       .leads = true,
                       .workers = 1,
                       .voters = 1,
                       .members = 1,
                       .job_first = t->step_first};
    if (a->st != RU_OK || a->finished) {
        turn->kind = RUI_TURN_QUIT;
        return;
    }
    if (!a->built) {
        turn->kind = RUI_TURN_BUILD;
        turn->share.batch = t->job->train.batch;
        return;
    }
    a->round = (ru_round){.ended = a->over};
    if (a->over == NULL && t->step_done >= t->steps_end) {
        a->round.ended = "done";
    } else if (a->over == NULL) {
        a->st = wait_for(a, a->err);
        if (a->st != RU_OK) {
            turn->kind = RUI_TURN_QUIT;
            return;
        }
    }
    turn->share = (ru_share){.batch = a->round.samples, .at = t->samples};
    turn->ended = a->round.ended;
    turn->kind = turn->ended != NULL ? RUI_TURN_FINISH : RUI_TURN_STEP;
}

static void done(void *self, const rui_turn *turn, ru_status st, const ru_err *err)
{
    rounds *a = self;
    if (st != RU_OK && a->st == RU_OK) {
        a->st = st;
        if (a->err != NULL) {
            *a->err = *err;
        }
    }
    a->built = true;
    a->finished = turn->kind == RUI_TURN_FINISH;
}

static ru_status build(void *self, const rui_turn *turn, ru_err *err)
{
    rounds *a = self;
    rui_trainer *t = a->t;
    ru_step_options so;
    ru_exe_options eo;
    (void)turn;
    rui_trainer_options(t, &so, &eo);
    eo.autotune = false; /* it is never run */
    RU_TRY(ru_step_build(&t->model.train, &so, t->arena, &t->step, err));
    RU_TRY(ru_exe_open(&t->step.graph, &eo, &t->exe, err));
    return ru_flat_of(&t->step.graph, t->arena, &a->flat, err);
}

static ru_status opened(void *self, ru_err *err)
{
    rui_trainer *t = ((rounds *)self)->t;
    t->begun = t->saved = ru_clock_now();
    return rui_trainer_reports(t, t->opt->resume, t->step_resumed, t->arena, err);
}

static ru_status run(void *self, const rui_turn *turn, const ru_run_args *args, int64_t *waited_ns,
                     ru_err *err)
{
    rounds *a = self;
    (void)turn;
    (void)args;
    (void)waited_ns;
    return ru_flat_write(&a->flat, &a->t->step.graph, a->t->exe, a->round.values, err);
}

static rui_figures figures(void *self)
{
    const rounds *a = self;
    bool counts = a->t->step.correct.v != 0 && a->round.accuracy >= 0;
    return (rui_figures){.loss = a->round.loss >= 0 ? a->round.loss : a->t->loss,
                         .correct = counts ? a->round.accuracy : -1,
                         .count = counts ? 1 : 0,
                         .norm = -1};
}

/* The round counts: nothing else happens before it is on disk. */
static void stepped(void *self, const ru_run_report_step *s)
{
    rounds *a = self;
    (void)s;
    a->st = keep(a, a->err);
    a->st = a->st == RU_OK ? a->ops->kept(a->self, a->t->step_done, a->err) : a->st;
}

static bool over(void *self, const char *why)
{
    ((rounds *)self)->over = why;
    return true;
}

static const rui_exchange_ops exchange = {.name = "rounds",
                                          .next = next,
                                          .done = done,
                                          .build = build,
                                          .opened = opened,
                                          .run = run,
                                          .figures = figures,
                                          .stepped = stepped,
                                          .over = over};

ru_status ru_train_rounds(const ru_train_options *opt, const ru_rounds_ops *ops, void *self,
                          ru_arena *arena, ru_train_result *out, ru_err *err)
{
    ru_train_options o = *opt;
    o.rounds = true;
    rui_trainer t = {.opt = &o, .job = opt->job, .arena = arena, .saved_step = -1};
    rounds a = {.t = &t, .ops = ops, .self = self, .err = err};
    ru_self_random(&t.key, sizeof t.key);
    rui_driver_init(&a.d, &t, &exchange, &a);
    a.st = check(opt->job, err);
    a.st = a.st == RU_OK ? rui_trainer_prepare(&t, err) : a.st;
    rui_drive(&a.d);
    if (a.st != RU_OK && t.report != NULL) {
        ru_run_report_log(t.report, "failed after round %lld: %s", (long long)t.step_done,
                          err != NULL ? err->text : ru_status_name(a.st));
    }
    rui_driver_fini(&a.d);
    rui_trainer_close(&t);
    if (a.st == RU_OK) {
        *out = (ru_train_result){
            .out = t.out, .summary = a.d.summary, .first_step_ns = t.first_step_ns};
    }
    return a.st;
}
