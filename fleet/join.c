#include "fleet/join.h"

#include <string.h>

#include "comm/node/guests.h"
#include "env/process/memory.h"
#include "fleet/local.h"

typedef struct joiner {
    const ru_fed_join_options *opt;
    ru_arena arena;
    ru_fed_client *client;
    const ru_fed_model *model;
    uint64_t self; /* of its name, from which the order of its samples follows */
    ru_rundir run;
    ru_job_data data;
    ru_dataset *train, *held;
    ru_local *local;
    int64_t before_bytes; /* what the process had before the model was opened */
} joiner;

static const int64_t update_copies = 2; /* a task, and the one before it on its way */

static ru_status open_train(joiner *j, ru_err *err)
{
    const ru_model_facts *f = &j->run.ckpt.facts;
    ru_data_options d = ru_job_data_options(&j->run.job, false);
    d.class_names = f->class_names;
    d.n_class_names = f->n_class_names;
    d.columns = f->columns.n > 0 ? &f->columns : NULL;
    d.classes = f->classes;
    d.context = d.context != 0 || f->x.rank != 1 ? d.context : f->x.dims[0];
    d.cache.kind = RU_CACHE_NONE;
    RU_TRY(ru_dataset_open(&d, &j->train, err));
    const ru_field *fields;
    uint32_t n = ru_dataset_fields(j->train, &fields);
    if (n < 2 || !ru_type_equal(&fields[0].type, &f->x) || !ru_type_equal(&fields[1].type, &f->y)) {
        char have[160], want[160];
        ru_type_print(NULL, &fields[0].type, have, sizeof have);
        ru_type_print(NULL, &f->x, want, sizeof want);
        return RU_FAIL(err, RU_E_DATA,
                       "%s: samples are %s with labels of another kind than, or of another shape "
                       "than, those of the federation (%s)",
                       j->opt->data, have, want);
    }
    return ru_dataset_count(j->train) > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "%s: there is no sample to train on", j->opt->data);
}

/* The job and its facts as the server has them, with this client's own data. */
static ru_status open_local(joiner *j, ru_err *err)
{
    RU_TRY(ru_job_data_load(j->opt->data, &j->arena, &j->data, err));
    RU_TRY(ru_ckpt_parse("the server", "the job of the server", j->model->job, j->model->job_bytes,
                         &j->arena, &j->run.ckpt, err));
    RU_TRY(
        ru_job_parse("the job of the server", j->run.ckpt.job_yaml, &j->arena, &j->run.job, err));
    j->run.dir = j->opt->client.address;
    j->run.job.data = j->data;
    j->run.job.storage.n = 0;
    RU_TRY(open_train(j, err));
    if (ru_job_has_test(&j->run.job)) {
        RU_TRY(ru_rundir_data(&j->run, NULL, 0, true, &j->held, err));
    }
    j->before_bytes = ru_memory_own_bytes();
    RU_TRY(ru_local_open(&j->run, j->opt->threads, &j->arena, &j->local, err));
    return ru_local_flat(j->local)->hash == j->model->hash
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "the model of %s has other values than its job describes here; run the "
                         "same version of rubato on both sides",
                         j->opt->client.address);
}

static int64_t mb(int64_t bytes)
{
    return (bytes + 999999) / 1000000;
}

static int64_t held_count(const joiner *j)
{
    return j->held != NULL ? ru_dataset_count(j->held) : 0;
}

/* The model fits into the memory of this client, which gets no more. */
static ru_status bound_memory(joiner *j, ru_err *err)
{
    const int64_t most = j->opt->memory_bytes, before = j->before_bytes;
    const int64_t copies = update_copies + (j->model->masked ? 1 : 0);
    const int64_t updates = copies * j->model->count * (int64_t)sizeof(float);
    int64_t steps = 0;
    RU_TRY(ru_local_prepare(j->local, ru_dataset_count(j->train), held_count(j), &steps, err));
    if (most == 0) {
        return RU_OK;
    }
    if (before + steps + updates > most) {
        return RU_FAIL(
            err, RU_E_LIMIT,
            "the model of %s needs %lld MB here: %lld for the program and its samples, "
            "%lld for steps of up to %lld samples, %lld for updates; --memory is %lld MB",
            j->opt->client.address, (long long)mb(before + steps + updates), (long long)mb(before),
            (long long)mb(steps), (long long)j->run.job.train.batch, (long long)mb(updates),
            (long long)(most / 1000000));
    }
    ru_memory_own_bound(most);
    return RU_OK;
}

static bool given_up(void *self)
{
    return ru_fed_client_stopped(((joiner *)self)->client);
}

static ru_status score(joiner *j, const ru_fed_work *w, ru_err *err)
{
    ru_local_score s;
    const ru_local_view held = {.data = j->held, .n = ru_dataset_count(j->held)};
    RU_TRY(ru_local_eval(j->local, &held, w->values, &s, err));
    ru_fed_client_scored(j->client,
                         &(ru_fed_score){.correct = s.correct, .count = s.count, .loss = s.loss});
    return RU_OK;
}

static ru_status learn(joiner *j, const ru_fed_work *w, ru_err *err)
{
    ru_local_result r;
    const ru_local_view train = {.data = j->train, .n = ru_dataset_count(j->train)};
    const ru_local_task t = {.round = w->round,
                             .seed = (uint64_t)j->run.job.train.seed ^ j->self,
                             .epochs = w->epochs,
                             .stop = given_up,
                             .self = j};
    RU_TRY(ru_local_train(j->local, &train, &t, w->values, &r, err));
    ru_fed_client_trained(
        j->client,
        &(ru_fed_result){.loss = r.loss, .loss_rms = r.loss_rms, .accuracy = r.accuracy});
    return RU_OK;
}

static ru_status run(joiner *j, ru_err *err)
{
    ru_fed_work w;
    ru_status st = ru_fed_client_model(j->client, &j->model, err);
    if (st != RU_OK) {
        return st == RU_E_CANCELLED ? RU_OK : st;
    }
    RU_TRY(open_local(j, err));
    RU_TRY(bound_memory(j, err));
    RU_TRY(ru_fed_client_ready(j->client, ru_dataset_count(j->train), held_count(j), err));
    for (;;) {
        ru_err why = {0};
        RU_TRY(ru_fed_client_next(j->client, &w, err));
        if (w.over) {
            return RU_OK;
        }
        if ((w.evaluate ? score(j, &w, &why) : learn(j, &w, &why)) != RU_OK) {
            ru_fed_client_failed(j->client, &why);
        }
    }
}

ru_status ru_fed_join(const ru_fed_join_options *opt, ru_err *err)
{
    joiner j = {.opt = opt};
    ru_fed_client_options client = opt->client;
    if (opt->memory_bytes > 0) { /* the least that it takes: parameters, gradients, a task */
        client.values_max = opt->memory_bytes / (3 * (int64_t)sizeof(float)) + 1;
    }
    ru_arena_init(&j.arena, 0);
    ru_status st = ru_fed_client_open(&client, &j.client, err);
    if (st == RU_OK) {
        const char *name =
            ru_arena_strn(&j.arena, opt->client.token, (int64_t)strcspn(opt->client.token, ":"));
        j.self = name != NULL ? ru_guest_name(name).v : 0;
        st = name != NULL ? run(&j, err) : RU_FAIL(err, RU_E_MEM, "no memory for a client");
    }
    ru_fed_client_close(j.client);
    ru_local_close(j.local);
    ru_dataset_close(j.train);
    ru_dataset_close(j.held);
    ru_arena_fini(&j.arena);
    return st;
}
