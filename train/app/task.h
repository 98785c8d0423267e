/* What every host of an app does alike, so that all give the same result: which items and which
 * block a task has, its seed, first values, blocks of rows that rotate.
 *
 * Thread: any. */
#ifndef RU_TRAIN_APP_TASK_H
#define RU_TRAIN_APP_TASK_H

#include "base/arena.h"
#include "train/app/app.h"

/* Facts of an open app. */
typedef struct ru_app_shape {
    uint32_t executors, pieces;
    uint32_t rounds; /* of a clock: executors with rotation, else 1 */
    uint32_t n_tables;
    ru_app_table table[RU_APP_TABLES_MAX];
    const int64_t *cut[RU_APP_TABLES_MAX]; /* [executors + 1] of tables that rotate; else NULL */
    const char *whole; /* why parts of a task cannot run elsewhere; NULL: they can */
    uint64_t seed;
} ru_app_shape;

/* Ask the app for its tables, and check what it says. Errors: RU_E_USER with a sentence that names
 * the app and the table; RU_E_MEM. */
RU_MUST_USE ru_status ru_app_shape_get(const ru_app_ops *ops, const void *self, uint32_t executors,
                                       uint64_t seed, ru_arena *arena, ru_app_shape *out,
                                       ru_err *err);

/* The task of (executor, clock, round) whose part has `items` items; without arguments. */
ru_app_task ru_app_task_of(const ru_app_shape *s, uint32_t executor, uint32_t clock, uint32_t round,
                           int64_t items);

/* First values of a row: into value [width]. */
void ru_app_first(const ru_app_ops *ops, const void *self, const ru_app_shape *s, uint32_t table,
                  int64_t row, float *value);

void ru_app_bytes_fini(ru_app_bytes *b); /* zeroed is fine */

#endif
