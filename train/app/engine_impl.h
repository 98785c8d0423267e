/* Inside of the engine.
 *
 *   engine.c        opening, events, views and generations, clocks as members hear them
 *   engine_exec.c   executors: data, state, moves
 *   engine_task.c   one task: rows in, changes out
 *   engine_lead.c   the leader: DONE, closing clocks, the driver's arguments, checkpoints
 *   engine_map.c    the leader: who holds what; views
 *
 * Thread: loop only. */
#ifndef RU_TRAIN_APP_ENGINE_IMPL_H
#define RU_TRAIN_APP_ENGINE_IMPL_H

#include <stddef.h>

#include "base/log.h"
#include "train/app/engine.h"

#define RUI_ENGINE_NONE UINT32_MAX

/* Parcels. */
enum {
    RUI_ENGINE_DONE = RU_PS_WHAT_OWNER,
    RUI_ENGINE_CLOCK,
    RUI_ENGINE_READY,    /* a member has installed a view: tell it the clock */
    RUI_ENGINE_PREPARE,  /* open this executor's data: it will come */
    RUI_ENGINE_PREPARED, /* done */
    RUI_ENGINE_SAVED,    /* an object of a checkpoint is stored */
    RUI_ENGINE_FAILED,   /* the job cannot go on: a sentence */
    RUI_ENGINE_STOP,     /* somebody wants the job to end */
    RUI_ENGINE_GO,       /* a member that wants to leave holds nothing any more */
};
enum { RUI_ENGINE_LEAVERS_MAX = 64 };
/* Timers. */
enum {
    RUI_ENGINE_AGAIN = RU_ENGINE_WHAT_FIRST + 16, /* DONE that may be lost */
    RUI_ENGINE_LOOK,                              /* leader: views that were not possible before */
    RUI_ENGINE_BYE,
    RUI_ENGINE_LOCAL /* of parcels to this process */
};

typedef struct rui_engine_head {
    uint32_t generation, epoch;
    uint32_t executor; /* or object */
    uint32_t clock;    /* DONE: this one is; CLOCK: those below are closed */
    uint32_t args_clock, saved_generation, saved_clock; /* CLOCK: of the body; last valid ckpt */
    uint32_t save;                                      /* CLOCK: a checkpoint at `clock` */
    uint32_t barrier;                                   /* CLOCK: next one; 0: none */
    uint32_t end;                                       /* CLOCK: the job ends: 1 + status */
    uint32_t status;                                    /* SAVED, FAILED */
    int64_t cpu_ns, bytes;                              /* DONE */
} rui_engine_head;

#define RUI_ENGINE_BLOB UINT32_C(0x31417552) /* "RuA1" */

/* Blob of a view. Then for each object its holder's place in the view, uint16_t, with
 * RUI_ENGINE_MOVED when it moved since the generation began: a member that missed views knows by it
 * whether to load the object or to wait for it. */
typedef struct rui_engine_blob {
    uint32_t magic;
    uint32_t generation; /* the epoch of the view that began it; 0: it begins with this one */
    uint32_t from_generation, from_clock, executors, shards;
} rui_engine_blob;
#define RUI_ENGINE_MOVED UINT16_C(0x8000)

typedef enum rui_want {
    RUI_WANT_NONE,
    RUI_WANT_RESTORE, /* from a checkpoint, or from nothing */
    RUI_WANT_ARRIVE,  /* from its last holder */
    RUI_WANT_READY    /* it is here */
} rui_want;

typedef enum rui_busy {
    RUI_IDLE,
    RUI_OPENS, /* the device reads its data */
    RUI_READS, /* ... its checkpoint */
    RUI_FETCHES,
    RUI_RUNS,
    RUI_FLUSHES
} rui_busy;

typedef struct rui_exec {
    bool mine, prepare; /* prepare: the leader wants to know when it is open */
    bool used;          /* the state is not that of exec_open */
    rui_want want;
    rui_busy busy;
    uint32_t generation;             /* when the device began */
    uint32_t step;                   /* next; clock * rounds + round */
    uint32_t asked_clock;            /* clock of the checkpoint that is read */
    void *state;                     /* of the app; NULL: not open */
    int64_t first, rows;             /* its part of the data */
    float *local[RU_APP_TABLES_MAX]; /* [rows, width] */
    void *arrived;                   /* bytes of its state; NULL: none */
    int64_t arrived_bytes;
    ru_time arrived_at;
    ru_engine_task task;
    ru_ps_rows *fetch; /* of all wants that come from the store */
    uint32_t n_fetch, cap_fetch;
    float *buffer;
    int64_t buffer_floats;
    double *sums;      /* [rounds, SUMS_MAX] of the clock under way */
    double *done;      /* [window, rounds, SUMS_MAX] of clocks that are not closed */
    int64_t *done_cpu; /* [window] */
    int64_t cpu_ns;    /* of the clock under way */
} rui_exec;

typedef struct rui_lead {
    bool on;
    uint32_t *done; /* [executors] clocks */
    double *sums;   /* [window, executors, rounds, SUMS_MAX] */
    double last[RU_APP_SUMS_MAX];
    int64_t *cpu_ns;  /* [executors] of a clock, lately */
    void *driver;     /* of the app; NULL: none */
    bool driving;     /* rows for its arguments are on their way */
    bool clocked;     /* ... and those that are told after a clock */
    uint32_t n_drive; /* wants of the driver; those after them are told */
    ru_engine_task drive;
    ru_ps_rows *drive_rows;
    uint32_t n_drive_rows, cap_drive_rows;
    float *drive_buffer;
    uint32_t closed;
    ru_app_bytes args; /* of clock args_clock; NONE: none */
    uint32_t args_clock;
    uint32_t barrier; /* clock of the next checkpoint by time; 0: none */
    uint32_t save;    /* clock of the checkpoint that is being stored + 1; 0: none */
    ru_time save_at;
    int64_t save_bytes;
    uint8_t *stored; /* [executors + shards] */
    uint32_t n_stored;
    ru_app_bytes driver_bytes;
    bool reading;      /* the driver's state of a checkpoint */
    ru_node_id *to;    /* [executors + shards] who shall hold it */
    ru_node_id *at;    /* [executors + shards] who said last that it is there; 0: nobody */
    uint8_t *prepared; /* [executors] 0 not asked, 1 asked, 2 yes */
    bool plan;         /* members changed: what moves where? */
    uint32_t *ready;   /* [RU_MEMBERS_MAX] epoch that each member of the view has said it has */
    bool planned;      /* ... and not all of it has moved yet */
    ru_time planned_at;
    bool renew; /* this member leads since a moment: begin a generation */
    uint32_t n_members, n_leavers;
    uint32_t part_clock; /* checkpoint after which this leader may leave; 0: none was asked for */
    ru_node_id leaver[RUI_ENGINE_LEAVERS_MAX]; /* who want to leave */
    ru_arena plan_out, plan_scratch;
    uint32_t end_clock; /* the job ends when so many clocks are closed and saved */
    bool ended;
} rui_lead;

struct ru_engine {
    ru_engine_options opt;
    ru_arena *arena;
    ru_ps *ps;
    ru_bufs *bufs;
    uint32_t n_execs, n_shards, window, driver_slack;
    int64_t sums_n; /* rounds * SUMS_MAX */
    uint32_t generation, epoch, closed;
    ru_engine_ckpt saved; /* newest valid one that this member knows */
    ru_engine_ckpt base;  /* of this generation */
    ru_node_id *holder;   /* [executors + shards] */
    uint8_t *moved;       /* [executors + shards] since the generation began */
    rui_exec *exec;
    uint32_t save;    /* clock whose checkpoint is being written + 1; 0: none */
    uint8_t *written; /* [executors + shards] this member has given it to the device */
    uint8_t *args;
    int64_t args_bytes;
    uint32_t args_clock; /* RUI_ENGINE_NONE: none */
    uint32_t barrier;    /* no executor runs this clock before it is closed below; 0: none */
    rui_lead lead;
    bool ended, leaving;
    ru_status status;
    char text[RU_ERR_TEXT_MAX];
    ru_engine_facts facts;
};

/* engine.c */
void rui_engine_news(ru_engine *e, ru_engine_news *n, ru_time now);
bool rui_engine_newer(ru_engine_ckpt a, ru_engine_ckpt than);
/* The job cannot go on. */
void rui_engine_fail(ru_engine *e, ru_status st, const char *why, ru_time now, ru_effects *fx);
void rui_engine_over(ru_engine *e, ru_status st, const char *why, ru_time now, ru_effects *fx);
/* To a member, this one too. */
void rui_engine_send(ru_engine *e, ru_node_id to, uint32_t what, rui_engine_head *h,
                     const void *body, int64_t body_bytes, ru_time now, ru_effects *fx);
/* Which objects are here; asks: for the clock. */
void rui_engine_ready(ru_engine *e, bool asks, ru_time now, ru_effects *fx);
void rui_engine_heard_clock(ru_engine *e, const rui_engine_head *h, const void *args,
                            int64_t args_bytes, ru_time now, ru_effects *fx);

/* engine_exec.c */
void rui_exec_settle(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
void rui_exec_reset(ru_engine *e, uint32_t k); /* a new generation */
void rui_exec_map(ru_engine *e, uint32_t k, bool mine, ru_time now, ru_effects *fx);
void rui_exec_came(ru_engine *e, uint32_t k, void *bytes, int64_t n, ru_time now, ru_effects *fx);
void rui_exec_tell(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx); /* DONE, again */
/* State as bytes: a buffer; NULL: no memory. */
void *rui_exec_pack(ru_engine *e, uint32_t k, int64_t *n);
uint32_t rui_exec_clock(const ru_engine *e, uint32_t k); /* that it runs next */

/* engine_task.c */
/* May it run its next step? Then it fetches or runs. */
void rui_task_begin(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
void rui_task_fetched(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
void rui_task_flushed(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);
/* Rows of the wants that lie in the store, as ranges. false: no memory. */
RU_MUST_USE bool rui_task_rows(ru_engine *e, const ru_engine_task *t, ru_ps_rows **rows,
                               uint32_t *n, uint32_t *cap);
int64_t rui_task_floats(const ru_engine *e, const ru_engine_task *t);
/* Places of the wants in `buffer`, and the values of those in the store. */
void rui_task_place(ru_engine *e, ru_engine_task *t, float *buffer);

/* engine_lead.c */
RU_MUST_USE ru_status rui_lead_open(ru_engine *e, ru_err *err);
void rui_lead_close(ru_engine *e);
void rui_lead_stop(ru_engine *e, ru_time now, ru_effects *fx);
void rui_lead_begin(ru_engine *e, ru_time now, ru_effects *fx); /* a generation */
void rui_lead_heard(ru_engine *e, ru_node_id from, uint32_t what, const rui_engine_head *h,
                    const void *body, int64_t body_bytes, ru_time now, ru_effects *fx);
void rui_lead_tell(ru_engine *e, ru_node_id to, ru_time now, ru_effects *fx); /* CLOCK; 0: all */
void rui_lead_fetched(ru_engine *e, ru_time now, ru_effects *fx);
void rui_lead_written(ru_engine *e, ru_engine_ckpt at, ru_time now, ru_effects *fx);
void rui_lead_read(ru_engine *e, const void *bytes, int64_t n, ru_status st, const char *why,
                   ru_time now, ru_effects *fx);

/* engine_map.c */
void rui_map_look(ru_engine *e, ru_time now, ru_effects *fx);
void rui_map_in_force(ru_engine *e, bool fresh, ru_time now, ru_effects *fx);
/* here: bits of objects that are there. */
void rui_map_ready(ru_engine *e, ru_node_id from, const rui_engine_head *h, const uint8_t *here,
                   int64_t bytes, ru_time now, ru_effects *fx);
void rui_map_prepared(ru_engine *e, ru_node_id from, uint32_t executor, ru_time now,
                      ru_effects *fx);

#endif
