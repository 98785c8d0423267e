/* Host of an app in one process, without any network: all executors on the threads of a pool.
 *
 *     clock   arguments from the driver
 *             for each round: tasks of all executors on T threads, each on its own copies
 *             merge the changes in the order (executor, round): threads share the rows
 *
 * bsp and rotation: the result is a function of the job alone, not of the threads. ssp and async:
 * one process has no stale copies; T executors at a time see all that was merged before.
 *
 * Thread: one caller. */
#ifndef RU_TRAIN_APP_LOCAL_H
#define RU_TRAIN_APP_LOCAL_H

#include "exec/pool.h"
#include "trace/record/recorder.h"
#include "train/app/state.h"

typedef enum ru_app_order {
    RU_APP_BSP,
    RU_APP_SSP,
    RU_APP_ASYNC,
} ru_app_order;

typedef struct ru_app_local_options {
    const ru_app_ops *ops;
    ru_app_setup setup;
    uint32_t order;   /* ru_app_order; an app that rotates rotates */
    uint32_t threads; /* 0: all cores */
} ru_app_local_options;

typedef struct ru_app_local ru_app_local;

/* Errors: those of the app; RU_E_CONFIG for more executors than rows; RU_E_MEM. */
RU_MUST_USE ru_status ru_app_local_open(const ru_app_local_options *opt, ru_app_local **out,
                                        ru_err *err);
void ru_app_local_close(ru_app_local *l); /* NULL is fine */
/* Record tasks, merges and the driver from now on; view until close. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_app_local_record(ru_app_local *l, ru_recorder *recorder, ru_err *err);

/* Run the next clock. Shape: sums [RU_APP_SUMS_MAX]. Errors: those of the app, with executor and
 * clock; RU_E_USER when it breaks the interface; RU_E_DATA when a change is not a finite number.
 * After an error the tables are as they were before the clock, except rows with one holder. */
RU_MUST_USE ru_status ru_app_local_clock(ru_app_local *l, double *sums, ru_err *err);

/* The objective of a clock's sums. */
double ru_app_local_objective(const ru_app_local *l, const double *sums);

/* The state between two clocks, states of executors and driver included; view until the next call.
 */
RU_MUST_USE ru_status ru_app_local_save(ru_app_local *l, ru_app_state **out, ru_err *err);
/* What was read into the state that ru_app_local_save gave (tables, exec, driver, clock) becomes
 * the state of the executors. */
RU_MUST_USE ru_status ru_app_local_restore(ru_app_local *l, ru_err *err);
uint32_t ru_app_local_threads(const ru_app_local *l);
uint32_t ru_app_local_pieces(const ru_app_local *l); /* clocks of a pass */
const void *ru_app_local_self(const ru_app_local *l);

#endif
