#include "train/app/call.h"

#include <string.h>

#include "env/fault.h"
#include "env/file/file.h"
#include "train/app/state.h"

/* -- faults --------------------------------------------------------------------------------------
 */

static bool is_users(const ru_app_job_file *f)
{
    return strchr(f->job->app, '/') != NULL;
}

static const char *advice(const ru_app_job_file *f)
{
    return is_users(f) ? "; the newest checkpoint is intact: correct the app, then continue with "
                         "--resume"
                       : "; the newest checkpoint is intact; this is a bug in Rubato " RU_VERSION
                         ", please report the job and this line";
}

static ru_status watch(const ru_app_job_file *f, const char *out, const char *what_now,
                       ru_arena *arena, ru_err *err)
{
    const ru_fault_options o = {.who = ru_arena_printf(arena, "app %s", f->job->app),
                                .what_now = what_now,
                                .file = out != NULL ? ru_path_join(arena, out, "faults") : NULL,
                                .key = "clocks.task_limit",
                                .limit_ns = f->job->clocks.task_limit_ns};
    if (o.who == NULL || (o.file == NULL && out != NULL)) {
        return RU_FAIL(err, RU_E_MEM, "no memory to watch the app");
    }
    return ru_fault_open(&o, err);
}

ru_status ru_app_watch(const ru_app_job_file *f, const char *out, ru_arena *arena, ru_err *err)
{
    return watch(f, out, advice(f), arena, err);
}

ru_status ru_app_watch_use(const ru_app_job_file *f, ru_arena *arena, ru_err *err)
{
    return watch(f, NULL, is_users(f) ? "; correct the app" : "; please report it", arena, err);
}

ru_status ru_app_hopeless(const ru_app_job_file *f, const char *out, uint32_t executor, ru_err *err)
{
    char why[256];
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const char *file = ru_path_join(&arena, out, "faults");
    ru_status st = RU_OK;
    if (file != NULL && ru_path_exists(file) && ru_fault_hopeless(file, executor, why)) {
        st = RU_FAIL(err, RU_E_USER, "app %s %s; %s", f->job->app, why,
                     is_users(f) ? "correct it, then continue with --resume"
                                 : "this is a bug in Rubato: please report it");
    }
    ru_arena_fini(&arena);
    return st;
}

void ru_app_hope(const char *out)
{
    ru_arena arena;
    ru_err ignored;
    ru_arena_init(&arena, 0);
    const char *file = ru_path_join(&arena, out, "faults");
    if (file != NULL && ru_path_exists(file)) {
        (void)!ru_path_remove(file, &ignored);
    }
    ru_arena_fini(&arena);
}

/* -- calls ---------------------------------------------------------------------------------------
 */

/* What a function of the app returned: a status, and a sentence with each failure. */
static ru_status answered(const char *name, ru_status st, ru_err *err)
{
    if ((uint32_t)st >= RU_STATUS_COUNT) {
        return RU_FAIL(err, RU_E_USER, "function %s returned %d, which is no status", name,
                       (int)st);
    }
    if (st != RU_OK && err != NULL && err->text[0] == '\0') {
        return RU_FAIL(err, st, "function %s failed and gave no reason", name);
    }
    if (st != RU_OK && err != NULL) {
        err->status = st; /* the app may have written the sentence alone */
    }
    return st;
}

static void enter(const char *name, uint32_t executor, uint32_t clock, ru_err *err)
{
    if (err != NULL) {
        *err = (ru_err){0};
    }
    ru_fault_enter(name, executor, clock);
}

/* Bytes that the app did not make with ru_app_put are none. */
static void put_alone(ru_app_bytes *b)
{
    if (b->n < 0 || b->n > b->room) {
        b->n = 0;
        b->full = true;
    }
}

ru_status ru_app_call_open(const ru_app_ops *ops, const ru_app_setup *setup, void **self,
                           ru_err *err)
{
    if (ops->open == NULL) {
        return RU_OK;
    }
    enter("open", RU_FAULT_NONE, RU_FAULT_NONE, err);
    ru_status st = ops->open(setup, self, err);
    ru_fault_leave();
    return answered("open", st, err);
}

ru_status ru_app_call_exec_open(const ru_app_ops *ops, const void *self, uint32_t k,
                                const ru_sparse *part, void **state, ru_err *err)
{
    *state = NULL;
    enter("exec_open", k, RU_FAULT_NONE, err);
    ru_status st = ops->exec_open(self, k, part, state, err);
    ru_fault_leave();
    st = answered("exec_open", st, err);
    if (st == RU_OK && *state == NULL) {
        st = RU_FAIL(err, RU_E_USER,
                     "exec_open succeeded without a state; give it one, of one byte at least");
    }
    return st == RU_OK ? st : ru_err_wrap(err, st, "app %s, executor %u", ops->name, k);
}

void ru_app_call_exec_save(const ru_app_ops *ops, const void *state, uint32_t k, ru_app_bytes *to)
{
    if (ops->exec_save != NULL) {
        ru_fault_enter("exec_save", k, RU_FAULT_NONE);
        ops->exec_save(state, to);
        ru_fault_leave();
        put_alone(to);
    }
}

ru_status ru_app_call_exec_load(const ru_app_ops *ops, void *state, uint32_t k, const void *bytes,
                                int64_t n, ru_err *err)
{
    if (ops->exec_load == NULL) {
        return RU_OK;
    }
    enter("exec_load", k, RU_FAULT_NONE, err);
    ru_status st = ops->exec_load(state, bytes, n, err);
    ru_fault_leave();
    st = answered("exec_load", st, err);
    return st == RU_OK ? st : ru_err_wrap(err, st, "app %s, state of executor %u", ops->name, k);
}

ru_status ru_app_call_wants(const ru_app_ops *ops, const ru_app_shape *s, void *state,
                            const ru_app_task *task, int64_t first, int64_t rows,
                            ru_app_want *wants, uint32_t *n, ru_err *err)
{
    ru_fault_enter("wants", task->executor, task->clock);
    *n = ops->wants(state, task, wants, RU_APP_WANTS_MAX);
    ru_fault_leave();
    return ru_app_wants_check(ops, s, task, first, rows, wants, *n, err);
}

ru_status ru_app_call_run(const ru_app_ops *ops, void *state, const ru_app_task *task,
                          const ru_app_view *view, ru_app_result *result, ru_err *err)
{
    enter("run", task->executor, task->clock, err);
    ru_status st = ops->run(state, task, view, result, err);
    ru_fault_leave();
    return answered("run", st, err);
}

ru_status ru_app_call_drive_open(const ru_app_ops *ops, const void *self, void **driver,
                                 ru_err *err)
{
    enter("drive_open", RU_FAULT_NONE, RU_FAULT_NONE, err);
    ru_status st = ops->drive_open(self, driver, err);
    ru_fault_leave();
    st = answered("drive_open", st, err);
    if (st == RU_OK && *driver == NULL) {
        st = RU_FAIL(err, RU_E_USER,
                     "drive_open succeeded without a driver; give it one, of one byte at least");
    }
    return st;
}

void ru_app_call_drive_save(const ru_app_ops *ops, const void *driver, ru_app_bytes *to)
{
    if (ops->drive_save != NULL) {
        ru_fault_enter("drive_save", RU_FAULT_NONE, RU_FAULT_NONE);
        ops->drive_save(driver, to);
        ru_fault_leave();
        put_alone(to);
    }
}

ru_status ru_app_call_drive_load(const ru_app_ops *ops, void *driver, const void *bytes, int64_t n,
                                 ru_err *err)
{
    if (ops->drive_load == NULL) {
        return RU_OK;
    }
    enter("drive_load", RU_FAULT_NONE, RU_FAULT_NONE, err);
    ru_status st = ops->drive_load(driver, bytes, n, err);
    ru_fault_leave();
    return answered("drive_load", st, err);
}

ru_status ru_app_call_drive_wants(const ru_app_ops *ops, const ru_app_shape *s, void *driver,
                                  uint32_t clock, ru_app_want *wants, uint32_t *n, ru_err *err)
{
    ru_fault_enter("drive_wants", RU_FAULT_NONE, clock);
    *n = ops->drive_wants(driver, clock, wants, RU_APP_WANTS_MAX);
    ru_fault_leave();
    return ru_app_wants_check(ops, s, NULL, 0, 0, wants, *n, err);
}

ru_status ru_app_call_drive(const ru_app_ops *ops, void *driver, uint32_t clock, const double *sums,
                            const ru_app_view *view, ru_app_bytes *args, ru_err *err)
{
    enter("drive", RU_FAULT_NONE, clock, err);
    ru_status st = ops->drive(driver, clock, sums, view, args, err);
    ru_fault_leave();
    put_alone(args);
    return answered("drive", st, err);
}

ru_status ru_app_call_eval(const ru_app_ops *ops, const void *self, uint32_t clock,
                           const float *const *tables, const ru_sparse *data, double *sums,
                           ru_err *err)
{
    enter("eval", RU_FAULT_NONE, clock, err);
    ru_status st = ops->eval(self, tables, data, sums, err);
    ru_fault_leave();
    return answered("eval", st, err);
}

ru_status ru_app_call_predict(const ru_app_ops *ops, const void *self, const float *const *tables,
                              const ru_sparse *data, int64_t row, ru_text *out, ru_err *err)
{
    enter("predict", RU_FAULT_NONE, RU_FAULT_NONE, err);
    ru_status st = ops->predict(self, tables, data, row, out, err);
    ru_fault_leave();
    return answered("predict", st, err);
}

double ru_app_call_objective(const ru_app_ops *ops, const void *self, uint32_t clock,
                             const double *sums, const float *const *told)
{
    if (ops->objective == NULL) {
        return sums[0];
    }
    ru_fault_enter("objective", RU_FAULT_NONE, clock);
    double v = ops->objective(self, sums, told);
    ru_fault_leave();
    return v;
}

/* -- rows ----------------------------------------------------------------------------------------
 */

static const uint32_t guard_word = 0xa5c3e18fu; /* a number that no learning ends at */

void ru_app_guard_put(float *behind)
{
    for (uint32_t i = 0; i < RU_APP_GUARD; i++) {
        memcpy(behind + i, &guard_word, sizeof guard_word);
    }
}

ru_status ru_app_guard_check(const ru_app_ops *ops, const ru_app_table *t, const ru_app_want *w,
                             const float *behind, ru_err *err)
{
    for (uint32_t i = 0; i < RU_APP_GUARD; i++) {
        if (memcmp(behind + i, &guard_word, sizeof guard_word) != 0) {
            return RU_FAIL(err, RU_E_USER,
                           "app %s wrote behind the %lld rows of %u floats of table %s that it "
                           "named in wants",
                           ops->name, (long long)w->rows, t->width, t->name);
        }
    }
    return RU_OK;
}
