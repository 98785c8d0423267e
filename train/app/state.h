/* All that a job with an app consists of between two clocks: tables, states of executors and
 * driver. What a host keeps, a checkpoint holds and eval reads.
 *
 * Thread: one at a time. */
#ifndef RU_TRAIN_APP_STATE_H
#define RU_TRAIN_APP_STATE_H

#include "train/app/task.h"

enum {
    RU_APP_EXECUTORS_MAX = 4096,
    RU_APP_WIDTH_MAX = 1 << 20,
};

typedef struct ru_app_state {
    const ru_app_ops *ops;
    ru_app_shape shape;
    uint32_t extra_width[RU_APP_TABLES_MAX]; /* floats of the rule's state a row */
    float *value[RU_APP_TABLES_MAX];         /* [rows, width] */
    float *extra[RU_APP_TABLES_MAX];         /* [rows, extra_width]; NULL: none */
    ru_arena arena;                          /* of the shape */
    uint32_t clock;                          /* clocks that are complete */
    ru_app_bytes *exec;                      /* [executors] filled by the host for a checkpoint */
    ru_app_bytes driver;
} ru_app_state;

/* Tables of an open app, checked, with memory for them (zeros). Errors: RU_E_USER when they are no
 * tables, RU_E_MEM. */
RU_MUST_USE ru_status ru_app_state_init(ru_app_state *s, const ru_app_ops *ops, const void *self,
                                        uint32_t executors, int64_t data_rows, uint64_t seed,
                                        ru_err *err);
void ru_app_state_fini(ru_app_state *s); /* accepts zeroed memory */

/* Rows of one holder at a time: they are changed in place. */
bool ru_app_one_holder(const ru_app_table *t);

/* Are these the wants of `task` (NULL: of the driver), whose executor has rows first .. first +
 * rows
 * - 1 of the data: not too many, each within its table and block? Errors: RU_E_USER. */
RU_MUST_USE ru_status ru_app_wants_check(const ru_app_ops *ops, const ru_app_shape *s,
                                         const ru_app_task *task, int64_t first, int64_t rows,
                                         const ru_app_want *wants, uint32_t n, ru_err *err);
int64_t ru_app_state_parameters(const ru_app_state *s); /* numbers in all tables */

#endif
