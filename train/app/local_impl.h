/* Inside of the host in one process.
 *
 * Thread: tasks of different executors on different threads; the rest on the caller's. */
#ifndef RU_TRAIN_APP_LOCAL_IMPL_H
#define RU_TRAIN_APP_LOCAL_IMPL_H

#include "train/app/local.h"

/* A change of rows that waits for its merge. */
typedef struct rui_change {
    uint32_t table;
    int64_t first, rows;
    uint32_t *list; /* [rows] or NULL: the range */
    float *delta;   /* [rows, width] */
} rui_change;

/* What one task changed. Memory stays for the next clock. */
typedef struct rui_job {
    rui_change change[RU_APP_WANTS_MAX];
    uint32_t n;
    ru_arena arena;
    ru_app_result result;
    ru_status st;
    ru_err err;
} rui_job;

typedef struct rui_executor {
    ru_sparse part;
    void *state;
    bool open;
} rui_executor;

struct ru_app_local {
    ru_app_local_options opt;
    void *self, *driver;
    bool opened, driven;
    uint32_t executors, rounds; /* the shape's */
    ru_pool *pool;
    ru_app_state state;
    int64_t *first; /* [executors + 1] first row of each part */
    rui_executor *exec;
    rui_job *jobs;                /* [executors * rounds] */
    ru_app_bytes args;            /* of the clock */
    double sums[RU_APP_SUMS_MAX]; /* of the clock before */
    ru_arena arena;
    ru_recorder *recorder; /* NULL: none, with names.executor */
    struct {
        uint16_t tasks, arguments, merge;
        uint16_t *executor; /* [executors] */
    } names;
};

/* One task, changes into `job`. */
void rui_local_task(ru_app_local *l, uint32_t executor, uint32_t round, rui_job *job);
/* Rows of a want, gathered or in place. NULL: no memory. `copy`: the task may write them. */
float *rui_local_rows(const ru_app_state *s, const ru_app_want *w, bool copy, ru_arena *arena);

#endif
