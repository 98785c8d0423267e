/* Using a trained app: evaluation, predictions, export. */
#include <string.h>

#include "env/fault.h"
#include "env/file/file.h"
#include "store/safetensors.h"
#include "train/app/app_run.h"
#include "train/app/call.h"

_Static_assert((int)RU_APP_METRICS_MAX <= (int)RU_METRICS_MAX, "figures of an app fit");

ru_status ru_app_eval(const ru_app_ops *ops, const void *self, const ru_app_state *state,
                      const ru_sparse_file *data, ru_metrics *metrics, ru_err *err)
{
    const float *tables[RU_APP_TABLES_MAX] = {0};
    double sums[RU_APP_SUMS_MAX] = {0};
    ru_app_metric found[RU_APP_METRICS_MAX] = {0};
    for (uint32_t t = 0; t < state->shape.n_tables; t++) {
        tables[t] = state->value[t];
    }
    ru_sparse all;
    ru_sparse_part(data, 0, ru_sparse_rows(data), &all);
    RU_TRY(ru_app_call_eval(ops, self, state->clock, tables, &all, sums, err));
    ru_fault_enter("metrics", RU_FAULT_NONE, state->clock);
    *metrics = (ru_metrics){.n = ops->metrics(self, sums, found)};
    ru_fault_leave();
    if (metrics->n > RU_APP_METRICS_MAX) {
        return RU_FAIL(err, RU_E_USER, "app %s has %u figures of an evaluation; at most %d",
                       ops->name, metrics->n, RU_APP_METRICS_MAX);
    }
    for (uint32_t k = 0; k < metrics->n; k++) {
        metrics->at[k] = (ru_metric){found[k].name, found[k].value};
    }
    return RU_OK;
}

static ru_status open_model(const char *path, const char *const *paths, uint32_t n_paths,
                            ru_arena *arena, ru_app_model *m, ru_err *err)
{
    RU_TRY(ru_app_ckpt_find(path, arena, &m->ckpt, err));
    RU_TRY(ru_app_job_parse("app.json: job", m->ckpt.job_yaml, arena, &m->file, err));
    const ru_app_ops *ops = m->file.ops;
    if (ops->eval == NULL || ops->metrics == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "app %s has no evaluation", ops->name);
    }
    if (n_paths == 0 && m->file.job->data.test.n == 0) {
        return RU_FAIL(err, RU_E_USAGE, "the job has no test data; name data with --data");
    }
    const ru_sparse_options like = {
        .rows = strcmp(ops->name, "mf") == 0 ? m->ckpt.rows : 0,
        .cols = m->ckpt.cols,
        .numbers = (uint32_t)m->ckpt.numbers,
        .words = m->ckpt.words,
        .lines = true,
    };
    RU_TRY(ru_app_job_data(&m->file, n_paths > 0 ? paths : m->file.job->data.test.at,
                           n_paths > 0 ? n_paths : m->file.job->data.test.n, &like, &m->data, err));
    const ru_app_setup setup = {.config = m->file.config,
                                .data = m->data,
                                .executors = 1,
                                .seed = (uint64_t)m->ckpt.seed,
                                .rows = m->ckpt.rows,
                                .cols = m->ckpt.cols,
                                .classes = m->ckpt.classes,
                                .eval = true};
    RU_TRY(ru_app_watch_use(&m->file, arena, err));
    RU_TRY(ru_app_call_open(ops, &setup, &m->self, err));
    RU_TRY(ru_app_state_init(&m->state, ops, m->self, 1, m->ckpt.rows, setup.seed, err));
    return ru_app_ckpt_tables(&m->ckpt, &m->state, err);
}

ru_status ru_app_model_open(const char *path, const char *const *paths, uint32_t n_paths,
                            ru_arena *arena, ru_app_model *out, ru_err *err)
{
    ru_app_model m = {0};
    ru_status st = open_model(path, paths, n_paths, arena, &m, err);
    if (st != RU_OK) {
        ru_app_model_close(&m);
        return st;
    }
    *out = m;
    return RU_OK;
}

void ru_app_model_close(ru_app_model *m)
{
    ru_fault_close();
    if (m->self != NULL && m->file.ops->close != NULL) {
        m->file.ops->close(m->self);
    }
    ru_app_state_fini(&m->state);
    ru_sparse_close(m->data);
    *m = (ru_app_model){0};
}

ru_status ru_app_model_eval(const ru_app_model *m, ru_metrics *metrics, ru_err *err)
{
    return ru_app_eval(m->file.ops, m->self, &m->state, m->data, metrics, err);
}

int64_t ru_app_model_rows(const ru_app_model *m)
{
    int64_t lines = ru_sparse_lines(m->data);
    return lines > 0 ? lines : ru_sparse_rows(m->data);
}

ru_status ru_app_model_predict(const ru_app_model *m, int64_t row, ru_text *out, ru_err *err)
{
    const float *tables[RU_APP_TABLES_MAX] = {0};
    for (uint32_t t = 0; t < m->state.shape.n_tables; t++) {
        tables[t] = m->state.value[t];
    }
    if (m->file.ops->predict == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "app %s has no predictions", m->file.ops->name);
    }
    ru_sparse all;
    int64_t begin[2];
    if (ru_sparse_lines(m->data) > 0) {
        ru_sparse_line(m->data, row, begin, &all);
        return ru_app_call_predict(m->file.ops, m->self, tables, &all, 0, out, err);
    }
    ru_sparse_part(m->data, 0, ru_sparse_rows(m->data), &all);
    return ru_app_call_predict(m->file.ops, m->self, tables, &all, row, out, err);
}

ru_status ru_app_export(const char *path, const char *to, ru_arena *arena, ru_err *err)
{
    ru_app_ckpt c;
    ru_map_file map;
    ru_safetensors file;
    RU_TRY(ru_app_ckpt_find(path, arena, &c, err));
    const char *from = ru_path_join(arena, c.dir, "tables.safetensors");
    if (from == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the export is full");
    }
    RU_TRY(ru_safetensors_open(from, arena, &map, &file, err));
    const ru_meta meta[] = {{"format", "pt"}, {"producer", "rubato " RU_VERSION}};
    ru_status st =
        ru_safetensors_save(to, file.tensors.at, file.tensors.n, meta, RU_ARRAY_LEN(meta), err);
    ru_file_unmap(&map);
    return st;
}
