/* Inside of a worker of a job with an app.
 *
 *   worker_app.c       opening, news of the engine, the end
 *   worker_app_lead.c  what the leader reports
 *   worker_app_log.c   the running checkpoint
 *   worker_app_plans.c what was decided, and what came of it
 *   worker_app_trace.c records, on all threads
 *   worker_app_work.c  threads: tasks, data, objects of checkpoints
 *
 * Thread: as said at each part; `lock` guards what both touch. */
#ifndef RU_TRAIN_WORKER_WORKER_APP_IMPL_H
#define RU_TRAIN_WORKER_WORKER_APP_IMPL_H

#include "env/thread.h"
#include "run/place.h"
#include "store/shardlog.h"
#include "train/app/app_data.h"
#include "train/app/app_world.h"
#include "train/engine/engine.h"
#include "train/worker/worker_app.h"

enum { RUI_APP_THREADS_MAX = 64 };

typedef enum rui_app_kind {
    RUI_APP_OPEN,
    RUI_APP_RUN,
    RUI_APP_WRITE,
    RUI_APP_READ,
    RUI_APP_LOG,
    RUI_APP_LOG_READ,
    RUI_APP_EXPORT,
    RUI_APP_WORLD, /* for a process that asked */
    RUI_APP_KINDS
} rui_app_kind;

/* Who does it. Files have a thread of their own: a task does not wait until a disk has stored
 * something, nor a file until an evaluation is over. */
typedef enum rui_app_lane_kind {
    RUI_APP_COMPUTE, /* all compute threads */
    RUI_APP_FILES,   /* one thread */
    RUI_APP_EXPORTS, /* one thread, because all exports use the worker's tables */
    RUI_APP_LANES
} rui_app_lane_kind;

/* What a thread does, and what came of it. */
typedef struct rui_app_command {
    struct rui_app_command *next;
    rui_app_kind kind;
    uint32_t object, tag;
    uint32_t since; /* LOG, LOG_READ: a generation */
    ru_engine_task *task;
    ru_engine_ckpt at;
    void *bytes; /* malloc */
    int64_t n;
    void *state; /* OPEN: of the app */
    ru_metrics metrics;
    int64_t eval_ns, busy_ns;
    ru_status status;
    ru_err err;
} rui_app_command;

/* Commands that wait for a thread of their kind; under the worker's lock. */
typedef struct rui_app_lane {
    struct rui_app_worker *worker;
    const char *name;
    rui_app_command *todo, *last;
    ru_cond changed;
} rui_app_lane;

/* What the leader reports, and by whose report it goes on. */
typedef struct rui_app_tells {
    ru_run_report *report;
    bool failed;          /* it could not be opened */
    bool led, followed;   /* in the newest view; ever: another one led */
    uint32_t epoch;       /* of that view */
    bool muted;           /* the report is another one's now */
    ru_member_info *crew; /* [n_crew] of the newest view; room for crew_max */
    uint32_t n_crew, crew_max;
} rui_app_tells;

/* How far the job is. */
typedef struct rui_app_run {
    uint32_t clocks, clock, told;
    int64_t items, items_first, parameters; /* items_first: when this process began */
    double objective;
    ru_metrics metrics;
    ru_time begun, clock_at, worked_at; /* worked_at: the last clock or export was over */
    int64_t left_out;                   /* leader: times that a clock closed without an executor */
    bool target; /* all targets of train.until are reached: this leader ends the job */
} rui_app_run;

/* The newest plan of a policy: low 32 bits of its id; 0: not known. */
typedef struct rui_app_plan {
    uint32_t plan, predicted_ns;
} rui_app_plan;

/* What was decided, until it is known what came of it. */
typedef struct rui_app_plans {
    ru_decisions *decisions;
    ru_time at; /* the map in force, from then on */
    int64_t clocks;
    bool measured;
    bool save_told; /* the save under way is recorded */
    double save_bytes, save_s, recovery_s;
    uint32_t recoveries;
    bool reassigned, staged;
    double reassign_clock_s; /* mean clock by the newest plan of reassign; NaN: it has another */
    rui_app_plan moves, saves;
} rui_app_plans;

typedef struct rui_app_worker {
    const ru_app_worker_options *opt;
    ru_arena *arena;
    ru_run_folder folder; /* exports thread; after the last export the loop */
    /* loop thread */
    ru_shell shell;
    ru_engine *engine; /* a part of its node */
    uint32_t waker;
    rui_app_tells tells;
    rui_app_run run;
    rui_app_plans plans;
    bool stopping;
    bool log_done;     /* this leader's job is over: the running checkpoint is of no use */
    uint32_t exports;  /* under way */
    ru_err export_err; /* of the newest export; status RU_OK: it was stored */
    ru_engine_ckpt from;
    ru_rng shuffle;
    /* all threads, after opening only read; `state` by one export at a time */
    ru_app_data data; /* its test data are opened by the founder, or by one export */
    void *self;
    bool app_open;
    ru_app_state state;
    int64_t *part;
    ru_recorder *recorder;
    struct {
        uint16_t *executor; /* [executors] */
        uint16_t kind[RUI_APP_KINDS], moved, settled, saved, logged, rebuilt, restored;
    } names;
    /* under lock */
    ru_mutex lock;
    rui_app_lane lane[RUI_APP_LANES];
    rui_app_command *done, *done_last;
    bool quit;
    /* guards `cut` of the tasks that compute threads have */
    ru_mutex part_lock;
    /* under given_lock */
    ru_mutex given_lock;
    ru_app_state given; /* of a checkpoint that one process wrote; ops NULL: not read */
    /* the thread of files */
    ru_shardlog *log;
    uint32_t log_generation;
    ru_thread thread[RUI_APP_THREADS_MAX + RUI_APP_LANES - 1];
    uint32_t n_threads; /* that compute */
} rui_app_worker;

extern const ru_engine_device_ops rui_app_device;

/* worker_app.c, loop thread */
void rui_app_exported(rui_app_worker *w, const rui_app_command *c);
void rui_app_number(rui_app_worker *w);

/* worker_app_lead.c, loop thread */
void rui_app_report_open(rui_app_worker *w); /* open already: nothing */
void rui_app_event(rui_app_worker *w, int64_t step, const char *what, uint32_t worker,
                   const ru_run_report_details *more); /* more NULL: none */
void rui_app_viewed(void *self, ru_time now);          /* a view is in force: tell it */

/* worker_app_log.c, the thread of files; the last one before it runs or after it */
void rui_app_log_append(rui_app_worker *w, rui_app_command *c);
void rui_app_log_gather(const rui_app_worker *w, rui_app_command *c);
void rui_app_log_clean(const rui_app_worker *w, bool all); /* logs of earlier runs, or all */

/* worker_app_plans.c, loop thread */
void rui_app_planned(void *self, const ru_moves_in *in, ru_time now);
void rui_app_reassigned(void *self, const ru_reassign_in *in, const ru_engine_slices *slices,
                        int64_t clock_ns);
void rui_app_staged(void *self, const ru_stage_in *in, double clock_s, ru_time now);
void rui_app_settled(rui_app_worker *w, const ru_engine_news *n, ru_time now);
void rui_app_saving(void *self, const ru_save_in *in, uint32_t count, ru_time now);
void rui_app_logged(rui_app_worker *w, const ru_engine_news *n);
void rui_app_recovered(void *self, const ru_recover_in *in, double late, int64_t took_ns,
                       ru_time now);
void rui_app_world(rui_app_worker *w);                          /* the leader: OUT/world.json */
void rui_app_world_make(rui_app_worker *w, rui_app_command *c); /* compute threads: its text */
ru_app_world rui_app_world_of(const rui_app_worker *w);

/* worker_app_trace.c */
RU_MUST_USE ru_status rui_app_trace_open(rui_app_worker *w, ru_err *err);
/* A thread has done c. */
void rui_app_trace_work(const rui_app_worker *w, const rui_app_command *c, int64_t begin_ns,
                        int64_t end_ns);
void rui_app_trace_news(const rui_app_worker *w, const ru_engine_news *n, ru_time now); /* loop */

/* worker_app_work.c */
void rui_app_threads_init(rui_app_worker *w);
void rui_app_threads_fini(rui_app_worker *w);
RU_MUST_USE ru_status rui_app_threads_start(rui_app_worker *w, ru_err *err);
void rui_app_threads_stop(rui_app_worker *w);
void rui_app_post(rui_app_worker *w, const rui_app_command *c); /* loop thread; a copy */
void rui_app_answers(void *self, ru_time now);                  /* waker */
/* The newest valid checkpoint of the run; generation 0: none. */
RU_MUST_USE ru_status rui_app_newest(rui_app_worker *w, ru_engine_ckpt *out, ru_err *err);
/* With which a resumed run begins: that, or a newer one of one process. Errors: RU_E_CONFIG when
 * it is of another job. */
RU_MUST_USE ru_status rui_app_from(rui_app_worker *w, ru_engine_ckpt *out, ru_err *err);

#endif
