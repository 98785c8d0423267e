/* One task: its rows, the app's function, and what it changed. */
#include <math.h>
#include <string.h>

#include "train/app/call.h"
#include "train/app/local_impl.h"

float *rui_local_rows(const ru_app_state *s, const ru_app_want *w, bool copy, ru_arena *arena)
{
    uint32_t width = s->shape.table[w->table].width;
    float *from = s->value[w->table];
    size_t row_bytes = width * sizeof(float);
    if (w->list == NULL && !copy) {
        return from + w->first * width;
    }
    float *into = ru_arena_alloc(arena, w->rows * (int64_t)row_bytes + 4 * RU_APP_GUARD, 64);
    if (into == NULL) {
        return NULL;
    }
    if (w->list == NULL) {
        memcpy(into, from + w->first * width, (size_t)w->rows * row_bytes);
    }
    for (int64_t i = 0; w->list != NULL && i < w->rows; i++) {
        memcpy(into + i * width, from + (int64_t)w->list[i] * width, row_bytes);
    }
    return into;
}

static ru_status no_memory(const ru_app_want *w, ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for %lld rows of table %u", (long long)w->rows,
                   w->table);
}

/* Copies or places of all wants; a change for each that is written and merged. */
static ru_status prepare(ru_app_local *l, const ru_app_want *wants, uint32_t n, float **value,
                         float **delta, rui_job *job, ru_err *err)
{
    const ru_app_state *s = &l->state;
    job->n = 0;
    for (uint32_t k = 0; k < n; k++) {
        const ru_app_want *w = &wants[k];
        const ru_app_table *t = &s->shape.table[w->table];
        bool merged = w->write && !ru_app_one_holder(t), add = t->rule == RU_APP_ADD;
        value[k] = rui_local_rows(s, w, merged && add, &job->arena);
        delta[k] = merged && !add
                       ? ru_arena_zalloc(&job->arena, (w->rows * t->width + RU_APP_GUARD) * 4, 64)
                       : NULL;
        if (value[k] == NULL || (merged && !add && delta[k] == NULL)) {
            return no_memory(w, err);
        }
        if (!merged) {
            continue;
        }
        ru_app_guard_put((add ? value[k] : delta[k]) + w->rows * t->width);
        rui_change *c = &job->change[job->n++];
        *c = (rui_change){w->table, w->first, w->rows, NULL, add ? value[k] : delta[k]};
        if (w->list != NULL) {
            c->list = ru_arena_copy(&job->arena, w->list, w->rows * 4, 4);
            if (c->list == NULL) {
                return no_memory(w, err);
            }
        }
    }
    return RU_OK;
}

/* Did the task write behind its copies? */
static ru_status check_guards(const ru_app_local *l, const rui_job *job, ru_err *err)
{
    for (uint32_t k = 0; k < job->n; k++) {
        const rui_change *c = &job->change[k];
        const ru_app_table *t = &l->state.shape.table[c->table];
        const ru_app_want w = {.rows = c->rows};
        RU_TRY(ru_app_guard_check(l->opt.ops, t, &w, c->delta + c->rows * t->width, err));
    }
    return RU_OK;
}

/* Turn copies into differences; all numbers are finite afterwards. */
static ru_status finish(ru_app_local *l, rui_job *job, ru_err *err)
{
    for (uint32_t k = 0; k < job->n; k++) {
        rui_change *c = &job->change[k];
        const ru_app_table *t = &l->state.shape.table[c->table];
        const float *from = l->state.value[c->table];
        bool add = t->rule == RU_APP_ADD;
        for (int64_t i = 0; i < c->rows; i++) {
            int64_t row = c->list != NULL ? c->list[i] : c->first + i;
            const float *old = from + row * t->width;
            float *d = c->delta + i * t->width, odd = 0.0F;
            for (uint32_t j = 0; j < t->width; j++) {
                d[j] -= add ? old[j] : 0.0F;
                odd += d[j] * 0.0F;
            }
            if (!(odd == 0.0F)) {
                return RU_FAIL(err, RU_E_DATA,
                               "row %lld of table %s gets a value that is not finite; lower the "
                               "learning rate",
                               (long long)row, t->name);
            }
        }
    }
    return RU_OK;
}

static ru_status run(ru_app_local *l, const ru_app_task *task, rui_job *job, ru_err *err)
{
    const ru_app_ops *ops = l->opt.ops;
    ru_app_want wants[RU_APP_WANTS_MAX] = {0};
    float *value[RU_APP_WANTS_MAX] = {0}, *delta[RU_APP_WANTS_MAX] = {0};
    void *state = l->exec[task->executor].state;
    uint32_t n;
    const ru_sparse *part = &l->exec[task->executor].part;
    RU_TRY(ru_app_call_wants(ops, &l->state.shape, state, task, part->first, part->rows, wants, &n,
                             err));
    RU_TRY(prepare(l, wants, n, value, delta, job, err));
    ru_app_view view = {.value = value, .delta = delta};
    RU_TRY(ru_app_call_run(ops, state, task, &view, &job->result, err));
    RU_TRY(check_guards(l, job, err));
    return finish(l, job, err);
}

void rui_local_task(ru_app_local *l, uint32_t executor, uint32_t round, rui_job *job)
{
    ru_app_task task = ru_app_task_of(&l->state.shape, executor, l->state.clock, round,
                                      l->exec[executor].part.rows);
    task.args = l->args.p;
    task.args_bytes = l->args.n;
    static const ru_arena_mark start = {0};
    ru_arena_rewind(&job->arena, start);
    job->result = (ru_app_result){0};
    job->err = (ru_err){0};
    job->n = 0;
    int64_t begin = l->recorder != NULL ? ru_rec_now() : 0;
    job->st = run(l, &task, job, &job->err);
    if (l->recorder != NULL) {
        ru_rec_flows(l->recorder, &(ru_rec_flow){.kind = RU_REC_SPAN,
                                                 .name = l->names.executor[executor],
                                                 .start_ns = begin,
                                                 .end_ns = ru_rec_now(),
                                                 .bytes = task.hi - task.lo,
                                                 .step = task.clock,
                                                 .rank = (uint16_t)executor});
    }
    if (job->st != RU_OK) {
        job->st = ru_err_wrap(&job->err, job->st, "app %s, executor %u, clock %u", l->opt.ops->name,
                              executor, task.clock);
    }
}
