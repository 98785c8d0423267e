/* One that computes: the driver's loop over a share, without a folder. */
#include <string.h>

#include "run/rundir.h"
#include "train/driver/driver.h"
#include "train/driver/summed.h"
#include "train/driver/summed_impl.h"

struct ru_summed_worker {
    ru_rundir run;
    ru_train_options opt;
    rui_trainer t;
    rui_driver d;
    ru_arena *arena, builds;
    rui_summed_vec vec;
    float *sums;
    int64_t n, of;  /* of the executable: samples of a batch; 0: none */
    int64_t step;   /* done; -1: the state is of none */
    int64_t before; /* samples of the run before those of the data */
    const ru_summed_task *task;
    bool built, last;
    ru_status st;
    ru_err *err;
};

/* -- opening --------------------------------------------------------------------------------------
 */

ru_status ru_summed_job(const char *facts, int64_t facts_bytes, ru_arena *arena, ru_rundir *out,
                        ru_err *err)
{
    const char *text = ru_arena_strn(arena, facts, facts_bytes);
    if (text == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a job");
    }
    RU_TRY(
        ru_ckpt_parse("the run", "the job of the run", text, facts_bytes, arena, &out->ckpt, err));
    RU_TRY(ru_job_parse("the job of the run", out->ckpt.job_yaml, arena, &out->job, err));
    out->job.storage.n = 0; /* copies of data on other machines */
    return RU_OK;
}

ru_status ru_summed_data(const ru_rundir *run, const char *const *paths, uint32_t n_paths,
                         ru_dataset **out, ru_err *err)
{
    const ru_model_facts *f = &run->ckpt.facts;
    ru_data_options o = ru_job_data_options(&run->job, false);
    ru_dataset *d;
    o.paths = n_paths > 0 ? paths : o.paths;
    o.n_paths = n_paths > 0 ? n_paths : o.n_paths;
    o.class_names = f->class_names;
    o.n_class_names = f->n_class_names;
    o.columns = f->columns.n > 0 ? &f->columns : NULL;
    o.classes = f->classes;
    o.context = o.context != 0 || f->x.rank != 1 ? o.context : f->x.dims[0];
    o.cache.kind = o.cache.kind == RU_CACHE_AUTO ? RU_CACHE_NONE : o.cache.kind;
    RU_TRY(ru_dataset_open(&o, &d, err));
    const ru_field *fields;
    uint32_t n = ru_dataset_fields(d, &fields);
    if (n < 2 || !ru_type_equal(&fields[0].type, &f->x) || !ru_type_equal(&fields[1].type, &f->y)) {
        ru_dataset_close(d);
        return RU_FAIL(err, RU_E_DATA,
                       "the training data of this function have another shape than those of the "
                       "run; check that both read the same files");
    }
    *out = d;
    return RU_OK;
}

static ru_status take_data(ru_summed_worker *w, const ru_summed_files *files, ru_err *err)
{
    RU_TRY(ru_summed_data(&w->run, files->paths, files->n, &w->t.train_set, err));
    w->t.count = ru_dataset_count(w->t.train_set);
    w->before = files->before;
    return w->t.count > 0 ? RU_OK : RU_FAIL(err, RU_E_DATA, "the training data contains no sample");
}

static ru_status open_all(ru_summed_worker *w, const char *facts, int64_t facts_bytes,
                          uint32_t threads, ru_err *err)
{
    const ru_summed_files all = {0};
    RU_TRY(ru_summed_job(facts, facts_bytes, w->arena, &w->run, err));
    ru_job *job = &w->run.job;
    job->train.threads = threads > 0 ? threads : job->train.threads;
    w->t.optimizer = ru_job_optimizer_get(job);
    RU_TRY(job->data.follow_ns > 0 ? RU_OK : take_data(w, &all, err));
    RU_TRY(ru_model_open(job, &w->run.ckpt.facts, NULL, w->arena, &w->t.model, err));
    return rui_trainer_class_weights(&w->t, err);
}

ru_status ru_summed_worker_open(const char *facts, int64_t facts_bytes, uint32_t threads,
                                ru_arena *arena, ru_summed_worker **out, ru_err *err)
{
    ru_summed_worker *w = RU_NEW(arena, ru_summed_worker, 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    *w = (ru_summed_worker){.arena = arena, .step = -1};
    ru_arena_init(&w->builds, 0);
    w->opt = (ru_train_options){.job = &w->run.job, .quiet = true, .no_trace = true};
    w->t = (rui_trainer){
        .opt = &w->opt, .job = &w->run.job, .arena = arena, .saved_step = -1, .out = ""};
    ru_status st = open_all(w, facts, facts_bytes, threads, err);
    if (st != RU_OK) {
        ru_summed_worker_close(w);
        return st;
    }
    *out = w;
    return RU_OK;
}

void ru_summed_worker_close(ru_summed_worker *w)
{
    if (w == NULL) {
        return;
    }
    if (w->built) {
        rui_driver_fini(&w->d);
    }
    rui_trainer_close(&w->t);
    ru_arena_fini(&w->builds);
}

/* -- the exchange ---------------------------------------------------------------------------------
 */

static ru_share share_of(const ru_summed_worker *w)
{
    const ru_summed_task *k = w->task;
    return (ru_share){.first = k->first,
                      .n = k->n,
                      .batch = k->batch,
                      .at = k->at + (w->t.step_done - k->step) * k->batch + k->first - w->before,
                      .done = (double)w->t.step_done,
                      .gain = 1};
}

static void next(void *self, rui_turn *turn)
{
    ru_summed_worker *w = self;
    rui_trainer *t = &w->t;
    *turn = (rui_turn){.kind = RUI_TURN_STEP,
                       .share = share_of(w),
                       .build_n = w->task->n,
                       .step = t->step_done,
                       .begun = ru_clock_now(),
                       .workers = 1,
                       .voters = 1,
                       .members = 1};
    if (w->st != RU_OK || w->last || (w->built && t->step_done >= w->task->end)) {
        turn->kind = RUI_TURN_QUIT;
    } else if (!w->built) {
        turn->kind = RUI_TURN_BUILD;
    }
}

static void done(void *self, const rui_turn *turn, ru_status st, const ru_err *err)
{
    ru_summed_worker *w = self;
    (void)turn;
    if (st != RU_OK && w->st == RU_OK) {
        w->st = st;
        if (w->err != NULL) {
            *w->err = *err;
        }
    }
    w->built = true;
}

/* The executable is there already: the driver learns its sizes. */
static ru_status build(void *self, const rui_turn *turn, ru_err *err)
{
    (void)self;
    (void)turn;
    (void)err;
    return RU_OK;
}

static ru_status run(void *self, const rui_turn *turn, const ru_run_args *args, int64_t *waited_ns,
                     ru_err *err)
{
    ru_summed_worker *w = self;
    RU_TRY(ru_exe_phase(w->t.exe, RU_PHASE_GRADIENTS, args, err));
    rui_summed_grads_read(&w->vec, w->sums);
    ru_time begun = ru_clock_now();
    RU_TRY(w->task->sum(w->task->self, turn->step, w->sums, &w->last, err));
    *waited_ns = ru_time_since(ru_clock_now(), begun);
    rui_summed_grads_write(&w->vec, w->sums);
    w->step = -1; /* until the update is whole */
    RU_TRY(ru_exe_phase(w->t.exe, RU_PHASE_UPDATE, args, err));
    w->step = turn->step + 1;
    return RU_OK;
}

static const rui_exchange_ops exchange = {
    .name = "function", .next = next, .done = done, .build = build, .run = run};

/* -- tasks ----------------------------------------------------------------------------------------
 */

static ru_status build_anew(ru_summed_worker *w, int64_t n, int64_t of, ru_err *err)
{
    if (w->built) {
        rui_driver_fini(&w->d);
        w->built = false;
    }
    ru_exe_close(w->t.exe);
    w->t.exe = NULL;
    w->n = 0;
    w->step = -1;
    ru_arena_fini(&w->builds);
    ru_arena_init(&w->builds, 0);
    RU_TRY(rui_summed_build(&w->t, n, of, &w->builds, &w->vec, err));
    w->sums = ru_arena_alloc(&w->builds, w->vec.count * (int64_t)sizeof(float), 64);
    if (w->sums == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the gradients of the model");
    }
    rui_driver_init(&w->d, &w->t, &exchange, w);
    w->d.takes_state = true;
    w->n = n;
    w->of = of;
    return RU_OK;
}

ru_status ru_summed_worker_build(ru_summed_worker *w, int64_t n, int64_t batch, int64_t *count,
                                 int64_t *state_bytes, ru_err *err)
{
    RU_TRY(w->n == n && w->of == batch ? RU_OK : build_anew(w, n, batch, err));
    *count = w->vec.count;
    *state_bytes = w->vec.state_bytes;
    return RU_OK;
}

ru_status ru_summed_worker_files(ru_summed_worker *w, const ru_summed_files *files, ru_err *err)
{
    RU_CHECK(w->n > 0); /* built */
    rui_driver_data(&w->d);
    ru_dataset_close(w->t.train_set);
    w->t.train_set = NULL;
    RU_TRY(take_data(w, files, err));
    return w->t.count == files->samples
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "%s and the files behind it have %lld samples, but they had %lld when the "
                         "run counted them; leave files as they are until they are read",
                         files->paths[0], (long long)w->t.count, (long long)files->samples);
}

bool ru_summed_worker_follows(const ru_summed_worker *w)
{
    return w->run.job.data.follow_ns > 0;
}

int64_t ru_summed_worker_step(const ru_summed_worker *w)
{
    return w->step;
}

ru_status ru_summed_worker_run(ru_summed_worker *w, const ru_summed_task *task, ru_err *err)
{
    RU_CHECK(w->n == task->n && w->of == task->batch &&
             (task->state != NULL || w->step == task->step));
    w->d.n_ran = 0; /* of a step that failed */
    w->task = task;
    w->st = RU_OK;
    w->err = err;
    w->last = false;
    w->t.step_done = task->step;
    w->t.steps_end = task->end;
    w->t.schedule = ru_job_schedule_get(&w->run.job, task->end);
    if (task->state != NULL) {
        w->step = -1;
        RU_TRY(rui_summed_state_write(&w->vec, &w->t, task->state, err));
        w->step = task->step;
    }
    rui_drive(&w->d);
    return w->st;
}
