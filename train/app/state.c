#include "train/app/state.h"

#include <stdlib.h>
#include <string.h>

#include "train/app/rule.h"

bool ru_app_one_holder(const ru_app_table *t)
{
    return t->rotate || t->local;
}

static ru_status check_table(const ru_app_state *s, uint32_t k, int64_t data_rows, ru_err *err)
{
    const ru_app_table *t = &s->shape.table[k];
    const char *app = s->ops->name;
    if (t->rows > UINT32_MAX || t->width > RU_APP_WIDTH_MAX || t->extra > RU_APP_WIDTH_MAX) {
        return RU_FAIL(
            err, RU_E_USER,
            "app %s: table %s has %lld rows of %u floats and %u of state; expected at most 2^32 - "
            "1 rows of %d floats",
            app, t->name, (long long)t->rows, t->width, t->extra, RU_APP_WIDTH_MAX);
    }
    if (t->local && t->rows != data_rows) {
        return RU_FAIL(err, RU_E_USER,
                       "app %s: table %s is local, so it must have the %lld rows of the data, not "
                       "%lld",
                       app, t->name, (long long)data_rows, (long long)t->rows);
    }
    for (uint32_t other = 0; other < k; other++) {
        if (strcmp(s->shape.table[other].name, t->name) == 0) {
            return RU_FAIL(err, RU_E_USER, "app %s has two tables %s", app, t->name);
        }
    }
    return RU_OK;
}

ru_status ru_app_state_init(ru_app_state *s, const ru_app_ops *ops, const void *self,
                            uint32_t executors, int64_t data_rows, uint64_t seed, ru_err *err)
{
    *s = (ru_app_state){.ops = ops};
    ru_arena_init(&s->arena, 0);
    RU_TRY(ru_app_shape_get(ops, self, executors, seed, &s->arena, &s->shape, err));
    s->exec = calloc(executors, sizeof *s->exec);
    bool fine = s->exec != NULL;
    int64_t bytes = 0;
    for (uint32_t t = 0; t < s->shape.n_tables; t++) {
        RU_TRY(check_table(s, t, data_rows, err));
        const ru_app_table *table = &s->shape.table[t];
        size_t rows = (size_t)table->rows;
        s->extra_width[t] = ru_rule_extra(table);
        s->value[t] = calloc(rows, table->width * sizeof(float));
        s->extra[t] =
            s->extra_width[t] > 0 ? calloc(rows, s->extra_width[t] * sizeof(float)) : NULL;
        fine = fine && s->value[t] != NULL && (s->extra_width[t] == 0 || s->extra[t] != NULL);
        bytes += table->rows * ((int64_t)table->width + s->extra_width[t]) * 4;
    }
    return fine ? RU_OK
                : RU_FAIL(err, RU_E_MEM, "no memory for the tables of app %s (%lld bytes)",
                          ops->name, (long long)bytes);
}

void ru_app_state_fini(ru_app_state *s)
{
    for (uint32_t t = 0; t < RU_APP_TABLES_MAX; t++) {
        free(s->value[t]);
        free(s->extra[t]);
    }
    for (uint32_t e = 0; s->exec != NULL && e < s->shape.executors; e++) {
        ru_app_bytes_fini(&s->exec[e]);
    }
    free(s->exec);
    ru_app_bytes_fini(&s->driver);
    ru_arena_fini(&s->arena);
    *s = (ru_app_state){0};
}

static ru_status check_want(const ru_app_ops *ops, const ru_app_shape *s, const ru_app_task *task,
                            int64_t first, int64_t rows, const ru_app_want *w, ru_err *err)
{
    const char *app = ops->name;
    if (w->table >= s->n_tables) {
        return RU_FAIL(err, RU_E_USER, "app %s wants rows of table %u of %u", app, w->table,
                       s->n_tables);
    }
    const ru_app_table *t = &s->table[w->table];
    int64_t lo = 0, hi = t->rows;
    if (t->local && task == NULL) {
        return RU_FAIL(err, RU_E_USER,
                       "the driver of app %s wants rows of table %s, which only their executor has",
                       app, t->name);
    }
    if (t->rotate && task != NULL) {
        lo = s->cut[w->table][task->block];
        hi = s->cut[w->table][task->block + 1];
    } else if (t->local) {
        lo = first;
        hi = first + rows;
    }
    if (w->rows < 0 || (w->list == NULL && (w->first < lo || w->rows > hi - w->first))) {
        return RU_FAIL(
            err, RU_E_USER,
            "app %s wants rows %lld to %lld of table %s; expected rows from %lld to %lld", app,
            (long long)w->first, (long long)(w->first + w->rows - 1), t->name, (long long)lo,
            (long long)(hi - 1));
    }
    if (w->list != NULL && ru_app_one_holder(t)) {
        return RU_FAIL(err, RU_E_USER,
                       "app %s lists rows of table %s; rows that rotate or are local are wanted as "
                       "a range",
                       app, t->name);
    }
    for (int64_t i = 0; w->list != NULL && i < w->rows; i++) {
        if ((i > 0 && w->list[i] <= w->list[i - 1]) || w->list[i] >= hi) {
            return RU_FAIL(err, RU_E_USER,
                           "app %s wants row %u of table %s at place %lld of its list; expected "
                           "ascending rows below %lld",
                           app, w->list[i], t->name, (long long)i, (long long)hi);
        }
    }
    return RU_OK;
}

ru_status ru_app_wants_check(const ru_app_ops *ops, const ru_app_shape *s, const ru_app_task *task,
                             int64_t first, int64_t rows, const ru_app_want *wants, uint32_t n,
                             ru_err *err)
{
    if (n > RU_APP_WANTS_MAX) {
        return RU_FAIL(err, RU_E_USER, "app %s has %u wants in a %s; at most %d are allowed",
                       ops->name, n, task != NULL ? "task" : "clock of its driver",
                       RU_APP_WANTS_MAX);
    }
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(check_want(ops, s, task, first, rows, &wants[k], err));
    }
    return RU_OK;
}

int64_t ru_app_state_parameters(const ru_app_state *s)
{
    int64_t n = 0;
    for (uint32_t k = 0; k < s->shape.n_tables; k++) {
        n += s->shape.table[k].rows * s->shape.table[k].width;
    }
    return n;
}
