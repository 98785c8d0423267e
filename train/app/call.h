/* Calls of an app's functions by a host: what comes back is checked against what the interface
 * says, and a crash or an endless loop inside is known by function, executor and clock
 * (env/fault.h).
 *
 * Thread: as the functions of the app. */
#ifndef RU_TRAIN_APP_CALL_H
#define RU_TRAIN_APP_CALL_H

#include "train/app/app_job.h"
#include "train/app/task.h"

/* Watch the app's code in this process until ru_fault_close. `out`: folder of the run, whose file
 * `faults` tells the other workers; NULL: there are none. Owner: texts in `arena`. Errors:
 * RU_E_MEM, those of a thread.
 */
RU_MUST_USE ru_status ru_app_watch(const ru_app_job_file *f, const char *out, ru_arena *arena,
                                   ru_err *err);
/* The same where a trained app is used. */
RU_MUST_USE ru_status ru_app_watch_use(const ru_app_job_file *f, ru_arena *arena, ru_err *err);
/* Has this executor failed on other workers in the same way? Errors: RU_E_USER says how. */
RU_MUST_USE ru_status ru_app_hopeless(const ru_app_job_file *f, const char *out, uint32_t executor,
                                      ru_err *err);
void ru_app_hope(const char *out); /* a run begins or is resumed: forget what failed before */

RU_MUST_USE ru_status ru_app_call_open(const ru_app_ops *ops, const ru_app_setup *setup,
                                       void **self, ru_err *err);
RU_MUST_USE ru_status ru_app_call_exec_open(const ru_app_ops *ops, const void *self, uint32_t k,
                                            const ru_sparse *part, void **state, ru_err *err);
void ru_app_call_exec_save(const ru_app_ops *ops, const void *state, uint32_t k, ru_app_bytes *to);
RU_MUST_USE ru_status ru_app_call_exec_load(const ru_app_ops *ops, void *state, uint32_t k,
                                            const void *bytes, int64_t n, ru_err *err);
/* first, rows: of the executor's data. Shape: wants [RU_APP_WANTS_MAX]. */
RU_MUST_USE ru_status ru_app_call_wants(const ru_app_ops *ops, const ru_app_shape *s, void *state,
                                        const ru_app_task *task, int64_t first, int64_t rows,
                                        ru_app_want *wants, uint32_t *n, ru_err *err);
RU_MUST_USE ru_status ru_app_call_run(const ru_app_ops *ops, void *state, const ru_app_task *task,
                                      const ru_app_view *view, ru_app_result *result, ru_err *err);
/* *driver: NULL before. */
RU_MUST_USE ru_status ru_app_call_drive_open(const ru_app_ops *ops, const void *self, void **driver,
                                             ru_err *err);
/* Bytes that the app did not make with ru_app_put: to->full, as without memory. */
void ru_app_call_drive_save(const ru_app_ops *ops, const void *driver, ru_app_bytes *to);
RU_MUST_USE ru_status ru_app_call_drive_load(const ru_app_ops *ops, void *driver, const void *bytes,
                                             int64_t n, ru_err *err);
RU_MUST_USE ru_status ru_app_call_drive_wants(const ru_app_ops *ops, const ru_app_shape *s,
                                              void *driver, uint32_t clock, ru_app_want *wants,
                                              uint32_t *n, ru_err *err);
RU_MUST_USE ru_status ru_app_call_drive(const ru_app_ops *ops, void *driver, uint32_t clock,
                                        const double *sums, const ru_app_view *view,
                                        ru_app_bytes *args, ru_err *err);

RU_MUST_USE ru_status ru_app_call_eval(const ru_app_ops *ops, const void *self, uint32_t clock,
                                       const float *const *tables, const ru_sparse *data,
                                       double *sums, ru_err *err);
RU_MUST_USE ru_status ru_app_call_predict(const ru_app_ops *ops, const void *self,
                                          const float *const *tables, const ru_sparse *data,
                                          int64_t row, ru_text *out, ru_err *err);
double ru_app_call_objective(const ru_app_ops *ops, const void *self, uint32_t clock,
                             const double *sums, const float *const *told);

/* Floats behind the rows of a want, by which it is seen whether the app wrote too many. */
enum { RU_APP_GUARD = 16 };
void ru_app_guard_put(float *behind);
RU_MUST_USE ru_status ru_app_guard_check(const ru_app_ops *ops, const ru_app_table *t,
                                         const ru_app_want *w, const float *behind, ru_err *err);

#endif
