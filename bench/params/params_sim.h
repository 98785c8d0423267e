/* Processes of the simulator with an engine each. The engine, its app and its data are the real
 * ones; a device computes at once and answers later. The callers differ in the settings of the
 * engine, in the time that a device takes, and in what it stores.
 *
 * Thread: one. */
#ifndef RU_BENCH_PARAMS_SIM_H
#define RU_BENCH_PARAMS_SIM_H

#include "base/rng.h"
#include "sim/process.h"
#include "train/app/app_job.h"
#include "train/app/state.h"
#include "train/engine/engine.h"

typedef struct rui_params_process {
    struct rui_params_sim *s;
    ru_sim_process process;
    ru_node *node;
    ru_engine *engine;
    ru_node_id self;
    char address[32];
} rui_params_process;

/* What a device says to its engine, later. */
typedef struct rui_params_answer {
    rui_params_process *p;
    struct rui_params_answer *next;
    void (*give)(const struct rui_params_answer *a, ru_time now, ru_effects *fx);
    ru_engine_ckpt at;
    uint32_t object, tag;
    ru_engine_task *task; /* NULL: it is none, or ends at another time */
    int64_t begun_ns;
    uint32_t end; /* cut.end, as it is answered now */
} rui_params_answer;

typedef struct rui_params_sim {
    ru_app_job_file file;
    ru_sparse_file *data;
    void *app;
    ru_app_state state;
    uint32_t executors;
    ru_sparse *part; /* [executors] */
    int64_t *first;  /* [executors + 1] */
    /* Time until a device answers; task NULL: it is not the answer to a task. */
    int64_t (*takes_ns)(rui_params_process *p, const ru_engine_task *task);
    /* When the first `units` of a task that can be cut are done. NULL: there are none. */
    int64_t (*ends_ns)(const rui_params_process *p, const ru_engine_task *task, int64_t begun_ns,
                       uint32_t units);
    int64_t task_ns; /* processor time of a task, as its engine is told; 0: as it was */
    void *user;      /* the caller's */
    /* of a run */
    ru_sim *sim;
    ru_rng rng;
    rui_params_answer *answers;
    uint32_t founders, n, n_max;
    rui_params_process *at; /* [n_max], n are there; they do not move */
} rui_params_sim;

/* The app and the data of a job, in so many executors. Owner: `s`, zeroed but for takes_ns and
 * user, must not move; its arrays live in `arena`; _fini also after an error. */
RU_MUST_USE ru_status rui_params_sim_init(rui_params_sim *s, const char *yaml, uint32_t executors,
                                          ru_arena *arena, ru_err *err);
void rui_params_sim_fini(rui_params_sim *s);

/* Begin a run of n processes, with room for n_max; `set` holds the settings, the device and the
 * news of their engines, and this adds the rest. rui_params_sim_clear ends the run; an error has
 * ended it. */
RU_MUST_USE ru_status rui_params_sim_start(rui_params_sim *s, uint32_t n, uint32_t n_max,
                                           ru_rng rng, uint64_t seed, const ru_engine_options *set,
                                           ru_err *err);
/* One more process joins the run. Errors: RU_E_LIMIT, RU_E_MEM. */
RU_MUST_USE ru_status rui_params_sim_join(rui_params_sim *s, const ru_engine_options *set,
                                          ru_err *err);
void rui_params_sim_clear(rui_params_sim *s);

/* p's device gives the answer when its time is over. */
void rui_params_later(rui_params_process *p, rui_params_answer a);

/* Functions of a device; self: the process. */
void rui_params_open(void *self, uint32_t executor, uint32_t helper);
void rui_params_close(void *self, uint32_t executor, void *state);
void rui_params_run(void *self, ru_engine_task *task);
void rui_params_hold(void *self, ru_engine_task *task);
void rui_params_release(void *self, ru_engine_task *task);
void rui_params_write(void *self, ru_engine_ckpt at, uint32_t object, const void *bytes, int64_t n);

#endif
