#include "test/run_lab.h"

#include <stdio.h>
#include <stdlib.h>

#include "env/file/file.h"
#include "test/test.h"

int run_lab_open(void **state, const char *job_yaml)
{
    lab *l = calloc(1, sizeof *l);
    ru_err err = {0};
    if (l == NULL) {
        return -1;
    }
    ru_arena_init(&l->arena, 0);
    l->log = ru_log_get();
    (void)snprintf(l->dir, sizeof l->dir, "/tmp/rubato-test-XXXXXX");
    if (mkdtemp(l->dir) == NULL) {
        return -1;
    }
    assert_ok(ru_job_parse("t", job_yaml, &l->arena, &l->job, &err), err);
    *state = l;
    return 0;
}

int run_lab_close(void **state)
{
    lab *l = *state;
    ru_err err;
    ru_log_set(&l->log);
    (void)!ru_path_remove(l->dir, &err);
    ru_arena_fini(&l->arena);
    free(l);
    return 0;
}

ru_status run_lab_train(lab *l, const char *name, bool resume, int64_t steps, ru_train_result *r,
                        ru_err *err)
{
    ru_job job = l->job;
    job.train.steps = steps;
    ru_train_options to = {.job = &job,
                           .out = ru_path_join(&l->arena, l->dir, name),
                           .resume = resume,
                           .quiet = true,
                           .no_trace = !l->traces};
    return ru_train(&to, &l->arena, r, err);
}
