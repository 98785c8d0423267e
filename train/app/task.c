#include "train/app/task.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "env/fault.h"

void ru_app_put(ru_app_bytes *to, const void *from, int64_t bytes)
{
    if (to->full || bytes == 0) {
        return;
    }
    if (bytes < 0 || bytes > INT64_MAX / 4) {
        to->full = true;
        return;
    }
    if (bytes > to->room - to->n) {
        int64_t room = to->n + bytes > 2 * to->room ? to->n + bytes : 2 * to->room;
        uint8_t *p = realloc(to->p, (size_t)room);
        to->full = p == NULL;
        if (to->full) {
            return;
        }
        to->p = p;
        to->room = room;
    }
    memcpy(to->p + to->n, from, (size_t)bytes);
    to->n += bytes;
}

void ru_app_bytes_fini(ru_app_bytes *b)
{
    free(b->p);
    *b = (ru_app_bytes){0};
}

static ru_status check_table(const ru_app_ops *ops, const ru_app_table *t, ru_err *err)
{
    const char *name = t->name != NULL ? t->name : "(without a name)";
    if (t->name == NULL || t->rows < 1 || t->width < 1 || t->rule > RU_APP_USER) {
        return RU_FAIL(
            err, RU_E_USER,
            "app '%s': table %s has %lld rows of %u floats and rule %u; expected a name, "
            "at least one row and float, and a rule of 0 to %d",
            ops->name, name, (long long)t->rows, t->width, t->rule, RU_APP_USER);
    }
    if (t->rule == RU_APP_USER && ops->merge == NULL) {
        return RU_FAIL(err, RU_E_USER,
                       "app '%s': table %s is merged by the app, which has no merge", ops->name,
                       name);
    }
    if (!isfinite(t->lr)) {
        return RU_FAIL(err, RU_E_USER, "app '%s': the learning rate of table %s is not finite",
                       ops->name, name);
    }
    if (t->local && (t->rotate || t->told)) {
        return RU_FAIL(err, RU_E_USER, "app '%s': table %s is local and cannot also %s", ops->name,
                       name, t->rotate ? "rotate" : "be told");
    }
    return RU_OK;
}

static ru_status cut_of(const ru_app_ops *ops, const ru_app_table *t, uint32_t executors,
                        ru_arena *arena, const int64_t **out, ru_err *err)
{
    int64_t *cut = RU_NEW(arena, int64_t, executors + 1);
    if (cut == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the blocks of table %s", t->name);
    }
    for (uint32_t b = 0; b <= executors; b++) {
        cut[b] = t->cut != NULL ? t->cut[b] : t->rows * b / executors;
        if (cut[b] < (b == 0 ? 0 : cut[b - 1]) || (b == executors && cut[b] != t->rows) ||
            (b == 0 && cut[b] != 0)) {
            return RU_FAIL(
                err, RU_E_USER,
                "app '%s': the %u blocks of table %s do not cover its %lld rows in order",
                ops->name, executors, t->name, (long long)t->rows);
        }
    }
    *out = cut;
    return RU_OK;
}

ru_status ru_app_shape_get(const ru_app_ops *ops, const void *self, uint32_t executors,
                           uint64_t seed, ru_arena *arena, ru_app_shape *out, ru_err *err)
{
    ru_app_shape s = {.executors = executors, .pieces = 1, .rounds = 1, .seed = seed};
    ru_fault_enter("tables", RU_FAULT_NONE, RU_FAULT_NONE);
    s.n_tables = ops->tables(self, s.table);
    ru_fault_leave();
    ru_fault_enter("pieces", RU_FAULT_NONE, RU_FAULT_NONE);
    s.pieces = ops->pieces != NULL ? ops->pieces(self) : 1;
    ru_fault_leave();
    const char *stateful =
        ops->exec_save != NULL ? "its executors have a state of their own" : NULL;
    s.whole = stateful;
    if (s.n_tables < 1 || s.n_tables > RU_APP_TABLES_MAX || s.pieces < 1) {
        return RU_FAIL(err, RU_E_USER,
                       "app '%s' has %u tables and %u pieces; expected 1 to %d and "
                       "at least 1",
                       ops->name, s.n_tables, s.pieces, RU_APP_TABLES_MAX);
    }
    for (uint32_t k = 0; k < s.n_tables; k++) {
        const ru_app_table *t = &s.table[k];
        RU_TRY(check_table(ops, t, err));
        if (t->rotate) {
            RU_TRY(cut_of(ops, t, executors, arena, &s.cut[k], err));
            s.rounds = executors;
        }
        if (s.whole == NULL && t->rotate) {
            s.whole = "its rows rotate";
        } else if (s.whole == NULL && t->rule == RU_APP_ADD && !t->local) {
            s.whole = "a task writes new values, not gradients, into a table whose rule is add";
        }
    }
    *out = s;
    return RU_OK;
}

ru_app_task ru_app_task_of(const ru_app_shape *s, uint32_t executor, uint32_t clock, uint32_t round,
                           int64_t items)
{
    const uint64_t key[4] = {s->seed, executor, clock, round};
    int64_t piece = clock % s->pieces;
    bool rotates = s->rounds > 1 || s->executors == 1;
    return (ru_app_task){.executor = executor,
                         .clock = clock,
                         .round = round,
                         .block = rotates ? (executor + round) % s->executors : 0,
                         .blocks = rotates ? s->executors : 1,
                         .lo = items * piece / s->pieces,
                         .hi = items * (piece + 1) / s->pieces,
                         .seed = ru_hash_bytes(key, sizeof key, 0)};
}

void ru_app_first(const ru_app_ops *ops, const void *self, const ru_app_shape *s, uint32_t table,
                  int64_t row, float *value)
{
    memset(value, 0, s->table[table].width * sizeof *value);
    if (ops->first != NULL) {
        const uint64_t key[2] = {table, (uint64_t)row};
        ru_rng rng = ru_rng_from(s->seed, ru_hash_bytes(key, sizeof key, 0));
        ru_fault_enter("first", RU_FAULT_NONE, RU_FAULT_NONE);
        ops->first(self, table, row, &rng, value);
        ru_fault_leave();
    }
}
