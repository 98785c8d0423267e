/* What reading a job with a model and a job with an app share.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_JOB_JOB_IMPL_H
#define RU_TRAIN_JOB_JOB_IMPL_H

#include <stddef.h>

#include "base/conf.h"
#include "data/reader.h"
#include "train/job/job.h"

extern const ru_conf_table rui_augment_table; /* of ru_augment */

/* One row of a table: the member has the key's name. */
/* job_optim.c */
extern const ru_conf_table rui_job_data_table;
/* job_data.c. Errors: RU_E_CONFIG for what does not go with data.follow. */
RU_MUST_USE ru_status rui_job_follow_check(const ru_job *job, ru_err *err);
extern const ru_conf_table rui_job_federated_table; /* job_federated.c */
extern const ru_conf_table rui_job_optimizer_table, rui_job_schedule_table, rui_job_group_table;

/* The text of a job file: not too large, no control characters. */
RU_MUST_USE ru_status rui_job_text(const char *path, ru_arena *arena, char **text, int64_t *n,
                                   ru_err *err);
/* The name of a job stands in lines, messages and names of folders. */
RU_MUST_USE ru_status rui_job_name_check(const char *name, ru_err *err);
/* `path` as seen from the folder of job file `job`, absolute when the system can say; NULL: no
 * memory. */
const char *rui_job_path(ru_arena *arena, const char *job, const char *path);
RU_MUST_USE ru_status rui_job_paths(ru_arena *arena, const char *job, ru_conf_texts *t,
                                    ru_err *err);

/* A file of `storage` alone. */
typedef struct rui_job_storage {
    struct {
        const ru_disk_tier *at; /* [n] */
        uint32_t n;
    } at;
} rui_job_storage;
extern const ru_conf_table rui_job_storage_table;

#endif
