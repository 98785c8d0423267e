/* One task: which rows it uses, their values into its buffer, what it changed into the store. */
#include <stdio.h>
#include <string.h>

#include "train/app/call.h"
#include "train/engine/engine_impl.h"

static const ru_app_table *table_of(const ru_engine *e, const ru_app_want *w)
{
    return &e->opt.shape->table[w->table];
}

static bool add_rows(ru_engine *e, ru_ps_rows **rows, uint32_t *n, uint32_t *cap, ru_ps_rows r)
{
    if (*n == *cap) {
        uint32_t room = *cap < 64 ? 64 : 2 * *cap;
        ru_ps_rows *p = ru_bufs_get(e->bufs, room * (int64_t)sizeof *p);
        if (p == NULL) {
            return false;
        }
        if (*n > 0) {
            memcpy(p, *rows, *n * sizeof *p);
        }
        ru_bufs_put(e->bufs, *rows);
        *rows = p;
        *cap = room;
    }
    (*rows)[(*n)++] = r;
    return true;
}

/* Consecutive rows of a list become one range, but ranges of different wants stay apart. */
bool rui_task_rows(ru_engine *e, const ru_engine_task *t, ru_ps_rows **rows, uint32_t *n,
                   uint32_t *cap)
{
    *n = 0;
    for (uint32_t k = 0; k < t->n_wants; k++) {
        const ru_app_want *w = &t->want[k];
        uint32_t begin = *n;
        if (table_of(e, w)->local || w->rows == 0) {
            continue;
        }
        if (w->list == NULL) {
            ru_ps_rows r = {w->table, (uint32_t)w->first, (uint32_t)w->rows};
            if (!add_rows(e, rows, n, cap, r)) {
                return false;
            }
            continue;
        }
        for (int64_t i = 0; i < w->rows; i++) {
            ru_ps_rows *last = *n > begin ? &(*rows)[*n - 1] : NULL;
            if (last != NULL && last->first + last->n == w->list[i]) {
                last->n++;
            } else if (!add_rows(e, rows, n, cap, (ru_ps_rows){w->table, w->list[i], 1})) {
                return false;
            }
        }
    }
    return true;
}

static bool adds(const ru_engine *e, const ru_app_want *w)
{
    const ru_app_table *t = table_of(e, w);
    return w->write && t->rule == RU_APP_ADD && !t->rotate && !t->local;
}

static bool has_delta(const ru_engine *e, const ru_app_want *w)
{
    const ru_app_table *t = table_of(e, w);
    return w->write && t->rule != RU_APP_ADD && !t->rotate && !t->local;
}

static int64_t want_floats(const ru_engine *e, const ru_app_want *w)
{
    /* Each begins on a cache line. */
    return (w->rows * table_of(e, w)->width + 15) / 16 * 16 + RU_APP_GUARD;
}

int64_t rui_task_floats(const ru_engine *e, const ru_engine_task *t)
{
    int64_t n = 16;
    for (uint32_t k = 0; k < t->n_wants; k++) {
        bool two = adds(e, &t->want[k]) || has_delta(e, &t->want[k]);
        n += want_floats(e, &t->want[k]) * (two ? 2 : 1);
    }
    return n;
}

static void read_rows(const ru_engine *e, const ru_app_want *w, float *value)
{
    if (w->list == NULL) {
        const ru_ps_rows r = {w->table, (uint32_t)w->first, (uint32_t)w->rows};
        ru_ps_read(e->ps, &r, value);
        return;
    }
    for (int64_t i = 0, n; i < w->rows; i += n) {
        n = 1;
        while (i + n < w->rows && w->list[i + n] == w->list[i] + n) {
            n++;
        }
        const ru_ps_rows r = {w->table, w->list[i], (uint32_t)n};
        ru_ps_read(e->ps, &r, value + i * table_of(e, w)->width);
    }
}

void rui_task_place(ru_engine *e, ru_engine_task *t, float *buffer)
{
    for (uint32_t k = 0; k < t->n_wants; k++) {
        const ru_app_want *w = &t->want[k];
        size_t bytes = (size_t)w->rows * table_of(e, w)->width * sizeof *buffer;
        bool local = table_of(e, w)->local;
        t->delta[k] = NULL;
        t->before[k] = NULL;
        t->value[k] = buffer;
        ru_app_guard_put(buffer + w->rows * table_of(e, w)->width);
        buffer += want_floats(e, w);
        if (w->rows == 0) {
            continue;
        }
        if (local) {
            int64_t row = w->first - e->exec[t->task.executor].first;
            t->value[k] = t->local[w->table] + row * table_of(e, w)->width;
        } else {
            read_rows(e, w, t->value[k]);
        }
        if (adds(e, w)) {
            memcpy(buffer, t->value[k], bytes);
            t->before[k] = buffer;
            buffer += want_floats(e, w);
        } else if (has_delta(e, w)) {
            memset(buffer, 0, bytes);
            t->delta[k] = buffer;
            ru_app_guard_put(buffer + w->rows * table_of(e, w)->width);
            buffer += want_floats(e, w);
        }
    }
}

/* -- before --------------------------------------------------------------------------------------
 */

static bool barrier_between(const ru_engine *e, uint32_t closed, uint32_t clock)
{
    uint32_t every = e->opt.save_every;
    return (every > 0 && clock / every > closed / every) ||
           (e->barrier > closed && clock >= e->barrier);
}

static void run(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    int64_t floats = rui_task_floats(e, &x->task);
    if (floats > x->buffer_floats) {
        ru_bufs_put(e->bufs, x->buffer);
        x->buffer = ru_bufs_get(e->bufs, floats * 4);
        x->buffer_floats = x->buffer == NULL ? 0 : floats;
        if (x->buffer == NULL) {
            rui_engine_fail(e, RU_E_MEM, "there is no memory for the rows of a task", now, fx);
            return;
        }
    }
    rui_task_place(e, &x->task, x->buffer);
    x->used = true;
    if (e->slices != NULL) {
        x->busy = RUI_SLICES;
        rui_slice_begin(e, k, now, fx);
        return;
    }
    x->busy = RUI_RUNS;
    x->generation = e->generation;
    rui_stage_works(e, true, now);
    e->opt.device->run(e->opt.device_self, &x->task);
}

void rui_task_begin(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    const ru_app_shape *s = e->opt.shape;
    uint32_t clock = x->step / s->rounds;
    bool args = e->opt.ops->drive == NULL || e->args_clock == clock;
    if (e->ended || clock >= e->opt.clocks || clock - e->closed > e->driver_slack || !args ||
        barrier_between(e, e->closed, clock)) {
        return;
    }
    ru_engine_task *t = &x->task;
    *t = (ru_engine_task){.executor = k, .state = x->state, .local = x->local};
    t->task = ru_app_task_of(s, k, clock, x->step % s->rounds, x->rows);
    t->task.recount = rui_count_is(e) && clock == e->base.clock;
    t->task.args = e->args;
    t->task.args_bytes = e->opt.ops->drive == NULL ? 0 : e->args_bytes;
    ru_err err;
    ru_status st = ru_app_call_wants(e->opt.ops, s, x->state, &t->task, x->first, x->rows, t->want,
                                     &t->n_wants, &err);
    if (st != RU_OK) {
        st = ru_err_wrap(&err, st, "clock %u, executor %u", clock, k);
        rui_engine_fail(e, st, err.text, now, fx);
        return;
    }
    if (!rui_task_rows(e, t, &x->fetch, &x->n_fetch, &x->cap_fetch)) {
        rui_engine_fail(e, RU_E_MEM, "there is no memory for the rows of a task", now, fx);
        return;
    }
    uint32_t slack = e->driver_slack, need = clock > slack ? clock - slack : 0;
    need = rui_count_need(e, e->closed > need ? e->closed : need);
    x->busy = RUI_FETCHES;
    if (ru_ps_fetch(e->ps, k, need < clock ? need : clock, x->step,
                    e->opt.driver == RU_ENGINE_ASYNC, x->fetch, x->n_fetch, now, fx)) {
        run(e, k, now, fx);
    }
}

void rui_task_fetched(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    RU_CHECK(e->exec[k].busy == RUI_FETCHES);
    if (rui_backup_late(e, k)) {
        e->exec[k].busy = RUI_IDLE;
        rui_exec_settle(e, k, now, fx);
        return;
    }
    run(e, k, now, fx);
    rui_engine_record_look(e, k, now);
}

/* -- on the device -------------------------------------------------------------------------------
 */

/* What the task changed of want k; all of it is finite. */
static ru_status find_change(const ru_app_shape *shape, ru_engine_task *task, uint32_t k)
{
    const ru_app_want *w = &task->want[k];
    const ru_app_table *t = &shape->table[w->table];
    const float *before = task->before[k];
    float *d = before != NULL ? task->value[k] : task->delta[k];
    for (int64_t i = 0; d != NULL && i < w->rows; i++, d += t->width) {
        float odd = 0.0F;
        for (uint32_t j = 0; j < t->width; j++) {
            d[j] -= before != NULL ? before[i * t->width + j] : 0.0F;
            odd += d[j] * 0.0F;
        }
        if (!(odd == 0.0F)) {
            return RU_FAIL(&task->err, RU_E_DATA,
                           "row %lld of table %s gets a value that is not finite; lower the "
                           "learning rate",
                           (long long)(w->list != NULL ? w->list[i] : w->first + i), t->name);
        }
    }
    return RU_OK;
}

ru_status rui_task_check(const ru_app_shape *shape, ru_engine_task *task)
{
    for (uint32_t k = 0; k < task->n_wants; k++) {
        RU_TRY(find_change(shape, task, k));
    }
    return RU_OK;
}

/* Did the task write behind its rows? Local rows stand close together: theirs are not guarded. */
static ru_status check_guards(const ru_app_ops *ops, const ru_app_shape *shape,
                              ru_engine_task *task)
{
    for (uint32_t k = 0; k < task->n_wants; k++) {
        const ru_app_want *w = &task->want[k];
        const ru_app_table *t = &shape->table[w->table];
        int64_t n = w->rows * t->width;
        if (!t->local) {
            RU_TRY(ru_app_guard_check(ops, t, w, task->value[k] + n, &task->err));
        }
        if (task->delta[k] != NULL) {
            RU_TRY(ru_app_guard_check(ops, t, w, task->delta[k] + n, &task->err));
        }
    }
    return RU_OK;
}

/* Near the end of what is left pieces get smaller, so that more of it can still be given away. */
bool ru_engine_piece(ru_engine_task *task, uint32_t units)
{
    if (task->cut.next == task->cut.end) {
        return false;
    }
    uint32_t rest = task->cut.end - task->cut.next, n = rest / 8;
    n = n > units / 4 ? n : units / 4;
    n = n < units ? n : units;
    n = n < 1 ? 1 : n < rest ? n : rest;
    task->task.lo = task->cut.lo + task->cut.items * task->cut.next / task->cut.units;
    task->cut.next += n;
    task->task.hi = task->cut.lo + task->cut.items * task->cut.next / task->cut.units;
    return true;
}

void ru_engine_compute(const ru_app_ops *ops, const ru_app_shape *shape, ru_engine_task *task)
{
    const ru_app_view view = {.value = task->value, .delta = task->delta};
    ru_app_result one = {0};
    task->err = (ru_err){0};
    task->status = ru_app_call_run(ops, task->state, &task->task, &view, &one, &task->err);
    for (uint32_t i = 0; i < RU_APP_SUMS_MAX; i++) {
        task->result.sums[i] = one.sums[i] + (task->cut.units > 0 ? task->result.sums[i] : 0);
    }
    task->status = task->status == RU_OK ? check_guards(ops, shape, task) : task->status;
    if (task->status == RU_OK && !task->part) {
        task->status = rui_task_check(shape, task);
    }
}

/* -- after ---------------------------------------------------------------------------------------
 */

/* Changes, one after another, of the rows that are written. */
bool rui_task_changes(ru_engine *e, const ru_engine_task *t, ru_ps_rows **rows, uint32_t *n_rows,
                      uint32_t *cap, float **out)
{
    int64_t floats = 0, at = 0;
    *n_rows = 0;
    ru_engine_task written = {.executor = t->executor};
    for (uint32_t k = 0; k < t->n_wants; k++) {
        const ru_app_want *w = &t->want[k];
        if (w->write && !table_of(e, w)->local) {
            written.want[written.n_wants++] = *w;
            floats += w->rows * table_of(e, w)->width;
        }
    }
    *out = ru_bufs_get(e->bufs, floats * 4);
    if (*out == NULL || !rui_task_rows(e, &written, rows, n_rows, cap)) {
        return false;
    }
    for (uint32_t k = 0; k < t->n_wants; k++) {
        const ru_app_want *w = &t->want[k];
        int64_t n = w->rows * table_of(e, w)->width;
        if (w->write && !table_of(e, w)->local && n > 0) {
            memcpy(*out + at, t->delta[k] != NULL ? t->delta[k] : t->value[k], (size_t)n * 4);
            at += n;
        }
    }
    return true;
}

static bool all_finite(const ru_engine_task *t)
{
    for (uint32_t i = 0; i < RU_APP_SUMS_MAX; i++) {
        double s = t->result.sums[i];
        if (s - s != 0) { /* infinite or not a number */
            return false;
        }
    }
    return true;
}

bool rui_task_fine(ru_engine *e, const ru_engine_task *task, ru_time now, ru_effects *fx)
{
    if (task->status == RU_OK && all_finite(task)) {
        return true;
    }
    char why[RU_ERR_TEXT_MAX];
    (void)snprintf(why, sizeof why, "clock %u, executor %u: %.600s", task->task.clock,
                   task->task.executor,
                   task->status == RU_OK ? "the objective is not a finite number"
                   : task->err.text[0]   ? task->err.text
                                         : "the app's task failed");
    rui_engine_fail(e, task->status == RU_OK ? RU_E_DATA : task->status, why, now, fx);
    return false;
}

void ru_engine_ran(ru_engine *e, ru_engine_task *task, ru_time now, ru_effects *fx)
{
    uint32_t k = task->executor;
    rui_exec *x = &e->exec[k];
    if (task->part) {
        if (!rui_redo_ran(e, task, now, fx)) {
            rui_slice_ran(e, k, now, fx);
        }
        return;
    }
    RU_CHECK(x->busy == RUI_RUNS);
    rui_stage_works(e, false, now);
    x->busy = RUI_IDLE;
    e->facts.busy_ns += task->cpu_ns;
    if (x->generation != e->generation || e->ended || rui_backup_late(e, k)) {
        rui_exec_settle(e, k, now, fx); /* another clock's work by now */
        return;
    }
    uint32_t round = x->step % e->opt.shape->rounds;
    if (!rui_task_fine(e, task, now, fx)) {
        return;
    }
    memcpy(x->sums + (int64_t)round * RU_APP_SUMS_MAX, task->result.sums, sizeof task->result.sums);
    x->cpu_ns += task->cpu_ns;
    rui_task_flush(e, k, now, fx);
}

void rui_task_flush(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    float *change;
    if (!rui_task_changes(e, &x->task, &x->fetch, &x->n_fetch, &x->cap_fetch, &change)) {
        rui_engine_fail(e, RU_E_MEM, "there is no memory for the changes of a task", now, fx);
        return;
    }
    x->busy = RUI_FLUSHES;
    const ru_ps_tag tag = {.executor = k, .step = x->step, .flow = k};
    bool over = ru_ps_update(e->ps, tag, x->task.task.block, x->fetch, x->n_fetch, change, now, fx);
    ru_bufs_put(e->bufs, change);
    if (over) {
        rui_task_flushed(e, k, now, fx);
    } else {
        rui_engine_record_look(e, k, now);
    }
}

void rui_task_flushed(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    RU_CHECK(x->busy == RUI_FLUSHES);
    x->busy = RUI_IDLE;
    uint32_t rounds = e->opt.shape->rounds, clock = x->step / rounds;
    x->step++;
    if (x->step % rounds == 0) {
        uint32_t slot = clock % e->window;
        memcpy(x->done + slot * e->sums_n, x->sums, (size_t)e->sums_n * sizeof *x->sums);
        x->done_cpu[slot] = x->cpu_ns;
        x->cpu_ns = 0;
        rui_engine_record_done(e, clock, now);
        rui_exec_tell(e, k, now, fx);
    }
    rui_exec_settle(e, k, now, fx);
}
