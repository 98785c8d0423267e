#include "train/driver/summed.h"

#include <math.h>
#include <string.h>

#include "env/process/self.h"
#include "run/rundir.h"
#include "train/driver/driver.h"
#include "train/driver/summed_impl.h"
#include "train/job/batch.h"

typedef struct owner {
    rui_trainer *t;
    rui_driver d;
    const ru_summed_ops *ops;
    void *self;
    uint32_t workers;
    rui_summed_vec vec;
    ru_summed_next next;
    const char *over; /* why an evaluation ended the job */
    bool built, begun, finished;
    ru_status st;
    ru_err *err;
} owner;

/* -- vectors --------------------------------------------------------------------------------------
 */

static ru_status find_grads(const ru_step_graph *s, ru_exe *exe, ru_arena *arena,
                            rui_summed_vec *out, ru_err *err)
{
    const ru_exe_grad *all;
    uint32_t n = ru_exe_grads(exe, &all);
    out->n_grads = s->n_params + 1;
    out->grads = RU_NEW(arena, rui_summed_grad, out->n_grads);
    if (out->grads == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u gradients", out->n_grads);
    }
    for (uint32_t k = 0; k < out->n_grads; k++) {
        ru_value_id v = k < s->n_params ? s->grads[k] : s->shared;
        int64_t bytes = ru_type_bytes(&s->graph.values[v.v].type);
        for (uint32_t i = 0; i < n; i++) {
            if (all[i].value.v == v.v && all[i].size_bytes == bytes) {
                out->grads[k] = (rui_summed_grad){all[i].data, bytes / (int64_t)sizeof(float)};
            }
        }
        if (out->grads[k].data == NULL) {
            return RU_FAIL(err, RU_E_BUG, "gradient %u of the step does not leave it", k);
        }
        out->count += out->grads[k].count;
    }
    return RU_OK;
}

static ru_status find_states(const ru_graph *g, ru_arena *arena, rui_summed_vec *out, ru_err *err)
{
    ru_value_id *states = RU_NEW(arena, ru_value_id, g->n_values);
    if (states == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the state of the step");
    }
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].kind == RU_VALUE_STATE && g->values[v].name != NULL) {
            states[out->n_states++] = (ru_value_id){v};
            out->state_bytes += ru_type_bytes(&g->values[v].type);
        }
    }
    out->states = states;
    return RU_OK;
}

ru_status rui_summed_build(rui_trainer *t, int64_t n, int64_t of, ru_arena *arena,
                           rui_summed_vec *out, ru_err *err)
{
    ru_step_options so;
    ru_exe_options eo;
    rui_trainer_options(t, &so, &eo);
    so.batch = n;
    so.share_of = of;
    eo.two_phase = eo.plain_grads = true;
    eo.autotune = false; /* the processor time of a function comes in slices */
    *out = (rui_summed_vec){0};
    RU_TRY(ru_step_build(&t->model.train, &so, arena, &t->step, err));
    RU_TRY(ru_exe_open(&t->step.graph, &eo, &t->exe, err));
    RU_TRY(find_grads(&t->step, t->exe, arena, out, err));
    return find_states(&t->step.graph, arena, out, err);
}

void rui_summed_grads_read(const rui_summed_vec *v, float *into)
{
    for (uint32_t k = 0; k < v->n_grads; k++) {
        memcpy(into, v->grads[k].data, (size_t)v->grads[k].count * sizeof *into);
        into += v->grads[k].count;
    }
}

void rui_summed_grads_write(const rui_summed_vec *v, const float *from)
{
    for (uint32_t k = 0; k < v->n_grads; k++) {
        memcpy(v->grads[k].data, from, (size_t)v->grads[k].count * sizeof *from);
        from += v->grads[k].count;
    }
}

ru_status rui_summed_state_read(const rui_summed_vec *v, rui_trainer *t, void *into, ru_err *err)
{
    uint8_t *at = into;
    for (uint32_t k = 0; k < v->n_states; k++) {
        RU_TRY(ru_exe_state_read(t->exe, v->states[k], at, err));
        at += ru_type_bytes(&t->step.graph.values[v->states[k].v].type);
    }
    return RU_OK;
}

ru_status rui_summed_state_write(const rui_summed_vec *v, rui_trainer *t, const void *from,
                                 ru_err *err)
{
    const uint8_t *at = from;
    for (uint32_t k = 0; k < v->n_states; k++) {
        RU_TRY(ru_exe_state_write(t->exe, v->states[k], at, err));
        at += ru_type_bytes(&t->step.graph.values[v->states[k].v].type);
    }
    return RU_OK;
}

/* -- settings -------------------------------------------------------------------------------------
 */

static ru_status check(const ru_job *job, uint32_t workers, ru_err *err)
{
    const ru_job_train *j = &job->train;
    const struct {
        bool set;
        const char *key;
    } rows[] = {
        {job->model.source == RU_MODEL_ONNX, "model.onnx"},
        {j->accumulate > 1, "train.accumulate"},
        {j->adapt.batch_max > 0, "train.adapt"},
        {j->histograms > 0, "train.histograms"},
        {j->servers > 0, "train.servers"},
        {j->parallel == RU_PARALLEL_PIPELINE, "train.parallel: pipeline"},
        {j->parallel == RU_PARALLEL_PLACED, "train.parallel: placed"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (rows[k].set) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "training on functions does not support %s; leave it out, or train "
                           "without --functions",
                           rows[k].key);
        }
    }
    double least = (double)j->batch;
    for (uint32_t k = 0; k < j->batch_schedule.n; k++) {
        least = fmin(least, j->batch_schedule.at[k].value);
    }
    return workers <= least
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "train.batch%s %.0f is too small for %u workers, each of which computes "
                         "at least one sample of a step",
                         least < (double)j->batch ? "_schedule:" : "", least, workers);
}

/* -- the exchange ---------------------------------------------------------------------------------
 */

/* The values that the run has now are on disk: it can be resumed, and its facts can be read. */
static ru_status begin(owner *a, ru_err *err)
{
    rui_trainer *t = a->t;
    ru_rundir run;
    char *text;
    int64_t n;
    ru_summed_start s = {.step = t->step_done,
                         .steps = t->steps_end,
                         .count = a->vec.count,
                         .state_bytes = a->vec.state_bytes,
                         .batch = t->job->train.batch,
                         .samples = t->samples,
                         .epoch_samples = t->count,
                         .dir = t->out,
                         .decisions = t->decisions};
    const ru_time before = ru_clock_now();
    const bool saves = t->saved_step != t->step_done;
    RU_TRY(saves ? rui_trainer_save(t, err) : RU_OK);
    RU_TRY(ru_ckpt_wait(t->ckpt, err));
    s.save_ns = saves ? ru_time_since(ru_clock_now(), before) : 0;
    RU_TRY(ru_rundir_open(t->out, t->arena, &run, err));
    RU_TRY(ru_ckpt_state(run.ckpt.dir, t->arena, &text, &n, err));
    s.facts = text;
    return a->ops->begin(a->self, &s, err);
}

/* Until there are sums, or an end. */
static ru_status wait_for(owner *a, ru_err *err)
{
    rui_trainer *t = a->t;
    if (!a->begun) {
        RU_TRY(begin(a, err));
        a->begun = true;
    }
    a->next = (ru_summed_next){0};
    do {
        if (a->next.state != NULL) {
            RU_TRY(rui_summed_state_read(&a->vec, t, a->next.state, err));
        }
        if (a->next.idle && t->saved_step != t->step_done) {
            RU_TRY(rui_trainer_save(t, err));
        }
        RU_TRY(a->ops->next(a->self, t->step_done, &a->next, err));
    } while (a->next.state != NULL || a->next.idle);
    return RU_OK;
}

static void next(void *self, rui_turn *turn)
{
    owner *a = self;
    rui_trainer *t = a->t;
    int64_t batch = ru_job_batch_at(&t->job->train, t->samples, t->count);
    *turn = (rui_turn){
        .kind = RUI_TURN_STEP,
        .share = {.batch = batch, .at = t->samples, .done = (double)t->step_done, .gain = 1},
        .build_n = (batch + a->workers - 1) / a->workers,
        .step = t->step_done,
        .begun = ru_clock_now(),
        .leads = true,
        .workers = a->workers,
        .voters = a->workers,
        .members = 1,
        .job_first = t->step_first};
    if (a->st != RU_OK || a->finished) {
        turn->kind = RUI_TURN_QUIT;
        return;
    }
    if (!a->built) {
        turn->kind = RUI_TURN_BUILD;
        return;
    }
    turn->ended = a->over != NULL ? a->over : t->step_done >= t->steps_end ? "done" : NULL;
    if (turn->ended == NULL) {
        a->st = wait_for(a, a->err);
        turn->ended = a->next.ended;
    }
    turn->kind = a->st != RU_OK        ? RUI_TURN_QUIT
                 : turn->ended != NULL ? RUI_TURN_FINISH
                                       : RUI_TURN_STEP;
}

static void done(void *self, const rui_turn *turn, ru_status st, const ru_err *err)
{
    owner *a = self;
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
    owner *a = self;
    return rui_summed_build(a->t, turn->build_n, turn->share.batch, a->t->arena, &a->vec, err);
}

static ru_status opened(void *self, ru_err *err)
{
    rui_trainer *t = ((owner *)self)->t;
    if (t->goes_on) {
        RU_TRY(rui_trainer_batch_stays(t, err));
    }
    t->begun = t->saved = ru_clock_now();
    return rui_trainer_reports(t, t->opt->resume, t->step_resumed, t->arena, err);
}

static ru_status run(void *self, const rui_turn *turn, const ru_run_args *args, int64_t *waited_ns,
                     ru_err *err)
{
    owner *a = self;
    (void)turn;
    (void)waited_ns;
    rui_summed_grads_write(&a->vec, a->next.sums);
    return ru_exe_phase(a->t->exe, RU_PHASE_UPDATE, args, err);
}

static bool over(void *self, const char *why)
{
    ((owner *)self)->over = why;
    return true;
}

static const rui_exchange_ops exchange = {.name = "functions",
                                          .next = next,
                                          .done = done,
                                          .build = build,
                                          .opened = opened,
                                          .run = run,
                                          .over = over};

ru_status ru_train_summed(const ru_train_options *opt, uint32_t workers, const ru_summed_ops *ops,
                          void *self, ru_arena *arena, ru_train_result *out, ru_err *err)
{
    rui_trainer t = {.opt = opt, .job = opt->job, .arena = arena, .saved_step = -1};
    owner a = {.t = &t, .ops = ops, .self = self, .workers = workers, .err = err};
    ru_self_random(&t.key, sizeof t.key);
    rui_driver_init(&a.d, &t, &exchange, &a);
    a.st = check(opt->job, workers, err);
    a.st = a.st == RU_OK ? rui_trainer_prepare(&t, err) : a.st;
    rui_drive(&a.d);
    ops->end(self);
    if (a.st != RU_OK && t.report != NULL) {
        ru_run_report_log(t.report, "failed after step %lld: %s", (long long)t.step_done,
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
