/* Whole training runs in a folder of the test's own, for suites of train/driver.
 *
 * Thread: the test's. Owner: setup functions give a lab that run_lab_close ends. */
#ifndef RU_TEST_RUN_LAB_H
#define RU_TEST_RUN_LAB_H

#include "base/log.h"
#include "train/driver/trainer.h"

typedef struct lab {
    ru_arena arena;
    char dir[64]; /* holds the runs; removed at the end */
    ru_job job;
    ru_log_options log; /* as it was before */
    bool traces;        /* runs record */
} lab;

/* For setup functions: *state is a lab with this job; 0, or -1 without a folder. */
int run_lab_open(void **state, const char *job_yaml);
int run_lab_close(void **state); /* a teardown function */

/* Train the lab's job as run `name`, at most `steps` steps (0: as the job says), told to nobody. */
RU_MUST_USE ru_status run_lab_train(lab *l, const char *name, bool resume, int64_t steps,
                                    ru_train_result *r, ru_err *err);

#endif
