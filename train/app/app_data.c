#include "train/app/app_data.h"

#include <math.h>
#include <string.h>

static ru_status list_words(ru_app_data *d, ru_arena *arena, ru_err *err)
{
    if (ru_sparse_col_name(d->train, 0) == NULL) {
        return RU_OK;
    }
    ru_text t = ru_text_arena(arena);
    for (int64_t k = 0; k < ru_sparse_cols(d->train); k++) {
        ru_text_put(&t, ru_sparse_col_name(d->train, k));
        ru_text_put(&t, "\n");
    }
    d->words = t.p;
    return t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for the vocabulary") : RU_OK;
}

ru_status ru_app_data_open(const ru_app_job_file *f, ru_arena *arena, ru_app_data *d, ru_err *err)
{
    enum { EXECUTORS = 16 };
    d->file = f;
    RU_TRY(ru_app_job_data(f, f->job->data.train.at, f->job->data.train.n, NULL, &d->train, err));
    int64_t rows = ru_sparse_rows(d->train);
    d->executors = f->job->clocks.executors;
    if (d->executors == 0) {
        d->executors = rows < EXECUTORS ? (uint32_t)rows : EXECUTORS;
    }
    if (d->executors > rows || rows < 1) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "%u executors, but the data has %lld rows; set clocks.executors to at most the "
            "number of rows",
            d->executors, (long long)rows);
    }
    return list_words(d, arena, err);
}

ru_status ru_app_data_test(ru_app_data *d, ru_err *err)
{
    const ru_app_job_data_keys *keys = &d->file->job->data;
    bool none = keys->test.n == 0 || d->file->ops->eval == NULL || d->file->ops->metrics == NULL;
    if (none || d->test != NULL) {
        return RU_OK;
    }
    bool users = strcmp(ru_sparse_format(d->train), "ratings") == 0;
    const ru_sparse_options like = {.rows = users ? ru_sparse_rows(d->train) : 0,
                                    .cols = ru_sparse_cols(d->train),
                                    .numbers = ru_sparse_numbered(d->train),
                                    .words = d->words};
    return ru_app_job_data(d->file, keys->test.at, keys->test.n, &like, &d->test, err);
}

void ru_app_data_close(ru_app_data *d)
{
    ru_sparse_close(d->train);
    ru_sparse_close(d->test);
}

ru_app_setup ru_app_data_setup(const ru_app_data *d)
{
    return (ru_app_setup){.config = d->file->config,
                          .data = d->train,
                          .rows = ru_sparse_rows(d->train),
                          .cols = ru_sparse_cols(d->train),
                          .classes = ru_sparse_classes(d->train),
                          .executors = d->executors,
                          .seed = (uint64_t)d->file->job->train.seed};
}

ru_app_ckpt ru_app_data_ckpt(const ru_app_data *d, int64_t clock, int64_t items)
{
    return (ru_app_ckpt){.clock = clock,
                         .items = items,
                         .executors = d->executors,
                         .seed = d->file->job->train.seed,
                         .rows = ru_sparse_rows(d->train),
                         .cols = ru_sparse_cols(d->train),
                         .classes = ru_sparse_classes(d->train),
                         .numbers = ru_sparse_numbered(d->train),
                         .words = d->words,
                         .job_yaml = d->file->yaml};
}

int64_t ru_app_data_items(const ru_app_data *d, uint32_t pieces, int64_t clocks)
{
    int64_t rows = ru_sparse_rows(d->train);
    return clocks / pieces * rows + clocks % pieces * rows / pieces;
}

ru_run_report_step ru_app_data_step(const ru_app_data *d, uint32_t pieces, int64_t clock,
                                    double objective, int64_t took_ns)
{
    int64_t items = ru_app_data_items(d, pieces, clock);
    return (ru_run_report_step){.step = clock,
                                .epoch = (clock - 1) / pieces + 1,
                                .samples = items,
                                .loss = objective,
                                .accuracy = -1,
                                .norm = -1,
                                .step_ns = took_ns,
                                .batch = items - ru_app_data_items(d, pieces, clock - 1)};
}

bool ru_app_data_reached(const ru_app_data *d, double objective, const ru_metrics *metrics)
{
    const ru_conf_pairs *until = &d->file->job->train.until;
    const ru_app_ops *ops = d->file->ops;
    const char *name = ops->objective_name != NULL ? ops->objective_name : "loss";
    bool all = until->n > 0;
    for (uint32_t k = 0; k < until->n; k++) {
        const ru_conf_pair *u = &until->at[k];
        bool is = strcmp(u->key, name) == 0;
        double v = is ? objective : ru_metrics_get(metrics, u->key);
        bool more = is ? ops->maximise : strcmp(u->key, "accuracy") == 0;
        all = all && isfinite(v) && (more ? v >= u->value : v <= u->value);
    }
    return all;
}
