/* The compute thread of a client: its data, its model, its tasks. */
#include "fleet/client/client_impl.h"
#include "fleet/client/masked.h"

static ru_status open_train(rui_fed_client *c, ru_err *err)
{
    const ru_model_facts *f = &c->run.ckpt.facts;
    ru_data_options d = ru_job_data_options(&c->run.job, false);
    d.class_names = f->class_names;
    d.n_class_names = f->n_class_names;
    d.columns = f->columns.n > 0 ? &f->columns : NULL;
    d.classes = f->classes;
    d.context = d.context != 0 || f->x.rank != 1 ? d.context : f->x.dims[0];
    d.cache.kind = RU_CACHE_NONE;
    RU_TRY(ru_dataset_open(&d, &c->train, err));
    const ru_field *fields;
    uint32_t n = ru_dataset_fields(c->train, &fields);
    if (n < 2 || !ru_type_equal(&fields[0].type, &f->x) || !ru_type_equal(&fields[1].type, &f->y)) {
        char have[160], want[160];
        ru_type_print(NULL, &fields[0].type, have, sizeof have);
        ru_type_print(NULL, &f->x, want, sizeof want);
        return RU_FAIL(err, RU_E_DATA,
                       "%s: samples are %s with labels of another kind than, or of another shape "
                       "than, those of the federation (%s)",
                       c->opt->data, have, want);
    }
    return ru_dataset_count(c->train) > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "%s: there is no sample to train on", c->opt->data);
}

/* The job and its facts as the server has them, with this client's own data. */
static ru_status open_local(rui_fed_client *c, ru_err *err)
{
    RU_TRY(ru_job_data_load(c->opt->data, c->arena, &c->data, err));
    RU_TRY(ru_ckpt_parse("the server", "the job of the server", c->state, c->state_bytes, c->arena,
                         &c->run.ckpt, err));
    RU_TRY(ru_job_parse("the job of the server", c->run.ckpt.job_yaml, c->arena, &c->run.job, err));
    c->run.dir = c->opt->address;
    c->run.job.data = c->data;
    c->run.job.storage.n = 0;
    RU_TRY(open_train(c, err));
    if (ru_job_has_test(&c->run.job)) {
        RU_TRY(ru_rundir_data(&c->run, NULL, 0, true, &c->held, err));
    }
    RU_TRY(ru_local_open(&c->run, c->opt->threads, c->arena, &c->local, err));
    return c->run.job.federated.secure.threshold > 0 ? rui_masked_open(c, err) : RU_OK;
}

static bool given_up(void *self)
{
    return ru_flag_get(&((rui_fed_client *)self)->give_up) != 0;
}

static ru_status do_task(rui_fed_client *c, rui_fed_work *w, ru_err *err)
{
    if (w->kind == WORK_MASK) {
        return rui_masked_add(c, w, err);
    }
    const ru_local_view train = {.data = c->train, .n = ru_dataset_count(c->train)};
    if (w->task.kind == RUI_FED_EVALUATE) {
        const ru_local_view held = {.data = c->held, .n = ru_dataset_count(c->held)};
        return ru_local_eval(c->local, &held, w->values, &w->score, err);
    }
    const ru_local_task t = {.round = w->task.round,
                             .seed = (uint64_t)c->run.job.train.seed ^ c->self.v,
                             .epochs = w->task.epochs,
                             .stop = given_up,
                             .self = c};
    rui_masked_from(c, w);
    return ru_local_train(c->local, &train, &t, w->values, &w->result, err);
}

void rui_fed_compute(void *self)
{
    rui_fed_client *c = self;
    ru_mutex_lock(&c->lock);
    for (;;) {
        while (c->work.kind == WORK_NONE || c->work.done) {
            ru_cond_wait(&c->changed, &c->lock);
        }
        rui_fed_work w = c->work;
        ru_mutex_unlock(&c->lock);
        if (w.kind == WORK_QUIT) {
            return;
        }
        w.st = w.kind == WORK_OPEN ? open_local(c, &w.err) : do_task(c, &w, &w.err);
        w.done = true;
        ru_mutex_lock(&c->lock);
        c->work = c->work.kind == WORK_QUIT ? c->work : w;
        ru_loop_wake(c->loop, c->waker);
    }
}
